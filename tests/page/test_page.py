"""The chat page in a real Chromium, by keyboard and pointer, wide and on a phone, in the light and in the dark.

What the page shows is decided by a small server here that answers as the API documents it: with reasoning, markdown,
tool calls, slowly, or with errors. The last test lets
the same page talk to grappa. PAGE_SHOTS=DIR keeps pictures.
"""
import gzip
import json
import os
import pathlib
import re
import shutil
import subprocess
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from selenium import webdriver
from selenium.common.exceptions import StaleElementReferenceException
from selenium.webdriver.chrome.service import Service
from selenium.webdriver.common.by import By
from selenium.webdriver.common.keys import Keys
from selenium.webdriver.support.ui import WebDriverWait

ROOT = pathlib.Path(__file__).parents[2]
PAGE = gzip.decompress((ROOT / "web/dist/index.html.gz").read_bytes())


def chunk(delta, **rest):
    return {"choices": [{"index": 0, "delta": delta, "finish_reason": rest.pop("finish", None)}], **rest}


MARKDOWN = "A **bold** word, a [link](https://example.com) and ![a cat](https://example.com/cat.png)\n\n" \
           "| a | b |\n|---|---|\n| 1 | 2 |\n\n```c\nint main(void) { return 0; }\n```\n<script>window.bad = 1</script>\n"
TIMINGS = {"predicted_n": 42, "predicted_per_second": 12.5}
ANSWERS = {
    "markdown": [chunk({"content": c}) for c in MARKDOWN] + [chunk({}, finish="stop", timings=TIMINGS)],
    "think": [chunk({"reasoning_content": "Let me see."}), chunk({"content": "Seen."}), chunk({}, finish="stop")],
    "tool": [chunk({"tool_calls": [{"index": 0, "id": "1", "function": {"name": "weather", "arguments": ""}}]}),
             chunk({"tool_calls": [{"index": 0, "function": {"arguments": '{"city":"Parma"}'}}]}),
             chunk({}, finish="tool_calls")],
    "length": [chunk({"content": "and so"}), chunk({}, finish="length")],
    "broken": [chunk({"content": "half "}), {"error": {"message": "the device was lost"}}],
}


class Api(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def log_message(self, *_):
        pass

    def reply(self, status, kind, body):
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        self.server.asked.append(self.path)
        if self.path == "/":
            return self.reply(200, "text/html; charset=utf-8", PAGE)
        if self.path == "/v1/models":
            return self.reply(200, "application/json", b'{"data": [{"id": "one"}, {"id": "two"}]}')
        return self.reply(404, "application/json", b"{}")

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.server.bodies.append(body)
        last = body["messages"][-1]["content"]
        if last == "refuse":
            return self.reply(400, "application/json", b'{"error": {"code": 400, "message": "no such thing"}}')
        self.send_response(200)
        self.send_header("Content-Type", "text/event-stream")
        self.send_header("Connection", "close")
        self.end_headers()
        try:
            echo = [chunk({"content": "echo: " + last}), chunk({}, finish="stop")]
            for event in self.slow() if last == "slow" else ANSWERS.get(last, echo):
                self.wfile.write(b"data: " + json.dumps(event).encode() + b"\n\n")
                self.wfile.flush()
            self.wfile.write(b"data: [DONE]\n\n")
        except (BrokenPipeError, ConnectionResetError):
            self.server.dropped.set()
        self.close_connection = True

    @staticmethod
    def slow():
        for i in range(400):
            yield chunk({"content": f"{i} "})
            time.sleep(0.05)


@pytest.fixture(scope="module")
def api():
    server = ThreadingHTTPServer(("127.0.0.1", 0), Api)
    server.asked, server.bodies, server.dropped = [], [], threading.Event()
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()


class Page:
    def __init__(self, url, width, height, dark):
        options = webdriver.ChromeOptions()
        options.binary_location = shutil.which("chromium") or "chromium"
        for a in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
                  f"--blink-settings=preferredColorScheme={0 if dark else 1}"):
            options.add_argument(a)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        self.d = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
        self.d.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", {
            "width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 600})
        self.url = url

    def start(self):
        """As on a first visit, in a browser that is open already."""
        self.d.get(self.url)
        time.sleep(0.4)  # nothing is waiting to be kept any more
        self.d.execute_script("localStorage.clear()")
        self.d.refresh()
        self.until(lambda: self.all("textarea"))
        self.d.get_log("browser"), self.d.get_log("performance")

    def until(self, true, seconds=20):
        return WebDriverWait(self.d, seconds, 0.05, [StaleElementReferenceException]).until(lambda _: true())

    def all(self, css):
        return self.d.find_elements(By.CSS_SELECTOR, css)

    def button(self, name):
        found = [b for b in self.all("button") if b.text == name or b.get_attribute("aria-label") == name]
        return found[-1] if found else None

    def click(self, name):
        self.until(lambda: self.button(name) and self.button(name).is_enabled())
        self.button(name).click()

    def say(self, text):
        box = self.d.find_element(By.CSS_SELECTOR, "textarea[aria-label=Message]")
        box.send_keys(text, Keys.ENTER)

    def answer(self, n=1):
        """Text of the n-th answer, once it is whole."""
        self.until(lambda: len(self.all(".assistant")) >= n and not self.button("Stop"))
        return self.all(".assistant")[n - 1].text

    def ask(self, text):
        n = len(self.all(".assistant"))
        self.say(text)
        return self.answer(n + 1)

    def shot(self, name):
        if os.environ.get("PAGE_SHOTS"):
            self.d.save_screenshot(os.path.join(os.environ["PAGE_SHOTS"], name + ".png"))

    def elsewhere(self, base):
        """Requests to anywhere but the server."""
        urls = (json.loads(e["message"])["message"] for e in self.d.get_log("performance"))
        urls = (m["params"]["request"]["url"] for m in urls if m["method"] == "Network.requestWillBeSent")
        return [u for u in urls if not u.startswith((base, "data:", "blob:", "chrome:"))]


@pytest.fixture(scope="module", params=[(1200, 800, False), (390, 780, True)], ids=["wide-light", "phone-dark"])
def browser(api, request):
    p = Page(f"http://127.0.0.1:{api.server_address[1]}/", *request.param)
    yield p
    p.d.quit()


@pytest.fixture
def page(browser, request):
    browser.name = request.node.callspec.id
    browser.start()
    return browser


def base_of(api):
    return f"http://127.0.0.1:{api.server_address[1]}/"


def test_shows_markdown_and_nothing_runs(page, api):
    page.shot(page.name + "-empty")
    text = page.ask("markdown")
    assert "A bold word" in text and "**" not in text
    assert page.all(".assistant strong")[0].text == "bold"
    assert [c.text for c in page.all(".assistant td")] == ["1", "2"]
    assert "int main" in page.all(".assistant pre code")[0].text and page.all(".assistant pre .hljs-type")
    assert page.all(".assistant a")[0].get_attribute("rel") == "noopener noreferrer nofollow"
    assert not page.all(".assistant img") and "https://example.com/cat.png" in text
    assert page.d.execute_script("return window.bad") is None
    assert "42 tokens, 12.5 a second" in text
    page.shot(page.name + "-markdown")
    width = page.d.execute_script("return [document.documentElement.scrollWidth, innerWidth]")
    assert width[0] <= width[1]
    assert page.elsewhere(base_of(api)) == []
    assert [e["message"] for e in page.d.get_log("browser") if e["level"] == "SEVERE"] == []


def test_reasoning_is_folded(page):
    page.ask("think")
    fold = page.all(".assistant details")[0]
    assert fold.get_attribute("open") is None and page.all(".assistant .markdown")[0].text == "Seen."
    fold.find_element(By.TAG_NAME, "summary").click()
    assert "Let me see." in fold.text
    page.shot(page.name + "-reasoning")


def test_tool_calls_are_shown(page):
    text = page.ask("tool")
    assert "weather" in text and '{"city":"Parma"}' in text


def test_limits_and_errors_are_said(page):
    assert "length limit" in page.ask("length")
    assert "half" in page.ask("broken") and "the device was lost" in page.all(".error")[-1].text
    page.ask("refuse")
    assert "no such thing" in page.all(".error")[-1].text
    page.shot(page.name + "-errors")
    assert "echo: again" in page.ask("again")


def test_stop_and_regenerate(page, api):
    api.dropped.clear()
    page.say("slow")
    page.until(lambda: page.all(".assistant") and "5 6" in page.all(".assistant")[0].text)
    page.click("Stop")
    assert "Stopped." in page.answer()
    assert api.dropped.wait(10)  # the server sees that nobody listens any more
    page.shot(page.name + "-stopped")
    n = len(api.bodies)
    page.click("Regenerate")
    page.until(lambda: len(api.bodies) == n + 1)
    assert [m["content"] for m in api.bodies[-1]["messages"]] == ["slow"]
    page.click("Stop")


def test_edit_asks_again(page, api):
    page.ask("first")
    page.ask("second")
    edits = [b for b in page.all(".user button") if b.text == "Edit"]
    page.d.execute_script("arguments[0].click()", edits[0])
    box = page.until(lambda: page.all("textarea[aria-label='Edit your message']"))[0]
    box.send_keys(Keys.CONTROL, "a")
    box.send_keys("other")
    page.click("Send again")
    page.until(lambda: len(page.all(".assistant")) == 1)
    assert "echo: other" in page.answer()
    assert [m["content"] for m in api.bodies[-1]["messages"]] == ["other"]


def test_settings_reach_the_server_and_stay(page, api):
    page.click("Settings")
    dialog = page.until(lambda: page.all("dialog[open]"))[0]
    field = {e.text.split("\n")[0]: e for e in dialog.find_elements(By.TAG_NAME, "label")}
    page.until(lambda: len(page.all("dialog select")[0].find_elements(By.TAG_NAME, "option")) == 3)
    page.all("dialog select")[0].send_keys("two")
    field["System message"].find_element(By.TAG_NAME, "textarea").send_keys("Be brief.")
    page.all("dialog select")[1].send_keys("off")
    field["Temperature"].find_element(By.TAG_NAME, "input").send_keys("0.25")
    page.shot(page.name + "-settings")
    page.d.switch_to.active_element.send_keys(Keys.ESCAPE)
    page.until(lambda: not page.all("dialog[open]"))
    page.ask("hello")
    body = api.bodies[-1]
    assert body["model"] == "two" and body["temperature"] == 0.25
    assert body["chat_template_kwargs"] == {"enable_thinking": False}
    assert body["messages"] == [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "hello"}]
    time.sleep(0.5)
    page.d.refresh()
    page.until(lambda: page.all(".assistant"))
    assert "echo: hello" in page.answer()
    page.ask("more")
    assert api.bodies[-1]["temperature"] == 0.25 and len(api.bodies[-1]["messages"]) == 4


def test_conversations_are_kept_and_deleted(page):
    phone = page.name.startswith("phone")

    def open_list():
        if phone and page.all(".page:not(.drawer-open)"):
            page.click("Conversations")
            time.sleep(0.3)

    page.ask("one")
    open_list()
    page.click("+ New conversation")
    page.until(lambda: not page.all(".assistant"))
    page.ask("two")
    open_list()
    page.shot(page.name + "-list")
    titles = [e.text for e in page.all(".conversation .open")]
    assert titles == ["two", "one"]
    page.all(".conversation .open")[1].click()
    page.until(lambda: page.all(".assistant") and "echo: one" in page.all(".assistant")[0].text)
    open_list()
    page.all(".conversation .delete")[1].click()
    page.until(lambda: len(page.all(".conversation")) == 1)


def test_by_keyboard_alone(page):
    """Tab reaches the button for settings, Enter opens them, Escape closes; Shift+Enter makes a new line."""
    for _ in range(30):
        page.d.switch_to.active_element.send_keys(Keys.TAB)
        if page.d.switch_to.active_element.text == "Settings":
            break
    page.d.switch_to.active_element.send_keys(Keys.ENTER)
    page.until(lambda: page.all("dialog[open]"))
    page.d.switch_to.active_element.send_keys(Keys.ESCAPE)
    page.until(lambda: not page.all("dialog[open]"))
    assert page.d.switch_to.active_element.text == "Settings"
    box = page.all("textarea[aria-label=Message]")[0]
    box.send_keys("a", Keys.SHIFT + Keys.ENTER + Keys.NULL + "b")
    assert box.get_attribute("value") == "a\nb"


@pytest.fixture
def grappa(tmp_path):
    """The program itself with a real model; its address."""
    log = tmp_path / "log"
    program = os.environ.get("GRAPPA", ROOT / "build/grappa")
    model = pathlib.Path(os.environ.get("GRAPPA_MODELS", ROOT / ".models")) / "SmolLM2-135M-Instruct.Q4_1.gguf"
    with log.open("w") as out:
        p = subprocess.Popen([program, "serve", "-m", model, "--port", "0", "-c", "1024"], stdout=out, stderr=out)
    try:
        for _ in range(600):
            if found := re.search(r"http://127\.0\.0\.1:\d+", log.read_text()):
                break
            assert p.poll() is None, log.read_text()
            time.sleep(0.1)
        yield found[0] + "/"
    finally:
        p.terminate()
        assert p.wait(30) == 0


def test_talks_to_grappa(browser, grappa):
    browser.url, url = grappa, browser.url
    try:
        browser.start()
        text = browser.ask("What is the capital of France? Answer in one word.")
        assert "Paris" in text and re.search(r"\d+ tokens, [\d.]+ a second", text)
        assert browser.elsewhere(grappa) == []
        assert [e["message"] for e in browser.d.get_log("browser") if e["level"] == "SEVERE"] == []
    finally:
        browser.url = url

"""A running server for tests: started on a free port, stopped by SIGTERM, its log at hand."""
import json
import os
import re
import signal
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

from cli_tools import GRAPPA, environment


class Server:
    def __init__(self, model, *args, env=None, program=None, preexec=None):
        command = [str(program)] if program else [str(GRAPPA), "serve"]
        if model:
            command += ["-m", str(model)]
        self.args = [*command, "--port", "0", *map(str, args)]
        self.env = environment(**(env or {}))
        self.process = None
        self.preexec = preexec  # run in the child before the program
        self.log = ""

    def __enter__(self):
        # A file, since a pipe that nobody empties would make the server wait.
        self.stderr = tempfile.TemporaryFile()
        self.process = subprocess.Popen(self.args, stderr=self.stderr, stdin=subprocess.DEVNULL, env=self.env,
                                        preexec_fn=self.preexec)
        self.url = None
        end = time.time() + 120
        while time.time() < end:
            self.read_log()
            m = re.search(r"listening on (https?)://([^\s]+):(\d+)", self.log)
            if m:
                self.scheme, self.port = m.group(1), int(m.group(3))
                self.url = f"{self.scheme}://127.0.0.1:{self.port}"
            if re.search(r"^ready$", self.log, re.M) and (self.url or ".sock" in self.log):
                return self
            if self.process.poll() is not None:
                self.read_log()
                raise RuntimeError(f"the server ended with {self.process.returncode}: {self.log}")
            time.sleep(0.01)
        raise TimeoutError(self.log)

    def __exit__(self, *_):
        self.stop()

    def read_log(self):
        if not self.stderr.closed:
            n = os.fstat(self.stderr.fileno()).st_size
            self.log = os.pread(self.stderr.fileno(), n, 0).decode("utf-8", "replace")
        return self.log

    def stop(self, how=signal.SIGTERM, timeout=30):
        """Returns the exit status."""
        if self.process.poll() is None:
            self.process.send_signal(how)
            try:
                self.process.wait(timeout)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
                raise
        self.read_log()
        self.stderr.close()
        return self.process.returncode

    def request(self, method, path, body=None, headers=None, raw=None, timeout=120):
        """(status, headers, JSON or text)"""
        data = raw if raw is not None else json.dumps(body).encode() if body is not None else None
        r = urllib.request.Request(self.url + path, data=data, method=method,
                                   headers={"Content-Type": "application/json", **(headers or {})})
        try:
            with urllib.request.urlopen(r, timeout=timeout) as f:
                status, head, text = f.status, f.headers, f.read()
        except urllib.error.HTTPError as e:
            status, head, text = e.code, e.headers, e.read()
        try:
            return status, head, json.loads(text)
        except ValueError:
            return status, head, text.decode("utf-8", "replace")

    def get(self, path, **more):
        return self.request("GET", path, **more)

    def post(self, path, body, **more):
        return self.request("POST", path, body, **more)

    def ok(self, path, body, **more):
        status, _, answer = self.post(path, body, **more)
        assert status == 200, (status, answer)
        return answer

    def stream(self, path, body, headers=None):
        """Events of a stream: (name or None, JSON or "[DONE]")."""
        r = urllib.request.Request(self.url + path, data=json.dumps({**body, "stream": True}).encode(), method="POST",
                                   headers={"Content-Type": "application/json", **(headers or {})})
        name = None
        with urllib.request.urlopen(r, timeout=120) as f:
            assert f.headers["Content-Type"].startswith("text/event-stream")
            for line in f:
                line = line.decode("utf-8").rstrip("\n")
                if line.startswith("event: "):
                    name = line[7:]
                elif line.startswith("data: "):
                    yield name, (line[6:] if line[6:] == "[DONE]" else json.loads(line[6:]))
                    name = None

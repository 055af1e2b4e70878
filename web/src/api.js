// The server's side of the page: which models there are, and one streamed answer.

const headers = (settings) => ({
  "Content-Type": "application/json",
  ...(settings.apiKey ? { Authorization: `Bearer ${settings.apiKey}` } : {}),
});

async function failure(response) {
  const text = await response.text();
  try {
    return new Error(JSON.parse(text).error.message);
  } catch {
    return new Error(`${response.status} ${response.statusText} ${text.slice(0, 200)}`.trim());
  }
}

export async function models(settings) {
  const response = await fetch("./v1/models", { headers: headers(settings) });
  if (!response.ok) throw await failure(response);
  return (await response.json()).data.map((m) => m.id);
}

function body(settings, messages) {
  const numbers = ["temperature", "top_p", "top_k", "min_p", "max_tokens"]
    .filter((k) => settings[k] !== "" && Number.isFinite(Number(settings[k])))
    .map((k) => [k, Number(settings[k])]);
  return {
    messages: [
      ...(settings.system.trim() ? [{ role: "system", content: settings.system }] : []),
      ...messages.map(({ role, content }) => ({ role, content })),
    ],
    stream: true,
    timings_per_token: true,
    ...(settings.model ? { model: settings.model } : {}),
    ...(settings.thinking === "auto"
      ? {}
      : { chat_template_kwargs: { enable_thinking: settings.thinking === "on" } }),
    ...Object.fromEntries(numbers),
  };
}

// The data of each server-sent event. They are parted by an empty line; a read may end anywhere.
async function* events(stream) {
  let held = "";
  for await (const piece of chunks(stream.pipeThrough(new TextDecoderStream()))) {
    held += piece;
    const whole = held.split(/\r?\n\r?\n/);
    held = whole.pop();
    for (const event of whole) {
      const data = event
        .split(/\r?\n/)
        .filter((l) => l.startsWith("data:"))
        .map((l) => l.slice(5).trimStart())
        .join("\n");
      if (data && data !== "[DONE]") yield JSON.parse(data);
    }
  }
}

async function* chunks(stream) {
  const reader = stream.getReader();
  try {
    for (let r; !(r = await reader.read()).done; ) yield r.value;
  } finally {
    reader.cancel().catch(() => {});
  }
}

// Calls onChange with {content, reasoning, calls, speed, finish} as they grow.
export async function answer(settings, messages, signal, onChange) {
  const response = await fetch("./v1/chat/completions", {
    method: "POST",
    headers: headers(settings),
    body: JSON.stringify(body(settings, messages)),
    signal,
  });
  if (!response.ok) throw await failure(response);
  const out = { content: "", reasoning: "", calls: [], speed: null, finish: null };
  for await (const event of events(response.body)) {
    if (event.error) throw new Error(event.error.message);
    const choice = event.choices?.[0];
    out.content += choice?.delta?.content ?? "";
    out.reasoning += choice?.delta?.reasoning_content ?? "";
    for (const call of choice?.delta?.tool_calls ?? []) {
      const at = (out.calls[call.index] ??= { name: "", arguments: "" });
      at.name += call.function?.name ?? "";
      at.arguments += call.function?.arguments ?? "";
    }
    out.finish = choice?.finish_reason ?? out.finish;
    if (event.timings?.predicted_n > 1)
      out.speed = { tokens: event.timings.predicted_n, perSecond: event.timings.predicted_per_second };
    onChange({ ...out, calls: [...out.calls] });
  }
}

// Between the store and the chat component: what it shows, and what its buttons do.
import { useExternalStoreRuntime } from "@assistant-ui/react";
import { answer } from "./api.js";
import { get, messagesOf, newId, setMessage, setMessages, thread, update, useStore } from "./store.js";

let stopper = null;

// Lets the model answer the last message of a thread. At most one answer is written at a time.
async function run(id) {
  const messages = thread(id).messages;
  const index = messages.length;
  const stop = (stopper = new AbortController());
  setMessages(id, [...messages, { id: newId(), role: "assistant", content: "", reasoning: "" }]);
  update({ running: id });
  // The text arrives in many small pieces: shown once a frame.
  let latest = null;
  let frame = 0;
  const show = () => {
    frame = 0;
    setMessage(id, index, latest);
  };
  try {
    await answer(get().settings, messages, stop.signal, (now) => {
      latest = now;
      frame ||= requestAnimationFrame(show);
    });
    if (latest) show();
  } catch (e) {
    cancelAnimationFrame(frame);
    const error = stop.signal.aborted ? null : e.message || "the server can't be reached";
    setMessage(id, index, { ...latest, error, stopped: stop.signal.aborted });
  }
  if (stopper === stop) {
    stopper = null;
    update({ running: null });
  }
}

function stopRunning() {
  stopper?.abort();
  stopper = null;
  update({ running: null });
}

const textOf = (message) =>
  message.content
    .filter((p) => p.type === "text")
    .map((p) => p.text)
    .join("");

function send(message, before) {
  stopRunning();
  const id = get().current ?? newId();
  update({ current: id });
  setMessages(id, [...before, { id: newId(), role: "user", content: textOf(message) }]);
  return run(id);
}

// Messages up to and with the one of this id; none for null.
function upTo(id) {
  const messages = messagesOf(get());
  return messages.slice(0, messages.findIndex((m) => m.id === id) + 1);
}

function parts(m) {
  if (m.role === "user") return [{ type: "text", text: m.content }];
  return [
    ...(m.reasoning ? [{ type: "reasoning", text: m.reasoning }] : []),
    { type: "text", text: m.content },
    ...(m.calls ?? []).filter(Boolean).map((c, i) => ({
      type: "tool-call",
      toolCallId: `${m.id}.${i}`,
      toolName: c.name,
      argsText: c.arguments,
    })),
  ];
}

function status(m, isLast, running) {
  if (isLast && running) return { type: "running" };
  if (m.error) return { type: "incomplete", reason: "error", error: m.error };
  if (m.stopped) return { type: "incomplete", reason: "cancelled" };
  return m.finish === "length" ? { type: "incomplete", reason: "length" } : { type: "complete", reason: "stop" };
}

export function useRuntime() {
  const messages = useStore(messagesOf);
  const threads = useStore((s) => s.threads);
  const current = useStore((s) => s.current);
  const running = useStore((s) => s.running !== null && s.running === s.current);
  return useExternalStoreRuntime({
    messages,
    isRunning: running,
    convertMessage: (m, i) => ({
      id: m.id,
      role: m.role,
      content: parts(m),
      ...(m.role === "assistant" ? { status: status(m, i === messages.length - 1, running) } : {}),
      metadata: { custom: { speed: m.speed ?? null } },
    }),
    onNew: (message) => send(message, messagesOf(get())),
    onEdit: (message) => send(message, upTo(message.parentId)),
    onReload: async (parentId) => {
      stopRunning();
      const id = get().current;
      setMessages(id, upTo(parentId));
      await run(id);
    },
    onCancel: async () => stopRunning(),
    adapters: {
      threadList: {
        threadId: current ?? "new",
        threads: threads.map((t) => ({ id: t.id, status: "regular", title: t.title })),
        onSwitchToNewThread: () => update({ current: null }),
        onSwitchToThread: (id) => update({ current: id }),
        onDelete: (id) => {
          if (get().running === id) stopRunning();
          update((s) => ({
            threads: s.threads.filter((t) => t.id !== id),
            current: s.current === id ? null : s.current,
          }));
        },
      },
    },
  });
}

// Conversations and settings, kept in this browser's localStorage and nowhere else.
import { useSyncExternalStore } from "react";

const KEY = "grappa.page.v1";

export const DEFAULT_SETTINGS = {
  apiKey: "",
  model: "",
  system: "",
  temperature: "",
  top_p: "",
  top_k: "",
  min_p: "",
  max_tokens: "",
  thinking: "auto", // "auto", "on", "off"
};

function load() {
  try {
    const kept = JSON.parse(localStorage.getItem(KEY) ?? "{}");
    const threads = Array.isArray(kept.threads) ? kept.threads : [];
    return {
      settings: { ...DEFAULT_SETTINGS, ...kept.settings },
      threads: threads.filter((t) => t && typeof t.id === "string" && Array.isArray(t.messages)),
      current: typeof kept.current === "string" ? kept.current : null,
    };
  } catch {
    return { settings: { ...DEFAULT_SETTINGS }, threads: [], current: null };
  }
}

let state = { ...load(), running: null, notice: "" };
const listeners = new Set();
let saving = 0;

function save() {
  saving = 0;
  const { settings, threads, current } = state;
  for (let kept = threads; ; kept = kept.slice(0, -1)) {
    try {
      localStorage.setItem(KEY, JSON.stringify({ settings, threads: kept, current }));
      break;
    } catch {
      // Full: the oldest conversations are not kept.
      if (kept.length === 0) break;
    }
  }
}

export function update(change) {
  state = { ...state, ...(typeof change === "function" ? change(state) : change) };
  listeners.forEach((l) => l());
  saving ||= setTimeout(save, 300);
}

addEventListener("pagehide", () => saving && save());

export const get = () => state;
export const useStore = (pick) =>
  useSyncExternalStore(
    (l) => (listeners.add(l), () => listeners.delete(l)),
    () => pick(state),
  );

export const newId = () =>
  Array.from(crypto.getRandomValues(new Uint8Array(9)), (b) => b.toString(36).padStart(2, "0")).join("");

export const thread = (id) => state.threads.find((t) => t.id === id);
const NO_MESSAGES = [];
export const messagesOf = (s) => s.threads.find((t) => t.id === s.current)?.messages ?? NO_MESSAGES;

// Replaces a thread's messages; a thread that isn't there yet begins, named by its first message.
export function setMessages(id, messages) {
  update((s) => {
    const old = s.threads.find((t) => t.id === id);
    const first = messages.find((m) => m.role === "user")?.content ?? "";
    const title = old?.title || first.trim().split("\n")[0].slice(0, 60) || "Conversation";
    return { threads: [{ ...old, id, title, messages }, ...s.threads.filter((t) => t.id !== id)] };
  });
}

export function setMessage(id, index, change) {
  update((s) => ({
    threads: s.threads.map((t) =>
      t.id !== id ? t : { ...t, messages: t.messages.map((m, i) => (i === index ? { ...m, ...change } : m)) },
    ),
  }));
}

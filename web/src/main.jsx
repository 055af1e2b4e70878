// The page: conversations at the side, one of them open, settings in a dialog.
import {
  AssistantRuntimeProvider,
  ThreadListItemPrimitive,
  ThreadListPrimitive,
} from "@assistant-ui/react";
import { StrictMode, useEffect, useRef, useState } from "react";
import { createRoot } from "react-dom/client";
import { useRuntime } from "./runtime.js";
import { Settings } from "./settings.jsx";
import { useStore } from "./store.js";
import "./style.css";
import { Thread } from "./thread.jsx";

const Conversation = () => (
  <ThreadListItemPrimitive.Root className="conversation">
    <ThreadListItemPrimitive.Trigger className="open">
      <ThreadListItemPrimitive.Title fallback="Conversation" />
    </ThreadListItemPrimitive.Trigger>
    <ThreadListItemPrimitive.Delete className="delete" aria-label="Delete this conversation">
      ×
    </ThreadListItemPrimitive.Delete>
  </ThreadListItemPrimitive.Root>
);

function App() {
  const runtime = useRuntime();
  const dialog = useRef(null);
  const [drawer, setDrawer] = useState(false);
  const current = useStore((s) => s.current);
  const title = useStore((s) => s.threads.find((t) => t.id === s.current)?.title);
  useEffect(() => setDrawer(false), [current]);
  useEffect(() => {
    document.title = title ? `${title} · grappa` : "grappa";
  }, [title]);
  return (
    <AssistantRuntimeProvider runtime={runtime}>
      <div className={drawer ? "page drawer-open" : "page"}>
        <nav className="side" id="side" aria-label="Conversations">
          <ThreadListPrimitive.Root className="list">
            <ThreadListPrimitive.New className="new" onClick={() => setDrawer(false)}>
              + New conversation
            </ThreadListPrimitive.New>
            <ThreadListPrimitive.Items components={{ ThreadListItem: Conversation }} />
          </ThreadListPrimitive.Root>
        </nav>
        <button type="button" className="shade" aria-label="Close the list" onClick={() => setDrawer(false)} />
        <main>
          <header>
            <button
              type="button"
              className="menu"
              aria-controls="side"
              aria-expanded={drawer}
              aria-label="Conversations"
              onClick={() => setDrawer(!drawer)}
            >
              ☰
            </button>
            <h1>{title ?? "grappa"}</h1>
            <button type="button" onClick={() => dialog.current.showModal()}>
              Settings
            </button>
          </header>
          <Thread />
        </main>
        <Settings dialog={dialog} />
      </div>
    </AssistantRuntimeProvider>
  );
}

createRoot(document.getElementById("root")).render(
  <StrictMode>
    <App />
  </StrictMode>,
);

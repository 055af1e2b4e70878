// One conversation: its messages, and the place to write.
import {
  ActionBarPrimitive,
  AuiIf,
  ComposerPrimitive,
  ErrorPrimitive,
  MessagePrimitive,
  ThreadPrimitive,
  useAuiState,
} from "@assistant-ui/react";
import { MarkdownTextPrimitive } from "@assistant-ui/react-markdown";
import { useState } from "react";
import rehypeHighlight from "rehype-highlight";
import remarkGfm from "remark-gfm";

function CodeHeader({ language, code }) {
  const [copied, setCopied] = useState(false);
  const copy = async () => {
    await navigator.clipboard?.writeText(code);
    setCopied(true);
    setTimeout(() => setCopied(false), 1500);
  };
  return (
    <div className="code-head">
      <span>{language && language !== "unknown" ? language : "text"}</span>
      <button type="button" onClick={copy}>
        {copied ? "Copied" : "Copy"}
      </button>
    </div>
  );
}

const outside = ({ node: _, ...props }) => <a {...props} target="_blank" rel="noopener noreferrer nofollow" />;
// A picture would be a request to somewhere else: its address is shown instead.
const noPicture = ({ alt, src }) => <span className="picture">[{alt || "picture"}: {src}]</span>;

const Markdown = () => (
  <MarkdownTextPrimitive
    className="markdown"
    remarkPlugins={[remarkGfm]}
    rehypePlugins={[[rehypeHighlight, { detect: false, ignoreMissing: true }]]}
    components={{ CodeHeader, a: outside, img: noPicture }}
  />
);

const Plain = ({ text }) => <p className="plain">{text}</p>;

function Reasoning({ text, status }) {
  const running = status?.type === "running";
  return (
    <details className="reasoning">
      <summary>{running ? "Thinking…" : "Thoughts"}</summary>
      <p>{text}</p>
    </details>
  );
}

const ToolCall = ({ toolName, argsText }) => (
  <details className="reasoning" open>
    <summary>
      Call of <code>{toolName}</code>
    </summary>
    <pre>{argsText}</pre>
  </details>
);

function Speed() {
  const speed = useAuiState((s) => s.message.metadata?.custom?.speed);
  if (!speed) return null;
  return (
    <span className="speed">
      {speed.tokens} tokens, {speed.perSecond.toFixed(1)} a second
    </span>
  );
}

const UserMessage = () => (
  <MessagePrimitive.Root className="message user">
    <div className="bubble">
      <MessagePrimitive.Parts components={{ Text: Plain }} />
    </div>
    <ActionBarPrimitive.Root className="actions" hideWhenRunning>
      <ActionBarPrimitive.Edit>Edit</ActionBarPrimitive.Edit>
      <ActionBarPrimitive.Copy>Copy</ActionBarPrimitive.Copy>
    </ActionBarPrimitive.Root>
  </MessagePrimitive.Root>
);

const EditMessage = () => (
  <ComposerPrimitive.Root className="composer edit">
    <ComposerPrimitive.Input aria-label="Edit your message" rows={1} />
    <div className="row">
      <ComposerPrimitive.Cancel>Cancel</ComposerPrimitive.Cancel>
      <ComposerPrimitive.Send className="primary">Send again</ComposerPrimitive.Send>
    </div>
  </ComposerPrimitive.Root>
);

function AssistantMessage() {
  const running = useAuiState((s) => s.message.status?.type === "running");
  const reason = useAuiState((s) => s.message.status?.reason);
  return (
    <MessagePrimitive.Root className="message assistant" aria-busy={running}>
      <MessagePrimitive.Parts
        components={{ Text: Markdown, Reasoning, tools: { Fallback: ToolCall } }}
      />
      <MessagePrimitive.Error>
        <ErrorPrimitive.Root className="error" role="alert">
          <ErrorPrimitive.Message />
        </ErrorPrimitive.Root>
      </MessagePrimitive.Error>
      {reason === "length" && <p className="note">The answer ends here: it has reached its length limit.</p>}
      {reason === "cancelled" && <p className="note">Stopped.</p>}
      <div className="foot">
        <Speed />
        <ActionBarPrimitive.Root className="actions" hideWhenRunning>
          <ActionBarPrimitive.Copy>Copy</ActionBarPrimitive.Copy>
          <ActionBarPrimitive.Reload>Regenerate</ActionBarPrimitive.Reload>
        </ActionBarPrimitive.Root>
      </div>
    </MessagePrimitive.Root>
  );
}

const Composer = () => (
  <ComposerPrimitive.Root className="composer">
    <ComposerPrimitive.Input
      autoFocus
      rows={1}
      aria-label="Message"
      placeholder="Write a message (Shift+Enter for a new line)"
    />
    <AuiIf condition={(s) => !s.thread.isRunning}>
      <ComposerPrimitive.Send className="primary">Send</ComposerPrimitive.Send>
    </AuiIf>
    <AuiIf condition={(s) => s.thread.isRunning}>
      <ComposerPrimitive.Cancel className="primary">Stop</ComposerPrimitive.Cancel>
    </AuiIf>
  </ComposerPrimitive.Root>
);

export const Thread = () => (
  <ThreadPrimitive.Root className="thread">
    <ThreadPrimitive.Viewport className="viewport" role="log" aria-label="Conversation" tabIndex={0}>
      <AuiIf condition={(s) => s.thread.isEmpty}>
        <div className="welcome">
          <h2>What is on your mind?</h2>
          <p>Everything stays between this browser and your server.</p>
        </div>
      </AuiIf>
      <ThreadPrimitive.Messages components={{ UserMessage, EditComposer: EditMessage, AssistantMessage }} />
      <ThreadPrimitive.ViewportFooter className="dock">
        <ThreadPrimitive.ScrollToBottom className="to-end" aria-label="To the end">
          ↓
        </ThreadPrimitive.ScrollToBottom>
        <Composer />
      </ThreadPrimitive.ViewportFooter>
    </ThreadPrimitive.Viewport>
  </ThreadPrimitive.Root>
);

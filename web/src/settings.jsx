// The settings: a dialog of the browser's own, so that Escape, focus and screen readers work as everywhere.
import { useEffect, useState } from "react";
import { models } from "./api.js";
import { DEFAULT_SETTINGS, update, useStore } from "./store.js";

const NUMBERS = [
  ["temperature", "Temperature", { min: 0, max: 5, step: 0.05, placeholder: "0.8" }],
  ["top_p", "Top P", { min: 0, max: 1, step: 0.01, placeholder: "0.95" }],
  ["top_k", "Top K", { min: 0, step: 1, placeholder: "40" }],
  ["min_p", "Min P", { min: 0, max: 1, step: 0.01, placeholder: "0.05" }],
  ["max_tokens", "Answer limit", { min: 1, step: 1, placeholder: "tokens" }],
];

export function Settings({ dialog }) {
  const settings = useStore((s) => s.settings);
  const [known, setKnown] = useState([]);
  const [trouble, setTrouble] = useState("");
  const set = (name) => (e) => update((s) => ({ settings: { ...s.settings, [name]: e.target.value } }));

  useEffect(() => {
    let gone = false;
    models(settings).then(
      (ids) => !gone && (setKnown(ids), setTrouble("")),
      (e) => !gone && setTrouble(e.message),
    );
    return () => (gone = true);
  }, [settings.apiKey]);

  return (
    <dialog ref={dialog} className="settings" aria-labelledby="settings-title" closedby="any">
      <form method="dialog">
        <h2 id="settings-title">Settings</h2>
        <label>
          Model
          <select value={settings.model} onChange={set("model")}>
            <option value="">{known.length === 1 ? known[0] : "the server's choice"}</option>
            {known.length > 1 && known.map((id) => <option key={id}>{id}</option>)}
          </select>
        </label>
        {trouble && (
          <p className="error" role="alert">
            {trouble}
          </p>
        )}
        <label>
          System message
          <textarea rows={3} value={settings.system} onChange={set("system")} />
        </label>
        <label>
          Thinking
          <select value={settings.thinking} onChange={set("thinking")}>
            <option value="auto">as the model does</option>
            <option value="on">on</option>
            <option value="off">off</option>
          </select>
        </label>
        <div className="numbers">
          {NUMBERS.map(([name, label, rest]) => (
            <label key={name}>
              {label}
              <input type="number" value={settings[name]} onChange={set(name)} {...rest} />
            </label>
          ))}
        </div>
        <label>
          API key
          <input type="password" autoComplete="off" value={settings.apiKey} onChange={set("apiKey")} />
        </label>
        <div className="row">
          <button type="button" onClick={() => update({ settings: { ...DEFAULT_SETTINGS } })}>
            Reset
          </button>
          <button className="primary">Done</button>
        </div>
      </form>
    </dialog>
  );
}

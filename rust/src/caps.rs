//! What a template can do, found out as llama.cpp does: by rendering small conversations whose values remember
//! whether they were looked at.
//!
//! Lists and dicts are objects of our own that write down which of their items were asked for. A text can't be one,
//! so the texts that matter are markers, and the compiled instructions are followed by checks (see guard.rs) that
//! know the marker: iterating it, taking an item of it, testing whether it is a text.

use crate::jinja::{Context, Template};
use minijinja::machinery::Instruction;
use minijinja::value::{from_args, Enumerator, Object, ObjectRepr, Rest, Value, ValueOrKwargs};
use minijinja::{Environment, Error, ErrorKind, State};
use serde_json::{json, Value as Json};
use std::cell::Cell;
use std::collections::HashSet;
use std::fmt;
use std::sync::{Arc, Mutex};

/// Names and meanings of llama-server's chat_template_caps.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Caps {
    tools: bool,
    tool_calls: bool,
    system_role: bool,
    parallel_tool_calls: bool,
    preserve_reasoning: bool,
    reasoning_effort: bool,
    string_content: bool,
    typed_content: bool,
    object_arguments: bool,
}

const MARKER: &str = "STRING_MARKER";
const REASONING: &str = "<REASONING_CONTENT_PLACEHOLDER>";
const FUEL: u64 = 200_000;

/// Not names that a template can write.
const WATCH_LOOP: &str = "(loop)";
const WATCH_STRING: &str = "(string)";
const WATCH_ITEM: &str = "(item)";

// ---- values that remember ----

#[derive(Debug, Default)]
struct Log(Mutex<HashSet<String>>);

impl Log {
    fn mark(&self, what: &str) {
        if !QUIET.with(Cell::get) {
            if let Ok(mut seen) = self.0.lock() {
                if !seen.contains(what) {
                    seen.insert(what.into());
                }
            }
        }
    }

    fn has(&self, what: &str) -> bool {
        self.0.lock().map(|seen| seen.contains(what)).unwrap_or(false)
    }
}

thread_local! {
    static QUIET: Cell<bool> = const { Cell::new(false) };
    static WHOLE: Cell<bool> = const { Cell::new(false) }; // values are looked through, not used as lists
    static LOG: Cell<Option<Arc<Log>>> = const { Cell::new(None) };
}

/// Runs what looks through whole values, as tojson does: what it sees counts as seen, but lists not as used.
pub fn whole<T>(f: impl FnOnce() -> T) -> T {
    let before = WHOLE.with(|w| w.replace(true));
    let result = f();
    WHOLE.with(|w| w.set(before));
    result
}

/// While it lives, nothing is written down: the guard looks at everything.
pub struct Quiet(bool);

pub fn quiet() -> Quiet {
    Quiet(QUIET.with(|q| q.replace(true)))
}

impl Drop for Quiet {
    fn drop(&mut self) {
        QUIET.with(|q| q.set(self.0));
    }
}

#[derive(Debug)]
struct Node {
    path: String,
    keys: Option<Vec<String>>, // of a dict
    items: Vec<Value>,
    log: Arc<Log>,
}

fn node(json: &Json, path: String, log: &Arc<Log>) -> Value {
    let child = |key: &str, item| node(item, format!("{path}.{key}"), log);
    let (keys, items) = match json {
        Json::Object(map) => (
            Some(map.keys().cloned().collect()),
            map.iter().map(|(key, item)| child(key, item)).collect(),
        ),
        Json::Array(list) => {
            (None, list.iter().enumerate().map(|(i, item)| child(&i.to_string(), item)).collect())
        }
        Json::String(text) => return text.as_str().into(),
        Json::Bool(yes) => return (*yes).into(),
        Json::Number(number) => return number.as_i64().into(),
        Json::Null => return ().into(),
    };
    Value::from_object(Node { path, keys, items, log: log.clone() })
}

impl Node {
    fn mark_list(&self) {
        if !WHOLE.with(Cell::get) {
            self.log.mark(&format!("{} as array", self.path));
        }
    }
}

/// Looks at everything in it.
fn see(value: &Value) {
    if let Some(node) = value.downcast_object_ref::<Node>() {
        for (i, item) in node.items.iter().enumerate() {
            match &node.keys {
                Some(keys) => node.log.mark(&format!("{}.{}", node.path, keys[i])),
                None => node.log.mark(&format!("{}.{i}", node.path)),
            }
            see(item);
        }
    }
}

impl Object for Node {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        if self.keys.is_some() {
            ObjectRepr::Map
        } else {
            ObjectRepr::Seq
        }
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let i = match &self.keys {
            Some(keys) => keys.iter().position(|k| Some(k.as_str()) == key.as_str())?,
            None => key.as_usize()?,
        };
        let item = self.items.get(i)?;
        match &self.keys {
            Some(keys) => self.log.mark(&format!("{}.{}", self.path, keys[i])),
            None => {
                self.log.mark(&format!("{}.{i}", self.path));
                self.mark_list();
            }
        }
        Some(item.clone())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        match &self.keys {
            Some(keys) => Enumerator::Values(keys.iter().map(|k| Value::from(k.as_str())).collect()),
            None => {
                self.mark_list();
                Enumerator::Seq(self.items.len())
            }
        }
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.items.len())
    }

    /// Being printed as it is doesn't count: a template that does so wants a text.
    fn render(self: &Arc<Self>, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.path)
    }
}

// ---- instructions that look at the marker ----

/// The check to put before an instruction.
pub fn watch_before(instruction: &Instruction) -> Option<Instruction<'static>> {
    match instruction {
        Instruction::PushLoop(_) => Some(Instruction::ApplyFilter(WATCH_LOOP, Some(1), !0)),
        Instruction::PerformTest("string", Some(1), _) => {
            Some(Instruction::ApplyFilter(WATCH_STRING, Some(1), !0))
        }
        _ => None,
    }
}

/// The instruction to have in place of another.
pub fn watch_instead<'a>(instruction: &Instruction<'a>) -> Instruction<'a> {
    match instruction {
        Instruction::GetItem => Instruction::ApplyFilter(WATCH_ITEM, Some(2), !0),
        other => other.clone(),
    }
}

fn mark_text(value: &Value, how: &str) -> bool {
    let is_marker = value.as_str() == Some(MARKER);
    if is_marker {
        LOG.with(|slot| {
            let log = slot.take();
            if let Some(log) = &log {
                log.mark(&format!("{MARKER} {how}"));
            }
            slot.set(log);
        });
    }
    is_marker
}

pub fn add_filters(env: &mut Environment) {
    env.add_filter(WATCH_LOOP, |value: Value| {
        mark_text(&value, "as array");
        match value.as_str() {
            Some(_) => Err(Error::new(ErrorKind::InvalidOperation, "a loop over a text")),
            None => Ok(value),
        }
    });
    env.add_filter(WATCH_STRING, |value: Value| {
        mark_text(&value, "is string");
        if let Some(node) = value.downcast_object_ref::<Node>() {
            node.log.mark(&format!("{} is string", node.path));
        }
        value
    });
    env.add_filter(WATCH_ITEM, |value: &Value, key: &Value| {
        if key.is_integer() {
            mark_text(value, "as array");
        }
        value.get_item(key)
    });
    env.add_filter("string", |value: &Value| {
        see(value);
        value.to_string()
    });
    env.add_filter("selectattr", |state: &mut State, value: Value, args: Rest<ValueOrKwargs>| {
        mark_text(&value, "as array");
        let args = args.into_values();
        let (attr, test, rest): (_, _, Rest<ValueOrKwargs>) = from_args(&args)?;
        minijinja::filters::selectattr(state, value, attr, test, rest)
    });
}

// ---- the questions ----

struct Answer {
    log: Arc<Log>,
    text: Option<String>, // None: the template failed
}

impl Answer {
    fn saw(&self, what: &str) -> bool {
        self.log.has(what)
    }
}

fn ask(template: &Template, messages: Json, tools: Json, more: &[(&str, Json)]) -> Answer {
    let log = Arc::new(Log::default());
    let mut vars = json!({
        "messages": messages, "tools": tools, "bos_token": "", "eos_token": "", "add_generation_prompt": true,
    });
    for (name, value) in more {
        vars[*name] = value.clone();
    }
    LOG.with(|slot| slot.set(Some(log.clone())));
    let context = Context::of(node(&vars, String::new(), &log));
    let mut text = String::new();
    let outcome = template.render(context, FUEL, 1, &mut |piece: &[u8]| {
        text.push_str(&String::from_utf8_lossy(piece));
        true
    });
    LOG.with(|slot| slot.set(None));
    Answer { log, text: outcome.ok().map(|()| text) }
}

fn user(content: Json) -> Json {
    json!({"role": "user", "content": content})
}

/// A conversation with calls that carry these arguments.
fn calls(arguments: &Json, n: usize) -> Json {
    let call = |i| {
        json!({"id": format!("call0000{i}"), "type": "function",
               "function": {"name": "tool1", "arguments": arguments}})
    };
    json!([
        user("User message".into()),
        {"role": "assistant", "content": "", "tool_calls": (1..=n).map(call).collect::<Vec<_>>()},
        {"role": "tool", "content": "Tool response", "tool_call_id": "call00001"},
        {"role": "assistant", "content": "The tool response was 'tool response'"},
        user("User message".into()),
    ])
}

fn one_tool() -> Json {
    json!([{
        "name": "tool", "type": "function",
        "function": {
            "name": "tool1", "description": "Tool description",
            "parameters": {
                "type": "object",
                "properties": {"arg": {"type": "string", "description": "Arg description"}},
                "required": ["arg"],
            },
        },
    }])
}

pub fn of(template: &Template) -> Option<Caps> {
    let template = template.watched().ok()?;
    let mut caps = Caps {
        tools: true,
        tool_calls: true,
        system_role: true,
        parallel_tool_calls: true,
        preserve_reasoning: false,
        reasoning_effort: false,
        string_content: true,
        typed_content: false,
        object_arguments: false,
    };
    content(&template, &mut caps);
    tools(&template, &mut caps);
    reasoning(&template, &mut caps);
    Some(caps)
}

fn content(template: &Template, caps: &mut Caps) {
    let none = json!([]);
    let a = ask(template, json!([user(MARKER.into())]), none.clone(), &[]);
    let as_array = a.saw(&format!("{MARKER} as array"));
    caps.typed_content = as_array;
    caps.string_content = a.text.as_ref().is_some_and(|text| !as_array || text.contains(MARKER));
    if a.saw(&format!("{MARKER} is string")) {
        let b = ask(template, json!([user(json!([]))]), none.clone(), &[]);
        caps.typed_content |= b.text.is_some() && b.saw(".messages.0.content as array");
    }
    let system = json!([{"role": "system", "content": "System message"}, user("User message".into())]);
    caps.system_role = ask(template, system, none, &[]).saw(".messages.0.content");
}

fn tools(template: &Template, caps: &mut Caps) {
    const NAME: &str = ".tools.0.function.name";
    const CALLS: &str = ".messages.1.tool_calls";
    let object = json!({"arg": "value"});
    let text = json!("{\"arg\": \"value\"}");
    let a = ask(template, calls(&object, 1), one_tool(), &[]);
    if a.text.is_some() {
        caps.tools = a.saw(NAME);
        caps.tool_calls = a.saw(CALLS);
        caps.object_arguments = caps.tool_calls && a.saw(".messages.1.tool_calls.0.function.arguments.arg");
    }
    if !caps.object_arguments {
        let a = ask(template, calls(&text, 1), one_tool(), &[]);
        caps.tools &= a.text.is_some() && a.saw(NAME);
        caps.tool_calls &= a.text.is_some() && a.saw(CALLS);
    }
    let arguments = if caps.object_arguments { &object } else { &text };
    let a = ask(template, calls(arguments, 2), one_tool(), &[]);
    caps.parallel_tool_calls = a.text.is_some() && a.saw(".messages.1.tool_calls.1.function");
}

fn reasoning(template: &Template, caps: &mut Caps) {
    let thought = |text: &str| json!({"role": "assistant", "content": "Assistant message", "reasoning_content": text});
    let ask_user = || user("User message".into());
    let history =
        json!([ask_user(), thought(REASONING), ask_user(), thought("Reasoning content"), ask_user()]);
    let thinking = ("enable_thinking", json!(true));
    let preserve = [
        thinking.clone(),
        ("preserve_thinking", json!(true)),
        ("clear_thinking", json!(false)),
        ("truncate_history_thinking", json!(false)),
        ("drop_thinking", json!(false)),
    ];
    let a = ask(template, history, json!([]), &preserve);
    caps.preserve_reasoning = a.text.is_some_and(|text| text.contains(REASONING));
    let effort = [thinking, ("reasoning_effort", json!("low")), ("reasoning_strength", json!("low"))];
    let a = ask(template, json!([ask_user()]), json!([]), &effort);
    caps.reasoning_effort = a.saw(".reasoning_effort") || a.saw(".reasoning_strength");
}

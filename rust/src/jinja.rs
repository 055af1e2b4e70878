//! minijinja set up as Hugging Face's `apply_chat_template` sets up Jinja2: the same white-space rules, the same
//! filters and functions, Python's methods on strings and dicts.

use crate::python_json::{float_repr, tojson};
use crate::{caps, guard, methods, python, source};
use minijinja::machinery::{eval, make_string_output, parse as parse_template, CodeGenerator, Instructions};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Value, ValueKind};
use minijinja::{AutoEscape, Environment, Error, ErrorKind, Output, State};
use std::collections::BTreeMap;
use std::ffi::{c_char, c_void, CString};
use std::fmt;

const NAME: &str = "chat";

/// Why a render gave no text; each holds one message.
pub enum Failure {
    BadInput(String),
    Raised(String),
    Failed(String),
    Limit(String),
    Write(String),
}

impl Failure {
    pub fn text(&self) -> &str {
        match self {
            Failure::BadInput(s)
            | Failure::Raised(s)
            | Failure::Failed(s)
            | Failure::Limit(s)
            | Failure::Write(s) => s,
        }
    }
}

/// The template's variables.
#[derive(Default)]
pub struct Context(Vec<(String, Value)>, Option<Value>);

impl Context {
    /// The variables are the items of this object.
    pub fn of(object: Value) -> Context {
        Context(Vec::new(), Some(object))
    }

    pub fn add_text(&mut self, name: &str, text: &[u8]) {
        self.0.push((name.into(), String::from_utf8_lossy(text).into_owned().into()));
    }

    pub fn add_json(&mut self, name: &str, text: &[u8]) -> Result<(), Failure> {
        self.0.push((name.into(), parse(name, text)?));
        Ok(())
    }

    pub fn add_fields(&mut self, name: &str, text: &[u8]) -> Result<(), Failure> {
        let object = parse(name, text)?;
        if object.kind() != ValueKind::Map {
            return Err(Failure::BadInput(format!("{name}: not a JSON object")));
        }
        let fields = object.try_iter().map_err(|e| Failure::BadInput(format!("{name}: {e}")))?;
        for key in fields {
            let value = object.get_item(&key).unwrap_or_default();
            self.0.push((key.to_string(), value));
        }
        Ok(())
    }
}

fn parse(name: &str, text: &[u8]) -> Result<Value, Failure> {
    serde_json::from_slice(text).map_err(|e| Failure::BadInput(format!("{name}: {e}")))
}

pub struct Template {
    /// They borrow from `source`, which lives as long and does not move.
    instructions: Instructions<'static>,
    env: Environment<'static>,
    source: *mut str,
}

// SAFETY: nothing writes to `source` before the drop.
unsafe impl Send for Template {}
unsafe impl Sync for Template {}

/// The parser, the code generator and the drop of a syntax tree go down one level for each operator of a tag and
/// each `elif`, so they run on a stack that the longest source can't fill. What isn't touched of it costs nothing.
const STACK: usize = 16 << 20;
const STACK_PER_BYTE: usize = 2 << 10;

impl Template {
    pub fn new(source: &str) -> Result<Template, String> {
        Template::prepared(source::prepare(source)?, false)
    }

    /// The same template with checks for what it looks at (caps.rs).
    pub fn watched(&self) -> Result<Template, String> {
        // SAFETY: `source` lives as long as the template.
        Template::prepared(unsafe { (*self.source).to_string() }, true)
    }

    fn prepared(source: String, watched: bool) -> Result<Template, String> {
        std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(STACK + STACK_PER_BYTE * source.len());
            let compiler =
                thread.spawn_scoped(scope, || Template::compile(&source, watched)).map_err(|e| e.to_string())?;
            compiler.join().unwrap_or_else(|_| Err("internal error in the template parser".into()))
        })
    }

    fn compile(source: &str, watched: bool) -> Result<Template, String> {
        let mut env = Environment::new();
        env.set_unknown_method_callback(methods::call);
        env.set_formatter(print);
        env.remove_global("debug");
        env.add_filter("tojson", tojson);
        env.add_test("iterable", is_iterable);
        env.add_test("sequence", is_sequence);
        env.add_function("raise_exception", raise_exception);
        guard::add_filters(&mut env);
        python::add_filters(&mut env);
        if watched {
            caps::add_filters(&mut env);
        }
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        let syntax = syntax.map_err(|e| e.to_string())?;
        let source = Box::into_raw(source.to_string().into_boxed_str());
        // SAFETY: `source` was just made; it is freed below, or when the template is dropped.
        let text: &'static str = unsafe { &*source };
        match parse_template(text, NAME, syntax) {
            Ok(statement) => {
                let mut generator = CodeGenerator::new(NAME, text);
                generator.compile_stmt(&statement);
                let instructions = guard::guarded(&generator.finish().0, watched);
                Ok(Template { instructions, env, source })
            }
            Err(e) => {
                let message = describe(&e);
                drop(e);
                drop(unsafe { Box::from_raw(source) });
                Err(message)
            }
        }
    }

    pub fn render(
        &self,
        context: Context,
        fuel: u64,
        now: i64,
        write: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Failure> {
        let mut env = self.env.clone();
        env.set_fuel(Some(fuel));
        env.add_function("strftime_now", move |format: &str| strftime(format, now));
        let vars = context.1.unwrap_or_else(|| Value::from_pairs(context.0));
        let mut text = String::new();
        let mut out = make_string_output(&mut text);
        eval(&env, &self.instructions, vars, &BTreeMap::new(), &mut out, AutoEscape::None)
            .map_err(failure)?;
        if write(text.as_bytes()) {
            Ok(())
        } else {
            Err(Failure::Write("the chat template's output is too long".into()))
        }
    }
}

impl Drop for Template {
    fn drop(&mut self) {
        self.instructions = Instructions::new("", "");
        // SAFETY: came from Box::into_raw, and what borrowed from it is gone.
        drop(unsafe { Box::from_raw(self.source) });
    }
}

/// What `{{ … }}` prints. Only a bare float differs from minijinja's own way.
fn print(out: &mut Output, state: &mut State, value: &Value) -> Result<(), Error> {
    if value.kind() == ValueKind::Number && !value.is_integer() {
        let number = f64::try_from(value.clone())?;
        if number.is_finite() {
            return out.write_str(&float_repr(number)).map_err(Error::from);
        }
    }
    minijinja::escape_formatter(out, state, value)
}

/// Without this, none counts as iterable, and templates that ask first would go on to take its length.
fn is_iterable(value: &Value) -> bool {
    !value.is_none() && value.try_iter().is_ok()
}

/// What has a length and items, so also a string and a dict.
fn is_sequence(value: &Value) -> bool {
    use ValueKind::*;
    matches!(value.kind(), String | Bytes | Seq | Iterable | Map)
}

/// Marks an error that the template itself raised.
#[derive(Debug)]
struct Raised;

impl fmt::Display for Raised {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("raised by the template")
    }
}

impl std::error::Error for Raised {}

fn raise_exception(message: &Value) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message.to_string()).with_source(Raised))
}

/// Local time in `format`; 0: now. The C library does it; `struct tm` is opaque here, and smaller than this everywhere.
fn strftime(format: &str, at: i64) -> Result<String, Error> {
    extern "C" {
        fn time(at: *mut c_void) -> i64;
        fn localtime_r(at: *const i64, tm: *mut c_void) -> *mut c_void;
        fn strftime(out: *mut c_char, size: usize, format: *const c_char, tm: *const c_void) -> usize;
    }
    let format =
        CString::new(format).map_err(|_| Error::new(ErrorKind::InvalidOperation, "NUL in a date format"))?;
    let mut tm = [0u64; 32];
    let mut out = [0u8; 1024];
    let n = unsafe {
        let now = if at == 0 { time(std::ptr::null_mut()) } else { at };
        localtime_r(&now, tm.as_mut_ptr().cast());
        strftime(out.as_mut_ptr().cast(), out.len(), format.as_ptr(), tm.as_ptr().cast())
    };
    Ok(String::from_utf8_lossy(&out[..n]).into_owned())
}

fn failure(error: Error) -> Failure {
    let mut cause: Option<&(dyn std::error::Error + 'static)> = Some(&error);
    let mut raised = None;
    while let Some(e) = cause {
        if let Some(e) = e.downcast_ref::<Error>() {
            match e.kind() {
                ErrorKind::OutOfFuel => return Failure::Limit("the chat template does too much work".into()),
                ErrorKind::WriteFailure => {
                    return Failure::Write("the chat template's output is too long".into())
                }
                _ => raised = e.detail(),
            }
        } else if e.is::<Raised>() {
            let words = raised.filter(|words| !words.is_empty());
            return Failure::Raised(words.unwrap_or("the chat template refused the conversation").into());
        }
        cause = e.source();
    }
    Failure::Failed(describe(&error))
}

fn describe(error: &Error) -> String {
    let what = error.kind().to_string();
    let mut text = match error.detail() {
        Some(detail) => format!("{what}: {detail}"),
        None => what,
    };
    if let Some(line) = error.line() {
        text += &format!(" (line {line})");
    }
    text
}

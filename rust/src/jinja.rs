//! minijinja set up as Hugging Face's `apply_chat_template` sets up Jinja2: the same white-space rules, the same
//! filters and functions, Python's methods on strings and dicts.

use crate::generation;
use crate::python_json::{float_repr, tojson};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, Output, State};
use minijinja_contrib::pycompat::unknown_method_callback;
use std::ffi::{c_char, c_void, CString};
use std::fmt;
use std::io;

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
pub struct Context(Vec<(String, Value)>);

impl Context {
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
    env: Environment<'static>,
}

impl Template {
    pub fn new(source: &str) -> Result<Template, String> {
        let mut env = Environment::new();
        let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
        env.set_syntax(syntax.map_err(|e| e.to_string())?);
        env.set_debug(false);
        env.set_unknown_method_callback(unknown_method_callback);
        env.set_formatter(print);
        env.remove_global("debug");
        env.add_filter("tojson", tojson);
        env.add_test("iterable", is_iterable);
        env.add_function("raise_exception", raise_exception);
        env.add_function("strftime_now", strftime_now);
        env.add_template_owned(NAME, generation::let_through(source)).map_err(|e| describe(&e))?;
        Ok(Template { env })
    }

    pub fn render(
        &self,
        context: Context,
        fuel: u64,
        write: &mut dyn FnMut(&[u8]) -> bool,
    ) -> Result<(), Failure> {
        let mut env = self.env.clone();
        env.set_fuel(Some(fuel));
        let template = env.get_template(NAME).map_err(failure)?;
        let vars = Value::from_pairs(context.0);
        template.render_captured_to(vars, Sink(write)).map(|_| ()).map_err(failure)
    }
}

struct Sink<'a>(&'a mut dyn FnMut(&[u8]) -> bool);

impl io::Write for Sink<'_> {
    fn write(&mut self, piece: &[u8]) -> io::Result<usize> {
        if (self.0)(piece) {
            Ok(piece.len())
        } else {
            Err(io::ErrorKind::Other.into())
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
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

/// Local time in `format`. The C library does it; `struct tm` is opaque here, and smaller than this everywhere.
fn strftime_now(format: &str) -> Result<String, Error> {
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
        let now = time(std::ptr::null_mut());
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
            return Failure::Raised(raised.unwrap_or_default().into());
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

//! `tojson` as Hugging Face registers it: Python's `json.dumps`, without the escapes for HTML that Jinja's own
//! filter adds.

use minijinja::value::{from_args, Kwargs, Rest, ValueKind, ValueOrKwargs};
use minijinja::{Error, ErrorKind, State, Value};

/// A value may be nested this deep; a template can build deeper ones than any JSON document that comes in.
const MAX_DEPTH: usize = 200;

struct Style {
    ensure_ascii: bool,
    indent: Option<String>,
    item_separator: String,
    key_separator: String,
    sort_keys: bool,
}

/// `tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False)`
pub fn tojson(state: &State, value: &Value, args: Rest<ValueOrKwargs>) -> Result<String, Error> {
    let style = style_of(&args.into_values())?;
    let mut writer = Writer { state, style, out: String::new(), charged: 0 };
    crate::caps::whole(|| writer.value(value, 0))?;
    Ok(writer.out)
}

fn style_of(args: &[Value]) -> Result<Style, Error> {
    let n_positional = args.len() - args.last().map_or(0, |last| last.is_kwargs() as usize);
    let (positional, named) = args.split_at(n_positional);
    let (kwargs,): (Kwargs,) = from_args(named)?;
    let arg = |at: usize, name: &str| -> Result<Option<Value>, Error> {
        let value = match positional.get(at) {
            Some(value) => Some(value.clone()),
            None => kwargs.get::<Option<Value>>(name)?,
        };
        Ok(value.filter(|v| !v.is_none()))
    };
    let ensure_ascii = arg(0, "ensure_ascii")?.is_some_and(|v| v.is_true());
    let indent = arg(1, "indent")?.map(|v| match v.as_str() {
        Some(text) => text.to_string(),
        None => " ".repeat(v.as_i64().unwrap_or(0).clamp(0, 64) as usize),
    });
    let (item_separator, key_separator) = match arg(2, "separators")? {
        None if indent.is_some() => (",".into(), ": ".into()),
        None => (", ".into(), ": ".into()),
        Some(pair) => (pair.get_item_by_index(0)?.to_string(), pair.get_item_by_index(1)?.to_string()),
    };
    let sort_keys = arg(3, "sort_keys")?.is_some_and(|v| v.is_true());
    kwargs.assert_all_used()?;
    Ok(Style { ensure_ascii, indent, item_separator, key_separator, sort_keys })
}

struct Writer<'a, 'b, 'c> {
    state: &'a State<'b, 'c>,
    style: Style,
    out: String,
    charged: usize,
}

impl Writer<'_, '_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        if depth > MAX_DEPTH {
            return Err(Error::new(ErrorKind::BadSerialization, "value is nested too deep for JSON"));
        }
        self.pay()?;
        match value.kind() {
            ValueKind::None => self.out.push_str("null"),
            ValueKind::Bool => self.out.push_str(if value.is_true() { "true" } else { "false" }),
            ValueKind::Number => self.out.push_str(&number(value)?),
            ValueKind::String => self.string(value.as_str().unwrap_or_default()),
            ValueKind::Seq => self.list(value, depth)?,
            ValueKind::Map => self.map(value, depth)?,
            kind => {
                let text = format!("value of type {kind} is not JSON serializable");
                return Err(Error::new(ErrorKind::BadSerialization, text));
            }
        }
        Ok(())
    }

    /// Work inside a filter is not seen by the engine, so it is charged here: one unit for 16 bytes.
    fn pay(&mut self) -> Result<(), Error> {
        let units = (self.out.len() - self.charged) / 16 + 1;
        self.charged = self.out.len();
        self.state.consume_fuel(units as u64)
    }

    fn list(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.out.push('[');
        let mut empty = true;
        for item in value.try_iter()?.checked() {
            self.next_item(&mut empty, depth);
            self.value(&item?, depth + 1)?;
        }
        self.end(empty, depth, ']');
        Ok(())
    }

    fn map(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        let mut keys = value.try_iter()?.checked().collect::<Result<Vec<_>, _>>()?;
        if self.style.sort_keys {
            keys.sort();
        }
        self.out.push('{');
        let mut empty = true;
        for key in keys {
            self.next_item(&mut empty, depth);
            let name = match key.kind() {
                ValueKind::String => key.as_str().unwrap_or_default().to_string(),
                ValueKind::None => "null".into(),
                ValueKind::Bool => if key.is_true() { "true" } else { "false" }.into(),
                ValueKind::Number => number(&key)?,
                kind => {
                    let text = format!("keys must be str, int, float, bool or None, not {kind}");
                    return Err(Error::new(ErrorKind::BadSerialization, text));
                }
            };
            self.string(&name);
            self.out.push_str(&self.style.key_separator);
            self.value(&value.get_item(&key)?, depth + 1)?;
        }
        self.end(empty, depth, '}');
        Ok(())
    }

    fn next_item(&mut self, empty: &mut bool, depth: usize) {
        if !std::mem::replace(empty, false) {
            self.out.push_str(&self.style.item_separator);
        }
        self.newline(depth + 1);
    }

    fn end(&mut self, empty: bool, depth: usize, close: char) {
        if !empty {
            self.newline(depth);
        }
        self.out.push(close);
    }

    fn newline(&mut self, depth: usize) {
        if let Some(indent) = &self.style.indent {
            self.out.push('\n');
            for _ in 0..depth {
                self.out.push_str(indent);
            }
        }
    }

    fn string(&mut self, text: &str) {
        self.out.push('"');
        for c in text.chars() {
            match c {
                '"' => self.out.push_str("\\\""),
                '\\' => self.out.push_str("\\\\"),
                '\n' => self.out.push_str("\\n"),
                '\r' => self.out.push_str("\\r"),
                '\t' => self.out.push_str("\\t"),
                '\u{8}' => self.out.push_str("\\b"),
                '\u{c}' => self.out.push_str("\\f"),
                c if c < ' ' || (self.style.ensure_ascii && !(' '..='~').contains(&c)) => {
                    for unit in c.encode_utf16(&mut [0; 2]) {
                        self.out.push_str(&format!("\\u{unit:04x}"));
                    }
                }
                c => self.out.push(c),
            }
        }
        self.out.push('"');
    }
}

fn number(value: &Value) -> Result<String, Error> {
    if value.is_integer() {
        return Ok(value.to_string());
    }
    let number = f64::try_from(value.clone())?;
    Ok(match number {
        n if n.is_nan() => "NaN".into(),
        n if n.is_infinite() => if n > 0.0 { "Infinity" } else { "-Infinity" }.into(),
        n => float_repr(n),
    })
}

/// Python's `repr(float)`. Rust's shortest form has the same digits and the same two thresholds, but writes the
/// exponent as `1e16`, where Python writes `1e+16`.
pub fn float_repr(number: f64) -> String {
    let text = format!("{number:?}");
    match text.split_once('e') {
        Some((digits, exponent)) => match exponent.strip_prefix('-') {
            Some(exponent) => format!("{digits}e-{exponent:0>2}"),
            None => format!("{digits}e+{exponent:0>2}"),
        },
        None => text,
    }
}

//! Python's methods on strings, lists and dicts: minijinja-contrib's, and some that templates use beyond those.

use minijinja::value::{from_args, Tuple, Value};
use minijinja::{Error, ErrorKind, State};
use minijinja_contrib::pycompat::unknown_method_callback;

/// No text needs wider fields; the width is the one size here that a few digits can make huge.
const MAX_WIDTH: usize = 10_000;

pub fn call(state: &mut State, value: &Value, method: &str, args: &[Value]) -> Result<Value, Error> {
    if let Some(text) = value.as_str() {
        if let Some(result) = string_method(text, method, args) {
            return result;
        }
    }
    if value.is_undefined() {
        if let Some(nothing) = method_of_nothing(method) {
            return Ok(nothing);
        }
    }
    unknown_method_callback(state, value, method, args)
}

/// llama.cpp lets these be called on what is undefined; in Python they fail.
fn method_of_nothing(method: &str) -> Option<Value> {
    match method {
        "items" => Some(Vec::<Value>::new().into()),
        "lower" | "capitalize" | "replace" => Some("".into()),
        _ => None,
    }
}

fn string_method(text: &str, method: &str, args: &[Value]) -> Option<Result<Value, Error>> {
    Some(match method {
        "rsplit" => rsplit(text, args),
        "partition" => partition(text, args, |t, by| t.split_once(by), false),
        "rpartition" => partition(text, args, |t, by| t.rsplit_once(by), true),
        "removeprefix" => from_args(args).map(|(p,): (&str,)| text.strip_prefix(p).unwrap_or(text).into()),
        "removesuffix" => from_args(args).map(|(s,): (&str,)| text.strip_suffix(s).unwrap_or(text).into()),
        "index" => index(text, args),
        "ljust" => pad(text, args, |n| (0, n)),
        "rjust" => pad(text, args, |n| (n, 0)),
        "format" if has_wide_field(text) => fail("a field is too wide"),
        _ => return None,
    })
}

fn fail<T>(message: &'static str) -> Result<T, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

/// `str.rsplit(sep=None, maxsplit=-1)`; without a separator, at runs of white space.
fn rsplit(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (separator, max): (Option<&str>, Option<i64>) = from_args(args)?;
    let max = max.filter(|&n| n >= 0).map_or(usize::MAX, |n| n as usize);
    let mut parts: Vec<&str> = match separator {
        Some("") => return fail("empty separator"),
        Some(separator) => text.rsplitn(max.saturating_add(1), separator).collect(),
        None => words_from_end(text.trim_end(), max),
    };
    parts.reverse();
    Ok(parts.into_iter().map(Value::from).collect())
}

fn words_from_end(mut rest: &str, max: usize) -> Vec<&str> {
    let mut words = Vec::new();
    while words.len() < max {
        let Some((before, word)) = rest.rsplit_once(char::is_whitespace) else { break };
        words.push(word);
        rest = before.trim_end();
    }
    if !rest.is_empty() {
        words.push(rest);
    }
    words
}

type SplitOnce = for<'a, 'b> fn(&'a str, &'b str) -> Option<(&'a str, &'a str)>;

fn partition(text: &str, args: &[Value], split: SplitOnce, at_end: bool) -> Result<Value, Error> {
    let (separator,): (&str,) = from_args(args)?;
    let parts = match split(text, separator) {
        Some((before, after)) => [before, separator, after],
        None if at_end => ["", "", text],
        None => [text, "", ""],
    };
    Ok(Tuple::from(parts.map(Value::from).to_vec()).into())
}

fn index(text: &str, args: &[Value]) -> Result<Value, Error> {
    let (what,): (&str,) = from_args(args)?;
    match text.find(what) {
        Some(at) => Ok(text[..at].chars().count().into()),
        None => fail("substring not found"),
    }
}

fn pad(text: &str, args: &[Value], sides: fn(usize) -> (usize, usize)) -> Result<Value, Error> {
    let (width, fill): (usize, Option<&str>) = from_args(args)?;
    if width > MAX_WIDTH {
        return fail("a field is too wide");
    }
    let fill = fill.unwrap_or(" ");
    let (left, right) = sides(width.saturating_sub(text.chars().count()));
    Ok(format!("{}{text}{}", fill.repeat(left), fill.repeat(right)).into())
}

/// Any number in the format that is a width or precision over the maximum.
fn has_wide_field(format: &str) -> bool {
    let numbers = format.split(|c: char| !c.is_ascii_digit()).filter(|n| !n.is_empty());
    numbers.map(|n| n.parse::<usize>().unwrap_or(usize::MAX)).any(|n| n > MAX_WIDTH)
}

//! Where Python is more, or llama.cpp more lenient, than the engine's own operations.
//!
//! - Adding to a text: what is no text is printed, none and undefined are nothing. Python refuses that, so
//!   templates that do it by mistake only run in llama.cpp, whose rule this is. Adding to a text that `safe` marked
//!   escapes the other for HTML, as Jinja2 does.
//! - Lists that `append` and `pop` change in place. Values don't change in this engine, so in templates that call
//!   these, lists written in the source are objects of our own. What is put into one is a copy, so that none can
//!   come to hold itself.

use crate::python_json::float_repr;
use minijinja::machinery::{Instruction, Instructions};
use minijinja::value::{from_args, Enumerator, Object, ObjectRepr, Tuple, Value, ValueKind};
use minijinja::{Environment, Error, ErrorKind, State};
use std::sync::{Arc, Mutex};

/// Not names that a template can write.
const OPERANDS: &str = "(operands)";
const LIST: &str = "(list)";

pub fn add_filters(env: &mut Environment) {
    env.add_filter(OPERANDS, operands);
    env.add_filter(LIST, |value: &Value| -> Result<Value, Error> {
        let items = value.try_iter()?.checked().collect::<Result<Vec<_>, _>>()?;
        Ok(Value::from_object(List(Mutex::new(items))))
    });
}

/// What goes before an instruction.
pub fn before(instruction: &Instruction) -> Vec<Instruction<'static>> {
    match instruction {
        Instruction::Add => vec![
            Instruction::BuildTuple(Some(2)),
            Instruction::ApplyFilter(OPERANDS, Some(1), !0),
            Instruction::UnpackList(2),
            Instruction::Swap,
        ],
        _ => vec![],
    }
}

/// What goes behind an instruction of a template whose lists change.
pub fn after(instruction: &Instruction) -> Option<Instruction<'static>> {
    let makes_list = match instruction {
        Instruction::BuildList(_) => true,
        Instruction::LoadConst(value) => value.kind() == ValueKind::Seq && !is_tuple(value),
        _ => false,
    };
    makes_list.then_some(Instruction::ApplyFilter(LIST, Some(1), !0))
}

pub fn changes_lists(code: &Instructions) -> bool {
    (0..)
        .map_while(|i| code.get(i))
        .any(|instruction| matches!(instruction, Instruction::CallMethod("append" | "pop", _)))
}

fn is_tuple(value: &Value) -> bool {
    value.downcast_object_ref::<Tuple>().is_some()
}

// ---- adding ----

fn operands(state: &State, pair: &Value) -> Result<Value, Error> {
    let (a, b) = (pair.get_item_by_index(0)?, pair.get_item_by_index(1)?);
    let (a_text, b_text) = (a.as_str().is_some(), b.as_str().is_some());
    let pair = match (a_text, b_text) {
        (true, false) => [a, text_of(state, &b)?],
        (false, true) => [text_of(state, &a)?, b],
        (true, true) if a.is_safe() && !b.is_safe() => [a, escaped(&b)],
        (true, true) if b.is_safe() && !a.is_safe() => [escaped(&a), b],
        _ => return Ok(pair.clone()),
    };
    Ok(Tuple::from(pair.to_vec()).into())
}

fn text_of(state: &State, value: &Value) -> Result<Value, Error> {
    if value.is_none() || value.is_undefined() {
        return Ok("".into());
    }
    if value.kind() == ValueKind::Number && !value.is_integer() {
        return Ok(float_repr(f64::try_from(value.clone())?).into());
    }
    let text = value.to_string();
    state.consume_fuel(text.len() as u64 / 16)?;
    Ok(text.into())
}

/// As Python's markupsafe writes it.
fn escaped(value: &Value) -> Value {
    let mut out = String::new();
    for c in value.as_str().unwrap_or_default().chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&#34;"),
            '\'' => out.push_str("&#39;"),
            c => out.push(c),
        }
    }
    Value::from_safe_string(out)
}

// ---- lists ----

#[derive(Debug)]
struct List(Mutex<Vec<Value>>);

impl List {
    fn with<T>(&self, f: impl FnOnce(&mut Vec<Value>) -> T) -> T {
        f(&mut self.0.lock().unwrap_or_else(|e| e.into_inner()))
    }
}

impl Object for List {
    fn repr(self: &Arc<Self>) -> ObjectRepr {
        ObjectRepr::Seq
    }

    fn get_value(self: &Arc<Self>, key: &Value) -> Option<Value> {
        let i = key.as_usize()?;
        self.with(|items| items.get(i).cloned())
    }

    fn enumerate(self: &Arc<Self>) -> Enumerator {
        Enumerator::Values(self.with(|items| items.clone()))
    }

    fn enumerator_len(self: &Arc<Self>) -> Option<usize> {
        Some(self.with(|items| items.len()))
    }

    fn call_method(
        self: &Arc<Self>,
        state: &mut State<'_, '_>,
        method: &str,
        args: &[Value],
    ) -> Result<Value, Error> {
        match method {
            "append" => {
                let (item,): (&Value,) = from_args(args)?;
                let item = frozen(state, item, 0)?;
                self.with(|items| items.push(item));
                Ok(().into())
            }
            "pop" => {
                let (at,): (Option<i64>,) = from_args(args)?;
                self.with(|items| {
                    let n = items.len() as i64;
                    let at = at.unwrap_or(-1);
                    let at = if at < 0 { at + n } else { at };
                    if (0..n).contains(&at) {
                        return Ok(items.remove(at as usize));
                    }
                    Err(Error::new(ErrorKind::InvalidOperation, "pop from an empty list, or out of its range"))
                })
            }
            _ => Err(ErrorKind::UnknownMethod.into()),
        }
    }
}

const MAX_DEPTH: usize = 100;

/// A copy with nothing in it that can change.
fn frozen(state: &State, value: &Value, depth: usize) -> Result<Value, Error> {
    state.consume_fuel(1)?;
    if depth > MAX_DEPTH {
        return Err(Error::new(ErrorKind::InvalidOperation, "a value is nested too deep"));
    }
    match value.kind() {
        ValueKind::Seq | ValueKind::Iterable => {
            let items = value.try_iter()?.checked();
            let items = items.map(|item| frozen(state, &item?, depth + 1)).collect::<Result<Vec<_>, _>>()?;
            Ok(if is_tuple(value) { Tuple::from(items).into() } else { items.into() })
        }
        ValueKind::Map => {
            let mut pairs = Vec::new();
            for key in value.try_iter()?.checked() {
                let key = key?;
                pairs.push((key.clone(), frozen(state, &value.get_item(&key)?, depth + 1)?));
            }
            Ok(pairs.into_iter().collect())
        }
        ValueKind::Plain => Err(Error::new(ErrorKind::InvalidOperation, "this can't be put into a list")),
        _ => Ok(value.clone()),
    }
}

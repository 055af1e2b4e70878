//! Bounds on values, for templates that nobody vouches for.
//!
//! minijinja's fuel pays for instructions, and for bytes and slots that are made, but a list that holds another
//! one twice is cheap to make, and after 64 such steps endless to print or compare; one that is nested 100,000 deep
//! overflows the stack when it is dropped. So each instruction that makes a value out of others is followed
//! here by a filter that walks the value as what it would be written out: not more than MAX_NODES, not deeper
//! than MAX_DEPTH, and the walk is paid for. It also makes lists of lazy sequences, so that these can't be piled
//! up either. Comparisons walk what they compare first.
//!
//! The filter goes into the compiled instructions; that part of minijinja is open, if not stable, and the version
//! is pinned.

use crate::{caps, python};
use minijinja::machinery::{Instruction, Instructions};
use minijinja::value::{DynObject, ValueKind};
use minijinja::{Error, ErrorKind, State, Value};

const MAX_NODES: usize = 1 << 20;
const MAX_DEPTH: usize = 200;
const NODES_PER_FUEL: usize = 4;

/// Not names that a template can write.
const WEIGH: &str = "(weigh)";
const WEIGH_INNER: &str = "(inner)"; // what is going to be inside another value

pub fn add_filters(env: &mut minijinja::Environment) {
    env.add_filter(WEIGH, |state: &State, value: &Value| weigh(state, value, 0));
    env.add_filter(WEIGH_INNER, |state: &State, value: &Value| weigh(state, value, 1));
}

fn weigh(state: &State, value: &Value, depth: usize) -> Result<Value, Error> {
    if value.as_object().is_none() {
        return Ok(value.clone());
    }
    let mut walk = Walk { state, nodes: 0 };
    let quiet = caps::quiet();
    walk.value(value, depth)?;
    drop(quiet);
    state.consume_fuel((walk.nodes / NODES_PER_FUEL) as u64)?;
    if value.kind() == ValueKind::Iterable {
        return Ok(value.try_iter()?.checked().collect::<Result<Vec<_>, _>>()?.into());
    }
    Ok(value.clone())
}

struct Walk<'a, 'b, 'c> {
    state: &'a State<'b, 'c>,
    nodes: usize,
}

impl Walk<'_, '_, '_> {
    fn value(&mut self, value: &Value, depth: usize) -> Result<(), Error> {
        self.nodes += 1;
        if self.nodes > MAX_NODES {
            self.state.consume_fuel(u64::MAX / 2)?;
        }
        let Some(object) = value.as_object() else { return Ok(()) };
        if depth > MAX_DEPTH {
            return Err(Error::new(ErrorKind::InvalidOperation, "a value is nested too deep"));
        }
        if depth > 0 && is_namespace(object) {
            return Err(Error::new(ErrorKind::InvalidOperation, "a namespace inside another value"));
        }
        match value.kind() {
            ValueKind::Map => {
                for (key, item) in object.try_iter_pairs().into_iter().flatten() {
                    self.value(&key, depth + 1)?;
                    self.value(&item, depth + 1)?;
                }
            }
            ValueKind::Seq | ValueKind::Iterable => {
                for item in value.try_iter()?.checked() {
                    self.value(&item?, depth + 1)?;
                }
            }
            _ => {}
        }
        Ok(())
    }
}

/// Namespaces can be changed after they were put into something, so they could come to hold themselves.
fn is_namespace(object: &DynObject) -> bool {
    object.type_name().ends_with("::Namespace")
}

/// The same instructions, with the filter where it is needed, and if `watched` with the checks of caps.rs.
pub fn guarded<'a>(old: &Instructions<'a>, watched: bool) -> Instructions<'a> {
    let weigh = |filter| Instruction::ApplyFilter(filter, Some(1), !0);
    let mut new = Instructions::new(old.name(), old.source());
    let lists_change = python::changes_lists(old);
    let mut end = 0;
    let mut moved = Vec::new(); // by old index: the new one
    for i in 0.. {
        moved.push(end);
        let Some(instruction) = old.get(i) else { break };
        let line = old.get_line(i).unwrap_or(0) as u16;
        let mut add = |instruction| end = new.add_with_line(instruction, line) + 1;
        if compares(old, i) {
            add(weigh(WEIGH));
        }
        if begins_store(old, i) {
            add(weigh(WEIGH_INNER));
        }
        python::before(instruction).into_iter().for_each(&mut add);
        if watched {
            caps::watch_before(instruction).map(&mut add);
            add(caps::watch_instead(instruction));
        } else {
            add(instruction.clone());
        }
        if makes_value(instruction) {
            add(weigh(WEIGH));
        }
        if lists_change {
            python::after(instruction).map(&mut add);
        }
    }
    for i in 0..end {
        if let Some(target) = new.get_mut(i).and_then(jump_target) {
            *target = moved[*target as usize];
        }
    }
    new
}

fn makes_value(instruction: &Instruction) -> bool {
    use Instruction::*;
    matches!(
        instruction,
        BuildList(_)
            | BuildTuple(_)
            | BuildMap(_)
            | Add
            | Mul
            | Slice
            | ApplyFilter(..)
            | CallFunction(..)
            | CallMethod(..)
            | CallObject(_)
    )
}

/// Does it look all through the value on top of the stack, and was that not weighed just before?
fn compares(code: &Instructions, i: u32) -> bool {
    use Instruction::*;
    let looks = match code.get(i) {
        Some(Eq | Ne | Lt | Lte | Gt | Gte | In | CompareAndPreserve(_) | StringConcat | GetItem) => true,
        Some(PerformTest(_, Some(n), _)) => *n > 1,
        _ => false,
    };
    let before = i.checked_sub(1).and_then(|i| code.get(i));
    looks && !before.is_some_and(|b| makes_value(b) || matches!(b, LoadConst(_)))
}

/// SetAttr puts a value into a namespace. The namespace is on top of the stack, and is looked up last; when that
/// begins, the value is on top.
fn begins_store(code: &Instructions, i: u32) -> bool {
    if !matches!(code.get(i), Some(Instruction::Lookup(_))) {
        return false;
    }
    let mut rest = (i + 1..).map(|i| code.get(i));
    let after = rest.find(|instruction| !matches!(instruction, Some(Instruction::GetAttr(_))));
    matches!(after, Some(Some(Instruction::SetAttr(_))))
}

fn jump_target<'a>(instruction: &'a mut Instruction) -> Option<&'a mut u32> {
    use Instruction::*;
    match instruction {
        Iterate(to) | Jump(to) | JumpIfFalse(to) | JumpIfFalseOrPop(to) | JumpIfTrueOrPop(to) => Some(to),
        BuildMacro(_, to, _) => Some(to),
        _ => None,
    }
}

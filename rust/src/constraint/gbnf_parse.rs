//! GBNF, the grammar notation of llama.cpp (b11434, grammars/README.md): text to rules.
//!
//! What is accepted and refused, and what a repetition counts for, is as there. On top come bounds that its recursive
//! parser lacks: how deep parentheses may nest, and how large the whole may become.

use std::collections::HashMap;

const MAX_DEPTH: usize = 256;
const MAX_REPEAT: u64 = 2000;
const MAX_OPS: usize = 1 << 20;

/// One step of a sequence.
#[derive(Clone, Copy, PartialEq, Debug)]
pub enum Op {
    Class(u32), // one character, of Grammar::classes
    Rule(u32),
    Token(u32),    // exactly this token
    TokenNot(u32), // any token but this one
    End,
}

/// A set of characters.
#[derive(Clone, PartialEq, Eq, Hash, Default)]
pub struct Class {
    pub negated: bool,
    pub ranges: Vec<(u32, u32)>, // ends included; an upside-down one is empty
}

impl Class {
    pub fn has(&self, c: u32) -> bool {
        self.ranges.iter().any(|&(low, high)| low <= c && c <= high) != self.negated
    }

    /// Is a character of low..=high in it?
    pub fn meets(&self, low: u32, high: u32) -> bool {
        if !self.negated {
            return self.ranges.iter().any(|&(l, h)| l.max(low) <= h.min(high));
        }
        let mut inside: Vec<_> =
            self.ranges.iter().filter(|(l, h)| l <= h && *h >= low && *l <= high).collect();
        inside.sort_unstable();
        let mut next = low; // the first that may be missing
        for &&(l, h) in &inside {
            if l > next {
                return true;
            }
            next = next.max(h.saturating_add(1));
        }
        next <= high
    }
}

#[derive(Default)]
pub struct Grammar {
    pub ops: Vec<Op>, // all alternatives, one after the other, each with its End
    pub classes: Vec<Class>,
    pub rules: Vec<Vec<u32>>, // by rule: where its alternatives begin in `ops`
    pub root: u32,
}

type Alternative = Vec<Op>;

struct Parser<'a> {
    text: &'a [u8],
    at: usize,
    depth: usize,
    names: HashMap<Vec<u8>, u32>,
    n_rules: u32,
    rules: Vec<Option<Vec<Alternative>>>,
    n_ops: usize,
    classes: Vec<Class>,
    class_ids: HashMap<Class, u32>,
    token_of: &'a dyn Fn(&[u8]) -> Option<u32>,
}

type Outcome<T> = Result<T, String>;

/// `token_of` finds the token of a text like `<think>`.
pub fn parse(text: &[u8], token_of: &dyn Fn(&[u8]) -> Option<u32>) -> Outcome<Grammar> {
    let mut p = Parser {
        text,
        at: 0,
        depth: 0,
        names: HashMap::new(),
        n_rules: 0,
        rules: Vec::new(),
        n_ops: 0,
        classes: Vec::new(),
        class_ids: HashMap::new(),
        token_of,
    };
    p.space(true);
    while p.at < text.len() {
        p.rule().map_err(|why| {
            let line = 1 + text[..p.at.min(text.len())].iter().filter(|&&c| c == b'\n').count();
            format!("{why} (line {line})")
        })?;
    }
    p.finish()
}

fn is_word(c: u8) -> bool {
    c.is_ascii_alphanumeric() || c == b'-'
}

impl Parser<'_> {
    fn peek(&self) -> u8 {
        self.text.get(self.at).copied().unwrap_or(0)
    }

    fn space(&mut self, newlines: bool) {
        loop {
            match self.peek() {
                b' ' | b'\t' => self.at += 1,
                b'\r' | b'\n' if newlines => self.at += 1,
                b'#' => {
                    while !matches!(self.peek(), 0 | b'\r' | b'\n') {
                        self.at += 1;
                    }
                }
                _ => return,
            }
        }
    }

    fn next_space(&mut self, newlines: bool) {
        self.at += 1;
        self.space(newlines);
    }

    fn name(&mut self) -> Outcome<Vec<u8>> {
        let start = self.at;
        while is_word(self.peek()) {
            self.at += 1;
        }
        if self.at == start {
            return Err(format!("expected a name, not {}", self.here()));
        }
        Ok(self.text[start..self.at].to_vec())
    }

    fn here(&self) -> String {
        match self.text.get(self.at..) {
            None | Some([]) => "the end".into(),
            Some(rest) => {
                format!("\"{}\"", String::from_utf8_lossy(rest).chars().take(16).collect::<String>())
            }
        }
    }

    fn integer(&mut self) -> Outcome<u64> {
        let start = self.at;
        while self.peek().is_ascii_digit() {
            self.at += 1;
        }
        if self.at == start {
            return Err(format!("expected a number, not {}", self.here()));
        }
        let digits = std::str::from_utf8(&self.text[start..self.at]).unwrap_or("");
        digits.parse().map_err(|_| format!("the number {digits} is too large"))
    }

    fn rule_named(&mut self, name: Vec<u8>) -> u32 {
        let next = self.n_rules;
        let id = *self.names.entry(name).or_insert(next);
        self.n_rules = self.n_rules.max(id + 1);
        id
    }

    fn new_rule(&mut self) -> u32 {
        self.n_rules += 1;
        self.n_rules - 1
    }

    fn define(&mut self, id: u32, alternatives: Vec<Alternative>) -> Outcome<()> {
        self.grow(alternatives.iter().map(|a| a.len() + 1).sum())?;
        if self.rules.len() <= id as usize {
            self.rules.resize(id as usize + 1, None);
        }
        self.rules[id as usize] = Some(alternatives);
        Ok(())
    }

    fn grow(&mut self, n: usize) -> Outcome<()> {
        self.n_ops += n;
        if self.n_ops > MAX_OPS {
            return Err("the grammar is too large".into());
        }
        Ok(())
    }

    fn class(&mut self, class: Class) -> Op {
        let classes = &mut self.classes;
        Op::Class(*self.class_ids.entry(class).or_insert_with_key(|class| {
            classes.push(class.clone());
            classes.len() as u32 - 1
        }))
    }

    fn rule(&mut self) -> Outcome<()> {
        let name = self.name()?;
        let id = self.rule_named(name);
        self.space(false);
        if !self.text[self.at..].starts_with(b"::=") {
            return Err(format!("expected ::=, not {}", self.here()));
        }
        self.at += 3;
        self.space(true);
        let alternatives = self.alternatives(false)?;
        self.define(id, alternatives)?;
        match self.peek() {
            b'\r' | b'\n' => {}
            _ if self.at >= self.text.len() => {}
            _ => return Err(format!("expected the end of the line, not {}", self.here())),
        }
        self.space(true);
        Ok(())
    }

    fn alternatives(&mut self, nested: bool) -> Outcome<Vec<Alternative>> {
        let mut all = vec![self.sequence(nested)?];
        while self.peek() == b'|' {
            self.next_space(true);
            all.push(self.sequence(nested)?);
        }
        Ok(all)
    }

    fn sequence(&mut self, nested: bool) -> Outcome<Alternative> {
        let mut ops = Vec::new();
        let mut last = 0; // where the item that a repetition repeats begins
        let mut weight: u64 = 1; // rules that it stands for
        while self.at < self.text.len() {
            match self.peek() {
                b'*' => self.repeat(&mut ops, last, &mut weight, nested, 0, None)?,
                b'+' => self.repeat(&mut ops, last, &mut weight, nested, 1, None)?,
                b'?' => self.repeat(&mut ops, last, &mut weight, nested, 0, Some(1))?,
                b'{' => {
                    let (min, max) = self.bounds(nested)?;
                    self.repeat(&mut ops, last, &mut weight, nested, min, max)?;
                }
                c => {
                    let start = ops.len();
                    match self.item(c, nested, &mut ops)? {
                        Some(w) => (last, weight) = (start, w),
                        None => break,
                    }
                }
            }
        }
        Ok(ops)
    }

    /// Adds an item that begins with `c`; returns its weight, None when none begins so.
    fn item(&mut self, c: u8, nested: bool, ops: &mut Alternative) -> Outcome<Option<u64>> {
        match c {
            b'"' => self.literal(ops)?,
            b'[' => {
                let class = self.char_class()?;
                if !class.ranges.is_empty() {
                    ops.push(self.class(class));
                }
            }
            b'.' => ops.push(self.class(Class { negated: true, ranges: vec![] })),
            b'<' | b'!' => {
                ops.push(self.token()?);
                self.at -= 1;
            }
            b'(' => return self.group(nested, ops).map(Some),
            c if is_word(c) => {
                let name = self.name()?;
                ops.push(Op::Rule(self.rule_named(name)));
                self.at -= 1;
            }
            _ => return Ok(None),
        }
        self.next_space(nested); // over the item's last byte
        Ok(Some(1))
    }

    fn literal(&mut self, ops: &mut Alternative) -> Outcome<()> {
        self.at += 1;
        while self.peek() != b'"' {
            let c = self.character()?;
            ops.push(self.class(Class { negated: false, ranges: vec![(c, c)] }));
        }
        Ok(())
    }

    fn char_class(&mut self) -> Outcome<Class> {
        self.at += 1;
        let mut class = Class::default();
        if self.peek() == b'^' {
            class.negated = true;
            self.at += 1;
        }
        while self.peek() != b']' {
            let low = self.character()?;
            let mut high = low;
            if self.peek() == b'-' && self.text.get(self.at + 1) != Some(&b']') {
                self.at += 1;
                high = self.character()?;
            }
            class.ranges.push((low, high));
        }
        Ok(class)
    }

    fn character(&mut self) -> Outcome<u32> {
        let rest = &self.text[self.at.min(self.text.len())..];
        if rest.is_empty() {
            return Err("the grammar ends inside a literal".into());
        }
        if rest[0] != b'\\' {
            let n = rest.len().min(4);
            let c = (1..=n).find_map(|n| std::str::from_utf8(&rest[..n]).ok()).and_then(|s| s.chars().next());
            let c = c.ok_or("the grammar is not valid UTF-8")?;
            self.at += c.len_utf8();
            return Ok(c.into());
        }
        let hex = |n: usize| {
            let digits = rest.get(2..2 + n).and_then(|d| std::str::from_utf8(d).ok());
            let value = digits.filter(|d| !d.starts_with('+')).and_then(|d| u32::from_str_radix(d, 16).ok());
            value.ok_or(format!("expected {n} hexadecimal digits after \\{}", rest[1] as char))
        };
        let (c, n) = match rest.get(1).copied().unwrap_or(0) {
            b'x' => (hex(2)?, 4),
            b'u' => (hex(4)?, 6),
            b'U' => (hex(8)?, 10),
            b't' => (9, 2),
            b'r' => (13, 2),
            b'n' => (10, 2),
            c @ (b'\\' | b'"' | b'[' | b']' | b'-') => (c.into(), 2),
            _ => return Err(format!("unknown escape {}", self.here())),
        };
        self.at += n;
        Ok(c)
    }

    fn token(&mut self) -> Outcome<Op> {
        let not = self.peek() == b'!';
        self.at += usize::from(not);
        if self.peek() != b'<' {
            return Err(format!("expected a token as <…>, not {}", self.here()));
        }
        let start = self.at;
        let id = if self.text.get(self.at + 1) == Some(&b'[') {
            self.at += 2;
            let id = self.integer()?;
            if !self.text[self.at..].starts_with(b"]>") {
                return Err(format!("expected ]>, not {}", self.here()));
            }
            self.at += 2;
            u32::try_from(id).map_err(|_| format!("the token id {id} is too large"))?
        } else {
            let n = self.text[start..].iter().position(|&c| c == b'>').ok_or("a token without its >")?;
            self.at += n + 1;
            let text = &self.text[start..self.at];
            let shown = || String::from_utf8_lossy(text).into_owned();
            (self.token_of)(text).ok_or_else(|| format!("{} is not one token", shown()))?
        };
        Ok(if not { Op::TokenNot(id) } else { Op::Token(id) })
    }

    fn group(&mut self, nested: bool, ops: &mut Alternative) -> Outcome<u64> {
        self.depth += 1;
        if self.depth > MAX_DEPTH {
            return Err(format!("parentheses more than {MAX_DEPTH} deep"));
        }
        self.next_space(true);
        let before = self.n_rules;
        let id = self.new_rule();
        let alternatives = self.alternatives(true)?;
        self.define(id, alternatives)?;
        if self.peek() != b')' {
            return Err(format!("expected ), not {}", self.here()));
        }
        self.next_space(nested);
        self.depth -= 1;
        ops.push(Op::Rule(id));
        Ok(u64::from((self.n_rules - before).max(1)))
    }

    /// {m}, {m,}, {m,n}: leaves the last brace for `repeat`.
    fn bounds(&mut self, nested: bool) -> Outcome<(u64, Option<u64>)> {
        self.next_space(nested);
        let min = self.integer()?;
        self.space(nested);
        let mut max = Some(min);
        if self.peek() == b',' {
            self.next_space(nested);
            max = None;
            if self.peek().is_ascii_digit() {
                max = Some(self.integer()?);
                self.space(nested);
            }
        }
        if self.peek() != b'}' {
            return Err(format!("expected }}, not {}", self.here()));
        }
        if min > MAX_REPEAT {
            return Err(format!("more than {MAX_REPEAT} repetitions"));
        }
        Ok((min, max.filter(|&n| n <= MAX_REPEAT)))
    }

    /// S{m,n} becomes S … S (m times) and n - m rules that each are one S more, or nothing.
    fn repeat(
        &mut self,
        ops: &mut Alternative,
        last: usize,
        weight: &mut u64,
        nested: bool,
        min: u64,
        max: Option<u64>,
    ) -> Outcome<()> {
        self.next_space(nested);
        if last == ops.len() {
            return Err("nothing to repeat before * + ? or {".into());
        }
        if max.is_some_and(|max| max < min) {
            return Err("a repetition with its bounds upside down".into());
        }
        let times = max.filter(|&n| n > 0).unwrap_or(min.max(1));
        *weight = weight.saturating_mul(times);
        if *weight > MAX_REPEAT {
            return Err(format!("more than {MAX_REPEAT} repetitions of rules in all"));
        }
        let item = ops[last..].to_vec();
        ops.truncate(last);
        self.grow(item.len() * min as usize)?;
        for _ in 0..min {
            ops.extend_from_slice(&item);
        }
        let mut inner = None;
        for _ in 0..max.map_or(1, |max| max - min) {
            let id = self.new_rule();
            let mut one = item.clone();
            one.extend(if max.is_none() { Some(Op::Rule(id)) } else { inner });
            self.define(id, vec![one, vec![]])?;
            inner = Some(Op::Rule(id));
        }
        ops.extend(inner);
        Ok(())
    }

    fn finish(self) -> Outcome<Grammar> {
        let mut by_id: Vec<&[u8]> = vec![b""; self.n_rules as usize];
        for (name, &id) in &self.names {
            by_id[id as usize] = name;
        }
        let name = |id: usize| String::from_utf8_lossy(by_id[id]).into_owned();
        let mut g = Grammar { classes: self.classes, ..Grammar::default() };
        for id in 0..self.n_rules as usize {
            let rule = self.rules.get(id).and_then(Option::as_ref);
            let rule = rule.ok_or_else(|| format!("the rule {} is not defined", name(id)))?;
            let mut starts = Vec::with_capacity(rule.len());
            for alternative in rule {
                starts.push(g.ops.len() as u32);
                g.ops.extend_from_slice(alternative);
                g.ops.push(Op::End);
            }
            g.rules.push(starts);
        }
        g.root = *self.names.get(&b"root"[..]).ok_or("the grammar has no rule root")?;
        check_left_recursion(&g).map_err(|id| match by_id[id] {
            [] => "left recursion".to_string(),
            _ => format!("left recursion in the rule {}", name(id)),
        })?;
        Ok(g)
    }
}

impl Grammar {
    pub fn alternative(&self, start: u32) -> &[Op] {
        let rest = &self.ops[start as usize..];
        &rest[..rest.iter().position(|op| *op == Op::End).unwrap_or(rest.len())]
    }

    /// By rule: can it be empty? Exactly, or, as llama.cpp sees it, only by an empty alternative of its own.
    fn may_be_empty(&self, exact: bool) -> Vec<bool> {
        let mut empty = vec![false; self.rules.len()];
        loop {
            let mut changed = false;
            for (id, starts) in self.rules.iter().enumerate() {
                let all_empty = |op: &Op| matches!(op, Op::Rule(r) if exact && empty[*r as usize]);
                if !empty[id] && starts.iter().any(|&s| self.alternative(s).iter().all(all_empty)) {
                    empty[id] = true;
                    changed = true;
                }
            }
            if !changed || !exact {
                return empty;
            }
        }
    }

    /// By rule: the rules that it can begin with, and whether something is left to do behind them.
    fn beginnings(&self, empty: &[bool]) -> Vec<Vec<(u32, bool)>> {
        let of = |starts: &Vec<u32>| {
            let mut out = Vec::new();
            for &start in starts {
                let ops = self.alternative(start);
                for (i, op) in ops.iter().enumerate() {
                    let Op::Rule(r) = *op else { break };
                    out.push((r, i + 1 < ops.len()));
                    if !empty[r as usize] {
                        break;
                    }
                }
            }
            out
        };
        self.rules.iter().map(of).collect()
    }
}

/// A rule that can begin with itself. llama.cpp looks through rules with an empty alternative of their own only, and
/// what it refuses is refused; beyond that, only what would make the stacks of the recogniser grow without end.
fn check_left_recursion(g: &Grammar) -> Result<(), usize> {
    for exact in [false, true] {
        let edges = g.beginnings(&g.may_be_empty(exact));
        let parts = components(&edges);
        let cycle = |from: usize| {
            edges[from].iter().any(|&(to, grows)| (grows || !exact) && parts[from] == parts[to as usize])
        };
        if let Some(from) = (0..edges.len()).find(|&from| cycle(from)) {
            return Err(from);
        }
    }
    Ok(())
}

/// By node: the number of its strongly connected component (R. Tarjan, 1972, with a stack of our own).
fn components(edges: &[Vec<(u32, bool)>]) -> Vec<u32> {
    const UNSEEN: u32 = u32::MAX;
    let n = edges.len();
    let (mut index, mut low, mut part) = (vec![UNSEEN; n], vec![0; n], vec![UNSEEN; n]);
    let (mut open, mut path) = (Vec::new(), Vec::new());
    let (mut next, mut n_parts) = (0, 0);
    for root in 0..n {
        if index[root] == UNSEEN {
            path.push((root, 0));
        }
        while let Some((node, edge)) = path.pop() {
            if edge == 0 {
                index[node] = next;
                low[node] = next;
                next += 1;
                open.push(node);
            } else {
                let child = edges[node][edge - 1].0 as usize;
                if part[child] == UNSEEN {
                    low[node] = low[node].min(low[child]);
                }
            }
            if let Some(&(child, _)) = edges[node].get(edge) {
                path.push((node, edge + 1));
                if index[child as usize] == UNSEEN {
                    path.push((child as usize, 0));
                }
            } else if low[node] == index[node] {
                while let Some(member) = open.pop() {
                    part[member] = n_parts;
                    if member == node {
                        break;
                    }
                }
                n_parts += 1;
            }
        }
    }
    part
}

//! A recogniser for GBNF grammars, with the meaning of llama.cpp's (src/llama-grammar.cpp, b11434).
//!
//! A state is a set of stacks, each the ways on from here: the next step on top, below it where to go on after the
//! rules that are open. Stacks share their lower parts as linked nodes, sets are interned, and what a byte does to a
//! set is remembered. So the walk through the vocabulary's trie is a walk through a table that is made as it goes.
//!
//! The upper end of a stack alone decides most tokens: inside of a string it doesn't matter how deep in which objects that
//! is. So what it allows is worked out once for each upper end (as in XGrammar: Y. Dong et al., 2024), with a list of the
//! tokens that reach below it, and only those are looked at for each place in a text.

use super::gbnf_parse::{Grammar, Op};
use super::trie;
use super::vocabulary::Vocabulary;
use llguidance::toktrie::SimpleVob;
use std::collections::{HashMap, HashSet};
use std::sync::Arc;

const MAX_STACKS: usize = 4096; // of one state
const MAX_STATES: usize = 1 << 14; // kept from step to step
const MAX_WORK: usize = 8_000_000; // stacks looked at in one step
const MAX_MASKS: usize = 64;
const MAX_TOPS: usize = 64;
const TOP: usize = 3; // nodes of a stack that are its upper end

const DEAD: u32 = 0;
const UNKNOWN: u32 = u32::MAX;
const BOTTOM: u32 = 0; // the empty stack
const BELOW: u32 = 1; // what an upper end stands on: anything

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Node {
    at: u32,    // in Grammar::ops, never an End
    below: u32, // node
}

const NOWHERE: Node = Node { at: u32::MAX, below: BOTTOM };

/// A character of which `left` bytes are still to come; `value`: its bits so far.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
struct Partial {
    value: u32,
    left: u8,
}

#[derive(Clone, PartialEq, Eq, Hash, Default)]
struct State {
    stacks: Vec<u32>, // nodes, sorted
    partial: Partial,
}

/// Where bytes lead; few at first, then all.
#[derive(Clone)]
enum Row {
    Few(Vec<(u8, u32)>),
    All(Box<[u32; 256]>),
}

impl Row {
    fn get(&self, byte: u8) -> u32 {
        match self {
            Row::Few(few) => few.iter().find(|e| e.0 == byte).map_or(UNKNOWN, |e| e.1),
            Row::All(all) => all[byte as usize],
        }
    }

    fn set(&mut self, byte: u8, to: u32) {
        match self {
            Row::Few(few) if few.len() < 8 => few.push((byte, to)),
            Row::Few(few) => {
                let mut all = Box::new([UNKNOWN; 256]);
                for &(b, s) in few.iter() {
                    all[b as usize] = s;
                }
                all[byte as usize] = to;
                *self = Row::All(all);
            }
            Row::All(all) => all[byte as usize] = to,
        }
    }
}

pub struct Automaton {
    grammar: Arc<Grammar>,
    nodes: Vec<Node>,
    node_ids: HashMap<Node, u32>,
    states: Vec<Arc<State>>,
    state_ids: HashMap<Arc<State>, u32>,
    rows: Vec<Row>,
    reaches_below: Vec<bool>, // by state: BELOW is among its stacks
    work: usize,
    start: u32,
    now: u32,
    masks: HashMap<u32, SimpleVob>,
    tops: HashMap<Top, Arc<Decided>>,
}

/// The upper end of a stack: places in Grammar::ops, the topmost first; and the character that has begun.
#[derive(PartialEq, Eq, Hash)]
struct Top {
    at: Vec<u32>,
    whole: bool, // nothing is below it
    partial: Partial,
}

/// What an upper end decides.
struct Decided {
    allowed: SimpleVob,
    open: Vec<u32>, // tokens that reach below it, not allowed without
}

/// The grammar asks for more work than is allowed.
#[derive(Debug)]
pub struct TooMuch;

impl Automaton {
    pub fn new(grammar: Arc<Grammar>) -> Result<Automaton, TooMuch> {
        let mut a = Automaton {
            grammar,
            nodes: vec![NOWHERE; 2], // BOTTOM and BELOW
            node_ids: HashMap::new(),
            states: Vec::new(),
            state_ids: HashMap::new(),
            rows: Vec::new(),
            reaches_below: Vec::new(),
            work: 0,
            start: DEAD,
            now: DEAD,
            masks: HashMap::new(),
            tops: HashMap::new(),
        };
        a.intern(State::default()); // DEAD
        let mut stacks = Vec::new();
        for start in a.grammar.clone().rules[a.grammar.root as usize].iter() {
            let stack = a.push(*start, BOTTOM);
            a.expand(stack, &mut stacks)?;
        }
        a.start = a.state(stacks, Partial::default())?;
        a.now = a.start;
        Ok(a)
    }

    pub fn reset(&mut self) {
        self.now = self.start;
    }

    /// May the text end here?
    pub fn accepting(&self) -> bool {
        let state = &self.states[self.now as usize];
        state.partial.left == 0 && state.stacks.first() == Some(&BOTTOM)
    }

    /// May nothing but the end follow?
    pub fn finished(&self) -> bool {
        self.now == DEAD || (self.accepting() && self.states[self.now as usize].stacks.len() == 1)
    }

    /// Goes on by a token, whose text is `piece`. False, and then all is over, when the grammar doesn't allow it.
    pub fn accept(&mut self, token: u32, piece: &[u8]) -> bool {
        self.work = 0;
        if self.states.len() > MAX_STATES {
            self.forget();
        }
        self.now = self.by_token(token, piece).unwrap_or(DEAD);
        self.now != DEAD
    }

    fn by_token(&mut self, token: u32, piece: &[u8]) -> Result<u32, TooMuch> {
        let from = self.states[self.now as usize].clone();
        let mut stacks = Vec::new();
        if from.partial.left == 0 {
            for &stack in &from.stacks {
                if self.takes_token(stack, token) {
                    let next = self.after(stack);
                    self.expand(next, &mut stacks)?;
                }
            }
        }
        let by_bytes = self.walk(self.now, piece)?;
        if stacks.is_empty() {
            return Ok(by_bytes);
        }
        let state = self.states[by_bytes as usize].clone();
        if state.partial.left == 0 {
            stacks.extend_from_slice(&state.stacks);
        }
        self.state(stacks, Partial::default())
    }

    fn takes_token(&self, stack: u32, token: u32) -> bool {
        match self.top(stack) {
            Op::Token(id) => id == token,
            Op::TokenNot(id) => id != token,
            _ => false,
        }
    }

    fn top(&self, stack: u32) -> Op {
        self.grammar.ops.get(self.nodes[stack as usize].at as usize).copied().unwrap_or(Op::End)
    }

    /// The stack with its top replaced by the step behind it.
    fn after(&mut self, stack: u32) -> u32 {
        let Node { at, below } = self.nodes[stack as usize];
        self.push(at + 1, below)
    }

    fn push(&mut self, at: u32, below: u32) -> u32 {
        if self.grammar.ops[at as usize] == Op::End {
            return below;
        }
        let node = Node { at, below };
        let next = self.nodes.len() as u32;
        let id = *self.node_ids.entry(node).or_insert(next);
        if id == next {
            self.nodes.push(node);
        }
        id
    }

    /// Adds the stacks that this one stands for: those with a character or a token on top, or empty.
    fn expand(&mut self, stack: u32, out: &mut Vec<u32>) -> Result<(), TooMuch> {
        let grammar = self.grammar.clone();
        let mut todo = vec![stack];
        let mut seen = HashSet::new();
        while let Some(stack) = todo.pop() {
            self.work += 1;
            if self.work > MAX_WORK || seen.len() > MAX_STACKS {
                return Err(TooMuch);
            }
            let Op::Rule(rule) = self.top(stack) else {
                out.push(stack);
                continue;
            };
            if !seen.insert(stack) {
                continue;
            }
            let back = self.after(stack);
            for &start in &grammar.rules[rule as usize] {
                todo.push(self.push(start, back));
            }
        }
        Ok(())
    }

    fn state(&mut self, mut stacks: Vec<u32>, partial: Partial) -> Result<u32, TooMuch> {
        stacks.sort_unstable();
        stacks.dedup();
        if stacks.len() > MAX_STACKS {
            return Err(TooMuch);
        }
        if stacks.is_empty() {
            return Ok(DEAD);
        }
        Ok(self.intern(State { stacks, partial }))
    }

    fn intern(&mut self, state: State) -> u32 {
        if let Some(&id) = self.state_ids.get(&state) {
            return id;
        }
        let id = self.states.len() as u32;
        let state = Arc::new(state);
        self.state_ids.insert(state.clone(), id);
        self.reaches_below.push(state.stacks.contains(&BELOW));
        self.states.push(state);
        self.rows.push(Row::Few(Vec::new()));
        id
    }

    fn step(&mut self, from: u32, byte: u8) -> Result<u32, TooMuch> {
        if from == DEAD {
            return Ok(DEAD);
        }
        let known = self.rows[from as usize].get(byte);
        if known != UNKNOWN {
            return Ok(known);
        }
        let to = self.make_step(from, byte)?;
        self.rows[from as usize].set(byte, to);
        Ok(to)
    }

    fn make_step(&mut self, from: u32, byte: u8) -> Result<u32, TooMuch> {
        let state = self.states[from as usize].clone();
        self.work += state.stacks.len();
        if self.work > MAX_WORK {
            return Err(TooMuch);
        }
        let Some(partial) = next_partial(state.partial, byte) else { return Ok(DEAD) };
        let grammar = self.grammar.clone();
        let (low, high) = reach(partial);
        let mut stacks = Vec::new();
        for &stack in &state.stacks {
            let Op::Class(class) = self.top(stack) else { continue };
            let class = &grammar.classes[class as usize];
            if partial.left > 0 {
                if class.meets(low, high) {
                    stacks.push(stack);
                }
            } else if class.has(partial.value) {
                let next = self.after(stack);
                self.expand(next, &mut stacks)?;
            }
        }
        let partial = if partial.left > 0 { partial } else { Partial::default() };
        self.state(stacks, partial)
    }

    /// Which tokens may follow, without those that end the text; `silent` ones never.
    pub fn mask(&mut self, vocabulary: &Vocabulary) -> Result<&SimpleVob, TooMuch> {
        self.work = 0;
        if self.states.len() > MAX_STATES {
            self.forget();
        }
        if !self.masks.contains_key(&self.now) {
            let mask = self.make_mask(vocabulary)?;
            if self.masks.len() >= MAX_MASKS {
                self.masks.clear();
            }
            self.masks.insert(self.now, mask);
        }
        Ok(&self.masks[&self.now])
    }

    fn make_mask(&mut self, vocabulary: &Vocabulary) -> Result<SimpleVob, TooMuch> {
        let mut mask = SimpleVob::alloc(vocabulary.len());
        let silent = &vocabulary.silent;
        let state = self.states[self.now as usize].clone();
        for &stack in &state.stacks {
            let decided = self.decided(stack, state.partial, vocabulary)?;
            mask.or(&decided.allowed);
            for &token in &decided.open {
                if !mask.get(token as usize) && self.walk(self.now, vocabulary.bytes(token))? != DEAD {
                    mask.allow_token(token);
                }
            }
        }
        if state.partial.left > 0 {
            return Ok(mask);
        }
        for &stack in &state.stacks {
            match self.top(stack) {
                Op::Token(id) if (id as usize) < vocabulary.len() && !silent.get(id as usize) => {
                    mask.allow_token(id)
                }
                Op::TokenNot(id) => {
                    let had = (id as usize) < vocabulary.len() && mask.get(id as usize);
                    let all = 0..vocabulary.len() as u32;
                    for t in all.filter(|&t| (t != id || had) && !silent.get(t as usize)) {
                        mask.allow_token(t);
                    }
                }
                _ => {}
            }
        }
        Ok(mask)
    }

    fn walk(&mut self, from: u32, bytes: &[u8]) -> Result<u32, TooMuch> {
        bytes.iter().try_fold(from, |state, &byte| self.step(state, byte))
    }

    fn decided(
        &mut self,
        stack: u32,
        partial: Partial,
        vocabulary: &Vocabulary,
    ) -> Result<Arc<Decided>, TooMuch> {
        let mut top = Top { at: Vec::new(), whole: false, partial };
        let mut node = stack;
        while node != BOTTOM && top.at.len() < TOP {
            top.at.push(self.nodes[node as usize].at);
            node = self.nodes[node as usize].below;
        }
        top.whole = node == BOTTOM;
        if let Some(decided) = self.tops.get(&top) {
            return Ok(decided.clone());
        }
        let base = if top.whole { BOTTOM } else { BELOW };
        let alone = top.at.iter().rev().fold(base, |below, &at| self.push(at, below));
        let state = self.state(vec![alone], partial)?;
        let decided = Arc::new(self.decide(state, vocabulary)?);
        if self.tops.len() >= MAX_TOPS {
            self.tops.clear();
        }
        self.tops.insert(top, decided.clone());
        Ok(decided)
    }

    fn decide(&mut self, from: u32, vocabulary: &Vocabulary) -> Result<Decided, TooMuch> {
        let trie = vocabulary.text();
        let mut decided = Decided { allowed: SimpleVob::alloc(vocabulary.len()), open: Vec::new() };
        let mut path = vec![(DEAD, false); trie.max_depth + 1]; // by depth: the state, and whether it went below
        path[0] = (from, false);
        let mut at = 0;
        while let Some(node) = trie.nodes.get(at) {
            let (state, open) = path[node.depth as usize - 1];
            let open = open || self.reaches_below[state as usize];
            let to = self.step(state, node.byte)?;
            path[node.depth as usize] = (to, open);
            if to == DEAD && !open {
                at += node.size as usize;
                continue;
            }
            if node.token != trie::NONE {
                if to != DEAD {
                    decided.allowed.allow_token(node.token);
                } else {
                    decided.open.push(node.token);
                }
            }
            at += 1;
        }
        Ok(decided)
    }

    /// Begins the tables anew, with the start and where we are.
    fn forget(&mut self) {
        let keep = [self.start, self.now].map(|s| self.states[s as usize].clone());
        let old = std::mem::replace(&mut self.nodes, vec![NOWHERE; 2]);
        self.node_ids.clear();
        self.states.clear();
        self.state_ids.clear();
        self.rows.clear();
        self.reaches_below.clear();
        self.masks.clear();
        self.intern(State::default());
        let mut moved = HashMap::from([(BOTTOM, BOTTOM)]);
        let ids = keep.map(|state| {
            let stacks = state.stacks.iter().map(|&stack| self.move_stack(stack, &old, &mut moved)).collect();
            self.state(stacks, state.partial).unwrap_or(DEAD)
        });
        [self.start, self.now] = ids;
    }

    fn move_stack(&mut self, stack: u32, old: &[Node], moved: &mut HashMap<u32, u32>) -> u32 {
        let mut chain = Vec::new();
        let mut at = stack;
        while !moved.contains_key(&at) {
            chain.push(at);
            at = old[at as usize].below;
        }
        let mut below = moved[&at];
        for &node in chain.iter().rev() {
            below = self.push(old[node as usize].at, below);
            moved.insert(node, below);
        }
        below
    }
}

/// What a byte makes of a character that has begun, or begins one. Not NUL, as in llama.cpp, and only valid UTF-8.
fn next_partial(before: Partial, byte: u8) -> Option<Partial> {
    if before.left == 0 {
        return match byte {
            1..=0x7F => Some(Partial { value: byte.into(), left: 0 }),
            0xC2..=0xDF => Some(Partial { value: u32::from(byte & 0x1F), left: 1 }),
            0xE0..=0xEF => Some(Partial { value: u32::from(byte & 0x0F), left: 2 }),
            0xF0..=0xF4 => Some(Partial { value: u32::from(byte & 0x07), left: 3 }),
            _ => None,
        };
    }
    if byte & 0xC0 != 0x80 {
        return None;
    }
    let next = Partial { value: before.value << 6 | u32::from(byte & 0x3F), left: before.left - 1 };
    let (low, high) = reach(before);
    let (first, last) = reach(next);
    (first <= high && last >= low && !(first >= 0xD800 && last <= 0xDFFF)).then_some(next)
}

/// The characters that it can become: not shorter ones in more bytes than they need, no surrogates.
fn reach(p: Partial) -> (u32, u32) {
    let bits = 6 * u32::from(p.left);
    let low = p.value << bits;
    let high = low | ((1 << bits) - 1);
    match (p.value, p.left) {
        (0, 2) => (0x800, high),
        (0, 3) => (0x10000, high),
        (0xD, 2) => (low, 0xD7FF),
        (4, 3) => (low, 0x10FFFF),
        _ => (low, high),
    }
}

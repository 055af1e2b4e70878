//! Constraints on what a model writes: GBNF by a recogniser of our own, whose meaning is llama.cpp's; JSON schemas,
//! regular expressions and Lark by llguidance. Both make masks over the vocabulary's tokens.

mod border;
mod gbnf;
mod gbnf_parse;
mod schema;
mod trie;
mod vocabulary;

use gbnf::Automaton;
use llguidance::api::TopLevelGrammar;
use llguidance::{toktrie::SimpleVob, Matcher};
use std::sync::Arc;
use vocabulary::Vocabulary;

#[derive(Clone, Copy, PartialEq)]
enum Language {
    Gbnf,
    JsonSchema,
    Regex,
    Lark,
}

const MAX_SOURCE: usize = 4 << 20;

/// Parsers and optimisers go down one level for each that is nested; what isn't touched of a stack costs nothing.
const STACK: usize = 64 << 20;

enum Engine {
    Gbnf(Automaton),
    Guidance(Box<Matcher>),
    Failed,
}

struct Constraint {
    vocabulary: Arc<Vocabulary>,
    engine: Engine,
    /// Of JSON: how long the number is that is being written.
    digits: Option<Digits>,
    /// As it was made; for a reset.
    fresh: Option<Box<Matcher>>,
}

impl Constraint {
    fn new(
        vocabulary: Arc<Vocabulary>,
        language: Language,
        source: &[u8],
        token_of: &dyn Fn(&[u8]) -> Option<u32>,
    ) -> Result<Constraint, String> {
        if source.len() > MAX_SOURCE {
            return Err(format!("more than {MAX_SOURCE} bytes"));
        }
        if language == Language::Gbnf {
            let grammar = Arc::new(gbnf_parse::parse(source, token_of)?);
            let automaton = Automaton::new(grammar).map_err(|_| "the grammar has too many ways to begin")?;
            vocabulary.text(); // made now, not in the first step
            return Ok(Constraint { vocabulary, engine: Engine::Gbnf(automaton), digits: None, fresh: None });
        }
        let matcher = std::thread::scope(|scope| {
            let thread = std::thread::Builder::new().stack_size(STACK);
            let compile = || guidance(&vocabulary, language, source);
            let compiler = thread.spawn_scoped(scope, compile).map_err(|e| e.to_string())?;
            compiler.join().unwrap_or_else(|_| Err("internal error in the grammar compiler".into()))
        })?;
        let fresh = Some(Box::new(matcher.deep_clone()));
        let digits = (language == Language::JsonSchema).then(Digits::default);
        Ok(Constraint { vocabulary, engine: Engine::Guidance(Box::new(matcher)), digits, fresh })
    }

    fn reset(&mut self) {
        self.digits = self.digits.as_ref().map(|_| Digits::default());
        match (&mut self.engine, &self.fresh) {
            (Engine::Gbnf(automaton), _) => automaton.reset(),
            (engine, Some(fresh)) => *engine = Engine::Guidance(Box::new(fresh.deep_clone())),
            _ => {}
        }
    }

    /// The tokens that may follow, into `out`; false when the grammar ran into a limit, and then only the end may.
    fn mask(&mut self, out: &mut [u32]) -> bool {
        let (mask, end) = match &mut self.engine {
            Engine::Gbnf(a) => {
                let end = a.accepting() || a.finished();
                (a.mask(&self.vocabulary).ok().cloned(), end)
            }
            Engine::Guidance(m) => {
                let mask = if m.is_stopped() { Some(SimpleVob::new()) } else { m.compute_mask().ok() };
                (mask, m.is_stopped() || m.is_accepting().unwrap_or(true))
            }
            Engine::Failed => (None, true),
        };
        let Some(mask) = mask else {
            self.engine = Engine::Failed;
            out.fill(0);
            self.allow_end(out);
            return false;
        };
        let words = mask.as_slice();
        for (i, word) in out.iter_mut().enumerate() {
            *word = words.get(i).copied().unwrap_or(0);
        }
        for &t in &self.vocabulary.ends {
            out[t as usize / 32] &= !(1 << (t % 32));
        }
        if self.digits.as_ref().is_some_and(|digits| digits.run >= MAX_DIGITS) {
            let others = |(word, digit): (&u32, &u32)| word & !digit;
            let digit = self.vocabulary.digit.as_slice();
            if end || out.iter().zip(digit).any(|pair| others(pair) != 0) {
                out.iter_mut().zip(digit).for_each(|(word, digit)| *word &= !digit);
            }
        }
        if end || out.iter().all(|&word| word == 0) {
            self.allow_end(out);
        }
        true
    }

    fn allow_end(&self, out: &mut [u32]) {
        for &t in &self.vocabulary.ends {
            out[t as usize / 32] |= 1 << (t % 32);
        }
    }

    /// Goes on by a token of which `piece` is the part that counts; None: all of it.
    fn accept(&mut self, token: u32, piece: Option<&[u8]>) -> bool {
        if let Some(digits) = &mut self.digits {
            digits.add(piece.unwrap_or(self.vocabulary.bytes(token)));
        }
        let ok = match &mut self.engine {
            Engine::Gbnf(a) => a.accept(token, piece.unwrap_or(self.vocabulary.bytes(token))),
            Engine::Guidance(m) => {
                if m.is_stopped() {
                    return true;
                }
                let whole = |piece: &&[u8]| *piece == self.vocabulary.bytes(token);
                match (piece.filter(|p| !whole(p)), self.vocabulary.factory()) {
                    (Some(part), Ok(factory)) => {
                        let tokens = factory.tok_env().tok_trie().greedy_tokenize(part);
                        m.consume_tokens(&tokens).is_ok()
                    }
                    _ => m.consume_token(token).is_ok(),
                }
            }
            Engine::Failed => false,
        };
        if !ok {
            self.engine = Engine::Failed;
        }
        ok
    }

    fn finished(&self) -> bool {
        match &self.engine {
            Engine::Gbnf(a) => a.finished(),
            Engine::Guidance(m) => m.is_stopped(),
            Engine::Failed => true,
        }
    }

    fn accepting(&mut self) -> bool {
        match &mut self.engine {
            Engine::Gbnf(a) => a.accepting(),
            Engine::Guidance(m) => m.is_accepting().unwrap_or(false),
            Engine::Failed => false,
        }
    }
}

/// As in llama.cpp's grammars for JSON, where each part of a number has this many at most: a small model would go on with
/// zeros for ever.
const MAX_DIGITS: usize = 16;

/// Follows JSON as far as is needed to tell digits of a number from those in a string.
#[derive(Default)]
struct Digits {
    run: usize,
    in_string: bool,
    escaped: bool,
}

impl Digits {
    fn add(&mut self, piece: &[u8]) {
        for &c in piece {
            self.run = if c.is_ascii_digit() && !self.in_string { self.run + 1 } else { 0 };
            match c {
                _ if self.escaped => self.escaped = false,
                b'\\' => self.escaped = self.in_string,
                b'"' => self.in_string = !self.in_string,
                _ => {}
            }
        }
    }
}

fn guidance(vocabulary: &Vocabulary, language: Language, source: &[u8]) -> Result<Matcher, String> {
    let text = || std::str::from_utf8(source).map_err(|_| "not valid UTF-8".to_string());
    let grammar = match language {
        Language::JsonSchema => TopLevelGrammar::from_json_schema(schema::prepare(source)?),
        Language::Regex => TopLevelGrammar::from_regex(check_regex(text()?)?),
        _ => TopLevelGrammar::from_lark(check_nesting(text()?)?.into()),
    };
    let parser = vocabulary.factory()?.create_parser(grammar).map_err(|e| first_lines(&format!("{e:#}")))?;
    let mut matcher = Matcher::new(Ok(parser));
    match matcher.get_error() {
        Some(error) => Err(first_lines(&error)),
        None => {
            matcher.compute_mask().map_err(|e| first_lines(&e.to_string()))?;
            Ok(matcher)
        }
    }
}

const MAX_NESTING: usize = 128;

fn check_nesting(text: &str) -> Result<&str, String> {
    let mut depth = 0usize;
    for c in text.bytes() {
        match c {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_NESTING {
            return Err(format!("brackets more than {MAX_NESTING} deep"));
        }
    }
    Ok(text)
}

const MAX_REGEX: usize = 64 << 10;

fn check_regex(text: &str) -> Result<&str, String> {
    match text.len() {
        0 => Err("an empty regular expression".into()),
        n if n > MAX_REGEX => Err(format!("a regular expression of more than {MAX_REGEX} bytes")),
        _ if repeats_anchor(text) => Err("nothing to repeat behind ^ or $ in a regular expression".into()),
        _ => check_nesting(text),
    }
}

fn repeats_anchor(text: &str) -> bool {
    let (mut in_class, mut escaped, mut anchor) = (false, false, false);
    for c in text.bytes() {
        if anchor && matches!(c, b'*' | b'+' | b'?' | b'{') {
            return true;
        }
        anchor = !in_class && !escaped && matches!(c, b'^' | b'$');
        match c {
            _ if escaped => escaped = false,
            b'\\' => escaped = true,
            b'[' => in_class = true,
            b']' => in_class = false,
            _ => {}
        }
    }
    false
}

/// Without backtraces and dumps of the grammar.
fn first_lines(error: &str) -> String {
    let end = error.find("\n<").unwrap_or(error.len());
    error[..end].trim().to_string()
}

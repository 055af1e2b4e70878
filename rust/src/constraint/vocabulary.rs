//! The tokens' bytes as tries, which masks are made with. Both are made when they are first needed: GBNF sees the text
//! of control tokens as llama.cpp does, llguidance must not.

use super::trie::Trie;
use llguidance::earley::SlicedBiasComputer;
use llguidance::toktrie::{ApproximateTokEnv, InferenceCapabilities, SimpleVob, TokEnv, TokRxInfo, TokTrie};
use llguidance::ParserFactory;
use std::sync::{Arc, OnceLock};

/// Tries have room for no longer ones; those are as if they had no text.
const MAX_TOKEN: usize = 1000;

#[derive(Clone, Copy, PartialEq)]
pub enum Kind {
    Text,
    Control,
    End,
}

pub struct Vocabulary {
    tokens: Vec<Vec<u8>>,
    kinds: Vec<Kind>,
    pub ends: Vec<u32>,
    /// Those that no grammar may name: ends, and tokens without text.
    pub silent: SimpleVob,
    /// Those that begin with a digit.
    pub digit: SimpleVob,
    text: OnceLock<Trie>,
    factory: OnceLock<Result<ParserFactory, String>>,
}

impl Vocabulary {
    pub fn new(tokens: Vec<Vec<u8>>, kinds: Vec<Kind>) -> Vocabulary {
        let ends: Vec<u32> = (0..kinds.len()).filter(|&t| kinds[t] == Kind::End).map(|t| t as u32).collect();
        let mut silent = SimpleVob::alloc(tokens.len());
        let mut digit = SimpleVob::alloc(tokens.len());
        for (t, bytes) in tokens.iter().enumerate() {
            let no_text = bytes.first().is_none_or(|&b| b == 0) || bytes.len() > MAX_TOKEN;
            digit.set(t, bytes.first().is_some_and(u8::is_ascii_digit));
            silent.set(t, kinds[t] == Kind::End || no_text);
        }
        Vocabulary { tokens, kinds, ends, silent, digit, text: OnceLock::new(), factory: OnceLock::new() }
    }

    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    pub fn bytes(&self, token: u32) -> &[u8] {
        self.tokens.get(token as usize).map_or(&[], |t| t)
    }

    fn info(&self) -> TokRxInfo {
        TokRxInfo::new(self.tokens.len() as u32, self.ends.first().copied().unwrap_or(0))
    }

    /// All tokens that a GBNF grammar can spell.
    pub fn text(&self) -> &Trie {
        self.text.get_or_init(|| {
            let spoken = (0..self.len() as u32).filter(|&t| !self.silent.get(t as usize));
            Trie::new(spoken.map(|t| (t, self.bytes(t))))
        })
    }

    pub fn factory(&self) -> Result<&ParserFactory, String> {
        self.factory.get_or_init(|| self.make_factory()).as_ref().map_err(Clone::clone)
    }

    fn make_factory(&self) -> Result<ParserFactory, String> {
        let word = |t: usize| match self.kinds[t] {
            Kind::Text if !self.silent.get(t) && self.tokens[t][0] != TokTrie::SPECIAL_TOKEN_MARKER => {
                self.tokens[t].clone()
            }
            Kind::Text => Vec::new(),
            _ if self.tokens[t].len() > MAX_TOKEN => Vec::new(),
            _ => [&[TokTrie::SPECIAL_TOKEN_MARKER], &self.tokens[t][..]].concat(),
        };
        let words: Vec<_> = (0..self.len()).map(word).collect();
        let mut trie = TokTrie::from(&self.info(), &words);
        if !self.ends.is_empty() {
            trie = trie.with_eos_tokens(&self.ends);
        }
        let env: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
        let slices = SlicedBiasComputer::general_slices();
        let mut factory = ParserFactory::new(&env, InferenceCapabilities::default(), &slices)
            .map_err(|e| format!("{e:#}"))?;
        factory.quiet();
        let limits = factory.limits_mut();
        limits.verbose_errors = false;
        limits.max_lexer_states = 50_000; // a kilobyte or two each
        Ok(factory)
    }
}

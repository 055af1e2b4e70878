//! The C face of constraints (include/grappa_constraint.h, which is the contract).

use super::vocabulary::{Kind, Vocabulary};
use super::{Constraint, Language};
use crate::{bytes, guarded, put_error, Text};
use std::ffi::{c_char, c_int, c_void};
use std::sync::Arc;

#[repr(C)]
pub struct Token {
    text: Text,
    kind: c_int,
}

pub struct Shared(Arc<Vocabulary>);

type TokenOf = extern "C" fn(*mut c_void, Text) -> i32;

/// # Safety
/// As in the C header.
#[no_mangle]
pub unsafe extern "C" fn grappa_constraint_vocab_new(tokens: *const Token, n: usize) -> *mut Shared {
    let tokens = if n == 0 { &[] } else { std::slice::from_raw_parts(tokens, n) };
    let made = guarded(|| {
        let kind = |t: &Token| match t.kind {
            0 => Kind::Text,
            1 => Kind::Control,
            _ => Kind::End,
        };
        let texts = tokens.iter().map(|t| bytes(t.text).to_vec()).collect();
        Vocabulary::new(texts, tokens.iter().map(kind).collect())
    });
    made.map_or(std::ptr::null_mut(), |v| Box::into_raw(Box::new(Shared(Arc::new(v)))))
}

/// # Safety
/// `v` came from `grappa_constraint_vocab_new` and is not used any more.
#[no_mangle]
pub unsafe extern "C" fn grappa_constraint_vocab_free(v: *mut Shared) {
    if !v.is_null() {
        guarded(|| drop(Box::from_raw(v)));
    }
}

/// # Safety
/// As in the C header.
#[no_mangle]
pub unsafe extern "C" fn grappa_constraint_new(
    v: *const Shared,
    language: c_int,
    source: Text,
    token_of: TokenOf,
    ctx: *mut c_void,
    error: *mut c_char,
    error_size: usize,
) -> *mut Constraint {
    let language = match language {
        0 => Language::Gbnf,
        1 => Language::JsonSchema,
        2 => Language::Regex,
        _ => Language::Lark,
    };
    let find = |text: &[u8]| {
        let text = Text { p: text.as_ptr().cast(), n: text.len() };
        u32::try_from(token_of(ctx, text)).ok()
    };
    match guarded(|| Constraint::new((*v).0.clone(), language, bytes(source), &find)) {
        Some(Ok(constraint)) => Box::into_raw(Box::new(constraint)),
        Some(Err(message)) => {
            put_error(&message, error, error_size);
            std::ptr::null_mut()
        }
        None => {
            put_error("internal error in the grammar compiler", error, error_size);
            std::ptr::null_mut()
        }
    }
}

/// # Safety
/// `c` came from `grappa_constraint_new` and is not used any more.
#[no_mangle]
pub unsafe extern "C" fn grappa_constraint_free(c: *mut Constraint) {
    if !c.is_null() {
        guarded(|| drop(Box::from_raw(c)));
    }
}

/// # Safety
/// As in the C header.
#[no_mangle]
pub unsafe extern "C" fn grappa_constraint_reset(c: *mut Constraint) {
    guarded(|| (*c).reset());
}

/// # Safety
/// As in the C header: `mask` holds a bit for each token.
#[no_mangle]
pub unsafe extern "C" fn grappa_constraint_mask(c: *mut Constraint, mask: *mut u32) -> bool {
    let out = std::slice::from_raw_parts_mut(mask, (*c).vocabulary.len().div_ceil(32));
    guarded(|| (*c).mask(out)).unwrap_or_else(|| {
        (*c).engine = super::Engine::Failed;
        out.fill(0);
        (*c).allow_end(out);
        false
    })
}

/// # Safety
/// As in the C header.
#[no_mangle]
pub unsafe extern "C" fn grappa_constraint_accept(
    c: *mut Constraint,
    token: i32,
    piece: *const Text,
) -> bool {
    guarded(|| {
        let piece = if piece.is_null() { None } else { Some(bytes(*piece)) };
        (*c).accept(token as u32, piece)
    })
    .unwrap_or(false)
}

/// # Safety
/// As in the C header.
#[no_mangle]
pub unsafe extern "C" fn grappa_constraint_finished(c: *const Constraint) -> bool {
    guarded(|| (*c).finished()).unwrap_or(true)
}

/// # Safety
/// As in the C header.
#[no_mangle]
pub unsafe extern "C" fn grappa_constraint_accepting(c: *mut Constraint) -> bool {
    guarded(|| (*c).accepting()).unwrap_or(false)
}

//! Jinja templates and constraints behind C headers (include/grappa_rust.h and grappa_constraint.h, which are the
//! contracts).
//!
//! This file is the border: raw pointers become slices, and nothing unwinds into C. The dialect, which is that
//! of Hugging Face's `apply_chat_template`, lives in `jinja.rs`; bounds for hostile
//! templates in `guard.rs`.

mod caps;
mod constraint;
mod guard;
mod jinja;
mod methods;
mod python;
mod python_json;
mod source;

use jinja::{Failure, Template};
use std::ffi::{c_char, c_int, c_void, CStr};
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::sync::Once;

#[repr(C)]
#[derive(Clone, Copy)]
pub struct Text {
    p: *const c_char,
    n: usize,
}

#[repr(C)]
pub struct Var {
    name: *const c_char,
    kind: c_int,
    text: Text,
}

type Write = extern "C" fn(*mut c_void, *const c_char, usize) -> bool;

// enum grappa_jinja_kind
const KIND_TEXT: c_int = 0;
const KIND_JSON: c_int = 1;

// enum grappa_jinja_status
const OK: c_int = 0;
const INTERNAL: c_int = 6;

fn status_of(failure: &Failure) -> c_int {
    match failure {
        Failure::BadInput(_) => 1,
        Failure::Raised(_) => 2,
        Failure::Failed(_) => 3,
        Failure::Limit(_) => 4,
        Failure::Write(_) => 5,
    }
}

/// A panic is a bug that becomes an error value; the library itself must not write to stderr.
pub(crate) fn guarded<T>(f: impl FnOnce() -> T) -> Option<T> {
    static SILENCE: Once = Once::new();
    SILENCE.call_once(|| std::panic::set_hook(Box::new(|_| {})));
    catch_unwind(AssertUnwindSafe(f)).ok()
}

pub(crate) unsafe fn bytes<'a>(text: Text) -> &'a [u8] {
    if text.n == 0 {
        &[]
    } else {
        std::slice::from_raw_parts(text.p.cast(), text.n)
    }
}

/// Copies a message as one line, cut at a character boundary.
pub(crate) unsafe fn put_error(message: &str, error: *mut c_char, size: usize) {
    if error.is_null() || size == 0 {
        return;
    }
    let mut line = String::new();
    for c in message.chars() {
        let c = if c.is_control() { ' ' } else { c };
        if line.len() + c.len_utf8() >= size {
            break;
        }
        line.push(c);
    }
    std::ptr::copy_nonoverlapping(line.as_ptr(), error.cast(), line.len());
    *error.add(line.len()) = 0;
}

/// # Safety
/// As in the C header: `source` is readable, `error` writable.
#[no_mangle]
pub unsafe extern "C" fn grappa_jinja_new(
    source: Text,
    error: *mut c_char,
    error_size: usize,
) -> *mut Template {
    match guarded(|| Template::new(&String::from_utf8_lossy(bytes(source)))) {
        Some(Ok(template)) => Box::into_raw(Box::new(template)),
        Some(Err(message)) => {
            put_error(&message, error, error_size);
            std::ptr::null_mut()
        }
        None => {
            put_error("internal error in the template parser", error, error_size);
            std::ptr::null_mut()
        }
    }
}

/// # Safety
/// `t` came from `grappa_jinja_new` and is not used any more.
#[no_mangle]
pub unsafe extern "C" fn grappa_jinja_free(t: *mut Template) {
    if !t.is_null() {
        guarded(|| drop(Box::from_raw(t)));
    }
}

/// # Safety
/// As in the C header.
#[no_mangle]
pub unsafe extern "C" fn grappa_jinja_render(
    t: *const Template,
    vars: *const Var,
    n_vars: usize,
    fuel: u64,
    now: i64,
    write: Write,
    ctx: *mut c_void,
    error: *mut c_char,
    error_size: usize,
) -> c_int {
    let outcome = guarded(|| {
        let vars = if n_vars == 0 { &[] } else { std::slice::from_raw_parts(vars, n_vars) };
        let mut context = jinja::Context::default();
        for var in vars {
            let name = CStr::from_ptr(var.name).to_string_lossy();
            let text = bytes(var.text);
            match var.kind {
                KIND_TEXT => context.add_text(&name, text),
                KIND_JSON => context.add_json(&name, text)?,
                _ => context.add_fields(&name, text)?,
            }
        }
        (*t).render(context, fuel, now, &mut |piece: &[u8]| write(ctx, piece.as_ptr().cast(), piece.len()))
    });
    match outcome {
        Some(Ok(())) => OK,
        Some(Err(failure)) => {
            put_error(failure.text(), error, error_size);
            status_of(&failure)
        }
        None => {
            put_error("internal error in the template engine", error, error_size);
            INTERNAL
        }
    }
}

/// # Safety
/// As in the C header.
#[no_mangle]
pub unsafe extern "C" fn grappa_jinja_caps(t: *const Template, out: *mut caps::Caps) -> bool {
    match guarded(|| caps::of(&*t)) {
        Some(Some(found)) => {
            *out = found;
            true
        }
        _ => false,
    }
}

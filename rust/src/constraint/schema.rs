//! JSON schemas made ready for llguidance: bounds on what a request may send, and llama.cpp's conventions where JSON
//! leaves a choice.

use super::check_regex;
use serde_json::{json, Map, Value};

const MAX_BYTES: usize = 4 << 20;
const MAX_DEPTH: usize = 64;

/// White space between tokens as llama.cpp has it (`space` in common/json-schema-to-grammar.cpp): enough to indent, too
/// little for a model that would write blanks for ever.
const SPACE: &str = r" |\n{1,2}[ \t]{0,20}";

pub fn prepare(text: &[u8]) -> Result<Value, String> {
    if text.len() > MAX_BYTES {
        return Err(format!("a JSON schema of more than {MAX_BYTES} bytes"));
    }
    check_depth(text)?;
    let mut schema: Value = serde_json::from_slice(text).map_err(|e| format!("not valid JSON: {e}"))?;
    if !(schema.is_object() || schema.is_boolean()) {
        return Err("a JSON schema is an object".into());
    }
    check_patterns(&schema)?;
    if let Value::Object(fields) = &mut schema {
        fields.shift_remove("x-guidance"); // the library's own options
        if fields.is_empty() {
            fields.insert("type".into(), "object".into());
        }
        if !mentions_all_of(&Value::Object(fields.clone())) {
            close(fields);
        }
        fields.insert(
            "x-guidance".into(),
            json!({ "whitespace_pattern": SPACE, "coerce_one_of": true, "whitespace_flexible": true }),
        );
    }
    Ok(schema)
}

/// Brackets are counted before a parser sees them, so that depth costs no stack.
fn check_depth(text: &[u8]) -> Result<(), String> {
    let (mut depth, mut in_string, mut escaped) = (0usize, false, false);
    for &c in text {
        match c {
            _ if escaped => escaped = false,
            b'\\' if in_string => escaped = true,
            b'"' => in_string = !in_string,
            b'[' | b'{' if !in_string => depth += 1,
            b']' | b'}' if !in_string => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MAX_DEPTH {
            return Err(format!("a JSON schema more than {MAX_DEPTH} deep"));
        }
    }
    Ok(())
}

/// The regular expressions in it, wherever they are: what only looks like one, as a property of that name, is no text.
fn check_patterns(value: &Value) -> Result<(), String> {
    match value {
        Value::Object(fields) => {
            for (key, inner) in fields {
                match (key.as_str(), inner) {
                    ("pattern", Value::String(regex)) if !regex.is_empty() => {
                        check_regex(regex).map(|_| ())?
                    }
                    ("patternProperties", Value::Object(by_name)) => {
                        for regex in by_name.keys().filter(|regex| !regex.is_empty()) {
                            check_regex(regex)?;
                        }
                        check_patterns(inner)?;
                    }
                    _ => check_patterns(inner)?,
                }
            }
            Ok(())
        }
        Value::Array(items) => items.iter().try_for_each(check_patterns),
        _ => Ok(()),
    }
}

fn mentions_all_of(value: &Value) -> bool {
    match value {
        Value::Object(fields) => fields.iter().any(|(key, v)| key == "allOf" || mentions_all_of(v)),
        Value::Array(items) => items.iter().any(mentions_all_of),
        _ => false,
    }
}

/// What an object may hold beside its `properties` is decided elsewhere too.
const OPENERS: [&str; 12] = [
    "$ref",
    "anyOf",
    "oneOf",
    "not",
    "if",
    "patternProperties",
    "additionalProperties",
    "unevaluatedProperties",
    "propertyNames",
    "dependentSchemas",
    "minProperties",
    "dependencies",
];

/// As in llama.cpp an object that names its properties has no others, unless the schema says so.
fn close(schema: &mut Map<String, Value>) {
    let mixed = OPENERS.iter().any(|key| schema.contains_key(*key));
    let has_properties = schema.contains_key("properties");
    if has_properties && !mixed {
        schema.insert("additionalProperties".into(), false.into());
    }
    for (key, value) in schema.iter_mut() {
        match key.as_str() {
            "properties" | "$defs" | "definitions" | "patternProperties" => {
                for (_, inner) in value.as_object_mut().into_iter().flatten() {
                    close_value(inner);
                }
            }
            "anyOf" | "oneOf" if has_properties => {} // parts of this very object
            "anyOf" | "oneOf" | "prefixItems" | "items" | "additionalProperties" | "contains" => {
                close_value(value)
            }
            _ => {}
        }
    }
}

fn close_value(value: &mut Value) {
    match value {
        Value::Object(schema) => close(schema),
        Value::Array(schemas) => schemas.iter_mut().for_each(close_value),
        _ => {}
    }
}

//! `{% generation %}` … `{% endgeneration %}`: Hugging Face's marks around what the assistant says. They only
//! matter for training masks, so here they become `{% with %}`, which has the same scope for variables.
//!
//! Only the word inside the tag is replaced: white-space control and line numbers stay as they are. The scan
//! knows comments, and strings inside tags, because a template may well print such a tag.

const WORDS: [(&str, &str); 2] = [("endgeneration", "endwith"), ("generation", "with")];

pub fn let_through(source: &str) -> String {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    while let Some(open) = rest.find('{') {
        let tag = &rest[open..];
        let n = match tag.as_bytes().get(1) {
            Some(b'#') => tag.find("#}").map_or(tag.len(), |at| at + 2),
            Some(b'%') => tag_len(tag, "%}"),
            Some(b'{') => tag_len(tag, "}}"),
            _ => 1,
        };
        out.push_str(&rest[..open]);
        out.push_str(&replaced(&tag[..n]));
        rest = &tag[n..];
    }
    out.push_str(rest);
    out
}

/// The length of a tag up to and with its end, not looking into strings.
fn tag_len(tag: &str, end: &str) -> usize {
    let bytes = tag.as_bytes();
    let mut i = 2;
    while i < bytes.len() {
        match bytes[i] {
            quote @ (b'"' | b'\'') => {
                i += 1;
                while i < bytes.len() && bytes[i] != quote {
                    i += if bytes[i] == b'\\' { 2 } else { 1 };
                }
            }
            _ if bytes[i..].starts_with(end.as_bytes()) => return i + 2,
            _ => {}
        }
        i += 1;
    }
    bytes.len()
}

fn replaced(tag: &str) -> std::borrow::Cow<'_, str> {
    if let Some(inner) = tag.strip_prefix("{%").and_then(|t| t.strip_suffix("%}")) {
        let word = inner.trim_matches(|c: char| c.is_whitespace() || c == '-' || c == '+');
        for (from, to) in WORDS {
            if word == from {
                return tag.replacen(from, to, 1).into();
            }
        }
    }
    tag.into()
}

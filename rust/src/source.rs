//! What happens to a template's source before minijinja sees it. One scan knows tags, comments, and strings inside
//! tags.
//!
//! - `{% generation %}` … `{% endgeneration %}`, Hugging Face's marks around what the assistant says, only matter for
//!   training. They become `{% with %}`, which has the same scope for variables. Only the word is replaced, so
//!   white-space control and line numbers stay as they are.
//! - Line ends become "\n", as Jinja2 reads them.
//! - A source or a tag that is too long is refused: the parser's time can grow by the square of a tag's operators.

/// No chat template is longer by far.
pub const MAX_SOURCE: usize = 256 << 10;
/// Strings don't count.
const MAX_TAG: usize = 4 << 10;

const WORDS: [(&str, &str); 2] = [("endgeneration", "endwith"), ("generation", "with")];

pub fn prepare(source: &str) -> Result<String, String> {
    if source.len() > MAX_SOURCE {
        return Err(format!("longer than {MAX_SOURCE} bytes"));
    }
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    let mut out = String::with_capacity(source.len());
    let mut rest = source.as_str();
    while let Some(open) = rest.find('{') {
        let tag = &rest[open..];
        let (n, code) = match tag.as_bytes().get(1) {
            Some(b'#') => (tag.find("#}").map_or(tag.len(), |at| at + 2), 0),
            Some(b'%') => tag_len(tag, "%}"),
            Some(b'{') => tag_len(tag, "}}"),
            _ => (1, 0),
        };
        out.push_str(&rest[..open]);
        if code > MAX_TAG {
            let line = out.matches('\n').count() + 1;
            return Err(format!("a tag is longer than {MAX_TAG} bytes (line {line})"));
        }
        out.push_str(&replaced(&tag[..n]));
        rest = &tag[n..];
    }
    out.push_str(rest);
    Ok(out)
}

/// The length of a tag up to and with its end, and how much of that is not in strings.
fn tag_len(tag: &str, end: &str) -> (usize, usize) {
    let bytes = tag.as_bytes();
    let mut i = 2;
    let mut strings = 0;
    while i < bytes.len() {
        match bytes[i] {
            quote @ (b'"' | b'\'') => {
                let from = i;
                i += 1;
                while i < bytes.len() && bytes[i] != quote {
                    i += if bytes[i] == b'\\' { 2 } else { 1 };
                }
                strings += i - from;
            }
            _ if bytes[i..].starts_with(end.as_bytes()) => return (i + 2, i + 2 - strings),
            _ => {}
        }
        i += 1;
    }
    (bytes.len(), bytes.len().saturating_sub(strings))
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

//! JSON as the emulator's own reader takes it: with comments, and commas behind the last of a list. The sample that it comes
//! with has some.

/// The same without them; everything else stays in its line and column.
pub(super) fn strict(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    // Where the last comma is, while nothing but space has come since.
    let mut comma = None;
    // What stands before it; a comma behind nothing is left to be refused.
    let mut before = b',';
    let mut at = 0;
    while let Some(rest) = bytes.get_mut(at..).filter(|rest| !rest.is_empty()) {
        let (length, is_comment) = token(rest);
        let Some(token) = rest.get_mut(..length) else { break };
        if is_comment {
            blank(token);
        }
        let first = token.first().copied().unwrap_or_default();
        match first {
            b',' => comma = Some(at).filter(|_| !matches!(before, b',' | b'[' | b'{')),
            b']' | b'}' => {
                if let Some(comma) = comma.take().and_then(|at| bytes.get_mut(at)) {
                    *comma = b' ';
                }
            }
            _ if first.is_ascii_whitespace() => {}
            _ => comma = None,
        }
        if !first.is_ascii_whitespace() {
            before = first;
        }
        at += length;
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// How long a string, a comment or a single byte is that begins here, and whether it is a comment.
fn token(rest: &[u8]) -> (usize, bool) {
    let until = |end: Option<usize>| end.unwrap_or(rest.len());
    match rest {
        [b'"', within @ ..] => {
            let mut is_escaped = false;
            let end = within.iter().position(|byte| {
                let is_end = *byte == b'"' && !is_escaped;
                is_escaped = *byte == b'\\' && !is_escaped;
                is_end
            });
            (until(end.map(|end| end + 2)), false)
        }
        [b'/', b'/', ..] => (until(rest.iter().position(|byte| *byte == b'\n')), true),
        [b'/', b'*', within @ ..] => {
            let end = within.windows(2).position(|pair| pair == b"*/");
            (until(end.map(|end| end + 4)), true)
        }
        _ => (1, false),
    }
}

fn blank(comment: &mut [u8]) {
    for byte in comment.iter_mut().filter(|byte| !byte.is_ascii_whitespace()) {
        *byte = b' ';
    }
}

#[cfg(test)]
mod tests {
    use super::strict;

    /// ADM-65.
    #[test]
    fn comments_and_last_commas_are_left_out_and_all_else_stays_in_its_place() {
        for (lenient, expected) in [
            ("{\"a\": 1 // \u{e9} \"b\",\n}", "{\"a\": 1           \n}"),
            ("{/* a, \n */\"a\": 1}", "{      \n   \"a\": 1}"),
            ("[1, 2, // last\n ]", "[1, 2         \n ]"),
            ("[1,]", "[1 ]"),
            ("{\"a\": [{},],}", "{\"a\": [{} ] }"),
            ("[\"//\", \"/* \\\" // */\", \"\\\\\",]", "[\"//\", \"/* \\\" // */\", \"\\\\\" ]"),
            ("[\",\", \"]\"]", "[\",\", \"]\"]"),
            ("[,]", "[,]"),
            ("[1, , ]", "[1, , ]"),
        ] {
            assert_eq!(strict(lenient), expected);
            assert_eq!(strict(lenient).len(), lenient.len());
        }
    }

    /// What is no JSON with that either is left to be refused.
    #[test]
    fn whatever_comes_it_ends() {
        for text in
            ["", "/", "//", "/*", "/* *", "\"", "\"\\", "\"\\\"", "/*/", ",", "[,]", "\u{e9}"]
        {
            assert_eq!(strict(text).len(), text.len(), "{text}");
        }
    }
}

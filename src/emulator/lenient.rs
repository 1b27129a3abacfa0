//! JSON with comments and trailing commas, as the emulator accepts it. The sample file of the
//! emulator contains both.

/// Replaces comments and trailing commas by spaces; all other text keeps its line and column.
pub(super) fn strict(text: &str) -> String {
    let mut bytes = text.as_bytes().to_vec();
    // Position of the last comma while only white space has followed.
    let mut comma = None;
    // Last character before it; a comma without a value before it stays and is refused later.
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

/// Length of the string, comment or single byte at the beginning, and whether it is a comment.
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

    /// ADM-65: comments and trailing commas become spaces.
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

    /// Any text is handled; invalid JSON stays invalid.
    #[test]
    fn any_text_is_handled() {
        for text in
            ["", "/", "//", "/*", "/* *", "\"", "\"\\", "\"\\\"", "/*/", ",", "[,]", "\u{e9}"]
        {
            assert_eq!(strict(text).len(), text.len(), "{text}");
        }
    }
}

//! Text of others made harmless: whatever would act on a terminal or turn the order of its letters is
//! shown as an escape instead.

use std::borrow::Cow;
use std::fmt::Write as _;

/// Whether a character acts instead of being seen: control characters of both sets, marks that change
/// the direction of writing, separators, and those that cannot be seen at all.
const fn acts(character: char) -> bool {
    matches!(character,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        | '\u{ad}' | '\u{61c}' | '\u{180e}'
        | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}')
}

/// Bytes as text of several lines.
pub fn text(bytes: &[u8]) -> String {
    shown(bytes, true)
}

/// Text as one line.
pub fn line(text: &str) -> Cow<'_, str> {
    if text.contains(acts) {
        Cow::Owned(shown(text.as_bytes(), false))
    } else {
        Cow::Borrowed(text)
    }
}

/// Bytes as one line of at most so many characters, and whether that is less than all.
pub fn cut(bytes: &[u8], chars_max: usize) -> (String, bool) {
    // One more than shown: a character has at most four bytes.
    let enough = bytes.len().min(chars_max.saturating_add(1).saturating_mul(4));
    let (head, _) = bytes.split_at(enough);
    let mut shown = shown(head, false);
    match shown.char_indices().nth(chars_max) {
        None if enough == bytes.len() => (shown, false),
        place => {
            if let Some((place, _)) = place {
                shown.truncate(place);
            }
            shown.push('…');
            (shown, true)
        }
    }
}

fn shown(bytes: &[u8], lines: bool) -> String {
    let mut out = String::with_capacity(bytes.len());
    for chunk in bytes.utf8_chunks() {
        for character in chunk.valid().chars() {
            match character {
                '\n' | '\t' if lines => out.push(character),
                '\n' => out.push_str("\\n"),
                '\t' => out.push_str("\\t"),
                '\r' => out.push_str("\\r"),
                _ if !acts(character) => out.push(character),
                // Writing into a string cannot fail.
                _ if u32::from(character) < 0x100 => {
                    write!(out, "\\x{:02x}", u32::from(character)).unwrap_or_default();
                }
                _ => write!(out, "\\u{{{:x}}}", u32::from(character)).unwrap_or_default(),
            }
        }
        for byte in chunk.invalid() {
            write!(out, "\\x{byte:02x}").unwrap_or_default();
        }
    }
    out
}

/// JSON in which such characters are escaped in the way of JSON: it means the same.
pub fn json(text: &str) -> Cow<'_, str> {
    if !text.contains(acts) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if !acts(character) || character == '\n' {
            out.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            write!(out, "\\u{unit:04x}").unwrap_or_default();
        }
    }
    Cow::Owned(out)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: &str, lines: &str, one_line: &str) {
        assert_eq!(text(given.as_bytes()), lines);
        assert_eq!(line(given), one_line);
    }

    #[test]
    fn what_acts_on_a_terminal_is_escaped() {
        check("two coffees, ☕ and a 👩‍🚀", "two coffees, ☕ and a 👩‍🚀", "two coffees, ☕ and a 👩‍🚀");
        check(
            "\u{1b}[31mred\u{1b}]0;title\u{7}",
            "\\x1b[31mred\\x1b]0;title\\x07",
            "\\x1b[31mred\\x1b]0;title\\x07",
        );
        check("a\u{9b}31m\u{7f}", "a\\x9b31m\\x7f", "a\\x9b31m\\x7f");
        check("user\u{202e}txt.exe", "user\\u{202e}txt.exe", "user\\u{202e}txt.exe");
        check("one\ntwo\tthree\rfour", "one\ntwo\tthree\\rfour", "one\\ntwo\\tthree\\rfour");
    }

    #[test]
    fn bytes_that_are_no_text_are_shown_one_by_one() {
        assert_eq!(text(b"a\xff\xfeb"), "a\\xff\\xfeb");
    }

    #[test]
    fn a_long_text_is_cut_and_says_so() {
        assert_eq!(cut(b"12345", 5), ("12345".to_owned(), false));
        assert_eq!(cut(b"123456", 5), ("12345…".to_owned(), true));
        assert_eq!(cut("ééééé".as_bytes(), 5), ("ééééé".to_owned(), false));
        assert_eq!(cut(&[b'a'; 1_000_000], 3), ("aaa…".to_owned(), true));
        assert_eq!(cut(b"", 3), (String::new(), false));
    }

    #[test]
    fn escaped_json_means_the_same() {
        let given = "{\"body\":\"a\u{202e}\u{9b}\u{e0041}b\"}";
        let escaped = json(given);
        assert_eq!(escaped, "{\"body\":\"a\\u202e\\u009b\\udb40\\udc41b\"}");
        let read = |text: &str| serde_json::from_str::<serde_json::Value>(text).unwrap();
        assert_eq!(read(&escaped), read(given));
    }
}

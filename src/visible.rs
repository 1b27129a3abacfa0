//! Escapes texts from others: characters that would act on a terminal or change the order of
//! letters. The log and all commands pass such texts through it.

use std::borrow::Cow;
use std::fmt::Write as _;

use peeklock::error::is_unprintable;

/// Bytes as text with line breaks.
pub fn text(bytes: &[u8]) -> String {
    shown(bytes, true)
}

/// Text as a single line.
pub fn line(text: &str) -> Cow<'_, str> {
    if text.contains(is_unprintable) {
        Cow::Owned(shown(text.as_bytes(), false))
    } else {
        Cow::Borrowed(text)
    }
}

/// Bytes as a single line of at most `chars_max` characters, and whether it was cut.
pub fn cut(bytes: &[u8], chars_max: usize) -> (String, bool) {
    // Bytes of a character more than shown: a character has at most four bytes.
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
                _ if !is_unprintable(character) => out.push(character),
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

/// JSON text with such characters in JSON escapes, so that it has the same value.
pub fn json(text: &str) -> Cow<'_, str> {
    if !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    for character in text.chars() {
        if !is_unprintable(character) || character == '\n' {
            out.push(character);
            continue;
        }
        for unit in character.encode_utf16(&mut [0; 2]) {
            write!(out, "\\u{unit:04x}").unwrap_or_default();
        }
    }
    Cow::Owned(out)
}

/// TOML text of the program with such characters in TOML escapes, so that it has the same value.
/// Literal strings, which have no escapes, become basic strings if needed.
pub fn toml(text: &str) -> Cow<'_, str> {
    if !text.contains(acts_in_toml) {
        return Cow::Borrowed(text);
    }
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some(begin) = rest.find(['"', '\'', '#']) {
        let (before, string) = rest.split_at(begin);
        out.push_str(before);
        rest = match TomlString::at(string) {
            Some(string) => {
                string.write_to(&mut out);
                string.after
            }
            // A comment.
            None => {
                let (comment, after) = string.split_at(string.find('\n').unwrap_or(string.len()));
                out.push_str(&line(comment));
                after
            }
        };
    }
    out.push_str(rest);
    Cow::Owned(out)
}

const fn acts_in_toml(character: char) -> bool {
    character != '\n' && is_unprintable(character)
}

/// String of TOML with its delimiters, and the text after it.
struct TomlString<'t> {
    mark: &'t str,
    content: &'t str,
    after: &'t str,
}

impl<'t> TomlString<'t> {
    /// The string at the start of a text; none if the text starts with another token.
    fn at(text: &'t str) -> Option<Self> {
        let marks = [r#"""""#, "'''", r#"""#, "'"];
        let mark = marks.into_iter().find(|mark| text.starts_with(mark))?;
        let (mark, inside) = text.split_at(mark.len());
        let mut end = 0;
        while let Some(rest) = inside.get(end..).filter(|rest| !rest.starts_with(mark)) {
            let mut characters = rest.chars();
            let first = characters.next()?;
            end += first.len_utf8();
            if first == '\\' && mark.starts_with('"') {
                end += characters.next()?.len_utf8();
            }
        }
        // A string with triple delimiters may end in one or two quotation marks of its own.
        while mark.len() == 3 && inside.get(end + 1..).is_some_and(|rest| rest.starts_with(mark)) {
            end += 1;
        }
        let (content, after) = inside.split_at_checked(end)?;
        Some(Self { mark, content, after: after.get(mark.len()..)? })
    }

    fn write_to(&self, out: &mut String) {
        let is_literal = self.mark.starts_with('\'') && self.content.contains(acts_in_toml);
        // The line break after triple delimiters does not belong to the string.
        let content = match (is_literal, self.mark.len()) {
            (true, 3) => self.content.strip_prefix('\n').unwrap_or(self.content),
            _ => self.content,
        };
        let mark = if is_literal { r#"""# } else { self.mark };
        out.push_str(mark);
        for character in content.chars() {
            match character {
                '\n' if is_literal => out.push_str("\\n"),
                '"' | '\\' if is_literal => out.extend(['\\', character]),
                _ if !acts_in_toml(character) => out.push(character),
                // Writing into a string cannot fail.
                _ if u32::from(character) > 0xffff => {
                    write!(out, "\\U{:08x}", u32::from(character)).unwrap_or_default();
                }
                _ => write!(out, "\\u{:04x}", u32::from(character)).unwrap_or_default(),
            }
        }
        out.push_str(mark);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: &str, lines: &str, one_line: &str) {
        assert_eq!(text(given.as_bytes()), lines);
        assert_eq!(line(given), one_line);
    }

    #[test]
    fn control_characters_are_escaped() {
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
    fn a_long_text_is_cut_with_an_ellipsis() {
        assert_eq!(cut(b"12345", 5), ("12345".to_owned(), false));
        assert_eq!(cut(b"123456", 5), ("12345…".to_owned(), true));
        assert_eq!(cut("ééééé".as_bytes(), 5), ("ééééé".to_owned(), false));
        assert_eq!(cut(&[b'a'; 1_000_000], 3), ("aaa…".to_owned(), true));
        assert_eq!(cut(b"", 3), (String::new(), false));
    }

    #[test]
    fn escaped_toml_means_the_same() {
        #[derive(serde::Serialize)]
        struct Table {
            texts: Vec<String>,
        }
        let acting = ["\u{9b}", "\u{202e}", "\u{2066}", "\u{2028}", "\u{e0041}", "\t", "\u{7f}"];
        let around = ["", "a", "\"", "'", "\\", "\n", "\"\"\"", "'''", "# a", "\"'\n\\"];
        let mut texts = around.map(str::to_owned).to_vec();
        for acts in acting {
            for one in around {
                texts.extend(around.map(|other| format!("{one}{acts}{other}")));
            }
        }
        let table = Table { texts };
        for given in [::toml::to_string(&table).unwrap(), ::toml::to_string_pretty(&table).unwrap()]
        {
            let escaped = toml(&given);
            assert!(!escaped.contains(acts_in_toml), "{escaped}");
            let read = |text: &str| ::toml::from_str::<::toml::Table>(text).unwrap();
            assert_eq!(read(&escaped), read(&given));
        }
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

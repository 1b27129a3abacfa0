//! JSON merge patch (RFC 7396) on the text of a body (CON-16). Values that a patch does not name stay
//! byte for byte, so that a number keeps all its digits. A changed object loses white space between
//! its members. Time and memory are proportional to the texts.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of levels: of arrays and objects that are open at a place.
const DEPTH_MAX: usize = 128;

/// A patch that is read.
#[derive(Debug)]
pub struct MergePatch(Change);

#[derive(Debug)]
enum Change {
    /// The value becomes this text.
    Set(Box<str>),
    /// The member is removed.
    Remove,
    /// Members of an object change. A value of another kind becomes an object.
    Members {
        /// The names as they are written, with their changes.
        changes: Vec<(Box<str>, Self)>,
        /// The place of each name in `changes`, by [`decoded`] names.
        places: BTreeMap<Box<[u8]>, usize>,
    },
}

impl MergePatch {
    /// Maximum bytes of memory of a patch for each byte of its text: an object with one short
    /// member has a vector and a node of a tree.
    pub const BYTES_PER_BYTE: u64 = 80;

    /// Reads a patch; none for a text that is not JSON, or has more than 128 levels.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut scan = Scan { text, at: 0 };
        let change = scan.change(0)?;
        scan.next().is_none().then_some(Self(change))
    }

    /// Returns the changed text; none for a text that is not such JSON, or has a member twice that
    /// the patch changes: readers disagree about its value.
    #[must_use]
    pub fn apply(&self, text: &str) -> Option<String> {
        let mut scan = Scan { text, at: 0 };
        let mut changed = String::with_capacity(text.len());
        self.0.write(&mut scan, 0, &mut changed)?;
        scan.next().is_none().then_some(changed)
    }
}

impl Change {
    /// Reads a value, and writes the changed one.
    fn write(&self, scan: &mut Scan<'_>, depth: usize, out: &mut String) -> Option<()> {
        let Self::Members { changes, places } = self else {
            scan.value(depth)?;
            self.write_new(out);
            return Some(());
        };
        if scan.next()? != b'{' {
            scan.value(depth)?;
            self.write_new(out);
            return Some(());
        }
        let mut seen = BTreeSet::new();
        out.push('{');
        scan.members(depth, &mut |scan, name| {
            let place = places.get(&*decoded(name)).copied();
            match place.and_then(|place| Some((place, &changes.get(place)?.1))) {
                None => {
                    begin_member(name, out);
                    out.push_str(scan.value(depth + 1)?);
                }
                Some((place, _)) if !seen.insert(place) => return None,
                Some((_, Self::Remove)) => {
                    scan.value(depth + 1)?;
                }
                Some((_, change)) => {
                    begin_member(name, out);
                    change.write(scan, depth + 1, out)?;
                }
            }
            Some(())
        })?;
        for (place, (name, change)) in changes.iter().enumerate() {
            if !seen.contains(&place) {
                change.write_member(name, out);
            }
        }
        out.push('}');
        Some(())
    }

    /// Writes the value of a member that is new.
    fn write_new(&self, out: &mut String) {
        match self {
            Self::Set(text) => out.push_str(text),
            Self::Remove => out.push_str("null"),
            Self::Members { changes, .. } => {
                out.push('{');
                for (name, change) in changes {
                    change.write_member(name, out);
                }
                out.push('}');
            }
        }
    }

    fn write_member(&self, name: &str, out: &mut String) {
        if !matches!(self, Self::Remove) {
            begin_member(name, out);
            self.write_new(out);
        }
    }
}

fn begin_member(name: &str, out: &mut String) {
    // No value ends with this bracket.
    if !out.ends_with('{') {
        out.push(',');
    }
    out.push_str(name);
    out.push(':');
}

/// Reads JSON from a text.
struct Scan<'t> {
    text: &'t str,
    at: usize,
}

impl<'t> Scan<'t> {
    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    /// Skips white space, and returns the next byte.
    fn next(&mut self) -> Option<u8> {
        while let Some(b' ' | b'\t' | b'\n' | b'\r') = self.byte() {
            self.at += 1;
        }
        self.byte()
    }

    fn take(&mut self, wanted: u8) -> Option<()> {
        (self.next()? == wanted).then(|| self.at += 1)
    }

    fn change(&mut self, depth: usize) -> Option<Change> {
        if self.next()? != b'{' {
            return Some(match self.value(depth)? {
                "null" => Change::Remove,
                text => Change::Set(text.into()),
            });
        }
        let (mut changes, mut places) = (Vec::new(), BTreeMap::new());
        self.members(depth, &mut |scan, name| {
            let change = scan.change(depth + 1)?;
            let key = decoded(name).into_owned().into_boxed_slice();
            let place = *places.entry(key).or_insert(changes.len());
            match changes.get_mut(place) {
                // The last one of equal names counts.
                Some(earlier) => *earlier = (name.into(), change),
                None => changes.push((name.into(), change)),
            }
            Some(())
        })?;
        Some(Change::Members { changes, places })
    }

    /// Reads a value, and returns its text.
    fn value(&mut self, depth: usize) -> Option<&'t str> {
        let first = self.next()?;
        let start = self.at;
        match first {
            b'{' => self.members(depth, &mut |scan, _| scan.value(depth + 1).map(drop))?,
            b'[' => self.elements(depth)?,
            b'"' => drop(self.string()?),
            b't' => self.word("true")?,
            b'f' => self.word("false")?,
            b'n' => self.word("null")?,
            _ => self.number()?,
        }
        self.text.get(start..self.at)
    }

    /// Reads an object; `read` gets the name of each member and reads its value.
    fn members(
        &mut self,
        depth: usize,
        read: &mut dyn FnMut(&mut Self, &'t str) -> Option<()>,
    ) -> Option<()> {
        if depth >= DEPTH_MAX {
            return None;
        }
        self.take(b'{')?;
        if self.next()? == b'}' {
            return self.take(b'}');
        }
        loop {
            self.next()?;
            let name = self.string()?;
            self.take(b':')?;
            read(self, name)?;
            if self.next()? == b'}' {
                return self.take(b'}');
            }
            self.take(b',')?;
        }
    }

    fn elements(&mut self, depth: usize) -> Option<()> {
        if depth >= DEPTH_MAX {
            return None;
        }
        self.take(b'[')?;
        if self.next()? == b']' {
            return self.take(b']');
        }
        loop {
            self.value(depth + 1)?;
            if self.next()? == b']' {
                return self.take(b']');
            }
            self.take(b',')?;
        }
    }

    /// Reads a string, and returns it with its quotes.
    fn string(&mut self) -> Option<&'t str> {
        let start = self.at;
        self.take(b'"')?;
        loop {
            let byte = self.byte()?;
            self.at += 1;
            match byte {
                b'"' => return self.text.get(start..self.at),
                b'\\' => self.escape()?,
                0..0x20 => return None,
                _ => {}
            }
        }
    }

    fn escape(&mut self) -> Option<()> {
        let byte = self.byte()?;
        self.at += 1;
        match byte {
            b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't' => Some(()),
            b'u' => {
                let digits = self.text.as_bytes().get(self.at..self.at + 4)?;
                self.at += 4;
                digits.iter().all(u8::is_ascii_hexdigit).then_some(())
            }
            _ => None,
        }
    }

    fn word(&mut self, word: &str) -> Option<()> {
        let is_word = self.text.get(self.at..)?.starts_with(word);
        is_word.then(|| self.at += word.len())
    }

    fn number(&mut self) -> Option<()> {
        self.skip(b"-");
        if !self.skip(b"0") {
            self.digits()?;
        }
        if self.skip(b".") {
            self.digits()?;
        }
        if self.skip(b"eE") {
            self.skip(b"+-");
            self.digits()?;
        }
        Some(())
    }

    /// Skips one of these bytes, and returns whether it was there.
    fn skip(&mut self, bytes: &[u8]) -> bool {
        let is_there = self.byte().is_some_and(|byte| bytes.contains(&byte));
        self.at += usize::from(is_there);
        is_there
    }

    fn digits(&mut self) -> Option<()> {
        let start = self.at;
        while self.byte().is_some_and(|byte| byte.is_ascii_digit()) {
            self.at += 1;
        }
        (self.at > start).then_some(())
    }
}

/// Returns the UTF-8 of a string that is written in quotes. Half of a surrogate pair has three
/// bytes as other code units do, so that different names stay different.
fn decoded(string: &str) -> Cow<'_, [u8]> {
    let inner = string.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(string);
    if !inner.contains('\\') {
        return Cow::Borrowed(inner.as_bytes());
    }
    let mut units = Vec::with_capacity(inner.len());
    let mut rest = inner.chars();
    while let Some(character) = rest.next() {
        let escaped = (character == '\\').then(|| rest.next()).flatten();
        let plain = match escaped {
            Some('u') => {
                let digits = rest.as_str().get(..4).unwrap_or_default();
                units.push(u16::from_str_radix(digits, 16).unwrap_or(u16::MAX));
                rest = rest.as_str().get(4..).unwrap_or_default().chars();
                continue;
            }
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some(other) => other,
            None => character,
        };
        units.extend_from_slice(plain.encode_utf16(&mut [0; 2]));
    }
    let mut bytes = Vec::with_capacity(inner.len());
    for decoded in char::decode_utf16(units) {
        match decoded {
            Ok(character) => {
                bytes.extend_from_slice(character.encode_utf8(&mut [0; 4]).as_bytes());
            }
            Err(half) => {
                let [high, low] = half.unpaired_surrogate().to_be_bytes();
                let middle = 0x80 | (high & 0xf) << 2 | low >> 6;
                bytes.extend_from_slice(&[0xe0 | high >> 4, middle, 0x80 | low & 0x3f]);
            }
        }
    }
    Cow::Owned(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn patched(text: &str, patch: &str) -> Option<String> {
        MergePatch::parse(patch).unwrap().apply(text)
    }

    /// CON-16: the examples of RFC 7396, appendix A.
    #[test]
    fn merge_patch_gives_the_results_of_the_standard() {
        for (text, patch, expected) in [
            (r#"{"a":"b"}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"b":"c"}"#, r#"{"a":"b","b":"c"}"#),
            (r#"{"a":"b"}"#, r#"{"a":null}"#, "{}"),
            (r#"{"a":"b","b":"c"}"#, r#"{"a":null}"#, r#"{"b":"c"}"#),
            (r#"{"a":["b"]}"#, r#"{"a":"c"}"#, r#"{"a":"c"}"#),
            (r#"{"a":"c"}"#, r#"{"a":["b"]}"#, r#"{"a":["b"]}"#),
            (r#"{"a":{"b":"c"}}"#, r#"{"a":{"b":"d","c":null}}"#, r#"{"a":{"b":"d"}}"#),
            (r#"{"a":[{"b":"c"}]}"#, r#"{"a":[1]}"#, r#"{"a":[1]}"#),
            (r#"["a","b"]"#, r#"["c","d"]"#, r#"["c","d"]"#),
            (r#"{"a":"b"}"#, r#"["c"]"#, r#"["c"]"#),
            (r#"{"a":"foo"}"#, "null", "null"),
            (r#"{"a":"foo"}"#, r#""bar""#, r#""bar""#),
            (r#"{"e":null}"#, r#"{"a":1}"#, r#"{"e":null,"a":1}"#),
            ("[1,2]", r#"{"a":"b","c":null}"#, r#"{"a":"b"}"#),
            ("{}", r#"{"a":{"bb":{"ccc":null}}}"#, r#"{"a":{"bb":{}}}"#),
        ] {
            assert_eq!(patched(text, patch).as_deref(), Some(expected), "{text} {patch}");
        }
    }

    /// CON-16: other values stay byte for byte; names are compared without their escapes, by their
    /// code units.
    #[test]
    fn merge_patch_keeps_other_values_byte_for_byte() {
        let number = "12345678901234567890.12345678901234567890e+7";
        let text =
            format!(r#" {{ "n" : {number}, "s":"\u00e9\/" , "o" : {{ "k" : [ 1 , 2 ] }} }} "#);
        let expected =
            format!(r#"{{"n":{number},"s":"\u00e9\/","o":{{ "k" : [ 1 , 2 ] }},"a":1}}"#);
        assert_eq!(patched(&text, r#"{"a":1}"#), Some(expected));
        let escaped = r#"{"\u0061\ud83d\ude00\n":1,"b":2}"#;
        assert_eq!(
            patched(escaped, "{\"a😀\\n\":3}").unwrap(),
            "{\"\\u0061\\ud83d\\ude00\\n\":3,\"b\":2}"
        );
        let halves = r#"{"\ud800":1,"\ud801":2,"\ud83d":3}"#;
        let expected = r#"{"\ud800":4,"\ud801":2,"\ud83d":3}"#;
        assert_eq!(patched(halves, r#"{"\uD800":4}"#).unwrap(), expected);
        assert_eq!(patched(r#"{"a":1}"#, r#"{"a":2,"a":null}"#).unwrap(), "{}");
    }

    /// CON-16: most readers use the last of equal names and some the first, so a text that has a
    /// patched member twice stays; other members may be there twice.
    #[test]
    fn merge_patch_refuses_a_patched_member_that_is_there_twice() {
        for change in ["4", "null", r#"{"x":1}"#] {
            let patch = format!(r#"{{"a":{change}}}"#);
            for text in
                [r#"{"a":1,"a":2}"#, r#"{"a":1,"b":3,"\u0061":2}"#, r#"{"a":{},"a":{"x":2}}"#]
            {
                assert_eq!(patched(text, &patch), None, "{text} {patch}");
                let inner = format!(r#"{{"o":{text}}}"#);
                assert_eq!(patched(&inner, &format!(r#"{{"o":{patch}}}"#)), None, "{inner}");
                let other = format!(r#"{{"o":{text},"p":1}}"#);
                assert_eq!(patched(&other, r#"{"p":1}"#), Some(other));
            }
        }
    }

    /// CON-16: a text that is not JSON is neither a patch nor patched, wherever its mistake is.
    #[test]
    fn merge_patch_refuses_texts_that_are_not_json() {
        let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(MergePatch::parse(&deep(128)).is_some());
        for text in [
            "",
            " ",
            "{",
            "}",
            "{}}",
            "[1,]",
            "[,1]",
            r#"{"a"}"#,
            r#"{"a":}"#,
            r#"{"a":1,}"#,
            "{a:1}",
            "01",
            "1.",
            ".5",
            "-",
            "1e",
            "+1",
            "nul",
            "truex",
            "\"",
            "\"\\x\"",
            "\"\\u12g4\"",
            "\"\\u12\"",
            "\"\n\"",
            "1 2",
            "\u{feff}{}",
            "'a'",
            &deep(129),
        ] {
            assert!(MergePatch::parse(text).is_none(), "{text}");
            assert_eq!(patched(text, "{}"), None, "{text}");
            assert_eq!(patched(text, "1"), None, "{text}");
            let member = format!(r#"{{"b":{text}}}"#);
            assert_eq!(patched(&member, r#"{"a":1}"#), None, "{member}");
        }
        for text in ["0", "-0.5e-7", "true", " null ", r#""""#, "[]", "[ [ ] , {} ]"] {
            assert!(patched(text, "1").is_some(), "{text}");
        }
    }
}

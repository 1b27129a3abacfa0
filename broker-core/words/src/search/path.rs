//! JSON paths of RFC 9535, as far as a stream of JSON can follow them: names, indices, slices and
//! wildcards, also of descendants. A filter, or a place counted from the end of an array, needs
//! values that come later in the stream and is refused.

use std::fmt;

use crate::error::Rejection;

/// Maximum number of segments, and of selectors in all segments.
pub(super) const SELECTOR_COUNT_MAX: usize = 63;

/// Checked JSON path. `Display` writes it as it was given.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct JsonPath {
    text: Box<str>,
    pub(super) segments: Vec<Segment>,
}

/// Step from a value to its children, or to the children of all its descendants and itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Segment {
    pub(super) is_descendant: bool,
    pub(super) selectors: Vec<Selector>,
}

/// Selection of children.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Selector {
    Name(Box<str>),
    Any,
    Index(u64),
    Slice { from: u64, to: u64, step: u64 },
}

impl JsonPath {
    /// Parses a path such as `$.order.lines[0]['unit price']`.
    ///
    /// # Errors
    /// `ArgumentError` with the place of the first mistake, and for a part that a search does not
    /// support; `ArgumentOutOfRange` for a path with too many parts.
    pub fn parse(text: &str) -> Result<Self, Rejection> {
        let (path, length) = Self::parse_start(text)?;
        match text.get(length..).unwrap_or_default() {
            "" => Ok(path),
            _ => Err(malformed(text, length, "the end of the path, `.` or `[`")),
        }
    }

    /// Parses the path at the start of a text; returns it with its length in bytes.
    pub(super) fn parse_start(text: &str) -> Result<(Self, usize), Rejection> {
        let mut parser = Parser { text, at: 0, selector_count: 0 };
        parser.expect("$")?;
        let mut segments = Vec::new();
        loop {
            let is_descendant = parser.takes("..");
            let segment =
                if !is_descendant && parser.takes(".") || is_descendant && !parser.is_at("[") {
                    vec![if parser.takes("*") { Selector::Any } else { parser.shorthand()? }]
                } else if parser.takes("[") {
                    parser.bracketed()?
                } else {
                    break;
                };
            parser.count(segment.len())?;
            segments.push(Segment { is_descendant, selectors: segment });
        }
        let written = text.get(..parser.at).unwrap_or_default();
        Ok((Self { text: written.into(), segments }, parser.at))
    }

    /// Number of bytes of the longest name.
    pub(super) fn name_bytes_max(&self) -> usize {
        let length = |selector: &Selector| match selector {
            Selector::Name(name) => name.len(),
            Selector::Any | Selector::Index(_) | Selector::Slice { .. } => 0,
        };
        let selectors = self.segments.iter().flat_map(|segment| &segment.selectors);
        selectors.map(length).max().unwrap_or_default()
    }

    /// The path as it was given.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }
}

impl fmt::Display for JsonPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

struct Parser<'t> {
    text: &'t str,
    at: usize,
    selector_count: usize,
}

impl<'t> Parser<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn is_at(&self, token: &str) -> bool {
        self.rest().starts_with(token)
    }

    fn takes(&mut self, token: &str) -> bool {
        let is_here = self.is_at(token);
        if is_here {
            self.at += token.len();
        }
        is_here
    }

    fn expect(&mut self, token: &str) -> Result<(), Rejection> {
        if self.takes(token) { Ok(()) } else { Err(self.error(&format!("`{token}`"))) }
    }

    fn error(&self, expected: &str) -> Rejection {
        malformed(self.text, self.at, expected)
    }

    fn count(&mut self, selectors: usize) -> Result<(), Rejection> {
        self.selector_count += selectors;
        match self.selector_count {
            0..=SELECTOR_COUNT_MAX => Ok(()),
            count => Err(Rejection::out_of_range(format!(
                "a JSON path with {count} selectors is too long; at most {SELECTOR_COUNT_MAX}"
            ))),
        }
    }

    fn blanks(&mut self) {
        let rest = self.rest();
        self.at += rest.len() - rest.trim_start_matches([' ', '\t', '\n', '\r']).len();
    }

    /// A name after a dot.
    fn shorthand(&mut self) -> Result<Selector, Rejection> {
        let first = |c: char| c.is_ascii_alphabetic() || c == '_' || !c.is_ascii();
        let rest = self.rest();
        if !rest.starts_with(first) {
            return Err(self.error("a name, `*` or `['a name']`"));
        }
        let end = rest.find(|c: char| !(first(c) || c.is_ascii_digit())).unwrap_or(rest.len());
        self.at += end;
        Ok(Selector::Name(rest.get(..end).unwrap_or_default().into()))
    }

    /// The selectors after an opening bracket.
    fn bracketed(&mut self) -> Result<Vec<Selector>, Rejection> {
        let mut selectors = Vec::new();
        loop {
            self.blanks();
            selectors.push(self.selector()?);
            self.blanks();
            if self.takes("]") {
                return Ok(selectors);
            }
            self.expect(",")?;
        }
    }

    fn selector(&mut self) -> Result<Selector, Rejection> {
        if self.takes("*") {
            return Ok(Selector::Any);
        }
        if self.is_at("?") {
            return Err(unsupported("filters in a JSON path; write another clause"));
        }
        for quote in ['\'', '"'] {
            if self.rest().starts_with(quote) {
                self.at += 1;
                return self.name(quote).map(Selector::Name);
            }
        }
        let from = self.number()?;
        self.blanks();
        if !self.takes(":") {
            return from
                .map(Selector::Index)
                .ok_or_else(|| self.error("a quoted name, an index, a slice or `*`"));
        }
        self.blanks();
        let to = self.number()?;
        self.blanks();
        let step = if self.takes(":") {
            self.blanks();
            self.number()?
        } else {
            None
        };
        let slice = (from.unwrap_or(0), to.unwrap_or(u64::MAX), step.unwrap_or(1));
        Ok(Selector::Slice { from: slice.0, to: slice.1, step: slice.2 })
    }

    fn number(&mut self) -> Result<Option<u64>, Rejection> {
        let rest = self.rest();
        if rest.starts_with('-') {
            return Err(unsupported("places from the end of an array in a JSON path"));
        }
        let end = rest.find(|c: char| !c.is_ascii_digit()).unwrap_or(rest.len());
        let digits = rest.get(..end).unwrap_or_default();
        if digits.is_empty() {
            return Ok(None);
        }
        let is_plain = digits == "0" || !digits.starts_with('0');
        let number = digits.parse().ok().filter(|number| is_plain && *number < 1 << 53);
        let number =
            number.ok_or_else(|| self.error("a number below 2^53 without leading zeros"))?;
        self.at += end;
        Ok(Some(number))
    }

    /// A name up to its closing quote.
    fn name(&mut self, quote: char) -> Result<Box<str>, Rejection> {
        let mut name = String::new();
        loop {
            let Some(found) = self.rest().chars().next() else {
                return Err(self.error("a closing quote"));
            };
            self.at += found.len_utf8();
            match found {
                found if found == quote => return Ok(name.into()),
                '\\' => name.push(self.escaped(quote)?),
                found => name.push(found),
            }
        }
    }

    fn escaped(&mut self, quote: char) -> Result<char, Rejection> {
        let escape = self.rest().chars().next();
        let plain = match escape {
            Some('b') => '\u{8}',
            Some('f') => '\u{c}',
            Some('n') => '\n',
            Some('r') => '\r',
            Some('t') => '\t',
            Some('u') => {
                self.at += 1;
                return self.unicode();
            }
            Some(other) if other == quote || other == '\\' || other == '/' => other,
            _ => return Err(self.error("an escape of JSON")),
        };
        self.at += 1;
        Ok(plain)
    }

    /// Four hexadecimal digits, or a pair of surrogates.
    fn unicode(&mut self) -> Result<char, Rejection> {
        let high = self.hexadecimal()?;
        if !(0xd800..0xdc00).contains(&high) {
            return char::from_u32(high).ok_or_else(|| self.error("a Unicode character"));
        }
        self.expect("\\u")?;
        let low = self.hexadecimal()?;
        let pair = (0xdc00..0xe000)
            .contains(&low)
            .then(|| 0x1_0000 + ((high - 0xd800) << 10) + (low - 0xdc00));
        pair.and_then(char::from_u32).ok_or_else(|| self.error("the second half of a character"))
    }

    fn hexadecimal(&mut self) -> Result<u32, Rejection> {
        let digits =
            self.rest().get(..4).filter(|text| text.bytes().all(|it| it.is_ascii_hexdigit()));
        let value = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let value = value.ok_or_else(|| self.error("four hexadecimal digits"))?;
        self.at += 4;
        Ok(value)
    }
}

impl Selector {
    /// Whether it selects a member with this name.
    pub(super) fn selects_name(&self, name: &[u8]) -> bool {
        match self {
            Self::Any => true,
            Self::Name(wanted) => wanted.as_bytes() == name,
            Self::Index(_) | Self::Slice { .. } => false,
        }
    }

    /// Whether it selects an element at this index.
    pub(super) const fn selects_index(&self, index: u64) -> bool {
        match self {
            Self::Any => true,
            Self::Name(_) => false,
            Self::Index(wanted) => *wanted == index,
            Self::Slice { from, to, step } => {
                // A step of 0 selects nothing (RFC 9535, 2.3.4.2).
                *step > 0 && *from <= index && index < *to && (index - *from).is_multiple_of(*step)
            }
        }
    }
}

fn malformed(text: &str, at: usize, expected: &str) -> Rejection {
    let place = text.get(..at).unwrap_or_default().chars().count() + 1;
    Rejection::argument(format!("JSON path, character {place}: expected {expected}"))
}

fn unsupported(feature: &str) -> Rejection {
    Rejection::argument(format!("a search does not support {feature}"))
}

//! Follows a JSON path through a stream of JSON, in pieces of any size.
//!
//! Each open array or object has the set of segments that apply to its children, as bits. A value
//! whose set has the bit after the last segment is selected. Memory is proportional to the depth.
//! The text up to the first mistake counts as JSON.

use std::cmp::Ordering;

use super::path::{JsonPath, Segment, Selector};
use super::text::Pattern;
use super::{JsonScalar, JsonTest};
use crate::rule::sql::Comparison;

/// Maximum number of open arrays and objects.
pub(super) const DEPTH_MAX: usize = 128;
/// Maximum number of bytes of a number that is compared as a number.
const NUMBER_BYTES_MAX: usize = 64;
/// Maximum number of bytes of a value that is returned as text.
const VALUE_BYTES_MAX: usize = 1_024;

/// Mark that some programs write before a text in UTF-8.
const BYTE_ORDER_MARK: [u8; 3] = [0xef, 0xbb, 0xbf];

/// Compiled test of the values of a path.
#[derive(Debug)]
pub(super) struct JsonMatcher {
    segments: Vec<Segment>,
    test: ValueTest,
    /// Maximum number of bytes of a name that can be selected, and one more.
    name_bytes_max: usize,
    /// Number of bytes of a scalar that decide about the test.
    scalar_bytes_max: usize,
}

#[derive(Debug)]
enum ValueTest {
    Exists,
    Contains(Pattern),
    Compare(Comparison, Wanted),
    /// Any value; its text is returned.
    Capture,
}

#[derive(Debug)]
enum Wanted {
    Literal(&'static str),
    Number(Number),
    Text(Box<str>),
}

/// Number of a JSON text.
#[derive(Clone, Copy, PartialEq, Debug)]
pub(super) enum Number {
    Integer(i128),
    Float(f64),
}

impl Number {
    pub(super) fn parse(text: &str) -> Option<Self> {
        let digits = text.strip_prefix('-').unwrap_or(text);
        if !digits.starts_with(|c: char| c.is_ascii_digit()) || text.len() > NUMBER_BYTES_MAX {
            return None;
        }
        let integer = text.parse().ok().map(Self::Integer);
        integer.or_else(|| text.parse().ok().map(Self::Float))
    }

    #[expect(clippy::cast_precision_loss, reason = "a comparison with a float is one of floats")]
    fn order(self, other: Self) -> Option<Ordering> {
        let float = |number| match number {
            Self::Integer(integer) => integer as f64,
            Self::Float(float) => float,
        };
        match (self, other) {
            (Self::Integer(one), Self::Integer(other)) => Some(one.cmp(&other)),
            (one, other) => float(one).partial_cmp(&float(other)),
        }
    }
}

/// Value that meets the test.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct FoundValue {
    /// Positions in the stream of its first byte and of the byte after its last one; for an array
    /// or object, of the byte after its bracket.
    pub(super) start: u64,
    pub(super) end: u64,
    /// Its text, if it was asked for.
    pub(super) text: Option<String>,
}

/// State of a stream.
#[derive(Debug)]
pub(super) struct JsonScan<'m> {
    matcher: &'m JsonMatcher,
    open: Vec<Level>,
    next: Next,
    /// Segments that apply to the children of the next value.
    set: u64,
    name: Vec<u8>,
    scalar: Option<Scalar>,
    position: u64,
    found: Option<FoundValue>,
    is_too_deep: bool,
}

#[derive(Clone, Copy, Debug)]
struct Level {
    set: u64,
    /// Index of the next element of an array; `None` in an object.
    index: Option<u64>,
}

/// Selected scalar that is being read.
#[derive(Debug)]
struct Scalar {
    is_text: bool,
    start: u64,
    /// Its first bytes, decoded.
    bytes: Vec<u8>,
    matched: usize,
    contains: bool,
}

/// Kind of byte that comes next.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Next {
    Value,
    /// A value, or the end of an empty array.
    FirstElement,
    /// A name, or the end of an empty object.
    FirstName,
    Name,
    Colon,
    /// A comma, or the end of an array or object.
    Comma,
    Text(TextState),
    /// The rest of a number, true, false or null.
    Word,
    /// Nothing: the value is complete or the bytes are not JSON.
    End,
}

/// State within a name or string.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct TextState {
    is_name: bool,
    escape: Escape,
    /// First half of a character that is written as two escapes.
    high: Option<u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Escape {
    None,
    Begun,
    Unicode { digits: u8, value: u32 },
}

impl JsonMatcher {
    pub(super) fn new(path: &JsonPath, test: &JsonTest) -> Self {
        let test = match test {
            JsonTest::Exists => ValueTest::Exists,
            JsonTest::Contains(text) => ValueTest::Contains(Pattern::of(text)),
            JsonTest::Compare(comparison, scalar) => {
                let wanted = match scalar {
                    JsonScalar::Null => Wanted::Literal("null"),
                    JsonScalar::Bool(true) => Wanted::Literal("true"),
                    JsonScalar::Bool(false) => Wanted::Literal("false"),
                    JsonScalar::Text(text) => Wanted::Text(text.clone()),
                    JsonScalar::Number(text) => {
                        Wanted::Number(Number::parse(text).unwrap_or(Number::Float(f64::NAN)))
                    }
                };
                ValueTest::Compare(*comparison, wanted)
            }
        };
        Self::of(path, test)
    }

    /// A matcher that returns the text of the first selected value.
    pub(super) fn capture(path: &JsonPath) -> Self {
        Self::of(path, ValueTest::Capture)
    }

    fn of(path: &JsonPath, test: ValueTest) -> Self {
        let name_bytes_max = path.name_bytes_max() + 1;
        let scalar_bytes_max = match &test {
            ValueTest::Compare(_, Wanted::Text(text)) => text.len() + 1,
            ValueTest::Capture => VALUE_BYTES_MAX,
            _ => NUMBER_BYTES_MAX + 1,
        };
        let segments = path.segments.clone();
        Self { segments, test, name_bytes_max, scalar_bytes_max: scalar_bytes_max.max(8) }
    }

    /// Begins a stream.
    pub(super) const fn scan(&self) -> JsonScan<'_> {
        JsonScan {
            matcher: self,
            open: Vec::new(),
            next: Next::Value,
            set: 1,
            name: Vec::new(),
            scalar: None,
            position: 0,
            found: None,
            is_too_deep: false,
        }
    }

    const fn is_selected(&self, set: u64) -> bool {
        set & (1 << self.segments.len()) != 0
    }

    /// Returns the segments for the children of a child.
    fn step(&self, set: u64, steps: &mut u64, selects: impl Fn(&Selector) -> bool) -> u64 {
        let mut next = 0;
        if set == 0 {
            return next;
        }
        for (place, segment) in self.segments.iter().enumerate() {
            let bit = 1 << place;
            if set & bit == 0 {
                continue;
            }
            *steps += segment.selectors.len() as u64;
            if segment.selectors.iter().any(&selects) {
                next |= bit << 1;
            }
            if segment.is_descendant {
                next |= bit;
            }
        }
        next
    }
}

impl JsonScan<'_> {
    /// Reads a piece of the stream, up to the first value that meets the test.
    pub(super) fn feed(&mut self, piece: &[u8], steps: &mut u64) -> Option<&FoundValue> {
        for byte in piece {
            if self.found.is_some() || self.next == Next::End {
                break;
            }
            *steps += 1;
            self.byte(*byte, steps);
            self.position += 1;
        }
        self.found.as_ref()
    }

    /// Ends the stream. A number at its end is complete only now.
    pub(super) fn end(&mut self, steps: &mut u64) -> Option<&FoundValue> {
        if self.found.is_none() && self.next == Next::Word && self.open.is_empty() {
            self.end_of_scalar(steps);
        }
        self.found.as_ref()
    }

    /// Whether the scan has stopped because the values are nested too deep.
    pub(super) const fn is_too_deep(&self) -> bool {
        self.is_too_deep
    }

    fn byte(&mut self, byte: u8, steps: &mut u64) {
        let is_mark = |place| BYTE_ORDER_MARK.get(place) == Some(&byte);
        if usize::try_from(self.position).is_ok_and(is_mark) {
            return;
        }
        match self.next {
            Next::Text(state) => return self.text_byte(byte, state, steps),
            Next::Word => {
                if byte.is_ascii_alphanumeric() || matches!(byte, b'+' | b'-' | b'.') {
                    return self.scalar_byte(byte, steps);
                }
                self.end_of_scalar(steps);
                if self.found.is_some() {
                    return;
                }
            }
            _ => {}
        }
        if matches!(byte, b' ' | b'\t' | b'\n' | b'\r') {
            return;
        }
        match (self.next, byte) {
            (Next::Value | Next::FirstElement, _) if byte != b']' => self.value(byte, steps),
            (Next::FirstElement, b']') => self.close(),
            (Next::FirstName | Next::Name, b'"') => {
                self.name.clear();
                self.next = Next::text(true);
            }
            (Next::FirstName, b'}') => self.close(),
            (Next::Colon, b':') => self.next = Next::Value,
            (Next::Comma, b',') => self.comma(steps),
            (Next::Comma, b']') if self.is_in_array() => self.close(),
            (Next::Comma, b'}') if !self.is_in_array() => self.close(),
            _ => self.next = Next::End,
        }
    }

    fn is_in_array(&self) -> bool {
        self.open.last().is_some_and(|level| level.index.is_some())
    }

    fn value(&mut self, byte: u8, steps: &mut u64) {
        let is_selected = self.matcher.is_selected(self.set);
        if is_selected && matches!(self.matcher.test, ValueTest::Exists) {
            let end = self.position + 1;
            self.found = Some(FoundValue { start: self.position, end, text: None });
            return;
        }
        match byte {
            b'{' | b'[' => {
                if is_selected && matches!(self.matcher.test, ValueTest::Capture) {
                    let text = if byte == b'{' { "{…}" } else { "[…]" };
                    let (start, end) = (self.position, self.position + 1);
                    self.found = Some(FoundValue { start, end, text: Some(text.to_owned()) });
                } else if self.open.len() >= DEPTH_MAX {
                    self.is_too_deep = true;
                    self.next = Next::End;
                } else if byte == b'{' {
                    self.open.push(Level { set: self.set, index: None });
                    self.next = Next::FirstName;
                } else {
                    self.open.push(Level { set: self.set, index: Some(0) });
                    self.element(steps);
                    self.next = Next::FirstElement;
                }
            }
            b'"' => {
                self.scalar = is_selected.then(|| self.scalar(true));
                self.next = Next::text(false);
            }
            b'-' | b'0'..=b'9' | b't' | b'f' | b'n' => {
                self.scalar = is_selected.then(|| self.scalar(false));
                self.next = Next::Word;
                self.scalar_byte(byte, steps);
            }
            _ => self.next = Next::End,
        }
    }

    const fn scalar(&self, is_text: bool) -> Scalar {
        let start = self.position;
        Scalar { is_text, start, bytes: Vec::new(), matched: 0, contains: false }
    }

    /// Sets the segments for the next element of the innermost array.
    fn element(&mut self, steps: &mut u64) {
        let Some(Level { set, index: Some(index) }) = self.open.last().copied() else { return };
        self.set = self.matcher.step(set, steps, |selector| selector.selects_index(index));
        if let Some(level) = self.open.last_mut() {
            level.index = Some(index + 1);
        }
    }

    fn comma(&mut self, steps: &mut u64) {
        if self.is_in_array() {
            self.element(steps);
            self.next = Next::Value;
        } else {
            self.next = Next::Name;
        }
    }

    fn close(&mut self) {
        self.open.pop();
        self.next = if self.open.is_empty() { Next::End } else { Next::Comma };
    }

    fn text_byte(&mut self, byte: u8, state: TextState, steps: &mut u64) {
        let mut state = state;
        let mut utf8 = [0; 4];
        match (state.escape, byte) {
            (Escape::None, b'"') => {
                self.unpaired(&mut state, steps);
                return self.end_of_text(state.is_name, steps);
            }
            (Escape::None, b'\\') => state.escape = Escape::Begun,
            (Escape::None, 0..0x20) => {
                self.next = Next::End;
                return;
            }
            (Escape::None, byte) => {
                self.unpaired(&mut state, steps);
                self.decoded(&[byte], state.is_name, steps);
            }
            (Escape::Begun, b'u') => state.escape = Escape::Unicode { digits: 0, value: 0 },
            (Escape::Begun, byte) => {
                let plain = match byte {
                    b'"' | b'\\' | b'/' => byte,
                    b'b' => 8,
                    b'f' => 12,
                    b'n' => b'\n',
                    b'r' => b'\r',
                    b't' => b'\t',
                    _ => {
                        self.next = Next::End;
                        return;
                    }
                };
                self.unpaired(&mut state, steps);
                self.decoded(&[plain], state.is_name, steps);
                state.escape = Escape::None;
            }
            (Escape::Unicode { digits, value }, byte) => {
                let Some(digit) = char::from(byte).to_digit(16) else {
                    self.next = Next::End;
                    return;
                };
                let value = value << 4 | digit;
                state.escape = Escape::Unicode { digits: digits + 1, value };
                if digits == 3 {
                    state.escape = Escape::None;
                    match (state.high.take(), value) {
                        (Some(high), 0xdc00..0xe000) => {
                            let pair = 0x1_0000 + ((high - 0xd800) << 10) + (value - 0xdc00);
                            let character = char::from_u32(pair).unwrap_or('\u{fffd}');
                            let text = character.encode_utf8(&mut utf8);
                            self.decoded(text.as_bytes(), state.is_name, steps);
                        }
                        (before, 0xd800..0xdc00) => {
                            state.high = before;
                            self.unpaired(&mut state, steps);
                            state.high = Some(value);
                        }
                        (before, value) => {
                            state.high = before;
                            self.unpaired(&mut state, steps);
                            let character = char::from_u32(value).unwrap_or('\u{fffd}');
                            let text = character.encode_utf8(&mut utf8);
                            self.decoded(text.as_bytes(), state.is_name, steps);
                        }
                    }
                }
            }
        }
        self.next = Next::Text(state);
    }

    /// Writes the first half of a character that has no second half.
    fn unpaired(&mut self, state: &mut TextState, steps: &mut u64) {
        if state.high.take().is_some() {
            self.decoded("\u{fffd}".as_bytes(), state.is_name, steps);
        }
    }

    fn decoded(&mut self, bytes: &[u8], is_name: bool, steps: &mut u64) {
        for byte in bytes {
            if !is_name {
                self.scalar_byte(*byte, steps);
            } else if self.name.len() < self.matcher.name_bytes_max {
                self.name.push(*byte);
            }
        }
    }

    fn scalar_byte(&mut self, byte: u8, steps: &mut u64) {
        let Some(scalar) = &mut self.scalar else { return };
        if scalar.bytes.len() < self.matcher.scalar_bytes_max {
            scalar.bytes.push(byte);
        }
        if let ValueTest::Contains(pattern) = &self.matcher.test
            && !scalar.contains
        {
            scalar.contains = pattern.advance(&mut scalar.matched, byte, steps);
        }
    }

    fn end_of_text(&mut self, is_name: bool, steps: &mut u64) {
        if is_name {
            let set = self.open.last().map_or(0, |level| level.set);
            let name = &*self.name;
            *steps += name.len() as u64;
            self.set = self.matcher.step(set, steps, |selector| selector.selects_name(name));
            self.next = Next::Colon;
        } else {
            self.end_of_scalar(steps);
        }
    }

    fn end_of_scalar(&mut self, steps: &mut u64) {
        self.next = if self.open.is_empty() { Next::End } else { Next::Comma };
        let Some(scalar) = self.scalar.take() else { return };
        *steps += scalar.bytes.len() as u64;
        let is_met = match &self.matcher.test {
            ValueTest::Exists | ValueTest::Capture => true,
            ValueTest::Contains(_) => scalar.contains,
            ValueTest::Compare(comparison, wanted) => scalar.compare(*comparison, wanted),
        };
        if is_met {
            let is_captured = matches!(self.matcher.test, ValueTest::Capture);
            let text = is_captured.then(|| String::from_utf8_lossy(&scalar.bytes).into_owned());
            // The quote at the end belongs to a text.
            let end = self.position + u64::from(scalar.is_text);
            self.found = Some(FoundValue { start: scalar.start, end, text });
        }
    }
}

impl Next {
    const fn text(is_name: bool) -> Self {
        Self::Text(TextState { is_name, escape: Escape::None, high: None })
    }
}

impl Scalar {
    fn compare(&self, comparison: Comparison, wanted: &Wanted) -> bool {
        let word = || std::str::from_utf8(&self.bytes).ok().filter(|_| !self.is_text);
        let order = match wanted {
            Wanted::Text(text) if self.is_text => Some((*self.bytes).cmp(text.as_bytes())),
            Wanted::Number(number) => {
                word().and_then(Number::parse).and_then(|value| value.order(*number))
            }
            Wanted::Literal(literal) => (word() == Some(*literal)).then_some(Ordering::Equal),
            Wanted::Text(_) => None,
        };
        match order {
            Some(order) => comparison.holds(order),
            // Values of different types are not equal and have no order (RFC 9535, 2.3.5.2.2).
            None => comparison == Comparison::NotEqual,
        }
    }
}

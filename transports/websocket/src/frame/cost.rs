//! Estimates the cost of a frame from its bytes, before anything is decoded: the number of
//! commands, and memory. A small frame must not become much larger than the room that it paid for.

use bytes::Bytes;
use peeklock_core::admission::COMMAND_BYTES;
use peeklock_json::{Marks, PART_BYTES};
use serde_json::value::RawValue;

use super::wire::{Reader, RequestCost};
use super::{Encoding, LIST_COUNT_MAX, Operation, binary};

/// Upper bound of the memory that one byte of a section or text inside a binary frame becomes, in
/// bytes.
pub(crate) const MADE_BYTES: u64 = 16;
/// Upper bound of the memory that an element of a list in such a section becomes, however short it
/// is.
const ELEMENT_BYTES: u64 = 1_664;
/// Maximum number of commands in one frame: several lists of full length fit.
const COMMANDS_MAX: u64 = 4 * LIST_COUNT_MAX as u64;
/// Maximum memory of the decoded requests of a frame without their commands, in bytes.
const MADE_BYTES_MAX: u64 = COMMAND_BYTES * LIST_COUNT_MAX as u64;

/// The commands and bytes that the rest of the requests of a frame may use.
pub(crate) struct Allowance {
    commands: u64,
    made_bytes: u64,
}

impl Allowance {
    pub(crate) const fn of_frame() -> Self {
        Self { commands: COMMANDS_MAX, made_bytes: MADE_BYTES_MAX }
    }

    /// Deducts the cost of a request; returns false if not enough is left.
    pub(crate) const fn take(&mut self, cost: RequestCost) -> bool {
        let commands = self.commands.checked_sub(cost.commands());
        let made_bytes = self.made_bytes.checked_sub(cost.made_bytes);
        let (Some(commands), Some(made_bytes)) = (commands, made_bytes) else { return false };
        *self = Self { commands, made_bytes };
        true
    }
}

/// Returns the cost of a frame: its number of commands, and its size in bytes, or the memory that
/// its requests need if that is more.
pub(crate) fn cost_of(encoding: Encoding, bytes: &Bytes) -> (u64, u64) {
    let (mut commands, mut room) = (0_u64, 0_u64);
    let mut add = |cost: RequestCost| {
        commands = commands.saturating_add(cost.commands());
        room = room.saturating_add(cost.bytes());
    };
    match encoding {
        Encoding::Binary => {
            // A frame that cannot be read is refused by the decoder.
            binary::parts(bytes, |part| {
                add(part_cost(part));
                Ok(())
            })
            .ok();
        }
        Encoding::Json => requests_of(bytes, add),
    }
    (commands.max(1), room.max(bytes.len() as u64))
}

/// Returns the cost of a request of a binary frame.
pub(crate) fn part_cost(part: &Reader<'_>) -> RequestCost {
    use super::wire::Wire as _;

    let mut cost = RequestCost::default();
    let mut reader = part.clone();
    if let Ok(code) = u8::read(&mut reader)
        && u32::read(&mut reader).is_ok()
    {
        // A list that ends too early is refused before much is allocated.
        Operation::skim_body(code, &mut reader, &mut cost).ok();
    }
    cost
}

/// Returns the cost of a request of a text frame.
pub(crate) fn text_cost(raw: &RawValue) -> RequestCost {
    let mut cost = RequestCost::default();
    Scan::new(1).run(raw.get().as_bytes(), |it| cost = it);
    cost
}

/// Returns the memory that a JSON section inside a binary frame becomes, in bytes: by its length,
/// or by the elements of its lists if they are many and short.
pub(crate) fn json_section_bytes(section: &[u8]) -> u64 {
    let (mut brackets, mut elements) = (Brackets::default(), 0_u64);
    for mark in Marks::of(section) {
        match mark {
            b'{' => {
                elements += u64::from(brackets.is_list(brackets.depth));
                brackets.open(false);
            }
            b'[' => brackets.open(true),
            b'}' | b']' => brackets.close(),
            _ => {}
        }
    }
    (MADE_BYTES * section.len() as u64).max(ELEMENT_BYTES * elements)
}

fn requests_of(bytes: &Bytes, add: impl FnMut(RequestCost)) {
    // The frame is an object that contains the list of requests.
    Scan::new(3).run(bytes, add);
}

/// The open brackets at a position in the text, with a flag for brackets of lists. The size does
/// not depend on the depth.
#[derive(Default)]
struct Brackets {
    depth: usize,
    /// One bit per depth, for the outermost 127 levels; the parser rejects deeper ones.
    lists: u128,
}

impl Brackets {
    fn open(&mut self, is_list: bool) {
        self.depth = self.depth.saturating_add(1);
        let bit = Self::bit(self.depth);
        self.lists = if is_list { self.lists | bit } else { self.lists & !bit };
    }

    const fn close(&mut self) {
        self.depth = self.depth.saturating_sub(1);
    }

    /// Whether the bracket at that depth, which must not exceed the current depth, belongs to a
    /// list.
    fn is_list(&self, depth: usize) -> bool {
        self.lists & Self::bit(depth) != 0
    }

    /// Bit of a depth; zero beyond the last level.
    fn bit(depth: usize) -> u128 {
        u32::try_from(depth).ok().and_then(|depth| 1_u128.checked_shl(depth)).unwrap_or(0)
    }
}

/// Walks through the marks of a text and counts parts and elements.
struct Scan {
    /// Depth of a request: 1 if the text is a single request.
    request_depth: usize,
    brackets: Brackets,
    parts: u64,
    elements: u64,
}

impl Scan {
    fn new(request_depth: usize) -> Self {
        Self { request_depth, brackets: Brackets::default(), parts: 0, elements: 0 }
    }

    fn run(mut self, text: &[u8], mut add: impl FnMut(RequestCost)) {
        for mark in Marks::of(text) {
            match mark {
                b'{' => self.open(false),
                b'[' => {
                    self.open(true);
                    // An empty list counts as a list of one element, which costs the same.
                    self.elements += u64::from(self.is_in_list());
                }
                b',' => {
                    self.parts += 1;
                    self.elements += u64::from(self.is_in_list());
                }
                b'}' | b']' => {
                    self.brackets.close();
                    if self.brackets.depth + 1 == self.request_depth {
                        let (elements, parts) = (self.elements, self.parts);
                        // The cost of each element covers many parts.
                        let made_bytes =
                            (parts * PART_BYTES).saturating_sub(elements.max(1) * COMMAND_BYTES);
                        add(RequestCost { elements, made_bytes });
                        (self.parts, self.elements) = (0, 0);
                    }
                }
                _ => {}
            }
        }
    }

    fn open(&mut self, is_list: bool) {
        self.parts += 1;
        self.brackets.open(is_list);
    }

    /// Whether the position is in a list of the request or of an object in its body, but not in a
    /// nested list.
    fn is_in_list(&self) -> bool {
        let depth = self.brackets.depth;
        let below = depth.wrapping_sub(self.request_depth);
        (below == 2 || below == 3)
            && self.brackets.is_list(depth)
            && !self.brackets.is_list(depth - 1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// DESIGN D6: lists are recognised in the outermost 127 levels, even after other brackets were
    /// open at their depth. Deeper brackets count as no list, and surplus closing brackets count as
    /// nothing.
    #[test]
    fn lists_are_recognised_to_the_depth_of_the_parser() {
        let mut open = Brackets::default();
        for turn in [0_usize, 1] {
            let is_list = |depth: usize| (depth + turn).is_multiple_of(3);
            for depth in 1..=200 {
                open.open(is_list(depth));
                assert_eq!(open.is_list(depth), depth < 128 && is_list(depth), "{depth}");
            }
            for depth in (1..=200).rev() {
                assert_eq!(
                    (open.depth, open.is_list(depth)),
                    (depth, depth < 128 && is_list(depth))
                );
                open.close();
            }
            open.close();
            assert_eq!((open.depth, open.is_list(0)), (0, false));
        }
    }

    /// DESIGN D6: objects in lists of a JSON section cost their memory if that is more than the
    /// cost of its bytes. Objects under a name, and brackets in names and texts, are covered by
    /// the bytes.
    #[test]
    fn a_section_costs_its_bytes_or_the_objects_in_its_lists() {
        let bytes = |section: &str| MADE_BYTES * section.len() as u64;
        for section in
            ["", "{}", r#"{"a":{"b":{}}}"#, r#"{"a":"[{},{}]"}"#, "[[[1,2],[3]],[]]", "}}]]"]
        {
            assert_eq!(json_section_bytes(section.as_bytes()), bytes(section), "{section}");
        }
        for (section, elements) in [
            (r#"{"a":[{},{},{"b":{}}]}"#, 3),
            (r#"{"a":[{"b":[{},{}]},{}]}"#, 4),
            (r#"}]{"a":[{}]}"#, 1),
        ] {
            assert_eq!(
                json_section_bytes(section.as_bytes()),
                elements * ELEMENT_BYTES,
                "{section}"
            );
        }
        let deep = |depth: usize| format!("{}{{}},{{}}", "[".repeat(depth));
        assert_eq!(json_section_bytes(deep(127).as_bytes()), 2 * ELEMENT_BYTES);
        assert_eq!(json_section_bytes(deep(128).as_bytes()), bytes(&deep(128)));
    }

    /// DESIGN D6: a text request counts the elements of lists in its body and in the objects of its
    /// body, but not of nested lists.
    #[test]
    fn a_request_of_text_counts_the_elements_of_its_lists() {
        for (request, elements) in [
            (r#"{"id":1,"a":{"path":"q"}}"#, 0),
            (r#"{"id":1,"a":{"tokens":[1,2,3]}}"#, 3),
            (r#"{"id":1,"a":{"b":{"tokens":[1,2]}}}"#, 2),
            (r#"{"id":1,"a":{"tokens":[[1,2],[3,4]]}}"#, 2),
            (r#"{"id":1,"a":{"b":{"c":{"tokens":[1,2]}}}}"#, 0),
        ] {
            let raw: &RawValue = serde_json::from_str(request).unwrap();
            assert_eq!(text_cost(raw).elements, elements, "{request}");
        }
    }
}

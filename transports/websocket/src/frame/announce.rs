//! What a frame asks for, told from its bytes before any of it is made: how many commands, and how much
//! memory. A small frame must not become much more than it paid for.

use bytes::Bytes;
use peeklock_core::permits::COMMAND_BYTES;
use peeklock_json::{Marks, PART_BYTES};
use serde_json::value::RawValue;

use super::wire::Reader;
use super::{Encoding, LIST_COUNT_MAX, Operation, binary};

/// What a byte of a section or text inside a binary frame becomes when it is made, at most.
pub(crate) const MADE_BYTES: u64 = 16;
/// What an element of a list in such a section becomes, however short it is.
const ELEMENT_BYTES: u64 = 1_536;
/// How many commands the requests of one frame may be, so that lists of full length find their neighbours.
const COMMANDS_MAX: u64 = 4 * LIST_COUNT_MAX as u64;
/// What may be made of the requests of one frame beside its commands.
const MADE_BYTES_MAX: u64 = COMMAND_BYTES * LIST_COUNT_MAX as u64;

/// What requests ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub(crate) struct Announced {
    /// Elements of lists, which are commands each.
    pub(crate) elements: u64,
    /// Bytes that are made of what is no list.
    pub(crate) made_bytes: u64,
}

/// What is left for the requests of a frame.
pub(crate) struct Allowance {
    commands: u64,
    made_bytes: u64,
}

impl Announced {
    const fn commands(self) -> u64 {
        if self.elements == 0 { 1 } else { self.elements }
    }

    /// The room that a request needs.
    const fn room(self) -> u64 {
        COMMAND_BYTES.saturating_mul(self.commands()).saturating_add(self.made_bytes)
    }
}

impl Allowance {
    pub(crate) const fn of_frame() -> Self {
        Self { commands: COMMANDS_MAX, made_bytes: MADE_BYTES_MAX }
    }

    /// Whether there is enough left for a request.
    pub(crate) const fn take(&mut self, announced: Announced) -> bool {
        let commands = self.commands.checked_sub(announced.commands());
        let made_bytes = self.made_bytes.checked_sub(announced.made_bytes);
        let (Some(commands), Some(made_bytes)) = (commands, made_bytes) else { return false };
        *self = Self { commands, made_bytes };
        true
    }
}

/// What a frame costs of a budget: its commands, and its bytes, or the room that its requests need if that is
/// more.
pub(crate) fn announced(encoding: Encoding, bytes: &Bytes) -> (u64, u64) {
    let (mut commands, mut room) = (0_u64, 0_u64);
    let mut add = |announced: Announced| {
        commands = commands.saturating_add(announced.commands());
        room = room.saturating_add(announced.room());
    };
    match encoding {
        Encoding::Binary => {
            // What cannot be read is refused when it is decoded.
            binary::parts(bytes, |part| {
                add(of_part(part));
                Ok(())
            })
            .ok();
        }
        Encoding::Json => requests_of(bytes, add),
    }
    (commands.max(1), room.max(bytes.len() as u64))
}

/// What one request of a binary frame asks for.
pub(crate) fn of_part(part: &Reader<'_>) -> Announced {
    use super::wire::Wire as _;

    let mut announced = Announced::default();
    let mut reader = part.clone();
    if let Ok(code) = u8::read(&mut reader)
        && u32::read(&mut reader).is_ok()
    {
        // A list that ends too early is refused before much of it is made.
        Operation::skim_body(code, &mut reader, &mut announced).ok();
    }
    announced
}

/// What one request of a text frame asks for.
pub(crate) fn of_text(raw: &RawValue) -> Announced {
    let mut announced = Announced::default();
    Scan::new(1).run(raw.get().as_bytes(), |it| announced = it);
    announced
}

/// What a section of JSON inside a binary frame becomes: by its length, or by the elements of its lists if those are many
/// and short.
pub(crate) fn made_of_json(section: &[u8]) -> u64 {
    // Deeper than there are bits the parser does not go.
    let bit = |depth: u32| 1_u128.checked_shl(depth).unwrap_or(0);
    let (mut lists, mut depth, mut elements) = (0_u128, 0_u32, 0_u64);
    for mark in Marks::of(section) {
        match mark {
            b'{' | b'[' => {
                elements += u64::from(mark == b'{' && lists & bit(depth) != 0);
                depth = depth.saturating_add(1);
                if mark == b'[' {
                    lists |= bit(depth);
                } else {
                    lists &= !bit(depth);
                }
            }
            b'}' | b']' => depth = depth.saturating_sub(1),
            _ => {}
        }
    }
    (MADE_BYTES * section.len() as u64).max(ELEMENT_BYTES * elements)
}

fn requests_of(bytes: &Bytes, add: impl FnMut(Announced)) {
    // The frame is an object, its requests a list in it.
    Scan::new(3).run(bytes, add);
}

/// Walks through the marks of a text and counts.
struct Scan {
    /// How deep a request lies: 1 if the text is one.
    request_depth: usize,
    depth: usize,
    /// Whether the brackets that are open are those of lists; of the outermost few.
    lists: u64,
    parts: u64,
    elements: u64,
}

impl Scan {
    const fn new(request_depth: usize) -> Self {
        Self { request_depth, depth: 0, lists: 0, parts: 0, elements: 0 }
    }

    fn run(mut self, text: &[u8], mut add: impl FnMut(Announced)) {
        for mark in Marks::of(text) {
            match mark {
                b'{' => self.open(false),
                b'[' => {
                    self.open(true);
                    // An empty list counts as one of one, which makes no difference.
                    self.elements += u64::from(self.is_in_list());
                }
                b',' => {
                    self.parts += 1;
                    self.elements += u64::from(self.is_in_list());
                }
                b'}' | b']' => {
                    self.depth = self.depth.saturating_sub(1);
                    if self.depth + 1 == self.request_depth {
                        let (elements, parts) = (self.elements, self.parts);
                        // Every element brings room for a good many parts.
                        let made_bytes =
                            (parts * PART_BYTES).saturating_sub(elements.max(1) * COMMAND_BYTES);
                        add(Announced { elements, made_bytes });
                        (self.parts, self.elements) = (0, 0);
                    }
                }
                _ => {}
            }
        }
    }

    fn open(&mut self, is_list: bool) {
        self.parts += 1;
        self.depth += 1;
        if let Some(bit) = 1_u64.checked_shl(u32::try_from(self.depth).unwrap_or(u32::MAX)) {
            self.lists = if is_list { self.lists | bit } else { self.lists & !bit };
        }
    }

    /// Whether what stands here is an element of a list of the request, or of what is inside its body, and
    /// not of a list within a list.
    const fn is_in_list(&self) -> bool {
        let below = self.depth.wrapping_sub(self.request_depth);
        (below == 2 || below == 3)
            && self.lists & (1 << self.depth) != 0
            && self.lists & (1 << (self.depth - 1)) == 0
    }
}

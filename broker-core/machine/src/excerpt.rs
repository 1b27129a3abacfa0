//! Excerpts for operators that queues and topics share: pages of messages, and counts by instant
//! (CON-02, CON-28). Each examines a bounded number of entries and keeps nothing.

use crate::command::{MessageFacts, Outcome, StateFacts};
use crate::effect::Answer;
use crate::error::Rejection;
use crate::ids::SequenceNumber;
use crate::inspect::{
    Cursor, Excerpt, HeadFacts, HeadOrder, HeadQuery, HeadStart, Inquiry, ROW_COUNT_MAX,
    SLOT_COUNT_MAX, SLOT_MAX, SLOT_MIN, TimelineQuery,
};
use crate::time::Timestamp;

/// Excerpt as a machine makes it.
pub(crate) type MachineExcerpt = Excerpt<MessageFacts, StateFacts>;
/// Position of a message in a list: the instant of its order, and its number.
pub(crate) type ListPosition = (Timestamp, SequenceNumber);

/// Maximum number of messages or sessions that a command examines, which takes about a millisecond.
pub(crate) const EXAMINED_MAX: usize = 8_192;
/// Maximum number of entries that a command counts without a look at the messages.
pub(crate) const ENTRIES_MAX: usize = 65_536;
/// Maximum work for the rows of a page, unless the first row has more.
pub(crate) const ROW_WORK_MAX: u64 = 512;

/// Number of examined messages or sessions that count as one unit of work.
const EXAMINED_PER_UNIT: u64 = 16;
/// Number of counted entries that count as one unit of work.
const ENTRIES_PER_UNIT: u64 = 64;

/// Work for examining all of `count` messages, at most `count_max`.
pub(crate) fn work_to_examine(count: u64, count_max: usize) -> u64 {
    count.min(count_max as u64) / EXAMINED_PER_UNIT
}

/// Work for counting all of `count` entries in a timeline.
pub(crate) fn work_to_count(count: usize) -> u64 {
    count.min(ENTRIES_MAX) as u64 / ENTRIES_PER_UNIT
}

/// Answers an inquiry after everything that the excerpt shows is durable.
pub(crate) fn answer(excerpt: MachineExcerpt) -> Answer {
    Answer::after_commit(Outcome::Inspected(Box::new(excerpt)))
}

/// Refuses an inquiry whose bounds are exceeded.
pub(crate) fn check(inquiry: &Inquiry) -> Result<(), Rejection> {
    let count_max = match inquiry {
        Inquiry::Heads(query) => query.count_max,
        Inquiry::Locks(query) => query.count_max,
        Inquiry::Sessions(query) => query.count_max,
        Inquiry::SessionState { .. } => 1,
        Inquiry::Originals { sequences, .. } => u32::try_from(sequences.len()).unwrap_or(u32::MAX),
        Inquiry::Timeline(TimelineQuery { slot, slot_count, .. }) => {
            if *slot_count == 0 || *slot_count > SLOT_COUNT_MAX {
                return Err(Rejection::out_of_range(format!(
                    "a timeline has 1 to {SLOT_COUNT_MAX} slots; {slot_count} is out of range"
                )));
            }
            if *slot < SLOT_MIN || *slot > SLOT_MAX {
                return Err(Rejection::out_of_range(format!(
                    "a slot of a timeline lasts {SLOT_MIN} to {SLOT_MAX}; {slot} is out of range"
                )));
            }
            1
        }
    };
    if count_max == 0 || count_max > ROW_COUNT_MAX {
        return Err(Rejection::out_of_range(format!(
            "a page has 1 to {ROW_COUNT_MAX} rows; {count_max} is out of range"
        )));
    }
    Ok(())
}

/// Returns the number at which a list in the order of numbers begins, in its direction; `None` if
/// the list is at its end. `at` finds the number for an instant.
pub(crate) fn first_number(
    query: &HeadQuery,
    at: impl FnOnce(Timestamp) -> Option<SequenceNumber>,
) -> Option<SequenceNumber> {
    match (query.start, query.is_descending) {
        (HeadStart::End, false) => Some(SequenceNumber(0)),
        (HeadStart::End, true) => Some(SequenceNumber(u64::MAX)),
        (HeadStart::Number(number), _) => Some(number),
        (HeadStart::Instant(instant), _) => at(instant),
        (HeadStart::After(cursor), false) => Some(cursor.sequence.next()),
        (HeadStart::After(cursor), true) => cursor.sequence.0.checked_sub(1).map(SequenceNumber),
    }
}

/// Returns the place at which a list by instant begins: the first place of an ascending list, or
/// the place before which a descending list is.
pub(crate) fn first_place(query: &HeadQuery) -> Result<ListPosition, Rejection> {
    Ok(match (query.start, query.is_descending) {
        (HeadStart::End, false) => (Timestamp::NONE, SequenceNumber(0)),
        (HeadStart::End, true) => (Timestamp::NEVER, SequenceNumber(0)),
        (HeadStart::Instant(at), false) => (at, SequenceNumber(0)),
        (HeadStart::Instant(at), true) => (at, SequenceNumber(u64::MAX)),
        (HeadStart::After(Cursor { at, sequence }), false) => (at, sequence.next()),
        (HeadStart::After(Cursor { at, sequence }), true) => (at, sequence),
        (HeadStart::Number(_), _) => {
            return Err(Rejection::argument(
                "a list by instant begins at an instant, not at a sequence number",
            ));
        }
    })
}

/// Whether a message belongs to the first page of a list that begins at an instant. In the order of
/// numbers the page may begin too early.
pub(crate) fn is_in_range(query: &HeadQuery, enqueued_at: Timestamp) -> bool {
    match (query.order, query.start, query.is_descending) {
        (HeadOrder::Number, HeadStart::Instant(at), false) => enqueued_at >= at,
        (HeadOrder::Number, HeadStart::Instant(at), true) => enqueued_at <= at,
        _ => true,
    }
}

/// Builds a page of the messages at `places`; `head` returns `None` for a message that the list
/// omits.
pub(crate) fn page_of_heads(
    places: impl Iterator<Item = ListPosition>,
    count_max: u32,
    mut head: impl FnMut(SequenceNumber) -> Option<HeadFacts<MessageFacts>>,
) -> MachineExcerpt {
    let mut places = places.peekable();
    let (mut heads, mut examined, mut work, mut last) = (Vec::new(), 0, 0, None);
    while examined < EXAMINED_MAX
        && heads.len() < count_max as usize
        && let Some((at, sequence)) = places.peek().copied()
    {
        if let Some(head) = head(sequence) {
            work += head.message.work() as u64;
            if work > ROW_WORK_MAX && !heads.is_empty() {
                break;
            }
            heads.push(head);
        }
        examined += 1;
        last = Some(Cursor { at, sequence });
        places.next();
    }
    let next = last.filter(|_| places.peek().is_some());
    Excerpt::Heads { heads, next, examined: examined as u64 }
}

/// Returns the place at which counting begins.
pub(crate) fn first_entry(query: &TimelineQuery) -> ListPosition {
    match query.after {
        Some(Cursor { at, sequence }) => (at, sequence.next()),
        None => (Timestamp::NONE, SequenceNumber(0)),
    }
}

/// Counts at most `count_max` entries by slot.
pub(crate) fn timeline(
    entries: impl Iterator<Item = ListPosition>,
    query: &TimelineQuery,
    count_max: usize,
) -> MachineExcerpt {
    let mut counts = vec![0; usize::from(query.slot_count)];
    let (mut before, mut later, mut last) = (0, 0, None);
    let mut entries = entries.peekable();
    for (at, sequence) in entries.by_ref().take(count_max) {
        last = Some(Cursor { at, sequence });
        if at < query.from {
            before += 1;
            continue;
        }
        let slot = at.since(query.from).ticks() / query.slot.ticks().max(1);
        match usize::try_from(slot).ok().and_then(|slot| counts.get_mut(slot)) {
            Some(count) => *count += 1,
            None => later += 1,
        }
    }
    let next = last.filter(|_| entries.peek().is_some());
    Excerpt::Timeline { counts, before, later, next }
}

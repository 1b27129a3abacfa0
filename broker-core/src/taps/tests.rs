use super::*;
use crate::command::{MessageFacts, MessageState};
use crate::path::SubQueue;
use peeklock_model::inspect::HeadState;

const NOW: Timestamp = Timestamp::from_ticks(1_000_000_000);
const QUEUE: EntityId = EntityId(7);

fn message(number: u64, header_size: u32, content: &'static [u8]) -> TapMessage {
    let sequence = SequenceNumber(number);
    let facts = MessageFacts {
        sequence,
        enqueued_sequence: SequenceNumber(0),
        enqueued_at: NOW,
        expires_at: None,
        time_to_live: None,
        delivery_count: 0,
        state: MessageState::Active,
        delayed_until: None,
        sub_queue: SubQueue::Main,
        lock: None,
        size: 1,
        overlay_count: 0,
        was_scheduled: false,
    };
    let content = ContentRef::Loaded(Bytes::from_static(content));
    HeadFacts {
        message: ReceivedMessage { facts, content, overlays: Vec::new() },
        state: HeadState::Active,
        expires_at: Timestamp::NEVER,
        is_expired: false,
        hops: 0,
        header_size,
        session: None,
        destination: None,
        lock: None,
    }
}

fn small(numbers: std::ops::RangeInclusive<u64>) -> Vec<TapMessage> {
    numbers.map(|number| message(number, 0, b"")).collect()
}

fn open(taps: &Taps, is_polled: bool) -> Arc<TapBuffer> {
    taps.open((TapId(1), QUEUE), SequenceNumber(0), is_polled, 64, NOW).unwrap()
}

fn seconds(count: i64) -> Timestamp {
    NOW.plus(TimeSpan::from_seconds(count))
}

/// CON-34
#[test]
fn allowance_is_full_after_a_second_and_not_more() {
    let mut allowance = RateAllowance::new(50, NOW);
    allowance.take(50);
    assert_eq!(allowance.left(NOW), 0);
    assert_eq!(allowance.left(NOW.plus(TimeSpan::from_ms(19))), 0);
    assert_eq!(allowance.left(NOW.plus(TimeSpan::from_ms(20))), 1);
    assert_eq!(allowance.left(seconds(1)), 50);
    assert_eq!(allowance.left(seconds(60)), 50);
    assert_eq!(allowance.left(NOW), 50);
}

/// CON-34
#[test]
fn messages_beyond_the_rate_are_counted() {
    let taps = Taps::default();
    let tap = open(&taps, false);
    assert_eq!(tap.room(NOW), (SequenceNumber(0), 50));
    tap.add(small(1..=51), (SequenceNumber(60), 60), NOW);
    assert_eq!(tap.room(NOW), (SequenceNumber(60), 0));
    let waiting = tap.take(NOW);
    assert_eq!((waiting.messages.len(), waiting.omitted), (50, 10));
    tap.add(small(61..=61), (SequenceNumber(61), 1), seconds(1));
    let waiting = tap.take(seconds(1));
    assert_eq!((waiting.messages.len(), waiting.omitted), (1, 0));
}

/// CON-34
#[test]
fn waiting_messages_are_bounded() {
    let taps = Taps::default();
    let tap = open(&taps, false);
    for second in 0..3 {
        tap.add(small(1..=50), (SequenceNumber(50), 50), seconds(second));
    }
    let waiting = tap.take(seconds(3));
    assert_eq!((waiting.messages.len(), waiting.omitted), (100, 50));
}

/// CON-34
#[test]
fn bytes_of_heads_are_bounded() {
    let taps = Taps::default();
    let tap = open(&taps, false);
    // Two heads of 128 KiB fill a second, each with the start of its body.
    let large = |number| message(number, (128 << 10) - 256, b"");
    tap.add((1..=3).map(large), (SequenceNumber(3), 3), NOW);
    let waiting = tap.take(NOW);
    assert_eq!((waiting.messages.len(), waiting.omitted), (2, 1));
    tap.add([large(4)], (SequenceNumber(4), 1), seconds(1));
    assert_eq!(tap.take(seconds(1)).messages.len(), 1);
}

/// CON-34
#[tokio::test]
async fn waiting_message_holds_no_body() {
    static CONTENT: [u8; 4 << 20] = [7; 4 << 20];
    let taps = Taps::default();
    let tap = open(&taps, false);
    tap.add([message(1, 100, &CONTENT)], (SequenceNumber(1), 1), NOW);
    let content = &tap.take(NOW).messages[0].message.content;
    assert!(content.loaded().is_none());
    assert_eq!(content.length(), 4 << 20);
    let start = content.load_range(0, 1_124).await.unwrap();
    assert_eq!(start, CONTENT[..1_124]);
    assert!(content.load_range(0, 1_125).await.is_err());
    assert!(content.load().await.is_err());
}

/// CON-34
#[test]
fn copied_heads_that_wait_are_bounded() {
    static CONTENT: [u8; 64 << 10] = [7; 64 << 10];
    let taps = Taps::default();
    let tap = open(&taps, false);
    let messages = (1..=6).map(|number| message(number, 60 << 10, &CONTENT));
    tap.add(messages, (SequenceNumber(6), 6), NOW);
    let waiting = tap.state();
    assert_eq!((waiting.waiting.len(), waiting.omitted), (4, 2));
    assert!(waiting.waiting_bytes <= WAITING_BYTES_MAX);
}

/// CON-34
#[test]
fn taps_are_bounded_and_cost_nothing_when_closed() {
    let taps = Taps::default();
    assert!(!taps.is_any_open());
    let of =
        |number| taps.open((TapId(number), EntityId(number)), SequenceNumber(0), false, 2, NOW);
    let (one, two) = (of(1).unwrap(), of(2).unwrap());
    assert!(of(3).is_none());
    taps.close(&one);
    taps.close(&one);
    let three = of(3).unwrap();
    assert!(of(4).is_none());
    assert_eq!(taps.of_entity(EntityId(1)).len(), 0);
    taps.close(&two);
    taps.close(&three);
    assert!(!taps.is_any_open());
    assert!(taps.by_entity().is_empty());
}

/// CON-34
#[test]
fn tap_that_is_not_read_keeps_no_messages() {
    let taps = Taps::default();
    let (stream, polled) = (open(&taps, false), open(&taps, true));
    for tap in [&stream, &polled] {
        tap.add(small(1..=2), (SequenceNumber(2), 2), NOW);
    }
    taps.sweep(seconds(10));
    assert_eq!(stream.state().waiting.len(), 2);
    assert!(taps.polled(QUEUE, TapId(1)).is_some());
    let late = seconds(10).plus(TimeSpan::from_ms(1));
    taps.sweep(late);
    assert!(stream.state().waiting.is_empty());
    assert!(taps.polled(QUEUE, TapId(1)).is_none());
    stream.add(small(3..=3), (SequenceNumber(3), 1), late);
    let waiting = stream.take(late);
    assert_eq!((waiting.messages.len(), waiting.omitted), (0, 3));
    stream.add(small(4..=4), (SequenceNumber(4), 1), late);
    assert_eq!(stream.take(late).messages.len(), 1);
}

/// CON-34
#[test]
fn tap_of_a_stream_is_not_polled() {
    let taps = Taps::default();
    open(&taps, false);
    assert!(taps.polled(QUEUE, TapId(1)).is_none());
    let polled = open(&taps, true);
    assert!(taps.polled(QUEUE, polled.id).is_some());
    assert!(taps.polled(EntityId(8), polled.id).is_none());
}

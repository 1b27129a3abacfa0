//! Tests of frames in both encodings: golden frames, every truncation, random mutations, random
//! round trips.

mod costs;
mod declarations;
mod every_kind;
mod forwarded;
mod inspect;
mod overlays;
mod policies;
mod random;
mod retry;
mod topics;

use std::collections::BTreeSet;

use bytes::Bytes;
use peeklock_core::command::{LockGrant, MessageFacts, MessageState};
use peeklock_core::ids::{LockToken, SequenceNumber};
use peeklock_core::message::{Content, Message, Overlay, Value};
use peeklock_core::path::SubQueue;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_store_testing::Random;

use self::every_kind::{notices, operations};
use super::message::{DeliveredContent, DeliveredMessage, Properties, SentMessage};
use super::text::{Guid, Instant, Span, Token};
use super::wire::{Reader, Wire};
use super::*;
use crate::operation::*;

/// One frame of each kind of request and of notice in both encodings: a line of JSON and one of
/// hexadecimal digits. Part of the protocol: a line that changes breaks clients.
const GOLDEN: &str = include_str!("golden.txt");
const SEQUENCES: u64 = 3_000;

fn at(seconds: i64) -> Instant {
    let start = Timestamp::parse("2026-05-01T12:00:00Z").unwrap();
    Instant(start.plus(TimeSpan::from_seconds(seconds)))
}

fn message() -> Message {
    Message::new("two coffees")
        .with_message_id("order-1")
        .with_subject("coffee")
        .with_time_to_live(TimeSpan::from_minutes(10))
        .with_application_property("priority", "high")
        .with_application_property("table", 7_i64)
}

fn outgoing(message: &Message) -> SentMessage {
    SentMessage::Content(message.encode().as_bytes().clone())
}

fn properties() -> Properties {
    Properties(vec![("cause".into(), "broken".into()), ("tries".into(), Value::I32(3))])
}

fn delivered() -> DeliveredMessage {
    let overlay = Overlay::encode(&[("cause".into(), "broken".into())]).unwrap();
    let facts = MessageFacts {
        sequence: SequenceNumber(1_001),
        enqueued_sequence: SequenceNumber(0),
        enqueued_at: at(0).0,
        expires_at: Some(at(600).0),
        time_to_live: Some(TimeSpan::from_minutes(10)),
        delivery_count: 1,
        state: MessageState::Active,
        delayed_until: None,
        sub_queue: SubQueue::Main,
        lock: Some(LockGrant {
            token: LockToken::new(SequenceNumber(1_001), 0x0123_4567_89ab_cdef),
            until: at(60).0,
        }),
        size: 99,
        overlay_count: 0,
        was_scheduled: false,
    };
    let carried = DeliveredContent::Stored {
        content: message().encode().as_bytes().clone(),
        overlays: vec![overlay.as_bytes().clone()],
    };
    DeliveredMessage { facts, carried, text: None }
}

fn client_frame(encoding: Encoding, seen: u64, requests: &[Request]) -> Bytes {
    client_side::encode(encoding, seen, requests).unwrap().into()
}

fn server_frame(encoding: Encoding, seen: u64, items: Vec<Item>) -> Bytes {
    ServerFrame { seen, items }.encode(encoding, 0).unwrap().into()
}

fn read_client(encoding: Encoding, bytes: &Bytes) -> (u64, Vec<Request>) {
    let frame = ClientFrame::decode(encoding, bytes).unwrap();
    (frame.seen, frame.requests.into_iter().map(Result::unwrap).collect())
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bytes_of(hexadecimal: &str) -> Bytes {
    let digits = hexadecimal.as_bytes().chunks(2);
    digits.map(|pair| u8::from_str_radix(std::str::from_utf8(pair).unwrap(), 16).unwrap()).collect()
}

/// Returns golden frames of these operations and notices as they are written now; asserts that both
/// encodings agree.
fn golden_of(operations: Vec<Operation>, notices: Vec<Notice>) -> String {
    let mut text = String::new();
    let mut add = |json: &Bytes, binary: &Bytes| {
        text.push_str(std::str::from_utf8(json).unwrap());
        text.push('\n');
        text.push_str(&hexadecimal(binary));
        text.push('\n');
    };
    for (id, operation) in (1..).zip(operations) {
        let requests = [Request { id, operation }];
        let [json, binary] =
            [Encoding::Json, Encoding::Binary].map(|it| client_frame(it, 3, &requests));
        // Both encodings must decode to the same request.
        for (encoding, bytes) in [(Encoding::Json, &json), (Encoding::Binary, &binary)] {
            let (seen, requests) = read_client(encoding, bytes);
            assert_eq!(client_frame(Encoding::Binary, seen, &requests), binary, "{json:?}");
        }
        add(&json, &binary);
    }
    for (id, notice) in (1..).zip(notices) {
        let [json, binary] = [Encoding::Json, Encoding::Binary]
            .map(|it| server_frame(it, 5, vec![Item { id, notice: notice.clone() }]));
        for (encoding, bytes) in [(Encoding::Json, &json), (Encoding::Binary, &binary)] {
            let frame = client_side::decode(encoding, bytes).unwrap();
            assert_eq!(server_frame(Encoding::Json, 5, frame.items), json);
        }
        add(&json, &binary);
    }
    text
}

/// Asserts that no part of a truncated frame is carried out.
fn assert_no_part_is_carried_out(operations: &[Operation]) {
    for encoding in Encoding::ALL {
        for (id, operation) in (1..).zip(operations) {
            let whole = client_frame(encoding, 3, &[Request { id, operation: operation.clone() }]);
            for length in 0..whole.len() {
                let read = ClientFrame::decode(encoding, &whole.slice(..length));
                assert!(
                    read.is_err()
                        || read.is_ok_and(|frame| frame.requests.iter().all(Result::is_err)),
                    "{id} cut to {length} of {} bytes",
                    whole.len()
                );
            }
        }
    }
}

/// Returns every golden frame as it is written now.
fn golden_now() -> String {
    let mut text = String::new();
    let mut add = |json: Bytes, binary: Bytes| {
        text.push_str(std::str::from_utf8(&json).unwrap());
        text.push('\n');
        text.push_str(&hexadecimal(&binary));
        text.push('\n');
    };
    for (id, operation) in (1..).zip(operations()) {
        let requests = [Request { id, operation }];
        let [json, binary] =
            [Encoding::Json, Encoding::Binary].map(|it| client_frame(it, 3, &requests));
        add(json, binary);
    }
    for (id, notice) in (1..).zip(notices()) {
        let id = if notice.code() < 32 { id } else { 0 };
        let [json, binary] = [Encoding::Json, Encoding::Binary]
            .map(|it| server_frame(it, 5, vec![Item { id, notice: notice.clone() }]));
        add(json, binary);
    }
    text
}

/// Frames must not differ from the released ones.
#[test]
fn frames_are_written_as_the_golden_ones() {
    for (now, golden) in golden_now().lines().zip(GOLDEN.lines()) {
        assert_eq!(now, golden);
    }
    assert_eq!(golden_now().lines().count(), GOLDEN.lines().count());
}

/// Both encodings of a golden frame decode to the same values.
#[test]
fn golden_frames_are_read_and_mean_the_same_in_both_encodings() {
    let mut lines = GOLDEN.lines();
    while let (Some(json), Some(binary)) = (lines.next(), lines.next()) {
        let (json, binary) = (Bytes::from(json), bytes_of(binary));
        if json.starts_with(b"{\"seen\":3,\"requests\"") {
            let (seen, from_json) = read_client(Encoding::Json, &json);
            assert_eq!(client_frame(Encoding::Binary, seen, &from_json), binary, "{json:?}");
            let (seen, from_binary) = read_client(Encoding::Binary, &binary);
            assert_eq!(client_frame(Encoding::Json, seen, &from_binary), json);
            assert_eq!(client_frame(Encoding::Binary, seen, &from_binary), binary);
        } else {
            let from_json = client_side::decode(Encoding::Json, &json).unwrap();
            assert_eq!(server_frame(Encoding::Json, 5, from_json.items), json);
            let from_binary = client_side::decode(Encoding::Binary, &binary).unwrap();
            assert_eq!(server_frame(Encoding::Json, 5, from_binary.items.clone()), json);
            assert_eq!(server_frame(Encoding::Binary, 5, from_binary.items), binary);
        }
    }
}

/// Every operation and notice has a golden frame.
#[test]
fn no_kind_is_forgotten() {
    let all = operations().into_iter().chain(topics::operations());
    let all = all.chain(policies::operations()).chain(retry::operations());
    let all = all.chain(declarations::operations());
    let all = all.chain(inspect::operations());
    let codes: Vec<u8> = all.map(|operation| operation.code()).collect();
    assert!(Operation::names().all(|(code, _)| codes.contains(&code)));
    let all = notices().into_iter().chain(topics::notices()).chain(policies::notices());
    let all = all.chain(declarations::notices());
    let all = all.chain(inspect::notices());
    let codes: Vec<u8> = all.map(|notice| notice.code()).collect();
    assert!(Notice::names().all(|(code, _)| codes.contains(&code)));
}

/// All operations, including management operations, have codes and keys of their own; so have all
/// notices.
#[test]
fn codes_and_keys_are_distinct() {
    let check = |names: Vec<(u8, &str)>| {
        let next = names.iter().map(|(code, _)| *code).max().unwrap() + 1;
        let (mut codes, mut keys) = (BTreeSet::new(), BTreeSet::new());
        for (code, key) in names {
            assert!(codes.insert(code), "{key} has the code {code} of another; {next} is free");
            assert!(keys.insert(key), "two have the key {key}");
        }
    };
    check(Operation::names().collect());
    check(Notice::names().collect());
}

/// A truncated frame yields no request that was incomplete.
#[test]
fn every_truncation_is_an_error() {
    for encoding in Encoding::ALL {
        for (id, operation) in (1..).zip(operations()) {
            let whole = client_frame(encoding, 3, &[Request { id, operation }]);
            for length in 0..whole.len() {
                let read = ClientFrame::decode(encoding, &whole.slice(..length));
                assert!(
                    read.is_err()
                        || read.is_ok_and(|frame| frame.requests.iter().all(Result::is_err)),
                    "{id} cut to {length} of {} bytes",
                    whole.len()
                );
            }
        }
        for notice in notices() {
            let whole = server_frame(encoding, 3, vec![Item { id: 1, notice }]);
            for length in 0..whole.len() {
                assert!(client_side::decode(encoding, &whole.slice(..length)).is_err());
            }
        }
    }
}

/// Random changes are decoded or refused, and decoded requests can be encoded again.
#[test]
fn mutations_do_no_harm() {
    let mut random = Random::new(1);
    for encoding in Encoding::ALL {
        let frames: Vec<Bytes> = (1..)
            .zip(
                operations()
                    .into_iter()
                    .chain(topics::operations())
                    .chain(policies::operations())
                    .chain(declarations::operations())
                    .chain(inspect::operations()),
            )
            .map(|(id, operation)| client_frame(encoding, 3, &[Request { id, operation }]))
            .chain(
                notices()
                    .into_iter()
                    .chain(topics::notices())
                    .chain(policies::notices())
                    .chain(declarations::notices())
                    .chain(inspect::notices())
                    .map(|notice| server_frame(encoding, 3, vec![Item { id: 1, notice }])),
            )
            .collect();
        for _ in 0..SEQUENCES * 10 {
            let mut bytes = random.pick(&frames).unwrap().to_vec();
            for _ in 0..=random.below(4) {
                let place = random.index(bytes.len());
                match random.below(4) {
                    0 => bytes[place] = u8::try_from(random.below(256)).unwrap(),
                    1 => bytes[place] ^= 1 << random.below(8),
                    2 => drop(bytes.remove(place)),
                    _ => bytes.insert(place, u8::try_from(random.below(256)).unwrap()),
                }
                if bytes.is_empty() {
                    bytes.push(0);
                }
            }
            let bytes = Bytes::from(bytes);
            if let Ok(frame) = ClientFrame::decode(encoding, &bytes) {
                let requests: Vec<Request> = frame.requests.into_iter().flatten().collect();
                // Content is validated only when it is used, so this may fail.
                client_side::encode(encoding, frame.seen, &requests).ok();
            }
            client_side::decode(encoding, &bytes).ok();
        }
    }
}

/// A count or length without the bytes for it allocates nothing.
#[test]
fn claimed_lengths_are_not_believed() {
    for claimed in ["00000000000000000fffffff", "0000000000000000ffffffff"] {
        assert!(ClientFrame::decode(Encoding::Binary, &bytes_of(claimed)).is_err());
    }
    // seen, 1 request, its length, code 9, id, link, a list with the largest allowed count
    let request = "0000000000000000000000010000000d09000000010000000100001000";
    let frame = ClientFrame::decode(Encoding::Binary, &bytes_of(request)).unwrap();
    assert_eq!(frame.requests[0].as_ref().unwrap_err().error, FrameError::Truncated);
    let request = "0000000000000000000000010000000d090000000100000001ffffffff";
    let frame = ClientFrame::decode(Encoding::Binary, &bytes_of(request)).unwrap();
    assert_eq!(frame.requests[0].as_ref().unwrap_err().error, FrameError::TooMany);
}

/// A list of more than 4096 elements is refused in JSON as in the binary form.
#[test]
fn lists_are_bounded_in_json_too() {
    let numbers = vec!["1"; LIST_COUNT_MAX + 1].join(",");
    let list = "\"link\":1,\"sequenceNumbers\":[";
    let frame = format!("{{\"requests\":[{{\"id\":7,\"cancelScheduled\":{{{list}{numbers}]}}}}]}}");
    let frame = ClientFrame::decode(Encoding::Json, &Bytes::from(frame)).unwrap();
    assert_eq!(frame.requests[0].as_ref().unwrap_err().id, 7);
    let empty = vec!["{}"; LIST_COUNT_MAX + 1].join(",");
    let frame = Bytes::from(format!("{{\"requests\":[{empty}]}}"));
    assert!(ClientFrame::decode(Encoding::Json, &frame).is_err());
}

/// A request that cannot be read does not affect its neighbours, and the error has its id.
#[test]
fn a_bad_request_does_not_harm_its_neighbours() {
    let frame = r#"{"requests":[{"id":1,"heartbeat":{}},{"id":2,"send":{"link":true}},
        {"id":3,"fly":{}},{"id":4},{"id":5,"heartbeat":{},"drain":{"link":1}},
        {"id":6,"credit":{"link":1,"upTo":1,"more":1}},{"id":7,"heartbeat":{}}]}"#;
    let frame = ClientFrame::decode(Encoding::Json, &Bytes::from(frame)).unwrap();
    let read: Vec<Result<u32, u32>> = frame
        .requests
        .iter()
        .map(|it| it.as_ref().map(|request| request.id).map_err(|bad| bad.id))
        .collect();
    assert_eq!(read, [Ok(1), Err(2), Err(3), Err(4), Err(5), Err(6), Ok(7)]);
}

/// Bytes that are not an application-properties section are refused.
#[test]
fn properties_are_a_section_and_nothing_else() {
    let content = message().encode();
    for section in [content.as_bytes().as_ref(), b"garbage", &[0, 0x53, 0x74]] {
        let mut bytes = Vec::new();
        wire::write_bytes(&mut bytes, section);
        let bytes = Bytes::from(bytes);
        assert!(Properties::read(&mut Reader::new(&bytes)).is_err());
    }
}

/// A small message does not keep a large frame in memory.
#[test]
fn small_parts_of_large_frames_are_copied() {
    let messages = [vec![0; 16], vec![0; 100_000]].map(|body| outgoing(&Message::new(body)));
    let operation = Operation::Send(Send { link: 1, messages: messages.to_vec() });
    let bytes = client_frame(Encoding::Binary, 0, &[Request { id: 1, operation }]);
    let (_, mut requests) = read_client(Encoding::Binary, &bytes);
    let Some(Request { operation: Operation::Send(send), .. }) = requests.pop() else { panic!() };
    let inside = |content: &SentMessage| {
        let SentMessage::Content(content) = content else { panic!() };
        bytes.as_ptr_range().contains(&content.as_ptr())
    };
    assert_eq!(send.messages.iter().map(inside).collect::<Vec<_>>(), [false, true]);
}

/// Durations beyond the longest one are unlimited in both forms.
#[test]
fn unlimited_durations_stay_unlimited() {
    let json = serde_json::to_string(&Span(TimeSpan::MAX)).unwrap();
    assert!(serde_json::from_str::<Span>(&json).unwrap().0.is_unlimited());
}

/// Every JSON block in the reference page is a frame that can be read.
#[test]
fn the_document_shows_frames_as_they_are() {
    let document = include_str!("../../websocket-protocol.md");
    let mut count = 0;
    for block in document.split("```json\n").skip(1) {
        let block = block.split("```").next().unwrap();
        let bytes = Bytes::from(block);
        if block.contains("\"requests\"") {
            let frame = ClientFrame::decode(Encoding::Json, &bytes).unwrap();
            assert!(frame.requests.iter().all(Result::is_ok), "{block}{:?}", frame.requests);
        } else {
            client_side::decode(Encoding::Json, &bytes).unwrap_or_else(|it| panic!("{block}{it}"));
        }
        count += 1;
    }
    assert!(count > 12, "{count}");
    for (code, name) in Operation::names().chain(Notice::names()) {
        assert!(document.contains(&format!("`{name}`")), "{name} is not described");
        assert!(document.contains(&code.to_string()), "{name}");
    }
}

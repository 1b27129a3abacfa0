//! Frames of both encodings: golden ones, every truncation, random mutations, random round trips.

mod forwarded;
mod overlays;
mod policies;
mod retry;
mod topics;

use bytes::Bytes;
use peeklock_core::command::{LockGrant, MessageFacts, MessageState};
use peeklock_core::ids::{LockToken, SequenceNumber};
use peeklock_core::message::{Content, Message, Overlay, Value};
use peeklock_core::path::SubQueue;
use peeklock_core::testing::Random;
use peeklock_core::time::{TimeSpan, Timestamp};

use super::message::{Carried, Delivered, Outgoing, Properties};
use super::text::{Span, Token};
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

fn outgoing(message: &Message) -> Outgoing {
    Outgoing::Content(message.encode().as_bytes().clone())
}

fn properties() -> Properties {
    Properties(vec![("cause".into(), "broken".into()), ("tries".into(), Value::I32(3))])
}

fn delivered() -> Delivered {
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
    };
    let carried = Carried::Stored {
        content: message().encode().as_bytes().clone(),
        overlays: vec![overlay.as_bytes().clone()],
    };
    Delivered { facts, carried }
}

fn error() -> WireError {
    WireError {
        condition: "MessageLockLost".into(),
        retryable: false,
        tracking_id: Guid(0x9b3f_1c52_0f6e_4cf1_9d0e_7f1d_0a8e_2b11),
        detail: "lock does not exist".into(),
        entity: "orders".into(),
        timestamp: at(1),
    }
}

fn queue_properties() -> QueueProperties {
    serde_json::from_str(
        r#"{"lockDuration":"PT30S","maxDeliveryCount":3,"status":"Active","forwardTo":null}"#,
    )
    .unwrap()
}

/// One request of each kind.
fn operations() -> Vec<Operation> {
    let token = Token(LockToken::new(SequenceNumber(7), 1));
    let path = || "orders".to_owned();
    vec![
        Operation::Hello(Hello {
            token: Some("secret".into()),
            client: Some("golden".into()),
            heartbeat_seconds: Some(10),
            grace_seconds: Some(30),
            resume: Some(Resume { resume_token: Guid(0xfeed), received: 17 }),
        }),
        Operation::Authenticate(Authenticate { token: "newer".into() }),
        Operation::Attach(Attach {
            link: 1,
            path: path(),
            role: Role::Receiver,
            mode: Mode::PeekLock,
            credit: Some(16),
        }),
        Operation::Detach(Detach { link: 1, release: true }),
        Operation::Credit(Credit { link: 1, up_to: 32 }),
        Operation::Drain(LinkOnly { link: 1 }),
        Operation::Send(Send { link: 2, messages: vec![outgoing(&message())] }),
        Operation::SendBatch(Send {
            link: 2,
            messages: vec![outgoing(&Message::new("a")), outgoing(&Message::new("b"))],
        }),
        Operation::CancelScheduled(Numbered { link: 2, sequence_numbers: vec![4, 5] }),
        Operation::Receive(Receive { link: 1, max_count: 10, wait_seconds: 1.5 }),
        Operation::Withdraw(Withdraw { request: 9 }),
        Operation::ReceiveDeferred(Numbered { link: 1, sequence_numbers: vec![6] }),
        Operation::Settle(Settle {
            link: 1,
            decision: Decision::DeadLetter,
            ranges: vec![Range(1, 64), Range(70, 70)],
            lock_tokens: vec![],
            properties: Some(properties()),
            reason: Some("poison".into()),
            description: Some("cannot be read".into()),
            delay_milliseconds: Delay::NONE,
        }),
        Operation::Renew(Renew { link: 1, ranges: vec![], lock_tokens: vec![token] }),
        Operation::Peek(Peek { link: 1, from: 0, max_count: 10 }),
        Operation::DeleteBatch(DeleteBatch {
            link: 1,
            max_count: Some(100),
            enqueued_before_utc: Some(at(0)),
        }),
        Operation::Purge(Purge { link: 1, enqueued_before_utc: None }),
        Operation::DeleteDeferred(DeleteDeferred { link: 1, sequence_number: 6 }),
        Operation::CreateQueue(CreateQueue { path: path(), properties: queue_properties() }),
        Operation::GetQueue(PathOnly { path: path() }),
        Operation::UpdateQueue(UpdateQueue {
            path: path(),
            properties: queue_properties(),
            version: Some(at(2)),
        }),
        Operation::DeleteQueue(PathOnly { path: path() }),
        Operation::ListQueues(ListQueues { skip: 0, top: Some(10) }),
        Operation::Heartbeat(Empty {}),
        Operation::AcceptSession(AcceptSession {
            link: 1,
            path: path(),
            session_id: Some("table-7".into()),
            mode: Mode::PeekLock,
            wait_seconds: Some(1.5),
            credit: Some(16),
        }),
        Operation::RenewSession(LinkOnly { link: 1 }),
        Operation::GetSessionState(LinkOnly { link: 1 }),
        Operation::SetSessionState(SetSessionState { link: 1, state: Some("step 3".into()) }),
        Operation::PeekSession(PeekSession {
            link: 1,
            session_id: "table-7".into(),
            from: 0,
            max_count: 10,
        }),
        Operation::ListSessions(ListSessions {
            path: path(),
            with_active_messages: true,
            state_set_after_utc: Some(at(0)),
            skip: 0,
            top: Some(10),
        }),
        Operation::DeleteUnlocked(DeleteUnlocked {
            path: path(),
            max_count: Some(100),
            enqueued_before_utc: None,
        }),
        Operation::Forward(Forward {
            link: 2,
            source: ForwardSource {
                broker: Guid(0xb0b),
                entity: 18,
                forwarding: Forwarding::DeadLetters,
            },
            messages: vec![ForwardedMessage {
                sequence_number: 42,
                enqueued_sequence_number: 7,
                enqueued_time_utc: at(0),
                hops: 2,
                dead_letter_source: Some("orders".into()),
                never_duplicate: true,
                copies_spent: 0,
                message: outgoing(&Message::new("a")),
            }],
        }),
        Operation::BeginTransaction(BeginTransaction { cross_entity: true }),
        Operation::SendIn(SendIn {
            transaction: 9,
            send: Send { link: 1, messages: vec![outgoing(&Message::new("a"))] },
        }),
        Operation::SettleIn(SettleIn {
            transaction: 9,
            settle: Settle {
                link: 2,
                decision: Decision::Complete,
                ranges: vec![Range(1, 2)],
                lock_tokens: vec![],
                properties: None,
                reason: None,
                description: None,
                delay_milliseconds: Delay::NONE,
            },
        }),
        Operation::RenewIn(RenewIn {
            transaction: 9,
            renew: Renew { link: 2, ranges: vec![], lock_tokens: vec![token] },
        }),
        Operation::Commit(CommitTransaction { transaction: 9, operations: Some(4) }),
        Operation::RollBack(TransactionOnly { transaction: 9 }),
        Operation::AttachVia(AttachVia { link: 3, path: path(), destination: "invoices".into() }),
    ]
}

fn queue_view() -> QueueView {
    serde_json::from_str(
        r#"{"path":"orders","lockDuration":"PT1M","maxSizeInMegabytes":1024,
        "requiresDuplicateDetection":false,"duplicateDetectionHistoryTimeWindow":"PT10M",
        "requiresSession":false,"defaultMessageTimeToLive":"P10675199DT2H48M5.4775807S",
        "deadLetteringOnMessageExpiration":false,"maxDeliveryCount":10,
        "enableBatchedOperations":true,"status":"Active","forwardTo":null,
        "forwardDeadLetteredMessagesTo":null,"autoDeleteOnIdle":"P10675199DT2H48M5.4775807S",
        "enablePartitioning":false,"enableExpress":false,"maxMessageSizeInKilobytes":1024,
        "userMetadata":null,"runtime":{"activeMessageCount":1,"deferredMessageCount":0,
        "scheduledMessageCount":0,"deadLetterMessageCount":0,"transferMessageCount":0,
        "transferDeadLetterMessageCount":0,"totalMessageCount":1,"sizeInBytes":99,"lastSequenceNumber":7,
        "createdAt":"2026-05-01T12:00:00Z","updatedAt":"2026-05-01T12:00:00Z",
        "accessedAt":"0001-01-01T00:00:00Z"}}"#,
    )
    .unwrap()
}

/// One notice of each kind.
fn notices() -> Vec<Notice> {
    vec![
        Notice::Done(Empty {}),
        Notice::Error(error()),
        Notice::Welcome(Box::new(Welcome {
            resumed: false,
            received: 0,
            resume_token: Some(Guid(0xfeed)),
            grace_seconds: 30,
            heartbeat_seconds: 20,
            now_utc: at(0),
            namespace: "peeklock".into(),
            server: "peeklock/0.1.0".into(),
            frame_bytes_max: 4_194_304,
            command_count_max: 4_096,
            link_count_max: 256,
            unsettled_count_max: 8_192,
        })),
        Notice::Accepted(Accepted {
            sequence_numbers: vec![Run(1_001, 2), Run(0, 1)],
            failed: vec![FailedSend { index: 2, error: error() }],
        }),
        Notice::Settled(Settled { failed: vec![FailedRange { from: 3, to: 5, error: error() }] }),
        Notice::Renewed(Renewed { locked_until_utc: Some(at(60)), failed: vec![] }),
        Notice::Received(Messages { messages: vec![delivered()] }),
        Notice::Drained(Drained { unused: 12 }),
        Notice::Deleted(Deleted { count: 4_000 }),
        Notice::Queue(Box::new(queue_view())),
        Notice::Queues(QueueList { queues: vec![queue_view()] }),
        Notice::SessionAccepted(SessionAccepted {
            session_id: "table-7".into(),
            locked_until_utc: at(60),
        }),
        Notice::SessionState(SessionState { state: Some(vec![0xff, 0x00].into()) }),
        Notice::Sessions(SessionList { session_ids: vec!["table-7".into(), "table-8".into()] }),
        Notice::Forwarded(Forwarded {
            tried: 3,
            failed: vec![FailedSend { index: 2, error: error() }],
        }),
        Notice::Transaction(TransactionOnly { transaction: 9 }),
        Notice::Committed(Committed {
            parts: vec![
                CommittedPart {
                    sequence_numbers: vec![Run(7, 1)],
                    pending_numbers: vec![],
                    locked_until_utc: None,
                },
                CommittedPart {
                    sequence_numbers: vec![],
                    pending_numbers: vec![],
                    locked_until_utc: Some(at(60)),
                },
                CommittedPart {
                    sequence_numbers: vec![],
                    pending_numbers: vec![Run(8, 2)],
                    locked_until_utc: None,
                },
            ],
        }),
        Notice::Deliveries(Deliveries { link: 1, first: 17, messages: vec![delivered()] }),
        Notice::Detached(Detached { link: 1, error: error() }),
        Notice::Heartbeat(Empty {}),
        Notice::Closing(Closing { seconds: 5 }),
    ]
}

fn client_frame(encoding: Encoding, seen: u64, requests: &[Request]) -> Bytes {
    of_client::encode(encoding, seen, requests).unwrap().into()
}

fn server_frame(encoding: Encoding, seen: u64, items: Vec<Item>) -> Bytes {
    ServerFrame { seen, items }.encode(encoding).unwrap().into()
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

/// A golden frame of each of these, as it would be written now; what one encoding says, the other says too.
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
        // What one encoding says, the other says too.
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
            let frame = of_client::decode(encoding, bytes).unwrap();
            assert_eq!(server_frame(Encoding::Json, 5, frame.items), json);
        }
        add(&json, &binary);
    }
    text
}

/// Of a frame that is cut anywhere nothing is carried out that was not whole.
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

/// Every golden frame, as it would be written now.
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

/// The frames are those that were released.
#[test]
fn frames_are_written_as_the_golden_ones() {
    for (now, golden) in golden_now().lines().zip(GOLDEN.lines()) {
        assert_eq!(now, golden);
    }
    assert_eq!(golden_now().lines().count(), GOLDEN.lines().count());
}

/// What one encoding says, the other says too.
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
            let from_json = of_client::decode(Encoding::Json, &json).unwrap();
            assert_eq!(server_frame(Encoding::Json, 5, from_json.items), json);
            let from_binary = of_client::decode(Encoding::Binary, &binary).unwrap();
            assert_eq!(server_frame(Encoding::Json, 5, from_binary.items.clone()), json);
            assert_eq!(server_frame(Encoding::Binary, 5, from_binary.items), binary);
        }
    }
}

/// Every kind has a golden frame.
#[test]
fn no_kind_is_forgotten() {
    let all = operations().into_iter().chain(topics::operations());
    let all = all.chain(policies::operations()).chain(retry::operations());
    let codes: Vec<u8> = all.map(|operation| operation.code()).collect();
    assert!(Operation::NAMES.iter().all(|(code, _)| codes.contains(code)));
    let all = notices().into_iter().chain(topics::notices()).chain(policies::notices());
    let codes: Vec<u8> = all.map(|notice| notice.code()).collect();
    assert!(Notice::NAMES.iter().all(|(code, _)| codes.contains(code)));
}

/// Of a frame that is cut anywhere nothing is carried out that was not whole.
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
                assert!(of_client::decode(encoding, &whole.slice(..length)).is_err());
            }
        }
    }
}

/// Bytes changed at random are read or refused, and what is read can be written again.
#[test]
fn mutations_do_no_harm() {
    let mut random = Random::new(1);
    for encoding in Encoding::ALL {
        let frames: Vec<Bytes> = (1..)
            .zip(operations().into_iter().chain(topics::operations()).chain(policies::operations()))
            .map(|(id, operation)| client_frame(encoding, 3, &[Request { id, operation }]))
            .chain(
                notices()
                    .into_iter()
                    .chain(topics::notices())
                    .chain(policies::notices())
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
                // Content is not judged before it is used.
                of_client::encode(encoding, frame.seen, &requests).ok();
            }
            of_client::decode(encoding, &bytes).ok();
        }
    }
}

/// A count or length that is only claimed allocates nothing.
#[test]
fn claimed_lengths_are_not_believed() {
    for claimed in ["00000000000000000fffffff", "0000000000000000ffffffff"] {
        assert!(ClientFrame::decode(Encoding::Binary, &bytes_of(claimed)).is_err());
    }
    // seen, 1 request, its length, code 9, id, link, a list of as many numbers as can be said
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

/// One request that cannot be read leaves its neighbours alone, and is answered under its id.
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

fn text(random: &mut Random) -> String {
    let letters = ["a", "Z", "ß", "\u{1f600}", "\"", "\\", "\n", "\u{0}", " ", "7"];
    (0..random.below(12)).map(|_| *random.pick(&letters).unwrap()).collect()
}

fn value(random: &mut Random) -> Value {
    let bits = random.bits();
    let signed = bits.cast_signed();
    match random.below(12) {
        0 => Value::Null,
        1 => Value::Bool(bits & 1 == 1),
        2 => Value::I64(signed),
        3 => Value::U64(bits),
        4 => Value::F64(f64::from_bits(bits)).tame(),
        5 => Value::String(text(random)),
        6 => Value::Uuid(u128::from(bits) << 60),
        7 => Value::Binary(Bytes::copy_from_slice(&bits.to_be_bytes())),
        8 => Value::Timestamp(signed % 1_000_000_000_000),
        9 => Value::TimeSpan(signed),
        10 => Value::Char('ß'),
        _ => Value::I8(-7),
    }
}

trait Tame {
    fn tame(self) -> Self;
}

impl Tame for Value {
    /// NaN has many forms, of which JSON keeps one.
    fn tame(self) -> Self {
        match self {
            Self::F64(value) if value.is_nan() => Self::F64(1.5),
            other => other,
        }
    }
}

fn random_message(random: &mut Random) -> Message {
    let mut message = Message::new(text(random));
    if random.one_in(3) {
        message.body = peeklock_core::message::Body::Data(Bytes::from(vec![0xff, 0, 0xfe]));
    }
    message.message_id = random.one_in(2).then(|| text(random).into());
    message.session_id = random.one_in(3).then(|| text(random));
    message.correlation_id = random.one_in(3).then(|| text(random).into());
    message.subject = random.one_in(3).then(|| text(random));
    message.reply_to = random.one_in(3).then(|| text(random));
    message.force_persistence = random.one_in(3);
    let ms = i64::try_from(random.between(1, 1 << 40)).unwrap();
    message.time_to_live = random.one_in(3).then(|| TimeSpan::from_ms(ms));
    message.scheduled_enqueue_time = random.one_in(3).then(|| at(ms % 1_000_000).0);
    for key in 0..random.below(4) {
        message.application_properties.push((format!("k{key}"), value(random)));
    }
    message
}

fn random_operation(random: &mut Random) -> Operation {
    let number = |random: &mut Random| u32::try_from(random.bits() >> 32).unwrap();
    let numbers = |random: &mut Random| (0..random.below(5)).map(|_| random.bits()).collect();
    let link = number(random);
    match random.below(8) {
        0 => Operation::Send(Send {
            link,
            messages: (0..random.below(4)).map(|_| outgoing(&random_message(random))).collect(),
        }),
        1 => Operation::Attach(Attach {
            link,
            path: text(random),
            role: *random.pick(&[Role::Sender, Role::Receiver]).unwrap(),
            mode: *random.pick(&[Mode::PeekLock, Mode::ReceiveAndDelete]).unwrap(),
            credit: random.one_in(2).then_some(link),
        }),
        2 => Operation::Credit(Credit { link, up_to: number(random) }),
        3 => Operation::CancelScheduled(Numbered { link, sequence_numbers: numbers(random) }),
        4 => Operation::Settle(Settle {
            link,
            decision: *random.pick(&[Decision::Complete, Decision::Abandon]).unwrap(),
            ranges: (0..random.below(4)).map(|_| Range(number(random), number(random))).collect(),
            lock_tokens: (0..random.below(4))
                .map(|_| Token(LockToken(u128::from(random.bits()) << 33)))
                .collect(),
            properties: random.one_in(2).then(|| Properties(vec![(text(random), value(random))])),
            reason: random.one_in(2).then(|| text(random)),
            description: random.one_in(2).then(|| text(random)),
            delay_milliseconds: Delay::NONE,
        }),
        5 => Operation::Receive(Receive {
            link,
            max_count: number(random),
            wait_seconds: f64::from(number(random)) / 7.0,
        }),
        6 => Operation::DeleteBatch(DeleteBatch {
            link,
            max_count: random.one_in(2).then_some(link),
            enqueued_before_utc: random.one_in(2).then(|| at(i64::from(link))),
        }),
        _ => Operation::Heartbeat(Empty {}),
    }
}

/// Whatever is written is read as the same, over both encodings in turn.
#[test]
fn random_requests_come_back_the_same_over_both_encodings() {
    for seed in 0..SEQUENCES {
        let mut random = Random::new(seed);
        let requests: Vec<Request> = (0..random.below(5))
            .map(|id| Request {
                id: u32::try_from(id).unwrap(),
                operation: random_operation(&mut random),
            })
            .collect();
        let seen = random.bits() >> 12;
        let binary = client_frame(Encoding::Binary, seen, &requests);
        let (seen_again, again) = read_client(Encoding::Binary, &binary);
        assert_eq!((seen_again, again.len()), (seen, requests.len()), "seed {seed}");
        let json = client_frame(Encoding::Json, seen, &again);
        let (_, from_json) = read_client(Encoding::Json, &json);
        assert_eq!(client_frame(Encoding::Json, seen, &from_json), json, "seed {seed}");
        let typed = client_frame(Encoding::Binary, seen, &from_json);
        let (_, from_typed) = read_client(Encoding::Binary, &typed);
        assert_eq!(client_frame(Encoding::Json, seen, &from_typed), json, "seed {seed}");
    }
}

/// Deliveries keep facts, content and overlays bit for bit in the binary form, and what they mean in
/// JSON.
#[test]
fn random_deliveries_come_back_the_same() {
    for seed in 0..SEQUENCES {
        let mut random = Random::new(seed);
        let mut delivery = delivered();
        let facts = &mut delivery.facts;
        facts.sequence = SequenceNumber(random.bits());
        facts.enqueued_sequence = SequenceNumber(random.below(1 << 40));
        facts.delivery_count = u32::try_from(random.below(1 << 20)).unwrap();
        facts.state = *random
            .pick(&[
                MessageState::Active,
                MessageState::Deferred,
                MessageState::Scheduled,
                MessageState::Delayed,
            ])
            .unwrap();
        facts.delayed_until = (facts.state == MessageState::Delayed).then_some(facts.enqueued_at);
        if random.one_in(2) {
            facts.lock = None;
        }
        if random.one_in(2) {
            facts.expires_at = None;
            facts.time_to_live = None;
        }
        let message = random_message(&mut random);
        let content = message.encode();
        delivery.carried =
            Carried::Stored { content: content.as_bytes().clone(), overlays: Vec::new() };
        let messages = vec![delivery.clone()];
        let notice = Notice::Deliveries(Deliveries { link: 1, first: 1, messages });
        for encoding in Encoding::ALL {
            let bytes = server_frame(encoding, 1, vec![Item::push(notice.clone())]);
            let mut frame = of_client::decode(encoding, &bytes).unwrap();
            let Some(Item { notice: Notice::Deliveries(read), .. }) = frame.items.pop() else {
                panic!("seed {seed}")
            };
            let read = &read.messages[0];
            assert_eq!(read.facts, delivery.facts, "seed {seed}");
            match &read.carried {
                Carried::Stored { content: bytes, .. } => assert_eq!(bytes, content.as_bytes()),
                Carried::Typed { message: read, .. } => {
                    let mut expected = Content::parse(content.as_bytes().clone())
                        .and_then(|content| content.decode())
                        .unwrap();
                    expected.time_to_live = delivery.facts.time_to_live;
                    assert_eq!(**read, expected, "seed {seed}");
                }
            }
        }
    }
}

/// Properties that are no application-properties section are refused as such.
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

/// A small message keeps no large frame in memory.
#[test]
fn small_parts_of_large_frames_are_copied() {
    let messages = [vec![0; 16], vec![0; 100_000]].map(|body| outgoing(&Message::new(body)));
    let operation = Operation::Send(Send { link: 1, messages: messages.to_vec() });
    let bytes = client_frame(Encoding::Binary, 0, &[Request { id: 1, operation }]);
    let (_, mut requests) = read_client(Encoding::Binary, &bytes);
    let Some(Request { operation: Operation::Send(send), .. }) = requests.pop() else { panic!() };
    let inside = |content: &Outgoing| {
        let Outgoing::Content(content) = content else { panic!() };
        bytes.as_ptr_range().contains(&content.as_ptr())
    };
    assert_eq!(send.messages.iter().map(inside).collect::<Vec<_>>(), [false, true]);
}

/// Durations beyond the longest are unlimited in both forms.
#[test]
fn unlimited_durations_stay_unlimited() {
    let json = serde_json::to_string(&Span(TimeSpan::MAX)).unwrap();
    assert!(serde_json::from_str::<Span>(&json).unwrap().0.is_unlimited());
}

/// Every JSON block of the protocol's document is a frame that can be read.
#[test]
fn the_document_shows_frames_as_they_are() {
    let document = include_str!("../../../../docs/websocket-protocol.md");
    let mut count = 0;
    for block in document.split("```json\n").skip(1) {
        let block = block.split("```").next().unwrap();
        let bytes = Bytes::from(block);
        if block.contains("\"requests\"") {
            let frame = ClientFrame::decode(Encoding::Json, &bytes).unwrap();
            assert!(frame.requests.iter().all(Result::is_ok), "{block}{:?}", frame.requests);
        } else {
            of_client::decode(Encoding::Json, &bytes).unwrap_or_else(|it| panic!("{block}{it}"));
        }
        count += 1;
    }
    assert!(count > 12, "{count}");
    for (code, name) in Operation::NAMES.iter().chain(Notice::NAMES) {
        assert!(document.contains(&format!("`{name}`")), "{name} is not described");
        assert!(document.contains(&code.to_string()), "{name}");
    }
}

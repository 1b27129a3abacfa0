//! Random requests and deliveries survive encoding and decoding.

use super::*;

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
    /// Replaces NaN, of whose many forms JSON keeps only one.
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

/// Encoded requests decode to the same requests, through both encodings in turn.
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

/// Deliveries keep facts, content and overlays bit for bit in the binary form, and their meaning in
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
            DeliveredContent::Stored { content: content.as_bytes().clone(), overlays: Vec::new() };
        let messages = vec![delivery.clone()];
        let notice = Notice::Deliveries(Deliveries { link: 1, first: 1, messages });
        for encoding in Encoding::ALL {
            let bytes = server_frame(encoding, 1, vec![Item::push(notice.clone())]);
            let mut frame = client_side::decode(encoding, &bytes).unwrap();
            let Some(Item { notice: Notice::Deliveries(read), .. }) = frame.items.pop() else {
                panic!("seed {seed}")
            };
            let read = &read.messages[0];
            assert_eq!(read.facts, delivery.facts, "seed {seed}");
            match &read.carried {
                DeliveredContent::Stored { content: bytes, .. } => {
                    assert_eq!(bytes, content.as_bytes())
                }
                DeliveredContent::Typed { message: read, .. } => {
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

//! Tests of performatives: golden bytes from the tables of the standard, all truncations, random
//! mutations and random round trips.

use peeklock_store_testing::Random;
use peeklock_words::amqp::write;

use super::*;
use crate::codec::value::{Map, Raw, Symbols};
use crate::state::{Declared, DeliveryState, Modified, Outcome, Received, Rejected, Transactional};
use crate::terminus::{Coordinator, NodeTarget, Source, Target, TerminusNode};
use crate::tests::{ascii, bytes, digits};

fn boxed(text: &str) -> Box<str> {
    text.into()
}

fn int(value: i32) -> Raw {
    Raw::encoded(|bytes| write::fixed(bytes, 0x71, value.to_be_bytes()))
}

fn state(outcome: Outcome) -> Option<DeliveryState> {
    Some(DeliveryState::Outcome(outcome))
}

fn disposition(state: Option<DeliveryState>) -> Performative {
    let role = Role::Receiver;
    Performative::Disposition(Disposition {
        role,
        first: 1,
        last: Some(2),
        settled: true,
        state,
        batchable: false,
    })
}

/// One of each performative, state and terminus with its bytes: descriptor, list, and the fields in
/// the order of the standard.
pub(crate) fn golden() -> Vec<(String, Performative)> {
    let error = AmqpError::new("a:b", "why");
    let error_bytes = format!("00531d c00c03 a303{} a103{} 40", ascii("a:b"), ascii("why"));
    vec![
        // Only container-id, as in the `open` of the smallest client.
        (
            format!("005310 c00401 a101{}", ascii("c")),
            Performative::Open(Box::new(Open { container_id: boxed("c"), ..Open::default() })),
        ),
        (
            // max-frame-size 65536, channel-max 1023, idle-time-out 60000; properties.
            format!(
                "005310 c0280a a101{} a101{} 7000010000 6003ff 700000ea60 40 40 40 40 c10e02 a306{} 7100000007",
                ascii("c"),
                ascii("h"),
                ascii("answer"),
            ),
            Performative::Open(Box::new(Open {
                container_id: boxed("c"),
                hostname: Some(boxed("h")),
                max_frame_size: Some(65_536),
                channel_max: Some(1_023),
                idle_time_out: Some(60_000),
                properties: Some(Map::of_symbols([("answer", int(7))])),
                ..Open::default()
            })),
        ),
        (
            "005311 c00b05 600001 43 5210 5220 52ff".into(),
            Performative::Begin(Box::new(Begin {
                remote_channel: Some(1),
                next_outgoing_id: 0,
                incoming_window: 16,
                outgoing_window: 32,
                handle_max: Some(255),
                ..Begin::default()
            })),
        ),
        (
            // A receiver in PeekLock mode: unsettled, second; a source with a session filter.
            format!(
                "005312 c03207 a101{} 43 41 5000 5001 005328 c01c08 a101{} 40 40 40 40 40 40 c11002 a308{} a103{} 005329 c00201 40",
                ascii("l"),
                ascii("q"),
                ascii("a:filter"),
                ascii("one"),
            ),
            Performative::Attach(Box::new(Attach {
                name: boxed("l"),
                role: Role::Receiver,
                snd_settle_mode: Some(SenderSettleMode::Unsettled),
                rcv_settle_mode: Some(ReceiverSettleMode::Second),
                source: Some(Source {
                    filter: Some(Map::of_symbols([(
                        "a:filter",
                        Raw::encoded(|bytes| write::text(bytes, "one")),
                    )])),
                    ..Source::at("q")
                }),
                target: Some(Target::Node(NodeTarget::default())),
                ..Attach::default()
            })),
        ),
        (
            // The answer to a sender: no initial-delivery-count, max-message-size 262144.
            format!(
                "005312 c01f0b a101{} 5203 42 40 40 40 005329 c00401 a101{} 40 40 40 800000000000040000",
                ascii("l"),
                ascii("q"),
            ),
            Performative::Attach(Box::new(Attach {
                name: boxed("l"),
                handle: 3,
                role: Role::Sender,
                target: Some(Target::at("q")),
                max_message_size: Some(262_144),
                ..Attach::default()
            })),
        ),
        (
            // A link to a coordinator of local transactions.
            format!(
                "005312 c03407 a101{} 43 42 40 40 40 005330 c02601 f0000000 20 00000001 b3 00000017 {}",
                ascii("l"),
                ascii("amqp:local-transactions"),
            ),
            Performative::Attach(Box::new(Attach {
                name: boxed("l"),
                target: Some(Target::Coordinator(Coordinator {
                    capabilities: Some(Symbols::new(&["amqp:local-transactions"])),
                })),
                ..Attach::default()
            })),
        ),
        (
            "005313 c00704 40 5201 43 5202".into(),
            Performative::Flow(Flow { incoming_window: 1, outgoing_window: 2, ..Flow::default() }),
        ),
        (
            "005313 c0110a 5205 5206 5207 5208 43 5209 520a 43 41 41".into(),
            Performative::Flow(Flow {
                next_incoming_id: Some(5),
                incoming_window: 6,
                next_outgoing_id: 7,
                outgoing_window: 8,
                handle: Some(0),
                delivery_count: Some(9),
                link_credit: Some(10),
                available: Some(0),
                drain: true,
                echo: true,
                properties: None,
            }),
        ),
        (
            "005314 c00b06 43 5204 a002abcd 43 42 41".into(),
            Performative::Transfer(Transfer {
                delivery_id: Some(4),
                delivery_tag: DeliveryTag::new(&[0xab, 0xcd]),
                message_format: Some(0),
                settled: Some(false),
                more: true,
                ..Transfer::default()
            }),
        ),
        (
            // In a transaction, in the format of batches, aborted.
            "005314 c01a0a 5201 43 a001ff 7080013700 40 40 40 005334 c00401 a00107 40 41".into(),
            Performative::Transfer(Transfer {
                handle: 1,
                delivery_id: Some(0),
                delivery_tag: DeliveryTag::new(&[0xff]),
                message_format: Some(0x8001_3700),
                state: Some(DeliveryState::Transactional(Box::new(Transactional {
                    txn_id: Bytes::from_static(&[7]),
                    outcome: None,
                }))),
                aborted: true,
                ..Transfer::default()
            }),
        ),
        ("005315 c00b05 41 5201 5202 41 00532445".into(), disposition(state(Outcome::Accepted))),
        ("005315 c00b05 41 5201 5202 41 00532645".into(), disposition(state(Outcome::Released))),
        (
            format!("005315 c01e05 41 5201 5202 41 005325 c01201 {error_bytes}"),
            disposition(state(Outcome::Rejected(Rejected { error: Some(error.clone()) }))),
        ),
        (
            "005315 c00b05 41 5201 5202 41 00532545".into(),
            disposition(state(Outcome::Rejected(Rejected { error: None }))),
        ),
        (
            "005315 c00f05 41 5201 5202 41 005327 c00302 41 42".into(),
            disposition(state(Outcome::Modified(Modified {
                delivery_failed: Some(true),
                undeliverable_here: Some(false),
                message_annotations: None,
            }))),
        ),
        (
            "005315 c01005 41 5201 5202 41 005333 c00401 a00107".into(),
            disposition(state(Outcome::Declared(Declared { txn_id: Bytes::from_static(&[7]) }))),
        ),
        (
            "005315 c01105 41 5201 5202 41 005323 c00502 5201 5302".into(),
            disposition(Some(DeliveryState::Received(Received {
                section_number: 1,
                section_offset: 2,
            }))),
        ),
        (
            "005315 c01405 41 5201 5202 41 005334 c00802 a00107 00532445".into(),
            disposition(Some(DeliveryState::Transactional(Box::new(Transactional {
                txn_id: Bytes::from_static(&[7]),
                outcome: Some(Outcome::Accepted),
            })))),
        ),
        (
            "005316 c00302 43 41".into(),
            Performative::Detach(Detach { handle: 0, closed: true, error: None }),
        ),
        (
            format!("005316 c01403 43 41 {error_bytes}"),
            Performative::Detach(Detach { handle: 0, closed: true, error: Some(error.clone()) }),
        ),
        ("005317 45".into(), Performative::End(End { error: None })),
        (
            format!("005317 c01201 {error_bytes}"),
            Performative::End(End { error: Some(error.clone()) }),
        ),
        ("005318 45".into(), Performative::Close(Close { error: None })),
        (format!("005318 c01201 {error_bytes}"), Performative::Close(Close { error: Some(error) })),
    ]
}

fn written(performative: &Performative) -> Vec<u8> {
    let mut bytes = Vec::new();
    performative.write(&mut bytes);
    bytes
}

/// Descriptors are small ulongs (AMQP-10) before lists of 8 bits or empty lists (AMQP-11). Errors
/// have all three fields (AMQP-16), each end of a link has an address, even if it is null
/// (AMQP-12), and capabilities are an array.
#[test]
fn performatives_have_the_bytes_of_the_standard() {
    for (golden, performative) in golden() {
        let golden = bytes(&golden);
        assert_eq!(digits(&written(&performative)), digits(&golden), "{performative:?}");
        assert_eq!(Performative::read(&golden), Ok((performative, Bytes::new())));
    }
}

#[test]
fn a_list_of_32_bits_and_other_descriptors_are_read_alike() {
    let close = Ok((Performative::Close(Close { error: None }), Bytes::new()));
    let by_name = format!("00 a30f{} 45", ascii("amqp:close:list"));
    for other in [
        "00800000000000000018 45",
        "005318 c00100",
        "005318 d00000000400000000",
        "005318 c0020140",
        &by_name,
    ] {
        assert_eq!(Performative::read(&bytes(other)), close, "{other}");
    }
}

#[test]
fn payload_after_a_transfer_is_not_copied() {
    let frame = bytes("005314 c00b06 43 5204 a002abcd 43 42 41 0102030405");
    let (_, payload) = Performative::read(&frame).unwrap();
    assert_eq!(payload, [1, 2, 3, 4, 5][..]);
    assert_eq!(payload.as_ptr(), frame[frame.len() - 5..].as_ptr());
    let error = Performative::read(&bytes("005318 45 00")).unwrap_err();
    assert_eq!(error.condition(), "amqp:decode-error");
}

#[test]
fn missing_and_mistyped_fields_are_refused_by_name() {
    let cases = [
        ("005310 45", "amqp:invalid-field", "field container-id of open is missing"),
        ("005316 c0020140", "amqp:invalid-field", "field handle of detach is missing"),
        ("005316 c0020141", "amqp:decode-error", "field handle of detach has the wrong type"),
        ("005317 c0030240 40", "amqp:decode-error", "end has 2 fields, at most 1 are defined"),
        ("005317 c0030140 40", "amqp:decode-error", "count and size of end disagree"),
        ("005319 45", "amqp:decode-error", "descriptor 0x19 is not a performative of a connection"),
        ("45", "amqp:decode-error", "value has no descriptor"),
        (
            "005312 c00804 a10161 43 41 5003",
            "amqp:invalid-field",
            "snd-settle-mode 3 is not defined; use 0, 1 or 2",
        ),
    ];
    for (frame, condition, description) in cases {
        let error = Performative::read(&bytes(frame)).unwrap_err();
        assert_eq!((error.condition(), error.description()), (condition, description), "{frame}");
    }
    let tag = format!("005314 c04603 43 43 a041{}", "00".repeat(65));
    let error = Performative::read(&bytes(&tag)).unwrap_err();
    assert_eq!(error.description(), "delivery-tag has 65 bytes, at most 64 are allowed");
}

/// Values nested deeper than the limit are refused before any part is made.
#[test]
fn values_that_nest_too_deeply_are_refused() {
    let mut nested = vec![0x45];
    for _ in 0..100 {
        let size = u32::try_from(nested.len() + 4).unwrap();
        let mut outer = vec![0xd0];
        outer.extend(size.to_be_bytes());
        outer.extend(1_u32.to_be_bytes());
        outer.extend(nested);
        nested = outer;
    }
    let source = Source {
        default_outcome: Some(Raw::encoded(|bytes| bytes.extend(nested))),
        ..Source::default()
    };
    let attach = Attach { name: boxed("l"), source: Some(source), ..Attach::default() };
    let error =
        Performative::read(&written(&Performative::Attach(Box::new(attach))).into()).unwrap_err();
    assert_eq!(error.condition(), "amqp:decode-error");
    assert!(error.description().contains("nested too deeply"), "{error}");
}

#[test]
fn no_truncation_is_read_as_something_else_or_panics() {
    for (golden, performative) in golden() {
        let golden = bytes(&golden);
        for end in 0..golden.len() {
            let error = Performative::read(&golden.slice(..end)).unwrap_err();
            assert_eq!(error.condition(), "amqp:decode-error", "{performative:?} to {end}");
        }
    }
}

#[test]
fn mutations_are_refused_or_survive_a_round_trip() {
    let golden = golden();
    let mut random = Random::new(15);
    for _ in 0..20_000 {
        let (text, _) = random.pick(&golden).unwrap();
        let mut mutated = crate::tests::hex(text);
        for _ in 0..random.between(1, 4) {
            let at = random.index(mutated.len());
            mutated[at] = u8::try_from(random.below(256)).unwrap();
        }
        if let Ok((performative, payload)) = Performative::read(&mutated.into()) {
            let again = Performative::read(&written(&performative).into());
            assert_eq!(again, Ok((performative, Bytes::new())), "payload {payload:?}");
        }
    }
}

mod random;

/// Every performative is read as it was written.
#[test]
fn random_performatives_are_read_as_they_were_written() {
    let mut random = Random::new(16);
    for _ in 0..5_000 {
        let performative = random::performative(&mut random);
        let bytes = written(&performative);
        assert_eq!(Performative::read(&bytes.into()), Ok((performative, Bytes::new())));
    }
}

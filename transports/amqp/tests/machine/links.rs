//! Tests of links: attach, accept, refuse, detach.

use std::num::NonZero;

use bytes::Bytes;
use peeklock_amqp::codec::value::{Map, Raw};
use peeklock_amqp::connection::{Config, Event};
use peeklock_amqp::error::{AmqpError, IS_TRANSIENT};
use peeklock_amqp::link::{Answer, Delivery};
use peeklock_amqp::performative::{
    Attach, Close, DeliveryTag, Detach, Disposition, End, Open, Performative, ReceiverSettleMode,
    SenderSettleMode, Transfer,
};
use peeklock_amqp::state::{DeliveryState, Outcome, Rejected};
use peeklock_amqp::terminus::{Coordinator, NodeTarget, Source, Target, TerminusNode};
use peeklock_words::amqp::Scalar;

use crate::client::{Client, credit, receiver, sender, tag, transfer};

fn attached(client: &mut Client, attach: &Attach) -> Attach {
    client.send(0, &Performative::Attach(Box::new(attach.clone())));
    let link = client.asked();
    assert!(client.connection.accept(link, Answer::echo(attach)));
    let heard = client.receive();
    let [(0, Performative::Attach(reply), _)] = &heard[..] else { panic!("{heard:?}") };
    (**reply).clone()
}

fn error() -> AmqpError {
    AmqpError::new("amqp:not-found", "The messaging entity 'orders' could not be found.")
}

/// The answer repeats name, handle and ends of the client, byte for byte. A sender gets a maximum
/// size above 0, a receiver none. A link on which the broker sends has an initial count (AMQP-34).
/// There is always a map of properties (AMQP-38).
#[test]
fn answer_echoes_the_attach() {
    let (mut client, _) = Client::in_session(Config::default());
    let filter =
        Raw::encoded(|bytes| bytes.extend([0, 0x80, 0, 0, 0, 0x13, 0x70, 0, 0, 0x0c, 0x40]));
    let source = Source {
        filter: Some(Map::of_symbols([("com.microsoft:session-filter", filter)])),
        ..Source::at("amqps://host:5671/Orders")
    };
    let asked = Attach { source: Some(source), ..receiver(3) };
    let reply = attached(&mut client, &asked);
    assert_eq!((&reply.name, reply.handle), (&asked.name, 3));
    assert_eq!(reply.role, asked.role.other());
    assert_eq!((&reply.source, &reply.target), (&asked.source, &asked.target));
    assert_eq!((reply.max_message_size, reply.initial_delivery_count), (None, Some(0)));
    assert_eq!(reply.properties, Some(Map::of_symbols([])));

    let asked = sender(4);
    let reply = attached(&mut client, &asked);
    assert_eq!((&reply.source, &reply.target), (&asked.source, &asked.target));
    assert_eq!(reply.max_message_size, Some(1 << 20));
    assert_eq!(reply.initial_delivery_count, None);
}

/// The answer repeats the settle modes, and omits missing ones (AMQP-35, AMQ-08).
#[test]
fn settle_modes_are_answered_as_asked() {
    use ReceiverSettleMode::{First, Second};
    use SenderSettleMode::{Mixed, Settled, Unsettled};
    let (mut client, _) = Client::in_session(Config::default());
    let mut handle = 0;
    for snd_settle_mode in [None, Some(Unsettled), Some(Settled), Some(Mixed)] {
        for rcv_settle_mode in [None, Some(First), Some(Second)] {
            let asked = Attach { snd_settle_mode, rcv_settle_mode, ..receiver(handle) };
            let reply = attached(&mut client, &asked);
            assert_eq!(reply.snd_settle_mode, snd_settle_mode);
            assert_eq!(reply.rcv_settle_mode, rcv_settle_mode);
            handle += 1;
        }
    }
}

/// A link to the coordinator is answered with a coordinator. An empty source becomes a source with
/// an address, even if it is null (AMQP-12).
#[test]
fn a_coordinator_is_echoed() {
    let (mut client, _) = Client::in_session(Config::default());
    let asked = Attach {
        source: Some(Source::default()),
        target: Some(Target::Coordinator(Coordinator::default())),
        ..sender(0)
    };
    let reply = attached(&mut client, &asked);
    assert_eq!((reply.source, reply.target), (asked.source, asked.target));
}

/// A refused link is attached without source and target. The permanent detach with the error
/// follows immediately. Further frames for the link are ignored until the client detaches it
/// (AMQP-36).
#[test]
fn a_link_is_refused_by_attach_without_ends_and_detach() {
    for (asked, client_sends) in [(sender(0), true), (receiver(0), false)] {
        let (mut client, _) = Client::in_session(Config::default());
        client.send(0, &Performative::Attach(Box::new(asked.clone())));
        let link = client.asked();
        client.connection.refuse(link, error());
        let heard = client.receive();
        let [(0, Performative::Attach(reply), _), (0, Performative::Detach(detach), _)] =
            &heard[..]
        else {
            panic!("{heard:?}")
        };
        assert_eq!((&reply.name, reply.handle), (&asked.name, 0));
        assert_eq!((&reply.source, &reply.target), (&None, &None));
        assert_eq!(reply.initial_delivery_count.is_some(), !client_sends);
        let told = Some(error().with_transience());
        assert_eq!(*detach, Detach { handle: 0, closed: true, error: told });
        let said = if client_sends {
            Performative::Transfer(transfer(0, 0))
        } else {
            Performative::Flow(credit(0, 0, 10))
        };
        client.send(0, &said);
        client.send(0, &Performative::Detach(Detach { handle: 0, closed: true, error: None }));
        assert_eq!(client.events(), []);
        assert_eq!(client.receive(), []);
        // The handle is free again.
        client.attach(asked);
    }
}

/// The answer to a detach is always permanent, even if the client's detach was not (AMQP-36). It is
/// sent when the broker is ready.
#[test]
fn a_detach_is_answered_for_good() {
    for closed in [true, false] {
        let (mut client, _) = Client::in_session(Config::default());
        let link = client.attach(receiver(0));
        client.send(0, &Performative::Detach(Detach { handle: 0, closed, error: None }));
        assert_eq!(client.events(), [Event::Detached { link, error: None }]);
        assert_eq!(client.receive(), []);
        client.connection.detach(link, None);
        let detach = Performative::Detach(Detach { handle: 0, closed: true, error: None });
        assert_eq!(client.receive(), [(0, detach, Bytes::new())]);
        client.attach(receiver(0));
    }
}

/// After the broker has detached a link, no frame has its handle, and its credit is gone (AMQP-19).
#[test]
fn nothing_is_sent_on_a_link_that_is_detached() {
    let (mut client, _) = Client::in_session(Config::default());
    let link = client.attach(receiver(0));
    client.send(0, &Performative::Flow(credit(0, 0, 10)));
    client.events();
    assert!(client.connection.can_send(link));
    client.connection.detach(link, Some(AmqpError::new("amqp:link:detach-forced", "deleted")));
    client.send(
        0,
        &Performative::Flow(peeklock_amqp::performative::Flow {
            echo: true,
            drain: true,
            ..credit(0, 0, 10)
        }),
    );
    assert_eq!(client.events(), []);
    let delivery = Delivery { tag: tag(b"t"), settled: false, payload: vec![] };
    assert_eq!(client.connection.send(link, delivery.clone()), Err(delivery));
    client.connection.drained(link);
    client.connection.detach(link, None);
    let heard = client.receive();
    assert!(matches!(&heard[..], [(0, Performative::Detach(_), _)]), "{heard:?}");
}

/// A client that detaches before the answer is not attached afterwards.
#[test]
fn a_client_that_does_not_wait_is_not_attached() {
    let (mut client, _) = Client::in_session(Config::default());
    client.send(0, &Performative::Attach(Box::new(receiver(0))));
    let link = client.asked();
    client.send(0, &Performative::Detach(Detach { handle: 0, closed: true, error: None }));
    assert_eq!(client.events(), [Event::Detached { link, error: None }]);
    assert!(!client.connection.accept(link, Answer::echo(&receiver(0))));
    client.connection.detach(link, None);
    let heard = client.receive();
    assert!(matches!(
        &heard[..],
        [(0, Performative::Attach(attach), _), (0, Performative::Detach(detach), _)]
            if attach.source.is_none() && detach.error.is_none()
    ));
    client.attach(receiver(0));
}

/// AMQP-39: a `detach` is answered without an error before the `end` or `close` that follows it,
/// for attached links and others. Later calls for the link send nothing.
#[test]
fn a_detach_is_answered_before_the_end_that_comes_with_it() {
    for is_attached in [true, false] {
        for is_close in [true, false] {
            let (mut client, _) = Client::in_session(Config::default());
            let link = if is_attached {
                client.attach(receiver(0))
            } else {
                client.send(0, &Performative::Attach(Box::new(receiver(0))));
                client.asked()
            };
            let detach = Performative::Detach(Detach { handle: 0, closed: true, error: None });
            client.send(0, &detach);
            let (said, heard) = if is_close {
                let close = Performative::Close(Close { error: None });
                (close.clone(), close)
            } else {
                let end = Performative::End(End { error: None });
                (end.clone(), end)
            };
            client.send(0, &said);
            client.events();
            client.connection.detach(link, None);
            let answers: Vec<_> = client.receive().into_iter().map(|(_, heard, _)| heard).collect();
            let skipped = usize::from(!is_attached);
            assert_eq!(answers[skipped..], [detach, heard], "{answers:?}");
        }
    }
}

/// ERR-02: each error reports whether a retry can succeed, according to the catalogue of errors.
#[test]
fn error_reports_whether_it_is_transient() {
    let (mut client, _) = Client::in_session(Config::default());
    let cases = [
        ("amqp:not-found", false),
        ("amqp:unauthorized-access", false),
        ("amqp:link:message-size-exceeded", false),
        ("com.microsoft:timeout", true),
        ("com.microsoft:server-busy", true),
        ("amqp:internal-error", true),
        ("amqp:link:detach-forced", true),
        ("amqp:link:stolen", false),
    ];
    for (handle, (condition, expected)) in (0..).zip(cases) {
        client.send(0, &Performative::Attach(Box::new(receiver(handle))));
        let link = client.asked();
        client.connection.refuse(link, AmqpError::new(condition, "why"));
        let heard = client.receive();
        let [_, (0, Performative::Detach(Detach { error: Some(error), .. }), _)] = &heard[..]
        else {
            panic!("{heard:?}")
        };
        let is_transient = error.info().unwrap().get(IS_TRANSIENT).unwrap();
        assert_eq!(is_transient.scalar(), Ok(Scalar::Bool(expected)), "{condition}");
    }
}

/// AMQP-41: a delivery-tag may be the text of a UUID.
#[test]
fn a_delivery_tag_may_be_long() {
    let (mut client, _) = Client::in_session(Config::default());
    client.attach(sender(0));
    for length in [36, 64] {
        let delivery_tag = DeliveryTag::new(&vec![b'a'; length]);
        assert!(delivery_tag.is_some(), "{length}");
        let said = Transfer { delivery_tag, ..transfer(0, 0) };
        client.say_with(0, &Performative::Transfer(said), b"x");
        assert!(matches!(client.event(), Some(Event::Received { .. })));
    }
    assert_eq!(DeliveryTag::new(&[0; 65]), None);
}

/// Another attach with the same name and direction takes the link from its older handle.
#[test]
fn second_attach_steals_link_from_older_handle() {
    let (mut client, _) = Client::in_session(Config::default());
    let older = client.attach(receiver(0));
    let same = Attach { handle: 1, ..receiver(0) };
    client.send(0, &Performative::Attach(Box::new(same)));
    let events = client.events();
    let [Event::Failed { link, error }, Event::Attached { .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((*link, error.condition()), (older, "amqp:link:stolen"));
    // A link of the other direction is a different link.
    client.send(
        0,
        &Performative::Attach(Box::new(Attach { name: "receiver-0".into(), ..sender(2) })),
    );
    assert!(matches!(&client.events()[..], [Event::Attached { .. }]));
}

/// AMQP-96: dynamic nodes and resumed deliveries are refused.
#[test]
fn unsupported_features_are_refused_as_not_implemented() {
    let (mut client, _) = Client::in_session(Config::default());
    let node = TerminusNode { dynamic: true, ..TerminusNode::default() };
    let dynamic = [
        Attach { source: Some(Source { node: node.clone(), ..Source::default() }), ..receiver(0) },
        Attach {
            target: Some(Target::Node(NodeTarget { node, ..NodeTarget::default() })),
            ..sender(1)
        },
    ];
    for attach in dynamic {
        client.send(0, &Performative::Attach(Box::new(attach)));
        assert_eq!(client.events(), []);
        let heard = client.receive();
        let [_, (0, Performative::Detach(Detach { error: Some(error), .. }), _)] = &heard[..]
        else {
            panic!("{heard:?}")
        };
        assert_eq!(error.condition(), "amqp:not-implemented");
    }
    client.attach(sender(2));
    let resumed = peeklock_amqp::performative::Transfer { resume: true, ..transfer(2, 0) };
    client.send(0, &Performative::Transfer(resumed));
    assert_eq!(client.failed(), "amqp:not-implemented");
}

/// Unsettled deliveries of an earlier attachment are ignored.
#[test]
fn an_unsettled_map_is_ignored() {
    let (mut client, _) = Client::in_session(Config::default());
    let asked =
        Attach { unsettled: Some(Map::of_symbols([])), incomplete_unsettled: true, ..receiver(0) };
    let reply = attached(&mut client, &asked);
    assert_eq!((reply.unsettled, reply.incomplete_unsettled), (None, false));
}

/// A link may have its own maximum message size.
#[test]
fn a_link_has_the_size_that_it_is_accepted_with() {
    let (mut client, _) = Client::in_session(Config::default());
    client.send(0, &Performative::Attach(Box::new(sender(0))));
    let link = client.asked();
    let answer = Answer { message_bytes_max: NonZero::new(256 << 10), ..Answer::echo(&sender(0)) };
    client.connection.accept(link, answer);
    let heard = client.receive();
    let [(0, Performative::Attach(reply), _)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(reply.max_message_size, Some(256 << 10));
}

/// A name above the limit is refused. The refusal repeats the name, and then it is forgotten
/// (AMQP-36).
#[test]
fn a_long_name_is_refused() {
    let (mut client, _) = Client::in_session(Config::default());
    let named = |handle, bytes| Attach { name: "n".repeat(bytes).into(), ..receiver(handle) };
    client.attach(named(0, 1 << 10));
    let long = named(1, (1 << 10) + 1);
    client.send(0, &Performative::Attach(Box::new(long.clone())));
    assert_eq!(client.events(), []);
    let heard = client.receive();
    let [(0, Performative::Attach(reply), _), (0, Performative::Detach(detach), _)] = &heard[..]
    else {
        panic!("{heard:?}")
    };
    assert_eq!((&reply.name, &reply.source), (&long.name, &None));
    assert_eq!(detach.error.as_ref().unwrap().condition(), "amqp:invalid-field");
    client.send(0, &Performative::Detach(Detach { handle: 1, closed: true, error: None }));
    client.attach(receiver(1));
}

/// The bytes that the links of a connection keep are limited: the whole `attach` until it is
/// answered, then its names. A refused link keeps nothing.
#[test]
fn kept_bytes_of_links_are_bounded() {
    let config = Config { link_count_max: 8, ..Config::default() };
    let (mut client, _) = Client::in_session(config.clone());
    let blob = Raw::encoded(|bytes| {
        bytes.extend([0xb0, 0, 0, 0x75, 0x30]);
        bytes.extend([0; 30_000]);
    });
    let large = |handle| Attach {
        properties: Some(Map::of_symbols([("blob", blob.clone())])),
        ..receiver(handle)
    };
    let send = |client: &mut Client, attach: Attach| {
        client.send(0, &Performative::Attach(Box::new(attach)));
        client.event()
    };
    let asked = [0, 1].map(|handle| match send(&mut client, large(handle)) {
        Some(Event::Attached { link, .. }) => link,
        other => panic!("{other:?}"),
    });
    for handle in 2..5 {
        assert_eq!(send(&mut client, large(handle)), None, "80 KiB are the most");
    }
    let heard = client.receive();
    let refusals = heard.iter().filter_map(|(_, heard, _)| match heard {
        Performative::Detach(detach) => detach.error.as_ref().map(AmqpError::condition),
        _ => None,
    });
    assert_eq!(refusals.collect::<Vec<_>>(), ["amqp:resource-limit-exceeded"; 3]);
    for link in asked {
        assert!(client.connection.accept(link, Answer::echo(&receiver(0))));
    }
    client.receive();
    client.attach(large(5));
    // The addresses of both ends are kept while the link exists.
    let (mut client, _) = Client::in_session(config);
    let addressed =
        |handle| Attach { target: Some(Target::at(&"a".repeat(30_000))), ..receiver(handle) };
    for handle in 0..2 {
        client.attach(addressed(handle));
    }
    assert_eq!(send(&mut client, addressed(2)), None);
    let detach = Performative::Detach(Detach { handle: 1, closed: true, error: None });
    client.receive();
    client.send(0, &detach);
    let Some(Event::Detached { link, .. }) = client.event() else { panic!() };
    client.connection.detach(link, None);
    client.receive();
    client.attach(addressed(1));
}

/// AMQP-12: the answer has both ends, even if the client has omitted its own, since some clients
/// take a missing end for a refusal.
#[test]
fn both_ends_are_in_the_answer() {
    let (mut client, _) = Client::in_session(Config::default());
    let reply = attached(&mut client, &Attach { source: None, ..sender(0) });
    assert_eq!((reply.source, reply.target), (Some(Source::default()), sender(0).target));
    let reply = attached(&mut client, &Attach { target: None, ..receiver(1) });
    let target = Some(Target::Node(NodeTarget::default()));
    assert_eq!((reply.source, reply.target), (receiver(1).source, target));
}

/// AMQP-36, AMQP-90: error descriptions are cut at a character boundary if the client's frames are
/// too small. The condition and the connection stay.
#[test]
fn long_descriptions_are_cut_for_small_frames() {
    let open = Open { container_id: "c".into(), max_frame_size: Some(512), ..Open::default() };
    let mut client = Client::open_with(Config::default(), open);
    client.begin(0, 100);
    let long = || AmqpError::new("amqp:not-found", "\u{fc}".repeat(400));
    let link = client.attach(sender(1));
    client.send(0, &Performative::Attach(Box::new(receiver(0))));
    let refused = client.asked();
    client.connection.refuse(refused, long());
    client.say_with(0, &Performative::Transfer(transfer(1, 0)), b"x");
    let Some(Event::Received { part, .. }) = client.event() else { panic!() };
    client.connection.dispose_received(part.delivery, DeliveryState::rejected(long()));
    client.connection.detach(link, Some(long()));
    let mut cut = Vec::new();
    for (_, performative, _) in client.receive() {
        match performative {
            Performative::Detach(Detach { error, .. }) => cut.extend(error),
            Performative::Disposition(Disposition { state, .. }) => {
                let Some(DeliveryState::Outcome(Outcome::Rejected(Rejected { error }))) = state
                else {
                    panic!("{state:?}")
                };
                cut.extend(error);
            }
            Performative::Close(close) => panic!("{close:?}"),
            _ => {}
        }
    }
    assert_eq!(cut.len(), 3);
    for error in cut {
        assert_eq!(error.condition(), "amqp:not-found");
        let bytes = error.description().len();
        assert!((400..512).contains(&bytes), "{bytes} bytes are left");
    }
}

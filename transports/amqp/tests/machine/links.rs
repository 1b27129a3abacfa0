//! Links: attach, accept, refuse, detach.

use std::num::NonZero;

use bytes::Bytes;
use peeklock_amqp::codec::value::{Map, Raw};
use peeklock_amqp::connection::{Config, Event};
use peeklock_amqp::error::AmqpError;
use peeklock_amqp::link::{Answer, Delivery};
use peeklock_amqp::performative::{
    Attach, Detach, Performative, ReceiverSettleMode, SenderSettleMode,
};
use peeklock_amqp::terminus::{Coordinator, NodeTarget, Source, Target};

use crate::client::{Client, credit, receiver, sender, tag, transfer};

fn attached(client: &mut Client, attach: &Attach) -> Attach {
    client.say(0, &Performative::Attach(Box::new(attach.clone())));
    let link = client.asked();
    assert!(client.connection.accept(link, Answer::echo(attach)));
    let heard = client.hear();
    let [(0, Performative::Attach(reply), _)] = &heard[..] else { panic!("{heard:?}") };
    (**reply).clone()
}

fn error() -> AmqpError {
    AmqpError::new("amqp:not-found", "The messaging entity 'orders' could not be found.")
}

/// Name, handle and ends are those of the client, byte for byte; a sender is told of a size that is not
/// zero, a receiver of none; where the broker sends, its count begins somewhere (AMQP-34). There is
/// always a map of properties (AMQP-38).
#[test]
fn the_answer_echoes_what_the_client_wrote() {
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

/// Settle modes are answered as they were asked for, and left out where they were (AMQP-35, AMQ-08).
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

/// A link to the coordinator is answered with a coordinator, and an empty source with one that
/// has an address, if only null (AMQP-12).
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

/// A refused link is attached without the end that the broker would have, then detached for good with
/// the error, and nothing stands between; what comes for it until the client detaches is not looked at
/// (AMQP-36).
#[test]
fn a_link_is_refused_by_attach_without_end_and_detach() {
    for (asked, client_sends) in [(sender(0), true), (receiver(0), false)] {
        let (mut client, _) = Client::in_session(Config::default());
        client.say(0, &Performative::Attach(Box::new(asked.clone())));
        let link = client.asked();
        client.connection.refuse(link, error());
        let heard = client.hear();
        let [(0, Performative::Attach(reply), _), (0, Performative::Detach(detach), _)] =
            &heard[..]
        else {
            panic!("{heard:?}")
        };
        assert_eq!((&reply.name, reply.handle), (&asked.name, 0));
        assert_eq!(reply.target.is_none(), client_sends);
        assert_eq!(reply.source.is_none(), !client_sends);
        assert_eq!(reply.initial_delivery_count.is_some(), !client_sends);
        assert_eq!(*detach, Detach { handle: 0, closed: true, error: Some(error()) });
        let said = if client_sends {
            Performative::Transfer(transfer(0, 0))
        } else {
            Performative::Flow(credit(0, 0, 10))
        };
        client.say(0, &said);
        client.say(0, &Performative::Detach(Detach { handle: 0, closed: true, error: None }));
        assert_eq!(client.events(), []);
        assert_eq!(client.hear(), []);
        // The handle is free again.
        client.attach(asked);
    }
}

/// A detach is answered by one that is for good, also when the client's was not (AMQP-36), and
/// only when the broker is ready for that.
#[test]
fn a_detach_is_answered_for_good() {
    for closed in [true, false] {
        let (mut client, _) = Client::in_session(Config::default());
        let link = client.attach(receiver(0));
        client.say(0, &Performative::Detach(Detach { handle: 0, closed, error: None }));
        assert_eq!(client.events(), [Event::Detached { link, error: None }]);
        assert_eq!(client.hear(), []);
        client.connection.detach(link, None);
        let detach = Performative::Detach(Detach { handle: 0, closed: true, error: None });
        assert_eq!(client.hear(), [(0, detach, Bytes::new())]);
        client.attach(receiver(0));
    }
}

/// Nothing names a handle after it was detached from here, and its credit is gone (AMQP-19).
#[test]
fn nothing_is_sent_on_a_link_that_is_detached() {
    let (mut client, _) = Client::in_session(Config::default());
    let link = client.attach(receiver(0));
    client.say(0, &Performative::Flow(credit(0, 0, 10)));
    client.events();
    assert!(client.connection.can_send(link));
    client.connection.detach(link, Some(AmqpError::new("amqp:link:detach-forced", "deleted")));
    client.say(
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
    let heard = client.hear();
    assert!(matches!(&heard[..], [(0, Performative::Detach(_), _)]), "{heard:?}");
}

/// Who detaches before the answer is not attached afterwards.
#[test]
fn a_client_that_does_not_wait_is_not_attached() {
    let (mut client, _) = Client::in_session(Config::default());
    client.say(0, &Performative::Attach(Box::new(receiver(0))));
    let link = client.asked();
    client.say(0, &Performative::Detach(Detach { handle: 0, closed: true, error: None }));
    assert_eq!(client.events(), [Event::Detached { link, error: None }]);
    assert!(!client.connection.accept(link, Answer::echo(&receiver(0))));
    client.connection.detach(link, None);
    let heard = client.hear();
    assert!(matches!(
        &heard[..],
        [(0, Performative::Attach(attach), _), (0, Performative::Detach(_), _)] if attach.source.is_none()
    ));
    client.attach(receiver(0));
}

/// The same name in the same direction again takes the link from its older handle.
#[test]
fn a_link_that_is_attached_anew_is_stolen_from_its_older_handle() {
    let (mut client, _) = Client::in_session(Config::default());
    let older = client.attach(receiver(0));
    let same = Attach { handle: 1, ..receiver(0) };
    client.say(0, &Performative::Attach(Box::new(same)));
    let events = client.events();
    let [Event::Failed { link, error }, Event::Attached { .. }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((*link, error.condition()), (older, "amqp:link:stolen"));
    // One of the other direction is another one.
    client
        .say(0, &Performative::Attach(Box::new(Attach { name: "receiver-0".into(), ..sender(2) })));
    assert!(matches!(&client.events()[..], [Event::Attached { .. }]));
}

/// Dynamic nodes are refused, and deliveries are not resumed.
#[test]
fn what_is_not_offered_is_refused_as_not_implemented() {
    let (mut client, _) = Client::in_session(Config::default());
    let dynamic = [
        Attach { source: Some(Source { dynamic: true, ..Source::default() }), ..receiver(0) },
        Attach {
            target: Some(Target::Node(NodeTarget { dynamic: true, ..NodeTarget::default() })),
            ..sender(1)
        },
    ];
    for attach in dynamic {
        client.say(0, &Performative::Attach(Box::new(attach)));
        assert_eq!(client.events(), []);
        let heard = client.hear();
        let [_, (0, Performative::Detach(Detach { error: Some(error), .. }), _)] = &heard[..]
        else {
            panic!("{heard:?}")
        };
        assert_eq!(error.condition(), "amqp:not-implemented");
    }
    client.attach(sender(2));
    let resumed = peeklock_amqp::performative::Transfer { resume: true, ..transfer(2, 0) };
    client.say(0, &Performative::Transfer(resumed));
    assert_eq!(client.failed(), "amqp:not-implemented");
}

/// What an earlier life of a link left unsettled is ignored.
#[test]
fn an_unsettled_map_is_ignored() {
    let (mut client, _) = Client::in_session(Config::default());
    let asked =
        Attach { unsettled: Some(Map::of_symbols([])), incomplete_unsettled: true, ..receiver(0) };
    let reply = attached(&mut client, &asked);
    assert_eq!((reply.unsettled, reply.incomplete_unsettled), (None, false));
}

/// The size of a link is its own where it has one.
#[test]
fn a_link_has_the_size_that_it_is_accepted_with() {
    let (mut client, _) = Client::in_session(Config::default());
    client.say(0, &Performative::Attach(Box::new(sender(0))));
    let link = client.asked();
    let answer = Answer { message_bytes_max: NonZero::new(256 << 10), ..Answer::echo(&sender(0)) };
    client.connection.accept(link, answer);
    let heard = client.hear();
    let [(0, Performative::Attach(reply), _)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(reply.max_message_size, Some(256 << 10));
}

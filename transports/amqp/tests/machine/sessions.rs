//! Tests of sessions: begin and end, and windows in both directions.

use bytes::Bytes;
use peeklock_amqp::connection::{Config, Event};
use peeklock_amqp::error::AmqpError;
use peeklock_amqp::link::{Answer, Delivery};
use peeklock_amqp::performative::{Begin, End, Flow, Performative, Transfer};
use peeklock_amqp::state::DeliveryState;

use crate::client::{Client, begin, credit, receiver, sender, session_flow, tag, transfer};

/// `begin` is answered with its channel, a handle-max of at least 255 and a window of several
/// thousand. A connection may have many sessions (AMQP-30).
#[test]
fn begin_is_answered_with_windows_and_handles() {
    let mut client = Client::open(Config::default());
    for channel in [0, 1, 1_023] {
        client.send(channel, &begin(10));
        assert!(matches!(client.event(), Some(Event::Begun(_))));
        let heard = client.receive();
        let [(heard_on, Performative::Begin(begin), _)] = &heard[..] else { panic!("{heard:?}") };
        assert_eq!((*heard_on, begin.remote_channel), (channel, Some(channel)));
        assert!(begin.handle_max.unwrap() >= 255);
        assert!(begin.incoming_window >= 2_000 && begin.outgoing_window > 0);
    }
}

/// `end` is answered with `end`, also if links remain (AMQP-07). The channel is free again, and a
/// new session there has another identifier.
#[test]
fn end_is_answered_by_end_and_frees_all() {
    let (mut client, first) = Client::in_session(Config::default());
    let link = client.attach(receiver(0));
    client.send(0, &Performative::Flow(credit(0, 0, 5)));
    client.events();
    client.send(0, &Performative::End(End { error: None }));
    assert_eq!(client.events(), [Event::Ended { session: first, unsettled: vec![], error: None }]);
    assert_eq!(client.receive(), [(0, Performative::End(End { error: None }), Bytes::new())]);
    let second = client.begin(0, 10);
    assert_ne!(first, second);
    assert!(!client.connection.can_send(link));
    client.connection.end(first, None);
    client.connection.detach(link, None);
    assert_eq!(client.receive(), []);
}

/// AMQP-69, DESIGN D6: the end of a session reports its own unsettled deliveries to the client
/// only, so its cost does not depend on other sessions.
#[test]
fn end_reports_unsettled_deliveries_of_its_session() {
    let mut client = Client::open(Config::default());
    let sessions = [0, 1, 2].map(|channel| client.begin(channel, 100));
    for channel in [0, 1] {
        client.send(channel, &Performative::Attach(Box::new(receiver(0))));
        let link = client.asked();
        assert!(client.connection.accept(link, Answer::echo(&receiver(0))));
        client.send(channel, &Performative::Flow(credit(0, 0, 5)));
        client.events();
        for number in 0..3 {
            let tag = tag(&[u8::try_from(channel).unwrap(), number]);
            let delivery = Delivery { tag, settled: number == 0, payload: vec![] };
            client.connection.send(link, delivery).unwrap();
        }
    }
    let ended = |session, unsettled| [Event::Ended { session, unsettled, error: None }];
    let end = Performative::End(End { error: None });
    client.send(2, &end);
    assert_eq!(client.events(), ended(sessions[2], vec![]));
    client.send(0, &end);
    assert_eq!(client.events(), ended(sessions[0], vec![tag(&[0, 1]), tag(&[0, 2])]));
    assert_eq!(client.connection.unsettled_count(sessions[1]), 2);
    client.say_with(1, &Performative::Transfer(transfer(9, 0)), b"x");
    let events = client.events();
    let [Event::Ended { session, unsettled, error: Some(_) }] = &events[..] else {
        panic!("{events:?}")
    };
    assert_eq!((*session, &unsettled[..]), (sessions[1], &[tag(&[1, 1]), tag(&[1, 2])][..]));
}

/// Frames for a session that the broker has ended are ignored until the client ends it too.
#[test]
fn session_ended_by_broker_ignores_frames() {
    let (mut client, session) = Client::in_session(Config::default());
    client.attach(sender(0));
    let error = AmqpError::new("amqp:internal-error", "broken");
    client.connection.end(session, Some(error.clone()));
    let end = Performative::End(End { error: Some(error.with_transience()) });
    assert_eq!(client.receive(), [(0, end, Bytes::new())]);
    client.say_with(0, &Performative::Transfer(transfer(0, 0)), b"x");
    client.say_with(0, &Performative::Transfer(transfer(9, 0)), b"x");
    client.send(0, &Performative::Attach(Box::new(receiver(0))));
    client.send(0, &Performative::End(End { error: None }));
    assert_eq!(client.events(), []);
    assert_eq!(client.receive(), []);
    client.begin(0, 10);
}

/// The session's window is never exceeded: a message stops in the middle of its frames (AMQP-30).
#[test]
fn the_clients_window_is_honoured() {
    let mut client = Client::open_with(
        Config::default(),
        peeklock_amqp::performative::Open {
            container_id: "c".into(),
            max_frame_size: Some(512),
            ..Default::default()
        },
    );
    client.begin(0, 2);
    let link = client.attach(receiver(0));
    client.send(0, &Performative::Flow(Flow { incoming_window: 2, ..credit(0, 0, 5) }));
    client.events();
    let payload = vec![Bytes::from(vec![7; 2_000])];
    client.connection.send(link, Delivery { tag: tag(b"t"), settled: false, payload }).unwrap();
    assert_eq!(client.receive().len(), 2);
    assert!(!client.connection.can_send(link));
    assert_eq!(client.receive(), []);
    client.send(0, &Performative::Flow(session_flow(2, 1)));
    client.events();
    assert_eq!(client.receive().len(), 1);
    client.send(0, &Performative::Flow(session_flow(3, 100)));
    client.events();
    let rest = client.receive();
    let [.., (_, Performative::Transfer(last), _)] = &rest[..] else { panic!("{rest:?}") };
    assert!(!last.more);
    assert!(client.connection.can_send(link));
}

/// No message is begun while the session's window is closed, for any credit of its links (AMQP-30).
#[test]
fn nothing_is_begun_without_room_in_the_session() {
    let (mut client, _) = Client::in_session(Config::default());
    let link = client.attach(receiver(0));
    client.send(0, &Performative::Flow(Flow { incoming_window: 0, ..credit(0, 0, 5) }));
    client.events();
    let delivery = Delivery { tag: tag(b"t"), settled: false, payload: vec![] };
    assert_eq!(client.connection.send(link, delivery.clone()), Err(delivery.clone()));
    assert_eq!(client.receive(), []);
    client.send(0, &Performative::Flow(session_flow(0, 1)));
    client.events();
    assert!(client.connection.send(link, delivery.clone()).is_ok());
    assert!(client.connection.send(link, delivery).is_err());
}

/// Counters wrap at 2³², and windows may be as wide (AMQP-09).
#[test]
fn counters_begin_anywhere_and_go_round() {
    let mut client = Client::open(Config { incoming_window: 8, ..Config::default() });
    client.send(
        0,
        &Performative::Begin(Box::new(Begin {
            next_outgoing_id: u32::MAX - 2,
            incoming_window: u32::MAX,
            outgoing_window: u32::MAX,
            ..Begin::default()
        })),
    );
    client.events();
    client.receive();
    let link = client.attach(sender(0));
    client.connection.grant(link, 100);
    client.receive();
    for count in 0..20_u32 {
        let id = (u32::MAX - 2).wrapping_add(count);
        client.say_with(0, &Performative::Transfer(transfer(0, id)), b"x");
        let [Event::Received { part, .. }] = &client.events()[..] else { panic!("{count}") };
        client.connection.dispose_received(part.delivery, DeliveryState::accepted());
        for heard in client.receive() {
            if let (_, Performative::Flow(flow), _) = heard {
                assert_eq!(flow.next_incoming_id, Some(id.wrapping_add(1)));
                assert_eq!(flow.incoming_window, 8);
            }
        }
    }
    let receiving = client.attach(receiver(1));
    let wide = Flow { incoming_window: u32::MAX, ..credit(1, 0, 1) };
    client.send(0, &Performative::Flow(wide));
    client.events();
    assert!(client.connection.can_send(receiving));
}

/// A new window is announced when half of the last one is used, but not while too many deliveries
/// of the session are unanswered.
#[test]
fn the_window_stays_shut_while_too_many_await_an_answer() {
    let config = Config { incoming_window: 8, unanswered_max: 6, ..Config::default() };
    let (mut client, _) = Client::in_session(config);
    let link = client.attach(sender(0));
    client.connection.grant(link, 100);
    client.receive();
    let mut deliveries = Vec::new();
    for id in 0..8 {
        client.say_with(0, &Performative::Transfer(transfer(0, id)), b"x");
        let [Event::Received { part, .. }] = &client.events()[..] else { panic!("{id}") };
        deliveries.push(part.delivery);
        let heard = client.receive();
        // A window up to the twelfth transfer was announced after the fourth.
        assert_eq!(heard.len(), usize::from(id == 3), "{id}: {heard:?}");
    }
    let mut deliveries = deliveries.into_iter();
    for delivery in deliveries.by_ref().take(2) {
        client.connection.dispose_received(delivery, DeliveryState::accepted());
    }
    let heard = client.receive();
    assert!(matches!(&heard[..], [(_, Performative::Disposition(_), _)]), "{heard:?}");
    client.connection.dispose_received(deliveries.next().unwrap(), DeliveryState::accepted());
    let flow = client.receive().into_iter().find_map(|(_, heard, _)| match heard {
        Performative::Flow(flow) => Some(flow),
        _ => None,
    });
    let flow = flow.expect("the window opens");
    assert_eq!((flow.next_incoming_id, flow.incoming_window), (Some(8), 8));
}

/// A client that exceeds the window ends its session.
#[test]
fn more_transfers_than_the_window_end_the_session() {
    let config = Config { incoming_window: 4, unanswered_max: 1, ..Config::default() };
    let (mut client, _) = Client::in_session(config);
    client.attach(sender(0));
    for id in 0..4 {
        client.say_with(0, &Performative::Transfer(transfer(0, id)), b"x");
    }
    assert_eq!(client.events().len(), 4);
    client.say_with(0, &Performative::Transfer(transfer(0, 4)), b"x");
    assert_eq!(client.ended(), "amqp:session:window-violation");
}

/// A client that counts deliveries may send messages of many frames, with any ids (AMQP-31).
#[test]
fn a_client_may_count_deliveries_instead_of_frames() {
    let config = Config { incoming_window: 4, unanswered_max: 1, ..Config::default() };
    let (mut client, _) = Client::in_session(config);
    client.attach(sender(0));
    for id in 0..3 {
        for frame in 0..10 {
            let transfer = Transfer { more: frame < 9, ..transfer(0, id) };
            client.say_with(0, &Performative::Transfer(transfer), b"x");
        }
    }
    assert_eq!(client.events().len(), 30);
}

/// A client gets the state of a session on request (AMQP-19).
#[test]
fn an_echo_of_a_session_is_answered() {
    let (mut client, _) = Client::in_session(Config::default());
    client.send(0, &Performative::Flow(Flow { echo: true, ..session_flow(0, 100) }));
    assert_eq!(client.events(), []);
    let heard = client.receive();
    let [(0, Performative::Flow(flow), _)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!((flow.next_incoming_id, flow.handle), (Some(0), None));
}

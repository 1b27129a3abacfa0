//! Tests of receiving clients: messages to them, and their dispositions.

use bytes::Bytes;
use peeklock_amqp::connection::{Config, Event, LinkId, SentId};
use peeklock_amqp::link::Delivery;
use peeklock_amqp::performative::{Detach, Disposition, Flow, Open, Performative, Role, Transfer};
use peeklock_amqp::state::{DeliveryState, Modified, Outcome, Received};

use crate::client::{Client, credit, receiver, session_flow, tag};

fn receiving(config: Config, frame_bytes_max: Option<u32>) -> (Client, LinkId) {
    let open =
        Open { container_id: "c".into(), max_frame_size: frame_bytes_max, ..Open::default() };
    let mut client = Client::open_with(config, open);
    client.begin(0, 1_000);
    let link = client.attach(receiver(0));
    client.send(0, &Performative::Flow(credit(0, 0, 100)));
    client.events();
    (client, link)
}

fn delivery(payload: Vec<Bytes>) -> Delivery {
    Delivery { tag: tag(&[7; 16]), settled: false, payload }
}

fn sent(client: &mut Client, link: LinkId, count: usize) -> Vec<SentId> {
    let sent = (0..count).map(|_| client.connection.send(link, delivery(vec![])).unwrap());
    sent.collect()
}

fn says(
    first: u32,
    last: Option<u32>,
    settled: bool,
    state: Option<DeliveryState>,
) -> Performative {
    let role = Role::Receiver;
    Performative::Disposition(Disposition { role, first, last, settled, state, batchable: false })
}

fn transfers(client: &mut Client) -> Vec<(Transfer, Bytes)> {
    let heard = client.receive().into_iter();
    heard
        .map(|(_, performative, payload)| match performative {
            Performative::Transfer(transfer) => (transfer, payload),
            other => panic!("{other:?}"),
        })
        .collect()
}

fn dispositions(client: &mut Client) -> Vec<(u32, Option<u32>, DeliveryState)> {
    let heard = client.receive().into_iter();
    heard
        .map(|(_, performative, _)| match performative {
            Performative::Disposition(Disposition {
                role, first, last, settled, state, ..
            }) => {
                assert_eq!((role, settled), (Role::Sender, true));
                (first, last, state.unwrap())
            }
            other => panic!("{other:?}"),
        })
        .collect()
}

fn released() -> DeliveryState {
    DeliveryState::Outcome(Outcome::Released)
}

/// The first transfer of a delivery has id, tag and format (AMQP-19). It is unsettled with a lock,
/// settled without one.
#[test]
fn first_frame_has_id_tag_and_format() {
    let (mut client, link) = receiving(Config::default(), None);
    for (id, settled) in [(0, false), (1, true)] {
        let payload = vec![Bytes::from_static(b"head"), Bytes::from_static(b"tail")];
        client.connection.send(link, Delivery { settled, ..delivery(payload) }).unwrap();
        let expected = Transfer {
            handle: 0,
            delivery_id: Some(id),
            delivery_tag: Some(tag(&[7; 16])),
            message_format: Some(0),
            settled: Some(settled),
            ..Transfer::default()
        };
        assert_eq!(transfers(&mut client), [(expected, Bytes::from_static(b"headtail"))]);
    }
}

/// No frame exceeds the client's maximum (AMQP-05). A large message has many frames, arrives
/// completely, and never has too many bytes waiting to be written.
#[test]
fn a_large_message_is_cut_into_frames_as_it_is_written() {
    let config = Config { output_bytes_max: 16 << 10, ..Config::default() };
    let (mut client, link) = receiving(config, Some(4_096));
    let body: Bytes = (0..1_000_000_u32).map(|number| (number % 251) as u8).collect();
    let payload = vec![Bytes::from_static(b"head"), body.clone()];
    client.connection.send(link, delivery(payload)).unwrap();
    let mut arrived = Vec::new();
    let mut next_incoming_id = 0;
    while arrived.len() < body.len() + 4 {
        let waiting = bytes::Buf::remaining(client.connection.output(client.now));
        assert!((1..=20 << 10).contains(&waiting), "{waiting}");
        for (transfer, payload) in transfers(&mut client) {
            assert!(payload.len() < 4_096);
            assert_eq!(transfer.delivery_id.is_some(), arrived.is_empty());
            arrived.extend_from_slice(&payload);
            assert_eq!(transfer.more, arrived.len() < body.len() + 4);
            next_incoming_id += 1;
        }
        client.send(0, &Performative::Flow(session_flow(next_incoming_id, 1_000)));
        client.events();
    }
    assert_eq!(&arrived[..4], b"head");
    assert_eq!(arrived[4..], body[..]);
    assert!(client.connection.is_sent(link));
}

/// Large pieces are written without copying.
#[test]
fn a_large_payload_is_not_copied() {
    let (mut client, link) = receiving(Config::default(), None);
    let body = Bytes::from(vec![7; 100_000]);
    client.connection.send(link, delivery(vec![body.clone()])).unwrap();
    let mut slices = [std::io::IoSlice::new(&[]); 4];
    let output = client.connection.output(client.now);
    let count = bytes::Buf::chunks_vectored(output, &mut slices);
    assert!(slices[..count].iter().any(|slice| slice.as_ptr() == body.as_ptr()));
}

/// The links of a connection send their large messages alternately.
#[test]
fn large_messages_of_several_links_take_turns() {
    let (mut client, first) = receiving(Config::default(), Some(4_096));
    let second = client.attach(receiver(1));
    client.send(0, &Performative::Flow(credit(1, 0, 1)));
    client.events();
    for link in [first, second] {
        client.connection.send(link, delivery(vec![Bytes::from(vec![0; 20_000])])).unwrap();
    }
    let handles: Vec<_> =
        transfers(&mut client).iter().map(|(transfer, _)| transfer.handle).collect();
    assert_eq!(handles, [0, 1, 0, 1, 0, 1, 0, 1, 0, 1]);
}

/// An aborted message is void, and the next one is sent.
#[test]
fn a_message_is_aborted() {
    let (mut client, link) =
        receiving(Config { output_bytes_max: 1_000, ..Config::default() }, Some(512));
    client.connection.send(link, delivery(vec![Bytes::from(vec![0; 20_000])])).unwrap();
    transfers(&mut client);
    client.connection.abort(link);
    let heard = transfers(&mut client);
    let [.., (last, payload)] = &heard[..] else { panic!("{heard:?}") };
    assert!(last.aborted && !last.more && payload.is_empty());
    assert_eq!(client.connection.unsettled_count(link.session()), 0);
    client.connection.send(link, delivery(vec![])).unwrap();
    assert_eq!(transfers(&mut client)[0].0.delivery_id, Some(1));
}

/// A disposition is reported for each delivery of its range, and answered with the state that the
/// broker returns, settled (AMQ-16).
#[test]
fn range_is_reported_per_delivery_and_answered() {
    let (mut client, link) = receiving(Config::default(), None);
    let ids = sent(&mut client, link, 5);
    client.receive();
    client.send(0, &says(1, Some(3), false, Some(DeliveryState::accepted())));
    let state = || Some(DeliveryState::accepted());
    let expected: Vec<_> = ids[1..4]
        .iter()
        .map(|&delivery| {
            let tag = tag(&[7; 16]);
            Event::Disposition { link, delivery, tag, state: state(), settled: false }
        })
        .collect();
    assert_eq!(client.events(), expected);
    assert_eq!(client.receive(), [], "nothing is answered before it is durable");
    for delivery in &ids[1..4] {
        client.connection.dispose_sent(*delivery, DeliveryState::accepted());
    }
    assert_eq!(dispositions(&mut client), [(1, Some(3), DeliveryState::accepted())]);
    assert_eq!(client.connection.unsettled_count(link.session()), 2);
}

/// An outcome for a delivery that is not unsettled, or never existed, is answered as a lost lock.
/// The answer has ranges, for any range of the client.
#[test]
fn unknown_deliveries_are_answered_as_lost_locks() {
    let (mut client, link) = receiving(Config::default(), None);
    let ids = sent(&mut client, link, 4);
    client.receive();
    client.connection.forget_delivery(ids[1]);
    client.send(0, &says(u32::MAX, Some(0x7fff_fff0), false, Some(released())));
    assert_eq!(client.events().len(), 3);
    let lost = |state: &DeliveryState| match state {
        DeliveryState::Outcome(Outcome::Rejected(rejected)) => {
            rejected.error.as_ref().unwrap().condition() == "com.microsoft:message-lock-lost"
        }
        _ => false,
    };
    let answers = dispositions(&mut client);
    assert!(answers.iter().all(|(_, _, state)| lost(state)));
    let ranges: Vec<_> = answers.iter().map(|(first, last, _)| (*first, *last)).collect();
    assert_eq!(ranges, [(u32::MAX, None), (1, None), (4, Some(0x7fff_fff0))]);
}

/// AMQP-74: deliveries of a lost session lock are answered with that reason, at any later time;
/// others between them are answered as lost message locks.
#[test]
fn deliveries_whose_session_lock_has_lapsed_are_answered_so() {
    let (mut client, link) = receiving(Config::default(), None);
    let ids = sent(&mut client, link, 6);
    client.receive();
    for id in [ids[1], ids[2], ids[4]] {
        client.connection.lapse_delivery(id);
    }
    client.connection.forget_delivery(ids[3]);
    assert_eq!(client.connection.unsettled_count(link.session()), 2, "there is room for others");
    // A settled disposition gets no answer.
    client.send(0, &says(1, Some(4), true, Some(DeliveryState::accepted())));
    assert_eq!((client.events(), client.receive()), (vec![], vec![]));
    for _ in 0..2 {
        client.send(0, &says(0, Some(5), false, Some(DeliveryState::accepted())));
        assert_eq!(client.events().len(), 2, "the first and the last");
        let answers = dispositions(&mut client);
        let answers = answers.iter().map(|(first, last, state)| match state {
            DeliveryState::Outcome(Outcome::Rejected(rejected)) => {
                (*first, *last, rejected.error.as_ref().unwrap().condition())
            }
            other => panic!("{other:?}"),
        });
        let session_lost = "com.microsoft:session-lock-lost";
        let expected = [
            (1, Some(2), session_lost),
            (3, None, "com.microsoft:message-lock-lost"),
            (4, None, session_lost),
        ];
        assert_eq!(answers.collect::<Vec<_>>(), expected);
    }
}

/// A settled disposition gets no answer for unknown deliveries (AMQP-68), and settles known ones.
#[test]
fn settled_dispositions_of_unknown_deliveries_are_ignored() {
    let (mut client, link) = receiving(Config::default(), None);
    let ids = sent(&mut client, link, 2);
    client.receive();
    client.send(0, &says(0, Some(1_000), true, Some(released())));
    let events = client.events();
    assert_eq!(events.len(), 2);
    assert!(events.iter().all(|event| matches!(event, Event::Disposition { settled: true, .. })));
    assert_eq!(client.connection.unsettled_count(link.session()), 0);
    client.connection.dispose_sent(ids[0], released());
    client.send(0, &says(0, Some(1_000), true, None));
    assert_eq!(client.events(), []);
    assert_eq!(client.receive(), []);
}

/// An unsettled disposition with `received` or without a state changes nothing and gets no answer.
/// A settled one without a state makes the broker forget the delivery.
#[test]
fn states_that_say_nothing_change_nothing() {
    let (mut client, link) = receiving(Config::default(), None);
    let ids = sent(&mut client, link, 1);
    client.receive();
    let received = Received { section_number: 0, section_offset: 0 };
    client.send(0, &says(0, None, false, Some(DeliveryState::Received(received))));
    client.send(0, &says(0, None, false, None));
    assert_eq!(client.events(), []);
    assert_eq!(client.connection.unsettled_count(link.session()), 1);
    client.send(0, &says(0, None, true, None));
    let tag = tag(&[7; 16]);
    let forgotten = Event::Disposition { link, delivery: ids[0], tag, state: None, settled: true };
    assert_eq!(client.events(), [forgotten]);
    assert_eq!(client.receive(), []);
}

/// Dispositions after the detach are still reported, and all dispositions precede the event of the
/// end.
#[test]
fn deliveries_are_given_back_after_the_detach_and_before_the_end() {
    let (mut client, link) = receiving(Config::default(), None);
    sent(&mut client, link, 2);
    client.send(0, &Performative::Detach(Detach { handle: 0, closed: true, error: None }));
    client.send(0, &says(0, None, true, Some(released())));
    let failed = Modified { delivery_failed: Some(true), ..Modified::default() };
    let failed = DeliveryState::Outcome(Outcome::Modified(failed));
    client.send(0, &says(1, None, true, Some(failed)));
    client.send(0, &Performative::Close(peeklock_amqp::performative::Close { error: None }));
    let mut events = Vec::new();
    while let Some(event) = client.event() {
        if let Event::Detached { link, .. } = event {
            client.connection.detach(link, None);
        }
        events.push(event);
    }
    assert!(
        matches!(
            &events[..],
            [
                Event::Detached { .. },
                Event::Disposition { .. },
                Event::Disposition { .. },
                Event::Closed { .. }
            ]
        ),
        "{events:?}"
    );
}

/// The number of unsettled deliveries is limited. Settled deliveries do not wait for that.
#[test]
fn deliveries_wait_while_too_many_are_unsettled() {
    let (mut client, link) = receiving(Config { unsettled_max: 3, ..Config::default() }, None);
    let ids = sent(&mut client, link, 3);
    assert!(!client.connection.can_send(link));
    assert!(client.connection.send(link, delivery(vec![])).is_err());
    assert!(client.connection.can_send_settled(link));
    let settled = Delivery { settled: true, ..delivery(vec![]) };
    assert!(client.connection.send(link, settled).is_ok());
    client.connection.dispose_sent(ids[0], DeliveryState::accepted());
    assert!(client.connection.can_send(link));
}

/// While too many bytes wait to be written, nothing is delivered or read.
#[test]
fn a_slow_reader_is_neither_sent_to_nor_read_from() {
    let (mut client, link) =
        receiving(Config { output_bytes_max: 1_000, ..Config::default() }, None);
    while client.connection.can_send(link) {
        client.connection.send(link, delivery(vec![Bytes::from(vec![0; 100])])).unwrap();
    }
    assert!(client.connection.is_full());
    client.send(0, &Performative::Flow(Flow { echo: true, ..credit(0, 0, 100) }));
    let unread = client.input.len();
    assert_eq!(client.events(), []);
    assert_eq!(client.input.len(), unread);
    client.receive();
    assert_eq!(client.events().len(), 1);
}

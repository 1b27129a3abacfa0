//! Tests of credit for receivers and senders, drain and echo.

use peeklock_amqp::connection::{Config, Event, LinkId};
use peeklock_amqp::link::Delivery;
use peeklock_amqp::performative::{Flow, Performative};

use crate::client::{Client, credit, receiver, sender, tag};

fn receiving() -> (Client, LinkId) {
    let (mut client, _) = Client::in_session(Config::default());
    let link = client.attach(receiver(0));
    (client, link)
}

fn send(client: &mut Client, link: LinkId) -> bool {
    let delivery = Delivery { tag: tag(b"t"), settled: true, payload: vec![] };
    client.connection.send(link, delivery).is_ok()
}

fn flowed(client: &mut Client, flow: Flow) -> Vec<(u32, bool)> {
    client.send(0, &Performative::Flow(flow));
    let events = client.events().into_iter();
    events
        .map(|event| match event {
            Event::Credit { credit, drain, .. } => (credit, drain),
            other => panic!("{other:?}"),
        })
        .collect()
}

/// Returns the only flow among the answers.
fn answer(client: &mut Client) -> Flow {
    let heard = client.receive();
    let flows: Vec<_> = heard
        .iter()
        .filter_map(|(_, performative, _)| match performative {
            Performative::Flow(flow) => Some(flow.clone()),
            _ => None,
        })
        .collect();
    assert_eq!(flows.len(), 1, "{heard:?}");
    flows[0].clone()
}

/// Deliveries need credit, which the client may raise and lower at any time. Deliveries that it had
/// not counted yet use up its new credit (AMQP-48, AMQP-50).
#[test]
fn deliveries_go_against_credit() {
    let (mut client, link) = receiving();
    assert!(!send(&mut client, link));
    assert_eq!(flowed(&mut client, credit(0, 0, 3)), [(3, false)]);
    assert!(send(&mut client, link));
    assert!(send(&mut client, link));
    // It has counted one of the two when it sends this flow.
    assert_eq!(flowed(&mut client, credit(0, 1, 3)), [(2, false)]);
    assert!(send(&mut client, link));
    assert!(send(&mut client, link));
    assert!(!send(&mut client, link));
    assert_eq!(flowed(&mut client, credit(0, 0, 10)), [(6, false)]);
    assert_eq!(flowed(&mut client, credit(0, 4, 0)), [(0, false)]);
    assert!(!send(&mut client, link));
    // Lower than the number of deliveries in transit.
    assert_eq!(flowed(&mut client, credit(0, 2, 1)), [(0, false)]);
    assert!(!send(&mut client, link));
}

/// A first flow without a count starts at the broker's count. The first flow of the Python SDK has
/// no credit.
#[test]
fn a_first_flow_may_lack_the_count() {
    let (mut client, link) = receiving();
    assert_eq!(flowed(&mut client, credit(0, 0, 0)), [(0, false)]);
    assert!(!client.connection.can_send(link));
    let flow = Flow { delivery_count: None, ..credit(0, 0, 7) };
    assert_eq!(flowed(&mut client, flow), [(7, false)]);
}

/// AMQP-09: the count of a link wraps at 2³² in both directions. A first flow without a count means
/// the first count of the link.
#[test]
fn the_count_of_a_link_goes_round() {
    let first = u32::MAX - 1;
    let config = Config { initial_delivery_count: first, ..Config::default() };
    let (mut client, _) = Client::in_session(config);
    client.send(0, &Performative::Attach(Box::new(receiver(0))));
    let link = client.asked();
    client.connection.accept(link, peeklock_amqp::link::Answer::echo(&receiver(0)));
    let heard = client.receive();
    let [(_, Performative::Attach(attach), _)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(attach.initial_delivery_count, Some(first));
    let flow = Flow { delivery_count: None, ..credit(0, 0, 4) };
    assert_eq!(flowed(&mut client, flow), [(4, false)]);
    for _ in 0..3 {
        assert!(send(&mut client, link));
    }
    assert_eq!(flowed(&mut client, credit(0, u32::MAX, 4)), [(2, false)]);
    client.receive();
    assert_eq!(flowed(&mut client, Flow { drain: true, ..credit(0, 1, 5) }), [(5, true)]);
    client.connection.drained(link);
    assert_eq!(answer(&mut client).delivery_count, Some(6));
}

/// AMQP-09: credit may be the highest number, which would be no credit if the end of the credit
/// were compared.
#[test]
fn credit_may_be_u32_max() {
    let (mut client, link) = receiving();
    assert_eq!(flowed(&mut client, credit(0, 0, u32::MAX)), [(u32::MAX, false)]);
    assert!(send(&mut client, link));
    assert_eq!(flowed(&mut client, credit(0, 0, u32::MAX)), [(u32::MAX - 1, false)]);
    assert_eq!(flowed(&mut client, credit(0, 1, u32::MAX)), [(u32::MAX, false)]);
}

/// Credit may arrive before the answer to `attach`, from clients that do not wait for it.
#[test]
fn credit_may_come_before_the_answer() {
    let (mut client, _) = Client::in_session(Config::default());
    client.send(0, &Performative::Attach(Box::new(receiver(0))));
    client.send(0, &Performative::Flow(credit(0, 0, 4)));
    let link = client.asked();
    assert_eq!(client.events(), []);
    assert!(!client.connection.can_send(link));
    client.connection.accept(link, peeklock_amqp::link::Answer::echo(&receiver(0)));
    assert_eq!(client.events(), [Event::Credit { link, credit: 4, drain: false }]);
    assert!(client.connection.can_send(link));
}

/// A drain is answered after the available messages were sent. The answer adds the remaining credit
/// to the count, has no credit, and has the drain flag (AMQP-48, AMQP-51).
#[test]
fn drain_uses_up_remaining_credit() {
    let (mut client, link) = receiving();
    assert_eq!(flowed(&mut client, Flow { drain: true, ..credit(0, 0, 10) }), [(10, true)]);
    assert!(send(&mut client, link));
    assert!(send(&mut client, link));
    assert_eq!(client.receive().len(), 2);
    client.connection.drained(link);
    let flow = answer(&mut client);
    assert_eq!(flow.handle, Some(0));
    assert_eq!((flow.delivery_count, flow.link_credit, flow.drain), (Some(10), Some(0), true));
    assert!(flow.next_incoming_id.is_some());
    assert!(!client.connection.can_send(link));
    // Only once.
    client.connection.drained(link);
    assert_eq!(client.receive(), []);
    assert_eq!(flowed(&mut client, credit(0, 10, 1)), [(1, false)]);
    assert!(client.connection.can_send(link));
}

/// A drain without credit is answered too (AMQP-51).
#[test]
fn a_drain_of_no_credit_is_answered_at_once() {
    let (mut client, _) = receiving();
    assert_eq!(flowed(&mut client, Flow { drain: true, ..credit(0, 0, 0) }), [(0, false)]);
    let flow = answer(&mut client);
    assert_eq!((flow.delivery_count, flow.link_credit, flow.drain), (Some(0), Some(0), true));
}

/// An echo is answered with the state of the link, for a sender and a receiver (AMQP-52). The flow
/// has all fields of a link's flow (AMQP-19).
#[test]
fn an_echo_is_answered_with_the_state_of_the_link() {
    let (mut client, link) = receiving();
    flowed(&mut client, Flow { echo: true, ..credit(0, 0, 5) });
    let flow = answer(&mut client);
    assert_eq!((flow.handle, flow.delivery_count, flow.link_credit), (Some(0), Some(0), Some(5)));
    assert!(!flow.drain && flow.next_incoming_id.is_some());
    assert!(client.connection.can_send(link));

    let sending = client.attach(sender(1));
    client.connection.grant(sending, 50);
    let flow = answer(&mut client);
    assert_eq!((flow.handle, flow.delivery_count, flow.link_credit), (Some(1), Some(0), Some(50)));
    assert_eq!(flowed(&mut client, Flow { echo: true, ..credit(1, 0, 0) }), []);
    assert_eq!(answer(&mut client).link_credit, Some(50));
}

/// An echo with a drain has a single answer, which answers the drain.
#[test]
fn a_drain_with_an_echo_has_one_answer() {
    let (mut client, link) = receiving();
    flowed(&mut client, Flow { echo: true, drain: true, ..credit(0, 0, 5) });
    assert_eq!(client.receive(), []);
    client.connection.drained(link);
    assert!(answer(&mut client).drain);
}

/// Credit in a flow of a sending client has no effect.
#[test]
fn a_senders_own_credit_means_nothing() {
    let (mut client, _) = Client::in_session(Config::default());
    let link = client.attach(sender(0));
    client.connection.grant(link, 10);
    client.receive();
    assert_eq!(flowed(&mut client, credit(0, 77, 4_000_000_000)), []);
    assert_eq!(client.connection.credit(link), 10);
}

//! Tests of handles: each side assigns its own, and frees it with its own detach (AMQP 2.6.2).

use peeklock_amqp::connection::{Config, Event, LinkId};
use peeklock_amqp::link::{Answer, Delivery};
use peeklock_amqp::performative::{Attach, Begin, Detach, Performative};

use crate::client::{Client, credit, receiver, sender, tag, transfer};

fn in_session() -> Client {
    Client::in_session(Config::default()).0
}

/// A client with a session and this handle-max.
fn in_session_up_to(handle_max: u32) -> Client {
    let mut client = Client::open(Config::default());
    let begin = Begin {
        incoming_window: 100,
        outgoing_window: 100,
        handle_max: Some(handle_max),
        ..Begin::default()
    };
    client.send(0, &Performative::Begin(Box::new(begin)));
    assert!(matches!(client.event(), Some(Event::Begun(_))));
    client.receive();
    client
}

fn detach(handle: u32) -> Performative {
    Performative::Detach(Detach { handle, closed: true, error: None })
}

fn named(name: &str, attach: Attach) -> Attach {
    Attach { name: name.into(), ..attach }
}

/// Detaches a link without waiting for the answer.
fn leave(client: &mut Client, handle: u32, link: LinkId) {
    client.send(0, &detach(handle));
    assert_eq!(client.event(), Some(Event::Detached { link, error: None }));
}

/// Attaches a link; returns it with the broker's handle.
fn attach(client: &mut Client, attach: &Attach) -> (LinkId, u32) {
    client.send(0, &Performative::Attach(Box::new(attach.clone())));
    let link = client.asked();
    assert!(client.connection.accept(link, Answer::echo(attach)));
    let heard = client.receive();
    let [.., (0, Performative::Attach(reply), _)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(reply.name, attach.name);
    (link, reply.handle)
}

/// A handle of the client is free after its `detach`, before the answer (AMQP 2.7.7). The broker's
/// handle is in use until the broker has answered, so the new link has another one.
#[test]
fn a_handle_is_free_before_its_detach_is_answered() {
    let mut client = in_session();
    let (old, old_handle) = attach(&mut client, &named("old", receiver(3)));
    leave(&mut client, 3, old);
    let (new, new_handle) = attach(&mut client, &named("new", receiver(3)));
    assert_ne!(new_handle, old_handle);
    // Credit for the client's handle belongs to the new link.
    client.send(0, &Performative::Flow(credit(3, 0, 1)));
    assert_eq!(client.events(), [Event::Credit { link: new, credit: 1, drain: false }]);
    let delivery = Delivery { tag: tag(b"t"), settled: true, payload: vec![] };
    assert!(client.connection.send(new, delivery).is_ok());
    client.connection.detach(old, None);
    let heard = client.receive();
    let [(0, Performative::Transfer(sent), _), (0, told, _)] = &heard[..] else {
        panic!("{heard:?}")
    };
    assert_eq!((sent.handle, told), (new_handle, &detach(old_handle)));
    // The broker's handle is free again too.
    leave(&mut client, 3, new);
    assert_eq!(attach(&mut client, &named("newer", receiver(3))).1, old_handle);
}

/// Transfers on a reassigned handle belong to the new link.
#[test]
fn transfers_on_a_handle_are_of_its_newest_link() {
    let mut client = in_session();
    let (old, _) = attach(&mut client, &named("old", sender(0)));
    client.say_with(
        0,
        &Performative::Transfer(peeklock_amqp::performative::Transfer {
            more: true,
            ..transfer(0, 0)
        }),
        b"half",
    );
    assert!(matches!(&client.events()[..], [Event::Received { link, .. }] if *link == old));
    leave(&mut client, 0, old);
    let (new, _) = attach(&mut client, &named("new", sender(0)));
    client.say_with(0, &Performative::Transfer(transfer(0, 1)), b"whole");
    let events = client.events();
    let [Event::Received { link, part }] = &events[..] else { panic!("{events:?}") };
    assert_eq!((*link, &part.payload[..]), (new, &b"whole"[..]));
    // A frame after the detach has no link.
    leave(&mut client, 0, new);
    client.say_with(0, &Performative::Transfer(transfer(0, 2)), b"late");
    assert_eq!(client.ended(), "amqp:session:unattached-handle");
}

/// Clients match answers by link name. With two links of a name, the older one is answered first,
/// attached or not.
#[test]
fn the_answer_to_an_older_link_of_the_name_goes_first() {
    for attached in [true, false] {
        let mut client = in_session();
        let same = receiver(0);
        client.send(0, &Performative::Attach(Box::new(same.clone())));
        let old = client.asked();
        if attached {
            assert!(client.connection.accept(old, Answer::echo(&same)));
            client.receive();
        }
        leave(&mut client, 0, old);
        client.send(0, &Performative::Attach(Box::new(same.clone())));
        let new = client.asked();
        assert!(client.connection.accept(new, Answer::echo(&same)));
        // It was answered already.
        client.connection.detach(old, None);
        assert!(!client.connection.accept(old, Answer::echo(&same)));
        let heard = client.receive();
        let told: Vec<_> = heard
            .iter()
            .map(|(_, heard, _)| match heard {
                Performative::Attach(attach) => ("attach", attach.source.is_some()),
                Performative::Detach(_) => ("detach", false),
                other => panic!("{other:?}"),
            })
            .collect();
        let refusal = [("attach", false)];
        let refusal = if attached { &refusal[..0] } else { &refusal[..] };
        assert_eq!(told, [refusal, &[("detach", false), ("attach", true)]].concat());
    }
}

/// The client's handle-max limits the broker's handles. The client's own handles are limited by the
/// broker's.
#[test]
fn a_clients_handle_max_bounds_the_brokers_handles() {
    let mut client = in_session_up_to(1);
    assert_eq!(attach(&mut client, &receiver(900)).1, 0);
    assert_eq!(attach(&mut client, &receiver(7)).1, 1);
    client.send(0, &Performative::Attach(Box::new(receiver(8))));
    assert_eq!(client.ended(), "amqp:resource-limit-exceeded");
}

/// If no other handle is available, the broker answers the `detach` of an older link to free its
/// handle.
#[test]
fn the_brokers_last_handle_goes_from_link_to_link() {
    let mut client = in_session_up_to(0);
    let (mut old, _) = attach(&mut client, &named("0", receiver(0)));
    for name in ["1", "2", "3"] {
        leave(&mut client, 0, old);
        let asked = named(name, receiver(0));
        client.send(0, &Performative::Attach(Box::new(asked.clone())));
        let new = client.asked();
        assert_eq!(client.receive().first().map(|(_, heard, _)| heard), Some(&detach(0)));
        assert!(client.connection.accept(new, Answer::echo(&asked)));
        client.connection.detach(old, None);
        let heard = client.receive();
        let [(0, Performative::Attach(reply), _)] = &heard[..] else { panic!("{heard:?}") };
        assert_eq!((&*reply.name, reply.handle), (name, 0));
        old = new;
    }
}

/// Detached links without an answer count as links, so a client cannot exceed the limit with them.
#[test]
fn links_that_are_left_are_bounded() {
    let config = Config { link_count_max: 8, ..Config::default() };
    let (mut client, _) = Client::in_session(config);
    let mut left = Vec::new();
    for count in 0..8 {
        let (link, _) = attach(&mut client, &named(&format!("link {count}"), receiver(0)));
        leave(&mut client, 0, link);
        left.push(link);
    }
    for _ in 0..100 {
        client.send(0, &Performative::Attach(Box::new(receiver(0))));
        client.send(0, &detach(0));
        assert_eq!(client.events(), []);
        let heard = client.receive();
        let [_, (0, Performative::Detach(told), _)] = &heard[..] else { panic!("{heard:?}") };
        let error = told.error.as_ref().map(peeklock_amqp::error::AmqpError::condition);
        assert_eq!(error, Some("amqp:resource-limit-exceeded"));
    }
    client.connection.detach(left[0], None);
    client.receive();
    attach(&mut client, &receiver(0));
}

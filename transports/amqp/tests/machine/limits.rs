//! Tests of clients that break the rules: each ends as the standard says.

use peeklock_amqp::connection::{Config, Event};
use peeklock_amqp::performative::{Attach, Begin, Disposition, Performative, Role, Transfer};

use crate::client::{Client, begin, credit, raw_frame, receiver, sender, tag, transfer};

fn open() -> Client {
    Client::open(Config::default())
}

fn in_session() -> Client {
    Client::in_session(Config::default()).0
}

#[test]
fn frames_that_are_none_close_the_connection() {
    let frames: [(&[u8], &str); 7] = [
        (&[0, 0, 0, 7, 2, 0, 0, 0], "amqp:connection:framing-error"),
        (&[0, 0, 0, 8, 1, 0, 0, 0], "amqp:connection:framing-error"),
        (&[0, 0, 0, 8, 3, 0, 0, 0], "amqp:connection:framing-error"),
        (&[0, 0, 0, 8, 2, 9, 0, 0], "amqp:connection:framing-error"),
        (&[0, 0, 0, 8, 2, 1, 0, 0], "amqp:connection:framing-error"),
        // One byte above the limit, refused before it has arrived.
        (&[0, 1, 0, 1, 2, 0, 0, 0], "amqp:connection:framing-error"),
        (&[0, 0, 0, 9, 2, 0, 0, 0, 0x40], "amqp:decode-error"),
    ];
    for (frame, condition) in frames {
        let mut client = open();
        client.say_bytes(frame);
        assert_eq!(client.closed(), condition, "{frame:?}");
    }
}

/// A frame of the maximum size is accepted.
#[test]
fn the_largest_frame_is_taken() {
    let (mut client, _) = Client::in_session(Config::default());
    client.attach(sender(0));
    let mut body = Vec::new();
    Performative::Transfer(transfer(0, 0)).write(&mut body);
    body.resize((64 << 10) - 8, 7);
    client.say_bytes(&raw_frame(0, 0, &body));
    assert!(matches!(&client.events()[..], [Event::Received { .. }]));
}

#[test]
fn channels_and_handles_above_their_limits_close_the_connection() {
    let mut client = open();
    client.send(5_000, &begin(1));
    assert_eq!(client.closed(), "amqp:connection:framing-error");
    let mut client = in_session();
    client.send(0, &Performative::Attach(Box::new(receiver(5_000))));
    assert_eq!(client.closed(), "amqp:connection:framing-error");
}

#[test]
fn frames_on_channels_without_session_close_the_connection() {
    for performative in [
        Performative::Attach(Box::new(receiver(0))),
        Performative::Flow(credit(0, 0, 1)),
        Performative::Transfer(transfer(0, 0)),
        Performative::End(peeklock_amqp::performative::End { error: None }),
    ] {
        let mut client = open();
        client.send(5, &performative);
        assert_eq!(client.closed(), "amqp:illegal-state");
    }
    let mut client = in_session();
    client.send(0, &begin(1));
    assert_eq!(client.closed(), "amqp:illegal-state");
    let mut client = open();
    client.send(
        0,
        &Performative::Begin(Box::new(Begin { remote_channel: Some(0), ..Begin::default() })),
    );
    assert_eq!(client.closed(), "amqp:illegal-state");
}

#[test]
fn handles_that_are_used_twice_or_not_at_all_end_the_session() {
    let mut client = in_session();
    client.attach(receiver(0));
    client.send(0, &Performative::Attach(Box::new(sender(0))));
    assert_eq!(client.ended(), "amqp:session:handle-in-use");
    for performative in [
        Performative::Flow(credit(7, 0, 1)),
        Performative::Transfer(transfer(7, 0)),
        Performative::Detach(peeklock_amqp::performative::Detach {
            handle: 7,
            closed: true,
            error: None,
        }),
    ] {
        let mut client = in_session();
        client.send(0, &performative);
        assert_eq!(client.ended(), "amqp:session:unattached-handle");
    }
}

/// A delivery within another, with another tag, or without id or tag detaches its link.
#[test]
fn deliveries_that_contradict_themselves_detach_the_link() {
    let begun = || Transfer { more: true, ..transfer(0, 0) };
    let wrong = [
        vec![begun(), transfer(0, 1)],
        vec![begun(), Transfer { delivery_tag: Some(tag(b"other")), ..Transfer::default() }],
        vec![begun(), Transfer { message_format: Some(1), ..Transfer::default() }],
        vec![Transfer { delivery_id: None, ..transfer(0, 0) }],
        vec![Transfer { delivery_tag: None, ..transfer(0, 0) }],
    ];
    for transfers in wrong {
        let mut client = in_session();
        client.attach(sender(0));
        for transfer in &transfers {
            client.say_with(0, &Performative::Transfer(transfer.clone()), b"x");
        }
        assert_eq!(client.failed(), "amqp:invalid-field", "{transfers:?}");
    }
}

#[test]
fn a_transfer_where_nothing_may_be_sent_detaches_the_link() {
    let mut client = in_session();
    client.attach(receiver(0));
    client.say_with(0, &Performative::Transfer(transfer(0, 0)), b"x");
    assert_eq!(client.failed(), "amqp:not-allowed");
    let mut client = in_session();
    client.send(0, &Performative::Attach(Box::new(sender(0))));
    client.asked();
    client.say_with(0, &Performative::Transfer(transfer(0, 0)), b"x");
    assert!(matches!(&client.events()[..], [Event::Failed { .. }]));
}

#[test]
fn a_range_that_runs_backwards_ends_the_session() {
    let mut client = in_session();
    client.send(
        0,
        &Performative::Disposition(Disposition {
            role: Role::Receiver,
            first: 5,
            last: Some(4),
            settled: true,
            ..Disposition::default()
        }),
    );
    assert_eq!(client.ended(), "amqp:invalid-field");
}

/// The maximum number of links applies to the connection, over all its sessions. A detached link
/// makes room.
#[test]
fn links_above_the_limit_are_refused() {
    let (mut client, _) = Client::in_session(Config { link_count_max: 2, ..Config::default() });
    let first = client.attach(receiver(0));
    client.begin(1, 1);
    client.send(1, &Performative::Attach(Box::new(receiver(0))));
    client.asked();
    client.send(0, &Performative::Attach(Box::new(receiver(1))));
    assert_eq!(client.events(), []);
    let heard = client.receive();
    let [_, (0, Performative::Detach(detach), _)] = &heard[..] else { panic!("{heard:?}") };
    assert_eq!(detach.error.as_ref().unwrap().condition(), "amqp:resource-limit-exceeded");
    let gone = |handle| {
        Performative::Detach(peeklock_amqp::performative::Detach {
            handle,
            closed: true,
            error: None,
        })
    };
    client.send(0, &gone(1));
    client.send(0, &gone(0));
    client.events();
    client.connection.detach(first, None);
    client.receive();
    client.attach(receiver(2));
}

/// The number of refused links that the client does not detach is limited.
#[test]
fn links_that_are_refused_and_kept_close_the_connection() {
    let (mut client, _) = Client::in_session(Config { link_count_max: 2, ..Config::default() });
    for handle in 0..66 {
        client.send(0, &Performative::Attach(Box::new(receiver(handle))));
    }
    assert_eq!(client.events().len(), 2);
    client.receive();
    client.send(0, &Performative::Attach(Box::new(receiver(66))));
    assert_eq!(client.closed(), "amqp:resource-limit-exceeded");
}

/// A client whose maximum frame size is too small for an answer is disconnected.
#[test]
fn an_answer_that_fits_no_frame_closes_the_connection() {
    let open = peeklock_amqp::performative::Open {
        container_id: "c".into(),
        max_frame_size: Some(512),
        ..Default::default()
    };
    let mut client = Client::open_with(Config::default(), open);
    client.begin(0, 1);
    let attach = Attach { name: "x".repeat(600).into(), ..receiver(0) };
    client.send(0, &Performative::Attach(Box::new(attach.clone())));
    let link = client.asked();
    client.connection.accept(link, peeklock_amqp::link::Answer::echo(&attach));
    assert_eq!(client.closed(), "amqp:frame-size-too-small");
}

/// AMQP 2.7.1: `open` must be on channel 0.
#[test]
fn an_open_on_another_channel_closes_the_connection() {
    let mut client = Client::new(Config { sasl_required: false, ..Config::default() });
    client.say_bytes(b"AMQP\x00\x01\x00\x00");
    client.send(3, &Performative::Open(Box::default()));
    let Some(Event::Closed { error: Some(error), .. }) = client.events().pop() else { panic!() };
    assert_eq!(error.condition(), "amqp:connection:framing-error");
}

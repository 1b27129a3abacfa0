//! Tests of replies that a client does not take: they are counted, and their number is limited.

use peeklock_amqp::performative::{Open, Performative, SenderSettleMode};
use peeklock_amqp::state::DeliveryState;
use peeklock_core::description::{SubscriptionUpdate, TopicUpdate};
use peeklock_core::message::{Content, MessageId};
use peeklock_core::rule::{Filter, RuleDescription, SqlText};
use peeklock_core::time::{TimeSpan, Timestamp};

use crate::client::{Client, text};
use crate::request::{Reply, map, request, uuids, value};
use crate::server::Server;
use crate::tokens;

const UNSETTLED: SenderSettleMode = SenderSettleMode::Unsettled;

/// Returns the next reply, skipping other frames.
async fn reply(client: &mut Client) -> Reply {
    loop {
        if let (Performative::Transfer(_), payload) = client.next_frame().await {
            return Reply { content: Content::parse(payload).unwrap() };
        }
    }
}

/// Sends a message and waits until it is stored; by then earlier requests to its queue were
/// answered.
async fn stored(client: &mut Client, handle: u32) {
    client.send(handle, 0, false, &text("m")).await;
    loop {
        match client.next_frame().await {
            (Performative::Disposition(of), _) => {
                return assert_eq!(of.state, Some(DeliveryState::accepted()));
            }
            (Performative::Flow(_), _) => {}
            other => panic!("{other:?}"),
        }
    }
}

/// AMQP-80: while replies wait for the client's windows, no further request is carried out whose
/// reply would wait too.
#[tokio::test]
async fn a_request_waits_behind_replies_that_are_not_taken() {
    let server = Server::start().await;
    server.put(&["a"]).await;
    server.clock.advance(TimeSpan::from_seconds(1));
    let mut client = Client::open_with(server.address, Open::default(), 0).await;
    client.sender(5, "q").await.unwrap();
    client.sender(0, "q/$management").await.unwrap();
    client.receiver(1, "q/$management", UNSETTLED).await.unwrap();
    client.credit_within(1, 0, 100, false, 0).await;
    let renew = request(1, "com.microsoft:renew-lock", &[], &map(&[("lock-tokens", uuids(&[1]))]));
    client.send(0, 0, true, renew.as_bytes()).await;
    stored(&mut client, 5).await;
    let entries = map(&[("message-count", value(1_i32))]);
    let delete = request(2, "com.microsoft:batch-delete-messages", &[], &entries);
    client.send(0, 0, true, delete.as_bytes()).await;
    stored(&mut client, 5).await;
    assert_eq!(server.total().await, 3, "nothing was done whose answer nobody takes");
    client.window(0, 1_000).await;
    assert_eq!(reply(&mut client).await.status(), 410);
    assert_eq!(reply(&mut client).await.status(), 200);
    assert_eq!(server.total().await, 2);
    server.stop().await;
}

/// A long list needs room in the outbound pool before it is handed over. Short replies do not wait
/// for that.
#[tokio::test]
async fn a_long_list_waits_for_its_room() {
    let server = Server::start().await;
    server.broker.create_topic("t", TopicUpdate::default()).await.unwrap();
    server
        .broker
        .create_subscription("t", "s", SubscriptionUpdate::default(), Vec::new())
        .await
        .unwrap();
    for number in 0..40 {
        let filter = Filter::Sql(SqlText::new(format!("a = '{}'", "x".repeat(900))));
        let rule = RuleDescription::new(format!("r{number}"), filter, Timestamp::NONE);
        server.broker.create_rule("t/subscriptions/s", rule).await.unwrap();
    }
    let pool = server.broker.outbound_pool();
    let room = pool.try_take(None, pool.free_bytes()).unwrap();
    let mut client = server.client().await;
    client.manager(0, "t/subscriptions/s").await;
    client.sender(5, "q").await.unwrap();
    let list = request(1, "com.microsoft:enumerate-rules", &[], &map(&[]));
    client.send(0, 0, true, list.as_bytes()).await;
    for _ in 0..20 {
        // Its own reply, not the list: their ids differ.
        let nothing = client.ask(0, "remove-rule", &[("rule-name", value("none"))]).await;
        assert_eq!(nothing.status(), 404);
    }
    drop(room);
    assert_eq!(reply(&mut client).await.maps("rules").len(), 41);
    // Its room is returned.
    while pool.free_bytes() < pool.bytes_max() {
        stored(&mut client, 5).await;
    }
    server.stop().await;
}

/// AMQP-81: the message-id of a request is kept until the reply, and has at most 1,024 encoded
/// bytes. Five of these are the type and the length.
#[tokio::test]
async fn a_request_of_a_long_name_is_refused() {
    let server = Server::start().await;
    let mut client = server.client().await;
    client.manager(0, "q").await;
    let name = |bytes: usize| MessageId::String("x".repeat(bytes));
    for (handle, bytes) in [(2, 1_019), (4, 1_020)] {
        client.sender(handle, "$cbs").await.unwrap();
        client.receiver(handle + 1, "$cbs", UNSETTLED).await.unwrap();
        client.credit(handle + 1, 0, 1, false).await;
        client.send(handle, 0, true, tokens::request("q", "t", name(bytes)).as_bytes()).await;
        match client.next_frame().await {
            (Performative::Transfer(transfer), _) => {
                assert_eq!((transfer.handle, bytes), (3, 1_019))
            }
            (Performative::Detach(detach), _) => {
                let condition = detach.error.map(|error| error.condition().to_owned());
                assert_eq!((detach.handle, condition.as_deref()), (4, Some("amqp:invalid-field")));
            }
            other => panic!("{other:?}"),
        }
    }
    server.stop().await;
}

/// The number of replies that wait for credit is limited over all links of a connection, since any
/// client may send requests to `$cbs`.
#[tokio::test]
async fn replies_that_are_not_taken_are_few() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for (channel, count) in [(0, 200_u64), (1, 57)] {
        if channel > 0 {
            client.begin_on(channel).await;
            client.restart_deliveries();
        }
        client.sender(0, "$cbs").await.unwrap();
        client.receiver(1, "$cbs", UNSETTLED).await.unwrap();
        for number in 0..count {
            let put = tokens::request("q", "t", MessageId::Ulong(number));
            client.send(0, 0, true, put.as_bytes()).await;
        }
        let receiver =
            |handle| Performative::Attach(Box::new(Client::receiver_of(handle, "q", UNSETTLED)));
        client.send_frame(&receiver(9)).await;
        let detached = loop {
            match client.next_frame().await {
                // The first may be read, and answered, with the last request.
                (Performative::Attach(attach), _) if attach.handle == 9 => {
                    client.send_frame(&receiver(10)).await;
                }
                (Performative::Attach(_), _) => break None,
                (Performative::Detach(detach), _) => {
                    break detach.error.map(|error| error.condition().to_owned());
                }
                (Performative::Flow(_), _) => {}
                other => panic!("{other:?}"),
            }
        };
        let refused = (channel == 1).then_some("amqp:resource-limit-exceeded");
        assert_eq!(detached.as_deref(), refused);
    }
    server.stop().await;
}

/// A malformed request is rejected, if an answer is due, before its link is detached: an unanswered
/// delivery counts against the window of the session.
#[tokio::test]
async fn a_request_that_is_none_is_rejected() {
    let server = Server::start().await;
    let mut client = server.client().await;
    for (handle, address) in [(0, "$cbs"), (1, "q/$management")] {
        client.sender(handle, address).await.unwrap();
        client.send(handle, 0, false, b"\xff").await;
        let (id, state) = client.disposed().await;
        assert_eq!((id, &*crate::sending::condition(&state)), (handle, "amqp:decode-error"));
        assert_eq!(client.detached().await, "amqp:decode-error");
    }
    server.stop().await;
}

/// AMQP-22: if several links have the requested address, the newest one of the session gets the
/// reply, for any order of handles; without one, the newest of the connection.
#[tokio::test]
async fn the_newest_link_has_the_reply() {
    let server = Server::start().await;
    let mut client = server.client().await;
    let management = "q/$management";
    client.sender(0, management).await.unwrap();
    for handle in [5, 2] {
        client.receiver(handle, management, UNSETTLED).await.unwrap();
        client.credit(handle, 0, 10, false).await;
    }
    client.begin_on(1).await;
    client.receiver(7, management, UNSETTLED).await.unwrap();
    client.credit(7, 0, 10, false).await;
    client.on(0);
    let ask = request(1, "com.microsoft:renew-lock", &[], &map(&[("lock-tokens", uuids(&[1]))]));
    client.send(0, 0, true, ask.as_bytes()).await;
    assert_eq!(client.message().await.0.handle, 2);
    // This link is newer than the link of the session with the higher channel.
    client.receiver(3, management, UNSETTLED).await.unwrap();
    client.credit(3, 0, 10, false).await;
    client.begin_on(2).await;
    client.restart_deliveries();
    client.sender(0, management).await.unwrap();
    client.send(0, 0, true, ask.as_bytes()).await;
    assert_eq!(client.message().await.0.handle, 3);
    server.stop().await;
}

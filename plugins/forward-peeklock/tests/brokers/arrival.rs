//! Tests of accepted and refused messages.

use std::sync::Arc;
use std::time::Duration;

use peeklock_core::contract::{Authorizer, Grant, Principal, Right, Rights, Verdict};
use peeklock_core::description::{EntityStatus, QueueUpdate};
use peeklock_core::error::Rejection;
use peeklock_core::message::{Message, Overlay};
use peeklock_core::path::SubQueue;
use peeklock_forward_peeklock::Token;

use crate::peer::*;

/// FWD-09, FWD-10, MSG-15: messages arrive in order and keep their first sequence numbers.
#[test]
fn messages_arrive_in_order_with_their_properties() {
    run(async {
        let peer = Peer::start().await;
        let mut list = messages(600);
        // Later changes to a message are forwarded with it.
        list[1].overlays = vec![Overlay::encode(&[("colour".to_owned(), "red".into())]).unwrap()];
        list[2].facts.enqueued_sequence = peeklock_core::ids::SequenceNumber(77);
        let mut route = route(peer.address);
        assert_eq!(route.forward(&list).await, vec![Verdict::Delivered; 600]);
        assert_eq!(peer.bodies().await, numbers(600));
        let stored = peer.peek(0).await;
        let first: Vec<u64> =
            stored.iter().take(4).map(|one| one.facts.enqueued_sequence.0).collect();
        assert_eq!(first, [1, 2, 77, 4]);
        let content = stored[1].content.load().await.unwrap();
        let message = peeklock_core::message::Content::parse(content).unwrap().decode().unwrap();
        assert_eq!(message.application_property("colour"), Some(&"red".into()));
        // Unchanged messages have the same bytes.
        assert_eq!(stored[0].content.load().await.unwrap().len(), {
            let id = peer.broker.inbound(Message::new("1").with_message_id("0".repeat(32)));
            id.content.as_bytes().len()
        });
        peer.stop().await;
    });
}

/// DUP-14, DUP-10: an id assigned by a broker is never a duplicate, also at the other broker. An id
/// from a client is.
#[test]
fn an_id_that_a_broker_made_is_no_duplicate() {
    run(async {
        let update =
            QueueUpdate { requires_duplicate_detection: Some(true), ..QueueUpdate::default() };
        let peer = Peer::start_with(update, Arc::new(peeklock_core::contract::AllowAll)).await;
        let mut list: Vec<_> = (1..=4)
            .map(|number| {
                let id = if number <= 2 { "made" } else { "given" };
                outgoing(number, &Message::new(number.to_string()).with_message_id(id))
            })
            .collect();
        list[0].never_duplicate = true;
        list[1].never_duplicate = true;
        let mut route = route(peer.address);
        assert_eq!(route.forward(&list).await, vec![Verdict::Delivered; 4]);
        assert_eq!(peer.bodies().await, ["1", "2", "3"]);
        peer.stop().await;
    });
}

#[test]
fn large_messages_go_in_several_lists() {
    run(async {
        let peer = Peer::start().await;
        let body = |number: u64| format!("{number}:{}", "x".repeat(700_000));
        let list: Vec<_> =
            (1..=8).map(|number| outgoing(number, &Message::new(body(number)))).collect();
        let mut route = route(peer.address);
        assert_eq!(route.forward(&list).await, vec![Verdict::Delivered; 8]);
        let expected: Vec<String> = (1..=8).map(body).collect();
        assert!(peer.bodies().await == expected);
        peer.stop().await;
    });
}

fn refused(verdict: &Verdict) -> (&str, &str) {
    match verdict {
        Verdict::Refused { reason, description } => (reason, description),
        other => panic!("{other:?}"),
    }
}

/// FWD-10, FWD-15, FWD-23: the reasons are the same as for a local transfer and include the
/// destination. Each refusal ends the list; later messages are offered after the source has stored
/// it.
#[test]
fn permanent_errors_are_refused_with_the_reason_of_a_transfer() {
    run(async {
        let update = QueueUpdate { max_size_in_megabytes: Some(1), ..QueueUpdate::default() };
        let peer = Peer::start_with(update, Arc::new(peeklock_core::contract::AllowAll)).await;
        let mut way = route(peer.address);
        let large = |number: u64, bytes: usize| outgoing(number, &Message::new(vec![b'x'; bytes]));
        let list = [
            large(1, 900_000),
            // The second message exceeds the queue's quota; the third does not.
            large(2, 900_000),
            large(3, 10),
            // One message exceeds the queue's limit, the next exceeds the frame limit.
            large(4, 2 << 20),
            large(5, 5 << 20),
            large(6, 10),
        ];
        for (from, place, reason) in
            [(0, 1, "QuotaExceeded"), (2, 3, "MessageSizeExceeded"), (4, 4, "MessageSizeExceeded")]
        {
            let verdicts = way.forward(&list[from..]).await;
            assert_eq!(verdicts.len(), place - from + 1);
            let (given, description) = refused(verdicts.last().unwrap());
            assert_eq!(given, reason);
            assert!(description.contains(&format!("{}/q", peer.address)), "{description}");
            assert_eq!(verdicts[..place - from], vec![Verdict::Delivered; place - from]);
        }
        assert_eq!(way.forward(&list[5..]).await, [Verdict::Delivered]);

        let status = QueueUpdate { status: Some(EntityStatus::Disabled), ..QueueUpdate::default() };
        peer.broker.update_queue("q", status, None).await.unwrap();
        let verdicts = way.forward(&messages(2)).await;
        // The first message was accepted before, so its answer is the same again.
        assert_eq!((&verdicts[0], verdicts.len()), (&Verdict::Delivered, 2));
        assert_eq!(refused(&verdicts[1]).0, "MessagingEntityDisabled");

        let mut nowhere = route_of(config(), source(), peer.address, "nowhere");
        let verdicts = nowhere.forward(&messages(2)).await;
        assert_eq!(verdicts.len(), 2);
        assert_eq!(refused(&verdicts[0]).0, "MessagingEntityNotFound");
        peer.stop().await;
    });
}

/// FWD-28: dead letters wait for an absent destination.
#[test]
fn dead_letters_are_offered_again() {
    run(async {
        let peer = Peer::start().await;
        let mut dead = source();
        dead.sub_queue = SubQueue::DeadLetter;
        let mut nowhere = route_of(config(), dead.clone(), peer.address, "nowhere");
        let verdicts = nowhere.forward(&messages(2)).await;
        let [Verdict::Failed { retry_after, .. }] = verdicts.as_slice() else {
            panic!("{verdicts:?}")
        };
        assert_eq!(*retry_after, Some(Duration::from_secs(30)));
        // Dead letters have their own sequence numbers.
        let mut way = route_of(config(), dead, peer.address, "q");
        assert_eq!(way.forward(&messages(2)).await, vec![Verdict::Delivered; 2]);
        assert_eq!(route(peer.address).forward(&messages(2)).await, vec![Verdict::Delivered; 2]);
        assert_eq!(peer.bodies().await, ["1", "2", "1", "2"]);
        peer.stop().await;
    });
}

/// FWD-12: the other broker applies its own limit.
#[test]
fn hops_are_counted_across_brokers() {
    run(async {
        let peer = Peer::start().await;
        let mut list = messages(2);
        list[0].hops = 5;
        list[1].hops = 4;
        let mut way = route(peer.address);
        let verdicts = way.forward(&list).await;
        assert_eq!(verdicts.len(), 1);
        assert!(refused(&verdicts[0]).1.contains("5 hops"), "{verdicts:?}");
        assert_eq!(way.forward(&list[1..]).await, [Verdict::Delivered]);
        peer.stop().await;
    });
}

/// An authorizer whose tokens name rights.
struct Tokens;

#[async_trait::async_trait]
impl Authorizer for Tokens {
    async fn authorize(&self, who: &Principal, _: &str) -> Result<Grant, Rejection> {
        match who.token.as_deref() {
            Some("all") => Ok(Grant::everything()),
            Some("send") => Ok(Grant::of(Rights::of(Right::Send))),
            _ => Err(Rejection::unauthorized("no")),
        }
    }

    fn allows_anonymous(&self) -> bool {
        false
    }
}

/// FWD-13: hops and origin are accepted only from a client with the Manage right.
#[test]
fn a_forwarder_needs_the_manage_right() {
    run(async {
        let peer = Peer::start_with(QueueUpdate::default(), Arc::new(Tokens)).await;
        for (token, is_taken) in [(None, false), (Some("send"), false), (Some("all"), true)] {
            let mut config = config();
            config.tokens = token
                .map(|token| ("127.0.0.1".parse().unwrap(), Token::new(token)))
                .into_iter()
                .collect();
            let verdicts =
                route_of(config, source(), peer.address, "q").forward(&messages(2)).await;
            if is_taken {
                assert_eq!(verdicts, [Verdict::Delivered, Verdict::Delivered]);
            } else {
                assert!(matches!(verdicts.as_slice(), [Verdict::Failed { .. }]), "{verdicts:?}");
            }
        }
        assert_eq!(peer.bodies().await, ["1", "2"]);
        peer.stop().await;
    });
}

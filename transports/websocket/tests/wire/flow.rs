//! Credit, delivery numbers, settlement by range, drain.

use std::sync::Arc;

use peeklock_core::description::QueueUpdate;
use peeklock_core::inspect::{ClientQuery, LinkRole};
use peeklock_core::store::Shard;
use peeklock_store_testing::{Fate, FaultStore};
use serde_json::json;

use super::client::Client;
use super::server::{Plan, Server, run};

fn numbered(from: u64, texts: &[&str]) -> Vec<(u64, String)> {
    (from..).zip(texts.iter().map(|text| (*text).to_owned())).collect()
}

/// RCV-16, RCV-17: at most as many deliveries as credit arrive, numbered from 1; more follow with
/// more credit.
#[test]
fn deliveries_are_numbered_and_bounded_by_credit() {
    run(async {
        let server = Server::start().await;
        server.put(&["a", "b", "c", "d"]).await;
        let mut client = server.client().await;
        client.receive_with(Some(2)).await;
        assert_eq!(client.deliveries(2).await, numbered(1, &["a", "b"]));
        // No delivery arrives before the answer to a later request.
        client.ask("heartbeat", json!({})).await;
        assert!(client.items.is_empty(), "{:?}", client.items);
        client.ask("credit", json!({ "link": 1, "upTo": 3 })).await;
        assert_eq!(client.deliveries(1).await, numbered(3, &["c"]));
        client.ask("credit", json!({ "link": 1, "upTo": 10 })).await;
        assert_eq!(client.deliveries(1).await, numbered(4, &["d"]));
        // Unused credit is kept.
        server.put(&["e"]).await;
        assert_eq!(client.deliveries(1).await, numbered(5, &["e"]));
        server.stop().await;
    });
}

/// SET-01, SET-02, SET-14, SET-20: ranges settle the named deliveries, and the answer lists those
/// that failed.
#[test]
fn ranges_settle_and_report_failures() {
    run(async {
        let server = Server::start().await;
        server.put(&["a", "b", "c", "d", "e"]).await;
        let mut client = server.client().await;
        client.receive_with(Some(10)).await;
        client.deliveries(5).await;
        let settle = |ranges| json!({ "link": 1, "decision": "complete", "ranges": ranges });
        let answer = client.ask("settle", settle(json!([[1, 2], [4, 4]]))).await;
        assert_eq!(answer["settled"], json!({}), "{answer}");
        assert_eq!(server.counts().await.active, 2);
        let answer = client.ask("settle", settle(json!([[2, 3], [7, 4_294_967_295_u32]]))).await;
        let failed = answer["settled"]["failed"].as_array().unwrap();
        let named: Vec<_> = failed
            .iter()
            .map(|one| (one["from"].as_u64().unwrap(), one["to"].as_u64().unwrap()))
            .collect();
        assert_eq!(named, [(2, 2), (7, 4_294_967_295)]);
        assert!(failed.iter().all(|one| one["error"]["condition"] == "MessageLockLost"));
        assert_eq!(server.counts().await.active, 1);
        let backwards = client.ask("settle", settle(json!([[3, 1]]))).await;
        assert_eq!(backwards["error"]["condition"], "ArgumentError");
        let nothing = client.ask("settle", settle(json!([]))).await;
        assert_eq!(nothing["error"]["condition"], "ArgumentError");
        server.stop().await;
    });
}

/// SET-03, SET-05, SET-06, SET-07, SET-08, SET-32: each decision, by number.
#[test]
fn every_decision_is_taken_by_number() {
    run(async {
        let server = Server::start().await;
        server.put(&["abandon", "defer", "dead", "release"]).await;
        let mut client = server.client().await;
        client.receive_with(Some(4)).await;
        client.deliveries(4).await;
        let decide = |number: u32, decision: &str| json!({ "link": 1, "decision": decision, "ranges": [[number, number]] });
        let mut abandon = decide(1, "abandon");
        abandon["properties"] = json!({ "cause": "busy" });
        let mut dead = decide(3, "deadLetter");
        dead["reason"] = "poison".into();
        dead["description"] = "cannot be read".into();
        for settle in [abandon, decide(2, "defer"), dead, decide(4, "release")] {
            assert_eq!(client.ask("settle", settle).await["settled"], json!({}));
        }
        let counts = server.counts().await;
        assert_eq!((counts.active, counts.deferred, counts.dead_letter), (2, 1, 1));
        assert_eq!(server.delivery_counts().await, [(1, 1), (2, 1), (4, 0)]);
        let mut wrong = decide(9, "complete");
        wrong["reason"] = "no".into();
        assert_eq!(client.ask("settle", wrong).await["error"]["condition"], "ArgumentError");
        let deferred = json!({ "link": 1, "sequenceNumbers": [2] });
        let got = client.ask("receiveDeferred", deferred).await;
        let message = &got["received"]["messages"][0];
        assert_eq!((&message["body"], &message["state"]), (&json!("defer"), &json!("Deferred")));
        let tokens = json!([message["lockToken"]]);
        let settle = json!({ "link": 1, "decision": "complete", "lockTokens": tokens });
        assert_eq!(client.ask("settle", settle).await["settled"], json!({}));
        server.stop().await;
    });
}

/// RTY-10, RTY-26, RTY-27: in JSON only the decision abandon accepts a delay, in its field or as a
/// property. A refused settlement leaves the lock unchanged.
#[test]
fn only_an_abandon_takes_a_delay() {
    run(async {
        let server = Server::start().await;
        server.put(&["a"]).await;
        let mut client = server.client().await;
        client.receive_with(Some(1)).await;
        client.deliveries(1).await;
        let decide =
            |decision: &str| json!({ "link": 1, "decision": decision, "ranges": [[1, 1]] });
        let mut refused = Vec::new();
        for decision in ["complete", "defer", "deadLetter", "release"] {
            for delay in [0, 5_000] {
                let mut field = decide(decision);
                field["delayMilliseconds"] = delay.into();
                let mut property = decide(decision);
                property["properties"] = json!({ "peeklock-delay-ms": delay, "cause": "down" });
                refused.extend([field, property]);
            }
        }
        for settle in refused {
            let answer = client.ask("settle", settle.clone()).await;
            assert_eq!(answer["error"]["condition"], "ArgumentError", "{settle}: {answer}");
        }
        assert_eq!(server.delivery_counts().await, [(1, 0)]);
        let mut abandon = decide("abandon");
        abandon["delayMilliseconds"] = 5_000.into();
        abandon["properties"] = json!({ "peeklock-delay-ms": 0, "cause": "down" });
        assert_eq!(client.ask("settle", abandon).await["settled"], json!({}));
        let counts = server.counts().await;
        assert_eq!(
            (counts.active, counts.deferred, counts.dead_letter, counts.delayed),
            (1, 0, 0, 1)
        );
        server.stop().await;
    });
}

/// RCV-18: a drain delivers the available messages, then returns the rest of the credit.
#[test]
fn a_drain_delivers_available_messages_and_returns_credit() {
    run(async {
        let server = Server::start().await;
        server.put(&["a", "b"]).await;
        let mut client = server.client().await;
        client.receive_with(Some(0)).await;
        // In one frame: credit given while the drain runs counts after it.
        client
            .frame_of(json!([
                { "id": 10, "credit": { "link": 1, "upTo": 5 } },
                { "id": 11, "drain": { "link": 1 } },
            ]))
            .await;
        assert_eq!(client.answer(11).await["drained"]["unused"], 3);
        assert_eq!(client.deliveries(2).await, numbered(1, &["a", "b"]));
        server.put(&["c"]).await;
        client.ask("heartbeat", json!({})).await;
        assert!(client.items.iter().all(|item| item.get("deliveries").is_none()));
        client.ask("credit", json!({ "link": 1, "upTo": 3 })).await;
        assert_eq!(client.deliveries(1).await, numbered(3, &["c"]));
        server.stop().await;
    });
}

/// RCV-02, RCV-04: receive-and-delete needs no settlement and allows none.
#[test]
fn receive_and_delete_flows_without_settlement() {
    run(async {
        let server = Server::start().await;
        server.put(&["a", "b"]).await;
        let mut client = server.client().await;
        let attach = json!({ "link": 1, "path": "q", "role": "receiver",
            "mode": "receiveAndDelete", "credit": 10 });
        client.ask("attach", attach).await;
        assert_eq!(client.deliveries(2).await, numbered(1, &["a", "b"]));
        assert_eq!(server.counts().await.total(), 0);
        let settle = json!({ "link": 1, "decision": "complete", "ranges": [[1, 2]] });
        let failed = &client.ask("settle", settle).await["settled"]["failed"];
        assert_eq!(failed[0]["error"]["condition"], "MessageLockLost");
        server.stop().await;
    });
}

/// SET-17, SET-18: a renewal by range returns the earliest of the new ends.
#[test]
fn locks_are_renewed_by_range() {
    run(async {
        let server = Server::start().await;
        server.put(&["a", "b"]).await;
        let mut client = server.client().await;
        client.receive_with(Some(2)).await;
        client.deliveries(2).await;
        server.clock.advance(peeklock_core::time::TimeSpan::from_seconds(45));
        let renewed = client.ask("renew", json!({ "link": 1, "ranges": [[1, 3]] })).await;
        assert_eq!(renewed["renewed"]["lockedUntilUtc"], "2026-05-01T12:01:45Z");
        assert_eq!(renewed["renewed"]["failed"][0]["from"], 3);
        server.clock.advance(peeklock_core::time::TimeSpan::from_seconds(30));
        let settle = json!({ "link": 1, "decision": "complete", "ranges": [[1, 2]] });
        assert_eq!(client.ask("settle", settle).await["settled"], json!({}));
        server.stop().await;
    });
}

/// A receiver with the maximum number of unsettled deliveries gets no more until it settles some.
#[test]
fn unsettled_deliveries_are_bounded() {
    run(async {
        let mut plan = Plan::new();
        plan.config.unsettled_count_max = 3;
        let server = plan.start().await;
        server.put(&["a", "b", "c", "d", "e"]).await;
        let mut client = server.client().await;
        client.receive_with(Some(u32::MAX)).await;
        assert_eq!(client.deliveries(3).await.len(), 3);
        client.ask("heartbeat", json!({})).await;
        assert!(client.items.is_empty());
        let settle = json!({ "link": 1, "decision": "complete", "ranges": [[1, 1]] });
        client.ask("settle", settle).await;
        assert_eq!(client.deliveries(1).await, numbered(4, &["d"]));
        // Expired locks no longer count: their messages are delivered again.
        server.clock.advance(peeklock_core::time::TimeSpan::from_minutes(2));
        client.ask("credit", json!({ "link": 1, "upTo": 100 })).await;
        assert_eq!(client.deliveries(3).await[0], (5, "b".to_owned()));
        server.stop().await;
    });
}

/// Settling by token makes room like settling by number, even over another link.
#[test]
fn settling_by_token_makes_room_for_deliveries() {
    run(async {
        let mut plan = Plan::new();
        plan.config.unsettled_count_max = 2;
        let server = plan.start().await;
        server.put(&["a", "b", "c", "d", "e", "f"]).await;
        let mut client = server.client().await;
        client.receive_with(Some(100)).await;
        client.ask("attach", json!({ "link": 2, "path": "q", "role": "receiver" })).await;
        let mut settled = 0;
        while settled < 6 {
            let group = client.pushed("deliveries").await;
            for message in group["messages"].as_array().unwrap() {
                let tokens = json!([message["lockToken"]]);
                let link = 1 + settled % 2;
                let settle = json!({ "link": link, "decision": "complete", "lockTokens": tokens });
                assert_eq!(client.ask("settle", settle).await["settled"], json!({}));
                settled += 1;
            }
        }
        assert_eq!(server.counts().await.total(), 0);
        server.stop().await;
    });
}

/// SND-01: the sends of a request are answered with their numbers in runs, and with failures by
/// index.
#[test]
fn sends_are_answered_in_runs() {
    run(async {
        let server = Server::start().await;
        let mut client = server.client().await;
        let attach = json!({ "link": 1, "path": "q", "role": "sender" });
        client.ask("attach", attach).await;
        let long = "x".repeat(129);
        let messages = json!([{ "body": "a" }, { "body": "b" }, { "messageId": long },
            { "body": "c", "scheduledEnqueueTimeUtc": "2026-05-01T13:00:00Z" }]);
        let answer = client.ask("send", json!({ "link": 1, "messages": messages })).await;
        assert_eq!(answer["accepted"]["sequenceNumbers"], json!([[1, 2], [0, 1], [3, 1]]));
        let failed = &answer["accepted"]["failed"][0];
        assert_eq!(
            (&failed["index"], &failed["error"]["condition"]),
            (&json!(2), &json!("ArgumentOutOfRange"))
        );
        let cancel = json!({ "link": 1, "sequenceNumbers": [3] });
        assert_eq!(client.ask("cancelScheduled", cancel).await["done"], json!({}));
        let none = client.ask("send", json!({ "link": 1, "messages": [] })).await;
        assert_eq!(none["accepted"]["sequenceNumbers"], json!([]));
        let receive = json!({ "link": 1, "maxCount": 1, "waitSeconds": 0 });
        let refused = client.ask("receive", receive).await;
        assert_eq!(refused["error"]["condition"], "InvalidOperation");
        server.stop().await;
    });
}

/// SND-08: of two sends on one connection to different entities, the later may be answered first;
/// each answer has the id of its request.
#[test]
fn answers_of_different_entities_come_in_any_order() {
    run(async {
        let store = FaultStore::at_once(2, u64::MAX);
        let server = Plan { store: Some(Arc::clone(&store) as _), ..Plan::new() }.start().await;
        server.broker.create_queue("r", QueueUpdate::default()).await.unwrap();
        let mut client = server.client().await;
        for (link, path) in [(1, "q"), (2, "r")] {
            let attach = json!({ "link": link, "path": path, "role": "sender" });
            client.ask("attach", attach).await;
        }
        store.complete_at_once(false);
        let send = |link| json!({ "link": link, "messages": [{ "body": "x" }] });
        let first = client.begin("send", send(1)).await;
        let shard = async || loop {
            if let Some(shard) = [Shard(0), Shard(1)].into_iter().find(|one| store.queued(*one) > 0)
            {
                break shard;
            }
            tokio::task::yield_now().await;
        };
        let held = shard().await;
        let other = Shard(1 - held.0);
        let second = client.begin("send", send(2)).await;
        while !store.complete_next(other, Fate::Store) {
            tokio::task::yield_now().await;
        }
        assert_eq!(client.answer(second).await["accepted"]["sequenceNumbers"], json!([[1, 1]]));
        assert!(client.items.iter().all(|item| item["id"] != first), "{:?}", client.items);
        assert!(store.complete_next(held, Fate::Store));
        assert_eq!(client.answer(first).await["accepted"]["sequenceNumbers"], json!([[1, 1]]));
        store.complete_at_once(true);
        server.stop().await;
    });
}

/// RCV-17: two links of a connection take turns.
#[test]
fn links_of_one_connection_share_a_queue() {
    run(async {
        let server = Server::start().await;
        let mut client = server.client().await;
        for link in [1, 2] {
            let attach = json!({ "link": link, "path": "q", "role": "receiver", "credit": 1 });
            client.ask("attach", attach).await;
        }
        server.put(&["a", "b", "c"]).await;
        assert_eq!(client.deliveries(2).await.len(), 2);
        let settle = |link| json!({ "link": link, "decision": "complete", "ranges": [[1, 1]] });
        // Each link has its own numbers.
        for link in [1, 2] {
            assert_eq!(client.ask("settle", settle(link)).await["settled"], json!({}));
        }
        assert_eq!(server.counts().await.active, 1);
        server.stop().await;
    });
}

/// QUO-02, DESIGN D6: a frame of several commands takes room for all of them among the inbound
/// commands, and waits until that is available.
#[test]
fn a_frame_of_several_commands_waits_for_room_for_all_of_them() {
    run(async {
        let mut plan = Plan::new();
        plan.settings.limits.broker_inbound_count_max = 8;
        let server = plan.start().await;
        let mut client = server.client().await;
        client.ask("attach", json!({ "link": 1, "path": "q", "role": "sender" })).await;
        let messages = |count: usize| json!({ "link": 1, "messages": vec![json!({}); count] });
        // There is room for three more commands.
        let held = server.broker.connection_budget().try_take_list(5, 1).unwrap();
        let answer = client.ask("send", messages(3)).await;
        assert_eq!(answer["accepted"]["sequenceNumbers"], json!([[1, 3]]));
        let waiting = client.begin("send", messages(4)).await;
        // Others use the remaining room meanwhile: smaller requests go first.
        let mut other = server.client().await;
        other.ask("attach", json!({ "link": 1, "path": "q", "role": "receiver" })).await;
        assert_eq!(server.counts().await.active, 3);
        drop(held);
        let answer = client.answer(waiting).await;
        assert_eq!(answer["accepted"]["sequenceNumbers"], json!([[4, 4]]));
        server.stop().await;
    });
}

/// DESIGN D6: escapes can make the JSON text of a message six times as long, so a message waits for
/// room for that; smaller messages do not wait.
#[test]
fn a_message_of_escapes_waits_for_the_room_of_its_text() {
    run(async {
        let server = Server::start().await;
        // By its stored size it would fit without shared room.
        let escaped = "\u{1}".repeat(60_000);
        server.put(&[&escaped, "b"]).await;
        let mut client = server.client().await;
        for link in [1, 2] {
            let attach = json!({ "link": link, "path": "q", "role": "receiver" });
            assert!(client.ask("attach", attach).await.get("error").is_none());
        }
        let pool = server.broker.outbound_pool();
        let taken = pool.try_take(None, pool.free_bytes());
        assert!(taken.is_some());
        let peek = |link: u32| json!({ "link": link, "from": link, "maxCount": 1 });
        let waiting = client.begin("peek", peek(1)).await;
        let small = client.ask("peek", peek(2)).await;
        assert_eq!(small["received"]["messages"][0]["body"], "b", "{small}");
        assert!(client.items.is_empty(), "it was told without room");
        drop(taken);
        let told = client.answer(waiting).await;
        assert!(told["received"]["messages"][0]["body"] == escaped.as_str(), "it is another");
        server.stop().await;
    });
}

/// DESIGN D8: content that the store reads slowly delays only its link. Another link gets
/// deliveries meanwhile, and requests are answered.
#[test]
fn a_slow_read_holds_up_one_link() {
    run(async {
        let store = FaultStore::at_once(1, u64::MAX);
        let server = Plan { store: Some(Arc::clone(&store) as _), ..Plan::new() }.start().await;
        server.put(&["a", "b"]).await;
        store.hold_reads();
        let mut client = server.client().await;
        for link in [1, 2] {
            let attach = json!({ "link": link, "path": "q", "role": "receiver" });
            assert_eq!(client.ask("attach", attach).await["done"], json!({}));
        }
        for (link, reads) in [(1, 1), (2, 2)] {
            let credit = json!({ "link": link, "upTo": 1 });
            assert_eq!(client.ask("credit", credit).await["done"], json!({}));
            while store.held_read_count() < reads {
                tokio::task::yield_now().await;
            }
        }
        for (read, link, body) in [(1, 2, "b"), (0, 1, "a")] {
            assert!(store.let_read(read));
            let told = client.pushed("deliveries").await;
            assert_eq!((&told["link"], &told["messages"][0]["body"]), (&json!(link), &json!(body)));
            client.ask("heartbeat", json!({})).await;
            assert!(client.items.is_empty(), "{:?}", client.items);
        }
        server.stop().await;
    });
}

/// RCV-31: while the store cannot load contents, a link ends with `ServerBusy` and a peek gets it.
/// The next delivery is the first one that counts.
#[test]
fn unavailable_contents_end_a_link_without_a_count() {
    run(async {
        let store = FaultStore::at_once(1, u64::MAX);
        let server = Plan { store: Some(Arc::clone(&store) as _), ..Plan::new() }.start().await;
        server.put(&["a"]).await;
        store.hold_reads();
        let mut client = server.client().await;
        for is_available in [false, true] {
            let attach = json!({ "link": 1, "path": "q", "role": "receiver" });
            assert_eq!(client.ask("attach", attach).await["done"], json!({}));
            let peek = json!({ "link": 1, "from": 0, "maxCount": 1 });
            let peek = client.begin("peek", peek).await;
            held_read(&store).await;
            assert!(if is_available { store.let_read(0) } else { store.refuse_read(0) });
            let peeked = client.answer(peek).await;
            let busy = &peeked["error"]["condition"];
            assert_eq!(busy == "ServerBusy", !is_available, "{peeked}");
            let credit = json!({ "link": 1, "upTo": 1 });
            assert_eq!(client.ask("credit", credit).await["done"], json!({}));
            held_read(&store).await;
            if is_available {
                assert!(store.let_read(0));
                let pushed = client.pushed("deliveries").await;
                assert_eq!(pushed["messages"][0]["deliveryCount"], 1, "{pushed}");
            } else {
                assert!(store.refuse_read(0));
                let pushed = client.pushed("detached").await;
                assert_eq!(pushed["error"]["condition"], "ServerBusy", "{pushed}");
                assert_eq!(pushed["error"]["retryable"], true, "{pushed}");
                assert_eq!(client.ask("detach", json!({ "link": 1 })).await["done"], json!({}));
            }
        }
        server.stop().await;
    });
}

/// Waits for a read that the store holds.
async fn held_read(store: &FaultStore) {
    while store.held_read_count() == 0 {
        tokio::task::yield_now().await;
    }
}

/// CON-24: a client is listed with its address, its name and the numbers of its link until it
/// disconnects.
#[test]
fn client_is_listed_with_its_link_until_it_disconnects() {
    run(async {
        let server = Server::start().await;
        server.put(&["a", "b", "c"]).await;
        let mut client = Client::hello(server.address, json!({ "client": "shop-1" })).await;
        client.receive_with(Some(5)).await;
        client.deliveries(3).await;
        let settle = json!({ "link": 1, "decision": "complete", "ranges": [[1, 1]] });
        client.ask("settle", settle).await;
        let query = ClientQuery { count_max: 10, ..ClientQuery::default() };
        let page = server.broker.clients(&query).await;
        let [listed] = &page.clients[..] else { panic!("{page:?}") };
        assert_eq!((&*listed.transport, listed.name.as_deref()), ("websocket", Some("shop-1")));
        assert!(listed.peer.is_some() && !listed.is_by_proxy);
        let [link] = &listed.links[..] else { panic!("{listed:?}") };
        assert_eq!((&*link.path, link.role), ("q", LinkRole::Receiver));
        assert_eq!((link.credit, link.delivered, link.unsettled), (2, 3, 2));
        drop(client);
        while server.broker.clients(&query).await.total > 0 {
            tokio::task::yield_now().await;
        }
        server.stop().await;
    });
}

/// CON-24, SET-31: an operator closes a client by its number. Its messages are available at once
/// and not counted, and the close frame names the operator.
#[test]
fn closed_client_returns_its_messages_uncounted() {
    run(async {
        let server = Server::start().await;
        server.put(&["a", "b"]).await;
        let mut operator = server.client().await;
        let mut client = Client::hello(server.address, json!({ "client": "shop-1" })).await;
        client.receive_with(Some(2)).await;
        client.deliveries(2).await;
        let query =
            ClientQuery { name: Some("shop".into()), count_max: 10, ..ClientQuery::default() };
        let id = server.broker.clients(&query).await.clients[0].id.0;
        let absent = operator.ask("closeClient", json!({ "client": id + 1_000 })).await;
        assert_eq!(absent["error"]["condition"], "EntityNotFound");
        let done = operator.ask("closeClient", json!({ "client": id })).await;
        assert!(done["done"].is_object(), "{done}");
        let (code, reason) = client.closed().await.unwrap();
        assert_eq!((code, &*reason), (1_001, "an operator has closed the connection"));
        while server.broker.clients(&query).await.total > 0 {
            tokio::task::yield_now().await;
        }
        let mut again = server.client().await;
        again.receive_with(Some(2)).await;
        again.deliveries(2).await;
        assert_eq!(server.delivery_counts().await, [(1, 0), (2, 0)]);
        server.stop().await;
    });
}

/// CON-12, CON-15: messages are acted on by number, and a repeated step changes nothing.
#[test]
fn operator_acts_on_messages_by_number() {
    run(async {
        let server = Server::start().await;
        server.put(&["a", "b"]).await;
        let mut client = server.client().await;
        let job = "00000000-0000-0000-0000-00000000000b";
        let act = json!({
            "path": "q",
            "act": {
                "sequenceNumbers": [2, 3],
                "deed": { "deadLetter": { "description": "wrong" } },
                "step": { "job": job, "number": 1 },
            },
        });
        let results = json!({ "messages": [
            { "sequenceNumber": 2, "result": "done" },
            { "sequenceNumber": 3, "result": "notFound" },
        ] });
        for _ in 0..2 {
            assert_eq!(client.ask("act", act.clone()).await["acted"], results);
        }
        let forget = json!({ "path": "q", "job": job });
        assert_eq!(client.ask("forgetJob", forget).await["done"], json!({}));
        let again = client.ask("act", act).await;
        assert_eq!(again["acted"]["messages"][0]["result"], "notFound");
        server.stop().await;
    });
}

/// CON-26: a broken lock delivers its message to another receiver, and the holder's settlement
/// fails.
#[test]
fn broken_lock_fails_the_settlement_of_its_holder() {
    run(async {
        let server = Server::start().await;
        server.put(&["a"]).await;
        let mut client = server.client().await;
        client.receive_with(Some(1)).await;
        client.deliveries(1).await;
        let mut other = server.client().await;
        let lock = json!({ "path": "q", "sequenceNumbers": [1, 2], "counted": true });
        let broken = other.ask("breakLocks", lock.clone()).await;
        assert_eq!(broken["locksBroken"], json!({ "count": 1 }));
        assert_eq!(other.ask("breakLocks", lock).await["locksBroken"], json!({ "count": 0 }));
        other.receive_with(Some(1)).await;
        other.deliveries(1).await;
        let settle = json!({ "link": 1, "decision": "complete", "ranges": [[1, 1]] });
        let settled = client.ask("settle", settle).await;
        let error = &settled["settled"]["failed"][0]["error"];
        assert_eq!(error["condition"], "MessageLockLost", "{settled}");
        assert_eq!(server.delivery_counts().await, [(1, 1)]);
        server.stop().await;
    });
}

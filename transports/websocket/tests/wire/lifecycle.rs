//! How links and connections end (SET-21), and the effects of a stop of the listener.

use std::time::Duration;

use futures_util::StreamExt as _;
use peeklock_core::time::TimeSpan;
use serde_json::json;
use tokio::io::AsyncWriteExt as _;

use super::client::Client;
use super::server::{Plan, Server, run};

/// Waits until the delivery counts meet a condition; the end of a connection is not announced.
async fn until(server: &Server, is_so: impl Fn(&[(u64, u32)]) -> bool) {
    while !is_so(&server.delivery_counts().await) {
        tokio::task::yield_now().await;
    }
}

/// Receives the messages that are available now, without the transport; returns their number.
async fn available(server: &Server) -> usize {
    let entity = server.broker.entity("q").unwrap();
    let command = peeklock_core::command::Command::Receive {
        mode: peeklock_core::command::ReceiveMode::PeekLock,
        count_max: 100,
        bytes_max: u64::MAX,
        wait: TimeSpan::ZERO,
        holder: None,
    };
    match entity.call(command).await.unwrap() {
        peeklock_core::command::Outcome::Received(messages) => messages.len(),
        other => panic!("{other:?}"),
    }
}

/// SET-21, SET-31, RCV-14: a broken connection releases its locks and increments the counts, as
/// does a close with a code other than 1000.
#[test]
fn a_broken_connection_releases_its_locks_and_counts() {
    run(async {
        let server = Server::start().await;
        server.put(&["a", "b", "c"]).await;
        for count in 1..=2 {
            let mut client = server.client().await;
            client.receive_with(Some(2)).await;
            client.deliveries(2).await;
            if count == 1 {
                drop(client);
            } else {
                client.close(Some(1_001)).await;
            }
            until(&server, |counts| counts[0].1 == count).await;
        }
        assert_eq!(server.delivery_counts().await, [(1, 2), (2, 2), (3, 0)]);
        assert_eq!(available(&server).await, 3);
        server.stop().await;
    });
}

/// SET-21, SET-31, RCV-14: the same holds for a connection that is not read while its requests wait
/// for room. Its end is noticed behind the unread bytes, and a waiting receive takes nothing more.
#[cfg(any(target_os = "linux", target_os = "android"))]
#[test]
fn a_connection_broken_behind_unread_bytes_releases_its_locks() {
    run(async {
        let server = Server::start().await;
        server.put(&["a"]).await;
        let mut client = server.client().await;
        client.receive_with(Some(1)).await;
        client.deliveries(1).await;
        let receive = json!({ "link": 1, "maxCount": 1, "waitSeconds": 60 });
        client.begin("receive", receive).await;
        // The receive waits by now.
        client.ask("heartbeat", json!({})).await;
        let mut held = Vec::new();
        for bytes in [16 << 20, 1] {
            while let Some(permit) = server.broker.connection_budget().try_take(bytes) {
                held.push(permit);
            }
        }
        for _ in 0..500 {
            client.begin("listQueues", json!({})).await;
        }
        // No request can be made without room. Only the end of the server's side shows that the
        // shutdown was noticed.
        client.socket.get_mut().shutdown().await.unwrap();
        while let Some(Ok(_)) = client.socket.next().await {}
        drop(held);
        until(&server, |counts| counts == [(1, 1)]).await;
        server.put(&["b"]).await;
        assert_eq!(available(&server).await, 2);
        assert_eq!(server.delivery_counts().await, [(1, 1), (2, 0)]);
        server.stop().await;
    });
}

/// RCV-03: messages received in the mode receive-and-delete are lost with their connection and are
/// not delivered again; locked messages are.
#[test]
fn deleted_messages_are_lost_with_their_connection() {
    run(async {
        let server = Server::start().await;
        server.put(&["locked", "lost"]).await;
        let mut client = server.client().await;
        client.receive_with(Some(1)).await;
        client.deliveries(1).await;
        let attach = json!({ "link": 2, "path": "q", "role": "receiver",
            "mode": "receiveAndDelete", "credit": 1 });
        client.ask("attach", attach).await;
        until(&server, |counts| counts == [(1, 0)]).await;
        drop(client);
        until(&server, |counts| counts[0].1 == 1).await;
        assert_eq!(server.delivery_counts().await, [(1, 1)]);
        assert_eq!((available(&server).await, server.counts().await.total()), (1, 1));
        server.stop().await;
    });
}

/// SET-21: code 1000 is an orderly close; locks stay until they expire.
#[test]
fn an_orderly_close_keeps_the_locks() {
    run(async {
        let server = Server::start().await;
        server.put(&["a"]).await;
        let mut client = server.client().await;
        client.receive_with(Some(1)).await;
        client.deliveries(1).await;
        client.close(Some(1_000)).await;
        assert_eq!(available(&server).await, 0);
        server.clock.advance(TimeSpan::from_minutes(1));
        assert_eq!(available(&server).await, 1);
        assert_eq!(server.delivery_counts().await, [(1, 1)]);
        server.stop().await;
    });
}

/// RFC 6455 5.5.1: a close is answered with the same code, so that browsers report it as clean.
#[test]
fn a_close_is_answered() {
    run(async {
        let server = Server::start().await;
        for code in [1_000, 1_001, 4_000] {
            let mut client = server.client().await;
            client.say_close(Some(code)).await;
            assert_eq!(client.closed().await, Some((code, String::new())));
        }
        server.stop().await;
    });
}

/// SET-21, SET-24: after a detach, locks are kept and can be settled by token. With `release` they
/// are released at once and counted.
#[test]
fn a_detach_keeps_locks_without_release() {
    run(async {
        let server = Server::start().await;
        server.put(&["a", "b"]).await;
        let mut client = server.client().await;
        client.receive_with(Some(1)).await;
        let group = client.pushed("deliveries").await;
        let token = group["messages"][0]["lockToken"].clone();
        assert_eq!(client.ask("detach", json!({ "link": 1 })).await["done"], json!({}));
        client.receive_with(None).await;
        let settle = json!({ "link": 1, "decision": "complete", "lockTokens": [token] });
        assert_eq!(client.ask("settle", settle).await["settled"], json!({}));
        client.ask("credit", json!({ "link": 1, "upTo": 1 })).await;
        client.deliveries(1).await;
        client.ask("detach", json!({ "link": 1, "release": true })).await;
        assert_eq!(server.delivery_counts().await, [(2, 1)]);
        assert_eq!(available(&server).await, 1);
        let gone = client.ask("credit", json!({ "link": 1, "upTo": 9 })).await;
        assert_eq!(gone["error"]["condition"], "InvalidOperation");
        server.stop().await;
    });
}

/// RCV-11, RCV-14: a waiting receive that is withdrawn takes nothing.
#[test]
fn a_receive_that_is_withdrawn_takes_nothing() {
    run(async {
        let server = Server::start().await;
        let mut client = server.client().await;
        client.receive_with(None).await;
        let receive = json!({ "link": 1, "maxCount": 5, "waitSeconds": 60 });
        let waiting = client.begin("receive", receive.clone()).await;
        client.ask("withdraw", json!({ "request": waiting })).await;
        assert_eq!(client.answer(waiting).await["received"]["messages"], json!([]));
        server.put(&["a"]).await;
        assert_eq!(server.delivery_counts().await, [(1, 0)]);
        let waiting = client.begin("receive", receive).await;
        let got = client.answer(waiting).await;
        assert_eq!(got["received"]["messages"][0]["deliveryCount"], 1);
        server.stop().await;
    });
}

/// RCV-11, SES-08: a wait longer than the broker's maximum ends at the maximum.
#[test]
fn a_wait_ends_when_the_longest_is_over() {
    run(async {
        let mut plan = Plan::new();
        plan.settings.limits.receive_wait_max = TimeSpan::from_minutes(2);
        let server = plan.start().await;
        let mut client = server.client().await;
        client.receive_with(None).await;
        let properties = json!({ "requiresSession": true });
        client.ask("createQueue", json!({ "path": "steps", "properties": properties })).await;
        let used_at =
            async |path: &str| server.broker.describe_queue(path).await.unwrap().accessed_at;
        let before = [used_at("q").await, used_at("steps").await];
        server.clock.advance(TimeSpan::from_seconds(1));
        let receive = json!({ "link": 1, "maxCount": 1, "waitSeconds": 1_000_000_000 });
        let receive = client.begin("receive", receive).await;
        let accept = json!({ "link": 2, "path": "steps", "waitSeconds": 1_000_000_000 });
        let accept = client.begin("acceptSession", accept).await;
        // Both requests wait.
        for (path, before) in ["q", "steps"].into_iter().zip(before) {
            while used_at(path).await == before {
                tokio::task::yield_now().await;
            }
        }
        server.clock.advance(TimeSpan::from_seconds(119));
        server.counts().await;
        client.ask("heartbeat", json!({})).await;
        assert!(client.items.is_empty(), "{:?}", client.items);
        server.clock.advance(TimeSpan::from_seconds(1));
        assert_eq!(client.answer(receive).await["received"]["messages"], json!([]));
        assert_eq!(client.answer(accept).await["error"]["condition"], "ServiceTimeout");
        server.stop().await;
    });
}

/// RCV-14: a receive whose connection is cut takes nothing.
#[test]
fn a_receive_whose_connection_is_cut_takes_nothing() {
    run(async {
        let server = Server::start().await;
        let mut client = server.client().await;
        client.receive_with(None).await;
        let receive = json!({ "link": 1, "maxCount": 1, "waitSeconds": 3_600 });
        client.begin("receive", receive).await;
        client.ask("heartbeat", json!({})).await;
        server.clock.advance(TimeSpan::from_seconds(1));
        let before = server.broker.describe_queue("q").await.unwrap().accessed_at;
        drop(client);
        // The end of the wait updates the access time of the queue.
        while server.broker.describe_queue("q").await.unwrap().accessed_at == before {
            tokio::task::yield_now().await;
        }
        server.put(&["a"]).await;
        assert_eq!(available(&server).await, 1);
        assert_eq!(server.delivery_counts().await, [(1, 0)]);
        server.stop().await;
    });
}

/// ENT-24, ENT-25: a queue that stops deliveries detaches its receivers. Messages in hand can be
/// settled, and later credit attaches the link again.
#[test]
fn detached_receiver_settles_its_messages_and_may_reattach() {
    run(async {
        let server = Server::start().await;
        server.put(&["a", "b"]).await;
        let mut client = server.client().await;
        client.receive_with(Some(1)).await;
        client.deliveries(1).await;
        let status = |status: &str| json!({ "path": "q", "properties": { "status": status } });
        client.ask("updateQueue", status("ReceiveDisabled")).await;
        let detached = client.pushed("detached").await;
        assert_eq!(detached["error"]["condition"], "EntityDisabled");
        let settle = json!({ "link": 1, "decision": "complete", "ranges": [[1, 1]] });
        assert_eq!(client.ask("settle", settle).await["settled"], json!({}));
        client.ask("credit", json!({ "link": 1, "upTo": 5 })).await;
        assert_eq!(client.pushed("detached").await["error"]["condition"], "EntityDisabled");
        client.ask("updateQueue", status("Active")).await;
        client.ask("credit", json!({ "link": 1, "upTo": 5 })).await;
        assert_eq!(client.deliveries(1).await, [(2, "b".to_owned())]);
        server.stop().await;
    });
}

/// DESIGN D4: a link stays bound to the queue that it was attached to; a new queue with the same
/// path is another queue.
#[test]
fn a_link_of_a_deleted_queue_is_detached() {
    run(async {
        let server = Server::start().await;
        let mut client = server.client().await;
        client.receive_with(Some(1)).await;
        client.ask("deleteQueue", json!({ "path": "q" })).await;
        assert_eq!(client.pushed("detached").await["error"]["condition"], "EntityNotFound");
        client.ask("createQueue", json!({ "path": "q" })).await;
        let peek = json!({ "link": 1, "from": 0, "maxCount": 1 });
        assert_eq!(client.ask("peek", peek).await["error"]["condition"], "EntityNotFound");
        let absent = json!({ "link": 2, "path": "absent", "role": "sender" });
        assert_eq!(client.ask("attach", absent).await["error"]["condition"], "EntityNotFound");
        server.stop().await;
    });
}

/// SET-31: a stop ends waiting receives, leaves time to settle, closes with 1001 and increments no
/// counts.
#[test]
fn a_stop_leaves_time_to_settle_and_counts_nothing() {
    run(async {
        let server = Server::start().await;
        server.put(&["a", "b"]).await;
        let broker = server.broker.clone();
        let mut client = server.client().await;
        client.receive_with(Some(1)).await;
        client.deliveries(1).await;
        let dead = json!({ "link": 2, "path": "q/$deadletterqueue", "role": "receiver" });
        client.ask("attach", dead).await;
        let receive = json!({ "link": 2, "maxCount": 1, "waitSeconds": 60 });
        let waiting = client.begin("receive", receive).await;
        client.ask("heartbeat", json!({})).await;
        let stopping = tokio::spawn(server.stop_within(Duration::from_secs(20)));
        assert_eq!(client.pushed("closing").await["seconds"], 20);
        assert_eq!(client.answer(waiting).await["received"]["messages"], json!([]));
        let settle = json!({ "link": 1, "decision": "complete", "ranges": [[1, 1]] });
        let settled = client.begin("settle", settle).await;
        assert_eq!(client.answer(settled).await["settled"], json!({}));
        // With nothing left to settle, it does not wait for the rest of the time.
        assert_eq!(client.closed().await.unwrap().0, 1_001);
        stopping.await.unwrap();
        drop(broker);
    });
}

/// SET-31: the connection ends at the announced second, with the close code for a stop,
/// independently of the heartbeat. It does not end earlier, since a client may still settle.
#[test]
fn a_stop_ends_at_the_second_that_it_announced() {
    run(async {
        let server = Server::start().await;
        server.put(&["a"]).await;
        let mut client = Client::hello(server.address, json!({ "heartbeatSeconds": 20 })).await;
        client.receive_with(Some(1)).await;
        client.deliveries(1).await;
        let begun = std::time::Instant::now();
        let stopping = tokio::spawn(server.stop_within(Duration::from_secs(1)));
        assert_eq!(client.pushed("closing").await["seconds"], 1);
        assert_eq!(client.closed().await.map(|(code, _)| code), Some(1_001));
        let taken = begun.elapsed();
        assert!((Duration::from_secs(1)..Duration::from_secs(3)).contains(&taken), "{taken:?}");
        stopping.await.unwrap();
    });
}

/// SET-31: messages that are unsettled by then are available again without an increased count.
#[test]
fn stop_releases_unsettled_messages() {
    run(async {
        let plan = Plan::new();
        let server = plan.start().await;
        server.put(&["a"]).await;
        let mut client = Client::hello(server.address, json!({ "graceSeconds": 30 })).await;
        client.receive_with(Some(1)).await;
        client.deliveries(1).await;
        let broker = server.broker.clone();
        let entity = broker.entity("q").unwrap();
        let Server { running, .. } = server;
        running.stop(Duration::ZERO).await;
        let command = peeklock_core::command::Command::Receive {
            mode: peeklock_core::command::ReceiveMode::PeekLock,
            count_max: 1,
            bytes_max: u64::MAX,
            wait: TimeSpan::ZERO,
            holder: None,
        };
        let outcome = entity.call(command).await.unwrap();
        let peeklock_core::command::Outcome::Received(again) = outcome else { panic!() };
        assert_eq!(again[0].facts.shown_delivery_count(), 1);
        broker.stop(Duration::ZERO).await.unwrap();
    });
}

/// ENT-15, TMP-15, TMP-17, RCV-22: a link without credit does not keep its queue alive and counts
/// for no receiver limit. Like a sender, it gets one notice when the queue is deleted.
#[test]
fn links_without_deliveries_are_detached_with_their_queue() {
    run(async {
        let mut plan = Plan::new();
        plan.settings.limits.receiver_count_max = 1;
        let server = plan.start().await;
        let mut client = server.client().await;
        let gone = async |client: &mut Client, links: &[u64]| {
            let mut told = Vec::new();
            for _ in links {
                let detached = client.pushed("detached").await;
                assert_eq!(detached["error"]["condition"], "EntityNotFound", "{detached}");
                told.push(detached["link"].as_u64().unwrap());
            }
            told.sort_unstable();
            assert_eq!(told, links);
            let peek = json!({ "link": links[0], "from": 0, "maxCount": 1 });
            client.ask("peek", peek).await;
            let more = client.items.iter().find(|item| item.get("detached").is_some());
            assert_eq!(more, None);
        };
        for (link, role, credit) in [
            (1, "sender", None),
            (2, "receiver", None),
            (3, "receiver", None),
            (4, "receiver", Some(1)),
            (5, "receiver", None),
        ] {
            let mut attach = json!({ "link": link, "path": "q", "role": role });
            if let Some(credit) = credit {
                attach["credit"] = credit.into();
            }
            let answer = client.ask("attach", attach).await;
            assert_eq!(answer["done"], json!({}), "{link}: {answer}");
        }
        client.ask("detach", json!({ "link": 3 })).await;
        client.ask("deleteQueue", json!({ "path": "q" })).await;
        gone(&mut client, &[1, 2, 4, 5]).await;

        let properties = json!({ "autoDeleteOnIdle": "PT5M" });
        client.ask("createQueue", json!({ "path": "brief", "properties": properties })).await;
        server.clock.advance(TimeSpan::from_minutes(4));
        let attach = json!({ "link": 6, "path": "brief", "role": "receiver", "credit": 0 });
        assert_eq!(client.ask("attach", attach).await["done"], json!({}));
        let attach = json!({ "link": 7, "path": "brief", "role": "receiver" });
        assert_eq!(client.ask("attach", attach).await["done"], json!({}));
        server.clock.advance(TimeSpan::from_minutes(2));
        gone(&mut client, &[6, 7]).await;
        server.stop().await;
    });
}

/// A server with nothing to send sends heartbeats, and gives up a silent client.
#[test]
fn both_sides_keep_the_heartbeat() {
    run(async {
        let mut plan = Plan::new();
        plan.config.heartbeat = Duration::from_millis(100);
        let server = plan.start().await;
        let mut client = server.client().await;
        client.pushed("heartbeat").await;
        // The client sends nothing.
        let (code, _) = client.closed().await.unwrap();
        assert_eq!(code, 4_100);
        server.stop().await;
    });
}

/// RCV-29, SES-01, ENT-24: a receiver without credit may attach and peek even where deliveries are
/// refused; only credit is refused.
#[test]
fn a_receiver_may_look_where_it_may_not_receive() {
    run(async {
        let server = Server::start().await;
        server.put(&["a"]).await;
        let mut client = server.client().await;
        let disabled = json!({ "status": "ReceiveDisabled" });
        client.ask("updateQueue", json!({ "path": "q", "properties": disabled })).await;
        let properties = json!({ "requiresSession": true });
        client.ask("createQueue", json!({ "path": "steps", "properties": properties })).await;
        for (link, path, condition) in
            [(1, "q", "EntityDisabled"), (2, "steps", "InvalidOperation")]
        {
            let attach = json!({ "link": link, "path": path, "role": "receiver" });
            assert_eq!(client.ask("attach", attach).await["done"], json!({}), "{path}");
            let peek = json!({ "link": link, "from": 0, "maxCount": 1 });
            assert!(client.ask("peek", peek).await["received"].is_object(), "{path}");
            client.ask("credit", json!({ "link": link, "upTo": 1 })).await;
            let detached = client.pushed("detached").await;
            assert_eq!(
                (&detached["link"], &detached["error"]["condition"]),
                (&json!(link), &json!(condition))
            );
        }
        // Credit given before the answer is not lost.
        let id = 1_000;
        client
            .frame_of(json!([
                { "id": id, "attach": { "link": 3, "path": "q", "role": "receiver" } },
                { "credit": { "link": 3, "upTo": 1 } },
            ]))
            .await;
        assert_eq!(client.answer(id).await["done"], json!({}));
        assert_eq!(client.pushed("detached").await["link"], 3);
        server.stop().await;
    });
}

/// An id in use is refused, so that no two answers share it. The request that has it is kept: its
/// message is delivered, and it can be withdrawn. The refused request takes nothing.
#[test]
fn a_request_id_that_is_in_use_is_refused() {
    run(async {
        let server = Server::start().await;
        let mut client = server.client().await;
        client.receive_with(None).await;
        let receive = json!({ "link": 1, "maxCount": 1, "waitSeconds": 60 });
        client.frame_of(json!([{ "id": 900, "receive": receive }])).await;
        client.frame_of(json!([{ "id": 900, "receive": receive }])).await;
        let refused = client.pushed("error").await;
        assert_eq!(refused["condition"], "ArgumentError");
        assert!(refused["detail"].as_str().unwrap().contains("900"), "{refused}");
        client.frame_of(json!([{ "receive": receive }])).await;
        assert_eq!(client.pushed("error").await["condition"], "ArgumentError");
        client
            .frame_of(json!([{ "receiveDeferred": { "link": 1, "sequenceNumbers": [1] } }]))
            .await;
        assert_eq!(client.pushed("error").await["condition"], "ArgumentError");
        server.put(&["a", "b"]).await;
        let got = client.answer(900).await;
        assert_eq!(got["received"]["messages"][0]["body"], "a");
        assert_eq!(server.delivery_counts().await.len(), 2);
        assert_eq!(available(&server).await, 1);
        // After the answer the id is free again.
        client.frame_of(json!([{ "id": 900, "heartbeat": {} }])).await;
        assert_eq!(client.answer(900).await["done"], json!({}));
        server.stop().await;
    });
}

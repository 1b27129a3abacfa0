//! Sessions on the wire: accepts, the link of a session, its lock, its state, and invalid input.

use peeklock_core::command::{Command, SessionCounts};
use peeklock_core::description::{EntityStatus, QueueUpdate};
use peeklock_core::message::Message;
use peeklock_core::time::TimeSpan;
use serde_json::{Value as Json, json};

use super::client::Client;
use super::server::{Plan, Server, run};

/// Starts a listener with a queue `s` that requires sessions and whose locks last 30 s.
async fn start() -> Server {
    with_sessions(Plan::new()).await
}

async fn with_sessions(plan: Plan) -> Server {
    let server = plan.start().await;
    let properties = QueueUpdate {
        requires_session: Some(true),
        lock_duration: Some(TimeSpan::from_seconds(30)),
        ..QueueUpdate::default()
    };
    server.broker.create_queue("s", properties).await.unwrap();
    server
}

/// Sends texts to a session without the transport.
async fn put(server: &Server, session: &str, texts: &[&str]) {
    let entity = server.broker.entity("s").unwrap();
    for text in texts {
        let message = Message::new((*text).to_owned());
        let message = Message { session_id: Some(session.to_owned()), ..message };
        let message = server.broker.inbound(message);
        entity.call(Command::Send { message }).await.unwrap();
    }
}

/// Advances the clock, and waits until all due work is done.
async fn advance(server: &Server, seconds: i64) {
    server.clock.advance(TimeSpan::from_seconds(seconds));
    sessions(server).await;
}

async fn sessions(server: &Server) -> SessionCounts {
    server.broker.describe_queue("s").await.unwrap().sessions.unwrap()
}

async fn until_locked(server: &Server, count: u64) {
    while sessions(server).await.locked != count {
        tokio::task::yield_now().await;
    }
}

/// Accepts session `a` as link 1 with this credit; returns the end of its lock.
async fn hold(client: &mut Client, credit: u32) -> Json {
    let accept = json!({ "link": 1, "path": "s", "sessionId": "a", "credit": credit });
    let answer = client.ask("acceptSession", accept).await;
    assert_eq!(answer["sessionAccepted"]["sessionId"], "a", "{answer}");
    answer["sessionAccepted"]["lockedUntilUtc"].clone()
}

fn numbered(from: u64, texts: &[&str]) -> Vec<(u64, String)> {
    (from..).zip(texts.iter().map(|text| (*text).to_owned())).collect()
}

fn settle(decision: &str, from: u32, to: u32) -> Json {
    json!({ "link": 1, "decision": decision, "ranges": [[from, to]] })
}

#[track_caller]
fn refused(answer: &Json, condition: &str) {
    assert_eq!(answer["error"]["condition"], condition, "{answer}");
}

/// SES-05, SES-10, SES-12, SES-14, SES-19, SES-20, SES-21: credit, order, settlement by number,
/// renewal.
#[test]
fn a_session_is_delivered_in_order_under_one_lock() {
    run(async {
        let server = start().await;
        put(&server, "a", &["1", "2", "3"]).await;
        put(&server, "b", &["other"]).await;
        let mut client = server.client().await;
        assert_eq!(hold(&mut client, 2).await, "2026-05-01T12:00:30Z");
        assert_eq!(client.deliveries(2).await, numbered(1, &["1", "2"]));
        assert_eq!(client.ask("settle", settle("abandon", 1, 1)).await["settled"], json!({}));
        client.ask("credit", json!({ "link": 1, "upTo": 4 })).await;
        assert_eq!(client.deliveries(2).await, numbered(3, &["1", "3"]));
        let renew = json!({ "link": 1, "ranges": [[2, 2]] });
        let renewed = client.ask("renew", renew).await;
        let failed = &renewed["renewed"]["failed"][0]["error"]["condition"];
        assert_eq!(failed, "InvalidOperation", "{renewed}");
        advance(&server, 20).await;
        let renewed = client.ask("renewSession", json!({ "link": 1 })).await;
        assert_eq!(renewed["renewed"]["lockedUntilUtc"], "2026-05-01T12:00:50Z");
        advance(&server, 29).await;
        assert_eq!(client.ask("settle", settle("complete", 2, 4)).await["settled"], json!({}));
        let again = client.ask("settle", settle("complete", 2, 2)).await;
        assert_eq!(again["settled"]["failed"][0]["error"]["condition"], "MessageLockLost");
        assert!(client.items.is_empty(), "{:?}", client.items);
        server.stop().await;
    });
}

/// SES-24, PEK-07, SES-29, CNT-11, DEL-07: state as text and as bytes, peeks, session ids, counts.
#[test]
fn state_and_session_ids_are_returned_unchanged() {
    run(async {
        let server = start().await;
        put(&server, "a", &["1", "2"]).await;
        put(&server, "b", &["3"]).await;
        let mut client = server.client().await;
        hold(&mut client, 0).await;
        let link = json!({ "link": 1 });
        assert_eq!(client.ask("getSessionState", link.clone()).await["sessionState"], json!({}));
        for state in [json!({ "state": "step 3" }), json!({ "stateBase64": "/wA=" })] {
            let mut set = state.clone();
            set["link"] = 1.into();
            assert_eq!(client.ask("setSessionState", set).await["done"], json!({}));
            let got = client.ask("getSessionState", link.clone()).await;
            assert_eq!(got["sessionState"], state);
        }
        let queue = client.ask("getQueue", json!({ "path": "s" })).await;
        let runtime = &queue["queue"]["runtime"];
        assert_eq!(
            (&runtime["sessionCount"], &runtime["lockedSessionCount"]),
            (&json!(2), &json!(1))
        );
        let plain = client.ask("getQueue", json!({ "path": "q" })).await;
        assert!(plain["queue"]["runtime"].get("sessionCount").is_none(), "{plain}");
        let list = async |client: &mut Client, more: Json| {
            let mut list = json!({ "path": "s" });
            list.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            client.ask("listSessions", list).await["sessions"]["sessionIds"].clone()
        };
        assert_eq!(list(&mut client, json!({})).await, json!(["a", "b"]));
        assert_eq!(list(&mut client, json!({ "skip": 1, "top": 5 })).await, json!(["b"]));
        let active = json!({ "withActiveMessages": true });
        assert_eq!(list(&mut client, active).await, json!(["a", "b"]));
        let after = json!({ "stateSetAfterUtc": "2026-05-01T11:00:00Z" });
        assert_eq!(list(&mut client, after).await, json!(["a"]));
        let bodies = |answer: &Json| -> Vec<String> {
            let messages = answer["received"]["messages"].as_array().unwrap();
            messages.iter().map(|one| one["body"].as_str().unwrap().to_owned()).collect()
        };
        let peek = json!({ "link": 1, "from": 0, "maxCount": 9 });
        assert_eq!(bodies(&client.ask("peek", peek).await), ["1", "2"]);
        let other = json!({ "link": 1, "sessionId": "b", "from": 0, "maxCount": 9 });
        assert_eq!(bodies(&client.ask("peekSession", other).await), ["3"]);
        let all = json!({ "link": 2, "path": "s", "role": "receiver" });
        client.ask("attach", all).await;
        let peek = json!({ "link": 2, "from": 0, "maxCount": 9 });
        assert_eq!(bodies(&client.ask("peek", peek).await), ["1", "2", "3"]);
        advance(&server, 1).await;
        let unlocked = client.ask("deleteUnlocked", json!({ "path": "s" })).await;
        assert_eq!(unlocked["deleted"]["count"], 1);
        assert_eq!(client.ask("purge", json!({ "link": 1 })).await["deleted"]["count"], 2);
        server.stop().await;
    });
}

/// SES-15, SES-30: when the lock expires, the holder is notified, and all its later requests fail
/// with the reason.
#[test]
fn an_expired_session_lock_is_reported_and_stays_lost() {
    run(async {
        let server = start().await;
        put(&server, "a", &["1", "2"]).await;
        let mut client = server.client().await;
        hold(&mut client, 2).await;
        client.deliveries(2).await;
        advance(&server, 30).await;
        let lost = client.pushed("detached").await;
        assert_eq!(
            (&lost["link"], &lost["error"]["condition"]),
            (&json!(1), &json!("SessionLockLost"))
        );
        let late = client.ask("settle", settle("complete", 1, 2)).await;
        assert_eq!(late["settled"]["failed"][0]["error"]["condition"], "SessionLockLost", "{late}");
        // Also for deliveries that the broker has forgotten or that never existed.
        let none = client.ask("settle", settle("complete", 8, 9)).await;
        assert_eq!(none["settled"]["failed"][0]["error"]["condition"], "SessionLockLost", "{none}");
        for (operation, body) in [
            ("receive", json!({ "link": 1, "maxCount": 1, "waitSeconds": 0 })),
            ("receiveDeferred", json!({ "link": 1, "sequenceNumbers": [1] })),
            ("renewSession", json!({ "link": 1 })),
            ("getSessionState", json!({ "link": 1 })),
            ("setSessionState", json!({ "link": 1, "state": "late" })),
            ("deleteBatch", json!({ "link": 1, "maxCount": 1 })),
        ] {
            refused(&client.ask(operation, body).await, "SessionLockLost");
        }
        client.ask("credit", json!({ "link": 1, "upTo": 9 })).await;
        assert_eq!(client.pushed("detached").await["error"]["condition"], "SessionLockLost");
        // Another client holds it now; the end of the old link takes nothing from it.
        let mut other = server.client().await;
        hold(&mut other, 9).await;
        let group = other.pushed("deliveries").await;
        assert_eq!(group["messages"][0]["deliveryCount"], 2);
        assert_eq!(client.ask("detach", json!({ "link": 1 })).await["done"], json!({}));
        let done = other.ask("settle", settle("complete", 1, 1)).await;
        assert_eq!(done["settled"], json!({}));
        server.stop().await;
    });
}

/// SES-13, SES-31, SES-33: a session is released without a count when its link or connection ends
/// in order, and with a count when it is released explicitly or the connection breaks.
#[test]
fn the_end_of_a_link_decides_the_delivery_count() {
    run(async {
        let server = start().await;
        put(&server, "a", &["1"]).await;
        let mut counts = Vec::new();
        for end in ["detach", "close", "release", "break", "look"] {
            let mut client = server.client().await;
            hold(&mut client, 1).await;
            let group = client.pushed("deliveries").await;
            counts.push(group["messages"][0]["deliveryCount"].as_u64().unwrap());
            match end {
                "detach" => drop(client.ask("detach", json!({ "link": 1 })).await),
                "release" => {
                    drop(client.ask("detach", json!({ "link": 1, "release": true })).await)
                }
                "close" => client.close(Some(1_000)).await,
                _ => drop(client),
            }
            until_locked(&server, 0).await;
        }
        assert_eq!(counts, [1, 1, 1, 2, 3]);
        server.stop().await;
    });
}

/// SES-07, SES-08: a waiting accept is answered by a session, by its timeout, or by its withdrawal.
#[test]
fn an_accept_waits_for_the_next_session() {
    run(async {
        let server = start().await;
        let mut client = server.client().await;
        let next =
            |link: u32, wait: Json| json!({ "link": link, "path": "s", "waitSeconds": wait });
        refused(&client.ask("acceptSession", next(1, json!(0))).await, "ServiceTimeout");
        let first = client.begin("acceptSession", next(1, json!(60))).await;
        let second = client.begin("acceptSession", json!({ "link": 2, "path": "s" })).await;
        let third = client.begin("acceptSession", next(3, json!(90))).await;
        // Its link number is taken, and no request can use it yet.
        refused(&client.ask("acceptSession", next(1, json!(1))).await, "InvalidOperation");
        let sender = json!({ "link": 1, "path": "s", "role": "sender" });
        refused(&client.ask("attach", sender).await, "InvalidOperation");
        for operation in ["detach", "renewSession", "drain"] {
            refused(&client.ask(operation, json!({ "link": 1 })).await, "InvalidOperation");
        }
        client.ask("withdraw", json!({ "request": third })).await;
        refused(&client.answer(third).await, "OperationCancelled");
        put(&server, "b", &["1"]).await;
        let answer = client.answer(first).await;
        advance(&server, 1).await;
        assert_eq!(answer["sessionAccepted"]["sessionId"], "b", "{answer}");
        // The session is empty when its lock ends.
        assert_eq!(client.ask("deleteBatch", json!({ "link": 1 })).await["deleted"]["count"], 1);
        advance(&server, 61).await;
        refused(&client.answer(second).await, "ServiceTimeout");
        // The numbers are free again.
        hold_over(&mut client, 2, "x").await;
        hold_over(&mut client, 3, "y").await;
        server.stop().await;
    });
}

async fn hold_over(client: &mut Client, link: u32, session: &str) {
    let accept = json!({ "link": link, "path": "s", "sessionId": session });
    let answer = client.ask("acceptSession", accept).await;
    assert_eq!(answer["sessionAccepted"]["sessionId"], session, "{answer}");
}

/// SES-03, SES-06, SES-09: invalid requests get typed errors and change nothing.
#[test]
fn bad_requests_about_sessions_are_refused() {
    run(async {
        let server = start().await;
        let mut client = server.client().await;
        hold(&mut client, 0).await;
        let path = |path: &str| json!({ "link": 9, "path": path, "sessionId": "x" });
        let id = |id: &str| json!({ "link": 9, "path": "s", "sessionId": id });
        let wait = |wait: Json| json!({ "link": 9, "path": "s", "waitSeconds": wait });
        for (body, condition) in [
            (path("absent"), "EntityNotFound"),
            (path("q"), "InvalidOperation"),
            (path("s/$deadletterqueue"), "InvalidOperation"),
            (path("a//b"), "EntityNotFound"),
            (id(&"x".repeat(129)), "ArgumentOutOfRange"),
            (id("a"), "SessionCannotBeLocked"),
            (wait(json!(-1)), "ArgumentOutOfRange"),
            (wait(json!("long")), "ArgumentError"),
            (json!({ "link": 9, "sessionId": "x" }), "ArgumentError"),
            (json!({ "link": 9, "path": "s", "session": "x" }), "ArgumentError"),
            (json!({ "link": 9, "path": "s", "sessionId": 7 }), "ArgumentError"),
            (json!({ "link": 9, "path": "s", "mode": "steal" }), "ArgumentError"),
        ] {
            let answer = client.ask("acceptSession", body.clone()).await;
            assert_eq!(answer["error"]["condition"], condition, "{body}: {answer}");
        }
        let state = |more: Json| {
            let mut set = json!({ "link": 1 });
            set.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
            set
        };
        for more in [
            json!({ "state": "a", "stateBase64": "YQ==" }),
            json!({ "stateBase64": "?" }),
            json!({ "state": 1 }),
            json!({ "State": "a" }),
        ] {
            refused(&client.ask("setSessionState", state(more)).await, "ArgumentError");
        }
        let large = state(json!({ "state": "x".repeat((1 << 20) + 1) }));
        refused(&client.ask("setSessionState", large).await, "MessageSizeExceeded");
        client.ask("attach", json!({ "link": 2, "path": "s", "role": "receiver" })).await;
        client.ask("attach", json!({ "link": 3, "path": "s", "role": "sender" })).await;
        for link in [2, 3, 4] {
            for operation in ["renewSession", "getSessionState", "setSessionState"] {
                let answer = client.ask(operation, json!({ "link": link })).await;
                refused(&answer, "InvalidOperation");
            }
        }
        let peek = json!({ "link": 3, "sessionId": "a", "from": 0, "maxCount": 1 });
        refused(&client.ask("peekSession", peek).await, "InvalidOperation");
        let receive = json!({ "link": 2, "maxCount": 1, "waitSeconds": 0 });
        refused(&client.ask("receive", receive).await, "InvalidOperation");
        let both = json!({ "path": "s", "withActiveMessages": true,
            "stateSetAfterUtc": "2026-05-01T12:00:00Z" });
        refused(&client.ask("listSessions", both).await, "ArgumentError");
        refused(&client.ask("listSessions", json!({ "path": "q" })).await, "InvalidOperation");
        refused(&client.ask("listSessions", json!({ "path": "-" })).await, "EntityNotFound");
        refused(&client.ask("deleteUnlocked", json!({ "path": "q" })).await, "InvalidOperation");
        // Without an id the client would never learn of the session.
        client
            .frame_of(json!([{ "acceptSession": { "link": 9, "path": "s", "sessionId": "z" } }]))
            .await;
        assert_eq!(client.pushed("error").await["condition"], "ArgumentError");
        // The held session is still held.
        assert!(client.ask("renewSession", json!({ "link": 1 })).await.get("renewed").is_some());
        assert_eq!(sessions(&server).await.locked, 1);
        server.stop().await;
    });
}

/// ENT-24, ENT-25: a queue that stops deliveries leaves the session to its holder; credit attaches
/// it again.
#[test]
fn a_session_is_kept_while_its_queue_is_disabled() {
    run(async {
        let server = start().await;
        put(&server, "a", &["1", "2"]).await;
        let mut client = server.client().await;
        hold(&mut client, 1).await;
        assert_eq!(client.deliveries(1).await, numbered(1, &["1"]));
        let set = async |status| {
            let update = QueueUpdate { status: Some(status), ..QueueUpdate::default() };
            server.broker.update_queue("s", update, None).await.unwrap();
        };
        set(EntityStatus::ReceiveDisabled).await;
        assert_eq!(client.pushed("detached").await["error"]["condition"], "EntityDisabled");
        client.ask("credit", json!({ "link": 1, "upTo": 2 })).await;
        assert_eq!(client.pushed("detached").await["error"]["condition"], "EntityDisabled");
        assert_eq!(client.ask("settle", settle("complete", 1, 1)).await["settled"], json!({}));
        set(EntityStatus::Active).await;
        client.ask("credit", json!({ "link": 1, "upTo": 2 })).await;
        assert_eq!(client.deliveries(1).await, numbered(2, &["2"]));
        server.stop().await;
    });
}

/// SET-21, SES-13: a connection that is lost and resumed keeps its session, and its accept keeps
/// waiting. Without a resumption in time it loses the session, with a count.
#[test]
fn a_session_is_held_over_a_resumption() {
    run(async {
        let mut plan = Plan::new();
        plan.config.grace = std::time::Duration::from_millis(500);
        let server = with_sessions(plan).await;
        put(&server, "a", &["1", "2"]).await;
        let mut client = Client::hello(server.address, json!({ "graceSeconds": 30 })).await;
        hold(&mut client, 1).await;
        assert_eq!(client.deliveries(1).await, numbered(1, &["1"]));
        let waiting = json!({ "link": 2, "path": "s" });
        let accept = client.begin("acceptSession", waiting).await;
        client.ask("heartbeat", json!({})).await;
        let token = client.welcome["resumeToken"].clone();
        let resume = json!({ "resumeToken": token, "received": client.seen });
        let (seen, next_id) = (client.seen, client.next_id);
        drop(client);
        let mut other = server.client().await;
        let same = json!({ "link": 1, "path": "s", "sessionId": "a" });
        refused(&other.ask("acceptSession", same.clone()).await, "SessionCannotBeLocked");
        let back = json!({ "graceSeconds": 30, "resume": resume });
        let mut client = Client::hello(server.address, back).await;
        assert_eq!(client.welcome["resumed"], true);
        (client.seen, client.next_id) = (seen, next_id);
        refused(&other.ask("acceptSession", same.clone()).await, "SessionCannotBeLocked");
        assert_eq!(client.ask("settle", settle("complete", 1, 1)).await["settled"], json!({}));
        client.ask("credit", json!({ "link": 1, "upTo": 2 })).await;
        assert_eq!(client.deliveries(1).await, numbered(2, &["2"]));
        put(&server, "b", &["3"]).await;
        assert_eq!(client.answer(accept).await["sessionAccepted"]["sessionId"], "b");
        drop(client);
        until_locked(&server, 0).await;
        let again = json!({ "link": 1, "path": "s", "sessionId": "a", "credit": 1 });
        other.ask("acceptSession", again).await;
        let group = other.pushed("deliveries").await;
        assert_eq!(group["messages"][0]["deliveryCount"], 2);
        server.stop().await;
    });
}

/// When the broker stops, a waiting accept ends, and messages of held sessions can be settled.
#[test]
fn a_stop_ends_accepts_that_wait() {
    run(async {
        let server = start().await;
        put(&server, "a", &["1"]).await;
        let mut client = server.client().await;
        hold(&mut client, 1).await;
        client.deliveries(1).await;
        let waiting = client.begin("acceptSession", json!({ "link": 2, "path": "s" })).await;
        client.ask("heartbeat", json!({})).await;
        let stopping = tokio::spawn(server.running.stop(std::time::Duration::from_secs(20)));
        refused(&client.answer(waiting).await, "OperationCancelled");
        assert_eq!(client.ask("settle", settle("complete", 1, 1)).await["settled"], json!({}));
        assert_eq!(client.closed().await.unwrap().0, 1_001);
        stopping.await.unwrap();
        server.broker.stop(std::time::Duration::ZERO).await.unwrap();
    });
}

/// CON-26, CON-27: an operator breaks the lock of a session, which detaches its holder, and then
/// sets the state that the next holder reads. While the session is held, the state stays.
#[test]
fn operator_breaks_a_session_and_sets_its_state() {
    run(async {
        let server = start().await;
        put(&server, "a", &["1", "2"]).await;
        let mut holder = server.client().await;
        hold(&mut holder, 2).await;
        holder.deliveries(2).await;
        let mut operator = server.client().await;
        let set = json!({ "path": "s", "sessionId": "a", "state": "step 3" });
        let refused = operator.ask("setStateOfSession", set.clone()).await;
        assert_eq!(refused["error"]["condition"], "SessionCannotBeLocked");
        let session = json!({ "path": "s", "sessionId": "a" });
        let broken = operator.ask("breakSession", session.clone()).await;
        assert_eq!(broken["locksBroken"], json!({ "count": 1 }));
        let detached = holder.pushed("detached").await;
        assert_eq!(detached["error"]["condition"], "SessionLockLost", "{detached}");
        let again = operator.ask("breakSession", session).await;
        assert_eq!(again["locksBroken"], json!({ "count": 0 }));
        assert_eq!(operator.ask("setStateOfSession", set).await["done"], json!({}));
        hold(&mut operator, 2).await;
        operator.deliveries(2).await;
        let state = operator.ask("getSessionState", json!({ "link": 1 })).await;
        assert_eq!(state["sessionState"], json!({ "state": "step 3" }));
        server.stop().await;
    });
}

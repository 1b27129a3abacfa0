//! Questions of operators over the JSON API.

use peeklock_core::command::{Command, Outcome, ReceiveMode};
use peeklock_core::description::{EntityKind, QueueUpdate};
use peeklock_core::message::{Body, Message};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::{Broker, ChecksConfig, JourneysConfig, SeriesConfig};
use serde_json::{Value, json};

use super::client::Answer;
use super::server::{Plan, Server};

const Q: &str = "/$api/v1/queues/q";

async fn get(server: &Server, path: &str) -> Value {
    let answer = server.ask(&format!("GET {path}"), "").await;
    assert_eq!(answer.status, 200, "{path}: {}", answer.text());
    answer.json()
}

async fn refused(server: &Server, path: &str, status: u16, code: &str) {
    let answer = server.ask(&format!("GET {path}"), "").await;
    assert_eq!((answer.status, answer.json()["code"].as_str()), (status, Some(code)), "{path}");
}

async fn send(broker: &Broker, path: &str, message: Message) {
    let message = broker.inbound(message);
    broker.entity(path).unwrap().call(Command::Send { message }).await.unwrap();
}

/// Receives one message under lock and returns the token of its lock as text.
async fn lock(server: &Server) -> String {
    let answer = server.ask(&format!("POST {Q}/messages/receive"), "{}").await;
    answer.json()["messages"][0]["lockToken"].as_str().unwrap().to_owned()
}

fn numbers(page: &Value) -> Vec<u64> {
    let heads = page["heads"].as_array().unwrap();
    heads.iter().map(|head| head["sequenceNumber"].as_u64().unwrap()).collect()
}

/// CON-01, CON-02, CON-75: heads of all states are listed by pages in both directions, without
/// lock tokens, and AccessedAt stays.
#[tokio::test]
async fn heads_are_listed_by_page_and_change_nothing() {
    let server = Server::start().await;
    for number in 0..5 {
        let message = Message::new("x".repeat(300)).with_subject(number.to_string());
        send(&server.broker, "q", message).await;
    }
    let later = Timestamp::parse("2026-05-01T13:00:00Z").unwrap();
    let scheduled = Message::new("late").with_scheduled_enqueue_time(later);
    send(&server.broker, "q", scheduled).await;
    let token = lock(&server).await;
    let before = get(&server, Q).await;
    server.clock.advance(TimeSpan::from_seconds(5));

    let page = get(&server, &format!("{Q}/heads?count=2")).await;
    assert_eq!(numbers(&page), [1, 2]);
    let (locked, active) = (&page["heads"][0], &page["heads"][1]);
    assert_eq!((&locked["state"], &active["state"]), (&json!("locked"), &json!("active")));
    assert_eq!(locked["lock"]["takenAtUtc"], "2026-05-01T12:00:00Z");
    assert_eq!(locked["lock"]["lockedUntilUtc"], "2026-05-01T12:01:00Z");
    assert_eq!(locked["lock"]["renewalCount"], 0);
    assert_eq!((&active["subject"], active.get("lock")), (&json!("1"), None));
    assert_eq!((&active["bodySize"], &active["bodyKind"]), (&json!(300), &json!("data")));
    assert_eq!(active["bodyStart"], "x".repeat(256));
    assert_eq!(page["nowUtc"], "2026-05-01T12:00:05Z");
    let next = page["next"].as_str().unwrap();
    let page = get(&server, &format!("{Q}/heads?count=500&after={next}")).await;
    assert_eq!((numbers(&page), page.get("next")), (vec![3, 4, 5, 6], None));
    assert_eq!(page["heads"][3]["state"], "scheduled");
    assert_eq!(page["heads"][3]["scheduledEnqueueTimeUtc"], "2026-05-01T13:00:00Z");

    let page = get(&server, &format!("{Q}/heads?descending=true&state=active&count=3")).await;
    assert_eq!(numbers(&page), [5, 4, 3]);
    let page = get(&server, &format!("{Q}/heads?state=locked&state=scheduled")).await;
    assert_eq!(numbers(&page), [1, 6]);
    let page = get(&server, &format!("{Q}/heads?from=4&state=active")).await;
    assert_eq!(numbers(&page), [4, 5]);
    let page = get(&server, &format!("{Q}/heads?sort=scheduledTime")).await;
    assert_eq!(numbers(&page), [6]);
    let head = get(&server, &format!("{Q}/messages/1/head")).await;
    assert_eq!((&head["sequenceNumber"], &head["state"]), (&json!(1), &json!("locked")));
    refused(&server, &format!("{Q}/messages/99/head"), 404, "MessageNotFound").await;

    let all = server.ask(&format!("GET {Q}/heads"), "").await;
    assert!(!all.text().contains(&token), "{}", all.text());
    assert_eq!(get(&server, Q).await, before);
    server.stop().await;
}

/// CON-02: bounds and misspelt values are refused with the bound or the names.
#[tokio::test]
async fn questions_with_wrong_values_are_refused() {
    let server = Server::start().await;
    for (query, code) in [
        ("heads?count=0", "ArgumentOutOfRange"),
        ("heads?count=501", "ArgumentOutOfRange"),
        ("heads?count=-1", "ArgumentError"),
        ("heads?state=lost", "ArgumentError"),
        ("heads?sort=size", "ArgumentError"),
        ("heads?from=1&fromUtc=2026-05-01T12:00:00Z", "ArgumentError"),
        ("heads?after=AAAA", "ArgumentError"),
        ("heads?after=%00", "ArgumentError"),
        ("heads?descending=yes", "ArgumentError"),
        ("heads?top=1", "ArgumentError"),
        ("locks?top=501", "ArgumentOutOfRange"),
        ("timeline?slotSeconds=9", "ArgumentOutOfRange"),
        ("timeline?slotSeconds=86401", "ArgumentOutOfRange"),
        ("timeline?slots=0", "ArgumentOutOfRange"),
        ("timeline?slots=241", "ArgumentOutOfRange"),
    ] {
        refused(&server, &format!("{Q}/{query}"), 400, code).await;
    }
    for query in ["heads?count=500", "timeline?slotSeconds=10&slots=240", "locks?top=500"] {
        get(&server, &format!("{Q}/{query}")).await;
    }
    // A position belongs to its list.
    server.send("a").await;
    server.send("b").await;
    let next =
        get(&server, &format!("{Q}/heads?count=1")).await["next"].as_str().unwrap().to_owned();
    refused(&server, &format!("{Q}/locks?after={next}"), 400, "ArgumentError").await;
    refused(&server, "/$api/v1/queues/none/heads", 404, "EntityNotFound").await;
    server.stop().await;
}

async fn body(server: &Server, number: u64, range: &str) -> Answer {
    let range = if range.is_empty() { String::new() } else { format!("\nRange: {range}") };
    server.ask(&format!("GET {Q}/messages/{number}/body{range}"), "").await
}

/// CON-03, CON-69: a body is read whole or by range, at most 4 MiB, and leaves as an
/// attachment in a sandbox, also with the content type of a document.
#[tokio::test]
async fn body_is_read_by_range_and_is_no_document() {
    let server = Server::start().await;
    let long: Vec<u8> = (0..700_000_u32).map(|byte| (byte % 251) as u8).collect();
    send(&server.broker, "q", Message::new(long.clone()).with_content_type("text/html")).await;
    send(&server.broker, "q", Message::new("")).await;
    let value =
        Message { body: Body::Value(vec![0, 0x53, 0x77, 0x40].into()), ..Message::default() };
    send(&server.broker, "q", value).await;

    let whole = body(&server, 1, "").await;
    assert_eq!((whole.status, whole.body == long), (200, true));
    assert_eq!(whole.header("content-length"), Some("700000"));
    for (name, value) in [
        ("content-type", "application/octet-stream"),
        ("content-disposition", "attachment"),
        ("content-security-policy", "sandbox"),
        ("x-content-type-options", "nosniff"),
        ("cache-control", "no-store"),
        ("peeklock-body-kind", "data"),
    ] {
        assert_eq!(whole.header(name), Some(value), "{name}");
    }
    for (range, from, to) in [
        ("bytes=0-0", 0, 1),
        ("bytes=300000-600000", 300_000, 600_001),
        ("bytes=699999-", 699_999, 700_000),
        ("bytes=-5", 699_995, 700_000),
        ("bytes=262143-900000", 262_143, 700_000),
    ] {
        let part = body(&server, 1, range).await;
        assert_eq!((part.status, part.body == long[from..to]), (206, true), "{range}");
        let place = format!("bytes {from}-{}/700000", to - 1);
        assert_eq!(part.header("content-range"), Some(place.as_str()));
        assert_eq!(part.header("content-disposition"), Some("attachment"));
    }
    let after_end = body(&server, 1, "bytes=700000-").await;
    assert_eq!(
        (after_end.status, after_end.json()["code"].as_str()),
        (416, Some("ArgumentOutOfRange"))
    );
    let empty = body(&server, 2, "").await;
    assert_eq!((empty.status, empty.body.len()), (200, 0));
    assert_eq!(body(&server, 2, "bytes=0-").await.status, 416);
    let value = body(&server, 3, "").await;
    assert_eq!(value.header("peeklock-body-kind"), Some("value"));
    assert_eq!(value.body, [0, 0x53, 0x77, 0x40]);
    assert_eq!(body(&server, 99, "").await.status, 404);
    server.stop().await;
}

/// CON-03: a range of more than 4 MiB is answered with its first 4 MiB.
#[tokio::test]
async fn range_over_four_mebibytes_is_cut() {
    let server = Server::start().await;
    let large =
        QueueUpdate { max_message_size_in_kilobytes: Some(16 << 10), ..QueueUpdate::default() };
    server.broker.create_queue("large", large).await.unwrap();
    send(&server.broker, "large", Message::new(vec![7; (4 << 20) + 2])).await;
    let head = "GET /$api/v1/queues/large/messages/1/body\nRange: bytes=1-";
    let part = server.ask(head, "").await;
    assert_eq!((part.status, part.body.len()), (206, 4 << 20));
    assert_eq!(part.header("content-range"), Some("bytes 1-4194304/4194306"));
    server.stop().await;
}

/// CON-25, CON-24: locks are listed with holder, by end and by age, and a renewal is counted.
#[tokio::test]
async fn locks_are_listed_with_their_holder() {
    let server = Server::start().await;
    for _ in 0..3 {
        server.send("a").await;
    }
    let first = lock(&server).await;
    server.clock.advance(TimeSpan::from_seconds(10));
    lock(&server).await;
    let renew = server.ask(&format!("POST {Q}/locks/{first}/renew"), "").await;
    assert_eq!(renew.status, 200);
    let by_end = get(&server, &format!("{Q}/locks")).await;
    assert_eq!(by_end["total"], 2);
    let by_age = get(&server, &format!("{Q}/locks?sort=age&top=1")).await;
    let oldest = &by_age["locks"][0];
    assert_eq!(
        (&oldest["sequenceNumber"], &oldest["lock"]["renewalCount"]),
        (&json!(1), &json!(1))
    );
    assert_eq!(oldest["lock"]["takenAtUtc"], "2026-05-01T12:00:00Z");
    assert_eq!(oldest["lock"]["lockedUntilUtc"], "2026-05-01T12:01:10Z");
    let holder = &oldest["lock"]["holder"];
    assert_eq!((&holder["transport"], &holder["isConnected"]), (&json!("http"), &json!(false)));
    let next = by_age["next"].as_str().unwrap();
    let rest = get(&server, &format!("{Q}/locks?sort=age&after={next}")).await;
    assert_eq!(rest["locks"][0]["sequenceNumber"], 2);
    assert_eq!(rest["locks"].as_array().unwrap().len(), 1);
    assert!(!rest.to_string().contains(&first) && !by_end.to_string().contains(&first));
    server.stop().await;
}

/// CON-27: sessions are sorted by a column, and a state is read while another client holds the
/// session.
#[tokio::test]
async fn sessions_are_listed_and_their_state_is_read() {
    let server = Server::start().await;
    let sessions = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
    server.broker.create_queue("steps", sessions).await.unwrap();
    for (session, count) in [("a", 1), ("b", 3), ("c/d", 2)] {
        for _ in 0..count {
            send(&server.broker, "steps", Message::new("x").with_session_id(session)).await;
        }
    }
    let entity = server.broker.entity("steps").unwrap();
    let receiver = server.broker.receiver_id();
    let accept = Command::AcceptSession {
        session: Some("c/d".into()),
        receiver,
        mode: ReceiveMode::PeekLock,
        wait: TimeSpan::ZERO,
    };
    let Outcome::SessionAccepted { session_entrance, .. } = entity.call(accept).await.unwrap()
    else {
        panic!()
    };
    let set = peeklock_core::command::SessionCommand::SetState { state: Some("step 3".into()) };
    let set = Command::InSession { receiver, command: set };
    entity.with_session_entrance(session_entrance).call(set).await.unwrap();

    let path = "/$api/v1/queues/steps/sessions";
    let names = |page: &Value| -> Vec<String> {
        let rows = page["sessions"].as_array().unwrap();
        rows.iter().map(|row| row["sessionId"].as_str().unwrap().to_owned()).collect()
    };
    let page =
        get(&server, &format!("{path}/details?sort=activeMessageCount&descending=true&top=2"))
            .await;
    assert_eq!((names(&page), &page["total"]), (vec!["b".to_owned(), "c/d".to_owned()], &json!(3)));
    let next = page["next"].as_str().unwrap();
    let page = get(
        &server,
        &format!("{path}/details?sort=activeMessageCount&descending=true&after={next}"),
    )
    .await;
    assert_eq!(names(&page), ["a"]);
    let page = get(&server, &format!("{path}/details")).await;
    assert_eq!(names(&page), ["a", "b", "c/d"]);
    let held = &page["sessions"][2];
    assert_eq!((&held["stateSize"], &held["lock"]["isOfSession"]), (&json!(6), &json!(true)));

    let state = server.ask(&format!("GET {path}/c%2Fd/state"), "").await;
    assert_eq!((state.status, state.text()), (200, "step 3"));
    assert_eq!(state.header("content-security-policy"), Some("sandbox"));
    let state = server.ask(&format!("GET {path}/c%2Fd/state\nRange: bytes=5-9"), "").await;
    assert_eq!((state.status, state.text()), (206, "3"));
    assert_eq!(server.ask(&format!("GET {path}/a/state"), "").await.status, 204);
    refused(&server, &format!("{Q}/sessions/details"), 400, "InvalidOperation").await;
    server.stop().await;
}

/// CON-28: messages are counted by slot, in an entity and in the namespace.
#[tokio::test]
async fn timeline_counts_scheduled_messages_by_slot() {
    let server = Server::start().await;
    for seconds in [5, 15, 16, 100] {
        let at = server.broker.now().plus(TimeSpan::from_seconds(seconds));
        send(&server.broker, "q", Message::new("x").with_scheduled_enqueue_time(at)).await;
    }
    for path in [format!("{Q}/timeline"), "/$api/v1/timeline".to_owned()] {
        let timeline = get(&server, &format!("{path}?slotSeconds=10&slots=3")).await;
        assert_eq!(timeline["counts"], json!([1, 2, 0]), "{path}");
        assert_eq!((&timeline["before"], &timeline["later"]), (&json!(0), &json!(1)), "{path}");
        assert_eq!(timeline["fromUtc"], "2026-05-01T12:00:00Z");
    }
    server.stop().await;
}

/// CON-29, CON-30, CON-41, CON-57: the journey of a message that is gone, by number and by id.
#[tokio::test]
async fn journeys_are_read_by_number_and_by_id() {
    let mut plan = Plan::new();
    plan.journeys = Some(JourneysConfig::default());
    let server = plan.start().await;
    let message = Message::new("a").with_message_id("one & two");
    let message = server.broker.inbound(message);
    let queue = server.broker.entity("q").unwrap();
    queue.call(Command::Send { message }).await.unwrap();
    let receive = Command::Receive {
        mode: ReceiveMode::ReceiveAndDelete,
        count_max: 1,
        bytes_max: u64::MAX,
        wait: TimeSpan::from_seconds(1),
        holder: None,
    };
    queue.call(receive).await.unwrap();
    let by_id = "/$api/v1/journeys?messageId=one%20%26%20two";
    for path in [format!("{Q}/messages/1/journey"), by_id.to_owned(), format!("{by_id}&path=Q")] {
        let journey = get(&server, &path).await;
        let station = |place: usize| journey["stations"][place]["station"].as_str().unwrap();
        assert_eq!([0, 1, 2].map(station), ["accepted", "delivered", "received"], "{path}");
        assert_eq!(journey["stations"][2]["path"], "q");
        assert_eq!(journey["stations"][2]["sequenceNumber"], 1);
        assert_eq!(journey["completeSinceUtc"], "2026-05-01T12:00:00Z");
        assert_eq!(journey["nowUtc"], "2026-05-01T12:00:00Z");
    }
    let empty = get(&server, "/$api/v1/journeys?messageId=none").await;
    assert_eq!(empty["stations"], json!([]));
    server.broker.create_queue("other", QueueUpdate::default()).await.unwrap();
    let elsewhere = get(&server, &format!("{by_id}&path=other")).await;
    assert_eq!(elsewhere["stations"], json!([]));
    refused(&server, &format!("{by_id}&path=none"), 404, "EntityNotFound").await;
    server.broker.delete("q", EntityKind::Queue).await.unwrap();
    let deleted = get(&server, &format!("{Q}/messages/1/journey")).await;
    assert_eq!(deleted["stations"].as_array().unwrap().len(), 3);
    refused(&server, "/$api/v1/journeys", 400, "ArgumentError").await;
    refused(&server, &format!("{Q}/messages/x/journey"), 400, "ArgumentError").await;
    refused(&server, "/$api/v1/queues/none/messages/1/journey", 410, "EntityNotFound").await;
    server.stop().await;
    let off = Server::start().await;
    refused(&off, &format!("{Q}/messages/1/journey"), 400, "InvalidOperation").await;
    off.stop().await;
}

/// CON-31, CON-32, CON-41: values over time, with `null` for gaps.
#[tokio::test]
async fn series_are_read_by_column_and_resolution() {
    let mut plan = Plan::new();
    plan.series = Some(SeriesConfig::default());
    let server = plan.start().await;
    // The first sample.
    while server.clock.next_wake().is_none() {
        tokio::task::yield_now().await;
    }
    server.send("a").await;
    server.clock.advance(TimeSpan::from_seconds(1));
    for path in [format!("{Q}/series"), "/$api/v1/series".to_owned()] {
        let since = "fromUtc=2026-05-01T11:59:58Z&resolutionSeconds=1";
        let series =
            get(&server, &format!("{path}?{since}&column=accepted&column=waitP95Us")).await;
        let expected = json!({ "accepted": [null, null, 1], "waitP95Us": [null, null, null] });
        assert_eq!(series["columns"], expected, "{path}");
        assert_eq!(series["fromUtc"], "2026-05-01T11:59:58Z", "{path}");
        assert_eq!(series["resolutionSeconds"], 1, "{path}");
        let all = get(&server, &path).await;
        assert_eq!(
            (all["columns"].as_object().unwrap().len(), &all["resolutionSeconds"]),
            (30, &json!(60))
        );
        for (query, code) in [
            ("resolutionSeconds=2", "ArgumentOutOfRange"),
            ("fromUtc=2026-05-01T11:00:00Z&resolutionSeconds=1", "ArgumentOutOfRange"),
            ("column=none", "ArgumentError"),
            ("fromUtc=now", "ArgumentError"),
        ] {
            refused(&server, &format!("{path}?{query}"), 400, code).await;
        }
    }
    refused(&server, "/$api/v1/queues/none/series", 404, "EntityNotFound").await;
    server.stop().await;
}

/// CON-38, CON-41: nodes and edges, whole and near an entity.
#[tokio::test]
async fn topology_has_nodes_and_edges() {
    let server = Server::start().await;
    let update = QueueUpdate::default().with_forward_to("q");
    server.broker.create_queue("Other", update).await.unwrap();
    let topology = get(&server, "/$api/v1/topology?around=other&hops=1&top=9").await;
    assert_eq!((&topology["nodes"][1]["name"], &topology["nodeCount"]), (&json!("q"), &json!(2)));
    assert_eq!(topology["nodes"][0]["entity"]["path"], "Other");
    let expected = json!([{ "from": 0, "to": 1, "kind": "forward", "waiting": 0, "failed": 0 }]);
    assert_eq!(topology["edges"], expected);
    assert_eq!(topology["longestChain"], json!({ "hops": 1, "names": ["Other", "q"] }));
    assert_eq!(topology["hopCountMax"], 4);
    assert_eq!(get(&server, "/$api/v1/topology").await["nodes"].as_array().unwrap().len(), 2);
    for (query, status, code) in [
        ("around=none", 404, "EntityNotFound"),
        ("hops=1", 400, "ArgumentError"),
        ("around=q&hops=17", 400, "ArgumentOutOfRange"),
        ("top=2001", 400, "ArgumentOutOfRange"),
        ("sort=name", 400, "ArgumentError"),
    ] {
        refused(&server, &format!("/$api/v1/topology?{query}"), status, code).await;
    }
    server.stop().await;
}

/// CON-39, CON-41: findings are listed with their remedies, muted and unmuted.
#[tokio::test]
async fn findings_are_listed_and_muted() {
    let mut plan = Plan::new();
    plan.checks = Some(ChecksConfig::default());
    let server = plan.start().await;
    let update = QueueUpdate::default().with_forward_to("q");
    server.broker.create_queue("other", update).await.unwrap();
    server.broker.delete("q", EntityKind::Queue).await.unwrap();
    server.clock.advance(TimeSpan::from_minutes(1));
    let page = get(&server, "/$api/v1/checks").await;
    let finding = &page["findings"][0];
    assert_eq!(
        (&finding["kind"], &finding["weight"]),
        (&json!("destinationMissing"), &json!("error"))
    );
    assert_eq!((&finding["path"], &finding["others"]), (&json!("other"), &json!(["q"])));
    assert!(finding["remedy"].as_str().is_some_and(|text| text.contains("ForwardTo")), "{page}");
    assert_eq!((&page["total"], &page["mutedCount"]), (&json!(1), &json!(0)));
    let post = async |operation: &str, body: &str| {
        server.ask(&format!("POST /$api/v1/checks/{operation}"), body).await.status
    };
    let of = r#""path": "other", "kind": "destinationMissing""#;
    assert_eq!(post("mute", &format!(r#"{{{of}, "reason": "known"}}"#)).await, 204);
    let muted = get(&server, "/$api/v1/checks?muted=true&path=THE&kind=destinationMissing").await;
    assert_eq!(muted["findings"][0]["muted"]["reason"], "known", "{muted}");
    assert_eq!(get(&server, "/$api/v1/checks?muted=false").await["total"], 0);
    assert_eq!(post("unmute", &format!("{{{of}}}")).await, 204);
    assert_eq!(get(&server, "/$api/v1/checks").await["mutedCount"], 0);
    assert_eq!(post("mute", &format!(r#"{{{of}, "reason": ""}}"#)).await, 400);
    assert_eq!(post("mute", r#"{"path": "x", "kind": "clockStep", "reason": "x"}"#).await, 404);
    assert_eq!(post("mute", r#"{"kind": "none", "reason": "x"}"#).await, 400);
    refused(&server, "/$api/v1/checks?muted=1", 400, "ArgumentError").await;
    server.stop().await;
}

/// CON-04, CON-24: entities are listed with counts and conditions, clients with their address.
#[tokio::test]
async fn entities_and_clients_are_listed() {
    let server = Server::start().await;
    server.broker.create_queue("Other", QueueUpdate::default()).await.unwrap();
    server.send("a").await;
    server.active(1).await;
    let page = get(&server, "/$api/v1/entities?sort=activeMessageCount&descending=true").await;
    assert_eq!(page["total"], 2);
    let first = &page["entities"][0];
    assert_eq!((&first["path"], &first["kind"]), (&json!("q"), &json!("queue")));
    assert_eq!((&first["activeMessageCount"], &first["status"]), (&json!(1), &json!("Active")));
    assert_eq!(first["conditions"], json!(["hasNoReceiver"]));
    let page = get(&server, "/$api/v1/entities?path=OTH&condition=hasNoReceiver&kind=queue").await;
    assert_eq!((&page["total"], &page["entities"][0]["path"]), (&json!(1), &json!("Other")));
    let page = get(&server, "/$api/v1/entities?condition=hasDeadLetters").await;
    assert_eq!(page["total"], 0);

    let mut client = server.connect().await;
    let head = "GET /$api/v1/clients?transport=http&name=CURL\nUser-Agent: curl/8.0";
    client.write(&server.request(head, "")).await;
    let page = client.read().await.unwrap().json();
    let found = &page["clients"][0];
    assert_eq!((&found["name"], &found["transport"]), (&json!("curl/8.0"), &json!("http")));
    assert_eq!(found["address"], client.stream.local_addr().unwrap().to_string());
    server.stop().await;
}

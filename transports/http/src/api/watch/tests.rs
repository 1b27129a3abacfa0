use std::net::SocketAddr;

use peeklock_core::Broker;
use peeklock_core::clock::{Clock, ManualClock};
use peeklock_core::command::Command;
use peeklock_core::description::QueueUpdate;
use peeklock_core::inspect::{SessionPage, SessionRow};
use peeklock_core::management::Managed;
use peeklock_core::message::Message;
use peeklock_core::time::Timestamp;

use super::*;
use crate::config::HttpConfig;

/// Starts a broker with a queue `q` and `more` queues with long paths.
async fn broker(more: usize) -> (Broker, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_700_000_000_000)));
    let shown = Arc::clone(&clock) as Arc<dyn Clock>;
    let broker = Broker::builder().arbiters(1).clock(shown).start().await.unwrap();
    broker.create_queue("q", QueueUpdate::default()).await.unwrap();
    for number in 0..more {
        let path = format!("{number:03}{}", "x".repeat(200));
        broker.create_queue(&path, QueueUpdate::default()).await.unwrap();
    }
    (broker, clock)
}

/// Opens a stream without a connection.
fn watching(broker: &Broker, sources: Vec<Source>) -> Watching {
    let config = HttpConfig::at(SocketAddr::from(([127, 0, 0, 1], 0)));
    let site = Arc::new(Site::new(broker.clone(), config));
    let due = tokio::time::Instant::now();
    let subject = |source| Subject { source, interval: INTERVAL, due, sent: None };
    Watching {
        access: broker.full_access(),
        connection: None,
        client: None,
        subjects: sources.into_iter().map(subject).collect(),
        hasher: RandomState::new(),
        pending: Bytes::new(),
        spoke_at: due,
        phase: Phase::Begin,
        _permit: Arc::clone(&site.streams).try_acquire_owned().unwrap(),
        site,
    }
}

/// Reads the next event, and checks the memory that the stream holds until it is read.
async fn next(watching: &mut Watching) -> (String, Value) {
    let mut text = Vec::new();
    let mut most = 0;
    loop {
        let piece = watching.piece().await.unwrap();
        assert!(piece.len() <= PIECE_BYTES_MAX);
        // The socket has a copy of the piece.
        most = most.max(piece.len() * 2 + watching.pending.len());
        text.extend_from_slice(&piece);
        if watching.pending.is_empty() {
            break;
        }
    }
    let sent = watching.subjects.iter().filter_map(|subject| subject.sent.as_ref());
    let kept: usize = sent.map(Sent::bytes).sum();
    assert!(kept <= KEPT_BYTES_MAX, "{kept}");
    assert!(most + kept <= STREAM_BYTES, "{most} {kept}");
    let text = String::from_utf8(text).unwrap();
    let (name, data) = text.trim_end().split_once('\n').unwrap();
    let data = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
    (name.strip_prefix("event: ").unwrap().to_owned(), data)
}

/// CON-33: a reader that takes nothing for some time gets one difference for each subject, with the
/// latest values, and the stream holds at most 256 KiB meanwhile.
#[tokio::test(start_paused = true)]
async fn slow_reader_gets_the_latest_values_in_bounded_memory() {
    let (broker, clock) = broker(400).await;
    let entities = || {
        let query = serde_json::from_value(json!({ "top": 500 })).unwrap();
        let form = Box::new(QuestionForm::Entities(query));
        Source::Question { path: String::new(), form }
    };
    let queue = Source::Entity { path: "q".to_owned() };
    let mut watching = watching(&broker, vec![entities(), entities(), queue, Source::Totals]);
    assert_eq!(next(&mut watching).await.0, "begin");
    for subject in 0..4 {
        let (name, data) = next(&mut watching).await;
        assert_eq!((&*name, &data["subject"]), ("state", &json!(subject)));
        assert_eq!(data["truncated"] == true, subject < 2, "{subject}");
    }
    let entity = broker.entity("q").unwrap();
    for _ in 0..30 {
        let message = broker.inbound(Message::new("x"));
        entity.call(Command::Send { message }).await.unwrap();
        clock.advance(TimeSpan::from_seconds(1));
        tokio::time::advance(INTERVAL).await;
    }
    let mut changed = Vec::new();
    loop {
        let (name, data) = next(&mut watching).await;
        if name == "clock" {
            break;
        }
        assert_eq!(name, "change");
        let set = &data["set"];
        match data["subject"].as_u64().unwrap() {
            2 => assert_eq!(set["runtime"]["activeMessageCount"], 30),
            3 => assert_eq!(set["activeMessageCount"], 30),
            _ => {}
        }
        changed.push(data["subject"].as_u64().unwrap());
    }
    changed.sort_unstable();
    assert_eq!(changed, [0, 1, 2, 3]);
    broker.stop(Duration::ZERO).await.unwrap();
}

/// CON-33: sums and rates of the namespace are a subject.
#[tokio::test(start_paused = true)]
async fn totals_are_the_sums_over_all_entities() {
    let (broker, clock) = broker(1).await;
    let mut watching = watching(&broker, vec![Source::Totals]);
    next(&mut watching).await;
    let (_, data) = next(&mut watching).await;
    let state = &data["state"];
    assert_eq!((&state["entityCount"], &state["totalMessageCount"]), (&json!(2), &json!(0)));
    assert_eq!((&state["acceptedPerSecond"], &state["entities"]), (&Value::Null, &Value::Null));
    for path in ["q".to_owned(), format!("000{}", "x".repeat(200))] {
        let message = broker.inbound(Message::new("x"));
        broker.entity(&path).unwrap().call(Command::Send { message }).await.unwrap();
    }
    clock.advance(TimeSpan::from_seconds(1));
    let (name, data) = next(&mut watching).await;
    let set = &data["set"];
    assert_eq!((&*name, &set["activeMessageCount"]), ("change", &json!(2)));
    assert_eq!((&set["acceptedPerSecond"], &set["removedPerSecond"]), (&json!(2.0), &json!(0.0)));
    assert_eq!(set["entityCount"], Value::Null, "{set}");
    broker.stop(Duration::ZERO).await.unwrap();
}

/// CON-33: an event is bounded, with every key of every size, and also if all rows are replaced.
#[test]
fn event_is_bounded_for_names_that_are_escaped() {
    let hasher = RandomState::new();
    let page = |first: u32, length: usize| {
        let row = |number: u32| SessionRow {
            name: format!("{}{number:05}", "\u{1}".repeat(length)).into(),
            active: 1,
            deferred: 0,
            scheduled: 0,
            oldest_at: None,
            is_stuck: false,
            state: None,
            lock: None,
        };
        let sessions = (first..first + 500).map(row).collect();
        let found = Found::Sessions(SessionPage { sessions, total: 500, next: None });
        let at = Timestamp::from_unix_ms(1_700_000_000_000);
        Managed::Findings(Box::new(Findings { at, found }))
    };
    let bound = STATE_BYTES_MAX + STATE_BYTES_MAX / 3 + 1_024;
    for length in [0, 10, 123] {
        let (text, before) = State::of(page(0, length), KEPT_BYTES_MAX).news(0, None, &hasher);
        let text = text.unwrap();
        assert!(text.len() <= STATE_BYTES_MAX + 1_024, "{}", text.len());
        assert!(text.len() > STATE_BYTES_MAX / 4, "{}", text.len());
        let after = State::of(page(500, length), KEPT_BYTES_MAX);
        let (text, _) = after.news(0, Some(&before), &hasher);
        let text = text.unwrap();
        assert!(text.len() <= bound, "{length}: {}", text.len());
    }
}

/// CON-33, CON-34: heads beyond the bytes of an event are counted as not shown.
#[test]
fn heads_beyond_an_event_are_counted() {
    let page = || json!({ "heads": [{ "a": 1 }, { "a": 2 }, { "a": 3 }], "omitted": 4 });
    for (bytes, shown) in [(24, 3), (23, 2), (8, 1), (7, 0)] {
        let mut page = page();
        omit_heads(&mut page, bytes);
        assert_eq!(page["heads"].as_array().unwrap().len(), shown, "{bytes}");
        assert_eq!(page["omitted"], 4 + 3 - shown, "{bytes}");
    }
}

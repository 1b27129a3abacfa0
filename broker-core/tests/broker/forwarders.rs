//! Forwarders: in spite of any behaviour of a forwarder, no message is lost, no other source waits,
//! and the broker enforces the rules (FWD-31, FWD-32).

use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use peeklock_core::Broker;
use peeklock_core::clock::{Clock, ManualClock};
use peeklock_core::command::{Command, Counts, Outcome, ReceiveMode, ReceivedMessage};
use peeklock_core::condition::Condition;
use peeklock_core::contract::{Forwarder, Outgoing, Route, Source, Verdict};
use peeklock_core::description::{QueueUpdate, Settings};
use peeklock_core::error::Rejection;
use peeklock_core::message::{Content, Message, Value};
use peeklock_core::path::SubQueue;
use peeklock_core::store::MemoryStore;
use peeklock_core::time::{TimeSpan, Timestamp};

/// Behaviour of the forwarder in the next call.
#[derive(Clone)]
enum Act {
    /// Delivers all messages.
    Deliver,
    /// Returns these verdicts.
    Say(Vec<Verdict>),
    Panic,
    /// Waits forever, like a forwarder that gets no answer from its peer.
    Wait,
    /// Blocks its thread until the test opens the gate.
    Block,
}

#[derive(Default)]
struct Script {
    acts: Mutex<VecDeque<Act>>,
    /// Source and texts of each call.
    calls: Mutex<Vec<(String, Vec<String>)>>,
    seen: Mutex<Vec<(Source, Vec<Outgoing>)>>,
    routes: AtomicUsize,
    cancelled: Arc<AtomicUsize>,
    gate: Mutex<bool>,
    opened: Condvar,
}

struct Scripted(Arc<Script>);

struct ScriptedRoute {
    script: Arc<Script>,
    source: Source,
}

impl Forwarder for Scripted {
    fn name(&self) -> &'static str {
        "scripted"
    }

    fn schemes(&self) -> &'static [&'static str] {
        &["test", "test+other"]
    }

    fn check(&self, destination: &str) -> Result<(), Rejection> {
        assert!(!destination.ends_with("panic"), "as the test wants it");
        if destination.ends_with("bad") {
            return Err(Rejection::argument("`bad` is not a good place"));
        }
        Ok(())
    }

    fn route(&self, destination: &str, source: Source) -> Result<Box<dyn Route>, Rejection> {
        self.0.routes.fetch_add(1, Ordering::Relaxed);
        if destination.ends_with("nowhere") {
            return Err(Rejection::argument("there is no way to nowhere"));
        }
        Ok(Box::new(ScriptedRoute { script: Arc::clone(&self.0), source }))
    }
}

struct OnDrop(Arc<AtomicUsize>);

impl Drop for OnDrop {
    fn drop(&mut self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

#[async_trait]
impl Route for ScriptedRoute {
    async fn forward(&mut self, messages: &[Outgoing]) -> Vec<Verdict> {
        let texts = messages.iter().map(text_of).collect();
        let act = self.script.acts.lock().unwrap().pop_front().unwrap_or(Act::Deliver);
        self.script.calls.lock().unwrap().push((self.source.path.to_string(), texts));
        self.script.seen.lock().unwrap().push((self.source.clone(), messages.to_vec()));
        match act {
            Act::Deliver => vec![Verdict::Delivered; messages.len()],
            Act::Say(verdicts) => verdicts,
            Act::Panic => panic!("as the test wants it"),
            Act::Wait => {
                let _noted = OnDrop(Arc::clone(&self.script.cancelled));
                std::future::pending().await
            }
            Act::Block => {
                let gate = self.script.gate.lock().unwrap();
                drop(self.script.opened.wait_while(gate, |open| !*open).unwrap());
                vec![Verdict::Delivered; messages.len()]
            }
        }
    }
}

fn text_of(message: &Outgoing) -> String {
    String::from_utf8(message.content.body_bytes().to_vec()).unwrap()
}

/// A broker with the scripted forwarder and a clock that the test moves.
struct Stage {
    broker: Broker,
    clock: Arc<ManualClock>,
    store: Arc<MemoryStore>,
    script: Arc<Script>,
}

impl Stage {
    async fn open(acts: impl IntoIterator<Item = Act>) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_800_000_000_000)));
        Self::on(clock, Arc::new(MemoryStore::new(4, u64::MAX)), acts, Settings::default()).await
    }

    async fn on(
        clock: Arc<ManualClock>,
        store: Arc<MemoryStore>,
        acts: impl IntoIterator<Item = Act>,
        settings: Settings,
    ) -> Self {
        let script = Arc::new(Script::default());
        script.acts.lock().unwrap().extend(acts);
        let broker = Broker::builder()
            .settings(settings)
            .clock(Arc::clone(&clock) as Arc<dyn Clock>)
            .store(Arc::clone(&store) as _)
            .forwarder(Arc::new(Scripted(Arc::clone(&script))))
            .arbiters(1)
            .start()
            .await
            .unwrap();
        Self { broker, clock, store, script }
    }

    async fn create(&self, path: &str, forward_to: Option<&str>) {
        let forward_to = forward_to.map(Box::from);
        let properties =
            QueueUpdate { forward_to, max_delivery_count: Some(3), ..QueueUpdate::default() };
        self.broker.create_queue(path, properties).await.unwrap();
    }

    async fn send(&self, path: &str, text: &str) {
        let message = self.broker.inbound(Message::new(text.to_owned()));
        self.broker.entity(path).unwrap().call(Command::Send { message }).await.unwrap();
    }

    async fn counts(&self, path: &str) -> Counts {
        self.broker.describe_queue(path).await.unwrap().counts
    }

    async fn until(&self, path: &str, holds: impl Fn(&Counts) -> bool) {
        while !holds(&self.counts(path).await) {
            tokio::task::yield_now().await;
        }
    }

    async fn until_called(&self, count: usize) {
        while self.calls().len() < count {
            tokio::task::yield_now().await;
        }
    }

    fn calls(&self) -> Vec<(String, Vec<String>)> {
        self.script.calls.lock().unwrap().clone()
    }

    /// Makes lazy changes durable, so that kept messages are offered again.
    async fn advance(&self, span: TimeSpan) {
        self.clock.advance(span);
        for path in self.broker.queue_paths(0, usize::MAX) {
            self.counts(&path).await;
        }
    }

    /// Lets time pass, but not during a call, whose time limit uses the broker's clock.
    async fn advance_until(&self, path: &str, holds: impl Fn(&Counts) -> bool) {
        while !holds(&self.counts(path).await) {
            self.advance(seconds(1)).await;
            self.until(path, |counts| counts.transfer == 0).await;
        }
    }

    async fn take(&self, path: &str) -> Vec<ReceivedMessage> {
        let command = Command::Receive {
            mode: ReceiveMode::ReceiveAndDelete,
            count_max: 100,
            bytes_max: u64::MAX,
            wait: TimeSpan::ZERO,
            holder: None,
        };
        match self.broker.entity(path).unwrap().call(command).await.unwrap() {
            Outcome::Received(messages) => messages,
            other => panic!("{other:?}"),
        }
    }

    async fn verdicts(&self, path: &str) -> Vec<(String, String, String)> {
        let mut verdicts = Vec::new();
        for received in self.take(&format!("{path}/$Transfer/$deadletterqueue")).await {
            let mut message =
                Content::parse(received.content.load().await.unwrap()).unwrap().decode().unwrap();
            for overlay in &received.overlays {
                let bytes = overlay.load().await.unwrap();
                message.apply_overlay(&peeklock_core::message::Overlay::from_bytes(bytes));
            }
            let text = |key: &str| match message.application_property(key) {
                Some(Value::String(text)) => text.to_string(),
                other => panic!("{key} is {other:?}"),
            };
            let body = String::from_utf8(message.body.as_bytes().to_vec()).unwrap();
            verdicts.push((body, text("DeadLetterReason"), text("DeadLetterErrorDescription")));
        }
        verdicts
    }

    fn open_gate(&self) {
        *self.script.gate.lock().unwrap() = true;
        self.script.opened.notify_all();
    }

    async fn stop(self) {
        self.broker.stop(Duration::ZERO).await.unwrap();
    }
}

fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(30), test).await }).unwrap();
}

fn failed(why: &str) -> Act {
    Act::Say(vec![Verdict::Failed { why: why.into(), retry_after: None }])
}

const fn seconds(count: i64) -> TimeSpan {
    TimeSpan::from_seconds(count)
}

/// FWD-31, FWD-13: a forwarder gets the messages in order, and delivered messages are removed.
#[test]
fn delivered_messages_leave() {
    run(async {
        let stage = Stage::open([]).await;
        stage.create("a", Some("test://there")).await;
        for text in ["1", "2", "3"] {
            stage.send("a", text).await;
        }
        stage.until("a", |counts| counts.total() == 0).await;
        let texts: Vec<String> = stage.calls().into_iter().flat_map(|(_, texts)| texts).collect();
        assert_eq!(texts, ["1", "2", "3"]);
        let seen = stage.script.seen.lock().unwrap().clone();
        let (source, messages) = &seen[0];
        assert_eq!((&*source.path, source.sub_queue), ("a", SubQueue::Main));
        assert_eq!(source.entity, stage.broker.entity("a").unwrap().id());
        assert_eq!((messages[0].hops, messages[0].facts.sequence.0), (1, 1));
        assert_eq!(stage.script.routes.load(Ordering::Relaxed), 1);
        stage.stop().await;
    });
}

/// FWD-31: a refused message is dead-lettered with the forwarder's texts. A message for another
/// entity is transferred there, which counts a hop.
#[test]
fn verdicts_are_carried_out_by_the_broker() {
    run(async {
        let refused = Verdict::Refused { reason: "Unwanted".into(), description: "by it".into() };
        let say = Act::Say(vec![refused, Verdict::To("b".into())]);
        let stage = Stage::open([Act::Say(vec![Verdict::To("absent".into())]), say]).await;
        stage.create("b", None).await;
        stage.create("a", Some("test://there")).await;
        stage.send("a", "0").await;
        stage.until("a", |counts| counts.transfer_dead_letter == 1).await;
        stage.broker.entity("a").unwrap();
        let messages = ["1", "2"].map(|text| stage.broker.inbound(Message::new(text)));
        let batch = Command::SendBatch { messages: messages.into() };
        stage.broker.entity("a").unwrap().call(batch).await.unwrap();
        stage.until("b", |counts| counts.active == 1).await;
        stage.until("a", |counts| counts.transfer_dead_letter == 2 && counts.total() == 2).await;
        let verdicts = stage.verdicts("a").await;
        assert_eq!((&*verdicts[0].0, &*verdicts[0].1), ("0", "MessagingEntityNotFound"));
        assert_eq!(verdicts[1], ("1".into(), "Unwanted".into(), "by it".into()));
        let arrived = stage.take("b").await;
        assert_eq!(arrived[0].facts.enqueued_sequence.0, 3);
        stage.stop().await;
    });
}

/// FWD-10, FWD-31: no message is transferred to an entity that has refused an earlier one until
/// that one is dead-lettered, regardless of the case of the name; the forwarder is called again.
/// Messages for other entities do not wait.
#[test]
fn no_message_overtakes_a_refused_one() {
    run(async {
        let to = |path: &str| Verdict::To(path.into());
        let first = Act::Say(["absent", "Absent", "b", "ABSENT", "B"].map(to).into());
        let stage = Stage::open([first, Act::Say(vec![to("b")])]).await;
        stage.create("b", None).await;
        stage.create("a", Some("test://there")).await;
        let messages =
            ["1", "2", "3", "4", "5"].map(|text| stage.broker.inbound(Message::new(text)));
        let batch = Command::SendBatch { messages: messages.into() };
        stage.broker.entity("a").unwrap().call(batch).await.unwrap();
        stage.until("b", |counts| counts.active == 3).await;
        stage.until("a", |counts| counts.transfer_dead_letter == 2 && counts.total() == 2).await;
        let calls: Vec<Vec<String>> = stage.calls().into_iter().map(|(_, texts)| texts).collect();
        assert_eq!(calls, [vec!["1", "2", "3", "4", "5"], vec!["4"]]);
        let refused = stage.verdicts("a").await;
        assert_eq!([&*refused[0].0, &*refused[1].0], ["1", "2"]);
        let arrived = stage.take("b").await;
        let numbers: Vec<u64> = arrived.iter().map(|one| one.facts.enqueued_sequence.0).collect();
        assert_eq!(numbers, [3, 5, 4]);
        stage.stop().await;
    });
}

/// FWD-32: a failure counts, and the message is offered again before later ones, after growing
/// delays. At MaxDeliveryCount it is dead-lettered.
#[test]
fn a_failing_forwarder_is_retried_up_to_max_delivery_count() {
    run(async {
        let stage = Stage::open([failed("one"), failed("two"), failed("three")]).await;
        stage.create("a", Some("test://there")).await;
        stage.send("a", "1").await;
        stage.until_called(1).await;
        // The delay begins with the verdict.
        stage.until("a", |counts| counts.transfer == 0).await;
        stage.send("a", "2").await;
        stage.advance(TimeSpan::from_ms(500)).await;
        assert_eq!(stage.calls().len(), 1);
        stage.advance(TimeSpan::from_ms(500)).await;
        stage.until_called(2).await;
        stage.until("a", |counts| counts.transfer == 0).await;
        stage.advance(TimeSpan::from_ms(500)).await;
        stage.advance(seconds(1)).await;
        assert_eq!(stage.calls().len(), 2, "the second time it waits for two seconds");
        stage.advance(TimeSpan::from_ms(500)).await;
        stage.until_called(3).await;
        assert!(stage.calls().iter().all(|(_, texts)| texts[0] == "1"), "{:?}", stage.calls());
        stage.until("a", |counts| counts.transfer_dead_letter == 1).await;
        stage.advance(seconds(61)).await;
        stage.until("a", |counts| counts.active + counts.transfer == 0).await;
        assert_eq!(stage.calls().last().unwrap().1, ["2"]);
        let [(text, reason, description)] = &stage.verdicts("a").await[..] else {
            panic!("one message is given up");
        };
        assert_eq!((&**text, &**reason), ("1", "ForwarderFailed"));
        assert_eq!(
            description,
            "the forwarder failed 3 times, the maximum is 3; last error: three"
        );
        stage.stop().await;
    });
}

/// FWD-32: a panic counts as a failure, and the route is created again.
#[test]
fn a_panic_loses_nothing() {
    run(async {
        let stage = Stage::open([Act::Panic]).await;
        stage.create("a", Some("test://there")).await;
        stage.send("a", "1").await;
        stage.until_called(1).await;
        stage.until("a", |counts| counts.transfer == 0 && counts.active == 1).await;
        stage.advance(TimeSpan::from_ms(500)).await;
        stage.advance(seconds(1)).await;
        stage.until("a", |counts| counts.total() == 0).await;
        assert_eq!(stage.script.routes.load(Ordering::Relaxed), 2);
        let seen = stage.script.seen.lock().unwrap().clone();
        assert_eq!(seen[1].1[0].facts.delivery_count, 1);
        stage.stop().await;
    });
}

/// FWD-32: a call that exceeds its time limit is cancelled and counts as a failure.
#[test]
fn a_slow_call_is_cancelled_at_its_limit() {
    run(async {
        let stage = Stage::open([Act::Wait]).await;
        stage.create("a", Some("test://there")).await;
        stage.send("a", "1").await;
        stage.until_called(1).await;
        stage.advance(TimeSpan::from_ms(29_999)).await;
        assert_eq!(stage.counts("a").await.transfer, 1);
        stage.advance(TimeSpan::from_ms(1)).await;
        stage.until("a", |counts| counts.transfer == 0 && counts.active == 1).await;
        while stage.script.cancelled.load(Ordering::Relaxed) == 0 {
            tokio::task::yield_now().await;
        }
        stage.advance(TimeSpan::from_ms(500)).await;
        stage.advance(seconds(1)).await;
        stage.until("a", |counts| counts.total() == 0).await;
        stage.stop().await;
    });
}

/// FWD-32: a forwarder that blocks its thread delays only its own source, until the time limit.
#[test]
fn a_blocked_thread_delays_no_other_source() {
    run(async {
        let stage = Stage::open([Act::Block]).await;
        stage.create("a", Some("test://there")).await;
        stage.create("b", Some("test://there")).await;
        stage.send("a", "stuck").await;
        stage.until_called(1).await;
        stage.send("b", "passes").await;
        stage.until("b", |counts| counts.total() == 0).await;
        assert_eq!(stage.counts("a").await.transfer, 1);
        stage.advance(seconds(30)).await;
        stage.until("a", |counts| counts.transfer == 0 && counts.active == 1).await;
        stage.advance(TimeSpan::from_ms(500)).await;
        stage.advance(seconds(1)).await;
        stage.until("a", |counts| counts.total() == 0).await;
        assert_eq!(stage.calls().last().unwrap().1, ["stuck"]);
        stage.open_gate();
        stage.stop().await;
    });
}

/// DESIGN D6: the number of threads is bounded. A source without a thread waits and loses nothing.
#[test]
fn threads_of_forwarders_are_bounded() {
    run(async {
        let mut settings = Settings::default();
        settings.limits.forwarder_thread_count_max = 1;
        let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_800_000_000_000)));
        let store = Arc::new(MemoryStore::new(4, u64::MAX));
        let stage = Stage::on(clock, store, [Act::Block], settings).await;
        stage.create("a", Some("test://there")).await;
        stage.create("b", Some("test://there")).await;
        stage.send("a", "holds the thread").await;
        stage.until_called(1).await;
        stage.send("b", "waits").await;
        stage.until("b", |counts| counts.transfer == 0 && counts.active == 1).await;
        assert_eq!(stage.calls().len(), 1);
        assert_eq!(stage.counts("b").await.transfer_dead_letter, 0);
        stage.open_gate();
        stage.until("a", |counts| counts.total() == 0).await;
        stage.broker.delete_entity("a").await.unwrap();
        stage.advance_until("b", |counts| counts.total() == 0).await;
        let seen = stage.script.seen.lock().unwrap().clone();
        assert_eq!(seen[1].1[0].facts.delivery_count, 0, "waiting is no failure");
        stage.stop().await;
    });
}

/// The contract of a route: a message without a verdict was not tried and is offered again
/// immediately.
#[test]
fn messages_without_verdict_are_offered_again() {
    run(async {
        let one = || Act::Say(vec![Verdict::Delivered]);
        let stage = Stage::open([one(), one(), one()]).await;
        stage.create("a", None).await;
        for text in ["1", "2", "3"] {
            stage.send("a", text).await;
        }
        let forward_to = Some("test+other://there".into());
        let update = QueueUpdate { forward_to, ..QueueUpdate::default() };
        stage.broker.update_queue("a", update, None).await.unwrap();
        stage.until("a", |counts| counts.total() == 0).await;
        let calls: Vec<Vec<String>> = stage.calls().into_iter().map(|(_, texts)| texts).collect();
        assert_eq!(calls, [&["1", "2", "3"][..], &["2", "3"], &["3"]]);
        stage.stop().await;
    });
}

/// FWD-02: the forwarder validates its destinations. Without a forwarder for the scheme, the error
/// lists the existing ones.
#[test]
fn destinations_are_judged_by_their_forwarder() {
    run(async {
        let stage = Stage::open([]).await;
        let refused = async |to: &str| {
            let forward_to = Some(to.into());
            let properties = QueueUpdate { forward_to, ..QueueUpdate::default() };
            let error = stage.broker.create_queue("a", properties).await.unwrap_err();
            (error.condition(), error.detail().to_owned())
        };
        let (condition, detail) = refused("mqtt://there").await;
        assert_eq!(condition, Condition::ArgumentError);
        assert!(detail.contains("`test://`, `test+other://`"), "{detail}");
        assert_eq!(refused("TEST://bad").await.1, "`bad` is not a good place");
        assert_eq!(refused("test://panic").await.0, Condition::InternalError);
        stage.stop().await;
    });
}

/// FWD-12, FWD-31: the broker counts hops. A message at its hop limit is not shown to a forwarder.
#[test]
fn the_broker_enforces_the_hop_limit() {
    run(async {
        let stage = Stage::open([]).await;
        stage.create("q4", Some("test://there")).await;
        for number in (0..4).rev() {
            let next = format!("q{}", number + 1);
            stage.create(&format!("q{number}"), Some(&next)).await;
        }
        stage.send("q0", "far").await;
        stage.until("q4", |counts| counts.transfer_dead_letter == 1).await;
        stage.send("q1", "near").await;
        stage.until_called(1).await;
        assert_eq!(stage.calls()[0].1, ["near"]);
        assert_eq!(stage.script.seen.lock().unwrap()[0].1[0].hops, 4);
        let verdicts = stage.verdicts("q4").await;
        assert_eq!(verdicts[0].1, "MaxTransferHopCountExceeded");
        stage.stop().await;
    });
}

/// FWD-26, SET-38, FWD-32: dead letters are offered to a forwarder with their source, again without
/// end, and are never dead-lettered again.
#[test]
fn dead_letters_are_offered_without_end() {
    run(async {
        let stage = Stage::open((0..5).map(|_| failed("no"))).await;
        let properties = QueueUpdate {
            forward_dead_lettered_messages_to: Some("test://there".into()),
            default_message_time_to_live: Some(seconds(1)),
            dead_lettering_on_message_expiration: Some(true),
            max_delivery_count: Some(1),
            ..QueueUpdate::default()
        };
        stage.broker.create_queue("a", properties).await.unwrap();
        stage.send("a", "1").await;
        stage.clock.advance(seconds(1));
        assert!(stage.take("a").await.is_empty());
        stage.advance_until("a", |counts| counts.total() == 0).await;
        assert_eq!(stage.calls().len(), 6);
        let seen = stage.script.seen.lock().unwrap().clone();
        assert_eq!(seen[5].1[0].dead_letter_source.as_deref(), Some("a"));
        assert_eq!(seen[5].0.sub_queue, SubQueue::DeadLetter);
        assert_eq!(seen[5].1[0].facts.delivery_count, 5);
        stage.stop().await;
    });
}

/// FND-03: undelivered messages are there after a restart, and the broker has the same name for the
/// forwarder.
#[test]
fn a_restart_keeps_undelivered_messages() {
    run(async {
        let stage = Stage::open([failed("no")]).await;
        stage.create("a", Some("test://there")).await;
        stage.send("a", "1").await;
        stage.until_called(1).await;
        let before = stage.script.seen.lock().unwrap()[0].clone();
        let (clock, store) = (Arc::clone(&stage.clock), Arc::clone(&stage.store));
        stage.stop().await;
        let stage = Stage::on(clock, store, [], Settings::default()).await;
        stage.until("a", |counts| counts.total() == 0).await;
        let after = stage.script.seen.lock().unwrap()[0].clone();
        assert_eq!(before.0, after.0);
        assert_eq!(before.1[0].facts.sequence, after.1[0].facts.sequence);
        stage.stop().await;
    });
}

/// A route that cannot be created counts as a failure of every message of the source.
#[test]
fn a_failed_route_fails_every_message() {
    run(async {
        let stage = Stage::open([]).await;
        stage.create("a", Some("test://nowhere")).await;
        stage.send("a", "1").await;
        stage.send("a", "2").await;
        stage.advance_until("a", |counts| counts.transfer_dead_letter == 2).await;
        let verdicts = stage.verdicts("a").await;
        assert!(verdicts.iter().all(|verdict| verdict.1 == "ForwarderFailed"));
        assert!(verdicts[0].2.contains("there is no way to nowhere"), "{}", verdicts[0].2);
        stage.stop().await;
    });
}

//! Samples of topics, explanations of all rules, and trials of changed rules (CON-35 to CON-37).

use std::cell::Cell;
use std::sync::Arc;

use async_trait::async_trait;
use peeklock_core::clock::{Clock, ManualClock};
use peeklock_core::command::{Command, Outcome, ReceiveMode};
use peeklock_core::condition::Condition;
use peeklock_core::contract::{Authorizer, Grant, Principal, Right, Rights};
use peeklock_core::description::{QueueUpdate, Settings, SubscriptionUpdate, TopicUpdate};
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::inspect::{
    ExplainQuery, Found, Question, SamplesQuery, TopicExplanation, TopicSamples, WhatIf,
    WhatIfQuery,
};
use peeklock_core::management::{Managed, Management};
use peeklock_core::message::{Message, Value};
use peeklock_core::rule::{Filter, RuleChange, RuleDescription, RuleEdit, Verdict};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::{Access, Broker, SamplesConfig};

const START: Timestamp = Timestamp::from_unix_ms(1_700_000_100_000);

struct World {
    broker: Broker,
    clock: Arc<ManualClock>,
}

impl World {
    async fn start() -> Self {
        Self::start_with(Settings::default()).await
    }

    async fn start_with(settings: Settings) -> Self {
        let clock = Arc::new(ManualClock::at(START));
        let shown = Arc::new(PassingClock(Arc::clone(&clock))) as Arc<dyn Clock>;
        let builder = Broker::builder().arbiters(1).clock(shown).count_internal_work();
        let builder = builder.samples(SamplesConfig::default()).authorizer(Arc::new(OnlyEu));
        let broker = builder.settings(settings).start().await.unwrap();
        broker.create_topic("orders", TopicUpdate::default()).await.unwrap();
        let world = Self { broker, clock };
        world.subscribe("eu", vec![sql("r", "region = 'eu'")], SubscriptionUpdate::default()).await;
        let dear = sql("r", "price > 5").with_action("SET class = 'dear'");
        world.subscribe("dear", vec![dear], SubscriptionUpdate::default()).await;
        let rest = SubscriptionUpdate::default().with_catch_all(true);
        world.subscribe("rest", Vec::new(), rest).await;
        world
    }

    async fn subscribe(&self, name: &str, rules: Vec<RuleDescription>, update: SubscriptionUpdate) {
        self.broker.create_subscription("orders", name, update, rules).await.unwrap();
    }

    async fn send(&self, path: &str, message: Message) {
        let message = self.broker.inbound(message);
        self.broker.entity(path).unwrap().call(Command::Send { message }).await.unwrap();
        self.broker.idle().await;
    }

    async fn take(&self, path: &str) {
        let receive = Command::Receive {
            mode: ReceiveMode::ReceiveAndDelete,
            count_max: 1,
            bytes_max: u64::MAX,
            wait: TimeSpan::ZERO,
            holder: None,
        };
        let outcome = self.broker.entity(path).unwrap().call(receive).await.unwrap();
        assert!(matches!(outcome, Outcome::Received(messages) if messages.len() == 1));
    }

    async fn samples(&self) -> TopicSamples {
        let question = Question::Samples(SamplesQuery { count_max: 500 });
        match ask(&self.broker.full_access(), "orders", question).await.unwrap() {
            Found::Samples(page) => page,
            other => panic!("{other:?}"),
        }
    }

    async fn explain(&self, query: ExplainQuery) -> Result<TopicExplanation, BrokerError> {
        let question = Question::Explain(Box::new(query));
        match ask(&self.broker.full_access(), "orders", question).await? {
            Found::Explanation(explanation) => Ok(*explanation),
            other => panic!("{other:?}"),
        }
    }

    async fn what_if(&self, changes: Vec<RuleChange>) -> Result<WhatIf, BrokerError> {
        let query = WhatIfQuery { changes, message_count_max: 1_000, difference_count_max: 100 };
        let question = Question::WhatIf(Box::new(query));
        match ask(&self.broker.full_access(), "orders", question).await? {
            Found::WhatIf(found) => Ok(found),
            other => panic!("{other:?}"),
        }
    }
}

thread_local! {
    /// Whether time passes each time that this thread reads the clock.
    static PASSES: Cell<bool> = const { Cell::new(false) };
}

/// A manual clock on which time can pass with each reading.
struct PassingClock(Arc<ManualClock>);

#[async_trait]
impl Clock for PassingClock {
    fn now(&self) -> Timestamp {
        if PASSES.get() {
            self.0.advance(TimeSpan::from_ms(100));
        }
        self.0.now()
    }

    async fn sleep_until(&self, at: Timestamp) {
        self.0.sleep_until(at).await;
    }
}

async fn ask(access: &Access, path: &str, question: Question) -> Result<Found, BrokerError> {
    match access.manage(path, Management::Inspect(Box::new(question))).await? {
        Managed::Findings(findings) => Ok(findings.found),
        _ => panic!("another answer"),
    }
}

fn sql(name: &str, text: &str) -> RuleDescription {
    RuleDescription::new(name, Filter::sql(text), START)
}

fn set(subscription: &str, rule: RuleDescription) -> RuleChange {
    RuleChange { subscription: subscription.into(), edit: RuleEdit::Set(Box::new(rule)) }
}

fn remove(subscription: &str, rule: &str) -> RuleChange {
    RuleChange { subscription: subscription.into(), edit: RuleEdit::Remove(rule.into()) }
}

fn order(id: &str, region: &str, price: i32) -> Message {
    let mut message = Message::new("two coffees").with_message_id(id);
    message.application_properties =
        vec![("region".to_owned(), region.into()), ("price".to_owned(), price.into())];
    message
}

fn id(message: &Message) -> String {
    message.message_id.as_ref().unwrap().to_string()
}

/// CON-36: samples have messages that were sent, forwarded and scheduled, also without a copy and
/// after they were consumed; the properties, no bodies.
#[tokio::test]
async fn samples_have_every_published_message() {
    let world = World::start().await;
    world.send("orders", order("a", "eu", 7)).await;
    world.take("orders/Subscriptions/eu").await;
    let update = QueueUpdate::default().with_forward_to("orders");
    world.broker.create_queue("source", update).await.unwrap();
    world.send("source", order("b", "us", 1)).await;
    let at = START.plus(TimeSpan::from_seconds(10));
    world.send("orders", order("c", "us", 9).with_scheduled_enqueue_time(at)).await;
    assert_eq!(world.samples().await.total, 2, "a scheduled message is not published yet");
    world.clock.advance(TimeSpan::from_seconds(10));
    world.broker.idle().await;
    world.broker.delete_rule("orders/Subscriptions/rest", "$Default").await.unwrap();
    world.send("orders", order("d", "ch", 1)).await;
    let TopicSamples { samples, total } = world.samples().await;
    assert_eq!(total, 4);
    let found: Vec<_> =
        samples.iter().map(|sample| (id(&sample.message), sample.copy_count.unwrap())).collect();
    let expected = [("d", 0), ("c", 1), ("b", 1), ("a", 2)];
    assert_eq!(found, expected.map(|(id, copies)| (id.to_owned(), copies)));
    for sample in &samples {
        assert!(sample.message.body.as_bytes().is_empty() && sample.size > 11, "{sample:?}");
        assert_eq!(sample.message.application_properties.len(), 2);
        assert_eq!(sample.subscription, None);
    }
    assert_eq!(samples[1].enqueued_at, at);
}

/// CON-35, TOP-30: all rules of all subscriptions are explained at once, with the copies that each
/// subscription would get, and nothing is stored.
#[tokio::test]
async fn explanation_has_all_rules_and_copies() {
    let world = World::start().await;
    let query = ExplainQuery::Message(Box::new(order("a", "us", 7)));
    let TopicExplanation { message, subscriptions, refused, hidden_count, is_cut } =
        world.explain(query).await.unwrap();
    assert_eq!(refused, None);
    assert_eq!((id(&message), hidden_count, is_cut), ("a".to_owned(), 0, false));
    let verdicts: Vec<_> = subscriptions
        .iter()
        .map(|one| (&*one.name, one.rules[0].verdict.clone(), one.copies.len()))
        .collect();
    let expected = [
        ("dear", Verdict::Matches, 1),
        ("eu", Verdict::DoesNotMatch, 0),
        ("rest", Verdict::NotEvaluated("dear".to_owned()), 0),
    ];
    assert_eq!(verdicts, expected);
    assert_eq!(subscriptions[0].rules[0].tests[0].operands, ["7", "5"]);
    let changes = ["SET class = 'dear'", "SET RuleName = 'r'"];
    assert_eq!(subscriptions[0].rules[0].changes, changes);
    let copy = &subscriptions[0].copies[0];
    assert_eq!((copy.rule.as_deref(), &copy.dead_letter), (Some("r"), &None));
    let changed = ("class".to_owned(), Value::from("dear"));
    assert!(copy.message.application_properties.contains(&changed), "{copy:?}");
    let failing = sql("r", "price > 'x'");
    let update = SubscriptionUpdate {
        enable_dead_lettering_on_filter_evaluation_exceptions: Some(true),
        ..SubscriptionUpdate::default()
    };
    world.subscribe("failing", vec![failing], update).await;
    let query = ExplainQuery::Message(Box::new(order("a", "us", 1)));
    let explained = world.explain(query).await.unwrap();
    let failing = explained.subscriptions.iter().find(|one| &*one.name == "failing").unwrap();
    let (reason, _) = failing.copies[0].dead_letter.as_ref().unwrap();
    assert_eq!(&**reason, "FilterException");
    assert_eq!(world.samples().await.total, 0, "nothing was published");
}

/// CON-35: an explanation has the rules and copies that fit, and reports that others are left out.
#[tokio::test]
async fn explanation_has_what_fits() {
    let world = World::start().await;
    let acting = |number| sql(&format!("r{number:03}"), "1 = 1").with_action("SET x = 1");
    let rules = (0..100).map(acting).collect();
    world.subscribe("many", rules, SubscriptionUpdate::default()).await;
    let mut message = order("a", "us", 1);
    for name in ["one", "two"] {
        message.application_properties.push((name.to_owned(), "x".repeat(30_000).into()));
    }
    let query = ExplainQuery::Message(Box::new(message.clone()));
    let explained = world.explain(query).await.unwrap();
    assert!(explained.is_cut);
    let names: Vec<_> = explained.subscriptions.iter().map(|one| &*one.name).collect();
    assert_eq!(names, ["dear", "eu", "many"]);
    let many = &explained.subscriptions[2];
    assert_eq!(many.rules.len(), 100);
    assert!((50..70).contains(&many.copies.len()), "4 MiB of copies, not {}", many.copies.len());
    message.application_properties.push(("three".to_owned(), "x".repeat(30_000).into()));
    let refused = world.explain(ExplainQuery::Message(Box::new(message))).await.unwrap_err();
    assert_eq!(refused.condition(), Condition::MessageSizeExceeded, "as the topic refuses it");
}

/// CON-35: an explanation has the reason for which the topic would refuse the message.
#[tokio::test]
async fn explanation_has_the_reason_of_a_refusal() {
    let mut settings = Settings::default();
    settings.limits.publish_copy_count_max = 1;
    let world = World::start_with(settings).await;
    let explain = async |message| {
        let explained = world.explain(ExplainQuery::Message(Box::new(message))).await.unwrap();
        let copies = explained.subscriptions.iter().map(|one| one.copies.len()).sum::<usize>();
        (explained.refused, copies)
    };
    assert_eq!(explain(order("a", "eu", 1)).await, (None, 1));
    let (refused, copies) = explain(order("b", "eu", 7)).await;
    assert_eq!(copies, 0);
    assert!(refused.unwrap().contains("publish_copy_count_max"));
}

/// CON-35: a message is named by its number: a sample of the topic, a message that is scheduled
/// there, or one of another entity.
#[tokio::test]
async fn stored_messages_are_explained_by_their_number() {
    let world = World::start().await;
    world.send("orders", order("a", "eu", 7)).await;
    let at = START.plus(TimeSpan::from_minutes(1));
    world.send("orders", order("b", "us", 1).with_scheduled_enqueue_time(at)).await;
    world.broker.create_queue("other", QueueUpdate::default()).await.unwrap();
    world.send("other", order("c", "us", 9)).await;
    let named = async |path: Option<&str>, number| {
        let (path, sequence) = (path.map(Into::into), SequenceNumber(number));
        let explained = world.explain(ExplainQuery::Stored { path, sequence }).await?;
        let getting = explained.subscriptions.iter().filter(|one| !one.copies.is_empty());
        let names = getting.map(|one| &*one.name).collect::<Vec<_>>().join(" ");
        Ok::<_, BrokerError>(format!("{}: {names}", id(&explained.message)))
    };
    assert_eq!(named(None, 1).await.unwrap(), "a: dear eu");
    assert_eq!(named(None, 2).await.unwrap(), "b: rest");
    assert_eq!(named(Some("other"), 1).await.unwrap(), "c: dear");
    assert_eq!(named(Some("orders/Subscriptions/eu"), 1).await.unwrap(), "a: dear eu");
    assert_eq!(named(None, 9).await.unwrap_err().condition(), Condition::MessageNotFound);
    assert_eq!(named(Some("none"), 1).await.unwrap_err().condition(), Condition::EntityNotFound);
}

/// CON-37: a trial counts the messages of each subscription before and after the changes, names the
/// messages that differ, tries each message once, and changes nothing.
#[tokio::test]
async fn trial_reports_the_messages_that_differ() {
    let world = World::start().await;
    for message in [order("a", "eu", 7), order("b", "us", 1), order("c", "ch", 9)] {
        world.send("orders", message).await;
    }
    let rules = world.broker.rules("orders/Subscriptions/eu", 0, 10).await.unwrap();
    let changes = vec![set("eu", sql("R", "region = 'us'")), set("dear", sql("s", "price > 8"))];
    let found = world.what_if(changes).await.unwrap();
    assert_eq!((found.sample_count, found.message_count), (3, 0), "copies are no other messages");
    let counts: Vec<_> = found
        .subscriptions
        .iter()
        .map(|it| (&*it.name, [it.before, it.after, it.gained, it.lost, it.changed]))
        .collect();
    let expected = [("dear", [2, 2, 0, 0, 1]), ("eu", [1, 1, 1, 1, 0]), ("rest", [1, 0, 0, 1, 0])];
    assert_eq!(counts, expected);
    let differing: Vec<_> = found
        .differences
        .iter()
        .map(|it| {
            let names = |names: &[Arc<str>]| names.join(" ");
            let sides = [names(&it.gained), names(&it.lost), names(&it.changed)];
            (id(&it.sample.message), sides.join("/"))
        })
        .collect();
    let expected = [("c", "//dear"), ("b", "eu/rest/"), ("a", "/eu/")];
    assert_eq!(differing, expected.map(|(id, sides)| (id.to_owned(), sides.to_owned())));
    assert_eq!((found.difference_count, found.is_cut, found.hidden_count), (3, false, 0));
    assert_eq!(world.broker.rules("orders/Subscriptions/eu", 0, 10).await.unwrap(), rules);
    let removed = world.what_if(vec![remove("dear", "r")]).await.unwrap();
    assert_eq!(removed.subscriptions[0].lost, 2);
    assert_eq!(removed.subscriptions[2].gained, 1, "the catch-all gets the other one");
    for (change, condition) in [
        (remove("dear", "none"), Condition::EntityNotFound),
        (remove("none", "r"), Condition::EntityNotFound),
        (set("eu", sql("r", "region =")), Condition::ArgumentError),
    ] {
        assert_eq!(world.what_if(vec![change]).await.unwrap_err().condition(), condition);
    }
    let too_many = vec![remove("dear", "r"); 101];
    let refused = world.what_if(too_many).await.unwrap_err();
    assert_eq!(refused.condition(), Condition::ArgumentOutOfRange);
}

/// CON-37: samples are tried first, so a disk that uses up the time of a trial leaves out only the
/// messages that are read from it.
#[tokio::test]
async fn trial_judges_samples_before_it_reads_messages() {
    let world = World::start().await;
    for number in 0..49 {
        world.send("orders", order(&number.to_string(), "eu", 7)).await;
    }
    PASSES.set(true);
    let found = world.what_if(vec![set("eu", sql("r", "region = 'us'"))]).await;
    PASSES.set(false);
    let found = found.unwrap();
    assert_eq!((found.sample_count, found.message_count, found.is_cut), (49, 0, true));
    assert_eq!(found.difference_count, 49);
}

/// CON-37: messages of subscriptions that are no samples any more are tried too, up to the number
/// that is asked for.
#[tokio::test]
async fn trial_uses_messages_of_subscriptions() {
    let clock = Arc::new(ManualClock::at(START)) as Arc<dyn Clock>;
    let builder = Broker::builder().arbiters(1).clock(clock).count_internal_work();
    let broker = builder.start().await.unwrap();
    broker.create_topic("orders", TopicUpdate::default()).await.unwrap();
    for name in ["a", "b"] {
        let update = SubscriptionUpdate::default();
        broker.create_subscription("orders", name, update, Vec::new()).await.unwrap();
    }
    let topic = broker.entity("orders").unwrap();
    for number in 0..30 {
        let message = broker.inbound(order(&number.to_string(), "eu", number));
        topic.call(Command::Send { message }).await.unwrap();
    }
    broker.idle().await;
    let access = broker.full_access();
    let try_on = async |message_count_max, difference_count_max| {
        let changes = vec![set("b", sql("$Default", "price >= 25"))];
        let query = WhatIfQuery { changes, message_count_max, difference_count_max };
        match ask(&access, "orders", Question::WhatIf(Box::new(query))).await.unwrap() {
            Found::WhatIf(found) => found,
            other => panic!("{other:?}"),
        }
    };
    let found = try_on(1_000, 7).await;
    assert_eq!((found.sample_count, found.message_count), (0, 30));
    assert_eq!((found.difference_count, found.differences.len()), (25, 7));
    let b = &found.subscriptions[1];
    assert_eq!([b.before, b.after, b.lost], [30, 5, 25]);
    assert_eq!(found.differences[0].sample.subscription.as_deref(), Some("a"));
    assert_eq!(found.differences[0].sample.copy_count, None);
    let found = try_on(10, 100).await;
    assert_eq!((found.message_count, found.difference_count), (10, 5), "the newest, each once");
    assert_eq!(try_on(0, 1).await.message_count, 0);
    let samples = Question::Samples(SamplesQuery { count_max: 1 });
    let error = ask(&access, "orders", samples).await.unwrap_err();
    assert_eq!(error.condition(), Condition::InvalidOperation);
    assert!(error.to_string().contains("console.samples"), "{error}");
}

/// Allows Listen on a topic and on one of its subscriptions.
struct OnlyEu;

#[async_trait]
impl Authorizer for OnlyEu {
    async fn authorize(&self, _: &Principal, resource: &str) -> Result<Grant, Rejection> {
        Ok(match resource {
            "orders" | "orders/Subscriptions/eu" => Grant::of(Rights::of(Right::Listen)),
            _ => Grant::nothing(),
        })
    }

    fn allows_anonymous(&self) -> bool {
        true
    }
}

/// CON-73: a reader gets only subscriptions that it may read, and their number otherwise.
#[tokio::test]
async fn answers_have_only_subscriptions_that_the_reader_may_read() {
    let world = World::start().await;
    world.send("orders", order("a", "us", 7)).await;
    let access = world.broker.access(Principal::anonymous());
    let query = ExplainQuery::Message(Box::new(order("b", "us", 7)));
    let explain = Question::Explain(Box::new(query));
    let Found::Explanation(explained) = ask(&access, "orders", explain).await.unwrap() else {
        panic!()
    };
    assert_eq!((explained.subscriptions.len(), explained.hidden_count), (1, 2));
    assert_eq!(&*explained.subscriptions[0].name, "eu");
    let changes = vec![set("eu", sql("r", "1 = 1"))];
    let query = WhatIfQuery { changes, message_count_max: 10, difference_count_max: 10 };
    let question = Question::WhatIf(Box::new(query));
    let Found::WhatIf(found) = ask(&access, "orders", question).await.unwrap() else { panic!() };
    assert_eq!((found.subscriptions.len(), found.hidden_count), (1, 2));
    assert_eq!(found.subscriptions[0].gained, 1);
    // A subscription that the reader may not read is answered as one that does not exist.
    for edit in [remove("", "r"), remove("", "none"), set("", sql("r", "1 = 1"))] {
        let refused = async |name: &str| {
            let changes = vec![RuleChange { subscription: name.into(), edit: edit.edit.clone() }];
            let query = WhatIfQuery { changes, message_count_max: 10, difference_count_max: 10 };
            let asked = ask(&access, "orders", Question::WhatIf(Box::new(query))).await;
            let error = asked.unwrap_err();
            (error.condition(), error.detail().replace(name, "NAME"))
        };
        assert_eq!(refused("dear").await, refused("none-such").await);
        assert_eq!(refused("dear").await.0, Condition::EntityNotFound);
    }
}

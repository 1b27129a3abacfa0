//! Carrying out a declaration produces exactly the declared namespace.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::clock::ManualClock;
use peeklock_core::condition::Condition;
use peeklock_core::contract::{Principal, Right, Rights};
use peeklock_core::declaration::{
    Declaration, DeclaredQueue, DeclaredSubscription, DeclaredTopic, Existing, StepKind,
};
use peeklock_core::description::{
    Cleared, Jitter, QueueDescription, QueueUpdate, RetryKind, RetryPolicy, SessionRetryOrder,
    SubscriptionDescription, SubscriptionUpdate, TopicDescription, TopicUpdate,
};
use peeklock_core::management::Management;
use peeklock_core::policies::PolicyUpdate;
use peeklock_core::rule::{CorrelationFilter, Filter, RuleDescription};
use peeklock_core::time::{TimeSpan, Timestamp};

/// Pseudo-random numbers from a seed.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, count: u64) -> u64 {
        self.next() % count
    }

    fn one_in(&mut self, count: u64) -> bool {
        self.below(count) == 0
    }

    fn maybe<T>(&mut self, value: impl FnOnce(&mut Self) -> T) -> Option<T> {
        if self.one_in(3) { Some(value(self)) } else { None }
    }

    fn span(&mut self) -> TimeSpan {
        TimeSpan::from_seconds(10 + i64::try_from(self.below(3)).unwrap() * 20)
    }

    fn flag(&mut self) -> bool {
        self.one_in(2)
    }

    fn retry(&mut self) -> Option<RetryPolicy> {
        if self.one_in(3) {
            return None;
        }
        let kind = RetryKind::ALL[usize::try_from(self.below(3)).unwrap()];
        let delay = TimeSpan::from_seconds(1);
        Some(RetryPolicy { kind, delay, delay_max: None, jitter: Jitter::NONE })
    }

    fn order(&mut self) -> SessionRetryOrder {
        SessionRetryOrder::ALL[usize::try_from(self.below(2)).unwrap()]
    }

    fn destination(&mut self) -> Box<str> {
        ["q0", "q1", "q2", "q3", "t0", "t1"][usize::try_from(self.below(6)).unwrap()].into()
    }

    fn cleared(&mut self) -> Cleared {
        Cleared {
            forward_to: self.one_in(4),
            forward_dead_lettered_messages_to: self.one_in(4),
            user_metadata: self.one_in(4),
        }
    }

    fn queue(&mut self) -> QueueUpdate {
        QueueUpdate {
            lock_duration: self.maybe(Self::span),
            max_delivery_count: self.maybe(|it| 1 + u32::try_from(it.below(3)).unwrap()),
            requires_session: self.one_in(12).then_some(true),
            auto_delete_on_idle: self.maybe(|_| TimeSpan::from_minutes(10)),
            dead_lettering_on_message_expiration: self.maybe(Self::flag),
            forward_to: self.maybe(Self::destination),
            forward_dead_lettered_messages_to: self.maybe(Self::destination),
            user_metadata: self.maybe(|it| format!("text {}", it.below(3)).into()),
            retry_policy: self.maybe(Self::retry),
            session_retry_order: self.maybe(Self::order),
            ..QueueUpdate::default()
        }
    }

    fn topic(&mut self) -> TopicUpdate {
        TopicUpdate {
            default_message_time_to_live: self.maybe(Self::span),
            user_metadata: self.maybe(|it| format!("text {}", it.below(3)).into()),
            requires_duplicate_detection: self.one_in(20).then_some(true),
            ..TopicUpdate::default()
        }
    }

    fn subscription(&mut self) -> SubscriptionUpdate {
        SubscriptionUpdate {
            lock_duration: self.maybe(Self::span),
            forward_to: self.maybe(Self::destination),
            retry_policy: self.maybe(Self::retry),
            session_retry_order: self.maybe(Self::order),
            catch_all: self.maybe(Self::flag),
            user_metadata: self.maybe(|it| format!("text {}", it.below(3)).into()),
            ..SubscriptionUpdate::default()
        }
    }

    fn rules(&mut self) -> Option<Vec<RuleDescription>> {
        self.maybe(|it| {
            let names = ["$Default", "a", "B", "c"].into_iter().filter(|_| it.flag());
            let names: Vec<&str> = names.collect();
            let rule = |name: &str| {
                let filter = match it.below(3) {
                    0 => Filter::True,
                    1 => Filter::sql("a = 1"),
                    _ => Filter::sql("a = 2"),
                };
                let rule = RuleDescription::new(name, filter, Timestamp::NONE);
                if it.one_in(3) { rule.with_action("SET b = 1") } else { rule }
            };
            names.into_iter().map(rule).collect()
        })
    }

    fn declaration(&mut self) -> Declaration {
        let mut declaration = Declaration::new();
        for path in ["q0", "q1", "q2", "q3"] {
            if self.flag() {
                let cleared = self.cleared();
                let queue =
                    DeclaredQueue { cleared, ..DeclaredQueue::new(path).with(self.queue()) };
                declaration.queues.push(queue);
            }
        }
        for path in ["t0", "t1"] {
            if !self.flag() {
                continue;
            }
            let cleared = self.cleared();
            let mut topic =
                DeclaredTopic { cleared, ..DeclaredTopic::new(path).with(self.topic()) };
            for name in ["s0", "s1"] {
                if self.flag() {
                    let (properties, cleared) = (self.subscription(), self.cleared());
                    let rules = self.rules();
                    let name = name.into();
                    topic = topic.with_subscription(DeclaredSubscription {
                        name,
                        properties,
                        cleared,
                        rules,
                        ..DeclaredSubscription::default()
                    });
                }
            }
            declaration.topics.push(topic);
        }
        declaration
    }
}

/// Everything in a namespace.
#[derive(Clone, PartialEq, Debug, Default)]
struct Whole {
    queues: BTreeMap<String, QueueDescription>,
    topics: BTreeMap<String, TopicDescription>,
    subscriptions: BTreeMap<String, (SubscriptionDescription, Vec<RuleDescription>)>,
}

impl Whole {
    async fn of(broker: &Broker) -> Self {
        let mut whole = Self::default();
        for path in broker.queue_paths(0, usize::MAX) {
            let described = broker.describe_queue(&path).await.unwrap();
            whole.queues.insert(path.to_string(), described.description);
        }
        for path in broker.topic_paths(0, usize::MAX) {
            let described = broker.describe_topic(&path).await.unwrap();
            whole.topics.insert(path.to_string(), described.description);
            for path in broker.subscription_paths(&path, 0, usize::MAX).unwrap() {
                let described = broker.describe_subscription(&path).await.unwrap();
                let rules = broker.rules(&path, 0, usize::MAX).await.unwrap();
                whole.subscriptions.insert(path.to_string(), (described.description, rules));
            }
        }
        whole
    }

    /// The expected result of a declaration, computed without a plan: property by property.
    fn expect(&mut self, declaration: &Declaration, broker: &Broker) {
        let settings = broker.settings();
        for DeclaredQueue { path, properties, cleared } in &declaration.queues {
            let before = self.queues.remove(&**path).unwrap_or_else(|| settings.new_queue(&**path));
            let text = |new: &Option<Box<str>>, old: &Option<Box<str>>, is_cleared: bool| {
                new.clone().or_else(|| old.clone().filter(|_| !is_cleared))
            };
            let wanted = QueueUpdate {
                forward_to: text(&properties.forward_to, &before.forward_to, cleared.forward_to),
                forward_dead_lettered_messages_to: text(
                    &properties.forward_dead_lettered_messages_to,
                    &before.forward_dead_lettered_messages_to,
                    cleared.forward_dead_lettered_messages_to,
                ),
                user_metadata: text(
                    &properties.user_metadata,
                    &before.user_metadata,
                    cleared.user_metadata,
                ),
                ..properties.clone()
            };
            self.queues.insert(path.to_string(), wanted.over(&before));
        }
        for DeclaredTopic { path, properties, cleared, subscriptions } in &declaration.topics {
            let before = self.topics.remove(&**path).unwrap_or_else(|| settings.new_topic(&**path));
            let kept = before.user_metadata.clone().filter(|_| !cleared.user_metadata);
            let user_metadata = properties.user_metadata.clone().or(kept);
            let wanted = TopicUpdate { user_metadata, ..properties.clone() };
            self.topics.insert(path.to_string(), wanted.over(&before));
            for DeclaredSubscription { name, properties, cleared, rules, .. } in subscriptions {
                let key = format!("{path}/Subscriptions/{name}");
                let (before, rules_before) = self.subscriptions.remove(&key).unwrap_or_else(|| {
                    let description = settings.new_subscription(&**path, &**name);
                    (description, vec![RuleDescription::default_rule(Timestamp::NONE)])
                });
                let keep =
                    |old: &Option<Box<str>>, is_cleared: bool| old.clone().filter(|_| !is_cleared);
                let wanted = SubscriptionUpdate {
                    forward_to: properties
                        .forward_to
                        .clone()
                        .or_else(|| keep(&before.forward_to, cleared.forward_to)),
                    forward_dead_lettered_messages_to: properties
                        .forward_dead_lettered_messages_to
                        .clone()
                        .or_else(|| {
                            keep(
                                &before.forward_dead_lettered_messages_to,
                                cleared.forward_dead_lettered_messages_to,
                            )
                        }),
                    user_metadata: properties
                        .user_metadata
                        .clone()
                        .or_else(|| keep(&before.user_metadata, cleared.user_metadata)),
                    ..properties.clone()
                };
                let mut rules = rules.clone().unwrap_or(rules_before);
                rules.sort_by_key(RuleDescription::key);
                self.subscriptions.insert(key, (wanted.over(&before), rules));
            }
        }
    }

    /// Removes instants, which declarations do not contain.
    fn timeless(mut self) -> Self {
        for (_, rules) in self.subscriptions.values_mut() {
            for rule in rules {
                rule.created_at = Timestamp::NONE;
            }
        }
        self
    }
}

async fn started() -> Broker {
    Broker::builder().arbiters(1).start().await.unwrap()
}

async fn stop(broker: Broker) {
    broker.stop(Duration::ZERO).await.unwrap();
}

/// Carries out a declaration in parts, like a remote caller. A refused plan must change nothing.
async fn carried_out(broker: &Broker, declaration: &Declaration, random: &mut Random) -> bool {
    let before = Whole::of(broker).await;
    let plan = match broker.plan(declaration).await {
        Ok(plan) => plan,
        Err(error) => {
            let expected =
                [Condition::EntityNotFound, Condition::ArgumentError, Condition::InvalidOperation];
            assert!(expected.contains(&error.condition()), "{error:?}");
            assert_eq!(Whole::of(broker).await, before);
            return false;
        }
    };
    assert_eq!(Whole::of(broker).await, before, "a plan changes nothing");
    let (mut rest, mut done) = (plan.clone(), 0);
    while !rest.is_empty() {
        let most = 1 + usize::try_from(random.below(3)).unwrap();
        let part = broker.carry_out(declaration, rest.digest(), most).await.unwrap();
        assert!(part.failure.is_none(), "{:?} of {plan:#?}", part.failure);
        assert!((1..=most).contains(&part.done));
        done += part.done;
        rest = part.rest;
    }
    assert_eq!(done, plan.steps.len());
    true
}

/// DEC-01, DEC-02, DEC-03, DEC-06, DEC-07, DEC-10: any declaration over any namespace, in parts of
/// any size: the plan changes nothing; afterwards everything is as declared, no step is left, and
/// nothing that was not named has changed.
#[tokio::test]
async fn a_declaration_changes_only_the_declared_entities() {
    let mut taken = 0;
    for seed in 0..120 {
        let mut random = Random(seed);
        let broker = started().await;
        for _ in 0..4 {
            let declaration = random.declaration();
            let mut expected = Whole::of(&broker).await.timeless();
            if !carried_out(&broker, &declaration, &mut random).await {
                continue;
            }
            taken += 1;
            expected.expect(&declaration, &broker);
            let now = Whole::of(&broker).await.timeless();
            assert_eq!(now, expected, "seed {seed}: {declaration:#?}");
            let again = broker.plan(&declaration).await.unwrap();
            assert!(again.is_empty(), "seed {seed}: {again:#?}");
        }
        stop(broker).await;
    }
    // Enough declarations were valid.
    assert!(taken > 100, "{taken}");
}

/// DEC-07, DEC-10: steps that are carried out one at a time are the planned steps in their order,
/// also if a circle is closed among other updates.
#[tokio::test]
async fn single_steps_are_the_planned_steps() {
    let broker = started().await;
    for path in ["old", "older"] {
        broker.create_queue(path, QueueUpdate::default()).await.unwrap();
    }
    let forwarding = |path: &str, to: &str| {
        let set = QueueUpdate { forward_to: Some(to.into()), ..QueueUpdate::default() };
        DeclaredQueue::new(path).with(set)
    };
    let declaration = Declaration::new()
        .with_queue(forwarding("old", "c"))
        .with_queue(forwarding("a", "b"))
        .with_queue(forwarding("older", "a"))
        .with_queue(forwarding("b", "a"))
        .with_queue(forwarding("c", "c2"))
        .with_queue(forwarding("c2", "c"))
        .with_topic(DeclaredTopic::new("t"));
    let plan = broker.plan(&declaration).await.unwrap();
    assert_eq!((plan.count(StepKind::Create), plan.count(StepKind::Update)), (5, 4));
    let mut rest = plan.clone();
    for done in 0..plan.steps.len() {
        assert_eq!(rest.steps, plan.steps[done..]);
        let again = broker.plan(&declaration).await.unwrap();
        assert_eq!(again, rest, "after {done}");
        rest = broker.carry_out(&declaration, rest.digest(), 1).await.unwrap().rest;
    }
    assert!(rest.is_empty());
    stop(broker).await;
}

/// DEC-03: an empty list of rules means no rules, for a new and for an existing subscription.
/// Without a list a new subscription has `$Default`.
#[tokio::test]
async fn an_empty_list_of_rules_leaves_none() {
    let broker = started().await;
    let subscription = |name: &str, rules: Option<Vec<RuleDescription>>| DeclaredSubscription {
        name: name.into(),
        rules,
        ..DeclaredSubscription::default()
    };
    let declared = |old: Option<Vec<RuleDescription>>| {
        let topic = DeclaredTopic::new("t")
            .with_subscription(subscription("old", old))
            .with_subscription(subscription("new", Some(Vec::new())));
        Declaration::new().with_topic(topic)
    };
    let count = async |name: &str| {
        let path = format!("t/Subscriptions/{name}");
        broker.rules(&path, 0, usize::MAX).await.unwrap().len()
    };
    broker.declare(&declared(None)).await.unwrap();
    assert_eq!((count("old").await, count("new").await), (1, 0));
    broker.declare(&declared(Some(Vec::new()))).await.unwrap();
    assert_eq!((count("old").await, count("new").await), (0, 0));
    stop(broker).await;
}

/// DEC-09: if the steps have changed, none is carried out. A change of the namespace that leaves
/// the steps as they are does not matter.
#[tokio::test]
async fn an_outdated_plan_is_not_carried_out() {
    let broker = started().await;
    broker.create_queue("orders", QueueUpdate::default()).await.unwrap();
    let set = QueueUpdate { max_delivery_count: Some(5), ..QueueUpdate::default() };
    let declaration = Declaration::new()
        .with_queue(DeclaredQueue::new("new"))
        .with_queue(DeclaredQueue::new("orders").with(set));
    let digest = broker.plan(&declaration).await.unwrap().digest();
    let other =
        QueueUpdate { lock_duration: Some(TimeSpan::from_seconds(30)), ..QueueUpdate::default() };
    broker.update_queue("orders", other, None).await.unwrap();
    assert_eq!(broker.plan(&declaration).await.unwrap().digest(), digest);
    let other = QueueUpdate { max_delivery_count: Some(7), ..QueueUpdate::default() };
    broker.update_queue("orders", other, None).await.unwrap();
    let error = broker.carry_out(&declaration, digest, usize::MAX).await.unwrap_err();
    assert_eq!(error.condition(), Condition::UpdateConflict);
    assert!(error.detail().ends_with("plan again"), "{}", error.detail());
    assert!(broker.describe_queue("new").await.is_err());
    stop(broker).await;
}

/// DEC-12: a plan requires Manage on all named entities and destinations. The refusal is the same
/// for existing and absent entities.
#[tokio::test]
async fn a_plan_requires_the_right_to_manage() {
    let broker = started().await;
    for path in ["mine", "other"] {
        broker.create_queue(path, QueueUpdate::default()).await.unwrap();
    }
    let less = Rights::of(Right::Listen).and(Right::Send);
    for (name, rights) in [("manager", less.and(Right::Manage)), ("listener", less)] {
        let update = PolicyUpdate { rights: Some(rights), ..PolicyUpdate::default() };
        broker.create_policy("mine", name, update).await.unwrap();
    }
    let declared = |path: &str, to: Option<&str>| {
        let set = QueueUpdate { forward_to: to.map(Into::into), ..QueueUpdate::default() };
        Declaration::new().with_queue(DeclaredQueue::new(path).with(set))
    };
    let manager = broker.access_of_policy("mine", "manager");
    assert!(manager.plan(&declared("mine", None)).await.unwrap().is_empty());
    let listener = broker.access_of_policy("mine", "listener");
    let behind = |path: &str| declared("mine", None).with_queue(DeclaredQueue::new(path));
    for (access, declaration) in [
        (&listener, declared("mine", None)),
        (&manager, declared("other", None)),
        (&manager, declared("absent", None)),
        // Each entity is judged, not only the first.
        (&manager, behind("other")),
        (&manager, behind("absent")),
        (&manager, declared("mine", Some("other"))),
        (&manager, declared("mine", Some("absent"))),
    ] {
        let error = access.plan(&declaration).await.unwrap_err();
        assert_eq!(error.condition(), Condition::Unauthorized, "{declaration:?}");
        let error = access.declare(&declaration).await.unwrap_err();
        assert_eq!(error.condition(), Condition::Unauthorized, "{declaration:?}");
    }
    stop(broker).await;
}

/// DEC-11: steps before a failed one stay done and are reported, and repeating the declaration does
/// the rest.
#[tokio::test]
async fn a_failure_reports_done_and_remaining_steps() {
    let mut settings = peeklock_core::description::Settings::default();
    settings.limits.entity_count_max = 3;
    let broker = Broker::builder().settings(settings).arbiters(1).start().await.unwrap();
    broker.create_queue("old", QueueUpdate::default()).await.unwrap();
    let declaration = Declaration::new()
        .with_queue(DeclaredQueue::new("a"))
        .with_queue(DeclaredQueue::new("b"))
        .with_queue(DeclaredQueue::new("c"));
    let digest = broker.plan(&declaration).await.unwrap().digest();
    let part = broker.carry_out(&declaration, digest, usize::MAX).await.unwrap();
    assert_eq!((part.done, part.rest.steps.len()), (2, 1));
    assert_eq!(part.failure.unwrap().condition(), Condition::QuotaExceeded);
    let error = broker.declare(&declaration).await.unwrap_err();
    assert_eq!(error.condition(), Condition::QuotaExceeded);
    assert!(
        error.detail().starts_with("0 of 1 steps are done; create queue `c` failed: "),
        "{}",
        error.detail()
    );
    broker.delete_entity("old").await.unwrap();
    assert_eq!(broker.declare(&declaration).await.unwrap().count(StepKind::Create), 1);
    stop(broker).await;
}

/// DEC-14: with `Existing::Keep`, existing entities are kept and reported with both values, and
/// missing ones are created.
#[tokio::test]
async fn existing_entities_are_kept_on_request() {
    let broker = started().await;
    broker.create_queue("orders", QueueUpdate::default()).await.unwrap();
    let set = QueueUpdate { max_delivery_count: Some(5), ..QueueUpdate::default() };
    let declaration = Declaration::new()
        .with_queue(DeclaredQueue::new("new"))
        .with_queue(DeclaredQueue::new("orders").with(set))
        .existing(Existing::Keep);
    let plan = broker.declare(&declaration).await.unwrap();
    assert_eq!((plan.steps.len(), plan.kept.len()), (1, 1));
    let change = &plan.kept[0].changes[0];
    assert_eq!((change.before.as_deref(), change.after.as_deref()), (Some("10"), Some("5")));
    let orders = broker.describe_queue("orders").await.unwrap().description;
    assert_eq!(orders.max_delivery_count, 10);
    broker.describe_queue("new").await.unwrap();
    stop(broker).await;
}

/// DEC-10, DESIGN D6: carrying out a declaration plans it again, for which it waits for a turn like
/// any plan. A caller that gets no turn is refused as busy, and nothing is done.
#[tokio::test]
async fn carrying_out_waits_for_its_turn_at_a_plan() {
    let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_800_000_000_000)));
    let builder = Broker::builder().clock(Arc::clone(&clock) as Arc<_>).arbiters(1);
    let broker = builder.start().await.unwrap();
    let access = broker.access(Principal::default());
    let declaration = Declaration::new().with_queue(DeclaredQueue::new("a"));
    let digest = access.plan(&declaration).await.unwrap().digest();
    let mut turns = Vec::new();
    for _ in 0..8 {
        turns.push(
            access.turn_at("", Management::Plan(Box::new(declaration.clone()))).await.unwrap(),
        );
    }
    {
        let mut carrying = pin!(access.carry_out(&declaration, digest, 1));
        let refused = loop {
            tokio::select! {
                biased;
                done = carrying.as_mut() => break done.unwrap_err(),
                () = tokio::task::yield_now() => clock.advance(TimeSpan::from_seconds(1)),
            }
        };
        assert_eq!(refused.condition(), Condition::ServerBusy);
    }
    assert!(broker.describe_queue("a").await.is_err());
    turns.pop();
    // It returns its turn after planning: two turns in succession, and one more.
    for done in [1, 0] {
        let plan = access.plan(&declaration).await.unwrap();
        let carried_out = access.carry_out(&declaration, plan.digest(), 1).await.unwrap();
        assert_eq!(carried_out.done, done);
    }
    access.turn_at("", Management::Plan(Box::new(declaration.clone()))).await.unwrap();
    stop(broker).await;
}

/// DEC-03, DEC-06, DESIGN D6: if a subscription declares no rules, none of its rules is read. If it
/// declares rules, changed and removed ones are reported up to a limit, beyond which the plan is
/// refused.
#[tokio::test]
async fn a_plan_reports_rules_up_to_a_limit() {
    let mut settings = peeklock_core::description::Settings::default();
    settings.limits.rule_bytes_max = 1 << 20;
    let broker = Broker::builder().settings(settings).arbiters(1).start().await.unwrap();
    broker.create_topic("t", TopicUpdate::default()).await.unwrap();
    broker.create_subscription("t", "s", SubscriptionUpdate::default(), Vec::new()).await.unwrap();
    let rule = |number: usize| {
        let subject = Some("x".repeat(1_000_000).into());
        let filter = CorrelationFilter { subject, ..CorrelationFilter::default() };
        RuleDescription::new(format!("r{number}"), Filter::Correlation(filter), Timestamp::NONE)
    };
    for number in 0..9 {
        broker.create_rule("t/Subscriptions/s", rule(number)).await.unwrap();
    }
    let declared = |subscription: DeclaredSubscription| {
        Declaration::new().with_topic(DeclaredTopic::new("t").with_subscription(subscription))
    };
    let silent = declared(DeclaredSubscription::new("s"));
    assert!(broker.plan(&silent).await.unwrap().is_empty());
    let none = declared(DeclaredSubscription::new("s").with_rules([]));
    let refused = broker.plan(&none).await.unwrap_err();
    assert_eq!(refused.condition(), Condition::QuotaExceeded, "{}", refused.detail());
    // Unchanged rules do not count.
    let most = declared(DeclaredSubscription::new("s").with_rules((1..9).map(rule)));
    assert_eq!(broker.plan(&most).await.unwrap().steps[0].changes.len(), 2);
    stop(broker).await;
}

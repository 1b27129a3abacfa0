//! Tests of plans. `tests/declarations.rs` proves that carrying one out satisfies the declaration.

use super::planner::{ExistingEntity, PlanWithWork, Snapshot, StepWork, UnnamedEntity, plan};
use super::rules::{RuleChanges, RuleDifference, RuleTextBudget};
use super::yielder::{Yielder, run_counting_yields};
use super::*;
use crate::condition::Condition;
use crate::description::{EntityKind, Settings};
use crate::path::PathKey;
use crate::rule::{CorrelationFilter, Filter};
use crate::time::{TimeSpan, Timestamp};

fn settings() -> Settings {
    Settings::default()
}

/// Returns a namespace with these entities.
fn having(found: Vec<ExistingEntity>) -> Snapshot {
    let mut snapshot = Snapshot::default();
    for found in found {
        let path = match &found {
            ExistingEntity::Queue(queue) => queue.path.to_string(),
            ExistingEntity::Topic(topic) => topic.path.to_string(),
            ExistingEntity::Subscription(subscription, _) => subscription.path(),
        };
        if !matches!(found, ExistingEntity::Subscription(..)) {
            snapshot.destinations.insert(PathKey::fold(&path));
        }
        snapshot.entities.insert(PathKey::fold(&path), found);
    }
    snapshot
}

fn queue(path: &str, properties: QueueUpdate) -> DeclaredQueue {
    DeclaredQueue::new(path).with(properties)
}

fn forwarding(path: &str, to: &str) -> DeclaredQueue {
    queue(path, QueueUpdate { forward_to: Some(to.into()), ..QueueUpdate::default() })
}

fn existing_queue(path: &str, properties: QueueUpdate) -> ExistingEntity {
    ExistingEntity::Queue(properties.create(path, &settings()).unwrap())
}

fn rule(name: &str, filter: Filter) -> RuleDescription {
    RuleDescription::new(name, filter, Timestamp::NONE)
}

/// Renders steps as readable text.
fn told(plan: &Plan) -> Vec<String> {
    let value = |value: &Option<Box<str>>| value.as_deref().unwrap_or("-").to_owned();
    let step = |step: &Step| {
        let changes = step.changes.iter().map(|change| {
            format!(" {}: {} > {}", change.property, value(&change.before), value(&change.after))
        });
        format!("{step}{}", changes.collect::<Vec<_>>().join(","))
    };
    plan.steps.iter().map(step).collect()
}

/// Judges and plans, and counts the yields.
fn made(
    declaration: &Declaration,
    snapshot: &Snapshot,
    settings: &Settings,
) -> (Result<PlanWithWork, DeclarationError>, usize) {
    run_counting_yields(async {
        let mut yielder = Yielder::default();
        declaration.judge_in_parts(settings, &mut yielder).await?;
        plan(declaration, snapshot.clone(), settings, &mut yielder).await
    })
}

fn planned(declaration: &Declaration, snapshot: &Snapshot) -> PlanWithWork {
    made(declaration, snapshot, &settings()).0.unwrap()
}

fn refused(declaration: &Declaration, snapshot: &Snapshot) -> (Condition, String) {
    let refused = made(declaration, snapshot, &settings()).0.unwrap_err();
    // The version without yields must return the same result when the namespace is not involved.
    if let Err(wrong) = declaration.judge(&settings()) {
        assert_eq!(wrong, refused);
    }
    let refused = refused.into_rejection();
    (refused.condition(), refused.detail().to_owned())
}

/// Returns the changes that give the declared rules, and counts the yields.
fn difference(
    there: &[RuleDescription],
    declared: &[RuleDescription],
) -> (Result<RuleChanges, crate::error::Rejection>, usize) {
    run_counting_yields(async {
        let (mut yielder, mut telling) = (Yielder::default(), RuleTextBudget::default());
        let others = OtherRules::Remove;
        let mut difference = RuleDifference::new(declared, others, &mut yielder).await;
        for rule in there {
            difference.compare(rule, &mut telling)?;
            yielder.part().await;
        }
        Ok(difference.into_changes(&mut yielder).await)
    })
}

/// DEC-01, DEC-02, DEC-06: a missing entity is created, a different one is updated with both
/// values, a matching one is counted, and one that is not named is in no step.
#[test]
fn plan_contains_only_differences() {
    let set = QueueUpdate { max_delivery_count: Some(5), ..QueueUpdate::default() };
    let there = QueueUpdate {
        lock_duration: Some(TimeSpan::from_seconds(30)),
        user_metadata: Some("mine".into()),
        ..QueueUpdate::default()
    };
    let snapshot = having(vec![
        existing_queue("Orders", there.clone()),
        existing_queue("done", set.clone()),
        existing_queue("bare", there),
    ]);
    let mut bare = DeclaredQueue::new("bare");
    bare.cleared.user_metadata = true;
    let declaration = Declaration::new()
        .with_queue(queue("orders", set.clone()))
        .with_queue(queue("done", set.clone()))
        .with_queue(bare)
        .with_queue(queue("new", set));
    let plan = planned(&declaration, &snapshot).plan;
    assert_eq!(
        told(&plan),
        [
            "create queue `new` max_delivery_count: - > 5",
            "update queue `Orders` max_delivery_count: 10 > 5",
            "update queue `bare` user_metadata: mine > -",
        ]
    );
    assert_eq!(plan.unchanged_count, 1);
    assert_eq!(plan.kept, []);
}

/// DEC-03: a list of rules is complete; without a list existing rules stay; new rules are added
/// before old ones are removed.
#[test]
fn a_subscription_has_exactly_the_rules_that_it_declares() {
    let there = |declared: Option<&[RuleDescription]>| {
        let topic = settings().new_topic("events");
        let subscription = settings().new_subscription("events", "eu");
        let rules = [
            RuleDescription::default_rule(Timestamp::NONE),
            rule("Same", Filter::sql("a = 1")),
            rule("other", Filter::sql("b = 1")),
        ];
        let changes = declared.map(|declared| difference(&rules, declared).0.unwrap());
        let subscription = ExistingEntity::Subscription(subscription, changes.unwrap_or_default());
        having(vec![ExistingEntity::Topic(topic), subscription])
    };
    let declared = |subscription: DeclaredSubscription| {
        let topic = DeclaredTopic::new("events").with_subscription(subscription);
        Declaration::new().with_topic(topic)
    };
    let silent = declared(DeclaredSubscription::new("eu"));
    assert!(planned(&silent, &there(None)).plan.is_empty());
    let rules =
        [rule("same", Filter::sql("a = 1")), rule("OTHER", Filter::True), rule("x", Filter::False)];
    let exact = declared(DeclaredSubscription::new("eu").with_rules(rules.clone()));
    assert_eq!(
        told(&planned(&exact, &there(Some(&rules))).plan),
        [
            "update subscription `events/Subscriptions/eu` rule OTHER: sql: b = 1 > true, rule x: - > false, \
          rule $Default: true > -"
        ]
    );
    let none = declared(DeclaredSubscription::new("eu").with_rules([]));
    let plan = planned(&none, &there(Some(&[]))).plan;
    assert_eq!(plan.steps[0].changes.len(), 3);
    let created = planned(&none, &Snapshot::default()).plan;
    assert_eq!(
        told(&created),
        ["create topic `events`", "create subscription `events/Subscriptions/eu` rules: - > none"]
    );
}

/// DEC-04: each fault is reported with its place, before the broker is queried.
#[test]
fn impossible_declaration_is_refused_with_its_place() {
    let two = |a: &str, b: &str| {
        Declaration::new().with_queue(DeclaredQueue::new(a)).with_queue(DeclaredQueue::new(b))
    };
    let below = |subscription: DeclaredSubscription| {
        let ok = DeclaredSubscription::new("ok");
        let topic = DeclaredTopic::new("t").with_subscription(ok).with_subscription(subscription);
        Declaration::new().with_topic(topic)
    };
    let rules =
        |rules: Vec<RuleDescription>| below(DeclaredSubscription::new("s").with_rules(rules));
    let short = QueueUpdate { lock_duration: Some(TimeSpan::ZERO), ..QueueUpdate::default() };
    let of_topic = two("a", "b").with_topic(DeclaredTopic::new("B"));
    for (declaration, said) in [
        (two("a", "A"), "queues[1]: the path `A` is declared twice; keep one"),
        (two("a", "b//c"), "queues[1]: path `b//c` has two separators in a row"),
        (of_topic, "topics[0]: the path `B` is declared twice"),
        (
            two("a", "b").with_queue(queue("c", short)),
            "queues[2]: LockDuration of queue `c` is PT0S",
        ),
        (
            below(DeclaredSubscription::new("OK")),
            "topics[0].subscriptions[1]: the subscription `OK`",
        ),
        (
            rules(vec![rule("r", Filter::True), rule("R", Filter::True)]),
            "topics[0].subscriptions[1].rules[1]: the rule `R` is declared twice",
        ),
        (rules(vec![rule("r", Filter::sql("a ="))]), "topics[0].subscriptions[1].rules[0]: "),
    ] {
        let (_, detail) = refused(&declaration, &Snapshot::default());
        assert!(detail.starts_with(said), "{detail}");
    }
    let many = (0..=ENTITY_COUNT_MAX).map(|index| DeclaredQueue::new(format!("q{index}")));
    let many = Declaration { queues: many.collect(), ..Declaration::new() };
    let (condition, detail) = refused(&many, &Snapshot::default());
    assert_eq!(condition, Condition::QuotaExceeded);
    assert!(detail.contains("more than 10000; declare them in several"), "{detail}");
}

/// DEC-05: the error has both values, the reason, and a remedy.
#[test]
fn fixed_property_change_is_refused_with_both_values() {
    let snapshot = having(vec![
        existing_queue("orders", QueueUpdate::default()),
        ExistingEntity::Topic(settings().new_topic("events")),
    ]);
    let sessions = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
    let (condition, detail) =
        refused(&Declaration::new().with_queue(queue("orders", sessions.clone())), &snapshot);
    assert_eq!(condition, Condition::ArgumentError);
    assert_eq!(
        detail,
        "queues[0]: requires_session of queue `orders` is false and cannot become true: it is \
         fixed at creation; declare the existing value, or delete the queue so that it is created \
         again"
    );
    let (condition, detail) =
        refused(&Declaration::new().with_queue(DeclaredQueue::new("Events")), &snapshot);
    assert_eq!(condition, Condition::EntityAlreadyExists);
    assert_eq!(
        detail,
        "queues[0]: `Events` is declared as a queue but exists as a topic; declare another path, \
         or delete the topic"
    );
    // If existing entities are kept, an impossible difference is reported like others.
    let kept = Declaration::new().with_queue(queue("orders", sessions)).existing(Existing::Keep);
    let plan = planned(&kept, &snapshot).plan;
    assert!(plan.is_empty());
    assert_eq!(&*plan.kept[0].changes[0].property, "requires_session");
}

/// DEC-07: topics come first, then destinations before entities that forward to them, then updates;
/// circles are closed at the end.
#[test]
fn steps_are_in_feasible_order() {
    let all = SubscriptionUpdate { forward_to: Some("a".into()), ..SubscriptionUpdate::default() };
    let topic = DeclaredTopic::new("t").with_subscription(DeclaredSubscription::new("s").with(all));
    let idle = QueueUpdate {
        auto_delete_on_idle: Some(TimeSpan::from_minutes(10)),
        forward_to: Some("x".into()),
        ..QueueUpdate::default()
    };
    let declaration = Declaration::new()
        .with_queue(forwarding("old", "a"))
        .with_queue(forwarding("a", "b"))
        .with_queue(forwarding("b", "T"))
        .with_queue(queue("x", QueueUpdate { forward_to: Some("y".into()), ..idle.clone() }))
        .with_queue(queue("y", idle))
        .with_topic(topic);
    let snapshot = having(vec![existing_queue("old", QueueUpdate::default())]);
    let planned = planned(&declaration, &snapshot);
    assert_eq!(
        told(&planned.plan),
        [
            "create topic `t`",
            "create queue `b` forward_to: - > T",
            "create queue `a` forward_to: - > b",
            "create subscription `t/Subscriptions/s` forward_to: - > a",
            "create queue `x` auto_delete_on_idle: - > PT10M",
            "create queue `y` forward_to: - > x, auto_delete_on_idle: - > PT10M",
            "update queue `old` forward_to: - > a",
            "update queue `x` forward_to: - > y",
        ]
    );
    let StepWork::CreateQueue(begun) = &planned.work[4] else { panic!("{:?}", planned.work[4]) };
    assert_eq!(begun.forward_to, None);
}

/// DEC-08: a destination that neither exists nor is declared is refused.
#[test]
fn missing_destination_is_refused() {
    let snapshot = having(vec![existing_queue("there", QueueUpdate::default())]);
    for (to, is_there) in [("there", true), ("other", true), ("absent", false)] {
        let declaration = Declaration::new()
            .with_queue(forwarding("q", to))
            .with_queue(DeclaredQueue::new("other"));
        if is_there {
            planned(&declaration, &snapshot);
            continue;
        }
        let (condition, detail) = refused(&declaration, &snapshot);
        assert_eq!(condition, Condition::EntityNotFound);
        assert_eq!(
            detail,
            "queues[0]: forward_to of queue `q` names `absent`, which neither exists nor is \
             declared; declare it, or create it first"
        );
    }
}

/// DEC-09, DEC-10: the digest depends only on the steps, also of the remaining ones.
#[test]
fn plans_of_other_steps_have_other_digests() {
    let declaration = |count| {
        let set = QueueUpdate { max_delivery_count: Some(count), ..QueueUpdate::default() };
        Declaration::new().with_queue(queue("a", set)).with_queue(DeclaredQueue::new("b"))
    };
    let empty = Snapshot::default();
    let plan = |count, snapshot: &Snapshot| planned(&declaration(count), snapshot).plan;
    let digest = plan(5, &empty).digest();
    assert_eq!(plan(5, &empty).digest(), digest);
    assert_ne!(plan(6, &empty).digest(), digest);
    let elsewhere = having(vec![existing_queue("c", QueueUpdate::default())]);
    assert_eq!(plan(5, &elsewhere).digest(), digest);
    let begun = having(vec![existing_queue(
        "a",
        QueueUpdate { max_delivery_count: Some(5), ..QueueUpdate::default() },
    )]);
    let (rest, _) = run_counting_yields(plan(5, &empty).after(1));
    assert_eq!(rest.digest(), plan(5, &begun).digest());
    assert_eq!(rest.unchanged_count, plan(5, &begun).unchanged_count);
    assert_eq!(Digest::parse(&digest.to_string()), Some(digest));
    for wrong in ["", "0", "+123456789abcdef", "0123456789abcdefg"] {
        assert_eq!(Digest::parse(wrong), None, "{wrong}");
    }
}

/// DESIGN D6: a declaration is judged, planned and described in parts of at most 64 entities or
/// rules, with a yield between them: queues, subscriptions, and rules that are added, changed and
/// removed.
#[test]
fn planning_yields_between_parts() {
    const MANY: usize = 1_000;
    const PART: usize = 64;
    let settings = settings();
    let queues = (0..MANY).map(|index| DeclaredQueue::new(format!("q{index}")));
    let queues = Declaration { queues: queues.collect(), ..Declaration::new() };
    let rules = |text: &str| -> Vec<RuleDescription> {
        (0..MANY).map(|index| rule(&format!("r{index}"), Filter::sql(text))).collect()
    };
    let topic = |subscription: DeclaredSubscription| {
        Declaration::new().with_topic(DeclaredTopic::new("t").with_subscription(subscription))
    };
    let new = topic(DeclaredSubscription::new("s").with_rules(rules("a = 1")));
    for declaration in [&queues, &new] {
        let (judged, yields) = run_counting_yields(async {
            declaration.judge_in_parts(&settings, &mut Yielder::default()).await
        });
        judged.unwrap();
        assert!(yields >= MANY / PART, "judged with {yields}");
        let (planned, yields) = run_counting_yields(async {
            plan(declaration, Snapshot::default(), &settings, &mut Yielder::default()).await
        });
        // Each is planned, described and hashed.
        assert!(yields >= 3 * (MANY / PART), "planned with {yields}");
        let (_, yields) = run_counting_yields(planned.unwrap().plan.after(0));
        assert!(yields >= MANY / PART, "the plan yields {yields} times");
    }
    for declared in [rules("a = 2"), Vec::new()] {
        let (changes, yields) = difference(&rules("a = 1"), &declared);
        assert!(yields >= MANY / PART, "compared with {yields}");
        let found = having(vec![
            ExistingEntity::Topic(settings.new_topic("t")),
            ExistingEntity::Subscription(settings.new_subscription("t", "s"), changes.unwrap()),
        ]);
        let declaration = topic(DeclaredSubscription::new("s").with_rules(declared));
        let (planned, yields) = run_counting_yields(async {
            plan(&declaration, found, &settings, &mut Yielder::default()).await
        });
        assert_eq!(planned.unwrap().plan.steps[0].changes.len(), MANY);
        assert!(yields >= MANY / PART, "planned with {yields}");
    }
}

/// DEC-06, DESIGN D6: existing rules that change or are removed count up to a bound; unchanged
/// rules do not count, and a rule read twice counts once.
#[test]
fn existing_rules_in_a_plan_are_bounded() {
    let text = "x".repeat(1 << 20);
    let large =
        |name: &str, value: &str| rule(name, Filter::sql(format!("a = '{value}{text}'").as_str()));
    let there: Vec<RuleDescription> =
        (0..9).map(|index| large(&format!("r{index}"), "one")).collect();
    let other: Vec<RuleDescription> =
        (0..9).map(|index| large(&format!("r{index}"), "two")).collect();
    for declared in [&other[..], &[]] {
        let refused = difference(&there, declared).0.unwrap_err();
        assert_eq!(refused.condition(), Condition::QuotaExceeded);
        assert!(refused.detail().contains("delete rules first"), "{}", refused.detail());
        let again = [&there[..7], &there[..7]].concat();
        let changes = difference(&again, declared).0.unwrap();
        assert_eq!(changes.changes.len(), if declared.is_empty() { 7 } else { 9 });
    }
    assert_eq!(difference(&there, &there).0.unwrap(), RuleChanges::default());
    // Short rules count with their overhead. As many as can be declared can be removed.
    let short: Vec<_> = (0..26_000).map(|index| rule(&format!("r{index}"), Filter::True)).collect();
    assert_eq!(difference(&short, &[]).0.unwrap_err().condition(), Condition::QuotaExceeded);
    let most = difference(&short[..RULE_COUNT_MAX], &[]).0.unwrap();
    assert_eq!(most.changes.len(), RULE_COUNT_MAX);
}

/// DEC-18: a step deletes neither an entity that was created again nor a topic with more
/// subscriptions than the plan has.
#[test]
fn deletion_covers_only_what_was_planned() {
    let topic = |ticks: i64, count: u64| UnnamedEntity {
        kind: EntityKind::Topic,
        path: "t".into(),
        created_at: Timestamp::from_ticks(ticks),
        subscription_count: Some(count),
    };
    let planned = topic(5, 2);
    for (present, is_covered) in
        [(topic(5, 2), true), (topic(5, 1), true), (topic(5, 3), false), (topic(6, 2), false)]
    {
        assert_eq!(planned.covers(&present), is_covered, "{present:?}");
    }
}

/// DESIGN D6: the memory of a plan stays within the estimate made before it: for new and changed
/// entities, for added, changed and removed rules, with any escaped characters.
#[test]
fn plan_memory_stays_within_estimate() {
    let weighed = |declaration: &Declaration, snapshot: &Snapshot| {
        let most = run_counting_yields(async {
            declaration.carried_out_bytes_max(&mut Yielder::default()).await
        })
        .0;
        let planned = planned(declaration, snapshot);
        let bytes = run_counting_yields(async { planned.bytes(&mut Yielder::default()).await }).0;
        assert!(bytes <= most, "{bytes} of {most}");
        bytes
    };
    let with = |text: &str| {
        let user_metadata = Some(text.repeat(1_000).into());
        QueueUpdate { user_metadata, ..QueueUpdate::default() }
    };
    let small = Declaration::new().with_queue(DeclaredQueue::new("q"));
    assert!(weighed(&small, &Snapshot::default()) < 16 << 10);
    let updated = Declaration::new().with_queue(queue("q", with("a")));
    weighed(&updated, &having(vec![existing_queue("q", with("b"))]));
    let rules = |count: usize, text: &str| -> Vec<RuleDescription> {
        let filter = Filter::Correlation(CorrelationFilter {
            subject: Some(text.repeat(100).into()),
            ..CorrelationFilter::default()
        });
        (0..count).map(|index| rule(&format!("r{index}"), filter.clone())).collect()
    };
    let shall_have = |declared: Vec<RuleDescription>| {
        let subscription = DeclaredSubscription::new("s").with_rules(declared);
        Declaration::new().with_topic(DeclaredTopic::new("t").with_subscription(subscription))
    };
    weighed(&shall_have(rules(500, "\u{1}")), &Snapshot::default());
    for (there, declared) in [
        (rules(500, "\u{1}"), rules(500, "\"")),
        (rules(10_000, "x"), Vec::new()),
        ((0..RULE_COUNT_MAX).map(|at| rule(&format!("r{at}"), Filter::True)).collect(), Vec::new()),
    ] {
        let changes = difference(&there, &declared).0.unwrap();
        let found = having(vec![
            ExistingEntity::Topic(settings().new_topic("t")),
            ExistingEntity::Subscription(settings().new_subscription("t", "s"), changes),
        ]);
        let bytes = weighed(&shall_have(declared), &found);
        assert!(bytes > 100 << 10, "{bytes}");
    }
}

//! A declaration deletes entities that it does not name, if this is asked for.

use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::condition::Condition;
use peeklock_core::contract::{Right, Rights};
use peeklock_core::declaration::{
    Change, Declaration, DeclaredQueue, DeclaredSubscription, DeclaredTopic, StepKind, Unnamed,
};
use peeklock_core::description::{QueueUpdate, SubscriptionUpdate, TopicUpdate};
use peeklock_core::policies::PolicyUpdate;

/// A broker with queues `a`, `b` and `Kept`, and topics `t` and `gone` with a subscription `s` each,
/// and `t` with `named`.
async fn started() -> Broker {
    let broker = Broker::builder().arbiters(1).start().await.unwrap();
    for path in ["b", "a", "Kept"] {
        broker.create_queue(path, QueueUpdate::default()).await.unwrap();
    }
    for path in ["t", "gone"] {
        broker.create_topic(path, TopicUpdate::default()).await.unwrap();
    }
    for (topic, name) in [("t", "s"), ("t", "named"), ("gone", "s")] {
        let update = SubscriptionUpdate::default();
        broker.create_subscription(topic, name, update, Vec::new()).await.unwrap();
    }
    broker
}

fn declared() -> Declaration {
    let topic = DeclaredTopic::new("T").with_subscription(DeclaredSubscription::new("Named"));
    Declaration::new()
        .with_queue(DeclaredQueue::new("kept"))
        .with_queue(DeclaredQueue::new("new"))
        .with_topic(topic)
}

fn deleting() -> Declaration {
    declared().unnamed(Unnamed::Delete)
}

/// DEC-18: entities that are not named are deleted last and listed in the plan, subscriptions first.
/// A topic is deleted with its subscriptions. Carried out one by one, the steps keep their order;
/// carried out again, there is nothing to do.
#[tokio::test]
async fn unnamed_entities_are_deleted_on_request() {
    let broker = started().await;
    let kept = broker.plan(&declared()).await.unwrap();
    assert_eq!((kept.steps.len(), kept.count(StepKind::Delete)), (1, 0));
    let plan = broker.plan(&deleting()).await.unwrap();
    assert_ne!(plan.digest(), kept.digest());
    let steps: Vec<String> = plan.steps.iter().map(ToString::to_string).collect();
    let expected = [
        "create queue `new`",
        "delete subscription `t/Subscriptions/s`",
        "delete topic `gone`",
        "delete queue `a`",
        "delete queue `b`",
    ];
    assert_eq!(steps, expected);
    assert_eq!(plan.unchanged_count, 3);

    let mut rest = plan.clone();
    for done in 0..plan.steps.len() {
        assert_eq!(rest.steps, plan.steps[done..]);
        let carried_out = broker.carry_out(&deleting(), rest.digest(), 1).await.unwrap();
        assert!(carried_out.failure.is_none(), "{:?}", carried_out.failure);
        rest = carried_out.rest;
    }
    assert_eq!(rest.unchanged_count, 4);
    for gone in ["a", "b"] {
        assert!(broker.describe_queue(gone).await.is_err(), "{gone}");
    }
    assert!(broker.describe_topic("gone").await.is_err());
    assert!(broker.describe_subscription("t/Subscriptions/s").await.is_err());
    broker.describe_subscription("t/Subscriptions/named").await.unwrap();
    assert!(broker.plan(&deleting()).await.unwrap().is_empty());
    broker.stop(Duration::ZERO).await.unwrap();
}

/// DEC-06, DEC-18: the step of a deletion has the instant of the entity's creation, and for a topic
/// the number of subscriptions that are deleted with it.
#[tokio::test]
async fn deletions_name_what_is_deleted() {
    let broker = started().await;
    let plan = broker.plan(&deleting()).await.unwrap();
    let step = |path: &str| plan.steps.iter().find(|step| &*step.path == path).unwrap();
    let change = |property: &str, before: String| Change {
        property: property.into(),
        before: Some(before.into()),
        after: None,
    };
    let queue = broker.describe_queue("a").await.unwrap();
    assert_eq!(step("a").changes, [change("created_at", queue.created_at.to_string())]);
    let topic = broker.describe_topic("gone").await.unwrap();
    let expected = [
        change("created_at", topic.created_at.to_string()),
        change("subscription_count", "1".to_owned()),
    ];
    assert_eq!(step("gone").changes, expected);
    let path = "t/Subscriptions/s";
    let subscription = broker.describe_subscription(path).await.unwrap();
    assert_eq!(step(path).changes, [change("created_at", subscription.created_at.to_string())]);
    broker.stop(Duration::ZERO).await.unwrap();
}

/// DEC-09, DEC-18: an entity with the path of a deleted one is not deleted by the plan, and neither
/// is a topic that has got a subscription since.
#[tokio::test]
async fn changed_entities_are_not_deleted() {
    let broker = started().await;
    let digest = broker.plan(&deleting()).await.unwrap().digest();
    broker.delete_entity("a").await.unwrap();
    broker.create_queue("a", QueueUpdate::default()).await.unwrap();
    let error = broker.carry_out(&deleting(), digest, usize::MAX).await.unwrap_err();
    assert_eq!(error.condition(), Condition::UpdateConflict);

    let digest = broker.plan(&deleting()).await.unwrap().digest();
    let update = SubscriptionUpdate::default();
    broker.create_subscription("gone", "later", update, Vec::new()).await.unwrap();
    let error = broker.carry_out(&deleting(), digest, usize::MAX).await.unwrap_err();
    assert_eq!(error.condition(), Condition::UpdateConflict);
    for path in ["a", "b"] {
        broker.describe_queue(path).await.unwrap();
    }
    assert_eq!(broker.describe_topic("gone").await.unwrap().subscription_count, 2);

    let digest = broker.plan(&deleting()).await.unwrap().digest();
    let done = broker.carry_out(&deleting(), digest, usize::MAX).await.unwrap();
    assert!(done.failure.is_none() && done.rest.is_empty(), "{done:?}");
    broker.stop(Duration::ZERO).await.unwrap();
}

/// DEC-09, DEC-18: an entity that was created after the plan is not deleted by it.
#[tokio::test]
async fn later_entities_are_not_deleted() {
    let broker = started().await;
    let digest = broker.plan(&deleting()).await.unwrap().digest();
    broker.create_queue("later", QueueUpdate::default()).await.unwrap();
    let error = broker.carry_out(&deleting(), digest, usize::MAX).await.unwrap_err();
    assert_eq!(error.condition(), Condition::UpdateConflict);
    broker.describe_queue("a").await.unwrap();
    broker.stop(Duration::ZERO).await.unwrap();
}

/// DEC-19: a declaration that names nothing would delete everything. A destination of a named
/// entity, kept or new, and a protected entity are not deleted. Each is refused with its place or
/// remedy, and nothing is done.
#[tokio::test]
async fn dangerous_deletions_are_refused() {
    let broker = started().await;
    let update = QueueUpdate { forward_to: Some("A".into()), ..QueueUpdate::default() };
    broker.create_queue("sender", update.clone()).await.unwrap();
    let sender = |path: &str| DeclaredQueue::new(path).with(update.clone());
    let mut protecting = deleting();
    protecting.protected = vec!["Gone/subscriptions/S".into()];
    let nothing = Declaration::new().unnamed(Unnamed::Delete);
    for (declaration, said) in [
        (nothing, "the declaration names no entity, so all would be deleted; name at least"),
        (
            deleting().with_queue(DeclaredQueue::new("sender")),
            "queues[2]: forward_to of queue `sender` names `A`, which would be deleted because it is \
             not declared; declare it, or remove",
        ),
        (
            deleting().with_queue(sender("fresh")),
            "queues[2]: forward_to of queue `fresh` names `A`",
        ),
        (
            protecting,
            "topic `gone` would be deleted because it is not declared, but `Gone/subscriptions/S` is \
             protected by",
        ),
    ] {
        let error = broker.declare(&declaration).await.unwrap_err();
        assert!(error.detail().starts_with(said), "{}", error.detail());
        assert!(broker.describe_queue("new").await.is_err());
    }
    // Named, the destination stays.
    let both =
        deleting().with_queue(DeclaredQueue::new("sender")).with_queue(DeclaredQueue::new("a"));
    broker.declare(&both).await.unwrap();
    broker.describe_queue("a").await.unwrap();
    assert!(broker.describe_queue("b").await.is_err());
    broker.stop(Duration::ZERO).await.unwrap();
}

/// DEC-12, DEC-18: a plan that deletes names all entities, so it needs Manage on the namespace.
#[tokio::test]
async fn deleting_requires_manage_on_the_namespace() {
    let broker = started().await;
    let rights = Rights::of(Right::Manage).and(Right::Listen).and(Right::Send);
    let update = PolicyUpdate { rights: Some(rights), ..PolicyUpdate::default() };
    for path in ["Kept", ""] {
        broker.create_policy(path, "manager", update.clone()).await.unwrap();
    }
    let declaration = Declaration::from(DeclaredQueue::new("kept"));
    let of_queue = broker.access_of_policy("Kept", "manager");
    assert!(of_queue.plan(&declaration).await.unwrap().is_empty());
    let deleting = declaration.unnamed(Unnamed::Delete);
    let error = of_queue.plan(&deleting).await.unwrap_err();
    assert_eq!(error.condition(), Condition::Unauthorized);
    let error = of_queue.declare(&deleting).await.unwrap_err();
    assert_eq!(error.condition(), Condition::Unauthorized);
    let of_namespace = broker.access_of_policy("", "manager");
    assert_eq!(of_namespace.plan(&deleting).await.unwrap().count(StepKind::Delete), 4);
    broker.stop(Duration::ZERO).await.unwrap();
}

//! Lists contain the entities that their reader may read, with one question to the authorizer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use peeklock_core::clients::LinkIdentity;
use peeklock_core::clock::{Clock, ManualClock};
use peeklock_core::command::Command;
use peeklock_core::condition::Condition;
use peeklock_core::contract::{Authorizer, Grant, Right, Rights};
use peeklock_core::description::{
    EntityKind, EntityStatus, QueueUpdate, SubscriptionUpdate, TopicUpdate,
};
use peeklock_core::error::BrokerError;
use peeklock_core::inspect::{
    ChecksQuery, ClientQuery, EntityOrder, EntityQuery, Found, LinkRole, Question, TimelineOf,
    TimelineQuery,
};
use peeklock_core::management::{Managed, Management, Page};
use peeklock_core::message::Message;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::{Access, Broker, ChecksConfig};

use super::world::{TestAuthorizer, World, condition, in_time};

/// Number of entities in addition to the queue of the world: ten thousand in all.
const COUNT: usize = 9_999;

/// The first page of paths of a kind.
async fn paths(access: &Access, kind: EntityKind, at: &str) -> Result<Vec<Arc<str>>, BrokerError> {
    let list = Management::Paths(kind, Page { skip: 0, top: None });
    let Managed::Paths(paths) = access.manage(at, list).await? else { panic!("paths") };
    Ok(paths)
}

/// The paths of all readable queues, with one question to the authorizer.
async fn every_queue(access: &Access) -> Vec<Arc<str>> {
    let list = Management::Paths(EntityKind::Queue, Page { skip: 0, top: None });
    let turn = access.turn_at("", list).await.unwrap();
    let Managed::Paths(paths) = turn.page(0, usize::MAX).await.unwrap() else { panic!("paths") };
    paths
}

/// CON-73, ENT-30: of many entities only the readable ones are listed, in order and in pages of
/// listed entities. The authorizer is asked once, regardless of their number.
#[tokio::test]
async fn a_list_contains_readable_entities() {
    in_time(async {
        let world = World::new().await;
        for number in 0..COUNT {
            let path = format!("n{number:05}");
            world.broker.create_queue(&path, QueueUpdate::default()).await.unwrap();
            if number % 10 == 0 {
                world.authorizer.grant("some", &path, Grant::of(Rights::of(Right::Manage)));
            }
        }
        let some = world.access("some");
        let all = every_queue(&some).await;
        let expected: Vec<String> =
            (0..COUNT).step_by(10).map(|number| format!("n{number:05}")).collect();
        assert!(all.iter().map(|path| &**path).eq(expected.iter().map(String::as_str)));
        assert_eq!(world.authorizer.asked_of_many.load(Ordering::Relaxed), 1);
        assert_eq!(world.authorizer.asked.load(Ordering::Relaxed), 1, "of the namespace");
        let second = Management::Queues(Page { skip: 1, top: Some(2) });
        let Managed::Queues(page) = some.manage("", second).await.unwrap() else { panic!() };
        let page: Vec<&str> = page.iter().map(|it| &*it.description.path).collect();
        assert_eq!(page, ["n00010", "n00020"]);

        // For a reader of everything the authorizer is not asked about single entities.
        let everything = world.granted("everything", Grant::everything());
        let before = world.authorizer.asked_of_many.load(Ordering::Relaxed);
        assert_eq!(every_queue(&everything).await.len(), COUNT + 1);
        assert_eq!(world.authorizer.asked_of_many.load(Ordering::Relaxed), before);
        let nothing = world.granted("nothing", Grant::nothing());
        assert_eq!(
            condition(&paths(&nothing, EntityKind::Queue, "").await),
            Some(Condition::Unauthorized)
        );
    })
    .await;
}

/// CON-73, SEC-08: the same for subscriptions. An unreadable topic is reported like an absent one.
#[tokio::test]
async fn a_list_of_subscriptions_reveals_no_others() {
    in_time(async {
        let world = World::new().await;
        world.broker.create_topic("t", TopicUpdate::default()).await.unwrap();
        for name in ["a", "b"] {
            let update = SubscriptionUpdate::default();
            world.broker.create_subscription("t", name, update, Vec::new()).await.unwrap();
        }
        world.authorizer.grant("b", "t/Subscriptions/b", Grant::everything());
        let one = paths(&world.access("b"), EntityKind::Subscription, "t").await.unwrap();
        assert_eq!(one.iter().map(|path| &**path).collect::<Vec<_>>(), ["t/Subscriptions/b"]);
        let texts = ["t", "absent"].map(async |topic| {
            let none = world.access("none");
            let error = paths(&none, EntityKind::Subscription, topic).await.unwrap_err();
            (error.condition(), error.detail().to_owned())
        });
        let [there, absent] = texts;
        assert_eq!(there.await, absent.await);
        let all = world.granted("all", Grant::everything());
        assert_eq!(paths(&all, EntityKind::Subscription, "t").await.unwrap().len(), 2);
        let absent = condition(&paths(&all, EntityKind::Subscription, "absent").await);
        assert_eq!(absent, Some(Condition::EntityNotFound));
    })
    .await;
}

/// CON-39, SEC-08: findings show nothing of entities that their reader may not read.
#[tokio::test]
async fn findings_reveal_no_other_entities() {
    in_time(async {
        let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(0)));
        let authorizer = Arc::new(TestAuthorizer::default());
        let broker = Broker::builder()
            .arbiters(1)
            .clock(Arc::clone(&clock) as Arc<dyn Clock>)
            .authorizer(Arc::clone(&authorizer) as Arc<dyn Authorizer>)
            .checks(ChecksConfig::default());
        let broker = broker.start().await.unwrap();
        let world = World { broker, clock, authorizer };
        let to = |path: &str| QueueUpdate::default().with_forward_to(path);
        for (path, update) in
            [("secret", QueueUpdate::default()), ("q", to("secret")), ("far", to("secret"))]
        {
            world.broker.create_queue(path, update).await.unwrap();
        }
        world.broker.create_queue("loop", to("far")).await.unwrap();
        world.broker.update_queue("far", to("loop"), None).await.unwrap();
        let disabled =
            QueueUpdate { status: Some(EntityStatus::Disabled), ..QueueUpdate::default() };
        world.broker.update_queue("secret", disabled, None).await.unwrap();
        for path in ["q", "far"] {
            world.authorizer.grant("some", path, Grant::of(Rights::of(Right::Listen)));
        }
        world.clock.advance_silently(TimeSpan::from_minutes(1));
        let shown = async |access: &Access| {
            let question = Question::Checks(ChecksQuery::default());
            let Found::Checks(page) = found(access, question).await.unwrap() else { panic!() };
            let lines = page.findings.iter().map(|it| {
                let (kind, others) = (it.kind.name(), it.others.join(" "));
                format!("{kind} {} [{others}] {}", it.path, it.detail)
            });
            lines.collect::<Vec<_>>()
        };
        let some = shown(&world.access("some")).await;
        let missing = "destinationMissing q [secret] ForwardTo names `secret`, which does not \
                       exist, or you may not read it";
        let circle = "forwardCircle far [] the entity forwards in a circle";
        assert_eq!(some, [missing, circle]);
        let all = shown(&world.granted("all", Grant::everything())).await;
        let status = "destinationDisabled q [secret] ForwardTo names `secret`, whose status is \
                      Disabled";
        assert_eq!(all, [status, "forwardCircle far [loop] 2 entities forward in a circle"]);
        world.broker.delete("secret", EntityKind::Queue).await.unwrap();
        world.clock.advance_silently(TimeSpan::from_minutes(1));
        assert_eq!(shown(&world.access("some")).await, some, "absent looks like unreadable");
    })
    .await;
}

async fn found(access: &Access, question: Question) -> Result<Found, BrokerError> {
    let request = Management::Inspect(Box::new(question));
    let Managed::Findings(findings) = access.manage("", request).await? else { panic!("found") };
    Ok(findings.found)
}

/// CON-04, CON-24, CON-72, CON-73: the lists of entities and clients have only the part that their
/// reader may read, with one question to the authorizer. They need Listen or Manage.
#[tokio::test]
async fn lists_of_operators_contain_the_readable_part() {
    in_time(async {
        let world = World::new().await;
        world.broker.create_queue("secret", QueueUpdate::default()).await.unwrap();
        let client = world.broker.client("amqp", None);
        let link = |path: &str, role| {
            let receiver = world.broker.receiver_id();
            let identity =
                LinkIdentity { receiver, path: path.into(), role, mode: None, policy: None };
            client.link(identity).unwrap()
        };
        let _links = [link("q", LinkRole::Sender), link("secret", LinkRole::Sender)];
        let _idle = world.broker.client("amqp", None);
        let entities = || {
            Question::Entities(EntityQuery {
                path: None,
                kind: None,
                conditions: Vec::new(),
                order: EntityOrder::Path,
                is_descending: false,
                after: None,
                count_max: 10,
            })
        };
        let clients = || Question::Clients(ClientQuery { count_max: 10, ..ClientQuery::default() });
        for right in [Right::Listen, Right::Manage] {
            world.authorizer.grant("some", "q", Grant::of(Rights::of(right)));
            let some = world.access("some");
            let before = world.authorizer.asked_of_many.load(Ordering::Relaxed);
            let Found::Entities(page) = found(&some, entities()).await.unwrap() else { panic!() };
            let paths: Vec<&str> = page.entities.iter().map(|row| &*row.path).collect();
            assert_eq!((paths, page.total), (vec!["q"], 1));
            assert_eq!(world.authorizer.asked_of_many.load(Ordering::Relaxed), before + 1);
            let Found::Clients(page) = found(&some, clients()).await.unwrap() else { panic!() };
            assert_eq!((page.total, page.clients[0].link_count), (1, 1));
            assert_eq!(&*page.clients[0].links[0].path, "q");
        }
        let everything = world.granted("everything", Grant::of(Rights::of(Right::Listen)));
        let Found::Entities(page) = found(&everything, entities()).await.unwrap() else { panic!() };
        assert_eq!(page.total, 2);
        let Found::Clients(page) = found(&everything, clients()).await.unwrap() else { panic!() };
        assert_eq!((page.total, page.clients[0].link_count), (2, 2));
        let sender = world.granted("sender", Grant::of(Rights::of(Right::Send)));
        for question in [entities(), clients()] {
            let refused = found(&sender, question).await;
            assert_eq!(condition(&refused), Some(Condition::Unauthorized));
        }
    })
    .await;
}

/// CON-28, CON-72, CON-73: the timeline of the namespace counts the messages of the entities that
/// its reader may read. Listen is enough, on one entity or on all.
#[tokio::test]
async fn timeline_of_the_namespace_needs_only_listen() {
    in_time(async {
        let world = World::new().await;
        world.broker.create_queue("secret", QueueUpdate::default()).await.unwrap();
        let now = world.broker.now();
        for path in ["q", "secret", "secret"] {
            let mut message = Message::new("later");
            message.scheduled_enqueue_time = Some(now.plus(TimeSpan::from_seconds(30)));
            let message = world.broker.inbound(message);
            world.broker.entity(path).unwrap().call(Command::Send { message }).await.unwrap();
        }
        let question = || {
            let slot = TimeSpan::from_minutes(1);
            let of = TimelineOf::Scheduled;
            Question::Timeline(TimelineQuery { of, from: now, slot, slot_count: 1, after: None })
        };
        world.authorizer.grant("some", "q", Grant::of(Rights::of(Right::Listen)));
        let everything = world.granted("everything", Grant::of(Rights::of(Right::Listen)));
        for (access, count) in [(world.access("some"), 1), (everything, 3)] {
            let Found::Timeline(timeline) = found(&access, question()).await.unwrap() else {
                panic!()
            };
            assert_eq!((timeline.counts, timeline.omitted_entities), (vec![count], 0));
        }
        let sender = world.granted("sender", Grant::of(Rights::of(Right::Send)));
        let refused = found(&sender, question()).await;
        assert_eq!(condition(&refused), Some(Condition::Unauthorized));
    })
    .await;
}

//! Lists contain the entities that their reader may read, with one question to the authorizer.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use peeklock_core::Access;
use peeklock_core::condition::Condition;
use peeklock_core::contract::{Grant, Right, Rights};
use peeklock_core::description::{EntityKind, QueueUpdate, SubscriptionUpdate, TopicUpdate};
use peeklock_core::error::BrokerError;
use peeklock_core::management::{Managed, Management, Page};

use super::world::{World, condition, in_time};

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

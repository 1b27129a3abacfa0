//! Lists hold what their reader may read, by one question to the authorizer.

use std::sync::atomic::Ordering;

use peeklock_core::condition::Condition;
use peeklock_core::contract::{Grant, Right, Rights};
use peeklock_core::description::{QueueUpdate, SubscriptionUpdate, TopicUpdate};

use super::world::{World, condition, in_time};

/// How many entities there are beside the queue of the world: ten thousand in all.
const COUNT: usize = 9_999;

/// CON-73, ENT-30: of many entities those are listed that may be read, in order and by pages of what is
/// listed; the authorizer is asked once, however many there are.
#[tokio::test]
async fn a_list_holds_what_may_be_read() {
    in_time(async {
        let world = World::new().await;
        for number in 0..COUNT {
            let path = format!("n{number:05}");
            world.broker.create_queue(&path, QueueUpdate::default()).await.unwrap();
            if number % 10 == 0 {
                world.told.grant("some", &path, Grant::of(Rights::of(Right::Manage)));
            }
        }
        let some = world.access("some");
        let all = some.queue_paths(0, usize::MAX).await.unwrap();
        let expected: Vec<String> =
            (0..COUNT).step_by(10).map(|number| format!("n{number:05}")).collect();
        assert!(all.iter().map(|path| &**path).eq(expected.iter().map(String::as_str)));
        assert_eq!(world.told.asked_of_many.load(Ordering::Relaxed), 1);
        assert_eq!(world.told.asked.load(Ordering::Relaxed), 1, "of the namespace");
        let page = some.queues(1, 2).await.unwrap();
        let page: Vec<&str> = page.iter().map(|it| &*it.description.path).collect();
        assert_eq!(page, ["n00010", "n00020"]);

        // Who may read all of them is asked for none.
        let everything = world.granted("everything", Grant::everything());
        let before = world.told.asked_of_many.load(Ordering::Relaxed);
        assert_eq!(everything.queue_paths(0, usize::MAX).await.unwrap().len(), COUNT + 1);
        assert_eq!(world.told.asked_of_many.load(Ordering::Relaxed), before);
        let nothing = world.granted("nothing", Grant::nothing());
        assert_eq!(condition(&nothing.queue_paths(0, 9).await), Some(Condition::Unauthorized));
    })
    .await;
}

/// CON-73, SEC-08: subscriptions are listed alike, and a topic that may not be read is told like one that is
/// not there.
#[tokio::test]
async fn a_list_of_subscriptions_tells_nothing_of_others() {
    in_time(async {
        let world = World::new().await;
        world.broker.create_topic("t", TopicUpdate::default()).await.unwrap();
        for name in ["a", "b"] {
            let update = SubscriptionUpdate::default();
            world.broker.create_subscription("t", name, update, Vec::new()).await.unwrap();
        }
        world.told.grant("b", "t/Subscriptions/b", Grant::everything());
        let one = world.access("b").subscription_paths("t", 0, 9).await.unwrap();
        assert_eq!(one.iter().map(|path| &**path).collect::<Vec<_>>(), ["t/Subscriptions/b"]);
        let texts = ["t", "absent"].map(async |topic| {
            let error = world.access("none").subscription_paths(topic, 0, 9).await.unwrap_err();
            (error.condition(), error.detail().to_owned())
        });
        let [there, absent] = texts;
        assert_eq!(there.await, absent.await);
        let all = world.granted("all", Grant::everything());
        assert_eq!(all.subscription_paths("t", 0, 9).await.unwrap().len(), 2);
        let absent = condition(&all.subscription_paths("absent", 0, 9).await);
        assert_eq!(absent, Some(Condition::EntityNotFound));
    })
    .await;
}

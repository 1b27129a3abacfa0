//! The two checks that run in this process for every transport: waiting until work in progress is
//! complete, and the counts at the end of a scenario.
//!
//! They read from the broker, so that no transport needs an operation for them. None returns a
//! value: every result that a scenario compares comes through its transport.

use peeklock_core::command::{Command, Counts, DescribedTopic, Outcome};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::time::TimeSpan;

use super::Stage;

/// End of the path of a transfer dead-letter queue.
const TRANSFER_DLQ: &str = "/$Transfer/$deadletterqueue";

impl Stage {
    /// Lets time pass, and waits until all due work is done and durable. Reading descriptions is no
    /// use of a queue (TMP-17) and registers no receiver.
    pub async fn advance(&self, span: TimeSpan) {
        self.clock.advance(span);
        self.tick().await;
    }

    async fn tick(&self) {
        for path in self.broker.queue_paths(0, usize::MAX) {
            // For a queue that is being deleted, the answer is an error.
            let _gone = self.broker.describe_queue(&path).await;
        }
        for topic in self.broker.topic_paths(0, usize::MAX) {
            let _gone = self.broker.describe_topic(&topic).await;
            let subscriptions = self.broker.subscription_paths(&topic, 0, usize::MAX);
            for path in subscriptions.unwrap_or_default() {
                let _gone = self.broker.describe_subscription(&path).await;
            }
        }
        // This also waits for consequences such as the deletion of idle queues.
        self.broker.idle().await;
    }

    /// Waits until a receive of another task is registered at the queue. The clock must have moved
    /// since the last use of the queue.
    pub async fn until_used(&self, path: &str) {
        while self.broker.describe_queue(path).await.unwrap().accessed_at != self.now() {
            tokio::task::yield_now().await;
        }
    }

    /// Advances the clock by the idle time until the queue is deleted. Other uses may end at any
    /// time, independent of this clock.
    pub async fn until_idle_is_over(&self, path: &str, allowed: TimeSpan) {
        while self.broker.queue_paths(0, usize::MAX).iter().any(|queue| **queue == *path) {
            self.advance(allowed).await;
            tokio::task::yield_now().await;
        }
    }

    /// Same as [`Stage::until_used`] for a subscription.
    pub async fn until_subscription_is_used(&self, path: &str) {
        while self.broker.describe_subscription(path).await.unwrap().accessed_at != self.now() {
            tokio::task::yield_now().await;
        }
    }

    /// Same as [`Stage::until_used`] for a topic.
    pub async fn until_topic_is_used(&self, path: &str) {
        while self.broker.describe_topic(path).await.unwrap().accessed_at != self.now() {
            tokio::task::yield_now().await;
        }
    }

    /// Waits until the counts of a queue satisfy `holds`. Forwarding takes a few turns of the
    /// broker's threads, and no time of the clock.
    pub async fn until(&self, path: &str, holds: impl Fn(&Counts) -> bool) {
        loop {
            let counts = self.broker.describe_queue(path).await.unwrap().counts;
            if counts.transfer == 0 && holds(&counts) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Same as [`Stage::until`] for a topic through which messages are sent.
    pub async fn until_topic(&self, path: &str, holds: impl Fn(&DescribedTopic) -> bool) {
        loop {
            let described = self.broker.describe_topic(path).await.unwrap();
            if described.transfer == 0 && holds(&described) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Same as [`Stage::until`] for a subscription.
    pub async fn until_subscription(&self, path: &str, holds: impl Fn(&Counts) -> bool) {
        loop {
            let counts = self.broker.describe_subscription(path).await.unwrap().counts;
            if counts.transfer == 0 && holds(&counts) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Waits until the number of held sessions of a queue satisfies `holds`. A grant in progress
    /// and the release of a dropped holder have no answer to wait for.
    pub async fn until_held(&self, path: &str, holds: impl Fn(u64) -> bool) {
        while !holds(self.broker.describe_queue(path).await.unwrap().sessions.unwrap().locked) {
            tokio::task::yield_now().await;
        }
    }

    /// Asserts that counts and size of every entity agree with its messages, after any scenario
    /// (LIF-02, CNT-03, CNT-08).
    pub async fn check_counts(&self) {
        if self.stopped.get() {
            return;
        }
        for path in self.broker.queue_paths(0, usize::MAX) {
            let Ok(mut described) = self.broker.describe_queue(&path).await else { continue };
            // Messages in transfer are not visible (LIF-05). Wait until they arrive and their
            // source is updated.
            while described.counts.transfer > 0 {
                tokio::task::yield_now().await;
                described = self.broker.describe_queue(&path).await.unwrap();
            }
            let (count, bytes) = self.held(&path).await;
            assert_eq!(described.counts.total(), count, "the counts of {path} are wrong");
            assert_eq!(described.size_bytes, bytes, "the size of {path} is wrong");
        }
        for topic in self.broker.topic_paths(0, usize::MAX) {
            let mut sum = 0;
            for path in self.broker.subscription_paths(&topic, 0, usize::MAX).unwrap() {
                let described = self.broker.describe_subscription(&path).await.unwrap();
                let (count, bytes) = self.held(&path).await;
                assert_eq!(described.counts.total(), count, "the counts of {path} are wrong");
                assert_eq!(described.size_bytes, bytes, "the size of {path} is wrong");
                sum += bytes;
            }
            let mut described = self.broker.describe_topic(&topic).await.unwrap();
            while described.transfer > 0 {
                tokio::task::yield_now().await;
                described = self.broker.describe_topic(&topic).await.unwrap();
            }
            let (count, bytes) = self.held_at(&format!("{topic}{TRANSFER_DLQ}")).await;
            assert_eq!(described.transfer_dead_letter, count, "the counts of {topic} are wrong");
            sum += bytes;
            assert!(described.scheduled > 0 || described.size_bytes == sum, "{topic} counts wrong");
        }
    }

    /// Number and size of the messages that are visible at a path and in its sub-queues.
    async fn held(&self, path: &str) -> (u64, u64) {
        let (mut count, mut bytes) = (0, 0);
        for suffix in ["", "/$deadletterqueue", TRANSFER_DLQ] {
            let held = self.held_at(&format!("{path}{suffix}")).await;
            count += held.0;
            bytes += held.1;
        }
        (count, bytes)
    }

    async fn held_at(&self, path: &str) -> (u64, u64) {
        let (mut count, mut bytes) = (0, 0);
        let entity = self.broker.entity(path).unwrap();
        let mut from = SequenceNumber(0);
        loop {
            let command = Command::Peek { from, count_max: 250 };
            let Outcome::Peeked(peeked) = entity.call(command).await.unwrap() else {
                panic!("a peek answers with messages");
            };
            let Some(last) = peeked.last() else { break };
            from = last.facts.sequence.next();
            count += peeked.len() as u64;
            bytes += peeked.iter().map(|one| u64::from(one.facts.size)).sum::<u64>();
        }
        (count, bytes)
    }
}

//! The two looks that are in this process whatever the transport: waiting until what is under way has arrived, and
//! the counts at the end of a scenario.
//!
//! They are asked of the broker, so that no transport has to show what it does not. None gives back what it has
//! seen: what a scenario says of the broker it has from its transport.

use peeklock_core::command::{Command, Counts, DescribedTopic, Outcome};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::time::TimeSpan;

use super::Stage;

/// How the path of a transfer dead-letter queue ends.
const TRANSFER_DLQ: &str = "/$Transfer/$deadletterqueue";

impl Stage {
    /// Lets time pass, and waits until what is due has happened and is durable. Reading
    /// descriptions is no use of a queue (TMP-17) and makes no receiver.
    pub async fn advance(&self, span: TimeSpan) {
        self.clock.advance(span);
        self.tick().await;
    }

    async fn tick(&self) {
        for path in self.broker.queue_paths(0, usize::MAX) {
            // A queue that is deleted just now answers that it is gone.
            let _gone = self.broker.describe_queue(&path).await;
        }
        for topic in self.broker.topic_paths(0, usize::MAX) {
            let _gone = self.broker.describe_topic(&topic).await;
            let subscriptions = self.broker.subscription_paths(&topic, 0, usize::MAX);
            for path in subscriptions.unwrap_or_default() {
                let _gone = self.broker.describe_subscription(&path).await;
            }
        }
        // What they have begun is through then, such as the deletion of idle queues.
        self.broker.idle().await;
    }

    /// Waits until a receive that another task has begun is noted at the queue. The clock must have
    /// moved since the queue was used last.
    pub async fn until_used(&self, path: &str) {
        while self.broker.describe_queue(path).await.unwrap().accessed_at != self.now() {
            tokio::task::yield_now().await;
        }
    }

    /// Lets the time pass that a queue may be idle, again and again, until it was: whatever kept it in
    /// use ends at no instant of this clock.
    pub async fn until_idle_is_over(&self, path: &str, allowed: TimeSpan) {
        while self.broker.queue_paths(0, usize::MAX).iter().any(|queue| **queue == *path) {
            self.advance(allowed).await;
            tokio::task::yield_now().await;
        }
    }

    /// As [`Stage::until_used`], of a subscription.
    pub async fn until_subscription_is_used(&self, path: &str) {
        while self.broker.describe_subscription(path).await.unwrap().accessed_at != self.now() {
            tokio::task::yield_now().await;
        }
    }

    /// As [`Stage::until_used`], of a topic.
    pub async fn until_topic_is_used(&self, path: &str) {
        while self.broker.describe_topic(path).await.unwrap().accessed_at != self.now() {
            tokio::task::yield_now().await;
        }
    }

    /// Waits until the counts of a queue are as they should be. What is forwarded takes a few turns of
    /// the broker's threads, and no time.
    pub async fn until(&self, path: &str, holds: impl Fn(&Counts) -> bool) {
        loop {
            let counts = self.broker.describe_queue(path).await.unwrap().counts;
            if counts.transfer == 0 && holds(&counts) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// As [`Stage::until`], of a topic that messages are sent by way of.
    pub async fn until_topic(&self, path: &str, holds: impl Fn(&DescribedTopic) -> bool) {
        loop {
            let described = self.broker.describe_topic(path).await.unwrap();
            if described.transfer == 0 && holds(&described) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// As [`Stage::until`], of a subscription.
    pub async fn until_subscription(&self, path: &str, holds: impl Fn(&Counts) -> bool) {
        loop {
            let counts = self.broker.describe_subscription(path).await.unwrap().counts;
            if counts.transfer == 0 && holds(&counts) {
                return;
            }
            tokio::task::yield_now().await;
        }
    }

    /// Waits until so many sessions of a queue are held: neither a grant on its way nor the end of a holder that is
    /// dropped is answered.
    pub async fn until_held(&self, path: &str, holds: impl Fn(u64) -> bool) {
        while !holds(self.broker.describe_queue(path).await.unwrap().sessions.unwrap().locked) {
            tokio::task::yield_now().await;
        }
    }

    /// In every queue the counts are those of the messages there, and the size is theirs, whatever
    /// the scenario has done (LIF-02, CNT-03, CNT-08).
    pub async fn check_counts(&self) {
        if self.stopped.get() {
            return;
        }
        for path in self.broker.queue_paths(0, usize::MAX) {
            let Ok(mut described) = self.broker.describe_queue(&path).await else { continue };
            // What is on its way is not shown (LIF-05); it arrives, and its source is told.
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

    /// How many messages there are to see at a path and in its sub-queues, and their size.
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

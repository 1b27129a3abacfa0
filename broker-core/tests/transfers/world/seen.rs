//! Statistics of the seeds.

use std::collections::BTreeMap;

use crate::fan::Why;

#[derive(Clone, Default, Debug)]
pub struct Seen {
    pub sent: u64,
    pub via: u64,
    pub via_topic: u64,
    pub topic_dead_letters: u64,
    pub topic_commits: u64,
    pub moved: u64,
    pub delayed_moved: u64,
    pub delayed_dead_letters_moved: u64,
    pub retried: u64,
    pub lists: u64,
    pub unanswered: u64,
    pub unclaimed: u64,
    /// Lists and deliveries whose contents the store could not load.
    pub unread_lists: u64,
    pub unread_deliveries: u64,
    pub failed: u64,
    pub waited_for_guards: u64,
    pub crashed: u64,
    pub deleted: u64,
    pub transfer_dead_letters: u64,
    pub four_hops: u64,
    pub full: u64,
    pub published: u64,
    /// Messages in subscriptions, by reason.
    pub shared_out: BTreeMap<Why, u64>,
}

impl Seen {
    pub fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.via += other.via;
        self.via_topic += other.via_topic;
        self.topic_dead_letters += other.topic_dead_letters;
        self.topic_commits += other.topic_commits;
        self.moved += other.moved;
        self.delayed_moved += other.delayed_moved;
        self.delayed_dead_letters_moved += other.delayed_dead_letters_moved;
        self.retried += other.retried;
        self.lists += other.lists;
        self.unanswered += other.unanswered;
        self.unclaimed += other.unclaimed;
        self.unread_lists += other.unread_lists;
        self.unread_deliveries += other.unread_deliveries;
        self.failed += other.failed;
        self.waited_for_guards += other.waited_for_guards;
        self.crashed += other.crashed;
        self.deleted += other.deleted;
        self.transfer_dead_letters += other.transfer_dead_letters;
        self.four_hops += other.four_hops;
        self.full += other.full;
        self.published += other.published;
        for (why, count) in &other.shared_out {
            *self.shared_out.entry(*why).or_default() += count;
        }
    }

    /// Asserts that the seeds of a whole run have covered all difficult cases.
    pub fn check_that_enough_happened(&self) {
        let least = [
            ("moved", self.moved, 10_000),
            ("delayed_moved", self.delayed_moved, 50),
            ("delayed_dead_letters_moved", self.delayed_dead_letters_moved, 10),
            ("retried", self.retried, 100),
            ("via", self.via, 1_000),
            ("via_topic", self.via_topic, 1_000),
            ("topic_dead_letters", self.topic_dead_letters, 50),
            ("topic_commits", self.topic_commits, 50),
            ("unanswered", self.unanswered, 200),
            ("unclaimed", self.unclaimed, 20),
            ("unread_lists", self.unread_lists, 200),
            ("unread_deliveries", self.unread_deliveries, 100),
            ("failed", self.failed, 200),
            ("waited_for_guards", self.waited_for_guards, 20),
            ("crashed", self.crashed, 100),
            ("deleted", self.deleted, 200),
            ("transfer_dead_letters", self.transfer_dead_letters, 200),
            ("four_hops", self.four_hops, 50),
            ("full", self.full, 50),
            ("published", self.published, 1_000),
            ("selected", self.of(Why::Selected), 1_000),
            ("caught without a lane", self.of(Why::NoLane), 500),
            ("caught without a rule", self.of(Why::NoRule), 200),
            ("caught with a failing rule", self.of(Why::Failing), 50),
        ];
        for (what, count, least) in least {
            assert!(count >= least, "only {count} times {what}: the seeds prove too little");
        }
    }

    fn of(&self, why: Why) -> u64 {
        self.shared_out.get(&why).copied().unwrap_or(0)
    }
}

//! The world: entities, their trees, shells and writers, driven like by the actors in the order of
//! a seed, next to the oracle. A command is carried out immediately; its changes become durable,
//! and its answer is released, when the seed determines.

mod ask;
mod drive;
mod generate;
mod large;
mod open;
mod outputs;
mod rest;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use peeklock_core::edge::Edge;
use peeklock_core::ids::EntityId;
use peeklock_core::limits::Limits;
use peeklock_core::machine::StageNumber;
use peeklock_core::machine::any::AnyMachine;
use peeklock_core::machine::queue::QueueConfig;
use peeklock_core::path::SubQueue;
use peeklock_core::shell::Shell;
use peeklock_core::shell::tree::Tree;
use peeklock_core::shell::writer::ShardWriter;
use peeklock_core::store::StoreError;
use peeklock_core::time::TimeSpan;
use peeklock_core::transfer::claim::TransferClaims;
use peeklock_core::transfer::{HandOver, PinnedMessage};
use peeklock_store_testing::{FaultStore, Odds, Random};

use crate::ground::{ListEnded, Mail, Mailbox, Shared};
use crate::oracle::{Fate, Handed, Oracle};

const SHARDS: u16 = 2;
const KEY: [u8; 16] = [9; 16];
pub const TOPIC: u64 = 5;

type AnyShell = Rc<RefCell<Shell<AnyMachine>>>;

/// Statistics of the seeds.
#[derive(Clone, Default, Debug)]
pub struct Seen {
    pub steps: u64,
    pub crashed: u64,
    pub failed: u64,
    pub lists: u64,
    pub looked: u64,
    pub committed: u64,
    pub reached: BTreeMap<&'static str, u64>,
}

impl Seen {
    pub fn add(&mut self, other: &Self) {
        self.steps += other.steps;
        self.crashed += other.crashed;
        self.failed += other.failed;
        self.lists += other.lists;
        self.looked += other.looked;
        self.committed += other.committed;
        for (rule, count) in &other.reached {
            *self.reached.entry(rule).or_default() += count;
        }
    }

    /// Asserts that the seeds of a whole run have covered every case.
    pub fn check_that_enough_happened(&self) {
        let least = [
            ("crashed", self.crashed, 200),
            ("failed", self.failed, 200),
            ("lists", self.lists, 1_000),
            ("looked", self.looked, 5_000),
            ("committed", self.committed, 1_000),
            ("FWD-33", self.reached.get("FWD-33").copied().unwrap_or(0), 20),
        ];
        for (what, count, least) in least {
            assert!(count >= least, "only {count} times {what}: the seeds prove too little");
        }
        // Session rules are covered more often by their own model.
        let rules = [("RTY-01", 80), ("RTY-05", 20), ("RTY-14", 10), ("RTY-17", 100)];
        for (rule, least) in rules {
            let count = self.reached.get(rule).copied().unwrap_or(0);
            assert!(count >= least, "only {count} times {rule}: the seeds prove too little");
        }
    }
}

/// One entity in its tree.
struct Member {
    id: u64,
    path: String,
    shell: Option<AnyShell>,
    claims: Arc<TransferClaims>,
    mail: VecDeque<Mail>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    /// Some of its work is in transit.
    Failed,
    /// Waits for guards.
    Settling,
}

/// A top-level entity with all entities below it; the root comes first.
struct Grove {
    seat: u64,
    tree: Rc<RefCell<Tree>>,
    members: Vec<Member>,
    ending: Option<Ending>,
    settled: usize,
}

/// A transfer in progress.
struct Errand {
    seat: u64,
    from: u64,
    claims: Arc<TransferClaims>,
    list: HandOver<PinnedMessage>,
    handed: Handed,
}

/// A delivery under lock.
#[derive(Clone, Copy, Debug)]
struct Delivery {
    id: u64,
    sub_queue: SubQueue,
    token: u128,
}

pub struct World {
    random: Random,
    limits: Arc<Limits>,
    config: QueueConfig,
    edge: Edge,
    store: Arc<FaultStore>,
    odds: Odds,
    writers: Vec<Arc<ShardWriter>>,
    unknown: Shared<Arc<ShardWriter>>,
    done: Shared<(u64, StageNumber, Result<(), StoreError>)>,
    settled: Shared<u64>,
    ended: Shared<ListEnded>,
    outlet: Arc<Mailbox>,
    groves: Vec<Grove>,
    errands: Vec<Errand>,
    /// By seat, source and list: the decisions of destinations.
    fates: BTreeMap<(u64, u64, u64), (Handed, Vec<Fate>)>,
    /// The entity of each unanswered command.
    asked: BTreeMap<u64, u64>,
    oracle: Oracle,
    deliveries: Vec<Delivery>,
    receivers: BTreeMap<u64, Vec<u64>>,
    tokens: BTreeSet<u128>,
    topic_time_to_live: TimeSpan,
    subscription_times: BTreeMap<u64, TimeSpan>,
    next_seat: u64,
    next_ticket: u64,
    next_marker: u64,
    next_receiver: u64,
    seen: Seen,
    fuse: Rc<Cell<bool>>,
    traced: bool,
    lines: Vec<String>,
}

impl World {
    pub fn seen(&self) -> Seen {
        Seen { reached: self.oracle.reached.clone(), ..self.seen.clone() }
    }

    pub fn trace(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if self.traced {
            let line = line();
            self.lines.push(line);
        }
    }

    fn place_of(&self, id: u64) -> (usize, usize) {
        let is_it = |member: &Member| member.id == id;
        let grove = self.groves.iter().position(|grove| grove.members.iter().any(is_it)).unwrap();
        let member = self.groves[grove].members.iter().position(is_it).unwrap();
        (grove, member)
    }

    fn is_open(&self, id: u64) -> bool {
        let (grove, member) = self.place_of(id);
        let grove = &self.groves[grove];
        grove.ending.is_none() && grove.members[member].shell.is_some()
    }

    /// Whether its tree has ended, or has lost a batch.
    fn has_failed(&self, id: u64) -> bool {
        let (grove, _) = self.place_of(id);
        !self.is_open(id) || self.groves[grove].tree.borrow().is_lost()
    }

    fn writer_of(&self, root: u64) -> Arc<ShardWriter> {
        let shard = usize::try_from(root % u64::from(SHARDS)).unwrap();
        Arc::clone(&self.writers[shard])
    }

    const fn id(id: u64) -> EntityId {
        EntityId(id)
    }

    pub fn step(&mut self) {
        self.seen.steps += 1;
        match self.random.below(1_000) {
            0..=469 => self.ask(),
            470..=629 => self.submit_someone(),
            630..=769 => self.step_store(),
            770..=819 => self.read_mail(),
            820..=869 => self.walk(),
            870..=899 => self.process_ends(),
            900..=919 => self.resubmit(),
            920..=954 => self.pass(),
            955..=974 => self.move_endings(),
            975..=978 => {
                let grove = self.random.index(self.groves.len());
                self.fail(grove, "as the seed wants it");
            }
            979..=980 => self.crash(),
            981..=986 => self.come_to_rest(),
            _ => {
                for _ in 0..6 {
                    self.ask();
                    self.submit_someone();
                    self.step_store();
                    self.read_mail();
                    self.walk();
                    self.process_ends();
                }
            }
        }
    }
}

//! The world: queues, a topic through which messages are sent, one with subscriptions, trees and
//! writers, driven like by the actors, and transfers in progress.

mod ask;
mod draw;
mod drive;
mod end;
mod family;
mod open;
mod outputs;
mod rest;
mod seen;
mod walk;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;
use std::sync::Arc;

use peeklock_core::command::Command;
use peeklock_core::description::{QueueDescription, TopicDescription};
use peeklock_core::edge::{Edge, Entropy};
use peeklock_core::ids::{EntityId, SequenceNumber};
use peeklock_core::limits::{Limits, Tier};
use peeklock_core::machine::StageNumber;
use peeklock_core::machine::any::AnyMachine;
use peeklock_core::machine::queue::{ForwardingConfig, QueueConfig};
use peeklock_core::path::SubQueue;
use peeklock_core::request::Request;
use peeklock_core::shell::Shell;
use peeklock_core::shell::tree::Tree;
use peeklock_core::shell::writer::ShardWriter;
use peeklock_core::store::{Shard, StoreError};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::transaction::PartOutcome;
use peeklock_core::transfer::claim::TransferClaims;
use peeklock_core::transfer::{HandOver, PinnedMessage};
use peeklock_store_testing::{Fate, FaultStore, Odds, Random};

use crate::fan::SUBSCRIPTIONS;
use crate::ground::{ListEnded, Mail, Mailbox, Shared, writers};
use crate::judge::Judge;
use draw::Description;
pub use seen::Seen;

const SHARDS: u16 = 2;
const QUEUES: usize = 4;
/// After the queues, a topic without subscriptions, to which nothing is sent directly.
const TOPIC: usize = QUEUES;
/// After it a topic that messages are published to, and its subscriptions, which share its tree.
pub const FAN: usize = TOPIC + 1;
const PLACES: usize = FAN + 1 + SUBSCRIPTIONS;
const KEY: [u8; 16] = [7; 16];

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    /// It failed, or is being retired, and some of its work is in transit.
    Failed,
    Retired,
    /// Waits for guards.
    Settling,
    Deleting,
}

fn check(machine: &AnyMachine) {
    match machine {
        AnyMachine::Queue(queue) => queue.check_invariants().unwrap(),
        AnyMachine::Topic(topic) => topic.check_invariants().unwrap(),
    }
}

struct Entity {
    id: EntityId,
    path: String,
    description: Description,
    seat: u64,
    tree: Rc<RefCell<Tree>>,
    shell: Option<Shell<AnyMachine>>,
    claims: Arc<TransferClaims>,
    ending: Option<Ending>,
    /// Number of members of its tree without outstanding guards.
    settled: usize,
    is_deleted: bool,
    inlet: VecDeque<Request>,
    closed: bool,
    mail: VecDeque<Mail>,
    dirty: bool,
}

/// A fault at one step.
#[derive(Clone, Copy, Debug)]
pub enum Misfortune {
    Fate(Fate),
    Crash,
    Panic(usize),
}

/// The command that a reply belongs to.
enum CommandKind {
    Send(Vec<u64>),
    Receive,
    Other,
}

pub struct World {
    random: Random,
    now: Timestamp,
    limits: Arc<Limits>,
    config: QueueConfig,
    edge: Edge,
    store: Arc<FaultStore>,
    odds: Odds,
    writers: Vec<Arc<ShardWriter>>,
    unknown: Shared<Arc<ShardWriter>>,
    done: Shared<(u64, StageNumber, Result<(), StoreError>)>,
    deletions: Shared<(u64, Result<(), StoreError>)>,
    settled: Shared<u64>,
    ended: Shared<ListEnded>,
    outlet: Arc<Mailbox>,
    /// The places of queues; one may be empty.
    entities: Vec<Entity>,
    errands: Vec<(u64, Arc<TransferClaims>, HandOver<PinnedMessage>)>,
    asked: BTreeMap<u64, (CommandKind, String)>,
    next_seat: u64,
    next_id: u64,
    next_ticket: u64,
    next_marker: u64,
    locks: bool,
    /// Whether contents must be read from the store.
    holds_reads: bool,
    judge: Judge,
    seen: Seen,
    fuse: Rc<Cell<bool>>,
    /// A planned fault, at the batch with this number.
    planned: Option<(u64, Misfortune)>,
    completed: u64,
    traced: bool,
    lines: Vec<String>,
}

impl World {
    pub fn new(seed: u64, traced: bool) -> Self {
        let mut random = Random::new(seed);
        let mut limits = Limits::of(Tier::Standard);
        limits.peek_count_max = 1_000_000;
        limits.peek_bytes_max = u64::MAX;
        limits.deferred_bytes_max = u64::MAX;
        let config = QueueConfig {
            release_on_detach: false,
            release_on_connection_loss: false,
            expire_whole_sessions: true,
            duplicate_key: KEY,
            forwarding: ForwardingConfig {
                holds_when_full: random.one_in(3),
                failures_into: if random.one_in(4) {
                    SubQueue::DeadLetter
                } else {
                    SubQueue::TransferDeadLetter
                },
                ..ForwardingConfig::default()
            },
        };
        let odds = match random.below(4) {
            0 => Odds::default(),
            1 => Odds { fail: 10, unknown: 30 },
            2 => Odds { fail: 0, unknown: 80 },
            _ => Odds { fail: 40, unknown: 40 },
        };
        let locks = random.one_in(2);
        let may_absorb = random.one_in(3);
        let holds_reads = random.one_in(2);
        let store = FaultStore::new(SHARDS, 1 << 40);
        if random.one_in(2) {
            store.separate_contents();
        }
        let unknown = Shared::default();
        let writers = writers(&store, SHARDS, &unknown);
        let limits = Arc::new(limits);
        let mut world = Self {
            now: Timestamp::from_unix_ms(1_800_000_000_000),
            edge: Edge::new(Entropy::with_key(KEY), &limits, KEY),
            limits,
            config,
            store,
            odds,
            writers,
            unknown,
            done: Shared::default(),
            deletions: Shared::default(),
            settled: Shared::default(),
            ended: Shared::default(),
            outlet: Arc::default(),
            entities: Vec::new(),
            errands: Vec::new(),
            asked: BTreeMap::new(),
            next_seat: 1,
            next_id: 1,
            next_ticket: 1,
            next_marker: 1,
            locks,
            holds_reads,
            judge: Judge { in_order: !locks, may_absorb, ..Judge::default() },
            seen: Seen::default(),
            fuse: Rc::default(),
            planned: None,
            completed: 0,
            random,
            traced,
            lines: Vec::new(),
        };
        world.hold_reads();
        for place in 0..FAN {
            let entity = world.create(place);
            world.entities.push(entity);
        }
        world.found_family();
        world
    }

    /// A chain of all queues and the topic with subscriptions, whose head has messages, some of
    /// which go through the other topic. One fault happens when the `step`-th batch completes.
    /// Returns whether the run reached that step.
    pub fn chain(step: u64, misfortune: Misfortune) -> bool {
        let mut world = Self::new(1, false);
        world.odds = Odds::default();
        world.locks = false;
        world.judge.in_order = true;
        world.judge.may_absorb = false;
        world.config.forwarding = ForwardingConfig::default();
        world.come_to_rest();
        world.open_all_lanes();
        for place in (0..QUEUES).rev() {
            let next = if place + 1 < QUEUES { place + 1 } else { FAN };
            let mut description = QueueDescription::new(path(place), &world.limits);
            description.forward_to = Some(path(next).into());
            let before = world.entities[place].description.clone();
            let (description, update) = Description::Queue(description).update(&before);
            world.entities[place].description = description;
            world.submit(place, SubQueue::Main, update, CommandKind::Other);
        }
        let topic = Description::Topic(TopicDescription::new("t4", &world.limits));
        let update = topic.update(&world.entities[TOPIC].description).1;
        world.submit(TOPIC, SubQueue::Main, update, CommandKind::Other);
        world.come_to_rest();
        world.planned = Some((world.completed + step, misfortune));
        let first = world.next_marker;
        for number in 0..9 {
            let message = world.message();
            let marker = world.next_marker - 1;
            world.submit(
                0,
                SubQueue::Main,
                Command::Send { message },
                CommandKind::Send(vec![marker]),
            );
            // To the second queue of the chain, which is as many hops as through the first.
            let messages = vec![world.message()];
            let marker = world.next_marker - 1;
            let via = Command::SendVia { destination: Arc::from("q1"), messages };
            world.submit(TOPIC, SubQueue::Main, via, CommandKind::Send(vec![marker]));
            if number % 3 == 2 {
                for place in [0, TOPIC] {
                    world.run(place);
                    world.submit_tree(place);
                }
            }
        }
        world.come_to_rest();
        for marker in
            (first..world.next_marker).filter(|one| world.judge.acknowledged.contains(one))
        {
            let place = world.judge.last.places.get(&marker);
            let fan = &world.judge.fan;
            let end = fan.ids[fan.destination(marker).0];
            assert_eq!(place.map(|place| place.entity), Some(end), "{marker} is at {place:?}");
        }
        world.planned.is_none()
    }

    fn hold_reads(&self) {
        if self.holds_reads {
            self.store.hold_reads();
        }
    }

    pub const fn seen(&self) -> &Seen {
        &self.seen
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

    fn shard_of(id: EntityId) -> Shard {
        Shard(u16::try_from(id.0 % u64::from(SHARDS)).unwrap())
    }

    fn writer_of(&self, id: EntityId) -> Arc<ShardWriter> {
        Arc::clone(&self.writers[usize::from(Self::shard_of(id).0)])
    }

    pub fn step(&mut self) {
        match self.random.below(1_000) {
            0..=199 => self.ask(),
            200..=419 => self.run_someone(),
            420..=549 => self.submit_someone(),
            550..=699 => self.step_store(),
            700..=799 => self.take_completions(),
            800..=899 => self.walk(),
            900..=919 => self.process_ends(),
            920..=939 => self.resubmit(),
            940..=959 => {
                self.now = self.now.plus(TimeSpan::from_ms(
                    i64::try_from(self.random.between(1, 20_000)).unwrap(),
                ));
            }
            960..=979 => self.move_endings(),
            980..=983 => {
                let place = self.random.index(FAN);
                self.retire(place);
            }
            984..=986 => {
                let place = self.random.index(PLACES);
                self.fail(place, "as the seed wants it");
            }
            987 if self.odds.fail > 0 => {
                let shard = Shard(u16::try_from(self.random.below(2)).unwrap());
                self.note(|| format!("{shard:?} is acquired by somebody else"));
                self.store.usurp(shard);
            }
            988 => self.crash(),
            989..=990 => self.come_to_rest(),
            _ => {
                for _ in 0..6 {
                    self.ask();
                    self.run_someone();
                    self.submit_someone();
                    self.step_store();
                    self.take_completions();
                    self.walk();
                    self.process_ends();
                }
            }
        }
        self.process_outputs();
    }
}

fn path(place: usize) -> String {
    match place {
        0..TOPIC => format!("q{place}"),
        TOPIC | FAN => format!("t{place}"),
        _ => format!("t{FAN}/Subscriptions/s{}", place - FAN - 1),
    }
}

/// The place of the root of an entity's tree.
const fn root_of(place: usize) -> usize {
    if place > FAN { FAN } else { place }
}

/// The places of all members of one tree, the root first.
const fn grove_of(place: usize) -> std::ops::Range<usize> {
    let root = root_of(place);
    if root == FAN { FAN..PLACES } else { root..root + 1 }
}

/// Sequence numbers of the messages sent in a transaction.
fn sent_in(parts: &[PartOutcome]) -> Vec<SequenceNumber> {
    let sent = parts.iter().filter_map(|part| match part {
        PartOutcome::Pending(numbers) => Some(numbers.clone()),
        _ => None,
    });
    sent.flatten().collect()
}

//! The world: shells, trees and writers, driven like by the actors, a failing store, and a clock.

mod actors;
mod endings;
mod events;
mod rest;
mod seen;
mod time;

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::{Arc, Mutex, PoisonError};

use peeklock_core::admission::Budget;
use peeklock_core::change::codec;
use peeklock_core::command::{Command, Outcome, SessionCommand};
use peeklock_core::description::{
    Jitter, QueueDescription, RetryKind, RetryPolicy, SessionRetryOrder,
};
use peeklock_core::error::Rejection;
use peeklock_core::ids::{EntityId, SequenceNumber, Ticket};
use peeklock_core::limits::{Limits, Tier};
use peeklock_core::machine::queue::{Queue, QueueConfig};
use peeklock_core::machine::{Machine, StageNumber};
use peeklock_core::path::SubQueue;
use peeklock_core::request::{Outlet, Release, Released, Reply, Request, release_all};
use peeklock_core::shell::tree::{StageCompletion, Tree};
use peeklock_core::shell::writer::ShardWriter;
use peeklock_core::shell::{Shell, TreeFault, TurnResults};
use peeklock_core::store::{Batch, Shard, Store, StoreError};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_store_testing::{
    Crash, Fate, FaultStore, Odds, Random, Room, block_on, visit_records,
};

use crate::auditor::Auditor;
use crate::book::Book;
use crate::clients::{Clients, DUPLICATE_KEY, DrawnCommand};
use crate::image::Image;
use crate::inspection::Occasion;

use self::events::Events;
pub use self::seen::Seen;

const SHARDS: u16 = 2;
/// Entities of one shard are on both, so that they learn of a failure at different times.
const ARBITERS: usize = 2;
/// Maximum of timer events within one passing of time.
const KNOCKS_MAX: u32 = 20_000;
/// Message of a planned panic.
const PLANNED: &str = "planned by the simulator";

/// Planned panics are not printed.
pub fn silence_planned_panics() {
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        if panic.payload().downcast_ref::<&str>() != Some(&PLANNED) {
            print(panic);
        }
    }));
}

/// Collects all outputs of the broker.
#[derive(Default)]
struct Mailbox(Mutex<Vec<Released>>);

impl Outlet for Mailbox {
    fn release(&self, group: Vec<Released>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).extend(group);
    }
}

enum Mail {
    Committed(StageNumber),
    Failed,
    RoomAgain,
}

struct Entity {
    id: EntityId,
    description: QueueDescription,
    seat: u64,
    tree: Rc<RefCell<Tree>>,
    shell: Option<Shell<Queue>>,
    /// Waits until nothing is in transit, to be rebuilt or deleted.
    ending: Option<Ending>,
    inlet: VecDeque<Request>,
    mail: VecDeque<Mail>,
    dirty: bool,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    Failed,
    Retired,
    Deleting,
}

type Done<T> = Arc<Mutex<Vec<T>>>;

pub struct World {
    random: Random,
    now: Timestamp,
    limits: Arc<Limits>,
    config: QueueConfig,
    store: Arc<FaultStore>,
    odds: Odds,
    writers: Vec<Arc<ShardWriter>>,
    unknown: Done<Arc<ShardWriter>>,
    done: Done<(u64, StageNumber, Result<(), StoreError>)>,
    deleted: Done<(u64, Result<(), StoreError>)>,
    woken: Done<u64>,
    outlet: Arc<Mailbox>,
    entities: Vec<Entity>,
    /// A topic next to the queues; taken out while it is processed.
    events: Option<Events>,
    next_seat: u64,
    next_id: u64,
    next_ticket: u64,
    /// Number of tokens that may be drawn until the machine panics.
    fuse: Rc<Cell<Option<u32>>>,
    room: Room,
    /// Occasionally so small that sends are refused rather than parked.
    parking: Budget,
    clients: Clients,
    auditor: Auditor,
    seen: Seen,
    traced: bool,
    lines: Vec<String>,
}

fn take<T>(list: &Done<T>) -> Vec<T> {
    std::mem::take(&mut *list.lock().unwrap_or_else(PoisonError::into_inner))
}

fn push<T>(list: &Done<T>, item: T) {
    list.lock().unwrap_or_else(PoisonError::into_inner).push(item);
}

impl World {
    pub fn new(seed: u64, traced: bool) -> Self {
        let mut random = Random::new(seed);
        let mut limits = Limits::of(Tier::Standard);
        limits.peek_count_max = 1_000_000;
        limits.peek_bytes_max = u64::MAX;
        limits.deferred_bytes_max = u64::MAX;
        let limits = Arc::new(limits);
        let config = QueueConfig {
            release_on_detach: random.one_in(2),
            release_on_connection_loss: random.one_in(2),
            expire_whole_sessions: true,
            duplicate_key: DUPLICATE_KEY,
            forwarding: peeklock_core::machine::queue::ForwardingConfig::default(),
        };
        let store = FaultStore::new(SHARDS, 1 << 40);
        store.complete_at_once(random.one_in(10));
        let odds = match random.below(4) {
            0 => Odds::default(),
            1 => Odds { fail: 4, unknown: 12 },
            2 => Odds { fail: 0, unknown: 60 },
            _ => Odds { fail: 25, unknown: 25 },
        };
        let entity_count = random.index(3) + 2;
        let parking = Budget::new(if random.one_in(4) { 20_000 } else { 64 << 20 });
        let unknown = Done::default();
        let writers = writers(&store, &unknown);
        let mut world = Self {
            now: Timestamp::from_unix_ms(1_800_000_000_000),
            clients: Clients::new(seed, &limits, entity_count),
            limits,
            config,
            store,
            odds,
            writers,
            unknown,
            done: Done::default(),
            deleted: Done::default(),
            woken: Done::default(),
            outlet: Arc::default(),
            entities: Vec::new(),
            events: None,
            next_seat: 1,
            next_id: 1,
            next_ticket: 1,
            fuse: Rc::default(),
            room: Room::Open,
            parking,
            auditor: Auditor::new(&config),
            seen: Seen::default(),
            random,
            traced,
            lines: Vec::new(),
        };
        world.clients.large_one_in = if world.random.one_in(3) { 2 } else { 30 };
        for index in 0..entity_count {
            let description = world.draw_description(index);
            let entity = world.create(index, description);
            world.entities.push(entity);
        }
        world.events = Some(world.found_events());
        world
    }

    pub const fn seen(&self) -> &Seen {
        &self.seen
    }

    pub fn trace(&mut self) -> Vec<String> {
        std::mem::take(&mut self.lines)
    }

    fn note(&mut self, line: impl FnOnce() -> String) {
        if self.traced {
            let since = self.now.unix_ms() - 1_800_000_000_000;
            let line = line();
            self.lines.push(format!("{since:>9} {line}"));
        }
    }

    fn draw_description(&mut self, index: usize) -> QueueDescription {
        let random = &mut self.random;
        let mut description = QueueDescription::new(format!("queue{index}"), &self.limits);
        let mut span = |low: u64, high: u64| {
            TimeSpan::from_ms(i64::try_from(random.between(low, high)).unwrap_or(1))
        };
        description.lock_duration = span(500, 30_000);
        description.duplicate_detection_history_time_window = span(1_000, 600_000);
        let short = span(2_000, 60_000);
        let random = &mut self.random;
        if random.one_in(3) {
            description.default_message_time_to_live = short;
        }
        description.dead_lettering_on_message_expiration = random.one_in(2);
        description.max_delivery_count = u32::try_from(random.between(1, 5)).unwrap_or(1);
        description.requires_duplicate_detection = random.one_in(3);
        description.requires_session = random.one_in(3);
        description.max_size_in_megabytes = 1;
        if random.one_in(3) {
            description.auto_delete_on_idle = TimeSpan::from_minutes(5);
        }
        if random.one_in(3) {
            description.retry_policy = Some(RetryPolicy {
                kind: *random.pick(&RetryKind::ALL).unwrap_or(&RetryKind::Fixed),
                delay: TimeSpan::from_ms(i64::try_from(random.between(1, 5_000)).unwrap_or(1)),
                delay_max: None,
                jitter: Jitter::of_millionths(200_000).unwrap_or(Jitter::NONE),
            });
        }
        if random.one_in(2) {
            description.session_retry_order = SessionRetryOrder::Pass;
        }
        description
    }

    /// Creates an entity like the namespace; its records are durable immediately.
    fn create(&mut self, index: usize, description: QueueDescription) -> Entity {
        let id = EntityId(self.next_id);
        self.next_id += 1;
        let queue = Queue::new(id, description.clone(), self.config, self.now);
        let mut batch = Batch::default();
        queue.write_creation(&mut batch);
        // The store works until it has stored the entity.
        let stored = Arc::new(Mutex::new(None));
        loop {
            let answer = Arc::clone(&stored);
            self.writer_of(index).submit(
                batch.clone(),
                Box::new(move |result: Result<(), StoreError>| {
                    *answer.lock().unwrap_or_else(PoisonError::into_inner) = Some(result.is_ok());
                }),
            );
            while stored.lock().unwrap_or_else(PoisonError::into_inner).is_none() {
                self.resubmit();
                self.store.complete_next(shard_of(index), Fate::Store);
            }
            let outcome = stored.lock().unwrap_or_else(PoisonError::into_inner).take();
            if outcome == Some(true) {
                break;
            }
            block_on(self.writer_of(index).recover()).expect("the store gives the shard");
        }
        if self.auditor.books.len() == index {
            self.auditor.books.push(Book::new(id, description.clone(), self.now));
        }
        let (seat, tree, shell) = self.open(index, id, &description);
        Entity {
            id,
            description,
            seat,
            tree,
            shell: Some(shell),
            ending: None,
            inlet: VecDeque::new(),
            mail: VecDeque::new(),
            dirty: false,
        }
    }

    fn writer_of(&self, index: usize) -> Arc<ShardWriter> {
        Arc::clone(&self.writers[index % usize::from(SHARDS)])
    }

    /// Builds machine, tree and shell from the stored records, like the namespace.
    fn open(
        &mut self,
        index: usize,
        id: EntityId,
        description: &QueueDescription,
    ) -> (u64, Rc<RefCell<Tree>>, Shell<Queue>) {
        let queue = restored(&self.store, id, description, self.config, self.now);
        let tree = Rc::new(RefCell::new(Tree::new(self.writer_of(index), queue.size_bytes())));
        let (seat, shell) = self.drive(queue, &tree);
        (seat, tree, shell)
    }

    /// Gives a machine of a tree a shell.
    fn drive<M: Machine>(&mut self, machine: M, tree: &Rc<RefCell<Tree>>) -> (u64, Shell<M>) {
        let seat = self.next_seat;
        self.next_seat += 1;
        let mut tokens = Random::new(seat ^ self.random.bits());
        let fuse = Rc::clone(&self.fuse);
        let woken = Arc::clone(&self.woken);
        let shell = Shell::new(
            machine,
            Rc::clone(tree),
            Arc::clone(&self.store) as Arc<dyn Store>,
            Arc::clone(&self.limits),
            Box::new(move || {
                match fuse.get() {
                    Some(0) => {
                        fuse.set(None);
                        std::panic::panic_any(PLANNED);
                    }
                    Some(left) => fuse.set(Some(left - 1)),
                    None => {}
                }
                tokens.bits()
            }),
            self.parking.clone(),
            Box::new(move || {
                let woken = Arc::clone(&woken);
                Box::new(move || push(&woken, seat))
            }),
        );
        (seat, shell)
    }

    /// Runs one random event.
    pub fn step(&mut self) {
        if self.random.one_in(6) {
            self.step_events();
        }
        match self.random.below(1_000) {
            0..=299 => self.ask(),
            300..=519 => self.run_someone(),
            520..=649 => self.submit_someone(),
            650..=829 => {
                let mut random = self.random.clone();
                let count = random.between(1, 4);
                for _ in 0..count {
                    let odds = self.odds;
                    self.store.step(&mut random, &odds);
                }
                self.random = random;
            }
            830..=919 => {
                let arbiter = self.random.index(ARBITERS);
                self.take_completions(arbiter);
            }
            920..=939 => self.resubmit(),
            940..=974 => self.let_time_pass(),
            975..=979 => self.change_room(),
            980..=981 => {
                let shard = Shard(u16::try_from(self.random.below(u64::from(SHARDS))).unwrap_or(0));
                if self.odds.fail > 0 {
                    self.note(|| format!("{shard:?} is acquired by somebody else"));
                    self.store.usurp(shard);
                    self.seen.usurped += 1;
                }
            }
            982..=984 => {
                if self.odds.fail > 0 {
                    self.fuse.set(Some(u32::try_from(self.random.below(4)).unwrap_or(0)));
                }
            }
            985 => {
                let entity = self.random.index(self.entities.len());
                self.fail(entity, "a failure of the shell");
            }
            986 => self.crash(),
            987..=989 => self.come_to_rest(),
            _ => {
                // A busy moment with several rounds of events.
                for _ in 0..6 {
                    self.ask();
                    self.run_someone();
                    self.submit_someone();
                    let mut random = self.random.clone();
                    self.store.step(&mut random, &self.odds);
                    self.random = random;
                    let arbiter = self.random.index(ARBITERS);
                    self.take_completions(arbiter);
                }
            }
        }
    }

    fn ask(&mut self) {
        for _ in 0..self.random.between(1, 3) {
            let entity = self.random.index(self.entities.len());
            let description = self.auditor.books[entity].description.clone();
            let mut random = self.random.clone();
            let asked = self.clients.ask(entity, &description, self.now, &mut random);
            self.random = random;
            self.send(entity, asked);
        }
    }

    fn send(&mut self, entity: usize, drawn: DrawnCommand) {
        let DrawnCommand { sub_queue, command, sent } = drawn;
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.seen.commands += 1;
        self.note(|| {
            format!("{entity} asked {} {sub_queue:?} {}", ticket.0, brief(&command, &sent))
        });
        match &command {
            Command::Receive { .. } | Command::AcceptSession { .. } => {
                self.clients.remember_call(entity, ticket);
            }
            Command::InSession { receiver, command } => {
                self.clients.note_session_command(entity, ticket, *receiver);
                if matches!(command, SessionCommand::Receive { .. }) {
                    self.clients.remember_call(entity, ticket);
                }
            }
            _ => {}
        }
        self.auditor.ask(entity, ticket.0, sub_queue, &command, &sent, self.now);
        let outlet = Arc::clone(&self.outlet) as Arc<dyn Outlet>;
        let reply = Reply::new(outlet, ticket.0, None);
        self.entities[entity].inlet.push_back(Request { ticket, sub_queue, command, reply });
    }

    /// Passes outputs of the broker to clients and auditor.
    fn process_outputs(&mut self) {
        let released =
            std::mem::take(&mut *self.outlet.0.lock().unwrap_or_else(PoisonError::into_inner));
        for item in released {
            let about = match &item {
                Released::Answer { correlation, result } => {
                    match result {
                        Ok(Outcome::Received(messages)) => {
                            self.seen.deliveries += messages.len() as u64;
                        }
                        Ok(Outcome::SessionAccepted { .. }) => self.seen.sessions += 1,
                        Ok(Outcome::SessionState(Some(_))) => self.seen.states += 1,
                        Ok(_) => {}
                        Err(reason) => {
                            use peeklock_core::condition::Condition;
                            self.seen.refusals += 1;
                            self.seen.busy +=
                                u64::from(reason.condition() == Condition::ServerBusy);
                            self.seen.internal_errors +=
                                u64::from(reason.condition() == Condition::InternalError);
                            self.seen.sessions_lost +=
                                u64::from(reason.condition() == Condition::SessionLockLost);
                        }
                    }
                    self.auditor.target_of(*correlation)
                }
                Released::Delivery { receiver, message } => {
                    self.seen.deliveries += 1;
                    self.auditor
                        .entity_of(*receiver)
                        .map(|entity| (entity, message.facts.sub_queue))
                }
                Released::Detached { receiver, .. } | Released::Closed { receiver, .. } => {
                    self.auditor.entity_of(*receiver).map(|entity| (entity, SubQueue::Main))
                }
            };
            self.note(|| format!("  told {}", describe(&item)));
            self.auditor.judge(&item, &self.store, self.now);
            if let Some((entity, sub_queue)) = about {
                self.clients.note_output(entity, sub_queue, &item);
            }
        }
    }
}

const fn arbiter_of(entity: usize) -> usize {
    (entity / 2) % ARBITERS
}

fn shard_of(entity: usize) -> Shard {
    Shard(if entity.is_multiple_of(2) { 0 } else { 1 })
}

fn writers(store: &Arc<FaultStore>, unknown: &Done<Arc<ShardWriter>>) -> Vec<Arc<ShardWriter>> {
    (0..SHARDS)
        .map(|shard| {
            let unknown = Arc::clone(unknown);
            let on_unknown = Box::new(move |writer| push(&unknown, writer));
            let store = Arc::clone(store) as Arc<dyn Store>;
            block_on(ShardWriter::acquire(store, Shard(shard), on_unknown))
                .expect("a shard can be owned")
        })
        .collect()
}

fn restored(
    store: &FaultStore,
    id: EntityId,
    description: &QueueDescription,
    config: QueueConfig,
    now: Timestamp,
) -> Queue {
    let mut queue = Queue::new(id, description.clone(), config, now);
    visit_records(store, &codec::space_key(id), |key, value| {
        queue.restore(key, value).expect("every record can be read");
    })
    .expect("the store can be scanned");
    queue.restored(now);
    queue
}

fn brief(command: &Command, sent: &[crate::clients::Sent]) -> String {
    if sent.is_empty() {
        return format!("{command:?}");
    }
    format!("sends {sent:?}")
}

fn describe(item: &Released) -> String {
    match item {
        Released::Answer { correlation, result: Ok(Outcome::Received(messages)) } => {
            let facts: Vec<_> = messages.iter().map(|message| message.facts).collect();
            format!("{correlation}: received {facts:?}")
        }
        Released::Answer { correlation, result } => format!("{correlation}: {result:?}"),
        Released::Delivery { receiver, message } => format!("{receiver:?}: {:?}", message.facts),
        Released::Detached { receiver, reason } | Released::Closed { receiver, reason } => {
            format!("{receiver:?} detached: {reason}")
        }
    }
}

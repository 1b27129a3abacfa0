//! The world: queues, a topic that messages are sent by way of, trees and writers as the actors drive
//! them, and lists on their way.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;

use peeklock_core::change::codec;
use peeklock_core::command::{Command, LinkEnd, Outcome, ReceiveMode, Settlement};
use peeklock_core::description::{Destination, EntityStatus, QueueDescription, TopicDescription};
use peeklock_core::entity::any::AnyMachine;
use peeklock_core::entity::family::Family;
use peeklock_core::entity::queue::{ForwardingConfig, Queue, QueueConfig};
use peeklock_core::entity::topic::Topic;
use peeklock_core::entity::{Machine, StageNumber};
use peeklock_core::error::Rejection;
use peeklock_core::ids::{EntityId, LockToken, SequenceNumber, Ticket};
use peeklock_core::inbound::{Edge, Entropy};
use peeklock_core::limits::{Limits, Tier};
use peeklock_core::message::Message;
use peeklock_core::path::{PathKey, SubQueue};
use peeklock_core::permits::Budget;
use peeklock_core::request::{Outlet, Release, Released, Reply, Request, release_all};
use peeklock_core::shell::tree::{StageCompletion, Tree};
use peeklock_core::shell::writer::ShardWriter;
use peeklock_core::shell::{Failure, Shell, Turn};
use peeklock_core::store::{Batch, Key, Shard, Store, StoreError};
use peeklock_core::testing::{Crash, Fate, FaultStore, Odds, Random};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::transaction::{Operation, Part, PartOutcome};
use peeklock_core::transfer::passage::Passages;
use peeklock_core::transfer::{HandOver, PinnedMessage, errand};

use crate::ground::{
    ListEnded, Mail, Mailbox, PLANNED, Shared, at_once, marker, push, take, writers,
};
use crate::judge::Judge;

const SHARDS: u16 = 2;
const QUEUES: usize = 4;
/// Behind the queues, a topic: it has no subscriptions, and nothing is sent to it.
const TOPIC: usize = QUEUES;
const PLACES: usize = QUEUES + 1;
const KEY: [u8; 16] = [7; 16];
/// What the seeds have met.
#[derive(Clone, Default, Debug)]
pub struct Seen {
    pub sent: u64,
    pub via: u64,
    pub via_topic: u64,
    pub topic_dead_letters: u64,
    pub topic_commits: u64,
    pub moved: u64,
    pub lists: u64,
    pub unanswered: u64,
    pub unclaimed: u64,
    pub failed: u64,
    pub waited_for_guards: u64,
    pub crashed: u64,
    pub deleted: u64,
    pub transfer_dead_letters: u64,
    pub four_hops: u64,
    pub full: u64,
}

impl Seen {
    pub fn add(&mut self, other: &Self) {
        self.sent += other.sent;
        self.via += other.via;
        self.via_topic += other.via_topic;
        self.topic_dead_letters += other.topic_dead_letters;
        self.topic_commits += other.topic_commits;
        self.moved += other.moved;
        self.lists += other.lists;
        self.unanswered += other.unanswered;
        self.unclaimed += other.unclaimed;
        self.failed += other.failed;
        self.waited_for_guards += other.waited_for_guards;
        self.crashed += other.crashed;
        self.deleted += other.deleted;
        self.transfer_dead_letters += other.transfer_dead_letters;
        self.four_hops += other.four_hops;
        self.full += other.full;
    }

    /// The seeds of a whole run must have been where it hurts.
    pub fn check_that_enough_happened(&self) {
        let least = [
            ("moved", self.moved, 10_000),
            ("via", self.via, 1_000),
            ("via_topic", self.via_topic, 1_000),
            ("topic_dead_letters", self.topic_dead_letters, 50),
            ("topic_commits", self.topic_commits, 50),
            ("unanswered", self.unanswered, 200),
            ("unclaimed", self.unclaimed, 20),
            ("failed", self.failed, 200),
            ("waited_for_guards", self.waited_for_guards, 20),
            ("crashed", self.crashed, 100),
            ("deleted", self.deleted, 200),
            ("transfer_dead_letters", self.transfer_dead_letters, 200),
            ("four_hops", self.four_hops, 50),
            ("full", self.full, 50),
        ];
        for (what, count, least) in least {
            assert!(count >= least, "only {count} times {what}: the seeds prove too little");
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Ending {
    /// It failed, or is being retired, and something of it is on its way.
    Failed,
    Retired,
    /// Waits for guards.
    Settling,
    Deleting,
}

/// What an entity is like.
#[derive(Clone, Debug)]
enum Description {
    Queue(QueueDescription),
    Topic(TopicDescription),
}

impl Description {
    /// A machine of that kind without messages.
    fn machine(&self, id: EntityId, config: QueueConfig, now: Timestamp) -> AnyMachine {
        match self.clone() {
            Self::Queue(queue) => AnyMachine::Queue(Box::new(Queue::new(id, queue, config, now))),
            Self::Topic(topic) => AnyMachine::Topic(Box::new(Topic::new(id, topic, config, now))),
        }
    }

    fn of(machine: &AnyMachine) -> Self {
        match machine {
            AnyMachine::Queue(queue) => Self::Queue(queue.description().clone()),
            AnyMachine::Topic(topic) => Self::Topic((**topic.description()).clone()),
        }
    }

    /// The command that replaces the description of what `before` describes by this one.
    fn update(self, before: &Self) -> (Self, Command) {
        let read_at = None;
        match (self, before) {
            (Self::Queue(mut queue), Self::Queue(before)) => {
                queue.requires_duplicate_detection = before.requires_duplicate_detection;
                let description = Box::new(queue.clone());
                (Self::Queue(queue), Command::Update { description, read_at })
            }
            (Self::Topic(topic), _) => {
                let description = Box::new(topic.clone());
                (Self::Topic(topic), Command::UpdateTopic { description, read_at })
            }
            (queue, Self::Topic(_)) => panic!("{queue:?} for a topic"),
        }
    }
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
    passages: Arc<Passages>,
    ending: Option<Ending>,
    is_deleted: bool,
    inlet: VecDeque<Request>,
    closed: bool,
    mail: VecDeque<Mail>,
    dirty: bool,
}

/// What goes wrong at one step.
#[derive(Clone, Copy, Debug)]
pub enum Misfortune {
    Fate(Fate),
    Crash,
    Panic(usize),
}

/// What a reply belongs to.
enum Asked {
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
    errands: Vec<(u64, Arc<Passages>, HandOver<PinnedMessage>)>,
    asked: BTreeMap<u64, (Asked, String)>,
    next_seat: u64,
    next_id: u64,
    next_ticket: u64,
    next_marker: u64,
    locks: bool,
    judge: Judge,
    seen: Seen,
    fuse: Rc<Cell<bool>>,
    /// What becomes of one batch, counted from the first.
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
        let config = QueueConfig {
            release_on_detach: false,
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
        let store = FaultStore::new(SHARDS, 1 << 40);
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
            judge: Judge { in_order: !locks, may_absorb, ..Judge::default() },
            seen: Seen::default(),
            fuse: Rc::default(),
            planned: None,
            completed: 0,
            random,
            traced,
            lines: Vec::new(),
        };
        for place in 0..PLACES {
            let entity = world.create(place);
            world.entities.push(entity);
        }
        world
    }

    /// A chain of all queues, whose head has messages, some of them by way of the topic; one thing goes
    /// wrong when the `step`-th batch completes. Returns whether the run was that long.
    pub fn chain(step: u64, misfortune: Misfortune) -> bool {
        let mut world = Self::new(1, false);
        world.odds = Odds::default();
        world.locks = false;
        world.judge.in_order = true;
        world.judge.may_absorb = false;
        world.config.forwarding = ForwardingConfig::default();
        world.come_to_rest();
        for place in (0..QUEUES).rev() {
            let mut description = QueueDescription::new(format!("q{place}"), &world.limits);
            if place + 1 < QUEUES {
                description.forward_to = Some(format!("q{}", place + 1).into());
            }
            let before = world.entities[place].description.clone();
            let (description, update) = Description::Queue(description).update(&before);
            world.entities[place].description = description;
            world.submit(place, SubQueue::Main, update, Asked::Other);
        }
        let topic = Description::Topic(TopicDescription::new("t4", &world.limits));
        let update = topic.update(&world.entities[TOPIC].description).1;
        world.submit(TOPIC, SubQueue::Main, update, Asked::Other);
        world.come_to_rest();
        world.planned = Some((world.completed + step, misfortune));
        let first = world.next_marker;
        for number in 0..9 {
            let message = world.message();
            let marker = world.next_marker - 1;
            world.submit(0, SubQueue::Main, Command::Send { message }, Asked::Send(vec![marker]));
            // To the second of the chain: that is as many hops as by the first.
            let messages = vec![world.message()];
            let marker = world.next_marker - 1;
            let via = Command::SendVia { destination: Arc::from("q1"), messages };
            world.submit(TOPIC, SubQueue::Main, via, Asked::Send(vec![marker]));
            if number % 3 == 2 {
                for place in [0, TOPIC] {
                    world.run(place);
                    world.submit_tree(place);
                }
            }
        }
        world.come_to_rest();
        let end = world.entities[QUEUES - 1].id.0;
        for marker in
            (first..world.next_marker).filter(|one| world.judge.acknowledged.contains(one))
        {
            let place = world.judge.last.places.get(&marker);
            assert_eq!(place.map(|place| place.entity), Some(end), "{marker} is at {place:?}");
        }
        world.planned.is_none()
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

    fn draw(&mut self, place: usize) -> Description {
        if place == TOPIC {
            return Description::Topic(self.draw_topic());
        }
        let mut description = QueueDescription::new(format!("q{place}"), &self.limits);
        let random = &mut self.random;
        let other = |random: &mut Random| {
            let other = (place + 1 + random.index(QUEUES - 1)) % QUEUES;
            Some(format!("q{other}").into_boxed_str())
        };
        if !random.one_in(3) {
            description.forward_to = other(random);
        }
        if random.one_in(3) {
            description.forward_dead_lettered_messages_to = other(random);
        }
        description.max_size_in_megabytes = 1;
        description.requires_duplicate_detection = self.judge.may_absorb && random.one_in(2);
        description.status = match random.below(12) {
            0 => EntityStatus::Disabled,
            1 => EntityStatus::SendDisabled,
            2 => EntityStatus::ReceiveDisabled,
            _ => EntityStatus::Active,
        };
        Description::Queue(description)
    }

    fn draw_topic(&mut self) -> TopicDescription {
        TopicDescription {
            max_size_in_megabytes: 1,
            status: match self.random.below(10) {
                0 => EntityStatus::Disabled,
                1 => EntityStatus::SendDisabled,
                _ => EntityStatus::Active,
            },
            ..TopicDescription::new(path(TOPIC), &self.limits)
        }
    }

    fn shard_of(id: EntityId) -> Shard {
        Shard(u16::try_from(id.0 % u64::from(SHARDS)).unwrap())
    }

    fn writer_of(&self, id: EntityId) -> Arc<ShardWriter> {
        Arc::clone(&self.writers[usize::from(Self::shard_of(id).0)])
    }

    /// One batch of the store ends, and what is durable then is judged.
    fn complete(&mut self, shard: Shard, fate: Fate) -> bool {
        if self.store.queued(shard) == 0 {
            return false;
        }
        let mut fate = fate;
        if let Some((_, misfortune)) = self.planned.take_if(|(step, _)| *step == self.completed) {
            match misfortune {
                Misfortune::Fate(planned) => fate = planned,
                Misfortune::Crash => {
                    self.completed += 1;
                    self.crash();
                    return false;
                }
                Misfortune::Panic(place) => self.fail(place, "as planned"),
            }
        }
        self.completed += 1;
        let done = self.store.complete_next(shard, fate);
        if done {
            self.judge.look(&self.store, self.next_id);
        }
        done
    }

    fn step_store(&mut self) {
        let odds = self.odds;
        let mut random = self.random.clone();
        self.store.step(&mut random, &odds);
        self.random = random;
        self.judge.look(&self.store, self.next_id);
    }

    fn create(&mut self, place: usize) -> Entity {
        let id = EntityId(self.next_id);
        self.next_id += 1;
        let description = self.draw(place);
        let mut batch = Batch::default();
        match description.machine(id, self.config, self.now) {
            AnyMachine::Queue(queue) => queue.write_creation(&mut batch),
            AnyMachine::Topic(topic) => topic.write_creation(&mut batch),
        }
        let stored = Shared::default();
        loop {
            let answer = Arc::clone(&stored);
            self.writer_of(id).submit(
                batch.clone(),
                Box::new(move |result: Result<(), StoreError>| push(&answer, result.is_ok())),
            );
            let outcome = loop {
                if let Some(outcome) = take(&stored).pop() {
                    break outcome;
                }
                self.resubmit();
                self.complete(Self::shard_of(id), Fate::Store);
            };
            if outcome {
                break;
            }
            self.writer_of(id).recover().unwrap();
        }
        let path = path(place);
        self.note(|| format!("{path} is created as {id:?}: {description:?}"));
        let (seat, tree, shell) = self.open(id, &description);
        Entity {
            id,
            path,
            description,
            seat,
            tree,
            shell: Some(shell),
            passages: Arc::default(),
            ending: None,
            is_deleted: false,
            inlet: VecDeque::new(),
            closed: false,
            mail: VecDeque::new(),
            dirty: true,
        }
    }

    fn open(
        &mut self,
        id: EntityId,
        description: &Description,
    ) -> (u64, Rc<RefCell<Tree>>, Shell<AnyMachine>) {
        let mut machine = description.machine(id, self.config, self.now);
        self.store
            .scan(codec::space_key(id).as_bytes(), &mut |key, value| {
                machine.restore(key, value).expect("every record can be read");
            })
            .unwrap();
        machine.restored(self.now);
        check(&machine);
        let (writer, bytes) = (self.writer_of(id), machine.size_bytes());
        let tree = match &machine {
            AnyMachine::Queue(_) => Tree::new(writer, bytes),
            AnyMachine::Topic(topic) => {
                Tree::of_family(writer, bytes, Family::new(Arc::clone(topic.description())))
            }
        };
        let tree = Rc::new(RefCell::new(tree));
        let seat = self.next_seat;
        self.next_seat += 1;
        let mut tokens = Random::new(self.random.bits());
        let fuse = Rc::clone(&self.fuse);
        let shell = Shell::new(
            machine,
            Rc::clone(&tree),
            Arc::clone(&self.store) as Arc<dyn Store>,
            Arc::clone(&self.limits),
            Box::new(move || {
                if fuse.replace(false) {
                    std::panic::panic_any(PLANNED);
                }
                tokens.bits()
            }),
            Budget::new(64 << 20),
            Box::new(|| Box::new(|| {})),
        );
        (seat, tree, shell)
    }

    pub fn step(&mut self) {
        match self.random.below(1_000) {
            0..=199 => self.ask(),
            200..=419 => self.run_someone(),
            420..=549 => self.submit_someone(),
            550..=699 => self.step_store(),
            700..=799 => self.take_completions(),
            800..=899 => self.walk(),
            900..=919 => self.hear_ends(),
            920..=939 => self.resubmit(),
            940..=959 => {
                self.now = self.now.plus(TimeSpan::from_ms(
                    i64::try_from(self.random.between(1, 20_000)).unwrap(),
                ));
            }
            960..=979 => self.move_endings(),
            980..=983 => {
                let place = self.random.index(PLACES);
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
                    self.hear_ends();
                }
            }
        }
        self.hear();
    }

    fn ask(&mut self) {
        let place = self.random.index(PLACES);
        if self.entities[place].closed {
            return;
        }
        if place == TOPIC {
            self.ask_topic();
            return;
        }
        let (sub_queue, command, asked) = match self.random.below(20) {
            0..=9 => {
                let message = self.message();
                let marker = self.next_marker - 1;
                self.seen.sent += 1;
                (SubQueue::Main, Command::Send { message }, Asked::Send(vec![marker]))
            }
            10..=13 => {
                let other = (place + 1 + self.random.index(QUEUES - 1)) % QUEUES;
                let messages = vec![self.message(), self.message()];
                let markers = vec![self.next_marker - 2, self.next_marker - 1];
                self.seen.via += 1;
                let destination = Arc::from(format!("q{other}"));
                (SubQueue::Main, Command::SendVia { destination, messages }, Asked::Send(markers))
            }
            14..=16 => {
                // Under lock, so that what is removed is known before it is gone.
                let first = usize::from(!self.locks);
                let sub_queue = SubQueue::ALL[first + self.random.index(3 - first)];
                let command = Command::Receive {
                    mode: ReceiveMode::PeekLock,
                    count_max: 3,
                    bytes_max: u64::MAX,
                    wait: TimeSpan::ZERO,
                    holder: None,
                };
                (sub_queue, command, Asked::Receive)
            }
            17 => (SubQueue::Main, self.draw_update(place), Asked::Other),
            18 => {
                let sub_queue = SubQueue::ALL[self.random.index(3)];
                let peek = Command::Peek { from: Default::default(), count_max: 1_000 };
                (sub_queue, peek, Asked::Other)
            }
            _ => {
                let receiver = peeklock_core::ids::ReceiverId(1);
                let end = LinkEnd::Broken;
                (SubQueue::Main, Command::Detach { receiver, end }, Asked::Other)
            }
        };
        self.submit(place, sub_queue, command, asked);
    }

    fn draw_update(&mut self, place: usize) -> Command {
        let before = self.entities[place].description.clone();
        let (description, command) = self.draw(place).update(&before);
        self.entities[place].description = description;
        command
    }

    /// What is asked of the topic: sends by way of it, and what can be done where they rest.
    fn ask_topic(&mut self) {
        let rest = SubQueue::TransferDeadLetter;
        let (sub_queue, command, asked) = match self.random.below(20) {
            0..=9 => {
                let (via, markers) = self.send_via();
                (SubQueue::Main, via, Asked::Send(markers))
            }
            10..=15 => {
                let command = Command::Receive {
                    mode: ReceiveMode::PeekLock,
                    count_max: 3,
                    bytes_max: u64::MAX,
                    wait: TimeSpan::ZERO,
                    holder: None,
                };
                (rest, command, Asked::Receive)
            }
            16..=17 => (SubQueue::Main, self.draw_update(TOPIC), Asked::Other),
            18 => {
                let peek = Command::Peek { from: Default::default(), count_max: 1_000 };
                (rest, peek, Asked::Other)
            }
            _ => {
                let receiver = peeklock_core::ids::ReceiverId(1);
                (rest, Command::Detach { receiver, end: LinkEnd::Broken }, Asked::Other)
            }
        };
        self.submit(TOPIC, sub_queue, command, asked);
    }

    /// Two messages to some queue by way of the topic, and their markers.
    fn send_via(&mut self) -> (Command, Vec<u64>) {
        let destination = Arc::from(path(self.random.index(QUEUES)));
        let messages = vec![self.message(), self.message()];
        self.seen.via_topic += 1;
        let markers = vec![self.next_marker - 2, self.next_marker - 1];
        (Command::SendVia { destination, messages }, markers)
    }

    fn message(&mut self) -> peeklock_core::command::InboundMessage {
        let marker = self.next_marker;
        self.next_marker += 1;
        let filling = match self.random.below(8) {
            0 => 100_000,
            1 => 5_000,
            _ => 0,
        };
        let message = Message::new(format!("{marker}{}", "x".repeat(filling)));
        // In a chain, where nothing may disappear, a queue may detect duplicates all the same.
        let repeats = self.judge.may_absorb && self.random.one_in(4);
        let id = if repeats { marker / 4 } else { marker };
        if marker % 4 == 3 {
            self.judge.without_id.insert(marker);
            return self.edge.take(message);
        }
        self.edge.take(message.with_message_id(format!("id{id}")))
    }

    fn submit(&mut self, place: usize, sub_queue: SubQueue, command: Command, asked: Asked) {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.note(|| match &asked {
            Asked::Send(markers) => format!("{} {} sends {markers:?}", path(place), ticket.0),
            Asked::Receive | Asked::Other => {
                format!("{} {} {sub_queue:?} {command:?}", path(place), ticket.0)
            }
        });
        let path = self.entities[place].path.clone();
        self.asked.insert(ticket.0, (asked, path));
        let reply = Reply::new(Arc::clone(&self.outlet) as Arc<dyn Outlet>, ticket.0, None);
        self.entities[place].inlet.push_back(Request { ticket, sub_queue, command, reply });
    }

    /// Clients hear what left the broker.
    fn hear(&mut self) {
        for item in self.outlet.take() {
            let Released::Answer { correlation, result } = item else { continue };
            self.note(|| match &result {
                Ok(Outcome::Received(all)) => {
                    let all: Vec<_> = all.iter().map(|one| one.facts.sequence).collect();
                    format!("  {correlation}: received {all:?}")
                }
                Ok(other) => format!(
                    "  {correlation}: {}",
                    &format!("{other:?}")[..20.min(format!("{other:?}").len())]
                ),
                Err(error) => format!("  {correlation}: {error}"),
            });
            let Some((asked, path)) = self.asked.remove(&correlation) else { continue };
            match (asked, result) {
                (Asked::Send(markers), Ok(outcome)) => {
                    let numbers = match outcome {
                        Outcome::Accepted(number) => vec![number],
                        Outcome::AcceptedBatch(numbers) => numbers,
                        Outcome::Committed(parts) => sent_in(&parts),
                        other => panic!("a send is answered with {other:?}"),
                    };
                    for (marker, number) in markers.into_iter().zip(numbers) {
                        if number.0 > 0 {
                            self.judge.acknowledged.insert(marker);
                        }
                    }
                }
                (Asked::Receive, Ok(Outcome::Received(messages))) => {
                    for message in messages {
                        let marker = marker(message.content.loaded().unwrap().clone());
                        let lock = message.facts.lock.expect("it is received under lock");
                        let is_stored = self.judge.last.places.contains_key(&marker);
                        assert!(is_stored, "{marker} is delivered and not stored");
                        self.decide(&path, message.facts.sub_queue, lock.token, marker);
                    }
                }
                (_, Ok(_) | Err(_)) => {}
            }
        }
    }

    fn decide(&mut self, path: &str, sub_queue: SubQueue, token: LockToken, marker: u64) {
        let Some(place) = self.entities.iter().position(|one| one.path == path && !one.closed)
        else {
            return;
        };
        // Only of one that was tried once it is certain what it was replaced by.
        let is_first = self.judge.tried.insert(marker);
        self.judge.replaced.remove(&marker);
        let settlement = match self.random.below(6) {
            0 => {
                self.judge.may_go.insert(marker);
                Settlement::Complete
            }
            1..=3 => {
                let limits = Arc::clone(&self.limits);
                Settlement::dead_letter(Some("r"), Some("d"), &[], &limits).unwrap()
            }
            4 => Settlement::Abandon { properties: None },
            // The lock ends by itself.
            _ => return,
        };
        if place == TOPIC && matches!(settlement, Settlement::Complete) && self.random.one_in(2) {
            // The dead letter is completed, and another sent on in its place (TXN-09, TXN-14).
            let (via, markers) = self.send_via();
            let part = |sub_queue, operation| Part { member: None, sub_queue, operation };
            let parts = vec![
                part(sub_queue, Operation::Settle { token, settlement }),
                part(SubQueue::Main, Operation::of(via).unwrap()),
            ];
            self.seen.topic_commits += 1;
            if is_first {
                self.judge.replaced.insert(marker, markers.clone());
            }
            self.submit(place, SubQueue::Main, Command::Commit { parts }, Asked::Send(markers));
            return;
        }
        self.submit(place, sub_queue, Command::Settle { token, settlement }, Asked::Other);
    }

    /// What an actor does with its mail and inlet.
    fn run_someone(&mut self) {
        let place = self.random.index(PLACES);
        self.run(place);
    }

    fn run(&mut self, place: usize) {
        if self.random.one_in(400) && self.odds.fail > 0 {
            self.fuse.set(true);
        }
        while let Some(mail) = self.entities[place].mail.pop_front() {
            match mail {
                Mail::Committed(stage) => {
                    self.turn(place, |shell, now, out| shell.committed(stage, now, out));
                }
                Mail::Failed => self.fail(place, "an append failed"),
            }
        }
        let entity = &mut self.entities[place];
        if entity.shell.is_none() {
            return;
        }
        if entity.tree.borrow().is_lost() {
            self.fail(place, "an append failed");
            return;
        }
        let count = self.random.index(entity.inlet.len() + 1);
        let requests: Vec<Request> = entity.inlet.drain(..count).collect();
        self.turn(place, |shell, now, out| shell.run(requests, now, out));
        self.fuse.set(false);
    }

    fn turn(
        &mut self,
        place: usize,
        run: impl FnOnce(&mut Shell<AnyMachine>, Timestamp, &mut Vec<Release>) -> Result<Turn, Failure>,
    ) {
        let now = self.now;
        let entity = &mut self.entities[place];
        let Some(shell) = &mut entity.shell else { return };
        let mut out = Vec::new();
        match catch_unwind(AssertUnwindSafe(|| run(shell, now, &mut out))) {
            Ok(Ok(_)) => {
                check(shell.machine());
                let seat = entity.seat;
                let lists = shell.take_outgoing();
                entity.dirty = true;
                for list in lists {
                    self.seen.lists += 1;
                    let passages = Arc::clone(&self.entities[place].passages);
                    self.note(|| {
                        let numbers: Vec<_> =
                            list.messages.iter().map(|one| one.message.facts.sequence).collect();
                        format!(
                            "{} hands over {:?} to {}: {numbers:?}",
                            path(place),
                            list.list,
                            list.destination
                        )
                    });
                    self.errands.push((seat, passages, list));
                }
                release_all(&mut out);
            }
            Ok(Err(Failure(why))) => {
                release_all(&mut out);
                self.fail(place, &why);
            }
            Err(_) => self.fail(place, "panic"),
        }
    }

    fn fail(&mut self, place: usize, why: &str) {
        let entity = &mut self.entities[place];
        let Some(mut shell) = entity.shell.take() else { return };
        self.seen.failed += 1;
        let mut out = Vec::new();
        shell.close(&Rejection::internal("the entity failed"), &mut out);
        entity.tree.borrow_mut().abandon();
        drop(shell);
        release_all(&mut out);
        entity.mail.clear();
        if entity.ending.is_none() {
            entity.ending = Some(Ending::Failed);
        }
        self.note(|| format!("{} failed: {why}", path(place)));
    }

    /// Begins a deletion.
    fn retire(&mut self, place: usize) {
        let entity = &mut self.entities[place];
        if entity.ending.is_some() || entity.shell.is_none() || entity.closed {
            return;
        }
        entity.closed = true;
        entity.ending = Some(Ending::Retired);
        let reason = Rejection::entity_not_found(&entity.path);
        for request in entity.inlet.drain(..) {
            if let Command::TransferIn { passage, .. } = &request.command {
                let result = Err(reason.clone());
                passage.outlet().release(vec![Released::Answer { correlation: 0, result }]);
            }
        }
        let mut out = Vec::new();
        if let Some(shell) = &mut entity.shell {
            shell.close(&reason, &mut out);
        }
        entity.tree.borrow_mut().flush();
        entity.dirty = true;
        release_all(&mut out);
        self.note(|| format!("{} is retired", path(place)));
    }

    /// What the namespace does with entities that end.
    fn move_endings(&mut self) {
        for seat in take(&self.settled) {
            let Some(place) = self.entities.iter().position(|one| one.seat == seat) else {
                continue;
            };
            if self.entities[place].ending != Some(Ending::Settling) {
                continue;
            }
            if self.entities[place].closed {
                self.write_deletion(place);
            } else {
                self.reopen(place);
            }
        }
        for (seat, result) in take(&self.deletions) {
            let Some(place) = self.entities.iter().position(|one| one.seat == seat) else {
                continue;
            };
            let id = self.entities[place].id;
            match result {
                Ok(()) => {
                    self.seen.deleted += 1;
                    self.note(|| format!("{} is gone", path(place)));
                    self.entities[place].is_deleted = true;
                    self.entities[place].ending = None;
                }
                Err(_) => {
                    self.writer_of(id).recover().unwrap();
                    self.write_deletion(place);
                }
            }
        }
        for place in 0..PLACES {
            let entity = &self.entities[place];
            let tree = entity.tree.borrow();
            let moves = match entity.ending {
                Some(Ending::Failed) => !tree.is_submitting(),
                Some(Ending::Retired) if entity.shell.is_none() => !tree.is_submitting(),
                Some(Ending::Retired) => tree.is_quiet(),
                Some(Ending::Settling | Ending::Deleting) | None => false,
            };
            drop(tree);
            if moves {
                self.settle(place);
            }
            if self.entities[place].is_deleted && self.random.one_in(2) {
                let entity = self.create(place);
                self.entities[place] = entity;
            }
        }
    }

    fn settle(&mut self, place: usize) {
        let entity = &mut self.entities[place];
        entity.shell = None;
        entity.ending = Some(Ending::Settling);
        let (id, seat) = (entity.id, entity.seat);
        let passages = Arc::clone(&entity.passages);
        self.writer_of(id).recover().unwrap();
        let settled = Arc::clone(&self.settled);
        passages.close(Box::new(move || push(&settled, seat)));
        if self.settled.lock().unwrap().is_empty() {
            self.seen.waited_for_guards += 1;
            self.note(|| format!("{} waits for its guards", path(place)));
        }
    }

    fn write_deletion(&mut self, place: usize) {
        let entity = &mut self.entities[place];
        entity.ending = Some(Ending::Deleting);
        let (id, seat) = (entity.id, entity.seat);
        let mut batch = Batch::default();
        batch.delete_prefix(&codec::space_key(id));
        batch.require_sync();
        let deletions = Arc::clone(&self.deletions);
        self.writer_of(id).submit(batch, Box::new(move |result| push(&deletions, (seat, result))));
    }

    fn reopen(&mut self, place: usize) {
        let (id, description) = (self.entities[place].id, self.entities[place].description.clone());
        let (seat, tree, shell) = self.open(id, &description);
        let entity = &mut self.entities[place];
        entity.description = Description::of(shell.machine());
        entity.seat = seat;
        entity.tree = tree;
        entity.shell = Some(shell);
        entity.passages = Arc::default();
        entity.ending = None;
        entity.mail.clear();
        entity.dirty = true;
        self.note(|| format!("{} is open again", path(place)));
        self.turn(place, |shell, now, out| shell.run([], now, out));
    }

    fn submit_someone(&mut self) {
        let place = self.random.index(PLACES);
        self.submit_tree(place);
    }

    fn submit_tree(&mut self, place: usize) {
        let entity = &mut self.entities[place];
        if !std::mem::take(&mut entity.dirty) {
            return;
        }
        let (seat, done) = (entity.seat, Arc::clone(&self.done));
        let completion = move || {
            let done = Arc::clone(&done);
            Box::new(move |stage, result| push(&done, (seat, stage, result))) as StageCompletion
        };
        entity.tree.borrow_mut().submit(self.now, &completion);
        if entity.tree.borrow().flush_deadline().is_some() {
            entity.dirty = true;
        }
    }

    fn take_completions(&mut self) {
        let mut releases = Vec::new();
        for (seat, stage, result) in take(&self.done) {
            let Some(place) = self.entities.iter().position(|one| one.seat == seat) else {
                continue;
            };
            let entity = &mut self.entities[place];
            match result {
                Ok(()) => {
                    releases.extend(entity.tree.borrow_mut().completed(stage));
                    entity.mail.push_back(Mail::Committed(stage));
                }
                Err(_) => {
                    entity.mail.push_back(Mail::Failed);
                    entity.tree.borrow_mut().ended(stage);
                }
            }
        }
        release_all(&mut releases);
        self.hear();
    }

    fn resubmit(&mut self) {
        for writer in take(&self.unknown) {
            writer.resubmit();
        }
    }

    /// Some list arrives at its destination, in any order among those of different sources.
    fn walk(&mut self) {
        if self.errands.is_empty() {
            return;
        }
        let errand = self.random.index(self.errands.len());
        let (seat, passages, list) = self.errands.swap_remove(errand);
        let arrivals = at_once(errand::load(&list, &self.edge)).unwrap();
        let keys: Vec<Key> = list.messages.iter().map(|one| one.origin.key).collect();
        let (ended, number, all) = (Arc::clone(&self.ended), list.list, keys);
        let passage = passages.open(Box::new(move |end| {
            push(&ended, ListEnded { seat, list: number, keys: all, end });
        }));
        let Destination::Entity(key) = Destination::parse(&list.destination).unwrap() else {
            panic!("all destinations are queues");
        };
        let found =
            self.entities.iter().position(|one| PathKey::fold(&one.path) == key && !one.closed);
        match found {
            Some(place) => {
                let command =
                    Command::TransferIn { messages: arrivals, when_full: list.when_full, passage };
                let Command::TransferIn { passage, .. } = &command else { return };
                let reply = Reply::new(passage.outlet(), 0, None);
                let (ticket, sub_queue) = (Ticket(0), SubQueue::Main);
                let request = Request { ticket, sub_queue, command, reply };
                self.entities[place].inlet.push_back(request);
            }
            None => {
                let absent = Rejection::entity_not_found(&list.destination);
                let result = Err(absent);
                passage.outlet().release(vec![Released::Answer { correlation: 0, result }]);
            }
        }
    }

    /// Sources learn what became of their lists.
    fn hear_ends(&mut self) {
        for ListEnded { seat, list, keys, end } in take(&self.ended) {
            let Some(place) = self.entities.iter().position(|one| one.seat == seat) else {
                self.seen.unclaimed += 1;
                continue;
            };
            if self.entities[place].shell.is_none() || self.entities[place].closed {
                self.seen.unclaimed += 1;
                continue;
            }
            if matches!(end, None | Some(Err(_))) {
                self.seen.unanswered += 1;
            }
            if let Some(Ok(admissions)) = &end {
                use peeklock_core::condition::Condition;
                use peeklock_core::transfer::Admission;
                self.seen.full += admissions
                    .iter()
                    .filter(|one| matches!(one, Admission::Refused(reason) if reason.condition() == Condition::QuotaExceeded))
                    .count() as u64;
            }
            let departures = errand::departures(&*self.store, &keys, end);
            self.note(|| format!("{} hears of {list:?}: {departures:?}", path(place)));
            let request = Request {
                ticket: Ticket(0),
                sub_queue: SubQueue::Main,
                command: Command::TransferOut { list, departures },
                reply: Reply::nobody(),
            };
            self.turn(place, |shell, now, out| shell.run([request], now, out));
        }
    }

    /// The process dies; another finds what is stored.
    fn crash(&mut self) {
        self.seen.crashed += 1;
        self.note(|| "crash".to_owned());
        let mut random = self.random.clone();
        let keeps = random.one_in(2);
        let how = if keeps { Crash::KeepsSome(&mut random) } else { Crash::Loses };
        let store = self.store.crash(how);
        self.random = random;
        for entity in &mut self.entities {
            entity.shell = None;
            entity.inlet.clear();
            entity.mail.clear();
        }
        self.errands.clear();
        take(&self.done);
        take(&self.deletions);
        take(&self.settled);
        take(&self.ended);
        take(&self.unknown);
        self.store = store;
        self.writers = writers(&self.store, SHARDS, &self.unknown);
        self.asked.clear();
        self.outlet = Arc::default();
        self.judge.look(&self.store, self.next_id);
        for place in 0..PLACES {
            let id = self.entities[place].id;
            if self.judge.last.entities.contains(&id.0) {
                self.entities[place].closed = false;
                self.entities[place].is_deleted = false;
                self.reopen(place);
            } else {
                let entity = self.create(place);
                self.entities[place] = entity;
            }
        }
        take(&self.ended);
    }

    /// Everything that is under way ends, with a store that works.
    pub fn come_to_rest(&mut self) {
        let odds = std::mem::take(&mut self.odds);
        let mut stable = 0;
        let mut before = self.judge.last.places.clone();
        for _ in 0..2_000 {
            self.resubmit();
            for shard in 0..SHARDS {
                while self.complete(Shard(shard), Fate::Store) {}
            }
            self.take_completions();
            for place in 0..PLACES {
                self.run_all(place);
                self.submit_tree(place);
            }
            while !self.errands.is_empty() {
                self.walk();
            }
            self.hear_ends();
            self.move_endings();
            self.hear();
            // What was refused is offered again and again: nothing changes by it any more.
            let now = &self.judge.last.places;
            stable = if *now == before { stable + 1 } else { 0 };
            before.clone_from(now);
            if stable > 20 && self.is_at_rest() {
                self.odds = odds;
                self.check_rest();
                return;
            }
            // What nobody waits for is flushed, locks end, and what was kept is offered again.
            // Where two sources offer in turn, there is a moment at which neither does only if time stops.
            if stable <= 20 || stable % 7 == 0 {
                self.now = self.now.plus(TimeSpan::from_seconds(11));
            }
        }
        let restless: Vec<_> = self
            .entities
            .iter()
            .map(|one| (&one.path, one.ending, one.inlet.len(), one.tree.borrow().is_quiet()))
            .collect();
        panic!("the world does not come to rest: {restless:?}");
    }

    fn run_all(&mut self, place: usize) {
        while !self.entities[place].inlet.is_empty() && self.entities[place].shell.is_some() {
            self.run(place);
        }
        self.run(place);
    }

    fn is_at_rest(&self) -> bool {
        self.errands.is_empty()
            && (0..SHARDS).all(|shard| self.store.queued(Shard(shard)) == 0)
            && self.done.lock().unwrap().is_empty()
            && self.ended.lock().unwrap().is_empty()
            && self.entities.iter().all(|one| {
                one.is_deleted
                    || (one.ending.is_none()
                        && one.inlet.is_empty()
                        && one.tree.borrow().is_quiet())
            })
    }

    /// What can leave has left, and the machines agree with the store.
    fn check_rest(&mut self) {
        let open: Vec<&Entity> = self.entities.iter().filter(|one| !one.is_deleted).collect();
        for entity in &open {
            let machine = entity.shell.as_ref().unwrap().machine();
            check(machine);
            let stored = self.judge.last.places.values().filter(|one| one.entity == entity.id.0);
            let (count, bytes) =
                stored.fold((0, 0), |(count, bytes), one| (count + 1, bytes + one.size));
            assert_eq!(machine.counts().total(), count, "{}: counts (CNT-03)", entity.path);
            assert_eq!(machine.size_bytes(), bytes, "{}: size (CNT-08)", entity.path);
            let tree = entity.tree.borrow();
            assert_eq!(tree.stored_bytes(), bytes, "{}: account (FWD-25)", entity.path);
            let counts = machine.counts();
            let holds = self.config.forwarding.holds_when_full;
            match Description::of(machine) {
                Description::Queue(queue) if queue.status.allows_receive() && !holds => {
                    let active = if queue.forward_to.is_some() { counts.active } else { 0 };
                    assert_eq!(active, 0, "{}: messages wait (FWD-01)", entity.path);
                    assert_eq!(counts.transfer, 0, "{}: transfers wait (VIA-01)", entity.path);
                }
                Description::Queue(_) => {}
                Description::Topic(_) => {
                    let waits = if holds { 0 } else { counts.transfer };
                    assert_eq!(waits, 0, "{}: transfers wait (VIA-01)", entity.path);
                    assert_eq!(counts.dead_letter, 0, "{} has dead letters (DLQ-32)", entity.path);
                    self.seen.topic_dead_letters += counts.transfer_dead_letter;
                }
            }
            self.seen.transfer_dead_letters += counts.transfer_dead_letter;
        }
        let far = self.judge.last.places.values().filter(|one| one.hops == 4).count();
        self.seen.four_hops += far as u64;
        self.seen.moved = self.judge.moved;
    }

    /// After a restart everything is as it was.
    pub fn restart_and_rest(&mut self) {
        let before = self.judge.last.places.clone();
        self.crash();
        self.come_to_rest();
        for (marker, place) in &before {
            let now = self.judge.last.places.get(marker);
            assert!(now.is_some(), "{marker} was at {place:?} and is lost by a restart");
        }
    }
}

fn path(place: usize) -> String {
    if place == TOPIC { format!("t{place}") } else { format!("q{place}") }
}

/// The numbers of what was sent in a transaction.
fn sent_in(parts: &[PartOutcome]) -> Vec<SequenceNumber> {
    let sent = parts.iter().filter_map(|part| match part {
        PartOutcome::Pending(numbers) => Some(numbers.clone()),
        _ => None,
    });
    sent.flatten().collect()
}

//! A topic's tree, driven like by its actors: shells that share a tree, on a store whose driver
//! decides when data is durable.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;
use std::sync::{Arc, Mutex};

use peeklock_core::admission::Budget;
use peeklock_core::change::codec::read_rule;
use peeklock_core::change::codec::{self, RecordKey};
use peeklock_core::command::{Command, InboundMessage, Outcome, ReceivedMessage};
use peeklock_core::description::{SubscriptionDescription, TopicDescription};
use peeklock_core::error::Rejection;
use peeklock_core::ids::{EntityId, Ticket};
use peeklock_core::limits::{Limits, Tier};
use peeklock_core::machine::Machine;
use peeklock_core::machine::family::Family;
use peeklock_core::machine::queue::{Queue, QueueConfig};
use peeklock_core::machine::topic::Topic;
use peeklock_core::message::{Content, Message, MessageId, Overlay, PropertyLimits, Value};
use peeklock_core::path::SubQueue;
use peeklock_core::request::{Outlet, Release, Released, Reply, Request, release_all};
use peeklock_core::rule::SubscriptionSettings;
use peeklock_core::shell::tree::{StageCompletion, Tree};
use peeklock_core::shell::writer::ShardWriter;
use peeklock_core::shell::{Shell, TreeFault, TurnResults};
use peeklock_core::store::{Batch, Key, Shard, Store};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_store_testing::{Crash, Fate, FaultStore, block_on, visit_records};

use crate::oracle::{Seen, Sent, WINDOW};

const TOPIC: EntityId = EntityId(1);
const KEY: [u8; 16] = *b"tests of topics.";

type Answers = Arc<Mutex<HashMap<u64, Result<Outcome, Rejection>>>>;
type Done = Arc<Mutex<Vec<peeklock_core::machine::StageNumber>>>;

/// Keeps released answers.
struct Ear(Answers);

impl Outlet for Ear {
    fn release(&self, group: Vec<Released>) {
        for item in group {
            if let Released::Answer { correlation, result } = item {
                let before = self.0.lock().unwrap().insert(correlation, result);
                assert!(before.is_none(), "a command is answered twice");
            }
        }
    }
}

pub struct World {
    pub store: Arc<FaultStore>,
    pub tree: Rc<RefCell<Tree>>,
    pub topic: Shell<Topic>,
    pub subscriptions: BTreeMap<EntityId, Shell<Queue>>,
    pub now: Timestamp,
    answers: Answers,
    done: Done,
    next: u64,
    limits: Arc<Limits>,
}

/// The stored state of a tree, as machines.
struct Restored {
    topic: Topic,
    subscriptions: BTreeMap<EntityId, Queue>,
    family: Family,
    stored_bytes: u64,
}

fn config() -> QueueConfig {
    QueueConfig {
        release_on_detach: false,
        release_on_connection_loss: false,
        expire_whole_sessions: true,
        duplicate_key: KEY,
        forwarding: peeklock_core::machine::queue::ForwardingConfig::default(),
    }
}

impl World {
    pub fn new(detects_duplicates: bool) -> Self {
        let now = Timestamp::from_unix_ms(1_700_000_000_000);
        let limits = Arc::new(Limits::of(Tier::Premium));
        let store = FaultStore::at_once(1, u64::MAX);
        let description = TopicDescription {
            requires_duplicate_detection: detects_duplicates,
            duplicate_detection_history_time_window: WINDOW,
            ..TopicDescription::new("events", &limits)
        };
        let mut creation = Batch::default();
        Topic::new(TOPIC, description, config(), now).write_creation(&mut creation);
        creation.require_sync();
        writer(&store).submit(creation, Box::new(|result| result.unwrap()));
        store.complete_at_once(false);
        Self::open(store, now, 1, limits)
    }

    /// Restores every machine of the tree from the store, like the namespace.
    fn open(store: Arc<FaultStore>, now: Timestamp, next: u64, limits: Arc<Limits>) -> Self {
        let Restored { topic, subscriptions, family, stored_bytes } = restore(&store, now);
        let tree = Tree::of_family(writer(&store), stored_bytes, family);
        let tree = Rc::new(RefCell::new(tree));
        let topic = shell(topic, &tree, &store, &limits);
        let subscriptions = subscriptions
            .into_iter()
            .map(|(id, queue)| {
                let shell = shell(queue, &tree, &store, &limits);
                tree.borrow_mut().join_family(id, shell.number());
                (id, shell)
            })
            .collect();
        Self {
            store,
            tree,
            topic,
            subscriptions,
            now,
            answers: Arc::default(),
            done: Arc::default(),
            next,
            limits,
        }
    }

    /// Crashes the process. `landed` submitted batches are stored without a notice. Returns the
    /// last durable stage.
    pub fn crash(self, landed: usize) -> (Self, u64) {
        for _ in 0..landed {
            self.store.complete_next(Shard(0), Fate::Store);
        }
        let last = self.done.lock().unwrap().last().map_or(0, |stage| stage.0);
        let durable = self.tree.borrow().durable_stage().0.max(last);
        let store = self.store.crash(Crash::Loses);
        (Self::open(store, self.now, self.next, self.limits), durable)
    }

    pub fn stage(&self) -> u64 {
        self.tree.borrow().stage_number().0
    }

    pub fn durable(&self) -> u64 {
        self.tree.borrow().durable_stage().0
    }

    fn request(&mut self, sub_queue: SubQueue, command: Command) -> (u64, Request) {
        let number = self.next;
        self.next += 1;
        let outlet: Arc<dyn Outlet> = Arc::new(Ear(Arc::clone(&self.answers)));
        let reply = Reply::new(outlet, number, None);
        (number, Request { ticket: Ticket(number), sub_queue, command, reply })
    }

    /// Sends a command to the topic, whose answer may come later.
    pub fn ask_topic(&mut self, command: Command) -> u64 {
        let (number, request) = self.request(SubQueue::Main, command);
        let now = self.now;
        turn(&mut self.topic, |shell, out| shell.run([request], now, out));
        self.topic.machine().check_invariants().unwrap();
        number
    }

    /// Sends a command to a subscription.
    pub fn ask(&mut self, id: EntityId, sub_queue: SubQueue, command: Command) -> u64 {
        let (number, request) = self.request(sub_queue, command);
        let now = self.now;
        let shell = self.subscriptions.get_mut(&id).unwrap();
        turn(shell, |shell, out| shell.run([request], now, out));
        shell.machine().check_invariants().unwrap();
        number
    }

    /// Runs the topic's timer.
    pub fn wake_topic(&mut self) {
        let now = self.now;
        turn(&mut self.topic, |shell, out| shell.run([], now, out));
    }

    /// Adds a new subscription to the tree, after the topic has answered that it is stored.
    /// Messages for it wait meanwhile.
    pub fn adopt(&mut self, id: EntityId) {
        let topic = Arc::clone(self.tree.borrow_mut().family().unwrap().topic());
        let named = SubscriptionDescription::new("events", id.0.to_string(), &self.limits);
        let mut queue = Queue::subscription(id, named, topic, config(), self.now);
        let mut visit = |key: &[u8], value: &[u8]| {
            let kind = codec::read_key(key).unwrap();
            if matches!(kind, RecordKey::Description | RecordKey::Counters) {
                queue.restore(key, value).unwrap();
            }
        };
        visit_records(&*self.store, &codec::space_key(id), &mut visit).unwrap();
        queue.restored(self.now);
        let shell = shell(queue, &self.tree, &self.store, &self.limits);
        self.tree.borrow_mut().join_family(id, shell.number());
        self.subscriptions.insert(id, shell);
    }

    /// Runs a turn of every subscription, as before any command.
    pub fn wake_subscriptions(&mut self) {
        let now = self.now;
        for shell in self.subscriptions.values_mut() {
            turn(shell, |shell, out| shell.run([], now, out));
        }
    }

    /// Retires the machine of a subscription before its removal.
    pub fn retire(&mut self, id: EntityId) {
        self.subscriptions.remove(&id);
        self.tree.borrow_mut().leave_family(id);
        self.tree.borrow_mut().flush();
    }

    pub fn submit(&mut self) {
        let done = Arc::clone(&self.done);
        let completion = || {
            let done = Arc::clone(&done);
            Box::new(move |stage, result: Result<(), _>| {
                result.unwrap();
                done.lock().unwrap().push(stage);
            }) as StageCompletion
        };
        self.tree.borrow_mut().submit(self.now, &completion);
    }

    /// Makes the oldest stage durable: members with changes in it are notified if `notices`, and
    /// then dependent answers are released. Returns whether there was one.
    pub fn complete_one(&mut self, notices: bool) -> bool {
        self.store.complete_next(Shard(0), Fate::Store);
        let done = std::mem::take(&mut *self.done.lock().unwrap());
        for stage in &done {
            let members = self.tree.borrow().members_of(*stage);
            let mut held = self.tree.borrow_mut().complete(*stage);
            release_all(&mut held);
            let now = self.now;
            let topic = members.contains(&self.topic.number());
            if notices && topic {
                turn(&mut self.topic, |shell, out| shell.committed(*stage, now, out));
            }
            for shell in self.subscriptions.values_mut() {
                if notices && members.contains(&shell.number()) {
                    turn(shell, |shell, out| shell.committed(*stage, now, out));
                }
            }
        }
        !done.is_empty()
    }

    /// Makes everything durable.
    pub fn settle(&mut self) {
        loop {
            self.tree.borrow_mut().flush();
            self.submit();
            if !self.complete_one(true) && self.tree.borrow().is_quiet() {
                return;
            }
        }
    }

    pub fn answer(&self, number: u64) -> Option<Result<Outcome, Rejection>> {
        self.answers.lock().unwrap().remove(&number)
    }

    /// All messages in a sub-queue, by number, with the address of their content.
    pub fn look(&mut self, id: EntityId, sub_queue: SubQueue) -> Vec<(u64, Seen, usize)> {
        let mut all = Vec::new();
        let mut from = peeklock_core::ids::SequenceNumber(0);
        loop {
            let number = self.ask(id, sub_queue, Command::Peek { from, count_max: 250 });
            self.settle();
            let Some(Ok(Outcome::Peeked(peeked))) = self.answer(number) else {
                panic!("a peek is answered");
            };
            let Some(last) = peeked.last() else { return all };
            from = last.facts.sequence.next();
            all.extend(peeked.iter().map(seen));
        }
    }

    /// Every machine equals the restored one, and the counted bytes are those of the messages.
    pub fn check(&mut self) {
        self.topic.machine().check_invariants().unwrap();
        let mut bytes = self.topic.machine().size_bytes();
        for shell in self.subscriptions.values() {
            shell.machine().check_invariants().unwrap();
            bytes += shell.machine().size_bytes();
        }
        assert_eq!(self.tree.borrow().stored_bytes(), bytes, "bytes are counted wrong (TOP-10)");
        assert_eq!(self.tree.borrow().size_bytes(), bytes, "bytes are counted wrong (CNT-08)");
        let restored = restore(&self.store, self.now);
        assert_eq!(restored.stored_bytes, bytes, "other bytes are stored");
        assert!(
            restored.topic.subscription_ids().eq(self.topic.machine().subscription_ids()),
            "other subscriptions are stored"
        );
        for (id, shell) in &self.subscriptions {
            let stored = &restored.subscriptions[id];
            let machine = shell.machine();
            assert_eq!(stored.counts(), machine.counts(), "{id} has other counts in the store");
            assert_eq!(stored.last_sequence(), machine.last_sequence(), "{id} (MSG-13)");
            let rules = |topic: &Topic| {
                let rules = topic.matcher().rules(*id);
                rules.map(|rule| rule.description().clone()).collect::<Vec<_>>()
            };
            assert_eq!(rules(&restored.topic), rules(self.topic.machine()), "rules of {id}");
        }
    }
}

fn turn<M: Machine>(
    shell: &mut Shell<M>,
    run: impl FnOnce(&mut Shell<M>, &mut Vec<Release>) -> Result<TurnResults, TreeFault>,
) {
    let mut out = Vec::new();
    let turn = run(shell, &mut out).unwrap();
    assert!(!turn.wants_load, "the memory store has every content at hand");
    release_all(&mut out);
}

fn writer(store: &Arc<FaultStore>) -> Arc<ShardWriter> {
    let store = Arc::clone(store) as Arc<dyn Store>;
    block_on(ShardWriter::acquire(store, Shard(0), Box::new(|_| panic!("no outcome is unknown"))))
        .unwrap()
}

fn shell<M: Machine>(
    machine: M,
    tree: &Rc<RefCell<Tree>>,
    store: &Arc<FaultStore>,
    limits: &Arc<Limits>,
) -> Shell<M> {
    let mut bits = 0u64;
    let tokens = Box::new(move || {
        bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
        bits
    });
    let store = Arc::clone(store) as Arc<dyn Store>;
    let waker = Box::new(|| Box::new(|| {}) as Box<dyn FnOnce() + Send>);
    let budget = Budget::new(1 << 20);
    Shell::new(machine, Rc::clone(tree), store, Arc::clone(limits), tokens, budget, waker)
}

fn restore(store: &Arc<FaultStore>, now: Timestamp) -> Restored {
    let limits = Limits::of(Tier::Premium);
    let empty = TopicDescription::new("events", &limits);
    let mut topic = Topic::new(TOPIC, empty, config(), now);
    let mut visit = |key: &[u8], value: &[u8]| topic.restore(key, value).unwrap();
    visit_records(&**store, &codec::space_key(TOPIC), &mut visit).unwrap();
    topic.restored(now);
    let mut names = Vec::new();
    let mut visit = |key: &[u8], value: &[u8]| {
        let id = EntityId(u64::from_be_bytes(key[9..].try_into().unwrap()));
        let (of, name) = codec::read_subscription_entry(value).unwrap();
        assert_eq!((of, &*name), (TOPIC, &*id.0.to_string()));
        names.push((id, name));
    };
    visit_records(&**store, &Key::of_space(0), &mut visit).unwrap();
    let mut family = Family::new(Arc::clone(topic.description()));
    let mut stored_bytes = topic.size_bytes();
    let mut subscriptions = BTreeMap::new();
    for (id, name) in names {
        let description = SubscriptionDescription::new("events", name, &limits);
        let described = Arc::clone(topic.description());
        let mut queue = Queue::subscription(id, description, described, config(), now);
        let mut rules = Vec::new();
        let mut visit = |key: &[u8], value: &[u8]| match codec::read_key(key).unwrap() {
            RecordKey::Rule => {
                let rule = read_rule(value).unwrap();
                rules.push(peeklock_core::rule::Rule::restore(rule).unwrap());
            }
            _ => queue.restore(key, value).unwrap(),
        };
        visit_records(&**store, &codec::space_key(id), &mut visit).unwrap();
        queue.restored(now);
        let description = queue.subscription_description().unwrap();
        topic.adopt(id, description, queue.last_sequence(), rules);
        family.add_subscription(id);
        queue.report_to_family(&mut family);
        stored_bytes += queue.size_bytes();
        subscriptions.insert(id, queue);
    }
    Restored { topic, subscriptions, family, stored_bytes }
}

/// A description of a subscription whose name is its number.
pub fn described(id: EntityId, settings: SubscriptionSettings) -> SubscriptionDescription {
    SubscriptionDescription {
        enable_dead_lettering_on_filter_evaluation_exceptions: settings
            .dead_lettering_on_filter_errors,
        requires_session: settings.requires_session,
        catch_all: settings.catch_all,
        // Longer than any lock here.
        lock_duration: TimeSpan::from_minutes(5),
        ..SubscriptionDescription::new("events", id.0.to_string(), &Limits::of(Tier::Premium))
    }
}

/// A message as a client sends it.
pub fn inbound(sent: &Sent, at: Option<Timestamp>) -> InboundMessage {
    let message = Message {
        message_id: sent.id.map(|id| MessageId::String(id.to_string())),
        session_id: sent.session.map(|session| session.to_string()),
        subject: Some(sent.subject.to_string()),
        scheduled_enqueue_time: at,
        ..Message::new(sent.marker.to_string())
    };
    let content = message.with_application_property("number", Value::I32(sent.number)).encode();
    let envelope = content.envelope(&PropertyLimits::default(), &KEY);
    InboundMessage { content, envelope }
}

fn seen(received: &ReceivedMessage) -> (u64, Seen, usize) {
    let bytes = received.content.loaded().unwrap();
    let place = bytes.as_ptr() as usize;
    let mut message = Content::parse(bytes.clone()).unwrap().decode().unwrap();
    for overlay in &received.overlays {
        Overlay::from_bytes(overlay.loaded().unwrap().clone()).apply_to(&mut message);
    }
    let text = |key: &str| match message.application_property(key) {
        Some(Value::String(text)) => Some(text.clone()),
        _ => None,
    };
    let reason = text("DeadLetterReason");
    let reasons = ["FilterException", "RuleActionException", "Session ID is null."];
    let seen = Seen {
        marker: std::str::from_utf8(message.body.as_bytes()).unwrap().parse().unwrap(),
        published_as: received.facts.enqueued_sequence.0,
        rule: text("RuleName").map(|name| name.to_ascii_lowercase()),
        mark: match message.application_property("mark") {
            Some(Value::I64(mark)) => Some(mark.unsigned_abs()),
            _ => None,
        },
        session: message.session_id.as_deref().map(|session| session.parse().unwrap()),
        reason: reason.map(|reason| *reasons.iter().find(|one| **one == reason).unwrap()),
    };
    (received.facts.sequence.0, seen, place)
}

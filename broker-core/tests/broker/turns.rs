//! The size of a turn is counted in executed steps, without a clock. The rest is left to the next
//! turn, or to a long turn (DESIGN D6, decision 33).

use std::cell::RefCell;
use std::rc::{Rc, Weak};
use std::sync::Arc;

use peeklock_core::admission::Budget;
use peeklock_core::change::Removal;
use peeklock_core::command::{
    Command, InboundMessage, LinkEnd, ReceiveMode, Settlement, TopicCommand,
};
use peeklock_core::description::{QueueDescription, SubscriptionDescription, TopicDescription};
use peeklock_core::ids::{EntityId, LockToken, ReceiverId, SequenceNumber, Ticket};
use peeklock_core::limits::Limits;
use peeklock_core::machine::family::Family;
use peeklock_core::machine::queue::{ForwardingConfig, Queue, QueueConfig};
use peeklock_core::machine::topic::Topic;
use peeklock_core::machine::{Machine, StageNumber};
use peeklock_core::message::{Message, Overlay, PropertyLimits, Value};
use peeklock_core::path::SubQueue;
use peeklock_core::request::{Reply, Request};
use peeklock_core::rule::{Filter, RuleDescription};
use peeklock_core::shell::commit::Participant;
use peeklock_core::shell::tree::{StageCompletion, Tree};
use peeklock_core::shell::writer::ShardWriter;
use peeklock_core::shell::{ArbiterShare, Shell, TurnResults};
use peeklock_core::store::{Shard, Store};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::transaction::{Operation, Part};
use peeklock_store_testing::{FaultStore, block_on};

const KEY: [u8; 16] = *b"tests of turns..";

/// A shell on a store in which every write is durable immediately.
struct World<M> {
    shell: Shell<M>,
    store: Arc<dyn Store>,
    tree: Rc<RefCell<Tree>>,
    now: Timestamp,
    tickets: u64,
}

fn config() -> QueueConfig {
    QueueConfig {
        release_on_detach: false,
        release_on_connection_loss: false,
        expire_whole_sessions: true,
        duplicate_key: KEY,
        forwarding: ForwardingConfig::default(),
    }
}

fn now() -> Timestamp {
    Timestamp::from_unix_ms(1_800_000_000_000)
}

fn message(property_bytes: usize) -> InboundMessage {
    inbound(with_property(property_bytes))
}

fn scheduled(property_bytes: usize, at: Timestamp) -> InboundMessage {
    inbound(with_property(property_bytes).with_scheduled_enqueue_time(at))
}

fn with_property(property_bytes: usize) -> Message {
    Message::new("x").with_application_property("p", "a".repeat(property_bytes))
}

fn inbound(message: Message) -> InboundMessage {
    let content = message.encode();
    let envelope = content.envelope(&PropertyLimits::default(), &KEY);
    InboundMessage { content, envelope }
}

/// The shell of a machine in a tree.
fn shell<M: Machine>(
    machine: M,
    tree: &Rc<RefCell<Tree>>,
    store: &Arc<dyn Store>,
    tokens: Box<dyn FnMut() -> u64>,
) -> Shell<M> {
    let waker = Box::new(|| Box::new(|| {}) as Box<dyn FnOnce() + Send>);
    let limits = Arc::new(Limits::default());
    let room = Budget::new(1 << 20);
    Shell::new(machine, Rc::clone(tree), Arc::clone(store), limits, tokens, room, waker)
}

impl World<Queue> {
    fn queue(change: impl FnOnce(&mut QueueDescription)) -> Self {
        let mut description = QueueDescription::new("orders", &Limits::default());
        change(&mut description);
        Self::new(Queue::new(EntityId(1), description, config(), now()), |writer| {
            Tree::new(writer, 0)
        })
    }
}

impl World<Topic> {
    fn topic() -> Self {
        let description = TopicDescription::new("events", &Limits::default());
        let topic = Topic::new(EntityId(1), description, config(), now());
        let family = Family::new(Arc::clone(topic.description()));
        Self::new(topic, |writer| Tree::of_family(writer, 0, family))
    }

    /// A topic whose rules take several slices for a message with 32,000 bytes in `p`.
    fn topic_with_heavy_rules() -> Self {
        let mut world = Self::topic();
        let text = format!("p LIKE '%{}_b%'", "a".repeat(950));
        let rules = (0..8).map(|number| {
            RuleDescription::new(format!("r{number}"), Filter::sql(&*text), Timestamp::NONE)
        });
        let description = SubscriptionDescription::new("events", "all", &Limits::default());
        world.ask(vec![
            TopicCommand::CreateSubscription {
                id: EntityId(2),
                description: Box::new(description),
                rules: rules.collect(),
            }
            .into(),
        ]);
        world
    }
}

/// The random part of each lock token of a subscription.
const TOKEN: u64 = 7;

/// A subscription that takes part in the transactions of its topic.
type Subscription = Rc<RefCell<Shell<Queue>>>;

impl World<Topic> {
    /// A subscription that gets all messages.
    fn subscription(&mut self, id: EntityId) -> Subscription {
        let description = SubscriptionDescription {
            max_delivery_count: 1_000,
            ..SubscriptionDescription::new("events", "all", &Limits::default())
        };
        let create = TopicCommand::CreateSubscription {
            id,
            description: Box::new(description.clone()),
            rules: vec![RuleDescription::default_rule(Timestamp::NONE)],
        };
        self.ask(vec![create.into()]);
        let topic = Arc::clone(self.shell.machine().description());
        let machine = Queue::subscription(id, description, topic, config(), self.now);
        let shell = shell(machine, &self.tree, &self.store, Box::new(|| TOKEN));
        self.tree.borrow_mut().join_family(id, shell.number());
        let subscription = Rc::new(RefCell::new(shell));
        let participant: Weak<RefCell<dyn Participant>> =
            Rc::downgrade(&(Rc::clone(&subscription) as Rc<RefCell<dyn Participant>>));
        self.tree.borrow_mut().register_participant(id, participant);
        self.ask_subscription(&subscription, Vec::new());
        subscription
    }

    /// Lets the subscription carry out commands durably.
    fn ask_subscription(&mut self, subscription: &Subscription, commands: Vec<Command>) {
        let requests: Vec<Request> =
            commands.into_iter().map(|command| self.request(command)).collect();
        let mut out = Vec::new();
        subscription.borrow_mut().run(requests, self.now, &mut out).unwrap();
        self.store();
    }
}

impl<M: Machine> World<M> {
    fn new(machine: M, tree: impl FnOnce(Arc<ShardWriter>) -> Tree) -> Self {
        let store = FaultStore::at_once(1, u64::MAX) as Arc<dyn Store>;
        let unknown = Box::new(|_| panic!("no outcome is unknown"));
        let writer = block_on(ShardWriter::acquire(Arc::clone(&store), Shard(0), unknown)).unwrap();
        let tree = Rc::new(RefCell::new(tree(writer)));
        let mut bits = 0u64;
        let tokens = Box::new(move || {
            bits = bits.wrapping_add(0x9e37_79b9_7f4a_7c15);
            bits
        });
        let shell = shell(machine, &tree, &store, tokens);
        Self { shell, store, tree, now: now(), tickets: 0 }
    }

    fn request(&mut self, command: Command) -> Request {
        self.tickets += 1;
        let ticket = Ticket(self.tickets);
        Request { ticket, sub_queue: SubQueue::Main, command, reply: Reply::without_receiver() }
    }

    /// Runs turns of a share, each durable before the next. Returns the size of each turn, and the
    /// number of remaining commands.
    fn turns(
        &mut self,
        share: ArbiterShare,
        count: usize,
        commands: Vec<Command>,
    ) -> (Vec<TurnResults>, usize) {
        let requests: Vec<Request> =
            commands.into_iter().map(|command| self.request(command)).collect();
        let mut requests = requests.into_iter();
        self.shell.share(share);
        let turns = (0..count).map(|_| {
            let mut out = Vec::new();
            let turn = self.shell.run(&mut requests, self.now, &mut out).unwrap();
            self.store();
            turn
        });
        let turns = turns.collect();
        (turns, requests.len())
    }

    /// Makes the staged changes durable.
    fn store(&self) {
        self.tree.borrow_mut().flush();
        let completion = || Box::new(|_, result: Result<(), _>| result.unwrap()) as StageCompletion;
        self.tree.borrow_mut().submit(self.now, &completion);
        let stage = self.tree.borrow().stage_number();
        self.tree.borrow_mut().complete(StageNumber(stage.0 - 1));
    }

    fn ask(&mut self, commands: Vec<Command>) -> TurnResults {
        let (turns, left) = self.turns(ArbiterShare::All, 1, commands);
        assert_eq!(left, 0);
        turns[0]
    }

    fn fill(&mut self, count: usize) {
        for _ in 0..count / 1_000 {
            let messages = (0..1_000).map(|_| message(1)).collect();
            self.ask(vec![Command::SendBatch { messages }]);
        }
        // Only messages enqueued before the deletion are deleted.
        self.now = self.now.plus(TimeSpan::from_seconds(1));
        self.ask(Vec::new());
    }
}

fn delete(count_max: u32) -> Command {
    Command::DeleteBatch { count_max, enqueued_before: None }
}

/// A turn ends with the command that reaches 1,024 messages, regardless of the number of commands.
/// The driver keeps the remaining commands.
#[test]
fn a_turn_ends_at_its_weight() {
    let mut world = World::queue(|_| {});
    world.fill(20_000);
    let (turns, left) = world.turns(ArbiterShare::Turn, 1, vec![delete(100); 256]);
    assert_eq!((turns[0].changes, left), (1_100, 245), "{:?}", turns[0]);
    let (turns, left) = world.turns(ArbiterShare::Turn, 1, vec![delete(1); 256]);
    assert!(left == 0 && turns[0].changes == 256, "small ones are not held up");
}

/// A command that exceeds a turn waits for a long turn, and so do all later ones. A long turn
/// carries out one of these commands.
#[test]
fn a_command_larger_than_a_turn_waits_for_a_long_turn() {
    let mut world = World::queue(|_| {});
    world.fill(20_000);
    let (turns, left) = world.turns(ArbiterShare::Turn, 3, vec![delete(4_000); 256]);
    assert_eq!(turns.iter().map(|turn| turn.changes).sum::<u64>(), 0, "{turns:?}");
    assert!(world.shell.wants_long_turn());
    assert_eq!(left, 255, "one is taken up, and is the first to be carried out");
    let (turns, left) = world.turns(ArbiterShare::LongTurn, 1, vec![delete(4_000); 4]);
    assert_eq!((turns[0].changes, left), (4_000, 4), "{turns:?}");
    assert!(!world.shell.wants_long_turn());
}

/// SET-21: connections that end at the same time end their links one after another. Each link with
/// many locks gets its own long turn.
#[test]
fn links_that_end_together_take_a_long_turn_each() {
    let mut world = World::queue(|_| {});
    world.fill(20_000);
    for holder in 0..4 {
        let receive = Command::Receive {
            mode: ReceiveMode::PeekLock,
            count_max: 5_000,
            bytes_max: u64::MAX,
            wait: TimeSpan::ZERO,
            holder: Some(ReceiverId(holder)),
        };
        assert_eq!(world.ask(vec![receive]).counts.delivered, 5_000);
    }
    let ends =
        (0..4).map(|holder| Command::Detach { receiver: ReceiverId(holder), end: LinkEnd::Broken });
    let (turns, left) = world.turns(ArbiterShare::Turn, 2, ends.collect());
    assert_eq!((turns[0].changes + turns[1].changes, left), (0, 3), "{turns:?}");
    let ends =
        (1..4).map(|holder| Command::Detach { receiver: ReceiverId(holder), end: LinkEnd::Broken });
    let (turns, left) = world.turns(ArbiterShare::LongTurn, 4, ends.collect());
    let counted: Vec<u64> = turns.iter().map(|turn| turn.changes).collect();
    assert_eq!((counted, left), (vec![5_000; 4], 0));
}

/// EXP-34: messages that expire together are moved by the thousand in a normal turn, which takes no
/// command before that is done, and by ten thousand in a long turn.
#[test]
fn due_messages_beyond_a_turn_wait_for_a_long_turn() {
    let mut world = World::queue(|queue| {
        queue.default_message_time_to_live = TimeSpan::from_seconds(60);
    });
    world.fill(20_000);
    let receiver = ReceiverId(1);
    world.ask(vec![
        Command::Attach { receiver, mode: ReceiveMode::PeekLock },
        Command::SetCredit {
            receiver,
            delivery_limit: 9,
            byte_limit: 0,
            drain: peeklock_core::command::Drain::No,
        },
    ]);
    world.now = world.now.plus(TimeSpan::from_seconds(61));
    let (turns, left) = world.turns(ArbiterShare::Turn, 1, vec![delete(1)]);
    assert!(turns[0].changes <= 2 * 1_024 && turns[0].changes >= 1_024, "{turns:?}");
    assert!(world.shell.wants_long_turn() && left == 1);
    let (turns, _) = world.turns(ArbiterShare::LongTurn, 1, Vec::new());
    assert!((10_000..=20_000).contains(&turns[0].changes), "{turns:?}");
    world.turns(ArbiterShare::LongTurn, 2, Vec::new());
    assert_eq!(world.shell.machine().counts().active, 0);
    assert!(!world.shell.wants_long_turn());
}

/// DESIGN D6: messages that leave for other entities count in their turn, regardless of the number
/// of destinations. The rest leaves in the next turns, and commands meanwhile do not wait for it.
#[test]
fn transfers_count_in_their_turn() {
    let mut world = World::queue(|_| {});
    let sends = (0..50).map(|number| Command::SendVia {
        destination: format!("to-{number}").into(),
        messages: (0..100).map(|_| message(1)).collect(),
    });
    world.ask(sends.collect());
    let mut handed = 0;
    for _ in 0..5 {
        let (turns, left) = world.turns(ArbiterShare::Turn, 1, vec![delete(1)]);
        let lists = world.shell.take_outgoing();
        let count = lists.iter().map(|list| list.messages.len()).sum::<usize>();
        assert!(count > 0 && count as u64 <= turns[0].total_work(), "{turns:?}");
        assert!(turns[0].total_work() <= 1_024 + 1, "{turns:?}");
        assert!(left == 0 && !world.shell.wants_long_turn());
        handed += lists.len();
    }
    assert_eq!(handed, 50, "a list for each destination");
}

/// A message with slow rules is judged only in long turns, not even for a slice in a normal one: a
/// thousand topics with one such message each would need a thousand slices per round.
#[test]
fn slow_rules_are_judged_in_long_turns_only() {
    let mut world = World::topic_with_heavy_rules();
    let send = || Command::Send { message: message(32_000) };
    let (turns, left) = world.turns(ArbiterShare::Turn, 20, vec![send(), send()]);
    let done: u64 = turns.iter().map(TurnResults::total_work).sum();
    assert_eq!((done, left), (1, 1), "nothing but to take it up: {turns:?}");
    assert!(world.shell.wants_long_turn());
    let (mut long, mut weight) = (0, 0);
    while world.shell.wants_long_turn() {
        let (turns, _) = world.turns(ArbiterShare::LongTurn, 1, Vec::new());
        weight += turns[0].total_work();
        long += 1;
    }
    assert!(long > 1 && weight > 1_024, "{long} long turns of {weight} steps");
    assert_eq!(world.shell.machine().subscription_ids().count(), 1);
}

/// SCH-03, SCH-07: more messages are due at one instant than are loaded together, and one of them
/// needs several slices. All are published exactly once, including those after it.
#[test]
fn due_messages_after_a_slow_one_are_published() {
    let mut world = World::topic_with_heavy_rules();
    let at = world.now.plus(TimeSpan::from_seconds(60));
    let bytes = |place: usize| if place == 1 { 32_000 } else { 1 };
    let messages = (0..300).map(|place| scheduled(bytes(place), at)).collect();
    world.ask(vec![Command::SendBatch { messages }]);
    world.ask(Vec::new());
    assert_eq!(world.shell.machine().counts().scheduled, 300);
    world.now = at;
    let (mut published, mut turns_with_some) = (0, 0);
    for _ in 0..2_000 {
        let (turns, _) = world.turns(ArbiterShare::LongTurn, 1, Vec::new());
        published += turns[0].counts.materialised;
        turns_with_some += u64::from(turns[0].counts.materialised > 0);
    }
    assert_eq!((published, world.shell.machine().counts().scheduled), (300, 0));
    assert!(turns_with_some > 2, "one before the slices, the rest in two loads behind");
}

/// Sends a message that is judged in slices, with a second passing before each long turn. Returns
/// the number of long turns, and of scheduled messages published in them.
fn send_heavy(world: &mut World<Topic>) -> (u64, u64) {
    let send = vec![Command::Send { message: message(32_000) }];
    let (turns, _) = world.turns(ArbiterShare::LongTurn, 1, send);
    assert!(world.shell.wants_long_turn(), "it is more than one slice");
    let (mut count, mut published) = (1, turns[0].counts.materialised);
    while world.shell.wants_long_turn() {
        assert!(count < 1_000, "it never ends");
        world.now = world.now.plus(TimeSpan::from_seconds(1));
        let (turns, _) = world.turns(ArbiterShare::LongTurn, 1, Vec::new());
        count += 1;
        published += turns[0].counts.materialised;
    }
    (count, published)
}

/// SCH-03: a message that becomes due during a publish waits for it and does not restart its
/// judging. All messages that have become due are published when it is done.
#[test]
fn due_messages_do_not_restart_a_publish() {
    let mut world = World::topic_with_heavy_rules();
    let (alone, _) = send_heavy(&mut world);
    let begin = world.now;
    let due = |place| scheduled(1, begin.plus(TimeSpan::from_seconds(place)));
    // The first become due in the first turns of the publish.
    world.ask(vec![Command::SendBatch { messages: (1..=200).map(due).collect() }]);
    world.ask(Vec::new());
    let (count, published) = send_heavy(&mut world);
    assert_eq!(count, alone);
    assert!(published > 0, "what was loaded has no other turn to wait for");
    world.now = world.now.max(begin.plus(TimeSpan::from_seconds(200)));
    let (turns, _) = world.turns(ArbiterShare::LongTurn, 3, Vec::new());
    assert_eq!(published + turns.iter().map(|turn| turn.counts.materialised).sum::<u64>(), 200);
}

/// DESIGN D6, TXN-08, SET-41: properties set on messages of a subscription count in the size of a
/// transaction that its topic coordinates, and are counted before it is carried out. A transaction
/// that exceeds a turn waits for a long one, and one that exceeds the limit is refused (QUO-11).
#[test]
fn settlements_in_a_subscription_are_weighed_before_a_commit() {
    /// Sets of properties on each message.
    const TIMES: u64 = 60;
    let id = EntityId(2);
    let mut world = World::topic();
    let subscription = world.subscription(id);
    world.ask(vec![Command::SendBatch { messages: (0..30).map(|_| message(1)).collect() }]);
    world.ask_subscription(&subscription, Vec::new());
    let last = subscription.borrow().machine().last_sequence().0;
    let locks: Vec<LockToken> =
        (last - 29..=last).map(|number| LockToken::new(SequenceNumber(number), TOKEN)).collect();
    let receive = || Command::Receive {
        mode: ReceiveMode::PeekLock,
        count_max: 30,
        bytes_max: u64::MAX,
        wait: TimeSpan::ZERO,
        holder: None,
    };
    let properties = Overlay::encode(&[("p".to_owned(), Value::I32(1))]).unwrap();
    for _ in 0..TIMES {
        world.ask_subscription(&subscription, vec![receive()]);
        let abandon = |token: &LockToken| {
            let properties = Some(properties.clone());
            let settlement = Settlement::Abandon { properties, delay: None };
            Command::Settle { token: *token, settlement }
        };
        world.ask_subscription(&subscription, locks.iter().map(abandon).collect());
    }
    world.ask_subscription(&subscription, vec![receive()]);
    let commit = |locks: &[LockToken]| {
        let complete = |token: &LockToken| Part {
            member: Some(id),
            sub_queue: SubQueue::Main,
            operation: Operation::Settle { token: *token, settlement: Settlement::Complete },
            numbers: Vec::new(),
        };
        vec![Command::Commit { parts: locks.iter().map(complete).collect() }]
    };
    let completed = |turn: &TurnResults| turn.counts.removed[Removal::Completed.place()];
    let (few, many) = locks.split_at(10);
    let (turns, _) = world.turns(ArbiterShare::Turn, 1, commit(few));
    assert_eq!(completed(&turns[0]), 10, "{turns:?}");
    assert!(turns[0].total_work() >= 10 * (1 + TIMES), "{turns:?}");
    let too_many: Vec<LockToken> = many.iter().copied().cycle().take(200).collect();
    let (turns, _) = world.turns(ArbiterShare::Turn, 1, commit(&too_many));
    assert!(turns.iter().all(|turn| completed(turn) == 0), "{turns:?}");
    assert!(!world.shell.wants_long_turn(), "it is refused before it waits for anything");
    let (turns, _) = world.turns(ArbiterShare::Turn, 2, commit(many));
    assert!(turns.iter().all(|turn| completed(turn) == 0), "{turns:?}");
    assert!(world.shell.wants_long_turn());
    let (turns, _) = world.turns(ArbiterShare::LongTurn, 1, Vec::new());
    assert_eq!(completed(&turns[0]), 20, "{turns:?}");
    assert!(turns[0].total_work() >= 20 * (1 + TIMES), "{turns:?}");
    assert_eq!(subscription.borrow().machine().counts().total(), 0);
}

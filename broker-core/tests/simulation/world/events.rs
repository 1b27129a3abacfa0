//! A topic with subscriptions among the queues, two of which are or become catch-alls: it shares a
//! shard with some queues, and fails like them.
//!
//! Commands of its clients are carried out immediately. After each command the expected state of
//! the topic is recorded. After a failure the store must contain one of the recorded states, not
//! older than the last acknowledged one.

mod asked;

use std::collections::{BTreeMap, VecDeque};

use peeklock_core::change::codec::{RecordKey, read_key, read_rule};
use peeklock_core::command::TopicCommand;
use peeklock_core::condition::Condition;
use peeklock_core::description::{SubscriptionDescription, TopicDescription};
use peeklock_core::edge::{Edge, Entropy};
use peeklock_core::ids::LockToken;
use peeklock_core::machine::any::AnyMachine;
use peeklock_core::machine::family::Family;
use peeklock_core::machine::topic::Topic;
use peeklock_core::rule::Rule as ProductRule;
use peeklock_store_testing::{block_on, visit_records};

use super::*;
use crate::clients::DUPLICATE_KEY;
use crate::fan::{Fan, Stored, Subscription, read, stored_copies};
use crate::rules::{Rule, Select, rule};

const SUBSCRIPTIONS: usize = 3;
/// Its shard is that of the first entity.
const NEIGHBOUR: usize = 0;

/// Expected answer.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Due {
    Done,
    LockLost,
    /// Deliveries of a subscription.
    Deliveries(usize),
}

/// A copy under a lock.
#[derive(Clone, Copy)]
struct Locked {
    subscription: usize,
    sub_queue: SubQueue,
    token: LockToken,
    until: Timestamp,
}

pub(super) struct Events {
    /// The topic's id, then the ids of the subscriptions.
    ids: Vec<EntityId>,
    tree: Rc<RefCell<Tree>>,
    /// In the same order; empty while the tree waits to be opened again.
    shells: Vec<Shell<AnyMachine>>,
    done: Done<(StageNumber, Result<(), StoreError>)>,
    outlet: Arc<Mailbox>,
    edge: Edge,
    /// State after each command; the first is certainly durable.
    history: VecDeque<(u64, Fan)>,
    asked: BTreeMap<u64, Due>,
    locked: Vec<Locked>,
    next_marker: u64,
}

impl Events {
    fn last(&self) -> &Fan {
        &self.history.back().expect("there is always one").1
    }
}

impl World {
    /// Creates the topic and its subscriptions in a working store.
    pub(super) fn found_events(&mut self) -> Events {
        let ids: Vec<EntityId> = (self.next_id..).take(1 + SUBSCRIPTIONS).map(EntityId).collect();
        self.next_id += ids.len() as u64;
        let topic = Topic::new(ids[0], self.topic_description(), self.config, self.now);
        let mut batch = Batch::default();
        topic.write_creation(&mut batch);
        self.writer_of(NEIGHBOUR).submit(batch, Box::new(|result| result.unwrap()));
        while self.store.complete_next(shard_of(NEIGHBOUR), Fate::Store) {}
        let family = Family::new(Arc::clone(topic.description()));
        let tree = Tree::of_family(self.writer_of(NEIGHBOUR), topic.size_bytes(), family);
        let tree = Rc::new(RefCell::new(tree));
        let (_, shell) = self.drive(AnyMachine::Topic(Box::new(topic)), &tree);
        let mut subscriptions = Vec::new();
        let mut events = Events {
            edge: Edge::new(Entropy::with_key(DUPLICATE_KEY), &self.limits, DUPLICATE_KEY),
            ids,
            tree,
            shells: vec![shell],
            done: Done::default(),
            outlet: Arc::default(),
            history: VecDeque::new(),
            asked: BTreeMap::new(),
            locked: Vec::new(),
            next_marker: 1,
        };
        for number in 0..SUBSCRIPTIONS {
            let one = Subscription {
                rules: match number {
                    0 => [("alpha".to_owned(), self.draw_rule())].into(),
                    _ => [("$default".to_owned(), Rule { select: Select::All, act: None })].into(),
                },
                dead_letters_errors: number == 0,
                catch_all: number > 0,
                ..Subscription::default()
            };
            let create = TopicCommand::CreateSubscription {
                id: events.ids[number + 1],
                description: Box::new(self.subscription_description(number, one.catch_all)),
                rules: one.rules.iter().map(|(name, one)| rule(name, *one)).collect(),
            };
            let request = self.request_of(&events, Command::OfTopic(create), SubQueue::Main);
            let mut out = Vec::new();
            events.shells[0].run([request], self.now, &mut out).unwrap();
            release_all(&mut out);
            subscriptions.push(one);
        }
        events.tree.borrow_mut().flush();
        events.submit(self.now);
        while self.store.complete_next(shard_of(NEIGHBOUR), Fate::Store) {}
        events.take_completions();
        events.outlet = Arc::default();
        events.history.push_back((0, Fan { subscriptions }));
        self.open_events(&mut events);
        events
    }

    fn topic_description(&self) -> TopicDescription {
        TopicDescription::new("events", &self.limits)
    }

    fn subscription_description(&self, number: usize, catch_all: bool) -> SubscriptionDescription {
        SubscriptionDescription {
            catch_all,
            enable_dead_lettering_on_filter_evaluation_exceptions: number == 0,
            // Some locks time out; no message becomes a dead letter by that.
            max_delivery_count: self.limits.delivery_count_max,
            ..SubscriptionDescription::new("events", number.to_string(), &self.limits)
        }
    }

    fn request_of(&mut self, events: &Events, command: Command, sub_queue: SubQueue) -> Request {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        let outlet = Arc::clone(&events.outlet) as Arc<dyn Outlet>;
        let reply = Reply::new(outlet, ticket.0, None);
        Request { ticket, sub_queue, command, reply }
    }

    /// Opens the tree from the store, which must contain the state after one of the commands.
    fn open_events(&mut self, events: &mut Events) {
        let root = events.ids[0];
        let mut topic = Topic::new(root, self.topic_description(), self.config, self.now);
        self.restore(root, &mut topic, |_, _| false);
        topic.restored(self.now);
        let mut family = Family::new(Arc::clone(topic.description()));
        let (mut bytes, mut found, mut queues) = (topic.size_bytes(), Vec::new(), Vec::new());
        for (number, id) in events.ids.iter().skip(1).enumerate() {
            let description = self.subscription_description(number, false);
            let described = Arc::clone(topic.description());
            let mut queue = Queue::subscription(*id, description, described, self.config, self.now);
            let mut rules = Vec::new();
            self.restore(*id, &mut queue, |key, value| {
                let is_rule = matches!(read_key(key), Ok(RecordKey::Rule));
                if is_rule {
                    let rule = read_rule(value).expect("a rule can be read");
                    rules.push(ProductRule::restore(rule).expect("it was accepted once"));
                }
                is_rule
            });
            queue.restored(self.now);
            let description = queue.subscription_description().unwrap();
            found.push(Stored {
                rules: rules.iter().map(|rule| rule.description().clone()).collect(),
                catch_all: description.catch_all,
                copies: stored_copies(&self.store, *id),
                last: queue.last_sequence().0,
            });
            topic.adopt(*id, description, queue.last_sequence(), rules);
            family.add_subscription(*id);
            queue.report_to_family(&mut family);
            bytes += queue.size_bytes();
            queues.push(AnyMachine::Queue(Box::new(queue)));
        }
        let known = events.history.iter().rev().find(|(_, fan)| fan.is_stored(&found));
        let Some((ticket, fan)) = known.cloned() else {
            let copies: Vec<_> = found.iter().map(|one| (one.last, &one.copies)).collect();
            panic!(
                "the topic never was as it is stored: {copies:?}, of {:?} (TOP-07, TOP-25, FND-02)",
                events.history
            );
        };
        events.history = [(ticket, fan)].into();
        let tree = Tree::of_family(self.writer_of(NEIGHBOUR), bytes, family);
        events.shells.clear();
        events.tree = Rc::new(RefCell::new(tree));
        let tree = Rc::clone(&events.tree);
        let machines = std::iter::once(AnyMachine::Topic(Box::new(topic))).chain(queues);
        for (id, machine) in events.ids.iter().zip(machines) {
            let (_, shell) = self.drive(machine, &tree);
            tree.borrow_mut().join_family(*id, shell.number());
            events.shells.push(shell);
        }
    }

    fn restore(
        &self,
        id: EntityId,
        machine: &mut impl Machine,
        mut other: impl FnMut(&[u8], &[u8]) -> bool,
    ) {
        let mut visit = |key: &[u8], value: &[u8]| {
            if !other(key, value) {
                machine.restore(key, value).expect("every record can be read");
            }
        };
        visit_records(&*self.store, &codec::space_key(id), &mut visit)
            .expect("the store can be scanned");
    }

    /// Runs one random event of the topic.
    pub(super) fn step_events(&mut self) {
        let Some(mut events) = self.events.take() else { return };
        match self.random.below(8) {
            0..=4 => self.ask_events(&mut events),
            5 => events.submit(self.now),
            6 => {
                events.take_completions();
                self.judge_event_answers(&mut events);
            }
            _ => self.wake_events(&mut events),
        }
        self.mend_events(&mut events);
        self.events = Some(events);
    }

    /// Runs everything of the topic that is ready. Returns whether anything was.
    pub(super) fn move_events(&mut self) -> bool {
        let Some(mut events) = self.events.take() else { return false };
        let wants = events.tree.borrow().wants_submit(self.now) && !events.shells.is_empty();
        if wants {
            events.submit(self.now);
        }
        let completed = events.take_completions();
        self.judge_event_answers(&mut events);
        let mended = self.mend_events(&mut events);
        self.events = Some(events);
        wants || completed || mended
    }

    /// Ends a tree after a failed append, and opens a tree again of which nothing is in transit.
    fn mend_events(&mut self, events: &mut Events) -> bool {
        let is_lost = events.tree.borrow().is_lost();
        if is_lost && !events.shells.is_empty() {
            self.fail_events(events, "an append failed");
            return true;
        }
        if events.shells.is_empty() && !events.tree.borrow().is_submitting() {
            block_on(self.writer_of(NEIGHBOUR).recover()).expect("the store gives the shard");
            self.note(|| "the topic is opened anew".to_owned());
            self.seen.topic_rebuilds += 1;
            self.open_events(events);
            return true;
        }
        false
    }

    fn fail_events(&mut self, events: &mut Events, why: &str) {
        self.note(|| format!("the topic fails: {why}"));
        let reason = Rejection::internal("the entity failed and is being rebuilt");
        let mut out = Vec::new();
        for mut shell in events.shells.drain(..) {
            shell.close(&reason, &mut out);
        }
        events.tree.borrow_mut().abandon();
        release_all(&mut out);
        self.judge_event_answers(events);
        events.asked.clear();
        events.locked.clear();
    }

    /// The process has crashed, and another one opens the durable state.
    pub(super) fn crash_events(&mut self) {
        let Some(mut events) = self.events.take() else { return };
        events.shells.clear();
        events.done = Done::default();
        events.outlet = Arc::default();
        events.asked.clear();
        events.locked.clear();
        self.open_events(&mut events);
        self.events = Some(events);
    }

    /// Runs a turn of each machine without a command.
    fn wake_events(&mut self, events: &mut Events) {
        for place in 0..events.shells.len() {
            self.turn_of(events, place, None);
        }
    }

    /// Runs a turn of a machine. Returns whether the command was carried out.
    fn turn_of(&mut self, events: &mut Events, place: usize, request: Option<Request>) -> bool {
        let now = self.now;
        let Some(shell) = events.shells.get_mut(place) else { return false };
        let mut out = Vec::new();
        let run = AssertUnwindSafe(|| shell.run(request, now, &mut out));
        match catch_unwind(run) {
            Ok(Ok(_)) => {
                let checked = match shell.machine() {
                    AnyMachine::Queue(queue) => queue.check_invariants(),
                    AnyMachine::Topic(topic) => topic.check_invariants(),
                };
                checked.unwrap_or_else(|broken| panic!("{broken}"));
                release_all(&mut out);
                self.judge_event_answers(events);
                true
            }
            Ok(Err(failure)) => {
                let is_lost = events.tree.borrow().is_lost();
                assert!(is_lost, "the shell failed by itself: {failure}");
                drop(out);
                self.fail_events(events, "an append failed");
                false
            }
            Err(panic) => {
                if panic.downcast_ref::<&str>() != Some(&PLANNED) {
                    std::panic::resume_unwind(panic);
                }
                self.seen.panics += 1;
                drop(out);
                self.fail_events(events, "a panic");
                false
            }
        }
    }

    /// Carries out a command, and records the state of the topic after it.
    fn carry_out(
        &mut self,
        events: &mut Events,
        (place, sub_queue): (usize, SubQueue),
        command: Command,
        due: Due,
        change: impl FnOnce(&mut Fan),
    ) {
        self.seen.commands += 1;
        let request = self.request_of(events, command, sub_queue);
        let ticket = request.ticket.0;
        self.note(|| format!("the topic's {place} is asked {ticket}, {due:?} is due"));
        events.asked.insert(ticket, due);
        let mut fan = events.last().clone();
        change(&mut fan);
        events.history.push_back((ticket, fan));
        if !self.turn_of(events, place, Some(request)) {
            // The command staged nothing.
            events.history.pop_back();
        }
    }

    /// Passes outputs of the topic to its clients.
    fn judge_event_answers(&mut self, events: &mut Events) {
        let released =
            std::mem::take(&mut *events.outlet.0.lock().unwrap_or_else(PoisonError::into_inner));
        for item in released {
            let Released::Answer { correlation, result } = item else {
                panic!("nobody has a link to the topic");
            };
            let Some(due) = events.asked.remove(&correlation) else { continue };
            match (due, result) {
                (Due::Deliveries(subscription), Ok(Outcome::Received(messages))) => {
                    for message in messages {
                        self.seen.deliveries += 1;
                        events.delivered(subscription, &message);
                    }
                }
                (
                    Due::Done,
                    Ok(Outcome::Done | Outcome::Accepted(_) | Outcome::AcceptedBatch(_)),
                ) => {
                    // An answered command is durable, with all earlier ones.
                    while events.history.get(1).is_some_and(|(ticket, _)| *ticket <= correlation) {
                        events.history.pop_front();
                    }
                }
                (Due::LockLost, Err(reason))
                    if reason.condition() == Condition::MessageLockLost => {}
                (_, Err(reason)) if reason.condition() == Condition::InternalError => {
                    let has_failed = events.shells.is_empty() || events.tree.borrow().is_lost();
                    assert!(has_failed, "InternalError without a failure: {reason}");
                }
                (due, result) => panic!("{correlation}: {due:?} is answered with {result:?}"),
            }
        }
    }

    /// Nothing is in transit: machines, store and the expected state agree.
    pub(super) fn check_events(&mut self) {
        let Some(mut events) = self.events.take() else { return };
        assert!(events.asked.is_empty(), "never answered: {:?}", events.asked);
        assert!(!events.shells.is_empty(), "the topic did not come back");
        let tree = events.tree.borrow();
        assert!(tree.is_quiet(), "something of the topic is left on its way");
        let mut bytes = 0;
        for (place, shell) in events.shells.iter().enumerate() {
            bytes += shell.machine().size_bytes();
            let Some(number) = place.checked_sub(1) else { continue };
            let known = &events.last().subscriptions[number];
            let stored = stored_copies(&self.store, events.ids[place]);
            assert_eq!(stored, known.copies, "copies of subscription {number} (TOP-25, FND-02)");
            let counts = shell.machine().counts();
            assert_eq!(counts.total(), known.copies.len() as u64, "counts differ (CNT-03)");
        }
        assert_eq!(tree.stored_bytes(), bytes, "the account of the topic is wrong (TOP-10)");
        drop(tree);
        let last = events.history.split_off(events.history.len() - 1);
        events.history = last;
        self.events = Some(events);
    }

    /// Lazy changes are ready to be stored, too.
    pub(super) fn flush_events(&mut self) {
        let Some(mut events) = self.events.take() else { return };
        self.wake_events(&mut events);
        if !events.shells.is_empty() {
            events.tree.borrow_mut().flush();
        }
        self.events = Some(events);
    }
}

impl Events {
    fn submit(&self, now: Timestamp) {
        if self.shells.is_empty() {
            return;
        }
        let completion = || {
            let done = Arc::clone(&self.done);
            Box::new(move |stage, result| push(&done, (stage, result))) as StageCompletion
        };
        self.tree.borrow_mut().submit(now, &completion);
    }

    /// Returns whether there was a completion.
    fn take_completions(&mut self) -> bool {
        let done = take(&self.done);
        let any = !done.is_empty();
        for (stage, result) in done {
            match result {
                Ok(()) => {
                    let mut held = self.tree.borrow_mut().complete(stage);
                    release_all(&mut held);
                }
                Err(_) => self.tree.borrow_mut().note_lost(stage),
            }
        }
        any
    }

    /// LIF-01, TOP-08: a delivered message is a stored copy, unchanged.
    fn delivered(
        &mut self,
        subscription: usize,
        message: &peeklock_core::command::ReceivedMessage,
    ) {
        let facts = &message.facts;
        let contents = std::iter::once(&message.content).chain(&message.overlays);
        let contents = contents.map(|one| one.loaded().expect("it is in memory").clone()).collect();
        let copied = read(contents, facts.sub_queue != SubQueue::Main);
        let known = self.last().subscriptions[subscription].copies.get(&facts.sequence.0);
        assert_eq!(known, Some(&copied), "{subscription}/{} is not what it was", facts.sequence);
        let lock = facts.lock.expect("it is received under a lock");
        let (sub_queue, token, until) = (facts.sub_queue, lock.token, lock.until);
        self.locked.push(Locked { subscription, sub_queue, token, until });
    }
}

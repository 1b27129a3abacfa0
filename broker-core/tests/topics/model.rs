//! Random work on a topic with several subscriptions, compared with the oracle, with crashes.

use std::collections::BTreeMap;

use peeklock_core::command::{
    Command, Outcome, ReceiveMode, RuleCommand, Settlement, TopicCommand,
};
use peeklock_core::condition::Condition;
use peeklock_core::ids::{EntityId, SequenceNumber};
use peeklock_core::path::SubQueue;
use peeklock_core::rule::SubscriptionSettings;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_store_testing::Random;

use crate::oracle::{Oracle, Sent, Subscription};
use crate::reached::RULES;
use crate::rules::{Act, Rule, Select, rule};
use crate::world::{World, described, inbound};

const SEEDS: u64 = 150;
const STEPS: u64 = 120;
const NAMES: [&str; 4] = ["Alpha", "beta", "Gamma", "$Default"];

/// The expected answer, once it may be sent.
#[derive(Debug)]
enum Expected {
    Numbers(Vec<u64>),
    Done,
    Refused(Condition),
    Received(Vec<u64>),
}

struct Test {
    world: World,
    oracle: Oracle,
    random: Random,
    /// State of the oracle after each stage.
    history: Vec<(u64, Oracle)>,
    expected: Vec<(u64, Expected)>,
    /// Locked copies, by subscription.
    locked: BTreeMap<EntityId, Vec<u64>>,
    next_marker: u64,
    next_id: u64,
    crashes: u64,
    copies: u64,
}

/// A topic with random rules agrees with the oracle, over crashes and any order of durability, and
/// each content is stored once.
///
/// The rules that the work must cover, each many times: TOP-01, TOP-02, TOP-03, TOP-04, TOP-05,
/// TOP-06, TOP-07, TOP-08, TOP-09, TOP-24, TOP-25, TOP-26, TOP-27, SCH-03, SCH-10, DUP-02, DUP-09,
/// DLQ-21, DLQ-23, DLQ-24, DLQ-25, DLQ-27, MSG-13, MSG-16, FND-02, LIF-02.
#[test]
fn a_topic_agrees_with_the_oracle_over_crashes() {
    let (mut crashes, mut copies) = (0, 0);
    let mut reached: BTreeMap<&str, u64> = BTreeMap::new();
    for seed in 0..SEEDS {
        let test = Test::new(seed);
        let test = test.run();
        crashes += test.crashes;
        copies += test.copies;
        test.oracle.reached.add_to(&mut reached);
    }
    assert!(
        crashes > SEEDS && copies > SEEDS * 20,
        "{crashes} crashes, {copies} copies are little"
    );
    for rule in RULES {
        let times = reached.get(rule).copied().unwrap_or(0);
        assert!(times >= 20, "{rule} was met {times} times only: {reached:?}");
    }
    assert_eq!(reached.len(), RULES.len(), "what is met is in the list: {reached:?}");
}

impl Test {
    fn new(seed: u64) -> Self {
        let detects_duplicates = seed.is_multiple_of(2);
        Self {
            world: World::new(detects_duplicates),
            oracle: Oracle { detects_duplicates, ..Oracle::default() },
            random: Random::new(seed),
            history: Vec::new(),
            expected: Vec::new(),
            locked: BTreeMap::new(),
            next_marker: 1,
            next_id: 2,
            crashes: 0,
            copies: 0,
        }
    }

    fn run(mut self) -> Self {
        for _ in 0..3 {
            self.create_subscription();
        }
        for _ in 0..STEPS {
            match self.random.below(100) {
                0..=29 => self.publish(),
                30..=37 => self.schedule(),
                38..=41 => self.cancel(),
                42..=44 => self.create_subscription(),
                45..=46 => self.remove_subscription(),
                47..=56 => self.change_rules(),
                57..=69 => self.receive(),
                70..=74 => self.pass(),
                75..=92 => self.store(),
                93..=95 => self.rest(),
                _ => self = self.crash(),
            }
        }
        self.rest();
        self
    }

    /// The topic's turn begins with due messages.
    fn before_topic(&mut self) {
        let (now, durable, stage) = (self.world.now, self.world.durable(), self.world.stage());
        self.oracle.materialise(now, durable, stage);
    }

    /// Records the state after the current stage.
    fn note(&mut self, stage: u64) {
        self.history.push((stage, self.oracle.clone()));
    }

    fn ask_topic(&mut self, command: Command, expected: Expected, stage: u64) {
        let number = self.world.ask_topic(command);
        self.note(stage);
        self.expected.push((number, expected));
    }

    fn message(&mut self) -> Sent {
        let marker = self.next_marker;
        self.next_marker += 1;
        Sent {
            marker,
            number: i32::try_from(self.random.below(6)).unwrap(),
            subject: self.random.below(3),
            session: self.random.one_in(2).then(|| self.random.below(3)),
            id: self.random.one_in(2).then(|| self.random.below(12)),
        }
    }

    fn publish(&mut self) {
        let (now, stage) = (self.world.now, self.world.stage());
        self.before_topic();
        let count = if self.random.one_in(3) { self.random.between(2, 4) } else { 1 };
        let sent: Vec<Sent> = (0..count).map(|_| self.message()).collect();
        let numbers: Vec<u64> =
            sent.iter().map(|one| self.oracle.send(one, None, now, stage)).collect();
        let with_copies = numbers.iter().filter(|one| self.oracle.copies_of(**one) > 0).count();
        if with_copies > 1 {
            self.oracle.reached.reach("TOP-07");
        }
        let mut messages: Vec<_> = sent.iter().map(|one| inbound(one, None)).collect();
        let command = match messages.pop() {
            Some(message) if messages.is_empty() => Command::Send { message },
            Some(message) => {
                messages.push(message);
                Command::SendBatch { messages }
            }
            None => return,
        };
        self.ask_topic(command, Expected::Numbers(numbers), stage);
    }

    fn schedule(&mut self) {
        let (now, stage) = (self.world.now, self.world.stage());
        self.before_topic();
        let sent = self.message();
        let at =
            now.plus(TimeSpan::from_seconds(i64::try_from(self.random.between(1, 8)).unwrap()));
        let number = self.oracle.send(&sent, Some(at), now, stage);
        let command = Command::Send { message: inbound(&sent, Some(at)) };
        self.ask_topic(command, Expected::Numbers(vec![number]), stage);
    }

    fn cancel(&mut self) {
        let stage = self.world.stage();
        self.before_topic();
        let number = self.random.between(1, self.oracle.last.max(1));
        let durable = self.world.durable();
        let is_waiting = self.oracle.scheduled.get(&number).is_some_and(|one| one.0 <= durable);
        let expected = if is_waiting {
            self.oracle.scheduled.remove(&number);
            Expected::Done
        } else {
            Expected::Refused(Condition::MessageNotFound)
        };
        let command = Command::CancelScheduled { sequences: vec![SequenceNumber(number)] };
        self.ask_topic(command, expected, stage);
    }

    fn rule(&mut self) -> Rule {
        let bound = i32::try_from(self.random.below(5)).unwrap();
        let select = match self.random.below(8) {
            0 | 1 => Select::All,
            2 => Select::None,
            3 | 4 => Select::Subject(self.random.below(3)),
            5 | 6 => Select::Greater(bound),
            _ => Select::Divides,
        };
        let act = match self.random.below(6) {
            0 => Some(Act::Mark(self.random.below(9))),
            1 => Some(Act::Divide),
            2 => Some(Act::RemoveSession),
            _ => None,
        };
        Rule { select, act }
    }

    fn create_subscription(&mut self) {
        if self.oracle.subscriptions.len() >= 5 {
            return;
        }
        let id = EntityId(self.next_id);
        self.next_id += 1;
        let settings = SubscriptionSettings {
            dead_lettering_on_filter_errors: !self.random.one_in(3),
            requires_session: self.random.one_in(4),
            catch_all: self.random.one_in(4),
        };
        let count = self.random.index(NAMES.len());
        let mut rules = BTreeMap::new();
        for name in NAMES.iter().take(count) {
            rules.insert(name.to_ascii_lowercase(), self.rule());
        }
        let given = rules.iter().map(|(name, one)| rule(name, *one)).collect();
        if rules.is_empty() {
            rules.insert("$default".to_owned(), Rule { select: Select::All, act: None });
        }
        let stage = self.world.stage();
        self.before_topic();
        self.oracle.subscriptions.insert(
            id,
            Subscription {
                rules,
                dead_letters_errors: settings.dead_lettering_on_filter_errors,
                requires_session: settings.requires_session,
                catch_all: settings.catch_all,
                ..Subscription::default()
            },
        );
        self.oracle.reached.changed();
        let description = Box::new(described(id, settings));
        let command =
            Command::OfTopic(TopicCommand::CreateSubscription { id, description, rules: given });
        self.ask_topic(command, Expected::Done, stage);
        // Its actor starts when its creation is durable. Messages published meanwhile wait for it.
        if self.random.one_in(2) {
            self.publish();
        }
        self.settle();
        self.world.adopt(id);
    }

    fn remove_subscription(&mut self) {
        let ids: Vec<EntityId> = self.oracle.subscriptions.keys().copied().collect();
        if ids.len() < 2 {
            return;
        }
        let Some(id) = self.random.pick(&ids).copied() else { return };
        self.world.retire(id);
        self.locked.remove(&id);
        // Until it is removed, it gets copies that its actor does not process.
        if self.random.one_in(2) {
            self.publish();
        }
        self.settle();
        let stage = self.world.stage();
        self.before_topic();
        self.oracle.subscriptions.remove(&id);
        self.oracle.reached.changed();
        self.ask_topic(
            Command::OfTopic(TopicCommand::RemoveSubscription { id }),
            Expected::Done,
            stage,
        );
        self.settle();
    }

    fn change_rules(&mut self) {
        let ids: Vec<EntityId> = self.oracle.subscriptions.keys().copied().collect();
        let Some(id) = self.random.pick(&ids).copied() else { return };
        let name = *self.random.pick(&NAMES).unwrap();
        let key = name.to_ascii_lowercase();
        let new = self.rule();
        let stage = self.world.stage();
        self.before_topic();
        let rules = &mut self.oracle.subscriptions.get_mut(&id).unwrap().rules;
        let is_there = rules.contains_key(&key);
        let described = Box::new(rule(name, new));
        let mut is_updated = false;
        let (command, expected) = match self.random.below(3) {
            0 => {
                let expected = if is_there {
                    Expected::Refused(Condition::EntityAlreadyExists)
                } else {
                    rules.insert(key, new);
                    Expected::Done
                };
                (RuleCommand::Create(described), expected)
            }
            1 if is_there => {
                rules.insert(key, new);
                is_updated = true;
                (RuleCommand::Update(described), Expected::Done)
            }
            1 => {
                let expected = Expected::Refused(Condition::EntityNotFound);
                (RuleCommand::Update(described), expected)
            }
            _ => {
                let expected = match rules.remove(&key) {
                    Some(_) => Expected::Done,
                    None => Expected::Refused(Condition::EntityNotFound),
                };
                (RuleCommand::Delete(name.into()), expected)
            }
        };
        if matches!(expected, Expected::Done) {
            self.oracle.reached.changed();
            if !self.oracle.subscriptions[&id].copies.is_empty() {
                self.oracle.reached.reach("TOP-09");
            }
        }
        if is_updated {
            self.oracle.reached.reach("TOP-24");
        }
        let command = Command::OfTopic(TopicCommand::InSubscription { subscription: id, command });
        self.ask_topic(command, expected, stage);
    }

    /// Receives from a subscription without sessions: durable messages, lowest numbers first,
    /// regardless of the mail that its actor has processed.
    fn receive(&mut self) {
        let ids: Vec<EntityId> = self
            .oracle
            .subscriptions
            .iter()
            .filter(|(_, one)| !one.requires_session)
            .map(|(id, _)| *id)
            .collect();
        let Some(id) = self.random.pick(&ids).copied() else { return };
        let dead = self.random.one_in(4);
        let sub_queue = if dead { SubQueue::DeadLetter } else { SubQueue::Main };
        let count = self.random.between(1, 4);
        let (durable, stage) = (self.world.durable(), self.world.stage());
        let locked = self.locked.entry(id).or_default();
        let of = self.oracle.subscriptions.get_mut(&id).unwrap();
        let available: Vec<u64> = of
            .copies
            .iter()
            .filter(|(number, (born, seen))| {
                *born <= durable && seen.reason.is_some() == dead && !locked.contains(number)
            })
            .map(|(number, _)| *number)
            .take(usize::try_from(count).unwrap())
            .collect();
        let takes = self.random.one_in(2);
        let mode = if takes { ReceiveMode::ReceiveAndDelete } else { ReceiveMode::PeekLock };
        if takes {
            let taken: Vec<_> =
                available.iter().filter_map(|number| of.copies.remove(number)).collect();
            for (_, seen) in taken {
                self.remains_elsewhere(seen.published_as);
            }
        } else {
            locked.extend(&available);
        }
        let number = self.world.ask(
            id,
            sub_queue,
            Command::Receive {
                mode,
                count_max: u32::try_from(count).unwrap(),
                bytes_max: u64::MAX,
                wait: TimeSpan::ZERO,
                holder: None,
            },
        );
        self.note(stage);
        if !takes && self.random.one_in(2) {
            self.complete(id, sub_queue, number, &available);
            return;
        }
        self.expected.push((number, Expected::Received(available)));
    }

    /// Completes the messages just received under lock. Their answer is immediate: a lock on a
    /// durable message depends on nothing.
    fn complete(&mut self, id: EntityId, sub_queue: SubQueue, number: u64, expected: &[u64]) {
        let answer = self.world.answer(number);
        let received = match answer {
            Some(Ok(Outcome::Received(received))) => received,
            // An empty answer may have to wait for earlier staged changes.
            None if expected.is_empty() => {
                self.expected.push((number, Expected::Received(Vec::new())));
                return;
            }
            other => panic!("a receive is answered by {other:?}"),
        };
        for (one, number) in received.iter().zip(expected) {
            assert_eq!(one.facts.sequence.0, *number);
            let token = one.facts.lock.unwrap().token;
            let stage = self.world.stage();
            let of = self.oracle.subscriptions.get_mut(&id).unwrap();
            let (_, seen) = of.copies.remove(number).unwrap();
            self.remains_elsewhere(seen.published_as);
            self.locked.entry(id).or_default().retain(|locked| locked != number);
            let command = Command::Settle { token, settlement: Settlement::Complete };
            let number = self.world.ask(id, sub_queue, command);
            self.note(stage);
            self.expected.push((number, Expected::Done));
        }
        assert_eq!(received.len(), expected.len());
    }

    /// A copy is gone. Records whether other copies of its message remain.
    fn remains_elsewhere(&mut self, published_as: u64) {
        if self.oracle.copies_of(published_as) > 0 {
            self.oracle.reached.reach("TOP-08");
        }
    }

    fn pass(&mut self) {
        let ms = i64::try_from(self.random.below(4_000)).unwrap();
        self.world.now = self.world.now.plus(TimeSpan::from_ms(ms));
        let stage = self.world.stage();
        self.before_topic();
        self.world.wake_topic();
        self.note(stage);
    }

    /// Submits a batch and completes some. Sometimes no notice is sent.
    fn store(&mut self) {
        self.world.submit();
        for _ in 0..self.random.below(3) {
            let notices = !self.random.one_in(4);
            self.complete_one(notices);
        }
        self.process_outputs(false);
    }

    fn complete_one(&mut self, notices: bool) -> bool {
        // A notice is a turn of the topic, if it has changes in the stage.
        let before = self.world.topic.machine().counts().scheduled;
        let stage = self.world.stage();
        let completed = self.world.complete_one(notices);
        if self.world.topic.machine().counts().scheduled != before {
            let (now, durable) = (self.world.now, self.world.durable());
            self.oracle.materialise(now, durable, stage);
            self.note(stage);
        }
        completed
    }

    /// Makes everything durable, and processes due events.
    fn settle(&mut self) {
        loop {
            self.world.tree.borrow_mut().flush();
            self.world.submit();
            let completed = self.complete_one(true);
            let stage = self.world.stage();
            self.before_topic();
            self.world.wake_topic();
            self.note(stage);
            if !completed && self.world.tree.borrow().is_quiet() {
                break;
            }
        }
        self.process_outputs(true);
    }

    /// Compares the answers that have arrived.
    fn process_outputs(&mut self, all: bool) {
        let waiting = std::mem::take(&mut self.expected);
        for (number, expected) in waiting {
            let Some(answer) = self.world.answer(number) else {
                assert!(!all, "{expected:?} is not answered");
                self.expected.push((number, expected));
                continue;
            };
            match (&expected, answer) {
                (Expected::Numbers(numbers), Ok(Outcome::Accepted(sequence))) => {
                    assert_eq!(*numbers, [sequence.0]);
                }
                (Expected::Numbers(numbers), Ok(Outcome::AcceptedBatch(sequences))) => {
                    assert!(numbers.iter().eq(sequences.iter().map(|sequence| &sequence.0)));
                }
                (Expected::Done, Ok(Outcome::Done)) => {}
                (Expected::Refused(condition), Err(rejection)) => {
                    assert_eq!(rejection.condition(), *condition);
                }
                (Expected::Received(numbers), Ok(Outcome::Received(received))) => {
                    let got: Vec<u64> = received.iter().map(|one| one.facts.sequence.0).collect();
                    assert_eq!(got, *numbers);
                }
                (expected, answer) => panic!("{expected:?} is answered by {answer:?}"),
            }
        }
    }

    /// Makes everything durable, and compares.
    fn rest(&mut self) {
        self.settle();
        // Subscriptions without a notice of a stage check it when they get a command.
        self.world.wake_subscriptions();
        self.world.check();
        let mut places: BTreeMap<u64, usize> = BTreeMap::new();
        for (id, of) in self.oracle.subscriptions.clone() {
            for (sub_queue, dead) in [(SubQueue::Main, false), (SubQueue::DeadLetter, true)] {
                let looked = self.world.look(id, sub_queue);
                let expected = of.copies.iter().filter(|(_, one)| one.1.reason.is_some() == dead);
                let expected: Vec<_> = expected.map(|(number, one)| (*number, &one.1)).collect();
                let got: Vec<_> = looked.iter().map(|one| (one.0, &one.1)).collect();
                assert_eq!(got, expected, "subscription {id}, {sub_queue:?}");
                for (number, seen, place) in &looked {
                    self.copies += 1;
                    if *number != seen.published_as {
                        self.oracle.reached.reach("MSG-16");
                    }
                    let known = *places.entry(seen.published_as).or_insert(*place);
                    assert_eq!(known, *place, "{} is stored twice (DESIGN D8)", seen.marker);
                }
            }
            let last = self.world.subscriptions[&id].machine().last_sequence().0;
            assert_eq!(last, of.last, "subscription {id} has given other numbers (MSG-13)");
        }
        let scheduled = self.world.topic.machine().counts().scheduled;
        assert_eq!(scheduled, self.oracle.scheduled.len() as u64);
        // States before the durable one are no longer needed.
        self.history.clear();
        let stage = self.world.stage();
        self.note(stage.saturating_sub(1));
    }

    /// The process crashes, and the next one finds the durable state, to which the oracle returns.
    fn crash(mut self) -> Self {
        self.crashes += 1;
        if self.random.one_in(2) {
            self.world.submit();
        }
        let landed = self.random.index(4);
        let staged = self.world.stage();
        let reached = std::mem::take(&mut self.oracle.reached);
        let (world, durable) = self.world.crash(landed);
        let oracle = self
            .history
            .iter()
            .rev()
            .find(|(stage, _)| *stage <= durable)
            .map(|(_, oracle)| oracle.clone())
            .unwrap_or(Oracle {
                detects_duplicates: self.oracle.detects_duplicates,
                ..Oracle::default()
            });
        let mut oracle = born_anew(oracle);
        oracle.reached = reached;
        if oracle.subscriptions.values().any(|one| !one.copies.is_empty()) {
            oracle.reached.reach("FND-02");
            if durable + 1 < staged {
                oracle.reached.reach("LIF-02");
            }
        }
        let mut test = Self {
            world,
            oracle,
            history: Vec::new(),
            expected: Vec::new(),
            locked: BTreeMap::new(),
            ..self
        };
        test.note(0);
        test.rest();
        test
    }
}

/// Records found in the store are durable, regardless of their stage.
fn born_anew(mut oracle: Oracle) -> Oracle {
    for subscription in oracle.subscriptions.values_mut() {
        subscription.copies.values_mut().for_each(|copy| copy.0 = 0);
    }
    oracle.scheduled.values_mut().for_each(|one: &mut (u64, Timestamp, Sent)| one.0 = 0);
    oracle
}

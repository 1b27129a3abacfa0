//! Long random runs: the machine and the model get the same commands, and must give the same
//! answers and show the same state.
//!
//! `PEEKLOCK_SESSION_SEEDS` sets the number of runs, `PEEKLOCK_SESSION_FIRST` the first seed.

use std::collections::BTreeMap;

use bytes::Bytes;
use peeklock_core::command::{
    Act, Command, Deed, LinkEnd, MachineOutcome, MessageState, OperatorCommand, ReceiveMode,
    SessionCommand, SessionFilter, StateFacts,
};
use peeklock_core::condition::Condition;
use peeklock_core::description::{
    Jitter, QueueDescription, RetryKind, RetryPolicy, SessionRetryOrder,
};
use peeklock_core::ids::{LockToken, ReceiverId, SequenceNumber, Ticket};
use peeklock_core::message::Message;
use peeklock_core::path::SubQueue;

use crate::oracle::{
    DELIVERY_COUNT_MAX, LOCK, Message as Stored, Oracle, Reply, Settlement, State,
};
use crate::stand::{Stand, message, seconds, sessionful};

const SESSIONS: [&str; 5] = ["a", "b", "c", "d", "e"];
const OPERATIONS: u32 = 400;

struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d) % bound
    }

    fn one_of<T: Copy>(&mut self, all: &[T]) -> Option<T> {
        if all.is_empty() {
            return None;
        }
        let place = self.below(all.len() as u64);
        all.get(usize::try_from(place).unwrap()).copied()
    }
}

struct Run {
    random: Random,
    stand: Stand,
    oracle: Oracle,
    /// Tokens by the names of their deliveries in the model.
    tokens: BTreeMap<u64, LockToken>,
    /// Receivers that may hold a session, or have held one.
    receivers: Vec<u64>,
    next_receiver: u64,
    /// Waiting calls, with their callers.
    waiting: Vec<(Ticket, u64)>,
    /// State before the last operation, if that is still being stored.
    before: Option<Box<Oracle>>,
    log: Vec<String>,
}

impl Run {
    fn new(seed: u64) -> Self {
        let whole = !seed.is_multiple_of(4);
        let passes = seed.is_multiple_of(3);
        let policy = seed.is_multiple_of(5).then_some(seconds(2));
        let description = QueueDescription {
            lock_duration: LOCK,
            max_delivery_count: DELIVERY_COUNT_MAX,
            dead_lettering_on_message_expiration: true,
            session_retry_order: match passes {
                true => SessionRetryOrder::Pass,
                false => SessionRetryOrder::Hold,
            },
            retry_policy: policy.map(|delay| RetryPolicy {
                kind: RetryKind::Fixed,
                delay,
                delay_max: None,
                jitter: Jitter::NONE,
            }),
            ..sessionful()
        };
        let stand = Stand::of(description, whole);
        let oracle = Oracle::new(stand.now, whole, passes, policy);
        Self {
            random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
            stand,
            oracle,
            tokens: BTreeMap::new(),
            receivers: Vec::new(),
            next_receiver: 1,
            waiting: Vec::new(),
            before: None,
            log: Vec::new(),
        }
    }

    /// Makes all pending changes durable.
    fn land(&mut self) {
        self.log.push("all is durable".to_owned());
        self.stand.commit();
        self.oracle.commit();
        self.before = None;
        self.compare_answers();
    }

    fn some_receiver(&mut self) -> u64 {
        // Usually one that holds a session; otherwise one of the last, which may have lost it.
        let holders = self.oracle.holders();
        if self.random.below(4) > 0
            && let Some(holder) = self.random.one_of(&holders)
        {
            return holder;
        }
        let recent = self.receivers.len().saturating_sub(6);
        let receivers = self.receivers[recent..].to_vec();
        self.random.one_of(&receivers).unwrap_or(0)
    }

    fn operation(&mut self) {
        let receiver = self.some_receiver();
        match self.random.below(46) {
            0..=10 => self.send(),
            11..=14 => self.accept(),
            15 | 16 => {
                let ends = [LinkEnd::Orderly, LinkEnd::Broken, LinkEnd::Lost, LinkEnd::ByBroker];
                let end = self.random.one_of(&ends).unwrap();
                let command = Command::Detach { receiver: ReceiverId(receiver), end };
                self.both(command, receiver, |oracle, _| Some(oracle.close(receiver, end)));
            }
            17..=22 => {
                let count = 1 + self.random.below(3);
                let wait = seconds(i64::try_from(self.random.below(2) * 4).unwrap());
                let command = SessionCommand::Receive {
                    count_max: u32::try_from(count).unwrap(),
                    bytes_max: u64::MAX,
                    wait,
                };
                self.in_session(receiver, command, |oracle, ticket| {
                    oracle.receive(ticket, receiver, usize::try_from(count).unwrap(), wait)
                });
            }
            23..=29 => self.settle(),
            30 | 31 => self.receive_deferred(receiver),
            32 => self.in_session(receiver, SessionCommand::Renew, |oracle, _| {
                Some(oracle.renew(receiver))
            }),
            33 => {
                let state = (self.random.below(3) > 0).then_some(7u8);
                let bytes = state.map(|state| Bytes::copy_from_slice(&[state]));
                let command = SessionCommand::SetState { state: bytes };
                self.in_session(receiver, command, |oracle, _| {
                    Some(oracle.set_state(receiver, state))
                });
            }
            34 => self.in_session(receiver, SessionCommand::GetState, |oracle, _| {
                Some(oracle.state(receiver))
            }),
            35 => {
                let count_max = 1 + u32::try_from(self.random.below(2)).unwrap();
                if self.random.below(2) == 0 {
                    let command = SessionCommand::DeleteBatch { count_max, enqueued_before: None };
                    self.in_session(receiver, command, |oracle, _| {
                        Some(oracle.delete(Some(receiver), u64::from(count_max)))
                    });
                } else {
                    let command = Command::DeleteBatchUnlocked { count_max, enqueued_before: None };
                    self.both(command, receiver, |oracle, _| {
                        Some(oracle.delete(None, u64::from(count_max)))
                    });
                }
            }
            44 | 45 => self.act(),
            40 => self.break_session(),
            41 => self.set_state_of_unheld(),
            36 if self.random.below(4) == 0 => {
                // Changes that were not stored have no effect (LIF-04).
                self.log.push(format!("crash, in flight: {}", self.before.is_some()));
                if let Some(before) = self.before.take() {
                    let reached = std::mem::take(&mut self.oracle.reached);
                    self.oracle = *before;
                    self.oracle.reached = reached;
                    self.oracle.reach("LIF-04 in flight");
                    let delivery_count = self.oracle.delivery_count();
                    self.tokens.retain(|name, _| *name <= delivery_count);
                }
                self.stand.crash();
                self.oracle.crash();
                self.waiting.clear();
            }
            _ => {
                self.land();
                self.stand.commits = true;
                for _ in 0..self.random.below(4) {
                    self.log.push("a second passes".to_owned());
                    self.oracle.now = self.oracle.now.plus(seconds(1));
                    self.oracle.advance();
                    self.oracle.serve();
                    self.oracle.commit();
                    self.stand.wait(seconds(1));
                    self.compare_answers();
                }
            }
        }
        if self.before.is_none() {
            self.compare();
        }
    }

    fn send(&mut self) {
        let session = self.random.one_of(&SESSIONS).unwrap();
        let time_to_live = self.random.one_of(&[None, None, None, Some(2), Some(9)]).unwrap();
        let time_to_live = time_to_live.map(seconds);
        let delay = self.random.one_of(&[None, None, None, None, Some(3)]).unwrap().map(seconds);
        let message = Message {
            time_to_live,
            scheduled_enqueue_time: delay.map(|delay| self.stand.now.plus(delay)),
            ..message(session)
        };
        let command = Command::Send { message: Stand::inbound(message) };
        self.both(command, 0, |oracle, _| Some(oracle.send(session, time_to_live, delay)));
    }

    fn accept(&mut self) {
        let receiver = self.next_receiver;
        self.next_receiver += 1;
        self.receivers.push(receiver);
        let session = if self.random.below(2) == 0 { self.random.one_of(&SESSIONS) } else { None };
        let wait = seconds(i64::try_from(self.random.below(2) * 5).unwrap());
        let command = Command::AcceptSession {
            session: session.map(Box::from),
            receiver: ReceiverId(receiver),
            mode: ReceiveMode::PeekLock,
            wait,
        };
        self.both(command, receiver, |oracle, ticket| {
            oracle.accept(ticket, session, receiver, wait)
        });
    }

    fn break_session(&mut self) {
        let session = self.random.one_of(&SESSIONS).unwrap();
        let counts = self.random.below(2) == 0;
        let command = OperatorCommand::BreakSession { session: session.into(), counts };
        self.both(Command::OfOperator(command), 0, |oracle, _| {
            Some(oracle.break_session(session, counts))
        });
    }

    fn act(&mut self) {
        let is_there = |one: &&Stored| !matches!(one.state, State::DeadLettered | State::Gone);
        let there = self.oracle.messages.iter().filter(is_there);
        let there: Vec<u64> = there.map(|one| one.sequence).collect();
        let mut numbers: Vec<u64> = (0..3).filter_map(|_| self.random.one_of(&there)).collect();
        numbers.sort_unstable();
        numbers.dedup();
        if numbers.is_empty() {
            return;
        }
        let breaks_locks = self.random.below(2) == 0;
        let deed = match self.random.below(4) {
            0 => Deed::Delete,
            1 => Deed::DeadLetter { reason: None, description: None },
            _ => Deed::Undefer,
        };
        let sequences = numbers.iter().copied().map(SequenceNumber).collect();
        let act = Act { step: None, sequences, deed: deed.clone(), breaks_locks, kept: None };
        let command = Command::OfOperator(OperatorCommand::Act(Box::new(act)));
        self.both(command, 0, |oracle, _| Some(oracle.act(&numbers, &deed)));
    }

    fn set_state_of_unheld(&mut self) {
        let session = self.random.one_of(&SESSIONS).unwrap();
        let state = (self.random.below(3) > 0).then_some(7u8);
        let bytes = state.map(|state| Bytes::copy_from_slice(&[state]));
        let command = OperatorCommand::SetSessionState { session: session.into(), state: bytes };
        self.both(Command::OfOperator(command), 0, |oracle, _| {
            Some(oracle.set_state_unheld(session, state))
        });
    }

    fn settle(&mut self) {
        let recent: Vec<u64> = self.tokens.keys().rev().take(8).copied().collect();
        let Some(delivery) = self.random.one_of(&recent) else { return };
        let token = self.tokens[&delivery];
        let all = [
            Settlement::Complete,
            Settlement::Complete,
            Settlement::Abandon(None),
            Settlement::Abandon(None),
            Settlement::Abandon(Some(seconds(0))),
            Settlement::Abandon(Some(seconds(1))),
            Settlement::Abandon(Some(seconds(4))),
            Settlement::Defer,
            Settlement::DeadLetter,
            Settlement::Release,
        ];
        let settlement = self.random.one_of(&all).unwrap();
        let words = match settlement {
            Settlement::Complete => peeklock_core::command::Settlement::Complete,
            Settlement::Abandon(delay) => {
                peeklock_core::command::Settlement::Abandon { properties: None, delay }
            }
            Settlement::Defer => peeklock_core::command::Settlement::Defer { properties: None },
            Settlement::DeadLetter => {
                peeklock_core::command::Settlement::DeadLetter { properties: None }
            }
            Settlement::Release => peeklock_core::command::Settlement::Release,
        };
        let command = Command::Settle { token, settlement: words };
        self.both(command, 0, |oracle, _| Some(oracle.settle(delivery, settlement)));
    }

    fn receive_deferred(&mut self, receiver: u64) {
        let deferred: Vec<u64> = self
            .oracle
            .messages
            .iter()
            .filter(|one| matches!(one.state, State::Deferred | State::LockedDeferred))
            .map(|one| one.sequence)
            .collect();
        let count = 1 + self.random.below(2);
        let numbers: Vec<u64> = (0..count).filter_map(|_| self.random.one_of(&deferred)).collect();
        let sequences = numbers.iter().copied().map(SequenceNumber).collect();
        let command = SessionCommand::ReceiveDeferred { sequences };
        self.in_session(receiver, command, |oracle, _| {
            Some(oracle.receive_deferred(receiver, &numbers))
        });
    }

    fn in_session(
        &mut self,
        receiver: u64,
        command: SessionCommand,
        model: impl FnOnce(&mut Oracle, u64) -> Option<Reply>,
    ) {
        self.both(Command::InSession { receiver: ReceiverId(receiver), command }, receiver, model);
    }

    fn both(
        &mut self,
        command: Command,
        receiver: u64,
        model: impl FnOnce(&mut Oracle, u64) -> Option<Reply>,
    ) {
        self.log.push(format!("{command:?}").chars().take(120).collect());
        // Occasionally the next operation arrives while this one is being stored.
        let lands = self.before.is_some() || self.random.below(4) > 0;
        let before = (!lands).then(|| Box::new(self.oracle.clone()));
        self.stand.commits = lands;
        let ticket = self.stand.ask(SubQueue::Main, command);
        self.oracle.advance();
        let reply = model(&mut self.oracle, ticket.0);
        if let Some(reply) = reply {
            self.oracle.answers.insert(ticket.0, reply);
        }
        self.oracle.serve();
        if lands {
            self.oracle.commit();
        }
        self.before = before;
        self.waiting.push((ticket, receiver));
        self.compare_answers();
    }

    /// Compares answers to this command and to waiting ones.
    fn compare_answers(&mut self) {
        for (ticket, receiver) in std::mem::take(&mut self.waiting) {
            let expected = self.oracle.answers.remove(&ticket.0);
            let answer = self.stand.answer(ticket);
            let found = answer.map(|answer| self.words(answer, expected.as_ref()));
            assert_eq!(found, expected, "receiver {receiver}\n{}", self.story());
            if expected.is_none() {
                self.waiting.push((ticket, receiver));
            }
        }
        assert!(self.oracle.answers.is_empty(), "{:?}", self.oracle.answers);
    }

    /// Converts an answer to the types of the model. Deliveries get the model's names, one for each
    /// token (SET-15).
    fn words(
        &mut self,
        answer: Result<MachineOutcome, Condition>,
        expected: Option<&Reply>,
    ) -> Reply {
        let outcome = match answer {
            Ok(outcome) => outcome,
            Err(condition) => return Reply::Refused(condition),
        };
        match outcome {
            MachineOutcome::Done => Reply::Done,
            MachineOutcome::Accepted(sequence) => Reply::Number(sequence.0),
            MachineOutcome::SessionAccepted { session, .. } => Reply::Accepted(session.to_string()),
            MachineOutcome::Renewed(until) => Reply::Until(until),
            MachineOutcome::Deleted(count) => Reply::Deleted(count),
            MachineOutcome::LocksBroken(count) => Reply::Broken(count),
            MachineOutcome::Acted(all) => Reply::Acted(all.iter().map(|one| one.result).collect()),
            MachineOutcome::SessionState(None) => Reply::State(None),
            MachineOutcome::SessionState(Some(StateFacts::Stored(_))) => Reply::State(Some(7)),
            MachineOutcome::SessionState(Some(StateFacts::Fresh(bytes))) => {
                Reply::State(Some(bytes[0]))
            }
            MachineOutcome::Received(all) => {
                let names: Vec<u64> = match expected {
                    Some(Reply::Messages(all)) => all.iter().map(|(.., name)| *name).collect(),
                    _ => Vec::new(),
                };
                let mut seen = Vec::new();
                for (place, facts) in all.iter().enumerate() {
                    let token = facts.lock.unwrap().token;
                    let name = names.get(place).copied().unwrap_or_default();
                    assert!(!self.tokens.values().any(|other| *other == token), "a token again");
                    self.tokens.insert(name, token);
                    seen.push((facts.sequence.0, facts.shown_delivery_count(), name));
                }
                Reply::Messages(seen)
            }
            other => panic!("{other:?}"),
        }
    }

    /// Messages, counts and sessions, as clients can see them.
    fn compare(&mut self) {
        self.stand.commits = true;
        let mut expected: Vec<(u64, u32, MessageState)> = Vec::new();
        let mut dead: Vec<(u64, u32)> = Vec::new();
        let mut with_active: Vec<String> = Vec::new();
        for message in &self.oracle.messages {
            let state = match message.state {
                State::Available | State::Locked => {
                    with_active.push(message.session.clone());
                    MessageState::Active
                }
                State::Delayed => {
                    with_active.push(message.session.clone());
                    MessageState::Delayed
                }
                State::Scheduled => MessageState::Scheduled,
                State::Deferred | State::LockedDeferred => MessageState::Deferred,
                State::DeadLettered => {
                    dead.push((message.sequence, message.count));
                    continue;
                }
                State::Gone => continue,
            };
            expected.push((message.sequence, message.count, state));
        }
        expected.sort_unstable_by_key(|(sequence, ..)| *sequence);
        dead.sort_unstable();
        with_active.sort_unstable();
        with_active.dedup();
        let look = |stand: &mut Stand, which| {
            let mut all = Vec::new();
            let mut from = SequenceNumber(0);
            loop {
                let command = Command::Peek { from, count_max: 250 };
                let Ok(MachineOutcome::Peeked(some)) = stand.on(which, command) else {
                    panic!("peek")
                };
                let Some(last) = some.last() else { return all };
                from = last.sequence.next();
                all.extend(some.iter().map(|one| (one.sequence.0, one.delivery_count, one.state)));
            }
        };
        let found = look(&mut self.stand, SubQueue::Main);
        assert_eq!(found, expected, "{}", self.story());
        let found: Vec<(u64, u32)> = look(&mut self.stand, SubQueue::DeadLetter)
            .into_iter()
            .map(|(sequence, count, _)| (sequence, count))
            .collect();
        assert_eq!(found, dead, "{}", self.story());
        let sessions = self.stand.sessions(SessionFilter::All);
        assert!(sessions.iter().eq(&self.oracle.sessions()), "{sessions:?}\n{}", self.story());
        let sessions = self.stand.sessions(SessionFilter::WithActiveMessages);
        assert_eq!(sessions, with_active, "{}", self.story());
        let counts = self.stand.describe().sessions.unwrap();
        assert_eq!(counts.locked, self.oracle.held_count(), "{}", self.story());
        let size_bytes = self.stand.describe().size_bytes;
        assert_eq!(size_bytes, self.stand.stored_bytes, "{}", self.story());
    }

    fn story(&self) -> String {
        let from = self.log.len().saturating_sub(25);
        self.log[from..].join("\n")
    }
}

fn number_of(name: &str, otherwise: u64) -> u64 {
    std::env::var(name).map_or(otherwise, |text| text.parse().unwrap())
}

/// LIF-01, with the rows of sessions, and the rules that runs must cover: CON-12, CON-26, CON-27,
/// DEF-08, EXP-20, EXP-41, EXP-43, LIF-04, RTY-01, RTY-03, RTY-17, RTY-22, RTY-23, RTY-24, RTY-25, SCH-03,
/// SES-06, SES-07, SES-15, SES-20, SES-30, SES-31, SET-13, SET-35.
#[test]
fn machine_and_model_agree() {
    let first = number_of("PEEKLOCK_SESSION_FIRST", 1);
    let count = number_of("PEEKLOCK_SESSION_SEEDS", 60);
    let mut reached: BTreeMap<&'static str, u64> = BTreeMap::new();
    for seed in first..first + count {
        let told = std::panic::catch_unwind(|| {
            let mut run = Run::new(seed);
            for _ in 0..OPERATIONS {
                run.operation();
            }
            run.oracle.reached
        });
        let Ok(rules) = told else { panic!("seed {seed} fails") };
        for (rule, times) in rules {
            *reached.entry(rule).or_default() += times;
        }
    }
    let all = [
        "CON-12",
        "CON-12 locked",
        "CON-12 undefer",
        "CON-26",
        "CON-27",
        "CON-27 held",
        "DEF-08",
        "EXP-20",
        "EXP-41",
        "EXP-43",
        "LIF-04",
        "LIF-04 in flight",
        "RTY-01",
        "RTY-03",
        "RTY-17",
        "RTY-22",
        "RTY-23",
        "RTY-24",
        "RTY-25",
        "SCH-03",
        "SES-06",
        "SES-07",
        "SES-15",
        "SES-20",
        "SES-30",
        "SES-31",
        "SET-13",
        "SET-35",
    ];
    if count >= 60 {
        let missed: Vec<_> = all.iter().filter(|rule| !reached.contains_key(*rule)).collect();
        assert!(missed.is_empty(), "{missed:?} were never met: {reached:?}");
    }
}

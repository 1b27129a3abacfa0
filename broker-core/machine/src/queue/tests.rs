//! The cost of a step in a large queue, counted in visited slots and moved messages, without a
//! clock.

mod act;
mod events;
mod inspect;
mod inspect_rows;
mod leaving;
mod operator;
mod prolonged;
mod put_back;
mod sending;
mod weighed;

use std::collections::BTreeSet;

use super::*;
use crate::config::ForwardingConfig;
use crate::description::SessionRetryOrder;
use crate::effect::Effect;
use crate::event::MessageEvent;
use crate::ids::LockToken;
use crate::limits::Limits;
use crate::message::{Message, PropertyLimits};
use crate::record::Reserved;
use crate::slot::looks;
use crate::time::TimeSpan;

const KEY: [u8; 16] = [7; 16];
/// More messages than two steps move.
const MANY: usize = 25_000;
/// Maximum slots that a step visits if it moves as many messages as it may.
const LOOKS_MAX: u64 = 16 * COMMAND_MOVES_MAX as u64;

/// A queue whose turns are one stage each.
struct Stand {
    queue: Queue,
    limits: Limits,
    now: Timestamp,
    stage: u64,
    /// Bytes that count for the quota.
    stored_bytes: u64,
    /// Slots visited and effects issued in the last turn.
    looks: u64,
    effects: Vec<Effect>,
    moves: u64,
    changes: usize,
    /// Whether events are noted, the events of all turns, and the number of locks that ended.
    notes_events: bool,
    events: Vec<MessageEvent>,
    ended: usize,
    /// The weight of its changes and answers, with the properties set on messages.
    steps: u64,
}

impl Stand {
    fn new(describe: impl FnOnce(&mut QueueDescription)) -> Self {
        let limits = Limits::default();
        let now = Timestamp::from_unix_ms(1_800_000_000_000);
        let config = QueueConfig {
            release_on_detach: false,
            release_on_connection_loss: false,
            expire_whole_sessions: true,
            duplicate_key: KEY,
            forwarding: ForwardingConfig::default(),
        };
        let mut description = QueueDescription::new("a", &limits);
        describe(&mut description);
        let queue = Queue::new(EntityId(1), description, config, now);
        Self {
            queue,
            limits,
            now,
            stage: 0,
            stored_bytes: 0,
            looks: 0,
            effects: Vec::new(),
            moves: 0,
            changes: 0,
            notes_events: false,
            events: Vec::new(),
            ended: 0,
            steps: 0,
        }
    }

    /// Takes a turn after all earlier stages became durable.
    fn turn(&mut self, sub_queue: SubQueue, command: Option<Command>) {
        self.queue.committed(StageNumber(self.stage));
        self.turn_before_commit(sub_queue, command);
    }

    /// Takes a turn while earlier stages are not durable yet.
    fn turn_before_commit(
        &mut self,
        sub_queue: SubQueue,
        commands: impl IntoIterator<Item = Command>,
    ) {
        self.turn_asking(sub_queue, commands, |answer| drop(answer.unwrap()));
    }

    /// The same, with a look at each answer.
    fn turn_asking(
        &mut self,
        sub_queue: SubQueue,
        commands: impl IntoIterator<Item = Command>,
        mut check: impl FnMut(Result<Answer, Rejection>),
    ) {
        self.stage += 1;
        let (mut step, mut tokens) = (StepOutput::default(), self.stage << 32);
        step.notes_events = self.notes_events;
        let mut ctx = Ctx {
            now: self.now,
            stage: StageNumber(self.stage),
            stored_bytes: self.stored_bytes,
            room: Reserved::Granted,
            remaining: crate::RemainingCapacity::ALL,
            limits: &self.limits,
            tokens: &mut || {
                tokens += 1;
                tokens
            },
        };
        let before = looks::all();
        self.queue.advance(&mut ctx, &mut step);
        let mut shown = 0;
        for command in commands {
            let answer =
                self.queue.apply(Ticket(self.stage), sub_queue, command, &mut ctx, &mut step);
            if let Ok(Answer::Now(Outcome::Received(all) | Outcome::Peeked(all), _)) = &answer {
                shown += all.iter().map(|facts| facts.work() as u64).sum::<u64>();
            }
            check(answer);
        }
        self.queue.serve(&mut ctx, &mut step);
        self.looks = looks::all() - before;
        self.steps = step.changes.iter().map(Change::work).sum::<u64>() + shown;
        (self.effects, self.moves, self.changes) = (step.effects, step.moves, step.changes.len());
        self.events.extend(step.events);
        self.ended += step.lock_spans.len();
    }

    fn ask(&mut self, command: Command) {
        self.turn(SubQueue::Main, Some(command));
    }

    fn wait(&mut self) {
        self.turn(SubQueue::Main, None);
    }

    fn is_due(&self) -> bool {
        self.queue.own_deadline().is_some_and(|at| at <= self.now)
    }

    /// Takes turns until no deadline is due; each stays within its bound. Returns the number of
    /// turns.
    fn settle_down(&mut self) -> usize {
        for turns in 0..100 {
            if !self.is_due() {
                self.queue.committed(StageNumber(self.stage));
                self.queue.check_invariants().unwrap();
                return turns;
            }
            self.wait();
            assert!(self.looks <= LOOKS_MAX, "a step has looked at {} slots", self.looks);
        }
        panic!("it does not settle down");
    }

    fn send(&mut self, count: usize, change: impl Fn(&mut Message)) {
        let message = || {
            let mut message = Message::new("");
            change(&mut message);
            let content = message.encode();
            let envelope = content.envelope(&PropertyLimits::default(), &KEY);
            crate::command::InboundMessage { content, envelope }
        };
        for at in (0..count).step_by(1_000) {
            let messages = (at..count.min(at + 1_000)).map(|_| message()).collect();
            self.ask(Command::SendBatch { messages });
        }
        self.wait();
    }

    fn update(&mut self, change: impl FnOnce(&mut QueueDescription)) {
        let mut description = Box::new(self.queue.description().clone());
        change(&mut description);
        self.ask(Command::Update { description, read_at: None });
    }

    /// Receives available messages under lock; returns the locks.
    fn receive(&mut self, sub_queue: SubQueue, count: usize, holder: u64) -> Vec<LockToken> {
        let receive = Command::Receive {
            mode: ReceiveMode::PeekLock,
            count_max: u32::try_from(count).unwrap(),
            bytes_max: u64::MAX,
            wait: TimeSpan::ZERO,
            holder: Some(ReceiverId(holder)),
        };
        self.turn(sub_queue, Some(receive));
        let received = self.effects.iter().find_map(|effect| match effect {
            Effect::Answer { result: Ok(Outcome::Received(messages)), .. } => Some(messages),
            _ => None,
        });
        let messages = received.expect("it is answered");
        messages.iter().filter_map(|message| message.lock).map(|lock| lock.token).collect()
    }

    fn detach(&mut self, holder: u64, end: LinkEnd) {
        self.ask(Command::Detach { receiver: ReceiverId(holder), end });
    }

    fn in_force(&self, locks: &[LockToken]) -> usize {
        locks
            .iter()
            .filter(|lock| self.queue.lock_in_force(SubQueue::Main, **lock, self.now).is_ok())
            .count()
    }

    /// Dead-letters the messages of these locks.
    fn dead_letter(&mut self, locks: &[LockToken]) {
        for lock in locks {
            let settlement = crate::command::Settlement::DeadLetter { properties: None };
            self.ask(Command::Settle { token: *lock, settlement });
        }
        self.wait();
    }
}

/// ENT-17, EXP-13: an update touches no message, even if it changes the default TTL. From then on,
/// messages without their own TTL expire by the default, in order with the others.
#[test]
fn an_update_looks_at_no_message() {
    let mut stand = Stand::new(|_| {});
    stand.send(MANY, |_| {});
    stand.send(1_000, |message| message.time_to_live = Some(TimeSpan::from_seconds(90)));
    stand.update(|queue| queue.max_delivery_count = 7);
    assert!(stand.looks < 50, "{} slots for an update of something else", stand.looks);
    for seconds in [60, 600, 60] {
        stand.update(|queue| {
            queue.default_message_time_to_live = TimeSpan::from_seconds(seconds);
        });
        assert!(stand.looks < 50, "{} slots for a new default TTL", stand.looks);
    }
    stand.now = stand.now.plus(TimeSpan::from_seconds(61));
    stand.receive(SubQueue::Main, 1, 1);
    assert!(stand.looks <= 2 * LOOKS_MAX, "{}", stand.looks);
    stand.ask(Command::Attach { receiver: ReceiverId(2), mode: ReceiveMode::PeekLock });
    stand.ask(Command::SetCredit {
        receiver: ReceiverId(2),
        delivery_limit: 2_000,
        byte_limit: u64::MAX,
        drain: crate::command::Drain::No,
    });
    stand.settle_down();
    assert_eq!(stand.queue.counts().active, 1_000, "those with a TTL of their own are there");
    stand.update(|queue| queue.default_message_time_to_live = TimeSpan::MAX);
    assert_eq!(stand.queue.counts().active, 1_000);
    assert!(stand.queue.expiry_deadline().is_none_or(|at| at > stand.now));
}

/// EXP-13, EXP-34: the clock may be set back while the broker is down; a message with an earlier
/// enqueue time and a higher number expires at its own time.
#[test]
fn message_enqueued_after_clock_setback_expires_at_its_time() {
    let mut stand = Stand::new(|queue| {
        queue.default_message_time_to_live = TimeSpan::from_seconds(60);
    });
    let later = stand.now;
    stand.send(1, |_| {});
    stand.now = stand.now.minus(TimeSpan::from_seconds(50));
    stand.send(2, |_| {});
    stand.ask(Command::Attach { receiver: ReceiverId(2), mode: ReceiveMode::PeekLock });
    let drain = crate::command::Drain::No;
    let grant =
        Command::SetCredit { receiver: ReceiverId(2), delivery_limit: 9, byte_limit: 0, drain };
    stand.ask(grant);
    assert_eq!(stand.queue.counts().active, 3);
    stand.now = later.plus(TimeSpan::from_seconds(11));
    stand.wait();
    assert_eq!(stand.queue.counts().active, 1, "the other two are over");
    stand.now = later.plus(TimeSpan::from_seconds(61));
    stand.wait();
    assert_eq!(stand.queue.counts().active, 0);
}

/// SCH-05, SCH-07: scheduling and cancelling visits only scheduled messages, regardless of the size
/// of the queue and of the number of requests.
#[test]
fn cancelling_visits_only_scheduled_messages() {
    let mut stand = Stand::new(|_| {});
    stand.send(MANY, |_| {});
    let at = stand.now.plus(TimeSpan::from_minutes(60));
    let mut worst = 0;
    for _ in 0..20 {
        stand.send(200, |message| {
            message.scheduled_enqueue_time = Some(at);
        });
        let last = stand.queue.last_sequence.0;
        let sequences: Vec<_> = (last - 199..=last).map(SequenceNumber).collect();
        stand.ask(Command::CancelScheduled { sequences });
        worst = worst.max(stand.looks);
    }
    assert!(worst <= 200 * 16, "{worst} slots for two hundred");
    assert!(stand.queue.schedule.is_empty());
}

/// FWD-27, FWD-28: when forwarding is switched on or off, messages of the main queue change
/// together and dead letters in slices. No receiver gets a dead letter that is not sorted, and no
/// later one overtakes it (FWD-10).
#[test]
fn a_new_destination_is_heeded_in_slices() {
    let mut stand = Stand::new(|_| {});
    stand.send(MANY, |_| {});
    stand.update(|queue| queue.forward_to = Some("b".into()));
    assert!(stand.looks < 1_000, "{} slots at once", stand.looks);
    assert_eq!(stand.queue.transfers.waiting_of(SubQueue::Main).unwrap().len(), MANY as u64);
    stand.update(|queue| queue.forward_to = None);
    assert!(stand.looks < 1_000, "{} slots at once", stand.looks);
    stand.queue.check_invariants().unwrap();
    let locks = stand.receive(SubQueue::Main, MANY, 1);
    assert_eq!(locks.len(), MANY);
    stand.dead_letter(&locks);
    let spent = stand.queue.config.forwarding.hop_count_max;
    stand.queue.slots.get_mut(locks[1].sequence()).unwrap().hops = spent;
    stand.update(|queue| queue.forward_dead_lettered_messages_to = Some("b".into()));
    assert!(stand.looks <= LOOKS_MAX, "{} slots at once", stand.looks);
    stand.queue.committed(StageNumber(stand.stage));
    stand.queue.check_invariants().unwrap();
    assert!(stand.is_due() && stand.queue.transfers.has_to_reoffer());
    stand.wait();
    assert!(!stand.effects.iter().any(|effect| matches!(effect, Effect::HandOver(_))));
    assert!(stand.settle_down() >= 1);
    let waiting = stand.queue.transfers.waiting_of(SubQueue::DeadLetter).unwrap().len();
    let under_way = stand.queue.transfers.under_way().count() as u64;
    assert_eq!(
        (waiting + under_way, stand.queue.dead_letter.available.len()),
        (MANY as u64 - 1, 1)
    );
    stand.update(|queue| queue.forward_dead_lettered_messages_to = None);
    assert!(stand.looks <= LOOKS_MAX, "{} slots at once", stand.looks);
    stand.settle_down();
    assert_eq!(stand.queue.dead_letter.available.len() + under_way, MANY as u64);
}

fn in_sessions(stand: &mut Stand, count: usize) {
    stand.send(count, |message| message.session_id = Some("s".into()));
}

fn accept(stand: &mut Stand, receiver: u64) {
    stand.ask(Command::AcceptSession {
        session: Some("s".into()),
        receiver: ReceiverId(receiver),
        mode: ReceiveMode::PeekLock,
        wait: TimeSpan::ZERO,
    });
}

fn receive_in_session(stand: &mut Stand, receiver: u64, count: usize) -> Vec<LockToken> {
    let command = crate::command::SessionCommand::Receive {
        count_max: u32::try_from(count).unwrap(),
        bytes_max: u64::MAX,
        wait: TimeSpan::ZERO,
    };
    stand.ask(Command::InSession { receiver: ReceiverId(receiver), command });
    let found = stand.effects.iter().find_map(|effect| match effect {
        Effect::Answer { result: Ok(Outcome::Received(messages)), .. } => Some(messages),
        _ => None,
    });
    found.unwrap().iter().filter_map(|one| one.lock).map(|lock| lock.token).collect()
}

/// RTY-23: a new retry order is applied in slices; while messages should hold up others and do not
/// yet, their session delivers nothing.
#[test]
fn a_new_retry_order_is_heeded_in_slices() {
    let mut stand = Stand::new(|queue| {
        queue.requires_session = true;
        queue.max_delivery_count = 100;
        queue.session_retry_order = SessionRetryOrder::Pass;
    });
    in_sessions(&mut stand, MANY + 1);
    accept(&mut stand, 1);
    for token in receive_in_session(&mut stand, 1, MANY) {
        let delay = Some(TimeSpan::from_minutes(10));
        let settlement = crate::command::Settlement::Abandon { properties: None, delay };
        stand.ask(Command::Settle { token, settlement });
    }
    stand.wait();
    assert_eq!(stand.queue.counts().delayed, MANY as u64);
    stand.update(|queue| queue.session_retry_order = SessionRetryOrder::Hold);
    assert!(stand.looks <= LOOKS_MAX, "{} slots at once", stand.looks);
    assert!(stand.is_due());
    assert_eq!(receive_in_session(&mut stand, 1, 1).len(), 0);
    assert!(stand.settle_down() <= 3);
    assert_eq!(receive_in_session(&mut stand, 1, 1).len(), 0, "it is held up");
    stand.update(|queue| queue.session_retry_order = SessionRetryOrder::Pass);
    assert!(stand.looks <= LOOKS_MAX, "{} slots at once", stand.looks);
    stand.settle_down();
    assert_eq!(receive_in_session(&mut stand, 1, 1).len(), 1);
}

/// SET-21, SET-31: when its link ends, a holder loses all its locks at once, and its messages
/// return in slices, in the order of locking. A broken connection counts as a delivery; an end by
/// the broker does not.
#[test]
fn the_locks_of_a_holder_end_in_slices() {
    for (end, counted) in [(LinkEnd::Broken, 1), (LinkEnd::ByBroker, 0)] {
        let mut stand = Stand::new(|_| {});
        stand.send(MANY, |_| {});
        let locks = stand.receive(SubQueue::Main, MANY, 1);
        stand.detach(1, end);
        assert!(stand.looks <= LOOKS_MAX, "{} slots at once", stand.looks);
        assert_eq!(stand.moves, COMMAND_MOVES_MAX as u64);
        assert_eq!(stand.in_force(&locks), 0, "SET-20");
        let available = &stand.queue.main.available;
        let returned: Vec<_> = available.iter_from(SequenceNumber(0)).collect();
        let first: Vec<_> = locks.iter().map(|lock| lock.sequence()).take(returned.len()).collect();
        assert_eq!((returned.len(), returned), (COMMAND_MOVES_MAX, first));
        // A lock that expires before its slice ends like its link did.
        stand.now = stand.now.plus(stand.queue.description.lock_duration);
        let turns = stand.settle_down();
        assert_eq!(turns, 2, "{end:?}");
        assert_eq!(stand.queue.main.available.len(), MANY as u64);
        let counts: BTreeSet<u32> =
            stand.queue.slots.iter().map(|(_, slot)| slot.delivery_count).collect();
        assert_eq!(counts, BTreeSet::from([counted]), "{end:?}");
    }
}

/// SET-21: the ends of several links in one turn share one bound, each by its weight; waiting links
/// end one after the other.
#[test]
fn holders_that_end_together_wait_for_each_other() {
    let mut stand = Stand::new(|_| {});
    stand.send(MANY, |_| {});
    for holder in 1..=5 {
        stand.receive(SubQueue::Main, MANY / 5, holder);
    }
    let locked = stand.queue.locks.len();
    for holder in (1..=5).rev() {
        stand.detach(holder, LinkEnd::Broken);
        assert!(stand.looks <= LOOKS_MAX && stand.moves <= 2 * COMMAND_MOVES_MAX as u64);
    }
    stand.settle_down();
    assert_eq!((locked, stand.queue.locks.len()), (MANY, 0));
}

/// SES-30, SES-31: a session hold ends at once, and its messages return in slices; the next
/// receiver gets the session when all have returned.
#[test]
fn the_locks_under_a_hold_end_in_slices() {
    for (end, counted) in [(Some(LinkEnd::Broken), 1), (Some(LinkEnd::Orderly), 0), (None, 1)] {
        let mut stand = Stand::new(|queue| queue.requires_session = true);
        in_sessions(&mut stand, MANY);
        accept(&mut stand, 1);
        let locks = receive_in_session(&mut stand, 1, MANY);
        assert_eq!(locks.len(), MANY);
        match end {
            Some(end) => stand.detach(1, end),
            None => {
                stand.now = stand.now.plus(stand.queue.description.lock_duration);
                stand.wait();
            }
        }
        assert!(stand.looks <= LOOKS_MAX, "{} slots at once", stand.looks);
        let ends = |effect: &&Effect| matches!(effect, Effect::SessionEnded { .. });
        assert_eq!(stand.effects.iter().filter(ends).count(), 1, "its holder is told once");
        assert_eq!(stand.in_force(&locks), 0, "SES-15");
        assert!(stand.is_due());
        stand.queue.committed(StageNumber(stand.stage));
        stand.queue.check_invariants().unwrap();
        let turns = stand.settle_down();
        assert_eq!(turns, 2, "{end:?}");
        accept(&mut stand, 2);
        let again = receive_in_session(&mut stand, 2, MANY);
        let numbers: Vec<_> = again.iter().map(|lock| lock.sequence()).collect();
        assert_eq!(numbers, locks.iter().map(|lock| lock.sequence()).collect::<Vec<_>>());
        let counts: BTreeSet<u32> =
            stand.queue.slots.iter().map(|(_, slot)| slot.delivery_count).collect();
        assert_eq!(counts, BTreeSet::from([counted]), "{end:?}");
    }
}

/// RCV-17, RCV-18: a step serves a bounded number of messages and continues at once with waiting
/// receivers, in turn; a receiver that drains is answered in its turn.
#[test]
fn demand_is_served_in_slices() {
    let mut stand = Stand::new(|_| {});
    stand.send(10_000, |_| {});
    let mut delivered = [0; 4];
    let count = |stand: &Stand, delivered: &mut [usize; 4]| {
        let mut all = 0;
        for effect in &stand.effects {
            if let Effect::Deliver { receiver, .. } = effect {
                delivered[usize::try_from(receiver.0).unwrap()] += 1;
                all += 1;
            }
        }
        all
    };
    for receiver in 0..4 {
        let receiver = ReceiverId(receiver);
        stand.ask(Command::Attach { receiver, mode: ReceiveMode::PeekLock });
    }
    let grants: Vec<Command> = (0..4)
        .map(|receiver| Command::SetCredit {
            receiver: ReceiverId(receiver),
            delivery_limit: 2_000,
            byte_limit: u64::MAX,
            drain: match receiver {
                3 => crate::command::Drain::Yes,
                _ => crate::command::Drain::No,
            },
        })
        .collect();
    let (mut turns, mut is_drained) = (0, false);
    for grant in grants {
        stand.ask(grant);
        assert!(count(&stand, &mut delivered) <= SERVED_PER_STEP + 16);
        turns += 1;
        is_drained |= stand.effects.iter().any(|effect| matches!(effect, Effect::Answer { .. }));
    }
    while stand.is_due() {
        assert!(!is_drained, "with credit and messages left");
        stand.wait();
        turns += 1;
        assert!(count(&stand, &mut delivered) <= SERVED_PER_STEP + 16);
        is_drained |= stand.effects.iter().any(|effect| matches!(effect, Effect::Answer { .. }));
    }
    assert_eq!((delivered, is_drained), ([2_000; 4], true));
    assert!((8..=12).contains(&turns), "{turns} turns");
}

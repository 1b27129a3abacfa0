//! Compares the cost of a command in a large queue with its announced number of steps (decision
//! 33). A command of one step visits a handful of slots, regardless of the size of the queue.

use super::*;
use crate::command::{Drain, SessionCommand, Settlement};
use crate::description::EntityStatus;
use crate::message::{Overlay, Value};
use crate::transaction::{Operation, Part};

/// Maximum slots visited per step, and by any command in addition.
const LOOKS_EACH: u64 = 16;
const LOOKS_ANYHOW: u64 = 32;
/// Effects of any command in addition to its result.
const EFFECTS_ANYHOW: u64 = 4;

impl Stand {
    /// Advances the clock, so that a batch delete removes all existing messages.
    fn age(&mut self) {
        self.now = self.now.plus(TimeSpan::from_seconds(1));
    }

    /// Sets properties `times` times on each of `count` available messages.
    fn add_overlays(&mut self, count: usize, times: u64) {
        for _ in 0..times {
            let locks = self.receive(SubQueue::Main, count, 1);
            self.set_on_each(locks);
        }
    }

    /// Abandons messages with properties set on each.
    fn set_on_each(&mut self, locks: Vec<LockToken>) {
        let properties = Overlay::encode(&[("p".to_owned(), Value::I32(1))]).unwrap();
        for token in locks {
            let properties = Some(properties.clone());
            let settlement = Settlement::Abandon { properties, delay: None };
            self.ask(Command::Settle { token, settlement });
        }
        self.wait();
    }

    fn steps_of(&self, command: &Command) -> u64 {
        self.queue.work_of_command(command, self.now, &self.limits)
    }

    /// Carries out a command, and compares its visited slots, moves and effects with its announced
    /// steps.
    fn weigh(&mut self, sub_queue: SubQueue, command: Command) {
        self.queue.committed(StageNumber(self.stage));
        self.weigh_before_commit(sub_queue, command);
    }

    /// Does the same while earlier stages are not durable yet.
    fn weigh_before_commit(&mut self, sub_queue: SubQueue, command: Command) {
        let told = format!("{command:?}");
        let steps = self.steps_of(&command);
        self.turn_before_commit(sub_queue, Some(command));
        // The weight of delivered messages is added to the demand.
        let delivered_by = |effect: &Effect| match effect {
            Effect::Deliver { facts, .. } => facts.work() as u64,
            _ => 0,
        };
        let delivered: u64 = self.effects.iter().map(delivered_by).sum();
        let all = steps + delivered;
        let most = LOOKS_ANYHOW + LOOKS_EACH * all;
        assert!(self.looks <= most, "{} slots for {steps} steps of {told}", self.looks);
        let moved = self.moves.max(self.steps);
        assert!(moved <= all, "{moved} messages moved in {steps} steps of {told}");
        let effects = self.effects.len() as u64;
        assert!(effects <= EFFECTS_ANYHOW + all, "{effects} effects of {steps} steps of {told}");
    }
}

fn peek(count_max: u32) -> Command {
    Command::Peek { from: SequenceNumber(0), count_max }
}

fn receive(count_max: u32, holder: u64) -> Command {
    Command::Receive {
        mode: ReceiveMode::PeekLock,
        count_max,
        bytes_max: u64::MAX,
        wait: TimeSpan::ZERO,
        holder: Some(ReceiverId(holder)),
    }
}

/// DESIGN D6: with many messages of every state, a command visits at most the slots of its
/// announced steps.
#[test]
fn command_visits_at_most_its_announced_steps() {
    let mut stand = Stand::new(|queue| queue.max_delivery_count = 1_000);
    stand.send(MANY, |_| {});
    let locks = stand.receive(SubQueue::Main, 9_000, 1);
    let (dead, rest) = locks.split_at(3_000);
    stand.dead_letter(dead);
    let (delayed, deferred) = rest.split_at(3_000);
    let settle = |token: &LockToken, settlement| Command::Settle { token: *token, settlement };
    for token in delayed {
        let delay = Some(TimeSpan::from_minutes(10));
        stand.ask(settle(token, Settlement::Abandon { properties: None, delay }));
    }
    for token in deferred {
        stand.ask(settle(token, Settlement::Defer { properties: None }));
    }
    let at = stand.now.plus(TimeSpan::from_minutes(60));
    stand.send(2_000, |message| message.scheduled_enqueue_time = Some(at));
    let scheduled = stand.queue.last_sequence;
    let locked = stand.receive(SubQueue::Main, 4_000, 2);
    stand.age();
    let first = |all: &[LockToken]| -> Vec<SequenceNumber> {
        all.iter().take(3).map(|lock| lock.sequence()).collect()
    };
    let (main, dead_letters) = (SubQueue::Main, SubQueue::DeadLetter);
    let (before, now) = (Some(stand.now.minus(TimeSpan::from_minutes(1))), None);
    for sub_queue in [main, dead_letters] {
        for count_max in [1, 100] {
            stand.weigh(sub_queue, peek(count_max));
            stand.weigh(sub_queue, receive(count_max, 3));
            for enqueued_before in [before, now] {
                stand.weigh(sub_queue, Command::DeleteBatch { count_max, enqueued_before });
            }
        }
    }
    let mode = ReceiveMode::PeekLock;
    let sequences = first(deferred);
    stand.weigh(main, Command::ReceiveDeferred { mode, sequences, holder: None });
    let sequence = deferred[5].sequence();
    stand.weigh(main, Command::DeleteDeferred { sequence });
    stand.weigh(main, Command::CancelScheduled { sequences: vec![scheduled] });
    let operation = Operation::RenewLock { token: locked[0] };
    stand.weigh(main, Command::Check { operation });
    stand.weigh(main, Command::RenewLock { token: locked[0] });
    stand.weigh(main, settle(&locked[0], Settlement::Complete));
    let operation = Operation::Settle {
        token: locked[1],
        settlement: Settlement::Abandon { properties: None, delay: None },
    };
    let parts = vec![Part { member: None, sub_queue: main, operation, numbers: Vec::new() }];
    stand.weigh(main, Command::Commit { parts });
    stand.weigh(main, Command::Describe);
    for link in [ReceiverId(8), ReceiverId(9)] {
        stand.weigh(main, Command::Attach { receiver: link, mode });
        for (delivery_limit, drain) in [(1, Drain::No), (40, Drain::Yes)] {
            let byte_limit = u64::MAX;
            stand.weigh(
                main,
                Command::SetCredit { receiver: link, delivery_limit, byte_limit, drain },
            );
        }
    }
    for holder in [7, 9, 2] {
        let detach = Command::Detach { receiver: ReceiverId(holder), end: LinkEnd::Broken };
        stand.weigh(main, detach);
    }
    let updates: [fn(&mut QueueDescription); 5] = [
        |queue| queue.max_delivery_count = 900,
        |queue| queue.default_message_time_to_live = TimeSpan::from_minutes(500),
        |queue| queue.forward_dead_lettered_messages_to = Some("b".into()),
        |queue| queue.forward_to = Some("b".into()),
        |queue| queue.status = EntityStatus::ReceiveDisabled,
    ];
    for change in updates {
        stand.settle_down();
        let mut description = Box::new(stand.queue.description().clone());
        change(&mut description);
        stand.weigh(main, Command::Update { description, read_at: None });
    }
}

/// DESIGN D6, PEK-03, DEL-03: messages on their way to the store are skipped, and their slots are
/// part of the announced steps.
#[test]
fn skipped_messages_are_weighed() {
    let mut stand = Stand::new(|queue| queue.max_delivery_count = 1_000);
    stand.send(MANY, |_| {});
    let locks = stand.receive(SubQueue::Main, 3_000, 1);
    stand.queue.committed(StageNumber(stand.stage));
    stand.age();
    for token in locks {
        let delay = Some(TimeSpan::from_minutes(10));
        let settlement = Settlement::Abandon { properties: None, delay };
        let settle = Command::Settle { token, settlement };
        stand.turn_before_commit(SubQueue::Main, Some(settle));
    }
    stand.weigh_before_commit(SubQueue::Main, peek(1));
    let delete = Command::DeleteBatch { count_max: 1, enqueued_before: None };
    stand.weigh_before_commit(SubQueue::Main, delete);
}

/// DESIGN D6, RTY-13, DEL-07: with many Delayed messages in a held session, a request for messages
/// of other sessions visits none of them.
#[test]
fn held_session_is_not_visited_for_others() {
    let mut stand = Stand::new(|queue| {
        queue.requires_session = true;
        queue.max_delivery_count = 1_000;
    });
    in_sessions(&mut stand, 6_000);
    accept(&mut stand, 1);
    for token in receive_in_session(&mut stand, 1, 5_000) {
        let delay = Some(TimeSpan::from_minutes(10));
        let settlement = Settlement::Abandon { properties: None, delay };
        stand.ask(Command::Settle { token, settlement });
    }
    stand.send(100, |message| message.session_id = Some("t".into()));
    stand.age();
    let main = SubQueue::Main;
    let (count_max, enqueued_before) = (1, None);
    stand.weigh(main, Command::DeleteBatchUnlocked { count_max, enqueued_before });
    assert_eq!(stand.queue.counts().total(), 6_099, "one of the other session is gone");
    let in_session = |command| Command::InSession { receiver: ReceiverId(1), command };
    stand.weigh(main, in_session(SessionCommand::DeleteBatch { count_max, enqueued_before }));
    stand.weigh(main, in_session(SessionCommand::GetState));
    stand.weigh(main, in_session(SessionCommand::Renew));
    let (bytes_max, wait) = (u64::MAX, TimeSpan::ZERO);
    stand.weigh(main, in_session(SessionCommand::Receive { count_max, bytes_max, wait }));
    let from = SequenceNumber(0);
    stand.weigh(main, Command::PeekSession { session: "s".into(), from, count_max });
    stand.weigh(
        main,
        Command::AcceptSession {
            session: Some("t".into()),
            receiver: ReceiverId(2),
            mode: ReceiveMode::PeekLock,
            wait,
        },
    );
    let end = LinkEnd::Orderly;
    stand.weigh(main, Command::Detach { receiver: ReceiverId(1), end });
    stand.queue.committed(StageNumber(stand.stage));
    stand.queue.check_invariants().unwrap();
    // No session is held any more, and these are the oldest messages (RTY-13).
    let before = stand.queue.counts().delayed;
    stand.weigh(main, Command::DeleteBatchUnlocked { count_max: 10, enqueued_before });
    assert_eq!(stand.queue.counts().delayed, before - 10);
}

/// DESIGN D6, ENT-24: waiting receivers of a disabled queue are refused; each refusal is a step of
/// the update.
#[test]
fn refused_receivers_are_weighed() {
    let mut stand = Stand::new(|_| {});
    for receiver in 0..2_000 {
        let receiver = ReceiverId(receiver);
        stand.ask(Command::Attach { receiver, mode: ReceiveMode::PeekLock });
    }
    let mut description = Box::new(stand.queue.description().clone());
    description.status = EntityStatus::ReceiveDisabled;
    stand.weigh(SubQueue::Main, Command::Update { description, read_at: None });
    let ends = |effect: &&Effect| matches!(effect, Effect::Detached { .. });
    assert_eq!(stand.effects.iter().filter(ends).count(), 2_000);
}

/// SET-41, DESIGN D6: properties set on messages are stored, read and removed with them, so they
/// count in the stored bytes and in the messages that a step delivers and removes.
#[test]
fn overlays_count_in_delivered_and_removed_messages() {
    const COUNT: u64 = 150;
    /// Updates of each message; together they weigh a hundred steps.
    const TIMES: u64 = 99;
    let mut stand = Stand::new(|queue| queue.max_delivery_count = 1_000);
    stand.send(150, |_| {});
    stand.add_overlays(150, TIMES);
    assert_eq!(stand.queue.kept_in_memory().messages, COUNT * (1 + TIMES));
    let receiver = ReceiverId(2);
    stand.ask(Command::Attach { receiver, mode: ReceiveMode::PeekLock });
    stand.ask(Command::SetCredit {
        receiver,
        delivery_limit: COUNT,
        byte_limit: u64::MAX,
        drain: Drain::No,
    });
    let is_delivery = |effect: &&Effect| matches!(effect, Effect::Deliver { .. });
    let delivered = stand.effects.iter().filter(is_delivery).count() as u64;
    let most = 2 * SERVED_PER_STEP as u64;
    assert!(delivered > 0 && delivered * (1 + TIMES) < most, "{delivered} in one step");
    stand.age();
    stand.ask(Command::DeleteBatch { count_max: 150, enqueued_before: None });
    let most = COMMAND_MOVES_MAX as u64 / TIMES + 2;
    assert!(stand.changes > 0 && stand.changes as u64 <= most, "{} at once", stand.changes);
}

/// SET-41, DESIGN D6: the weight of a command that reads, moves or removes messages includes the
/// properties set on them, so that it waits for a long turn. Without such properties the weight is
/// unchanged.
#[test]
fn overlays_are_weighed() {
    const TIMES: u64 = 30;
    let mut stand = Stand::new(|queue| queue.max_delivery_count = 1_000);
    stand.send(200, |_| {});
    let delete = |count_max| Command::DeleteBatch { count_max, enqueued_before: None };
    for command in [peek(100), delete(100), receive(100, 1)] {
        assert_eq!(stand.steps_of(&command), 100, "{command:?}");
    }
    stand.add_overlays(200, TIMES);
    stand.age();
    for command in [peek(100), delete(100), receive(100, 1)] {
        let steps = stand.steps_of(&command);
        assert!((3_100..6_200).contains(&steps), "{steps} steps of {command:?}");
        assert!(stand.queue.is_long_command(&command, stand.now, &stand.limits), "{command:?}");
    }
    let main = SubQueue::Main;
    stand.weigh(main, peek(100));
    let locks = stand.receive(main, 60, 1);
    let complete =
        |token: &LockToken| Command::Settle { token: *token, settlement: Settlement::Complete };
    stand.weigh(main, complete(&locks[0]));
    assert_eq!(stand.steps, 1 + TIMES);
    let part = |token: &LockToken| {
        let operation = Operation::Settle { token: *token, settlement: Settlement::Complete };
        Part { member: None, sub_queue: main, operation, numbers: Vec::new() }
    };
    stand.weigh(main, Command::Commit { parts: locks[1..4].iter().map(part).collect() });
    assert_eq!(stand.steps, 3 * (1 + TIMES));
    for token in &locks[4..24] {
        let settlement = Settlement::Defer { properties: None };
        stand.ask(Command::Settle { token: *token, settlement });
    }
    let sequences = locks[4..9].iter().map(|lock| lock.sequence()).collect();
    let mode = ReceiveMode::ReceiveAndDelete;
    stand.weigh(main, Command::ReceiveDeferred { mode, sequences, holder: None });
    assert_eq!(stand.steps, 2 * 5 * (1 + TIMES), "they are shown, and removed");
    stand.weigh(main, Command::DeleteDeferred { sequence: locks[9].sequence() });
    assert_eq!(stand.steps, 1 + TIMES);
    stand.weigh(main, delete(100));
    assert_eq!(stand.steps, 100 * (1 + TIMES));
    stand.settle_down();
}

/// SET-41, EXP-28, DESIGN D6: messages that expired under their locks are removed with their
/// properties; the end of a link, of a hold or of lock times removes at most as many messages per
/// step as it may move.
#[test]
fn overlays_count_when_locks_end() {
    const COUNT: usize = 150;
    /// Updates of each message; together they weigh a hundred steps.
    const TIMES: u64 = 99;
    let describe = |requires_session| {
        move |queue: &mut QueueDescription| {
            queue.requires_session = requires_session;
            queue.max_delivery_count = 1_000;
            queue.default_message_time_to_live = TimeSpan::from_seconds(90);
            queue.lock_duration = TimeSpan::from_minutes(5);
        }
    };
    let judge = |mut stand: Stand, end: fn(&mut Stand)| {
        stand.now = stand.now.plus(TimeSpan::from_seconds(91));
        stand.wait();
        assert_eq!(stand.queue.counts().total(), COUNT as u64, "they are locked");
        end(&mut stand);
        let most = COMMAND_MOVES_MAX / 100;
        assert!(stand.changes > 0 && stand.changes <= most + 1, "{} at once", stand.changes);
        stand.settle_down();
        assert_eq!(stand.queue.counts().total(), 0);
    };
    let ends: [fn(&mut Stand); 2] = [
        |stand| {
            let detach = Command::Detach { receiver: ReceiverId(1), end: LinkEnd::Broken };
            stand.weigh(SubQueue::Main, detach);
        },
        |stand| {
            stand.now = stand.now.plus(TimeSpan::from_minutes(5));
            stand.wait();
        },
    ];
    for end in ends {
        let mut stand = Stand::new(describe(false));
        stand.send(COUNT, |_| {});
        stand.add_overlays(COUNT, TIMES);
        stand.receive(SubQueue::Main, COUNT, 1);
        judge(stand, end);
        let mut stand = Stand::new(describe(true));
        in_sessions(&mut stand, COUNT);
        accept(&mut stand, 1);
        for _ in 0..TIMES {
            let locks = receive_in_session(&mut stand, 1, COUNT);
            stand.set_on_each(locks);
        }
        receive_in_session(&mut stand, 1, COUNT);
        judge(stand, end);
    }
}

//! Messages that the step of a job sends: they leave as a list, and their receipt has the results.

use super::act::{act, of_job, results};
use super::*;
use crate::command::{Act, ActResult, Deed, RECEIPT_AGE_MAX, RECEIPT_COUNT_MAX, Route};
use crate::condition::Condition;
use crate::transfer::{Departure, HandOver, WhenFull};

use ActResult::{DestinationFull, Done, Duplicate, Expired, Leaving, Locked, NotFound, WrongState};

const MAIN: SubQueue = SubQueue::Main;

fn moved(numbers: &[u64], number: u64) -> Act {
    of_job(7, number, act(numbers, Deed::Move { to: "b".into(), edit: None }))
}

fn refusal(condition: Condition) -> Departure {
    Departure::NotAdmitted(Rejection::new(condition, "no"))
}

impl Stand {
    /// The list that the last turn handed over.
    fn list(&self) -> Option<&HandOver> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::HandOver(list) => Some(&**list),
            _ => None,
        })
    }

    fn numbers_on_list(&self) -> Vec<u64> {
        let list = self.list().map(|list| &list.messages);
        list.into_iter().flatten().map(|message| message.facts.sequence.0).collect()
    }

    /// Ends the list of the last turn.
    fn end_list(&mut self, departures: Vec<Departure>) {
        let list = self.list().expect("a list is on its way").list;
        self.ask(Command::EndTransfer { list, departures });
        self.queue.check_invariants().unwrap();
    }

    /// The queue after a restart: rebuilt from its slots and receipts.
    fn restart(&mut self) {
        let description = QueueDescription::new("a", &self.limits);
        let mut queue = Queue::new(EntityId(1), description, self.queue.config, self.now);
        let mut batch = crate::record::Batch::default();
        self.queue.write_creation(&mut batch);
        for receipt in self.queue.receipts.iter() {
            self.queue.records(&Change::Receipted(Box::new(receipt.clone())), &mut batch);
        }
        for (sequence, slot) in self.queue.slots.iter() {
            let change = Change::DeliveryCounted {
                sequence,
                delivery_count: slot.delivery_count,
                delayed_until: None,
            };
            self.queue.records(&change, &mut batch);
        }
        for record in batch.records() {
            if let crate::record::Record::Put { key, value, .. } = record {
                queue.restore(key, value).unwrap();
            }
        }
        queue.restored(self.now);
        self.queue = queue;
        self.queue.check_invariants().unwrap();
    }
}

/// CON-12, CON-15: messages that a step sends are frozen until it is durable, and leave in one list
/// with their way. A repetition of the step reports the results as they come, and the next step
/// waits for all these messages.
#[test]
fn sent_messages_leave_and_a_repetition_reports_them() {
    let mut stand = Stand::new(|_| {});
    stand.send(5, |_| {});
    let locks = stand.receive(MAIN, 1, 1);
    let step = moved(&[1, 2, 3, 9], 1);
    assert_eq!(results(&mut stand, MAIN, step.clone()), [Locked, Leaving, Leaving, NotFound]);
    assert_eq!(stand.list().map(|list| list.list), None, "the step is not durable");
    assert_eq!(stand.receive(MAIN, 9, 1).len(), 2, "only 4 and 5 are available");
    // The first turn after the step is durable was the turn of the receiver.
    let next = moved(&[4], 2);
    let busy = super::act::ask(&mut stand, MAIN, next.clone()).unwrap_err();
    assert_eq!(busy, Condition::ServerBusy);
    assert_eq!(stand.in_force(&locks), 1);

    let mut stand = Stand::new(|_| {});
    stand.send(3, |_| {});
    results(&mut stand, MAIN, moved(&[2, 3], 1));
    stand.wait();
    let list = stand.list().unwrap();
    assert_eq!((&*list.destination, list.when_full), ("b", WhenFull::Stop));
    let route = Route { to: Some("b".into()), is_resubmit: false, edit: None };
    assert_eq!(list.route, Some(route));
    assert_eq!(stand.numbers_on_list(), [2, 3]);
    stand.end_list(vec![Departure::Taken, Departure::Duplicate]);
    assert_eq!(results(&mut stand, MAIN, moved(&[2, 3], 1)), [Done, Duplicate]);
    assert_eq!(stand.queue.counts().active, 2);
    assert_eq!(stand.receive(MAIN, 9, 1).len(), 2, "the duplicate is available again");
    assert_eq!(results(&mut stand, MAIN, moved(&[9], 2)), [NotFound]);
}

/// CON-17: each refusal of the destination has its result, and the message stays where it was. At a
/// full destination all messages that have not left stay.
#[test]
fn refused_messages_stay_with_their_results() {
    for (condition, result) in [
        (Condition::EntityNotFound, ActResult::NoDestination),
        (Condition::EntityDisabled, ActResult::DestinationDisabled),
        (Condition::QuotaExceeded, DestinationFull),
        (Condition::MessageSizeExceeded, ActResult::DestinationTooSmall),
        (Condition::SessionIdIsNull, ActResult::NoSession),
        (Condition::ArgumentError, ActResult::Refused),
    ] {
        let mut stand = Stand::new(|_| {});
        stand.send(3, |_| {});
        results(&mut stand, MAIN, moved(&[1, 2, 3], 1));
        stand.wait();
        stand.end_list(vec![Departure::Taken, refusal(condition), Departure::NotTried]);
        let last = if result == DestinationFull { DestinationFull } else { Leaving };
        assert_eq!(results(&mut stand, MAIN, moved(&[1, 2, 3], 1)), [Done, result, last]);
        if last == Leaving {
            assert_eq!(stand.numbers_on_list(), [3], "it is offered again at once");
            stand.end_list(vec![Departure::Taken]);
        }
        let left = stand.queue.counts().active;
        assert_eq!(left, if last == Leaving { 1 } else { 2 });
        assert_eq!(stand.receive(MAIN, 9, 1).len() as u64, left);
    }
    // A reason that may pass is no result.
    let mut stand = Stand::new(|_| {});
    stand.send(1, |_| {});
    results(&mut stand, MAIN, moved(&[1], 1));
    stand.wait();
    stand.end_list(vec![refusal(Condition::ServerBusy)]);
    assert_eq!(results(&mut stand, MAIN, moved(&[1], 1)), [Leaving]);
    assert!(!stand.is_due());
    // It returns to receivers if it does not pass, and its job tries again later.
    for _ in 1..10 {
        assert_eq!(results(&mut stand, MAIN, moved(&[1], 1)), [Leaving]);
        stand.now = stand.now.plus(TimeSpan::from_seconds(1));
        stand.wait();
        assert_eq!(stand.numbers_on_list(), [1]);
        stand.end_list(vec![refusal(Condition::ServerBusy)]);
    }
    assert_eq!(results(&mut stand, MAIN, moved(&[1], 1)), [DestinationFull]);
    assert_eq!(stand.receive(MAIN, 9, 1).len(), 1);
}

/// CON-15: after a restart, a message that was leaving and exists leaves again, and one that no
/// longer exists is at its destination.
#[test]
fn restart_continues_a_step_that_sends() {
    let mut stand = Stand::new(|_| {});
    stand.send(3, |_| {});
    results(&mut stand, MAIN, moved(&[1, 2], 1));
    stand.wait();
    assert_eq!(stand.numbers_on_list(), [1, 2]);
    // The batch of the destination has removed 1. The answer was lost.
    stand.queue.take(SequenceNumber(1));
    stand.restart();
    assert_eq!(results(&mut stand, MAIN, moved(&[1, 2], 1)), [Done, Leaving]);
    assert_eq!(stand.numbers_on_list(), [2]);
    stand.end_list(vec![Departure::Taken]);
    assert_eq!(results(&mut stand, MAIN, moved(&[1, 2], 1)), [Done, Done]);
    stand.restart();
    assert_eq!(results(&mut stand, MAIN, moved(&[1, 2], 1)), [Done, Done]);
    assert_eq!(stand.queue.counts().active, 1);
}

/// CON-19: a forgotten job keeps its messages that have not left; those on a list may still leave.
#[test]
fn forgotten_job_keeps_its_messages() {
    let mut stand = Stand::new(|_| {});
    stand.send(2, |_| {});
    results(&mut stand, MAIN, moved(&[1], 1));
    super::act::forget(&mut stand, 7);
    stand.queue.check_invariants().unwrap();
    stand.wait();
    assert_eq!(stand.list().map(|list| list.list), None);
    assert_eq!(stand.receive(MAIN, 9, 1).len(), 2);

    let mut stand = Stand::new(|_| {});
    stand.send(2, |_| {});
    results(&mut stand, MAIN, moved(&[1, 2], 1));
    stand.wait();
    let list = stand.list().unwrap().list;
    super::act::forget(&mut stand, 7);
    let departures = vec![Departure::Taken, Departure::NotTried];
    stand.ask(Command::EndTransfer { list, departures });
    stand.queue.check_invariants().unwrap();
    assert_eq!(stand.queue.counts().active, 1);
    assert_eq!(stand.receive(MAIN, 9, 1).len(), 1);
}

/// CON-12: only active messages are sent: others stay with the reason. A step without a job, and
/// messages of sessions, are refused.
#[test]
fn only_active_messages_are_sent() {
    let mut stand = Stand::new(|_| {});
    let later = stand.now.plus(TimeSpan::from_minutes(60));
    stand.send(1, |message| message.scheduled_enqueue_time = Some(later));
    stand.send(1, |message| message.time_to_live = Some(TimeSpan::from_seconds(5)));
    stand.send(1, |_| {});
    let locks = stand.receive(MAIN, 2, 1);
    let settlement = crate::command::Settlement::Defer { properties: None };
    stand.ask(Command::Settle { token: locks[1], settlement });
    stand.wait();
    stand.now = stand.now.plus(TimeSpan::from_seconds(5));
    let broken = Act { breaks_locks: true, ..moved(&[1, 2, 3], 1) };
    assert_eq!(results(&mut stand, MAIN, broken), [WrongState, Expired, WrongState]);
    let alone = Act { step: None, ..moved(&[3], 2) };
    assert_eq!(super::act::ask(&mut stand, MAIN, alone).unwrap_err(), Condition::ArgumentError);

    let mut stand = Stand::new(|queue| queue.requires_session = true);
    stand.send(1, |message| message.session_id = Some("s".into()));
    let refused = super::act::ask(&mut stand, MAIN, moved(&[1], 1)).unwrap_err();
    assert_eq!(refused, Condition::InvalidOperation);
}

/// CON-15, CON-26: a broken lock ends with the step, and its holder cannot settle the message.
#[test]
fn sent_message_leaves_its_broken_lock() {
    let mut stand = Stand::new(|_| {});
    stand.send(1, |_| {});
    let locks = stand.receive(MAIN, 1, 1);
    let broken = Act { breaks_locks: true, ..moved(&[1], 1) };
    assert_eq!(results(&mut stand, MAIN, broken), [Leaving]);
    assert_eq!(stand.in_force(&locks), 0);
    let settlement = crate::command::Settlement::Complete;
    stand.turn_asking(MAIN, [Command::Settle { token: locks[0], settlement }], |answer| {
        assert_eq!(answer.unwrap_err().condition(), Condition::MessageLockLost);
    });
    stand.wait();
    assert_eq!(stand.numbers_on_list(), [1]);
    assert_eq!(stand.queue.slots.get(SequenceNumber(1)).unwrap().delivery_count, 0);
}

/// CON-16: a resubmitted dead letter goes to its own queue; from a main queue, each message goes to
/// the entity in which it was dead-lettered.
#[test]
fn resubmitted_message_returns_to_where_it_was_dead_lettered() {
    let resubmit = Deed::Resubmit { to: None, edit: None };
    let mut stand = Stand::new(|_| {});
    stand.send(2, |_| {});
    let locks = stand.receive(MAIN, 1, 1);
    stand.dead_letter(&locks);
    let dead = SubQueue::DeadLetter;
    let way = |stand: &Stand| {
        let list = stand.list().unwrap();
        (list.sub_queue, list.route.clone().unwrap().to)
    };
    results(&mut stand, dead, of_job(7, 1, act(&[1], resubmit.clone())));
    results(&mut stand, MAIN, of_job(8, 1, act(&[2], resubmit)));
    assert_eq!(way(&stand), (dead, Some("a".into())));
    stand.wait();
    assert_eq!(way(&stand), (MAIN, None));
}

/// CON-15: the receipt of a step whose messages are leaving makes no way for another job.
#[test]
fn receipt_of_leaving_messages_makes_no_way() {
    let mut stand = Stand::new(|_| {});
    stand.send(10, |_| {});
    let leave = Deed::Move { to: "b".into(), edit: None };
    results(&mut stand, MAIN, of_job(1, 1, act(&[1], leave)));
    for job in 2..=RECEIPT_COUNT_MAX as u64 {
        results(&mut stand, MAIN, of_job(job.into(), 1, act(&[job], Deed::Delete)));
    }
    stand.now = stand.now.plus(RECEIPT_AGE_MAX);
    results(&mut stand, MAIN, of_job(9, 1, act(&[9], Deed::Delete)));
    let kept = stand.queue.receipts.iter().map(|receipt| receipt.step.job.0);
    assert_eq!(kept.collect::<Vec<_>>(), [1, 3, 4, 5, 6, 7, 8, 9]);
}

//! Delivery counts under a session lock (SET-40, SES-30 to SES-33).

use peeklock_core::command::LinkEnd;
use peeklock_core::description::QueueDescription;
use peeklock_core::ids::ReceiverId;
use peeklock_core::machine::Machine;
use peeklock_core::path::SubQueue;

use crate::stand::{Stand, seconds, sessionful};

/// The stored counts of two messages after the end of the session. One was delivered.
fn counts_after(end: impl FnOnce(&mut Stand)) -> Vec<u32> {
    let mut stand = Stand::new();
    stand.send("a");
    stand.send("a");
    stand.accept(Some("a"), 1).unwrap();
    stand.receive(1, 1).unwrap();
    end(&mut stand);
    assert_eq!(stand.accept(Some("a"), 2), Ok("a".into()));
    assert_eq!(stand.numbers(2, 10), [1, 2], "what was delivered comes first (SES-31)");
    stand.peek(SubQueue::Main).iter().map(|facts| facts.delivery_count).collect()
}

/// SES-30, SES-31, SES-33: a timeout and a broken connection count, closing does not.
#[test]
fn counted_deliveries_depend_on_the_end_of_a_session() {
    assert_eq!(counts_after(|stand| stand.wait(seconds(30))), [1, 0]);
    assert_eq!(counts_after(|stand| stand.close(1, LinkEnd::Broken)), [1, 0]);
    assert_eq!(counts_after(|stand| stand.close(1, LinkEnd::Orderly)), [0, 0]);
    assert_eq!(counts_after(|stand| stand.close(1, LinkEnd::ByBroker)), [0, 0]);
}

/// SES-32, SES-33, SET-35: a crash loop ends in the dead-letter queue.
#[test]
fn a_crash_loop_ends_in_the_dead_letter_queue() {
    let mut stand = Stand::of(QueueDescription { max_delivery_count: 3, ..sessionful() }, true);
    stand.send("a");
    stand.send("a");
    for receiver in 1..=3 {
        stand.accept(Some("a"), receiver).unwrap();
        let received = stand.receive(receiver, 1).unwrap().remove(0);
        assert_eq!(u64::from(received.shown_delivery_count()), receiver);
        match receiver {
            1 => stand.abandon(&received).unwrap(),
            _ => stand.close(receiver, LinkEnd::Broken),
        }
        stand.close(receiver, LinkEnd::Orderly);
    }
    assert_eq!(stand.peeked(SubQueue::DeadLetter), [1]);
    assert_eq!(stand.accept(None, 9), Ok("a".into()));
    assert_eq!(stand.numbers(9, 9), [2]);
}

/// DESIGN D3: deadlines of a held session belong to that session: neither the end of its lock nor
/// the end of a call is a deadline of the queue itself.
#[test]
fn deadlines_of_a_held_session_are_its_own() {
    let mut stand = Stand::new();
    let (first, second) = (ReceiverId(1), ReceiverId(2));
    stand.accept(Some("a"), 1).unwrap();
    stand.wait(seconds(10));
    stand.accept(Some("b"), 2).unwrap();
    let machine = &stand.machine;
    assert_eq!(machine.own_deadline(), None);
    assert_eq!(machine.next_deadline(), machine.deadline_of(first));
    assert_eq!(machine.deadline_of(first), Some(stand.now.plus(seconds(20))));
    assert_eq!(machine.deadline_of(second), Some(stand.now.plus(seconds(30))));
    stand.close(1, LinkEnd::Orderly);
    assert_eq!(stand.machine.deadline_of(first), None);
    assert_eq!(stand.machine.next_deadline(), stand.machine.deadline_of(second));
}

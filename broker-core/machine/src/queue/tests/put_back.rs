//! Messages that a job puts back as they were before another one.

use std::collections::BTreeMap;

use bytes::Bytes;

use super::act::{act, ask, of_job, results};
use super::*;
use crate::command::{Act, ActResult, ActedMessage, Deed, JobStep, Original, PutBack, Settlement};
use crate::condition::Condition;
use crate::ids::JobId;
use crate::inspect::{Excerpt, Inquiry};
use crate::message::{Overlay, Value};

const MAIN: SubQueue = SubQueue::Main;

/// Records of messages as the queue shows them before a step of job 1, or the results of the step.
fn look(
    stand: &Stand,
    numbers: &[u64],
    number: u64,
) -> (BTreeMap<SequenceNumber, Bytes>, Option<Vec<ActedMessage>>) {
    let sequences = numbers.iter().copied().map(SequenceNumber).collect();
    let inquiry = Inquiry::Originals { sequences, step: JobStep { job: JobId(1), number } };
    let excerpt = stand.queue.inspect(MAIN, &inquiry, stand.now).unwrap();
    let Excerpt::Originals { heads, records, receipt } = excerpt else { panic!("other excerpt") };
    assert_eq!(heads.len(), records.len());
    (records, receipt)
}

/// The originals of messages, with a content if they will be removed.
fn originals(stand: &Stand, numbers: &[u64], has_content: bool) -> Vec<Original> {
    let (records, _) = look(stand, numbers, 1);
    let content = has_content.then(|| Message::new("body").encode().as_bytes().clone());
    let original = |record| Original { record, content: content.clone(), overlays: Vec::new() };
    records.into_values().map(original).collect()
}

fn put_back(numbers: &[u64], number: u64, of: &Deed, originals: Vec<Original>) -> Act {
    let deed = Some(of.clone());
    let deed = Deed::PutBack(Box::new(PutBack { undone: JobId(1), deed, originals }));
    of_job(2, number, act(numbers, deed))
}

/// CON-15, CON-20: removed messages are put back once, at their places; a repeated step has the
/// same answer. A number that is used, or was never given, stays as it is.
#[test]
fn removed_messages_are_put_back_at_their_places() {
    use ActResult::{Done, WrongState};
    let mut stand = Stand::new(|_| {});
    stand.send(4, |_| {});
    let kept = originals(&stand, &[1, 3, 9], true);
    assert_eq!(kept.len(), 2);
    let before = [1, 3].map(|number| *stand.queue.slots.get(SequenceNumber(number)).unwrap());
    results(&mut stand, MAIN, act(&[1, 3], Deed::Delete));
    stand.wait();
    let step = put_back(&[1, 3], 1, &Deed::Delete, kept.clone());
    assert_eq!(results(&mut stand, MAIN, step.clone()), [Done, Done]);
    stand.wait();
    let after = [1, 3].map(|number| *stand.queue.slots.get(SequenceNumber(number)).unwrap());
    assert_eq!(after, before);
    assert_eq!(results(&mut stand, MAIN, step), [Done, Done]);
    let again = put_back(&[1, 9], 2, &Deed::Delete, kept);
    assert_eq!(results(&mut stand, MAIN, again), [WrongState, WrongState]);
    assert_eq!(stand.receive(MAIN, 9, 4).len(), 4);
    stand.queue.check_invariants().unwrap();
}

/// CON-20: a dead-lettered message returns with the overlays that it had, unless a receiver holds
/// it.
#[test]
fn dead_lettered_messages_return_unless_they_are_locked() {
    use ActResult::{Done, Locked, NotFound, WrongState};
    let mut stand = Stand::new(|_| {});
    stand.send(3, |_| {});
    let kept = originals(&stand, &[1, 2, 3], false);
    let before = *stand.queue.slots.get(SequenceNumber(2)).unwrap();
    let deed = Deed::DeadLetter { reason: Some("wrong".into()), description: None };
    results(&mut stand, MAIN, act(&[1, 2], deed.clone()));
    stand.wait();
    stand.receive(SubQueue::DeadLetter, 1, 1);
    let step = put_back(&[1, 2, 3], 1, &deed, kept.clone());
    assert_eq!(results(&mut stand, MAIN, step), [Locked, Done, WrongState]);
    stand.wait();
    assert_eq!(*stand.queue.slots.get(SequenceNumber(2)).unwrap(), before);
    results(&mut stand, MAIN, act(&[3], Deed::Delete));
    let gone = put_back(&[3], 2, &deed, kept[2..].to_vec());
    assert_eq!(results(&mut stand, MAIN, gone), [NotFound]);
}

/// CON-20: a message returns only if it is exactly as the deed left it: not one that a receiver has
/// dead-lettered, deferred or changed since, although no delivery counts.
#[test]
fn messages_that_a_receiver_has_changed_stay() {
    use ActResult::{Done, WrongState};
    let mut stand = Stand::new(|_| {});
    stand.send(4, |_| {});
    let defer = || Settlement::Defer { properties: None };
    for token in stand.receive(MAIN, 4, 4) {
        stand.ask(Command::Settle { token, settlement: defer() });
    }
    stand.wait();
    let kept = originals(&stand, &[1, 2, 3, 4], false);
    assert_eq!(results(&mut stand, MAIN, act(&[1, 2, 3], Deed::Undefer)), [Done; 3]);
    stand.wait();
    let tokens = stand.receive(MAIN, 2, 2);
    let dead = Settlement::DeadLetter { properties: None };
    for (token, settlement) in tokens.into_iter().zip([dead, defer()]) {
        stand.ask(Command::Settle { token, settlement });
    }
    stand.wait();
    let step = put_back(&[1, 2, 3, 4], 1, &Deed::Undefer, kept);
    let expected = [WrongState, WrongState, Done, WrongState];
    assert_eq!(results(&mut stand, MAIN, step), expected);

    // A dead letter with an overlay that the job has not set.
    stand.send(2, |_| {});
    let deed = Deed::DeadLetter { reason: Some("wrong".into()), description: None };
    let kept = originals(&stand, &[5, 6], false);
    results(&mut stand, MAIN, act(&[5, 6], deed.clone()));
    stand.wait();
    let dead_letters = SubQueue::DeadLetter;
    let [_, token] = stand.receive(dead_letters, 2, 2)[..] else { panic!("other count") };
    let properties = Some(Overlay::encode(&[("p".to_owned(), Value::I32(1))]).unwrap());
    let settlement = Settlement::Abandon { properties, delay: None };
    stand.turn(dead_letters, Some(Command::Settle { token, settlement }));
    stand.wait();
    let step = put_back(&[5], 2, &deed, kept[..1].to_vec());
    assert_eq!(results(&mut stand, MAIN, step), [WrongState]);
}

/// CON-20: a step changes only messages that are as the job has kept them, and a look at it after
/// that has its results.
#[test]
fn a_step_changes_only_messages_that_are_kept() {
    use ActResult::{Busy, Done, NotFound};
    let mut stand = Stand::new(|_| {});
    stand.send(3, |_| {});
    let (mut records, receipt) = look(&stand, &[1, 2, 3, 9], 1);
    assert_eq!((records.len(), receipt), (3, None));
    records.remove(&SequenceNumber(3));
    // A delivery changes the record.
    let token = stand.receive(MAIN, 1, 1)[0];
    let settlement = Settlement::Abandon { properties: None, delay: None };
    stand.ask(Command::Settle { token, settlement });
    stand.wait();
    let step = of_job(1, 1, Act { kept: Some(records), ..act(&[1, 2, 3, 9], Deed::Delete) });
    assert_eq!(results(&mut stand, MAIN, step.clone()), [Busy, Done, Busy, NotFound]);
    let (records, receipt) = look(&stand, &[1, 2, 3, 9], 1);
    let receipt: Vec<_> = receipt.unwrap().iter().map(|message| message.result).collect();
    assert_eq!((records.len(), &receipt[..]), (0, &[Busy, Done, Busy, NotFound][..]));
    assert_eq!(results(&mut stand, MAIN, Act { kept: None, ..step }), receipt);
}

/// CON-20, QUO-01: messages that stay do not count for the quota, and others are refused together
/// if they exceed it.
#[test]
fn only_messages_that_return_count_for_the_quota() {
    use ActResult::{Done, WrongState};
    let mut stand = Stand::new(|_| {});
    stand.send(3, |_| {});
    let kept = originals(&stand, &[1, 2, 3], true);
    results(&mut stand, MAIN, act(&[1, 2], Deed::Delete));
    stand.wait();
    let size = |number: u64| u64::from(stand.queue.slots.get(SequenceNumber(number)).unwrap().size);
    let room = 2 * size(3);
    let step = put_back(&[1, 2, 3], 1, &Deed::Delete, kept);
    let quota = 1_u64 << 30;
    stand.stored_bytes = quota - room + 1;
    assert_eq!(ask(&mut stand, MAIN, step.clone()).unwrap_err(), Condition::QuotaExceeded);
    stand.stored_bytes = quota - room;
    assert_eq!(results(&mut stand, MAIN, step), [Done, Done, WrongState]);
}

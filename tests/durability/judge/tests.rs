//! Tests of the judge with hand-made cases that it must accept or reject.

use serde_json::json;

use super::Judge;
use crate::inspection::{QueueSeen, Snapshot};
use crate::ledger::{
    Description, Entry, Id, Op, Outcome, Part, Print, Seen, Sent, Standing, Verdict, message_id,
};

/// A case: requests to one queue, round by round.
struct Case {
    judge: Judge,
    entries: Vec<Entry>,
    tick: u64,
    /// Wall-clock time of requests, in milliseconds.
    at: u64,
}

const DONE: Outcome = Outcome::Done;
const UNKNOWN: Outcome = Outcome::Unknown;

fn print(id: Id) -> Print {
    Print { bytes: 10, hash: id }
}

fn description() -> Description {
    json!({ "maxDeliveryCount": 3, "userMetadata": "first" }).as_object().unwrap().clone()
}

fn seen(id: Id, number: u64) -> Seen {
    Seen {
        message_id: message_id(id),
        number,
        print: print(id),
        standing: Standing::Active,
        count: 0,
        reason: None,
        mark: None,
        delayed_until: None,
        shows_scheduled: None,
    }
}

fn delivered(id: Id, number: u64) -> Outcome {
    Outcome::Delivered(vec![Seen { count: 1, ..seen(id, number) }])
}

fn sending(ids: &[Id]) -> Op {
    let sent = |id: &Id| Sent { id: *id, print: print(*id), due: None };
    Op::Send { sender: 1, messages: ids.iter().map(sent).collect() }
}

fn settling(id: Id, verdict: Verdict) -> Op {
    Op::Settle { id, verdict, mark: None, reason: Some("mine".to_owned()), delay_ms: None }
}

const RECEIVE: Op = Op::Receive { part: Part::Main, deletes: false, count_max: 1, at_once: true };
const TAKE: Op = Op::Receive { part: Part::Main, deletes: true, count_max: 1, at_once: true };

fn snapshot(main: Vec<Seen>, dead: Vec<Seen>, properties: &Description) -> Snapshot {
    let count = |standing| main.iter().filter(|seen| seen.standing == standing).count();
    let mut description = properties.clone();
    let runtime = json!({
        "activeMessageCount": count(Standing::Active),
        "scheduledMessageCount": count(Standing::Scheduled),
        "deferredMessageCount": count(Standing::Deferred),
        "deadLetterMessageCount": dead.len(),
    });
    description.insert("runtime".to_owned(), runtime);
    let queue = QueueSeen { description, main, dead };
    Snapshot { queues: [("q".to_owned(), queue)].into(), pile: None, taken_at: 1_000 }
}

impl Case {
    /// Starts with an empty queue.
    fn new() -> Self {
        let case = Self { judge: Judge::new(), entries: Vec::new(), tick: 0, at: 1_000 };
        case.ask(Op::Create(description()), DONE)
    }

    fn ask(mut self, op: Op, outcome: Outcome) -> Self {
        let (begun, ended) = (self.tick, self.tick + 1);
        self.tick += 2;
        self.entries.push(Entry {
            queue: "q".to_owned(),
            op,
            outcome,
            begun,
            ended,
            begun_at: self.at,
            ended_at: self.at,
        });
        self
    }

    /// Adds message 1, acknowledged with the number 1.
    fn sent() -> Self {
        Self::new().ask(sending(&[1]), Outcome::Numbers(vec![1]))
    }

    /// Adds message 1, locked by a client.
    fn held() -> Self {
        Self::sent().ask(RECEIVE, delivered(1, 1))
    }

    fn find(&mut self, found: &Snapshot) -> Vec<String> {
        self.judge.judge(std::mem::take(&mut self.entries), found)
    }

    #[track_caller]
    fn fine(mut self, main: Vec<Seen>, dead: Vec<Seen>) -> Self {
        let complaints = self.find(&snapshot(main, dead, &description()));
        assert_eq!(complaints, [""; 0]);
        self
    }

    #[track_caller]
    fn wrong(mut self, main: Vec<Seen>, dead: Vec<Seen>, what: &str) {
        let complaints = self.find(&snapshot(main, dead, &description()));
        let complaint = complaints.first().map_or("", |first| first);
        assert!(complaint.contains(what), "{complaints:?}");
    }
}

#[test]
fn an_acknowledged_message_is_there() {
    Case::sent().fine(vec![seen(1, 1)], vec![]);
    Case::sent().wrong(vec![], vec![], "m1 is lost");
    // The message stays, round after round.
    Case::sent().fine(vec![seen(1, 1)], vec![]).wrong(vec![], vec![], "m1 is lost");
}

#[test]
fn an_unknown_outcome_is_decided_once() {
    let unknown = || Case::new().ask(sending(&[1]), UNKNOWN);
    unknown().fine(vec![], vec![]).wrong(vec![seen(1, 1)], vec![], "m1 is there as");
    unknown().fine(vec![seen(1, 1)], vec![]).wrong(vec![], vec![], "m1 is lost");
}

#[test]
fn a_refused_or_unsent_message_is_not_there() {
    let busy = Outcome::Refused("ServerBusy".to_owned());
    let refused = || Case::new().ask(sending(&[1]), busy.clone());
    refused().fine(vec![], vec![]);
    refused().wrong(vec![seen(1, 1)], vec![], "m1 is there as");
    Case::new().wrong(vec![seen(1, 1)], vec![], "m1 was never sent");
    let refused = Outcome::Refused("InternalError".to_owned());
    Case::new().ask(sending(&[1]), refused).wrong(vec![], vec![], "was refused with");
}

#[test]
fn a_settled_message_stays_settled() {
    let complete = |outcome| Case::held().ask(settling(1, Verdict::Complete), outcome);
    complete(DONE).fine(vec![], vec![]);
    complete(DONE).wrong(vec![seen(1, 1)], vec![], "m1 is there as");
    complete(DONE).ask(RECEIVE, delivered(1, 1)).wrong(vec![], vec![], "m1 was delivered as");
    complete(UNKNOWN).fine(vec![], vec![]).wrong(vec![seen(1, 1)], vec![], "m1 is there as");
    complete(UNKNOWN).fine(vec![seen(1, 1)], vec![]);
    let taken = || Case::sent().ask(TAKE, delivered(1, 1));
    taken().fine(vec![], vec![]);
    taken().wrong(vec![seen(1, 1)], vec![], "m1 is there as");
}

#[test]
fn a_lost_answer_may_have_removed_up_to_its_maximum() {
    let two = || Case::sent().ask(sending(&[2]), Outcome::Numbers(vec![2])).ask(TAKE, UNKNOWN);
    two().fine(vec![seen(1, 1), seen(2, 2)], vec![]);
    two().fine(vec![seen(2, 2)], vec![]).wrong(vec![], vec![], "m2 is lost");
    two().wrong(vec![], vec![], "m2 is lost");
}

#[test]
fn a_batch_is_whole_or_absent() {
    let batch = || Case::new().ask(sending(&[1, 2]), UNKNOWN);
    batch().fine(vec![], vec![]);
    batch().fine(vec![seen(1, 1), seen(2, 2)], vec![]);
    batch().wrong(vec![seen(2, 2)], vec![], "these are missing: [1]");
    batch().ask(RECEIVE, delivered(1, 1)).ask(settling(1, Verdict::Complete), DONE).wrong(
        vec![],
        vec![],
        "these are missing: [2]",
    );
    batch().wrong(vec![seen(1, 1), seen(2, 3)], vec![], "has the numbers");
}

#[test]
fn numbers_ascend_and_are_not_given_twice() {
    let two = || Case::new().ask(sending(&[1]), DONE).ask(sending(&[2]), DONE);
    two().fine(vec![seen(1, 1), seen(2, 2)], vec![]);
    two().wrong(vec![seen(2, 1), seen(1, 2)], vec![], "client 1 sent 2 before 1");
    let gone = Case::held().ask(settling(1, Verdict::Complete), DONE).fine(vec![], vec![]);
    gone.ask(sending(&[2]), DONE).wrong(vec![seen(2, 1)], vec![], "was m1's, and is m2's");
    Case::sent().wrong(vec![seen(1, 2)], vec![], "had the number 1, and has 2");
    let later =
        Case::new().ask(sending(&[1]), Outcome::Numbers(vec![7])).fine(vec![seen(1, 7)], vec![]);
    later.ask(sending(&[2]), DONE).wrong(
        vec![seen(2, 6), seen(1, 7)],
        vec![],
        "though 7 was given before",
    );
}

#[test]
fn contents_counts_marks_and_places_are_kept() {
    let other = Seen { print: print(9), ..seen(1, 1) };
    Case::sent().wrong(vec![other], vec![], "m1 has Print");
    let abandoned = || Case::held().ask(settling(1, Verdict::Abandon), DONE);
    let counted = |count| Seen { count, ..seen(1, 1) };
    abandoned().fine(vec![counted(1)], vec![]);
    abandoned().wrong(vec![counted(0)], vec![], "m1 is there as");
    let marked = Op::Settle {
        id: 1,
        verdict: Verdict::Abandon,
        mark: Some("mark".to_owned()),
        reason: None,
        delay_ms: None,
    };
    Case::held().ask(marked, DONE).wrong(vec![counted(1)], vec![], "m1 is there as");
    let deferred = || Case::held().ask(settling(1, Verdict::Defer), DONE);
    let standing = Standing::Deferred;
    deferred().fine(vec![Seen { standing, count: 1, ..seen(1, 1) }], vec![]);
    deferred().wrong(vec![Seen { standing, ..seen(1, 1) }], vec![], "m1 is there as");
    deferred().wrong(vec![counted(1)], vec![], "m1 is there as");
    let dead = || Case::held().ask(settling(1, Verdict::DeadLetter), DONE);
    let with = |reason: &str| Seen { reason: Some(reason.to_owned()), ..seen(1, 1) };
    dead().fine(vec![], vec![with("mine")]);
    dead().wrong(vec![], vec![with("another")], "m1 is there as");
    dead().wrong(vec![seen(1, 1)], vec![], "m1 is there as");
    dead().wrong(vec![seen(1, 1)], vec![with("mine")], "m1 is there twice");
}

#[test]
fn only_delayed_messages_are_delayed_until_due() {
    let later = |outcome| {
        let (verdict, mark, reason) = (Verdict::Abandon, None, None);
        let op = Op::Settle { id: 1, verdict, mark, reason, delay_ms: Some(5_000) };
        Case::held().ask(op, outcome)
    };
    let counted = |count, delayed_until| Seen { count, delayed_until, ..seen(1, 1) };
    later(DONE).fine(vec![counted(1, Some(6_000))], vec![]);
    later(DONE).wrong(vec![counted(1, None)], vec![], "m1 should wait");
    later(DONE).wrong(vec![counted(1, Some(6_500))], vec![], "m1 should wait");
    let again = Outcome::Delivered(vec![counted(2, None)]);
    later(DONE).ask(RECEIVE, again.clone()).wrong(vec![], vec![], "before it was due");
    // The message stays delayed, round after round, until the same instant.
    let looked_at = || later(DONE).fine(vec![counted(1, Some(6_010))], vec![]);
    looked_at().fine(vec![counted(1, Some(6_010))], vec![]);
    looked_at().wrong(vec![counted(1, Some(6_200))], vec![], "m1 should wait");
    later(UNKNOWN).fine(vec![counted(1, Some(6_000))], vec![]);
    later(UNKNOWN).fine(vec![counted(0, None)], vec![]);
    let at_once = || Case::held().ask(settling(1, Verdict::Abandon), DONE);
    at_once().ask(RECEIVE, again).fine(vec![counted(1, None)], vec![]);
    at_once().wrong(vec![counted(1, Some(6_000))], vec![], "m1 should wait");
}

#[test]
fn too_many_failures_dead_letter() {
    let again = |case: Case, count, verdict| {
        let delivered = Outcome::Delivered(vec![Seen { count, ..seen(1, 1) }]);
        case.ask(RECEIVE, delivered).ask(settling(1, verdict), DONE)
    };
    let failed = |last| {
        let twice = again(again(Case::sent(), 1, Verdict::Abandon), 2, Verdict::Abandon);
        again(twice, 3, last)
    };
    let reason = Some("MaxDeliveryCountExceeded".to_owned());
    let dead = |count| Seen { count, reason: reason.clone(), ..seen(1, 1) };
    let standing = Standing::Deferred;
    for last in [Verdict::Abandon, Verdict::Defer] {
        failed(last).fine(vec![], vec![dead(3)]);
        failed(last).wrong(vec![Seen { count: 3, ..seen(1, 1) }], vec![], "m1 is there as");
        failed(last).wrong(
            vec![Seen { standing, count: 3, ..seen(1, 1) }],
            vec![],
            "m1 is there as",
        );
    }
    // A dead-letter queue counts no deliveries (SET-38).
    let part = Part::DeadLetter;
    let receive = Op::Receive { part, deletes: false, count_max: 1, at_once: true };
    let abandoned = || {
        let case = failed(Verdict::Abandon).ask(receive.clone(), Outcome::Delivered(vec![dead(4)]));
        case.ask(settling(1, Verdict::Abandon), DONE)
    };
    abandoned().fine(vec![], vec![dead(3)]);
    abandoned().wrong(vec![], vec![dead(4)], "m1 is there as");
}

/// PEK-05
#[test]
fn amqp_shows_which_messages_were_scheduled() {
    let shown =
        |shows: bool, number| Seen { shows_scheduled: Some(shows), count: 1, ..seen(1, number) };
    let received = |seen| Outcome::Delivered(vec![seen]);
    let sent = |due| Op::Send { sender: 1, messages: vec![Sent { id: 1, print: print(1), due }] };
    // Acknowledged at 1,000: the first message is certainly scheduled, the second perhaps, the
    // third not.
    let waits = || {
        let waiting = Seen { standing: Standing::Scheduled, ..seen(1, 1) };
        let case = Case::new().ask(sent(Some(1_101)), Outcome::Numbers(vec![1]));
        let case = case.fine(vec![waiting], vec![]);
        Case { at: 1_200, ..case }
    };
    waits().ask(RECEIVE, received(shown(true, 2))).fine(vec![seen(1, 2)], vec![]);
    waits().ask(RECEIVE, received(shown(false, 2))).wrong(
        vec![],
        vec![],
        "shown as Scheduled: false",
    );
    let soon = || Case::new().ask(sent(Some(1_050)), Outcome::Numbers(vec![1]));
    for (first, second) in [(true, false), (false, true)] {
        let again = || {
            let case = soon().ask(RECEIVE, received(shown(first, 2)));
            case.ask(settling(1, Verdict::Release), DONE)
        };
        again().ask(RECEIVE, received(shown(first, 2))).fine(vec![seen(1, 2)], vec![]);
        let changed = again().ask(RECEIVE, received(shown(second, 2)));
        changed.wrong(vec![], vec![], &format!("shown as Scheduled: {second}"));
    }
    let never = || Case::new().ask(sent(None), Outcome::Numbers(vec![1]));
    never().ask(RECEIVE, received(shown(false, 1))).fine(vec![seen(1, 1)], vec![]);
    never().ask(RECEIVE, received(shown(true, 1))).wrong(
        vec![],
        vec![],
        "shown as Scheduled: true",
    );
    // A dead letter was moved.
    let part = Part::DeadLetter;
    let receive = Op::Receive { part, deletes: false, count_max: 1, at_once: true };
    let dead = |shows| {
        let case = waits().ask(RECEIVE, received(shown(true, 2)));
        let letter = Seen { reason: Some("mine".to_owned()), ..shown(shows, 2) };
        case.ask(settling(1, Verdict::DeadLetter), DONE).ask(receive.clone(), received(letter))
    };
    let letter = || Seen { reason: Some("mine".to_owned()), ..seen(1, 2) };
    dead(false).fine(vec![], vec![letter()]);
    dead(true).wrong(vec![], vec![letter()], "shown as Scheduled: true");
}

#[test]
fn scheduled_messages_wait_and_cancelled_ones_are_gone() {
    let sent = |due| Sent { id: 1, print: print(1), due: Some(due) };
    let scheduled = |due| {
        let op = Op::Send { sender: 1, messages: vec![sent(due)] };
        Case::new().ask(op, Outcome::Numbers(vec![1]))
    };
    let waiting = || Seen { standing: Standing::Scheduled, ..seen(1, 1) };
    scheduled(900_000).fine(vec![waiting()], vec![]);
    scheduled(900_000).wrong(vec![seen(1, 2)], vec![], "m1 is there as");
    scheduled(900).fine(vec![seen(1, 2)], vec![]);
    scheduled(900).wrong(vec![], vec![], "m1 is lost");
    let cancel = || Op::Cancel { ids: vec![1] };
    scheduled(900_000).ask(cancel(), DONE).wrong(vec![waiting()], vec![], "m1 is there as");
    scheduled(900_000).ask(cancel(), UNKNOWN).fine(vec![], vec![]);
    let not_found = Outcome::Refused("MessageNotFound".to_owned());
    scheduled(900).ask(cancel(), not_found.clone()).fine(vec![seen(1, 2)], vec![]);
    scheduled(900_000).ask(cancel(), not_found).wrong(vec![waiting()], vec![], "was refused");
}

#[test]
fn duplicates_are_dropped_after_a_restart_too() {
    let dropped = Outcome::Numbers(vec![0]);
    let kept = || Case::sent().fine(vec![seen(1, 1)], vec![]);
    kept().ask(sending(&[1]), dropped.clone()).fine(vec![seen(1, 1)], vec![]);
    let again = || Outcome::Numbers(vec![2]);
    kept().ask(sending(&[1]), again()).wrong(vec![seen(1, 1)], vec![], "m1 was stored again");
    let lost = || Case::new().ask(sending(&[1]), UNKNOWN).fine(vec![], vec![]);
    lost().ask(sending(&[1]), again()).fine(vec![seen(1, 2)], vec![]);
    lost().ask(sending(&[1]), dropped).wrong(vec![], vec![], "and was never stored");
}

#[test]
fn queues_are_kept_with_their_descriptions() {
    let changes = json!({ "userMetadata": "second" }).as_object().unwrap().clone();
    Case::new().ask(Op::Update(changes.clone()), UNKNOWN).fine(vec![], vec![]);
    Case::new().ask(Op::Update(changes), DONE).wrong(vec![], vec![], "should be one of");
    Case::sent().ask(Op::Delete, DONE).wrong(vec![], vec![], "should be one of");
    Case::sent().ask(Op::Delete, UNKNOWN).fine(vec![seen(1, 1)], vec![]);
    // The queue is deleted completely or not at all.
    Case::sent().ask(Op::Delete, UNKNOWN).wrong(vec![], vec![], "m1 is lost");
    let nothing = || Snapshot { queues: [].into(), pile: None, taken_at: 1_000 };
    assert_eq!(Case::sent().ask(Op::Delete, UNKNOWN).find(&nothing()), [""; 0]);
    assert_eq!(Case::sent().ask(Op::Delete, DONE).find(&nothing()), [""; 0]);
    assert_eq!(Case::sent().find(&nothing()), ["queue q: is gone, with 1 messages"]);
}

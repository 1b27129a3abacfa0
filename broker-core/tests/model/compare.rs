//! Runs the oracle and the machine side by side and reports the first difference.

use peeklock_core::command::ReceiveMode;
use peeklock_core::description::EntityStatus;
use peeklock_core::path::SubQueue;
use peeklock_core::time::{TimeSpan, Timestamp};

use crate::differences::{brief, caught, describe_steps};
use crate::generator::{Generator, LinkView, Profile, View};
use crate::ledger::Book;
use crate::operation::{LockName, Operation, Reply, Report, Request, Seen, Step, Turn};
use crate::oracle::{LastUse, Message, Oracle, State, place};
use crate::subject::{SUB_QUEUES, Subject};

/// Time by which an idle entity must be deleted (TMP-07).
const IDLE_SLACK: TimeSpan = TimeSpan::from_minutes(1);
/// Maximum error of the durable last use (TMP-08).
const USE_LOSS: TimeSpan = TimeSpan::from_minutes(1);

/// Both sides of a run, and the steps executed.
struct Pair {
    oracle: Oracle,
    subject: Subject,
    /// Judges each change separately.
    book: Book,
    /// No deletion for idleness before this instant (TMP-08).
    spared_until: Timestamp,
    /// The entity is idle or has crashed permanently, so nothing more is requested.
    is_over: bool,
}

/// Runs one sequence of steps, generated on the way. A difference is shortened and reported with
/// its steps.
pub fn run(seed: u64, step_count: usize) -> Result<Oracle, String> {
    let mut generator = Generator::new(seed);
    let profile = generator.profile().clone();
    let mut pair = Pair::new(&profile, seed);
    let mut steps = Vec::new();
    let mut closing = 0;
    while !pair.is_over {
        let step = if steps.len() < step_count {
            generator.step(&pair.view())
        } else if let Some(step) = pair.closing_step(closing) {
            closing += 1;
            step
        } else {
            break;
        };
        steps.push(step.clone());
        if let Err(difference) = caught(|| pair.step(&step)) {
            let replay = |steps: &[Step]| {
                let mut pair = Pair::new(&profile, seed);
                steps.iter().find_map(|step| caught(|| pair.step(step)).err())
            };
            return Err(describe_steps(seed, &profile, steps, difference, replay));
        }
    }
    Ok(pair.oracle)
}

impl Pair {
    fn new(profile: &Profile, seed: u64) -> Self {
        let now = Timestamp::parse("2026-05-01T12:00:00Z").expect("an instant");
        let oracle = Oracle::new(
            profile.description.clone(),
            profile.limits.clone(),
            (profile.release_on_detach, profile.release_on_connection_loss),
            now,
        );
        let subject = Subject::new(profile, seed, now);
        Self {
            oracle,
            subject,
            book: Book::default(),
            spared_until: Timestamp::NONE,
            is_over: false,
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Wait(span) => {
                let until = self.oracle.now.plus(*span);
                self.pass(until, |deadline| deadline <= until)?;
                self.set_now(until);
                self.judge_use()
            }
            Step::List(span, requests) => {
                let until = self.oracle.now.plus(*span);
                self.pass(until, |deadline| deadline < until)?;
                if self.is_over {
                    return Ok(());
                }
                self.turn(until, &self.without_open(requests))
            }
            Step::Late(span, requests) => {
                let until = self.oracle.now.plus(*span);
                self.turn(until, &self.without_open(requests))
            }
            Step::Full(full) => {
                self.oracle.full = *full;
                self.subject.full = *full;
                Ok(())
            }
            Step::Crash(downtime) => self.crash(*downtime),
        }
    }

    /// The requests without those whose results the specification leaves open.
    fn without_open(&self, requests: &[Request]) -> Vec<Request> {
        let mut others: Vec<Request> = Vec::new();
        for request in requests {
            if !is_left_open(&self.oracle, &others, request) {
                others.push(request.clone());
            }
        }
        others
    }

    const fn set_now(&mut self, now: Timestamp) {
        self.oracle.now = now;
        self.subject.now = now;
    }

    /// Wakes both sides at every deadline of the machine until then.
    fn pass(&mut self, until: Timestamp, counts: impl Fn(Timestamp) -> bool) -> Result<(), String> {
        let mut wake_ups = 0;
        let mut last = Timestamp::NONE;
        while !self.is_over {
            let deadline = self.subject.next_deadline();
            if let Some(event) = self.oracle.next_event().filter(|event| *event <= until)
                && deadline.is_none_or(|deadline| deadline > event)
            {
                return Err(format!(
                    "the machine sleeps through an event\nat {event} something is due, \
                     the machine wakes at {deadline:?}"
                ));
            }
            let Some(deadline) = deadline.filter(|deadline| counts(*deadline)) else { break };
            let at = deadline.max(self.oracle.now);
            wake_ups = if at == last { wake_ups + 1 } else { 0 };
            last = at;
            if wake_ups > 8 {
                return Err(format!("the machine wakes again and again\nat {at}"));
            }
            self.turn(at, &[])?;
        }
        Ok(())
    }

    /// Runs one list on both sides, and compares all visible results.
    fn turn(&mut self, now: Timestamp, requests: &[Request]) -> Result<(), String> {
        let got = self.subject.turn(now, requests);
        self.oracle.verdict_bytes = std::mem::take(&mut self.subject.verdicts);
        let expected = self.oracle.turn(now, requests);
        self.compare_turns(expected, got, requests)?;
        if let Some(sequence) = self.oracle.verdict_bytes.keys().next() {
            return Err(format!(
                "the machine dead-letters a message\nnumber {sequence}, the oracle does not"
            ));
        }
        if let Some(sequence) = self.oracle.verdicts_missing.first() {
            return Err(format!(
                "the machine does not dead-letter a message\nnumber {sequence}, the oracle does"
            ));
        }
        for (_, changes) in self.subject.take_staged() {
            for change in &changes {
                self.book.enter(change)?;
            }
        }
        let got = self.subject.report();
        if got.size_bytes != self.subject.stored_bytes {
            return Err(format!(
                "the account differs\n{} bytes were added and not freed, the machine has {}",
                self.subject.stored_bytes, got.size_bytes
            ));
        }
        self.compare_reports(got)?;
        self.compare_durable()
    }

    fn compare_turns(
        &mut self,
        expected: Turn,
        got: Turn,
        requests: &[Request],
    ) -> Result<(), String> {
        let tickets = expected.replies.keys().chain(got.replies.keys());
        let mut tickets: Vec<u64> = tickets.copied().collect();
        tickets.sort_unstable();
        tickets.dedup();
        for ticket in tickets {
            let (want, have) = (expected.replies.get(&ticket), got.replies.get(&ticket));
            let same = match (want, have) {
                (Some(Reply::Refused(any)), Some(Reply::Refused(one))) => {
                    one.iter().all(|condition| any.contains(condition))
                }
                (Some(Reply::Received(want)), Some(Reply::Received(have)))
                | (Some(Reply::Peeked(want)), Some(Reply::Peeked(have))) => {
                    self.same_messages(want, have)
                }
                (Some(Reply::Described(want)), Some(Reply::Described(have))) => {
                    same_report(want, have)
                }
                // The machine may not know that the rest of the messages is in other states.
                (Some(Reply::Inspected(want, more)), Some(Reply::Inspected(have, perhaps))) => {
                    want == have && perhaps >= more
                }
                (want, have) => want == have,
            };
            if !same {
                let request = requests.iter().find(|request| request.ticket == ticket);
                return Err(format!(
                    "the answers differ\n{request:?}\nthe oracle says {want:#?}\n\
                     the machine says {have:#?}"
                ));
            }
        }
        let receivers = expected.deliveries.keys().chain(got.deliveries.keys());
        let mut receivers: Vec<u64> = receivers.copied().collect();
        receivers.sort_unstable();
        receivers.dedup();
        for receiver in receivers {
            let none = Vec::new();
            let want = expected.deliveries.get(&receiver).unwrap_or(&none);
            let have = got.deliveries.get(&receiver).unwrap_or(&none);
            if !self.same_messages(want, have) {
                return Err(format!(
                    "the deliveries differ\nto link {receiver} the oracle sends {want:#?}\n\
                     the machine sends {have:#?}"
                ));
            }
        }
        if expected.detached != got.detached {
            return Err(format!(
                "the closed links differ\nthe oracle closes {:?}, the machine {:?}",
                expected.detached, got.detached
            ));
        }
        if got.idle_elapsed {
            self.judge_idleness()?;
        }
        Ok(())
    }

    /// Compares messages and records the tokens of their locks.
    fn same_messages(&mut self, want: &[Seen], have: &[Seen]) -> bool {
        if want.len() != have.len() {
            return false;
        }
        for (want, have) in want.iter().zip(have) {
            if !same_message(want, have) {
                return false;
            }
            if let (Some(want), Some(have)) = (want.lock, have.lock) {
                self.subject.name_lock(have.name, want.name);
            }
        }
        true
    }

    fn compare_reports(&mut self, got: Report) -> Result<(), String> {
        let want = self.oracle.report();
        if !same_report(&want, &got) {
            return Err(format!(
                "the reports differ\nthe oracle says {}\nthe machine says {}",
                describe_report(&want),
                describe_report(&got)
            ));
        }
        let LastUse { certain, possible, .. } = self.oracle.last_use;
        if got.accessed_at < certain || got.accessed_at > possible {
            return Err(format!(
                "the last use differs\nit is from {certain} to {possible}, the machine says {}",
                got.accessed_at
            ));
        }
        self.oracle.last_use.certain = got.accessed_at;
        Ok(())
    }

    /// A restart would find the state of the oracle (LIF-04).
    fn compare_durable(&mut self) -> Result<(), String> {
        let (report, contents) = self.subject.durable();
        let want = self.oracle.report();
        if !same_report(&want, &report) {
            return Err(format!(
                "the durable reports differ\nthe oracle says {}\nthe store says {}",
                describe_report(&want),
                describe_report(&report)
            ));
        }
        for (sub_queue, have) in SUB_QUEUES.into_iter().zip(contents) {
            self.compare_contents("durable", sub_queue, &have)?;
        }
        Ok(())
    }

    fn compare_contents(
        &self,
        what: &str,
        sub_queue: SubQueue,
        have: &[Seen],
    ) -> Result<(), String> {
        let want = self.oracle.contents(sub_queue);
        let is_same = want.len() == have.len()
            && want.iter().zip(have).all(|(want, have)| same_message(want, have));
        if is_same {
            return Ok(());
        }
        let first = want
            .iter()
            .zip(have)
            .find(|(want, have)| !same_message(want, have))
            .map(|pair| format!("first {pair:#?}"))
            .unwrap_or_default();
        Err(format!(
            "the {what} messages differ\nin {sub_queue:?}: {} expected, {} found; {first}",
            want.len(),
            have.len()
        ))
    }

    /// TMP-07, TMP-14, TMP-15: the deletion is not too early. Then the entity is gone.
    fn judge_idleness(&mut self) -> Result<(), String> {
        let now = self.oracle.now;
        let earliest = self.oracle.idle_at.unwrap_or(Timestamp::NEVER).max(self.spared_until);
        if now < earliest {
            return Err(format!(
                "the machine calls a used entity idle\nat {now}, not before {earliest}"
            ));
        }
        self.oracle.reach("TMP-07");
        self.is_over = true;
        Ok(())
    }

    /// TMP-07: the deletion is not too late.
    fn judge_use(&self) -> Result<(), String> {
        let idle = self.oracle.description.auto_delete_on_idle;
        let LastUse { possible, idle_from, .. } = self.oracle.last_use;
        let latest = possible.max(idle_from).plus(idle).max(self.spared_until);
        let latest = latest.plus(IDLE_SLACK.min(idle.divided_by(10)));
        if self.is_over || self.oracle.is_busy() || self.oracle.now <= latest {
            return Ok(());
        }
        Err(format!("the machine keeps an idle entity\nat {}, after {latest}", self.oracle.now))
    }

    fn crash(&mut self, downtime: TimeSpan) -> Result<(), String> {
        for (sub_queue, have) in SUB_QUEUES.into_iter().zip(self.subject.look_at_live()) {
            self.compare_contents("live", sub_queue, &have)?;
        }
        let now = self.oracle.now.plus(downtime);
        self.oracle.crash();
        self.subject.crash(now);
        self.oracle.now = now;
        let accessed_at = self.subject.report().accessed_at;
        let LastUse { certain, possible, idle_from } = self.oracle.last_use;
        if accessed_at > possible || accessed_at < certain.minus(USE_LOSS) {
            return Err(format!(
                "the last use is lost\nit was at {certain}, the store says {accessed_at}"
            ));
        }
        self.oracle.last_use =
            LastUse { certain: accessed_at, possible, idle_from: idle_from.minus(USE_LOSS) };
        let idle = self.oracle.description.auto_delete_on_idle;
        self.spared_until = now.plus(idle.min(TimeSpan::from_minutes(5)));
        self.turn(now, &[])
    }

    /// At the end everything receivable is received, so nothing was forgotten.
    fn closing_step(&self, number: u64) -> Option<Step> {
        let mode = ReceiveMode::ReceiveAndDelete;
        let ask = |sub_queue, operation| {
            let request = Request { ticket: 1_000_000 + number, sub_queue, operation };
            Some(Step::List(TimeSpan::ZERO, vec![request]))
        };
        let receive = |sub_queue| {
            let (count_max, bytes_max, wait) = (1_000, u64::MAX, TimeSpan::ZERO);
            ask(sub_queue, Operation::Receive { mode, count_max, bytes_max, wait, holder: None })
        };
        let receive_deferred = |sub_queue, state| {
            let is_there =
                |message: &&Message| message.state == state && self.oracle.is_receivable(message);
            let all = self.oracle.messages.iter().filter(is_there);
            let sequences = all.map(|message| message.sequence).collect();
            ask(sub_queue, Operation::ReceiveDeferred { mode, sequences, holder: None })
        };
        match number {
            0 => Some(Step::Full(false)),
            1 => {
                let mut description = Box::new(self.oracle.description.clone());
                description.status = EntityStatus::Active;
                ask(SubQueue::Main, Operation::Update { description, read_at: None })
            }
            // Locks time out, and messages delayed by that become available.
            2 | 3 => Some(Step::Wait(TimeSpan::from_seconds(31))),
            4 => receive_deferred(SubQueue::Main, State::Deferred),
            5 => receive_deferred(SubQueue::DeadLetter, State::DlqDeferred),
            6 => receive(SubQueue::Main),
            7 => receive(SubQueue::DeadLetter),
            8 => receive(SubQueue::TransferDeadLetter),
            9 => Some(Step::Crash(TimeSpan::ZERO)),
            _ => None,
        }
    }

    fn view(&self) -> View {
        let oracle = &self.oracle;
        let mut view = View {
            now: oracle.now,
            description: oracle.description.clone(),
            locks: Vec::new(),
            locks_given: oracle.locks_given,
            locked: Vec::new(),
            deferred: Vec::new(),
            scheduled: Vec::new(),
            last_sequence: 0,
            links: oracle
                .links
                .iter()
                .map(|link| LinkView {
                    receiver: link.receiver,
                    sub_queue: link.sub_queue,
                    sent: link.sent,
                    sent_bytes: link.sent_bytes,
                })
                .collect(),
            waiting: oracle.waiting.iter().map(|call| call.ticket).collect(),
            holders: Vec::new(),
            instants: oracle.interesting_instants(),
            updated_at: oracle.updated_at,
            room_bytes: (oracle.description.max_size_in_megabytes << 20)
                .saturating_sub(oracle.stored_bytes()),
        };
        for call in &oracle.waiting {
            view.holders.extend(call.holder.map(|holder| (holder, call.sub_queue)));
        }
        for message in &oracle.messages {
            view.last_sequence = view.last_sequence.max(message.sequence);
            let place = place(message.state);
            if let Some(lock) = &message.lock {
                view.locks.push((lock.name, place));
                view.holders.extend(lock.holder.map(|holder| (holder, place)));
            }
            match message.state {
                State::Scheduled => view.scheduled.push(message.sequence),
                State::Deferred | State::DlqDeferred => {
                    view.deferred.push((message.sequence, place));
                }
                _ => {}
            }
        }
        view
    }
}

/// Whether both show the same message. Names of locks are local to each side, and the broker's
/// description of a dead letter must contain the required words (DLQ-16).
fn same_message(want: &Seen, have: &Seen) -> bool {
    let mut want = want.clone();
    want.expires_at = want.expires_at.filter(|at| !at.is_never());
    want.time_to_live = want.time_to_live.filter(|span| !span.is_unlimited());
    let mut have = have.clone();
    for lock in [&mut want.lock, &mut have.lock].into_iter().flatten() {
        lock.name = LockName(0);
    }
    const DESCRIPTION: &str = "DeadLetterErrorDescription";
    if let Some(words) = want.set.get(DESCRIPTION).and_then(|text| text.strip_prefix('<')) {
        let words = words.trim_end_matches('>');
        match have.set.get(DESCRIPTION) {
            Some(text) if words.split('|').all(|words| text.contains(words)) => {
                let text = text.clone();
                want.set.insert(DESCRIPTION.to_owned(), text);
            }
            _ => return false,
        }
    }
    want == have
}

fn describe_report(report: &Report) -> String {
    format!(
        "{:?}, {} bytes, created {} updated {} accessed {}\n  {}",
        report.counts,
        report.size_bytes,
        report.created_at,
        report.updated_at,
        report.accessed_at,
        brief(&report.description)
    )
}

fn same_report(want: &Report, have: &Report) -> bool {
    want.description == have.description
        && want.counts == have.counts
        && want.size_bytes == have.size_bytes
        && want.created_at == have.created_at
        && want.updated_at == have.updated_at
}

/// Whether a longer window could revive an id that a shorter one forgot (DUP-04).
fn is_left_open(oracle: &Oracle, earlier: &[Request], request: &Request) -> bool {
    let drafts = request.operation.drafts();
    if drafts.is_empty() {
        return false;
    }
    let window = oracle.description.duplicate_detection_history_time_window;
    let grows = |other: &Request| {
        matches!(&other.operation, Operation::Update { description, .. }
            if description.duplicate_detection_history_time_window > window)
    };
    earlier.iter().any(grows)
        || drafts.iter().any(|draft| draft.id.is_some_and(|id| oracle.open_ids.contains(&id)))
}

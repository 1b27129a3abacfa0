//! The machine over a slow store: appends complete late and in groups, or never if the process
//! crashes first. There is no oracle here; the book of `ledger.rs` and a few invariants judge.

use std::collections::{BTreeMap, BTreeSet};

use peeklock_core::change::Change;
use peeklock_core::command::{ActResult, Drain, LinkEnd, MessageState};
use peeklock_core::description::QueueDescription;
use peeklock_core::machine::StageNumber;
use peeklock_core::time::{TimeSpan, Timestamp};

use crate::differences::{caught, describe_steps};
use crate::generator::{Generator, LinkView, Profile, Random, View};
use crate::ledger::{Book, HeldLock};
use crate::operation::{Operation, Part, Reply, Request, Seen, Step, Turn};
use crate::subject::Subject;

struct Delayed {
    subject: Subject,
    release_on_detach: bool,
    release_on_connection_loss: bool,
    /// Applied changes, durable or not.
    live: Book,
    /// Durable changes.
    durable: Book,
    /// Stage of the last synced change of each message that is not durable (DESIGN D5).
    in_flight: BTreeMap<u64, StageNumber>,
    locks: Vec<HeldLock>,
    links: Vec<LinkView>,
    waiting: BTreeSet<u64>,
    /// Determines when commits happen.
    random: Random,
    description: QueueDescription,
    updated_at: Timestamp,
    durable_description: (QueueDescription, Timestamp),
    is_over: bool,
}

/// Runs one sequence of steps with late appends.
pub fn run(seed: u64, step_count: usize) -> Result<(), String> {
    let mut generator = Generator::new(seed);
    let profile = generator.profile().clone();
    let mut delayed = Delayed::new(&profile, seed);
    let mut steps = Vec::new();
    while steps.len() < step_count && !delayed.is_over {
        let step = generator.step(&delayed.view());
        steps.push(step.clone());
        if let Err(difference) = caught(|| delayed.step(&step)) {
            let replay = |steps: &[Step]| {
                let mut delayed = Delayed::new(&profile, seed);
                steps.iter().find_map(|step| caught(|| delayed.step(step)).err())
            };
            return Err(describe_steps(seed, &profile, steps, difference, replay));
        }
    }
    let finish = caught(|| delayed.finish());
    finish.map_err(|difference| format!("seed {seed}: at the end {difference}\n{steps:#?}"))
}

impl Delayed {
    fn new(profile: &Profile, seed: u64) -> Self {
        let now = Timestamp::parse("2026-05-01T12:00:00Z").expect("an instant");
        Self {
            subject: Subject::new(profile, seed, now),
            release_on_detach: profile.release_on_detach,
            release_on_connection_loss: profile.release_on_connection_loss,
            live: Book::default(),
            durable: Book::default(),
            in_flight: BTreeMap::new(),
            locks: Vec::new(),
            links: Vec::new(),
            waiting: BTreeSet::new(),
            random: Random::new(seed ^ 0x0dd_ba11),
            description: profile.description.clone(),
            updated_at: now,
            durable_description: (profile.description.clone(), now),
            is_over: false,
        }
    }

    fn step(&mut self, step: &Step) -> Result<(), String> {
        match step {
            Step::Wait(span) => self.pass(self.subject.now.plus(*span)),
            Step::List(span, requests) | Step::Late(span, requests) => {
                let until = self.subject.now.plus(*span);
                self.pass(until)?;
                // A destination would have appends of its own.
                let sends = |request: &Request| matches!(&request.operation, Operation::Act(act) if act.deed.sends());
                let requests: Vec<Request> =
                    requests.iter().filter(|request| !sends(request)).cloned().collect();
                let mut rest = requests.as_slice();
                while let Some(at) = first_behind_its_drain(rest) {
                    let (list, behind) = rest.split_at(at);
                    self.list(until, list)?;
                    rest = behind;
                }
                self.list(until, rest)
            }
            Step::Full(full) => {
                self.subject.full = *full;
                Ok(())
            }
            Step::Crash(downtime) => self.crash(*downtime),
        }
    }

    fn pass(&mut self, until: Timestamp) -> Result<(), String> {
        let mut wake_ups = 0;
        while let Some(deadline) = self.subject.next_deadline().filter(|at| *at <= until) {
            if wake_ups == 50 {
                // A due event waits for its commit.
                break;
            }
            wake_ups += 1;
            self.list(deadline.max(self.subject.now), &[])?;
        }
        self.subject.now = until;
        Ok(())
    }

    /// Runs one list, then a random number of commits.
    fn list(&mut self, now: Timestamp, requests: &[Request]) -> Result<(), String> {
        self.locks.retain(|lock| lock.until > now);
        self.subject.apply_list(now, requests);
        for request in requests {
            if matches!(request.operation, Operation::Receive { .. }) {
                self.waiting.insert(request.ticket);
            }
        }
        self.listen(requests)?;
        while !self.subject.pending.is_empty() && self.random.percent(40) {
            self.commit()?;
        }
        // Permits bound the backlog of appends.
        while self.subject.pending.len() > 6 {
            self.commit()?;
        }
        Ok(())
    }

    fn commit(&mut self) -> Result<(), String> {
        let committed = self.subject.commit_one();
        for change in &committed.changes {
            self.durable.enter(change)?;
            if let Change::Described { description, at } = change {
                self.durable_description = (description.as_ref().clone(), *at);
            }
        }
        self.in_flight.retain(|_, stage| *stage > committed.stage);
        self.check_durable()?;
        self.listen(&[])
    }

    /// LIF-02: after any number of appends a scan finds exactly their state.
    fn check_durable(&self) -> Result<(), String> {
        let (report, found) = self.subject.durable();
        self.durable
            .check(self.subject.now, &report.counts, &found)
            .map_err(|text| format!("in the store {text}"))?;
        if (&report.description, &report.updated_at)
            != (&self.durable_description.0, &self.durable_description.1)
        {
            return Err("the description is not the one of the last append".to_owned());
        }
        Ok(())
    }

    /// Enters the staged changes, then judges the outputs.
    fn listen(&mut self, requests: &[Request]) -> Result<(), String> {
        let before = self.in_flight.clone();
        for (stage, changes) in self.subject.take_staged() {
            for change in &changes {
                self.live.enter(change)?;
                if let Some(sequence) = synced(change) {
                    self.in_flight.insert(sequence, stage);
                }
                if let Change::Described { description, at } = change {
                    (self.description, self.updated_at) = (description.as_ref().clone(), *at);
                }
            }
        }
        let turn = self.subject.take_outputs();
        self.judge(turn, requests, &before)
    }

    fn judge(
        &mut self,
        turn: Turn,
        requests: &[Request],
        before: &BTreeMap<u64, StageNumber>,
    ) -> Result<(), String> {
        for request in requests {
            if let Some(reply) = turn.replies.get(&request.ticket) {
                self.follow(request, reply);
            }
        }
        let (on_detach, on_loss) = (self.release_on_detach, self.release_on_connection_loss);
        for request in requests {
            if let Operation::Detach { receiver, end } = request.operation {
                self.links.retain(|link| link.receiver != receiver);
                for lock in &mut self.locks {
                    if lock.holder == Some(receiver) {
                        lock.holder = None;
                        let releases = match end {
                            LinkEnd::Orderly => on_detach,
                            LinkEnd::Lost => on_loss,
                            LinkEnd::Broken | LinkEnd::ByBroker => true,
                        };
                        if releases {
                            lock.until = self.subject.now;
                        }
                    }
                }
                let now = self.subject.now;
                self.locks.retain(|lock| lock.until > now);
            }
        }
        for (ticket, reply) in &turn.replies {
            self.waiting.remove(ticket);
            match reply {
                Reply::Received(all) => {
                    let request = requests.iter().find(|request| request.ticket == *ticket);
                    let holder = request.and_then(|request| match request.operation {
                        Operation::Receive { holder, .. }
                        | Operation::ReceiveDeferred { holder, .. } => holder,
                        _ => None,
                    });
                    for seen in all {
                        self.judge_delivery(seen, holder)?;
                    }
                }
                Reply::Peeked(all) => {
                    // The message may have changed after the peek, in the same list.
                    for seen in all {
                        judge_durability(seen, before)?;
                    }
                }
                Reply::Accepted(sequence) if *sequence > self.live.last_sequence => {
                    return Err(format!("number {sequence} was acknowledged and never stored"));
                }
                _ => {}
            }
        }
        for (receiver, all) in &turn.deliveries {
            for seen in all {
                self.judge_delivery(seen, Some(*receiver))?;
                let Some(link) = self.links.iter_mut().find(|link| link.receiver == *receiver)
                else {
                    return Err(format!("link {receiver} is sent a message after its end"));
                };
                link.sent += 1;
                link.sent_bytes += u64::from(seen.size);
            }
        }
        for receiver in turn.detached.keys() {
            self.links.retain(|link| link.receiver != *receiver);
        }
        self.is_over |= turn.idle_elapsed;
        Ok(())
    }

    /// Records the locks and links of an answer.
    fn follow(&mut self, request: &Request, reply: &Reply) {
        match (&request.operation, reply) {
            (Operation::Settle { lock, .. }, Reply::Done) => {
                self.locks.retain(|held| held.name != *lock);
            }
            (Operation::BreakLocks { sequences, .. }, Reply::LocksBroken(_)) => {
                let sub_queue = request.sub_queue;
                self.locks.retain(|held| {
                    held.sub_queue != sub_queue || !sequences.contains(&held.sequence)
                });
            }
            (Operation::Act(_), Reply::Acted(results)) => {
                self.locks.retain(|held| {
                    held.sub_queue != request.sub_queue
                        || !results.contains(&(held.sequence, ActResult::Done))
                });
            }
            (Operation::RenewLock { lock }, Reply::Renewed(until)) => {
                for held in self.locks.iter_mut().filter(|held| held.name == *lock) {
                    held.until = *until;
                }
            }
            (Operation::Attach { receiver, .. }, Reply::Done) => self.links.push(LinkView {
                receiver: *receiver,
                sub_queue: request.sub_queue,
                sent: 0,
                sent_bytes: 0,
            }),
            (Operation::Commit(parts), Reply::Committed(replies)) => {
                for (part, reply) in parts.iter().zip(replies) {
                    let Part { sub_queue, operation } = part.clone();
                    let ticket = request.ticket;
                    self.follow(&Request { ticket, sub_queue, operation }, reply);
                }
            }
            _ => {}
        }
    }

    /// LIF-03: never to two receivers at the same time. DESIGN D5: never before its last change is
    /// durable.
    fn judge_delivery(&mut self, seen: &Seen, holder: Option<u64>) -> Result<(), String> {
        if let Some(held) = self.locks.iter().find(|held| held.sequence == seen.sequence) {
            return Err(format!("delivered while locked (LIF-03)\n{seen:?}\n{held:?}"));
        }
        match seen.lock {
            Some(lock) => {
                judge_durability(seen, &self.in_flight)?;
                let entry = self.live.entries.get(&seen.sequence);
                let is_same = entry.is_some_and(|entry| {
                    entry.marker == seen.marker
                        && entry.sub_queue == seen.sub_queue
                        && entry.count == seen.delivery_count
                        && entry.enqueued_at == seen.enqueued_at
                        && !entry.is_delayed(self.subject.now)
                });
                if !is_same {
                    return Err(format!("delivered otherwise than booked\n{seen:?}\n{entry:?}"));
                }
                self.subject.name_lock(lock.name, lock.name);
                self.locks.push(HeldLock {
                    name: lock.name,
                    sequence: seen.sequence,
                    sub_queue: seen.sub_queue,
                    until: lock.until,
                    holder,
                });
            }
            None => {
                // It was available to be removed, so it must have been durable before.
                if !self.durable.entries.contains_key(&seen.sequence) {
                    return Err(format!("delivered before it was stored (D5)\n{seen:?}"));
                }
                if self.live.entries.contains_key(&seen.sequence) {
                    return Err(format!("received and not deleted (RCV-02)\n{seen:?}"));
                }
            }
        }
        Ok(())
    }

    /// LIF-04: unstored changes have no effect, and everything else is unchanged.
    fn crash(&mut self, downtime: TimeSpan) -> Result<(), String> {
        let now = self.subject.now.plus(downtime);
        self.subject.crash(now);
        self.live = self.durable.clone();
        (self.description, self.updated_at) = self.durable_description.clone();
        self.in_flight.clear();
        self.locks.clear();
        self.links.clear();
        self.waiting.clear();
        let report = self.subject.report();
        let found = self.subject.look_at_live();
        self.live
            .check(now, &report.counts, &found)
            .map_err(|text| format!("after a crash {text}"))?;
        self.list(now, &[])
    }

    /// Once everything is durable, the store, the machine and the book agree.
    fn finish(&mut self) -> Result<(), String> {
        // Process all due events.
        self.list(self.subject.now, &[])?;
        while !self.subject.pending.is_empty() {
            self.commit()?;
        }
        self.check_durable()?;
        let report = self.subject.report();
        let found = self.subject.look_at_live();
        self.live.check(self.subject.now, &report.counts, &found)?;
        let (durable, stored) = self.subject.durable();
        if found != stored || durable.size_bytes != report.size_bytes {
            return Err("the live machine and its store differ".to_owned());
        }
        Ok(())
    }

    fn view(&self) -> View {
        let now = self.subject.now;
        let is_locked = |sequence| self.locks.iter().any(|lock| lock.sequence == sequence);
        let entries = || self.live.entries.iter();
        let mut instants: Vec<Timestamp> = self.locks.iter().map(|lock| lock.until).collect();
        instants.extend(
            entries()
                .filter(|(_, entry)| entry.state == MessageState::Scheduled)
                .map(|(_, entry)| entry.enqueued_at),
        );
        instants.extend(entries().filter_map(|(_, entry)| entry.delayed_until));
        instants.retain(|at| *at > now);
        View {
            now,
            description: self.description.clone(),
            locks: self.locks.iter().map(|lock| (lock.name, lock.sub_queue)).collect(),
            locks_given: self.subject.tokens.keys().last().map_or(0, |name| name.0),
            locked: self.locks.iter().map(|lock| (lock.sequence, lock.sub_queue)).collect(),
            deferred: entries()
                .filter(|(_, entry)| entry.state == MessageState::Deferred)
                .filter(|(sequence, _)| !is_locked(**sequence))
                .map(|(sequence, entry)| (*sequence, entry.sub_queue))
                .collect(),
            scheduled: entries()
                .filter(|(_, entry)| entry.state == MessageState::Scheduled)
                .map(|(sequence, _)| *sequence)
                .collect(),
            last_sequence: self.live.last_sequence,
            links: self.links.clone(),
            waiting: self.waiting.iter().copied().collect(),
            holders: self
                .locks
                .iter()
                .filter_map(|lock| Some((lock.holder?, lock.sub_queue)))
                .collect(),
            instants,
            updated_at: self.updated_at,
            room_bytes: u64::MAX,
        }
    }
}

fn judge_durability(seen: &Seen, in_flight: &BTreeMap<u64, StageNumber>) -> Result<(), String> {
    match in_flight.get(&seen.sequence) {
        None => Ok(()),
        Some(stage) => Err(format!("shown before {stage:?} is durable (D5)\n{seen:?}")),
    }
}

/// The message of a synced change. It is not delivered until the change is durable.
const fn synced(change: &Change) -> Option<u64> {
    match change {
        Change::Accepted { sequence, .. }
        | Change::Materialised { to: sequence, .. }
        | Change::Abandoned { sequence, .. }
        | Change::Deferred { sequence, .. }
        | Change::Undeferred { sequence }
        | Change::PutBack { sequence, .. }
        | Change::Rescheduled { sequence, .. }
        | Change::Pending { sequence, .. }
        | Change::Arrived { sequence, .. }
        | Change::DeadLettered { sequence, .. } => Some(sequence.0),
        Change::Absorbed { .. }
        | Change::Departed { .. }
        | Change::Removed { .. }
        | Change::DeliveryCounted { .. }
        | Change::IdRecorded { .. }
        | Change::IdsForgotten { .. }
        | Change::PeerTaken { .. }
        | Change::PeerForgotten { .. }
        | Change::Receipted(_)
        | Change::JobForgotten(_)
        | Change::SessionStateSet { .. }
        | Change::Described { .. }
        | Change::SubscriptionDescribed { .. }
        | Change::Numbered { .. }
        | Change::OfTopic(_) => None,
    }
}

/// Index after a drain that must be carried out first. The judge sees deliveries only at the end of
/// a list, so the list is cut there.
fn first_behind_its_drain(requests: &[Request]) -> Option<usize> {
    requests.iter().enumerate().position(|(at, request)| {
        let Operation::Grant { receiver, .. } = request.operation else { return false };
        requests.iter().take(at).any(|earlier| {
            matches!(earlier.operation, Operation::Grant { receiver: same, drain: Drain::Yes, .. }
                if same == receiver)
        })
    })
}

//! Steps of an operator's job: deeds on messages that are named by number.

use peeklock_core::command::{Act, ActResult, Deed, JobStep, NewInstant, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::path::SubQueue;
use peeklock_core::time::{TimeSpan, Timestamp};

use super::{Answered, Oracle, State, place, refuse};
use crate::operation::{Properties, Reply};

/// The result of the last step of a job.
#[derive(Clone, Debug)]
pub struct Receipt {
    number: u64,
    at: Timestamp,
    sub_queue: SubQueue,
    deed: Deed,
    breaks_locks: bool,
    results: Vec<(u64, ActResult)>,
}

impl Oracle {
    /// CON-12, CON-15.
    pub(super) fn act(&mut self, sub_queue: SubQueue, act: &Act) -> Answered {
        let numbers: Vec<u64> = act.sequences.iter().map(|sequence| sequence.0).collect();
        if numbers.is_empty() {
            return refuse(Condition::ArgumentOutOfRange);
        }
        if (0..numbers.len()).any(|at| numbers[..at].contains(&numbers[at])) {
            return refuse(Condition::ArgumentError);
        }
        if act.deed.sends() && act.step.is_none() {
            return refuse(Condition::ArgumentError);
        }
        let known = act.step.and_then(|step| self.receipts.get(&step.job)).cloned();
        if let (Some(step), Some(receipt)) = (act.step, &known)
            && step.number <= receipt.number
        {
            let same = receipt.results.iter().map(|(number, _)| *number).eq(numbers);
            let same = same
                && sub_queue == receipt.sub_queue
                && act.deed == receipt.deed
                && act.breaks_locks == receipt.breaks_locks;
            if step.number < receipt.number || !same {
                self.reach("CON-15 conflict");
                return refuse(Condition::InvalidOperation);
            }
            self.reach("CON-15 repeated");
            return Ok(Some(Reply::Acted(receipt.results.clone())));
        }
        let is_leaving = |receipt: &Receipt| {
            receipt.results.iter().any(|(_, result)| *result == ActResult::Leaving)
        };
        if known.as_ref().is_some_and(is_leaving) {
            self.reach("CON-15 leaving");
            return refuse(Condition::ServerBusy);
        }
        let mut conditions = Vec::new();
        if act.step.is_some() && known.is_none() && self.receipts.len() == 8 {
            let oldest = self.receipts.values().map(|receipt| receipt.at).min();
            // None of these sequences lasts for a day.
            assert!(oldest.is_some_and(|at| at.plus(TimeSpan::from_days(1)) > self.now));
            self.reach("CON-15 full");
            conditions.push(Condition::QuotaExceeded);
        }
        let is_main = sub_queue == SubQueue::Main;
        match act.deed {
            Deed::DeadLetter { .. } | Deed::Reschedule(_) if !is_main => {
                conditions.push(Condition::InvalidOperation);
            }
            Deed::DeadLetter { .. } if self.full => conditions.push(Condition::ServerBusy),
            _ => {}
        }
        if !conditions.is_empty() {
            return Err(conditions);
        }
        let results: Vec<(u64, ActResult)> =
            numbers.iter().map(|number| (*number, self.do_deed(sub_queue, *number, act))).collect();
        self.touch();
        self.reach("CON-12");
        if let Some(JobStep { job, number }) = act.step {
            self.reach("CON-15");
            let receipt = Receipt {
                number,
                at: self.now,
                sub_queue,
                deed: act.deed.clone(),
                breaks_locks: act.breaks_locks,
                results: results.clone(),
            };
            self.receipts.insert(job, receipt);
        }
        Ok(Some(Reply::Acted(results)))
    }

    fn do_deed(&mut self, sub_queue: SubQueue, number: u64, act: &Act) -> ActResult {
        let found = self.messages.iter().position(|message| {
            message.sequence == number
                && message.state != State::Gone
                && place(message.state) == sub_queue
        });
        let Some(index) = found else { return ActResult::NotFound };
        if self.messages[index].lock.is_some() && !act.breaks_locks {
            self.reach("CON-12 locked");
            return ActResult::Locked;
        }
        // DESIGN D5: no client knows of a change that is not durable.
        if self.messages[index].in_flight {
            return ActResult::Busy;
        }
        let state = self.messages[index].state;
        let properties = properties_of(&act.deed);
        match &act.deed {
            Deed::Delete => {
                self.reach("CON-12 delete");
                self.remove(index);
                return ActResult::Done;
            }
            Deed::DeadLetter { .. } if state != State::Scheduled => {
                let header = u64::from(self.messages[index].header_size);
                let set = properties.as_ref().map_or(0, |set| u64::from(set.bytes));
                if set > 0 && header + set > self.limits.header_bytes_max {
                    self.reach("CON-12 header");
                    return ActResult::TooLarge;
                }
                if let Some(properties) = properties {
                    self.set_properties(index, &properties);
                }
                self.reach("CON-12 dead-letter");
                self.messages[index].state = State::DlqAvailable;
            }
            Deed::Undefer if matches!(state, State::Deferred | State::LockedDeferred) => {
                if self.is_expired(&self.messages[index]) {
                    self.reach("CON-12 expired");
                    return ActResult::Expired;
                }
                self.reach("CON-12 undefer");
                self.messages[index].state = State::Available;
            }
            Deed::Undefer if matches!(state, State::DlqDeferred | State::DlqLockedDeferred) => {
                self.reach("CON-12 undefer");
                self.messages[index].state = State::DlqAvailable;
            }
            Deed::Reschedule(to) if state == State::Scheduled => {
                self.reach("CON-12 reschedule");
                let now = self.now;
                let message = &mut self.messages[index];
                message.enqueued_at = match to {
                    NewInstant::At(at) => (*at).max(now),
                    NewInstant::Later(shift) => message.enqueued_at.plus(*shift),
                    NewInstant::Earlier(shift) => message.enqueued_at.minus(*shift).max(now),
                    NewInstant::Now => now,
                };
                let at = message.enqueued_at;
                message.expires_at = message.time_to_live.map(|span| at.plus(span));
            }
            Deed::Resubmit { .. } | Deed::Move { .. }
                if matches!(
                    state,
                    State::Available
                        | State::Delayed
                        | State::Locked
                        | State::DlqAvailable
                        | State::DlqDelayed
                        | State::DlqLocked
                ) =>
            {
                if is_main_state(state) && self.is_expired(&self.messages[index]) {
                    self.reach("CON-12 expired");
                    return ActResult::Expired;
                }
                if matches!(state, State::Delayed | State::DlqDelayed) {
                    self.reach("CON-12 delayed");
                    return ActResult::Busy;
                }
                let message = &mut self.messages[index];
                message.state = match place(state) {
                    SubQueue::Main => State::Available,
                    SubQueue::DeadLetter | SubQueue::TransferDeadLetter => State::DlqAvailable,
                };
                (message.lock, message.in_flight, message.leaving) = (None, true, true);
                return ActResult::Leaving;
            }
            Deed::DeadLetter { .. }
            | Deed::Undefer
            | Deed::Reschedule(_)
            | Deed::Resubmit { .. }
            | Deed::Move { .. }
            | Deed::PutBack(_)
            | Deed::Export(_) => return ActResult::WrongState,
        }
        let message = &mut self.messages[index];
        message.lock = None;
        message.delayed_until = None;
        message.in_flight = true;
        ActResult::Done
    }
}

impl Oracle {
    /// CON-15, CON-17: each message of a step that is durable arrives at its destination, or returns
    /// to its place if the destination refuses it. After a full destination, all others return.
    pub(super) fn end_sends(&mut self) {
        let (mut gone, mut stayed) = (Vec::new(), Vec::new());
        for receipt in self.receipts.values_mut() {
            let mut leaving: Vec<_> = receipt
                .results
                .iter_mut()
                .filter(|(_, result)| *result == ActResult::Leaving)
                .collect();
            leaving.sort_by_key(|one| one.0);
            let mut is_full = false;
            for (number, result) in leaving {
                let decided = destination_of_model(*number);
                *result = if is_full { ActResult::DestinationFull } else { decided };
                is_full |= *result == ActResult::DestinationFull;
                match result {
                    ActResult::Done => gone.push(*number),
                    _ => stayed.push((*number, *result)),
                }
            }
        }
        for message in self.messages.iter_mut().filter(|message| message.leaving) {
            (message.leaving, message.in_flight) = (false, false);
            if gone.contains(&message.sequence) {
                message.state = State::Gone;
            }
        }
        if !gone.is_empty() {
            self.reach("CON-15 sent");
        }
        for (_, result) in stayed {
            self.reach(match result {
                ActResult::DestinationFull => "CON-17 full",
                _ => "CON-17",
            });
        }
    }
}

/// Result of a message at the destination of the model, which decides by number.
pub fn destination_of_model(number: u64) -> ActResult {
    match number % 8 {
        0..=3 => ActResult::Done,
        4 | 5 => ActResult::Duplicate,
        6 => ActResult::NoSession,
        _ => ActResult::DestinationFull,
    }
}

fn is_main_state(state: State) -> bool {
    place(state) == SubQueue::Main
}

/// The properties that a dead letter gets, as from a receiver (SET-06).
fn properties_of(deed: &Deed) -> Option<Properties> {
    let Deed::DeadLetter { reason, description } = deed else { return None };
    let pairs: Vec<(String, String)> =
        [("DeadLetterReason", reason), ("DeadLetterErrorDescription", description)]
            .into_iter()
            .filter_map(|(key, text)| Some((key.to_owned(), text.as_ref()?.to_string())))
            .collect();
    if pairs.is_empty() {
        return None;
    }
    let mut properties = Properties::new(pairs);
    let limits = peeklock_core::limits::Limits::default();
    let settled =
        Settlement::dead_letter(reason.as_deref(), description.as_deref(), &[], &limits).ok()?;
    if let Settlement::DeadLetter { properties: Some(overlay) } = settled {
        properties.bytes = overlay.size_bytes();
    }
    Some(properties)
}

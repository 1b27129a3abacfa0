//! Settlement of messages under lock.

use peeklock_core::condition::Condition;
use peeklock_core::description::RetryKind;
use peeklock_core::limits::OVERLAY_BYTES;
use peeklock_core::path::SubQueue;
use peeklock_core::time::TimeSpan;

use super::{Answered, Oracle, State, Verdict, place, refuse};
use crate::operation::{Decision, LockName, Properties, Reply};

const REASON: &str = "DeadLetterReason";
const DESCRIPTION: &str = "DeadLetterErrorDescription";
const LAST_ERROR: &str = "peeklock-last-error";
/// Room that the errors of earlier attempts leave for the last one (SET-44).
const LAST_ATTEMPT_BYTES: u64 = 4_096;
/// Room that a description needs in addition to its error (DLQ-34).
const VERDICT_BYTES: u64 = 512;

impl Oracle {
    /// The message of a lock, if it is in this sub-queue.
    pub(super) fn held(&self, sub_queue: SubQueue, name: LockName) -> Option<usize> {
        self.messages.iter().position(|message| {
            message.lock.as_ref().is_some_and(|lock| lock.name == name)
                && sub_queue == place(message.state)
        })
    }

    pub(super) fn settle(
        &mut self,
        sub_queue: SubQueue,
        lock: LockName,
        decision: &Decision,
    ) -> Answered {
        let Some(index) = self.held(sub_queue, lock) else {
            // SET-13, SET-20: unknown, used, expired or released.
            self.reach("SET-13");
            self.reach("SET-20");
            let mut conditions = vec![Condition::MessageLockLost];
            if sub_queue != SubQueue::Main && matches!(decision, Decision::DeadLetter(_)) {
                conditions.push(Condition::InvalidOperation);
            }
            return Err(conditions);
        };
        let is_dead = sub_queue == SubQueue::DeadLetter;
        if is_dead && matches!(decision, Decision::DeadLetter(_)) {
            // DLQ-07: the lock stays.
            self.reach("DLQ-07");
            return refuse(Condition::InvalidOperation);
        }
        let properties = match decision {
            Decision::Complete | Decision::Release => None,
            Decision::Abandon(properties, _) => {
                properties.as_ref().and_then(|properties| self.with_error(index, properties))
            }
            Decision::Defer(properties) | Decision::DeadLetter(properties) => properties.clone(),
        };
        let properties = properties.as_ref();
        if let Decision::Abandon(_, Some(delay)) = decision {
            self.judge_delay(index, *delay)?;
        }
        if let Some(properties) = properties {
            let header = u64::from(self.messages[index].header_size) + u64::from(properties.bytes);
            if header > self.limits.header_bytes_max {
                // SET-10: the lock is unchanged.
                self.reach("SET-10");
                return refuse(Condition::MessageSizeExceeded);
            }
            let is_dead_lettered = matches!(decision, Decision::DeadLetter(_));
            // SET-44: the move to the dead-letter queue may add a mere error.
            let is_last_error = matches!(decision, Decision::Abandon(..))
                && self.is_last(index)
                && properties.pairs.iter().all(|(key, _)| key == LAST_ERROR);
            let count_max = self.limits.message_overlay_count_max;
            let is_unlimited = is_dead_lettered || is_last_error;
            if !is_unlimited && self.messages[index].set_count >= count_max {
                // The lock is unchanged.
                self.reach("SET-41");
                return refuse(Condition::MessageSizeExceeded);
            }
            // A message that is about to be dropped needs no properties.
            let is_dropped = matches!(decision, Decision::Abandon(..))
                && self.messages[index].state == State::Locked
                && self.is_expired(&self.messages[index])
                && !self.description.dead_lettering_on_message_expiration;
            if !is_dropped {
                self.set_properties(index, properties);
            }
        }
        self.described_error = properties.and_then(|properties| {
            let (_, error) = properties.pairs.iter().find(|(key, _)| key == LAST_ERROR)?;
            let header = u64::from(self.messages[index].header_size) + error.len() as u64;
            let fits = header + VERDICT_BYTES <= self.limits.header_bytes_max;
            (fits && !error.is_empty()).then(|| error.clone())
        });
        self.touch();
        if self.is_expired(&self.messages[index]) && self.messages[index].state == State::Locked {
            // EXP-25, EXP-30: handled normally while the lock lasts.
            self.reach("EXP-25");
            self.reach("EXP-30");
            self.reach("SET-12");
        }
        match decision {
            Decision::Complete => {
                self.reach("SET-01");
                self.remove(index);
            }
            Decision::Abandon(_, delay) => {
                self.reach("SET-03");
                self.fail_delivery(index, *delay);
                // SET-27: the count of an abandon is durable before its answer.
                self.messages[index].in_flight = true;
            }
            Decision::Release => {
                self.reach("SET-32");
                self.release(index);
            }
            Decision::Defer(_) => {
                self.reach("DEF-01");
                let count_max = self.description.max_delivery_count;
                let message = &mut self.messages[index];
                message.lock = None;
                message.in_flight = true;
                // SET-33, SET-38: the delivery counts, except in a dead-letter queue.
                message.count += u32::from(!is_dead);
                let count = message.count;
                message.state = if is_dead { State::DlqDeferred } else { State::Deferred };
                self.reach(if is_dead { "DEF-09" } else { "DEF-04" });
                if !is_dead && count >= count_max {
                    self.reach("SET-33");
                    self.dead_letter_by_broker(index, Verdict::DeliveryCount(count_max));
                }
            }
            Decision::DeadLetter(_) => {
                self.reach("SET-05");
                self.reach("SET-06");
                let message = &mut self.messages[index];
                message.lock = None;
                message.in_flight = true;
                message.state = State::DlqAvailable;
            }
        }
        self.described_error = None;
        Ok(Some(Reply::Done))
    }

    /// Whether the next failure reaches MaxDeliveryCount (SET-35).
    fn is_last(&self, index: usize) -> bool {
        let message = &self.messages[index];
        place(message.state) == SubQueue::Main
            && message.count + 1 >= self.description.max_delivery_count
    }

    /// SET-44: properties of an abandon, without the error if the message has no room for it.
    fn with_error(&mut self, index: usize, properties: &Properties) -> Option<Properties> {
        let (errors, rest): (Vec<_>, Vec<_>) =
            properties.pairs.iter().cloned().partition(|(key, _)| key == LAST_ERROR);
        if errors.is_empty() {
            return Some(properties.clone());
        }
        let message = &self.messages[index];
        let is_last = self.is_last(index);
        let reserve = if is_last { 0 } else { LAST_ATTEMPT_BYTES };
        let header = u64::from(message.header_size) + u64::from(properties.bytes) + reserve;
        let has_overlay = message.set_count < self.limits.message_overlay_count_max;
        if header <= self.limits.header_bytes_max && (has_overlay || is_last && rest.is_empty()) {
            self.reach("SET-42");
            return Some(properties.clone());
        }
        self.reach("SET-44");
        (!rest.is_empty()).then(|| Properties::new(rest))
    }

    /// RTY-02, RTY-08: refused delays of an abandon. The lock is unchanged.
    fn judge_delay(&mut self, index: usize, delay: TimeSpan) -> Result<(), super::Conditions> {
        let mut conditions = Vec::new();
        if delay > self.limits.retry_delay_max {
            self.reach("RTY-02");
            conditions.push(Condition::ArgumentOutOfRange);
        }
        let state = self.messages[index].state;
        if delay > TimeSpan::ZERO
            && matches!(state, State::LockedDeferred | State::DlqLockedDeferred)
        {
            self.reach("RTY-08");
            conditions.push(Condition::InvalidOperation);
        }
        if conditions.is_empty() { Ok(()) } else { Err(conditions) }
    }

    /// The delay after a failure: the requested one, or in the main queue the policy's (RTY-17,
    /// RTY-19).
    fn delay_of(&mut self, index: usize, asked: Option<TimeSpan>) -> Option<TimeSpan> {
        if asked == Some(TimeSpan::ZERO) && self.description.retry_policy.is_some() {
            self.reach("RTY-02");
        }
        let delay = match asked {
            Some(delay) => {
                self.reach("RTY-01");
                delay
            }
            None if place(self.messages[index].state) == SubQueue::Main => {
                let policy = self.description.retry_policy?;
                self.reach("RTY-17");
                self.reach("RTY-18");
                let failures = i64::from(self.messages[index].count);
                let mut ticks = policy.delay.ticks();
                match policy.kind {
                    RetryKind::Fixed => {}
                    RetryKind::Linear => ticks *= failures,
                    RetryKind::Exponential => {
                        for _ in 1..failures.min(30) {
                            ticks *= 2;
                        }
                    }
                }
                let most = policy.delay_max.unwrap_or(self.limits.retry_delay_max);
                TimeSpan::from_ticks(ticks).min(most)
            }
            None => return None,
        };
        Some(delay).filter(|delay| *delay > TimeSpan::ZERO)
    }

    /// SET-08: each key is added or overwritten. SET-10: counted in full in addition to the old
    /// values. SET-41: including the record for it.
    pub(super) fn set_properties(&mut self, index: usize, properties: &Properties) {
        self.reach("SET-08");
        let message = &mut self.messages[index];
        for (key, value) in &properties.pairs {
            message.set.insert(key.clone(), value.clone());
        }
        message.set_count += 1;
        message.size += properties.bytes + OVERLAY_BYTES;
        message.header_size += properties.bytes;
    }

    /// An abandon, the end of a lock, a broken connection: the count grows by one (SET-28), and the
    /// next state depends on the place of the message. No answer waits for a mere count (SET-27).
    pub(super) fn fail_delivery(&mut self, index: usize, asked: Option<TimeSpan>) {
        self.reach("SET-28");
        let expired = self.is_expired(&self.messages[index]);
        let count_max = self.description.max_delivery_count;
        let message = &mut self.messages[index];
        message.lock = None;
        let state = message.state;
        // SET-38: a dead-letter queue counts nothing.
        message.count += u32::from(place(state) == SubQueue::Main);
        let reaches_max = message.count >= count_max;
        match state {
            // EXP-26 to EXP-28: expiry takes effect immediately, and before the count.
            State::Locked if expired => {
                self.messages[index].state = State::Available;
                self.reach("EXP-26");
                self.reach("EXP-27");
                if asked.is_some() || self.description.retry_policy.is_some() {
                    self.reach("RTY-07");
                }
                if reaches_max {
                    self.reach("EXP-28");
                }
                self.expire(index);
            }
            // SET-34, SET-35: at the instant of the failure.
            State::Locked if reaches_max => {
                self.reach("SET-34");
                self.reach("SET-35");
                if asked.is_some() || self.description.retry_policy.is_some() {
                    self.reach("RTY-05");
                }
                self.dead_letter_by_broker(index, Verdict::DeliveryCount(count_max));
            }
            // RCV-26: its place follows from its unchanged number.
            State::Locked => {
                let delay = self.delay_of(index, asked);
                self.come_back(index, [State::Available, State::Delayed], delay);
                self.reach("RCV-26");
            }
            // DEF-05, EXP-38: expired or not.
            State::LockedDeferred if reaches_max => {
                self.reach("DEF-05");
                self.dead_letter_by_broker(index, Verdict::DeliveryCount(count_max));
            }
            State::LockedDeferred => {
                if self.description.retry_policy.is_some() {
                    self.reach("RTY-19");
                }
                self.messages[index].state = State::Deferred;
                self.reach("DEF-05");
            }
            // SET-38: no count, no limit and no consequence.
            State::DlqLocked => {
                let delay = self.delay_of(index, asked);
                self.come_back(index, [State::DlqAvailable, State::DlqDelayed], delay);
                self.reach("SET-38");
            }
            State::DlqLockedDeferred => {
                self.messages[index].state = State::DlqDeferred;
                self.reach("SET-38");
            }
            other @ (State::Scheduled
            | State::Available
            | State::Delayed
            | State::Deferred
            | State::DlqAvailable
            | State::DlqDelayed
            | State::DlqDeferred
            | State::Gone) => panic!("{other:?} was not delivered"),
        }
    }

    /// Makes it available immediately, or after its delay (RTY-01).
    fn come_back(&mut self, index: usize, states: [State; 2], delay: Option<TimeSpan>) {
        let [at_once, later] = states;
        let now = self.now;
        let message = &mut self.messages[index];
        message.delayed_until = delay.map(|delay| now.plus(delay));
        message.state = if delay.is_some() { later } else { at_once };
    }

    /// As if it had never been delivered (SET-32).
    pub(super) fn release(&mut self, index: usize) {
        let message = &mut self.messages[index];
        message.lock = None;
        message.state = match message.state {
            State::Locked => State::Available,
            State::LockedDeferred => State::Deferred,
            State::DlqLocked => State::DlqAvailable,
            State::DlqLockedDeferred => State::DlqDeferred,
            other => panic!("{other:?} was not delivered"),
        };
    }

    /// CON-26: like the end of a lock, or as if the messages had never been delivered.
    pub(super) fn break_locks(
        &mut self,
        sub_queue: SubQueue,
        sequences: &[u64],
        counts: bool,
    ) -> Answered {
        self.touch();
        let mut broken = 0;
        for sequence in sequences {
            let found = self.messages.iter().position(|message| {
                message.sequence == *sequence
                    && message.lock.is_some()
                    && place(message.state) == sub_queue
            });
            let Some(index) = found else { continue };
            broken += 1;
            if counts {
                self.reach("CON-26 counted");
                self.fail_delivery(index, None);
            } else {
                self.reach("CON-26");
                self.release(index);
            }
        }
        Ok(Some(Reply::LocksBroken(broken)))
    }

    /// SET-36, DLQ-12, DLQ-14: number, instants and count are kept, reason and description are
    /// added.
    pub(super) fn dead_letter_by_broker(&mut self, index: usize, verdict: Verdict) {
        let message = &mut self.messages[index];
        message.state = State::DlqAvailable;
        message.delayed_until = None;
        message.in_flight = true;
        let mut is_error_described = false;
        let (reason, description) = match verdict {
            Verdict::Expired => ("TTLExpiredException", "<expired>".to_owned()),
            Verdict::DeliveryCount(count) => {
                let words = match self.described_error.take() {
                    Some(error) => {
                        is_error_described = true;
                        format!("<{count}|{error}>")
                    }
                    None => format!("<{count}>"),
                };
                ("MaxDeliveryCountExceeded", words)
            }
        };
        message.set.insert(REASON.to_owned(), reason.to_owned());
        message.set.insert(DESCRIPTION.to_owned(), description);
        message.set_count += 1;
        // MSG-24: the broker's own properties count, too.
        let sequence = message.sequence;
        match self.verdict_bytes.remove(&sequence) {
            Some(bytes) => {
                message.size += bytes + OVERLAY_BYTES;
                message.header_size += bytes;
            }
            None => self.verdicts_missing.push(sequence),
        }
        if is_error_described {
            self.reach("DLQ-34");
        }
        self.reach(match verdict {
            Verdict::Expired => "EXP-23",
            Verdict::DeliveryCount(_) => "SET-36",
        });
    }

    /// SET-18: to now plus the current lock duration (ENT-18).
    pub(super) fn renew(&mut self, sub_queue: SubQueue, lock: LockName) -> Answered {
        let until = self.now.plus(self.description.lock_duration);
        let Some(index) = self.held(sub_queue, lock) else {
            self.reach("SET-20");
            return refuse(Condition::MessageLockLost);
        };
        if self.is_expired(&self.messages[index]) {
            self.reach("EXP-25");
        }
        if let Some(lock) = &mut self.messages[index].lock {
            lock.until = until;
            lock.renewals += 1;
        }
        self.reach("SET-18");
        self.touch();
        Ok(Some(Reply::Renewed(until)))
    }
}

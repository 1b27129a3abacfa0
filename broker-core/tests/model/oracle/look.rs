//! Peeking, inspecting, deleting, describing.

use peeklock_core::command::{Counts, MessageState};
use peeklock_core::condition::Condition;
use peeklock_core::description::QueueDescription;
use peeklock_core::ids::ReceiverId;
use peeklock_core::inspect::{HeadQuery, HeadStart, HeadState, LockFacts, ROW_COUNT_MAX};
use peeklock_core::path::SubQueue;
use peeklock_core::time::Timestamp;

use super::{Answered, Message, Oracle, State, check_count, place, refuse};
use crate::operation::{Inspected, Reply, Report, Seen, SeenLock};

impl Oracle {
    /// PEK-01 to PEK-08.
    pub(super) fn peek(&mut self, sub_queue: SubQueue, from: u64, count_max: u32) -> Answered {
        check_count(count_max)?;
        self.touch();
        let mut seen = Vec::new();
        let mut bytes = 0;
        for index in self.in_order(sub_queue) {
            let message = &self.messages[index];
            // DESIGN D5: changes that are not durable are not visible.
            if message.sequence < from || message.in_flight {
                continue;
            }
            if seen.len() as u64 == u64::from(count_max) || seen.len() == self.limits.peek_count_max
            {
                self.reach("PEK-08");
                break;
            }
            bytes += u64::from(message.size);
            if !seen.is_empty() && bytes > self.limits.peek_bytes_max {
                self.reach("PEK-08");
                break;
            }
            seen.push(self.seen_on_peek(index));
        }
        self.reach("PEK-01");
        Ok(Some(Reply::Peeked(seen)))
    }

    /// CON-01, CON-02: unlike a peek, it is no use of the queue, and lists by state.
    pub(super) fn inspect(&mut self, sub_queue: SubQueue, query: &HeadQuery) -> Answered {
        if query.count_max == 0 || query.count_max > ROW_COUNT_MAX {
            return refuse(Condition::ArgumentOutOfRange);
        }
        let mut order = self.in_order(sub_queue);
        if query.is_descending {
            order.reverse();
        }
        let (mut rows, mut has_more) = (Vec::new(), false);
        for index in order {
            let message = &self.messages[index];
            let number = message.sequence;
            let is_in_range = match (query.start, query.is_descending) {
                (HeadStart::End | HeadStart::Instant(_), _) => true,
                (HeadStart::Number(first), false) => number >= first.0,
                (HeadStart::Number(first), true) => number <= first.0,
                (HeadStart::After(last), false) => number > last.sequence.0,
                (HeadStart::After(last), true) => number < last.sequence.0,
            };
            let row = self.inspected(message);
            let is_hidden = message.in_flight && !message.leaving;
            if is_hidden || !is_in_range || !query.states.contains(row.state) {
                continue;
            }
            has_more = rows.len() as u64 == u64::from(query.count_max);
            if has_more {
                break;
            }
            rows.push(row);
        }
        self.reach("CON-02");
        Ok(Some(Reply::Inspected(rows, has_more)))
    }

    fn inspected(&self, message: &Message) -> Inspected {
        let is_main = place(message.state) == SubQueue::Main;
        let is_expired = is_main && message.state != State::Scheduled && self.is_expired(message);
        Inspected {
            sequence: message.sequence,
            state: match message.state {
                _ if message.leaving => HeadState::Transferring,
                State::Locked
                | State::LockedDeferred
                | State::DlqLocked
                | State::DlqLockedDeferred => HeadState::Locked,
                State::Scheduled => HeadState::Scheduled,
                State::Deferred | State::DlqDeferred => HeadState::Deferred,
                State::Available | State::Delayed if is_expired => HeadState::Expired,
                State::Delayed | State::DlqDelayed => HeadState::Delayed,
                State::Available | State::DlqAvailable => HeadState::Active,
                State::Gone => panic!("a message that is gone was inspected"),
            },
            expires_at: if is_main { self.expires_at(message) } else { Timestamp::NEVER },
            is_expired,
            lock: message.lock.as_ref().map(|lock| LockFacts {
                taken_at: lock.taken_at,
                until: lock.until,
                renewals: lock.renewals,
                holder: lock.taken_by.map(ReceiverId),
                is_of_session: false,
            }),
        }
    }

    /// All messages of a sub-queue, ascending by number.
    pub(super) fn in_order(&self, sub_queue: SubQueue) -> Vec<usize> {
        let mut order: Vec<usize> = (0..self.messages.len())
            .filter(|index| {
                let state = self.messages[*index].state;
                state != State::Gone && place(state) == sub_queue
            })
            .collect();
        order.sort_by_key(|index| self.messages[*index].sequence);
        order
    }

    /// Result of a peek of a whole sub-queue.
    pub fn contents(&self, sub_queue: SubQueue) -> Vec<Seen> {
        self.in_order(sub_queue).into_iter().map(|index| self.seen_on_peek(index)).collect()
    }

    /// DEL-01 to DEL-05: available messages, including expired ones, lowest numbers first.
    pub(super) fn delete_batch(
        &mut self,
        sub_queue: SubQueue,
        count_max: u32,
        enqueued_before: Option<Timestamp>,
    ) -> Answered {
        let in_range = count_max > 0 && count_max as usize <= self.limits.batch_delete_count_max;
        match (self.description.status.allows_receive(), in_range) {
            (true, true) => {}
            (true, false) => {
                self.reach("DEL-02");
                return refuse(Condition::ArgumentOutOfRange);
            }
            (false, true) => {
                self.reach("ENT-24");
                return refuse(Condition::EntityDisabled);
            }
            (false, false) => {
                return Err(vec![Condition::EntityDisabled, Condition::ArgumentOutOfRange]);
            }
        }
        let before = enqueued_before.unwrap_or(self.now);
        let mut deleted = 0;
        for index in self.in_order(sub_queue) {
            let message = &self.messages[index];
            // DEL-03, DEL-04.
            if deleted < u64::from(count_max)
                && matches!(
                    message.state,
                    State::Available | State::Delayed | State::DlqAvailable | State::DlqDelayed
                )
                && !message.in_flight
                && message.enqueued_at < before
            {
                let is_delayed = message.delayed_until.is_some();
                self.reach("DEL-01");
                if is_delayed {
                    self.reach("RTY-13");
                }
                self.remove(index);
                deleted += 1;
            }
        }
        self.touch_perhaps();
        Ok(Some(Reply::Deleted(deleted)))
    }

    /// DEL-09: a deferred message, expired or not.
    pub(super) fn delete_deferred(&mut self, sub_queue: SubQueue, sequence: u64) -> Answered {
        // RTY-13: a delayed message is removed by number, too.
        let delayed = match sub_queue {
            SubQueue::Main => self.find(sequence, State::Delayed),
            SubQueue::DeadLetter => self.find(sequence, State::DlqDelayed),
            SubQueue::TransferDeadLetter => None,
        };
        let delayed = delayed.filter(|index| !self.messages[*index].in_flight);
        let Some(index) = self.find_deferred(sub_queue, sequence).or(delayed) else {
            return refuse(Condition::MessageNotFound);
        };
        if delayed.is_some() {
            self.reach("RTY-13");
        }
        self.reach("DEL-09");
        self.remove(index);
        self.touch_perhaps();
        Ok(Some(Reply::Done))
    }

    pub(super) fn update(
        &mut self,
        sub_queue: SubQueue,
        description: &QueueDescription,
        read_at: Option<Timestamp>,
    ) -> Answered {
        if sub_queue != SubQueue::Main {
            return refuse(Condition::InvalidOperation);
        }
        // ENT-17: a concurrent change since the version that was read.
        if read_at.is_some_and(|read_at| read_at != self.updated_at) {
            self.reach("ENT-17");
            return refuse(Condition::UpdateConflict);
        }
        self.forget_ids(description.duplicate_detection_history_time_window);
        self.description = description.clone();
        self.updated_at = self.now;
        // An update prevents idleness, and is no access (TMP-09, CNT-09).
        self.last_use.idle_from = self.now;
        if !self.description.status.allows_receive() {
            self.close_receivers();
        }
        self.reach("ENT-17");
        Ok(Some(Reply::Done))
    }

    pub(super) fn describe(&mut self, sub_queue: SubQueue) -> Answered {
        if sub_queue != SubQueue::Main {
            return refuse(Condition::InvalidOperation);
        }
        Ok(Some(Reply::Described(Box::new(self.report()))))
    }

    /// CNT-01 to CNT-03, CNT-08, CNT-09.
    pub fn report(&self) -> Report {
        let mut counts = Counts::default();
        let mut size_bytes = 0;
        for message in &self.messages {
            match message.state {
                // LIF-05.
                _ if message.leaving => counts.transfer += 1,
                State::Scheduled => counts.scheduled += 1,
                State::Available | State::Locked => counts.active += 1,
                // RTY-11: it counts in both.
                State::Delayed => {
                    counts.active += 1;
                    counts.delayed += 1;
                }
                State::Deferred | State::LockedDeferred => counts.deferred += 1,
                State::DlqAvailable
                | State::DlqDelayed
                | State::DlqLocked
                | State::DlqDeferred
                | State::DlqLockedDeferred => counts.dead_letter += 1,
                State::Gone => continue,
            }
            size_bytes += u64::from(message.size);
        }
        Report {
            description: self.description.clone(),
            counts,
            size_bytes,
            created_at: self.created_at,
            updated_at: self.updated_at,
            accessed_at: self.last_use.certain,
        }
    }

    pub(super) fn seen(&self, index: usize) -> Seen {
        let message = &self.messages[index];
        let lock = message.lock.as_ref();
        Seen {
            marker: message.marker,
            sequence: message.sequence,
            // MSG-15: it was never transferred.
            enqueued_sequence: 0,
            enqueued_at: message.enqueued_at,
            expires_at: message.expires_at,
            time_to_live: message.time_to_live,
            delivery_count: message.count,
            // SET-29, SET-30.
            shown_count: message.count + u32::from(lock.is_some()),
            state: match message.state {
                State::Scheduled => MessageState::Scheduled,
                State::Delayed | State::DlqDelayed => MessageState::Delayed,
                State::Available | State::Locked | State::DlqAvailable | State::DlqLocked => {
                    MessageState::Active
                }
                State::Deferred
                | State::LockedDeferred
                | State::DlqDeferred
                | State::DlqLockedDeferred => MessageState::Deferred,
                State::Gone => panic!("a message that is gone was looked at"),
            },
            delayed_until: message.delayed_until,
            sub_queue: place(message.state),
            lock: lock.map(|lock| SeenLock { name: lock.name, until: lock.until }),
            size: message.size,
            set: message.set.clone(),
        }
    }

    /// EXP-11, EXP-12, EXP-14: only stored values. PEK-05: no lock.
    pub(super) fn seen_on_peek(&self, index: usize) -> Seen {
        let mut seen = self.seen(index);
        seen.lock = None;
        seen.shown_count = seen.delivery_count;
        seen
    }

    /// EXP-11, EXP-14: the effective values.
    pub(super) fn seen_on_receive(&self, index: usize) -> Seen {
        let message = &self.messages[index];
        let default = self.description.default_message_time_to_live;
        let mut seen = self.seen(index);
        seen.expires_at = Some(self.expires_at(message));
        seen.time_to_live = Some(message.time_to_live.unwrap_or(default));
        seen
    }
}

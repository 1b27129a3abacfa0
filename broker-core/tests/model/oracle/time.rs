//! Time: locks end, scheduled messages are enqueued, messages expire, an entity becomes idle.

use peeklock_core::path::SubQueue;
use peeklock_core::time::Timestamp;

use super::{LastUse, Message, Oracle, State, Verdict, place};

impl Oracle {
    /// Processes due events. They are never late if the caller wakes the oracle at every
    /// [`Oracle::next_event`].
    pub(super) fn advance(&mut self, now: Timestamp) {
        self.now = now;
        // The reason for its use may end now.
        self.remember_use();
        // SET-16: a lock ends by itself.
        for index in 0..self.messages.len() {
            if self.messages[index].lock.as_ref().is_some_and(|lock| lock.until <= now) {
                self.reach("SET-04");
                self.reach("SET-16");
                self.fail_delivery(index, None);
            }
        }
        // SCH-07: in order of instant, then of scheduled number.
        loop {
            let due = (0..self.messages.len())
                .filter(|index| self.messages[*index].state == State::Scheduled)
                .filter(|index| self.messages[*index].enqueued_at <= now)
                .min_by_key(|index| {
                    (self.messages[*index].enqueued_at, self.messages[*index].sequence)
                });
            let Some(index) = due else { break };
            self.materialise(index);
        }
        // RTY-03, RTY-04: delayed messages are available again, in their place.
        for index in 0..self.messages.len() {
            let message = &mut self.messages[index];
            if message.delayed_until.is_none_or(|until| until > now) {
                continue;
            }
            message.delayed_until = None;
            message.state = match message.state {
                State::Delayed => State::Available,
                State::DlqDelayed => State::DlqAvailable,
                other => panic!("{other:?} is delayed"),
            };
            self.reach("RTY-03");
            self.reach("RTY-04");
        }
        self.sweep();
        self.remember_use();
        let idle = self.description.auto_delete_on_idle;
        self.idle_at = (!self.is_busy()).then(|| self.last_use.idle_from.plus(idle));
    }

    /// A message that becomes available at that very instant is still delivered.
    pub(super) fn time_out(&mut self) {
        let now = self.now;
        // RCV-11: an empty result at the end of the wait.
        let over: Vec<u64> = self
            .waiting
            .iter()
            .filter(|call| call.deadline.is_some_and(|deadline| deadline <= now))
            .map(|call| call.ticket)
            .collect();
        for ticket in over {
            self.reach("RCV-11");
            self.end_call(ticket, Vec::new());
        }
    }

    /// SCH-03: appended as if enqueued at that instant, with a new number.
    pub(super) fn materialise(&mut self, index: usize) {
        self.reach("SCH-01");
        self.reach("SCH-03");
        let default = self.description.default_message_time_to_live;
        let now = self.now;
        let sequence = self.take_sequence();
        let message = &mut self.messages[index];
        message.sequence = sequence;
        message.enqueued_at = now;
        message.state = State::Available;
        message.in_flight = true;
        // EXP-05, EXP-17, EXP-18: the time to live counts from now.
        message.time_to_live = message.time_to_live.map(|span| span.min(default));
        message.expires_at = message.time_to_live.map(|span| now.plus(span));
        if message.time_to_live.is_some() {
            self.reach("EXP-17");
        }
    }

    /// EXP-21, EXP-22: with an active receiver, expired messages are dropped or dead-lettered.
    pub(super) fn sweep(&mut self) {
        let expired: Vec<usize> = (0..self.messages.len())
            .filter(|index| {
                matches!(self.messages[*index].state, State::Available | State::Delayed)
            })
            .filter(|index| !self.messages[*index].in_flight)
            .filter(|index| self.is_expired(&self.messages[*index]))
            .collect();
        if expired.is_empty() {
            return;
        }
        if !self.has_active_receiver() {
            // EXP-31, EXP-32: not enforced without a receiver.
            self.reach("EXP-31");
            self.reach("EXP-32");
            return;
        }
        for index in expired {
            self.reach("EXP-34");
            if self.messages[index].delayed_until.take().is_some() {
                self.reach("RTY-07");
            }
            self.expire(index);
        }
    }

    /// A receive on the main queue, or a link there with unused credit (file 01).
    pub(super) fn has_active_receiver(&self) -> bool {
        self.waiting.iter().any(|call| call.sub_queue == SubQueue::Main)
            || self.links.iter().any(|link| link.sub_queue == SubQueue::Main && link.credit() > 0)
    }

    pub(super) fn expire(&mut self, index: usize) {
        if self.description.dead_lettering_on_message_expiration {
            self.reach("EXP-22");
            self.dead_letter_by_broker(index, Verdict::Expired);
        } else {
            self.reach("EXP-21");
            self.remove(index);
        }
    }

    /// EXP-13: the stored instant of a message with its own time to live, else the current default
    /// applies.
    pub(super) fn expires_at(&self, message: &Message) -> Timestamp {
        message.expires_at.unwrap_or_else(|| {
            message.enqueued_at.plus(self.description.default_message_time_to_live)
        })
    }

    /// EXP-38, EXP-39: a deferred message in the main queue must not be expired.
    pub fn is_receivable(&self, message: &Message) -> bool {
        place(message.state) == SubQueue::DeadLetter || !self.is_expired(message)
    }

    /// EXP-15: expired at or after the instant.
    pub(super) fn is_expired(&self, message: &Message) -> bool {
        self.expires_at(message) <= self.now
    }

    /// The next instant at which something happens without a command, except idleness.
    pub fn next_event(&self) -> Option<Timestamp> {
        let mut instants = Vec::new();
        for message in &self.messages {
            instants.extend(message.lock.as_ref().map(|lock| lock.until));
            if message.state == State::Scheduled {
                instants.push(message.enqueued_at);
            }
            instants.extend(message.delayed_until);
            if matches!(message.state, State::Available | State::Delayed)
                && self.has_active_receiver()
            {
                instants.push(self.expires_at(message));
            }
        }
        instants.extend(self.waiting.iter().filter_map(|call| call.deadline));
        instants.retain(|at| !at.is_never());
        instants.into_iter().min()
    }

    /// Instants at which anything changes for a receiver, for the generator.
    pub fn interesting_instants(&self) -> Vec<Timestamp> {
        let mut instants = Vec::new();
        for message in self.messages.iter().filter(|message| message.state != State::Gone) {
            instants.extend(message.lock.as_ref().map(|lock| lock.until));
            instants.extend(message.delayed_until);
            instants.push(match message.state {
                State::Scheduled => message.enqueued_at,
                _ => self.expires_at(message),
            });
        }
        for remembered in &self.remembered {
            instants.push(remembered.at.plus(self.window()));
        }
        instants.retain(|at| *at > self.now && !at.is_never());
        instants
    }

    /// Records an activity of the table.
    pub(super) fn touch(&mut self) {
        self.last_use = LastUse { certain: self.now, possible: self.now, idle_from: self.now };
    }

    /// Records an event that the table leaves open.
    pub(super) fn touch_perhaps(&mut self) {
        self.last_use.possible = self.now;
    }

    /// TMP-14, TMP-15: not idle while it has scheduled messages or unsatisfied demand.
    pub fn is_busy(&self) -> bool {
        !self.waiting.is_empty()
            || self.links.iter().any(|link| link.credit() > 0)
            || self.messages.iter().any(|message| message.state == State::Scheduled)
    }

    pub(super) fn remember_use(&mut self) {
        if self.is_busy() {
            self.last_use.idle_from = self.now;
            self.last_use.possible = self.now;
        }
    }
}

//! Sending, and removal before the scheduled instant.

use std::collections::BTreeMap;

use peeklock_core::condition::Condition;
use peeklock_core::path::SubQueue;
use peeklock_core::time::TimeSpan;

use super::{Answered, Conditions, Message, Oracle, Remembered, State, refuse};
use crate::operation::{Draft, Flaw, Reply};

impl Oracle {
    pub(super) fn send(&mut self, sub_queue: SubQueue, draft: &Draft) -> Answered {
        self.admit(sub_queue, std::slice::from_ref(draft))?;
        let sequence = self.accept(draft);
        Ok(Some(Reply::Accepted(sequence)))
    }

    /// SND-29, SND-31: all or none, numbered in order.
    pub(super) fn send_batch(&mut self, sub_queue: SubQueue, drafts: &[Draft]) -> Answered {
        self.admit(sub_queue, drafts)?;
        if drafts.is_empty() {
            self.reach("SND-34");
            self.touch_perhaps();
        }
        let sequences = drafts.iter().map(|draft| self.accept(draft)).collect();
        self.reach("SND-31");
        Ok(Some(Reply::AcceptedBatch(sequences)))
    }

    /// The checks of SND-19 in order, each over all messages before the next.
    pub(super) fn admit(
        &mut self,
        sub_queue: SubQueue,
        drafts: &[Draft],
    ) -> Result<(), Conditions> {
        if sub_queue != SubQueue::Main {
            self.reach("SND-20");
            return refuse(Condition::InvalidOperation);
        }
        if !self.description.status.allows_send() {
            self.reach("ENT-24");
            return refuse(Condition::EntityDisabled);
        }
        for draft in drafts {
            if draft.flaw == Some(Flaw::Size) {
                self.reach("SND-23");
                return refuse(Condition::MessageSizeExceeded);
            }
            if u64::from(draft.size) > self.description.max_message_size_in_kilobytes * 1024 {
                self.reach("SND-22");
                return refuse(Condition::MessageSizeExceeded);
            }
        }
        let bytes: u64 = drafts.iter().map(|draft| u64::from(draft.size)).sum();
        if drafts.len() > 1 && bytes > self.limits.batch_bytes_max {
            self.reach("SND-30");
            return refuse(Condition::MessageSizeExceeded);
        }
        for draft in drafts {
            if let Some(Flaw::Property(condition)) = draft.flaw {
                self.reach("SND-32");
                return refuse(condition);
            }
        }
        // SND-34: a batch without messages needs no room.
        if drafts.is_empty() {
            return Ok(());
        }
        if self.full {
            self.reach("QUO-05");
            return refuse(Condition::ServerBusy);
        }
        if self.stored_bytes() + bytes > self.description.max_size_in_megabytes * 1024 * 1024 {
            self.reach("SND-24");
            self.reach("QUO-04");
            return refuse(Condition::QuotaExceeded);
        }
        Ok(())
    }

    /// Stores an admitted message, or drops it as a duplicate (DUP-02).
    pub(super) fn accept(&mut self, draft: &Draft) -> u64 {
        self.touch();
        let now = self.now;
        let scheduled_at = draft.scheduled_at.filter(|at| *at > now);
        if draft.scheduled_at.is_some() && scheduled_at.is_none() {
            self.reach("SCH-06");
        }
        if let Some(kept) = self.kept_for(draft) {
            self.reach("DUP-02");
            self.reach("DUP-05");
            self.reach("DUP-06");
            if kept > 0 {
                self.reach("DUP-12");
            }
            return kept;
        }
        let sequence = self.take_sequence();
        self.reach("MSG-12");
        if self.description.requires_duplicate_detection
            && let Some(id) = draft.id
        {
            self.reach("DUP-01");
            let number = if scheduled_at.is_some() { sequence } else { 0 };
            self.remembered.push(Remembered { id, at: now, sequence: number });
        }
        let default = self.description.default_message_time_to_live;
        // EXP-05: silently lowered to the default when it is enqueued.
        let time_to_live = match scheduled_at {
            Some(_) => draft.time_to_live,
            None => draft.time_to_live.map(|span| span.min(default)),
        };
        if time_to_live != draft.time_to_live {
            self.reach("EXP-05");
        }
        let enqueued_at = scheduled_at.unwrap_or(now);
        self.messages.push(Message {
            marker: draft.marker,
            sequence,
            state: if scheduled_at.is_some() { State::Scheduled } else { State::Available },
            enqueued_at,
            time_to_live,
            // EXP-02, EXP-12.
            expires_at: time_to_live.map(|span| enqueued_at.plus(span)),
            count: 0,
            size: draft.size,
            header_size: draft.header_size,
            set: BTreeMap::new(),
            set_count: 0,
            lock: None,
            delayed_until: None,
            in_flight: true,
            leaving: false,
        });
        sequence
    }

    /// The number returned to the sender of a duplicate: that of the scheduled message while it
    /// exists (DUP-12), else 0; `None` if the message is no duplicate.
    pub(super) fn kept_for(&self, draft: &Draft) -> Option<u64> {
        let id = draft.id.filter(|_| self.description.requires_duplicate_detection)?;
        let (now, window) = (self.now, self.window());
        let mut remembered = self.remembered.iter().rev();
        let kept = remembered.find(|kept| kept.id == id && now < kept.at.plus(window))?;
        let is_scheduled = draft.scheduled_at.is_some()
            && self.messages.iter().any(|message| {
                message.sequence == kept.sequence && message.state == State::Scheduled
            });
        Some(if is_scheduled { kept.sequence } else { 0 })
    }

    pub(super) fn window(&self) -> TimeSpan {
        self.description.duplicate_detection_history_time_window
    }

    /// MSG-12, MSG-13: from 1 on, without gaps.
    pub(super) fn take_sequence(&mut self) -> u64 {
        let sequence = self.next_sequence;
        self.next_sequence += 1;
        sequence
    }

    /// CNT-08, and for the quota also removed messages whose removal is not durable (DESIGN D3).
    pub fn stored_bytes(&self) -> u64 {
        self.messages
            .iter()
            .filter(|message| message.state != State::Gone || message.in_flight)
            .map(|message| u64::from(message.size))
            .sum()
    }

    /// SCH-04, SCH-05: all or none.
    pub(super) fn cancel(&mut self, sub_queue: SubQueue, sequences: &[u64]) -> Answered {
        if sub_queue != SubQueue::Main {
            return refuse(Condition::InvalidOperation);
        }
        let mut found = Vec::new();
        if sequences.contains(&0) {
            // No message has the number. If several are wrong, any may be named.
            return Err(vec![Condition::ArgumentOutOfRange, Condition::MessageNotFound]);
        }
        for sequence in sequences {
            // No client knows the number of a message that is not durable.
            let index = self.find(*sequence, State::Scheduled);
            let Some(index) =
                index.filter(|index| !self.messages[*index].in_flight && !found.contains(index))
            else {
                self.reach("SCH-05");
                return refuse(Condition::MessageNotFound);
            };
            found.push(index);
        }
        for index in found {
            self.reach("SCH-04");
            self.remove(index);
        }
        self.touch();
        Ok(Some(Reply::Done))
    }

    /// DUP-04: the specification leaves open whether a longer window revives ids that the shorter
    /// one forgot, so no message with such an id is sent any more.
    pub(super) fn forget_ids(&mut self, window: TimeSpan) {
        if window <= self.window() {
            return;
        }
        let (now, old) = (self.now, self.window());
        let over = |kept: &Remembered| kept.at.plus(old) <= now;
        self.open_ids.extend(self.remembered.iter().filter(|kept| over(kept)).map(|kept| kept.id));
        self.remembered.retain(|kept| !over(kept));
    }
}

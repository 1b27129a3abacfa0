//! Invariants without an oracle, for any order of appends: a book built only from changes, which
//! knows each message's state, and the contents of the store after each append.

use std::collections::BTreeMap;

use peeklock_core::change::{Change, DeadLetterCause, Removal};
use peeklock_core::command::{Counts, MessageState};
use peeklock_core::machine::slot::SlotState;
use peeklock_core::path::SubQueue;
use peeklock_core::time::Timestamp;

use crate::operation::{LockName, Seen};

/// One message in the book.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Entry {
    pub marker: u64,
    /// Also active while it is delayed.
    pub state: MessageState,
    pub delayed_until: Option<Timestamp>,
    pub sub_queue: SubQueue,
    pub count: u32,
    pub enqueued_at: Timestamp,
}

/// State of an entity according to its changes.
#[derive(Clone, Default, Debug)]
pub struct Book {
    pub entries: BTreeMap<u64, Entry>,
    pub last_sequence: u64,
    pub accepted: u64,
    pub gone: u64,
}

/// A lock of a receiver.
#[derive(Clone, Debug)]
pub struct HeldLock {
    pub name: LockName,
    pub sequence: u64,
    pub sub_queue: SubQueue,
    pub until: Timestamp,
    pub holder: Option<u64>,
}

impl Entry {
    /// Whether it is delayed at that instant and so cannot be delivered (RTY-13).
    pub fn is_delayed(&self, now: Timestamp) -> bool {
        self.delayed_until.is_some_and(|until| until > now)
    }

    /// Visible state at that instant: the end of a delay has no append (RTY-06).
    fn as_of(&self, now: Timestamp) -> Self {
        match self.is_delayed(now) {
            true => Self { state: MessageState::Delayed, ..self.clone() },
            false => Self { delayed_until: None, ..self.clone() },
        }
    }
}

impl Book {
    /// Enters a change. A change that the table of file 23 does not allow is an error (LIF-01).
    pub fn enter(&mut self, change: &Change) -> Result<(), String> {
        match change {
            Change::Accepted { sequence, slot, content, .. } => {
                self.take_number(sequence.0)?;
                let state = match slot.state {
                    SlotState::Scheduled => MessageState::Scheduled,
                    SlotState::Active => MessageState::Active,
                    SlotState::Deferred | SlotState::Pending => {
                        return Err(format!("{sequence} is born as {:?}", slot.state));
                    }
                };
                let body = content.body_bytes();
                let marker = std::str::from_utf8(&body).ok().and_then(|text| text.parse().ok());
                let entry = Entry {
                    marker: marker.ok_or("content is not what was sent")?,
                    state,
                    delayed_until: None,
                    sub_queue: slot.sub_queue,
                    count: slot.delivery_count,
                    enqueued_at: slot.enqueued_at,
                };
                if entry.count != 0 || entry.sub_queue != SubQueue::Main {
                    return Err(format!("{sequence} is born as {entry:?}"));
                }
                self.accepted += 1;
                self.entries.insert(sequence.0, entry);
            }
            Change::Materialised { from, to, enqueued_at, .. } => {
                self.take_number(to.0)?;
                let mut entry = self.take(from.0)?;
                expect(&entry, entry.state == MessageState::Scheduled, change)?;
                entry.state = MessageState::Active;
                entry.enqueued_at = *enqueued_at;
                self.entries.insert(to.0, entry);
            }
            Change::Removed { sequence, reason, .. } => {
                let entry = self.take(sequence.0)?;
                let is_right = match reason {
                    Removal::Completed | Removal::Received => {
                        entry.state != MessageState::Scheduled
                    }
                    Removal::Expired => {
                        entry.state == MessageState::Active && entry.sub_queue == SubQueue::Main
                    }
                    Removal::Cancelled => entry.state == MessageState::Scheduled,
                    Removal::Deleted => entry.state != MessageState::Scheduled,
                    Removal::Forwarded => false,
                };
                expect(&entry, is_right, change)?;
                self.gone += 1;
            }
            Change::DeliveryCounted { sequence, delivery_count, delayed_until }
            | Change::Abandoned { sequence, delivery_count, delayed_until, .. } => {
                let entry = self.entry(sequence.0)?;
                // A failure of a deferred message causes no delay (RTY-08). A dead-letter queue
                // counts nothing (SET-38).
                let counted = entry.count + u32::from(entry.sub_queue == SubQueue::Main);
                let is_right = entry.state != MessageState::Scheduled
                    && counted == *delivery_count
                    && (delayed_until.is_none() || entry.state == MessageState::Active);
                expect(entry, is_right, change)?;
                entry.count = *delivery_count;
                entry.delayed_until = *delayed_until;
            }
            Change::Deferred { sequence, delivery_count, .. } => {
                let entry = self.entry(sequence.0)?;
                let counted = entry.count + u32::from(entry.sub_queue == SubQueue::Main);
                let is_right = entry.state != MessageState::Scheduled && counted == *delivery_count;
                expect(entry, is_right, change)?;
                entry.count = *delivery_count;
                entry.state = MessageState::Deferred;
                entry.delayed_until = None;
            }
            // The model draws no job that is undone.
            Change::PutBack { .. } => {}
            Change::Undeferred { sequence } => {
                let entry = self.entry(sequence.0)?;
                expect(entry, entry.state == MessageState::Deferred, change)?;
                entry.state = MessageState::Active;
            }
            Change::Rescheduled { sequence, at, .. } => {
                let entry = self.entry(sequence.0)?;
                expect(entry, entry.state == MessageState::Scheduled, change)?;
                entry.enqueued_at = *at;
            }
            Change::DeadLettered { sequence, into, delivery_count, cause, .. } => {
                let entry = self.entry(sequence.0)?;
                let is_right = entry.sub_queue == SubQueue::Main
                    && *into == SubQueue::DeadLetter
                    && match cause {
                        DeadLetterCause::Expired => {
                            entry.state == MessageState::Active
                                && (*delivery_count == entry.count
                                    || *delivery_count == entry.count + 1)
                        }
                        DeadLetterCause::DeliveryCount => {
                            entry.state != MessageState::Scheduled
                                && *delivery_count == entry.count + 1
                        }
                        DeadLetterCause::Application | DeadLetterCause::Operator => {
                            entry.state != MessageState::Scheduled && *delivery_count == entry.count
                        }
                        // Copies of a topic are created there.
                        DeadLetterCause::Rule
                        | DeadLetterCause::HeaderSize
                        | DeadLetterCause::NoSession
                        | DeadLetterCause::Forwarding
                        | DeadLetterCause::CopyCount => false,
                    };
                expect(entry, is_right, change)?;
                entry.sub_queue = *into;
                entry.state = MessageState::Active;
                entry.delayed_until = None;
                entry.count = *delivery_count;
            }
            // A job has sent it (CON-15).
            Change::Departed { sequence } => {
                let entry = self.take(sequence.0)?;
                expect(&entry, entry.state == MessageState::Active, change)?;
                self.gone += 1;
            }
            Change::Pending { .. } | Change::Arrived { .. } | Change::Absorbed { .. } => {
                return Err(format!("nothing is transferred here: {change:?}"));
            }
            Change::IdRecorded { .. }
            | Change::IdsForgotten { .. }
            | Change::PeerTaken { .. }
            | Change::PeerForgotten { .. }
            | Change::Receipted(_)
            | Change::JobForgotten(_)
            | Change::SessionStateSet { .. }
            | Change::Described { .. } => {}
            // Numbers are reserved for messages that a transaction schedules (SCH-13).
            Change::Numbered { last } => self.last_sequence = last.0,
            Change::SubscriptionDescribed { .. } | Change::OfTopic(_) => {
                return Err("a change of a topic in a queue".to_owned());
            }
        }
        Ok(())
    }

    /// MSG-12, MSG-13: each number follows the last one.
    fn take_number(&mut self, sequence: u64) -> Result<(), String> {
        if sequence != self.last_sequence + 1 {
            return Err(format!("number {sequence} follows {} (MSG-13)", self.last_sequence));
        }
        self.last_sequence = sequence;
        Ok(())
    }

    fn entry(&mut self, sequence: u64) -> Result<&mut Entry, String> {
        self.entries.get_mut(&sequence).ok_or_else(|| format!("message {sequence} is not there"))
    }

    fn take(&mut self, sequence: u64) -> Result<Entry, String> {
        self.entries.remove(&sequence).ok_or_else(|| format!("message {sequence} is not there"))
    }

    /// CNT-01 to CNT-03, RTY-11.
    pub fn counts(&self, now: Timestamp) -> Counts {
        let mut counts = Counts::default();
        for entry in self.entries.values() {
            let is_delayed = entry.sub_queue == SubQueue::Main && entry.is_delayed(now);
            counts.delayed += u64::from(is_delayed);
            match (entry.sub_queue, entry.state) {
                (SubQueue::Main, MessageState::Active | MessageState::Delayed) => {
                    counts.active += 1;
                }
                (SubQueue::Main, MessageState::Deferred) => counts.deferred += 1,
                (SubQueue::Main, MessageState::Scheduled) => counts.scheduled += 1,
                (SubQueue::DeadLetter, _) => counts.dead_letter += 1,
                (SubQueue::TransferDeadLetter, _) => counts.transfer_dead_letter += 1,
            }
        }
        counts
    }

    /// Whether the found messages are those in the book, each in one state of one sub-queue
    /// (LIF-02).
    pub fn check(
        &self,
        now: Timestamp,
        counts: &Counts,
        found: &[Vec<Seen>],
    ) -> Result<(), String> {
        let found: Vec<(u64, Entry)> = found
            .iter()
            .flatten()
            .map(|seen| {
                let entry = Entry {
                    marker: seen.marker,
                    state: seen.state,
                    delayed_until: seen.delayed_until,
                    sub_queue: seen.sub_queue,
                    count: seen.delivery_count,
                    enqueued_at: seen.enqueued_at,
                };
                (seen.sequence, entry)
            })
            .collect();
        let mut in_order = found.clone();
        in_order.sort_by_key(|(sequence, _)| *sequence);
        let booked: Vec<(u64, Entry)> =
            self.entries.iter().map(|(sequence, entry)| (*sequence, entry.as_of(now))).collect();
        if in_order != booked {
            return Err(format!("messages differ\nbooked {booked:#?}\nfound {in_order:#?}"));
        }
        if *counts != self.counts(now) || counts.total() != self.accepted - self.gone {
            return Err(format!(
                "counts differ\nbooked {:?}, {} accepted, {} gone\nfound {counts:?}",
                self.counts(now),
                self.accepted,
                self.gone
            ));
        }
        Ok(())
    }
}

fn expect(entry: &Entry, is_right: bool, change: &Change) -> Result<(), String> {
    if is_right {
        return Ok(());
    }
    Err(format!("a transition that the table does not have\n{change:?}\nfrom {entry:?}"))
}

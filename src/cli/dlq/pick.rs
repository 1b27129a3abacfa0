//! Selected dead letters of a queue: found by peeking, then received in the order of the queue.
//! `resubmit` and `purge` use them.

use peeklock::condition::Condition;
use peeklock::ids::{LockToken, SequenceNumber};
use peeklock::path::dead_letter_path;
use peeklock::time::{TimeSpan, Timestamp};
use peeklock::websocket::client::{Received, Receiver};

use super::super::connect::CommandConnection;
use super::super::message::tokens;
use super::super::peek::Browse;
use super::super::terminal::WriteOutcome;
use super::super::{Failure, exit};
use super::condition::{MessageCondition, all_hold};
use super::origin::Origin;

/// Messages that are received and settled together.
const BATCH: u32 = 64;
/// Maximum unselected messages that are held locked, so that they are not delivered again.
const HELD_MAX: usize = 65_536;

/// Selection of dead letters.
pub struct Selection<'a> {
    /// Path of the queue or subscription.
    pub queue: &'a str,
    /// Conditions that must all hold.
    pub conditions: &'a [MessageCondition],
    /// Sequence numbers of the messages; empty for any number.
    pub numbers: &'a [u64],
    /// Maximum number of messages.
    pub count: Option<u64>,
    /// Verb for errors, such as "delete".
    pub verb: &'a str,
}

/// Selected messages, as found by peeking.
pub struct FoundSelection {
    pub count: u64,
    /// Highest selected number; later messages are not touched.
    pub last: u64,
    /// Given numbers without a message.
    pub absent: Vec<u64>,
}

/// Messages that have been received.
#[derive(Default)]
pub struct ReceivedSelection {
    /// Number of selected messages that were received.
    pub done: u64,
    /// Locks of messages that must be released.
    held: Vec<LockToken>,
    /// Time at which the held locks must be renewed.
    renew_at: Option<Timestamp>,
}

impl Selection<'_> {
    fn is_selected(&self, message: &Received) -> bool {
        (self.numbers.is_empty() || self.numbers.contains(&message.sequence_number().0))
            && all_hold(self.conditions, message)
    }

    /// Finds the selected messages without locking them, and passes each to `see`.
    pub async fn find_matches(
        &self,
        session: &CommandConnection,
        receiver: &Receiver,
        mut see: impl FnMut(&Received) -> Result<WriteOutcome, Failure>,
    ) -> Result<FoundSelection, Failure> {
        // Messages that arrive later have higher numbers.
        let newest = Origin::of(self.queue, session).await?.last_sequence;
        let most = self.count.unwrap_or(u64::MAX);
        let mut found = FoundSelection { count: 0, last: 0, absent: self.numbers.to_vec() };
        let mut browse = Browse::new(receiver, SequenceNumber(0));
        loop {
            let page = browse.page().await?;
            if page.is_empty() {
                break;
            }
            for message in &page {
                let number = message.sequence_number().0;
                if found.count == most {
                    // Messages that were not examined may have the missing numbers.
                    found.absent.clear();
                    return Ok(found);
                }
                if number > newest {
                    break;
                }
                let is_active = message.state() == peeklock::command::MessageState::Active;
                if is_active && self.is_selected(message) {
                    found.count += 1;
                    found.last = number;
                    found.absent.retain(|absent| *absent != number);
                    if see(message)? == WriteOutcome::OutputClosed {
                        found.absent.clear();
                        return Ok(found);
                    }
                }
            }
            if session.interrupt.is_set() {
                return Err(Failure::Reported(exit::INTERRUPTED));
            }
            if page.last().is_some_and(|message| message.sequence_number().0 > newest) {
                break;
            }
        }
        if found.count == 0 {
            found.refuse_absent(self)?;
        }
        Ok(found)
    }

    /// Number of found messages that are still there.
    pub async fn remaining_count(
        &self,
        receiver: &Receiver,
        found: &FoundSelection,
    ) -> Result<u64, Failure> {
        let mut browse = Browse::new(receiver, SequenceNumber(0));
        let mut count = 0;
        loop {
            let page = browse.page().await?;
            for message in &page {
                if message.sequence_number().0 > found.last {
                    return Ok(count);
                }
                let is_active = message.state() == peeklock::command::MessageState::Active;
                count += u64::from(is_active && self.is_selected(message));
            }
            if page.is_empty() {
                return Ok(count);
            }
        }
    }

    /// Receives the found messages in groups. `take` settles or holds each group and returns
    /// whether to continue. Unselected messages before them are held locked, so that they are not
    /// delivered again.
    pub async fn receive_found(
        &self,
        session: &CommandConnection,
        receiver: &Receiver,
        found: &FoundSelection,
        taken: &mut ReceivedSelection,
        mut take: impl AsyncFnMut(Vec<Received>, &mut ReceivedSelection) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        while taken.done < found.count {
            if session.interrupt.is_set() {
                return Err(Failure::Reported(exit::INTERRUPTED));
            }
            taken.renew(session, receiver).await?;
            let messages = receiver.receive_many(BATCH, TimeSpan::ZERO).await?;
            if messages.is_empty() {
                // Other receivers have taken the rest.
                return Ok(());
            }
            let is_past = messages.iter().any(|message| message.sequence_number().0 > found.last);
            let (mut meant, others): (Vec<_>, Vec<_>) = messages.into_iter().partition(|message| {
                message.sequence_number().0 <= found.last && self.is_selected(message)
            });
            taken.hold(&others);
            let room = usize::try_from(found.count - taken.done).unwrap_or(usize::MAX);
            let surplus = meant.split_off(room.min(meant.len()));
            taken.hold(&surplus);
            taken.done += meant.len() as u64;
            if !take(meant, taken).await? || is_past {
                return Ok(());
            }
            if taken.held.len() >= HELD_MAX {
                return Err(Failure::ended(
                    exit::IN_PART,
                    format!(
                        "{HELD_MAX} messages that do not meet the conditions are in front of the \
                         rest, and at most {HELD_MAX} are held; receive or purge some, or {} with \
                         fewer conditions",
                        self.verb
                    ),
                ));
            }
        }
        Ok(())
    }
}

impl FoundSelection {
    /// Fails if messages with given numbers are missing.
    pub fn refuse_absent(&self, pick: &Selection<'_>) -> Result<(), Failure> {
        let Some(first) = self.absent.first() else { return Ok(()) };
        let others = match self.absent.len() - 1 {
            0 => String::new(),
            others => format!(", and {others} other given numbers are not there either"),
        };
        let Selection { queue, verb, .. } = pick;
        let code = if self.count == 0 { exit::NOT_FOUND } else { exit::IN_PART };
        Err(Failure::ended(
            code,
            format!(
                "there is no message {first} to {verb} in `{}`{others}; `peeklock dlq list \
                 {queue}` lists the messages",
                dead_letter_path(queue)
            ),
        ))
    }
}

impl ReceivedSelection {
    /// Keeps messages locked until the end, so that they are not delivered again.
    pub fn hold<'a>(&mut self, messages: impl IntoIterator<Item = &'a Received> + Clone) {
        for message in messages.clone() {
            if let Some(until) = message.locked_until() {
                let at = self.renew_at.map_or(until, |at| at.min(until));
                self.renew_at = Some(at);
            }
        }
        self.held.extend(tokens(messages));
    }

    /// Releases the held messages. If this fails, the locks end by themselves.
    pub async fn release(&self, receiver: &Receiver) {
        let _released = receiver.release_many(&self.held).await;
    }

    /// Renews the held locks when the first lock ends soon.
    async fn renew(
        &mut self,
        session: &CommandConnection,
        receiver: &Receiver,
    ) -> Result<(), Failure> {
        const SOON: TimeSpan = TimeSpan::from_seconds(3);
        let now = session.client.now();
        let is_due = self.renew_at.is_some_and(|at| at.minus(SOON) <= now);
        if !is_due {
            return Ok(());
        }
        // A message whose lock was lost is delivered again, and held again.
        for renewed in receiver.renew_many(&self.held).await {
            if let Err(error) = renewed
                && error.condition() != Condition::MessageLockLost
            {
                return Err(error.into());
            }
        }
        let path = receiver.path();
        let path = path.rsplit_once("/$").map_or(path, |(path, _)| path);
        let lock_duration = Origin::of(path, session).await?.lock_duration;
        self.renew_at = Some(session.client.now().plus(lock_duration));
        Ok(())
    }
}

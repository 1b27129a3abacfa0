//! Selected dead letters of a queue, found by peeking. `resubmit` and `purge` let a job of the broker
//! act on them by number.

use peeklock::ids::SequenceNumber;
use peeklock::path::dead_letter_path;
use peeklock::websocket::client::{Received, Receiver};

use super::super::connect::CommandConnection;
use super::super::peek::Browse;
use super::super::terminal::WriteOutcome;
use super::super::{Failure, exit};
use super::condition::{MessageCondition, all_hold};
use super::origin::last_sequence;

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
    /// Numbers of the messages, ascending.
    pub numbers: Vec<u64>,
    /// Given numbers without a message.
    pub absent: Vec<u64>,
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
        let newest = last_sequence(self.queue, session).await?;
        let most = self.count.unwrap_or(u64::MAX);
        let mut found =
            FoundSelection { count: 0, numbers: Vec::new(), absent: self.numbers.to_vec() };
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
                    found.numbers.push(number);
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

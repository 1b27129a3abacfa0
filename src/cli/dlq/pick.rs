//! Some of the dead letters of a queue: found by looking, then taken in the order of the queue.

use peeklock::condition::Condition;
use peeklock::ids::{LockToken, SequenceNumber};
use peeklock::path::dead_letter_path;
use peeklock::time::{TimeSpan, Timestamp};
use peeklock::websocket::client::{Received, Receiver};

use super::super::connect::Session;
use super::super::message::tokens;
use super::super::peek::Browse;
use super::super::terminal::Wrote;
use super::super::{Failure, exit};
use super::condition::{MessageCondition, all_hold};
use super::origin::Origin;

/// Messages received and settled together.
const BATCH: u32 = 64;
/// Messages of others that are held locked at most, so that they do not come again.
const HELD_MAX: usize = 65_536;

/// Which dead letters are meant.
pub struct Pick<'a> {
    /// The queue or subscription.
    pub queue: &'a str,
    /// All of them hold.
    pub conditions: &'a [MessageCondition],
    /// These only, by sequence number, unless there are none.
    pub numbers: &'a [u64],
    /// At most this many.
    pub count: Option<u64>,
    /// What is to be done with them, for errors.
    pub verb: &'a str,
}

/// What is to be taken, as it was found by looking.
pub struct Found {
    pub count: u64,
    /// The number of the last one: nothing behind it is touched.
    pub last: u64,
    /// Asked for by number, and not there.
    pub absent: Vec<u64>,
}

/// What was taken so far.
#[derive(Default)]
pub struct Taken {
    /// Taken of those that were found.
    pub done: u64,
    /// Locked, and to be given back.
    held: Vec<LockToken>,
    /// When the locks held are to be renewed.
    renew_at: Option<Timestamp>,
}

impl Pick<'_> {
    fn is_meant(&self, message: &Received) -> bool {
        (self.numbers.is_empty() || self.numbers.contains(&message.sequence_number().0))
            && all_hold(self.conditions, message)
    }

    /// Looks for what is meant, without locking anything, and hands each to `see`.
    pub async fn look(
        &self,
        session: &Session,
        receiver: &Receiver,
        mut see: impl FnMut(&Received) -> Result<Wrote, Failure>,
    ) -> Result<Found, Failure> {
        // What comes later has a higher number.
        let newest = Origin::of(self.queue, session).await?.last_sequence;
        let most = self.count.unwrap_or(u64::MAX);
        let mut found = Found { count: 0, last: 0, absent: self.numbers.to_vec() };
        let mut browse = Browse::new(receiver, SequenceNumber(0));
        loop {
            let page = browse.page().await?;
            if page.is_empty() {
                break;
            }
            for message in &page {
                let number = message.sequence_number().0;
                if found.count == most {
                    // What was not looked at may be there.
                    found.absent.clear();
                    return Ok(found);
                }
                if number > newest {
                    break;
                }
                let is_active = message.state() == peeklock::command::MessageState::Active;
                if is_active && self.is_meant(message) {
                    found.count += 1;
                    found.last = number;
                    found.absent.retain(|absent| *absent != number);
                    if see(message)? == Wrote::Gone {
                        found.absent.clear();
                        return Ok(found);
                    }
                }
            }
            if session.interrupt.is_set() {
                return Err(Failure::Told(exit::INTERRUPTED));
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

    /// How many of those that were found are there still.
    pub async fn there_still(&self, receiver: &Receiver, found: &Found) -> Result<u64, Failure> {
        let mut browse = Browse::new(receiver, SequenceNumber(0));
        let mut count = 0;
        loop {
            let page = browse.page().await?;
            for message in &page {
                if message.sequence_number().0 > found.last {
                    return Ok(count);
                }
                let is_active = message.state() == peeklock::command::MessageState::Active;
                count += u64::from(is_active && self.is_meant(message));
            }
            if page.is_empty() {
                return Ok(count);
            }
        }
    }

    /// Takes what was found, group by group, and hands each to `take`, which settles it or holds it, and returns whether
    /// to go on. What comes before it and is not meant is held locked, so that it does not come again.
    pub async fn work(
        &self,
        session: &Session,
        receiver: &Receiver,
        found: &Found,
        taken: &mut Taken,
        mut take: impl AsyncFnMut(Vec<Received>, &mut Taken) -> Result<bool, Failure>,
    ) -> Result<(), Failure> {
        while taken.done < found.count {
            if session.interrupt.is_set() {
                return Err(Failure::Told(exit::INTERRUPTED));
            }
            taken.renew(session, receiver).await?;
            let messages = receiver.receive_many(BATCH, TimeSpan::ZERO).await?;
            if messages.is_empty() {
                // Somebody else has the rest.
                return Ok(());
            }
            let is_past = messages.iter().any(|message| message.sequence_number().0 > found.last);
            let (mut meant, others): (Vec<_>, Vec<_>) = messages.into_iter().partition(|message| {
                message.sequence_number().0 <= found.last && self.is_meant(message)
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

impl Found {
    /// Fails if not all were there that were asked for by number.
    pub fn refuse_absent(&self, pick: &Pick<'_>) -> Result<(), Failure> {
        let Some(first) = self.absent.first() else { return Ok(()) };
        let others = match self.absent.len() - 1 {
            0 => String::new(),
            others => format!(", and {others} other given numbers are not there either"),
        };
        let Pick { queue, verb, .. } = pick;
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

impl Taken {
    /// Keeps messages locked until the end, so that they do not come again.
    pub fn hold<'a>(&mut self, messages: impl IntoIterator<Item = &'a Received> + Clone) {
        for message in messages.clone() {
            if let Some(until) = message.locked_until() {
                let at = self.renew_at.map_or(until, |at| at.min(until));
                self.renew_at = Some(at);
            }
        }
        self.held.extend(tokens(messages));
    }

    /// Gives back what is held. Should this fail, the locks end by themselves.
    pub async fn release(&self, receiver: &Receiver) {
        let _released = receiver.release_many(&self.held).await;
    }

    /// Renews the locks held when the first of them would end soon.
    async fn renew(&mut self, session: &Session, receiver: &Receiver) -> Result<(), Failure> {
        const SOON: TimeSpan = TimeSpan::from_seconds(3);
        let now = session.client.now();
        let is_due = self.renew_at.is_some_and(|at| at.minus(SOON) <= now);
        if !is_due {
            return Ok(());
        }
        // A lock that was lost is of a message that comes again, and is held again.
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

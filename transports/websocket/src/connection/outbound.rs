//! What comes back: from answers and deliveries to frames.

use bytes::Bytes;
use futures_util::SinkExt;
use peeklock_core::command::{Outcome, ReceivedMessage};
use peeklock_core::condition::Condition;
use peeklock_core::error::Rejection;
use peeklock_core::ids::LockToken;
use peeklock_core::request::Released;
use peeklock_link::{Event, Mail, Next};

use super::pending::Expect;
use super::{Conversation, Ended, Sent};
use crate::frame::message::{Carried, Delivered};
use crate::frame::session::SessionAccepted;
use crate::frame::text::Instant;
use crate::frame::{
    Accepted, Closing, Deleted, Deliveries, Detached, Drained, Encoding, FailedSend, Forwarded,
    Item, LIST_COUNT_MAX, Messages, Notice, Renewed, Run, ServerFrame, Settled,
};
use crate::site::Socket;

/// A frame ends when it has about so many bytes.
const FRAME_BYTES: u64 = 256 << 10;

impl Conversation {
    /// Takes what came, and writes one frame of what is there.
    pub(super) async fn write(&mut self, socket: &mut Socket) -> Result<(), Ended> {
        self.collect();
        if self.unflushed || !self.may_write() {
            return Ok(());
        }
        let Some(frame) = self.next_frame() else { return Ok(()) };
        self.written_since_tick = true;
        // Nothing else is buffered, so this does not wait.
        socket.feed(frame).await.map_err(|error| super::serve::lost(&error))?;
        self.unflushed = true;
        Ok(())
    }

    /// Takes what came until there is enough for a frame. What has to be read from the store is fetched
    /// beside the conversation; only its link waits for it.
    fn collect(&mut self) {
        let mut arrived = Vec::new();
        self.mailbox.take(&mut arrived);
        for mail in arrived {
            match mail {
                Mail::Released(released) => {
                    self.arrivals.push(self.links.link_of(&released), released);
                }
                Mail::Fetched(fetched) => self.arrivals.fetched(fetched),
                Mail::Own(own) => self.done_apart(own),
            }
        }
        self.wanted_bytes = None;
        let mut bytes = 0;
        while bytes < FRAME_BYTES && self.ready.len() < LIST_COUNT_MAX {
            match self.arrivals.next(&mut self.account) {
                Next::Ready(released, held_bytes) => {
                    bytes += super::ITEM_BYTES + held_bytes;
                    self.tell(released, held_bytes);
                }
                Next::NoRoom(wanted) => {
                    self.wanted_bytes = Some(wanted);
                    break;
                }
                Next::Nothing => break,
            }
        }
        for fetch in self.arrivals.fetches() {
            let mailbox = std::sync::Arc::clone(&self.mailbox);
            tokio::spawn(async move { mailbox.put(Mail::Fetched(fetch.run().await)) });
        }
        self.begin_apart();
    }

    /// Turns what came from an entity into what the client is told; it holds so much of the account.
    fn tell(&mut self, released: Released, held_bytes: u64) {
        let is_told = match self.links.take(released) {
            Event::Nothing => false,
            Event::Delivered { link, number, message } => self.deliver(link, number, *message),
            Event::Stopped { link, path, reason } => {
                let error = self.wire_error(reason, &path);
                self.say(0, Notice::Detached(Detached { link, error }));
                false
            }
            Event::Done { id, path, result } => {
                match result {
                    Ok(()) if id == 0 => {}
                    Ok(()) => self.say(id, Notice::Done(Default::default())),
                    Err(rejection) => self.fail(id, rejection, &path),
                }
                false
            }
            Event::Drained { id, path, result } => {
                match result {
                    Ok(unused) => {
                        let unused = u32::try_from(unused).unwrap_or(u32::MAX);
                        self.say(id, Notice::Drained(Drained { unused }));
                    }
                    Err(rejection) => self.fail(id, rejection, &path),
                }
                false
            }
            Event::Messages { id, link, path, result, taken_count } => match result {
                Ok(messages) => self.received(id, link, messages, taken_count, &path),
                Err(rejection) => {
                    self.fail(id, rejection, &path);
                    false
                }
            },
            Event::Accepted { id, path, result } => {
                match result {
                    Ok((session, until)) => {
                        let session_id = session.to_string();
                        let locked_until_utc = Instant(until);
                        let accepted = SessionAccepted { session_id, locked_until_utc };
                        self.say(id, Notice::SessionAccepted(accepted));
                    }
                    Err(rejection) => self.fail(id, rejection, &path),
                }
                false
            }
            Event::Answer { slot, index, result } => {
                self.answer(slot, index, result);
                false
            }
        };
        if is_told {
            self.ready_bytes += held_bytes;
        } else {
            self.account.release(held_bytes);
        }
    }

    /// Says something; what it holds is counted until its frame is.
    pub(super) fn say(&mut self, id: u32, notice: Notice) {
        let bytes = super::ITEM_BYTES + notice.weight();
        self.account.hold(bytes);
        self.ready_bytes += bytes;
        self.ready.push(Item { id, notice });
    }

    pub(super) fn fail(&mut self, id: u32, rejection: Rejection, path: &str) {
        let error = self.wire_error(rejection, path);
        self.say(id, Notice::Error(error));
    }

    fn deliver(&mut self, number: u32, delivery: u32, message: ReceivedMessage) -> bool {
        let lock = message.facts.lock;
        let bytes = u64::from(message.facts.size);
        let Some(delivered) = delivered(self.encoding, message) else {
            let path = self.links.get(number).map(|link| std::sync::Arc::clone(&link.path));
            let token = lock.map(|lock| lock.token);
            token.and_then(|token| self.links.settled(token));
            self.links.give_back(number, token);
            self.links.break_flow(number);
            let reason = Rejection::internal("the content of a message cannot be read");
            let error = self.wire_error(reason, path.as_deref().unwrap_or_default());
            self.say(0, Notice::Detached(Detached { link: number, error }));
            return false;
        };
        self.unwritten_count += u64::from(lock.is_none());
        self.delivered.push((number, bytes));
        if let Some(Item { notice: Notice::Deliveries(group), .. }) = self.ready.last_mut()
            && group.link == number
            && group.messages.len() < LIST_COUNT_MAX
            && u32::try_from(group.messages.len()).ok() == delivery.checked_sub(group.first)
        {
            group.messages.push(delivered);
        } else {
            let messages = vec![delivered];
            let group = Deliveries { link: number, first: delivery, messages };
            self.ready.push(Item::push(Notice::Deliveries(group)));
        }
        true
    }

    /// Takes the answer to one of the conversation's own commands.
    fn answer(&mut self, slot: usize, index: usize, result: Result<Outcome, Rejection>) {
        let broker = &self.broker;
        let Some((_, path, expect)) = self.links.asked_mut(slot) else { return };
        match expect {
            Expect::Sent(sent) => {
                sent.left = sent.left.saturating_sub(1);
                let is_done = sent.left == 0;
                match result {
                    Ok(Outcome::Accepted(number)) => {
                        if let Some(place) = sent.numbers.get_mut(index) {
                            *place = number.0;
                        }
                    }
                    Ok(_) => {}
                    Err(rejection) => {
                        let error = (&broker.refuse(rejection, &path)).into();
                        let index = u32::try_from(index).unwrap_or(u32::MAX);
                        sent.failed.push(FailedSend { index, error });
                    }
                }
                if is_done {
                    self.finish(slot);
                }
            }
            Expect::Settled(keyed) | Expect::Renewed { keyed, .. } => {
                keyed.left = keyed.left.saturating_sub(1);
                let (is_done, link) = (keyed.left == 0, keyed.link);
                let key = keyed.keys.get(index).copied().unwrap_or(0);
                let token = keyed.tokens.get(index).copied();
                if let Err(rejection) = &result {
                    keyed.fail(key, rejection, |rejection| {
                        (&broker.refuse(rejection.clone(), &path)).into()
                    });
                }
                if let Ok(Outcome::Renewed(at)) = &result
                    && let Expect::Renewed { until, .. } = expect
                {
                    *until = Some(until.map_or(*at, |until| until.min(*at)));
                }
                let settled = self.settled_by(&result, token).unwrap_or(link);
                if is_done {
                    self.finish(slot);
                    // There may be room for more unsettled deliveries.
                    self.links.limit(settled);
                }
            }
            Expect::Joined(_) => self.joined(slot, index, result, &path),
            _ => self.answer_whole(slot, result),
        }
    }

    /// What the answer to a settlement or renewal says of its delivery; returns the link that had it.
    fn settled_by(
        &mut self,
        result: &Result<Outcome, Rejection>,
        token: Option<LockToken>,
    ) -> Option<u32> {
        let token = token?;
        let is_over = match result {
            Ok(Outcome::Renewed(until)) => {
                self.links.unsettled.renewed(token, *until);
                false
            }
            Ok(_) => true,
            Err(rejection) => matches!(
                rejection.condition(),
                Condition::MessageLockLost | Condition::SessionLockLost
            ),
        };
        if is_over { self.links.settled(token).map(|held| held.link) } else { None }
    }

    /// Takes the answer to a request that is one command.
    fn answer_whole(&mut self, slot: usize, result: Result<Outcome, Rejection>) {
        let Some((id, path, expect)) = self.links.answered(slot) else { return };
        let notice = match (expect, result) {
            (_, Err(rejection)) => Notice::Error(self.wire_error(rejection, &path)),
            (Expect::Done, Ok(_)) => Notice::Done(Default::default()),
            (Expect::Batch, Ok(Outcome::AcceptedBatch(numbers))) => {
                let mut sequence_numbers = Vec::new();
                for number in numbers {
                    Run::push(&mut sequence_numbers, number.0);
                }
                Notice::Accepted(Accepted { sequence_numbers, failed: Vec::new() })
            }
            (Expect::Forwarded, Ok(Outcome::TakenOver(results))) => {
                let tried = u32::try_from(results.len()).unwrap_or(u32::MAX);
                let mut failed = Vec::new();
                for (index, result) in (0..).zip(results) {
                    if let Err(rejection) = result {
                        let error = self.wire_error(rejection, &path);
                        failed.push(FailedSend { index, error });
                    }
                }
                Notice::Forwarded(Forwarded { tried, failed })
            }
            (Expect::Deleted, Ok(Outcome::Deleted(count))) => Notice::Deleted(Deleted { count }),
            (Expect::SessionRenewed { link }, Ok(Outcome::Renewed(until))) => {
                self.links.session_renewed(link, until);
                let locked_until_utc = Some(Instant(until));
                Notice::Renewed(Renewed { locked_until_utc, failed: Vec::new() })
            }
            (Expect::Committed(committing), Ok(Outcome::Committed(parts))) => {
                self.committed(committing, parts)
            }
            (Expect::SessionState, Ok(Outcome::SessionState(state))) => {
                self.state_read(state, &path)
            }
            (_, Ok(_)) => {
                Notice::Error(self.wire_error(Rejection::internal("unexpected answer"), &path))
            }
        };
        if id != 0 || !matches!(notice, Notice::Done(_)) {
            self.say(id, notice);
        }
    }

    /// Answers a request all of whose commands are answered.
    fn finish(&mut self, slot: usize) {
        let Some((id, _, expect)) = self.links.answered(slot) else { return };
        let notice = match expect {
            Expect::Sent(sent) => {
                let mut sequence_numbers = Vec::new();
                for number in sent.numbers {
                    Run::push(&mut sequence_numbers, number);
                }
                Notice::Accepted(Accepted { sequence_numbers, failed: sent.failed })
            }
            Expect::Settled(keyed) => {
                if id == 0 && keyed.failed.is_empty() {
                    return;
                }
                Notice::Settled(Settled { failed: keyed.failed })
            }
            Expect::Renewed { keyed, until } => {
                let locked_until_utc = until.map(Instant);
                Notice::Renewed(Renewed { locked_until_utc, failed: keyed.failed })
            }
            _ => return,
        };
        self.say(id, notice);
    }

    /// Answers with messages, or gives them back if one cannot be read; whether it told them.
    fn received(
        &mut self,
        id: u32,
        number: u32,
        messages: Vec<ReceivedMessage>,
        taken_count: u64,
        path: &str,
    ) -> bool {
        let tokens: Vec<LockToken> =
            messages.iter().filter_map(|message| message.facts.lock).map(|it| it.token).collect();
        let encoding = self.encoding;
        let read: Option<Vec<Delivered>> =
            messages.into_iter().map(|message| delivered(encoding, message)).collect();
        let Some(messages) = read else {
            self.links.give_back(number, tokens);
            let reason = Rejection::internal("the content of a message cannot be read");
            self.fail(id, reason, path);
            return false;
        };
        self.unwritten_count += taken_count;
        self.ready.push(Item { id, notice: Notice::Received(Messages { messages }) });
        true
    }

    /// Encodes what is ready as one frame.
    fn next_frame(&mut self) -> Option<tokio_tungstenite::tungstenite::Message> {
        if self.ready.is_empty() {
            return None;
        }
        let frame = ServerFrame { seen: self.seen, items: std::mem::take(&mut self.ready) };
        let encoded = frame.encode(self.encoding);
        let mut items = frame.items;
        items.clear();
        self.ready = items;
        self.account.release(std::mem::take(&mut self.ready_bytes));
        self.unwritten_count = 0;
        let deliveries = std::mem::take(&mut self.delivered);
        let bytes: Bytes = match encoded {
            Ok(bytes) => bytes.into(),
            Err(error) => {
                // What could fail was read before.
                tracing::error!(%error, "a frame cannot be encoded");
                return None;
            }
        };
        self.sent += 1;
        let held_bytes = bytes.len() as u64;
        self.account.hold(held_bytes);
        self.kept_bytes += held_bytes;
        let kept = if self.grace.is_some() { bytes.clone() } else { Bytes::new() };
        self.unconfirmed_bytes += kept.len() as u64;
        self.unconfirmed.push_back(Sent { bytes: kept, held_bytes, deliveries });
        Some(self.message(bytes))
    }

    /// What was written is with the system. If nothing can be resumed, that is all there is to know.
    pub(super) fn flushed(&mut self) {
        if self.grace.is_none() {
            self.confirm_first(self.unconfirmed.len());
        }
    }

    /// The client has taken so many frames in all.
    pub(super) fn confirm(&mut self, received: u64) {
        if self.grace.is_none() {
            return;
        }
        let before = self.sent - self.unconfirmed.len() as u64;
        let count = received.min(self.sent).saturating_sub(before);
        self.confirm_first(usize::try_from(count).unwrap_or(usize::MAX));
    }

    fn confirm_first(&mut self, count: usize) {
        let mut given: Vec<u32> = Vec::new();
        for _ in 0..count {
            let Some(sent) = self.unconfirmed.pop_front() else { break };
            self.unconfirmed_bytes -= sent.bytes.len() as u64;
            self.kept_bytes -= sent.held_bytes;
            self.account.release(sent.held_bytes);
            self.stalled = std::time::Duration::ZERO;
            for (number, bytes) in sent.deliveries {
                self.links.taken(number, bytes);
                if !given.contains(&number) {
                    given.push(number);
                }
            }
        }
        for number in given {
            self.links.limit(number);
        }
    }

    /// Says that the connection will be closed.
    pub(super) fn say_closing(&mut self, seconds: u32) {
        self.say(0, Notice::Closing(Closing { seconds }));
    }
}

/// A message as it is sent; none if it cannot be read.
fn delivered(encoding: Encoding, message: ReceivedMessage) -> Option<Delivered> {
    let content = message.content.loaded()?.clone();
    let overlays = message
        .overlays
        .iter()
        .map(|overlay| overlay.loaded().cloned())
        .collect::<Option<Vec<Bytes>>>()?;
    let carried = Carried::Stored { content, overlays };
    let carried = match encoding {
        Encoding::Binary => carried,
        Encoding::Json => match carried.read() {
            Ok((message, source)) => Carried::Typed {
                message: Box::new(message.into_owned()),
                dead_letter_source: source.map(std::borrow::Cow::into_owned),
            },
            Err(error) => {
                let sequence_number = message.facts.sequence.0;
                tracing::error!(sequence_number, %error, "message cannot be read");
                return None;
            }
        },
    };
    Some(Delivered { facts: message.facts, carried })
}

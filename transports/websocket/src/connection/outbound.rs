//! What comes back: from answers and deliveries to frames.

use std::collections::BTreeMap;

use bytes::Bytes;
use futures_util::SinkExt;
use futures_util::future::join_all;
use peeklock_core::command::{Command, LinkEnd, Outcome, ReceivedMessage, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::content_ref::ContentRef;
use peeklock_core::error::Rejection;
use peeklock_core::ids::{LockToken, ReceiverId};
use peeklock_core::request::Released;

use super::link::Link;
use super::pending::{Expect, Keyed, correlation, place};
use super::{Conversation, Ended, Sent};
use crate::frame::message::{Carried, Delivered};
use crate::frame::text::Instant;
use crate::frame::{
    Accepted, Closing, Deliveries, Detached, Drained, Encoding, FailedRange, FailedSend, Forwarded,
    Item, LIST_COUNT_MAX, Messages, Notice, Run, ServerFrame, Settled,
};
use crate::frame::{Deleted, Renewed};
use crate::mailbox::Mail;
use crate::site::Socket;

/// A frame ends when it has about so many bytes.
const FRAME_BYTES: u64 = 256 << 10;
/// What an item takes besides the content of its messages, for that estimate.
const ITEM_BYTES: u64 = 64;
/// Pieces of mail whose contents are fetched from the store at the same time.
const LOADS_MAX: usize = 64;

impl Conversation {
    /// Writes one frame of what is there.
    pub(super) async fn write(&mut self, socket: &mut Socket) -> Result<(), Ended> {
        self.collect().await;
        let Some(frame) = self.next_frame() else { return Ok(()) };
        self.written_since_tick = true;
        // Nothing else is buffered, so this does not wait.
        socket.feed(frame).await.map_err(|error| super::serve::lost(&error))?;
        self.unflushed = true;
        Ok(())
    }

    /// Takes mail until there is enough for a frame.
    async fn collect(&mut self) {
        let mut arrived = Vec::new();
        self.mailbox.take(&mut arrived);
        self.mail.extend(arrived);
        let (mut bytes, mut fetched) = (0, 0);
        while bytes < FRAME_BYTES && self.ready.len() < LIST_COUNT_MAX {
            if fetched == 0 {
                fetched = self.fetch().await;
            }
            fetched = fetched.saturating_sub(1);
            let Some(mail) = self.mail.pop_front() else { break };
            bytes += ITEM_BYTES + self.take_mail(mail);
        }
    }

    /// Fetches those contents of the next pieces of mail that are in the store; returns of how many.
    async fn fetch(&mut self) -> usize {
        let count = self.mail.len().min(LOADS_MAX);
        let stored = self
            .mail
            .iter_mut()
            .take(count)
            .flat_map(|mail| match mail {
                Mail::Released(Released::Delivery { message, .. }) => {
                    std::slice::from_mut(&mut **message)
                }
                Mail::Released(Released::Answer {
                    result: Ok(Outcome::Received(messages) | Outcome::Peeked(messages)),
                    ..
                }) => messages.as_mut_slice(),
                Mail::Released(_) | Mail::Own { .. } => &mut [],
            })
            .flat_map(|message| {
                std::iter::once(&mut message.content).chain(message.overlays.iter_mut())
            })
            .filter(|content| content.loaded().is_none());
        join_all(stored.map(fetch_one)).await;
        for mail in self.mail.iter_mut().take(count) {
            if let Mail::Released(Released::Answer {
                result: Ok(Outcome::SessionState(Some(state))),
                ..
            }) = mail
            {
                fetch_one(state).await;
            }
        }
        count
    }

    /// Turns one piece of mail into what the client is told; returns its bytes.
    pub(super) fn take_mail(&mut self, mail: Mail) -> u64 {
        match mail {
            Mail::Released(Released::Delivery { receiver, message }) => {
                self.deliver(receiver, *message)
            }
            Mail::Released(Released::Answer { correlation, result }) => {
                self.answer(correlation, result)
            }
            Mail::Released(Released::Detached { receiver, reason }) => {
                self.detached(receiver, reason);
                0
            }
            Mail::Own { slot, notice } => {
                if let Some(pending) = self.pending.remove(slot) {
                    self.ready.push(Item { id: pending.id, notice: *notice });
                }
                0
            }
        }
    }

    fn deliver(&mut self, receiver: ReceiverId, message: ReceivedMessage) -> u64 {
        let Some(number) = self.receivers.get(&receiver).copied() else { return 0 };
        let Some(link) = self.links.get_mut(&number) else { return 0 };
        let lock = message.facts.lock;
        if link.closing.is_some() || self.deadline.is_some() {
            // Its delivery has not begun: it is given back as if it had never been taken (RCV-14).
            link.undelivered.extend(lock.map(|lock| lock.token));
            if link.closing.is_none() {
                self.give_back(number);
            }
            return 0;
        }
        let bytes = u64::from(message.facts.size);
        let Some(delivered) = delivered(self.encoding, message) else {
            link.undelivered.extend(lock.map(|lock| lock.token));
            self.give_back(number);
            self.break_flow(number);
            return 0;
        };
        let delivery = link.number(lock);
        self.delivered.push((number, bytes));
        if let Some(Item { notice: Notice::Deliveries(group), .. }) = self.ready.last_mut()
            && group.link == number
            && group.messages.len() < LIST_COUNT_MAX
        {
            group.messages.push(delivered);
        } else {
            let messages = vec![delivered];
            let group = Deliveries { link: number, first: delivery, messages };
            self.ready.push(Item::push(Notice::Deliveries(group)));
        }
        bytes
    }

    /// The store has lost content: the flow ends, and its client is told.
    fn break_flow(&mut self, number: u32) {
        let Some(link) = self.links.get_mut(&number) else { return };
        link.flow = None;
        let (receiver, path) = (link.receiver, std::sync::Arc::clone(&link.path));
        let slot = self.await_own(0, number, Expect::Unheard);
        let detach = Command::Detach { receiver, end: LinkEnd::ByBroker };
        self.submit(number, detach, correlation(slot, 0));
        let reason = Rejection::internal("the content of a message cannot be read");
        let error = self.wire_error(reason, &path);
        self.ready.push(Item::push(Notice::Detached(Detached { link: number, error })));
    }

    fn detached(&mut self, receiver: ReceiverId, reason: Rejection) {
        let Some(number) = self.receivers.get(&receiver).copied() else { return };
        let Some(link) = self.links.get_mut(&number) else { return };
        link.flow = None;
        let path = std::sync::Arc::clone(&link.path);
        let error = self.wire_error(reason, &path);
        self.ready.push(Item::push(Notice::Detached(Detached { link: number, error })));
    }

    /// Gives messages back whose delivery has not begun.
    pub(super) fn give_back(&mut self, number: u32) {
        let Some(link) = self.links.get_mut(&number) else { return };
        for token in std::mem::take(&mut link.undelivered) {
            let slot = self.await_own(0, number, Expect::Unheard);
            let command = Command::Settle { token, settlement: Settlement::Release };
            self.submit(number, command, correlation(slot, 0));
        }
    }

    /// Takes the answer to a command; returns the bytes of what the client is told.
    fn answer(&mut self, correlation: u64, result: Result<Outcome, Rejection>) -> u64 {
        let (slot, index) = place(correlation);
        let Some(pending) = self.pending.get_mut(slot) else { return 0 };
        let path = std::sync::Arc::clone(&pending.path);
        match &mut pending.expect {
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
                        let error = (&self.broker.refuse(rejection, &path)).into();
                        let index = u32::try_from(index).unwrap_or(u32::MAX);
                        sent.failed.push(FailedSend { index, error });
                    }
                }
                if is_done {
                    self.finish(slot);
                }
                return 0;
            }
            Expect::Settled(keyed) | Expect::Renewed { keyed, .. } => {
                keyed.left = keyed.left.saturating_sub(1);
                let (is_done, link) = (keyed.left == 0, keyed.link);
                let key = keyed.keys.get(index).copied().unwrap_or(0);
                let token = keyed.tokens.get(index).copied();
                let is_renewal = matches!(result, Ok(Outcome::Renewed(_)));
                match result {
                    Ok(Outcome::Renewed(at)) => {
                        if let Expect::Renewed { until, .. } = &mut pending.expect {
                            *until = Some(until.map_or(at, |until| until.min(at)));
                        }
                        if let Some((link, number)) = holder(&mut self.links, link, token) {
                            link.renewed(number, at);
                        }
                    }
                    Ok(_) => {}
                    Err(ref rejection) => keyed.fail(key, rejection, |rejection| {
                        (&self.broker.refuse(rejection.clone(), &path)).into()
                    }),
                }
                let is_lost = |rejection: &Rejection| {
                    let lost = [Condition::MessageLockLost, Condition::SessionLockLost];
                    lost.contains(&rejection.condition())
                };
                let is_over = match &result {
                    Ok(_) => !is_renewal,
                    Err(rejection) => is_lost(rejection),
                };
                let mut settled = link;
                if is_over && let Some((holder, number)) = holder(&mut self.links, link, token) {
                    holder.settled(number);
                    settled = self.receivers.get(&holder.receiver).copied().unwrap_or(link);
                }
                if is_done {
                    self.finish(slot);
                    // There may be room for more unsettled deliveries.
                    self.limit(settled);
                }
                return 0;
            }
            Expect::Joined(_) => {
                self.joined(slot, index, result, &path);
                return 0;
            }
            _ => {}
        }
        let Some(pending) = self.pending.remove(slot) else { return 0 };
        let id = pending.id;
        let notice = match (pending.expect, result) {
            (Expect::Quiet { link }, _) => {
                self.is_quiet(link);
                return 0;
            }
            (Expect::Detached { link }, result) => {
                let end = match result {
                    Ok(_) => Notice::Done(Default::default()),
                    Err(rejection) => Notice::Error(self.wire_error(rejection, &path)),
                };
                if let Some(link) = self.links.remove(&link) {
                    self.receivers.remove(&link.receiver);
                }
                end
            }
            (Expect::Unheard, _) => return 0,
            (Expect::Attached { link }, Err(rejection)) => {
                self.attach_failed(id, link, rejection, &path);
                return 0;
            }
            (Expect::Watching { link }, Err(rejection)) => {
                match self.watch_failed(link, rejection, &path) {
                    Ok(()) => Notice::Done(Default::default()),
                    Err(rejection) => {
                        self.attach_failed(id, link, rejection, &path);
                        return 0;
                    }
                }
            }
            (Expect::Drained { link }, Err(rejection)) => {
                if let Some(link) = self.links.get_mut(&link) {
                    link.drained();
                }
                Notice::Error(self.wire_error(rejection, &path))
            }
            (Expect::Drained { link: number }, Ok(Outcome::Granted { unused })) => {
                if let Some(link) = self.links.get_mut(&number) {
                    link.drained();
                }
                self.limit(number);
                let unused = u32::try_from(unused).unwrap_or(u32::MAX);
                Notice::Drained(Drained { unused })
            }
            (Expect::Messages { .. }, Err(rejection)) => {
                self.waits.remove(&id);
                Notice::Error(self.wire_error(rejection, &path))
            }
            (
                Expect::Messages { link },
                Ok(Outcome::Received(messages) | Outcome::Peeked(messages)),
            ) => {
                self.waits.remove(&id);
                return self.received(id, link, messages, &path);
            }
            (Expect::Accepted { link, credit }, result) => {
                self.accepted(id, link, credit, result, &path);
                return 0;
            }
            (_, Err(rejection)) => Notice::Error(self.wire_error(rejection, &path)),
            (
                Expect::Done | Expect::Attached { .. } | Expect::Watching { .. },
                Ok(Outcome::Done),
            ) => Notice::Done(Default::default()),
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
                if let Some(link) = self.links.get_mut(&link) {
                    link.session_renewed(until);
                }
                let locked_until_utc = Some(Instant(until));
                Notice::Renewed(Renewed { locked_until_utc, failed: Vec::new() })
            }
            (Expect::Committed(committing), Ok(Outcome::Committed(parts))) => {
                self.committed(committing, parts)
            }
            (Expect::SessionState, Ok(Outcome::SessionState(state))) => {
                return self.state_read(id, state, &path);
            }
            (_, Ok(_)) => {
                Notice::Error(self.wire_error(Rejection::internal("unexpected answer"), &path))
            }
        };
        if id != 0 || !matches!(notice, Notice::Done(_)) {
            self.ready.push(Item { id, notice });
        }
        0
    }

    /// Answers a request all of whose commands are answered.
    fn finish(&mut self, slot: usize) {
        let Some(pending) = self.pending.remove(slot) else { return };
        let notice = match pending.expect {
            Expect::Sent(sent) => {
                let mut sequence_numbers = Vec::new();
                for number in sent.numbers {
                    Run::push(&mut sequence_numbers, number);
                }
                Notice::Accepted(Accepted { sequence_numbers, failed: sent.failed })
            }
            Expect::Settled(keyed) => {
                if pending.id == 0 && keyed.failed.is_empty() {
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
        self.ready.push(Item { id: pending.id, notice });
    }

    /// A queue that delivers nothing to a receiver now, because of its status, its sessions or where it
    /// forwards, can be looked into over its link; that is no failure before the client asks for deliveries.
    fn watch_failed(
        &mut self,
        number: u32,
        rejection: Rejection,
        path: &str,
    ) -> Result<(), Rejection> {
        let may_stay =
            [Condition::EntityDisabled, Condition::InvalidOperation, Condition::QuotaExceeded];
        if !may_stay.contains(&rejection.condition()) {
            return Err(rejection);
        }
        let Some(link) = self.links.get_mut(&number) else { return Ok(()) };
        link.flow = None;
        if link.up_to > link.last {
            let error = self.wire_error(rejection, path);
            self.ready.push(Item::push(Notice::Detached(Detached { link: number, error })));
        }
        Ok(())
    }

    /// A receiver could not be attached. One that was asked for with credit is gone; one that got its
    /// credit later stays, without it.
    fn attach_failed(&mut self, id: u32, number: u32, rejection: Rejection, path: &str) {
        let error = self.wire_error(rejection, path);
        let was_asked = id != 0;
        if let Some(link) = self.links.get_mut(&number) {
            link.flow = None;
            if was_asked {
                let receiver = link.receiver;
                self.links.remove(&number);
                self.receivers.remove(&receiver);
            }
        }
        let notice = if was_asked {
            Notice::Error(error)
        } else {
            Notice::Detached(Detached { link: number, error })
        };
        self.ready.push(Item { id, notice });
    }

    /// Answers with messages, or gives them back if one cannot be read.
    fn received(
        &mut self,
        id: u32,
        number: u32,
        messages: Vec<ReceivedMessage>,
        path: &str,
    ) -> u64 {
        let bytes = messages.iter().map(|message| u64::from(message.facts.size)).sum();
        let tokens: Vec<LockToken> =
            messages.iter().filter_map(|message| message.facts.lock).map(|it| it.token).collect();
        let encoding = self.encoding;
        let read: Option<Vec<Delivered>> =
            messages.into_iter().map(|message| delivered(encoding, message)).collect();
        let notice = match read {
            Some(messages) => Notice::Received(Messages { messages }),
            None => {
                if let Some(link) = self.links.get_mut(&number) {
                    link.undelivered.extend(tokens);
                }
                self.give_back(number);
                let reason = Rejection::internal("the content of a message cannot be read");
                Notice::Error(self.wire_error(reason, path))
            }
        };
        self.ready.push(Item { id, notice });
        bytes
    }

    /// Encodes what is ready as one frame.
    fn next_frame(&mut self) -> Option<tokio_tungstenite::tungstenite::Message> {
        if self.ready.is_empty() {
            return None;
        }
        let frame = ServerFrame { seen: self.seen, items: std::mem::take(&mut self.ready) };
        let bytes: Bytes = match frame.encode(self.encoding) {
            Ok(bytes) => bytes.into(),
            Err(error) => {
                // What could fail was read before.
                tracing::error!(%error, "a frame cannot be encoded");
                return None;
            }
        };
        let mut items = frame.items;
        items.clear();
        self.ready = items;
        let deliveries = std::mem::take(&mut self.delivered);
        self.sent += 1;
        let kept = if self.grace.is_some() { bytes.clone() } else { Bytes::new() };
        self.unconfirmed_bytes += kept.len() as u64;
        self.unconfirmed.push_back(Sent { bytes: kept, deliveries });
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
            for (number, bytes) in sent.deliveries {
                if let Some(link) = self.links.get_mut(&number) {
                    link.give_back(bytes);
                }
                if !given.contains(&number) {
                    given.push(number);
                }
            }
        }
        for number in given {
            self.limit(number);
        }
    }

    /// Says that the connection will be closed.
    pub(super) fn say_closing(&mut self, seconds: u32) {
        self.ready.push(Item::push(Notice::Closing(Closing { seconds })));
    }
}

impl Keyed {
    /// Notes a failure; neighbours that failed alike are told together.
    pub(super) fn fail(
        &mut self,
        key: u32,
        rejection: &Rejection,
        make: impl FnOnce(&Rejection) -> crate::frame::WireError,
    ) {
        if let Some(last) = self.failed.last_mut()
            && last.to.checked_add(1) == Some(key)
            && last.error.condition == rejection.condition().name()
        {
            last.to = key;
            return;
        }
        self.failed.push(FailedRange { from: key, to: key, error: make(rejection) });
    }
}

/// Fetches one content, if it is not here.
async fn fetch_one(content: &mut ContentRef) {
    if content.loaded().is_some() {
        return;
    }
    match content.load().await {
        Ok(bytes) => *content = ContentRef::Loaded(bytes),
        Err(error) => tracing::error!(%error, "content cannot be fetched"),
    }
}

/// The link that holds the unsettled delivery of a lock, and its number; mostly that by which it is
/// settled.
pub(super) fn holder(
    links: &mut BTreeMap<u32, Link>,
    link: u32,
    token: Option<LockToken>,
) -> Option<(&mut Link, u32)> {
    let token = token?;
    let own = links.get(&link).and_then(|link| link.number_of(token));
    let (of, number) = match own {
        Some(number) => (link, number),
        None => links.iter().find_map(|(of, link)| Some((*of, link.number_of(token)?)))?,
    };
    Some((links.get_mut(&of)?, number))
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

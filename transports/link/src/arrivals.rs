//! The mailbox of a connection, where answers and deliveries arrive from any thread with one wake-up for a group; and the
//! arrivals, which bring them into the order of each link while contents that are in the store are fetched ahead.
//!
//! A content that is at hand costs nothing but a look. One that has to be read is fetched beside the
//! connection: only what comes behind it on the same link waits, and what comes behind it is fetched
//! with it as far as the account pays. So a slow disk holds up no other link, and not the reading.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_util::future::join_all;
use peeklock_core::command::{Outcome, ReceivedMessage};
use peeklock_core::content_ref::ContentRef;
use peeklock_core::request::{Outlet, Released};
use peeklock_core::store::StoreError;
use peeklock_core::telemetry;

use crate::Account;

/// Pieces of mail of a link whose contents are fetched at the same time.
const AHEAD_MAX: usize = 64;
/// What a message, or the state of a session, takes besides its content.
pub(crate) const MESSAGE_BYTES: u64 = 256;

/// What a stored content takes when its client is told it, of its size.
type Telling = Box<dyn Fn(u64) -> u64 + Send + Sync>;

type Loading = Pin<Box<dyn Future<Output = Result<Bytes, StoreError>> + Send>>;

/// Contents of a link to be fetched in a task of their own; what it gives is put into the mailbox. One
/// task and one wake-up for all that are asked for in a turn: a task for each costs more than the rest of a
/// delivery.
pub struct Fetch {
    link: u32,
    contents: Vec<(ContentPlace, Loading)>,
}

/// Contents that were fetched.
#[derive(Debug)]
pub struct Fetched {
    link: u32,
    contents: Vec<(ContentPlace, Result<Bytes, StoreError>)>,
}

/// Which content of which piece of mail of a link.
#[derive(Clone, Copy, Debug)]
struct ContentPlace {
    number: u64,
    part: Part,
}

/// Which message of an answer, and which of its contents: its own, then what was set on it.
#[derive(Clone, Copy, Default, Debug)]
struct Part {
    message: usize,
    content: usize,
}

/// What comes next.
#[derive(Debug)]
pub enum Next {
    /// Something whose contents are here, as far as they can be read, and what of the account it holds.
    Ready(Released, u64),
    /// Nothing, before something else comes.
    Nothing,
    /// Something that the account has no room for, and how much it needs.
    NoRoom(u64),
}

/// Mail that waits for contents.
struct Waiting {
    released: Released,
    /// What is held for it, once its contents are asked for.
    bytes: u64,
    /// How many of the contents that were asked for are not here.
    missing: usize,
}

#[derive(Default)]
struct OfLink {
    /// The number of the first that waits.
    first: u64,
    waiting: VecDeque<Waiting>,
    /// So many of the first were asked for; for the others there was no room, or too much is fetched
    /// already.
    asked: usize,
}

/// The arrivals of a connection.
#[derive(Default)]
pub struct Arrivals {
    /// What was not looked at yet, with the link that it is for.
    mail: VecDeque<(u32, Released)>,
    links: HashMap<u32, OfLink>,
    /// Links whose first piece may be whole.
    whole: VecDeque<u32>,
    fetches: Vec<Fetch>,
    scale: Scale,
}

/// What a piece of mail counts as: by the sizes of its contents, or by what becomes of those.
#[derive(Default)]
struct Scale(Option<Telling>);

impl Fetch {
    /// Reads them.
    pub async fn run(self) -> Fetched {
        let reading = self.contents.into_iter();
        let reading = reading.map(async |(place, loading)| (place, loading.await));
        Fetched { link: self.link, contents: join_all(reading).await }
    }
}

impl Arrivals {
    /// Arrivals for a client that is told something else than what is stored: what has so many bytes takes so many at
    /// most, which have to have room before it is fetched.
    #[must_use]
    pub fn told_as(telling: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Self {
        Self { scale: Scale(Some(Box::new(telling))), ..Self::default() }
    }

    /// Adds what came, for a link.
    pub fn push(&mut self, link: u32, released: Released) {
        self.mail.push_back((link, released));
    }

    /// Whether there is nothing that could be taken before something else comes.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.mail.is_empty() && self.whole.is_empty()
    }

    /// Whether nothing is here, fetched or not.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.mail.is_empty() && self.links.is_empty()
    }

    /// Contents to be fetched.
    pub fn fetches(&mut self) -> std::vec::Drain<'_, Fetch> {
        self.fetches.drain(..)
    }

    /// Takes contents that were fetched. One that cannot be read stays where it is: who takes the message
    /// sees that.
    pub fn fetched(&mut self, fetched: Fetched) {
        let Fetched { link, contents: list } = fetched;
        let Some(of_link) = self.links.get_mut(&link) else { return };
        for (place, result) in list {
            let at =
                place.number.checked_sub(of_link.first).and_then(|at| usize::try_from(at).ok());
            let Some(waiting) = at.and_then(|at| of_link.waiting.get_mut(at)) else { continue };
            match result {
                Ok(bytes) => {
                    if let Some(content) = content_at(&mut waiting.released, place.part) {
                        *content = ContentRef::Loaded(bytes);
                    }
                }
                Err(error) => tracing::error!(%error, "content cannot be fetched"),
            }
            waiting.missing = waiting.missing.saturating_sub(1);
            if waiting.missing == 0 && at == Some(0) {
                self.whole.push_back(link);
            }
        }
    }

    /// The next thing that can be told. What there is no room for waits with its link; the others go on.
    pub fn next(&mut self, account: &mut Account) -> Next {
        let mut wanted: Option<u64> = None;
        let mut want = |bytes: u64| wanted = Some(wanted.map_or(bytes, |least| least.min(bytes)));
        for _ in 0..self.whole.len() {
            let Some(link) = self.whole.front().copied() else { break };
            match self.first_of(link, account) {
                Some(Next::NoRoom(bytes)) => {
                    want(bytes);
                    self.whole.rotate_left(1);
                }
                Some(ready @ Next::Ready(..)) => return ready,
                Some(Next::Nothing) | None => drop(self.whole.pop_front()),
            }
        }
        while let Some((link, mut released)) = self.mail.pop_front() {
            if let Some(of_link) = self.links.get_mut(&link) {
                of_link.waiting.push_back(Waiting { released, bytes: 0, missing: 0 });
                of_link.ask_ahead(link, account, &mut self.fetches, &self.scale);
                continue;
            }
            let bytes = self.scale.weight(&released);
            let (bytes, missing, asked) = if bytes > 0 && !account.has_room(bytes) {
                want(bytes);
                self.whole.push_back(link);
                (0, 0, 0)
            } else {
                account.hold(bytes);
                let missing = load(&mut released, link, 0, &mut self.fetches);
                if missing == 0 {
                    return Next::Ready(released, bytes);
                }
                (bytes, missing, 1)
            };
            let waiting = VecDeque::from([Waiting { released, bytes, missing }]);
            self.links.insert(link, OfLink { first: 0, waiting, asked });
        }
        wanted.map_or(Next::Nothing, Next::NoRoom)
    }

    /// Everything that is left, whether its contents are here or not; none of it is counted any more.
    pub fn drain(&mut self, account: &mut Account) -> Vec<Released> {
        let mut left = Vec::new();
        for (_, of_link) in self.links.drain() {
            for waiting in of_link.waiting {
                account.release(waiting.bytes);
                left.push(waiting.released);
            }
        }
        left.extend(self.mail.drain(..).map(|(_, released)| released));
        self.whole.clear();
        self.fetches.clear();
        left
    }

    /// The first piece of a link, if it is whole.
    fn first_of(&mut self, link: u32, account: &mut Account) -> Option<Next> {
        let of_link = self.links.get_mut(&link)?;
        of_link.ask_ahead(link, account, &mut self.fetches, &self.scale);
        let first = of_link.waiting.front()?;
        if of_link.asked == 0 {
            return Some(Next::NoRoom(self.scale.weight(&first.released)));
        }
        if first.missing > 0 {
            return Some(Next::Nothing);
        }
        let Waiting { released, bytes, .. } = of_link.waiting.pop_front()?;
        of_link.first += 1;
        of_link.asked -= 1;
        if of_link.waiting.is_empty() {
            self.links.remove(&link);
        } else {
            of_link.ask_ahead(link, account, &mut self.fetches, &self.scale);
        }
        Some(Next::Ready(released, bytes))
    }
}

impl OfLink {
    /// Asks for contents of what waits, in its order, as far as there is room.
    fn ask_ahead(
        &mut self,
        link: u32,
        account: &mut Account,
        fetches: &mut Vec<Fetch>,
        scale: &Scale,
    ) {
        while self.asked < AHEAD_MAX {
            let number = self.first + self.asked as u64;
            let Some(waiting) = self.waiting.get_mut(self.asked) else { return };
            let bytes = scale.weight(&waiting.released);
            if bytes > 0 && !account.has_room(bytes) {
                return;
            }
            account.hold(bytes);
            waiting.bytes = bytes;
            waiting.missing = load(&mut waiting.released, link, number, fetches);
            self.asked += 1;
        }
    }
}

/// The messages of a piece of mail, or the state of a session in it.
fn messages(released: &mut Released) -> (&mut [ReceivedMessage], Option<&mut ContentRef>) {
    match released {
        Released::Delivery { message, .. } => (std::slice::from_mut(&mut **message), None),
        Released::Answer { result: Ok(outcome), .. } => match outcome {
            Outcome::Received(messages) | Outcome::Peeked(messages) => {
                (messages.as_mut_slice(), None)
            }
            Outcome::SessionState(Some(state)) => (&mut [], Some(state)),
            _ => (&mut [], None),
        },
        Released::Answer { .. } | Released::Detached { .. } | Released::Closed { .. } => {
            (&mut [], None)
        }
    }
}

/// The contents of a piece of mail, and where each is found again.
fn contents(released: &mut Released) -> impl Iterator<Item = (Part, &mut ContentRef)> {
    let (messages, state) = messages(released);
    messages
        .iter_mut()
        .enumerate()
        .flat_map(|(number, message)| {
            let contents = std::iter::once(&mut message.content).chain(&mut message.overlays);
            let part = move |content| Part { message: number, content };
            contents.enumerate().map(move |(content, found)| (part(content), found))
        })
        .chain(state.map(|state| (Part::default(), state)))
}

/// One of the contents of a piece of mail, without a look at the others.
fn content_at(released: &mut Released, part: Part) -> Option<&mut ContentRef> {
    let (messages, state) = messages(released);
    if state.is_some() {
        return state;
    }
    let message = messages.get_mut(part.message)?;
    match part.content.checked_sub(1) {
        None => Some(&mut message.content),
        Some(overlay) => message.overlays.get_mut(overlay),
    }
}

impl Scale {
    /// What a piece of mail takes in memory when its contents are here.
    fn weight(&self, released: &Released) -> u64 {
        let told = |bytes| self.0.as_ref().map_or(bytes, |telling| telling(bytes));
        let of = |message: &ReceivedMessage| told(u64::from(message.facts.size)) + MESSAGE_BYTES;
        match released {
            Released::Delivery { message, .. } => of(message),
            Released::Answer { result: Ok(outcome), .. } => match outcome {
                Outcome::Received(messages) | Outcome::Peeked(messages) => {
                    messages.iter().map(of).sum()
                }
                Outcome::SessionState(Some(state)) => told(state.length()) + MESSAGE_BYTES,
                _ => 0,
            },
            Released::Answer { .. } | Released::Detached { .. } | Released::Closed { .. } => 0,
        }
    }
}

/// Takes those contents that are at hand, and lists the others; returns how many those are.
fn load(released: &mut Released, link: u32, number: u64, fetches: &mut Vec<Fetch>) -> usize {
    let mut missing = 0;
    for (part, content) in contents(released) {
        let ContentRef::Stored(stored) = content else { continue };
        match stored.at_hand() {
            Some(Ok(bytes)) => *content = ContentRef::Loaded(bytes),
            Some(Err(error)) => tracing::error!(%error, "content cannot be fetched"),
            None => {
                let stored = Arc::clone(stored);
                let loading: Loading = Box::pin(async move { stored.load().await });
                let asked = (ContentPlace { number, part }, loading);
                match fetches.last_mut() {
                    Some(fetch) if fetch.link == link => fetch.contents.push(asked),
                    _ => fetches.push(Fetch { link, contents: vec![asked] }),
                }
                missing += 1;
            }
        }
    }
    missing
}

/// Something for the connection.
#[derive(Debug)]
pub enum Mail<T> {
    /// From an entity.
    Released(Released),
    /// A content that was asked for is here.
    Fetched(Fetched),
    /// From the transport itself.
    Own(T),
}

/// The mailbox. What may be in it is bounded by permits, credit, the byte limits of links and the account
/// that pays for what is fetched.
pub struct Mailbox<T> {
    state: Mutex<State<T>>,
}

struct State<T> {
    mail: Vec<Mail<T>>,
    waker: Option<Waker>,
    /// Nobody takes anything any more.
    is_closed: bool,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self { state: Mutex::new(State { mail: Vec::new(), waker: None, is_closed: false }) }
    }
}

impl<T> Mailbox<T> {
    /// Puts something in.
    pub fn put(&self, mail: Mail<T>) {
        self.put_all(std::iter::once(mail));
    }

    /// Takes everything, in order.
    pub fn take(&self, into: &mut Vec<Mail<T>>) {
        let mut state = self.lock();
        if into.is_empty() {
            std::mem::swap(&mut state.mail, into);
        } else {
            into.append(&mut state.mail);
        }
    }

    /// Ready when there is something.
    pub fn poll(&self, context: &Context<'_>) -> Poll<()> {
        let mut state = self.lock();
        if !state.mail.is_empty() {
            return Poll::Ready(());
        }
        if state.waker.as_ref().is_none_or(|waker| !waker.will_wake(context.waker())) {
            state.waker = Some(context.waker().clone());
        }
        Poll::Pending
    }

    /// Nobody takes anything any more: of what is in it and what comes yet nobody is told. An entity may be held up for
    /// longer than the end of a connection waits for it, and what it has removed by then is lost when it comes. What it
    /// has locked is not: it is free when its link is detached, or its lock ends.
    pub(crate) fn close(&self) {
        let mut state = self.lock();
        state.is_closed = true;
        let left = std::mem::take(&mut state.mail);
        drop(state);
        count_lost(removed_count(left));
    }

    fn put_all(&self, mail: impl Iterator<Item = Mail<T>>) {
        let mut state = self.lock();
        if state.is_closed {
            drop(state);
            return count_lost(removed_count(mail));
        }
        state.mail.extend(mail);
        let waker = state.waker.take();
        drop(state);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn lock(&self) -> MutexGuard<'_, State<T>> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<T: Send> Outlet for Mailbox<T> {
    fn release(&self, group: Vec<Released>) {
        self.put_all(group.into_iter().map(Mail::Released));
    }
}

/// How many messages that nobody is told of were taken out of their entity for good.
pub(crate) fn removed_count<T>(mail: impl IntoIterator<Item = Mail<T>>) -> u64 {
    let removed_of = |mail: Mail<T>| {
        let Mail::Released(released) = mail else { return 0 };
        let messages: &[ReceivedMessage] = match &released {
            Released::Delivery { message, .. } => std::slice::from_ref(&**message),
            Released::Answer { result: Ok(Outcome::Received(messages)), .. } => messages.as_slice(),
            Released::Answer { .. } | Released::Detached { .. } | Released::Closed { .. } => &[],
        };
        messages.iter().filter(|message| message.facts.lock.is_none()).count() as u64
    };
    mail.into_iter().map(removed_of).sum()
}

/// Counts so many messages that were removed and are with nobody: what the mode allows, and nobody else would notice
/// (RCV-02).
pub(crate) fn count_lost(lost_count: u64) {
    if lost_count > 0 {
        telemetry::count_undelivered(lost_count);
        tracing::warn!(lost_count, "messages were received and deleted but never written");
    }
}

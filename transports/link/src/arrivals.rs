//! What entities say, in the order of each link, while contents that are in the store are fetched ahead.
//!
//! A content that is at hand costs nothing but a look. One that has to be read is fetched beside the
//! connection: only what comes behind it on the same link waits, and what comes behind it is fetched
//! with it as far as the account pays. So a slow disk holds up no other link, and not the reading.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use peeklock_core::command::{Outcome, ReceivedMessage};
use peeklock_core::content_ref::ContentRef;
use peeklock_core::request::Released;
use peeklock_core::store::StoreError;

use crate::Account;

/// Pieces of mail of one link whose contents are fetched at the same time.
const AHEAD_MAX: usize = 64;
/// What a content of unknown size counts as, until it is here.
const UNKNOWN_BYTES: u64 = 64 << 10;
/// What a message takes besides its content.
pub(crate) const MESSAGE_BYTES: u64 = 256;

type Loading = Pin<Box<dyn Future<Output = Result<Bytes, StoreError>> + Send>>;

/// A content to be fetched in a task of its own; what it gives is put into the mailbox.
pub struct Fetch {
    place: Place,
    loading: Loading,
}

/// A content that was fetched.
#[derive(Debug)]
pub struct Fetched {
    place: Place,
    result: Result<Bytes, StoreError>,
}

/// Which content of which piece of mail.
#[derive(Clone, Copy, Debug)]
struct Place {
    link: u32,
    number: u64,
    index: usize,
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
    /// What is held for it, once it is fetched.
    bytes: u64,
    state: State,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nobody has asked for its contents: there was no room, or too much is fetched already.
    Unasked,
    /// So many of its contents are still missing.
    Missing(usize),
}

#[derive(Default)]
struct OfLink {
    /// The number of the first that waits.
    first: u64,
    waiting: VecDeque<Waiting>,
}

/// The arrivals of one connection.
#[derive(Default)]
pub struct Arrivals {
    /// What was not looked at yet, with the link that it is for.
    mail: VecDeque<(u32, Released)>,
    links: HashMap<u32, OfLink>,
    /// Links whose first piece may be whole.
    whole: VecDeque<u32>,
    fetches: Vec<Fetch>,
}

impl Fetch {
    /// Reads it.
    pub async fn run(self) -> Fetched {
        Fetched { place: self.place, result: self.loading.await }
    }
}

impl Arrivals {
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

    /// Takes a content that was fetched. One that cannot be read stays where it is: who takes the message
    /// sees that.
    pub fn fetched(&mut self, fetched: Fetched) {
        let Fetched { place, result } = fetched;
        let Some(of_link) = self.links.get_mut(&place.link) else { return };
        let at = place.number.checked_sub(of_link.first).and_then(|at| usize::try_from(at).ok());
        let Some(waiting) = at.and_then(|at| of_link.waiting.get_mut(at)) else { return };
        match result {
            Ok(bytes) => {
                if let Some(content) = contents(&mut waiting.released).nth(place.index) {
                    *content = ContentRef::Loaded(bytes);
                }
            }
            Err(error) => tracing::error!(%error, "content cannot be fetched"),
        }
        if let State::Missing(count) = &mut waiting.state {
            *count = count.saturating_sub(1);
            if *count == 0 && at == Some(0) {
                self.whole.push_back(place.link);
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
                of_link.waiting.push_back(Waiting { released, bytes: 0, state: State::Unasked });
                if of_link.waiting.len() <= AHEAD_MAX {
                    self.ask_ahead(link, account);
                }
                continue;
            }
            let bytes = weight(&released);
            let state = if bytes > 0 && !account.has_room(bytes) {
                want(bytes);
                self.whole.push_back(link);
                State::Unasked
            } else {
                account.hold(bytes);
                let missing = load(&mut released, link, 0, &mut self.fetches);
                if missing == 0 {
                    return Next::Ready(released, bytes);
                }
                State::Missing(missing)
            };
            let bytes = if state == State::Unasked { 0 } else { bytes };
            let waiting = VecDeque::from([Waiting { released, bytes, state }]);
            self.links.insert(link, OfLink { first: 0, waiting });
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
        let first = of_link.waiting.front()?;
        let bytes = weight(&first.released);
        if first.state == State::Unasked && !self.ask_ahead(link, account) {
            return Some(Next::NoRoom(bytes));
        }
        let of_link = self.links.get_mut(&link)?;
        if of_link.waiting.front()?.state != State::Missing(0) {
            return Some(Next::Nothing);
        }
        let Waiting { released, bytes, .. } = of_link.waiting.pop_front()?;
        of_link.first += 1;
        if of_link.waiting.is_empty() {
            self.links.remove(&link);
        } else {
            self.ask_ahead(link, account);
        }
        Some(Next::Ready(released, bytes))
    }

    /// Asks for contents of what waits, in its order, as far as there is room; whether the first was asked
    /// for.
    fn ask_ahead(&mut self, link: u32, account: &mut Account) -> bool {
        let Some(of_link) = self.links.get_mut(&link) else { return true };
        let first = of_link.first;
        for (number, waiting) in (first..).zip(of_link.waiting.iter_mut().take(AHEAD_MAX)) {
            if waiting.state != State::Unasked {
                continue;
            }
            let bytes = weight(&waiting.released);
            if bytes > 0 && !account.has_room(bytes) {
                break;
            }
            account.hold(bytes);
            waiting.bytes = bytes;
            let missing = load(&mut waiting.released, link, number, &mut self.fetches);
            waiting.state = State::Missing(missing);
        }
        of_link.waiting.front().is_none_or(|waiting| waiting.state != State::Unasked)
    }
}

/// The contents of a piece of mail.
fn contents(released: &mut Released) -> impl Iterator<Item = &mut ContentRef> {
    let (messages, state): (&mut [ReceivedMessage], _) = match released {
        Released::Delivery { message, .. } => (std::slice::from_mut(&mut **message), None),
        Released::Answer { result: Ok(outcome), .. } => match outcome {
            Outcome::Received(messages) | Outcome::Peeked(messages) => {
                (messages.as_mut_slice(), None)
            }
            Outcome::SessionState(Some(state)) => (&mut [], Some(state)),
            _ => (&mut [], None),
        },
        Released::Answer { .. } | Released::Detached { .. } => (&mut [], None),
    };
    messages
        .iter_mut()
        .flat_map(|message| {
            std::iter::once(&mut message.content).chain(message.overlays.iter_mut())
        })
        .chain(state)
}

/// What a piece of mail takes in memory when its contents are here.
fn weight(released: &Released) -> u64 {
    let of = |message: &ReceivedMessage| u64::from(message.facts.size) + MESSAGE_BYTES;
    match released {
        Released::Delivery { message, .. } => of(message),
        Released::Answer { result: Ok(outcome), .. } => match outcome {
            Outcome::Received(messages) | Outcome::Peeked(messages) => {
                messages.iter().map(of).sum()
            }
            Outcome::SessionState(Some(_)) => UNKNOWN_BYTES,
            _ => 0,
        },
        Released::Answer { .. } | Released::Detached { .. } => 0,
    }
}

/// Takes those contents that are at hand, and lists the others; returns how many those are.
fn load(released: &mut Released, link: u32, number: u64, fetches: &mut Vec<Fetch>) -> usize {
    let before = fetches.len();
    for (index, content) in contents(released).enumerate() {
        let ContentRef::Stored(stored) = content else { continue };
        let stored = Arc::clone(stored);
        let mut loading: Loading = Box::pin(async move { stored.load().await });
        // Mostly it lies in a cache. What has to wait is polled again where it is fetched.
        match loading.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(Ok(bytes)) => *content = ContentRef::Loaded(bytes),
            Poll::Ready(Err(error)) => tracing::error!(%error, "content cannot be fetched"),
            Poll::Pending => fetches.push(Fetch { place: Place { link, number, index }, loading }),
        }
    }
    fetches.len() - before
}

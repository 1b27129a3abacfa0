//! The [`Mailbox`] receives answers and deliveries from any thread, with one wake-up for a group.
//! The [`Arrivals`] put them into the order of each link while contents are fetched from the store.
//!
//! A content in memory is used immediately. A content that must be read is fetched in a separate
//! task: only later mail of the same link waits for it. The contents of that later mail are fetched
//! at the same time if the account has room. So a slow disk delays neither other links nor reading
//! from the socket.

use std::collections::{HashMap, VecDeque};
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use futures_util::future::join_all;
use peeklock_core::admission::Account;
use peeklock_core::command::{Outcome, ReceivedMessage};
use peeklock_core::content_ref::ContentRef;
use peeklock_core::request::{Outlet, Released};
use peeklock_core::store::StoreError;
use peeklock_core::telemetry;

/// Maximum pieces of mail of a link whose contents are fetched at the same time.
const AHEAD_MAX: usize = 64;
/// Bytes that a message, or the state of a session, takes in addition to its content.
pub(crate) const MESSAGE_BYTES: u64 = 256;

/// Maximum encoded size of a stored content, as a function of its stored size.
type EncodedSize = Box<dyn Fn(u64) -> u64 + Send + Sync>;

type Loading = Pin<Box<dyn Future<Output = Result<Bytes, StoreError>> + Send>>;

/// Contents of a link to be fetched in a task of its own, which puts the result into the mailbox.
/// All contents requested in one turn share a task and a wake-up: a task for each would cost more
/// than the rest of a delivery.
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

/// Position of a content within the mail of a link.
#[derive(Clone, Copy, Debug)]
struct ContentPlace {
    number: u64,
    part: Part,
}

/// Index of a message within an answer, and of a content within the message: its own content, then
/// its overlays.
#[derive(Clone, Copy, Default, Debug)]
struct Part {
    message: usize,
    content: usize,
}

/// Next piece of mail.
#[derive(Debug)]
pub enum NextMail {
    /// Mail whose readable contents are all loaded, and the bytes of the account that it holds.
    Ready(Released, u64),
    /// Nothing can be taken before other mail or contents arrive.
    Nothing,
    /// The account lacks room for the next mail; the number of bytes it needs.
    NoRoom(u64),
}

/// Mail that waits for its contents.
struct WaitingMail {
    released: Released,
    /// Bytes that are held for it, once its contents are requested.
    bytes: u64,
    /// Number of requested contents that have not arrived.
    missing: usize,
}

#[derive(Default)]
struct LinkArrivals {
    /// Number of the first waiting piece of mail.
    first: u64,
    waiting: VecDeque<WaitingMail>,
    /// Number of pieces at the front whose contents are requested. For the others there is no room,
    /// or the maximum is being fetched.
    requested_count: usize,
}

/// Mail of a connection that has arrived and was not taken.
#[derive(Default)]
pub struct Arrivals {
    /// Mail that was not examined yet, with its link.
    mail: VecDeque<(u32, Released)>,
    links: HashMap<u32, LinkArrivals>,
    /// Links whose first piece may be taken: it has all its contents, or waits for room.
    ready_links: VecDeque<u32>,
    fetches: Vec<Fetch>,
    sizes: MailSizes,
}

/// Sizes of mail in bytes: the stored sizes of its contents, or their encoded sizes.
#[derive(Default)]
struct MailSizes(Option<EncodedSize>);

impl Fetch {
    /// Reads the contents.
    pub async fn run(self) -> Fetched {
        let reading = self.contents.into_iter();
        let reading = reading.map(async |(place, loading)| (place, loading.await));
        Fetched { link: self.link, contents: join_all(reading).await }
    }
}

impl Arrivals {
    /// Creates arrivals for a client that receives contents in another encoding than the stored
    /// one. `encoded_size` returns the maximum encoded size for a stored size; that many bytes must
    /// have room before the content is fetched.
    #[must_use]
    pub fn with_encoded_size(encoded_size: impl Fn(u64) -> u64 + Send + Sync + 'static) -> Self {
        Self { sizes: MailSizes(Some(Box::new(encoded_size))), ..Self::default() }
    }

    /// Adds mail of a link.
    pub fn push(&mut self, link: u32, released: Released) {
        self.mail.push_back((link, released));
    }

    /// Whether no mail can be taken before other mail or contents arrive.
    #[must_use]
    pub fn is_idle(&self) -> bool {
        self.mail.is_empty() && self.ready_links.is_empty()
    }

    /// Whether no mail is left, with or without its contents.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.mail.is_empty() && self.links.is_empty()
    }

    /// Takes the contents to be fetched.
    pub fn fetches(&mut self) -> std::vec::Drain<'_, Fetch> {
        self.fetches.drain(..)
    }

    /// Stores fetched contents in their mail. For a content that cannot be read, a reference with
    /// the error takes its place, which the receiver of the message detects.
    pub fn fetched(&mut self, fetched: Fetched) {
        let Fetched { link, contents: list } = fetched;
        let Some(of_link) = self.links.get_mut(&link) else { return };
        for (place, result) in list {
            let at =
                place.number.checked_sub(of_link.first).and_then(|at| usize::try_from(at).ok());
            let Some(waiting) = at.and_then(|at| of_link.waiting.get_mut(at)) else { continue };
            if let Some(content) = content_at(&mut waiting.released, place.part) {
                *content = fetched_content(content.length(), result);
            }
            waiting.missing = waiting.missing.saturating_sub(1);
            if waiting.missing == 0 && at == Some(0) {
                self.ready_links.push_back(link);
            }
        }
    }

    /// Returns the next mail whose contents are loaded. Mail without room waits with its link while
    /// other links go on.
    pub fn next(&mut self, account: &mut Account) -> NextMail {
        let mut wanted: Option<u64> = None;
        let mut want = |bytes: u64| wanted = Some(wanted.map_or(bytes, |least| least.min(bytes)));
        for _ in 0..self.ready_links.len() {
            let Some(link) = self.ready_links.front().copied() else { break };
            match self.first_of(link, account) {
                Some(NextMail::NoRoom(bytes)) => {
                    want(bytes);
                    self.ready_links.rotate_left(1);
                }
                Some(ready @ NextMail::Ready(..)) => return ready,
                Some(NextMail::Nothing) | None => drop(self.ready_links.pop_front()),
            }
        }
        while let Some((link, mut released)) = self.mail.pop_front() {
            if let Some(of_link) = self.links.get_mut(&link) {
                of_link.waiting.push_back(WaitingMail { released, bytes: 0, missing: 0 });
                of_link.request_ahead(link, account, &mut self.fetches, &self.sizes);
                continue;
            }
            let bytes = self.sizes.bytes_of(&released);
            let (bytes, missing, requested_count) = if bytes > 0 && !account.try_take(bytes) {
                want(bytes);
                self.ready_links.push_back(link);
                (0, 0, 0)
            } else {
                // For `try_take` and `hold`, see `LinkArrivals::request_ahead`.
                account.hold(bytes);
                let missing = load(&mut released, link, 0, &mut self.fetches);
                if missing == 0 {
                    return NextMail::Ready(released, bytes);
                }
                (bytes, missing, 1)
            };
            let waiting = VecDeque::from([WaitingMail { released, bytes, missing }]);
            self.links.insert(link, LinkArrivals { first: 0, waiting, requested_count });
        }
        wanted.map_or(NextMail::Nothing, NextMail::NoRoom)
    }

    /// Takes all remaining mail, with or without contents, and releases its bytes.
    pub fn drain(&mut self, account: &mut Account) -> Vec<Released> {
        let mut left = Vec::new();
        for (_, of_link) in self.links.drain() {
            for waiting in of_link.waiting {
                account.release(waiting.bytes);
                left.push(waiting.released);
            }
        }
        left.extend(self.mail.drain(..).map(|(_, released)| released));
        self.ready_links.clear();
        self.fetches.clear();
        left
    }

    /// The first piece of mail of a link, if its contents are loaded.
    fn first_of(&mut self, link: u32, account: &mut Account) -> Option<NextMail> {
        let of_link = self.links.get_mut(&link)?;
        of_link.request_ahead(link, account, &mut self.fetches, &self.sizes);
        let first = of_link.waiting.front()?;
        if of_link.requested_count == 0 {
            return Some(NextMail::NoRoom(self.sizes.bytes_of(&first.released)));
        }
        if first.missing > 0 {
            return Some(NextMail::Nothing);
        }
        let WaitingMail { released, bytes, .. } = of_link.waiting.pop_front()?;
        of_link.first += 1;
        of_link.requested_count -= 1;
        if of_link.waiting.is_empty() {
            self.links.remove(&link);
        } else {
            of_link.request_ahead(link, account, &mut self.fetches, &self.sizes);
        }
        Some(NextMail::Ready(released, bytes))
    }
}

impl LinkArrivals {
    /// Requests the contents of waiting mail in order while the account has room.
    fn request_ahead(
        &mut self,
        link: u32,
        account: &mut Account,
        fetches: &mut Vec<Fetch>,
        sizes: &MailSizes,
    ) {
        while self.requested_count < AHEAD_MAX {
            let number = self.first + self.requested_count as u64;
            let Some(waiting) = self.waiting.get_mut(self.requested_count) else { return };
            let bytes = sizes.bytes_of(&waiting.released);
            if bytes > 0 && !account.try_take(bytes) {
                return;
            }
            // `try_take` only reserves room in the account and the pool. `hold` counts the bytes as
            // present until they are released.
            account.hold(bytes);
            waiting.bytes = bytes;
            waiting.missing = load(&mut waiting.released, link, number, fetches);
            self.requested_count += 1;
        }
    }
}

/// The messages of a piece of mail, or its session state.
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

/// The contents of a piece of mail, each with its position.
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

/// The content at one position of a piece of mail.
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

impl MailSizes {
    /// Bytes that a piece of mail takes in memory with its contents.
    fn bytes_of(&self, released: &Released) -> u64 {
        let encoded = |bytes| self.0.as_ref().map_or(bytes, |size| size(bytes));
        let of = |message: &ReceivedMessage| encoded(u64::from(message.facts.size)) + MESSAGE_BYTES;
        match released {
            Released::Delivery { message, .. } => of(message),
            Released::Answer { result: Ok(outcome), .. } => match outcome {
                Outcome::Received(messages) | Outcome::Peeked(messages) => {
                    messages.iter().map(of).sum()
                }
                Outcome::SessionState(Some(state)) => encoded(state.length()) + MESSAGE_BYTES,
                _ => 0,
            },
            Released::Answer { .. } | Released::Detached { .. } | Released::Closed { .. } => 0,
        }
    }
}

/// Loads the contents that are in memory and lists the others in `fetches`. Returns the number of
/// the others. The cache is asked again here, because a delivery may have waited since it was
/// pinned.
fn load(released: &mut Released, link: u32, number: u64, fetches: &mut Vec<Fetch>) -> usize {
    let mut missing = 0;
    for (part, content) in contents(released) {
        let ContentRef::Stored(stored) = content else { continue };
        match stored.cached() {
            Some(Ok(bytes)) => *content = ContentRef::Loaded(bytes),
            Some(result @ Err(_)) => *content = fetched_content(stored.length(), result),
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

/// Returns the fetched content, or a reference with the error.
fn fetched_content(length: u64, result: Result<Bytes, StoreError>) -> ContentRef {
    match result {
        Ok(bytes) => ContentRef::Loaded(bytes),
        Err(error) => {
            tracing::error!(%error, "content cannot be fetched");
            ContentRef::failed(length, error)
        }
    }
}

/// Item in the mailbox of a connection.
#[derive(Debug)]
pub enum Mail<T> {
    /// An answer or delivery of an entity.
    Released(Released),
    /// Contents that were requested.
    Fetched(Fetched),
    /// An item of the transport itself.
    Own(T),
}

/// Mailbox of a connection. Permits, credit, the byte limits of links and the account that pays for
/// contents bound the items in it.
pub struct Mailbox<T> {
    state: Mutex<State<T>>,
}

struct State<T> {
    mail: Vec<Mail<T>>,
    waker: Option<Waker>,
    /// Whether items are no longer taken.
    is_closed: bool,
}

impl<T> Default for Mailbox<T> {
    fn default() -> Self {
        Self { state: Mutex::new(State { mail: Vec::new(), waker: None, is_closed: false }) }
    }
}

impl<T> Mailbox<T> {
    /// Adds an item.
    pub fn put(&self, mail: Mail<T>) {
        self.put_all(std::iter::once(mail));
    }

    /// Takes all items, in order.
    pub fn take(&self, into: &mut Vec<Mail<T>>) {
        let mut state = self.lock();
        if into.is_empty() {
            std::mem::swap(&mut state.mail, into);
        } else {
            into.append(&mut state.mail);
        }
    }

    /// Ready when there is an item.
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

    /// Closes the mailbox: neither its items nor later ones reach the client. An entity may be
    /// blocked for longer than the end of a connection waits; messages that it has removed by then
    /// are lost and counted when they arrive. Locked messages are not lost: they become available
    /// when the link is detached or their lock ends.
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

/// Number of messages in `mail` that their entity has already deleted.
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

/// Counts and logs removed messages that no client has. Receive-and-delete mode allows this loss,
/// and nothing else would report it (RCV-02).
pub(crate) fn count_lost(lost_count: u64) {
    if lost_count > 0 {
        telemetry::count_undelivered(lost_count);
        tracing::warn!(lost_count, "messages were received and deleted but never written");
    }
}

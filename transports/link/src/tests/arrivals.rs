//! Order of arrivals while contents are fetched, and the room that they need.
use std::future::Future as _;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use async_trait::async_trait;
use bytes::Bytes;
use peeklock_core::admission::{Account, Pool};
use peeklock_core::command::{Outcome, ReceivedMessage};
use peeklock_core::content_ref::{ContentRef, StoredContent};
use peeklock_core::ids::ReceiverId;
use peeklock_core::request::Released;
use peeklock_core::store::StoreError;
use tokio::sync::Semaphore;

use super::stand::message;
use crate::Arrivals;
use crate::arrivals::MESSAGE_BYTES;
use crate::arrivals::{Fetch, Fetched, NextMail};

/// Content on a disk that answers when the test adds a permit.
struct Slow(Arc<Semaphore>);

/// Content of `self.0` bytes, none of which are read.
struct Large(u64);

/// Content on a disk; its bytes are its name.
struct Named(String);

#[async_trait]
impl StoredContent for Named {
    fn length(&self) -> u64 {
        self.0.len() as u64
    }

    async fn load(&self) -> Result<Bytes, StoreError> {
        Ok(Bytes::from(self.0.clone()))
    }
}

#[async_trait]
impl StoredContent for Large {
    fn length(&self) -> u64 {
        self.0
    }

    async fn load(&self) -> Result<Bytes, StoreError> {
        Ok(Bytes::new())
    }
}

#[async_trait]
impl StoredContent for Slow {
    fn length(&self) -> u64 {
        4
    }

    fn cached(&self) -> Option<Result<Bytes, StoreError>> {
        self.0.try_acquire().ok().map(|_| Ok(Bytes::from_static(b"read")))
    }

    async fn load(&self) -> Result<Bytes, StoreError> {
        match self.0.acquire().await {
            Ok(_) => Ok(Bytes::from_static(b"read")),
            Err(_) => Err(StoreError::Failed("gone".into())),
        }
    }
}

fn delivery(link: u32, sequence: u64, disk: Option<&Arc<Semaphore>>) -> (u32, Released) {
    let mut message = message(sequence, 100, 1_000);
    if let Some(disk) = disk {
        message.content = ContentRef::Stored(Arc::new(Slow(Arc::clone(disk))));
    }
    let receiver = ReceiverId(u64::from(link));
    (link, Released::Delivery { receiver, message: Box::new(message) })
}

fn account() -> Account {
    Account::new(&Pool::new(1 << 30), 4_000)
}

/// Sequence numbers of the deliveries that can be taken now.
fn told(arrivals: &mut Arrivals, account: &mut Account) -> Vec<u64> {
    let mut told = Vec::new();
    while let NextMail::Ready(released, bytes) = arrivals.next(account) {
        account.release(bytes);
        if let Released::Delivery { message, .. } = released {
            told.push(message.facts.sequence.0);
        }
    }
    told
}

fn run(fetch: Fetch) -> Fetched {
    match pin!(fetch.run()).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(fetched) => fetched,
        Poll::Pending => panic!("the disk has not answered"),
    }
}

/// A content that must be read delays its own link, in order, and no other.
#[test]
fn a_slow_disk_holds_up_one_link() {
    let (mut arrivals, mut account) = (Arrivals::default(), account());
    let disk = Arc::new(Semaphore::new(0));
    for (link, released) in [
        delivery(1, 1, Some(&disk)),
        delivery(2, 10, None),
        delivery(1, 2, None),
        delivery(2, 11, None),
    ] {
        arrivals.push(link, released);
    }
    assert_eq!(told(&mut arrivals, &mut account), [10, 11]);
    assert!(arrivals.is_idle() && !arrivals.is_empty());
    disk.add_permits(1);
    let fetches: Vec<Fetch> = arrivals.fetches().collect();
    assert_eq!(fetches.len(), 1);
    for fetch in fetches {
        arrivals.fetched(run(fetch));
    }
    assert_eq!(told(&mut arrivals, &mut account), [1, 2]);
    assert!(arrivals.is_empty());
    assert_eq!(account.held_bytes(), 0);
}

/// Contents are fetched only while the account has room, however many wait. Taken mail makes room.
#[test]
fn fetches_stay_within_the_account() {
    let (mut arrivals, mut account) = (Arrivals::default(), account());
    let disk = Arc::new(Semaphore::new(1_000));
    for sequence in 1..=20 {
        let (link, released) = delivery(1, sequence, None);
        arrivals.push(link, released);
        let (link, released) = delivery(2, 100 + sequence, Some(&disk));
        arrivals.push(link, released);
    }
    let mut held = Vec::new();
    let wanted = loop {
        match arrivals.next(&mut account) {
            NextMail::Ready(_, bytes) => held.push(bytes),
            NextMail::NoRoom(wanted) => break wanted,
            NextMail::Nothing => panic!("there is more"),
        }
    };
    assert_eq!(wanted, 1_256);
    assert_eq!(account.held_bytes(), held.iter().sum::<u64>());
    assert!(account.held_bytes() <= 4_000);
    let mut count = held.len();
    while let Some(bytes) = held.pop() {
        account.release(bytes);
        while let NextMail::Ready(_, bytes) = arrivals.next(&mut account) {
            held.push(bytes);
            count += 1;
        }
    }
    assert_eq!(count, 40);
    assert_eq!(account.held_bytes(), 0);
}

/// SES-24: session states on disk and in memory count with their size, and are fetched while the
/// account has room. A state larger than the whole account is fetched if nothing else is held.
#[test]
fn session_states_count_with_their_size() {
    let (mut arrivals, mut account) = (Arrivals::default(), account());
    let answer =
        |state| Released::Answer { correlation: 0, result: Ok(Outcome::SessionState(Some(state))) };
    let stored = |bytes| ContentRef::Stored(Arc::new(Large(bytes)));
    for _ in 0..3 {
        arrivals.push(1, answer(stored(1_500)));
    }
    assert!(matches!(arrivals.next(&mut account), NextMail::Nothing));
    // Two states have room; the third waits until one is taken.
    assert_eq!(account.held_bytes(), 2 * (1_500 + MESSAGE_BYTES));
    arrivals.drain(&mut account);
    assert_eq!(account.held_bytes(), 0);
    for (state, bytes) in
        [(ContentRef::Loaded(Bytes::from(vec![0; 900])), 900), (stored(900_000), 900_000)]
    {
        arrivals.push(2, answer(state));
        let next = arrivals.next(&mut account);
        assert!(matches!(next, NextMail::Ready(..) | NextMail::Nothing));
        assert_eq!(account.held_bytes(), bytes + MESSAGE_BYTES);
        arrivals.push(3, answer(stored(900_000)));
        assert!(matches!(
            arrivals.next(&mut account),
            NextMail::NoRoom(wanted) if wanted == 900_000 + MESSAGE_BYTES
        ));
        arrivals.drain(&mut account);
        account.clear();
    }
}

/// Contents that one link requests in a turn share a task; another link has its own.
#[test]
fn a_link_fetches_with_one_task() {
    let (mut arrivals, mut account) = (Arrivals::default(), account());
    let (first, second) = (Arc::new(Semaphore::new(0)), Arc::new(Semaphore::new(0)));
    for (link, released) in
        [delivery(1, 1, Some(&first)), delivery(1, 2, Some(&first)), delivery(2, 10, Some(&second))]
    {
        arrivals.push(link, released);
    }
    assert!(told(&mut arrivals, &mut account).is_empty());
    let mut fetches: Vec<Fetch> = arrivals.fetches().collect();
    assert_eq!(fetches.len(), 2);
    second.add_permits(1);
    arrivals.fetched(run(fetches.remove(1)));
    assert_eq!(told(&mut arrivals, &mut account), [10]);
    first.add_permits(1);
    arrivals.fetched(run(fetches.remove(0)));
    assert_eq!(told(&mut arrivals, &mut account), [1, 2]);
}

/// Each fetched content reaches its position in an answer: the content of each message, and its
/// overlays.
#[test]
fn each_content_of_an_answer_comes_to_its_place() {
    let (mut arrivals, mut account) = (Arrivals::default(), account());
    let stored = |name: String| ContentRef::Stored(Arc::new(Named(name)));
    let peeked = (0..3).map(|number| {
        let overlays = (0..number).map(|set| stored(format!("{number} {set}"))).collect();
        ReceivedMessage { content: stored(format!("{number}")), overlays, ..message(number, 1, 7) }
    });
    let result = Ok(Outcome::Peeked(peeked.collect()));
    arrivals.push(1, Released::Answer { correlation: 0, result });
    assert!(matches!(arrivals.next(&mut account), NextMail::Nothing));
    let fetches: Vec<Fetch> = arrivals.fetches().collect();
    for fetch in fetches {
        arrivals.fetched(run(fetch));
    }
    let NextMail::Ready(Released::Answer { result: Ok(Outcome::Peeked(peeked)), .. }, _) =
        arrivals.next(&mut account)
    else {
        panic!("it is not told");
    };
    let read =
        |content: &ContentRef| String::from_utf8(content.loaded().unwrap().to_vec()).unwrap();
    let found: Vec<Vec<String>> = peeked
        .iter()
        .map(|one| std::iter::once(&one.content).chain(&one.overlays).map(read).collect())
        .collect();
    assert_eq!(found, [vec!["0"], vec!["1", "1 0"], vec!["2", "2 0", "2 1"]]);
}

/// A lost content does not delay its message; the receiver of the message detects that it is
/// missing.
#[test]
fn unreadable_content_does_not_block_its_message() {
    let (mut arrivals, mut account) = (Arrivals::default(), account());
    let disk = Arc::new(Semaphore::new(0));
    let (link, released) = delivery(1, 1, Some(&disk));
    arrivals.push(link, released);
    assert!(told(&mut arrivals, &mut account).is_empty());
    disk.close();
    let fetches: Vec<Fetch> = arrivals.fetches().collect();
    for fetch in fetches {
        arrivals.fetched(run(fetch));
    }
    let NextMail::Ready(Released::Delivery { message, .. }, _) = arrivals.next(&mut account) else {
        panic!("it is not told");
    };
    assert!(message.content.loaded().is_none());
    let error = message.content.known_error();
    assert!(matches!(error, Some(StoreError::Failed(_))), "the receiver learns why: {error:?}");
    assert_eq!(message.content.length(), 4);
}

/// DESIGN D6: a content with a longer encoding has all its room before it is fetched.
#[test]
fn longer_encodings_reserve_room_before_the_fetch() {
    let shared = Pool::new(64 << 10);
    let mut account = Account::new(&shared, 1 << 20);
    let mut arrivals = Arrivals::with_encoded_size(|bytes| 6 * bytes);
    let mut message = message(1, 100, 20_000);
    message.content = ContentRef::Stored(Arc::new(Slow(Arc::new(Semaphore::new(0)))));
    let receiver = ReceiverId(1);
    arrivals.push(1, Released::Delivery { receiver, message: Box::new(message) });
    let taken = shared.try_take(None, 64 << 10);
    assert!(taken.is_some());
    let NextMail::NoRoom(bytes) = arrivals.next(&mut account) else { panic!("it has room") };
    assert!(bytes >= 120_000, "{bytes}");
    assert_eq!(arrivals.fetches().count(), 0);
    drop(taken);
    assert!(matches!(arrivals.next(&mut account), NextMail::Nothing));
    assert_eq!(arrivals.fetches().count(), 1);
    assert_eq!(account.held_bytes(), bytes);
}

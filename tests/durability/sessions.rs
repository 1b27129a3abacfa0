//! Sessions and kills: workers accept sessions over WebSocket from a process that is killed
//! repeatedly. A book outside the process records their outcomes, and the contents of the next
//! process must agree with it.
//!
//! Each session has one sender, which numbers its messages. The numbers show order, losses and
//! duplicates.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use peeklock::command::{ReceiveMode, SessionFilter};
use peeklock::condition::Condition;
use peeklock::description::QueueUpdate;
use peeklock::error::BrokerError;
use peeklock::ids::SequenceNumber;
use peeklock::message::Message;
use peeklock::time::TimeSpan;
use peeklock::websocket::client::{Client, ClientOptions, Received, SessionReceiver, connect_with};

use crate::alone::alone;
use crate::process::{Place, Storage};
use crate::random::Random;

const ROUNDS: u64 = 10;
const SESSIONS: u64 = 24;
const SENDERS: u64 = 3;
const WORKERS: u64 = 5;
const LIFE_MS_MAX: u64 = 900;
const QUEUE: &str = "steps";
/// Maximum of waiting messages in a session.
const BACKLOG_MAX: u64 = 12;
const PAGE: u32 = 250;

/// Knowledge about one message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Known {
    /// Sent, without an answer yet.
    PerhapsSent,
    Sent,
    /// Completed, without an answer yet.
    PerhapsDone,
    Done,
    /// The send had no effect.
    Never,
}

/// Knowledge about one session.
#[derive(Default)]
struct Session {
    messages: Vec<Known>,
    state: Option<Bytes>,
    /// States whose setting has no answer yet.
    perhaps: Vec<Option<Bytes>>,
    holder: Option<u64>,
}

#[derive(Default, Debug)]
struct Tally {
    sent: u64,
    done: u64,
    states: u64,
    abandoned: u64,
    closed: u64,
    dropped: u64,
    unknown_sends: u64,
    unknown_completions: u64,
    unknown_states: u64,
}

#[derive(Default)]
struct Book {
    sessions: Mutex<BTreeMap<String, Session>>,
    complaints: Mutex<Vec<String>>,
    tally: Mutex<Tally>,
    killed: AtomicBool,
}

impl Book {
    fn of<R>(&self, session: &str, look: impl FnOnce(&mut Session) -> R) -> R {
        look(self.sessions.lock().unwrap().entry(session.to_owned()).or_default())
    }

    fn complain(&self, what: String) {
        self.complaints.lock().unwrap().push(what);
    }

    fn count(&self, count: impl FnOnce(&mut Tally)) {
        count(&mut self.tally.lock().unwrap());
    }

    fn is_over(&self) -> bool {
        self.killed.load(Ordering::SeqCst)
    }

    /// Whether a call failed because the broker is gone. Any other error is a fault.
    fn is_lost(&self, what: &str, error: &BrokerError) -> bool {
        let is_lost = error.condition() == Condition::CommunicationProblem;
        if !is_lost || !self.is_over() {
            self.complain(format!("{what}: {error}"));
        }
        is_lost
    }
}

fn name(session: u64) -> String {
    format!("session {session:02}")
}

fn number_of(message: &Received) -> u64 {
    std::str::from_utf8(message.body()).unwrap().parse().unwrap()
}

async fn connect(url: &str) -> Result<Client, BrokerError> {
    let mut options = ClientOptions::default();
    options.grace = Duration::ZERO;
    options.give_up_after = Some(Duration::ZERO);
    connect_with(url, options).await
}

/// Sends to the sessions of this sender, one message after another.
async fn send(book: Arc<Book>, url: String, sender: u64, mut random: Random) {
    let Ok(client) = connect(&url).await else { return };
    let queue = client.sender(QUEUE).unwrap();
    while !book.is_over() {
        let session = name(random.below(SESSIONS / SENDERS) * SENDERS + sender);
        let number = book.of(&session, |of| {
            let waits = of.messages.iter().filter(|known| **known == Known::Sent).count() as u64;
            (waits < BACKLOG_MAX).then(|| {
                of.messages.push(Known::PerhapsSent);
                of.messages.len() - 1
            })
        });
        let Some(number) = number else {
            tokio::task::yield_now().await;
            continue;
        };
        let message = Message::new(number.to_string()).with_session_id(session.clone());
        match queue.send(message).await {
            Ok(_) => {
                book.count(|tally| tally.sent += 1);
                // The message may already be completed.
                book.of(&session, |of| {
                    if of.messages[number] == Known::PerhapsSent {
                        of.messages[number] = Known::Sent;
                    }
                });
            }
            Err(error) => {
                book.is_lost("send", &error);
                return book.count(|tally| tally.unknown_sends += 1);
            }
        }
    }
}

/// Accepts one session after another.
async fn work(book: Arc<Book>, url: String, worker: u64, mut random: Random) {
    let Ok(client) = connect(&url).await else { return };
    while !book.is_over() {
        let wanted = random.chance(30).then(|| name(random.below(SESSIONS)));
        let wait = TimeSpan::from_ms(20);
        let mode = ReceiveMode::PeekLock;
        let held = match client.accept_session_in(QUEUE, wanted.as_deref(), mode, wait).await {
            Ok(held) => held,
            Err(error) => match error.condition() {
                Condition::ServiceTimeout => continue,
                Condition::SessionCannotBeLocked => {
                    tokio::task::yield_now().await;
                    continue;
                }
                _ => {
                    book.is_lost("accept", &error);
                    return;
                }
            },
        };
        let session = held.session_id().to_owned();
        book.of(&session, |of| {
            if let Some(other) = of.holder.replace(worker) {
                book.complain(format!("{session} is held by {other} and {worker} (SES-11)"));
            }
        });
        let outcome = hold(&book, &held, &session, &mut random).await;
        book.of(&session, |of| of.holder = None);
        if let Err(error) = outcome {
            book.is_lost("held", &error);
            return;
        }
        if random.chance(80) {
            book.count(|tally| tally.closed += 1);
            if let Err(error) = held.close().await {
                book.is_lost("close", &error);
                return;
            }
        } else {
            book.count(|tally| tally.dropped += 1);
        }
    }
}

/// Works in a session for a while.
async fn hold(
    book: &Book,
    held: &SessionReceiver,
    session: &str,
    random: &mut Random,
) -> Result<(), BrokerError> {
    let state = held.state().await?;
    book.of(session, |of| {
        if !of.may_be(state.as_ref()) {
            book.complain(format!("{session} has the state {state:?}, not {of:?} (SES-25)"));
        }
    });
    for _ in 0..random.between(1, 3) {
        let count = u32::try_from(random.between(1, 4)).unwrap();
        let received = held.receive_many(count, TimeSpan::ZERO).await?;
        let numbers: Vec<u64> = received.iter().map(number_of).collect();
        book.of(session, |of| of.delivered(&numbers, session, book));
        for (message, number) in received.iter().zip(numbers) {
            if random.chance(10) {
                held.abandon(message, &[]).await?;
                book.count(|tally| tally.abandoned += 1);
                // The next message of the session is this one again, so the other received messages
                // are left.
                return Ok(());
            }
            complete(book, held, session, message, number).await?;
            if random.chance(40) {
                let state = (!random.chance(20)).then(|| Bytes::from(format!("after {number}")));
                set_state(book, held, session, state).await?;
            }
        }
    }
    Ok(())
}

async fn complete(
    book: &Book,
    held: &SessionReceiver,
    session: &str,
    message: &Received,
    number: u64,
) -> Result<(), BrokerError> {
    let place = usize::try_from(number).unwrap();
    book.of(session, |of| of.messages[place] = Known::PerhapsDone);
    let completed = held.complete(message).await;
    match &completed {
        Ok(()) => {
            book.of(session, |of| of.messages[place] = Known::Done);
            book.count(|tally| tally.done += 1);
        }
        Err(_) => book.count(|tally| tally.unknown_completions += 1),
    }
    completed
}

async fn set_state(
    book: &Book,
    held: &SessionReceiver,
    session: &str,
    state: Option<Bytes>,
) -> Result<(), BrokerError> {
    book.of(session, |of| of.perhaps.push(state.clone()));
    let set = held.set_state(state.clone()).await;
    match &set {
        Ok(()) => {
            book.of(session, |of| (of.state, of.perhaps) = (state, Vec::new()));
            book.count(|tally| tally.states += 1);
        }
        Err(_) => book.count(|tally| tally.unknown_states += 1),
    }
    set
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:?} or {:?}, messages {:?}", self.state, self.perhaps, self.messages)
    }
}

impl Session {
    fn may_be(&self, state: Option<&Bytes>) -> bool {
        self.state.as_ref() == state || self.perhaps.iter().any(|one| one.as_ref() == state)
    }

    /// Checks a delivery: messages reach a holder in order, completed ones never, and none before
    /// an earlier one that is left (SES-19).
    fn delivered(&mut self, numbers: &[u64], session: &str, book: &Book) {
        let mut first_left = None;
        for number in numbers {
            let place = usize::try_from(*number).unwrap();
            let from = first_left.unwrap_or(0);
            let passed = (from..place).find(|one| self.messages[*one] == Known::Sent);
            let is_done = self.messages.get(place).is_none_or(|known| *known == Known::Done);
            if place < from || is_done || passed.is_some() {
                book.complain(format!("{session} gives {numbers:?}, with {self:?} (SES-19)"));
            }
            if let Some(known @ (Known::PerhapsSent | Known::Never)) = self.messages.get_mut(place)
            {
                if *known == Known::Never {
                    book.complain(format!("{session}: {number} was never stored (FND-02)"));
                }
                *known = Known::Sent;
            }
            first_left = Some(place + 1);
        }
    }

    /// Judges the contents after a restart, which decide all open outcomes.
    fn judge(&mut self, there: &[u64], state: Option<&Bytes>, session: &str, book: &Book) {
        if !there.is_sorted_by(|one, next| one < next) {
            book.complain(format!("{session} is out of order, or doubled: {there:?}"));
        }
        let present: BTreeSet<usize> =
            there.iter().map(|number| usize::try_from(*number).unwrap()).collect();
        for place in present.iter().filter(|place| **place >= self.messages.len()) {
            book.complain(format!("{session}: {place} was never sent"));
        }
        for (place, known) in self.messages.iter_mut().enumerate() {
            *known = match (*known, present.contains(&place)) {
                (Known::Sent | Known::PerhapsSent | Known::PerhapsDone, true) => Known::Sent,
                (Known::PerhapsSent | Known::Never, false) => Known::Never,
                (Known::PerhapsDone | Known::Done, false) => Known::Done,
                (was, is_there) => {
                    book.complain(format!("{session}: {place} is {was:?}, there: {is_there}"));
                    was
                }
            };
        }
        if !self.may_be(state) {
            book.complain(format!("{session} has the state {state:?}, not {self:?} (SES-25)"));
        }
        (self.state, self.perhaps) = (state.cloned(), Vec::new());
    }
}

/// Reads and judges every session.
async fn judge(book: &Book, client: &Client) -> Result<(), BrokerError> {
    let looker = client.receiver(QUEUE)?;
    let mut all: BTreeMap<String, Vec<u64>> = BTreeMap::new();
    let mut from = SequenceNumber(0);
    loop {
        let page = looker.peek(from, PAGE).await?;
        let Some(last) = page.last() else { break };
        from = last.sequence_number().next();
        for message in &page {
            let session = message.message().session_id.clone().unwrap();
            all.entry(session).or_default().push(number_of(message));
        }
    }
    for number in 0..SESSIONS {
        let session = name(number);
        // Nobody holds the session: locks did not outlive the process (SES-18).
        let held = client.accept_session(QUEUE, &session).await?;
        let state = held.state().await?;
        held.close().await?;
        let there = all.remove(&session).unwrap_or_default();
        book.of(&session, |of| of.judge(&there, state.as_ref(), &session, book));
    }
    if !all.is_empty() {
        book.complain(format!("sessions that nobody sent to: {all:?}"));
    }
    let with_state: Vec<String> = {
        let sessions = book.sessions.lock().unwrap();
        let exists = |of: &Session| of.state.is_some() || of.messages.contains(&Known::Sent);
        sessions.iter().filter(|(_, of)| exists(of)).map(|(session, _)| session.clone()).collect()
    };
    let listed = client.sessions(QUEUE, SessionFilter::All, 0, 1_000).await?;
    let listed: Vec<String> = listed.iter().map(|session| session.to_string()).collect();
    if listed != with_state {
        book.complain(format!("{listed:?} exist, not {with_state:?} (SES-04)"));
    }
    Ok(())
}

/// Receives and completes everything, so that no acknowledged message is left.
async fn drain(book: &Book, client: &Client) -> Result<(), BrokerError> {
    loop {
        let held = match client.accept_next_session(QUEUE, TimeSpan::ZERO).await {
            Ok(held) => held,
            Err(error) if error.condition() == Condition::ServiceTimeout => return Ok(()),
            Err(error) => return Err(error),
        };
        let session = held.session_id().to_owned();
        loop {
            let received = held.receive_many(PAGE, TimeSpan::ZERO).await?;
            if received.is_empty() {
                break;
            }
            let numbers: Vec<u64> = received.iter().map(number_of).collect();
            book.of(&session, |of| of.delivered(&numbers, &session, book));
            for (message, number) in received.iter().zip(numbers) {
                complete(book, &held, &session, message, number).await?;
            }
        }
        held.close().await?;
    }
}

fn must_be_content(book: &Book, place: &Place, when: &str) {
    let complaints = std::mem::take(&mut *book.complaints.lock().unwrap());
    assert!(
        complaints.is_empty(),
        "{when}: {} complaints:\n  {}\nthe files are in {}",
        complaints.len(),
        complaints.iter().take(20).cloned().collect::<Vec<_>>().join("\n  "),
        place.directory().display()
    );
}

/// SES-04, SES-11, SES-18, SES-19, SES-20, SES-25, FND-02, LIF-04: each session keeps its order,
/// nothing is lost or doubled, and the state is the last acknowledged one.
#[test]
fn a_killed_broker_keeps_its_sessions() {
    let _alone = alone();
    let rounds = crate::number("PEEKLOCK_KILL_ROUNDS").unwrap_or(ROUNDS);
    let seed = crate::seed();
    eprintln!("{rounds} rounds with seed {seed}");
    let mut random = Random::new(seed);
    let place = Place::new("sessions", Storage::Journal);
    let book = Arc::new(Book::default());
    let mut builder = tokio::runtime::Builder::new_multi_thread();
    let runtime = builder.worker_threads(2).enable_all().build().unwrap();
    for round in 0..=rounds {
        let broker = place.spawn().ready().unwrap();
        let url = broker.websocket.clone();
        let judged = runtime.block_on(async {
            let client = connect(&url).await?;
            if round == 0 {
                let properties = QueueUpdate {
                    requires_session: Some(true),
                    lock_duration: Some(TimeSpan::from_minutes(5)),
                    max_delivery_count: Some(1_000_000),
                    ..QueueUpdate::default()
                };
                client.admin().create_queue_with(QUEUE, properties).await?;
            }
            judge(&book, &client).await?;
            if round == rounds {
                drain(&book, &client).await?;
                judge(&book, &client).await?;
            }
            client.close().await;
            Ok::<(), BrokerError>(())
        });
        judged.unwrap_or_else(|error| panic!("round {round}: {error}"));
        must_be_content(&book, &place, &format!("round {round}, seed {seed}"));
        if round == rounds {
            broker.stop().unwrap();
            break;
        }
        book.killed.store(false, Ordering::SeqCst);
        let mut tasks = Vec::new();
        for sender in 0..SENDERS {
            let (book, url) = (Arc::clone(&book), url.clone());
            tasks.push(runtime.spawn(send(book, url, sender, random.fork())));
        }
        for worker in 0..WORKERS {
            let (book, url) = (Arc::clone(&book), url.clone());
            tasks.push(runtime.spawn(work(book, url, worker, random.fork())));
        }
        std::thread::sleep(Duration::from_millis(random.between(5, LIFE_MS_MAX)));
        book.killed.store(true, Ordering::SeqCst);
        broker.kill();
        for task in tasks {
            runtime.block_on(task).unwrap();
        }
        for of in book.sessions.lock().unwrap().values_mut() {
            of.holder = None;
        }
    }
    let left = book
        .sessions
        .lock()
        .unwrap()
        .values()
        .flat_map(|of| of.messages.clone())
        .find(|known| !matches!(known, Known::Done | Known::Never));
    assert_eq!(left, None, "everything was worked off");
    let tally = book.tally.lock().unwrap();
    eprintln!("{tally:?}");
    if rounds >= ROUNDS {
        let Tally { sent, done, states, abandoned, closed, dropped, .. } = &*tally;
        let all = [sent, done, states, abandoned, closed, dropped];
        assert!(all.iter().all(|count| **count > 0), "a case was never met: {tally:?}");
        let unknown = tally.unknown_sends + tally.unknown_completions + tally.unknown_states;
        assert!(unknown > 0, "every kill met an idle broker: {tally:?}");
    }
    drop(tally);
    place.remove();
}

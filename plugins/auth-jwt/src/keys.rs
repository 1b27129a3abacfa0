//! The keys of the issuer as they are known here, and when they are read again (SEC-29).
//!
//! ```text
//!  none ── a token comes ──► being read ── read ──► known ── an hour, or a token of another key ──► being read
//!   ▲                            │                    │
//!   │                            └ failed: as before  └ not read again for a day
//!   └─────────────────────────────────────────────────┘
//! ```
//!
//! Whoever comes with a key that is known waits for no reading, so that an issuer which is down costs its clients nothing.
//! They are read by a task of its own: an asker that leaves ends nothing for those who wait beside it. As long as anything that
//! they have opened is open, a keeper reads them when it is time although no token comes: what an issuer withdraws ends for who
//! shows nothing any more, too. Where nothing is open nobody asks the issuer. A keeper lives in the runtime of who came first;
//! if that has ended, the next who comes begins another.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use peeklock_core::clock::Clock;
use peeklock_core::contract::Mark;
use peeklock_core::time::{TimeSpan, Timestamp};
use tokio::sync::watch;

use crate::key_set::{Key, KeySet};
use crate::refused::Refused;
use crate::source::KeySource;
use crate::token::Token;

/// Keys are read at most once in this time, whatever tokens name: whoever makes up names costs the issuer no more.
const READ_EVERY: TimeSpan = TimeSpan::from_seconds(10);
/// Keys that are older are read again, so that one that was withdrawn is missed.
const READ_AFTER: TimeSpan = TimeSpan::from_minutes(60);
/// Keys that are older, because they could not be read since, are worth nothing.
const KEPT_FOR: TimeSpan = TimeSpan::from_days(1);

/// When keys could not be read, and nobody comes with a token for whom they are read sooner, they are tried again after this.
const TRY_AFTER: TimeSpan = TimeSpan::from_minutes(5);

/// The keys of an issuer.
pub struct Keys(Arc<Shared>);

/// A key that was found, and the mark to be put under what it grants.
pub struct Found {
    pub key: Arc<Key>,
    pub mark: Mark,
}

struct Shared {
    source: KeySource,
    clock: Arc<dyn Clock>,
    held: Mutex<Held>,
    /// Tells that a reading has ended, however.
    ended: watch::Sender<()>,
}

#[derive(Default)]
struct Held {
    set: KeySet,
    read_at: Option<Timestamp>,
    tried_at: Option<Timestamp>,
    is_being_read: bool,
    /// Is there as long as somebody reads them when it is time: a keeper ends with the runtime of who had it begun, without a
    /// word.
    keeper: Weak<()>,
}

impl Keys {
    /// None so far; they are read when the first token comes.
    pub fn new(source: KeySource, clock: Arc<dyn Clock>) -> Self {
        let (held, ended) = (Mutex::default(), watch::Sender::new(()));
        Self(Arc::new(Shared { source, clock, held, ended }))
    }

    /// The key that is said to have signed a token. Waits if it has to be read, as long as the source may take.
    pub async fn find(&self, token: &Token<'_>) -> Result<Found, Refused> {
        if let Some(mut ended) = self.reading(token) {
            // It fails when there is nothing left that could end, which is an end too.
            ended.changed().await.ok();
        }
        let mut held = self.0.held();
        let found = held.find(token, self.0.clock.now())?;
        let begun = held.begin_keeping();
        // As for a reading: it may end here and now.
        drop(held);
        if let Some(alive) = begun {
            tokio::spawn(Keeper::of(&self.0, alive).run());
        }
        Ok(found)
    }

    /// The end of the reading to wait for, if what is known does not say. One is begun if there is reason to, and none was
    /// for a while.
    fn reading(&self, token: &Token<'_>) -> Option<watch::Receiver<()>> {
        let now = self.0.clock.now();
        let mut held = self.0.held();
        let is_known = held.find(token, now).is_ok();
        if is_known && !held.is_old(READ_AFTER, now) {
            return None;
        }
        let ended = (!is_known).then(|| self.0.ended.subscribe());
        if !held.is_being_read {
            if held.tried_at.is_some_and(|at| now < at.plus(READ_EVERY)) {
                return None;
            }
            held.begin_reading(now);
            // A runtime that is ending drops the task here and now, and its end wants the lock.
            drop(held);
            tokio::spawn(Reading(Arc::clone(&self.0)).run());
        }
        ended
    }
}

impl Shared {
    /// Until when nothing is to be done for what is open; nothing if a reading is begun now, none at all if nothing is open.
    fn wait_for(&self, now: Timestamp) -> Option<Option<Timestamp>> {
        let mut held = self.held();
        if held.is_old(KEPT_FOR, now) {
            // Nobody knows which of them count still.
            held.set = KeySet::default().replacing(&held.set);
        }
        if !held.set.is_in_use() {
            held.keeper = Weak::new();
            return None;
        }
        let next = held.next(now);
        if now < next || held.is_being_read {
            return Some(Some(next.max(now.plus(READ_EVERY))));
        }
        held.begin_reading(now);
        Some(None)
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    const fn begin_reading(&mut self, now: Timestamp) {
        self.is_being_read = true;
        self.tried_at = Some(now);
    }

    /// What a keeper is to hold, if there is none.
    fn begin_keeping(&mut self) -> Option<Arc<()>> {
        if self.keeper.strong_count() > 0 {
            return None;
        }
        let alive = Arc::new(());
        self.keeper = Arc::downgrade(&alive);
        Some(alive)
    }

    /// When something has to be done about keys by whose means something is open.
    fn next(&self, now: Timestamp) -> Timestamp {
        let read_at = self.read_at.unwrap_or(now);
        let again = self.tried_at.map_or(now, |at| at.plus(TRY_AFTER));
        read_at.plus(READ_AFTER).max(again).min(read_at.plus(KEPT_FOR))
    }

    fn is_old(&self, age: TimeSpan, now: Timestamp) -> bool {
        self.read_at.is_none_or(|at| now >= at.plus(age))
    }

    /// The mark is taken while nobody can replace the set, so that a key which is withdrawn ends what it grants now.
    fn find(&self, token: &Token<'_>, now: Timestamp) -> Result<Found, Refused> {
        if self.is_old(KEPT_FOR, now) {
            return Err(Refused::NoKeys);
        }
        let key = self.set.find(token.key.as_deref(), token.algorithm).ok_or(Refused::Key)?;
        Ok(Found { key: Arc::clone(key), mark: key.epoch.mark() })
    }
}

/// Keys that are being read. Dropping it ends that, also when the thread it ran on has ended or it has panicked.
struct Reading(Arc<Shared>);

impl Reading {
    async fn run(self) {
        let Self(shared) = &self;
        match shared.source.read().await {
            Ok(set) => {
                let mut held = shared.held();
                held.set = set.replacing(&held.set);
                held.read_at = Some(shared.clock.now());
            }
            Err(error) => tracing::warn!(
                source = %shared.source,
                %error,
                "could not read the keys of the issuer of bearer tokens; known keys stay valid for \
                 one day"
            ),
        }
    }
}

impl Drop for Reading {
    fn drop(&mut self) {
        self.0.held().is_being_read = false;
        self.0.ended.send_replace(());
    }
}

/// Reads keys while something is open by their means.
struct Keeper {
    shared: Weak<Shared>,
    clock: Arc<dyn Clock>,
    /// Ends with what it looks after.
    ended: watch::Receiver<()>,
    /// Goes with it, in whatever way that ends.
    _alive: Arc<()>,
}

impl Keeper {
    fn of(shared: &Arc<Shared>, alive: Arc<()>) -> Self {
        let (clock, ended) = (Arc::clone(&shared.clock), shared.ended.subscribe());
        Self { shared: Arc::downgrade(shared), clock, ended, _alive: alive }
    }

    async fn run(mut self) {
        while let Some(next) = self.look().await {
            tokio::select! {
                () = self.clock.sleep_until(next) => {}
                // Somebody else has had them read, or nobody has them any more.
                changed = self.ended.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Does what it is time for; returns when to look again, if anything is open.
    async fn look(&self) -> Option<Timestamp> {
        let shared = self.shared.upgrade()?;
        if let Some(next) = shared.wait_for(self.clock.now())? {
            return Some(next);
        }
        Reading(Arc::clone(&shared)).run().await;
        let next = shared.held().next(self.clock.now());
        Some(next)
    }
}

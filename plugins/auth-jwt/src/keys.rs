//! The issuer's keys as last read, and the times at which they are read again (SEC-29). The
//! authorizer looks up the key of each token here.
//!
//! ```text
//!  none ── a token comes ──► being read ── read ──► known ── an hour, or a token of another key ──► being read
//!   ▲                            │                    │
//!   │                            └ failed: as before  └ not read again for a day
//!   └─────────────────────────────────────────────────┘
//! ```
//!
//! A client whose key is known never waits for a read, so an unreachable issuer does not affect it.
//! Reads run in their own task: a client that disconnects does not cancel the read for others.
//! While a grant based on the keys is in use, a keeper task reads the keys when they are due even
//! if no token arrives. Therefore a withdrawal by the issuer also ends the grants of idle
//! connections. Without such grants the issuer is not contacted. A keeper runs in the runtime of
//! the client that started it; if that runtime has ended, the next lookup starts a new keeper.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use peeklock_core::clock::Clock;
use peeklock_core::contract::Mark;
use peeklock_core::time::{TimeSpan, Timestamp};
use tokio::sync::watch;

use crate::key_set::{Key, KeySet};
use crate::refused::TokenError;
use crate::source::KeySource;
use crate::token::Token;

/// Minimum time between two reads, for any key ids in tokens: invented ids must not load the
/// issuer.
const READ_INTERVAL_MIN: TimeSpan = TimeSpan::from_seconds(10);
/// Age at which keys are read again, so that a withdrawn key is noticed.
const READ_AFTER: TimeSpan = TimeSpan::from_minutes(60);
/// Age at which keys become invalid if no read has succeeded.
const VALID_FOR: TimeSpan = TimeSpan::from_days(1);

/// Time until the keeper retries a failed read if no token causes an earlier one.
const RETRY_AFTER: TimeSpan = TimeSpan::from_minutes(5);

/// The keys of an issuer.
pub struct Keys(Arc<Shared>);

/// A key, and the mark that its grants depend on.
pub struct FoundKey {
    pub key: Arc<Key>,
    pub mark: Mark,
}

struct Shared {
    source: KeySource,
    clock: Arc<dyn Clock>,
    state: Mutex<KeyState>,
    /// Signals the end of a read, successful or not.
    ended: watch::Sender<()>,
}

#[derive(Default)]
struct KeyState {
    set: KeySet,
    read_at: Option<Timestamp>,
    tried_at: Option<Timestamp>,
    is_being_read: bool,
    /// Alive while a keeper task exists. A keeper ends without notice when its runtime ends.
    keeper: Weak<()>,
}

impl Keys {
    /// Creates an empty store; the first token causes the first read.
    pub fn new(source: KeySource, clock: Arc<dyn Clock>) -> Self {
        let (state, ended) = (Mutex::default(), watch::Sender::new(()));
        Self(Arc::new(Shared { source, clock, state, ended }))
    }

    /// Returns the key that a token names. Waits for a read if the key is unknown, for at most the
    /// time limit of the source.
    pub async fn find(&self, token: &Token<'_>) -> Result<FoundKey, TokenError> {
        if let Some(mut ended) = self.pending_read(token) {
            // An error means that the sender is gone, which also ends the read.
            ended.changed().await.ok();
        }
        let mut state = self.0.state();
        let found = state.find(token, self.0.clock.now())?;
        let begun = state.start_keeper();
        // Unlock first, as in `pending_read`: the spawned task may be dropped in this call.
        drop(state);
        if let Some(alive) = begun {
            tokio::spawn(Keeper::of(&self.0, alive).run());
        }
        Ok(found)
    }

    /// Returns a signal for the end of a read if the key is unknown. Starts a read if one is due,
    /// none is running and the minimum interval has passed.
    fn pending_read(&self, token: &Token<'_>) -> Option<watch::Receiver<()>> {
        let now = self.0.clock.now();
        let mut state = self.0.state();
        let is_known = state.find(token, now).is_ok();
        if is_known && !state.is_old(READ_AFTER, now) {
            return None;
        }
        let ended = (!is_known).then(|| self.0.ended.subscribe());
        if !state.is_being_read {
            if state.tried_at.is_some_and(|at| now < at.plus(READ_INTERVAL_MIN)) {
                return None;
            }
            state.begin_reading(now);
            // A runtime that is shutting down drops the task in this call, and its `Drop` takes the
            // lock.
            drop(state);
            tokio::spawn(Reading(Arc::clone(&self.0)).run());
        }
        ended
    }
}

impl Shared {
    /// Returns the time until which the keeper has nothing to do; `Some(None)` if it must read now,
    /// having marked the read as begun; `None` if no grant is in use.
    fn next_check(&self, now: Timestamp) -> Option<Option<Timestamp>> {
        let mut state = self.state();
        if state.is_old(VALID_FOR, now) {
            // The keys have become invalid, so end all of their grants.
            state.set = KeySet::default().replacing(&state.set);
        }
        if !state.set.is_in_use() {
            state.keeper = Weak::new();
            return None;
        }
        let next = state.next(now);
        if now < next || state.is_being_read {
            return Some(Some(next.max(now.plus(READ_INTERVAL_MIN))));
        }
        state.begin_reading(now);
        Some(None)
    }

    fn state(&self) -> MutexGuard<'_, KeyState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl KeyState {
    const fn begin_reading(&mut self, now: Timestamp) {
        self.is_being_read = true;
        self.tried_at = Some(now);
    }

    /// Returns the token that a new keeper must hold, or `None` if a keeper exists.
    fn start_keeper(&mut self) -> Option<Arc<()>> {
        if self.keeper.strong_count() > 0 {
            return None;
        }
        let alive = Arc::new(());
        self.keeper = Arc::downgrade(&alive);
        Some(alive)
    }

    /// Returns the next time at which keys in use must be read or invalidated.
    fn next(&self, now: Timestamp) -> Timestamp {
        let read_at = self.read_at.unwrap_or(now);
        let again = self.tried_at.map_or(now, |at| at.plus(RETRY_AFTER));
        read_at.plus(READ_AFTER).max(again).min(read_at.plus(VALID_FOR))
    }

    fn is_old(&self, age: TimeSpan, now: Timestamp) -> bool {
        self.read_at.is_none_or(|at| now >= at.plus(age))
    }

    /// Takes the mark under the lock, so that no other task can replace the set in between: a later
    /// withdrawal of the key ends the new grant.
    fn find(&self, token: &Token<'_>, now: Timestamp) -> Result<FoundKey, TokenError> {
        if self.is_old(VALID_FOR, now) {
            return Err(TokenError::NoKeys);
        }
        let key = self.set.find(token.key.as_deref(), token.algorithm).ok_or(TokenError::Key)?;
        Ok(FoundKey { key: Arc::clone(key), mark: key.epoch.mark() })
    }
}

/// A read in progress. Dropping it marks the read as ended, also after a panic or the end of its
/// runtime.
struct Reading(Arc<Shared>);

impl Reading {
    async fn run(self) {
        let Self(shared) = &self;
        match shared.source.read().await {
            Ok(set) => {
                let mut state = shared.state();
                state.set = set.replacing(&state.set);
                state.read_at = Some(shared.clock.now());
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
        self.0.state().is_being_read = false;
        self.0.ended.send_replace(());
    }
}

/// Task that reads keys while grants based on them are in use.
struct Keeper {
    shared: Weak<Shared>,
    clock: Arc<dyn Clock>,
    /// Closes when the store is dropped.
    ended: watch::Receiver<()>,
    /// Dropped with the keeper, however its task ends.
    _alive: Arc<()>,
}

impl Keeper {
    fn of(shared: &Arc<Shared>, alive: Arc<()>) -> Self {
        let (clock, ended) = (Arc::clone(&shared.clock), shared.ended.subscribe());
        Self { shared: Arc::downgrade(shared), clock, ended, _alive: alive }
    }

    async fn run(mut self) {
        while let Some(next) = self.check().await {
            tokio::select! {
                () = self.clock.sleep_until(next) => {}
                // Another read has ended; an error means that the store is gone.
                changed = self.ended.changed() => if changed.is_err() { return },
            }
        }
    }

    /// Reads or invalidates keys if due. Returns the time of the next check, or `None` if no grant
    /// is in use.
    async fn check(&self) -> Option<Timestamp> {
        let shared = self.shared.upgrade()?;
        if let Some(next) = shared.next_check(self.clock.now())? {
            return Some(next);
        }
        Reading(Arc::clone(&shared)).run().await;
        let next = shared.state().next(self.clock.now());
        Some(next)
    }
}

//! Console tokens in force (CON-71). `access/sign_in.rs` exchanges credentials for them.

use std::collections::HashMap;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use sha2::{Digest as _, Sha256};

use crate::clock::Clock;
use crate::contract::authorizer::Principal;
use crate::contract::epoch::{Epoch, Mark};
use crate::contract::failures::Failures;
use crate::contract::rights::{Ceiling, Grant};
use crate::error::Rejection;
use crate::time::{TimeSpan, Timestamp};

/// Time after which an unused token ends.
const UNUSED_MAX: TimeSpan = TimeSpan::from_minutes(30);
/// Time for which an administrator works with all rights after an unlock (CON-73).
const UNLOCKED: TimeSpan = TimeSpan::from_minutes(15);
/// Maximum number of tokens of a broker.
pub(crate) const COUNT_MAX: usize = 1_024;
/// Maximum number of tokens of a policy; a further one ends the token that is unused longest.
const COUNT_OF_POLICY_MAX: usize = 64;

type TokenHash = [u8; 32];

/// Console tokens of a broker.
#[derive(Default)]
pub(crate) struct SignIns {
    by_hash: Mutex<HashMap<TokenHash, Arc<SignIn>>>,
    failures: Failures,
}

/// A console token that is in force.
pub(crate) struct SignIn {
    hash: TokenHash,
    pub(crate) credentials: Arc<str>,
    policy: Option<Arc<str>>,
    role: Ceiling,
    pub(crate) ends_at: Timestamp,
    /// Instant of the last use, in ticks.
    used_at: AtomicI64,
    /// End of the time for which the token is unlocked, in ticks.
    unlocked_until: AtomicI64,
    /// Raised by a sign-out.
    epoch: Epoch,
    mark: Mark,
}

/// The console token that a client presents.
#[derive(Clone, Default)]
pub(crate) enum PresentedToken {
    /// None.
    #[default]
    Absent,
    /// One that is unknown, or has ended.
    Unknown,
    Known(Arc<SignIn>),
}

impl SignIn {
    /// Creates the record of a token with this text.
    pub(crate) fn new(
        text: &str,
        credentials: Arc<str>,
        policy: Option<Arc<str>>,
        role: Ceiling,
        (now, ends_at): (Timestamp, Timestamp),
    ) -> Self {
        let epoch = Epoch::new();
        Self {
            hash: Sha256::digest(text).into(),
            credentials,
            policy,
            role,
            ends_at,
            used_at: AtomicI64::new(now.ticks()),
            unlocked_until: AtomicI64::new(now.ticks()),
            mark: epoch.mark(),
            epoch,
        }
    }

    pub(crate) fn policy(&self) -> Option<Arc<str>> {
        self.policy.clone()
    }

    pub(crate) const fn role(&self) -> Ceiling {
        self.role
    }

    /// Unlocks the token from now on, and returns until when.
    pub(crate) fn unlock(&self, now: Timestamp) -> Timestamp {
        let until = now.plus(UNLOCKED).min(self.ends_at);
        self.unlocked_until.store(until.ticks(), Ordering::Relaxed);
        until
    }

    /// End of the time for which the token is unlocked; `None` while it is locked.
    pub(crate) fn unlocked_until(&self, now: Timestamp) -> Option<Timestamp> {
        let until = Timestamp::from_ticks(self.unlocked_until.load(Ordering::Relaxed));
        Some(until).filter(|until| now < *until)
    }

    /// Locks the token again.
    pub(crate) fn lock_again(&self, now: Timestamp) {
        self.unlocked_until.store(now.ticks(), Ordering::Relaxed);
    }

    fn end(&self) -> Timestamp {
        let used_at = Timestamp::from_ticks(self.used_at.load(Ordering::Relaxed));
        self.ends_at.min(used_at.plus(UNUSED_MAX))
    }
}

impl SignIns {
    fn lock(&self) -> MutexGuard<'_, HashMap<TokenHash, Arc<SignIn>>> {
        self.by_hash.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the token with this text, and notes its use.
    pub(crate) fn used(&self, text: &str, now: Timestamp) -> Option<Arc<SignIn>> {
        let hash = TokenHash::from(Sha256::digest(text));
        let mut known = self.lock();
        let found = Arc::clone(known.get(&hash)?);
        if now >= found.end() {
            known.remove(&hash);
            return None;
        }
        found.used_at.fetch_max(now.ticks(), Ordering::Relaxed);
        Some(found)
    }

    /// Adds a token; false if there is no room.
    pub(crate) fn add(&self, added: SignIn, now: Timestamp) -> bool {
        let mut known = self.lock();
        known.retain(|_, other| now < other.end());
        let same = known.values().filter(|other| other.policy == added.policy);
        if same.clone().count() >= COUNT_OF_POLICY_MAX {
            let oldest = same.min_by_key(|other| other.used_at.load(Ordering::Relaxed));
            if let Some(oldest) = oldest.map(Arc::clone) {
                known.remove(&oldest.hash);
                oldest.epoch.raise();
            }
        }
        if known.len() >= COUNT_MAX {
            return false;
        }
        known.insert(added.hash, Arc::new(added));
        true
    }

    /// Ends a token, and everything that is open under it.
    pub(crate) fn end(&self, ended: &SignIn) {
        self.lock().remove(&ended.hash);
        ended.epoch.raise();
    }
}

impl PresentedToken {
    /// Refuses a token that is not in force. An unknown one may be a guess, so its answer is
    /// delayed (SEC-26).
    pub(crate) async fn require(
        &self,
        sign_ins: &SignIns,
        clock: &dyn Clock,
        principal: &Principal,
    ) -> Result<(), Rejection> {
        match self {
            Self::Absent => return Ok(()),
            Self::Known(used) if used.mark.is_current() && clock.now() < used.end() => {
                return Ok(());
            }
            Self::Known(_) => {}
            Self::Unknown => sign_ins.failures.delay_answer(principal, clock).await,
        }
        let detail = "the console token is unknown or has ended; sign in again";
        Err(Rejection::unauthorized(detail).with_cause("expired").with_peer(principal.peer))
    }

    /// Limits a grant to the role and the time of the token. `needs_unlock` makes an administrator
    /// a viewer while the token is locked (CON-73).
    pub(crate) fn limit(&self, grant: Grant, needs_unlock: bool, now: Timestamp) -> Grant {
        let Self::Known(used) = self else { return grant };
        let mut end = used.end();
        let mut role = used.role;
        if needs_unlock && role == Ceiling::Admin {
            match used.unlocked_until(now) {
                Some(until) => end = end.min(until),
                None => role = Ceiling::Viewer,
            }
        }
        let mark = used.mark.clone();
        Grant {
            ceiling: grant.ceiling.min(role),
            until: Some(grant.until.map_or(end, |until| until.min(end))),
            epoch: Some(match grant.epoch.clone() {
                Some(epoch) => epoch.with(mark),
                None => mark,
            }),
            ..grant
        }
    }
}

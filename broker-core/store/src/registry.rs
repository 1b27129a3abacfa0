//! The registry of a store that several brokers may use: which broker owns its shards.

use std::sync::Arc;
use std::time::{Duration, SystemTime};

use async_trait::async_trait;

use crate::StoreError;

/// Reports which broker owns the shards of a store, and for how long (CLU-16). One broker owns all
/// shards; the others wait for the end of its lease.
///
/// [`Store::close`](crate::Store::close) gives the shards up, so that another broker takes them at
/// once. All methods may wait for the medium, within the time limit of the store. Liveness depends
/// on leases, and safety on epochs alone: a broker that wrongly believes that it owns a shard
/// stores nothing ([`StoreError::Fenced`]).
#[async_trait]
pub trait Registry: Send + Sync {
    /// Time after a renewal until the lease of this broker is over for others. `None` if the
    /// registry does not measure it.
    fn lease(&self) -> Option<Duration>;

    /// Renews the lease of this broker, enters it if it is not known, and returns the state of the
    /// registry after this renewal: no takeover from this broker follows while its lease is in
    /// force.
    ///
    /// `horizon` is the latest instant that the owner gives anything before the lease is over
    /// (CLU-15).
    ///
    /// The future may be dropped; then the lease may have been renewed. A renewal that arrives
    /// after a later one changes nothing.
    ///
    /// # Errors
    /// If the registry cannot be reached, or if another broker that lives has the same name. After
    /// an error the lease may have been renewed. [`StoreError::Fenced`] if another process has
    /// entered under the name of this broker since: this one never gets a lease again.
    async fn renew(&self, horizon: Option<SystemTime>) -> Result<View, StoreError>;

    /// Takes all shards over: raises their epochs, so that nothing of the previous owner is stored
    /// from now on. Does nothing if the owner is no longer `from`, if it has renewed its lease
    /// since, or if its lease is in force by the clock of the registry. Ends appends of the
    /// previous owner that have begun, or waits for them. The next [`View`] has the result, also
    /// after an error.
    ///
    /// # Errors
    /// If the registry cannot be reached; then the shards may have been taken.
    async fn take(&self, from: Option<SeenOwner>) -> Result<(), StoreError>;
}

/// Names a broker from its start to its end. Never used again.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct Incarnation(pub u64);

/// An owner as another broker has seen it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SeenOwner {
    /// Its incarnation.
    pub incarnation: Incarnation,
    /// Number of its last renewal. While the number is the same, it has renewed nothing.
    pub renewal: u64,
}

/// State of a registry.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct View {
    /// Time of the registry.
    pub now: SystemTime,
    /// The latest of the horizons that brokers have given with their last renewals.
    pub horizon: Option<SystemTime>,
    /// Owner of the shards.
    pub owner: Owner,
}

/// Owner of all shards, as the broker that asks sees it.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Owner {
    /// None: no broker has ever owned them, or the last owner has given them up.
    Nobody,
    /// The broker that asks.
    This,
    /// Another broker.
    Other {
        /// Its incarnation, and its last renewal.
        seen: SeenOwner,
        /// Its name, for logs.
        name: Arc<str>,
        /// Whether its lease has ended by the clock of the registry, which may have been set.
        has_ended: bool,
        /// Whether it never gets a lease again: another process has entered under its name.
        is_barred: bool,
    },
}

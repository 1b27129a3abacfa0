//! Several brokers over one image: a registry whose driver decides which brokers reach it, and when
//! a lease ends.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, SystemTime};

use async_trait::async_trait;
use peeklock_store::registry::{Incarnation, Owner, SeenOwner, View};
use peeklock_store::{MemoryStore, Registry, Shard, Store as _, StoreError};
use tokio::sync::Notify;

use super::block_on;

/// The registry of an image.
#[derive(Default)]
pub(crate) struct Members {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    /// State of each broker that has joined, by incarnation.
    members: Vec<MemberState>,
    owner: Option<usize>,
}

#[derive(Default)]
struct MemberState {
    name: Arc<str>,
    is_cut_off: bool,
    has_ended: bool,
    is_replaced: bool,
    is_barred: bool,
    lease: Option<Duration>,
    renewals: u64,
    horizon: Option<SystemTime>,
}

impl State {
    fn seen(&self, owner: usize) -> SeenOwner {
        let renewal = self.members.get(owner).map_or(0, |member| member.renewals);
        SeenOwner { incarnation: Incarnation(owner as u64), renewal }
    }
}

impl Members {
    pub(crate) fn join(self: &Arc<Self>, name: &str, image: &Arc<MemoryStore>) -> Arc<Member> {
        let mut state = self.lock();
        state.members.push(MemberState { name: name.into(), ..MemberState::default() });
        let number = state.members.len() - 1;
        drop(state);
        Arc::new(Member { members: Arc::clone(self), number, image: Arc::clone(image) })
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The registry as one broker sees it.
pub struct Member {
    members: Arc<Members>,
    number: usize,
    image: Arc<MemoryStore>,
}

impl Member {
    /// From now on, no call of this broker reaches the registry, or all do again. Calls that wait
    /// go on then.
    pub fn cut_off(&self, is_cut_off: bool) {
        self.change(|member| member.is_cut_off = is_cut_off);
    }

    /// Ends the lease of this broker for the others, as if time had passed.
    pub fn end_lease(&self) {
        self.change(|member| member.has_ended = true);
    }

    /// From now on, the registry names this length for the leases of this broker.
    pub fn name_lease(&self, lease: Duration) {
        self.change(|member| member.lease = Some(lease));
    }

    /// From now on, this broker is barred: its lease is over, and another process has its name.
    pub fn bar(&self) {
        self.change(|member| (member.is_barred, member.has_ended) = (true, true));
    }

    /// From now on, another process has the name of this broker.
    pub fn replace(&self) {
        self.change(|member| member.is_replaced = true);
    }

    /// Gives the shards up, as an owner does that is closed.
    pub(crate) fn leave(&self) {
        let mut state = self.members.lock();
        state.owner = state.owner.filter(|owner| *owner != self.number);
    }

    /// Number of renewals of this broker.
    #[must_use]
    pub fn renewals(&self) -> u64 {
        self.members.lock().members.get(self.number).map_or(0, |member| member.renewals)
    }

    /// Whether this broker owns the shards.
    #[must_use]
    pub fn is_owner(&self) -> bool {
        self.members.lock().owner == Some(self.number)
    }

    fn change(&self, change: impl FnOnce(&mut MemberState)) {
        if let Some(member) = self.members.lock().members.get_mut(self.number) {
            change(member);
        }
        self.members.changed.notify_waiters();
    }

    async fn reach(&self) {
        loop {
            let changed = self.members.changed.notified();
            tokio::pin!(changed);
            changed.as_mut().enable();
            let is_cut_off =
                self.members.lock().members.get(self.number).is_some_and(|one| one.is_cut_off);
            if !is_cut_off {
                return;
            }
            changed.await;
        }
    }
}

#[async_trait]
impl Registry for Member {
    fn lease(&self) -> Option<Duration> {
        self.members.lock().members.get(self.number)?.lease
    }

    async fn renew(&self, horizon: Option<SystemTime>) -> Result<View, StoreError> {
        self.reach().await;
        let mut state = self.members.lock();
        let owner = state.owner;
        if let Some(member) = state.members.get_mut(self.number) {
            if member.is_replaced {
                return Err(StoreError::Fenced { held: 0, current: 0 });
            }
            member.renewals += 1;
            member.has_ended = false;
            member.horizon = horizon.or(member.horizon);
        }
        let horizon = state.members.iter().filter_map(|member| member.horizon).max();
        let owner = match owner {
            None => Owner::Nobody,
            Some(owner) if owner == self.number => Owner::This,
            Some(owner) => {
                let member = state.members.get(owner);
                Owner::Other {
                    seen: state.seen(owner),
                    name: member.map(|one| Arc::clone(&one.name)).unwrap_or_default(),
                    has_ended: member.is_none_or(|one| one.has_ended),
                    is_barred: member.is_none_or(|one| one.is_barred),
                }
            }
        };
        Ok(View { now: SystemTime::now(), horizon, owner })
    }

    async fn take(&self, from: Option<SeenOwner>) -> Result<(), StoreError> {
        self.reach().await;
        let mut state = self.members.lock();
        let has_ended = |owner: usize| state.members.get(owner).is_none_or(|one| one.has_ended);
        let is_free =
            state.owner.is_none_or(has_ended) && state.owner.map(|owner| state.seen(owner)) == from;
        if is_free {
            // Both at once, as in one statement.
            for shard in 0..self.image.shard_count() {
                block_on(self.image.acquire(Shard(shard)))?;
            }
            state.owner = Some(self.number);
        }
        Ok(())
    }
}

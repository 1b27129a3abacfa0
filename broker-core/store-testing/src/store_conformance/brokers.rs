//! Several brokers over one store: leases, takeovers, and the broker that lost its shards.
//! `store_conformance.rs` runs the scenarios of this file.

use std::time::{SystemTime, UNIX_EPOCH};

use peeklock_store::Registry;
use peeklock_store::registry::{Owner as Owned, View};

use super::*;

/// Brokers that have joined one empty store.
pub struct Brokers<'a> {
    /// The store of each broker, with its registry.
    pub stores: Vec<Arc<dyn Store>>,
    /// Ends the lease of the broker at this place for the others, as time does.
    pub end_lease: Box<dyn Fn(usize) + 'a>,
}

type Scenario = (&'static str, fn(&Brokers<'_>));

pub(super) const SCENARIOS: &[Scenario] = &[
    ("a broker without the shards is fenced, until it takes them", standby_is_fenced),
    ("shards are taken when the lease of their owner is over, and not before", leases_count),
    ("one of two takeovers at once succeeds", one_takeover_succeeds),
    ("the past owner stores nothing after a takeover", past_owner_is_fenced),
    ("the latest horizon of all brokers is known to each", horizons_are_known),
];

impl Brokers<'_> {
    fn store(&self, at: usize) -> &Arc<dyn Store> {
        &self.stores[at]
    }

    fn registry(&self, at: usize) -> Arc<dyn Registry> {
        let registry = self.store(at).registry();
        registry.unwrap_or_else(|| unreachable!("a store of several brokers has a registry"))
    }

    fn renew(&self, at: usize, horizon: Option<SystemTime>) -> View {
        block_on(self.registry(at).renew(horizon))
            .unwrap_or_else(|error| unreachable!("a lease can be renewed: {error}"))
    }

    fn owns(&self, at: usize) -> bool {
        self.renew(at, None).owner == Owned::This
    }

    /// Takes the shards from the owner that the broker sees. Returns whether it owns them then.
    fn take(&self, at: usize) -> bool {
        let from = match self.renew(at, None).owner {
            Owned::Nobody => None,
            Owned::This => return true,
            Owned::Other { seen, .. } => Some(seen),
        };
        let taken = block_on(self.registry(at).take(from));
        assert!(taken.is_ok(), "a takeover is answered: {taken:?}");
        self.owns(at)
    }

    fn owner(&self, at: usize) -> Owner {
        assert!(self.take(at), "the shards are free");
        Owner::of(Arc::clone(self.store(at)), Shard(0))
    }

    fn assert_fenced(&self, at: usize) {
        let store = self.store(at);
        let acquired = block_on(store.acquire(Shard(0)));
        assert!(matches!(acquired, Err(StoreError::Fenced { .. })), "{acquired:?}");
        let mut batch = Batch::default();
        batch.put(&key(0, b"late"), |value| value.push(1));
        let amended = block_on(store.amend(&[], batch));
        assert!(matches!(amended, Err(StoreError::Fenced { .. })), "{amended:?}");
    }
}

fn standby_is_fenced(brokers: &Brokers<'_>) {
    let mut owner = brokers.owner(0);
    owner.put(&key(7, b"a"), b"stored");
    brokers.assert_fenced(1);
    owner.put(&key(7, b"b"), b"stored");
    // A closed store gives its shards up at once.
    let closed = owner.store.close();
    assert!(closed.is_ok(), "{closed:?}");
    assert_eq!(brokers.renew(1, None).owner, Owned::Nobody);
    let mut next = brokers.owner(1);
    next.put(&key(7, b"c"), b"stored");
    assert_eq!(keys_of(&*next.store, 7), [b"a".to_vec(), b"b".to_vec(), b"c".to_vec()]);
    assert!(keys_of(&*next.store, 0).is_empty(), "nothing of a fenced broker is stored");
}

fn leases_count(brokers: &Brokers<'_>) {
    assert!(brokers.take(0) && !brokers.take(1), "the lease is in force");
    assert!(brokers.owns(0));
    (brokers.end_lease)(0);
    let Owned::Other { has_ended: true, .. } = brokers.renew(1, None).owner else {
        unreachable!("the lease is over");
    };
    // A renewal in time keeps the shards, also of a lease that was over.
    assert!(brokers.owns(0) && !brokers.take(1));
    (brokers.end_lease)(0);
    assert!(brokers.take(1) && !brokers.owns(0));
}

fn one_takeover_succeeds(brokers: &Brokers<'_>) {
    for at in [0, 1] {
        assert_eq!(brokers.renew(at, None).owner, Owned::Nobody);
    }
    for at in [0, 1] {
        assert!(block_on(brokers.registry(at).take(None)).is_ok());
    }
    assert!(brokers.owns(0) && !brokers.owns(1));
}

fn past_owner_is_fenced(brokers: &Brokers<'_>) {
    let mut owner = brokers.owner(0);
    owner.put(&key(7, b"a"), b"stored");
    (brokers.end_lease)(0);
    let next = brokers.owner(1);
    let mut late = Batch::default();
    late.put(&key(7, b"b"), |value| value.push(1));
    let late = owner.submit(late);
    assert!(matches!(late, Err(StoreError::Fenced { .. })), "{late:?}");
    brokers.assert_fenced(0);
    assert_eq!(keys_of(&*next.store, 7), [b"a".to_vec()]);
    assert!(keys_of(&*next.store, 0).is_empty(), "nothing of a fenced broker is stored");
}

fn horizons_are_known(brokers: &Brokers<'_>) {
    let at = |seconds: u64| Some(UNIX_EPOCH + Duration::from_secs(1_800_000_000 + seconds));
    assert_eq!(brokers.renew(0, None).horizon, None);
    assert_eq!(brokers.renew(0, at(9)).horizon, at(9));
    assert_eq!(brokers.renew(1, None).horizon, at(9));
    assert_eq!(brokers.renew(1, at(5)).horizon, at(9), "the other broker has a later one");
    assert_eq!(brokers.renew(0, at(3)).horizon, at(5), "the last one of each broker counts");
    assert_eq!(brokers.renew(0, None).horizon, at(5));
}

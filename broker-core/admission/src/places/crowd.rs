//! Connections by the network of their clients. When all places are taken and none is idle, the network with most
//! connections gives one up for a newcomer of a network with fewer. So no client keeps all places with connections that look
//! busy, and a client with few connections loses none to a client with more. A connection with a key is not evicted, and
//! gets the place of another without a key, of any network.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, Ipv6Addr, SocketAddr};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use super::occupant::Occupant;
use crate::pace::GRACE;

/// The connections of a listener.
#[derive(Clone, Debug)]
pub(super) struct Crowd(Arc<Mutex<Members>>, Instant);

#[derive(Debug, Default)]
struct Members {
    next: u64,
    /// The connections of each network.
    by_network: HashMap<IpAddr, BTreeMap<u64, Occupant>>,
    /// Number of connections without a key, with the evicted ones that have not ended yet.
    without_key: usize,
    /// The last look at all connections, if it found none to evict, until one comes or goes, shows a key or loses one.
    fruitless: Option<Fruitless>,
}

/// A look that found no connection to evict. Newcomers that ask often do not each need a look at all connections, which may
/// be thousands.
#[derive(Clone, Copy, Debug)]
struct Fruitless {
    /// Number of connections of the largest network with one that may go; 0 if there is none.
    most: usize,
    /// Until then none there may go.
    until: u64,
}

impl Fruitless {
    /// Whether it holds for a newcomer whose network has `own_count` connections.
    const fn holds(self, own_count: usize, now: u64) -> bool {
        own_count + 1 >= self.most || now < self.until
    }
}

/// One of the connections, until this is dropped.
#[derive(Debug)]
pub struct Member {
    crowd: Crowd,
    network: IpAddr,
    key: u64,
    occupant: Occupant,
}

impl Default for Crowd {
    fn default() -> Self {
        Self(Arc::default(), Instant::now())
    }
}

impl Crowd {
    /// Counts a connection; one without an address is not counted.
    pub(super) fn join(&self, peer: Option<SocketAddr>) -> Option<Member> {
        peer.map(|peer| self.join_at(peer.ip(), Instant::now()))
    }

    fn join_at(&self, address: IpAddr, now: Instant) -> Member {
        let occupant = Occupant::asking_at(self.ms(now));
        let network = network(address);
        let mut members = self.lock();
        let key = members.next;
        members.next += 1;
        members.without_key += 1;
        members.fruitless = None;
        members.by_network.entry(network).or_default().insert(key, occupant.clone());
        drop(members);
        Member { crowd: self.clone(), network, key, occupant }
    }

    /// Evicts a connection of the network with most connections, if the newcomer's has fewer: the connection without a
    /// request for longest. False if there is none. A newcomer without an address has a network of its own.
    pub(super) fn evict_for(&self, newcomer: Option<SocketAddr>) -> bool {
        self.evict_for_at(newcomer.map(|peer| peer.ip()), Instant::now())
    }

    fn evict_for_at(&self, newcomer: Option<IpAddr>, now: Instant) -> bool {
        let mut members = self.lock();
        let own = newcomer.and_then(|address| members.by_network.get(&network(address)));
        let (there, now) = (own.map_or(0, BTreeMap::len), self.ms(now));
        if members.fruitless.is_some_and(|last| last.holds(there, now)) {
            return false;
        }
        let own_count = own.map_or(0, staying);
        match members.look(own_count, now) {
            Ok(occupant) => {
                members.fruitless = None;
                occupant.evict()
            }
            Err(fruitless) => {
                members.fruitless = Some(fruitless);
                false
            }
        }
    }

    /// Evicts a connection without a key, of any network: the connection without a request for longest, even if that is a moment,
    /// since requests only must not keep a place from a key. False if there is none.
    pub(super) fn evict_for_key(&self) -> bool {
        let mut members = self.lock();
        if members.without_key == 0 {
            return false;
        }
        let all = members.by_network.iter().flat_map(|(network, those)| {
            those.iter().map(move |(key, occupant)| (*network, *key, occupant))
        });
        let without_key = all.filter(|(_, _, occupant)| occupant.may_go());
        let silent_longest = without_key.min_by_key(|(_, _, occupant)| occupant.last_request_ms());
        let Some((network, key)) = silent_longest.map(|(network, key, _)| (network, key)) else {
            return false;
        };
        let evicted = members.by_network.get_mut(&network).and_then(|those| those.remove(&key));
        evicted.is_some_and(|occupant| occupant.evict())
    }

    fn ms(&self, now: Instant) -> u64 {
        let since: Duration = now.saturating_duration_since(self.1);
        u64::try_from(since.as_millis()).unwrap_or(u64::MAX)
    }

    fn lock(&self) -> MutexGuard<'_, Members> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Members {
    /// Removes the connection to evict for a newcomer whose network has `own_count` connections.
    fn look(&mut self, own_count: usize, now: u64) -> Result<Occupant, Fruitless> {
        // A network in which all have a key gives none up.
        let networks = self.by_network.values_mut();
        let some_may_go = networks.filter(|one| one.values().any(Occupant::may_go));
        let counted = some_may_go.map(|one| (staying(one), one));
        let Some((most, those)) = counted.max_by_key(|(count, _)| *count) else {
            return Err(Fruitless { most: 0, until: u64::MAX });
        };
        // With one more the newcomer's network would have as many.
        if most <= own_count + 1 {
            return Err(Fruitless { most, until: 0 });
        }
        let may_go = those.iter().filter(|(_, occupant)| occupant.may_go());
        let silent_longest = may_go.map(|(key, occupant)| (*key, occupant.last_request_ms()));
        let (key, at) = silent_longest.min_by_key(|(_, at)| *at).unwrap_or((0, now));
        let grace = u64::try_from(GRACE.as_millis()).unwrap_or(u64::MAX);
        let until = at.saturating_add(grace);
        let may_go = (until <= now).then(|| those.remove(&key)).flatten();
        may_go.ok_or(Fruitless { most, until })
    }
}

/// Number of connections of a network that keep their places.
fn staying(network: &BTreeMap<u64, Occupant>) -> usize {
    network.values().filter(|occupant| !occupant.is_claimed()).count()
}

/// The network of an address that counts as one client: an IPv4 address, or the /64 network of an IPv6 address, which one
/// subscriber has.
#[must_use]
pub fn network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        IpAddr::V4(address) => IpAddr::V4(address),
        IpAddr::V6(address) => {
            let [a, b, c, d, ..] = address.segments();
            IpAddr::V6(Ipv6Addr::new(a, b, c, d, 0, 0, 0, 0))
        }
    }
}

impl Member {
    /// The connection as others see it.
    #[must_use]
    pub fn occupant(&self) -> Occupant {
        self.occupant.clone()
    }

    /// Whether another connection has its place, so that it has to end.
    #[must_use]
    pub fn is_evicted(&self) -> bool {
        self.occupant.is_claimed()
    }

    /// Records a request that is more than a sign of life.
    pub fn asks(&self) {
        self.occupant.set_asked_at(self.crowd.ms(Instant::now()));
    }

    /// Records whether it has presented valid credentials, such as a key: then it is not evicted.
    pub fn shows_key(&self, is_good: bool) {
        if self.occupant.set_shows_key(is_good) == is_good {
            return;
        }
        let mut members = self.crowd.lock();
        members.fruitless = None;
        match is_good {
            true => members.without_key -= 1,
            false => members.without_key += 1,
        }
    }

    /// Ready when it is evicted.
    pub fn poll_evicted(&self, context: &Context<'_>) -> Poll<()> {
        self.occupant.poll_evicted(context)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut members = self.crowd.lock();
        members.fruitless = None;
        members.without_key -= usize::from(!self.occupant.shows_key());
        if let Some(own) = members.by_network.get_mut(&self.network) {
            own.remove(&self.key);
            if own.is_empty() {
                members.by_network.remove(&self.network);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::task::Waker;

    use super::*;

    /// QUO-01: the address with most connections gives one up, which has been without a request for longest, until the newcomer's
    /// would have as many; no address gives one up for itself.
    #[test]
    fn the_address_with_most_connections_gives_one_up() {
        let context = Context::from_waker(Waker::noop());
        let crowd = Crowd::default();
        let at = |ms| crowd.1 + Duration::from_millis(ms);
        let [greedy, modest]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|it| it.parse().unwrap());
        let many: Vec<Member> = (0..4).map(|ms| crowd.join_at(greedy, at(ms))).collect();
        assert!(!crowd.evict_for_at(Some(modest), at(200)), "all have come a moment ago");
        many[0].occupant.set_asked_at(400);
        assert!(!crowd.evict_for_at(Some(greedy), at(500)), "it has all of them itself");
        assert!(crowd.evict_for_at(Some(modest), at(500)));
        assert!(many[1].poll_evicted(&context).is_ready());
        let mut few = vec![crowd.join_at(modest, at(501))];
        // Three to one: with one more they would be as many, and then none is evicted.
        assert!(crowd.evict_for_at(Some(modest), at(502)));
        assert!(many[2].poll_evicted(&context).is_ready());
        few.push(crowd.join_at(modest, at(503)));
        assert!(!crowd.evict_for_at(Some(modest), at(9_000)));
        assert!(!crowd.evict_for_at(Some(greedy), at(9_000)));
        assert!(many[0].poll_evicted(&context).is_pending());
        // An ended connection is not counted.
        drop((many, few));
        assert!(crowd.lock().by_network.is_empty());
        assert!(!crowd.evict_for_at(None, at(9_000)));
    }

    /// QUO-01, SEC-16: a connection with a key is not evicted, and gets the place of a connection without, of any
    /// address: that with the oldest request.
    #[test]
    fn a_connection_with_a_key_keeps_its_place() {
        let context = Context::from_waker(Waker::noop());
        let crowd = Crowd::default();
        let at = |ms| crowd.1 + Duration::from_millis(ms);
        let [one, other]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|it| it.parse().unwrap());
        let by_key: Vec<Member> = (0..4).map(|ms| crowd.join_at(one, at(ms))).collect();
        for member in &by_key {
            member.shows_key(true);
        }
        assert!(!crowd.evict_for_at(Some(other), at(9_000)) && !crowd.evict_for_key());
        let without: Vec<Member> = (7..10).map(|ms| crowd.join_at(other, at(ms))).collect();
        without[0].occupant.set_asked_at(8_999);
        // The address with most connections has none that can go.
        assert!(crowd.evict_for_at(None, at(9_000)));
        assert!(without[1].poll_evicted(&context).is_ready());
        assert!(crowd.evict_for_key());
        assert!(without[2].poll_evicted(&context).is_ready());
        assert!(without[0].poll_evicted(&context).is_pending());
        assert!(crowd.evict_for_key(), "it is the last, and has asked a moment ago");
        assert!(without[0].poll_evicted(&context).is_ready());
        assert!(!crowd.evict_for_key());
        by_key[2].shows_key(false);
        assert!(crowd.evict_for_key());
        assert!(by_key[2].poll_evicted(&context).is_ready());
        drop((by_key, without));
        assert!(crowd.lock().by_network.is_empty());
    }

    /// QUO-01: when no connection can go, none is looked at for the next newcomers, until one may go: its time is over, or
    /// one has come or gone.
    #[test]
    fn a_fruitless_look_is_not_repeated() {
        let crowd = Crowd::default();
        let at = |ms| crowd.1 + Duration::from_millis(ms);
        let [one, other]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|it| it.parse().unwrap());
        let many: Vec<Member> = (0..5).map(|_| crowd.join_at(one, at(100))).collect();
        assert!(!crowd.evict_for_at(Some(other), at(200)));
        // A look would find them: they have come at 100.
        let silent = |member: &Member| member.occupant.set_asked_at(0);
        many.iter().for_each(silent);
        let over = 100 + u64::try_from(GRACE.as_millis()).unwrap();
        assert!(!crowd.evict_for_at(Some(other), at(over - 1)), "before the grace of all is over");
        assert!(crowd.evict_for_at(Some(other), at(over)));
        let there = crowd.join_at(other, at(350));
        assert!(!crowd.evict_for_at(Some(one), at(350)), "it has most of them itself");
        assert!(crowd.evict_for_at(Some(other), at(350)), "the newcomer of a network with fewer");
        // A connection that has come or gone may have changed it.
        many.iter().for_each(|member| member.occupant.set_asked_at(351));
        drop(there);
        assert!(!crowd.evict_for_at(None, at(400)));
        many.iter().for_each(silent);
        assert!(!crowd.evict_for_at(None, at(400)));
        drop(crowd.join_at(other, at(400)));
        assert!(crowd.evict_for_at(None, at(400)));
    }

    /// QUO-01, SEC-16: where all connections have a key, none is looked at for one more.
    #[test]
    fn connections_with_keys_are_not_looked_at() {
        let crowd = Crowd::default();
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        let members = [(); 3].map(|()| crowd.join_at(address, crowd.1));
        for member in &members {
            member.shows_key(true);
            member.shows_key(true);
        }
        members[0].occupant.set_shows_key(false);
        assert!(!crowd.evict_for_key(), "a look would find it");
        members[0].occupant.set_shows_key(true);
        members[1].shows_key(false);
        assert!(crowd.evict_for_key());
        assert!(members[1].is_evicted() && !members[0].is_evicted());
        drop(members);
        assert_eq!(crowd.lock().without_key, 0);
    }

    /// QUO-01: addresses of a subscriber count as one.
    #[test]
    fn addresses_of_one_network_count_as_one() {
        let crowd = Crowd::default();
        let at = |ms| crowd.1 + Duration::from_millis(ms);
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let _many: Vec<Member> = (1..4)
            .map(|number| crowd.join_at(address(&format!("2001:db8::{number}")), at(0)))
            .collect();
        let _other = crowd.join_at(address("2001:db8:0:1::1"), at(0));
        assert!(!crowd.evict_for_at(Some(address("2001:db8::99")), at(900)));
        assert!(crowd.evict_for_at(Some(address("10.0.0.1")), at(900)));
    }
}

//! Places by where clients come from: when all are taken and nobody is idle, the address that has most of them gives one
//! up to who comes from where there are fewer. So nobody takes all places for good by connections that look busy, and
//! nobody who has few loses one to somebody who has more. Who is said to have shown a key gives none up to anybody, and
//! gets that of one who is not, from wherever both come.

use std::collections::{BTreeMap, HashMap};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use peeklock_core::contract::failures::network;
use peeklock_core::permits::GRACE;
use tokio::sync::oneshot;

/// The connections of a listener.
#[derive(Clone, Debug)]
pub(crate) struct Crowd(Arc<Mutex<Members>>, Instant);

#[derive(Debug, Default)]
struct Members {
    next: u64,
    /// Of each address, or of IPv6 each network that one subscriber has.
    by_network: HashMap<IpAddr, BTreeMap<u64, Told>>,
    /// How many have shown no key, those among them that were told to go and have not gone yet.
    without_key: usize,
    /// What the last look at all of them has come to, if nobody had to go, as long as nobody has come or gone, shown a
    /// key or lost one since.
    fruitless: Option<Fruitless>,
}

/// A look after which nobody had to go: of those who ask next, as often as they do, not each need have all of them
/// looked at again, who may be thousands.
#[derive(Clone, Copy, Debug)]
struct Fruitless {
    /// How many there are where most come from, of whom some may go; 0 if there are none such.
    most: usize,
    /// Until when nobody may go there.
    until: u64,
}

impl Fruitless {
    /// Whether nobody has to go either for one that comes now, from where there are so many.
    const fn holds(self, own_count: usize, now: u64) -> bool {
        own_count + 1 >= self.most || now < self.until
    }
}

#[derive(Debug)]
struct Told {
    seen: Arc<Seen>,
    tell: oneshot::Sender<()>,
}

/// What a connection lets be seen of it.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// When it has asked for something the last time, in milliseconds of the crowd.
    asked_at: AtomicU64,
    /// Whether it has shown a key that is good.
    shows_key: AtomicBool,
    /// Whether it was told to go, by whomever: it gives its place up once.
    is_told: AtomicBool,
}

/// By this the place of a connection is given to another by whoever has it.
#[derive(Clone, Debug)]
pub struct Leaving(Arc<Seen>);

/// One of the connections, until this is dropped.
#[derive(Debug)]
pub struct Member {
    crowd: Crowd,
    network: IpAddr,
    key: u64,
    seen: Arc<Seen>,
    told: oneshot::Receiver<()>,
}

impl Default for Crowd {
    fn default() -> Self {
        Self(Arc::default(), Instant::now())
    }
}

impl Crowd {
    /// One is there from now on; what comes from nowhere is not counted.
    pub(crate) fn join(&self, peer: Option<SocketAddr>) -> Option<Member> {
        peer.map(|peer| self.join_at(peer.ip(), Instant::now()))
    }

    fn join_at(&self, address: IpAddr, now: Instant) -> Member {
        let (tell, told) = oneshot::channel();
        let asked_at = AtomicU64::new(self.ms(now));
        let seen = Arc::new(Seen { asked_at, ..Seen::default() });
        let network = network(address);
        let mut members = self.lock();
        let key = members.next;
        members.next += 1;
        members.without_key += 1;
        members.fruitless = None;
        let told_of = Told { seen: Arc::clone(&seen), tell };
        members.by_network.entry(network).or_default().insert(key, told_of);
        drop(members);
        Member { crowd: self.clone(), network, key, seen, told }
    }

    /// Has one of those make room that come from where most do, if there are fewer where this one comes from: the one
    /// that has asked for nothing for longest. False if nobody has to. Who comes from nowhere comes from where nobody else
    /// does.
    pub(crate) fn make_room(&self, newcomer: Option<SocketAddr>) -> bool {
        self.make_room_at(newcomer.map(|peer| peer.ip()), Instant::now())
    }

    fn make_room_at(&self, newcomer: Option<IpAddr>, now: Instant) -> bool {
        let mut members = self.lock();
        let own = newcomer.and_then(|address| members.by_network.get(&network(address)));
        let (there, now) = (own.map_or(0, BTreeMap::len), self.ms(now));
        if members.fruitless.is_some_and(|last| last.holds(there, now)) {
            return false;
        }
        let own_count = own.map_or(0, staying);
        match members.look(own_count, now) {
            Ok(told) => {
                members.fruitless = None;
                told.tell()
            }
            Err(fruitless) => {
                members.fruitless = Some(fruitless);
                false
            }
        }
    }

    /// Has one of those make room that have shown no key, from wherever it comes: the one that has asked for nothing for
    /// longest, even if that is a moment, since by asking alone nobody keeps a place from a key. False if there is none.
    pub(crate) fn make_room_for_key(&self) -> bool {
        let mut members = self.lock();
        if members.without_key == 0 {
            return false;
        }
        let all = members.by_network.iter().flat_map(|(network, those)| {
            those.iter().map(move |(key, told)| (*network, *key, &told.seen))
        });
        let without_key = all.filter(|(_, _, seen)| seen.may_go());
        let silent_longest = without_key.min_by_key(|(_, _, seen)| seen.asked_at());
        let Some((network, key)) = silent_longest.map(|(network, key, _)| (network, key)) else {
            return false;
        };
        let told = members.by_network.get_mut(&network).and_then(|those| those.remove(&key));
        told.is_some_and(Told::tell)
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
    /// Takes out the one that has to go for one that comes now, from where so many stay.
    fn look(&mut self, own_count: usize, now: u64) -> Result<Told, Fruitless> {
        // Where all have shown a key nobody has to.
        let networks = self.by_network.values_mut();
        let some_may_go = networks.filter(|one| one.values().any(|told| told.seen.may_go()));
        let counted = some_may_go.map(|one| (staying(one), one));
        let Some((most, those)) = counted.max_by_key(|(count, _)| *count) else {
            return Err(Fruitless { most: 0, until: u64::MAX });
        };
        // With one more the newcomer's would be as many.
        if most <= own_count + 1 {
            return Err(Fruitless { most, until: 0 });
        }
        let may_go = those.iter().filter(|(_, told)| told.seen.may_go());
        let silent_longest = may_go.map(|(key, told)| (*key, told.seen.asked_at()));
        let (key, at) = silent_longest.min_by_key(|(_, at)| *at).unwrap_or((0, now));
        let grace = u64::try_from(GRACE.as_millis()).unwrap_or(u64::MAX);
        let until = at.saturating_add(grace);
        let may_go = (until <= now).then(|| those.remove(&key)).flatten();
        may_go.ok_or(Fruitless { most, until })
    }
}

/// How many there are of those that were not told to go.
fn staying(network: &BTreeMap<u64, Told>) -> usize {
    network.values().filter(|told| !told.seen.is_told()).count()
}

impl Told {
    fn tell(self) -> bool {
        self.seen.tell() && self.tell.send(()).is_ok()
    }
}

impl Seen {
    /// It has to go, so that somebody gets its place. False if somebody has it already.
    pub(crate) fn tell(&self) -> bool {
        !self.is_told.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn is_told(&self) -> bool {
        self.is_told.load(Ordering::Relaxed)
    }

    /// Whether it can be told to go, having shown no key.
    fn may_go(&self) -> bool {
        !self.shows_key() && !self.is_told()
    }

    fn asked_at(&self) -> u64 {
        self.asked_at.load(Ordering::Relaxed)
    }

    fn shows_key(&self) -> bool {
        self.shows_key.load(Ordering::Relaxed)
    }
}

impl Leaving {
    /// Its place is given to another. False if another has it already, who was told so otherwise.
    #[must_use]
    pub fn tell(&self) -> bool {
        self.0.tell()
    }
}

impl Member {
    /// By which its place can be given to another by who has it.
    #[must_use]
    pub fn leaving(&self) -> Leaving {
        Leaving(self.seen())
    }

    pub(crate) fn seen(&self) -> Arc<Seen> {
        Arc::clone(&self.seen)
    }

    /// Whether somebody has its place, so that it has to go.
    #[must_use]
    pub fn is_told(&self) -> bool {
        self.seen.is_told()
    }

    /// It asks for something: more than to say that it is there.
    pub fn asks(&self) {
        self.seen.asked_at.store(self.crowd.ms(Instant::now()), Ordering::Relaxed);
    }

    /// Whether it has shown a key, or anything else that not everybody has, that is good: then it gives up its place to
    /// nobody.
    pub fn shows_key(&self, is_good: bool) {
        if self.seen.shows_key.swap(is_good, Ordering::Relaxed) == is_good {
            return;
        }
        let mut members = self.crowd.lock();
        members.fruitless = None;
        match is_good {
            true => members.without_key -= 1,
            false => members.without_key += 1,
        }
    }

    /// Ready when its place is needed.
    pub fn poll_needed(&mut self, context: &mut Context<'_>) -> Poll<()> {
        Pin::new(&mut self.told).poll(context).map(drop)
    }
}

impl Drop for Member {
    fn drop(&mut self) {
        let mut members = self.crowd.lock();
        members.fruitless = None;
        members.without_key -= usize::from(!self.seen.shows_key());
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

    /// QUO-01: the address with most connections gives one up, the one that has asked for nothing for longest, until the
    /// newcomer's would have as many; nobody gives one up for others of its own address.
    #[test]
    fn who_has_most_places_gives_one_up() {
        let mut context = Context::from_waker(Waker::noop());
        let crowd = Crowd::default();
        let at = |ms| crowd.1 + Duration::from_millis(ms);
        let [greedy, modest]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|it| it.parse().unwrap());
        let mut many: Vec<Member> = (0..4).map(|ms| crowd.join_at(greedy, at(ms))).collect();
        assert!(!crowd.make_room_at(Some(modest), at(200)), "all have come a moment ago");
        many[0].seen.asked_at.store(400, Ordering::Relaxed);
        assert!(!crowd.make_room_at(Some(greedy), at(500)), "it has all of them itself");
        assert!(crowd.make_room_at(Some(modest), at(500)));
        assert!(many[1].poll_needed(&mut context).is_ready());
        let mut few = vec![crowd.join_at(modest, at(501))];
        // Three to one: with one more they would be as many, and then nobody has to.
        assert!(crowd.make_room_at(Some(modest), at(502)));
        assert!(many[2].poll_needed(&mut context).is_ready());
        few.push(crowd.join_at(modest, at(503)));
        assert!(!crowd.make_room_at(Some(modest), at(9_000)));
        assert!(!crowd.make_room_at(Some(greedy), at(9_000)));
        assert!(many[0].poll_needed(&mut context).is_pending());
        // Who has gone is not counted.
        drop((many, few));
        assert!(crowd.lock().by_network.is_empty());
        assert!(!crowd.make_room_at(None, at(9_000)));
    }

    /// QUO-01, SEC-16: who has shown a key gives up its place to nobody, and gets that of one who has not: the one that has
    /// asked for nothing for longest, from wherever it comes and however much it asks.
    #[test]
    fn who_has_shown_a_key_keeps_its_place() {
        let mut context = Context::from_waker(Waker::noop());
        let crowd = Crowd::default();
        let at = |ms| crowd.1 + Duration::from_millis(ms);
        let [one, other]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|it| it.parse().unwrap());
        let mut by_key: Vec<Member> = (0..4).map(|ms| crowd.join_at(one, at(ms))).collect();
        for member in &by_key {
            member.shows_key(true);
        }
        assert!(!crowd.make_room_at(Some(other), at(9_000)) && !crowd.make_room_for_key());
        let mut without: Vec<Member> = (7..10).map(|ms| crowd.join_at(other, at(ms))).collect();
        without[0].seen.asked_at.store(8_999, Ordering::Relaxed);
        // The address with most connections has none that would have to go.
        assert!(crowd.make_room_at(None, at(9_000)));
        assert!(without[1].poll_needed(&mut context).is_ready());
        assert!(crowd.make_room_for_key());
        assert!(without[2].poll_needed(&mut context).is_ready());
        assert!(without[0].poll_needed(&mut context).is_pending());
        assert!(crowd.make_room_for_key(), "it is alone, and has asked a moment ago");
        assert!(without[0].poll_needed(&mut context).is_ready());
        assert!(!crowd.make_room_for_key());
        by_key[2].shows_key(false);
        assert!(crowd.make_room_for_key());
        assert!(by_key[2].poll_needed(&mut context).is_ready());
        drop((by_key, without));
        assert!(crowd.lock().by_network.is_empty());
    }

    /// QUO-01: when nobody has to go, nobody is looked at for those who come next, however often they ask, until
    /// somebody may have to: its time is over, or somebody has come or gone.
    #[test]
    fn who_has_nobody_go_does_not_look_at_all_of_them() {
        let crowd = Crowd::default();
        let at = |ms| crowd.1 + Duration::from_millis(ms);
        let [one, other]: [IpAddr; 2] = ["10.0.0.1", "10.0.0.2"].map(|it| it.parse().unwrap());
        let many: Vec<Member> = (0..5).map(|_| crowd.join_at(one, at(100))).collect();
        assert!(!crowd.make_room_at(Some(other), at(200)));
        // Whoever looked would find them, who have come in truth at 100.
        let silent = |member: &Member| member.seen.asked_at.store(0, Ordering::Relaxed);
        many.iter().for_each(silent);
        let over = 100 + u64::try_from(GRACE.as_millis()).unwrap();
        assert!(!crowd.make_room_at(Some(other), at(over - 1)), "before the grace of all is over");
        assert!(crowd.make_room_at(Some(other), at(over)));
        let there = crowd.join_at(other, at(350));
        assert!(!crowd.make_room_at(Some(one), at(350)), "it has most of them itself");
        assert!(
            crowd.make_room_at(Some(other), at(350)),
            "one that comes from where there are fewer"
        );
        // Who has come or gone may have changed it.
        many.iter().for_each(|member| member.seen.asked_at.store(351, Ordering::Relaxed));
        drop(there);
        assert!(!crowd.make_room_at(None, at(400)));
        many.iter().for_each(silent);
        assert!(!crowd.make_room_at(None, at(400)));
        drop(crowd.join_at(other, at(400)));
        assert!(crowd.make_room_at(None, at(400)));
    }

    /// QUO-01, SEC-16: where all have shown a key, nobody is looked at for one more.
    #[test]
    fn where_all_have_shown_a_key_nobody_is_looked_at() {
        let crowd = Crowd::default();
        let address: IpAddr = "10.0.0.1".parse().unwrap();
        let members = [(); 3].map(|()| crowd.join_at(address, crowd.1));
        for member in &members {
            member.shows_key(true);
            member.shows_key(true);
        }
        members[0].seen.shows_key.store(false, Ordering::Relaxed);
        assert!(!crowd.make_room_for_key(), "a look would find it");
        members[0].seen.shows_key.store(true, Ordering::Relaxed);
        members[1].shows_key(false);
        assert!(crowd.make_room_for_key());
        assert!(members[1].is_told() && !members[0].is_told());
        drop(members);
        assert_eq!(crowd.lock().without_key, 0);
    }

    /// QUO-01: the many addresses of one subscriber are one.
    #[test]
    fn addresses_of_one_network_are_one() {
        let crowd = Crowd::default();
        let at = |ms| crowd.1 + Duration::from_millis(ms);
        let address = |text: &str| text.parse::<IpAddr>().unwrap();
        let _many: Vec<Member> = (1..4)
            .map(|number| crowd.join_at(address(&format!("2001:db8::{number}")), at(0)))
            .collect();
        let _other = crowd.join_at(address("2001:db8:0:1::1"), at(0));
        assert!(!crowd.make_room_at(Some(address("2001:db8::99")), at(900)));
        assert!(crowd.make_room_at(Some(address("10.0.0.1")), at(900)));
    }
}

//! Brokers over a registry, with lost and late messages, pauses, outages and clocks that drift,
//! from a seed. At every instant, a broker that works is the owner in the registry.

use std::collections::BTreeMap;

use peeklock_store_testing::random::Random;

use super::*;
use crate::store::registry::Incarnation;

const MS: i64 = 10_000;
const BROKERS: usize = 3;

/// The rules of a registry, by its own clock.
#[derive(Default)]
struct Table {
    owner: Option<u64>,
    /// The last process of each name.
    leases: BTreeMap<u64, Lease>,
    takes: usize,
    /// Difference of the clock to the time of the world.
    ahead: i64,
}

struct Lease {
    broker: u64,
    renewal: u64,
    end: i64,
}

/// A renewal that reaches the registry.
#[derive(Clone, Copy)]
struct Renewal {
    id: u64,
    number: u64,
    may_enter: bool,
}

/// All incarnations of a broker have one name.
const fn name_of(id: u64) -> u64 {
    id & 0xffff_ffff
}

impl Table {
    /// Returns nothing if the name belongs to another process, or a later renewal came before.
    fn renew(&mut self, renewal: Renewal, now: i64, times: &LeaseTimes) -> Option<View> {
        let now = now + self.ahead;
        let end = now + times.lease.ticks();
        for lease in self.leases.values_mut() {
            lease.end = lease.end.min(end);
        }
        let Renewal { id, number, may_enter } = renewal;
        let is_refused = match self.leases.get(&name_of(id)) {
            Some(lease) if lease.broker == id => lease.renewal >= number,
            Some(lease) => !may_enter || lease.end > now,
            None => !may_enter,
        };
        if is_refused {
            return None;
        }
        self.leases.insert(name_of(id), Lease { broker: id, renewal: number, end });
        let owner = match self.owner {
            None => Owner::Nobody,
            Some(owner) if owner == id => Owner::This,
            Some(owner) => {
                let lease = self.lease_of(owner);
                let renewal = lease.map_or(0, |lease| lease.renewal);
                Owner::Other {
                    seen: SeenOwner { incarnation: Incarnation(owner), renewal },
                    name: "other".into(),
                    has_ended: lease.is_none_or(|lease| lease.end <= now),
                    is_barred: lease.is_none(),
                }
            }
        };
        Some(View { now: std::time::SystemTime::UNIX_EPOCH, horizon: None, owner })
    }

    fn take(&mut self, broker: u64, from: Option<SeenOwner>, now: i64) {
        if self.owner != from.map(|from| from.incarnation.0) {
            return;
        }
        let is_free = from.is_none_or(|from| {
            self.lease_of(from.incarnation.0)
                .is_none_or(|lease| lease.end <= now + self.ahead && lease.renewal == from.renewal)
        });
        if is_free {
            self.owner = Some(broker);
            self.takes += 1;
        }
    }

    /// An owner that stops gives the shards up.
    fn leave(&mut self, broker: u64) {
        self.leases.remove(&name_of(broker));
        if self.owner == Some(broker) {
            self.owner = None;
        }
    }

    fn lease_of(&self, broker: u64) -> Option<&Lease> {
        self.leases.get(&name_of(broker)).filter(|lease| lease.broker == broker)
    }
}

/// A message between a broker and the registry, with the incarnation of the broker.
enum Mail {
    Renew { broker: usize, sent_at: TimeSpan, renewal: Renewal },
    Renewed { broker: usize, id: u64, sent_at: TimeSpan, view: Option<View> },
    Take { id: u64, from: Option<SeenOwner> },
}

struct Broker {
    machine: Ownership,
    /// Its incarnation.
    id: u64,
    has_entered: bool,
    /// Number of its last renewal.
    renewals: u64,
    /// Its boot time is this plus the time of the world at this speed, in percent.
    booted: i64,
    speed: i64,
    next_renewal: i64,
    paused_until: i64,
    is_alive: bool,
    actions: Vec<Action>,
}

impl Broker {
    fn now(&self, now: i64) -> TimeSpan {
        TimeSpan::from_ticks(self.booted + now * self.speed / 100)
    }

    fn runs(&self, now: i64) -> bool {
        self.is_alive && self.paused_until <= now
    }

    /// Whether a turn would let something out now.
    fn works(&self, now: i64) -> bool {
        let is_valid = self.machine.valid_until().is_some_and(|until| self.now(now) < until);
        self.runs(now) && self.machine.phase() == Phase::Owner && is_valid
    }

    /// Starts the program again, as another incarnation.
    fn restart(&mut self, times: LeaseTimes) {
        self.machine = Ownership::new(times);
        self.id += 1 << 32;
        (self.has_entered, self.renewals) = (false, 0);
    }
}

/// Events in a world.
#[derive(Clone, Copy, Default)]
struct Faults {
    /// One message in this number is lost or late; 0 for none.
    mail: u64,
    /// One broker is paused in this number of steps; 0 for none.
    pauses: u64,
    /// The owner stops in one step of this number, and starts again; 0 for never.
    stops: u64,
    /// Whether the registry answers nobody.
    outage: bool,
    /// Whether clocks run at other speeds, up to 5 %.
    drift: bool,
    /// The clock of the registry is set in one step of this number; 0 for never.
    clock: u64,
}

struct World {
    times: LeaseTimes,
    random: Random,
    now: i64,
    table: Table,
    mail: Vec<(i64, Mail)>,
    brokers: Vec<Broker>,
    faults: Faults,
}

impl World {
    fn new(seed: u64, times: LeaseTimes, faults: Faults) -> Self {
        let mut random = Random::new(seed);
        let brokers = (1..=BROKERS as u64)
            .map(|id| Broker {
                machine: Ownership::new(times),
                id,
                has_entered: false,
                renewals: 0,
                booted: i64::try_from(random.below(1 << 40)).expect("small"),
                speed: if faults.drift { 95 + ticks(random.below(11)) } else { 100 },
                next_renewal: ticks(random.below(500)) * MS,
                paused_until: 0,
                is_alive: true,
                actions: Vec::new(),
            })
            .collect();
        let (table, mail) = (Table::default(), Vec::new());
        Self { times, random, now: 0, table, mail, brokers, faults }
    }

    fn send(&mut self, mail: Mail) {
        let is_bad = self.faults.mail > 0 && self.random.one_in(self.faults.mail);
        if self.faults.outage || (is_bad && self.random.one_in(2)) {
            return;
        }
        let delay_max = if is_bad { 8_000 } else { 40 };
        let delay = ticks(self.random.between(1, delay_max)) * MS;
        self.mail.push((self.now + delay, mail));
    }

    fn act(&mut self, broker: usize, action: Option<Action>) {
        let Some(action) = action else { return };
        self.brokers[broker].actions.push(action);
        if let Action::Take(from) = action {
            let id = self.brokers[broker].id;
            self.send(Mail::Take { id, from });
            // The next renewal has the result.
            self.brokers[broker].next_renewal = self.now + 50 * MS;
        }
    }

    fn step(&mut self) {
        self.now += 10 * MS;
        let now = self.now;
        if self.faults.clock > 0 && self.random.one_in(self.faults.clock) {
            let longest = self.random.between(1, 4_000_000);
            self.table.ahead = (ticks(self.random.below(longest)) - ticks(longest / 2)) * MS;
        }
        let (due, later): (Vec<_>, Vec<_>) =
            std::mem::take(&mut self.mail).into_iter().partition(|(at, mail)| {
                // A stopped process reads nothing.
                let reads = match mail {
                    Mail::Renewed { broker, .. } => self.brokers[*broker].paused_until <= now,
                    Mail::Renew { .. } | Mail::Take { .. } => true,
                };
                *at <= now && reads
            });
        self.mail = later;
        for (_, mail) in due {
            match mail {
                Mail::Renew { broker, sent_at, mut renewal } => {
                    // A process that has ended cannot enter.
                    renewal.may_enter &= self.brokers[broker].id == renewal.id;
                    let view = self.table.renew(renewal, now, &self.times);
                    self.send(Mail::Renewed { broker, id: renewal.id, sent_at, view });
                }
                Mail::Take { id, from } => self.table.take(id, from, now),
                Mail::Renewed { broker, id, sent_at, view: Some(view) } => {
                    if self.brokers[broker].is_alive && self.brokers[broker].id == id {
                        self.brokers[broker].has_entered = true;
                        let at = self.brokers[broker].now(now);
                        let action = self.brokers[broker].machine.advance(at);
                        self.act(broker, action);
                        let action = self.brokers[broker].machine.renewed(sent_at, at, &view);
                        self.act(broker, action);
                    }
                }
                // It tries again.
                Mail::Renewed { view: None, .. } => {}
            }
        }
        for broker in 0..self.brokers.len() {
            if self.faults.pauses > 0 && self.random.one_in(self.faults.pauses) {
                let span = ticks(self.random.between(10, 9_000)) * MS;
                self.brokers[broker].paused_until = now + span;
            }
            if !self.brokers[broker].runs(now) {
                continue;
            }
            if self.brokers[broker].machine.phase() == Phase::Owner
                && self.faults.stops > 0
                && self.random.one_in(self.faults.stops)
            {
                self.table.leave(self.brokers[broker].id);
                self.brokers[broker].restart(self.times);
            }
            let at = self.brokers[broker].now(now);
            let action = self.brokers[broker].machine.advance(at);
            self.act(broker, action);
            if self.brokers[broker].next_renewal <= now {
                self.brokers[broker].next_renewal = now + self.times.renew.ticks();
                self.brokers[broker].renewals += 1;
                let Broker { id, has_entered, renewals: number, .. } = self.brokers[broker];
                let renewal = Renewal { id, number, may_enter: !has_entered };
                self.send(Mail::Renew { broker, sent_at: at, renewal });
            }
        }
        for broker in &mut self.brokers {
            if broker.works(now) {
                assert_eq!(self.table.owner, Some(broker.id), "a broker works after a take");
            }
            // A program that has lost its shards starts again, as another incarnation.
            if broker.machine.phase() == Phase::Lost {
                broker.restart(self.times);
            }
        }
    }

    fn run(&mut self, span: TimeSpan) {
        let end = self.now + span.ticks();
        while self.now < end {
            self.step();
        }
    }

    /// Time until a broker works, within a bound.
    fn until_work(&mut self, bound: TimeSpan) -> Option<TimeSpan> {
        let start = self.now;
        while self.now - start <= bound.ticks() {
            if self.brokers.iter().any(|broker| broker.works(self.now)) {
                return Some(TimeSpan::from_ticks(self.now - start));
            }
            self.step();
        }
        None
    }

    fn owner(&self) -> usize {
        let owner = self.brokers.iter().position(|broker| broker.works(self.now));
        owner.expect("a broker works")
    }
}

fn ticks(number: u64) -> i64 {
    i64::try_from(number).expect("a small number")
}

fn started(seed: u64, faults: Faults) -> World {
    let mut world = World::new(seed, LeaseTimes::default(), faults);
    assert!(world.until_work(TimeSpan::from_seconds(2)).is_some(), "nobody takes a new store");
    world
}

/// CLU-07, CLU-16, CLU-17, CLU-18: with lost and late mail, pauses, stops and drifting clocks, no
/// broker works that is not the owner; and when the faults are over, a broker works within a bound.
#[test]
fn only_the_owner_works() {
    let mut takes = 0;
    for seed in 0..400 {
        let faults = Faults { mail: 4, pauses: 700, stops: 900, drift: true, ..Faults::default() };
        let mut world = World::new(seed, LeaseTimes::default(), faults);
        world.run(TimeSpan::from_seconds(90));
        world.faults = Faults { drift: true, ..Faults::default() };
        for broker in &mut world.brokers {
            broker.paused_until = 0;
        }
        // Late mail arrives for up to 8 s, and may be the last renewal of a past owner.
        let bound = TimeSpan::from_seconds(14);
        assert!(world.until_work(bound).is_some(), "seed {seed}: nobody works after the faults");
        takes += world.table.takes;
    }
    assert!(takes > 800, "only {takes} takeovers in all runs");
}

/// CLU-19: after a kill, another broker works within 4 s, which leaves a second for opening.
#[test]
fn standby_replaces_a_killed_owner() {
    for seed in 0..100 {
        let mut world = started(seed, Faults::default());
        world.run(TimeSpan::from_seconds(10));
        let owner = world.owner();
        world.brokers[owner].is_alive = false;
        let replaced = world.until_work(TimeSpan::from_seconds(10)).expect("a broker works");
        assert!(replaced <= TimeSpan::from_seconds(4), "seed {seed}: {replaced:?}");
        assert_ne!(world.owner(), owner);
    }
}

/// CLU-19: after an owner that has stopped in order, another broker works within a second, also one
/// that has renewed only once.
#[test]
fn standby_replaces_a_stopped_owner_at_once() {
    for seed in 0..100 {
        let mut world = started(seed, Faults::default());
        world.run(TimeSpan::from_ms(700));
        let owner = world.owner();
        world.table.leave(world.brokers[owner].id);
        world.brokers[owner].is_alive = false;
        let replaced = world.until_work(TimeSpan::from_seconds(10)).expect("a broker works");
        assert!(replaced <= TimeSpan::from_seconds(1), "seed {seed}: {replaced:?}");
        assert_ne!(world.owner(), owner);
    }
}

/// CLU-19: the only broker, killed and started again at once under its name, works within 4 s: it
/// waits for the end of its own lease, and not for another one.
#[test]
fn restarted_broker_waits_for_one_lease() {
    for seed in 0..100 {
        let mut world = World::new(seed, LeaseTimes::default(), Faults::default());
        for other in &mut world.brokers[1..] {
            other.is_alive = false;
        }
        assert!(world.until_work(TimeSpan::from_seconds(2)).is_some());
        world.run(TimeSpan::from_seconds(10));
        world.brokers[0].restart(world.times);
        let restarted = world.until_work(TimeSpan::from_seconds(10)).expect("a broker works");
        assert!(restarted <= TimeSpan::from_seconds(4), "seed {seed}: {restarted:?}");
    }
}

/// CLU-07, CLU-16, CLU-17: no broker works that is not the owner while the clock of the registry is
/// set, forward and back by up to 33 minutes, with lost and late mail and pauses.
#[test]
fn only_the_owner_works_while_the_clock_is_set() {
    let mut takes = 0;
    for seed in 0..200 {
        let faults = Faults { mail: 4, pauses: 700, drift: true, clock: 150, ..Faults::default() };
        let mut world = World::new(seed, LeaseTimes::default(), faults);
        world.run(TimeSpan::from_seconds(90));
        takes += world.table.takes;
    }
    assert!(takes > 400, "only {takes} takeovers in all runs");
}

/// CLU-19: an owner that renews keeps its shards when the clock of the registry is set, and after a
/// kill another broker works within 5 s, also if the clock was set back before the kill.
#[test]
fn set_clock_delays_no_takeover() {
    for seed in 0..100 {
        let mut world = started(seed, Faults::default());
        world.run(TimeSpan::from_seconds(10));
        let owner = world.owner();
        for hours in [1, 0, -1] {
            world.table.ahead = TimeSpan::from_minutes(60).ticks() * hours;
            world.run(TimeSpan::from_seconds(10));
            assert_eq!((world.owner(), world.table.takes), (owner, 1), "seed {seed}: {hours} h");
        }
        world.brokers[owner].is_alive = false;
        world.table.ahead -= TimeSpan::from_minutes(60).ticks();
        let replaced = world.until_work(TimeSpan::from_seconds(10)).expect("a broker works");
        assert!(replaced <= TimeSpan::from_seconds(5), "seed {seed}: {replaced:?}");
    }
}

/// CLU-21: an outage for all brokers changes no owner, however long it is, and in any order in
/// which brokers reach the registry again. The owner is suspended and resumes with the time of its suspension (CLU-22).
#[test]
fn outage_keeps_the_owner() {
    for seed in 0..100 {
        let mut world = started(seed, Faults::default());
        world.run(TimeSpan::from_seconds(10));
        let owner = world.owner();
        let length = world.random.between(3, 120);
        world.faults.outage = true;
        world.mail.clear();
        world.run(TimeSpan::from_seconds(ticks(length)));
        assert!(world.brokers.iter().all(|broker| !broker.works(world.now)), "CLU-17");
        world.faults.outage = false;
        // An attempt to connect that has begun before the end fails after 1 s. A pause of a twelfth
        // of the lease follows, and the keeper asks each 0.5 s.
        for broker in &mut world.brokers {
            broker.next_renewal = world.now + ticks(world.random.between(0, 1_750)) * MS;
        }
        world.run(TimeSpan::from_seconds(20));
        assert_eq!((world.owner(), world.table.takes), (owner, 1), "seed {seed}");
        let actions = &world.brokers[owner].actions;
        let [.., Action::Suspend, Action::Resume(span)] = actions.as_slice() else {
            panic!("seed {seed}: {actions:?}");
        };
        // The last renewal that was answered was sent up to 1.1 s before the outage, and the
        // first one after it is answered within 1.9 s.
        let outage = TimeSpan::from_seconds(ticks(length)).ticks();
        let valid = LeaseTimes::default().valid_for().ticks();
        let shift = TimeSpan::from_seconds(3).ticks();
        let bounds = outage - valid..=outage - valid + shift;
        assert!(bounds.contains(&span.ticks()), "seed {seed}: {span:?} of {length} s");
    }
}

/// CLU-18: an owner that was stopped for longer than its lease does nothing when it goes on, and
/// gives up.
#[test]
fn stopped_owner_gives_up() {
    let mut world = started(1, Faults::default());
    world.run(TimeSpan::from_seconds(10));
    let owner = world.owner();
    world.brokers[owner].paused_until = world.now + TimeSpan::from_seconds(30).ticks();
    world.run(TimeSpan::from_seconds(40));
    assert_ne!(world.owner(), owner);
    assert_eq!(world.brokers[owner].actions.last(), Some(&Action::Lose));
}

/// CLU-16: times that leave less than three renewals, or less than 0.3 s between the end of the
/// lease for its holder and for others, are refused.
#[test]
fn lease_times_are_checked() {
    let times = LeaseTimes::default();
    assert_eq!(times.validate(), Ok(()));
    let short = LeaseTimes { margin: TimeSpan::from_ms(299), ..times };
    assert!(short.validate().is_err());
    let least = LeaseTimes { renew: TimeSpan::from_ms(833), ..times };
    assert_eq!(least.validate(), Ok(()));
    let rare = LeaseTimes { renew: TimeSpan::from_ms(834), ..times };
    assert!(rare.validate().is_err());
    let none = LeaseTimes { renew: TimeSpan::ZERO, ..times };
    assert!(none.validate().is_err());
}

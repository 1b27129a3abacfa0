//! Brokers over a registry, with lost and late messages, pauses, outages and clocks that drift,
//! from a seed. At every instant, a broker that works is the owner in the registry.

use std::collections::BTreeMap;

use peeklock_store_testing::random::Random;

use super::*;

const MS: i64 = 10_000;
const BROKERS: usize = 3;

/// The rules of a registry, in its own time.
#[derive(Default)]
struct Table {
    owner: Option<u64>,
    /// Ends of leases by broker.
    leases: BTreeMap<u64, i64>,
    takes: usize,
}

impl Table {
    fn renew(&mut self, broker: u64, now: i64, times: &LeaseTimes) -> View {
        self.leases.insert(broker, now + times.lease.ticks());
        let owner = match self.owner {
            None => Owner::Nobody,
            Some(owner) if owner == broker => Owner::This,
            Some(owner) => Owner::Other {
                incarnation: Incarnation(owner),
                name: "other".into(),
                has_ended: self.has_ended(owner, now),
            },
        };
        View { now: std::time::SystemTime::UNIX_EPOCH, horizon: None, owner }
    }

    fn take(&mut self, broker: u64, from: Option<Incarnation>, now: i64) {
        if self.owner != from.map(|from| from.0)
            || self.owner.is_some_and(|owner| !self.has_ended(owner, now))
        {
            return;
        }
        self.owner = Some(broker);
        self.takes += 1;
    }

    /// An owner that stops gives the shards up.
    fn leave(&mut self, broker: u64) {
        self.leases.remove(&broker);
        if self.owner == Some(broker) {
            self.owner = None;
        }
    }

    fn has_ended(&self, broker: u64, now: i64) -> bool {
        self.leases.get(&broker).is_none_or(|end| *end <= now)
    }
}

/// A message between a broker and the registry, with the incarnation of the broker.
enum Mail {
    Renew { broker: usize, id: u64, sent_at: TimeSpan },
    Renewed { broker: usize, id: u64, sent_at: TimeSpan, view: View },
    Take { id: u64, from: Option<Incarnation> },
}

struct Broker {
    machine: Ownership,
    /// Its incarnation.
    id: u64,
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
                Mail::Renew { broker, id, sent_at } => {
                    let view = self.table.renew(id, now, &self.times);
                    self.send(Mail::Renewed { broker, id, sent_at, view });
                }
                Mail::Take { id, from } => self.table.take(id, from, now),
                Mail::Renewed { broker, id, sent_at, view } => {
                    if self.brokers[broker].is_alive && self.brokers[broker].id == id {
                        let at = self.brokers[broker].now(now);
                        let action = self.brokers[broker].machine.advance(at);
                        self.act(broker, action);
                        let action = self.brokers[broker].machine.renewed(sent_at, at, &view);
                        self.act(broker, action);
                    }
                }
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
                let id = self.brokers[broker].id;
                self.send(Mail::Renew { broker, id, sent_at: at });
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
        let faults = Faults { mail: 4, pauses: 700, stops: 900, drift: true, outage: false };
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

/// CLU-21: an outage for all brokers changes no owner, however long it is. The owner is suspended
/// and resumes with the time of its suspension (CLU-22).
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
        world.run(TimeSpan::from_seconds(20));
        assert_eq!((world.owner(), world.table.takes), (owner, 1), "seed {seed}");
        let actions = &world.brokers[owner].actions;
        let [.., Action::Suspend, Action::Resume(span)] = actions.as_slice() else {
            panic!("seed {seed}: {actions:?}");
        };
        // The last renewal that was answered was sent up to 1.1 s before the outage, and the
        // first one after it is answered within 0.6 s.
        let outage = TimeSpan::from_seconds(ticks(length)).ticks();
        let valid = LeaseTimes::default().valid_for().ticks();
        let shift = TimeSpan::from_ms(600).ticks();
        let bounds = outage - valid..=outage - valid + 3 * shift;
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

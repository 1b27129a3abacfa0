//! The mishaps of a simulated world, and the recovery from them. `run.rs` draws them from the seed.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use peeklock_core::condition::Condition;
use peeklock_core::error::Rejection;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_store_testing::Random;

use super::Mishap;
use super::run::Run;
use super::shared::{Owner, Step};
use super::worker::be_born;

/// Minimum and maximum time in milliseconds for which a worker is dead or disconnected, and the
/// store slow.
const DOWN: (i64, i64) = (0, 20_000);
const CUT_OFF: (i64, i64) = (1_000, 180_000);
const SLOW: (i64, i64) = (10, 20_000);
/// Time until a worker that could not be started is tried again.
const AGAIN_AFTER: TimeSpan = TimeSpan::from_seconds(1);

/// The kinds and the frequency of mishaps in one run.
pub(super) struct Weather {
    kinds: Vec<Mishap>,
    left: u32,
    /// On average one of this number of steps has a mishap.
    one_in: u64,
    reorders: bool,
}

impl Weather {
    /// Draws them for each seed: many mishaps of few kinds find other faults than few of many
    /// kinds.
    pub(super) fn draw(random: &mut Random, allowed: &BTreeSet<Mishap>, mishaps_max: u32) -> Self {
        let reorders = allowed.contains(&Mishap::Reorder) && !random.one_in(8);
        let kinds = allowed.iter().copied().filter(|kind| *kind != Mishap::Reorder);
        let kinds = kinds.filter(|_| !random.one_in(4)).collect();
        let left = u32::try_from(random.between(0, mishaps_max.into())).unwrap_or(mishaps_max);
        Self { kinds, left, one_in: random.between(2, 16), reorders }
    }

    /// Returns the index of the choice that comes first.
    pub(super) fn order(
        &self,
        random: &mut Random,
        choices: usize,
        mishaps: &mut BTreeMap<Mishap, u64>,
    ) -> usize {
        if !self.reorders || choices < 2 {
            return 0;
        }
        let index = random.index(choices);
        if index > 0 {
            *mishaps.entry(Mishap::Reorder).or_default() += 1;
        }
        index
    }
}

impl Run {
    /// May cause a mishap. Returns whether it did.
    pub(super) fn have_mishap(&mut self) -> Result<bool, String> {
        if self.weather.left == 0 || !self.random.one_in(self.weather.one_in) {
            return Ok(false);
        }
        let Some(kind) = self.random.pick(&self.weather.kinds).copied() else { return Ok(false) };
        let happened = match kind {
            Mishap::WorkerCrash => self.crash_worker(),
            Mishap::LockLost => self.cut_worker_off(),
            Mishap::BrokerCrash => self.crash_broker()?,
            Mishap::SlowStore => self.slow_store_down(),
            Mishap::Reorder => false,
        };
        if happened {
            self.weather.left -= 1;
            *self.mishaps.entry(kind).or_default() += 1;
        }
        Ok(happened)
    }

    fn between(&mut self, (low, high): (i64, i64)) -> TimeSpan {
        let wide = u64::try_from(high - low).unwrap_or(0);
        TimeSpan::from_ms(low + i64::try_from(self.random.below(wide + 1)).unwrap_or(0))
    }

    /// Returns a random worker that has messages.
    fn busy_worker(&mut self) -> Option<(Owner, Arc<str>)> {
        let busy: Vec<(Owner, Arc<str>)> = {
            let state = self.shared.state();
            let busy: BTreeSet<Owner> = state.in_hand.keys().map(|(owner, _)| *owner).collect();
            let is_up = |owner: &Owner| state.is_alive(*owner) && !state.is_cut_off(*owner);
            let path = |owner: &Owner| Some(Arc::clone(&state.workers.get(&owner.worker)?.path));
            busy.into_iter()
                .filter(is_up)
                .filter_map(|owner| Some((owner, path(&owner)?)))
                .collect()
        };
        self.random.pick(&busy).cloned()
    }

    /// Kills a worker with everything that it has.
    fn crash_worker(&mut self) -> bool {
        let Some((owner, path)) = self.busy_worker() else { return false };
        let down = self.between(DOWN);
        let (pushed, asked, consumer, refused) = {
            let mut state = self.shared.state();
            let number = owner.worker;
            state.note(&format!("{path}: worker {number} crashes"));
            let hand: Vec<_> = state
                .in_hand
                .extract_if(.., |(of, _), _| *of == owner)
                .map(|((_, sequence), known)| format!("{path}:   #{sequence} {known}"))
                .collect();
            for line in hand {
                state.note(&line);
            }
            let until = state.now.plus(down);
            let consumer = state.workers.get_mut(&number).and_then(|worker| {
                worker.life += 1;
                worker.down_until = Some(until);
                worker.kill.send_replace(true);
                worker.consumer.take()
            });
            let pushed: Vec<u64> = state
                .pushed
                .iter()
                .filter(|(_, pushed)| pushed.owner == owner)
                .map(|(id, _)| *id)
                .collect();
            let asked: Vec<_> =
                state.asked.extract_if(.., |_, asked| asked.owner == owner).collect();
            let refused: Vec<_> = asked
                .iter()
                .map(|_| state.refuse(Rejection::cancelled("the worker has crashed")))
                .collect();
            (pushed, asked, consumer, refused)
        };
        for id in pushed {
            let pushed = self.shared.state().pushed.remove(&id);
            let Some(mut pushed) = pushed else { continue };
            pushed.break_off();
            self.shared.state().pushed.insert(id, pushed);
        }
        for ((_, asked), error) in asked.into_iter().zip(refused) {
            asked.lose(error);
        }
        drop(consumer);
        true
    }

    /// Disconnects a worker from the broker: its locks are not renewed, and expire if it takes long
    /// enough.
    fn cut_worker_off(&mut self) -> bool {
        let Some((owner, path)) = self.busy_worker() else { return false };
        let span = self.between(CUT_OFF);
        let mut state = self.shared.state();
        let until = state.now.plus(span);
        state.note(&format!("{path}: worker {} is cut off from the broker", owner.worker));
        if let Some(worker) = state.workers.get_mut(&owner.worker) {
            worker.cut_off_until = Some(until);
        }
        true
    }

    /// Crashes and restarts the broker: locks are lost, and so are all answers not yet received.
    fn crash_broker(&mut self) -> Result<bool, String> {
        let waiting = self.house.crash(&mut self.random)?;
        // One port for everything, because only the port that began a transaction knows it.
        let way = self.house.port();
        let lost = {
            let mut state = self.shared.state();
            state.note(&match waiting {
                0 => "the broker crashes and is started again".to_owned(),
                count => {
                    format!("the broker crashes while {count} writes wait, and is started again")
                }
            });
            state.restarts += 1;
            state.way = Some(Arc::clone(&way));
            let under_way: Vec<_> = state
                .asked
                .extract_if(.., |_, asked| !matches!(asked.step, Step::Asked(_)))
                .map(|(_, asked)| asked)
                .collect();
            let gone = || Rejection::new(Condition::CommunicationProblem, "the broker has crashed");
            let lost: Vec<_> =
                under_way.into_iter().map(|asked| (asked, state.refuse(gone()))).collect();
            for (asked, _) in &lost {
                state.note(&format!("{} (the answer is lost)", asked.what));
            }
            lost
        };
        for (asked, error) in lost {
            asked.lose(error);
        }
        let ids: Vec<u64> = self.shared.state().pushed.keys().copied().collect();
        for id in ids {
            let pushed = self.shared.state().pushed.remove(&id);
            let Some(mut pushed) = pushed else { continue };
            pushed.lose();
            let attached = self.house.finish(way.pushed(&pushed.path, pushed.unsettled_max));
            match attached {
                Some(Ok(real)) => pushed.restore(real),
                Some(Err(error)) => return Err(format!("{}: {error}", pushed.path)),
                None => return Err(format!("{}: no link after the restart", pushed.path)),
            }
            self.shared.state().pushed.insert(id, pushed);
        }
        // Decided messages are no longer known to be settled; messages with handlers stay there.
        self.shared.state().in_hand.retain(|_, known| *known == "is with its handler");
        Ok(true)
    }

    fn slow_store_down(&mut self) -> bool {
        if self.house.is_slow() {
            return false;
        }
        let span = self.between(SLOW);
        self.house.slow_down();
        let mut state = self.shared.state();
        state.note("the store stores nothing for a while");
        self.weather_until = Some(state.now.plus(span));
        true
    }

    /// Returns the time of the next recovery.
    pub(super) fn next_change(&self) -> Option<Timestamp> {
        let state = self.shared.state();
        let workers = state.workers.values();
        let of_workers = workers.flat_map(|worker| [worker.down_until, worker.cut_off_until]);
        let slow = self.weather_until.filter(|_| self.house.is_slow());
        of_workers.chain([slow]).flatten().min()
    }

    /// Carries out the recoveries that are due.
    pub(super) fn change_with_time(&mut self, now: Timestamp) {
        if self.house.is_slow() && self.weather_until.is_some_and(|until| until <= now) {
            self.shared.state().note("the store goes on");
            self.house.speed_up();
        }
        let is_due = |until: Option<Timestamp>| until.is_some_and(|until| until <= now);
        let mut born = Vec::new();
        {
            let mut state = self.shared.state();
            let mut lines = Vec::new();
            for (number, worker) in &mut state.workers {
                if is_due(worker.cut_off_until) {
                    worker.cut_off_until = None;
                    lines
                        .push(format!("{}: worker {number} reaches the broker again", worker.path));
                }
                if is_due(worker.down_until) {
                    lines.push(format!("{}: worker {number} is started again", worker.path));
                    born.push(*number);
                }
            }
            for line in lines {
                state.note(&line);
            }
        }
        for number in born {
            let Some(starting) = be_born(&self.shared, number) else { continue };
            let shared = Arc::clone(&self.shared);
            self.spawn(async move {
                let started = starting.await;
                let mut state = shared.state();
                let again_at = state.now.plus(AGAIN_AFTER);
                let Some(worker) = state.workers.get_mut(&number) else { return };
                match started {
                    Ok(consumer) => worker.consumer = Some(consumer),
                    Err(_) => worker.down_until = Some(again_at),
                }
            });
        }
    }
}

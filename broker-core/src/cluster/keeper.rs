//! Keeps the ownership of a broker: renews its lease on a thread of its own, which neither arbiters
//! nor appends can delay, and extends or ends its tenure.

use std::pin::pin;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, SystemTime};

use tokio::sync::{Notify, oneshot, watch};
use tokio::task::JoinHandle as TaskHandle;

use super::ownership::{Action, LeaseTimes, Ownership, Phase};
use super::tenure::{Ending, Tenure};
use crate::clock::{Clock, DatabaseTime, boot_time, system_time, timestamp};
use crate::store::registry::{Owner, View};
use crate::store::{Registry, StoreError};
use crate::telemetry;
use crate::time::TimeSpan;

/// Called with the answer to each renewal of a broker that stands by. Must not block.
pub type OnStandby = Arc<dyn Fn(&View) + Send + Sync>;

/// Keeper of the ownership of a broker. It ends with its last reference.
pub struct Keeper {
    tenure: Arc<Tenure>,
    time: Arc<DatabaseTime>,
    clock: Arc<OnceLock<Arc<dyn Clock>>>,
    stop: Arc<Stop>,
    thread: Mutex<Option<JoinHandle<()>>>,
    takeover: Option<Takeover>,
}

/// The way in which a broker got the shards.
struct Takeover {
    /// Boot time of the renewal that found them free.
    since: TimeSpan,
    /// The past owner, if its lease is over; none if it had given the shards up, or if there was none.
    from: Option<Arc<str>>,
}

/// Has the thread of a keeper stop.
#[derive(Default)]
struct Stop {
    /// The broker stops: a suspension ends the tenure, since nobody would wait for its end.
    is_stopping: watch::Sender<bool>,
    now: Notify,
}

impl Keeper {
    /// Waits until this broker owns the shards of a store, as the standby of the broker that owns
    /// them, however long that takes. To stop waiting, drop the future.
    ///
    /// # Errors
    /// If the registry refuses this broker, or the thread cannot be started.
    pub async fn stand_by(
        registry: Arc<dyn Registry>,
        times: LeaseTimes,
        on_standby: Option<OnStandby>,
    ) -> Result<Self, StoreError> {
        let failed = |why: String| StoreError::Failed(why.into());
        times.validate().map_err(failed)?;
        if let Some(lease) = registry.lease().filter(|lease| *lease != times.lease.to_std()) {
            return Err(failed(format!(
                "the store gives leases of {lease:?}, and the broker counts on {:?}; use one",
                times.lease.to_std()
            )));
        }
        let mut keeper = Self {
            tenure: Arc::new(Tenure::until(TimeSpan::ZERO)),
            time: Arc::default(),
            clock: Arc::default(),
            stop: Arc::default(),
            thread: Mutex::new(None),
            takeover: None,
        };
        let (begun, begin) = oneshot::channel();
        let keeping = Keeping {
            registry,
            machine: Ownership::new(times),
            times,
            tenure: Arc::clone(&keeper.tenure),
            time: Arc::clone(&keeper.time),
            clock: Arc::clone(&keeper.clock),
            stop: Arc::clone(&keeper.stop),
            begun: Some(begun),
            takeover: None,
            on_standby,
            refused_since: None,
            named_owner: None,
            is_unreachable: false,
        };
        let thread = std::thread::Builder::new()
            .name("peeklock-lease".to_owned())
            .spawn(move || keep(keeping))
            .map_err(|error| failed(format!("threads cannot be started: {error}")))?;
        *keeper.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        let begun = begin.await;
        keeper.takeover =
            begun.map_err(|_| failed("the thread of the lease has ended".to_owned()))??;
        Ok(keeper)
    }

    /// Reports the takeover in the log and as a metric, when all entities are open (CLU-52).
    pub fn report_takeover(&self, shards: u16) {
        let Some(Takeover { since, from }) = &self.takeover else { return };
        let seconds = TimeSpan::from_ticks(boot_time().ticks() - since.ticks()).as_seconds_f64();
        let reason = if from.is_some() { "expired" } else { "free" };
        telemetry::note_takeover(reason, seconds);
        let from = from.as_deref().unwrap_or("nobody");
        tracing::info!(shards, from, reason, seconds, "the shards are taken over and open");
    }

    /// Time in which the broker may work.
    #[must_use]
    pub const fn tenure(&self) -> &Arc<Tenure> {
        &self.tenure
    }

    /// Time of the store, which all its brokers share (CLU-14).
    #[must_use]
    pub const fn time(&self) -> &Arc<DatabaseTime> {
        &self.time
    }

    /// Sets the clock of the broker. From the next renewal on, the registry knows how far it goes
    /// (CLU-15).
    pub fn set_clock(&self, clock: Arc<dyn Clock>) {
        // A broker has one clock.
        self.clock.set(clock).ok();
    }

    /// The broker stops: a suspension, now or later, ends the tenure.
    pub fn begin_stop(&self) {
        self.stop.is_stopping.send_replace(true);
    }

    /// Ends the renewals and the tenure, and waits for the end of the thread. The store gives the
    /// shards up when it is closed; nothing that rests on memory leaves this broker any more.
    pub fn end(&self) {
        self.stop.now.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            thread.join().ok();
        }
        self.tenure.end(Ending::Stopped);
    }

    /// Ends the renewals and the tenure, without waiting. The lease stays until it is over.
    pub fn abandon(&self) {
        self.stop.now.notify_one();
        self.tenure.end(Ending::Stopped);
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.abandon();
    }
}

/// Body of the thread.
fn keep(mut keeping: Keeping) {
    // A panic must not leave arbiters that wait for a renewal.
    let guard = EndOnPanic(Arc::clone(&keeping.tenure));
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    match runtime {
        Ok(runtime) => {
            runtime.block_on(async {
                // It has ended, or it has lost the shards.
                keeping.run().await.ok();
                keeping.note_last_instant().await;
            });
            // A name that is being looked up must not hold a stop up.
            runtime.shutdown_background();
        }
        Err(error) => {
            if let Some(begun) = keeping.begun.take() {
                let why = format!("the thread of the lease cannot be started: {error}");
                begun.send(Err(StoreError::Failed(why.into()))).ok();
            }
        }
    }
    std::mem::forget(guard);
}

struct EndOnPanic(Arc<Tenure>);

impl Drop for EndOnPanic {
    fn drop(&mut self) {
        self.0.end(Ending::Failed);
    }
}

/// State of the thread.
struct Keeping {
    registry: Arc<dyn Registry>,
    machine: Ownership,
    times: LeaseTimes,
    tenure: Arc<Tenure>,
    time: Arc<DatabaseTime>,
    clock: Arc<OnceLock<Arc<dyn Clock>>>,
    stop: Arc<Stop>,
    begun: Option<oneshot::Sender<Result<Option<Takeover>, StoreError>>>,
    /// The takeover that goes on.
    takeover: Option<Takeover>,
    on_standby: Option<OnStandby>,
    /// Boot time since which the registry refuses this broker.
    refused_since: Option<TimeSpan>,
    /// The owner that the log has named last.
    named_owner: Option<Arc<str>>,
    /// Whether the log says that the registry does not answer.
    is_unreachable: bool,
}

/// The keeper has ended, or the broker stops while it is suspended.
struct KeeperEnded;

impl Keeping {
    async fn run(&mut self) -> Result<(), KeeperEnded> {
        let registry = Arc::clone(&self.registry);
        // A takeover may wait for appends of the past owner; renewals go on meanwhile.
        let mut taking: Option<TaskHandle<Result<(), StoreError>>> = None;
        loop {
            let sent_at = boot_time();
            // A later renewal may succeed while this one is lost.
            let late_at = sent_at.plus(self.late_after());
            let late = || Err(StoreError::Unavailable("no answer in time".into()));
            let renewing = registry.renew(self.horizon());
            let answer = self.wait(late_at, renewing).await?.unwrap_or_else(late);
            self.advance();
            let action = match answer {
                Ok(view) => self.judge(sent_at, &view),
                Err(error) => {
                    self.note_failure(&error)?;
                    None
                }
            };
            match action {
                Some(Action::Lose) => return Ok(()),
                Some(Action::Take(from)) if taking.is_none() => {
                    tracing::info!("taking the shards over");
                    let registry = Arc::clone(&registry);
                    taking = Some(tokio::spawn(async move { registry.take(from).await }));
                }
                Some(Action::Take(_) | Action::Begin | Action::Suspend | Action::Resume(_))
                | None => {}
            }
            let next = sent_at.plus(self.times.renew);
            let taken = async {
                match &mut taking {
                    Some(taking) => taking.await,
                    None => std::future::pending().await,
                }
            };
            let Some(taken) = self.wait(next, taken).await? else { continue };
            taking = None;
            match taken {
                // The next renewal has the result.
                Ok(Ok(())) => continue,
                Ok(Err(error)) => tracing::warn!(%error, "the shards could not be taken over"),
                Err(error) => tracing::error!(%error, "the takeover has failed"),
            }
            self.wait(next, std::future::pending::<()>()).await?;
        }
    }

    /// Time after which a renewal without an answer is repeated.
    fn late_after(&self) -> TimeSpan {
        self.times.valid_for().divided_by(2)
    }

    /// The latest instant that the broker gives until the lease of a renewal that is sent now is
    /// over. Its clock runs up to a tenth faster than the time of the registry.
    fn horizon(&self) -> Option<SystemTime> {
        let valid_for = self.times.valid_for();
        let clock = self.clock.get()?;
        Some(system_time(clock.now().plus(valid_for).plus(valid_for.divided_by(10))))
    }

    /// Replaces the horizon by the last instant of a broker that stops, so that the clock of the
    /// next owner does not begin ahead.
    async fn note_last_instant(&self) {
        let Some(clock) = self.clock.get() else { return };
        if self.machine.phase() == Phase::Owner {
            let renewing = self.registry.renew(Some(system_time(clock.now())));
            tokio::time::timeout(self.late_after().to_std(), renewing).await.ok();
        }
    }

    /// Waits for some work, at most until a boot time. Suspends the broker if its lease ends
    /// meanwhile.
    async fn wait<T>(
        &mut self,
        until: TimeSpan,
        work: impl Future<Output = T>,
    ) -> Result<Option<T>, KeeperEnded> {
        let mut work = pin!(work);
        let stop = Arc::clone(&self.stop);
        let mut stopping = stop.is_stopping.subscribe();
        loop {
            let is_owner = self.machine.phase() == Phase::Owner;
            let lease_over = self.machine.valid_until().filter(|_| is_owner);
            let is_suspended = matches!(self.machine.phase(), Phase::Suspended(_));
            tokio::select! {
                biased;
                () = stop.now.notified() => return Err(KeeperEnded),
                _ = stopping.wait_for(|is_stopping| *is_stopping), if is_suspended => {
                    self.tenure.end(Ending::Stopped);
                    return Err(KeeperEnded);
                }
                () = sleep_until(lease_over.unwrap_or_default()), if lease_over.is_some() => {
                    self.advance();
                }
                () = sleep_until(until) => return Ok(None),
                done = &mut work => return Ok(Some(done)),
            }
        }
    }

    fn advance(&mut self) {
        if self.machine.advance(boot_time()) == Some(Action::Suspend) {
            telemetry::count_suspension();
            tracing::warn!(
                "the lease could not be renewed in time: nothing leaves this broker until it is"
            );
        }
    }

    /// Judges the answer to a renewal.
    fn judge(&mut self, sent_at: TimeSpan, view: &View) -> Option<Action> {
        let now = boot_time();
        if std::mem::take(&mut self.is_unreachable) {
            tracing::info!("the lease can be renewed again");
        }
        self.refused_since = None;
        if let Some(on_standby) = self.on_standby.as_ref().filter(|_| self.begun.is_some()) {
            on_standby(view);
        }
        self.time.note(timestamp(view.now), sent_at, now);
        if let Some(horizon) = view.horizon {
            self.time.begin_at(timestamp(horizon));
        }
        let action = self.machine.renewed(sent_at, now, view);
        self.note_takeover(now, action, &view.owner);
        let valid_until = self.machine.valid_until().unwrap_or_default();
        match action {
            Some(Action::Begin) => {
                tracing::info!("this broker owns the shards");
                self.tenure.extend(valid_until, TimeSpan::ZERO);
                if let Some(begun) = self.begun.take() {
                    begun.send(Ok(self.takeover.take())).ok();
                }
            }
            Some(Action::Resume(suspended)) => {
                tracing::info!(suspended = ?suspended.to_std(), "the lease is renewed; work goes on");
                self.tenure.extend(valid_until, suspended);
            }
            Some(Action::Lose) => {
                let owner = match &view.owner {
                    Owner::Other { name, .. } => name,
                    Owner::This | Owner::Nobody => "nobody",
                };
                tracing::error!(owner, "another broker has taken the shards over");
                self.tenure.end(Ending::Lost);
            }
            None if self.machine.phase() == Phase::Owner => {
                self.tenure.extend(valid_until, TimeSpan::ZERO);
            }
            Some(Action::Take(_) | Action::Suspend) | None => self.note_owner(view),
        }
        action
    }

    /// Notes the begin of a takeover, or that another broker was faster.
    fn note_takeover(&mut self, now: TimeSpan, action: Option<Action>, owner: &Owner) {
        match (action, owner) {
            (Some(Action::Take(_)), _) if self.takeover.is_some() => {}
            (Some(Action::Take(_)), Owner::Other { name, .. }) => {
                self.takeover = Some(Takeover { since: now, from: Some(Arc::clone(name)) });
            }
            (Some(Action::Take(_)), Owner::This | Owner::Nobody) => {
                self.takeover = Some(Takeover { since: now, from: None });
            }
            (None, Owner::Other { .. }) => self.takeover = None,
            _ => {}
        }
    }

    /// A registry that refuses a standby for a whole lease ends its wait. Until then, the lease of
    /// an earlier process of the same name may be the reason. A broker whose name another process
    /// has now never gets a lease again.
    fn note_failure(&mut self, error: &StoreError) -> Result<(), KeeperEnded> {
        if matches!(error, StoreError::Fenced { .. }) {
            tracing::error!("another process has the name of this broker");
            if let Some(begun) = self.begun.take() {
                begun.send(Err(error.clone())).ok();
            }
            self.tenure.end(Ending::Lost);
            return Err(KeeperEnded);
        }
        if !error.is_unavailable() && self.begun.is_some() {
            let since = *self.refused_since.get_or_insert_with(boot_time);
            if boot_time() >= since.plus(self.times.lease).plus(self.times.renew) {
                if let Some(begun) = self.begun.take() {
                    begun.send(Err(error.clone())).ok();
                }
                return Err(KeeperEnded);
            }
        }
        if !std::mem::replace(&mut self.is_unreachable, true) {
            tracing::warn!(%error, "the lease cannot be renewed; trying again");
        }
        Ok(())
    }

    fn note_owner(&mut self, view: &View) {
        if let Owner::Other { name, is_barred: false, .. } = &view.owner
            && self.named_owner.as_ref() != Some(name)
        {
            tracing::info!(owner = &**name, "standing by for the broker that owns the shards");
            self.named_owner = Some(Arc::clone(name));
        }
    }
}

/// Sleeps until a boot time. Timers stand still while a machine sleeps, so the rest is measured
/// again at least each second.
async fn sleep_until(at: TimeSpan) {
    loop {
        let rest = at.ticks() - boot_time().ticks();
        if rest <= 0 {
            return;
        }
        let rest = TimeSpan::from_ticks(rest).to_std();
        tokio::time::sleep(rest.clamp(Duration::from_millis(1), Duration::from_secs(1))).await;
    }
}

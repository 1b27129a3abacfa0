//! Keeps the ownership of a broker: renews its lease on a thread of its own, which neither arbiters
//! nor appends can delay, and extends or ends its tenure.

use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::Duration;

use tokio::sync::{Notify, oneshot, watch};

use super::ownership::{Action, LeaseTimes, Ownership, Phase};
use super::tenure::Tenure;
use crate::clock::{DatabaseTime, boot_time, timestamp};
use crate::store::registry::{Owner, View};
use crate::store::{Registry, StoreError};
use crate::time::TimeSpan;

/// Keeper of the ownership of a broker. Ends with its last reference.
pub struct Keeper {
    tenure: Arc<Tenure>,
    time: Arc<DatabaseTime>,
    end: Arc<End>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// How the thread of a keeper learns that it must end.
#[derive(Default)]
struct End {
    /// The broker stops: a suspension ends the tenure, since nobody would wait for its end.
    stopping: watch::Sender<bool>,
    now: Notify,
}

impl Keeper {
    /// Waits until this broker owns the shards of a store, as standby of the broker that owns them,
    /// however long that is. To stop waiting, drop the future.
    ///
    /// # Errors
    /// If the registry refuses this broker, or the thread cannot be started.
    pub async fn stand_by(
        registry: Arc<dyn Registry>,
        times: LeaseTimes,
    ) -> Result<Self, StoreError> {
        let failed = |why: String| StoreError::Failed(why.into());
        times.validate().map_err(failed)?;
        let keeper = Self {
            tenure: Arc::new(Tenure::until(TimeSpan::ZERO)),
            time: Arc::default(),
            end: Arc::default(),
            thread: Mutex::new(None),
        };
        let (begun, begin) = oneshot::channel();
        let mut keeping = Keeping {
            registry,
            machine: Ownership::new(times),
            times,
            tenure: Arc::clone(&keeper.tenure),
            time: Arc::clone(&keeper.time),
            end: Arc::clone(&keeper.end),
            begun: Some(begun),
            waits_for: None,
            is_away: false,
        };
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| failed(format!("threads cannot be started: {error}")))?;
        let thread = std::thread::Builder::new()
            .name("peeklock-lease".to_owned())
            .spawn(move || drop(runtime.block_on(keeping.run())))
            .map_err(|error| failed(format!("threads cannot be started: {error}")))?;
        *keeper.thread.lock().unwrap_or_else(PoisonError::into_inner) = Some(thread);
        begin.await.map_err(|_| failed("the thread of the lease has ended".to_owned()))??;
        Ok(keeper)
    }

    /// The time in which the broker may work.
    #[must_use]
    pub const fn tenure(&self) -> &Arc<Tenure> {
        &self.tenure
    }

    /// Time of the store, which all its brokers share (CLU-14).
    #[must_use]
    pub const fn time(&self) -> &Arc<DatabaseTime> {
        &self.time
    }

    /// The broker stops: ends the tenure instead of waiting for the end of a suspension.
    pub fn stop_waiting(&self) {
        self.end.stopping.send_replace(true);
    }

    /// Ends the renewals. The store ends the lease when it is closed.
    pub fn end(&self) {
        self.end.now.notify_one();
        let thread = self.thread.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(thread) = thread {
            thread.join().ok();
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        // Not joined: a thread that must not block may drop the last reference.
        self.end.now.notify_one();
        self.tenure.end();
    }
}

/// State of the thread.
struct Keeping {
    registry: Arc<dyn Registry>,
    machine: Ownership,
    times: LeaseTimes,
    tenure: Arc<Tenure>,
    time: Arc<DatabaseTime>,
    end: Arc<End>,
    begun: Option<oneshot::Sender<Result<(), StoreError>>>,
    /// The owner that the log has named last.
    waits_for: Option<Arc<str>>,
    /// Whether the registry does not answer, as the log says.
    is_away: bool,
}

/// The keeper has ended, or the broker stops while it is suspended.
struct Ended;

/// Pause between a takeover and the renewal that shows its result.
const TAKING: TimeSpan = TimeSpan::from_ms(20);

impl Keeping {
    async fn run(&mut self) -> Result<(), Ended> {
        let registry = Arc::clone(&self.registry);
        loop {
            let sent_at = boot_time();
            // A later renewal may succeed while this one is lost.
            let late_at = sent_at.plus(self.times.valid_for().divided_by(2));
            let late = || Err(StoreError::Unavailable("no answer in time".into()));
            let answer = self.wait(late_at, registry.renew()).await?.unwrap_or_else(late);
            self.advance();
            let action = match answer {
                Ok(view) => self.judge(sent_at, &view),
                Err(error) => {
                    self.note_failure(&error)?;
                    None
                }
            };
            let mut next = sent_at.plus(self.times.renew);
            match action {
                Some(Action::Lose) => return Ok(()),
                Some(Action::Take(from)) => {
                    let late_at = boot_time().plus(self.times.valid_for().divided_by(2));
                    let taken = self.wait(late_at, registry.take(from)).await?;
                    if let Err(error) = taken.unwrap_or(Ok(())) {
                        tracing::warn!(%error, "the shards could not be taken over");
                    }
                    next = boot_time().plus(TAKING);
                }
                Some(Action::Begin | Action::Suspend | Action::Resume(_)) | None => {}
            }
            self.wait(next, std::future::pending::<()>()).await?;
        }
    }

    /// Waits for some work, at most until a boot time, and suspends the broker if its lease ends
    /// meanwhile.
    async fn wait<T>(
        &mut self,
        until: TimeSpan,
        work: impl Future<Output = T>,
    ) -> Result<Option<T>, Ended> {
        let mut work = pin!(work);
        let end = Arc::clone(&self.end);
        let mut stopping = end.stopping.subscribe();
        loop {
            let lease_over =
                self.machine.valid_until().filter(|_| self.machine.phase() == Phase::Owner);
            let is_suspended = matches!(self.machine.phase(), Phase::Suspended(_));
            tokio::select! {
                done = &mut work => return Ok(Some(done)),
                () = sleep_until(until) => return Ok(None),
                () = sleep_until(lease_over.unwrap_or_default()), if lease_over.is_some() => {
                    self.advance();
                }
                _ = stopping.wait_for(|is_stopping| *is_stopping), if is_suspended => {
                    self.tenure.end();
                    return Err(Ended);
                }
                () = end.now.notified() => return Err(Ended),
            }
        }
    }

    fn advance(&mut self) {
        if self.machine.advance(boot_time()) == Some(Action::Suspend) {
            tracing::warn!(
                "the lease could not be renewed in time: nothing leaves this broker until it is"
            );
        }
    }

    /// Judges the answer to a renewal.
    fn judge(&mut self, sent_at: TimeSpan, view: &View) -> Option<Action> {
        let now = boot_time();
        if std::mem::take(&mut self.is_away) {
            tracing::info!("the lease can be renewed again");
        }
        self.time.note(timestamp(view.now), sent_at, now);
        let action = self.machine.renewed(sent_at, now, view);
        let valid_until = self.machine.valid_until().unwrap_or_default();
        match action {
            Some(Action::Begin) => {
                tracing::info!("this broker owns the shards");
                self.tenure.extend(valid_until, TimeSpan::ZERO);
                if let Some(begun) = self.begun.take() {
                    begun.send(Ok(())).ok();
                }
            }
            Some(Action::Resume(suspended)) => {
                tracing::info!(suspended = ?suspended.to_std(), "the lease is renewed; work goes on");
                self.tenure.extend(valid_until, suspended);
            }
            Some(Action::Lose) => {
                tracing::error!(owner = name_of(view), "another broker has taken the shards over");
                self.tenure.end();
            }
            Some(Action::Take(_)) => {
                tracing::info!(from = name_of(view), "taking the shards over");
            }
            None if self.machine.phase() == Phase::Owner => {
                self.tenure.extend(valid_until, TimeSpan::ZERO);
            }
            Some(Action::Suspend) | None => self.note_wait(view),
        }
        action
    }

    /// A registry that refuses this broker ends the wait of a standby.
    fn note_failure(&mut self, error: &StoreError) -> Result<(), Ended> {
        if !error.is_unavailable()
            && let Some(begun) = self.begun.take()
        {
            begun.send(Err(error.clone())).ok();
            return Err(Ended);
        }
        if !std::mem::replace(&mut self.is_away, true) {
            tracing::warn!(%error, "the lease cannot be renewed; trying again");
        }
        Ok(())
    }

    fn note_wait(&mut self, view: &View) {
        if let Owner::Other { name, .. } = &view.owner
            && self.waits_for.as_ref() != Some(name)
        {
            tracing::info!(owner = &**name, "standing by for the broker that owns the shards");
            self.waits_for = Some(Arc::clone(name));
        }
    }
}

fn name_of(view: &View) -> &str {
    match &view.owner {
        Owner::Other { name, .. } => name,
        Owner::Nobody => "nobody",
        Owner::This => "this broker",
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

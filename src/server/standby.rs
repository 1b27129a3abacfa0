//! Start and end of a broker whose store other brokers may use: it stands by while another one owns
//! the messages (CLU-53). Meanwhile only probes are answered, so that clients go to the owner
//! ([decision 53](docs/decisions/0053-a-standby-listens-only-for-probes.md)). `server.rs` calls it.

use std::io::{self, Write as _};
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use peeklock::core::cluster::ownership::LeaseTimes;
use peeklock::http::{Readiness, StandbyHook, StandbyProbes, StandbyReport};
use peeklock::metrics_prometheus::standby_page;
use peeklock::store::Store;
use peeklock::store::registry::{Owner, View};
use peeklock::time::{TimeSpan, Timestamp};
use peeklock::tls::{Protocol, Tls};
use peeklock::{Broker, BrokerBuilder};
use tokio::sync::watch;

use super::ServeError;
use super::address_files::write_http_url;
use super::banner::{BannerTls, StandbyNotice};
use super::signals::Signals;
use super::supervisor::{self, TimeExtension, Watchdog};
use crate::config::Loaded;

/// Start of a broker.
pub struct Start<'a> {
    pub loaded: &'a Loaded,
    pub tls: Option<&'a Arc<Tls>>,
    pub store: Arc<dyn Store>,
    /// Requests for time, until the broker has started or stands by.
    pub opening: TimeExtension,
}

/// A start that a signal has ended.
pub struct Interruption {
    /// Name of the signal.
    pub signal: &'static str,
    /// The store, if it was opened.
    pub store: Option<Arc<dyn Store>>,
}

impl Interruption {
    /// Closes the store, so that no other broker waits for the lease of this one.
    pub async fn close_store(self) {
        if let Some(store) = self.store {
            close(store).await;
        }
    }
}

async fn close(store: Arc<dyn Store>) {
    let closed = tokio::task::spawn_blocking(move || store.close()).await;
    if !matches!(closed, Ok(Ok(()))) {
        tracing::warn!("the store could not be closed; its lease ends after its time");
    }
}

impl Start<'_> {
    /// Starts the broker, after it has stood by if another one owns its store. A signal ends the
    /// start of a broker that can stand by; another one is started first and then stopped.
    pub async fn run(
        self,
        builder: BrokerBuilder,
        signals: &mut Signals,
    ) -> Result<ControlFlow<Interruption, Broker>, ServeError> {
        if self.store.registry().is_none() {
            return Ok(ControlFlow::Continue(builder.start().await?));
        }
        let store = Arc::clone(&self.store);
        match self.wait(builder, signals).await {
            Ok(ControlFlow::Continue(broker)) => Ok(ControlFlow::Continue(broker)),
            Ok(ControlFlow::Break(signal)) => {
                Ok(ControlFlow::Break(Interruption { signal, store: Some(store) }))
            }
            Err(error) => {
                close(store).await;
                Err(error)
            }
        }
    }

    async fn wait(
        self,
        builder: BrokerBuilder,
        signals: &mut Signals,
    ) -> Result<ControlFlow<&'static str, Broker>, ServeError> {
        let (sender, mut views) = watch::channel(None);
        let observe = move |view: &View| drop(sender.send_replace(Some(view.clone())));
        let mut starting = builder.on_standby(observe).start();
        let mut opening = Some(self.opening);
        let mut standby = None;
        let outcome = loop {
            tokio::select! {
                biased;
                signal = signals.next() => break ControlFlow::Break(signal),
                started = &mut starting => break ControlFlow::Continue(started?),
                Ok(()) = views.changed(), if standby.is_none() => {
                    let Some(owner) = owner_in(&mut views) else { continue };
                    // A service that stands by has started, so it needs no more time.
                    opening = None;
                    let begun = Standby::begin(self.loaded, self.tls, views.clone(), &owner);
                    standby = Some(begun.await?);
                }
            }
        };
        drop(opening);
        if let Some(standby) = standby {
            standby.probes.stop().await;
        }
        Ok(outcome)
    }
}

/// Reports that the broker stops, and serves on for a while, so that load balancers send clients
/// elsewhere (CLU-53). A broker whose store no other one can use leaves at once, and so does a
/// suspended one, which serves nobody.
pub async fn leave(broker: &Broker, readiness: &Readiness, delay: TimeSpan) {
    readiness.end();
    if broker.lease_left().is_some_and(|left| left > TimeSpan::ZERO) {
        tokio::time::timeout(delay.to_std(), broker.failed()).await.ok();
    }
}

/// Name of another broker that owns the messages.
fn owner_in(views: &mut watch::Receiver<Option<View>>) -> Option<Arc<str>> {
    match &views.borrow_and_update().as_ref()?.owner {
        Owner::Other { name, is_barred: false, .. } => Some(Arc::clone(name)),
        // Nobody waits for the end of a lease.
        Owner::Other { .. } | Owner::This | Owner::Nobody => None,
    }
}

/// A process that stands by.
struct Standby {
    probes: StandbyProbes,
    _watchdog: Option<Watchdog>,
}

impl Standby {
    async fn begin(
        loaded: &Loaded,
        tls: Option<&Arc<Tls>>,
        views: watch::Receiver<Option<View>>,
        owner: &str,
    ) -> Result<Self, ServeError> {
        let mut config = loaded.config.http.clone();
        config.tls = tls.map(|tls| tls.acceptor(Protocol::Http));
        let times = loaded.config.cluster.times();
        let report: StandbyHook = Arc::new(move || {
            let view = views.borrow();
            let view = view.as_ref().map(|view| (view.now, &view.owner));
            StandbyReport { reason: reason(view, times), metrics: standby_page() }
        });
        let probes = StandbyProbes::start(&config, report)
            .await
            .map_err(|source| ServeError::Transport { source })?;
        let certificate = tls.map(|tls| tls.certificate());
        write_http_url(loaded, Some(probes.local_address()), certificate.as_ref())?;
        let notice = StandbyNotice {
            owner,
            name: &loaded.config.cluster.name,
            probes: probes.local_address(),
            tls: BannerTls::of(loaded),
            colours: crate::telemetry::colours(&io::stdout()),
        };
        let mut out = io::stdout().lock();
        if let Err(error) = write!(out, "{notice}").and_then(|()| out.flush()) {
            tracing::debug!(%error, "could not print the notice of a standby");
        }
        drop(out);
        Ok(Self { probes, _watchdog: supervisor::standing_by(owner) })
    }
}

/// Reason for which a standby is not ready.
fn reason(view: Option<(SystemTime, &Owner)>, times: LeaseTimes) -> String {
    let Some((now, Owner::Other { name, has_ended, is_barred: false, .. })) = view else {
        return "this broker has taken over and opens the messages; retry in 10 s".to_owned();
    };
    if *has_ended {
        return format!(
            "standing by: the lease of the broker `{name}` has ended, and this broker takes over \
             when it has renewed its own for {} ms; retry in 10 s",
            times.lease.as_ms()
        );
    }
    let until = timestamp(now).plus(times.lease);
    format!(
        "standing by: the broker `{name}` owns the messages, at most until {until} if it does not \
         renew its lease; use that broker, or retry in 10 s"
    )
}

fn timestamp(at: SystemTime) -> Timestamp {
    let since = at.duration_since(UNIX_EPOCH).unwrap_or_default();
    Timestamp::from_unix_ms(i64::try_from(since.as_millis()).unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use peeklock::store::registry::{Incarnation, SeenOwner};

    use super::*;

    /// CLU-53: the reason of a standby names the owner, and the latest end of its lease.
    #[test]
    fn reason_names_owner_and_end_of_its_lease() {
        let of = |owner| {
            let now = UNIX_EPOCH + Duration::from_secs(1_800_000_000);
            reason(Some((now, &owner)), LeaseTimes::default())
        };
        let other = |has_ended| Owner::Other {
            seen: SeenOwner { incarnation: Incarnation(7), renewal: 9 },
            name: "left".into(),
            has_ended,
            is_barred: false,
        };
        let (owned, ended) = (of(other(false)), of(other(true)));
        assert!(
            owned.contains("`left`") && owned.contains("until 2027-01-15T08:00:03Z"),
            "{owned}"
        );
        assert!(ended.contains("`left` has ended") && ended.contains("3000 ms"), "{ended}");
        assert!(of(Owner::This).contains("opens the messages"));
    }
}

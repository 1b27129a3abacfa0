//! State of a broker that its handles and its actors share. The builder makes it, once for each
//! broker.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use crate::activity::Activity;
use crate::actor::directory::Directory;
use crate::actor::pulse::Pulses;
use crate::admission::{Budget, Loads, Pool, Turns};
use crate::census::Census;
use crate::checks::Checks;
use crate::clients::Clients;
use crate::clock::Clock;
use crate::cluster::keeper::Keeper;
use crate::cluster::tenure::Tenure;
use crate::contract::{Auditor, Authorizer, JobKeeper, Tracer};
use crate::description::Settings;
use crate::edge::Edge;
use crate::forwarders::Forwarders;
use crate::grant::{ExpiringGrants, SignIns};
use crate::ids::Ticket;
use crate::journeys::Journeys;
use crate::limits::Tier;
use crate::policies::Policies;
use crate::refusals::Refusals;
use crate::samples::Samples;
use crate::search::Searches;
use crate::series::SeriesCollector;
use crate::store::{Store, StoreError};
use crate::survey::Surveys;
use crate::taps::Taps;
use crate::time::{TimeSpan, Timestamp};
use crate::transaction::TransactionBudget;

/// State that all handles and actors of a broker share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) namespace: Namespace,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) directory: Directory,
    pub(crate) edge: Edge,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) expiring_grants: Arc<ExpiringGrants>,
    pub(crate) policies: Policies,
    /// Console tokens.
    pub(crate) sign_ins: SignIns,
    pub(crate) budget: Budget,
    pub(crate) parking: Budget,
    /// Management has a budget of its own: transports hold permits of `budget` for their clients
    /// while they make management requests, so a shared budget could deadlock.
    pub(crate) management: Budget,
    /// Limits the number of large answers that are built at once.
    pub(crate) turns: Turns,
    pub(crate) outbound: Arc<Pool>,
    /// Room for contents that the broker loads for itself.
    pub(crate) loads: Loads,
    pub(crate) transactions: Arc<TransactionBudget>,
    pub(crate) health: Health,
    /// Time in which this broker may work.
    pub(crate) tenure: Arc<Tenure>,
    /// Keeper of the tenure, if other brokers may use the store.
    pub(crate) keeper: Option<Keeper>,
    pub(crate) pulses: Pulses,
    /// Memory totals of all machines.
    pub(crate) census: Arc<Census>,
    pub(crate) tickets: AtomicU64,
    /// Connected clients, and the source of receiver ids.
    pub(crate) clients: Arc<Clients>,
    /// Counts and rates of all entities.
    pub(crate) surveys: Surveys,
    /// Open taps on entities.
    pub(crate) taps: Arc<Taps>,
    /// Stations of messages, if they are kept.
    pub(crate) journeys: Option<Arc<Journeys>>,
    /// Last published messages of topics, if they are kept.
    pub(crate) samples: Option<Arc<Samples>>,
    /// Values of all entities over time.
    pub(crate) series: SeriesCollector,
    /// Checks of all entities.
    pub(crate) checks: Checks,
    /// Places of open searches.
    pub(crate) searches: Searches,
    /// Whether every entity in the store has been opened.
    pub(crate) are_open: watch::Sender<bool>,
    /// Whether the broker is stopping.
    pub(crate) is_stopping: watch::Sender<bool>,
    pub(crate) forwarders: Forwarders,
    pub(crate) refusals: Refusals,
    /// Bounds the entries of failed sign-ins in the audit trail.
    pub(crate) failed_sign_ins: Refusals,
    /// Keeper of the audit trail, if there is one.
    pub(crate) auditor: Option<Arc<dyn Auditor>>,
    /// Keeper of jobs, if there is one.
    pub(crate) jobs: Option<Arc<dyn JobKeeper>>,
    /// Receiver of finished operations, if there is one.
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
    pub(crate) activity: Activity,
    /// Number of arbiters set in the builder; none for the number of cores.
    pub(crate) arbiter_count: Option<usize>,
}

/// Pause before a call is repeated that has failed because the store is not available.
const OUTAGE_PAUSE: TimeSpan = TimeSpan::from_seconds(1);

impl Shared {
    /// Repeats a call of the store while the store is not available. Returns the error if the
    /// broker stops meanwhile.
    pub(crate) async fn outlast<T>(
        &self,
        mut call: impl AsyncFnMut() -> Result<T, StoreError>,
    ) -> Result<T, StoreError> {
        let mut began_at = None;
        loop {
            let error = match call().await {
                Err(error) if error.is_unavailable() => error,
                result => {
                    if let Some(began_at) = began_at {
                        let outage = self.clock.now().since(began_at).to_std();
                        tracing::info!(?outage, "the store is available again");
                    }
                    return result;
                }
            };
            if began_at.is_none() {
                tracing::warn!(%error, "the store is not available; its work is repeated until it is");
                began_at = Some(self.clock.now());
            }
            let mut is_stopping = self.is_stopping.subscribe();
            tokio::select! {
                () = self.clock.sleep_until(self.clock.now().plus(OUTAGE_PAUSE)) => {}
                _ = is_stopping.wait_for(|is_stopping| *is_stopping) => return Err(error),
            }
        }
    }

    /// Whether clients without credentials are admitted (SEC-17).
    pub(crate) fn allows_anonymous(&self) -> bool {
        // A panic in an authorizer is a refusal.
        catch_unwind(AssertUnwindSafe(|| self.authorizer.allows_anonymous())).unwrap_or(false)
    }

    /// Returns a new unique name for a command.
    pub(crate) fn ticket(&self) -> Ticket {
        Ticket(self.tickets.fetch_add(1, Ordering::Relaxed))
    }
}

/// Facts about a namespace (CNT-10).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Namespace {
    /// Name of the namespace.
    pub name: Box<str>,
    /// Tier of the namespace.
    pub tier: Tier,
    /// Time of the first creation of an entity; of a namespace in memory, the start of the broker.
    pub created_at: Timestamp,
    /// Time of the last change of name or tier, which happens at a start.
    pub modified_at: Timestamp,
}

/// Records whether the broker can work.
pub(crate) struct Health {
    failure: watch::Sender<Option<String>>,
}

impl Health {
    pub(crate) fn new() -> Self {
        Self { failure: watch::Sender::new(None) }
    }

    pub(crate) fn fail(&self, why: &str) {
        self.failure.send_if_modified(|failure| {
            let first = failure.is_none();
            failure.get_or_insert_with(|| why.to_owned());
            first
        });
    }

    /// Reason why the broker can no longer work.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    /// Waits until the broker can no longer work, and returns the reason.
    pub(crate) async fn failed(&self) -> String {
        let mut failure = self.failure.subscribe();
        match failure.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }
}

//! Builds and starts a broker: settings, clock, store, authorizer, threads. Programs call
//! [`Broker::builder`]. A broker is returned only after its store is open and its entities are
//! restored.

use std::path::Path;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex};

use actix::Actor;
use tokio::sync::{Notify, oneshot};

use crate::activity::{Activity, WatchScope};
use crate::actor::directory::Directory;
use crate::actor::namespace::{self, NamespaceActor};
use crate::actor::pulse::Pulses;
use crate::admission::{Budget, Loads, Pool, Turns};
use crate::broker::{Broker, Engine};
use crate::call::BoxFuture;
use crate::checks::{Checks, ChecksConfig};
use crate::clients::Clients;
use crate::clock::{Clock, SystemClock};
use crate::cluster::keeper::{Keeper, OnStandby};
use crate::cluster::ownership::LeaseTimes;
use crate::cluster::tenure::{Ending, Tenure};
use crate::contract::{AllowAll, Auditor, Authorizer, Forwarder, JobKeeper, JobRunner, Tracer};
use crate::description::Settings;
use crate::edge::{Edge, Entropy};
use crate::error::Rejection;
use crate::forwarders::Forwarders;
use crate::grant::SignIns;
use crate::journeys::{Journeys, JourneysConfig};
use crate::policies::Policies;
use crate::refusals::Refusals;
use crate::samples::{Samples, SamplesConfig};
use crate::search::Searches;
use crate::series::{SeriesCollector, SeriesConfig};
use crate::shared::{Health, Namespace, Shared};
use crate::shell::writer::ShardWriter;
use crate::store::registry::View;
use crate::store::{Journal, JournalConfig, MemoryStore, Shard, Store, StoreError};
use crate::survey::Surveys;
use crate::time::Timestamp;
use crate::transaction::TransactionBudget;

/// Number of shards of a memory store, independent of the number of cores.
const MEMORY_SHARDS: u16 = 16;

/// Error of a broker that could not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting is out of its bounds.
    #[error("settings are not valid: {0}")]
    Settings(Rejection),
    /// The clock is so late that instants could be mistaken for "never" (FND-09).
    #[error("the clock shows {0}; set it to a time before 9990")]
    Clock(Timestamp),
    /// The store could not be read or acquired.
    #[error("store cannot be opened: {0}")]
    Store(#[from] StoreError),
    /// Another broker uses these policies.
    #[error("the policies belong to another broker; give each broker its own")]
    Policies,
    /// The operating system returned no random bits.
    #[error("cannot get random bytes: {0}")]
    Entropy(String),
    /// The store cannot copy its content; only a store in memory can.
    #[error("the store `{0}` cannot be forked")]
    NoFork(&'static str),
    /// The threads could not be started.
    #[error("threads cannot be started: {0}")]
    Threads(String),
}

/// 9990-01-01: from then on, an instant plus a time to live may reach the last instant, which means
/// never.
const LATEST_START: Timestamp = Timestamp::from_unix_ms(253_086_768_000_000);

/// Builder of a broker.
///
/// ```
/// # use peeklock_core as peeklock;
/// use std::sync::Arc;
///
/// use peeklock::Broker;
/// use peeklock::clock::ManualClock;
/// use peeklock::description::Settings;
/// use peeklock::limits::Tier;
/// use peeklock::time::Timestamp;
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let newyear = Timestamp::parse("2027-01-01T00:00:00Z").unwrap();
/// let broker = Broker::builder()
///     .settings(Settings::new("shop", Tier::Standard))
///     .clock(Arc::new(ManualClock::at(newyear)))
///     .arbiters(1)
///     .start()
///     .await?;
/// assert_eq!(broker.now(), newyear);
/// # broker.stop(std::time::Duration::ZERO).await?;
/// # Ok(())
/// # }
/// ```
pub struct BrokerBuilder {
    settings: Settings,
    clock: Option<Arc<dyn Clock>>,
    store: Option<Arc<dyn Store>>,
    authorizer: Arc<dyn Authorizer>,
    policies: Option<Policies>,
    arbiter_count: Option<usize>,
    forwarders: Vec<Arc<dyn Forwarder>>,
    tracer: Option<Arc<dyn Tracer>>,
    auditor: Option<Arc<dyn Auditor>>,
    jobs: Option<Arc<dyn JobRunner>>,
    series: Option<SeriesConfig>,
    journeys: Option<JourneysConfig>,
    samples: Option<SamplesConfig>,
    checks: Option<ChecksConfig>,
    pub(crate) watch: WatchScope,
    key: Option<[u8; 16]>,
    lease: LeaseTimes,
    on_standby: Option<OnStandby>,
}

impl Default for BrokerBuilder {
    fn default() -> Self {
        Self {
            settings: Settings::default(),
            clock: None,
            store: None,
            authorizer: Arc::new(AllowAll),
            policies: None,
            arbiter_count: None,
            forwarders: Vec::new(),
            tracer: None,
            auditor: None,
            jobs: None,
            series: None,
            journeys: None,
            samples: None,
            checks: None,
            watch: WatchScope::Nothing,
            key: None,
            lease: LeaseTimes::default(),
            on_standby: None,
        }
    }
}

impl Broker {
    /// Returns a builder with default settings.
    #[must_use]
    pub fn builder() -> BrokerBuilder {
        BrokerBuilder::default()
    }
}

impl BrokerBuilder {
    /// Sets name, tier and limits; by default the values of a Premium namespace.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// Sets the store of messages; by default in memory. For a directory on disk see
    /// [`Self::data_dir`].
    #[must_use]
    pub fn store(mut self, store: Arc<dyn Store>) -> Self {
        self.store = Some(store);
        self
    }

    /// Stores messages durably in a directory, in a journal with default settings. Creates the
    /// directory if it does not exist. Only one process at a time can use a directory.
    ///
    /// # Errors
    /// A directory that cannot be opened or is damaged; see [`Journal::open`].
    pub fn data_dir(self, path: impl AsRef<Path>) -> Result<Self, StoreError> {
        let journal = Journal::open(path.as_ref(), JournalConfig::default())?;
        Ok(self.store(journal))
    }

    /// Sets the clock; by default the system's (FND-06).
    #[must_use]
    pub fn clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = Some(clock);
        self
    }

    /// Sets the authorizer; by default everything is allowed. It is asked about clients of
    /// [`Broker::access`], that is, of transports; handles of the program itself are not checked
    /// (SEC-17).
    #[must_use]
    pub fn authorizer(mut self, authorizer: Arc<dyn Authorizer>) -> Self {
        self.authorizer = authorizer;
        self
    }

    /// Sets the collection of policies, in which an authorizer looks them up. A namespace without
    /// policies then gets a first one (SEC-04). Each broker needs its own.
    #[must_use]
    pub fn policies(mut self, policies: &Policies) -> Self {
        self.policies = Some(policies.clone());
        self
    }

    /// Sets the number of threads that serve entities; by default the number of cores.
    #[must_use]
    pub const fn arbiters(mut self, count: usize) -> Self {
        self.arbiter_count = Some(count);
        self
    }

    /// Adds a forwarder: an entity whose ForwardTo or ForwardDeadLetteredMessagesTo starts with one
    /// of its schemes forwards to it (FWD-31). If two forwarders have the same scheme, the later
    /// one serves it. A destination without a forwarder for its scheme is refused.
    #[must_use]
    pub fn forwarder(mut self, forwarder: Arc<dyn Forwarder>) -> Self {
        self.forwarders.push(forwarder);
        self
    }

    /// Sets the tracer, which gets every operation of a client: sends, receives and settlements.
    /// Operations of the broker itself, such as forwarding, are not reported. Without a tracer,
    /// nothing is recorded.
    #[must_use]
    pub fn tracer(mut self, tracer: Arc<dyn Tracer>) -> Self {
        self.tracer = Some(tracer);
        self
    }

    /// Sets the auditor, which gets the actions of operators before they begin (CON-23). An action
    /// whose entry it cannot write is refused. Without an auditor, nothing is recorded.
    #[must_use]
    pub fn auditor(mut self, auditor: Arc<dyn Auditor>) -> Self {
        self.auditor = Some(auditor);
        self
    }

    /// Sets the keeper of jobs, which carries out deeds of operators on many messages (CON-12).
    /// Without a keeper, requests for jobs are refused.
    #[must_use]
    pub fn jobs(mut self, jobs: Arc<dyn JobRunner>) -> Self {
        self.jobs = Some(jobs);
        self
    }

    /// Collects series: counts, gauges and times of each entity over time (CON-31). Without this,
    /// nothing is collected.
    #[must_use]
    pub fn series(mut self, config: SeriesConfig) -> Self {
        self.series = Some(config);
        self
    }

    /// Keeps the journeys of messages: their stations from acceptance to settlement, also in other
    /// entities (CON-29). Without this, questions for journeys are refused.
    #[must_use]
    pub const fn journeys(mut self, config: JourneysConfig) -> Self {
        self.journeys = Some(config);
        self
    }

    /// Keeps the properties of the last published messages of each topic, on which rules can be
    /// tried (CON-36). Without this, questions for samples are refused, and trials use stored
    /// messages only.
    #[must_use]
    pub const fn samples(mut self, config: SamplesConfig) -> Self {
        self.samples = Some(config);
        self
    }

    /// Checks the broker and all entities each minute, and reports faults (CON-39). Without this,
    /// questions for findings are refused.
    #[must_use]
    pub fn checks(mut self, config: ChecksConfig) -> Self {
        self.checks = Some(config);
        self
    }

    /// Counts the work of consumers and couriers, so that [`Broker::idle`] waits for it. For tests;
    /// it slows each delivery a little.
    #[must_use]
    pub const fn count_work(mut self) -> Self {
        self.watch = WatchScope::All;
        self
    }

    /// As [`Self::count_work`], without the work of clients, which the waiting test does itself.
    #[must_use]
    pub const fn count_internal_work(mut self) -> Self {
        self.watch = WatchScope::Inside;
        self
    }

    /// Derives random values, such as lock tokens and message ids, from this key, so that they are
    /// reproducible. For tests: the key reveals every lock token.
    #[must_use]
    pub const fn random_key(mut self, key: [u8; 16]) -> Self {
        self.key = Some(key);
        self
    }

    /// Sets the times of leases, if several brokers may use the store (CLU-16).
    #[must_use]
    pub const fn lease(mut self, times: LeaseTimes) -> Self {
        self.lease = times;
        self
    }

    /// Sets a function that gets the answer to each renewal while this broker stands by for another
    /// one. It is called on the thread of the lease and must not block.
    #[must_use]
    pub fn on_standby(mut self, observe: impl Fn(&View) + Send + Sync + 'static) -> Self {
        self.on_standby = Some(Arc::new(observe));
        self
    }

    /// Starts the broker's own threads and opens every entity in the store. Returns when all are
    /// open. If another broker owns the shards of the store, it first waits until the lease of that
    /// broker is over. While it waits, the future can be dropped. Works in any runtime, and several
    /// times in one process.
    ///
    /// # Errors
    /// See [`StartError`].
    pub fn start(self) -> BoxFuture<'static, Result<Broker, StartError>> {
        Box::pin(self.start_threads())
    }

    async fn start_threads(self) -> Result<Broker, StartError> {
        self.settings.validate().map_err(StartError::Settings)?;
        let key = self.key;
        let entropy = || match key {
            Some(key) => Ok(Entropy::with_key(key)),
            None => Entropy::from_system().map_err(|error| StartError::Entropy(error.to_string())),
        };
        let limits = self.settings.limits.clone();
        let store =
            self.store.unwrap_or_else(|| Arc::new(MemoryStore::new(MEMORY_SHARDS, u64::MAX)));
        let keeper = match store.registry() {
            Some(registry) => Some(Keeper::stand_by(registry, self.lease, self.on_standby).await?),
            None => None,
        };
        let clock = self.clock.unwrap_or_else(|| {
            Arc::new(keeper.as_ref().map_or_else(SystemClock::start, |keeper| {
                SystemClock::following(Arc::clone(keeper.time()))
            }))
        });
        if let Some(keeper) = &keeper {
            keeper.set_clock(Arc::clone(&clock));
        }
        let now = clock.now();
        if now >= LATEST_START {
            return Err(StartError::Clock(now));
        }
        let fresh_key = entropy()?.next_u128().to_be_bytes();
        let mut loaded = namespace::load(&*store, &self.settings, now, fresh_key).await?;
        loaded.has_policies = self.policies.is_some();
        let policies = self.policies.unwrap_or_default();
        if policies.is_used() {
            return Err(StartError::Policies);
        }
        policies.begin(&clock);
        let budget =
            Budget::of_broker(limits.broker_inbound_bytes_max, limits.broker_inbound_count_max);
        let clients: Arc<Clients> = Arc::default();
        let journeys = self.journeys.map(|config| {
            let clients = Arc::clone(&clients);
            Arc::new(Journeys::new(&config, clients, loaded.duplicate_key, now))
        });
        let shared = Arc::new(Shared {
            edge: Edge::new(entropy()?, &limits, loaded.duplicate_key),
            namespace: Namespace {
                name: self.settings.name.clone(),
                tier: limits.tier,
                created_at: loaded.facts.created_at,
                modified_at: loaded.facts.modified_at,
            },
            settings: self.settings,
            clock,
            store,
            directory: Directory::default(),
            authorizer: self.authorizer,
            expiring_grants: Arc::default(),
            policies,
            sign_ins: SignIns::default(),
            parking: budget.parking(),
            management: budget.parking(),
            turns: Turns::default(),
            outbound: Pool::new(limits.broker_outbound_bytes_max),
            loads: Loads::new(limits.broker_loaded_bytes_max),
            // One operation never needs the whole budget: its own transaction already holds a part.
            transactions: Arc::new(TransactionBudget::new(Budget::of_broker(
                limits.broker_inbound_bytes_max / 2,
                usize::MAX,
            ))),
            budget,
            health: Health::new(),
            tenure: keeper
                .as_ref()
                .map_or_else(|| Arc::new(Tenure::permanent()), |one| Arc::clone(one.tenure())),
            keeper,
            pulses: Pulses::default(),
            census: Arc::default(),
            tickets: AtomicU64::new(1),
            clients,
            surveys: Surveys::default(),
            taps: Arc::default(),
            journeys,
            samples: self.samples.map(|config| Arc::new(Samples::new(config))),
            series: SeriesCollector::new(self.series),
            checks: Checks::new(self.checks),
            searches: Searches::default(),
            forwarders: Forwarders::new(self.forwarders, limits.forwarder_thread_count_max),
            refusals: Refusals::default(),
            failed_sign_ins: Refusals::default(),
            auditor: self.auditor,
            jobs: self.jobs.clone().map(|jobs| jobs as Arc<dyn JobKeeper>),
            are_open: tokio::sync::watch::Sender::new(false),
            is_stopping: tokio::sync::watch::Sender::new(false),
            tracer: self.tracer,
            activity: Activity::new(self.watch),
            arbiter_count: self.arbiter_count,
        });
        // A weak reference: the store may live longer than the broker.
        let watched = Arc::downgrade(&shared);
        shared.store.watch(Box::new(move |error| {
            if let Some(shared) = watched.upgrade() {
                shared.health.fail(&error.to_string());
            }
        }));
        if shared.keeper.is_some() {
            let lost = Arc::downgrade(&shared);
            shared.tenure.when_ended(Box::new(move |ending| {
                let why = match ending {
                    Ending::Lost => "another broker has taken the shards of the store over",
                    Ending::Failed => "the renewals of the lease have ended",
                    Ending::Stopped => return,
                };
                if let Some(shared) = lost.upgrade() {
                    shared.health.fail(why);
                }
            }));
        }
        let arbiter_count = self.arbiter_count.unwrap_or_else(|| {
            std::thread::available_parallelism().map_or(1, std::num::NonZeroUsize::get)
        });
        let engine = Arc::new(Engine { end: Notify::new(), thread: Mutex::new(None) });
        let (started, start) = oneshot::channel();
        let (opened, open) = oneshot::channel();
        let mut unfinished = UnfinishedStart(Some((Arc::clone(&shared), Arc::clone(&engine))));
        let parts = (Arc::clone(&shared), Arc::clone(&engine), loaded, arbiter_count.max(1));
        let thread = std::thread::Builder::new()
            .name("peeklock".to_owned())
            .spawn(move || run(parts, started, opened))
            .map_err(|error| StartError::Threads(error.to_string()))?;
        if let Ok(mut place) = engine.thread.lock() {
            *place = Some(thread);
        }
        let ended = || StartError::Threads("the broker's thread ended".to_owned());
        let namespace = start.await.map_err(|_| ended())??;
        open.await.map_err(|_| ended())?;
        unfinished.0 = None;
        if let Some(keeper) = &shared.keeper {
            keeper.report_takeover(shared.store.shard_count());
        }
        let broker = Broker { shared, namespace, engine, management_place: None };
        if let Some(jobs) = &self.jobs
            && let Err(error) = jobs.begin(broker.clone())
        {
            broker.abandon();
            return Err(StartError::Threads(error.to_string()));
        }
        Ok(broker)
    }
}

/// A start that may be given up while the threads of the broker open its entities. Then nobody has a
/// handle on the broker, and its lease must end.
struct UnfinishedStart(Option<(Arc<Shared>, Arc<Engine>)>);

impl Drop for UnfinishedStart {
    fn drop(&mut self) {
        let Some((shared, engine)) = self.0.take() else { return };
        if let Some(keeper) = &shared.keeper {
            keeper.abandon();
        }
        engine.end.notify_one();
    }
}

type Started = oneshot::Sender<Result<actix::Addr<NamespaceActor>, StartError>>;

/// The broker's System: its thread runs until the broker is stopped.
fn run(
    (shared, engine, loaded, arbiter_count): (
        Arc<Shared>,
        Arc<Engine>,
        namespace::StoredNamespace,
        usize,
    ),
    started: Started,
    opened: oneshot::Sender<()>,
) {
    actix::System::new().block_on(async move {
        let arbiters: Vec<actix::Arbiter> =
            (0..arbiter_count).map(|_| actix::Arbiter::new()).collect();
        let handles: Vec<actix::ArbiterHandle> =
            arbiters.iter().map(actix::Arbiter::handle).collect();
        let mut writers = Vec::new();
        for shard in 0..shared.store.shard_count() {
            let handle = handles.first().cloned();
            // One turn later, not from within the completion of the store.
            let on_unknown = Box::new(move |writer: Arc<ShardWriter>| {
                if let Some(handle) = &handle {
                    handle.spawn(async move { writer.resubmit() });
                }
            });
            let store = Arc::clone(&shared.store);
            match ShardWriter::acquire(store, Shard(shard), on_unknown).await {
                Ok(writer) => writers.push(writer),
                Err(error) => {
                    started.send(Err(error.into())).ok();
                    return;
                }
            }
        }
        let (expiring_grants, clock) =
            (Arc::clone(&shared.expiring_grants), Arc::clone(&shared.clock));
        let taps = Arc::clone(&shared.taps);
        let sampled = Arc::clone(&shared);
        let written = Arc::clone(&shared);
        let series = async move {
            // Entities that are not open yet have no counts.
            let mut are_open = sampled.are_open.subscribe();
            if are_open.wait_for(|are_open| *are_open).await.is_ok() {
                sampled.series.run(&sampled.directory, &*sampled.clock).await;
            }
            std::future::pending().await
        };
        let checked = Arc::clone(&shared);
        let checks = async move {
            let mut are_open = checked.are_open.subscribe();
            if are_open.wait_for(|are_open| *are_open).await.is_ok() {
                checked.checks.run(&checked).await;
            }
            std::future::pending().await
        };
        let actor = NamespaceActor::new(shared, writers, handles, loaded, opened);
        started.send(Ok(actor.start())).ok();
        tokio::select! {
            () = engine.end.notified() => {}
            // This thread has no other work, so grants end in time (SEC-15).
            () = expiring_grants.run(&*clock) => {}
            () = taps.run(&*clock) => {}
            () = series => {}
            () = checks => {}
        }
        for arbiter in arbiters {
            arbiter.stop();
            arbiter.join().ok();
        }
        written.series.write_all();
    });
}

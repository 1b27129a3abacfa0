//! State of a broker that its handles and its actors share.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;

use crate::activity::Activity;
use crate::actor::directory::Directory;
use crate::actor::pulse::Pulses;
use crate::admission::{Budget, Loads, Pool, Turns};
use crate::census::Census;
use crate::clock::Clock;
use crate::contract::{Authorizer, Tracer};
use crate::description::Settings;
use crate::edge::Edge;
use crate::forwarders::Forwarders;
use crate::grant::Lapses;
use crate::ids::Ticket;
use crate::limits::Tier;
use crate::policies::Policies;
use crate::refusals::Refusals;
use crate::store::Store;
use crate::time::Timestamp;
use crate::transaction::Purse;

/// State that all handles and actors of a broker share.
pub(crate) struct Shared {
    pub(crate) settings: Settings,
    pub(crate) namespace: Namespace,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) directory: Directory,
    pub(crate) edge: Edge,
    pub(crate) authorizer: Arc<dyn Authorizer>,
    pub(crate) lapses: Arc<Lapses>,
    pub(crate) policies: Policies,
    pub(crate) budget: Budget,
    pub(crate) parking: Budget,
    /// What is asked about entities as such draws on a budget of its own: transports ask it while they hold
    /// room of the other for what has asked them.
    pub(crate) management: Budget,
    /// Turns at what is large when it is made.
    pub(crate) turns: Turns,
    pub(crate) outbound: Arc<Pool>,
    /// Room for what the broker loads for itself.
    pub(crate) loads: Loads,
    pub(crate) transactions: Arc<Purse>,
    pub(crate) health: Health,
    pub(crate) pulses: Pulses,
    /// What all machines keep together.
    pub(crate) census: Arc<Census>,
    pub(crate) tickets: AtomicU64,
    pub(crate) receivers: AtomicU64,
    /// Whether every entity that the store has was opened.
    pub(crate) are_open: watch::Sender<bool>,
    pub(crate) forwarders: Forwarders,
    pub(crate) refusals: Refusals,
    /// Who is told of operations, if anybody is.
    pub(crate) tracer: Option<Arc<dyn Tracer>>,
    pub(crate) activity: Activity,
    /// As the builder was told; none for as many as there are cores.
    pub(crate) arbiter_count: Option<usize>,
}

impl Shared {
    /// A name for a command, never given before.
    pub(crate) fn ticket(&self) -> Ticket {
        Ticket(self.tickets.fetch_add(1, Ordering::Relaxed))
    }
}

/// What is told of a namespace (CNT-10).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Namespace {
    /// Its name.
    pub name: Box<str>,
    /// Its tier.
    pub tier: Tier,
    /// When it was created: when the first entity was, or, of a namespace in memory, when the broker was started.
    pub created_at: Timestamp,
    /// When name or tier were last changed, which is at a start.
    pub modified_at: Timestamp,
}

/// Whether the broker can do its work.
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

    /// Reason why the broker cannot do its work any more.
    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.borrow().clone()
    }

    /// Waits until the broker cannot do its work any more, and returns the reason.
    pub(crate) async fn failed(&self) -> String {
        let mut failure = self.failure.subscribe();
        match failure.wait_for(Option::is_some).await {
            Ok(why) => why.clone().unwrap_or_default(),
            Err(_) => std::future::pending().await,
        }
    }
}

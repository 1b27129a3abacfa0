//! A broker whose authorizer the test controls.

use std::collections::HashMap;
use std::future::Future;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use async_trait::async_trait;
use peeklock_core::clock::{Clock, ManualClock};
use peeklock_core::condition::Condition;
use peeklock_core::contract::{Authorizer, Grant, Principal};
use peeklock_core::description::QueueUpdate;
use peeklock_core::error::Rejection;
use peeklock_core::request::{Outlet, Released};
use peeklock_core::time::Timestamp;
use peeklock_core::{Access, Broker};
use tokio::sync::mpsc;

const TEST_TIME_MAX: Duration = Duration::from_secs(60);

/// Grants by token and resource as the test has set, and refuses everything else.
#[derive(Default)]
pub struct TestAuthorizer {
    grants: Mutex<HashMap<(String, String), Grant>>,
    pub asked: AtomicUsize,
    pub asked_of_many: AtomicUsize,
    pub panics: Mutex<bool>,
}

impl TestAuthorizer {
    pub fn grant(&self, token: &str, resource: &str, grant: Grant) {
        self.grants.lock().unwrap().insert((token.to_owned(), resource.to_owned()), grant);
    }

    fn answer(&self, principal: &Principal, resource: &str) -> Result<Grant, Rejection> {
        assert!(!*self.panics.lock().unwrap(), "as the test wants it");
        let Some(token) = &principal.token else {
            return Err(Rejection::unauthorized("no token was presented"));
        };
        let grants = self.grants.lock().unwrap();
        let grant = grants.get(&(token.to_string(), resource.to_owned()));
        let any = || grants.get(&(token.to_string(), "*".to_owned()));
        Ok(grant.or_else(any).cloned().unwrap_or_else(Grant::nothing))
    }
}

#[async_trait]
impl Authorizer for TestAuthorizer {
    async fn authorize(&self, principal: &Principal, resource: &str) -> Result<Grant, Rejection> {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.answer(principal, resource)
    }

    async fn authorize_all(&self, principal: &Principal, resources: &[Arc<str>]) -> Vec<Grant> {
        self.asked_of_many.fetch_add(1, Ordering::Relaxed);
        let answer = |resource: &Arc<str>| self.answer(principal, resource);
        resources.iter().map(|it| answer(it).unwrap_or_else(|_| Grant::nothing())).collect()
    }

    fn allows_anonymous(&self) -> bool {
        assert!(!*self.panics.lock().unwrap(), "as the test wants it");
        true
    }
}

pub struct World {
    pub broker: Broker,
    pub clock: Arc<ManualClock>,
    pub authorizer: Arc<TestAuthorizer>,
}

impl World {
    /// Creates a broker with the queue `q`.
    pub async fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-05-01T12:00:00Z").unwrap()));
        let authorizer = Arc::new(TestAuthorizer::default());
        let broker = Broker::builder()
            .arbiters(1)
            .clock(Arc::clone(&clock) as Arc<dyn Clock>)
            .authorizer(Arc::clone(&authorizer) as Arc<dyn Authorizer>)
            .start()
            .await
            .unwrap();
        broker.create_queue("q", QueueUpdate::default()).await.unwrap();
        Self { broker, clock, authorizer }
    }

    /// Access of the bearer of a token.
    pub fn access(&self, token: &str) -> Access {
        self.broker.access(Principal::anonymous().with_token(token))
    }

    /// Access of the bearer of a token with the same grant for every resource.
    pub fn granted(&self, token: &str, grant: Grant) -> Access {
        self.authorizer.grant(token, "*", grant);
        self.access(token)
    }
}

/// The outlet of a connection.
pub struct Line {
    released: mpsc::UnboundedSender<Released>,
}

impl Line {
    pub fn open() -> (Arc<dyn Outlet>, mpsc::UnboundedReceiver<Released>) {
        let (released, mail) = mpsc::unbounded_channel();
        (Arc::new(Self { released }), mail)
    }
}

impl Outlet for Line {
    fn release(&self, group: Vec<Released>) {
        for one in group {
            self.released.send(one).ok();
        }
    }
}

pub fn condition<T>(result: &Result<T, peeklock_core::error::BrokerError>) -> Option<Condition> {
    result.as_ref().err().map(|error| error.condition())
}

/// Runs a test body with a guard against hanging.
pub async fn in_time<T>(body: impl Future<Output = T>) -> T {
    tokio::time::timeout(TEST_TIME_MAX, body).await.unwrap()
}

//! A broker with a policy for each set of rights, at the namespace and at each entity.

use std::sync::Arc;
use std::time::Duration;

use peeklock_auth_sas::{SasAuthorizer, SasConfig};
use peeklock_client::{Client, Received};
use peeklock_core::clock::{Clock, ManualClock};
use peeklock_core::contract::{Authorizer, Principal, Right};
use peeklock_core::description::{Cleared, QueueUpdate, SubscriptionUpdate};
use peeklock_core::message::Message;
use peeklock_core::policies::{KeyText, Policies, PolicyUpdate, WhichKey};
use peeklock_core::rule::{Filter, RuleDescription};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::{Access, Broker};

use crate::needs::RIGHTS;

pub const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// A key that no policy ever had.
pub const OTHER_KEY: &str = "AQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
/// A former key of each policy.
pub const RETIRED_KEY: &str = "AgECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
pub const SUBSCRIPTION: &str = "news/Subscriptions/all";

/// Entities for sending, receiving and sessions.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Place {
    pub to: &'static str,
    pub from: &'static str,
    pub sessions: &'static str,
}

pub const AT_QUEUE: Place = Place { to: "orders", from: "orders", sessions: "held" };
/// Subscriptions have no policies of their own: the topic's policies apply.
pub const AT_SUBSCRIPTION: Place =
    Place { to: "news", from: SUBSCRIPTION, sessions: "news/Subscriptions/held" };
pub const PLACES: [Place; 2] = [AT_QUEUE, AT_SUBSCRIPTION];

/// Owners of policies; the namespace is empty.
pub const OWNERS: [&str; 5] = ["", "orders", "sibling", "held", "news"];

pub struct World {
    pub broker: Broker,
    pub clock: Arc<ManualClock>,
    /// A client with all rights.
    pub full: Client,
}

/// Returns the name of a policy. It contains the owner, so that each name exists at one owner only.
pub fn policy(owner: &str, rights: &[Right]) -> String {
    let names: Vec<&str> = rights.iter().map(|right| right.name()).collect();
    format!("{}-{owner}", names.join("-"))
}

impl World {
    pub async fn new() -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-05-01T12:00:00Z").unwrap()));
        let policies = Policies::new();
        let authorizer = SasAuthorizer::new(&policies, SasConfig::closed());
        let broker = Broker::builder()
            .arbiters(1)
            .clock(Arc::clone(&clock) as Arc<dyn Clock>)
            .authorizer(Arc::new(authorizer) as Arc<dyn Authorizer>)
            .policies(&policies)
            .start()
            .await
            .unwrap();
        let world = Self { full: Client::new(&broker), broker, clock };
        world.arrange().await;
        world
    }

    /// Creates all missing entities and policies.
    pub async fn arrange(&self) {
        let admin = self.full.admin();
        let sessions = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
        admin.create_queue("orders").await.ok();
        admin.create_queue("sibling").await.ok();
        admin.create_queue_with("held", sessions).await.ok();
        admin.create_topic("news").await.ok();
        admin.create_subscription("news", "all").await.ok();
        let rule = RuleDescription::new("r", Filter::True, Timestamp::NONE);
        admin.create_rule(SUBSCRIPTION, rule).await.ok();
        let sessions =
            SubscriptionUpdate { requires_session: Some(true), ..SubscriptionUpdate::default() };
        // The messages have no session.
        let nothing = RuleDescription::new("nothing", Filter::False, Timestamp::NONE);
        self.broker.create_subscription("news", "held", sessions, vec![nothing]).await.ok();
        admin.delete_queue("fresh").await.ok();
        for owner in OWNERS {
            for rights in RIGHTS {
                self.add_policy(owner, &policy(owner, rights), rights).await;
            }
        }
        self.add_policy("orders", "spare", &[Right::Send]).await;
        let none = QueueUpdate::default();
        admin.change_queue("orders", none, Cleared::ALL).await.unwrap();
    }

    async fn add_policy(&self, owner: &str, name: &str, rights: &[Right]) {
        let properties = PolicyUpdate::of(rights.iter().copied().collect())
            .with_keys(KeyText::parse(KEY).ok(), KeyText::parse(RETIRED_KEY).ok());
        let admin = self.full.admin();
        if admin.create_policy(owner, name, properties).await.is_ok() {
            admin.regenerate_key(owner, name, WhichKey::Secondary, None).await.unwrap();
        }
    }

    /// Returns the access of a client with this token.
    pub fn shown(&self, token: &str) -> Access {
        self.broker.access(Principal::anonymous().with_token(token))
    }

    /// Returns a message locked by another receiver.
    pub async fn locked(&self, at: Place) -> Received {
        self.full.sender(at.to).unwrap().send(Message::new("a")).await.unwrap();
        let receiver = self.full.receiver(at.from).unwrap();
        // The message may still be in transit from the topic.
        let received = receiver.receive(TimeSpan::from_minutes(1)).await.unwrap().unwrap();
        // Closed in order, so that the lock stays.
        receiver.close().await.unwrap();
        received
    }

    pub async fn stop(self) {
        self.broker.stop(Duration::ZERO).await.unwrap();
    }
}

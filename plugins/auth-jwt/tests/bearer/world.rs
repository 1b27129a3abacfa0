//! A broker that accepts bearer tokens of an issuer.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use peeklock_auth_jwt::{JwtAuthorizer, JwtConfig, KeySource, Role};
use peeklock_auth_sas::{SasAuthorizer, SasConfig};
use peeklock_core::clock::{Clock, ManualClock};
use peeklock_core::condition::Condition;
use peeklock_core::contract::{Action, Authorizer, Principal, Right, Rights};
use peeklock_core::description::QueueUpdate;
use peeklock_core::policies::Policies;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::{Access, Broker};
use serde_json::{Value, json};

use crate::issuer::{IssuerKey, key_set};

pub const ISSUER: &str = "https://issuer.example/tenant/";
pub const AUDIENCE: &str = "https://bus.example";
const NOON: &str = "2026-05-01T12:00:00Z";

pub struct World {
    pub broker: Broker,
    pub policies: Policies,
    pub clock: Arc<ManualClock>,
    pub authorizer: Arc<JwtAuthorizer>,
}

/// A file with keys, removed at the end of the test.
pub struct KeyFile(pub PathBuf);

impl KeyFile {
    pub fn new(name: &str, keys: &[&IssuerKey]) -> Self {
        let name = format!("peeklock-jwks-{name}-{}", std::process::id());
        let file = Self(std::env::temp_dir().join(name));
        file.write(&key_set(keys.iter().copied()));
        file
    }

    pub fn write(&self, text: &str) {
        std::fs::write(&self.0, text).unwrap();
    }

    pub fn source(&self) -> KeySource {
        KeySource::file(&self.0)
    }
}

impl Drop for KeyFile {
    fn drop(&mut self) {
        std::fs::remove_file(&self.0).ok();
    }
}

/// Returns a configuration with the roles `all`, `sender` and `orders.reader`.
pub fn config(keys: KeySource) -> JwtConfig {
    let mut config = JwtConfig::new(ISSUER, AUDIENCE, keys);
    config.roles = vec![
        Role::new("all", Rights::ALL),
        Role::new("sender", Rights::of(Right::Send)),
        Role::new("orders.reader", Rights::of(Right::Listen)).at("orders"),
    ];
    config
}

impl World {
    /// Starts a broker at noon with the queues `orders` and `other`; clients without a bearer token
    /// fall back to policies.
    pub async fn new(mut config: JwtConfig) -> Self {
        let clock = Arc::new(ManualClock::at(Timestamp::parse(NOON).unwrap()));
        config.clock = Arc::clone(&clock) as Arc<dyn Clock>;
        let policies = Policies::new();
        let others = Arc::new(SasAuthorizer::new(&policies, SasConfig::open_on_loopback()));
        let authorizer = Arc::new(JwtAuthorizer::new(config, others));
        let broker = Broker::builder()
            .arbiters(1)
            .clock(Arc::clone(&clock) as Arc<dyn Clock>)
            .policies(&policies)
            .authorizer(Arc::clone(&authorizer) as Arc<dyn Authorizer>)
            .start()
            .await
            .unwrap();
        for queue in ["orders", "other"] {
            broker.create_queue(queue, QueueUpdate::default()).await.unwrap();
        }
        Self { broker, policies, clock, authorizer }
    }

    pub fn access(&self, token: impl Into<Arc<str>>) -> Access {
        self.broker.access(Principal::anonymous().with_token(token))
    }

    /// Returns the text of the refusal for a client with this token, or `None` if it has the right.
    pub async fn refusal(&self, token: &str, action: Action, path: &str) -> Option<String> {
        refusal(&self.access(token), action, path).await
    }

    /// Returns the claims of a token with these roles, valid for ten minutes.
    pub fn claims(&self, roles: &[&str]) -> Value {
        let now = self.seconds(0);
        json!({
            "iss": ISSUER, "aud": AUDIENCE, "sub": "a-secret-subject", "roles": roles,
            "iat": now, "nbf": now, "exp": now + 600,
        })
    }

    /// Returns the time `from_now` seconds from now, as in claims.
    pub fn seconds(&self, from_now: i64) -> i64 {
        self.clock.now().unix_ms().div_euclid(1_000) + from_now
    }

    pub fn in_seconds(&self, seconds: i64) -> Timestamp {
        self.clock.now().plus(TimeSpan::from_seconds(seconds))
    }

    pub async fn stop(self) {
        self.broker.stop(Duration::ZERO).await.unwrap();
    }
}

/// Returns the text of a refusal, or `None` if the action is permitted.
pub async fn refusal(access: &Access, action: Action, path: &str) -> Option<String> {
    let error = access.allow(action, path).await.err()?;
    assert_eq!(error.condition(), Condition::Unauthorized);
    Some(error.detail().to_owned())
}

/// Returns the claims with the claim `name` changed, or removed for `Null`.
pub fn with(mut claims: Value, name: &str, value: Value) -> Value {
    match value {
        Value::Null => drop(claims.as_object_mut().unwrap().remove(name)),
        value => claims[name] = value,
    }
    claims
}

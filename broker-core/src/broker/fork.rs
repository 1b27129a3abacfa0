//! A second broker with what the first one has.

use std::sync::Arc;

use super::Broker;
use crate::builder::{BrokerBuilder, StartError};

impl Broker {
    /// Starts a second broker with the same entities and messages, of which each goes its own way from here on. It is
    /// as if this one had been started again: what was acknowledged is there, waits and links are not. Settings,
    /// clock, authorizer, forwarders and tracer are those of this broker.
    ///
    /// Only of a broker in memory, whose contents both share: what it costs is what opening the entities costs.
    ///
    /// # Errors
    /// `NoFork` of another store; see [`StartError`].
    pub async fn fork(&self) -> Result<Self, StartError> {
        self.fork_builder()?.start().await
    }

    /// What [`Broker::fork`] starts, to be adjusted before.
    ///
    /// # Errors
    /// `NoFork` of a store that is not in memory.
    pub fn fork_builder(&self) -> Result<BrokerBuilder, StartError> {
        let shared = &self.shared;
        let store = shared.store.fork().ok_or_else(|| StartError::NoFork(shared.store.name()))?;
        let mut builder = Self::builder()
            .settings(shared.settings.clone())
            .clock(Arc::clone(&shared.clock))
            .store(store)
            .authorizer(Arc::clone(&shared.authorizer));
        for forwarder in shared.forwarders.all() {
            builder = builder.forwarder(forwarder);
        }
        if let Some(tracer) = &shared.tracer {
            builder = builder.tracer(Arc::clone(tracer));
        }
        if let Some(count) = shared.arbiter_count {
            builder = builder.arbiters(count);
        }
        builder.watch = shared.activity.watch();
        Ok(builder)
    }
}

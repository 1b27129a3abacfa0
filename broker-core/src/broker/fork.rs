//! Starts a second broker with the entities and messages of the first. Tests and tools use it. Both
//! brokers are independent afterwards.

use std::sync::Arc;

use super::Broker;
use crate::builder::{BrokerBuilder, StartError};

impl Broker {
    /// Starts a second broker with the same entities and messages; from then on both are
    /// independent. The second broker is like this one after a restart: acknowledged data exists,
    /// waiting calls and links do not. It has the settings, clock, authorizer, forwarders and
    /// tracer of this broker.
    ///
    /// Works only with a store in memory. Both brokers share the stored contents, so the
    /// fork costs only the opening of the entities.
    ///
    /// # Errors
    /// `NoFork` for another store; see [`StartError`].
    pub async fn fork(&self) -> Result<Self, StartError> {
        self.fork_builder()?.start().await
    }

    /// Returns the builder that [`Broker::fork`] starts, for adjustments before the start.
    ///
    /// # Errors
    /// `NoFork` for a store that is not in memory.
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

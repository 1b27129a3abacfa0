//! Parts of the broker: its store, and the builder with everything that is configured or that the
//! host brings. `server.rs` starts it.

use std::ops::ControlFlow;
use std::path::Path;
use std::sync::Arc;

use peeklock::policies::Policies;
use peeklock::store::Store;
use peeklock::{Broker, BrokerBuilder, JourneysConfig, SamplesConfig, SeriesConfig};

use super::ServeError;
use super::opening::{make_data_dir, open_store};
use super::signals::Signals;
use crate::config::Loaded;
use crate::{Host, registry};

/// Opens the configured store, unless the host brings a store. Returns the name of a signal that
/// comes first; an unfinished opening ends with the process, as it would by a crash.
pub async fn open_any_store(
    loaded: &Loaded,
    host: &mut Host,
    signals: &mut Signals,
) -> Result<ControlFlow<&'static str, Arc<dyn Store>>, ServeError> {
    if let Some(store) = host.store.take() {
        // The file of the first key is written even with a store of the host.
        if !loaded.config.server.ephemeral {
            make_data_dir(&loaded.config.server.data_dir)?;
        }
        return Ok(ControlFlow::Continue(store));
    }
    let configured = loaded.clone();
    // A database may let it wait.
    let opening = tokio::task::spawn_blocking(move || open_store(&configured));
    tokio::select! {
        biased;
        signal = signals.next() => Ok(ControlFlow::Break(signal)),
        opened = opening => match opened {
            Ok(opened) => Ok(ControlFlow::Continue(opened?)),
            Err(error) => Err(ServeError::Broker(error.to_string())),
        },
    }
}

/// Returns the builder of a broker with the configured parts and the parts of the host.
pub fn broker_builder(
    loaded: &Loaded,
    policies: &Policies,
    host: &mut Host,
    store: Arc<dyn Store>,
) -> Result<BrokerBuilder, ServeError> {
    let mut builder = Broker::builder()
        .settings(loaded.config.settings.clone())
        .store(store)
        .lease(loaded.config.cluster.times())
        .policies(policies);
    let asked = host.authorizer.is_none().then_some(registry::AUTHORIZERS);
    if let Some(authorizer) = host.authorizer.take() {
        builder = builder.authorizer(authorizer);
    }
    for (name, make) in asked.into_iter().flatten() {
        if let Some(authorizer) = make(loaded, policies)? {
            tracing::debug!(authorizer = name, "authorizer is ready");
            builder = builder.authorizer(authorizer);
            break;
        }
    }
    builder = builder.auditor(registry::audit_trail(loaded)?);
    builder = builder.jobs(registry::jobs(loaded).map_err(ServeError::Jobs)?);
    if loaded.config.server.arbiters > 0 {
        builder = builder.arbiters(loaded.config.server.arbiters);
    }
    for (name, make) in registry::FORWARDERS {
        let forwarder = make(loaded)?;
        tracing::debug!(forwarder = name, schemes = ?forwarder.schemes(), "forwarder is ready");
        builder = builder.forwarder(forwarder);
    }
    for forwarder in host.forwarders.drain(..) {
        builder = builder.forwarder(forwarder);
    }
    let console = &loaded.config.console;
    if console.series {
        let server = &loaded.config.server;
        builder = builder.series(SeriesConfig {
            pinned: console.series_pinned.clone(),
            directory: (!server.ephemeral).then(|| Path::new(&server.data_dir).join("series")),
            ..SeriesConfig::default()
        });
    }
    if console.journeys {
        builder = builder.journeys(JourneysConfig::default());
    }
    if console.samples {
        builder = builder.samples(SamplesConfig::default());
    }
    builder = builder.checks(registry::checks(loaded));
    if let Some(tracer) = host.tracer.take() {
        builder = builder.tracer(tracer);
    }
    Ok(builder)
}

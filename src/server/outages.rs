//! Reports of outages of the database in the log. `server.rs` runs it next to the broker.

use std::convert::Infallible;
use std::time::Duration;

use peeklock::Broker;

/// Time between looks at the store.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// Logs when the database of the store is lost, and when it answers again (CLU-21).
pub async fn log_outages(broker: &Broker) -> Infallible {
    let mut was_away = false;
    loop {
        let outage = broker.outage();
        match (&outage, was_away) {
            (Some(outage), false) => {
                tracing::warn!("{outage}; requests wait until it answers; {}", outage.remedy());
            }
            (None, true) => tracing::info!("the database answers again"),
            (Some(_), true) | (None, false) => {}
        }
        was_away = outage.is_some();
        tokio::time::sleep(LOOK_EVERY).await;
    }
}

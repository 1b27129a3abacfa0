//! Partial updates of descriptions (ENT-17), which most clients mean by an update.
//! `access/manage.rs` calls it. The update is repeated if the description changed between its read
//! and its write.

use super::Access;
use crate::broker::Update;
use crate::condition::Condition;
use crate::description::{Cleared, Patch};
use crate::error::BrokerError;
use crate::time::Timestamp;

/// Maximum number of attempts of a change without a version when other updates conflict with it.
const CONFLICTS_MAX: usize = 16;

impl Access {
    /// Changes the named properties. The caller has checked the right to change the entity; the
    /// right to forward to destinations is checked here. Properties without a new value are kept,
    /// unless the patch clears them.
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::update_queue`], `update_topic` and
    /// `update_subscription`.
    pub(super) async fn patch<U: Update>(
        &self,
        path: &str,
        properties: &U,
        patch: Patch,
    ) -> Result<U::Described, BrokerError> {
        let is_outrun = |error: &BrokerError| error.condition() == Condition::UpdateConflict;
        Self::attempt_update(patch.expected_created_at, is_outrun, move || async move {
            let (mut properties, mut read_at) = (properties.clone(), patch.expected_created_at);
            if patch.cleared != Cleared::ALL {
                let described = self.broker.describe::<U>(path).await?;
                let (current, updated_at) = U::current(&described);
                properties.keep(patch.cleared, current);
                read_at.get_or_insert(updated_at);
            }
            self.broker.update(self, path, properties, read_at).await
        })
        .await
    }

    /// Runs an update that reads the description first. Without a version in `read_at`, an attempt
    /// that conflicts with another update is repeated, up to 16 attempts in all.
    ///
    /// # Errors
    /// The error of the last attempt; a conflict if each attempt had one.
    pub async fn attempt_update<T, E, F: Future<Output = Result<T, E>>>(
        read_at: Option<Timestamp>,
        is_outrun: impl Fn(&E) -> bool,
        attempt: impl Fn() -> F,
    ) -> Result<T, E> {
        let mut attempts = 1;
        loop {
            match attempt().await {
                Err(error)
                    if is_outrun(&error) && read_at.is_none() && attempts < CONFLICTS_MAX =>
                {
                    attempts += 1;
                }
                answer => return answer,
            }
        }
    }
}

//! Descriptions that are changed in part (ENT-17), which is what most clients mean by an update.

use super::Access;
use crate::broker::Update;
use crate::condition::Condition;
use crate::description::{Cleared, Patch};
use crate::error::BrokerError;
use crate::time::Timestamp;

/// A change without a version is tried against so many versions by others.
const CONFLICTS_MAX: usize = 16;

impl Access {
    /// Changes the properties named, after the right to change the entity was judged; the right to forward to destinations
    /// is judged here. What has no new value is kept, unless the patch clears it.
    ///
    /// # Errors
    /// `Unauthorized`; as for [`crate::Broker::update_queue`] and its like.
    pub(super) async fn patch<U: Update>(
        &self,
        path: &str,
        properties: &U,
        patch: Patch,
    ) -> Result<U::Described, BrokerError> {
        let is_outrun = |error: &BrokerError| error.condition() == Condition::UpdateConflict;
        Self::attempt_update(patch.read_at, is_outrun, move || async move {
            let (mut properties, mut read_at) = (properties.clone(), patch.read_at);
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

    /// What an update comes to that reads a description first. One without a version that met another update is tried
    /// again.
    ///
    /// # Errors
    /// With what an attempt has failed with; with a conflict, if there was one each time.
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

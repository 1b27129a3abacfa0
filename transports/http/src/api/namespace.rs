//! The namespace itself.

use peeklock_core::Namespace;
use peeklock_core::management::Management;
use serde::Serialize;
use utoipa::ToSchema;

use super::manage::manage;
use crate::error::{Answer, Problem};
use crate::serve::Exchange;
use peeklock_json::Instant;

/// The namespace (CNT-10).
#[derive(Serialize, ToSchema)]
#[serde(rename_all = "camelCase")]
pub(crate) struct NamespaceView {
    name: String,
    /// `Basic`, `Standard` or `Premium`
    tier: String,
    /// When its first entity was created
    #[schema(value_type = String, format = DateTime)]
    created_at: Instant,
    /// When name or tier were last changed
    #[schema(value_type = String, format = DateTime)]
    modified_at: Instant,
}

impl From<Namespace> for NamespaceView {
    fn from(namespace: Namespace) -> Self {
        Self {
            name: namespace.name.into(),
            tier: namespace.tier.to_string(),
            created_at: Instant(namespace.created_at),
            modified_at: Instant(namespace.modified_at),
        }
    }
}

/// Read name, tier and instants of the namespace.
#[utoipa::path(get, operation_id = "get_namespace",
    path = "/namespace", tag = "namespace",
    responses((status = 200, body = NamespaceView), (status = "default", body = Problem)))]
pub(super) async fn get(exchange: &Exchange) -> Answer {
    manage(exchange, "", Management::Namespace).await
}

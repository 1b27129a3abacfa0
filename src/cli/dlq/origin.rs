//! The entity that dead letters belong to: a queue, a subscription, or an entity whose transfers
//! failed. The `dlq` commands parse their argument with it.

use peeklock::condition::Condition;
use peeklock::path::{EntityAddress, EntityName};

use super::super::Failure;
use super::super::connect::CommandConnection;

/// Path suffix of the transfers of an entity.
const TRANSFERS: &str = "/$transfer";

/// Returns the highest sequence number of the entity; later dead letters have higher ones.
pub async fn last_sequence(path: &str, session: &CommandConnection) -> Result<u64, Failure> {
    let admin = session.client.admin();
    let entity = entity(path);
    if is_subscription(entity) {
        return Ok(admin.subscription(entity).await?.last_sequence.0);
    }
    match admin.queue(entity).await {
        Ok(found) => Ok(found.last_sequence.0),
        Err(error) if entity != path && error.condition() == Condition::EntityNotFound => {
            Ok(admin.topic(entity).await?.last_sequence.0)
        }
        Err(error) => Err(error.into()),
    }
}

/// The entity of a path, without the suffix of its transfers.
pub fn entity(path: &str) -> &str {
    let cut = path.len().saturating_sub(TRANSFERS.len());
    match path.split_at_checked(cut) {
        Some((entity, rest)) if rest.eq_ignore_ascii_case(TRANSFERS) => entity,
        _ => path,
    }
}

fn is_subscription(entity: &str) -> bool {
    let address = EntityAddress::parse(entity);
    address.is_ok_and(|address| matches!(address.entity, EntityName::Subscription { .. }))
}

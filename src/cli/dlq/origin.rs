//! The entity that dead letters belong to: a queue, a subscription, or an entity whose transfers
//! failed. The `dlq` commands parse their argument with it.

use peeklock::condition::Condition;
use peeklock::path::{EntityAddress, EntityName};
use peeklock::time::TimeSpan;

use super::super::Failure;
use super::super::connect::CommandConnection;

/// Path suffix of the transfers of an entity.
const TRANSFERS: &str = "/$transfer";
/// Lower bound for the lock duration of transfers through a topic.
const LOCK_DURATION_MIN: TimeSpan = TimeSpan::from_seconds(5);

/// State of the entity.
pub struct Origin {
    /// Highest sequence number; later dead letters have higher ones.
    pub last_sequence: u64,
    /// Lock duration of a dead letter.
    pub lock_duration: TimeSpan,
}

impl Origin {
    /// Requests the state from the broker.
    pub async fn of(path: &str, session: &CommandConnection) -> Result<Self, Failure> {
        let admin = session.client.admin();
        let entity = entity(path);
        if is_subscription(entity) {
            let found = admin.subscription(entity).await?;
            let lock_duration = found.description.lock_duration;
            return Ok(Self { last_sequence: found.last_sequence.0, lock_duration });
        }
        let found = match admin.queue(entity).await {
            Ok(found) => found,
            Err(error) if entity != path && error.condition() == Condition::EntityNotFound => {
                let last_sequence = admin.topic(entity).await?.last_sequence.0;
                return Ok(Self { last_sequence, lock_duration: LOCK_DURATION_MIN });
            }
            Err(error) => return Err(error.into()),
        };
        let lock_duration = found.description.lock_duration;
        Ok(Self { last_sequence: found.last_sequence.0, lock_duration })
    }
}

/// Default destination of copies: the entity itself, except for a subscription.
pub fn destination(path: &str) -> Result<&str, Failure> {
    let entity = entity(path);
    if is_subscription(entity) {
        let text = format!("cannot send copies to `{entity}`: it is a subscription");
        return Err(Failure::usage(text).hint("give the queue or topic for the copies with --to"));
    }
    Ok(entity)
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

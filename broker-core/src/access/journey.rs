//! Journeys of messages (CON-29). A reader sees the stations in entities that it may read.

use super::Access;
use crate::error::{BrokerError, Rejection};
use crate::inspect::{Journey, JourneyQuery};
use crate::journeys::{Reach, Start};
use crate::path::EntityAddress;
use crate::survey::ReadableKeys;

impl Access {
    /// Returns the journey of a message. No entity is asked.
    pub(super) async fn journey(
        &self,
        path: &str,
        query: &JourneyQuery,
        readable: &ReadableKeys,
    ) -> Result<Journey, BrokerError> {
        let shared = &self.broker.shared;
        let refuse = |rejection| self.broker.refuse(rejection, path);
        let Some(journeys) = &shared.journeys else {
            let detail = "journeys are switched off; set `console.journeys` and restart the broker";
            return Err(refuse(Rejection::invalid_operation(detail)));
        };
        let key = match path {
            "" => None,
            path => Some(EntityAddress::parse(path).map_err(refuse)?.key()),
        };
        let entity = match &key {
            None => None,
            Some(key) => {
                let existing = shared.directory.get(key).map(|entry| entry.id);
                // A deleted entity keeps its stations.
                let entity = existing.or_else(|| journeys.entity_at(key));
                Some(entity.ok_or_else(|| refuse(Rejection::entity_not_found(path)))?)
            }
        };
        let start = match (query, entity) {
            (JourneyQuery::Sequence(sequence), Some(entity)) => Start::Message((entity, *sequence)),
            (JourneyQuery::Sequence(_), None) => {
                let detail = "a sequence number needs the path of its entity; give one, or give a \
                              message id";
                return Err(refuse(Rejection::argument(detail)));
            }
            (JourneyQuery::MessageId(id), only) => Start::Id { id, only },
        };
        let (directory, clock) = (&shared.directory, &*shared.clock);
        let reach = Reach { directory, readable, own: key.as_ref(), clock };
        Ok(journeys.walk(start, &reach).await)
    }
}

//! Reads and replaces descriptions, in the same way for queues, topics and subscriptions (ENT-17,
//! ENT-31). `queues.rs`, `topics.rs` and `access/patch.rs` call it.

use std::sync::Arc;

use super::{Broker, Entity};
use crate::access::Access;
use crate::admission::Permit;
use crate::command::{
    Command, Described, DescribedSubscription, DescribedTopic, Outcome, TopicCommand,
};
use crate::condition::Condition;
use crate::description::{
    Cleared, Description, Destination, EntityKind, QueueDescription, QueueUpdate,
    SubscriptionDescription, SubscriptionUpdate, TopicDescription, TopicUpdate,
};
use crate::error::{BrokerError, Rejection};
use crate::limits::Limits;
use crate::time::Timestamp;

/// Properties that an update names, for one kind of entity, with the operations that differ between
/// kinds.
pub trait Update: Clone + Send + Sync {
    /// Kind of entity.
    const KIND: EntityKind = <Self::Description as Description>::KIND;
    /// All properties of an entity of this kind.
    type Description: Description<Update = Self>;
    /// All properties and the runtime part.
    type Described: Send + Sync;

    /// Extracts the answer to [`Command::Describe`].
    ///
    /// # Errors
    /// The answer itself if it is of another kind.
    fn described(answer: Outcome) -> Result<Self::Described, Outcome>;

    /// Returns the properties in force, and the instant of their last change.
    fn current(described: &Self::Described) -> (&Self::Description, Timestamp);

    /// Total bytes of the texts in a description.
    fn text_bytes(description: &Self::Description) -> u64;

    /// Returns the properties after this update of `current`.
    ///
    /// # Errors
    /// The rejection of values that an entity of this kind cannot have.
    fn apply_to(
        self,
        current: &Self::Description,
        limits: &Limits,
    ) -> Result<Self::Description, Rejection>;

    /// Returns the command that replaces the description last changed at `read_at`.
    fn replace(description: Self::Description, read_at: Timestamp) -> Command;

    /// Destinations of messages and of dead-lettered messages.
    fn destinations(description: &Self::Description) -> [Option<&str>; 2];

    /// Returns the description after this update, even if it is not valid.
    #[must_use]
    fn over(self, current: &Self::Description) -> Self::Description {
        Self::Description::over(self, current)
    }

    /// Names the current value of each text that the update does not name and that is not cleared
    /// (ENT-17).
    fn keep(&mut self, cleared: Cleared, current: &Self::Description) {
        for field in Self::Description::FIELDS.iter().filter(|field| field.kind.is_text()) {
            if field.named(self).is_none() && !cleared.contains(field.name) {
                field.put(self, field.get(current));
            }
        }
    }
}

impl Broker {
    /// Returns the description and the runtime part of an entity of this kind.
    pub(crate) async fn describe<U: Update>(
        &self,
        path: &str,
    ) -> Result<U::Described, BrokerError> {
        let entity = self.manageable_entity(path, U::KIND).await?;
        let room = entity.management_room(&Command::Describe).await?;
        described::<U>(&entity, &room).await
    }

    /// As [`Broker::describe`], within the room of the command that created or changed the entity.
    pub(crate) async fn describe_in<U: Update>(
        &self,
        room: &Arc<Permit>,
        path: &str,
    ) -> Result<U::Described, BrokerError> {
        described::<U>(&self.manageable_entity(path, U::KIND).await?, room).await
    }

    /// Replaces the named properties, if `access` may forward to the new destinations (FWD-05).
    /// With `read_at`, only if the description was last changed at that instant.
    pub(crate) async fn update<U: Update>(
        &self,
        access: &Access,
        path: &str,
        properties: U,
        read_at: Option<Timestamp>,
    ) -> Result<U::Described, BrokerError> {
        let entity = self.manageable_entity(path, U::KIND).await?;
        let refuse = |rejection| self.refuse(rejection, path);
        loop {
            let described = self.describe::<U>(path).await?;
            let (current, updated_at) = U::current(&described);
            let description = properties
                .clone()
                .apply_to(current, &self.shared.settings.limits)
                .map_err(refuse)?;
            let (before, after) = (U::destinations(current), U::destinations(&description));
            let newly = new_destinations(before, after);
            access.allow_forwarding_to(newly).await?;
            // Only new destinations are checked: a deleted old one must not prevent other changes
            // of the entity.
            self.check_destinations(newly).await.map_err(refuse)?;
            let command = U::replace(description, read_at.unwrap_or(updated_at));
            let room = entity.management_room(&command).await?;
            match entity.manage_in(&room, command).await {
                Ok(_) => return self.describe_in::<U>(&room, path).await,
                // Another update came first: without a version from the caller, apply this one on
                // top.
                Err(error)
                    if read_at.is_none() && error.condition() == Condition::UpdateConflict => {}
                Err(error) => return Err(error),
            }
        }
    }
}

async fn described<U: Update>(
    entity: &Entity,
    room: &Arc<Permit>,
) -> Result<U::Described, BrokerError> {
    let answer = entity.manage_in(room, Command::Describe).await?;
    U::described(answer).map_err(|other| unexpected(entity, &other))
}

/// Returns the destinations of an update that differ from the previous ones.
fn new_destinations<'a>(
    before: [Option<&str>; 2],
    after: [Option<&'a str>; 2],
) -> [Option<&'a str>; 2] {
    let [messages, dead_letters] = before;
    let [new_messages, new_dead_letters] = after;
    [
        new_messages.filter(|destination| !is_same(messages, destination)),
        new_dead_letters.filter(|destination| !is_same(dead_letters, destination)),
    ]
}

/// Whether two texts name the same destination: an entity in any spelling, others with the same
/// text.
fn is_same(before: Option<&str>, after: &str) -> bool {
    let entity = |text| match Destination::parse(text) {
        Ok(Destination::Entity(key)) => Some(key),
        Ok(Destination::Foreign(_)) | Err(_) => None,
    };
    before.is_some_and(|before| {
        before == after || entity(before).is_some_and(|key| entity(after) == Some(key))
    })
}

fn unexpected(entity: &Entity, outcome: &Outcome) -> BrokerError {
    entity.refuse(Rejection::internal(format!("unexpected answer {outcome:?}")))
}

impl Update for QueueUpdate {
    type Description = QueueDescription;
    type Described = Described;

    fn described(answer: Outcome) -> Result<Described, Outcome> {
        match answer {
            Outcome::Described(described) => Ok(*described),
            other => Err(other),
        }
    }

    fn current(described: &Described) -> (&QueueDescription, Timestamp) {
        (&described.description, described.updated_at)
    }

    fn destinations(description: &QueueDescription) -> [Option<&str>; 2] {
        [&description.forward_to, &description.forward_dead_lettered_messages_to]
            .map(Option::as_deref)
    }

    fn text_bytes(description: &QueueDescription) -> u64 {
        description.text_bytes()
    }

    fn apply_to(
        self,
        current: &QueueDescription,
        limits: &Limits,
    ) -> Result<QueueDescription, Rejection> {
        Self::apply_to(self, current, limits)
    }

    fn replace(description: QueueDescription, read_at: Timestamp) -> Command {
        Command::Update { description: Box::new(description), read_at: Some(read_at) }
    }
}

impl Update for TopicUpdate {
    type Description = TopicDescription;
    type Described = DescribedTopic;

    fn described(answer: Outcome) -> Result<DescribedTopic, Outcome> {
        match answer {
            Outcome::TopicDescribed(described) => Ok(*described),
            other => Err(other),
        }
    }

    fn current(described: &DescribedTopic) -> (&TopicDescription, Timestamp) {
        (&described.description, described.updated_at)
    }

    fn destinations(_: &TopicDescription) -> [Option<&str>; 2] {
        [None, None]
    }

    fn text_bytes(description: &TopicDescription) -> u64 {
        description.text_bytes()
    }

    fn apply_to(
        self,
        current: &TopicDescription,
        limits: &Limits,
    ) -> Result<TopicDescription, Rejection> {
        Self::apply_to(self, current, limits)
    }

    fn replace(description: TopicDescription, read_at: Timestamp) -> Command {
        let (description, read_at) = (Box::new(description), Some(read_at));
        Command::OfTopic(TopicCommand::Update { description, read_at })
    }
}

impl Update for SubscriptionUpdate {
    type Description = SubscriptionDescription;
    type Described = DescribedSubscription;

    fn described(answer: Outcome) -> Result<DescribedSubscription, Outcome> {
        match answer {
            Outcome::SubscriptionDescribed(described) => Ok(*described),
            other => Err(other),
        }
    }

    fn current(described: &DescribedSubscription) -> (&SubscriptionDescription, Timestamp) {
        (&described.description, described.updated_at)
    }

    fn destinations(description: &SubscriptionDescription) -> [Option<&str>; 2] {
        [&description.forward_to, &description.forward_dead_lettered_messages_to]
            .map(Option::as_deref)
    }

    fn text_bytes(description: &SubscriptionDescription) -> u64 {
        description.text_bytes()
    }

    fn apply_to(
        self,
        current: &SubscriptionDescription,
        limits: &Limits,
    ) -> Result<SubscriptionDescription, Rejection> {
        Self::apply_to(self, current, limits)
    }

    fn replace(description: SubscriptionDescription, read_at: Timestamp) -> Command {
        Command::UpdateSubscription { description: Box::new(description), read_at: Some(read_at) }
    }
}

//! How a description is read and replaced: alike for queues, topics and subscriptions (ENT-17, ENT-31).

use std::sync::Arc;

use super::{Broker, Entity};
use crate::access::Access;
use crate::command::{
    Command, Described, DescribedSubscription, DescribedTopic, Outcome, TopicCommand,
};
use crate::condition::Condition;
use crate::description::{
    Cleared, Destination, EntityKind, QueueDescription, QueueUpdate, SubscriptionDescription,
    SubscriptionUpdate, TopicDescription, TopicUpdate,
};
use crate::error::{BrokerError, Rejection};
use crate::limits::Limits;
use crate::permits::Permit;
use crate::time::Timestamp;

/// The properties that an update names, of one kind of entity, and what this kind has of its own.
pub trait Update: Clone + Send + Sync {
    /// The kind.
    const KIND: EntityKind;
    /// All properties of an entity of it.
    type Description: Send + Sync;
    /// Those, and its runtime part.
    type Described: Send + Sync;

    /// The answer to [`Command::Describe`]; back again if it is none of this kind.
    ///
    /// # Errors
    /// With an answer of another kind.
    fn described(answer: Outcome) -> Result<Self::Described, Outcome>;

    /// The properties in force, and of which instant they are.
    fn current(described: &Self::Described) -> (&Self::Description, Timestamp);

    /// The properties that an update takes as gone where it does not name them (ENT-17): ForwardTo,
    /// ForwardDeadLetteredMessagesTo and UserMetadata, as far as this kind has them.
    fn optional(&mut self) -> [Option<&mut Option<Box<str>>>; 3];

    /// The same properties of a description.
    fn optional_of(description: &Self::Description) -> [Option<&str>; 3];

    /// The bytes of what a description says in texts, whatever their lengths.
    fn text_bytes(description: &Self::Description) -> u64;

    /// What is in force when this is put over `current`, whether it can be or not.
    #[must_use]
    fn over(self, current: &Self::Description) -> Self::Description;

    /// What is in force when this has replaced `current`.
    ///
    /// # Errors
    /// For what an entity of this kind cannot have.
    fn apply_to(
        self,
        current: &Self::Description,
        limits: &Limits,
    ) -> Result<Self::Description, Rejection>;

    /// Puts this description in place of the one that is of that instant.
    fn replace(description: Self::Description, read_at: Timestamp) -> Command;

    /// Takes what has no new value, and is not to lose its own, from what is in force.
    fn keep(&mut self, cleared: Cleared, current: &Self::Description) {
        let Cleared { forward_to, forward_dead_lettered_messages_to, user_metadata } = cleared;
        let cleared = [forward_to, forward_dead_lettered_messages_to, user_metadata];
        let current = Self::optional_of(current);
        for ((property, current), is_cleared) in
            self.optional().into_iter().zip(current).zip(cleared)
        {
            if let Some(property) = property
                && property.is_none()
                && !is_cleared
            {
                *property = current.map(Into::into);
            }
        }
    }

    /// Where an entity of this description forwards messages to, and dead-lettered ones.
    fn destinations(description: &Self::Description) -> [Option<&str>; 2] {
        let [messages, dead_letters, _] = Self::optional_of(description);
        [messages, dead_letters]
    }
}

impl Broker {
    /// A description and the runtime part, of an entity of this kind.
    pub(crate) async fn describe<U: Update>(
        &self,
        path: &str,
    ) -> Result<U::Described, BrokerError> {
        let entity = self.manageable(path, U::KIND).await?;
        let room = entity.management_room(&Command::Describe).await?;
        described::<U>(&entity, &room).await
    }

    /// As [`Broker::describe`], in the room of what has created it.
    pub(crate) async fn describe_in<U: Update>(
        &self,
        room: &Arc<Permit>,
        path: &str,
    ) -> Result<U::Described, BrokerError> {
        described::<U>(&self.manageable(path, U::KIND).await?, room).await
    }

    /// Replaces the properties named for who may forward to the destinations that the entity gets (FWD-05). With
    /// `read_at`, only if the description is still of that instant.
    pub(crate) async fn update<U: Update>(
        &self,
        access: &Access,
        path: &str,
        properties: U,
        read_at: Option<Timestamp>,
    ) -> Result<U::Described, BrokerError> {
        let entity = self.manageable(path, U::KIND).await?;
        let refuse = |rejection| self.refuse(rejection, path);
        loop {
            let described = self.describe::<U>(path).await?;
            let (current, updated_at) = U::current(&described);
            let description = properties
                .clone()
                .apply_to(current, &self.shared.settings.limits)
                .map_err(refuse)?;
            let (before, after) = (U::destinations(current), U::destinations(&description));
            let newly = newly(before, after);
            access.allow_forwarding_to(newly).await?;
            // A destination that is gone keeps nobody from changing anything else of the entity.
            self.check_destinations(newly).await.map_err(refuse)?;
            let command = U::replace(description, read_at.unwrap_or(updated_at));
            let room = entity.management_room(&command).await?;
            match entity.manage_in(&room, command).await {
                Ok(_) => return self.describe_in::<U>(&room, path).await,
                // Somebody else was faster: without a version of the caller's, apply it to theirs.
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

/// The destinations that an update names and that were not there before.
fn newly<'a>(before: [Option<&str>; 2], after: [Option<&'a str>; 2]) -> [Option<&'a str>; 2] {
    let [messages, dead_letters] = before;
    let [new_messages, new_dead_letters] = after;
    [
        new_messages.filter(|destination| !is_same(messages, destination)),
        new_dead_letters.filter(|destination| !is_same(dead_letters, destination)),
    ]
}

/// Whether two texts name one destination: an entity in any spelling, anything else to the letter.
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
    const KIND: EntityKind = EntityKind::Queue;
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

    fn optional(&mut self) -> [Option<&mut Option<Box<str>>>; 3] {
        let dead_letters = &mut self.forward_dead_lettered_messages_to;
        [Some(&mut self.forward_to), Some(dead_letters), Some(&mut self.user_metadata)]
    }

    fn optional_of(description: &QueueDescription) -> [Option<&str>; 3] {
        let dead_letters = &description.forward_dead_lettered_messages_to;
        [&description.forward_to, dead_letters, &description.user_metadata].map(Option::as_deref)
    }

    fn text_bytes(description: &QueueDescription) -> u64 {
        description.text_bytes()
    }

    fn over(self, current: &QueueDescription) -> QueueDescription {
        Self::over(self, current)
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
    const KIND: EntityKind = EntityKind::Topic;
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

    fn optional(&mut self) -> [Option<&mut Option<Box<str>>>; 3] {
        [None, None, Some(&mut self.user_metadata)]
    }

    fn optional_of(description: &TopicDescription) -> [Option<&str>; 3] {
        [None, None, description.user_metadata.as_deref()]
    }

    fn text_bytes(description: &TopicDescription) -> u64 {
        description.text_bytes()
    }

    fn over(self, current: &TopicDescription) -> TopicDescription {
        Self::over(self, current)
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
    const KIND: EntityKind = EntityKind::Subscription;
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

    fn optional(&mut self) -> [Option<&mut Option<Box<str>>>; 3] {
        let dead_letters = &mut self.forward_dead_lettered_messages_to;
        [Some(&mut self.forward_to), Some(dead_letters), Some(&mut self.user_metadata)]
    }

    fn optional_of(description: &SubscriptionDescription) -> [Option<&str>; 3] {
        let dead_letters = &description.forward_dead_lettered_messages_to;
        [&description.forward_to, dead_letters, &description.user_metadata].map(Option::as_deref)
    }

    fn text_bytes(description: &SubscriptionDescription) -> u64 {
        description.text_bytes()
    }

    fn over(self, current: &SubscriptionDescription) -> SubscriptionDescription {
        Self::over(self, current)
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

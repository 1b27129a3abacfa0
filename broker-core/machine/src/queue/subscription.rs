//! The role of a subscription: a queue whose messages are copies that its topic has numbered and stored
//! (TOP-01, TOP-08).
//!
//! What differs: nobody sends to it or schedules in it, ids are the topic's concern, the quota is the
//! topic's, and the lower time to live counts. Its description as a queue is made from its own and
//! the topic's.

use std::sync::Arc;

use super::Queue;
use crate::change::{Change, Durability};
use crate::command::{DescribedSubscription, Outcome};
use crate::description::{QueueDescription, SubscriptionDescription, TopicDescription};
use crate::effect::Answer;
use crate::error::Rejection;
use crate::family::{CopySettings, Family, Use};
use crate::idle::Idles as _;
use crate::ids::{EntityId, SequenceNumber};
use crate::intake::Intake as _;
use crate::path::SubQueue;
use crate::queue::QueueConfig;
use crate::time::Timestamp;
use crate::{Ctx, Step, intake};

/// What a subscription is beside a queue.
#[derive(Debug)]
pub(super) struct SubscriptionRole {
    description: SubscriptionDescription,
    topic: Arc<TopicDescription>,
    /// Receivers of the other subscriptions (RCV-22).
    pub(super) other_receivers: usize,
}

impl SubscriptionRole {
    pub(super) const fn description(&self) -> &SubscriptionDescription {
        &self.description
    }

    /// Takes a new description; gives what it means for the queue.
    pub(super) fn describe_anew(
        &mut self,
        description: SubscriptionDescription,
    ) -> QueueDescription {
        self.description = description;
        self.description.as_queue(&self.topic)
    }
}

impl Queue {
    /// An empty subscription.
    #[must_use]
    pub fn subscription(
        id: EntityId,
        description: SubscriptionDescription,
        topic: Arc<TopicDescription>,
        config: QueueConfig,
        now: Timestamp,
    ) -> Self {
        let as_queue = description.as_queue(&topic);
        let role = SubscriptionRole { description, topic, other_receivers: 0 };
        Self { subscription: Some(Box::new(role)), ..Self::new(id, as_queue, config, now) }
    }

    /// The properties as a subscription, if it is one.
    #[must_use]
    pub fn subscription_description(&self) -> Option<&SubscriptionDescription> {
        self.subscription.as_ref().map(|role| role.description())
    }

    /// The highest number given so far.
    #[must_use]
    pub const fn last_sequence(&self) -> SequenceNumber {
        self.last_sequence
    }

    pub(super) fn describe_subscription(&self) -> Option<DescribedSubscription> {
        let role = self.subscription.as_ref()?;
        Some(DescribedSubscription {
            description: role.description.clone(),
            counts: self.tally.counts,
            size_bytes: self.tally.size_bytes,
            last_sequence: self.last_sequence,
            created_at: self.usage.created_at,
            updated_at: self.usage.updated_at,
            // To be created is to be accessed, as clients of the cloud know it.
            accessed_at: self.usage.last_at.max(self.usage.created_at),
            sessions: self.sessions.as_ref().map(|sessions| sessions.counts()),
        })
    }

    /// Takes what the topic has stored for it: copies, in the order of their numbers and each once, and
    /// what is the topic's to say.
    pub(super) fn take_arrivals(&mut self, family: &mut Family, now: Timestamp) {
        let own_receivers = self.receiver_count();
        let Some(role) = &mut self.subscription else { return };
        role.other_receivers = family.receiver_count().saturating_sub(own_receivers);
        if !Arc::ptr_eq(&role.topic, family.topic()) {
            role.topic = Arc::clone(family.topic());
            *self.description = role.description.as_queue(&role.topic);
        }
        let (arrivals, touched_at) = family.take_arrivals(self.id);
        if touched_at > self.usage.last_at {
            self.touch(touched_at.min(now));
        }
        for arrival in arrivals {
            // What was restored from the store with its number is here already.
            if arrival.sequence <= self.last_sequence {
                continue;
            }
            self.insert(arrival.sequence, arrival.slot, arrival.session.as_deref());
            self.hold_back(arrival.sequence, arrival.stage);
        }
    }

    /// Tells how copies are to be made for it, and how it is used.
    pub(super) fn tell_family(&self, family: &mut Family) {
        let Some(role) = &self.subscription else { return };
        let settings = CopySettings::of(&role.description);
        let use_of = Use {
            last_at: self.last_use(),
            is_held: self.is_held(),
            receiver_count: self.receiver_count(),
            size_bytes: self.tally.size_bytes,
        };
        family.tell(self.id, settings, use_of);
    }

    /// Replaces the description (ENT-17 to ENT-19).
    pub(super) fn update_subscription(
        &mut self,
        description: Box<SubscriptionDescription>,
        read_at: Option<Timestamp>,
        ctx: &Ctx<'_>,
        step: &mut Step,
    ) -> Result<Answer, Rejection> {
        let Some(role) = &self.subscription else {
            return Err(Rejection::invalid_operation(format!(
                "`{}` is a queue, which has other properties",
                self.path()
            )));
        };
        if read_at.is_some_and(|at| at != self.usage.updated_at) {
            return Err(Rejection::update_conflict(self.path()));
        }
        let requires_session = role.description.requires_session;
        self.refuse_fixed(&[(
            "RequiresSession",
            description.requires_session == requires_session,
        )])?;
        let bytes = (description.text_bytes(), role.description.text_bytes());
        intake::refuse_descriptions(bytes.0, bytes.1, ctx)?;
        let change = Change::SubscriptionDescribed { description, at: ctx.now };
        self.change(change, Durability::Sync, ctx, step);
        for which in super::transfer::FORWARDED {
            if self.is_forwarding(which) {
                self.turn_away_from(which, step);
            }
        }
        if !self.description.status.allows_receive() {
            self.turn_receivers_away(step);
        }
        self.touch(ctx.now);
        Ok(Answer::after_commit(Outcome::Done))
    }

    /// Nobody sends to a subscription, and nothing is scheduled in it (SND-20, SND-21).
    pub(super) fn refuse_sending(&self, sub_queue: SubQueue) -> Rejection {
        Rejection::invalid_operation(format!(
            "cannot send to `{}{}`: it is a subscription; send to its topic",
            self.path(),
            sub_queue.suffix()
        ))
    }

    /// What only topics can be asked.
    pub(super) fn refuse_as_topic(&self) -> Rejection {
        Rejection::invalid_operation(format!("`{}` is not a topic", self.path()))
    }

    /// A subscription has the properties of one, not those of a queue.
    pub(super) fn refuse_as_queue(&self) -> Result<(), Rejection> {
        match &self.subscription {
            Some(_) => Err(Rejection::invalid_operation(format!(
                "`{}` is a subscription, which has other properties",
                self.path()
            ))),
            None => Ok(()),
        }
    }

    /// What the quota is that of, for people.
    pub(super) fn quota_of(&self) -> (&'static str, &str) {
        match &self.subscription {
            Some(role) => ("topic", &role.description.topic),
            None if self.outbox.is_some() => ("topic", self.path()),
            None => ("queue", self.path()),
        }
    }
}

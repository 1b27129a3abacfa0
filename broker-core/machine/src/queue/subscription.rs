//! Role of a subscription: a queue whose messages are copies that its topic has numbered and stored
//! (TOP-01, TOP-08).
//!
//! Differences to a queue: clients cannot send to it or schedule in it, its topic detects
//! duplicates and has the quota, and the lower time to live applies. Its description as a queue is
//! derived from its own description and the topic's.

use std::sync::Arc;

use super::Queue;
use crate::change::{Change, Durability};
use crate::command::{DescribedSubscription, Outcome};
use crate::description::{QueueDescription, SubscriptionDescription, TopicDescription};
use crate::effect::Answer;
use crate::error::Rejection;
use crate::family::{CopySettings, Family, SubscriptionUse};
use crate::idle::IdleDetection as _;
use crate::ids::{EntityId, SequenceNumber};
use crate::intake::Intake as _;
use crate::path::SubQueue;
use crate::queue::QueueConfig;
use crate::time::Timestamp;
use crate::{Ctx, StepOutput, intake};

/// State of a subscription in addition to its queue.
#[derive(Debug)]
pub(super) struct SubscriptionRole {
    description: SubscriptionDescription,
    topic: Arc<TopicDescription>,
    /// Number of receivers of the other subscriptions (RCV-22).
    pub(super) other_receivers: usize,
}

impl SubscriptionRole {
    pub(super) const fn description(&self) -> &SubscriptionDescription {
        &self.description
    }

    /// Sets a new description; returns the derived description of the queue.
    pub(super) fn set_description(
        &mut self,
        description: SubscriptionDescription,
    ) -> QueueDescription {
        self.description = description;
        self.description.as_queue(&self.topic)
    }
}

impl Queue {
    /// Returns an empty subscription.
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

    /// The properties of the subscription; `None` for a queue.
    #[must_use]
    pub fn subscription_description(&self) -> Option<&SubscriptionDescription> {
        self.subscription.as_ref().map(|role| role.description())
    }

    /// The highest sequence number that was given.
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
            // Creation counts as access, as clients of the cloud service know it.
            accessed_at: self.usage.last_at.max(self.usage.created_at),
            sessions: self.sessions.as_ref().map(|sessions| sessions.counts()),
        })
    }

    /// Takes the data of the topic: its description, the number of receivers, and copies, each once
    /// and in the order of their numbers.
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
            // A copy that was restored from the store is present already.
            if arrival.sequence <= self.last_sequence {
                continue;
            }
            self.insert(arrival.sequence, arrival.slot, arrival.session.as_deref());
            self.mark_in_flight(arrival.sequence, arrival.stage);
        }
    }

    /// Reports the settings for its copies and its use.
    pub(super) fn report_to_family(&self, family: &mut Family) {
        let Some(role) = &self.subscription else { return };
        let settings = CopySettings::of(&role.description);
        let usage = SubscriptionUse {
            last_at: self.last_use(),
            is_in_use: self.is_in_use(),
            receiver_count: self.receiver_count(),
            size_bytes: self.tally.size_bytes,
        };
        family.report_use(self.id, settings, usage);
    }

    /// Replaces the description (ENT-17 to ENT-19).
    pub(super) fn update_subscription(
        &mut self,
        description: Box<SubscriptionDescription>,
        read_at: Option<Timestamp>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
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
                self.reject_receivers_of(which, step);
            }
        }
        if !self.description.status.allows_receive() {
            self.reject_receivers(step);
        }
        self.touch(ctx.now);
        Ok(Answer::after_commit(Outcome::Done))
    }

    /// Returns the rejection of a send or schedule to a subscription (SND-20, SND-21).
    pub(super) fn refuse_sending(&self, sub_queue: SubQueue) -> Rejection {
        Rejection::invalid_operation(format!(
            "cannot send to `{}{}`: it is a subscription; send to its topic",
            self.path(),
            sub_queue.suffix()
        ))
    }

    /// Returns the rejection of a command that only topics accept.
    pub(super) fn refuse_as_topic(&self) -> Rejection {
        Rejection::invalid_operation(format!("`{}` is not a topic", self.path()))
    }

    /// Refuses the properties of a queue for a subscription.
    pub(super) fn refuse_as_queue(&self) -> Result<(), Rejection> {
        match &self.subscription {
            Some(_) => Err(Rejection::invalid_operation(format!(
                "`{}` is a subscription, which has other properties",
                self.path()
            ))),
            None => Ok(()),
        }
    }

    /// Kind and path of the entity whose quota applies, for rejections.
    pub(super) fn quota_of(&self) -> (&'static str, &str) {
        match &self.subscription {
            Some(role) => ("topic", &role.description.topic),
            None if self.outbox.is_some() => ("topic", self.path()),
            None => ("queue", self.path()),
        }
    }
}

//! Subscriptions come and go, as the namespace decides; the topic stores them (TOP-12, TOP-17).

use super::{Subscription, Topic};
use crate::change::{Change, Durability, TopicChange};
use crate::command::Outcome;
use crate::description::SubscriptionDescription;
use crate::effect::Answer;
use crate::entity::family::CopySettings;
use crate::entity::{Ctx, Step, admission};
use crate::error::Rejection;
use crate::ids::{EntityId, SequenceNumber};
use crate::rule::{Rule, RuleDescription, SubscriptionSettings};

/// How copies are made for a subscription.
pub(in crate::entity) const fn copy_settings(
    description: &SubscriptionDescription,
) -> CopySettings {
    CopySettings {
        rules: SubscriptionSettings {
            dead_lettering_on_filter_errors: description
                .enable_dead_lettering_on_filter_evaluation_exceptions,
            requires_session: description.requires_session,
        },
        default_message_time_to_live: description.default_message_time_to_live,
    }
}

impl Topic {
    /// Stores a subscription with its rules, or nothing if one of them is not valid (TOP-17).
    pub(super) fn create_subscription(
        &mut self,
        id: EntityId,
        description: Box<SubscriptionDescription>,
        rules: Vec<RuleDescription>,
        ctx: &Ctx<'_>,
        step: &mut Step,
    ) -> Result<Answer, Rejection> {
        // With none it gets one.
        admission::refuse_too_many_rules(rules.len().max(1), ctx)?;
        let count_max = ctx.limits.subscription_count_max;
        if self.subscriptions.len() >= count_max {
            return Err(Rejection::too_many("subscriptions", self.path(), count_max));
        }
        let settings = copy_settings(&description);
        let default = RuleDescription::default_rule(ctx.now);
        let rules = rules.into_iter().map(|rule| RuleDescription { created_at: ctx.now, ..rule });
        let rules = rules.collect();
        // The rules are judged where they will be; what is right is stored, and comes again with the
        // change.
        self.matcher.create_subscription(id, settings.rules, rules, default, ctx.limits)?;
        let rules = self.matcher.rules(id).map(|rule| rule.description().clone()).collect();
        self.matcher.remove_subscription(id);
        let change = TopicChange::SubscriptionCreated { id, description, rules, at: ctx.now };
        self.change(Change::OfTopic(change), Durability::Sync, ctx, step);
        self.usage.touch(ctx.now);
        Ok(Answer::after_commit(Outcome::Done))
    }

    /// Removes a subscription with everything in it. What it held is counted out by the family, which
    /// knows it.
    pub(super) fn remove_subscription(
        &mut self,
        id: EntityId,
        ctx: &Ctx<'_>,
        step: &mut Step,
    ) -> Result<Answer, Rejection> {
        if !self.subscriptions.contains_key(&id) {
            return Err(self.no_subscription());
        }
        // What it was used last is no longer known by itself (TMP-10).
        self.usage.touch(self.relatives.used_at);
        let change = TopicChange::SubscriptionRemoved { id };
        self.change(Change::OfTopic(change), Durability::Sync, ctx, step);
        Ok(Answer::after_commit(Outcome::Done))
    }

    pub(super) fn no_subscription(&self) -> Rejection {
        Rejection::entity_not_found(&format!("{}/Subscriptions", self.path()))
    }

    pub(super) fn add(
        &mut self,
        id: EntityId,
        settings: CopySettings,
        last_sequence: SequenceNumber,
    ) {
        self.matcher.restore_subscription(id, settings.rules);
        self.subscriptions.insert(id, Subscription { last_sequence, settings });
    }

    /// Takes back a subscription that the store has, with its rules. Part of opening, after the
    /// subscription's own machine was restored, which knows the highest number given there.
    pub fn adopt(
        &mut self,
        id: EntityId,
        description: &SubscriptionDescription,
        last_sequence: SequenceNumber,
        rules: Vec<Rule>,
    ) {
        self.add(id, copy_settings(description), last_sequence);
        for rule in rules {
            self.matcher.restore_rule(id, rule);
        }
    }

    /// The subscriptions, ascending.
    pub fn subscription_ids(&self) -> impl Iterator<Item = EntityId> {
        self.subscriptions.keys().copied()
    }
}

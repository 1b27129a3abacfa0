//! Creation and removal of subscriptions, as the namespace decides; the topic stores them (TOP-12,
//! TOP-17). `topic/mod.rs` calls it.

use super::{Subscription, Topic, sessions_of};
use crate::change::{Change, Durability, TopicChange};
use crate::command::Outcome;
use crate::description::SubscriptionDescription;
use crate::effect::Answer;
use crate::error::Rejection;
use crate::family::CopySettings;
use crate::ids::{EntityId, SequenceNumber, Ticket};
use crate::rule::{Rule, RuleDescription};
use crate::{Ctx, StepOutput, intake};

impl Topic {
    /// Stores a subscription with its rules, or nothing if a rule is invalid (TOP-17).
    pub(super) fn create_subscription(
        &mut self,
        ticket: Ticket,
        id: EntityId,
        description: Box<SubscriptionDescription>,
        rules: Vec<RuleDescription>,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        // Without rules it gets `$Default`.
        intake::refuse_too_many_rules(rules.len().max(1), ctx)?;
        let count_max = ctx.limits.subscription_count_max;
        if self.subscriptions.len() >= count_max {
            return Err(Rejection::too_many("subscriptions", self.path(), count_max));
        }
        let rules = match self.rules_ahead(ticket) {
            Some(rules) => rules?,
            None => {
                let default = RuleDescription::default_rule(ctx.now);
                let rules = if rules.is_empty() { vec![default] } else { rules };
                let rules = rules.into_iter();
                let rules = rules.map(|rule| RuleDescription { created_at: ctx.now, ..rule });
                rules.map(|rule| Rule::create(rule, ctx.limits)).collect::<Result<_, _>>()?
            }
        };
        let rules = self.matcher.check_subscription(rules, ctx.limits)?;
        let bytes = rules.iter().map(Rule::memory_bytes).sum::<u64>();
        intake::refuse_descriptions(bytes + description.text_bytes(), 0, ctx)?;
        let change = TopicChange::SubscriptionCreated { id, description, rules, at: ctx.now };
        self.change(Change::OfTopic(change), Durability::Sync, ctx, step);
        self.usage.touch(ctx.now);
        Ok(Answer::after_commit(Outcome::Done))
    }

    /// Removes a subscription with all its messages. The family subtracts their bytes.
    pub(super) fn remove_subscription(
        &mut self,
        id: EntityId,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        if !self.subscriptions.contains_key(&id) {
            return Err(self.no_subscription());
        }
        // Its last use is no longer known separately (TMP-10).
        self.usage.touch(self.family_summary.used_at);
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
        name: &str,
        settings: CopySettings,
        last_sequence: SequenceNumber,
    ) {
        self.matcher.restore_subscription(id, settings.rules);
        let subscription = Subscription { name: name.into(), last_sequence, settings };
        self.session_subscription_count += sessions_of(Some(&subscription));
        let before = self.subscriptions.insert(id, subscription);
        self.session_subscription_count -= sessions_of(before.as_ref());
    }

    /// Restores a subscription with its rules from the store. Called after its own machine was
    /// restored, which knows the highest number given there.
    pub fn adopt(
        &mut self,
        id: EntityId,
        description: &SubscriptionDescription,
        last_sequence: SequenceNumber,
        rules: Vec<Rule>,
    ) {
        self.add(id, &description.name, CopySettings::of(description), last_sequence);
        for rule in rules {
            self.matcher.restore_rule(id, rule);
        }
    }

    /// Iterates over the ids of the subscriptions, in ascending order.
    pub fn subscription_ids(&self) -> impl Iterator<Item = EntityId> {
        self.subscriptions.keys().copied()
    }
}

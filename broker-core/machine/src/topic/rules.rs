//! Rules of subscriptions: create, replace, remove, read, explain (TOP-13 to TOP-24).
//! `topic/mod.rs` calls it. A rule takes effect for messages published after its change.

use super::Topic;
use super::publish::Journey;
use crate::change::{Change, Durability, TopicChange};
use crate::command::{Outcome, RuleCommand};
use crate::effect::Answer;
use crate::error::{Quoted, Rejection};
use crate::ids::{EntityId, Ticket};
use crate::message::Content;
use crate::rule::{Rule, RuleDescription};
use crate::{Ctx, StepOutput, intake};

impl Topic {
    /// Carries out a command about the rules of a subscription.
    pub(super) fn in_subscription(
        &mut self,
        ticket: Ticket,
        id: EntityId,
        command: RuleCommand,
        ctx: &mut Ctx<'_>,
        step: &mut StepOutput,
    ) -> Result<Answer, Rejection> {
        if !self.subscriptions.contains_key(&id) {
            return Err(self.no_subscription());
        }
        match command {
            RuleCommand::Create(rule) => {
                intake::refuse_too_many_rules(1, ctx)?;
                let rule = RuleDescription { created_at: ctx.now, ..*rule };
                let rule = self.matcher.check_rule(id, rule, ctx.limits)?;
                intake::refuse_descriptions(rule.memory_bytes(), 0, ctx)?;
                self.set(id, rule, true, ctx, step);
                Ok(Answer::after_commit(Outcome::Done))
            }
            RuleCommand::Update(rule) => {
                let rule = self.matcher.check_update(id, *rule, ctx.limits)?;
                let before = self.matcher.rule(id, rule.name()).map_or(0, Rule::memory_bytes);
                intake::refuse_descriptions(rule.memory_bytes(), before, ctx)?;
                self.set(id, rule, false, ctx, step);
                Ok(Answer::after_commit(Outcome::Done))
            }
            RuleCommand::Delete(name) => {
                if self.matcher.rule(id, &name).is_none() {
                    return Err(no_rule(&name));
                }
                let change = TopicChange::RuleRemoved { subscription: id, name };
                self.change(Change::OfTopic(change), Durability::Sync, ctx, step);
                Ok(Answer::after_commit(Outcome::Done))
            }
            RuleCommand::Get(name) => {
                let rule = self.matcher.rule(id, &name).ok_or_else(|| no_rule(&name))?;
                Ok(Answer::after_commit(Outcome::Rules(vec![rule.description().clone()])))
            }
            RuleCommand::List { skip, top } => {
                let rules = listed(self.matcher.rules(id).skip(skip), top);
                Ok(Answer::after_commit(Outcome::Rules(rules)))
            }
            RuleCommand::Explain(message) => {
                if let Some(selected_by) = self.passed_over(id, &message.content, ctx) {
                    let rules = self.matcher.rules(id).take(ctx.limits.list_count_max);
                    let explained = rules.map(|rule| rule.not_evaluated(selected_by)).collect();
                    return Ok(Answer::after_commit(Outcome::Explained(explained)));
                }
                if let Some(explained) = self.explained_ahead(ticket) {
                    return Ok(Answer::after_commit(Outcome::Explained(explained)));
                }
                let content = &message.content;
                let (journey, sequence) = (Journey::default(), self.last_sequence.next());
                let published = self.published(content, &journey, sequence, ctx.now);
                let rules = self.matcher.rules(id).take(ctx.limits.list_count_max);
                let explained = rules
                    .map(|rule| rule.explain(&published, ctx.limits, &mut *ctx.tokens))
                    .collect();
                Ok(Answer::after_commit(Outcome::Explained(explained)))
            }
        }
    }

    /// Name of the subscription whose selection keeps a message from this one, a catch-all
    /// (TOP-30).
    fn passed_over(&self, id: EntityId, content: &Content, ctx: &mut Ctx<'_>) -> Option<&str> {
        if !self.is_catch_all(id) {
            return None;
        }
        let sequence = self.last_sequence.next();
        let selection = self.select(content, &Journey::default(), sequence, ctx);
        self.subscriptions.get(&selection.selected_by?).map(|subscription| &*subscription.name)
    }

    pub(super) fn is_catch_all(&self, id: EntityId) -> bool {
        self.matcher.settings(id).is_some_and(|settings| settings.catch_all)
    }

    /// Stores a compiled rule. Rules apply to messages that are accepted afterwards (TOP-09).
    fn set(
        &mut self,
        subscription: EntityId,
        rule: Rule,
        is_new: bool,
        ctx: &Ctx<'_>,
        step: &mut StepOutput,
    ) {
        let rule = Box::new(rule);
        let change = TopicChange::RuleSet { subscription, rule, is_new, at: ctx.now };
        self.change(Change::OfTopic(change), Durability::Sync, ctx, step);
    }
}

/// Returns the first rules, within the count and bytes of a list (ENT-30).
fn listed<'a>(rules: impl Iterator<Item = &'a Rule>, top: usize) -> Vec<RuleDescription> {
    let mut listed = Vec::new();
    let mut bytes = 0;
    for rule in rules.take(top.min(RuleCommand::LISTED_MAX)) {
        let description = rule.description();
        bytes += description.bytes();
        if bytes > RuleCommand::LISTED_BYTES_MAX && !listed.is_empty() {
            break;
        }
        listed.push(description.clone());
    }
    listed
}

fn no_rule(name: &str) -> Rejection {
    Rejection::new(
        crate::condition::Condition::EntityNotFound,
        format!("there is no rule {}", Quoted(name)),
    )
}

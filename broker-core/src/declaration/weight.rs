//! Memory for carrying out a declaration (DESIGN D6): an upper bound before it is planned, and the
//! actual bytes afterwards.

use super::plan::{Change, Step};
use super::planner::{NewSubscription, PlanWithWork, StepWork};
use super::rules::RuleWork;
use super::yielder::Yielder;
use super::{Declaration, PLAN_DELETE_COUNT_MAX, PLAN_RULE_BYTES_MAX, Unnamed};
use crate::rule::RuleDescription;

/// Maximum bytes of an entity in the steps, their work and their answer: all properties, with long
/// texts before and after.
const ENTITY_BYTES: u64 = 16 << 10;
/// Fixed bytes of every plan.
const LEAST_BYTES: u64 = 8 << 10;
/// Number of copies of a declared rule: one in the work and two in texts, where an escaped byte may
/// take five.
const RULE_COPIES: u64 = 1 + 2 * 5;
/// Maximum bytes of a deletion in the steps, their work and their answer.
const DELETION_BYTES: u64 = 2 << 10;
/// Bytes of a text in addition to its content.
const TEXT_BYTES: usize = 32;

impl Declaration {
    /// Returns an upper bound of the bytes for carrying the declaration out.
    pub(crate) async fn carried_out_bytes_max(&self, yielder: &mut Yielder) -> u64 {
        let roots = self.queues.len() + self.topics.len();
        let mut bytes = LEAST_BYTES + ENTITY_BYTES * roots as u64;
        let mut has_rule_lists = false;
        for topic in &self.topics {
            for subscription in &topic.subscriptions {
                bytes += ENTITY_BYTES;
                yielder.step().await;
                for rule in subscription.rules.iter().flatten() {
                    bytes += RULE_COPIES * rule_bytes(rule);
                    yielder.step().await;
                }
                has_rule_lists |= subscription.rules.is_some();
            }
        }
        if has_rule_lists {
            bytes += 2 * PLAN_RULE_BYTES_MAX as u64;
        }
        if self.unnamed == Unnamed::Delete {
            bytes += DELETION_BYTES * PLAN_DELETE_COUNT_MAX as u64;
        }
        bytes
    }
}

impl PlanWithWork {
    /// Returns the bytes for carrying the plan out, including its answer.
    pub(crate) async fn bytes(&self, yielder: &mut Yielder) -> u64 {
        let mut bytes = LEAST_BYTES;
        for Step { path, changes, .. } in self.plan.steps.iter().chain(&self.plan.kept) {
            bytes += 2 * (size_of::<Step>() + text_bytes(path)) as u64;
            yielder.step().await;
            for change in changes {
                bytes += 2 * change_bytes(change) as u64;
                yielder.step().await;
            }
        }
        for work in &self.work {
            bytes += size_of::<StepWork>() as u64;
            yielder.step().await;
            match work {
                StepWork::CreateSubscription(NewSubscription { rules, .. }) => {
                    for rule in rules.iter().flatten() {
                        bytes += rule_bytes(rule);
                        yielder.step().await;
                    }
                }
                StepWork::UpdateSubscription(_, _, rules) => {
                    for rule in rules {
                        bytes += work_bytes(rule);
                        yielder.step().await;
                    }
                }
                StepWork::CreateQueue(_)
                | StepWork::UpdateQueue(..)
                | StepWork::CreateTopic(_)
                | StepWork::UpdateTopic(..) => {}
                StepWork::Delete(unnamed) => bytes += text_bytes(&unnamed.path) as u64,
            }
        }
        bytes
    }
}

const fn text_bytes(text: &str) -> usize {
    text.len() + TEXT_BYTES
}

fn change_bytes(Change { property, before, after }: &Change) -> usize {
    let texts = [before, after].into_iter().flatten().map(|text| text_bytes(text));
    size_of::<Change>() + text_bytes(property) + texts.sum::<usize>()
}

fn rule_bytes(rule: &RuleDescription) -> u64 {
    (size_of::<RuleDescription>() + rule.memory_bytes()) as u64
}

fn work_bytes(work: &RuleWork) -> u64 {
    let heap_bytes = match work {
        RuleWork::Create(rule) | RuleWork::Update(rule) => rule.memory_bytes(),
        RuleWork::Delete(name) => text_bytes(name),
    };
    (size_of::<RuleWork>() + heap_bytes) as u64
}

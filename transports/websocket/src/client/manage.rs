//! Management: what is asked about entities, as operations of the protocol. A subscription is named by its
//! path, `<topic>/Subscriptions/<name>`.

use peeklock_client::port::{Managed, Management, Page, Patch};
use peeklock_core::command::{ReceiveMode, SessionFilter};
use peeklock_core::description::EntityKind;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::rule::RuleDescription;

use super::core::Lifeline;
use crate::frame::message::Outgoing;
use crate::frame::text::Instant;
use crate::operation::{
    CarryOutDeclaration, CreateQueue, CreateSubscription, CreateTopic, DeclarationForm,
    DeleteDeferred, DeleteUnlocked, DigestText, Explain, KeyForm, ListOf, ListQueues, ListSessions,
    NamedPolicy, NamedRule, Notice, Operation, PathOnly, PlanDeclaration, PolicyProperties,
    QueueProperties, RegeneratePolicyKey, Role, RuleForm, SetPolicy, SetRule,
    SubscriptionProperties, TopicProperties, UpdateQueue, UpdateSubscription, UpdateTopic,
};
use std::sync::Arc;

pub(super) async fn manage(
    core: &Arc<Lifeline>,
    path: &str,
    asked: Management,
) -> Result<Managed, BrokerError> {
    if let Management::DeleteDeferred(sequence) = asked {
        return delete_deferred(core, path, sequence).await;
    }
    let unexpected = || core.refuse(Rejection::internal("unexpected answer"), path);
    let are_paths = matches!(asked, Management::Paths(..));
    let operation = operation(path, asked).ok_or_else(unexpected)?;
    let managed = managed(core.call(None, path, operation).await?).ok_or_else(unexpected)?;
    Ok(if are_paths { paths(managed) } else { managed })
}

/// The operation that asks for it.
fn operation(path: &str, asked: Management) -> Option<Operation> {
    let path = path.to_owned();
    let version = |patch: &Patch| patch.read_at.map(Instant);
    Some(match asked {
        Management::CreateQueue(properties) => {
            let properties = QueueProperties::from(&*properties);
            Operation::CreateQueue(CreateQueue { path, properties })
        }
        Management::Queue => Operation::GetQueue(PathOnly { path }),
        Management::UpdateQueue(properties, patch) => {
            let version = version(&patch);
            let properties = QueueProperties::from(&*properties).clearing(patch.cleared);
            Operation::UpdateQueue(UpdateQueue { path, properties, version })
        }
        Management::CreateTopic(properties) => {
            let properties = TopicProperties::from(&*properties);
            Operation::CreateTopic(CreateTopic { path, properties })
        }
        Management::Topic => Operation::GetTopic(PathOnly { path }),
        Management::UpdateTopic(properties, patch) => {
            let version = version(&patch);
            let mut properties = TopicProperties::from(&*properties);
            if patch.cleared.user_metadata {
                properties = properties.replacing();
            }
            Operation::UpdateTopic(UpdateTopic { path, properties, version })
        }
        Management::CreateSubscription { name, properties, rules } => {
            Operation::CreateSubscription(CreateSubscription {
                topic: path,
                name: name.into(),
                properties: SubscriptionProperties::from(&*properties),
                rules: rules.iter().map(RuleForm::from).collect(),
            })
        }
        Management::Subscription => Operation::GetSubscription(PathOnly { path }),
        Management::UpdateSubscription(properties, patch) => {
            let version = version(&patch);
            let properties = SubscriptionProperties::from(&*properties).clearing(patch.cleared);
            Operation::UpdateSubscription(UpdateSubscription { path, properties, version })
        }
        Management::Delete(EntityKind::Queue) => Operation::DeleteQueue(PathOnly { path }),
        Management::Delete(EntityKind::Topic) => Operation::DeleteTopic(PathOnly { path }),
        Management::Delete(EntityKind::Subscription) => {
            Operation::DeleteSubscription(PathOnly { path })
        }
        Management::Queues(page) | Management::Paths(EntityKind::Queue, page) => {
            Operation::ListQueues(whole_list(page))
        }
        Management::Topics(page) | Management::Paths(EntityKind::Topic, page) => {
            Operation::ListTopics(whole_list(page))
        }
        Management::Subscriptions(page) | Management::Paths(EntityKind::Subscription, page) => {
            Operation::ListSubscriptions(list(path, page))
        }
        Management::CreateRule(rule) => {
            Operation::CreateRule(SetRule { path, rule: RuleForm::from(&*rule) })
        }
        Management::UpdateRule(rule) => {
            Operation::UpdateRule(SetRule { path, rule: RuleForm::from(&*rule) })
        }
        Management::DeleteRule(name) => {
            Operation::DeleteRule(NamedRule { path, name: name.into() })
        }
        Management::Rule(name) => Operation::GetRule(NamedRule { path, name: name.into() }),
        Management::Rules(page) => Operation::ListRules(list(path, page)),
        Management::Explain(message) => {
            Operation::Explain(Explain { path, message: Outgoing::Typed(message) })
        }
        Management::Sessions(which, page) => {
            let (with_active_messages, state_set_after_utc) = match which {
                SessionFilter::All => (false, None),
                SessionFilter::WithActiveMessages => (true, None),
                SessionFilter::StateSetAfter(at) => (false, Some(Instant(at))),
            };
            let (skip, top) = (narrow(page.skip), page.top.map(narrow));
            Operation::ListSessions(ListSessions {
                path,
                with_active_messages,
                state_set_after_utc,
                skip,
                top,
            })
        }
        Management::DeleteUnlocked { count_max, enqueued_before } => {
            let enqueued_before_utc = enqueued_before.map(Instant);
            let max_count = count_max;
            Operation::DeleteUnlocked(DeleteUnlocked { path, max_count, enqueued_before_utc })
        }
        Management::Policies => Operation::ListPolicies(PathOnly { path }),
        Management::Policy(name) => Operation::GetPolicy(NamedPolicy { path, name: name.into() }),
        Management::CreatePolicy(name, update) => {
            let properties = PolicyProperties::from(&update);
            Operation::CreatePolicy(SetPolicy { path, name: name.into(), properties })
        }
        Management::UpdatePolicy(name, update) => {
            let properties = PolicyProperties::from(&update);
            Operation::UpdatePolicy(SetPolicy { path, name: name.into(), properties })
        }
        Management::DeletePolicy(name) => {
            Operation::DeletePolicy(NamedPolicy { path, name: name.into() })
        }
        Management::PolicyKeys(name) => {
            Operation::GetPolicyKeys(NamedPolicy { path, name: name.into() })
        }
        Management::RegenerateKey(name, which, value) => {
            let value = value.as_ref().map(KeyForm::from);
            let (name, key) = (name.into(), which.into());
            Operation::RegeneratePolicyKey(RegeneratePolicyKey { path, name, key, value })
        }
        Management::Plan(declaration) => {
            let declaration = DeclarationForm::from(&*declaration);
            Operation::PlanDeclaration(PlanDeclaration { declaration })
        }
        Management::CarryOut(declaration, digest) => {
            let declaration = DeclarationForm::from(&*declaration);
            let (digest, steps_max) = (DigestText(digest), None);
            Operation::CarryOutDeclaration(CarryOutDeclaration { declaration, digest, steps_max })
        }
        // Asked over a link.
        Management::DeleteDeferred(_) => return None,
    })
}

/// What a notice says; none of one that answers something else.
fn managed(notice: Notice) -> Option<Managed> {
    let rule = |form: &RuleForm| RuleDescription::try_from(form).ok();
    Some(match notice {
        Notice::Done(_) => Managed::Done,
        Notice::Queue(view) => Managed::Queue(Box::new((*view).into())),
        Notice::Queues(list) => Managed::Queues(list.queues.into_iter().map(Into::into).collect()),
        Notice::Topic(view) => Managed::Topic(Box::new((*view).into())),
        Notice::Topics(list) => Managed::Topics(list.topics.into_iter().map(Into::into).collect()),
        Notice::Subscription(view) => Managed::Subscription(Box::new((*view).into())),
        Notice::Subscriptions(list) => {
            Managed::Subscriptions(list.subscriptions.into_iter().map(Into::into).collect())
        }
        Notice::Rule(form) => Managed::Rules(vec![rule(&form)?]),
        Notice::Rules(list) => Managed::Rules(list.rules.iter().map(rule).collect::<Option<_>>()?),
        Notice::Explained(explained) => {
            Managed::Explained(explained.rules.into_iter().map(Into::into).collect())
        }
        Notice::Sessions(list) => {
            Managed::Sessions(list.session_ids.into_iter().map(Arc::from).collect())
        }
        Notice::Policy(view) => Managed::Policies(vec![(*view).into()]),
        Notice::Policies(list) => {
            Managed::Policies(list.policies.into_iter().map(Into::into).collect())
        }
        Notice::PolicyKeys(view) => Managed::PolicyKeys(Box::new((*view).try_into().ok()?)),
        Notice::Plan(view) => Managed::Plan(Box::new((*view).try_into().ok()?)),
        Notice::CarriedOut(view) => Managed::CarriedOut(Box::new((*view).try_into().ok()?)),
        Notice::Deleted(deleted) => Managed::Deleted(deleted.count),
        _ => return None,
    })
}

/// The paths of a list of entities.
fn paths(managed: Managed) -> Managed {
    match managed {
        Managed::Queues(queues) => {
            let paths = queues.into_iter().map(|queue| queue.description.path.into());
            Managed::Paths(paths.collect())
        }
        Managed::Topics(topics) => {
            let paths = topics.into_iter().map(|topic| topic.description.path.into());
            Managed::Paths(paths.collect())
        }
        Managed::Subscriptions(subscriptions) => {
            let paths = subscriptions.into_iter().map(|one| one.description.path().into());
            Managed::Paths(paths.collect())
        }
        other => other,
    }
}

async fn delete_deferred(
    core: &Arc<Lifeline>,
    path: &str,
    sequence: SequenceNumber,
) -> Result<Managed, BrokerError> {
    let link = core.attach(path, Role::Receiver, ReceiveMode::PeekLock)?;
    let delete = DeleteDeferred { link: link.number, sequence_number: sequence.0 };
    link.call(Operation::DeleteDeferred(delete)).await?;
    link.end().await?;
    Ok(Managed::Done)
}

fn whole_list(page: Page) -> ListQueues {
    ListQueues { skip: narrow(page.skip), top: page.top.map(narrow) }
}

fn list(path: String, page: Page) -> ListOf {
    ListOf { path, skip: narrow(page.skip), top: page.top.map(narrow) }
}

fn narrow(count: usize) -> u32 {
    u32::try_from(count).unwrap_or(u32::MAX)
}

//! Management of entities, rules, policies and declarations: the table of its operations, and how
//! each maps to a request of the core and each answer of the core to a notice. The client has the
//! same mapping in the other direction.
//!
//! A new one is a row, an arm in [`ManageOperation::path`] and one in
//! [`ManageOperation::into_request`] here; for the client an arm in [`operation`]. A body that no
//! other operation has is in `forms.rs`. Codes are shared with the table in `operation.rs`: a new
//! row gets the number after the highest code of both.

mod forms;

use peeklock_core::Broker;
use peeklock_core::command::OperatorCommand;
use peeklock_core::description::EntityKind;
use peeklock_core::error::Rejection;
use peeklock_core::ids::{JobId, SequenceNumber};
use peeklock_core::inspect::{ClientId, JobControl, Question};
use peeklock_core::management::{Managed, Management, Page, SampleMessage};

pub(crate) use self::forms::*;
#[cfg(feature = "client")]
pub(crate) use self::of_client::*;
use super::Notice;
use super::send::inbound;
use crate::frame::text::Instant;
use crate::frame::{Empty, schema};

/// Maximum bytes of a body or session state in one answer. The client asks for the next part.
const CONTENT_BYTES_MAX: u64 = 1 << 20;

schema! {
    /// A management operation that a client asks for. One that reads begins with `get` or `list`.
    enum ManageOperation {
        /// Creates a queue.
        19 "createQueue" CreateQueue(CreateQueue),
        /// Reads a queue and its runtime counts.
        20 "getQueue" GetQueue(PathOnly),
        /// Changes a queue.
        21 "updateQueue" UpdateQueue(UpdateQueue),
        /// Deletes a queue.
        22 "deleteQueue" DeleteQueue(PathOnly),
        /// Lists queues.
        23 "listQueues" ListQueues(WholeList),
        /// Creates a topic.
        40 "createTopic" CreateTopic(CreateTopic),
        /// Reads a topic and its runtime counts.
        41 "getTopic" GetTopic(PathOnly),
        /// Changes a topic.
        42 "updateTopic" UpdateTopic(UpdateTopic),
        /// Deletes a topic with its subscriptions.
        43 "deleteTopic" DeleteTopic(PathOnly),
        /// Lists topics.
        44 "listTopics" ListTopics(WholeList),
        /// Creates a subscription of a topic, with its rules.
        45 "createSubscription" CreateSubscription(CreateSubscription),
        /// Reads a subscription and its runtime counts.
        46 "getSubscription" GetSubscription(PathOnly),
        /// Changes a subscription.
        47 "updateSubscription" UpdateSubscription(UpdateSubscription),
        /// Deletes a subscription.
        48 "deleteSubscription" DeleteSubscription(PathOnly),
        /// Lists the subscriptions of a topic.
        49 "listSubscriptions" ListSubscriptions(ListOf),
        /// Adds a rule to a subscription.
        50 "createRule" CreateRule(SetRule),
        /// Reads a rule.
        51 "getRule" GetRule(NamedRule),
        /// Replaces filter and action of a rule.
        52 "updateRule" UpdateRule(SetRule),
        /// Removes a rule.
        53 "deleteRule" DeleteRule(NamedRule),
        /// Lists the rules of a subscription.
        54 "listRules" ListRules(ListOf),
        /// Explains which rules of a subscription would select a message (MAT-01).
        55 "explain" Explain(Explain),
        /// Creates a policy of the namespace, a queue or a topic.
        80 "createPolicy" CreatePolicy(SetPolicy),
        /// Reads a policy, without its keys.
        81 "getPolicy" GetPolicy(NamedPolicy),
        /// Changes a policy.
        82 "updatePolicy" UpdatePolicy(SetPolicy),
        /// Deletes a policy.
        83 "deletePolicy" DeletePolicy(NamedPolicy),
        /// Lists policies, without their keys.
        84 "listPolicies" ListPolicies(PathOnly),
        /// Reads the keys of a policy.
        85 "getPolicyKeys" GetPolicyKeys(NamedPolicy),
        /// Replaces one key of a policy.
        86 "regeneratePolicyKey" RegeneratePolicyKey(RegeneratePolicyKey),
        /// Plans the steps that make the namespace as declared.
        90 "planDeclaration" PlanDeclaration(PlanDeclaration),
        /// Carries out the first steps of a plan.
        91 "carryOutDeclaration" CarryOutDeclaration(CarryOutDeclaration),
        /// Answers a question of an operator; changes nothing.
        92 "inspect" Inspect(Inspect),
        /// Breaks locks of messages, regardless of their holders (CON-26).
        93 "breakLocks" BreakLocks(BreakLocks),
        /// Breaks the lock of a session (CON-26).
        94 "breakSession" BreakSession(BreakSession),
        /// Sets or clears the state of a session that no receiver holds (CON-27).
        95 "setStateOfSession" SetStateOfSession(SetStateOfSession),
        /// Closes the connection of a client (CON-24).
        96 "closeClient" CloseClient(CloseClient),
        /// Acts on messages that are named by number (CON-12).
        97 "act" Act(ActOnMessages),
        /// Forgets the receipt of a job that has ended (CON-15).
        98 "forgetJob" ForgetJob(ForgetJob),
        /// Makes a job on messages of an entity (CON-12).
        99 "createJob" CreateJob(CreateJob),
        /// Starts, pauses, resumes, cancels or undoes a job (CON-19).
        100 "controlJob" ControlJob(ControlJob),
        /// Mutes a finding of the checks (CON-39).
        101 "muteFinding" MuteFinding(MuteFinding),
        /// Reports a muted finding again (CON-39).
        102 "unmuteFinding" UnmuteFinding(UnmuteFinding),
    }
}

impl ManageOperation {
    /// The path in the operation, for errors; none for the namespace as a whole.
    pub(crate) fn path(&self) -> Option<&str> {
        match self {
            Self::CreateQueue(CreateQueue { path, .. })
            | Self::UpdateQueue(UpdateQueue { path, .. })
            | Self::CreateTopic(CreateTopic { path, .. })
            | Self::UpdateTopic(UpdateTopic { path, .. })
            | Self::CreateSubscription(CreateSubscription { topic: path, .. })
            | Self::UpdateSubscription(UpdateSubscription { path, .. })
            | Self::GetQueue(PathOnly { path })
            | Self::DeleteQueue(PathOnly { path })
            | Self::GetTopic(PathOnly { path })
            | Self::DeleteTopic(PathOnly { path })
            | Self::GetSubscription(PathOnly { path })
            | Self::DeleteSubscription(PathOnly { path })
            | Self::ListSubscriptions(ListOf { path, .. })
            | Self::ListRules(ListOf { path, .. })
            | Self::CreateRule(SetRule { path, .. })
            | Self::UpdateRule(SetRule { path, .. })
            | Self::GetRule(NamedRule { path, .. })
            | Self::DeleteRule(NamedRule { path, .. })
            | Self::Explain(Explain { path, .. })
            | Self::CreatePolicy(SetPolicy { path, .. })
            | Self::UpdatePolicy(SetPolicy { path, .. })
            | Self::GetPolicy(NamedPolicy { path, .. })
            | Self::DeletePolicy(NamedPolicy { path, .. })
            | Self::GetPolicyKeys(NamedPolicy { path, .. })
            | Self::ListPolicies(PathOnly { path })
            | Self::Inspect(Inspect { path, .. })
            | Self::BreakLocks(BreakLocks { path, .. })
            | Self::BreakSession(BreakSession { path, .. })
            | Self::SetStateOfSession(SetStateOfSession { path, .. })
            | Self::Act(ActOnMessages { path, .. })
            | Self::ForgetJob(ForgetJob { path, .. })
            | Self::CreateJob(CreateJob { path, .. })
            | Self::MuteFinding(MuteFinding { path, .. })
            | Self::UnmuteFinding(UnmuteFinding { path, .. })
            | Self::RegeneratePolicyKey(RegeneratePolicyKey { path, .. }) => Some(path),
            Self::CloseClient(_)
            | Self::ControlJob(_)
            | Self::ListQueues(_)
            | Self::ListTopics(_)
            | Self::PlanDeclaration(_)
            | Self::CarryOutDeclaration(_) => None,
        }
    }

    /// The request that the operation makes; [`ManageOperation::path`] is its path.
    ///
    /// # Errors
    /// As for the conversion of the body.
    pub(crate) fn into_request(self, broker: &Broker) -> Result<Management, Rejection> {
        Ok(match self {
            Self::CreateQueue(CreateQueue { properties, .. }) => {
                Management::CreateQueue(Box::new(properties.to_update()?))
            }
            Self::GetQueue(_) => Management::Queue,
            Self::UpdateQueue(UpdateQueue { properties, version, .. }) => {
                let update = Box::new(properties.to_update()?);
                Management::UpdateQueue(update, patch(properties.cleared(), version))
            }
            Self::DeleteQueue(_) => Management::Delete(EntityKind::Queue),
            Self::ListQueues(WholeList { skip, top }) => Management::Queues(page(skip, top)),
            Self::CreateTopic(CreateTopic { properties, .. }) => {
                Management::CreateTopic(Box::new(properties.to_update()?))
            }
            Self::GetTopic(_) => Management::Topic,
            Self::UpdateTopic(UpdateTopic { properties, version, .. }) => {
                let update = Box::new(properties.to_update()?);
                Management::UpdateTopic(update, patch(properties.cleared(), version))
            }
            Self::DeleteTopic(_) => Management::Delete(EntityKind::Topic),
            Self::ListTopics(WholeList { skip, top }) => Management::Topics(page(skip, top)),
            Self::CreateSubscription(CreateSubscription { name, properties, rules, .. }) => {
                let properties = Box::new(properties.to_update()?);
                let rules = rules.iter().map(RuleForm::to_description).collect::<Result<_, _>>()?;
                Management::CreateSubscription { name: name.into(), properties, rules }
            }
            Self::GetSubscription(_) => Management::Subscription,
            Self::UpdateSubscription(UpdateSubscription { properties, version, .. }) => {
                let update = Box::new(properties.to_update()?);
                Management::UpdateSubscription(update, patch(properties.cleared(), version))
            }
            Self::DeleteSubscription(_) => Management::Delete(EntityKind::Subscription),
            Self::ListSubscriptions(ListOf { skip, top, .. }) => {
                Management::Subscriptions(page(skip, top))
            }
            Self::CreateRule(SetRule { rule, .. }) => {
                Management::CreateRule(Box::new(rule.to_description()?))
            }
            Self::GetRule(NamedRule { name, .. }) => Management::Rule(name.into()),
            Self::UpdateRule(SetRule { rule, .. }) => {
                Management::UpdateRule(Box::new(rule.to_description()?))
            }
            Self::DeleteRule(NamedRule { name, .. }) => Management::DeleteRule(name.into()),
            Self::ListRules(ListOf { skip, top, .. }) => Management::Rules(page(skip, top)),
            Self::Explain(Explain { message, .. }) => {
                let message = inbound(broker, message)?;
                Management::Explain(Box::new(SampleMessage::Inbound(message)))
            }
            Self::CreatePolicy(SetPolicy { name, properties, .. }) => {
                Management::CreatePolicy(name.into(), properties.to_update()?)
            }
            Self::GetPolicy(NamedPolicy { name, .. }) => Management::Policy(name.into()),
            Self::UpdatePolicy(SetPolicy { name, properties, .. }) => {
                Management::UpdatePolicy(name.into(), properties.to_update()?)
            }
            Self::DeletePolicy(NamedPolicy { name, .. }) => Management::DeletePolicy(name.into()),
            Self::ListPolicies(_) => Management::Policies,
            Self::GetPolicyKeys(NamedPolicy { name, .. }) => Management::PolicyKeys(name.into()),
            Self::RegeneratePolicyKey(RegeneratePolicyKey { name, key, value, .. }) => {
                let value = value.as_ref().map(KeyForm::to_key).transpose()?;
                Management::RegenerateKey(name.into(), key.into(), value)
            }
            Self::PlanDeclaration(PlanDeclaration { declaration }) => {
                Management::Plan(Box::new(declaration.to_declaration()?))
            }
            Self::CarryOutDeclaration(CarryOutDeclaration { declaration, digest, steps_max }) => {
                Management::CarryOut {
                    declaration: Box::new(declaration.to_declaration()?),
                    digest: digest.0,
                    steps_max: steps_max.map(wide),
                }
            }
            Self::Inspect(Inspect { question, .. }) => {
                let mut question = question.to_question(broker.now())?;
                if let Question::Body { length, .. } | Question::SessionState { length, .. } =
                    &mut question
                {
                    *length = (*length).min(CONTENT_BYTES_MAX);
                }
                Management::Inspect(Box::new(question))
            }
            Self::BreakLocks(BreakLocks { sequence_numbers, counted: counts, .. }) => {
                let sequences = sequence_numbers.into_iter().map(SequenceNumber).collect();
                Management::Operate(OperatorCommand::BreakLocks { sequences, counts })
            }
            Self::BreakSession(BreakSession { session_id, counted: counts, .. }) => {
                let session = session_id.into();
                Management::Operate(OperatorCommand::BreakSession { session, counts })
            }
            Self::SetStateOfSession(SetStateOfSession { session_id, state, .. }) => {
                let session = session_id.into();
                Management::Operate(OperatorCommand::SetSessionState { session, state })
            }
            Self::Act(ActOnMessages { act, .. }) => {
                Management::Operate(OperatorCommand::Act(Box::new(act.try_into()?)))
            }
            Self::ForgetJob(ForgetJob { job, .. }) => {
                Management::Operate(OperatorCommand::ForgetJob(JobId(job.0)))
            }
            Self::CreateJob(CreateJob { draft, .. }) => {
                Management::CreateJob(Box::new(draft.to_draft(broker.now())?))
            }
            Self::ControlJob(ControlJob { job, control }) => {
                Management::ControlJob(JobId(job.0), JobControl::from(control))
            }
            Self::CloseClient(CloseClient { client }) => Management::CloseClient(ClientId(client)),
            Self::MuteFinding(mute) => Management::Mute(mute.into()),
            Self::UnmuteFinding(unmute) => Management::Mute(unmute.into()),
        })
    }
}

/// The notice that answers a request; none for answers to requests of other transports only.
pub(crate) fn notice(managed: Managed) -> Option<Notice> {
    Some(match managed {
        Managed::Done => Notice::Done(Empty {}),
        Managed::Queue(queue) => Notice::Queue(Box::new(QueueView::from(*queue))),
        Managed::Queues(queues) => {
            let queues = queues.into_iter().map(QueueView::from).collect();
            Notice::Queues(QueueList { queues })
        }
        Managed::Topic(topic) => Notice::Topic(Box::new(TopicView::from(*topic))),
        Managed::Topics(topics) => {
            let topics = topics.into_iter().map(TopicView::from).collect();
            Notice::Topics(TopicList { topics })
        }
        Managed::Subscription(subscription) => {
            Notice::Subscription(Box::new(SubscriptionView::from(*subscription)))
        }
        Managed::Subscriptions(subscriptions) => {
            let subscriptions = subscriptions.into_iter().map(SubscriptionView::from).collect();
            Notice::Subscriptions(SubscriptionList { subscriptions })
        }
        Managed::Rule(rule) => Notice::Rule(Box::new(RuleForm::from(&*rule))),
        Managed::Rules(rules) => {
            Notice::Rules(RuleList { rules: rules.iter().map(RuleForm::from).collect() })
        }
        Managed::Explained(explained) => {
            let rules = explained.iter().map(ExplanationView::from).collect();
            Notice::Explained(Explained { rules })
        }
        Managed::Policy(policy) => Notice::Policy(Box::new(PolicyView::from(&*policy))),
        Managed::Policies(policies) => Notice::Policies(PolicyList::from(&*policies)),
        Managed::PolicyKeys(keys) => Notice::PolicyKeys(Box::new(PolicyKeysView::from(&*keys))),
        Managed::Plan(plan) => Notice::Plan(Box::new(PlanView::from(&*plan))),
        Managed::CarriedOut(done) => Notice::CarriedOut(Box::new(PlanResultView::from(&*done))),
        Managed::Findings(findings) => Notice::Findings(Box::new(FindingsView::from(*findings))),
        Managed::LocksBroken(count) => Notice::LocksBroken(LocksBroken { count }),
        Managed::Acted(messages) => Notice::Acted(messages.into()),
        Managed::Namespace(_)
        | Managed::Paths(_)
        | Managed::Sessions(_)
        | Managed::Deleted(_)
        | Managed::KeysOfPolicies(_) => return None,
    })
}

fn wide(count: u32) -> usize {
    usize::try_from(count).unwrap_or(usize::MAX)
}

/// The mapping in the other direction, for the client.
#[cfg(feature = "client")]
mod of_client {
    use std::sync::Arc;

    use peeklock_core::command::SessionFilter;
    use peeklock_core::description::Patch;
    use peeklock_core::rule::RuleDescription;

    use super::*;
    use crate::frame::message::SentMessage;
    use crate::frame::text::Guid;
    use crate::operation::{DeleteUnlocked, ListSessions, Operation};

    /// The operation that makes a request; none for requests that need a link, or that other
    /// transports only have.
    pub(crate) fn operation(path: &str, request: Management) -> Option<Operation> {
        let path = path.to_owned();
        let version = |patch: &Patch| patch.expected_created_at.map(Instant);
        Some(Operation::Manage(Box::new(match request {
            Management::CreateQueue(properties) => {
                let properties = QueueProperties::from(&*properties);
                ManageOperation::CreateQueue(CreateQueue { path, properties })
            }
            Management::Queue => ManageOperation::GetQueue(PathOnly { path }),
            Management::UpdateQueue(properties, patch) => {
                let version = version(&patch);
                let properties = QueueProperties::from(&*properties).clearing(patch.cleared);
                ManageOperation::UpdateQueue(UpdateQueue { path, properties, version })
            }
            Management::CreateTopic(properties) => {
                let properties = TopicProperties::from(&*properties);
                ManageOperation::CreateTopic(CreateTopic { path, properties })
            }
            Management::Topic => ManageOperation::GetTopic(PathOnly { path }),
            Management::UpdateTopic(properties, patch) => {
                let version = version(&patch);
                let properties = TopicProperties::from(&*properties).clearing(patch.cleared);
                ManageOperation::UpdateTopic(UpdateTopic { path, properties, version })
            }
            Management::CreateSubscription { name, properties, rules } => {
                ManageOperation::CreateSubscription(CreateSubscription {
                    topic: path,
                    name: name.into(),
                    properties: SubscriptionProperties::from(&*properties),
                    rules: rules.iter().map(RuleForm::from).collect(),
                })
            }
            Management::Subscription => ManageOperation::GetSubscription(PathOnly { path }),
            Management::UpdateSubscription(properties, patch) => {
                let version = version(&patch);
                let properties = SubscriptionProperties::from(&*properties).clearing(patch.cleared);
                ManageOperation::UpdateSubscription(UpdateSubscription {
                    path,
                    properties,
                    version,
                })
            }
            Management::Delete(EntityKind::Queue) => {
                ManageOperation::DeleteQueue(PathOnly { path })
            }
            Management::Delete(EntityKind::Topic) => {
                ManageOperation::DeleteTopic(PathOnly { path })
            }
            Management::Delete(EntityKind::Subscription) => {
                ManageOperation::DeleteSubscription(PathOnly { path })
            }
            Management::Queues(page) | Management::Paths(EntityKind::Queue, page) => {
                ManageOperation::ListQueues(whole_list(page))
            }
            Management::Topics(page) | Management::Paths(EntityKind::Topic, page) => {
                ManageOperation::ListTopics(whole_list(page))
            }
            Management::Subscriptions(page) | Management::Paths(EntityKind::Subscription, page) => {
                ManageOperation::ListSubscriptions(list(path, page))
            }
            Management::CreateRule(rule) => {
                ManageOperation::CreateRule(SetRule { path, rule: RuleForm::from(&*rule) })
            }
            Management::UpdateRule(rule) => {
                ManageOperation::UpdateRule(SetRule { path, rule: RuleForm::from(&*rule) })
            }
            Management::DeleteRule(name) => {
                ManageOperation::DeleteRule(NamedRule { path, name: name.into() })
            }
            Management::Rule(name) => {
                ManageOperation::GetRule(NamedRule { path, name: name.into() })
            }
            Management::Rules(page) => ManageOperation::ListRules(list(path, page)),
            Management::Explain(sample) => {
                let message = match *sample {
                    SampleMessage::Plain(message) => SentMessage::Typed(Box::new(message)),
                    SampleMessage::Inbound(message) => {
                        SentMessage::Content(message.content.as_bytes().clone())
                    }
                };
                ManageOperation::Explain(Explain { path, message })
            }
            Management::Sessions(which, page) => {
                let (with_active_messages, state_set_after_utc) = match which {
                    SessionFilter::All => (false, None),
                    SessionFilter::WithActiveMessages => (true, None),
                    SessionFilter::StateSetAfter(at) => (false, Some(Instant(at))),
                };
                let (skip, top) = (narrow(page.skip), page.top.map(narrow));
                return Some(Operation::ListSessions(ListSessions {
                    path,
                    with_active_messages,
                    state_set_after_utc,
                    skip,
                    top,
                }));
            }
            Management::DeleteUnlocked { count_max, enqueued_before } => {
                let enqueued_before_utc = enqueued_before.map(Instant);
                let max_count = count_max;
                let delete = DeleteUnlocked { path, max_count, enqueued_before_utc };
                return Some(Operation::DeleteUnlocked(delete));
            }
            Management::Policies => ManageOperation::ListPolicies(PathOnly { path }),
            Management::Policy(name) => {
                ManageOperation::GetPolicy(NamedPolicy { path, name: name.into() })
            }
            Management::CreatePolicy(name, update) => {
                let properties = PolicyProperties::from(&update);
                ManageOperation::CreatePolicy(SetPolicy { path, name: name.into(), properties })
            }
            Management::UpdatePolicy(name, update) => {
                let properties = PolicyProperties::from(&update);
                ManageOperation::UpdatePolicy(SetPolicy { path, name: name.into(), properties })
            }
            Management::DeletePolicy(name) => {
                ManageOperation::DeletePolicy(NamedPolicy { path, name: name.into() })
            }
            Management::PolicyKeys(name) => {
                ManageOperation::GetPolicyKeys(NamedPolicy { path, name: name.into() })
            }
            Management::RegenerateKey(name, which, value) => {
                let value = value.as_ref().map(KeyForm::from);
                let (name, key) = (name.into(), which.into());
                ManageOperation::RegeneratePolicyKey(RegeneratePolicyKey { path, name, key, value })
            }
            Management::Plan(declaration) => {
                let declaration = DeclarationForm::from(&*declaration);
                ManageOperation::PlanDeclaration(PlanDeclaration { declaration })
            }
            Management::CarryOut { declaration, digest, steps_max } => {
                let declaration = DeclarationForm::from(&*declaration);
                let (digest, steps_max) = (DigestText(digest), steps_max.map(narrow));
                ManageOperation::CarryOutDeclaration(CarryOutDeclaration {
                    declaration,
                    digest,
                    steps_max,
                })
            }
            Management::Inspect(question) => {
                let question = QuestionForm::from(&*question);
                ManageOperation::Inspect(Inspect { path, question })
            }
            Management::Operate(OperatorCommand::BreakLocks { sequences, counts: counted }) => {
                let sequence_numbers = sequences.into_iter().map(|sequence| sequence.0).collect();
                ManageOperation::BreakLocks(BreakLocks { path, sequence_numbers, counted })
            }
            Management::Operate(OperatorCommand::BreakSession { session, counts: counted }) => {
                let session_id = session.into();
                ManageOperation::BreakSession(BreakSession { path, session_id, counted })
            }
            Management::Operate(OperatorCommand::SetSessionState { session, state }) => {
                let session_id = session.into();
                ManageOperation::SetStateOfSession(SetStateOfSession { path, session_id, state })
            }
            Management::Operate(OperatorCommand::Act(act)) => {
                ManageOperation::Act(ActOnMessages { path, act: ActForm::from(*act) })
            }
            Management::Operate(OperatorCommand::ForgetJob(JobId(job))) => {
                ManageOperation::ForgetJob(ForgetJob { path, job: Guid(job) })
            }
            Management::CreateJob(draft) => {
                ManageOperation::CreateJob(CreateJob { path, draft: JobForm::from(*draft) })
            }
            Management::ControlJob(JobId(job), control) => {
                let (job, control) = (Guid(job), control.into());
                ManageOperation::ControlJob(ControlJob { job, control })
            }
            Management::CloseClient(ClientId(client)) => {
                ManageOperation::CloseClient(CloseClient { client })
            }
            Management::Mute(change) => mute_operation(path, change),
            Management::DeleteDeferred(_)
            | Management::Namespace
            | Management::CreateOwnRule(_)
            | Management::DeleteOwnRule(_)
            | Management::ReplacePolicies(_) => return None,
        })))
    }

    /// The answer in a notice; none if the notice answers something else.
    pub(crate) fn managed(notice: Notice) -> Option<Managed> {
        let rule = |form: &RuleForm| RuleDescription::try_from(form).ok();
        Some(match notice {
            Notice::Done(_) => Managed::Done,
            Notice::Queue(view) => Managed::Queue(Box::new((*view).into())),
            Notice::Queues(list) => {
                Managed::Queues(list.queues.into_iter().map(Into::into).collect())
            }
            Notice::Topic(view) => Managed::Topic(Box::new((*view).into())),
            Notice::Topics(list) => {
                Managed::Topics(list.topics.into_iter().map(Into::into).collect())
            }
            Notice::Subscription(view) => Managed::Subscription(Box::new((*view).into())),
            Notice::Subscriptions(list) => {
                Managed::Subscriptions(list.subscriptions.into_iter().map(Into::into).collect())
            }
            Notice::Rule(form) => Managed::Rule(Box::new(rule(&form)?)),
            Notice::Rules(list) => {
                Managed::Rules(list.rules.iter().map(rule).collect::<Option<_>>()?)
            }
            Notice::Explained(explained) => {
                Managed::Explained(explained.rules.into_iter().map(Into::into).collect())
            }
            Notice::Sessions(list) => {
                Managed::Sessions(list.session_ids.into_iter().map(Arc::from).collect())
            }
            Notice::Policy(view) => Managed::Policy(Box::new((*view).into())),
            Notice::Policies(list) => {
                Managed::Policies(list.policies.into_iter().map(Into::into).collect())
            }
            Notice::PolicyKeys(view) => Managed::PolicyKeys(Box::new((*view).try_into().ok()?)),
            Notice::Plan(view) => Managed::Plan(Box::new((*view).try_into().ok()?)),
            Notice::CarriedOut(view) => Managed::CarriedOut(Box::new((*view).try_into().ok()?)),
            Notice::Findings(view) => Managed::Findings(Box::new((*view).try_into().ok()?)),
            Notice::Deleted(deleted) => Managed::Deleted(deleted.count),
            Notice::LocksBroken(broken) => Managed::LocksBroken(broken.count),
            Notice::Acted(view) => Managed::Acted(view.into()),
            Notice::Error(_)
            | Notice::Welcome(_)
            | Notice::Accepted(_)
            | Notice::Settled(_)
            | Notice::Renewed(_)
            | Notice::Received(_)
            | Notice::Drained(_)
            | Notice::SessionAccepted(_)
            | Notice::SessionState(_)
            | Notice::Forwarded(_)
            | Notice::Transaction(_)
            | Notice::Committed(_)
            | Notice::Deliveries(_)
            | Notice::Detached(_)
            | Notice::Heartbeat(_)
            | Notice::Closing(_) => return None,
        })
    }

    fn whole_list(page: Page) -> WholeList {
        WholeList { skip: narrow(page.skip), top: page.top.map(narrow) }
    }

    fn list(path: String, page: Page) -> ListOf {
        ListOf { path, skip: narrow(page.skip), top: page.top.map(narrow) }
    }

    fn narrow(count: usize) -> u32 {
        u32::try_from(count).unwrap_or(u32::MAX)
    }
}

//! JSON forms of declarations, of plans, and of their results (file 27 of the specification). The
//! HTTP and WebSocket transports and the command line read and write them.

use peeklock_core::condition::Condition;
use peeklock_core::declaration::{
    Change, Declaration, DeclaredQueue, DeclaredSubscription, DeclaredTopic, Digest, Existing,
    OtherRules, Plan, PlanResult, Step, StepKind, Unnamed,
};
use peeklock_core::description::EntityKind;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::TrackingId;
use serde::{Deserialize, Serialize};

use crate::text::{Guid, Instant};
use crate::{QueueProperties, RuleForm, SubscriptionProperties, TopicProperties};

/// Desired queues, topics, subscriptions and rules. Entities and properties that are not named stay
/// unchanged.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub struct DeclarationForm {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    queues: Vec<DeclaredQueueForm>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    topics: Vec<DeclaredTopicForm>,
    /// Whether existing entities that differ stay unchanged.
    #[serde(skip_serializing_if = "is_false")]
    keep_existing: bool,
    /// Whether existing queues, topics, and subscriptions of declared topics that are not named are
    /// deleted with their messages, after all other steps. Needs Manage on the namespace.
    #[serde(skip_serializing_if = "is_false")]
    delete_unnamed: bool,
}

/// A queue. `null` clears a property that may be without a value.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeclaredQueueForm {
    path: String,
    #[serde(default)]
    properties: QueueProperties,
}

/// A topic with its subscriptions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeclaredTopicForm {
    path: String,
    #[serde(default)]
    properties: TopicProperties,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    subscriptions: Vec<DeclaredSubscriptionForm>,
}

/// A subscription. With `rules` it has exactly these rules. Without, it gets `$Default` when it is
/// created and otherwise keeps its rules.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct DeclaredSubscriptionForm {
    name: String,
    #[serde(default)]
    properties: SubscriptionProperties,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    rules: Option<Vec<RuleForm>>,
    /// Whether existing rules that are not in `rules` stay; `$Default` is still removed.
    #[serde(default, skip_serializing_if = "is_false")]
    keep_other_rules: bool,
}

/// The steps that lead to the declared state, in order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PlanView {
    steps: Vec<StepView>,
    /// The steps that were left out because existing entities are kept.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    kept: Vec<StepView>,
    /// Number of declared entities that need no step.
    unchanged_count: usize,
    /// Identifies the steps. A request with this digest carries out exactly these steps.
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    digest: DigestText,
}

/// A change to one entity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
struct StepView {
    /// create, update or delete.
    kind: String,
    /// queue, topic or subscription.
    entity: String,
    path: String,
    /// The changed properties; for a new entity, those without their default value.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    changes: Vec<ChangeView>,
}

/// A property that changes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
struct ChangeView {
    property: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    before: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    after: Option<String>,
}

/// Result of carrying out the steps.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
pub struct PlanResultView {
    /// Number of steps that are done.
    done: usize,
    /// The steps that remain.
    rest: PlanView,
    /// Reason why the first remaining step failed, if it was tried.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    failure: Option<FailureView>,
}

/// Why a step failed.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
#[serde(rename_all = "camelCase")]
struct FailureView {
    condition: String,
    detail: String,
    /// Whether a later retry may succeed.
    retryable: bool,
    entity: String,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    tracking_id: Guid,
    #[cfg_attr(feature = "schema", schema(value_type = String))]
    timestamp: Instant,
}

/// A digest: 16 hexadecimal digits.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct DigestText(
    /// The value.
    pub Digest,
);

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde hands it out so")]
const fn is_false(flag: &bool) -> bool {
    !*flag
}

impl TryFrom<String> for DigestText {
    type Error = &'static str;

    fn try_from(text: String) -> Result<Self, Self::Error> {
        Digest::parse(&text).map(Self).ok_or("not a digest; expected 16 hexadecimal digits")
    }
}

impl From<DigestText> for String {
    fn from(DigestText(digest): DigestText) -> Self {
        digest.to_string()
    }
}

impl DeclarationForm {
    /// Converts to the broker's declaration, which the broker validates.
    ///
    /// # Errors
    /// Returns `ArgumentError` with the place of an invalid property value.
    pub fn to_declaration(&self) -> Result<Declaration, Rejection> {
        let queues = self.queues.iter().enumerate().map(|(index, queue)| {
            let declared = queue.properties.to_update().map(|properties| DeclaredQueue {
                path: queue.path.as_str().into(),
                properties,
                cleared: queue.properties.cleared(),
            });
            declared.map_err(at(&format!("queues[{index}]")))
        });
        let topics = self.topics.iter().enumerate();
        let topics = topics.map(|(index, topic)| topic.to_topic(&format!("topics[{index}]")));
        let existing = if self.keep_existing { Existing::Keep } else { Existing::Update };
        Ok(Declaration {
            queues: queues.collect::<Result<_, _>>()?,
            topics: topics.collect::<Result<_, _>>()?,
            existing,
            unnamed: if self.delete_unnamed { Unnamed::Delete } else { Unnamed::Keep },
            protected: Vec::new(),
        })
    }
}

/// Prefixes a rejection with the place of the invalid value.
fn at(place: &str) -> impl Fn(Rejection) -> Rejection + '_ {
    move |rejection| {
        Rejection::new(rejection.condition(), format!("{place}: {}", rejection.detail()))
    }
}

impl DeclaredTopicForm {
    fn to_topic(&self, place: &str) -> Result<DeclaredTopic, Rejection> {
        let subscriptions = self.subscriptions.iter().enumerate().map(|(index, subscription)| {
            let declared = subscription.to_subscription();
            declared.map_err(at(&format!("{place}.subscriptions[{index}]")))
        });
        Ok(DeclaredTopic {
            path: self.path.as_str().into(),
            properties: self.properties.to_update().map_err(at(place))?,
            cleared: self.properties.cleared(),
            subscriptions: subscriptions.collect::<Result<_, _>>()?,
        })
    }
}

impl DeclaredSubscriptionForm {
    fn to_subscription(&self) -> Result<DeclaredSubscription, Rejection> {
        let rules = self
            .rules
            .as_ref()
            .map(|rules| rules.iter().map(RuleForm::to_description).collect::<Result<Vec<_>, _>>());
        let other_rules = if self.keep_other_rules { OtherRules::Keep } else { OtherRules::Remove };
        Ok(DeclaredSubscription {
            name: self.name.as_str().into(),
            properties: self.properties.to_update()?,
            cleared: self.properties.cleared(),
            rules: rules.transpose()?,
            other_rules,
        })
    }
}

impl From<&Declaration> for DeclarationForm {
    fn from(declaration: &Declaration) -> Self {
        let queue = |queue: &DeclaredQueue| DeclaredQueueForm {
            path: queue.path.to_string(),
            properties: QueueProperties::from(&queue.properties).clearing(queue.cleared),
        };
        let subscription = |one: &DeclaredSubscription| DeclaredSubscriptionForm {
            name: one.name.to_string(),
            properties: SubscriptionProperties::from(&one.properties).clearing(one.cleared),
            rules: one.rules.as_ref().map(|rules| rules.iter().map(RuleForm::from).collect()),
            keep_other_rules: one.other_rules == OtherRules::Keep,
        };
        let topic = |topic: &DeclaredTopic| DeclaredTopicForm {
            path: topic.path.to_string(),
            properties: TopicProperties::from(&topic.properties).clearing(topic.cleared),
            subscriptions: topic.subscriptions.iter().map(subscription).collect(),
        };
        Self {
            queues: declaration.queues.iter().map(queue).collect(),
            topics: declaration.topics.iter().map(topic).collect(),
            keep_existing: declaration.existing == Existing::Keep,
            delete_unnamed: declaration.unnamed == Unnamed::Delete,
        }
    }
}

impl From<&Plan> for PlanView {
    fn from(plan: &Plan) -> Self {
        Self {
            steps: plan.steps.iter().map(Into::into).collect(),
            kept: plan.kept.iter().map(Into::into).collect(),
            unchanged_count: plan.unchanged_count,
            digest: DigestText(plan.digest()),
        }
    }
}

impl TryFrom<PlanView> for Plan {
    type Error = Rejection;

    /// Reads a plan from a broker's answer.
    fn try_from(view: PlanView) -> Result<Self, Rejection> {
        let steps = |views: Vec<StepView>| {
            views.into_iter().map(Step::try_from).collect::<Result<Vec<_>, _>>()
        };
        let (planned, kept) = (steps(view.steps)?, steps(view.kept)?);
        Ok(Self::from_remote(planned, kept, view.unchanged_count, view.digest.0))
    }
}

impl From<&Step> for StepView {
    fn from(step: &Step) -> Self {
        let text = |text: &Option<Box<str>>| text.as_deref().map(str::to_owned);
        let change = |change: &Change| ChangeView {
            property: change.property.to_string(),
            before: text(&change.before),
            after: text(&change.after),
        };
        Self {
            kind: step.kind.name().to_owned(),
            entity: step.entity.noun().to_owned(),
            path: step.path.to_string(),
            changes: step.changes.iter().map(change).collect(),
        }
    }
}

impl TryFrom<StepView> for Step {
    type Error = Rejection;

    fn try_from(view: StepView) -> Result<Self, Rejection> {
        let unknown = || Rejection::internal("a plan has an unknown step");
        let entities = [EntityKind::Queue, EntityKind::Topic, EntityKind::Subscription];
        let entity = entities.into_iter().find(|kind| kind.noun() == view.entity);
        let change = |view: ChangeView| Change {
            property: view.property.into(),
            before: view.before.map(Into::into),
            after: view.after.map(Into::into),
        };
        Ok(Self {
            kind: StepKind::parse(&view.kind).ok_or_else(unknown)?,
            entity: entity.ok_or_else(unknown)?,
            path: view.path.into(),
            changes: view.changes.into_iter().map(change).collect(),
        })
    }
}

impl From<&PlanResult> for PlanResultView {
    fn from(carried_out: &PlanResult) -> Self {
        Self {
            done: carried_out.done,
            rest: PlanView::from(&carried_out.rest),
            failure: carried_out.failure.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<PlanResultView> for PlanResult {
    type Error = Rejection;

    /// Reads a result from a broker's answer.
    fn try_from(view: PlanResultView) -> Result<Self, Rejection> {
        let failure = view.failure.map(BrokerError::from);
        Ok(Self { done: view.done, rest: view.rest.try_into()?, failure })
    }
}

impl From<&BrokerError> for FailureView {
    fn from(error: &BrokerError) -> Self {
        Self {
            condition: error.condition().name().to_owned(),
            detail: error.detail().to_owned(),
            retryable: error.retryable(),
            entity: error.entity().to_owned(),
            tracking_id: Guid(error.tracking_id().0),
            timestamp: Instant(error.timestamp()),
        }
    }
}

impl From<FailureView> for BrokerError {
    fn from(view: FailureView) -> Self {
        // An unknown condition of a newer broker counts as an internal error.
        let condition = Condition::parse(&view.condition).unwrap_or(Condition::InternalError);
        let rejection = Rejection::new(condition, view.detail);
        Self::new(rejection, TrackingId(view.tracking_id.0), &view.entity, view.timestamp.0)
    }
}

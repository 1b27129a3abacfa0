//! Bodies of management operations and of their answers. Both encodings carry descriptions as JSON.
//! `operation/manage.rs` and the client use them.

use bytes::Bytes;
use peeklock_core::description::{Cleared, Patch};
use peeklock_core::inspect::MuteChange;
use peeklock_core::management::Page;
pub(crate) use peeklock_json::{
    ActForm, ActedView, CheckKindName, DeclarationForm, DigestText, ExplanationView, FindingsView,
    JobControlForm, JobForm, KeyForm, KeyName, PlanResultView, PlanView, PolicyKeysView,
    PolicyList, PolicyProperties, PolicyView, QuestionForm, QueueProperties, QueueView, RuleForm,
    SubscriptionProperties, SubscriptionView, TopicProperties, TopicView,
};
use peeklock_json::{state_bytes, state_text};
use serde::{Deserialize, Serialize};

use crate::error::FrameError;
use crate::frame::cost::json_section_bytes;
use crate::frame::message::SentMessage;
use crate::frame::text::{Guid, Instant};
use crate::frame::wire::{Reader, RequestCost, Wire, wire, write_part};
use crate::frame::{bodies, json, wire_choice};

bodies! {
    struct PathOnly {
        path: String,
    }

    struct WholeList {
        #[serde(default)]
        skip: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        top: Option<u32>,
    }

    struct ListOf {
        /// Path of the topic, or of the subscription that has the rules.
        path: String,
        #[serde(default)]
        skip: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        top: Option<u32>,
    }

    struct CreateQueue {
        path: String,
        #[serde(default)]
        properties: QueueProperties,
    }

    struct UpdateQueue {
        path: String,
        #[serde(default)]
        properties: QueueProperties,
        /// The `updatedAt` of the version to change.
        #[serde(skip_serializing_if = "Option::is_none")]
        version: Option<Instant>,
    }

    struct CreateTopic {
        path: String,
        #[serde(default)]
        properties: TopicProperties,
    }

    struct UpdateTopic {
        path: String,
        #[serde(default)]
        properties: TopicProperties,
        /// The `updatedAt` of the version to change.
        #[serde(skip_serializing_if = "Option::is_none")]
        version: Option<Instant>,
    }

    struct CreateSubscription {
        /// Path of the topic.
        topic: String,
        name: String,
        #[serde(default)]
        properties: SubscriptionProperties,
        /// Rules of the subscription; without any it gets `$Default`, which selects every message.
        #[serde(
            default,
            skip_serializing_if = "Vec::is_empty",
            deserialize_with = "json::bounded"
        )]
        rules: Vec<RuleForm>,
    }

    struct UpdateSubscription {
        path: String,
        #[serde(default)]
        properties: SubscriptionProperties,
        /// The `updatedAt` of the version to change.
        #[serde(skip_serializing_if = "Option::is_none")]
        version: Option<Instant>,
    }

    struct SetRule {
        /// Path of the subscription.
        path: String,
        rule: RuleForm,
    }

    struct NamedRule {
        /// Path of the subscription.
        path: String,
        name: String,
    }

    struct Explain {
        /// Path of the subscription.
        path: String,
        message: SentMessage,
    }

    struct SetPolicy {
        /// Path of a queue or topic; empty for the namespace.
        path: String,
        name: String,
        #[serde(default)]
        properties: PolicyProperties,
    }

    struct NamedPolicy {
        path: String,
        name: String,
    }

    struct RegeneratePolicyKey {
        path: String,
        name: String,
        key: KeyName,
        /// The new key; generated if absent.
        #[serde(skip_serializing_if = "Option::is_none")]
        value: Option<KeyForm>,
    }

    struct PlanDeclaration {
        declaration: DeclarationForm,
    }

    struct CarryOutDeclaration {
        declaration: DeclarationForm,
        /// Digest of the plan to carry out.
        digest: DigestText,
        /// Maximum number of steps; at most 100.
        #[serde(skip_serializing_if = "Option::is_none")]
        steps_max: Option<u32>,
    }

    struct Inspect {
        /// Path of an entity or sub-queue; empty for the namespace.
        path: String,
        question: QuestionForm,
    }

    struct BreakLocks {
        /// Path of an entity or sub-queue.
        path: String,
        #[serde(deserialize_with = "json::bounded")]
        sequence_numbers: Vec<u64>,
        /// Whether the deliveries count as failed.
        #[serde(default)]
        counted: bool,
    }

    struct BreakSession {
        path: String,
        session_id: String,
        /// Whether the deliveries under the lock count as failed.
        #[serde(default)]
        counted: bool,
    }

    struct CloseClient {
        /// Number of the client in a list of clients.
        client: u64,
    }

    struct LocksBroken {
        count: u64,
    }

    struct ActOnMessages {
        /// Path of an entity or sub-queue.
        path: String,
        act: ActForm,
    }

    struct ForgetJob {
        path: String,
        job: Guid,
    }

    struct CreateJob {
        /// Path of an entity or sub-queue.
        path: String,
        draft: JobForm,
    }

    struct ControlJob {
        job: Guid,
        control: JobControlForm,
    }

    struct MuteFinding {
        /// Path of an entity; empty for a finding about the broker.
        path: String,
        kind: CheckKindName,
        /// One line of 1 to 256 characters.
        reason: String,
    }

    struct UnmuteFinding {
        /// Path of an entity; empty for a finding about the broker.
        path: String,
        kind: CheckKindName,
    }
}

pub(super) fn page(skip: u32, top: Option<u32>) -> Page {
    Page { skip: super::wide(skip), top: top.map(super::wide) }
}

/// An update of the version that the client has read.
pub(super) fn patch(cleared: Cleared, version: Option<Instant>) -> Patch {
    Patch { cleared, expected_created_at: version.map(|Instant(at)| at) }
}

impl From<MuteFinding> for MuteChange {
    fn from(mute: MuteFinding) -> Self {
        Self::Mute { kind: mute.kind.into(), reason: mute.reason.into() }
    }
}

impl From<UnmuteFinding> for MuteChange {
    fn from(unmute: UnmuteFinding) -> Self {
        Self::Unmute { kind: unmute.kind.into() }
    }
}

/// The operation of a client that mutes a finding, or ends this.
#[cfg(feature = "client")]
pub(super) fn mute_operation(path: String, change: MuteChange) -> super::ManageOperation {
    match change {
        MuteChange::Mute { kind, reason } => {
            let (kind, reason) = (kind.into(), reason.into());
            super::ManageOperation::MuteFinding(MuteFinding { path, kind, reason })
        }
        MuteChange::Unmute { kind } => {
            super::ManageOperation::UnmuteFinding(UnmuteFinding { path, kind: kind.into() })
        }
    }
}

/// Replaces the state of a session that no receiver holds; none clears it.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(try_from = "StateOfSessionObject", into = "StateOfSessionObject")]
pub(crate) struct SetStateOfSession {
    pub(crate) path: String,
    pub(crate) session_id: String,
    pub(crate) state: Option<Bytes>,
}
wire!(SetStateOfSession { path: String, session_id: String, state: Option<Bytes> });

/// State in JSON with its session: text or base64, or neither.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct StateOfSessionObject {
    path: String,
    session_id: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    state_base64: Option<String>,
}

impl TryFrom<StateOfSessionObject> for SetStateOfSession {
    type Error = &'static str;

    fn try_from(object: StateOfSessionObject) -> Result<Self, Self::Error> {
        let StateOfSessionObject { path, session_id, state, state_base64 } = object;
        Ok(Self { path, session_id, state: state_bytes(state, state_base64)? })
    }
}

impl From<SetStateOfSession> for StateOfSessionObject {
    fn from(set: SetStateOfSession) -> Self {
        let (state, state_base64) = state_text(set.state.as_ref());
        Self { path: set.path, session_id: set.session_id, state, state_base64 }
    }
}

/// A page of queues in case-insensitive order of their paths.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct QueueList {
    pub(crate) queues: Vec<QueueView>,
}

/// A page of topics in case-insensitive order of their paths.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TopicList {
    pub(crate) topics: Vec<TopicView>,
}

/// A page of a topic's subscriptions in case-insensitive order of their names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SubscriptionList {
    pub(crate) subscriptions: Vec<SubscriptionView>,
}

/// A page of a subscription's rules in case-insensitive order of their names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RuleList {
    pub(crate) rules: Vec<RuleForm>,
}

/// The effect of each rule of a subscription on a message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Explained {
    pub(crate) rules: Vec<ExplanationView>,
}

/// Gives management bodies their binary form. Management is rare, so that form is the same JSON
/// after its length.
macro_rules! json_inside {
    ($($name:ident),* $(,)?) => {$(
        impl Wire for $name {
            const BYTES_MIN: usize = 4;

            fn write(&self, out: &mut Vec<u8>) {
                write_part(out, |out| {
                    // Writing numbers and text into memory cannot fail.
                    serde_json::to_writer(out, self).unwrap_or_default();
                });
            }

            fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
                let length = reader.length()?;
                serde_json::from_slice(reader.take(length)?)
                    .map_err(|error| FrameError::Json(error.to_string()))
            }

            fn skim(reader: &mut Reader<'_>, cost: &mut RequestCost) -> Result<(), FrameError> {
                let length = reader.length()?;
                let section = reader.take(length)?;
                cost.made_bytes += json_section_bytes(section);
                Ok(())
            }
        }
    )*};
}

json_inside!(
    ActForm,
    ActedView,
    CheckKindName,
    PlanResultView,
    DeclarationForm,
    DigestText,
    Explained,
    FindingsView,
    JobControlForm,
    JobForm,
    KeyForm,
    PlanView,
    PolicyKeysView,
    PolicyList,
    PolicyProperties,
    PolicyView,
    QuestionForm,
    QueueList,
    QueueProperties,
    QueueView,
    RuleForm,
    RuleList,
    SubscriptionList,
    SubscriptionProperties,
    SubscriptionView,
    TopicList,
    TopicProperties,
    TopicView,
);
wire_choice!(KeyName, "key of a policy", [Primary, Secondary]);

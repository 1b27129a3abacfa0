//! The JSON that several transports of Peeklock share: messages, queues, topics, subscriptions,
//! rules, policies, values of application properties, instants, durations and GUIDs. A transport
//! adds its own frames or paths; the meaning of these forms is the same everywhere.
//!
//! Modules in reading order: `text` (values with a text form), `property` (application properties),
//! `message`, `retry`, `entity` (queues, topics and subscriptions) with `runtime` (their counts),
//! `rule`, `policy`, `declaration`, `inspect` (questions of operators and their answers), `act`
//! (deeds of operators on messages), `edit` (changes of messages that a job sends), and `size` and `marks` (sizes of JSON, known before it is written or read).

mod act;
mod declaration;
mod edit;
mod entity;
mod inspect;
mod marks;
mod message;
mod policy;
mod property;
mod retry;
mod rule;
mod runtime;
mod size;
mod text;

#[cfg(test)]
mod tests;

pub use act::{ActForm, ActedMessageView, ActedView, DeedForm, ExportFormName, JobStepForm};
pub use declaration::{DeclarationForm, DigestText, PlanResultView, PlanView};
pub use edit::EditForm;
pub use entity::{
    EntityForm, Properties, QueueProperties, QueueView, SubscriptionProperties, SubscriptionView,
    TopicProperties, TopicView, View,
};
pub use inspect::{
    ActResultName, AuditPageView, AuditQueryForm, BodyForm, BodyKindName, BodyPartView,
    CheckKindName, CheckWeightName, ChecksForm, ChecksView, ClauseFieldName, ClauseForm,
    ClauseTestName, ClientPageView, ClientQueryForm, ConditionName, EdgeKindName, EntityKindName,
    EntityPageView, EntityQueryForm, EntitySortName, ExplainForm, FindingsView, GroupView,
    HeadPageView, HeadQueryForm, HeadSortName, HeadStateName, HeadView, HitView, JobControlForm,
    JobExportView, JobFailurePageView, JobForm, JobPageView, JobPreviewView, JobQueryForm,
    JobSamplePageView, JobSampleView, JobStartForm, JobStateName, JobView, JourneyForm,
    JourneyView, JsonName, LinkRoleName, LockPageView, LockQueryForm, LockSortName, MatchView,
    MessageForm, MuteForm, QuestionForm, ReasonView, ReceiveModeName, RefusedView, RuleChangeForm,
    SampleView, SamplesForm, SearchBoundName, SearchEndView, SearchForm, SearchPageView,
    SearchProgressView, SearchStepForm, SeriesColumnName, SeriesForm, SeriesView, SessionPageView,
    SessionQueryForm, SessionSortName, SessionStateForm, SessionStateView, SubQueueName, TapForm,
    TapPageView, TimelineName, TimelineQueryForm, TimelineView, TopicExplanationView,
    TopicSamplesView, TopologyForm, TopologyView, UnmuteForm, WhatIfForm, WhatIfView, WhereForm,
};
pub use marks::{Marks, PART_BYTES};
pub use message::{
    BrokerMessage, BrokerProperties, FromBroker, Ignored, MessageObject, MessageView, NewMessage,
    ReceivedView, StateName,
};
pub use policy::{
    KeyForm, KeyName, PolicyKeysView, PolicyList, PolicyProperties, PolicyView, RightName,
};
#[cfg(feature = "schema")]
pub use property::PropertyValueSchema;
pub use property::{PropertyMap, write_map, write_value};
pub use retry::RetryPolicyForm;
pub use rule::{ExplanationView, FilterForm, RuleForm, SqlForm, sql_text};
pub use runtime::{Runtime, SubscriptionRuntime, TopicRuntime};
pub use size::{IN_JSON_FACTOR, as_text, message_in_json_max, size_in_json};
pub use text::{Guid, Instant, Span, Token, state_bytes, state_text};

//! JSON forms of the questions of operators and of their findings (CON-02 to CON-06, CON-11, CON-24
//! to CON-28). The HTTP and WebSocket transports, their clients and the command line use them.
//!
//! Read `question` first, then `message` (heads, bodies, timelines), `lock` (locks and sessions) and
//! `list` (entities and clients), `clause` and `search`.

mod audit;
mod checks;
mod clause;
mod filters;
mod job;
mod job_parts;
mod journey;
mod list;
mod lock;
mod message;
mod question;
mod search;
mod series;
#[cfg(test)]
mod tests;
mod topology;

pub use self::audit::{AuditPageView, AuditQueryForm};
pub use self::checks::{ChecksForm, ChecksView, MuteForm, UnmuteForm};
pub use self::clause::{ClauseFieldName, ClauseForm, ClauseTestName, WhereForm};
pub use self::filters::{
    ExplainForm, MessageForm, RuleChangeForm, SamplesForm, TopicExplanationView, TopicSamplesView,
    WhatIfForm, WhatIfView,
};
pub use self::job::{
    JobControlForm, JobForm, JobPageView, JobPreviewView, JobQueryForm, JobStartForm, JobView,
    ReasonView, RefusedView,
};
pub use self::job_parts::{JobExportView, JobFailurePageView, JobSamplePageView, JobSampleView};
pub use self::journey::{JourneyForm, JourneyView};
pub use self::list::{ClientPageView, EntityPageView};
pub use self::lock::{LockPageView, SessionPageView, SessionStateView};
pub use self::message::{BodyPartView, HeadPageView, HeadView, TapPageView, TimelineView};
pub use self::question::{
    BodyForm, ClientQueryForm, EntityQueryForm, HeadQueryForm, LockQueryForm, QuestionForm,
    SessionQueryForm, SessionStateForm, TapForm, TimelineQueryForm,
};
pub use self::search::{
    GroupView, HitView, MatchView, SampleView, SearchEndView, SearchForm, SearchPageView,
    SearchProgressView, SearchStepForm,
};
pub use self::series::{SeriesForm, SeriesView};
pub use self::topology::{TopologyForm, TopologyView};

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use peeklock_core::command::{ActResult, ReceiveMode};
use peeklock_core::description::EntityKind;
use peeklock_core::error::Rejection;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::inspect::{
    BodyKind, CheckKind, CheckWeight, Cursor, DeadLetterCause, EdgeKind, EntityCondition,
    EntityOrder, Findings, Found, HeadOrder, HeadState, JobState, LinkRole, LockEnd, LockOrder,
    RowKey, SearchBound, SeriesColumn, SessionOrder, StationKind, TimelineOf,
};
use peeklock_core::path::SubQueue;
use peeklock_core::time::Timestamp;
use serde::{Deserialize, Serialize};

/// Answer to a question, by its kind.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum FindingsView {
    /// Messages.
    Heads(HeadPageView),
    /// Locks.
    Locks(LockPageView),
    /// Sessions.
    Sessions(SessionPageView),
    /// A part of the state of a session.
    SessionState(SessionStateView),
    /// Counts by slot.
    Timeline(TimelineView),
    /// A part of a body.
    Body(BodyPartView),
    /// Entities.
    Entities(EntityPageView),
    /// Clients.
    Clients(ClientPageView),
    /// Messages that were accepted.
    Tap(TapPageView),
    /// Messages that were found.
    Search(SearchPageView),
    /// Entries of the audit trail.
    Audit(AuditPageView),
    /// Values over time.
    Series(SeriesView),
    /// Jobs.
    Jobs(JobPageView),
    /// A job.
    Job(Box<JobView>),
    /// Messages of a job as its deed would store them.
    JobSamples(JobSamplePageView),
    /// Messages of a job whose deed was not done.
    JobFailures(JobFailurePageView),
    /// A part of the file that a job has exported.
    JobExport(JobExportView),
    /// Nodes and edges.
    Topology(TopologyView),
    /// Findings of the last check.
    Checks(ChecksView),
    /// Stations of a message.
    Journey(JourneyView),
    /// Published messages of a topic.
    Samples(TopicSamplesView),
    /// Results of all rules of a topic for one message.
    Explanation(Box<TopicExplanationView>),
    /// Effects of changes of the rules of a topic.
    WhatIf(WhatIfView),
}

impl From<Findings> for FindingsView {
    fn from(findings: Findings) -> Self {
        let at = findings.at;
        match findings.found {
            Found::Heads(page) => Self::Heads(HeadPageView::new(page, at)),
            Found::Locks(page) => Self::Locks(LockPageView::new(page, at)),
            Found::Sessions(page) => Self::Sessions(SessionPageView::new(page, at)),
            Found::SessionState(part) => {
                Self::SessionState(SessionStateView::new(part.as_ref(), at))
            }
            Found::Timeline(timeline) => Self::Timeline(TimelineView::new(timeline, at)),
            Found::Body(part) => Self::Body(BodyPartView::new(&part, at)),
            Found::Entities(page) => Self::Entities(EntityPageView::new(page, at)),
            Found::Clients(page) => Self::Clients(ClientPageView::new(page, at)),
            Found::Tap(page) => Self::Tap(TapPageView::new(page, at)),
            Found::Series(series) => Self::Series(SeriesView::new(series, at)),
            Found::Search(page) => Self::Search(SearchPageView::new(page, at)),
            Found::Audit(page) => Self::Audit(AuditPageView::new(page, at)),
            Found::Jobs(page) => Self::Jobs(JobPageView::new(page, at)),
            Found::Job(facts) => Self::Job(Box::new(JobView::new(*facts, Some(at)))),
            Found::JobSamples(samples) => Self::JobSamples(JobSamplePageView::new(samples, at)),
            Found::JobFailures(page) => Self::JobFailures(JobFailurePageView::new(page, at)),
            Found::JobExport(part) => Self::JobExport(JobExportView::new(&part, at)),
            Found::Topology(topology) => Self::Topology(TopologyView::new(topology, at)),
            Found::Checks(page) => Self::Checks(ChecksView::new(page, at)),
            Found::Journey(journey) => Self::Journey(JourneyView::new(journey, at)),
            Found::Samples(page) => Self::Samples(TopicSamplesView::new(page, at)),
            Found::Explanation(explanation) => {
                Self::Explanation(Box::new(TopicExplanationView::new(*explanation, at)))
            }
            Found::WhatIf(found) => Self::WhatIf(WhatIfView::new(found, at)),
        }
    }
}

/// Reads an answer of a broker. Fails for a value that no broker sends.
impl TryFrom<FindingsView> for Findings {
    type Error = Rejection;

    fn try_from(view: FindingsView) -> Result<Self, Rejection> {
        let (at, found) = match view {
            FindingsView::Heads(view) => (view.at(), Found::Heads(view.page()?)),
            FindingsView::Locks(view) => (view.at(), Found::Locks(view.page()?)),
            FindingsView::Sessions(view) => (view.at(), Found::Sessions(view.page()?)),
            FindingsView::SessionState(view) => (view.at(), Found::SessionState(view.part()?)),
            FindingsView::Timeline(view) => (view.at(), Found::Timeline(view.timeline())),
            FindingsView::Body(view) => (view.at(), Found::Body(view.part()?)),
            FindingsView::Entities(view) => (view.at(), Found::Entities(view.page()?)),
            FindingsView::Clients(view) => (view.at(), Found::Clients(view.page()?)),
            FindingsView::Tap(view) => (view.at(), Found::Tap(view.page()?)),
            FindingsView::Series(view) => (view.at(), Found::Series(view.series()?)),
            FindingsView::Search(view) => (view.at(), Found::Search(view.page()?)),
            FindingsView::Audit(view) => (view.at(), Found::Audit(view.page()?)),
            FindingsView::Jobs(view) => (view.at(), Found::Jobs(view.page()?)),
            FindingsView::Job(view) => (view.at(), Found::Job(Box::new(view.facts()?))),
            FindingsView::JobSamples(view) => (view.at(), Found::JobSamples(view.samples()?)),
            FindingsView::JobFailures(view) => (view.at(), Found::JobFailures(view.page())),
            FindingsView::JobExport(view) => (view.at(), Found::JobExport(view.part()?)),
            FindingsView::Topology(view) => (view.at(), Found::Topology(view.topology()?)),
            FindingsView::Checks(view) => (view.at(), Found::Checks(view.page())),
            FindingsView::Journey(view) => (view.at(), Found::Journey(view.journey())),
            FindingsView::Samples(view) => (view.at(), Found::Samples(view.samples())),
            FindingsView::Explanation(view) => {
                (view.at(), Found::Explanation(Box::new(view.explanation())))
            }
            FindingsView::WhatIf(view) => (view.at(), Found::WhatIf(view.what_if())),
        };
        Ok(Self { at, found })
    }
}

/// Names that JSON has for the variants of an enum.
pub trait JsonName: Copy + 'static {
    /// All names, in their order.
    const ALL: &'static [Self];

    /// Returns the name as text.
    fn text(self) -> &'static str;

    /// Parses a name.
    fn parse(text: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|name| name.text() == text)
    }

    /// Returns all names as text, for messages to people.
    fn all_as_text() -> String {
        Self::ALL.iter().map(|name| name.text()).collect::<Vec<_>>().join(", ")
    }
}

/// Defines enums of the names that JSON has for the variants of an enum of the core.
macro_rules! names {
    ($($(#[$doc:meta])* $name:ident of $core:ident { $($variant:ident $text:literal),* $(,)? })*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
        #[cfg_attr(feature = "schema", derive(utoipa::ToSchema))]
        pub enum $name {
            $(
                #[doc = concat!("`", $text, "`")]
                #[serde(rename = $text)]
                $variant,
            )*
        }

        impl JsonName for $name {
            const ALL: &'static [Self] = &[$(Self::$variant),*];

            fn text(self) -> &'static str {
                match self {
                    $(Self::$variant => $text,)*
                }
            }
        }

        impl From<$core> for $name {
            fn from(value: $core) -> Self {
                match value {
                    $($core::$variant => Self::$variant,)*
                }
            }
        }

        impl From<$name> for $core {
            fn from(name: $name) -> Self {
                match name {
                    $($name::$variant => Self::$variant,)*
                }
            }
        }
    )*};
}

names! {
    /// State of a message for an operator.
    HeadStateName of HeadState {
        Transferring "transferring",
        Locked "locked",
        Scheduled "scheduled",
        Deferred "deferred",
        Expired "expired",
        Delayed "delayed",
        Active "active",
    }

    /// Order of messages.
    HeadSortName of HeadOrder {
        Number "sequenceNumber",
        ScheduledAt "scheduledTime",
        ExpiresAt "expiry",
    }

    /// Order of locks.
    LockSortName of LockOrder {
        End "end",
        Age "age",
    }

    /// Order of sessions: the name of a column.
    SessionSortName of SessionOrder {
        Name "sessionId",
        Active "activeMessageCount",
        Deferred "deferredMessageCount",
        Scheduled "scheduledMessageCount",
        Oldest "oldestEnqueuedAtUtc",
        StateSize "stateSize",
        StateSetAt "stateSetAtUtc",
        LockedUntil "lockedUntilUtc",
    }

    /// Instants that a timeline counts.
    TimelineName of TimelineOf {
        Scheduled "scheduled",
        Expiring "expiring",
    }

    /// Kind of a body.
    BodyKindName of BodyKind {
        Data "data",
        Value "value",
        Sequence "sequence",
    }

    /// Kind of an entity.
    EntityKindName of EntityKind {
        Queue "queue",
        Topic "topic",
        Subscription "subscription",
    }

    /// Condition of an entity.
    ConditionName of EntityCondition {
        HasDeadLetters "hasDeadLetters",
        Grows "grows",
        HasNoReceiver "hasNoReceiver",
        IsDisabled "isDisabled",
        IsNearlyFull "isNearlyFull",
    }

    /// Order of entities: the name of a column.
    EntitySortName of EntityOrder {
        Path "path",
        Kind "kind",
        Status "status",
        Active "activeMessageCount",
        Deferred "deferredMessageCount",
        Scheduled "scheduledMessageCount",
        DeadLetter "deadLetterMessageCount",
        Transfer "transferMessageCount",
        TransferDeadLetter "transferDeadLetterMessageCount",
        Delayed "delayedMessageCount",
        Total "totalMessageCount",
        Locked "lockedMessageCount",
        Size "sizeInBytes",
        SizeMax "maxSizeInBytes",
        Receivers "receiverCount",
        Oldest "oldestEnqueuedAtUtc",
        Accepted "acceptedPerSecond",
        Removed "removedPerSecond",
    }

    /// Result of a step for one message.
    ActResultName of ActResult {
        Done "done",
        NotFound "notFound",
        Locked "locked",
        WrongState "wrongState",
        Busy "busy",
        Expired "expired",
        TooLarge "tooLarge",
        Leaving "leaving",
        NoDestination "noDestination",
        DestinationDisabled "destinationDisabled",
        DestinationFull "destinationFull",
        DestinationTooSmall "destinationTooSmall",
        NoSession "noSession",
        Duplicate "duplicate",
        Refused "refused",
        NotJson "notJson",
    }

    /// State of a job.
    JobStateName of JobState {
        Selecting "selecting",
        Ready "ready",
        Waiting "waiting",
        Running "running",
        Paused "paused",
        Done "done",
        Cancelled "cancelled",
        Failed "failed",
    }

    /// Queue of an entity.
    SubQueueName of SubQueue {
        Main "main",
        DeadLetter "deadLetter",
        TransferDeadLetter "transferDeadLetter",
    }

    /// Bound of a search.
    SearchBoundName of SearchBound {
        Time "time",
        Bytes "bytes",
        Hits "hits",
    }

    /// Column of a series.
    SeriesColumnName of SeriesColumn {
        Accepted "accepted",
        Delivered "delivered",
        Completed "completed",
        Failed "failed",
        Expired "expired",
        ForwardedIn "forwardedIn",
        ForwardedOut "forwardedOut",
        Duplicates "duplicates",
        DeadLetteredExpired "deadLetteredExpired",
        DeadLetteredDeliveryCount "deadLetteredDeliveryCount",
        DeadLetteredApplication "deadLetteredApplication",
        DeadLetteredRule "deadLetteredRule",
        DeadLetteredHeaderSize "deadLetteredHeaderSize",
        DeadLetteredNoSession "deadLetteredNoSession",
        DeadLetteredForwarding "deadLetteredForwarding",
        DeadLetteredCopyCount "deadLetteredCopyCount",
        DeadLetteredOperator "deadLetteredOperator",
        Active "active",
        Locked "locked",
        Deferred "deferred",
        Scheduled "scheduled",
        DeadLetters "deadLetters",
        Bytes "sizeInBytes",
        OldestAge "oldestAgeMs",
        WaitP50 "waitP50Us",
        WaitP95 "waitP95Us",
        WaitP99 "waitP99Us",
        LockP50 "lockP50Us",
        LockP95 "lockP95Us",
        LockP99 "lockP99Us",
    }

    /// Kind of an edge of a topology.
    EdgeKindName of EdgeKind {
        Subscription "subscription",
        Forward "forward",
        DeadLetterForward "deadLetterForward",
    }

    /// How urgent a finding is.
    CheckWeightName of CheckWeight {
        Error "error",
        Warning "warning",
        Notice "notice",
    }

    /// Kind of a finding.
    CheckKindName of CheckKind {
        DestinationMissing "destinationMissing",
        DestinationDisabled "destinationDisabled",
        ChainTooLong "chainTooLong",
        DiskNearlyFull "diskNearlyFull",
        AnonymousBeyondLoopback "anonymousBeyondLoopback",
        ForwardCircle "forwardCircle",
        DeadLettersUnread "deadLettersUnread",
        BacklogWithoutReceiver "backlogWithoutReceiver",
        NearlyFull "nearlyFull",
        ManyReceivers "manyReceivers",
        ManyConnections "manyConnections",
        LockTooShort "lockTooShort",
        TimeToLiveTooShort "timeToLiveTooShort",
        ClockStep "clockStep",
        DefaultRuleAmongOthers "defaultRuleAmongOthers",
    }

    /// Kind of a station of a message.
    StationName of StationKind {
        Accepted "accepted",
        Published "published",
        Scheduled "scheduled",
        Pending "pending",
        Duplicate "duplicate",
        MaterialisedTo "materialisedTo",
        MaterialisedFrom "materialisedFrom",
        CopiedTo "copiedTo",
        CopiedFrom "copiedFrom",
        Delivered "delivered",
        Renewed "renewed",
        Abandoned "abandoned",
        LockEnded "lockEnded",
        Released "released",
        Deferred "deferred",
        DeadLettered "deadLettered",
        ForwardedTo "forwardedTo",
        ForwardedFrom "forwardedFrom",
        ForwardedOut "forwardedOut",
        ForwardedIn "forwardedIn",
        DroppedAt "droppedAt",
        Expired "expired",
        Completed "completed",
        Received "received",
        Cancelled "cancelled",
        Deleted "deleted",
        Job "job",
        Undeferred "undeferred",
        Rescheduled "rescheduled",
        PutBack "putBack",
    }

    /// Cause of dead-lettering.
    DeadLetterCauseName of DeadLetterCause {
        Expired "expired",
        DeliveryCount "deliveryCount",
        Application "application",
        Rule "rule",
        HeaderSize "headerSize",
        NoSession "noSession",
        Forwarding "forwarding",
        CopyCount "copyCount",
        Operator "operator",
    }

    /// Reason for which a lock ended.
    LockEndName of LockEnd {
        Settled "settled",
        TimeOver "timeOver",
        LinkEnded "linkEnded",
        SessionEnded "sessionEnded",
        Operator "operator",
    }

    /// Purpose of a link.
    LinkRoleName of LinkRole {
        Sender "sender",
        Receiver "receiver",
        Browser "browser",
    }

    /// Mode of receiving.
    ReceiveModeName of ReceiveMode {
        PeekLock "peekLock",
        ReceiveAndDelete "receiveAndDelete",
    }
}

/// Lists whose pages have a position.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Paged {
    Heads,
    Locks,
    Sessions,
    Entities,
    Clients,
    Search,
    Audit,
}

/// Maximum length of the text of a position. The longest name in one is the path of an entity.
const POSITION_BYTES_MAX: usize = 4 << 10;

impl Paged {
    /// Returns the text of a position in this list.
    fn text(self, value: i64, rest: &[u8]) -> String {
        let mut bytes = vec![self as u8];
        bytes.extend(value.to_be_bytes());
        bytes.extend(rest);
        URL_SAFE_NO_PAD.encode(bytes)
    }

    /// Reads the text of a position in this list.
    fn parse(self, text: &str) -> Result<(i64, Vec<u8>), Rejection> {
        let bytes = match text.len() {
            0..=POSITION_BYTES_MAX => URL_SAFE_NO_PAD.decode(text).unwrap_or_default(),
            _ => Vec::new(),
        };
        let position = bytes.split_first().filter(|(list, _)| **list == self as u8);
        let position = position.and_then(|(_, rest)| rest.split_first_chunk::<8>());
        match position {
            Some((value, rest)) => Ok((i64::from_be_bytes(*value), rest.to_vec())),
            None => Err(no_position()),
        }
    }

    fn cursor_text(self, cursor: Cursor) -> String {
        self.text(cursor.at.ticks(), &cursor.sequence.0.to_be_bytes())
    }

    fn parse_cursor(self, text: &str) -> Result<Cursor, Rejection> {
        let (at, rest) = self.parse(text)?;
        let number = <[u8; 8]>::try_from(&*rest).map_err(|_| no_position())?;
        let sequence = SequenceNumber(u64::from_be_bytes(number));
        Ok(Cursor { at: Timestamp::from_ticks(at), sequence })
    }

    fn key_text(self, key: &RowKey) -> String {
        self.text(key.value, key.name.as_bytes())
    }

    fn parse_key(self, text: &str) -> Result<RowKey, Rejection> {
        let (value, name) = self.parse(text)?;
        let name = String::from_utf8(name).map_err(|_| no_position())?;
        Ok(RowKey { value, name: Arc::from(name) })
    }
}

fn no_position() -> Rejection {
    Rejection::argument("after must be the `next` of a page of the same list")
}

/// Returns whether a flag is not set, so that serde leaves it out.
#[expect(clippy::trivially_copy_pass_by_ref, reason = "required by serde")]
pub(crate) const fn is_false(flag: &bool) -> bool {
    !*flag
}

//! Questions of operators and the findings that answer them, once for all transports (CON-01).
//!
//! ```text
//!  route, call ──► Question ──► Access::manage ──► entities, survey, clients ──► Findings
//! ```
//!
//! Questions about one entity become inquiries ([`peeklock_model::inspect`]); the others are
//! answered without any entity. Findings have no key, token or lock token (CON-75).

use std::borrow::Cow;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use peeklock_model::inspect::{
    Cursor, HeadFacts, HeadQuery, LockQuery, LockRow, Readings, RowKey, SessionQuery, SessionRow,
    TimelineQuery,
};

use crate::checks::report::{ChecksPage, ChecksQuery};
use crate::command::{Counts, MessageFacts, ReceiveMode};
use crate::contract::action::Action;
use crate::contract::auditor::{AuditPage, AuditQuery};
use crate::description::EntityKind;
use crate::ids::{JobId, SequenceNumber};
use crate::jobs::{JobExportPart, JobFacts, JobFailurePage, JobPage, JobQuery, JobSample};
use crate::journeys::query::{Journey, JourneyQuery};
pub use crate::message::BodyKind;
use crate::message::Message;
use crate::samples::query::{
    ExplainQuery, SamplesQuery, TopicExplanation, TopicSamples, WhatIf, WhatIfQuery,
};
use crate::search::{SearchPage, SearchStep};
use crate::series::query::{Series, SeriesQuery};
use crate::time::{TimeSpan, Timestamp};
use crate::topology::query::{Topology, TopologyQuery};

/// Question about the entity of a path; without a path, about the namespace.
#[derive(Clone, PartialEq, Debug)]
pub enum Question {
    /// Lists messages without their bodies (CON-02). Answer: [`Found::Heads`].
    Heads(HeadQuery),
    /// Lists locks (CON-25). Answer: [`Found::Locks`].
    Locks(LockQuery),
    /// Lists sessions with their counts (CON-27). Answer: [`Found::Sessions`].
    Sessions(SessionQuery),
    /// Reads a part of the state of a session (CON-27). Answer: [`Found::SessionState`].
    SessionState {
        /// The session.
        session: Box<str>,
        /// First byte.
        from: u64,
        /// Maximum number of bytes, at most [`BODY_BYTES_MAX`].
        length: u64,
    },
    /// Counts messages by instant, in the entity or, without a path, in the namespace (CON-28).
    /// Answer: [`Found::Timeline`].
    Timeline(TimelineQuery),
    /// Reads a part of a body (CON-03). Answer: [`Found::Body`].
    Body {
        /// The message.
        sequence: SequenceNumber,
        /// First byte.
        from: u64,
        /// Maximum number of bytes, at most [`BODY_BYTES_MAX`].
        length: u64,
    },
    /// Lists entities of the namespace with their counts and rates (CON-04). Answer:
    /// [`Found::Entities`].
    Entities(EntityQuery),
    /// Lists connected clients (CON-24). Answer: [`Found::Clients`].
    Clients(ClientQuery),
    /// Reads the heads of messages that were accepted since the tap was opened or read last
    /// (CON-34). Answer: [`Found::Tap`].
    Tap {
        /// The open tap; `None` opens one.
        tap: Option<TapId>,
    },
    /// Searches messages, or counts them by a property, page by page (CON-05, CON-11). Without a
    /// path, the search names its entities. Answer: [`Found::Search`].
    Search(SearchStep),
    /// Reads the audit trail of the namespace (CON-23). Answer: [`Found::Audit`].
    Audit(AuditQuery),
    /// Reads counts, gauges and times of the entity or, without a path, of the namespace over time
    /// (CON-31). Answer: [`Found::Series`].
    Series(SeriesQuery),
    /// Reads jobs of the namespace, one job, its samples, its failures or the file that it has
    /// exported (CON-14, CON-19, CON-22). Answer: [`Found::Jobs`], [`Found::Job`],
    /// [`Found::JobSamples`], [`Found::JobFailures`] or [`Found::JobExport`].
    Jobs(JobQuery),
    /// Reads entities and their destinations as nodes and edges (CON-38). Answer:
    /// [`Found::Topology`].
    Topology(TopologyQuery),
    /// Reads the findings of the last check (CON-39). Answer: [`Found::Checks`].
    Checks(ChecksQuery),
    /// Reads the journey of a message (CON-29). Answer: [`Found::Journey`].
    Journey(JourneyQuery),
    /// Reads the last published messages of a topic (CON-36). Answer: [`Found::Samples`].
    Samples(SamplesQuery),
    /// Explains all rules of a topic for one message (CON-35). Answer: [`Found::Explanation`].
    Explain(Box<ExplainQuery>),
    /// Tries changes of the rules of a topic on its messages (CON-37). Answer: [`Found::WhatIf`].
    WhatIf(Box<WhatIfQuery>),
}

/// Maximum number of bytes of a body or session state in one answer (CON-03).
pub const BODY_BYTES_MAX: u64 = 4 << 20;
/// Maximum bytes of a body in its head (CON-03).
pub const BODY_START_BYTES: usize = 256;

/// Answer to a question.
#[derive(Clone, PartialEq, Debug)]
pub struct Findings {
    /// Instant of the answer by the clock of the broker, from which a reader counts durations
    /// (CON-41).
    pub at: Timestamp,
    /// The answer.
    pub found: Found,
}

/// Answer to a question, by its kind. A page with `next` continues there, even if it is short or
/// empty.
#[derive(Clone, PartialEq, Debug)]
pub enum Found {
    /// Messages.
    Heads(HeadPage),
    /// Locks.
    Locks(LockPage),
    /// Sessions.
    Sessions(SessionPage),
    /// A part of the state of a session, if it has one.
    SessionState(Option<BodyPart>),
    /// Counts by slot.
    Timeline(Timeline),
    /// A part of a body.
    Body(BodyPart),
    /// Entities.
    Entities(EntityPage),
    /// Clients.
    Clients(ClientPage),
    /// Messages that were accepted.
    Tap(TapPage),
    /// Messages that were found.
    Search(SearchPage),
    /// Entries of the audit trail.
    Audit(AuditPage),
    /// Values over time.
    Series(Series),
    /// Jobs.
    Jobs(JobPage),
    /// A job.
    Job(Box<JobFacts>),
    /// Messages of a job as its deed would store them.
    JobSamples(Vec<JobSample>),
    /// Messages of a job whose deed was not done.
    JobFailures(JobFailurePage),
    /// A part of the file that a job has exported.
    JobExport(JobExportPart),
    /// Nodes and edges.
    Topology(Topology),
    /// Findings of the last check.
    Checks(ChecksPage),
    /// Stations of a message.
    Journey(Journey),
    /// Published messages of a topic.
    Samples(TopicSamples),
    /// Results of all rules of a topic for one message.
    Explanation(Box<TopicExplanation>),
    /// Effects of changes of the rules of a topic.
    WhatIf(WhatIf),
}

/// Holder of a lock. Rows of a page with the same holder share it.
pub type Holder = Arc<HolderFacts>;

/// Message without its body.
#[derive(Clone, PartialEq, Debug)]
pub struct Head {
    /// Facts about the message.
    pub facts: HeadFacts<MessageFacts, Holder>,
    /// Properties and the start of the body; `None` if the store cannot read them.
    pub content: Option<HeadContent>,
}

/// Properties of a message and the start of its body.
#[derive(Clone, PartialEq, Debug)]
pub struct HeadContent {
    /// The message; its body has at most the first [`BODY_START_BYTES`] bytes.
    pub message: Message,
    /// Kind of the body.
    pub body_kind: BodyKind,
    /// Length of the whole body. For a body in several sections, or with a footer after it, an
    /// upper bound: the bytes from its first one to the end of the message.
    pub body_bytes: u64,
    /// Entity in which the message was dead-lettered before it was forwarded (FWD-26).
    pub dead_letter_source: Option<String>,
}

/// Page of messages.
#[derive(Clone, PartialEq, Debug)]
pub struct HeadPage {
    /// The messages, in the order of the query.
    pub heads: Vec<Head>,
    /// Number of messages that were examined for the page.
    pub examined: u64,
    /// Position of the next page.
    pub next: Option<Cursor>,
}

/// Page of locks.
#[derive(Clone, PartialEq, Debug)]
pub struct LockPage {
    /// The locks, in the order of the query.
    pub locks: Vec<LockRow<Holder>>,
    /// Number of all locks.
    pub total: u64,
    /// Position of the next page.
    pub next: Option<Cursor>,
}

/// Page of sessions.
#[derive(Clone, PartialEq, Debug)]
pub struct SessionPage {
    /// The sessions, in the order of the query.
    pub sessions: Vec<SessionRow<Holder>>,
    /// Number of all sessions of the entity, selected or not.
    pub total: u64,
    /// Position of the next page.
    pub next: Option<RowKey>,
}

/// Counts of messages by slot.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Timeline {
    /// Start of the first slot.
    pub from: Timestamp,
    /// Length of each slot.
    pub slot: TimeSpan,
    /// Number of messages in each slot.
    pub counts: Vec<u64>,
    /// Number of messages before the first slot.
    pub before: u64,
    /// Number of messages after the last slot.
    pub later: u64,
    /// Number of entities of the namespace with messages that were not counted, because there are
    /// too many.
    pub omitted_entities: u64,
}

/// Part of a body, or of the state of a session.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct BodyPart {
    /// Kind of the body.
    pub kind: BodyKind,
    /// Length of the whole body.
    pub length: u64,
    /// Place of the first byte of the part.
    pub from: u64,
    /// The bytes; empty after the end.
    pub bytes: Bytes,
}

/// Selection and order of entities.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct EntityQuery {
    /// Part of the path; the case of ASCII letters is ignored.
    pub path: Option<Box<str>>,
    /// Only entities of this kind.
    pub kind: Option<EntityKind>,
    /// Conditions, all of which must hold.
    pub conditions: Vec<EntityCondition>,
    /// Column by which the rows are sorted; equal rows are in the order of their paths.
    pub order: EntityOrder,
    /// Whether the order is reversed.
    pub is_descending: bool,
    /// Last row of an earlier page.
    pub after: Option<RowKey>,
    /// Maximum number of rows, 1 to [`peeklock_model::inspect::ROW_COUNT_MAX`].
    pub count_max: u32,
}

/// Condition of an entity that an operator looks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntityCondition {
    /// Has messages in its dead-letter queue or transfer dead-letter queue.
    HasDeadLetters,
    /// Accepts more messages than it removes.
    Grows,
    /// Is a queue or subscription without a receiver.
    HasNoReceiver,
    /// Has another status than Active.
    IsDisabled,
    /// Is over 80 % of its maximum size.
    IsNearlyFull,
}

/// Column by which entities are sorted.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum EntityOrder {
    /// Path, ignoring case.
    Path,
    /// Queue, topic, subscription.
    Kind,
    /// Status.
    Status,
    /// Active messages.
    Active,
    /// Deferred messages.
    Deferred,
    /// Scheduled messages.
    Scheduled,
    /// Messages in the dead-letter queue.
    DeadLetter,
    /// Messages that wait for their transfer.
    Transfer,
    /// Messages in the transfer dead-letter queue.
    TransferDeadLetter,
    /// Delayed messages.
    Delayed,
    /// All messages.
    Total,
    /// Locked messages.
    Locked,
    /// Size.
    Size,
    /// Maximum size.
    SizeMax,
    /// Receivers.
    Receivers,
    /// Instant of the oldest available message; entities without one come last.
    Oldest,
    /// Messages accepted per second; entities without a known rate come first.
    Accepted,
    /// Messages removed per second; entities without a known rate come first.
    Removed,
}

/// Page of entities.
#[derive(Clone, PartialEq, Debug)]
pub struct EntityPage {
    /// The entities, in the order of the query.
    pub entities: Vec<EntityRow>,
    /// Number of all selected entities.
    pub total: u64,
    /// Sums over all selected entities.
    pub totals: EntityTotals,
    /// Instant at which the counts were read.
    pub counted_at: Timestamp,
    /// Position of the next page.
    pub next: Option<RowKey>,
}

/// Sums over entities. A copy of a message counts in each entity that has one.
#[derive(Clone, Copy, PartialEq, Debug, Default)]
pub struct EntityTotals {
    /// Messages by state.
    pub counts: Counts,
    /// Locked messages.
    pub locks: u64,
    /// Size in bytes.
    pub size_bytes: u64,
    /// Receivers.
    pub receivers: u64,
    /// Rates; `None` until the counts were read twice.
    pub rates: Option<Rates>,
}

/// Entity in a list.
#[derive(Clone, PartialEq, Debug)]
pub struct EntityRow {
    /// Path as given at creation.
    pub path: Arc<str>,
    /// Queue, topic or subscription.
    pub kind: EntityKind,
    /// Counts as of its last turn.
    pub readings: Readings,
    /// Size in bytes; for a topic, with its subscriptions.
    pub total_size: u64,
    /// Rates; `None` until the counts were read twice.
    pub rates: Option<Rates>,
}

/// Messages per second, averaged over the time between two readings.
#[derive(Clone, Copy, PartialEq, Debug)]
pub struct Rates {
    /// Accepted messages.
    pub accepted: f64,
    /// Removed messages.
    pub removed: f64,
}

/// Selection of clients.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct ClientQuery {
    /// Only clients of this transport.
    pub transport: Option<Box<str>>,
    /// Only clients with a link to this entity.
    pub path: Option<Box<str>>,
    /// Part of the name; the case of ASCII letters is ignored.
    pub name: Option<Box<str>>,
    /// Last client of an earlier page.
    pub after: Option<ClientId>,
    /// Maximum number of rows, 1 to [`peeklock_model::inspect::ROW_COUNT_MAX`].
    pub count_max: u32,
}

/// Number of a client since the start of the broker.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct ClientId(pub u64);

/// Page of clients.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientPage {
    /// The clients, in the order of their numbers.
    pub clients: Vec<ClientFacts>,
    /// Number of all selected clients.
    pub total: u64,
    /// Position of the next page.
    pub next: Option<ClientId>,
}

/// Connected client (CON-24).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct ClientFacts {
    /// Its number.
    pub id: ClientId,
    /// Name of the transport, such as `amqp`.
    pub transport: Cow<'static, str>,
    /// Name that the client gave when it connected.
    pub name: Option<Arc<str>>,
    /// Its address.
    pub peer: Option<SocketAddr>,
    /// Whether a proxy forwards its requests, so that `peer` is the address of the proxy.
    pub is_by_proxy: bool,
    /// Policy whose rights it uses.
    pub policy: Option<Arc<str>>,
    /// Instant at which it connected.
    pub connected_at: Timestamp,
    /// Instant of its last activity.
    pub active_at: Timestamp,
    /// Its links to entities that the caller may read; fewer if they are too many for a page.
    pub links: Vec<LinkFacts>,
    /// Number of its links to entities that the caller may read.
    pub link_count: u64,
}

/// Link of a client to an entity.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct LinkFacts {
    /// Path of the entity.
    pub path: Arc<str>,
    /// Purpose.
    pub role: LinkRole,
    /// Mode of receiving; `None` for other roles.
    pub mode: Option<ReceiveMode>,
    /// Session that the link holds.
    pub session: Option<Arc<str>>,
    /// Credit that the client has given and that is unused.
    pub credit: u64,
    /// Number of messages delivered over the link.
    pub delivered: u64,
    /// Number of delivered messages that are not settled.
    pub unsettled: u32,
}

/// Purpose of a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkRole {
    /// Sends messages.
    Sender,
    /// Receives, settles and peeks messages.
    Receiver,
    /// Peeks messages, which needs fewer rights than receiving.
    Browser,
}

/// Holder of a lock (CON-24).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct HolderFacts {
    /// The client.
    pub client: ClientId,
    /// Name of the transport, such as `amqp`.
    pub transport: Cow<'static, str>,
    /// Name that the client gave when it connected.
    pub name: Option<Arc<str>>,
    /// Its address.
    pub peer: Option<SocketAddr>,
    /// Policy whose rights it used.
    pub policy: Option<Arc<str>>,
    /// Whether it is still connected. A lock may outlive the connection.
    pub is_connected: bool,
}

/// Number of a tap since the start of the broker.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub struct TapId(pub u64);

/// Messages that were accepted since the last page.
#[derive(Clone, PartialEq, Debug)]
pub struct TapPage {
    /// The tap.
    pub tap: TapId,
    /// The messages, in the order of their numbers.
    pub heads: Vec<Head>,
    /// Number of accepted messages that are not shown (CON-34).
    pub omitted: u64,
}

impl Question {
    /// The action that the question needs on its path; [`Action::needs`] names the right for it.
    #[must_use]
    pub const fn action(&self) -> Action {
        match self {
            Self::Heads(_)
            | Self::Locks(_)
            | Self::Sessions(_)
            | Self::SessionState { .. }
            | Self::Timeline(_)
            | Self::Body { .. }
            | Self::Tap { .. }
            | Self::Series(_)
            | Self::Search(_)
            | Self::Journey(_)
            | Self::Samples(_)
            | Self::Explain(_)
            | Self::WhatIf(_)
            | Self::Jobs(_) => Action::Inspect,
            Self::Entities(_) | Self::Clients(_) | Self::Topology(_) | Self::Checks(_) => {
                Action::Overview
            }
            Self::Audit(_) => Action::ReadAudit,
        }
    }

    /// Whether the question is about the namespace. Its answer has only entities that the caller
    /// may read.
    #[must_use]
    pub const fn is_of_namespace(&self, path: &str) -> bool {
        match self {
            Self::Entities(_) | Self::Clients(_) | Self::Topology(_) | Self::Checks(_) => true,
            Self::Timeline(_) | Self::Journey(_) => path.is_empty(),
            Self::Search(step) => path.is_empty() && step.is_of_all(),
            Self::Jobs(query) => matches!(query, JobQuery::List { .. }),
            Self::Heads(_)
            | Self::Locks(_)
            | Self::Sessions(_)
            | Self::SessionState { .. }
            | Self::Body { .. }
            | Self::Series(_)
            | Self::Audit(_)
            | Self::Samples(_)
            | Self::Explain(_)
            | Self::WhatIf(_)
            | Self::Tap { .. } => false,
        }
    }

    /// The job that the question is about, whose entity has the right.
    pub(crate) const fn job(&self) -> Option<JobId> {
        match self {
            Self::Jobs(
                JobQuery::One(job)
                | JobQuery::Samples(job)
                | JobQuery::Failures { job, .. }
                | JobQuery::Export { job, .. },
            ) => Some(*job),
            _ => None,
        }
    }

    /// Whether the question is a search.
    #[must_use]
    pub const fn is_search(&self) -> bool {
        matches!(self, Self::Search(_))
    }

    /// Whether the question leads to other entities, as far as the caller may read them.
    pub(crate) const fn leads_to_others(&self) -> bool {
        matches!(self, Self::Journey(_) | Self::Explain(_) | Self::WhatIf(_))
    }

    /// Whether the answer needs the rules of a topic.
    pub(crate) const fn needs_rules(&self) -> bool {
        matches!(self, Self::Explain(_) | Self::WhatIf(_))
    }

    /// Whether the answer is a list, which is built in a turn.
    #[must_use]
    pub const fn is_large(&self) -> bool {
        !matches!(
            self,
            Self::SessionState { .. }
                | Self::Body { .. }
                | Self::Tap { .. }
                | Self::Search(_)
                | Self::Jobs(JobQuery::Export { .. })
        )
    }
}

//! Contract of an auditor, which keeps a trail of the actions of operators (CON-23).
//!
//! The broker asks the auditor before it begins an action: an action without a durable entry is not
//! carried out. A second entry with the same tracking id has the result. `access/audit.rs` decides
//! which actions these are. Without an auditor, nothing is recorded.

use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;

use async_trait::async_trait;

use super::rights::Ceiling;
use crate::condition::Condition;
use crate::error::Rejection;
use crate::ids::TrackingId;
use crate::time::Timestamp;

/// Maximum number of entries in a page of the trail.
pub const AUDIT_PAGE_MAX: u32 = 500;
/// Maximum bytes of a text of an entry. A longer one is cut.
pub const AUDIT_TEXT_BYTES_MAX: usize = 1_024;
/// Maximum number of changed values in an entry. Further ones are only counted.
pub const AUDIT_CHANGES_MAX: usize = 64;

/// Result of writing an entry.
pub type Recorded = Pin<Box<dyn Future<Output = Result<(), AuditError>> + Send>>;

/// Keeps the trail.
#[async_trait]
pub trait Auditor: Send + Sync {
    /// Puts an entry into the trail. It is queued when this call returns, even if the future is
    /// dropped, and durable when the future ends without an error. Must not block.
    fn record(&self, entry: AuditEntry) -> Recorded;

    /// Reads a page of the trail.
    ///
    /// # Errors
    /// [`AuditError`] if the trail cannot be read.
    async fn read(&self, query: AuditQuery) -> Result<AuditPage, AuditError>;

    /// Whether reading a body is recorded too.
    fn records_reads(&self) -> bool {
        false
    }
}

/// Entry of the trail. It has no body, key, token or signature (CON-75).
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditEntry {
    /// Instant by the clock of the broker.
    pub at: Timestamp,
    /// The same in both entries of an action.
    pub tracking_id: TrackingId,
    /// The action.
    pub action: AuditedAction,
    /// Path of the entity; empty for the namespace.
    pub resource: Box<str>,
    /// The client.
    pub client: AuditedClient,
    /// Position of the entry in its action, with its values.
    pub stage: AuditStage,
}

/// Position of an entry in its action.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum AuditStage {
    /// Before the action begins.
    Begin {
        /// Short text of the request; empty if the action needs none.
        request: Box<str>,
    },
    /// After the action.
    End {
        /// Its result.
        result: AuditResult,
        /// Number of messages, locks, steps or hits, if the action has such a number.
        count: Option<u64>,
        /// Changed values, at most [`AUDIT_CHANGES_MAX`].
        changes: Vec<AuditedChange>,
        /// Tracking id of the error that the client got.
        error_tracking_id: Option<TrackingId>,
    },
}

/// A changed value.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct AuditedChange {
    /// Name of the property, such as `lock_duration`; for a rule or policy, `rule` or `policy` and
    /// its name.
    pub property: Box<str>,
    /// Previous value; none if it had none.
    pub before: Option<Box<str>>,
    /// New value; none if it gets none.
    pub after: Option<Box<str>>,
}

/// Client of an action.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AuditedClient {
    /// Policy whose rights the client used; none for clients without one.
    pub policy: Option<Arc<str>>,
    /// Network address; none for a client in this process.
    pub address: Option<SocketAddr>,
    /// Whether a proxy forwarded the request, so that the address is the proxy's.
    pub is_by_proxy: bool,
    /// Role of the console token; none without a token.
    pub role: Option<Ceiling>,
}

/// Result of an action.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum AuditResult {
    /// The action is carried out.
    Done,
    /// It failed, or was refused.
    Failed(Condition),
    /// The client left before the answer, or a search was ended by its reader.
    Unknown,
}

macro_rules! audited_actions {
    ($($(#[$doc:meta])* $action:ident = $name:literal,)+) => {
        /// Action that the trail records.
        #[derive(Clone, Copy, PartialEq, Eq, Debug)]
        pub enum AuditedAction {
            $($(#[$doc])* $action,)+
        }

        impl AuditedAction {
            /// All actions.
            pub const ALL: &'static [Self] = &[$(Self::$action,)+];

            /// Name of the action in the trail.
            #[must_use]
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$action => $name,)+
                }
            }
        }
    };
}

audited_actions! {
    /// Creates an entity.
    CreateEntity = "createEntity",
    /// Changes the description of an entity.
    UpdateEntity = "updateEntity",
    /// Deletes an entity.
    DeleteEntity = "deleteEntity",
    /// Adds a rule.
    CreateRule = "createRule",
    /// Changes a rule.
    UpdateRule = "updateRule",
    /// Removes a rule.
    DeleteRule = "deleteRule",
    /// Creates a policy.
    CreatePolicy = "createPolicy",
    /// Changes a policy.
    UpdatePolicy = "updatePolicy",
    /// Replaces all policies of an entity.
    ReplacePolicies = "replacePolicies",
    /// Deletes a policy.
    DeletePolicy = "deletePolicy",
    /// Reads the keys of policies.
    ReadKeys = "readKeys",
    /// Replaces a key.
    RegenerateKey = "regenerateKey",
    /// Carries out a declaration. Each of its steps has entries of its own.
    Apply = "apply",
    /// Breaks locks of messages.
    BreakLocks = "breakLocks",
    /// Breaks the lock of a session.
    BreakSession = "breakSession",
    /// Sets the state of a session.
    SetSessionState = "setSessionState",
    /// Acts on messages that are named by number.
    Act = "act",
    /// Makes a job.
    CreateJob = "createJob",
    /// Starts, pauses, resumes, cancels or undoes a job.
    ControlJob = "controlJob",
    /// A job has ended. The entry has only a result, and the id of the job as its tracking id.
    EndJob = "endJob",
    /// Closes the connection of a client.
    CloseClient = "closeClient",
    /// Mutes a finding of the checks.
    MuteFinding = "muteFinding",
    /// Reports a muted finding again.
    UnmuteFinding = "unmuteFinding",
    /// Removes messages without receiving them.
    DeleteMessages = "deleteMessages",
    /// Sends messages.
    Send = "send",
    /// Cancels scheduled messages.
    CancelScheduled = "cancelScheduled",
    /// Searches messages.
    Search = "search",
    /// Reads a body or the state of a session, if `console.audit_reads` is set.
    ReadBody = "readBody",
    /// Exchanges credentials for a console token.
    SignIn = "signIn",
    /// Ends a console token.
    SignOut = "signOut",
    /// Unlocks the console token of an administrator (CON-73).
    Unlock = "unlock",
}

/// Selection of entries. Each condition that is given must hold.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AuditQuery {
    /// First instant.
    pub since: Option<Timestamp>,
    /// Instant after the last one.
    pub until: Option<Timestamp>,
    /// Name of the policy.
    pub policy: Option<Box<str>>,
    /// Name of the action, see [`AuditedAction::name`].
    pub action: Option<Box<str>>,
    /// Path of the entity, ignoring case.
    pub resource: Option<Box<str>>,
    /// `done`, `unknown`, or the name of a condition. Entries of beginnings have no result.
    pub result: Option<Box<str>>,
    /// Whether the oldest entries come first.
    pub is_ascending: bool,
    /// Number of the last entry of an earlier page.
    pub after: Option<u64>,
    /// Maximum number of entries, 1 to [`AUDIT_PAGE_MAX`].
    pub count_max: u32,
}

/// Page of the trail.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct AuditPage {
    /// The entries as JSON objects, exactly as the trail has them. The hash of an entry is over
    /// this text.
    pub lines: Vec<Box<str>>,
    /// Number of the entry after which the next page begins; none at the end.
    pub next: Option<u64>,
}

/// Error of an auditor.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AuditError {
    /// The trail cannot be written or read.
    #[error("the audit trail has failed: {0}")]
    Failed(Arc<str>),
    /// The maximum number of entries waits to be written.
    #[error("too many entries wait for the audit trail")]
    Busy,
}

impl AuditError {
    /// Returns the refusal of an action without an entry.
    pub(crate) fn refusal(&self) -> Rejection {
        Rejection::server_busy(format!(
            "{self}; an action without an entry is not carried out, so nothing was changed; try \
             again later"
        ))
    }

    /// Returns the error of a client that reads the trail.
    pub(crate) fn unreadable(&self) -> Rejection {
        Rejection::server_busy(format!("{self}; try again later"))
    }
}

impl AuditResult {
    /// Name of the result in the trail.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Failed(condition) => condition.name(),
            Self::Unknown => "unknown",
        }
    }
}

impl AuditStage {
    /// The result, if the action has ended.
    #[must_use]
    pub const fn result(&self) -> Option<AuditResult> {
        match self {
            Self::Begin { .. } => None,
            Self::End { result, .. } => Some(*result),
        }
    }
}

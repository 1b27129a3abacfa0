//! The catalogue of errors: every condition, once, with its form on each transport (spec file 19).
//!
//! Transports read a row of the table below and never the text of an error. A released name keeps
//! its meaning (ERR-07). Not here: the details of a failure, which are in a `Rejection`.

use std::fmt;

#[cfg(test)]
mod tests;

/// Reason of a failure: exactly one of these names for every failure (ERR-01).
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Condition {
    /// A malformed or unsupported value, a bad name, a bad rule text.
    ArgumentError,
    /// A value outside its bounds.
    ArgumentOutOfRange,
    /// The operation is not valid for this entity, state or mode.
    InvalidOperation,
    /// A known but unsupported operation.
    NotImplemented,
    /// No token, a bad one, or a missing right.
    Unauthorized,
    /// The entity or rule does not exist.
    EntityNotFound,
    /// The entity or rule to create exists already.
    EntityAlreadyExists,
    /// The entity's status blocks the operation (ENT-24).
    EntityDisabled,
    /// The entity is full, or there are too many of something.
    QuotaExceeded,
    /// A message, batch, header, property or state is too large.
    MessageSizeExceeded,
    /// The lock token is unknown, used, expired or released.
    MessageLockLost,
    /// The session lock expired or was released.
    SessionLockLost,
    /// The session is held by another receiver.
    SessionCannotBeLocked,
    /// No such deferred or scheduled message, or it is locked.
    MessageNotFound,
    /// Accept-next found no session in time, or the operation did not finish in time.
    ServiceTimeout,
    /// Overload; given only before anything was applied (ERR-06).
    ServerBusy,
    /// The same entity was changed concurrently.
    UpdateConflict,
    /// The transaction is older than its limit.
    TransactionTimedOut,
    /// There is no such transaction.
    TransactionUnknown,
    /// The commit failed; the cause is in the text.
    TransactionRolledBack,
    /// Cancelled by the caller or by shutdown.
    OperationCancelled,
    /// The evaluation of a rule's filter failed; only as a dead-letter reason.
    FilterException,
    /// The evaluation of a rule's action failed; only as a dead-letter reason.
    RuleActionException,
    /// A forwarder failed repeatedly; only as a dead-letter reason.
    ForwarderFailed,
    /// A message would become more copies than its publish allows; only between brokers and as a
    /// dead-letter reason (FWD-33).
    MaxTransferCopiesExceeded,
    /// A message without session id was about to enter an entity that requires sessions; only
    /// between entities and brokers, and as a dead-letter reason (DLQ-21).
    SessionIdIsNull,
    /// The connection was lost; raised by clients.
    CommunicationProblem,
    /// A bug or a failure of the store.
    InternalError,
}

/// The two sides of HTTP, which answer one condition differently.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug)]
pub enum Surface {
    /// Management of entities and rules.
    Management,
    /// Sending, receiving and settling messages.
    Messages,
}

/// A row of the catalogue.
struct Row {
    condition: Condition,
    name: &'static str,
    retry: Retry,
    amqp: Option<&'static str>,
    http: Http,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Retry {
    CanSucceed,
    IsFutile,
}

#[derive(Clone, Copy)]
enum Http {
    /// The same status on both surfaces.
    Status(u16),
    PerSurface {
        management: u16,
        messages: u16,
    },
    /// The condition cannot arise over HTTP.
    Never,
}

use Retry::{CanSucceed, IsFutile};

/// The catalogue, in the order of spec file 19 and of the enum.
#[rustfmt::skip]
static ROWS: [Row; 28] = [
    row(Condition::ArgumentError,         "ArgumentError",         IsFutile,   Some("com.microsoft:argument-error"),            Http::Status(400)),
    row(Condition::ArgumentOutOfRange,    "ArgumentOutOfRange",    IsFutile,   Some("com.microsoft:argument-out-of-range"),     Http::Status(400)),
    row(Condition::InvalidOperation,      "InvalidOperation",      IsFutile,   Some("amqp:not-allowed"),                        Http::Status(400)),
    row(Condition::NotImplemented,        "NotImplemented",        IsFutile,   Some("amqp:not-implemented"),                    Http::Status(501)),
    row(Condition::Unauthorized,          "Unauthorized",          IsFutile,   Some("amqp:unauthorized-access"),                Http::Status(401)),
    row(Condition::EntityNotFound,        "EntityNotFound",        IsFutile,   Some("amqp:not-found"),                          Http::PerSurface { management: 404, messages: 410 }),
    row(Condition::EntityAlreadyExists,   "EntityAlreadyExists",   IsFutile,   Some("com.microsoft:entity-already-exists"),     Http::Status(409)),
    row(Condition::EntityDisabled,        "EntityDisabled",        IsFutile,   Some("com.microsoft:entity-disabled"),           Http::Status(400)),
    row(Condition::QuotaExceeded,         "QuotaExceeded",         IsFutile,   Some("amqp:resource-limit-exceeded"),            Http::Status(403)),
    row(Condition::MessageSizeExceeded,   "MessageSizeExceeded",   IsFutile,   Some("amqp:link:message-size-exceeded"),         Http::Status(403)),
    row(Condition::MessageLockLost,       "MessageLockLost",       IsFutile,   Some("com.microsoft:message-lock-lost"),         Http::Status(410)),
    row(Condition::SessionLockLost,       "SessionLockLost",       IsFutile,   Some("com.microsoft:session-lock-lost"),         Http::Status(410)),
    row(Condition::SessionCannotBeLocked, "SessionCannotBeLocked", IsFutile,   Some("com.microsoft:session-cannot-be-locked"),  Http::Status(410)),
    row(Condition::MessageNotFound,       "MessageNotFound",       IsFutile,   Some("com.microsoft:message-not-found"),         Http::Status(404)),
    row(Condition::ServiceTimeout,        "ServiceTimeout",        CanSucceed, Some("com.microsoft:timeout"),                   Http::Status(408)),
    row(Condition::ServerBusy,            "ServerBusy",            CanSucceed, Some("com.microsoft:server-busy"),               Http::Status(503)),
    row(Condition::UpdateConflict,        "UpdateConflict",        CanSucceed, Some("com.microsoft:update-conflict"),           Http::Status(409)),
    row(Condition::TransactionTimedOut,   "TransactionTimedOut",   IsFutile,   Some("amqp:transaction:timeout"),                Http::Never),
    row(Condition::TransactionUnknown,    "TransactionUnknown",    IsFutile,   Some("amqp:transaction:unknown-id"),             Http::Never),
    row(Condition::TransactionRolledBack, "TransactionRolledBack", IsFutile,   Some("amqp:transaction:rollback"),               Http::Never),
    row(Condition::OperationCancelled,    "OperationCancelled",    CanSucceed, Some("com.microsoft:operation-cancelled"),       Http::Status(499)),
    row(Condition::FilterException,       "FilterException",       IsFutile,   None,                                            Http::Never),
    row(Condition::RuleActionException,   "RuleActionException",   IsFutile,   None,                                            Http::Never),
    row(Condition::ForwarderFailed,       "ForwarderFailed",       IsFutile,   None,                                            Http::Never),
    row(Condition::MaxTransferCopiesExceeded, "MaxTransferCopiesExceeded", IsFutile, None,                                       Http::Never),
    row(Condition::SessionIdIsNull,       "SessionIdIsNull",       IsFutile,   None,                                            Http::Never),
    row(Condition::CommunicationProblem,  "CommunicationProblem",  CanSucceed, None,                                            Http::Never),
    row(Condition::InternalError,         "InternalError",         CanSucceed, Some("amqp:internal-error"),                     Http::Status(500)),
];

const fn row(
    condition: Condition,
    name: &'static str,
    retry: Retry,
    amqp: Option<&'static str>,
    http: Http,
) -> Row {
    Row { condition, name, retry, amqp, http }
}

impl Condition {
    /// Every condition, in the order of the catalogue.
    pub fn all() -> impl ExactSizeIterator<Item = Self> {
        ROWS.iter().map(|row| row.condition)
    }

    /// The stable name (ERR-07).
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().name
    }

    /// The condition whose stable name is `name`, in exactly that case.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        ROWS.iter().find(|row| row.name == name).map(|row| row.condition)
    }

    /// The symbol of an AMQP error; none for a condition that never travels over AMQP.
    #[must_use]
    pub fn amqp(self) -> Option<&'static str> {
        self.row().amqp
    }

    /// The status of an HTTP answer; none for a condition that never travels over HTTP.
    ///
    /// The HTTP transport makes one exception, because only it sees the request line:
    /// `MessageLockLost` is 404 if the lock token is in the path, 410 elsewhere.
    #[must_use]
    pub fn http_status(self, surface: Surface) -> Option<u16> {
        match self.row().http {
            Http::Status(status) => Some(status),
            Http::PerSurface { management, messages } => Some(match surface {
                Surface::Management => management,
                Surface::Messages => messages,
            }),
            Http::Never => None,
        }
    }

    /// Whether the same operation can succeed later without intervention (ERR-02, ERR-08).
    #[must_use]
    pub fn retryable(self) -> bool {
        self.row().retry == CanSucceed
    }

    /// The reason in official SDKs and in dead letters; it differs from the name for three
    /// conditions.
    #[must_use]
    pub fn reason_code(self) -> &'static str {
        match self {
            Self::EntityNotFound => "MessagingEntityNotFound",
            Self::EntityDisabled => "MessagingEntityDisabled",
            Self::SessionIdIsNull => "Session ID is null.",
            other => other.name(),
        }
    }

    fn row(self) -> &'static Row {
        &ROWS[self as usize]
    }
}

/// The stable name (ERR-07).
impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

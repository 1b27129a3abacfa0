//! Contracts that extension authors implement: authorizers ([`authorizer`], [`rights`], [`epoch`],
//! [`failures`]), forwarders ([`forwarder`]), transports ([`transport`], [`port`], [`browser`]),
//! auditors ([`auditor`]), keepers of jobs ([`job_keeper`]) and tracers ([`tracer`]). [`action`] is the table of the right that each operation needs.

pub mod action;
pub mod auditor;
pub mod authorizer;
pub mod browser;
pub mod epoch;
pub mod failures;
pub mod forwarder;
pub mod job_keeper;
pub mod job_runner;
pub mod port;
pub mod rights;
pub mod tracer;
pub mod transport;

pub use action::{Action, Requirement};
pub use auditor::{
    AUDIT_CHANGES_MAX, AUDIT_PAGE_MAX, AUDIT_TEXT_BYTES_MAX, AuditEntry, AuditError, AuditPage,
    AuditQuery, AuditResult, AuditStage, AuditedAction, AuditedChange, AuditedClient, Auditor,
    Recorded,
};
pub use authorizer::{
    AllowAll, Authorizer, PresentedKey, Principal, RequestAddress, TOKEN_BYTES_MAX, TlsIdentity,
    bearer_token,
};
pub use epoch::{Epoch, Mark};
pub use failures::Failures;
pub use forwarder::{Forwarder, Outgoing, Route, Source, Verdict};
pub use job_keeper::JobKeeper;
pub use job_runner::JobRunner;
pub use rights::{Ceiling, Grant, Right, Rights};
pub use tracer::{Operation, OperationKind, TRACED_MESSAGES_MAX, TracedMessage, Tracer};
pub use transport::{RunningTransport, Transport, TransportError};

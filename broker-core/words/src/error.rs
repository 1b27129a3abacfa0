//! The errors that callers see when an operation fails.
//!
//! The pure machine returns a [`Rejection`]. `broker.rs` gives it a tracking id once, logs it under
//! that id, and makes the [`BrokerError`] that transports send. Not here: the forms on the wire,
//! which are in `condition.rs`.

use std::borrow::Cow;
use std::error::Error;
use std::fmt::{self, Write as _};
use std::net::SocketAddr;

use crate::condition::Condition;
use crate::description::EntityKind;
use crate::ids::{LockToken, SequenceNumber, TrackingId};
use crate::limits::Limits;
use crate::time::Timestamp;

#[cfg(test)]
mod tests;

/// Seconds that clients of a busy broker are asked to wait (ERR-09).
const BUSY_WAIT_SECONDS: u8 = 10;
/// Maximum number of characters of a caller's text that a detail repeats, enough for any legal
/// path.
const QUOTED_CHARS_MAX: usize = 400;
/// The cloud's sentence for a lost lock (ERR-10).
pub const LOCK_LOST: &str = "The lock supplied is invalid. Either the lock expired, or the message has already been \
                         removed from the queue.";
/// The cloud's sentence for a lost session lock (ERR-10).
pub const SESSION_LOCK_LOST: &str =
    "The session lock has expired on the MessageSession. Accept a new MessageSession.";
/// The cloud's sentence for a message without session id (ERR-10).
const SESSION_ID_NOT_SET: &str = "The SessionId was not set on a message, and it cannot be sent to the entity. Entities \
    that have session support enabled can only receive messages that have the SessionId set to a valid value.";
/// Maximum number of characters in the name of a policy (SEC-01).
const POLICY_CHARS_MAX: usize = 256;

/// A refused operation that changed nothing: a condition and a detail, without any identity.
///
/// Details are lower case, name the thing and the limit, and have no full stop. Sentences of the
/// cloud, in its spelling, may precede them ([`Rejection::in_cloud_words`]).
#[derive(Clone, Debug)]
pub struct Rejection {
    condition: Condition,
    /// Number of bytes at the start of the detail that are sentences of the cloud, with the space
    /// after them.
    cloud_bytes: u16,
    detail: Box<str>,
    denial: Option<Box<Denial>>,
}

/// The caller that lacked a right, and the reason. It is for the operator of the broker, in the log
/// and the metrics (SEC-22), and not for the caller. It contains no secret.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Denial {
    /// The label under which the metrics count such denials: one of a few words.
    pub cause: &'static str,
    /// The policy that the caller named, if it exists or its rights are too few.
    pub policy: Option<Box<str>>,
    /// The address of the caller.
    pub peer: Option<SocketAddr>,
}

impl fmt::Display for Rejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}: {}", self.cloud_words(), self.condition, self.own_words())
    }
}

impl Error for Rejection {}

/// Rejections are equal if their callers see no difference.
impl PartialEq for Rejection {
    fn eq(&self, other: &Self) -> bool {
        (self.condition, &self.detail) == (other.condition, &other.detail)
    }
}

impl Eq for Rejection {}

/// A failed operation as its caller sees it (SND-05); one pointer wide, so that results stay cheap.
///
/// Its text ends with the tracking id, the entity and the instant (SND-06). Its source goes to the
/// broker's log and is never sent.
pub struct BrokerError(Box<Failure>);

struct Failure {
    rejection: Rejection,
    tracking_id: TrackingId,
    entity: Box<str>,
    at: Timestamp,
    source: Option<Box<dyn Error + Send + Sync>>,
}

impl Rejection {
    /// A rejection with any detail.
    #[must_use]
    pub fn new(condition: Condition, detail: impl Into<Box<str>>) -> Self {
        Self { condition, cloud_bytes: 0, detail: detail.into(), denial: None }
    }

    /// Puts sentences of the cloud before the detail: programs search for those words, or for a
    /// text that begins with them (ERR-10). The sentences must end with a full stop.
    #[must_use]
    pub fn in_cloud_words(mut self, sentences: &str) -> Self {
        if let Ok(bytes) = u16::try_from(sentences.len() + 1) {
            self.detail = format!("{sentences} {}", self.own_words()).into();
            self.cloud_bytes = bytes;
        }
        self
    }

    /// The sentences of the cloud, with a space after them; empty if there are none.
    fn cloud_words(&self) -> &str {
        self.detail.get(..usize::from(self.cloud_bytes)).unwrap_or_default()
    }

    /// The detail without the sentences of the cloud.
    fn own_words(&self) -> &str {
        self.detail.get(usize::from(self.cloud_bytes)..).unwrap_or(&self.detail)
    }

    /// Adds the cause of a denial, for the operator.
    #[must_use]
    pub fn with_cause(mut self, cause: &'static str) -> Self {
        self.denial_mut().cause = cause;
        self
    }

    /// Adds the policy of a denial, cut to the maximum length of a name. The policy must exist: a
    /// name that only the client gave may be a secret in the wrong place (SEC-22).
    #[must_use]
    pub fn with_policy(mut self, name: &str) -> Self {
        self.denial_mut().policy = Some(name.chars().take(POLICY_CHARS_MAX).collect());
        self
    }

    /// Adds the address of the caller to a denial.
    #[must_use]
    pub fn with_peer(mut self, peer: Option<SocketAddr>) -> Self {
        if peer.is_some() {
            self.denial_mut().peer = peer;
        }
        self
    }

    /// The denied caller and the reason, if known.
    #[must_use]
    pub fn denial(&self) -> Option<&Denial> {
        self.denial.as_deref()
    }

    fn denial_mut(&mut self) -> &mut Denial {
        self.denial.get_or_insert_with(|| {
            Box::new(Denial { cause: Denial::OTHER, policy: None, peer: None })
        })
    }

    /// The reason for programs.
    #[must_use]
    pub const fn condition(&self) -> Condition {
        self.condition
    }

    /// The reason for people; not stable (ERR-07).
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.detail
    }

    /// Whether the same operation can succeed later (SND-04).
    #[must_use]
    pub fn retryable(&self) -> bool {
        self.condition.retryable()
    }

    /// A message without session id for an entity that requires sessions. The condition differs for
    /// clients and transfers.
    #[must_use]
    pub fn session_id_not_set(condition: Condition, path: &str) -> Self {
        let detail = format!("`{path}` requires sessions; set the session id of the message");
        Self::new(condition, detail).in_cloud_words(SESSION_ID_NOT_SET)
    }

    /// A malformed or unsupported value, a bad name, a bad rule text.
    #[must_use]
    pub fn argument(detail: impl Into<Box<str>>) -> Self {
        Self::new(Condition::ArgumentError, detail)
    }

    /// A value outside its bounds.
    #[must_use]
    pub fn out_of_range(detail: impl Into<Box<str>>) -> Self {
        Self::new(Condition::ArgumentOutOfRange, detail)
    }

    /// An operation that is not valid for this entity, state or mode.
    #[must_use]
    pub fn invalid_operation(detail: impl Into<Box<str>>) -> Self {
        Self::new(Condition::InvalidOperation, detail)
    }

    /// A known operation or property that this version does not support; `feature` is a noun
    /// phrase.
    #[must_use]
    pub fn not_implemented(feature: &str) -> Self {
        Self::new(Condition::NotImplemented, format!("{feature} is not supported in this version"))
    }

    /// No token, a bad one, or a missing right.
    #[must_use]
    pub fn unauthorized(detail: impl Into<Box<str>>) -> Self {
        Self::new(Condition::Unauthorized, detail)
    }

    /// The address names no entity (ADR-14).
    #[must_use]
    pub fn entity_not_found(path: &str) -> Self {
        Self::new(Condition::EntityNotFound, format!("no entity has the path {}", Quoted(path)))
    }

    /// A destination that is set or changed names no entity (FWD-02).
    #[must_use]
    pub fn destination_not_found(property: &str, destination: &str) -> Self {
        Self::new(
            Condition::EntityNotFound,
            format!(
                "no entity has the path {}, the destination in {property}; create it first, or \
                 leave {property} out",
                Quoted(destination)
            ),
        )
    }

    /// The address names an entity of another kind (ADR-12, ADR-14).
    #[must_use]
    pub fn wrong_entity_kind(wanted: EntityKind, path: &str, found: EntityKind) -> Self {
        let (found, wanted) = (found.noun(), wanted.noun());
        let detail = format!("{} is a {found}, not a {wanted}", Quoted(path));
        Self::new(Condition::EntityNotFound, detail)
    }

    /// The namespace (an empty path), or the entity with that path, has no such policy.
    #[must_use]
    pub fn policy_not_found(path: &str, name: &str) -> Self {
        let (at, name) = (Quoted(path), Quoted(name));
        let detail = match path {
            "" => format!("the namespace has no policy {name}"),
            _ => format!("{at} has no policy {name}"),
        };
        Self::new(Condition::EntityNotFound, detail)
    }

    /// The path to create is taken (ADR-12, ENT-13).
    #[must_use]
    pub fn entity_already_exists(path: &str) -> Self {
        Self::new(
            Condition::EntityAlreadyExists,
            format!("an entity with the path {} already exists", Quoted(path)),
        )
        .in_cloud_words(&format!("The messaging entity '{}' already exists.", sanitized(path)))
    }

    /// The entity's status blocks the operation (ENT-24).
    #[must_use]
    pub fn entity_disabled(path: &str, status: impl fmt::Display) -> Self {
        Self::new(
            Condition::EntityDisabled,
            format!("the status of entity {} is {status}", Quoted(path)),
        )
    }

    /// A count has reached its limit.
    #[must_use]
    pub fn quota_exceeded(detail: impl Into<Box<str>>) -> Self {
        Self::new(Condition::QuotaExceeded, detail)
    }

    /// The entity has no room for the message (SND-24); `kind` is "queue" or "topic".
    #[must_use]
    pub fn entity_full(kind: &str, path: &str, bytes: u64, bytes_max: u64) -> Self {
        Self::quota_exceeded(format!(
            "{kind} {} is full: {bytes} of {bytes_max} bytes",
            Quoted(path)
        ))
    }

    /// The count of `things`, a plural such as "receivers", has reached its limit.
    #[must_use]
    pub fn too_many(things: &str, path: &str, count_max: usize) -> Self {
        Self::quota_exceeded(format!(
            "{} already has {count_max} {things}, the limit",
            Quoted(path)
        ))
    }

    /// Descriptions of entities and rules have reached their limit of memory (QUO-01).
    #[must_use]
    pub fn too_many_descriptions(limits: &Limits) -> Self {
        Self::quota_exceeded(format!(
            "rules and descriptions of all entities would take more than {} bytes, the limit \
             `broker_description_bytes_max`; remove others, or make this one shorter",
            limits.broker_description_bytes_max
        ))
    }

    /// The copies of messages whose rules are still being evaluated have reached their limit of
    /// memory, over all topics (QUO-10).
    #[must_use]
    pub fn too_many_unstored_copies(limits: &Limits) -> Self {
        Self::server_busy(format!(
            "the copies of messages that topics are processing would take more than {} bytes, the \
             limit `broker_judged_bytes_max`; wait and retry",
            limits.broker_judged_bytes_max
        ))
    }

    /// `subject`, such as "message" or "batch", has more bytes than its limit (SND-22, SND-23,
    /// SND-30).
    #[must_use]
    pub fn message_size_exceeded(subject: &str, bytes: u64, bytes_max: u64) -> Self {
        Self::new(
            Condition::MessageSizeExceeded,
            format!("{subject} of {bytes} bytes is larger than the {bytes_max} bytes allowed"),
        )
    }

    /// The token locks nothing: it is unknown, used, expired or released.
    #[must_use]
    pub fn message_lock_lost(token: LockToken) -> Self {
        Self::new(
            Condition::MessageLockLost,
            format!("lock {token} does not exist, has expired or was released"),
        )
        .in_cloud_words(LOCK_LOST)
    }

    /// The receiver does not hold the session: its lock ended, or it never had one (SES-15).
    #[must_use]
    pub fn session_lock_lost(detail: impl Into<Box<str>>) -> Self {
        Self::new(Condition::SessionLockLost, detail).in_cloud_words(SESSION_LOCK_LOST)
    }

    /// Another receiver holds the session (SES-06).
    #[must_use]
    pub fn session_cannot_be_locked(session: &str) -> Self {
        Self::new(
            Condition::SessionCannotBeLocked,
            format!("session {} is held by another receiver", Quoted(session)),
        )
        .in_cloud_words(&format!(
            "The requested session '{}' cannot be accepted. It may be locked by another receiver.",
            sanitized(session)
        ))
    }

    /// No such deferred or scheduled message, or it is locked.
    #[must_use]
    pub fn message_not_found(sequence: SequenceNumber) -> Self {
        Self::new(
            Condition::MessageNotFound,
            format!("message {sequence} does not exist here, is in another state or is locked"),
        )
    }

    /// The operation did not finish in time.
    #[must_use]
    pub fn timeout(detail: impl Into<Box<str>>) -> Self {
        Self::new(Condition::ServiceTimeout, detail)
    }

    /// Overload, before anything was applied (ERR-06).
    #[must_use]
    pub fn server_busy(detail: impl Into<Box<str>>) -> Self {
        Self::new(Condition::ServerBusy, detail)
    }

    /// The entity changed after the version that the caller stated (ENT-17).
    #[must_use]
    pub fn update_conflict(path: &str) -> Self {
        Self::new(
            Condition::UpdateConflict,
            format!("entity {} has changed since the version given", Quoted(path)),
        )
    }

    /// Cancelled by the caller or by shutdown.
    #[must_use]
    pub fn cancelled(detail: impl Into<Box<str>>) -> Self {
        Self::new(Condition::OperationCancelled, detail)
    }

    /// A bug or a failure of the store; the cause goes to the log as a source, not into the detail.
    #[must_use]
    pub fn internal(detail: impl Into<Box<str>>) -> Self {
        Self::new(Condition::InternalError, detail)
    }
}

impl Denial {
    /// The cause if no other is known.
    pub const OTHER: &'static str = "other";
    /// The cause if an authenticated caller lacks the right.
    pub const RIGHT: &'static str = "right";
}

impl BrokerError {
    /// A rejection with the identity under which the broker logs it.
    #[must_use]
    pub fn new(rejection: Rejection, tracking_id: TrackingId, entity: &str, at: Timestamp) -> Self {
        Self(Box::new(Failure { rejection, tracking_id, entity: entity.into(), at, source: None }))
    }

    /// Adds the underlying error, for the broker's log.
    #[must_use]
    pub fn with_source(mut self, source: impl Into<Box<dyn Error + Send + Sync>>) -> Self {
        self.0.source = Some(source.into());
        self
    }

    /// The reason for programs.
    #[must_use]
    pub const fn condition(&self) -> Condition {
        self.0.rejection.condition
    }

    /// The reason for people, without the identity that ends the whole text.
    #[must_use]
    pub fn detail(&self) -> &str {
        &self.0.rejection.detail
    }

    /// Whether the same operation can succeed later (SND-04).
    #[must_use]
    pub fn retryable(&self) -> bool {
        self.0.rejection.retryable()
    }

    /// The id under which operators find this failure in the broker's log (SND-06).
    #[must_use]
    pub const fn tracking_id(&self) -> TrackingId {
        self.0.tracking_id
    }

    /// The path of the entity in the request.
    #[must_use]
    pub fn entity(&self) -> &str {
        &self.0.entity
    }

    /// The instant of the rejection.
    #[must_use]
    pub const fn timestamp(&self) -> Timestamp {
        self.0.at
    }

    /// The rejection without its identity.
    #[must_use]
    pub const fn rejection(&self) -> &Rejection {
        &self.0.rejection
    }
}

impl fmt::Display for BrokerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Failure { rejection, tracking_id, entity, at, .. } = &*self.0;
        write!(f, "{rejection}. ")?;
        if rejection.condition == Condition::ServerBusy {
            write!(f, "Please wait {BUSY_WAIT_SECONDS} seconds and try again. ")?;
        }
        let entity = sanitized(entity);
        write!(f, "TrackingId:{tracking_id}, Entity:{entity}, Timestamp:{at}")
    }
}

impl fmt::Debug for BrokerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("BrokerError")
            .field("condition", &self.condition())
            .field("detail", &self.detail())
            .field("tracking_id", &self.tracking_id())
            .field("entity", &self.entity())
            .field("timestamp", &format_args!("{}", self.timestamp()))
            .field("source", &self.0.source)
            .finish()
    }
}

impl Error for BrokerError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.0.source.as_deref().map(|source| source as _)
    }
}

/// A caller's text inside a detail: between backticks, safe for logs and headers.
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}`", sanitized(self.0))
    }
}

/// Whether a character has an effect on the display instead of being visible: control characters,
/// marks that change the direction of writing, separators of lines and paragraphs, and characters
/// without width.
#[must_use]
pub const fn is_unprintable(character: char) -> bool {
    matches!(character,
        '\0'..='\u{1f}' | '\u{7f}'..='\u{9f}'
        | '\u{ad}' | '\u{61c}' | '\u{180e}'
        | '\u{200b}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}'
        | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}'
        | '\u{e0000}'..='\u{e007f}')
}

/// Replaces unprintable characters and bounds the length: an address may be as long as a frame.
fn sanitized(text: &str) -> Cow<'_, str> {
    if text.len() <= QUOTED_CHARS_MAX && !text.contains(is_unprintable) {
        return Cow::Borrowed(text);
    }
    let mut harmless = String::new();
    for character in text.chars().take(QUOTED_CHARS_MAX) {
        if is_unprintable(character) {
            harmless.extend(character.escape_default());
        } else {
            harmless.push(character);
        }
    }
    if let Some(left_out) = text.chars().count().checked_sub(QUOTED_CHARS_MAX).filter(|n| *n > 0) {
        // Writing into a string cannot fail.
        write!(harmless, "... and {left_out} more characters").unwrap_or_default();
    }
    Cow::Owned(harmless)
}

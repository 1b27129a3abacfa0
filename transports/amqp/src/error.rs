//! Errors on the wire (AMQP 2.8.14 to 2.8.18): condition, description and `info`.
//!
//! Every machine of this crate makes an [`AmqpError`] when a peer breaks a rule or a request fails.
//! The caller decides whether it ends a link, a session or the connection.

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

use peeklock_words::amqp::ContentError;
use peeklock_words::amqp::write::{self, Fields, Sink};
use peeklock_words::condition::Condition;

use crate::codec::list::{FieldReader, List, null, put};
use crate::codec::value::{Map, Raw};

/// Key of `info` under which the broker reports whether a retry can succeed (ERR-02).
pub const IS_TRANSIENT: &str = "com.microsoft:is-transient";

/// The `info` of permanent errors, then the `info` of transient ones.
static TRANSIENCE: LazyLock<[Map; 2]> = LazyLock::new(|| {
    [false, true].map(|is_transient| {
        let value = Raw::encoded(|bytes| write::boolean(bytes, is_transient));
        Map::of_symbols([(IS_TRANSIENT, value)])
    })
});

/// Conditions that the standard names and this crate uses.
pub mod condition {
    /// Failure of this program, not of the peer.
    pub const INTERNAL_ERROR: &str = "amqp:internal-error";
    /// Undecodable bytes.
    pub const DECODE_ERROR: &str = "amqp:decode-error";
    /// Invalid value of a field.
    pub const INVALID_FIELD: &str = "amqp:invalid-field";
    /// Request for a feature that is not implemented.
    pub const NOT_IMPLEMENTED: &str = "amqp:not-implemented";
    /// Request that is not allowed.
    pub const NOT_ALLOWED: &str = "amqp:not-allowed";
    /// Frame that the current state does not permit.
    pub const ILLEGAL_STATE: &str = "amqp:illegal-state";
    /// Missing right.
    pub const UNAUTHORIZED_ACCESS: &str = "amqp:unauthorized-access";
    /// The maximum frame size of the peer is too small for a frame that must be sent.
    pub const FRAME_SIZE_TOO_SMALL: &str = "amqp:frame-size-too-small";
    /// A limit is reached.
    pub const RESOURCE_LIMIT_EXCEEDED: &str = "amqp:resource-limit-exceeded";
    /// An operator ends the connection.
    pub const CONNECTION_FORCED: &str = "amqp:connection:forced";
    /// Malformed frame.
    pub const FRAMING_ERROR: &str = "amqp:connection:framing-error";
    /// More transfers than the window of the session permits.
    pub const WINDOW_VIOLATION: &str = "amqp:session:window-violation";
    /// Attach with a handle that is in use.
    pub const HANDLE_IN_USE: &str = "amqp:session:handle-in-use";
    /// Frame with a handle that has no link.
    pub const UNATTACHED_HANDLE: &str = "amqp:session:unattached-handle";
    /// Delivery on a link that was not yet accepted.
    pub const TRANSFER_LIMIT_EXCEEDED: &str = "amqp:link:transfer-limit-exceeded";
    /// The link was attached elsewhere.
    pub const STOLEN: &str = "amqp:link:stolen";
    /// An operator ends the link.
    pub const DETACH_FORCED: &str = "amqp:link:detach-forced";
    /// Message larger than the link takes (AMQP-43).
    pub const MESSAGE_SIZE_EXCEEDED: &str = "amqp:link:message-size-exceeded";
    /// The lock of a delivery is lost (AMQP-62).
    pub const MESSAGE_LOCK_LOST: &str = "com.microsoft:message-lock-lost";
    /// The session lock of a delivery is lost (AMQP-74).
    pub const SESSION_LOCK_LOST: &str = "com.microsoft:session-lock-lost";
}

/// Error of the wire: a condition, a description, and a map with further information.
#[derive(Clone, PartialEq, Eq)]
pub struct AmqpError {
    parts: Box<Parts>,
}

#[derive(Clone, PartialEq, Eq)]
struct Parts {
    condition: Cow<'static, str>,
    description: Cow<'static, str>,
    info: Option<Map>,
}

impl AmqpError {
    /// Makes an error with this condition and description.
    #[must_use]
    pub fn new(
        condition: impl Into<Cow<'static, str>>,
        description: impl Into<Cow<'static, str>>,
    ) -> Self {
        let (condition, description) = (condition.into(), description.into());
        Self { parts: Box::new(Parts { condition, description, info: None }) }
    }

    /// Sets the map with further information.
    #[must_use]
    pub fn with_info(mut self, info: Map) -> Self {
        self.parts.info = Some(info);
        self
    }

    /// Completes the error for sending: sets `info` to whether a retry can succeed, which the
    /// catalogue of errors decides. Keeps an `info` that is already set (ERR-02).
    #[must_use]
    pub fn with_transience(self) -> Self {
        if self.parts.info.is_some() {
            return self;
        }
        let of_condition = |condition: &Condition| condition.amqp() == Some(self.condition());
        let is_transient = match Condition::all().find(of_condition) {
            Some(condition) => condition.retryable(),
            // After these, clients attach or connect again.
            None => {
                matches!(self.condition(), condition::DETACH_FORCED | condition::CONNECTION_FORCED)
            }
        };
        self.transient(is_transient)
    }

    /// Sets `info` to this answer to whether a retry can succeed.
    pub(crate) fn transient(self, is_transient: bool) -> Self {
        let [no, yes] = &*TRANSIENCE;
        self.with_info(if is_transient { yes } else { no }.clone())
    }

    /// Returns the error with at least `bytes` bytes cut from its description; `None` if the
    /// description is shorter than that.
    pub(crate) fn shortened(&self, bytes: usize) -> Option<Self> {
        let description = self.description();
        let left = description.floor_char_boundary(description.len().checked_sub(bytes)?);
        let description = description.get(..left)?.to_owned();
        let error = Self::new(self.parts.condition.clone(), description);
        Some(self.info().cloned().into_iter().fold(error, Self::with_info))
    }

    pub(crate) fn decode(description: impl Into<Cow<'static, str>>) -> Self {
        Self::new(condition::DECODE_ERROR, description)
    }

    pub(crate) fn invalid_field(description: impl Into<Cow<'static, str>>) -> Self {
        Self::new(condition::INVALID_FIELD, description)
    }

    pub(crate) fn framing(description: impl Into<Cow<'static, str>>) -> Self {
        Self::new(condition::FRAMING_ERROR, description)
    }

    pub(crate) fn illegal_state(description: impl Into<Cow<'static, str>>) -> Self {
        Self::new(condition::ILLEGAL_STATE, description)
    }

    /// Condition, which programs read.
    #[must_use]
    pub fn condition(&self) -> &str {
        &self.parts.condition
    }

    /// Description, which people read.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.parts.description
    }

    /// Map with further information.
    #[must_use]
    pub const fn info(&self) -> Option<&Map> {
        self.parts.info.as_ref()
    }
}

impl List for AmqpError {
    const DESCRIPTOR: u8 = 0x1d;
    const NAME: &'static str = "error";
    const FIELD_COUNT: usize = 3;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, Self> {
        let condition = fields.required("condition", FieldReader::text)?;
        let description = fields.text("description")?.unwrap_or_default();
        let error = Self::new(condition.into_string(), description.into_string());
        Ok(fields.map("info")?.into_iter().fold(error, Self::with_info))
    }

    /// Always writes three fields; a missing `info` is an explicit null (AMQP-16).
    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(Some(self.condition()), write::symbol);
        fields.field(Some(self.description()), write::text);
        match self.info() {
            Some(info) => fields.field(Some(info.as_bytes()), put),
            None => fields.field(Some(()), null),
        }
    }
}

impl From<ContentError> for AmqpError {
    fn from(error: ContentError) -> Self {
        Self::decode(error.to_string())
    }
}

impl fmt::Debug for AmqpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

impl fmt::Display for AmqpError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.condition(), self.description())
    }
}

impl std::error::Error for AmqpError {}

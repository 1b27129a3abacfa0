//! Errors on the wire (AMQP 2.8.14 to 2.8.18), and which machine one ends.

use std::borrow::Cow;
use std::fmt;
use std::sync::LazyLock;

use peeklock_words::amqp::ContentError;
use peeklock_words::amqp::write::{self, Fields, Sink};
use peeklock_words::condition::Condition;

use crate::codec::list::{FieldReader, List, null, put};
use crate::codec::value::{Map, Raw};

/// The key of `info` under which the broker says whether trying again can succeed (ERR-02).
pub const IS_TRANSIENT: &str = "com.microsoft:is-transient";

/// The `info` of errors that are not transient, and of those that are.
static TRANSIENCE: LazyLock<[Map; 2]> = LazyLock::new(|| {
    [false, true].map(|is_transient| {
        let value = Raw::encoded(|bytes| write::boolean(bytes, is_transient));
        Map::of_symbols([(IS_TRANSIENT, value)])
    })
});

/// Conditions that the standard names and this crate uses.
pub mod condition {
    /// Something failed here that is not the peer's doing.
    pub const INTERNAL_ERROR: &str = "amqp:internal-error";
    /// Bytes could not be decoded.
    pub const DECODE_ERROR: &str = "amqp:decode-error";
    /// A field has a value that it cannot have.
    pub const INVALID_FIELD: &str = "amqp:invalid-field";
    /// What was asked for is not implemented.
    pub const NOT_IMPLEMENTED: &str = "amqp:not-implemented";
    /// What was asked for is not allowed.
    pub const NOT_ALLOWED: &str = "amqp:not-allowed";
    /// A frame came that the state of things does not permit.
    pub const ILLEGAL_STATE: &str = "amqp:illegal-state";
    /// Who asks may not.
    pub const UNAUTHORIZED_ACCESS: &str = "amqp:unauthorized-access";
    /// The peer takes no frames as large as are needed.
    pub const FRAME_SIZE_TOO_SMALL: &str = "amqp:frame-size-too-small";
    /// A limit is reached.
    pub const RESOURCE_LIMIT_EXCEEDED: &str = "amqp:resource-limit-exceeded";
    /// The connection is ended by an operator.
    pub const CONNECTION_FORCED: &str = "amqp:connection:forced";
    /// Frames were not framed as they must be.
    pub const FRAMING_ERROR: &str = "amqp:connection:framing-error";
    /// More transfers came than the session's window had room for.
    pub const WINDOW_VIOLATION: &str = "amqp:session:window-violation";
    /// An attach named a handle that is in use.
    pub const HANDLE_IN_USE: &str = "amqp:session:handle-in-use";
    /// A frame named a handle without a link.
    pub const UNATTACHED_HANDLE: &str = "amqp:session:unattached-handle";
    /// A delivery came on a link that was not accepted yet.
    pub const TRANSFER_LIMIT_EXCEEDED: &str = "amqp:link:transfer-limit-exceeded";
    /// The link was attached elsewhere.
    pub const STOLEN: &str = "amqp:link:stolen";
    /// The link is ended by an operator.
    pub const DETACH_FORCED: &str = "amqp:link:detach-forced";
    /// A message is larger than the link takes (AMQP-43).
    pub const MESSAGE_SIZE_EXCEEDED: &str = "amqp:link:message-size-exceeded";
    /// The lock of a delivery is gone (AMQP-62).
    pub const MESSAGE_LOCK_LOST: &str = "com.microsoft:message-lock-lost";
    /// The session lock of a delivery is gone (AMQP-74).
    pub const SESSION_LOCK_LOST: &str = "com.microsoft:session-lock-lost";
}

/// An error as it is written: condition, description, and more in a map.
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
    /// An error with this condition and description.
    #[must_use]
    pub fn new(
        condition: impl Into<Cow<'static, str>>,
        description: impl Into<Cow<'static, str>>,
    ) -> Self {
        let (condition, description) = (condition.into(), description.into());
        Self { parts: Box::new(Parts { condition, description, info: None }) }
    }

    /// This error with more in a map.
    #[must_use]
    pub fn with_info(mut self, info: Map) -> Self {
        self.parts.info = Some(info);
        self
    }

    /// This error as the broker sends it: `info` says whether trying again can succeed, by the catalogue of errors, unless
    /// it was set before (ERR-02).
    #[must_use]
    pub fn with_transience(self) -> Self {
        if self.parts.info.is_some() {
            return self;
        }
        let of_condition = |condition: &Condition| condition.amqp() == Some(self.condition());
        let is_transient = match Condition::all().find(of_condition) {
            Some(condition) => condition.retryable(),
            // Clients attach or connect again.
            None => {
                matches!(self.condition(), condition::DETACH_FORCED | condition::CONNECTION_FORCED)
            }
        };
        self.transient(is_transient)
    }

    /// This error with this answer to whether trying again can succeed.
    pub(crate) fn transient(self, is_transient: bool) -> Self {
        let [no, yes] = &*TRANSIENCE;
        self.with_info(if is_transient { yes } else { no }.clone())
    }

    /// The same with a description that is at least so many bytes shorter; none if it is not that long.
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

    /// What programs read.
    #[must_use]
    pub fn condition(&self) -> &str {
        &self.parts.condition
    }

    /// What people read.
    #[must_use]
    pub fn description(&self) -> &str {
        &self.parts.description
    }

    /// What else there is.
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

    /// All three, the last as an explicit null (AMQP-16).
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

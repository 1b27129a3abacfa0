//! Errors of a connection: frames that cannot be read, and closes with their codes. The
//! conversation closes with them, or answers a request with them.

use peeklock_core::message::ContentError;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

/// Maximum size of the reason in a close frame, in bytes (RFC 6455, section 5.5).
const REASON_BYTES_MAX: usize = 123;

/// Reason why a frame or a request in it cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum FrameError {
    /// A length exceeds the bytes around it.
    #[error("ends inside a value")]
    Truncated,
    /// Bytes are left after the last value.
    #[error("has bytes after its last value")]
    TooLong,
    /// A list has more elements than the limit for all lists.
    #[error("has a list of more than 4096 elements")]
    TooMany,
    /// The requests exceed the limits of one frame.
    #[error(
        "the requests in a frame ask for more than 16384 commands, or for too many values; send \
         several frames"
    )]
    TooMuch,
    /// No operation or notice has this code or key.
    #[error("has an unknown code")]
    Unknown,
    /// A value is not of its type.
    #[error("has a value that is not a valid {0}")]
    BadValue(&'static str),
    /// The bytes are not valid AMQP.
    #[error("has properties that cannot be read: {0}")]
    Content(ContentError),
    /// The JSON does not have the expected form.
    #[error("is not the expected JSON: {0}")]
    Json(String),
}

/// Close by the server; the code determines whether the client may come back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Close {
    pub(crate) code: u16,
    pub(crate) reason: String,
}

/// Close codes. A client comes back after 1001, 1006, 1011 to 1014 and 4100 to 4199, and after no
/// other.
pub(crate) mod code {
    pub(crate) const NORMAL: u16 = 1_000;
    pub(crate) const GOING_AWAY: u16 = 1_001;
    pub(crate) const PROTOCOL: u16 = 1_002;
    pub(crate) const UNSUPPORTED: u16 = 1_003;
    pub(crate) const TOO_BIG: u16 = 1_009;
    pub(crate) const TRY_LATER: u16 = 1_013;
    pub(crate) const UNAUTHORIZED: u16 = 4_001;
    pub(crate) const NO_HELLO: u16 = 4_002;
    pub(crate) const RESUMED_ELSEWHERE: u16 = 4_003;
    pub(crate) const SILENT: u16 = 4_100;
    pub(crate) const SLOW: u16 = 4_101;
}

impl Close {
    /// Makes a close with this reason, cut to `REASON_BYTES_MAX`.
    pub(crate) fn new(code: u16, reason: impl Into<String>) -> Self {
        let mut reason = reason.into();
        if reason.len() > REASON_BYTES_MAX {
            let end = (0..=REASON_BYTES_MAX).rev().find(|at| reason.is_char_boundary(*at));
            reason.truncate(end.unwrap_or(0));
        }
        Self { code, reason }
    }

    /// Makes the close for a frame that cannot be read.
    pub(crate) fn of_frame(error: &FrameError) -> Self {
        Self::new(code::PROTOCOL, format!("the frame {error}"))
    }

    pub(crate) fn frame(&self) -> CloseFrame {
        CloseFrame { code: CloseCode::from(self.code), reason: self.reason.as_str().into() }
    }
}

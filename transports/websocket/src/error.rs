//! What goes wrong on a connection: frames that cannot be read, and how a connection is closed.

use peeklock_core::message::ContentError;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;

/// The reason in a close frame has at most 123 bytes.
const REASON_BYTES_MAX: usize = 123;

/// Why a frame or a part of it cannot be read.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub(crate) enum FrameError {
    /// A length reaches beyond what surrounds it.
    #[error("ends inside a value")]
    Truncated,
    /// Something is left behind the last value.
    #[error("has bytes after its last value")]
    TooLong,
    /// A list has more elements than any may have.
    #[error("has a list of more than 4096 elements")]
    TooMany,
    /// Requests of a frame ask for more than one frame may.
    #[error(
        "the requests in a frame ask for more than 16384 commands, or for too many values; send \
         several frames"
    )]
    TooMuch,
    /// There is no such operation or notice.
    #[error("has an unknown code")]
    Unknown,
    /// A value is not of its type.
    #[error("has a value that is not a valid {0}")]
    BadValue(&'static str),
    /// Bytes are not what AMQP encodes.
    #[error("has properties that cannot be read: {0}")]
    Content(ContentError),
    /// JSON that is not what is expected.
    #[error("is not the expected JSON: {0}")]
    Json(String),
}

/// How the server closes a connection; the code says whether to come back.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Close {
    pub(crate) code: u16,
    pub(crate) reason: String,
}

/// The codes. A client comes back after 1001, 1006, 1011 to 1014 and 4100 to 4199, and after no other.
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
    /// A close with this reason, cut to what fits.
    pub(crate) fn new(code: u16, reason: impl Into<String>) -> Self {
        let mut reason = reason.into();
        if reason.len() > REASON_BYTES_MAX {
            let end = (0..=REASON_BYTES_MAX).rev().find(|at| reason.is_char_boundary(*at));
            reason.truncate(end.unwrap_or(0));
        }
        Self { code, reason }
    }

    /// The frame cannot be read.
    pub(crate) fn of_frame(error: &FrameError) -> Self {
        Self::new(code::PROTOCOL, format!("the frame {error}"))
    }

    pub(crate) fn frame(&self) -> CloseFrame {
        CloseFrame { code: CloseCode::from(self.code), reason: self.reason.as_str().into() }
    }
}

//! Hello and welcome at the start of a connection, and the announcement of its end. `open.rs` and
//! the client use them.

use serde::{Deserialize, Serialize};

use crate::frame::bodies;
use crate::frame::text::{Guid, Instant};
use crate::frame::wire::wire;

#[derive(Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Hello {
    /// Never logged (SEC-22).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) token: Option<String>,
    /// Name of the client for the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) heartbeat_seconds: Option<u32>,
    /// Time for which a lost connection may be resumed, in seconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) grace_seconds: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) resume: Option<Resume>,
}
wire!(Hello {
    token: Option<String>, client: Option<String>, heartbeat_seconds: Option<u32>,
    grace_seconds: Option<u32>, resume: Option<Resume>,
});

impl std::fmt::Debug for Hello {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hello").field("client", &self.client).finish_non_exhaustive()
    }
}

#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct Resume {
    pub(crate) resume_token: Guid,
    /// Total number of frames of the server that the client has taken.
    pub(crate) received: u64,
}
wire!(Resume { resume_token: Guid, received: u64 });

bodies! {
    struct Welcome {
        /// Whether the earlier connection continues; otherwise this is a new one.
        resumed: bool,
        /// Total number of frames of the client that the server has taken.
        received: u64,
        /// Resumes the connection; absent if it cannot be resumed.
        #[serde(skip_serializing_if = "Option::is_none")]
        resume_token: Option<Guid>,
        grace_seconds: u32,
        heartbeat_seconds: u32,
        /// Clock of the broker.
        now_utc: Instant,
        namespace: String,
        server: String,
        /// Maximum size of a client frame in bytes.
        frame_bytes_max: u64,
        /// Maximum number of messages, settlements and other commands under way at once.
        command_count_max: u32,
        link_count_max: u32,
        /// Maximum number of unsettled deliveries of a receiver.
        unsettled_count_max: u32,
    }

    struct Closing {
        seconds: u32,
    }
}

//! What is said when a connection begins and before it ends.

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
    /// What the client calls itself, for the log.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) client: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) heartbeat_seconds: Option<u32>,
    /// How long the connection may be resumed after it was lost.
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
    /// How many frames of the server the client has taken in all.
    pub(crate) received: u64,
}
wire!(Resume { resume_token: Guid, received: u64 });

bodies! {
    struct Welcome {
        /// Whether the connection goes on where it was; if not, it is a new one.
        resumed: bool,
        /// How many frames of the client the server has taken in all.
        received: u64,
        /// Resumes the connection; absent if it cannot be.
        #[serde(skip_serializing_if = "Option::is_none")]
        resume_token: Option<Guid>,
        grace_seconds: u32,
        heartbeat_seconds: u32,
        /// The broker's clock.
        now_utc: Instant,
        namespace: String,
        server: String,
        /// Bytes of one frame of the client.
        frame_bytes_max: u64,
        /// Messages, settlements and other commands under way at once.
        command_count_max: u32,
        link_count_max: u32,
        /// Deliveries of one receiver that are not settled.
        unsettled_count_max: u32,
    }

    struct Closing {
        seconds: u32,
    }
}

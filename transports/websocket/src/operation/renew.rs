//! Prolonging locks, by delivery number or by lock token.

use super::keyed::OfLock;
use super::{Expect, FailedRange, Range};
use crate::connection::{Asked, Conversation, Done};
use crate::frame::text::{Instant, Token};
use crate::frame::{bodies, json};

bodies! {
    struct Renew {
        link: u32,
        #[serde(
            default,
            skip_serializing_if = "Vec::is_empty",
            deserialize_with = "json::bounded"
        )]
        ranges: Vec<Range>,
        #[serde(
            default,
            skip_serializing_if = "Vec::is_empty",
            deserialize_with = "json::bounded"
        )]
        lock_tokens: Vec<Token>,
    }

    struct Renewed {
        /// The earliest end of the locks; absent if all failed.
        #[serde(skip_serializing_if = "Option::is_none")]
        locked_until_utc: Option<Instant>,
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        failed: Vec<FailedRange>,
    }
}

impl Conversation {
    pub(super) fn renew(&mut self, asked: Asked, renew: &Renew) -> Done {
        self.receiver(renew.link)?;
        let keyed = self.keyed(renew.link, &renew.ranges, &renew.lock_tokens)?;
        self.ask_each(asked, keyed, OfLock::Renew, Expect::Renewed)
    }
}

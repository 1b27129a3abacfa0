//! Addresses of downloads (CON-71): each serves one content once, with the rights of the request
//! that made it. A browser follows such an address without a token.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use peeklock_core::error::Rejection;
use peeklock_core::time::{TimeSpan, Timestamp};

/// Time for which an address is valid.
const TIME: TimeSpan = TimeSpan::from_minutes(1);
/// Maximum number of addresses that wait for their use.
const COUNT_MAX: usize = 1_024;
/// Number of random bytes in an address.
const TICKET_BYTES: usize = 32;

/// Downloads that wait for their start, by their tickets.
#[derive(Default)]
pub(crate) struct Downloads(Mutex<HashMap<String, Download>>);

/// Content of an address.
pub(crate) struct Download {
    /// Path of the content.
    pub(crate) path: String,
    /// Value of the `Authorization` header of the request that made the address.
    pub(crate) token: Option<Box<str>>,
    until: Timestamp,
}

impl Downloads {
    /// Adds a download and returns its ticket.
    ///
    /// # Errors
    /// `ServerBusy` if too many downloads wait.
    pub(crate) fn add(
        &self,
        path: String,
        token: Option<Box<str>>,
        now: Timestamp,
    ) -> Result<String, Rejection> {
        let mut bytes = [0; TICKET_BYTES];
        getrandom::fill(&mut bytes).map_err(|error| {
            Rejection::internal(format!("cannot get random bytes from the system: {error}"))
        })?;
        let ticket = URL_SAFE_NO_PAD.encode(bytes);
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.retain(|_, other| now < other.until);
        if waiting.len() >= COUNT_MAX {
            let detail = format!("{COUNT_MAX} downloads wait for their start; try again");
            return Err(Rejection::server_busy(detail));
        }
        waiting.insert(ticket.clone(), Download { path, token, until: now.plus(TIME) });
        Ok(ticket)
    }

    /// Takes the download of a ticket; none if it was used or is too old.
    pub(crate) fn take(&self, ticket: &str, now: Timestamp) -> Option<Download> {
        let mut waiting = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.remove(ticket).filter(|download| now < download.until)
    }
}

//! How many files this process may have open: each connection is one, and each segment of the journal.

/// Raises the limit as far as the system lets this process, and tells it; `None` where there is none or
/// the system does not tell.
#[cfg(unix)]
pub fn raise_limit() -> Option<u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

    let limit = getrlimit(Resource::Nofile);
    if limit.current != limit.maximum {
        let raised = Rlimit { current: limit.maximum, maximum: limit.maximum };
        if let Err(error) = setrlimit(Resource::Nofile, raised) {
            tracing::debug!(%error, "cannot raise the limit of open files");
            return limit.current;
        }
    }
    limit.maximum
}

/// Raises the limit: this system has none that is known.
#[cfg(not(unix))]
pub const fn raise_limit() -> Option<u64> {
    None
}

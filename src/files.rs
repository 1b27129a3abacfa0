//! Limit of open files of this process: each connection needs one, and each segment of the journal.
//! `serve` and the benchmarks raise it.

/// Raises the limit of open files to the maximum for this process, and returns it. `None` if there
/// is no limit or it is unknown.
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

/// Does nothing: this system has no known limit.
#[cfg(not(unix))]
pub const fn raise_limit() -> Option<u64> {
    None
}

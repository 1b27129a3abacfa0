//! What the commands have in common that create queues and topics: what is told of one that is there already.

use peeklock::condition::Condition;
use peeklock::declaration::Declaration;
use peeklock::error::BrokerError;

use super::connect::Session;
use super::{Failure, differing};

/// Something that is being created.
pub struct Creation<'a> {
    /// What it is, as the commands call it.
    pub kind: &'a str,
    /// What else may have its path.
    pub other: &'a str,
    pub path: &'a str,
    /// Whether it may be there.
    pub if_not_exists: bool,
}

impl Creation<'_> {
    /// What there is now, and what is said of it. `there` looks for one that was there before, and how that differs
    /// from what was named is told.
    pub async fn end<D>(
        self,
        session: &Session,
        created: Result<D, BrokerError>,
        there: impl Future<Output = Result<D, BrokerError>>,
        named: impl Into<Declaration>,
    ) -> Result<(D, &'static str), Failure> {
        let error = match created {
            Ok(described) => return Ok((described, "created")),
            Err(error) if error.condition() == Condition::EntityAlreadyExists => error,
            Err(error) => return Err(error.into()),
        };
        let Self { kind, other, path, if_not_exists } = self;
        match there.await {
            Ok(described) if if_not_exists => {
                let change = format!("change it with `peeklock {kind} update {path}`");
                differing::tell(session, named, &change).await;
                Ok((described, "already exists"))
            }
            Ok(_) => Err(Failure::from(error).hint(&format!(
                "change it with `peeklock {kind} update {path}`, or add --if-not-exists to accept \
                 it as it is"
            ))),
            Err(absent) if absent.condition() == Condition::EntityNotFound => {
                Err(Failure::from(error).hint(&format!(
                    "a {other} has this path; choose another path (`peeklock top --once` lists all \
                     entities)"
                )))
            }
            Err(failure) => Err(failure.into()),
        }
    }
}

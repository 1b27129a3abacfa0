//! Common part of the commands that create queues and topics: the report about an existing entity.
//! It compares the given properties and prints the differences.

use peeklock::condition::Condition;
use peeklock::declaration::{Change, Declaration, Plan};
use peeklock::error::BrokerError;

use super::Failure;
use super::connect::CommandConnection;
use super::terminal::{line, note};

/// Creation of an entity.
pub struct Creation<'a> {
    /// Kind of the entity in the command line.
    pub kind: &'a str,
    /// The other kind that may have the path.
    pub other: &'a str,
    pub path: &'a str,
    /// Whether an existing entity is accepted.
    pub if_not_exists: bool,
}

impl Creation<'_> {
    /// Returns the created or existing entity and a word for it. `there` looks the existing entity
    /// up; its differences from `named` are printed.
    pub async fn finish<D>(
        self,
        session: &CommandConnection,
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
                print_differences(session, named, &change).await;
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

/// Prints the differences and the command that would remove them. Does not change the entity.
pub async fn print_differences(
    session: &CommandConnection,
    named: impl Into<Declaration>,
    way_out: &str,
) {
    let differing = match session.client.admin().plan(&named.into()).await {
        Ok(plan) => differences(&plan),
        // The error describes a property that cannot change.
        Err(error) => line(error.detail()).into_owned(),
    };
    if !differing.is_empty() {
        note(&format!("left unchanged, although properties differ: {differing}; {way_out}"));
    }
}

fn differences(plan: &Plan) -> String {
    let text = |value: &Option<Box<str>>| line(value.as_deref().unwrap_or("none")).into_owned();
    let one = |change: &Change| {
        format!("{} is {}, not {}", change.property, text(&change.before), text(&change.after))
    };
    let changes = plan.steps.iter().flat_map(|step| &step.changes);
    changes.map(one).collect::<Vec<_>>().join(", ")
}

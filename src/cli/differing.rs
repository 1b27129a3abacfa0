//! Differences between an existing entity and the requested properties, for commands that accept
//! the existing entity.

use peeklock::declaration::{Change, Declaration, Plan};

use super::connect::Session;
use super::terminal::{line, note};

/// Prints the differences and the command that would remove them. Does not change the entity.
pub async fn tell(session: &Session, named: impl Into<Declaration>, way_out: &str) {
    let differing = match session.client.admin().plan(&named.into()).await {
        Ok(plan) => differing(&plan),
        // The error describes a property that cannot change.
        Err(error) => line(error.detail()).into_owned(),
    };
    if !differing.is_empty() {
        note(&format!("left unchanged, although properties differ: {differing}; {way_out}"));
    }
}

fn differing(plan: &Plan) -> String {
    let text = |value: &Option<Box<str>>| line(value.as_deref().unwrap_or("none")).into_owned();
    let one = |change: &Change| {
        format!("{} is {}, not {}", change.property, text(&change.before), text(&change.after))
    };
    let changes = plan.steps.iter().flat_map(|step| &step.changes);
    changes.map(one).collect::<Vec<_>>().join(", ")
}

//! How what is there differs from what was named, where a command is content with what is there.

use peeklock::declaration::{Change, Declaration, Plan};

use super::connect::Session;
use super::terminal::{line, note};

/// Says it, and which command would change that. What is there is left as it is.
pub async fn tell(session: &Session, named: impl Into<Declaration>, way_out: &str) {
    let differing = match session.client.admin().plan(&named.into()).await {
        Ok(plan) => differing(&plan),
        // What cannot change differs.
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

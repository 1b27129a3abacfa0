//! `peeklock apply`: creates and updates the entities that a file declares, step by step (DEC-16).
//! `cli.rs` dispatches to it. A second run of the same file changes nothing.

mod parts;

use std::path::PathBuf;

use clap::Args;
use peeklock::declaration::{Change, Plan, PlanResult, Step, StepKind, Unnamed};
use peeklock::error::BrokerError;
use peeklock_json::PlanView;

use self::parts::{Part, parts};
use super::connect::{CommandConnection, Common, Output, Patience, code, error_text};
use super::terminal::{Bar, Cell, Out, Table, note, object};
use super::{Failure, exit};
use crate::config::{FileError, TopologyFile};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock apply -f topology.toml --dry-run      show the changes
  peeklock apply -f topology.toml                make the changes
  peeklock apply -f topology.toml --delete       also delete entities that the file does not name
  peeklock apply -f Config.json                  the file of the Service Bus emulator
  peeklock export | peeklock apply --context other -f -

The file has [[queues]], [[topics]], [[topics.subscriptions]] and [[topics.subscriptions.rules]], \
like a configuration file or the output of `peeklock export`. Missing entities are created and \
different properties are updated; entities and properties that the file does not name stay \
unchanged. A subscription that lists rules gets exactly these rules: other rules are deleted. \
Nothing else is deleted without --delete. With unnamed_is_default = true at the top, as in exported files, \
properties that the file does not name are reset to the default of new entities.

If a step fails, the steps before it stay done. Run the same command again to do the rest.

",
    exit_codes!()
);

#[derive(Args)]
pub struct ApplyFlags {
    /// File that declares queues and topics, such as topology.toml; `-` reads standard input
    #[arg(short, long, value_name = "FILE")]
    file: PathBuf,
    /// Show the changes without making them
    #[arg(long)]
    dry_run: bool,
    /// Delete queues, topics, and subscriptions of topics in the file that the file does not name,
    /// with their messages; requires the Manage right on the namespace
    #[arg(long)]
    delete: bool,
    #[command(flatten)]
    common: Common,
}

impl From<FileError> for Failure {
    fn from(error: FileError) -> Self {
        Self::usage(error.to_string())
    }
}

pub fn run(flags: &ApplyFlags) -> Result<(), Failure> {
    let mut file = TopologyFile::read(&flags.file)?;
    for text in &file.notes {
        note(text);
    }
    if flags.delete {
        if let Some(reason) = file.reason_to_keep() {
            return Err(Failure::usage(reason));
        }
        file.declaration.unnamed = Unnamed::Delete;
    }
    let parts = parts(std::mem::take(&mut file.declaration))
        .map_err(|refused| Failure::usage(format!("{}: {refused}", file.place_of(""))))?;
    flags.common.run(Patience::Limited, async |session| {
        let admin = session.client.admin();
        let mut plans = Vec::with_capacity(parts.len());
        for part in &parts {
            let plan = admin.plan(&part.declaration).await.map_err(|error| {
                let error = part.in_whole(error);
                let place = file.place_of(error.detail());
                Failure::ended(code(error.condition()), format!("{place}: {}", error_text(&error)))
            })?;
            plans.push((part, plan));
        }
        // `parts` returns at least one part.
        let Some(plan) = combined_plan(&plans) else { return Ok(()) };
        let output = flags.common.output;
        if output == Output::Table {
            session.out.print(&shown(&plan, &session.out))?;
        }
        let done = if flags.dry_run || plan.is_empty() {
            0
        } else {
            carry_out(session, &plans, plan.steps.len()).await?
        };
        if output != Output::Table {
            return session.out.print(&as_object(&plan, plans.len(), done, output)?);
        }
        if done > 0 {
            let steps = if done == 1 { "step" } else { "steps" };
            session.out.print(&format!("done: {done} {steps}\n"))?;
        }
        Ok(())
    })
}

/// Combines the plans of all parts. The digest of several parts has no meaning.
fn combined_plan(plans: &[(&Part, Plan)]) -> Option<Plan> {
    plans.iter().map(|(_, plan)| plan.clone()).reduce(|mut whole, plan| {
        whole.steps.extend(plan.steps);
        whole.kept.extend(plan.kept);
        whole.unchanged_count += plan.unchanged_count;
        whole
    })
}

/// Carries out exactly the plans that were shown; returns the number of steps done, of `total`.
async fn carry_out(
    session: &CommandConnection,
    plans: &[(&Part, Plan)],
    total: usize,
) -> Result<usize, Failure> {
    let admin = session.client.admin();
    let bar = Bar::new("applying", Some(total as u64));
    let mut done = 0;
    for (part, plan) in plans {
        let (mut left, mut digest) = (plan.steps.len(), plan.digest());
        while left > 0 {
            if session.interrupt.is_set() {
                drop(bar);
                return Err(failure_after(exit::INTERRUPTED, done, total, "interrupted"));
            }
            let carried_out = admin.carry_out(&part.declaration, digest).await;
            let PlanResult { done: more, rest, failure } = match carried_out {
                Ok(carried_out) => carried_out,
                Err(error) => {
                    return Err(failed(&part.in_whole(error), done, total, "the next steps"));
                }
            };
            bar.advance(more as u64);
            done += more;
            left = left.saturating_sub(more);
            digest = rest.digest();
            if let Some(error) = failure {
                let step = rest.steps.first().map_or_else(String::new, Step::to_string);
                return Err(failed(&error, done, total, &step));
            }
            if more == 0 {
                return Err(failure_after(1, done, total, "the broker cannot do more steps now"));
            }
        }
    }
    Ok(done)
}

fn failed(error: &BrokerError, done: usize, total: usize, step: &str) -> Failure {
    failure_after(
        code(error.condition()),
        done,
        total,
        &format!("{step} failed: {}", error_text(error)),
    )
}

/// Failure that reports the steps done. The code of the cause applies if no step was done.
fn failure_after(code: u8, done: usize, total: usize, why: &str) -> Failure {
    let code = if done > 0 && code != exit::INTERRUPTED { exit::IN_PART } else { code };
    Failure::ended(code, format!("{done} of {total} steps are done; {why}"))
        .hint("run the same command again to do the remaining steps")
}

/// Table with a line for each property of each step, and a line with totals.
fn shown(plan: &Plan, out: &Out) -> String {
    let [creates, updates, deletes] = StepKind::ALL.map(|kind| plan.count(kind));
    let unchanged = plan.unchanged_count;
    if plan.is_empty() {
        return format!("nothing to do: everything is as declared ({unchanged} unchanged)\n");
    }
    let mut table = Table::new(&["", "KIND", "PATH", "PROPERTY", "VALUE"], 4, out.colours);
    for step in &plan.steps {
        let sign = match step.kind {
            StepKind::Create => "+",
            StepKind::Update => "~",
            StepKind::Delete => "-",
        };
        let mut head = [sign, step.entity.noun(), &step.path].map(str::to_owned);
        let mut row = |property: &str, value: String| {
            let cells = std::mem::take(&mut head).into_iter().chain([property.to_owned(), value]);
            table.row(cells.map(Cell::Text).collect());
        };
        if step.changes.is_empty() {
            row("", String::new());
        }
        for change in &step.changes {
            row(&change.property, value(step.kind, change));
        }
    }
    let (table, _) = table.text(out);
    let deletes = if deletes > 0 { format!("{deletes} to delete, ") } else { String::new() };
    format!("{table}{creates} to create, {updates} to update, {deletes}{unchanged} unchanged\n")
}

fn value(kind: StepKind, change: &Change) -> String {
    let text = |value: &Option<Box<str>>| value.as_deref().unwrap_or("none").to_owned();
    match kind {
        StepKind::Create => text(&change.after),
        StepKind::Update => format!("{} → {}", text(&change.before), text(&change.after)),
        StepKind::Delete => text(&change.before),
    }
}

/// The plan in the format of the JSON API, with the number of steps done. Several parts have no
/// digest.
fn as_object(plan: &Plan, parts: usize, done: usize, output: Output) -> Result<String, Failure> {
    let mut plan_json = serde_json::to_value(PlanView::from(plan))
        .map_err(|error| Failure::Failed(error.to_string()))?;
    if let Some(members) = plan_json.as_object_mut() {
        members.insert("done".to_owned(), done.into());
        if parts > 1 {
            members.remove("digest");
        }
    }
    Ok(object(&plan_json.to_string(), output))
}

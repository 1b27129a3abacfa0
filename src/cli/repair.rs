//! `peeklock repair`: shows the losses, asks for confirmation, copies the directory, and repairs
//! it. `cli.rs` dispatches to it.

use std::io::{self, BufRead as _, IsTerminal as _, Write as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use clap::Args;
use peeklock::store::journal::disk::{Disk as _, OsDisk};
use peeklock::store::journal::repair::Plan;
use peeklock::store::journal::verify::verify;

use super::scrub::{self, AffectedRecords, Bar, JsonRepair, Output, ScrubFlags};
use super::{Failure, print};
use crate::telemetry::colours;

pub const HELP: &str = "\
Examples:
  peeklock repair                            show the repair and ask for confirmation
  peeklock repair --data-dir /var/lib/peeklock --yes
  peeklock repair --drop-segment 7           continue without a lost segment

Stop the broker first. The command works on the journal in a data directory, not on a PostgreSQL \
database. Repair prints the report of `peeklock verify` and the result for each \
message, and asks for confirmation. Then it copies the whole directory to \
`<directory>.before-repair-<time>`, saves all readable data, drops the rest, and verifies \
everything again. If it is interrupted, run it again.

A segment that is missing, or whose header is lost in both copies, cannot be repaired. Restore \
the file from a backup of the same state, made while the broker was stopped, or continue without \
the segment (--drop-segment). Then every message in it is lost, and messages whose settlement it \
recorded are delivered again.

Exit codes:
  0  repaired, or nothing to repair
  1  not repaired
  2  usage or configuration; also if --yes is missing and there is no terminal";

#[derive(Args)]
pub struct RepairFlags {
    #[command(flatten)]
    scrub: ScrubFlags,
    /// Do not ask for confirmation
    #[arg(short, long)]
    yes: bool,
    /// Continue without a segment that is missing or unreadable, such as 7; everything in it is
    /// lost; may be repeated
    #[arg(long, value_name = "N")]
    drop_segment: Vec<u32>,
}

pub fn repair(flags: &RepairFlags) -> Result<(), Failure> {
    let path = flags.scrub.data_dir()?;
    let shown = path.display().to_string();
    // A directory without a journal is not changed, so it is checked first.
    drop(scrub::look_at(&path)?);
    let disk = Arc::new(scrub::open(&path)?);
    let mut bar = Bar::new();
    let plan = Plan::new(disk, &flags.drop_segment, &mut |progress| bar.show(progress));
    bar.end();
    let plan = plan.map_err(|error| scrub::failed(&error))?;
    let meanings = AffectedRecords::of(plan.report(), &|key| plan.value(key));
    let is_text = flags.scrub.output == Output::Text;
    if is_text {
        print(&plan_text(&shown, &plan, &meanings))?;
    }
    if !plan.is_needed() {
        if is_text {
            return print("sound: there is nothing to repair\n");
        }
        return print(&scrub::json(&shown, plan.report(), &meanings, None));
    }
    refuse_obstacles(&plan, &path)?;
    let copy_path = copy_path(&path);
    confirm(&plan, &copy_path, flags.yes)?;
    make_copy(&plan, &copy_path)?;
    let repair = JsonRepair { steps: plan.steps(), copy: Some(copy_path.display().to_string()) };
    let report = plan.report().clone();
    plan.apply().map_err(|error| {
        let copy = copy_path.display();
        let text = scrub::failed(&error).text();
        Failure::Failed(format!(
            "{text}; you can run repair again, and `{copy}` is a copy of the directory before the \
             repair"
        ))
    })?;
    verify_again(&path)?;
    if !is_text {
        return print(&scrub::json(&shown, &report, &meanings, Some(repair)));
    }
    let copy = copy_path.display();
    print(&format!(
        "repaired: everything in {shown} was read again and is sound\ncopy from before the repair: \
         {copy} (remove it when you do not need it)\n"
    ))
}

/// Report of the findings, the results for messages, and the planned steps.
fn plan_text(shown: &str, plan: &Plan, meanings: &AffectedRecords) -> String {
    let report = plan.report();
    let mut text = format!("{shown}: {}", scrub::totals(report));
    let steps: String = plan.steps().iter().map(|step| format!("- {step}\n")).collect();
    let affected = meanings.text();
    for (title, part) in [
        ("", scrub::findings(report, colours(&io::stdout()))),
        ("Results for the messages:\n", affected),
        ("Steps of the repair:\n", steps),
    ] {
        if !part.is_empty() {
            text.push('\n');
            text.push_str(title);
            text.push_str(&part);
        }
    }
    let are_unknown = report
        .findings
        .iter()
        .filter_map(|finding| finding.frames)
        .any(|frames| !frames.are_all_readable);
    if are_unknown || !plan.dropped().is_empty() {
        text.push_str(
            "\nUnknown losses: messages that were sent, and settlements of messages, may be \
             missing without\na trace. Messages with a lost settlement are delivered again.\n",
        );
    }
    text.push('\n');
    text
}

/// Fails if a segment cannot be repaired, with the remaining options.
fn refuse_obstacles(plan: &Plan, path: &Path) -> Result<(), Failure> {
    let obstacles = plan.obstacles();
    if obstacles.is_empty() {
        return Ok(());
    }
    let files: Vec<String> = obstacles.iter().map(|one| format!("`{}`", one.file)).collect();
    let files = files.join(", ");
    if !obstacles.iter().all(|one| one.can_be_dropped) {
        return Err(Failure::Failed(format!(
            "nothing can be repaired without a readable segment: {files}; restore them from a \
             backup"
        )));
    }
    let flags: Vec<String> =
        obstacles.iter().map(|one| format!("--drop-segment {}", one.segment)).collect();
    Err(Failure::Failed(format!(
        "cannot be repaired: {files}; restore these files from a backup if you can. Or continue \
         without them; then every message in them is lost, and messages whose settlement they \
         recorded are delivered again: `peeklock repair --data-dir {} {}`",
        path.display(),
        flags.join(" ")
    )))
}

/// Asks for confirmation, unless `yes` is set.
fn confirm(plan: &Plan, copy: &Path, yes: bool) -> Result<(), Failure> {
    if yes {
        return Ok(());
    }
    if !io::stdin().is_terminal() {
        return Err(Failure::usage(
            "nothing was changed: there is no terminal for the confirmation; add --yes to confirm \
             the repair",
        ));
    }
    let size = plan.copy_bytes().map_err(|error| scrub::failed(&error))?;
    let mut out = io::stderr();
    write!(
        out,
        "A copy of the directory is made first: {}, up to {}.\nRepair? [y/N] ",
        copy.display(),
        scrub::bytes(size)
    )?;
    out.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer)?;
    if matches!(answer.trim(), "y" | "Y" | "yes" | "Yes") {
        return Ok(());
    }
    Err(Failure::Failed("nothing was changed".to_owned()))
}

/// Path of the copy, next to the directory.
fn copy_path(path: &Path) -> PathBuf {
    let now = humantime::format_rfc3339_seconds(SystemTime::now()).to_string();
    let now: String = now.chars().filter(|c| c.is_ascii_alphanumeric()).collect();
    // `data/` and `data` must give the same path.
    let path = path.components().collect::<PathBuf>();
    let mut name = path.into_os_string();
    name.push(format!(".before-repair-{now}"));
    PathBuf::from(name)
}

fn make_copy(plan: &Plan, path: &Path) -> Result<(), Failure> {
    let failed = |reason: String| {
        Failure::Failed(format!(
            "nothing was changed: cannot make a copy at `{}`: {reason}",
            path.display()
        ))
    };
    if path.exists() {
        return Err(failed("the path already exists".to_owned()));
    }
    let copy = OsDisk::open(path).map_err(|error| failed(error.to_string()))?;
    let mut bar = Bar::new();
    let copied = plan.copy_to(&copy, &mut |progress| bar.show(progress));
    bar.end();
    copied.map_err(|error| {
        // A partial copy would only take space.
        let listed = copy.list().unwrap_or_default();
        listed.iter().for_each(|name| copy.remove(name).unwrap_or_default());
        std::fs::remove_dir_all(path).unwrap_or_default();
        failed(scrub::failed(&error).text())
    })
}

/// Verifies the repaired journal.
fn verify_again(path: &Path) -> Result<(), Failure> {
    let disk = scrub::look_at(path)?;
    let mut bar = Bar::new();
    let verified = verify(&disk, &mut |progress| bar.show(progress));
    bar.end();
    if verified.map_err(|error| scrub::failed(&error))?.report().is_sound() {
        return Ok(());
    }
    Err(Failure::Failed(
        "there is still damage: `peeklock verify` shows the damaged places".to_owned(),
    ))
}

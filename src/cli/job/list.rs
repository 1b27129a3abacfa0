//! `peeklock job list`: the jobs of the broker (CON-19).

use peeklock::inspect::{Found, JOB_PAGE_MAX, JobFacts, JobPage, JobQuery, Question};
use peeklock_json::JobView;

use super::super::Failure;
use super::super::connect::{CommandConnection, Output};
use super::super::deed::deed_text;
use super::super::inspect::{ask, print_table};
use super::super::listing::objects;
use super::super::message::{CELL_CHARS_MAX, instant};
use super::super::terminal::{Cell, Table, cut};
use super::{ListFlags, state_text};

/// Lists jobs, newest first.
pub async fn list(flags: &ListFlags, session: &CommandConnection) -> Result<(), Failure> {
    let output = flags.common.output;
    let count = flags.rows.count(output);
    let heads = ["JOB", "CREATED", "ENTITY", "CHANGE", "STATE", "MESSAGES", "DONE", "LEFT"];
    let mut table = Table::new(&heads, 4, session.out.colours);
    let (mut all, mut shown, mut after) = (Vec::new(), 0, None);
    let is_more = loop {
        let rest = u32::try_from(count - shown).unwrap_or(JOB_PAGE_MAX).min(JOB_PAGE_MAX);
        let query = JobQuery::List { after, count_max: rest };
        let page = |found: &Found| match found {
            Found::Jobs(page) => Some(page.clone()),
            _ => None,
        };
        let (JobPage { jobs, next, .. }, _) = ask(session, "", Question::Jobs(query), page).await?;
        shown += jobs.len();
        for job in jobs {
            match output {
                Output::Table => table.row(row(&job)),
                _ => all.push(serde_json::to_string(&JobView::from(job)).unwrap_or_default()),
            }
        }
        after = next;
        if next.is_none() || shown >= count {
            break next.is_some();
        }
    };
    if output != Output::Table {
        return objects(session.out, output, all);
    }
    print_table(session, table, (shown, is_more), "there is no job")
}

fn row(job: &JobFacts) -> Vec<Cell> {
    let text = |text: &str| Cell::Text(cut(text.as_bytes(), CELL_CHARS_MAX).0);
    vec![
        Cell::Text(job.id.to_string()),
        Cell::Text(instant(job.created_at)),
        text(&job.path),
        text(&deed_text(&job.deed)),
        text(&state_text(job)),
        match &job.preview {
            Some(preview) => Cell::Number(preview.count),
            None => Cell::Right("-".to_owned()),
        },
        Cell::Number(job.progress.done),
        Cell::Number(job.progress.failed),
    ]
}

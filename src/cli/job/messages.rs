//! `peeklock job samples` and `job failures`: messages of a job (CON-14, CON-19).

use peeklock::command::ActedMessage;
use peeklock::inspect::{Found, JOB_FAILURE_PAGE_MAX, JobQuery, JobSample, Question};

use super::super::Failure;
use super::super::connect::{CommandConnection, Output};
use super::super::deed::problem;
use super::super::inspect::{ask, print_table};
use super::super::listing::objects;
use super::super::message::{CELL_CHARS_MAX, counted, id, plain};
use super::super::terminal::{Cell, Table, cut, note};
use super::JobFlags;
use crate::config::span_text;

/// Shows the first messages of a job as its deed would store them.
pub async fn samples(flags: &JobFlags, session: &CommandConnection) -> Result<(), Failure> {
    let page = |found: &Found| match found {
        Found::JobSamples(samples) => Some(samples.clone()),
        _ => None,
    };
    let question = Question::Jobs(JobQuery::Samples(flags.job));
    let (samples, findings) = ask(session, "", question, page).await?;
    if flags.common.output != Output::Table {
        let rows = peeklock::websocket::client::findings_to_json(findings);
        return objects(session.out, flags.common.output, rows);
    }
    let heads = ["SEQUENCE", "STAYS", "TTL", "ID", "SUBJECT", "PROPERTIES", "BODY"];
    let mut table = Table::new(&heads, 1, session.out.colours);
    for sample in &samples {
        table.row(row(sample));
    }
    print_table(session, table, (samples.len(), false), "no message of the job is there")
}

fn row(JobSample { head, refused }: &JobSample) -> Vec<Cell> {
    let cell = |bytes: &[u8]| Cell::Text(cut(bytes, CELL_CHARS_MAX).0);
    let number = Cell::Number(head.facts.message.sequence.0);
    let stays = Cell::Text(refused.map(problem).unwrap_or_default().to_owned());
    let Some(content) = &head.content else {
        let unreadable = "the store cannot read it";
        let empty = || Cell::Text(String::new());
        return vec![
            number,
            stays,
            empty(),
            empty(),
            empty(),
            empty(),
            cell(unreadable.as_bytes()),
        ];
    };
    let message = &content.message;
    let ttl = message.time_to_live.filter(|span| !span.is_unlimited()).map(span_text);
    let properties = message.application_properties.iter();
    let properties: Vec<String> =
        properties.map(|(key, value)| format!("{key}={}", plain(value))).collect();
    vec![
        number,
        stays,
        Cell::Text(ttl.unwrap_or_default()),
        cell(id(message).as_bytes()),
        cell(message.subject.as_deref().unwrap_or_default().as_bytes()),
        cell(properties.join(" ").as_bytes()),
        cell(message.body.as_bytes()),
    ]
}

/// Lists the messages that a job has left alone.
pub async fn failures(flags: &JobFlags, session: &CommandConnection) -> Result<(), Failure> {
    let (job, count_max) = (flags.job, JOB_FAILURE_PAGE_MAX);
    let query = JobQuery::Failures { job, skip: 0, count_max };
    let page = |found: &Found| match found {
        Found::JobFailures(page) => Some(page.clone()),
        _ => None,
    };
    let (page, findings) = ask(session, "", Question::Jobs(query), page).await?;
    if flags.common.output != Output::Table {
        let rows = peeklock::websocket::client::findings_to_json(findings);
        return objects(session.out, flags.common.output, rows);
    }
    let mut table = Table::new(&["SEQUENCE", "REASON"], 1, session.out.colours);
    for ActedMessage { sequence, result } in &page.failures {
        table.row(vec![Cell::Number(sequence.0), Cell::Text(problem(*result).to_owned())]);
    }
    let is_more = page.total > page.failures.len() as u64;
    let shown = (page.failures.len(), false);
    print_table(session, table, shown, "no message was left alone")?;
    if is_more {
        note(&format!("{} in all, of which the job keeps these", counted(page.total, "message")));
    }
    Ok(())
}

//! `peeklock search`: messages that meet conditions, in one, several or all entities (CON-05). The
//! broker searches; the command asks for page after page. `dlq groups` shares this loop.

use clap::{Args, ValueEnum};
use indicatif::BinaryBytes;
use peeklock::inspect::{
    Found, HeadState, Hit, HitPlace, Question, SearchPage, SearchProgress, SearchQuery, SearchStep,
};
use peeklock_json::{HeadStateName, SearchForm, SearchPageView, SubQueueName, WhereForm};
use serde_json::Value;

use super::connect::{CommandConnection, Common, Output, Patience};
use super::inspect::{State, ask, print_table, state_name};
use super::message::{CELL_CHARS_MAX, Form, Writer, counted, id, instant};
use super::terminal::{Bar, Cell, Table, WriteOutcome, cut, note};
use super::{Failure, exit};

/// Help text about conditions.
macro_rules! where_help {
    () => {
        "WHERE is one line of conditions, all of which must hold. A word or a \"quoted text\" is text in the body or in \
         any property. FIELD:TEXT contains the text and ignores the case of ASCII letters, FIELD~TEXT does not, \
         FIELD=TEXT is equal; fields are text, body, property, id, correlation, session, subject, reason, description \
         and source. body.$.PATH is a JSON path in the body, also with = != < <= > >= : ~. number, tries, size, \
         enqueued, scheduled and expires compare with = != < <= > >=; after:-2h and before:2026-05-01T12:00:00Z are \
         instants of enqueueing. sql:\"...\" is an SQL filter over the properties. `not` before a condition negates it."
    };
}
pub(super) use where_help;

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock search orders 'body.$.order.id=17'
  peeklock search orders bills 'timeout after:-2h'
  peeklock search 'id=o-17' --sub-queue main,dead-letter      all entities
  peeklock search orders -d 'reason:timeout not subject=test'
  peeklock search orders 'sql:\"price > 5\"' -o ndjson | jq .sequenceNumber

",
    where_help!(),
    "

The search leaves no trace. It ends after 60 s, 2 GiB or 1,000 hits, and then prints the position for --after. Of a \
body it looks at the first 4 MiB.

",
    exit_codes!()
);

#[derive(Args)]
pub struct SearchFlags {
    /// Queues, topics, subscriptions or sub-queues, and at the end the conditions; without an
    /// entity, all are searched
    #[arg(required = true, num_args = 1.., value_names = ["QUEUE", "WHERE"])]
    words: Vec<String>,
    /// Search the dead-letter queues
    #[arg(short, long, conflicts_with = "sub_queue")]
    dead_letter: bool,
    /// Queues of each entity to search [default: main]
    #[arg(long, value_name = "SUB-QUEUE", value_delimiter = ',')]
    sub_queue: Vec<Queue>,
    /// Search only messages in these states
    #[arg(long, value_name = "STATE", value_delimiter = ',')]
    state: Vec<State>,
    /// Begin with the newest messages of each entity
    #[arg(long)]
    descending: bool,
    /// End after this number of hits [default: 1,000]
    #[arg(short = 'n', long, value_name = "N")]
    count: Option<u32>,
    /// Position that an earlier search has printed
    #[arg(long, value_name = "POSITION")]
    after: Option<String>,
    #[command(flatten)]
    common: Common,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Queue {
    /// The entity itself
    Main,
    /// Its dead-letter queue
    DeadLetter,
    /// Its transfer dead-letter queue
    TransferDeadLetter,
}

pub fn run(flags: &SearchFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| search(flags, session).await)
}

fn form(flags: &SearchFlags) -> SearchForm {
    let (line, entities) =
        flags.words.split_last().map_or(("", &[][..]), |(line, rest)| (line, rest));
    let queues = flags.sub_queue.iter().map(|queue| match queue {
        Queue::Main => SubQueueName::Main,
        Queue::DeadLetter => SubQueueName::DeadLetter,
        Queue::TransferDeadLetter => SubQueueName::TransferDeadLetter,
    });
    let dead_letter = flags.dead_letter.then_some(SubQueueName::DeadLetter);
    SearchForm {
        entities: entities.to_vec(),
        sub_queues: dead_letter.into_iter().chain(queues).collect(),
        states: flags
            .state
            .iter()
            .map(|state| HeadStateName::from(HeadState::from(*state)))
            .collect(),
        descending: flags.descending,
        conditions: WhereForm::Line(line.to_owned()),
        hits: flags.count,
        group_by: None,
        after: flags.after.clone(),
    }
}

/// Checks a search before it begins.
pub fn query(session: &CommandConnection, form: &SearchForm) -> Result<SearchQuery, Failure> {
    form.to_query(session.client.now())
        .map_err(|rejection| Failure::usage(rejection.detail().to_owned()))
}

/// Reads a search to its end. `each` gets its pages with their JSON, and returns whether the output
/// still has a reader. Progress is shown on standard error.
pub async fn read(
    session: &CommandConnection,
    query: SearchQuery,
    mut each: impl FnMut(SearchPage, Value) -> Result<WriteOutcome, Failure>,
) -> Result<(), Failure> {
    let bar = Bar::new("searching", None);
    let (mut step, mut looked) = (SearchStep::Begin(Box::new(query)), 0);
    loop {
        let page = |found: &Found| match found {
            Found::Search(page) => Some(page.clone()),
            _ => None,
        };
        let asked = ask(session, "", Question::Search(step), page);
        let (page, findings) = tokio::select! {
            biased;
            () = session.interrupt.hit() => return Err(Failure::Reported(exit::INTERRUPTED)),
            answer = asked => answer?,
        };
        bar.advance(page.progress.messages - looked);
        looked = page.progress.messages;
        let view = SearchPageView::new(page.clone(), findings.at);
        let view = serde_json::to_value(view).unwrap_or_default();
        let is_last = page.end.is_some();
        step = SearchStep::Continue(page.search);
        if each(page, view)? == WriteOutcome::OutputClosed || is_last {
            return Ok(());
        }
    }
}

/// Prints how far a search came, and how to go on.
pub fn note_end(progress: &SearchProgress, end: &Value) {
    let SearchProgress { messages, bytes, undecided, unreadable, rest, .. } = *progress;
    let mut text = format!("looked at {}, {}", counted(messages, "message"), BinaryBytes(bytes));
    if undecided > 0 {
        text.push_str(&format!("; {undecided} undecided, since their bodies are too long"));
    }
    if unreadable > 0 {
        text.push_str(&format!("; {unreadable} unreadable"));
    }
    note(&text);
    if let (Some(bound), Some(next)) = (end["bound"].as_str(), end["next"].as_str()) {
        note(&format!(
            "the search has met its bound of {bound}, about {} are left; `--after {next}` goes on",
            counted(rest, "message")
        ));
    }
}

async fn search(flags: &SearchFlags, session: &CommandConnection) -> Result<(), Failure> {
    let query = query(session, &form(flags))?;
    let heads = ["ENTITY", "SEQUENCE", "STATE", "ENQUEUED", "TRIES", "ID", "MATCH"];
    let mut table = Table::new(&heads, 6, session.out.colours);
    let mut writer = match flags.common.output {
        Output::Table => None,
        Output::Json => Some(Writer::new(session.out, Form::Json)),
        Output::Ndjson => Some(Writer::new(session.out, Form::Ndjson)),
    };
    let (mut shown, mut last) = (0, None);
    let reading = read(session, query, |page, view| {
        shown += page.hits.len();
        match &mut writer {
            None => page.hits.iter().for_each(|hit| table.row(row(hit))),
            Some(writer) => {
                for hit in view["hits"].as_array().into_iter().flatten() {
                    if writer.object(&hit.to_string())? == WriteOutcome::OutputClosed {
                        return Ok(WriteOutcome::OutputClosed);
                    }
                }
            }
        }
        if page.end.is_some() {
            last = Some((page.progress, view["end"].clone()));
        }
        Ok(WriteOutcome::Done)
    });
    reading.await?;
    let Some((progress, end)) = last else { return Ok(()) };
    match writer {
        Some(writer) => writer.end()?,
        None if shown > 0 => print_table(session, table, (shown, false), "")?,
        None => {}
    }
    note_end(&progress, &end);
    if shown == 0 {
        note("no message meets the conditions");
        // A path alone is read as conditions.
        if let [word] = flags.words.as_slice()
            && !word.contains(|c: char| c.is_whitespace() || ":~=<>\"".contains(c))
        {
            note(&format!(
                "`{word}` was searched as a text in all entities; `peeklock search {word} ''` lists the messages of \
                 an entity, `peeklock search {word} TEXT` searches it"
            ));
        }
        return Err(Failure::Reported(exit::NOTHING));
    }
    Ok(())
}

fn row(hit: &Hit) -> Vec<Cell> {
    let facts = &hit.head.facts;
    let text = |text: &str| Cell::Text(cut(text.as_bytes(), CELL_CHARS_MAX).0);
    let message = hit.head.content.as_ref().map(|content| &content.message);
    let place = match &hit.place {
        None => String::new(),
        Some(HitPlace::Body { excerpt, .. }) => excerpt.clone(),
        Some(HitPlace::Property { name, excerpt }) => format!("{name}: {excerpt}"),
    };
    vec![
        text(&hit.path),
        Cell::Number(facts.message.sequence.0),
        Cell::Text(state_name(facts.state).to_owned()),
        Cell::Text(instant(facts.message.enqueued_at)),
        Cell::Number(facts.message.delivery_count.into()),
        text(&message.map(id).unwrap_or_else(|| "(unreadable)".to_owned())),
        text(&place),
    ]
}

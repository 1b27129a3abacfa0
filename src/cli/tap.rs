//! `peeklock tap`: messages as an entity accepts them. It takes none (CON-34).

use clap::Args;
use peeklock::inspect::{Found, Head, Question, TapId, TapPage};
use peeklock::websocket::client::findings_to_json;

use super::connect::{CommandConnection, Common, Output, Patience};
use super::inspect::ask;
use super::message::{CELL_CHARS_MAX, Form, Writer, counted, id, instant};
use super::terminal::{WriteOutcome, cut, note};
use super::{Failure, exit};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock tap orders                              until Ctrl-C
  peeklock tap orders -n 10
  peeklock tap events                              messages that clients publish to a topic
  peeklock tap orders -o ndjson | jq .subject

You see messages that the entity accepts while the command runs, also ones that a consumer takes \
at once: at most 50 in a second. The command counts the others as not shown. Bodies are cut after \
256 bytes. The command takes no message and does not count as a use of the entity.

",
    exit_codes!()
);

#[derive(Args)]
pub struct TapFlags {
    /// Queue, such as `orders`, topic or subscription
    entity: String,
    /// End after this number of messages
    #[arg(short = 'n', long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..))]
    count: Option<u64>,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &TapFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Endless, async |session| {
        tokio::select! {
            result = tap(flags, session) => result,
            () = session.report_connection() => Ok(()),
        }
    })
}

async fn tap(flags: &TapFlags, session: &CommandConnection) -> Result<(), Failure> {
    let mut writer = match flags.common.output {
        Output::Table => None,
        Output::Json => Some(Writer::new(session.out, Form::Json)),
        Output::Ndjson => Some(Writer::new(session.out, Form::Ndjson)),
    };
    let count = flags.count.unwrap_or(u64::MAX);
    let (mut tap, mut shown) = (None, 0);
    while shown < count {
        let page = |found: &Found| match found {
            Found::Tap(TapPage { tap, heads, omitted }) => Some((*tap, heads.clone(), *omitted)),
            _ => None,
        };
        let asked = ask(session, &flags.entity, Question::Tap { tap: tap.map(TapId) }, page);
        let answer = tokio::select! {
            biased;
            () = session.interrupt.hit() => break,
            answer = asked => answer,
        };
        let ((TapId(open), heads, omitted), findings) = match answer {
            // The connection is restored, and the broker opens another tap.
            Err(Failure::Ended { code: exit::NO_CONNECTION, .. }) => continue,
            answer => answer?,
        };
        match tap {
            None => note(&format!("the tap on `{}` is open", flags.entity)),
            Some(before) if before != open => {
                note("the tap was opened again; messages in between are not shown");
            }
            Some(_) => {}
        }
        tap = Some(open);
        let texts = findings_to_json(findings);
        for (head, text) in heads.iter().zip(texts) {
            if shown == count {
                break;
            }
            shown += 1;
            let written = match &mut writer {
                Some(writer) => writer.object(&text)?,
                None => session.out.write(line(head))?,
            };
            if written == WriteOutcome::OutputClosed {
                return Ok(());
            }
        }
        if omitted > 0 {
            note(&format!("{} not shown", counted(omitted, "message")));
        }
    }
    writer.map_or(Ok(()), Writer::end)
}

/// Text of a message: when, number, id, subject, and the start of the body.
fn line(head: &Head) -> String {
    let facts = &head.facts.message;
    let mut cells = vec![instant(facts.enqueued_at), facts.sequence.to_string()];
    match &head.content {
        Some(content) => {
            let cell = |text: &[u8]| cut(text, CELL_CHARS_MAX).0;
            let message = &content.message;
            let subject = message.subject.as_deref().unwrap_or("-");
            cells.push(cell(id(message).as_bytes()));
            cells.push(cell(subject.as_bytes()));
            cells.push(cell(message.body.as_bytes()));
        }
        None => cells.push("(unreadable)".to_owned()),
    }
    format!("{}\n", cells.join("  "))
}

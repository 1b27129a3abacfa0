//! `peeklock session list`: lists session ids, page by page (SES-29).

use clap::Args;
use peeklock::command::SessionFilter;

use super::super::arguments::{When, queue_of, when};
use super::super::connect::{Common, Output, Patience};
use super::super::message::{Form, Writer};
use super::super::terminal::{Wrote, line, note};
use super::super::{Failure, exit};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock session list steps
  peeklock session list steps --active               only sessions with active messages
  peeklock session list steps --state-set-after 2026-05-01T12:00:00Z
  peeklock session list steps -o ndjson | jq -r .sessionId

",
    exit_codes!()
);

/// Ids per request.
const PAGE: u32 = 1_000;
/// Maximum length of a list, for a broker that never returns an empty page.
const SESSIONS_MAX: u64 = 100_000_000;

#[derive(Args)]
pub struct ListFlags {
    /// Queue, such as `steps`
    #[arg(value_parser = queue_of)]
    queue: String,
    /// List only sessions with active messages
    #[arg(long)]
    active: bool,
    /// List only sessions whose state was set after this instant, such as 2026-05-01T12:00:00Z
    #[arg(long, value_name = "WHEN", value_parser = when, conflicts_with = "active")]
    state_set_after: Option<When>,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &ListFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let client = &session.client;
        let which = match (flags.active, flags.state_set_after) {
            (true, _) => SessionFilter::WithActiveMessages,
            (false, Some(when)) => SessionFilter::StateSetAfter(when.from(client.now())),
            (false, None) => SessionFilter::All,
        };
        let mut writer = match flags.common.output {
            Output::Table => None,
            Output::Json => Some(Writer::new(session.out, Form::Json)),
            Output::Ndjson => Some(Writer::new(session.out, Form::Ndjson)),
        };
        let mut count = 0;
        while count < SESSIONS_MAX {
            let ids = client.sessions(&flags.queue, which, count, PAGE).await?;
            if ids.is_empty() {
                break;
            }
            count += ids.len() as u64;
            match &mut writer {
                Some(writer) => {
                    for id in &ids {
                        let object = serde_json::json!({ "sessionId": &**id });
                        if writer.object(&object.to_string())? == Wrote::Gone {
                            return Ok(());
                        }
                    }
                }
                None => {
                    let lines: String = ids.iter().map(|id| format!("{}\n", line(id))).collect();
                    session.out.say(&lines)?;
                }
            }
            if session.interrupt.is_set() {
                return Err(Failure::Told(exit::INTERRUPTED));
            }
        }
        if count == 0 {
            note(&format!("`{}` has no such session", flags.queue));
        }
        writer.map_or(Ok(()), Writer::end)
    })
}

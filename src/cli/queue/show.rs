//! `peeklock queue show`

use clap::Args;
use indicatif::BinaryBytes;
use peeklock::command::{Described, SessionCounts};
use peeklock::time::{TimeSpan, Timestamp};
use peeklock::websocket::client::queue_to_json;

use super::super::Failure;
use super::super::arguments::queue_of;
use super::super::connect::{Common, Output, Patience};
use super::super::retry::policy_text;
use super::super::terminal::{Out, object, sheet};
use crate::config::span_text;

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock queue show orders
  peeklock queue show orders -o json | jq .runtime.activeMessageCount

",
    exit_codes!()
);

#[derive(Args)]
pub struct ShowFlags {
    /// Queue, such as `orders`
    #[arg(value_parser = queue_of)]
    queue: String,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &ShowFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let described = session.client.admin().queue(&flags.queue).await?;
        session.out.say(&form(&described, flags.common.output, &session.out))
    })
}

/// A queue in one of the forms.
pub fn form(described: &Described, output: Output, out: &Out) -> String {
    match output {
        Output::Table => sheet(&rows(described), out),
        output => object(&queue_to_json(described), output),
    }
}

fn rows(described: &Described) -> Vec<(&'static str, String)> {
    let Described { description, counts, .. } = described;
    let span = |span: TimeSpan| span_text(span);
    let text = |text: &Option<Box<str>>| text.as_deref().unwrap_or("-").to_owned();
    let at = |at: Timestamp| {
        if at == Timestamp::NONE { "never".to_owned() } else { at.to_string() }
    };
    let mut rows = vec![
        ("queue", description.path.to_string()),
        ("status", description.status.name().to_owned()),
        ("active messages", counts.active.to_string()),
        ("delayed for a retry", counts.delayed.to_string()),
        ("dead-lettered", counts.dead_letter.to_string()),
        ("scheduled", counts.scheduled.to_string()),
        ("deferred", counts.deferred.to_string()),
        ("waiting for transfer", counts.transfer.to_string()),
        ("transfer dead-lettered", counts.transfer_dead_letter.to_string()),
        ("size", BinaryBytes(described.size_bytes).to_string()),
        ("last sequence number", described.last_sequence.to_string()),
        ("lock duration", span(description.lock_duration)),
        ("max delivery count", description.max_delivery_count.to_string()),
        ("retries", policy_text(description.retry_policy.as_ref())),
        ("session retry order", description.session_retry_order.name().to_owned()),
        ("default time to live", span(description.default_message_time_to_live)),
        ("dead-letters expired", description.dead_lettering_on_message_expiration.to_string()),
        ("max size", format!("{} MiB", description.max_size_in_megabytes)),
        ("max message size", format!("{} KiB", description.max_message_size_in_kilobytes)),
        ("duplicate detection", description.requires_duplicate_detection.to_string()),
        ("duplicate window", span(description.duplicate_detection_history_time_window)),
        ("auto-delete on idle", span(description.auto_delete_on_idle)),
        ("requires sessions", description.requires_session.to_string()),
        ("forwards to", text(&description.forward_to)),
        ("dead letters forward to", text(&description.forward_dead_lettered_messages_to)),
        ("batched operations", description.enable_batched_operations.to_string()),
        ("partitioning", description.enable_partitioning.to_string()),
        ("express", description.enable_express.to_string()),
        ("user metadata", text(&description.user_metadata)),
        ("created", at(described.created_at)),
        ("updated", at(described.updated_at)),
        ("last used", at(described.accessed_at)),
    ];
    if let Some(sessions) = described.sessions {
        let SessionCounts { existing, locked } = sessions;
        rows.insert(7, ("sessions there", format!("{existing}, {locked} locked")));
    }
    rows
}

//! `peeklock subscription show`

use clap::Args;
use indicatif::BinaryBytes;
use peeklock::command::DescribedSubscription;
use peeklock::time::Timestamp;
use peeklock::websocket::client::subscription_to_json;

use super::super::Failure;
use super::super::arguments::SubscriptionName;
use super::super::connect::{Common, Output, Patience};
use super::super::retry::policy_text;
use super::super::rule;
use super::super::terminal::{object, sheet};
use crate::config::span_text;

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock subscription show orders eu
  peeklock subscription show orders eu -o json | jq .runtime.activeMessageCount

",
    exit_codes!()
);

#[derive(Args)]
pub struct ShowFlags {
    #[command(flatten)]
    of: SubscriptionName,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &ShowFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let path = flags.of.path();
        let described = session.client.admin().subscription(&path).await?;
        if flags.common.output != Output::Table {
            return session
                .out
                .say(&object(&subscription_to_json(&described), flags.common.output));
        }
        session.out.say(&sheet(&rows(&described), &session.out))?;
        let rules = rule::table(&rule::all(&session.client, &path).await?, &session.out);
        session.out.say(&format!("\n{rules}"))
    })
}

fn rows(described: &DescribedSubscription) -> Vec<(&'static str, String)> {
    let DescribedSubscription { description, counts, sessions, .. } = described;
    let text = |text: &Option<Box<str>>| text.as_deref().unwrap_or("-").to_owned();
    let at = |at: Timestamp| {
        if at == Timestamp::NONE { "never".to_owned() } else { at.to_string() }
    };
    let failing = description.enable_dead_lettering_on_filter_evaluation_exceptions;
    let mut rows = vec![
        ("subscription", description.name.to_string()),
        ("topic", description.topic.to_string()),
        ("received from", description.path()),
        ("status", description.status.name().to_owned()),
        ("active messages", counts.active.to_string()),
        ("delayed for a retry", counts.delayed.to_string()),
        ("dead-lettered", counts.dead_letter.to_string()),
        ("deferred", counts.deferred.to_string()),
        ("waiting for transfer", counts.transfer.to_string()),
        ("transfer dead-lettered", counts.transfer_dead_letter.to_string()),
        ("size", BinaryBytes(described.size_bytes).to_string()),
        ("last sequence number", described.last_sequence.to_string()),
        ("lock duration", span_text(description.lock_duration)),
        ("max delivery count", description.max_delivery_count.to_string()),
        ("retries", policy_text(description.retry_policy.as_ref())),
        ("session retry order", description.session_retry_order.name().to_owned()),
        ("default time to live", span_text(description.default_message_time_to_live)),
        ("dead-letters expired", description.dead_lettering_on_message_expiration.to_string()),
        ("dead-letters rule failures", failing.to_string()),
        ("auto-delete on idle", span_text(description.auto_delete_on_idle)),
        ("sessions", description.requires_session.to_string()),
        ("catch-all", description.catch_all.to_string()),
    ];
    if let Some(sessions) = sessions {
        rows.push(("sessions there", sessions.existing.to_string()));
        rows.push(("sessions held", sessions.locked.to_string()));
    }
    rows.extend([
        ("forwards to", text(&description.forward_to)),
        ("dead letters forward to", text(&description.forward_dead_lettered_messages_to)),
        ("batched operations", description.enable_batched_operations.to_string()),
        ("user metadata", text(&description.user_metadata)),
        ("created", at(described.created_at)),
        ("updated", at(described.updated_at)),
        ("last used", at(described.accessed_at)),
    ]);
    rows
}

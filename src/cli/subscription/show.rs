//! `peeklock subscription show`: shows properties, message counts and rules of a subscription.
//! `subscription.rs` dispatches to it.

use clap::Args;
use indicatif::BinaryBytes;
use peeklock::command::DescribedSubscription;
use peeklock::time::Timestamp;
use peeklock::websocket::client::subscription_to_json;

use super::super::Failure;
use super::super::arguments::SubscriptionName;
use super::super::connect::{Common, Output, Patience};
use super::super::properties;
use super::super::rule;
use super::super::terminal::{object, sheet};

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
                .print(&object(&subscription_to_json(&described), flags.common.output));
        }
        session.out.print(&sheet(&rows(&described), &session.out))?;
        let rules = rule::table(&rule::all(&session.client, &path).await?, &session.out);
        session.out.print(&format!("\n{rules}"))
    })
}

fn rows(described: &DescribedSubscription) -> Vec<(&'static str, String)> {
    let DescribedSubscription { description, counts, sessions, .. } = described;
    let at = |at: Timestamp| {
        if at == Timestamp::NONE { "never".to_owned() } else { at.to_string() }
    };
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
    ];
    let mut properties = properties::rows(description);
    if let Some(sessions) = sessions {
        let place = properties.iter().position(|(label, _)| *label == "forwards to");
        let counts = [("sessions there", sessions.existing), ("sessions held", sessions.locked)];
        let at = place.unwrap_or(properties.len());
        properties.splice(at..at, counts.map(|(label, count)| (label, count.to_string())));
    }
    rows.append(&mut properties);
    rows.extend([
        ("created", at(described.created_at)),
        ("updated", at(described.updated_at)),
        ("last used", at(described.accessed_at)),
    ]);
    rows
}

//! `peeklock subscription update`: changes properties of a subscription.

use clap::Args;
use peeklock::description::{SubscriptionDescription, SubscriptionUpdate};
use peeklock::websocket::client::subscription_to_json;

use super::super::Failure;
use super::super::arguments::SubscriptionName;
use super::super::connect::{Common, Output, Patience};
use super::super::properties::{Properties, clearable, cleared};
use super::super::terminal::{line, object};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock subscription update orders eu --max-delivery-count 5
  peeklock subscription update orders eu --status ReceiveDisabled
  peeklock subscription update orders eu --clear forward-to

To change the messages that a subscription gets, use `peeklock rule`.

",
    exit_codes!()
);

#[derive(Args)]
pub struct UpdateFlags {
    #[command(flatten)]
    of: SubscriptionName,
    /// Reset a property to no value, such as forward-to; may be repeated
    #[arg(long, value_name = "PROPERTY", value_parser = clearable::<SubscriptionDescription>())]
    clear: Vec<String>,
    #[command(flatten)]
    properties: Properties<SubscriptionDescription>,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &UpdateFlags) -> Result<(), Failure> {
    let update = flags.properties.update();
    if update == SubscriptionUpdate::default() && flags.clear.is_empty() {
        return Err(Failure::usage(
            "nothing to change: give at least one property, such as --max-delivery-count 5; change \
             filters with `peeklock rule`",
        ));
    }
    let cleared = cleared::<SubscriptionDescription>(&flags.clear);
    flags.common.run(Patience::Limited, async |session| {
        let admin = session.client.admin();
        let described = admin.change_subscription(&flags.of.path(), update, cleared).await?;
        if flags.common.output == Output::Table {
            let path = described.description.path();
            return session.out.print(&format!("subscription `{}` updated\n", line(&path)));
        }
        session.out.print(&object(&subscription_to_json(&described), flags.common.output))
    })
}

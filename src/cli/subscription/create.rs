//! `peeklock subscription create`: creates a subscription, with its first rule if one is given.
//! `subscription.rs` dispatches to it.

use clap::Args;
use peeklock::condition::Condition;
use peeklock::declaration::{DeclaredSubscription, DeclaredTopic};
use peeklock::description::SubscriptionDescription;
use peeklock::websocket::client::subscription_to_json;

use super::super::arguments::SubscriptionName;
use super::super::connect::{Common, Output, Patience};
use super::super::creation::print_differences;
use super::super::properties::Properties;
use super::super::rule::FilterFlags;
use super::super::terminal::{line, object};
use super::super::{Failure, exit};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock subscription create orders audit                   gets every message
  peeklock subscription create orders eu --sql \"region = 'eu' AND price > 100\"
  peeklock subscription create orders coffee --correlation sys.Label=coffee --rule-name coffee
  peeklock subscription create orders archive --forward-to archive
  peeklock subscription create orders eu --if-not-exists      in scripts that run again

The filter becomes the only rule of the subscription. Its name is `$Default`, or the value of \
--rule-name. `peeklock rule test --sql ...` tests a filter beforehand.

",
    exit_codes!()
);

#[derive(Args)]
pub struct CreateFlags {
    #[command(flatten)]
    of: SubscriptionName,
    /// Succeed if the subscription already exists; print the properties that differ
    #[arg(long)]
    if_not_exists: bool,
    /// Name of its first rule, such as `coffee` [default: $Default]
    #[arg(long, value_name = "NAME")]
    rule_name: Option<String>,
    #[command(flatten)]
    filter: FilterFlags,
    #[command(flatten)]
    properties: Properties<SubscriptionDescription>,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &CreateFlags) -> Result<(), Failure> {
    let rules = flags.filter.first_rule(flags.rule_name.as_deref());
    flags.common.run(Patience::Limited, async |session| {
        let admin = session.client.admin();
        let (topic, name) = (&flags.of.topic, &flags.of.subscription);
        let properties = flags.properties.update();
        let mut named = DeclaredSubscription::new(&**name).with(properties.clone());
        named.rules = rules.clone().map(|rule| vec![rule]);
        let rules = rules.into_iter().collect();
        let created = admin.create_subscription_with(topic, name, properties, rules).await;
        let (described, said) = match created {
            Ok(described) => (described, "created"),
            Err(error)
                if flags.if_not_exists && error.condition() == Condition::EntityAlreadyExists =>
            {
                let described = admin.subscription(&flags.of.path()).await?;
                let named = DeclaredTopic::new(&**topic).with_subscription(named);
                let change = format!(
                    "change it with `peeklock subscription update {topic} {name}` and `peeklock \
                     rule`"
                );
                print_differences(session, named, &change).await;
                (described, "already exists")
            }
            Err(error) if error.condition() == Condition::EntityAlreadyExists => {
                let failure = Failure::from(error);
                return Err(failure.hint(&format!(
                    "change it with `peeklock subscription update {topic} {name}` and `peeklock \
                     rule`, or add --if-not-exists to accept it as it is"
                )));
            }
            Err(error)
                if error.condition() == Condition::EntityNotFound
                    && !error.detail().contains("not a topic") =>
            {
                let text = format!("there is no topic `{}`", line(topic));
                let failure = Failure::ended(exit::NOT_FOUND, text);
                return Err(
                    failure.hint(&format!("create it with `peeklock topic create {topic}`"))
                );
            }
            Err(error) => return Err(error.into()),
        };
        if flags.common.output == Output::Table {
            let path = described.description.path();
            return session.out.print(&format!("subscription `{}` {said}\n", line(&path)));
        }
        session.out.print(&object(&subscription_to_json(&described), flags.common.output))
    })
}

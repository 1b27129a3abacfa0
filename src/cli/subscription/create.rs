//! `peeklock subscription create`

use clap::Args;
use peeklock::condition::Condition;
use peeklock::declaration::{DeclaredSubscription, DeclaredTopic};

use super::super::arguments::SubscriptionName;
use super::super::connect::{Common, Output, Patience};
use super::super::differing;
use super::super::rule::FilterFlags;
use super::super::terminal::{line, object};
use super::super::{Failure, exit};
use super::properties::Properties;
use peeklock::websocket::client::subscription_to_json;

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock subscription create orders audit                   gets every message
  peeklock subscription create orders eu --sql \"region = 'eu' AND price > 100\"
  peeklock subscription create orders coffee --correlation sys.Label=coffee --rule-name coffee
  peeklock subscription create orders archive --forward-to archive
  peeklock subscription create orders eu --if-not-exists      in scripts that run again

The filter becomes the one rule of the subscription, `$Default` unless --rule-name says otherwise. \
`peeklock rule test --sql ...` tries a filter beforehand.

",
    exit_codes!()
);

#[derive(Args)]
pub struct CreateFlags {
    #[command(flatten)]
    of: SubscriptionName,
    /// Be content with a subscription that is there, whatever is set on it; how it differs is told
    #[arg(long)]
    if_not_exists: bool,
    /// Name of its first rule [default: $Default]
    #[arg(long, value_name = "NAME")]
    rule_name: Option<String>,
    #[command(flatten)]
    filter: FilterFlags,
    #[command(flatten)]
    properties: Properties,
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
                    "`peeklock subscription update {topic} {name}` and `peeklock rule` change it"
                );
                differing::tell(session, named, &change).await;
                (described, "is there already")
            }
            Err(error) if error.condition() == Condition::EntityAlreadyExists => {
                let failure = Failure::from(error);
                return Err(failure.hint(&format!(
                    "`peeklock subscription update {topic} {name}` and `peeklock rule` change it, \
                     --if-not-exists is content with it"
                )));
            }
            Err(error)
                if error.condition() == Condition::EntityNotFound
                    && !error.detail().contains("not a topic") =>
            {
                let text = format!("there is no topic `{}`", line(topic));
                let failure = Failure::ended(exit::NOT_FOUND, text);
                return Err(failure.hint(&format!("`peeklock topic create {topic}` makes it")));
            }
            Err(error) => return Err(error.into()),
        };
        if flags.common.output == Output::Table {
            let path = described.description.path();
            return session.out.say(&format!("subscription `{}` {said}\n", line(&path)));
        }
        session.out.say(&object(&subscription_to_json(&described), flags.common.output))
    })
}

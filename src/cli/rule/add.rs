//! `peeklock rule add`: adds a rule to a subscription. `rule.rs` dispatches to it; with
//! `--if-not-exists` an existing rule is left as it is.

use clap::Args;
use peeklock::condition::Condition;
use peeklock::websocket::client::rule_to_json;

use super::super::Failure;
use super::super::arguments::SubscriptionName;
use super::super::connect::{Common, Output, Patience};
use super::super::terminal::{line, note, object};
use super::filter::FilterFlags;

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock rule add orders eu dear --sql 'price > @limit' --parameter @limit:i32=100
  peeklock rule add orders eu coffee --correlation sys.Label=coffee --correlation region=eu
  peeklock rule add orders eu marked --sql 'price > 100' --action \"SET priority = 'high'\"

The rule applies to messages that are sent from now on. A rule adds messages and never removes \
any: as long as the subscription has the rule `$Default` with its filter that selects every message, \
the subscription gets every message. To get only the messages that your rules select, delete it \
with `peeklock rule delete orders eu '$Default'`.

",
    exit_codes!()
);

#[derive(Args)]
pub struct AddFlags {
    #[command(flatten)]
    of: SubscriptionName,
    /// Name of the rule, such as `dear`
    rule: String,
    /// Succeed if a rule of that name exists; report whether it differs
    #[arg(long)]
    if_not_exists: bool,
    #[command(flatten)]
    filter: FilterFlags,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &AddFlags) -> Result<(), Failure> {
    if !flags.filter.is_given() {
        return Err(Failure::usage(
            "no filter is given; give --sql, --correlation, --all or --none",
        ));
    }
    let rule = flags.filter.rule(&flags.rule);
    flags.common.run(Patience::Limited, async |session| {
        let admin = session.client.admin();
        let path = flags.of.path();
        let named = rule.clone();
        let (rule, said) = match admin.create_rule(&path, rule).await {
            Ok(rule) => (rule, "added"),
            Err(error)
                if flags.if_not_exists && error.condition() == Condition::EntityAlreadyExists =>
            {
                let found = admin.rule(&path, &flags.rule).await?;
                for (part, differs) in [
                    ("filter", found.filter != named.filter),
                    ("action", found.action != named.action),
                ] {
                    if differs {
                        note(&format!(
                            "left unchanged, although its {part} differs; `peeklock rule update` \
                             changes it"
                        ));
                    }
                }
                (found, "already exists")
            }
            Err(error) => return Err(session.subscription_failure(&flags.of, error).await),
        };
        if flags.common.output == Output::Table {
            return session.out.print(&format!("rule `{}` {said}\n", line(&rule.name)));
        }
        session.out.print(&object(&rule_to_json(&rule), flags.common.output))
    })
}

//! `peeklock policy create`: creates a policy with the given rights and prints its description.
//! `policy.rs` dispatches to it; the broker generates the keys, which other commands print.

use clap::Args;
use peeklock::condition::Condition;
use peeklock::policies::PolicyUpdate;
use peeklock::websocket::client::policy_to_json;

use super::super::Failure;
use super::super::connect::{Common, Output, Patience};
use super::super::terminal::{line, object};
use super::{Named, RightFlag};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock policy create shop --entity orders --right send
  peeklock policy create worker --entity orders --right send --right listen
  peeklock policy create admin --right manage                  for all entities

The broker makes the keys; `peeklock policy keys` and `peeklock connection-string` print them.

Creating a policy ends anonymous access to the whole broker, permanently: from then on every \
client needs a token. Deleting the policy does not bring anonymous access back. Your own commands \
take the key of the root policy with --data-dir.

",
    exit_codes!()
);

#[derive(Args)]
pub struct CreateFlags {
    #[command(flatten)]
    named: Named,
    /// Right that the policy grants; may be repeated
    #[arg(long = "right", value_name = "RIGHT", required = true)]
    rights: Vec<RightFlag>,
    #[command(flatten)]
    common: Common,
}

pub fn run(flags: &CreateFlags) -> Result<(), Failure> {
    flags.common.run(Patience::Limited, async |session| {
        let Named { name, owner } = &flags.named;
        let properties = PolicyUpdate::of(RightFlag::rights(&flags.rights));
        let admin = session.client.admin();
        let policy =
            admin.create_policy(owner.path(), name, properties).await.map_err(|error| {
                let exists = error.condition() == Condition::EntityAlreadyExists;
                let failure = Failure::from(error);
                if exists {
                    return failure.hint(
                        "choose another name, or delete the existing policy first with `peeklock \
                         policy delete`",
                    );
                }
                failure
            })?;
        session.note_end_of_anonymous_access();
        if flags.common.output == Output::Table {
            let text = format!("policy `{}` of {} created\n", line(&policy.name), owner.shown());
            return session.out.print(&text);
        }
        session.out.print(&object(&policy_to_json(&policy), flags.common.output))
    })
}

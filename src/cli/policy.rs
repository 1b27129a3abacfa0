//! `peeklock policy`: manages policies, which grant rights by name and key. `cli.rs` dispatches to
//! it.

mod create;
mod delete;
mod keys;
mod list;
mod regenerate;
mod show;

use clap::{Args, Subcommand, ValueEnum};
use peeklock::contract::{Right, Rights};
use peeklock::policies::{PolicyDescription, PolicyKeys, WhichKey};
use peeklock::websocket::client::policy_keys_to_json;

use super::Failure;
use super::connect::{CommandConnection, Common, Output};
use super::terminal::{object, sheet};

pub const HELP: &str = "\
Examples:
  peeklock policy create shop --entity orders --right send
  peeklock connection-string --entity orders --policy shop    print the string for the shop
  peeklock policy list --entity orders
  peeklock policy regenerate shop --entity orders --key primary
  peeklock policy delete shop --entity orders
  peeklock policy list --data-dir /var/lib/peeklock           use the first key of a broker on this machine

A policy has a name, rights and two keys. A client that signs with one of its keys has these \
rights on the queue or topic of the policy, or on everything without --entity. Creating a policy \
ends anonymous access permanently: from then on every client needs a token. The first key is the \
key of the root policy, RootManageSharedAccessKey. It is in the data directory of the broker; \
--data-dir reads it.

`peeklock policy COMMAND --help` has all flags.";

#[derive(Subcommand)]
pub enum PolicyCommand {
    /// Create a policy; the broker generates its keys
    #[command(after_help = create::HELP)]
    Create(create::CreateFlags),
    /// List the policies, without their keys
    #[command(after_help = list::HELP, visible_alias = "ls")]
    List(list::ListFlags),
    /// Show a policy, without its keys
    #[command(after_help = show::HELP)]
    Show(show::ShowFlags),
    /// Show the keys of a policy
    #[command(after_help = keys::HELP)]
    Keys(keys::KeysFlags),
    /// Replace a key; access granted with the old key ends
    #[command(after_help = regenerate::HELP)]
    Regenerate(regenerate::RegenerateFlags),
    /// Delete a policy; access granted with its keys ends. Asks first
    #[command(after_help = delete::HELP)]
    Delete(delete::DeleteFlags),
}

/// A policy of an entity.
#[derive(Args)]
pub struct Named {
    /// Name of the policy
    #[arg(value_name = "POLICY")]
    pub name: String,
    #[command(flatten)]
    pub owner: Owner,
}

/// Whose policies.
#[derive(Args)]
pub struct Owner {
    /// Queue or topic that the policy belongs to [default: the namespace]
    #[arg(long, value_name = "PATH")]
    entity: Option<String>,
}

impl Owner {
    /// The path of the entity; empty for the namespace.
    pub fn path(&self) -> &str {
        self.entity.as_deref().unwrap_or_default()
    }

    /// The name of the owner in output.
    pub fn shown(&self) -> String {
        match &self.entity {
            Some(path) => format!("`{}`", super::terminal::line(path)),
            None => "the namespace".to_owned(),
        }
    }
}

/// A right as it is written on the command line.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum RightFlag {
    /// Send messages
    Send,
    /// Receive and peek messages
    Listen,
    /// Do everything; includes the other two
    Manage,
}

impl RightFlag {
    const fn right(self) -> Right {
        match self {
            Self::Send => Right::Send,
            Self::Listen => Right::Listen,
            Self::Manage => Right::Manage,
        }
    }

    /// The union of the flags.
    fn rights(flags: &[Self]) -> Rights {
        if flags.contains(&Self::Manage) {
            return Rights::ALL;
        }
        flags.iter().map(|flag| flag.right()).collect()
    }
}

/// One of the two keys.
#[derive(Clone, Copy, ValueEnum)]
pub enum KeyFlag {
    /// The primary key
    Primary,
    /// The secondary key
    Secondary,
}

impl KeyFlag {
    pub const fn which(self) -> WhichKey {
        match self {
            Self::Primary => WhichKey::Primary,
            Self::Secondary => WhichKey::Secondary,
        }
    }
}

pub fn run(command: &PolicyCommand) -> Result<(), Failure> {
    match command {
        PolicyCommand::Create(flags) => create::run(flags),
        PolicyCommand::List(flags) => list::run(flags),
        PolicyCommand::Show(flags) => show::run(flags),
        PolicyCommand::Keys(flags) => keys::run(flags),
        PolicyCommand::Regenerate(flags) => regenerate::run(flags),
        PolicyCommand::Delete(flags) => delete::run(flags),
    }
}

/// A policy without its keys, as labels and values.
fn shown(policy: &PolicyDescription) -> Vec<(&'static str, String)> {
    let name = [("policy", policy.name.to_string())].into_iter();
    name.chain(policy.given()).chain(policy.instants()).collect()
}

/// Prints the keys in the requested format.
fn print_keys(
    keys: &PolicyKeys,
    common: &Common,
    session: &CommandConnection,
) -> Result<(), Failure> {
    if common.output != Output::Table {
        return session.out.print(&object(&policy_keys_to_json(keys), common.output));
    }
    let mut rows = vec![("policy", keys.policy.name.to_string())];
    rows.extend(keys.policy.given().chain(keys.secrets()));
    session.out.print(&sheet(&rows, &session.out))
}

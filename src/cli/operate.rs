//! `peeklock locks break` and `clients close`: an operator ends locks and connections of others
//! (CON-24, CON-26). `holders.rs` dispatches to it.

use clap::{Args, Subcommand};
use peeklock::command::BROKEN_LOCK_COUNT_MAX;
use peeklock::ids::SequenceNumber;
use peeklock::inspect::ClientId;

use super::arguments::sequence_number;
use super::connect::{CommandConnection, Common, Output, Patience};
use super::message::counted;
use super::terminal::{line, note};
use super::{Failure, exit};

const BREAK_HELP: &str = concat!(
    "\
Examples:
  peeklock locks break orders 1001 1002            the messages are available at once
  peeklock locks break orders 1001 --counted       the delivery counts as failed
  peeklock locks break steps --session order-17    the session, with all messages under its lock
  peeklock locks break 'orders/$deadletterqueue' 7

The holder learns it with its next request: settling the message fails with MessageLockLost, and \
every command in the session with SessionLockLost. A deferred message is deferred again. The \
command needs the rights Send and Listen.

",
    exit_codes!()
);

const CLOSE_HELP: &str = concat!(
    "\
Examples:
  peeklock clients --links                         the numbers of the clients
  peeklock clients close 17

Messages in the hands of the client are available at once, and their deliveries do not count. A \
client over HTTP keeps its locks; its connection is closed after the request in progress. Most \
clients connect again: to keep one out, change the key of its policy. The command needs the right \
Manage of the namespace.

",
    exit_codes!()
);

#[derive(Subcommand)]
pub enum LocksCommand {
    /// End locks of messages or of a session, regardless of their holder
    #[command(after_help = BREAK_HELP)]
    Break(BreakFlags),
}

#[derive(Args)]
pub struct BreakFlags {
    /// Queue, such as `orders`, or subscription, such as `orders/subscriptions/eu`
    queue: String,
    /// Sequence numbers of locked messages
    #[arg(value_name = "NUMBER", value_parser = sequence_number, required_unless_present = "session",
        conflicts_with = "session")]
    numbers: Vec<u64>,
    /// Break the lock of this session instead
    #[arg(long, value_name = "ID")]
    session: Option<String>,
    /// Count the deliveries as failed
    #[arg(long)]
    counted: bool,
    #[command(flatten)]
    common: Common,
}

#[derive(Subcommand)]
pub enum ClientsCommand {
    /// Close the connection of a client
    #[command(after_help = CLOSE_HELP)]
    Close(CloseFlags),
}

#[derive(Args)]
pub struct CloseFlags {
    /// Number of the client, as `peeklock clients` shows it
    client: u64,
    #[command(flatten)]
    common: Common,
}

pub fn locks(command: &LocksCommand) -> Result<(), Failure> {
    let LocksCommand::Break(flags) = command;
    flags.common.run(Patience::Limited, async |session| {
        let broken = match &flags.session {
            Some(id) => u64::from(
                session.client.admin().break_session(&flags.queue, id, flags.counted).await?,
            ),
            None => break_locks(flags, session).await?,
        };
        if flags.common.output != Output::Table {
            let object = serde_json::json!({ "queue": flags.queue, "broken": broken });
            session.out.print(&format!("{object}\n"))?;
        } else if broken > 0 {
            let locks = counted(broken, "lock");
            session.out.print(&format!("broke {locks} of {}\n", line(&flags.queue)))?;
        }
        if broken == 0 {
            note(&format!("`{}` has no such lock", flags.queue));
            return Err(Failure::Reported(exit::NOTHING));
        }
        Ok(())
    })
}

async fn break_locks(flags: &BreakFlags, session: &CommandConnection) -> Result<u64, Failure> {
    let mut broken = 0;
    for numbers in flags.numbers.chunks(BROKEN_LOCK_COUNT_MAX) {
        let sequences = numbers.iter().copied().map(SequenceNumber).collect();
        let admin = session.client.admin();
        broken += admin.break_locks(&flags.queue, sequences, flags.counted).await?;
    }
    Ok(broken)
}

pub fn clients(command: &ClientsCommand) -> Result<(), Failure> {
    let ClientsCommand::Close(flags) = command;
    flags.common.run(Patience::Limited, async |session| {
        session.client.admin().close_client(ClientId(flags.client)).await?;
        if flags.common.output == Output::Table {
            session.out.print(&format!("closed client {}\n", flags.client))?;
        } else {
            let object = serde_json::json!({ "clientId": flags.client });
            session.out.print(&format!("{object}\n"))?;
        }
        Ok(())
    })
}

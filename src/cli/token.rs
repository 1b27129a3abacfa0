//! `peeklock token`: a shared access signature, signed with the key of a connection string.
//! `cli.rs` dispatches to it. No broker is needed.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use peeklock::auth_sas::ConnectionString;
use peeklock::time::Timestamp;

use super::own::first_key;
use super::{Failure, print, variable};

pub const HELP: &str = "\
Examples:
  peeklock token                             signed by the root policy of the broker here, for 1 hour
  peeklock token --entity orders --for 10m   for one queue
  curl -H \"Authorization: $(peeklock token)\" -d 'two coffees' http://127.0.0.1:5300/orders/messages
  PEEKLOCK_TOKEN=$(peeklock token) peeklock top

The key comes from PEEKLOCK_CONNECTION_STRING, or else from the file `root.connection-string` in \
the data directory of the broker, which only its owner can read. The command does not contact the \
broker. A token ends when its time is over or its key is replaced: see `peeklock policy \
regenerate`.";

#[derive(Args)]
pub struct TokenFlags {
    /// Entity that the token is for, including everything below it, such as `orders` [default: the
    /// entity of the connection string, or else all]
    #[arg(long, value_name = "PATH")]
    entity: Option<String>,
    /// Validity of the token, such as 10m
    #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = humantime::parse_duration)]
    time: Duration,
    /// Data directory of the broker, for the file with the key [default: ./data]
    #[arg(long, value_name = "DIR")]
    data_dir: Option<PathBuf>,
}

pub fn run(flags: &TokenFlags) -> Result<(), Failure> {
    let (text, source) = match variable("PEEKLOCK_CONNECTION_STRING")? {
        Some(text) => (text, "PEEKLOCK_CONNECTION_STRING".to_owned()),
        None => first_key(flags.data_dir.as_deref())?,
    };
    let refused = |detail: &str| Failure::usage(format!("{source}: {detail}"));
    let mut string =
        ConnectionString::parse(text.trim()).map_err(|error| refused(error.detail()))?;
    if let Some(entity) = &flags.entity {
        string.check_entity(entity).map_err(|error| refused(error.detail()))?;
        string = string.at_entity(entity.trim_matches('/'));
    }
    if !string.renews() {
        return Err(refused(
            "it has a token but no key to sign another token with; give a connection string with \
             SharedAccessKey",
        ));
    }
    print(&format!("{}\n", string.token(in_time(flags.time))))
}

/// Instant after `time`, by the clock of this machine.
pub fn in_time(time: Duration) -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let ms = now.saturating_add(time).as_millis();
    Timestamp::from_unix_ms(i64::try_from(ms).unwrap_or(i64::MAX / 100_000))
}

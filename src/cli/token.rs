//! `peeklock token`: a shared access signature, signed with the key of a connection string.

use std::path::PathBuf;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use peeklock::auth_sas::ConnectionString;
use peeklock::time::Timestamp;

use super::own::first_key;
use super::{Failure, say, variable};

pub const HELP: &str = "\
Examples:
  peeklock token                             by the first policy of the broker on this machine, for an hour
  peeklock token --entity orders --for 10m   for one queue
  curl -H \"Authorization: $(peeklock token)\" -d 'two coffees' http://127.0.0.1:5300/orders/messages
  PEEKLOCK_TOKEN=$(peeklock token) peeklock top

The key is that of PEEKLOCK_CONNECTION_STRING, else that of the file `root.connection-string` in the data directory of the \
broker, which its owner alone can read. Nothing is asked of the broker. A token ends with its time, and with its key: \
see `peeklock policy regenerate`.";

#[derive(Args)]
pub struct TokenFlags {
    /// Entity that the token is for, with all below it [default: that of the connection string, else all]
    #[arg(long, value_name = "PATH")]
    entity: Option<String>,
    /// How long it is good
    #[arg(long = "for", value_name = "TIME", default_value = "1h", value_parser = humantime::parse_duration)]
    time: Duration,
    /// Data directory of the broker, where the key is looked for [default: ./data]
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
        return Err(refused("it has a token, and no key to sign another one with"));
    }
    say(&format!("{}\n", string.token(in_time(flags.time))))
}

/// The instant after so long, by the clock of this machine.
pub fn in_time(time: Duration) -> Timestamp {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let ms = now.saturating_add(time).as_millis();
    Timestamp::from_unix_ms(i64::try_from(ms).unwrap_or(i64::MAX / 100_000))
}

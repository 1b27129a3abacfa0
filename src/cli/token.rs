//! `peeklock token`: a shared access signature, signed with the key of a connection string.

use std::fs;
use std::io::Read as _;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use peeklock::auth_sas::ConnectionString;
use peeklock::time::Timestamp;

use super::{Failure, exit, say, variable};
use crate::server::{PUBLIC_URL_FILE, ROOT_KEY_FILE};

pub const HELP: &str = "\
Examples:
  peeklock token                             by the first policy of the broker on this machine, for an hour
  peeklock token --entity orders --for 10m   for one queue
  curl -H \"Authorization: $(peeklock token)\" -d 'two coffees' http://127.0.0.1:5300/orders/messages
  PEEKLOCK_TOKEN=$(peeklock token) peeklock top

The key is that of PEEKLOCK_CONNECTION_STRING, else that of the file `root.connection-string` in the data directory of the \
broker, which its owner alone can read. Nothing is asked of the broker. A token ends with its time, and with its key: \
see `peeklock policy regenerate`.";

/// Where a broker has its data unless it is told otherwise.
const DATA_DIR: &str = "./data";
/// The file has at most so many bytes.
const FILE_BYTES_MAX: u64 = 16 << 10;

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

/// The connection string of the first policy of a broker on this machine, for commands of this program, and where it
/// was (SEC-25).
pub fn first_key(data_dir: Option<&Path>) -> Result<(String, String), Failure> {
    let (text, shown) = first_strings(data_dir)?;
    Ok((text.lines().next_back().unwrap_or_default().to_owned(), shown))
}

/// What a broker on this machine has said of where it is reached.
pub struct Own {
    /// As the file has it for clients of AMQP, and for commands.
    pub strings: [String; 2],
    /// The URL by which its clients reach it, if its configuration names one (`http.public_url`).
    pub public_url: Option<String>,
    /// Where that was.
    pub source: String,
}

/// All that a broker on this machine has written for clients.
pub fn own(data_dir: Option<&Path>) -> Result<Own, Failure> {
    let (text, source) = first_strings(data_dir)?;
    let lines = [text.lines().next(), text.lines().next_back()];
    let file = data_dir.unwrap_or(Path::new(DATA_DIR)).join(PUBLIC_URL_FILE);
    // A broker without such a setting has none.
    let public_url = fs::read_to_string(file).ok().map(|url| url.trim().to_owned());
    let strings = lines.map(|line| line.unwrap_or_default().to_owned());
    Ok(Own { strings, public_url, source })
}

/// A line for clients of AMQP, and one for commands unless they are the same.
fn first_strings(data_dir: Option<&Path>) -> Result<(String, String), Failure> {
    let path = data_dir.unwrap_or(Path::new(DATA_DIR)).join(ROOT_KEY_FILE);
    let shown = path.display().to_string();
    let mut text = String::new();
    let reading =
        fs::File::open(&path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
    reading.map_err(|error| {
        Failure::ended(
            exit::NOT_FOUND,
            format!(
                "`{shown}`: {error}; --data-dir names the data directory of the broker, which writes that file when it \
                 starts, and PEEKLOCK_CONNECTION_STRING goes over it"
            ),
        )
    })?;
    Ok((text.trim().to_owned(), shown))
}

//! Named brokers, in a file in the user's configuration directory that only the user can read. The
//! command `context` and the connection flags use them.

use std::collections::BTreeMap;
use std::fs::{self, DirBuilder, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

use peeklock::contract::port;
use serde::{Deserialize, Serialize};

use super::{Failure, exit};

/// Maximum bytes of the file, enough for hundreds of contexts.
const FILE_BYTES_MAX: u64 = 1 << 20;
const NAME_CHARS_MAX: usize = 64;
/// Reserved name of the built-in context.
pub const DEFAULT: &str = "default";
/// URL of the built-in context: the address of `peeklock serve`.
pub const DEFAULT_URL: &str = "ws://127.0.0.1:5301";

/// All contexts of a user.
#[derive(Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Contexts {
    /// Name of the context in use.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub current: Option<String>,
    /// Contexts by name.
    #[serde(default)]
    pub contexts: BTreeMap<String, Context>,
}

/// A named broker.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Context {
    /// `ws://HOST:PORT` or `wss://HOST:PORT`.
    pub url: String,
    /// Connection string that tokens are signed with, instead of a token.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub connection_string: Option<String>,
    /// File of authorities to trust in addition to the authorities of the system.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub ca: Option<PathBuf>,
    /// Token for the broker, if it needs one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token: Option<String>,
}

/// Path of the file: `$XDG_CONFIG_HOME/peeklock/contexts.toml`, otherwise below `~/.config`.
pub fn path() -> Result<PathBuf, Failure> {
    let absolute =
        |name: &str| std::env::var_os(name).map(PathBuf::from).filter(|path| path.is_absolute());
    let home = || absolute("HOME").map(|home| home.join(".config"));
    let folder = absolute("XDG_CONFIG_HOME").or_else(home).ok_or_else(|| {
        Failure::usage(
            "there is no directory for contexts: neither XDG_CONFIG_HOME nor HOME is set; set one",
        )
    })?;
    Ok(folder.join("peeklock").join("contexts.toml"))
}

impl Contexts {
    /// Reads the contexts; empty if there is no file.
    pub fn load() -> Result<Self, Failure> {
        // Without a home directory there are no contexts; [`Self::save`] reports the missing
        // directory.
        path().map_or_else(|_| Ok(Self::default()), |path| Self::load_from(&path))
    }

    fn load_from(path: &Path) -> Result<Self, Failure> {
        let shown = path.display();
        match fs::metadata(path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Self::default()),
            Err(error) => return Err(Failure::usage(format!("`{shown}` cannot be read: {error}"))),
            Ok(meta) if meta.len() > FILE_BYTES_MAX => {
                let length = meta.len();
                return Err(Failure::usage(format!(
                    "`{shown}` has {length} bytes; a contexts file may have at most \
                     {FILE_BYTES_MAX}"
                )));
            }
            Ok(_) => {}
        }
        let text = fs::read_to_string(path)
            .map_err(|error| Failure::usage(format!("`{shown}` cannot be read: {error}")))?;
        toml::from_str(&text).map_err(|error| {
            Failure::usage(format!("`{shown}` is not a valid contexts file: {}", error.message()))
        })
    }

    /// Writes the contexts atomically, readable only by the user.
    pub fn save(&self) -> Result<(), Failure> {
        let path = path()?;
        let failed = |error: io::Error| {
            Failure::Failed(format!("`{}` cannot be written: {error}", path.display()))
        };
        let text = toml::to_string(self).map_err(|error| failed(io::Error::other(error)))?;
        let folder = path.parent().unwrap_or(Path::new("."));
        DirBuilder::new().recursive(true).mode(0o700).create(folder).map_err(failed)?;
        let new = folder.join(format!(".contexts.toml.{}", std::process::id()));
        let written = write_new(&new, text.as_bytes()).and_then(|()| fs::rename(&new, &path));
        written.map_err(|error| {
            // A partial file would block the next attempt.
            let _gone = fs::remove_file(&new);
            failed(error)
        })
    }

    /// Returns the context with this name.
    pub fn named(&self, name: &str) -> Result<Context, Failure> {
        if name == DEFAULT {
            return Ok(Context::built_in());
        }
        self.contexts.get(name).cloned().ok_or_else(|| self.unknown(name))
    }

    /// Failure for an unknown name, with the most similar known name.
    pub fn unknown(&self, name: &str) -> Failure {
        let nearest = self
            .contexts
            .keys()
            .map(|known| (strsim::damerau_levenshtein(known, name), known))
            .min()
            .filter(|(distance, _)| *distance <= 2);
        let hint = match nearest {
            Some((_, known)) => format!("did you mean `{known}`?"),
            None => "`peeklock context list` lists all contexts".to_owned(),
        };
        Failure::ended(exit::NOT_FOUND, format!("there is no context `{name}`; {hint}"))
    }
}

impl Context {
    /// The built-in context.
    pub fn built_in() -> Self {
        Self { url: DEFAULT_URL.to_owned(), connection_string: None, ca: None, token: None }
    }

    /// Whether it has a token or a key.
    pub const fn has_credential(&self) -> bool {
        self.token.is_some() || self.connection_string.is_some()
    }
}

/// Checks that a name has only letters, digits, dashes, underscores and dots.
pub fn name(text: &str) -> Result<String, String> {
    let is_fine = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_' | '.');
    if text.is_empty() || text.len() > NAME_CHARS_MAX || !text.chars().all(is_fine) {
        return Err(format!(
            "expected a name of 1 to {NAME_CHARS_MAX} letters, digits, dashes, underscores or dots"
        ));
    }
    Ok(text.to_owned())
}

/// Parses `ws://HOST:PORT` or `wss://HOST:PORT`; the default port is the port of `peeklock serve`.
pub fn url(text: &str) -> Result<String, String> {
    const EXPECTED: &str = "expected the URL of a broker: ws://HOST:PORT, such as \
        ws://127.0.0.1:5301, or wss://HOST:PORT with TLS";
    let (scheme, host) = text.split_once("://").ok_or(EXPECTED)?;
    if !matches!(scheme, "ws" | "wss") {
        return Err(EXPECTED.into());
    }
    let host = host.trim_end_matches('/');
    let is_foreign = |c: char| c.is_whitespace() || c.is_control() || "/?#@".contains(c);
    if host.is_empty() || host.contains(is_foreign) {
        return Err(EXPECTED.into());
    }
    // Colons of an IPv6 address are inside brackets.
    let after_address = host.rsplit_once(']').map_or(host, |(_, rest)| rest);
    match after_address.split_once(':') {
        None => Ok(format!("{scheme}://{host}:{}", port::WEBSOCKET)),
        Some((_, port)) if port.parse::<u16>().is_ok_and(|port| port > 0) => {
            Ok(format!("{scheme}://{host}"))
        }
        Some(_) => Err(EXPECTED.into()),
    }
}

fn write_new(path: &Path, bytes: &[u8]) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(bytes)?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(given: &str, expected: Option<&str>) {
        assert_eq!(url(given).ok().as_deref(), expected, "{given}");
    }

    #[test]
    fn the_usual_broker_is_at_the_usual_port() {
        check("ws://127.0.0.1", Some(DEFAULT_URL));
    }

    #[test]
    fn a_url_is_a_host_and_a_port() {
        check("ws://127.0.0.1:5301", Some("ws://127.0.0.1:5301"));
        check("ws://broker:80/", Some("ws://broker:80"));
        check("ws://broker", Some("ws://broker:5301"));
        check("ws://[::1]:9", Some("ws://[::1]:9"));
        check("ws://[::1]", Some("ws://[::1]:5301"));
        check("wss://bus.example.com", Some("wss://bus.example.com:5301"));
        check("wss://bus.example.com:443/", Some("wss://bus.example.com:443"));
        for wrong in ["broker:1", "http://a:1", "WSS://a:1", "ws://", "ws://a:", "ws://a:0"] {
            check(wrong, None);
        }
        for wrong in ["ws://a:99999", "ws://a:1/x", "ws://u@a:1", "ws://a b:1", "ws://a:1?t=1"] {
            check(wrong, None);
        }
    }

    #[test]
    fn names_are_one_word() {
        assert!(name("prod-eu.1").is_ok());
        for wrong in ["", "a b", "a/b", "é", "\u{1b}[31m"] {
            assert!(name(wrong).is_err(), "{wrong}");
        }
    }
}

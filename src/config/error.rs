//! Errors of the configuration. Every source and check of `config` returns them, and `peeklock
//! serve` prints them.

use std::path::PathBuf;

/// Reason why a configuration cannot be used. The text names key, value, source and remedy.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("configuration file `{}` cannot be read: {source}; name another with --config", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("configuration file `{}` is not valid TOML: {detail}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// The error of the parser.
        detail: String,
    },
    /// The environment cannot be read.
    #[error("environment: {0}")]
    Environment(String),
    /// The key is unknown.
    #[error("unknown key `{key}`{}{}", set_by(source_name), meant(meant_key))]
    UnknownKey {
        /// The key.
        key: String,
        /// The source of the key.
        source_name: Option<String>,
        /// The known key with the most similar name.
        meant_key: Option<String>,
    },
    /// The value has another type, is out of range, or contradicts another value.
    #[error("`{key}`: {detail}{}", set_by(source_name))]
    Invalid {
        /// The key.
        key: String,
        /// The fault and the expected value.
        detail: String,
        /// The source of the value.
        source_name: Option<String>,
    },
    /// The emulator's configuration file or its environment is invalid.
    #[error("{0}")]
    Emulator(String),
}

fn set_by(source: &Option<String>) -> String {
    source.as_ref().map_or_else(String::new, |source| format!(" (set by {source})"))
}

fn meant(key: &Option<String>) -> String {
    match key {
        Some(key) => format!("; did you mean `{key}`?"),
        None => "; `peeklock config default` lists all keys".to_owned(),
    }
}

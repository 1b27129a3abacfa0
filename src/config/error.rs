//! Why a configuration cannot be used.

use std::path::PathBuf;

/// Why a configuration cannot be used. The text names key, value, source and the way out.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// The file cannot be read.
    #[error("configuration file `{}` cannot be read: {source}; name another with --config", path.display())]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: std::io::Error,
    },
    /// The file is not TOML.
    #[error("configuration file `{}` is not valid TOML: {detail}", path.display())]
    Syntax {
        /// The file.
        path: PathBuf,
        /// What the parser said.
        detail: String,
    },
    /// The environment cannot be read.
    #[error("environment: {0}")]
    Environment(String),
    /// A key that means nothing.
    #[error("unknown key `{key}`{}{}", set_by(source_name), meant(meant_key))]
    UnknownKey {
        /// The key.
        key: String,
        /// Where it stands.
        source_name: Option<String>,
        /// The key that looks like it.
        meant_key: Option<String>,
    },
    /// A value that is not of its type, out of its bounds, or contradicts another.
    #[error("`{key}`: {detail}{}", set_by(source_name))]
    Invalid {
        /// The key.
        key: String,
        /// What is wrong and what would be right.
        detail: String,
        /// Where it stands.
        source_name: Option<String>,
    },
    /// What is wrong with the emulator's configuration file, or its environment.
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

//! What the configuration is in the emulator's place (SEC-24, ADM-60): its addresses and its file instead of our defaults,
//! below every other layer; and nobody is let in without a token, above all of them.

use std::path::{Path, PathBuf};

use config::{Map, Value};

use super::{ConfigError, Layer};
use crate::emulator::environment::Environment;
use crate::emulator::{MOUNTED, file};

/// The origin of what follows from the place.
const ORIGIN: &str = "--emulator";
/// Where the emulator listens for administration and health.
const HTTP_PORT: u16 = 5300;
/// Where it listens for AMQP.
const AMQP_PORT: u16 = 5672;

/// The emulator's place.
#[derive(Clone, Debug, Default)]
pub struct InPlace {
    /// The file that was named, or else the one that is mounted where the emulator has it.
    file: Option<PathBuf>,
    http_port: Option<u16>,
    /// What is said of the environment.
    pub answers: Vec<String>,
    /// What is said of the file, once it was read.
    pub notes: Vec<String>,
}

impl InPlace {
    /// The place with the file that was named, if one was, and the environment of the container.
    pub fn new(named: Option<PathBuf>, environment: Environment) -> Self {
        let Environment { config, http_port, answers } = environment;
        let mounted = || Some(PathBuf::from(MOUNTED)).filter(|file| file.exists());
        let file = named.or(config).or_else(mounted);
        Self { file, http_port, answers, notes: Vec::new() }
    }

    /// The file, as people say it.
    pub fn file_text(&self) -> String {
        self.file.as_deref().map_or_else(String::new, |file| file.display().to_string())
    }

    /// The layers in place of defaults. Reads the file.
    pub(super) fn defaults(&mut self) -> Result<Vec<Layer>, ConfigError> {
        let port = self.http_port.unwrap_or(HTTP_PORT);
        let mut layers = vec![
            set("http.address", format!("0.0.0.0:{port}")),
            set("amqp.address", format!("0.0.0.0:{AMQP_PORT}")),
        ];
        if let Some(path) = self.file.clone() {
            let (config, notes) = import(&path)?;
            let text = toml::to_string(&config)
                .map_err(|error| ConfigError::Emulator(format!("`{}`: {error}", path.display())))?;
            layers.push(Layer::of_text(&path, &text)?);
            self.notes = notes;
        }
        Ok(layers)
    }

    /// The layer above all others.
    pub(super) fn never_anonymous() -> Layer {
        set("security.allow_anonymous", "false")
    }
}

/// Reads the emulator's file as our configuration, with what is said of it.
pub fn import(path: &Path) -> Result<(toml::Table, Vec<String>), ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    let refused = |error| ConfigError::Emulator(format!("`{}`: {error}", path.display()));
    let imported = file::read(&text).map_err(refused)?;
    Ok((imported.config, imported.notes))
}

impl ConfigError {
    /// The same, by the place in the emulator's file if it came from there.
    pub(super) fn of_emulator(self) -> Self {
        match self {
            Self::Invalid { key, detail, source_name: Some(source) }
                if source.ends_with(".json") =>
            {
                let key = file::place_of(&key).unwrap_or(key);
                Self::Invalid { key, detail, source_name: Some(source) }
            }
            other => other,
        }
    }
}

fn set(key: &str, value: impl Into<String>) -> Layer {
    let value = Value::new(Some(&ORIGIN.to_owned()), value.into());
    Layer(Map::from_iter([(key.to_owned(), value)]))
}

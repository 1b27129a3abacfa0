//! The configuration of a broker that replaces the emulator (SEC-24, ADM-60). The addresses and
//! file of the emulator replace the defaults, below every other layer; a layer above all others
//! refuses clients without a token. [`Loaded::load`](super::Loaded::load) adds these layers.

use std::path::{Path, PathBuf};

use config::{Map, Value};
use peeklock::contract::port::WEBSOCKET as WEBSOCKET_PORT;

use super::{ConfigError, Layer};
use crate::emulator::environment::Environment;
use crate::emulator::{BUILT_IN, MOUNTED, file};

/// The origin of values that follow from `--emulator`.
const ORIGIN: &str = "--emulator";
/// The name of the built-in file, which is used if no file exists. It ends with `.json`, so that
/// errors are located in the emulator's file.
const BUILT_IN_NAME: &str = "the emulator's built-in Config.json";
/// The emulator's port for administration and health.
const HTTP_PORT: u16 = 5300;
/// The emulator's port for AMQP.
const AMQP_PORT: u16 = 5672;

/// The options of a broker that replaces the emulator.
#[derive(Clone, Debug, Default)]
pub struct InPlace {
    /// The named file, or the file that is mounted at the emulator's path.
    file: Option<PathBuf>,
    http_port: Option<u16>,
    /// Notes about the environment.
    pub answers: Vec<String>,
    /// Notes about the file; empty until it is read.
    pub notes: Vec<String>,
}

impl InPlace {
    /// Takes the named file, if there is one, and the environment of the container.
    pub fn new(named: Option<PathBuf>, environment: Environment) -> Self {
        Self::mounted_at(Path::new(MOUNTED), named, environment)
    }

    /// Does the same with another path for the mounted file.
    fn mounted_at(place: &Path, named: Option<PathBuf>, environment: Environment) -> Self {
        let Environment { config, http_port, mut answers } = environment;
        let mounted = Some(place.to_owned()).filter(|file| file.exists());
        let file = match (named, config) {
            (Some(named), _) => Some(named),
            // Templates for containers set it to the path on the host, which is mounted elsewhere.
            (None, Some(config)) if mounted.is_some() && !config.exists() => {
                answers.push(format!(
                    "CONFIG_PATH names a file that does not exist, so the mounted file is used \
                     instead: {}",
                    place.display()
                ));
                mounted
            }
            (None, config) => config.or(mounted),
        };
        if http_port == Some(WEBSOCKET_PORT) {
            answers.push(format!(
                "EMULATOR_HTTP_PORT is {WEBSOCKET_PORT}, the usual port of peeklock commands; they \
                 are served at {HTTP_PORT} instead unless you set websocket.address"
            ));
        }
        Self { file, http_port, answers, notes: Vec::new() }
    }

    /// The name of the file in messages to the user.
    pub fn file_text(&self) -> String {
        let built_in = || BUILT_IN_NAME.to_owned();
        self.file.as_deref().map_or_else(built_in, |file| file.display().to_string())
    }

    /// Reads the file and returns the layers that replace defaults.
    pub(super) fn defaults(&mut self) -> Result<Vec<Layer>, ConfigError> {
        let port = self.http_port.unwrap_or(HTTP_PORT);
        let mut layers = vec![
            set("http.address", format!("0.0.0.0:{port}")),
            set("amqp.address", format!("0.0.0.0:{AMQP_PORT}")),
        ];
        if port == WEBSOCKET_PORT {
            layers.push(set("websocket.address", format!("127.0.0.1:{HTTP_PORT}")));
        }
        let (path, (config, notes)) = if let Some(path) = self.file.clone() {
            let imported = import(&path).map_err(|error| match error {
                ConfigError::Unreadable { path, source } => ConfigError::Emulator(format!(
                    "the emulator's configuration file `{}` cannot be read: {source}; name another with \
                     --emulator-config or CONFIG_PATH, or mount it at {MOUNTED}",
                    path.display()
                )),
                other => other,
            })?;
            (path, imported)
        } else {
            let path = PathBuf::from(BUILT_IN_NAME);
            let imported = imported(&path, BUILT_IN)?;
            (path, imported)
        };
        let text = toml::to_string(&config)
            .map_err(|error| ConfigError::Emulator(format!("`{}`: {error}", path.display())))?;
        layers.push(Layer::of_text(&path, &text)?);
        self.notes = notes;
        Ok(layers)
    }

    /// The layer above all others: anonymous access is off.
    pub(super) fn never_anonymous() -> Layer {
        set("security.allow_anonymous", "false")
    }
}

/// Reads the emulator's file as a Peeklock configuration, with notes about ignored and changed
/// values.
pub fn import(path: &Path) -> Result<(toml::Table, Vec<String>), ConfigError> {
    let text = std::fs::read_to_string(path)
        .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
    imported(path, &text)
}

fn imported(path: &Path, text: &str) -> Result<(toml::Table, Vec<String>), ConfigError> {
    let refused = |error| ConfigError::Emulator(format!("`{}`: {error}", path.display()));
    let imported = file::read(text).map_err(refused)?;
    Ok((imported.config, imported.notes))
}

impl ConfigError {
    /// Locates an error in the emulator's file if its value came from there.
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

#[cfg(test)]
mod tests {
    use super::*;

    fn environment(config: Option<&Path>, http_port: Option<u16>) -> Environment {
        let config = config.map(Path::to_owned);
        Environment { config, http_port, answers: Vec::new() }
    }

    /// ADM-60: templates set `CONFIG_PATH` to a path of the host. If no file is there, the mounted
    /// file is read, with a note. A named file and an existing file take precedence.
    #[test]
    fn mounted_file_is_read_if_the_variable_names_no_file() {
        let (mounted, there) = (Path::new("/proc/self/status"), Path::new("/proc/self/stat"));
        let absent = Path::new("/absent/Config.json");
        for (named, config, place, expected, answers) in [
            (None, Some(absent), mounted, Some(mounted), 1),
            (None, Some(there), mounted, Some(there), 0),
            (Some(absent), Some(there), mounted, Some(absent), 0),
            (None, None, mounted, Some(mounted), 0),
            (None, Some(absent), absent, Some(absent), 0),
            (None, None, absent, None, 0),
        ] {
            let named = named.map(Path::to_owned);
            let place = InPlace::mounted_at(place, named, environment(config, None));
            assert_eq!(place.file.as_deref(), expected, "{config:?}");
            assert_eq!(place.answers.len(), answers, "{:?}", place.answers);
        }
        let mut place = InPlace::mounted_at(absent, None, environment(Some(absent), None));
        let error = place.defaults().err().unwrap().to_string();
        assert!(error.contains("--emulator-config") && error.contains("/absent/"), "{error}");
    }

    /// ADM-60: the administration port may be any port, including the port of `peeklock` commands.
    #[test]
    fn administration_port_may_equal_the_command_port() {
        for (http_port, moved) in
            [(None, false), (Some(5_400), false), (Some(WEBSOCKET_PORT), true)]
        {
            let environment = environment(None, http_port);
            let mut place = InPlace::mounted_at(Path::new("/absent"), None, environment);
            assert_eq!(place.answers.len(), usize::from(moved));
            let layers = place.defaults().unwrap();
            let of_commands = layers.iter().find_map(|layer| layer.0.get("websocket.address"));
            let of_commands = of_commands.map(|value| value.clone().into_string().unwrap());
            assert_eq!(of_commands.is_some(), moved, "{http_port:?}");
            assert!(of_commands.is_none_or(|address| address == "127.0.0.1:5300"));
        }
    }
}

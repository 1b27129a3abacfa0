//! Environment variables of the emulator's container: used, or answered with a line that explains
//! why not. `--emulator` reads them once at start.

use std::ffi::OsString;
use std::num::NonZeroU16;
use std::path::PathBuf;

/// Variables without a meaning here, with the reason.
const WITHOUT_MEANING: [(&str, &str); 4] = [
    ("ACCEPT_EULA", "no terms must be accepted"),
    ("SQL_SERVER", NO_SQL),
    ("MSSQL_SA_PASSWORD", NO_SQL),
    ("SQL_WAIT_INTERVAL", NO_SQL),
];
const NO_SQL: &str = "this broker stores messages in its data directory and needs no SQL server";
/// Variable with the path of the configuration file.
const CONFIG_PATH: &str = "CONFIG_PATH";
/// Variable with the port of administration and health.
const HTTP_PORT: &str = "EMULATOR_HTTP_PORT";

/// Values of the environment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// Path of the configuration file.
    pub config: Option<PathBuf>,
    /// Port of administration and health.
    pub http_port: Option<u16>,
    /// One line for each variable without a meaning here; the lines contain no values.
    pub answers: Vec<String>,
}

/// Reads the environment with a function that returns variables that are set and not empty.
///
/// # Errors
/// Returns a description of the first invalid value.
pub fn read(set: impl Fn(&str) -> Option<OsString>) -> Result<Environment, String> {
    let http_port = match set(HTTP_PORT) {
        None => None,
        Some(text) => {
            let port = text.to_str().and_then(|text| text.parse::<NonZeroU16>().ok());
            let Some(port) = port else {
                return Err(format!(
                    "{HTTP_PORT} is `{}`, which is not a port; write one such as 5300",
                    text.display()
                ));
            };
            Some(port.get())
        }
    };
    let answers = WITHOUT_MEANING.iter().filter(|(name, _)| set(name).is_some());
    Ok(Environment {
        config: set(CONFIG_PATH).map(PathBuf::from),
        http_port,
        answers: answers.map(|(name, why)| format!("{name} is ignored: {why}")).collect(),
    })
}

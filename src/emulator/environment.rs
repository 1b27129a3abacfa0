//! What the users of the emulator's container set in its environment: taken, or answered with a line that says why not.

use std::path::PathBuf;

/// Variables that mean nothing here, with the reason.
const WITHOUT_MEANING: [(&str, &str); 4] = [
    ("ACCEPT_EULA", "there are no terms to be accepted"),
    ("SQL_SERVER", NO_SQL),
    ("MSSQL_SA_PASSWORD", NO_SQL),
    ("SQL_WAIT_INTERVAL", NO_SQL),
];
const NO_SQL: &str =
    "messages are kept in the data directory of this broker; no SQL server is needed or asked";
/// Names the configuration file.
const CONFIG_PATH: &str = "CONFIG_PATH";
/// The port of administration and health.
const HTTP_PORT: &str = "EMULATOR_HTTP_PORT";

/// What the environment says.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Environment {
    /// The configuration file.
    pub config: Option<PathBuf>,
    /// The port of administration and health.
    pub http_port: Option<u16>,
    /// One line for each variable that means nothing here; none repeats a value.
    pub answers: Vec<String>,
}

/// Reads the environment by a function that looks variables up.
///
/// # Errors
/// With what is wrong with one.
pub fn read(look_up: impl Fn(&str) -> Option<String>) -> Result<Environment, String> {
    let set = |name: &str| look_up(name).filter(|value| !value.is_empty());
    let http_port = match set(HTTP_PORT) {
        None => None,
        Some(text) => match text.parse() {
            Ok(port) => Some(port),
            Err(_) => {
                return Err(format!(
                    "{HTTP_PORT} is `{text}`, which is no port; write one such as 5300"
                ));
            }
        },
    };
    let answers = WITHOUT_MEANING.iter().filter(|(name, _)| set(name).is_some());
    Ok(Environment {
        config: set(CONFIG_PATH).map(PathBuf::from),
        http_port,
        answers: answers
            .map(|(name, why)| format!("{name} is set and means nothing here: {why}"))
            .collect(),
    })
}

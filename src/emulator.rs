//! The place of Microsoft's Service Bus emulator: its configuration file, its ports and its environment, so that a compose
//! file that names its image changes the name and nothing else (ADM-60 to ADM-64, SEC-24).
//!
//! `file` turns the configuration file into ours; what is set by the environment is judged by `environment`. What is in
//! the file goes the way of every other configuration from there on.

pub mod declared;
pub mod environment;
pub mod file;
mod lenient;

#[cfg(test)]
mod tests;

/// Where the image's users mount the file.
pub const MOUNTED: &str = "/ServiceBus_Emulator/ConfigFiles/Config.json";
/// The configuration file of a container for which nobody has mounted one, as in Microsoft's image.
pub const BUILT_IN: &str = include_str!("emulator/built_in.json");
/// The line of the log by which tools such as Testcontainers know that the container takes clients (ADM-66). It is written
/// once.
pub const READY: &str = "Emulator Service is Successfully Up!";
/// The key that everybody knows; the policy is that of the namespace (SEC-24).
pub const KEY: &str = "SAS_KEY_VALUE";

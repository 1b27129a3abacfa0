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
/// The key that everybody knows; the policy is that of the namespace (SEC-24).
pub const KEY: &str = "SAS_KEY_VALUE";

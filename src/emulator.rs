//! Replacement for Microsoft's Service Bus emulator: its configuration file, ports and environment.
//! A compose file only needs another image name (ADM-60 to ADM-64, SEC-24).
//!
//! `file` converts the configuration file into the format of this broker, and `environment`
//! validates the variables. After that, the configuration is handled like any other.

pub mod declared;
pub mod environment;
pub mod file;
mod lenient;

#[cfg(test)]
mod tests;

/// Path where users of the image mount the file.
pub const MOUNTED: &str = "/ServiceBus_Emulator/ConfigFiles/Config.json";
/// Configuration file of a container without a mounted one, as in Microsoft's image.
pub const BUILT_IN: &str = include_str!("emulator/built_in.json");
/// Log line by which tools such as Testcontainers detect that the container accepts clients
/// (ADM-66). It is written once.
pub const READY: &str = "Emulator Service is Successfully Up!";
/// Public key of the root policy (SEC-24).
pub const KEY: &str = "SAS_KEY_VALUE";

//! The Peeklock broker: drives the state machines of its entities, and offers interfaces to
//! transports, extensions and embedding programs. It re-exports the crates below it by name:
//!
//! ```text
//!   words <- model <- machine        plain values; commands, changes and effects; state machines
//!             record <- store        keys and records; their storage
//!   words <- admission               bounds on memory, connections and turns
//!             machine + store + admission <- this crate
//! ```
//!
//! Modules in reading order:
//!
//! | Modules | Content |
//! |---|---|
//! | [`command`], [`change`], [`effect`] | the model on three pages |
//! | [`machine`] | the pure state machines |
//! | [`transaction`], [`transfer`] | work that covers several commands or entities |
//! | [`edge`], [`request`] | from a client's message to mail for an entity, and back |
//! | [`shell`], [`actor`] | drive the machines: one shell and one actor for each entity |
//! | [`clock`], [`telemetry`], [`activity`], [`census`], `traced` | time, metrics, work outside actors, memory, spans |
//! | [`cluster`] | one of several brokers over one store: leases, suspension, takeover |
//! | [`builder`], [`broker`], [`call`], `shared` | start of a broker, its handles, and their common state |
//! | [`contract`], `forwarders` | traits of extensions, and the registered forwarders |
//! | [`access`], `grant`, [`policies`], `refusals` | rights of principals, and refused callers |
//! | [`management`], [`declaration`] | management requests, and plans for whole namespaces |
//! | [`migration`] | copies of whole stores |
//! | `flows`, `series` | counts of messages since the start, and their course over time |
//! | `kept_file` | small files that are replaced as a whole |
//! | `journeys` | stations of messages, and their way through entities |
//! | `samples` | the last published messages of topics, and trials of rules |
//! | `findings`, `heads`, `survey`, `taps`, [`clients`] | answers for operators, and the registry of clients |
//! | `topology`, `checks` | entities with their destinations, and findings about faults |
//! | `jobs` | deeds of operators on many messages |

// Words: plain values.
pub use peeklock_words::{
    condition, correlation_properties, description, error, ids, kind, limits, message, path,
    policy_properties, rule, time,
};
// The model.
pub use peeklock_model::{change, effect};
/// Commands of an entity and their outcomes.
pub mod command {
    pub use peeklock_model::command::*;

    pub use crate::request::{LoadedMessage, MessageReadError, Outcome, ReceivedMessage};
}
/// Questions of operators and their answers.
pub mod inspect {
    pub use peeklock_model::inspect::*;

    pub use crate::checks::report::*;
    pub use crate::findings::*;
    pub use crate::heads::BodyReader;
    pub use crate::jobs::*;
    pub use crate::journeys::query::*;
    pub use crate::samples::query::*;
    pub use crate::search::*;
    pub use crate::series::query::*;
    pub use crate::topology::query::*;
    pub use crate::transfer::body_change::BodyChange;
    pub use peeklock_words::search::*;
}
// The state machines, one for each kind of entity.
pub use peeklock_machine as machine;
// Work that covers several commands, or several entities.
pub mod transaction;
pub mod transfer;
// Bounds on memory, connections and turns.
pub use peeklock_admission as admission;
// Storage.
pub use peeklock_store as store;
pub use peeklock_store::content_ref;
// Runtime: drives the machines.
pub mod actor;
pub mod clock;
pub mod cluster;
pub mod edge;
mod heads;
mod jobs;
mod journeys;
mod kept_file;
pub mod request;
pub mod shell;
pub mod telemetry;
// Interfaces for transports, extension authors and embedding programs.
pub mod access;
pub mod activity;
mod audited;
pub mod broker;
pub mod builder;
pub mod call;
pub mod census;
mod checks;
pub mod clients;
pub mod contract;
pub mod declaration;
mod findings;
mod flows;
mod forwarders;
mod grant;
pub mod management;
pub mod migration;
pub mod policies;
mod refusals;
mod samples;
mod search;
mod series;
mod shared;
mod survey;
mod taps;
mod topology;
mod traced;

pub use access::{
    Access, Audited, ConsoleToken, ContainerKeys, InTurn, Search, Standing, Tap, message_count,
};
pub use broker::{Broker, Entity, StalledTurn, Update};
pub use builder::{BrokerBuilder, StartError};
pub use checks::ChecksConfig;
pub use journeys::JourneysConfig;
pub use samples::SamplesConfig;
pub use series::SeriesConfig;
pub use shared::Namespace;

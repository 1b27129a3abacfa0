//! The JSON that several transports of Peeklock speak: queues, values of application properties, instants,
//! durations and GUIDs. A transport adds its own frames or paths; what these mean is the same everywhere.

mod property;
mod queue;
mod text;

#[cfg(feature = "schema")]
pub use property::PropertyValueSchema;
pub use property::{PropertyMap, write_map, write_value};
pub use queue::{Cleared, QueueProperties, QueueView, Runtime};
pub use text::{Guid, Instant, Span, Token};

//! Reasons why a store accepts no new messages. Errors, probes and logs show them.

use std::fmt;
use std::sync::Arc;

/// Reason why a store refuses new messages (QUO-05). Everything else continues.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Shortage {
    /// The disk has too little free space.
    Disk {
        /// Directory of the store, if it has one.
        directory: Option<Arc<str>>,
        /// Bytes that are free.
        free_bytes: u64,
        /// Bytes that must stay free.
        free_bytes_min: u64,
    },
    /// The store holds as much as its configuration allows.
    Capacity {
        /// Directory of the store, if it has one.
        directory: Option<Arc<str>>,
        /// Bytes that it holds.
        stored_bytes: u64,
        /// Bytes that it may hold.
        capacity_bytes: u64,
    },
    /// The store in a database holds as much as its configuration allows.
    Database {
        /// Bytes that it holds.
        stored_bytes: u64,
        /// Bytes that it may hold.
        capacity_bytes: u64,
    },
    /// The database reports that its disk is full.
    DatabaseDisk,
    /// A shard of the store in a database has the maximum number of tables.
    DatabaseTables,
    /// The database cannot be used at present.
    DatabaseAway {
        /// The last error.
        problem: Arc<str>,
    },
    /// The memory of a store without a disk is used up.
    Memory {
        /// Bytes that it holds.
        stored_bytes: u64,
        /// Bytes that it may hold.
        capacity_bytes: u64,
    },
}

impl Shortage {
    /// Size of the message that probes and gauges test with: the store counts as full while it
    /// would refuse such a message.
    pub const PROBE_BYTES: u64 = 64 << 10;

    /// The measures that make room again, for people.
    #[must_use]
    pub const fn remedy(&self) -> &'static str {
        match self {
            Self::Disk { .. } => {
                "receive or purge messages, free space on the disk, or lower `journal.free_bytes_min`"
            }
            Self::Capacity { .. } => "receive or purge messages, or raise `journal.capacity_bytes`",
            Self::Database { .. } => {
                "receive or purge messages, or raise `store.postgres.capacity_bytes`"
            }
            Self::DatabaseDisk => "receive or purge messages, or free space on that disk",
            Self::DatabaseTables => "receive or purge messages",
            Self::DatabaseAway { .. } => "start the database, or correct the reason of the error",
            Self::Memory { .. } => {
                "receive or purge messages, or raise `server.ephemeral_bytes_max`"
            }
        }
    }
}

impl fmt::Display for Shortage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let at = |directory: &Option<Arc<str>>| {
            directory.as_ref().map(|path| format!(" of `{path}`")).unwrap_or_default()
        };
        match self {
            Self::Disk { directory, free_bytes, free_bytes_min } => write!(
                f,
                "the disk{} has {free_bytes} bytes free, and {free_bytes_min} must stay free \
                (`journal.free_bytes_min`)",
                at(directory)
            ),
            Self::Capacity { directory, stored_bytes, capacity_bytes } => write!(
                f,
                "the journal{} holds {stored_bytes} of at most {capacity_bytes} bytes \
                 (`journal.capacity_bytes`)",
                at(directory)
            ),
            Self::Database { stored_bytes, capacity_bytes } => write!(
                f,
                "the database holds {stored_bytes} of at most {capacity_bytes} bytes \
                 (`store.postgres.capacity_bytes`)"
            ),
            Self::DatabaseDisk => f.write_str("the disk of the database is full"),
            Self::DatabaseTables => {
                f.write_str("a shard of the database has the maximum number of tables")
            }
            Self::DatabaseAway { problem } => {
                write!(f, "the database cannot be used at present: {problem}")
            }
            Self::Memory { stored_bytes, capacity_bytes } => write!(
                f,
                "the store in memory holds {stored_bytes} of at most {capacity_bytes} bytes \
                 (`server.ephemeral_bytes_max`)"
            ),
        }
    }
}

//! The parts that stores over a log share: the encoding of records, the index of their places, and
//! the choice of the records that are written again (DESIGN D12).
//!
//! A log is a sequence of numbered segments. A [`LogPosition`] is a segment and a position in it;
//! this crate does not know how a segment is stored. The journal keeps each one in a file. A store
//! implements [`LogSegment`] for its segments, writes and reads their bytes, and decides when they
//! are durable.
//!
//! Modules in reading order:
//!
//! - `position`: positions, and reading of fields
//! - `record`, `packing`: the bytes of a record
//! - `segments`: the segments of a log, and the number of their records in use
//! - `entry`, `index`: the keys of a log, and the places of their records and contents
//! - `replay`: from records to changes of the index
//! - `pending`: the contents that changes set before they are applied
//! - `cleaning`: when and how fast the oldest records are written again
//! - `cache`: pieces of the log in memory
//! - `reservations`: bytes that are not stored yet, and callers that wait for more

mod cache;
mod cleaning;
mod entry;
mod index;
mod packing;
mod pending;
mod position;
mod record;
mod replay;
mod reservations;
mod segments;

pub use cache::{Cache, CacheLookup, CachedBytes, CachedPiece};
pub use cleaning::{LogSizes, TIGHT_GARBAGE_PART};
pub use entry::{ContentAt, IndexEntry, Op, PartPositions};
pub use index::{Index, Pinned, SweepCursor};
pub use pending::PendingOps;
pub use position::{Fields, Flaw, LogPosition, put};
pub use record::{
    CONTENT_HEAD, LogRecord, PART_BYTES, PLACE_BYTES, RECORD_HEAD_MAX, REMOVAL_HEAD, Reading,
    RecordContent, RecordReader, Version, part_count, read_content, write_content, write_length,
};
pub use replay::{ReplayOp, content_behind, content_of, op, op_in_log, records};
pub use reservations::{Reservations, UNSTORED_BYTES_MAX};
pub use segments::{LogSegment, SegmentState, Segments};

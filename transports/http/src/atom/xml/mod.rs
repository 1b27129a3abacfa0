//! XML within bounds: what clients send as a small tree, and what they are told.

mod name;
mod read;
mod write;

pub(super) use read::{BYTES_MAX, Element, read, read_kept, room_bytes};
pub(super) use write::{Xml, fragment};

/// Of entries and feeds (RFC 4287).
pub(super) const ATOM: &str = "http://www.w3.org/2005/Atom";
/// Of descriptions.
pub(super) const SB: &str = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect";
/// Of the parts of message counts.
pub(super) const COUNTS: &str = "http://schemas.microsoft.com/netservices/2011/06/servicebus";
/// Of `type` and `nil`.
pub(super) const INSTANCE: &str = "http://www.w3.org/2001/XMLSchema-instance";
/// Of the types of values.
pub(super) const SCHEMA: &str = "http://www.w3.org/2001/XMLSchema";
/// Of the types of values that XML Schema has not.
pub(super) const SERIALIZATION: &str = "http://schemas.microsoft.com/2003/10/Serialization/";

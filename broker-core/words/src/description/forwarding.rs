//! Destinations of forwarding (FWD-02 to FWD-04, TMP-12). Descriptions validate them, and the
//! broker resolves them.

use super::EntityKind;
use crate::error::{Quoted, Rejection};
use crate::path::{EntityAddress, EntityName, Node, PathKey, SubQueue, foreign_scheme};

/// Maximum characters of a destination, so that it fits into a record and a dead-letter
/// description.
const DESTINATION_CHARS_MAX: usize = 2_048;

/// A parsed destination.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Destination {
    /// A queue or topic of this namespace.
    Entity(PathKey),
    /// A destination of a forwarder, by the scheme before `://`, in lower case.
    Foreign(Box<str>),
}

impl Destination {
    /// The properties with a destination: of messages, and of dead-lettered messages.
    pub const PROPERTIES: [&str; 2] = ["ForwardTo", "ForwardDeadLetteredMessagesTo"];

    /// Reads a destination.
    /// Reads a destination.
    ///
    /// # Errors
    /// `ArgumentError` for a subscription or a sub-queue, which cannot be destinations (FWD-02);
    /// `EntityNotFound` for text that can name no entity; `ArgumentOutOfRange` if the text is too
    /// long.
    pub fn parse(text: &str) -> Result<Self, Rejection> {
        let chars = text.chars().count();
        if chars > DESTINATION_CHARS_MAX {
            return Err(Rejection::out_of_range(format!(
                "a destination of {chars} characters is longer than the limit of \
                 {DESTINATION_CHARS_MAX}"
            )));
        }
        if let Some(scheme) = foreign_scheme(text) {
            return Ok(Self::Foreign(scheme.to_ascii_lowercase().into()));
        }
        let address = EntityAddress::parse(text)?;
        match &address {
            EntityAddress {
                entity: EntityName::Root(_),
                sub_queue: SubQueue::Main,
                node: Node::Entity,
            } => Ok(Self::Entity(address.key())),
            _ => Err(Rejection::argument(format!(
                "{} is neither a queue nor a topic; only these forward messages",
                Quoted(text)
            ))),
        }
    }
}

/// Validates the destinations of an entity (FWD-02, FWD-04). The directory checks that they exist.
pub(super) fn validate(
    kind: EntityKind,
    path: &str,
    requires_session: bool,
    forward_to: Option<&str>,
    forward_dead_lettered_messages_to: Option<&str>,
) -> Result<(), Rejection> {
    for destination in [forward_to, forward_dead_lettered_messages_to].into_iter().flatten() {
        Destination::parse(destination)?;
    }
    if requires_session && forward_to.is_some() {
        return Err(Rejection::invalid_operation(format!(
            "{kind} {} requires sessions and cannot have ForwardTo",
            Quoted(path)
        )));
    }
    Ok(())
}

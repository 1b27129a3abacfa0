//! Reassembles messages that arrive in several frames.

use bytes::Bytes;

use peeklock_amqp::link::Assembly;
use peeklock_amqp::performative::Transfer;

/// A partly received message of a link.
#[derive(Debug, Default)]
pub struct Parts {
    first: Option<Transfer>,
    message: Assembly,
}

impl Parts {
    /// Takes a frame. If it is the last frame of its message, returns the message with its first
    /// transfer. A message in a single frame is not copied.
    pub fn push(&mut self, transfer: Transfer, payload: Bytes) -> Option<(Transfer, Bytes)> {
        let more = transfer.more;
        let first = self.first.get_or_insert(transfer);
        self.message.push(payload);
        if more {
            return None;
        }
        let first = std::mem::take(first);
        self.first = None;
        Some((first, std::mem::take(&mut self.message).join()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_of_one_message_are_joined() {
        let mut parts = Parts::default();
        let first = Transfer { delivery_id: Some(7), more: true, ..Transfer::default() };
        let next = Transfer { more: true, ..Transfer::default() };
        let whole = Bytes::from_static(b"two coffees");
        assert_eq!(parts.push(first.clone(), Bytes::from_static(b"two ")), None);
        assert_eq!(parts.push(next, Bytes::from_static(b"cof")), None);
        let joined = parts.push(Transfer::default(), Bytes::from_static(b"fees"));
        assert_eq!(joined, Some((first, whole.clone())));
        let single = Transfer { delivery_id: Some(8), ..Transfer::default() };
        assert_eq!(parts.push(single.clone(), whole.clone()), Some((single, whole)));
    }
}

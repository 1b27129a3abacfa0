//! Protocol headers (AMQP 2.2): the eight bytes that a connection begins with, and each of its layers.

/// How many bytes a header has.
pub const HEADER_BYTES: usize = 8;

/// The protocol that follows a header.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Protocol {
    /// AMQP itself.
    Amqp,
    /// Saying who one is.
    Sasl,
}

impl Protocol {
    /// The protocol that eight bytes announce. TLS within the connection (id 2) is not offered, nor is any
    /// other version.
    #[must_use]
    pub const fn read(header: [u8; HEADER_BYTES]) -> Option<Self> {
        match header {
            [b'A', b'M', b'Q', b'P', 0, 1, 0, 0] => Some(Self::Amqp),
            [b'A', b'M', b'Q', b'P', 3, 1, 0, 0] => Some(Self::Sasl),
            _ => None,
        }
    }

    /// The header that announces it.
    #[must_use]
    pub const fn header(self) -> [u8; HEADER_BYTES] {
        match self {
            Self::Amqp => [b'A', b'M', b'Q', b'P', 0, 1, 0, 0],
            Self::Sasl => [b'A', b'M', b'Q', b'P', 3, 1, 0, 0],
        }
    }
}

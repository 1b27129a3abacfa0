//! A frame on its way to a client, in pieces if it is large (RFC 6455, section 5.4): the library keeps a buffer as large
//! as the largest piece that it has ever written on a connection.

use bytes::Bytes;
use tokio_tungstenite::tungstenite::Message as SocketMessage;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use crate::frame::Encoding;
use crate::pieces::PIECE_BYTES;

/// What of a frame was not written.
#[derive(Default)]
pub(super) struct Outgoing {
    rest: Bytes,
    /// What the next piece is.
    next: Option<Data>,
}

impl Outgoing {
    pub(super) const fn new(frame: Bytes, encoding: Encoding) -> Self {
        let kind = match encoding {
            Encoding::Binary => Data::Binary,
            Encoding::Json => Data::Text,
        };
        Self { rest: frame, next: Some(kind) }
    }

    pub(super) const fn is_empty(&self) -> bool {
        self.next.is_none()
    }
}

impl Iterator for Outgoing {
    type Item = SocketMessage;

    fn next(&mut self) -> Option<SocketMessage> {
        let kind = self.next.take()?;
        let most = usize::try_from(PIECE_BYTES).unwrap_or(usize::MAX);
        let piece = self.rest.split_to(self.rest.len().min(most));
        let is_last = self.rest.is_empty();
        if !is_last {
            self.next = Some(Data::Continue);
        }
        Some(SocketMessage::Frame(Frame::message(piece, OpCode::Data(kind), is_last)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 6455, section 5.4: the kind of a message is that of its first piece, the end that of its last.
    #[test]
    fn a_frame_is_written_in_pieces() {
        let piece = usize::try_from(PIECE_BYTES).unwrap();
        let pieces = |length: usize| {
            let outgoing = Outgoing::new(vec![7; length].into(), Encoding::Binary);
            let pieces = outgoing.map(|message| {
                let SocketMessage::Frame(frame) = message else { panic!("{message:?}") };
                let header = frame.header();
                (header.opcode, header.is_final, frame.payload().len())
            });
            pieces.collect::<Vec<_>>()
        };
        let (binary, more) = (OpCode::Data(Data::Binary), OpCode::Data(Data::Continue));
        assert_eq!(pieces(3), [(binary, true, 3)]);
        assert_eq!(pieces(piece), [(binary, true, piece)]);
        let expected = [(binary, false, piece), (more, false, piece), (more, true, 1)];
        assert_eq!(pieces(2 * piece + 1), expected);
    }
}

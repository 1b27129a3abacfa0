//! Splits large frames into pieces (RFC 6455, section 5.4). The connection and the client write
//! them one at a time, because the library keeps a buffer as large as the largest piece that it has
//! ever written on a connection.

use bytes::Bytes;
use peeklock_listen::websocket::PIECE_BYTES;
use tokio_tungstenite::tungstenite::Message as SocketMessage;
use tokio_tungstenite::tungstenite::protocol::frame::Frame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::{Data, OpCode};

use crate::frame::Encoding;

/// The rest of a frame that is being written in pieces.
#[derive(Default)]
pub(crate) struct FramePieces {
    rest: Bytes,
    /// Opcode of the next piece; none if nothing is left.
    next: Option<Data>,
}

impl FramePieces {
    pub(crate) const fn new(frame: Bytes, encoding: Encoding) -> Self {
        let kind = match encoding {
            Encoding::Binary => Data::Binary,
            Encoding::Json => Data::Text,
        };
        Self { rest: frame, next: Some(kind) }
    }

    pub(crate) const fn is_empty(&self) -> bool {
        self.next.is_none()
    }
}

impl Iterator for FramePieces {
    type Item = SocketMessage;

    fn next(&mut self) -> Option<SocketMessage> {
        let kind = self.next.take()?;
        let piece = self.rest.split_to(self.rest.len().min(PIECE_BYTES));
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

    /// RFC 6455, section 5.4: the first piece has the kind of the message, and the last one ends
    /// it.
    #[test]
    fn a_frame_is_written_in_pieces() {
        let piece = PIECE_BYTES;
        let pieces = |length: usize| {
            let frame = FramePieces::new(vec![7; length].into(), Encoding::Binary);
            let pieces = frame.map(|message| {
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

//! Heads and bodies of messages, for operators (CON-02, CON-03).

use bytes::Bytes;

use crate::command::{LoadedMessage, MessageReadError, ReceivedMessage};
use crate::content_ref::ContentRef;
use crate::findings::{BODY_START_BYTES, BodyKind, HeadContent};
use crate::message::Body;

/// Maximum number of bytes that a body is read in at once.
const PIECE_BYTES: usize = 256 << 10;

impl ReceivedMessage {
    /// Reads the properties and the start of the body. `header_size` is the number of bytes of
    /// everything but the body. May wait for the disk.
    ///
    /// # Errors
    /// As for [`ReceivedMessage::load`].
    pub async fn head(&self, _header_size: u32) -> Result<HeadContent, MessageReadError> {
        let LoadedMessage { mut message, dead_letter_source } = self.load().await?;
        let (body_kind, body) = parts(std::mem::take(&mut message.body));
        let start = body.get(..BODY_START_BYTES).unwrap_or(&body);
        message.body = Body::Data(Bytes::copy_from_slice(start));
        let body_bytes = body.len() as u64;
        Ok(HeadContent { message, body_kind, body_bytes, dead_letter_source })
    }

    /// Returns a reader of the body. May wait for the disk.
    ///
    /// # Errors
    /// As for [`ReceivedMessage::load`].
    pub async fn body(&self, _header_size: u32) -> Result<BodyReader, MessageReadError> {
        let (kind, body) = parts(self.load().await?.message.body);
        let length = body.len() as u64;
        Ok(BodyReader { kind, length, rest: body })
    }
}

fn parts(body: Body) -> (BodyKind, Bytes) {
    match body {
        Body::Data(bytes) => (BodyKind::Data, bytes),
        Body::Value(bytes) => (BodyKind::Value, bytes),
        Body::Sequence(bytes) => (BodyKind::Sequence, bytes),
    }
}

/// Bytes of a body or session state, in pieces of at most 256 KiB.
#[derive(Debug)]
pub struct BodyReader {
    kind: BodyKind,
    length: u64,
    rest: Bytes,
}

impl BodyReader {
    /// Returns a reader of a whole content, such as the state of a session. May wait for the disk.
    ///
    /// # Errors
    /// If the store cannot read it.
    pub(crate) async fn of_content(content: ContentRef) -> Result<Self, MessageReadError> {
        let rest = content.load().await?;
        Ok(Self { kind: BodyKind::Data, length: rest.len() as u64, rest })
    }

    /// Kind of the body.
    #[must_use]
    pub const fn kind(&self) -> BodyKind {
        self.kind
    }

    /// Length of the whole body in bytes.
    #[must_use]
    pub const fn length(&self) -> u64 {
        self.length
    }

    /// Returns the next piece; `None` at the end. May wait for the disk.
    ///
    /// # Errors
    /// If the store cannot read it.
    pub async fn next(&mut self) -> Result<Option<Bytes>, MessageReadError> {
        let piece = self.rest.split_to(self.rest.len().min(PIECE_BYTES));
        Ok((!piece.is_empty()).then_some(piece))
    }

    /// Continues at byte `at`, or at the end if the body is shorter. May wait for the disk.
    ///
    /// # Errors
    /// If the store cannot read the bytes before.
    pub async fn skip_to(&mut self, at: u64) -> Result<(), MessageReadError> {
        let passed = self.length - self.rest.len() as u64;
        let count = usize::try_from(at.saturating_sub(passed)).unwrap_or(usize::MAX);
        drop(self.rest.split_to(count.min(self.rest.len())));
        Ok(())
    }
}

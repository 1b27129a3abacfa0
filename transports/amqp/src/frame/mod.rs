//! Frames (AMQP 2.3): how the bytes of a connection are cut, and how they are put together.
//!
//! [`header`] is what stands before all frames, [`Frame::split`] takes one frame off the bytes that
//! came, [`Output`] collects what is to be sent. Payloads are neither copied on the way in, where they are
//! parts of the bytes that came, nor on the way out, where they stand beside the frames around them.

pub mod header;
mod output;

use bytes::{Bytes, BytesMut};

pub use self::output::Output;
use crate::error::AmqpError;

/// The header of a frame: size, offset of the data, type, channel.
pub const FRAME_HEADER_BYTES: usize = 8;

/// No peer may be unable to take frames of this size (AMQP 2.4.1).
pub const FRAME_BYTES_MIN: u32 = 512;

/// What a frame is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// AMQP itself.
    Amqp,
    /// Saying who one is.
    Sasl,
}

/// One frame as it came.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Frame {
    /// What it is for.
    pub kind: Kind,
    /// The channel; without meaning in SASL.
    pub channel: u16,
    /// Everything behind its header.
    pub body: Bytes,
}

impl Frame {
    /// Takes the first frame off `input`, if all of it is there, without copying it. A size above
    /// `bytes_max` is refused before the frame has come.
    ///
    /// # Errors
    /// When there can be no frame.
    pub fn split(input: &mut BytesMut, bytes_max: u32) -> Result<Option<Self>, AmqpError> {
        let Some(&[a, b, c, d, offset, kind, high, low]) = input.first_chunk() else {
            return Ok(None);
        };
        let size = u32::from_be_bytes([a, b, c, d]);
        if size > bytes_max {
            return Err(AmqpError::framing(format!(
                "frame has {size} bytes, at most {bytes_max} are allowed"
            )));
        }
        let size = usize::try_from(size).unwrap_or(usize::MAX);
        let offset = usize::from(offset) * 4;
        if size < FRAME_HEADER_BYTES || offset < FRAME_HEADER_BYTES || offset > size {
            return Err(AmqpError::framing(format!(
                "frame of {size} bytes has its data at byte {offset}"
            )));
        }
        let kind = match kind {
            0 => Kind::Amqp,
            1 => Kind::Sasl,
            other => return Err(AmqpError::framing(format!("frame is of unknown type {other}"))),
        };
        if input.len() < size {
            return Ok(None);
        }
        let body = input.split_to(size).freeze().slice(offset..);
        Ok(Some(Self { kind, channel: u16::from_be_bytes([high, low]), body }))
    }
}

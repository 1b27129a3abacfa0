//! The binary form of frames.
//!
//! ```text
//! client: seen u64, count u32, then each request: length u32, code u8, id u32, body
//! server: seen u64, count u32, then each item:    length u32, code u8, id u32, body
//! ```

use bytes::Bytes;

use super::cost::{self, Allowance};
use super::wire::{Reader, Wire, write_length, write_part};
use super::{BadRequest, ClientFrame, LIST_COUNT_MAX, Operation, Request, ServerFrame};
#[cfg(any(test, feature = "client"))]
use super::{Item, Notice};
use crate::error::FrameError;

pub(crate) fn write_server_frame(frame: &ServerFrame, about: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(about.max(256));
    frame.seen.write(&mut out);
    write_length(&mut out, frame.items.len());
    for item in &frame.items {
        write_part(&mut out, |out| {
            out.push(item.notice.code());
            item.id.write(out);
            item.notice.write_body(out);
        });
    }
    out
}

pub(crate) fn read_client_frame(bytes: &Bytes) -> Result<ClientFrame, FrameError> {
    let mut requests = Vec::new();
    let mut allowance = Allowance::of_frame();
    let seen = parts(bytes, |part| {
        let is_allowed = allowance.take(cost::part_cost(part));
        let code = u8::read(part)?;
        let id = u32::read(part)?;
        let read = |part: &mut Reader<'_>| {
            if !is_allowed {
                return Err(FrameError::TooMuch);
            }
            let operation = Operation::read_body(code, part)?;
            part.end()?;
            Ok(Request { id, operation })
        };
        requests.push(read(part).map_err(|error| BadRequest { id, error }));
        Ok(())
    })?;
    Ok(ClientFrame { seen, requests })
}

/// Calls `take` for each part of a frame; returns its `seen`.
pub(super) fn parts(
    bytes: &Bytes,
    mut take: impl FnMut(&mut Reader<'_>) -> Result<(), FrameError>,
) -> Result<u64, FrameError> {
    let mut reader = Reader::new(bytes);
    let seen = u64::read(&mut reader)?;
    let count = reader.length()?;
    if count > LIST_COUNT_MAX {
        return Err(FrameError::TooMany);
    }
    for _ in 0..count {
        let length = reader.length()?;
        take(&mut reader.part(length)?)?;
    }
    reader.end()?;
    Ok(seen)
}

#[cfg(any(test, feature = "client"))]
pub(crate) fn write_client_frame(seen: u64, requests: &[Request]) -> Vec<u8> {
    let mut out = Vec::with_capacity(256);
    seen.write(&mut out);
    write_length(&mut out, requests.len());
    for request in requests {
        write_part(&mut out, |out| {
            out.push(request.operation.code());
            request.id.write(out);
            request.operation.write_body(out);
        });
    }
    out
}

#[cfg(any(test, feature = "client"))]
pub(crate) fn read_server_frame(bytes: &Bytes) -> Result<ServerFrame, FrameError> {
    let mut items = Vec::new();
    let seen = parts(bytes, |part| {
        let code = u8::read(part)?;
        let id = u32::read(part)?;
        let notice = Notice::read_body(code, part)?;
        part.end()?;
        items.push(Item { id, notice });
        Ok(())
    })?;
    Ok(ServerFrame { seen, items })
}

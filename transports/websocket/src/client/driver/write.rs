//! Turns the requests of handles into frames and writes them. `driver.rs` calls it. A request over
//! the frame limit fails at once and is never sent.

use std::collections::VecDeque;
use std::sync::Arc;

use bytes::Bytes;
use futures_util::SinkExt;
use peeklock_core::condition::Condition;
use peeklock_core::error::Rejection;
use peeklock_json::size_in_json;

use super::{AttachState, ConnectionEnd, Driver, FRAME_BYTES, Socket, Waiting, settle};
use crate::client::core::{AnswerSender, Core, HandleRequest};
use crate::frame::message::SentMessage;
use crate::frame::{Encoding, LIST_COUNT_MAX, Request, client_side};
use crate::operation::{
    CarryOutDeclaration, Decision, DeclarationForm, Detach, ManageOperation, Operation,
    PlanDeclaration, Send, SetSessionState, Withdraw,
};
use crate::unwritten::FramePieces;

/// Number of frames of the broker after which they are confirmed if nothing else is sent.
const CONFIRM_FRAMES: u64 = 16;
/// Number of bytes of the broker after which they are confirmed if nothing else is sent.
const CONFIRM_BYTES: usize = 256 << 10;
/// Maximum number of requests in a frame.
const REQUESTS_MAX: usize = 512;
/// Room in a frame for everything except messages, in bytes.
const FRAME_OVERHEAD: usize = 8 << 10;
/// Upper bound of the fields around a forwarded message, in bytes.
const FORWARDED_OVERHEAD: usize = 256;

/// Error of a request that exceeds every frame.
fn too_large(ask: &HandleRequest, size: u64, most: u64) -> Rejection {
    let label = match ask {
        HandleRequest::Send { .. } => "message for a frame (websocket.frame_bytes_max)",
        HandleRequest::Operation { operation, .. } if declaration(operation).is_some() => {
            let detail = format!(
                "the declaration has {size} bytes, more than the {most} of a frame \
                 (websocket.frame_bytes_max); split it, and put forwarding destinations first"
            );
            return Rejection::new(Condition::MessageSizeExceeded, detail);
        }
        _ => "session state for a frame (websocket.frame_bytes_max)",
    };
    Rejection::message_size_exceeded(label, size, most)
}

/// Returns the declaration that an operation plans or carries out.
fn declaration(operation: &Operation) -> Option<&DeclarationForm> {
    let Operation::Manage(operation) = operation else { return None };
    match &**operation {
        ManageOperation::PlanDeclaration(PlanDeclaration { declaration })
        | ManageOperation::CarryOutDeclaration(CarryOutDeclaration { declaration, .. }) => {
            Some(declaration)
        }
        _ => None,
    }
}

impl Driver {
    /// Whether further requests may be sent; unanswered ones take memory.
    pub(super) fn may_send(&self) -> bool {
        self.waiting.len() < LIST_COUNT_MAX
    }

    /// Sends requests, or a confirmation of frames if there are no requests.
    pub(super) async fn write(&mut self, socket: &mut Socket) -> Option<ConnectionEnd> {
        if self.unflushed {
            return None;
        }
        let core = Arc::clone(&self.core);
        if self.may_send() {
            core.take(&mut self.queued);
        }
        let may_keep = self.resume_token.is_none() || self.kept_bytes < self.kept_bytes_max;
        let requests = if may_keep { self.requests(&core) } else { Vec::new() };
        let is_due = self.resume_token.is_some()
            && (self.seen - self.confirmed >= CONFIRM_FRAMES
                || self.unconfirmed_bytes >= CONFIRM_BYTES);
        if requests.is_empty() && !is_due {
            let is_done = self.waiting.is_empty() && self.queued.is_empty();
            self.knows_closing = core.is_closing();
            return (self.knows_closing && is_done).then_some(ConnectionEnd::Closed);
        }
        let bytes: Bytes = match client_side::encode(self.options.encoding, self.seen, &requests) {
            Ok(bytes) => bytes.into(),
            Err(error) => {
                return Some(ConnectionEnd::Futile(Rejection::argument(error.to_string())));
            }
        };
        self.sent += 1;
        if self.resume_token.is_some() {
            self.kept.push_back(bytes.clone());
            self.kept_bytes += bytes.len();
        }
        (self.confirmed, self.unconfirmed_bytes) = (self.seen, 0);
        self.written_since_tick = true;
        self.outgoing = FramePieces::new(bytes, self.options.encoding);
        self.write_on(socket).await.err()
    }

    /// Writes the next piece of a frame.
    pub(super) async fn write_on(&mut self, socket: &mut Socket) -> Result<(), ConnectionEnd> {
        let Some(piece) = self.outgoing.next() else { return Ok(()) };
        // Only pongs may be buffered as well, so this does not wait.
        socket.feed(piece).await.map_err(|_| ConnectionEnd::Lost)?;
        self.unflushed = true;
        Ok(())
    }

    /// Makes the requests of the next frame. Sends on one link are merged, and so are completions.
    fn requests(&mut self, core: &Arc<Core>) -> Vec<Request> {
        let mut requests: Vec<Request> = Vec::new();
        let mut bytes = 0;
        let limit = FRAME_BYTES.min(self.frame_bytes_max / 2);
        while requests.len() < REQUESTS_MAX && bytes < limit {
            let Some(ask) = self.queued.pop_front() else {
                self.given_back_count = 0;
                break;
            };
            let size = self.size(&ask);
            if size > 0 && size + FRAME_OVERHEAD > self.frame_bytes_max {
                let most = self.frame_bytes_max.saturating_sub(FRAME_OVERHEAD);
                let refused = too_large(&ask, size as u64, most as u64);
                core.fail(ask, &refused);
                continue;
            }
            if !requests.is_empty() && bytes + size + FRAME_OVERHEAD > self.frame_bytes_max {
                // It goes into the next frame.
                self.queued.push_front(ask);
                break;
            }
            let Some(ask) = self.attach_first(core, ask, &mut requests) else { continue };
            bytes += self.request(core, ask, &mut requests).max(size);
        }
        // The link of a consumer is attached even if there are no requests for it.
        let pushed: Vec<u32> = core.links(|links| {
            let wanted = |(number, _): &(&u32, _)| !self.attached.contains_key(number);
            links
                .iter()
                .filter(|(_, link)| link.is_pushed())
                .filter(wanted)
                .map(|(number, _)| *number)
                .collect()
        });
        for number in pushed {
            self.attach(core, number, &mut requests);
        }
        requests
    }

    /// Returns the minimum size of the messages, state or declaration in a request, in bytes; other
    /// requests are small.
    fn size(&self, ask: &HandleRequest) -> usize {
        let content = |message: &SentMessage| match message {
            SentMessage::Content(bytes) => self.size_of(bytes),
            SentMessage::Typed(_) => 0,
        };
        match ask {
            HandleRequest::Send { message, .. } => content(message),
            HandleRequest::Operation { operation, .. } => match &**operation {
                Operation::SetSessionState(SetSessionState { state: Some(bytes), .. }) => {
                    self.size_of(bytes) + self.escapes_of(bytes)
                }
                Operation::Forward(forward) => {
                    let sizes = forward.messages.iter().map(|one| {
                        content(&one.message)
                            + one.dead_letter_source.as_ref().map_or(0, String::len)
                            + FORWARDED_OVERHEAD
                    });
                    sizes.sum()
                }
                other => declaration(other).map_or(0, size_in_json),
            },
            _ => 0,
        }
    }

    /// Returns the additional bytes that the escapes of a text need in JSON.
    fn escapes_of(&self, bytes: &Bytes) -> usize {
        match self.options.encoding {
            Encoding::Binary => 0,
            Encoding::Json => {
                let control = bytes.iter().filter(|byte| **byte < 0x20).count();
                5 * control + bytes.iter().filter(|byte| matches!(byte, b'"' | b'\\')).count()
            }
        }
    }

    fn size_of(&self, bytes: &Bytes) -> usize {
        match self.options.encoding {
            Encoding::Binary => bytes.len(),
            // As Base64; text with many escapes may take more.
            Encoding::Json => bytes.len() * 4 / 3,
        }
    }

    /// Attaches the link of a request if necessary; the request waits until it is attached.
    fn attach_first(
        &mut self,
        core: &Core,
        ask: HandleRequest,
        requests: &mut Vec<Request>,
    ) -> Option<HandleRequest> {
        let number = match &ask {
            HandleRequest::Operation { link: Some(link), .. }
            | HandleRequest::Send { link, .. }
            | HandleRequest::Complete { link, .. } => *link,
            HandleRequest::Operation { link: None, .. }
            | HandleRequest::Accept { .. }
            | HandleRequest::Withdraw { .. }
            | HandleRequest::Forget { .. } => return Some(ask),
        };
        if !self.attached.contains_key(&number) {
            let is_of_session =
                core.links(|links| links.get(&number).is_some_and(|link| link.attach.is_none()));
            if is_of_session {
                let detail = "the session lock ended with its connection";
                core.fail(ask, &Rejection::session_lock_lost(detail));
                return None;
            }
            self.attach(core, number, requests);
        }
        match self.attached.get_mut(&number) {
            Some(AttachState::Asked { held }) => {
                held.push_back(ask);
                None
            }
            Some(AttachState::Done) | None => Some(ask),
        }
    }

    fn attach(&mut self, core: &Core, number: u32, requests: &mut Vec<Request>) {
        let attach = core.links(|links| links.get(&number)?.attach_again());
        let Some(attach) = attach else { return };
        self.attached.insert(number, AttachState::Asked { held: VecDeque::new() });
        let id = self.wait(Waiting::Attach(number));
        requests.push(Request { id, operation: attach });
    }

    /// Adds a request to the frame; returns its approximate size in bytes.
    fn request(&mut self, core: &Core, ask: HandleRequest, requests: &mut Vec<Request>) -> usize {
        const OTHER_BYTES: usize = 64;
        match ask {
            HandleRequest::Operation { key, link, operation, answer } => {
                if answer.as_ref().is_some_and(AnswerSender::is_closed) {
                    return 0;
                }
                if let Operation::Detach(Detach { link, .. }) = &*operation {
                    // No request follows on this link, even when its handle is dropped.
                    core.links(|links| links.remove(link));
                    self.attached.remove(link);
                }
                let is_answered = answer.is_some();
                let id =
                    if is_answered { self.wait(Waiting::One { key, link, answer }) } else { 0 };
                requests.push(Request { id, operation: *operation });
                OTHER_BYTES
            }
            HandleRequest::Send { link, message, answer } => {
                let bytes = match &message {
                    SentMessage::Content(bytes) => bytes.len(),
                    SentMessage::Typed(_) => OTHER_BYTES,
                };
                if let Some(Request { id, operation: Operation::Send(send) }) = requests.last_mut()
                    && send.link == link
                    && send.messages.len() < LIST_COUNT_MAX
                    && let Some(Waiting::Sends(answers)) = self.waiting.get_mut(id)
                {
                    send.messages.push(message);
                    answers.push(answer);
                    return bytes;
                }
                let id = self.wait(Waiting::Sends(vec![answer]));
                let operation = Operation::Send(Send { link, messages: vec![message] });
                requests.push(Request { id, operation });
                bytes
            }
            HandleRequest::Complete { link, token, answer } => {
                if let Some(Request { id, operation: Operation::Settle(settle) }) =
                    requests.last_mut()
                    && settle.link == link
                    && settle.lock_tokens.len() < LIST_COUNT_MAX
                    && let Some(Waiting::Completes(answers)) = self.waiting.get_mut(id)
                {
                    settle.lock_tokens.push(token);
                    answers.push(answer);
                    return OTHER_BYTES;
                }
                let id = self.wait(Waiting::Completes(vec![answer]));
                let operation = Operation::Settle(settle(link, Decision::Complete, vec![token]));
                requests.push(Request { id, operation });
                OTHER_BYTES
            }
            HandleRequest::Accept { key, accept, answer } => {
                if answer.is_closed() {
                    return 0;
                }
                let id = self.wait(Waiting::Accept { key, link: accept.link, answer });
                requests.push(Request { id, operation: Operation::AcceptSession(*accept) });
                OTHER_BYTES
            }
            HandleRequest::Withdraw { key } => {
                let request = self.waiting.iter().find_map(|(id, waiting)| match waiting {
                    Waiting::One { key: of, .. } | Waiting::Accept { key: of, .. }
                        if *of == key =>
                    {
                        Some(*id)
                    }
                    _ => None,
                });
                if let Some(request) = request {
                    let operation = Operation::Withdraw(Withdraw { request });
                    requests.push(Request { id: 0, operation });
                } else if let Some(ask) = self.take_held(key) {
                    core.fail(ask, &Rejection::cancelled("withdrawn before it was sent"));
                }
                OTHER_BYTES
            }
            HandleRequest::Forget { link, release } => {
                core.links(|links| links.remove(&link));
                if self.attached.remove(&link).is_some() {
                    let operation = Operation::Detach(Detach { link, release });
                    requests.push(Request { id: 0, operation });
                }
                OTHER_BYTES
            }
        }
    }

    /// Takes a free request id for a caller that waits.
    fn wait(&mut self, waiting: Waiting) -> u32 {
        loop {
            let id = self.next_id;
            self.next_id = self.next_id.checked_add(1).unwrap_or(1);
            if let std::collections::hash_map::Entry::Vacant(place) = self.waiting.entry(id) {
                place.insert(waiting);
                return id;
            }
        }
    }
}

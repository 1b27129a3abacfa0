//! Reads frames: hands answers to callers and deliveries to consumers. `driver.rs` calls it. Each
//! answer goes to the caller with its number, or is dropped if the caller has gone.

use std::collections::HashMap;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;

use bytes::Bytes;
use futures_util::Stream;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::LockToken;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message as SocketMessage};

use super::open::{may_come_back, refused};
use super::{AttachState, ConnectionEnd, Driver, Socket, Waiting, fail, fail_with, settle};
use crate::client::core::{Core, HandleRequest, PushEvent};
use crate::client::link::received;
use crate::frame::text::Token;
use crate::frame::{Item, Run, client_side};
use crate::operation::{Decision, FailedRange, FailedSend, Messages, Notice, Operation};

/// Maximum number of deliveries that wait to be given back.
const GIVEN_BACK_COUNT_MAX: usize = 16_384;

impl Driver {
    pub(super) async fn read(
        &mut self,
        socket: &mut Socket,
        frame: Option<Result<SocketMessage, SocketError>>,
    ) -> Result<(), ConnectionEnd> {
        let mut frame = Some(frame);
        while let Some(next) = frame {
            let bytes = match next {
                Some(Ok(SocketMessage::Binary(bytes))) => Some(bytes),
                Some(Ok(SocketMessage::Text(text))) => Some(text.into()),
                Some(Ok(SocketMessage::Close(frame))) => {
                    let (code, reason) = frame.map_or((0, String::new()), |frame| {
                        (u16::from(frame.code), frame.reason.to_string())
                    });
                    return Err(if may_come_back(code) {
                        ConnectionEnd::Lost
                    } else {
                        ConnectionEnd::Futile(refused(code, &reason))
                    });
                }
                Some(Ok(SocketMessage::Ping(content))) => {
                    // The library has put the pong into its buffer.
                    self.unflushed = true;
                    self.pongs.add_pong(content.len());
                    None
                }
                Some(Ok(_)) => None,
                Some(Err(_)) | None => return Err(ConnectionEnd::Lost),
            };
            self.read_since_tick = true;
            if let Some(bytes) = bytes {
                self.take(&bytes)?;
            }
            if !self.pongs.may_read() {
                break;
            }
            frame = poll_fn(|context| {
                Poll::Ready(match Pin::new(&mut *socket).poll_next(context) {
                    Poll::Ready(next) => Some(next),
                    Poll::Pending => None,
                })
            })
            .await;
        }
        Ok(())
    }

    fn take(&mut self, bytes: &Bytes) -> Result<(), ConnectionEnd> {
        let core = Arc::clone(&self.core);
        let frame = client_side::decode(self.options.encoding, bytes).map_err(|error| {
            ConnectionEnd::Futile(Rejection::internal(format!("a frame of the broker {error}")))
        })?;
        self.seen += 1;
        self.unconfirmed_bytes += bytes.len();
        self.confirm(frame.seen);
        for Item { id, notice } in frame.items {
            if id == 0 {
                self.pushed(&core, notice);
            } else if let Some(waiting) = self.waiting.remove(&id) {
                self.answer(&core, waiting, notice);
            }
        }
        Ok(())
    }

    /// Notes that the broker has taken `received` frames in total.
    pub(super) fn confirm(&mut self, received: u64) {
        let before = self.sent - self.kept.len() as u64;
        for _ in before..received.min(self.sent) {
            let bytes = self.kept.pop_front().map_or(0, |bytes| bytes.len());
            self.kept_bytes = self.kept_bytes.saturating_sub(bytes);
        }
    }

    fn pushed(&mut self, core: &Core, notice: Notice) {
        match notice {
            Notice::Deliveries(deliveries) => {
                let target = core.links(|links| links.get(&deliveries.link)?.pushed.clone());
                for message in deliveries.messages {
                    let lock = message.facts.lock;
                    let pushed = PushEvent::Message(Box::new(received(message)));
                    let is_taken =
                        target.as_ref().is_some_and(|target| target.send(pushed).is_ok());
                    if let Some(lock) = lock.filter(|_| !is_taken) {
                        self.give_back(deliveries.link, lock.token);
                    }
                }
            }
            Notice::Detached(detached) => {
                let error = detached.error.into_error();
                let target = core.links(|links| links.get(&detached.link)?.pushed.clone());
                if let Some(target) = target {
                    target.send(PushEvent::Detached(error)).ok();
                }
            }
            Notice::Error(error) => {
                let error = error.into_error();
                tracing::debug!(%error, "a request without a response failed");
            }
            _ => {}
        }
    }

    /// Removes a call that waits for the attachment of its link.
    pub(super) fn take_held(&mut self, key: u64) -> Option<HandleRequest> {
        self.attached.values_mut().find_map(|attached| {
            let AttachState::Asked { held } = attached else { return None };
            let is_it = |ask: &HandleRequest| matches!(ask, HandleRequest::Operation { key: of, .. } if *of == key);
            let place = held.iter().position(is_it)?;
            held.remove(place)
        })
    }

    /// Releases a message that no caller takes (RCV-14). Beyond `GIVEN_BACK_COUNT_MAX` its lock
    /// expires instead; a broker that keeps to the credit does not reach the limit.
    fn give_back(&mut self, link: u32, token: LockToken) {
        if self.given_back_count >= GIVEN_BACK_COUNT_MAX {
            return;
        }
        self.given_back_count += 1;
        let release = settle(link, Decision::Release, vec![Token(token)]);
        let operation = Box::new(Operation::Settle(release));
        let ask = HandleRequest::Operation { key: 0, link: Some(link), operation, answer: None };
        self.queued.push_back(ask);
    }

    fn answer(&mut self, core: &Arc<Core>, waiting: Waiting, notice: Notice) {
        match (waiting, notice) {
            (Waiting::Attach(link), notice) => self.attached_answer(core, link, notice),
            (waiting, Notice::Error(error)) => fail_with(waiting, &error.into_error()),
            (Waiting::Accept { link, answer, .. }, notice) => {
                self.attached.insert(link, AttachState::Done);
                if answer.send(Ok(notice)).is_err() {
                    // The future was dropped, so the granted session is released (SES-08).
                    self.queued.push_back(HandleRequest::Forget { link, release: false });
                }
            }
            (Waiting::One { link, answer: Some(answer), .. }, notice) => {
                // The future of a receive was dropped, so its messages are given back.
                if let Err(Ok(Notice::Received(Messages { messages }))) = answer.send(Ok(notice))
                    && let Some(link) = link
                {
                    for lock in messages.iter().filter_map(|message| message.facts.lock) {
                        self.give_back(link, lock.token);
                    }
                }
            }
            (Waiting::Sends(answers), Notice::Accepted(accepted)) => {
                let numbers = Run::expand(&accepted.sequence_numbers, answers.len());
                let mut failed: HashMap<u32, BrokerError> = accepted
                    .failed
                    .into_iter()
                    .map(|FailedSend { index, error }| (index, error.into_error()))
                    .collect();
                for ((place, answer), number) in (0..).zip(answers).zip(numbers) {
                    answer.send(failed.remove(&place).map_or(Ok(number), Err)).ok();
                }
            }
            (Waiting::Completes(answers), Notice::Settled(settled)) => {
                let mut answers: Vec<_> = answers.into_iter().map(Some).collect();
                for FailedRange { from, to, error } in settled.failed {
                    for place in from..=to {
                        let place = usize::try_from(place).ok();
                        let answer = place.and_then(|place| answers.get_mut(place)?.take());
                        if let Some(answer) = answer {
                            answer.send(Err(error.clone().into_error())).ok();
                        }
                    }
                }
                for answer in answers.into_iter().flatten() {
                    answer.send(Ok(())).ok();
                }
            }
            (waiting, _) => fail(core, waiting, &Rejection::internal("unexpected answer")),
        }
    }

    fn attached_answer(&mut self, core: &Arc<Core>, link: u32, notice: Notice) {
        let Some(AttachState::Asked { held }) = self.attached.remove(&link) else {
            // The link was dropped meanwhile, and its detach follows the attach.
            return;
        };
        match notice {
            Notice::Error(error) => {
                let error = error.into_error();
                for ask in held {
                    let rejection = error.rejection().clone();
                    let make = || {
                        BrokerError::new(
                            rejection.clone(),
                            error.tracking_id(),
                            error.entity(),
                            error.timestamp(),
                        )
                    };
                    match ask {
                        HandleRequest::Operation { answer: Some(answer), .. } => {
                            drop(answer.send(Err(make())));
                        }
                        HandleRequest::Send { answer, .. } => drop(answer.send(Err(make()))),
                        HandleRequest::Complete { answer, .. } => drop(answer.send(Err(make()))),
                        other => core.fail(other, &rejection),
                    }
                }
                let pushed = core.links(|links| {
                    let pushed = links.get(&link)?.pushed.clone();
                    // A consumer gets the error once; its link is not attached again.
                    if let (Some(link), true) = (links.get_mut(&link), pushed.is_some()) {
                        link.pushed = None;
                    }
                    pushed
                });
                if let Some(pushed) = pushed {
                    pushed.send(PushEvent::Detached(error)).ok();
                }
            }
            _ => {
                self.attached.insert(link, AttachState::Done);
                for ask in held.into_iter().rev() {
                    self.queued.push_front(ask);
                }
            }
        }
    }
}

//! An actix actor as receiver: messages come as mail, the handler's outcome settles them.

use std::sync::Arc;

use actix::Recipient;
use futures_util::StreamExt;
use futures_util::stream::FuturesUnordered;
use peeklock_core::Entity;
use peeklock_core::call::submit_unanswered;
use peeklock_core::command::{Command, Drain, LinkEnd, Outcome, ReceiveMode, Settlement};
use peeklock_core::contract::Action;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::{LockToken, ReceiverId};
use peeklock_core::message::{Overlay, Value};
use peeklock_core::request::{Outlet, Released, Reply, Request};
use tokio::sync::{mpsc, oneshot};

use crate::{Client, Received};

/// Bytes of messages that may be on their way to a consumer at once.
const WINDOW_BYTES: u64 = 16 << 20;
/// Answers to settlements carry this number plus the size of their message; others carry 0.
const SETTLEMENTS: u64 = 1;

/// A message for an actor. Its handler answers `Ok` to complete it, or says what else becomes of it;
/// a handler that panics, and an actor that is gone, abandon it.
#[derive(actix::Message, Debug)]
#[rtype(result = "Result<(), Refusal>")]
pub struct Delivery {
    /// The message.
    pub message: Received,
}

/// What becomes of a message that a handler does not complete.
#[derive(Clone, Debug, PartialEq)]
pub enum Refusal {
    /// Available again, counted as a failed delivery (SET-03).
    Abandon {
        /// Application properties to set.
        properties: Vec<(String, Value)>,
    },
    /// Set aside, to be received by number (DEF-01).
    Defer,
    /// Moved to the dead-letter queue (SET-05).
    DeadLetter {
        /// Why, for programs.
        reason: String,
        /// Why, for people.
        description: String,
    },
}

/// How a consumer takes messages.
#[derive(Clone, Copy, Debug)]
pub struct ConsumerOptions {
    /// Messages that its actor may hold at once; the credit of the link (RCV-16). At least 1.
    pub concurrent_max: u32,
}

impl Default for ConsumerOptions {
    fn default() -> Self {
        Self { concurrent_max: 16 }
    }
}

/// A running consumer. Dropping it stops it as [`Consumer::stop`] does, without waiting.
#[derive(Debug)]
pub struct Consumer {
    stop: Option<oneshot::Sender<()>>,
    ended: oneshot::Receiver<Option<BrokerError>>,
}

impl Client {
    /// Lets an actor receive from a queue or sub-queue under peek-lock, as long as the consumer that
    /// is returned lives. To be called inside a tokio or actix runtime, whose task it uses.
    ///
    /// # Errors
    /// `EntityNotFound`, `EntityDisabled`, `QuotaExceeded`.
    pub async fn consume(
        &self,
        path: &str,
        recipient: Recipient<Delivery>,
        options: ConsumerOptions,
    ) -> Result<Consumer, BrokerError> {
        let entity = self.access().entity(path, Action::Receive).await?;
        let receiver = self.broker().receiver_id();
        let (mail, arrivals) = mpsc::unbounded_channel();
        let outlet: Arc<dyn Outlet> = Arc::new(Arrivals { mail });
        let (answer, answered) = oneshot::channel();
        let answer = std::sync::Mutex::new(Some(answer));
        let attach = Attaching { outlet: Arc::clone(&outlet), answer };
        submit(
            &entity,
            Command::Attach { receiver, mode: ReceiveMode::PeekLock },
            Arc::new(attach),
            0,
        );
        let link = AttachedLink { entity, receiver };
        let entity = &link.entity;
        match answered.await {
            Ok(Ok(_)) => {}
            Ok(Err(rejection)) => return Err(entity.refuse(rejection)),
            Err(_) => return Err(entity.refuse(Rejection::internal("the link was not answered"))),
        }
        let (stop, stopped) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        let task = Task {
            link,
            recipient,
            outlet,
            concurrent_max: u64::from(options.concurrent_max.max(1)),
            settled: 0,
            settled_bytes: 0,
        };
        tokio::spawn(async move {
            end.send(task.run(arrivals, stopped).await).ok();
        });
        Ok(Consumer::new(stop, ended))
    }
}

impl Consumer {
    pub(crate) const fn new(
        stop: oneshot::Sender<()>,
        ended: oneshot::Receiver<Option<BrokerError>>,
    ) -> Self {
        Self { stop: Some(stop), ended }
    }

    /// Takes no further message, lets the actor finish those it has, and closes the link.
    pub async fn stop(mut self) {
        self.stop.take();
        (&mut self.ended).await.ok();
    }

    /// Waits until the consumer ends by itself: because the entity closed its link, with the
    /// reason, or because its actor is gone.
    pub async fn ended(mut self) -> Option<BrokerError> {
        let ended = (&mut self.ended).await.ok().flatten();
        self.stop.take();
        ended
    }
}

/// What the entity sends, in order. The link's credit bounds how much.
struct Arrivals {
    mail: mpsc::UnboundedSender<Released>,
}

impl Outlet for Arrivals {
    fn release(&self, group: Vec<Released>) {
        for item in group {
            // Nobody takes it any more: the detach that follows releases its lock.
            self.mail.send(item).ok();
        }
    }
}

/// Takes the answer to the attach; everything else goes to the task.
struct Attaching {
    outlet: Arc<dyn Outlet>,
    answer: std::sync::Mutex<Option<oneshot::Sender<Result<Outcome, Rejection>>>>,
}

impl Outlet for Attaching {
    fn release(&self, group: Vec<Released>) {
        for item in group {
            match item {
                Released::Answer { result, .. } => {
                    let answer = self
                        .answer
                        .lock()
                        .unwrap_or_else(std::sync::PoisonError::into_inner)
                        .take();
                    if let Some(answer) = answer {
                        answer.send(result).ok();
                    }
                }
                other => self.outlet.release(vec![other]),
            }
        }
    }
}

/// An attached link. Its end detaches it, however it comes: what was delivered and not handed to the
/// actor goes back uncounted (RCV-14).
struct AttachedLink {
    entity: Entity,
    receiver: ReceiverId,
}

impl Drop for AttachedLink {
    fn drop(&mut self) {
        let detach = Command::Detach { receiver: self.receiver, end: LinkEnd::ByBroker };
        submit_unanswered(&self.entity, vec![detach]);
    }
}

struct Task {
    link: AttachedLink,
    recipient: Recipient<Delivery>,
    outlet: Arc<dyn Outlet>,
    concurrent_max: u64,
    settled: u64,
    settled_bytes: u64,
}

/// What the actor said about a message.
struct Verdict {
    token: Option<LockToken>,
    size: u32,
    settlement: Settlement,
    actor_gone: bool,
}

impl Task {
    async fn run(
        mut self,
        mut arrivals: mpsc::UnboundedReceiver<Released>,
        mut stopped: oneshot::Receiver<()>,
    ) -> Option<BrokerError> {
        let mut in_hand = FuturesUnordered::new();
        let mut unanswered = 0u64;
        let mut closing = false;
        let mut detached = None;
        self.grant();
        loop {
            tokio::select! {
                biased;
                Some(verdict) = in_hand.next(), if !in_hand.is_empty() => {
                    let Verdict { token, size, settlement, actor_gone } = verdict;
                    if let Some(token) = token {
                        let command = Command::Settle { token, settlement };
                        self.submit(command, SETTLEMENTS + u64::from(size));
                        unanswered += 1;
                    }
                    closing |= actor_gone;
                }
                _ = &mut stopped, if !closing => closing = true,
                item = arrivals.recv() => match item {
                    Some(Released::Delivery { message, .. }) if !closing => {
                        in_hand.push(hand_over(
                            self.recipient.clone(),
                            self.link.entity.clone(),
                            *message,
                        ));
                    }
                    Some(Released::Answer { correlation, result }) if correlation >= SETTLEMENTS => {
                        // Credit comes back when the settlement is durable: an actor that takes one
                        // at a time sees an abandoned message before the ones behind it.
                        unanswered -= 1;
                        self.settled += 1;
                        self.settled_bytes += correlation - SETTLEMENTS;
                        if let Err(rejection) = result {
                            // It came too late: the message is delivered again (SET-25).
                            let (entity, detail) = (self.link.entity.path(), rejection.detail());
                            tracing::debug!(entity, detail, "settlement refused");
                        }
                        if !closing {
                            self.grant();
                        }
                    }
                    Some(Released::Detached { reason, .. }) => {
                        // What the actor has in hand can still be settled (ENT-25).
                        detached = Some(self.link.entity.refuse(reason));
                        closing = true;
                    }
                    Some(Released::Delivery { .. } | Released::Answer { .. }) => {}
                    None => break,
                },
            }
            if closing && in_hand.is_empty() && unanswered == 0 {
                break;
            }
        }
        detached
    }

    /// Lets the link have as many messages as the actor may still take.
    fn grant(&self) {
        let grant = Command::Grant {
            receiver: self.link.receiver,
            delivery_limit: self.settled + self.concurrent_max,
            byte_limit: self.settled_bytes + WINDOW_BYTES,
            drain: Drain::No,
        };
        self.submit(grant, 0);
    }

    fn submit(&self, command: Command, correlation: u64) {
        submit(&self.link.entity, command, Arc::clone(&self.outlet), correlation);
    }
}

async fn hand_over(
    recipient: Recipient<Delivery>,
    entity: Entity,
    message: peeklock_core::command::ReceivedMessage,
) -> Verdict {
    let (token, size) = (message.facts.lock.map(|lock| lock.token), message.facts.size);
    let abandon = || Settlement::Abandon { properties: None };
    let message = match Received::load(message).await {
        Ok(message) => message,
        Err(rejection) => {
            tracing::error!(error = %entity.refuse(rejection), "message is abandoned");
            return Verdict { token, size, settlement: abandon(), actor_gone: false };
        }
    };
    let (settlement, actor_gone) = match recipient.send(Delivery { message }).await {
        Ok(outcome) => (settlement_of(outcome, &entity), false),
        Err(_) => (abandon(), true),
    };
    Verdict { token, size, settlement, actor_gone }
}

/// What a handler's outcome does to its message.
pub(crate) fn settlement_of(outcome: Result<(), Refusal>, entity: &Entity) -> Settlement {
    let limits = &entity.broker().settings().limits;
    match outcome {
        Ok(()) => Settlement::Complete,
        Err(Refusal::Abandon { properties }) => {
            let overlay = (!properties.is_empty()).then(|| Overlay::encode(&properties).ok());
            Settlement::Abandon { properties: overlay.flatten() }
        }
        Err(Refusal::Defer) => Settlement::Defer { properties: None },
        Err(Refusal::DeadLetter { reason, description }) => {
            let cut = |text: &str, chars: usize| text.chars().take(chars).collect::<String>();
            let reason = cut(&reason, limits.dead_letter_reason_chars_max);
            let description = cut(&description, limits.dead_letter_description_chars_max);
            Settlement::dead_letter(Some(&reason), Some(&description), &[], limits)
                .unwrap_or(Settlement::Abandon { properties: None })
        }
    }
}

fn submit(entity: &Entity, command: Command, outlet: Arc<dyn Outlet>, correlation: u64) {
    entity.submit(vec![Request {
        ticket: entity.broker().ticket(),
        sub_queue: entity.sub_queue(),
        command,
        reply: Reply::new(outlet, correlation, None),
    }]);
}

//! The route to another broker. The broker core calls it with lists of messages. It sends the next
//! list only after the answer to the previous one, which keeps the order.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use peeklock_core::contract::{Forwarder, Outgoing, Route, Source, Verdict};
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::machine::peers::PeerSource;
use peeklock_core::message::ContentError;
use peeklock_websocket::client::{ClientOptions, PeerMessage, PeerSender};
use tokio::time::{Instant, timeout_at};

use crate::config::PeerConfig;
use crate::connector::PeerConnector;
use crate::target::{PLAIN, SECURE, Target};
use crate::verdict;

/// Time limit of a call of `forward`, within the broker's limit.
const CALL_TIME: Duration = Duration::from_secs(15);
/// Maximum bytes of a list; a larger message is a list of its own.
const LIST_BYTES_MAX: usize = 1 << 20;
/// Time for which the other broker is asked to keep a lost connection.
const GRACE: Duration = Duration::from_secs(10);
/// Maximum size of a received frame: a welcome, or the results of a list.
const FRAME_BYTES_MAX: usize = 64 << 10;
/// Maximum pause before reconnecting.
const PAUSE_MAX: Duration = Duration::from_secs(1);

/// Forwards to queues of other brokers, for the schemes `peeklock+wss` and `peeklock+ws`.
pub struct PeerForwarder {
    config: PeerConfig,
}

impl PeerForwarder {
    /// Creates a forwarder with these settings.
    #[must_use]
    pub const fn new(config: PeerConfig) -> Self {
        Self { config }
    }
}

impl Forwarder for PeerForwarder {
    fn name(&self) -> &'static str {
        "peeklock"
    }

    fn schemes(&self) -> &'static [&'static str] {
        &[SECURE, PLAIN]
    }

    fn check(&self, destination: &str) -> Result<(), Rejection> {
        Target::parse(destination, &self.config.reach).map(|_| ())
    }

    fn route(&self, destination: &str, source: Source) -> Result<Box<dyn Route>, Rejection> {
        let target = Target::parse(destination, &self.config.reach)?;
        Ok(Box::new(PeerRoute {
            name: format!("{}/{}", target.authority, target.path),
            target,
            source,
            config: self.config.clone(),
            link: None,
            is_outage_logged: false,
        }))
    }
}

/// Route from one entity to one queue of another broker.
struct PeerRoute {
    target: Target,
    /// The destination for logs and error texts.
    name: String,
    source: Source,
    config: PeerConfig,
    /// The connection once it exists; it reconnects by itself for a while.
    link: Option<PeerSender>,
    /// Whether the outage of the other broker was already logged.
    is_outage_logged: bool,
}

#[async_trait]
impl Route for PeerRoute {
    async fn forward(&mut self, messages: &[Outgoing]) -> Vec<Verdict> {
        let deadline = Instant::now() + CALL_TIME;
        let mut verdicts = Vec::with_capacity(messages.len());
        while verdicts.len() < messages.len() {
            let rest = messages.get(verdicts.len()..).unwrap_or_default();
            let is_done = self.send_next(rest, deadline, &mut verdicts).await;
            if is_done == Progress::Stopped {
                break;
            }
        }
        if verdicts.is_empty() {
            // An outage is not the message's fault.
            verdicts.extend(messages.first().map(|_| Verdict::Postponed { retry_after: None }));
        }
        verdicts
    }
}

/// Whether to send the rest of the list.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Progress {
    GoesOn,
    Stopped,
}

impl PeerRoute {
    /// Sends the first of these messages, as many as fit into a list, and adds their verdicts.
    async fn send_next(
        &mut self,
        messages: &[Outgoing],
        deadline: Instant,
        verdicts: &mut Vec<Verdict>,
    ) -> Progress {
        let list = match list(messages) {
            Ok(list) => list,
            Err(error) => {
                // Cannot happen for a message that was sent, and a retry would not help.
                verdicts.push(Verdict::Refused {
                    reason: "UnreadableMessage".into(),
                    description: error.to_string().into(),
                });
                return Progress::Stopped;
            }
        };
        let count = list.len();
        let Ok(answer) = timeout_at(deadline, self.send_list(list)).await else {
            // A late answer could not be matched, so drop the connection and send the list again.
            self.link = None;
            self.log_unreachable("the broker did not answer in time");
            return Progress::Stopped;
        };
        match answer {
            Ok(results) => {
                self.is_outage_logged = false;
                let is_whole = results.len() >= count;
                for result in results {
                    let verdict = match result {
                        Ok(()) => Verdict::Delivered,
                        Err(error) => {
                            match verdict::of_error(&error, &self.name, self.source.sub_queue) {
                                Some(verdict) => verdict,
                                None => return Progress::Stopped,
                            }
                        }
                    };
                    let is_taken = matches!(verdict, Verdict::Delivered);
                    verdicts.push(verdict);
                    // Offer the messages after this one only after its verdict is stored; otherwise
                    // they could be stored first if the verdict is lost (FWD-10).
                    if !is_taken {
                        return Progress::Stopped;
                    }
                }
                if is_whole { Progress::GoesOn } else { Progress::Stopped }
            }
            Err(error) => self.list_failed(&error, count, verdicts),
        }
    }

    /// Handles a rejected list, or one with an unknown result.
    fn list_failed(
        &mut self,
        error: &BrokerError,
        count: usize,
        verdicts: &mut Vec<Verdict>,
    ) -> Progress {
        use peeklock_core::condition::Condition;
        // A message too large for a frame is a list of its own.
        let is_single = count == 1 && error.condition() == Condition::MessageSizeExceeded;
        let verdict = if is_single {
            verdict::of_error(error, &self.name, self.source.sub_queue)
        } else {
            verdict::of_list_error(error, &self.name, self.source.sub_queue)
        };
        match verdict {
            None => {
                self.link = None;
                self.log_unreachable(error.detail());
                Progress::Stopped
            }
            Some(verdict @ Verdict::Refused { .. }) => {
                verdicts.extend(std::iter::repeat_n(verdict, count));
                Progress::Stopped
            }
            Some(verdict) => {
                self.link = None;
                verdicts.push(verdict);
                Progress::Stopped
            }
        }
    }

    async fn send_list(
        &mut self,
        list: Vec<PeerMessage>,
    ) -> Result<Vec<Result<(), BrokerError>>, BrokerError> {
        let link = match self.link.take() {
            Some(link) => link,
            None => self.connect().await?,
        };
        self.link.insert(link).forward(list).await
    }

    async fn connect(&self) -> Result<PeerSender, BrokerError> {
        let (host, port) = (self.target.place.host(), self.target.place.port());
        let token = self.config.tokens.iter().find(|(pattern, _)| pattern.fits(host, port));
        let mut options = ClientOptions::default();
        if let Some((_, token)) = token {
            token.apply_to(&mut options);
        }
        options.name = Some(format!("forwarder of {}", self.source.path).into());
        options.grace = GRACE;
        options.pause_max = PAUSE_MAX;
        options.give_up_after = Some(CALL_TIME);
        options.connect_timeout = self.config.connect_timeout;
        options.frame_bytes_max = FRAME_BYTES_MAX;
        options.connector = Some(Arc::new(PeerConnector {
            reach: self.config.reach.clone(),
            place: self.target.place.clone(),
            time: self.config.connect_timeout,
        }));
        let source = PeerSource {
            broker: self.source.broker,
            entity: self.source.entity,
            sub_queue: self.source.sub_queue,
        };
        PeerSender::connect(&self.target.url(), options, &self.target.path, source).await
    }

    /// Logs once that messages wait for the other broker.
    fn log_unreachable(&mut self, why: &str) {
        if !std::mem::replace(&mut self.is_outage_logged, true) {
            let (entity, destination) = (&*self.source.path, &*self.name);
            tracing::warn!(
                entity,
                destination,
                why,
                "cannot reach the destination broker; messages wait"
            );
        }
    }
}

/// Returns the first messages that fit into one list.
fn list(messages: &[Outgoing]) -> Result<Vec<PeerMessage>, ContentError> {
    let mut list = Vec::new();
    let mut bytes = 0;
    for outgoing in messages {
        let message = match peer_message(outgoing) {
            Ok(message) => message,
            Err(error) if list.is_empty() => return Err(error),
            // This message comes first in the next call.
            Err(_) => break,
        };
        bytes += message.content.as_bytes().len();
        if bytes > LIST_BYTES_MAX && !list.is_empty() {
            break;
        }
        list.push(message);
    }
    Ok(list)
}

fn peer_message(outgoing: &Outgoing) -> Result<PeerMessage, ContentError> {
    let facts = &outgoing.facts;
    let first = match facts.enqueued_sequence {
        SequenceNumber(0) => facts.sequence,
        first => first,
    };
    // An unchanged message is forwarded byte for byte (AMQ-20).
    let content = match outgoing.overlays.is_empty() {
        true => outgoing.content.clone(),
        false => outgoing.message()?.encode(),
    };
    Ok(PeerMessage {
        sequence: facts.sequence,
        enqueued_sequence: first,
        enqueued_at: facts.enqueued_at,
        hops: outgoing.hops,
        copies_spent: outgoing.copies_spent,
        dead_letter_source: outgoing.dead_letter_source.clone(),
        never_duplicate: outgoing.never_duplicate,
        content,
    })
}

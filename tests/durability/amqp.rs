//! An AMQP client of the load: sends, receives and settles one request at a time, and settles
//! deliveries with dispositions.

use std::collections::{HashMap, HashSet};
use std::io;
use std::net::TcpStream;

use bytes::Bytes;
use peeklock::condition::Condition;
use peeklock::ids::LockToken;
use peeklock::message::{Message, Value};
use peeklock::time::Timestamp;
use peeklock_amqp::codec::value::{Map, Raw};
use peeklock_amqp::error::AmqpError;
use peeklock_amqp::message::BATCH_FORMAT;
use peeklock_amqp::performative::{
    Attach, Disposition, Performative, Role, SenderSettleMode, Transfer,
};
use peeklock_amqp::state::{DeliveryState, Modified, Outcome as State, Rejected};
use peeklock_amqp_testing::client::{Delivered, Parts, link};

use crate::client::{Draft, Held, Received};
use crate::connection::{ANSWER_TIME_MAX, Lost};
use crate::ledger::{Outcome, Part, Print, Seen, Standing, Verdict, message_id};
use crate::links::Amqp;

/// More frames than a round needs.
const WINDOW: u32 = i32::MAX.cast_unsigned();

/// A client with at most one connection to a broker at a time.
pub struct Links {
    address: String,
    open: Option<Open>,
    /// Lock tokens of deliveries that were unsettled when their connection was dropped.
    dropped: HashSet<String>,
}

struct Open {
    amqp: Amqp,
    links: HashMap<(String, Way), Link>,
    /// Unsettled deliveries by their lock tokens.
    unsettled: HashMap<String, u32>,
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
enum Way {
    Send,
    Receive(Part, bool),
}

#[derive(Clone, Copy)]
struct Link {
    handle: u32,
    /// Delivery count of the link: received messages and drained credit.
    delivery_count: u32,
}

impl Links {
    pub fn new(address: String) -> Self {
        Self { address, open: None, dropped: HashSet::new() }
    }

    /// Drops the connection without a close. Its locks stay, and their tokens settle over other
    /// transports (SET-21, SET-24).
    pub fn drop_connection(&mut self) {
        let unsettled = self.open.take().map(|open| open.unsettled);
        self.dropped.extend(unsettled.into_iter().flatten().map(|(token, _)| token));
    }

    /// Whether a lock was unsettled when its connection was dropped.
    pub fn has_dropped(&self, token: &str) -> bool {
        self.dropped.contains(token)
    }

    /// Sends messages, all or none. AMQP does not return their sequence numbers.
    ///
    /// # Errors
    /// [`Lost`]
    pub fn send(&mut self, queue: &str, drafts: &[Draft]) -> Result<Outcome, Lost> {
        let (open, link) = self.link(queue, Way::Send)?;
        let (format, bytes) = match drafts {
            [draft] => (0, written(draft)),
            _ => (BATCH_FORMAT, batch(drafts)),
        };
        let mut send = || {
            let id = open.amqp.send(link.handle, format, &bytes)?;
            open.outcome(Role::Receiver, id)
        };
        send().map_err(unanswered)
    }

    /// Receives available messages without waiting.
    ///
    /// # Errors
    /// [`Lost`]
    pub fn receive(
        &mut self,
        queue: &str,
        part: Part,
        deletes: bool,
        count_max: u64,
    ) -> Result<Received, Lost> {
        let way = Way::Receive(part, deletes);
        let (open, link) = self.link(queue, way)?;
        let credit = u32::try_from(count_max).unwrap();
        let (received, link) = open.drain(link, credit).map_err(unanswered)?;
        open.links.insert((queue.to_owned(), way), link);
        Ok(received)
    }

    /// Whether a lock token belongs to a delivery of this connection.
    pub fn has(&self, token: &str) -> bool {
        self.open.as_ref().is_some_and(|open| open.unsettled.contains_key(token))
    }

    /// Settles a delivery of this connection.
    ///
    /// # Errors
    /// [`Lost`]
    pub fn settle(
        &mut self,
        held: &Held,
        verdict: Verdict,
        mark: Option<&String>,
        reason: Option<&String>,
        delay_ms: Option<u64>,
    ) -> Result<Outcome, Lost> {
        let lost = || Lost::NotSent("no connection".to_owned());
        let open = self.open.as_mut().ok_or_else(lost)?;
        let first = open.unsettled.remove(&held.token).ok_or_else(lost)?;
        let state = Some(DeliveryState::Outcome(decision(verdict, mark, reason, delay_ms)));
        let role = Role::Receiver;
        let settle = || {
            open.amqp.say(&Disposition { role, first, state, ..Disposition::default() })?;
            open.outcome(Role::Sender, first)
        };
        settle().map_err(unanswered)
    }

    /// Returns a link of this kind, and attaches it if necessary.
    fn link(&mut self, queue: &str, way: Way) -> Result<(&mut Open, Link), Lost> {
        let attached = self.attached(queue, way);
        let link = attached.map_err(|error| Lost::NotSent(error.to_string()))?;
        let open = self.open.as_mut().ok_or_else(|| Lost::NotSent("no connection".to_owned()))?;
        Ok((open, link))
    }

    fn attached(&mut self, queue: &str, way: Way) -> io::Result<Link> {
        let open = match &mut self.open {
            Some(open) => open,
            None => {
                let stream = TcpStream::connect(&self.address)?;
                stream.set_nodelay(true)?;
                stream.set_read_timeout(Some(ANSWER_TIME_MAX))?;
                stream.set_write_timeout(Some(ANSWER_TIME_MAX))?;
                let amqp = Amqp::open(stream, WINDOW)?;
                let (links, unsettled) = (HashMap::new(), HashMap::new());
                self.open.insert(Open { amqp, links, unsettled })
            }
        };
        let key = (queue.to_owned(), way);
        if let Some(link) = open.links.get(&key) {
            return Ok(*link);
        }
        let handle = u32::try_from(open.links.len()).unwrap();
        open.amqp.attach(&attach(handle, queue, way))?;
        let link = Link { handle, delivery_count: 0 };
        open.links.insert(key, link);
        Ok(link)
    }
}

fn attach(handle: u32, queue: &str, way: Way) -> Attach {
    let name = format!("link {handle}");
    match way {
        Way::Send => link::sender(&name, handle, queue),
        Way::Receive(part, deletes) => {
            let suffix = match part {
                Part::Main => "",
                Part::DeadLetter => "/$DeadLetterQueue",
            };
            let mode =
                if deletes { SenderSettleMode::Settled } else { SenderSettleMode::Unsettled };
            let attach = link::receiver(&name, handle, &format!("{queue}{suffix}"));
            Attach { snd_settle_mode: Some(mode), ..attach }
        }
    }
}

impl Open {
    /// Waits for the outcome of a delivery, which the broker sends in this role.
    fn outcome(&mut self, by: Role, id: u32) -> io::Result<Outcome> {
        loop {
            match self.amqp.hear()?.0 {
                Performative::Disposition(Disposition {
                    role,
                    first,
                    last,
                    settled,
                    state,
                    ..
                }) if role == by && (first..=last.unwrap_or(first)).contains(&id) => {
                    if !settled {
                        return Err(io::Error::other("an answer is settled"));
                    }
                    return match state {
                        // The answer to a dead-lettering has no error (AMQP-61).
                        Some(DeliveryState::Outcome(State::Rejected(Rejected {
                            error: Some(error),
                        }))) => Ok(Outcome::Refused(condition(&error))),
                        Some(DeliveryState::Outcome(_)) => Ok(Outcome::Done),
                        other => Err(io::Error::other(format!("outcome {other:?}"))),
                    };
                }
                Performative::Flow(_) => {}
                other => return Err(io::Error::other(format!("{other:?}"))),
            }
        }
    }

    /// Drains up to `credit` available messages. Returns them and the updated link.
    fn drain(&mut self, link: Link, credit: u32) -> io::Result<(Received, Link)> {
        self.amqp.drain(link.handle, link.delivery_count, credit)?;
        let (mut parts, mut received) = (Parts::default(), Vec::new());
        loop {
            match self.amqp.hear()? {
                (Performative::Transfer(transfer), payload) => {
                    if let Some((first, message)) = parts.push(transfer, payload) {
                        received.push(self.held(&first, message)?);
                    }
                }
                (Performative::Flow(flow), _) if flow.handle == Some(link.handle) && flow.drain => {
                    let delivery_count = flow.delivery_count.unwrap_or_default();
                    return Ok((received, Link { delivery_count, ..link }));
                }
                (Performative::Flow(_), _) => {}
                (other, _) => return Err(io::Error::other(format!("{other:?}"))),
            }
        }
    }

    fn held(&mut self, first: &Transfer, message: Bytes) -> io::Result<Held> {
        let token = match first.settled {
            Some(true) => String::new(),
            _ => token(first).ok_or_else(|| io::Error::other("a delivery without token"))?,
        };
        let seen = seen(message, !token.is_empty()).map_err(io::Error::other)?;
        if let (false, Some(id)) = (token.is_empty(), first.delivery_id) {
            self.unsettled.insert(token.clone(), id);
        }
        Ok(Held { seen, token })
    }
}

fn unanswered(error: io::Error) -> Lost {
    Lost::Unanswered(error.to_string())
}

/// The token of a lock, in the byte order of .NET (AMQP-54).
fn token(first: &Transfer) -> Option<String> {
    let mut bytes: [u8; 16] = first.delivery_tag?.as_slice().try_into().ok()?;
    for part in [0..4, 4..6, 6..8] {
        bytes.get_mut(part)?.reverse();
    }
    Some(LockToken(u128::from_be_bytes(bytes)).to_string())
}

fn condition(error: &AmqpError) -> String {
    let name = error.condition();
    let of = Condition::all().find(|one| one.amqp().is_some_and(|symbol| symbol == name));
    of.map_or(name, |condition| condition.name()).to_owned()
}

/// Encodes the outcome for a verdict.
fn decision(
    verdict: Verdict,
    mark: Option<&String>,
    reason: Option<&String>,
    delay_ms: Option<u64>,
) -> State {
    let text = |text: &String| Raw::encoded(|bytes| Value::String(text.clone()).encode_to(bytes));
    let mut changes: Vec<(&str, Raw)> = Vec::new();
    changes.extend(mark.map(|mark| ("mark", text(mark))));
    match verdict {
        Verdict::Complete => State::Accepted,
        Verdict::Release => State::Released,
        Verdict::Abandon => {
            let delay = |delay| Raw::encoded(|bytes| Value::U64(delay).encode_to(bytes));
            changes.extend(delay_ms.map(|delay_ms| ("peeklock-delay-ms", delay(delay_ms))));
            modified(false, changes)
        }
        Verdict::Defer => modified(true, changes),
        Verdict::DeadLetter => {
            changes.extend(reason.map(|reason| ("DeadLetterReason", text(reason))));
            let error = AmqpError::new("com.microsoft:dead-letter", "");
            State::Rejected(Rejected { error: Some(error.with_info(Map::of_symbols(changes))) })
        }
    }
}

fn modified(undeliverable_here: bool, changes: Vec<(&str, Raw)>) -> State {
    State::Modified(Modified {
        delivery_failed: Some(true),
        undeliverable_here: Some(undeliverable_here),
        message_annotations: Some(Map::of_symbols(changes)),
    })
}

/// A message, encoded.
fn written(draft: &Draft) -> Vec<u8> {
    let message = Message::new(draft.body.clone())
        .with_message_id(message_id(draft.sent.id))
        .with_application_property("property", draft.property.clone());
    let message = match draft.sent.due {
        Some(due) => {
            let due = Timestamp::from_unix_ms(i64::try_from(due).unwrap());
            message.with_scheduled_enqueue_time(due)
        }
        None => message,
    };
    message.encode().as_bytes().to_vec()
}

/// A batch (AMQP-42).
fn batch(drafts: &[Draft]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for draft in drafts {
        bytes.extend_from_slice(&[0x00, 0x53, 0x75]);
        Value::Binary(written(draft).into()).encode_to(&mut bytes);
    }
    bytes
}

fn seen(message: Bytes, is_locked: bool) -> Result<Seen, AmqpError> {
    let delivered = Delivered::read(message)?;
    let message = delivered.content.decode()?;
    let text = |key: &str| match message.application_property(key) {
        Some(Value::String(text)) => Some(text.clone()),
        _ => None,
    };
    // No scheduled message is delivered; the state 2 of a delivery only shows that it was scheduled
    // (PEK-05).
    let (standing, shows_scheduled) = match delivered.annotation("x-opt-message-state") {
        None => (Standing::Active, false),
        Some(Value::I32(1)) => (Standing::Deferred, false),
        Some(Value::I32(2)) => (Standing::Active, true),
        Some(other) => {
            let state = format!("the state of a delivery is {other:?}");
            return Err(AmqpError::new("amqp:decode-error", state));
        }
    };
    Ok(Seen {
        message_id: message.message_id.as_ref().map(ToString::to_string).unwrap_or_default(),
        number: delivered.sequence_number().and_then(|it| it.try_into().ok()).unwrap_or_default(),
        print: Print::of(message.body.as_bytes(), &text("property").unwrap_or_default()),
        standing,
        count: u64::from(delivered.delivery_count) + u64::from(is_locked),
        reason: text("DeadLetterReason"),
        mark: text("mark"),
        delayed_until: None,
        shows_scheduled: Some(shows_scheduled),
    })
}

//! One client of the load. It records each request in the ledger before it sends it. It uses both
//! the REST plane and the JSON API; some clients send, receive and settle over AMQP.

use std::cell::Cell;
use std::slice::from_ref;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, UNIX_EPOCH};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};

use crate::amqp::Links;
use crate::connection::{Connection, Lost, Response};
use crate::ledger::{
    Description, Id, Ledger, Op, Outcome, Part, Print, Seen, Sent, Standing, Ticket, Verdict,
    message_id,
};

/// The broker was killed; it gets no more requests.
#[derive(Debug)]
pub struct Over;

/// A message to send.
pub struct Draft {
    pub sent: Sent,
    pub body: Vec<u8>,
    /// Application property. A message over REST has none.
    pub property: String,
}

/// A message that was received under lock.
pub struct Held {
    pub seen: Seen,
    pub token: String,
}

/// Messages of a receive, with lock tokens if they are locked.
pub type Received = Vec<Held>;

pub struct Client<'a> {
    connection: Connection,
    /// AMQP links, if this client uses AMQP where the protocol has the operation.
    links: Option<Links>,
    ledger: &'a Ledger,
    stage: &'a Stage,
    /// Whether a request was refused during the fault, so that this client sends no more.
    is_refused: Cell<bool>,
    sender: usize,
}

/// How far a round is.
#[derive(Default)]
pub struct Stage {
    /// Set before the fault begins: a refusal or a lost connection says nothing any more.
    pub has_fault: AtomicBool,
    /// Set just before the broker is killed.
    pub is_over: AtomicBool,
}

impl<'a> Client<'a> {
    /// Creates a client.
    pub const fn new(address: String, ledger: &'a Ledger, stage: &'a Stage, sender: usize) -> Self {
        Self {
            connection: Connection::new(address),
            links: None,
            ledger,
            stage,
            is_refused: Cell::new(false),
            sender,
        }
    }

    /// Makes this client use AMQP where the protocol has the operation.
    pub fn over_amqp(self, address: String) -> Self {
        Self { links: Some(Links::new(address)), ..self }
    }

    pub fn is_over(&self) -> bool {
        self.is_refused.get() || self.stage.is_over.load(Ordering::SeqCst)
    }

    fn has_fault(&self) -> bool {
        self.stage.has_fault.load(Ordering::SeqCst)
    }

    /// Drops the AMQP connection without a close, if there is one.
    pub fn drop_links(&mut self) {
        if let Some(links) = &mut self.links {
            links.drop_connection();
        }
    }

    /// Whether a message was received over an AMQP connection that was dropped before it was
    /// settled.
    pub fn has_outlived_connection(&self, held: &Held) -> bool {
        self.links.as_ref().is_some_and(|links| links.has_dropped(&held.token))
    }

    /// Sends a request and records its outcome. The judge decides about refusals. While a fault is
    /// in progress, a refusal says nothing about the outcome: the database may be lost too.
    fn ask(
        &mut self,
        queue: &str,
        op: Op,
        (method, target): (&str, &str),
        (headers, body): (&[(&str, &str)], &[u8]),
        read: impl FnOnce(&Response) -> Result<Outcome, String>,
    ) -> Result<(Outcome, Option<Response>), Over> {
        let ticket = self.ledger.begin(queue, op);
        match self.connection.ask(method, target, headers, body) {
            Ok(response) => {
                let outcome = if response.status < 300 {
                    read(&response).unwrap_or_else(|what| {
                        self.ledger.complain(format!("{method} {target}: {what}"));
                        Outcome::Unknown
                    })
                } else {
                    self.refused(refusal(&response))
                };
                self.ledger.end(&ticket, outcome.clone());
                Ok((outcome, Some(response)))
            }
            Err(lost) => Err(self.lost(&ticket, &format!("{method} {target}"), &lost)),
        }
    }

    /// Handles a lost connection, which is no surprise in a fault.
    fn lost(&self, ticket: &Ticket, what: &str, lost: &Lost) -> Over {
        if !self.has_fault() {
            self.ledger.complain(format!("{what}: alive, but {lost:?}"));
        }
        if matches!(lost, Lost::NotSent(_)) {
            self.ledger.end(ticket, Outcome::NotSent);
        }
        Over
    }

    /// The AMQP links, if this client uses AMQP for a queue. It does not for a queue that is
    /// deleted, which detaches its links at any time, nor for duplicate detection, whose results
    /// only other transports report.
    fn links_to(&mut self, queue: &str) -> Option<&mut Links> {
        let is_fit = queue != "once" && !queue.starts_with("fleeting");
        self.links.as_mut().filter(|_| is_fit)
    }

    /// Sends a request over AMQP and records its outcome.
    fn ask_links(
        &mut self,
        queue: &str,
        op: Op,
        ask: impl FnOnce(&mut Links) -> Result<Outcome, Lost>,
    ) -> Result<Outcome, Over> {
        let what = format!("{op:?} at {queue} over AMQP");
        let ticket = self.ledger.begin(queue, op);
        let nothing = Err(Lost::NotSent("no AMQP".to_owned()));
        match self.links.as_mut().map_or(nothing, ask) {
            Ok(outcome) => {
                let outcome = match outcome {
                    Outcome::Refused(condition) => self.refused(condition),
                    outcome => outcome,
                };
                self.ledger.end(&ticket, outcome.clone());
                Ok(outcome)
            }
            Err(lost) => Err(self.lost(&ticket, &what, &lost)),
        }
    }

    fn refused(&self, condition: String) -> Outcome {
        if self.has_fault() {
            self.is_refused.set(true);
            return Outcome::Unknown;
        }
        Outcome::Refused(condition)
    }

    fn post(
        &mut self,
        queue: &str,
        op: Op,
        target: &str,
        body: &Value,
        read: impl FnOnce(&Response) -> Result<Outcome, String>,
    ) -> Result<Outcome, Over> {
        let body = serde_json::to_vec(body).unwrap();
        Ok(self.ask(queue, op, ("POST", target), (&[JSON], &body), read)?.0)
    }

    pub fn create(&mut self, queue: &str, description: &Description) -> Result<Outcome, Over> {
        let op = Op::Create(description.clone());
        let body = serde_json::to_vec(description).unwrap();
        let target = queue_target(queue, Part::Main);
        Ok(self.ask(queue, op, ("PUT", &target), (&[JSON], &body), done)?.0)
    }

    /// Creates a topic. The judge tracks only its subscriptions.
    pub fn create_topic(&mut self, topic: &str) -> Result<(), Over> {
        self.require("PUT", &format!("/$api/v1/topics/{topic}"), &json!({}))
    }

    /// Creates a queue and fills it with small messages, without a record in the ledger.
    pub fn pile_up(&mut self, queue: &str, count: u64, batch: u64) -> Result<(), Over> {
        if count == 0 {
            return Ok(());
        }
        let target = queue_target(queue, Part::Main);
        self.require("PUT", &target, &json!({}))?;
        let target = format!("{target}/messages/batch");
        for first in (0..count).step_by(usize::try_from(batch).unwrap()) {
            let numbers = first..count.min(first + batch);
            let messages = numbers.map(|number| json!({ "body": number.to_string() }));
            let messages: Vec<Value> = messages.collect();
            self.require("POST", &target, &json!({ "messages": messages }))?;
        }
        Ok(())
    }

    /// Sends a request that must succeed, without a record in the ledger.
    fn require(&mut self, method: &str, target: &str, body: &Value) -> Result<(), Over> {
        let body = serde_json::to_vec(body).unwrap();
        match self.connection.ask(method, target, &[JSON], &body) {
            Ok(response) if response.status < 300 => Ok(()),
            other => {
                self.ledger.complain(format!("{method} {target}: {:?}", other.map(|it| it.status)));
                Err(Over)
            }
        }
    }

    /// Creates a subscription with these rules.
    pub fn create_subscription(
        &mut self,
        path: &str,
        description: &Description,
        rules: Value,
    ) -> Result<Outcome, Over> {
        let op = Op::Create(description.clone());
        let mut body = description.clone();
        body.insert("rules".to_owned(), rules);
        let body = serde_json::to_vec(&body).unwrap();
        let target = queue_target(path, Part::Main);
        Ok(self.ask(path, op, ("PUT", &target), (&[JSON], &body), done)?.0)
    }

    /// Publishes one message that only this subscription must get. The answer has no sequence
    /// number.
    pub fn publish(&mut self, subscription: &str, draft: &Draft) -> Result<Outcome, Over> {
        let op = Op::Send { sender: self.sender, messages: vec![draft.sent.clone()] };
        let topic = subscription.split('/').next().unwrap_or_default();
        let target = format!("/$api/v1/topics/{topic}/messages");
        self.post(subscription, op, &target, &written(draft), done)
    }

    pub fn update(&mut self, queue: &str, changes: &Description) -> Result<Outcome, Over> {
        let op = Op::Update(changes.clone());
        let body = serde_json::to_vec(changes).unwrap();
        let target = queue_target(queue, Part::Main);
        Ok(self.ask(queue, op, ("PATCH", &target), (&[JSON], &body), done)?.0)
    }

    pub fn delete(&mut self, queue: &str) -> Result<Outcome, Over> {
        let target = queue_target(queue, Part::Main);
        Ok(self.ask(queue, Op::Delete, ("DELETE", &target), (&[], &[]), done)?.0)
    }

    /// Sends one message over REST, which does not return its sequence number.
    pub fn send_raw(&mut self, queue: &str, draft: &Draft) -> Result<Outcome, Over> {
        if self.links_to(queue).is_some() {
            return self.send(queue, draft);
        }
        let op = Op::Send { sender: self.sender, messages: vec![draft.sent.clone()] };
        let properties = json!({ "MessageId": message_id(draft.sent.id) }).to_string();
        let headers = [("BrokerProperties", properties.as_str())];
        let target = format!("/{queue}/messages");
        Ok(self.ask(queue, op, ("POST", &target), (&headers, &draft.body), done)?.0)
    }

    /// Sends one message over the JSON API.
    pub fn send(&mut self, queue: &str, draft: &Draft) -> Result<Outcome, Over> {
        let op = Op::Send { sender: self.sender, messages: vec![draft.sent.clone()] };
        if self.links_to(queue).is_some() {
            return self.ask_links(queue, op, |links| links.send(queue, from_ref(draft)));
        }
        let target = format!("{}/messages", queue_target(queue, Part::Main));
        self.post(queue, op, &target, &written(draft), |response| {
            let number = json_body(response)?["sequenceNumber"].as_u64();
            Ok(Outcome::Numbers(vec![number.ok_or("no number")?]))
        })
    }

    /// Sends messages that are stored together. Those with an instant are scheduled for the instant
    /// of the first.
    pub fn send_batch(&mut self, queue: &str, drafts: &[Draft]) -> Result<Outcome, Over> {
        let messages = drafts.iter().map(|draft| draft.sent.clone()).collect();
        let op = Op::Send { sender: self.sender, messages };
        if self.links_to(queue).is_some() {
            return self.ask_links(queue, op, |links| links.send(queue, drafts));
        }
        let mut body = json!({ "messages": drafts.iter().map(written).collect::<Vec<_>>() });
        let operation = match drafts.first().and_then(|draft| draft.sent.due) {
            Some(due) => {
                body["scheduledEnqueueTimeUtc"] = instant(due).into();
                "schedule"
            }
            None => "batch",
        };
        let target = format!("{}/messages/{operation}", queue_target(queue, Part::Main));
        self.post(queue, op, &target, &body, |response| {
            let body = json_body(response)?;
            let numbers = body["sequenceNumbers"].as_array().ok_or("no numbers")?;
            Ok(Outcome::Numbers(numbers.iter().filter_map(Value::as_u64).collect()))
        })
    }

    /// Receives available messages, and waits up to `wait_seconds` for the first.
    pub fn receive(
        &mut self,
        queue: &str,
        part: Part,
        deletes: bool,
        (count_max, wait_seconds): (u64, f64),
    ) -> Result<Received, Over> {
        let at_once = self.links_to(queue).is_none();
        let op = Op::Receive { part, deletes, count_max, at_once };
        if self.links_to(queue).is_some() {
            let mut held = Vec::new();
            self.ask_links(queue, op, |links| {
                held = links.receive(queue, part, deletes, count_max)?;
                Ok(delivered(&held))
            })?;
            return Ok(held);
        }
        let target = format!("{}/messages/receive", queue_target(queue, part));
        let body =
            json!({ "mode": mode(deletes), "maxCount": count_max, "waitSeconds": wait_seconds });
        let mut held = Vec::new();
        self.post(queue, op, &target, &body, |response| {
            held = read_messages(response)?;
            Ok(delivered(&held))
        })?;
        Ok(held)
    }

    /// Receives one message over REST.
    pub fn receive_raw(&mut self, queue: &str, deletes: bool) -> Result<Received, Over> {
        if self.links_to(queue).is_some() {
            return self.receive(queue, Part::Main, deletes, (1, 0.0));
        }
        let op = Op::Receive { part: Part::Main, deletes, count_max: 1, at_once: true };
        let method = if deletes { "DELETE" } else { "POST" };
        let target = format!("/{queue}/messages/head?timeout=0");
        let mut held = Vec::new();
        self.ask(queue, op, (method, &target), (&[], &[]), |response| {
            if response.status != 204 {
                held.push(read_raw(response)?);
            }
            Ok(delivered(&held))
        })?;
        Ok(held)
    }

    /// Receives deferred messages by sequence number.
    pub fn receive_deferred(
        &mut self,
        queue: &str,
        messages: &[(Id, u64)],
        deletes: bool,
    ) -> Result<Received, Over> {
        let ids = messages.iter().map(|(id, _)| *id).collect();
        let numbers: Vec<u64> = messages.iter().map(|(_, number)| *number).collect();
        let op = Op::ReceiveDeferred { ids, deletes };
        let target = format!("{}/messages/receive-deferred", queue_target(queue, Part::Main));
        let body = json!({ "mode": mode(deletes), "sequenceNumbers": numbers });
        let mut held = Vec::new();
        self.post(queue, op, &target, &body, |response| {
            held = read_messages(response)?;
            Ok(delivered(&held))
        })?;
        Ok(held)
    }

    /// Settles a message. The mark is a property that the settlement sets.
    pub fn settle(
        &mut self,
        queue: &str,
        part: Part,
        held: &Held,
        verdict: Verdict,
        mark: Option<String>,
        reason: Option<String>,
    ) -> Result<Outcome, Over> {
        let Some(id) = held.seen.id() else { return Ok(Outcome::NotSent) };
        // Some abandoned messages get a delay. A deferred message has none (RTY-08).
        let is_delayed = verdict == Verdict::Abandon
            && held.seen.standing == Standing::Active
            && held.seen.number.is_multiple_of(3);
        let delay_ms = is_delayed.then_some(DELAY_MS);
        if self.links.as_ref().is_some_and(|links| links.has(&held.token)) {
            let (mark_set, why) = (mark.clone(), reason.clone());
            let op = Op::Settle { id, verdict, mark: mark_set, reason: why, delay_ms };
            return self.ask_links(queue, op, |links| {
                links.settle(held, verdict, mark.as_ref(), reason.as_ref(), delay_ms)
            });
        }
        let mut body = json!({});
        if let Some(mark) = &mark {
            body["applicationProperties"] = json!({ "mark": mark });
        }
        let operation = match verdict {
            Verdict::Complete => "complete",
            Verdict::Abandon => {
                if let Some(delay_ms) = delay_ms {
                    body["delayMilliseconds"] = json!(delay_ms);
                }
                "abandon"
            }
            Verdict::Defer => "defer",
            Verdict::Release => "release",
            Verdict::DeadLetter => {
                body["reason"] = json!(reason);
                "dead-letter"
            }
        };
        let op = Op::Settle { id, verdict, mark, reason, delay_ms };
        let target = format!("{}/locks/{}/{operation}", queue_target(queue, part), held.token);
        self.post(queue, op, &target, &body, done)
    }

    /// Completes over REST.
    pub fn complete_raw(&mut self, queue: &str, held: &Held) -> Result<Outcome, Over> {
        let Some(id) = held.seen.id() else { return Ok(Outcome::NotSent) };
        if self.links.as_ref().is_some_and(|links| links.has(&held.token)) {
            return self.settle(queue, Part::Main, held, Verdict::Complete, None, None);
        }
        let (verdict, mark, reason, delay_ms) = (Verdict::Complete, None, None, None);
        let op = Op::Settle { id, verdict, mark, reason, delay_ms };
        let target = format!("/{queue}/messages/{}/{}", held.seen.number, held.token);
        Ok(self.ask(queue, op, ("DELETE", &target), (&[], &[]), done)?.0)
    }

    pub fn cancel(&mut self, queue: &str, messages: &[(Id, u64)]) -> Result<Outcome, Over> {
        let op = Op::Cancel { ids: messages.iter().map(|(id, _)| *id).collect() };
        let numbers: Vec<u64> = messages.iter().map(|(_, number)| *number).collect();
        let target = format!("{}/messages/cancel-scheduled", queue_target(queue, Part::Main));
        self.post(queue, op, &target, &json!({ "sequenceNumbers": numbers }), done)
    }
}

/// Delay of some abandoned messages in milliseconds; longer than a start and an inspection take.
pub const DELAY_MS: u64 = 1_200;

const JSON: (&str, &str) = ("Content-Type", "application/json");

/// Resource path of a queue or subscription, or of its dead-letter queue.
pub fn queue_target(queue: &str, part: Part) -> String {
    let suffix = match part {
        Part::Main => "",
        Part::DeadLetter => "%2F%24DeadLetterQueue",
    };
    if let Some((topic, name)) = queue.split_once("/Subscriptions/") {
        return format!("/$api/v1/topics/{topic}/subscriptions/{name}{suffix}");
    }
    format!("/$api/v1/queues/{queue}{suffix}")
}

/// Condition of a refusal.
pub fn refusal(response: &Response) -> String {
    let problem = json_body(response).unwrap_or_default();
    match problem["code"].as_str() {
        Some(code) => code.to_owned(),
        None => response.status.to_string(),
    }
}

pub fn json_body(response: &Response) -> Result<Value, String> {
    serde_json::from_slice(&response.body).map_err(|error| format!("no JSON: {error}"))
}

/// Messages in an answer of the JSON API.
pub fn read_messages(response: &Response) -> Result<Vec<Held>, String> {
    #[derive(serde::Deserialize)]
    struct Messages {
        messages: Vec<Value>,
    }
    let read: Messages =
        serde_json::from_slice(&response.body).map_err(|error| format!("no messages: {error}"))?;
    read.messages.iter().map(read_message).collect()
}

fn read_message(message: &Value) -> Result<Held, String> {
    let properties = &message["applicationProperties"];
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let property = text(&properties["property"]).unwrap_or_default();
    let print = match (&message["body"], &message["bodyBase64"]) {
        (Value::String(body), _) => Print::of(body.as_bytes(), &property),
        (_, Value::String(body)) => {
            let body = STANDARD.decode(body).map_err(|error| format!("no Base64: {error}"))?;
            Print::of(&body, &property)
        }
        _ => return Err("a message without body".to_owned()),
    };
    let seen = Seen {
        message_id: text(&message["messageId"]).unwrap_or_default(),
        number: message["sequenceNumber"].as_u64().ok_or("a message without number")?,
        print,
        standing: standing(message["state"].as_str())?,
        count: message["deliveryCount"].as_u64().ok_or("a message without count")?,
        reason: text(&properties["DeadLetterReason"]),
        mark: text(&properties["mark"]),
        delayed_until: message["delayedUntilUtc"].as_str().map(milliseconds).transpose()?,
        shows_scheduled: None,
    };
    Ok(Held { seen, token: text(&message["lockToken"]).unwrap_or_default() })
}

fn read_raw(response: &Response) -> Result<Held, String> {
    let properties = response.header("brokerproperties").ok_or("no BrokerProperties")?;
    let properties: Value =
        serde_json::from_str(properties).map_err(|error| format!("BrokerProperties: {error}"))?;
    let header =
        |name: &str| -> Option<String> { serde_json::from_str(response.header(name)?).ok() };
    let seen = Seen {
        message_id: properties["MessageId"].as_str().unwrap_or_default().to_owned(),
        number: properties["SequenceNumber"].as_u64().ok_or("a message without number")?,
        print: Print::of(&response.body, &header("property").unwrap_or_default()),
        standing: standing(properties["State"].as_str())?,
        count: properties["DeliveryCount"].as_u64().ok_or("a message without count")?,
        reason: header("deadletterreason"),
        mark: header("mark"),
        delayed_until: None,
        shows_scheduled: None,
    };
    Ok(Held { seen, token: properties["LockToken"].as_str().unwrap_or_default().to_owned() })
}

fn standing(name: Option<&str>) -> Result<Standing, String> {
    match name {
        // A delayed message stays in its place (RTY-03) and counts as active (RTY-11).
        Some("Active" | "Delayed") => Ok(Standing::Active),
        Some("Deferred") => Ok(Standing::Deferred),
        Some("Scheduled") => Ok(Standing::Scheduled),
        other => Err(format!("the state {other:?}")),
    }
}

fn delivered(held: &[Held]) -> Outcome {
    Outcome::Delivered(held.iter().map(|held| held.seen.clone()).collect())
}

fn done(_: &Response) -> Result<Outcome, String> {
    Ok(Outcome::Done)
}

const fn mode(deletes: bool) -> &'static str {
    if deletes { "receiveAndDelete" } else { "peekLock" }
}

/// A message in JSON. A UTF-8 body is sent as text.
fn written(draft: &Draft) -> Value {
    let mut message = json!({
        "messageId": message_id(draft.sent.id),
        "applicationProperties": { "property": draft.property },
    });
    match std::str::from_utf8(&draft.body) {
        Ok(text) => message["body"] = text.into(),
        Err(_) => message["bodyBase64"] = STANDARD.encode(&draft.body).into(),
    }
    message
}

/// An instant in RFC 3339, from milliseconds since 1970.
fn instant(milliseconds: u64) -> String {
    humantime::format_rfc3339_millis(UNIX_EPOCH + Duration::from_millis(milliseconds)).to_string()
}

/// Milliseconds since 1970, from an instant in RFC 3339.
fn milliseconds(instant: &str) -> Result<u64, String> {
    let at = humantime::parse_rfc3339(instant).map_err(|error| format!("{instant}: {error}"))?;
    let since = at.duration_since(UNIX_EPOCH).map_err(|error| error.to_string())?;
    u64::try_from(since.as_millis()).map_err(|error| error.to_string())
}

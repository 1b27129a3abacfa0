//! The test server, and messages to post to it.

use std::sync::Arc;
use std::time::Duration;

use peeklock_core::clock::ManualClock;
use peeklock_core::command::{MessageFacts, MessageState};
use peeklock_core::contract::{Forwarder as _, Outgoing, Route, Source, Verdict};
use peeklock_core::ids::{EntityId, SequenceNumber};
use peeklock_core::message::Message;
use peeklock_core::path::SubQueue;
use peeklock_core::time::Timestamp;
use peeklock_forward_webhook::{Reach, WebhookConfig, WebhookForwarder};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpListener;
use tokio::sync::mpsc;
use tokio_rustls::rustls::pki_types::CertificateDer;

/// Reaction of the server to a request.
#[derive(Clone, Debug)]
pub enum Act {
    /// Writes these bytes and keeps the connection open.
    Answer(String),
    /// Writes these bytes and closes the connection.
    AnswerAndClose(String),
    /// Closes the connection without an answer.
    Close,
    /// Never answers.
    Silence,
}

/// A received request.
#[derive(Debug)]
pub struct Got {
    /// Index of its connection, from 0.
    pub connection: usize,
    pub head: String,
    pub body: Vec<u8>,
}

impl Got {
    /// Returns the header lines, sorted.
    pub fn headers(&self) -> Vec<String> {
        let mut lines: Vec<String> =
            self.head.trim_end().split("\r\n").skip(1).map(str::to_owned).collect();
        lines.sort();
        lines
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.head.split("\r\n").skip(1).find_map(|line| {
            let (given, value) = line.split_once(": ")?;
            given.eq_ignore_ascii_case(name).then_some(value)
        })
    }
}

pub const OK: &str = "HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";

/// Returns an answer with this status line and these headers, without a body.
pub fn answer(status: &str, headers: &str) -> Act {
    Act::Answer(format!("HTTP/1.1 {status}\r\n{headers}content-length: 0\r\n\r\n"))
}

pub struct Server {
    pub port: u16,
    pub got: mpsc::UnboundedReceiver<Got>,
}

/// Starts a server that answers requests with these acts in turn, on any connection; the last act
/// is repeated.
pub async fn serve(acts: Vec<Act>) -> Server {
    serve_over(acts, |stream| async { Some(stream) }).await
}

/// Starts a server over streams that `wrap` makes from connections.
pub async fn serve_over<S, F>(
    acts: Vec<Act>,
    wrap: impl Fn(tokio::net::TcpStream) -> F + 'static,
) -> Server
where
    S: AsyncRead + AsyncWrite + Unpin + 'static,
    F: Future<Output = Option<S>> + 'static,
{
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let (send, got) = mpsc::unbounded_channel();
    let acts = std::rc::Rc::new(std::cell::RefCell::new(std::collections::VecDeque::from(acts)));
    tokio::task::spawn_local(async move {
        let mut connection = 0;
        while let Ok((stream, _)) = listener.accept().await {
            let (acts, send, wrapped) = (acts.clone(), send.clone(), wrap(stream));
            tokio::task::spawn_local(async move {
                if let Some(stream) = wrapped.await {
                    converse(stream, connection, &acts, &send).await;
                }
            });
            connection += 1;
        }
    });
    Server { port, got }
}

async fn converse<S: AsyncRead + AsyncWrite + Unpin>(
    mut stream: S,
    connection: usize,
    acts: &std::cell::RefCell<std::collections::VecDeque<Act>>,
    send: &mpsc::UnboundedSender<Got>,
) {
    while let Some((head, body)) = read(&mut stream).await {
        send.send(Got { connection, head, body }).ok();
        let act = {
            let mut acts = acts.borrow_mut();
            if acts.len() > 1 { acts.pop_front() } else { acts.front().cloned() }
        };
        match act.unwrap() {
            Act::Answer(text) => stream.write_all(text.as_bytes()).await.unwrap_or_default(),
            Act::AnswerAndClose(text) => {
                stream.write_all(text.as_bytes()).await.unwrap_or_default();
                return;
            }
            Act::Close => return,
            Act::Silence => std::future::pending().await,
        }
    }
}

async fn read<S: AsyncRead + Unpin>(stream: &mut S) -> Option<(String, Vec<u8>)> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.ok()?);
    }
    let head = String::from_utf8(head).unwrap();
    let length = head.split("\r\n").find_map(|line| line.strip_prefix("content-length: "));
    let mut body = vec![0; length.unwrap_or("0").parse().unwrap()];
    stream.read_exact(&mut body).await.ok()?;
    Some((head, body))
}

pub fn outgoing(sequence: u64, message: &Message) -> Outgoing {
    let content = message.encode();
    Outgoing {
        facts: MessageFacts {
            sequence: SequenceNumber(sequence),
            enqueued_sequence: SequenceNumber(0),
            enqueued_at: Timestamp::parse("2026-05-01T11:59:59Z").unwrap(),
            expires_at: None,
            time_to_live: None,
            delivery_count: 0,
            state: MessageState::Active,
            delayed_until: None,
            sub_queue: SubQueue::Main,
            lock: None,
            size: content.size(),
            overlay_count: 0,
            was_scheduled: false,
        },
        content,
        overlays: Vec::new(),
        hops: 1,
        copies_spent: 0,
        dead_letter_source: None,
        never_duplicate: false,
    }
}

/// Returns messages with the numbers 1 to `count` as ids and bodies.
pub fn messages(count: u64) -> Vec<Outgoing> {
    let message =
        |number: u64| Message::new(number.to_string()).with_message_id(number.to_string());
    (1..=count).map(|number| outgoing(number, &message(number))).collect()
}

pub fn source() -> Source {
    Source { broker: 0xab, entity: EntityId(18), path: "orders".into(), sub_queue: SubQueue::Main }
}

/// Returns settings that permit loopback hosts, with a clock at noon.
pub fn config() -> WebhookConfig {
    let mut config = WebhookConfig::default();
    config.reach = reach(Vec::new());
    config.clock = Arc::new(ManualClock::at(Timestamp::parse("2026-05-01T12:00:00.9Z").unwrap()));
    config
}

/// Permits loopback hosts and trusts these authorities.
pub fn reach(authorities: Vec<CertificateDer<'static>>) -> Reach {
    Reach::new(vec!["127.0.0.1".parse().unwrap(), "localhost".parse().unwrap()], authorities)
}

pub fn route(config: WebhookConfig, destination: &str) -> Box<dyn Route> {
    WebhookForwarder::new(config).route(destination, source()).unwrap()
}

/// Runs a test with its server on one thread.
pub fn run(test: impl Future<Output = ()>) {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    tokio::task::LocalSet::new().block_on(&runtime, test);
}

/// Posts one message to a server with these acts, and returns the verdict.
pub async fn verdict_of(acts: Vec<Act>) -> Verdict {
    let server = serve(acts).await;
    let destination = format!("webhook+http://127.0.0.1:{}/", server.port);
    let mut verdicts = route(config(), &destination).forward(&messages(1)).await;
    assert_eq!(verdicts.len(), 1);
    verdicts.remove(0)
}

pub fn failure(verdict: &Verdict) -> (&str, Option<Duration>) {
    match verdict {
        Verdict::Failed { why, retry_after } => (why, *retry_after),
        other => panic!("{other:?}"),
    }
}

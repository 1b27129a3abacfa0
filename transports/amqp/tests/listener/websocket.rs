//! Tests of AMQP over WebSocket, on the port of AMQP.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use peeklock_amqp::frame::Protocol;
use peeklock_amqp::performative::Performative;
use peeklock_amqp::sasl::{Init, mechanism};
use peeklock_amqp_testing::client::{Frames, Session};
use peeklock_auth_sas::{SasAuthorizer, SasConfig};
use peeklock_core::contract::AllowAll;
use peeklock_core::message::Body;
use peeklock_core::policies::Policies;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;
use tokio_tungstenite::tungstenite::handshake::client::Request;
use tokio_tungstenite::tungstenite::http::HeaderValue;
use tokio_tungstenite::tungstenite::protocol::CloseFrame;
use tokio_tungstenite::tungstenite::protocol::frame::coding::CloseCode;
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_tungstenite::{WebSocketStream, client_async};

use crate::client::{Client, text};
use crate::rights::is_refused;
use crate::server::Server;

fn request(address: SocketAddr, path: &str, protocol: &str) -> Request {
    let mut request = format!("ws://{address}{path}").into_client_request().unwrap();
    let name = HeaderValue::from_str(protocol).unwrap();
    request.headers_mut().insert("sec-websocket-protocol", name);
    request
}

/// Upgrades; returns the socket and the subprotocol, or the status of the refusal with its text.
async fn upgrade(request: Request) -> Result<(WebSocketStream<TcpStream>, String), (u16, String)> {
    let address = request.uri().authority().unwrap().as_str().to_owned();
    let stream = TcpStream::connect(address).await.unwrap();
    match client_async(request, stream).await {
        Ok((socket, response)) => {
            let protocol = response.headers()["sec-websocket-protocol"].to_str().unwrap();
            Ok((socket, protocol.to_owned()))
        }
        Err(Error::Http(response)) => {
            let body = response.body().clone().unwrap_or_default();
            Err((response.status().as_u16(), String::from_utf8(body).unwrap()))
        }
        Err(other) => panic!("{other}"),
    }
}

/// Returns the bytes of a socket's messages in both directions. Sent bytes are cut into messages of
/// `cut` bytes. At their end, the socket is closed with this code. The task ends when the broker
/// has ended the connection too.
fn bytes_of(
    socket: WebSocketStream<TcpStream>,
    cut: usize,
    code: CloseCode,
) -> (DuplexStream, JoinHandle<()>) {
    let (here, there) = tokio::io::duplex(1 << 20);
    let (mut to, mut from) = socket.split();
    let (mut read, mut write) = tokio::io::split(there);
    tokio::spawn(async move {
        let mut buffer = vec![0; cut];
        while let Ok(count @ 1..) = read.read(&mut buffer).await {
            let message = Message::Binary(buffer[..count].to_vec().into());
            if to.send(message).await.is_err() || to.send(Message::Ping("p".into())).await.is_err()
            {
                return;
            }
        }
        let close = Message::Close(Some(CloseFrame { code, reason: "".into() }));
        to.send(close).await.ok();
    });
    let ended = tokio::spawn(async move {
        while let Some(Ok(message)) = from.next().await {
            if let Message::Binary(bytes) = message {
                write.write_all(&bytes).await.ok();
            }
        }
    });
    (here, ended)
}

/// A client over WebSocket with a session on channel 0.
pub async fn client(server: &Server) -> Client {
    let request = request(server.address, "/$servicebus/websocket", "AMQPWSB10");
    let (socket, _) = upgrade(request).await.unwrap();
    let stream = Box::new(bytes_of(socket, 1 << 16, CloseCode::Normal).0);
    let (mut client, code) = Client::log_in_over(stream, "ANONYMOUS", b"").await;
    assert_eq!(code, 0);
    client.begin().await;
    client
}

/// AMQP-17, AMQ-01: the path works in all its forms, the response has the offered subprotocol, and
/// messages may cut frames anywhere or contain several.
#[tokio::test]
async fn amqp_passes_over_websocket() {
    let server = Server::start().await;
    for (path, protocol, cut) in [
        ("/$servicebus/websocket", "AMQPWSB10", 5),
        ("/$servicebus/websocket/", "amqp", 1_000),
        ("/%24servicebus/websocket", "amqp", 100_000),
    ] {
        let (socket, echoed) = upgrade(request(server.address, path, protocol)).await.unwrap();
        assert_eq!(echoed, protocol);
        let stream = Box::new(bytes_of(socket, cut, CloseCode::Normal).0);
        let (mut client, code) = Client::log_in_over(stream, "ANONYMOUS", b"").await;
        assert_eq!(code, 0);
        client.begin().await;
        client.sender(0, "q").await.unwrap();
        client.send(0, 0, false, &text(path)).await;
        client.disposed().await;
        let large = "x".repeat(300_000);
        client.send(0, 0, false, &text(&large)).await;
        client.disposed().await;
        let mode = peeklock_amqp::performative::SenderSettleMode::Settled;
        client.receiver(1, "q", mode).await.unwrap();
        client.credit(1, 0, 2, false).await;
        for expected in [path, &large] {
            let (_, content) = client.message().await;
            let Body::Data(bytes) = content.decode().unwrap().body else { panic!("no data") };
            assert!(bytes == expected, "{} bytes", bytes.len());
        }
    }
    server.stop().await;
}

/// SEC-17: a client behind a proxy does not count as local, even if the proxy is local. The headers
/// of the upgrade show the proxy, and no link is attached without a token.
#[tokio::test]
async fn a_connection_by_a_proxy_is_not_of_this_machine() {
    let policies = Policies::new();
    let authorizer = Arc::new(SasAuthorizer::new(&policies, SasConfig::open_on_loopback()));
    let server = Server::start_with_policies(authorizer, &policies).await;
    for (name, value, is_let_in) in [
        ("x-peeklock-test", "203.0.113.7", true),
        ("x-forwarded-for", "203.0.113.7", false),
        ("forwarded", "for=203.0.113.7", false),
        ("x-forwarded-proto", "https", false),
        ("x-real-ip", "203.0.113.7", false),
        ("via", "1.1 proxy", false),
    ] {
        let mut request = request(server.address, "/$servicebus/websocket", "amqp");
        request.headers_mut().insert(name, HeaderValue::from_static(value));
        let (socket, _) = upgrade(request).await.unwrap();
        let stream = Box::new(bytes_of(socket, 1_000, CloseCode::Normal).0);
        let (mut client, code) = Client::log_in_over(stream, "ANONYMOUS", b"").await;
        assert_eq!(code, 0);
        client.begin().await;
        let refused = is_refused(&server, &mut client, Client::sender_of(0, "q")).await;
        assert_eq!(refused, !is_let_in, "{name}");
    }
    server.stop().await;
}

/// AMQP-17, SEC-23: an upgrade is refused for another path, without a known subprotocol, for an
/// unknown host while anonymous access is on, and for a foreign origin. The error explains the
/// remedy.
#[tokio::test]
async fn an_upgrade_is_judged() {
    let server = Server::start().await;
    let path = "/$servicebus/websocket";
    let refusal = async |request: Request| match upgrade(request).await {
        Err(refused) => refused,
        Ok(_) => panic!("upgraded"),
    };
    let (status, said) = refusal(request(server.address, "/", "peeklock.v1.binary")).await;
    assert!(status == 404 && said.contains("5301"), "{said}");
    assert_eq!(condition(status, &said), "EntityNotFound");
    let (status, said) = refusal(request(server.address, path, "mqtt")).await;
    assert!(status == 400 && said.contains("AMQPWSB10"), "{said}");
    assert_eq!(condition(status, &said), "ArgumentError");
    let with = |name: &'static str, value: &str| {
        let mut request = request(server.address, path, "amqp");
        request.headers_mut().insert(name, HeaderValue::from_str(value).unwrap());
        request
    };
    let (status, said) = refusal(with("host", "rebound.example")).await;
    assert!(status == 421 && said.contains("amqp.allowed_hosts"), "{said}");
    assert_eq!(condition(status, &said), "Unauthorized");
    let (status, said) = refusal(with("origin", "https://evil.example")).await;
    assert!(status == 403 && said.contains("amqp.allowed_origins"), "{said}");
    assert_eq!(condition(status, &said), "Unauthorized");
    upgrade(with("host", "localhost")).await.unwrap();
    upgrade(with("origin", &format!("http://{}", server.address))).await.unwrap();
    server.stop().await;
}

/// Returns the condition of a refusal, which is a problem document (ERR-02).
fn condition(status: u16, text: &str) -> String {
    let problem: serde_json::Value = serde_json::from_str(text).expect("a problem");
    assert_eq!(problem["status"], status, "{text}");
    assert!(problem["trackingId"].as_str().is_some_and(|id| id.len() == 36), "{text}");
    problem["code"].as_str().unwrap().to_owned()
}

/// AMQP-17, ERR-02: an HTTP request without an upgrade to the port of AMQP gets an error that names
/// the served protocols.
#[tokio::test]
async fn request_without_upgrade_gets_a_problem() {
    let server = Server::start().await;
    for (request, status) in
        [("GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 426), ("GET nonsense\r\n\r\n", 400)]
    {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
        assert!(head.starts_with(&format!("HTTP/1.1 {status} ")), "{head}");
        assert_eq!(condition(status, body), "ArgumentError");
        assert!(body.contains("5300"), "{body}");
    }
    server.stop().await;
}

/// AMQP-17, ERR-02: a client that sends an incomplete upgrade gets an error after the timeout.
#[tokio::test]
async fn half_an_upgrade_gets_a_problem() {
    let brief = |config: &mut peeklock_amqp::server::AmqpConfig| {
        config.opening_timeout = Duration::from_millis(200);
    };
    let server = Server::start_with(Arc::new(AllowAll), brief).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.write_all(b"GET /$servicebus/websocket HTTP/1.1\r\nHost: loc").await.unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).await.unwrap();
    let (head, body) = answer.split_once("\r\n\r\n").expect("an answer");
    assert!(head.starts_with("HTTP/1.1 408 "), "{head}");
    assert_eq!(condition(408, body), "ServiceTimeout");
    assert!(body.contains("5300"), "{body}");
    server.stop().await;
}

/// AMQP-18, SEC-23: the target of an upgrade may be absolute, and `Host` may omit the port, as in
/// the Java SDK. Both must still name the same host.
#[tokio::test]
async fn an_upgrade_may_have_an_absolute_target() {
    let server = Server::start().await;
    for (host, status) in [("127.0.0.1", 101), ("localhost", 421)] {
        let request = format!(
            "GET ws://{}/$servicebus/websocket HTTP/1.1\r\nHost: {host}\r\nConnection: Upgrade\r\nUpgrade: websocket\r\n\
             Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\
             Sec-WebSocket-Protocol: AMQPWSB10\r\n\r\n",
            server.address
        );
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        stream.write_all(request.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        while !answer.ends_with(b"\r\n\r\n") {
            answer.push(stream.read_u8().await.unwrap());
        }
        let answer = String::from_utf8(answer).unwrap();
        assert!(answer.starts_with(&format!("HTTP/1.1 {status} ")), "{host}: {answer}");
    }
    server.stop().await;
}

/// AMQP-17: a text message is not AMQP, and ends the connection.
#[tokio::test]
async fn text_ends_the_connection() {
    let server = Server::start().await;
    let (mut socket, _) =
        upgrade(request(server.address, "/$servicebus/websocket", "amqp")).await.unwrap();
    socket.send(Message::Text("AMQP".into())).await.unwrap();
    while let Some(Ok(message)) = socket.next().await {
        assert!(matches!(message, Message::Close(_)), "{message}");
    }
    server.stop().await;
}

/// SET-21: a WebSocket closed with code 1000 is closed in order, also without a `close` of AMQP,
/// and leaves locks unchanged. Code 1001 counts as a lost connection.
#[tokio::test]
async fn a_close_of_the_websocket_is_one_in_order() {
    for (code, delivered) in [(CloseCode::Normal, 0), (CloseCode::Away, 1)] {
        let server = Server::start_releasing().await;
        server.put(&["a"]).await;
        let path = "/$servicebus/websocket";
        let (socket, _) = upgrade(request(server.address, path, "amqp")).await.unwrap();
        let (stream, ended) = bytes_of(socket, 1_000, code);
        let (mut client, _) = Client::log_in_over(Box::new(stream), "ANONYMOUS", b"").await;
        client.begin().await;
        let mode = peeklock_amqp::performative::SenderSettleMode::Unsettled;
        client.receiver(0, "q", mode).await.unwrap();
        client.credit(0, 0, 1, false).await;
        client.message().await;
        drop(client);
        ended.await.unwrap();
        let mut other = server.client().await;
        other.receiver(0, "q", mode).await.unwrap();
        other.credit(0, 0, 1, true).await;
        let (heard, _) = other.next_frame().await;
        assert_eq!(matches!(heard, Performative::Transfer(_)), delivered == 1, "{code}: {heard:?}");
        assert_eq!(server.delivery_counts().await, [delivered]);
        server.stop().await;
    }
}

/// A binary message of a client with a mask of zeros.
fn binary(content: &[u8]) -> Vec<u8> {
    let length = u16::try_from(content.len()).unwrap().to_be_bytes();
    [&[0x82, 0xfe][..], &length, &[0; 4], content].concat()
}

/// AMQP-17, DESIGN D6: a client that sends pings and takes no pongs is not read any more. It is
/// disconnected after `amqp.write_timeout`, before and after it has opened its connection.
#[tokio::test]
async fn a_client_that_pings_and_takes_nothing_is_closed() {
    const READ_BYTES_MAX: usize = 64 << 20;
    let brief = |config: &mut peeklock_amqp::server::AmqpConfig| {
        config.write_timeout = Duration::from_millis(200);
    };
    let server = Server::start_with(Arc::new(AllowAll), brief).await;
    let mut frames = Frames::default();
    frames.say_header(Protocol::Sasl);
    frames.say_sasl(&Init { mechanism: mechanism::ANONYMOUS.into(), ..Init::default() });
    frames.say_header(Protocol::Amqp);
    frames.say(0, &Session::open("client"), &[]);
    let opened = binary(&frames.output);
    let pings = [&[0x89, 0xfd, 0, 0, 0, 0][..], &[b'x'; 125]].concat().repeat(500);
    let flooding = [Vec::new(), opened].map(|said| {
        let pings = pings.clone();
        let request = request(server.address, "/$servicebus/websocket", "amqp");
        async move {
            let (mut socket, _) = upgrade(request).await.unwrap();
            let stream = socket.get_mut();
            stream.write_all(&said).await.unwrap();
            let mut written = 0;
            // The loop ends when the broker has closed the socket.
            while stream.write_all(&pings).await.is_ok() {
                written += pings.len();
                assert!(written < READ_BYTES_MAX, "pings are read without end");
            }
        }
    });
    let flooded = futures_util::future::join_all(flooding);
    tokio::time::timeout(Duration::from_secs(30), flooded).await.expect("closed in time");
    server.stop().await;
}

/// AMQP-17, SEC-18: an upgrade must have neither a query, whose token would appear in logs of
/// others, nor a body.
#[tokio::test]
async fn an_upgrade_with_a_query_or_a_body_is_refused() {
    let server = Server::start().await;
    let refused = |path: &str, headers: &[(&'static str, &'static str)]| {
        let mut request = request(server.address, path, "amqp");
        for (name, value) in headers {
            request.headers_mut().insert(*name, HeaderValue::from_static(value));
        }
        async move {
            let (status, body) = upgrade(request).await.expect_err("an upgrade");
            assert_eq!(status, 400);
            body
        }
    };
    let path = "/$servicebus/websocket";
    assert!(refused(&format!("{path}?sig=secret"), &[]).await.contains("query"));
    assert!(refused(path, &[("content-length", "5")]).await.contains("no body"));
    assert!(refused(path, &[("transfer-encoding", "chunked")]).await.contains("no body"));
    let bare = request(server.address, &format!("{path}?"), "amqp");
    assert!(upgrade(bare).await.is_ok());
    server.stop().await;
}

//! Tests of protocol headers, SASL, open, close and silence.

use std::time::Duration;

use peeklock_amqp::codec::list::write_list;
use peeklock_amqp::connection::{Config, Event};
use peeklock_amqp::error::AmqpError;
use peeklock_amqp::performative::{Close, Open, Performative};
use peeklock_amqp::sasl::{Credentials, Init, Plain, Response};

use crate::client::{AMQP, Client, SASL, raw_frame};

fn init(mechanism: &str, initial_response: Option<&'static [u8]>) -> Vec<u8> {
    let mut body = Vec::new();
    let initial_response = initial_response.map(bytes::Bytes::from_static);
    write_list(&mut body, &Init { mechanism: mechanism.into(), initial_response, hostname: None });
    raw_frame(1, 0, &body)
}

fn open() -> Vec<u8> {
    let mut body = Vec::new();
    Performative::Open(Box::new(open_of_client())).write(&mut body);
    raw_frame(0, 0, &body)
}

fn open_of_client() -> Open {
    Open { container_id: "client".into(), ..Open::default() }
}

/// The outcome of SASL, as bytes of the standard.
fn outcome(code: u8) -> Vec<u8> {
    raw_frame(1, 0, &[0, 0x53, 0x44, 0xc0, 3, 1, 0x50, code])
}

/// The four mechanisms that clients know, in an array of symbols (AMQP-03).
fn mechanisms() -> Vec<u8> {
    let mut elements = vec![0xb3];
    for name in ["MSSBCBS", "PLAIN", "ANONYMOUS", "EXTERNAL"] {
        elements.extend(u32::try_from(name.len()).unwrap().to_be_bytes());
        elements.extend(name.as_bytes());
    }
    let mut array = vec![0xf0];
    array.extend(u32::try_from(elements.len() + 4).unwrap().to_be_bytes());
    array.extend(4_u32.to_be_bytes());
    array.extend(elements);
    let mut body = vec![0, 0x53, 0x40, 0xc0, u8::try_from(array.len() + 1).unwrap(), 1];
    body.extend(array);
    raw_frame(1, 0, &body)
}

fn greeted(mechanism: &str, response: Option<&'static [u8]>) -> (Client, Event) {
    let mut client = Client::new(Config::default());
    client.say_bytes(SASL);
    client.say_bytes(&init(mechanism, response));
    let event = client.event().unwrap();
    assert_eq!(client.hear_bytes(8), SASL);
    assert_eq!(client.hear_bytes(mechanisms().len()), mechanisms());
    (client, event)
}

/// The SASL header is answered with the same header and the mechanisms, including ones that only
/// some clients know. The client may choose before it has read them. Accepted credentials lead to
/// outcome 0. Then the other header is exchanged, and `open` follows (AMQP-03, AMQP-04).
#[test]
fn client_authenticates_and_opens() {
    for mechanism in ["ANONYMOUS", "MSSBCBS", "EXTERNAL"] {
        let (mut client, event) = greeted(mechanism, None);
        let credentials = match mechanism {
            "EXTERNAL" => Credentials::External,
            _ => Credentials::Anonymous,
        };
        assert_eq!(event, Event::Login(credentials));
        client.say_bytes(AMQP);
        client.say_bytes(&open());
        assert_eq!(client.event(), None, "who it is must be judged first");
        client.connection.admit();
        assert_eq!(client.event(), Some(Event::Opened(Box::new(open_of_client()))));
        assert_eq!(client.hear_bytes(outcome(0).len()), outcome(0));
        assert_eq!(client.hear_bytes(8), AMQP);
        let heard = client.receive();
        let [(0, Performative::Open(open), _)] = &heard[..] else { panic!("{heard:?}") };
        assert_eq!(&*open.container_id, "peeklock");
    }
}

/// `open` announces frames of at least 65,536 bytes, at least 1,024 channels, and a time-out that
/// every client accepts (AMQP-05, AMQP-06).
#[test]
fn open_announces_values_that_suit_every_client() {
    let mut client = Client::new(Config { sasl_required: false, ..Config::default() });
    client.say_bytes(AMQP);
    client.say_bytes(&open());
    client.events();
    client.hear_bytes(8);
    let heard = client.receive();
    let [(0, Performative::Open(open), _)] = &heard[..] else { panic!("{heard:?}") };
    assert!(open.max_frame_size.unwrap() >= 65_536);
    assert!(open.channel_max.unwrap() >= 1_023);
    assert!((120_000..=240_000).contains(&open.idle_time_out.unwrap()));
    assert_eq!(open.offered_capabilities, None, "no ANONYMOUS-RELAY");
}

/// User and password come with the choice or after a challenge, and are not printed in logs. A
/// denied client gets code 1.
#[test]
fn user_and_password_are_checked_by_the_driver() {
    let plain = Plain { user: "policy".into(), password: "key".into() };
    let (mut client, event) = greeted("PLAIN", Some(b"\0policy\0key"));
    assert_eq!(event, Event::Login(Credentials::Plain(plain.clone())));
    assert!(!format!("{event:?}").contains("key"), "{event:?}");
    client.connection.deny();
    assert_eq!(client.hear_bytes(outcome(1).len()), outcome(1));
    assert!(client.connection.is_over());

    let mut client = Client::new(Config::default());
    client.say_bytes(SASL);
    client.say_bytes(&init("PLAIN", None));
    assert_eq!(client.event(), None);
    client.hear_bytes(8 + mechanisms().len());
    assert_eq!(client.hear_bytes(16), raw_frame(1, 0, &[0, 0x53, 0x42, 0xc0, 3, 1, 0xa0, 0]));
    let mut response = Vec::new();
    write_list(
        &mut response,
        &Response { response: bytes::Bytes::from_static(b"policy\0policy\0key") },
    );
    client.say_bytes(&raw_frame(1, 0, &response));
    assert_eq!(client.event(), Some(Event::Login(Credentials::Plain(plain))));
}

/// A mechanism that is not offered and an invalid response lead to code 1.
#[test]
fn invalid_credentials_are_denied_immediately() {
    for (mechanism, response) in [
        ("SCRAM-SHA-256", None),
        ("PLAIN", Some(&b"policy\0key"[..])),
        ("PLAIN", Some(b"other\0policy\0key")),
        ("PLAIN", Some(b"\0\0key")),
        ("PLAIN", Some(b"\0\xff\0key")),
    ] {
        let (mut client, event) = greeted(mechanism, response);
        assert_eq!(event, Event::Closed { error: None, by_client: false }, "{mechanism}");
        assert_eq!(client.hear_bytes(outcome(1).len()), outcome(1));
        assert!(client.connection.is_over());
    }
}

/// An unknown header is answered with a supported one, and the connection ends. This includes the
/// header of TLS, and the header of AMQP if SASL is required (AMQP-04).
#[test]
fn another_header_is_answered_by_one_that_is_offered() {
    for header in [
        &b"AMQP\x02\x01\x00\x00"[..],
        b"AMQP\x00\x00\x09\x01",
        AMQP,
        b"GET / HTTP/1.1\r\n",
        b"\x16\x03\x01\x02",
    ] {
        let mut client = Client::new(Config::default());
        client.say_bytes(header);
        assert!(matches!(client.event(), Some(Event::Closed { .. })), "{header:?}");
        assert_eq!(client.hear_bytes(8), SASL);
        assert!(client.connection.is_over());
        assert_eq!(client.event(), None);
        assert!(client.input.is_empty(), "what came is not kept");
    }
}

/// Frames before `open` must be small, and the first frame must be `open`.
#[test]
fn frames_before_open_are_small() {
    let mut client = Client::new(Config { sasl_required: false, ..Config::default() });
    client.say_bytes(AMQP);
    client.say_bytes(&[0, 0, 0x20, 1, 2, 0, 0, 0]);
    client.event();
    client.hear_bytes(8);
    let heard = client.receive();
    assert!(matches!(&heard[..], [(_, Performative::Open(_), _), (_, Performative::Close(_), _)]));

    let mut client = Client::new(Config { sasl_required: false, ..Config::default() });
    client.say_bytes(AMQP);
    client.send(0, &crate::client::begin(1));
    client.events();
    client.hear_bytes(8);
    let heard = client.receive();
    let [(0, Performative::Open(_), _), (0, Performative::Close(close), _)] = &heard[..] else {
        panic!("{heard:?}")
    };
    assert_eq!(close.error.as_ref().unwrap().condition(), "amqp:illegal-state");
}

/// `close` is answered with `close`, also if sessions and links remain (AMQP-07).
#[test]
fn close_is_answered_by_close() {
    let (mut client, _) = Client::in_session(Config::default());
    client.attach(crate::client::receiver(0));
    client.send(0, &Performative::Close(Close { error: None }));
    assert_eq!(client.events(), [Event::Closed { error: None, by_client: true }]);
    assert_eq!(
        client.receive(),
        [(0, Performative::Close(Close { error: None }), bytes::Bytes::new())]
    );
    assert!(client.connection.is_over());
    assert_eq!(client.connection.deadline(), None);
}

/// A connection that the broker closes reports the reason and ignores further frames. It is over
/// when the client answers, or after a time limit.
#[test]
fn closing_from_here_waits_for_the_answer_but_not_for_ever() {
    let config = Config::default();
    let error = AmqpError::new("amqp:connection:forced", "broker stops");
    for answers in [true, false] {
        let mut client = Client::open(config.clone());
        client.connection.close(Some(error.clone()), client.now);
        let told = Some(error.clone().with_transience());
        let close = Performative::Close(Close { error: told });
        assert_eq!(client.receive(), [(0, close, bytes::Bytes::new())]);
        client.send(7, &crate::client::begin(1));
        client.send(0, &Performative::Open(Box::new(open_of_client())));
        assert_eq!(client.events(), []);
        assert!(!client.connection.is_over());
        if answers {
            client.send(0, &Performative::Close(Close { error: None }));
            assert_eq!(client.events(), []);
        } else {
            client.now = client.connection.deadline().unwrap();
            assert_eq!(client.now, config.closing_max);
            client.connection.tick(client.now);
        }
        assert!(client.connection.is_over());
        assert_eq!(client.receive(), []);
    }
}

/// An empty frame is sent after half of the client's time-out without other frames (AMQP-06).
#[test]
fn empty_frame_is_sent_in_each_half_of_the_timeout() {
    let seconds = Duration::from_secs;
    let open = Open { idle_time_out: Some(30_000), ..open_of_client() };
    let mut client = Client::open_with(Config::default(), open);
    assert_eq!(client.connection.deadline(), Some(seconds(15)));
    client.now = seconds(14);
    client.connection.tick(client.now);
    assert!(client.hear_bytes(0).is_empty());
    client.now = seconds(15);
    client.connection.tick(client.now);
    assert_eq!(client.hear_bytes(8), [0, 0, 0, 8, 2, 0, 0, 0]);
    assert_eq!(client.connection.deadline(), Some(seconds(30)));
    client.now = seconds(20);
    client.begin(0, 1);
    assert_eq!(client.connection.deadline(), Some(seconds(35)));
}

/// A client that is silent for the announced time-out gets an error and is disconnected (AMQP-06).
#[test]
fn a_silent_client_is_given_up() {
    let seconds = Duration::from_secs;
    let mut client = Client::open(Config::default());
    client.now = seconds(200);
    client.say_bytes(&[0, 0, 0, 8, 2, 0]);
    assert_eq!(client.event(), None);
    assert_eq!(client.connection.deadline(), Some(seconds(440)));
    client.now = seconds(439);
    client.connection.tick(client.now);
    assert_eq!(client.events(), []);
    client.now = seconds(440);
    client.connection.tick(client.now);
    assert_eq!(client.closed(), "amqp:resource-limit-exceeded");
}

/// AMQP-06: while a client is not read, its silence does not count. The time starts when it is read
/// again.
#[test]
fn unread_client_is_not_silent() {
    let seconds = Duration::from_secs;
    let mut client = Client::open(Config::default());
    client.now = seconds(240);
    client.connection.restart_idle_timeout(client.now);
    client.connection.tick(client.now);
    assert_eq!(client.events(), []);
    assert_eq!(client.connection.deadline(), Some(seconds(480)));
    client.now = seconds(480);
    client.connection.tick(client.now);
    assert_eq!(client.closed(), "amqp:resource-limit-exceeded");
}

/// AMQ-06: an idle link stays attached while its client sends empty frames.
#[test]
fn an_idle_link_stays() {
    let (mut client, _) = Client::in_session(Config::default());
    let link = client.attach(crate::client::receiver(0));
    client.send(0, &Performative::Flow(crate::client::credit(0, 0, 1)));
    client.events();
    for minute in 1..=60 {
        client.now = Duration::from_secs(60 * minute);
        client.say_bytes(&[0, 0, 0, 8, 2, 0, 0, 0]);
        assert_eq!(client.events(), []);
        client.connection.tick(client.now);
        assert_eq!((client.events(), client.receive()), (vec![], vec![]));
    }
    assert!(client.connection.can_send(link));
}

/// A client that does not open its connection in time is disconnected.
#[test]
fn a_client_that_does_not_open_is_given_up() {
    let config = Config::default();
    for said in [&b""[..], b"AMQ", SASL] {
        let mut client = Client::new(config.clone());
        client.say_bytes(said);
        client.events();
        assert_eq!(client.connection.deadline(), Some(config.opening_max));
        client.now = config.opening_max;
        client.connection.tick(client.now);
        assert!(matches!(client.event(), Some(Event::Closed { error: Some(_), .. })));
        assert!(client.connection.is_over());
    }
}

/// A maximum frame size below 512 bytes and an idle time-out of a few milliseconds are refused.
#[test]
fn useless_open_values_are_refused() {
    let wrong = [
        Open { max_frame_size: Some(511), ..open_of_client() },
        Open { idle_time_out: Some(99), ..open_of_client() },
    ];
    for open in wrong {
        let mut client = Client::new(Config { sasl_required: false, ..Config::default() });
        client.say_bytes(AMQP);
        client.send(0, &Performative::Open(Box::new(open)));
        let events = client.events();
        client.hear_bytes(8);
        let Some(Event::Closed { error: Some(error), by_client: false }) = events.last() else {
            panic!("{events:?}")
        };
        assert_eq!(error.condition(), "amqp:invalid-field");
    }
}

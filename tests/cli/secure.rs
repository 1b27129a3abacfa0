//! Access: which clients are admitted, the errors for the others, and the log entries.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use peeklock::auth_sas::sign;
use peeklock::time::Timestamp;

use crate::{FREE_PORT, Server, peeklock, run};

/// SEC-17.
#[test]
fn anonymous_access_beyond_loopback_is_refused_unless_confirmed() {
    let (code, _, log) = run(peeklock(
        "open",
        "",
        &["--ephemeral", "--http", "0.0.0.0:0", "--ws", FREE_PORT, "--amqp", FREE_PORT],
    ));
    assert_eq!(code, 2);
    assert!(log.contains("security.i_know = true"), "{log}");
    assert!(log.contains("security.allow_anonymous = false"), "{log}");

    let confirmed = "[security]\ni_know = true\n";
    let command = peeklock(
        "confirmed",
        confirmed,
        &["--ephemeral", "--http", "0.0.0.0:0", "--ws", FREE_PORT, "--amqp", FREE_PORT],
    );
    let mut server = Server::start(command);
    server.address = server.address.replace("0.0.0.0", "127.0.0.1");
    assert_eq!(server.get("/readyz").0, 200);
}

/// SEC-17.
#[test]
fn refused_anonymous_clients_learn_how_to_authenticate() {
    let config = "[security]\nallow_anonymous = false\n[[queues]]\nname = \"orders\"\n";
    let server = Server::start(peeklock(
        "closed",
        config,
        &["--ephemeral", "--http", FREE_PORT, "--ws", FREE_PORT, "--amqp", FREE_PORT],
    ));
    let (code, answer) = server.ask("POST", "/orders/messages", "one");
    assert_eq!(code, 401, "{answer}");
    assert!(answer.contains("connection string of a policy"), "{answer}");
    assert_eq!(server.get("/readyz").0, 200);
}

/// SEC-17, SEC-25, HTP-02: the first key is in a file that only its owner can read. Anonymous
/// access creates the first policy and then ends: only a token gives access, also after a restart.
/// The file follows the key.
#[test]
fn the_first_key_is_in_a_file_and_anonymous_access_ends() {
    use std::os::unix::fs::PermissionsExt as _;
    let flags = ["--data-dir", "kept", "--http", FREE_PORT, "--ws", FREE_PORT, "--amqp", FREE_PORT];
    let first = peeklock("first-key", "", &flags);
    let directory = first.get_current_dir().unwrap().to_owned();
    // Runs a command in the same directory.
    let again = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peeklock"));
        command.args(arguments).current_dir(&directory).stdin(Stdio::null());
        command.env_remove("PEEKLOCK_CONNECTION_STRING");
        command
    };
    let server = Server::start(first);
    let file = directory.join("kept/root.connection-string");
    let string = std::fs::read_to_string(&file).unwrap();
    assert!(
        string.starts_with("Endpoint=sb://localhost:")
            && string.contains("UseDevelopmentEmulator=true")
    );
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let mode = std::fs::metadata(directory.join("kept")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o700, "the journal has keys in it");
    assert_eq!(server.ask("PUT", "/$api/v1/queues/orders", "{}").0, 201);
    let (code, answer) =
        server.ask("PUT", "/$api/v1/queues/orders/policies/team", r#"{"rights": ["Send"]}"#);
    assert_eq!(code, 201, "{answer}");
    assert_eq!(server.ask("POST", "/orders/messages", "one").0, 401);
    assert_eq!(server.stop("-TERM").0, 0);

    let server = Server::start(again(&flags));
    assert_eq!(server.ask("POST", "/orders/messages", "one").0, 401, "for good");
    let (code, signed, log) = run(again(&["token", "--data-dir", "kept"]));
    assert_eq!(code, 0, "{log}");
    let header = format!("Authorization: {}\r\n", signed.trim());
    let ask = |method: &str, path: &str, body: &str| server.ask_with(&header, method, path, body);
    let string = std::fs::read_to_string(&file).unwrap();
    let mut listing = again(&["queue", "list"]);
    let (code, listed, log) = run({
        listing.env("PEEKLOCK_CONNECTION_STRING", string.lines().next_back().unwrap());
        listing
    });
    assert_eq!(code, 0, "{log}");
    assert!(listed.contains("orders"), "{listed}");
    assert_eq!(ask("POST", "/orders/messages", "one").0, 201);
    let regenerate = "/$api/v1/policies/RootManageSharedAccessKey/regenerate";
    assert_eq!(ask("POST", regenerate, r#"{"key": "primary"}"#).0, 200);
    assert_eq!(ask("POST", "/orders/messages", "one").0, 401);
    // The client gets its answer before the file is written.
    let until = Instant::now() + Duration::from_secs(20);
    while std::fs::read_to_string(&file).unwrap() == string {
        assert!(Instant::now() < until, "the file has the key from before");
        std::thread::yield_now();
    }
    let mode = std::fs::metadata(&file).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let (code, signed, log) = run(again(&["token", "--data-dir", "kept"]));
    assert_eq!(code, 0, "{log}");
    let header = format!("Authorization: {}\r\n", signed.trim());
    assert_eq!(server.ask_with(&header, "POST", "/orders/messages", "one").0, 201);
    let (code, _, log) = run(again(&["token", "--data-dir", "elsewhere"]));
    assert_eq!(code, 4, "{log}");
    assert!(log.contains("--data-dir"), "{log}");
}

/// SEC-10, SEC-12: a token is signed for an entity and a time, and only for entities that the
/// connection string covers.
#[test]
fn a_token_is_for_an_entity_and_for_a_time() {
    let config = "[security]\nallow_anonymous = false\n[[queues]]\nname = \"orders\"\n\
                  [[queues]]\nname = \"other\"\n";
    let flags = ["--data-dir", "kept", "--http", FREE_PORT, "--ws", FREE_PORT, "--amqp", FREE_PORT];
    let command = peeklock("tokens", config, &flags);
    let directory = command.get_current_dir().unwrap().to_owned();
    let server = Server::start(command);
    let token = |string: &str, flags: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peeklock"));
        command.args(["token", "--data-dir", "kept"]).args(flags).current_dir(&directory);
        command.stdin(Stdio::null()).env("PEEKLOCK_CONNECTION_STRING", string);
        run(command)
    };
    let now =
        || std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let begin = now();
    let (code, signed, log) = token("", &["--entity", "orders", "--for", "10m"]);
    assert_eq!(code, 0, "{log}");
    let end = signed.trim().split("&se=").nth(1).unwrap().split('&').next().unwrap();
    let end: u64 = end.parse().unwrap();
    assert!((begin + 599..=now() + 601).contains(&end), "{end} from {begin} on");
    let header = format!("Authorization: {}\r\n", signed.trim());
    assert_eq!(server.ask_with(&header, "POST", "/orders/messages", "one").0, 201);
    assert_eq!(server.ask_with(&header, "POST", "/other/messages", "one").0, 401);
    let strings = std::fs::read_to_string(directory.join("kept/root.connection-string")).unwrap();
    let own = strings.trim();
    let of_orders = format!("{own};EntityPath=orders");
    assert_eq!(token(&of_orders, &["--entity", "orders"]).0, 0);
    let (code, signed, log) = token(&of_orders, &["--entity", "other"]);
    assert_eq!((code, signed.as_str()), (2, ""), "{log}");
    assert!(log.contains("PEEKLOCK_CONNECTION_STRING") && log.contains("EntityPath"), "{log}");
    let (code, _, log) = token("", &["--for", "soon"]);
    assert_eq!(code, 2, "{log}");
}

/// SEC-13: with `security.strict_audience` a token must name a host of the configuration.
#[test]
fn a_strict_audience_is_a_host_of_the_configuration() {
    let config = "[security]\nallow_anonymous = false\nstrict_audience = true\n\
                  [http]\nallowed_hosts = [\"bus.example\"]\n[[queues]]\nname = \"orders\"\n";
    let flags = ["--data-dir", "kept", "--http", FREE_PORT, "--ws", FREE_PORT, "--amqp", FREE_PORT];
    let command = peeklock("strict", config, &flags);
    let directory = command.get_current_dir().unwrap().to_owned();
    let server = Server::start(command);
    let strings = std::fs::read_to_string(directory.join("kept/root.connection-string")).unwrap();
    let own = strings.trim();
    let root = own.split("SharedAccessKey=").nth(1).unwrap().split(';').next().unwrap();
    for (audience, expected) in [("sb://bus.example/orders", 201), ("sb://x/orders", 401)] {
        let token = sign("RootManageSharedAccessKey", root, audience, Timestamp::NEVER);
        let header = format!("Authorization: {token}\r\n");
        let (code, answer) = server.ask_with(&header, "POST", "/orders/messages", "one");
        assert_eq!(code, expected, "{audience}: {answer}");
    }
}

/// TLS-03: failed handshakes are counted by cause, such as bytes that are not TLS and handshakes
/// that time out. Failures that need action are logged at the default level.
#[test]
fn failed_handshakes_are_counted() {
    let config = "[tls]\nenabled = true\nhandshake_timeout = \"1s\"\n";
    let flags = ["--data-dir", "kept", "--http", FREE_PORT, "--ws", FREE_PORT, "--amqp", FREE_PORT];
    let command = peeklock("handshakes", config, &flags);
    let authority = command.get_current_dir().unwrap().join("kept/tls/authority.pem");
    let server = Server::start(command);
    let address = server.address.trim_start_matches("https://");
    let mut plain = TcpStream::connect(address).unwrap();
    plain.write_all(b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n").unwrap();
    let mut answer = String::new();
    plain.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    let mut half = TcpStream::connect(address).unwrap();
    half.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    half.write_all(&[22, 3, 1, 2, 0, 1]).unwrap();
    // Closed or reset.
    half.read_to_end(&mut Vec::new()).ok();
    let until = Instant::now() + Duration::from_secs(20);
    loop {
        let mut metrics = Command::new("curl");
        metrics.args(["-fsS", "--noproxy", "*", "--cacert"]).arg(&authority);
        metrics.arg(format!("https://{address}/metrics"));
        let (code, page, errors) = run(metrics);
        assert_eq!(code, 0, "{errors}");
        let is_counted = |cause: &str| {
            page.contains(&format!("peeklock_tls_handshakes_refused_total{{cause=\"{cause}\"}} 1"))
        };
        // A connection is closed before it is counted.
        if is_counted("not_tls") && is_counted("late") {
            break;
        }
        assert!(Instant::now() < until, "{page}");
    }
    // A client that does not trust the certificate reports that with an alert.
    let mut stranger = Command::new("curl");
    stranger.args(["-sS", "--noproxy", "*", &format!("https://{address}/livez")]);
    let (code, _, errors) = run(stranger);
    assert_ne!(code, 0, "it trusts an authority that nobody has told it of: {errors}");
    let (code, _, log) = server.stop("-TERM");
    assert_eq!(code, 0, "{log}");
    for expected in ["without TLS to an address with TLS", "does not trust the certificate"] {
        let line = log.lines().find(|line| line.contains(expected));
        let line = line.unwrap_or_else(|| panic!("no `{expected}` in\n{log}"));
        assert!(line.contains("WARN") && line.contains("peer=127.0.0.1:"), "{line}");
    }
}

/// SEC-08, SEC-14, SEC-22: a denied request is logged at the default level with the cause, the
/// policy, the client's address and the tracking id of the answer, and counted by cause. In a whole
/// run in which keys are set, shown and changed and tokens are valid and invalid, over every
/// transport and at any level, the log never contains a key, signature or token.
#[test]
fn refusals_are_logged_without_secrets() {
    use base64::Engine as _;

    const KEYS: [&str; 4] = [
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        "BQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        "BgECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        "BwECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
    ];
    const WRONG: &str = "CAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";
    for filter in ["info", "trace"] {
        let config = "[security]\nallow_anonymous = false\n[[queues]]\nname = \"orders\"\n";
        let flags = ["--data-dir", "kept", "--http", FREE_PORT, "--ws", FREE_PORT, "--amqp"];
        let flags = [&flags[..], &[FREE_PORT, "--log-filter", filter]].concat();
        let command = peeklock(&format!("refusals-{filter}"), config, &flags);
        let directory = command.get_current_dir().unwrap().to_owned();
        let log = directory.join("log");
        let mut server =
            Server::start_logging_to(command, std::fs::File::create(&log).unwrap().into());
        let strings =
            std::fs::read_to_string(directory.join("kept/root.connection-string")).unwrap();
        let own = strings.trim();
        let root = own.split("SharedAccessKey=").nth(1).unwrap().split(';').next().unwrap();
        let never = Timestamp::NEVER;
        let past = Timestamp::from_unix_ms(1_000);
        let of_root = sign("RootManageSharedAccessKey", root, "sb://x", never);
        let mut secrets = vec![root.to_owned(), WRONG.to_owned(), of_root.clone()];
        secrets.extend(KEYS.map(str::to_owned));
        let url = server.websocket();
        let ask = |token: &str, method: &str, path: &str, body: &str| {
            server.ask_with(&format!("Authorization: {token}\r\n"), method, path, body)
        };
        // Keys that are set, shown and changed.
        let [first, second, third, fourth] = KEYS;
        let made = format!(
            r#"{{"rights": ["Send"], "primaryKey": "{first}", "secondaryKey": "{second}"}}"#
        );
        let team = "/$api/v1/queues/orders/policies/team";
        assert_eq!(ask(&of_root, "PUT", team, &made).0, 201);
        assert_eq!(ask(&of_root, "POST", &format!("{team}/keys"), "").0, 200);
        let newer = format!(r#"{{"key": "secondary", "value": "{third}"}}"#);
        assert_eq!(ask(&of_root, "POST", &format!("{team}/regenerate"), &newer).0, 200);
        let entry = format!(
            "<entry xmlns=\"http://www.w3.org/2005/Atom\"><content><QueueDescription \
             xmlns=\"http://schemas.microsoft.com/netservices/2010/10/servicebus/connect\"><AuthorizationRules>\
             <AuthorizationRule><Rights><AccessRights>Send</AccessRights></Rights><KeyName>atom</KeyName>\
             <PrimaryKey>{fourth}</PrimaryKey></AuthorizationRule></AuthorizationRules></QueueDescription></content></entry>"
        );
        assert_eq!(ask(&of_root, "PUT", "/atom?api-version=2021-05", &entry).0, 201);
        // Valid tokens, and invalid tokens and keys.
        let good = sign("team", first, "sb://x/orders", never);
        assert_eq!(ask(&good, "POST", "/orders/messages", "one").0, 201);
        let bearer = "Bearer eyJhbGciOiJSUzI1NiJ9.c2VjcmV0LWNsYWltcw.c2VjcmV0LXNpZ25hdHVyZQ";
        let receive = "/orders/messages/head?timeout=0";
        let refused = [
            ("right", good.clone(), receive),
            ("signature", sign("team", WRONG, "sb://x/orders", never), receive),
            // A name that is no policy may be a key in the wrong place.
            ("signature", sign("nobody", WRONG, "sb://x/orders", never), receive),
            ("signature", sign(second, WRONG, "sb://x/orders", never), receive),
            ("expired", sign("team", first, "sb://x/orders", past), receive),
            ("audience", good.clone(), "/atom/messages"),
            ("bearer", bearer.to_owned(), receive),
            ("malformed", "Basic c2VjcmV0LWJhc2lj".to_owned(), receive),
            ("too_long", format!("SharedAccessSignature {}", "secret-long".repeat(2_000)), receive),
            ("missing", String::new(), receive),
        ];
        let mut told = Vec::new();
        for (cause, token, path) in &refused {
            let method = "POST";
            let (code, answer) = match &**token {
                "" => server.ask(method, path, ""),
                token => ask(token, method, path, ""),
            };
            assert_eq!(code, 401, "{cause}: {answer}");
            let id = answer.split("TrackingId:").nth(1).unwrap().split(',').next().unwrap();
            told.push((*cause, id.to_owned()));
            let signature = token.split("sig=").nth(1).and_then(|rest| rest.split('&').next());
            secrets.extend(signature.map(str::to_owned));
        }
        secrets.extend(["c2VjcmV0", "secret-long"].map(str::to_owned));
        // Over WebSocket, and with a key over AMQP.
        let wrong = own.replace(root, WRONG);
        for (string, expected) in [(own, 0), (&wrong, 1)] {
            let mut list = Command::new(env!("CARGO_BIN_EXE_peeklock"));
            list.args(["queue", "list"]).env("PEEKLOCK_CONNECTION_STRING", string);
            let (code, _, errors) = run(list);
            assert_eq!(code, expected, "{url}: {errors}");
        }
        let amqp = own.strip_prefix("Endpoint=sb://").unwrap().split(';').next().unwrap();
        let name = "RootManageSharedAccessKey";
        for (user, password) in [(name, root), (name, WRONG), (root, name), (of_root.as_str(), "")]
        {
            let plain = format!("\0{user}\0{password}");
            let mut fields = vec![3, 0xa3, 5];
            fields.extend(*b"PLAIN");
            fields.extend([0xa0, u8::try_from(plain.len()).unwrap()]);
            fields.extend(plain.as_bytes());
            fields.push(0x40);
            let mut frame = vec![0, 0, 0, 0, 2, 1, 0, 0, 0, 0x53, 0x41, 0xc0];
            frame.push(u8::try_from(fields.len()).unwrap());
            frame.extend(fields);
            let length = u32::try_from(frame.len()).unwrap();
            frame[..4].copy_from_slice(&length.to_be_bytes());
            let mut stream = TcpStream::connect(amqp).unwrap();
            stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
            stream.write_all(b"AMQP\x03\x01\x00\x00").unwrap();
            stream.write_all(&frame).unwrap();
            let mut header = [0; 8];
            stream.read_exact(&mut header).unwrap();
            assert_eq!(&header, b"AMQP\x03\x01\x00\x00");
            // The mechanisms and then the outcome: 0 is success, 1 is not.
            loop {
                let mut length = [0; 4];
                stream.read_exact(&mut length).unwrap();
                let mut body = vec![0; u32::from_be_bytes(length) as usize - 4];
                stream.read_exact(&mut body).unwrap();
                if body[4..7] == [0x00, 0x53, 0x44] {
                    break;
                }
            }
        }
        let (_, metrics) = ask(&of_root, "GET", "/metrics", "");
        for (cause, _) in &told {
            let counted = format!("peeklock_tokens_refused_total{{cause=\"{cause}\"}}");
            assert!(metrics.contains(&counted), "{cause}: {metrics}");
        }
        assert_eq!(server.stop("-TERM").0, 0);
        let log = std::fs::read_to_string(&log).unwrap();
        let line_of = |id: &str| {
            let is_it = |line: &&str| line.contains(id) && line.contains(" refused ");
            log.lines().find(is_it).unwrap_or_else(|| panic!("{id}: {log}"))
        };
        for (cause, id) in &told {
            let line = line_of(id);
            assert!(
                line.contains("WARN") && line.contains(&format!("cause=\"{cause}\"")),
                "{line}"
            );
            assert!(line.contains("peer=127.0.0.1:"), "{line}");
        }
        let warned = |text: &str| {
            let lines = log.lines().filter(|line| line.contains("WARN") && line.contains(text));
            lines.count()
        };
        // Entries name only the existing policy. Over the other transports the root policy was
        // used.
        assert_eq!(warned("policy=\"team\""), 4, "{log}");
        let of_others = warned("policy=\"RootManageSharedAccessKey\"");
        assert!(of_others >= 2, "over WebSocket and over AMQP: {log}");
        assert_eq!(warned("policy="), 4 + of_others, "{log}");
        assert!(!log.contains("nobody"), "{log}");
        assert!(line_of(&told[0].1).contains("entity=\"orders\""));
        assert!(log.contains("cause=\"key\""), "the key over AMQP: {log}");
        let raw = |key: &str| base64::engine::general_purpose::STANDARD.decode(key).unwrap();
        for secret in &secrets {
            assert!(secret.len() >= 8 && !log.contains(secret.as_str()), "{secret} is in the log");
            if secret.len() == 44 {
                assert!(!log.contains(&format!("{:?}", raw(secret))), "{secret} as bytes");
            }
        }
        assert!(filter != "trace" || log.contains("TRACE"), "the log has all there is");
    }
}

/// SEC-22, ADM-05: a request for the health with an invalid token gets the answer for strangers,
/// and is counted and logged like anywhere else. Otherwise keys could be tried there without a
/// trace. A valid token with too few rights is no attempt, nor is a missing token.
#[test]
fn an_invalid_token_at_the_health_is_logged() {
    const KEYS: [&str; 2] = [
        "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
        "BQECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=",
    ];
    const WRONG: &str = "CAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

    let [primary, secondary] = KEYS;
    let config = "[security]\nallow_anonymous = false\n";
    let flags = ["--data-dir", "kept", "--http", FREE_PORT, "--ws", FREE_PORT, "--amqp", FREE_PORT];
    let command = peeklock("health", config, &flags);
    let directory = command.get_current_dir().unwrap().to_owned();
    let server = Server::start(command);
    let strings = std::fs::read_to_string(directory.join("kept/root.connection-string")).unwrap();
    let root = strings.split("SharedAccessKey=").nth(1).unwrap().split([';', '\n']).next().unwrap();
    let root_name = "RootManageSharedAccessKey";
    let never = Timestamp::NEVER;
    let ask = |token: &str, method: &str, path: &str, body: &str| {
        let (code, answer) =
            server.ask_with(&format!("Authorization: {token}\r\n"), method, path, body);
        let body = answer.split_once("\r\n\r\n").unwrap().1.to_owned();
        (code, body)
    };
    let of_root = sign(root_name, root, "sb://x", never);
    let made = format!(
        r#"{{"rights": ["Send"], "primaryKey": "{primary}", "secondaryKey": "{secondary}"}}"#
    );
    assert_eq!(ask(&of_root, "PUT", "/$api/v1/policies/sender", &made).0, 201);
    let health = |token: &str| ask(token, "GET", "/health", "");
    assert!(health(&of_root).1.contains("\"version\""));
    let told_to_strangers = (200, r#"{"status":"ok"}"#.to_owned());
    let (code, answer) = server.get("/health");
    assert_eq!(code, 200);
    assert!(answer.ends_with(&told_to_strangers.1), "{answer}");
    // A token without the right is not logged.
    assert_eq!(health(&sign("sender", primary, "sb://x", never)), told_to_strangers);
    let bad = [
        ("signature", sign(root_name, WRONG, "sb://x", never)),
        ("expired", sign(root_name, root, "sb://x", Timestamp::from_unix_ms(1_000))),
        ("malformed", "Basic c2VjcmV0LWJhc2lj".to_owned()),
        ("too_long", format!("SharedAccessSignature {}", "secret-long".repeat(2_000))),
    ];
    for (cause, token) in &bad {
        assert_eq!(health(token), told_to_strangers, "{cause}");
    }
    let (_, metrics) = ask(&of_root, "GET", "/metrics", "");
    let (_, _, log) = server.stop("-TERM");
    let count = |text: &str, part: &str| text.lines().filter(|line| line.contains(part)).count();
    for (cause, _) in &bad {
        let counted = format!("peeklock_tokens_refused_total{{cause=\"{cause}\"}} 1");
        assert_eq!(count(&metrics, &counted), 1, "{cause}: {metrics}");
        let line = log.lines().find(|line| line.contains(&format!("cause=\"{cause}\"")));
        let line = line.unwrap_or_else(|| panic!("{cause}: {log}"));
        assert!(line.contains("WARN") && line.contains("peer=127.0.0.1:"), "{line}");
    }
    assert_eq!(count(&metrics, "peeklock_tokens_refused_total{"), bad.len(), "{metrics}");
    assert_eq!(count(&log, " refused "), bad.len(), "{log}");
}

/// SEC-27, SEC-28, SEC-30, HTP-02: the program accepts tokens of the configured issuer over HTTP
/// and WebSocket, in addition to tokens that are signed with keys of policies.
#[test]
fn tokens_of_an_identity_provider_are_accepted() {
    use crate::issuer::{IssuerKey, key_set};

    let key = IssuerKey::new("k1");
    let config = "[security]\nallow_anonymous = false\n[[queues]]\nname = \"orders\"\n\
                  [security.jwt]\nissuer = \"https://issuer.example\"\naudiences = [\"bus\"]\n\
                  jwks_file = \"keys.json\"\n\
                  [[security.jwt.roles]]\nname = \"seller\"\nrights = [\"Send\"]\nentity = \"orders\"\n\
                  [[security.jwt.roles]]\nname = \"owner\"\nrights = [\"Send\", \"Listen\", \"Manage\"]\n";
    let flags = ["--data-dir", "kept", "--http", FREE_PORT, "--ws", FREE_PORT, "--amqp", FREE_PORT];
    let command = peeklock("issuer", config, &flags);
    let directory = command.get_current_dir().unwrap().to_owned();
    std::fs::write(directory.join("keys.json"), key_set([&key])).unwrap();
    let mut server = Server::start(command);
    let url = server.websocket();
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap().as_secs();
    let token = |audience: &str, role: &str| {
        key.sign(&serde_json::json!({
            "iss": "https://issuer.example", "aud": audience, "roles": [role], "exp": now + 3_600,
        }))
    };
    let ask = |token: &str, method: &str, path: &str, body: &str| {
        server.ask_with(&format!("Authorization: Bearer {token}\r\n"), method, path, body)
    };
    let seller = token("bus", "seller");
    assert_eq!(ask(&seller, "POST", "/orders/messages", "one").0, 201);
    assert_eq!(ask(&seller, "POST", "/orders/messages/head?timeout=0", "").0, 401);
    assert_eq!(ask(&seller, "POST", "/other/messages", "one").0, 401);
    assert_eq!(ask(&token("bus", "owner"), "PUT", "/$api/v1/queues/other", "{}").0, 201);
    let (code, answer) = ask(&token("elsewhere", "owner"), "POST", "/orders/messages", "one");
    assert_eq!(code, 401);
    assert!(answer.contains("security.jwt.audiences"), "{answer}");
    assert_eq!(server.ask("POST", "/orders/messages", "one").0, 401);

    let again = |variable: &str, value: &str, arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peeklock"));
        command.args(arguments).current_dir(&directory).stdin(Stdio::null());
        command.env_remove("PEEKLOCK_CONNECTION_STRING").env(variable, value);
        run(command)
    };
    let list = ["queue", "list", "--url", &url];
    let (code, listed, log) = again("PEEKLOCK_TOKEN", &token("bus", "owner"), &list);
    assert_eq!(code, 0, "{log}");
    assert!(listed.contains("orders") && listed.contains("other"), "{listed}");
    assert_ne!(again("PEEKLOCK_TOKEN", &token("elsewhere", "owner"), &list).0, 0);
    let (code, signed, log) = again("LC_ALL", "C", &["token", "--data-dir", "kept"]);
    assert_eq!(code, 0, "{log}");
    let header = format!("Authorization: {}\r\n", signed.trim());
    assert_eq!(server.ask_with(&header, "POST", "/orders/messages", "one").0, 201);
    let (code, _, log) = server.stop("-TERM");
    assert_eq!(code, 0, "{log}");
    assert!(!log.contains("eyJ"), "{log}");
}

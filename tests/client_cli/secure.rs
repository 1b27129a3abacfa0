//! `peeklock tls`, and commands over TLS with connection strings

use std::os::unix::fs::PermissionsExt as _;
use std::path::PathBuf;

use serde_json::Value;

use super::broker::Broker;
use super::program::{Ended, Program};

/// An empty directory of a test.
fn directory(name: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("client-cli-tls").join(name);
    if directory.exists() {
        std::fs::remove_dir_all(&directory).unwrap();
    }
    directory
}

fn text(path: &std::path::Path) -> &str {
    path.to_str().unwrap()
}

/// A broker with TLS and a development authority that it creates.
struct Secure {
    broker: Broker,
    data_dir: PathBuf,
}

impl Secure {
    fn start(name: &str) -> Self {
        let data_dir = directory(name);
        let settings = [("PEEKLOCK__TLS__ENABLED", "true")];
        Self { broker: Broker::start_in(text(&data_dir), &settings), data_dir }
    }

    fn authority(&self) -> PathBuf {
        self.data_dir.join("tls/authority.pem")
    }

    /// Connection string of the root policy.
    fn string(&self) -> String {
        let file = self.data_dir.join("root.connection-string");
        std::fs::read_to_string(file).unwrap().trim().to_owned()
    }

    /// Runs a command with a connection string and the authority.
    fn run(&self, string: &str, arguments: &[&str]) -> Ended {
        Program::new(arguments)
            .variable("PEEKLOCK_CONNECTION_STRING", string)
            .variable("PEEKLOCK_CA", text(&self.authority()))
            .run()
    }

    fn ok(&self, arguments: &[&str]) -> String {
        let ended = self.run(&self.string(), arguments);
        assert_eq!(ended.code, 0, "{arguments:?}\n{}\n{}", ended.out, ended.log);
        ended.out
    }
}

/// TLS-05, TLS-06, TLS-07, SEC-21: a broker with TLS writes a matching connection string. Commands
/// trust the given authority, by default that of the data directory, and no other; they report an
/// untrusted one with the remedy.
#[test]
fn a_command_trusts_only_the_given_authority() {
    let secure = Secure::start("trusts");
    assert!(secure.broker.url.starts_with("wss://127.0.0.1:"), "{}", secure.broker.url);
    let string = secure.string();
    let address = secure.broker.url.trim_start_matches("wss://");
    assert!(string.starts_with("Endpoint=sb://localhost:"), "{string}");
    assert!(!string.contains("UseDevelopmentEmulator"), "{string}");
    let told = |program: Program, code: i32, words: &[&str]| {
        let ended = program.run();
        assert_eq!(ended.code, code, "{}\n{}", ended.out, ended.log);
        for word in words {
            assert!(ended.log.contains(word), "{word}: {}", ended.log);
        }
        assert!(!ended.log.contains("SharedAccessKey="), "{}", ended.log);
    };
    let list = ["queue", "list"];
    let by_string = |more: &[&str]| {
        Program::new(&[&list[..], more].concat()).variable("PEEKLOCK_CONNECTION_STRING", &string)
    };
    told(by_string(&[]), 7, &["not trusted here", "--ca or PEEKLOCK_CA"]);
    told(by_string(&["--ca", text(&secure.authority())]), 0, &[]);
    told(by_string(&[]).variable("PEEKLOCK_CA", text(&secure.authority())), 0, &[]);
    told(by_string(&["--ca", "/absent.pem"]), 2, &["/absent.pem"]);
    told(Program::new(&["queue", "list", "--connection-string", &string]), 7, &["--ca"]);
    told(Program::new(&["queue", "list", "--data-dir", text(&secure.data_dir)]), 0, &[]);
    told(
        Program::new(&["queue", "list", "--url", &format!("ws://{address}")]),
        7,
        &["TLS", "wss://"],
    );

    let plain = Broker::start();
    let url = format!("wss://{}", plain.address());
    told(Program::new(&["queue", "list", "--url", &url]), 7, &["TLS", "ws://"]);
    let string =
        format!("Endpoint=sb://{};SharedAccessKeyName=a;SharedAccessKey=b", plain.address());
    let by_plain = Program::new(&list).variable("PEEKLOCK_CONNECTION_STRING", &string);
    told(by_plain, 7, &["TLS"]);
}

/// LIS-05, LIS-01: with a gateway, the connection string for every client has the gateway's
/// address, and commands use it.
#[test]
fn a_gateway_has_one_connection_string() {
    let data_dir = directory("gateway");
    let settings = [("PEEKLOCK__GATEWAY__ADDRESS", "127.0.0.1:0")];
    let broker = Broker::start_in(text(&data_dir), &settings);
    let string = std::fs::read_to_string(data_dir.join("root.connection-string")).unwrap();
    assert_eq!(string.lines().count(), 1, "{string}");
    assert!(!string.contains(broker.address()), "{string}");
    let root = ["--policy", "RootManageSharedAccessKey"];
    for client in ["sdk", "peeklock"] {
        let told = ["connection-string", "--for", client, "--data-dir", text(&data_dir)];
        assert_eq!(Program::new(&told).run().out, string, "{client}");
        let of_policy = Program::new(&[&told[..], &root].concat()).run();
        assert_eq!(of_policy.out, string, "{client}: {}", of_policy.log);
        // On another machine: the gateway itself reports that it accepts AMQP.
        let from_elsewhere = Program::new(&[&told[..3], &root].concat())
            .variable("PEEKLOCK_CONNECTION_STRING", string.trim())
            .run();
        assert_eq!(from_elsewhere.out, string, "{client}: {}", from_elsewhere.log);
    }
    let ended = Program::new(&["queue", "create", "orders"])
        .variable("PEEKLOCK_CONNECTION_STRING", string.trim())
        .run();
    assert_eq!(ended.code, 0, "{}\n{}", ended.out, ended.log);
}

/// SEC-21, LIS-05: if a proxy ends TLS before a broker without TLS, connection strings for the SDKs
/// use the public URL. Flags take precedence, and commands on the broker's machine do not use the
/// proxy.
#[test]
fn a_connection_string_follows_the_public_url() {
    for has_gateway in [false, true] {
        let data_dir = directory(if has_gateway { "public-gateway" } else { "public" });
        let mut settings = vec![("PEEKLOCK__HTTP__PUBLIC_URL", "https://bus.example.com")];
        if has_gateway {
            settings.push(("PEEKLOCK__GATEWAY__ADDRESS", "127.0.0.1:0"));
        }
        let broker = Broker::start_in(text(&data_dir), &settings);
        let asked = |more: &[&str]| {
            let told = ["connection-string", "--data-dir", text(&data_dir)];
            let ended = Program::new(&[&told[..], more].concat()).run();
            assert_eq!(ended.code, 0, "{more:?}: {}", ended.log);
            ended.out
        };
        let file = std::fs::read_to_string(data_dir.join("root.connection-string")).unwrap();
        let local = file.lines().next().unwrap();
        let (endpoint, key) = local.split_once(';').unwrap();
        let port = if has_gateway { "443" } else { endpoint.rsplit_once(':').unwrap().1 };
        let key = key.replace(";UseDevelopmentEmulator=true", "");
        let public = format!("Endpoint=sb://bus.example.com:{port};{key}\n");
        let plain = format!("{};UseDevelopmentEmulator=true\n", public.trim());
        assert_eq!(asked(&[]), public);
        assert_eq!(asked(&["--policy", "RootManageSharedAccessKey"]), public);
        assert_eq!(asked(&["--plain"]), plain);
        let named = asked(&["--host", "10.0.0.1", "--port", "1"]);
        assert_eq!(named, format!("Endpoint=sb://10.0.0.1:1;{key}\n"));
        let of_commands = asked(&["--for", "peeklock"]);
        assert_eq!(of_commands == public, has_gateway, "{of_commands}");
        drop(broker);
        // Without the setting no public URL is used.
        let _again = Broker::start_in(text(&data_dir), &settings[1..]);
        let again = asked(&[]);
        assert!(again.starts_with("Endpoint=sb://localhost:"), "{again}");
    }
}

/// SEC-21: the command does not guess the AMQP address.
#[test]
fn an_unknown_port_is_not_guessed() {
    // On a loopback address where the usual port is free.
    let broker = Broker::start_at("127.0.0.77:0");
    let (_, log) = broker.ends(2, &["connection-string", "--policy", "RootManageSharedAccessKey"]);
    assert!(log.contains("--port") && log.contains("127.0.0.77"), "{log}");
}

/// SEC-20, SEC-21: the connection string of a policy has the broker's address and the entity. It is
/// not used for other entities.
#[test]
fn a_connection_string_is_for_its_entity() {
    let secure = Secure::start("entity");
    for queue in ["orders", "other"] {
        secure.ok(&["queue", "create", queue]);
    }
    secure.ok(&[
        "policy", "create", "shop", "--entity", "orders", "--right", "send", "--right", "listen",
    ]);
    let string = secure.ok(&[
        "connection-string",
        "--entity",
        "orders",
        "--policy",
        "shop",
        "--for",
        "peeklock",
    ]);
    let string = string.trim();
    assert!(string.ends_with(";EntityPath=orders"), "{string}");
    let ended = secure.run(string, &["send", "orders", "two coffees"]);
    assert_eq!(ended.code, 0, "{}", ended.log);
    for arguments in
        [&["send", "other", "tea"][..], &["receive", "other"], &["queue", "show", "other"]]
    {
        let ended = secure.run(string, arguments);
        assert_eq!(ended.code, 2, "{}", ended.log);
        assert!(
            ended.log.contains("EntityPath") && ended.log.contains("`orders`"),
            "{}",
            ended.log
        );
    }
    let received = secure.run(string, &["receive", "orders", "--body-only"]);
    assert_eq!((received.code, &*received.out), (0, "two coffees\n"), "{}", received.log);
}

/// TLS-09: a context stores a connection string and the authority in a file that only its user can
/// read, and no output shows the key.
#[test]
fn a_context_keeps_a_connection_string() {
    let secure = Secure::start("context");
    let home = directory("context-home");
    let program =
        |arguments: &[&str]| Program::new(arguments).variable("XDG_CONFIG_HOME", text(&home));
    let authority = secure.authority();
    let add = [
        "context",
        "add",
        "prod",
        "--connection-string-file",
        "-",
        "--use",
        "--ca",
        text(&authority),
    ];
    let ended = program(&add).input(secure.string().as_bytes()).run();
    assert_eq!(ended.code, 0, "{}", ended.log);
    let file = home.join("peeklock/contexts.toml");
    assert_eq!(std::fs::metadata(&file).unwrap().permissions().mode() & 0o777, 0o600);
    let key = secure.string().split("SharedAccessKey=").nth(1).unwrap().to_owned();
    assert!(std::fs::read_to_string(&file).unwrap().contains(&key));
    for arguments in [
        &["queue", "list"][..],
        &["queue", "create", "orders"],
        &["context", "list"],
        &["context", "show"],
        &["context", "show", "-o", "json"],
    ] {
        let ended = program(arguments).run();
        assert_eq!(ended.code, 0, "{}", ended.log);
        assert!(!ended.out.contains(&key) && !ended.log.contains(&key), "{arguments:?}");
    }
    let shown = program(&["context", "show", "-o", "json"]).run().out;
    let shown: Value = serde_json::from_str(&shown).unwrap();
    let string = secure.string();
    let endpoint = string.split([';', '/']).nth(2).unwrap();
    assert_eq!(shown["url"], format!("wss://{endpoint}"));
    assert_eq!((&shown["hasToken"], &shown["ca"]), (&true.into(), &text(&authority).into()));
    for wrong in ["nonsense", "Endpoint=sb://a", ""] {
        for url in [None, Some("wss://a:1")] {
            let add = ["context", "add", "bad", "--connection-string-file", "-"];
            let add: Vec<&str> = add.into_iter().chain(url).collect();
            let ended = program(&add).input(wrong.as_bytes()).run();
            assert_eq!(ended.code, 2, "{wrong} {url:?}: {}", ended.log);
            assert!(ended.log.contains("`-`"), "the file is named: {}", ended.log);
        }
    }
    assert_eq!(program(&["context", "show", "bad"]).run().code, 4, "nothing is kept of it");
    assert_eq!(program(&["context", "add", "bad"]).run().code, 2);
}

/// TLS-05: the authority is created, shown and explained. With other names it is recreated only
/// with a flag.
#[test]
fn an_authority_is_made_shown_and_explained() {
    let data_dir = directory("init");
    let run = |code: i32, arguments: &[&str]| {
        let ended =
            Program::new(&[&["tls"], arguments, &["--data-dir", text(&data_dir)]].concat()).run();
        assert_eq!(ended.code, code, "{arguments:?}\n{}\n{}", ended.out, ended.log);
        (ended.out, ended.log)
    };
    let (_, log) = run(4, &["show"]);
    assert!(log.contains("peeklock tls init"), "{log}");
    let (out, _) = run(0, &["init", "--name", "bus.test"]);
    assert!(
        out.starts_with("authority and certificate created") && out.contains("bus.test"),
        "{out}"
    );
    let key = data_dir.join("tls/authority.key");
    assert_eq!(std::fs::metadata(&key).unwrap().permissions().mode() & 0o777, 0o600);
    assert!(run(0, &["init"]).0.starts_with("authority and certificate already exist"));
    let show = || serde_json::from_str::<Value>(&run(0, &["show", "-o", "json"]).0).unwrap();
    let before = show();
    let names = serde_json::json!(["localhost", "bus.test", "127.0.0.1", "::1"]);
    assert_eq!(before["certificate"]["names"], names);
    let (_, log) = run(5, &["init", "--name", "other.test"]);
    assert!(log.contains("--force") && log.contains("other.test"), "{log}");
    run(2, &["init", "--name", "a b"]);
    assert_eq!(show(), before);
    run(0, &["init", "--name", "other.test", "--force"]);
    assert_ne!(show()["authority"]["fingerprint"], before["authority"]["fingerprint"]);
    let pem = run(0, &["show", "--pem"]).0;
    assert_eq!(pem, std::fs::read_to_string(data_dir.join("tls/authority.pem")).unwrap());
    let (advice, _) = run(0, &["trust"]);
    for word in [
        "update-ca-certificates",
        "certutil",
        "security add-trusted-cert",
        "NODE_EXTRA_CA_CERTS",
        "keytool",
        "connection_verify",
        "REQUESTS_CA_BUNDLE",
    ] {
        assert!(advice.contains(word), "{word}: {advice}");
    }
    assert!(!advice.contains("authority.key"), "{advice}");
}

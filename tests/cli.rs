//! Does the program start, say what it does, refuse what is wrong, and stop in order?
//! Runs the built program as people do.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::PathBuf;
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;

use peeklock::auth_sas::sign;
use peeklock::time::Timestamp;

const FREE_PORT: &str = "127.0.0.1:0";

/// A directory of its own for one test, without a `peeklock.toml` unless the test writes one.
fn directory(test: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cli").join(test);
    if directory.exists() {
        std::fs::remove_dir_all(&directory).unwrap();
    }
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

/// The program in that directory, without settings of the surroundings.
fn peeklock(test: &str, config: &str, arguments: &[&str]) -> Command {
    let directory = directory(test);
    if !config.is_empty() {
        std::fs::write(directory.join("peeklock.toml"), config).unwrap();
    }
    let mut command = Command::new(env!("CARGO_BIN_EXE_peeklock"));
    command.args(arguments).current_dir(directory).stdin(Stdio::null());
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().to_uppercase().starts_with("PEEKLOCK__") {
            command.env_remove(name);
        }
    }
    command
}

fn run(mut command: Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// A broker that is ready; killed if the test forgets it.
struct Server {
    child: Child,
    banner: BufReader<ChildStdout>,
    read: String,
    address: String,
}

impl Server {
    /// Starts it and reads the banner up to the line of the listener.
    fn start(command: Command) -> Self {
        Self::start_logging_to(command, Stdio::piped())
    }

    /// The same with another place for its log, which may be large.
    fn start_logging_to(mut command: Command, log: Stdio) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(log).spawn().unwrap();
        let mut banner = BufReader::new(child.stdout.take().unwrap());
        let mut read = String::new();
        let address = loop {
            let begin = read.len();
            if banner.read_line(&mut read).unwrap() == 0 {
                let mut log = String::new();
                if let Some(mut stderr) = child.stderr.take() {
                    stderr.read_to_string(&mut log).unwrap();
                }
                panic!("no listener in the banner:\n{read}\n{log}");
            }
            let line = read[begin..].trim();
            if let Some(url) = line.strip_prefix("http ") {
                break url.trim().trim_start_matches("http://").to_owned();
            }
        };
        Self { child, banner, read, address }
    }

    /// Where the commands of the program reach it, which the banner says further down.
    fn websocket(&mut self) -> String {
        loop {
            let begin = self.read.len();
            assert_ne!(self.banner.read_line(&mut self.read).unwrap(), 0, "{}", self.read);
            if let Some(url) = self.read[begin..].trim().strip_prefix("websocket ") {
                return url.trim().to_owned();
            }
        }
    }

    /// Asks and returns the status line's code and the whole answer.
    fn ask(&self, method: &str, path: &str, body: &str) -> (u16, String) {
        self.ask_with("", method, path, body)
    }

    /// The same with more lines of the head.
    fn ask_with(&self, head: &str, method: &str, path: &str, body: &str) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.address).unwrap();
        stream.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nHost: {}\r\nContent-Length: {}\r\nConnection: close\r\n{head}\r\n{body}",
            self.address,
            body.len()
        )
        .unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let code = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (code, answer)
    }

    fn get(&self, path: &str) -> (u16, String) {
        self.ask("GET", path, "")
    }

    /// Sends a signal; returns the exit code, the whole of standard output, and the log.
    fn stop(mut self, signal: &str) -> (i32, String, String) {
        let kill = Command::new("kill").arg(signal).arg(self.child.id().to_string()).status();
        assert!(kill.unwrap().success());
        let mut log = String::new();
        if let Some(mut stderr) = self.child.stderr.take() {
            stderr.read_to_string(&mut log).unwrap();
        }
        let mut out = std::mem::take(&mut self.read);
        self.banner.read_to_string(&mut out).unwrap();
        (self.child.wait().unwrap().code().unwrap(), out, log)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended already.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

#[test]
fn serves_says_where_and_stops_in_order() {
    let server = Server::start(peeklock(
        "serves",
        "",
        &["serve", "--ephemeral", "--http", FREE_PORT, "--ws", FREE_PORT, "--amqp", FREE_PORT],
    ));
    assert!(!server.address.ends_with(":0"), "{}", server.address);
    assert_eq!(server.get("/readyz").0, 200);
    let address = server.address.clone();
    let (code, out, log) = server.stop("-TERM");
    assert_eq!(code, 0, "{log}");
    assert!(out.starts_with(&format!("peeklock {}\n", env!("CARGO_PKG_VERSION"))), "{out}");
    assert!(out.contains("What to try next"), "{out}");
    assert!(out.contains(&format!("curl -X PUT 'http://{address}/")), "{out}");
    assert!(!out.contains("WARNING") && !out.contains('\u{1b}'), "{out}");
    assert!(log.contains("SIGTERM") && log.contains("stopped"), "{log}");
}

/// The allocator gives large blocks back, whatever was freed before (decision 27); who has told it otherwise is heeded.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
fn the_allocator_is_told_to_give_large_blocks_back() {
    let told = |test: &str, set: Option<&str>| {
        let flags = ["serve", "--ephemeral", "--http", FREE_PORT, "--ws", FREE_PORT];
        let mut command = peeklock(test, "", &[&flags[..], &["--amqp", FREE_PORT]].concat());
        command.env_remove("GLIBC_TUNABLES").env_remove("MALLOC_TRIM_THRESHOLD_");
        match set {
            Some(bytes) => command.env("MALLOC_MMAP_THRESHOLD_", bytes),
            None => command.env_remove("MALLOC_MMAP_THRESHOLD_"),
        };
        let server = Server::start(command);
        let environment = std::fs::read(format!("/proc/{}/environ", server.child.id())).unwrap();
        let environment = String::from_utf8_lossy(&environment).into_owned();
        assert_eq!(server.stop("-TERM").0, 0);
        let named: Vec<&str> =
            environment.split('\0').filter(|line| line.starts_with("MALLOC_")).collect();
        named.join(" ")
    };
    let both = "MALLOC_MMAP_THRESHOLD_=524288 MALLOC_TRIM_THRESHOLD_=524288";
    assert_eq!(told("allocator", None), both);
    assert_eq!(told("allocator-told", Some("262144")), "MALLOC_MMAP_THRESHOLD_=262144");
}

#[test]
fn without_a_subcommand_it_serves_and_interrupt_stops_it() {
    let server = Server::start(peeklock(
        "bare",
        "",
        &["--ephemeral", "--http", FREE_PORT, "--ws", FREE_PORT, "--amqp", FREE_PORT],
    ));
    assert_eq!(server.get("/livez").0, 200);
    assert_eq!(server.stop("-INT").0, 0);
}

#[test]
fn a_store_in_memory_is_announced() {
    let server = Server::start(peeklock(
        "loud",
        "",
        &["--http", FREE_PORT, "--ws", FREE_PORT, "--amqp", FREE_PORT, "--ephemeral"],
    ));
    let (_, out, _) = server.stop("-TERM");
    assert!(out.contains("nothing survives this process"), "{out}");
}

/// Messages and queues are there again after a stop and after a kill; a second process is refused.
#[test]
fn a_restart_finds_what_was_there() {
    let command = |name| {
        peeklock(
            name,
            "",
            &["--http", FREE_PORT, "--ws", FREE_PORT, "--amqp", FREE_PORT, "--data-dir", "here"],
        )
    };
    let server = Server::start(command("restart"));
    let place = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cli").join("restart");
    let again = || {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peeklock"));
        command
            .args([
                "--http",
                FREE_PORT,
                "--ws",
                FREE_PORT,
                "--amqp",
                FREE_PORT,
                "--data-dir",
                "here",
            ])
            .current_dir(&place);
        command
    };
    assert!(server.read.is_empty() || !server.read.contains("nothing survives"));
    assert_eq!(server.ask("PUT", "/$api/v1/queues/orders", "").0, 201);
    assert_eq!(server.ask("POST", "/orders/messages", "first").0, 201);
    let (code, _, err) = run(again());
    assert_eq!(code, 1);
    assert!(err.contains("here") && err.contains("in use by process"), "{err}");
    assert!(err.contains("--data-dir"), "{err}");
    let (code, out, log) = server.stop("-TERM");
    assert_eq!(code, 0, "{log}");
    assert!(out.contains("journal in here, durable at acknowledgement"), "{out}");
    let server = Server::start(again());
    assert_eq!(server.ask("POST", "/orders/messages", "second").0, 201);
    // SIGKILL: what was acknowledged is there though nobody closed anything.
    let mut killed = server;
    killed.child.kill().unwrap();
    killed.child.wait().unwrap();
    let server = Server::start(again());
    for expected in ["first", "second"] {
        let (code, answer) = server.ask("DELETE", "/orders/messages/head", "");
        assert_eq!(code, 200, "{answer}");
        assert!(answer.ends_with(expected), "{answer}");
    }
    assert_eq!(server.ask("DELETE", "/orders/messages/head?timeout=0", "").0, 204);
}

/// What the banner proposes, as it stands there.
#[test]
fn the_steps_of_the_banner_work() {
    let mut server = Server::start(peeklock(
        "steps",
        "",
        &["--ephemeral", "--http", FREE_PORT, "--ws", FREE_PORT, "--amqp", FREE_PORT],
    ));
    let mut script = String::from("set -eu\n");
    let mut line = String::new();
    let mut begun = false;
    while server.banner.read_line(&mut line).unwrap() > 0 {
        begun |= line.starts_with("What to try next");
        if begun && line.starts_with("  ") {
            script.push_str(&line.replace("curl ", "curl -sS --fail-with-body "));
        }
        if line.contains("/metrics") {
            break;
        }
        line.clear();
    }
    let script = Command::new("bash").args(["-o", "pipefail", "-c", &script]).output().unwrap();
    let (out, log) =
        (String::from_utf8_lossy(&script.stdout), String::from_utf8_lossy(&script.stderr));
    assert!(script.status.success(), "{out}\n{log}");
    assert!(out.contains("peeklock_messages_accepted_total"), "{out}");
    // That of the last step itself is open.
    let open = out.lines().find_map(|line| {
        line.strip_prefix("peeklock_connections{transport=\"http\"} ")?.parse::<u32>().ok()
    });
    assert!(open.is_some_and(|open| open > 0), "{out}");
    assert!(out.contains("\npeeklock_store_bytes "), "{out}");
    let (_, answer) = server.get("/$api/v1/queues/hello");
    assert!(answer.contains("200 OK"), "{answer}");
}

#[test]
fn queues_of_the_configuration_exist() {
    let config = "[[queues]]\nname = \"orders\"\nmax_delivery_count = 3\n\
                  [[queues]]\nname = \"eu/invoices\"\n";
    let server = Server::start(peeklock(
        "queues",
        config,
        &["--ephemeral", "--http", FREE_PORT, "--ws", FREE_PORT, "--amqp", FREE_PORT],
    ));
    let (code, answer) = server.get("/$api/v1/queues/orders");
    assert_eq!(code, 200, "{answer}");
    assert!(answer.contains(":3"), "{answer}");
    assert_eq!(server.ask("POST", "/eu/invoices/messages", "one").0, 201);
    assert_eq!(server.ask("POST", "/absent/messages", "one").0, 410);
}

#[test]
fn unknown_keys_are_refused_by_name() {
    let command = peeklock("unknown-key", "[http]\nadress = \"127.0.0.1:0\"\n", &["serve"]);
    let (code, _, log) = run(command);
    assert_eq!(code, 2);
    assert_eq!(
        log,
        "error: unknown key `http.adress` (set by peeklock.toml); did you mean `http.address`?\n"
    );
}

#[test]
fn wrong_values_are_refused_with_their_source() {
    let (code, _, log) = run(peeklock("wrong-flag", "", &["serve", "--http", "nowhere"]));
    assert_eq!(code, 2);
    assert!(log.starts_with("error: `http.address`: `nowhere` is not an IP address"), "{log}");
    assert!(log.ends_with("(set by --http)\n"), "{log}");

    let mut command = peeklock("wrong-variable", "", &["config", "check"]);
    command.env("PEEKLOCK__LIMITS__LOCK_DURATION_MAX", "soon");
    let (code, _, log) = run(command);
    assert_eq!(code, 2);
    assert!(log.contains("`limits.lock_duration_max`: `soon` is not a duration"), "{log}");
    assert!(log.contains("PEEKLOCK__LIMITS__LOCK_DURATION_MAX"), "{log}");
}

#[test]
fn a_missing_file_is_named() {
    let (code, _, log) =
        run(peeklock("no-file", "", &["config", "check", "--config", "none.toml"]));
    assert_eq!(code, 2);
    assert!(log.contains("`none.toml` cannot be read"), "{log}");
}

#[test]
fn an_address_in_use_is_named_with_its_flag() {
    let taken = TcpListener::bind(FREE_PORT).unwrap();
    let address = taken.local_addr().unwrap().to_string();
    let mut command =
        peeklock("in-use", "", &["--http", &address, "--ws", FREE_PORT, "--amqp", FREE_PORT]);
    let directory = command.get_current_dir().unwrap().to_owned();
    command.args(["--data-dir", "not-made"]);
    let (code, _, log) = run(command);
    assert_eq!(code, 1, "{log}");
    assert!(log.contains(&address) && log.contains("--http"), "{log}");
    assert!(!directory.join("not-made").exists(), "nothing is left behind");
}

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
fn without_anonymous_access_clients_are_told_how_to_get_in() {
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

/// SEC-17, HTP-02: the first key is in a file that its owner alone reads; a policy is created with nothing to show, and from
/// then on only a token lets anybody in, also after a restart. The file follows the key.
#[test]
fn the_first_key_is_in_a_file_and_anonymous_access_ends() {
    use std::os::unix::fs::PermissionsExt as _;
    let flags = ["--data-dir", "kept", "--http", FREE_PORT, "--ws", FREE_PORT, "--amqp", FREE_PORT];
    let first = peeklock("first-key", "", &flags);
    let directory = first.get_current_dir().unwrap().to_owned();
    // In the directory as it is then.
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
        string.starts_with("Endpoint=sb://127.0.0.1:")
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
    let (code, _, log) = run(again(&["token", "--data-dir", "elsewhere"]));
    assert_eq!(code, 4, "{log}");
    assert!(log.contains("--data-dir"), "{log}");
}

/// SEC-08, SEC-14, SEC-22: who may not do what he asks is in the log at the level that an operator has, with the cause, the policy,
/// where he comes from and the id that he was told; counted by that cause; and whatever is logged, of a whole run in which keys are
/// set, told and changed and tokens are good and bad, over every way in, no key, signature or token is in it.
#[test]
fn refusals_are_in_the_log_and_no_secret_is() {
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
        let (sdk, own) = strings.trim().split_once('\n').unwrap();
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
        // Keys that are set, told and changed.
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
        // Tokens that are good, and tokens and keys that are not.
        let good = sign("team", first, "sb://x/orders", never);
        assert_eq!(ask(&good, "POST", "/orders/messages", "one").0, 201);
        let bearer = "Bearer eyJhbGciOiJSUzI1NiJ9.c2VjcmV0LWNsYWltcw.c2VjcmV0LXNpZ25hdHVyZQ";
        let receive = "/orders/messages/head?timeout=0";
        let refused = [
            ("right", good.clone(), receive),
            ("signature", sign("team", WRONG, "sb://x/orders", never), receive),
            ("signature", sign("nobody", WRONG, "sb://x/orders", never), receive),
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
        // Over WebSocket, and by a key over AMQP.
        let wrong = own.replace(root, WRONG);
        for (string, expected) in [(own, 0), (&wrong, 1)] {
            let mut list = Command::new(env!("CARGO_BIN_EXE_peeklock"));
            list.args(["queue", "list"]).env("PEEKLOCK_CONNECTION_STRING", string);
            let (code, _, errors) = run(list);
            assert_eq!(code, expected, "{url}: {errors}");
        }
        let amqp = sdk.strip_prefix("Endpoint=sb://").unwrap().split(';').next().unwrap();
        for key in [root, WRONG] {
            let plain = format!("\0RootManageSharedAccessKey\0{key}");
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
            // The mechanisms, and then the outcome: 0 is good, 1 is not.
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
            let is_named = !matches!(*cause, "bearer" | "malformed" | "too_long" | "missing");
            let is_told = line.contains("policy=\"team\"") || line.contains("policy=\"nobody\"");
            assert_eq!(is_told, is_named, "{line}");
        }
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

/// SEC-27, SEC-28, SEC-30, HTP-02: the program takes tokens of the issuer that its configuration names, over HTTP and WebSocket,
/// beside those that are signed with keys of policies.
#[test]
fn tokens_of_an_identity_provider_are_taken() {
    use peeklock_auth_jwt::testing::{IssuerKey, key_set};

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

#[test]
fn config_check_shows_what_is_in_force_and_where_it_comes_from() {
    let config =
        "[http]\nworkers = 3\n[limits]\nhop_count_max = 2\n[[queues]]\nname = \"orders\"\n";
    let mut command = peeklock("check", config, &["config", "check"]);
    command.env("PEEKLOCK__NAMESPACE__TIER", "Standard");
    let (code, out, log) = run(command);
    assert_eq!(code, 0, "{log}");
    assert!(out.starts_with("configuration is valid (file peeklock.toml); 4 values are"), "{out}");
    let row = |key: &str| -> Vec<String> {
        let line = out.lines().find(|line| line.split(' ').next() == Some(key));
        let line = line.unwrap_or_else(|| panic!("no row {key} in\n{out}"));
        line.split_whitespace().skip(1).map(str::to_owned).collect()
    };
    assert_eq!(row("KEY"), ["VALUE", "SOURCE"]);
    assert_eq!(row("http.address"), ["127.0.0.1:5300", "default"]);
    assert_eq!(row("http.workers"), ["3", "peeklock.toml"]);
    assert_eq!(row("namespace.tier"), ["Standard", "PEEKLOCK__NAMESPACE__TIER"]);
    assert_eq!(row("limits.hop_count_max"), ["2", "peeklock.toml"]);
    assert_eq!(row("limits.message_bytes_max"), ["262144", "default"]);
    assert_eq!(row("queues[0].name"), ["orders", "peeklock.toml"]);
}

#[test]
fn config_default_is_a_valid_file_that_changes_nothing() {
    let (code, file, _) = run(peeklock("default", "", &["config", "default"]));
    assert_eq!(code, 0);
    let (code, out, log) = run(peeklock("default-check", &file, &["config", "check"]));
    assert_eq!(code, 0, "{log}");
    let (_, plain, _) = run(peeklock("plain-check", "", &["config", "check"]));
    let values = |text: &str| -> Vec<String> {
        let rows = text.lines().skip(2);
        rows.map(|row| row.split_whitespace().take(2).collect::<Vec<_>>().join(" ")).collect()
    };
    assert_eq!(values(&out), values(&plain));
}

#[test]
fn help_has_examples_and_exit_codes() {
    for arguments in [&["--help"][..], &["serve", "--help"], &["config", "check", "--help"]] {
        let (code, out, _) = run(peeklock("help", "", arguments));
        assert_eq!(code, 0);
        assert!(out.contains("Examples:") && out.contains("Exit codes:"), "{out}");
    }
    let (code, _, log) = run(peeklock("usage", "", &["serve", "--port", "1"]));
    assert_eq!(code, 2);
    assert!(log.contains("--port"), "{log}");
}

/// What a service manager is told: that the store is being opened, that clients are served, that the broker turns, that it
/// stops.
#[cfg(unix)]
#[test]
fn a_service_manager_is_told_of_start_turns_and_stop() {
    use std::os::unix::net::UnixDatagram;

    let mut command = peeklock(
        "supervised",
        "",
        &["serve", "--http", FREE_PORT, "--ws", FREE_PORT, "--amqp", FREE_PORT],
    );
    // Names of sockets are short.
    let name = format!("peeklock-{}.notify", std::process::id());
    let path = std::env::temp_dir().join(name);
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_read_timeout(Some(Duration::from_secs(20))).unwrap();
    command.env("NOTIFY_SOCKET", &path).env("WATCHDOG_USEC", "300000");
    let server = Server::start(command);
    let mut buffer = [0; 512];
    let mut told = || {
        let length = manager.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    };
    let opening = told();
    assert!(opening.contains("EXTEND_TIMEOUT_USEC=60000000"), "{opening}");
    let ready = told();
    assert!(ready.contains("READY=1"), "{ready}");
    for _ in 0..3 {
        assert_eq!(told().trim(), "WATCHDOG=1");
    }
    let (code, _, log) = server.stop("-TERM");
    assert_eq!(code, 0, "{log}");
    let stopping = std::iter::repeat_with(told).find(|told| told.trim() != "WATCHDOG=1").unwrap();
    assert_eq!(stopping.trim(), "STOPPING=1");
    std::fs::remove_file(path).unwrap();
}

#[test]
fn health_asks_whether_a_broker_can_work() {
    let serve =
        ["serve", "--ephemeral", "--http", FREE_PORT, "--ws", FREE_PORT, "--amqp", FREE_PORT];
    let server = Server::start(peeklock("health", "", &serve));
    let url = format!("http://{}", server.address);
    let asked = |url: &str| run(peeklock("health_asked", "", &["health", "--url", url]));
    let (code, out, errors) = asked(&url);
    assert_eq!((code, out.as_str()), (0, "ready\n"), "{errors}");
    // Something else is there.
    let (code, _, errors) = asked(&format!("{url}0000"));
    assert_eq!(code, 2, "{errors}");
    let silent = TcpListener::bind(FREE_PORT).unwrap();
    let url = format!("http://{}", silent.local_addr().unwrap());
    let late = ["health", "--timeout", "50ms", "--url", &url];
    let (code, _, errors) = run(peeklock("health_late", "", &late));
    assert!(code == 7 && errors.contains("no answer within 50ms"), "{code} {errors}");
    drop(silent);
    let (code, _, errors) = asked(&url);
    assert!(code == 7 && errors.contains(&url), "{code} {errors}");
    drop(server);
}

/// TLS-05, ADM-05: without being told where, it asks the broker of its data directory, wherever that serves HTTP and whether with TLS or
/// without, as in a container that was configured otherwise than the image.
#[test]
fn health_finds_the_broker_of_its_data_directory() {
    for tls in [&[][..], &["--tls"]] {
        let flags = ["--data-dir", "kept", "--http", FREE_PORT, "--ws", FREE_PORT, "--amqp"];
        let command = peeklock("health_own", "", &[&flags[..], &[FREE_PORT], tls].concat());
        let directory = command.get_current_dir().unwrap().to_owned();
        let server = Server::start(command);
        let asked = |arguments: &[&str], variable: Option<&str>| {
            let mut health = Command::new(env!("CARGO_BIN_EXE_peeklock"));
            health.arg("health").args(arguments).current_dir(&directory);
            match variable {
                Some(value) => health.env("PEEKLOCK__SERVER__DATA_DIR", value),
                None => health.env_remove("PEEKLOCK__SERVER__DATA_DIR"),
            };
            run(health)
        };
        for (arguments, variable) in [(&["--data-dir", "kept"][..], None), (&[], Some("kept"))] {
            let (code, out, errors) = asked(arguments, variable);
            assert_eq!((code, out.as_str()), (0, "ready\n"), "{tls:?}: {errors}");
        }
        drop(server);
        let (code, _, errors) = asked(&["--data-dir", "kept"], None);
        assert!(code == 7 && errors.contains("http"), "{code} {errors}");
    }
}

//! The program replaces Microsoft's emulator: tests of the built binary over its sockets.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test fails by panicking")]

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use peeklock::auth_sas::sign;
use peeklock::time::Timestamp;

/// The published key of the emulator.
const KEY: &str = "SAS_KEY_VALUE";
const POLICY: &str = "RootManageSharedAccessKey";

fn file() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/emulator.json")
}

fn program() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peeklock"));
    for (name, _) in std::env::vars().filter(|(name, _)| name.starts_with("PEEKLOCK")) {
        command.env_remove(name);
    }
    command
}

/// A broker on free ports. It ends with the test.
struct Emulator {
    process: Child,
    http: String,
    log: PathBuf,
}

impl Emulator {
    fn start(name: &str, arguments: &[&str], environment: &[(&str, &str)]) -> Self {
        let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
        let log = folder.join(format!("emulator-{name}.log"));
        let mut process = program()
            .args(["serve", "--ephemeral", "--http", "127.0.0.1:0", "--ws", "127.0.0.1:0"])
            .args(["--amqp", "127.0.0.1:0"])
            .args(arguments)
            .envs(environment.iter().copied())
            .current_dir(folder)
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log).unwrap())
            .spawn()
            .unwrap();
        let output = BufReader::new(process.stdout.take().unwrap());
        let http = output
            .lines()
            .map_while(Result::ok)
            .find_map(|line| Some(line.trim().strip_prefix("http ")?.trim().to_owned()))
            .unwrap_or_else(|| panic!("{}", std::fs::read_to_string(&log).unwrap()));
        let http = http.strip_prefix("http://").unwrap().to_owned();
        Self { process, http, log }
    }

    /// Returns status and body of an answer.
    fn get(&self, path: &str, key: Option<&str>) -> (u16, String) {
        // Requests use the host name of a compose file, which no setting names.
        self.get_at("emulator", path, key)
    }

    fn get_at(&self, host: &str, path: &str, key: Option<&str>) -> (u16, String) {
        let mut stream = TcpStream::connect(&self.http).unwrap();
        let token = key.map(|key| sign(POLICY, key, "sb://localhost", Timestamp::NEVER));
        let token = token.map_or_else(String::new, |it| format!("Authorization: {it}\r\n"));
        let head =
            format!("GET {path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n{token}\r\n");
        stream.write_all(head.as_bytes()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        let status = answer.split(' ').nth(1).unwrap().parse().unwrap();
        (status, answer)
    }

    fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for Emulator {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
    }
}

/// SEC-24, ADM-05, ADM-11, ADM-60, ADM-61, ADM-62, ADM-66: the configuration file is accepted
/// unchanged, the development key is valid and its signatures are checked, access requires a key,
/// the health needs none, and the start logs the key and the environment variables.
#[test]
fn the_program_replaces_the_emulator() {
    let path = file();
    let environment = [
        ("CONFIG_PATH", path.to_str().unwrap()),
        ("ACCEPT_EULA", "Y"),
        ("SQL_SERVER", "sqledge"),
        ("MSSQL_SA_PASSWORD", "s3cret"),
    ];
    let emulator = Emulator::start("stands", &["--emulator"], &environment);
    let list = "/$Resources/queues?api-version=2021-05";
    let (status, queues) = emulator.get(list, Some(KEY));
    assert_eq!(status, 200, "{queues}");
    for part in [">queue.1</title>", ">sessions</title>", "<RequiresSession>true</RequiresSession>"]
    {
        assert!(queues.contains(part), "{part}: {queues}");
    }
    assert_eq!(queues.matches("<MaxDeliveryCount>3</MaxDeliveryCount>").count(), 2);
    let rules = |name: &str| {
        let path = format!("/topic.1/subscriptions/{name}/rules?api-version=2021-05");
        emulator.get(&path, Some(KEY)).1
    };
    assert!(rules("correlated").contains("<Label>subject1</Label>"));
    assert!(!rules("correlated").contains("$Default"));
    assert!(rules("everything").contains("$Default"));
    assert!(rules("sql").contains("SET sys.To = "));
    let (_, name) = emulator.get("/$namespaceinfo?api-version=2021-05", Some(KEY));
    assert!(name.contains("<Name>sbemulatorns</Name>"), "{name}");
    assert_eq!(emulator.get(list, Some("SAS_KEY_VALUE2")).0, 401);
    assert_eq!(emulator.get(list, None).0, 401);
    assert_eq!(emulator.get("/health", None).0, 200);
    let log = emulator.log();
    for part in [
        "SAS_KEY_VALUE",
        "ACCEPT_EULA is ignored",
        "SQL_SERVER is ignored",
        "MSSQL_SA_PASSWORD is ignored",
    ] {
        assert!(log.contains(part), "{part}: {log}");
    }
    assert!(!log.contains("s3cret"));
    assert_eq!(log.matches("Emulator Service is Successfully Up!").count(), 1, "ADM-66: {log}");
    // The broker has no stored keys, and yet clients have a valid one.
    assert!(!log.contains("every client is refused"), "{log}");
}

/// ADM-67: without a file the broker has the entities of Microsoft's image. A file with empty lists
/// creates none.
#[test]
fn entities_of_the_image_are_there_without_a_file() {
    let list = |emulator: &Emulator, path: &str| {
        let (status, body) = emulator.get(&format!("/{path}?api-version=2021-05"), Some(KEY));
        assert_eq!(status, 200, "{body}");
        let titles = body.split("<entry").skip(1).filter_map(|entry| {
            let title = entry.split("<title type=\"text\">").nth(1)?;
            Some(title.split('<').next()?.to_owned())
        });
        titles.collect::<Vec<_>>()
    };
    let emulator = Emulator::start("built-in", &["--emulator"], &[]);
    assert_eq!(list(&emulator, "$Resources/queues"), ["queue.1"]);
    assert_eq!(list(&emulator, "$Resources/topics"), ["topic.1"]);
    let subscriptions = ["subscription.1", "subscription.2", "subscription.3"];
    assert_eq!(list(&emulator, "topic.1/subscriptions"), subscriptions);
    let rules = "topic.1/subscriptions/subscription.1/rules";
    assert_eq!(list(&emulator, rules), ["app-prop-filter-1"]);
    let empty = Path::new(env!("CARGO_TARGET_TMPDIR")).join("emulator-empty.json");
    let text = r#"{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [], "Topics": []}]}}"#;
    std::fs::write(&empty, text).unwrap();
    let environment = [("CONFIG_PATH", empty.to_str().unwrap())];
    let emulator = Emulator::start("empty", &["--emulator"], &environment);
    assert!(list(&emulator, "$Resources/queues").is_empty());
    assert!(list(&emulator, "$Resources/topics").is_empty());
}

/// SEC-24: because the key is public, host names of public DNS are refused, so that no web page can
/// reach the broker. Names of containers are accepted.
#[test]
fn a_name_of_the_public_dns_is_refused_unless_it_is_configured() {
    let environment = [("PEEKLOCK__HTTP__ALLOWED_HOSTS", "broker.example.com")];
    let emulator = Emulator::start("hosts", &["--emulator"], &environment);
    let list = "/$Resources/queues?api-version=2021-05";
    for host in [
        "127.0.0.1:5300",
        "[::1]:5300",
        "localhost",
        "servicebus-emulator:5300",
        "host.docker.internal",
        "broker.shop.svc.cluster.local",
        "broker.shop_default:5300",
        "app.localhost",
        "BROKER.example.com:5300",
    ] {
        assert_eq!(emulator.get_at(host, list, Some(KEY)).0, 200, "{host}");
    }
    for host in [
        "evil.example",
        "evil.example:5300",
        "localhost.evil.example",
        "a_b.evil.example",
        "internal.evil.dev",
    ] {
        let (status, body) = emulator.get_at(host, list, Some(KEY));
        assert_eq!(status, 421, "{host}");
        assert!(body.contains("http.allowed_hosts") && body.contains("--emulator"), "{body}");
    }
}

/// ADM-60, ADM-63: a configuration file that does not exist stops the start. The error names it and
/// the alternatives.
#[test]
fn a_missing_file_is_reported_with_the_alternatives() {
    let ended = program()
        .args([
            "serve",
            "--emulator",
            "--ephemeral",
            "--ws",
            "127.0.0.1:0",
            "--amqp",
            "127.0.0.1:0",
        ])
        .env("CONFIG_PATH", "/absent/on/the/host.json")
        .output()
        .unwrap();
    let log = String::from_utf8(ended.stderr).unwrap();
    assert_eq!(ended.status.code(), Some(2), "{log}");
    for part in ["/absent/on/the/host.json", "--emulator-config", "/ServiceBus_Emulator/"] {
        assert!(log.contains(part), "{part}: {log}");
    }
}

/// SEC-24: without the flag the public key is invalid.
#[test]
fn the_public_key_is_invalid_without_the_flag() {
    let environment = [("PEEKLOCK__SECURITY__ALLOW_ANONYMOUS", "false")];
    let broker = Emulator::start("alone", &[], &environment);
    assert_eq!(broker.get("/$Resources/queues?api-version=2021-05", Some(KEY)).0, 401);
    assert!(!broker.log().contains(KEY));
}

fn import(path: &Path) -> (Option<i32>, String, String) {
    let ended = program().args(["config", "import"]).arg(path).output().unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (ended.status.code(), text(ended.stdout), text(ended.stderr))
}

/// ADM-60, ADM-61, ADM-63, ADM-65: importing the file gives a valid configuration. Invalid values
/// are refused with their place in the file.
#[test]
fn the_emulators_file_is_imported() {
    // The file that the emulator ships, with which the SDKs are tested, and a file with all
    // properties.
    for file in [file().with_file_name("emulator-installer").join("Config.json"), file()] {
        let (code, _, errors) = import(&file);
        assert_eq!((code, errors.as_str()), (Some(0), ""), "{}", file.display());
    }
    let (_, config, _) = import(&file());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let ours = folder.join("imported.toml");
    std::fs::write(&ours, config).unwrap();
    let checked = program().args(["config", "check", "--config"]).arg(&ours).output().unwrap();
    let said = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.status.success(), "{}", String::from_utf8(checked.stderr).unwrap());
    assert!(said.contains("topics[0].subscriptions[2].rules[0].sql"), "{said}");

    let text = std::fs::read_to_string(file()).unwrap();
    for (from, to, place) in [
        ("\"PT1M\"", "\"PT6M\"", "UserConfig.Namespaces[0].Queues[0]"),
        (
            "colour = 'red'\"",
            "colour = \"",
            "UserConfig.Namespaces[0].Topics[0].Subscriptions[2].Rules[0]",
        ),
        (
            "\"ForwardTo\": \"queue.1\"",
            "\"ForwardTo\": \"nowhere\"",
            "UserConfig.Namespaces[0].Topics[0].Subscriptions[1].Properties.ForwardTo",
        ),
        (
            "\"ForwardDeadLetteredMessagesTo\": \"queue.1\"",
            "\"ForwardDeadLetteredMessagesTo\": \"nowhere\"",
            "UserConfig.Namespaces[0].Queues[1].Properties.ForwardDeadLetteredMessagesTo",
        ),
    ] {
        let wrong = folder.join(format!("wrong-{}.json", to.len()));
        std::fs::write(&wrong, text.replacen(from, to, 1)).unwrap();
        let started = program()
            .args(["serve", "--ephemeral", "--http", "127.0.0.1:0", "--ws", "127.0.0.1:0"])
            .args(["--amqp", "127.0.0.1:0", "--emulator", "--emulator-config"])
            .arg(&wrong)
            .output()
            .unwrap();
        let errors = String::from_utf8(started.stderr).unwrap();
        assert_eq!(started.status.code(), Some(2), "{errors}");
        assert!(errors.contains(place), "{errors}");
    }
    let broken = folder.join("broken.json");
    for no_json in ["{", "[,]"] {
        std::fs::write(&broken, no_json).unwrap();
        let (code, _, errors) = import(&broken);
        assert_eq!(code, Some(2), "{no_json}");
        assert!(errors.contains("broken.json") && errors.contains("line 1"), "{errors}");
    }
}

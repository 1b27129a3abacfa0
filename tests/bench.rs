//! `peeklock bench` runs each load over each transport, prints figures that add up, refuses invalid
//! options, and leaves nothing behind. The tests run the built program with tiny loads.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use serde_json::Value;

/// An empty directory for one test.
fn directory(test: &str) -> PathBuf {
    let directory = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("bench").join(test);
    if directory.exists() {
        std::fs::remove_dir_all(&directory).unwrap();
    }
    std::fs::create_dir_all(&directory).unwrap();
    directory
}

fn bench(directory: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peeklock"));
    command.arg("bench").args(arguments).current_dir(directory).stdin(Stdio::null());
    // The broker of a load uses the defaults, independent of the environment.
    command.env("PEEKLOCK__HTTP__ADDRESS", "127.0.0.1:1");
    command
}

fn text(output: Output) -> (i32, String, String) {
    let Output { status, stdout, stderr } = output;
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

/// Runs a load and returns its figures.
fn figures(test: &str, arguments: &[&str]) -> Value {
    let directory = directory(test);
    let output = bench(&directory, arguments).args(["--output", "json"]).output().unwrap();
    let (code, out, log) = text(output);
    assert_eq!((code, log.as_str()), (0, ""), "{out}");
    assert_nothing_is_left(&directory);
    serde_json::from_str(&out).unwrap_or_else(|error| panic!("{error}: {out}"))
}

/// Processes whose working directory is this directory or below it.
fn processes_in(directory: &Path) -> Vec<PathBuf> {
    let processes = std::fs::read_dir("/proc").unwrap().flatten();
    let places =
        processes.filter_map(|process| std::fs::read_link(process.path().join("cwd")).ok());
    places.filter(|place| place.starts_with(directory)).collect()
}

fn assert_nothing_is_left(directory: &Path) {
    let left: Vec<_> = std::fs::read_dir(directory).unwrap().flatten().collect();
    assert!(left.is_empty(), "left behind: {left:?}");
    assert_eq!(processes_in(directory), Vec::<PathBuf>::new());
}

fn number(figures: &Value, key: &str) -> f64 {
    figures[key].as_f64().unwrap_or_else(|| panic!("no number `{key}` in {figures:#}"))
}

/// Asserts that a histogram has `count` samples, ordered percentiles and steps that add up.
fn assert_latency(figures: &Value, key: &str, count: u64) {
    let latency = &figures[key];
    assert_eq!(latency["count"], count, "{key} of {figures:#}");
    let steps = latency["histogram"].as_array().unwrap();
    let sum: u64 = steps.iter().map(|step| step["count"].as_u64().unwrap()).sum();
    assert_eq!(sum, count, "{key}");
    let at = ["p50_us", "p99_us", "p99_9_us", "max_us"].map(|it| latency[it].as_f64().unwrap());
    assert!(at[0] > 0.0 && at.is_sorted(), "{at:?}");
}

/// Asserts the figures that every load with messages prints.
fn assert_messages(figures: &Value, messages: u64) {
    for key in ["messages", "sent", "received", "completed"] {
        assert_eq!(figures[key], messages, "{key} of {figures:#}");
    }
    assert_eq!(figures["redelivered"], 0);
}

fn assert_throughput(over: &str) {
    let arguments = ["--over", over, "--messages", "303", "--clients", "2", "--window", "8"];
    let figures =
        figures(&format!("throughput-{over}"), &[&["throughput"], &arguments[..]].concat());
    assert_eq!((&figures["load"], &figures["over"]), (&"throughput".into(), &over.into()));
    assert_eq!(figures["durability"], "synced before acknowledgement");
    assert_messages(&figures, 303);
    let (rate, elapsed) =
        (number(&figures, "messages_per_second"), number(&figures, "elapsed_seconds"));
    assert!((rate * elapsed - 303.0).abs() < 1.0, "{rate} {elapsed}");
    assert_latency(&figures, "send_latency", 303);
    assert_latency(&figures, "end_to_end_latency", 303);
    let is_in_process = over == "in-process";
    let measured_process = if is_in_process { "broker and load together" } else { "broker" };
    assert_eq!(figures["cpu_of"], measured_process);
    assert!(number(&figures, "cpu_seconds_per_million") >= 0.0);
    assert_eq!(figures["load_cpu_seconds_per_million"].is_null(), is_in_process);
    assert!(number(&figures, "resident_bytes_max") > 1e6);
}

#[test]
fn throughput_over_websocket() {
    assert_throughput("websocket");
}

#[test]
fn throughput_over_websocket_with_json() {
    assert_throughput("websocket-json");
}

#[test]
fn throughput_over_amqp() {
    assert_throughput("amqp");
}

#[test]
fn throughput_over_http() {
    assert_throughput("http");
}

#[test]
fn throughput_in_process() {
    assert_throughput("in-process");
}

#[test]
fn latency_sends_one_message_at_a_time_and_prints_the_floor() {
    for over in ["websocket", "amqp", "http", "in-process"] {
        let figures = figures("latency", &["w1", "--over", over, "--messages", "20"]);
        assert_messages(&figures, 20);
        assert_eq!((&figures["load"], &figures["window"]), (&"latency".into(), &1.into()));
        assert_latency(&figures, "send_latency", 20);
        assert_latency(&figures, "end_to_end_latency", 20);
        assert!(figures.get("floor_bytes").is_none());
    }
    let figures = figures("latency", &["w1", "--messages", "5", "--floor"]);
    assert_latency(&figures, "floor_sync_latency", 1_000);
    assert!(number(&figures, "floor_bytes") > 1_024.0);
}

#[test]
fn memory_and_small_loads_print_their_settings() {
    let memory = figures("memory", &["w3", "--messages", "100"]);
    assert_messages(&memory, 100);
    assert_eq!(memory["durability"], "in memory only");
    for over in ["websocket", "amqp"] {
        let small = figures("small", &["small", "--over", over, "--messages", "100"]);
        assert_messages(&small, 100);
        assert_eq!(small["body_bytes"], 16);
        assert_latency(&small, "end_to_end_latency", 100);
    }
}

/// AMQP-31, AMQP-40: a body needs several frames, and there are more messages than credit and
/// windows allow at once.
#[test]
fn bodies_over_amqp_may_be_larger_than_frames_and_more_than_credit() {
    let large = ["--over", "amqp", "--messages", "40", "--body-bytes", "200000"];
    let large = figures("large", &large);
    assert_messages(&large, 40);
    assert_latency(&large, "end_to_end_latency", 40);
    let many = ["w4", "--over", "amqp", "--messages", "6000", "--clients", "1", "--window", "4096"];
    assert_messages(&figures("many", &many), 6_000);
}

#[test]
fn several_threads_share_a_load() {
    assert_messages(&figures("threads", &["--messages", "200", "--threads", "2"]), 200);
}

#[test]
fn a_backlog_is_sent_and_drained() {
    for over in ["websocket", "amqp", "http"] {
        let figures = figures("backlog", &["w6", "--over", over, "--messages", "150"]);
        assert_messages(&figures, 150);
        assert!(number(&figures, "drained_to_sent") > 0.0);
        assert!(number(&figures, "resident_bytes_max_sending") > 1e6);
    }
    let halves = figures("halves", &["backlog", "--over", "in-process", "--messages", "150"]);
    assert!(number(&halves, "sent_per_second") > 0.0 && number(&halves, "opening_seconds") > 0.0);
}

#[test]
fn a_topic_delivers_to_each_subscription() {
    for over in ["websocket", "websocket-json", "amqp", "in-process"] {
        let arguments = ["w5", "--over", over, "--messages", "60", "--subscriptions", "3"];
        let figures = figures("topic", &[&arguments[..], &["--clients", "2"]].concat());
        assert_eq!((&figures["load"], &figures["subscriptions"]), (&"topic".into(), &3.into()));
        assert_eq!((&figures["messages"], &figures["sent"]), (&60.into(), &60.into()));
        assert_eq!((&figures["received"], &figures["completed"]), (&180.into(), &180.into()));
        assert_latency(&figures, "send_latency", 60);
        assert_latency(&figures, "end_to_end_latency", 180);
        let [rate, elapsed] = ["deliveries_per_second", "elapsed_seconds"];
        let deliveries = number(&figures, rate) * number(&figures, elapsed);
        assert!((deliveries - 180.0).abs() < 1.0, "{deliveries}");
        let to_queue = number(&figures, rate) / number(&figures, "queue_messages_per_second");
        assert!((to_queue / number(&figures, "deliveries_to_queue") - 1.0).abs() < 0.01);
        if over == "amqp" {
            assert!(figures.get("written_bytes_per_message").is_none(), "it is not known");
            continue;
        }
        // At least one content per message, and fewer than one per subscription.
        let written = number(&figures, "written_bytes_per_message");
        assert!(written > 1_024.0 && written < 3.0 * 1_024.0, "{written}");
    }
}

#[test]
fn queues_are_created_and_connections_opened() {
    for over in ["websocket", "http", "in-process"] {
        let queues = figures("queues", &["w7", "--over", over, "--count", "50", "--clients", "2"]);
        assert_eq!(queues["created"], 50);
        assert!(number(&queues, "queues_per_second") > 0.0);
    }
    for over in ["websocket", "amqp"] {
        let arguments = ["connections", "--over", over, "--count", "30"];
        let connections = figures("connections", &arguments);
        assert_eq!(connections["opened"], 30);
        assert!(number(&connections, "resident_bytes_max") > 1e6);
    }
}

#[test]
fn loads_in_process_print_disk_figures() {
    let cycle = figures("cycle", &["cycle", "--floor", "--messages", "200", "--list", "16"]);
    assert!(number(&cycle, "syncs") > 0.0 && number(&cycle, "floor_per_second") > 0.0);
    let beside = figures("beside", &["beside", "--messages", "200"]);
    assert!(number(&beside, "written_to_body_bytes") >= 1.0);
    for load in ["scheduled", "delayed"] {
        let due = figures(load, &[load, "--messages", "40", "--list", "16"]);
        assert_eq!((number(&due, "pending"), number(&due, "received")), (40.0, 40.0));
        assert!(number(&due, "late_p50_ms") <= number(&due, "late_p99_9_ms"));
    }
}

#[test]
fn the_default_output_is_a_table() {
    let directory = directory("table");
    let (code, out, _) = text(bench(&directory, &["--messages", "50"]).output().unwrap());
    assert_eq!(code, 0);
    for word in ["throughput", "synced before acknowledgement", "p99.9", "###", "CPU"] {
        assert!(out.contains(word), "{word}: {out}");
    }
    assert_nothing_is_left(&directory);
}

#[test]
fn invalid_options_are_refused() {
    let directory = directory("refused");
    let cases: [&[&str]; 14] = [
        &["w5", "--over", "http"],
        &["w7", "--over", "amqp"],
        &["--url", "amqp://127.0.0.1:1", "--over", "http"],
        &["--url", "ws://127.0.0.1:1", "--over", "amqp"],
        &["no-such-load"],
        &["cycle", "--over", "http"],
        &["connections", "--over", "in-process"],
        &["memory", "--floor"],
        &["queues", "--messages", "5"],
        &["latency", "--clients", "2"],
        &["--url", "ws://127.0.0.1:1", "--over", "http"],
        &["--url", "http://127.0.0.1:1", "--over", "in-process"],
        &["--url", "ws://127.0.0.1:1", "--floor"],
        &["--messages", "0"],
    ];
    for arguments in cases {
        let (code, out, log) = text(bench(&directory, arguments).output().unwrap());
        assert_eq!((code, out.as_str()), (2, ""), "{arguments:?}: {log}");
        assert!(log.starts_with("error: "), "{arguments:?}: {log}");
    }
    let nowhere: [&[&str]; 4] = [
        &["--url", "amqp://127.0.0.1:1"],
        &["--url", "ws://127.0.0.1:1"],
        &["--url", "http://127.0.0.1:1"],
        &["--data-dir", "/proc/no-such-place"],
    ];
    for arguments in nowhere {
        let (code, _, log) = text(bench(&directory, arguments).output().unwrap());
        assert_eq!(code, 1, "{arguments:?}: {log}");
    }
    assert_nothing_is_left(&directory);
}

/// A process that is ended when it is dropped.
struct Ended(Child);

impl Drop for Ended {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

#[test]
fn a_running_broker_is_left_unchanged() {
    let directory = directory("url");
    let mut serve = Command::new(env!("CARGO_BIN_EXE_peeklock"));
    serve.args([
        "--ephemeral",
        "--http",
        "127.0.0.1:0",
        "--ws",
        "127.0.0.1:0",
        "--amqp",
        "127.0.0.1:0",
        "-qq",
    ]);
    let mut broker = Ended(serve.current_dir(&directory).stdout(Stdio::piped()).spawn().unwrap());
    let mut banner = BufReader::new(broker.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let mut url = |scheme: &str| {
        banner.find_map(|line| {
            line.split_whitespace().find(|it| it.starts_with(scheme)).map(str::to_owned)
        })
    };
    let (http, websocket) = (url("http://").unwrap(), url("ws://").unwrap());
    for url in [&http, &websocket] {
        let output = bench(&directory, &["--url", url, "--messages", "60", "--output", "json"]);
        let (code, out, log) = text({ output }.output().unwrap());
        assert_eq!(code, 0, "{log}");
        let figures: Value = serde_json::from_str(&out).unwrap();
        assert_messages(&figures, 60);
        assert!(figures["cpu_seconds_per_million"].is_null(), "{figures:#}");
        assert!(figures["durability"].as_str().unwrap().contains("not known"), "{figures:#}");
    }
    let (code, _, log) =
        text(bench(&directory, &["w7", "--url", &http, "--count", "20"]).output().unwrap());
    assert_eq!(code, 0, "{log}");
    assert_eq!(queues(&http), 0);
    let long = ["--messages", "100000000"];
    for arguments in [&["w7", "--url", &http][..], &["--url", &websocket, long[0], long[1]]] {
        let mut load = Ended(bench(&directory, arguments).stdout(Stdio::null()).spawn().unwrap());
        while queues(&http) == 0 {
            assert!(load.0.try_wait().unwrap().is_none(), "ended by itself");
        }
        interrupt(&mut load, "-INT");
        assert_eq!(queues(&http), 0, "{arguments:?}");
    }
}

/// TLS-04, LIS-01: loads and commands present a certificate to a broker that requires one, over
/// every protocol of one port.
#[test]
fn a_broker_requiring_certificates_is_reached() {
    let directory = directory("certificates");
    let issuer = {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        CertifiedIssuer::self_signed(params, KeyPair::generate().unwrap()).unwrap()
    };
    std::fs::write(directory.join("ca.pem"), issuer.pem()).unwrap();
    for name in ["server", "client"] {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec!["localhost".to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &issuer).unwrap();
        std::fs::write(directory.join(format!("{name}.pem")), certificate.pem()).unwrap();
        std::fs::write(directory.join(format!("{name}.key")), key.serialize_pem()).unwrap();
    }
    let mut broker = Ended(
        Command::new(env!("CARGO_BIN_EXE_peeklock"))
            .args(["serve", "--ephemeral", "--tls", "--quiet", "--gateway", "127.0.0.1:0"])
            .args(["--http", "127.0.0.1:0", "--ws", "127.0.0.1:0", "--amqp", "127.0.0.1:0"])
            .env("PEEKLOCK__TLS__CERTIFICATE_FILE", "server.pem")
            .env("PEEKLOCK__TLS__KEY_FILE", "server.key")
            .env("PEEKLOCK__TLS__CLIENT_CA_FILE", "ca.pem")
            .env("PEEKLOCK__TLS__CLIENT_CERTIFICATE_REQUIRED", "true")
            .current_dir(&directory)
            .stdout(Stdio::piped())
            .spawn()
            .unwrap(),
    );
    let banner = BufReader::new(broker.0.stdout.take().unwrap()).lines().map_while(Result::ok);
    let port = banner
        .filter_map(|line| Some(line.trim().strip_prefix("gateway ")?.trim().to_owned()))
        .find_map(|line| Some(line.split_once(',')?.0.rsplit_once(':')?.1.to_owned()))
        .unwrap();
    let shown =
        ["--ca", "ca.pem", "--certificate", "client.pem", "--certificate-key", "client.key"];
    for scheme in ["wss", "https", "amqps"] {
        let url = format!("{scheme}://localhost:{port}");
        let load = ["--url", &url, "--messages", "60", "--output", "json"];
        let (code, out, log) = text(bench(&directory, &load).args(shown).output().unwrap());
        assert_eq!(code, 0, "{url}: {log}");
        assert_messages(&serde_json::from_str(&out).unwrap(), 60);
        let (code, _, log) = text(bench(&directory, &load).args(&shown[..2]).output().unwrap());
        assert_eq!(code, 1, "{url}, and no certificate: {log}");
    }
    let command = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peeklock"));
        command.args(arguments).current_dir(&directory).env("PEEKLOCK_CA", "ca.pem");
        command
    };
    let (wss, https) = (format!("wss://localhost:{port}"), format!("https://localhost:{port}"));
    for asked in [["queue", "list", "--url", &wss].as_slice(), &["health", "--url", &https]] {
        let (code, out, log) = text(command(asked).args(&shown[2..]).output().unwrap());
        assert_eq!(code, 0, "{asked:?}: {out}{log}");
        let by_variables = command(asked)
            .env("PEEKLOCK_CERTIFICATE", "client.pem")
            .env("PEEKLOCK_CERTIFICATE_KEY", "client.key")
            .output();
        assert_eq!(text(by_variables.unwrap()).0, 0, "{asked:?}");
        assert_ne!(text(command(asked).output().unwrap()).0, 0, "{asked:?}");
        let half = command(asked).env("PEEKLOCK_CERTIFICATE", "client.pem").output().unwrap();
        assert_eq!(text(half).0, 2, "{asked:?}");
    }
}

/// Number of queues of a broker.
fn queues(http: &str) -> usize {
    let mut stream = std::net::TcpStream::connect(http.trim_start_matches("http://")).unwrap();
    let request = "GET /$api/v1/queues HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    std::io::Write::write_all(&mut stream, request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200"), "{answer}");
    answer.matches("peeklock-bench-").count()
}

fn interrupt(load: &mut Ended, signal: &str) {
    let kill = Command::new("kill").arg(signal).arg(load.0.id().to_string()).status();
    assert!(kill.unwrap().success());
    assert_eq!(load.0.wait().unwrap().code(), Some(130));
}

/// Starts a long load, sends a signal while it works, and checks that nothing is left.
fn assert_interruptible(
    test: &str,
    signal: &str,
    arguments: &[&str],
    works: impl Fn(&Path) -> bool,
) {
    let directory = directory(test);
    let mut command = bench(&directory, arguments);
    let mut load = Ended(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap());
    while !works(&directory) {
        assert!(load.0.try_wait().unwrap().is_none(), "ended by itself");
        std::thread::yield_now();
    }
    interrupt(&mut load, signal);
    assert_nothing_is_left(&directory);
}

/// Whether a file or folder of that name exists two levels below.
fn has(directory: &Path, name: &str) -> bool {
    let folders = std::fs::read_dir(directory).unwrap().flatten();
    folders.into_iter().any(|folder| folder.path().join(name).exists())
}

#[test]
fn an_interrupt_ends_the_broker_and_removes_its_directory() {
    let long = ["--messages", "100000000"];
    for signal in ["-INT", "-TERM"] {
        assert_interruptible("interrupted", signal, &long, |it| processes_in(it).len() > 1);
        assert_interruptible("interrupted", signal, &long, |it| has(it, "journal"));
    }
    let in_process = [&["cycle"], &long[..]].concat();
    assert_interruptible("in-process", "-INT", &in_process, |it| has(it, "journal"));
    let in_process = [&["--over", "in-process"], &long[..]].concat();
    assert_interruptible("in-process", "-INT", &in_process, |it| has(it, "journal"));
    let halves = [&["backlog", "--over", "in-process"], &long[..]].concat();
    assert_interruptible("in-two", "-INT", &halves, |it| has(it, "journal"));
}

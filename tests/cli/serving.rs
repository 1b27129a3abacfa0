//! Serving: the banner, stored data after a restart, and the stop.

use std::io::BufRead as _;
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::Command;

use crate::{FREE_PORT, Server, peeklock, run};

#[test]
fn serve_prints_its_addresses_and_stops_in_order() {
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
    assert!(
        out.contains(&format!("  console   http://{address}/$console/, for a browser\n")),
        "{out}"
    );
    assert!(out.contains(&format!("curl -X PUT 'http://{address}/")), "{out}");
    assert!(!out.contains("WARNING") && !out.contains('\u{1b}'), "{out}");
    assert!(log.contains("SIGTERM") && log.contains("stopped"), "{log}");
}

/// QUO-05: a disk below its floor is reported in the log from the start, in the probes, in the
/// metrics, and in the error of a send with the directory, its free bytes, the floor and the
/// setting. The broker stays ready.
#[test]
fn a_full_disk_is_reported_everywhere() {
    let floor = 1_u64 << 60;
    let config = format!("[journal]\nfree_bytes_min = {floor}\n");
    let flags = ["serve", "--http", FREE_PORT, "--ws", FREE_PORT, "--amqp", FREE_PORT];
    let server = Server::start(peeklock("full-disk", &config, &flags));
    let ready = server.get("/readyz");
    assert_eq!(ready.0, 200);
    assert!(ready.1.contains("degraded"), "{}", ready.1);
    let health = server.get("/health").1;
    assert!(health.contains("\"status\":\"degraded\"") && health.contains("shortage"), "{health}");
    let metrics = server.get("/metrics").1;
    assert!(metrics.contains("peeklock_store_full 1\n") && metrics.contains("peeklock_ready 1\n"));
    let mut asking = Command::new(env!("CARGO_BIN_EXE_peeklock"));
    asking.args(["health", "--url", &format!("http://{}", server.address)]);
    let (code, out, error) = run(asking);
    assert_eq!((code, out.contains("degraded")), (0, true), "{out}{error}");
    assert_eq!(server.ask("PUT", "/$api/v1/queues/q", "").0, 201);
    let (status, answer) = server.ask("POST", "/q/messages", "x");
    assert_eq!(status, 503, "{answer}");
    let told = ["`./data`", "bytes free", &floor.to_string(), "journal.free_bytes_min"];
    assert!(told.iter().all(|part| answer.contains(part)), "{answer}");
    let (code, _, log) = server.stop("-TERM");
    assert_eq!(code, 0, "{log}");
    let warnings = log.lines().filter(|line| line.contains("new messages are refused"));
    let warnings: Vec<&str> = warnings.collect();
    assert!(
        matches!(&warnings[..], [line] if told.iter().all(|part| line.contains(part))),
        "{log}"
    );
    assert!(log.contains("is too small"), "{log}");
}

/// The program configures the allocator to return free memory early, and it does so (decision 35).
/// Settings of the user take precedence.
#[cfg(all(target_os = "linux", target_env = "gnu"))]
#[test]
fn the_allocator_returns_memory_early() {
    let names = ["_RJEM_MALLOC_CONF", "MALLOC_MMAP_THRESHOLD_", "MALLOC_TRIM_THRESHOLD_"];
    // Settings of the allocator in the environment, and whether its background threads run.
    let told = |test: &str, set: Option<(&str, &str)>| {
        let flags = ["serve", "--ephemeral", "--http", FREE_PORT, "--ws", FREE_PORT];
        let mut command = peeklock(test, "", &[&flags[..], &["--amqp", FREE_PORT]].concat());
        for name in names.iter().chain(&["GLIBC_TUNABLES"]) {
            command.env_remove(name);
        }
        command.envs(set);
        let server = Server::start(command);
        let process = format!("/proc/{}", server.child.id());
        let environment = std::fs::read(format!("{process}/environ")).unwrap();
        let environment = String::from_utf8_lossy(&environment).into_owned();
        let threads = std::fs::read_dir(format!("{process}/task")).unwrap().flatten();
        let threads = threads.map(|thread| std::fs::read_to_string(thread.path().join("comm")));
        let gives_back = threads.flatten().any(|name| name.starts_with("jemalloc"));
        let (code, _, log) = server.stop("-TERM");
        assert_eq!(code, 0);
        assert!(!log.contains("jemalloc"), "it does not know what it is told: {log}");
        let mut lines: Vec<String> = environment.split('\0').map(str::to_owned).collect();
        lines.retain(|line| names.iter().any(|name| line.starts_with(name)));
        lines.sort_unstable();
        (lines, gives_back)
    };
    let cores = std::thread::available_parallelism().unwrap().get();
    let large = "MALLOC_MMAP_THRESHOLD_=524288".to_owned();
    let trim = "MALLOC_TRIM_THRESHOLD_=524288".to_owned();
    let own = format!(
        "_RJEM_MALLOC_CONF=background_thread:true,dirty_decay_ms:1000,muzzy_decay_ms:0,narenas:{}",
        2 * cores
    );
    let all = vec![large.clone(), trim.clone(), own.clone()];
    assert_eq!(told("allocator", None), (all, true));
    let set = ("_RJEM_MALLOC_CONF", "narenas:1");
    let other = "_RJEM_MALLOC_CONF=narenas:1".to_owned();
    assert_eq!(told("allocator-own", Some(set)), (vec![large, trim, other], false));
    let set = ("MALLOC_MMAP_THRESHOLD_", "262144");
    let other = "MALLOC_MMAP_THRESHOLD_=262144".to_owned();
    assert_eq!(told("allocator-system", Some(set)), (vec![other, own], true));
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
    assert!(out.contains("messages are lost when this process ends"), "{out}");
}

/// Messages and queues exist again after a stop and after a kill. A second process is refused.
#[test]
fn a_restart_finds_stored_messages() {
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
    assert!(server.read.is_empty() || !server.read.contains("messages are lost"));
    assert_eq!(server.ask("PUT", "/$api/v1/queues/orders", "").0, 201);
    assert_eq!(server.ask("POST", "/orders/messages", "first").0, 201);
    let (code, _, err) = run(again());
    assert_eq!(code, 1);
    assert!(err.contains("`here` is in use by process"), "{err}");
    assert_eq!(err.matches("`here`").count(), 1, "{err}");
    assert!(err.contains("--data-dir"), "{err}");
    let (code, out, log) = server.stop("-TERM");
    assert_eq!(code, 0, "{log}");
    assert!(out.contains("journal in here, durable at acknowledgement"), "{out}");
    let server = Server::start(again());
    assert_eq!(server.ask("POST", "/orders/messages", "second").0, 201);
    // SIGKILL: acknowledged messages are stored although no file was closed in order.
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

/// The commands that the banner proposes work unchanged.
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
    // The connection of the last step itself is open.
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

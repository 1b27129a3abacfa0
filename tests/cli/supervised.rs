//! Supervision of a broker: a service manager, and `health`.

use std::net::TcpListener;
use std::process::Command;
use std::time::Duration;

use crate::{FREE_PORT, Server, peeklock, run};

/// The service manager is notified that the store is being opened, that clients are served, that
/// the broker is alive, and that it stops.
#[cfg(unix)]
#[test]
fn a_service_manager_is_notified_of_start_liveness_and_stop() {
    use std::os::unix::net::UnixDatagram;

    let mut command = peeklock(
        "supervised",
        "",
        &["serve", "--http", FREE_PORT, "--ws", FREE_PORT, "--amqp", FREE_PORT],
    );
    // Names of sockets must be short.
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
    // Another service listens there.
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

/// Without an address, `health` asks the broker of `PEEKLOCK_URL`, as other commands do. A data
/// directory takes precedence.
#[test]
fn health_asks_the_broker_of_peeklock_url() {
    let flags = ["serve", "--http", FREE_PORT, "--ws", FREE_PORT, "--amqp", FREE_PORT];
    let mut server = Server::start(peeklock("health_by_url", "", &flags));
    let websocket = server.websocket();
    let asked = |url: &str, arguments: &[&str]| {
        let arguments = [&["health"], arguments].concat();
        let mut health = peeklock("health_by_url_asked", "", &arguments);
        health.env("PEEKLOCK_URL", url).env_remove("PEEKLOCK_HEALTH_URL");
        let kept = health.get_current_dir().unwrap().join("kept");
        std::fs::create_dir_all(&kept).unwrap();
        std::fs::write(kept.join("http-url"), "http://127.0.0.1:1").unwrap();
        run(health)
    };
    let (code, out, errors) = asked(&websocket, &[]);
    assert_eq!((code, out.as_str()), (0, "ready\n"), "{errors}");
    let (code, _, errors) = asked(&websocket, &["--data-dir", "kept"]);
    assert!(code == 7 && errors.contains("http://127.0.0.1:1"), "{code} {errors}");
    let (code, _, errors) = asked("ws://127.0.0.1:1", &[]);
    assert!(code == 7 && errors.contains("ws://127.0.0.1:1"), "{code} {errors}");
    let (code, _, errors) = asked("nonsense", &[]);
    assert!(code == 2 && errors.contains("PEEKLOCK_URL: `nonsense`"), "{code} {errors}");
}

/// TLS-05, ADM-05: without an address, `health` asks the broker of its data directory at its HTTP
/// address, with TLS or without, as in a container that is configured differently from the image.
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

/// If the HTTP address of the broker of its data directory cannot be read, `health` asks no other
/// broker, which might be at the default address. It reports the file and the alternative.
#[test]
fn health_asks_no_other_broker_without_its_address() {
    let mut command = peeklock("health_unread", "", &["health", "--data-dir", "kept"]);
    command.env_remove("PEEKLOCK_HEALTH_URL");
    let file = command.get_current_dir().unwrap().join("kept/http-url");
    // Even root cannot read a directory as a file.
    std::fs::create_dir_all(file).unwrap();
    let (code, _, errors) = run(command);
    assert_eq!(code, 2, "{errors}");
    assert!(errors.contains("`kept/http-url`") && errors.contains("--url"), "{errors}");
}

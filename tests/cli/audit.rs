//! The audit trail of the program: over HTTP, with the commands, in its files, and after a kill.

use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{FREE_PORT, Server, peeklock, run};

const SERVE: &[&str] = &["serve", "--http", FREE_PORT, "--ws", FREE_PORT, "--amqp", FREE_PORT];
const JSON: &str = "Content-Type: application/json\r\n";

fn folder(test: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cli").join(test).join("data/audit")
}

/// Runs `peeklock audit` with these arguments.
fn audit(arguments: &[&str]) -> (i32, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peeklock"));
    command.arg("audit").args(arguments);
    run(command)
}

fn verify(path: &Path) -> (i32, String) {
    let (code, out, error) = audit(&["verify", path.to_str().unwrap()]);
    assert!(error.is_empty(), "{error}");
    (code, out)
}

/// Body of an answer, without chunk sizes.
fn lines(answer: &str) -> Vec<&str> {
    answer.lines().filter(|line| line.starts_with('{')).collect()
}

/// CON-23: HTTP and the commands list, filter and export the trail. Sends from the page of the
/// console are in it, other sends are not; deletions always are.
#[test]
fn the_trail_is_read_over_http_and_by_commands() {
    let mut server = Server::start(peeklock("audit-read", "", SERVE));
    let url = server.websocket();
    assert_eq!(server.ask("PUT", "/$api/v1/queues/q", "").0, 201);
    let message = r#"{"body":"a body"}"#;
    let send = "/$api/v1/queues/q/messages";
    assert_eq!(server.ask_with(JSON, "POST", send, message).0, 201);
    let page = format!("{JSON}Peeklock-Page: 1\r\n");
    assert_eq!(server.ask_with(&page, "POST", send, message).0, 201);
    let purged = server.ask_with(JSON, "POST", &format!("{send}/purge"), "{}");
    assert!(purged.1.ends_with(r#"{"deleted":2}"#), "{}", purged.1);
    assert_eq!(server.ask("DELETE", "/$api/v1/queues/absent", "").0, 404);

    let (status, answer) = server.get("/$api/v1/audit?top=2");
    assert_eq!(status, 200, "{answer}");
    assert!(answer.contains(r#""operation":"deleteEntity""#), "{answer}");
    assert!(answer.contains(r#""result":"EntityNotFound""#) && answer.contains(r#""next":""#));
    for query in ["top=0", "top=501", "since=yesterday", "unknown=1", "after=x"] {
        assert_eq!(server.get(&format!("/$api/v1/audit?{query}")).0, 400, "{query}");
    }
    let (status, answer) =
        server.get("/$api/v1/audit?operation=deleteMessages&result=done&top=500");
    assert_eq!(status, 200);
    assert!(answer.contains(r#""count":2"#), "{answer}");
    let (status, exported) = server.get("/$api/v1/audit/export");
    assert_eq!(status, 200);
    assert!(exported.contains("application/x-ndjson"), "{exported}");
    let exported = lines(&exported);
    assert_eq!(exported.len(), 8, "{exported:?}");
    assert!(!exported.concat().contains("a body"));

    let (code, listed, error) = audit(&["list", "--url", &url, "--all", "-o", "ndjson"]);
    assert_eq!(code, 0, "{error}");
    assert_eq!(listed.lines().rev().collect::<Vec<_>>(), exported);
    let (code, table, _) = audit(&["list", "--url", &url, "--operation", "send", "--since", "1h"]);
    assert_eq!((code, table.lines().count()), (0, 3), "{table}");
    let (code, _, error) = audit(&["list", "--url", &url, "--policy", "none"]);
    assert_eq!((code, error.trim()), (6, "there is no such entry"));
    let (code, copy, _) = audit(&["export", "--url", &url]);
    assert_eq!((code, copy.lines().collect::<Vec<_>>()), (0, exported));
    let file = folder("audit-read").join("../../copy.jsonl");
    std::fs::write(&file, &copy).unwrap();
    let (code, out) = verify(&file);
    assert!(code == 0 && out.contains("8 entries, 1 to 8") && out.ends_with("sound\n"), "{out}");
    std::fs::write(&file, copy.replacen("\"count\":1", "\"count\":2", 1)).unwrap();
    let (code, out) = verify(&file);
    assert!(code == 3 && out.contains("line 4: it was changed"), "{out}");
    assert_eq!(audit(&["verify", "/absent"]).0, 1);

    assert_eq!(server.stop("-TERM").0, 0);
    let (code, out) = verify(&folder("audit-read"));
    assert!(code == 0 && out.contains("8 entries, 1 to 8"), "{out}");
}

/// CON-72, CON-73: a viewer reads no entry of the trail.
#[test]
fn a_viewer_reads_no_trail() {
    let server = Server::start(peeklock("audit-viewer", "console.read_only = true\n", SERVE));
    for path in ["/$api/v1/audit", "/$api/v1/audit/export"] {
        let (status, answer) = server.get(path);
        assert_eq!(status, 401, "{answer}");
    }
    assert_eq!(server.get("/$api/v1/entities").0, 200);
}

/// CON-23: a broker without a data directory keeps its trail in memory.
#[test]
fn an_ephemeral_broker_has_a_trail_in_memory() {
    let arguments = [SERVE, &["--ephemeral"]].concat();
    let server = Server::start(peeklock("audit-ephemeral", "", &arguments));
    assert_eq!(server.ask("PUT", "/$api/v1/queues/q", "").0, 201);
    assert_eq!(lines(&server.get("/$api/v1/audit/export").1).len(), 2);
    assert!(!folder("audit-ephemeral").exists());
}

/// Sends a request to a broker that may be killed meanwhile. Returns the status, if there is one.
fn ask(address: &str, request: &str) -> Option<u16> {
    let mut stream = TcpStream::connect(address).ok()?;
    write!(stream, "{request} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    answer.split(' ').nth(1)?.parse().ok()
}

/// CON-23: after SIGKILL under concurrent actions, each acknowledged action is in the trail, the
/// chain is sound, and the next start goes on with it.
#[test]
fn the_trail_is_sound_after_a_kill() {
    let test = "audit-killed";
    let server = Server::start(peeklock(test, "", SERVE));
    let address = server.address.clone();
    let (done, acknowledged) = std::sync::mpsc::channel();
    let clients: Vec<_> = (0..4)
        .map(|client| {
            let (address, done) = (address.clone(), done.clone());
            std::thread::spawn(move || {
                for number in 0.. {
                    let name = format!("q-{client}-{number}");
                    if ask(&address, &format!("PUT /$api/v1/queues/{name}")) != Some(201) {
                        break;
                    }
                    if done.send(name).is_err() {
                        break;
                    }
                }
            })
        })
        .collect();
    drop(done);
    let mut names: Vec<String> = acknowledged.iter().take(60).collect();
    // Sends SIGKILL.
    drop(server);
    names.extend(acknowledged.iter());
    clients.into_iter().for_each(|client| client.join().unwrap());

    let (code, out) = verify(&folder(test));
    assert_eq!(code, 0, "{out}");
    let mut command = Command::new(env!("CARGO_BIN_EXE_peeklock"));
    command.args(SERVE).current_dir(folder(test).join("../.."));
    let server = Server::start(command);
    assert_eq!(server.ask("PUT", "/$api/v1/queues/last", "").0, 201);
    let exported = server.get("/$api/v1/audit/export").1;
    for name in names.iter().map(String::as_str).chain(["last"]) {
        let resource = format!("\"resource\":\"{name}\"");
        let of: Vec<_> = lines(&exported).into_iter().filter(|it| it.contains(&resource)).collect();
        let is_ended = of.iter().any(|line| line.contains("\"result\":\"done\""));
        assert!(of.len() == 2 && is_ended, "{name}: {of:?}");
    }
    assert_eq!(server.stop("-TERM").0, 0);
    let (code, out) = verify(&folder(test));
    assert_eq!(code, 0, "{out}");
}

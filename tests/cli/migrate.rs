//! `peeklock migrate` between a data directory and PostgreSQL.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::database::Postgres;
use crate::{FREE_PORT, Server, directory, run};

const CONTENT_BYTES: usize = 150_000;

/// The program in a folder, with a store from the environment.
fn program(folder: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peeklock"));
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    command
}

fn serve(folder: &Path, data_dir: &str, url: Option<&str>) -> Server {
    let listeners = ["--http", FREE_PORT, "--ws", FREE_PORT, "--amqp", FREE_PORT];
    let mut command =
        program(folder, &[&["serve", "--data-dir", data_dir], &listeners[..]].concat());
    if let Some(url) = url {
        command.env("PEEKLOCK__STORE__KIND", "postgres");
        command.env("PEEKLOCK__STORE__POSTGRES__URL", url);
    }
    Server::start(command)
}

/// Fills a broker: a queue with small messages, of which some are gone, and one for the schedule; a
/// topic whose subscriptions share large contents.
fn fill(server: &Server) {
    assert_eq!(server.ask("PUT", "/$api/v1/queues/orders", "").0, 201);
    for number in 0..20 {
        let (status, answer) = server.ask("POST", "/orders/messages", &format!("order {number}"));
        assert_eq!(status, 201, "{answer}");
    }
    for _ in 0..5 {
        assert_eq!(server.ask("DELETE", "/orders/messages/head", "").0, 200);
    }
    let later =
        "BrokerProperties: {\"ScheduledEnqueueTimeUtc\":\"Mon, 01 Jan 2035 00:00:00 GMT\"}\r\n";
    let (status, answer) = server.ask_with(later, "POST", "/orders/messages", "in 2035");
    assert_eq!(status, 201, "{answer}");
    assert_eq!(server.ask("PUT", "/$api/v1/topics/events", "").0, 201);
    for name in ["a", "b"] {
        let path = format!("/$api/v1/topics/events/subscriptions/{name}");
        let (status, answer) = server.ask("PUT", &path, "");
        assert_eq!(status, 201, "{answer}");
    }
    for number in 0..10 {
        let body = number.to_string().repeat(CONTENT_BYTES);
        let (status, answer) = server.ask("POST", "/events/messages", &body);
        assert_eq!(status, 201, "{answer}");
    }
}

/// The entities of a broker, as it describes them, without their last use.
fn entities(server: &Server) -> Vec<String> {
    ["queues/orders", "topics/events", "topics/events/subscriptions/b"]
        .iter()
        .map(|path| {
            let (status, answer) = server.get(&format!("/$api/v1/{path}"));
            assert_eq!(status, 200, "{answer}");
            let body = answer.split_once("\r\n\r\n").unwrap().1;
            body.split(",\"accessedAt\"").next().unwrap().to_owned()
        })
        .collect()
}

fn migrate(folder: &Path, from: &str, to: &str) -> (i32, String, String) {
    run(program(folder, &["migrate", "--from", from, "--to", to]))
}

/// CLU-54, CLU-55: a data directory is copied to PostgreSQL and back. Entities, counts, numbers and
/// messages stay, and a destination with data is refused.
#[test]
fn broker_moves_to_postgresql_and_back() {
    let folder: PathBuf = directory("migrate");
    let database = Postgres::start("migrate");
    let url = database.database("peeklock");
    let server = serve(&folder, "data", None);
    fill(&server);
    let described = entities(&server);
    let (code, _, error) = migrate(&folder, "data", &url);
    assert!(code == 1 && error.contains("is in use by process"), "{error}");
    assert_eq!(server.stop("-TERM").0, 0);

    let (code, _, error) = migrate(&folder, "absent", &url);
    assert!(code == 1 && error.contains("there is no journal in `absent`"), "{error}");
    let (code, out, error) = migrate(&folder, "data", &url);
    assert_eq!(code, 0, "{error}");
    assert!(out.contains("copied 4 entities") && out.contains("both stores are equal"), "{out}");
    let (code, _, error) = migrate(&folder, "data", &url);
    assert!(code == 5 && error.contains("choose an empty one"), "{error}");

    let server = serve(&folder, "data", Some(&url));
    assert_eq!(entities(&server), described);
    let (status, answer) = server.ask("DELETE", "/orders/messages/head", "");
    assert!(status == 200 && answer.ends_with("order 5"), "{answer}");
    let (code, _, error) = migrate(&folder, &url, "back");
    assert!(code == 1 && error.contains("uses the database; stop it"), "{error}");
    assert_eq!(server.stop("-TERM").0, 0);

    let (code, _, error) = migrate(&folder, &url, "back");
    assert_eq!(code, 0, "{error}");
    let server = serve(&folder, "back", None);
    for number in 6..20 {
        let (status, answer) = server.ask("DELETE", "/orders/messages/head", "");
        assert!(status == 200 && answer.ends_with(&format!("order {number}")), "{answer}");
    }
    assert_eq!(server.ask("DELETE", "/orders/messages/head?timeout=0", "").0, 204);
    for number in 0..10 {
        let path = "/events/subscriptions/b/messages/head";
        let (status, answer) = server.ask("DELETE", path, "");
        assert_eq!(status, 200);
        assert!(answer.ends_with(&number.to_string().repeat(CONTENT_BYTES)), "message {number}");
    }
    assert_eq!(server.stop("-TERM").0, 0);
    let (code, _, error) = migrate(&folder, "data", "back");
    assert!(code == 5, "{error}");
}

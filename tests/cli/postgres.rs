//! A broker whose messages are in PostgreSQL: kills of the broker and of the database, and errors
//! at the start.

use std::io::Read as _;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::sync::Arc;

use crate::database::Postgres;
use crate::wait::wait_for;
use crate::{FREE_PORT, Server, directory, peeklock, run};

pub const SERVE: &[&str] = &["serve", "--http", FREE_PORT, "--ws", FREE_PORT, "--amqp", FREE_PORT];

/// Configuration of a broker with its messages in this database. It stops without a delay.
pub fn config(url: &str, more: &str) -> String {
    let store =
        format!("[store]\nkind = \"postgres\"\n[store.postgres]\nurl = \"{url}\"\nshards = 4");
    let cluster = if more.contains("[cluster]") { "" } else { "[cluster]\n" };
    format!("{store}\n{more}{cluster}leave_delay = \"0s\"\n")
}

pub fn folder(test: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cli").join(test)
}

/// The same broker again, in the folder of an earlier one.
pub fn again(test: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peeklock"));
    command.args(SERVE).current_dir(folder(test));
    command
}

pub fn kill(mut server: Server) {
    server.child.kill().unwrap();
    server.child.wait().unwrap();
}

/// Sends messages, each of which the broker must acknowledge.
pub fn send(server: &Server, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let (status, answer) = server.ask("POST", "/orders/messages", &format!("order {number}"));
        assert_eq!(status, 201, "{answer}");
    }
}

/// Receives and deletes these messages, and asserts that there are no others.
pub fn receive(server: &Server, numbers: std::ops::Range<u32>) {
    for number in numbers {
        let (status, answer) = server.ask("DELETE", "/orders/messages/head", "");
        assert_eq!(status, 200, "order {number}: {answer}");
        assert!(answer.ends_with(&format!("order {number}")), "order {number}: {answer}");
    }
    assert_eq!(server.ask("DELETE", "/orders/messages/head?timeout=0", "").0, 204);
}

/// Looks at `/readyz` until it has this status. Returns its answer.
pub fn wait_for_readiness(server: &Server, status: u16) -> String {
    let look = || {
        let (found, answer) = server.get("/readyz");
        (found == status).then_some(answer)
    };
    wait_for(look, || server.log_file())
}

/// CLU-03, CLU-06, CLU-21, CLU-53: over kills of the broker and of the database, each acknowledged
/// message is there once, in its order. An outage shows in the probes and in the log, requests wait
/// for its end, and the broker needs no restart.
#[test]
fn messages_survive_kills_of_broker_and_database() {
    let test = "postgres-kills";
    let database = Postgres::start("kills");
    let url = database.database("peeklock");
    let server = Server::start(peeklock(test, &config(&url, ""), SERVE));
    assert_eq!(server.ask("PUT", "/$api/v1/queues/orders", "").0, 201);
    send(&server, 0..50);
    kill(server);
    let server = Server::start(again(test));
    send(&server, 50..60);
    // Everything ends at once.
    database.crash();
    kill(server);
    database.run("-c listen_addresses=");
    let log = folder(test).join("log");
    let server = Server::start_logging_to(again(test), std::fs::File::create(&log).unwrap().into());
    let server = Arc::new(server);
    wait_for_readiness(&server, 200);
    send(&server, 60..70);
    database.crash();
    let waiting = {
        let server = Arc::clone(&server);
        std::thread::spawn(move || server.ask("POST", "/orders/messages", "order 70"))
    };
    let answer = wait_for_readiness(&server, 503);
    assert!(answer.contains("database"), "{answer}");
    let health = server.get("/health").1;
    assert!(health.contains("\"status\":\"unavailable\"") && health.contains("outage"), "{health}");
    assert!(server.get("/metrics").1.contains("peeklock_ready 0\n"));
    assert_eq!(server.get("/livez").0, 200);
    database.run("-c listen_addresses=");
    assert_eq!(waiting.join().unwrap().0, 201, "the send waited for the database");
    wait_for_readiness(&server, 200);
    assert!(server.get("/metrics").1.contains("peeklock_ready 1\n"));
    for line in ["requests wait until it answers", "the database answers again"] {
        let has_line = || std::fs::read_to_string(&log).unwrap().contains(line).then_some(());
        wait_for(has_line, || server.log_file());
    }
    let server = Arc::into_inner(server).unwrap();
    let (code, out, _) = server.stop("-TERM");
    assert_eq!(code, 0);
    assert!(out.contains(&format!("postgres at {url}, durable at acknowledgement")), "{out}");
    let server = Server::start(again(test));
    receive(&server, 0..71);
    assert_eq!(server.stop("-TERM").0, 0);
    // Commands for a journal do not look into the database.
    for command in ["verify", "repair"] {
        let mut checking = Command::new(env!("CARGO_BIN_EXE_peeklock"));
        checking.arg(command).current_dir(folder(test)).stdin(Stdio::null());
        let (code, _, error) = run(checking);
        assert_eq!(code, 1, "{error}");
        assert!(error.contains("the messages are in PostgreSQL"), "{error}");
    }
}

/// CLU-10: a broker whose database has lost acknowledged messages, as after the promotion of a standby
/// without them, acknowledges nothing more. It ends, and its log names the loss.
#[test]
fn broker_ends_when_acknowledged_messages_are_missing() {
    const LOSE: &str = "DO $$ DECLARE leaf text; BEGIN
        FOR leaf IN SELECT tablename FROM pg_tables WHERE tablename LIKE 'log\\_%' LOOP
            EXECUTE format('DELETE FROM %I', leaf);
        END LOOP; END $$";
    let database = Postgres::start("loss");
    // In this database the test can run statements.
    let url = format!("host={} user=postgres dbname=postgres", database.folder().display());
    let mut server = Server::start(peeklock("postgres-loss", &config(&url, ""), SERVE));
    assert_eq!(server.ask("PUT", "/$api/v1/queues/orders", "").0, 201);
    send(&server, 0..3);
    database.sql(LOSE);
    let (status, answer) = server.ask("POST", "/orders/messages", "behind a gap");
    assert!(status >= 500, "{answer}");
    assert_eq!(server.exit_code(), Some(1));
    let mut log = String::new();
    server.child.stderr.take().unwrap().read_to_string(&mut log).unwrap();
    assert!(log.contains("the database has lost a row that was acknowledged (CLU-10)"), "{log}");
}

/// CLU-05, CLU-09, CLU-40, CLU-48: a broker that cannot use its database ends with the reason and the
/// remedy, and shows no password.
#[test]
fn each_error_at_the_start_has_its_remedy() {
    let database = Postgres::start("errors");
    let url = database.database("peeklock");
    database.sql("CREATE ROLE guarded LOGIN PASSWORD 'right'");
    database.sql("CREATE DATABASE guarded OWNER guarded");
    let guarded = url.replace("peeklock dbname=peeklock", "guarded dbname=guarded");
    let failing = |test: &str, config: &str| {
        let (code, out, error) = run(peeklock(test, config, SERVE));
        assert_eq!(code, 1, "{out}{error}");
        assert!(error.contains("the store in PostgreSQL cannot be opened"), "{error}");
        error
    };
    let absent = url.replace("dbname=peeklock", "dbname=absent");
    let error = failing("postgres-absent", &config(&absent, ""));
    assert!(error.contains("create the database"), "{error}");
    let error = failing("postgres-no-password", &config(&guarded, ""));
    assert!(error.contains("store.postgres.password_file"), "{error}");
    let password = directory("postgres-passwords").join("password");
    std::fs::write(&password, "wrong-secret\n").unwrap();
    let file = format!("password_file = \"{}\"\n", password.display());
    let error = failing("postgres-password", &config(&guarded, &file));
    assert!(error.contains("store.postgres.password_file"), "{error}");
    assert!(!error.contains("wrong-secret"), "{error}");
    std::fs::write(&password, "right\n").unwrap();
    let server = Server::start(peeklock("postgres-right", &config(&guarded, &file), SERVE));
    assert_eq!(server.stop("-TERM").0, 0);

    // A second broker needs its own name.
    let named = config(&url, "[cluster]\nname = \"left\"\n");
    let first = Server::start(peeklock("postgres-first", &named, SERVE));
    let (code, out, error) = run(peeklock("postgres-second", &named, SERVE));
    assert_eq!(code, 1, "{out}{error}");
    assert!(error.contains("`left`") && error.contains("`cluster.name`"), "{error}");
    assert_eq!(first.stop("-TERM").0, 0);

    database.shut_down();
    let error = failing("postgres-away", &config(&url, ""));
    assert!(error.contains("store.postgres.url"), "{error}");

    database.run("-c listen_addresses= -c fsync=off");
    let error = failing("postgres-unsafe", &config(&url, ""));
    assert!(error.contains("`fsync` is off"), "{error}");
    let known = config(&url, "i_know = true\n");
    let server = Server::start(peeklock("postgres-known", &known, SERVE));
    let (code, _, log) = server.stop("-TERM");
    assert_eq!(code, 0, "{log}");
    assert!(log.contains("`fsync` is off"), "{log}");

    database.shut_down();
    std::fs::write(database.folder().join("data/standby.signal"), "").unwrap();
    database.run("-c listen_addresses=");
    let error = failing("postgres-standby", &config(&url, ""));
    assert!(error.contains("store.postgres.url"), "{error}");
}

//! Jobs of operators in the program: over HTTP and with the commands, and over kills.

use std::path::PathBuf;
use std::process::Command;

use serde_json::{Value, json};

use crate::{FREE_PORT, Server, peeklock, run};

const SERVE: &[&str] = &["serve", "--http", FREE_PORT, "--ws", FREE_PORT, "--amqp", FREE_PORT];
const JSON: &str = "Content-Type: application/json\r\n";
const MESSAGES: usize = 3_000;

fn folder(test: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join("cli").join(test)
}

/// Sends a request of the JSON API. Returns the status, and the body of the answer.
fn ask(server: &Server, method: &str, path: &str, body: &Value) -> (u16, Value) {
    let body = if body.is_null() { String::new() } else { body.to_string() };
    let (status, answer) = server.ask_with(JSON, method, &format!("/$api/v1{path}"), &body);
    let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
    (status, serde_json::from_str(body).unwrap_or_default())
}

fn job(server: &Server, id: &str) -> Value {
    let (status, job) = ask(server, "GET", &format!("/jobs/{id}"), &Value::Null);
    assert_eq!(status, 200, "{job}");
    job
}

/// Looks at a job until a condition holds.
fn wait(server: &Server, id: &str, holds: impl Fn(&Value) -> bool) -> Value {
    loop {
        let job = job(server, id);
        if holds(&job) {
            return job;
        }
        assert_ne!(job["state"], "failed", "{job}");
        std::thread::yield_now();
    }
}

fn is_done(job: &Value) -> bool {
    job["state"] == "done"
}

fn restarted(test: &str) -> Server {
    let mut command = Command::new(env!("CARGO_BIN_EXE_peeklock"));
    command.args(SERVE).current_dir(folder(test));
    Server::start(command)
}

/// CON-15, CON-19, CON-80: a job goes on after each SIGKILL, and acts exactly once on each message:
/// moving a scheduled message by an hour twice would show.
#[test]
fn a_job_acts_once_on_each_message_over_kills() {
    let test = "jobs-killed";
    let mut server = Server::start(peeklock(test, "", SERVE));
    let queue = json!({ "maxSizeInMegabytes": 1024 });
    assert_eq!(ask(&server, "PUT", "/queues/q", &queue).0, 201);
    for _ in 0..MESSAGES / 100 {
        let message = json!({ "body": "x", "scheduledEnqueueTimeUtc": "2099-01-01T00:00:00Z" });
        let messages = vec![message; 100];
        let batch = json!({ "messages": messages });
        let (status, answer) = ask(&server, "POST", "/queues/q/messages/batch", &batch);
        assert_eq!(status, 201, "{answer}");
    }
    // A step for each 250 messages.
    let draft =
        json!({ "where": "", "deed": { "reschedule": { "later": "PT1H" } }, "rate": 1_000 });
    let (status, made) = ask(&server, "POST", "/queues/q/jobs", &draft);
    assert_eq!(status, 201, "{made}");
    let id = made["job"].as_str().unwrap().to_owned();
    let ready = wait(&server, &id, |job| job["state"] == "ready");
    assert_eq!(ready["preview"]["count"], MESSAGES);
    let start = json!({ "digest": ready["preview"]["digest"] });
    let (status, answer) = ask(&server, "POST", &format!("/jobs/{id}/start"), &start);
    assert_eq!(status, 200, "{answer}");
    let mut kills = 0;
    for step in 1..=(MESSAGES / 250) as u64 {
        let job = wait(&server, &id, |job| job["tried"].as_u64() >= Some((step - 1) * 250));
        if is_done(&job) {
            break;
        }
        // Each kill comes at another moment of a step.
        for _ in 0..step * 7 {
            self::job(&server, &id);
        }
        // Sends SIGKILL.
        drop(server);
        kills += 1;
        server = restarted(test);
    }
    assert!(kills >= 8, "{kills} kills");
    let done = wait(&server, &id, is_done);
    assert_eq!((done["done"].as_u64(), done["failed"].as_u64()), (Some(MESSAGES as u64), Some(0)));
    let slots = "/queues/q/timeline?fromUtc=2099-01-01T01:00:00Z&slotSeconds=10&slots=1";
    let (_, timeline) = ask(&server, "GET", slots, &Value::Null);
    assert_eq!(timeline["counts"], json!([MESSAGES]), "{timeline}");
    assert_eq!((&timeline["before"], &timeline["later"]), (&json!(0), &json!(0)));
    // The result stays over another restart.
    assert_eq!(server.stop("-TERM").0, 0);
    let server = restarted(test);
    assert_eq!(job(&server, &id)["done"], MESSAGES);
    assert_eq!(server.stop("-TERM").0, 0);
}

/// CON-15, CON-16, CON-17, CON-80: over kills each message is in exactly one of two queues, and in
/// the end in the destination, once, with its new body.
#[test]
fn a_job_sends_each_message_once_over_kills() {
    let test = "jobs-sending-killed";
    let mut server = Server::start(peeklock(test, "", SERVE));
    for queue in ["from", "to"] {
        let size = json!({ "maxSizeInMegabytes": 1024 });
        assert_eq!(ask(&server, "PUT", &format!("/queues/{queue}"), &size).0, 201);
    }
    for _ in 0..MESSAGES / 100 {
        let batch = json!({ "messages": vec![json!({ "body": "{}" }); 100] });
        assert_eq!(ask(&server, "POST", "/queues/from/messages/batch", &batch).0, 201);
    }
    let sends = json!({ "move": { "to": "to", "edit": { "mergePatch": "{\"sent\":true}" } } });
    let draft = json!({ "where": "", "deed": sends, "rate": 1_000 });
    let (status, made) = ask(&server, "POST", "/queues/from/jobs", &draft);
    assert_eq!(status, 201, "{made}");
    let id = made["job"].as_str().unwrap().to_owned();
    let ready = wait(&server, &id, |job| job["state"] == "ready");
    let start = json!({ "digest": ready["preview"]["digest"] });
    assert_eq!(ask(&server, "POST", &format!("/jobs/{id}/start"), &start).0, 200);
    let count = |server: &Server, queue: &str| {
        let (_, found) = ask(server, "GET", &format!("/queues/{queue}"), &Value::Null);
        found["runtime"]["totalMessageCount"].as_u64().unwrap()
    };
    let mut kills = 0;
    for step in 1..=(MESSAGES / 250) as u64 {
        let job = wait(&server, &id, |job| job["tried"].as_u64() >= Some((step - 1) * 250));
        if is_done(&job) {
            break;
        }
        // Each kill comes at another moment of a step.
        for _ in 0..step * 2 {
            self::job(&server, &id);
        }
        drop(server);
        kills += 1;
        server = restarted(test);
    }
    // The job goes on while a loaded machine answers slowly.
    assert!(kills >= 4, "{kills} kills");
    let done = wait(&server, &id, is_done);
    assert_eq!((done["done"].as_u64(), done["failed"].as_u64()), (Some(MESSAGES as u64), Some(0)));
    assert_eq!((count(&server, "from"), count(&server, "to")), (0, MESSAGES as u64));
    let (_, page) = ask(&server, "GET", "/queues/to/heads?count=500", &Value::Null);
    let heads = page["heads"].as_array().unwrap();
    assert!(heads.iter().all(|head| head["bodyStart"] == "{\"sent\":true}"), "{page}");
    assert_eq!(server.stop("-TERM").0, 0);
}

/// CON-20, CON-80: over kills a job that deletes messages is undone exactly: each message is there
/// once, with its number and body.
#[test]
fn a_job_is_undone_over_kills() {
    let test = "jobs-undone-killed";
    let mut server = Server::start(peeklock(test, "", SERVE));
    let size = json!({ "maxSizeInMegabytes": 1024 });
    assert_eq!(ask(&server, "PUT", "/queues/q", &size).0, 201);
    for _ in 0..MESSAGES / 100 {
        let batch = json!({ "messages": vec![json!({ "body": "x" }); 100] });
        assert_eq!(ask(&server, "POST", "/queues/q/messages/batch", &batch).0, 201);
    }
    let draft = json!({ "where": "", "deed": { "delete": {} }, "rate": 1_000 });
    let (_, made) = ask(&server, "POST", "/queues/q/jobs", &draft);
    let id = made["job"].as_str().unwrap().to_owned();
    let ready = wait(&server, &id, |job| job["state"] == "ready");
    assert_eq!(ready["preview"]["undoable"], true);
    let start = json!({ "digest": ready["preview"]["digest"] });
    assert_eq!(ask(&server, "POST", &format!("/jobs/{id}/start"), &start).0, 200);
    let mut jobs = vec![id.clone()];
    for place in 0..2 {
        for step in 1..=(MESSAGES / 250) as u64 {
            let tried = |job: &Value| job["tried"].as_u64() >= Some((step - 1) * 250);
            if is_done(&wait(&server, &jobs[place], tried)) {
                break;
            }
            for _ in 0..step * 3 {
                self::job(&server, &jobs[place]);
            }
            drop(server);
            server = restarted(test);
        }
        let done = wait(&server, &jobs[place], is_done);
        assert_eq!(done["done"].as_u64(), Some(MESSAGES as u64), "{done}");
        if place == 0 {
            wait(&server, &id, |job| !job["undoUntilUtc"].is_null());
            let (status, undo) = ask(&server, "POST", &format!("/jobs/{id}/undo"), &Value::Null);
            assert_eq!((status, &undo["deed"]["putBack"]["job"]), (200, &json!(id)), "{undo}");
            jobs.push(undo["job"].as_str().unwrap().to_owned());
        }
    }
    for from in (1..=MESSAGES).step_by(500) {
        let path = format!("/queues/q/heads?from={from}&count=500");
        let (_, page) = ask(&server, "GET", &path, &Value::Null);
        let heads = page["heads"].as_array().unwrap();
        let numbers = heads.iter().map(|head| head["sequenceNumber"].as_u64());
        let expected = (from..(from + 500).min(MESSAGES + 1)).map(|number| Some(number as u64));
        assert!(numbers.eq(expected), "{from}");
        assert!(heads.iter().all(|head| head["bodyStart"] == "x"));
    }
    assert_eq!(server.stop("-TERM").0, 0);
}

/// CON-15, CON-22, CON-80: over kills an export has each message once. Its file is downloaded over
/// HTTP as a stream that no browser shows as a document (CON-69).
#[test]
fn messages_are_exported_over_kills() {
    let test = "jobs-export-killed";
    let mut server = Server::start(peeklock(test, "", SERVE));
    let size = json!({ "maxSizeInMegabytes": 1024 });
    assert_eq!(ask(&server, "PUT", "/queues/q", &size).0, 201);
    let body = "x".repeat(300);
    for _ in 0..MESSAGES / 100 {
        let batch = json!({ "messages": vec![json!({ "body": body }); 100] });
        assert_eq!(ask(&server, "POST", "/queues/q/messages/batch", &batch).0, 201);
    }
    let draft = json!({ "where": "", "deed": { "export": {} }, "rate": 1_000 });
    let (status, made) = ask(&server, "POST", "/queues/q/jobs", &draft);
    assert_eq!((status, &made["deed"]["export"]["form"]), (201, &json!("ndjson")), "{made}");
    let id = made["job"].as_str().unwrap().to_owned();
    let ready = wait(&server, &id, |job| job["state"] == "ready");
    let start = json!({ "digest": ready["preview"]["digest"] });
    assert_eq!(ask(&server, "POST", &format!("/jobs/{id}/start"), &start).0, 200);
    let export = format!("/jobs/{id}/export");
    for step in 1..=(MESSAGES / 250) as u64 {
        let tried = |job: &Value| job["tried"].as_u64() >= Some((step - 1) * 250);
        if is_done(&wait(&server, &id, tried)) {
            break;
        }
        for _ in 0..step * 3 {
            self::job(&server, &id);
        }
        drop(server);
        server = restarted(test);
    }
    let done = wait(&server, &id, is_done);
    assert_eq!(done["done"].as_u64(), Some(MESSAGES as u64), "{done}");
    let bytes = done["exportBytes"].as_u64().unwrap();
    assert!(bytes > 1 << 20, "{bytes}");
    let (status, answer) = server.ask_with("", "GET", &format!("/$api/v1{export}"), "");
    let (head, file) = answer.split_once("\r\n\r\n").unwrap();
    assert_eq!((status, file.len() as u64), (200, bytes), "{head}");
    let head = head.to_lowercase();
    for line in
        ["application/octet-stream", "attachment", "content-security-policy: sandbox", "no-store"]
    {
        assert!(head.contains(line), "{line}: {head}");
    }
    let lines = file.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let numbers = lines.map(|line| {
        assert_eq!(line["body"], body);
        line["sequenceNumber"].as_u64().unwrap()
    });
    assert!(numbers.eq(1..=MESSAGES as u64));
    // A browser gets an address for one use (CON-71).
    let (status, download) =
        ask(&server, "POST", "/downloads", &json!({ "path": export.trim_start_matches('/') }));
    assert_eq!(status, 201, "{download}");
    let address = format!("/$api/v1/{}", download["path"].as_str().unwrap());
    let (status, again) = server.ask_with("", "GET", &address, "");
    assert_eq!((status, again.split_once("\r\n\r\n").unwrap().1 == file), (200, true));
    assert_eq!(server.ask_with("", "GET", &address, "").0, 404);
    assert_eq!(ask(&server, "POST", &format!("/jobs/{id}/undo"), &Value::Null).0, 400);
    assert_eq!(server.stop("-TERM").0, 0);
}

/// CON-22, CON-41: the commands export messages to a file that `send` reads, and keep a present one.
#[test]
fn the_commands_export_messages() {
    let mut server = Server::start(peeklock("jobs-export", "", SERVE));
    let url = server.websocket();
    for queue in ["q", "copy"] {
        assert_eq!(ask(&server, "PUT", &format!("/queues/{queue}"), &json!({})).0, 201);
    }
    for subject in ["a", "=b", "a"] {
        let message = json!({ "body": "two", "subject": subject, "messageId": "m" });
        assert_eq!(ask(&server, "POST", "/queues/q/messages", &message).0, 201);
    }
    let command = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peeklock"));
        command.args(arguments).args(["--url", &url]).current_dir(folder("jobs-export"));
        run(command)
    };
    let export = ["job", "export", "q", "--where", "subject=a", "--to", "a.ndjson"];
    let (code, out, error) = command(&export);
    assert!(code == 0 && out.is_empty() && error.contains("exported 2 messages"), "{out} {error}");
    let path = folder("jobs-export").join("a.ndjson");
    let file = std::fs::read_to_string(&path).unwrap();
    assert_eq!(file.lines().count(), 2);
    // The file that is there is kept.
    let (code, _, error) = command(&export);
    assert!(code == 2 && error.contains("cannot be created"), "{error}");
    assert_eq!(std::fs::read_to_string(&path).unwrap(), file);
    let mut send = Command::new(env!("CARGO_BIN_EXE_peeklock"));
    send.args(["send", "copy", "--url", &url]).stdin(std::fs::File::open(&path).unwrap());
    assert_eq!(run(send).0, 0);
    let (_, copies) = ask(&server, "GET", "/queues/copy/heads", &Value::Null);
    let copies = copies["heads"].as_array().unwrap();
    let facts =
        copies.iter().map(|head| (&head["subject"], &head["messageId"], &head["bodyStart"]));
    assert!(facts.eq([(&json!("a"), &json!("m"), &json!("two")); 2]), "{copies:?}");

    let (code, out, _) = command(&["job", "export", "q", "--csv", "--where", ""]);
    assert!(code == 0 && out.lines().count() == 4 && out.contains(",'=b,"), "{out}");
    let some = ["job", "export", "q", "--number", "1", "--number", "9", "--to", "some"];
    let (code, _, error) = command(&some);
    assert!(code == 8 && error.contains("1 message not exported"), "{code} {error}");
    let none = ["job", "export", "q", "--number", "9", "--to", "none"];
    assert_eq!(command(&none).0, 6);

    let create = ["job", "create", "q", "export", "--where", "", "--start", "-o", "json"];
    let (code, out, _) = command(&create);
    let job: Value = serde_json::from_str(&out).unwrap();
    assert!(code == 0 && job["exportBytes"].as_u64() > Some(0), "{job}");
    let id = job["job"].as_str().unwrap();
    let (code, out, _) = command(&["job", "show", id]);
    assert!(code == 0 && out.contains("file ") && out.contains("export"), "{out}");
    let (code, out, _) = command(&["job", "download", id]);
    assert!(code == 0 && out.lines().count() == 3, "{out}");
    let unknown = "0".repeat(32);
    assert_eq!(command(&["job", "download", &unknown, "--to", "unknown"]).0, 4);
    assert!(!folder("jobs-export").join("unknown").exists(), "a file without content is removed");
    assert_eq!(command(&["job", "create", "q", "delete", "--where", "", "--csv"]).0, 2);
    assert_eq!(command(&["job", "export", "q", "--to", "x"]).0, 2);
}

/// CON-12, CON-14, CON-19, CON-41: requests over HTTP have their answers and errors.
#[test]
fn jobs_are_made_and_listed_over_http() {
    let config = "[console]\nprotect = [\"kept\"]\n";
    let server = Server::start(peeklock("jobs-http", config, SERVE));
    let none = Value::Null;
    for queue in ["q", "kept"] {
        assert_eq!(ask(&server, "PUT", &format!("/queues/{queue}"), &json!({})).0, 201);
    }
    assert_eq!(ask(&server, "POST", "/queues/q/messages", &json!({ "body": "a" })).0, 201);
    let by_number = json!({ "sequenceNumbers": [1, 2], "deed": { "delete": {} } });
    let (status, made) = ask(&server, "POST", "/queues/q/jobs", &by_number);
    assert_eq!(status, 201, "{made}");
    let id = made["job"].as_str().unwrap().to_owned();
    let ready = wait(&server, &id, |job| job["state"] == "ready");
    assert_eq!(ready["preview"]["refused"], json!([{ "result": "notFound", "count": 1 }]));
    let (status, answer) = ask(&server, "GET", &format!("/jobs/{id}/samples"), &none);
    let samples = answer["samples"].as_array().unwrap();
    assert_eq!((status, samples.len()), (200, 1), "{answer}");
    assert_eq!(samples[0]["message"]["bodyStart"], "a", "{answer}");
    let start = |digest: &Value| {
        ask(&server, "POST", &format!("/jobs/{id}/start"), &json!({ "digest": digest }))
    };
    let (status, answer) = start(&json!("0".repeat(32)));
    assert_eq!((status, &answer["code"]), (409, &json!("UpdateConflict")));
    assert_eq!(start(&ready["preview"]["digest"]).0, 200);
    wait(&server, &id, is_done);
    let (_, failures) = ask(&server, "GET", &format!("/jobs/{id}/failures?top=1"), &none);
    assert_eq!(failures["failures"], json!([{ "sequenceNumber": 2, "result": "notFound" }]));
    assert_eq!(failures["total"], 1);
    let (_, list) = ask(&server, "GET", "/jobs?top=1", &none);
    assert_eq!((&list["jobs"][0]["job"], &list["total"]), (&json!(id), &json!(1)));

    let deed = json!({ "delete": {} });
    for (path, body, expected) in [
        ("/queues/q/jobs", json!({ "deed": deed }), 400),
        ("/queues/q/jobs", json!({ "where": "", "sequenceNumbers": [1], "deed": deed }), 400),
        ("/queues/q/jobs", json!({ "where": "", "deed": deed, "rate": 0 }), 400),
        ("/queues/absent/jobs", json!({ "where": "", "deed": deed }), 404),
        // CON-64: a protected entity is not purged, also not by a job.
        ("/queues/kept/jobs", json!({ "where": "", "deed": deed }), 400),
        ("/queues/kept/jobs", json!({ "where": "", "deed": { "undefer": {} } }), 201),
        ("/jobs/x/pause", none.clone(), 400),
    ] {
        let (status, answer) = ask(&server, "POST", path, &body);
        assert_eq!(status, expected, "{path} {body}: {answer}");
    }
    // CON-16: messages are sent by jobs only, with changes that are checked.
    let sends = json!({ "move": { "to": "q", "edit": { "set": { "n": "x" }, "subject": null } } });
    let twice = json!({ "move": { "to": "q", "edit": { "set": { "n": 1 }, "remove": ["n"] } } });
    let edited = |edit: Value| json!({ "move": { "to": "q", "edit": edit } });
    let (long, no_json) =
        (edited(json!({ "body": "x".repeat(16_385) })), edited(json!({ "mergePatch": "{" })));
    let whole = edited(json!({ "body": "x".repeat(16_384) }));
    for (path, body, expected) in [
        ("/queues/kept/jobs", json!({ "where": "", "deed": sends }), 201),
        ("/queues/kept/jobs", json!({ "where": "", "deed": twice }), 400),
        ("/queues/kept/jobs", json!({ "where": "", "deed": long }), 403),
        ("/queues/kept/jobs", json!({ "where": "", "deed": no_json }), 400),
        ("/queues/kept/jobs", json!({ "where": "", "deed": whole }), 201),
        ("/queues/q/jobs", json!({ "where": "", "deed": sends }), 400),
        ("/queues/kept/messages/act", json!({ "sequenceNumbers": [1], "deed": sends }), 400),
        ("/queues/kept/jobs", json!({ "where": "", "deed": { "move": { "to": "absent" } } }), 404),
    ] {
        let (status, answer) = ask(&server, "POST", path, &body);
        assert_eq!(status, expected, "{path} {body}: {answer}");
    }
    let (_, list) = ask(&server, "GET", "/jobs?top=2", &none);
    let deeds = [0, 1].map(|place| list["jobs"][place]["deed"].clone());
    // Only the answer about one job has a new body.
    let left_out = edited(json!({ "bodyBytes": 16_384 }));
    assert!(deeds.contains(&sends) && deeds.contains(&left_out), "{list}");
    let place = usize::from(deeds[0] != left_out);
    let made = job(&server, list["jobs"][place]["job"].as_str().unwrap());
    assert_eq!(made["deed"], whole);
    let (status, answer) =
        ask(&server, "POST", &format!("/jobs/{}/cancel", made["job"].as_str().unwrap()), &none);
    assert_eq!((status, &answer["deed"]), (200, &left_out));
    let again = json!({ "where": "", "deed": left_out });
    assert_eq!(ask(&server, "POST", "/queues/kept/jobs", &again).0, 400);
    let unknown = format!("/jobs/{}", "0".repeat(32));
    assert_eq!(ask(&server, "GET", &unknown, &none).0, 404);
    assert_eq!(ask(&server, "POST", &format!("{unknown}/cancel"), &none).0, 404);
    assert_eq!(ask(&server, "POST", &format!("{unknown}/undo"), &none).0, 404);
    assert_eq!(ask(&server, "GET", "/jobs?top=101", &none).0, 400);
    assert_eq!(server.stop("-TERM").0, 0);
}

/// CON-41: the commands make, start and list jobs, also with a broker that keeps them in memory.
#[test]
fn the_commands_run_a_job() {
    let arguments = [SERVE, &["--ephemeral"]].concat();
    let mut server = Server::start(peeklock("jobs-cli", "", &arguments));
    let url = server.websocket();
    assert_eq!(ask(&server, "PUT", "/queues/q", &json!({})).0, 201);
    for subject in ["test", "order", "test"] {
        let message = json!({ "body": "a", "subject": subject });
        assert_eq!(ask(&server, "POST", "/queues/q/messages", &message).0, 201);
    }
    let command = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peeklock"));
        command.arg("job").args(arguments).args(["--url", &url]);
        run(command)
    };
    let create = ["create", "q", "dead-letter", "--where", "subject=test", "--reason", "Test"];
    let (code, out, error) = command(&create);
    assert_eq!(code, 0, "{error}");
    assert!(out.contains("selected  2 messages"), "{out}");
    let value = |name: &str| {
        let line = out.lines().find(|line| line.starts_with(name)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    let (id, digest) = (value("job "), value("digest "));
    assert!(error.contains(&format!("peeklock job start {id} {digest}")), "{error}");
    let (code, out, _) = command(&["samples", &id]);
    assert!(code == 0 && out.contains("DeadLetterReason=Test"), "{out}");
    assert_eq!(command(&["start", &id, &"0".repeat(32)]).0, 9);
    let (code, out, _) = command(&["start", &id, &digest]);
    assert!(code == 0 && out.contains("done        2 messages"), "{code} {out}");
    let (code, out, _) = command(&["undo", &id]);
    assert!(code == 0 && out.contains(&format!("put back, undoing {id}")), "{code} {out}");
    assert!(out.contains("done        2 messages"), "{out}");
    let again = ["create", "q", "dead-letter", "--where", "subject=test", "--start"];
    assert_eq!(command(&again).0, 0);
    let (code, out, _) = command(&["list"]);
    assert!(code == 0 && out.contains("done") && out.contains(&id), "{out}");
    let (code, _, error) = command(&["failures", &id]);
    assert_eq!((code, error.trim()), (6, "no message was left alone"));
    let (code, out, _) =
        command(&["create", "q", "delete", "--number", "2", "--number", "9", "--start"]);
    assert!(code == 8 && out.contains("left alone  1 message"), "{code} {out}");
    let (code, out, _) = command(&["list", "-o", "ndjson"]);
    let left: Value = serde_json::from_str(out.lines().next().unwrap()).unwrap();
    assert_eq!((code, out.lines().count()), (0, 4));
    let (code, _, error) = command(&["samples", left["job"].as_str().unwrap()]);
    assert_eq!((code, error.trim()), (6, "no message of the job is there"));
    let (code, out, _) = command(&["failures", left["job"].as_str().unwrap()]);
    assert!(code == 0 && out.contains("no such message here"), "{out}");
    let (code, out, _) = command(&["show", &id, "-o", "json"]);
    assert!(code == 0 && serde_json::from_str::<Value>(&out).unwrap()["done"] == 2, "{out}");
    assert_eq!(command(&["create", "q", "delete", "--where", "", "--reason", "x"]).0, 2);
    let patch = ["--merge-patch", "{\"a\":1}"];
    let edited =
        [&["create", "q", "-d", "resubmit", "--where", "", "--start"][..], &patch].concat();
    let (code, out, _) = command(&edited);
    assert!(code == 6 && out.contains("left alone"), "{code} {out}");
    assert_eq!(command(&[&["create", "q", "delete", "--where", ""][..], &patch].concat()).0, 2);
    // A dry run refuses the same edits, and counts the messages that stay.
    let dry_run = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peeklock"));
        command.args(["dlq", "resubmit", "q", "--dry-run", "--url", &url]).args(arguments);
        run(command)
    };
    assert_eq!(dry_run(&["--merge-patch", "{"]).0, 2);
    assert_eq!(dry_run(&["--body", &"x".repeat(16_385)]).0, 2);
    let (code, out, error) = dry_run(&patch);
    let is_counted = error.contains("0 messages would be sent")
        && error.contains("2 messages would stay: the patch does not apply");
    assert!(code == 8 && is_counted && out.contains("STAYS"), "{code} {out} {error}");
    let (code, out, _) = dry_run(&[&patch[..], &["-o", "ndjson"]].concat());
    assert!(code == 8 && out.contains("\"stays\":\"notJson\""), "{code} {out}");
    let file = folder("jobs-cli").join("body.txt");
    std::fs::write(&file, "new\r\n").unwrap();
    let file = file.to_str().unwrap();
    let (code, out, _) = dry_run(&["--body-file", file, "-o", "ndjson"]);
    assert!(code == 0 && out.contains("\"body\":\"new\\r\\n\""), "{code} {out}");
    let whole = ["create", "q", "-d", "resubmit", "--where", "", "--body-file", file, "--start"];
    let (code, out, _) = command(&whole);
    assert!(code == 0 && out.contains("done        2 messages"), "{code} {out}");
    assert_eq!(command(&["create", "q", "delete"]).0, 2);
    for _ in 0..20 {
        assert_eq!(ask(&server, "POST", "/queues/q/messages", &json!({ "body": "a" })).0, 201);
    }
    // A job that another client cancels is a failure for the command that waits for it.
    let slow = ["create", "q", "delete", "--where", "", "--rate", "1", "--start"];
    let (code, out, _) = std::thread::scope(|threads| {
        let waiting = threads.spawn(|| command(&slow));
        let running = loop {
            let (_, list) = ask(&server, "GET", "/jobs?top=1", &Value::Null);
            if list["jobs"][0]["state"] == "running" {
                break list["jobs"][0]["job"].as_str().unwrap().to_owned();
            }
        };
        let cancel = format!("/jobs/{running}/cancel");
        assert_eq!(ask(&server, "POST", &cancel, &Value::Null).0, 200);
        waiting.join().unwrap()
    });
    assert!(code == 8 && out.contains("cancelled"), "{code} {out}");
    assert_eq!(command(&["pause", &id]).0, 1);
    assert_eq!(command(&["show", &"0".repeat(32)]).0, 4);
    assert_eq!(server.stop("-TERM").0, 0);
}

//! `peeklock send` and `peeklock schedule`

use std::io::{Read as _, Write as _};
use std::time::{Duration, Instant};

use super::broker::{Broker, body};
use super::program::Program;

#[test]
fn a_message_has_the_properties_of_the_flags() {
    let broker = Broker::with_queue(&[]);
    let said = broker.ok(&[
        "send",
        "orders",
        "two coffees",
        "--id",
        "order-1",
        "--subject",
        "coffee",
        "--property",
        "table:i32=7",
        "-p",
        "note=with milk",
        "-p",
        "paid:bool=true",
        "--ttl",
        "10m",
        "--content-type",
        "text/plain",
        "--correlation-id",
        "c",
        "--reply-to",
        "answers",
        "--to",
        "bar",
        "--partition-key",
        "p",
    ]);
    assert_eq!(said, "sent 1 message to orders, sequence number 1\n");
    let message = broker.peek("orders").remove(0);
    for (property, expected) in [
        ("body", "two coffees"),
        ("messageId", "order-1"),
        ("subject", "coffee"),
        ("timeToLive", "PT10M"),
        ("contentType", "text/plain"),
        ("correlationId", "c"),
        ("replyTo", "answers"),
        ("to", "bar"),
        ("partitionKey", "p"),
    ] {
        assert_eq!(message[property], expected, "{property}");
    }
    let properties = &message["applicationProperties"];
    assert_eq!(properties["table"], serde_json::json!({"type": "i32", "value": 7}));
    assert_eq!(properties["note"], "with milk");
    assert_eq!(properties["paid"], true);
}

#[test]
fn a_file_is_a_body_byte_for_byte() {
    let broker = Broker::with_queue(&[]);
    let file = concat!(env!("CARGO_TARGET_TMPDIR"), "/client-cli-body");
    let bytes: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    std::fs::write(file, &bytes).unwrap();
    broker.ok(&["send", "orders", "--file", file]);
    assert_eq!(broker.program(&["receive", "orders", "--raw"]).run().bytes, bytes);
    broker.program(&["send", "orders", "-f", "-"]).input(b"a\nb\n").run();
    assert_eq!(broker.program(&["receive", "orders", "--raw"]).run().bytes, b"a\nb\n");
    let (_, log) = broker.ends(2, &["send", "orders", "--file", "/nowhere"]);
    assert!(log.contains("`/nowhere` cannot be read"), "{log}");
}

/// MSG-11, MSG-20: `send` reads the output of `peek`, and no property is lost.
#[test]
fn send_reads_the_output_of_peek_without_loss() {
    let broker = Broker::with_queue(&[]);
    broker.ok(&["queue", "create", "copies"]);
    let lines = [
        r#"{"body":"text with \u001b and \u202e","messageId":"1","subject":"s"}"#,
        r#"{"bodyBase64":"//4AAQ==","messageId":"2","timeToLive":"PT1H"}"#,
        r#"{"messageId":"3","scheduledEnqueueTimeUtc":"2999-01-01T00:00:00Z","correlationId":"c"}"#,
        r#"{"body":"typed","messageId":"4","applicationProperties":{"a":{"type":"u8","value":1},
            "b":1.5,"c":null,"d":{"type":"uuid","value":"00000000-0000-0000-0000-00000000feed"},
            "e":{"type":"timeSpan","value":"PT1M"},"f":{"type":"binary","value":"AAE="}}}"#,
    ]
    .map(|line| line.replace('\n', ""));
    let ended = broker.program(&["send", "orders"]).input(lines.join("\n").as_bytes()).run();
    assert_eq!(ended.code, 0, "{}", ended.log);
    let peeked = broker.ok(&["peek", "orders", "--all", "-o", "ndjson"]);
    let ended = broker.program(&["send", "copies"]).input(peeked.as_bytes()).run();
    assert_eq!(ended.code, 0, "{}", ended.log);
    let without_facts = |queue| {
        let mut messages = broker.peek(queue);
        for message in &mut messages {
            let message = message.as_object_mut().unwrap();
            for fact in ["sequenceNumber", "enqueuedTimeUtc", "expiresAtUtc"] {
                message.remove(fact);
            }
        }
        messages
    };
    let sent = without_facts("orders");
    assert_eq!(sent.len(), 4);
    assert_eq!(sent[0]["body"], "text with \u{1b} and \u{202e}");
    assert_eq!(sent[2]["state"], "Scheduled");
    assert_eq!(sent, without_facts("copies"));
    // The output of `receive` is read as well.
    let received = broker.ok(&["receive", "copies", "--all", "-o", "ndjson"]);
    let ended = broker.program(&["send", "orders"]).input(received.as_bytes()).run();
    assert_eq!(ended.out, "sent 3 messages to orders, sequence numbers 5 to 7\n");
}

#[test]
fn an_invalid_line_is_named_and_ends_the_sending() {
    let broker = Broker::with_queue(&[]);
    let input = b"{\"body\":\"one\"}\n\n{\"bdy\":\"two\"}\n{\"body\":\"three\"}\n";
    let ended = broker.program(&["send", "orders"]).input(input).run();
    assert_eq!(ended.code, 8, "{}", ended.log);
    assert!(ended.log.starts_with("error: line 3: expected a message as JSON"), "{}", ended.log);
    assert!(ended.log.contains("bdy"), "{}", ended.log);
    assert_eq!(ended.out, "sent 1 message to orders, sequence number 1; 1 failed\n");
    assert_eq!(broker.bodies("orders"), [body("one", 0)]);

    let ended = broker.program(&["send", "orders", "--keep-going"]).input(input).run();
    assert_eq!(ended.code, 8);
    assert_eq!(broker.bodies("orders"), [body("one", 0), body("one", 0), body("three", 0)]);

    let ended = broker.program(&["send", "orders"]).input(b"two coffees\n").run();
    assert_eq!(ended.code, 2);
    assert!(ended.log.contains("--lines"), "{}", ended.log);
}

#[test]
fn a_refused_message_is_named_with_its_line() {
    let broker = Broker::with_queue(&[]);
    let large = format!("{{\"body\":\"{}\"}}", "x".repeat(1_100_000));
    let input = format!("{{\"body\":\"one\"}}\n{large}\n{{\"body\":\"three\"}}\n");
    let arguments = ["send", "orders", "--in-flight", "1", "-o", "ndjson"];
    let ended = broker.program(&arguments).input(input.as_bytes()).run();
    assert_eq!(ended.code, 8, "{}", ended.log);
    assert!(ended.log.starts_with("error: line 2: MessageSizeExceeded: "), "{}", ended.log);
    let told: Vec<serde_json::Value> =
        ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(told[0], serde_json::json!({"line": 1, "sequenceNumber": 1}));
    assert_eq!(told[1]["error"], "MessageSizeExceeded");
    assert_eq!(told.len(), 2);
    assert_eq!(broker.bodies("orders"), [body("one", 0)]);
    let (out, _) = broker.ends(4, &["send", "absent", "x"]);
    assert_eq!(out, "sent 0 messages to absent; 1 failed\n");
}

#[test]
fn many_messages_keep_their_order_and_are_counted() {
    let broker = Broker::with_queue(&[]);
    let bodies: Vec<String> = (0..3_000).map(|number| format!("m{number}")).collect();
    let ended = broker
        .program(&["send", "orders", "--lines", "-o", "json"])
        .input(bodies.join("\n").as_bytes())
        .run();
    let sum: serde_json::Value = serde_json::from_str(&ended.out).unwrap();
    assert_eq!((&sum["accepted"], &sum["failed"]), (&3_000.into(), &0.into()));
    assert_eq!(ended.log, "", "nothing but the sum is said in a pipe");
    let received = broker.ok(&["receive", "orders", "--all", "--body-only"]);
    assert_eq!(received.lines().collect::<Vec<_>>(), bodies);
}

/// DUP-02
#[test]
fn duplicates_are_counted_separately() {
    let broker = Broker::with_queue(&["--requires-duplicate-detection"]);
    let out = broker.ok(&["send", "orders", "x", "--id", "a", "--repeat", "3"]);
    assert_eq!(out, "sent 1 message to orders, sequence number 1; 2 dropped as duplicates\n");
}

#[test]
fn repeat_and_rate_limit_the_sent_messages() {
    let broker = Broker::with_queue(&[]);
    let begun = Instant::now();
    broker.ok(&["send", "orders", "x", "--repeat", "5", "--rate", "20"]);
    // The first message is due immediately, each other one 50 ms later.
    assert!(begun.elapsed() >= Duration::from_millis(200));
    assert_eq!(broker.peek("orders").len(), 5);
}

/// SCH-04, SCH-05
#[test]
fn scheduled_messages_are_cancelled_all_or_none() {
    let broker = Broker::with_queue(&[]);
    broker.ok(&["send", "orders", "a", "--at", "2999-01-01T00:00:00Z"]);
    broker.ok(&["send", "orders", "b", "--at", "+1h"]);
    let (_, log) = broker.ends(4, &["schedule", "cancel", "orders", "1", "2", "3"]);
    assert!(log.contains("MessageNotFound") && log.contains("nothing was cancelled"), "{log}");
    let scheduled = broker.ok(&["peek", "orders", "--state", "scheduled"]);
    assert_eq!(scheduled.lines().count(), 3, "{scheduled}");
    assert_eq!(broker.ok(&["schedule", "cancel", "orders", "1", "2"]), "cancelled 2 messages\n");
    broker.ends(6, &["peek", "orders"]);
}

/// If standard output fails, standard error reports the stored messages.
#[test]
fn a_full_disk_does_not_hide_sent_messages() {
    let broker = Broker::with_queue(&[]);
    for (output, sent) in
        [("table", "3 messages were sent, up to line 3"), ("ndjson", "sent, up to line ")]
    {
        let lines = "printf 'a\\nb\\nc\\n'";
        let program = env!("CARGO_BIN_EXE_peeklock");
        let script = format!("{lines} | '{program}' send orders --lines -o {output} > /dev/full");
        let ended = std::process::Command::new("bash")
            .args(["-c", &script])
            .env("PEEKLOCK_URL", &broker.url)
            .output()
            .unwrap();
        let log = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(8), "{log}");
        assert!(log.contains("error: standard output: ") && log.contains(sent), "{log}");
    }
}

#[test]
fn an_invalid_line_has_a_machine_readable_error() {
    let broker = Broker::with_queue(&[]);
    let input = b"{\"body\":\"one\"}\n{\"bdy\":\"two\"}\n{\"body\":\"three\"}\n";
    let arguments = ["send", "orders", "--keep-going", "-o", "ndjson"];
    let ended = broker.program(&arguments).input(input).run();
    assert_eq!(ended.code, 8, "{}", ended.log);
    let mut told: Vec<serde_json::Value> =
        ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    told.sort_by_key(|told| told["line"].as_u64());
    assert_eq!(told.len(), 3, "{}", ended.out);
    assert_eq!(told[1]["error"], "ArgumentError");
    assert_eq!((&told[1]["mayBeStored"], &told[1]["retryable"]), (&false.into(), &false.into()));
    assert!(told[1]["detail"].as_str().unwrap().contains("bdy"));
}

#[test]
fn a_stopped_sending_names_its_last_line() {
    let broker = Broker::with_queue(&[]);
    let input = b"{\"body\":\"one\"}\n{\"bdy\":\"two\"}\n{\"body\":\"three\"}\n";
    let ended = broker.program(&["send", "orders"]).input(input).run();
    assert!(ended.log.ends_with("stopped: nothing after line 2 was sent\n"), "{}", ended.log);
}

#[test]
fn a_json_document_is_recognised() {
    let broker = Broker::with_queue(&[]);
    broker.send("orders", &["a"]);
    let document = broker.ok(&["peek", "orders", "-o", "json"]);
    for input in [document.as_str(), "{\n  \"body\": \"a\"\n}\n"] {
        let ended = broker.program(&["send", "orders"]).input(input.as_bytes()).run();
        assert_eq!(ended.code, 2);
        let log = ended.log;
        assert!(log.contains("-o ndjson") && log.contains("jq -c"), "{log}");
        assert!(!log.contains("--lines"), "{log}");
    }
}

#[test]
fn the_http_port_is_recognised() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("ws://{}", listener.local_addr().unwrap());
    let served = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().unwrap();
        let mut request = [0; 4096];
        let _read = stream.read(&mut request).unwrap();
        let body = "{\"type\":\"about:blank\",\"title\":\"Not Found\"}";
        let length = body.len();
        let head = format!("HTTP/1.1 404 Not Found\r\nContent-Length: {length}\r\n\r\n");
        stream.write_all(format!("{head}{body}").as_bytes()).unwrap();
    });
    let ended = Program::new(&["queue", "list", "--url", &url]).run();
    served.join().unwrap();
    assert_eq!(ended.code, 7, "{}", ended.log);
    assert!(ended.log.contains("is it the HTTP port?"), "{}", ended.log);
    assert!(!ended.log.contains("token") && !ended.log.contains("about:blank"), "{}", ended.log);
}

#[test]
fn an_invalid_sequence_number_is_reported() {
    let (_, log) = Broker::start().ends(2, &["schedule", "cancel", "orders", "x"]);
    assert!(log.contains("expected a sequence number"), "{log}");
}

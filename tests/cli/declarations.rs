//! The namespace as a text over HTTP: planned, carried out, exported.

use crate::{FREE_PORT, Server, peeklock};

const SERVE: &[&str] =
    &["serve", "--ephemeral", "--http", FREE_PORT, "--ws", FREE_PORT, "--amqp", FREE_PORT];
const JSON: &str = "Content-Type: application/json\r\n";
const TEXT: &str = "/$api/v1/declaration/text";

const FILE: &str = r#"
[[queues]]
name = "orders"
max_delivery_count = 5

[[topics]]
name = "events"
[[topics.subscriptions]]
name = "eu"
[[topics.subscriptions.rules]]
name = "region"
sql = "region = 'eu'"
[[topics.subscriptions]]
name = "none"
rules = []
"#;

/// Sends a text with more members. Returns the status code, and the JSON of the answer.
fn declare(server: &Server, query: &str, text: &str, more: &str) -> (u16, serde_json::Value) {
    let text = serde_json::to_string(text).unwrap();
    let body = format!("{{\"text\": {text}{more}}}");
    let (status, answer) = server.ask_with(JSON, "POST", &format!("{TEXT}?{query}"), &body);
    let (_, json) = answer.split_once("\r\n\r\n").unwrap();
    (status, serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {answer}")))
}

fn detail(refused: &serde_json::Value) -> &str {
    refused["detail"].as_str().unwrap()
}

/// CON-40, DEC-09, DEC-13: a text is planned, and exactly this plan is carried out by its digest. An
/// error names the line, also one of the broker. The emulator's file is read too.
#[test]
fn a_text_is_planned_and_carried_out() {
    let server = Server::start(peeklock("declare-text", "", SERVE));
    let (status, plan) = declare(&server, "dryRun=true", FILE, "");
    assert_eq!((status, plan["steps"].as_array().unwrap().len()), (200, 4), "{plan}");
    assert_eq!(plan["notes"].as_array().unwrap().len(), 0);
    assert_eq!(server.get("/$api/v1/queues/orders").0, 404);
    let digest = format!("digest={}", plan["digest"].as_str().unwrap());
    let (status, part) = declare(&server, &format!("{digest}&stepsMax=3"), FILE, "");
    assert_eq!((status, part["done"].as_u64()), (200, Some(3)), "{part}");
    let (status, refused) = declare(&server, &digest, FILE, "");
    assert_eq!((status, refused["code"].as_str()), (409, Some("UpdateConflict")));
    let digest = format!("digest={}", part["rest"]["digest"].as_str().unwrap());
    assert_eq!(declare(&server, &digest, FILE, "").1["done"].as_u64(), Some(1));

    for (text, said) in [
        ("[[queues]]\nname = \"a\"\nlock_durtion = \"1m\"\n", "file:3:1: unknown key"),
        ("[[queues]]\nname = \"a\"\n[[queues]]\nname = \"A\"\n", "file:4: queues[1]: "),
        (
            "[[queues]]\nname = \"orders\"\nrequires_session = true\n",
            "file:2: queues[0]: requires_session of queue `orders` is false and cannot become true",
        ),
        ("{\"UserConfig\": 1}", "file: UserConfig: must be an object"),
    ] {
        let (status, refused) = declare(&server, "dryRun=true", text, "");
        assert_eq!(status, 400, "{refused}");
        assert!(detail(&refused).starts_with(said), "{refused}");
    }
    let large = "#".repeat(1_000_001);
    let (status, refused) = declare(&server, "dryRun=true", &large, "");
    assert_eq!(status, 400);
    assert!(detail(&refused).contains("more than 1000000; split it"), "{refused}");
    let config =
        r#"{"UserConfig": {"Namespaces": [{"Name": "n", "Queues": [{"Name": "q", "X": 1}]}]}}"#;
    let (status, plan) = declare(&server, "dryRun=true", config, "");
    assert_eq!((status, plan["steps"][0]["path"].as_str()), (200, Some("q")), "{plan}");
    assert_eq!(plan["notes"][0], "UserConfig.Namespaces[0].Queues[0].X is unknown and ignored");
    assert_eq!(declare(&server, "dryRun=true", FILE, ", \"x\": 1").0, 400);
    assert_eq!(declare(&server, "", FILE, "").0, 400);
}

/// CON-40, DEC-17: the export declares the namespace as it is, also with many entities and rules.
#[test]
fn the_namespace_is_exported() {
    let server = Server::start(peeklock("declare-export", "", SERVE));
    let mut text = FILE.to_owned();
    for index in 0..250 {
        text.push_str(&format!("[[queues]]\nname = \"queue-{index}\"\n"));
    }
    text.push_str("[[topics]]\nname = \"many\"\n[[topics.subscriptions]]\nname = \"rules\"\n");
    for index in 0..250 {
        let rule = format!("name = \"rule-{index}\"\nsql = \"a = {index}\"\n");
        text.push_str(&format!("[[topics.subscriptions.rules]]\n{rule}"));
    }
    let (_, plan) = declare(&server, "dryRun=true", &text, "");
    let (mut left, mut digest) = (plan["steps"].as_array().unwrap().len(), plan["digest"].clone());
    while left > 0 {
        let query = format!("digest={}", digest.as_str().unwrap());
        let (status, part) = declare(&server, &query, &text, "");
        assert_eq!(status, 200, "{part}");
        left = part["rest"]["steps"].as_array().unwrap().len();
        digest = part["rest"]["digest"].clone();
    }
    let (status, answer) = server.get("/$api/v1/declaration/export");
    assert_eq!(status, 200);
    let (head, chunks) = answer.split_once("\r\n\r\n").unwrap();
    assert!(head.contains("application/toml") && head.contains("topology.toml"), "{head}");
    let exported = whole(chunks);
    let (status, plan) = declare(&server, "dryRun=true", &exported, ", \"deleteUnnamed\": true");
    assert_eq!(status, 200, "{plan}");
    assert_eq!(plan["steps"].as_array().unwrap().len(), 0, "{plan}");
    assert_eq!(plan["unchangedCount"].as_u64(), Some(256));
}

/// Joins the chunks of an answer.
fn whole(mut chunks: &str) -> String {
    let mut whole = String::new();
    while let Some((size, rest)) = chunks.split_once("\r\n") {
        let size = usize::from_str_radix(size, 16).unwrap();
        whole.push_str(&rest[..size]);
        chunks = rest[size..].strip_prefix("\r\n").unwrap();
    }
    whole
}

/// CON-64, DEC-18, DEC-19: entities that are not named are deleted if asked, but none of
/// `console.protect`, over either operation.
#[test]
fn protected_entities_are_not_deleted() {
    let config = "[console]\nprotect = [\"Kept\"]\n";
    let server = Server::start(peeklock("declare-delete", config, SERVE));
    for path in ["kept", "other"] {
        assert_eq!(server.ask("PUT", &format!("/$api/v1/queues/{path}"), "").0, 201);
    }
    let named = "[[queues]]\nname = \"orders\"\n";
    let deleting = ", \"deleteUnnamed\": true";
    let (status, refused) = declare(&server, "dryRun=true", named, deleting);
    assert_eq!(status, 400, "{refused}");
    assert!(detail(&refused).contains("`Kept` is protected by the setting console.protect"));
    let body = r#"{"queues": [{"path": "orders"}], "deleteUnnamed": true}"#;
    let json = "/$api/v1/declaration?dryRun=true";
    assert_eq!(server.ask_with(JSON, "POST", json, body).0, 400);
    let both = format!("{named}[[queues]]\nname = \"kept\"\n");
    let (_, plan) = declare(&server, "dryRun=true", &both, deleting);
    let steps = plan["steps"].as_array().unwrap();
    assert_eq!(
        (steps.len(), &steps[1]["kind"], &steps[1]["path"]),
        (2, &"delete".into(), &"other".into())
    );
    let query = format!("digest={}", plan["digest"].as_str().unwrap());
    let (_, done) = declare(&server, &query, &both, deleting);
    assert_eq!(done["done"].as_u64(), Some(2), "{done}");
    assert_eq!(server.get("/$api/v1/queues/other").0, 404);
    assert_eq!(server.get("/$api/v1/queues/kept").0, 200);
    let (_, trail) = server.get("/$api/v1/audit?operation=deleteEntity");
    assert!(trail.contains("\"resource\":\"other\""), "{trail}");
}

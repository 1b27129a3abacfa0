//! Any request over HTTP: every operation in the JSON API's own document, the REST data plane, and
//! administration over Atom.

use std::sync::LazyLock;

use serde_json::{Value as Json, json};

use super::super::random::Random;
use super::super::wire::request_with;
use super::any_values::{ABSENT, FULL, FULL_MESSAGES, TOPIC, Values};

/// Operation of the document of the JSON API.
struct Operation {
    method: String,
    path: String,
    /// Name of the schema of the body.
    schema: Option<String>,
    /// Names of the parameters of the query.
    query: Vec<String>,
}

static OPERATIONS: LazyLock<Vec<Operation>> = LazyLock::new(|| {
    let document: Json = serde_json::from_str(&peeklock_http::openapi_json()).unwrap();
    let mut all = Vec::new();
    for (path, item) in document["paths"].as_object().unwrap() {
        for (method, operation) in item.as_object().unwrap() {
            if operation.get("responses").is_none() {
                continue;
            }
            let schema = &operation["requestBody"]["content"]["application/json"]["schema"];
            let name = schema["$ref"].as_str().or_else(|| schema["allOf"][0]["$ref"].as_str());
            let name = name.map(|name| name.rsplit('/').next().unwrap().to_owned());
            let name = name.or_else(|| (!schema.is_null()).then(|| "inline".to_owned()));
            let parameters = operation["parameters"].as_array().cloned().unwrap_or_default();
            let query = parameters.iter().filter(|it| it["in"] == "query");
            let query = query.map(|it| it["name"].as_str().unwrap().to_owned()).collect();
            all.push(Operation {
                method: method.to_uppercase(),
                path: path.clone(),
                schema: name,
                query,
            });
        }
    }
    all
});

/// A request as it is drawn.
struct Drawn {
    method: &'static str,
    target: String,
    /// Header lines.
    headers: String,
    body: String,
}

impl Drawn {
    const fn new(method: &'static str, target: String, body: String) -> Self {
        Self { method, target, headers: String::new(), body }
    }

    fn with(self, headers: String) -> Self {
        Self { headers, ..self }
    }
}

/// The bytes of a request.
pub fn draw(values: &mut Values) -> Vec<u8> {
    let Drawn { method, target, headers, body } = match values.below(8) {
        0..2 => data(values),
        2 => atom(values),
        3 if values.random.one_in(4) => {
            let probe = values.random.of(&["/metrics", "/health", "/readyz", "/livez"]);
            Drawn::new("GET", probe.to_owned(), String::new())
        }
        _ => {
            let which = values.below(OPERATIONS.len());
            api(&OPERATIONS[which], values)
        }
    };
    request_with(method, &target, &headers, &body)
}

/// A request to the REST data plane.
fn data(values: &mut Values) -> Drawn {
    let entity = values.entity();
    let to = if values.random.one_in(4) { TOPIC } else { values.queue() };
    let messages = format!("/{to}/messages");
    let lock = "00000000-0000-0001-0000-000000000001";
    match values.below(8) {
        0..3 => {
            let properties = broker_properties(values);
            let headers = match values.random.one_in(2) {
                true => format!("BrokerProperties: {properties}\r\n"),
                false => String::new(),
            };
            Drawn::new("POST", messages, "x".repeat(20 * values.below(5_000))).with(headers)
        }
        3 => {
            let properties = broker_properties(values);
            let item =
                json!({ "Body": "x".repeat(values.below(40)), "BrokerProperties": properties });
            let count = [1, 40, 20_000][values.below(3)];
            let content_type = "Content-Type: application/vnd.microsoft.servicebus.json\r\n";
            let items = vec![item.to_string(); count].join(",");
            Drawn::new("POST", messages, format!("[{items}]")).with(content_type.to_owned())
        }
        4 => Drawn::new("POST", format!("/{entity}/messages/head?timeout=0"), String::new()),
        5 => Drawn::new("DELETE", format!("/{entity}/messages/head?timeout=1"), String::new()),
        _ => {
            let method = values.random.of(&["DELETE", "PUT", "POST"]);
            let target = format!("/{entity}/messages/{}/{lock}", values.below(100));
            Drawn::new(method, target, String::new())
        }
    }
}

/// Random broker properties of a message.
fn broker_properties(values: &mut Values) -> Json {
    let mut properties = json!({});
    for name in ["SessionId", "MessageId", "Label"] {
        if values.random.one_in(3) {
            properties[name] = values.name("", 1 << 40, 128).into();
        }
    }
    if values.random.one_in(10) {
        properties["ScheduledEnqueueTimeUtc"] = "Fri, 01 Jan 2100 00:00:00 GMT".into();
    }
    properties
}

/// A request to an operation of the JSON API.
///
/// # Panics
/// If a parameter or a body is unknown: add each new one here.
fn api(operation: &'static Operation, values: &mut Values) -> Drawn {
    let Operation { method, path, schema, query } = operation;
    let method = method.as_str();
    let deletes = method == "DELETE" && !path.contains("messages");
    let looks = method == "GET" && path.ends_with("messages");
    let mut target = "/$api/v1".to_owned();
    for segment in path.split('/').skip(1) {
        let parameter = segment.strip_prefix('{').and_then(|it| it.strip_suffix('}'));
        let text = match parameter {
            None => segment.to_owned(),
            Some("queue") if deletes => values.name("any-", 400, 260),
            Some("queue") if method == "PUT" => values.new_queue().0,
            Some("queue") if looks && values.random.one_in(2) => FULL.to_owned(),
            Some("queue") => values.entity().replace('/', "%2F"),
            Some("topic") if deletes && path.ends_with("{topic}") => {
                values.name("any-topic-", 30, 260)
            }
            Some("topic") if values.random.one_in(8) => values.new_topic(),
            Some("topic") => TOPIC.to_owned(),
            Some("subscription") if deletes || method == "PUT" => values.name("u", 30, 50),
            Some("subscription") => values.random.of(&["s", "t", "none"]).to_owned(),
            Some("rule") => values.name("r", 400, 50),
            Some("policy") => values.name("p", 20, 256),
            Some("lockToken") => "00000000-0000-0001-0000-000000000001".to_owned(),
            Some("sequenceNumber") => values.below(2_000).to_string(),
            // An existing client would be one of the test.
            Some("client") => u64::MAX.to_string(),
            Some("ticket") => values.name("ticket-", 30, 64),
            Some("job") => format!("{:032x}", values.below(20)),
            Some("sessionId") => values.name("session-", 30, 128),
            Some(unknown) => panic!("`{{{unknown}}}` of {method} {path} is not drawn here"),
        };
        target += "/";
        target += &text;
    }
    // An existing policy, or a key of one, would end the access of all clients without a token.
    if path.contains("/policies/") && method != "GET" || path.ends_with("/keys") {
        let tail = path.split_once("/policies/").map_or("", |(_, tail)| tail);
        let tail = tail.replace("{policy}", "p1");
        target = format!("/$api/v1/queues/{ABSENT}/policies/{tail}");
    }
    match path.rsplit('/').next() {
        Some("messages" | "sessions" | "queues" | "topics" | "subscriptions" | "rules")
            if method == "GET" =>
        {
            let number = 1 + values.below(250);
            target += &match looks {
                true => format!("?from={}&count={number}", values.below(FULL_MESSAGES)),
                false => format!("?top={number}"),
            };
        }
        Some("declaration") => {
            let how = values.random.of(&["dryRun=true", "digest=0123456789abcdef"]);
            target += &format!("?{how}");
        }
        _ => target += &drawn_query(query, values),
    }
    let count = 1 + values.below(4_096);
    let body = match schema {
        None => String::new(),
        Some(schema) => match schema.as_str() {
            "QueueProperties" | "SubscriptionProperties" | "NewSubscription" => {
                values.description(false)
            }
            "TopicProperties" => values.description(true),
            "RuleForm" => values.rule(),
            "DeclarationForm" => values.declaration(),
            "DeclarationTextForm" => json!({ "text": values.declaration().to_string() }),
            "NewMessage" => values.message(),
            "Question" => {
                json!({ "message": { "body": "x", "applicationProperties": { "p": "a" } } })
            }
            "PolicyProperties" => json!({ "rights": ["Send"] }),
            "NewBatch" => json!({ "messages": values.messages() }),
            "NewSchedule" => json!({
                "messages": values.messages(),
                "scheduledEnqueueTimeUtc": "2100-01-01T00:00:00Z",
            }),
            "Numbers" | "ReceiveDeferred" => json!({ "sequenceNumbers": values.numbers() }),
            "Receive" => json!({ "maxCount": count, "waitSeconds": values.below(2) }),
            "DeleteBatch" => json!({ "maxCount": count }),
            "Abandonment" | "Modification" | "DeadLetter" => match values.random.one_in(2) {
                true => json!({ "applicationProperties": { "k": true } }),
                false => json!({}),
            },
            "Regeneration" => json!({ "key": "primary" }),
            "Watch" => watch(values),
            "SignInForm" => json!({ "path": values.text(260) }),
            "DownloadForm" => {
                let number = values.below(2_000);
                json!({ "path": format!("queues/{}/messages/{number}/body", values.queue()) })
            }
            "ActForm" => values.act(),
            "JobForm" => values.job(),
            "JobStartForm" => json!({ "digest": format!("{:032x}", values.below(9)) }),
            "LockBreak" => json!({ "sequenceNumbers": values.numbers() }),
            "SessionBreak" => json!({ "counted": values.random.one_in(2) }),
            "NewState" => json!({ "state": "s".repeat(count) }),
            "MuteForm" => {
                let (path, kind, reason) = (values.queue(), values.finding(), values.text(300));
                json!({ "path": path, "kind": kind, "reason": reason })
            }
            "UnmuteForm" => json!({ "path": values.queue(), "kind": values.finding() }),
            "SearchForm" => {
                let (entity, text) = (values.entity(), values.text(300));
                json!({ "entities": [entity], "where": text, "hits": values.below(1_100) })
            }
            "ExplainForm" => json!({ "message": { "subject": values.text(200) } }),
            "WhatIfForm" => {
                let change = json!({ "subscription": "s", "rule": values.rule() });
                json!({ "changes": [change], "messageCount": values.below(1_100) })
            }
            _ => panic!("the body `{schema}` of {method} {path} is not drawn here"),
        }
        .to_string(),
    };
    Drawn::new(method, target, body)
}

/// A query with some of these parameters, most with values of another kind.
fn drawn_query(names: &[String], values: &mut Values) -> String {
    let mut query = String::new();
    for name in names {
        if values.random.one_in(2) {
            continue;
        }
        let value = match values.below(6) {
            0 => values.below(1_000).to_string(),
            1 => values.random.of(&["true", "false", "-1", "18446744073709551616"]).to_owned(),
            2 => values.random.of(&["active", "scheduled", "end", "path", "expiry"]).to_owned(),
            3 => "2100-01-01T00:00:00Z".to_owned(),
            4 => values.entity().replace('/', "%2F"),
            _ => values.text(300),
        };
        query += if query.is_empty() { "?" } else { "&" };
        query += &format!("{name}={value}");
    }
    query
}

/// Subjects of a stream: up to one more than the maximum.
fn watch(values: &mut Values) -> Json {
    let mut subjects = Vec::new();
    for _ in 0..values.below(18) {
        let name = values.random.of(&[
            "totals", "entities", "entity", "clients", "locks", "sessions", "timeline", "tap",
        ]);
        let mut subject = json!({ "name": name });
        if matches!(name, "entity" | "locks" | "sessions" | "timeline" | "tap") {
            subject["path"] = values.entity().into();
        }
        if !matches!(name, "totals" | "entity" | "tap") && values.random.one_in(2) {
            subject["query"] = json!({ "top": values.below(600) });
        }
        subjects.push(subject);
    }
    json!({ "subjects": subjects })
}

/// An Atom request: every kind of entity is created, updated, read, listed and deleted.
fn atom(values: &mut Values) -> Drawn {
    const VERSION: &str = "api-version=2021-05";
    let entry = |description: &str| {
        format!(
            "<entry xmlns=\"http://www.w3.org/2005/Atom\"><content type=\"application/xml\">{description}\
             </content></entry>"
        )
    };
    let described = |element: &str, inside: &str| {
        let namespace = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect";
        entry(&format!("<{element} xmlns=\"{namespace}\">{inside}</{element}>"))
    };
    let metadata = format!("<UserMetadata>{}</UserMetadata>", values.text(1_024));
    let top = values.below(150);
    let list = format!("$skip=0&$top={top}&{VERSION}");
    let (method, target, body) = match values.below(14) {
        0 => ("GET", format!("/$Resources/queues?{list}"), String::new()),
        1 => ("GET", format!("/$Resources/topics?{list}"), String::new()),
        2 => ("GET", format!("/{TOPIC}/subscriptions?{list}"), String::new()),
        3 => ("GET", format!("/{}/rules?{list}", values.subscription()), String::new()),
        4 => ("GET", format!("/$namespaceinfo?{VERSION}"), String::new()),
        5 => ("GET", format!("/{}?{VERSION}", values.entity()), String::new()),
        6 => {
            let path = values.new_queue().0;
            ("PUT", format!("/{path}?{VERSION}"), described("QueueDescription", &metadata))
        }
        7 => {
            let path = values.new_topic();
            ("PUT", format!("/{path}?{VERSION}"), described("TopicDescription", &metadata))
        }
        8 => {
            let name = values.name("u", 30, 50);
            let target = format!("/{TOPIC}/subscriptions/{name}?{VERSION}");
            ("PUT", target, described("SubscriptionDescription", &metadata))
        }
        9 => {
            let (path, rule) = (values.subscription(), values.name("r", 400, 50));
            let filter = "<Filter i:type=\"SqlFilter\" xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\">\
                          <SqlExpression>p = 1</SqlExpression></Filter>";
            let name = format!("{filter}<Name>{rule}</Name>");
            ("PUT", format!("/{path}/rules/{rule}?{VERSION}"), described("RuleDescription", &name))
        }
        10 => {
            let (path, rule) = (values.subscription(), values.name("r", 400, 50));
            let method = values.random.of(&["GET", "DELETE"]);
            (method, format!("/{path}/rules/{rule}?{VERSION}"), String::new())
        }
        11 => {
            let begin = values.random.of(&["any-", "any-topic-"]);
            ("DELETE", format!("/{}?{VERSION}", values.name(begin, 400, 260)), String::new())
        }
        12 => {
            let name = values.name("u", 30, 50);
            ("DELETE", format!("/{TOPIC}/subscriptions/{name}?{VERSION}"), String::new())
        }
        _ => {
            // A body that is no description, up to the maximum size, and deeply nested. Its path is
            // a new queue: unknown elements are ignored, so the request may succeed, and nobody may
            // create the queue that the policies name.
            let deep = values.below(100);
            let inside = "<a>".repeat(deep) + &values.text(300_000) + &"</a>".repeat(deep);
            let path = values.new_queue().0;
            ("PUT", format!("/{path}?{VERSION}"), described("QueueDescription", &inside))
        }
    };
    let changes = method == "PUT" && values.random.one_in(2);
    let headers = if changes { "If-Match: *\r\n" } else { "" };
    Drawn::new(method, target, body).with(headers.to_owned())
}

/// Every operation in the document of the JSON API is drawn.
#[test]
fn every_operation_of_the_api_is_drawn() {
    let mut values = Values { random: Random::new(7) };
    assert!(OPERATIONS.len() > 45, "{}", OPERATIONS.len());
    for operation in OPERATIONS.iter() {
        for _ in 0..20 {
            let Drawn { target, body, .. } = api(operation, &mut values);
            assert!(!target.contains(['{', ' ']), "{target}");
            assert!(body.is_empty() || serde_json::from_str::<Json>(&body).is_ok(), "{body:.2000}");
        }
    }
}

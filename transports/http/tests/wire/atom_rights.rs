//! Which token may administer over Atom.

use std::sync::{Arc, Mutex};

use async_trait::async_trait;
use peeklock_auth_sas::{SasAuthorizer, SasConfig, sign};
use peeklock_core::clock::Clock as _;
use peeklock_core::contract::{Action, Authorizer, Grant, Principal, Right, Rights};
use peeklock_core::description::{QueueUpdate, SubscriptionUpdate, TopicUpdate};
use peeklock_core::error::Rejection;
use peeklock_core::policies::{KeyText, Policies, PolicyUpdate};
use peeklock_core::time::Timestamp;

use super::atom::{VERSION, entry, refusal, text, texts};
use super::client::Answer;
use super::security::{guarded, matrix};
use super::server::{Plan, Server};

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

/// Each operation with its action; a refused request must not depend on its body.
const OPERATIONS: [(&str, Action); 17] = [
    ("PUT /o?", Action::Create),
    ("PUT /o?\nIf-Match: *", Action::Update),
    ("GET /o?", Action::Describe),
    ("DELETE /o?", Action::Delete),
    ("GET /$Resources/queues?", Action::List),
    ("GET /$Resources/topics?", Action::List),
    ("GET /$namespaceinfo?", Action::Describe),
    ("PUT /t/subscriptions/s?", Action::Create),
    ("PUT /t/subscriptions/s?\nIf-Match: *", Action::Update),
    ("GET /t/subscriptions/s?", Action::Describe),
    ("DELETE /t/subscriptions/s?", Action::Delete),
    ("GET /t/subscriptions?", Action::List),
    ("GET /t/subscriptions/s/rules?", Action::List),
    ("GET /t/subscriptions/s/rules/r?", Action::Describe),
    ("PUT /t/subscriptions/s/rules/r?", Action::ChangeRules),
    ("PUT /t/subscriptions/s/rules/r?\nIf-Match: *", Action::ChangeRules),
    ("DELETE /t/subscriptions/s/rules/r?", Action::ChangeRules),
];

/// ADM-11, ADM-51, SEC-05, SEC-08, CNT-12: an operation is allowed by exactly the rights in the
/// common table. Refusals are the same whether the entity exists or not.
#[tokio::test]
async fn every_operation_takes_the_rights_of_the_table() {
    let (server, _) = guarded().await;
    for (operation, action) in OPERATIONS {
        for (rights, is_allowed) in matrix(action) {
            let head = format!("{operation}\nAuthorization: {rights},secret-part");
            let answer = server.ask(&head.replacen('?', &format!("?{VERSION}"), 1), "").await;
            if operation == "GET /o?" && !is_allowed && answer.status == 404 {
                // The entity does not exist, which a client that may send or receive there learns
                // (ADM-21).
                assert!(rights.contains("Send") || rights.contains("Listen"), "{rights}");
                continue;
            }
            assert_eq!(answer.status != 401, is_allowed, "{head}: {}", answer.text());
            if !is_allowed {
                assert_eq!(refusal(&answer), (401, "40100".to_owned()));
                assert!(!answer.text().contains("secret-part"));
            }
        }
    }
    server.stop().await;
}

/// Starts a listener with policies.
async fn governed(config: SasConfig) -> Server {
    let policies = Policies::new();
    let mut plan = Plan::new();
    let authorizer = SasAuthorizer::new(&policies, config);
    plan.authorizer = Arc::new(authorizer) as Arc<dyn Authorizer>;
    plan.policies = Some(policies);
    plan.start().await
}

async fn signed() -> Server {
    let server = governed(SasConfig::closed()).await;
    server.broker.create_queue("o", QueueUpdate::default()).await.unwrap();
    server.broker.create_topic("t", TopicUpdate::default()).await.unwrap();
    let properties = SubscriptionUpdate::default();
    server.broker.create_subscription("t", "s", properties, Vec::new()).await.unwrap();
    for owner in ["", "o", "q"] {
        let properties = PolicyUpdate {
            rights: Some(Rights::ALL),
            primary_key: KeyText::parse(KEY).ok(),
            ..PolicyUpdate::default()
        };
        let name = format!("all{owner}");
        server.broker.create_policy(owner, &name, properties).await.unwrap();
    }
    server
}

/// Sends a request while time passes, since refusals are delayed (SEC-26).
async fn ask(server: &Server, head: &str, body: &str) -> Answer {
    server.clock.while_short_waits_pass(server.ask(head, body)).await
}

fn token(name: &str, audience: &str) -> String {
    sign(name, KEY, audience, Timestamp::NEVER)
}

/// ADM-10, SEC-13: a token is either for the namespace, or for the address of a request, and then
/// only for that.
#[tokio::test]
async fn a_token_may_be_for_the_address_of_its_request() {
    let server = signed().await;
    for path in [
        "o",
        "$Resources/queues",
        "$Resources/topics",
        "$namespaceinfo",
        "t/Subscriptions",
        "t/Subscriptions/s",
        "t/Subscriptions/s/Rules",
        "t/Subscriptions/s/Rules/$Default",
    ] {
        let own = format!("http://{}/{path}?{VERSION}", server.address).to_lowercase();
        let elsewhere = format!("http://{}/elsewhere", server.address);
        for (audience, expected) in
            [(own.as_str(), 200), ("https://bus.example:443", 200), (elsewhere.as_str(), 401)]
        {
            let head = format!("GET /{path}?{VERSION}\nAuthorization: {}", token("all", audience));
            let answer = ask(&server, &head, "").await;
            assert_eq!(answer.status, expected, "{path} {audience}: {}", answer.text());
        }
    }
    // A token for a list is for no entity in it, and a token for a rule for nothing else of its
    // subscription.
    for (audience, path) in [
        ("sb://x/$resources/queues", "o"),
        ("sb://x/$resources/queues", "$namespaceinfo"),
        ("sb://x/t/subscriptions/s/rules/r", "t/subscriptions/s"),
        ("sb://x/t/subscriptions/s/rules/r", "t/subscriptions/s/rules"),
        ("sb://x/t/subscriptions", "t"),
    ] {
        let head = format!("GET /{path}?{VERSION}\nAuthorization: {}", token("all", audience));
        assert_eq!(ask(&server, &head, "").await.status, 401, "{audience} {path}");
    }
    server.stop().await;
}

/// SEC-13: a token for the address of a request does not apply if that address is the path of
/// another entity. Only a client that may use the other entity learns that it exists.
#[tokio::test]
async fn a_token_for_another_entity_is_not_for_an_address() {
    let server = signed().await;
    let requests = [
        ("POST /o/messages", "o/messages", 201),
        ("DELETE /o/messages/head?timeout=0", "o/messages/head", 200),
        ("DELETE /o/messages/head?timeout=0", "o/messages", 204),
        ("PUT /o/messages/1/9f8b5a52-0d3c-4a0e-8e4a-0f3c5b1a2d3e", "o/messages", 404),
        (
            "DELETE /o/messages/1/9f8b5a52-0d3c-4a0e-8e4a-0f3c5b1a2d3e",
            "o/messages/1/9f8b5a52-0d3c-4a0e-8e4a-0f3c5b1a2d3e",
            404,
        ),
        ("POST /o/messages/1/9f8b5a52-0d3c-4a0e-8e4a-0f3c5b1a2d3e", "o/messages/1", 404),
    ];
    let head = |line: &str, name: &str, audience: &str| {
        let token = token(name, &format!("http://x/{audience}"));
        format!("{line}\nAuthorization: {token}")
    };
    // An accepted request is not delayed, and a lock would expire while time passes.
    let accepted = async |line: &str, name: &str, audience: &str| {
        server.ask(&head(line, name, audience), "").await.status
    };
    for (line, audience, expected) in requests {
        assert_eq!(accepted(line, "all", audience).await, expected, "{line}");
    }
    server.broker.create_queue("O/Messages", QueueUpdate::default()).await.unwrap();
    for (line, audience, _) in requests {
        let refused = ask(&server, &head(line, "all", audience), "").await;
        assert_eq!(refused.status, 401, "{line} {audience}");
        // A policy that exists only at the one entity has signed nothing for the other.
        assert_ne!(accepted(line, "allo", audience).await, 401, "{line} {audience}");
        assert_ne!(accepted(line, "all", "o").await, 401, "{line}");
    }
    assert_eq!(accepted("POST /o/messages/messages", "all", "o/messages").await, 201);
    server.stop().await;
}

/// ADM-12, HTP-18, FWD-05, SEC-07: a destination requires the right on it, through its own token or
/// the main token.
#[tokio::test]
async fn a_destination_takes_a_token() {
    let server = signed().await;
    let main = token("allo", "sb://x/o");
    for (header, element) in [
        ("ServiceBusSupplementaryAuthorization", "ForwardTo"),
        ("ServiceBusDlqSupplementaryAuthorization", "ForwardDeadLetteredMessagesTo"),
    ] {
        let body = entry("QueueDescription", &format!("<{element}>q</{element}>"));
        let clear = entry("QueueDescription", "");
        let put = async |more: &str, main: &str, body: &str| {
            let head = format!("PUT /o?{VERSION}\nIf-Match: *\nAuthorization: {main}{more}");
            ask(&server, &head, body).await.status
        };
        assert_eq!(put("", &main, &body).await, 401, "the main token is for its own queue");
        let wrong = format!("\n{header}: {}", token("allo", "sb://x/o"));
        assert_eq!(put(&wrong, &main, &body).await, 401);
        let other = header.replace("ServiceBus", "ServiceBusOther");
        assert_eq!(
            put(&format!("\n{other}: {}", token("allq", "sb://x/q")), &main, &body).await,
            401
        );
        for audience in ["q", "sb://x/q", "https://x:5300/Q", "localhost:5300"] {
            let right = format!("\n{header}: {}", token("allq", audience));
            assert_eq!(put(&right, &main, &body).await, 200, "{audience}");
            assert_eq!(put("", &main, &clear).await, 200);
        }
        assert_eq!(
            put(&wrong, &token("all", "sb://x"), &body).await,
            200,
            "the main token suffices"
        );
        assert_eq!(put("", &main, &clear).await, 200);
    }
    // Without the right, nothing about a destination is revealed.
    let body = entry("QueueDescription", "<ForwardTo>absent</ForwardTo>");
    let head = format!("PUT /o?{VERSION}\nIf-Match: *\nAuthorization: {main}");
    assert_eq!(ask(&server, &head, &body).await.status, 401);
    let head = head.replace(&main, &token("all", "sb://x"));
    assert_eq!(ask(&server, &head, &body).await.status, 400);
    server.stop().await;
}

/// ADM-10, ADM-12, SEC-26, CON-73: a client that signs once for the whole namespace with the key of
/// an entity, as the Python SDK does, is never delayed: not when that entity shall forward to
/// another, with or without a token for that one, and not for a list, which contains its own
/// entity.
#[tokio::test]
async fn a_token_of_an_entity_for_the_namespace_does_not_wait() {
    let server = signed().await;
    let main = token("allo", "https://bus.example:443");
    // No time passes here, so a delayed request would not be answered.
    let begun_at = server.clock.now();
    let body = entry("QueueDescription", "<ForwardTo>q</ForwardTo>");
    let put = format!("PUT /o?{VERSION}\nIf-Match: *\nAuthorization: {main}");
    assert_eq!(server.ask(&put, &body).await.status, 401);
    let besides = token("allq", "https://bus.example:443");
    let put = format!("{put}\nServiceBusSupplementaryAuthorization: {besides}");
    assert_eq!(server.ask(&put, &body).await.status, 200);
    let list = format!("GET /$Resources/queues?{VERSION}\nAuthorization: {main}");
    let listed = server.ask(&list, "").await;
    assert_eq!((listed.status, listed.text().matches("<entry>").count()), (200, 1));
    let other = format!("GET /q?{VERSION}\nAuthorization: {main}");
    assert_eq!(server.ask(&other, "").await.status, 401);
    let wrong = format!("GET /q?{VERSION}\nAuthorization: {}", main.replace("sig=", "sig=A"));
    assert_eq!(ask(&server, &wrong, "").await.status, 401);
    assert!(server.clock.now() > begun_at);
    server.stop().await;
}

fn list(rules: &str) -> String {
    format!("<AuthorizationRules>{rules}</AuthorizationRules>")
}

fn rule(name: &str, rights: &[Right], key: &str) -> String {
    let rights: String =
        rights.iter().map(|it| format!("<AccessRights>{}</AccessRights>", it.name())).collect();
    format!(
        "<AuthorizationRule i:type=\"SharedAccessAuthorizationRule\"><ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue>\
        <Rights>{rights}</Rights><KeyName>{name}</KeyName><PrimaryKey>{key}</PrimaryKey></AuthorizationRule>"
    )
}

/// ADM-39, SEC-01, SEC-03: the authorization rules of an entity are its policies: created, returned
/// with keys, changed and removed.
#[tokio::test]
async fn authorization_rules_are_policies() {
    let server = signed().await;
    let main = token("all", "sb://x");
    let put = async |rules: &str, more: &str| {
        let head = format!("PUT /p?{VERSION}\nAuthorization: {main}{more}");
        ask(&server, &head, &entry("QueueDescription", rules)).await
    };
    for (rules, said) in [
        (rule("m", &[Right::Manage], KEY), "Manage"),
        (rule("m", &[], KEY), "at least one"),
        (rule("", &[Right::Send], KEY), "KeyName"),
        (rule("m", &[Right::Send], "secret-part"), "44 characters"),
    ] {
        let refused = put(&list(&rules), "").await;
        assert_eq!(refused.status, 400);
        assert!(
            refused.text().contains(said) && !refused.text().contains("secret-part"),
            "{}",
            refused.text()
        );
    }
    let created =
        put(&list(&(rule("sender", &[Right::Send], KEY) + &rule("admin", &Right::ALL, ""))), "")
            .await;
    assert_eq!(created.status, 201, "{}", created.text());
    assert_eq!(texts(&created, "KeyName"), ["admin", "sender"]);
    assert_eq!(texts(&created, "AccessRights").len(), 4);
    for absent in ["CreatedTime", "ModifiedTime"] {
        assert_eq!(texts(&created, absent), Vec::<String>::new());
    }
    assert!(texts(&created, "PrimaryKey").contains(&KEY.to_owned()));
    let sent = format!("POST /p/messages\nAuthorization: {}", token("sender", "sb://x/p"));
    assert_eq!(ask(&server, &sent, "a").await.status, 201);
    // Omitted policies stay; given ones replace all.
    assert_eq!(texts(&put("", "\nIf-Match: *").await, "KeyName").len(), 2);
    let replaced = put(&list(&rule("sender", &[Right::Listen], KEY)), "\nIf-Match: *").await;
    assert_eq!(text(&replaced, "AccessRights"), "Listen");
    assert_eq!(ask(&server, &sent, "a").await.status, 401);
    assert_eq!(texts(&put(&list(""), "\nIf-Match: *").await, "KeyName"), Vec::<String>::new());
    // Rights are returned in their order, and a key may be any 44 characters (SEC-02).
    let order = [Right::Manage, Right::Send, Right::Listen];
    let key = "0123456789abcdef0123456789abcdef0123456789ab";
    let both = list(&(rule("sender", &[Right::Send], KEY) + &rule("admin", &order, key)));
    let replaced = put(&both, "\nIf-Match: *").await;
    assert_eq!(texts(&replaced, "AccessRights"), ["Manage", "Send", "Listen", "Send"]);
    assert!(texts(&replaced, "PrimaryKey").contains(&key.to_owned()));
    let kept = put("", "\nIf-Match: *").await;
    assert_eq!(texts(&kept, "AccessRights"), ["Manage", "Send", "Listen", "Send"]);
    server.stop().await;
}

/// ADM-54, ADM-21: a missing right is reported in the words of the cloud, for each operation. A
/// client that may send or receive learns that an entity does not exist.
#[tokio::test]
async fn a_missing_right_is_reported_as_in_the_cloud() {
    let server = signed().await;
    let properties = PolicyUpdate {
        rights: Some([Right::Send, Right::Listen].into_iter().collect()),
        primary_key: KeyText::parse(KEY).ok(),
        ..PolicyUpdate::default()
    };
    server.broker.create_policy("", "low", properties).await.unwrap();
    let low = token("low", "sb://x");
    let read = "Manage,EntityRead claims required for this operation. ";
    let denied = |operation: &str| {
        format!(
            "401 SubCode=40100: Unauthorized : Unauthorized access for '{operation}' operation."
        )
    };
    for (line, words) in [
        ("GET /o", read.to_owned()),
        ("GET /$Resources/queues", read.to_owned()),
        ("GET /$namespaceinfo", read.to_owned()),
        ("PUT /new", "Authorization failed for specified action: Manage,EntityWrite. ".to_owned()),
        (
            "DELETE /o",
            "Authorization failed for specified action: Manage,EntityDelete. ".to_owned(),
        ),
        ("GET /t/Subscriptions", denied("EnumerateSubscriptions")),
        ("GET /t/Subscriptions/absent", denied("GetSubscription")),
        ("PUT /t/Subscriptions/s", denied("CreateOrUpdateSubscription")),
        ("DELETE /t/Subscriptions/s", denied("DeleteSubscription")),
        ("GET /t/Subscriptions/s/Rules", denied("EnumerateRules")),
        ("GET /t/Subscriptions/s/Rules/r", denied("GetRule")),
    ] {
        let answer = ask(&server, &format!("{line}?{VERSION}\nAuthorization: {low}"), "").await;
        assert_eq!(answer.status, 401, "{line}");
        let detail = text(&answer, "Detail");
        assert!(detail.starts_with(&words), "{line}: {detail}");
        assert!(detail.contains("this requires the right Manage"), "{detail}");
    }
    for path in ["absent", "absent/too"] {
        let absent = format!("GET /{path}?{VERSION}\nAuthorization: {low}");
        assert_eq!(ask(&server, &absent, "").await.status, 404);
        // A client without any right there learns nothing.
        let nothing = format!("GET /{path}?{VERSION}\nAuthorization: {}", token("allo", "sb://x"));
        assert_eq!(ask(&server, &nothing, "").await.status, 401);
    }
    server.stop().await;
}

/// ADM-39: a rule has the claim of all such rules, returned even if it was omitted, so that a
/// description that was read can be sent back. A rule with another claim is not a policy.
#[tokio::test]
async fn the_claim_of_an_authorization_rule_is_that_of_all() {
    let server = signed().await;
    let main = token("all", "sb://x");
    let put = async |path: &str, claim: &str, more: &str| {
        let head = format!("PUT /{path}?{VERSION}\nAuthorization: {main}{more}");
        let rule = rule("sender", &[Right::Send], KEY);
        let (begin, rest) = rule.split_once("<ClaimType>").unwrap();
        let (_, end) = rest.split_once("</ClaimValue>").unwrap();
        let body = entry("QueueDescription", &list(&format!("{begin}{claim}{end}")));
        ask(&server, &head, &body).await
    };
    for (path, claim) in [
        ("p1", "<ClaimType>SharedAccessKey</ClaimType><ClaimValue>None</ClaimValue>"),
        ("p2", "<ClaimType>SharedAccessKey</ClaimType>"),
        ("p3", "<ClaimType/><ClaimValue/>"),
        ("p4", ""),
    ] {
        let created = put(path, claim, "").await;
        assert_eq!(created.status, 201, "{claim}: {}", created.text());
        let get = format!("GET /{path}?{VERSION}\nAuthorization: {main}");
        let told = ask(&server, &get, "").await;
        for answer in [&created, &told] {
            assert_eq!(text(answer, "ClaimType"), "SharedAccessKey", "{claim}");
            assert_eq!(text(answer, "ClaimValue"), "None", "{claim}");
        }
    }
    for (element, claim) in [
        ("ClaimType", "<ClaimType>nameidentifier</ClaimType><ClaimValue>None</ClaimValue>"),
        ("ClaimType", "<ClaimType>sharedaccesskey</ClaimType>"),
        ("ClaimValue", "<ClaimType>SharedAccessKey</ClaimType><ClaimValue>somebody</ClaimValue>"),
    ] {
        let refused = put("p5", claim, "").await;
        assert_eq!(refused.status, 400, "{claim}");
        assert!(refused.text().contains(element), "{}", refused.text());
        let get = format!("GET /p5?{VERSION}\nAuthorization: {main}");
        assert_eq!(ask(&server, &get, "").await.status, 404, "nothing was created for it");
        assert_eq!(put("p1", claim, "\nIf-Match: *").await.status, 400, "{claim}");
    }
    server.stop().await;
}

/// ADM-39, SEC-01, SEC-03: invalid policies change nothing: their entity is neither created nor
/// changed, so that the corrected request can be repeated.
#[tokio::test]
async fn wrong_authorization_rules_change_nothing() {
    let server = signed().await;
    let main = token("all", "sb://x");
    let many: String =
        (0..13).map(|number| rule(&format!("p{number}"), &[Right::Send], "")).collect();
    let twice = rule("p", &[Right::Send], KEY)
        .replace("</PrimaryKey>", &format!("</PrimaryKey><SecondaryKey>{KEY}</SecondaryKey>"));
    for (element, path, there) in [("QueueDescription", "n", "o"), ("TopicDescription", "n", "t")] {
        for (rules, status) in [(&many, 403), (&twice, 400)] {
            let with =
                format!("<DefaultMessageTimeToLive>PT5M</DefaultMessageTimeToLive>{}", list(rules));
            let head = format!("PUT /{path}?{VERSION}\nAuthorization: {main}");
            let refused = ask(&server, &head, &entry(element, &with)).await;
            assert_eq!(refused.status, status, "{}", refused.text());
            let get = format!("GET /{path}?{VERSION}\nAuthorization: {main}");
            assert_eq!(ask(&server, &get, "").await.status, 404, "{element} {status}");
            let (head, get) = (
                head.replace("/n?", &format!("/{there}?")),
                get.replace("/n?", &format!("/{there}?")),
            );
            let before = ask(&server, &get, "").await.text().to_owned();
            let refused = ask(&server, &(head + "\nIf-Match: *"), &entry(element, &with)).await;
            assert_eq!(refused.status, status, "{}", refused.text());
            let after = ask(&server, &get, "").await;
            assert_eq!(text(&after, "DefaultMessageTimeToLive"), "P10675199DT2H48M5.4775807S");
            assert_eq!(after.text(), before);
        }
        // After the correction, the result is the same as without the failed request.
        let head = format!("PUT /{path}?{VERSION}\nAuthorization: {main}");
        let made =
            ask(&server, &head, &entry(element, &list(&rule("p", &[Right::Send], KEY)))).await;
        assert_eq!(made.status, 201, "{}", made.text());
        let delete = format!("DELETE /{path}?{VERSION}\nAuthorization: {main}");
        assert_eq!(ask(&server, &delete, "").await.status, 200);
    }
    server.stop().await;
}

/// Records the resources and the principals with a token that the authorizer was asked about.
struct Witnessed {
    seen: Mutex<Vec<(String, Principal)>>,
}

#[async_trait]
impl Authorizer for Witnessed {
    async fn authorize(&self, principal: &Principal, resource: &str) -> Result<Grant, Rejection> {
        self.seen.lock().unwrap().push((resource.to_owned(), principal.clone()));
        match principal.token.as_deref() {
            Some("all") => Ok(Grant::everything()),
            Some("own") if resource == "o" => Ok(Grant::everything()),
            Some("own") => Ok(Grant::nothing()),
            Some(_) | None => Err(Rejection::unauthorized("the token is stale")),
        }
    }

    fn allows_anonymous(&self) -> bool {
        false
    }
}

/// ADM-12, SEC-17, SEC-26: a token for a destination belongs to the same client: the authorizer
/// gets its address and proxy. It is used only if the client's own token does not grant the right.
#[tokio::test]
async fn a_token_for_a_destination_is_of_the_same_client() {
    let witnessed = Arc::new(Witnessed { seen: Mutex::default() });
    let mut plan = Plan::new();
    plan.authorizer = Arc::clone(&witnessed) as Arc<dyn Authorizer>;
    let server = plan.start().await;
    server.broker.create_queue("o", QueueUpdate::default()).await.unwrap();
    let body = entry("QueueDescription", "<ForwardTo>q</ForwardTo>");
    let cleared = entry("QueueDescription", "");
    let put = async |own: &str, other: &str| {
        let head = format!(
            "PUT /o?{VERSION}\nIf-Match: *\nAuthorization: {own}\nVia: 1.1 proxy\n\
             ServiceBusSupplementaryAuthorization: {other}"
        );
        // An unchanged destination is not checked again.
        let none = format!("PUT /o?{VERSION}\nIf-Match: *\nAuthorization: all");
        assert_eq!(server.ask(&none, &cleared).await.status, 200);
        witnessed.seen.lock().unwrap().clear();
        let status = server.ask(&head, &body).await.status;
        (status, std::mem::take(&mut *witnessed.seen.lock().unwrap()))
    };
    let (status, seen) = put("own", "all").await;
    assert_eq!(status, 200);
    let shown: Vec<_> = seen.iter().filter(|(_, it)| it.token.as_deref() == Some("all")).collect();
    assert!(!shown.is_empty() && shown.iter().all(|(resource, _)| resource == "q"), "{shown:?}");
    for (_, principal) in shown {
        assert!(principal.by_proxy && principal.peer.is_some(), "{principal:?}");
        assert_eq!(principal.address, None);
    }
    let (status, seen) = put("all", "stale").await;
    assert_eq!(status, 200);
    assert!(seen.iter().all(|(_, it)| it.token.as_deref() == Some("all")), "nobody asks of it");
    let (status, _) = put("own", "stale").await;
    assert_eq!(status, 401);
    server.stop().await;
}

/// ADM-39, SEC-17: a client that is admitted because no keys are in use may set several policies at
/// once and gets their keys in the answer. From then on it has no rights.
#[tokio::test]
async fn the_first_policies_are_returned_to_their_creator() {
    for is_there in [false, true] {
        let server = governed(SasConfig::open_on_loopback()).await;
        let head = format!("PUT /p?{VERSION}");
        let described = ask(&server, &head, &entry("QueueDescription", &list(""))).await;
        assert_eq!(described.status, 201, "to have no policies is not to use keys");
        let (path, head) = match is_there {
            true => ("p", head + "\nIf-Match: *"),
            false => ("n", format!("PUT /n?{VERSION}")),
        };
        let rules = rule("sender", &[Right::Send], "") + &rule("admin", &Right::ALL, KEY);
        let set = ask(&server, &head, &entry("QueueDescription", &list(&rules))).await;
        assert_eq!(set.status, if is_there { 200 } else { 201 }, "{}", set.text());
        assert_eq!(texts(&set, "KeyName"), ["admin", "sender"]);
        let fresh = &texts(&set, "PrimaryKey")[1];
        assert_eq!((fresh.len(), fresh == KEY), (44, false));
        let get = format!("GET /{path}?{VERSION}");
        assert_eq!(ask(&server, &get, "").await.status, 401);
        let signed = format!("{get}\nAuthorization: {}", token("admin", &format!("sb://x/{path}")));
        assert_eq!(ask(&server, &signed, "").await.status, 200);
        server.stop().await;
    }
}

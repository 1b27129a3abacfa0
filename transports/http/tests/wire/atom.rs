//! Administration over Atom: create, update, read, list and delete; exact bytes where clients
//! depend on them.

use peeklock_core::description::{QueueUpdate, Settings};
use peeklock_core::limits::Tier;

use super::client::Answer;
use super::server::{Plan, Server};

const ATOM: &str = "http://www.w3.org/2005/Atom";
pub(super) const SB: &str = "http://schemas.microsoft.com/netservices/2010/10/servicebus/connect";
pub(super) const VERSION: &str = "api-version=2021-05";

/// Returns an entry with a description, as one of the clients writes it.
pub(super) fn entry(element: &str, properties: &str) -> String {
    format!(
        "<entry xmlns=\"{ATOM}\"><content type=\"application/xml\"><{element} xmlns=\"{SB}\" \
         xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\">{properties}</{element}></content></entry>"
    )
}

/// Returns the contents of all elements with this name.
pub(super) fn texts(answer: &Answer, name: &str) -> Vec<String> {
    let (open, close) = (format!("<{name}>"), format!("</{name}>"));
    let parts = answer.text().split(&open).skip(1);
    parts.map(|part| part.split(&close).next().unwrap().to_owned()).collect()
}

/// Returns the content of the only element with this name.
pub(super) fn text(answer: &Answer, name: &str) -> String {
    let found = texts(answer, name);
    assert_eq!(found.len(), 1, "{name}: {}", answer.text());
    found[0].clone()
}

/// Asserts the form of a refusal (ADM-50); returns its status and sub-code.
pub(super) fn refusal(answer: &Answer) -> (u16, String) {
    assert_eq!(answer.header("content-type"), Some("application/xml; charset=utf-8"), "{answer:?}");
    assert_eq!(text(answer, "Code"), answer.status.to_string());
    let detail = text(answer, "Detail");
    assert!(detail.contains("TrackingId:"), "{detail}");
    let Some(code) = detail.strip_prefix("SubCode=") else {
        // For a missing right, the words of the cloud come first (ADM-54).
        assert!(answer.status == 401 && detail.contains("laim"), "{detail}");
        return (401, "40100".to_owned());
    };
    (answer.status, code.split('.').next().unwrap().to_owned())
}

async fn put(server: &Server, path: &str, element: &str, properties: &str) -> Answer {
    server.ask(&format!("PUT /{path}?{VERSION}"), entry(element, properties)).await
}

async fn update(server: &Server, path: &str, element: &str, properties: &str) -> Answer {
    let head = format!("PUT /{path}?{VERSION}\nIf-Match: *");
    server.ask(&head, entry(element, properties)).await
}

async fn get(server: &Server, path: &str) -> Answer {
    let mark = if path.contains('?') { '&' } else { '?' };
    server.ask(&format!("GET /{path}{mark}{VERSION}"), "").await
}

const QUEUE: [(&str, &str); 16] = [
    ("LockDuration", "PT45S"),
    ("MaxSizeInMegabytes", "2048"),
    ("RequiresDuplicateDetection", "true"),
    ("RequiresSession", "true"),
    ("DefaultMessageTimeToLive", "P7DT1H2M3.5S"),
    ("DeadLetteringOnMessageExpiration", "true"),
    ("DuplicateDetectionHistoryTimeWindow", "PT30S"),
    ("MaxDeliveryCount", "7"),
    ("EnableBatchedOperations", "false"),
    ("IsAnonymousAccessible", "false"),
    ("Status", "ReceiveDisabled"),
    ("AutoDeleteOnIdle", "P1D"),
    ("EnablePartitioning", "true"),
    ("EnableExpress", "true"),
    ("UserMetadata", "a &amp; b &lt;c&gt; é"),
    ("MaxMessageSizeInKilobytes", "2048"),
];
const TOPIC: [(&str, &str); 12] = [
    ("DefaultMessageTimeToLive", "P7D"),
    ("MaxSizeInMegabytes", "2048"),
    ("RequiresDuplicateDetection", "true"),
    ("DuplicateDetectionHistoryTimeWindow", "PT30S"),
    ("EnableBatchedOperations", "false"),
    ("FilteringMessagesBeforePublishing", "true"),
    ("Status", "SendDisabled"),
    ("SupportOrdering", "false"),
    ("AutoDeleteOnIdle", "P1D"),
    ("EnablePartitioning", "true"),
    ("EnableExpress", "true"),
    ("UserMetadata", "mine"),
];
const SUBSCRIPTION: [(&str, &str); 10] = [
    ("LockDuration", "PT45S"),
    ("RequiresSession", "true"),
    ("DefaultMessageTimeToLive", "P7D"),
    ("DeadLetteringOnMessageExpiration", "true"),
    ("DeadLetteringOnFilterEvaluationExceptions", "false"),
    ("MaxDeliveryCount", "7"),
    ("EnableBatchedOperations", "false"),
    ("Status", "ReceiveDisabled"),
    ("AutoDeleteOnIdle", "P1D"),
    ("UserMetadata", "mine"),
];

/// Order of the elements of each description, including those that only the broker sets.
const ORDER: [(&str, &str); 3] = [
    (
        "QueueDescription",
        "LockDuration MaxSizeInMegabytes RequiresDuplicateDetection RequiresSession DefaultMessageTimeToLive \
         DeadLetteringOnMessageExpiration DuplicateDetectionHistoryTimeWindow MaxDeliveryCount \
         EnableBatchedOperations SizeInBytes MessageCount IsAnonymousAccessible AuthorizationRules Status CreatedAt \
         UpdatedAt AccessedAt SupportOrdering CountDetails AutoDeleteOnIdle EnablePartitioning \
         EntityAvailabilityStatus EnableExpress ForwardTo UserMetadata ForwardDeadLetteredMessagesTo \
         MaxMessageSizeInKilobytes",
    ),
    (
        "TopicDescription",
        "DefaultMessageTimeToLive MaxSizeInMegabytes RequiresDuplicateDetection \
         DuplicateDetectionHistoryTimeWindow EnableBatchedOperations SizeInBytes FilteringMessagesBeforePublishing \
         IsAnonymousAccessible AuthorizationRules Status CreatedAt UpdatedAt AccessedAt SupportOrdering CountDetails \
         SubscriptionCount AutoDeleteOnIdle EnablePartitioning EntityAvailabilityStatus \
         EnableSubscriptionPartitioning EnableExpress UserMetadata MaxMessageSizeInKilobytes",
    ),
    (
        "SubscriptionDescription",
        "LockDuration RequiresSession DefaultMessageTimeToLive DeadLetteringOnMessageExpiration \
         DeadLetteringOnFilterEvaluationExceptions MessageCount MaxDeliveryCount EnableBatchedOperations Status \
         ForwardTo CreatedAt UpdatedAt AccessedAt CountDetails ForwardDeadLetteredMessagesTo AutoDeleteOnIdle \
         EntityAvailabilityStatus UserMetadata",
    ),
];

/// Asserts that the elements of a description are in their order.
fn assert_order(answer: &Answer, element: &str) {
    let (_, order) = ORDER.iter().find(|(of, _)| *of == element).unwrap();
    let text = answer.text();
    let place = |name: &str| text.find(&format!("<{name}>")).or(text.find(&format!("<{name} ")));
    let there: Vec<(&str, usize)> =
        order.split(' ').filter_map(|name| Some((name, place(name)?))).collect();
    assert!(there.len() > 12, "{there:?}");
    assert!(there.is_sorted_by_key(|(_, place)| *place), "{there:?}");
}

fn elements(properties: &[(&str, &str)]) -> String {
    properties.iter().map(|(name, value)| format!("<{name}>{value}</{name}>")).collect()
}

/// HTP-12, HTP-14, HTP-15, HTP-16, ADM-30, ADM-34, ADM-37, ENT-31: each property that can be set is
/// returned by the creation and by a read, in any order of sending.
#[tokio::test]
async fn every_property_comes_back() {
    let server = Server::start().await;
    for (path, element, properties) in [
        ("one", "QueueDescription", &QUEUE[..]),
        ("t", "TopicDescription", &TOPIC[..]),
        ("t/subscriptions/s", "SubscriptionDescription", &SUBSCRIPTION[..]),
    ] {
        let reversed: Vec<_> = properties.iter().rev().copied().collect();
        let created = put(&server, path, element, &elements(&reversed)).await;
        assert_eq!(created.status, 201, "{}", created.text());
        for answer in [created, get(&server, path).await] {
            for (name, value) in properties {
                assert_eq!(text(&answer, name), *value, "{path} {name}");
            }
            assert_order(&answer, element);
            assert_eq!(text(&answer, "EntityAvailabilityStatus"), "Available");
            assert_eq!(text(&answer, "CreatedAt"), "2026-05-01T12:00:00Z");
            let is_subscription = element == "SubscriptionDescription";
            let accessed =
                if is_subscription { "2026-05-01T12:00:00Z" } else { "0001-01-01T00:00:00Z" };
            assert_eq!(text(&answer, "AccessedAt"), accessed, "CNT-09");
        }
    }
    server.stop().await;
}

/// ADM-31, ADM-38, ADM-34b, ADM-46, ENT-03: absent properties get their defaults, and each element
/// that clients require is present.
#[tokio::test]
async fn an_empty_description_gets_the_defaults() {
    let server = Server::start().await;
    let queue = put(&server, "d", "QueueDescription", "").await;
    let forever = "P10675199DT2H48M5.4775807S";
    for (name, value) in [
        ("LockDuration", "PT1M"),
        ("MaxSizeInMegabytes", "1024"),
        ("RequiresDuplicateDetection", "false"),
        ("RequiresSession", "false"),
        ("DefaultMessageTimeToLive", forever),
        ("DeadLetteringOnMessageExpiration", "false"),
        ("DuplicateDetectionHistoryTimeWindow", "PT10M"),
        ("MaxDeliveryCount", "10"),
        ("EnableBatchedOperations", "true"),
        ("SizeInBytes", "0"),
        ("MessageCount", "0"),
        ("IsAnonymousAccessible", "false"),
        ("Status", "Active"),
        ("SupportOrdering", "true"),
        ("AutoDeleteOnIdle", forever),
        ("EnablePartitioning", "false"),
        ("EnableExpress", "false"),
    ] {
        assert_eq!(text(&queue, name), value, "{name}");
    }
    for absent in ["ForwardTo", "ForwardDeadLetteredMessagesTo", "UserMetadata"] {
        assert_eq!(texts(&queue, absent), Vec::<String>::new());
    }
    let topic = put(
        &server,
        "t",
        "TopicDescription",
        "<MaxMessageSizeInKilobytes>0</MaxMessageSizeInKilobytes>",
    )
    .await;
    for (name, value) in [
        ("SupportOrdering", "true"),
        ("EnableSubscriptionPartitioning", "false"),
        ("SubscriptionCount", "0"),
        ("MaxMessageSizeInKilobytes", "1024"),
    ] {
        assert_eq!(text(&topic, name), value, "{name}");
    }
    let subscription = put(&server, "t/Subscriptions/s", "SubscriptionDescription", "").await;
    assert_eq!(text(&subscription, "DeadLetteringOnFilterEvaluationExceptions"), "true");
    // The id has the capitals of its sub-path, independently of the request (ADM-32).
    let rules = get(&server, "t/subscriptions/s/rules").await;
    assert!(text(&rules, "Name").contains("$Default"));
    let host = server.address;
    assert!(
        rules.text().contains(&format!(
            "<id>http://{host}/t/Subscriptions/s/Rules/$Default?{VERSION}</id>"
        )),
        "{}",
        rules.text()
    );
    server.stop().await;
}

/// ADM-32, ADM-33, ADM-35, ADM-52: the entry around a description, and the counts with the prefix
/// that clients expect.
#[tokio::test]
async fn an_entry_has_the_form_that_clients_read() {
    let server = Server::start().await;
    server.send("a").await;
    let answer = get(&server, "q?enrich=true").await;
    assert_eq!(
        answer.header("content-type"),
        Some("application/atom+xml;type=entry;charset=utf-8")
    );
    assert!(answer.header("content-length").is_some() && answer.header("etag").is_some());
    let host = server.address;
    let url = format!("http://{host}/q?{VERSION}");
    assert!(answer.text().starts_with(&format!(
        "<?xml version=\"1.0\" encoding=\"utf-8\"?><entry xmlns=\"{ATOM}\"><id>{url}</id>\
         <title type=\"text\">q</title><published>2026-05-01T12:00:00Z</published>\
         <updated>2026-05-01T12:00:00Z</updated><author><name>peeklock</name></author>\
         <link rel=\"self\" href=\"{url}\"/><content type=\"application/xml\"><QueueDescription xmlns=\"{SB}\" "
    )), "{}", answer.text());
    assert_eq!(
        text(&answer, "CountDetails xmlns:d2p1=\"http://schemas.microsoft.com/netservices/2011/06/servicebus\"")
            .split("</CountDetails>").next().unwrap(),
        "<d2p1:ActiveMessageCount>1</d2p1:ActiveMessageCount>\
         <d2p1:DeadLetterMessageCount>0</d2p1:DeadLetterMessageCount>\
         <d2p1:ScheduledMessageCount>0</d2p1:ScheduledMessageCount>\
         <d2p1:TransferDeadLetterMessageCount>0</d2p1:TransferDeadLetterMessageCount>\
         <d2p1:TransferMessageCount>0</d2p1:TransferMessageCount>"
    );
    assert_eq!(text(&answer, "MessageCount"), "1");
    server.stop().await;
}

/// HTP-12, ADM-20, ADM-21, ADM-24, ADM-31, ADM-36, ADM-51, ADM-53, ERR-03: statuses of create,
/// update, read and delete.
#[tokio::test]
async fn statuses_are_those_that_clients_expect() {
    let server = Server::start().await;
    assert_eq!(put(&server, "one", "QueueDescription", "").await.status, 201);
    server.broker.entity("one").unwrap();
    for (answer, expected) in [
        (put(&server, "ONE", "QueueDescription", "").await, (409, "40900")),
        (put(&server, "one", "TopicDescription", "").await, (409, "40900")),
        (update(&server, "absent", "QueueDescription", "").await, (404, "40400")),
        (get(&server, "absent").await, (404, "40400")),
        (get(&server, "absent/subscriptions").await, (404, "40400")),
        (
            put(&server, "absent/subscriptions/s", "SubscriptionDescription", "").await,
            (404, "40400"),
        ),
        (server.ask(&format!("DELETE /absent?{VERSION}"), "").await, (404, "40400")),
        (
            update(&server, "one", "QueueDescription", "<RequiresSession>true</RequiresSession>")
                .await,
            (400, "40000"),
        ),
        (update(&server, "one", "TopicDescription", "").await, (400, "40000")),
        (
            put(&server, "two", "QueueDescription", "<ForwardTo>absent</ForwardTo>").await,
            (400, "40000"),
        ),
        (
            update(&server, "one", "QueueDescription", "<ForwardTo>absent</ForwardTo>").await,
            (400, "40000"),
        ),
        (
            put(&server, "two", "QueueDescription", "<ForwardTo>two</ForwardTo>").await,
            (400, "40000"),
        ),
        (
            put(
                &server,
                "two",
                "QueueDescription",
                "<ForwardTo>one</ForwardTo><RequiresSession>true</RequiresSession>",
            )
            .await,
            (400, "40000"),
        ),
        (
            put(&server, "two", "QueueDescription", "<LockDuration>PT6M</LockDuration>").await,
            (400, "40000"),
        ),
        (
            put(&server, "two", "QueueDescription", "<MaxDeliveryCount>-1</MaxDeliveryCount>")
                .await,
            (400, "40000"),
        ),
        (
            put(&server, "two", "QueueDescription", "<Status>Sleeping</Status>").await,
            (400, "40000"),
        ),
        (put(&server, "a%23b", "QueueDescription", "").await, (400, "40000")),
        (server.ask(&format!("POST /one?{VERSION}"), "").await, (405, "40500")),
        (server.ask(&format!("PUT /$Resources/queues?{VERSION}"), "").await, (405, "40500")),
        (
            server
                .ask(
                    &format!("PUT /one?{VERSION}\nIf-Match: \"2020-01-01T00:00:00Z\""),
                    entry("QueueDescription", ""),
                )
                .await,
            (409, "40901"),
        ),
    ] {
        assert_eq!(refusal(&answer), (expected.0, expected.1.to_owned()), "{}", answer.text());
    }
    let wrong = put(&server, "two", "QueueDescription", "<LockDuration>soon</LockDuration>").await;
    assert!(text(&wrong, "Detail").contains("LockDuration is `soon`"), "{}", wrong.text());
    assert_eq!(get(&server, "two").await.status, 404, "nothing was created");
    let changed =
        update(&server, "one", "QueueDescription", "<MaxDeliveryCount>3</MaxDeliveryCount>").await;
    assert_eq!((changed.status, text(&changed, "MaxDeliveryCount").as_str()), (200, "3"));
    let deleted = server.ask(&format!("DELETE /one?{VERSION}"), "").await;
    assert_eq!((deleted.status, deleted.header("content-length")), (200, Some("0")));
    assert_eq!(get(&server, "one").await.status, 404);
    server.stop().await;
}

/// ENT-17, ADM-31, HTP-17: an update sets absent properties to their defaults, and clears absent
/// destinations and metadata. Elements that are not properties of the broker are returned; a new
/// one replaces an old one.
#[tokio::test]
async fn an_update_replaces_the_specified_properties() {
    let server = Server::start().await;
    let properties = "<LockDuration>PT30S</LockDuration><ForwardTo>q</ForwardTo><ForwardDeadLetteredMessagesTo>q</ForwardDeadLetteredMessagesTo>\
        <UserMetadata>mine</UserMetadata><Colour>red</Colour>\
        <x:Shape xmlns:x=\"urn:x\" x:of=\"it\"><x:Part>1 &amp; 2</x:Part></x:Shape>";
    let created = put(&server, "u", "QueueDescription", properties).await;
    let host = server.address;
    assert_eq!(text(&created, "ForwardTo"), format!("sb://{host}/q"));
    for kept in [
        format!("<Colour xmlns=\"{SB}\">red</Colour>"),
        "<Shape xmlns=\"urn:x\" xmlns:a0=\"urn:x\" a0:of=\"it\"><Part xmlns=\"urn:x\">1 &amp; 2</Part></Shape>".to_owned(),
    ] {
        assert!(created.text().contains(&kept), "{}", created.text());
    }
    let updated = update(&server, "u", "QueueDescription", "<Colour>blue</Colour>").await;
    assert_eq!(updated.status, 200, "{}", updated.text());
    assert_eq!(text(&updated, "LockDuration"), "PT1M");
    for cleared in ["ForwardTo", "ForwardDeadLetteredMessagesTo", "UserMetadata"] {
        assert_eq!(texts(&updated, cleared), Vec::<String>::new(), "{cleared}");
    }
    assert!(updated.text().contains(">blue</Colour>") && !updated.text().contains("red"));
    assert!(updated.text().contains("1 &amp; 2"));
    // An update over the JSON API, which does not show these elements, keeps them.
    let patched = server.ask("PATCH /$api/v1/queues/u", "{\"maxDeliveryCount\":4}").await;
    assert_eq!(patched.status, 200);
    assert!(get(&server, "u").await.text().contains(">blue</Colour>"));
    // The refusal names the limit.
    let large = format!("<Colour>{}</Colour>", "x".repeat(9_000));
    let refused = update(&server, "u", "QueueDescription", &large).await;
    assert_eq!(refused.status, 400);
    assert!(refused.text().contains("the limit is 8192"), "{}", refused.text());
    server.stop().await;
}

/// ADM-31: for each kind of entity, an update resets omitted properties. Properties that are fixed
/// at creation, or unknown to older clients, keep their values.
#[tokio::test]
async fn an_absent_element_of_an_update_means_the_default() {
    let server = Server::start().await;
    for (path, element, properties) in [
        ("one", "QueueDescription", &QUEUE[..]),
        ("t", "TopicDescription", &TOPIC[..]),
        ("t/subscriptions/s", "SubscriptionDescription", &SUBSCRIPTION[..]),
    ] {
        let created = put(&server, path, element, &elements(properties)).await;
        assert_eq!(created.status, 201, "{}", created.text());
        let plain = put(&server, &format!("{path}-plain"), element, "").await;
        assert_eq!(plain.status, 201, "{}", plain.text());
        let updated = update(&server, path, element, "").await;
        assert_eq!(updated.status, 200, "{}", updated.text());
        for (name, value) in properties {
            let stays = [
                "RequiresSession",
                "RequiresDuplicateDetection",
                "EnablePartitioning",
                "MaxMessageSizeInKilobytes",
                "IsAnonymousAccessible",
                "FilteringMessagesBeforePublishing",
            ];
            let expected =
                if stays.contains(name) { vec![(*value).to_owned()] } else { texts(&plain, name) };
            assert_eq!(texts(&updated, name), expected, "{path} {name}");
        }
    }
    server.stop().await;
}

/// ENT-16, ERR-10: a change of a fixed property is refused with the words that clients expect.
#[tokio::test]
async fn changes_of_fixed_properties_are_refused_as_in_the_cloud() {
    let server = Server::start().await;
    put(&server, "t", "TopicDescription", "").await;
    put(&server, "t/subscriptions/s", "SubscriptionDescription", "").await;
    let sessions = "<RequiresSession>true</RequiresSession>";
    for (path, element, properties, words) in [
        (
            "q",
            "QueueDescription",
            sessions,
            "The value for the RequiresSession property of an existing Queue cannot be changed.",
        ),
        (
            "t/subscriptions/s",
            "SubscriptionDescription",
            sessions,
            "The value for the RequiresSession property of an existing Subscription cannot be changed.",
        ),
        (
            "t",
            "TopicDescription",
            "<EnablePartitioning>true</EnablePartitioning>",
            "Partitioning cannot be changed for Topic. ",
        ),
        (
            "q",
            "QueueDescription",
            "<DuplicateDetectionHistoryTimeWindow>PT1S</DuplicateDetectionHistoryTimeWindow>",
            "The value supplied must be between 00:00:20 and 7.00:00:00.",
        ),
        (
            "q",
            "QueueDescription",
            "<MaxMessageSizeInKilobytes>1</MaxMessageSizeInKilobytes>",
            "value for 'MaxMessageSizeInKilobytes' must be between 1024",
        ),
    ] {
        let refused = update(&server, path, element, properties).await;
        assert_eq!(refused.status, 400);
        assert!(refused.text().contains(words), "{}", refused.text());
    }
    let refused = put(&server, "a%26b", "QueueDescription", "").await;
    let words = "Entity segments can contain only letters, numbers, periods (.), hyphens (-), and underscores (_)";
    assert!(refused.text().contains(words), "{}", refused.text());
    let exists = put(&server, "q", "QueueDescription", "").await;
    assert!(
        text(&exists, "Detail")
            .starts_with("SubCode=40900. The messaging entity 'q' already exists.")
    );
    server.stop().await;
}

/// ADM-36: a destination is returned as it was given, until it changes. An update that keeps it
/// does not check whether the destination still exists (FWD-02).
#[tokio::test]
async fn a_destination_goes_back_as_it_was_given() {
    let server = Server::start().await;
    let host = server.address;
    let one = |name: &str, url: &str| format!("<{name}>{url}</{name}>");
    for (place, given) in
        ["https://other.example/Q", "sb://x.servicebus.windows.net/q", "http://h:1/q/"]
            .into_iter()
            .enumerate()
    {
        let path = format!("f{place}");
        let properties = one("ForwardTo", given) + &one("ForwardDeadLetteredMessagesTo", given);
        let created = put(&server, &path, "QueueDescription", &properties).await;
        for answer in [created, get(&server, &path).await] {
            assert_eq!(text(&answer, "ForwardTo"), given);
            assert_eq!(text(&answer, "ForwardDeadLetteredMessagesTo"), given);
            assert!(!answer.text().contains("urn:peeklock"), "{}", answer.text());
        }
        let updated = update(&server, &path, "QueueDescription", &one("ForwardTo", "q")).await;
        assert_eq!(text(&updated, "ForwardTo"), format!("sb://{host}/q"));
        assert_eq!(texts(&updated, "ForwardDeadLetteredMessagesTo"), Vec::<String>::new());
    }
    put(&server, "later", "QueueDescription", "").await;
    let given = one("ForwardTo", "https://h/later");
    assert_eq!(put(&server, "source", "QueueDescription", &given).await.status, 201);
    let patched = "{\"forwardTo\":\"q\"}";
    assert_eq!(server.ask("PATCH /$api/v1/queues/source", patched).await.status, 200);
    assert_eq!(text(&get(&server, "source").await, "ForwardTo"), format!("sb://{host}/q"));
    assert_eq!(update(&server, "source", "QueueDescription", &given).await.status, 200);
    server.ask(&format!("DELETE /later?{VERSION}"), "").await;
    let disabled = given.clone() + &one("Status", "Disabled");
    let updated = update(&server, "source", "QueueDescription", &disabled).await;
    assert_eq!((updated.status, text(&updated, "Status").as_str()), (200, "Disabled"));
    server.stop().await;
}

/// ADM-21, ADM-47: a topic has no dead-letter queue, and older versions do not get message sizes.
#[tokio::test]
async fn topics_have_no_dead_letter_queue_and_old_versions_no_message_size() {
    let server = Server::start().await;
    put(&server, "t", "TopicDescription", "").await;
    let refused = get(&server, "t/$DeadLetterQueue").await;
    assert_eq!(refusal(&refused), (400, "40000".to_owned()), "{}", refused.text());
    assert_eq!(get(&server, "absent/$DeadLetterQueue").await.status, 404);
    for path in ["q", "t"] {
        for (version, count) in [("2017-04", 0), ("2021-05", 1), ("2024-05", 1)] {
            let told = server.ask(&format!("GET /{path}?api-version={version}"), "").await;
            assert_eq!(texts(&told, "MaxMessageSizeInKilobytes").len(), count, "{path} {version}");
        }
    }
    server.stop().await;
}

/// ADM-36, ADM-34, ADM-03: destinations are accepted in all forms of URL, unlimited durations in
/// both forms, and versions of the API as clients name them.
#[tokio::test]
async fn forms_of_other_clients_are_read() {
    let server = Server::start().await;
    let host = server.address;
    for (place, form) in [
        format!("sb://{host}/q"),
        "https://other.example/q".to_owned(),
        "sb://other.example:5300/Q/".to_owned(),
        // A URL that was read, after another URL.
        format!("https://localhost/sb://{host}/q"),
        "q".to_owned(),
    ]
    .iter()
    .enumerate()
    {
        let properties = format!(
            "<DefaultMessageTimeToLive>P10675199DT2H48M5.477S</DefaultMessageTimeToLive><ForwardTo>{form}</ForwardTo>"
        );
        let created = put(&server, &format!("f{place}"), "QueueDescription", &properties).await;
        assert_eq!(created.status, 201, "{form}: {}", created.text());
        let given = if form == "q" { format!("sb://{host}/q") } else { form.clone() };
        let given = given.strip_prefix("https://localhost/").unwrap_or(&given);
        assert_eq!(text(&created, "ForwardTo"), given);
        assert_eq!(text(&created, "DefaultMessageTimeToLive"), "P10675199DT2H48M5.4775807S");
    }
    // Swapped prefixes, a declaration, and a byte order mark (ADM-30).
    let prefixed = format!(
        "\u{feff}<?xml version='1.0' encoding='utf-8'?><a:entry xmlns:a=\"{ATOM}\" xmlns=\"{SB}\"><a:content type=\"application/xml\">\
         <QueueDescription><MaxDeliveryCount>4</MaxDeliveryCount></QueueDescription></a:content></a:entry>"
    );
    let head = format!(
        "PUT /prefixed/?&{VERSION}&\nContent-Type: application/atom+xml;type=entry;charset=utf-8"
    );
    let created = server.ask(&head, prefixed).await;
    assert_eq!(
        (created.status, text(&created, "MaxDeliveryCount").as_str()),
        (201, "4"),
        "{}",
        created.text()
    );
    // Without a version, and with the version parameter twice (ADM-03, ADM-04).
    for query in ["", "?api-version=2017-04", "?$skip=0&%3Fapi-version=2024-05"] {
        assert_eq!(server.ask(&format!("GET /prefixed{query}"), "").await.status, 200, "{query}");
    }
    server.stop().await;
}

/// HTP-13, ADM-23, ENT-30: 1,000 queues in pages, in order, with exactly the links that clients
/// count.
#[tokio::test]
async fn a_thousand_queues_come_in_pages() {
    let server = Server::start().await;
    server.broker.delete_entity("q").await.unwrap();
    for number in (0..1_000).rev() {
        let name = if number % 2 == 0 { format!("n{number:03}") } else { format!("N{number:03}") };
        server.broker.create_queue(&name, QueueUpdate::default()).await.unwrap();
    }
    let mut seen = Vec::new();
    let mut next = Some(format!("/$Resources/queues?{VERSION}&%24skip=0&%24top=100"));
    let mut client = server.connect().await;
    while let Some(url) = next {
        client.write(&server.request(&format!("GET {url}"), "")).await;
        let page = client.read().await.unwrap();
        assert_eq!(
            page.header("content-type"),
            Some("application/atom+xml;type=feed;charset=utf-8")
        );
        let (head, _) = page.text().split_once("<entry>").unwrap();
        let links: Vec<&str> = head.split("<link ").skip(1).collect();
        assert!(links[0].starts_with("rel=\"self\""));
        let titles = page.text().split("<title type=\"text\">").skip(2);
        let titles: Vec<&str> = titles.map(|it| it.split('<').next().unwrap()).collect();
        assert_eq!(titles.len(), 100);
        seen.extend(titles.into_iter().map(str::to_owned));
        next = links.get(1).map(|link| {
            assert!(link.starts_with("rel=\"next\""));
            let href = link.split("href=\"").nth(1).unwrap().split('"').next().unwrap();
            let base = format!("http://{}", server.address);
            href.strip_prefix(&base).unwrap().replace("&amp;", "&")
        });
    }
    let expected: Vec<String> = (0..1_000)
        .map(
            |number| {
                if number % 2 == 0 { format!("n{number:03}") } else { format!("N{number:03}") }
            },
        )
        .collect();
    assert_eq!(seen, expected);
    for (query, count) in [
        ("$skip=999", 1),
        ("$skip=1000", 0),
        ("$skip=990", 10),
        ("$top=500", 100),
        ("$top=3&$skip=2", 3),
        ("$skip=99999999999999999999", 0),
    ] {
        let page = get(&server, &format!("$resources/QUEUES?{query}")).await;
        if query.contains("99999999999") {
            assert_eq!(page.status, 400);
            continue;
        }
        assert_eq!(page.text().matches("<entry>").count(), count, "{query}");
    }
    assert_eq!(refusal(&get(&server, "$Resources/queues?$top=many").await).0, 400);
    server.stop().await;
}

/// HTP-13, ADM-22, ADM-33: topics, subscriptions and rules are listed, and deleted with their
/// topic.
#[tokio::test]
async fn lists_contain_the_resources_below_an_address() {
    let server = Server::start().await;
    assert_eq!(put(&server, "eu/t", "TopicDescription", "").await.status, 201);
    for name in ["b", "a"] {
        let path = format!("eu/t/subscriptions/{name}");
        assert_eq!(put(&server, &path, "SubscriptionDescription", "").await.status, 201);
    }
    let counted = |answer: &Answer| answer.text().matches("<entry>").count();
    let topics = get(&server, "$Resources/topics").await;
    assert_eq!((counted(&topics), text(&topics, "SubscriptionCount").as_str()), (1, "2"));
    let below = get(&server, "eu%2Ft/Subscriptions").await;
    assert_eq!(counted(&below), 2);
    assert!(below.text().find(">a</title>").unwrap() < below.text().find(">b</title>").unwrap());
    assert_eq!(counted(&get(&server, "eu/t/subscriptions/a/rules").await), 1);
    // Each spelling of the address of a subscription works for each operation.
    for path in ["eu%2Ft%2Fsubscriptions%2Fa", "eu/t%2fSubscriptions/a"] {
        assert!(get(&server, path).await.text().contains("<SubscriptionDescription"), "{path}");
        let updated = update(&server, path, "SubscriptionDescription", "").await;
        assert_eq!(updated.status, 200, "{path}: {}", updated.text());
        assert_eq!(update(&server, path, "TopicDescription", "").await.status, 400, "{path}");
        assert_eq!(put(&server, path, "SubscriptionDescription", "").await.status, 409, "{path}");
    }
    assert_eq!(server.ask(&format!("DELETE /eu/t?{VERSION}"), "").await.status, 200);
    assert_eq!(get(&server, "eu/t/subscriptions/a").await.status, 404);
    assert_eq!(counted(&get(&server, "$Resources/topics").await), 0);
    server.stop().await;
}

/// HTP-13, ADM-45, ADM-05, CNT-10: the namespace, and its health.
#[tokio::test]
async fn the_namespace_is_returned() {
    let mut plan = Plan::new();
    plan.settings = Settings::new("shop", Tier::Standard);
    let server = plan.start().await;
    let answer = get(&server, "$namespaceinfo").await;
    for (name, value) in [
        ("MessagingSKU", "Standard"),
        ("Name", "shop"),
        ("NamespaceType", "Messaging"),
        ("CreatedTime", "2026-05-01T12:00:00Z"),
    ] {
        assert_eq!(text(&answer, name), value, "{name}");
    }
    assert_eq!(texts(&answer, "MessagingUnits"), Vec::<String>::new(), "of Premium alone");
    assert_eq!(server.ask("GET /health", "").await.status, 200);
    server.stop().await;
}

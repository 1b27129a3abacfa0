//! Frames of topics, subscriptions and rules.

use super::*;
use crate::operation::{RuleForm, SubscriptionProperties, TopicProperties};

/// Like `golden.txt`, for these kinds.
const GOLDEN: &str = include_str!("../golden_topics.txt");

fn read<T: serde::de::DeserializeOwned>(json: &str) -> T {
    serde_json::from_str(json).unwrap()
}

fn rule() -> RuleForm {
    read(
        r#"{"name":"dear","filter":{"type":"sql","sql":"price > @limit",
        "parameters":{"@limit":{"type":"i32","value":100}}},"action":{"sql":"SET priority = 'high'"},
        "createdAt":"2026-05-01T12:00:00Z"}"#,
    )
}

fn correlation() -> RuleForm {
    read(
        r#"{"name":"coffee","filter":{"type":"correlation","subject":"coffee",
        "properties":{"region":"eu"}}}"#,
    )
}

/// Returns one request of each kind.
pub(super) fn operations() -> Vec<Operation> {
    let path = || "orders/Subscriptions/eu".to_owned();
    let topic = || "orders".to_owned();
    let properties: TopicProperties = read(r#"{"status":"SendDisabled","userMetadata":null}"#);
    let of_subscription: SubscriptionProperties =
        read(r#"{"lockDuration":"PT30S","maxDeliveryCount":3,"forwardTo":null}"#);
    let operations = [
        ManageOperation::CreateTopic(CreateTopic { path: topic(), properties: properties.clone() }),
        ManageOperation::GetTopic(PathOnly { path: topic() }),
        ManageOperation::UpdateTopic(UpdateTopic {
            path: topic(),
            properties,
            version: Some(at(2)),
        }),
        ManageOperation::DeleteTopic(PathOnly { path: topic() }),
        ManageOperation::ListTopics(WholeList { skip: 0, top: Some(10) }),
        ManageOperation::CreateSubscription(CreateSubscription {
            topic: topic(),
            name: "eu".into(),
            properties: of_subscription.clone(),
            rules: vec![rule(), correlation()],
        }),
        ManageOperation::GetSubscription(PathOnly { path: path() }),
        ManageOperation::UpdateSubscription(UpdateSubscription {
            path: path(),
            properties: of_subscription,
            version: None,
        }),
        ManageOperation::DeleteSubscription(PathOnly { path: path() }),
        ManageOperation::ListSubscriptions(ListOf { path: topic(), skip: 5, top: None }),
        ManageOperation::CreateRule(SetRule { path: path(), rule: rule() }),
        ManageOperation::GetRule(NamedRule { path: path(), name: "dear".into() }),
        ManageOperation::UpdateRule(SetRule { path: path(), rule: correlation() }),
        ManageOperation::DeleteRule(NamedRule { path: path(), name: "$Default".into() }),
        ManageOperation::ListRules(ListOf { path: path(), skip: 0, top: Some(10) }),
        ManageOperation::Explain(Explain { path: path(), message: outgoing(&message()) }),
    ];
    operations.map(|it| Operation::Manage(Box::new(it))).into()
}

/// Returns one notice of each kind.
pub(super) fn notices() -> Vec<Notice> {
    let topic: TopicView = read(
        r#"{"path":"orders","maxSizeInMegabytes":1024,"requiresDuplicateDetection":false,
        "duplicateDetectionHistoryTimeWindow":"PT10M",
        "defaultMessageTimeToLive":"P10675199DT2H48M5.4775807S","enableBatchedOperations":true,
        "status":"Active","autoDeleteOnIdle":"P10675199DT2H48M5.4775807S","enablePartitioning":false,
        "enableExpress":false,"supportOrdering":true,"maxMessageSizeInKilobytes":1024,
        "userMetadata":null,"runtime":{"subscriptionCount":2,"scheduledMessageCount":1,
        "transferMessageCount":2,"transferDeadLetterMessageCount":3,"sizeInBytes":99,
        "lastSequenceNumber":7,"createdAt":"2026-05-01T12:00:00Z",
        "updatedAt":"2026-05-01T12:00:00Z","accessedAt":"0001-01-01T00:00:00Z"}}"#,
    );
    let subscription: SubscriptionView = read(
        r#"{"path":"orders/Subscriptions/eu","topic":"orders","name":"eu","lockDuration":"PT1M",
        "requiresSession":false,"defaultMessageTimeToLive":"P10675199DT2H48M5.4775807S",
        "deadLetteringOnMessageExpiration":false,
        "enableDeadLetteringOnFilterEvaluationExceptions":true,"maxDeliveryCount":10,
        "enableBatchedOperations":true,"status":"Active","forwardTo":"archive",
        "forwardDeadLetteredMessagesTo":null,"autoDeleteOnIdle":"P10675199DT2H48M5.4775807S",
        "userMetadata":null,"runtime":{"activeMessageCount":1,"deferredMessageCount":0,
        "deadLetterMessageCount":0,"transferMessageCount":0,"transferDeadLetterMessageCount":0,
        "totalMessageCount":1,"sizeInBytes":99,"lastSequenceNumber":7,
        "createdAt":"2026-05-01T12:00:00Z","updatedAt":"2026-05-01T12:00:00Z",
        "accessedAt":"0001-01-01T00:00:00Z"}}"#,
    );
    let explained: Explained = read(
        r#"{"rules":[{"rule":"dear","verdict":"matches","tests":[{"text":"price > @limit",
        "operands":["120","100"],"result":true}],"reads":[{"name":"price","value":"120"}],
        "changes":["SET priority = 'high'"]},{"rule":"eu","verdict":"unknown","tests":
        [{"text":"region = 'eu'","operands":["NULL","'eu'"],"result":null}],
        "reads":[{"name":"region","value":null}],"changes":[]},{"rule":"odd",
        "verdict":"filterFailed","error":"division by zero","tests":[],"reads":[],"changes":[]}]}"#,
    );
    vec![
        Notice::Topic(Box::new(topic.clone())),
        Notice::Topics(TopicList { topics: vec![topic] }),
        Notice::Subscription(Box::new(subscription.clone())),
        Notice::Subscriptions(SubscriptionList { subscriptions: vec![subscription] }),
        Notice::Rule(Box::new(rule())),
        Notice::Rules(RuleList { rules: vec![rule(), correlation()] }),
        Notice::Explained(explained),
    ]
}

/// Frames must not differ from the released ones.
#[test]
fn frames_of_topics_are_written_as_the_golden_ones() {
    let now = golden_of(operations(), notices());
    for (now, golden) in now.lines().zip(GOLDEN.lines()) {
        assert_eq!(now, golden);
    }
    assert_eq!(now.lines().count(), GOLDEN.lines().count(), "{now}");
}

/// A truncated frame yields no request that was incomplete.
#[test]
fn every_truncation_of_a_frame_of_topics_is_an_error() {
    assert_no_part_is_carried_out(&operations());
}

/// Only a request with an unknown property is refused; its neighbours are carried out.
#[test]
fn a_misspelt_rule_property_is_refused() {
    let frame = Bytes::from(
        r#"{"requests":[{"id":1,"createRule":{"path":"a/Subscriptions/b","rule":{"name":"r",
        "filtre":{"type":"true"}}}},{"id":2,"getTopic":{"path":"a"}},
        {"id":3,"createSubscription":{"topic":"a","name":"b","properties":{"lockduration":"PT1M"}}}]}"#,
    );
    let frame = ClientFrame::decode(Encoding::Json, &frame).unwrap();
    let read: Vec<bool> = frame.requests.iter().map(Result::is_ok).collect();
    assert_eq!(read, [false, true, false]);
}

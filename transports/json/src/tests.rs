use peeklock_core::message::Value;
use peeklock_core::rule::sql::Parameters;
use peeklock_core::rule::{CorrelationFilter, Filter, RuleDescription, SqlText};
use peeklock_core::time::Timestamp;

use super::*;

const AT: Timestamp = Timestamp::from_unix_ms(1_800_000_000_000);

/// A rule and the text it is.
#[track_caller]
fn check(rule: RuleDescription, text: &str) {
    let written = serde_json::to_string(&RuleForm::from(&rule)).unwrap();
    assert_eq!(written, text);
    let read: RuleForm = serde_json::from_str(text).unwrap();
    assert_eq!(RuleDescription::try_from(&read).unwrap(), rule);
}

/// TOP-14, TOP-15, TOP-18, SQL-14
#[test]
fn rules_come_back_as_they_were() {
    check(
        RuleDescription::default_rule(AT),
        r#"{"name":"$Default","filter":{"type":"true"},"createdAt":"2027-01-15T08:00:00Z"}"#,
    );
    check(
        RuleDescription::new("none", Filter::False, Timestamp::NONE),
        r#"{"name":"none","filter":{"type":"false"}}"#,
    );
    let parameters = Parameters::new().with("@limit", Value::I32(7)).with("who", "ann");
    let sql = SqlText { text: "price > @limit".into(), parameters };
    check(
        RuleDescription::new("dear", Filter::Sql(sql), Timestamp::NONE)
            .with_action(SqlText::new("SET a = 1")),
        concat!(
            r#"{"name":"dear","filter":{"type":"sql","sql":"price > @limit","parameters":"#,
            r#"{"@limit":{"type":"i32","value":7},"@who":"ann"}},"action":{"sql":"SET a = 1"}}"#,
        ),
    );
    let filter = CorrelationFilter { subject: Some("order".into()), ..Default::default() };
    let filter = filter.and_property("region", "eu").and_property("paid", true);
    check(
        RuleDescription::new("eu", Filter::Correlation(filter), Timestamp::NONE),
        concat!(
            r#"{"name":"eu","filter":{"type":"correlation","subject":"order","#,
            r#""properties":{"region":"eu","paid":true}}}"#,
        ),
    );
}

/// A rule without a filter selects everything.
#[test]
fn a_filter_may_be_left_out() {
    let form: RuleForm = serde_json::from_str(r#"{"name":"all"}"#).unwrap();
    assert_eq!(form.to_description().unwrap().filter, Filter::True);
}

#[track_caller]
fn refused(text: &str, part: &str) {
    let error = match serde_json::from_str::<RuleForm>(text) {
        Err(error) => error.to_string(),
        Ok(form) => form.to_description().unwrap_err().detail().to_owned(),
    };
    assert!(error.contains(part), "{text}: {error}");
}

/// What belongs to another type, or is misspelt, is not ignored.
#[test]
fn properties_of_another_filter_are_refused() {
    refused(r#"{"name":"a","filter":{"type":"sql"}}"#, "no `sql`");
    refused(r#"{"name":"a","filter":{"type":"sql","sql":"1=1","subject":"x"}}"#, "only");
    refused(r#"{"name":"a","filter":{"type":"correlation","sql":"1=1"}}"#, "neither");
    refused(r#"{"name":"a","filter":{"type":"true","subject":"x"}}"#, "no other");
    refused(r#"{"name":"a","filter":{"type":"true","label":"x"}}"#, "unknown field");
    refused(r#"{"name":"a","filter":{"type":"like"}}"#, "unknown variant");
    refused(r#"{"name":"a","filter":{}}"#, "missing field");
    refused(r#"{"filter":{"type":"true"}}"#, "no name");
    let form: RuleForm = serde_json::from_str(r#"{"name":"a"}"#).unwrap();
    assert!(form.clone().named("A").is_ok());
    assert!(form.named("b").is_err());
}

/// ENT-17: what is not named stays, what is named null is cleared.
#[test]
fn updates_tell_absent_from_null() {
    let keep: SubscriptionProperties = serde_json::from_str("{}").unwrap();
    let clear: SubscriptionProperties = serde_json::from_str(r#"{"forwardTo":null}"#).unwrap();
    assert_ne!(keep, clear);
    assert_eq!(
        serde_json::to_string(&clear).unwrap(),
        r#"{"forwardTo":null}"#,
        "a clear is written as one"
    );
    let topic: TopicProperties = serde_json::from_str(r#"{"userMetadata":null}"#).unwrap();
    assert_eq!(topic, TopicProperties::default().replacing());
}

/// ENT-21, ENT-22: the names of statuses are known; which ones an entity has is the broker's to say.
#[test]
fn unknown_statuses_and_durations_are_refused() {
    for text in [r#"{"status":"Asleep"}"#, r#"{"defaultMessageTimeToLive":"soon"}"#] {
        let topic: TopicProperties = serde_json::from_str(text).unwrap();
        assert!(topic.to_update().is_err(), "{text}");
        let subscription: SubscriptionProperties = serde_json::from_str(text).unwrap();
        assert!(subscription.to_update().is_err(), "{text}");
    }
}

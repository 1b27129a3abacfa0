//! Topics: rules over AMQP, except changing and explaining them; everything else in this process.

use async_trait::async_trait;
use peeklock_amqp::codec::value::{Map, Raw};
use peeklock_amqp_testing::client::request::{map, value};
use peeklock_core::command::{DescribedSubscription, DescribedTopic};
use peeklock_core::description::{SubscriptionUpdate, TopicUpdate};
use peeklock_core::message::{Message, Value};
use peeklock_core::rule::{CorrelationFilter, Explanation, Filter, RuleDescription, SqlText};
use peeklock_core::time::Timestamp;

use super::Amqp;
use super::in_process::Row;
use super::manage::int;
use super::message::absent;
use crate::subject::{Answer, Topics};

/// Descriptors of filters and actions (AMQP-87).
const SQL_ACTION: u64 = 0x0137_0000_0006;
const SQL_FILTER: u64 = 0x0013_7000_0006;
const TRUE_FILTER: u64 = 0x0013_7000_0007;
const FALSE_FILTER: u64 = 0x0013_7000_0008;
const CORRELATION_FILTER: u64 = 0x0013_7000_0009;

/// A rule description for adding a rule (AMQP-86). A filter that is true or false is written as
/// SQL.
fn described(rule: &RuleDescription) -> Vec<u8> {
    let sql = |text: &str| map(&[("expression", value(text))]);
    let filter = match &rule.filter {
        Filter::True => ("sql-filter", sql("1=1")),
        Filter::False => ("sql-filter", sql("1=0")),
        Filter::Sql(text) => ("sql-filter", sql(&text.text)),
        Filter::Correlation(filter) => ("correlation-filter", correlation(filter)),
    };
    let mut entries = vec![filter];
    entries.extend(rule.action.as_ref().map(|action| ("sql-rule-action", sql(&action.text))));
    map(&entries)
}

fn correlation(filter: &CorrelationFilter) -> Vec<u8> {
    let texts = [
        ("correlation-id", &filter.correlation_id),
        ("message-id", &filter.message_id),
        ("to", &filter.to),
        ("reply-to", &filter.reply_to),
        ("label", &filter.subject),
        ("session-id", &filter.session_id),
        ("reply-to-session-id", &filter.reply_to_session_id),
        ("content-type", &filter.content_type),
    ];
    let text = |(key, text): (&'static str, &Option<Box<str>>)| {
        text.as_ref().map(|text| (key, value(text.to_string())))
    };
    let mut entries: Vec<(&str, Vec<u8>)> = texts.into_iter().filter_map(text).collect();
    let properties: Vec<(&str, Vec<u8>)> =
        filter.properties.iter().map(|(key, one)| (&**key, value(one.clone()))).collect();
    entries.push(("properties", map(&properties)));
    map(&entries)
}

/// A described value: its descriptor and its items.
fn taken_apart(raw: &Raw) -> (u64, Vec<Raw>) {
    let (descriptor, list) = raw.described().unwrap();
    let Value::U64(descriptor) = decoded(&descriptor) else { panic!("{descriptor:?}") };
    (descriptor, list.raw_items().unwrap().collect())
}

fn decoded(raw: &Raw) -> Value {
    Value::decode(raw.as_bytes()).unwrap()
}

fn text(raw: &Raw) -> Option<Box<str>> {
    match decoded(raw) {
        Value::String(text) => Some(text.into()),
        Value::Null => None,
        other => panic!("{other:?} is no text"),
    }
}

/// A rule as it is listed.
fn rule(map: &Map) -> RuleDescription {
    let (_, items) = taken_apart(&map.get("rule-description").unwrap());
    let [filter, action, name, created_at] = &items[..] else { panic!("{items:?}") };
    let filter = match taken_apart(filter) {
        (SQL_FILTER, items) => Filter::Sql(SqlText::new(text(&items[0]).unwrap())),
        (TRUE_FILTER, _) => Filter::True,
        (FALSE_FILTER, _) => Filter::False,
        (CORRELATION_FILTER, items) => Filter::Correlation(correlated(&items)),
        other => panic!("{other:?} is no filter"),
    };
    let Value::Timestamp(created_at) = decoded(created_at) else { panic!("{created_at:?}") };
    let created_at = Timestamp::from_unix_ms(created_at);
    let rule = RuleDescription::new(text(name).unwrap(), filter, created_at);
    match taken_apart(action) {
        (SQL_ACTION, items) => rule.with_action(SqlText::new(text(&items[0]).unwrap())),
        _ => rule,
    }
}

fn correlated(items: &[Raw]) -> CorrelationFilter {
    let properties = Map::from_raw(items[8].clone()).unwrap();
    let property = |(key, one): (Raw, Raw)| (text(&key).unwrap(), decoded(&one));
    CorrelationFilter {
        correlation_id: text(&items[0]),
        message_id: text(&items[1]),
        to: text(&items[2]),
        reply_to: text(&items[3]),
        subject: text(&items[4]),
        session_id: text(&items[5]),
        reply_to_session_id: text(&items[6]),
        content_type: text(&items[7]),
        properties: properties.entries().map(property).collect(),
    }
}

#[async_trait(?Send)]
impl Topics for Amqp {
    async fn create_topic_with(
        &self,
        path: &str,
        properties: TopicUpdate,
    ) -> Answer<DescribedTopic> {
        self.in_process.by(Row::Entities).create_topic_with(path, properties).await
    }

    async fn topic(&self, path: &str) -> Answer<DescribedTopic> {
        self.in_process.by(Row::Entities).topic(path).await
    }

    async fn update_topic_of(
        &self,
        path: &str,
        properties: TopicUpdate,
        read_at: Option<Timestamp>,
    ) -> Answer<DescribedTopic> {
        self.in_process.by(Row::Entities).update_topic_of(path, properties, read_at).await
    }

    async fn delete_topic(&self, path: &str) -> Answer<()> {
        self.in_process.by(Row::Entities).delete_topic(path).await
    }

    async fn topic_paths(&self, skip: usize, top: usize) -> Answer<Vec<String>> {
        self.in_process.by(Row::Entities).topic_paths(skip, top).await
    }

    async fn create_subscription_with(
        &self,
        topic: &str,
        name: &str,
        properties: SubscriptionUpdate,
        rules: Vec<RuleDescription>,
    ) -> Answer<DescribedSubscription> {
        self.in_process
            .by(Row::Entities)
            .create_subscription_with(topic, name, properties, rules)
            .await
    }

    async fn subscription(&self, path: &str) -> Answer<DescribedSubscription> {
        self.in_process.by(Row::Entities).subscription(path).await
    }

    async fn update_subscription_of(
        &self,
        path: &str,
        properties: SubscriptionUpdate,
        read_at: Option<Timestamp>,
    ) -> Answer<DescribedSubscription> {
        self.in_process.by(Row::Entities).update_subscription_of(path, properties, read_at).await
    }

    async fn delete_subscription(&self, path: &str) -> Answer<()> {
        self.in_process.by(Row::Entities).delete_subscription(path).await
    }

    async fn subscription_paths(
        &self,
        topic: &str,
        skip: usize,
        top: usize,
    ) -> Answer<Vec<String>> {
        self.in_process.by(Row::Entities).subscription_paths(topic, skip, top).await
    }

    async fn create_rule(&self, path: &str, rule: RuleDescription) -> Answer<RuleDescription> {
        let entries = vec![
            ("rule-name", value(rule.name.to_string())),
            ("rule-description", described(&rule)),
        ];
        self.ask(path, "add-rule", &entries).await?;
        self.rule(path, &rule.name).await
    }

    async fn update_rule(&self, path: &str, rule: RuleDescription) -> Answer<RuleDescription> {
        self.in_process.by(Row::Rules).update_rule(path, rule).await
    }

    async fn delete_rule(&self, path: &str, name: &str) -> Answer<()> {
        self.ask(path, "remove-rule", &vec![("rule-name", value(name))]).await.map(drop)
    }

    async fn rule(&self, path: &str, name: &str) -> Answer<RuleDescription> {
        let rules = self.rules(path, 0, usize::MAX).await?;
        let named = rules.into_iter().find(|rule| rule.name.eq_ignore_ascii_case(name));
        named.ok_or_else(|| absent(&format!("no rule `{name}` is listed")))
    }

    async fn rules(&self, path: &str, skip: usize, top: usize) -> Answer<Vec<RuleDescription>> {
        let count = |count: usize| int(u32::try_from(count).unwrap_or(u32::MAX));
        let entries = vec![("skip", count(skip)), ("top", count(top))];
        let reply = self.ask(path, "enumerate-rules", &entries).await?;
        let maps = reply.map(|reply| reply.maps("rules")).unwrap_or_default();
        Ok(maps.iter().map(rule).collect())
    }

    async fn explain(&self, path: &str, message: Message) -> Answer<Vec<Explanation>> {
        self.in_process.by(Row::Rules).explain(path, message).await
    }
}

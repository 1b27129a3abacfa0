//! Topics over the JSON API.

use async_trait::async_trait;
use peeklock_core::command::{Counts, DescribedSubscription, DescribedTopic};
use peeklock_core::description::{
    SubscriptionDescription, SubscriptionUpdate, TopicDescription, TopicUpdate,
};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::message::{Message, Value};
use peeklock_core::rule::sql::Parameters;
use peeklock_core::rule::{
    CorrelationFilter, Explanation, Filter, FilterTest, Read, RuleDescription, SqlText, Verdict,
};
use peeklock_core::time::Timestamp;
use serde_json::{Map, Value as Json, json};

use super::{
    Http, instant_of, number_of, of_subscription, read_entity, read_sessions, read_value, segment,
    subscription_at, text_of, write_entity, write_message, write_properties,
};
use crate::subject::{Answer, Topics};

fn topic_at(path: &str) -> String {
    format!("/topics/{}", segment(path))
}

/// Address of a subscription by its path; for any other path an absent address.
fn at(path: &str) -> String {
    of_subscription(path).map_or_else(
        || format!("{}/subscriptions/%24none", topic_at(path)),
        |(topic, name)| subscription_at(topic, name),
    )
}

fn read_topic(topic: &Json) -> DescribedTopic {
    let runtime = &topic["runtime"];
    DescribedTopic {
        description: read_entity(topic),
        subscription_count: number_of(runtime, "subscriptionCount"),
        sql_rule_count: number_of(runtime, "sqlFilterCount"),
        correlation_rule_count: number_of(runtime, "correlationFilterCount"),
        scheduled: number_of(runtime, "scheduledMessageCount"),
        transfer: number_of(runtime, "transferMessageCount"),
        transfer_dead_letter: number_of(runtime, "transferDeadLetterMessageCount"),
        size_bytes: number_of(runtime, "sizeInBytes"),
        last_sequence: SequenceNumber(number_of(runtime, "lastSequenceNumber")),
        created_at: instant_of(runtime, "createdAt").unwrap(),
        updated_at: instant_of(runtime, "updatedAt").unwrap(),
        accessed_at: instant_of(runtime, "accessedAt").unwrap(),
    }
}

fn read_subscription(subscription: &Json) -> DescribedSubscription {
    let runtime = &subscription["runtime"];
    let counts = Counts {
        active: number_of(runtime, "activeMessageCount"),
        deferred: number_of(runtime, "deferredMessageCount"),
        scheduled: 0,
        dead_letter: number_of(runtime, "deadLetterMessageCount"),
        transfer: number_of(runtime, "transferMessageCount"),
        transfer_dead_letter: number_of(runtime, "transferDeadLetterMessageCount"),
        delayed: runtime["delayedMessageCount"].as_u64().unwrap_or(0),
    };
    assert_eq!(number_of(runtime, "totalMessageCount"), counts.total());
    let description: SubscriptionDescription = read_entity(subscription);
    assert_eq!(text_of(subscription, "path"), Some(description.path()));
    DescribedSubscription {
        description,
        counts,
        size_bytes: number_of(runtime, "sizeInBytes"),
        last_sequence: SequenceNumber(number_of(runtime, "lastSequenceNumber")),
        created_at: instant_of(runtime, "createdAt").unwrap(),
        updated_at: instant_of(runtime, "updatedAt").unwrap(),
        accessed_at: instant_of(runtime, "accessedAt").unwrap(),
        sessions: read_sessions(runtime),
    }
}

fn write_sql(sql: &SqlText) -> Json {
    let pairs: Vec<(String, Value)> =
        sql.parameters.iter().map(|(name, value)| (name.to_owned(), value.clone())).collect();
    json!({ "sql": sql.text, "parameters": write_properties(&pairs) })
}

/// A rule without its name, which is part of the address.
fn write_rule(rule: &RuleDescription) -> Json {
    let filter = match &rule.filter {
        Filter::True => json!({ "type": "true" }),
        Filter::False => json!({ "type": "false" }),
        Filter::Sql(sql) => {
            let mut filter = write_sql(sql);
            filter["type"] = "sql".into();
            filter
        }
        Filter::Correlation(filter) => {
            let pairs = filter.properties.iter();
            let pairs: Vec<_> =
                pairs.map(|(key, value)| (key.to_string(), value.clone())).collect();
            json!({
                "type": "correlation",
                "correlationId": filter.correlation_id,
                "messageId": filter.message_id,
                "to": filter.to,
                "replyTo": filter.reply_to,
                "subject": filter.subject,
                "sessionId": filter.session_id,
                "replyToSessionId": filter.reply_to_session_id,
                "contentType": filter.content_type,
                "properties": write_properties(&pairs),
            })
        }
    };
    json!({ "filter": filter, "action": rule.action.as_ref().map(write_sql) })
}

fn read_pairs(object: &Json) -> Vec<(String, Value)> {
    let pairs = object.as_object().into_iter().flatten();
    pairs.map(|(key, value)| (key.clone(), read_value(value))).collect()
}

fn read_sql(sql: &Json) -> SqlText {
    let parameters = read_pairs(&sql["parameters"])
        .into_iter()
        .fold(Parameters::new(), |all, (name, value)| all.with(&name, value));
    SqlText { text: text_of(sql, "sql").unwrap().into(), parameters }
}

fn read_rule(rule: &Json) -> RuleDescription {
    let filter = &rule["filter"];
    let text = |key| text_of(filter, key).map(Box::from);
    let filter = match filter["type"].as_str().unwrap() {
        "true" => Filter::True,
        "false" => Filter::False,
        "sql" => Filter::Sql(read_sql(filter)),
        "correlation" => Filter::Correlation(CorrelationFilter {
            correlation_id: text("correlationId"),
            message_id: text("messageId"),
            to: text("to"),
            reply_to: text("replyTo"),
            subject: text("subject"),
            session_id: text("sessionId"),
            reply_to_session_id: text("replyToSessionId"),
            content_type: text("contentType"),
            properties: read_pairs(&filter["properties"])
                .into_iter()
                .map(|(key, value)| (key.into(), value))
                .collect(),
        }),
        other => panic!("unknown filter {other}"),
    };
    RuleDescription {
        name: text_of(rule, "name").unwrap().into(),
        filter,
        action: rule["action"].is_object().then(|| read_sql(&rule["action"])),
        created_at: instant_of(rule, "createdAt").unwrap(),
        extensions: None,
    }
}

fn read_explanation(view: &Json) -> Explanation {
    let error = text_of(view, "error").unwrap_or_default();
    let list = |key: &str| view[key].as_array().unwrap().clone();
    let texts = |list: &Json| -> Vec<String> {
        list.as_array().unwrap().iter().map(|one| one.as_str().unwrap().to_owned()).collect()
    };
    Explanation {
        rule: text_of(view, "rule").unwrap(),
        verdict: match view["verdict"].as_str().unwrap() {
            "matches" => Verdict::Matches,
            "doesNotMatch" => Verdict::DoesNotMatch,
            "unknown" => Verdict::Unknown,
            "filterFailed" => Verdict::FilterFailed(error),
            "actionFailed" => Verdict::ActionFailed(error),
            "notAsked" => Verdict::NotEvaluated(text_of(view, "selectedBy").unwrap()),
            other => panic!("unknown verdict {other}"),
        },
        reads: list("reads")
            .iter()
            .map(|read| Read {
                name: text_of(read, "name").unwrap(),
                value: text_of(read, "value"),
            })
            .collect(),
        tests: list("tests")
            .iter()
            .map(|test| FilterTest {
                text: text_of(test, "text").unwrap(),
                operands: texts(&test["operands"]),
                result: test["result"].as_bool(),
            })
            .collect(),
        changes: texts(&view["changes"]),
    }
}

impl Http {
    /// An update of the suite replaces the description (ENT-17); an update of the API merges.
    async fn merge(
        &self,
        path: &str,
        mut body: Map<String, Json>,
        clearable: &[&str],
        read_at: Option<Timestamp>,
    ) -> Answer<Json> {
        for name in clearable {
            body.entry(*name).or_insert(Json::Null);
        }
        let version = read_at.map(|read_at| format!("\"{read_at}\""));
        let headers: Vec<_> =
            version.iter().map(|version| ("If-Match", version.as_str())).collect();
        self.ask("PATCH", path, &headers, Some(body.into())).await
    }
}

#[async_trait(?Send)]
impl Topics for Http {
    async fn create_topic_with(
        &self,
        path: &str,
        properties: TopicUpdate,
    ) -> Answer<DescribedTopic> {
        let body = write_entity::<TopicDescription>(&properties).into();
        let topic = read_topic(&self.ask("PUT", &topic_at(path), &[], Some(body)).await?);
        self.topics.borrow_mut().insert(path.to_lowercase());
        Ok(topic)
    }

    async fn topic(&self, path: &str) -> Answer<DescribedTopic> {
        let topic = read_topic(&self.ask("GET", &topic_at(path), &[], None).await?);
        self.topics.borrow_mut().insert(path.to_lowercase());
        Ok(topic)
    }

    async fn update_topic_of(
        &self,
        path: &str,
        properties: TopicUpdate,
        read_at: Option<Timestamp>,
    ) -> Answer<DescribedTopic> {
        let body = write_entity::<TopicDescription>(&properties);
        Ok(read_topic(&self.merge(&topic_at(path), body, &["userMetadata"], read_at).await?))
    }

    async fn delete_topic(&self, path: &str) -> Answer<()> {
        self.ask("DELETE", &topic_at(path), &[], None).await.map(drop)
    }

    async fn topic_paths(&self, skip: usize, top: usize) -> Answer<Vec<String>> {
        let answer = self.ask("GET", &format!("/topics?skip={skip}&top={top}"), &[], None).await?;
        let topics = answer["topics"].as_array().unwrap();
        Ok(topics.iter().map(|topic| text_of(topic, "path").unwrap()).collect())
    }

    async fn create_subscription_with(
        &self,
        topic: &str,
        name: &str,
        properties: SubscriptionUpdate,
        rules: Vec<RuleDescription>,
    ) -> Answer<DescribedSubscription> {
        let mut body = write_entity::<SubscriptionDescription>(&properties);
        if !rules.is_empty() {
            let rules = rules.iter().map(|rule| {
                let mut form = write_rule(rule);
                form["name"] = (*rule.name).into();
                form
            });
            body.insert("rules".to_owned(), rules.collect());
        }
        let path = subscription_at(topic, name);
        Ok(read_subscription(&self.ask("PUT", &path, &[], Some(body.into())).await?))
    }

    async fn subscription(&self, path: &str) -> Answer<DescribedSubscription> {
        Ok(read_subscription(&self.ask("GET", &at(path), &[], None).await?))
    }

    async fn update_subscription_of(
        &self,
        path: &str,
        properties: SubscriptionUpdate,
        read_at: Option<Timestamp>,
    ) -> Answer<DescribedSubscription> {
        let body = write_entity::<SubscriptionDescription>(&properties);
        let clearable = ["forwardTo", "forwardDeadLetteredMessagesTo", "userMetadata"];
        Ok(read_subscription(&self.merge(&at(path), body, &clearable, read_at).await?))
    }

    async fn delete_subscription(&self, path: &str) -> Answer<()> {
        self.ask("DELETE", &at(path), &[], None).await.map(drop)
    }

    async fn subscription_paths(
        &self,
        topic: &str,
        skip: usize,
        top: usize,
    ) -> Answer<Vec<String>> {
        let path = format!("{}/subscriptions?skip={skip}&top={top}", topic_at(topic));
        let answer = self.ask("GET", &path, &[], None).await?;
        let subscriptions = answer["subscriptions"].as_array().unwrap();
        Ok(subscriptions.iter().map(|one| text_of(one, "path").unwrap()).collect())
    }

    async fn create_rule(&self, path: &str, rule: RuleDescription) -> Answer<RuleDescription> {
        let target = format!("{}/rules/{}", at(path), segment(&rule.name));
        Ok(read_rule(&self.ask("PUT", &target, &[], Some(write_rule(&rule))).await?))
    }

    async fn update_rule(&self, path: &str, rule: RuleDescription) -> Answer<RuleDescription> {
        let target = format!("{}/rules/{}", at(path), segment(&rule.name));
        Ok(read_rule(&self.ask("PATCH", &target, &[], Some(write_rule(&rule))).await?))
    }

    async fn delete_rule(&self, path: &str, name: &str) -> Answer<()> {
        let target = format!("{}/rules/{}", at(path), segment(name));
        self.ask("DELETE", &target, &[], None).await.map(drop)
    }

    async fn rule(&self, path: &str, name: &str) -> Answer<RuleDescription> {
        let target = format!("{}/rules/{}", at(path), segment(name));
        Ok(read_rule(&self.ask("GET", &target, &[], None).await?))
    }

    async fn rules(&self, path: &str, skip: usize, top: usize) -> Answer<Vec<RuleDescription>> {
        let target = format!("{}/rules?skip={skip}&top={top}", at(path));
        let answer = self.ask("GET", &target, &[], None).await?;
        Ok(answer["rules"].as_array().unwrap().iter().map(read_rule).collect())
    }

    async fn explain(&self, path: &str, message: Message) -> Answer<Vec<Explanation>> {
        let body = json!({ "message": write_message(&message) });
        let answer = self.ask("POST", &format!("{}/explain", at(path)), &[], Some(body)).await?;
        Ok(answer["rules"].as_array().unwrap().iter().map(read_explanation).collect())
    }
}

//! Benchmark of the rules of a topic: selecting the copies of a message, without a store. One
//! encoded message is evaluated repeatedly.
//!
//! `cargo bench --bench rules`

#![expect(clippy::panic, reason = "a benchmark that goes wrong has no figure")]

mod measure;

use peeklock_core::Broker;
use peeklock_core::command::Command;
use peeklock_core::description::{SubscriptionUpdate, TopicUpdate};
use peeklock_core::ids::{EntityId, SequenceNumber};
use peeklock_core::inspect::{Found, Question, WhatIfQuery};
use peeklock_core::limits::{Limits, Tier};
use peeklock_core::management::{Managed, Management};
use peeklock_core::message::{Content, Message};
use peeklock_core::rule::sql::{Parameters, Unobserved, compile_filter};
use peeklock_core::rule::{
    CorrelationFilter, Facts, Filter, Matcher, PublishedMessage, RuleChange, RuleDescription,
    RuleEdit, Selection, SubscriptionSettings,
};
use peeklock_core::time::Timestamp;

const NOW: Timestamp = Timestamp::from_unix_ms(1_800_000_000_000);

fn main() {
    let content = message();
    one_filter(&content, "comparison of a text", "color = 'red'");
    one_filter(&content, "two comparisons", "quantity > 50 AND color = 'red'");
    one_filter(
        &content,
        "a longer one",
        "(color IN ('blue', 'green', 'red') OR region LIKE 'eu-%') AND quantity * price > 100 AND \
         sys.Label = 'order' AND NOT EXISTS(cancelled)",
    );
    hundred_sql_filters(&content);
    correlation_filters(&content);
    fan_out(&content);
    actions(&content);
    trials();
}

fn message() -> Content {
    plain_message().encode()
}

fn plain_message() -> Message {
    Message::new(vec![0; 1_024])
        .with_message_id("0123456789abcdef0123456789abcdef")
        .with_subject("order")
        .with_session_id("customer-17")
        .with_application_property("tenant", "contoso")
        .with_application_property("region", "eu-west")
        .with_application_property("color", "red")
        .with_application_property("quantity", 120)
        .with_application_property("price", 9.5)
        .with_application_property("express", true)
        .with_application_property("customer", 617)
        .with_application_property(
            "trace",
            "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
        )
}

fn facts(content: &Content) -> Facts<'static> {
    Facts {
        sequence: SequenceNumber(1),
        enqueued_sequence: SequenceNumber(0),
        enqueued_at: NOW,
        expires_at: None,
        time_to_live: None,
        size: u64::from(content.size()),
        dead_letter_source: None,
    }
}

/// Evaluates one filter; the properties of the message are already decoded.
fn one_filter(content: &Content, title: &str, text: &str) {
    const EVALUATIONS: usize = 1_000_000;
    let program =
        compile_filter(text, &Parameters::new()).unwrap_or_else(|error| panic!("{error}"));
    let published = PublishedMessage::new(content.property_view(), facts(content));
    measure::rate(&format!("SQL filter: {title}"), EVALUATIONS, || {
        for _ in 0..EVALUATIONS {
            let truth = std::hint::black_box(&program).test(&published, &mut || 0, &mut Unobserved);
            assert_eq!(std::hint::black_box(truth), Ok(Some(true)));
        }
    });
}

fn topic(count: u64, rule: impl Fn(u64) -> RuleDescription) -> Matcher {
    let limits = Limits::of(Tier::Premium);
    let settings = SubscriptionSettings {
        dead_lettering_on_filter_errors: true,
        requires_session: false,
        catch_all: false,
    };
    let mut matcher = Matcher::new();
    for number in 0..count {
        let default = RuleDescription::default_rule(NOW);
        matcher
            .create_subscription(EntityId(number), settings, vec![rule(number)], default, &limits)
            .unwrap_or_else(|rejection| panic!("{rejection}"));
    }
    matcher
}

/// Publishes one message through all rules, and decodes its properties again.
fn publish(matcher: &Matcher, content: &Content, limits: &Limits) -> Selection {
    let published = PublishedMessage::new(content.property_view(), facts(content));
    matcher.publish(content, &published, limits, &mut || 0)
}

/// Measures messages with `copies` copies each.
fn measured(
    title: &str,
    matcher: &Matcher,
    content: &Content,
    copies: usize,
    messages: usize,
    units_each: usize,
) {
    let limits = Limits::of(Tier::Premium);
    measure::rate(title, messages * units_each, || {
        for _ in 0..messages {
            let selection = publish(matcher, std::hint::black_box(content), &limits);
            assert_eq!(std::hint::black_box(selection).copies.len(), copies);
        }
    });
}

fn hundred_sql_filters(content: &Content) {
    let matcher = topic(100, |number| {
        let text = format!("quantity > {} AND color = 'red' AND customer <> {number}", number * 10);
        RuleDescription::new("r", Filter::sql(text), NOW)
    });
    measured("100 SQL filters: evaluations", &matcher, content, 12, 10_000, 100);
}

fn correlation_filters(content: &Content) {
    let rule = |number: u64| {
        let number = i64::try_from(number).unwrap_or(0);
        let filter =
            CorrelationFilter::property("customer", number).and_property("tenant", "contoso");
        RuleDescription::new("r", Filter::Correlation(filter), NOW)
    };
    for count in [1, 1_000] {
        let matcher = topic(count, rule);
        measured(
            &format!("{count} subscriptions, distinct correlation filters: messages"),
            &matcher,
            content,
            usize::from(count > 617),
            500_000,
            1,
        );
    }
}

fn fan_out(content: &Content) {
    let matcher = topic(1_000, |_| RuleDescription::default_rule(NOW));
    measured("1,000 subscriptions, true filters: copies", &matcher, content, 1_000, 2_000, 1_000);
}

fn actions(content: &Content) {
    let matcher = topic(1, |_| {
        RuleDescription::new("r", Filter::True, NOW)
            .with_action("SET quantity = quantity / 2; REMOVE trace; SET sys.Label = 'half'")
    });
    measured("an action of three statements: copies", &matcher, content, 1, 50_000, 1);
}

/// Tries a changed rule on 1,000 stored messages and 100 rules, through a broker (CON-37).
fn trials() {
    const MESSAGES: usize = 1_000;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.unwrap_or_else(|error| panic!("{error}"));
    let failed = |error: &dyn std::fmt::Display| -> ! { panic!("{error}") };
    let rule = |number: usize| {
        let text = format!("quantity > {number} AND color = 'red' AND customer <> {number}");
        RuleDescription::new("r", Filter::sql(text), NOW)
    };
    let broker = runtime.block_on(async {
        let broker = Broker::builder().arbiters(1).start().await;
        let broker = broker.unwrap_or_else(|error| failed(&error));
        let created = broker.create_topic("t", TopicUpdate::default()).await;
        created.unwrap_or_else(|error| failed(&error));
        for number in 0..100 {
            let (name, update) = (format!("s{number:02}"), SubscriptionUpdate::default());
            let created = broker.create_subscription("t", &name, update, vec![rule(number)]).await;
            created.unwrap_or_else(|error| failed(&error));
        }
        let topic = broker.entity("t").unwrap_or_else(|error| failed(&error));
        for number in 0..MESSAGES {
            let message = plain_message().with_message_id(number.to_string());
            let message = broker.inbound(message);
            let sent = topic.call(Command::Send { message }).await;
            sent.unwrap_or_else(|error| failed(&error));
        }
        broker.idle().await;
        broker
    });
    let edit = RuleEdit::Set(Box::new(rule(500)));
    let query = WhatIfQuery {
        changes: vec![RuleChange { subscription: "s00".into(), edit }],
        message_count_max: 1_000,
        difference_count_max: 100,
    };
    let access = broker.full_access();
    measure::rate("a trial on 100 rules: messages", MESSAGES, || {
        runtime.block_on(async {
            let question = Question::WhatIf(Box::new(query.clone()));
            let answer = access.manage("t", Management::Inspect(Box::new(question))).await;
            let Ok(Managed::Findings(findings)) = answer else { panic!("no answer") };
            let Found::WhatIf(found) = findings.found else { panic!("another answer") };
            assert_eq!(found.message_count, MESSAGES as u64);
        });
    });
}

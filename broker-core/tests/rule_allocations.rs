//! Rules evaluate a message without allocating (DESIGN D8: filters read the stored bytes).

use allocation_counter::measure;
use peeklock_core::ids::{EntityId, SequenceNumber};
use peeklock_core::limits::{Limits, Tier};
use peeklock_core::message::{Content, Message, Value};
use peeklock_core::rule::sql::{Parameters, Unobserved, compile_filter};
use peeklock_core::rule::{
    CorrelationFilter, Facts, Filter, Matcher, PublishedMessage, RuleDescription, SqlText,
    SubscriptionSettings,
};
use peeklock_core::time::Timestamp;

fn content() -> Content {
    let mut message = Message::new("body").with_message_id("m").with_subject("order");
    for number in 0..12 {
        message = message.with_application_property(format!("Property{number}"), number);
    }
    message
        .with_application_property("color", "red")
        .with_application_property("uuid", Value::Uuid(5))
        .with_application_property("größe", 'x')
        .encode()
}

fn published(content: &Content) -> PublishedMessage<'_> {
    let facts = Facts {
        sequence: SequenceNumber(1),
        enqueued_sequence: SequenceNumber(0),
        enqueued_at: Timestamp::from_unix_ms(5),
        expires_at: None,
        time_to_live: None,
        size: 100,
        dead_letter_source: None,
    };
    PublishedMessage::new(content.property_view(), facts)
}

/// Common operators on properties of every kind, including names in another case.
#[test]
fn evaluations_do_not_allocate() {
    let content = content();
    for text in [
        "color = 'red'",
        "COLOR = 'red' AND property3 = 3 AND PROPERTY11 + 1 = 12",
        "property3 * 2 > 5 OR NOT (property4 / 2 = 2 AND sys.Label = 'order')",
        "color IN ('blue', 'green', 'red') AND property5 NOT IN (1, 2, 3)",
        "color LIKE 'r%d' AND color NOT LIKE '%x!_%' ESCAPE '!'",
        "EXISTS(color) AND absent IS NULL AND NOT EXISTS(absent)",
        "uuid = '00000000-0000-0000-0000-000000000005' AND größe = 'x'",
        "p('color') = 'red' AND property('sys.MessageId') = 'm'",
        "sys.EnqueuedTimeUtc - sys.EnqueuedTimeUtc IS NOT NULL AND newid() IS NOT NULL",
        "((((((property1 = 1 AND property2 = 2) AND property3 = 3) AND property4 = 4))))",
    ] {
        let program = compile_filter(text, &Parameters::new()).expect(text);
        let mut truth = Ok(None);
        let counted = measure(|| {
            let published = published(&content);
            truth = program.test(&published, &mut || 0, &mut Unobserved);
        });
        assert_eq!(truth, Ok(Some(true)), "{text}");
        assert_eq!(counted.count_total, 0, "{text}");
    }
}

/// A whole topic allocates only the list of copies, and nothing without copies.
#[test]
fn matching_allocates_the_list_of_copies_only() {
    let limits = Limits::of(Tier::Premium);
    let settings = SubscriptionSettings {
        dead_lettering_on_filter_errors: true,
        requires_session: false,
        catch_all: false,
    };
    let mut matcher = Matcher::new();
    for number in 0..500u32 {
        let correlated = CorrelationFilter::property("property7", i64::from(number));
        let rules = vec![
            RuleDescription::new("c", Filter::Correlation(correlated), Timestamp::NONE),
            RuleDescription::new("s", Filter::sql("color = 'blue'"), Timestamp::NONE),
        ];
        let id = EntityId(u64::from(number));
        let default = RuleDescription::default_rule(Timestamp::NONE);
        matcher.create_subscription(id, settings, rules, default, &limits).expect("good rules");
    }
    let content = content();
    let mut copies = Vec::new();
    let counted = measure(|| {
        let published = published(&content);
        copies = matcher.publish(&content, &published, &limits, &mut || 0).copies;
    });
    assert_eq!(copies.len(), 1);
    assert_eq!(counted.count_total, 1);
    matcher.remove_subscription(EntityId(7));
    let counted = measure(|| {
        let published = published(&content);
        copies = matcher.publish(&content, &published, &limits, &mut || 0).copies;
    });
    assert_eq!((copies.len(), counted.count_total), (0, 0));
}

/// QUO-08: the counted bytes of rules are close to the memory that they use, regardless of their
/// kind and number.
#[test]
fn counted_bytes_of_rules_match_their_memory() {
    let mut limits = Limits::of(Tier::Premium);
    limits.rule_bytes_max = 1 << 20;
    let numbered = |count: usize, bytes: usize| {
        (0..count).fold(CorrelationFilter::default(), |filter, number| {
            filter.and_property(format!("p{number}"), "x".repeat(bytes))
        })
    };
    let with_parameters = |text: &str, count: usize| SqlText {
        text: text.into(),
        parameters: (0..count).fold(Parameters::new(), |given, number| {
            given.with(&format!("p{number}"), "some text")
        }),
    };
    let plain = |filter: Filter| RuleDescription::new("r", filter, Timestamp::NONE);
    let mut beside = plain(Filter::True);
    beside.extensions = Some("x".repeat(5_000).into());
    let subject = CorrelationFilter { subject: Some("s".repeat(500).into()), ..numbered(3, 5) };
    let many = vec!["p LIKE 'a_b%c_d_e%'"; 44].join(" OR ");
    let wild = format!("p LIKE '%{}%'", "a_bcdefgh".repeat(100));
    let action = (0..32).map(|number| format!("SET q{number} = 'x' + p")).collect::<Vec<_>>();
    for (what, rule) in [
        ("true", plain(Filter::True)),
        ("one property", plain(Filter::Correlation(numbered(1, 3)))),
        ("many properties", plain(Filter::Correlation(numbered(256, 3)))),
        ("a long value", plain(Filter::Correlation(numbered(1, 15_000)))),
        ("a property of the broker", plain(Filter::Correlation(subject))),
        ("a short text", plain(Filter::sql("a = 1"))),
        ("many tests", plain(Filter::sql(&*many))),
        ("a long pattern", plain(Filter::sql(&*wild))),
        ("long names", plain(Filter::sql(format!("{} = 1", "n".repeat(900))))),
        ("parameters", plain(Filter::Sql(with_parameters("a = @p1", 256)))),
        ("an action", plain(Filter::True).with_action(&*action.join("; "))),
        ("what stands beside it", beside),
    ] {
        for count in [1, 100] {
            let mut matcher = Matcher::new();
            let id = EntityId(1);
            let settings = SubscriptionSettings {
                dead_lettering_on_filter_errors: true,
                requires_session: false,
                catch_all: false,
            };
            matcher.restore_subscription(id, settings);
            let taken = measure(|| {
                for number in 0..count {
                    let name = format!("r{number}");
                    let rule = RuleDescription { name: name.into(), ..rule.clone() };
                    matcher.create_rule(id, rule, &limits).expect(what);
                }
            });
            let (taken, told) = (taken.bytes_current, matcher.memory_bytes().cast_signed());
            // The first rule also allocates spare room.
            let room = if count == 1 { 2_000 } else { 0 };
            assert!(taken <= told + room, "{count} with {what} take {taken}, counted {told}");
            assert!(told < 4 * taken + 2_000, "{count} with {what} take {taken}, counted {told}");
            let freed = measure(|| matcher.remove_subscription(id));
            assert!(freed.bytes_current < 0);
            assert_eq!(matcher.memory_bytes(), 0, "{what}");
        }
    }
}

//! Correlation filters and their index.

use super::*;

fn matches(filter: &CorrelationFilter, message: &Message) -> bool {
    let matcher = topic(vec![correlated("r", filter.clone())]);
    !publish(&matcher, message).copies.is_empty()
}

/// TOP-18, TOP-19
#[test]
fn every_property_given_must_be_equal() {
    let message = with(&[("a", 1.into()), ("b", "x".into())])
        .with_correlation_id("c")
        .with_message_id("m")
        .with_to("to")
        .with_reply_to("reply")
        .with_subject("label")
        .with_session_id("s")
        .with_reply_to_session_id("rs")
        .with_content_type("text/plain");
    let all = || {
        CorrelationFilter {
            correlation_id: Some("c".into()),
            message_id: Some("m".into()),
            to: Some("to".into()),
            reply_to: Some("reply".into()),
            subject: Some("label".into()),
            session_id: Some("s".into()),
            reply_to_session_id: Some("rs".into()),
            content_type: Some("text/plain".into()),
            properties: Vec::new(),
        }
        .and_property("a", 1)
        .and_property("b", "x")
    };
    assert!(matches(&all(), &message));
    let changes: [fn(&mut CorrelationFilter); 10] = [
        |filter| filter.correlation_id = Some("y".into()),
        |filter| filter.message_id = Some("y".into()),
        |filter| filter.to = Some("y".into()),
        |filter| filter.reply_to = Some("y".into()),
        |filter| filter.subject = Some("y".into()),
        |filter| filter.session_id = Some("y".into()),
        |filter| filter.reply_to_session_id = Some("y".into()),
        |filter| filter.content_type = Some("y".into()),
        |filter| filter.properties[0].1 = 2.into(),
        |filter| filter.properties[1].1 = "y".into(),
    ];
    for (position, change) in changes.into_iter().enumerate() {
        let mut filter = all();
        change(&mut filter);
        assert!(!matches(&filter, &message), "{position}");
    }
}

/// TOP-18
#[test]
fn empty_correlation_filter_is_refused() {
    let refused = |filter| {
        let rule = Rule::create(correlated("r", filter), &limits());
        assert_eq!(rule.unwrap_err().condition(), Condition::ArgumentError);
    };
    refused(CorrelationFilter::default());
    refused(CorrelationFilter::property("", 1));
    refused(CorrelationFilter::property("a", 1).and_property("a", 2));
}

/// TOP-18, TOP-21: a null is accepted, and equals no value.
#[test]
fn filter_with_a_null_matches_no_message() {
    let filter = CorrelationFilter::property("a", Value::Null);
    assert!(Rule::create(correlated("r", filter.clone()), &limits()).is_ok());
    for message in [with(&[]), with(&[("a", Value::Null)]), with(&[("a", 1.into())])] {
        assert!(!matches(&filter, &message));
        assert!(!matches(&filter.clone().and_property("b", 1), &message));
    }
}

/// TOP-20
#[test]
fn values_are_case_sensitive_and_names_are_not() {
    let message = with(&[("Color", "Red".into())]).with_subject("Big");
    assert!(matches(&CorrelationFilter::property("cOLOR", "Red"), &message));
    assert!(!matches(&CorrelationFilter::property("Color", "red"), &message));
    let subject =
        |text: &str| CorrelationFilter { subject: Some(text.into()), ..Default::default() };
    assert!(matches(&subject("Big"), &message));
    assert!(!matches(&subject("big"), &message));
}

/// AMQ-21: ids of other types are compared by their text form.
#[test]
fn ids_match_by_their_text() {
    let id =
        |text: &str| CorrelationFilter { correlation_id: Some(text.into()), ..Default::default() };
    let message = |sent| Message::new("b").with_correlation_id(sent);
    assert!(matches(&id("17"), &message(MessageId::Ulong(17))));
    assert!(matches(&id("00ff"), &message(MessageId::Binary(vec![0, 255].into()))));
    let uuid = message(MessageId::Uuid(1));
    assert!(matches(&id("00000000-0000-0000-0000-000000000001"), &uuid));
}

fn samples() -> Vec<Value> {
    let decimal = |text: &str| Value::Decimal128(sql::Decimal::parse(text).unwrap().to_bits());
    let mut samples = vec![
        Value::Bool(true),
        Value::Bool(false),
        Value::Char('1'),
        "1".into(),
        "".into(),
        "true".into(),
        Value::Uuid(1),
        "00000000-0000-0000-0000-000000000001".into(),
        Value::Timestamp(0),
        Value::Timestamp(1),
        Value::DateTimeOffset(621_355_968_000_000_000),
        Value::DateTimeOffset(621_355_968_000_000_001),
        Value::TimeSpan(0),
        Value::TimeSpan(1),
        Value::Binary(b"1".to_vec().into()),
        Value::Uri("1".into()),
        Value::F64(f64::NAN),
        Value::F64(-0.0),
        Value::F64(0.1),
        Value::F32(0.1),
        Value::F64(0.5),
        Value::F32(0.5),
        decimal("0.1"),
        decimal("0.50"),
        decimal("1E+300"),
        Value::F64(1e300),
        Value::F64(f64::INFINITY),
        Value::F32(f32::INFINITY),
    ];
    for number in [0i64, 1, -1, 200, 16_777_216, 16_777_217, 1 << 53, (1 << 53) + 1, i64::MAX] {
        samples.extend([
            Value::I64(number),
            Value::F64(number as f64),
            Value::F32(number as f32),
            decimal(&number.to_string()),
        ]);
        samples.extend(i32::try_from(number).map(Value::I32));
        samples.extend(u8::try_from(number).map(Value::U8));
        samples.extend(u32::try_from(number).map(Value::U32));
        samples.extend(u64::try_from(number).map(Value::U64));
    }
    samples
}

/// TOP-21, TOP-22: for every pair of values, the index finds exactly the ones that SQL treats as
/// equal. Only SQL has an error, for a character and a number (SQL-37).
#[test]
fn index_agrees_with_sql_equality() {
    let samples = samples();
    let mut equal_count = 0;
    for wanted in &samples {
        let correlation =
            topic(vec![correlated("r", CorrelationFilter::property("a", wanted.clone()))]);
        let text = SqlText {
            text: "a = @wanted".into(),
            parameters: sql::Parameters::new().with("wanted", wanted.clone()),
        };
        let sql = topic(vec![RuleDescription::new("r", Filter::Sql(text), NOW)]);
        for sent in &samples {
            let message = with(&[("A", sent.clone())]);
            let by_index = publish(&correlation, &message);
            let by_sql = publish(&sql, &message);
            let matched = |selection: &Selection| {
                selection.copies.iter().filter(|copy| copy.refusal.is_none()).count()
            };
            assert_eq!(matched(&by_index), matched(&by_sql), "{wanted:?} {sent:?}");
            assert_eq!(by_index.counted.lookups, 1);
            equal_count += matched(&by_sql);
        }
    }
    assert!(equal_count > samples.len() + 100, "{equal_count} pairs were equal");
}

/// TOP-21
#[test]
fn values_of_other_types_never_match() {
    let one = CorrelationFilter::property("a", 1);
    for (sent, expected) in [
        (Value::I8(1), true),
        (Value::U64(1), true),
        (Value::F32(1.0), true),
        ("1".into(), false),
        (Value::Bool(true), false),
        (Value::Char('1'), false),
        (Value::Null, false),
    ] {
        assert_eq!(matches(&one, &with(&[("a", sent.clone())])), expected, "{sent:?}");
    }
    assert!(!matches(&one, &message()));
}

/// TOP-23: one look-up for each set of properties, and only candidates are compared.
#[test]
fn a_message_is_looked_up_once_for_each_set_of_properties() {
    let mut matcher = Matcher::new();
    for number in 0..1_000 {
        let filter = CorrelationFilter::property("number", number).and_property("kind", "x");
        create(&mut matcher, EntityId(number as u64), vec![correlated("r", filter)]).unwrap();
    }
    let message = with(&[("kind", "x".into()), ("number", 617.into())]);
    let selection = publish(&matcher, &message);
    assert_eq!(selection.counted, WorkCounts { lookups: 1, comparisons: 1, evaluations: 0 });
    assert_eq!(selection.copies.len(), 1);
    assert_eq!(selection.copies[0].subscription, EntityId(617));

    for number in 1_000..1_100 {
        let filter = CorrelationFilter { subject: Some("s".into()), ..Default::default() };
        create(&mut matcher, EntityId(number), vec![correlated("r", filter)]).unwrap();
    }
    let selection = publish(&matcher, &message);
    assert_eq!(selection.counted, WorkCounts { lookups: 1, comparisons: 1, evaluations: 0 });
    let selection = publish(&matcher, &message.with_subject("s"));
    assert_eq!(selection.counted, WorkCounts { lookups: 2, comparisons: 101, evaluations: 0 });
    assert_eq!(selection.copies.len(), 101);
    // Values that floats cannot distinguish still find only themselves.
    let mut matcher = Matcher::new();
    for number in 0..1_000 {
        let filter = CorrelationFilter::property("id", 1_000_000_000_000_000i64 + number);
        create(&mut matcher, EntityId(number as u64), vec![correlated("r", filter)]).unwrap();
    }
    let selection = publish(&matcher, &with(&[("id", Value::I64(1_000_000_000_000_123))]));
    assert_eq!(selection.counted.comparisons, 1);
    assert_eq!(selection.copies.len(), 1);
}

/// TOP-23: filters that name the same properties in another order share a set.
#[test]
fn filters_on_the_same_properties_share_a_look_up() {
    let mut matcher =
        topic(vec![correlated("r", CorrelationFilter::property("b", 2).and_property("a", 1))]);
    let other = CorrelationFilter::property("a", 1).and_property("b", 2);
    create(&mut matcher, EntityId(2), vec![correlated("r", other)]).unwrap();
    let selection = publish(&matcher, &with(&[("a", 1.into()), ("b", 2.into())]));
    assert_eq!(selection.counted.lookups, 1);
    assert_eq!(selection.copies.len(), 2);
}

/// A filter on the first `count` properties of [`numbered`].
fn numbered_filter(count: usize) -> CorrelationFilter {
    let of = |filter: CorrelationFilter, number| filter.and_property(format!("p{number}"), 1);
    (0..count).fold(CorrelationFilter::default(), of)
}

/// A message with `count` properties.
fn numbered(count: usize) -> Message {
    let mut message = message();
    message.application_properties =
        (0..count).map(|number| (format!("p{number}"), Value::I64(1))).collect();
    message
}

/// TOP-18, QUO-01, QUO-09: the number of properties and the total size are checked before every
/// check whose cost grows with them. A rule exactly at the bounds is accepted.
#[test]
fn rule_over_its_bounds_is_refused_before_other_checks() {
    let limits = Limits { rule_property_count_max: 3, ..limits() };
    let refused = |rule: RuleDescription, limit: &str| {
        let refused = Rule::create(rule, &limits).unwrap_err();
        assert_eq!(refused.condition(), Condition::ArgumentOutOfRange, "{refused}");
        assert!(refused.detail().contains(limit), "{refused}");
    };
    assert!(Rule::create(correlated("r", numbered_filter(3)), &limits).is_ok());
    // The last property repeats the first one, but its number is refused before that is found.
    let twice = numbered_filter(3).and_property("p0", 1);
    refused(correlated("r", twice), "`rule_property_count_max` of 3");
    let parameters = |count: usize, name: &str| {
        let of = |parameters: sql::Parameters, number| parameters.with(&format!("p{number}"), 1);
        let parameters = (1..count).fold(sql::Parameters::new(), of).with(name, 1);
        SqlText { text: "a = @p1".into(), parameters }
    };
    let filter = |count, name| RuleDescription::new("r", Filter::Sql(parameters(count, name)), NOW);
    assert!(Rule::create(filter(3, "other"), &limits).is_ok());
    refused(filter(4, "P1"), "`rule_property_count_max` of 3");
    let twice = Rule::create(filter(3, "P1"), &limits).unwrap_err();
    assert_eq!(twice.condition(), Condition::ArgumentError, "{twice}");
    let action = SqlText { text: "SET a = @p1".into(), ..parameters(4, "P1") };
    refused(sql("r", "1 = 1").with_action(action), "`rule_property_count_max` of 3");
    // The name of the rule, the name of the property, and a value of 16 bytes and its text.
    let large = |bytes: usize| {
        let value = "x".repeat(bytes - "r".len() - "p".len() - 16);
        correlated("r", CorrelationFilter::property("p", value))
    };
    assert!(Rule::create(large(16 << 10), &limits).is_ok());
    refused(large((16 << 10) + 1), "`rule_bytes_max` of 16384");
    let mut with_extensions = sql("r", "1 = 1");
    with_extensions.extensions = Some("x".repeat(16 << 10).into());
    refused(with_extensions, "`rule_bytes_max`");
}

/// Judges a message in slices of `steps`. Returns the selection, the number of slices, and the
/// steps of the longest one.
fn in_slices(matcher: &Matcher, message: &Message, steps: u64) -> (Selection, usize, u64) {
    let content = message.encode();
    let published = PublishedMessage::new(content.property_view(), facts(&content));
    let judged = EvaluatedMessage { content: &content, published: &published, limits: &limits() };
    let (mut judging, mut slices, mut most) = (RuleEvaluation::default(), 0, 0);
    loop {
        let before = judging.steps();
        let is_over = matcher.advance(&mut judging, &judged, steps, &mut || 0);
        (slices, most) = (slices + 1, most.max(judging.steps() - before));
        if is_over {
            return (judging.into_selection(), slices, most);
        }
    }
}

/// TOP-23, SQL-41, QUO-09: a slice can end in the middle of a rule, and exceeds its steps by at
/// most one property.
#[test]
fn one_rule_of_many_properties_is_judged_in_slices() {
    let matcher = topic(vec![correlated("r", numbered_filter(256))]);
    let message = numbered(8_000);
    let whole = publish(&matcher, &message);
    assert_eq!(whole.copies.len(), 1);
    let slice = 1 << 20;
    let (selection, slices, most) = in_slices(&matcher, &message, slice);
    assert_eq!(selection, whole);
    // Each property is looked up and compared, at four steps for each property of the message.
    assert!(slices as u64 > 2 * 256 * 4 * 8_000 / slice, "{slices} slices");
    assert!(most <= slice + 4 * 8_000 + 100, "a slice of {most} steps");
}

/// TOP-23: the result does not depend on the ends of slices, and no rule is evaluated twice.
#[test]
fn look_ups_in_slices_have_the_same_result() {
    let mut matcher = Matcher::new();
    let mut filters = vec![
        numbered_filter(1),
        numbered_filter(5),
        numbered_filter(5).and_property("absent", 1),
        numbered_filter(3).and_property("q", 2),
        CorrelationFilter { subject: Some("s".into()), ..numbered_filter(2) },
    ];
    filters.extend((0..4).map(|_| numbered_filter(4)));
    for (id, filter) in (1..).zip(filters) {
        create(&mut matcher, EntityId(id), vec![correlated("r", filter)]).unwrap();
    }
    let message = numbered(6).with_subject("s");
    let whole = publish(&matcher, &message);
    assert_eq!(whole.counted, WorkCounts { lookups: 4, comparisons: 7, evaluations: 0 });
    assert_eq!(whole.copies.len(), 7);
    for steps in [1, 40, 60, 100, 1_000] {
        let (selection, slices, _) = in_slices(&matcher, &message, steps);
        assert_eq!(selection, whole, "{steps}");
        assert!(steps > 100 || slices > 2, "{steps}: {slices} slices");
    }
}

/// SQL-41, TOP-22, DLQ-23: a filter whose look-ups take more steps than an evaluation may fails
/// like an SQL filter, and takes none of the steps. It was stored under other limits.
#[test]
fn a_filter_of_too_many_look_ups_fails() {
    let message = numbered(5_000);
    let mut matcher = topic(vec![correlated("fits", numbered_filter(2))]);
    let rule = Rule::restore(correlated("r", numbered_filter(1_000))).unwrap();
    let content = message.encode();
    let published = PublishedMessage::new(content.property_view(), facts(&content));
    let explained = rule.explain(&published, &limits(), &mut || 0);
    let Verdict::FilterFailed(error) = explained.verdict else { panic!("{explained}") };
    assert!(error.contains("more than 16777216 steps"), "{error}");
    matcher.restore_rule(SUBSCRIPTION, rule);
    let (selection, _, _) = in_slices(&matcher, &message, u64::MAX);
    let refusals: Vec<_> = selection.copies.iter().map(|copy| copy.refusal.as_deref()).collect();
    assert!(
        matches!(refusals.as_slice(), [None, Some(Refusal { cause: Cause::Filter, .. })]),
        "{refusals:?}"
    );
    let (by_slices, slices, most) = in_slices(&matcher, &message, 1_000);
    assert_eq!(by_slices, selection);
    assert!(slices > 1 && most < 100_000, "{slices} slices, {most} steps");
}

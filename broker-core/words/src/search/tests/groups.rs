use std::sync::Arc;

use super::super::groups::Group;
use super::*;

/// CON-11: numbers, GUIDs, hexadecimal runs and quoted parts are replaced by marks.
#[test]
fn fingerprint_replaces_variable_parts() {
    for (text, expected) in [
        ("Order 4711 failed after 12.5 s", "Order {n} failed after {n} s"),
        ("order17 of 1,204.50, at 10.0.0.4:5671", "order{n} of {n}, at {n}:{n}"),
        ("id 3F2504E0-4F89-11D3-9A0C-0305E82C3301!", "id {guid}!"),
        ("hash deadbeef01 0xdeadbeef1 deadbeef abc1", "hash {hex} {hex} deadbeef abc{n}"),
        ("12345678 1234567a", "{n} {hex}"),
        ("no 'orders' in \"a b\" of O'Neil", "no {text} in {text} of O'Neil"),
        ("2026-05-01T12:00:00Z", "{n}-{n}-{n}T{n}:{n}:{n}Z"),
        ("1.5a 2. é٣", "{n}.{n}a {n}. é٣"),
        ("", ""),
    ] {
        assert_eq!(fingerprint(text), expected, "{text}");
    }
}

/// CON-11: texts that differ only in their variable parts have one fingerprint, which is its own, is
/// bounded, and has no digit.
#[test]
fn fingerprint_is_the_same_for_other_values() {
    let mut numbers = Numbers(5);
    let parts = [
        "Order ",
        "'x y'",
        "17",
        "deadbeef1",
        " ",
        "'",
        "\"",
        "é",
        "0x",
        ".",
        ",",
        "-",
        "aé",
        "\u{1}",
    ];
    for _ in 0..20_000 {
        let count = numbers.below(120);
        let text: String = (0..count).map(|_| *numbers.pick(&parts)).collect();
        let made = fingerprint(&text);
        assert_eq!(fingerprint(&made), made, "{text}");
        assert!(
            made.chars().count() <= 256 && !made.contains(|c: char| c.is_ascii_digit()),
            "{text}"
        );
    }
    let text = |number: u64, name: &str| {
        format!("Order {number} of '{name}': {:x} lost", number << 40 | 0xab_c123_4567)
    };
    assert_eq!(fingerprint(&text(9, "a")), fingerprint(&text(123_456, "b c")));
    assert_ne!(fingerprint("Order 1 lost"), fingerprint("Order 1 found"));
}

/// CON-11, CON-80: at most 1,000 groups, and one for the others; the largest comes first; each has
/// its count, first and last instant, and three samples.
#[test]
fn groups_are_bounded_and_sorted() {
    let mut groups = Groups::default();
    let path: Arc<str> = "orders".into();
    let sample = |number| Sample { path: Arc::clone(&path), sequence: SequenceNumber(number) };
    let at = |number| NOW.plus(TimeSpan::from_seconds(number));
    let count = u64::try_from(GROUP_COUNT_MAX).unwrap();
    for number in 0..count {
        groups.add(Some(format!("g{number}")), NOW, sample(number));
    }
    assert!(groups.clone().into_sorted().other.is_none());
    for number in 0..5 {
        groups.add(Some("g7".to_owned()), at(5 - i64::try_from(number).unwrap()), sample(number));
    }
    groups.add(Some("new".to_owned()), at(1), sample(90));
    groups.add(None, at(2), sample(91));
    let SortedGroups { groups: sorted, other } = groups.into_sorted();
    assert_eq!(sorted.len(), GROUP_COUNT_MAX);
    let ValueGroup { value, group: first } = &sorted[0];
    assert_eq!((value.as_deref(), first.count), (Some("g7"), 6));
    assert_eq!((first.first_at, first.last_at), (NOW, at(5)));
    assert_eq!(first.samples, [7, 0, 1].map(sample));
    let samples = vec![sample(90), sample(91)];
    assert_eq!(other, Some(Group { count: 2, first_at: at(1), last_at: at(2), samples }));
}

/// CON-11: the text of a property to group by is read back; others are refused.
#[test]
fn group_property_is_read_from_its_text() {
    for text in
        ["reason", "description", "source", "subject", "property:a:b", "json:$.a[0]", "slot:60"]
    {
        assert_eq!(GroupBy::parse(text).unwrap().to_string(), text);
    }
    for text in
        ["", "reason:x", "property", "property:", "json:a", "json:$.a b", "slot:0", "slot:31622401"]
    {
        assert!(GroupBy::parse(text).is_err(), "{text}");
    }
}

/// CON-11: the value of a group is a property, a fingerprint, a value of the body or a time slot.
#[test]
fn group_value_is_of_the_named_property() {
    let mut message = Message::default().with_subject("s").with_application_property("price", 7);
    let overlay = Overlay::dead_letter(Some("r"), Some("lost 17"), &[]).unwrap();
    message.apply_overlay(&overlay);
    let head = CandidateHead { message: &message, dead_letter_source: Some("orders") };
    let value = |by: GroupBy| by.value(&head, NOW.plus(TimeSpan::from_seconds(59)));
    assert_eq!(value(GroupBy::Reason).as_deref(), Some("r"));
    assert_eq!(value(GroupBy::Description).as_deref(), Some("lost {n}"));
    assert_eq!(value(GroupBy::Source).as_deref(), Some("orders"));
    assert_eq!(value(GroupBy::Subject).as_deref(), Some("s"));
    assert_eq!(value(GroupBy::Property("price".into())).as_deref(), Some("7"));
    assert_eq!(value(GroupBy::Property("none".into())), None);
    assert_eq!(value(GroupBy::Slot(TimeSpan::from_minutes(1))), Some(NOW.to_string()));
    let by = GroupBy::Json(JsonPath::parse("$.a").unwrap());
    let matcher = Matcher::new(&Where::default(), Some(&by)).unwrap();
    for (body, expected) in [("{\"a\":\"x\"}", Some("x")), ("{\"b\":1}", None), ("x", None)] {
        let candidate = candidate();
        let mut evaluation = matcher.begin(&candidate, &head);
        if evaluation.feed(body.as_bytes()) == Decision::NeedsBody {
            assert_eq!(evaluation.end(true), (true, false));
        }
        assert_eq!(evaluation.decision(), Decision::Holds);
        assert_eq!(evaluation.group_value(), expected);
    }
}

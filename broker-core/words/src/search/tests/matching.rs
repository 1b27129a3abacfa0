use super::*;

fn message() -> Message {
    let mut message = Message::default()
        .with_message_id("o-17")
        .with_session_id("Blue")
        .with_subject("Order placed")
        .with_application_property("region", "EU north")
        .with_application_property("price", 7);
    let overlay = Overlay::dead_letter(Some("TTLExpired"), Some("after 3 Tries"), &[]).unwrap();
    message.apply_overlay(&overlay);
    message
}

/// CON-06: each condition holds for the messages that it describes, also negated.
#[test]
fn clauses_hold_for_the_messages_they_describe() {
    let body = "The Timeout of order 4711";
    for (line, expected) in [
        ("", true),
        ("timeout", true),
        ("text~timeout", false),
        ("body:TIMEOUT body~Timeout", true),
        ("body:north", false),
        ("north property:eu", true),
        ("property~eu", false),
        ("property:timeout", false),
        ("property:7", true),
        ("id=o-17 session=Blue session:blue", true),
        ("session=blue", false),
        ("subject:\"ORDER p\" subject~\"Order p\"", true),
        ("correlation=x", false),
        ("not correlation=x", true),
        ("reason=TTLExpired description:tries source=orders", true),
        ("reason:ttl not description~tries", true),
        ("sql:\"price > 5 AND region LIKE 'EU%' AND sys.DeliveryCount = 3\"", true),
        ("sql:\"price > 7\"", false),
        ("not sql:\"price > 7\"", true),
        ("sql:\"sys.State = 'Active' AND sys.DeadLetterSource = 'orders'\"", true),
        // An error is neither true nor false.
        ("sql:\"region > 5\"", false),
        ("not sql:\"region > 5\"", false),
        ("number=17 tries>=3 size<=1000 not tries=2", true),
        ("number!=17", false),
        ("after:-1s before:+1s", true),
        ("after:+1s", false),
        ("scheduled>-1d", false),
        ("not expires<+1d", true),
        ("timeout not 4711", false),
        ("not body.$.a not nothing", true),
    ] {
        assert_eq!(holds(line, &message(), body), expected, "{line}");
    }
}

/// CON-05: the place of a match has at most 120 characters around it, and is the place that the first
/// clause with one has found.
#[test]
fn place_of_the_match_has_an_excerpt() {
    let property = |line: &str, body: &str| match evaluate(line, &message(), body.as_bytes(), 5) {
        (true, Some(MatchPlace::Property { name, excerpt })) => Some((name, excerpt)),
        _ => None,
    };
    let own = |name: &str, text: &str| Some((name.to_owned(), text.to_owned()));
    assert_eq!(property("not zz north", ""), own("region", "EU north"));
    assert_eq!(property("reason=TTLExpired a", "a"), own("DeadLetterReason", "TTLExpired"));
    let in_body = |line: &str, body: &str| match evaluate(line, &message(), body.as_bytes(), 5) {
        (true, Some(MatchPlace::Body(found))) => {
            let window = MatchPlace::body_window(&found);
            let [from, to] = [window.start, window.end.min(body.len() as u64)]
                .map(|place| usize::try_from(place).unwrap());
            let excerpt =
                MatchPlace::body_excerpt(&found, &body.as_bytes()[from..to], window.start);
            Some((found, excerpt))
        }
        _ => None,
    };
    assert_eq!(in_body("body:b a", "xaab"), Some((3..4, "xaab".to_owned())));
    let json = r#"{"a": "value", "b": 1}"#;
    assert_eq!(in_body("body.$.a=value", json), Some((6..13, json.to_owned())));
    assert_eq!(in_body("body.$.b=1", json), Some((20..21, json.to_owned())));
    let long = format!("{}needle{}", "é".repeat(1_000), "😀".repeat(1_000));
    let (found, excerpt) = in_body("body~needle", &long).unwrap();
    assert_eq!(found, 2_000..2_006);
    assert_eq!(excerpt, format!("{}needle{}", "é".repeat(57), "😀".repeat(57)));
    assert_eq!(excerpt.chars().count(), EXCERPT_CHARS_MAX);
    let whole = "x".repeat(500);
    let (_, excerpt) = in_body(&format!("body:{whole}"), &whole).unwrap();
    assert_eq!(excerpt.len(), EXCERPT_CHARS_MAX);
}

/// CON-07: a clause that cannot be decided from a part of the body does not hold, negated or not.
#[test]
fn part_of_a_body_decides_nothing_about_the_rest() {
    let (message, candidate) = (message(), candidate());
    let head = CandidateHead { message: &message, dead_letter_source: None };
    let tested = |line: &str, body: &str, is_whole: bool| {
        let matcher = Matcher::new(&parse(line), None).unwrap();
        let mut evaluation = matcher.begin(&candidate, &head);
        assert_eq!(evaluation.decision(), Decision::NeedsBody);
        match evaluation.feed(body.as_bytes()) {
            Decision::NeedsBody => evaluation.end(is_whole),
            decision => (decision == Decision::Holds, false),
        }
    };
    assert_eq!(tested("body:x", "ab", true), (false, false));
    assert_eq!(tested("body:x", "ab", false), (false, true));
    assert_eq!(tested("not body:x", "ab", true), (true, false));
    assert_eq!(tested("not body:x", "ab", false), (false, true));
    assert_eq!(tested("body:a", "ab", false), (true, false));
    assert_eq!(tested("not body:a", "ab", false), (false, false));
    assert_eq!(tested("not body.$.x", "{\"a\":1", false), (false, true));
    assert_eq!(tested("not body.$..x", &"[".repeat(DEPTH_MAX + 1), true), (false, true));
}

/// CON-06: the stream finds each text where a plain search finds it first.
#[test]
fn text_is_found_where_a_plain_search_finds_it() {
    let mut numbers = Numbers(99);
    for _ in 0..20_000 {
        let letters = |numbers: &mut Numbers, count: usize| -> String {
            (0..count).map(|_| *numbers.pick(&['a', 'b', 'A', 'é'])).collect()
        };
        let count = 1 + numbers.below(5);
        let (text, count) = (letters(&mut numbers, count), numbers.below(40));
        let body = letters(&mut numbers, count);
        for ignores_case in [false, true] {
            let pattern = Pattern::of(&TextPattern { text: text.as_str().into(), ignores_case });
            let expected = match ignores_case {
                true => body.to_ascii_lowercase().find(&text.to_ascii_lowercase()),
                false => body.find(&text),
            };
            assert_eq!(pattern.find(&body, &mut 0), expected, "{text} in {body}");
        }
    }
}

/// CON-09: the steps for a message grow linearly with its bytes, for the bodies and conditions that
/// are worst for simple ways of matching. Twice the bytes take at most twice the steps.
#[test]
fn steps_grow_linearly_with_the_body() {
    let many = (0..60).map(|_| "..a").collect::<String>();
    let names = (0..60).map(|at| format!("'{at}'")).collect::<Vec<_>>().join(",");
    for (line, unit) in [
        (format!("body:{}b", "a".repeat(500)), "a".repeat(64)),
        (format!("body:{}b body:{}c", "ab".repeat(200), "a".repeat(500)), "ab".repeat(64)),
        (format!("body.$..*{many}=1"), "{\"a\":[{\"a\":1}],".repeat(8)),
        (format!("body.${many}=1"), format!("{}{}", "[".repeat(60), "],".repeat(60))),
        (format!("body.$..[{names}]=x"), "{\"0\":[],\"1\":[],".repeat(8)),
        ("body.$..a:aaaaaaaaab".to_owned(), format!("[\"{}\"],", "a".repeat(64))),
        ("not body.$..*..*..*=0".to_owned(), "[[1,2],[3,4]],".to_owned()),
    ] {
        let matcher = Matcher::new(&parse(&line), None).unwrap();
        let (message, candidate) = (Message::default(), candidate());
        let head = CandidateHead { message: &message, dead_letter_source: None };
        let steps = |bytes: usize| {
            let body = format!("[{}", unit.repeat(bytes / unit.len()));
            let mut evaluation = matcher.begin(&candidate, &head);
            for piece in body.as_bytes().chunks(4_096) {
                evaluation.feed(piece);
            }
            evaluation.end(true);
            (evaluation.steps(), body.len() as u64)
        };
        let (one, bytes) = steps(100_000);
        let (two, _) = steps(200_000);
        assert!(two <= 2 * one + 1_000, "{line}: {one} steps, then {two}");
        let most = 8 + 2 * line.len() as u64;
        assert!(one <= most * bytes, "{line}: {one} steps for {bytes} bytes");
    }
}

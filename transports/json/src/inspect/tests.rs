use peeklock_core::condition::Condition;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::inspect::{
    BODY_BYTES_MAX, CheckKind, HeadOrder, HeadQuery, HeadStart, HeadState, HeadStates, LockQuery,
    Question, ROW_COUNT_MAX, SearchPosition, SearchStep, SessionOrder, SessionQuery, Where,
};
use peeklock_core::time::Timestamp;

use super::*;

const NOW: Timestamp = Timestamp::from_unix_ms(1_800_000_000_000);

fn read(json: &str) -> Result<Question, Rejection> {
    let form: QuestionForm = serde_json::from_str(json).unwrap();
    form.to_question(NOW)
}

/// CON-02, CON-03, CON-25, CON-28: a question is read with its defaults, and written so that it is
/// read as the same question.
#[test]
fn question_survives_a_round_trip() {
    assert_eq!(read(r#"{"heads":{}}"#).unwrap(), Question::Heads(HeadQuery::default()));
    for text in [
        r#"{"heads":{"states":["locked","expired"],"sort":"expiry","descending":true,"fromUtc":"2026-05-01T12:00:00Z"}}"#,
        r#"{"heads":{"from":7,"count":500,"sessionId":"s"}}"#,
        r#"{"locks":{"sort":"age","top":1}}"#,
        r#"{"sessions":{"sort":"stateSize","stateSetAfterUtc":"2026-05-01T12:00:00Z"}}"#,
        r#"{"sessionState":{"sessionId":"s","from":3}}"#,
        r#"{"timeline":{"of":"expiring","slotSeconds":10,"slots":240}}"#,
        r#"{"body":{"sequenceNumber":7,"length":4194304}}"#,
        r#"{"series":{"untilUtc":"2026-05-01T12:00:00Z","resolutionSeconds":60,"columns":["waitP95Us"]}}"#,
        r#"{"entities":{"path":"a","conditions":["grows","grows"],"sort":"removedPerSecond"}}"#,
        r#"{"clients":{"name":"billing"}}"#,
        r#"{"tap":{"tap":9007199254740991}}"#,
        r#"{"topology":{}}"#,
        r#"{"topology":{"around":"a","hops":16,"top":2000}}"#,
        r#"{"checks":{"path":"a","kind":"nearlyFull","muted":true}}"#,
        r#"{"journey":{"sequenceNumber":18446744073709551615}}"#,
        r#"{"journey":{"messageId":"order-17"}}"#,
        r#"{"samples":{"top":500}}"#,
        r#"{"explain":{"message":{"body":"a","applicationProperties":{"price":7}}}}"#,
        r#"{"explain":{"sequenceNumber":18446744073709551615,"path":"orders"}}"#,
        r#"{"whatIf":{"changes":[{"subscription":"eu","remove":"r"}],"messageCount":0,"top":500}}"#,
        r#"{"whatIf":{"changes":[{"subscription":"eu","rule":{"name":"r","filter":{"type":"sql","sql":"a = 1"}}}]}}"#,
        r#"{"search":{"continue":9007199254740991}}"#,
        r#"{"search":{"begin":{}}}"#,
        r#"{"search":{"begin":{"entities":["a","b/$deadletterqueue"],"subQueues":["main","deadLetter"],"where":"x after:-2h","hits":5}}}"#,
        r#"{"search":{"begin":{"groupBy":"json:$.a","states":["active"],"descending":true}}}"#,
    ] {
        let question = read(text).unwrap();
        let written = serde_json::to_string(&QuestionForm::from(&question)).unwrap();
        assert_eq!(read(&written).unwrap(), question, "{written}");
    }
}

/// CON-29: a journey is read by number or by id.
#[test]
fn journey_needs_a_number_or_an_id() {
    for text in [r#"{"journey":{}}"#, r#"{"journey":{"sequenceNumber":1,"messageId":"a"}}"#] {
        assert_eq!(read(text).unwrap_err().condition(), Condition::ArgumentError);
    }
}

/// CON-35, CON-37: a question for rules names a message, or changes, each with a rule or a removal.
#[test]
fn trials_of_rules_refuse_incomplete_questions() {
    for text in [
        r#"{"explain":{}}"#,
        r#"{"explain":{"path":"a"}}"#,
        r#"{"explain":{"message":{},"sequenceNumber":1}}"#,
        r#"{"whatIf":{"changes":[]}}"#,
        r#"{"whatIf":{"changes":[{"subscription":"a"}]}}"#,
        r#"{"whatIf":{"changes":[{"subscription":"a","remove":"r","rule":{"name":"r"}}]}}"#,
        r#"{"whatIf":{"changes":[{"subscription":"a","rule":{}}]}}"#,
    ] {
        assert_eq!(read(text).unwrap_err().condition(), Condition::ArgumentError, "{text}");
    }
}

/// CON-38: bounds of a topology are accepted, and the next values are refused.
#[test]
fn topology_is_bounded() {
    let ask = |hops: u32, top: u32| {
        read(&format!(r#"{{"topology":{{"around":"q","hops":{hops},"top":{top}}}}}"#))
    };
    assert!(ask(0, 1).is_ok() && ask(16, 2_000).is_ok());
    for refused in [ask(17, 1), ask(1, 0), ask(1, 2_001)] {
        assert_eq!(refused.unwrap_err().condition(), Condition::ArgumentOutOfRange);
    }
    let alone = read(r#"{"topology":{"hops":1}}"#).unwrap_err();
    assert_eq!(alone.condition(), Condition::ArgumentError);
}

/// CON-39: kinds and weights have the same names in JSON as in the core.
#[test]
fn kinds_of_findings_have_one_name() {
    assert_eq!(CheckKindName::ALL.len(), CheckKind::ALL.len());
    for kind in CheckKind::ALL {
        assert_eq!(CheckKindName::from(*kind).text(), kind.name());
    }
}

/// CON-02, CON-03, CON-25, CON-28: each bound is accepted, and the next value is refused with a
/// text that has the bound.
#[test]
fn bounds_are_named_when_they_are_exceeded() {
    let most = ROW_COUNT_MAX;
    for (form, name) in [
        ("heads", "count"),
        ("locks", "top"),
        ("sessions", "top"),
        ("entities", "top"),
        ("clients", "top"),
    ] {
        let question = |count: u32| read(&format!(r#"{{"{form}":{{"{name}":{count}}}}}"#));
        assert!(question(1).is_ok() && question(most).is_ok(), "{form}");
        for count in [0, most + 1] {
            let refused = question(count).unwrap_err();
            assert_eq!(refused.condition(), Condition::ArgumentOutOfRange);
            assert!(refused.detail().contains("500"), "{refused:?}");
        }
    }
    for (slots, seconds, is_taken) in [
        (1, 10, true),
        (240, 86_400, true),
        (0, 10, false),
        (241, 10, false),
        (1, 9, false),
        (1, 86_401, false),
    ] {
        let text = format!(r#"{{"timeline":{{"slots":{slots},"slotSeconds":{seconds}}}}}"#);
        assert_eq!(read(&text).is_ok(), is_taken, "{text}");
    }
    let body =
        |length: u64| read(&format!(r#"{{"body":{{"sequenceNumber":1,"length":{length}}}}}"#));
    assert!(body(BODY_BYTES_MAX).is_ok() && body(BODY_BYTES_MAX + 1).is_err());
}

/// CON-02: a position is the text of the same list; garbage and positions of other lists are
/// refused.
#[test]
fn position_belongs_to_its_list() {
    let cursor = Cursor { at: NOW, sequence: SequenceNumber(u64::MAX) };
    let start = HeadStart::After(cursor);
    let query = HeadQuery { order: HeadOrder::ExpiresAt, start, ..HeadQuery::default() };
    let form = QuestionForm::from(&Question::Heads(query.clone()));
    assert_eq!(form.to_question(NOW).unwrap(), Question::Heads(query));
    let beyond = RowKey { value: -1, name: "ä/ö".into() };
    let query = SessionQuery {
        order: SessionOrder::Oldest,
        is_descending: true,
        filter: peeklock_core::command::SessionFilter::All,
        from: None,
        beyond: Some(beyond),
        count_max: 9,
    };
    let form = QuestionForm::from(&Question::Sessions(query.clone()));
    assert_eq!(form.to_question(NOW).unwrap(), Question::Sessions(query));

    let text = Paged::Heads.cursor_text(cursor);
    let query = LockQuery { order: LockOrder::End, from: 0, after: Some(cursor), count_max: 100 };
    assert_ne!(Paged::Locks.cursor_text(cursor), text);
    let QuestionForm::Locks(mut form) = QuestionForm::from(&Question::Locks(query)) else {
        panic!()
    };
    form.after = Some(text);
    assert!(QuestionForm::Locks(form).to_question(NOW).is_err());
    let long = "A".repeat(POSITION_BYTES_MAX + 1);
    for text in ["", "A", "AAAA", "####", "AAAAAAAAAAAAAAAA", &long] {
        let json = format!(r#"{{"heads":{{"after":"{text}"}}}}"#);
        assert_eq!(read(&json).unwrap_err().condition(), Condition::ArgumentError, "{text}");
    }
    assert!(read(r#"{"heads":{"from":1,"fromUtc":"2026-05-01T12:00:00Z"}}"#).is_err());
}

/// CON-02: a set of states has exactly its states, and the default has all.
#[test]
fn states_are_a_set() {
    let some: HeadStates = [HeadState::Locked, HeadState::Active].into_iter().collect();
    let found: Vec<_> = HeadState::ALL.into_iter().filter(|it| some.contains(*it)).collect();
    assert_eq!(found, [HeadState::Locked, HeadState::Active]);
    assert_eq!(HeadState::ALL.into_iter().collect::<HeadStates>(), HeadStates::ALL);
    assert!(HeadStates::default().is_empty() && !some.is_empty());
}

/// CON-02: a position keeps the longest names, and names that need escapes in JSON and in addresses.
#[test]
fn position_keeps_every_name() {
    for name in ["😀".repeat(128), "\u{1}\"\\%/?#&+ ".repeat(10), "a".repeat(260), String::new()]
    {
        for value in [i64::MIN, -1, 0, i64::MAX] {
            let key = RowKey { value, name: name.as_str().into() };
            let text = Paged::Sessions.key_text(&key);
            assert!(text.len() <= POSITION_BYTES_MAX);
            assert!(text.bytes().all(|it| it.is_ascii_alphanumeric() || it == b'-' || it == b'_'));
            assert_eq!(Paged::Sessions.parse_key(&text).unwrap(), key);
            assert!(Paged::Entities.parse_key(&text).is_err());
        }
    }
}

/// CON-03: wherever a text is cut, its start ends before the character that was cut, so that the
/// rest continues at its length.
#[test]
fn start_of_a_text_ends_before_a_cut_character() {
    use super::message::text_start;
    let text = "\u{1}\"\\\né€😀\u{202e}".repeat(20);
    for end in 0..=text.len() {
        let start = text_start(&text.as_bytes()[..end], text.len() as u64).unwrap();
        assert!(text.starts_with(start) && start.len() <= end && end - start.len() < 4, "{end}");
        assert!(text.is_char_boundary(start.len()));
        let is_whole = text.is_char_boundary(end);
        assert_eq!(start.len() == end, is_whole, "{end}");
    }
}

/// CON-03: the start of a body is text up to its last whole character, and Base64 otherwise.
#[test]
fn start_of_a_body_is_cut_at_a_character() {
    use super::message::text_start;
    let long = format!("{}é", "x".repeat(255));
    let (start, _) = long.as_bytes().split_at(256);
    assert_eq!(text_start(start, 300), Some("x".repeat(255).as_str()));
    assert_eq!(text_start(start, 256), None, "a body that ends within a character is no text");
    assert_eq!(text_start(b"", 0), Some(""));
    assert_eq!(text_start(&[0xff, 0xfe], 300), None);
}

/// CON-05, CON-07: a position of a search survives a round trip; positions of other lists are
/// refused.
#[test]
fn position_of_a_search_is_read_back() {
    let Question::Search(SearchStep::Begin(mut query)) =
        read(r#"{"search":{"begin":{}}}"#).unwrap()
    else {
        panic!()
    };
    let path = "orders/$deadletterqueue".into();
    query.after = Some(SearchPosition { path, sequence: SequenceNumber(u64::MAX) });
    let question = Question::Search(SearchStep::Begin(query));
    assert_eq!(QuestionForm::from(&question).to_question(NOW).unwrap(), question);
    let other = Paged::Entities.key_text(&RowKey { value: 1, name: "orders".into() });
    let refused = read(&format!(r#"{{"search":{{"begin":{{"after":"{other}"}}}}}}"#)).unwrap_err();
    assert_eq!(refused.condition(), Condition::ArgumentError);
    assert!(read(r#"{"search":{"begin":{"hits":1,"groupBy":"reason"}}}"#).is_err());
}

/// CON-06, CON-49: clauses and their line are forms of each other.
#[test]
fn clauses_and_their_line_are_forms_of_each_other() {
    let line = "text:timeout text~Time body:a body~A property:x property~X not id=17 subject:a \
                subject~A reason=\"\" description:d source=s session=s correlation=c body.$.a \
                body.$.a=17 body.$.b!=\"17\" body.$.c=null body.$.d=true body.$.e:x body.$.e~X \
                body.$.f<1.5 body.$.f<=2 body.$.f>b body.$.f>=4 sql:\"price > 5\" number=1 \
                tries!=2 size<3 enqueued>=2026-05-01T12:00:00Z scheduled>2026-05-01T12:00:00Z \
                expires<=2026-05-01T12:00:00Z";
    let line = line.replace("body.$.f>b", "body.$.f>\"b\"");
    let parsed = Where::parse(&line, NOW).unwrap();
    assert_eq!(parsed.to_string(), line.split_whitespace().collect::<Vec<_>>().join(" "));
    let forms: Vec<ClauseForm> = parsed.clauses().iter().map(ClauseForm::from).collect();
    let text = serde_json::to_string(&forms).unwrap();
    let read: WhereForm = serde_json::from_str(&text).unwrap();
    assert_eq!(read, WhereForm::Clauses(forms));
    assert_eq!(read.to_where(NOW).unwrap(), parsed);
    let line: WhereForm = serde_json::from_str("\"timeout\"").unwrap();
    assert_eq!(line.to_where(NOW).unwrap().to_string(), "text:timeout");
    for refused in [
        r#"{"field":"subject","is":"less","value":"a"}"#,
        r#"{"field":"subject","is":"contains","value":17}"#,
        r#"{"field":"subject","path":"$.a","is":"contains","value":"a"}"#,
        r#"{"field":"size","is":"contains","value":"a"}"#,
        r#"{"field":"size","is":"equals","value":-1}"#,
        r#"{"field":"enqueuedTimeUtc","is":"less","value":"-2h"}"#,
        r#"{"field":"json","is":"exists"}"#,
        r#"{"field":"json","path":"$.a","is":"equals","value":[]}"#,
        r#"{"field":"sql","is":"equals","value":"price > 5"}"#,
        r#"{"field":"sql","value":"price >"}"#,
        r#"{"field":"body","value":"x"}"#,
    ] {
        let form: ClauseForm = serde_json::from_str(refused).unwrap();
        assert!(WhereForm::Clauses(vec![form]).to_where(NOW).is_err(), "{refused}");
    }
}

//! Rules over Atom: each kind of filter, action and value.

use super::atom::{VERSION, entry, refusal, text, texts};
use super::client::Answer;
use super::server::Server;

async fn start() -> Server {
    let server = Server::start().await;
    let created = server.ask(&format!("PUT /t?{VERSION}"), entry("TopicDescription", "")).await;
    assert_eq!(created.status, 201);
    let head = format!("PUT /t/subscriptions/s?{VERSION}");
    assert_eq!(server.ask(&head, entry("SubscriptionDescription", "")).await.status, 201);
    server
}

async fn put(server: &Server, name: &str, rule: &str) -> Answer {
    let head = format!("PUT /t/subscriptions/s/rules/{name}?{VERSION}");
    server.ask(&head, entry("RuleDescription", rule)).await
}

/// Returns the element `Filter` or `Action` of a rule.
fn part(answer: &Answer, name: &str) -> String {
    let start = answer.text().find(&format!("<{name} ")).unwrap();
    let rest = &answer.text()[start..];
    let end = rest
        .find(&format!("</{name}>"))
        .map_or_else(|| rest.find("/>").unwrap() + 2, |end| end + name.len() + 3);
    rest[..end].to_owned()
}

/// ADM-40, ADM-43, TOP-14: all kinds of filters and actions are returned with the content that was
/// sent.
#[tokio::test]
async fn every_filter_and_action_comes_back() {
    let server = start().await;
    let level = "<CompatibilityLevel>20</CompatibilityLevel>";
    let none = "<Action i:type=\"EmptyRuleAction\"/>";
    for (place, (filter, action, filter_told, action_told)) in [
        ("<Filter i:type=\"TrueFilter\"><SqlExpression>1=1</SqlExpression></Filter>", "",
            format!("<Filter i:type=\"TrueFilter\"><SqlExpression>1=1</SqlExpression>{level}</Filter>"), none.to_owned()),
        ("", "<Action i:type=\"EmptyRuleAction\"/>",
            format!("<Filter i:type=\"TrueFilter\"><SqlExpression>1=1</SqlExpression>{level}</Filter>"), none.to_owned()),
        ("<Filter i:type=\"FalseFilter\"><SqlExpression>1&gt;1</SqlExpression></Filter>", "",
            format!("<Filter i:type=\"FalseFilter\"><SqlExpression>1=0</SqlExpression>{level}</Filter>"), none.to_owned()),
        ("<Filter i:type=\"SqlFilter\"><SqlExpression>a &lt; 3</SqlExpression><CompatibilityLevel>20</CompatibilityLevel><RequiresPreprocessing>true</RequiresPreprocessing></Filter>",
            "<Action i:type=\"SqlRuleAction\"><SqlExpression>SET x = 1</SqlExpression></Action>",
            format!("<Filter i:type=\"SqlFilter\"><SqlExpression>a &lt; 3</SqlExpression>{level}</Filter>"),
            format!("<Action i:type=\"SqlRuleAction\"><SqlExpression>SET x = 1</SqlExpression>{level}</Action>")),
        ("<Filter i:type=\"CorrelationFilter\"><ContentType>c</ContentType><Label>l</Label><CorrelationId>i</CorrelationId><MessageId>m</MessageId>\
          <To>t</To><ReplyTo>r</ReplyTo><SessionId>s</SessionId><ReplyToSessionId>z</ReplyToSessionId></Filter>", "",
            "<Filter i:type=\"CorrelationFilter\"><CorrelationId>i</CorrelationId><MessageId>m</MessageId><To>t</To><ReplyTo>r</ReplyTo><Label>l</Label>\
             <SessionId>s</SessionId><ReplyToSessionId>z</ReplyToSessionId><ContentType>c</ContentType></Filter>".to_owned(), none.to_owned()),
    ].into_iter().enumerate() {
        let name = format!("r{place}");
        let created = put(&server, &name, &format!("{filter}{action}<Name>{name}</Name>")).await;
        assert_eq!(created.status, 201, "{}", created.text());
        let read = server.ask(&format!("GET /t/Subscriptions/s/Rules/{name}?{VERSION}"), "").await;
        for answer in [created, read] {
            assert_eq!(part(&answer, "Filter"), filter_told);
            assert_eq!(part(&answer, "Action"), action_told);
            assert_eq!(texts(&answer, "CreatedAt"), ["2026-05-01T12:00:00Z"]);
        }
    }
    assert_eq!(refusal(&put(&server, "R0", "").await), (409, "40900".to_owned()));
    let wrong = put(
        &server,
        "w",
        "<Filter i:type=\"SqlFilter\"><SqlExpression>a = = 3</SqlExpression></Filter>",
    )
    .await;
    assert_eq!(refusal(&wrong).0, 400);
    assert!(
        text(&wrong, "Detail").contains('5') && text(&wrong, "Detail").contains('='),
        "{}",
        wrong.text()
    );
    for (rule, said) in [
        ("<Filter i:type=\"RegexFilter\"/>", "RegexFilter"),
        ("<Filter i:type=\"SqlFilter\"/>", "no SqlExpression"),
        ("<Filter i:type=\"CorrelationFilter\"/>", "w"),
        ("<Action i:type=\"Other\"/>", "Other"),
    ] {
        let refused = put(&server, "w", rule).await;
        assert_eq!(refused.status, 400, "{rule}");
        assert!(refused.text().contains(said), "{}", refused.text());
    }
    server.stop().await;
}

/// ADM-47: a topic counts its rules by kind, over all subscriptions.
#[tokio::test]
async fn rules_are_counted_by_kind() {
    let server = start().await;
    let sql = "<Filter i:type=\"SqlFilter\"><SqlExpression>a &lt; 3</SqlExpression></Filter>";
    let correlation =
        "<Filter i:type=\"CorrelationFilter\"><CorrelationId>i</CorrelationId></Filter>";
    for (name, rule) in [("a", sql), ("b", sql), ("c", correlation)] {
        assert_eq!(put(&server, name, rule).await.status, 201);
    }
    let counts = async || {
        let topic = server.ask(&format!("GET /t?{VERSION}"), "").await;
        ["SqlFilterCount", "CorrelationFilterCount"].map(|name| text(&topic, name))
    };
    // `$Default` counts as an SQL rule.
    assert_eq!(counts().await, ["3", "1"]);
    let gone = server.ask(&format!("DELETE /t/subscriptions/s/rules/a?{VERSION}"), "").await;
    assert_eq!(gone.status, 200);
    assert_eq!(counts().await, ["2", "1"]);
    server.stop().await;
}

/// ADM-41: each type of value is returned as it was sent. An `int` beyond 32 bits stays an `int`,
/// independently of other stored elements of its rule.
#[tokio::test]
async fn every_type_of_value_comes_back() {
    let server = start().await;
    const SERIALIZATION: &str = "http://schemas.microsoft.com/2003/10/Serialization/";
    const SCHEMA: &str = "http://www.w3.org/2001/XMLSchema";
    let values = [
        ("string", "red &amp; blue", SCHEMA),
        ("boolean", "true", SCHEMA),
        ("byte", "-128", SCHEMA),
        ("short", "-32768", SCHEMA),
        ("int", "-2147483648", SCHEMA),
        ("int", "5000000000", SCHEMA),
        ("int", "-5000000000", SCHEMA),
        ("long", "5000000000", SCHEMA),
        ("long", "7", SCHEMA),
        ("unsignedByte", "255", SCHEMA),
        ("unsignedShort", "65535", SCHEMA),
        ("unsignedInt", "4294967295", SCHEMA),
        ("unsignedLong", "18446744073709551615", SCHEMA),
        ("double", "1.5", SCHEMA),
        ("double", "INF", SCHEMA),
        ("double", "-INF", SCHEMA),
        ("double", "NaN", SCHEMA),
        ("float", "0.25", SCHEMA),
        ("decimal", "-12.3450", SCHEMA),
        ("decimal", "9999999999999999999999999999999999", SCHEMA),
        ("decimal", "0.001", SCHEMA),
        ("dateTime", "2026-05-01T12:00:00.123Z", SCHEMA),
        ("dateTime", "2026-05-01T12:00:00.1234567Z", SCHEMA),
        ("dateTime", "2026-05-01T12:00:00.123", SCHEMA),
        ("dateTime", "2026-05-01T12:00:00.1234567", SCHEMA),
        ("duration", "-P1DT2H", SCHEMA),
        ("duration", "PT0.5S", SCHEMA),
        ("base64Binary", "AAEC", SCHEMA),
        ("guid", "0f8fad5b-d9cb-469f-a165-70867728950e", SERIALIZATION),
        ("char", "65", SERIALIZATION),
    ];
    let pairs: String = values.iter().enumerate().map(|(place, (kind, value, namespace))| {
        format!("<KeyValueOfstringanyType><Key>@p{place}</Key><Value i:type=\"x:{kind}\" xmlns:x=\"{namespace}\">{value}</Value></KeyValueOfstringanyType>")
    }).collect();
    let filter = format!(
        "<Filter i:type=\"SqlFilter\"><SqlExpression>a = @p1</SqlExpression><Parameters>{pairs}</Parameters></Filter>"
    );
    // As many attributes as may be read; the declaration of its namespace adds another.
    let wide: String = (0..32).map(|number| format!(" a{number}=\"\"")).collect();
    let created = put(&server, "sql", &format!("{filter}<Wide{wide}/>")).await;
    assert_eq!(created.status, 201, "{}", created.text());
    let pairs = pairs.replace("@p", "p");
    let filter =
        format!("<Filter i:type=\"CorrelationFilter\"><Properties>{pairs}</Properties></Filter>");
    let correlated = put(&server, "correlation", &filter).await;
    assert_eq!(correlated.status, 201, "{}", correlated.text());
    for (answer, mark) in [(created, "@"), (correlated, "")] {
        for (place, (kind, value, namespace)) in values.iter().enumerate() {
            let expected = format!(
                "<Key>{mark}p{place}</Key><Value xmlns:i=\"http://www.w3.org/2001/XMLSchema-instance\" i:type=\"d6p1:{kind}\" \
                 xmlns:d6p1=\"{namespace}\">{value}</Value>"
            );
            assert!(answer.text().contains(&expected), "{expected}\n{}", answer.text());
        }
    }
    for (kind, value) in [
        ("int", "many"),
        ("boolean", "yes"),
        ("double", "inf"),
        ("decimal", "1e5"),
        ("char", "-1"),
        ("dateTime", "today"),
        ("byte", "200"),
        ("long", "9223372036854775808"),
        ("guid", "x"),
        ("base64Binary", "?"),
        ("relay", "x"),
        ("decimal", "12345678901234567890123456789012345"),
    ] {
        let filter = format!(
            "<Filter i:type=\"CorrelationFilter\"><Properties><KeyValueOfstringanyType><Key>k</Key>\
            <Value i:type=\"x:{kind}\" xmlns:x=\"{SCHEMA}\">{value}</Value></KeyValueOfstringanyType></Properties></Filter>"
        );
        let refused = put(&server, "wrong", &filter).await;
        assert_eq!(refused.status, 400, "{kind} {value}");
        assert!(refused.text().contains("`k`"), "{}", refused.text());
    }
    server.stop().await;
}

/// ADM-42, TOP-12, TOP-17: a subscription is created with the given rule, or with the default rule,
/// or not at all.
#[tokio::test]
async fn a_subscription_has_the_first_rule_that_it_names() {
    let server = start().await;
    let create = async |name: &str, rule: &str| {
        let head = format!("PUT /t/subscriptions/{name}?{VERSION}");
        server.ask(&head, entry("SubscriptionDescription", rule)).await
    };
    let rules = async |name: &str| {
        let answer = server.ask(&format!("GET /t/subscriptions/{name}/rules?{VERSION}"), "").await;
        texts(&answer, "Name")
    };
    assert_eq!(rules("s").await, ["$Default"]);
    let rule = "<DefaultRuleDescription><Filter i:type=\"SqlFilter\"><SqlExpression>a = 1</SqlExpression></Filter><Name>first</Name></DefaultRuleDescription>";
    assert_eq!(create("named", rule).await.status, 201);
    assert_eq!(rules("named").await, ["first"]);
    assert_eq!(create("unnamed", &rule.replace("<Name>first</Name>", "")).await.status, 201);
    assert_eq!(rules("unnamed").await, ["$Default"]);
    assert_eq!(create("wrong", &rule.replace("a = 1", "a =")).await.status, 400);
    assert_eq!(server.ask(&format!("GET /t/subscriptions/wrong?{VERSION}"), "").await.status, 404);
    server.stop().await;
}

/// HTP-12, HTP-17, TOP-24: a rule is replaced as a whole, keeps unknown elements, and is deleted.
#[tokio::test]
async fn a_rule_is_replaced_and_deleted() {
    let server = start().await;
    let rule = "<Filter i:type=\"TrueFilter\"/><Action i:type=\"SqlRuleAction\"><SqlExpression>SET a = 1</SqlExpression></Action><Tag>blue</Tag>";
    let created = put(&server, "r", rule).await;
    assert_eq!(created.status, 201);
    assert!(created.text().contains(">blue</Tag>"), "{}", created.text());
    let head = format!("PUT /t/subscriptions/s/rules/r?{VERSION}\nIf-Match: *");
    let updated =
        server.ask(&head, entry("RuleDescription", "<Filter i:type=\"FalseFilter\"/>")).await;
    assert_eq!(updated.status, 200);
    assert!(updated.text().contains("FalseFilter") && updated.text().contains("EmptyRuleAction"));
    assert!(!updated.text().contains("blue"));
    let delete = format!("DELETE /t/subscriptions/s/rules/R?{VERSION}");
    assert_eq!(server.ask(&delete, "").await.status, 200);
    assert_eq!(refusal(&server.ask(&delete, "").await), (404, "40400".to_owned()));
    assert_eq!(server.ask(&head, entry("RuleDescription", "")).await.status, 404);
    server.stop().await;
}

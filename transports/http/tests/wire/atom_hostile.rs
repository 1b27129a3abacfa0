//! XML that no client should send, and text that XML cannot hold.

use peeklock_core::description::QueueUpdate;

use super::atom::{VERSION, entry, refusal, text};
use super::server::Server;

/// ADM-50, HTP-17: bombs of entities, depth, number, size and attributes are refused by their bounds, and so is what is no XML; the
/// listener goes on.
#[tokio::test]
async fn xml_beyond_its_bounds_is_refused() {
    let server = Server::start().await;
    let put = format!("PUT /x?{VERSION}");
    let laughs: String = (1..10)
        .map(|level| format!("<!ENTITY l{level} \"{}\">", format!("&l{};", level - 1).repeat(10)))
        .collect();
    let bomb = format!(
        "<!DOCTYPE entry [<!ENTITY l0 \"ha\">{laughs}]>{}",
        entry("QueueDescription", "<UserMetadata>&l9;</UserMetadata>")
    );
    let external = format!(
        "<!DOCTYPE entry [<!ENTITY x SYSTEM \"file:///etc/passwd\">]>{}",
        entry("QueueDescription", "<UserMetadata>&x;</UserMetadata>")
    );
    let deep =
        entry("QueueDescription", &format!("{}{}", "<a>".repeat(10_000), "</a>".repeat(10_000)));
    let many = entry("QueueDescription", &"<a/>".repeat(20_000));
    let attributes: String = (0..100).map(|number| format!(" a{number}=\"1\"")).collect();
    let wide = entry("QueueDescription", &format!("<a{attributes}/>"));
    for (body, said) in [
        (bomb, "document type"),
        (external, "document type"),
        (entry("QueueDescription", "<UserMetadata>&x;</UserMetadata>"), "entity"),
        (deep, "32 elements inside each other"),
        (many, "16384 elements"),
        (wide, "32 attributes"),
        (entry("QueueDescription", "<a b=\"1\" b=\"2\"/>"), "not the XML expected"),
        (entry("QueueDescription", "<x:a/>"), "prefix"),
        (String::new(), "empty"),
        ("{}".to_owned(), "text beside the root"),
        ("<entry>".to_owned(), "not the XML expected"),
        ("<a></b>".to_owned(), "not the XML expected"),
        ("<a/><b/>".to_owned(), "second root"),
        ("<feed xmlns=\"http://www.w3.org/2005/Atom\"/>".to_owned(), "no entry"),
        ("<entry xmlns=\"http://www.w3.org/2005/Atom\"/>".to_owned(), "no content"),
        (
            "<entry xmlns=\"http://www.w3.org/2005/Atom\"><content/></entry>".to_owned(),
            "no description",
        ),
        (entry("RelayDescription", ""), "no QueueDescription"),
    ] {
        let answer = server.ask(&put, &body).await;
        assert_eq!(refusal(&answer).0, 400, "{said}: {}", answer.text());
        assert!(answer.text().contains(said), "{said}: {}", answer.text());
        assert!(!answer.text().contains("root:"));
    }
    let large = entry(
        "QueueDescription",
        &format!("<UserMetadata>{}</UserMetadata>", "x".repeat(300 << 10)),
    );
    assert_eq!(refusal(&server.ask(&put, &large).await), (403, "40300".to_owned()));
    let latin = [b"<a>".as_slice(), &[0xe9], b"</a>"].concat();
    assert!(server.ask(&put, latin).await.text().contains("UTF-8"));
    assert_eq!(server.ask(&format!("GET /x?{VERSION}"), "").await.status, 404);
    assert_eq!(server.ask(&put, entry("QueueDescription", "")).await.status, 201);
    server.stop().await;
}

/// ADM-51: what goes beyond a quota is 403 with a sub-code by which no client takes it for an invalid operation; who has
/// to come back is told 503, and when.
#[tokio::test]
async fn quotas_and_want_of_room_are_told_apart() {
    let mut plan = Plan::new();
    plan.settings.limits.entity_count_max = 2;
    plan.config.inbound_bytes_max = 64 << 10;
    let server = plan.start().await;
    let put = |name: &str| format!("PUT /{name}?{VERSION}");
    let metadata = format!("<UserMetadata>{}</UserMetadata>", "x".repeat(1_000));
    let small = entry("QueueDescription", &metadata);
    let mut slow = server.connect().await;
    let head = format!("{}\nContent-Length: 60001", put("slow"));
    slow.write(&server.request(&head, "")).await;
    slow.write(" ".repeat(60_000).as_bytes()).await;
    server.in_progress(2).await;
    let large = format!("{small}{}", " ".repeat(60_000 - small.len()));
    assert_eq!(server.ask(&put("x"), &large).await.status, 201);
    let busy = slow.read().await.unwrap();
    assert_eq!(refusal(&busy), (503, "50300".to_owned()));
    assert_eq!(busy.header("retry-after"), Some("10"));
    let full = server.ask(&put("y"), &small).await;
    assert_eq!(refusal(&full), (403, "40300".to_owned()), "{}", full.text());
    assert!(full.text().contains('2'), "the quota is named: {}", full.text());
    server.stop().await;
}

/// ADM-30, ADM-50: a request with any byte changed or left out gets an answer, or the end of the connection; nobody panics.
#[tokio::test]
async fn any_byte_may_be_wrong() {
    let server = Server::start().await;
    let body = entry(
        "RuleDescription",
        "<Filter i:type=\"CorrelationFilter\"><Properties><KeyValueOfstringanyType><Key>k</Key><Value i:type=\"x:int\" \
         xmlns:x=\"http://www.w3.org/2001/XMLSchema\">1</Value></KeyValueOfstringanyType></Properties></Filter>",
    );
    let head = format!("PUT /t/subscriptions/s/rules/r?{VERSION}");
    let mut client = server.connect().await;
    for place in 0..body.len() {
        for wrong in [0, b'<', b'&', b'"', 0xff] {
            let mut bytes = body.clone().into_bytes();
            bytes[place] = wrong;
            client.write(&server.request(&head, bytes)).await;
            let Some(answer) = client.read().await else {
                client = server.connect().await;
                continue;
            };
            assert!(matches!(answer.status, 400 | 404), "{place} {wrong}: {}", answer.text());
        }
        let cut = server.ask(&head, &body.as_bytes()[..place]).await;
        assert!(matches!(cut.status, 400 | 404), "{}", cut.text());
    }
    server.stop().await;
}

/// ADM-32: text that XML cannot hold breaks no list of its readers.
#[tokio::test]
async fn text_that_xml_cannot_hold_is_shown_as_such() {
    let server = Server::start().await;
    let metadata = "a\u{0}\u{1b}\u{fffe}<>&\"'\r\n\tb";
    let properties = QueueUpdate { user_metadata: Some(metadata.into()), ..QueueUpdate::default() };
    server.broker.create_queue("m", properties).await.unwrap();
    let answer = server.ask(&format!("GET /m?{VERSION}"), "").await;
    let told = text(&answer, "UserMetadata");
    assert_eq!(told, "a\u{fffd}\u{fffd}\u{fffd}&lt;&gt;&amp;&quot;&apos;&#13;\n\tb");
    // What was told can be sent back.
    let head = format!("PUT /back?{VERSION}");
    let created = server
        .ask(&head, entry("QueueDescription", &format!("<UserMetadata>{told}</UserMetadata>")))
        .await;
    assert_eq!(text(&created, "UserMetadata"), told);
    server.stop().await;
}

//! XML that no client should send, and text that XML cannot contain.

use peeklock_core::description::QueueUpdate;

use super::atom::{SB, VERSION, entry, refusal, text};
use super::client::Answer;
use super::server::{Plan, Server};

/// ADM-50, HTP-17: entity bombs, and documents beyond the bounds of depth, number, size and
/// attributes, are refused, and so is malformed XML. The listener keeps working.
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
        (entry("QueueDescription", "<a b=\"1\" b=\"2\"/>"), "not the expected XML"),
        (entry("QueueDescription", "<x:a/>"), "prefix"),
        (entry("QueueDescription", "<fo&o>1</fo&o>"), "`fo&amp;o` is not a name"),
        (entry("QueueDescription", "<1bad/>"), "`1bad` is not a name"),
        (entry("QueueDescription", "<foo a&b=\"1\"/>"), "`a&amp;b` is not a name"),
        (entry("QueueDescription", "<foo -a=\"1\"/>"), "`-a` is not a name"),
        (entry("QueueDescription", "<a:b:c xmlns:a=\"urn:a\"/>"), "`a:b:c` is not a name"),
        (entry("QueueDescription", "<a: xmlns:a=\"urn:a\"/>"), "`a:` is not a name"),
        (entry("QueueDescription", "<a\u{d7}b/>"), "is not a name"),
        (entry("QueueDescription", "<a xmlns:1=\"urn:a\"/>"), "is not a name"),
        (
            entry(
                "QueueDescription",
                "<a xmlns:b=\"urn:a\" xmlns:c=\"urn:a\" b:d=\"1\" c:d=\"2\"/>",
            ),
            "attribute twice",
        ),
        (
            entry("QueueDescription", "<a xmlns=\"http://www.w3.org/2000/xmlns/\"/>"),
            "not the expected XML",
        ),
        (
            entry("QueueDescription", "<a xmlns=\"http://www.w3.org/2000/xmln&#115;/\"/>"),
            "an invalid namespace",
        ),
        (
            entry(
                "QueueDescription",
                "<a xmlns:b=\"urn:&#1;\" xmlns:c=\"urn:&#2;\" b:d=\"1\" c:d=\"2\"/>",
            ),
            "an invalid namespace",
        ),
        (String::new(), "empty"),
        ("{}".to_owned(), "text outside the root"),
        ("<entry>".to_owned(), "not the expected XML"),
        ("<a></b>".to_owned(), "not the expected XML"),
        ("<a/><b/>".to_owned(), "second root"),
        ("<feed xmlns=\"http://www.w3.org/2005/Atom\"/>".to_owned(), "must be an entry"),
        ("<entry xmlns=\"http://www.w3.org/2005/Atom\"/>".to_owned(), "no content"),
        (
            "<entry xmlns=\"http://www.w3.org/2005/Atom\"><content/></entry>".to_owned(),
            "no description",
        ),
        (entry("RelayDescription", ""), "must be a QueueDescription"),
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

/// ADM-51: an exceeded quota is 403 with a sub-code that no client takes for an invalid operation.
/// Temporary lack of memory is 503 with a time to retry.
#[tokio::test]
async fn quotas_and_lack_of_memory_have_different_errors() {
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

/// ADM-30, ADM-50: a request with any byte changed or omitted gets an answer or the end of the
/// connection; no thread panics.
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

/// ADM-32: text that XML cannot contain does not make a list unreadable.
#[tokio::test]
async fn text_that_xml_cannot_hold_is_shown_as_such() {
    let server = Server::start().await;
    let metadata = "a\u{0}\u{1b}\u{fffe}<>&\"'\r\n\tb";
    let properties = QueueUpdate { user_metadata: Some(metadata.into()), ..QueueUpdate::default() };
    server.broker.create_queue("m", properties).await.unwrap();
    let answer = server.ask(&format!("GET /m?{VERSION}"), "").await;
    let told = text(&answer, "UserMetadata");
    assert_eq!(told, "a\u{fffd}\u{fffd}\u{fffd}&lt;&gt;&amp;\"'&#13;\n\tb");
    // The returned text can be sent back.
    let head = format!("PUT /back?{VERSION}");
    let created = server
        .ask(&head, entry("QueueDescription", &format!("<UserMetadata>{told}</UserMetadata>")))
        .await;
    assert_eq!(text(&created, "UserMetadata"), told);
    server.stop().await;
}

/// Parses an answer with another XML library: for each description in it, the name, namespace and
/// full text of each element.
fn as_others_read(answer: &Answer) -> Vec<Vec<(String, String, String)>> {
    let document = roxmltree::Document::parse(answer.text());
    let document = document.unwrap_or_else(|error| panic!("{error}: {}", answer.text()));
    let is_description = |it: &roxmltree::Node<'_, '_>| it.has_tag_name((SB, "QueueDescription"));
    let read = |it: roxmltree::Node<'_, '_>| {
        let name = it.tag_name();
        let namespace = name.namespace().unwrap_or_default().to_owned();
        let texts = it.descendants().filter(|it| it.is_text()).filter_map(|it| it.text());
        (namespace, name.name().to_owned(), texts.collect::<String>())
    };
    let descriptions = document.descendants().filter(is_description);
    let elements = |it: roxmltree::Node<'_, '_>| {
        it.children().filter(|it| it.is_element()).map(read).collect()
    };
    descriptions.map(elements).collect()
}

/// Returns `count` attributes; `form` writes the attribute with this number.
fn attributes(count: usize, form: impl Fn(usize) -> String) -> String {
    (0..count).map(form).collect()
}

/// HTP-17, ADM-30: stored elements are returned in a form that each XML library reads, also in
/// lists, and later changes lose nothing. Covered are names in any script, attributes with the
/// predefined prefix, namespaces with special characters, text between elements, and the maximum
/// number of attributes and the longest namespace, to which the broker adds declarations and
/// escapes.
#[tokio::test]
async fn stored_elements_are_read_by_other_libraries() {
    let server = Server::start().await;
    let head = format!("PUT /k?{VERSION}");
    let wide = attributes(32, |it| format!(" a{it}=\"{it}\""));
    let declared = attributes(16, |it| format!(" xmlns:p{it}=\"urn:{it}\" p{it}:b=\"of {it}\""));
    // One declaration of the client, and one of the broker for each attribute, all in scope at the
    // innermost element.
    let deep = attributes(31, |it| format!(" p:c{it}=\"\""));
    let deep = [format!("<p:Deep{deep} xmlns:p=\"urn:p\">"), format!("<p:Deep{deep}>").repeat(4)];
    let marked = format!("urn:{}", "'".repeat(100));
    let first = format!(
        "<Colour>1</Colour><größe>2</größe><色 xml:space=\"preserve\"> 3 </色><_a-b.c>4</_a-b.c>\
         <x:Part xmlns:x=\"urn:a?b=c&amp;d\" x:of=\"it\" xml:lang=\"en\">5</x:Part>\
         <Wide{wide}>8</Wide><Declared{declared}>9</Declared>\
         <Marked xmlns=\"{marked}\">10</Marked>{}11{}\
         <Mixed>one <b>two</b><b/> three <b>four</b> five</Mixed>",
        deep.concat(),
        "</p:Deep>".repeat(5)
    );
    let created = server.ask(&head, entry("QueueDescription", &first)).await;
    assert_eq!(created.status, 201, "{}", created.text());
    let later = "<Later xml:lang=\"de\">7</Later>";
    let update = format!("{head}\nIf-Match: *");
    assert_eq!(server.ask(&update, entry("QueueDescription", later)).await.status, 200);
    assert_eq!(server.ask(&update, entry("QueueDescription", "")).await.status, 200);
    for address in ["k", "$Resources/queues"] {
        let answer = server.ask(&format!("GET /{address}?{VERSION}"), "").await;
        let read: Vec<_> = as_others_read(&answer).into_iter().flatten().collect();
        for (namespace, name, text) in [
            (SB, "Colour", "1"),
            (SB, "größe", "2"),
            (SB, "色", " 3 "),
            (SB, "_a-b.c", "4"),
            ("urn:a?b=c&d", "Part", "5"),
            (SB, "Wide", "8"),
            (SB, "Declared", "9"),
            (&*marked, "Marked", "10"),
            ("urn:p", "Deep", "11"),
            (SB, "Mixed", "one two three four five"),
            (SB, "Later", "7"),
        ] {
            let kept = (namespace.to_owned(), name.to_owned(), text.to_owned());
            assert!(read.contains(&kept), "{address} {name}: {}", answer.text());
        }
        for said in [
            "xml:lang=\"en\"",
            "xml:lang=\"de\"",
            "xml:space=\"preserve\"",
            "a31=\"31\"",
            "b=\"of 15\"",
        ] {
            assert!(answer.text().contains(said), "{said}: {}", answer.text());
        }
    }
    server.stop().await;
}

/// HTP-17, ADM-23, ADM-50: with any byte of a description changed or inserted, an accepted
/// description is returned as XML that other libraries read, also in the list of the namespace.
#[tokio::test]
async fn no_byte_that_is_taken_breaks_a_list() {
    let server = Server::start().await;
    let kept = "<Ab c=\"1\" x:d='2' xmlns:x=\"urn:x\"><x:E xml:f=\"&lt;\">3<![CDATA[<]]></x:E><!--g--></Ab>";
    let head = format!("PUT /b?{VERSION}");
    let list = format!("GET /$Resources/queues?{VERSION}");
    let mut taken = 0;
    for place in 0..kept.len() {
        for wrong in *b"&<>'\"=:/!?-.1; \t\n#]\x01\x7f\xc3" {
            for is_besides in [false, true] {
                let mut bytes = kept.as_bytes().to_vec();
                bytes.splice(place..place + usize::from(!is_besides), [wrong]);
                let (before, after) = {
                    let around = entry("QueueDescription", "|");
                    let (before, after) = around.split_once('|').unwrap();
                    (before.as_bytes().to_vec(), after.as_bytes().to_vec())
                };
                let answer = server.ask(&head, [before, bytes.clone(), after].concat()).await;
                if answer.status == 400 {
                    continue;
                }
                let shown = String::from_utf8_lossy(&bytes);
                assert_eq!(answer.status, 201, "{shown}: {}", answer.text());
                as_others_read(&answer);
                assert_eq!(as_others_read(&server.ask(&list, "").await).len(), 2, "{shown}");
                assert_eq!(server.ask(&format!("DELETE /b?{VERSION}"), "").await.status, 200);
                taken += 1;
            }
        }
    }
    assert!(taken > 200, "{taken} of them are XML all the same");
    server.stop().await;
}

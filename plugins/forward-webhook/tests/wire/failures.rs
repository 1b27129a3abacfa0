//! Tests of messages that are not accepted.

use std::time::Duration;

use peeklock_core::contract::Verdict;
use peeklock_forward_webhook::Reach;

use crate::server::*;

#[test]
fn an_answer_decides() {
    run(async {
        for status in ["200 OK", "204 No Content", "299 Fine"] {
            assert_eq!(verdict_of(vec![answer(status, "")]).await, Verdict::Delivered);
        }
        for status in ["400 Bad Request", "404 Not Found", "410 Gone", "304 Not Modified"] {
            let Verdict::Refused { reason, description } =
                verdict_of(vec![answer(status, "")]).await
            else {
                panic!("{status}")
            };
            assert_eq!(&*reason, "WebhookRefused");
            assert!(description.contains(status), "{description}");
            assert!(description.contains("127.0.0.1"), "{description}");
        }
        for status in [
            "408 Request Timeout",
            "425 Too Early",
            "429 Too Many Requests",
            "500 Internal Server Error",
            "503 Service Unavailable",
        ] {
            let verdict = verdict_of(vec![answer(status, "Retry-After: 7\r\n")]).await;
            let (why, retry_after) = failure(&verdict);
            assert!(why.contains(status), "{why}");
            assert_eq!(retry_after, Some(Duration::from_secs(7)));
        }
    });
}

#[test]
fn redirects_are_not_followed() {
    run(async {
        let mut elsewhere = serve(vec![Act::Answer(OK.to_owned())]).await;
        for status in ["301 Moved", "302 Found", "303 See Other", "307 Temporary", "308 Permanent"]
        {
            let location = format!("Location: http://127.0.0.1:{}/\r\n", elsewhere.port);
            let verdict = verdict_of(vec![answer(status, &location)]).await;
            assert!(matches!(verdict, Verdict::Refused { .. }), "{status}: {verdict:?}");
        }
        assert!(elsewhere.got.try_recv().is_err());
    });
}

/// The verdict repeats nothing of an answer except its status.
#[test]
fn nothing_of_an_answer_is_repeated() {
    run(async {
        let text = "HTTP/1.1 403 internal-word\r\nx: internal-word\r\ncontent-length: 13\r\n\r\ninternal-word";
        let verdict = verdict_of(vec![Act::Answer(text.to_owned())]).await;
        assert!(!format!("{verdict:?}").contains("internal-word"), "{verdict:?}");
    });
}

#[test]
fn path_and_query_stand_in_no_text() {
    run(async {
        let server =
            serve(vec![answer("403 Forbidden", ""), answer("503 Busy", ""), Act::Close]).await;
        let destination = format!("webhook+http://127.0.0.1:{}/hush?key=hush", server.port);
        let mut route = route(config(), &destination);
        for _ in 0..3 {
            let verdicts = route.forward(&messages(1)).await;
            assert!(!format!("{verdicts:?}").contains("hush"), "{verdicts:?}");
        }
    });
}

#[test]
fn a_broken_connection_is_a_failure_of_this_time() {
    run(async {
        for act in [
            Act::Close,
            Act::AnswerAndClose("HTTP/1.1 200".to_owned()),
            Act::AnswerAndClose("SSH-2.0-OpenSSH_9.9\r\n".to_owned()),
            Act::AnswerAndClose(format!("HTTP/1.1 200 OK\r\nx: {}\r\n\r\n", "a".repeat(1_000_000))),
            Act::AnswerAndClose("\0\0\0".to_owned()),
        ] {
            let verdict = verdict_of(vec![act.clone()]).await;
            let (why, retry_after) = failure(&verdict);
            assert!(why.contains("did not answer") && retry_after.is_none(), "{act:?}: {why}");
        }
        // A port without a listener.
        let port = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap().port()
        };
        let mut route = route(config(), &format!("webhook+http://127.0.0.1:{port}/"));
        let verdicts = route.forward(&messages(2)).await;
        assert_eq!(verdicts.len(), 1, "later ones are not tried");
        assert!(failure(&verdicts[0]).0.contains("cannot be connected to"), "{verdicts:?}");
    });
}

#[test]
fn silence_ends_with_the_time_of_the_request() {
    run(async {
        let mut server = serve(vec![Act::Silence, Act::Answer(OK.to_owned())]).await;
        let destination = format!("webhook+http://127.0.0.1:{}/?timeout=50ms", server.port);
        let mut route = route(config(), &destination);
        let verdicts = route.forward(&messages(1)).await;
        assert!(failure(&verdicts[0]).0.contains("within 50ms"), "{verdicts:?}");
        // A late answer is not taken for the answer to the next request.
        assert_eq!(route.forward(&messages(1)).await, [Verdict::Delivered]);
        assert_eq!(server.got.recv().await.unwrap().connection, 0);
        assert_eq!(server.got.recv().await.unwrap().connection, 1);
    });
}

/// FWD-10: a failure delays the messages after it; a refusal does not.
#[test]
fn a_failure_ends_the_list_and_a_refusal_does_not() {
    run(async {
        let acts = vec![
            Act::Answer(OK.to_owned()),
            answer("400 Bad Request", ""),
            answer("500 Oops", ""),
            Act::Answer(OK.to_owned()),
        ];
        let mut server = serve(acts).await;
        let mut route = route(config(), &format!("webhook+http://127.0.0.1:{}/", server.port));
        let verdicts = route.forward(&messages(5)).await;
        assert_eq!(verdicts.len(), 3);
        assert_eq!(verdicts[0], Verdict::Delivered);
        assert!(matches!(verdicts[1], Verdict::Refused { .. }));
        assert!(matches!(verdicts[2], Verdict::Failed { .. }));
        for body in ["1", "2", "3"] {
            assert_eq!(server.got.recv().await.unwrap().body, body.as_bytes());
        }
        assert!(server.got.try_recv().is_err());
    });
}

#[test]
fn a_closed_idle_connection_is_no_failure() {
    run(async {
        let mut server = serve(vec![Act::AnswerAndClose(OK.to_owned())]).await;
        let mut route = route(config(), &format!("webhook+http://127.0.0.1:{}/", server.port));
        for connection in 0..4 {
            assert_eq!(route.forward(&messages(1)).await, [Verdict::Delivered]);
            assert_eq!(server.got.recv().await.unwrap().connection, connection);
        }
    });
}

#[test]
fn an_endless_or_long_body_costs_only_the_connection() {
    run(async {
        let long =
            format!("HTTP/1.1 200 OK\r\ncontent-length: 65537\r\n\r\n{}", "a".repeat(65_537));
        let fits =
            format!("HTTP/1.1 200 OK\r\ncontent-length: 65536\r\n\r\n{}", "a".repeat(65_536));
        let endless = "HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nabc".to_owned();
        let mut server = serve(vec![
            Act::Answer(fits),
            Act::Answer(long),
            Act::Answer(endless),
            Act::Answer(OK.to_owned()),
        ])
        .await;
        let mut route = route(config(), &format!("webhook+http://127.0.0.1:{}/", server.port));
        for connection in [0, 0, 1, 2] {
            assert_eq!(route.forward(&messages(1)).await, [Verdict::Delivered]);
            assert_eq!(server.got.recv().await.unwrap().connection, connection);
        }
    });
}

/// A host name is checked by the addresses that it resolves to at the time of the connection.
#[test]
fn a_name_of_an_internal_address_is_not_connected_to() {
    run(async {
        let server = serve(vec![Act::Answer(OK.to_owned())]).await;
        let mut open = config();
        open.reach = Reach::new(Vec::new(), Vec::new());
        // Another spelling of a name that every resolver knows.
        let destination = format!("webhook+https://localhost.:{}/", server.port);
        let mut route = route(open, &destination);
        let verdicts = route.forward(&messages(1)).await;
        let (why, _) = failure(&verdicts[0]);
        assert!(why.contains("no public address") || why.contains("has no address"), "{why}");
    });
}

//! Tests of links that requests name, and of the holder of a session.

use peeklock_amqp::codec::value::Raw;
use peeklock_amqp::performative::SenderSettleMode;
use peeklock_core::description::Settings;
use peeklock_core::message::Value;
use peeklock_words::amqp::Scalar;

use crate::client::Client;
use crate::receiving::modified;
use crate::request::{Reply, longs, uuids, value};
use crate::server::Server;
use crate::sessions::of_session;

const LOCKED: SenderSettleMode = SenderSettleMode::Unsettled;
const LINK: &str = "associated-link-name";
const LOST: &str = "com.microsoft:session-lock-lost";

/// Attaches a receiver of a session.
async fn hold(client: &mut Client, handle: u32, session: &str) {
    let session = Raw::encoded(|bytes| Value::from(session).encode_to(bytes));
    client.attach_receiver(of_session(handle, "s", session)).await.unwrap();
}

/// Receives a message and defers it.
async fn defer(client: &mut Client, handle: u32) {
    client.credit(handle, 0, 1, false).await;
    let (transfer, _) = client.message().await;
    let deferred = modified(true);
    assert_eq!(client.settle(transfer.delivery_id.unwrap(), deferred.clone()).await, deferred);
}

/// Receives a deferred message by number, through the link of this name.
async fn take(
    client: &mut Client,
    number: i64,
    link: Option<&str>,
    session: Option<&str>,
) -> Reply {
    let mut entries = vec![("sequence-numbers", longs(&[number]))];
    entries.extend(session.map(|session| ("session-id", value(session))));
    let link = link.map(|link| (LINK, link));
    client.ask_with(0, "receive-by-sequence-number", link.as_slice(), None, &entries).await
}

/// AMQP-80, AMQP-89: if a connection holds several sessions, a request without a session id applies
/// to the session of the link that it names. Without both it applies to no session. A link of
/// another session is ignored.
#[tokio::test]
async fn a_request_means_the_session_of_the_link_that_it_names() {
    let server = Server::start().await;
    server.put_in_sessions(&[("one", "a"), ("two", "b")]).await;
    let mut client = server.client().await;
    client.manager(0, "s").await;
    for (handle, session) in [(4, "one"), (5, "two")] {
        hold(&mut client, handle, session).await;
        defer(&mut client, handle).await;
    }
    for (number, link) in [(2, None), (2, Some("r4")), (1, Some("r5")), (1, Some("none"))] {
        let refused = take(&mut client, number, link, None).await;
        assert_eq!((refused.status(), &*refused.condition()), (410, LOST), "{number} by {link:?}");
    }
    for (number, link, session) in
        [(1, Some("r4"), None), (2, Some("r5"), None), (2, Some("r4"), Some("two"))]
    {
        let reply = take(&mut client, number, link, session).await;
        let Ok(Scalar::Uuid(token)) = reply.maps("messages")[0].get("lock-token").unwrap().scalar()
        else {
            panic!("no token of {number} by {link:?}")
        };
        // The message stays deferred.
        let abandoned =
            [("disposition-status", value("abandoned")), ("lock-tokens", uuids(&[token]))];
        let properties = [(LINK, link.unwrap())];
        let reply = client.ask_with(0, "update-disposition", &properties, None, &abandoned).await;
        assert_eq!(reply.status(), 200);
    }
    server.stop().await;
}

/// AMQP-80, SET-21: the lock of a message received by number belongs to the link that the request
/// names, and ends with that link if the setting says so. If the request names no link of the
/// entity, the lock belongs to the management link.
#[tokio::test]
async fn a_lock_is_of_the_link_that_the_request_names() {
    for (link, status) in [(Some("r4"), 200), (None, 404), (Some("none"), 404)] {
        let settings = Settings { locks_release_on_detach: true, ..Settings::default() };
        let server = Server::start_of(settings).await;
        server.put(&["a"]).await;
        let mut client = server.client().await;
        client.manager(0, "q").await;
        client.receiver(4, "q", LOCKED).await.unwrap();
        defer(&mut client, 4).await;
        assert_eq!(take(&mut client, 1, link, None).await.status(), 200);
        client.detach(4).await;
        assert_eq!(take(&mut client, 1, None, None).await.status(), status, "by {link:?}");
        server.stop().await;
    }
}

/// AMQP-89, SES-12, SES-24: only the connection that holds a session may send requests about it,
/// whichever link another connection names. A refused request has no effect.
#[tokio::test]
async fn session_requests_need_the_holder() {
    let server = Server::start().await;
    server.put_in_sessions(&[("one", "a")]).await;
    let mut holder = server.client().await;
    holder.manager(0, "s").await;
    hold(&mut holder, 4, "one").await;
    defer(&mut holder, 4).await;
    let session = || ("session-id", value("one"));
    let state = |text: &str| {
        let text = text.to_owned().into_bytes();
        [session(), ("session-state", value(Value::Binary(text.into())))]
    };
    assert_eq!(holder.ask(0, "set-session-state", &state("mine")).await.status(), 200);
    let mut other = server.client().await;
    other.manager(0, "s").await;
    let asked = [
        ("renew-session-lock", vec![session()]),
        ("get-session-state", vec![session()]),
        ("set-session-state", state("theirs").to_vec()),
        ("receive-by-sequence-number", vec![session(), ("sequence-numbers", longs(&[1]))]),
    ];
    for (operation, entries) in &asked {
        for link in [None, Some((LINK, "r4"))] {
            let refused = other.ask_with(0, operation, link.as_slice(), None, entries).await;
            assert_eq!((refused.status(), &*refused.condition()), (410, LOST), "{operation}");
        }
    }
    let told = holder.ask(0, "get-session-state", &[session()]).await;
    assert_eq!(told.get("session-state").scalar(), Ok(Scalar::Binary(b"mine")));
    assert_eq!(take(&mut holder, 1, None, Some("one")).await.status(), 200);
    server.stop().await;
}

//! Transactions on the wire: pipelining, their end, and resumption.

use std::sync::Arc;

use async_trait::async_trait;
use peeklock_core::contract::{Action, AllowAll, Authorizer, Grant, Principal, Right, Rights};
use peeklock_core::description::QueueUpdate;
use peeklock_core::error::Rejection;
use peeklock_core::time::TimeSpan;
use serde_json::{Value as Json, json};

use super::client::Client;
use super::server::{Plan, Server, run};

/// Returns a client with a sender on link 2 and a delivery with the number 1 on link 1, and its
/// transaction.
async fn furnish(server: &Server, hello: Json) -> (Client, Json) {
    server.put(&["old"]).await;
    let mut client = Client::hello(server.address, hello).await;
    client.receive_with(Some(8)).await;
    client.deliveries(1).await;
    client.ask("attach", json!({ "link": 2, "path": "q", "role": "sender" })).await;
    let begun = client.ask("beginTransaction", json!({})).await;
    let transaction = begun["transaction"]["transaction"].clone();
    assert!(transaction.as_u64().unwrap() < 1 << 53, "{begun}");
    (client, transaction)
}

fn settle(transaction: &Json, number: u64) -> Json {
    let settle = json!({ "link": 1, "decision": "complete", "ranges": [[number, number]] });
    json!({ "transaction": transaction, "settle": settle })
}

fn send(transaction: &Json, text: &str) -> Json {
    let send = json!({ "link": 2, "messages": [{ "body": text }] });
    json!({ "transaction": transaction, "send": send })
}

/// TXN-01, TXN-13, SND-07: the whole transaction in one frame, without waiting for answers.
#[test]
fn a_whole_transaction_fits_one_frame() {
    run(async {
        let server = Server::start().await;
        let (mut client, transaction) = furnish(&server, json!({})).await;
        let commit = json!({ "transaction": transaction, "operations": 3 });
        client
            .frame_of(json!([
                { "id": 101, "settleIn": settle(&transaction, 1) },
                { "id": 102, "sendIn": send(&transaction, "a") },
                { "id": 103, "sendIn": send(&transaction, "b") },
                { "id": 104, "commit": commit },
            ]))
            .await;
        assert_eq!(client.answer(101).await["settled"], json!({}));
        assert_eq!(client.answer(102).await["done"], json!({}));
        let committed = client.answer(104).await;
        let parts = json!([{}, { "sequenceNumbers": [[2, 1]] }, { "sequenceNumbers": [[3, 1]] }]);
        assert_eq!(committed["committed"]["parts"], parts, "{committed}");
        let expected = [(2, "a".to_owned()), (3, "b".to_owned())];
        assert_eq!(client.deliveries(2).await, expected);
        assert_eq!(server.counts().await.active, 2);
        // The settled delivery is settled for its link too.
        let again = client.ask("settle", settle(&transaction, 1)["settle"].clone()).await;
        assert_eq!(again["settled"]["failed"][0]["error"]["condition"], "MessageLockLost");
        server.stop().await;
    });
}

/// TXN-05, TXN-07: a commit sent before the answers does not commit only a part by mistake.
#[test]
fn a_commit_that_counts_wrong_commits_nothing() {
    run(async {
        let server = Server::start().await;
        let (mut client, transaction) = furnish(&server, json!({})).await;
        let commit = json!({ "transaction": transaction, "operations": 2 });
        client
            .frame_of(json!([
                { "id": 101, "settleIn": settle(&transaction, 9) },
                { "id": 102, "sendIn": send(&transaction, "never") },
                { "id": 103, "commit": commit },
            ]))
            .await;
        let refused = client.answer(101).await;
        assert_eq!(refused["settled"]["failed"][0]["error"]["condition"], "MessageLockLost");
        let answer = client.answer(103).await;
        assert_eq!(answer["error"]["condition"], "TransactionRolledBack", "{answer}");
        let gone = client.ask("commit", json!({ "transaction": transaction })).await;
        assert_eq!(gone["error"]["condition"], "TransactionUnknown");
        assert_eq!(server.counts().await.active, 1);
        server.stop().await;
    });
}

/// TXN-12, TXN-04: the end of a connection rolls its transactions back; another connection does not
/// know them.
#[test]
fn a_transaction_ends_with_its_connection() {
    run(async {
        for code in [Some(1_000), None] {
            let server = Server::start().await;
            let (mut client, transaction) = furnish(&server, json!({})).await;
            client.ask("sendIn", send(&transaction, "never")).await;
            client.ask("settleIn", settle(&transaction, 1)).await;
            match code {
                Some(_) => client.close(code).await,
                None => drop(client),
            }
            let mut other = server.client().await;
            let unknown = other.ask("commit", json!({ "transaction": transaction })).await;
            assert_eq!(unknown["error"]["condition"], "TransactionUnknown");
            assert_eq!(server.counts().await.active, 1);
            server.stop().await;
        }
    });
}

/// TXN-12: a resumed connection continues its open transactions.
#[test]
fn a_transaction_outlives_a_socket_that_is_resumed() {
    run(async {
        let server = Server::start().await;
        let (mut client, transaction) = furnish(&server, json!({ "graceSeconds": 30 })).await;
        client.ask("sendIn", send(&transaction, "new")).await;
        let resume =
            json!({ "resumeToken": client.welcome["resumeToken"], "received": client.seen });
        drop(client);
        let hello = json!({ "graceSeconds": 30, "resume": resume });
        let mut client = Client::hello(server.address, hello).await;
        assert_eq!(client.welcome["resumed"], true);
        let settled = client.ask("settleIn", settle(&transaction, 1)).await;
        assert_eq!(settled["settled"], json!({}), "{settled}");
        let committed = client.ask("commit", json!({ "transaction": transaction })).await;
        assert_eq!(committed["committed"]["parts"].as_array().unwrap().len(), 2, "{committed}");
        assert_eq!(server.counts().await.active, 1);
        server.stop().await;
    });
}

/// TXN-06: a transaction times out by the broker's clock, and later requests fail with that reason.
#[test]
fn a_transaction_times_out_by_the_clock_of_the_broker() {
    run(async {
        let server = Server::start().await;
        let (mut client, transaction) = furnish(&server, json!({})).await;
        client.ask("sendIn", send(&transaction, "never")).await;
        server.clock.advance(TimeSpan::from_minutes(2));
        for (operation, body) in [
            ("sendIn", send(&transaction, "late")),
            ("commit", json!({ "transaction": transaction })),
            ("rollBack", json!({ "transaction": transaction })),
        ] {
            let answer = client.ask(operation, body).await;
            assert_eq!(answer["error"]["condition"], "TransactionTimedOut", "{answer}");
        }
        assert_eq!(server.counts().await.total(), 1);
        server.stop().await;
    });
}

/// TXN-02: a release cannot be part of a transaction.
#[test]
fn a_release_cannot_be_part_of_a_transaction() {
    run(async {
        let server = Server::start().await;
        let (mut client, transaction) = furnish(&server, json!({})).await;
        let settle = json!({ "link": 1, "decision": "release", "ranges": [[1, 1]] });
        let body = json!({ "transaction": transaction, "settle": settle });
        let answer = client.ask("settleIn", body).await;
        let error = &answer["settled"]["failed"][0]["error"];
        assert_eq!(error["condition"], "InvalidOperation", "{answer}");
        let rolled_back = client.ask("rollBack", json!({ "transaction": transaction })).await;
        assert_eq!(rolled_back["done"], json!({}));
        server.stop().await;
    });
}

/// Grants every right except Send on `q`.
struct NoSendsToQ;

#[async_trait]
impl Authorizer for NoSendsToQ {
    async fn authorize(&self, _: &Principal, resource: &str) -> Result<Grant, Rejection> {
        match resource {
            "q" => Ok(Grant::of(Rights::of(Right::Listen).and(Right::Manage))),
            _ => Ok(Grant::everything()),
        }
    }

    fn allows_anonymous(&self) -> bool {
        true
    }
}

/// VIA-02, SEC-07, TXN-09: operations through an entity require the Send right there too. A client
/// without it can settle, but not send that way.
#[test]
fn sending_by_way_of_the_first_entity_takes_the_right_to_send_there() {
    run(async {
        for authorizer in [Arc::new(NoSendsToQ) as Arc<dyn Authorizer>, Arc::new(AllowAll)] {
            let server = Plan { authorizer, ..Plan::new() }.start().await;
            let may_send =
                server.broker.access(Principal::anonymous()).allow(Action::Send, "q").await.is_ok();
            server.put(&["old"]).await;
            server.broker.create_queue("other", QueueUpdate::default()).await.unwrap();
            let mut client = server.client().await;
            client.receive_with(Some(8)).await;
            client.deliveries(1).await;
            client.ask("attach", json!({ "link": 2, "path": "other", "role": "sender" })).await;
            let begun = client.ask("beginTransaction", json!({ "crossEntity": true })).await;
            let transaction = begun["transaction"]["transaction"].clone();
            client.ask("settleIn", settle(&transaction, 1)).await;
            let sent = client.ask("sendIn", send(&transaction, "on")).await;
            let committed = client.ask("commit", json!({ "transaction": transaction })).await;
            let parts = &committed["committed"]["parts"];
            if may_send {
                assert_eq!(sent["done"], json!({}), "{sent}");
                assert_eq!(parts[1]["pendingNumbers"], json!([[2, 1]]), "{committed}");
            } else {
                assert_eq!(sent["error"]["condition"], "Unauthorized", "{sent}");
                assert_eq!(*parts, json!([{}]), "{committed}");
            }
            server.stop().await;
        }
    });
}

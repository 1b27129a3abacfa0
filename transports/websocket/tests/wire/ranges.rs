//! Ranges that name many deliveries, with room for few commands.

use peeklock_core::admission::COMMAND_BYTES;
use peeklock_core::description::QueueUpdate;
use serde_json::{Value as Json, json};

use super::client::Client;
use super::server::{Plan, Server, run};

const COUNT: usize = 300;

/// Starts a listener whose connections have room for 16 commands, and a client with many
/// deliveries.
async fn delivered() -> (Server, Client) {
    let mut plan = Plan::new();
    plan.settings.limits.connection_inbound_bytes_max = 16 * COMMAND_BYTES;
    let server = plan.start().await;
    server.put(&["x"; COUNT]).await;
    let mut client = server.client().await;
    client.receive_with(Some(300)).await;
    assert_eq!(client.deliveries(COUNT).await.len(), COUNT);
    (server, client)
}

fn failed(answer: &Json, kind: &str) -> Vec<(u64, u64)> {
    let ranges = answer[kind]["failed"].as_array().cloned().unwrap_or_default();
    let number = |value: &Json| value.as_u64().unwrap();
    ranges.iter().map(|range| (number(&range["from"]), number(&range["to"]))).collect()
}

/// SET-14, DESIGN D6: ranges that exceed the room are handed over in parts and answered as a whole.
/// Later requests in the same frame, and in the next one, are carried out after all parts.
#[test]
fn ranges_that_name_more_than_there_is_room_for_are_settled_in_their_order() {
    run(async {
        let (server, mut client) = delivered().await;
        let complete = |id: u64, ranges: Json| {
            let settle = json!({ "link": 1, "decision": "complete", "ranges": ranges });
            json!({ "id": id, "settle": settle })
        };
        let renew =
            |id: u64, ranges: Json| json!({ "id": id, "renew": { "link": 1, "ranges": ranges } });
        client
            .frame_of(json!([
                renew(50, json!([[1, 300]])),
                complete(51, json!([[1, 100], [102, 250], [301, 400]])),
                renew(52, json!([[99, 103]])),
            ]))
            .await;
        client.frame_of(json!([complete(53, json!([[1, 300]]))])).await;
        let renewed = client.answer(50).await;
        assert!(renewed["renewed"]["lockedUntilUtc"].is_string(), "{renewed}");
        assert_eq!(failed(&renewed, "renewed"), []);
        // Deliveries that never existed fail, and no others.
        assert_eq!(failed(&client.answer(51).await, "settled"), [(301, 400)]);
        let renewed = client.answer(52).await;
        assert!(renewed["renewed"]["lockedUntilUtc"].is_string(), "{renewed}");
        // Settled by then, whether the connection or the entity notices.
        assert_eq!(failed(&renewed, "renewed"), [(99, 100), (102, 103)]);
        assert_eq!(failed(&client.answer(53).await, "settled"), [(1, 100), (102, 250)]);
        assert_eq!(server.counts().await.active, 0);
        server.stop().await;
    });
}

/// SET-21: a settlement before an orderly close is carried out, however many deliveries its range
/// names.
#[test]
fn ranges_before_a_close_are_settled() {
    run(async {
        let (server, mut client) = delivered().await;
        let settle = json!({ "link": 1, "decision": "complete", "ranges": [[1, COUNT]] });
        client.frame_of(json!([{ "settle": settle }])).await;
        client.close(Some(1_000)).await;
        assert_eq!(server.counts().await.active, 0);
        server.stop().await;
    });
}

/// DESIGN D6: a settlement in parts is answered even if its link is refused between two parts. It
/// does not keep its room and its connection forever.
#[test]
fn a_wide_settlement_on_a_link_that_is_refused_is_answered() {
    const TOKENS: u32 = 40;

    run(async {
        let mut plan = Plan::new();
        // Room for 17 settlements with such a property.
        plan.settings.limits.connection_inbound_bytes_max = 1 << 20;
        let server = plan.start().await;
        let sessions = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
        server.broker.create_queue("s", sessions).await.unwrap();
        let mut client = server.client().await;
        let tokens: Vec<String> = (0..TOKENS).map(|token| format!("{token:032x}")).collect();
        let settle = json!({
            "link": 1,
            "decision": "defer",
            "lockTokens": tokens,
            "properties": { "p": "v".repeat(60_000) },
        });
        // The queue requires sessions, so the attachment is refused.
        let attach = json!({ "link": 1, "path": "s", "role": "receiver", "credit": 5 });
        client
            .frame_of(json!([{ "id": 50, "attach": attach }, { "id": 51, "settle": settle }]))
            .await;
        let refused = client.answer(50).await;
        assert_eq!(refused["error"]["condition"], "InvalidOperation", "{refused}");
        assert_eq!(failed(&client.answer(51).await, "settled"), [(0, u64::from(TOKENS) - 1)]);
        // The link number is free again, and the connection stays open.
        client.receive_with(None).await;
        server.stop().await;
    });
}

/// TXN-02, DESIGN D6: the same holds in a transaction, where each operation is checked before it
/// joins. With an unknown transaction, all fail together.
#[test]
fn ranges_are_settled_in_a_transaction() {
    run(async {
        let (server, mut client) = delivered().await;
        let settle = json!({ "link": 1, "decision": "complete", "ranges": [[1, COUNT]] });
        let unknown = json!({ "transaction": 77, "settle": settle });
        let answer = client.ask("settleIn", unknown).await;
        assert_eq!(failed(&answer, "settled"), [(1, 300)]);
        let condition = &answer["settled"]["failed"][0]["error"]["condition"];
        assert_eq!(condition, "TransactionUnknown", "{answer}");
        let begun = client.ask("beginTransaction", json!({})).await;
        let id = begun["transaction"]["transaction"].clone();
        let answer = client.ask("settleIn", json!({ "transaction": id, "settle": settle })).await;
        assert_eq!(failed(&answer, "settled"), [], "{answer}");
        client.ask("commit", json!({ "transaction": id })).await;
        assert_eq!(server.counts().await.active, 0);
        server.stop().await;
    });
}

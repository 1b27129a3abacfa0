//! Names and paths of entities (file 01, "Names and paths").

use super::*;

/// ADR-06, ADR-09
pub async fn paths_ignore_case_and_keep_their_original_case(s: &Stage) {
    s.open_queue("Sales/Orders.New_1-a").await;
    assert_eq!(
        &*s.describe("sales/orders.NEW_1-A").await.unwrap().description.path,
        "Sales/Orders.New_1-a"
    );
    s.put("SALES/ORDERS.NEW_1-A", "a").await;
    assert_eq!(s.drain("sales/orders.new_1-a").await, ["a"]);
    assert_eq!(s.list(0, 10).await.unwrap(), ["Sales/Orders.New_1-a"]);
}

/// ADR-07, QUO-01
pub async fn a_path_has_at_most_260_characters(s: &Stage) {
    s.open_queue(&"q".repeat(260)).await;
    refused(s.create(&"r".repeat(261), QueueUpdate::default()).await, "ArgumentOutOfRange");
}

/// ADR-08, ADR-10, ADR-11
pub async fn names_with_foreign_characters_and_of_the_system_are_refused(s: &Stage) {
    for path in [
        "a b",
        "a@b",
        "a?b",
        "a#b",
        "a*b",
        "ä",
        "/a",
        "a/",
        "a//b",
        "$a",
        "a/$b",
        "a/Subscriptions",
        "subscriptions",
    ] {
        let answer = s.create(path, QueueUpdate::default()).await;
        let condition =
            answer.as_ref().map_or_else(|refusal| refusal.condition.clone(), |_| "none".into());
        assert_eq!(condition, "ArgumentError", "{path}");
        refused(answer, "ArgumentError");
    }
    assert!(s.list(0, 10).await.unwrap().is_empty());
}

/// ADR-14
pub async fn an_absent_path_is_not_found(s: &Stage) {
    s.open_queue(ORDERS).await;
    for path in ["absent", "absent/$deadletterqueue", "orders/below", "topic/Subscriptions/sub"] {
        refused(s.send(path, message("x")).await, "EntityNotFound");
        refused(s.receive(path, ReceiveMode::PeekLock, 1, TimeSpan::ZERO).await, "EntityNotFound");
        refused(s.peek(path, 0, 1).await, "EntityNotFound");
        refused(s.describe(path).await, "EntityNotFound");
    }
}

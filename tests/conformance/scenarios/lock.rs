//! Lifetime of locks (file 06, "Lock lifetime").

use std::time::Duration;

use peeklock_core::command::Counts;
use peeklock_core::description::SubscriptionUpdate;
use peeklock_core::inspect::{
    ClientQuery, Found, Holder, LockOrder, LockQuery, LockRow, Question, ROW_COUNT_MAX,
};
use peeklock_core::management::{Managed, Management};

use super::*;

/// SET-17, SET-18
pub async fn repeated_renewals_set_the_end_to_now_plus_the_lock_duration(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    for _ in 0..5 {
        s.advance(seconds(40)).await;
        let until = s.renew(ORDERS, seen.token()).await.unwrap();
        assert_eq!(until, s.now().plus(minutes(1)));
    }
    s.assert_empty(ORDERS).await;
    // The token is unchanged, and the renewal counted nothing (SET-33).
    s.abandon(ORDERS, &seen).await;
    assert_eq!(s.take(ORDERS).await.delivery_count, 2);
}

/// SET-16, SET-18
pub async fn a_renewed_lock_ends_at_its_new_end(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    s.advance(seconds(30)).await;
    s.renew(ORDERS, seen.token()).await.unwrap();
    s.advance(before(minutes(1))).await;
    s.assert_empty(ORDERS).await;
    s.advance(TICK).await;
    assert_eq!(s.take(ORDERS).await.text(), "a");
    refused(s.renew(ORDERS, seen.token()).await, "MessageLockLost");
}

/// SET-15
pub async fn every_delivery_has_a_token_of_its_own(s: &Stage) {
    s.open_queue_with(ORDERS, max_delivery_count(50)).await;
    s.put(ORDERS, "a").await;
    let mut tokens = BTreeSet::new();
    for _ in 0..20 {
        let seen = s.take(ORDERS).await;
        assert!(tokens.insert(seen.token().to_owned()));
        s.abandon(ORDERS, &seen).await;
    }
}

/// SET-23, SET-24: one client settles a message that another one received.
pub async fn any_client_with_the_token_can_settle_and_renew(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    let seen = s.take(ORDERS).await;
    let other = s.another().await;
    s.advance(seconds(30)).await;
    assert_eq!(other.renew(ORDERS, seen.token()).await.unwrap(), s.now().plus(minutes(1)));
    other.settle(ORDERS, seen.token(), Decision::Complete).await.unwrap();
    other.stop().await;
    assert_eq!(s.counts(ORDERS).await.total(), 0);
}

/// SET-23: the lock remains after its client is gone.
pub async fn a_lock_outlives_its_client(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    let other = s.another().await;
    let mode = ReceiveMode::PeekLock;
    let seen = other.receive(ORDERS, mode, 1, TimeSpan::ZERO).await.unwrap().remove(0);
    other.stop().await;
    drop(other);
    s.advance(seconds(30)).await;
    s.assert_empty(ORDERS).await;
    s.complete(ORDERS, &seen).await;
}

/// ENT-18, RCV-06
pub async fn a_changed_lock_duration_applies_to_later_locks_and_renewals(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    s.put(ORDERS, "b").await;
    let old = s.take(ORDERS).await;
    let lock_duration = Some(seconds(10));
    s.update(ORDERS, QueueUpdate { lock_duration, ..QueueUpdate::default() }).await.unwrap();
    let new = s.take(ORDERS).await;
    assert_eq!(new.locked_until, Some(s.now().plus(seconds(10))));
    s.advance(seconds(10)).await;
    assert_eq!(s.take(ORDERS).await.text(), "b");
    assert_eq!(s.renew(ORDERS, old.token()).await.unwrap(), s.now().plus(seconds(10)));
    s.complete(ORDERS, &old).await;
}

/// ENT-06, RCV-06: each queue and each subscription has its own lock duration, also two
/// subscriptions of one topic.
pub async fn each_queue_and_each_subscription_has_a_lock_duration_of_its_own(s: &Stage) {
    let lock_duration = Some(seconds(20));
    s.open_queue_with(ORDERS, QueueUpdate { lock_duration, ..QueueUpdate::default() }).await;
    s.create_topic("events").await.unwrap();
    for (name, duration) in [("audit", 10), ("billing", 30)] {
        let lock_duration = Some(seconds(duration));
        let properties = SubscriptionUpdate { lock_duration, ..SubscriptionUpdate::default() };
        s.create_subscription_with("events", name, properties, vec![]).await.unwrap();
    }
    s.put(ORDERS, "a").await;
    s.put("events", "a").await;
    for (path, duration) in
        [("events/Subscriptions/audit", 10), (ORDERS, 20), ("events/Subscriptions/billing", 30)]
    {
        let seen = s.take(path).await;
        assert_eq!(seen.locked_until, Some(s.now().plus(seconds(duration))), "{path}");
        s.advance(before(seconds(duration))).await;
        s.assert_empty(path).await;
        s.advance(TICK).await;
        assert_eq!(s.take(path).await.delivery_count, 2);
    }
}

/// SET-16, SET-28: many locks end at the same instant.
pub async fn all_locks_of_one_instant_end_together(s: &Stage) {
    s.open_queue(ORDERS).await;
    for number in 0..50 {
        s.put(ORDERS, &number.to_string()).await;
    }
    assert_eq!(s.take_all(ORDERS).await.len(), 50);
    s.advance(minutes(1)).await;
    let again = s.take_all(ORDERS).await;
    assert_eq!(sequences(&again), (1..=50).collect::<Vec<_>>());
    assert!(again.iter().all(|seen| seen.delivery_count == 2));
}

/// CON-01, CON-24, CON-25: a lock names the client that holds it, with its renewals, also after the
/// client is gone. Looking changes nothing.
pub async fn a_lock_names_its_holder(s: &Stage) {
    s.open_queue(ORDERS).await;
    s.put(ORDERS, "a").await;
    s.put(ORDERS, "b").await;
    let other = s.another().await;
    let taken_at = s.now();
    let seen = other.receive(ORDERS, ReceiveMode::PeekLock, 1, TimeSpan::ZERO).await.unwrap();
    s.advance(seconds(30)).await;
    let before = described(s).await;
    let [lock] = &locks(s).await[..] else { panic!() };
    assert_eq!((lock.sequence.0, lock.delivery_count), (1, 0));
    let facts = &lock.lock;
    assert_eq!((facts.taken_at, facts.until), (taken_at, taken_at.plus(minutes(1))));
    assert_eq!((facts.renewals, facts.is_of_session), (0, false));
    let holder = facts.holder.clone().unwrap();
    let query = ClientQuery { count_max: ROW_COUNT_MAX, ..ClientQuery::default() };
    let page = s.broker().clients(&query).await;
    // A client may use a connection for one request only.
    if let Some(client) = page.clients.iter().find(|client| client.id == holder.client) {
        assert_eq!((&client.transport, &client.name), (&holder.transport, &holder.name));
        assert_eq!(client.peer, holder.peer);
        assert!(holder.is_connected);
    }
    assert_eq!(described(s).await, before);

    let until = other.renew(ORDERS, seen[0].token()).await.unwrap();
    let [renewed] = &locks(s).await[..] else { panic!() };
    assert_eq!((renewed.lock.taken_at, renewed.lock.until), (taken_at, until));
    assert_eq!(renewed.lock.renewals, 1);
    other.stop().await;
    drop(other);
    // The broker notices the end of a connection a little later.
    let is_connected = async || match &locks(s).await[..] {
        [LockRow { lock, .. }] => lock.holder.as_ref().unwrap().is_connected,
        other => panic!("{other:?}"),
    };
    while is_connected().await {
        tokio::time::sleep(Duration::from_millis(1)).await;
    }
    let [left] = &locks(s).await[..] else { panic!() };
    let left = left.lock.holder.clone().unwrap();
    assert_eq!((left.client, &left.name, left.peer), (holder.client, &holder.name, holder.peer));
    s.settle(ORDERS, seen[0].token(), Decision::Complete).await.unwrap();
    assert_eq!(locks(s).await.len(), 0);
}

async fn locks(s: &Stage) -> Vec<LockRow<Holder>> {
    let query = LockQuery { order: LockOrder::Age, after: None, from: 0, count_max: 10 };
    let request = Management::Inspect(Box::new(Question::Locks(query)));
    let Managed::Findings(findings) =
        s.broker().full_access().manage(ORDERS, request).await.unwrap()
    else {
        panic!()
    };
    let Found::Locks(page) = findings.found else { panic!() };
    assert_eq!(page.total, page.locks.len() as u64);
    page.locks
}

/// Counts of the queue, and the instant of its last use.
async fn described(s: &Stage) -> (Counts, Timestamp) {
    let described = s.broker().describe_queue(ORDERS).await.unwrap();
    (described.counts, described.accessed_at)
}

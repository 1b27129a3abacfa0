//! Sends through a topic, and its transfer dead-letter queue (VIA-01 to VIA-06).
//!
//! Every transport with links sends through another entity, and every transport sees the results.

use peeklock_core::description::TopicUpdate;
use peeklock_core::transaction::PartOutcome;

use super::*;
use crate::subject::{Via, Work};

const EVENTS: &str = "events";
const EVENTS_TDLQ: &str = "events/$Transfer/$DeadLetterQueue";
const AUDIT: &str = "events/Subscriptions/audit";
const BILLING: &str = "events/Subscriptions/billing";

/// Creates a topic with a subscription that gets all messages, and a queue. Returns a sender to the
/// queue through the topic.
async fn open(s: &Stage) -> Box<dyn Via> {
    s.create_topic(EVENTS).await.unwrap();
    s.create_subscription(EVENTS, "audit").await.unwrap();
    s.open_queue("b").await;
    s.sender_via("B", "Events").await.unwrap()
}

/// Same as [`open`], with messages whose transfer failed.
async fn open_with_dead(s: &Stage, bodies: &[&str]) -> Box<dyn Via> {
    let sender = open(s).await;
    s.delete("b").await.unwrap();
    for body in bodies {
        sender.send(message(body)).await.unwrap();
    }
    let count = bodies.len() as u64;
    s.until_topic(EVENTS, |topic| topic.transfer_dead_letter == count).await;
    sender
}

async fn set_status(s: &Stage, status: EntityStatus) {
    let update = TopicUpdate { status: Some(status), ..TopicUpdate::default() };
    s.update_topic(EVENTS, update).await.unwrap();
}

fn small(megabytes: u64) -> QueueUpdate {
    QueueUpdate { max_size_in_megabytes: Some(megabytes), ..QueueUpdate::default() }
}

/// The transfer counts of the topic, as the transport returns them.
async fn transfers(s: &Stage) -> (u64, u64) {
    let topic = s.topic(EVENTS).await.unwrap();
    (topic.transfer, topic.transfer_dead_letter)
}

/// VIA-01, VIA-02, VIA-06, MSG-15, SCH-02: a message sent through a topic is not published there,
/// and moves on with a number from the topic's sequence. A scheduled one waits at the destination.
pub async fn a_message_can_be_sent_through_a_topic(s: &Stage) {
    let sender = open(s).await;
    assert_eq!(s.put(EVENTS, "own").await, 1);
    assert_eq!(sender.send(message("1").with_session_id("s")).await.unwrap(), 2);
    let numbers = sender.send_batch(vec![message("2"), message("3")]).await.unwrap();
    assert_eq!(numbers, [3, 4]);
    let at = s.now().plus(minutes(5));
    assert_eq!(sender.schedule(message("later"), at).await.unwrap(), 5);
    assert_eq!(s.put(EVENTS, "own too").await, 6);
    s.until("b", |counts| counts.active == 3 && counts.scheduled == 1).await;
    s.until_topic(EVENTS, |topic| topic.scheduled == 0).await;
    let topic = s.topic(EVENTS).await.unwrap();
    assert_eq!((topic.last_sequence.0, transfers(s).await), (6, (0, 0)));
    assert_eq!(topic.size_bytes, s.subscription(AUDIT).await.unwrap().size_bytes);
    assert_eq!(texts(&s.look(AUDIT).await), ["own", "own too"]);
    let arrived = s.take_all("b").await;
    assert_eq!(texts(&arrived), ["1", "2", "3"]);
    assert_eq!(arrived.iter().map(|seen| seen.enqueued_sequence).collect::<Vec<_>>(), [2, 3, 4]);
    assert_eq!(arrived[0].message.session_id.as_deref(), Some("s"));
    s.advance(minutes(5)).await;
    assert_eq!(texts(&s.take_all("b").await), ["1", "2", "3", "later"]);
    // The destination may be a topic, but not the topic itself, an absent entity, or one that is no
    // queue or topic.
    s.create_topic("news").await.unwrap();
    s.create_subscription("news", "all").await.unwrap();
    let to_topic = s.sender_via("news", EVENTS).await.unwrap();
    to_topic.send(message("published")).await.unwrap();
    s.until_topic(EVENTS, |_| true).await;
    assert_eq!(s.drain("news/Subscriptions/all").await, ["published"]);
    for (path, condition) in
        [("EVENTS", "InvalidOperation"), ("absent", "EntityNotFound"), (AUDIT, "ArgumentError")]
    {
        refused(s.sender_via(path, EVENTS).await, condition);
    }
    // Through a subscription is refused; some transports report that with the first send.
    let sent = match s.sender_via("b", AUDIT).await {
        Ok(by_subscription) => by_subscription.send(message("x")).await,
        Err(refusal) => Err(refusal),
    };
    refused(sent, "InvalidOperation");
}

/// VIA-03, VIA-06, FWD-12, FWD-15, FWD-16, FWD-17, FWD-20, FWD-23, CNT-04: a message that cannot be
/// transferred stays in the transfer dead-letter queue of the topic with the reason, until a client
/// receives it.
pub async fn a_failed_send_through_a_topic_stays_at_the_topic(s: &Stage) {
    let sender = open(s).await;
    let disabled = QueueUpdate { status: Some(EntityStatus::Disabled), ..QueueUpdate::default() };
    s.update("b", disabled).await.unwrap();
    sender.send(message("disabled")).await.unwrap();
    s.until_topic(EVENTS, |topic| topic.transfer_dead_letter == 1).await;
    s.delete("b").await.unwrap();
    sender.send(message("deleted")).await.unwrap();
    s.until_topic(EVENTS, |topic| topic.transfer_dead_letter == 2).await;
    s.open_queue_with("b", small(1)).await;
    s.send("b", sized(1_000 << 10, "full")).await.unwrap();
    sender.send(sized(100 << 10, "no room")).await.unwrap();
    s.until_topic(EVENTS, |topic| topic.transfer_dead_letter == 3).await;
    s.advance(ms(1)).await;
    s.purge("b").await.unwrap();
    let large =
        TopicUpdate { max_message_size_in_kilobytes: Some(2_048), ..TopicUpdate::default() };
    s.update_topic(EVENTS, large).await.unwrap();
    sender.send(sized((1 << 20) + 1, "too large")).await.unwrap();
    s.until_topic(EVENTS, |topic| topic.transfer_dead_letter == 4).await;
    assert_eq!(transfers(s).await, (0, 4));
    let described = s.topic(EVENTS).await.unwrap();
    assert!(described.size_bytes > 100 << 10, "{}", described.size_bytes);
    assert_eq!((described.scheduled, described.last_sequence.0), (0, 4));
    s.assert_empty(AUDIT).await;
    let mut dead = Vec::new();
    for _ in 0..4 {
        dead.push(s.take(EVENTS_TDLQ).await);
    }
    let reasons: Vec<_> = dead.iter().map(|seen| seen.reason().unwrap()).collect();
    assert_eq!(
        reasons,
        [
            "MessagingEntityDisabled",
            "MessagingEntityNotFound",
            "QuotaExceeded",
            "MessageSizeExceeded"
        ]
    );
    for (seen, number) in dead.iter().zip(1..) {
        assert_eq!((seen.sequence, seen.delivery_count), (number, 1));
        assert!(seen.description().unwrap().contains("`b`"), "{:?}", seen.description());
        s.complete(EVENTS_TDLQ, seen).await;
    }
    assert_eq!(transfers(s).await, (0, 0));
    assert_eq!(s.topic(EVENTS).await.unwrap().size_bytes, 0);
    // The destination works again.
    sender.send(message("goes")).await.unwrap();
    s.until("b", |counts| counts.active == 1).await;
}

/// FWD-19, DLQ-02, DLQ-04, DLQ-07, DLQ-08, DLQ-32, SET-03, SET-38, DEF-02, PEK-01, DEL-01, DEL-06:
/// the queue supports every operation of a dead-letter queue, and a topic has no other dead-letter
/// queue.
pub async fn the_transfer_dead_letter_queue_of_a_topic_is_like_others(s: &Stage) {
    open_with_dead(s, &["1", "2", "3", "4", "5", "6"]).await;
    assert_eq!(texts(&s.look(EVENTS_TDLQ).await), ["1", "2", "3", "4", "5", "6"]);
    let first = s.take(EVENTS_TDLQ).await;
    let renewed = s.renew(EVENTS_TDLQ, first.token()).await.unwrap();
    assert_eq!(renewed, s.now().plus(minutes(1)));
    let decision = Decision::DeadLetter { reason: None, description: None, properties: vec![] };
    refused(s.settle(EVENTS_TDLQ, first.token(), decision).await, "InvalidOperation");
    // There is no maximum of deliveries, and the lock times out.
    s.abandon(EVENTS_TDLQ, &first).await;
    for _ in 2..=12 {
        let seen = s.take(EVENTS_TDLQ).await;
        assert_eq!((seen.text(), seen.delivery_count), ("1", 1));
        s.advance(minutes(1)).await;
    }
    let first = s.take(EVENTS_TDLQ).await;
    s.defer(EVENTS_TDLQ, &first).await;
    let by_number = async |mode| s.receive_deferred(EVENTS_TDLQ, mode, &[first.sequence]).await;
    assert_eq!(texts(&by_number(ReceiveMode::ReceiveAndDelete).await.unwrap()), ["1"]);
    refused(by_number(ReceiveMode::PeekLock).await, "MessageNotFound");
    let mode = ReceiveMode::ReceiveAndDelete;
    let taken = s.receive(EVENTS_TDLQ, mode, 1, TimeSpan::ZERO).await.unwrap();
    assert_eq!(texts(&taken), ["2"]);
    assert_eq!(s.delete_batch(EVENTS_TDLQ, 1, None).await.unwrap(), 1);
    let waits = s.take(EVENTS_TDLQ).await;
    assert_eq!((waits.text(), s.purge(EVENTS_TDLQ).await.unwrap()), ("4", 2));
    assert_eq!(transfers(s).await, (0, 1));
    refused(s.send(EVENTS_TDLQ, message("x")).await, "InvalidOperation");
    refused(s.take_from("events/$DeadLetterQueue").await, "EntityNotFound");
    refused(s.take_from(EVENTS).await, "InvalidOperation");
    s.complete(EVENTS_TDLQ, &waits).await;
    assert_eq!(s.topic(EVENTS).await.unwrap().size_bytes, 0);
    s.assert_empty(AUDIT).await;
}

/// FWD-18, DLQ-32: this holds for either setting of auto-forwarding, since a topic has no
/// dead-letter queue.
pub async fn failed_sends_have_one_place_at_a_topic(s: &Stage) {
    open_with_dead(s, &["1"]).await;
    assert_eq!(texts(&s.take_all(EVENTS_TDLQ).await), ["1"]);
    refused(s.take_from("events/$DeadLetterQueue").await, "EntityNotFound");
}

pub fn into_the_dead_letter_queue() -> Setup {
    super::forwarding::into_the_dead_letter_queue()
}

/// RCV-04, RCV-14, ENT-24, ENT-29: a receive there waits for later failures. It ends when the topic
/// is disabled for receivers.
pub async fn a_receiver_waits_for_failed_sends(s: &Stage) {
    let sender = open_with_dead(s, &[]).await;
    let receive = s.receive(EVENTS_TDLQ, ReceiveMode::PeekLock, 1, minutes(5));
    let send = async { sender.send(message("late")).await.unwrap() };
    let (received, _) = futures_util::future::join(receive, send).await;
    let received = received.unwrap();
    assert_eq!(texts(&received), ["late"]);
    s.complete(EVENTS_TDLQ, &received[0]).await;
    s.advance(seconds(1)).await;
    let receive = s.receive(EVENTS_TDLQ, ReceiveMode::PeekLock, 1, minutes(5));
    let disable = async {
        s.until_topic_is_used(EVENTS).await;
        set_status(s, EntityStatus::Disabled).await;
    };
    let (received, ()) = futures_util::future::join(receive, disable).await;
    refused(received, "EntityDisabled");
    refused(s.take_from(EVENTS_TDLQ).await, "EntityDisabled");
    assert!(s.look(EVENTS_TDLQ).await.is_empty());
}

/// RCV-22, QUO-01: the limit counts receivers there and receivers of the subscriptions together.
pub async fn receivers_of_a_topic_are_counted_with_those_of_its_subscriptions(s: &Stage) {
    let sender = open(s).await;
    s.delete("b").await.unwrap();
    let wait = async |path| s.receive(path, ReceiveMode::PeekLock, 1, minutes(5)).await;
    s.advance(seconds(1)).await;
    let more = async {
        s.until_topic_is_used(EVENTS).await;
        s.advance(seconds(1)).await;
        let last = async {
            s.until_subscription_is_used(AUDIT).await;
            refused(wait(EVENTS_TDLQ).await, "QuotaExceeded");
            refused(wait(AUDIT).await, "QuotaExceeded");
            sender.send(message("dead")).await.unwrap();
            s.put(EVENTS, "own").await;
        };
        futures_util::future::join(wait(AUDIT), last).await.0
    };
    let (dead, own) = futures_util::future::join(wait(EVENTS_TDLQ), more).await;
    let (dead, own) = (texts(&dead.unwrap()), texts(&own.unwrap()));
    assert_eq!((dead, own), (vec!["dead".into()], vec!["own".into()]));
}

/// A broker that allows two concurrent receives.
pub fn two_receivers() -> Setup {
    super::handles::two_receivers()
}

/// ENT-21, ENT-23, ENT-24, ENT-25, ENT-29, SND-24, VIA-01: status and quota of the topic apply to
/// sends through it. Accepted messages still move on.
pub async fn status_and_quota_of_a_topic_apply_to_sends_through_it(s: &Stage) {
    let sender = open(s).await;
    s.update("b", small(1)).await.unwrap();
    s.send("b", sized(1_000 << 10, "full")).await.unwrap();
    sender.send(sized(100 << 10, "waits")).await.unwrap();
    assert_eq!(transfers(s).await, (1, 0));
    assert!(s.topic(EVENTS).await.unwrap().size_bytes >= 100 << 10);
    for status in [EntityStatus::Disabled, EntityStatus::SendDisabled] {
        set_status(s, status).await;
        refused(sender.send(message("x")).await, "EntityDisabled");
    }
    // The status does not affect waiting messages.
    s.advance(ms(1)).await;
    s.purge("b").await.unwrap();
    while s.counts("b").await.active == 0 {
        s.advance(seconds(1)).await;
    }
    set_status(s, EntityStatus::Active).await;
    s.delete("b").await.unwrap();
    let tight = TopicUpdate { max_size_in_megabytes: Some(1), ..TopicUpdate::default() };
    s.update_topic(EVENTS, tight).await.unwrap();
    sender.send(sized(700 << 10, "dead")).await.unwrap();
    s.until_topic(EVENTS, |topic| topic.transfer_dead_letter == 1).await;
    refused(s.send(EVENTS, sized(400 << 10, "own")).await, "QuotaExceeded");
    let refusal = refused(sender.send(sized(400 << 10, "passing")).await, "QuotaExceeded");
    assert!(refusal.text.contains("topic `events`"), "{}", refusal.text);
    s.advance(ms(1)).await;
    s.purge(EVENTS_TDLQ).await.unwrap();
    s.send(EVENTS, sized(400 << 10, "own")).await.unwrap();
}

/// TMP-10, TMP-14, TMP-15, TMP-16, TMP-07, CNT-09: a topic with a waiting transfer is not idle, and
/// uses of its transfer dead-letter queue are uses of the topic. Messages in that queue do not keep
/// it.
pub async fn sends_through_a_topic_and_its_failed_sends_are_uses(s: &Stage) {
    let sender = open(s).await;
    s.update("b", small(1)).await.unwrap();
    s.send("b", sized(1_000 << 10, "full")).await.unwrap();
    let brief = TopicUpdate { auto_delete_on_idle: Some(minutes(5)), ..TopicUpdate::default() };
    s.update_topic(EVENTS, brief).await.unwrap();
    s.advance(before(minutes(5))).await;
    sender.send(sized(100 << 10, "waits")).await.unwrap();
    assert_eq!(s.topic(EVENTS).await.unwrap().accessed_at, s.now());
    s.advance(minutes(60)).await;
    assert_eq!(transfers(s).await, (1, 0));
    s.delete("b").await.unwrap();
    while transfers(s).await != (0, 1) {
        s.advance(seconds(1)).await;
    }
    // The time restarts when the last transfer ends.
    for _ in 0..3 {
        // A peek there, and a receive that finds nothing, are uses.
        let held = s.take_all(EVENTS_TDLQ).await;
        assert_eq!(s.topic(EVENTS).await.unwrap().accessed_at, s.now());
        for seen in &held {
            s.abandon(EVENTS_TDLQ, seen).await;
        }
        s.advance(before(minutes(5))).await;
        s.look(EVENTS_TDLQ).await;
        s.advance(before(minutes(5))).await;
    }
    s.advance(TICK).await;
    refused(s.topic(EVENTS).await, "EntityNotFound");
    refused(s.peek(EVENTS_TDLQ, 0, 1).await, "EntityNotFound");
}

/// VIA-01, VIA-03, LIF-04, LIF-05, ENT-14, FWD-19: waiting transfers of a topic and its transfer
/// dead letters survive a restart and are deleted only with the topic.
pub async fn sends_through_a_topic_survive_a_restart(s: &Stage) {
    let sender = open(s).await;
    s.update("b", small(1)).await.unwrap();
    s.open_queue("c").await;
    let to_c = s.sender_via("c", EVENTS).await.unwrap();
    s.delete("c").await.unwrap();
    s.send("b", sized(1_000 << 10, "full")).await.unwrap();
    sender.send(sized(100 << 10, "waits").with_time_to_live(seconds(10))).await.unwrap();
    to_c.send(message("dead")).await.unwrap();
    s.schedule(EVENTS, message("scheduled"), s.now().plus(minutes(9))).await.unwrap();
    s.put(EVENTS, "own").await;
    while transfers(s).await != (1, 1) {
        tokio::task::yield_now().await;
    }
    s.advance(minutes(1)).await;
    let before = s.topic(EVENTS).await.unwrap();
    let s = s.restart().await;
    let after = s.topic(EVENTS).await.unwrap();
    assert_eq!((after.transfer, after.transfer_dead_letter, after.scheduled), (1, 1, 1));
    assert_eq!(after.size_bytes, before.size_bytes);
    assert_eq!(after.last_sequence, before.last_sequence);
    let dead = s.take(EVENTS_TDLQ).await;
    assert_eq!((dead.text(), dead.reason()), ("dead", Some("MessagingEntityNotFound")));
    s.advance(ms(1)).await;
    s.purge("b").await.unwrap();
    while s.counts("b").await.active == 0 {
        s.advance(seconds(1)).await;
    }
    let seen = s.take("b").await;
    assert_eq!(seen.message.message_id.as_ref().unwrap().to_string(), "waits");
    assert_eq!(seen.expires_at, Some(s.now().plus(seconds(10))));
    assert_eq!(texts(&s.look(AUDIT).await), ["own"]);
    // A new topic with that name has none of these messages.
    s.delete_topic(EVENTS).await.unwrap();
    s.create_topic(EVENTS).await.unwrap();
    let topic = s.topic(EVENTS).await.unwrap();
    assert_eq!((transfers(&s).await, topic.size_bytes), ((0, 0), 0));
    assert!(s.look(EVENTS_TDLQ).await.is_empty());
    s.check_counts().await;
    s.stop().await;
}

/// A setup in which messages wait for a full destination.
pub fn holding_when_full() -> Setup {
    super::forwarding::holding_when_full()
}

fn complete(seen: &Seen) -> Work {
    Work::Settle { token: seen.token().to_owned(), decision: Decision::Complete }
}

fn send(text: &str) -> Work {
    Work::Send(message(text))
}

/// TXN-09, TXN-08, TXN-13, VIA-04, VIA-05: a settlement in a subscription, sends to its topic and
/// sends to other entities through the topic are one transaction.
pub async fn a_settlement_in_a_subscription_and_sends_to_others_are_one(s: &Stage) {
    open(s).await;
    s.create_subscription(EVENTS, "billing").await.unwrap();
    s.open_queue("c").await;
    s.put(EVENTS, "order").await;
    let held = s.take(AUDIT).await;
    let forgotten = s.begin_across().await.unwrap();
    s.within(forgotten, AUDIT, complete(&held)).await.unwrap();
    s.within(forgotten, "b", send("never")).await.unwrap();
    s.roll_back(forgotten).await.unwrap();
    let transaction = s.begin_across().await.unwrap();
    s.within(transaction, AUDIT, complete(&held)).await.unwrap();
    s.within(transaction, "b", send("to b")).await.unwrap();
    s.within(transaction, EVENTS, send("next")).await.unwrap();
    let batch = Work::SendBatch(vec![message("to c"), message("to c too")]);
    s.within(transaction, "c", batch).await.unwrap();
    s.within(transaction, EVENTS, send("after")).await.unwrap();
    // Only one subscription can take part with settlements.
    let other = s.take(BILLING).await;
    refused(s.within(transaction, BILLING, complete(&other)).await, "InvalidOperation");
    assert_eq!((s.counts("b").await.total(), transfers(s).await), (0, (0, 0)));
    assert_eq!(texts(&s.look(AUDIT).await), ["order"]);
    let parts = s.commit(transaction).await.unwrap();
    let numbers = |part: usize| match &parts[part] {
        PartOutcome::Accepted(number) => vec![number.0],
        PartOutcome::Pending(numbers) => numbers.iter().map(|number| number.0).collect(),
        other => panic!("{other:?}"),
    };
    assert_eq!(parts[0], PartOutcome::Done);
    assert_eq!((numbers(2), numbers(4)), (vec![2], vec![3]), "TXN-13");
    assert_eq!((numbers(1), numbers(3)), (vec![4], vec![5, 6]));
    s.until("b", |counts| counts.active == 1).await;
    s.until("c", |counts| counts.active == 2).await;
    assert_eq!(s.drain("b").await, ["to b"]);
    assert_eq!(s.drain("c").await, ["to c", "to c too"]);
    assert_eq!(s.drain(AUDIT).await, ["next", "after"]);
    assert_eq!(texts(&s.look(BILLING).await), ["order", "next", "after"]);
}

/// TXN-07, TXN-09, TXN-01: a failure of the topic, its subscription or the transfer undoes
/// everything.
pub async fn a_failure_of_one_part_undoes_all(s: &Stage) {
    open(s).await;
    s.put(EVENTS, "order").await;
    let begin = async || {
        let held = s.take(AUDIT).await;
        let transaction = s.begin_across().await.unwrap();
        s.within(transaction, AUDIT, complete(&held)).await.unwrap();
        s.within(transaction, "b", Work::Send(sized(400 << 10, "on"))).await.unwrap();
        s.within(transaction, EVENTS, Work::Send(sized(200 << 10, "own"))).await.unwrap();
        (transaction, held)
    };
    let untouched = async || {
        assert_eq!(texts(&s.look(AUDIT).await), ["order"]);
        assert_eq!((s.counts("b").await.total(), transfers(s).await), (0, (0, 0)));
    };
    // A subscription accepts no send, in a transaction either (SND-20).
    let narrow = s.begin().await.unwrap();
    refused(s.within(narrow, AUDIT, send("x")).await, "InvalidOperation");
    // The lock has ended.
    let (transaction, _) = begin().await;
    s.advance(minutes(1)).await;
    refused(s.commit(transaction).await, "MessageLockLost");
    untouched().await;
    // The topic accepts no more sends.
    let (transaction, held) = begin().await;
    set_status(s, EntityStatus::SendDisabled).await;
    refused(s.commit(transaction).await, "EntityDisabled");
    set_status(s, EntityStatus::Active).await;
    untouched().await;
    s.abandon(AUDIT, &held).await;
    // Each message fits, both together do not.
    let (transaction, _) = begin().await;
    let tight = TopicUpdate { max_size_in_megabytes: Some(1), ..TopicUpdate::default() };
    s.update_topic(EVENTS, tight).await.unwrap();
    s.within(transaction, "b", Work::Send(sized(300 << 10, "more"))).await.unwrap();
    s.within(transaction, EVENTS, Work::Send(sized(200 << 10, "more"))).await.unwrap();
    refused(s.commit(transaction).await, "QuotaExceeded");
    untouched().await;
}

/// TXN-10, TXN-14, TXN-15, VIA-03: a later failure of a transfer undoes nothing. Its dead letter is
/// completed and sent again in one transaction, and the result survives a restart.
pub async fn a_dead_letter_of_a_topic_is_completed_and_sent_again_as_one(s: &Stage) {
    open(s).await;
    s.put(EVENTS, "order").await;
    let held = s.take(AUDIT).await;
    let transaction = s.begin_across().await.unwrap();
    s.within(transaction, AUDIT, complete(&held)).await.unwrap();
    s.within(transaction, "b", send("wrong")).await.unwrap();
    s.delete("b").await.unwrap();
    s.commit(transaction).await.unwrap();
    s.until_topic(EVENTS, |topic| topic.transfer_dead_letter == 1).await;
    assert!(s.look(AUDIT).await.is_empty());
    s.open_queue("b").await;
    let wrong = s.take(EVENTS_TDLQ).await;
    // The topic's sub-queue is used first, so sends go through the topic.
    let transaction = s.begin_across().await.unwrap();
    s.within(transaction, EVENTS_TDLQ, complete(&wrong)).await.unwrap();
    s.within(transaction, "b", send("right")).await.unwrap();
    s.within(transaction, EVENTS, send("told")).await.unwrap();
    assert_eq!(transfers(s).await, (0, 1));
    s.commit(transaction).await.unwrap();
    let s = s.restart().await;
    s.until("b", |counts| counts.active == 1).await;
    assert_eq!(transfers(&s).await, (0, 0));
    assert_eq!(
        (s.drain("b").await, s.drain(AUDIT).await),
        (vec!["right".into()], vec!["told".into()])
    );
    s.check_counts().await;
    s.stop().await;
}

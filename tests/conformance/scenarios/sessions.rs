//! Files 11 and 07: sessions, on the transports that have them. The first queue that requires them is
//! opened by each scenario, so that nothing here runs on a queue without.

use peeklock_core::command::SessionFilter;
use peeklock_core::error::BrokerError;
use peeklock_core::ids::SequenceNumber;
use peeklock_inproc::{Client, Received, SessionReceiver};

use super::*;
use crate::subject::Refusal;

/// A queue that requires sessions, with a lock of 30 s.
fn by_session() -> QueueUpdate {
    QueueUpdate {
        requires_session: Some(true),
        lock_duration: Some(seconds(30)),
        ..QueueUpdate::default()
    }
}

async fn open_with(s: &Stage, properties: QueueUpdate) -> Client {
    s.open_queue_with(ORDERS, properties).await;
    Client::new(&s.broker)
}

async fn open(s: &Stage) -> Client {
    open_with(s, by_session()).await
}

async fn put(s: &Stage, session: &str, text: &str) -> u64 {
    s.send(ORDERS, of(session, text)).await.unwrap()
}

fn of(session: &str, text: &str) -> Message {
    Message { session_id: Some(session.into()), ..message(text) }
}

async fn take(receiver: &SessionReceiver, count: u32) -> Vec<Received> {
    receiver.receive_many(count, TimeSpan::ZERO).await.unwrap()
}

fn bodies(messages: &[Received]) -> Vec<String> {
    messages.iter().map(|one| String::from_utf8(one.body().to_vec()).unwrap()).collect()
}

#[track_caller]
fn fails<T>(result: Result<T, BrokerError>, condition: &str) {
    let refusal = result.map(|_| ()).map_err(Refusal::from);
    refused(refusal, condition);
}

/// SES-01, RCV-28, SND-25, DLQ-21, DLQ-11
pub async fn a_queue_that_requires_sessions_gives_and_takes_by_session_only(s: &Stage) {
    open(s).await;
    assert!(s.describe(ORDERS).await.unwrap().description.requires_session);
    refused(s.send(ORDERS, message("none")).await, "InvalidOperation");
    refused(s.send(ORDERS, of("", "empty")).await, "InvalidOperation");
    put(s, "a", "1").await;
    for mode in [ReceiveMode::PeekLock, ReceiveMode::ReceiveAndDelete] {
        refused(s.receive(ORDERS, mode, 1, TimeSpan::ZERO).await, "InvalidOperation");
    }
    s.assert_empty(DLQ).await;
    assert_eq!(texts(&s.look(ORDERS).await), ["1"]);
}

/// SES-05, SES-06, SES-10, SES-11, SES-16
pub async fn a_session_is_accepted_by_id_by_one_receiver(s: &Stage) {
    let client = open(s).await;
    let first = client.accept_session(ORDERS, "a").await.unwrap();
    assert_eq!(first.session_id(), "a");
    assert_eq!(first.locked_until(), s.now().plus(seconds(30)));
    fails(client.accept_session(ORDERS, "a").await, "SessionCannotBeLocked");
    let other = client.accept_session(ORDERS, "b").await.unwrap();
    put(s, "a", "1").await;
    put(s, "b", "2").await;
    put(s, "a", "3").await;
    assert_eq!(bodies(&take(&first, 10).await), ["1", "3"]);
    assert_eq!(bodies(&take(&other, 10).await), ["2"]);
    first.close().await.unwrap();
    let again = client.accept_session(ORDERS, "a").await.unwrap();
    let received = take(&again, 10).await;
    assert_eq!(bodies(&received), ["1", "3"]);
    assert!(received.iter().all(|one| one.delivery_count() == 1));
    again.close().await.unwrap();
    other.close().await.unwrap();
}

/// SES-07, SES-08
pub async fn the_next_session_is_that_of_the_oldest_message(s: &Stage) {
    let client = open(s).await;
    for (session, text) in [("c", "1"), ("a", "2"), ("c", "3"), ("b", "4")] {
        put(s, session, text).await;
    }
    let mut held = Vec::new();
    for expected in ["c", "a", "b"] {
        let receiver = client.accept_next_session(ORDERS, TimeSpan::ZERO).await.unwrap();
        assert_eq!(receiver.session_id(), expected);
        held.push(receiver);
    }
    fails(client.accept_next_session(ORDERS, TimeSpan::ZERO).await, "ServiceTimeout");
}

/// SES-08: waiting calls are served in their order; one that is given up gets nothing.
pub async fn waiting_accepts_are_served_in_order(s: &Stage) {
    let client = open(s).await;
    s.advance(seconds(1)).await;
    let given_up = Box::pin(client.accept_next_session(ORDERS, minutes(1)));
    let first = Box::pin(client.accept_next_session(ORDERS, minutes(1)));
    let second = Box::pin(client.accept_next_session(ORDERS, minutes(1)));
    let work = async {
        s.until_used(ORDERS).await;
        let short = client.accept_next_session(ORDERS, TimeSpan::ZERO).await;
        fails(short, "ServiceTimeout");
        put(s, "a", "1").await;
        put(s, "b", "2").await;
    };
    {
        let mut given_up = given_up;
        std::future::poll_fn(|context| {
            assert!(given_up.as_mut().poll(context).is_pending(), "it did not wait");
            std::task::Poll::Ready(())
        })
        .await;
    }
    let (first, second, ()) = tokio::join!(first, second, work);
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!((first.session_id(), second.session_id()), ("a", "b"));
}

/// SES-08: a call that is dropped after it was granted a session gives it back, and nothing counts.
pub async fn an_accept_that_is_dropped_holds_nothing(s: &Stage) {
    let client = open(s).await;
    s.advance(seconds(1)).await;
    let mut accept = Box::pin(client.accept_next_session(ORDERS, minutes(1)));
    std::future::poll_fn(|context| {
        assert!(accept.as_mut().poll(context).is_pending(), "it did not wait");
        std::task::Poll::Ready(())
    })
    .await;
    s.until_used(ORDERS).await;
    put(s, "a", "1").await;
    while client.admin().queue(ORDERS).await.unwrap().sessions.unwrap().locked == 0 {
        tokio::task::yield_now().await;
    }
    drop(accept);
    let receiver = client.accept_session(ORDERS, "a").await.unwrap();
    assert_eq!(take(&receiver, 9).await[0].delivery_count(), 1);
}

/// SES-12, SES-13, SES-14, SES-15
pub async fn what_is_done_through_a_session_lock_ends_with_it(s: &Stage) {
    let client = open(s).await;
    put(s, "a", "1").await;
    let receiver = client.accept_session(ORDERS, "a").await.unwrap();
    let received = take(&receiver, 1).await.remove(0);
    assert_eq!(received.locked_until(), Some(receiver.locked_until()));
    let token = received.lock_token().unwrap().to_string();
    refused(s.renew(ORDERS, &token).await, "InvalidOperation");
    s.advance(seconds(20)).await;
    assert_eq!(receiver.renew_lock().await.unwrap(), s.now().plus(seconds(30)));
    s.advance(before(seconds(30))).await;
    receiver.set_state(Some("seen".into())).await.unwrap();
    s.advance(TICK).await;
    fails(receiver.complete(&received).await, "SessionLockLost");
    fails(receiver.renew_lock().await, "SessionLockLost");
    fails(receiver.receive(TimeSpan::ZERO).await, "SessionLockLost");
    fails(receiver.state().await, "SessionLockLost");
    fails(receiver.set_state(None).await, "SessionLockLost");
    let next = client.accept_next_session(ORDERS, TimeSpan::ZERO).await.unwrap();
    let again = take(&next, 1).await.remove(0);
    assert_eq!(again.delivery_count(), 2);
    // Dropping the one that lost its lock takes nothing from the one that has it.
    drop(receiver);
    next.complete(&again).await.unwrap();
    fails(next.complete(&again).await, "MessageLockLost");
    next.set_state(None).await.unwrap();
}

/// SES-19, SES-20, SES-22, SES-32
pub async fn an_abandoned_message_comes_before_those_behind_it(s: &Stage) {
    let client = open(s).await;
    for text in ["1", "2", "3", "4"] {
        put(s, "a", text).await;
    }
    let receiver = client.accept_session(ORDERS, "a").await.unwrap();
    let first = take(&receiver, 2).await;
    receiver.abandon(&first[0], &[]).await.unwrap();
    let next = take(&receiver, 1).await.remove(0);
    assert_eq!(
        (bodies(std::slice::from_ref(&next)), next.delivery_count()),
        (vec!["1".to_owned()], 2)
    );
    receiver.dead_letter(&next, Some("bad"), None, &[]).await.unwrap();
    assert_eq!(bodies(&take(&receiver, 9).await), ["3", "4"]);
    receiver.complete(&first[1]).await.unwrap();
    let dead = s.take(DLQ).await;
    assert_eq!((dead.text(), dead.message.session_id.as_deref()), ("1", Some("a")));
    s.complete(DLQ, &dead).await;
}

/// SES-30, SES-31, SES-33, SET-35
pub async fn only_an_orderly_close_leaves_the_count_alone(s: &Stage) {
    let properties = QueueUpdate { max_delivery_count: Some(3), ..by_session() };
    let client = open_with(s, properties).await;
    put(s, "a", "1").await;
    let mut counts = Vec::new();
    for round in 0..3 {
        let receiver = client.accept_session(ORDERS, "a").await.unwrap();
        counts.push(take(&receiver, 1).await[0].delivery_count());
        match round {
            0 => receiver.close().await.unwrap(),
            1 => drop(receiver),
            _ => s.advance(seconds(30)).await,
        }
    }
    assert_eq!(counts, [1, 1, 2]);
    let receiver = client.accept_session(ORDERS, "a").await.unwrap();
    assert_eq!(take(&receiver, 1).await[0].delivery_count(), 3);
    drop(receiver);
    s.advance(TICK).await;
    assert_eq!(s.take(DLQ).await.text(), "1");
}

/// SES-24, SES-25, SES-26, SES-28
pub async fn a_session_keeps_its_state_for_the_next_holder(s: &Stage) {
    let properties = QueueUpdate { max_message_size_in_kilobytes: Some(1_024), ..by_session() };
    let client = open_with(s, properties).await;
    let first = client.accept_session(ORDERS, "a").await.unwrap();
    assert_eq!(first.state().await.unwrap(), None);
    let large = vec![b's'; 1 << 20];
    first.set_state(Some(large.clone().into())).await.unwrap();
    let larger = [&large[..], b"."].concat();
    fails(first.set_state(Some(larger.into())).await, "MessageSizeExceeded");
    assert_eq!(s.describe(ORDERS).await.unwrap().size_bytes, 1 << 20);
    drop(first);
    let second = client.accept_session(ORDERS, "a").await.unwrap();
    assert_eq!(second.state().await.unwrap().unwrap(), large);
    second.set_state(Some("".into())).await.unwrap();
    assert_eq!(second.state().await.unwrap().unwrap(), "");
    second.set_state(None).await.unwrap();
    assert_eq!(second.state().await.unwrap(), None);
}

/// SES-04, SES-29, CNT-11
pub async fn sessions_are_listed_by_id(s: &Stage) {
    let client = open(s).await;
    put(s, "b", "1").await;
    put(s, "a", "2").await;
    let held = client.accept_session(ORDERS, "c").await.unwrap();
    s.advance(seconds(1)).await;
    let before = s.now();
    s.advance(seconds(1)).await;
    held.set_state(Some("x".into())).await.unwrap();
    let list = async |which, skip, top| {
        let names = client.sessions(ORDERS, which, skip, top).await.unwrap();
        names.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    assert_eq!(list(SessionFilter::All, 0, 100).await, ["a", "b", "c"]);
    assert_eq!(list(SessionFilter::All, 1, 1).await, ["b"]);
    assert_eq!(list(SessionFilter::WithActiveMessages, 0, 100).await, ["a", "b"]);
    assert_eq!(list(SessionFilter::StateSetAfter(before), 0, 100).await, ["c"]);
    let described = client.admin().queue(ORDERS).await.unwrap();
    assert_eq!(described.sessions.map(|counts| (counts.existing, counts.locked)), Some((3, 1)));
    held.set_state(None).await.unwrap();
    held.close().await.unwrap();
    assert_eq!(list(SessionFilter::All, 0, 100).await, ["a", "b"]);
}

/// DEF-08, PEK-07, DEL-07, SCH-03
pub async fn what_is_set_aside_belongs_to_its_session(s: &Stage) {
    let client = open(s).await;
    let deferred = put(s, "a", "deferred").await;
    let at = s.now().plus(seconds(10));
    s.send(ORDERS, Message { scheduled_enqueue_time: Some(at), ..of("a", "later") }).await.unwrap();
    put(s, "b", "other").await;
    let holder = client.accept_session(ORDERS, "a").await.unwrap();
    let received = take(&holder, 9).await;
    holder.defer(&received[0], &[]).await.unwrap();
    let numbers = vec![SequenceNumber(deferred)];
    let other = client.accept_session(ORDERS, "b").await.unwrap();
    fails(other.receive_deferred(numbers.clone()).await, "SessionLockLost");
    let looked = holder.peek(SequenceNumber(0), 9).await.unwrap();
    assert_eq!(bodies(&looked), ["deferred", "later"]);
    s.advance(seconds(10)).await;
    assert_eq!(bodies(&take(&holder, 9).await), ["later"]);
    let again = holder.receive_deferred(numbers).await.unwrap();
    holder.complete(&again[0]).await.unwrap();
    put(s, "a", "more").await;
    s.advance(seconds(1)).await;
    assert_eq!(holder.delete_batch(9, None).await.unwrap(), 1);
    let admin = client.admin();
    assert_eq!(admin.delete_batch_unlocked(ORDERS, 9, None).await.unwrap(), 0);
    other.close().await.unwrap();
    assert_eq!(admin.delete_batch_unlocked(ORDERS, 9, None).await.unwrap(), 1);
}

/// EXP-41, EXP-42, EXP-45, EXP-46: the test of EXP-45.
pub async fn one_expired_message_expires_its_whole_session(s: &Stage) {
    let properties =
        QueueUpdate { dead_lettering_on_message_expiration: Some(true), ..by_session() };
    let client = open_with(s, properties).await;
    put(s, "a", "1").await;
    s.send(ORDERS, of("a", "2").with_time_to_live(seconds(1))).await.unwrap();
    s.advance(seconds(2)).await;
    assert_eq!(texts(&s.look(ORDERS).await), ["1", "2"]);
    let receiver = client.accept_session(ORDERS, "a").await.unwrap();
    assert!(take(&receiver, 9).await.is_empty());
    let dead = s.take_all(DLQ).await;
    assert_eq!(texts(&dead), ["1", "2"]);
    for seen in &dead {
        let reason = seen.message.application_property("DeadLetterReason");
        assert_eq!(reason, Some(&Value::from("TTLExpiredException")));
    }
}

/// EXP-47
pub async fn messages_of_a_session_expire_one_by_one_if_set_so(s: &Stage) {
    let client = open(s).await;
    put(s, "a", "1").await;
    s.send(ORDERS, of("a", "2").with_time_to_live(seconds(1))).await.unwrap();
    put(s, "a", "3").await;
    s.advance(seconds(2)).await;
    let receiver = client.accept_session(ORDERS, "a").await.unwrap();
    assert_eq!(bodies(&take(&receiver, 9).await), ["1", "3"]);
}

pub fn one_by_one() -> Setup {
    let mut setup = Setup::default();
    setup.settings.sessions_expire_whole = false;
    setup
}

/// SES-18, LIF-04
pub async fn sessions_outlive_a_restart_and_their_locks_do_not(s: &Stage) {
    let client = open(s).await;
    put(s, "a", "1").await;
    put(s, "b", "2").await;
    let holder = client.accept_session(ORDERS, "a").await.unwrap();
    holder.set_state(Some("half way".into())).await.unwrap();
    let held = take(&holder, 9).await;
    let second = s.restart().await;
    let client = Client::new(&second.broker);
    fails(holder.complete(&held[0]).await, "OperationCancelled");
    let holder = client.accept_next_session(ORDERS, TimeSpan::ZERO).await.unwrap();
    assert_eq!(holder.session_id(), "a");
    assert_eq!(holder.state().await.unwrap().unwrap(), "half way");
    let again = take(&holder, 9).await;
    assert_eq!((bodies(&again), again[0].delivery_count()), (vec!["1".to_owned()], 1));
    fails(holder.complete(&held[0]).await, "SessionLockLost");
    holder.complete(&again[0]).await.unwrap();
    holder.set_state(None).await.unwrap();
    second.stop().await;
}

/// SES-34, SES-35
pub async fn requesters_share_a_queue_of_replies(s: &Stage) {
    let client = open(s).await;
    s.open_queue("requests").await;
    let wait = minutes(1);
    let (one, two) = (
        client.accept_session(ORDERS, "requester 1").await.unwrap(),
        client.accept_session(ORDERS, "requester 2").await.unwrap(),
    );
    for requester in ["requester 1", "requester 2"] {
        let request = Message {
            reply_to: Some(ORDERS.into()),
            reply_to_session_id: Some(requester.into()),
            ..message(requester)
        };
        s.send("requests", request).await.unwrap();
    }
    let responder = async {
        for request in s.take_all("requests").await.into_iter().rev() {
            let session = request.message.reply_to_session_id.as_deref().unwrap();
            let reply = Message {
                correlation_id: request.message.message_id.clone(),
                ..of(session, request.text())
            };
            s.send(request.message.reply_to.as_deref().unwrap(), reply).await.unwrap();
            s.complete("requests", &request).await;
        }
    };
    let (first, second, ()) = tokio::join!(one.receive(wait), two.receive(wait), responder);
    let (first, second) = (first.unwrap().unwrap(), second.unwrap().unwrap());
    assert_eq!(bodies(&[first, second]), ["requester 1", "requester 2"]);
}

/// SES-09, MAT-04, ENT-24, ENT-25: the column "Session" of the operation matrix, for what no other
/// scenario here meets.
pub async fn operations_of_sessions_are_refused_where_there_are_none(s: &Stage) {
    let client = open(s).await;
    s.open_queue("plain").await;
    for path in ["plain", DLQ, TDLQ] {
        fails(client.accept_session(path, "a").await, "InvalidOperation");
        let next = client.accept_next_session(path, TimeSpan::ZERO).await;
        fails(next, "InvalidOperation");
        fails(client.sessions(path, SessionFilter::All, 0, 1).await, "InvalidOperation");
        let admin = client.admin();
        fails(admin.delete_batch_unlocked(path, 1, None).await, "InvalidOperation");
    }
    fails(client.accept_session("absent", "a").await, "EntityNotFound");
    put(s, "a", "1").await;
    put(s, "a", "2").await;
    let holder = client.accept_session(ORDERS, "a").await.unwrap();
    let held = take(&holder, 1).await.remove(0);
    let disabled = QueueUpdate { status: Some(EntityStatus::Disabled), ..QueueUpdate::default() };
    s.update(ORDERS, disabled).await.unwrap();
    fails(client.accept_session(ORDERS, "b").await, "EntityDisabled");
    fails(holder.receive(TimeSpan::ZERO).await, "EntityDisabled");
    fails(holder.delete_batch(1, None).await, "EntityDisabled");
    assert_eq!(holder.state().await.unwrap(), None);
    holder.renew_lock().await.unwrap();
    holder.complete(&held).await.unwrap();
    assert_eq!(bodies(&holder.peek(SequenceNumber(0), 9).await.unwrap()), ["2"]);
}

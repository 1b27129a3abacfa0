//! Files 11 and 07: sessions, on the transports that have them. Each scenario opens a queue that
//! requires sessions, so that none runs on a queue without them.

use std::task::Poll;

use bytes::Bytes;

use peeklock_core::command::SessionFilter;
use peeklock_core::description::{RetryKind, SessionRetryOrder, SubscriptionUpdate};

use super::*;
use crate::subject::{Answer, Session};
use crate::subjects::Transport;

/// A queue that requires sessions, with a lock of 30 s.
fn by_session() -> QueueUpdate {
    QueueUpdate {
        requires_session: Some(true),
        lock_duration: Some(seconds(30)),
        ..QueueUpdate::default()
    }
}

async fn open(s: &Stage) {
    s.open_queue_with(ORDERS, by_session()).await;
}

async fn put(s: &Stage, session: &str, text: &str) -> u64 {
    s.send(ORDERS, of(session, text)).await.unwrap()
}

fn of(session: &str, text: &str) -> Message {
    Message { session_id: Some(session.into()), ..message(text) }
}

/// Tries to lock a session.
async fn try_hold(s: &Stage, path: &str, session: &str) -> Answer<Box<dyn Session>> {
    s.accept(path, Some(session), ReceiveMode::PeekLock, TimeSpan::ZERO).await
}

/// Locks a session.
async fn hold(s: &Stage, session: &str) -> Box<dyn Session> {
    try_hold(s, ORDERS, session).await.unwrap()
}

/// Locks the next session.
async fn next(s: &Stage, wait: TimeSpan) -> Answer<Box<dyn Session>> {
    s.accept(ORDERS, None, ReceiveMode::PeekLock, wait).await
}

async fn take(session: &dyn Session, count: u32) -> Vec<Seen> {
    session.receive(count, TimeSpan::ZERO).await.unwrap()
}

async fn complete(session: &dyn Session, seen: &Seen) -> Answer<()> {
    session.settle(seen, Decision::Complete).await
}

/// Waits until no session is held: the release of a dropped holder has no answer.
async fn until_unlocked(s: &Stage) {
    s.until_held(ORDERS, |count| count == 0).await;
}

/// Starts an operation that must wait.
async fn begin<T>(future: &mut (impl Future<Output = T> + Unpin)) {
    std::future::poll_fn(|context| {
        assert!(std::pin::Pin::new(&mut *future).poll(context).is_pending(), "it did not wait");
        Poll::Ready(())
    })
    .await;
}

/// SES-01, SES-03, RCV-28, SND-25, DLQ-21, DLQ-11
pub async fn a_queue_that_requires_sessions_sends_and_receives_by_session_only(s: &Stage) {
    open(s).await;
    assert!(s.describe(ORDERS).await.unwrap().description.requires_session);
    refused(s.send(ORDERS, message("none")).await, "InvalidOperation");
    // The empty id is a valid session id (SES-03).
    s.send(ORDERS, of("", "empty")).await.unwrap();
    put(s, "a", "1").await;
    for mode in [ReceiveMode::PeekLock, ReceiveMode::ReceiveAndDelete] {
        refused(s.receive(ORDERS, mode, 1, TimeSpan::ZERO).await, "InvalidOperation");
    }
    s.assert_empty(DLQ).await;
    assert_eq!(texts(&s.look(ORDERS).await), ["empty", "1"]);
}

/// FWD-30, FWD-26: dead letters of a session are forwarded to a queue without sessions.
pub async fn dead_letters_of_a_session_are_forwarded(s: &Stage) {
    s.open_queue("end").await;
    let forward_dead_lettered_messages_to = Some("end".into());
    let forwards = QueueUpdate { forward_dead_lettered_messages_to, ..by_session() };
    s.open_queue_with(ORDERS, forwards).await;
    put(s, "a", "1").await;
    let session = hold(s, "a").await;
    let seen = take(&*session, 1).await.remove(0);
    let (reason, description) = (Some("broken".into()), None);
    let dead = Decision::DeadLetter { reason, description, properties: vec![] };
    session.settle(&seen, dead).await.unwrap();
    // The session is still held: the dead-letter queue has no sessions.
    s.until("end", |counts| counts.active == 1).await;
    session.close().await.unwrap();
    let seen = s.take("end").await;
    assert_eq!((seen.text(), seen.reason()), ("1", Some("broken")));
    assert_eq!(seen.message.session_id.as_deref(), Some("a"));
    s.until(ORDERS, |counts| counts.total() == 0).await;
}

/// SES-05, SES-06, SES-10, SES-11, SES-16
pub async fn a_session_is_accepted_by_id_by_one_receiver(s: &Stage) {
    open(s).await;
    let first = hold(s, "a").await;
    assert_eq!(first.id(), "a");
    assert_eq!(first.locked_until(), s.now().plus(seconds(30)));
    refused(try_hold(s, ORDERS, "a").await, "SessionCannotBeLocked");
    let other = hold(s, "b").await;
    put(s, "a", "1").await;
    put(s, "b", "2").await;
    put(s, "a", "3").await;
    assert_eq!(texts(&take(&*first, 10).await), ["1", "3"]);
    assert_eq!(texts(&take(&*other, 10).await), ["2"]);
    first.close().await.unwrap();
    let again = hold(s, "a").await;
    let received = take(&*again, 10).await;
    assert_eq!(texts(&received), ["1", "3"]);
    assert!(received.iter().all(|one| one.delivery_count == 1));
    again.close().await.unwrap();
    other.close().await.unwrap();
}

/// SES-07, SES-08
pub async fn the_next_session_has_the_oldest_message(s: &Stage) {
    open(s).await;
    for (session, text) in [("c", "1"), ("a", "2"), ("c", "3"), ("b", "4")] {
        put(s, session, text).await;
    }
    let mut held = Vec::new();
    for expected in ["c", "a", "b"] {
        let receiver = next(s, TimeSpan::ZERO).await.unwrap();
        assert_eq!(receiver.id(), expected);
        held.push(receiver);
    }
    refused(next(s, TimeSpan::ZERO).await, "ServiceTimeout");
}

/// SES-08: waiting calls are served in order; a dropped one gets nothing.
pub async fn waiting_accepts_are_served_in_order(s: &Stage) {
    open(s).await;
    s.advance(seconds(1)).await;
    let mut given_up = Box::pin(next(s, minutes(1)));
    let first = Box::pin(next(s, minutes(1)));
    let second = Box::pin(next(s, minutes(1)));
    let work = async {
        s.until_used(ORDERS).await;
        let short = next(s, TimeSpan::ZERO).await;
        refused(short, "ServiceTimeout");
        put(s, "a", "1").await;
        put(s, "b", "2").await;
    };
    begin(&mut given_up).await;
    drop(given_up);
    // The second call starts when the first one waits.
    let behind = async {
        s.until_used(ORDERS).await;
        s.advance(seconds(1)).await;
        tokio::join!(second, work)
    };
    let (first, (second, ())) = tokio::join!(first, behind);
    let (first, second) = (first.unwrap(), second.unwrap());
    assert_eq!((first.id(), second.id()), ("a", "b"));
}

/// SES-08: a call that is dropped after it was granted a session releases it without a counted
/// delivery.
pub async fn a_dropped_accept_holds_nothing(s: &Stage) {
    open(s).await;
    s.advance(seconds(1)).await;
    let mut accept = Box::pin(next(s, minutes(1)));
    tokio::select! {
        biased;
        answer = &mut accept => panic!("it did not wait: {answer:?}"),
        () = s.until_used(ORDERS) => {}
    }
    put(s, "a", "1").await;
    s.until_held(ORDERS, |count| count > 0).await;
    drop(accept);
    until_unlocked(s).await;
    let receiver = hold(s, "a").await;
    assert_eq!(take(&*receiver, 9).await[0].delivery_count, 1);
}

/// SES-12, SES-13, SES-14, SES-15, EXP-40
pub async fn work_under_a_session_lock_ends_with_it(s: &Stage) {
    open(s).await;
    put(s, "a", "1").await;
    let receiver = hold(s, "a").await;
    let received = take(&*receiver, 1).await.remove(0);
    assert_eq!(received.locked_until, Some(receiver.locked_until()));
    refused(s.renew(ORDERS, received.token()).await, "InvalidOperation");
    s.advance(seconds(20)).await;
    assert_eq!(receiver.renew().await.unwrap(), s.now().plus(seconds(30)));
    s.advance(before(seconds(30))).await;
    receiver.set_state(Some("seen".into())).await.unwrap();
    s.advance(TICK).await;
    refused(complete(&*receiver, &received).await, "SessionLockLost");
    refused(receiver.renew().await, "SessionLockLost");
    refused(receiver.receive(1, TimeSpan::ZERO).await, "SessionLockLost");
    refused(receiver.state().await, "SessionLockLost");
    refused(receiver.set_state(None).await, "SessionLockLost");
    let other = next(s, TimeSpan::ZERO).await.unwrap();
    let again = take(&*other, 1).await.remove(0);
    assert_eq!(again.delivery_count, 2);
    // Dropping the holder whose lock was lost does not affect the new holder.
    drop(receiver);
    complete(&*other, &again).await.unwrap();
    refused(complete(&*other, &again).await, "MessageLockLost");
    other.set_state(None).await.unwrap();
}

/// SES-19, SES-20, SES-22, SES-32
pub async fn an_abandoned_message_precedes_later_messages(s: &Stage) {
    open(s).await;
    for text in ["1", "2", "3", "4"] {
        put(s, "a", text).await;
    }
    let receiver = hold(s, "a").await;
    let first = take(&*receiver, 2).await;
    receiver.settle(&first[0], Decision::Abandon(vec![])).await.unwrap();
    let next = take(&*receiver, 1).await.remove(0);
    assert_eq!(
        (texts(std::slice::from_ref(&next)), next.delivery_count),
        (vec!["1".to_owned()], 2)
    );
    let bad = Some("bad".to_owned());
    let decision = Decision::DeadLetter { reason: bad, description: None, properties: vec![] };
    receiver.settle(&next, decision).await.unwrap();
    assert_eq!(texts(&take(&*receiver, 9).await), ["3", "4"]);
    complete(&*receiver, &first[1]).await.unwrap();
    let dead = s.take(DLQ).await;
    assert_eq!((dead.text(), dead.message.session_id.as_deref()), ("1", Some("a")));
    s.complete(DLQ, &dead).await;
}

/// RTY-22, RTY-24: a delayed message blocks later messages of its session, and the session is
/// offered when it is due.
pub async fn a_delayed_message_blocks_its_session(s: &Stage) {
    open(s).await;
    for (session, text) in [("a", "1"), ("a", "2"), ("b", "3")] {
        put(s, session, text).await;
    }
    let receiver = hold(s, "a").await;
    let first = take(&*receiver, 1).await.remove(0);
    receiver.settle(&first, super::retry::for_ms(10_000)).await.unwrap();
    assert_eq!(texts(&take(&*receiver, 9).await), Vec::<String>::new());
    receiver.close().await.unwrap();
    let other = next(s, TimeSpan::ZERO).await.unwrap();
    assert_eq!(other.id(), "b");
    s.advance(before(seconds(10))).await;
    refused(next(s, TimeSpan::ZERO).await, "ServiceTimeout");
    s.advance(TICK).await;
    let again = next(s, TimeSpan::ZERO).await.unwrap();
    let received = take(&*again, 9).await;
    assert_eq!((again.id(), texts(&received)), ("a", vec!["1".to_owned(), "2".to_owned()]));
    assert_eq!(received[0].delivery_count, 2);
}

/// RTY-23: with `SessionRetryOrder::Pass`, later messages are delivered before a delayed one. When
/// it is due, it precedes the remaining ones.
pub async fn later_messages_pass_a_delayed_one_if_configured(s: &Stage) {
    let session_retry_order = Some(SessionRetryOrder::Pass);
    s.open_queue_with(ORDERS, QueueUpdate { session_retry_order, ..by_session() }).await;
    for text in ["1", "2", "3"] {
        put(s, "a", text).await;
    }
    let receiver = hold(s, "a").await;
    let first = take(&*receiver, 1).await.remove(0);
    receiver.settle(&first, super::retry::for_ms(10_000)).await.unwrap();
    let second = take(&*receiver, 1).await.remove(0);
    assert_eq!(second.text(), "2");
    complete(&*receiver, &second).await.unwrap();
    s.advance(seconds(10)).await;
    assert_eq!(texts(&take(&*receiver, 9).await), ["1", "3"]);
}

/// RTY-17, RTY-25: when a session lock times out, unsettled messages are delayed by the policy.
pub async fn an_expired_session_lock_delays_unsettled_messages(s: &Stage) {
    let policy = super::retry::policy(RetryKind::Fixed, seconds(10));
    s.open_queue_with(ORDERS, QueueUpdate { retry_policy: Some(Some(policy)), ..by_session() })
        .await;
    for text in ["1", "2"] {
        put(s, "a", text).await;
    }
    let late = hold(s, "a").await;
    assert_eq!(texts(&take(&*late, 1).await), ["1"]);
    s.advance(seconds(30)).await;
    assert_eq!(s.counts(ORDERS).await.delayed, 1);
    let receiver = hold(s, "a").await;
    assert_eq!(texts(&take(&*receiver, 9).await), Vec::<String>::new());
    s.advance(seconds(10)).await;
    let received = take(&*receiver, 9).await;
    assert_eq!(texts(&received), ["1", "2"]);
    assert_eq!((received[0].delivery_count, received[1].delivery_count), (2, 1));
}

/// SES-30, SES-31, SES-33, SET-35
pub async fn only_an_orderly_close_leaves_the_count_unchanged(s: &Stage) {
    let properties = QueueUpdate { max_delivery_count: Some(3), ..by_session() };
    s.open_queue_with(ORDERS, properties).await;
    put(s, "a", "1").await;
    let mut counts = Vec::new();
    for round in 0..3 {
        let receiver = hold(s, "a").await;
        counts.push(take(&*receiver, 1).await[0].delivery_count);
        match round {
            0 => receiver.close().await.unwrap(),
            1 => {
                drop(receiver);
                until_unlocked(s).await;
            }
            _ => s.advance(seconds(30)).await,
        }
    }
    assert_eq!(counts, [1, 1, 2]);
    let receiver = hold(s, "a").await;
    assert_eq!(take(&*receiver, 1).await[0].delivery_count, 3);
    drop(receiver);
    until_unlocked(s).await;
    s.advance(TICK).await;
    assert_eq!(s.take(DLQ).await.text(), "1");
}

/// SES-24, SES-25, SES-26
pub async fn a_session_keeps_its_state_for_the_next_holder(s: &Stage) {
    let properties = QueueUpdate { max_message_size_in_kilobytes: Some(1_024), ..by_session() };
    s.open_queue_with(ORDERS, properties).await;
    let first = hold(s, "a").await;
    assert_eq!(first.state().await.unwrap(), None);
    let large = vec![b's'; 1 << 20];
    first.set_state(Some(large.clone().into())).await.unwrap();
    let larger = [&large[..], b"."].concat();
    refused(first.set_state(Some(larger.into())).await, "MessageSizeExceeded");
    assert_eq!(s.describe(ORDERS).await.unwrap().size_bytes, 1 << 20);
    drop(first);
    until_unlocked(s).await;
    let second = hold(s, "a").await;
    assert_eq!(second.state().await.unwrap().unwrap(), large);
    second.set_state(Some("".into())).await.unwrap();
    // Over AMQP an empty state clears it, because some clients cannot send null (AMQP-82).
    let empty = (s.transport != Transport::Amqp).then(Bytes::new);
    assert_eq!(second.state().await.unwrap(), empty);
    second.set_state(None).await.unwrap();
    assert_eq!(second.state().await.unwrap(), None);
}

/// SES-04, SES-29, CNT-11
pub async fn sessions_are_listed_by_id(s: &Stage) {
    open(s).await;
    s.create_topic("events").await.unwrap();
    let sessions = SubscriptionUpdate { requires_session: Some(true), ..Default::default() };
    s.create_subscription_with("events", "all", sessions, vec![]).await.unwrap();
    let all = "events/Subscriptions/all";
    for (path, to) in [(ORDERS, ORDERS), (all, "events")] {
        for (session, text) in [("b", "1"), ("a", "2")] {
            s.send(to, of(session, text)).await.unwrap();
        }
        // Sessions are listed also over transports that cannot accept sessions.
        let held = s.in_process().accept_session(path, "c").await.unwrap();
        s.advance(seconds(1)).await;
        let before = s.now();
        s.advance(seconds(1)).await;
        let list = async |which, skip, top| s.sessions(path, which, skip, top).await.unwrap();
        assert_eq!(list(SessionFilter::WithActiveMessages, 0, 100).await, ["a", "b"]);
        assert_eq!(list(SessionFilter::WithActiveMessages, 1, 100).await, ["b"]);
        held.set_state(Some("x".into())).await.unwrap();
        // The maximal instant also lists sessions with a state.
        let working = SessionFilter::StateSetAfter(Timestamp::NEVER);
        assert_eq!(list(working, 0, 100).await, ["a", "b", "c"]);
        assert_eq!(list(SessionFilter::All, 0, 100).await, ["a", "b", "c"]);
        assert_eq!(list(SessionFilter::All, 1, 1).await, ["b"]);
        assert_eq!(list(SessionFilter::All, 3, 100).await, Vec::<String>::new());
        assert_eq!(list(SessionFilter::StateSetAfter(before), 0, 100).await, ["c"]);
        let none = list(SessionFilter::StateSetAfter(s.now()), 0, 100).await;
        assert_eq!(none, Vec::<String>::new());
        held.set_state(None).await.unwrap();
        held.close().await.unwrap();
        assert_eq!(list(SessionFilter::All, 0, 100).await, ["a", "b"]);
    }
    let held = s.in_process().accept_session(ORDERS, "a").await.unwrap();
    let described = s.describe(ORDERS).await.unwrap();
    assert_eq!(described.sessions.map(|counts| (counts.existing, counts.locked)), Some((2, 1)));
    held.close().await.unwrap();
    s.open_queue("plain").await;
    refused(s.sessions("plain", SessionFilter::All, 0, 9).await, "InvalidOperation");
    refused(s.sessions("absent", SessionFilter::All, 0, 9).await, "EntityNotFound");
}

/// DEF-08, PEK-07, DEL-07, SCH-03
pub async fn deferred_and_scheduled_messages_belong_to_their_session(s: &Stage) {
    open(s).await;
    let deferred = put(s, "a", "deferred").await;
    let at = s.now().plus(seconds(10));
    s.send(ORDERS, Message { scheduled_enqueue_time: Some(at), ..of("a", "later") }).await.unwrap();
    put(s, "b", "other").await;
    let holder = hold(s, "a").await;
    let received = take(&*holder, 9).await;
    holder.settle(&received[0], Decision::Defer(vec![])).await.unwrap();
    let numbers = [deferred];
    let other = hold(s, "b").await;
    refused(other.receive_deferred(&numbers).await, "SessionLockLost");
    let looked = holder.peek(0, 9).await.unwrap();
    assert_eq!(texts(&looked), ["deferred", "later"]);
    s.advance(seconds(10)).await;
    assert_eq!(texts(&take(&*holder, 9).await), ["later"]);
    let again = holder.receive_deferred(&numbers).await.unwrap();
    complete(&*holder, &again[0]).await.unwrap();
    put(s, "a", "more").await;
    s.advance(seconds(1)).await;
    assert_eq!(holder.delete_batch(9).await.unwrap(), 1);
    assert_eq!(s.delete_unlocked(ORDERS, 9).await.unwrap(), 0);
    other.close().await.unwrap();
    assert_eq!(s.delete_unlocked(ORDERS, 9).await.unwrap(), 1);
}

/// EXP-41, EXP-42, EXP-45, EXP-46: the test in EXP-45.
pub async fn one_expired_message_expires_its_whole_session(s: &Stage) {
    let properties =
        QueueUpdate { dead_lettering_on_message_expiration: Some(true), ..by_session() };
    s.open_queue_with(ORDERS, properties).await;
    put(s, "a", "1").await;
    s.send(ORDERS, of("a", "2").with_time_to_live(seconds(1))).await.unwrap();
    s.advance(seconds(2)).await;
    assert_eq!(texts(&s.look(ORDERS).await), ["1", "2"]);
    let receiver = hold(s, "a").await;
    assert!(take(&*receiver, 9).await.is_empty());
    let dead = s.take_all(DLQ).await;
    assert_eq!(texts(&dead), ["1", "2"]);
    for seen in &dead {
        let reason = seen.message.application_property("DeadLetterReason");
        assert_eq!(reason, Some(&Value::from("TTLExpiredException")));
    }
}

/// EXP-47
pub async fn messages_of_a_session_expire_one_by_one_if_configured(s: &Stage) {
    open(s).await;
    put(s, "a", "1").await;
    s.send(ORDERS, of("a", "2").with_time_to_live(seconds(1))).await.unwrap();
    put(s, "a", "3").await;
    s.advance(seconds(2)).await;
    let receiver = hold(s, "a").await;
    assert_eq!(texts(&take(&*receiver, 9).await), ["1", "3"]);
}

pub fn one_by_one() -> Setup {
    let mut setup = Setup::default();
    setup.settings.sessions_expire_whole = false;
    setup
}

/// SES-18, LIF-04
pub async fn sessions_outlive_a_restart_and_their_locks_do_not(s: &Stage) {
    open(s).await;
    put(s, "a", "1").await;
    put(s, "b", "2").await;
    let holder = hold(s, "a").await;
    holder.set_state(Some("half way".into())).await.unwrap();
    let held = take(&*holder, 9).await;
    let second = s.restart().await;
    // The broker answers, or the client reports the lost connection.
    let gone = match s.transport {
        Transport::Inproc => "OperationCancelled",
        _ => "CommunicationProblem",
    };
    assert_eq!(complete(&*holder, &held[0]).await.unwrap_err().condition, gone);
    let holder = next(&second, TimeSpan::ZERO).await.unwrap();
    assert_eq!(holder.id(), "a");
    assert_eq!(holder.state().await.unwrap().unwrap(), "half way");
    let again = take(&*holder, 9).await;
    assert_eq!((texts(&again), again[0].delivery_count), (vec!["1".to_owned()], 1));
    refused(complete(&*holder, &held[0]).await, "SessionLockLost");
    complete(&*holder, &again[0]).await.unwrap();
    holder.set_state(None).await.unwrap();
    second.stop().await;
}

/// SES-34, SES-35
pub async fn requesters_share_a_queue_of_replies(s: &Stage) {
    open(s).await;
    s.open_queue("requests").await;
    let wait = minutes(1);
    let (one, two) = (hold(s, "requester 1").await, hold(s, "requester 2").await);
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
    let (first, second, ()) = tokio::join!(one.receive(1, wait), two.receive(1, wait), responder);
    assert_eq!(texts(&first.unwrap()), ["requester 1"]);
    assert_eq!(texts(&second.unwrap()), ["requester 2"]);
}

/// SES-09, MAT-04, ENT-24, ENT-25: cells of the column "Session" of the operation matrix that no
/// other scenario here covers.
pub async fn session_operations_are_refused_without_sessions(s: &Stage) {
    open(s).await;
    s.open_queue("plain").await;
    for path in ["plain", DLQ, TDLQ] {
        refused(try_hold(s, path, "a").await, "InvalidOperation");
        let next = s.accept(path, None, ReceiveMode::PeekLock, TimeSpan::ZERO).await;
        refused(next, "InvalidOperation");
        refused(s.sessions(path, SessionFilter::All, 0, 1).await, "InvalidOperation");
        refused(s.delete_unlocked(path, 1).await, "InvalidOperation");
    }
    refused(try_hold(s, "absent", "a").await, "EntityNotFound");
    put(s, "a", "1").await;
    put(s, "a", "2").await;
    let holder = hold(s, "a").await;
    let held = take(&*holder, 1).await.remove(0);
    let disabled = QueueUpdate { status: Some(EntityStatus::Disabled), ..QueueUpdate::default() };
    s.update(ORDERS, disabled).await.unwrap();
    refused(try_hold(s, ORDERS, "b").await, "EntityDisabled");
    refused(holder.receive(1, TimeSpan::ZERO).await, "EntityDisabled");
    refused(holder.delete_batch(1).await, "EntityDisabled");
    assert_eq!(holder.state().await.unwrap(), None);
    holder.renew().await.unwrap();
    complete(&*holder, &held).await.unwrap();
    assert_eq!(texts(&holder.peek(0, 9).await.unwrap()), ["2"]);
}

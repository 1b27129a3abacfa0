//! Commands of a holder are carried out in order and in turns of their own.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use peeklock_core::command::{Command, LinkEnd, Outcome, SessionCommand, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::description::QueueUpdate;
use peeklock_core::time::{TimeSpan, Timestamp};

use crate::stand::{Log, Stand, receive, submit};

const FLOOD: u64 = 4_000;
/// Maximum of commands in one turn (DESIGN D6).
const TURN: usize = 256;
/// More messages than a turn moves (decision 33).
const LONG: usize = 1_100;

/// SES-16, DESIGN D3, D6: a holder that floods its session delays other holders and the queue by at
/// most a turn.
#[tokio::test]
async fn a_flooding_holder_does_not_delay_others() {
    let stand = Stand::new().await;
    let (loud, quiet) = (stand.accept("a").await.unwrap(), stand.accept("b").await.unwrap());
    let log = Arc::new(Log::default());
    let go_on = stand.hold_up();
    for number in 0..FLOOD {
        submit(&loud.entity, vec![(loud.command(SessionCommand::Renew), log.reply(number))]);
    }
    submit(&quiet.entity, vec![(quiet.command(SessionCommand::Renew), log.reply(FLOOD))]);
    submit(&stand.queue, vec![(Command::Describe, log.reply(FLOOD + 1))]);
    drop(go_on);
    let answers = log.answers(usize::try_from(FLOOD).unwrap() + 2).await;
    for late in [FLOOD, FLOOD + 1] {
        let place = answers.iter().position(|(number, _)| *number == late).unwrap();
        assert!(place <= TURN + 1, "answered behind {place} others");
    }
    let own: Vec<u64> =
        answers.iter().map(|(number, _)| *number).filter(|number| *number < FLOOD).collect();
    assert!(own.is_sorted(), "its own come in their order");
    assert!(answers.iter().all(|(_, answer)| answer.is_ok()));
    stand.stop().await;
}

/// ERR-06, DESIGN D6: a holder's commands take the place neither of commands that wait for a long
/// turn of the queue nor of its own earlier ones, regardless of their number. All are carried out,
/// its own in order, without other commands at the queue.
#[tokio::test]
async fn commands_of_a_holder_take_no_place_among_long_turns() {
    let stand = Stand::new().await;
    let held = stand.accept("a").await.unwrap();
    let mut scheduled = Vec::new();
    for _ in 0..4 {
        scheduled.push(stand.schedule("a", LONG).await);
    }
    let last = scheduled.pop().unwrap();
    let log = Arc::new(Log::default());
    let go_on = stand.hold_up();
    let asked = [&stand.queue, &held.entity, &held.entity];
    for ((entity, sequences), number) in asked.into_iter().zip(scheduled).zip(0..) {
        submit(entity, vec![(Command::CancelScheduled { sequences }, log.reply(number))]);
    }
    drop(go_on);
    let answers = log.answers(3).await;
    assert!(answers.iter().all(|(_, answer)| answer.is_ok()), "{answers:?}");
    let own: Vec<u64> =
        answers.iter().map(|(number, _)| *number).filter(|number| *number > 0).collect();
    assert_eq!(own, [1, 2]);
    held.entity.call(Command::CancelScheduled { sequences: last }).await.unwrap();
    let described = stand.broker.describe_queue("orders").await.unwrap();
    assert_eq!(described.counts.scheduled, 0);
    stand.stop().await;
}

/// SES-24, DESIGN D11: a state that waits for room in the store is not overtaken by later commands
/// of its holder, and delays no other session.
#[tokio::test]
async fn a_state_waiting_for_room_is_not_overtaken() {
    let stand = Stand::new().await;
    let (slow, other) = (stand.accept("a").await.unwrap(), stand.accept("b").await.unwrap());
    let log = Arc::new(Log::default());
    stand.store.busy.store(u32::MAX, Ordering::SeqCst);
    let state = |state: Option<&'static str>| SessionCommand::SetState {
        state: state.map(|state| state.into()),
    };
    let commands =
        [state(Some("late")), SessionCommand::GetState, state(None), SessionCommand::GetState];
    let group = commands
        .into_iter()
        .zip(0..)
        .map(|(command, number)| (slow.command(command), log.reply(number)));
    submit(&slow.entity, group.collect());
    stand.store.refused().await;
    assert_eq!(other.renewal().await, Ok(()), "another session goes on");
    assert!(log.is_empty(), "nothing is answered before the state is stored");
    stand.store.make_room();
    let answers = log.answers(4).await;
    let numbers: Vec<u64> = answers.iter().map(|(number, _)| *number).collect();
    assert_eq!(numbers, [0, 1, 2, 3]);
    let mut states = Vec::new();
    for (_, answer) in answers {
        if let Outcome::SessionState(state) = answer.unwrap() {
            states.push(match state {
                Some(state) => Some(state.load().await.unwrap()),
                None => None,
            });
        }
    }
    assert_eq!(states, [Some("late".into()), None]);
    stand.stop().await;
}

/// SES-06, SES-13: a client that releases a session and immediately accepts it again gets it,
/// although the first command goes to the session and the second to the queue, which may have its
/// turn first.
#[tokio::test]
async fn a_released_session_can_be_accepted_immediately() {
    let stand = Stand::new().await;
    stand.send("a").await;
    for session in [Some("a"), None] {
        let held = stand.accept("a").await.unwrap();
        let log = Arc::new(Log::default());
        let go_on = stand.hold_up();
        // The queue is woken first.
        submit(&stand.queue, vec![(Command::Describe, log.reply(0))]);
        let renew = |_| (held.command(SessionCommand::Renew), log.reply(1));
        submit(&held.entity, (0..600).map(renew).collect());
        submit(&held.entity, vec![(held.detach(LinkEnd::Orderly), log.reply(2))]);
        let (receiver, accept) = stand.accept_command(session);
        submit(&stand.queue, vec![(accept, log.reply(3))]);
        drop(go_on);
        let mut answers = log.answers(603).await;
        answers.sort_by_key(|(number, _)| *number);
        let (_, accepted) = answers.pop().unwrap();
        let again = stand.held(accepted.unwrap());
        assert_eq!(again.receiver, receiver);
        assert!(answers.iter().all(|(_, answer)| answer.is_ok()), "all before was carried out");
        again.entity.call(again.detach(LinkEnd::Orderly)).await.unwrap();
    }
    stand.stop().await;
}

/// RCV-14: a waiting receive of a dropped caller is withdrawn through the inlet that it came
/// through.
#[tokio::test]
async fn a_receive_is_withdrawn_through_its_inlet() {
    let stand = Stand::new().await;
    let held = stand.accept("a").await.unwrap();
    let log = Arc::new(Log::default());
    let go_on = stand.hold_up();
    let waiting = tokio::spawn({
        let (entity, command) =
            (held.entity.clone(), held.command(receive(TimeSpan::from_seconds(50))));
        async move { entity.call(command).await }
    });
    tokio::task::yield_now().await;
    waiting.abort();
    assert!(waiting.await.unwrap_err().is_cancelled());
    drop(go_on);
    stand.send("a").await;
    let messages = held.receive(TimeSpan::ZERO).await.unwrap();
    assert_eq!(messages.len(), 1, "the withdrawn call took nothing");
    assert_eq!(messages[0].facts.delivery_count, 0);
    assert!(log.is_empty());
    stand.stop().await;
}

/// SET-24: commands that reach a session through the queue are answered by the same session.
#[tokio::test]
async fn commands_through_the_queue_reach_the_session() {
    let stand = Stand::new().await;
    stand.send("a").await;
    let held = stand.accept("a").await.unwrap();
    let past = crate::stand::Held { entity: stand.queue.clone(), receiver: held.receiver };
    assert_eq!(past.renewal().await, Ok(()));
    let messages = held.receive(TimeSpan::ZERO).await.unwrap();
    past.complete(messages[0].facts.lock.unwrap().token).await.unwrap();
    // The wait of such a call ends in time, although the timer of the session was armed for a later
    // instant.
    let log = Arc::new(Log::default());
    let waits = past.command(receive(TimeSpan::from_seconds(10)));
    submit(&past.entity, vec![(waits, log.reply(0))]);
    assert_eq!(past.renewal().await, Ok(()));
    assert_eq!(held.renewal().await, Ok(()), "the session has seen to its timer");
    stand.clock.advance(TimeSpan::from_seconds(10));
    let (_, answer) = log.answers(1).await.pop().unwrap();
    assert!(matches!(answer, Ok(Outcome::Received(messages)) if messages.is_empty()));
    assert_eq!(
        stand.accept("a").await.err().unwrap().condition(),
        Condition::SessionCannotBeLocked
    );
    stand.stop().await;
}

/// SES-13, SES-33: a holder can release a session while its state waits for room. The state is lost
/// with the hold.
#[tokio::test]
async fn a_waiting_state_does_not_delay_the_end() {
    let stand = Stand::new().await;
    for end in [LinkEnd::Orderly, LinkEnd::Broken] {
        let held = stand.accept("a").await.unwrap();
        stand.store.busy.store(u32::MAX, Ordering::SeqCst);
        let log = Arc::new(Log::default());
        let state = held.command(SessionCommand::SetState { state: Some("late".into()) });
        let behind = held.command(SessionCommand::Renew);
        submit(&held.entity, vec![(state, log.reply(0)), (behind, log.reply(1))]);
        stand.store.refused().await;
        submit(&held.entity, vec![(held.detach(end), log.reply(2))]);
        let next = stand.accept("a").await.unwrap();
        stand.store.make_room();
        let mut answers = log.answers(3).await;
        answers.sort_by_key(|(number, _)| *number);
        let mut answers = answers.into_iter().map(|(_, answer)| answer);
        assert_eq!(answers.next().unwrap().unwrap_err(), Condition::SessionLockLost);
        assert!(answers.all(|answer| answer.is_ok()));
        assert!(matches!(
            next.ask(SessionCommand::GetState).await,
            Ok(Outcome::SessionState(None))
        ));
        next.entity.call(next.detach(LinkEnd::Orderly)).await.unwrap();
    }
    stand.stop().await;
}

/// DEL-07, SET-24: commands to the queue before and after the end of a hold are carried out in that
/// order, whichever has its turn first.
#[tokio::test]
async fn the_end_of_a_hold_has_its_place_at_the_queue() {
    let stand = Stand::new().await;
    stand.send("a").await;
    stand.send("a").await;
    let held = stand.accept("a").await.unwrap();
    let messages = held.receive(TimeSpan::ZERO).await.unwrap();
    let token = messages[0].facts.lock.unwrap().token;
    let log = Arc::new(Log::default());
    let go_on = stand.hold_up();
    // The session is woken first.
    let renew = |_| (held.command(SessionCommand::Renew), log.reply(0));
    submit(&held.entity, (0..600).map(renew).collect());
    let settle = Command::Settle { token, settlement: Settlement::Complete };
    submit(&stand.queue, vec![(settle, log.reply(1))]);
    submit(&held.entity, vec![(held.detach(LinkEnd::Orderly), log.reply(2))]);
    let delete =
        Command::DeleteBatchUnlocked { count_max: 10, enqueued_before: Some(Timestamp::NEVER) };
    submit(&stand.queue, vec![(delete, log.reply(3))]);
    drop(go_on);
    let mut answers = log.answers(603).await;
    answers.sort_by_key(|(number, _)| *number);
    let (_, deleted) = answers.pop().unwrap();
    assert!(answers.iter().all(|(_, answer)| answer.is_ok()), "all before was carried out");
    assert!(matches!(deleted, Ok(Outcome::Deleted(1))), "{deleted:?}");
    stand.stop().await;
}

/// DESIGN D6: releasing sessions with much to do delays the arbiter by at most their turns.
#[tokio::test]
async fn released_sessions_take_turns() {
    const SESSIONS: usize = 4;
    const COMMANDS: usize = 2_000;
    let stand = Stand::new().await;
    stand.broker.create_queue("other", QueueUpdate::default()).await.unwrap();
    let other = stand.broker.entity("other").unwrap();
    let mut held = Vec::new();
    for session in ["a", "b", "c", "d"] {
        held.push(stand.accept(session).await.unwrap());
    }
    let log = Arc::new(Log::default());
    let go_on = stand.hold_up();
    submit(&stand.queue, vec![(Command::Describe, log.reply(0))]);
    for one in &held {
        let renew = |_| (one.command(SessionCommand::Renew), log.reply(1));
        submit(&one.entity, (0..COMMANDS).map(renew).collect());
        submit(&one.entity, vec![(one.detach(LinkEnd::Orderly), log.reply(2))]);
    }
    submit(&stand.queue, vec![(stand.accept_command(Some("d")).1, log.reply(3))]);
    submit(&other, vec![(Command::Describe, log.reply(4))]);
    drop(go_on);
    let answers = log.answers(SESSIONS * (COMMANDS + 1) + 3).await;
    let place = answers.iter().position(|(number, _)| *number == 4).unwrap();
    assert!(place <= (SESSIONS + 2) * TURN, "answered behind {place} others");
    assert!(answers.iter().all(|(_, answer)| answer.is_ok()));
    stand.stop().await;
}

//! Rights for operations of a transaction: checked when they are issued, and again at the commit.

use peeklock_core::command::{Command, Outcome};
use peeklock_core::condition::Condition;
use peeklock_core::contract::{Action, Epoch, Grant, Principal, Right, Rights};
use peeklock_core::description::QueueUpdate;
use peeklock_core::error::Rejection;
use peeklock_core::message::Message;
use peeklock_core::time::TimeSpan;
use peeklock_core::transaction::{PartCheck, PendingCommit, Reach, TransactionId, Transactions};
use peeklock_core::{Access, Entity};

use super::world::{World, in_time};

async fn issue(
    transactions: &Transactions,
    id: TransactionId,
    entity: &Entity,
) -> Option<Condition> {
    let message = entity.broker().inbound(Message::new("a"));
    let send = Command::Send { message };
    let PartCheck { entity, command, issued } = match transactions.issue(id, entity, send).await {
        Ok(question) => question,
        Err(rejection) => return Some(rejection.condition()),
    };
    match entity.call(command).await {
        Ok(outcome) => issued.confirm(&outcome),
        Err(error) => return Some(error.condition()),
    }
    None
}

async fn commit(transactions: &Transactions, id: TransactionId) -> Result<usize, Condition> {
    let ending = transactions.commit(id).map_err(|rejection: Rejection| rejection.condition())?;
    let Some(PendingCommit { entity, command, .. }) = ending else { return Ok(0) };
    match entity.call(command).await {
        Ok(Outcome::Committed(parts)) => Ok(parts.len()),
        Ok(other) => panic!("{other:?}"),
        Err(error) => Err(error.condition()),
    }
}

async fn begun(access: &Access) -> (Transactions, TransactionId, Entity) {
    let transactions = Transactions::new(access.broker());
    let id = transactions.begin(Reach::CrossEntity).unwrap();
    let entity = access.entity("q", Action::Send).await.unwrap();
    (transactions, id, entity)
}

/// TXN-07, SEC-05: an operation that is not granted when it is issued is left out.
#[tokio::test]
async fn an_operation_is_judged_when_it_is_issued() {
    in_time(async {
        let world = World::new().await;
        let access = world.granted("a", Grant::of(Rights::of(Right::Listen)));
        let transactions = Transactions::new(&world.broker);
        let id = transactions.begin(Reach::OneEntity).unwrap();
        let entity = access.entity("q", Action::Receive).await.unwrap();
        assert_eq!(issue(&transactions, id, &entity).await, Some(Condition::Unauthorized));
        assert_eq!(commit(&transactions, id).await, Ok(0));
    })
    .await;
}

/// TXN-07, SEC-15: if a grant has ended by the commit, everything is rolled back, unless a newer
/// token grants it.
#[tokio::test]
async fn rights_are_checked_again_at_commit() {
    in_time(async {
        for is_renewed in [false, true] {
            let world = World::new().await;
            let until = world.broker.now().plus(TimeSpan::from_seconds(30));
            let access = world.granted("old", Grant::everything().with_end(until));
            world.authorizer.grant("new", "*", Grant::everything());
            let (transactions, id, entity) = begun(&access).await;
            assert_eq!(issue(&transactions, id, &entity).await, None);
            if is_renewed {
                access.renew(Principal::anonymous().with_token("new")).await;
            }
            world.clock.advance(TimeSpan::from_seconds(30));
            let expected = if is_renewed { Ok(1) } else { Err(Condition::Unauthorized) };
            assert_eq!(commit(&transactions, id).await, expected);
            let counts = world.broker.describe_queue("q").await.unwrap().counts;
            assert_eq!(counts.active, u64::from(is_renewed));
            assert_eq!(commit(&transactions, id).await, Err(Condition::TransactionUnknown));
        }
    })
    .await;
}

/// TXN-09, VIA-02, SEC-07: sends through the first entity require the right there, too, also if it
/// is the parent of the dead-letter queue that was used.
#[tokio::test]
async fn sends_through_a_sub_queue_require_the_right_at_its_parent() {
    in_time(async {
        for may_send in [false, true] {
            let world = World::new().await;
            world.broker.create_queue("other", QueueUpdate::default()).await.unwrap();
            let access = world.access("a");
            world.authorizer.grant("a", "other", Grant::of(Rights::of(Right::Send)));
            world.authorizer.grant("a", "q/$deadletterqueue", Grant::everything());
            let at_parent = if may_send { Right::Send } else { Right::Listen };
            world.authorizer.grant("a", "q", Grant::of(Rights::of(at_parent)));
            let letters = access.entity("q/$deadletterqueue", Action::Receive).await.unwrap();
            let transactions = Transactions::new(&world.broker);
            let id = transactions.begin(Reach::CrossEntity).unwrap();
            // The dead-letter queue is used first, so that sends go through its parent.
            let token =
                peeklock_core::ids::LockToken::new(peeklock_core::ids::SequenceNumber(1), 1);
            let used =
                transactions.issue(id, &letters, Command::RenewLock { token }).await.unwrap();
            let other = access.entity("other", Action::Send).await.unwrap();
            let refused = issue(&transactions, id, &other).await;
            let expected = if may_send { None } else { Some(Condition::Unauthorized) };
            assert_eq!(refused, expected);
            drop(used);
        }
    })
    .await;
}

/// TXN-07, TXN-09, VIA-02: a transaction's send to another entity requires the right there at the
/// commit, too, whether it was sent over a link through the first entity or by the transaction
/// itself.
#[tokio::test]
async fn an_ended_right_at_the_destination_rolls_back() {
    in_time(async {
        for by_link in [false, true] {
            for is_ended in [false, true] {
                let world = World::new().await;
                world.broker.create_queue("other", QueueUpdate::default()).await.unwrap();
                let epoch = Epoch::new();
                let access = world.access("a");
                world.authorizer.grant("a", "q", Grant::everything());
                world.authorizer.grant("a", "other", Grant::everything().with_epoch(epoch.mark()));
                let (transactions, id, first) = begun(&access).await;
                assert_eq!(issue(&transactions, id, &first).await, None);
                if by_link {
                    let (way, destination) =
                        access.transfer_destination("other", &first).await.unwrap();
                    let messages = vec![world.broker.inbound(Message::new("a"))];
                    let send = Command::SendVia { destination, messages };
                    let asked = transactions.issue(id, &way, send).await;
                    let PartCheck { entity, command, issued } = asked.unwrap();
                    let outcome = entity.call(command).await.unwrap();
                    issued.confirm(&outcome);
                } else {
                    let other = access.entity("other", Action::Send).await.unwrap();
                    assert_eq!(issue(&transactions, id, &other).await, None);
                }
                if is_ended {
                    epoch.raise();
                }
                let expected = if is_ended { Err(Condition::Unauthorized) } else { Ok(2) };
                assert_eq!(commit(&transactions, id).await, expected, "{by_link}");
                let counts = world.broker.describe_queue("q").await.unwrap().counts;
                assert_eq!(counts.active, u64::from(!is_ended));
            }
        }
    })
    .await;
}

//! Tests of a client with the rights of a principal.

use std::sync::Arc;

use async_trait::async_trait;
use peeklock_client::Client;
use peeklock_core::Broker;
use peeklock_core::condition::Condition;
use peeklock_core::contract::{Action, Authorizer, Grant, Principal, Requirement, Right, Rights};
use peeklock_core::description::QueueUpdate;
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::message::Message;
use peeklock_core::time::TimeSpan;

/// An authorizer whose tokens name rights.
struct Named;

#[async_trait]
impl Authorizer for Named {
    async fn authorize(&self, principal: &Principal, _: &str) -> Result<Grant, Rejection> {
        let token = principal.token.as_deref().unwrap_or_default();
        let is_named = |right: &Right| token.split(',').any(|name| name == right.name());
        Ok(Grant::of(Right::ALL.into_iter().filter(is_named).collect::<Rights>()))
    }

    fn allows_anonymous(&self) -> bool {
        true
    }
}

/// Performs the operation with this number, and returns it with its action in the broker's table.
async fn operate(client: &Client, number: usize) -> Option<(Action, Result<(), BrokerError>)> {
    let (admin, message) = (client.admin(), || Message::new("a"));
    let zero = TimeSpan::ZERO;
    let receiver = || client.receiver("orders");
    Some(match number {
        0 => (Action::Send, client.sender("orders").map(drop)),
        1 => {
            let sent = match client.sender("orders") {
                Ok(sender) => sender.send(message()).await.map(drop),
                Err(error) => Err(error),
            };
            (Action::Send, sent)
        }
        2 => (Action::SendVia, client.sender_via("other", "orders").map(drop)),
        3 => (Action::Receive, receiver().map(drop)),
        4 => {
            let received = match receiver() {
                Ok(receiver) => receiver.receive(zero).await.map(drop),
                Err(error) => Err(error),
            };
            (Action::Receive, received)
        }
        5 => {
            let which = peeklock_core::command::SessionFilter::All;
            (Action::ListSessions, client.sessions("orders", which, 0, 9).await.map(drop))
        }
        6 => (Action::AcceptSession, client.accept_session("orders", "s").await.map(drop)),
        7 => (Action::Describe, admin.queue("orders").await.map(drop)),
        8 => (Action::Create, admin.create_queue("orders").await.map(drop)),
        9 => {
            let updated = admin.update_queue("orders", QueueUpdate::default()).await;
            (Action::Update, updated.map(drop))
        }
        10 => {
            let deleted = admin.delete_deferred("orders", SequenceNumber(7)).await;
            (Action::DeleteDeferred, deleted)
        }
        11 => {
            let deleted = admin.delete_batch_unlocked("orders", Some(1), None).await;
            (Action::DeleteUnlocked, deleted.map(drop))
        }
        12 => (Action::Create, admin.create_topic("orders").await.map(drop)),
        13 => {
            let rules = admin.rules("t/Subscriptions/s", 0, 9).await;
            (Action::ReadRules, rules.map(drop))
        }
        14 => (Action::ChangeRules, admin.delete_rule("t/Subscriptions/s", "r").await),
        15 => (Action::Delete, admin.delete_queue("absent").await),
        _ => return None,
    })
}

/// SEC-05, SEC-17: a client with limited access may do exactly the actions that its rights permit.
/// A client with full access is not checked.
#[tokio::test]
async fn a_wrapped_client_is_asked_for_every_right() {
    let broker = Broker::builder().arbiters(1).authorizer(Arc::new(Named)).start().await.unwrap();
    let full = Client::new(&broker);
    for path in ["orders", "other"] {
        full.admin().create_queue(path).await.unwrap();
    }
    for bits in 0..8u8 {
        let rights = Right::ALL.into_iter().enumerate();
        let rights = rights.filter(|(place, _)| bits & (1 << place) != 0).map(|(_, right)| right);
        let rights: Vec<Right> = rights.collect();
        let names: Vec<&str> = rights.iter().map(|right| right.name()).collect();
        let token = names.join(",");
        let rights: Rights = rights.into_iter().collect();
        let wrapped =
            Client::with_access(broker.access(Principal::anonymous().with_token(token.as_str())));
        for number in 0.. {
            let Some((action, answer)) = operate(&wrapped, number).await else { break };
            let Requirement::OneOf(one_of, _) = action.needs() else { panic!("{action:?}") };
            let condition = answer.err().map(|error| error.condition());
            let refused = condition == Some(Condition::Unauthorized);
            assert_eq!(refused, !one_of.intersects(rights), "{number} {action:?} with `{token}`");
            let (_, answer) = operate(&full, number).await.unwrap();
            let condition = answer.err().map(|error| error.condition());
            assert_ne!(condition, Some(Condition::Unauthorized), "{number}");
        }
        let listed = wrapped.admin().queue_paths(0, 9).await;
        let condition = listed.err().map(|error| error.condition());
        let refused = condition == Some(Condition::Unauthorized);
        assert_eq!(refused, !rights.contains(Right::Manage));
    }
    broker.stop(std::time::Duration::ZERO).await.unwrap();
}

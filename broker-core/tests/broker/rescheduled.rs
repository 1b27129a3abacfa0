//! Forwarding of a message whose schedule an operator has changed.

use std::time::Duration;

use peeklock_core::Broker;
use peeklock_core::command::{Act, ActResult, Command, Deed, NewInstant, OperatorCommand, Outcome};
use peeklock_core::description::QueueUpdate;
use peeklock_core::message::Message;
use peeklock_core::time::TimeSpan;

/// CON-12, SCH-09: a message that is made due now is delivered at the destination to which its
/// queue forwards, and is not scheduled there again.
#[tokio::test]
async fn message_that_is_due_now_is_not_scheduled_again_at_its_destination() {
    let broker = Broker::builder().arbiters(1).start().await.unwrap();
    for (path, to) in [("c", None), ("b", Some("c")), ("a", Some("b"))] {
        let forward_to = to.map(Box::from);
        let update = QueueUpdate { forward_to, ..QueueUpdate::default() };
        broker.create_queue(path, update).await.unwrap();
    }
    let queue = broker.entity("a").unwrap();
    let at = broker.now().plus(TimeSpan::from_days(1));
    let message = broker.inbound(Message::new("x").with_scheduled_enqueue_time(at));
    let Outcome::Accepted(sequence) = queue.call(Command::Send { message }).await.unwrap() else {
        panic!("not accepted")
    };
    let deed = Deed::Reschedule(NewInstant::Now);
    let act = Act { step: None, sequences: vec![sequence], deed, breaks_locks: false };
    let command = Command::OfOperator(OperatorCommand::Act(Box::new(act)));
    let Outcome::Acted(acted) = queue.call(command).await.unwrap() else { panic!("not acted") };
    assert_eq!(acted[0].result, ActResult::Done);
    let receive = crate::receive::under_lock(1, TimeSpan::from_seconds(20));
    let Outcome::Received(received) = broker.entity("c").unwrap().call(receive).await.unwrap()
    else {
        panic!("not received")
    };
    assert_eq!(received.len(), 1);
    broker.stop(Duration::ZERO).await.unwrap();
}

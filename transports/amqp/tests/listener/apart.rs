//! What is asked beside the connection.

use futures_util::FutureExt as _;
use peeklock_core::Of;
use peeklock_core::description::{SubscriptionUpdate, TopicUpdate};
use peeklock_core::permits::Large;
use peeklock_core::time::TimeSpan;

use crate::server::Server;

/// ERR-09, AMQP-92, DESIGN D6: lists of rules have their turns with all other lists, and nobody waits for one without
/// end.
#[tokio::test]
async fn lists_of_rules_have_their_turns() {
    let server = Server::start().await;
    server.broker.create_topic("t", TopicUpdate::default()).await.unwrap();
    let properties = SubscriptionUpdate::default();
    server.broker.create_subscription("t", "s", properties, Vec::new()).await.unwrap();
    let mut client = server.client().await;
    client.manager(0, "t/Subscriptions/s").await;
    let access = server.broker.full_access();
    let mut turns = Vec::new();
    while let Some(turn) = access.turn(Large::List, Of::Declared).now_or_never() {
        turns.push(turn.unwrap());
    }
    let refused = {
        let mut asked = std::pin::pin!(client.ask(0, "enumerate-rules", &[]));
        loop {
            tokio::select! {
                biased;
                reply = &mut asked => break reply,
                () = tokio::task::yield_now() => server.clock.advance(TimeSpan::from_ms(100)),
            }
        }
    };
    assert_eq!((refused.status(), &*refused.condition()), (503, "com.microsoft:server-busy"));
    turns.pop();
    let reply = client.ask(0, "enumerate-rules", &[]).await;
    assert_eq!((reply.status(), reply.maps("rules").len()), (200, 1));
    server.stop().await;
}

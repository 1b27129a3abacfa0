//! Actix actors as handlers: deliveries arrive as actor messages, and the actor's result settles
//! them. Programs register them with a consumer.

use std::time::Duration;

use actix::dev::RecipientRequest;
use actix::{MailboxError, Message, Recipient};
use futures_util::FutureExt;
use futures_util::future::Map;

use super::{Delivery, Handler, SessionDelivery};
use crate::{Job, Refusal, SessionJob};

impl Message for Delivery {
    type Result = Result<(), Refusal>;
}

impl Message for SessionDelivery {
    type Result = Result<(), Refusal>;
}

impl<T: 'static> Message for Job<T> {
    type Result = Result<(), Refusal>;
}

impl<T: 'static> Message for SessionJob<T> {
    type Result = Result<(), Refusal>;
}

/// Interval between checks whether an idle actor has stopped: actix gives no notification.
const LOOK_EACH: Duration = Duration::from_secs(1);

pub(super) type Outcome = Result<(), Refusal>;

impl<D: Message<Result = Outcome> + Send + 'static> Handler<D> for Recipient<D> {
    type Handling = Map<RecipientRequest<D>, fn(Result<Outcome, MailboxError>) -> Outcome>;

    fn handle(&self, delivery: D) -> Self::Handling {
        self.send(delivery).map(outcome)
    }

    fn is_gone(&self) -> bool {
        !self.connected()
    }

    async fn wait_until_gone(&self) {
        while self.connected() {
            tokio::time::sleep(LOOK_EACH).await;
        }
    }
}

/// Converts the answer of an actor. An actor that panicked, restarted or stopped has not processed
/// the message.
pub(super) fn outcome(answer: Result<Outcome, MailboxError>) -> Outcome {
    answer.unwrap_or_else(|error| {
        tracing::warn!(%error, "an actor did not answer; its message is abandoned");
        Err(Refusal::abandon().with_error("the actor stopped or panicked before it answered"))
    })
}

//! Actix actors as receivers: messages come as mail, the handler's outcome settles them.

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

/// How often it is looked whether an actor is gone that has nothing to do: nobody is told when one goes.
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

    async fn gone(&self) {
        while self.connected() {
            tokio::time::sleep(LOOK_EACH).await;
        }
    }
}

/// An actor that panicked, was started anew, or is gone has done nothing with the message.
pub(super) fn outcome(answer: Result<Outcome, MailboxError>) -> Outcome {
    answer.unwrap_or_else(|error| {
        tracing::warn!(%error, "an actor did not answer; its message is abandoned");
        Err(Refusal::abandon())
    })
}

//! The link of what is being done: attached when it begins, detached when it is through.

use peeklock_amqp::performative::{Attach, Detach, Performative};
use peeklock_amqp_testing::client::link;

use super::AmqpFault;
use super::connection::Connection;

/// The one link of the one session, and its name.
pub(super) const HANDLE: u32 = 0;
const NAME: &str = "peeklock-bench";

impl Connection {
    /// Attaches a link on which to send.
    pub(super) async fn attach_sender(&mut self, path: &str) -> Result<(), AmqpFault> {
        self.attach(link::sender(NAME, HANDLE, path)).await
    }

    /// Attaches a link on which to receive under lock; completions are answered.
    pub(super) async fn attach_receiver(&mut self, path: &str) -> Result<(), AmqpFault> {
        self.attach(link::receiver(NAME, HANDLE, path)).await
    }

    async fn attach(&mut self, attach: Attach) -> Result<(), AmqpFault> {
        self.wire.frames.say(self.session.channel(), &attach, &[]);
        loop {
            match self.answer().await?.0 {
                Performative::Attach(answer)
                    if answer.source.is_some() && answer.target.is_some() =>
                {
                    return Ok(());
                }
                // One that is refused is attached without its end, and detached with the reason (AMQP-36).
                Performative::Attach(_) | Performative::Flow(_) => {}
                other => return Err(AmqpFault::unexpected(other)),
            }
        }
    }

    /// Detaches the link, and waits until the broker has.
    pub(super) async fn detach(&mut self) -> Result<(), AmqpFault> {
        let detach = Detach { handle: HANDLE, closed: true, error: None };
        self.wire.frames.say(self.session.channel(), &detach, &[]);
        loop {
            match self.answer().await?.0 {
                Performative::Detach(_) => return Ok(()),
                Performative::Flow(_) => {}
                other => return Err(AmqpFault::unexpected(other)),
            }
        }
    }
}

//! The link of the current activity: attached at its start, detached at its end.

use peeklock_amqp::performative::{Attach, Detach, Performative};
use peeklock_amqp_testing::client::link;

use super::AmqpFault;
use super::connection::Connection;

/// The handle of the only link of the session.
pub(super) const HANDLE: u32 = 0;
const NAME: &str = "peeklock-bench";

impl Connection {
    /// Attaches a link for sending.
    pub(super) async fn attach_sender(&mut self, path: &str) -> Result<(), AmqpFault> {
        self.attach(link::sender(NAME, HANDLE, path)).await
    }

    /// Attaches a link for receiving under lock; completions are confirmed.
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
                // A refused link is attached without a terminus, then detached with the reason
                // (AMQP-36).
                Performative::Attach(_) | Performative::Flow(_) => {}
                other => return Err(AmqpFault::unexpected(other)),
            }
        }
    }

    /// Detaches the link, and waits for the detach of the broker.
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

//! The link of what is being done: attached when it begins, detached when it is through.

use peeklock_amqp::performative::{
    Attach, Detach, Performative, ReceiverSettleMode, Role, SenderSettleMode,
};
use peeklock_amqp::terminus::{Source, Target};

use super::AmqpFault;
use super::connection::Connection;

/// The one link of the one session.
pub(super) const HANDLE: u32 = 0;
/// The end that the load has.
const OWN_END: &str = "peeklock-bench";

impl Connection {
    /// Attaches a link on which to send.
    pub(super) async fn attach_sender(&mut self, path: &str) -> Result<(), AmqpFault> {
        let attach = Attach {
            role: Role::Sender,
            source: Some(Source::at(OWN_END)),
            target: Some(Target::at(path)),
            initial_delivery_count: Some(0),
            ..Attach::default()
        };
        self.attach(attach).await
    }

    /// Attaches a link on which to receive under lock; completions are answered.
    pub(super) async fn attach_receiver(&mut self, path: &str) -> Result<(), AmqpFault> {
        let attach = Attach {
            role: Role::Receiver,
            rcv_settle_mode: Some(ReceiverSettleMode::Second),
            source: Some(Source::at(path)),
            target: Some(Target::at(OWN_END)),
            ..Attach::default()
        };
        self.attach(attach).await
    }

    async fn attach(&mut self, attach: Attach) -> Result<(), AmqpFault> {
        let snd_settle_mode = Some(SenderSettleMode::Unsettled);
        let attach = Attach { name: OWN_END.into(), handle: HANDLE, snd_settle_mode, ..attach };
        self.wire.frame(&attach, &[]);
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
        self.wire.frame(&Detach { handle: HANDLE, closed: true, error: None }, &[]);
        loop {
            match self.answer().await?.0 {
                Performative::Detach(_) => return Ok(()),
                Performative::Flow(_) => {}
                other => return Err(AmqpFault::unexpected(other)),
            }
        }
    }
}

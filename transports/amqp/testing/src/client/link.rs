//! Attach performatives of a client.

use peeklock_amqp::codec::value::Symbols;
use peeklock_amqp::performative::{Attach, ReceiverSettleMode, Role, SenderSettleMode};
use peeklock_amqp::terminus::{Coordinator, Source, Target};

/// The address of the client's own end.
const OWN_END: &str = "client";

/// Attaches a link for sending to an address.
#[must_use]
pub fn sender(name: &str, handle: u32, address: &str) -> Attach {
    Attach {
        name: name.into(),
        handle,
        role: Role::Sender,
        snd_settle_mode: Some(SenderSettleMode::Mixed),
        source: Some(Source::at(OWN_END)),
        target: Some(Target::at(address)),
        initial_delivery_count: Some(0),
        ..Attach::default()
    }
}

/// Attaches a link for receiving from an address under lock; settlements are confirmed.
#[must_use]
pub fn receiver(name: &str, handle: u32, address: &str) -> Attach {
    Attach {
        name: name.into(),
        handle,
        role: Role::Receiver,
        snd_settle_mode: Some(SenderSettleMode::Unsettled),
        rcv_settle_mode: Some(ReceiverSettleMode::Second),
        source: Some(Source::at(address)),
        target: Some(Target::at(OWN_END)),
        ..Attach::default()
    }
}

/// Attaches a link to the coordinator of transactions (AMQP-97).
#[must_use]
pub fn coordinator(name: &str, handle: u32) -> Attach {
    let capabilities = Some(Symbols::new(&["amqp:local-transactions"]));
    let target = Some(Target::Coordinator(Coordinator { capabilities }));
    Attach { target, ..sender(name, handle, "") }
}

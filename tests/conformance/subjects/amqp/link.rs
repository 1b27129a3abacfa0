//! A link of a connection: sending, and receiving all available messages or waiting for one.

use std::rc::Rc;
use std::sync::Arc;

use bytes::Bytes;
use peeklock_amqp::error::{AmqpError, condition};
use peeklock_amqp::performative::{Attach, Role, Transfer};
use peeklock_amqp::state::{DeliveryState, Outcome, Rejected};
use peeklock_amqp_testing::client::{Outgoing, Parts};
use peeklock_core::clock::{Clock as _, ManualClock};
use peeklock_core::time::{TimeSpan, Timestamp};
use tokio::sync::mpsc::UnboundedReceiver;

use super::connection::{Connection, Heard, LinkId};
use super::message::{gone, refusal, unexpected};
use crate::subject::Answer;

/// An attached link. Dropping it detaches it without waiting for the answer.
pub struct Link {
    connection: Rc<Connection>,
    id: LinkId,
    heard: UnboundedReceiver<Heard>,
    /// The broker's answer to the attach.
    pub answer: Box<Attach>,
    parts: Parts,
    /// Number of messages that the broker has sent on the link.
    delivery_count: u32,
    /// Reason for which the broker has detached the link, if it has.
    ended: Option<Option<AmqpError>>,
}

/// A delivery: the first of its transfers, and the message.
pub type Delivery = (Transfer, Bytes);

impl Link {
    /// Attaches a link with a new name and handle.
    pub async fn attach(
        connection: &Rc<Connection>,
        channel: u16,
        attach: impl FnOnce(&str, u32) -> Attach,
    ) -> Answer<Self> {
        let (id, heard) = connection.link(channel)?;
        let handle = id.place.1;
        let attach = attach(&format!("link {handle}"), handle);
        let mut link = Self {
            connection: Rc::clone(connection),
            id,
            heard,
            answer: Box::default(),
            parts: Parts::default(),
            delivery_count: 0,
            ended: None,
        };
        connection.say(channel, &attach);
        match link.hear().await? {
            Heard::Attached(answer) => link.answer = answer,
            _ => return Err(unexpected("no answer to an attach")),
        }
        // A refused link is attached without its terminus and detached with the reason (AMQP-36).
        if link.answer.source.is_none() || link.answer.target.is_none() {
            return match link.hear().await? {
                Heard::Detached(Some(error)) => Err(refusal(&error)),
                _ => Err(unexpected("a refused link is detached with the reason")),
            };
        }
        if attach.role == Role::Sender {
            // Sends wait for credit, which the broker grants immediately (AMQP-40).
            match link.hear().await? {
                Heard::Flow(flow) if flow.link_credit > Some(0) => {}
                _ => return Err(unexpected("a sender gets credit")),
            }
        }
        Ok(link)
    }

    async fn hear(&mut self) -> Answer<Heard> {
        if let Some(error) = &self.ended {
            return Ok(Heard::Detached(error.clone()));
        }
        let heard = self.heard.recv().await.ok_or_else(gone)?;
        if let Heard::Detached(error) = &heard {
            self.ended = Some(error.clone());
        }
        Ok(heard)
    }

    /// Sends a message, and waits for its outcome.
    pub async fn send(
        &self,
        format: u32,
        state: Option<&DeliveryState>,
        message: &[u8],
    ) -> Answer<Outcome> {
        let (channel, handle) = self.id.place;
        let outgoing = Outgoing { handle, format, settled: false, state, message };
        taken(self.connection.send(channel, &outgoing).await?)
    }

    /// Receives up to `count_max` available messages. If there is none, waits for one.
    pub async fn receive(
        &mut self,
        count_max: u32,
        wait: TimeSpan,
        clock: &Arc<ManualClock>,
    ) -> Answer<Vec<Delivery>> {
        let until = clock.now().plus(wait);
        let taken = self.drain(count_max).await?;
        if !taken.is_empty() || wait == TimeSpan::ZERO {
            return Ok(taken);
        }
        self.connection.credit(self.id, self.delivery_count, 1, false);
        match self.wait_until(until, clock).await? {
            Some(delivery) => Ok(vec![delivery]),
            // A message that arrives until the credit is returned is received too.
            None => self.drain(1).await,
        }
    }

    async fn wait_until(
        &mut self,
        until: Timestamp,
        clock: &Arc<ManualClock>,
    ) -> Answer<Option<Delivery>> {
        tokio::select! {
            biased;
            delivery = self.delivered() => delivery.map(Some),
            () = clock.sleep_until(until) => Ok(None),
        }
    }

    /// The next message.
    pub async fn delivered(&mut self) -> Answer<Delivery> {
        loop {
            match self.hear().await? {
                Heard::Transfer(transfer, payload) => {
                    if let Some(delivery) = self.take(transfer, payload) {
                        return Ok(delivery);
                    }
                }
                Heard::Detached(error) => return Err(ended(error)),
                Heard::Flow(_) => {}
                Heard::Attached(_) => return Err(unexpected("attached twice")),
            }
        }
    }

    /// Receives up to `count_max` available messages.
    async fn drain(&mut self, count_max: u32) -> Answer<Vec<Delivery>> {
        self.connection.credit(self.id, self.delivery_count, count_max, true);
        let mut taken = Vec::new();
        loop {
            match self.hear().await? {
                Heard::Transfer(transfer, payload) => taken.extend(self.take(transfer, payload)),
                // The flow ends the drain and returns the credit (AMQP-51).
                Heard::Flow(flow) if flow.drain => {
                    assert_eq!(flow.link_credit, Some(0));
                    self.delivery_count = flow.delivery_count.unwrap();
                    return Ok(taken);
                }
                Heard::Flow(_) => {}
                Heard::Detached(error) => return Err(ended(error)),
                Heard::Attached(_) => return Err(unexpected("attached twice")),
            }
        }
    }

    fn take(&mut self, transfer: Transfer, payload: Bytes) -> Option<Delivery> {
        let delivery = self.parts.push(transfer, payload)?;
        self.delivery_count = self.delivery_count.wrapping_add(1);
        Some(delivery)
    }

    /// Grants credit for one message.
    pub fn ask_for_one(&self) {
        self.connection.credit(self.id, self.delivery_count, 1, false);
    }

    /// Detaches the link, and waits until the broker has detached it.
    pub async fn detach(mut self) -> Answer<()> {
        self.connection.detach(self.id);
        while !matches!(self.hear().await?, Heard::Detached(_)) {}
        Ok(())
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        self.connection.detach(self.id);
    }
}

/// The refusal for a link that ended because of its entity. The next attach returns the reason
/// (AMQP-79).
fn ended(error: Option<AmqpError>) -> crate::subject::Refusal {
    match error {
        Some(error) => refusal(&error),
        None => refusal(&AmqpError::new(condition::INTERNAL_ERROR, "detached without a reason")),
    }
}

/// The outcome, unless it is a rejection.
pub fn taken(state: DeliveryState) -> Answer<Outcome> {
    let outcome = match state {
        DeliveryState::Outcome(outcome) => outcome,
        DeliveryState::Transactional(state) => {
            let outcome = state.outcome;
            outcome.ok_or_else(|| unexpected("a state without an outcome"))?
        }
        DeliveryState::Received(_) => return Err(unexpected("a state that is no outcome")),
    };
    match outcome {
        Outcome::Rejected(Rejected { error: Some(error) }) => Err(refusal(&error)),
        outcome => Ok(outcome),
    }
}

//! Sending: a transfer for each message, within the window of the run, the credit of the link and
//! the window of the session.

use std::collections::VecDeque;
use std::time::Instant;

use peeklock::message::Message;
use peeklock_amqp::performative::{Disposition, Flow, Performative, Role};
use peeklock_amqp::serial::{distance, room};
use peeklock_amqp_testing::client::Outgoing;

use super::AmqpFault;
use super::connection::Connection;
use super::link::HANDLE;
use super::settle::accepted;
use crate::BenchError;
use crate::latency::Latencies;
use crate::messages::Run;

/// The state of sending on a link.
struct Sending<'a> {
    run: &'a Run,
    /// The encoded message. Only the start of its body changes from message to message.
    message: Vec<u8>,
    body_at: usize,
    /// Number of messages sent on the link, and the number that the credit permits.
    count: u32,
    credit_up_to: u32,
    /// The send times of unconfirmed messages, the oldest first; none for a message confirmed
    /// before an older one.
    under_way: VecDeque<Option<Instant>>,
    /// Whether no message is left to send.
    is_exhausted: bool,
}

impl<'a> Sending<'a> {
    fn new(run: &'a Run) -> Self {
        let body = run.blank_body();
        let body_bytes = body.len();
        let message = Message::new(body).encode().as_bytes().to_vec();
        Self {
            run,
            // The body is the last part.
            body_at: message.len() - body_bytes,
            message,
            count: 0,
            credit_up_to: 0,
            under_way: VecDeque::with_capacity(run.window),
            is_exhausted: false,
        }
    }

    fn has_credit(&self) -> bool {
        room(self.count, self.credit_up_to) > 0
    }

    fn credited(&mut self, flow: &Flow) {
        if let (Some(count), Some(credit)) = (flow.delivery_count, flow.link_credit) {
            self.credit_up_to = count.wrapping_add(credit);
        }
    }

    fn is_done(&self) -> bool {
        self.is_exhausted && self.under_way.is_empty()
    }
}

impl Connection {
    /// Sends until no message is left and all are confirmed.
    pub(super) async fn send(&mut self, run: &Run, took: &Latencies) -> Result<(), BenchError> {
        self.attach_sender(&run.queue).await?;
        let mut sending = Sending::new(run);
        loop {
            let now = Instant::now();
            // First of all, because the credit may have arrived together with the answer to the
            // attach.
            while let Some((performative, _)) = self.hear()? {
                match performative {
                    Performative::Flow(flow) => sending.credited(&flow),
                    Performative::Disposition(disposition) => {
                        self.answered(&mut sending, disposition, now, took).await?;
                    }
                    other => return Err(AmqpFault::unexpected(other).into()),
                }
            }
            self.send_some(&mut sending);
            if sending.is_done() {
                return Ok(self.detach().await?);
            }
            self.turn().await?;
        }
    }

    /// Appends as many messages to the output as may be sent.
    fn send_some(&mut self, sending: &mut Sending<'_>) {
        while sending.under_way.len() < sending.run.window
            && sending.has_credit()
            && self.session.has_room(sending.message.len())
            && !self.wire.is_full()
            && !sending.is_exhausted
        {
            if !sending.run.take() {
                sending.is_exhausted = true;
                return;
            }
            let now = Instant::now();
            if let Some(body) = sending.message.get_mut(sending.body_at..) {
                sending.run.stamp(body, now);
            }
            self.transfer(&sending.message);
            sending.count = sending.count.wrapping_add(1);
            sending.under_way.push_back(Some(now));
        }
    }

    fn transfer(&mut self, message: &[u8]) {
        let outgoing = Outgoing { handle: HANDLE, format: 0, settled: false, state: None, message };
        self.session.transfer(&mut self.wire.frames, &outgoing);
    }

    /// Handles a confirmation by the broker. Returns when the next send may follow.
    async fn answered(
        &self,
        sending: &mut Sending<'_>,
        disposition: Disposition,
        now: Instant,
        took: &Latencies,
    ) -> Result<(), AmqpFault> {
        let unanswered = u32::try_from(sending.under_way.len()).unwrap_or(u32::MAX);
        let oldest_id = self.session.next_delivery_id().wrapping_sub(unanswered);
        let (first, count) = accepted(disposition, Role::Receiver)?;
        let from = usize::try_from(distance(oldest_id, first)).unwrap_or(usize::MAX);
        let answered = sending.under_way.iter_mut().skip(from).take(count);
        for sent_at in answered.filter_map(Option::take) {
            took.record(now.duration_since(sent_at));
            sending.run.sent().await;
        }
        while sending.under_way.front().is_some_and(Option::is_none) {
            sending.under_way.pop_front();
        }
        Ok(())
    }
}

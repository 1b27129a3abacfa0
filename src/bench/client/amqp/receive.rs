//! Receiving: deliveries under lock as the broker pushes them, each completed.

use std::pin::pin;

use bytes::{Bytes, BytesMut};
use peeklock_amqp::error::AmqpError;
use peeklock_amqp::performative::{Performative, Role, Transfer};
use peeklock_words::amqp::{Reader, Scalar, descriptor};

use super::AmqpFault;
use super::connection::Connection;
use super::settle::{Hand, accepted};
use crate::bench::BenchError;
use crate::bench::latency::Latencies;
use crate::bench::messages::Run;

/// The place of delivery-count in a header (AMQP 3.2.1).
const DELIVERY_COUNT: usize = 4;

impl Connection {
    /// Receives from a path and completes, until everything was received by somebody, and what came here is
    /// completed.
    pub(super) async fn receive(
        &mut self,
        path: &str,
        run: &Run,
        took: &Latencies,
    ) -> Result<(), BenchError> {
        self.attach_receiver(path).await?;
        let mut hand = Hand::new(run.window);
        let mut parts = Parts::default();
        let mut all_received = pin!(run.all_received());
        let mut is_all = false;
        while !(is_all && hand.is_empty()) {
            if !is_all {
                self.grant(&mut hand);
            }
            tokio::select! {
                biased;
                () = &mut all_received, if !is_all => is_all = true,
                turned = self.turn() => turned?,
            }
            while let Some((performative, payload)) = self.hear()? {
                match performative {
                    Performative::Transfer(transfer) => {
                        let Some((id, message)) = parts.push(&transfer, payload) else { continue };
                        let (failed_count, body) = read(&message).map_err(AmqpFault::from)?;
                        run.received(body, failed_count + 1, took);
                        self.complete(&mut hand, id);
                    }
                    Performative::Disposition(disposition) => {
                        let (_, count) = accepted(disposition, Role::Sender)?;
                        hand.completed(count);
                        run.completed(count as u64);
                    }
                    Performative::Flow(_) => {}
                    other => return Err(AmqpFault::unexpected(other).into()),
                }
            }
            self.complete_all(&mut hand);
        }
        Ok(self.detach().await?)
    }
}

/// A message of which not all frames came.
#[derive(Default)]
struct Parts {
    id: u32,
    bytes: BytesMut,
}

impl Parts {
    /// Takes a frame; if it is the last of its message, the delivery and the message. One that came in one
    /// frame is not copied.
    fn push(&mut self, transfer: &Transfer, payload: Bytes) -> Option<(u32, Bytes)> {
        self.id = transfer.delivery_id.unwrap_or(self.id);
        if !transfer.more && self.bytes.is_empty() {
            return Some((self.id, payload));
        }
        self.bytes.extend_from_slice(&payload);
        (!transfer.more).then(|| (self.id, self.bytes.split().freeze()))
    }
}

/// How often a delivery of a message has failed, and its body.
fn read(message: &[u8]) -> Result<(u32, &[u8]), AmqpError> {
    let mut reader = Reader::new(message);
    let mut failed_count = 0;
    while !reader.is_empty() {
        match reader.section()? {
            descriptor::HEADER => {
                let (count, mut fields) = reader.list()?;
                for field in 0..count {
                    let value = fields.scalar()?;
                    if let (DELIVERY_COUNT, Scalar::U32(failed)) = (field, value) {
                        failed_count = failed;
                    }
                }
            }
            descriptor::DATA => {
                if let Scalar::Binary(body) = reader.scalar()? {
                    return Ok((failed_count, body));
                }
            }
            _ => {
                reader.raw()?;
            }
        }
    }
    Ok((failed_count, &[]))
}

#[cfg(test)]
mod tests {
    use peeklock::message::Message;
    use peeklock_amqp::message::{Stamps, encode};

    use super::*;

    fn delivered(body: &'static str, delivery_count: u32) -> Bytes {
        let content = Message::new(body).encode();
        encode(&content, &[], &Stamps { delivery_count, ..Stamps::default() }).concat().into()
    }

    #[test]
    fn body_and_failed_deliveries_of_what_the_broker_sends_are_read() {
        assert_eq!(read(&delivered("two coffees", 0)), Ok((0, &b"two coffees"[..])));
        assert_eq!(read(&delivered("", 3)), Ok((3, &b""[..])));
        let whole = delivered("two coffees", 300);
        assert_eq!(read(&whole), Ok((300, &b"two coffees"[..])));
        for cut in 1..whole.len() {
            assert_ne!(read(&whole[..cut]), read(&whole), "{cut}");
        }
    }

    #[test]
    fn frames_of_one_message_are_joined() {
        let mut parts = Parts::default();
        let first = Transfer { delivery_id: Some(7), more: true, ..Transfer::default() };
        let next = Transfer { more: true, ..Transfer::default() };
        let last = Transfer::default();
        assert_eq!(parts.push(&first, Bytes::from_static(b"two ")), None);
        assert_eq!(parts.push(&next, Bytes::from_static(b"cof")), None);
        let whole = Bytes::from_static(b"two coffees");
        assert_eq!(parts.push(&last, Bytes::from_static(b"fees")), Some((7, whole.clone())));
        let single = Transfer { delivery_id: Some(8), ..Transfer::default() };
        assert_eq!(parts.push(&single, whole.clone()), Some((8, whole)));
    }
}

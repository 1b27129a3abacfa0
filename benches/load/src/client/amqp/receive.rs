//! Receiving: the broker pushes deliveries under lock, and the client completes each.

use std::pin::pin;

use peeklock_amqp::error::AmqpError;
use peeklock_amqp::performative::{Performative, Role};
use peeklock_amqp_testing::client::Parts;
use peeklock_words::amqp::{Reader, Scalar, descriptor};

use super::AmqpFault;
use super::connection::Connection;
use super::settle::{Hand, accepted};
use crate::BenchError;
use crate::latency::Latencies;
use crate::messages::Run;

/// Position of delivery-count in a header (AMQP 3.2.1).
const DELIVERY_COUNT: usize = 4;

impl Connection {
    /// Receives from a path and completes, until all messages are received by any client, and this
    /// client's are completed.
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
                        let Some((first, message)) = parts.push(transfer, payload) else {
                            continue;
                        };
                        let (failed_count, body) = read(&message).map_err(AmqpFault::from)?;
                        run.received(body, failed_count + 1, took);
                        self.complete(&mut hand, first.delivery_id.unwrap_or_default());
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

/// The number of failed deliveries of a message, and its body.
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
    use bytes::Bytes;
    use peeklock::message::Message;
    use peeklock_amqp::message::{Stamps, encode};

    use super::*;

    fn delivered(body: &'static str, delivery_count: u32) -> Bytes {
        let content = Message::new(body).encode();
        encode(&content, &[], &Stamps { delivery_count, ..Stamps::default() }).concat().into()
    }

    #[test]
    fn body_and_delivery_count_of_a_delivery_are_read() {
        assert_eq!(read(&delivered("two coffees", 0)), Ok((0, &b"two coffees"[..])));
        assert_eq!(read(&delivered("", 3)), Ok((3, &b""[..])));
        let whole = delivered("two coffees", 300);
        assert_eq!(read(&whole), Ok((300, &b"two coffees"[..])));
        for cut in 1..whole.len() {
            assert_ne!(read(&whole[..cut]), read(&whole), "{cut}");
        }
    }
}

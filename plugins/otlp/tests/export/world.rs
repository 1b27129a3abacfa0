//! A broker that exports its operations to a test collector.

use std::time::Duration;

use opentelemetry_proto::tonic::trace::v1::Span;
use peeklock_core::command::{Command, Outcome, ReceiveMode, Settlement};
use peeklock_core::description::QueueUpdate;
use peeklock_core::ids::LockToken;
use peeklock_core::message::Message;
use peeklock_core::time::TimeSpan;
use peeklock_core::{Broker, Entity};
use peeklock_otlp::{Endpoint, Otlp, OtlpConfig};

use crate::collector::{Collector, spans};

/// Trace id and span id in the `traceparent` of test messages.
pub const TRACE: &str = "0af7651916cd43dd8448eb211c80319c";
pub const SENDER: &str = "b7ad6b7169203331";
/// Time limit of a stop while the collector answers.
pub const PATIENCE: Duration = Duration::from_secs(30);

pub struct World {
    pub broker: Broker,
    pub orders: Entity,
    pub collector: Collector,
    otlp: Otlp,
}

pub fn config(collector: &Collector) -> OtlpConfig {
    OtlpConfig::new(Endpoint::new(&collector.url(), Vec::new()).unwrap())
}

impl World {
    pub async fn start() -> Self {
        Self::with(|_| {}).await
    }

    pub async fn with(adjust: impl FnOnce(&mut OtlpConfig)) -> Self {
        let collector = Collector::start();
        let mut config = config(&collector);
        adjust(&mut config);
        let otlp = Otlp::start(&config).unwrap();
        let builder = Broker::builder().arbiters(1);
        let broker = builder.tracer(otlp.tracer().unwrap()).start().await.unwrap();
        broker.create_queue("orders", QueueUpdate::default()).await.unwrap();
        let orders = broker.entity("orders").unwrap();
        Self { broker, orders, collector, otlp }
    }

    /// Stops everything and returns the received spans.
    pub async fn stop(self) -> Vec<Span> {
        self.broker.stop(Duration::ZERO).await.unwrap();
        self.otlp.stop(PATIENCE).await;
        spans(&self.collector.all())
    }

    pub async fn send(&self, message: Message) {
        let message = self.broker.inbound(message);
        self.orders.call(Command::Send { message }).await.unwrap();
    }

    /// Receives up to `count_max` messages under lock.
    pub async fn receive(&self, count_max: u32) -> Vec<LockToken> {
        let command = Command::Receive {
            mode: ReceiveMode::PeekLock,
            count_max,
            bytes_max: u64::MAX,
            wait: TimeSpan::ZERO,
            holder: None,
        };
        match self.orders.call(command).await.unwrap() {
            Outcome::Received(messages) => {
                messages.iter().map(|message| message.facts.lock.unwrap().token).collect()
            }
            other => panic!("{other:?}"),
        }
    }

    pub async fn complete(&self, token: LockToken) {
        let settlement = Settlement::Complete;
        self.orders.call(Command::Settle { token, settlement }).await.unwrap();
    }
}

/// Returns a message of this trace and sender; `is_sampled` sets the flag in its `traceparent`.
pub fn message(trace: &str, sender: &str, is_sampled: bool) -> Message {
    let flags = if is_sampled { "01" } else { "00" };
    Message::new("two coffees")
        .with_message_id("order-1")
        .with_correlation_id("table-7")
        .with_application_property("traceparent", format!("00-{trace}-{sender}-{flags}").as_str())
}

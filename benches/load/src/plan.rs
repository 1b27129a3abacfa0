//! The loads by name, and their default sizes. [`Flags`](crate::Flags) makes a [`Plan`] from them.

use std::path::PathBuf;

use clap::ValueEnum;
use peeklock::tls::ClientTls;

use crate::report::Report;

/// A load. W1 to W7 are their names in the design.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Load {
    /// W1: one sender and one receiver; each message is sent after the previous one is completed
    #[value(alias = "w1")]
    Latency,
    /// W2: four senders, four receivers, windows of 256, 1 KiB, durable at acknowledgement
    #[value(alias = "w2")]
    Throughput,
    /// W3: W2 in memory only
    #[value(alias = "w3")]
    Memory,
    /// W4: W2 with bodies of 16 bytes
    #[value(alias = "w4")]
    Small,
    /// W5: each message of a topic goes to all its subscriptions; compared with W2 on a queue in the same run
    #[value(alias = "w5")]
    Topic,
    /// W6: all messages are sent, and then all are received and completed
    #[value(alias = "w6")]
    Backlog,
    /// W7: many queues are created (--count)
    #[value(alias = "w7")]
    Queues,
    /// Many connections are opened and stay idle (--count)
    Connections,
    /// In process: each client sends a list, receives and completes it; with --floor compared with the disk only
    Cycle,
    /// In process: `cycle` on one queue, while another queue holds a quarter as many idle messages
    Beside,
    /// In process: all messages are scheduled for tomorrow; measures the delay of other due messages
    Scheduled,
    /// In process: all messages are received and abandoned until tomorrow; measures the delay of other due messages
    Delayed,
}

/// The way to the broker.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Over {
    /// WebSocket with binary frames
    Websocket,
    /// WebSocket with JSON frames
    WebsocketJson,
    /// AMQP 1.0, one transfer per message
    Amqp,
    /// The Service Bus REST plane, one request at a time on each connection
    Http,
    /// Handles of a broker in this process
    InProcess,
}

impl Over {
    /// The name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }
}

impl Load {
    /// The name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map_or_else(String::new, |value| value.get_name().to_owned())
    }

    /// Whether it measures only the journal of a broker in this process.
    pub const fn is_in_process_only(self) -> bool {
        matches!(self, Self::Cycle | Self::Beside | Self::Scheduled | Self::Delayed)
    }

    /// Whether a floor can be measured.
    pub const fn has_floor(self) -> bool {
        matches!(self, Self::Latency | Self::Throughput | Self::Small | Self::Cycle)
    }

    /// Whether it counts queues or connections instead of messages.
    pub const fn is_of_things(self) -> bool {
        matches!(self, Self::Queues | Self::Connections)
    }

    /// Default numbers of clients, window, messages and body bytes.
    pub const fn shape(self) -> Shape {
        let shape = Shape { clients: 4, window: 256, messages: 200_000, body_bytes: 1_024 };
        match self {
            Self::Latency => Shape { clients: 1, window: 1, messages: 10_000, ..shape },
            Self::Small => Shape { body_bytes: 16, ..shape },
            Self::Topic => Shape { messages: 40_000, ..shape },
            Self::Backlog | Self::Scheduled | Self::Delayed => {
                Shape { messages: 1_000_000, ..shape }
            }
            Self::Connections => Shape { window: 16, ..shape },
            Self::Throughput | Self::Memory | Self::Queues | Self::Cycle | Self::Beside => shape,
        }
    }
}

/// The numbers of a load.
#[derive(Clone, Copy, Debug)]
pub struct Shape {
    /// Number of senders, and of receivers.
    pub clients: usize,
    /// Commands in flight per client.
    pub window: usize,
    /// Total number of messages.
    pub messages: u64,
    /// Bytes of a body.
    pub body_bytes: usize,
}

/// Window over HTTP, which is the number of connections: HTTP/1.1 answers one request at a time
/// (SND-10).
pub const HTTP_WINDOW: usize = 16;

/// A load with all its parameters.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The load.
    pub load: Load,
    /// The transport.
    pub over: Over,
    /// The URL of a running broker; none to start one.
    pub url: Option<String>,
    /// Trusted authorities and client certificates for that broker.
    pub tls: ClientTls,
    /// The directory of a broker that the load starts.
    pub place: PathBuf,
    /// Whether the disk is measured too.
    pub floor: bool,
    /// Whether the broker keeps journeys.
    pub has_journeys: bool,
    /// Number of senders, and of receivers.
    pub clients: usize,
    /// Commands in flight per client.
    pub window: usize,
    /// Total number of messages.
    pub messages: u64,
    /// Bytes of a body.
    pub body_bytes: usize,
    /// Number of queues or connections.
    pub count: u64,
    /// Subscriptions of the topic of a load.
    pub subscriptions: usize,
    /// Number of threads of this process that produce the load.
    pub threads: usize,
    /// Maximum number of files that this process may have open; `None` where there is no known limit.
    pub open_files_max: Option<u64>,
}

impl Plan {
    /// Whether the broker syncs before it acknowledges; unknown for a given broker.
    pub fn is_durable(&self) -> Option<bool> {
        self.url.is_none().then_some(self.load != Load::Memory)
    }

    /// Adds the parameters to the report.
    pub fn report_to(&self, report: &mut Report) {
        report.text("load", "load", self.load.name());
        report.text("over", "over", self.over.name());
        let durability = match self.is_durable() {
            Some(true) => "synced before acknowledgement",
            Some(false) => "in memory only",
            None => "set at the broker, not known here",
        };
        report.text("durability", "durability", durability.to_owned());
        report.text("peeklock", "peeklock", env!("CARGO_PKG_VERSION").to_owned());
        if let Some(url) = &self.url {
            report.text("url", "broker", url.clone());
        }
        if !self.load.is_of_things() {
            report.count("clients", "senders and receivers, each", self.clients as u64);
            report.count("window", "window of each", self.window as u64);
            report.bytes("body_bytes", "body", self.body_bytes as u64);
            report.count("messages", "messages", self.messages);
        }
    }
}

//! The compared products with their settings and durability. `main.rs` runs each product with each
//! load.

use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use clap::ValueEnum;
use futures_util::future::try_join_all;

use crate::load::{Figures, Load, Tally};
use crate::redis_streams::Style;
use crate::server::{Directory, Server, own_cpu};
use crate::{amqp, beanstalkd, nats, peeklock, rabbitmq, redis_streams};

/// Time limit for completions without acknowledgement to take effect.
const EMPTY_TIME_MAX: Duration = Duration::from_secs(30);

#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
pub enum Contender {
    Peeklock,
    /// Over AMQP 1.0, by the client that drives `rabbitmq-amqp` too
    PeeklockAmqp,
    /// Many commands by hand in one pipeline
    Redis,
    /// One command for each message
    RedisSingle,
    Nats,
    Rabbitmq,
    /// Over AMQP 1.0, by its plugin
    RabbitmqAmqp,
    Beanstalkd,
}

impl Contender {
    pub const ALL: [Self; 8] = [
        Self::Peeklock,
        Self::PeeklockAmqp,
        Self::Redis,
        Self::RedisSingle,
        Self::Nats,
        Self::Rabbitmq,
        Self::RabbitmqAmqp,
        Self::Beanstalkd,
    ];

    /// Returns the product and its configuration, for the table.
    pub const fn title(self) -> &'static str {
        match self {
            Self::Peeklock => "Peeklock, WebSocket binary",
            Self::PeeklockAmqp => "Peeklock, AMQP 1.0",
            Self::Redis => "Redis streams, pipelines of 128 by hand",
            Self::RedisSingle => "Redis streams, a command for each message",
            Self::Nats => "NATS JetStream, work queue, double ack",
            Self::Rabbitmq => "RabbitMQ quorum queue, confirms",
            Self::RabbitmqAmqp => "RabbitMQ quorum queue, AMQP 1.0 by its plugin",
            Self::Beanstalkd => "beanstalkd, pipelined puts, one reserve at a time",
        }
    }

    /// Returns the durability of an acknowledgement in this load; `None` if the product does not
    /// take part.
    pub const fn durability(self, load: Load) -> Option<&'static str> {
        let is_memory = matches!(load, Load::Memory);
        Some(match (self, is_memory) {
            (Self::Peeklock | Self::PeeklockAmqp, false) => "synced",
            (Self::Redis | Self::RedisSingle, false) => "synced (`appendfsync always`)",
            (Self::Nats, false) => "written, not synced (file storage, default)",
            (Self::Rabbitmq | Self::RabbitmqAmqp, false) => "synced (its log)",
            (Self::Beanstalkd, false) => "synced (`-f0`)",
            // A quorum queue is always on disk.
            (Self::Rabbitmq | Self::RabbitmqAmqp, true) => return None,
            (Self::Peeklock | Self::PeeklockAmqp, true) => "none (`--ephemeral`)",
            (Self::Redis | Self::RedisSingle, true) => "none (`appendonly no`)",
            (Self::Nats, true) => "none (memory storage)",
            (Self::Beanstalkd, true) => "none (no `-b`)",
        })
    }

    /// Returns the number of messages to use: fewer for a product that syncs for each message.
    pub fn share(self, load: Load, messages: u64) -> u64 {
        match (self, load) {
            (Self::Beanstalkd, Load::Throughput | Load::Small) => messages / 10,
            _ => messages,
        }
    }

    /// Returns the installed version.
    pub fn version(self, peeklock: &Path) -> Result<String> {
        let mut command = match self {
            Self::Peeklock | Self::PeeklockAmqp => Command::new(peeklock),
            Self::Redis | Self::RedisSingle => Command::new("redis-server"),
            Self::Nats => Command::new("nats-server"),
            Self::Rabbitmq | Self::RabbitmqAmqp => Command::new("dpkg-query"),
            Self::Beanstalkd => Command::new("beanstalkd"),
        };
        match self {
            Self::Rabbitmq | Self::RabbitmqAmqp => {
                command.args(["-W", "-f", "rabbitmq ${Version}", "rabbitmq-server"])
            }
            Self::Beanstalkd => command.arg("-v"),
            Self::Peeklock | Self::PeeklockAmqp | Self::Redis | Self::RedisSingle | Self::Nats => {
                command.arg("--version")
            }
        };
        let output = command.output().with_context(|| format!("{self:?} is not installed"))?;
        let text = String::from_utf8(output.stdout)?;
        let line = text.lines().next().unwrap_or_default();
        // Redis prints further build details.
        Ok(line
            .split(" sha=")
            .next()
            .unwrap_or(line)
            .replace("Redis server v=", "redis ")
            .to_owned())
    }

    /// Runs a load on a new server, after a warm-up with a tenth of the messages.
    pub async fn run(
        self,
        program: &Path,
        place: &Path,
        load: Load,
        messages: u64,
    ) -> Result<Figures> {
        let name = format!("{self:?}-{}", load.name()).to_lowercase();
        let directory = Directory::within(place, &name)?;
        if self == Self::Peeklock {
            return peeklock::run(program, &directory, load, messages).await;
        }
        let is_durable = load != Load::Memory;
        let (servers, port) = match self {
            Self::Peeklock | Self::Redis | Self::RedisSingle => {
                one(redis_streams::start(&directory, is_durable).await?)
            }
            Self::PeeklockAmqp => one(peeklock::start(program, &directory, is_durable).await?),
            Self::Nats => one(nats::start(&directory).await?),
            Self::Rabbitmq | Self::RabbitmqAmqp => rabbitmq::start(&directory).await?,
            Self::Beanstalkd => one(beanstalkd::start(&directory, is_durable).await?),
        };
        match self {
            Self::Peeklock | Self::Beanstalkd => {}
            Self::Redis | Self::RedisSingle => redis_streams::prepare(port).await?,
            Self::PeeklockAmqp => peeklock::prepare(port).await?,
            Self::Nats => nats::prepare(port, is_durable).await?,
            Self::Rabbitmq | Self::RabbitmqAmqp => rabbitmq::prepare(port).await?,
        }
        self.phase(&servers, port, load, (messages / 10).clamp(1, 20_000)).await?;
        self.is_empty(port).await?;
        let figures = self.phase(&servers, port, load, messages).await?;
        self.is_empty(port).await?;
        Ok(figures)
    }

    /// Waits until the queue is empty, because completions without acknowledgement take effect
    /// later.
    async fn is_empty(self, port: u16) -> Result<()> {
        let since = Instant::now();
        loop {
            let left = match self {
                Self::Peeklock | Self::Redis | Self::RedisSingle => {
                    redis_streams::left(port).await?
                }
                Self::PeeklockAmqp => peeklock::left(port).await?,
                Self::Nats => nats::left(port).await?,
                Self::Rabbitmq | Self::RabbitmqAmqp => rabbitmq::left(port).await?,
                Self::Beanstalkd => beanstalkd::left(port).await?,
            };
            if left == 0 {
                return Ok(());
            }
            ensure!(since.elapsed() < EMPTY_TIME_MAX, "{left} messages are left");
            tokio::time::sleep(Duration::from_millis(50)).await;
        }
    }

    async fn phase(
        self,
        servers: &[Server],
        port: u16,
        load: Load,
        messages: u64,
    ) -> Result<Figures> {
        let tally = &Tally::new(load, messages)?;
        let style = if self == Self::RedisSingle { Style::Single } else { Style::Pipelines };
        let cpu = || servers.iter().map(Server::cpu).sum::<f64>();
        let (server_before, load_before) = (cpu(), own_cpu());
        let began = Instant::now();
        let receivers = try_join_all((0..load.clients()).map(|name| async move {
            match self {
                Self::Peeklock | Self::Redis | Self::RedisSingle => {
                    redis_streams::receive(port, name, style, tally).await
                }
                Self::Nats => nats::receive(port, tally).await,
                Self::PeeklockAmqp => amqp::receive(peeklock::place(port), tally).await,
                Self::RabbitmqAmqp => amqp::receive(rabbitmq::place(port), tally).await,
                Self::Rabbitmq => rabbitmq::receive(port, name, tally).await,
                Self::Beanstalkd => beanstalkd::receive(port, tally).await,
            }
        }));
        let senders = try_join_all((0..load.clients()).map(|_| async move {
            match self {
                Self::Peeklock | Self::Redis | Self::RedisSingle => {
                    redis_streams::send(port, style, tally).await
                }
                Self::Nats => nats::send(port, tally).await,
                Self::PeeklockAmqp => amqp::send(peeklock::place(port), tally).await,
                Self::RabbitmqAmqp => amqp::send(rabbitmq::place(port), tally).await,
                Self::Rabbitmq => rabbitmq::send(port, tally).await,
                Self::Beanstalkd => beanstalkd::send(port, tally).await,
            }
        }));
        tokio::try_join!(receivers, senders)?;
        let elapsed = began.elapsed();
        tally.figures(elapsed, cpu() - server_before, own_cpu() - load_before)
    }
}

fn one((server, port): (Server, u16)) -> (Vec<Server>, u16) {
    (vec![server], port)
}

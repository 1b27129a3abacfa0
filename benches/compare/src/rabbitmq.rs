//! RabbitMQ load: a quorum queue on one node, publisher confirms, and manual acknowledgement with a
//! prefetch of the window. The protocol does not confirm acknowledgements, so they count when sent.
//! Its plugin `rabbitmq_amqp1_0` translates AMQP 1.0, which [`crate::amqp`] uses.

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use lapin::options::{
    BasicAckOptions, BasicConsumeOptions, BasicPublishOptions, BasicQosOptions,
    ConfirmSelectOptions, QueueDeclareOptions, QueueDeleteOptions,
};
use lapin::types::{AMQPValue, FieldTable};
use lapin::{BasicProperties, Channel, Connection, ConnectionProperties};

use crate::amqp::Place;
use crate::load::Tally;
use crate::server::{Directory, Server, free_port};

/// The script inside Debian's wrapper; the wrapper would change the user.
const SCRIPT: &str = "/usr/lib/rabbitmq/bin/rabbitmq-server";
const QUEUE: &str = "compare";
/// Time limit until a listening node accepts connections.
const READY_TIME_MAX: Duration = Duration::from_secs(60);
/// Time for acknowledgements to reach the queue.
pub const SETTLE_TIME: Duration = Duration::from_secs(3);
const PERSISTENT: u8 = 2;

/// The node and its port mapper; both end when dropped.
pub async fn start(directory: &Directory) -> Result<(Vec<Server>, u16)> {
    let (port, mapper_port, distribution_port) = (free_port()?, free_port()?, free_port()?);
    let place = &directory.0;
    let mapper = Server::start(
        "epmd",
        Command::new("epmd").args(["-address", "127.0.0.1", "-port", &mapper_port.to_string()]),
        directory,
    )?;
    fs::write(place.join("plugins"), "[rabbitmq_amqp1_0].\n")?;
    fs::write(place.join("rabbitmq.conf"), format!("listeners.tcp.1 = 127.0.0.1:{port}\n"))?;
    let mut command = Command::new(SCRIPT);
    command
        .env("HOME", place)
        .env("ERL_EPMD_PORT", mapper_port.to_string())
        .env("ERL_EPMD_ADDRESS", "127.0.0.1")
        .env("RABBITMQ_NODENAME", "compare@localhost")
        .env("RABBITMQ_DIST_PORT", distribution_port.to_string())
        .env("RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS", "-kernel inet_dist_use_interface {127,0,0,1}")
        .env("RABBITMQ_MNESIA_BASE", place.join("mnesia"))
        .env("RABBITMQ_LOG_BASE", place.join("log"))
        .env("RABBITMQ_CONFIG_FILE", place.join("rabbitmq"))
        .env("RABBITMQ_ENABLED_PLUGINS_FILE", place.join("plugins"))
        .env("RABBITMQ_PID_FILE", place.join("pid"));
    let mut server = Server::start("rabbitmq", &mut command, directory)?;
    server.listens(port, directory).await?;
    let started = Instant::now();
    while let Err(error) = connect(port).await {
        if started.elapsed() > READY_TIME_MAX {
            return Err(error);
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok((vec![server, mapper], port))
}

/// Returns the address over AMQP 1.0.
pub const fn place(port: u16) -> Place {
    Place { port, address: "/amq/queue/compare", password: Some(b"\0guest\0guest") }
}

async fn connect(port: u16) -> Result<(Connection, Channel)> {
    let uri = format!("amqp://guest:guest@127.0.0.1:{port}/%2f");
    let connection = Connection::connect(&uri, ConnectionProperties::default()).await?;
    let channel = connection.create_channel().await?;
    Ok((connection, channel))
}

pub async fn prepare(port: u16) -> Result<()> {
    let (_connection, channel) = connect(port).await?;
    channel.queue_delete(QUEUE.into(), QueueDeleteOptions::default()).await?;
    let mut arguments = FieldTable::default();
    arguments.insert("x-queue-type".into(), AMQPValue::LongString("quorum".into()));
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare(QUEUE.into(), options, arguments).await?;
    Ok(())
}

pub async fn left(port: u16) -> Result<u64> {
    // Unacknowledged messages do not count until their connection is closed.
    tokio::time::sleep(SETTLE_TIME + Duration::from_millis(500)).await;
    let (_connection, channel) = connect(port).await?;
    let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let queue = channel.queue_declare(QUEUE.into(), options, FieldTable::default()).await?;
    Ok(u64::from(queue.message_count()))
}

pub async fn send(port: u16, tally: &Tally) -> Result<()> {
    let (_connection, channel) = connect(port).await?;
    channel.confirm_select(ConfirmSelectOptions::default()).await?;
    let channel = &channel;
    let properties = &BasicProperties::default().with_delivery_mode(PERSISTENT);
    let mut under_way = FuturesUnordered::new();
    loop {
        while under_way.len() < tally.window && tally.take(1) == 1 {
            under_way.push(async move {
                let began = Instant::now();
                let options = BasicPublishOptions::default();
                let confirm = channel
                    .basic_publish(
                        "".into(),
                        QUEUE.into(),
                        options,
                        tally.body(),
                        properties.clone(),
                    )
                    .await?
                    .await?;
                anyhow::ensure!(confirm.is_ack(), "a message was not confirmed");
                tally.sent(1, began).await;
                Ok(())
            });
        }
        let Some(sent) = under_way.next().await else { return Ok(()) };
        sent?;
    }
}

pub async fn receive(port: u16, name: usize, tally: &Tally) -> Result<()> {
    let (connection, channel) = connect(port).await?;
    let prefetch = u16::try_from(tally.window)?;
    channel.basic_qos(prefetch, BasicQosOptions::default()).await?;
    let tag = format!("worker-{name}");
    let (options, arguments) = (BasicConsumeOptions::default(), FieldTable::default());
    let mut deliveries =
        channel.basic_consume(QUEUE.into(), tag.into(), options, arguments).await?;
    loop {
        let delivery = tokio::select! {
            biased;
            () = tally.all_received() => break,
            delivery = deliveries.next() => delivery.context("no more deliveries")??,
        };
        tally.received([&delivery.data[..]])?;
        delivery.ack(BasicAckOptions::default()).await?;
        tally.completed(1);
    }
    // A channel delays acknowledgements while its queue is slow, and drops them when it is closed.
    tokio::spawn(async move {
        tokio::time::sleep(SETTLE_TIME).await;
        connection.close(200, "done".into()).await.ok();
    });
    Ok(())
}

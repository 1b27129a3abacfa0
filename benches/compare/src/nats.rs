//! NATS JetStream load: a work-queue stream, asynchronous publishing, one durable pull consumer
//! shared by all receivers, and acknowledged acknowledgements (`+ACK` as a request).

use std::fs;
use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use async_nats::jetstream::{self, consumer, stream};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;

use crate::load::Tally;
use crate::server::{Directory, Server, free_port};

const STREAM: &str = "compare";
const SUBJECT: &str = "compare.messages";
const CONSUMER: &str = "workers";

pub async fn start(directory: &Directory) -> Result<(Server, u16)> {
    let port = free_port()?;
    let store = directory.0.join("store");
    let config = directory.0.join("nats.conf");
    let text = format!(
        "listen: 127.0.0.1:{port}\njetstream {{ store_dir: {store:?}, max_mem: 4G, max_file: 20G }}\n"
    );
    fs::write(&config, text)?;
    let mut server =
        Server::start("nats", Command::new("nats-server").arg("-c").arg(config), directory)?;
    server.listens(port, directory).await?;
    Ok((server, port))
}

async fn connect(port: u16) -> Result<jetstream::Context> {
    let client = async_nats::connect(format!("nats://127.0.0.1:{port}")).await?;
    Ok(jetstream::new(client))
}

fn failed(error: impl std::fmt::Display) -> anyhow::Error {
    anyhow!("nats: {error}")
}

pub async fn prepare(port: u16, is_durable: bool) -> Result<()> {
    let context = connect(port).await?;
    context.delete_stream(STREAM).await.ok();
    let config = stream::Config {
        name: STREAM.to_owned(),
        subjects: vec![SUBJECT.to_owned()],
        retention: stream::RetentionPolicy::WorkQueue,
        storage: if is_durable { stream::StorageType::File } else { stream::StorageType::Memory },
        ..stream::Config::default()
    };
    let stream = context.create_stream(config).await.map_err(failed)?;
    let config = consumer::pull::Config {
        durable_name: Some(CONSUMER.to_owned()),
        ack_policy: consumer::AckPolicy::Explicit,
        max_ack_pending: 4_096,
        ..consumer::pull::Config::default()
    };
    stream.create_consumer(config).await.map_err(failed)?;
    Ok(())
}

pub async fn left(port: u16) -> Result<u64> {
    let context = connect(port).await?;
    let mut stream = context.get_stream(STREAM).await.map_err(failed)?;
    Ok(stream.info().await.map_err(failed)?.state.messages)
}

pub async fn send(port: u16, tally: &Tally) -> Result<()> {
    let context = &connect(port).await?;
    let body = &Bytes::copy_from_slice(tally.body());
    let mut under_way = FuturesUnordered::new();
    loop {
        while under_way.len() < tally.window && tally.take(1) == 1 {
            under_way.push(async move {
                let began = Instant::now();
                let published = context.publish(SUBJECT, body.clone()).await.map_err(failed)?;
                published.await.map_err(failed)?;
                tally.sent(1, began).await;
                Ok::<(), anyhow::Error>(())
            });
        }
        let Some(sent) = under_way.next().await else { return Ok(()) };
        sent?;
    }
}

pub async fn receive(port: u16, tally: &Tally) -> Result<()> {
    let context = connect(port).await?;
    let consumer: consumer::PullConsumer =
        context.get_consumer_from_stream(CONSUMER, STREAM).await.map_err(failed)?;
    let messages = consumer.stream().max_messages_per_batch(tally.window);
    let messages = messages.expires(Duration::from_secs(30)).messages();
    let mut messages = messages.await.map_err(failed)?;
    let mut under_way = FuturesUnordered::new();
    loop {
        tokio::select! {
            biased;
            Some(acknowledged) = under_way.next(), if !under_way.is_empty() => {
                let acknowledged: Result<()> = acknowledged;
                acknowledged?;
                tally.completed(1);
            }
            () = tally.all_received(), if under_way.is_empty() => return Ok(()),
            message = messages.next(), if under_way.len() < tally.window => {
                let message = message.ok_or_else(|| failed("no more messages"))?;
                let message = message.map_err(failed)?;
                tally.received([&message.payload[..]])?;
                under_way.push(async move { message.double_ack().await.map_err(failed) });
            }
        }
    }
}

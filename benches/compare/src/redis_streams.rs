//! Redis streams load with a consumer group: XADD, XREADGROUP of up to a window, XACK and XDEL, in
//! two styles.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail};
use futures_util::StreamExt as _;
use futures_util::future::try_join_all;
use futures_util::stream::FuturesUnordered;
use redis::aio::MultiplexedConnection;
use redis::{AsyncConnectionConfig, Value};

use crate::load::Tally;
use crate::server::{Directory, Server, free_port};

const STREAM: &str = "compare";
const GROUP: &str = "workers";
const BLOCK_MS: u32 = 500;

pub async fn start(directory: &Directory, is_durable: bool) -> Result<(Server, u16)> {
    let port = free_port()?;
    let mut command = Command::new("redis-server");
    command.args(["--bind", "127.0.0.1", "--port", &port.to_string(), "--save", ""]);
    command.arg("--dir").arg(&directory.0);
    command.args([
        "--appendonly",
        if is_durable { "yes" } else { "no" },
        "--appendfsync",
        "always",
    ]);
    let mut server = Server::start("redis", &mut command, directory)?;
    server.listens(port, directory).await?;
    Ok((server, port))
}

async fn connect(port: u16) -> Result<MultiplexedConnection> {
    let client = redis::Client::open(format!("redis://127.0.0.1:{port}/"))?;
    // A receive may wait for its whole time.
    let config = AsyncConnectionConfig::new().set_response_timeout(None);
    Ok(client.get_multiplexed_async_connection_with_config(&config).await?)
}

pub async fn prepare(port: u16) -> Result<()> {
    let mut connection = connect(port).await?;
    redis::cmd("FLUSHALL").exec_async(&mut connection).await?;
    let mut create = redis::cmd("XGROUP");
    create.arg(&["CREATE", STREAM, GROUP, "$", "MKSTREAM"]);
    Ok(create.exec_async(&mut connection).await?)
}

pub async fn left(port: u16) -> Result<u64> {
    let mut connection = connect(port).await?;
    Ok(redis::cmd("XLEN").arg(STREAM).query_async(&mut connection).await?)
}

/// Style of sending commands.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Style {
    /// Many commands per pipeline; one XACK and one XDEL for all messages of a receive.
    Pipelines,
    /// One command per message, many in flight on one connection, as in most programs. The client
    /// combines pending commands into one write.
    Single,
}

pub async fn send(port: u16, style: Style, tally: &Tally) -> Result<()> {
    let connection = &connect(port).await?;
    if style == Style::Single {
        return send_singly(connection, tally).await;
    }
    // Two halves of the window, so that the server always has one.
    let half = tally.window.div_ceil(2);
    let lanes = if tally.window > 1 { 2 } else { 1 };
    let lanes = (0..lanes).map(|_| async move {
        let mut connection = connection.clone();
        loop {
            let count = tally.take(half);
            if count == 0 {
                return Ok::<(), anyhow::Error>(());
            }
            let began = Instant::now();
            let mut pipeline = redis::pipe();
            for _ in 0..count {
                pipeline.cmd("XADD").arg(STREAM).arg("*").arg("b").arg(tally.body()).ignore();
            }
            pipeline.exec_async(&mut connection).await?;
            tally.sent(count, began).await;
        }
    });
    try_join_all(lanes).await.map(drop)
}

async fn send_singly(connection: &MultiplexedConnection, tally: &Tally) -> Result<()> {
    let mut under_way = FuturesUnordered::new();
    loop {
        while under_way.len() < tally.window && tally.take(1) == 1 {
            let mut connection = connection.clone();
            under_way.push(async move {
                let began = Instant::now();
                let mut add = redis::cmd("XADD");
                add.arg(STREAM).arg("*").arg("b").arg(tally.body());
                add.exec_async(&mut connection).await?;
                tally.sent(1, began).await;
                Ok::<(), anyhow::Error>(())
            });
        }
        let Some(sent) = under_way.next().await else { return Ok(()) };
        sent?;
    }
}

pub async fn receive(port: u16, name: usize, style: Style, tally: &Tally) -> Result<()> {
    let mut connection = connect(port).await?;
    let mut read = redis::cmd("XREADGROUP");
    read.arg("GROUP").arg(GROUP).arg(format!("worker-{name}"));
    read.arg("COUNT").arg(tally.window).arg("BLOCK").arg(BLOCK_MS);
    read.arg("STREAMS").arg(STREAM).arg(">");
    loop {
        let reply: Value = tokio::select! {
            biased;
            () = tally.all_received() => return Ok(()),
            reply = read.query_async(&mut connection) => reply?,
        };
        let entries = entries(&reply).context("reply of XREADGROUP")?;
        if entries.is_empty() {
            continue;
        }
        tally.received(entries.iter().map(|(_, body)| *body))?;
        let ids: Vec<&[u8]> = entries.iter().map(|(id, _)| *id).collect();
        let each = if style == Style::Single { 1 } else { ids.len() };
        let completed = ids.chunks(each).map(|ids| complete(connection.clone(), ids));
        try_join_all(completed).await?;
        tally.completed(entries.len());
    }
}

async fn complete(mut connection: MultiplexedConnection, ids: &[&[u8]]) -> Result<()> {
    let mut pipeline = redis::pipe();
    pipeline.cmd("XACK").arg(STREAM).arg(GROUP).arg(ids);
    pipeline.cmd("XDEL").arg(STREAM).arg(ids);
    let counts: (usize, usize) = pipeline.query_async(&mut connection).await?;
    if counts != (ids.len(), ids.len()) {
        bail!("{counts:?} of {} were acknowledged and deleted", ids.len());
    }
    Ok(())
}

/// Returns ids and bodies of `[[stream, [[id, [field, body]], ...]]]`; nil after a timeout.
fn entries(reply: &Value) -> Option<Vec<(&[u8], &[u8])>> {
    let Value::Array(streams) = reply else { return Some(Vec::new()) };
    let [Value::Array(stream)] = &streams[..] else { return None };
    let [_, Value::Array(entries)] = &stream[..] else { return None };
    entries.iter().map(read_entry).collect()
}

fn read_entry(entry: &Value) -> Option<(&[u8], &[u8])> {
    let Value::Array(entry) = entry else { return None };
    let [Value::BulkString(id), Value::Array(fields)] = &entry[..] else { return None };
    let [_, Value::BulkString(body)] = &fields[..] else { return None };
    Some((id, body))
}

//! Peeklock load with the program itself: `peeklock bench` starts its own broker. Over AMQP it uses
//! the same client as the other products, [`crate::amqp`].

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::amqp::Place;
use crate::load::{Figures, Load};
use crate::server::{Directory, Server, free_port};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// Path of the queue in the JSON API.
const QUEUE: &str = "/$api/v1/queues/compare";

/// Starts a broker with everything on one port.
pub async fn start(
    program: &Path,
    directory: &Directory,
    is_durable: bool,
) -> Result<(Server, u16)> {
    let port = free_port()?;
    let mut command = Command::new(program.canonicalize()?);
    command.args(["serve", "--quiet", "--gateway", &format!("127.0.0.1:{port}")]);
    if is_durable {
        command.arg("--data-dir").arg(directory.0.join("journal"));
    } else {
        command.arg("--ephemeral");
    }
    let mut server = Server::start("peeklock", &mut command, directory)?;
    server.listens(port, directory).await?;
    Ok((server, port))
}

/// Returns the address over AMQP 1.0.
pub const fn place(port: u16) -> Place {
    Place { port, address: "compare", password: None }
}

pub async fn prepare(port: u16) -> Result<()> {
    ask(port, "PUT").await.map(drop)
}

pub async fn left(port: u16) -> Result<u64> {
    let queue = ask(port, "GET").await?;
    let count = queue.pointer("/runtime/totalMessageCount").and_then(Value::as_u64);
    count.with_context(|| format!("no count in {queue}"))
}

async fn ask(port: u16, method: &str) -> Result<Value> {
    let mut socket = TcpStream::connect(("127.0.0.1", port)).await?;
    let request = format!(
        "{method} {QUEUE} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\
         Content-Type: application/json\r\nContent-Length: 2\r\n\r\n{{}}"
    );
    socket.write_all(request.as_bytes()).await?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer).await?;
    let (head, body) = answer.split_once("\r\n\r\n").context("no answer")?;
    ensure!(head.starts_with("HTTP/1.1 20"), "{method}: {answer}");
    Ok(serde_json::from_str(body)?)
}

/// A bench process that is interrupted on drop, so that it ends its broker.
struct Bench(Child);

impl Drop for Bench {
    fn drop(&mut self) {
        if let Ok(None) = self.0.try_wait() {
            Command::new("kill").args(["-INT", &self.0.id().to_string()]).status().ok();
            self.0.wait().ok();
        }
    }
}

pub async fn run(
    program: &Path,
    directory: &Directory,
    load: Load,
    messages: u64,
) -> Result<Figures> {
    let mut command = Command::new(program.canonicalize()?);
    command
        .args(["bench", load.name(), "--over", "websocket", "--output", "json"])
        .args(["--messages", &messages.to_string(), "--threads", "1", "--data-dir"])
        .arg(&directory.0)
        .stdout(Stdio::piped());
    if load == Load::Latency {
        command.arg("--floor");
    }
    let mut bench = Bench(command.spawn()?);
    let output = bench.0.stdout.take().context("output of peeklock")?;
    let text = tokio::task::spawn_blocking(move || std::io::read_to_string(output)).await??;
    let status = bench.0.wait()?;
    ensure!(status.success(), "peeklock bench {} ended with {status}", load.name());
    read(&serde_json::from_str(&text)?, messages).context("figures of peeklock bench")
}

fn read(figures: &Value, messages: u64) -> Option<Figures> {
    let number = |pointer: &str| figures.pointer(pointer).and_then(Value::as_f64);
    if figures.get("completed")?.as_u64()? != messages {
        return None;
    }
    Some(Figures {
        rate: number("/messages_per_second")?,
        server_cpu: number("/cpu_seconds_per_million")?,
        load_cpu: number("/load_cpu_seconds_per_million")?,
        send_p50: number("/send_latency/p50_us")?,
        send_p99: number("/send_latency/p99_us")?,
        floor_p50: number("/floor_sync_latency/p50_us"),
    })
}

//! Peeklock, by the program itself: `peeklock bench` starts a broker of its own.

use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use serde_json::Value;

use crate::load::{Figures, Load};
use crate::server::Directory;

/// A bench that is told to end if nobody waits for it any more, so that it ends its broker.
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

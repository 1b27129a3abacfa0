//! A broker in its own process: the current executable, on free loopback ports. `target.rs` starts
//! it; dropping it ends the broker.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, ChildStdout, Command, Stdio};
use std::time::Duration;

use super::BenchError;
use super::process::Process;

/// Time limit for its start.
const START_TIME_MAX: Duration = Duration::from_secs(60);

/// A running broker, which ends on drop.
pub struct Served {
    process: Child,
    /// Kept open, because the broker may write to it.
    _output: BufReader<ChildStdout>,
    /// Its addresses.
    pub urls: Urls,
}

/// The addresses of a broker.
pub struct Urls {
    /// For WebSocket.
    pub websocket: String,
    /// For HTTP.
    pub http: String,
    /// For AMQP.
    pub amqp: String,
}

/// Settings of the load that differ from the defaults.
pub struct ServedSettings {
    /// Whether messages are kept in memory only.
    pub ephemeral: bool,
    /// Maximum connections by transport: WebSocket, HTTP, AMQP. Memory for all is reserved at the
    /// start.
    pub connections: [u64; 3],
    /// Maximum number of queues.
    pub queues: u64,
    /// Whether it keeps journeys.
    pub has_journeys: bool,
}

impl Served {
    /// Starts a broker that writes only into this directory, regardless of environment variables.
    pub async fn start(path: &Path, settings: &ServedSettings) -> Result<Self, BenchError> {
        let log_path = path.join("broker.log");
        let mut command = Command::new(std::env::current_exe()?);
        command
            .args([
                "serve",
                "--http",
                "127.0.0.1:0",
                "--ws",
                "127.0.0.1:0",
                "--amqp",
                "127.0.0.1:0",
                "--quiet",
            ])
            .arg("--data-dir")
            .arg(path.join("journal"))
            .current_dir(path)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(&log_path)?);
        if settings.ephemeral {
            command.arg("--ephemeral");
        }
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().to_uppercase().starts_with("PEEKLOCK__") {
                command.env_remove(name);
            }
        }
        for (transport, count) in ["WEBSOCKET", "HTTP", "AMQP"].iter().zip(settings.connections) {
            let name = format!("PEEKLOCK__{transport}__CONNECTION_COUNT_MAX");
            command.env(name, count.to_string());
        }
        let all = settings.connections.iter().sum::<u64>();
        command
            .env("PEEKLOCK__LIMITS__CONNECTION_COUNT_MAX", all.to_string())
            .env("PEEKLOCK__LIMITS__ENTITY_COUNT_MAX", settings.queues.to_string())
            .env("PEEKLOCK__CONSOLE__JOURNEYS", settings.has_journeys.to_string());
        // This process handles an interrupt at the terminal and ends the broker.
        #[cfg(unix)]
        std::os::unix::process::CommandExt::process_group(&mut command, 0);
        let mut starting = Starting(Some(command.spawn()?));
        let output = starting.output()?;
        let reading = tokio::task::spawn_blocking(move || urls(output));
        let read = tokio::time::timeout(START_TIME_MAX, reading).await;
        match (read, starting.0.take()) {
            (Ok(Ok(Some((output, urls)))), Some(process)) => {
                Ok(Self { process, _output: output, urls })
            }
            (_, process) => {
                drop(Starting(process));
                let log = std::fs::read_to_string(&log_path).unwrap_or_default();
                let last = log.lines().next_back().unwrap_or("no reason given").to_owned();
                Err(BenchError::Served(last))
            }
        }
    }

    /// The process.
    pub fn process(&self) -> Process {
        Process::new(self.process.id())
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        end(&mut self.process);
    }
}

/// A process that is not ready yet; killed on drop.
struct Starting(Option<Child>);

impl Starting {
    fn output(&mut self) -> Result<ChildStdout, BenchError> {
        let output = self.0.as_mut().and_then(|process| process.stdout.take());
        output.ok_or_else(|| BenchError::Served("the broker has no standard output".to_owned()))
    }
}

impl Drop for Starting {
    fn drop(&mut self) {
        if let Some(process) = &mut self.0 {
            end(process);
        }
    }
}

/// Kills the process at once, because its data is not needed.
fn end(process: &mut Child) {
    if let Err(error) = process.kill().and_then(|()| process.wait()) {
        tracing::warn!(pid = process.id(), %error, "could not stop the broker of the load");
    }
}

/// Reads the addresses from the banner; none if the broker ends earlier.
fn urls(output: ChildStdout) -> Option<(BufReader<ChildStdout>, Urls)> {
    let mut output = BufReader::new(output);
    let (mut websocket, mut http, mut amqp) = (None, None, None);
    let mut line = String::new();
    while websocket.is_none() || http.is_none() || amqp.is_none() {
        line.clear();
        if output.read_line(&mut line).ok()? == 0 {
            return None;
        }
        match line.split_whitespace().collect::<Vec<_>>()[..] {
            ["websocket", url] => websocket = Some(url.to_owned()),
            ["http", url] => http = Some(url.to_owned()),
            ["amqp", url] => amqp = Some(url.to_owned()),
            _ => {}
        }
    }
    Some((output, Urls { websocket: websocket?, http: http?, amqp: amqp? }))
}

//! beanstalkd load over its own protocol. A sender has a window of `put`s in flight. A receiver has
//! one job at a time, and deletes it in the same write that reserves the next: a connection that
//! waits for a job handles no other command, and a reserve without waiting takes milliseconds if
//! there is no job.

use std::process::Command;
use std::time::Instant;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::load::Tally;
use crate::server::{Directory, Server, free_port};

pub async fn start(directory: &Directory, is_durable: bool) -> Result<(Server, u16)> {
    let port = free_port()?;
    let mut command = Command::new("beanstalkd");
    command.args(["-l", "127.0.0.1", "-p", &port.to_string()]);
    if is_durable {
        // Every write is synced.
        command.arg("-b").arg(&directory.0).arg("-f0");
    }
    let mut server = Server::start("beanstalkd", &mut command, directory)?;
    server.listens(port, directory).await?;
    Ok((server, port))
}

struct Connection {
    stream: BufReader<TcpStream>,
    line: String,
}

impl Connection {
    async fn open(port: u16) -> Result<Self> {
        let stream = TcpStream::connect(("127.0.0.1", port)).await?;
        stream.set_nodelay(true)?;
        Ok(Self { stream: BufReader::with_capacity(1 << 20, stream), line: String::new() })
    }

    async fn write(&mut self, bytes: &[u8]) -> Result<()> {
        Ok(self.stream.get_mut().write_all(bytes).await?)
    }

    async fn line(&mut self) -> Result<&str> {
        self.line.clear();
        let count = self.stream.read_line(&mut self.line).await?;
        ensure!(count > 0, "beanstalkd closed the connection");
        Ok(self.line.trim_end())
    }

    /// Reads the answer to a reserve.
    async fn job(&mut self) -> Result<(u64, Vec<u8>)> {
        let line = self.line().await?;
        let mut words = line.strip_prefix("RESERVED ").context("answer to reserve")?.split(' ');
        let id = words.next().context("id")?.parse()?;
        let mut body = vec![0; words.next().context("bytes")?.parse::<usize>()? + 2];
        self.stream.read_exact(&mut body).await?;
        body.truncate(body.len() - 2);
        Ok((id, body))
    }
}

pub async fn left(port: u16) -> Result<u64> {
    let mut connection = Connection::open(port).await?;
    connection.write(b"stats\r\n").await?;
    let line = connection.line().await?;
    let bytes: usize = line.strip_prefix("OK ").context("answer to stats")?.parse()?;
    let mut text = vec![0; bytes + 2];
    connection.stream.read_exact(&mut text).await?;
    let text = String::from_utf8_lossy(&text);
    let of = |name: &str| {
        text.lines().find_map(|line| line.strip_prefix(name)?.trim().parse::<u64>().ok())
    };
    let (ready, reserved) = (of("current-jobs-ready:"), of("current-jobs-reserved:"));
    Ok(ready.context("ready")? + reserved.context("reserved")?)
}

pub async fn send(port: u16, tally: &Tally) -> Result<()> {
    let stream = TcpStream::connect(("127.0.0.1", port)).await?;
    stream.set_nodelay(true)?;
    let (reader, mut writer) = stream.into_split();
    let mut reader = BufReader::new(reader);
    let mut put = format!("put 0 0 300 {}\r\n", tally.body().len()).into_bytes();
    put.extend_from_slice(tally.body());
    put.extend_from_slice(b"\r\n");
    let (mut begun, mut line) = (std::collections::VecDeque::new(), String::new());
    loop {
        // Fill the window in one write.
        let count = tally.take(tally.window - begun.len());
        if count > 0 {
            writer.write_all(&put.repeat(count)).await?;
            begun.extend(std::iter::repeat_n(Instant::now(), count));
        }
        if begun.is_empty() {
            return Ok(());
        }
        loop {
            line.clear();
            ensure!(reader.read_line(&mut line).await? > 0, "beanstalkd closed the connection");
            if !line.starts_with("INSERTED ") {
                bail!("a put was answered with {line}");
            }
            if let Some(began) = begun.pop_front() {
                tally.sent(1, began).await;
            }
            // Read answers that have already arrived before filling the window again.
            if !reader.buffer().contains(&b'\n') {
                break;
            }
        }
    }
}

pub async fn receive(port: u16, tally: &Tally) -> Result<()> {
    let mut connection = Connection::open(port).await?;
    connection.write(b"reserve\r\n").await?;
    loop {
        let (id, body) = tokio::select! {
            biased;
            () = tally.all_received() => return Ok(()),
            job = connection.job() => job?,
        };
        tally.received([&body[..]])?;
        connection.write(format!("delete {id}\r\nreserve\r\n").as_bytes()).await?;
        let line = connection.line().await?;
        ensure!(line == "DELETED", "a delete was answered with {line}");
        tally.completed(1);
    }
}

//! A broker process of the built program, and the requests of scenarios to it.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use azservicebus::authorization::AzureNamedKeyCredential;
use azservicebus::core::BasicRetryPolicy;
use azservicebus::{
    ServiceBusClient, ServiceBusClientOptions, ServiceBusReceiver, ServiceBusRetryOptions,
    ServiceBusSender,
};

pub type Client = ServiceBusClient<BasicRetryPolicy>;

const ROOT: &str = "RootManageSharedAccessKey";

pub struct Broker {
    process: Child,
    directory: PathBuf,
    http: String,
    amqp: String,
    key: String,
}

/// The environment of a scenario: its own entities and connections on a shared broker.
pub struct World<'a> {
    broker: &'a Broker,
    pub name: &'static str,
}

impl Broker {
    pub fn start(program: &str) -> Result<Self> {
        let directory = std::env::temp_dir().join(format!("peeklock-rust-{}", std::process::id()));
        std::fs::create_dir_all(&directory)?;
        let mut command = Command::new(program);
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().to_uppercase().starts_with("PEEKLOCK") {
                command.env_remove(name);
            }
        }
        let mut process = command
            .args([
                "serve",
                "--http",
                "127.0.0.1:0",
                "--ws",
                "127.0.0.1:0",
                "--amqp",
                "127.0.0.1:0",
            ])
            .args(["--data-dir", "data"])
            .env("PEEKLOCK__LIMITS__LOCK_DURATION_MIN", "1s")
            .current_dir(&directory)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(std::fs::File::create(directory.join("log"))?)
            .spawn()?;
        let output = process.stdout.take().context("its output")?;
        let mut this = Self {
            process,
            directory,
            http: String::new(),
            amqp: String::new(),
            key: String::new(),
        };
        let mut lines = BufReader::new(output).lines();
        while this.http.is_empty() || this.amqp.is_empty() {
            let line = lines.next().context("the broker did not start")??;
            let (name, url) = line.trim().split_once(' ').unwrap_or_default();
            let place = url.trim().split_once("://").map(|(_, place)| place.to_owned());
            match (name, place) {
                ("http", Some(place)) => this.http = place,
                ("amqp", Some(place)) => this.amqp = place,
                _ => {}
            }
        }
        // The rest of the output is discarded.
        std::thread::spawn(move || lines.for_each(drop));
        let first = std::fs::read_to_string(this.directory.join("data/root.connection-string"))?;
        let key = first.split("SharedAccessKey=").nth(1).context("a key")?;
        this.key = key.split(';').next().unwrap_or_default().trim().to_owned();
        Ok(this)
    }

    pub fn world(&self, name: &'static str) -> World<'_> {
        World { broker: self, name }
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        self.process.kill().ok();
        self.process.wait().ok();
        std::fs::remove_dir_all(&self.directory).ok();
    }
}

impl World<'_> {
    /// Creates the scenario's queue with these properties in JSON.
    pub fn queue(&self, properties: &str) -> Result<&'static str> {
        self.ask("PUT", &format!("queues/{}", self.name), properties)?;
        Ok(self.name)
    }

    /// Creates the scenario's topic with a subscription `s`.
    pub fn topic(&self) -> Result<&'static str> {
        self.ask("PUT", &format!("topics/{}", self.name), "{}")?;
        self.ask("PUT", &format!("topics/{}/subscriptions/s", self.name), "{}")?;
        Ok(self.name)
    }

    fn ask(&self, method: &str, path: &str, body: &str) -> Result<()> {
        let mut socket = TcpStream::connect(&self.broker.http)?;
        let (host, length) = (&self.broker.http, body.len());
        write!(
            socket,
            "{method} /$api/v1/{path} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        )?;
        let mut answer = String::new();
        socket.read_to_string(&mut answer)?;
        ensure!(answer.starts_with("HTTP/1.1 20"), "{method} {path}: {answer}");
        Ok(())
    }

    pub async fn client(&self) -> Result<Client> {
        self.client_with(&self.broker.key).await
    }

    pub async fn client_with(&self, key: &str) -> Result<Client> {
        let credential = AzureNamedKeyCredential::new(ROOT, key);
        let retry_options = ServiceBusRetryOptions { max_retries: 0, ..Default::default() };
        let options = ServiceBusClientOptions { retry_options, ..Default::default() };
        let client = ServiceBusClient::unsecured();
        Ok(client.new_from_named_key_credential(&self.broker.amqp, credential, options).await?)
    }

    /// Creates a queue. Returns a client with a sender and a receiver.
    pub async fn open(
        &self,
        properties: &str,
    ) -> Result<(Client, ServiceBusSender, ServiceBusReceiver)> {
        let queue = self.queue(properties)?;
        let mut client = self.client().await?;
        let sender = client.create_sender(queue, Default::default()).await?;
        let receiver = client.create_receiver_for_queue(queue, Default::default()).await?;
        Ok((client, sender, receiver))
    }
}

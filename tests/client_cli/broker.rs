//! A broker process of the built program, in memory, on free ports. It ends with the test.

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpStream;
use std::process::{Child, Command, Stdio};

use super::program::{Program, cleared};

pub struct Broker {
    child: Child,
    pub url: String,
    /// Address of its HTTP listener.
    http: String,
}

impl Broker {
    pub fn start() -> Self {
        Self::start_at("127.0.0.1:0")
    }

    pub fn start_at(address: &str) -> Self {
        Self::start_with(address, &[])
    }

    /// Starts a broker with settings in environment variables.
    pub fn start_with(address: &str, settings: &[(&str, &str)]) -> Self {
        Self::serve(&["--ephemeral", "--ws", address, "--amqp", "127.0.0.1:0"], settings)
    }

    /// Starts a broker that stores its data in a directory.
    pub fn start_in(directory: &str, settings: &[(&str, &str)]) -> Self {
        Self::serve(
            &["--data-dir", directory, "--ws", "127.0.0.1:0", "--amqp", "127.0.0.1:0"],
            settings,
        )
    }

    fn serve(flags: &[&str], settings: &[(&str, &str)]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_peeklock"));
        cleared(&mut command);
        let mut child = command
            .args(["serve", "--http", "127.0.0.1:0"])
            .args(flags)
            .envs(settings.iter().copied())
            .current_dir(env!("CARGO_TARGET_TMPDIR"))
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let banner = BufReader::new(child.stdout.take().unwrap());
        let mut lines = banner.lines().map_while(Result::ok);
        let mut address = |name: &str| {
            let address =
                lines.find_map(|line| Some(line.trim().strip_prefix(name)?.trim().to_owned()));
            address.expect("the banner names the address")
        };
        let http = address("http ").trim_start_matches("http://").to_owned();
        let url = address("websocket ");
        Self { child, url, http }
    }

    /// Starts a broker with a queue `orders`.
    pub fn with_queue(properties: &[&str]) -> Self {
        let broker = Self::start();
        let mut arguments = vec!["queue", "create", "orders"];
        arguments.extend(properties);
        broker.ok(&arguments);
        broker
    }

    pub fn address(&self) -> &str {
        self.url.split_once("://").unwrap().1
    }

    /// Reads the metrics page.
    pub fn metrics(&self) -> String {
        let mut stream = TcpStream::connect(&self.http).unwrap();
        let host = &self.http;
        write!(stream, "GET /metrics HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n")
            .unwrap();
        let mut page = String::new();
        stream.read_to_string(&mut page).unwrap();
        page
    }

    /// Runs the program against this broker.
    pub fn program(&self, arguments: &[&str]) -> Program {
        Program::new(arguments).variable("PEEKLOCK_URL", &self.url)
    }

    /// Runs a command that must succeed. Returns standard output.
    pub fn ok(&self, arguments: &[&str]) -> String {
        let ended = self.program(arguments).run();
        assert_eq!(ended.code, 0, "{arguments:?}\n{}\n{}", ended.out, ended.log);
        ended.out
    }

    /// Runs a command that must end with this code. Returns standard output and standard error.
    pub fn ends(&self, code: i32, arguments: &[&str]) -> (String, String) {
        let ended = self.program(arguments).run();
        assert_eq!(ended.code, code, "{arguments:?}\n{}\n{}", ended.out, ended.log);
        (ended.out, ended.log)
    }

    /// Sends one message for each body.
    pub fn send(&self, queue: &str, bodies: &[&str]) {
        let ended =
            self.program(&["send", queue, "--lines"]).input(bodies.join("\n").as_bytes()).run();
        assert_eq!(ended.code, 0, "{}", ended.log);
    }

    /// All messages of a queue, as JSON.
    pub fn peek(&self, queue: &str) -> Vec<serde_json::Value> {
        let ended = self.program(&["peek", queue, "--all", "-o", "ndjson"]).run();
        assert!([0, 6].contains(&ended.code), "{}", ended.log);
        ended.out.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The bodies in a queue, with their failed deliveries.
    pub fn bodies(&self, queue: &str) -> Vec<(String, u64)> {
        self.peek(queue)
            .iter()
            .map(|message| {
                let body = message["body"].as_str().unwrap_or("(bytes)").to_owned();
                (body, message["deliveryCount"].as_u64().unwrap())
            })
            .collect()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Broker {
    fn drop(&mut self) {
        // The process may have ended already.
        let _ended = self.child.kill();
        let _status = self.child.wait();
    }
}

/// Expected body and number of failed deliveries.
pub fn body(text: &str, count: u64) -> (String, u64) {
    (text.to_owned(), count)
}

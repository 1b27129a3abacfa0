//! A program that is `peeklock`, and takes each line that comes to a port of its own as a message, and prints messages of
//! queues that forward to `print://`. Prints the banner, and what is sent: lines, to the port that the banner names.
//!
//! `cargo run --example host -- serve --ephemeral`
#![expect(clippy::print_stdout, reason = "an example prints its result")]

use peeklock::{contract::Verdict, message::Message};
use peeklock_server::{Connection, Host};
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};

fn main() -> std::process::ExitCode {
    let serve_lines = |Connection { stream, client, .. }| async move {
        let mut lines = BufReader::new(stream).lines();
        while let Some(line) = lines.next_line().await? {
            let number = client.sender("lines")?.send(Message::new(line)).await?;
            lines.get_mut().write_all(format!("{number}\n").as_bytes()).await?;
        }
        Ok(())
    };
    Host::new()
        .listen_by("line", ([127, 0, 0, 1], 0).into(), serve_lines)
        .forward_by("print", |destination, outgoing| {
            let body = outgoing.message().map(|message| message.body).unwrap_or_default();
            println!("{}: {}", &destination[8..], String::from_utf8_lossy(body.as_bytes()));
            Verdict::Delivered
        })
        .run()
}

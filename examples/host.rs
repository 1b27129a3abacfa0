//! A program that extends `peeklock`: each line sent to an additional port becomes a message, and
//! messages of queues that forward to `print://` are printed. Prints the banner with the port, and
//! the messages.
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

//! The deadline pattern (EXP-48): jobs carry a time to live. A job that is not handled in time is
//! dead-lettered and sent to another queue for slower processing. Prints the jobs with their
//! workers.
//!
//! `cargo run --example deadline`

#![expect(clippy::print_stdout, reason = "an example prints its result")]

use std::sync::Arc;

use peeklock::clock::ManualClock;
use peeklock::description::QueueProperties;
use peeklock::message::Message;
use peeklock::path::dead_letter_path;
use peeklock::time::{TimeSpan, Timestamp};
use peeklock::{Broker, Client};

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    // A manual clock, so that the program need not wait for the deadline.
    let clock = Arc::new(ManualClock::at(Timestamp::from_unix_ms(1_800_000_000_000)));
    let broker = Broker::builder().clock(Arc::clone(&clock) as _).start().await?;
    let client = Client::new(&broker);
    let keep_expired = QueueProperties::new().with_dead_lettering_on_expiration(true);
    client.admin().create_queue_with("jobs", keep_expired).await?;
    client.admin().create_queue("replies").await?;
    client.admin().create_queue("slow-jobs").await?;

    let jobs = client.sender("jobs")?;
    for name in ["thumbnail", "invoice", "report"] {
        let job = Message::new(name).with_time_to_live(TimeSpan::from_seconds(10));
        jobs.send(job.with_message_id(name).with_reply_to("replies")).await?;
    }

    // The worker handles one job before the deadline passes.
    let worker = client.receiver("jobs")?;
    if let Some(job) = worker.receive(TimeSpan::ZERO).await? {
        let reply = Message::new("done").with_correlation_id(text(job.body()));
        client.sender("replies")?.send(reply).await?;
        worker.complete(&job).await?;
    }
    clock.advance(TimeSpan::from_seconds(11));
    // The next receive finds no job in time, and moves the expired ones (EXP-35).
    assert!(worker.receive(TimeSpan::ZERO).await?.is_none());

    let dead = client.receiver(&dead_letter_path("jobs"))?;
    let slow = client.sender("slow-jobs")?;
    for late in dead.receive_many(10, TimeSpan::ZERO).await? {
        println!("{} was late: {}", text(late.body()), late.dead_letter_reason().unwrap_or("-"));
        let mut again = late.message().clone();
        again.time_to_live = None;
        slow.send(again).await?;
        dead.complete(&late).await?;
    }
    let replies = client.receiver("replies")?;
    for reply in replies.receive_many(10, TimeSpan::ZERO).await? {
        let of = reply.message().correlation_id.as_ref().map(ToString::to_string);
        println!("{} was done in time", of.unwrap_or_default());
        replies.complete(&reply).await?;
    }
    let later = client.admin().queue("slow-jobs").await?.counts.active;
    println!("{later} jobs wait for slower processing");
    assert_eq!(later, 2);
    broker.stop(std::time::Duration::ZERO).await?;
    Ok(())
}

fn text(body: &[u8]) -> String {
    String::from_utf8_lossy(body).into_owned()
}

//! One topic with its subscriptions, compared with a queue in the same run (W5 and W2).
//!
//! A message of the topic is delivered to each subscription. The bytes that the broker writes for
//! it and its completions are reported per published message, because the content is stored once.

use std::time::Duration;

use indicatif::ProgressBar;

use super::BenchError;
use super::messages::{Crowd, Participants, Phase};
use super::plan::{Over, Plan};
use super::process::Process;
use super::report::{self, Report};
use super::target::Target;

/// Maximum number of warm-up messages; otherwise a tenth of the messages.
const WARM_MAX: u64 = 5_000;

/// Sends to a queue, then to a topic, and receives everything from all subscriptions.
pub async fn run(
    plan: &Plan,
    target: &Target,
    bar: &ProgressBar,
    report: &mut Report,
) -> Result<(), BenchError> {
    // Takes about as long as the load itself.
    let to_queue = plan.messages.saturating_mul(plan.subscriptions as u64 / 2).max(plan.messages);
    let crowd = Crowd::gather(plan, target).await?;
    crowd.phase(bar, Participants::Both, warm(to_queue)).await?;
    let queue = crowd.phase(bar, Participants::Both, to_queue).await?;
    crowd.disperse().await?;

    let crowd = Crowd::gather_at_topic(plan, target).await?;
    crowd.phase(bar, Participants::Both, warm(plan.messages)).await?;
    // Linux counts socket output as file output if one call writes several pieces, as AMQP does.
    let process = target.process().filter(|_| plan.over != Over::Amqp);
    let written = || process.and_then(Process::written_bytes);
    let before = written();
    let topic = crowd.phase(bar, Participants::Both, plan.messages).await?;
    let bytes = written().zip(before).map(|(now, before)| now.saturating_sub(before));
    let deliveries = crowd.deliveries(plan.messages);
    crowd.disperse().await?;
    report_outcome(plan, target, report, &Outcome { queue, to_queue, topic, deliveries, bytes });
    Ok(())
}

fn warm(messages: u64) -> u64 {
    (messages / 10).clamp(1, WARM_MAX)
}

struct Outcome {
    queue: Phase,
    to_queue: u64,
    topic: Phase,
    deliveries: u64,
    /// Bytes that the broker wrote to files for the messages of the topic.
    bytes: Option<u64>,
}

fn report_outcome(plan: &Plan, target: &Target, report: &mut Report, outcome: &Outcome) {
    let Outcome { queue, to_queue, topic, deliveries, bytes } = outcome;
    report.count("subscriptions", "subscriptions", plan.subscriptions as u64);
    report.count("sent", "sent with acknowledgement", topic.sent);
    report.count("received", "received under lock", topic.received);
    report.count("completed", "completed with acknowledgement", topic.received);
    report.count("redelivered", "delivered again", topic.redelivered);
    report.seconds("elapsed_seconds", "took", topic.elapsed);
    report.rate("messages_per_second", "messages published", plan.messages, topic.elapsed);
    report.rate("deliveries_per_second", "deliveries", *deliveries, topic.elapsed);
    report.rate("queue_messages_per_second", "messages of a queue (W2)", *to_queue, queue.elapsed);
    let label = "deliveries per message of a queue";
    report.ratio("deliveries_to_queue", label, rates(*deliveries, topic.elapsed, *to_queue, queue));
    if let Some(bytes) = bytes {
        let each = bytes.checked_div(plan.messages).unwrap_or_default();
        report.bytes("written_bytes_per_message", "written for each published", each);
    }
    report.latency("send_latency", "send to acknowledgement", topic.send.summary());
    report.latency("end_to_end_latency", "send to delivery", topic.end_to_end.summary());
    topic.report_cpu_to(plan, target, report);
    let resident = target.process().and_then(Process::resident_bytes_max);
    report.bytes_if_known("resident_bytes_max", "peak resident memory", resident);
}

/// The delivery rate of the topic relative to the queue.
fn rates(deliveries: u64, took: Duration, to_queue: u64, queue: &Phase) -> f64 {
    let of_queue = report::rate(to_queue, queue.elapsed);
    if of_queue > 0.0 { report::rate(deliveries, took) / of_queue } else { 0.0 }
}

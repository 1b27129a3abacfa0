//! A backlog (W6): all messages are sent, and then all are received and completed. Messages that
//! the cache no longer holds are read from disk.
//!
//! In process, each half runs in its own process, so that the time to open the store and the memory
//! of each half are measured separately.

pub mod halves;

use indicatif::ProgressBar;

use super::BenchError;
use super::messages::{Crowd, Participants};
use super::plan::Plan;
use super::process::Process;
use super::report::Report;
use super::target::Target;

/// Sends everything, then drains it.
pub async fn run(
    plan: &Plan,
    target: &Target,
    bar: &ProgressBar,
    report: &mut Report,
) -> Result<(), BenchError> {
    let resident = || target.process().and_then(Process::resident_bytes_max);
    let crowd = Crowd::gather(plan, target).await?;
    bar.set_message("sent");
    let fill = crowd.phase(bar, Participants::Senders, plan.messages).await?;
    let filled = resident();
    bar.set_message("drained");
    let drain = crowd.phase(bar, Participants::Receivers, plan.messages).await?;
    crowd.disperse().await?;

    report.count("sent", "sent with acknowledgement", fill.sent);
    report.count("received", "received under lock", drain.received);
    report.count("completed", "completed with acknowledgement", drain.received);
    report.count("redelivered", "delivered again", drain.redelivered);
    let sent = report.rate("sent_per_second", "sent", plan.messages, fill.elapsed);
    let label = "received and completed";
    let drained = report.rate("drained_per_second", label, plan.messages, drain.elapsed);
    report.ratio("drained_to_sent", "drained / sent", drained / sent);
    report.latency("send_latency", "send to acknowledgement", fill.send.summary());
    report.text("cpu_of", "CPU and memory of", target.measured_process().to_owned());
    let label = "CPU, million sent";
    report.cpu_per_million("cpu_seconds_per_million_sent", label, plan.messages, fill.cpu);
    let label = "CPU, million drained";
    report.cpu_per_million("cpu_seconds_per_million_drained", label, plan.messages, drain.cpu);
    report.bytes_if_known("resident_bytes_max_sending", "peak resident memory, sending", filled);
    report.bytes_if_known("resident_bytes_max", "peak resident memory", resident());
    Ok(())
}

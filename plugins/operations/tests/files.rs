//! Files of jobs that another program or a fault has changed.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use peeklock_core::command::Deed;
use peeklock_core::condition::Condition;
use peeklock_core::description::QueueProperties;
use peeklock_core::ids::JobId;
use peeklock_core::inspect::{JobControl, JobDraft, JobState};
use peeklock_core::store::MemoryStore;
use peeklock_core::time::Timestamp;
use peeklock_operations::Operations;
use peeklock_store_testing::SimulatedDisk;
use world::{World, draft, matching};

type Files = BTreeMap<String, Vec<u8>>;

async fn start(store: &Arc<MemoryStore>, files: &Files) -> (World, SimulatedDisk) {
    let disk = SimulatedDisk::holding(files, 1);
    let jobs = Arc::new(Operations::on(Arc::new(disk.clone())).unwrap());
    let now = Timestamp::parse("2026-05-01T12:00:00Z").unwrap();
    (World::start_on(store.clone(), now, |builder| builder.jobs(jobs)).await, disk)
}

/// Files after a job has tried a part of its messages and is paused.
async fn paused(store: &Arc<MemoryStore>) -> (JobId, Files) {
    let (world, disk) = start(store, &Files::new()).await;
    world.broker.create_queue("q", QueueProperties::new()).await.unwrap();
    world.send("q", 6).await;
    let part = JobDraft { rate: 4, trial: Some(2), ..draft(matching(""), Deed::Delete) };
    let job = world.create("q", part).await;
    let job = world.reaches(job.id, JobState::Ready).await;
    world.run(&job).await;
    world.reaches(job.id, JobState::Paused).await;
    world.stop().await;
    (job.id, disk.files())
}

fn store() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(1, u64::MAX))
}

fn live(job: JobId) -> String {
    format!("{:032x}.job", job.0)
}

/// CON-13, CON-19: a job whose file contradicts itself, or has a line that cannot be read, has
/// failed; its file stays. It is not resumed without the lines after such a line.
#[tokio::test]
async fn a_job_fails_whose_file_is_damaged() {
    let memory = store();
    let (job, files) = paused(&memory).await;
    let text = String::from_utf8(files[&live(job)].clone()).unwrap();
    let first = text.lines().next().unwrap();
    let step = |number: u64, tried: u64| {
        format!(
            "{{\"step\":{{\"number\":{number},\"tried\":{tried},\"done\":0,\"failures\":[]}}}}\n"
        )
    };
    let ended = "{\"ended\":{\"at\":1,\"state\":\"cancelled\",\"problem\":null}}\n";
    for (damaged, problem) in [
        (format!("{text}not a line\n{ended}"), "cannot be read"),
        (format!("{text}{{\"unknown\":1}}\n"), "cannot be read"),
        (text.replacen("\"sequences\":[1,", "\"sequences\":[2,", 1), "digest"),
        (text.replacen("\"delete\"", "\"undefer\"", 1), "digest"),
        (format!("{text}{first}\n"), "contradicts"),
        (format!("{text}{}", step(2, 1)), "contradicts"),
        (format!("{text}{}", step(4, 1)), "contradicts"),
        (format!("{text}{}", step(3, 5)), "contradicts"),
        (format!("{text}{}", step(3, u64::MAX)), "contradicts"),
        (format!("{text}{}", step(u64::MAX, 1)), "contradicts"),
    ] {
        let files = Files::from([(live(job), damaged.into_bytes())]);
        let (world, disk) = start(&memory, &files).await;
        let facts = world.job(job).await;
        assert_eq!(facts.state, JobState::Failed, "{problem}");
        assert!(facts.problem.as_deref().unwrap().contains(problem), "{:?}", facts.problem);
        let refused = world.refused(job, JobControl::Resume).await;
        assert_eq!(refused, Condition::InvalidOperation);
        assert_eq!(world.numbers("q").await, [3, 4, 5, 6]);
        world.stop().await;
        assert_eq!(disk.files(), files);
    }
}

/// CON-19: only the rest of a torn write is cut off.
#[tokio::test]
async fn a_torn_line_is_cut_off() {
    let memory = store();
    let (job, files) = paused(&memory).await;
    for torn in [&b"{\"ended\""[..], b"\0\0\0\0\"}}\n", b"\0"] {
        let torn = [&files[&live(job)][..], torn].concat();
        let mut torn_files = files.clone();
        torn_files.insert(live(job), torn);
        let (world, disk) = start(&memory, &torn_files).await;
        assert_eq!(world.job(job).await.state, JobState::Paused);
        world.stop().await;
        assert_eq!(disk.files(), files);
    }
}

/// Files with other names or without a readable first line do not stop the broker, and stay. A
/// file without a whole line is of a job whose creation was not reported.
#[tokio::test]
async fn foreign_files_are_left_alone() {
    let memory = store();
    let (job, files) = paused(&memory).await;
    let whole = files[&live(job)].clone();
    let other = |number: u128, end: &str| format!("{number:032x}{end}");
    let messages = format!("{:032x}.undo", job.0);
    let kept = Files::from([
        (live(job), whole.clone()),
        (messages.clone(), files[&messages].clone()),
        ("notes.job".to_owned(), b"x".to_vec()),
        ("README".to_owned(), b"x".to_vec()),
        (format!("{}.job", "A".repeat(32)), whole.clone()),
        (other(1, ".job"), whole.clone()),
        (other(2, ".job"), b"not a job\n".to_vec()),
        (other(3, ".job"), vec![b'\n'; (16 << 20) + 1]),
        (other(4, ".ended"), whole.clone()),
        (format!("{:032x}.ended", job.0), b"torn".to_vec()),
    ]);
    let mut files = kept.clone();
    files.insert(other(5, ".job"), b"{\"made\"".to_vec());
    let (world, disk) = start(&memory, &files).await;
    assert_eq!(world.job(job).await.state, JobState::Paused);
    for id in 1..=5 {
        assert_eq!(world.refused(JobId(id), JobControl::Pause).await, Condition::EntityNotFound);
    }
    assert_eq!(disk.files(), kept);
    world.control(job, JobControl::Resume).await;
    world.reaches(job, JobState::Done).await;
    world.stop().await;
}

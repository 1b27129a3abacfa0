//! Jobs whose broker ends at every call of their disk (CON-15, CON-19, CON-80).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod world;

use std::sync::Arc;

use peeklock_core::command::{
    Act, BodyEdit, Command, Deed, Edit, JobStep, NewInstant, OperatorCommand,
};
use peeklock_core::description::QueueProperties;
use peeklock_core::ids::{JobId, SequenceNumber};
use peeklock_core::inspect::{JobControl, JobDraft, JobState};
use peeklock_core::management::Management;
use peeklock_core::message::{Message, Overlay};
use peeklock_core::store::MemoryStore;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_operations::Operations;
use peeklock_store_testing::{Call, Fault, Lost, Random, SimulatedDisk};
use world::{World, draft, matching};

const MESSAGES: usize = 11;

fn on(disk: &SimulatedDisk) -> Arc<Operations> {
    Arc::new(Operations::on(Arc::new(disk.clone())).unwrap())
}

/// A job that acts exactly once on each message moves each by exactly an hour.
fn hour_later() -> JobDraft {
    let deed = Deed::Reschedule(NewInstant::Later(TimeSpan::from_minutes(60)));
    // Two messages a step.
    JobDraft { rate: 8, ..draft(matching(""), deed) }
}

async fn start(store: &Arc<MemoryStore>, disk: &SimulatedDisk, now: Timestamp) -> World {
    let jobs = on(disk);
    World::start_on(store.clone(), now, |builder| builder.jobs(jobs)).await
}

/// A job that moves messages to the queue `to`, two a step, and changes their bodies. Every third
/// has an id that is there already, and every fifth no JSON as its body, so these stay.
fn to_another_queue() -> JobDraft {
    let body = Some(BodyEdit::MergePatch(r#"{"sent":true}"#.into()));
    let edit = Edit { changes: Overlay::of_changes([]), new_id: false, body };
    let deed = Deed::Move { to: "to".into(), edit: Some(Arc::new(edit)) };
    JobDraft { rate: 8, ..draft(matching(""), deed) }
}

const fn stays(id: usize) -> bool {
    id.is_multiple_of(3) || id % 5 == 1
}

fn body(id: usize) -> String {
    if id % 5 == 1 { "no JSON".to_owned() } else { format!(r#"{{"id":{id}}}"#) }
}

/// Starts a broker whose job is ready.
async fn ready(store: &Arc<MemoryStore>, disk: &SimulatedDisk) -> (World, JobId) {
    ready_with(store, disk, hour_later()).await
}

async fn ready_with(
    store: &Arc<MemoryStore>,
    disk: &SimulatedDisk,
    draft: JobDraft,
) -> (World, JobId) {
    let now = Timestamp::parse("2026-05-01T12:00:00Z").unwrap();
    let world = start(store, disk, now).await;
    world.broker.create_queue("q", QueueProperties::new()).await.unwrap();
    match &draft.deed {
        Deed::Move { .. } => {
            let ids = QueueProperties::new().with_duplicate_detection(TimeSpan::from_minutes(60));
            world.broker.create_queue("to", ids).await.unwrap();
            let ids = (0..MESSAGES).filter(|id| id % 3 == 0).map(|id| ("to", id));
            for (queue, id) in ids.chain((0..MESSAGES).map(|id| ("q", id))) {
                let message = Message::new(body(id)).with_message_id(format!("{id}"));
                let message = world.broker.inbound(message);
                world.call(queue, Command::Send { message }).await;
            }
        }
        _ => world.schedule("q", MESSAGES).await,
    }
    let job = world.create("q", draft).await.id;
    world.reaches(job, JobState::Ready).await;
    (world, job)
}

fn store() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(1, u64::MAX))
}

/// Whether each message is in the place that its id decides, once, with the body of that place.
async fn is_sent_once(world: &World) -> bool {
    let mut places = Vec::new();
    for queue in ["q", "to"] {
        for head in world.heads(queue).await {
            let message = head.content.unwrap().message;
            let id = message.message_id.unwrap().to_string();
            let body = String::from_utf8(message.body.as_bytes().to_vec()).unwrap();
            places.push((id, queue, body));
        }
    }
    let place = |id: usize| match stays(id) {
        true => (id.to_string(), "q", body(id)),
        false => (id.to_string(), "to", format!(r#"{{"id":{id},"sent":true}}"#)),
    };
    let there = (0..MESSAGES).filter(|id| id % 3 == 0).map(|id| (id.to_string(), "to", body(id)));
    let mut expected: Vec<_> = (0..MESSAGES).map(place).chain(there).collect();
    places.sort();
    expected.sort();
    places == expected
}

async fn is_moved_once(world: &World) -> bool {
    let due = world.began.plus(TimeSpan::from_minutes(120));
    let states = world.states("q").await;
    states.len() == MESSAGES && states.iter().all(|(_, at)| *at == due)
}

/// CON-15, CON-19, CON-80: a job whose broker ends at any call of the disk goes on after the
/// restart, and acts on each message exactly once. A kill keeps the page cache, a power cut loses
/// a part of the bytes without a sync.
#[tokio::test]
async fn a_job_acts_once_on_each_message_wherever_its_broker_ends() {
    acts_once(hour_later, MESSAGES as u64, async |world| is_moved_once(world).await).await;
}

/// CON-15, CON-16, CON-17, CON-80: the same for messages that leave with changed bodies. The
/// destination or the change refuses some: each is in exactly one place.
#[tokio::test]
async fn a_job_sends_each_message_once_wherever_its_broker_ends() {
    let sent = (0..MESSAGES).filter(|id| !stays(*id)).count() as u64;
    acts_once(to_another_queue, sent, async |world| is_sent_once(world).await).await;
}

async fn acts_once(
    draft: fn() -> JobDraft,
    expected: u64,
    is_done_once: impl AsyncFn(&World) -> bool,
) {
    let expected = (expected, MESSAGES as u64 - expected);
    // Calls of a run without a fault.
    let (memory, disk) = (store(), SimulatedDisk::new(1));
    let (world, job) = ready_with(&memory, &disk, draft()).await;
    let before = disk.call_count();
    world.run(&world.job(job).await).await;
    let done = world.reaches(job, JobState::Done).await;
    assert_eq!((done.progress.done, done.progress.failed), expected);
    world.stop().await;
    let calls = disk.call_count() - before;
    assert!(calls > 20, "{calls} calls");

    let mut ended_early = 0;
    for count in 1..=calls {
        for is_kill in [false, true] {
            let (memory, disk) = (store(), SimulatedDisk::new(count));
            let (world, job) = ready_with(&memory, &disk, draft()).await;
            let facts = world.job(job).await;
            let digest = facts.preview.as_ref().unwrap().digest;
            let start_it = peeklock_core::inspect::JobControl::Start(digest);
            let request = peeklock_core::management::Management::ControlJob(job, start_it);
            disk.cut_power_at(count);
            let asked = world.access.manage("", request);
            let is_started = world.clock.while_short_waits_pass(asked).await.is_ok();
            while is_started && !disk.is_cut() && !world.job(job).await.state.is_end() {
                world.pass().await;
            }
            let now = world.broker.now();
            world.stop().await;
            let disk = match is_kill {
                true => disk.kill(Lost::StillCached),
                false => disk.crash(&mut Random::new(count)),
            };
            let world = start(&memory, &disk, now).await;
            let facts = world.job(job).await;
            ended_early += u64::from(!facts.state.is_end());
            if facts.state == JobState::Ready {
                assert!(!is_started, "call {count}: the start was answered");
                world.run(&facts).await;
            }
            let done = world.reaches(job, JobState::Done).await;
            let progress = (done.progress.done, done.progress.failed);
            assert_eq!(progress, expected, "call {count}, kill {is_kill}");
            assert!(is_done_once(&world).await, "call {count}, kill {is_kill}");
            world.stop().await;
        }
    }
    assert!(ended_early > calls / 2, "{ended_early} of {calls}");
}

/// CON-15: a disk that is full for a while delays a job and repeats no change.
#[tokio::test]
async fn a_full_disk_delays_a_job() {
    let (memory, disk) = (store(), SimulatedDisk::new(3));
    let (world, job) = ready(&memory, &disk).await;
    world.run(&world.job(job).await).await;
    disk.fail_from(Call::Write, 1, Fault::Partly);
    let problem = loop {
        let facts = world.job(job).await;
        assert!(!facts.state.is_end());
        if let Some(problem) = facts.problem {
            break problem;
        }
        world.pass().await;
    };
    assert!(problem.contains("try again later"), "{problem}");
    disk.heal();
    let done = world.reaches(job, JobState::Done).await;
    assert_eq!((done.progress.done, done.problem), (MESSAGES as u64, None));
    assert!(is_moved_once(&world).await);
    world.stop().await;
}

/// CON-15, CON-19: a job that is cancelled after a step without a line reports that, and its entity
/// forgets it.
#[tokio::test]
async fn a_cancelled_job_reports_a_step_without_a_line() {
    let (memory, disk) = (store(), SimulatedDisk::new(6));
    let (world, job) = ready(&memory, &disk).await;
    world.run(&world.job(job).await).await;
    disk.fail_from(Call::Write, 1, Fault::Partly);
    while world.job(job).await.problem.is_none() {
        world.pass().await;
    }
    disk.heal();
    // The step is not repeated before its time.
    let cancel = Management::ControlJob(job, JobControl::Cancel);
    world.access.manage("", cancel).await.unwrap();
    let facts = world.job(job).await;
    assert_eq!(facts.state, JobState::Cancelled);
    assert!(facts.problem.unwrap().contains("unknown"));
    while !disk.files().keys().any(|name| name.ends_with(".ended")) {
        world.pass().await;
    }
    // A receipt of another step with this number would refuse this one.
    for number in 1..=MESSAGES as u64 {
        let step = Some(JobStep { job, number });
        let sequences = vec![SequenceNumber(99)];
        let act = Act { step, sequences, deed: Deed::Delete, breaks_locks: false, kept: None };
        let act = Management::Operate(OperatorCommand::Act(Box::new(act)));
        world.access.manage("q", act).await.unwrap();
    }
    world.stop().await;
}

/// CON-19: after a failed sync no job is changed until the next start, which goes on.
#[tokio::test]
async fn a_failed_sync_stops_jobs_until_the_next_start() {
    let (memory, disk) = (store(), SimulatedDisk::new(4));
    let (world, job) = ready(&memory, &disk).await;
    world.run(&world.job(job).await).await;
    disk.fail_from(Call::Sync, 1, Fault::Whole);
    let problem = loop {
        if let Some(problem) = world.job(job).await.problem {
            break problem;
        }
        world.pass().await;
    };
    assert!(problem.contains("start the broker again"), "{problem}");
    let now = world.broker.now();
    world.stop().await;
    disk.heal();
    let world = start(&memory, &disk.kill(Lost::StillCached), now).await;
    let done = world.reaches(job, JobState::Done).await;
    assert_eq!((done.progress.done, done.progress.failed), (MESSAGES as u64, 0));
    assert!(is_moved_once(&world).await);
    world.stop().await;
}

/// CON-21: an ended job keeps its counts and failures over a restart, for 7 days.
#[tokio::test]
async fn an_ended_job_is_kept_for_7_days() {
    let (memory, disk) = (store(), SimulatedDisk::new(5));
    let (world, job) = ready(&memory, &disk).await;
    world.send("q", 2).await;
    let other = world.create("q", hour_later()).await.id;
    let facts = world.reaches(other, JobState::Ready).await;
    world.run(&facts).await;
    world.reaches(other, JobState::Done).await;
    let now = world.broker.now();
    world.stop().await;
    let world = start(&memory, &disk, now).await;
    let done = world.job(other).await;
    assert_eq!((done.state, done.progress.failed), (JobState::Done, 2));
    assert_eq!(done.preview, facts.preview);
    assert_eq!(world.failures(other, 0, 10).await.0.len(), 2);
    // The stop may come before its file is replaced; then the next start does that.
    while !disk.files().keys().any(|name| name.ends_with(".ended")) {
        world.pass().await;
    }
    world.clock.advance(TimeSpan::from_days(7));
    // The first job ends, because it was not started in time.
    while disk.files().keys().any(|name| name.starts_with(&format!("{:032x}", other.0))) {
        world.pass().await;
    }
    assert_eq!(world.job(job).await.state, JobState::Cancelled);
    world.stop().await;
}

//! Jobs and their undos whose broker or disk fails (CON-20, CON-80).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod world;

use std::collections::BTreeMap;
use std::sync::Arc;

use peeklock_core::command::{Command, Deed, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::description::{EntityKind, QueueProperties};
use peeklock_core::ids::JobId;
use peeklock_core::inspect::{Found, HeadState, JobControl, JobDraft, JobFacts, JobState};
use peeklock_core::management::{Managed, Management};
use peeklock_core::message::{Message, Value};
use peeklock_core::store::MemoryStore;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_operations::Operations;
use peeklock_store_testing::{Call, Fault, Lost, Random, SimulatedDisk};
use world::{World, draft, matching};

const MESSAGES: u64 = 9;
const DEAD: &str = "q/$deadletterqueue";

/// Path, state, instant, deliveries and content of each message, by number.
type Picture = BTreeMap<u64, (String, HeadState, Timestamp, u32, Message)>;

fn store() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(1, u64::MAX))
}

async fn start(store: &Arc<MemoryStore>, disk: &SimulatedDisk, now: Timestamp) -> World {
    let jobs = Arc::new(Operations::on(Arc::new(disk.clone())).unwrap());
    World::start_on(store.clone(), now, |builder| builder.jobs(jobs)).await
}

async fn first_start(store: &Arc<MemoryStore>, disk: &SimulatedDisk) -> World {
    let now = Timestamp::parse("2026-05-01T12:00:00Z").unwrap();
    let world = start(store, disk, now).await;
    world.broker.create_queue("q", QueueProperties::new()).await.unwrap();
    world
}

fn dead_letter() -> Deed {
    Deed::DeadLetter { reason: Some("Test".into()), description: None }
}

/// A broker with messages, of which four or all are deferred, and a job that is ready.
async fn ready(
    store: &Arc<MemoryStore>,
    disk: &SimulatedDisk,
    deed: Deed,
    rate: u32,
    count: u64,
) -> (World, JobId) {
    ready_with(store, disk, deed, rate, count, "").await
}

/// The same, with a text in each body.
async fn ready_with(
    store: &Arc<MemoryStore>,
    disk: &SimulatedDisk,
    deed: Deed,
    rate: u32,
    count: u64,
    text: &str,
) -> (World, JobId) {
    let world = first_start(store, disk).await;
    for number in 0..count {
        let message = world.broker.inbound(Message::new(format!("body {number}{text}")));
        world.call("q", Command::Send { message }).await;
    }
    let deferred = if deed == Deed::Undefer { count } else { 4 };
    let properties = vec![("seen".to_owned(), Value::I32(1))];
    for token in world.lock("q", u32::try_from(deferred).unwrap()).await {
        let settlement = Settlement::defer(&properties).unwrap();
        world.call("q", Command::Settle { token, settlement }).await;
    }
    let job = world.create("q", JobDraft { rate, ..draft(matching(""), deed) }).await;
    let job = world.reaches(job.id, JobState::Ready).await;
    assert!(job.preview.unwrap().can_be_undone);
    (world, job.id)
}

async fn picture(world: &World) -> Picture {
    let mut picture = Picture::new();
    for path in ["q", DEAD] {
        for head in world.heads(path).await {
            let facts = &head.facts.message;
            let message = head.content.unwrap().message;
            let seen = (
                path.to_owned(),
                head.facts.state,
                facts.enqueued_at,
                facts.delivery_count,
                message,
            );
            assert!(picture.insert(facts.sequence.0, seen).is_none(), "it is there twice");
        }
    }
    picture
}

/// Changes a job, if its file can be written.
async fn try_control(world: &World, job: JobId, control: JobControl) -> Option<JobFacts> {
    let asked = world.access.manage("", Management::ControlJob(job, control));
    let Managed::Findings(findings) = world.clock.while_short_waits_pass(asked).await.ok()? else {
        panic!("other answer")
    };
    match findings.found {
        Found::Job(job) => Some(*job),
        other => panic!("{other:?}"),
    }
}

async fn start_job(world: &World, job: JobId) -> Option<JobFacts> {
    let digest = world.job(job).await.preview.unwrap().digest;
    try_control(world, job, JobControl::Start(digest)).await
}

/// Lets time pass until a job can be undone.
async fn finish(world: &World, job: JobId) {
    if world.job(job).await.state == JobState::Ready {
        start_job(world, job).await.unwrap();
    }
    world.until(job, |facts| facts.state == JobState::Done && facts.undo_until.is_some()).await;
}

/// Undoes a job until every message is back.
async fn undo_all(world: &World, job: JobId) {
    while world.job(job).await.undo_until.is_some() {
        if let Some(undo) = try_control(world, job, JobControl::Undo).await {
            let stops = |facts: &JobFacts| facts.state.is_end() || facts.state == JobState::Paused;
            let undo = world.until(undo.id, stops).await;
            assert_ne!(undo.state, JobState::Paused, "{undo:?}");
        }
        world.pass().await;
    }
}

/// Lets time pass until the disk is cut, or after the end of a job.
async fn pass_until_cut(world: &World, disk: &SimulatedDisk, job: JobId) {
    let mut rest = 60;
    while !disk.is_cut() && rest > 0 {
        rest -= u32::from(world.job(job).await.state.is_end());
        world.pass().await;
    }
}

/// Ends the broker and its disk.
async fn end(
    world: World,
    disk: &SimulatedDisk,
    count: u64,
    is_kill: bool,
) -> (SimulatedDisk, Timestamp) {
    let now = world.broker.now();
    world.stop().await;
    let disk = match is_kill {
        true => disk.kill(Lost::StillCached),
        false => disk.crash(&mut Random::new(count)),
    };
    (disk, now)
}

/// A receiver gets a message that is still in the queue while no job works, and gives it back. Its
/// undo restores the message as it is then.
async fn receive_between(store: &Arc<MemoryStore>, now: Timestamp, before: &mut Picture) {
    let world = World::start_on(store.clone(), now, |builder| builder).await;
    if let Some(token) = world.lock("q", 1).await.pop() {
        let settlement = Settlement::abandon(&[], None).unwrap();
        world.call("q", Command::Settle { token, settlement }).await;
    }
    let changed = picture(&world).await;
    before.extend(changed.into_iter().filter(|(_, seen)| seen.0 == "q"));
    world.stop().await;
}

/// CON-20, CON-80: messages that a job has changed are put back exactly once as they were, wherever
/// the broker ends: at any call that changes the disk, for the job or for its undo.
async fn is_undone_exactly(deed: Deed) {
    // Calls of a run without a fault: of the job, and of its undo.
    let (memory, disk) = (store(), SimulatedDisk::new(1));
    let (world, job) = ready(&memory, &disk, deed.clone(), 8, MESSAGES).await;
    let (before, begin) = (picture(&world).await, disk.call_count());
    disk.record();
    finish(&world, job).await;
    let changed = disk.call_count() - begin;
    assert_ne!(picture(&world).await, before);
    undo_all(&world, job).await;
    assert_eq!(picture(&world).await, before);
    let trace = disk.take_trace();
    let calls = trace.iter().filter_map(|line| change(line)).map(|call| call - begin);
    let calls: Vec<u64> = calls.collect();
    world.stop().await;
    let of_job = calls.iter().filter(|call| **call <= changed).count();
    let of_undo = calls.len() - of_job;
    assert!(of_job > 20 && of_undo > 8, "{of_job} and {of_undo} calls");

    for count in calls {
        // Mostly power cuts, which lose more than kills.
        let is_kill = count.is_multiple_of(4);
        let (memory, disk) = (store(), SimulatedDisk::new(count));
        let (world, job) = ready(&memory, &disk, deed.clone(), 8, MESSAGES).await;
        let mut before = picture(&world).await;
        let is_undo = count > changed;
        let started = if is_undo {
            finish(&world, job).await;
            disk.cut_power_at(count - changed);
            try_control(&world, job, JobControl::Undo).await
        } else {
            disk.cut_power_at(count);
            start_job(&world, job).await
        };
        if let Some(started) = started {
            pass_until_cut(&world, &disk, started.id).await;
        }
        let (disk, now) = end(world, &disk, count, is_kill).await;
        if !is_undo && deed != Deed::Undefer {
            receive_between(&memory, now, &mut before).await;
        }
        let world = start(&memory, &disk, now).await;
        if !is_undo {
            finish(&world, job).await;
        }
        undo_all(&world, job).await;
        assert_eq!(picture(&world).await, before, "call {count}, kill {is_kill}");
        world.stop().await;
    }
}

#[tokio::test]
async fn a_deletion_is_undone_exactly_wherever_its_broker_ends() {
    is_undone_exactly(Deed::Delete).await;
}

#[tokio::test]
async fn dead_lettering_is_undone_exactly_wherever_its_broker_ends() {
    is_undone_exactly(dead_letter()).await;
}

#[tokio::test]
async fn undeferring_is_undone_exactly_wherever_its_broker_ends() {
    is_undone_exactly(Deed::Undefer).await;
}

/// Steps of the test below until the disk is cut. Keeps the number of a message that a receiver
/// completes after the first undo has put it back.
async fn undo_in_parts(world: &World, disk: &SimulatedDisk, job: JobId, taken: &mut Option<u64>) {
    let Some(undo) = try_control(world, job, JobControl::Undo).await else { return };
    while !disk.is_cut() && world.job(undo.id).await.progress.tried == 0 {
        world.pass().await;
    }
    let Some(number) = world.numbers("q").await.into_iter().find(|number| *number > 4) else {
        return;
    };
    let token = world.lock("q", 1).await.pop().unwrap();
    *taken = Some(number);
    world.call("q", Command::Settle { token, settlement: Settlement::Complete }).await;
    let Some(_) = try_control(world, undo.id, JobControl::Cancel).await else { return };
    let Some(again) = try_control(world, job, JobControl::Undo).await else { return };
    pass_until_cut(world, disk, again.id).await;
}

/// Number of a call of the disk, if the call changes something.
fn change(line: &str) -> Option<u64> {
    let (number, call) = line.trim_start().split_once(' ')?;
    let reads = ["Read", "Length", "Open", "List"].iter().any(|read| call.starts_with(read));
    if reads { None } else { number.parse().ok() }
}

/// CON-20, CON-80: an undo that was cancelled is continued by another one. No message is put back
/// twice, also if a receiver has completed it in between, wherever the broker ends.
#[tokio::test]
async fn a_cancelled_undo_is_continued_wherever_its_broker_ends() {
    const COUNT: u64 = 300;
    let (mut counts, mut place, mut recordings) = (vec![0_u64], 0, 0);
    while let Some(count) = counts.get(place).copied() {
        place += 1;
        // Mostly power cuts, which lose more than kills.
        let is_kill = count.is_multiple_of(4);
        let (memory, disk) = (store(), SimulatedDisk::new(count));
        let (world, job) = ready(&memory, &disk, Deed::Delete, 500, COUNT).await;
        let mut before = picture(&world).await;
        finish(&world, job).await;
        let begin = disk.call_count();
        match count {
            0 => disk.record(),
            _ => disk.cut_power_at(count),
        }
        let mut taken = None;
        undo_in_parts(&world, &disk, job, &mut taken).await;
        if count == 0 {
            let trace = disk.take_trace();
            counts.extend(trace.iter().filter_map(|line| change(line)).map(|call| call - begin));
            if counts.len() <= 20 {
                // The undo has ended before it was cancelled, so there was none to continue.
                (counts, place, recordings) = (vec![0], 0, recordings + 1);
                assert!(recordings < 20, "no undo works long enough to be cancelled");
            }
        }
        let (disk, now) = end(world, &disk, count, is_kill).await;
        let world = start(&memory, &disk, now).await;
        undo_all(&world, job).await;
        if let Some(taken) = taken {
            before.remove(&taken);
        }
        assert!(picture(&world).await == before, "call {count}, kill {is_kill}");
        world.stop().await;
    }
}

/// CON-15, CON-20, CON-80: an undo whose broker ends goes on with the same steps. Each has 1 MiB of
/// messages, and the file may have the numbers of a step before its job has the step.
#[tokio::test]
async fn an_undo_of_large_messages_goes_on_wherever_its_broker_ends() {
    let text = "x".repeat(300 << 10);
    let (mut count, mut is_reached) = (0, true);
    while is_reached {
        count += 1;
        let (memory, disk) = (store(), SimulatedDisk::new(count));
        let (world, job) = ready_with(&memory, &disk, Deed::Delete, 500, MESSAGES, &text).await;
        let before = picture(&world).await;
        finish(&world, job).await;
        disk.cut_power_at(count);
        if let Some(undo) = try_control(&world, job, JobControl::Undo).await {
            pass_until_cut(&world, &disk, undo.id).await;
        }
        is_reached = disk.is_cut();
        let (disk, now) = end(world, &disk, count, true).await;
        let world = start(&memory, &disk, now).await;
        if world.job(job).await.undo_until.is_some() {
            let undo = world.control(job, JobControl::Undo).await;
            let stops = |facts: &JobFacts| facts.state.is_end() || facts.state == JobState::Paused;
            let undo = world.until(undo.id, stops).await;
            assert_eq!((undo.state, undo.problem), (JobState::Done, None), "call {count}");
        }
        assert!(picture(&world).await == before, "call {count}");
        world.stop().await;
    }
    assert!(count > 15, "{count} calls");
}

/// CON-20: a disk that is full for a while, from any write on, delays a job or its undo. The undo
/// is exact.
async fn is_exact_after_a_full_disk(is_undo: bool) {
    let mut is_reached = true;
    let mut count = 0;
    while is_reached {
        count += 1;
        let (memory, disk) = (store(), SimulatedDisk::new(count));
        let (world, job) = ready(&memory, &disk, Deed::Delete, 8, MESSAGES).await;
        let before = picture(&world).await;
        if is_undo {
            finish(&world, job).await;
        }
        disk.fail_from(Call::Write, count, Fault::Partly);
        let failures = disk.failure_count();
        let started = match is_undo {
            true => try_control(&world, job, JobControl::Undo).await,
            false => start_job(&world, job).await,
        };
        if let Some(started) = started {
            let mut rest = 60;
            while disk.failure_count() == failures && rest > 0 {
                rest -= u32::from(world.job(started.id).await.state.is_end());
                world.pass().await;
            }
        }
        is_reached = disk.failure_count() > failures;
        for _ in 0..20 {
            world.pass().await;
        }
        disk.heal();
        if !is_undo {
            finish(&world, job).await;
        }
        undo_all(&world, job).await;
        assert_eq!(picture(&world).await, before, "write {count}");
        world.stop().await;
    }
    assert!(count > if is_undo { 4 } else { 15 }, "{count} writes");
}

#[tokio::test]
async fn a_full_disk_delays_a_job_that_is_undone() {
    is_exact_after_a_full_disk(false).await;
}

#[tokio::test]
async fn a_full_disk_delays_an_undo() {
    is_exact_after_a_full_disk(true).await;
}

/// Files after a job has ended, and the messages before it.
async fn deleted(
    memory: &Arc<MemoryStore>,
    count: u64,
) -> (JobId, SimulatedDisk, Timestamp, Picture) {
    let disk = SimulatedDisk::new(1);
    let (world, job) = ready(memory, &disk, Deed::Delete, 8, count).await;
    let before = picture(&world).await;
    finish(&world, job).await;
    let now = world.broker.now();
    world.stop().await;
    (job, disk, now, before)
}

fn export(job: JobId) -> String {
    format!("{:032x}.undo", job.0)
}

/// CON-20: damage in the file of messages costs at most the messages of that place; the others
/// return as they were, and the file stays. With a repaired file another undo returns the rest.
#[tokio::test]
async fn damage_costs_only_the_messages_of_its_place() {
    let memory = store();
    let (job, disk, now, before) = deleted(&memory, MESSAGES).await;
    let length = disk.files()[&export(job)].len();
    for offset in (0..length).step_by(7) {
        let memory = store();
        let (job, disk, now, before) = deleted(&memory, MESSAGES).await;
        let whole = disk.files();
        assert!(disk.flip_bit(&export(job), offset, 3));
        let world = start(&memory, &disk, now).await;
        let undo = world.control(job, JobControl::Undo).await;
        let undo = world.until(undo.id, |facts| facts.state.is_end()).await;
        assert_eq!(undo.state, JobState::Done, "{offset}");
        assert!(undo.problem.unwrap().contains("damaged"), "{offset}");
        let back = picture(&world).await;
        // Two messages a step.
        assert!(back.len() as u64 >= MESSAGES - 2, "{offset}: {}", back.len());
        assert!(back.iter().all(|(number, seen)| before.get(number) == Some(seen)), "{offset}");
        assert!(world.job(job).await.undo_until.is_some());
        let now = world.broker.now();
        world.stop().await;
        // The undo has added its numbers at the end.
        let mut files = disk.files();
        let repaired = &whole[&export(job)];
        files.get_mut(&export(job)).unwrap()[..repaired.len()].copy_from_slice(repaired);
        let world = start(&memory, &SimulatedDisk::holding(&files, 1), now).await;
        undo_all(&world, job).await;
        assert_eq!(picture(&world).await, before, "{offset}");
        world.stop().await;
    }
    // Without the file nothing is put back.
    let mut files = disk.files();
    files.remove(&export(job));
    let world = start(&memory, &SimulatedDisk::holding(&files, 1), now).await;
    assert_eq!(world.refused(job, JobControl::Undo).await, Condition::InvalidOperation);
    assert!(picture(&world).await.is_empty() && !before.is_empty());
    world.stop().await;
}

/// CON-20: messages stay in their file while the file of their job cannot be read. Without any
/// file of their job they are removed.
#[tokio::test]
async fn messages_of_an_unreadable_job_stay() {
    let memory = store();
    let (job, disk, now, before) = deleted(&memory, MESSAGES).await;
    let whole = disk.files();
    let ended = format!("{:032x}.ended", job.0);
    let mut files = whole.clone();
    files.insert(ended.clone(), b"torn".to_vec());
    files.insert(format!("{:032x}.undo", 7), b"others".to_vec());
    let disk = SimulatedDisk::holding(&files, 1);
    let world = start(&memory, &disk, now).await;
    assert_eq!(world.refused(job, JobControl::Undo).await, Condition::EntityNotFound);
    world.stop().await;
    let mut kept = disk.files();
    assert_eq!(kept.len(), 2);
    kept.insert(ended.clone(), whole[&ended].clone());
    let world = start(&memory, &SimulatedDisk::holding(&kept, 1), now).await;
    undo_all(&world, job).await;
    assert_eq!(picture(&world).await, before);
    world.stop().await;
}

/// CON-20: an undo does not act on another queue of the same name; the messages stay for their
/// time.
#[tokio::test]
async fn a_created_again_queue_gets_no_message() {
    let (memory, disk) = (store(), SimulatedDisk::new(1));
    let (world, job) = ready(&memory, &disk, Deed::Delete, 8, MESSAGES).await;
    finish(&world, job).await;
    world.access.manage("q", Management::Delete(EntityKind::Queue)).await.unwrap();
    world.broker.create_queue("q", QueueProperties::new()).await.unwrap();
    let undo = world.control(job, JobControl::Undo).await;
    let failed = world.reaches(undo.id, JobState::Failed).await;
    assert_eq!(failed.progress.done, 0);
    assert!(world.numbers("q").await.is_empty());
    world.pass().await;
    assert!(disk.files().contains_key(&export(job)));
    world.clock.advance(TimeSpan::from_days(1));
    world.until(job, |facts| facts.undo_until.is_none()).await;
    assert!(!disk.files().contains_key(&export(job)));
    world.stop().await;
}

/// CON-20, CON-21: more than 1,000 later jobs remove neither a job that can be undone nor its
/// messages. An undo that works keeps the messages beyond their time.
#[tokio::test]
async fn messages_stay_until_their_undo_has_ended() {
    let (memory, disk) = (store(), SimulatedDisk::new(1));
    let (world, job) = ready(&memory, &disk, Deed::Delete, 500, 450).await;
    let before = picture(&world).await;
    finish(&world, job).await;
    world.send("q", 1).await;
    for _ in 0..1_001 {
        let other = world.create("q", draft(matching("subject=none"), Deed::Delete)).await;
        world.until(other.id, |facts| facts.state != JobState::Selecting).await;
        world.control(other.id, JobControl::Cancel).await;
        world.pass().await;
    }
    let undo = world.control(job, JobControl::Undo).await;
    world.tries(undo.id, 1).await;
    world.control(undo.id, JobControl::Pause).await;
    world.clock.advance(TimeSpan::from_days(8));
    for _ in 0..20 {
        world.pass().await;
    }
    assert!(disk.files().contains_key(&export(job)));
    world.control(undo.id, JobControl::Resume).await;
    world.reaches(undo.id, JobState::Done).await;
    while disk.files().contains_key(&export(job)) {
        world.pass().await;
    }
    let mut after = picture(&world).await;
    after.retain(|number, _| before.contains_key(number));
    assert!(after == before);
    assert!(world.numbers("q").await.contains(&451));
    world.stop().await;
}

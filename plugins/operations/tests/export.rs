//! Jobs that export messages to a file (CON-22, CON-80).
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod world;

use std::sync::Arc;

use peeklock_audit::MemoryTrail;
use peeklock_core::command::{ActResult, Command, Deed, ExportForm, Settlement};
use peeklock_core::condition::Condition;
use peeklock_core::contract::{AuditQuery, Auditor, Authorizer, Grant, Principal, Right, Rights};
use peeklock_core::description::{EntityKind, QueueProperties, TopicProperties};
use peeklock_core::error::Rejection;
use peeklock_core::ids::JobId;
use peeklock_core::inspect::{
    Found, JOB_EXPORT_PART_BYTES_MAX, JobControl, JobDraft, JobFacts, JobQuery, JobSelection,
    JobState, Question,
};
use peeklock_core::management::{Managed, Management};
use peeklock_core::message::{Body, Message, Value};
use peeklock_core::store::MemoryStore;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_json::NewMessage;
use peeklock_operations::Operations;
use peeklock_store_testing::{Call, Fault, FaultStore, Lost, Random, SimulatedDisk};
use world::{World, draft, listed, matching};

const NDJSON: Deed = Deed::Export(ExportForm::Ndjson);
const CSV: Deed = Deed::Export(ExportForm::Csv);
const DEAD: &str = "q/$deadletterqueue";

fn store() -> Arc<MemoryStore> {
    Arc::new(MemoryStore::new(1, u64::MAX))
}

async fn start() -> World {
    World::start(Arc::new(Operations::in_memory())).await
}

fn begin() -> Timestamp {
    Timestamp::parse("2026-05-01T12:00:00Z").unwrap()
}

/// Starts a broker whose jobs are on a disk, with at most some bytes of exports.
async fn start_on(
    store: &Arc<MemoryStore>,
    disk: &SimulatedDisk,
    now: Timestamp,
    bytes: u64,
) -> World {
    let jobs = Arc::new(Operations::on_with_exports(Arc::new(disk.clone()), bytes).unwrap());
    World::start_on(store.clone(), now, |builder| builder.jobs(jobs)).await
}

impl World {
    async fn send_one(&self, path: &str, message: Message) {
        let message = self.broker.inbound(message);
        self.call(path, Command::Send { message }).await;
    }

    async fn part(&self, job: JobId, from: u64, length: u64) -> Result<(u64, Vec<u8>), Condition> {
        let question = Question::Jobs(JobQuery::Export { job, from, length });
        let asked = self.access.manage("", Management::Inspect(Box::new(question))).await;
        let Managed::Findings(findings) = asked.map_err(|error| error.condition())? else {
            panic!("other answer")
        };
        let Found::JobExport(part) = findings.found else { panic!("other findings") };
        assert_eq!(part.from, from);
        Ok((part.length, part.bytes.to_vec()))
    }

    /// The whole file of a job.
    async fn file(&self, job: JobId) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            let from = bytes.len() as u64;
            let (length, part) = self.part(job, from, JOB_EXPORT_PART_BYTES_MAX).await.unwrap();
            assert!(part.len() as u64 <= JOB_EXPORT_PART_BYTES_MAX);
            bytes.extend(part);
            if bytes.len() as u64 == length {
                return bytes;
            }
        }
    }

    async fn ready(&self, path: &str, selection: JobSelection, deed: Deed) -> JobFacts {
        let job = self.create(path, draft(selection, deed)).await;
        self.reaches(job.id, JobState::Ready).await
    }

    /// Exports messages to the end of the job.
    async fn export(&self, path: &str, selection: JobSelection, deed: Deed) -> JobFacts {
        let job = self.ready(path, selection, deed).await;
        assert!(!job.preview.as_ref().unwrap().can_be_undone);
        self.run(&job).await;
        self.until(job.id, |facts| facts.state.is_end()).await
    }
}

fn text(bytes: Vec<u8>) -> String {
    String::from_utf8(bytes).unwrap()
}

/// Lines as JSON, and the messages that `peeklock send` reads from them.
fn lines(bytes: Vec<u8>) -> Vec<(serde_json::Value, Message)> {
    let text = text(bytes);
    assert!(text.is_empty() || text.ends_with('\n'));
    let read = |line: &str| {
        let message: NewMessage = serde_json::from_str(line).unwrap();
        (serde_json::from_str(line).unwrap(), message.into_message().unwrap())
    };
    text.lines().map(read).collect()
}

/// CON-01, CON-22: a file has each message once with its facts, as a sender reads it; text, other
/// bytes, and a body that is never whole in memory. No message changes, locked ones included.
#[tokio::test]
async fn export_has_whole_messages_and_changes_none() {
    let world = start().await;
    let long: Vec<u8> = (0..700_001_u32).map(|place| (place * 7 % 251) as u8).collect();
    let bodies = [b"two coffees".to_vec(), vec![0xff, 0, 1], Vec::new(), long.clone()];
    for (number, body) in bodies.iter().enumerate() {
        let message = Message::new(body.clone()).with_message_id(format!("m{number}"));
        let message = message.with_subject("a \"subject\"\n").with_application_property("table", 7);
        world.send_one("q", message).await;
    }
    let token = world.lock("q", 1).await.remove(0);
    world.defer("q", 1).await;
    let before = world.heads("q").await;
    let job = world.export("q", matching(""), NDJSON).await;
    assert_eq!((job.state, job.progress.done, job.progress.failed), (JobState::Done, 4, 0));
    assert_eq!(job.problem, None);
    let file = world.file(job.id).await;
    assert_eq!(job.export_bytes, Some(file.len() as u64));
    let read = lines(file);
    assert_eq!(read.len(), 4);
    for (number, ((json, message), body)) in read.iter().zip(&bodies).enumerate() {
        assert_eq!(message.body, Body::Data(body.clone().into()), "{number}");
        assert_eq!(message.message_id, Some(format!("m{number}").as_str().into()));
        assert_eq!(message.subject.as_deref(), Some("a \"subject\"\n"));
        assert_eq!(message.application_properties, [("table".to_owned(), Value::I32(7))]);
        assert_eq!(json["sequenceNumber"], number + 1);
        assert_eq!(json["enqueuedTimeUtc"], "2026-05-01T12:00:00Z");
        assert_eq!(json["deliveryCount"], before[number].facts.message.delivery_count);
        // CON-75
        assert!(json.get("lockToken").is_none() && json.get("lockedUntilUtc").is_none());
    }
    assert_eq!((&read[0].0["state"], &read[1].0["state"]), (&"Active".into(), &"Deferred".into()));
    assert_eq!(read[0].0["body"], "two coffees");
    assert!(read[3].0["body"].is_null());
    assert_eq!(world.heads("q").await, before);
    // The lock is still there.
    world.call("q", Command::Settle { token, settlement: Settlement::Complete }).await;
    world.stop().await;
}

/// CON-12, CON-22: dead letters have the facts of their dead-lettering; scheduled messages of a
/// topic are exported too. A message that is not there is left out and reported.
#[tokio::test]
async fn export_has_dead_letters_and_scheduled_messages() {
    let world = start().await;
    world.send("q", 3).await;
    let reason = Deed::DeadLetter { reason: Some("NotPaid".into()), description: None };
    let job = world.ready("q", matching(""), reason).await;
    world.run(&job).await;
    world.reaches(job.id, JobState::Done).await;
    let job = world.export(DEAD, listed([2, 3, 9]), NDJSON).await;
    assert_eq!((job.state, job.progress.done, job.progress.failed), (JobState::Done, 2, 1));
    assert_eq!(world.failures(job.id, 0, 10).await.0, [(9, ActResult::NotFound)]);
    let read = lines(world.file(job.id).await);
    assert_eq!(read.len(), 2);
    assert_eq!(read[0].0["sequenceNumber"], 2);
    assert_eq!(read[0].0["applicationProperties"]["DeadLetterReason"], "NotPaid");

    world.broker.create_topic("t", TopicProperties::new()).await.unwrap();
    world.schedule("t", 2).await;
    let job = world.export("t", matching(""), NDJSON).await;
    assert_eq!(job.progress.done, 2);
    let read = lines(world.file(job.id).await);
    assert_eq!(read[1].0["state"], "Scheduled");
    let at = begin().plus(TimeSpan::from_minutes(60));
    assert_eq!(read[1].1.scheduled_enqueue_time, Some(at));
    world.stop().await;
}

/// CON-22: a table has a row for each message, without whole bodies. A cell that a program would
/// take for a formula gets an apostrophe, and separators and line ends are quoted.
#[tokio::test]
async fn table_has_rows_of_heads_without_formulas() {
    let world = start().await;
    let texts = [
        "=1+2",
        "+1",
        "-1",
        "@SUM(A1)",
        "\tx",
        "\rx",
        "\nx",
        "x;=1",
        " =1",
        "a,\"b\"\r\nc",
        "plain",
    ];
    for subject in texts {
        let body = format!("{}{}", "=body", "x".repeat(300));
        let message = Message::new(body).with_subject(subject);
        // No property of a sender takes the place of a property of the broker.
        world.send_one("q", message.with_application_property("isExpired", "forged")).await;
    }
    let job = world.export("q", matching(""), CSV).await;
    assert_eq!(job.progress.done, texts.len() as u64);
    let table = text(world.file(job.id).await);
    let (names, rows) = table.split_once("\r\n").unwrap();
    assert!(names.starts_with("sequenceNumber,enqueuedSequenceNumber,state,isExpired,"));
    assert!(names.ends_with(
        ",DeadLetterReason,DeadLetterErrorDescription,deadLetterSource,\
        applicationProperties,bodyStart"
    ));
    let quoted = |cell: &str| table.contains(&format!(",{cell},"));
    for cell in [
        "'=1+2",
        "'+1",
        "'-1",
        "'@SUM(A1)",
        "'\tx",
        "\"'\rx\"",
        "\"'\nx\"",
        "\"x;=1\"",
        " =1",
        "plain",
    ] {
        assert!(quoted(cell), "{cell:?}: {table}");
    }
    assert!(quoted("\"a,\"\"b\"\"\r\nc\""), "{table}");
    assert!(!quoted("=1+2"));
    // The start of a body has 256 bytes.
    let start = format!(",'=body{}\r\n", "x".repeat(251));
    assert_eq!(rows.matches(&start).count(), texts.len());
    assert!(rows.starts_with("1,0,active,,2026-05-01T12:00:00Z,"), "{rows}");
    world.stop().await;
}

/// CON-22: a message that the store cannot read is left out of the file, and listed with the reason.
#[tokio::test]
async fn message_that_cannot_be_read_is_not_exported() {
    let store = FaultStore::at_once(1, u64::MAX);
    let jobs = Arc::new(Operations::in_memory());
    let world = World::start_on(store.clone(), begin(), |builder| builder.jobs(jobs)).await;
    world.broker.create_queue("q", QueueProperties::new()).await.unwrap();
    for body in ["one", "spoilt", "three"] {
        world.send_one("q", Message::new(body)).await;
    }
    store.spoil("spoilt");
    for deed in [NDJSON, CSV] {
        let job = world.export("q", matching(""), deed).await;
        assert_eq!((job.state, job.progress.done, job.progress.failed), (JobState::Done, 2, 1));
        assert!(job.problem.unwrap().contains("the store cannot read some messages"));
        assert_eq!(world.failures(job.id, 0, 10).await.0, [(2, ActResult::Refused)]);
        let file = text(world.file(job.id).await);
        assert!(file.contains("one") && file.contains("three") && !file.contains("spoilt"));
    }
    world.stop().await;
}

/// CON-23: with `console.audit_reads` the trail has each read of an exported file, and no
/// message.
#[tokio::test]
async fn trail_has_reads_of_an_exported_file() {
    for records_reads in [false, true] {
        let trail = Arc::new(MemoryTrail::new(MemoryTrail::BYTES_MAX, records_reads));
        let jobs = Arc::new(Operations::in_memory());
        let world = World::start_with(jobs, |builder| builder.auditor(trail.clone())).await;
        world.send("q", 2).await;
        let job = world.export("q", matching(""), CSV).await;
        world.file(job.id).await;
        let query = AuditQuery { is_ascending: true, count_max: 500, ..AuditQuery::default() };
        let lines = Auditor::read(&*trail, query).await.unwrap().lines;
        let count = |parts: &[&str]| {
            lines.iter().filter(|line| parts.iter().all(|part| line.contains(part))).count()
        };
        assert_eq!(count(&["createJob", "export, as CSV: matching", "\"resource\":\"q\""]), 1);
        let read = format!("export of job {}", job.id);
        let expected = usize::from(records_reads);
        assert_eq!(count(&["readBody", &read, "\"resource\":\"q\""]), expected, "{lines:#?}");
        assert_eq!(count(&["readBody", "\"end\""]), expected);
        assert_eq!(count(&["sequenceNumber"]), 0);
        world.stop().await;
    }
}

/// CON-15, CON-19, CON-22: a job pauses, goes on and is cancelled like any other, and then has the
/// file of its steps. Neither a job that works nor one of another kind has a file, and an export is
/// not undone.
#[tokio::test]
async fn cancelled_export_has_the_messages_of_its_steps() {
    let world = start().await;
    world.send("q", 60).await;
    let draft = JobDraft { rate: 8, trial: Some(3), ..draft(matching(""), NDJSON) };
    let job = world.create("q", draft).await;
    let job = world.reaches(job.id, JobState::Ready).await;
    assert_eq!(world.part(job.id, 0, 1).await, Err(Condition::InvalidOperation));
    world.run(&job).await;
    world.reaches(job.id, JobState::Paused).await;
    assert_eq!(world.part(job.id, 0, 1).await, Err(Condition::InvalidOperation));
    world.control(job.id, JobControl::Resume).await;
    world.tries(job.id, 5).await;
    let cancelled = world.control(job.id, JobControl::Cancel).await;
    assert_eq!((cancelled.state, cancelled.problem), (JobState::Cancelled, None));
    let read = lines(world.file(job.id).await);
    assert_eq!(read.len() as u64, cancelled.progress.done);
    assert!(read.len() < 60);
    assert_eq!(world.refused(job.id, JobControl::Undo).await, Condition::InvalidOperation);
    let length = cancelled.export_bytes.unwrap();
    assert_eq!(world.part(job.id, length, 9).await, Ok((length, Vec::new())));
    assert_eq!(world.part(job.id, u64::MAX, 9).await, Ok((length, Vec::new())));

    let delete = world.ready("q", matching(""), Deed::Delete).await;
    assert_eq!(world.part(delete.id, 0, 1).await, Err(Condition::InvalidOperation));
    assert_eq!(world.part(JobId(7), 0, 1).await, Err(Condition::EntityNotFound));
    let none = world.export("q", matching("subject=none"), NDJSON).await;
    assert_eq!((none.state, none.export_bytes), (JobState::Done, None));
    assert_eq!(world.part(none.id, 0, 1).await, Err(Condition::InvalidOperation));
    world.stop().await;
}

/// CON-21, CON-22: the file of an export may have as many bytes as the bound, and not one more. All
/// files together keep to it: the oldest one that has ended makes way, one that has not makes the
/// other wait.
#[tokio::test]
async fn files_of_exports_keep_to_their_bound() {
    let (memory, disk) = (store(), SimulatedDisk::new(1));
    let world = start_on(&memory, &disk, begin(), u64::MAX).await;
    world.broker.create_queue("q", QueueProperties::new()).await.unwrap();
    world.send("q", 4).await;
    let job = world.export("q", matching(""), NDJSON).await;
    let bytes = job.export_bytes.unwrap();
    world.stop().await;

    // One byte less than the file needs.
    let disk = SimulatedDisk::new(2);
    let world = start_on(&memory, &disk, begin(), bytes - 1).await;
    let job = world.ready("q", matching(""), NDJSON).await;
    world.run(&job).await;
    let paused = world.reaches(job.id, JobState::Paused).await;
    let problem = paused.problem.unwrap();
    assert!(problem.contains(&format!("at most {} bytes; cancel the job", bytes - 1)), "{problem}");
    assert!(problem.contains("those from number 1 on"), "{problem}");
    assert_eq!(world.control(job.id, JobControl::Cancel).await.export_bytes, None);
    world.stop().await;

    let disk = SimulatedDisk::new(3);
    let world = start_on(&memory, &disk, begin(), bytes).await;
    let first = world.export("q", matching(""), NDJSON).await;
    assert_eq!((first.state, first.export_bytes), (JobState::Done, Some(bytes)));
    let second = world.export("q", listed([1]), NDJSON).await;
    assert_eq!(world.job(first.id).await.export_bytes, None);
    assert_eq!(world.part(first.id, 0, 1).await, Err(Condition::InvalidOperation));
    assert_eq!(lines(world.file(second.id).await).len(), 1);

    // An export that has not ended keeps its file.
    let draft = JobDraft { trial: Some(1), ..draft(matching(""), NDJSON) };
    let open = world.create("q", draft).await;
    let open = world.reaches(open.id, JobState::Ready).await;
    world.run(&open).await;
    world.reaches(open.id, JobState::Paused).await;
    let late = world.ready("q", matching(""), NDJSON).await;
    world.run(&late).await;
    let waits = world.until(late.id, |facts| facts.problem.is_some()).await;
    assert!(waits.problem.unwrap().contains("waits until another export has ended"));
    // No file is removed in vain.
    assert!(world.job(second.id).await.export_bytes.is_some());
    world.control(open.id, JobControl::Cancel).await;
    while world.job(late.id).await.state != JobState::Done {
        world.clock.advance(TimeSpan::from_seconds(31));
        world.pass().await;
    }
    assert_eq!(world.job(late.id).await.export_bytes, Some(bytes));
    assert_eq!(world.job(open.id).await.export_bytes, None);
    assert_eq!(world.job(second.id).await.export_bytes, None);
    let now = world.broker.now();
    world.stop().await;

    // The file disappears with its job, or if the job is not there.
    let world = start_on(&memory, &disk, now.plus(TimeSpan::from_days(7)), bytes).await;
    world.export("q", listed([1]), NDJSON).await;
    assert_eq!(world.part(late.id, 0, 1).await, Err(Condition::EntityNotFound));
    world.stop().await;
}

/// CON-22: a step ends after 1 MiB, so that the bound of a file costs few messages, and the rest has a
/// next job.
#[tokio::test]
async fn full_file_has_the_messages_of_earlier_steps() {
    let (memory, disk) = (store(), SimulatedDisk::new(4));
    let world = start_on(&memory, &disk, begin(), 3_500_000).await;
    world.broker.create_queue("q", QueueProperties::new()).await.unwrap();
    for number in 0..5 {
        let body = vec![number; 600_000];
        world.send_one("q", Message::new(body)).await;
    }
    let job = world.ready("q", matching(""), NDJSON).await;
    world.run(&job).await;
    let paused = world.reaches(job.id, JobState::Paused).await;
    let problem = paused.problem.unwrap();
    assert!(problem.contains("those from number 5 on"), "{problem}");
    let cancelled = world.control(job.id, JobControl::Cancel).await;
    assert_eq!((cancelled.progress.done, cancelled.state), (4, JobState::Cancelled));
    assert_eq!(lines(world.file(job.id).await).len(), 4);
    let rest = world.export("q", listed([5]), NDJSON).await;
    assert_eq!(lines(world.file(rest.id).await).len(), 1);
    world.stop().await;
}

/// CON-15, CON-22: a disk that is full for a while at any write delays an export, and the file has
/// each message exactly once.
#[tokio::test]
async fn full_disk_delays_an_export() {
    const COUNT: usize = 9;
    let mut has_problem = true;
    for count in 1.. {
        if !has_problem {
            assert!(count > 6, "the export has made {count} writes");
            break;
        }
        let (memory, disk) = (store(), SimulatedDisk::new(count));
        let world = start_on(&memory, &disk, begin(), 1 << 30).await;
        world.broker.create_queue("q", QueueProperties::new()).await.unwrap();
        world.send("q", COUNT).await;
        let job = world.create("q", JobDraft { rate: 8, ..draft(matching(""), NDJSON) }).await;
        let job = world.reaches(job.id, JobState::Ready).await;
        world.run(&job).await;
        disk.fail_from(Call::Write, count, Fault::Partly);
        let ended = |facts: &JobFacts| facts.problem.is_some() || facts.state.is_end();
        has_problem = world.until(job.id, ended).await.problem.is_some();
        disk.heal();
        world.reaches(job.id, JobState::Done).await;
        let read = lines(world.file(job.id).await);
        let numbers = read.iter().map(|(line, _)| line["sequenceNumber"].as_u64().unwrap());
        assert_eq!(numbers.collect::<Vec<_>>(), (1..=COUNT as u64).collect::<Vec<_>>(), "{count}");
        world.stop().await;
    }
}

/// Lets everybody receive from the queue `q`.
struct ReadersOfQ;

#[async_trait::async_trait]
impl Authorizer for ReadersOfQ {
    async fn authorize(&self, _: &Principal, resource: &str) -> Result<Grant, Rejection> {
        Ok(if resource == "q" { Grant::of(Rights::of(Right::Listen)) } else { Grant::nothing() })
    }

    fn allows_anonymous(&self) -> bool {
        true
    }
}

/// CON-13, CON-22, CON-72: a reader of a queue gets the file of its messages, but not the file of an
/// earlier queue with its path.
#[tokio::test]
async fn file_of_an_earlier_queue_is_not_given_to_readers_of_a_later_one() {
    let jobs = Arc::new(Operations::in_memory());
    let set = |builder: peeklock_core::BrokerBuilder| builder.authorizer(Arc::new(ReadersOfQ));
    let mut world = World::start_with(jobs, set).await;
    world.send("q", 1).await;
    let job = world.export("q", matching(""), NDJSON).await;
    let everything = world.access.clone();
    world.access = world.broker.access(Principal::anonymous());
    assert!(world.part(job.id, 0, 1).await.is_ok());
    everything.manage("q", Management::Delete(EntityKind::Queue)).await.unwrap();
    assert_eq!(world.part(job.id, 0, 1).await, Err(Condition::Unauthorized));
    world.broker.create_queue("q", QueueProperties::new()).await.unwrap();
    assert_eq!(world.part(job.id, 0, 1).await, Err(Condition::Unauthorized));
    world.access = everything;
    assert!(world.part(job.id, 0, 1).await.is_ok());
    world.stop().await;
}

/// CON-15, CON-22, CON-80: wherever the broker ends, the file has each message exactly once, in the
/// order of the selection, and nothing has changed.
#[tokio::test]
async fn export_has_each_message_once_wherever_its_broker_ends() {
    const COUNT: usize = 9;
    let run = async |count: Option<u64>| {
        let (memory, disk) = (store(), SimulatedDisk::new(count.unwrap_or(0)));
        let world = start_on(&memory, &disk, begin(), 1 << 30).await;
        world.broker.create_queue("q", QueueProperties::new()).await.unwrap();
        world.send("q", COUNT).await;
        let before = world.heads("q").await;
        let job = world.create("q", JobDraft { rate: 8, ..draft(matching(""), NDJSON) }).await;
        let job = world.reaches(job.id, JobState::Ready).await;
        let began = disk.call_count();
        if let Some(count) = count {
            disk.cut_power_at(count);
        }
        let start = JobControl::Start(job.preview.as_ref().unwrap().digest);
        let started = world.access.manage("", Management::ControlJob(job.id, start));
        let is_started = world.clock.while_short_waits_pass(started).await.is_ok();
        let mut rest = 60;
        while is_started && !disk.is_cut() && rest > 0 {
            rest -= u32::from(world.job(job.id).await.state.is_end());
            world.pass().await;
        }
        let (calls, now) = (disk.call_count() - began, world.broker.now());
        world.stop().await;
        let disk = match count {
            Some(count) if count.is_multiple_of(4) => disk.kill(Lost::StillCached),
            count => disk.crash(&mut Random::new(count.unwrap_or(0))),
        };
        let world = start_on(&memory, &disk, now, 1 << 30).await;
        if world.job(job.id).await.state == JobState::Ready {
            world.control(job.id, start).await;
        }
        let done = world.reaches(job.id, JobState::Done).await;
        assert_eq!((done.progress.done, done.progress.failed), (COUNT as u64, 0), "{count:?}");
        let read = lines(world.file(job.id).await);
        let numbers: Vec<_> =
            read.iter().map(|(json, _)| json["sequenceNumber"].as_u64()).collect();
        assert_eq!(numbers, (1..=COUNT as u64).map(Some).collect::<Vec<_>>(), "{count:?}");
        assert_eq!(world.heads("q").await, before, "{count:?}");
        world.stop().await;
        calls
    };
    let calls = run(None).await;
    assert!(calls > 20, "{calls} calls");
    for count in 1..=calls {
        run(Some(count)).await;
    }
}

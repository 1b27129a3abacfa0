//! Jobs through the interface of the broker.
#![allow(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod world;

use std::sync::Arc;

use peeklock_audit::MemoryTrail;
use peeklock_core::command::{Act, ActResult, Command, Deed, JobStep, NewInstant, OperatorCommand};
use peeklock_core::condition::Condition;
use peeklock_core::contract::AuditQuery;
use peeklock_core::description::QueueProperties;
use peeklock_core::ids::{JobId, SequenceNumber};
use peeklock_core::inspect::{
    Found, HeadState, JOB_MESSAGE_COUNT_MAX, JOB_NUMBER_COUNT_MAX, JOB_RATE_MAX, JobControl,
    JobDigest, JobDraft, JobFacts, JobQuery, JobSelection, JobState, Question,
};
use peeklock_core::management::{Managed, Management};
use peeklock_core::message::Message;
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_operations::Operations;
use world::{World, draft, listed, matching};

fn in_memory() -> Arc<Operations> {
    Arc::new(Operations::in_memory())
}

/// CON-12, CON-13, CON-14: a job selects its messages first, and changes exactly these when it is
/// started with its digest. Messages that arrive later stay.
#[tokio::test]
async fn a_job_changes_its_selection_after_its_start() {
    let world = World::start(in_memory()).await;
    world.send("q", 30).await;
    let job = world.create("q", draft(matching("subject=odd"), Deed::Delete)).await;
    assert_eq!((job.state, job.preview.as_ref()), (JobState::Selecting, None));
    let job = world.reaches(job.id, JobState::Ready).await;
    let preview = job.preview.unwrap();
    assert_eq!((preview.count, preview.is_cut, preview.samples.len()), (15, false, 15));
    assert_eq!(preview.refused, []);
    assert!(preview.bytes > 0 && preview.oldest_at == preview.newest_at);
    assert_eq!(world.numbers("q").await.len(), 30);

    world.send("q", 1).await;
    let other = JobControl::Start(JobDigest(preview.digest.0 ^ 1));
    assert_eq!(world.refused(job.id, other).await, Condition::UpdateConflict);
    for early in [JobControl::Pause, JobControl::Resume] {
        assert_eq!(world.refused(job.id, early).await, Condition::InvalidOperation);
    }
    let start = JobControl::Start(preview.digest);
    world.control(job.id, start).await;
    let done = world.reaches(job.id, JobState::Done).await;
    assert_eq!((done.progress.tried, done.progress.done, done.progress.failed), (15, 15, 0));
    assert!(done.started_at.is_some() && done.ended_at.is_some());
    let even: Vec<u64> = (1..=30).filter(|number| number % 2 == 0).chain([31]).collect();
    assert_eq!(world.numbers("q").await, even);
    // A start that is repeated after a lost answer has the same result.
    assert_eq!(world.control(job.id, start).await.state, JobState::Done);
    assert_eq!(world.refused(job.id, JobControl::Cancel).await, Condition::InvalidOperation);
    world.stop().await;
}

/// CON-12, CON-14, CON-19: messages that cannot be changed are counted before, left alone, and
/// listed with the reason.
#[tokio::test]
async fn messages_that_stay_are_listed_with_the_reason() {
    let world = World::start(in_memory()).await;
    world.send("q", 5).await;
    world.schedule("q", 1).await;
    world.lock("q", 1).await;
    let selection = listed([1, 2, 3, 6, 99]);
    let deed = Deed::DeadLetter { reason: Some("Test".into()), description: None };
    let job = world.create("q", draft(selection, deed)).await;
    let job = world.reaches(job.id, JobState::Ready).await;
    let expected = [(ActResult::NotFound, 1), (ActResult::Locked, 1), (ActResult::WrongState, 1)];
    assert_eq!(job.preview.as_ref().unwrap().refused, expected);
    world.run(&job).await;
    let done = world.reaches(job.id, JobState::Done).await;
    assert_eq!((done.progress.done, done.progress.failed), (2, 3));
    let (failures, total, next) = world.failures(job.id, 0, 2).await;
    let failed = [(1, ActResult::Locked), (6, ActResult::WrongState)];
    assert_eq!((failures, total, next), (failed.to_vec(), 3, Some(2)));
    let (failures, _, next) = world.failures(job.id, 2, 2).await;
    assert_eq!((failures, next), (vec![(99, ActResult::NotFound)], None));
    assert_eq!(world.numbers("q/$deadletterqueue").await, [2, 3]);

    // The preview of dead letters counts them by reason.
    let dead = draft(matching("reason=Test"), Deed::Delete);
    let job = world.create("q/$deadletterqueue", dead).await;
    let job = world.reaches(job.id, JobState::Ready).await;
    assert_eq!(job.preview.unwrap().reasons, [(Some("Test".into()), 2)]);
    world.stop().await;
}

/// CON-18, CON-19: a job keeps its rate, pauses after its trial, and is paused, resumed and
/// cancelled between two steps.
#[tokio::test]
async fn a_job_pauses_after_its_trial_and_on_request() {
    let world = World::start(in_memory()).await;
    world.send("q", 40).await;
    let slow = JobDraft { rate: 8, trial: Some(3), ..draft(matching(""), Deed::Delete) };
    let job = world.create("q", slow).await;
    let job = world.reaches(job.id, JobState::Ready).await;
    let began = world.broker.now();
    world.run(&job).await;
    let paused = world.reaches(job.id, JobState::Paused).await;
    assert_eq!(paused.progress.tried, 3);
    assert!(paused.problem.unwrap().contains("trial"));
    assert_eq!(world.numbers("q").await.len(), 37);
    world.control(job.id, JobControl::Resume).await;
    world.tries(job.id, 20).await;
    let paused = world.control(job.id, JobControl::Pause).await;
    assert_eq!((paused.state, paused.problem.as_ref()), (JobState::Paused, None));
    let left = world.numbers("q").await.len();
    assert_eq!(left as u64, 40 - paused.progress.tried);
    let passed = world.broker.now().since(began);
    assert!(passed >= TimeSpan::from_seconds(2), "8 messages a second: {passed}");
    let cancelled = world.control(job.id, JobControl::Cancel).await;
    assert_eq!(cancelled.state, JobState::Cancelled);
    assert_eq!(world.refused(job.id, JobControl::Resume).await, Condition::InvalidOperation);
    assert_eq!(world.numbers("q").await.len(), left);
    world.stop().await;
}

/// CON-14: a job that is not started within 10 minutes is cancelled.
#[tokio::test]
async fn a_preview_holds_for_10_minutes() {
    let world = World::start(in_memory()).await;
    world.send("q", 1).await;
    let job = world.create("q", draft(matching(""), Deed::Delete)).await;
    let job = world.reaches(job.id, JobState::Ready).await;
    let digest = job.preview.unwrap().digest;
    world.clock.advance_silently(TimeSpan::from_minutes(10));
    assert_eq!(world.refused(job.id, JobControl::Start(digest)).await, Condition::UpdateConflict);
    let job = world.reaches(job.id, JobState::Cancelled).await;
    assert!(job.problem.unwrap().contains("10 minutes"));
    assert_eq!(world.numbers("q").await, [1]);
    world.stop().await;
}

/// CON-12, CON-18, CON-21: numbers out of their bounds and deeds without sense are refused; 36 jobs
/// may wait or run, and a sub-queue has one at a time.
#[tokio::test]
async fn jobs_have_bounds() {
    let world = World::start(in_memory()).await;
    world.send("q", 8).await;
    let refused = async |path: &str, draft: JobDraft| {
        let create = Management::CreateJob(Box::new(draft));
        world.access.manage(path, create).await.unwrap_err().condition()
    };
    let all = || draft(matching(""), Deed::Delete);
    let counted = |count: usize| {
        let JobSelection::Matching { states, conditions, .. } = matching("") else { panic!() };
        let count_max = Some(u32::try_from(count).unwrap());
        let selection = JobSelection::Matching { states, conditions, count_max };
        draft(selection, Deed::Delete)
    };
    let many = |count: usize| draft(listed(1..=count as u64), Deed::Delete);
    let trial = |trial: usize| JobDraft { trial: Some(trial.try_into().unwrap()), ..all() };
    for draft in [
        JobDraft { rate: 0, ..all() },
        JobDraft { rate: JOB_RATE_MAX + 1, ..all() },
        many(0),
        many(JOB_NUMBER_COUNT_MAX + 1),
        counted(0),
        counted(JOB_MESSAGE_COUNT_MAX + 1),
        trial(0),
        trial(JOB_MESSAGE_COUNT_MAX + 1),
    ] {
        assert_eq!(refused("q", draft).await, Condition::ArgumentOutOfRange);
    }
    assert_eq!(refused("absent", all()).await, Condition::EntityNotFound);
    let now = Deed::Reschedule(NewInstant::Now);
    let dead = Deed::DeadLetter { reason: None, description: None };
    let long = Some("x".repeat(5_000).into());
    let long = Deed::DeadLetter { reason: long, description: None };
    let refusal = refused("q", draft(matching(""), long)).await;
    assert_eq!(refusal, Condition::ArgumentOutOfRange);
    for deed in [now, dead] {
        let refusal = refused("q/$deadletterqueue", draft(matching(""), deed)).await;
        assert_eq!(refusal, Condition::InvalidOperation);
    }
    // At the bounds.
    let at_bounds = JobDraft { rate: JOB_RATE_MAX, ..many(JOB_NUMBER_COUNT_MAX) };
    let mut jobs = vec![world.create("q", at_bounds).await];
    for _ in 1..36 {
        jobs.push(world.create("q", counted(JOB_MESSAGE_COUNT_MAX)).await);
    }
    assert_eq!(refused("q", all()).await, Condition::QuotaExceeded);
    let [first, second] = [jobs[0].id, jobs[1].id];
    let slow = world.reaches(first, JobState::Ready).await;
    let next = world.reaches(second, JobState::Ready).await;
    world.run(&slow).await;
    world.run(&next).await;
    // Its messages are gone when its turn comes.
    world.reaches(first, JobState::Done).await;
    let done = world.reaches(second, JobState::Done).await;
    assert_eq!((done.progress.done, done.progress.failed), (0, 8));
    assert!(world.numbers("q").await.is_empty());
    for job in jobs.iter().skip(2) {
        world.control(job.id, JobControl::Cancel).await;
    }
    world.create("q", all()).await;
    world.stop().await;
}

/// CON-13: a job does not touch another entity that gets the same path.
#[tokio::test]
async fn a_job_ends_with_its_entity() {
    let world = World::start(in_memory()).await;
    world.send("q", 3).await;
    let job = world.create("q", draft(matching(""), Deed::Delete)).await;
    let job = world.reaches(job.id, JobState::Ready).await;
    world.broker.delete_entity("q").await.unwrap();
    world.broker.create_queue("q", QueueProperties::new()).await.unwrap();
    world.send("q", 3).await;
    world.run(&job).await;
    let job = world.reaches(job.id, JobState::Failed).await;
    assert!(job.problem.unwrap().contains('q'));
    assert_eq!(world.numbers("q").await.len(), 3);
    world.stop().await;
}

/// CON-19: jobs are listed page by page, newest first, and an unknown one is reported.
#[tokio::test]
async fn jobs_are_listed_newest_first() {
    let world = World::start(in_memory()).await;
    world.send("q", 1).await;
    let mut created = Vec::new();
    for _ in 0..3 {
        created.push(world.create("q", draft(matching(""), Deed::Delete)).await.id);
        world.clock.advance(TimeSpan::from_ms(1));
    }
    created.reverse();
    let list = async |after| {
        let query = JobQuery::List { after, count_max: 2 };
        let question = Management::Inspect(Box::new(Question::Jobs(query)));
        let Managed::Findings(findings) = world.access.manage("", question).await.unwrap() else {
            panic!("no findings");
        };
        let Found::Jobs(page) = findings.found else { panic!("no jobs") };
        assert_eq!(page.total, 3);
        (page.jobs.into_iter().map(|job| job.id).collect::<Vec<_>>(), page.next)
    };
    let (first, next) = list(None).await;
    assert_eq!(first, created[..2]);
    assert_eq!(next, Some(created[1]));
    let (rest, next) = list(next).await;
    assert_eq!((&rest[..], next), (&created[2..], None));
    let unknown = peeklock_core::ids::JobId(7);
    assert_eq!(world.refused(unknown, JobControl::Pause).await, Condition::EntityNotFound);
    world.stop().await;
}

/// CON-23: the trail has the requests about a job and its end, which names the job.
#[tokio::test]
async fn the_trail_records_a_job_and_its_end() {
    let trail = Arc::new(MemoryTrail::new(MemoryTrail::BYTES_MAX, false));
    let world = World::start_with(in_memory(), |builder| builder.auditor(trail.clone())).await;
    world.send("q", 3).await;
    let deed = Deed::DeadLetter { reason: Some("Test".into()), description: None };
    let job = world.create("q", draft(listed([1, 2]), deed)).await;
    let job = world.reaches(job.id, JobState::Ready).await;
    world.run(&job).await;
    world.reaches(job.id, JobState::Done).await;
    let query = AuditQuery { is_ascending: true, count_max: 500, ..AuditQuery::default() };
    let lines = loop {
        let page = peeklock_core::contract::Auditor::read(&*trail, query.clone()).await.unwrap();
        if page.lines.iter().any(|line| line.contains("endJob")) {
            break page.lines;
        }
        world.pass().await;
    };
    let has = |parts: &[&str]| lines.iter().any(|line| parts.iter().all(|it| line.contains(it)));
    assert!(has(&["createJob", "\"begin\"", "dead-letter", "message 1-2", "\"resource\":\"q\""]));
    assert!(has(&["controlJob", "\"begin\"", &format!("start job {}", job.id)]));
    assert!(has(&["controlJob", "\"end\"", "done"]));
    assert!(has(&["endJob", "\"end\"", "\"count\":2", &job.id.to_string()]), "{lines:#?}");
    // Requests about an ended job add no further end.
    for _ in 0..5 {
        world.run(&job).await;
        world.pass().await;
    }
    let page = peeklock_core::contract::Auditor::read(&*trail, query).await.unwrap();
    assert_eq!(page.lines.iter().filter(|line| line.contains("endJob")).count(), 1);
    world.stop().await;
}

/// CON-12: without a keeper of jobs, there are none, and new ones are refused.
#[tokio::test]
async fn a_broker_without_a_keeper_refuses_jobs() {
    let broker = peeklock_core::Broker::builder().arbiters(1).start().await.unwrap();
    broker.create_queue("q", QueueProperties::new()).await.unwrap();
    let create = Management::CreateJob(Box::new(draft(matching(""), Deed::Delete)));
    let error = broker.full_access().manage("q", create).await.unwrap_err();
    assert_eq!(error.condition(), Condition::InvalidOperation);
    let list = Question::Jobs(JobQuery::List { after: None, count_max: 1 });
    let list = Management::Inspect(Box::new(list));
    let listed = broker.full_access().manage("", list).await.unwrap();
    let Managed::Findings(findings) = listed else { panic!("no findings") };
    let Found::Jobs(page) = findings.found else { panic!("no jobs") };
    assert_eq!((page.jobs.len(), page.total, page.next), (0, 0, None));
    broker.stop(std::time::Duration::ZERO).await.unwrap();
}

/// CON-12: deferred messages become active again, scheduled ones get another instant.
#[tokio::test]
async fn deferred_and_scheduled_messages_change() {
    let world = World::start(in_memory()).await;
    world.send("q", 2).await;
    world.schedule("q", 2).await;
    world.defer("q", 2).await;
    let run = async |selection, deed| {
        let job = world.create("q", draft(selection, deed)).await;
        let job = world.reaches(job.id, JobState::Ready).await;
        world.run(&job).await;
        world.reaches(job.id, JobState::Done).await.progress
    };
    let undeferred = run(matching(""), Deed::Undefer).await;
    assert_eq!((undeferred.done, undeferred.failed), (2, 2));
    let later = Deed::Reschedule(NewInstant::Later(TimeSpan::from_minutes(7)));
    let moved = run(matching(""), later).await;
    assert_eq!((moved.done, moved.failed), (2, 2));
    let states = world.states("q").await;
    let active = states.iter().filter(|(state, _)| *state == HeadState::Active).count();
    assert_eq!(active, 2);
    let due = world.began.plus(TimeSpan::from_minutes(67));
    let scheduled =
        states.iter().filter(|(state, at)| *state == HeadState::Scheduled && *at == due);
    assert_eq!(scheduled.count(), 2, "{states:?}");
    world.stop().await;
}

/// CON-18: a pause, a resume and a request that is refused do not shorten the wait for the next
/// step.
#[tokio::test]
async fn requests_do_not_make_a_job_faster() {
    let world = World::start(in_memory()).await;
    world.send("q", 9).await;
    let slow = JobDraft { rate: 4, ..draft(matching(""), Deed::Delete) };
    let job = world.create("q", slow).await;
    let job = world.reaches(job.id, JobState::Ready).await;
    let began = world.broker.now();
    let digest = world.run(&job).await.preview.unwrap().digest;
    while world.job(job.id).await.state != JobState::Done {
        for control in [JobControl::Start(digest), JobControl::Pause, JobControl::Resume] {
            world.access.manage("", Management::ControlJob(job.id, control)).await.ok();
        }
        let tried = i64::try_from(world.job(job.id).await.progress.tried).unwrap();
        let passed = world.broker.now().since(began);
        assert!(passed >= TimeSpan::from_ms(250 * (tried - 1)), "{tried} after {passed}");
        world.pass().await;
    }
    world.stop().await;
}

/// CON-12, CON-19: a job whose selection has not begun is cancelled at once, and makes room.
#[tokio::test]
async fn a_job_is_cancelled_before_its_selection() {
    let world = World::start(in_memory()).await;
    world.send("q", 1).await;
    for _ in 0..50 {
        let first = world.create("q", draft(matching(""), Deed::Delete)).await;
        let second = world.create("q", draft(listed(1..=9), Deed::Delete)).await;
        for job in [second, first] {
            let cancelled = world.control(job.id, JobControl::Cancel).await;
            assert_eq!(cancelled.state, JobState::Cancelled);
        }
    }
    let job = world.create("q", draft(matching(""), Deed::Delete)).await;
    world.reaches(job.id, JobState::Ready).await;
    world.stop().await;
}

/// CON-15: the receipt of a job is kept until the job ends.
#[tokio::test]
async fn a_job_is_not_forgotten_before_its_end() {
    let world = World::start(in_memory()).await;
    world.send("q", 4).await;
    let part = JobDraft { trial: Some(1), ..draft(matching(""), Deed::Delete) };
    let job = world.create("q", part).await;
    let job = world.reaches(job.id, JobState::Ready).await;
    world.run(&job).await;
    world.reaches(job.id, JobState::Paused).await;
    let forget = || Management::Operate(OperatorCommand::ForgetJob(job.id));
    let error = world.access.manage("q", forget()).await.unwrap_err();
    assert_eq!(error.condition(), Condition::InvalidOperation);
    world.control(job.id, JobControl::Resume).await;
    world.reaches(job.id, JobState::Done).await;
    world.access.manage("q", forget()).await.unwrap();
    world.stop().await;
}

/// CON-19: a step that would always be refused is counted as failed, with the reason, and
/// the job goes on.
#[tokio::test]
async fn a_job_goes_on_after_a_step_that_is_refused() {
    let world = World::start(in_memory()).await;
    let last = Message::new("last")
        .with_scheduled_enqueue_time(Timestamp::parse("9999-12-31T00:00:00Z").unwrap());
    let message = world.broker.inbound(last);
    let entity = world.broker.entity("q").unwrap();
    entity.call(Command::Send { message }).await.unwrap();
    world.schedule("q", 1).await;
    let deed = Deed::Reschedule(NewInstant::Later(TimeSpan::from_days(2)));
    let single = JobDraft { rate: 4, ..draft(matching(""), deed) };
    let job = world.create("q", single).await;
    let job = world.reaches(job.id, JobState::Ready).await;
    world.run(&job).await;
    let done = world.reaches(job.id, JobState::Done).await;
    assert_eq!((done.progress.done, done.progress.failed), (1, 1));
    assert!(done.problem.unwrap().contains("beyond the last instant"));
    assert_eq!(world.failures(job.id, 0, 9).await.0, [(1, ActResult::WrongState)]);
    world.stop().await;
}

/// CON-15, CON-19: jobs that a full entity refuses make way for others after some repetitions, and
/// show the reason.
#[tokio::test]
async fn jobs_without_room_make_way_for_others() {
    let world = World::start(in_memory()).await;
    world.send("q", 1).await;
    let full = ["a", "b", "c", "d"];
    for path in full {
        world.broker.create_queue(path, QueueProperties::new()).await.unwrap();
        world.send(path, 1).await;
        // The receipts of 8 jobs that have not ended.
        for number in 1..=8 {
            let step = Some(JobStep { job: JobId(number), number: 1 });
            let sequences = vec![SequenceNumber(99)];
            let act = Act { step, sequences, deed: Deed::Delete, breaks_locks: false, kept: None };
            let act = Management::Operate(OperatorCommand::Act(Box::new(act)));
            world.access.manage(path, act).await.unwrap();
        }
    }
    let mut refused = Vec::new();
    for path in full.into_iter().chain(["q"]) {
        let job = world.create(path, draft(listed([1]), Deed::Delete)).await;
        let job = world.reaches(job.id, JobState::Ready).await;
        world.run(&job).await;
        refused.push(job.id);
    }
    let free = refused.pop().unwrap();
    world.reaches(free, JobState::Done).await;
    let waits = |job: &JobFacts| job.state == JobState::Waiting && job.problem.is_some();
    for job in &refused {
        while !waits(&world.job(*job).await) {
            world.pass().await;
        }
    }
    for path in full {
        let forget = Management::Operate(OperatorCommand::ForgetJob(JobId(1)));
        world.access.manage(path, forget).await.unwrap();
    }
    world.clock.advance(TimeSpan::from_seconds(30));
    for job in refused {
        let done = world.reaches(job, JobState::Done).await;
        assert_eq!((done.progress.done, done.problem), (1, None));
    }
    world.stop().await;
}

/// CON-19: a job is paused and resumed 10,000 times in all, which bounds its file.
#[tokio::test]
async fn pauses_of_a_job_are_bounded() {
    let world = World::start(in_memory()).await;
    world.send("q", 2).await;
    let slow = JobDraft { rate: 1, ..draft(matching(""), Deed::Delete) };
    let job = world.create("q", slow).await;
    let job = world.reaches(job.id, JobState::Ready).await;
    world.run(&job).await;
    let control = async |control| {
        let request = Management::ControlJob(job.id, control);
        world.access.manage("", request).await.map(drop)
    };
    for _ in 0..5_000 {
        control(JobControl::Pause).await.unwrap();
        control(JobControl::Resume).await.unwrap();
    }
    let error = control(JobControl::Pause).await.unwrap_err();
    assert_eq!(error.condition(), Condition::QuotaExceeded);
    control(JobControl::Cancel).await.unwrap();
    world.stop().await;
}

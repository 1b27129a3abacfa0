//! Steps of an operator's job on the scheduled messages of a topic.

use super::*;
use crate::command::{Act, ActResult, Deed, JobStep, NewInstant, OperatorCommand};
use crate::ids::JobId;
use crate::time::TimeSpan;

fn schedule(stand: &mut Stand, after: TimeSpan) {
    let mut message = Message::new("a");
    message.scheduled_enqueue_time = Some(stand.now.plus(after));
    let content = message.encode();
    let envelope = content.envelope(&PropertyLimits::default(), &KEY);
    stand.apply(Command::Send { message: InboundMessage { content, envelope } }).unwrap();
    stand.topic.committed(StageNumber(1));
}

fn ask(
    stand: &mut Stand,
    sub_queue: SubQueue,
    numbers: &[u64],
    deed: Deed,
    step: Option<u64>,
) -> Result<Vec<ActResult>, Condition> {
    let sequences = numbers.iter().copied().map(SequenceNumber).collect();
    let step = step.map(|number| JobStep { job: JobId(1), number });
    let act = Act { step, sequences, deed, breaks_locks: false, kept: None };
    let command = Command::OfOperator(OperatorCommand::Act(Box::new(act)));
    let mut output = StepOutput::default();
    let answer =
        stand.ctx_of(|topic, ctx| topic.apply(Ticket(1), sub_queue, command, ctx, &mut output));
    stand.topic.committed(StageNumber(1));
    stand.topic.check_invariants().unwrap();
    match answer {
        Ok(Answer::Now(Outcome::Acted(all), Gate::Commit)) => {
            Ok(all.iter().map(|one| one.result).collect())
        }
        Ok(other) => panic!("{other:?}"),
        Err(rejection) => Err(rejection.condition()),
    }
}

/// CON-12, SCH-10: scheduled messages of a topic are deleted and rescheduled. Other deeds are
/// refused. A message that is due is busy until it is published.
#[test]
fn scheduled_messages_of_a_topic_are_acted_on() {
    use ActResult::{Busy, Done, NotFound};
    let mut stand = Stand::new(1);
    let hour = TimeSpan::from_minutes(60);
    for _ in 0..3 {
        schedule(&mut stand, hour);
    }
    let later = Deed::Reschedule(NewInstant::Later(hour));
    let main = SubQueue::Main;
    assert_eq!(ask(&mut stand, main, &[1, 9], later.clone(), None), Ok(vec![Done, NotFound]));
    assert_eq!(stand.topic.next_deadline(), Some(stand.now.plus(hour)));
    assert_eq!(ask(&mut stand, main, &[2], Deed::Delete, Some(1)), Ok(vec![Done]));
    assert_eq!(ask(&mut stand, main, &[2], Deed::Delete, Some(1)), Ok(vec![Done]), "repeated");
    assert_eq!(stand.topic.counts().scheduled, 2);
    let dead = Deed::DeadLetter { reason: None, description: None };
    for (sub_queue, deed, condition) in [
        (main, dead.clone(), Condition::InvalidOperation),
        (main, Deed::Undefer, Condition::InvalidOperation),
        (SubQueue::DeadLetter, Deed::Delete, Condition::EntityNotFound),
        (SubQueue::TransferDeadLetter, dead, Condition::InvalidOperation),
    ] {
        assert_eq!(ask(&mut stand, sub_queue, &[1], deed, None), Err(condition));
    }
    let transfer = SubQueue::TransferDeadLetter;
    assert_eq!(ask(&mut stand, transfer, &[1], Deed::Delete, None), Ok(vec![NotFound]));
    stand.now = stand.now.plus(hour);
    let mut step = StepOutput::default();
    stand.ctx_of(|topic, ctx| topic.advance(ctx, &mut step));
    assert_eq!(ask(&mut stand, main, &[3, 1], later, None), Ok(vec![Busy, Done]));
}

/// CON-12, SCH-10: a message whose publishing failed and is tried again later can be rescheduled,
/// which ends the attempts, and deleted.
#[test]
fn message_that_waits_for_another_attempt_is_acted_on() {
    let mut stand = Stand::new(1);
    let hour = TimeSpan::from_minutes(60);
    schedule(&mut stand, hour);
    schedule(&mut stand, hour);
    stand.now = stand.now.plus(hour);
    let mut step = StepOutput::default();
    stand.ctx_of(|topic, ctx| topic.advance(ctx, &mut step));
    let unread = vec![(SequenceNumber(1), None), (SequenceNumber(2), None)];
    stand.ctx_of(|topic, ctx| topic.publish_due(unread, ctx, &mut step));
    let again = stand.now.plus(TimeSpan::from_minutes(1));
    assert_eq!(stand.topic.next_deadline(), Some(again));
    let later = Deed::Reschedule(NewInstant::At(stand.now.plus(hour)));
    let done = Ok(vec![ActResult::Done]);
    assert_eq!(ask(&mut stand, SubQueue::Main, &[1], later, None), done);
    assert_eq!(ask(&mut stand, SubQueue::Main, &[2], Deed::Delete, None), done);
    assert_eq!(stand.topic.next_deadline(), Some(stand.now.plus(hour)));
    assert_eq!(stand.topic.counts().scheduled, 1);
}

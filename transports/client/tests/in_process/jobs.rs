//! Tests of typed jobs: sending, handling by functions and actors, and dead-lettering of other
//! messages.

use actix::{Actor, ActorContext as _, Context, Handler, ResponseFuture};
use peeklock_client::{
    ConsumerOptions, Job, JobError, JobType, Refusal, SessionConsumerOptions, SessionJob, actors,
    job_message, jobs, json_message,
};
use peeklock_core::Broker;
use peeklock_core::condition::Condition;
use peeklock_core::description::QueueUpdate;
use peeklock_core::message::Message;
use peeklock_core::path::dead_letter_path;
use peeklock_core::time::TimeSpan;
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::local::Local;

const WAIT: TimeSpan = TimeSpan::from_seconds(30);

#[derive(Clone, PartialEq, Debug, Serialize, Deserialize)]
struct Invoice {
    number: u32,
}

impl JobType for Invoice {
    const NAME: &'static str = "invoice";
}

async fn client() -> Local {
    let client = Local::new(Broker::builder().arbiters(1).start().await.unwrap());
    client.admin().create_queue("invoices").await.unwrap();
    client
}

/// A job arrives at a function as a typed value; an id, a session and an instant are properties of
/// its message.
#[tokio::test]
async fn a_function_takes_jobs() {
    let client = client().await;
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let handler = jobs(move |job: Job<Invoice>| {
        assert!(job.session.is_none());
        let id = format!("{:?}", job.message.message().message_id);
        seen.send((job.value, id)).unwrap();
        async { Ok(()) }
    });
    let consumer = client.consume("invoices", handler, ConsumerOptions::at_once(1)).await.unwrap();
    let sender = client.sender("invoices").unwrap();
    assert_eq!(sender.send_job(&Invoice { number: 1 }).await.unwrap().0, 1);
    let named = job_message(&Invoice { number: 2 }).unwrap().with_message_id("two");
    sender.send(named).await.unwrap();
    assert_eq!(arrivals.recv().await.unwrap().0, Invoice { number: 1 });
    let (second, id) = arrivals.recv().await.unwrap();
    assert_eq!(second, Invoice { number: 2 });
    assert!(id.contains("two"), "{id}");
    consumer.stop().await;
    assert_eq!(client.admin().queue("invoices").await.unwrap().counts.total(), 0);
    client.stop().await;
}

/// SET-05: a message that is not such a job is dead-lettered, with a reason for programs and a
/// description with the type and the flaw. The handler never sees it.
#[tokio::test]
async fn other_messages_are_dead_lettered_with_a_reason() {
    let client = client().await;
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let handler = jobs(move |job: Job<Invoice>| {
        seen.send(job.value.number).unwrap();
        async { Ok(()) }
    });
    let json = |text: &str| Message::new(text.to_owned()).with_content_type("application/json");
    let one = r#"{"number":1}"#;
    let wrong = [
        (
            Message::new(one),
            "ContentTypeNotSupported",
            "message 1 is not a job `invoice`: its content type is ``, not `application/json`",
        ),
        (
            json(one).with_content_type("text/plain"),
            "ContentTypeNotSupported",
            "message 2 is not a job `invoice`: its content type is `text/plain`, not \
             `application/json`",
        ),
        (
            json(one).with_subject("receipt"),
            "JobTypeNotExpected",
            "message 3 is not a job `invoice`: its subject is `receipt`",
        ),
        (
            json("{}"),
            "BodyNotReadable",
            "message 4 is not a job `invoice`: missing field `number` at line 1 column 2",
        ),
        (
            json("nonsense").with_subject("invoice"),
            "BodyNotReadable",
            "message 5 is not a job `invoice`: expected ident at line 1 column 2",
        ),
    ];
    let sender = client.sender("invoices").unwrap();
    for (message, ..) in &wrong {
        sender.send(message.clone()).await.unwrap();
    }
    // Valid jobs: without a subject, and with a parameter in the content type.
    for number in [6, 7] {
        let message = json_message(&Invoice { number }).unwrap();
        let message = message.with_content_type("Application/JSON; charset=utf-8");
        sender.send(message).await.unwrap();
    }
    let consumer = client.consume("invoices", handler, ConsumerOptions::at_once(1)).await.unwrap();
    assert_eq!((arrivals.recv().await, arrivals.recv().await), (Some(6), Some(7)));
    consumer.stop().await;
    let dead = client.receiver(&dead_letter_path("invoices")).unwrap();
    let letters = dead.receive_many(10, WAIT).await.unwrap();
    let told: Vec<_> = letters
        .iter()
        .map(|letter| {
            let description = letter.dead_letter_error_description().unwrap_or_default();
            (letter.dead_letter_reason().unwrap_or_default(), description)
        })
        .collect();
    assert_eq!(told, wrong.each_ref().map(|(_, reason, description)| (*reason, *description)));
    assert!(matches!(letters[2].job::<Invoice>(), Err(JobError::Type { .. })));
    client.stop().await;
}

/// A refusal works as for any message. A job of a session contains its session (SES-24).
#[tokio::test]
async fn jobs_of_sessions_have_their_session() {
    let client = client().await;
    let by_session = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
    client.admin().create_queue_with("steps", by_session).await.unwrap();
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let handler = jobs(move |job: Job<Invoice>| {
        let session = job.session.unwrap();
        let again = job.message.delivery_count() == 2;
        seen.send((session.session_id().to_owned(), job.value.number, again)).unwrap();
        async move { if again { Ok(()) } else { Err(Refusal::abandon()) } }
    });
    let options = SessionConsumerOptions::at_once(1);
    let consumer = client.consume_sessions("steps", handler, options).await.unwrap();
    let message = job_message(&Invoice { number: 3 }).unwrap().with_session_id("s");
    client.sender("steps").unwrap().send(message).await.unwrap();
    assert_eq!(arrivals.recv().await, Some(("s".to_owned(), 3, false)));
    assert_eq!(arrivals.recv().await, Some(("s".to_owned(), 3, true)));
    consumer.stop().await;
    client.stop().await;
}

/// Records each job with its session, and refuses numbers over 9.
async fn book(
    job: SessionJob<Invoice>,
    seen: mpsc::UnboundedSender<(String, u32)>,
) -> Result<(), Refusal> {
    seen.send((job.session.session_id().to_owned(), job.value.number)).unwrap();
    if job.value.number > 9 {
        job.refuse(Refusal::dead_letter("TooLarge", "as asked")).await?;
        return Err(Refusal::already_settled());
    }
    Ok(())
}

struct Booker(mpsc::UnboundedSender<(String, u32)>);

impl Actor for Booker {
    type Context = Context<Self>;
}

impl Handler<SessionJob<Invoice>> for Booker {
    type Result = ResponseFuture<Result<(), Refusal>>;

    fn handle(&mut self, job: SessionJob<Invoice>, _: &mut Self::Context) -> Self::Result {
        Box::pin(book(job, self.0.clone()))
    }
}

/// SES-19, SET-05: functions and actors get jobs of sessions in order, each with its session.
/// Another message is dead-lettered with the reason, and does not block the session.
#[actix_rt::test]
async fn functions_and_actors_take_jobs_of_sessions() {
    let client = client().await;
    let (seen, mut arrivals) = mpsc::unbounded_channel();
    let options = SessionConsumerOptions::at_once(1);
    let by_session = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
    for queue in ["functions", "actors"] {
        client.admin().create_queue_with(queue, by_session.clone()).await.unwrap();
        let sender = client.sender(queue).unwrap();
        for number in [1, 12, 2] {
            let message = job_message(&Invoice { number }).unwrap().with_session_id("s");
            sender.send(message).await.unwrap();
            sender.send(Message::new("none").with_session_id("s")).await.unwrap();
        }
        let consumer = if queue == "functions" {
            let seen = seen.clone();
            let handler = jobs(move |job: SessionJob<Invoice>| book(job, seen.clone()));
            client.consume_sessions(queue, handler, options).await
        } else {
            let seen = seen.clone();
            let bookers = actors(move || Booker(seen.clone()).start().recipient());
            client.consume_sessions(queue, jobs::<SessionJob<Invoice>, _>(bookers), options).await
        };
        for number in [1, 12, 2] {
            assert_eq!(arrivals.recv().await, Some(("s".to_owned(), number)), "{queue}");
        }
        let dead = client.receiver(&dead_letter_path(queue)).unwrap();
        let mut reasons = Vec::new();
        while reasons.len() < 4 {
            for letter in dead.receive_many(9, WAIT).await.unwrap() {
                reasons.push(letter.dead_letter_reason().unwrap_or_default().to_owned());
                dead.complete(&letter).await.unwrap();
            }
        }
        reasons.sort();
        let none = "ContentTypeNotSupported";
        assert_eq!(reasons, [none, none, none, "TooLarge"], "{queue}");
        consumer.unwrap().stop().await;
        assert_eq!(client.admin().queue(queue).await.unwrap().counts.total(), 0, "{queue}");
    }
    client.stop().await;
}

struct Bookkeeper {
    booked: mpsc::UnboundedSender<u32>,
}

impl Actor for Bookkeeper {
    type Context = Context<Self>;
}

impl Handler<Job<Invoice>> for Bookkeeper {
    type Result = Result<(), Refusal>;

    fn handle(&mut self, job: Job<Invoice>, context: &mut Self::Context) -> Self::Result {
        self.booked.send(job.value.number).ok();
        if job.value.number == 0 {
            context.stop();
        }
        Ok(())
    }
}

/// An actor receives jobs as actor messages. When the actor stops, its consumer ends with the
/// reason.
#[actix_rt::test]
async fn an_actor_takes_jobs() {
    let client = client().await;
    let (booked, mut arrivals) = mpsc::unbounded_channel();
    let bookkeeper = Bookkeeper { booked }.start();
    let handler = jobs(bookkeeper.recipient());
    let consumer = client.consume("invoices", handler, ConsumerOptions::default()).await.unwrap();
    client.sender("invoices").unwrap().send_job(&Invoice { number: 4 }).await.unwrap();
    assert_eq!(arrivals.recv().await, Some(4));
    client.sender("invoices").unwrap().send_job(&Invoice { number: 0 }).await.unwrap();
    let why = consumer.ended().await.unwrap();
    assert_eq!(why.condition(), Condition::OperationCancelled);
    assert_eq!(arrivals.recv().await, Some(0));
    client.stop().await;
}

/// A value that cannot be written as JSON is refused before anything is sent.
#[tokio::test]
async fn an_unwritable_job_is_not_sent() {
    #[derive(Serialize)]
    struct Odd(#[serde(serialize_with = "refuse")] ());
    fn refuse<S: serde::Serializer>(_: &(), _: S) -> Result<S::Ok, S::Error> {
        Err(serde::ser::Error::custom("as asked"))
    }
    impl JobType for Odd {
        const NAME: &'static str = "odd";
    }
    let client = client().await;
    let error = client.sender("invoices").unwrap().send_job(&Odd(())).await.unwrap_err();
    assert_eq!(error.condition(), Condition::ArgumentError);
    assert!(error.to_string().contains("`odd`"), "{error}");
    assert_eq!(client.admin().queue("invoices").await.unwrap().counts.total(), 0);
    client.stop().await;
}

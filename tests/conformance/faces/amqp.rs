//! Checks for each operation over AMQP that it uses this process exactly as the table lists.

use std::cell::RefCell;

use peeklock_core::command::{ReceiveMode, SessionFilter};
use peeklock_core::description::{QueueUpdate, SubscriptionUpdate, TopicUpdate};
use peeklock_core::message::Message;
use peeklock_core::rule::{Filter, RuleDescription};
use peeklock_core::time::{TimeSpan, Timestamp};

use crate::stage::{ORDERS, Setup, Stage, block_on, message, minutes};
use crate::subject::{Answer, Decision, Seen, Subject, Work};
use crate::subjects::Transport;
use crate::subjects::amqp::Amqp;
use crate::subjects::amqp::in_process::{Row, TABLE};

const OTHER: &str = "other";
const SESSIONS: &str = "sessions";
const EVENTS: &str = "events";
const AUDIT: &str = "events/Subscriptions/audit";

/// The operation uses only AMQP.
const NONE: &[Row] = &[];

/// Runs operations and compares the rows that each has used.
struct Judge<'a> {
    amqp: &'a Amqp,
    used: RefCell<Vec<Row>>,
}

impl Judge<'_> {
    fn amqp(&self) -> &dyn Subject {
        self.amqp
    }

    /// Asserts that an operation succeeds and uses exactly these rows.
    async fn uses<T>(
        &self,
        rows: &[Row],
        what: &str,
        operation: impl Future<Output = Answer<T>>,
    ) -> T {
        let done = operation.await.unwrap();
        assert_eq!(self.amqp.done_in_process(), rows, "{what}");
        self.used.borrow_mut().extend_from_slice(rows);
        done
    }

    async fn take(&self) -> Seen {
        let taken = self.amqp().receive(ORDERS, ReceiveMode::PeekLock, 1, TimeSpan::ZERO);
        self.uses(NONE, "receive", taken).await.remove(0)
    }

    async fn queues(&self) {
        let (amqp, rows) = (self.amqp(), &[Row::Entities]);
        let properties = QueueUpdate::default;
        let created = self.uses(rows, "create", amqp.create(ORDERS, properties())).await;
        let update = amqp.update_of(ORDERS, properties(), created.updated_at);
        self.uses(rows, "update_of", update).await;
        self.uses(rows, "update", amqp.update(ORDERS, properties())).await;
        self.uses(rows, "describe", amqp.describe(ORDERS)).await;
        self.uses(rows, "list", amqp.list(0, 10)).await;
        self.uses(rows, "delete", amqp.delete(ORDERS)).await;
        self.uses(rows, "create", amqp.create(ORDERS, properties())).await;
        self.uses(rows, "create", amqp.create(OTHER, properties())).await;
        let sessions = QueueUpdate { requires_session: Some(true), ..properties() };
        self.uses(rows, "create", amqp.create(SESSIONS, sessions)).await;
    }

    async fn topics(&self) {
        let (amqp, rows) = (self.amqp(), &[Row::Entities]);
        self.uses(rows, "create_topic", amqp.create_topic(EVENTS)).await;
        self.uses(rows, "topic", amqp.topic(EVENTS)).await;
        let update = amqp.update_topic_of(EVENTS, TopicUpdate::default(), None);
        self.uses(rows, "update_topic_of", update).await;
        self.uses(rows, "topic_paths", amqp.topic_paths(0, 10)).await;
        let create = amqp.create_subscription(EVENTS, "audit");
        self.uses(rows, "create_subscription", create).await;
        self.uses(rows, "subscription", amqp.subscription(AUDIT)).await;
        let update = amqp.update_subscription_of(AUDIT, SubscriptionUpdate::default(), None);
        self.uses(rows, "update_subscription_of", update).await;
        self.uses(rows, "subscription_paths", amqp.subscription_paths(EVENTS, 0, 10)).await;
    }

    async fn rules(&self) {
        let amqp = self.amqp();
        let rule = || RuleDescription::new("mine", Filter::sql("price > 3"), Timestamp::NONE);
        self.uses(NONE, "create_rule", amqp.create_rule(AUDIT, rule())).await;
        self.uses(NONE, "rule", amqp.rule(AUDIT, "mine")).await;
        self.uses(NONE, "rules", amqp.rules(AUDIT, 0, 10)).await;
        self.uses(&[Row::Rules], "update_rule", amqp.update_rule(AUDIT, rule())).await;
        self.uses(&[Row::Rules], "explain", amqp.explain(AUDIT, message("x"))).await;
        self.uses(NONE, "delete_rule", amqp.delete_rule(AUDIT, "mine")).await;
        let rows = &[Row::Entities];
        self.uses(rows, "delete_subscription", amqp.delete_subscription(AUDIT)).await;
        self.uses(rows, "delete_topic", amqp.delete_topic(EVENTS)).await;
    }

    async fn messages(&self, now: Timestamp) {
        let amqp = self.amqp();
        self.uses(&[Row::Numbers], "send", amqp.send(ORDERS, message("x"))).await;
        let batch = vec![message("y"), message("z"), message("last")];
        self.uses(&[Row::Numbers], "send_batch", amqp.send_batch(ORDERS, batch)).await;
        let schedule = amqp.schedule(ORDERS, message("later"), now.plus(minutes(5)));
        let scheduled = self.uses(NONE, "schedule", schedule).await;
        self.uses(NONE, "cancel", amqp.cancel(ORDERS, &[scheduled])).await;
        self.uses(NONE, "peek", amqp.peek(ORDERS, 0, 10)).await;
        let seen = self.take().await;
        self.uses(NONE, "renew", amqp.renew(ORDERS, seen.token())).await;
        let tokens = [seen.token().to_owned()];
        self.uses(NONE, "complete_many", amqp.complete_many(ORDERS, &tokens)).await;
        for _ in 0..2 {
            let seen = self.take().await;
            let defer = amqp.settle(ORDERS, seen.token(), Decision::Defer(vec![]));
            self.uses(NONE, "settle", defer).await;
            if seen.text() == "y" {
                let numbers = [seen.sequence];
                let mode = ReceiveMode::ReceiveAndDelete;
                let received = amqp.receive_deferred(ORDERS, mode, &numbers);
                self.uses(NONE, "receive_deferred", received).await;
            } else {
                let delete = amqp.delete_deferred(ORDERS, seen.sequence);
                self.uses(&[Row::Deferred], "delete_deferred", delete).await;
            }
        }
        self.uses(NONE, "delete_batch", amqp.delete_batch(ORDERS, 10, None)).await;
        self.uses(NONE, "purge", amqp.purge(ORDERS)).await;
    }

    async fn sessions(&self, now: Timestamp) {
        let amqp = self.amqp();
        let of_session = Message { session_id: Some("a".into()), ..message("x") };
        self.uses(&[Row::Numbers], "send", amqp.send(SESSIONS, of_session)).await;
        let list = |which| amqp.sessions(SESSIONS, which, 0, 10);
        self.uses(&[Row::Sessions], "sessions", list(SessionFilter::All)).await;
        let filters = [SessionFilter::WithActiveMessages, SessionFilter::StateSetAfter(now)];
        for which in filters {
            self.uses(NONE, "sessions of a filter", list(which)).await;
        }
        let mode = ReceiveMode::PeekLock;
        let accept = amqp.accept(SESSIONS, Some("a"), mode, TimeSpan::ZERO);
        let held = self.uses(NONE, "accept", accept).await;
        self.uses(NONE, "set_state", held.set_state(Some("state".into()))).await;
        self.uses(NONE, "state", held.state()).await;
        self.uses(NONE, "renew of a session", held.renew()).await;
        self.uses(NONE, "close", held.close()).await;
        let delete = amqp.delete_unlocked(SESSIONS, 10);
        self.uses(&[Row::Unlocked], "delete_unlocked", delete).await;
    }

    async fn transactions(&self) {
        let amqp = self.amqp();
        let begun = self.uses(NONE, "begin", amqp.begin()).await;
        let send = amqp.within(begun, ORDERS, Work::Send(message("x")));
        self.uses(NONE, "within", send).await;
        self.uses(&[Row::Outcomes], "commit", amqp.commit(begun)).await;
        let begun = self.uses(NONE, "begin", amqp.begin()).await;
        self.uses(NONE, "roll_back", amqp.roll_back(begun)).await;
        let attached = async { amqp.sender_via(OTHER, ORDERS).await.unwrap() };
        let via = self.uses(NONE, "sender_via", attached).await;
        self.uses(&[Row::Numbers], "send by way", via.send(message("x"))).await;
        let batch = vec![message("y")];
        self.uses(&[Row::Numbers], "send_batch by way", via.send_batch(batch)).await;
    }
}

/// FND-05: an operation over AMQP uses this process only for the rows of the table that it needs,
/// and every row is used.
#[test]
fn amqp_uses_this_process_only_for_rows_of_its_table() {
    block_on(async {
        let stage = Stage::open(Transport::Amqp, Setup::default()).await;
        let amqp = Amqp::open(stage.broker(), &stage.clock).await;
        let judge = Judge { amqp: &amqp, used: RefCell::default() };
        judge.queues().await;
        judge.topics().await;
        judge.rules().await;
        judge.messages(stage.now()).await;
        judge.sessions(stage.now()).await;
        judge.transactions().await;
        for (row, what, _) in TABLE {
            assert!(judge.used.borrow().contains(&row), "{row:?}: no operation needs that {what}");
        }
        amqp.stop().await;
        stage.stop().await;
    });
}

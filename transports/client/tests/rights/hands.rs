//! The handles of a client, and the operations on them.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};

use peeklock_client::{
    Client, ConsumerOptions, Delivery, Received, Receiver, Refusal, Sender, SessionReceiver,
};
use peeklock_core::command::{Act, Deed, ReceiveMode, SessionFilter};
use peeklock_core::contract::{AuditQuery, Right, Rights};
use peeklock_core::declaration::{Declaration, DeclaredQueue};
use peeklock_core::description::{Cleared, QueueUpdate, SubscriptionUpdate, TopicUpdate};
use peeklock_core::error::BrokerError;
use peeklock_core::ids::{JobId, SequenceNumber};
use peeklock_core::inspect::{
    CheckKind, ClientId, HeadQuery, JobControl, JobDraft, JobSelection, MuteChange, Question,
};
use peeklock_core::message::Message;
use peeklock_core::path::dead_letter_path;
use peeklock_core::policies::{PolicyUpdate, WhichKey};
use peeklock_core::rule::{Filter, RuleDescription};
use peeklock_core::time::{TimeSpan, Timestamp};

use crate::world::{Place, SUBSCRIPTION};

/// Counter for unique session ids, so that clients do not compete.
static SESSIONS: AtomicU32 = AtomicU32::new(0);

/// The reason for a refusal; a handle that could not be opened returns it repeatedly.
type Refused = Arc<BrokerError>;
type Opened<T> = Result<T, Refused>;

/// Open handles, or the reasons why they could not be opened.
pub struct Hands {
    client: Client,
    pub at: Place,
    sender: Opened<Sender>,
    via: Opened<Sender>,
    publisher: Opened<Sender>,
    receiver: Opened<Receiver>,
    remover: Opened<Receiver>,
    dead: Opened<Receiver>,
    subscriber: Opened<Receiver>,
    /// Receiver of the session queue, without a session.
    browser: Opened<Receiver>,
    session: Opened<SessionReceiver>,
}

fn open<T>(handle: &Opened<T>) -> Result<&T, Refused> {
    handle.as_ref().map_err(Arc::clone)
}

fn message() -> Message {
    Message::new("a")
}

/// Returns the first result of a list; an error of a whole list is the result of each item.
fn first<T>(results: Vec<Result<T, BrokerError>>) -> Result<(), BrokerError> {
    results.into_iter().next().unwrap().map(drop)
}

impl Hands {
    pub async fn of(client: Client, at: Place) -> Self {
        let Place { to, from, sessions } = at;
        let session = SESSIONS.fetch_add(1, Ordering::Relaxed).to_string();
        Self {
            sender: client.sender(to).map_err(Arc::new),
            via: client.sender_via("sibling", to).map_err(Arc::new),
            publisher: client.sender("news").map_err(Arc::new),
            receiver: client.receiver(from).map_err(Arc::new),
            remover: client.receiver_in(from, ReceiveMode::ReceiveAndDelete).map_err(Arc::new),
            dead: client.receiver(&dead_letter_path(from)).map_err(Arc::new),
            subscriber: client.receiver(SUBSCRIPTION).map_err(Arc::new),
            browser: client.receiver(sessions).map_err(Arc::new),
            session: client.accept_session(sessions, &session).await.map_err(Arc::new),
            client,
            at,
        }
    }

    /// Performs the operation with this name.
    pub async fn operate(&self, name: &str, locked: &Received) -> Result<(), Refused> {
        let is_done = self.send(name).await?
            || self.receive(name).await?
            || self.settle(name, locked).await?
            || self.use_session(name).await?
            || self.inspect(name).await?
            || self.act_as_operator(name).await?
            || self.manage_queue(name).await?
            || self.manage_topic(name).await?
            || self.manage_policy(name).await?;
        assert!(is_done, "there is no operation {name}");
        Ok(())
    }

    async fn send(&self, name: &str) -> Result<bool, Refused> {
        let sender = || open(&self.sender);
        let later = self.client.now().plus(TimeSpan::from_minutes(9));
        match name {
            "send" => sender()?.send(message()).await.map(drop)?,
            "send many" => first(sender()?.send_many(vec![message(), message()]).await)?,
            "send batch" => sender()?.send_batch(vec![message(), message()]).await.map(drop)?,
            "schedule" => sender()?.schedule(message(), later).await.map(drop)?,
            "cancel scheduled" => sender()?.cancel_scheduled(vec![SequenceNumber(9)]).await?,
            "publish" => open(&self.publisher)?.send(message()).await.map(drop)?,
            "send via" => open(&self.via)?.send(message()).await.map(drop)?,
            "send in a transaction" => {
                let transaction = self.client.begin_transaction().await?;
                transaction.send(sender()?, message()).await?;
                transaction.commit().await?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    async fn receive(&self, name: &str) -> Result<bool, Refused> {
        let (zero, from) = (TimeSpan::ZERO, SequenceNumber(0));
        let receiver = || open(&self.receiver);
        match name {
            "receive" => receiver()?.receive(zero).await.map(drop)?,
            "receive and delete" => open(&self.remover)?.receive(zero).await.map(drop)?,
            "receive of the dead letters" => open(&self.dead)?.receive(zero).await.map(drop)?,
            "receive of a subscription" => {
                open(&self.subscriber)?.receive(zero).await?;
            }
            "receive deferred" => {
                receiver()?.receive_deferred(vec![SequenceNumber(9)]).await?;
            }
            "peek" => receiver()?.peek(from, 1).await.map(drop)?,
            "peek next" => receiver()?.peek_next(1).await.map(drop)?,
            "peek session" => open(&self.browser)?.peek_session("s", from, 1).await.map(drop)?,
            "delete batch" => receiver()?.delete_batch(1, None).await.map(drop)?,
            "delete most" => receiver()?.delete_most(Timestamp::NONE).await.map(drop)?,
            "purge" => receiver()?.purge().await.map(drop)?,
            "consume" => {
                let handler = |_: Delivery| async { Ok::<(), Refusal>(()) };
                let consumer =
                    self.client.consume(self.at.from, handler, ConsumerOptions::default()).await?;
                consumer.stop().await;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    async fn settle(&self, name: &str, locked: &Received) -> Result<bool, Refused> {
        let token = locked.lock_token().unwrap();
        let receiver = || open(&self.receiver);
        match name {
            "complete" => receiver()?.complete(locked).await?,
            "complete many" => first(receiver()?.complete_many(&[token, token]).await)?,
            "abandon" => receiver()?.abandon(locked, &[]).await?,
            "abandon with delay" => {
                receiver()?.abandon_with_delay(locked, TimeSpan::from_seconds(1), &[]).await?;
            }
            "defer" => receiver()?.defer(locked, &[]).await?,
            "dead-letter" => receiver()?.dead_letter(locked, None, None, &[]).await?,
            "release" => receiver()?.release(locked).await?,
            "release many" => first(receiver()?.release_many(&[token, token]).await)?,
            "settle token" => receiver()?.settle_token(token, Ok(())).await?,
            "renew lock" => receiver()?.renew_lock(locked).await.map(drop)?,
            "renew many" => first(receiver()?.renew_many(&[token, token]).await)?,
            "complete in a transaction" => {
                let transaction = self.client.begin_transaction().await?;
                transaction.complete(receiver()?, locked).await?;
            }
            "renew lock in a transaction" => {
                let transaction = self.client.begin_transaction().await?;
                transaction.renew_lock(receiver()?, locked).await?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    async fn use_session(&self, name: &str) -> Result<bool, Refused> {
        let (session, sessions) = (|| open(&self.session), self.at.sessions);
        match name {
            "accept session" => self.client.accept_session(sessions, "more").await.map(drop)?,
            "accept next session" => {
                self.client.accept_next_session(sessions, TimeSpan::ZERO).await?;
            }
            "list sessions" => {
                self.client.sessions(sessions, SessionFilter::All, 0, 9).await?;
            }
            "receive in a session" => session()?.receive(TimeSpan::ZERO).await.map(drop)?,
            "renew session" => session()?.renew_lock().await.map(drop)?,
            "session state" => session()?.state().await.map(drop)?,
            "set session state" => session()?.set_state(None).await?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    async fn inspect(&self, name: &str) -> Result<bool, Refused> {
        let (admin, Place { from, sessions, .. }) = (self.client.admin(), self.at);
        let body = Question::Body { sequence: SequenceNumber(9), from: 0, length: 1 };
        let state = Question::SessionState { session: "s".into(), from: 0, length: 1 };
        match name {
            "inspect" => admin.inspect(from, Question::Heads(HeadQuery::default())).await?,
            "inspect a body" => admin.inspect(from, body).await?,
            "inspect sessions" => admin.inspect(sessions, state).await?,
            _ => return Ok(false),
        };
        Ok(true)
    }

    async fn act_as_operator(&self, name: &str) -> Result<bool, Refused> {
        let (admin, Place { from, sessions, .. }) = (self.client.admin(), self.at);
        match name {
            "break locks" => {
                admin.break_locks(from, vec![SequenceNumber(9)], false).await.map(drop)?
            }
            "act on messages" => {
                let sequences = vec![SequenceNumber(9)];
                let deed = Deed::Undefer;
                let act = Act { step: None, sequences, deed, breaks_locks: false, kept: None };
                admin.act(from, act).await.map(drop)?
            }
            "create job" => {
                let draft = JobDraft {
                    selection: JobSelection::Numbers(vec![SequenceNumber(9)]),
                    deed: Deed::Undefer,
                    breaks_locks: false,
                    rate: 1,
                    trial: None,
                };
                admin.create_job(from, draft).await.map(drop)?
            }
            "control job" => admin.control_job(JobId(1), JobControl::Pause).await.map(drop)?,
            "read job" => admin.job(JobId(1)).await.map(drop)?,
            "forget job" => admin.forget_job(from, JobId(1)).await?,
            "break session" => admin.break_session(sessions, "none", true).await.map(drop)?,
            "set state of session" => admin.set_session_state(sessions, "none", None).await?,
            "mute finding" => {
                let unmute = MuteChange::Unmute { kind: CheckKind::NearlyFull };
                admin.mute_finding("orders", unmute).await?;
            }
            "close client" => admin.close_client(ClientId(u64::MAX)).await?,
            "read audit" => {
                let question = Question::Audit(AuditQuery::default());
                admin.inspect("", question).await.map(drop)?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    async fn manage_queue(&self, name: &str) -> Result<bool, Refused> {
        let (admin, none) = (self.client.admin(), QueueUpdate::default);
        let to =
            |path: &str| QueueUpdate { forward_to: Some(path.into()), ..QueueUpdate::default() };
        match name {
            "create queue" => admin.create_queue("orders").await.map(drop)?,
            "create another queue" => admin.create_queue("fresh").await.map(drop)?,
            "create queue that forwards" => {
                admin.create_queue_with("fresh", to("orders")).await?;
            }
            "queue" => admin.queue("orders").await.map(drop)?,
            "queue exists" => admin.queue_exists("orders").await.map(drop)?,
            "update queue" => admin.update_queue("orders", none()).await.map(drop)?,
            "update queue of" => {
                admin.update_queue_of("orders", none(), self.client.now()).await?;
            }
            "change queue" => {
                admin.change_queue("orders", none(), Cleared::default()).await?;
            }
            "forward" => admin.update_queue("orders", to("sibling")).await.map(drop)?,
            "delete queue" => admin.delete_queue("sibling").await?,
            "delete absent queue" => admin.delete_queue("absent").await?,
            "delete deferred" => admin.delete_deferred(self.at.from, SequenceNumber(9)).await?,
            "delete unlocked" => {
                admin.delete_batch_unlocked(self.at.from, Some(1), None).await?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    async fn manage_topic(&self, name: &str) -> Result<bool, Refused> {
        let (admin, now) = (self.client.admin(), self.client.now());
        let (topic, none) = (TopicUpdate::default, SubscriptionUpdate::default);
        let rule = |name: &str| RuleDescription::new(name, Filter::True, Timestamp::NONE);
        match name {
            "create topic" => admin.create_topic("news").await.map(drop)?,
            "topic" => admin.topic("news").await.map(drop)?,
            "topic exists" => admin.topic_exists("news").await.map(drop)?,
            "update topic" => admin.update_topic("news", topic()).await.map(drop)?,
            "update topic of" => admin.update_topic_of("news", topic(), now).await.map(drop)?,
            "change topic" => {
                admin.change_topic("news", topic(), Cleared::default()).await?;
            }
            "delete topic" => admin.delete_topic("news").await?,
            "create subscription" => admin.create_subscription("news", "more").await.map(drop)?,
            "subscription" => admin.subscription(SUBSCRIPTION).await.map(drop)?,
            "subscription exists" => admin.subscription_exists(SUBSCRIPTION).await.map(drop)?,
            "update subscription" => {
                admin.update_subscription(SUBSCRIPTION, none()).await?;
            }
            "update subscription of" => {
                admin.update_subscription_of(SUBSCRIPTION, none(), now).await?;
            }
            "change subscription" => {
                let cleared = Cleared::default();
                admin.change_subscription(SUBSCRIPTION, none(), cleared).await?;
            }
            "delete subscription" => admin.delete_subscription(SUBSCRIPTION).await?,
            "create rule" => admin.create_rule(SUBSCRIPTION, rule("more")).await.map(drop)?,
            "update rule" => admin.update_rule(SUBSCRIPTION, rule("r")).await.map(drop)?,
            "delete rule" => admin.delete_rule(SUBSCRIPTION, "r").await?,
            "rule" => admin.rule(SUBSCRIPTION, "r").await.map(drop)?,
            "rules" => admin.rules(SUBSCRIPTION, 0, 9).await.map(drop)?,
            "explain" => admin.explain(SUBSCRIPTION, message()).await.map(drop)?,
            _ => return Ok(false),
        }
        Ok(true)
    }

    async fn manage_policy(&self, name: &str) -> Result<bool, Refused> {
        let (admin, which) = (self.client.admin(), WhichKey::Primary);
        let send =
            || PolicyUpdate { rights: Some(Rights::of(Right::Send)), ..PolicyUpdate::default() };
        let declared = Declaration::new().with_queue(DeclaredQueue::new("orders"));
        match name {
            "policies" => admin.policies("orders").await.map(drop)?,
            "policies of the namespace" => admin.policies("").await.map(drop)?,
            "policy" => admin.policy("orders", "spare").await.map(drop)?,
            "policy keys" => admin.policy_keys("orders", "spare").await.map(drop)?,
            "create policy" => admin.create_policy("orders", "another", send()).await.map(drop)?,
            "update policy" => admin.update_policy("orders", "spare", send()).await.map(drop)?,
            "regenerate key" => {
                admin.regenerate_key("orders", "spare", which, None).await?;
            }
            "delete policy" => admin.delete_policy("orders", "spare").await?,
            "plan" => admin.plan(&declared).await.map(drop)?,
            "carry out" => {
                let nothing = Declaration::new();
                let digest = admin.plan(&nothing).await?.digest();
                admin.carry_out(&declared, digest).await?;
            }
            _ => return Ok(false),
        }
        Ok(true)
    }
}

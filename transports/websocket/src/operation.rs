//! The table of requests of a client and notices of the server: one row each. Each file below has
//! the bodies, the work and the answers of related operations. All management operations are in
//! `manage.rs`, as a table.
//!
//! A new operation is a row, an arm in [`Conversation::operate`] and one in [`Operation::subject`]
//! here, and its part of a file; a new notice has an arm in [`Notice::weight`]. The binary form of
//! a body never changes: an operation with more fields is another operation.

mod attach;
mod authenticate;
mod delete;
mod deliver;
mod forward;
mod hello;
mod join;
mod list_sessions;
mod manage;
mod receive;
mod send;
mod session;
mod settle;
mod settle_ranges;
mod transaction;
mod weight;

use std::sync::Arc;

use peeklock_core::admission::COMMAND_BYTES;
use peeklock_core::command::{Outcome, peeked_bytes};
use peeklock_core::error::Rejection;

use peeklock_link::PendingRequest;

use self::settle_ranges::NamedDeliveries;
pub(crate) use self::{
    attach::*, authenticate::*, delete::*, deliver::*, forward::*, hello::*, join::*,
    list_sessions::*, manage::*, receive::*, send::*, session::*, settle::*, transaction::*,
};
use crate::connection::{AdmittedRequest, Conversation, Done};
use crate::frame::{Empty, WireError, schema};

schema! {
    /// Request of a client.
    enum Operation {
        /// First request of a connection.
        1 "hello" Hello(Hello),
        /// Replaces the token.
        2 "authenticate" Authenticate(Authenticate),
        /// Opens a link to a queue, topic, subscription or sub-queue.
        3 "attach" Attach(Attach),
        /// Ends a link in order.
        4 "detach" Detach(Detach),
        /// Sets the highest delivery number that a receiver may be sent.
        5 "credit" Credit(Credit),
        /// Returns credit that cannot be used at once.
        6 "drain" Drain(LinkOnly),
        /// Sends messages independently of each other.
        7 "send" Send(Send),
        /// Sends messages, all or none.
        8 "sendBatch" SendBatch(Send),
        /// Cancels scheduled messages, all or none.
        9 "cancelScheduled" CancelScheduled(Numbered),
        /// Receives available messages, or waits for them.
        10 "receive" Receive(Receive),
        /// Ends a receive that waits.
        11 "withdraw" Withdraw(Withdraw),
        /// Receives deferred messages by number, all or none.
        12 "receiveDeferred" ReceiveDeferred(Numbered),
        /// Settles messages.
        13 "settle" Settle(Settle),
        /// Renews locks.
        14 "renew" Renew(Renew),
        /// Peeks at messages.
        15 "peek" Peek(Peek),
        /// Deletes available messages.
        16 "deleteBatch" DeleteBatch(DeleteBatch),
        /// Deletes all available messages.
        17 "purge" Purge(Purge),
        /// Deletes one deferred message.
        18 "deleteDeferred" DeleteDeferred(DeleteDeferred),
        /// Shows that the client is there.
        24 "heartbeat" Heartbeat(Empty),
        /// Locks a session and opens a link to it, or waits for one that can be locked.
        25 "acceptSession" AcceptSession(AcceptSession),
        /// Renews a session lock.
        26 "renewSession" RenewSession(LinkOnly),
        /// Reads the state of a session.
        27 "getSessionState" GetSessionState(LinkOnly),
        /// Replaces the state of a session, or clears it.
        28 "setSessionState" SetSessionState(SetSessionState),
        /// Peeks at the messages of a session.
        29 "peekSession" PeekSession(PeekSession),
        /// Lists the sessions of a queue or subscription.
        30 "listSessions" ListSessions(ListSessions),
        /// Deletes available messages of all unlocked sessions.
        31 "deleteUnlocked" DeleteUnlocked(DeleteUnlocked),
        /// Abandons messages with a delay.
        32 "settleDelayed" SettleDelayed(SettleDelayed),
        /// Hands over messages that another broker forwards.
        60 "forward" Forward(Forward),
        /// Opens a link that sends to one queue or topic through another.
        61 "attachVia" AttachVia(AttachVia),
        /// Begins a transaction.
        70 "beginTransaction" BeginTransaction(BeginTransaction),
        /// Sends messages in a transaction.
        71 "sendIn" SendIn(SendIn),
        /// Settles messages in a transaction.
        72 "settleIn" SettleIn(SettleIn),
        /// Renews locks in a transaction.
        73 "renewIn" RenewIn(RenewIn),
        /// Commits a transaction, whole or not at all.
        74 "commit" Commit(CommitTransaction),
        /// Rolls a transaction back.
        75 "rollBack" RollBack(TransactionOnly),
        /// Cancels scheduled messages in a transaction, all or none.
        76 "cancelScheduledIn" CancelScheduledIn(CancelScheduledIn),
        /// Replaces or clears the state of a session in a transaction.
        77 "setSessionStateIn" SetSessionStateIn(SetSessionStateIn),
    } and {
        /// Manages entities, rules, policies and declarations.
        Manage(ManageOperation)
    }
}

schema! {
    /// Notice of the server.
    enum Notice {
        /// Request carried out.
        1 "done" Done(Empty),
        /// Request failed.
        2 "error" Error(WireError),
        /// Answer to the hello.
        3 "welcome" Welcome(Box<Welcome>),
        /// Sequence numbers of sent messages.
        4 "accepted" Accepted(Accepted),
        /// Outcome of a settlement.
        5 "settled" Settled(Settled),
        /// Outcome of a renewal.
        6 "renewed" Renewed(Renewed),
        /// Received or peeked messages.
        7 "received" Received(Messages),
        /// Remaining credit.
        8 "drained" Drained(Drained),
        /// Number of deleted messages.
        9 "deleted" Deleted(Deleted),
        /// A queue.
        10 "queue" Queue(Box<QueueView>),
        /// Queues.
        11 "queues" Queues(QueueList),
        /// Lock on a session.
        12 "sessionAccepted" SessionAccepted(SessionAccepted),
        /// The state of a session.
        13 "sessionState" SessionState(SessionState),
        /// Sessions of a queue or subscription.
        14 "sessions" Sessions(SessionList),
        /// A topic.
        16 "topic" Topic(Box<TopicView>),
        /// Topics.
        17 "topics" Topics(TopicList),
        /// A subscription.
        18 "subscription" Subscription(Box<SubscriptionView>),
        /// Subscriptions of a topic.
        19 "subscriptions" Subscriptions(SubscriptionList),
        /// A rule.
        20 "rule" Rule(Box<RuleForm>),
        /// Rules of a subscription.
        21 "rules" Rules(RuleList),
        /// Effect of each rule of a subscription on a message.
        22 "explained" Explained(Explained),
        /// A policy.
        23 "policy" Policy(Box<PolicyView>),
        /// Policies of the namespace, a queue or a topic.
        24 "policies" Policies(PolicyList),
        /// A policy with its keys.
        25 "policyKeys" PolicyKeys(Box<PolicyKeysView>),
        /// The steps of a declaration.
        26 "plan" Plan(Box<PlanView>),
        /// Outcome of the steps of a declaration.
        27 "carriedOut" CarriedOut(Box<PlanResultView>),
        /// Outcome of forwarded messages.
        28 "forwarded" Forwarded(Forwarded),
        /// Start of a transaction.
        29 "transaction" Transaction(TransactionOnly),
        /// Commit of a transaction.
        30 "committed" Committed(Committed),
        /// Messages for a receiver with credit.
        32 "deliveries" Deliveries(Deliveries),
        /// End of deliveries to a receiver, until it is given credit again.
        33 "detached" Detached(Detached),
        /// Sign that the server is there.
        34 "heartbeat" Heartbeat(Empty),
        /// Announcement that the server will close the connection.
        35 "closing" Closing(Closing),
        /// Answer to a question of an operator.
        36 "findings" Findings(Box<FindingsView>),
        /// Number of locks that were ended.
        37 "locksBroken" LocksBroken(LocksBroken),
        /// Results for messages that an operator acted on.
        38 "acted" Acted(ActedView),
    }
}

/// Link or path that an operation concerns, for errors.
pub(crate) enum Subject {
    Link(u32),
    Path(String),
    Connection,
}

/// Pending answer to a request, with the results that have arrived.
pub(crate) enum PendingAnswer {
    /// Outcome of a command, and the function that makes the answer.
    One(MakeAnswer),
    /// Sequence numbers of messages sent independently of each other.
    Sent(SendResults),
    /// Outcome of settlements.
    Settled(NamedDeliveries),
    /// New ends of renewed locks.
    Renewed(NamedDeliveries),
    /// Checks of operations that join a transaction.
    Joined(JoinChecks),
    /// Outcome of a commit.
    Committed(TransactionCommit),
    /// Answer that the transport itself makes.
    Own,
}

/// Makes the answer from an outcome, with the link and the path of the request.
pub(crate) type MakeAnswer = fn(&mut Conversation, u32, Outcome, &str) -> Result<Notice, Rejection>;

impl PendingAnswer {
    /// Expects only that the command is done.
    pub(crate) const DONE: Self = Self::One(Self::done);

    fn done(_: &mut Conversation, _: u32, _: Outcome, _: &str) -> Result<Notice, Rejection> {
        Ok(Notice::Done(Empty {}))
    }
}

fn unexpected() -> Rejection {
    Rejection::internal("unexpected answer")
}

impl Conversation {
    /// Carries out an operation.
    pub(crate) async fn operate(
        &mut self,
        admitted: AdmittedRequest,
        operation: Operation,
    ) -> Done {
        match operation {
            Operation::Hello(_) => {
                Err(Rejection::invalid_operation("hello was already sent").into())
            }
            Operation::Authenticate(it) => self.authenticate(&admitted, it).await,
            Operation::Heartbeat(_) => self.done(&admitted),
            Operation::Attach(it) => self.attach(admitted, it).await,
            Operation::Detach(it) => self.detach(&admitted, &it),
            Operation::Credit(it) => self.credit(&admitted, &it),
            Operation::Drain(it) => self.drain(admitted, &it),
            Operation::Send(it) => self.send(admitted, it),
            Operation::SendBatch(it) => self.send_batch(admitted, it),
            Operation::CancelScheduled(it) => self.cancel_scheduled(admitted, it),
            Operation::Receive(it) => self.receive(admitted, &it),
            Operation::Withdraw(it) => self.withdraw(&admitted, &it),
            Operation::ReceiveDeferred(it) => self.receive_deferred(admitted, it),
            Operation::Settle(it) => self.settle(admitted, &it),
            Operation::SettleDelayed(it) => self.settle_delayed(admitted, it),
            Operation::Renew(it) => self.renew(admitted, &it),
            Operation::Peek(it) => self.peek(admitted, &it),
            Operation::DeleteBatch(it) => self.delete_batch(admitted, &it),
            Operation::Purge(it) => self.purge(admitted, &it),
            Operation::DeleteDeferred(it) => self.delete_deferred(admitted, &it),
            Operation::AcceptSession(it) => self.accept_session(admitted, it).await,
            Operation::RenewSession(it) => self.renew_session(admitted, &it),
            Operation::GetSessionState(it) => self.session_state(admitted, &it),
            Operation::SetSessionState(it) => self.set_session_state(admitted, it),
            Operation::PeekSession(it) => self.peek_session(admitted, it),
            Operation::ListSessions(it) => self.list_sessions(admitted, it).await,
            Operation::DeleteUnlocked(it) => self.delete_unlocked(admitted, it).await,
            Operation::Forward(it) => self.forward(admitted, it),
            Operation::AttachVia(it) => self.attach_via(admitted, it).await,
            Operation::BeginTransaction(it) => self.begin_transaction(&admitted, &it),
            Operation::SendIn(it) => self.send_in(admitted, it).await,
            Operation::SettleIn(it) => self.settle_in(admitted, it).await,
            Operation::RenewIn(it) => self.renew_in(admitted, it).await,
            Operation::Commit(it) => self.commit(admitted, &it),
            Operation::RollBack(it) => self.roll_back(&admitted, &it),
            Operation::CancelScheduledIn(it) => self.cancel_scheduled_in(admitted, it).await,
            Operation::SetSessionStateIn(it) => self.set_session_state_in(admitted, it).await,
            Operation::Manage(it) => self.manage(admitted, *it),
        }
    }

    /// Takes the result of one command of an operation.
    pub(crate) fn answer(&mut self, slot: usize, index: usize, result: Result<Outcome, Rejection>) {
        match self.engine.links.request_mut(slot) {
            Some((_, _, PendingAnswer::Sent(_))) => self.sent(slot, index, result),
            Some((_, _, PendingAnswer::Settled(_) | PendingAnswer::Renewed(_))) => {
                self.settled(slot, index, &result);
            }
            Some((_, _, PendingAnswer::Joined(_))) => self.joined(slot, index, result),
            Some((
                _,
                _,
                PendingAnswer::One(_) | PendingAnswer::Committed(_) | PendingAnswer::Own,
            )) => {
                self.answer_whole(slot, result);
            }
            None => {}
        }
    }

    /// Answers an operation that is one command.
    fn answer_whole(&mut self, slot: usize, result: Result<Outcome, Rejection>) {
        let Some(PendingRequest { id, link, path, expect, .. }) =
            self.engine.links.remove_request(slot)
        else {
            return;
        };
        let answer = result.and_then(|outcome| match expect {
            PendingAnswer::One(read) => read(self, link, outcome, &path),
            PendingAnswer::Committed(committing) => self.committed(committing, outcome),
            _ => Err(unexpected()),
        });
        self.reply(id, &path, answer);
    }

    /// Returns the path of a subject; empty if it has none.
    pub(crate) fn path_of(&self, subject: Subject) -> Arc<str> {
        match subject {
            Subject::Link(link) => self.engine.links.get(link).map(|link| Arc::clone(&link.path)),
            Subject::Path(path) => Some(path.into()),
            Subject::Connection => None,
        }
        .unwrap_or_default()
    }
}

impl Operation {
    /// Bytes of the answer to reserve in advance, beyond the cost of each command.
    pub(crate) fn answer_bytes(&self) -> u64 {
        match self {
            Self::Peek(Peek { max_count, .. })
            | Self::PeekSession(PeekSession { max_count, .. }) => {
                peeked_bytes(*max_count).saturating_sub(COMMAND_BYTES)
            }
            _ => 0,
        }
    }

    /// Returns the link or path that the operation concerns, for errors.
    pub(crate) fn subject(&self) -> Subject {
        match self {
            Self::Detach(Detach { link, .. })
            | Self::Drain(LinkOnly { link })
            | Self::RenewSession(LinkOnly { link })
            | Self::GetSessionState(LinkOnly { link })
            | Self::Credit(Credit { link, .. })
            | Self::Send(Send { link, .. })
            | Self::SendBatch(Send { link, .. })
            | Self::SendIn(SendIn { send: Send { link, .. }, .. })
            | Self::Forward(Forward { link, .. })
            | Self::CancelScheduled(Numbered { link, .. })
            | Self::CancelScheduledIn(CancelScheduledIn {
                cancel_scheduled: Numbered { link, .. },
                ..
            })
            | Self::ReceiveDeferred(Numbered { link, .. })
            | Self::Receive(Receive { link, .. })
            | Self::Settle(Settle { link, .. })
            | Self::SettleDelayed(SettleDelayed { settle: Settle { link, .. }, .. })
            | Self::SettleIn(SettleIn { settle: Settle { link, .. }, .. })
            | Self::Renew(Renew { link, .. })
            | Self::RenewIn(RenewIn { renew: Renew { link, .. }, .. })
            | Self::Peek(Peek { link, .. })
            | Self::PeekSession(PeekSession { link, .. })
            | Self::SetSessionState(SetSessionState { link, .. })
            | Self::SetSessionStateIn(SetSessionStateIn {
                set_session_state: SetSessionState { link, .. },
                ..
            })
            | Self::DeleteBatch(DeleteBatch { link, .. })
            | Self::Purge(Purge { link, .. })
            | Self::DeleteDeferred(DeleteDeferred { link, .. }) => Subject::Link(*link),
            Self::Attach(Attach { path, .. })
            | Self::AttachVia(AttachVia { path, .. })
            | Self::AcceptSession(AcceptSession { path, .. })
            | Self::ListSessions(ListSessions { path, .. })
            | Self::DeleteUnlocked(DeleteUnlocked { path, .. }) => Subject::Path(path.clone()),
            Self::Manage(operation) => match operation.path() {
                Some(path) => Subject::Path(path.to_owned()),
                None => Subject::Connection,
            },
            Self::BeginTransaction(_)
            | Self::Commit(_)
            | Self::RollBack(_)
            | Self::Hello(_)
            | Self::Authenticate(_)
            | Self::Withdraw(_)
            | Self::Heartbeat(_) => Subject::Connection,
        }
    }
}

//! What is said over a connection, once for both encodings: `docs/websocket-protocol.md` as types.
//!
//! A struct has its JSON form from serde and its binary form from the order of its fields; an
//! operation, an answer, a push has a key in JSON and a code in the binary form, side by side here.
//! Absent on purpose: what any of it means; `connection` knows.

pub(crate) mod announce;
pub(crate) mod binary;
pub(crate) mod forward;
pub(crate) mod hello;
pub(crate) mod json;
pub(crate) mod link;
pub(crate) mod message;
pub(crate) mod queue;
pub(crate) mod receive;
pub(crate) mod send;
pub(crate) mod session;
pub(crate) mod settle;
pub(crate) mod text;
pub(crate) mod topic;
pub(crate) mod transaction;
pub(crate) mod wire;

#[cfg(test)]
mod tests;

use bytes::Bytes;
use serde::{Deserialize, Serialize};

use self::announce::Announced;
pub(crate) use self::announce::announced;
pub(crate) use self::forward::{Forward, Forwarded, Forwarding};
pub(crate) use self::hello::{Authenticate, Closing, Hello, Welcome};
pub(crate) use self::link::{
    Attach, Credit, Deliveries, Detach, Detached, Drained, LinkOnly, Mode, Role,
};
pub(crate) use self::queue::{CreateQueue, ListQueues, UpdateQueue};
use self::queue::{QueueList, QueueView};
pub(crate) use self::receive::{
    DeleteBatch, DeleteDeferred, Deleted, Messages, Peek, Purge, Receive, Withdraw,
};
pub(crate) use self::send::{Accepted, FailedSend, Numbered, Send};
use self::session::{
    AcceptSession, DeleteUnlocked, ListSessions, PeekSession, SessionAccepted, SessionList,
    SessionState, SetSessionState,
};
pub(crate) use self::settle::{Decision, FailedRange, Range, Renew, Renewed, Settle, Settled};
use self::text::{Guid, Instant};
use self::topic::{
    CreateSubscription, CreateTopic, Explain, Explained, ListOf, NamedRule, RuleForm, RuleList,
    SetRule, SubscriptionList, SubscriptionView, TopicList, TopicView, UpdateSubscription,
    UpdateTopic,
};
use self::transaction::{
    BeginTransaction, CommitTransaction, Committed, RenewIn, SendIn, SettleIn, TransactionOnly,
};
use self::wire::{Reader, Wire, wire};
use crate::error::FrameError;

/// Elements of one list, so that a small frame cannot ask for a large allocation.
pub(crate) const LIST_COUNT_MAX: usize = 4_096;

/// How frames are written.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Encoding {
    /// Text frames, `peeklock.v1.json`.
    Json,
    /// Binary frames, `peeklock.v1.binary`.
    Binary,
}

impl Encoding {
    /// Both, the preferred first.
    pub const ALL: [Self; 2] = [Self::Binary, Self::Json];

    /// The name of the subprotocol.
    #[must_use]
    pub const fn subprotocol(self) -> &'static str {
        match self {
            Self::Json => "peeklock.v1.json",
            Self::Binary => "peeklock.v1.binary",
        }
    }

    /// The encoding of a subprotocol of that name.
    #[must_use]
    pub fn of_subprotocol(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|encoding| encoding.subprotocol() == name)
    }
}

/// One frame of a client.
#[derive(Debug)]
pub(crate) struct ClientFrame {
    /// How many frames of the server the client has taken.
    pub(crate) seen: u64,
    pub(crate) requests: Vec<Result<Request, BadRequest>>,
}

/// One thing asked for.
#[derive(Clone, Debug)]
pub(crate) struct Request {
    /// Names the answer; 0 asks for none unless it fails.
    pub(crate) id: u32,
    pub(crate) operation: Operation,
}

/// A request that cannot be read, with its id as far as that can.
#[derive(Clone, Debug)]
pub(crate) struct BadRequest {
    pub(crate) id: u32,
    pub(crate) error: FrameError,
}

/// One frame of the server.
#[derive(Debug)]
pub(crate) struct ServerFrame {
    /// How many frames of the client the server has taken.
    pub(crate) seen: u64,
    pub(crate) items: Vec<Item>,
}

/// One thing the server says: the answer to a request, or a push with the id 0.
#[derive(Clone, Debug)]
pub(crate) struct Item {
    pub(crate) id: u32,
    pub(crate) notice: Notice,
}

/// Declares an enum with a code and a key for each variant.
macro_rules! schema {
    ($(#[$meta:meta])* enum $name:ident {
        $($(#[$doc:meta])* $code:literal $key:literal $variant:ident($body:ty),)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Debug)]
        pub(crate) enum $name {
            $($(#[$doc])* $variant($body),)*
        }

        #[allow(dead_code, reason = "one side writes what the other reads")]
        impl $name {
            pub(crate) const fn code(&self) -> u8 {
                match self { $(Self::$variant(_) => $code,)* }
            }

            /// The body alone, in the binary form.
            pub(crate) fn write_body(&self, out: &mut Vec<u8>) {
                match self { $(Self::$variant(body) => body.write(out),)* }
            }

            pub(crate) fn read_body(
                code: u8,
                reader: &mut Reader<'_>,
            ) -> Result<Self, FrameError> {
                match code {
                    $($code => Wire::read(reader).map(Self::$variant),)*
                    _ => Err(FrameError::Unknown),
                }
            }

            /// Notes what a body asks for, without reading it.
            pub(crate) fn skim_body(
                code: u8,
                reader: &mut Reader<'_>,
                announced: &mut Announced,
            ) -> Result<(), FrameError> {
                match code {
                    $($code => <$body as Wire>::skim(reader, announced),)*
                    _ => Ok(()),
                }
            }

            /// Writes key and body into a JSON object.
            pub(crate) fn serialize_entry<M: serde::ser::SerializeMap>(
                &self,
                map: &mut M,
            ) -> Result<(), M::Error> {
                match self { $(Self::$variant(body) => map.serialize_entry($key, body),)* }
            }

            /// Reads the body behind a key; none if the key is not one of these.
            pub(crate) fn deserialize_value<'de, A: serde::de::MapAccess<'de>>(
                key: &str,
                map: &mut A,
            ) -> Result<Option<Self>, A::Error> {
                match key {
                    $($key => map
                        .next_value()
                        .map(|json::Object(body)| Some(Self::$variant(body))),)*
                    _ => Ok(None),
                }
            }

            /// Every code with its key.
            pub(crate) const NAMES: &'static [(u8, &'static str)] = &[$(($code, $key)),*];
        }
    };
}

schema! {
    /// What a client asks for.
    enum Operation {
        /// The first request of a connection.
        1 "hello" Hello(Hello),
        /// Replaces the token.
        2 "authenticate" Authenticate(Authenticate),
        /// Opens a link to a queue or sub-queue.
        3 "attach" Attach(Attach),
        /// Ends a link in order.
        4 "detach" Detach(Detach),
        /// Sets how far a receiver may be sent.
        5 "credit" Credit(Credit),
        /// Gives back credit that cannot be used at once.
        6 "drain" Drain(LinkOnly),
        /// Sends messages, each by itself.
        7 "send" Send(Send),
        /// Sends messages, all or none.
        8 "sendBatch" SendBatch(Send),
        /// Cancels scheduled messages, all or none.
        9 "cancelScheduled" CancelScheduled(Numbered),
        /// Receives what is available, or waits for it.
        10 "receive" Receive(Receive),
        /// Ends a receive that waits.
        11 "withdraw" Withdraw(Withdraw),
        /// Receives deferred messages by number, all or none.
        12 "receiveDeferred" ReceiveDeferred(Numbered),
        /// Settles messages.
        13 "settle" Settle(Settle),
        /// Prolongs locks.
        14 "renew" Renew(Renew),
        /// Looks at messages.
        15 "peek" Peek(Peek),
        /// Deletes available messages.
        16 "deleteBatch" DeleteBatch(DeleteBatch),
        /// Deletes all available messages.
        17 "purge" Purge(Purge),
        /// Deletes one deferred message.
        18 "deleteDeferred" DeleteDeferred(DeleteDeferred),
        /// Creates a queue.
        19 "createQueue" CreateQueue(CreateQueue),
        /// Reads a queue and its runtime counts.
        20 "getQueue" GetQueue(PathOnly),
        /// Changes a queue.
        21 "updateQueue" UpdateQueue(UpdateQueue),
        /// Deletes a queue.
        22 "deleteQueue" DeleteQueue(PathOnly),
        /// Lists queues.
        23 "listQueues" ListQueues(ListQueues),
        /// Says that the client is there.
        24 "heartbeat" Heartbeat(Empty),
        /// Locks a session and opens a link to it, or waits for one that can be locked.
        25 "acceptSession" AcceptSession(AcceptSession),
        /// Prolongs a session lock.
        26 "renewSession" RenewSession(LinkOnly),
        /// Reads the state of a session.
        27 "getSessionState" GetSessionState(LinkOnly),
        /// Replaces the state of a session, or clears it.
        28 "setSessionState" SetSessionState(SetSessionState),
        /// Looks at the messages of a session.
        29 "peekSession" PeekSession(PeekSession),
        /// Names the sessions of a queue.
        30 "listSessions" ListSessions(ListSessions),
        /// Deletes available messages of all sessions that nobody holds.
        31 "deleteUnlocked" DeleteUnlocked(DeleteUnlocked),
        /// Creates a topic.
        40 "createTopic" CreateTopic(CreateTopic),
        /// Reads a topic and its runtime counts.
        41 "getTopic" GetTopic(PathOnly),
        /// Changes a topic.
        42 "updateTopic" UpdateTopic(UpdateTopic),
        /// Deletes a topic with its subscriptions.
        43 "deleteTopic" DeleteTopic(PathOnly),
        /// Lists topics.
        44 "listTopics" ListTopics(ListQueues),
        /// Creates a subscription of a topic, with its rules.
        45 "createSubscription" CreateSubscription(CreateSubscription),
        /// Reads a subscription and its runtime counts.
        46 "getSubscription" GetSubscription(PathOnly),
        /// Changes a subscription.
        47 "updateSubscription" UpdateSubscription(UpdateSubscription),
        /// Deletes a subscription.
        48 "deleteSubscription" DeleteSubscription(PathOnly),
        /// Lists the subscriptions of a topic.
        49 "listSubscriptions" ListSubscriptions(ListOf),
        /// Adds a rule to a subscription.
        50 "createRule" CreateRule(SetRule),
        /// Reads a rule.
        51 "getRule" GetRule(NamedRule),
        /// Replaces filter and action of a rule.
        52 "updateRule" UpdateRule(SetRule),
        /// Removes a rule.
        53 "deleteRule" DeleteRule(NamedRule),
        /// Lists the rules of a subscription.
        54 "listRules" ListRules(ListOf),
        /// Tells which rules of a subscription would select a message, and why.
        55 "explain" Explain(Explain),
        /// Hands messages over that another broker forwards.
        60 "forward" Forward(Forward),
        /// Begins a transaction.
        70 "beginTransaction" BeginTransaction(BeginTransaction),
        /// Sends messages in a transaction.
        71 "sendIn" SendIn(SendIn),
        /// Settles messages in a transaction.
        72 "settleIn" SettleIn(SettleIn),
        /// Prolongs locks in a transaction.
        73 "renewIn" RenewIn(RenewIn),
        /// Carries a transaction out, or none of it.
        74 "commit" Commit(CommitTransaction),
        /// Forgets a transaction.
        75 "rollBack" RollBack(TransactionOnly),
    }
}

schema! {
    /// What the server says.
    enum Notice {
        /// It is done.
        1 "done" Done(Empty),
        /// It failed.
        2 "error" Error(WireError),
        /// Answers the hello.
        3 "welcome" Welcome(Box<Welcome>),
        /// The numbers of sent messages.
        4 "accepted" Accepted(Accepted),
        /// Messages are settled.
        5 "settled" Settled(Settled),
        /// Locks are prolonged.
        6 "renewed" Renewed(Renewed),
        /// Received or peeked messages.
        7 "received" Received(Messages),
        /// What is left of the credit.
        8 "drained" Drained(Drained),
        /// How many messages were deleted.
        9 "deleted" Deleted(Deleted),
        /// A queue.
        10 "queue" Queue(Box<QueueView>),
        /// Queues.
        11 "queues" Queues(QueueList),
        /// A session is locked.
        12 "sessionAccepted" SessionAccepted(SessionAccepted),
        /// The state of a session.
        13 "sessionState" SessionState(SessionState),
        /// Sessions of a queue.
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
        /// What each rule of a subscription makes of a message.
        22 "explained" Explained(Explained),
        /// What became of forwarded messages.
        28 "forwarded" Forwarded(Forwarded),
        /// A transaction was begun.
        29 "transaction" Transaction(TransactionOnly),
        /// A transaction was carried out.
        30 "committed" Committed(Committed),
        /// Messages for a receiver with credit.
        32 "deliveries" Deliveries(Deliveries),
        /// A receiver gets nothing more until it is given credit anew.
        33 "detached" Detached(Detached),
        /// The server is there.
        34 "heartbeat" Heartbeat(Empty),
        /// The server will close the connection soon.
        35 "closing" Closing(Closing),
    }
}

/// Nothing to say.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Empty {}
wire!(Empty {});

/// An enum without values: its place in a list, in the binary form.
macro_rules! wire_choice {
    ($name:ident, $what:literal, [$($variant:ident),*]) => {
        impl Wire for $name {
            const BYTES_MIN: usize = 1;

            fn write(&self, out: &mut Vec<u8>) {
                let all = [$(Self::$variant),*];
                let place = all.iter().position(|one| one == self).unwrap_or(0);
                u8::try_from(place).unwrap_or(0).write(out);
            }

            fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
                let all = [$(Self::$variant),*];
                let place = u8::read(reader)?;
                all.get(usize::from(place)).copied().ok_or(FrameError::BadValue($what))
            }
        }
    };
}

/// Declares structs in camelCase with both forms; absent options are left out in JSON.
macro_rules! bodies {
    ($($(#[$meta:meta])* struct $name:ident {
        $($(#[$field_meta:meta])* $field:ident: $type:ty,)*
    })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, Serialize, Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub(crate) struct $name {
            $($(#[$field_meta])* pub(crate) $field: $type,)*
        }
        wire!($name { $($field: $type),* });
    )*};
}

pub(crate) use {bodies, wire_choice};

bodies! {
    struct PathOnly {
        path: String,
    }

    struct WireError {
        /// A name of the error catalogue.
        condition: String,
        retryable: bool,
        tracking_id: Guid,
        /// What was wrong; not stable.
        detail: String,
        entity: String,
        timestamp: Instant,
    }
}

/// First number and count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Run(pub(crate) u64, pub(crate) u32);

impl Wire for Run {
    const BYTES_MIN: usize = 12;

    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self(u64::read(reader)?, u32::read(reader)?))
    }
}

impl<T: Wire> Wire for Box<T> {
    const BYTES_MIN: usize = T::BYTES_MIN;

    fn write(&self, out: &mut Vec<u8>) {
        (**self).write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        T::read(reader).map(Self::new)
    }

    fn skim(reader: &mut Reader<'_>, announced: &mut Announced) -> Result<(), FrameError> {
        T::skim(reader, announced)
    }
}

impl Run {
    /// Adds a number to a list of runs.
    pub(crate) fn push(runs: &mut Vec<Self>, number: u64) {
        if let Some(last) = runs.last_mut() {
            let next = if last.0 == 0 { 0 } else { last.0 + u64::from(last.1) };
            if next == number && last.1 < u32::MAX {
                last.1 += 1;
                return;
            }
        }
        runs.push(Self(number, 1));
    }

    /// The numbers of a list of runs, at most so many.
    #[cfg_attr(not(feature = "client"), expect(dead_code, reason = "the client reads"))]
    pub(crate) fn expand(runs: &[Self], count_max: usize) -> Vec<u64> {
        runs.iter()
            .flat_map(|run| {
                (0..u64::from(run.1)).map(|place| if run.0 == 0 { 0 } else { run.0 + place })
            })
            .take(count_max)
            .collect()
    }
}

impl Item {
    pub(crate) const fn push(notice: Notice) -> Self {
        Self { id: 0, notice }
    }
}

impl ClientFrame {
    /// Reads a frame. A request that cannot be read does not harm its neighbours.
    ///
    /// # Errors
    /// When the frame itself cannot be read.
    pub(crate) fn decode(encoding: Encoding, bytes: &Bytes) -> Result<Self, FrameError> {
        match encoding {
            Encoding::Json => json::read_client_frame(bytes),
            Encoding::Binary => binary::read_client_frame(bytes),
        }
    }
}

impl ServerFrame {
    /// Writes a frame.
    ///
    /// # Errors
    /// When a message of it is no content.
    pub(crate) fn encode(&self, encoding: Encoding) -> Result<Vec<u8>, FrameError> {
        match encoding {
            Encoding::Json => json::write_server_frame(self),
            Encoding::Binary => Ok(binary::write_server_frame(self)),
        }
    }
}

/// What the client does with frames.
#[cfg(any(test, feature = "client"))]
pub(crate) mod of_client {
    use super::{Bytes, Encoding, FrameError, Request, ServerFrame, binary, json};

    /// Writes a frame of a client.
    ///
    /// # Errors
    /// When a message of it is no content.
    pub(crate) fn encode(
        encoding: Encoding,
        seen: u64,
        requests: &[Request],
    ) -> Result<Vec<u8>, FrameError> {
        match encoding {
            Encoding::Json => json::write_client_frame(seen, requests),
            Encoding::Binary => Ok(binary::write_client_frame(seen, requests)),
        }
    }

    /// Reads a frame of the server.
    ///
    /// # Errors
    /// When it cannot be read.
    pub(crate) fn decode(encoding: Encoding, bytes: &Bytes) -> Result<ServerFrame, FrameError> {
        match encoding {
            Encoding::Json => json::read_server_frame(bytes),
            Encoding::Binary => binary::read_server_frame(bytes),
        }
    }
}

impl Notice {
    /// What it takes in memory, about; not what it has of the contents of messages, which are counted
    /// where they are fetched.
    pub(crate) fn weight(&self) -> u64 {
        /// What an error takes beside its texts.
        const ERROR_BYTES: u64 = 160;

        let error =
            |error: &WireError| ERROR_BYTES + (error.detail.len() + error.entity.len()) as u64;
        let ranges = |failed: &[FailedRange]| failed.iter().map(|it| error(&it.error)).sum::<u64>();
        let sends = |failed: &[FailedSend]| failed.iter().map(|it| error(&it.error)).sum::<u64>();
        match self {
            Self::Error(it) => error(it),
            Self::Detached(it) => error(&it.error),
            Self::Accepted(it) => {
                sends(&it.failed) + (it.sequence_numbers.len() * size_of::<Run>()) as u64
            }
            Self::Settled(it) => ranges(&it.failed),
            Self::Renewed(it) => ranges(&it.failed),
            Self::Forwarded(it) => sends(&it.failed),
            Self::SessionState(it) => it.state.as_ref().map_or(0, Bytes::len) as u64,
            Self::Committed(it) => (it.parts.len() * size_of_val(&it.parts)) as u64,
            Self::Received(_)
            | Self::Deliveries(_)
            | Self::Done(_)
            | Self::Welcome(_)
            | Self::Drained(_)
            | Self::Deleted(_)
            | Self::SessionAccepted(_)
            | Self::Transaction(_)
            | Self::Heartbeat(_)
            | Self::Closing(_) => 0,
            // Descriptions: what they take when they are written, twice since they are made of parts.
            Self::Queue(_)
            | Self::Queues(_)
            | Self::Sessions(_)
            | Self::Topic(_)
            | Self::Topics(_)
            | Self::Subscription(_)
            | Self::Subscriptions(_)
            | Self::Rule(_)
            | Self::Rules(_)
            | Self::Explained(_) => {
                let mut written = Vec::new();
                self.write_body(&mut written);
                2 * written.len() as u64
            }
        }
    }
}

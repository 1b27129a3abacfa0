//! A held session: a link on its own connection, so that it ends with the connection.

use std::net::SocketAddr;
use std::rc::Rc;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use peeklock_amqp::codec::value::{Map, Raw};
use peeklock_amqp::performative::SenderSettleMode;
use peeklock_amqp_testing::client::link;
use peeklock_amqp_testing::client::request::{longs, value};
use peeklock_core::clock::ManualClock;
use peeklock_core::command::ReceiveMode;
use peeklock_core::message::Value;
use peeklock_core::time::{TimeSpan, Timestamp};
use tokio::sync::Mutex;

use super::connection::{Connection, SHARED};
use super::link::Link;
use super::manage::{Entries, binary, bytes_of, int};
use super::settle::Unsettled;
use super::{deferred, peeked};
use crate::subject::{Answer, Decision, Seen, Session};

const FILTER: &str = "com.microsoft:session-filter";
/// The ticks of .NET at the beginning of 1970.
const TICKS_OF_1970: i64 = 621_355_968_000_000_000;

pub struct Held {
    connection: Rc<Connection>,
    clock: Arc<ManualClock>,
    path: String,
    id: String,
    locked_until: Timestamp,
    /// `None` after the release.
    link: Mutex<Option<Link>>,
    unsettled: Unsettled,
}

impl Held {
    /// Locks a session, the next one if none is named.
    pub async fn accept(
        address: SocketAddr,
        clock: &Arc<ManualClock>,
        path: &str,
        session: Option<&str>,
        (mode, wait): (ReceiveMode, TimeSpan),
    ) -> Answer<Self> {
        let connection = Connection::open(address).await?;
        let attach = |name: &str, handle| {
            let mut attach = link::receiver(name, handle, path);
            if mode == ReceiveMode::ReceiveAndDelete {
                attach.snd_settle_mode = Some(SenderSettleMode::Settled);
            }
            let name = session.map_or(Value::Null, |session| Value::String(session.to_owned()));
            let raw = |value: Value| Raw::encoded(|bytes| value.encode_to(bytes));
            if let Some(source) = &mut attach.source {
                source.filter = Some(Map::of_symbols([(FILTER, raw(name))]));
            }
            let wait = Value::U32(u32::try_from(wait.as_ms()).unwrap());
            attach.properties = Some(Map::of_symbols([("com.microsoft:timeout", raw(wait))]));
            attach
        };
        let link = Link::attach(&connection, SHARED, attach).await?;
        let of = |map: Option<&Map>, key| {
            let raw = map.and_then(|map| map.get(key)).unwrap();
            Value::decode(raw.as_bytes()).unwrap()
        };
        let filter = link.answer.source.as_ref().and_then(|source| source.filter.as_ref());
        let Value::String(id) = of(filter, FILTER) else { panic!("the session has no name") };
        let until = of(link.answer.properties.as_ref(), "com.microsoft:locked-until-utc");
        let Value::I64(ticks) = until else { panic!("{until:?} is no number of ticks") };
        let locked_until = Timestamp::from_unix_ms((ticks - TICKS_OF_1970) / 10_000);
        Ok(Self {
            connection,
            clock: Arc::clone(clock),
            path: path.to_owned(),
            id,
            locked_until,
            link: Mutex::new(Some(link)),
            unsettled: Unsettled::default(),
        })
    }

    async fn ask(
        &self,
        operation: &str,
        mut entries: Entries<'_>,
    ) -> Answer<Option<peeklock_amqp_testing::client::Reply>> {
        entries.push(("session-id", value(self.id.as_str())));
        self.connection.ask(&self.path, operation, &entries).await
    }
}

#[async_trait(?Send)]
impl Session for Held {
    fn id(&self) -> &str {
        &self.id
    }

    fn locked_until(&self) -> Timestamp {
        self.locked_until
    }

    async fn receive(&self, count_max: u32, wait: TimeSpan) -> Answer<Vec<Seen>> {
        let mut link = self.link.lock().await;
        let link = link.as_mut().unwrap();
        let taken = link.receive(count_max, wait, &self.clock).await?;
        Ok(self.unsettled.see(SHARED, &self.path, taken))
    }

    async fn receive_deferred(&self, sequences: &[u64]) -> Answer<Vec<Seen>> {
        let numbers: Vec<i64> = sequences.iter().map(|one| i64::try_from(*one).unwrap()).collect();
        let entries = vec![
            ("sequence-numbers", longs(&numbers)),
            ("receiver-settle-mode", value(Value::U32(1))),
        ];
        Ok(deferred(self.ask("receive-by-sequence-number", entries).await?))
    }

    async fn peek(&self, from: u64, count_max: u32) -> Answer<Vec<Seen>> {
        let entries = vec![
            ("from-sequence-number", value(Value::I64(i64::try_from(from).unwrap()))),
            ("message-count", int(count_max)),
        ];
        Ok(peeked(self.ask("peek-message", entries).await?))
    }

    async fn settle(&self, seen: &Seen, decision: Decision) -> Answer<()> {
        let at = (&*self.path, Some(&*self.id));
        self.unsettled.settle(&self.connection, at, seen.token(), &decision, None).await
    }

    async fn renew(&self) -> Answer<Timestamp> {
        let reply = self.ask("renew-session-lock", vec![]).await?.unwrap();
        let until = reply.body().get("expiration").unwrap();
        match Value::decode(until.as_bytes()).unwrap() {
            Value::Timestamp(ms) => Ok(Timestamp::from_unix_ms(ms)),
            other => panic!("{other:?} is no instant"),
        }
    }

    async fn state(&self) -> Answer<Option<Bytes>> {
        let reply = self.ask("get-session-state", vec![]).await?.unwrap();
        Ok(bytes_of(reply.body(), "session-state"))
    }

    async fn set_state(&self, state: Option<Bytes>) -> Answer<()> {
        let state = state.map_or_else(|| value(Value::Null), |state| binary(&state));
        self.ask("set-session-state", vec![("session-state", state)]).await.map(drop)
    }

    async fn delete_batch(&self, count_max: u32) -> Answer<u64> {
        let entries = vec![("message-count", int(count_max))];
        Ok(super::deleted(self.ask("batch-delete-messages", entries).await?))
    }

    async fn close(self: Box<Self>) -> Answer<()> {
        let link = self.link.lock().await.take();
        link.unwrap().detach().await
    }
}

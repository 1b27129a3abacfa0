//! Requests for messages of an entity: `peek-message` (AMQP-83, PEK-01),
//! `receive-by-sequence-number`, which returns all messages or none (AMQP-84, AMQP-93, DEF-03), and
//! `batch-delete-messages` (DEL-01, DEL-07).

use peeklock_core::admission::Permit;
use peeklock_core::command::{Command, Outcome, ReceiveMode, SessionCommand};
use peeklock_core::contract::Action;
use peeklock_core::error::Rejection;
use peeklock_core::ids::{LockToken, SequenceNumber};
use peeklock_link::{LinkRole, numbered_bytes};
use peeklock_words::amqp::{code, write};

use super::super::Node;
use super::body::ITEM_COUNT_MAX;
use super::pieces::Pieces;
use super::plan::{ManagementAnswer, OperationPlan, RequestData};
use super::{ManagementRequest, Refusal, key, unexpected};
use crate::server::conversation::Conversation;
use crate::server::deliver::{MessageForm, encoded};
use crate::server::work::ReplyAddress;

/// Bytes of a list item without the message.
const ITEM_BYTES: usize = 32;

impl Conversation {
    pub(super) async fn plan_peek(
        &mut self,
        management: &ManagementRequest<'_>,
    ) -> Result<OperationPlan, Refusal> {
        let body = &management.body;
        let from = body.integer("from-sequence-number")?.unwrap_or(0);
        let from = SequenceNumber(u64::try_from(from).unwrap_or(0));
        let count_max = body.count("message-count")?.unwrap_or(1);
        let command = match body.text("session-id")? {
            Some(session) => Command::PeekSession { session: session.into(), from, count_max },
            None => Command::Peek { from, count_max },
        };
        let memo = RequestData {
            without_bodies: body.flag("omit-message-body")?,
            ..RequestData::default()
        };
        let entity = self.managed_entity(management, Action::Peek).await?;
        Ok(OperationPlan::Commands { entity, commands: vec![command], read: Self::peeked, memo })
    }

    fn peeked(
        &mut self,
        reply_address: &ReplyAddress,
        memo: &RequestData,
        outcomes: Vec<Outcome>,
    ) -> Result<ManagementAnswer, Rejection> {
        let Some(Outcome::Peeked(messages)) = outcomes.into_iter().next() else {
            return Err(unexpected());
        };
        let bytes_max = self.reply_bytes_max(reply_address);
        let form =
            if memo.without_bodies { MessageForm::PeekedWithoutBody } else { MessageForm::Peeked };
        let (mut list, mut count) = (Pieces::default(), 0);
        for message in messages {
            let pieces = encoded(&message, form).ok_or_else(|| message.unreadable())?;
            let bytes: usize = pieces.iter().map(bytes::Bytes::len).sum();
            // The first message is sent at any size; the client sends another request for later
            // ones (AMQP-83).
            if count > 0 && list.len() + bytes + ITEM_BYTES > bytes_max {
                break;
            }
            let mut item = Pieces::default();
            key(&mut item, "message");
            item.binary(pieces);
            list.map(item, 2);
            count += 1;
        }
        if count == 0 {
            return Ok(ManagementAnswer::Nothing);
        }
        let mut items = Pieces::default();
        key(&mut items, "messages");
        items.list(list, count);
        Ok(ManagementAnswer::Map(items, 2))
    }

    pub(super) async fn plan_receive_deferred(
        &mut self,
        management: &ManagementRequest<'_>,
    ) -> Result<OperationPlan, Refusal> {
        let sequences = management.body.sequences(ITEM_COUNT_MAX)?;
        let asked = match management.body.integer("receiver-settle-mode")? {
            Some(0) => Some(ReceiveMode::ReceiveAndDelete),
            Some(1) => Some(ReceiveMode::PeekLock),
            None => None,
            Some(other) => {
                let detail = format!("`receiver-settle-mode` is {other}; it must be 0 or 1");
                return Err(Rejection::out_of_range(detail).into());
            }
        };
        let entity = self.managed_entity(management, Action::ReceiveDeferred).await?;
        let session = self.session_link(management)?;
        let link = match session {
            Some(link) => link,
            None => self.holder(management, &entity),
        };
        let Some(at) = self.engine.links.get(link) else {
            return Err(Rejection::internal("link no longer exists").into());
        };
        let count = sequences.len();
        let mode = if session.is_some() { at.mode } else { asked.unwrap_or(ReceiveMode::PeekLock) };
        let command = match session {
            Some(_) if asked.is_some_and(|mode| mode != at.mode) => {
                let detail = "`receiver-settle-mode` must match the receiver of the session";
                return Err(Rejection::argument(detail).into());
            }
            Some(_) => at.in_session(SessionCommand::ReceiveDeferred { sequences }),
            None => Command::ReceiveDeferred { mode, sequences, holder: Some(at.receiver) },
        };
        let room = match mode {
            ReceiveMode::PeekLock => None,
            ReceiveMode::ReceiveAndDelete => Some(self.room_to_take(count)?),
        };
        let memo = RequestData { link: Some(link), room, ..RequestData::default() };
        Ok(OperationPlan::Commands {
            entity,
            commands: vec![command],
            read: Self::received_deferred,
            memo,
        })
    }

    /// Returns room for `count` messages that are deleted on receipt. It is half of the bytes that
    /// may wait to be sent, and is only granted while at most the other half is used. A client that
    /// does not read them loses deleted messages (RCV-02).
    fn room_to_take(&self, count: usize) -> Result<Permit, Rejection> {
        let bytes = numbered_bytes(count, self.engine.broker.settings().limits.deferred_bytes_max);
        let is_free = self.engine.account.held_bytes() <= self.engine.account.bytes_max() / 2;
        let room = if is_free { self.deletion_budget.try_take(bytes) } else { None };
        room.ok_or_else(|| {
            Rejection::server_busy(
                "the client has not read earlier messages, up to `amqp.outbound_bytes_max`, so \
                 messages in receive-and-delete mode could be lost; read them, and ask again",
            )
        })
    }

    /// Returns the link whose end ends the locks: the link that the request names, or else a link
    /// of the management node.
    fn holder(
        &mut self,
        management: &ManagementRequest<'_>,
        entity: &peeklock_core::Entity,
    ) -> u32 {
        let associated = management.request.text("associated-link-name");
        let named = associated.and_then(|name| {
            self.nodes.values().find_map(|node| match node {
                Node::Receiver(receiver) if *receiver.name == *name => Some(receiver.number),
                _ => None,
            })
        });
        let is_here = |number: &u32| {
            self.engine.links.get(*number).is_some_and(|link| {
                link.is_open()
                    && link.session().is_none()
                    && link.path.eq_ignore_ascii_case(management.path)
            })
        };
        if let Some(number) = named.filter(is_here) {
            return number;
        }
        if let Some(Node::Requests(requests)) = self.nodes.get(&management.link)
            && let Some(number) = requests.manager().and_then(|manager| manager.holder)
        {
            return number;
        }
        let number = self.number(management.link);
        let path = entity.path().into();
        let mode = ReceiveMode::PeekLock;
        self.engine.links.attach(number, entity.clone(), path, LinkRole::Receiver, mode);
        if let Some(Node::Requests(requests)) = self.nodes.get_mut(&management.link)
            && let Some(manager) = requests.manager_mut()
        {
            manager.holder = Some(number);
        }
        number
    }

    fn received_deferred(
        &mut self,
        _: &ReplyAddress,
        memo: &RequestData,
        outcomes: Vec<Outcome>,
    ) -> Result<ManagementAnswer, Rejection> {
        let Some(Outcome::Received(messages)) = outcomes.into_iter().next() else {
            return Err(unexpected());
        };
        let (mut list, count) = (Pieces::default(), messages.len());
        for message in &messages {
            let Some(pieces) = encoded(message, MessageForm::Delivered) else {
                let locks = messages.iter().filter_map(|message| message.facts.lock);
                let tokens: Vec<LockToken> = locks.map(|lock| lock.token).collect();
                if let Some(link) = memo.link {
                    self.engine.links.release_messages(link, tokens);
                }
                return Err(message.undeliverable());
            };
            let mut item = Pieces::default();
            let mut fields = 2;
            if let Some(lock) = message.facts.lock {
                key(&mut item, "lock-token");
                write::fixed(&mut item, code::UUID, lock.token.0.to_be_bytes());
                fields += 2;
            }
            key(&mut item, "message");
            item.binary(pieces);
            list.map(item, fields);
        }
        let mut items = Pieces::default();
        key(&mut items, "messages");
        items.list(list, count);
        Ok(ManagementAnswer::Map(items, 2))
    }

    pub(super) async fn plan_delete_batch(
        &mut self,
        management: &ManagementRequest<'_>,
    ) -> Result<OperationPlan, Refusal> {
        let count_max = management.body.count("message-count")?;
        let count_max =
            count_max.ok_or_else(|| Rejection::argument("`message-count` is missing"))?;
        let enqueued_before = management.body.instant("enqueued-time-utc")?;
        let entity = self.managed_entity(management, Action::DeleteBatch).await?;
        let link = self.session_link(management)?;
        let command = match link.and_then(|link| self.engine.links.get(link)) {
            Some(link) => {
                link.in_session(SessionCommand::DeleteBatch { count_max, enqueued_before })
            }
            None => Command::DeleteBatch { count_max, enqueued_before },
        };
        let memo = RequestData { link, ..RequestData::default() };
        Ok(OperationPlan::Commands { entity, commands: vec![command], read: Self::deleted, memo })
    }

    fn deleted(
        &mut self,
        _: &ReplyAddress,
        _: &RequestData,
        outcomes: Vec<Outcome>,
    ) -> Result<ManagementAnswer, Rejection> {
        let count = match outcomes.into_iter().next() {
            Some(Outcome::Deleted(0)) => return Ok(ManagementAnswer::Nothing),
            Some(Outcome::Deleted(count)) => i32::try_from(count).unwrap_or(i32::MAX),
            _ => return Err(unexpected()),
        };
        let mut items = Pieces::default();
        key(&mut items, "message-count");
        write::fixed(&mut items, code::INT, count.to_be_bytes());
        Ok(ManagementAnswer::Map(items, 2))
    }
}

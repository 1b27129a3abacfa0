//! `peek-message`: looks at messages (AMQP-83, PEK-01).

use peeklock_core::command::{Command, Outcome};
use peeklock_core::contract::Action;
use peeklock_core::error::Rejection;
use peeklock_core::ids::SequenceNumber;

use super::super::reply::Asker;
use super::pieces::Pieces;
use super::{ManagementAnswer, Memo, Planned, Question, Refusal, key, unexpected};
use crate::server::conversation::Conversation;
use crate::server::deliver::{Shown, encoded, unreadable};

/// What a message takes in a list beside its bytes.
const ITEM_BYTES: usize = 32;

impl Conversation {
    pub(super) async fn plan_peek(&mut self, question: &Question<'_>) -> Result<Planned, Refusal> {
        let body = &question.body;
        let from = body.integer("from-sequence-number")?.unwrap_or(0);
        let from = SequenceNumber(u64::try_from(from).unwrap_or(0));
        let count_max = body.count("message-count")?.unwrap_or(1);
        let command = match body.text("session-id")? {
            Some(session) => Command::PeekSession { session: session.into(), from, count_max },
            None => Command::Peek { from, count_max },
        };
        let memo = Memo { without_bodies: body.flag("omit-message-body")?, ..Memo::default() };
        let entity = self.managed_entity(question, Action::Peek).await?;
        Ok(Planned::Commands { entity, commands: vec![command], read: Self::peeked, memo })
    }

    fn peeked(
        &mut self,
        asker: &Asker,
        memo: &Memo,
        outcomes: Vec<Outcome>,
    ) -> Result<ManagementAnswer, Rejection> {
        let Some(Outcome::Peeked(messages)) = outcomes.into_iter().next() else {
            return Err(unexpected());
        };
        let bytes_max = self.reply_bytes_max(asker);
        let shown = if memo.without_bodies { Shown::PeekedWithoutBody } else { Shown::Peeked };
        let (mut list, mut count) = (Pieces::default(), 0);
        for message in messages {
            let pieces = encoded(&message, shown).ok_or_else(unreadable)?;
            let bytes: usize = pieces.iter().map(bytes::Bytes::len).sum();
            // The first is sent whatever its size; a client asks again for those behind (AMQP-83).
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
}

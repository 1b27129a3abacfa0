//! `schedule-message` schedules messages and returns their sequence numbers (SCH-02).
//! `cancel-scheduled-message` cancels all given messages, or none (SCH-05).

use peeklock_core::command::{Command, InboundMessage, Outcome};
use peeklock_core::contract::Action;
use peeklock_core::error::Rejection;
use peeklock_core::ids::SequenceNumber;
use peeklock_core::message::Content;
use peeklock_words::amqp::{Scalar, code};

use super::body::Body;
use super::pieces::Pieces;
use super::plan::{ManagementAnswer, OperationPlan, RequestData};
use super::{ManagementRequest, Refusal, key, unexpected};
use crate::message::BATCH_COUNT_MAX;
use crate::server::conversation::Conversation;
use crate::server::work::ReplyAddress;

impl Conversation {
    pub(super) async fn plan_schedule(
        &mut self,
        management: &ManagementRequest<'_>,
    ) -> Result<OperationPlan, Refusal> {
        let maps = management.body.maps("messages")?;
        let messages =
            maps.iter().map(|map| self.message_in(map)).collect::<Result<Vec<_>, _>>()?;
        let entity = self.managed_entity(management, Action::Send).await?;
        let count = messages.len();
        let command = match <[InboundMessage; 1]>::try_from(messages) {
            Ok([message]) => Command::Send { message },
            // All messages are stored, or none.
            Err(messages) => Command::SendBatch { messages },
        };
        let (commands, memo) = (vec![command], RequestData { count, ..RequestData::default() });
        Ok(OperationPlan::Commands { entity, commands, read: Self::scheduled, memo })
    }

    /// Reads the message in a map.
    fn message_in(&self, map: &Body) -> Result<InboundMessage, Rejection> {
        let value = map.required("message")?;
        let Ok(Scalar::Binary(bytes)) = value.scalar() else {
            return Err(Rejection::argument("`message` must be an encoded message"));
        };
        let content = Content::from_sender(value.as_bytes().slice_ref(bytes))?;
        Ok(self.engine.broker.inbound_content(content))
    }

    fn scheduled(
        &mut self,
        _: &ReplyAddress,
        memo: &RequestData,
        outcomes: Vec<Outcome>,
    ) -> Result<ManagementAnswer, Rejection> {
        let numbers = match outcomes.into_iter().next() {
            Some(Outcome::Accepted(number)) => vec![number],
            Some(Outcome::AcceptedBatch(numbers)) => numbers,
            // Returned, so that the client can cancel them (SCH-13).
            Some(Outcome::NumbersReserved { returned, .. }) => returned,
            // Scheduled messages get their numbers at the commit (TXN-03).
            Some(Outcome::Done) if memo.is_joined => vec![SequenceNumber(0); memo.count],
            _ => return Err(unexpected()),
        };
        Ok(sequence_numbers(&numbers))
    }

    pub(super) async fn plan_cancel_scheduled(
        &mut self,
        management: &ManagementRequest<'_>,
    ) -> Result<OperationPlan, Refusal> {
        // The maximum number of messages that a request can schedule.
        let sequences = management.body.sequences(BATCH_COUNT_MAX)?;
        let entity = self.managed_entity(management, Action::CancelScheduled).await?;
        let commands = vec![Command::CancelScheduled { sequences }];
        Ok(OperationPlan::Commands {
            entity,
            commands,
            read: Self::done,
            memo: RequestData::default(),
        })
    }

    /// Makes a reply without data.
    pub(super) fn done(
        &mut self,
        _: &ReplyAddress,
        _: &RequestData,
        _: Vec<Outcome>,
    ) -> Result<ManagementAnswer, Rejection> {
        Ok(ManagementAnswer::Done)
    }
}

/// Makes a reply with the numbers of messages, in order.
pub(super) fn sequence_numbers(numbers: &[SequenceNumber]) -> ManagementAnswer {
    let mut items = Pieces::default();
    key(&mut items, "sequence-numbers");
    let number = |number: &SequenceNumber| i64::try_from(number.0).unwrap_or(i64::MAX);
    items.array(code::LONG, numbers.iter().map(|it| number(it).to_be_bytes()));
    ManagementAnswer::Map(items, 2)
}

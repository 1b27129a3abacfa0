//! Work that takes a permit: nothing behind it is carried out before it has one, so that what one
//! connection has under way is bounded (DESIGN D6).

use peeklock_core::permits::Permit;
use peeklock_link::Working;

use super::attach::Attaching;
use super::conversation::Conversation;
use super::node::{Answered, Asker, Inbound, Plan};
use super::settle::Settling;
use super::transaction::Committing;

/// What takes a permit.
pub(super) enum Work {
    /// Deliveries of a client are handed to their entity.
    Send(Inbound),
    /// What becomes of deliveries of one link is told to their entity.
    Settle(Vec<Settling>),
    /// A link is opened at its entity.
    Attach(Box<Attaching>),
    /// A transaction is carried out.
    Commit(Committing),
    /// Something is asked by way of a management node.
    Ask(Box<Plan>),
    /// The same, of what is asked beside the connection.
    AskApart(Asker, Working<Answered>),
}

impl Work {
    /// How many commands it is, and of how many bytes.
    fn cost(&self) -> (u64, u64) {
        match self {
            Self::Send(inbound) => inbound.cost(),
            Self::Settle(list) => (list.len() as u64, list.iter().map(Settling::bytes).sum()),
            Self::Attach(_) | Self::Commit(_) | Self::AskApart(..) => (1, 0),
            Self::Ask(plan) => plan.cost(),
        }
    }
}

impl Conversation {
    /// Does something when there is room for it; until then nothing more is carried out.
    pub(super) async fn when_room(&mut self, work: Work) {
        let (count, bytes) = work.cost();
        if let Some(permit) = self.engine.budget.try_acquire_list(count, bytes) {
            return self.work(work, permit).await;
        }
        self.engine.hold(work, count, bytes);
    }

    /// Does it.
    pub(super) async fn work(&mut self, work: Work, permit: Permit) {
        match work {
            Work::Send(inbound) => self.send(inbound, permit).await,
            Work::Settle(list) => self.settle_now(list, permit).await,
            // Nobody would hold what it brings.
            Work::Attach(_) if self.amqp.is_over() => {}
            Work::Attach(attaching) => self.open(*attaching, permit).await,
            Work::Commit(committing) => self.commit(committing, permit),
            Work::AskApart(asker, asking) => self.ask_apart(asker, asking, permit),
            Work::Ask(plan) => self.ask_planned(*plan, permit).await,
        }
    }
}

//! End of calls and links without an answer of the machine: of a tree that fails or is retired, and
//! of a broker that stops.

use super::{Shell, TreeFault, TurnResults};
use crate::command::Command;
use crate::error::Rejection;
use crate::ids::Ticket;
use crate::machine::Machine;
use crate::request::Release;
use crate::store::Reserved;
use crate::time::Timestamp;

impl<M: Machine> Shell<M> {
    /// Ends all waiting calls, commands and links with this reason. Staged changes stay staged.
    pub fn close(&mut self, reason: &Rejection, out: &mut Vec<Release>) {
        for (_, reply) in self.waiting.drain() {
            out.extend(reply.answer(Err(reason.clone())));
        }
        for request in self.preparation.request.take().into_iter().chain(self.parked.drain()) {
            out.extend(request.reply.answer(Err(reason.clone())));
        }
        for (receiver, link) in self.links.drain() {
            out.push(link.detached(receiver, reason.clone()));
        }
    }

    /// Ends waiting receive calls without messages, for a stop. Links and locks stay.
    ///
    /// # Errors
    /// A failure that must end the tree.
    pub fn end_waits(
        &mut self,
        now: Timestamp,
        out: &mut Vec<Release>,
    ) -> Result<TurnResults, TreeFault> {
        let mut turn = TurnResults::default();
        let calls: Vec<Ticket> = self.waiting.keys().copied().collect();
        for call in calls {
            let command = Command::CancelReceive { call };
            self.step(out, &mut turn, now, Reserved::Granted, |machine, ctx, step| {
                machine.apply(call, crate::path::SubQueue::Main, command, ctx, step).map(|_| ())
            })?
            .ok();
        }
        self.finish(now, out, &mut turn)?;
        Ok(turn)
    }
}

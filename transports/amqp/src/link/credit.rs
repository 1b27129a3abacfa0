//! Credit, both ways, with drain and echo (AMQP 2.6.7, AMQP-40, AMQP-48 to AMQP-53).

use super::Stage;
use crate::connection::{Connection, Event, Fault, LinkId};
use crate::error::{AmqpError, condition};
use crate::performative::{Flow, Role};
use crate::serial::distance;

/// By what a client asks that what it is delivered be part of a transaction (AMQP 4.4.3).
const TXN_ID: &str = "txn-id";

impl Connection {
    /// A client's flow of a link. Where the client sends, what it says of credit means nothing (AMQP-40).
    pub(crate) fn take_link_flow(
        &mut self,
        channel: u16,
        handle: u32,
        flow: &Flow,
    ) -> Result<(), Fault> {
        let first = self.config.initial_delivery_count;
        let Some(session) = self.session_of(channel)? else {
            return Ok(());
        };
        let (id, link) = session.link_at(channel, handle)?;
        if matches!(link.stage, Stage::Left | Stage::Leaving { .. }) {
            return Ok(());
        }
        let is_transactional =
            flow.properties.as_ref().is_some_and(|properties| properties.get(TXN_ID).is_some());
        if link.role == Role::Receiver && is_transactional {
            // What it gets would be no part of the transaction that it believes in.
            let text = "a transaction cannot acquire messages; receive them, and settle them in \
                the transaction";
            return Err(Fault::Link(id, AmqpError::new(condition::NOT_IMPLEMENTED, text)));
        }
        if link.role == Role::Receiver {
            if let Some(credit) = flow.link_credit {
                // What was sent since the client has counted is of this credit (AMQP-50).
                let counted = flow.delivery_count.unwrap_or(first);
                let uncounted = distance(counted, link.delivery_count);
                // Not by where it ends: so much credit may reach further than serial numbers tell apart.
                link.credit = credit.saturating_add_signed(uncounted.saturating_neg());
            }
            link.drain = flow.drain;
            if link.is_attached() {
                self.tell_credit(id);
            }
        }
        if flow.echo {
            self.echo(id);
        }
        Ok(())
    }

    /// Tells of a client's credit. A drain of no credit is done at once (AMQP-51).
    pub(super) fn tell_credit(&mut self, id: LinkId) {
        let Some(link) = self.link_mut(id) else {
            return;
        };
        let (credit, drain) = (link.credit, link.drain && link.credit > 0);
        let done = link.drain && !drain;
        self.events.push_back(Event::Credit { link: id, credit, drain });
        if done {
            self.drained(id);
        }
    }

    /// What could be sent of a drain was sent: what credit is left is given back (AMQP-51). The flow says
    /// both that none is left and that it is about the drain, which different clients look for (AMQP-48).
    pub fn drained(&mut self, id: LinkId) {
        let Some(link) = self.link_mut(id).filter(|link| link.is_attached() && link.drain) else {
            return;
        };
        link.delivery_count = link.delivery_count.wrapping_add(link.credit);
        link.credit = 0;
        link.drain = false;
        let (handle, count) = (link.handle, link.delivery_count);
        self.send_link_flow(id.session.channel, handle, (count, 0), true);
    }

    /// Grants a client's sender so much credit in all (AMQP-40).
    pub fn grant(&mut self, id: LinkId, credit: u32) {
        let sends = |link: &&mut super::Link| link.is_attached() && link.role == Role::Sender;
        let Some(link) = self.link_mut(id).filter(sends) else {
            return;
        };
        link.credit = credit;
        let (handle, state) = (link.handle, (link.delivery_count, credit));
        self.send_link_flow(id.session.channel, handle, state, false);
    }

    /// How much credit a link has left.
    #[must_use]
    pub fn credit(&mut self, id: LinkId) -> u32 {
        self.link_mut(id).map_or(0, |link| link.credit)
    }

    /// The state of a link that its client asks for, unless the answer to a drain has told it, or will
    /// (AMQP-52).
    fn echo(&mut self, id: LinkId) {
        if let Some(link) = self.link_mut(id).filter(|link| link.is_attached() && !link.drain) {
            let (handle, state) = (link.handle, (link.delivery_count, link.credit));
            self.send_link_flow(id.session.channel, handle, state, false);
        }
    }
}

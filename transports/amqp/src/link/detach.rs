//! Detaching links. A detach is for good, always (AMQP-36, AMQP-39).

use super::Stage;
use crate::connection::{Connection, Event, Fault, LinkId};
use crate::error::{AmqpError, condition};
use crate::performative::Detach;

impl Connection {
    pub(crate) fn take_detach(&mut self, channel: u16, detach: Detach) -> Result<(), Fault> {
        let Some(session) = self.session_of(channel)? else {
            return Ok(());
        };
        let id = session.id(channel);
        let Some(link) = session.links.get_mut(&detach.handle) else {
            return Err(unattached(detach.handle));
        };
        let link_id = link.id(id, detach.handle);
        match link.stage {
            Stage::Left => self.remove_link(link_id),
            Stage::Leaving { .. } => return Err(unattached(detach.handle)),
            Stage::Asked | Stage::Attached => {
                link.stage = Stage::Leaving { attached: link.is_attached() };
                link.credit = 0;
                link.drain = false;
                link.assembly = None;
                link.under_way = None;
                self.under_way.retain(|other| *other != link_id);
                self.events.push_back(Event::Detached { link: link_id, error: detach.error });
            }
        }
        Ok(())
    }

    /// Detaches a link, or answers that its client has. Nothing is sent on it afterwards (AMQP-19); what
    /// the client says of deliveries on it is still told (AMQP-39).
    pub fn detach(&mut self, id: LinkId, error: Option<AmqpError>) {
        let Some(link) = self.link_mut(id) else {
            return;
        };
        let answered = match link.stage {
            Stage::Left => return,
            Stage::Asked | Stage::Leaving { attached: false } => {
                let gone = || AmqpError::new(condition::DETACH_FORCED, "link is gone");
                return self.refuse(id, error.unwrap_or_else(gone));
            }
            Stage::Attached => false,
            Stage::Leaving { attached: true } => true,
        };
        link.stage = Stage::Left;
        link.credit = 0;
        link.assembly = None;
        link.under_way = None;
        let channel = id.session.channel;
        self.wire.frame(channel, &Detach { handle: id.handle, closed: true, error });
        self.under_way.retain(|other| *other != id);
        if answered {
            self.remove_link(id);
        }
    }

    /// Detaches a link for what its client did on it.
    pub(crate) fn detach_because(&mut self, channel: u16, handle: u32, error: AmqpError) {
        let Some(session) = self.sessions.get(&channel) else {
            return;
        };
        let Some(link) = session.links.get(&handle) else {
            return;
        };
        let id = link.id(session.id(channel), handle);
        self.detach(id, Some(error.clone()));
        self.events.push_back(Event::Failed { link: id, error });
    }

    pub(crate) fn remove_link(&mut self, id: LinkId) {
        if let Some(session) = self.session_mut(id.session)
            && session.links.remove(&id.handle).is_some()
        {
            self.link_count = self.link_count.saturating_sub(1);
        }
    }
}

pub(super) fn unattached(handle: u32) -> Fault {
    Fault::Session(AmqpError::new(
        condition::UNATTACHED_HANDLE,
        format!("handle {handle} has no link"),
    ))
}

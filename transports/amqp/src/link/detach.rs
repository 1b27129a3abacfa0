//! Detaching of links, which is always permanent (AMQP-36, AMQP-39). No frame is sent on a link
//! after its detach.

use super::LinkStage;
use crate::connection::{Connection, Event, Fault, LinkId, SessionId};
use crate::error::{AmqpError, condition};
use crate::performative::Detach;

impl Connection {
    pub(crate) fn take_detach(&mut self, channel: u16, detach: Detach) -> Result<(), Fault> {
        let Some(session) = self.session_of(channel)? else {
            return Ok(());
        };
        let (id, link) = session.link_at(channel, detach.handle)?;
        let is_answer = link.stage == LinkStage::DetachSent;
        link.stage = LinkStage::DetachReceived { attached: link.is_attached() };
        link.credit = 0;
        link.drain = false;
        link.incoming = None;
        link.unsent = None;
        // The client may assign its handle to another link immediately (AMQP 2.7.7).
        session.handles.unmap(detach.handle);
        if is_answer {
            self.remove_link(id);
        } else {
            self.unsent_links.retain(|other| *other != id);
            self.events.push_back(Event::Detached { link: id, error: detach.error });
        }
        Ok(())
    }

    /// Detaches a link, or answers the client's `detach`. Nothing is sent on the link afterwards
    /// (AMQP-19), but dispositions of its deliveries are still reported (AMQP-39).
    pub fn detach(&mut self, id: LinkId, error: Option<AmqpError>) {
        let Some(link) = self.link_mut(id) else {
            return;
        };
        let answered = match link.stage {
            LinkStage::DetachSent => return,
            LinkStage::Requested => {
                let gone = || AmqpError::new(condition::DETACH_FORCED, "link no longer exists");
                return self.refuse(id, error.unwrap_or_else(gone));
            }
            // The client requested the detach, so it gets no error.
            LinkStage::DetachReceived { attached: false } => {
                return self.attach_without_ends(id, error);
            }
            LinkStage::Attached => false,
            LinkStage::DetachReceived { attached: true } => true,
        };
        link.stage = LinkStage::DetachSent;
        link.credit = 0;
        link.incoming = None;
        link.unsent = None;
        let handle = link.handle;
        let error = error.map(AmqpError::with_transience);
        self.wire.frame(id.session.channel, &Detach { handle, closed: true, error });
        self.free_our_handle(id.session, handle);
        self.unsent_links.retain(|other| *other != id);
        if answered {
            self.remove_link(id);
        }
    }

    /// Detaches a link because of an error of the client.
    pub(crate) fn detach_because(&mut self, id: LinkId, error: AmqpError) {
        self.detach(id, Some(error.clone()));
        self.events.push_back(Event::Failed { link: id, error });
    }

    pub(super) fn free_our_handle(&mut self, session: SessionId, handle: u32) {
        if let Some(session) = self.session_mut(session) {
            session.handles.free_ours(handle);
        }
    }

    pub(crate) fn remove_link(&mut self, id: LinkId) {
        if let Some(session) = self.session_mut(id.session)
            && let Some(link) = session.links.remove(&id.generation)
        {
            self.link_count = self.link_count.saturating_sub(1);
            self.links_bytes = self.links_bytes.saturating_sub(link.kept_bytes);
        }
    }
}

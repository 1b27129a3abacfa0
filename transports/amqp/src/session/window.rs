//! Windows of a session, both ways (AMQP 2.5.6), and `flow` as far as it is about them.

use super::{Incoming, Session};
use crate::connection::{Config, Connection, Fault};
use crate::error::{AmqpError, condition};
use crate::performative::Flow;
use crate::serial::{distance, room};

/// Deliveries are counted behind frames by no more than this, which serial numbers tell from before.
const BEHIND_MAX: u32 = 1 << 30;

impl Connection {
    pub(crate) fn take_flow(&mut self, channel: u16, flow: &Flow) -> Result<(), Fault> {
        let Some(session) = self.session_of(channel)? else {
            return Ok(());
        };
        // Before the client knows our `begin`, its window begins where we begin.
        let up_to = flow.next_incoming_id.unwrap_or(0).wrapping_add(flow.incoming_window);
        session.outgoing.window = match flow.incoming_window {
            // So large a window may end anywhere.
            wide if wide > i32::MAX.cast_unsigned() => wide,
            _ => room(session.outgoing.next_id, up_to),
        };
        let Some(handle) = flow.handle else {
            if flow.echo {
                self.send_flow(channel);
            }
            return Ok(());
        };
        self.take_link_flow(channel, handle, flow)
    }

    /// Tells of more room when half of it is used up, unless too much awaits an answer (AMQP-40).
    pub(crate) fn open_window(&mut self, channel: u16) {
        let Self { config, sessions, .. } = self;
        let wanted = sessions.get(&channel).is_some_and(|session| session.wants_window(config));
        if wanted {
            self.send_flow(channel);
        }
    }

    /// Writes the state of a session.
    fn send_flow(&mut self, channel: u16) {
        let Self { config, sessions, wire, .. } = self;
        if let Some(session) = sessions.get_mut(&channel).filter(|session| !session.ending) {
            let flow = session.flow(config);
            wire.frame(channel, &flow);
        }
    }

    /// Writes the state of a session and of one of its links (AMQP-19).
    pub(crate) fn send_link_flow(
        &mut self,
        channel: u16,
        handle: u32,
        (delivery_count, link_credit): (u32, u32),
        drain: bool,
    ) {
        let Self { config, sessions, wire, .. } = self;
        if let Some(session) = sessions.get_mut(&channel).filter(|session| !session.ending) {
            let flow = session.flow(config);
            let (delivery_count, link_credit) = (Some(delivery_count), Some(link_credit));
            let handle = Some(handle);
            wire.frame(channel, &Flow { handle, delivery_count, link_credit, drain, ..flow });
        }
    }
}

impl Session {
    fn wants_window(&self, config: &Config) -> bool {
        let Incoming { next_id, up_to, .. } = self.incoming;
        !self.ending && !self.shut(config) && room(next_id, up_to) <= config.incoming_window / 2
    }

    fn shut(&self, config: &Config) -> bool {
        self.incoming.unanswered >= config.unanswered_max
    }

    /// The state of this session, to be told; it tells of as much room as there is.
    pub(crate) fn flow(&mut self, config: &Config) -> Flow {
        if !self.shut(config) {
            self.incoming.up_to = self.incoming.next_id.wrapping_add(config.incoming_window);
            if room(self.incoming.begun, self.incoming.up_to) > BEHIND_MAX {
                self.incoming.begun = self.incoming.up_to.wrapping_sub(BEHIND_MAX);
            }
        }
        Flow {
            next_incoming_id: Some(self.incoming.next_id),
            incoming_window: room(self.incoming.next_id, self.incoming.up_to),
            next_outgoing_id: self.outgoing.next_id,
            outgoing_window: config.incoming_window,
            ..Flow::default()
        }
    }

    /// A frame of a transfer came, the first of its delivery or another.
    pub(crate) fn count_frame(&mut self, first: bool) -> Result<(), Fault> {
        self.incoming.next_id = self.incoming.next_id.wrapping_add(1);
        if !first {
            return Ok(());
        }
        self.incoming.begun = self.incoming.begun.wrapping_add(1);
        if distance(self.incoming.up_to, self.incoming.begun) > 0 {
            return Err(Fault::Session(AmqpError::new(
                condition::WINDOW_VIOLATION,
                "more transfers arrived than the incoming-window allows",
            )));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::{Handles, Lapsed, Outgoing};
    use super::*;

    /// Messages of many frames run the count of frames round, and that of deliveries stays behind (AMQP-31).
    #[test]
    fn deliveries_may_be_far_fewer_than_frames() {
        let config = Config::default();
        let window = config.incoming_window;
        let mut session = Session {
            generation: 1,
            ending: false,
            links: BTreeMap::new(),
            handles: Handles::default(),
            incoming: Incoming { next_id: 0, begun: 0, up_to: window, unanswered: 0 },
            outgoing: Outgoing { next_id: 0, window: 0, next_number: 0 },
            unsettled: BTreeMap::new(),
            lapsed: Lapsed::default(),
        };
        for _ in 0..3 * (u32::MAX / window) {
            session.count_frame(true).unwrap();
            session.incoming.next_id = session.incoming.next_id.wrapping_add(window - 1);
            session.flow(&config);
        }
    }
}

//! Attaching of links, and refusals (AMQP-34 to AMQP-38). A session has at most one attached link
//! of a name and direction: a new one detaches the older one.

use std::num::NonZero;

use super::{Link, LinkStage};
use crate::codec::value::{Map, Symbols};
use crate::connection::{Connection, Event, Fault, LinkId, SessionId};
use crate::error::{AmqpError, condition};
use crate::performative::{Attach, Detach, Role};
use crate::terminus::{NodeTarget, Source, Target};

/// Links above the limit are refused, and stay until the client detaches them too. This is the
/// maximum number of such links.
const REFUSED_COUNT_MAX: usize = 64;

/// Maximum length of a link name in bytes; clients make theirs of a path and a random part.
const NAME_BYTES_MAX: usize = 1 << 10;
/// Bytes that a link may keep of its `attach`, on average over the links of a connection; a single
/// one may be as large as a frame.
const LINK_BYTES: usize = 2 << 10;

/// Answer to a client's `attach`. Name, handle and settle modes come from the request.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Answer {
    /// Source of the messages.
    pub source: Option<Source>,
    /// Target of the messages.
    pub target: Option<Target>,
    /// Maximum message size for the client, in bytes; without meaning if the client receives.
    pub message_bytes_max: Option<NonZero<u64>>,
    /// Number of bytes above that which are still accepted, for a caller that judges messages by
    /// more than their size.
    pub leeway_bytes: u64,
    /// Extensions that the broker supports.
    pub offered_capabilities: Option<Symbols>,
    /// Further properties (AMQP-37, AMQP-38).
    pub properties: Option<Map>,
}

impl Answer {
    /// Makes an answer with the ends of the request, without properties. A missing end of the
    /// client becomes an empty one (AMQP-12).
    #[must_use]
    pub fn echo(attach: &Attach) -> Self {
        let client_sends = attach.role == Role::Sender;
        let own_source = || client_sends.then(Source::default);
        let own_target = || (!client_sends).then(|| Target::Node(NodeTarget::default()));
        Self {
            source: attach.source.clone().or_else(own_source),
            target: attach.target.clone().or_else(own_target),
            properties: Some(Map::of_symbols([])),
            ..Self::default()
        }
    }

    /// Reduces the capabilities of the broker's end to the requested ones that are in `known` (AMQP
    /// 3.5.3, 4.5.1).
    #[must_use]
    pub fn capable_of(mut self, role: Role, known: &[&str]) -> Self {
        let asked = match (role, &mut self.source, &mut self.target) {
            (Role::Receiver, Some(source), _) => &mut source.capabilities,
            (Role::Sender, _, Some(Target::Node(target))) => &mut target.capabilities,
            (Role::Sender, _, Some(Target::Coordinator(target))) => &mut target.capabilities,
            (Role::Receiver, None, _) | (Role::Sender, _, None) => return self,
        };
        *asked = asked.as_ref().and_then(|asked| asked.only(known));
        self
    }
}

impl Connection {
    /// Handles an `attach` whose frame has `bytes` bytes.
    pub(crate) fn take_attach(
        &mut self,
        channel: u16,
        attach: Box<Attach>,
        bytes: usize,
    ) -> Result<(), Fault> {
        let handle_max = self.config.handle_max;
        let count_max = self.config.link_count_max.saturating_add(REFUSED_COUNT_MAX);
        let link_count = self.link_count;
        let Some(session) = self.session_of(channel)? else {
            return Ok(());
        };
        let handle = attach.handle;
        if handle > handle_max {
            return Err(Fault::Connection(AmqpError::framing(format!(
                "handle {handle} is above handle-max {handle_max}"
            ))));
        }
        if session.handles.is_used_by_client(handle) {
            return Err(Fault::Session(AmqpError::new(
                condition::HANDLE_IN_USE,
                format!("handle {handle} already has a link"),
            )));
        }
        if link_count >= count_max {
            return Err(Fault::Connection(AmqpError::new(
                condition::RESOURCE_LIMIT_EXCEEDED,
                "too many refused links are not detached; detach them before you attach more",
            )));
        }
        let (role, session_id) = (attach.role, session.id(channel));
        let is_namesake = |link: &Link| link.role == role && link.name == attach.name;
        // Clients match answers by name, so the answer for the older link must be first.
        self.answer_detaches_where(session_id, is_namesake);
        let is_stolen = |link: &Link| link.is_attached() && is_namesake(link);
        if let Some(older) = self.first_link(session_id, is_stolen) {
            let text = format!("link `{:.64}` was attached again", attach.name);
            self.detach_because(older, AmqpError::new(condition::STOLEN, text));
        }
        let our_handle = self.take_our_handle(session_id, handle)?;
        let link_id = LinkId { session: session_id, generation: self.next_generation() };
        let link = Link {
            stage: LinkStage::Requested,
            name: attach.name.clone(),
            handle: our_handle,
            kept_bytes: bytes,
            names_bytes: names_bytes(&attach),
            role,
            snd_settle_mode: attach.snd_settle_mode,
            rcv_settle_mode: attach.rcv_settle_mode,
            // The standard requires the count if the client sends; a missing one means 0.
            delivery_count: match role {
                Role::Sender => attach.initial_delivery_count.unwrap_or(0),
                Role::Receiver => self.config.initial_delivery_count,
            },
            credit: 0,
            drain: false,
            message_bytes_max: 0,
            accepted_bytes_max: 0,
            incoming: None,
            unsent: None,
        };
        if let Some(session) = self.session_mut(session_id) {
            session.handles.map(handle, link_id.generation);
            session.links.insert(link_id.generation, link);
            self.link_count += 1;
            self.links_bytes += bytes;
        }
        if let Some(error) = self.refusal(&attach) {
            self.refuse(link_id, error);
            return Ok(());
        }
        self.events.push_back(Event::Attached { link: link_id, attach });
        Ok(())
    }

    /// Assigns a handle of this side to a link. If the client takes no more handles, its unanswered
    /// detaches are answered first, which frees handles.
    fn take_our_handle(&mut self, session: SessionId, of_client: u32) -> Result<u32, Fault> {
        for _ in 0..2 {
            let open = self.session_mut(session);
            if let Some(handle) = open.and_then(|open| open.handles.take_ours(of_client)) {
                return Ok(handle);
            }
            self.answer_detaches_where(session, |_| true);
        }
        Err(Fault::Session(AmqpError::new(
            condition::RESOURCE_LIMIT_EXCEEDED,
            "session already has a link for each handle up to the client's handle-max",
        )))
    }

    /// Answers all unanswered `detach`es of the client in a session: nothing may follow an `end`
    /// (AMQP-39).
    pub(crate) fn answer_detaches(&mut self, session: SessionId) {
        self.answer_detaches_where(session, |_| true);
    }

    /// Answers the client's `detach` of each matching link immediately.
    fn answer_detaches_where(&mut self, session: SessionId, is_match: impl Fn(&Link) -> bool) {
        let is_match =
            |link: &Link| matches!(link.stage, LinkStage::DetachReceived { .. }) && is_match(link);
        while let Some(link) = self.first_link(session, is_match) {
            self.detach(link, None);
        }
    }

    /// Returns the oldest matching link.
    fn first_link(
        &mut self,
        session: SessionId,
        is_match: impl Fn(&Link) -> bool,
    ) -> Option<LinkId> {
        let mut links = self.session_mut(session)?.links.iter();
        let (generation, _) = links.find(|(_, link)| is_match(link))?;
        Some(LinkId { session, generation: *generation })
    }

    /// Returns the reason to refuse a link that does not depend on its address (AMQP-96).
    fn refusal(&self, attach: &Attach) -> Option<AmqpError> {
        let count_max = self.config.link_count_max;
        if self.link_count > count_max {
            return Some(AmqpError::new(
                condition::RESOURCE_LIMIT_EXCEEDED,
                format!(
                    "connection already has {count_max} links, the limit; use another connection"
                ),
            ));
        }
        if attach.name.len() > NAME_BYTES_MAX {
            return Some(AmqpError::invalid_field(format!(
                "name of the link has more than {NAME_BYTES_MAX} bytes"
            )));
        }
        let bytes_max = self.links_bytes_max();
        if self.links_bytes > bytes_max {
            return Some(AmqpError::new(
                condition::RESOURCE_LIMIT_EXCEEDED,
                format!(
                    "links of the connection hold {bytes_max} bytes, the limit; use another \
                     connection"
                ),
            ));
        }
        let dynamic = attach.source.as_ref().is_some_and(|source| source.node.dynamic)
            || matches!(&attach.target, Some(Target::Node(target)) if target.node.dynamic);
        dynamic.then(|| {
            AmqpError::new(
                condition::NOT_IMPLEMENTED,
                "dynamic nodes are not supported; create a queue instead",
            )
        })
    }

    /// Maximum number of bytes that all links may keep.
    fn links_bytes_max(&self) -> usize {
        let frame_bytes = usize::try_from(self.config.frame_bytes_max).unwrap_or(usize::MAX);
        self.config.link_count_max.saturating_mul(LINK_BYTES).saturating_add(frame_bytes)
    }

    /// Sets the number of bytes that a link keeps of its `attach`.
    fn keep(&mut self, id: LinkId, bytes: impl FnOnce(&Link) -> usize) {
        if let Some(link) = self.link_mut(id) {
            let kept = bytes(link);
            let before = std::mem::replace(&mut link.kept_bytes, kept);
            self.links_bytes = self.links_bytes.saturating_sub(before).saturating_add(kept);
        }
    }

    /// Accepts a link. Returns false if the client no longer waits for the answer.
    pub fn accept(&mut self, id: LinkId, answer: Answer) -> bool {
        let config_max = self.config.message_bytes_max;
        let initial_delivery_count = self.config.initial_delivery_count;
        let Some(link) = self.link_mut(id).filter(|link| link.stage == LinkStage::Requested) else {
            return false;
        };
        link.stage = LinkStage::Attached;
        let client_sends = link.role == Role::Sender;
        let message_bytes_max = answer.message_bytes_max.unwrap_or(config_max).get();
        link.message_bytes_max = message_bytes_max;
        link.accepted_bytes_max = message_bytes_max.saturating_add(answer.leeway_bytes);
        let reply = Attach {
            name: link.name.clone(),
            handle: link.handle,
            role: link.role.other(),
            snd_settle_mode: link.snd_settle_mode,
            rcv_settle_mode: link.rcv_settle_mode,
            source: answer.source,
            target: answer.target,
            // Omitted if the client receives: some clients would check received messages against it
            // (AMQP-34).
            max_message_size: client_sends.then_some(message_bytes_max),
            initial_delivery_count: (!client_sends).then_some(initial_delivery_count),
            offered_capabilities: answer.offered_capabilities,
            properties: answer.properties,
            ..Attach::default()
        };
        let (credit, drain) = (link.credit, link.drain);
        self.keep(id, |link| link.names_bytes);
        self.wire.frame(id.session.channel, &reply);
        if !client_sends && (credit > 0 || drain) {
            self.report_credit(id);
        }
        true
    }

    /// Refuses a link: answers with an `attach` without source and target, followed by a `detach`
    /// with the error (AMQP-36). Some clients recognise a refusal by one end, others by both.
    pub fn refuse(&mut self, id: LinkId, error: AmqpError) {
        self.attach_without_ends(id, Some(error));
    }

    /// Refuses a link, or answers a client that detached it before it was accepted; that client
    /// gets no error.
    pub(super) fn attach_without_ends(&mut self, id: LinkId, error: Option<AmqpError>) {
        let initial_delivery_count = self.config.initial_delivery_count;
        let Some(link) = self.link_mut(id) else {
            return;
        };
        let leaving = link.stage == LinkStage::DetachReceived { attached: false };
        if link.stage != LinkStage::Requested && !leaving {
            return;
        }
        link.stage = LinkStage::DetachSent;
        let client_sends = link.role == Role::Sender;
        let reply = Attach {
            // The name is not needed any more.
            name: std::mem::take(&mut link.name),
            handle: link.handle,
            role: link.role.other(),
            snd_settle_mode: link.snd_settle_mode,
            rcv_settle_mode: link.rcv_settle_mode,
            max_message_size: client_sends.then_some(self.config.message_bytes_max.get()),
            initial_delivery_count: (!client_sends).then_some(initial_delivery_count),
            ..Attach::default()
        };
        self.keep(id, |_| 0);
        let channel = id.session.channel;
        self.wire.frame(channel, &reply);
        let handle = reply.handle;
        self.wire.frame(
            channel,
            &Detach { handle, closed: true, error: error.map(AmqpError::with_transience) },
        );
        self.free_our_handle(id.session, handle);
        if leaving {
            self.remove_link(id);
        }
    }

    /// Maximum message size that was announced to the client on a link, in bytes; 0 if the link
    /// does not exist.
    #[must_use]
    pub fn message_bytes_max(&self, id: LinkId) -> u64 {
        let session = self.sessions.get(&id.session.channel);
        let link = session.and_then(|session| session.links.get(&id.generation));
        link.map_or(0, |link| link.message_bytes_max)
    }

    /// Returns a link of a session that has not ended.
    pub(crate) fn link_mut(&mut self, id: LinkId) -> Option<&mut Link> {
        self.session_mut(id.session)?.links.get_mut(&id.generation)
    }
}

/// Bytes of the names that are kept with a link: its own, which requests also name, and the
/// addresses of its ends.
fn names_bytes(attach: &Attach) -> usize {
    let source = attach.source.as_ref().and_then(Source::address);
    let target = attach.target.as_ref().and_then(Target::address);
    let ends = [source, target].into_iter().flatten().map(str::len).sum::<usize>();
    2 * attach.name.len() + ends
}

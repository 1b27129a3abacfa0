//! Start of a conversation: a hello begins a new one or resumes an old one. The listener calls it
//! for each upgraded connection.

use std::future::poll_fn;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use futures_util::{SinkExt as _, StreamExt as _};
use peeklock_core::Broker;
use peeklock_core::admission::{Account, ClientPace, ConnectionPlace, Member, Opening};
use peeklock_core::command::LinkEnd;
use peeklock_core::error::Rejection;
use peeklock_json::{IN_JSON_FACTOR, message_in_json_max};
use peeklock_link::{Arrivals, Engine, Phase};
use peeklock_listen::websocket::Pongs;
use tokio::sync::mpsc;
use tokio_tungstenite::tungstenite::{Error as SocketError, Message as SocketMessage};

use bytes::Bytes;

use super::close;
use super::place;
use super::serve::payload;
use super::stall::Stall;
use super::{
    CALLS_MAX, Conversation, FRAMES_KEPT, HEARTBEAT_SECONDS_MIN, Pulse, SocketEnd, WrittenFrames,
};
use crate::error::{Close, code};
use crate::frame::text::Guid;
use crate::frame::{ClientFrame, Encoding, Item, Request, ServerFrame, cost_of};
use crate::operation::{Hello, Notice, Operation, Welcome};
use crate::site::{Call, Handover, Site, Socket};
use crate::unwritten::FramePieces;

/// Serves a socket after its upgrade, until it ends.
pub(crate) async fn converse(
    site: Arc<Site>,
    socket: Box<Socket>,
    encoding: Encoding,
    opening: Opening,
) {
    // Boxed, so that its memory is released when it ends: a task is as large as the largest future
    // that it awaits, and an idle connection costs little more than its task.
    let greeted = Box::pin(greet(&site, socket, encoding, opening));
    if let Some((handover, opening)) = greeted.await {
        Conversation::open(site, handover, encoding, opening).await;
    }
}

/// Waits for the hello. Returns none if there is no conversation to begin, because the socket
/// resumes another one or failed. A new conversation has no slot yet.
async fn greet(
    site: &Arc<Site>,
    mut socket: Box<Socket>,
    encoding: Encoding,
    opening: Opening,
) -> Option<(Box<Handover>, Opening)> {
    let timeout = site.config.handshake_timeout;
    let hello = tokio::select! {
        biased;
        () = opening.evicted() => return None,
        hello = tokio::time::timeout(timeout, hello(&site.broker, &mut socket, encoding)) => hello,
    };
    let refusal = match hello {
        Ok(Ok((hello_id, hello))) => {
            let resume = hello.resume;
            let received = resume.map_or(0, |it| it.received);
            let handover = Box::new(Handover { socket, hello_id, received, hello });
            let begins = match resume {
                Some(resume) => site.resume(resume.resume_token.0, encoding, handover).err(),
                None => Some(handover),
            };
            return begins.map(|handover| (handover, opening));
        }
        Ok(Err(refusal)) => refusal?,
        Err(_) => Close::new(code::NO_HELLO, "no hello arrived in time"),
    };
    drop(opening);
    close(&mut socket, &refusal).await;
    None
}

/// Reads the first frame, which must contain a hello and nothing else.
async fn hello(
    broker: &Broker,
    socket: &mut Socket,
    encoding: Encoding,
) -> Result<(u32, Hello), Option<Close>> {
    let message = loop {
        match socket.next().await {
            // The pong must be written before another ping is read.
            Some(Ok(SocketMessage::Ping(_))) => {
                socket.flush().await.map_err(|_| None)?;
                socket.get_mut().frame_taken();
            }
            Some(Ok(SocketMessage::Pong(_))) => socket.get_mut().frame_taken(),
            Some(Ok(message)) => break message,
            Some(Err(SocketError::Capacity(_))) => {
                return Err(Some(Close::new(code::TOO_BIG, "the frame is too large")));
            }
            Some(Err(_)) | None => return Err(None),
        }
    };
    socket.get_mut().frame_taken();
    let Some(bytes) = payload(message, encoding)? else { return Err(None) };
    // As with any other frame, the cost is paid before anything is decoded.
    let (commands, cost) = cost_of(encoding, &bytes);
    let _permit = broker.connection_budget().wait_list(commands, cost).await;
    let frame =
        ClientFrame::decode(encoding, &bytes).map_err(|error| Some(Close::of_frame(&error)))?;
    let mut requests = frame.requests.into_iter();
    match (requests.next(), requests.next()) {
        (Some(Ok(Request { id, operation: Operation::Hello(hello) })), None) => Ok((id, hello)),
        (Some(Err(bad)), _) => Err(Some(Close::of_frame(&bad.error))),
        _ => {
            let reason = "the first frame must be one hello and nothing else";
            Err(Some(Close::new(code::NO_HELLO, reason)))
        }
    }
}

impl Conversation {
    /// Begins a conversation and serves it until it ends.
    pub(super) async fn open(
        site: Arc<Site>,
        mut handover: Box<Handover>,
        encoding: Encoding,
        opening: Opening,
    ) {
        let broker = site.broker.with_connection_place();
        let principal = handover.socket.get_ref().principal();
        let peer = principal.peer;
        if !broker.allows_anonymous() && handover.hello.token.is_none() {
            drop(opening);
            let reason = Rejection::unauthorized("the hello has no token");
            // Counts and logs the refusal.
            drop(broker.refuse(reason.with_cause("missing").with_peer(peer), ""));
            let refusal = Close::new(code::UNAUTHORIZED, "the hello has no token");
            return close(&mut handover.socket, &refusal).await;
        }
        let resume_token = broker.random_bits();
        let (sender, calls) = mpsc::channel(CALLS_MAX);
        let access = broker.access(principal.with_token_if_any(handover.hello.token.clone()));
        // A client that guesses tokens waits for the answer (SEC-26). Meanwhile, others that need
        // its slot can have it.
        let asking = Box::pin(async {
            tokio::select! {
                biased;
                () = opening.evicted() => None,
                newcomer = place::newcomer(&site.places, &access, peer) => Some(newcomer),
            }
        });
        let Some(newcomer) = asking.await else { return };
        drop(opening);
        let Some(place) = site.enter(resume_token, encoding, newcomer, sender) else {
            let count = site.config.connection_count_max;
            let detail =
                format!("there are already {count} connections, the limit; try again later");
            let error = broker.refuse(Rejection::quota_exceeded(detail), "");
            let reason = format!("QuotaExceeded, TrackingId:{}", error.tracking_id());
            return close(&mut handover.socket, &Close::new(code::TRY_LATER, reason)).await;
        };
        let stop = site.tracker.stop_begun();
        let hello = &handover.hello;
        let grace = hello
            .grace_seconds
            .filter(|seconds| *seconds > 0)
            .map(|seconds| Duration::from_secs(seconds.into()).min(site.config.grace))
            .filter(|grace| !grace.is_zero());
        tracing::debug!(client = hello.client, ?encoding, "connection opened");
        let config = &site.config;
        let window_bytes = config.outbound_bytes_max;
        let header_bytes_max = broker.settings().limits.header_bytes_max;
        let account = Account::new(&broker.outbound_pool(), FRAMES_KEPT * window_bytes);
        let (account, arrivals) = match encoding {
            Encoding::Binary => (account, Arrivals::default()),
            // Until its text is written, a message counts as its longest possible text.
            Encoding::Json => {
                let encoded_bytes = move |bytes| message_in_json_max(bytes, header_bytes_max);
                (account.with_expansion(IN_JSON_FACTOR), Arrivals::with_encoded_size(encoded_bytes))
            }
        };
        let unsettled_max = config.unsettled_count_max;
        let client = broker.client("websocket", peer);
        let mut engine =
            Engine::new(broker, access, client, stop, account, window_bytes, unsettled_max);
        engine.arrivals = arrivals;
        engine.place = ConnectionPlace::new(site.places.join(peer), config.handshake_timeout);
        let conversation = Box::new(Self {
            engine,
            heartbeat: site.config.heartbeat,
            place,
            has_valid_token: false,
            encoding,
            calls,
            resume_token,
            grace,
            seen: 0,
            commits: Vec::new(),
            collected_bytes: 0,
            handing_over: None,
            started_bytes: 0,
            start_stall: ClientPace::default(),
            ready: Vec::new(),
            ready_bytes: 0,
            unwritten_count: 0,
            delivered: Vec::new(),
            frames: WrittenFrames::default(),
            unflushed: false,
            outgoing: FramePieces::default(),
            pongs: Pongs::default(),
            pulse: Pulse::new(config.heartbeat, config.frame_timeout),
            stall: Stall::default(),
            site,
        });
        conversation.run(handover).await;
    }

    /// Takes a socket: sends the welcome, then all frames that the client has not confirmed.
    pub(super) async fn adopt(
        &mut self,
        handover: &mut Handover,
        resumed: bool,
    ) -> Result<(), SocketEnd> {
        let Handover { socket, hello, hello_id, received } = handover;
        // A frame that waited for room was not counted as taken, so the client sends it again.
        if self.engine.needs_permit() {
            self.engine.phase = Phase::Open;
        }
        let principal = socket.get_ref().principal();
        // The conversation does not keep the token next to its access.
        let token = hello.token.take();
        let client = &self.engine.client;
        client.set_name(&hello.client.take().unwrap_or_default());
        client.set_address(principal.peer, principal.by_proxy);
        self.engine.access.renew(principal.with_token_if_any(token)).await;
        self.update_shows_key();
        let config = &self.site.config;
        if let Some(seconds) = hello.heartbeat_seconds {
            let requested = Duration::from_secs(seconds.max(HEARTBEAT_SECONDS_MIN).into());
            self.heartbeat = config.heartbeat.min(requested);
        }
        let narrow = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        let seconds = |time: Duration| u32::try_from(time.as_secs().max(1)).unwrap_or(u32::MAX);
        let welcome = Welcome {
            resumed,
            received: self.seen,
            resume_token: self.grace.map(|_| Guid(self.resume_token)),
            grace_seconds: self.grace.map_or(0, seconds),
            heartbeat_seconds: seconds(self.heartbeat),
            now_utc: crate::frame::text::Instant(self.engine.broker.now()),
            namespace: self.engine.broker.settings().name.to_string(),
            server: concat!("peeklock/", env!("CARGO_PKG_VERSION")).to_owned(),
            frame_bytes_max: config.frame_bytes_max as u64,
            command_count_max: narrow(self.command_count_max()),
            link_count_max: narrow(config.link_count_max),
            unsettled_count_max: config.unsettled_count_max,
        };
        let item = Item { id: *hello_id, notice: Notice::Welcome(Box::new(welcome)) };
        let frame = ServerFrame { seen: self.seen, items: vec![item] };
        let Ok(bytes) = frame.encode(self.encoding, 0) else { return Err(SocketEnd::Lost(None)) };
        let mut frames = vec![Bytes::from(bytes)];
        if resumed {
            let unconfirmed = self.frames.unconfirmed.len() as u64;
            if *received > self.frames.sent || self.frames.sent - *received > unconfirmed {
                let reason = "the client confirms frames that were never sent, or has lost some";
                return Err(SocketEnd::Refused(Close::new(code::PROTOCOL, reason)));
            }
            self.confirm(*received);
            frames.extend(self.frames.unconfirmed.iter().map(|sent| sent.bytes.clone()));
        }
        let encoding = self.encoding;
        let writing = async {
            for piece in frames.into_iter().flat_map(|frame| FramePieces::new(frame, encoding)) {
                socket.feed(piece).await?;
            }
            socket.flush().await
        };
        // These bytes fitted into the window before, but the peer may not read them.
        let (engine, taken_bytes) = (&mut self.engine, Some(self.frames.confirmed_bytes));
        let written = tokio::select! {
            biased;
            // The client may have given up this socket already and come back on another one.
            Some(call) = self.calls.recv() => return Err(call.into()),
            () = poll_fn(|context| engine.poll_yield(taken_bytes, context)) => {
                return Err(SocketEnd::Yielded);
            }
            written = tokio::time::timeout(self.site.config.frame_timeout, writing) => written,
        };
        if !matches!(written, Ok(Ok(()))) {
            return Err(SocketEnd::Lost(None));
        }
        (self.unflushed, self.pongs) = (false, Pongs::default());
        self.outgoing = FramePieces::default();
        self.frames.flushed = self.frames.sent;
        self.pulse = Pulse::new(self.heartbeat, self.site.config.frame_timeout);
        self.stall.reset();
        self.place.mark_resumed();
        if self.engine.stop_deadline().is_none() {
            self.engine.links.pause(false);
            self.engine.links.update_all_limits();
            self.engine.links.submit_groups();
        }
        Ok(())
    }

    /// Waits until the client comes back, for at most the grace period; no deliveries flow
    /// meanwhile.
    pub(super) async fn wait_for_client(&mut self) -> Result<Box<Handover>, LinkEnd> {
        let Some(grace) = self.grace else { return Err(LinkEnd::Broken) };
        if self.engine.stop_deadline().is_some() {
            return Err(LinkEnd::ByBroker);
        }
        self.engine.links.pause(true);
        self.engine.links.update_all_limits();
        self.engine.links.submit_groups();
        let standing = &mut self.engine.place;
        self.place.mark_lost(standing.member.as_ref());
        // Its slot can be reclaimed like the slot of a lost connection, unless another connection
        // has it already.
        if !standing.mark_idle(false, &self.site.places)
            || standing.member.as_ref().is_some_and(Member::is_evicted)
        {
            return Err(LinkEnd::Broken);
        }
        // Frames kept for an absent client must not block clients that wait for room.
        let (engine, taken_bytes) = (&mut self.engine, Some(self.frames.confirmed_bytes));
        let ended = poll_fn(|context| {
            if engine.poll_stop(context).is_ready() {
                return Poll::Ready(LinkEnd::ByBroker);
            }
            let is_needed = engine.place.poll_evicted(context).is_ready();
            match is_needed || engine.poll_yield(taken_bytes, context).is_ready() {
                true => Poll::Ready(LinkEnd::Broken),
                false => Poll::Pending,
            }
        });
        tokio::select! {
            call = self.calls.recv() => match call {
                Some(Call::Resume(handover)) => Ok(handover),
                Some(Call::Leave) | None => Err(LinkEnd::Broken),
            },
            () = tokio::time::sleep(grace) => Err(LinkEnd::Broken),
            end = ended => Err(end),
        }
    }
}

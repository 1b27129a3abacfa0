//! The place of a connection among the permitted connections (QUO-01). A connection without a place
//! uses a spare socket.
//!
//! A client authenticates by SASL, or only after it has opened its connection, at `$cbs`. A
//! connection without a place is therefore opened and may use `$cbs`, and nothing else, for at most
//! `opening_timeout`. It gets a free place; a client with a key, a token or a certificate may take
//! the place of a client without one. Otherwise it waits for a place. `Conversation` calls this
//! module at these steps.

use std::future::Future;
use std::pin::Pin;

use peeklock_core::admission::{ConnectionPlace, Newcomer, Place};
use peeklock_core::error::Rejection;
use peeklock_link::Phase;

use super::conversation::Conversation;
use super::node::is_for_tokens;
use crate::connection::Event;
use crate::error::{AmqpError, condition};

/// Progress of a connection towards its place.
#[derive(Default)]
pub(super) struct PlaceSearch {
    pub(super) place: Option<Place>,
    /// Completes when another connection needs the spare socket; `None` once this one has a place.
    pub(super) opening: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// The place for which an open connection waits.
    pub(super) seeking: Option<Pin<Box<dyn Future<Output = Place> + Send>>>,
}

impl Conversation {
    /// Takes a place for an open connection, or starts waiting for one.
    pub(super) async fn seek_place(&mut self) {
        if let Some(place) = self.listener.places.try_take() {
            return self.take_place(place);
        }
        let newcomer = self.newcomer().await;
        if let Some(place) = self.listener.places.take_or_evict(newcomer) {
            return self.take_place(place);
        }
        self.place_search.seeking = Some(Box::pin(self.listener.places.clone().wait(newcomer)));
    }

    /// The class of the connection in the competition for places, by its credentials.
    async fn newcomer(&mut self) -> Newcomer {
        if self.has_credential() {
            return Newcomer::ByKey;
        }
        // Where anonymous clients are served, this client may still lack access (SEC-17).
        match self.engine.broker.allows_anonymous()
            && self.engine.access.has_valid_credentials().await
        {
            true => Newcomer::Known(self.identity.principal.peer),
            false => Newcomer::Stranger,
        }
    }

    /// Records that the client has presented valid credentials.
    pub(super) async fn record_valid_credentials(&mut self) {
        self.mark_key();
        if self.place_search.place.is_none() {
            self.seek_place().await;
        }
    }

    /// Gives the connection its place.
    pub(super) fn take_place(&mut self, place: Place) {
        self.place_search.place = Some(place);
        let member = self.listener.places.join(self.identity.principal.peer);
        self.engine.place = ConnectionPlace::new(member, self.listener.config.opening_timeout);
        (self.place_search.opening, self.place_search.seeking) = (None, None);
        if self.engine.needs_place() {
            self.engine.phase = Phase::Open;
        }
        self.mark_key();
    }

    /// Stops waiting for a place: the connection ends, and drops the event that needs one.
    pub(super) fn stop_seeking(&mut self) {
        self.place_search.seeking = None;
        if self.engine.needs_place() {
            self.engine.phase = Phase::Open;
            self.delayed_event = None;
        }
    }

    /// Whether `event` needs a place: an attach, unless its link is for tokens.
    pub(super) fn needs_place(&self, event: &Event) -> bool {
        let is_for_place =
            matches!(event, Event::Attached { attach, .. } if !is_for_tokens(attach));
        is_for_place && self.place_search.place.is_none()
    }

    /// Records whether a client with a key may claim the place of this connection.
    pub(super) fn mark_key(&self) {
        self.engine.place.mark_key(self.has_credential());
    }

    /// Closes an open connection that has found no place within `opening_timeout`.
    pub(super) fn close_without_place(&mut self) {
        let is_late = self.clock.began.elapsed() > self.listener.config.opening_timeout;
        if !self.has_received_open
            || self.place_search.place.is_some()
            || !is_late
            || self.engine.is_closed()
        {
            return;
        }
        self.stop_seeking();
        let count = self.listener.config.connection_count_max;
        let rejection = Rejection::quota_exceeded(format!(
            "there are already {count} connections, the limit `amqp.connection_count_max`; close \
             some, or raise the limit"
        ));
        let refused = self.engine.broker.refuse(rejection, "");
        // SDKs give up permanently on the condition of the rejection itself; on connection-forced
        // they connect again (AMQP-94).
        let text = format!("{}: {refused}", refused.condition());
        let error = AmqpError::new(condition::CONNECTION_FORCED, text);
        self.amqp.close(Some(error), self.clock.began.elapsed());
    }
}

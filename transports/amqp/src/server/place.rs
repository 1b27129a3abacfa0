//! The place of a connection among those that there may be (QUO-01). Until it has one it is on a spare socket.
//!
//! A client shows who it is by SASL, or only after it has opened its connection, at `$cbs`. So a connection without a place
//! is opened and served there, and nowhere else, for as long as it has to show something in. It gets a place that is free, and
//! who has shown a key, a token or a certificate that of somebody who has not; whoever finds none waits, for so long.

use std::future::Future;
use std::pin::Pin;

use peeklock_core::admission::{ConnectionPlace, Newcomer, Place};
use peeklock_core::error::Rejection;
use peeklock_link::Phase;

use super::conversation::Conversation;
use super::node::is_for_tokens;
use crate::connection::Event;
use crate::error::{AmqpError, condition};

/// The way of a connection to its place.
#[derive(Default)]
pub(super) struct Entry {
    pub(super) place: Option<Place>,
    /// Ready when its spare socket is needed, until it has a place.
    pub(super) opening: Option<Pin<Box<dyn Future<Output = ()> + Send>>>,
    /// The place that it waits for, once it is open.
    pub(super) seeking: Option<Pin<Box<dyn Future<Output = Place> + Send>>>,
}

impl Conversation {
    /// Takes a place for a connection that is open, or begins to wait for one.
    pub(super) async fn seek_place(&mut self) {
        if let Some(place) = self.site.places.try_take() {
            return self.take_place(place);
        }
        let newcomer = self.newcomer().await;
        if let Some(place) = self.site.places.take_or_evict(newcomer) {
            return self.take_place(place);
        }
        self.entry.seeking = Some(Box::pin(self.site.places.clone().wait(newcomer)));
    }

    /// Who wants a place, by what it has shown.
    async fn newcomer(&mut self) -> Newcomer {
        if self.has_credential() {
            return Newcomer::ByKey;
        }
        // Where everybody is let in, it may be that this one is not (SEC-17).
        match self.engine.broker.allows_anonymous()
            && self.engine.access.has_valid_credentials().await
        {
            true => Newcomer::Known(self.identity.principal.peer),
            false => Newcomer::Stranger,
        }
    }

    /// It has shown something that is good.
    pub(super) async fn has_shown(&mut self) {
        self.mark_key();
        if self.entry.place.is_none() {
            self.seek_place().await;
        }
    }

    /// It has a place from now on.
    pub(super) fn take_place(&mut self, place: Place) {
        self.entry.place = Some(place);
        let member = self.site.places.join(self.identity.principal.peer);
        self.engine.standing = ConnectionPlace::new(member, self.site.config.opening_timeout);
        (self.entry.opening, self.entry.seeking) = (None, None);
        if self.engine.needs_place() {
            self.engine.phase = Phase::Open;
        }
        self.mark_key();
    }

    /// It is waited for no more: the connection ends, and with it what was not carried out without one.
    pub(super) fn stop_seeking(&mut self) {
        self.entry.seeking = None;
        if self.engine.needs_place() {
            self.engine.phase = Phase::Open;
            self.delayed_event = None;
        }
    }

    /// Whether something may not be carried out without a place: what holds anything, and is not for showing who it is.
    pub(super) fn needs_place(&self, event: &Event) -> bool {
        let is_for_place =
            matches!(event, Event::Attached { attach, .. } if !is_for_tokens(attach));
        is_for_place && self.entry.place.is_none()
    }

    /// Says whether its place can be needed by who shows a key.
    pub(super) fn mark_key(&self) {
        self.engine.standing.mark_key(self.has_credential());
    }

    /// Closes a connection that was opened, and has found no place in the time in which it has to be.
    pub(super) fn close_without_place(&mut self) {
        let is_late = self.clock.began.elapsed() > self.site.config.opening_timeout;
        if !self.is_open || self.entry.place.is_some() || !is_late || self.engine.is_closed() {
            return;
        }
        self.stop_seeking();
        let count = self.site.config.connection_count_max;
        let rejection = Rejection::quota_exceeded(format!(
            "there are already {count} connections, the limit `amqp.connection_count_max`; close \
             some, or raise the limit"
        ));
        let refused = self.engine.broker.refuse(rejection, "");
        // Its own condition is final for the SDKs, which would give up what they only connect to again; with this they go on
        // trying (AMQP-94).
        let text = format!("{}: {refused}", refused.condition());
        let error = AmqpError::new(condition::CONNECTION_FORCED, text);
        self.amqp.close(Some(error), self.clock.began.elapsed());
    }
}

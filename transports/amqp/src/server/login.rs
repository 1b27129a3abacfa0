//! Authentication: SASL (AMQP-03, AMQP-08), and the tokens that a client puts (AMQP-21). A
//! connection without a valid credential is closed after the opening timeout, unless anonymous
//! access is on.

use std::collections::HashSet;
use std::sync::Arc;
use std::time::Instant;

use peeklock_core::Access;
use peeklock_core::contract::{Action, Principal};
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::time::TimeSpan;

use super::conversation::Conversation;
use super::identity::{LoginKind, PutToken};
use super::node::Node;
use crate::sasl::{Credentials, Plain};

/// User of SASL PLAIN whose password is a token.
const TOKEN_USER: &str = "$jwt";
/// Minimum time for which a token is kept: the client is about to attach the link that needs it.
const FRESH: TimeSpan = TimeSpan::from_seconds(10);

/// Reason why a token is refused.
pub(super) enum TokenRefusal {
    /// The token is invalid.
    Token(BrokerError),
    /// There are too many tokens that links depend on.
    TooManyTokens,
}

impl Conversation {
    /// Judges the credentials of a client. An anonymous client may put tokens later.
    pub(super) async fn log_in(&mut self, credentials: Credentials) {
        let known = match credentials {
            Credentials::Anonymous => true,
            Credentials::Plain(plain) => self.log_in_by(plain).await,
            // The listener has verified the certificate, and the authorizer decides on its rights.
            // Without a certificate, the client is anonymous (AMQ-02).
            Credentials::External => {
                if self.identity.principal.tls.is_some()
                    && self.engine.access.has_valid_credentials().await
                {
                    self.identity.logged_in = LoginKind::ByCertificate;
                }
                true
            }
        };
        if known { self.amqp.admit() } else { self.amqp.deny() }
    }

    /// Logs in with a policy and its key, or with a token; valid for the whole connection.
    async fn log_in_by(&mut self, plain: Plain) -> bool {
        let Plain { user, password } = plain;
        let principal = match &*user {
            TOKEN_USER => self.principal(&password),
            _ => self.identity.principal.clone().with_key(user, password),
        };
        let access = self.engine.broker.access(principal);
        // A client that guesses has to wait for the answer (SEC-26).
        let is_known = access.require_valid_credentials().await.is_ok();
        if is_known {
            self.identity.logged_in = LoginKind::ByPassword;
        }
        self.engine.access = access;
        is_known
    }

    fn principal(&self, token: &str) -> Principal {
        self.identity.principal.clone().with_token(token)
    }

    /// Closes a connection that had no valid credential for the opening timeout, unless anonymous
    /// clients are allowed (SEC-16), and a connection that has found no place.
    pub(super) fn close_unknown(&mut self) {
        self.mark_key();
        if self.may_stay() {
            self.identity.last_valid_at = Instant::now();
            return self.close_without_place();
        }
        let is_late = self.identity.last_valid_at.elapsed() > self.listener.config.opening_timeout;
        if !is_late || self.engine.is_closed() {
            return;
        }
        self.stop_seeking();
        let text = "the client presented no valid token to $cbs and no key over SASL PLAIN in time";
        let reason = Rejection::unauthorized(text)
            .with_cause("missing")
            .with_peer(self.identity.principal.peer);
        let error = self.refuse(reason, "");
        self.amqp.close(Some(error), self.clock.began.elapsed());
    }

    /// Returns whether the client may stay connected.
    pub(super) fn may_stay(&self) -> bool {
        self.has_credential() || self.engine.broker.allows_anonymous()
    }

    /// Returns whether a credential of the client is still valid; anonymous access does not count.
    pub(super) fn has_credential(&self) -> bool {
        let by_login = match self.identity.logged_in {
            LoginKind::Not => false,
            LoginKind::ByCertificate | LoginKind::ByPassword => self.engine.access.holds(),
        };
        by_login || self.identity.tokens.iter().any(|known| known.access.holds())
    }

    /// Stores a token for a path and everything below it. A newer token replaces the older one for
    /// the path, also for attached links (AMQP-26).
    pub(super) async fn put_token(&mut self, path: &str, token: &str) -> Result<(), TokenRefusal> {
        let folded: Box<str> = path.to_lowercase().into();
        let token = self.identity.shared_token(token);
        let principal = self.identity.principal.clone().with_token(Arc::clone(&token));
        let tried = self.engine.broker.access(principal.clone());
        // The token is stored even if no entity exists yet: links may be attached as soon as it is
        // created.
        // `Action::End` needs no right, so this checks only the token.
        tried.allow(Action::End, path).await.map_err(TokenRefusal::Token)?;
        self.make_room_for_token(&folded, &token)?;
        let put_at = self.engine.broker.now();
        if let Some(known) = self.identity.tokens.iter_mut().find(|known| known.path == folded) {
            (known.token, known.put_at) = (token, put_at);
            let access = known.access.clone();
            access.renew(principal).await;
            if !access.holds() {
                // No link depends on the access, so the newer token was not checked by `renew`.
                access.allow(Action::End, path).await.map_err(TokenRefusal::Token)?;
            }
            return Ok(());
        }
        self.identity.tokens.push(PutToken { path: folded, access: tried, token, put_at });
        Ok(())
    }

    /// Makes room for a token for a path. Tokens that no link depends on are removed before more
    /// shared room is taken.
    fn make_room_for_token(&mut self, path: &str, token: &Arc<str>) -> Result<(), TokenRefusal> {
        loop {
            let of_others = |known: &&PutToken| *known.path != *path;
            let is_here = |known: &PutToken| Arc::ptr_eq(&known.token, token);
            let count = self.identity.tokens.iter().filter(of_others).count();
            let is_shared = self.identity.tokens.iter().filter(of_others).any(is_here);
            let bytes = path.len() + if is_shared { 0 } else { token.len() };
            let held = self.identity.held_token_bytes(Some(path));
            if count < self.quota.count() && held + bytes <= self.quota.token_bytes() {
                return Ok(());
            }
            if let Some(unused) = self.unused(path) {
                self.identity.tokens.remove(unused);
            } else if !self.grow() {
                return Err(TokenRefusal::TooManyTokens);
            }
        }
    }

    /// Returns the oldest token that no link depends on: no link is attached to its path or below,
    /// not even for requests. Skips the token for the path `but` and tokens that were put recently.
    fn unused(&mut self, but: &str) -> Option<usize> {
        let links =
            self.numbering.numbers.keys().filter_map(|number| self.engine.links.get(*number));
        let of_links = links.map(|link| link.entity.path());
        // Links for requests are not links of the entity.
        let others = self.nodes.values().filter_map(Node::path);
        let mut used = HashSet::new();
        for path in of_links.chain(others) {
            let path = path.to_lowercase();
            used.extend(
                path.match_indices('/').filter_map(|(at, _)| path.get(..at)).map(Box::from),
            );
            used.insert(Box::<str>::from(path));
        }
        // The token for the namespace covers every path.
        if !used.is_empty() {
            used.insert(Box::default());
        }
        let now = self.engine.broker.now();
        let is_unused = |known: &PutToken| {
            now >= known.put_at.plus(FRESH) && *known.path != *but && !used.contains(&known.path)
        };
        let unused = self.identity.tokens.iter().position(is_unused);
        self.engine.steps.add(used.len());
        unused
    }

    /// Returns the access for a path: of valid tokens that cover it the nearest one, else of
    /// invalid ones; without such tokens the access of the connection.
    pub(super) fn access_at(&self, path: &str) -> Access {
        let folded = path.to_lowercase();
        let covering = self.identity.tokens.iter().filter(|known| known.covers(&folded));
        let nearest = covering.max_by_key(|known| (known.access.holds(), known.path.len()));
        let access = nearest.map_or(&self.engine.access, |known| &known.access);
        // An access remembers grants of links; unused ones are dropped here.
        access.forget_unused();
        access.clone()
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicBool, Ordering};
    use std::task::{Context, Waker};
    use std::time::Duration;

    use async_trait::async_trait;
    use bytes::Bytes;
    use peeklock_core::Broker;
    use peeklock_core::contract::{Authorizer, Epoch, Grant, TlsIdentity};
    use peeklock_link::Protocol as _;

    use super::super::config::AmqpConfig;
    use super::super::listener_state::ListenerState;
    use super::*;
    use crate::connection::Event;

    /// Authorizer with one key, valid until it is regenerated. A client with only a certificate is
    /// known by it until it is withdrawn.
    struct OneKey {
        epoch: Epoch,
        is_over: AtomicBool,
        certificates: Epoch,
    }

    impl OneKey {
        fn regenerate(&self) {
            self.is_over.store(true, Ordering::Release);
            self.epoch.raise();
        }
    }

    #[async_trait]
    impl Authorizer for OneKey {
        async fn authorize(&self, who: &Principal, _: &str) -> Result<Grant, Rejection> {
            match &who.key {
                Some(shown) if &*shown.key == "k" && !self.is_over.load(Ordering::Acquire) => {
                    Ok(Grant::everything().with_epoch(self.epoch.mark()))
                }
                None if who.tls.is_some() => {
                    Ok(Grant::nothing().with_epoch(self.certificates.mark()))
                }
                _ => Err(Rejection::unauthorized("not known")),
            }
        }

        fn allows_anonymous(&self) -> bool {
            false
        }
    }

    fn plain(password: &str) -> Credentials {
        Credentials::Plain(Plain { user: "team".into(), password: password.into() })
    }

    /// Starts a broker with a single key.
    async fn start() -> (Arc<OneKey>, Broker) {
        let authorizer = Arc::new(OneKey {
            epoch: Epoch::new(),
            is_over: AtomicBool::new(false),
            certificates: Epoch::new(),
        });
        let broker = Broker::builder()
            .arbiters(1)
            .authorizer(Arc::clone(&authorizer) as Arc<dyn Authorizer>)
            .start()
            .await
            .unwrap();
        (authorizer, broker)
    }

    fn config() -> AmqpConfig {
        AmqpConfig::at(SocketAddr::from(([127, 0, 0, 1], 0)))
    }

    /// A client without a certificate, and a client with one.
    fn clients() -> [Principal; 2] {
        let bare = Principal::anonymous().from_peer(SocketAddr::from(([10, 0, 0, 1], 1)));
        let certified = bare.clone().with_tls(TlsIdentity::new("CN=machine", Bytes::new()));
        [bare, certified]
    }

    async fn logged_in(
        listener: &Arc<ListenerState>,
        who: &Principal,
        said: Credentials,
    ) -> Conversation {
        let mut client = Conversation::new(Arc::clone(listener), who.clone());
        client.log_in(said).await;
        client
    }

    /// SEC-16, SEC-09: a client that logged in with a key is known while the key is valid, with any
    /// certificate. A client that logged in with its certificate is known until the authorizer
    /// withdraws it.
    #[tokio::test]
    async fn client_is_known_while_its_credential_is_valid() {
        let (authorizer, broker) = start().await;
        let listener = Arc::new(ListenerState::new(broker.clone(), config()));
        let [bare, certified] = clients();
        let logged_in = async |who: &Principal, said| logged_in(&listener, who, said).await;
        let by_key = [logged_in(&bare, plain("k")).await, logged_in(&certified, plain("k")).await];
        let by_certificate = logged_in(&certified, Credentials::External).await;
        for client in by_key.iter().chain([&by_certificate]) {
            // As for a link that may be refused: unused grants are forgotten, but not the identity
            // of the client.
            drop(client.access_at("orders"));
            assert!(client.may_stay(), "{:?}", client.identity.principal);
        }
        for (who, credentials) in [
            (&bare, plain("x")),
            (&certified, plain("x")),
            (&certified, Credentials::Anonymous),
            (&bare, Credentials::External),
        ] {
            assert!(!logged_in(who, credentials).await.may_stay());
        }
        assert!(by_certificate.may_stay());
        authorizer.regenerate();
        for client in &by_key {
            assert!(!client.may_stay(), "{:?}", client.identity.principal);
        }
        assert!(by_certificate.may_stay());
        authorizer.certificates.raise();
        assert!(!by_certificate.may_stay());
        drop((by_key, by_certificate));
        broker.stop(Duration::ZERO).await.unwrap();
    }

    /// QUO-01, SEC-16: a client that logged in with a key does not count as idle until its first
    /// link must have arrived, so a stranger does not get its place. A client without credentials
    /// is idle, and so is one that took too long.
    #[tokio::test]
    async fn client_with_key_is_not_idle_before_its_first_link() {
        let (_, broker) = start().await;
        let [bare, _] = clients();
        for (said, opening_timeout, is_idle) in [
            (plain("k"), Duration::from_secs(600), false),
            (plain("k"), Duration::ZERO, true),
            (Credentials::Anonymous, Duration::from_secs(600), true),
        ] {
            let listener = Arc::new(ListenerState::new(
                broker.clone(),
                AmqpConfig { opening_timeout, ..config() },
            ));
            let mut client = logged_in(&listener, &bare, said).await;
            client.seek_place().await;
            assert!(client.mark_idle() && client.place_search.place.is_some());
            assert_eq!(client.engine.place.is_idle(), is_idle);
        }
        broker.stop(Duration::ZERO).await.unwrap();
    }

    /// QUO-01, SEC-16: a client that logged in with a key or its certificate gets the place of a
    /// stranger, and nobody gets its own. A certificate that was not used for the login does not
    /// count.
    #[tokio::test]
    async fn client_with_key_takes_the_place_of_a_stranger() {
        let context = Context::from_waker(Waker::noop());
        let (_, broker) = start().await;
        let [bare, certified] = clients();
        for (who, said) in [(&bare, plain("k")), (&certified, Credentials::External)] {
            let config = AmqpConfig { connection_count_max: 1, ..config() };
            let listener = Arc::new(ListenerState::new(broker.clone(), config));
            let mut stranger = logged_in(&listener, &certified, Credentials::Anonymous).await;
            stranger.seek_place().await;
            assert!(stranger.place_search.place.is_some(), "it was free");
            let mut client = logged_in(&listener, who, said).await;
            client.seek_place().await;
            assert!(client.place_search.place.is_some() && client.place_search.seeking.is_none());
            let is_evicted =
                |it: &mut Conversation| it.engine.place.poll_evicted(&context).is_ready();
            assert!(is_evicted(&mut stranger));
            drop(stranger);
            for said in [Credentials::Anonymous, plain("k")] {
                let mut next = logged_in(&listener, &certified, said).await;
                next.seek_place().await;
                assert!(next.place_search.place.is_none() && next.place_search.seeking.is_some());
                next.handle_event(Event::Closed { error: None, by_client: true }).await;
                assert!(
                    next.place_search.seeking.is_none(),
                    "somebody would go for one that is closed"
                );
            }
            assert!(!is_evicted(&mut client));
        }
        broker.stop(Duration::ZERO).await.unwrap();
    }
}

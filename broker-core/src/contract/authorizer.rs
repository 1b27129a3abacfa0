//! The contract of an authorizer: who may do what (SEC-01, SEC-05).
//!
//! An authorizer says which rights a principal has on which entity, and how long. What each operation takes
//! is not its business: that is decided by one table ([`Action::needs`](super::Action::needs)), at one door
//! ([`Access`](crate::access::Access)).

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::rights::Grant;
use crate::error::Rejection;

/// The longest token that anything is made of. A longer one is refused, whatever the authorizer is, and not kept.
pub const TOKEN_BYTES_MAX: usize = 16 << 10;

/// What a client has shown of itself.
#[derive(Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Principal {
    /// The token it presented, as text; never logged (SEC-22).
    pub token: Option<Arc<str>>,
    /// The key of a policy that it presented in place of a token (AMQP-08).
    pub key: Option<PresentedKey>,
    /// Where it comes from.
    pub peer: Option<SocketAddr>,
    /// Who it is by its certificate, if the listener asked for one and has verified it.
    pub tls: Option<TlsIdentity>,
    /// Whether it says that it comes by a proxy, so that where it comes from is not known (SEC-17).
    pub by_proxy: bool,
    /// Where it asks, if that is more than the path of what it asks for (ADM-10).
    pub address: Option<AskedAt>,
    /// The policy that its host has wrapped it with, and whose that is (SEC-17). No transport can say that.
    pub(crate) policy: Option<(Box<str>, Box<str>)>,
    /// The token that it presented is too long, and not here.
    pub(crate) shows_too_much: bool,
}

/// An address by which a client asks for a resource. Whose token is for that address may do to the resource what he
/// asks, and nothing else by it.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct AskedAt {
    /// Such as `$Resources/queues`, or `events/subscriptions/audit/rules/eu`.
    pub address: Box<str>,
    /// What stands there: the path of an entity, or nothing for the namespace.
    pub resource: Box<str>,
    /// Whether an entity has that address as its path, or a part of it that is longer than the resource, such as a queue
    /// `orders/messages` beside `orders`. A token for that entity is not for the resource. Said by the broker, and no
    /// client is told.
    pub is_path: bool,
}

/// A policy, and what is said to be one of its keys, as clients of JMS present them.
#[derive(Clone, PartialEq, Eq)]
pub struct PresentedKey {
    /// What is said to be the name of the policy; not logged unless there is such a policy (SEC-22).
    pub policy: Box<str>,
    /// The text of the key; never logged (SEC-22).
    pub key: Box<str>,
}

/// Who a client is by the certificate that its listener has verified.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TlsIdentity {
    /// The subject of the certificate, as RFC 4514 writes it.
    pub subject: Box<str>,
    /// The certificate itself (DER).
    pub certificate: Bytes,
}

impl Principal {
    /// A client that has shown nothing.
    #[must_use]
    pub const fn anonymous() -> Self {
        let (token, key, peer, tls) = (None, None, None, None);
        let (by_proxy, shows_too_much) = (false, false);
        Self { token, key, peer, tls, by_proxy, address: None, policy: None, shows_too_much }
    }

    /// The same with the token it presented, of at most [`TOKEN_BYTES_MAX`] bytes; who presents a longer one is granted
    /// nothing.
    #[must_use]
    pub fn with_token(mut self, token: impl Into<Arc<str>>) -> Self {
        let token = token.into();
        self.shows_too_much = token.len() > TOKEN_BYTES_MAX;
        self.token = (!self.shows_too_much).then_some(token);
        self
    }

    /// The same with the token it presented, if it did.
    #[must_use]
    pub fn with_token_if_any(mut self, token: Option<impl Into<Arc<str>>>) -> Self {
        if let Some(token) = token {
            return self.with_token(token);
        }
        self.token = None;
        self
    }

    /// Whether it has presented a token or a key, however long.
    pub(crate) const fn shows_something(&self) -> bool {
        self.token.is_some() || self.key.is_some() || self.shows_too_much
    }

    /// The same, asking at an address that stands for a resource. Transports whose principal is for one request say
    /// it; those with a principal for a connection have no such address.
    #[must_use]
    pub fn asking_at(
        mut self,
        address: impl Into<Box<str>>,
        resource: impl Into<Box<str>>,
    ) -> Self {
        let (address, resource) = (address.into(), resource.into());
        self.address = Some(AskedAt { address, resource, is_path: false });
        self
    }

    /// The address by which it asks for this resource.
    #[must_use]
    pub fn address_of(&self, resource: &str) -> Option<&AskedAt> {
        let asked = self.address.as_ref()?;
        asked.resource.eq_ignore_ascii_case(resource).then_some(asked)
    }

    /// The same with the key of a policy that it presented.
    #[must_use]
    pub fn with_key(mut self, policy: impl Into<Box<str>>, key: impl Into<Box<str>>) -> Self {
        self.key = Some(PresentedKey { policy: policy.into(), key: key.into() });
        self
    }

    /// The same from this address.
    #[must_use]
    pub fn from_peer(mut self, peer: impl Into<Option<SocketAddr>>) -> Self {
        self.peer = peer.into();
        self
    }

    /// The same by way of a proxy on its host, which is not where it comes from.
    #[must_use]
    pub const fn through_proxy(mut self) -> Self {
        self.by_proxy = true;
        self
    }

    /// Whether it comes from this machine, or is of this process.
    #[must_use]
    pub fn is_local(&self) -> bool {
        !self.by_proxy && self.peer.is_none_or(|peer| peer.ip().to_canonical().is_loopback())
    }

    /// The same with the identity of its certificate.
    #[must_use]
    pub fn with_tls(mut self, identity: TlsIdentity) -> Self {
        self.tls = Some(identity);
        self
    }
}

impl fmt::Debug for Principal {
    /// Without the token and the key, and without the name that was shown with it, which may be the key (SEC-22).
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Principal")
            .field("has_token", &self.token.is_some())
            .field("has_key", &self.key.is_some())
            .field("peer", &self.peer)
            .field("by_proxy", &self.by_proxy)
            .field("policy", &self.policy)
            .field("tls", &self.tls.as_ref().map(|identity| &identity.subject))
            .finish()
    }
}

impl TlsIdentity {
    /// The identity of a verified certificate.
    #[must_use]
    pub fn new(subject: impl Into<Box<str>>, certificate: Bytes) -> Self {
        Self { subject: subject.into(), certificate }
    }
}

/// The token of an identity provider (JWT) in what was shown as a token, without the word `Bearer` that may stand before
/// it; none if it is a token of another kind. Whether it is good is another question.
#[must_use]
pub fn bearer_token(text: &str) -> Option<&str> {
    let text = text.trim();
    let (scheme, token) = text.split_once(' ').unwrap_or((text, ""));
    if scheme.eq_ignore_ascii_case("Bearer") {
        return Some(token.trim());
    }
    // The JSON of every such token begins with these three characters in Base64.
    let is_bare = text.starts_with("eyJ") && text.split('.').count() == 3;
    is_bare.then_some(text)
}

/// Says who has which rights. Asked by [`Access`](crate::access::Access), before anybody knows whether
/// there is such an entity, so that a refusal discloses nothing (SEC-08).
///
/// ```
/// # use peeklock_core as peeklock;
/// use std::sync::Arc;
///
/// use async_trait::async_trait;
/// use peeklock::Broker;
/// use peeklock::contract::{Action, Authorizer, Grant, Principal, Right, Rights};
/// use peeklock::description::QueueUpdate;
/// use peeklock::error::Rejection;
///
/// /// One reader, who may receive from one queue.
/// struct OneReader;
///
/// #[async_trait]
/// impl Authorizer for OneReader {
///     async fn authorize(&self, client: &Principal, resource: &str) -> Result<Grant, Rejection> {
///         match client.token.as_deref() {
///             Some("reader") if resource == "orders" => Ok(Grant::of(Rights::of(Right::Listen))),
///             // It is known, and may do nothing here.
///             Some("reader") => Ok(Grant::nothing()),
///             _ => Err(Rejection::unauthorized("the token is not that of the reader")),
///         }
///     }
///
///     fn allows_anonymous(&self) -> bool {
///         false
///     }
/// }
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let broker = Broker::builder().authorizer(Arc::new(OneReader)).start().await?;
/// broker.create_queue("orders", QueueUpdate::default()).await?;
/// let reader = broker.access(Principal::anonymous().with_token("reader"));
/// assert!(reader.entity("orders", Action::Receive).await.is_ok());
/// assert!(reader.entity("orders", Action::Send).await.is_err());
/// # broker.stop(std::time::Duration::ZERO).await?;
/// # Ok(())
/// # }
/// ```
#[async_trait]
pub trait Authorizer: Send + Sync {
    /// The rights of a principal on a resource: the path of an entity or sub-queue, or empty for the
    /// namespace. Asked once for each connection and entity, and again when the grant is over or
    /// the principal has shown something else, then about many at once. May wait, for instance for a directory;
    /// whoever asks waits with it. A panic counts as a refusal.
    ///
    /// # Errors
    /// With `Unauthorized` and a text that says what is wrong with what was presented, without any secret
    /// (SEC-14), also where it stands in the place of a name; by what cause it is counted, and which policy the log names, say
    /// [`Rejection::because`] and [`Rejection::by_policy`] (SEC-22). A principal that is known and may do nothing gets [`Grant::nothing`].
    async fn authorize(&self, principal: &Principal, resource: &str) -> Result<Grant, Rejection>;

    /// The same of many resources at once, for lists: one grant for each, in their order;
    /// what is refused is granted nothing. Asks one after the other unless an authorizer knows better. It is
    /// not asked about entities if the right is granted on the namespace, for that covers all of
    /// them (SEC-12). An authorizer that has who fails wait does not do so here: it is asked about what somebody need not
    /// have, such as a destination for which he shows something else (SEC-26).
    async fn authorize_all(&self, principal: &Principal, resources: &[Arc<str>]) -> Vec<Grant> {
        let mut grants = Vec::with_capacity(resources.len());
        for resource in resources {
            let grant = self.authorize(principal, resource).await;
            grants.push(grant.unwrap_or_else(|_| Grant::nothing()));
        }
        grants
    }

    /// Whether it lets clients in that have shown nothing. A transport then also checks `Host`
    /// (SEC-23), and listens on loopback only unless told otherwise (SEC-17).
    fn allows_anonymous(&self) -> bool;
}

/// Allows everything: for loopback and for tests.
#[derive(Clone, Copy, Debug, Default)]
pub struct AllowAll;

#[async_trait]
impl Authorizer for AllowAll {
    async fn authorize(&self, _: &Principal, _: &str) -> Result<Grant, Rejection> {
        Ok(Grant::everything())
    }

    fn allows_anonymous(&self) -> bool {
        true
    }
}

//! Contract of an authorizer: decides the rights of principals (SEC-01, SEC-05).
//!
//! An authorizer reports the rights of a principal on an entity, and their end. The right that an
//! operation needs is decided elsewhere, by one table ([`Action::needs`](super::Action::needs)) in
//! one place ([`Access`](crate::access::Access)).

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;

use super::rights::Grant;
use crate::error::Rejection;

/// Maximum length of a token in bytes. The broker refuses a longer one without asking the
/// authorizer, and does not keep it.
pub const TOKEN_BYTES_MAX: usize = 16 << 10;

/// Credentials and origin of a client.
#[derive(Clone, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Principal {
    /// Text of the presented token; never logged (SEC-22).
    pub token: Option<Arc<str>>,
    /// Key of a policy that was presented instead of a token (AMQP-08).
    pub key: Option<PresentedKey>,
    /// Network address of the client; none for a client in this process.
    pub peer: Option<SocketAddr>,
    /// Identity from the client certificate, if the listener requested and verified one.
    pub tls: Option<TlsIdentity>,
    /// Whether a proxy forwarded the request, so that the address of the client is unknown
    /// (SEC-17).
    pub by_proxy: bool,
    /// Address of the request, if it is longer than the path of the resource (ADM-10).
    pub address: Option<RequestAddress>,
    /// Owner and name of the policy that the embedding program assigned (SEC-17). Transports cannot
    /// set it.
    pub(crate) policy: Option<(Box<str>, Box<str>)>,
    /// Set if the presented token was too long and was dropped.
    pub(crate) is_token_too_long: bool,
}

/// Address with which a client requests a resource. A token for that address permits the requested
/// action on the resource and nothing else.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct RequestAddress {
    /// The address, for example `$Resources/queues` or `events/subscriptions/audit/rules/eu`.
    pub address: Box<str>,
    /// The resource at that address: the path of an entity, or empty for the namespace.
    pub resource: Box<str>,
    /// Whether the address, or a part longer than the resource, is the path of an entity: for
    /// example a queue `orders/messages` next to `orders`. A token for that entity does not cover
    /// the resource. The broker sets this; it is never disclosed to a client.
    pub is_path: bool,
}

/// Name of a policy and the text presented as one of its keys, as JMS clients present them.
#[derive(Clone, PartialEq, Eq)]
pub struct PresentedKey {
    /// Presented name of the policy; logged only if such a policy exists (SEC-22).
    pub policy: Box<str>,
    /// The text of the key; never logged (SEC-22).
    pub key: Box<str>,
}

/// Identity of a client from its verified certificate.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct TlsIdentity {
    /// Subject of the certificate in the form of RFC 4514.
    pub subject: Box<str>,
    /// The certificate itself (DER).
    pub certificate: Bytes,
}

impl Principal {
    /// Returns a client without credentials.
    #[must_use]
    pub const fn anonymous() -> Self {
        let (token, key, peer, tls) = (None, None, None, None);
        let (by_proxy, is_token_too_long) = (false, false);
        Self { token, key, peer, tls, by_proxy, address: None, policy: None, is_token_too_long }
    }

    /// Adds the presented token. A client whose token exceeds [`TOKEN_BYTES_MAX`] bytes is granted
    /// nothing.
    #[must_use]
    pub fn with_token(mut self, token: impl Into<Arc<str>>) -> Self {
        let token = token.into();
        self.is_token_too_long = token.len() > TOKEN_BYTES_MAX;
        self.token = (!self.is_token_too_long).then_some(token);
        self
    }

    /// Adds the presented token if there is one.
    #[must_use]
    pub fn with_token_if_any(mut self, token: Option<impl Into<Arc<str>>>) -> Self {
        if let Some(token) = token {
            return self.with_token(token);
        }
        self.token = None;
        self
    }

    /// Whether the client presented a token or a key of any length.
    pub(crate) const fn has_credentials(&self) -> bool {
        self.token.is_some() || self.key.is_some() || self.is_token_too_long
    }

    /// Adds the address of the request and the resource that it stands for. For transports with a
    /// principal for each request; a principal of a connection has no such address.
    #[must_use]
    pub fn with_request_address(
        mut self,
        address: impl Into<Box<str>>,
        resource: impl Into<Box<str>>,
    ) -> Self {
        let (address, resource) = (address.into(), resource.into());
        self.address = Some(RequestAddress { address, resource, is_path: false });
        self
    }

    /// Returns the address with which the client requests this resource.
    #[must_use]
    pub fn address_of(&self, resource: &str) -> Option<&RequestAddress> {
        let asked = self.address.as_ref()?;
        asked.resource.eq_ignore_ascii_case(resource).then_some(asked)
    }

    /// Adds the presented key of a policy.
    #[must_use]
    pub fn with_key(mut self, policy: impl Into<Box<str>>, key: impl Into<Box<str>>) -> Self {
        self.key = Some(PresentedKey { policy: policy.into(), key: key.into() });
        self
    }

    /// Sets the network address of the client.
    #[must_use]
    pub fn from_peer(mut self, peer: impl Into<Option<SocketAddr>>) -> Self {
        self.peer = peer.into();
        self
    }

    /// Marks the client as connected through a proxy, whose address is not the client's.
    #[must_use]
    pub const fn through_proxy(mut self) -> Self {
        self.by_proxy = true;
        self
    }

    /// Whether the client runs on this machine or in this process.
    #[must_use]
    pub fn is_local(&self) -> bool {
        !self.by_proxy && self.peer.is_none_or(|peer| peer.ip().to_canonical().is_loopback())
    }

    /// Adds the identity of the client certificate.
    #[must_use]
    pub fn with_tls(mut self, identity: TlsIdentity) -> Self {
        self.tls = Some(identity);
        self
    }
}

impl fmt::Debug for Principal {
    /// Omits the token and the key, and the presented policy name, which may be the key by mistake
    /// (SEC-22).
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
    /// Creates the identity of a verified certificate.
    #[must_use]
    pub fn new(subject: impl Into<Box<str>>, certificate: Bytes) -> Self {
        Self { subject: subject.into(), certificate }
    }
}

/// Returns the token of an identity provider (JWT) in a presented text, without a leading `Bearer`;
/// none if the text is another kind of token. Does not check whether the token is valid.
#[must_use]
pub fn bearer_token(text: &str) -> Option<&str> {
    let text = text.trim();
    let (scheme, token) = text.split_once(' ').unwrap_or((text, ""));
    if scheme.eq_ignore_ascii_case("Bearer") {
        return Some(token.trim());
    }
    // The JSON of every JWT starts with these three characters in Base64.
    let is_bare = text.starts_with("eyJ") && text.split('.').count() == 3;
    is_bare.then_some(text)
}

/// Decides the rights of principals. [`Access`](crate::access::Access) asks it before the entity is
/// looked up, so that a refusal does not reveal whether the entity exists (SEC-08).
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
/// /// Allows one reader to receive from one queue.
/// struct OneReader;
///
/// #[async_trait]
/// impl Authorizer for OneReader {
///     async fn authorize(&self, client: &Principal, resource: &str) -> Result<Grant, Rejection> {
///         match client.token.as_deref() {
///             Some("reader") if resource == "orders" => Ok(Grant::of(Rights::of(Right::Listen))),
///             // A known client without rights here.
///             Some("reader") => Ok(Grant::nothing()),
///             _ => Err(Rejection::unauthorized("unknown token")),
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
    /// Returns the rights of a principal on a resource: the path of an entity or sub-queue, or
    /// empty for the namespace. Called once for each connection and entity, and again when the
    /// grant is over or the principal has presented new credentials; then for up to 256 entities
    /// concurrently. May wait, for example for a directory; the client's request waits with it. A
    /// panic counts as a refusal.
    ///
    /// # Errors
    /// `Unauthorized` with a text about the fault of the presented credentials, without any secret
    /// (SEC-14), even where a secret was presented as a name. [`Rejection::with_cause`] sets the cause
    /// under which the refusal is counted, and [`Rejection::with_policy`] the policy that the log
    /// names (SEC-22). A known principal without rights gets [`Grant::nothing`].
    async fn authorize(&self, principal: &Principal, resource: &str) -> Result<Grant, Rejection>;

    /// Returns the rights on several resources, for lists: one grant for each, in order; an empty
    /// grant for a refused one. By default it calls [`Authorizer::authorize`] for one after the
    /// other. It is not called about entities if the right is granted on the namespace, which
    /// covers every entity (SEC-12). An authorizer that delays refusals must not do so here: a
    /// refusal is no failed attempt, since the principal may have other credentials for the
    /// resource, for example for a forwarding destination (SEC-26).
    async fn authorize_all(&self, principal: &Principal, resources: &[Arc<str>]) -> Vec<Grant> {
        let mut grants = Vec::with_capacity(resources.len());
        for resource in resources {
            let grant = self.authorize(principal, resource).await;
            grants.push(grant.unwrap_or_else(|_| Grant::nothing()));
        }
        grants
    }

    /// Whether clients without credentials are admitted. A transport then also checks `Host`
    /// (SEC-23), and by default listens only on loopback (SEC-17). Must not block. A panic counts
    /// as `false`.
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

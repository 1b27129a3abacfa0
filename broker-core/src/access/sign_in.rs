//! Console tokens (CON-71, CON-72). A client exchanges its signed credentials for a token of 256
//! random bits with a role.
//!
//! The broker keeps a hash of the token and the credentials that were exchanged, never a key. At
//! each use, the authorizer decides about these credentials, and the role is a ceiling below its
//! answer. So a console token never allows more than its policy does at that time, and it ends with
//! the key.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

use super::{Access, canonical};
use crate::audited::end_of;
use crate::contract::action::Action;
use crate::contract::auditor::{AuditResult, AuditedAction, AuditedClient};
use crate::contract::authorizer::Principal;
use crate::contract::rights::{self, Ceiling};
use crate::error::{BrokerError, Denial, Rejection};
use crate::grant::{CONSOLE_TOKEN_COUNT_MAX, PresentedToken, SignIn};
use crate::time::{TimeSpan, Timestamp};

/// Scheme of a console token in the `Authorization` header.
const SCHEME: &str = "Console";
/// Number of random bytes of a token.
const TOKEN_BYTES: usize = 32;
/// Maximum lifetime of a token.
const LIFETIME: TimeSpan = TimeSpan::from_minutes(8 * 60);

/// Answer to a sign-in. `Debug` does not show the token (CON-75).
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct ConsoleToken {
    /// Value for the `Authorization` header.
    pub token: Box<str>,
    /// Highest role of requests with the token.
    pub role: Ceiling,
    /// Name of the policy of the credentials, if they have one.
    pub policy: Option<Arc<str>>,
    /// Latest end of the token.
    pub ends_at: Timestamp,
}

/// Role of a client, and its console token if it has one.
#[derive(Clone, PartialEq, Eq, Debug)]
#[non_exhaustive]
pub struct Standing {
    /// Highest role that the rights allow; none without the right to look.
    pub role: Option<Ceiling>,
    /// Name of the policy behind the rights, if there is one.
    pub policy: Option<Arc<str>>,
    /// Latest end of the console token; none if the client presents none.
    pub ends_at: Option<Timestamp>,
    /// Whether the console token of an administrator is locked, so that its role is viewer.
    pub is_locked: bool,
    /// End of the time for which the console token is unlocked.
    pub unlocked_until: Option<Timestamp>,
}

impl Access {
    /// Returns this access with a console token, if the principal presents one: the credentials of
    /// the sign-in replace it, and its role limits them (CON-72). It takes over no grants.
    #[must_use]
    pub fn with_console_token(&self) -> Self {
        let Some(principal) = self.principal() else { return self.clone() };
        let Some(text) = principal.token.as_deref().and_then(console_token) else {
            return self.clone();
        };
        let used = self.broker.shared.sign_ins.used(text, self.broker.now());
        let credentials = used.as_ref().map(|used| Arc::clone(&used.credentials));
        let principal = Principal::clone(&principal).with_token_if_any(credentials);
        let presented = used.map_or(PresentedToken::Unknown, PresentedToken::Known);
        self.rebuilt(|check| {
            check.console_token = presented;
            check.lock().principal = Arc::new(principal);
        })
    }

    /// Returns this access with a highest role (CON-73). It takes over no grants.
    #[must_use]
    pub fn with_ceiling(&self, ceiling: Ceiling) -> Self {
        self.rebuilt(|check| check.ceiling = check.ceiling.min(ceiling))
    }

    /// Returns this access with console tokens of administrators locked: their role is viewer, and
    /// [`Access::unlock`] lifts it for 15 minutes (CON-73). It takes over no grants.
    #[must_use]
    pub fn with_locked_tokens(&self) -> Self {
        self.rebuilt(|check| check.needs_unlock = true)
    }

    /// Returns the role of the principal at a path, which is empty for the namespace.
    ///
    /// # Errors
    /// `Unauthorized` if its credentials are refused.
    pub async fn standing(&self, path: &str) -> Result<Standing, BrokerError> {
        let resource = canonical(path);
        let Some(check) = &self.check else {
            return Ok(Standing {
                role: Some(Ceiling::Admin),
                policy: None,
                ends_at: None,
                is_locked: false,
                unlocked_until: None,
            });
        };
        let entitlement = self.entitlement_for(check, &resource).await;
        let entitlement =
            entitlement.map_err(|rejection| self.broker.refuse(rejection, &resource))?;
        let now = self.broker.now();
        let used = match &check.console_token {
            PresentedToken::Known(used) => Some(used),
            PresentedToken::Absent | PresentedToken::Unknown => None,
        };
        let locked = used.filter(|used| check.needs_unlock && used.role() == Ceiling::Admin);
        let unlocked_until = locked.and_then(|used| used.unlocked_until(now));
        Ok(Standing {
            role: entitlement.role(|| now),
            policy: entitlement.policy(),
            ends_at: used.map(|used| used.ends_at),
            is_locked: locked.is_some() && unlocked_until.is_none(),
            unlocked_until,
        })
    }

    /// Exchanges the signed credentials of the principal for a console token (CON-71). `path` is
    /// the entity of its policy, or empty for the namespace. Without a role, the token has the
    /// highest that the rights there allow.
    ///
    /// # Errors
    /// `Unauthorized` for invalid credentials, or if the role needs more rights; `InvalidOperation`
    /// for other credentials than a signed token; `ServerBusy` if there are too many tokens.
    pub async fn sign_in(
        &self,
        path: &str,
        role: Option<Ceiling>,
    ) -> Result<ConsoleToken, BrokerError> {
        let resource = &*canonical(path);
        let judged = match self.judge_sign_in(resource, role).await {
            Ok(judged) => judged,
            Err(rejection) => {
                let error = self.broker.refuse(rejection, resource);
                self.audit_failed_sign_in(resource, &error).await;
                return Err(error);
            }
        };
        let client = AuditedClient {
            policy: judged.policy.clone(),
            role: Some(judged.role),
            ..self.audited_client(resource)
        };
        let audited = self.begin_audit_of(client, AuditedAction::SignIn, resource, "").await?;
        let added = self.add_token(judged);
        let added = added.map_err(|rejection| self.broker.refuse(rejection, resource));
        audited.end_with(end_of(&added)).await;
        added
    }

    /// Refuses a sign-in with invalid credentials, before its request is read.
    ///
    /// # Errors
    /// `Unauthorized`.
    pub async fn allow_sign_in(&self) -> Result<(), BrokerError> {
        let allowed = self.require_valid_credentials().await;
        if let Err(error) = &allowed {
            self.audit_failed_sign_in("", error).await;
        }
        allowed
    }

    /// Decides role and end of a token for the credentials of the principal.
    async fn judge_sign_in(
        &self,
        resource: &str,
        role: Option<Ceiling>,
    ) -> Result<JudgedSignIn, Rejection> {
        let needs_token = || {
            let detail =
                "sign-in exchanges a signed token; present one in the Authorization header";
            Rejection::invalid_operation(detail)
        };
        let Some(check) = &self.check else { return Err(needs_token()) };
        let principal = Arc::clone(&check.lock().principal);
        let shared = &self.broker.shared;
        check.console_token.require(&shared.sign_ins, &*shared.clock, &principal).await?;
        let Some(credentials) = principal.token.clone() else { return Err(needs_token()) };
        if !matches!(check.console_token, PresentedToken::Absent) {
            return Err(needs_token());
        }
        let entitlement = self.entitlement_for(check, resource).await?;
        let now = self.broker.now();
        let policy = entitlement.policy();
        let highest = entitlement.role(|| now).ok_or_else(|| {
            rights::missing_right(Action::Inspect, policy.as_deref()).with_peer(principal.peer)
        })?;
        let role = role.unwrap_or(highest);
        if role > highest {
            let detail = format!(
                "the rights of these credentials allow the role {}, not {}",
                highest.name(),
                role.name()
            );
            let refusal = Rejection::unauthorized(detail).with_cause(Denial::RIGHT);
            return Err(refusal.with_peer(principal.peer));
        }
        let ends_at = now.plus(LIFETIME);
        let ends_at = entitlement.end().map_or(ends_at, |end| end.min(ends_at));
        Ok(JudgedSignIn { credentials, policy, role, now, ends_at, peer: principal.peer })
    }

    fn add_token(&self, judged: JudgedSignIn) -> Result<ConsoleToken, Rejection> {
        let JudgedSignIn { credentials, policy, role, now, ends_at, peer } = judged;
        let text = random_text()?;
        let added = SignIn::new(&text, credentials, policy.clone(), role, (now, ends_at));
        if !self.broker.shared.sign_ins.add(added, now) {
            let detail =
                format!("all {CONSOLE_TOKEN_COUNT_MAX} console tokens are in use; try again later");
            return Err(Rejection::server_busy(detail));
        }
        let peer = peer.map(tracing::field::display);
        tracing::info!(policy = policy.as_deref(), role = role.name(), peer, "signed in");
        Ok(ConsoleToken { token: format!("{SCHEME} {text}").into(), role, policy, ends_at })
    }

    /// Unlocks the console token of an administrator for 15 minutes, and no longer than the token
    /// lasts (CON-73). Unlocking again restarts the time. Returns the new role.
    ///
    /// # Errors
    /// `Unauthorized` if the token is not in force; `InvalidOperation` without the console token of
    /// an administrator, or if tokens are not locked; `ServerBusy` if the entry of the audit trail
    /// cannot be written.
    pub async fn unlock(&self) -> Result<Standing, BrokerError> {
        let used = self.lockable_token().await?;
        let audited = self.begin_audit(AuditedAction::Unlock, "", "").await?;
        used.unlock(self.broker.now());
        audited.end(AuditResult::Done, None).await;
        // The grants of this access have the role from before.
        self.rebuilt(|_| {}).standing("").await
    }

    /// Locks the console token of an administrator before its time is over.
    ///
    /// # Errors
    /// As [`Access::unlock`]; it writes no entry, since it gives nothing.
    pub async fn lock(&self) -> Result<(), BrokerError> {
        self.lockable_token().await?.lock_again(self.broker.now());
        Ok(())
    }

    async fn lockable_token(&self) -> Result<Arc<SignIn>, BrokerError> {
        self.require_valid_credentials().await?;
        let refuse = |detail| self.broker.refuse(Rejection::invalid_operation(detail), "");
        match &self.check {
            Some(check) if !check.needs_unlock => {
                Err(refuse("console.unlock is off: administrators are never locked"))
            }
            Some(check) => match &check.console_token {
                PresentedToken::Known(used) if used.role() == Ceiling::Admin => {
                    Ok(Arc::clone(used))
                }
                _ => {
                    Err(refuse("only the console token of an admin is unlocked: sign in as admin"))
                }
            },
            None => Err(refuse("this access has no console token")),
        }
    }

    /// Ends the console token of the principal. Without one, nothing happens.
    ///
    /// # Errors
    /// `ServerBusy` if the entry of the audit trail cannot be written.
    pub async fn sign_out(&self) -> Result<(), BrokerError> {
        let Some(check) = &self.check else { return Ok(()) };
        if let PresentedToken::Known(used) = &check.console_token {
            let audited = self.begin_audit(AuditedAction::SignOut, "", "").await?;
            self.broker.shared.sign_ins.end(used);
            audited.end(AuditResult::Done, None).await;
        }
        Ok(())
    }
}

/// A sign-in that is allowed.
struct JudgedSignIn {
    credentials: Arc<str>,
    policy: Option<Arc<str>>,
    role: Ceiling,
    now: Timestamp,
    ends_at: Timestamp,
    peer: Option<SocketAddr>,
}

/// Returns the text of a console token; none for another token.
fn console_token(text: &str) -> Option<&str> {
    let (scheme, token) = text.trim().split_once(' ')?;
    scheme.eq_ignore_ascii_case(SCHEME).then_some(token.trim())
}

fn random_text() -> Result<String, Rejection> {
    let mut bytes = [0; TOKEN_BYTES];
    getrandom::fill(&mut bytes).map_err(|error| {
        Rejection::internal(format!("cannot get random bytes from the system: {error}"))
    })?;
    Ok(URL_SAFE_NO_PAD.encode(bytes))
}

impl fmt::Debug for ConsoleToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { role, policy, ends_at, .. } = self;
        f.debug_struct("ConsoleToken")
            .field("role", role)
            .field("policy", policy)
            .field("ends_at", ends_at)
            .finish_non_exhaustive()
    }
}

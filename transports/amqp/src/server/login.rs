//! Who a client is: SASL (AMQP-03, AMQP-08), and the tokens that it puts (AMQP-21).

use peeklock_core::Access;
use peeklock_core::contract::{Action, Principal};
use peeklock_core::error::BrokerError;

use super::conversation::Conversation;
use crate::sasl::{Credentials, Plain};

/// The user whose password is a token.
const TOKEN_USER: &str = "$jwt";
/// Tokens of one connection. One for each entity is what clients put.
const TOKEN_COUNT_MAX: usize = 256;

/// What a client has shown, and where it counts.
pub(super) struct Shown {
    /// In folded case; empty for the namespace.
    path: Box<str>,
    access: Access,
}

/// Why a token is not taken.
pub(super) enum Refused {
    /// It is not good.
    Token(BrokerError),
    /// There are too many.
    Many,
}

impl Conversation {
    /// Judges what a client says of itself. Who says nothing puts tokens later, or never.
    pub(super) async fn log_in(&mut self, credentials: Credentials) {
        let known = match credentials {
            Credentials::Anonymous => true,
            Credentials::Plain(plain) => self.log_in_by(plain).await,
            // No certificate is asked for.
            Credentials::External => false,
        };
        if known { self.amqp.admit() } else { self.amqp.deny() }
    }

    /// A token in place of a password is good for the whole connection. Keys of policies are not taken here.
    async fn log_in_by(&mut self, plain: Plain) -> bool {
        if &*plain.user != TOKEN_USER {
            return false;
        }
        let access = self.broker.access(self.principal(&plain.password));
        let is_good = access.allow(Action::End, "").await.is_ok();
        self.access = access;
        is_good
    }

    fn principal(&self, token: &str) -> Principal {
        Principal::anonymous().from_peer(self.peer).with_token(token)
    }

    /// Takes a token for a path and what is under it. A newer one takes the place of the one before, under the
    /// links that are there (AMQP-26).
    pub(super) async fn put_token(&mut self, path: &str, token: &str) -> Result<(), Refused> {
        let folded: Box<str> = path.to_lowercase().into();
        let principal = self.principal(token);
        let tried = self.broker.access(principal.clone());
        // Whether there is such an entity is not asked (AMQP-21).
        tried.allow(Action::End, path).await.map_err(Refused::Token)?;
        if let Some(shown) = self.shown.iter().find(|shown| shown.path == folded) {
            shown.access.clone().renew(principal).await;
            return Ok(());
        }
        if self.shown.len() >= TOKEN_COUNT_MAX {
            return Err(Refused::Many);
        }
        self.shown.push(Shown { path: folded, access: tried });
        Ok(())
    }

    /// What counts at a path: the token that was put nearest to it, or what the connection began with.
    pub(super) fn access_at(&self, path: &str) -> Access {
        let folded = path.to_lowercase();
        let covers = |shown: &&Shown| {
            let rest = folded.strip_prefix(&*shown.path);
            rest.is_some_and(|rest| {
                shown.path.is_empty() || rest.is_empty() || rest.starts_with('/')
            })
        };
        let nearest = self.shown.iter().filter(covers).max_by_key(|shown| shown.path.len());
        nearest.map_or(&self.access, |shown| &shown.access).clone()
    }
}

//! The node `$cbs`, to which clients put tokens (AMQP-20 to AMQP-27). Each request gets a reply
//! with a status, if a link receives it.

use bytes::Bytes;
use peeklock_core::condition::Condition;
use peeklock_core::contract::browser::is_host_of_audience;
use peeklock_core::contract::{Action, TOKEN_BYTES_MAX};
use peeklock_core::path::{EntityAddress, Node as AddressNode};
use peeklock_words::amqp::{Scalar, code, descriptor};
use percent_encoding::percent_decode_str;

use super::NodeRequest;
use super::reply::{Names, head};
use crate::server::conversation::Conversation;
use crate::server::error;
use crate::server::login::TokenRefusal;
use crate::server::work::ReplyAddress;

const NAMES: Names = Names { code: "status-code", description: "status-description" };
const OPERATION: &str = "put-token";
/// Maximum length of an audience in bytes.
const AUDIENCE_BYTES_MAX: usize = 4 << 10;

impl Conversation {
    /// Handles a request to `$cbs`.
    pub(super) async fn handle_token_request(
        &mut self,
        reply_address: Option<ReplyAddress>,
        request: &NodeRequest,
    ) {
        let (status, text) = self.put(request).await;
        let Some(reply_address) = reply_address else { return };
        let mut reply = Vec::new();
        head(&mut reply, &reply_address, &NAMES, status, &text, None);
        reply.extend([code::DESCRIBED, code::SMALL_ULONG, descriptor::VALUE, code::NULL]);
        self.reply(reply_address, vec![Bytes::from(reply)].into());
    }

    async fn put(&mut self, request: &NodeRequest) -> (i32, String) {
        if request.text("operation").as_deref() != Some(OPERATION) {
            return (501, format!("$cbs supports only the operation {OPERATION}"));
        }
        let body = request.body();
        let Some(Ok(Scalar::Text(token))) = body.as_ref().map(|body| body.scalar()) else {
            return (400, "body must be a token: a value of text".to_owned());
        };
        let audience = request.text("name").unwrap_or_default();
        if token.len() > TOKEN_BYTES_MAX || audience.len() > AUDIENCE_BYTES_MAX {
            let text = format!(
                "token has more than {TOKEN_BYTES_MAX} bytes, or its name more than {AUDIENCE_BYTES_MAX}"
            );
            return (400, text);
        }
        let path = path_of(&audience, &self.listener.config.own_hosts);
        match self.put_token(&path, token).await {
            Ok(()) => {
                self.record_valid_credentials().await;
                match self.missing_entity(&path).await {
                    None => (202, "Accepted".to_owned()),
                    Some(text) => (404, text),
                }
            }
            Err(TokenRefusal::Token(error)) => (401, error.to_string()),
            Err(TokenRefusal::TooManyTokens) => (
                403,
                "connection already has the maximum number of tokens; use another connection"
                    .to_owned(),
            ),
        }
    }

    /// Returns an error text if the client's valid token names an entity that does not exist
    /// (AMQP-21), since some clients learn it only from this answer. A path above entities is a
    /// valid target of a token. A token without a right at the path was refused before.
    async fn missing_entity(&mut self, path: &str) -> Option<String> {
        if path.is_empty() || self.engine.broker.has_entities_below(path) {
            return None;
        }
        let error = self.access_at(path).entity(path, Action::End).await.err()?;
        let is_missing = error.condition() == Condition::EntityNotFound;
        is_missing.then(|| error::of(&error).description().to_owned())
    }
}

/// Returns the path of an audience (AMQP-24), without scheme, host, port and management node. It is
/// empty for the namespace. A host without a scheme is accepted (SEC-13).
fn path_of(audience: &str, own_hosts: &[String]) -> String {
    let decoded = percent_decode_str(audience).decode_utf8_lossy();
    let path = match decoded.split_once("://") {
        Some((_, rest)) => rest.split_once('/').map_or("", |(_, path)| path),
        None => match decoded.split_once('/').unwrap_or((&decoded, "")) {
            (host, path) if is_host_of_audience(host, own_hosts) => path,
            _ => &decoded,
        },
    };
    let path = path.trim_matches('/');
    if path.is_empty() {
        return String::new();
    }
    EntityAddress::parse(path).map_or_else(
        |_| path.to_owned(),
        |address| EntityAddress { node: AddressNode::Entity, ..address }.to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::path_of;

    /// AMQP-24: all forms of an audience name the same entity.
    #[test]
    fn an_audience_names_a_path() {
        let own = ["bus.example".to_owned()];
        for audience in [
            "sb://localhost:5672/orders",
            "amqps://localhost/orders/",
            "amqp://h/orders/$management",
            "sb%3a%2f%2fh%2forders",
            "orders",
            "bus.example/orders",
            "127.0.0.1/orders/",
            "h:5671/orders/$management",
        ] {
            assert_eq!(path_of(audience, &own), "orders", "{audience}");
        }
        for audience in ["amqp://h/", "amqp://h", "bus.example", "localhost:5671/"] {
            assert_eq!(path_of(audience, &own), "", "{audience}");
        }
        assert_eq!(path_of("queue.1", &own), "queue.1");
    }
}

//! An authorizer of one's own: tokens that name a right. Prints what a client without token, one
//! that may only send, and one that may do everything are told.
//!
//! `cargo run --example authorizer`

#![expect(clippy::print_stdout, reason = "an example shows what it does by printing it")]

use std::sync::Arc;

use peeklock::Broker;
use peeklock::contract::{Authorizer, Principal, Right};
use peeklock::description::QueueUpdate;
use peeklock::error::Rejection;

struct Tokens;

#[async_trait::async_trait]
impl Authorizer for Tokens {
    async fn authorize(
        &self,
        principal: &Principal,
        right: Right,
        resource: &str,
    ) -> Result<(), Rejection> {
        match principal.token.as_deref() {
            Some("everything") => Ok(()),
            Some("only-send") if right == Right::Send => Ok(()),
            Some(_) => Err(Rejection::unauthorized(format!(
                "the token gives no right to {} on `{resource}`",
                right.name()
            ))),
            None => Err(Rejection::unauthorized("no token was presented")),
        }
    }

    fn allows_anonymous(&self) -> bool {
        false
    }
}

#[tokio::main(flavor = "current_thread")]
async fn main() -> Result<(), Box<dyn std::error::Error>> {
    let broker = Broker::builder().authorizer(Arc::new(Tokens)).start().await?;
    broker.create_queue("orders", QueueUpdate::default()).await?;
    for token in [None, Some("only-send"), Some("everything")] {
        let principal = Principal { token: token.map(Into::into) };
        for right in [Right::Send, Right::Listen] {
            let answer = match broker.authorize(&principal, right, "orders").await {
                Ok(()) => "allowed".to_owned(),
                Err(error) => error.condition().to_string(),
            };
            println!("{:<12} {:<8} {answer}", token.unwrap_or("(no token)"), right.name());
        }
    }
    broker.stop(std::time::Duration::ZERO).await?;
    Ok(())
}

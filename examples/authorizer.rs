//! An authorizer of your own: tokens name a right. Prints the results for a client without token, a
//! client that may only send, and a client with all rights.
//!
//! `cargo run --example authorizer`

#![expect(clippy::print_stdout, reason = "an example prints its result")]

use std::sync::Arc;

use peeklock::contract::{Action, Authorizer, Grant, Principal, Right, Rights};
use peeklock::error::Rejection;
use peeklock::{Broker, Client};

struct Tokens;

#[async_trait::async_trait]
impl Authorizer for Tokens {
    async fn authorize(&self, principal: &Principal, _resource: &str) -> Result<Grant, Rejection> {
        match principal.token.as_deref() {
            Some("everything") => Ok(Grant::everything()),
            Some("only-send") => Ok(Grant::of(Rights::of(Right::Send))),
            Some(_) => Ok(Grant::nothing()),
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
    Client::new(&broker).admin().create_queue("orders").await?;
    for token in [None, Some("only-send"), Some("everything")] {
        let access = broker.access(Principal::anonymous().with_token_if_any(token));
        for action in [Action::Send, Action::Receive] {
            let answer = match access.entity("orders", action).await {
                Ok(_) => "allowed".to_owned(),
                Err(error) => error.condition().to_string(),
            };
            println!("{:<12} {:<8} {answer}", token.unwrap_or("(no token)"), format!("{action:?}"));
        }
    }
    broker.stop(std::time::Duration::ZERO).await?;
    Ok(())
}

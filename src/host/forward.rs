//! A forwarder made of a function, for programs that embed the server.
//! [`Host::forwarder`](crate::Host::forwarder) makes it; the broker calls it like any forwarder.

use std::sync::Arc;

use async_trait::async_trait;
use peeklock::contract::{Forwarder, Outgoing, Route, Source, Verdict};
use peeklock::error::Rejection;

/// Function that returns the outcome of a message for a destination.
type Decide = Arc<dyn Fn(&str, &Outgoing) -> Verdict + Send + Sync>;

/// Forwarder for the destinations of a scheme.
pub(super) struct FunctionForwarder {
    scheme: &'static str,
    schemes: &'static [&'static str],
    decide: Decide,
}

struct FunctionRoute {
    destination: Box<str>,
    decide: Decide,
}

impl FunctionForwarder {
    pub(super) fn new(scheme: &'static str, decide: Decide) -> Self {
        // A leak without consequences: a host is created once and lives until the process ends.
        Self { scheme, schemes: Vec::leak(vec![scheme]), decide }
    }
}

impl Forwarder for FunctionForwarder {
    fn name(&self) -> &'static str {
        self.scheme
    }

    fn schemes(&self) -> &'static [&'static str] {
        self.schemes
    }

    fn check(&self, _: &str) -> Result<(), Rejection> {
        Ok(())
    }

    fn route(&self, destination: &str, _: Source) -> Result<Box<dyn Route>, Rejection> {
        let decide = Arc::clone(&self.decide);
        Ok(Box::new(FunctionRoute { destination: destination.into(), decide }))
    }
}

#[async_trait]
impl Route for FunctionRoute {
    async fn forward(&mut self, messages: &[Outgoing]) -> Vec<Verdict> {
        messages.iter().map(|message| (self.decide)(&self.destination, message)).collect()
    }
}

//! A client together with its broker, which the test stops at the end.

use std::ops::Deref;
use std::time::Duration;

use peeklock_client::Client;
use peeklock_core::Broker;

pub struct Local {
    pub broker: Broker,
    client: Client,
}

impl Local {
    pub fn new(broker: Broker) -> Self {
        Self { client: Client::new(&broker), broker }
    }

    pub async fn stop(self) {
        self.broker.stop(Duration::ZERO).await.unwrap();
    }
}

impl Deref for Local {
    type Target = Client;

    fn deref(&self) -> &Client {
        &self.client
    }
}

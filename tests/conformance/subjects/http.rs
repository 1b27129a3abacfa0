//! The JSON API of the HTTP transport, over a socket.

mod form;
mod topics;

use std::cell::RefCell;
use std::collections::HashSet;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;
use peeklock_core::Broker;
use peeklock_core::command::{
    Counts, Described, MessageState, ReceiveMode, SessionCounts, SessionFilter,
};
use peeklock_core::contract::{RunningTransport, Transport as _};
use peeklock_core::description::{
    Description, EntityKind, EntityStatus, FieldKind, FieldValue, Jitter, QueueDescription,
    QueueUpdate, RetryKind, RetryPolicy, SessionRetryOrder,
};
use peeklock_core::ids::{SequenceNumber, parse_guid};
use peeklock_core::message::{Body, Message, Value};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_http::{HttpConfig, HttpTransport};
use serde_json::{Map, Value as Json, json};

use self::form::*;
use crate::subject::{Answer, Decision, Extra, Refusal, Seen, Subject};
use crate::support::http::{Response, request, segment};

/// A listener on a free port, and a stateless client.
pub struct Http {
    address: SocketAddr,
    running: RefCell<Option<Box<dyn RunningTransport>>>,
    /// Paths of topics created here, in lower case: their messages have another address.
    topics: RefCell<HashSet<String>>,
}

impl Http {
    pub async fn open(broker: &Broker) -> Self {
        let config = HttpConfig::at(SocketAddr::from((Ipv4Addr::LOCALHOST, 0)));
        let running = Box::new(HttpTransport::new(config)).start(broker.clone()).await.unwrap();
        Self {
            address: running.local_address(),
            running: RefCell::new(Some(running)),
            topics: RefCell::default(),
        }
    }

    /// Sends one request to the API; `path` is relative to its root.
    async fn ask(
        &self,
        method: &str,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<Json>,
    ) -> Answer<Json> {
        let mut headers = headers.to_vec();
        let body = body.map(|body| serde_json::to_vec(&body).unwrap()).unwrap_or_default();
        if !body.is_empty() {
            headers.push(("Content-Type", "application/json"));
        }
        let target = format!("/$api/v1{path}");
        let response = request(self.address, method, &target, &headers, &body).await.unwrap();
        if (200..300).contains(&response.status) {
            if response.body.is_empty() {
                return Ok(Json::Null);
            }
            return Ok(serde_json::from_slice(&response.body).unwrap());
        }
        Err(refusal(&response, path))
    }

    /// Address of the messages of an entity or sub-queue.
    fn place(&self, path: &str) -> String {
        if let Some((topic, name)) = of_subscription(path) {
            return subscription_at(topic, name);
        }
        if self.topics.borrow().contains(&path.to_lowercase()) {
            return format!("/topics/{}", segment(path));
        }
        queue_at(path)
    }

    async fn post(&self, path: &str, operation: &str, body: Json) -> Answer<Json> {
        self.ask("POST", &format!("{}/{operation}", self.place(path)), &[], Some(body)).await
    }

    async fn patch(
        &self,
        path: &str,
        properties: &QueueUpdate,
        headers: &[(&str, &str)],
    ) -> Answer<Described> {
        let mut body = write_entity::<QueueDescription>(properties);
        // An update of the suite replaces the description (ENT-17); an update of the API merges.
        for clearable in ["forwardTo", "forwardDeadLetteredMessagesTo", "userMetadata"] {
            body.entry(clearable).or_insert(Json::Null);
        }
        Ok(read_queue(&self.ask("PATCH", &queue_at(path), headers, Some(body.into())).await?))
    }
}

fn queue_at(path: &str) -> String {
    format!("/queues/{}", segment(path))
}

fn subscription_at(topic: &str, name: &str) -> String {
    format!("/topics/{}/subscriptions/{}", segment(topic), segment(name))
}

/// The topic, and the subscription with its sub-queue, if a path has one.
fn of_subscription(path: &str) -> Option<(&str, &str)> {
    let at = path.to_ascii_lowercase().find("/subscriptions/")?;
    Some((&path[..at], &path[at + "/subscriptions/".len()..]))
}

const fn mode_name(mode: ReceiveMode) -> &'static str {
    match mode {
        ReceiveMode::PeekLock => "peekLock",
        ReceiveMode::ReceiveAndDelete => "receiveAndDelete",
    }
}

#[async_trait(?Send)]
impl Subject for Http {
    fn offers(&self, extra: Extra) -> bool {
        match extra {
            Extra::VersionedUpdate => true,
        }
    }

    async fn create(&self, path: &str, properties: QueueUpdate) -> Answer<Described> {
        let body = write_entity::<QueueDescription>(&properties).into();
        let answer = self.ask("PUT", &queue_at(path), &[], Some(body)).await?;
        Ok(read_queue(&answer))
    }

    async fn update(&self, path: &str, properties: QueueUpdate) -> Answer<Described> {
        self.patch(path, &properties, &[]).await
    }

    async fn update_of(
        &self,
        path: &str,
        properties: QueueUpdate,
        read_at: Timestamp,
    ) -> Answer<Described> {
        let version = format!("\"{read_at}\"");
        self.patch(path, &properties, &[("If-Match", &version)]).await
    }

    async fn delete(&self, path: &str) -> Answer<()> {
        self.ask("DELETE", &queue_at(path), &[], None).await.map(drop)
    }

    async fn describe(&self, path: &str) -> Answer<Described> {
        Ok(read_queue(&self.ask("GET", &queue_at(path), &[], None).await?))
    }

    async fn list(&self, skip: usize, top: usize) -> Answer<Vec<String>> {
        let answer = self.ask("GET", &format!("/queues?skip={skip}&top={top}"), &[], None).await?;
        let queues = answer["queues"].as_array().unwrap();
        Ok(queues.iter().map(|queue| text_of(queue, "path").unwrap()).collect())
    }

    async fn send(&self, path: &str, message: Message) -> Answer<u64> {
        let answer = self.post(path, "messages", write_message(&message)).await?;
        Ok(number_of(&answer, "sequenceNumber"))
    }

    async fn send_batch(&self, path: &str, messages: Vec<Message>) -> Answer<Vec<u64>> {
        let body = json!({ "messages": write_messages(&messages) });
        Ok(numbers_of(&self.post(path, "messages/batch", body).await?))
    }

    async fn schedule(&self, path: &str, message: Message, at: Timestamp) -> Answer<u64> {
        let body = json!({
            "scheduledEnqueueTimeUtc": at.to_string(),
            "messages": [write_message(&message)],
        });
        Ok(numbers_of(&self.post(path, "messages/schedule", body).await?)[0])
    }

    async fn cancel(&self, path: &str, sequences: &[u64]) -> Answer<()> {
        let body = json!({ "sequenceNumbers": sequences });
        self.post(path, "messages/cancel-scheduled", body).await.map(drop)
    }

    async fn receive(
        &self,
        path: &str,
        mode: ReceiveMode,
        count_max: u32,
        wait: TimeSpan,
    ) -> Answer<Vec<Seen>> {
        let body = json!({
            "mode": mode_name(mode),
            "maxCount": count_max,
            "waitSeconds": wait.as_seconds_f64(),
        });
        Ok(read_messages(&self.post(path, "messages/receive", body).await?))
    }

    async fn receive_deferred(
        &self,
        path: &str,
        mode: ReceiveMode,
        sequences: &[u64],
    ) -> Answer<Vec<Seen>> {
        let body = json!({ "mode": mode_name(mode), "sequenceNumbers": sequences });
        Ok(read_messages(&self.post(path, "messages/receive-deferred", body).await?))
    }

    async fn settle(&self, path: &str, token: &str, decision: Decision) -> Answer<()> {
        let (operation, body) = match decision {
            Decision::Complete => ("complete", json!({})),
            Decision::Abandon(properties) => {
                ("abandon", json!({ "applicationProperties": write_properties(&properties) }))
            }
            Decision::Defer(properties) => {
                ("defer", json!({ "applicationProperties": write_properties(&properties) }))
            }
            Decision::DeadLetter { reason, description, properties } => {
                let body = json!({
                    "reason": reason,
                    "description": description,
                    "applicationProperties": write_properties(&properties),
                });
                ("dead-letter", body)
            }
        };
        self.post(path, &format!("locks/{token}/{operation}"), body).await.map(drop)
    }

    async fn complete_many(&self, path: &str, tokens: &[String]) -> Answer<Vec<Answer<()>>> {
        let mut answers = Vec::new();
        for token in tokens {
            answers.push(self.settle(path, token, Decision::Complete).await);
        }
        Ok(answers)
    }

    async fn renew(&self, path: &str, token: &str) -> Answer<Timestamp> {
        let answer = self.post(path, &format!("locks/{token}/renew"), json!({})).await?;
        Ok(instant_of(&answer, "lockedUntilUtc").unwrap())
    }

    async fn peek(&self, path: &str, from: u64, count_max: u32) -> Answer<Vec<Seen>> {
        let path = format!("{}/messages?from={from}&count={count_max}", self.place(path));
        Ok(read_messages(&self.ask("GET", &path, &[], None).await?))
    }

    async fn delete_batch(
        &self,
        path: &str,
        count_max: u32,
        enqueued_before: Option<Timestamp>,
    ) -> Answer<u64> {
        let body = json!({
            "maxCount": count_max,
            "enqueuedBeforeUtc": enqueued_before.map(|at| at.to_string()),
        });
        Ok(number_of(&self.post(path, "messages/delete-batch", body).await?, "deleted"))
    }

    async fn purge(&self, path: &str) -> Answer<u64> {
        Ok(number_of(&self.post(path, "messages/purge", json!({})).await?, "deleted"))
    }

    async fn delete_deferred(&self, path: &str, sequence: u64) -> Answer<()> {
        let path = format!("{}/messages/{sequence}", self.place(path));
        self.ask("DELETE", &path, &[], None).await.map(drop)
    }

    async fn sessions(
        &self,
        path: &str,
        which: SessionFilter,
        skip: u64,
        top: u32,
    ) -> Answer<Vec<String>> {
        let which = match which {
            SessionFilter::All => String::new(),
            SessionFilter::WithActiveMessages => "&withActiveMessages=true".to_owned(),
            SessionFilter::StateSetAfter(at) => format!("&stateSetAfterUtc={at}"),
        };
        let target = format!("{}/sessions?skip={skip}&top={top}{which}", self.place(path));
        let answer = self.ask("GET", &target, &[], None).await?;
        let names = answer["sessionIds"].as_array().unwrap();
        Ok(names.iter().map(|name| name.as_str().unwrap().to_owned()).collect())
    }

    fn address(&self) -> Option<SocketAddr> {
        Some(self.address)
    }

    async fn stop(&self) {
        let running = self.running.borrow_mut().take();
        if let Some(running) = running {
            running.stop(Duration::ZERO).await;
        }
    }
}

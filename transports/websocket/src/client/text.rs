//! Messages, entities and rules as JSON text in the form of the protocol
//! (`docs/reference/websocket.md`, sections 5 and 8), for tools that print, store and read them.

use bytes::Bytes;
use peeklock_client::Received;
use peeklock_core::command::{ActedMessage, Described, DescribedSubscription, DescribedTopic};
use peeklock_core::inspect::Findings;
use peeklock_core::message::Message;
use peeklock_core::policies::{PolicyDescription, PolicyKeys};
use peeklock_core::rule::{Explanation, RuleDescription};
use peeklock_json::ReceivedView;

use crate::frame::message::SentMessage;
use crate::operation::{
    ActedView, ExplanationView, FindingsView, PolicyKeysView, PolicyView, QueueView, RuleForm,
    SessionState, SubscriptionView, TopicView,
};

/// Error of a text that is not a valid message or rule.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct MessageTextError(#[from] serde_json::Error);

/// Formats a received message as one line of JSON, including all facts that the broker adds.
/// [`message_from_json`] reads it as the message that was sent, except that a body that is not AMQP
/// data becomes data, and a message id that is not text becomes text.
#[must_use]
pub fn received_to_json(received: &Received) -> String {
    written(&ReceivedView::new(received.message(), received.facts(), received.dead_letter_source()))
}

/// Formats a message as one line of JSON.
#[must_use]
pub fn message_to_json(message: &Message) -> String {
    written(&SentMessage::Typed(Box::new(message.clone())))
}

/// Reads a message. It ignores the facts that a broker adds (MSG-11) and refuses unknown
/// properties.
///
/// # Errors
/// Fails if the text is not JSON, or not the JSON of a message.
pub fn message_from_json(text: &str) -> Result<Message, MessageTextError> {
    match serde_json::from_str(text)? {
        SentMessage::Typed(message) => Ok(*message),
        outgoing @ SentMessage::Content(_) => {
            outgoing.message().map_err(serde::de::Error::custom).map_err(MessageTextError)
        }
    }
}

/// Formats a queue as one line of JSON.
#[must_use]
pub fn queue_to_json(described: &Described) -> String {
    written(&QueueView::from(described.clone()))
}

/// Formats the state of a session as one line of JSON: `state` if it is text, `stateBase64` if it
/// is not; neither if there is no state.
#[must_use]
pub fn session_state_to_json(session_id: &str, state: Option<&Bytes>) -> String {
    #[derive(serde::Serialize)]
    #[serde(rename_all = "camelCase")]
    struct Of<'a> {
        session_id: &'a str,
        #[serde(flatten)]
        state: SessionState,
    }
    written(&Of { session_id, state: SessionState { state: state.cloned() } })
}

/// Formats the results for messages that an operator acted on as one JSON object.
#[must_use]
pub fn acted_to_json(messages: Vec<ActedMessage>) -> String {
    written(&ActedView::from(messages))
}

/// Formats the rows of findings, each as one line of JSON; findings without rows as one line.
#[must_use]
pub fn findings_to_json(findings: Findings) -> Vec<String> {
    let view = serde_json::to_value(FindingsView::from(findings)).unwrap_or_default();
    let named = view.as_object().and_then(|view| view.iter().next());
    let Some((kind, page)) = named else { return Vec::new() };
    // A tap has heads as rows, a job samples or failures, a check findings, and a journey stations.
    let rows = [kind.as_str(), "heads", "samples", "failures", "findings", "stations"]
        .into_iter()
        .find_map(|name| page.get(name)?.as_array());
    match rows {
        Some(rows) => rows.iter().map(ToString::to_string).collect(),
        None => vec![page.to_string()],
    }
}

/// Formats a topic as one line of JSON.
#[must_use]
pub fn topic_to_json(described: &DescribedTopic) -> String {
    written(&TopicView::from(described.clone()))
}

/// Formats a policy as one line of JSON.
#[must_use]
pub fn policy_to_json(policy: &PolicyDescription) -> String {
    written(&PolicyView::from(policy))
}

/// Formats a policy with its keys as one line of JSON.
#[must_use]
pub fn policy_keys_to_json(keys: &PolicyKeys) -> String {
    written(&PolicyKeysView::from(keys))
}

/// Formats a subscription as one line of JSON.
#[must_use]
pub fn subscription_to_json(described: &DescribedSubscription) -> String {
    written(&SubscriptionView::from(described.clone()))
}

/// Formats a rule as one line of JSON.
#[must_use]
pub fn rule_to_json(rule: &RuleDescription) -> String {
    written(&RuleForm::from(rule))
}

/// Reads a rule; the broker validates it when the rule is created.
///
/// # Errors
/// Fails if the text is not JSON, or not the JSON of a rule.
pub fn rule_from_json(text: &str) -> Result<RuleDescription, MessageTextError> {
    let form: RuleForm = serde_json::from_str(text)?;
    form.to_description()
        .map_err(|rejection| MessageTextError(serde::de::Error::custom(rejection.detail())))
}

/// Formats the effect of a rule on a message as one line of JSON.
#[must_use]
pub fn explanation_to_json(explanation: &Explanation) -> String {
    written(&ExplanationView::from(explanation))
}

/// Formats a value. Text, numbers and maps with text keys can always be written.
fn written(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

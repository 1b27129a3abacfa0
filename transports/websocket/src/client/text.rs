//! Messages, entities and rules as JSON text, in the form of the protocol (`docs/reference/websocket.md`,
//! sections 5 and 8): what tools print, store and read again.

use bytes::Bytes;
use peeklock_client::Received;
use peeklock_core::command::{Described, DescribedSubscription, DescribedTopic};
use peeklock_core::message::Message;
use peeklock_core::policies::{PolicyDescription, PolicyKeys};
use peeklock_core::rule::{Explanation, RuleDescription};
use peeklock_json::ReceivedView;

use crate::frame::message::Outgoing;
use crate::operation::{
    ExplanationView, PolicyKeysView, PolicyView, QueueView, RuleForm, SessionState,
    SubscriptionView, TopicView,
};

/// Why a text is no message, or no rule.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct MessageTextError(#[from] serde_json::Error);

/// A received message as one line of JSON, with everything that the broker says of it. Reading it with
/// [`message_from_json`] gives the message that its sender sent; a body of another AMQP kind than
/// data becomes data, and an id that is no text becomes one.
#[must_use]
pub fn received_to_json(received: &Received) -> String {
    written(&ReceivedView::new(received.message(), received.facts(), received.dead_letter_source()))
}

/// A message as one line of JSON.
#[must_use]
pub fn message_to_json(message: &Message) -> String {
    written(&Outgoing::Typed(Box::new(message.clone())))
}

/// Reads a message. What a broker says of a message is ignored (MSG-11), an unknown property is
/// refused.
///
/// # Errors
/// When it is no JSON, or none of a message.
pub fn message_from_json(text: &str) -> Result<Message, MessageTextError> {
    match serde_json::from_str(text)? {
        Outgoing::Typed(message) => Ok(*message),
        outgoing @ Outgoing::Content(_) => {
            outgoing.message().map_err(serde::de::Error::custom).map_err(MessageTextError)
        }
    }
}

/// A queue as one line of JSON.
#[must_use]
pub fn queue_to_json(described: &Described) -> String {
    written(&QueueView::from(described.clone()))
}

/// The state of a session as one line of JSON: `state` if it is text, `stateBase64` if not, neither if
/// there is none.
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

/// A topic as one line of JSON.
#[must_use]
pub fn topic_to_json(described: &DescribedTopic) -> String {
    written(&TopicView::from(described.clone()))
}

/// A policy as one line of JSON.
#[must_use]
pub fn policy_to_json(policy: &PolicyDescription) -> String {
    written(&PolicyView::from(policy))
}

/// A policy with its keys as one line of JSON.
#[must_use]
pub fn policy_keys_to_json(keys: &PolicyKeys) -> String {
    written(&PolicyKeysView::from(keys))
}

/// A subscription as one line of JSON.
#[must_use]
pub fn subscription_to_json(described: &DescribedSubscription) -> String {
    written(&SubscriptionView::from(described.clone()))
}

/// A rule as one line of JSON.
#[must_use]
pub fn rule_to_json(rule: &RuleDescription) -> String {
    written(&RuleForm::from(rule))
}

/// Reads a rule, which the broker judges when it is created.
///
/// # Errors
/// When it is no JSON, or none of a rule.
pub fn rule_from_json(text: &str) -> Result<RuleDescription, MessageTextError> {
    let form: RuleForm = serde_json::from_str(text)?;
    form.to_description()
        .map_err(|rejection| MessageTextError(serde::de::Error::custom(rejection.detail())))
}

/// What a rule makes of a message, as one line of JSON.
#[must_use]
pub fn explanation_to_json(explanation: &Explanation) -> String {
    written(&ExplanationView::from(explanation))
}

/// Text, numbers and maps with text keys can always be written.
fn written(value: &impl serde::Serialize) -> String {
    serde_json::to_string(value).unwrap_or_default()
}

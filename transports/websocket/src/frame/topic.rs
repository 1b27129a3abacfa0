//! What is said about topics, subscriptions and rules (section 8 of the document). Both encodings
//! carry their properties as JSON.

use serde::{Deserialize, Serialize};

use super::message::Outgoing;
use super::text::Instant;
use super::wire::wire;
use super::{bodies, json};

pub(crate) use peeklock_json::{
    ExplanationView, RuleForm, SubscriptionProperties, SubscriptionView, TopicProperties, TopicView,
};

bodies! {
    struct CreateTopic {
        path: String,
        #[serde(default)]
        properties: TopicProperties,
    }

    struct UpdateTopic {
        path: String,
        #[serde(default)]
        properties: TopicProperties,
        /// The `updatedAt` of the version to be changed.
        #[serde(skip_serializing_if = "Option::is_none")]
        version: Option<Instant>,
    }

    struct CreateSubscription {
        /// The path of the topic.
        topic: String,
        name: String,
        #[serde(default)]
        properties: SubscriptionProperties,
        /// Its rules; without any it gets `$Default`, which selects every message.
        #[serde(
            default,
            skip_serializing_if = "Vec::is_empty",
            deserialize_with = "json::bounded"
        )]
        rules: Vec<RuleForm>,
    }

    struct UpdateSubscription {
        path: String,
        #[serde(default)]
        properties: SubscriptionProperties,
        /// The `updatedAt` of the version to be changed.
        #[serde(skip_serializing_if = "Option::is_none")]
        version: Option<Instant>,
    }

    struct SetRule {
        /// The path of the subscription.
        path: String,
        rule: RuleForm,
    }

    struct NamedRule {
        /// The path of the subscription.
        path: String,
        name: String,
    }

    struct ListOf {
        /// The path of the topic, or of the subscription whose rules are asked for.
        path: String,
        #[serde(default)]
        skip: u32,
        #[serde(skip_serializing_if = "Option::is_none")]
        top: Option<u32>,
    }

    struct Explain {
        /// The path of the subscription.
        path: String,
        message: Outgoing,
    }
}

/// A page of topics in case-insensitive order of their paths.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct TopicList {
    pub(crate) topics: Vec<TopicView>,
}

/// A page of a topic's subscriptions in case-insensitive order of their names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct SubscriptionList {
    pub(crate) subscriptions: Vec<SubscriptionView>,
}

/// A page of a subscription's rules in case-insensitive order of their names.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct RuleList {
    pub(crate) rules: Vec<RuleForm>,
}

/// What each rule of a subscription makes of a message.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(crate) struct Explained {
    pub(crate) rules: Vec<ExplanationView>,
}

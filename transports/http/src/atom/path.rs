//! Parses addresses of the Atom API (ADM-04, HTP-12, HTP-13). Words in them are case-insensitive.
//! `serve.rs` calls it.

use actix_web::http::Method;
use peeklock_core::path::subscription_path;

const NAMESPACE_INFO: &str = "$namespaceinfo";
const RESOURCES: &str = "$Resources";
const SUBSCRIPTIONS: &str = "Subscriptions";
const RULES: &str = "Rules";

/// A resource; names are decoded but not validated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum AtomRoute {
    /// `/$namespaceinfo`
    Namespace,
    /// `/$Resources/queues`
    Queues,
    /// `/$Resources/topics`
    Topics,
    /// `/{queue or topic}`
    Entity { path: String },
    /// `/{topic}/subscriptions`
    Subscriptions { topic: String },
    /// `/{topic}/subscriptions/{subscription}`
    Subscription { topic: String, name: String },
    /// `/{topic}/subscriptions/{subscription}/rules`
    Rules { topic: String, subscription: String },
    /// `/{topic}/subscriptions/{subscription}/rules/{rule}`
    Rule { topic: String, subscription: String, name: String },
}

impl AtomRoute {
    /// Reads the segments of a path; none if no such resource can exist.
    pub(crate) fn read(segments: &[String]) -> Option<Self> {
        let same = |text: &str, word: &str| text.eq_ignore_ascii_case(word);
        match segments {
            [word] if same(word, NAMESPACE_INFO) => return Some(Self::Namespace),
            [word, kind] if same(word, RESOURCES) && same(kind, "queues") => {
                return Some(Self::Queues);
            }
            [word, kind] if same(word, RESOURCES) && same(kind, "topics") => {
                return Some(Self::Topics);
            }
            [word, ..] if same(word, RESOURCES) || word.is_empty() => return None,
            [] => return None,
            [..] => {}
        }
        let parts = parts(segments);
        let Some((topic, below)) = below_subscriptions(&parts) else {
            return Some(Self::Entity { path: segments.join("/") });
        };
        let topic = topic.join("/");
        match below {
            [] => Some(Self::Subscriptions { topic }),
            [name] => Some(Self::Subscription { topic, name: name.clone() }),
            [subscription, rules] if same(rules, RULES) => {
                Some(Self::Rules { topic, subscription: subscription.clone() })
            }
            [subscription, rules, name] if same(rules, RULES) => {
                Some(Self::Rule { topic, subscription: subscription.clone(), name: name.clone() })
            }
            [..] => None,
        }
    }

    /// Whether segments are certainly a resource below a topic, although the last segment is a word
    /// of the data plane.
    pub(crate) fn is_below_topic(segments: &[String]) -> bool {
        below_subscriptions(&parts(segments)).is_some_and(|(_, below)| match below {
            [_] => true,
            [_, rules, ..] => rules.eq_ignore_ascii_case(RULES),
            [] => false,
        })
    }

    /// Returns the path of its entity; empty for the namespace.
    pub(crate) fn resource(&self) -> String {
        match self {
            Self::Namespace | Self::Queues | Self::Topics => String::new(),
            Self::Entity { path } => path.clone(),
            Self::Subscriptions { topic } => topic.clone(),
            Self::Subscription { topic, name } => subscription_path(topic, name),
            Self::Rules { topic, subscription } | Self::Rule { topic, subscription, .. } => {
                subscription_path(topic, subscription)
            }
        }
    }

    /// Returns its address in the spelling of answers (ADM-32).
    pub(crate) fn address(&self) -> String {
        match self {
            Self::Namespace => NAMESPACE_INFO.to_owned(),
            Self::Queues => format!("{RESOURCES}/queues"),
            Self::Topics => format!("{RESOURCES}/topics"),
            Self::Entity { .. } | Self::Subscription { .. } => self.resource(),
            Self::Subscriptions { topic } => format!("{topic}/{SUBSCRIPTIONS}"),
            Self::Rules { .. } => format!("{}/{RULES}", self.resource()),
            Self::Rule { name, .. } => format!("{}/{RULES}/{name}", self.resource()),
        }
    }

    /// Returns its methods, as the `Allow` header lists them.
    pub(crate) const fn methods(&self) -> &'static str {
        match self {
            Self::Namespace
            | Self::Queues
            | Self::Topics
            | Self::Subscriptions { .. }
            | Self::Rules { .. } => "GET, HEAD, OPTIONS",
            Self::Entity { .. } | Self::Subscription { .. } | Self::Rule { .. } => {
                "GET, HEAD, PUT, DELETE, OPTIONS"
            }
        }
    }

    /// Returns the words by which clients recognise a missing right (ADM-54).
    pub(crate) fn denied(&self, method: &Method) -> String {
        let is_write = *method == Method::PUT;
        let is_deletion = *method == Method::DELETE;
        let of_one = |kind: &str| {
            let verb = match (is_write, is_deletion) {
                (true, _) => "CreateOrUpdate",
                (_, true) => "Delete",
                _ => "Get",
            };
            format!("{verb}{kind}")
        };
        let operation = match self {
            Self::Namespace | Self::Queues | Self::Topics | Self::Entity { .. } => {
                return match (is_write, is_deletion) {
                    (true, _) => "Authorization failed for specified action: Manage,EntityWrite.",
                    (_, true) => "Authorization failed for specified action: Manage,EntityDelete.",
                    _ => "Manage,EntityRead claims required for this operation.",
                }
                .to_owned();
            }
            Self::Subscriptions { .. } => "EnumerateSubscriptions".to_owned(),
            Self::Rules { .. } => "EnumerateRules".to_owned(),
            Self::Subscription { .. } => of_one("Subscription"),
            Self::Rule { .. } => of_one("Rule"),
        };
        format!(
            "401 SubCode=40100: Unauthorized : Unauthorized access for '{operation}' operation."
        )
    }
}

/// Splits segments at encoded slashes too, since they have the same meaning (ADM-04) and no name of
/// a subscription or rule contains a slash.
fn parts(segments: &[String]) -> Vec<String> {
    let parts = segments.iter().flat_map(|segment| segment.split('/'));
    let mut parts: Vec<String> = parts.map(str::to_owned).collect();
    while parts.last().is_some_and(String::is_empty) {
        parts.pop();
    }
    parts
}

/// Returns the topic, and the segments after the word `Subscriptions`, which no path of a topic
/// contains (ADR-11).
fn below_subscriptions(segments: &[String]) -> Option<(&[String], &[String])> {
    let place = segments.iter().position(|it| it.eq_ignore_ascii_case(SUBSCRIPTIONS))?;
    let (topic, below) = segments.split_at(place);
    if topic.is_empty() { None } else { Some((topic, below.get(1..)?)) }
}

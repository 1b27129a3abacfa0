//! A declaration `[[topics.subscriptions]]`: a subscription as it shall be, with its rules.

use peeklock::declaration::DeclaredSubscription;
use peeklock::description::{
    EntityStatus, SessionRetryOrder, SubscriptionDescription, SubscriptionUpdate,
};
use peeklock::rule::RuleDescription;
use peeklock::time::TimeSpan;
use serde::{Deserialize, Serialize};

use super::declared::{Usual, bare, cleared, some, some_text, text};
use super::retry::RetryDeclaration;
use super::rule::RuleDeclaration;
use super::text::Scalar;

/// A subscription and the properties that are named (DEC-02).
#[derive(Clone, Debug, Deserialize, Serialize)]
#[serde(deny_unknown_fields, expecting = "a table with the properties of a subscription")]
pub struct SubscriptionDeclaration {
    /// Its name within the topic.
    pub name: String,
    lock_duration: Option<Scalar<TimeSpan>>,
    requires_session: Option<Scalar<bool>>,
    default_message_time_to_live: Option<Scalar<TimeSpan>>,
    dead_lettering_on_message_expiration: Option<Scalar<bool>>,
    enable_dead_lettering_on_filter_evaluation_exceptions: Option<Scalar<bool>>,
    max_delivery_count: Option<Scalar<u32>>,
    enable_batched_operations: Option<Scalar<bool>>,
    status: Option<Scalar<EntityStatus>>,
    forward_to: Option<Scalar<String>>,
    forward_dead_lettered_messages_to: Option<Scalar<String>>,
    catch_all: Option<Scalar<bool>>,
    auto_delete_on_idle: Option<Scalar<TimeSpan>>,
    user_metadata: Option<Scalar<String>>,
    session_retry_order: Option<Scalar<SessionRetryOrder>>,
    retry_policy: Option<RetryDeclaration>,
    /// `[[topics.subscriptions.rules]]`: exactly those that it has; without any, `$Default` at creation (DEC-03).
    rules: Option<Vec<RuleDeclaration>>,
}

impl SubscriptionDeclaration {
    /// What the broker is asked for.
    ///
    /// # Errors
    /// With what is wrong with a rule, and its place in the subscription.
    pub(super) fn declared(&self) -> Result<DeclaredSubscription, (String, String)> {
        let properties = SubscriptionUpdate {
            lock_duration: bare(self.lock_duration),
            requires_session: bare(self.requires_session),
            default_message_time_to_live: bare(self.default_message_time_to_live),
            dead_lettering_on_message_expiration: bare(self.dead_lettering_on_message_expiration),
            enable_dead_lettering_on_filter_evaluation_exceptions: bare(
                self.enable_dead_lettering_on_filter_evaluation_exceptions,
            ),
            max_delivery_count: bare(self.max_delivery_count),
            enable_batched_operations: bare(self.enable_batched_operations),
            status: bare(self.status),
            forward_to: text(&self.forward_to),
            forward_dead_lettered_messages_to: text(&self.forward_dead_lettered_messages_to),
            catch_all: bare(self.catch_all),
            auto_delete_on_idle: bare(self.auto_delete_on_idle),
            user_metadata: text(&self.user_metadata),
            retry_policy: self.retry_policy.map(RetryDeclaration::policy),
            session_retry_order: bare(self.session_retry_order),
            extensions: None,
        };
        let rules = self.rules.as_ref().map(|rules| {
            let described = rules.iter().enumerate().map(|(index, rule)| {
                rule.described().map_err(|detail| (format!("rules[{index}]"), detail))
            });
            described.collect::<Result<Vec<_>, _>>()
        });
        let forward_dead_letters_to = &self.forward_dead_lettered_messages_to;
        Ok(DeclaredSubscription {
            name: self.name.as_str().into(),
            properties,
            cleared: cleared(&self.forward_to, forward_dead_letters_to, &self.user_metadata),
            rules: rules.transpose()?,
            ..DeclaredSubscription::default()
        })
    }

    /// Leaves out what every new subscription has, or names it.
    pub(super) fn with_usual(&mut self, usual: Usual) {
        for flag in [
            &mut self.requires_session,
            &mut self.dead_lettering_on_message_expiration,
            &mut self.catch_all,
        ] {
            usual.of(flag, false);
        }
        usual.of(&mut self.enable_dead_lettering_on_filter_evaluation_exceptions, true);
        usual.of(&mut self.enable_batched_operations, true);
        usual.of(&mut self.status, EntityStatus::Active);
        usual.of(&mut self.session_retry_order, SessionRetryOrder::Hold);
    }

    /// A subscription as it is, with its rules.
    pub fn of(subscription: &SubscriptionDescription, rules: &[RuleDescription]) -> Self {
        Self {
            name: subscription.name.to_string(),
            lock_duration: some(subscription.lock_duration),
            requires_session: some(subscription.requires_session),
            default_message_time_to_live: some(subscription.default_message_time_to_live),
            dead_lettering_on_message_expiration: some(
                subscription.dead_lettering_on_message_expiration,
            ),
            enable_dead_lettering_on_filter_evaluation_exceptions: some(
                subscription.enable_dead_lettering_on_filter_evaluation_exceptions,
            ),
            max_delivery_count: some(subscription.max_delivery_count),
            enable_batched_operations: some(subscription.enable_batched_operations),
            status: some(subscription.status),
            forward_to: some_text(&subscription.forward_to),
            forward_dead_lettered_messages_to: some_text(
                &subscription.forward_dead_lettered_messages_to,
            ),
            catch_all: some(subscription.catch_all),
            auto_delete_on_idle: some(subscription.auto_delete_on_idle),
            user_metadata: some_text(&subscription.user_metadata),
            session_retry_order: some(subscription.session_retry_order),
            retry_policy: subscription.retry_policy.map(Into::into),
            rules: Some(rules.iter().map(Into::into).collect()),
        }
    }
}

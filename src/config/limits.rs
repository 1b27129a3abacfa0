//! The section `[limits]`: each number of [`Limits`] may be changed (QUO-02).

use peeklock::limits::Limits;
use peeklock::time::TimeSpan;
use serde::Deserialize;

use super::text::{Scalar, span_text};

/// How a limit is written in a configuration file.
trait Written {
    fn written(&self) -> String;
}

macro_rules! written_as_number {
    ($($number:ident)*) => {$(
        impl Written for $number {
            fn written(&self) -> String {
                self.to_string()
            }
        }
    )*};
}

written_as_number!(u8 u16 u32 u64 usize);

impl Written for TimeSpan {
    fn written(&self) -> String {
        span_text(*self)
    }
}

/// One line per limit; the section, its application and its listing follow from it.
macro_rules! limits {
    ($($name:ident: $kind:ty,)*) => {
        /// The limits that a configuration names; the others are those of the tier.
        #[derive(Clone, Debug, Default, Deserialize)]
        #[serde(default, deny_unknown_fields, expecting = "a table of limits")]
        pub struct LimitsSection {
            $($name: Option<Scalar<$kind>>,)*
        }

        impl LimitsSection {
            /// Puts these limits over those of the tier.
            pub fn apply_to(&self, limits: &mut Limits) {
                $(if let Some(Scalar(value)) = self.$name {
                    limits.$name = value;
                })*
            }
        }

        /// Name and value of every limit, in the order of `Limits`.
        pub fn list(limits: &Limits) -> Vec<(&'static str, String)> {
            vec![$((stringify!($name), limits.$name.written()),)*]
        }
    };
}

limits! {
    path_chars_max: usize,
    name_chars_max: usize,
    entity_count_max: usize,
    subscription_count_max: usize,
    rule_sql_count_max: usize,
    rule_correlation_count_max: usize,
    policy_count_max: usize,
    list_count_max: usize,
    lock_duration_min: TimeSpan,
    lock_duration_default: TimeSpan,
    lock_duration_max: TimeSpan,
    entity_megabytes_min: u64,
    entity_megabytes_default: u64,
    entity_megabytes_max: u64,
    duplicate_window_min: TimeSpan,
    duplicate_window_default: TimeSpan,
    duplicate_window_max: TimeSpan,
    duplicate_id_count_max: usize,
    session_state_count_max: usize,
    time_to_live_min: TimeSpan,
    time_to_live_max: TimeSpan,
    delivery_count_default: u32,
    delivery_count_max: u32,
    retry_delay_max: TimeSpan,
    auto_delete_on_idle_min: TimeSpan,
    user_metadata_chars_max: usize,
    message_bytes_default: u64,
    message_bytes_min: u64,
    message_bytes_max: u64,
    message_bytes_http_max: u64,
    batch_bytes_max: u64,
    header_bytes_max: u64,
    property_bytes_max: u64,
    message_id_chars_max: usize,
    dead_letter_reason_chars_max: usize,
    dead_letter_description_chars_max: usize,
    hop_count_max: u8,
    message_copy_count_max: u16,
    message_overlay_count_max: usize,
    filter_chars_max: usize,
    action_chars_max: usize,
    action_statement_count_max: usize,
    rule_property_count_max: usize,
    rule_bytes_max: u64,
    publish_copy_count_max: usize,
    publish_step_count_max: u64,
    transaction_message_count_max: usize,
    transaction_duration_max: TimeSpan,
    transaction_open_count_max: usize,
    transaction_operation_count_max: usize,
    transaction_step_count_max: usize,
    transaction_open_bytes_max: u64,
    atomic_bytes_max: u64,
    atomic_content_bytes_max: u64,
    batch_delete_count_max: usize,
    peek_count_max: usize,
    peek_bytes_max: u64,
    deferred_bytes_max: u64,
    receiver_count_max: usize,
    receive_wait_max: TimeSpan,
    receive_wait_http_max: TimeSpan,
    link_turn_count_max: usize,
    link_turn_bytes_max: u64,
    connection_count_max: usize,
    connection_inbound_bytes_max: u64,
    connection_inbound_count_max: usize,
    broker_inbound_bytes_max: u64,
    broker_inbound_count_max: usize,
    broker_outbound_bytes_max: u64,
    broker_message_count_max: usize,
    broker_subscription_count_max: usize,
    broker_rule_count_max: usize,
    broker_description_bytes_max: u64,
    broker_session_count_max: usize,
    broker_duplicate_id_count_max: usize,
    broker_delayed_count_max: usize,
    broker_judged_bytes_max: u64,
    broker_loaded_bytes_max: u64,
    send_wait_max: TimeSpan,
    forwarder_time_max: TimeSpan,
    forwarder_thread_count_max: usize,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_limit_can_be_set() {
        let fields = format!("{:#?}", Limits::default());
        let names: Vec<&str> = fields
            .lines()
            .filter_map(|line| line.strip_prefix("    "))
            .filter(|line| line.starts_with(|first: char| first.is_ascii_lowercase()))
            .filter_map(|line| line.split_once(": "))
            .map(|(name, _)| name)
            .filter(|name| *name != "tier")
            .collect();
        let listed: Vec<&str> = list(&Limits::default()).iter().map(|(name, _)| *name).collect();
        assert_eq!(listed, names);
    }
}

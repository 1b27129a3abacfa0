//! Scenarios that only some transports run; `faces.rs` has the reason for each.

/// Defines a test for each scenario and each transport except AMQP, which lacks the operation.
macro_rules! except_amqp {
    ($($topic:ident: $list:tt),* $(,)?) => {
        pub mod except_amqp {
            $(pub mod $topic {
                scenarios_of! { inproc, Inproc, $topic: $list }
                scenarios_of! { http, Http, $topic: $list }
                scenarios_of! { websocket, WebSocket, $topic: $list }
                scenarios_of! { websocket_json, WebSocketJson, $topic: $list }

                /// Transports and scenarios of this module.
                pub const LISTS: [(crate::subjects::Transport, &[&str]); 4] =
                    [inproc::LIST, http::LIST, websocket::LIST, websocket_json::LIST];
            })*

            /// The lists of all topics.
            pub const LISTS: &[[(crate::subjects::Transport, &[&str]); 4]] = &[$($topic::LISTS,)*];
        }
    };
}

except_amqp! {
    send: [many_sends_in_flight_are_each_answered_with_their_own_number],
    receive: [a_receive_for_no_message_is_refused],
    duplicate: [a_repeated_schedule_gives_the_number_of_the_message_still_scheduled],
    topics: [duplicates_are_dropped_at_the_topic_and_never_in_a_subscription],
}

scenarios_of! { inproc_handles, Inproc, handles: [
    dropping_a_receiver_releases_its_locks_and_counts,
    closing_a_receiver_keeps_its_locks_until_they_expire,
    dropped_receivers_take_a_message_to_the_dead_letter_queue,
    a_released_message_is_there_again_and_not_counted,
    a_dropped_receive_takes_nothing,
    a_dropped_receive_releases_its_locked_message,
    a_receiver_prefetches_nothing,
    waiting_receives_are_served_in_order_of_arrival,
    more_receives_at_once_than_allowed_are_refused with two_receivers,
    a_peek_without_number_continues_after_the_last,
    overlapped_sends_of_one_sender_are_numbered_in_their_order,
    operations_of_one_entity_are_applied_in_one_order,
] }

/// Defines tests of sessions for each transport that has sessions.
macro_rules! sessions {
    ($($module:ident: $transport:ident),* $(,)?) => {$(
        scenarios_of! { $module, $transport, sessions: [
            a_queue_that_requires_sessions_sends_and_receives_by_session_only,
            a_session_is_accepted_by_id_by_one_receiver,
            dead_letters_of_a_session_are_forwarded,
            the_next_session_has_the_oldest_message,
            waiting_accepts_are_served_in_order,
            a_dropped_accept_holds_nothing,
            work_under_a_session_lock_ends_with_it,
            an_abandoned_message_precedes_later_messages,
            a_delayed_message_blocks_its_session,
            later_messages_pass_a_delayed_one_if_configured,
            an_expired_session_lock_delays_unsettled_messages,
            only_an_orderly_close_leaves_the_count_unchanged,
            a_session_keeps_its_state_for_the_next_holder,
            sessions_are_listed_by_id,
            deferred_and_scheduled_messages_belong_to_their_session,
            one_expired_message_expires_its_whole_session,
            messages_of_a_session_expire_one_by_one_if_configured with one_by_one,
            sessions_outlive_a_restart_and_their_locks_do_not,
            requesters_share_a_queue_of_replies,
        ] }
    )*};
}

sessions! {
    inproc_sessions: Inproc,
    websocket_sessions: WebSocket,
    websocket_json_sessions: WebSocketJson,
    amqp_sessions: Amqp,
}

/// Defines tests that need a session held on a disabled entity, which detaches AMQP links.
macro_rules! held_sessions {
    ($($module:ident: $transport:ident),* $(,)?) => {$(
        scenarios_of! { $module, $transport, sessions:
            [session_operations_are_refused_without_sessions] }
    )*};
}

held_sessions! {
    inproc_held_sessions: Inproc,
    websocket_held_sessions: WebSocket,
    websocket_json_held_sessions: WebSocketJson,
}

scenarios_of! { inproc_delays, Inproc, retry: [a_handle_abandons_with_a_delay_alone_and_in_a_transaction] }
scenarios_of! { websocket_delays, WebSocket, retry: [a_handle_abandons_with_a_delay_alone_and_in_a_transaction] }
scenarios_of! { websocket_json_delays, WebSocketJson, retry:
[a_handle_abandons_with_a_delay_alone_and_in_a_transaction] }

scenarios_of! { inproc_consumers, Inproc, consumers: [a_subscription_is_consumed, a_session_is_a_stream] }
scenarios_of! { websocket_consumers, WebSocket, consumers: [a_subscription_is_consumed, a_session_is_a_stream] }
scenarios_of! { websocket_json_consumers, WebSocketJson, consumers: [a_subscription_is_consumed, a_session_is_a_stream] }

scenarios_of! { http_sessions, Http, sessions: [sessions_are_listed_by_id] }

/// Defines a test for each scenario of transactions and each transport that has transactions
/// (TXN-16).
macro_rules! transactions {
    ($($module:ident on $transport:ident),* : $list:tt) => {
        $(scenarios_of! { $module, $transport, transactions: $list })*
    };
}

transactions! {
    inproc_transactions on Inproc,
    websocket_transactions on WebSocket,
    websocket_json_transactions on WebSocketJson,
    amqp_transactions on Amqp: [
    nothing_of_a_transaction_shows_before_its_commit_and_all_of_it_after,
    after_a_rollback_nothing_was_sent_and_locks_are_held_with_the_same_tokens,
    every_settlement_a_schedule_and_a_renewal_can_be_part_of_a_transaction,
    scheduled_messages_are_cancelled_at_the_commit,
    a_transaction_times_out_two_minutes_after_its_first_operation,
    a_commit_with_one_failing_part_does_none,
    a_commit_fails_with_the_state_of_the_queue,
    a_transaction_covers_one_queue,
    messages_of_a_transaction_get_consecutive_numbers_at_its_commit,
    a_dead_letter_is_completed_and_its_copy_sent_as_one,
    a_restart_keeps_only_committed_transactions,
    a_connection_has_at_most_1000_open_transactions,
    the_delay_of_an_abandon_counts_from_the_commit,
    ids_are_checked_when_a_transaction_commits,
    a_lock_is_settled_once_in_a_transaction,
    a_message_due_before_the_commit_is_enqueued_by_it,
    a_basic_namespace_has_no_transactions with basic,
    a_full_store_refuses_only_commits_with_sends with small_store,
    a_topic_and_its_subscription_share_a_transaction,
    a_topic_and_its_subscription_do_all_or_nothing,
    a_dead_letter_of_a_subscription_is_published_again_as_one,
    a_restart_keeps_a_commit_over_topic_and_subscription,
    a_transaction_across_entities_settles_at_the_first_and_sends_to_others,
    the_first_entity_of_a_transaction_is_its_root,
    a_failed_transfer_does_not_undo_its_transaction,
    a_sender_through_the_queue_needs_no_cross_entity_transaction,
] }

transactions! {
    inproc_open_transactions on Inproc,
    websocket_open_transactions on WebSocket,
    websocket_json_open_transactions on WebSocketJson: [
    a_transaction_sends_at_most_100_messages_and_continues_without_the_next,
    a_failing_operation_is_refused_when_issued_with_its_own_error,
    the_quota_covers_all_messages_of_a_transaction,
    a_batch_of_one_is_reported_as_a_message,
    the_state_of_a_session_is_set_at_the_commit,
] }

scenarios_of! { inproc_transaction_handles, Inproc, transactions: [
    other_operations_cannot_be_part_of_a_transaction,
    a_dropped_transaction_is_rolled_back,
    messages_of_a_session_are_settled_in_a_transaction_while_it_is_held,
] }

/// Defines a test for each scenario of sends through a topic and each transport that sees their
/// results.
macro_rules! via {
    ($($module:ident on $transport:ident),* : $list:tt) => {
        $(scenarios_of! { $module, $transport, via: $list })*
    };
}

via! {
    inproc_via on Inproc,
    http_via on Http,
    websocket_via on WebSocket,
    websocket_json_via on WebSocketJson,
    amqp_via on Amqp: [
    a_message_can_be_sent_through_a_topic,
    a_failed_send_through_a_topic_stays_at_the_topic,
    the_transfer_dead_letter_queue_of_a_topic_is_like_others,
    failed_sends_have_one_place_at_a_topic with into_the_dead_letter_queue,
    a_receiver_waits_for_failed_sends,
    receivers_of_a_topic_are_counted_with_those_of_its_subscriptions with two_receivers,
    status_and_quota_of_a_topic_apply_to_sends_through_it with holding_when_full,
    sends_through_a_topic_and_its_failed_sends_are_uses with holding_when_full,
    sends_through_a_topic_survive_a_restart with holding_when_full,
] }

via! {
    inproc_via_transactions on Inproc,
    websocket_via_transactions on WebSocket,
    websocket_json_via_transactions on WebSocketJson,
    amqp_via_transactions on Amqp: [
    a_settlement_in_a_subscription_and_sends_to_others_are_one,
    a_failure_of_one_part_undoes_all,
    a_dead_letter_of_a_topic_is_completed_and_sent_again_as_one,
] }

scenarios_of! { http_requests, Http, requests: [
    a_receive_on_a_cut_connection_takes_nothing,
    rest_and_the_json_api_see_the_same_messages,
    the_rest_operations_lock_renew_unlock_complete_and_delete,
    properties_of_the_broker_are_ignored_on_send,
    a_list_is_no_property_value,
] }

//! Do all transports answer alike? One list of scenarios, many subjects (FND-05).
//!
//! Each pair of a transport and a scenario is a test of its own, named `transport::topic::scenario`.
//! It has a broker of its own, whose clock only the scenario moves. To add a rule, add a function
//! under `scenarios` and its name to the list below; to add a transport, implement
//! [`subject::Subject`] under `subjects`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a scenario that meets what it does not expect ends there"
)]

mod faces;
mod matrix;
mod scenarios;
mod stage;
mod subject;
mod subjects;
#[path = "../support/mod.rs"]
mod support;

/// Makes one test of each transport and scenario; `with` names the broker that a scenario needs.
macro_rules! scenarios {
    ($($topic:ident: [$($scenario:ident $(with $setup:ident)?),* $(,)?]),* $(,)?) => {
        /// The scenarios that run over every transport.
        const EVERYWHERE: &[&str] =
            &[$($(concat!(stringify!($topic), "::", stringify!($scenario)),)*)*];

        mod inproc {
            $(mod $topic {
                $(#[test]
                fn $scenario() {
                    scenarios!(@run Inproc, $topic, $scenario $(, $setup)?);
                })*
            })*
        }
        mod http {
            $(mod $topic {
                $(#[test]
                fn $scenario() {
                    scenarios!(@run Http, $topic, $scenario $(, $setup)?);
                })*
            })*
        }
        mod websocket {
            $(mod $topic {
                $(#[test]
                fn $scenario() {
                    scenarios!(@run WebSocket, $topic, $scenario $(, $setup)?);
                })*
            })*
        }
        mod websocket_json {
            $(mod $topic {
                $(#[test]
                fn $scenario() {
                    scenarios!(@run WebSocketJson, $topic, $scenario $(, $setup)?);
                })*
            })*
        }
        mod amqp {
            $(mod $topic {
                $(#[test]
                fn $scenario() {
                    scenarios!(@run Amqp, $topic, $scenario $(, $setup)?);
                })*
            })*
        }
    };
    (@run $transport:ident, $topic:ident, $scenario:ident) => {
        crate::stage::run(
            concat!(stringify!($topic), "::", stringify!($scenario)),
            crate::subjects::Transport::$transport,
            crate::scenarios::$topic::$scenario,
        )
    };
    (@run $transport:ident, $topic:ident, $scenario:ident, $setup:ident) => {
        crate::stage::run_with(
            concat!(stringify!($topic), "::", stringify!($scenario)),
            crate::subjects::Transport::$transport,
            crate::scenarios::$topic::$setup(),
            crate::scenarios::$topic::$scenario,
        )
    };
}

scenarios! {
    send: [
        a_message_waits_for_a_receiver_that_comes_later,
        a_message_may_be_as_large_as_the_queue_allows_and_no_byte_larger,
        the_first_failing_check_decides_the_error,
        a_batch_may_have_a_mebibyte_in_all,
        a_send_is_answered_when_its_message_is_stored_with_its_number,
        a_rejected_send_carries_condition_text_and_a_tracking_id_of_its_own,
        a_rejected_send_takes_no_number_and_stores_nothing,
        a_property_may_have_32_kib_and_a_header_64_kib,
        a_full_queue_refuses_sends_until_there_is_room_and_all_else_goes_on,
        nobody_sends_to_a_dead_letter_queue,
        a_batch_is_stored_whole_with_consecutive_numbers_or_not_at_all,
        an_empty_batch_succeeds_and_stores_nothing,
        messages_of_one_sender_keep_their_order,
    ],
    message_properties: [
        a_body_is_any_bytes_and_may_be_empty,
        what_a_message_says_of_itself_is_not_interpreted,
        every_property_of_the_sender_is_there_on_peek_and_on_receive,
        a_session_id_has_no_effect_on_a_queue_without_sessions,
        ids_and_keys_have_at_most_128_characters,
        id_and_number_stay_over_redelivery_deferral_and_dead_lettering,
        the_broker_gives_an_id_to_a_message_without_one,
        session_id_and_partition_key_must_agree,
        a_sender_may_use_the_names_of_dead_letter_properties,
        each_queue_numbers_its_messages_from_1,
        numbers_have_63_bits,
        a_message_that_was_never_transferred_has_no_original_number,
        the_enqueued_time_is_that_of_the_clock_of_the_broker,
        only_a_message_under_lock_has_a_token,
        application_properties_keep_their_exact_types,
        keys_of_properties_are_told_apart_byte_by_byte_and_not_empty,
        the_size_of_a_message_is_that_of_its_canonical_encoding,
        messages_cross_from_each_transport_to_each_other,
    ],
    receive: [
        receive_and_delete_removes_a_message_when_it_is_delivered,
        a_locked_message_is_kept_from_others_for_the_lock_duration,
        the_lock_of_a_waiting_receive_starts_when_its_message_comes,
        receive_and_delete_shows_the_stored_count_and_does_not_raise_it,
        both_modes_work_on_a_dead_letter_queue,
        a_receive_without_wait_answers_at_once,
        a_waiting_receive_ends_empty_at_its_time_and_not_before,
        a_waiting_receive_takes_the_first_message_and_waits_for_no_more,
        a_receive_for_many_takes_all_there_are_up_to_its_number,
        ten_abandons_take_a_message_to_the_dead_letter_queue,
        a_message_is_given_to_one_of_the_competing_receivers,
        a_message_that_comes_back_takes_its_old_place,
        a_message_whose_lock_ran_out_takes_its_old_place,
        a_receive_returns_neither_deferred_scheduled_locked_nor_expired_messages,
    ],
    settle: [
        complete_removes_the_message,
        abandon_makes_the_message_available_again_at_once,
        a_message_that_nobody_settles_comes_back_when_its_lock_ends,
        a_dead_lettered_message_is_in_the_dead_letter_queue_only,
        dead_letter_tells_reason_description_and_properties,
        defer_sets_the_message_aside_for_receive_by_number,
        settlements_set_application_properties_and_nothing_else,
        properties_that_make_the_header_too_large_are_refused_and_the_lock_stays,
        reason_and_description_have_at_most_4096_characters,
        a_token_settles_once_and_never_a_later_delivery,
        nothing_can_be_done_with_a_lock_that_has_ended,
        a_token_that_nobody_got_is_refused,
        a_token_of_the_queue_is_none_of_its_dead_letter_queue,
        of_a_batch_of_tokens_each_is_completed_or_named,
        every_settlement_succeeds_on_a_message_that_expired_while_locked,
    ],
    lock: [
        renew_sets_the_end_to_now_plus_the_lock_duration_as_often_as_wanted,
        a_renewed_lock_ends_at_its_new_end,
        every_delivery_has_a_token_of_its_own,
        each_queue_and_each_subscription_has_a_lock_duration_of_its_own,
        whoever_has_the_token_may_settle_and_renew,
        a_lock_outlives_the_client_that_took_it,
        a_changed_lock_duration_is_for_locks_taken_or_renewed_afterwards,
        all_locks_of_one_instant_end_together,
    ],
    delivery_count: [
        the_count_rises_with_each_failed_delivery,
        defer_renew_peek_and_dead_letter_do_not_count,
        the_last_lock_that_ends_moves_the_message_without_any_receiver,
        with_a_maximum_of_1_the_first_failure_is_the_last,
        a_very_large_maximum_practically_disables_the_rule,
        in_a_dead_letter_queue_the_count_has_no_limit,
        the_count_is_kept_when_the_message_is_dead_lettered,
        a_lowered_maximum_applies_at_the_next_failure,
    ],
    expire: [
        a_message_expires_its_time_to_live_after_it_was_enqueued,
        without_any_setting_a_message_never_expires,
        the_default_of_the_queue_applies_to_messages_without_time_to_live,
        the_default_of_the_queue_is_a_ceiling_too,
        any_positive_time_to_live_is_legal_and_zero_is_not,
        a_long_time_to_live_is_kept_exactly,
        a_changed_default_applies_to_stored_messages_without_time_to_live,
        a_raised_default_saves_messages_not_yet_removed,
        a_message_is_expired_at_its_instant_and_not_before,
        the_time_to_live_of_a_scheduled_message_starts_when_it_is_enqueued,
        a_scheduled_message_does_not_expire,
        with_the_switch_off_expired_messages_are_dropped_by_the_receive_that_finds_them,
        with_the_switch_on_expired_messages_are_dead_lettered_with_their_reason,
        expiry_does_not_touch_a_locked_message_that_is_renewed,
        an_expired_message_is_not_redelivered_when_it_is_abandoned,
        an_expired_message_is_not_redelivered_when_its_lock_ends,
        expiry_wins_over_the_delivery_count,
        without_a_receiver_expired_messages_stay_visible,
        while_a_receiver_waits_messages_are_dead_lettered_as_they_expire,
        a_batch_with_new_messages_holds_no_expired_ones,
        an_expired_deferred_message_is_seen_but_not_received_and_can_be_deleted,
        a_deferred_message_that_expires_in_hand_goes_back_to_deferred,
        messages_of_a_dead_letter_queue_never_expire,
        an_empty_answer_comes_after_the_moves_it_triggered,
        jobs_not_handled_in_time_are_put_into_another_queue,
    ],
    schedule: [
        a_scheduled_message_is_received_from_its_instant_on,
        a_materialised_message_is_appended_with_a_new_number_and_enqueued_time,
        a_cancelled_message_is_never_delivered,
        a_cancel_of_many_is_all_or_nothing,
        a_materialised_message_cannot_be_cancelled,
        a_message_scheduled_for_now_or_earlier_is_enqueued_at_once,
        messages_materialise_by_instant_then_by_number_without_a_receiver,
        a_waiting_receive_gets_a_message_when_it_materialises,
        scheduled_messages_are_counted_apart_and_in_the_size,
        a_scheduled_message_is_enqueued_once,
    ],
    retry: [
        an_abandoned_message_comes_again_after_its_delay_at_its_place,
        a_delayed_message_is_counted_twice_and_shown_as_delayed,
        a_delay_is_of_0_to_7_days,
        a_waiting_receive_gets_a_message_when_it_is_due,
        the_last_allowed_attempt_dead_letters_at_once,
        a_restart_keeps_count_and_instant,
        a_delayed_message_expires_like_an_available_one,
        a_deferred_message_takes_no_delay,
        only_an_abandon_takes_a_delay,
        delayed_messages_can_be_deleted,
        a_policy_delays_each_failure_until_it_is_taken_away,
        a_policy_out_of_range_is_refused,
        a_policy_does_not_hold_in_a_dead_letter_queue,
        a_delayed_message_is_forwarded_when_it_is_due,
        a_delayed_dead_letter_is_forwarded_when_it_is_due,
        a_delay_does_not_keep_a_queue_from_being_idle,
        a_lock_that_is_lost_with_the_broker_delays_nothing,
    ],
    defer: [
        deferred_messages_are_received_by_number_and_locked,
        a_receive_by_numbers_is_all_or_nothing,
        a_deferred_message_in_hand_can_be_settled_in_every_way,
        on_abandon_and_lock_end_a_message_is_deferred_as_before_and_counted,
        deferral_keeps_number_and_expiry,
        a_deferred_message_is_found_by_peek,
        deferral_works_in_a_dead_letter_queue,
        deferred_messages_are_kept_and_count_in_total_and_size,
    ],
    peek: [
        peek_shows_messages_by_number_without_changing_them,
        peek_shows_messages_in_every_state_but_not_those_of_other_sub_queues,
        one_peek_shows_at_most_250_messages,
        one_peek_shows_at_most_a_mebibyte_but_always_one_message,
        a_peek_for_no_message_is_refused,
    ],
    dead_letter: [
        the_dead_letter_queues_are_there_with_the_queue,
        the_helpers_of_the_client_crates_name_the_dead_letter_queues,
        a_dead_letter_queue_is_not_managed_apart_from_its_queue,
        a_message_cannot_be_dead_lettered_again_and_stays_locked,
        a_dead_letter_queue_delivers_under_lock_like_a_queue,
        nothing_leaves_a_dead_letter_queue_by_itself,
        dead_letters_count_toward_the_size_of_the_queue,
        dead_lettering_keeps_what_the_message_had,
        too_many_deliveries_are_told_with_their_number,
        the_broker_overwrites_the_two_properties_when_it_moves_a_message,
        a_dead_letter_without_reason_leaves_the_two_properties_alone,
        the_number_of_dead_letters_is_reported,
        a_forwarded_dead_letter_says_where_it_was_dead_lettered,
    ],
    duplicate: [
        a_repeated_id_is_accepted_and_dropped,
        the_window_runs_from_the_first_acceptance_and_is_not_extended,
        the_window_can_be_changed_afterwards,
        scheduled_and_other_messages_share_the_record,
        an_id_is_remembered_when_its_message_is_gone,
        of_two_messages_with_one_id_in_a_batch_the_first_is_kept,
        the_ids_of_a_rejected_batch_are_not_remembered,
        without_the_switch_nothing_is_dropped,
        a_message_without_id_is_never_a_duplicate,
        a_full_history_refuses_new_ids with small_history,
    ],
    entity: [
        a_queue_with_only_a_name_has_exactly_the_defaults,
        a_basic_namespace_lacks_features_and_bounds_the_time_to_live with basic,
        what_is_given_at_creation_is_what_the_description_tells,
        values_are_taken_at_their_bounds_and_refused_beyond,
        a_path_is_taken_once_and_absent_ones_are_not_found,
        a_deleted_queue_takes_everything_with_it,
        a_waiting_receive_is_told_when_its_queue_is_deleted,
        what_is_fixed_at_creation_cannot_be_changed,
        an_update_keeps_what_it_leaves_out_but_for_the_user_metadata,
        an_update_of_a_version_that_is_no_more_is_a_conflict,
        a_lowered_size_removes_nothing_but_blocks_sends,
        queues_are_listed_in_order_of_name_in_pages,
        there_are_as_many_queues_as_allowed with three_queues,
    ],
    path: [
        paths_ignore_case_and_keep_that_of_their_creation,
        a_path_has_at_most_260_characters,
        names_with_foreign_characters_and_of_the_system_are_refused,
        a_path_that_names_nothing_is_not_found,
    ],
    status: [
        each_status_blocks_sends_or_receives_or_both_and_keeps_the_messages,
        work_in_hand_can_be_finished_and_looked_at_in_every_status,
        schedules_and_time_to_live_run_in_every_status,
        locks_end_in_every_status,
        a_status_of_the_system_cannot_be_set,
        the_status_applies_to_the_dead_letter_queue_too,
        a_waiting_receive_is_refused_when_receiving_is_disabled,
    ],
    counts: [
        every_state_is_counted_where_it_belongs,
        counts_are_exact_after_every_step,
        the_size_is_the_sum_of_the_stored_sizes,
        the_highest_number_tells_what_has_come_in,
        a_description_tells_when_it_was_created_updated_and_used,
        rejected_operations_change_no_count,
    ],
    delete: [
        batch_delete_removes_the_lowest_numbers_first_up_to_its_limit,
        batch_delete_works_on_a_dead_letter_queue_and_leaves_no_trace,
        batch_delete_takes_1_to_4000,
        batch_delete_spares_what_was_enqueued_at_its_instant_or_later,
        batch_delete_skips_locked_scheduled_and_deferred_messages,
        purge_removes_all_there_was_and_tells_how_many,
        an_operator_removes_deferred_messages_by_number_and_no_others,
    ],
    idle: [
        a_queue_that_nobody_uses_is_deleted_with_its_messages,
        a_queue_without_the_property_is_never_deleted,
        each_use_of_a_queue_ends_its_idleness,
        watching_and_rejected_operations_are_no_use,
        a_queue_with_scheduled_messages_is_not_idle,
        the_time_starts_when_the_last_scheduled_message_is_cancelled,
        a_queue_is_not_idle_while_a_receive_waits,
        a_reply_queue_goes_after_the_server_that_waited_at_it,
        an_update_can_make_a_queue_temporary_and_lasting_again,
        the_namespace_has_a_default_for_queues_that_give_none with temporary_by_default,
    ],
    errors: [
        a_full_store_refuses_sends_and_nothing_else with small_store,
        every_error_has_its_name_its_mark_and_a_tracking_id,
    ],
    topics: [
        a_published_message_is_in_every_subscription_when_it_is_acknowledged,
        rules_without_action_give_one_copy_and_each_action_one_more,
        a_schedule_that_an_action_sets_has_no_effect_in_the_subscription,
        a_message_that_nobody_selects_is_accepted_and_dropped,
        rules_are_created_listed_replaced_and_deleted_by_name,
        a_subscription_with_an_invalid_rule_is_not_created,
        initial_rules_replace_the_default_one,
        the_quota_of_a_topic_counts_every_copy,
        a_scheduled_message_meets_the_rules_of_its_instant,
        a_copy_without_session_goes_to_the_dead_letter_queue,
        a_rule_that_fails_makes_a_dead_letter_if_the_switch_is_on,
        a_copy_whose_header_grows_too_large_goes_to_the_dead_letter_queue,
        the_lowest_time_to_live_counts,
        statuses_block_what_they_say,
        topics_and_subscriptions_are_what_their_paths_say,
        a_deleted_topic_takes_its_subscriptions_along,
        idle_subscriptions_go_alone_and_idle_topics_with_all,
        each_use_of_a_subscription_ends_its_idleness,
        each_use_of_a_topic_ends_its_idleness,
        a_topic_has_so_many_subscriptions_rules_and_receivers with few,
        rules_explain_what_they_make_of_a_message,
        a_catch_all_gets_what_no_other_subscription_selects,
        a_batch_is_published_whole_and_in_order,
        a_topic_outlives_a_restart_with_all_it_has,
        rules_never_see_the_body,
        a_subscription_retries_as_its_policy_says,
    ],
    forwarding: [
        messages_go_to_the_destination_in_their_order,
        a_destination_must_be_there_and_be_another,
        messages_that_are_there_are_forwarded_too,
        a_message_leaves_when_its_lock_has_ended,
        an_expired_message_is_not_forwarded,
        the_time_to_live_counts_anew_at_the_destination,
        a_source_is_not_received_from,
        a_source_is_never_idle_and_a_transfer_is_a_use,
        a_source_has_an_active_receiver,
        a_message_makes_four_hops_and_no_fifth,
        a_circle_ends_by_the_hop_limit,
        what_a_destination_does_not_take_is_dead_lettered_at_the_source,
        a_full_destination_and_a_small_one_dead_letter_at_the_source,
        failures_can_go_to_the_dead_letter_queue with into_the_dead_letter_queue,
        a_duplicate_is_a_successful_transfer,
        a_message_without_id_is_no_duplicate_after_a_transfer,
        a_message_without_session_is_dead_lettered_at_a_session_queue,
        a_source_that_gives_no_receives_forwards_nothing,
        dead_letters_are_forwarded_with_their_reason,
        a_forwarded_dead_letter_queue_is_not_received_from,
        a_dead_letter_waits_for_its_destination,
        a_dead_letter_that_may_not_hop_can_be_received,
        forwarding_goes_on_after_a_restart,
        a_backlog_arrives_in_its_order,
        a_topic_is_a_destination_and_its_subscriptions_are_sources,
        rules_see_what_was_set_on_a_forwarded_dead_letter,
        rules_see_where_a_forwarded_message_comes_from,
        a_circle_over_a_topic_ends_at_its_subscription,
        a_disabled_topic_dead_letters_at_the_source,
        forwarding_takes_no_time,
        dead_letter_source_names_where_it_was_dead_lettered,
        a_full_destination_can_hold_messages_up with that_holds,
        a_message_can_be_sent_by_way_of_a_queue,
        what_cannot_be_sent_on_is_dead_lettered_on_the_way,
        a_message_on_its_way_outlives_a_restart with that_holds,
        what_waits_to_be_forwarded_can_be_deleted,
        a_header_that_grows_too_large_is_dead_lettered_where_it_arrives,
    ],
    restart: [
        after_a_restart_every_message_is_where_it_was_and_no_lock_is_held,
        what_was_due_during_the_downtime_materialises_after_it,
        duplicates_are_dropped_after_a_restart_too,
        downtime_counts_as_idle_but_there_is_a_grace_after_the_start,
        a_time_to_live_runs_on_during_the_downtime,
    ],
}

/// Makes tests of what one transport has, or some.
macro_rules! scenarios_of {
    ($module:ident, $transport:ident, $topic:ident:
        [$($scenario:ident $(with $setup:ident)?),* $(,)?]) => {
        mod $module {
            /// Which scenarios run here, and over which transport.
            pub const LIST: (crate::subjects::Transport, &[&str]) = (
                crate::subjects::Transport::$transport,
                &[$(concat!(stringify!($topic), "::", stringify!($scenario)),)*],
            );

            $(#[test]
            fn $scenario() {
                scenarios!(@run $transport, $topic, $scenario $(, $setup)?);
            })*
        }
    };
}

/// Makes a test of each scenario and each transport but AMQP, which has no words for it.
macro_rules! beside_amqp {
    ($($topic:ident: $list:tt),* $(,)?) => {
        mod beside_amqp {
            $(pub mod $topic {
                scenarios_of! { inproc, Inproc, $topic: $list }
                scenarios_of! { http, Http, $topic: $list }
                scenarios_of! { websocket, WebSocket, $topic: $list }
                scenarios_of! { websocket_json, WebSocketJson, $topic: $list }

                /// Which scenarios run here, and over which transport.
                pub const LISTS: [(crate::subjects::Transport, &[&str]); 4] =
                    [inproc::LIST, http::LIST, websocket::LIST, websocket_json::LIST];
            })*

            /// Those of each topic.
            pub const LISTS: &[[(crate::subjects::Transport, &[&str]); 4]] = &[$($topic::LISTS,)*];
        }
    };
}

beside_amqp! {
    send: [many_sends_in_flight_are_each_answered_with_their_own_number],
    receive: [a_receive_for_no_message_is_refused],
    duplicate: [a_repeated_schedule_gives_the_number_of_the_message_still_scheduled],
    topics: [duplicates_are_dropped_at_the_topic_and_never_in_a_subscription],
}

scenarios_of! { inproc_handles, Inproc, handles: [
    dropping_a_receiver_releases_its_locks_and_counts,
    closing_a_receiver_keeps_its_locks_until_they_run_out,
    dropped_receivers_take_a_message_to_the_dead_letter_queue,
    a_released_message_is_there_again_and_not_counted,
    a_receive_that_is_dropped_takes_nothing,
    a_receive_that_is_dropped_gives_back_what_was_locked_for_it,
    a_receiver_takes_nothing_ahead,
    waiting_receives_are_served_in_order_of_arrival,
    more_receives_at_once_than_allowed_are_refused with two_receivers,
    a_peek_without_number_goes_on_after_the_last,
    overlapped_sends_of_one_sender_are_numbered_in_their_order,
    operations_of_one_entity_are_applied_in_one_order,
] }

/// Makes tests of sessions for each transport that has them.
macro_rules! sessions {
    ($($module:ident: $transport:ident),* $(,)?) => {$(
        scenarios_of! { $module, $transport, sessions: [
            a_queue_that_requires_sessions_gives_and_takes_by_session_only,
            a_session_is_accepted_by_id_by_one_receiver,
            dead_letters_of_a_session_are_forwarded,
            the_next_session_is_that_of_the_oldest_message,
            waiting_accepts_are_served_in_order,
            an_accept_that_is_dropped_holds_nothing,
            what_is_done_through_a_session_lock_ends_with_it,
            an_abandoned_message_comes_before_those_behind_it,
            a_delayed_message_holds_up_its_session,
            those_behind_pass_a_delayed_message_if_set_so,
            a_session_lock_that_runs_out_delays_what_was_in_hand,
            only_an_orderly_close_leaves_the_count_alone,
            a_session_keeps_its_state_for_the_next_holder,
            sessions_are_listed_by_id,
            what_is_set_aside_belongs_to_its_session,
            one_expired_message_expires_its_whole_session,
            messages_of_a_session_expire_one_by_one_if_set_so with one_by_one,
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

/// Makes a test of what holders of sessions see that a link to a disabled entity does not outlive.
macro_rules! held_sessions {
    ($($module:ident: $transport:ident),* $(,)?) => {$(
        scenarios_of! { $module, $transport, sessions:
            [operations_of_sessions_are_refused_where_there_are_none] }
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

scenarios_of! { http_sessions, Http, sessions: [sessions_are_listed_by_id] }

/// Makes a test of each scenario of transactions and each transport that has them (TXN-16).
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
    every_settlement_a_schedule_and_a_renewal_can_be_part_of_one,
    a_transaction_times_out_two_minutes_after_its_first_operation,
    a_commit_that_cannot_do_one_part_does_none,
    a_commit_fails_with_the_state_of_the_queue,
    a_transaction_covers_one_queue,
    messages_of_a_transaction_get_consecutive_numbers_at_its_commit,
    a_dead_letter_is_completed_and_its_copy_sent_as_one,
    a_restart_keeps_what_was_committed_and_nothing_else,
    a_connection_has_at_most_1000_open_transactions,
    the_delay_of_an_abandon_counts_from_the_commit,
    ids_are_looked_at_when_a_transaction_commits,
    a_lock_is_settled_once_in_a_transaction,
    a_message_whose_instant_passes_before_the_commit_is_enqueued_by_it,
    a_basic_namespace_has_no_transactions with basic,
    a_full_store_refuses_commits_that_send_and_no_others with small_store,
    a_topic_with_one_of_its_subscriptions_is_one,
    a_topic_and_its_subscription_do_all_or_nothing,
    a_dead_letter_of_a_subscription_is_published_again_as_one,
    a_restart_keeps_a_commit_over_topic_and_subscription,
    a_transaction_across_entities_settles_at_the_first_and_sends_to_others,
    the_first_entity_of_a_transaction_is_the_one_that_others_are_reached_by,
    a_transfer_that_fails_does_not_undo_its_transaction,
    a_sender_by_way_of_the_queue_needs_no_transaction_across_entities,
] }

transactions! {
    inproc_open_transactions on Inproc,
    websocket_open_transactions on WebSocket,
    websocket_json_open_transactions on WebSocketJson: [
    a_transaction_sends_at_most_100_messages_and_goes_on_without_the_next,
    an_operation_that_would_fail_is_refused_at_once_with_its_own_error,
    the_quota_is_that_of_all_messages_together,
    a_batch_of_one_is_told_as_a_message,
] }

scenarios_of! { inproc_transaction_handles, Inproc, transactions: [
    nothing_else_can_be_part_of_one,
    a_dropped_transaction_is_rolled_back,
    messages_of_a_session_are_settled_in_a_transaction_while_it_is_held,
] }

/// Makes a test of each scenario of sends by way of a topic, and each transport that sees what becomes of
/// them.
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
    a_message_can_be_sent_by_way_of_a_topic,
    what_cannot_be_sent_on_rests_at_the_topic,
    the_transfer_dead_letter_queue_of_a_topic_is_one_like_others,
    what_cannot_be_sent_on_has_one_place_at_a_topic with into_the_dead_letter_queue,
    a_receiver_waits_for_what_cannot_be_sent_on,
    receivers_of_a_topic_are_counted_with_those_of_its_subscriptions with two_receivers,
    status_and_quota_of_a_topic_are_those_of_sends_by_way_of_it with that_holds,
    sends_by_way_of_a_topic_and_what_rests_there_are_uses_of_it with that_holds,
    what_is_sent_by_way_of_a_topic_outlives_a_restart with that_holds,
] }

via! {
    inproc_via_transactions on Inproc,
    websocket_via_transactions on WebSocket,
    websocket_json_via_transactions on WebSocketJson,
    amqp_via_transactions on Amqp: [
    a_settlement_in_a_subscription_and_sends_to_others_are_one,
    what_one_of_them_cannot_do_none_does,
    a_dead_letter_of_a_topic_is_completed_and_sent_anew_as_one,
] }

scenarios_of! { http_requests, Http, requests: [
    a_receive_whose_connection_is_cut_takes_nothing,
    rest_and_the_json_api_see_the_same_messages,
    the_rest_operations_lock_renew_unlock_complete_and_delete,
    properties_of_the_broker_are_ignored_on_send,
    a_list_is_no_property_value,
] }

/// One test of each transport and column of the operation matrix; in transactions where a transport has
/// them (TXN-16).
macro_rules! matrix {
    ($($name:ident: $place:ident),* $(,)?) => {
        matrix!(@over operations_inproc Inproc column, $($name: $place),*);
        matrix!(@over operations_http Http column, $($name: $place),*);
        matrix!(@over operations_websocket WebSocket column, $($name: $place),*);
        matrix!(@over operations_websocket_json WebSocketJson column, $($name: $place),*);
        matrix!(@over operations_amqp Amqp column, $($name: $place),*);
        matrix!(@over in_transactions_inproc Inproc transactions::column, $($name: $place),*);
        matrix!(@over in_transactions_websocket WebSocket transactions::column, $($name: $place),*);
        matrix!(@over in_transactions_json WebSocketJson transactions::column, $($name: $place),*);
        matrix!(@over in_transactions_amqp Amqp transactions::column, $($name: $place),*);
    };
    (@over $module:ident $transport:ident $($judge:ident)::+, $($name:ident: $place:ident),*) => {
        mod $module {
            use crate::matrix::Place;
            use crate::matrix::$($judge)::+ as judge;
            use crate::subjects::Transport::$transport;

            $(#[test]
            fn $name() {
                judge($transport, Place::$place);
            })*
        }
    };
}

matrix! {
    on_a_queue: Queue,
    on_a_dead_letter_queue: DeadLetterQueue,
    on_a_transfer_dead_letter_queue: TransferDeadLetterQueue,
    on_an_absent_queue: Absent,
    on_the_dead_letter_queue_of_an_absent_queue: DeadLetterQueueOfAbsent,
    on_a_disabled_queue: Disabled,
    on_a_queue_that_takes_no_sends: SendDisabled,
    on_a_queue_that_gives_no_receives: ReceiveDisabled,
    on_the_dead_letter_queue_of_a_disabled_queue: DeadLetterQueueOfDisabled,
    on_the_dead_letter_queue_of_one_that_takes_no_sends: DeadLetterQueueOfSendDisabled,
    on_the_dead_letter_queue_of_one_that_gives_no_receives: DeadLetterQueueOfReceiveDisabled,
}

/// The same for topics and subscriptions.
macro_rules! matrix_of_topics {
    ($($name:ident: $place:ident),* $(,)?) => {
        matrix_of_topics!(@over topics_inproc Inproc, $($name: $place),*);
        matrix_of_topics!(@over topics_http Http, $($name: $place),*);
        matrix_of_topics!(@over topics_websocket WebSocket, $($name: $place),*);
        matrix_of_topics!(@over topics_websocket_json WebSocketJson, $($name: $place),*);
        matrix_of_topics!(@over topics_amqp Amqp, $($name: $place),*);
        matrix_of_topics!(@in topics_in_transactions_inproc Inproc, $($name: $place),*);
        matrix_of_topics!(@in topics_in_transactions_websocket WebSocket, $($name: $place),*);
        matrix_of_topics!(@in topics_in_transactions_json WebSocketJson, $($name: $place),*);
        matrix_of_topics!(@in topics_in_transactions_amqp Amqp, $($name: $place),*);
    };
    (@in $module:ident $transport:ident, $($name:ident: $place:ident),*) => {
        mod $module {
            use crate::matrix::topics::Place;
            use crate::matrix::transactions::column_of_topics;
            use crate::subjects::Transport::$transport;

            $(#[test]
            fn $name() {
                column_of_topics($transport, Place::$place);
            })*
        }
    };
    (@over $module:ident $transport:ident, $($name:ident: $place:ident),*) => {
        mod $module {
            use crate::matrix::kinds::columns;
            use crate::matrix::topics::{Place, column, rules_of_a_queue};
            use crate::subjects::Transport::$transport;

            $(#[test]
            fn $name() {
                column($transport, Place::$place);
            })*

            #[test]
            fn on_entities_with_sessions_and_on_one_that_forwards() {
                columns($transport);
            }

            #[test]
            fn a_queue_has_no_rules() {
                rules_of_a_queue($transport);
            }
        }
    };
}

matrix_of_topics! {
    on_a_topic: Topic,
    on_a_disabled_topic: DisabledTopic,
    on_a_topic_that_takes_no_sends: SendDisabledTopic,
    on_a_subscription: Subscription,
    on_a_disabled_subscription: DisabledSubscription,
    on_a_subscription_that_gives_no_receives: ReceiveDisabledSubscription,
    on_a_subscription_of_a_disabled_topic: SubscriptionOfDisabledTopic,
    on_the_dead_letter_queue_of_a_subscription: DeadLetterQueue,
    on_the_transfer_dead_letter_queue_of_a_subscription: TransferDeadLetterQueue,
    on_the_dead_letter_queue_of_a_disabled_subscription: DeadLetterQueueOfDisabled,
    on_the_transfer_dead_letter_queue_of_a_topic: TransferDeadLetterQueueOfTopic,
    on_the_transfer_dead_letter_queue_of_a_disabled_topic: TransferDeadLetterQueueOfDisabledTopic,
    on_the_transfer_dead_letter_queue_of_a_topic_that_takes_no_sends: TransferDeadLetterQueueOfSendDisabledTopic,
    on_an_absent_subscription: Absent,
    on_a_subscription_of_an_absent_topic: AbsentOfAbsent,
}

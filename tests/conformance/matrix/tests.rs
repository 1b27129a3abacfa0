//! The tests of the operation matrix.

use crate::subjects::Transport;

/// Defines one test for each transport and column of the operation matrix, and in transactions for
/// transports that have them (TXN-16).
macro_rules! matrix {
    ($($name:ident: $place:ident),* $(,)?) => {
        matrix!(@over operations_inproc Inproc QUEUES column, $($name: $place),*);
        matrix!(@over operations_http Http QUEUES column, $($name: $place),*);
        matrix!(@over operations_websocket WebSocket QUEUES column, $($name: $place),*);
        matrix!(@over operations_websocket_json WebSocketJson QUEUES column, $($name: $place),*);
        matrix!(@over operations_amqp Amqp QUEUES column, $($name: $place),*);
        matrix!(@over in_transactions_inproc Inproc IN_TRANSACTIONS transactions::column,
            $($name: $place),*);
        matrix!(@over in_transactions_websocket WebSocket IN_TRANSACTIONS transactions::column,
            $($name: $place),*);
        matrix!(@over in_transactions_json WebSocketJson IN_TRANSACTIONS transactions::column,
            $($name: $place),*);
        matrix!(@over in_transactions_amqp Amqp IN_TRANSACTIONS transactions::column,
            $($name: $place),*);
    };
    (@over $module:ident $transport:ident $part:ident $($judge:ident)::+,
        $($name:ident: $place:ident),*) => {
        mod $module {
            use crate::matrix::$($judge)::+ as judge;
            use crate::matrix::{$part, Place};
            use crate::subjects::Transport::{self, $transport};

            pub const LIST: (Transport, &[&str]) = ($transport, &[$part]);

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

/// Defines the same tests for topics and subscriptions.
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
            use crate::matrix::IN_TRANSACTIONS;
            use crate::matrix::topics::Place;
            use crate::matrix::transactions::column_of_topics;
            use crate::subjects::Transport::{self, $transport};

            pub const LIST: (Transport, &[&str]) = ($transport, &[IN_TRANSACTIONS]);

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
            use crate::matrix::{KINDS, TOPICS, TRANSFER_DEAD_LETTERS_OF_TOPICS};
            use crate::subjects::Transport::{self, $transport};

            pub const LIST: (Transport, &[&str]) =
                ($transport, &[TOPICS, TRANSFER_DEAD_LETTERS_OF_TOPICS, KINDS]);

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

/// Tested parts of the matrix and their transports.
pub const LISTS: &[(Transport, &[&str])] = &[
    operations_inproc::LIST,
    operations_http::LIST,
    operations_websocket::LIST,
    operations_websocket_json::LIST,
    operations_amqp::LIST,
    in_transactions_inproc::LIST,
    in_transactions_websocket::LIST,
    in_transactions_json::LIST,
    in_transactions_amqp::LIST,
    topics_inproc::LIST,
    topics_http::LIST,
    topics_websocket::LIST,
    topics_websocket_json::LIST,
    topics_amqp::LIST,
    topics_in_transactions_inproc::LIST,
    topics_in_transactions_websocket::LIST,
    topics_in_transactions_json::LIST,
    topics_in_transactions_amqp::LIST,
];

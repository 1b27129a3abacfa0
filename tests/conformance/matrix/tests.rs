//! The tests of the operation matrix.

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

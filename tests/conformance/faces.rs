//! The transports of each scenario, and its operations in this process.
//!
//! A scenario runs over every transport and uses only that transport, except for the scenarios that
//! this list names with their reasons. A run that deviates from the list fails, and so does a
//! scenario that lacks a transport without an entry here. The same applies to the parts of the
//! operation matrix.
//!
//! Two checks always run in this process, so that no transport needs an operation for them: waiting
//! until work in progress is complete, and the counts at the end of each scenario
//! (`stage/look.rs`). Everything else reaches the broker through the transport, or through
//! functions that record the use of this process. Over AMQP, every scenario does the operations of
//! [`in_process::TABLE`], which AMQP does not have, in this process; `faces/amqp.rs` checks each
//! operation against it.

mod amqp;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use crate::subjects::Transport;
use crate::subjects::Transport::{Amqp, Http, Inproc, WebSocket, WebSocketJson};
use crate::subjects::amqp::in_process;
use crate::{everywhere, matrix, somewhere};

/// An exception for a scenario.
struct Exception {
    /// A topic of scenarios, or a single scenario, which takes precedence; or a part of the matrix.
    what: &'static str,
    face: Face,
    why: &'static str,
}

enum Face {
    /// The scenario runs only over these transports.
    Only(&'static [Transport]),
    /// Over these transports a part of the scenario runs in this process.
    PartlyInProcess(&'static [Transport]),
}

use Face::{Only, PartlyInProcess};

const SOCKETS: &[Transport] = &[Http, WebSocket, WebSocketJson, Amqp];
const WITH_LINKS: &[Transport] = &[Inproc, WebSocket, WebSocketJson, Amqp];
const EXCEPT_AMQP: &[Transport] = &[Inproc, Http, WebSocket, WebSocketJson];
const LINKS_EXCEPT_AMQP: &[Transport] = &[Inproc, WebSocket, WebSocketJson];
const DOOMED: &str = "over AMQP a message that is refused dooms its transaction (AMQP-100)";
const BY_WAY: &str = "sends by way of an entity, for which HTTP has no operation";

#[rustfmt::skip]
const EXCEPTIONS: &[Exception] = &[
    Exception { what: "handles", face: Only(&[Inproc]), why: "handles of this process that are dropped or closed" },
    Exception { what: "consumers", face: Only(LINKS_EXCEPT_AMQP), why: "consumers and streams are of the handles" },
    Exception { what: "send::many_sends_in_flight_are_each_answered_with_their_own_number", face: Only(EXCEPT_AMQP), why: "an accepted transfer over AMQP returns no number" },
    Exception { what: "receive::a_receive_for_no_message_is_refused", face: Only(EXCEPT_AMQP), why: "over AMQP credit for no message asks for nothing" },
    Exception { what: "duplicate::a_repeated_schedule_gives_the_number_of_the_message_still_scheduled", face: Only(EXCEPT_AMQP), why: "an accepted transfer over AMQP returns no number" },
    Exception { what: "topics::duplicates_are_dropped_at_the_topic_and_never_in_a_subscription", face: Only(EXCEPT_AMQP), why: "an accepted transfer over AMQP returns no number" },
    Exception { what: "retry::a_handle_abandons_with_a_delay_alone_and_in_a_transaction", face: Only(LINKS_EXCEPT_AMQP), why: "a delay that the handles have, in addition to the property of all transports" },
    Exception { what: "sessions::session_operations_are_refused_without_sessions", face: Only(LINKS_EXCEPT_AMQP), why: "over AMQP a link ends when its entity is disabled, and its session with it (AMQP-79)" },
    Exception { what: "requests", face: Only(&[Http]), why: "REST, and connections that are cut" },
    Exception { what: "sessions", face: Only(WITH_LINKS), why: "HTTP has no link to hold a session with" },
    Exception { what: "message_properties::numbers_have_63_bits", face: PartlyInProcess(SOCKETS), why: "the record of the number that was given last is set in the store" },
    Exception { what: "message_properties::messages_cross_from_each_transport_to_each_other", face: PartlyInProcess(SOCKETS), why: "one of the transports that messages cross to is in process" },
    Exception { what: "lock::a_lock_names_its_holder", face: PartlyInProcess(SOCKETS), why: "locks and clients are read as an operator reads them" },
    Exception { what: "sessions::sessions_are_listed_by_id", face: PartlyInProcess(SOCKETS), why: "the holder of the listed sessions" },
    Exception { what: "topics::a_copy_without_session_goes_to_the_dead_letter_queue", face: PartlyInProcess(&[Http]), why: "the sessions are received" },
    Exception { what: "forwarding::a_full_destination_and_a_small_one_dead_letter_at_the_source", face: PartlyInProcess(&[Http]), why: "a message above a mebibyte, which HTTP does not take" },
    Exception { what: "forwarding::a_full_destination_can_delay_messages", face: PartlyInProcess(&[Http]), why: BY_WAY },
    Exception { what: "forwarding::a_message_can_be_sent_through_a_queue", face: PartlyInProcess(&[Http]), why: BY_WAY },
    Exception { what: "forwarding::a_failed_send_through_a_queue_is_dead_lettered_there", face: PartlyInProcess(&[Http]), why: BY_WAY },
    Exception { what: "forwarding::a_message_in_transfer_survives_a_restart", face: PartlyInProcess(&[Http]), why: BY_WAY },
    Exception { what: "forwarding::rules_see_the_source_of_a_forwarded_message", face: PartlyInProcess(&[Http]), why: BY_WAY },
    Exception { what: "via", face: PartlyInProcess(&[Http]), why: BY_WAY },
    Exception { what: "via::a_settlement_in_a_subscription_and_sends_to_others_are_one", face: Only(WITH_LINKS), why: "HTTP has no transactions (TXN-16)" },
    Exception { what: "via::a_failure_of_one_part_undoes_all", face: Only(WITH_LINKS), why: "HTTP has no transactions (TXN-16)" },
    Exception { what: "via::a_dead_letter_of_a_topic_is_completed_and_sent_again_as_one", face: Only(WITH_LINKS), why: "HTTP has no transactions (TXN-16)" },
    Exception { what: "transactions::a_transaction_sends_at_most_100_messages_and_continues_without_the_next", face: Only(LINKS_EXCEPT_AMQP), why: DOOMED },
    Exception { what: "transactions::a_failing_operation_is_refused_when_issued_with_its_own_error", face: Only(LINKS_EXCEPT_AMQP), why: DOOMED },
    Exception { what: "transactions::the_quota_covers_all_messages_of_a_transaction", face: Only(LINKS_EXCEPT_AMQP), why: DOOMED },
    Exception { what: "transactions::a_batch_of_one_is_reported_as_a_message", face: Only(LINKS_EXCEPT_AMQP), why: "a commit over AMQP returns nothing about its parts" },
    Exception { what: "transactions::the_state_of_a_session_is_set_at_the_commit", face: Only(LINKS_EXCEPT_AMQP), why: "a session and a transaction at once, which the suite asks of no client of AMQP" },
    Exception { what: "transactions", face: Only(WITH_LINKS), why: "HTTP has no transactions (TXN-16)" },
    Exception { what: "transactions::other_operations_cannot_be_part_of_a_transaction", face: Only(&[Inproc]), why: "commands that no transport can say" },
    Exception { what: "transactions::a_dropped_transaction_is_rolled_back", face: Only(&[Inproc]), why: "a handle of this process" },
    Exception { what: "transactions::messages_of_a_session_are_settled_in_a_transaction_while_it_is_held", face: Only(&[Inproc]), why: "a session and a transaction at once, which the suite asks of no other transport" },
    Exception { what: "matrix::transfer_dead_letters_of_topics", face: PartlyInProcess(&[Http]), why: BY_WAY },
    Exception { what: "matrix::in_transactions", face: Only(WITH_LINKS), why: "HTTP has no transactions (TXN-16)" },
    Exception { what: "matrix::in_transactions", face: PartlyInProcess(&[WebSocket, WebSocketJson, Amqp]), why: "the state before and after is compared inside the broker; no transport shows all of this state" },
];

impl Exception {
    const fn transports(&self) -> &'static [Transport] {
        match self.face {
            Only(transports) | PartlyInProcess(transports) => transports,
        }
    }

    const fn is_only(&self) -> bool {
        matches!(self.face, Only(_))
    }

    /// The row of the table in `tests/README.md`.
    fn row(&self) -> String {
        let over: Vec<&str> = self.transports().iter().map(|one| one.name()).collect();
        let face = if self.is_only() { "runs only over" } else { "has a part in process over" };
        format!("| `{}` | {face} {} | {} |", self.what, over.join(", "), self.why)
    }
}

/// The exception with the transports of a scenario, or with those over which it is partly in
/// process.
fn exception(scenario: &str, is_only: bool) -> Option<&'static Exception> {
    let named =
        |what: &str| EXCEPTIONS.iter().find(|one| one.what == what && one.is_only() == is_only);
    named(scenario).or_else(|| named(scenario.split("::").next().unwrap_or_default()))
}

/// Checks after a run of a scenario or a part of the matrix that it used the broker in this process
/// exactly if the list says so. The in-process transport cannot be distinguished and is skipped.
pub fn check_in_process(scenario: &str, transport: Transport, was_used: bool) {
    let is_listed =
        exception(scenario, false).is_some_and(|one| one.transports().contains(&transport));
    let name = transport.name();
    assert!(
        transport == Inproc || was_used == is_listed,
        "{scenario} over {name}: a part in process? used: {was_used}, listed: {is_listed}"
    );
}

/// Scenarios that do not run over every transport.
const LISTS: &[(Transport, &[&str])] = &[
    somewhere::inproc_handles::LIST,
    somewhere::inproc_sessions::LIST,
    somewhere::websocket_sessions::LIST,
    somewhere::websocket_json_sessions::LIST,
    somewhere::amqp_sessions::LIST,
    somewhere::inproc_held_sessions::LIST,
    somewhere::websocket_held_sessions::LIST,
    somewhere::websocket_json_held_sessions::LIST,
    somewhere::inproc_delays::LIST,
    somewhere::websocket_delays::LIST,
    somewhere::websocket_json_delays::LIST,
    somewhere::inproc_consumers::LIST,
    somewhere::websocket_consumers::LIST,
    somewhere::websocket_json_consumers::LIST,
    somewhere::http_sessions::LIST,
    somewhere::inproc_transactions::LIST,
    somewhere::websocket_transactions::LIST,
    somewhere::websocket_json_transactions::LIST,
    somewhere::amqp_transactions::LIST,
    somewhere::inproc_open_transactions::LIST,
    somewhere::websocket_open_transactions::LIST,
    somewhere::websocket_json_open_transactions::LIST,
    somewhere::inproc_transaction_handles::LIST,
    somewhere::inproc_via::LIST,
    somewhere::http_via::LIST,
    somewhere::websocket_via::LIST,
    somewhere::websocket_json_via::LIST,
    somewhere::amqp_via::LIST,
    somewhere::inproc_via_transactions::LIST,
    somewhere::websocket_via_transactions::LIST,
    somewhere::websocket_json_via_transactions::LIST,
    somewhere::amqp_via_transactions::LIST,
    somewhere::http_requests::LIST,
];

/// FND-05: every scenario, and every part of the matrix, runs over every transport, or the list
/// names its transports and the reason.
#[test]
fn every_scenario_runs_over_every_transport_or_is_listed() {
    let mut over: BTreeMap<&str, Vec<Transport>> = BTreeMap::new();
    for scenario in everywhere::SCENARIOS {
        over.entry(scenario).or_default().extend(Transport::ALL);
    }
    let except_amqp = somewhere::except_amqp::LISTS.iter().flatten();
    for (transport, scenarios) in LISTS.iter().chain(except_amqp).chain(matrix::tests::LISTS) {
        for scenario in *scenarios {
            let over = over.entry(scenario).or_default();
            // Several tests belong to the same part of the matrix.
            if !over.contains(transport) {
                over.push(*transport);
            }
        }
    }
    let mut complaints = String::new();
    let mut unused: Vec<&str> = EXCEPTIONS.iter().map(|one| one.what).collect();
    for (scenario, transports) in over {
        let has = |transport| transports.contains(transport);
        let only = exception(scenario, true);
        let is_as_listed = only.is_some_and(|one| {
            one.transports().len() == transports.len() && one.transports().iter().all(has)
        });
        if !is_as_listed && !Transport::ALL.iter().all(has) {
            _ = writeln!(complaints, "{scenario} runs over {transports:?}");
        }
        let used = [only, exception(scenario, false)];
        unused.retain(|what| used.iter().flatten().all(|one| one.what != *what));
    }
    assert!(complaints.is_empty(), "{complaints}");
    assert!(unused.is_empty(), "no scenario is meant by {unused:?}");
}

/// `tests/README.md` contains the same list.
#[test]
fn the_documentation_has_the_list_too() {
    let document = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/README.md");
    let document = std::fs::read_to_string(document).unwrap();
    let rows: Vec<String> = EXCEPTIONS.iter().map(Exception::row).collect();
    let of_amqp: Vec<String> =
        in_process::TABLE.iter().map(|(_, what, why)| format!("| {what} | {why} |")).collect();
    for rows in [rows.join("\n"), of_amqp.join("\n")] {
        assert!(document.contains(&rows), "tests/README.md lacks:\n{rows}");
    }
}

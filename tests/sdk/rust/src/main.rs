//! The crate azservicebus against a broker of the built program: `peeklock-sdk-rust PROGRAM [PART
//! OF A NAME]`.
//!
//! Ends with a line `ok N scenarios`, or prints the failures.

mod broker;
mod receiving;
mod rights;
mod rules;
mod sending;
mod sessions;
mod settling;

use std::process::ExitCode;
use std::time::Duration;

use anyhow::{Context as _, Result, bail};

use broker::Broker;

/// A scenario that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(60);

/// Runs the scenarios whose names contain `part`, and prints failures.
macro_rules! run {
    ($broker:ident, $part:ident, $failed:ident, $count:ident, $($module:ident: [$($name:ident),* $(,)?],)*) => {$($(
        if stringify!($name).contains(&$part) {
            $count += 1;
            let told = tokio::time::timeout(PATIENCE, $module::$name(&$broker.world(stringify!($name)))).await;
            if let Err(error) = told.context("it hangs").and_then(|told| told) {
                $failed += 1;
                eprintln!("{}: {error:?}", stringify!($name));
            }
        }
    )*)*};
}

async fn run(program: &str, part: &str) -> Result<usize> {
    let broker = Broker::start(program)?;
    let (mut failed, mut count) = (0, 0);
    run! { broker, part, failed, count,
        sending: [
            a_message_arrives_with_all_its_properties,
            messages_sent_together_arrive_in_order,
            a_batch_accepts_fitting_messages,
            a_schedule_is_kept_and_can_be_cancelled,
        ],
        receiving: [
            a_waiting_receiver_gets_new_messages,
            an_empty_queue_returns_no_message,
            messages_are_received_ahead,
            a_received_and_deleted_message_is_gone,
            a_peek_removes_nothing,
        ],
        settling: [
            a_completed_message_is_gone,
            an_abandoned_message_returns_and_is_counted,
            a_deferred_message_is_received_by_its_number,
            a_dead_letter_has_its_reason,
            a_lock_is_renewed,
            a_lost_lock_completes_nothing,
        ],
        sessions: [
            a_session_is_accepted_by_name,
            the_next_session_is_accepted,
            a_session_keeps_its_state,
            the_lock_of_a_session_is_renewed,
            a_session_that_is_held_is_refused,
        ],
        rules: [
            rules_are_replaced,
            a_subscription_gets_messages_selected_by_its_rules,
        ],
        rights: [
            a_wrong_key_is_refused,
            a_missing_queue_is_reported,
        ],
    }
    if failed > 0 {
        bail!("{failed} of {count} scenarios failed");
    }
    Ok(count)
}

fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    let Some(program) = arguments.next() else {
        eprintln!("usage: peeklock-sdk-rust PROGRAM [PART OF A NAME]");
        return ExitCode::FAILURE;
    };
    let part = arguments.next().unwrap_or_default();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let told =
        runtime.map_err(Into::into).and_then(|runtime| runtime.block_on(run(&program, &part)));
    match told {
        Ok(count) => {
            println!("ok {count} scenarios");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("{error:?}");
            ExitCode::FAILURE
        }
    }
}

//! Errors of the database, and their meaning for the statement that failed.

use std::error::Error as _;

use peeklock_store::StoreError;
use tokio_postgres::Error;
use tokio_postgres::error::SqlState;

/// The text of an error with its causes.
pub fn text_of(error: &Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(one) = cause {
        text.push_str(": ");
        text.push_str(&one.to_string());
        cause = one.source();
    }
    text
}

fn class_of(code: &SqlState) -> &str {
    code.code().get(..2).unwrap_or_default()
}

/// Whether the server reports damaged data or a damaged index.
pub fn is_damage(error: &Error) -> bool {
    error.code().is_some_and(|code| ["XX001", "XX002"].contains(&code.code()))
}

/// Whether a failed statement has stored nothing, and never will. Every other error may follow a
/// commit: a lost connection, the end of the server, a fault of its machine.
pub fn stored_nothing(error: &Error) -> bool {
    const STATEMENT_COMPLETION_UNKNOWN: &str = "40003";
    error.code().is_some_and(|code| {
        ["23", "40", "42", "53", "55"].contains(&class_of(code))
            && code.code() != STATEMENT_COMPLETION_UNKNOWN
    })
}

/// Whether the connection is as good as before the error: a deadlock, too few resources, or a lock
/// that was not granted in time.
pub fn keeps_connection(error: &Error) -> bool {
    error.code().is_some_and(|code| ["40", "53", "55"].contains(&class_of(code)))
}

/// Whether a statement is refused because of the data or the tables, so that repeating it is
/// useless. Missing rights are none of these: an operator may grant them again.
pub fn is_final(error: &Error) -> bool {
    error.code().is_some_and(|code| {
        ["23", "42"].contains(&class_of(code)) && code != &SqlState::INSUFFICIENT_PRIVILEGE
    })
}

/// The error of a question to the running store. Only damage that the server has proven ends
/// anything: after a failover or a change of rights, the same question may be answered later.
pub fn store_error(error: &Error) -> StoreError {
    let text = text_of(error).into();
    if is_damage(error) { StoreError::Damaged(text) } else { StoreError::Unavailable(text) }
}

/// The error of a question while the store is opened: errors that stay are reported as such.
pub fn opening_error(error: &Error) -> StoreError {
    let passes =
        |code: &SqlState| ["08", "25", "40", "53", "55", "57", "58"].contains(&class_of(code));
    match error.code() {
        Some(code) if !is_damage(error) && !passes(code) => {
            StoreError::Failed(text_of(error).into())
        }
        _ => store_error(error),
    }
}

//! Remedies for errors of attempts to connect that do not pass by themselves.

use tokio_postgres::error::SqlState;

/// The remedy for an error of an attempt to connect that does not pass by itself.
pub fn remedy(code: Option<&SqlState>, text: &str) -> Option<&'static str> {
    let Some(code) = code else {
        // The client has noticed it.
        let asks = text.contains("password missing");
        return asks
            .then_some("write the password into the file of `store.postgres.password_file`");
    };
    [
        (
            &SqlState::INVALID_PASSWORD,
            "correct the password in the file of `store.postgres.password_file`, or the user in \
             `store.postgres.url`",
        ),
        (
            &SqlState::INVALID_AUTHORIZATION_SPECIFICATION,
            "correct the user in `store.postgres.url`, or let it in with `pg_hba.conf`",
        ),
        (
            &SqlState::INVALID_CATALOG_NAME,
            "create the database, or correct its name in `store.postgres.url`",
        ),
        (
            &SqlState::INSUFFICIENT_PRIVILEGE,
            "make the user of the broker the owner of the database",
        ),
    ]
    .into_iter()
    .find_map(|(known, remedy)| (known == code).then_some(remedy))
}

//! Checks of a server: confirmed commits must be kept (CLU-05, CLU-09).

use tokio_postgres::Client;

use crate::session::{ConnectError, refusal};

/// The oldest supported server.
const VERSION_MIN: i32 = 140_000;

/// The result of the checks of a new connection.
pub struct Checked {
    /// Promises that the server breaks.
    pub risks: Vec<&'static str>,
    /// Note about the safety of acknowledged messages, for the log.
    pub note: String,
}

/// Checks the server behind a new connection. `nonce` was given with its options, and
/// `server_count` is the number of servers that the address names.
pub async fn check(
    client: &Client,
    nonce: &str,
    server_count: usize,
) -> Result<Checked, ConnectError> {
    const FACTS: &str = "SELECT version(), current_setting('server_version_num')::int, \
        current_setting('peeklock.session', true), pg_is_in_recovery(), \
        current_setting('fsync'), current_setting('full_page_writes'), \
        current_setting('synchronous_standby_names'), current_setting('synchronous_commit'), \
        pg_backend_pid(), current_schema()::text";
    const SAME: &str = "SELECT pg_backend_pid(), current_setting('peeklock.session', true)";
    let facts = client.query_one(FACTS, &[]).await.map_err(|error| refusal(&error))?;
    let text = |place: usize| facts.get::<_, Option<String>>(place).unwrap_or_default();
    let is_on = |place: usize| text(place) == "on";
    let refused = |text: String| Err(ConnectError::Refused(text));
    let product = text(0);
    if !product.starts_with("PostgreSQL ") || product.contains("-YB-") {
        return refused(format!(
            "the server is no PostgreSQL (`{product}`); use PostgreSQL 14 or later"
        ));
    }
    if facts.get::<_, i32>(1) < VERSION_MIN {
        return refused(format!("the server is too old (`{product}`); use PostgreSQL 14 or later"));
    }
    // A pooler may give each statement another session of the server.
    let same = client.query_one(SAME, &[]).await.map_err(|error| refusal(&error))?;
    let is_same = facts.get::<_, i32>(8) == same.get::<_, i32>(0)
        && same.get::<_, Option<String>>(1).as_deref() == Some(nonce);
    if text(2) != nonce || !is_on(7) || !is_same {
        return refused(
            "settings of the session do not reach the server: there is a pooler between, which \
             shares its connections; connect to the server itself, or use the session mode of the \
             pooler and let it pass `options` on"
                .to_owned(),
        );
    }
    if facts.get::<_, Option<&str>>(9).is_none() {
        return refused(
            "no schema of the `search_path` exists; create it, or correct the address or the role"
                .to_owned(),
        );
    }
    if facts.get::<_, bool>(3) {
        return Err(ConnectError::Away("the server is a standby".to_owned()));
    }
    let mut risks = Vec::new();
    if !is_on(4) {
        risks.push("`fsync` is off: a crash of its machine loses acknowledged messages");
    }
    if !is_on(5) {
        risks.push("`full_page_writes` is off: a crash can damage stored messages");
    }
    let names = text(6);
    if server_count > 1 && names.trim().is_empty() {
        risks.push(
            "the address names several servers, and no standby is synchronous: a failover loses \
             acknowledged messages; set `synchronous_standby_names`",
        );
    } else if server_count > 1 && !is_quorum(&names, server_count - 1) {
        risks.push(
            "the address names several servers, and `synchronous_standby_names` waits for some of \
             the standbys by priority: a failover to another one loses acknowledged messages; \
             write `ANY 1 (...)` with all standbys",
        );
    }
    let note = if names.trim().is_empty() {
        "one database server alone has the messages: they last as long as its disk".to_owned()
    } else {
        format!("commits wait for standbys (`{names}`)")
    };
    Ok(Checked { risks, note })
}

/// Whether each confirmed commit is on a quorum of the standbys, or on every standby.
fn is_quorum(names: &str, standby_count: usize) -> bool {
    let names = names.trim();
    let word = |word: &str| {
        names.get(..word.len()).is_some_and(|start| start.eq_ignore_ascii_case(word))
            && names.get(word.len()..).is_some_and(|rest| rest.starts_with([' ', '\t']))
    };
    if word("ANY") {
        return true;
    }
    let rest = if word("FIRST") { names.get("FIRST".len()..).unwrap_or_default() } else { names };
    let (count, list) = match rest.split_once('(') {
        Some((count, list)) => (count.trim().parse().unwrap_or(0), list.trim_end_matches(')')),
        None => (1, rest),
    };
    let listed: Vec<&str> = list.split(',').map(str::trim).collect();
    let all = if listed.contains(&"*") { standby_count } else { listed.len() };
    count >= all
}

#[cfg(test)]
mod tests {
    use super::*;

    /// CLU-09: a quorum, or all standbys. One of several by priority is not enough.
    #[test]
    fn standbys_are_a_quorum_or_all() {
        for names in ["ANY 1 (s2, s3)", "any 2 (*)", "FIRST 2 (s2, s3)", "2 (s2, s3)"] {
            assert!(is_quorum(names, 2), "{names}");
        }
        for names in ["FIRST 1 (s2, s3)", "1 (s2, s3)", "s2, s3", "*", "FIRST 1 (*)"] {
            assert!(!is_quorum(names, 2), "{names}");
        }
        for names in ["*", "s2", "FIRST 1 (s2)", "anything"] {
            assert!(is_quorum(names, 1), "{names}");
        }
    }
}

//! The section `[cluster]`: checks it, and converts it to names and leases of brokers. `config.rs`
//! calls it.

use std::hash::{BuildHasher as _, Hasher as _, RandomState};

use peeklock::core::cluster::ownership::LeaseTimes;
use peeklock::postgres::PostgresConfig;

use super::StoreKind;
use super::sections::ClusterSection;

/// Maximum length of a name.
const NAME_CHARS_MAX: usize = 64;
/// Maximum length of the part of the host name in a name by default.
const HOST_CHARS_MAX: usize = 48;

impl ClusterSection {
    /// Checks the values.
    ///
    /// # Errors
    /// Returns the key and the fault.
    pub fn judge(&self, kind: StoreKind) -> Result<(), (String, String)> {
        let wrong = |key: &str, detail: String| Err((format!("cluster.{key}"), detail));
        if !self.name.is_empty() && kind == StoreKind::Journal {
            let detail = "is set, but a broker with a journal has no standby; remove it, or set \
                store.kind = \"postgres\"";
            return wrong("name", detail.to_owned());
        }
        if self.name.len() > NAME_CHARS_MAX || !self.name.chars().all(is_of_name) {
            let name = &self.name;
            return wrong(
                "name",
                format!(
                    "`{name}` is not a name of a broker; use letters, digits, `-`, `_` and `.`, \
                     at most {NAME_CHARS_MAX} characters"
                ),
            );
        }
        match self.times().validate() {
            Ok(()) => Ok(()),
            Err(detail) => wrong("renew", format!("{detail}, or raise cluster.lease")),
        }
    }

    /// Times of leases.
    pub fn times(&self) -> LeaseTimes {
        LeaseTimes { renew: self.renew, lease: self.lease, ..LeaseTimes::default() }
    }

    /// Name of a broker without a configured one: its host name, and a random part, so that a
    /// process that starts again does not wait for the lease of the last one of that name.
    pub fn default_name() -> String {
        let host = PostgresConfig::default().broker_name;
        let host: String =
            host.chars().filter(|one| is_of_name(*one)).take(HOST_CHARS_MAX).collect();
        let random = RandomState::new().build_hasher().finish() >> 32;
        format!("{host}-{random:08x}")
    }

    /// Adds name and lease of this broker to the settings of its store.
    pub fn join(&self, mut config: PostgresConfig) -> PostgresConfig {
        if !self.name.is_empty() {
            config.broker_name.clone_from(&self.name);
        }
        config.lease = self.lease.to_std();
        config
    }
}

const fn is_of_name(one: char) -> bool {
    one.is_ascii_alphanumeric() || matches!(one, '-' | '_' | '.')
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::config::tests::load;

    const DATABASE: &str = "[store]\nkind = \"postgres\"\n[store.postgres]\n\
                            url = \"postgres://peeklock@localhost/peeklock\"\n[cluster]\n";

    /// CLU-16, CLU-40: name and lease reach the store, and leases whose times leave too few
    /// renewals are refused with the remedy.
    #[test]
    fn names_and_leases_are_checked() {
        let text = format!("{DATABASE}name = \"left-1\"\nrenew = \"200ms\"\nlease = \"2s\"\n");
        let loaded = load("cluster", &text).unwrap();
        let store = loaded.postgres().unwrap();
        assert_eq!((&*store.broker_name, store.lease), ("left-1", Duration::from_secs(2)));
        let times = loaded.config.cluster.times();
        assert_eq!(times.valid_for().as_ms(), 1_500);
        let default = load("cluster-default", DATABASE).unwrap().config.cluster.times();
        assert_eq!(default, LeaseTimes::default());
        let long = format!("name = \"{}\"", "n".repeat(65));
        for (at, (text, parts)) in [
            ("renew = \"900ms\"", &["cluster.renew", "833 ms", "cluster.lease"][..]),
            ("renew = \"300ms\"\nlease = \"1s\"", &["cluster.renew", "166 ms"]),
            ("lease = \"900ms\"", &["cluster.lease", "from 1s to 1m"]),
            ("renew = \"0s\"", &["cluster.renew", "from 50ms to 10s"]),
            ("name = \"a b\"", &["cluster.name", "letters, digits"]),
            (&long, &["cluster.name", "at most 64"]),
        ]
        .into_iter()
        .enumerate()
        {
            let refused = load(&format!("cluster-{at}"), &format!("{DATABASE}{text}\n"));
            let refused = refused.map(drop).unwrap_err().to_string();
            for part in parts {
                assert!(refused.contains(part), "{refused}");
            }
        }
        let journal = load("cluster-journal", "[cluster]\nname = \"a\"\n");
        let refused = journal.map(drop).unwrap_err().to_string();
        assert!(refused.contains("cluster.name") && refused.contains("store.kind"), "{refused}");
    }

    /// CLU-40: two processes on one host have different names by default.
    #[test]
    fn default_names_differ() {
        let (one, other) = (ClusterSection::default_name(), ClusterSection::default_name());
        assert_ne!(one, other);
        assert!(one.len() <= NAME_CHARS_MAX && one.chars().all(is_of_name), "{one}");
    }
}

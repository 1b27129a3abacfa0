//! The section `[store.postgres]`: checks it and converts it to the settings of the store.
//! `config.rs` calls it at start if `store.kind` selects the store.

use std::fs::File;
use std::io::{self, Read as _};
use std::path::Path;

use peeklock::postgres::{PostgresConfig, certificates};

use super::sections::PostgresSection;

/// Maximum size of the file with the password.
const PASSWORD_BYTES_MAX: u64 = 4 << 10;

impl PostgresSection {
    /// Converts to the settings of the store; reads the named files.
    ///
    /// # Errors
    /// Returns the key and the fault, without any part of a password.
    pub fn config(&self) -> Result<PostgresConfig, (String, String)> {
        self.refuse_password()?;
        if self.url.is_empty() {
            let detail = "is empty, but store.kind is `postgres`; write the address of the \
                database, such as postgres://peeklock@localhost/peeklock";
            return Err(wrong("url", detail.to_owned()));
        }
        let password = match self.password_file.as_str() {
            "" => None,
            file => Some(read_password(file).map_err(|error| wrong("password_file", error))?),
        };
        let authorities = match self.ca_file.as_str() {
            "" => Vec::new(),
            file => certificates(Path::new(file))
                .map_err(|error| wrong("ca_file", error.to_string()))?,
        };
        let config = PostgresConfig {
            url: self.url.clone(),
            password,
            authorities,
            capacity_bytes: if self.capacity_bytes == 0 { u64::MAX } else { self.capacity_bytes },
            cache_bytes: self.cache_bytes,
            shard_count: u16::try_from(self.shards).unwrap_or(u16::MAX),
            i_know: self.i_know,
            ..PostgresConfig::default()
        };
        config.check().map_err(|error| wrong("url", super::store_text(&error)))?;
        Ok(config)
    }

    /// Refuses a password in the address, because commands print the configuration (SEC-22).
    ///
    /// # Errors
    /// Returns the key and the fault.
    pub fn refuse_password(&self) -> Result<(), (String, String)> {
        let config = PostgresConfig { url: self.url.clone(), ..PostgresConfig::default() };
        if !config.has_password_in_url() {
            return Ok(());
        }
        let detail = "contains a password, which commands and logs would print; write it into a \
            file, and name the file in store.postgres.password_file";
        Err(wrong("url", detail.to_owned()))
    }
}

/// The first line of a file.
fn read_password(path: &str) -> Result<String, String> {
    let mut text = String::new();
    let reading: io::Result<usize> =
        File::open(path).and_then(|file| file.take(PASSWORD_BYTES_MAX).read_to_string(&mut text));
    reading.map_err(|error| format!("`{path}` cannot be read: {error}"))?;
    match text.lines().next() {
        Some(password) if !password.is_empty() => Ok(password.to_owned()),
        _ => Err(format!("`{path}` has no password; write it as the first line")),
    }
}

fn wrong(key: &str, detail: String) -> (String, String) {
    (format!("store.postgres.{key}"), detail)
}

#[cfg(test)]
mod tests {
    use crate::config::StoreKind;
    use crate::config::tests::{load, load_with};

    const URL: &str = "url = \"postgres://peeklock@localhost/peeklock\"\n";

    fn refusal(name: &str, text: &str) -> String {
        let text = format!("[store]\nkind = \"postgres\"\n[store.postgres]\n{text}");
        load(name, &text).map(drop).unwrap_err().to_string()
    }

    /// CLU-03, CLU-04: the journal is the default store, and one setting with an address selects
    /// PostgreSQL, also from the environment.
    #[test]
    fn store_is_selected_by_its_kind() {
        assert_eq!(load("store-default", "").unwrap().config.store.kind, StoreKind::Journal);
        let loaded = load_with("store-environment", "", |layers| {
            let set = [
                ("PEEKLOCK__STORE__KIND", "postgres"),
                ("PEEKLOCK__STORE__POSTGRES__URL", "postgres://peeklock@localhost/peeklock"),
                ("PEEKLOCK__STORE__POSTGRES__SHARDS", "8"),
            ];
            let set = set.map(|(name, value)| (name.to_owned(), value.to_owned()));
            layers.environment = Some(set.into_iter().collect());
        });
        let loaded = loaded.unwrap();
        assert_eq!(loaded.config.store.kind, StoreKind::Postgres);
        let config = loaded.postgres().unwrap();
        assert_eq!((config.shard_count, config.capacity_bytes), (8, u64::MAX));
        assert!(refusal("store-shards", &format!("{URL}shards = 257\n")).contains("1 to 256"));
        assert!(load("store-kind", "[store]\nkind = \"mysql\"\n").is_err());
    }

    /// CLU-48, SEC-22: a password comes from a file. One in the address is refused, and no error
    /// shows it.
    #[test]
    fn password_comes_from_a_file() {
        let file = std::env::temp_dir().join(format!("peeklock-password-{}", std::process::id()));
        std::fs::write(&file, "secret of the database\nanother line\n").unwrap();
        let named = format!("password_file = \"{}\"\n", file.display());
        let text = format!("[store]\nkind = \"postgres\"\n[store.postgres]\n{URL}{named}");
        let loaded = load("store-password", &text).unwrap();
        let config = loaded.postgres().unwrap();
        assert_eq!(config.password.as_deref(), Some("secret of the database"));
        let shown = loaded.rows().into_iter().map(|row| row.value).collect::<String>();
        assert!(!shown.contains("secret of"), "{shown}");
        std::fs::write(&file, "\n").unwrap();
        let empty = refusal("store-no-password", &format!("{URL}{named}"));
        std::fs::remove_file(&file).unwrap();
        let absent = refusal("store-absent-password", &format!("{URL}{named}"));
        for (refusal, part) in [(empty, "first line"), (absent, "cannot be read")] {
            assert!(refusal.contains("store.postgres.password_file"), "{refusal}");
            assert!(refusal.contains(part), "{refusal}");
        }
        for url in ["postgres://peeklock:secret@localhost/a", "host=localhost password=secret"] {
            for kind in ["journal", "postgres"] {
                let text =
                    format!("[store]\nkind = \"{kind}\"\n[store.postgres]\nurl = \"{url}\"\n");
                let refused = load("store-url-password", &text).map(drop).unwrap_err().to_string();
                assert!(refused.contains("store.postgres.password_file"), "{refused}");
                assert!(!refused.contains("secret"), "{refused}");
            }
        }
    }

    /// CLU-48: an address is checked without connecting, and each error names its setting.
    #[test]
    fn address_is_checked_without_connecting() {
        let cases = [
            ("", "is empty"),
            ("url = \"postgres://host:port/a\"\n", "not valid"),
            ("url = \"user=peeklock\"\n", "names no host"),
            ("url = \"postgres://db.example.com/a?sslmode=disable\"\n", "store.postgres.i_know"),
        ];
        for (at, (text, part)) in cases.into_iter().enumerate() {
            let refusal = refusal(&format!("store-url-{at}"), text);
            assert!(refusal.contains("store.postgres.url"), "{refusal}");
            assert!(refusal.contains(part), "{refusal}");
        }
        let confirmed = "url = \"postgres://db.example.com/a?sslmode=disable\"\ni_know = true\n";
        let text = format!("[store]\nkind = \"postgres\"\n[store.postgres]\n{confirmed}");
        assert!(load("store-url-known", &text).is_ok());
    }

    /// A broker with this store needs the files of its connections, and none of a journal.
    #[test]
    fn connections_to_the_database_are_in_the_sum_of_files() {
        let of = |name: &str, text: &str| load(name, text).unwrap().config.open_files();
        let text = format!("[store]\nkind = \"postgres\"\n[store.postgres]\n{URL}");
        // 1,600 segments and 19 other files of the journal.
        assert_eq!(of("files-postgres", &text) + 1_600 + 19, of("files-journal", "") + 24);
    }
}

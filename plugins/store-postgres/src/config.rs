//! Settings of the store, and the connections that they allow.

use std::net::IpAddr;
use std::time::Duration;

use peeklock_store::StoreError;
use peeklock_tls::CertificateDer;
use tokio_postgres::config::{Host, SslMode, TargetSessionAttrs};

use crate::leaf::{LEAF_BYTES_MAX, LEAF_BYTES_MIN};

/// Settings of a store in PostgreSQL.
#[derive(Clone)]
pub struct PostgresConfig {
    /// Address of the database: `postgres://user@host1,host2/name`, or words such as `host=... user=...`.
    pub url: String,
    /// Password, if the address has none.
    pub password: Option<String>,
    /// Trusted authorities in addition to the ones of the system.
    pub authorities: Vec<CertificateDer<'static>>,
    /// Maximum bytes of records and contents. Sends over it are refused.
    pub capacity_bytes: u64,
    /// Memory for cached contents.
    pub cache_bytes: u64,
    /// Number of shards of a new store, 1 to 256. An existing one keeps its number.
    pub shard_count: u16,
    /// Bytes of a table of the log, 64 KiB to 1 GiB. Freed space returns table by table. Tables of a
    /// large log have a sixteenth of its bytes, up to 1 GiB.
    pub leaf_bytes: u64,
    /// Name of this broker among the brokers of the database; by default the name of its machine.
    pub broker_name: String,
    /// Time after a renewal until other brokers may take the shards over (CLU-16).
    pub lease: Duration,
    /// Accepts a server that may lose acknowledged data, and connections without TLS.
    pub i_know: bool,
}

/// Maximum number of shards (CLU-04).
const SHARDS_MAX: u16 = 256;
/// Time to reach one address.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(1);
/// Time after which a silent connection is tested, and after which it counts as lost.
const KEEPALIVE: Duration = Duration::from_secs(5);
const LOST_AFTER: Duration = Duration::from_secs(10);

impl Default for PostgresConfig {
    fn default() -> Self {
        Self {
            url: String::new(),
            password: None,
            authorities: Vec::new(),
            capacity_bytes: u64::MAX,
            cache_bytes: 64 << 20,
            shard_count: 32,
            leaf_bytes: 16 << 20,
            broker_name: machine_name(),
            lease: Duration::from_secs(3),
            i_know: false,
        }
    }
}

fn machine_name() -> String {
    rustix::system::uname().nodename().to_string_lossy().into_owned()
}

impl std::fmt::Debug for PostgresConfig {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PostgresConfig(hidden)")
    }
}

impl PostgresConfig {
    /// Checks address and sizes, without connecting.
    ///
    /// # Errors
    /// If one is not usable, with the reason and the remedy.
    pub fn check(&self) -> Result<(), StoreError> {
        if !(1..=SHARDS_MAX).contains(&self.shard_count) {
            let text = format!("the store has {} shards; use 1 to {SHARDS_MAX}", self.shard_count);
            return Err(unusable(&text));
        }
        if !(LEAF_BYTES_MIN..=LEAF_BYTES_MAX).contains(&self.leaf_bytes) {
            return Err(unusable(&format!(
                "a table of the log has {} bytes; use {LEAF_BYTES_MIN} to {LEAF_BYTES_MAX}",
                self.leaf_bytes
            )));
        }
        self.connection().map(drop)
    }

    /// Whether the address contains a password, as far as it can be read.
    #[must_use]
    pub fn has_password_in_url(&self) -> bool {
        let config = self.url.parse::<tokio_postgres::Config>();
        config.is_ok_and(|config| config.get_password().is_some())
    }

    /// The parameters of connections.
    pub(crate) fn connection(&self) -> Result<tokio_postgres::Config, StoreError> {
        let mut config: tokio_postgres::Config = self.url.parse().map_err(|_| {
            unusable(
                "the address of the database is not valid; write it as \
                 postgres://user@host:5432/database",
            )
        })?;
        if config.get_hosts().is_empty() && config.get_hostaddrs().is_empty() {
            return Err(unusable("the address of the database names no host"));
        }
        if let Some(password) = &self.password
            && config.get_password().is_none()
        {
            config.password(password);
        }
        // A server on this machine needs no TLS, and often has a certificate that nobody signed.
        if is_on_this_machine(&config) && !self.url.contains("sslmode") {
            config.ssl_mode(SslMode::Disable);
        }
        if !self.i_know && !is_on_this_machine(&config) {
            if config.get_ssl_mode() == SslMode::Disable {
                return Err(unusable(
                    "the database is on another machine, and `sslmode=disable` sends messages and \
                     the password unencrypted; remove it, or set `store.postgres.i_know`",
                ));
            }
            config.ssl_mode(SslMode::Require);
        }
        config
            .application_name("peeklock")
            .connect_timeout(CONNECT_TIMEOUT)
            .tcp_user_timeout(LOST_AFTER)
            .keepalives(true)
            .keepalives_idle(KEEPALIVE)
            .keepalives_interval(KEEPALIVE)
            .keepalives_retries(2)
            .target_session_attrs(TargetSessionAttrs::ReadWrite);
        Ok(config)
    }
}

/// Number of servers that an address names.
fn server_count(config: &tokio_postgres::Config) -> usize {
    config.get_hosts().len().max(config.get_hostaddrs().len())
}

/// Parameters for each server that an address names, in its order. If the numbers of its hosts and
/// ports do not agree, it stays whole: an attempt to connect reports that.
pub fn servers(config: &tokio_postgres::Config) -> Vec<tokio_postgres::Config> {
    let count = server_count(config);
    let (hosts, addresses) = (config.get_hosts(), config.get_hostaddrs());
    let ports = config.get_ports();
    let agrees = |length: usize| length == 0 || length == count;
    if !agrees(hosts.len())
        || !agrees(addresses.len())
        || !(ports.len() == 1 || agrees(ports.len()))
    {
        return vec![config.clone()];
    }
    let server = |at: usize| {
        let mut server = without_server(config);
        match hosts.get(at) {
            Some(Host::Tcp(name)) => {
                server.host(name.as_str());
            }
            #[cfg(unix)]
            Some(Host::Unix(path)) => {
                server.host_path(path);
            }
            None => {}
        }
        if let Some(address) = addresses.get(at) {
            server.hostaddr(*address);
        }
        if let Some(port) = ports.get(at).or_else(|| ports.first()) {
            server.port(*port);
        }
        server
    };
    (0..count).map(server).collect()
}

/// All parameters but the servers.
fn without_server(config: &tokio_postgres::Config) -> tokio_postgres::Config {
    let mut other = tokio_postgres::Config::new();
    if let Some(user) = config.get_user() {
        other.user(user);
    }
    if let Some(password) = config.get_password() {
        other.password(password);
    }
    if let Some(name) = config.get_dbname() {
        other.dbname(name);
    }
    if let Some(options) = config.get_options() {
        other.options(options);
    }
    if let Some(name) = config.get_application_name() {
        other.application_name(name);
    }
    if let Some(time) = config.get_connect_timeout() {
        other.connect_timeout(*time);
    }
    if let Some(time) = config.get_tcp_user_timeout() {
        other.tcp_user_timeout(*time);
    }
    if let Some(interval) = config.get_keepalives_interval() {
        other.keepalives_interval(interval);
    }
    if let Some(retries) = config.get_keepalives_retries() {
        other.keepalives_retries(retries);
    }
    other
        .keepalives(config.get_keepalives())
        .keepalives_idle(config.get_keepalives_idle())
        .ssl_mode(config.get_ssl_mode())
        .ssl_negotiation(config.get_ssl_negotiation())
        .channel_binding(config.get_channel_binding())
        .target_session_attrs(config.get_target_session_attrs())
        .load_balance_hosts(config.get_load_balance_hosts());
    other
}

/// Whether no byte of a connection leaves the machine.
fn is_on_this_machine(config: &tokio_postgres::Config) -> bool {
    let is_local = |host: &Host| match host {
        Host::Tcp(name) => {
            name == "localhost" || name.parse::<IpAddr>().is_ok_and(|address| address.is_loopback())
        }
        #[cfg(unix)]
        Host::Unix(_) => true,
    };
    match config.get_hostaddrs() {
        [] => config.get_hosts().iter().all(is_local),
        addresses => addresses.iter().all(IpAddr::is_loopback),
    }
}

fn unusable(text: &str) -> StoreError {
    StoreError::Failed(text.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(url: &str, i_know: bool) -> Result<SslMode, String> {
        let config = PostgresConfig { url: url.to_owned(), i_know, ..PostgresConfig::default() };
        let connection = config.connection().map_err(|error| error.to_string())?;
        Ok(connection.get_ssl_mode())
    }

    /// CLU-48: connections that leave the machine use TLS.
    #[test]
    fn connections_to_other_machines_need_tls() {
        for local in ["postgres://127.0.0.1/a", "postgres://[::1]/a", "host=/run/postgresql"] {
            assert_eq!(mode(local, false), Ok(SslMode::Disable), "{local}");
        }
        assert_eq!(mode("postgres://127.0.0.1/a?sslmode=require", false), Ok(SslMode::Require));
        assert_eq!(mode("host=localhost sslmode=prefer", false), Ok(SslMode::Prefer));
        for remote in ["postgres://db.example.com/a", "postgres://127.0.0.1,10.0.0.7/a"] {
            assert_eq!(mode(remote, false), Ok(SslMode::Require), "{remote}");
            assert_eq!(mode(remote, true), Ok(SslMode::Prefer), "{remote}");
        }
        let open = "postgres://db.example.com/a?sslmode=disable";
        assert!(mode(open, false).is_err_and(|text| text.contains("store.postgres.i_know")));
        assert_eq!(mode(open, true), Ok(SslMode::Disable));
    }

    /// CLU-47: each server is tried alone, with all parameters of the address.
    #[test]
    fn each_server_has_all_parameters() {
        let url = |hosts: &str| {
            format!(
                "{hosts} user=u password=p dbname=d sslmode=require channel_binding=require \
                 options='-c search_path=s' keepalives_interval=3"
            )
        };
        let split = |hosts: &str| {
            let url = url(hosts);
            let config = PostgresConfig { url, ..PostgresConfig::default() }.connection().unwrap();
            servers(&config)
        };
        let alone = |hosts: &str| {
            let url = url(hosts);
            PostgresConfig { url, ..PostgresConfig::default() }.connection().unwrap()
        };
        let ports = ["host=a port=1", "host=b port=2", "host=/c port=3"].map(alone);
        assert!(split("host=a,b,/c port=1,2,3") == ports);
        let port = ["host=a hostaddr=10.0.0.1 port=7", "host=b hostaddr=10.0.0.2 port=7"];
        assert!(split("host=a,b hostaddr=10.0.0.1,10.0.0.2 port=7") == port.map(alone));
        assert!(split("host=a,b") == ["host=a", "host=b"].map(alone));
        assert!(split("host=a,b,c port=1,2") == [alone("host=a,b,c port=1,2")]);
    }

    #[test]
    fn sizes_out_of_range_are_refused_with_the_range() {
        let url = "postgres://127.0.0.1/a".to_owned();
        let config = PostgresConfig { url, ..PostgresConfig::default() };
        config.check().unwrap();
        for leaf_bytes in [0, LEAF_BYTES_MAX + 1, u64::MAX] {
            let error = PostgresConfig { leaf_bytes, ..config.clone() }.check().unwrap_err();
            assert!(error.to_string().contains("use 65536 to 1073741824"), "{error}");
        }
        for shard_count in [0, 257] {
            let error = PostgresConfig { shard_count, ..config.clone() }.check().unwrap_err();
            assert!(error.to_string().contains("use 1 to 256"), "{error}");
        }
    }

    /// SEC-22: neither errors nor debug output show the password.
    #[test]
    fn password_is_not_shown() {
        let url = "postgres://user:secret@host:nonsense/a".to_owned();
        let config = PostgresConfig { url, ..PostgresConfig::default() };
        assert!(!config.check().unwrap_err().to_string().contains("secret"));
        assert!(!format!("{config:?}").contains("secret"));
    }
}

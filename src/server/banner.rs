//! Banner that is printed when the broker is ready: its addresses, its store, and first commands.
//! `server.rs` prints it to standard output; `bench` reads the addresses from it.

use std::fmt;
use std::net::SocketAddr;
use std::path::Path;

use peeklock::contract::port;
use peeklock::policies::ROOT_POLICY;
use peeklock::time::Timestamp;

use crate::config::{Loaded, TlsSection};

/// Data directory that commands use by default.
const DATA_DIR: &str = "./data";
/// Queue of the first steps.
pub const QUEUE: &str = "hello";

const BOLD: &str = "\u{1b}[1m";
const YELLOW: &str = "\u{1b}[33m";
const PLAIN: &str = "\u{1b}[0m";

/// Address that is served.
pub struct Listener {
    /// Name of the transport.
    pub name: &'static str,
    /// Address with its actual port.
    pub address: SocketAddr,
}

/// TLS mode of the listeners.
pub enum BannerTls {
    /// Without TLS.
    Off,
    /// TLS with a certificate from files.
    Files,
    /// TLS with a certificate of the development authority, whose own certificate is in this file.
    Development(String),
}

/// Content of the banner. The line of a listener has its name and its URL, and programs may parse
/// it.
pub struct Banner<'a> {
    /// Addresses of all transports.
    pub listeners: Vec<Listener>,
    /// Name of the store.
    pub store: &'static str,
    /// Whether messages survive the end of the process.
    pub is_durable: bool,
    /// Directory of the file with the first key.
    pub data_dir: &'a str,
    /// Place of the messages, such as `in ./data`; none for a store of the host.
    pub store_place: Option<String>,
    /// Name of this broker, and the instant since which it owns the messages, if other brokers can
    /// use its store.
    pub owner: Option<(&'a str, Timestamp)>,
    /// TLS mode of the listeners.
    pub tls: BannerTls,
    /// Whether the queue of the first steps is still to be created.
    pub is_new: bool,
    /// Whether clients need a token.
    pub requires_token: bool,
    /// Whether the HTTP listener serves the console.
    pub has_console: bool,
    /// Whether to use colours.
    pub colours: bool,
}

impl BannerTls {
    /// TLS mode of the configured listeners.
    pub fn of(loaded: &Loaded) -> Self {
        let section = &loaded.config.tls;
        match (section.enabled, section.is_development()) {
            (false, _) => Self::Off,
            (true, false) => Self::Files,
            (true, true) => {
                let data_dir = Path::new(&loaded.config.server.data_dir);
                let file = TlsSection::authority(data_dir).authority_file();
                Self::Development(file.display().to_string())
            }
        }
    }

    /// Suffix of a URL scheme.
    const fn secure(&self) -> &'static str {
        match self {
            Self::Off => "",
            Self::Files | Self::Development(_) => "s",
        }
    }
}

impl Banner<'_> {
    fn paint(&self, colour: &'static str) -> &'static str {
        if self.colours { colour } else { "" }
    }
}

impl fmt::Display for Banner<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (bold, yellow, plain) = (self.paint(BOLD), self.paint(YELLOW), self.paint(PLAIN));
        let store = self.store;
        writeln!(f, "{bold}peeklock {}{plain}\n", env!("CARGO_PKG_VERSION"))?;
        for Listener { name, address } in &self.listeners {
            let s = self.tls.secure();
            match *name {
                "websocket" => writeln!(f, "  {name:<10}ws{s}://{address}")?,
                "gateway" => {
                    writeln!(f, "  {name:<10}{address}, for http{s}, ws{s} and amqp{s}")?;
                }
                _ => writeln!(f, "  {name:<10}{name}{s}://{address}")?,
            }
        }
        let http = self.listeners.iter().find(|listener| listener.name == "http");
        if let (Some(Listener { address, .. }), true) = (http, self.has_console) {
            let s = self.tls.secure();
            writeln!(f, "  {:<10}http{s}://{address}/$console/, for a browser", "console")?;
        }
        if self.is_durable {
            let place = self.store_place.as_deref().map(|place| format!(" {place}"));
            let place = place.unwrap_or_default();
            writeln!(f, "  {:<10}{store}{place}, durable at acknowledgement", "store")?;
        } else {
            let loss = "messages are lost when this process ends";
            writeln!(f, "  {:<10}{store}, {yellow}{loss}{plain}", "store")?;
        }
        if let Some((name, since)) = &self.owner {
            writeln!(f, "  {:<10}since {since}, as {name}", "owner")?;
        }
        if let BannerTls::Development(file) = &self.tls {
            writeln!(f, "  {:<10}by the development authority in {file}", "tls")?;
        }
        let Some(http) = http else { return Ok(()) };
        writeln!(
            f,
            "\n{bold}What to try next{plain}\n\n{}",
            Steps { http: http.address, banner: self }
        )
    }
}

/// Notice of a process that stands by, in place of the banner until it owns the messages. No line
/// has the name of a listener, so programs wait for the banner.
pub struct StandbyNotice<'a> {
    /// Name of the broker that owns the messages.
    pub owner: &'a str,
    /// Name of this broker.
    pub name: &'a str,
    /// Address of the probes.
    pub probes: SocketAddr,
    /// TLS mode of the probes.
    pub tls: BannerTls,
    /// Whether to use colours.
    pub colours: bool,
}

impl fmt::Display for StandbyNotice<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { owner, name, probes, tls, colours } = self;
        let [bold, plain] = if *colours { [BOLD, PLAIN] } else { [""; 2] };
        writeln!(f, "{bold}peeklock {}{plain}\n", env!("CARGO_PKG_VERSION"))?;
        writeln!(f, "  {:<10}of {owner}, as {name}", "standby")?;
        writeln!(f, "  {:<10}http{}://{probes}/readyz\n", "probes", tls.secure())
    }
}

/// First steps, to be copied into a shell.
struct Steps<'a> {
    http: SocketAddr,
    banner: &'a Banner<'a>,
}

impl Steps<'_> {
    /// Command that prints a connection string. A broker without durable data has no file with its
    /// first key, so the command asks the broker.
    fn connection_string(&self) -> String {
        let Banner { listeners, is_durable, data_dir, .. } = self.banner;
        let command = "peeklock connection-string";
        if *is_durable {
            return match *data_dir {
                DATA_DIR => command.to_owned(),
                other => format!("{command} --data-dir '{other}'"),
            };
        }
        let websocket = listeners.iter().find(|listener| listener.name == "websocket");
        let usual = port::amqp(!matches!(self.banner.tls, BannerTls::Off));
        let amqp = listeners.iter().find(|listener| listener.name == "amqp");
        let port = match amqp.map(|listener| listener.address.port()) {
            Some(port) if port != usual => format!(" --port {port}"),
            _ => String::new(),
        };
        let url = match websocket.map(|listener| listener.address) {
            Some(address) if address.port() != port::WEBSOCKET || !address.ip().is_loopback() => {
                format!(" --url ws{}://{address}", self.banner.tls.secure())
            }
            _ => String::new(),
        };
        format!("{command} --policy {ROOT_POLICY}{url}{port}")
    }
}

impl fmt::Display for Steps<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Banner { tls, is_new, requires_token, data_dir, .. } = self.banner;
        let mut url = self.http;
        if url.ip().is_unspecified() {
            url.set_ip(std::net::Ipv4Addr::LOCALHOST.into());
        }
        let s = tls.secure();
        let mut curl = match tls {
            BannerTls::Development(file) => format!("curl --cacert '{file}'"),
            BannerTls::Off | BannerTls::Files => "curl".to_owned(),
        };
        if *requires_token {
            curl += " -H \"Authorization: $TOKEN\"";
            let token = format!("TOKEN=$(peeklock token --data-dir '{data_dir}')");
            write!(
                f,
                "  # a token with all rights for one hour; policies grant less (peeklock policy \
                 --help)\n  {token}\n"
            )?;
        }
        if *is_new {
            let create = format!("{curl} -X PUT 'http{s}://{url}/$api/v1/queues/{QUEUE}'");
            write!(f, "  # create a queue\n  {create}\n")?;
        }
        write!(
            f,
            "  # send a message\n  \
             {curl} -d 'two coffees' 'http{s}://{url}/{QUEUE}/messages'\n  \
             # receive it under lock; Location names it\n  \
             LOCKED=$({curl} -s -X POST -D - -o /dev/null 'http{s}://{url}/{QUEUE}/messages/head' |\n    \
             sed -n 's/^[Ll]ocation: //p' | tr -d '\\r')\n  \
             # complete it\n  \
             {curl} -X DELETE \"$LOCKED\"\n  \
             # metrics\n  \
             {curl} 'http{s}://{url}/metrics'\n"
        )?;
        // Reading a key of a broker in memory ends anonymous access, so this step is the last.
        let consequence =
            if self.banner.is_durable { "" } else { " (afterwards every client needs a key)" };
        let command = self.connection_string();
        writeln!(f, "  # the connection string for an Azure SDK{consequence}\n  {command}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn banner(is_durable: bool, colours: bool) -> String {
        let listener = Listener { name: "http", address: "127.0.0.1:5300".parse().unwrap() };
        Banner {
            listeners: vec![listener],
            store: if is_durable { "journal" } else { "memory" },
            is_durable,
            data_dir: "./data",
            store_place: Some("in ./data".to_owned()),
            owner: None,
            tls: BannerTls::Off,
            is_new: true,
            requires_token: false,
            has_console: true,
            colours,
        }
        .to_string()
    }

    fn in_memory() -> Banner<'static> {
        Banner {
            listeners: Vec::new(),
            store: "memory",
            is_durable: false,
            data_dir: "./data",
            store_place: None,
            owner: None,
            tls: BannerTls::Off,
            is_new: true,
            requires_token: false,
            has_console: false,
            colours: false,
        }
    }

    #[test]
    fn the_store_line_reports_durability() {
        let durable = banner(true, false);
        assert!(durable.contains("store     journal in ./data, durable at acknowledgement"));
        assert!(
            banner(false, false)
                .contains("store     memory, messages are lost when this process ends")
        );
    }

    /// CLU-53: banner and notice name the owner in aligned lines. Programs that look for a listener
    /// find none in the notice.
    #[test]
    fn owner_and_standby_have_a_line() {
        let since = Timestamp::parse("2027-01-01T00:00:00Z").unwrap();
        let owner = Banner { owner: Some(("left", since)), ..in_memory() }.to_string();
        assert!(owner.contains("\n  owner     since 2027-01-01T00:00:00Z, as left\n"), "{owner}");
        let probes = "127.0.0.1:5300".parse().unwrap();
        let (tls, colours) = (BannerTls::Files, false);
        let notice = StandbyNotice { owner: "left", name: "right", probes, tls, colours };
        let notice = notice.to_string();
        let probes = "https://127.0.0.1:5300/readyz";
        let lines = format!("\n  standby   of left, as right\n  probes    {probes}\n");
        assert!(notice.contains(&lines), "{notice}");
        let names = ["http", "websocket", "amqp", "gateway"].map(|name| format!("  {name} "));
        assert!(names.iter().all(|name| !notice.contains(name)), "{notice}");
    }

    /// CON-64: the banner names the address of the console, unless it is switched off.
    #[test]
    fn the_banner_names_the_console() {
        let line = "  console   http://127.0.0.1:5300/$console/, for a browser\n";
        assert!(banner(true, false).contains(line));
        let http = Listener { name: "http", address: "127.0.0.1:5300".parse().unwrap() };
        let off = Banner { listeners: vec![http], ..in_memory() }.to_string();
        assert!(!off.contains("console"), "{off}");
    }

    /// SEC-25: the first steps name the command for the connection string, which works as printed,
    /// also for a broker without a file with its first key.
    #[test]
    fn the_first_steps_name_the_connection_string() {
        assert!(banner(true, false).contains("\n  peeklock connection-string\n"));
        let asks = "\n  peeklock connection-string --policy RootManageSharedAccessKey\n";
        assert!(banner(false, false).contains(asks));
        let with_amqp = |port: u16| {
            let amqp = Listener { name: "amqp", address: ([127, 0, 0, 1], port).into() };
            let http = Listener { name: "http", address: "127.0.0.1:5300".parse().unwrap() };
            let listeners = vec![http, amqp];
            Banner { listeners, ..in_memory() }.to_string()
        };
        assert!(with_amqp(5672).contains(asks));
        assert!(with_amqp(6000).contains(&format!("{} --port 6000\n", asks.trim_end())));
    }

    /// SEC-25: if clients need a token, the first steps show how to get one.
    #[test]
    fn the_first_steps_show_a_required_token() {
        let listener = Listener { name: "http", address: "127.0.0.1:5300".parse().unwrap() };
        let banner = |requires_token| {
            let listeners = vec![Listener { name: listener.name, address: listener.address }];
            let (store, data_dir, tls) = ("journal", "./data", BannerTls::Off);
            let (is_durable, is_new, colours) = (true, true, false);
            let has_console = false;
            let store_place = Some("in ./data".to_owned());
            Banner {
                listeners,
                store,
                is_durable,
                data_dir,
                store_place,
                owner: None,
                tls,
                is_new,
                requires_token,
                has_console,
                colours,
            }
            .to_string()
        };
        let (open, closed) = (banner(false), banner(true));
        assert!(!open.contains("Authorization"));
        assert!(closed.contains("TOKEN=$(peeklock token --data-dir './data')"));
        let commands = |text: &str, part: &str| text.matches(part).count();
        assert_eq!(commands(&closed, "-H \"Authorization: $TOKEN\""), commands(&open, "curl"));
    }

    #[test]
    fn plain_text_has_no_colours() {
        assert!(!banner(false, false).contains('\u{1b}'));
        assert!(banner(false, true).contains('\u{1b}'));
    }
}

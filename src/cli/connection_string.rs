//! `peeklock connection-string`: connection strings for clients (SEC-18, SEC-21, SEC-25). `cli.rs`
//! dispatches to it. It works on a running broker, or offline on the files of a data directory.

use std::time::Duration;

use clap::Args;
use hyper::http::uri::Authority;
use peeklock::auth_sas::{ConnectionString, Endpoint};
use peeklock::contract::port;
use peeklock::policies::ROOT_POLICY;
use peeklock::tls::place::{self, Place};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

use super::connect::{ClientKind, Common, Output, Patience};
use super::own::LocalBroker;
use super::policy::KeyFlag;
use super::terminal::{note, object};
use super::{Failure, print};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock connection-string                                  with the key of the root policy
  peeklock connection-string --data-dir /var/lib/peeklock     for a broker that runs as a service
  peeklock connection-string --entity orders --policy shop --host bus.example.com
  peeklock connection-string --host bus.example.com --tls     through a proxy that serves TLS
  PEEKLOCK_CONNECTION_STRING=$(peeklock connection-string) peeklock top

All clients can use the same string: the Azure SDKs and the commands of this program. The port in \
it also serves the administration clients of the SDKs. Most of these need TLS; the clients for .NET \
and Java then connect to port 443, also if the string has another port (see `gateway.address`).

Without --policy the command reads the string from `root.connection-string` in a data directory \
(default: ./data) and asks no broker. Only the owner of the directory can read that file. A note \
on standard error names the file, and warns if no broker runs there. With --policy the command \
asks the broker for the key; this requires the Manage right, and from then on every client needs \
a token. A broker started with --ephemeral has no file: ask it with --policy \
RootManageSharedAccessKey.

UseDevelopmentEmulator=true makes clients connect without TLS: --tls leaves it out, --plain adds \
it. By default, host and TLS come from `http.public_url` if the broker on this machine has one, \
otherwise from the address that this command used.

For a broker on this machine (--data-dir) the port is known. For another broker, the command \
tries the port that it used itself, and then port 5672, or 5671 with TLS. If neither serves AMQP, \
give the port with --port.

",
    exit_codes!()
);

/// Maximum time for a listener to show whether it speaks AMQP.
const ASK_TIMEOUT: Duration = Duration::from_secs(2);
/// First bytes of an AMQP client that uses SASL, which an AMQP listener repeats (AMQP 5.3.1).
const AMQP_BEGIN: [u8; 8] = *b"AMQP\x03\x01\x00\x00";

#[derive(Args)]
pub struct ConnectionStringFlags {
    /// Queue or topic that clients may use, such as `orders` [default: everything]
    #[arg(long, value_name = "PATH")]
    entity: Option<String>,
    /// Policy whose key to use, of that entity, or without --entity of the namespace [default: the
    /// root policy, RootManageSharedAccessKey]
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Key of the policy to use
    #[arg(long, value_name = "KEY", default_value = "primary", requires = "policy")]
    key: KeyFlag,
    /// Clients that the string is for
    #[arg(long = "for", value_name = "CLIENT", default_value = "sdk")]
    client: ClientKind,
    /// Host name for the string, as clients on other machines resolve it, such as bus.example.com
    /// [default: the host that this command used]
    #[arg(long, value_name = "HOST", value_parser = host)]
    host: Option<Box<str>>,
    /// Port for the string, such as the port of a proxy [default: the port of AMQP, or of the
    /// gateway]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    /// Clients connect with TLS, for example to a proxy that terminates it
    #[arg(long, conflicts_with = "plain")]
    tls: bool,
    /// Clients connect without TLS (UseDevelopmentEmulator=true)
    #[arg(long)]
    plain: bool,
    #[command(flatten)]
    common: Common,
}

/// Endpoint for clients, and whether they use TLS.
#[derive(Clone, PartialEq, Eq, Debug)]
struct ClientEndpoint {
    endpoint: Endpoint,
    is_secure: bool,
}

impl ConnectionStringFlags {
    /// Replaces parts of the endpoint by the values of flags.
    fn override_endpoint(&self, found: ClientEndpoint) -> ClientEndpoint {
        let ClientEndpoint { endpoint: Endpoint { host, port }, is_secure } = found;
        let endpoint =
            Endpoint { host: self.host.clone().unwrap_or(host), port: self.port.or(port) };
        ClientEndpoint { endpoint, is_secure: (is_secure || self.tls) && !self.plain }
    }

    /// Connection string in the files of a broker on this machine, and the endpoint for its
    /// clients.
    fn local_endpoint(
        &self,
        own: &LocalBroker,
    ) -> Result<(ConnectionString, ClientEndpoint), Failure> {
        let parse = |text: &str| {
            ConnectionString::parse(text)
                .map_err(|error| Failure::usage(format!("{}: {}", own.source, error.detail())))
        };
        let string = parse(&own.string)?;
        let listened = ClientEndpoint {
            endpoint: string.endpoint.clone(),
            is_secure: !string.use_development_emulator,
        };
        let public = own.public_url.as_deref().and_then(|url| Place::parse(url, place::HTTP));
        let sent = public_endpoint(listened, public.as_ref(), own.is_one_port, self.client);
        Ok((string, self.override_endpoint(sent)))
    }

    /// Endpoint for clients of a broker that this command reaches at `place`.
    fn remote_endpoint(&self, place: &Place) -> Result<ClientEndpoint, Failure> {
        let of_port = |port: Option<u16>| {
            let endpoint = Endpoint { host: place.host().into(), port };
            self.override_endpoint(ClientEndpoint { endpoint, is_secure: place.is_secure })
        };
        if self.client == ClientKind::Peeklock || self.port.is_some() {
            return Ok(of_port(Some(place.port())));
        }
        let usual = port::amqp(place.is_secure);
        let tls = self.common.tls()?;
        let speaks = |place: Place| {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
            let asked =
                async { tokio::time::timeout(ASK_TIMEOUT, speaks_amqp(&place, &tls)).await };
            Ok::<bool, Failure>(runtime.block_on(asked).is_ok_and(|answer| answer.unwrap_or(false)))
        };
        if speaks(place.clone())? {
            return Ok(of_port(Some(place.port())));
        }
        if speaks(place.at_port(usual))? {
            return Ok(of_port(Some(usual)));
        }
        Err(Failure::usage(format!(
            "cannot find the AMQP port of {}: neither {place} nor port {usual} serves AMQP; give \
             the port with --port (see amqp.address, gateway.address), or use --data-dir on the \
             machine of the broker",
            place.host()
        )))
    }
}

/// Endpoint for clients of a broker with a public URL, such as the URL of a proxy: host and TLS
/// come from that URL. The port comes from the URL if it serves all protocols. Otherwise it is the
/// port of the listener, or the default port if the listener has the default port.
fn public_endpoint(
    listened: ClientEndpoint,
    public: Option<&Place>,
    is_one_port: bool,
    client: ClientKind,
) -> ClientEndpoint {
    let Some(public) = public.filter(|_| is_one_port || client == ClientKind::Sdk) else {
        return listened;
    };
    let has_usual_port = listened.endpoint.port == Some(port::amqp(listened.is_secure));
    let port = match (is_one_port, has_usual_port) {
        (true, _) => Some(public.port()),
        (false, true) => Some(port::amqp(public.is_secure)),
        (false, false) => listened.endpoint.port,
    };
    let endpoint = Endpoint { host: public.host().into(), port };
    ClientEndpoint { endpoint, is_secure: public.is_secure }
}

/// Whether a listener answers with the AMQP protocol header.
async fn speaks_amqp(place: &Place, tls: &peeklock::tls::ClientTls) -> std::io::Result<bool> {
    let mut stream = place.connect(tls).await?;
    stream.write_all(&AMQP_BEGIN).await?;
    stream.flush().await?;
    let mut answer = [0; 4];
    stream.read_exact(&mut answer).await?;
    Ok(answer == AMQP_BEGIN[..4])
}

/// Parses a host name or an address without a port.
fn host(text: &str) -> Result<Box<str>, String> {
    let authority: Authority =
        text.parse().map_err(|_| "expected a host name or an address".to_owned())?;
    match authority.host() == text && !text.is_empty() {
        true => Ok(text.into()),
        false => {
            Err("expected only a host name or an address; give the port with --port".to_owned())
        }
    }
}

pub fn run(flags: &ConnectionStringFlags) -> Result<(), Failure> {
    let Some(policy) = &flags.policy else {
        let own = flags.own_key()?;
        let (string, sent) = flags.local_endpoint(&own)?;
        let string = flags.string_for(string, sent);
        return print(&rendered(&string, ROOT_POLICY, flags.common.output));
    };
    let sent = match flags.common.names_data_dir() {
        true => flags.local_endpoint(&flags.common.own()?)?.1,
        false => flags.remote_endpoint(&flags.common.place()?)?,
    };
    flags.common.run(Patience::Limited, async |session| {
        let owner = flags.entity.as_deref().unwrap_or_default();
        let keys = session.client.admin().policy_keys(owner, policy).await?;
        let key = keys.key(flags.key.which());
        let string =
            ConnectionString::of_key(sent.endpoint.clone(), &keys.policy.name, key.reveal());
        let string = flags.string_for(string, sent.clone());
        session.out.print(&rendered(&string, &keys.policy.name, flags.common.output))?;
        session.note_end_of_anonymous_access();
        Ok(())
    })
}

impl ConnectionStringFlags {
    /// The first key of a broker on this machine; notes the file that it comes from.
    fn own_key(&self) -> Result<LocalBroker, Failure> {
        // The local key would not work at another broker.
        if let Some(source) = self.common.broker_source()? {
            return Err(Failure::usage(format!(
                "{source} names a broker, but without --policy this command prints the key of a \
                 data directory on this machine; add `--policy {ROOT_POLICY}` to ask that broker \
                 for the key of its root policy (every client then needs a token), or give a data \
                 directory with --data-dir"
            )));
        }
        let own = self.common.own()?;
        let source = &own.source;
        if own.is_in_use == Some(false) {
            note(&format!(
                "warning: no broker runs in the directory of `{source}`: this key is from a broker \
                 that ran there before; for a broker elsewhere use --data-dir, and for a broker \
                 without storage (--ephemeral) use --policy {ROOT_POLICY}"
            ));
        } else if !self.common.names_data_dir() {
            note(&format!("read from `{source}`; --data-dir selects another directory"));
        }
        Ok(own)
    }

    /// The connection string with this endpoint, restricted to the entity of the flags.
    fn string_for(&self, mut string: ConnectionString, sent: ClientEndpoint) -> ConnectionString {
        string.endpoint = sent.endpoint;
        string.use_development_emulator = !sent.is_secure;
        match &self.entity {
            Some(entity) => string.at_entity(entity.trim_matches('/')),
            None => string,
        }
    }
}

fn rendered(string: &ConnectionString, policy: &str, output: Output) -> String {
    let text = string.reveal();
    if output == Output::Table {
        return format!("{text}\n");
    }
    object(&json!({ "policy": policy, "connectionString": text }).to_string(), output)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sent(host: &str, port: Option<u16>, is_secure: bool) -> ClientEndpoint {
        ClientEndpoint { endpoint: Endpoint { host: host.into(), port }, is_secure }
    }

    /// SEC-21, LIS-05: the string follows the public URL of the broker: its host, its use of TLS,
    /// and its port if that serves all protocols.
    #[test]
    fn a_string_follows_the_public_url() {
        use ClientKind::{Peeklock, Sdk};
        let secure = Place::parse("https://bus.test", place::HTTP);
        let plain = Place::parse("http://bus.test:8080/", place::HTTP);
        let usual = sent("localhost", Some(5672), false);
        let other = sent("127.0.0.1", Some(7), true);
        for (listened, public, is_gateway, client, expected) in [
            (&usual, None, false, Sdk, usual.clone()),
            (&usual, secure.as_ref(), false, Sdk, sent("bus.test", Some(5671), true)),
            (&other, plain.as_ref(), false, Sdk, sent("bus.test", Some(7), false)),
            (&usual, secure.as_ref(), false, Peeklock, usual.clone()),
            (&other, secure.as_ref(), true, Sdk, sent("bus.test", Some(443), true)),
            (&other, plain.as_ref(), true, Peeklock, sent("bus.test", Some(8080), false)),
        ] {
            assert_eq!(public_endpoint(listened.clone(), public, is_gateway, client), expected);
        }
    }
}

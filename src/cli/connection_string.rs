//! `peeklock connection-string`: what clients are given to reach the broker (SEC-18, SEC-25).

use clap::Args;
use hyper::http::uri::Authority;
use peeklock::auth_sas::{ConnectionString, Endpoint};
use peeklock::policies::ROOT_POLICY;
use serde_json::json;

use super::connect::{ClientKind, Common, Output, Patience};
use super::policy::KeyFlag;
use super::terminal::object;
use super::{Failure, say};

pub const HELP: &str = concat!(
    "\
Examples:
  peeklock connection-string                                  that of the first policy
  peeklock connection-string --data-dir /var/lib/peeklock     the same of a service
  peeklock connection-string --entity orders --policy shop --host bus.example.com
  PEEKLOCK_CONNECTION_STRING=$(peeklock connection-string --for peeklock) peeklock top

Without --policy nothing is asked of the broker: it is read from `root.connection-string` in its data directory, which its \
owner alone can read (default: ./data). It says UseDevelopmentEmulator=true where the broker speaks no TLS. With --policy the broker is asked for the keys, which takes the right Manage; once \
they were told, nobody is let in without a token, for good.

It names no port where clients look by themselves: Azure SDKs at 5672, or 5671 with TLS, commands of this program at 5301. With --policy the host \
is the one by which this command has reached the broker, unless --host names another.

",
    exit_codes!()
);

#[derive(Args)]
pub struct ConnectionStringFlags {
    /// Queue or topic that it is for [default: everything]
    #[arg(long, value_name = "PATH")]
    entity: Option<String>,
    /// Policy of that entity, or without one of the namespace [default: the first one of the namespace]
    #[arg(long, value_name = "NAME")]
    policy: Option<String>,
    /// Which of its keys
    #[arg(long, value_name = "KEY", default_value = "primary", requires = "policy")]
    key: KeyFlag,
    /// Which clients it is for
    #[arg(long = "for", value_name = "CLIENT", default_value = "sdk")]
    client: ClientKind,
    /// Host that it names, as clients on other machines know the broker [default: that by which this command has reached it]
    #[arg(long, value_name = "HOST", value_parser = host)]
    host: Option<Box<str>>,
    /// Port that it names, such as that of a proxy [default: that of the listener]
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    port: Option<u16>,
    #[command(flatten)]
    common: Common,
}

impl ConnectionStringFlags {
    /// The place as the string names it.
    fn named(&self, found: Endpoint) -> Endpoint {
        Endpoint { host: self.host.clone().unwrap_or(found.host), port: self.port.or(found.port) }
    }
}

/// A name or an address, without a port.
fn host(text: &str) -> Result<Box<str>, String> {
    let authority: Authority = text.parse().map_err(|_| "that is no host".to_owned())?;
    match authority.host() == text && !text.is_empty() {
        true => Ok(text.into()),
        false => Err("it is a name or an address alone; --port names the port".to_owned()),
    }
}

pub fn run(flags: &ConnectionStringFlags) -> Result<(), Failure> {
    let Some(policy) = &flags.policy else {
        let mut string = flags.common.first_key(flags.client)?;
        string.endpoint = flags.named(string.endpoint);
        if let Some(entity) = &flags.entity {
            string = string.at_entity(entity.trim_matches('/'));
        }
        return say(&told(&string, ROOT_POLICY, flags.common.output));
    };
    let (mut endpoint, is_secure) = (flags.common.endpoint()?, flags.common.is_secure()?);
    if flags.client == ClientKind::Sdk {
        // This command came another way; where AMQP is served it is not told.
        endpoint.port = None;
    }
    let endpoint = flags.named(endpoint);
    flags.common.run(Patience::Limited, async |session| {
        let owner = flags.entity.as_deref().unwrap_or_default();
        let keys = session.client.admin().policy_keys(owner, policy).await?;
        let key = flags.key.of(&keys);
        let mut string =
            ConnectionString::of_key(endpoint.clone(), &keys.policy.name, key.reveal());
        if !is_secure {
            string = string.without_tls();
        }
        if let Some(entity) = &flags.entity {
            string = string.at_entity(entity.trim_matches('/'));
        }
        session.out.say(&told(&string, &keys.policy.name, flags.common.output))
    })
}

fn told(string: &ConnectionString, policy: &str, output: Output) -> String {
    let text = string.reveal();
    if output == Output::Table {
        return format!("{text}\n");
    }
    object(&json!({ "policy": policy, "connectionString": text }).to_string(), output)
}

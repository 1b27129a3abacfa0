//! The broker under load, and its resource use. Every load gets its clients and its resource
//! figures here.

use std::path::PathBuf;
use std::time::Duration;

use peeklock::description::Settings;
use peeklock::store::{Journal, JournalConfig};
use peeklock::tls::ClientTls;
use peeklock::websocket::Encoding;
use peeklock::{Broker, JourneysConfig, SamplesConfig};

use super::client::Client;
use super::client::amqp::Amqp;
use super::client::http::Http;
use super::plan::{Load, Over, Plan};
use super::process::Process;
use super::served::{Served, ServedSettings};
use super::{BenchError, Scratch};
use peeklock::tls::place::{self, Place};

/// Connections in addition to those of the load.
const SPARE_CONNECTIONS: u64 = 64;

/// The broker. Its parts end before its directory is removed.
pub struct Target {
    kind: Kind,
    scratch: Option<Scratch>,
    /// Trusted authorities and client certificates for a given broker.
    tls: ClientTls,
}

enum Kind {
    Served(Served),
    Running(String),
    InProcess(Broker),
}

impl Target {
    /// Starts a broker for the plan, or uses the given one.
    pub async fn start(plan: &Plan) -> Result<Self, BenchError> {
        if let Some(url) = &plan.url {
            let tls = plan.tls.clone();
            return Ok(Self { kind: Kind::Running(url.clone()), scratch: None, tls });
        }
        let scratch = Scratch::within(&plan.place)?;
        let of_clients = 2 * plan.clients as u64 * plan.window as u64;
        let connections = if plan.load == Load::Connections { plan.count } else { of_clients };
        let queues = if plan.load == Load::Queues { plan.count } else { 1 };
        let queues = queues.max(10_000);
        let kind = if plan.over == Over::InProcess {
            let mut settings = Settings::default();
            settings.limits.entity_count_max = usize::try_from(queues).unwrap_or(usize::MAX);
            let mut builder = Broker::builder().settings(settings);
            if plan.has_journeys {
                builder = builder.journeys(JourneysConfig::default());
                builder = builder.samples(SamplesConfig::default());
            }
            if plan.is_durable() == Some(true) {
                let path = scratch.at("journal");
                builder = builder.store(Journal::open(&path, JournalConfig::default())?);
            }
            Kind::InProcess(builder.start().await?)
        } else {
            let of = |transports: &[Over]| match transports.contains(&plan.over) {
                true => connections + SPARE_CONNECTIONS,
                false => SPARE_CONNECTIONS,
            };
            let settings = ServedSettings {
                ephemeral: plan.is_durable() == Some(false),
                connections: [
                    of(&[Over::Websocket, Over::WebsocketJson]),
                    of(&[Over::Http]),
                    of(&[Over::Amqp]),
                ],
                queues,
                has_journeys: plan.has_journeys,
            };
            Kind::Served(Served::start(&scratch.at(""), &settings).await?)
        };
        Ok(Self { kind, scratch: Some(scratch), tls: plan.tls.clone() })
    }

    /// A path in the directory of the load.
    pub fn place(&self, name: &str) -> PathBuf {
        self.scratch.as_ref().map_or_else(|| PathBuf::from(name), |scratch| scratch.at(name))
    }

    /// Connects a new client.
    pub async fn connect(&self, over: Over) -> Result<Client, BenchError> {
        let websocket_url;
        let [websocket, http, amqp] = match &self.kind {
            Kind::InProcess(broker) => {
                return Ok(Client::in_process(broker));
            }
            Kind::Served(served) => [&served.urls.websocket, &served.urls.http, &served.urls.amqp],
            Kind::Running(url) => {
                let amqp = Place::parse(url, place::AMQP);
                websocket_url = amqp.map_or_else(|| url.clone(), |amqp| amqp.url(place::WEBSOCKET));
                [&websocket_url, url, url]
            }
        };
        let tls = &self.tls;
        match over {
            Over::Websocket => Client::websocket(websocket, Encoding::Binary, tls).await,
            Over::WebsocketJson => Client::websocket(websocket, Encoding::Json, tls).await,
            Over::Amqp => Ok(Client::Amqp(Amqp::connect(amqp, websocket, tls).await?)),
            Over::Http | Over::InProcess => Ok(Client::Http(Http::new(http, tls)?)),
        }
    }

    /// The process of the broker; none for a given broker.
    pub fn process(&self) -> Option<Process> {
        match &self.kind {
            Kind::Served(served) => Some(served.process()),
            Kind::Running(_) => None,
            Kind::InProcess(_) => Some(Process::own()),
        }
    }

    /// The name of the process whose CPU and memory are reported.
    pub const fn measured_process(&self) -> &'static str {
        match &self.kind {
            Kind::Served(_) => "broker",
            Kind::Running(_) => "unknown: the broker was not started by this command",
            Kind::InProcess(_) => "broker and load together",
        }
    }

    /// Ends a broker that the load started, and removes its files.
    pub async fn stop(self) {
        if let Kind::InProcess(broker) = &self.kind
            && let Err(error) = broker.stop(Duration::ZERO).await
        {
            tracing::warn!(%error, "the broker of the load did not stop cleanly");
        }
    }
}

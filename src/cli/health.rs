//! `peeklock health`: asks a broker whether it can work, for what watches over it and has no other client, such as an
//! image without a shell.

use std::fs;
use std::io::ErrorKind;
use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, header};
use peeklock::tls::ClientTls;

use super::identity::TlsFiles;
use super::terminal::line;
use super::{Failure, exit, say};
use crate::config::TlsSection;
use crate::http;
use crate::place::{self, Place};
use crate::server::HTTP_URL_FILE;

pub const HELP: &str = "\
Examples:
  peeklock health                                             the broker with its data in ./data
  peeklock health --data-dir /var/lib/peeklock                a broker that runs as a service
  peeklock health --url https://localhost:5300 --ca ./data/tls/authority.pem
  peeklock health --timeout 1s || systemctl restart peeklock

The command reads the HTTP address of the broker from the file `http-url` in the data directory \
(--data-dir or PEEKLOCK__SERVER__DATA_DIR). Without that file it uses http://127.0.0.1:5300. It \
trusts the development authority in that directory.

It requests `/readyz`, which needs no token. A broker is ready if it has opened its store, has \
not failed, is not stopping, and no worker thread has been busy with one entity for more than a \
second.

A broker with a full store is ready but degraded: it refuses new messages until consumers free \
space. The output reports this, and the exit code stays 0, because a restart would not help. \
Alert on the metric `peeklock_store_full`.

Exit codes:
  0  ready
  1  not ready; the output has the reason
  2  usage, or `http-url` cannot be read
  7  the broker cannot be reached, or did not answer in time";

/// Where a broker serves HTTP that says nothing else.
const DEFAULT_URL: &str = "http://127.0.0.1:5300";
/// More is not read of an answer.
const ANSWER_BYTES_MAX: usize = 4 << 10;

#[derive(Args)]
pub struct HealthFlags {
    /// HTTP address of the broker, such as http://127.0.0.1:5300 [default: read from its data
    /// directory]
    #[arg(long, value_name = "URL", env = "PEEKLOCK_HEALTH_URL", hide_env_values = true)]
    url: Option<String>,
    /// Data directory of the broker [default: ./data]
    #[arg(
        long,
        value_name = "DIR",
        env = "PEEKLOCK__SERVER__DATA_DIR",
        hide_env_values = true,
        default_value = "./data",
        hide_default_value = true
    )]
    data_dir: PathBuf,
    #[command(flatten)]
    files: TlsFiles,
    /// Maximum time to wait for the answer
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    timeout: Duration,
}

/// Where to ask, and as whom the broker is known by its certificate.
struct Asked {
    url: String,
    name: Option<String>,
    authorities: Vec<PathBuf>,
}

impl HealthFlags {
    fn asked(&self) -> Result<Asked, Failure> {
        if let Some(url) = &self.url {
            return Ok(Asked { url: url.clone(), name: None, authorities: Vec::new() });
        }
        let file = self.data_dir.join(HTTP_URL_FILE);
        let told = match fs::read_to_string(&file) {
            Ok(told) => told,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            // Where nobody says so, another broker may be at the usual address.
            Err(error) => {
                let text = format!(
                    "`{}`, which has the HTTP address of the broker, cannot be read: {error}",
                    file.display()
                );
                let hint = "give the address with --url, or run this as the user of the broker";
                return Err(Failure::usage(text).hint(hint));
            }
        };
        let mut told = told.split_whitespace().map(str::to_owned);
        let url = told.next().unwrap_or_else(|| DEFAULT_URL.to_owned());
        let authority = TlsSection::authority(&self.data_dir).authority_file();
        Ok(Asked {
            url,
            name: told.next(),
            authorities: authority.exists().then_some(authority).into_iter().collect(),
        })
    }
}

pub fn run(flags: &HealthFlags) -> Result<(), Failure> {
    let Asked { url, name, authorities } = flags.asked()?;
    let place = Place::parse(&url, place::HTTP).ok_or_else(|| {
        Failure::usage(format!(
            "--url: `{url}` must have the form http://HOST:PORT or https://HOST:PORT"
        ))
    })?;
    let place = match name {
        Some(name) => place.known_as(name),
        None => place,
    };
    let tls = flags.files.client(&authorities)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let asked =
        runtime.block_on(async { tokio::time::timeout(flags.timeout, ask(&place, &tls)).await });
    let unreachable = |why: String| Failure::ended(exit::NO_CONNECTION, format!("{url}: {why}"));
    let late = || format!("no answer within {}", humantime::format_duration(flags.timeout));
    match asked.unwrap_or_else(|_| Err(late())) {
        Ok(Answer { is_ready: true, text }) => say(&format!("{}\n", line(text.trim()))),
        Ok(Answer { text, .. }) => Err(Failure::Failed(format!("{url}: {}", text.trim()))),
        Err(why) => Err(unreachable(why)),
    }
}

struct Answer {
    is_ready: bool,
    text: String,
}

async fn ask(place: &Place, tls: &ClientTls) -> Result<Answer, String> {
    let stream = place.connect(tls).await.map_err(|error| error.to_string())?;
    let text = |error: hyper::Error| error.to_string();
    let mut requests = http::open(stream).await.map_err(text)?;
    let request = Request::get("/readyz")
        .header(header::HOST, place.to_string())
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let answer = requests.send_request(request).await.map_err(text)?;
    let is_ready = answer.status().is_success();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    Ok(Answer { is_ready, text: String::from_utf8_lossy(&body).into_owned() })
}

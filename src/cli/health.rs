//! `peeklock health`: asks a broker whether it is ready, for supervisors without another client,
//! such as a container image without a shell.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::time::Duration;

use clap::Args;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Request, header};
use hyper_util::rt::TokioIo;
use peeklock::condition::Condition;
use peeklock::tls::ClientTls;
use peeklock::tls::place::{self, Place, Schemes};
use peeklock::websocket::client::{ClientOptions, connect_with};

use super::identity::TlsFiles;
use super::terminal::line;
use super::{Failure, exit, print, variable};
use crate::config::TlsSection;
use crate::server::HTTP_URL_FILE;

pub const HELP: &str = "\
Examples:
  peeklock health                                             the broker with its data in ./data
  peeklock health --data-dir /var/lib/peeklock                a broker that runs as a service
  peeklock health --url https://localhost:5300 --ca ./data/tls/authority.pem
  peeklock health --timeout 1s || systemctl restart peeklock

The command asks the broker of the first of these that is set: --url or PEEKLOCK_HEALTH_URL, \
--data-dir or PEEKLOCK__SERVER__DATA_DIR, PEEKLOCK_URL, ./data. In a data directory, it reads the \
HTTP address from the file `http-url`, and trusts the development authority. Without that file it \
uses http://127.0.0.1:5300.

PEEKLOCK_URL is an address for WebSocket, as in other commands: the broker is ready if it welcomes \
a client there. At an address for HTTP, the command requests `/readyz`, which needs no token. A broker is ready if it has opened its store, has \
not failed, is not stopping, its database answers if it has one, it does not stand by for another \
broker, and no worker thread has been busy with one entity for more than a second.

A broker with a full store is ready but degraded: it refuses new messages until consumers free \
space. The output reports this, and the exit code stays 0, because a restart would not help. \
Alert on the metric `peeklock_store_full`.

Exit codes:
  0  ready
  1  not ready; the output has the reason
  2  usage, or `http-url` cannot be read
  7  the broker cannot be reached, or did not answer in time";

/// Default HTTP address of a broker.
const DEFAULT_URL: &str = "http://127.0.0.1:5300";
const DEFAULT_DATA_DIR: &str = "./data";
/// Maximum bytes that are read of an answer.
const ANSWER_BYTES_MAX: usize = 4 << 10;
/// Maximum number of bytes that are read ahead.
const READ_BYTES_MAX: usize = 16 << 10;

#[derive(Args)]
pub struct HealthFlags {
    /// HTTP address of the broker, such as http://127.0.0.1:5300 [default: read from its data
    /// directory]
    #[arg(long, value_name = "URL", env = "PEEKLOCK_HEALTH_URL", hide_env_values = true)]
    url: Option<String>,
    /// Data directory of the broker [default: ./data, unless PEEKLOCK_URL is set]
    #[arg(long, value_name = "DIR", env = "PEEKLOCK__SERVER__DATA_DIR", hide_env_values = true)]
    data_dir: Option<PathBuf>,
    #[command(flatten)]
    files: TlsFiles,
    /// Maximum time to wait for the answer
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    timeout: Duration,
}

/// Address to ask.
struct HealthTarget {
    url: String,
    /// Flag, variable or file that names the address.
    source: &'static str,
    schemes: Schemes,
    /// Name in the certificate, if it differs from the host.
    name: Option<String>,
    authorities: Vec<PathBuf>,
}

impl HealthFlags {
    fn health_target(&self) -> Result<HealthTarget, Failure> {
        let of_url = |url: &str, source: &'static str, schemes: Schemes| HealthTarget {
            url: url.to_owned(),
            source,
            schemes,
            name: None,
            authorities: Vec::new(),
        };
        if let Some(url) = &self.url {
            return Ok(of_url(url, "--url", place::HTTP));
        }
        if self.data_dir.is_none()
            && let Some(url) = variable("PEEKLOCK_URL")?
        {
            return Ok(of_url(url.trim(), "PEEKLOCK_URL", place::WEBSOCKET));
        }
        let data_dir = self.data_dir.as_deref().unwrap_or(Path::new(DEFAULT_DATA_DIR));
        let file = data_dir.join(HTTP_URL_FILE);
        let text = match fs::read_to_string(&file) {
            Ok(text) => text,
            Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
            // If the file exists but cannot be read, another broker may have the default address.
            Err(error) => {
                let text = format!(
                    "`{}`, which has the HTTP address of the broker, cannot be read: {error}",
                    file.display()
                );
                let hint = "give the address with --url, or run this as the user of the broker";
                return Err(Failure::usage(text).hint(hint));
            }
        };
        let mut text = text.split_whitespace().map(str::to_owned);
        let url = text.next().unwrap_or_else(|| DEFAULT_URL.to_owned());
        let authority = TlsSection::authority(data_dir).authority_file();
        Ok(HealthTarget {
            name: text.next(),
            authorities: authority.exists().then_some(authority).into_iter().collect(),
            ..of_url(&url, HTTP_URL_FILE, place::HTTP)
        })
    }
}

pub fn run(flags: &HealthFlags) -> Result<(), Failure> {
    let HealthTarget { url, source, schemes, name, authorities } = flags.health_target()?;
    let place = Place::parse(&url, schemes).ok_or_else(|| {
        let [plain, secure] = schemes;
        Failure::usage(format!(
            "{source}: `{url}` must have the form {plain}://HOST:PORT or {secure}://HOST:PORT"
        ))
    })?;
    let place = match name {
        Some(name) => place.known_as(name),
        None => place,
    };
    let tls = flags.files.client(&authorities)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let asked = runtime.block_on(async {
        let asked = async {
            if schemes == place::WEBSOCKET {
                connect_websocket(&url, tls).await
            } else {
                ask(&place, &tls).await
            }
        };
        tokio::time::timeout(flags.timeout, asked).await
    });
    let unreachable = |why: String| Failure::ended(exit::NO_CONNECTION, format!("{url}: {why}"));
    let late = || format!("no answer within {}", humantime::format_duration(flags.timeout));
    match asked.unwrap_or_else(|_| Err(late())) {
        Ok(Answer { is_ready: true, text }) => print(&format!("{}\n", line(text.trim()))),
        Ok(Answer { text, .. }) => Err(Failure::Failed(format!("{url}: {}", text.trim()))),
        Err(why) => Err(unreachable(why)),
    }
}

struct Answer {
    is_ready: bool,
    text: String,
}

/// Opens a connection over WebSocket without a token.
async fn connect_websocket(url: &str, tls: ClientTls) -> Result<Answer, String> {
    let mut options = ClientOptions::default();
    options.tls = tls;
    let ready = || Answer { is_ready: true, text: "ready".to_owned() };
    match connect_with(url, options).await {
        Ok(client) => {
            client.close().await;
            Ok(ready())
        }
        // The broker is ready, and requires a token.
        Err(error) if error.condition() == Condition::Unauthorized => Ok(ready()),
        Err(error) => Err(error.detail().to_owned()),
    }
}

async fn ask(place: &Place, tls: &ClientTls) -> Result<Answer, String> {
    let stream = place.connect(tls).await.map_err(|error| error.to_string())?;
    let text = |error: hyper::Error| error.to_string();
    let (mut requests, connection) = http1::Builder::new()
        .max_buf_size(READ_BYTES_MAX)
        .handshake(TokioIo::new(stream))
        .await
        .map_err(text)?;
    // The request fails too, and reports why.
    tokio::spawn(async move { connection.await.ok() });
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

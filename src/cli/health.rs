//! `peeklock health`: asks a broker whether it can work, for what watches over it and has no other client, such as an
//! image without a shell.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, header};
use peeklock::tls::{ClientTls, certificates};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;

use super::{Failure, exit, say};
use crate::http;

pub const HELP: &str = "\
Examples:
  peeklock health                                             the broker on this machine, at http://127.0.0.1:5300
  peeklock health --url https://localhost:5300 --ca ./data/tls/authority.pem
  peeklock health --timeout 1s || systemctl restart peeklock

It asks for `/readyz`, which takes no key: the broker has opened its store, has not failed, is not stopping, and no thread \
that serves entities has been at one entity for a second.

Exit codes:
  0  it can work
  1  it cannot, and says why
  2  usage
  7  it cannot be reached, or has not answered in time";

/// More is not read of an answer.
const ANSWER_BYTES_MAX: usize = 4 << 10;

#[derive(Args)]
pub struct HealthFlags {
    /// Where it serves HTTP
    #[arg(
        long,
        value_name = "URL",
        default_value = "http://127.0.0.1:5300",
        env = "PEEKLOCK_HEALTH_URL",
        hide_env_values = true
    )]
    url: String,
    /// Certificate of an authority to trust beside those of the system, in PEM form
    #[arg(long, value_name = "FILE", env = "PEEKLOCK_CA", hide_env_values = true)]
    ca: Option<PathBuf>,
    /// How long to wait for the answer
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    timeout: Duration,
}

pub fn run(flags: &HealthFlags) -> Result<(), Failure> {
    let place = Place::parse(&flags.url)?;
    let mut tls = ClientTls::of_system();
    if let Some(file) = &flags.ca {
        let trusted = certificates(file).map_err(|error| Failure::usage(error.to_string()))?;
        tls = tls.trusting(trusted);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let asked =
        runtime.block_on(async { tokio::time::timeout(flags.timeout, ask(&place, &tls)).await });
    let unreachable =
        |why: String| Failure::ended(exit::NO_CONNECTION, format!("{}: {why}", flags.url));
    let late = || format!("no answer within {}", humantime::format_duration(flags.timeout));
    match asked.unwrap_or_else(|_| Err(late())) {
        Ok(Answer { is_ready: true, .. }) => say("ready\n"),
        Ok(Answer { text, .. }) => Err(Failure::Failed(format!("{}: {}", flags.url, text.trim()))),
        Err(why) => Err(unreachable(why)),
    }
}

/// Where to ask.
struct Place {
    host: String,
    port: u16,
    is_secure: bool,
}

impl Place {
    fn parse(url: &str) -> Result<Self, Failure> {
        let wrong = || {
            Failure::usage(format!(
                "--url: `{url}` is not of the form http://HOST:PORT or https://HOST:PORT"
            ))
        };
        let uri: hyper::Uri = url.parse().map_err(|_| wrong())?;
        let is_secure = match uri.scheme_str() {
            Some("https") => true,
            Some("http") => false,
            _ => return Err(wrong()),
        };
        let host = uri.host().ok_or_else(wrong)?.to_owned();
        let authority = uri.authority().map_or("", |it| it.as_str());
        let port = match uri.port_u16() {
            Some(port) => port,
            None if authority != host => return Err(wrong()),
            None if is_secure => 443,
            None => 80,
        };
        Ok(Self { host, port, is_secure })
    }
}

struct Answer {
    is_ready: bool,
    text: String,
}

async fn ask(place: &Place, tls: &ClientTls) -> Result<Answer, String> {
    let bare = place.host.trim_matches(['[', ']']);
    let socket = TcpStream::connect((bare, place.port)).await.map_err(|error| error.to_string())?;
    if !place.is_secure {
        return ask_over(place, socket).await;
    }
    let stream = tls.connect(&place.host, socket).await.map_err(|error| error.to_string())?;
    ask_over(place, stream).await
}

async fn ask_over(
    place: &Place,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
) -> Result<Answer, String> {
    let text = |error: hyper::Error| error.to_string();
    let mut requests = http::open(stream).await.map_err(text)?;
    let request = Request::get("/readyz")
        .header(header::HOST, format!("{}:{}", place.host, place.port))
        .header(header::CONNECTION, "close")
        .body(Empty::<Bytes>::new())
        .map_err(|error| error.to_string())?;
    let answer = requests.send_request(request).await.map_err(text)?;
    let is_ready = answer.status().is_success();
    let body = Limited::new(answer.into_body(), ANSWER_BYTES_MAX).collect().await;
    let body = body.map(|body| body.to_bytes()).unwrap_or_default();
    Ok(Answer { is_ready, text: String::from_utf8_lossy(&body).into_owned() })
}

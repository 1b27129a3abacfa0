//! `peeklock health`: asks a broker whether it can work, for what watches over it and has no other client, such as an
//! image without a shell.

use std::time::Duration;

use clap::Args;
use http_body_util::{BodyExt as _, Empty, Limited};
use hyper::body::Bytes;
use hyper::{Request, header};
use peeklock::tls::ClientTls;

use super::identity::TlsFiles;
use super::{Failure, exit, say};
use crate::http;
use crate::place::{self, Place};

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
    #[command(flatten)]
    files: TlsFiles,
    /// How long to wait for the answer
    #[arg(long, value_name = "TIME", default_value = "5s", value_parser = humantime::parse_duration)]
    timeout: Duration,
}

pub fn run(flags: &HealthFlags) -> Result<(), Failure> {
    let place = Place::parse(&flags.url, place::HTTP).ok_or_else(|| {
        let url = &flags.url;
        Failure::usage(format!(
            "--url: `{url}` is not of the form http://HOST:PORT or https://HOST:PORT"
        ))
    })?;
    let tls = flags.files.client(&[])?;
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

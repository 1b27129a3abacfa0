//! The server of `cargo run --example browser`: a broker in memory over WebSocket, and a page with
//! the client for browsers. The page has another port than the broker, so the broker must allow its
//! origin (SEC-23).

use std::io;
use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use actix_web::dev::ServerHandle;
use actix_web::http::header;
use actix_web::{App, HttpRequest, HttpResponse, HttpServer, web};
use peeklock::Broker;
use peeklock::contract::{RunningTransport, Transport};
use peeklock::websocket::{WebSocketConfig, WebSocketTransport, js};

/// A running broker and page.
pub struct Served {
    pub broker: Broker,
    pub page: SocketAddr,
    websocket: Box<dyn RunningTransport>,
    server: ServerHandle,
}

impl Served {
    /// Starts both at two loopback addresses.
    pub async fn start(page: SocketAddr, websocket: SocketAddr) -> Result<Self, crate::Failure> {
        let listener = TcpListener::bind(page)?;
        let page = listener.local_addr()?;
        let broker = Broker::builder().start().await?;
        let mut config = WebSocketConfig::at(websocket);
        config.allowed_origins = hosts(page).map(|host| format!("http://{host}")).into();
        let transport = Box::new(WebSocketTransport::new(config));
        let websocket = transport.start(broker.clone()).await?;
        let server = serve_page(listener, page, websocket.local_address())?;
        Ok(Self { broker, page, websocket, server })
    }

    /// Returns the WebSocket address of the broker.
    pub fn broker_address(&self) -> SocketAddr {
        self.websocket.local_address()
    }

    /// Stops everything.
    pub async fn stop(self) -> Result<(), crate::Failure> {
        self.server.stop(false).await;
        self.websocket.stop(Duration::from_secs(1)).await;
        Ok(self.broker.stop(Duration::ZERO).await?)
    }
}

/// Returns the names under which a browser on this machine reaches an address.
fn hosts(address: SocketAddr) -> [String; 2] {
    [address.to_string(), format!("localhost:{}", address.port())]
}

fn serve_page(
    listener: TcpListener,
    page: SocketAddr,
    websocket: SocketAddr,
) -> io::Result<ServerHandle> {
    let broker = web::Data::new(websocket);
    let hosts = web::Data::new(hosts(page));
    let app = move || {
        App::new().app_data(broker.clone()).app_data(hosts.clone()).default_service(web::to(answer))
    };
    let server = HttpServer::new(app).workers(1).disable_signals().listen(listener)?.run();
    let handle = server.handle();
    tokio::spawn(server);
    Ok(handle)
}

async fn answer(
    request: HttpRequest,
    broker: web::Data<SocketAddr>,
    hosts: web::Data<[String; 2]>,
) -> HttpResponse {
    let host = request.headers().get(header::HOST).and_then(|host| host.to_str().ok());
    if !host.is_some_and(|host| hosts.iter().any(|known| known == host)) {
        return HttpResponse::MisdirectedRequest().finish();
    }
    let Some((kind, text)) = file(request.path(), **broker) else {
        return HttpResponse::NotFound().finish();
    };
    // Only the page's own scripts run, and they connect only to its broker.
    let policy = format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src data:; \
         connect-src 'self' ws://{}; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
        **broker
    );
    HttpResponse::Ok()
        .insert_header((header::CONTENT_TYPE, kind))
        .insert_header((header::CONTENT_SECURITY_POLICY, policy))
        .insert_header((header::X_CONTENT_TYPE_OPTIONS, "nosniff"))
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .body(text)
}

/// Returns the media type and the text of a file.
fn file(path: &str, broker: SocketAddr) -> Option<(&'static str, String)> {
    const SCRIPT: &str = "text/javascript; charset=utf-8";
    Some(match path {
        "/" => ("text/html; charset=utf-8", include_str!("index.html").to_owned()),
        "/style.css" => ("text/css; charset=utf-8", include_str!("style.css").to_owned()),
        "/page.js" => (SCRIPT, include_str!("page.js").to_owned()),
        "/broker.json" => ("application/json", format!("{{\"url\":\"ws://{broker}/\"}}")),
        _ => {
            let name = path.strip_prefix("/client/")?;
            let (_, text) = js::MODULES.iter().find(|(module, _)| *module == name)?;
            (SCRIPT, (*text).to_owned())
        }
    })
}

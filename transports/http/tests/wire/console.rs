//! Files of the console under `/$console`, which a hook provides.

use std::sync::Arc;

use actix_web::web::Bytes;
use peeklock_http::{ConsoleFile, ConsoleHook};

use super::server::{Plan, Server};

const POLICY: &str = "default-src 'none'";

/// A console with a document and a file that never changes.
fn hook() -> ConsoleHook {
    Arc::new(|path| {
        let (content_type, is_immutable, content) = match path {
            "" => ("text/html; charset=utf-8", false, "<!doctype html>"),
            "0123/main.js" => ("text/javascript; charset=utf-8", true, "export {};"),
            _ => return None,
        };
        let headers = &[("Content-Security-Policy", POLICY), ("Referrer-Policy", "no-referrer")];
        Some(ConsoleFile {
            content_type,
            is_immutable,
            headers,
            content: Bytes::from_static(content.as_bytes()),
        })
    })
}

async fn served() -> Server {
    let mut plan = Plan::new();
    plan.config.console = Some(hook());
    plan.start().await
}

/// CON-67, CON-77: each file has the headers of the console; only a file whose address has its hash
/// is kept.
#[tokio::test]
async fn console_files_have_their_headers() {
    let server = served().await;
    for (path, kind, kept) in [
        ("/$console/", "text/html; charset=utf-8", "no-store"),
        ("/%24console/", "text/html; charset=utf-8", "no-store"),
        (
            "/$console/0123/main.js",
            "text/javascript; charset=utf-8",
            "public, max-age=31536000, immutable",
        ),
    ] {
        let answer = server.ask(&format!("GET {path}"), "").await;
        assert_eq!(answer.status, 200, "{path}");
        assert_eq!(answer.header("content-type"), Some(kind), "{path}");
        assert_eq!(answer.header("cache-control"), Some(kept), "{path}");
        assert_eq!(answer.header("content-security-policy"), Some(POLICY), "{path}");
        assert_eq!(answer.header("referrer-policy"), Some("no-referrer"), "{path}");
        assert_eq!(answer.header("x-content-type-options"), Some("nosniff"), "{path}");
    }
}

/// CON-57: relative addresses work below any prefix of a proxy, so the redirect is relative too.
#[tokio::test]
async fn console_address_without_slash_is_redirected_relatively() {
    let server = served().await;
    let answer = server.ask("GET /$console", "").await;
    assert_eq!((answer.status, answer.header("location")), (308, Some("$console/")));
}

/// CON-64, CON-70: without a console nothing is served, and a console cannot be changed.
#[tokio::test]
async fn console_has_no_other_files_or_methods() {
    let server = served().await;
    for path in ["/$console/main.js", "/$console/0123/", "/$console/0123/other.js", "/$console//"] {
        assert_eq!(server.ask(&format!("GET {path}"), "").await.status, 404, "{path}");
    }
    let answer = server.ask("POST /$console/", "{}").await;
    assert_eq!((answer.status, answer.header("allow")), (405, Some("GET, HEAD, OPTIONS")));
    let without = Server::start().await;
    for path in ["/$console", "/$console/", "/$console/0123/main.js"] {
        assert_eq!(without.ask(&format!("GET {path}"), "").await.status, 404, "{path}");
    }
}

//! Doors: transports do not know each other, and reach the broker only through `Access`, which
//! checks grants.

use std::fs;

use crate::{code, files, place, read, root};

/// The file that creates the client of an embedding program.
const CLIENT_OF_THE_PROCESS: &str = "transports/client/src/in_process.rs";

/// Files of transports that ask the broker itself for an entity. Both return only entities for
/// which access was checked before.
const ENTITIES_OF_THE_BROKER: [&str; 2] =
    ["transports/amqp/src/server/attach.rs", "transports/amqp/src/server/transaction.rs"];

/// Folders below `transports` that are no transport but shared by several.
const SHARED_BY_TRANSPORTS: [&str; 7] =
    ["client", "client-testing", "json", "link", "listen", "sas", "tls"];

#[test]
fn no_transport_depends_on_another() {
    let folders = fs::read_dir(root().join("transports")).unwrap().flatten();
    let names = folders.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let transports: Vec<String> =
        names.filter(|name| !SHARED_BY_TRANSPORTS.contains(&name.as_str())).collect();
    assert!(transports.len() >= 3, "{transports:?}");
    for one in &transports {
        let manifest = read(format!("transports/{one}/Cargo.toml"));
        let needs = manifest.split("[dev-dependencies]").next().unwrap();
        for other in transports.iter().filter(|other| *other != one) {
            assert!(!needs.contains(&format!("peeklock-{other}")), "{one} depends on {other}");
            for path in files(format!("transports/{one}/src"), "rs") {
                let name = format!("peeklock_{other}");
                assert!(!code(&path).contains(&name), "{} uses {name}", place(&path));
            }
        }
    }
}

/// DESIGN D6: buffers of libraries for a connection are bounded on both sides: WebSockets are
/// configured in one place, and an HTTP client limits its read-ahead.
#[test]
fn buffers_of_libraries_are_bounded() {
    const WEBSOCKETS: &str = "transports/listen/src/websocket.rs";
    let (mut websockets, mut clients) = (0, 0);
    for path in ["transports", "plugins", "src", "benches/load"]
        .into_iter()
        .flat_map(|folder| files(folder, "rs"))
    {
        let place = place(&path);
        if !place.starts_with("src/") && place.split('/').nth(2) != Some("src") {
            continue;
        }
        let code: String = code(&path).split_whitespace().collect();
        let configures = code.contains("protocol::WebSocketConfig");
        assert_eq!(configures, place == WEBSOCKETS, "{place} configures a WebSocket");
        for unbounded in ["accept_async(", "accept_hdr_async(", "client_async(", "connect_async("] {
            assert!(
                !code.contains(unbounded),
                "{place} has a WebSocket with the bounds of the library"
            );
        }
        let made = code.split("WebSocketStream::from_raw_socket(").skip(1);
        for made in made.chain(code.split("_async_with_config(").skip(1)) {
            let arguments = made.split(';').next().unwrap();
            assert!(
                !arguments.contains("None"),
                "{place} has a WebSocket with the bounds of the library"
            );
            websockets += 1;
        }
        let of_http = code.matches("http1::Builder::new()").count();
        assert_eq!(of_http, code.matches(".max_buf_size(").count(), "{place} reads without bound");
        assert!(
            !code.contains("http1::handshake") && !code.contains("{SendRequest,handshake}"),
            "{place}"
        );
        clients += of_http;
    }
    assert!(websockets >= 4 && clients >= 4, "{websockets} and {clients} are seen");
}

/// Functions of `Broker` are for its owner, and those of `Access` for checked clients. Transports
/// use only `Access`.
#[test]
fn no_transport_bypasses_access() {
    let unchecked =
        ["entity", "entity_of_management_node", "full_access", "delete_entity", "delete"];
    let mut unchecked: Vec<String> = unchecked.map(str::to_owned).into();
    for file in ["queues", "topics", "policies", "declare"] {
        let code = code(&root().join(format!("broker-core/src/broker/{file}.rs")));
        let code = code.replace("pub async fn ", "pub fn ");
        let names = code.split("pub fn ").skip(1).filter_map(|text| text.split_once('('));
        unchecked.extend(names.map(|(name, _)| name.to_owned()));
    }
    assert!(unchecked.len() > 20, "{unchecked:?}");
    let paths = files("transports", "rs");
    let is_source = |place: &str| {
        let mut parts = place.split('/').skip(1);
        // A test kit has a broker of its own, for which it may do everything.
        parts.next() != Some("client-testing") && parts.next() == Some("src")
    };
    let sources = paths.iter().filter(|path| is_source(&place(path)));
    let mut clients_of_the_process = 0;
    for path in sources {
        let code: String = code(path).split_whitespace().collect();
        let is_of_the_broker = code.contains(".as_broker(");
        let may_be = ENTITIES_OF_THE_BROKER.contains(&place(path).as_str());
        assert_eq!(is_of_the_broker, may_be, "{} goes round the check of an entity", place(path));
        // Calls through a variable of another name would not be found.
        let mut kept: Vec<&str> = code.split(".broker();").collect();
        kept.pop();
        let is_named =
            |code: &&str| code.rsplit([';', '{']).next().unwrap().starts_with("letbroker=");
        assert!(kept.iter().all(is_named), "{} gives the broker another name", place(path));
        for name in &unchecked {
            let ways =
                ["broker.", "broker().", "Broker::"].map(|holder| format!("{holder}{name}("));
            if !ways.iter().any(|way| code.contains(way)) {
                continue;
            }
            // An embedding program has all rights (SEC-17).
            let is_its_own = name == "full_access" && place(path) == CLIENT_OF_THE_PROCESS;
            assert!(is_its_own, "{} asks the broker for `{name}`, past `Access`", place(path));
            clients_of_the_process += 1;
        }
    }
    assert_eq!(clients_of_the_process, 1);
    // No transport names the crates below the broker, except `peeklock-words` where no broker is
    // needed.
    let crates = fs::read_dir(root().join("transports")).unwrap().flatten();
    for manifest in crates.filter(|it| it.file_name() != "client-testing") {
        let manifest = manifest.path().join("Cargo.toml");
        for engine in ["machine", "model", "record", "store"] {
            let needs = read(&manifest);
            let needs = needs.split("[dev-dependencies]").next().unwrap();
            assert!(
                !needs.contains(&format!("peeklock-{engine}")),
                "{} knows it",
                place(&manifest)
            );
        }
    }
    for path in &paths {
        for module in ["actor", "shell", "access", "change"] {
            let name = format!("peeklock_core::{module}::");
            assert!(!code(path).contains(&name), "{} uses {name}", place(path));
        }
    }
}

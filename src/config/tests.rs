use peeklock::contract::port;
use peeklock::description::{Jitter, RetryKind, RetryPolicy, SessionRetryOrder};
use peeklock::time::TimeSpan;

use super::*;

/// Writes a file, reads the configuration with it, and removes the file.
pub(super) fn load_with(
    name: &str,
    text: &str,
    adjust: impl FnOnce(&mut Layers),
) -> Result<Loaded, ConfigError> {
    let file = std::env::temp_dir().join(format!("peeklock-{}-{name}.toml", std::process::id()));
    std::fs::write(&file, text).unwrap();
    let mut layers = Layers {
        file: Some(file.clone()),
        environment: Some(Map::default()),
        flags: Vec::new(),
        emulator: None,
    };
    adjust(&mut layers);
    let loaded = Loaded::load(&layers);
    std::fs::remove_file(file).unwrap();
    loaded
}

pub(super) fn load(name: &str, text: &str) -> Result<Loaded, ConfigError> {
    load_with(name, text, |_| {})
}

fn refusal(name: &str, text: &str) -> String {
    load(name, text).map(drop).unwrap_err().to_string()
}

#[test]
fn defaults_are_valid_and_loopback() {
    let loaded = load("empty", "").unwrap();
    assert_eq!(loaded.config.settings, Settings::default());
    assert!(loaded.config.http.address.ip().is_loopback());
    assert!(loaded.rows().iter().all(|row| row.source.is_none()));
}

/// LIS-03, TLS-03: a client has five seconds for its first bytes and for its handshake, unless
/// another time is set.
#[test]
fn openings_have_five_seconds() {
    let config = load("beginnings", "").unwrap().config;
    let times = [config.gateway.opening_timeout, config.tls.handshake_timeout];
    assert_eq!(times, [TimeSpan::from_seconds(5); 2]);
}

#[test]
fn listeners_are_where_clients_look() {
    let config = load("ports", "").unwrap().config;
    let addresses = [config.http.address, config.websocket.address, config.amqp.address];
    assert_eq!(addresses.map(|address| address.port()), [port::HTTP, port::WEBSOCKET, port::AMQP]);
}

/// ADM-01, SEC-24: a broker that replaces the emulator has the emulator's ports unless others are
/// set; anonymous access is always off.
#[test]
fn the_emulators_place_has_its_ports_and_nobody_is_anonymous() {
    let place = |http_port| {
        let environment =
            crate::emulator::environment::Environment { http_port, ..Default::default() };
        move |layers: &mut Layers| layers.emulator = Some(InPlace::new(None, environment))
    };
    let address = |loaded: &Loaded, key: &str| {
        let addresses = loaded.config.addresses();
        addresses.into_iter().find(|(name, _)| *name == key).unwrap().1.to_string()
    };
    let anonymous = "[security]\nallow_anonymous = true\ni_know = true";
    let loaded = load_with("emulator", anonymous, place(None)).unwrap();
    assert_eq!(address(&loaded, "http.address"), "0.0.0.0:5300");
    assert_eq!(address(&loaded, "amqp.address"), "0.0.0.0:5672");
    assert!(!loaded.config.security.allow_anonymous);
    let loaded = load_with("emulator-port", "", place(Some(8080))).unwrap();
    assert_eq!(address(&loaded, "http.address"), "0.0.0.0:8080");
    let set = "[http]\naddress = \"127.0.0.1:1\"";
    let loaded = load_with("emulator-set", set, place(Some(8080))).unwrap();
    assert_eq!(address(&loaded, "http.address"), "127.0.0.1:1");
}

/// AMQP-02, AMQ-01: with TLS, the default AMQP port is the port at which SDKs expect TLS.
#[test]
fn amqp_is_at_the_port_of_tls_where_tls_is_spoken() {
    let cases = [
        ("", "127.0.0.1:5672"),
        ("[tls]\nenabled = false", "127.0.0.1:5672"),
        ("[tls]\nenabled = true", "127.0.0.1:5671"),
        ("[tls]\nenabled = true\n[amqp]\naddress = \"127.0.0.1:5672\"", "127.0.0.1:5672"),
    ];
    for (at, (text, expected)) in cases.into_iter().enumerate() {
        let loaded = load(&format!("tls-port-{at}"), text).unwrap();
        assert_eq!(loaded.config.amqp.address.to_string(), expected, "{text}");
    }
    let flag = |layers: &mut Layers| {
        layers.flags = vec![Flag { name: "--tls", key: "tls.enabled", value: "true".to_owned() }];
    };
    let loaded = load_with("tls-port-flag", "", flag).unwrap();
    assert_eq!(loaded.config.amqp.address.port(), port::AMQPS);
    let place =
        |layers: &mut Layers| layers.emulator = Some(InPlace::new(None, Default::default()));
    let loaded = load_with("tls-port-emulator", "[tls]\nenabled = true", place).unwrap();
    assert_eq!(loaded.config.amqp.address.to_string(), "0.0.0.0:5672", "as the emulator's");
}

/// QUO-02: `peeklock config default` prints every limit as a comment; without the comment sign it is a valid file.
#[test]
fn documented_limits_are_accepted_as_they_are_printed() {
    let names: Vec<&str> = Limits::TABLE.iter().map(|limit| limit.name).collect();
    let is_value =
        |line: &&str| line.split_once(" = ").is_some_and(|(name, _)| names.contains(&name));
    let text = default_text();
    let lines: Vec<&str> =
        text.lines().filter_map(|line| line.strip_prefix("# ")).filter(is_value).collect();
    assert_eq!(lines.len(), names.len());
    let loaded = load("all-limits", &format!("[limits]\n{}\n", lines.join("\n"))).unwrap();
    assert_eq!(loaded.config.settings.limits, Limits::default());
}

#[test]
fn later_layers_win_and_are_named() {
    let text = "[http]\naddress = \"127.0.0.1:1\"\nworkers = 1\n[limits]\nhop_count_max = 7\n";
    let loaded = load_with("layers", text, |layers| {
        let variables =
            [("PEEKLOCK__HTTP__ADDRESS", "127.0.0.1:2"), ("PEEKLOCK__HTTP__ALLOWED_HOSTS", "a, b")];
        layers.environment = Some(Map::from_iter(
            variables.map(|(name, value)| (name.to_owned(), value.to_owned())),
        ));
        layers.flags =
            vec![Flag { name: "--http", key: "http.address", value: "127.0.0.1:3".to_owned() }];
    })
    .unwrap();
    assert_eq!(loaded.config.http.address.port(), 3);
    assert_eq!(loaded.config.http.allowed_hosts, ["a", "b"]);
    assert_eq!(loaded.config.settings.limits.hop_count_max, 7);
    let source =
        |key: &str| loaded.rows().into_iter().find(|row| row.key == key).and_then(|row| row.source);
    assert_eq!(source("http.address").as_deref(), Some("--http"));
    assert_eq!(source("http.allowed_hosts").as_deref(), Some("PEEKLOCK__HTTP__ALLOWED_HOSTS"));
    assert!(source("http.workers").unwrap().ends_with("layers.toml"));
    assert!(source("limits.hop_count_max").unwrap().ends_with("layers.toml"));
    assert_eq!(source("log.filter"), None);
}

/// A list from the environment is accepted with commas or as TOML, and is shown as an effective
/// value; a broken TOML list is refused.
#[test]
fn lists_of_the_environment_have_either_form() {
    let load = |test: &str, value: &str| {
        load_with(test, "", |layers| {
            let variable = ("PEEKLOCK__HTTP__ALLOWED_ORIGINS".to_owned(), value.to_owned());
            layers.environment = Some(Map::from_iter([variable]));
        })
    };
    for (test, value) in
        [("list-toml", "[\"http://a\", 'http://b']"), ("list-commas", "http://a, http://b")]
    {
        let loaded = load(test, value).unwrap();
        assert_eq!(loaded.config.http.allowed_origins, ["http://a", "http://b"]);
        let row = loaded.rows().into_iter().find(|row| row.key == "http.allowed_origins").unwrap();
        assert_eq!(row.value, "[\"http://a\", \"http://b\"]");
        assert_eq!(row.source.as_deref(), Some("PEEKLOCK__HTTP__ALLOWED_ORIGINS"));
    }
    let refused = load("list-broken", "[http://a]").map(drop).unwrap_err().to_string();
    assert!(
        refused.contains("is not a list of texts") && refused.contains("ALLOWED_ORIGINS"),
        "{refused}"
    );
}

#[test]
fn unknown_keys_are_reported_with_the_nearest_key() {
    let text = refusal("unknown", "[http]\nadress = \"127.0.0.1:1\"\n");
    assert!(text.starts_with("unknown key `http.adress` (set by "), "{text}");
    assert!(text.ends_with("unknown.toml); did you mean `http.address`?"), "{text}");
    let text = refusal("unknown-section", "[colours]\nsky = \"blue\"\n");
    assert!(text.contains("unknown key `colours`"), "{text}");
    assert!(text.contains("peeklock config default"), "{text}");
    let text = refusal("unknown-property", "[[queues]]\nname = \"a\"\nlock = \"1m\"\n");
    assert!(text.contains("unknown key `queues[0].lock`"), "{text}");
    let text = refusal("quoted", "[security]\n\"jwt.issuer\" = \"https://id\"\n");
    assert!(text.contains("unknown key `security.jwt.issuer`"), "{text}");
}

#[test]
fn wrong_values_are_named_with_key_and_source() {
    for (given, key, value) in [
        ("[http]\naddress = \"here\"", "http.address", "`here` is not an IP address"),
        ("[http]\nworkers = -1", "http.workers", "`-1` is not a whole number"),
        ("[http]\nworkers = 1.5", "http.workers", "`1.5` is not a whole number"),
        ("[namespace]\ntier = \"Gold\"", "namespace.tier", "`Gold` is not a tier"),
        ("[limits]\nlock_duration_max = 60", "limits.lock_duration_max", "`60` is not a duration"),
        (
            "[limits]\nhop_count_max = 17",
            "limits.hop_count_max",
            "`hop_count_max` of 17 is out of range; write a value from 1 to 16",
        ),
        ("[security]\ni_know = \"yes\"", "security.i_know", "`yes` is not true or false"),
        ("[log]\nformat = \"xml\"", "log.format", "`xml` is not a log format"),
        ("[log]\nfilter = \"a=b=c\"", "log.filter", "`a=b=c` is not a log filter"),
        ("[metrics]\nentities = \"some\"", "metrics.entities", "`some` is not"),
        ("[[queues]]\nname = \"a//b\"", "queues[0]", "two separators in a row"),
        ("[[queues]]\nname = \"a\"\nlock_duration = \"1s\"", "queues[0]", "LockDuration"),
        (
            "[[queues]]\nname = \"a\"\nlock_duration = \"soon\"",
            "queues[0].lock_duration",
            "`soon` is",
        ),
        ("[forwarding]\nfailure_target = \"trash\"", "forwarding.failure_target", "dead_letter"),
        ("[forwarding]\non_destination_full = \"drop\"", "forwarding.on_destination_full", "hold"),
        ("[[queues]]\nname = \"a\"\n[[queues]]\nname = \"A\"", "queues[1]", "declared twice"),
    ] {
        let text = refusal("wrong", given);
        assert!(text.starts_with(&format!("`{key}`: ")), "{given}: {text}");
        assert!(text.contains(value), "{given}: {text}");
        assert!(text.contains("wrong.toml)"), "{given}: {text}");
    }
}

#[test]
fn syntax_errors_show_the_line() {
    let text = refusal("syntax", "[http]\naddress = \n");
    assert!(text.contains("is not valid TOML"), "{text}");
    assert!(text.contains("line 2"), "{text}");
}

/// SEC-17.
#[test]
fn anonymous_access_beyond_loopback_needs_a_confirmation() {
    for section in ["http", "websocket", "amqp"] {
        let open = format!("[{section}]\naddress = \"0.0.0.0:5300\"\n");
        let text = refusal("open", &open);
        assert!(text.contains("security.i_know"), "{text}");
    }
    let open = "[http]\naddress = \"0.0.0.0:5300\"\n";
    let text = refusal("open", open);
    assert!(text.contains("security.i_know"), "{text}");
    assert!(text.contains("security.allow_anonymous"), "{text}");
    for confirmed in ["[security]\ni_know = true\n", "[security]\nallow_anonymous = false\n"] {
        load("confirmed", &format!("{open}{confirmed}")).unwrap();
    }
    load("loopback", "[http]\naddress = \"[::1]:5300\"").unwrap();
}

/// DEC-14, RTY-16, RTY-23: a queue and a subscription declare retry policies; an invalid policy is
/// refused with its key.
#[test]
fn retries_are_declared() {
    let table = "retry_policy = { kind = \"exponential\", delay = \"1s\", delay_max = \"5m\", jitter = 0.2 }\n";
    let loaded = load(
        "retry",
        &format!(
            "[[queues]]\nname = \"a\"\nsession_retry_order = \"pass\"\n{table}\
             [[queues]]\nname = \"b\"\nretry_policy = \"none\"\n\
             [[topics]]\nname = \"t\"\n[[topics.subscriptions]]\nname = \"s\"\n{table}"
        ),
    );
    let declaration = loaded.unwrap().config.declaration().unwrap();
    let policy = RetryPolicy {
        kind: RetryKind::Exponential,
        delay: TimeSpan::from_seconds(1),
        delay_max: Some(TimeSpan::from_minutes(5)),
        jitter: Jitter::of(0.2).unwrap(),
    };
    let [a, b] = &declaration.queues[..] else { panic!("{declaration:?}") };
    assert_eq!(a.properties.retry_policy, Some(Some(policy)));
    assert_eq!(a.properties.session_retry_order, Some(SessionRetryOrder::Pass));
    assert_eq!(b.properties.retry_policy, Some(None));
    let subscription = &declaration.topics[0].subscriptions[0];
    assert_eq!(subscription.properties.retry_policy, Some(Some(policy)));
    for (given, key, said) in [
        ("retry_policy = 5", "queues[0].retry_policy", "expected a retry policy, such as"),
        ("retry_policy = \"soon\"", "queues[0].retry_policy", "or \"none\""),
        (
            "retry_policy = { kind = \"fixed\", delay = \"soon\" }",
            "queues[0].retry_policy",
            "`soon`",
        ),
        (
            "retry_policy = { kind = \"fixed\", delay = \"8d\" }",
            "queues[0]",
            "must be PT0.001S to P7D",
        ),
        ("session_retry_order = \"late\"", "queues[0].session_retry_order", "hold or pass"),
    ] {
        let text = refusal("retry-wrong", &format!("[[queues]]\nname = \"a\"\n{given}"));
        assert!(text.starts_with(&format!("`{key}")), "{given}: {text}");
        assert!(text.contains(said), "{given}: {text}");
    }
}

/// DEC-02, DEC-03, DEC-04: an empty text removes a value, a property that is left out stays
/// unnamed, and an invalid rule is refused with its key.
#[test]
fn omitted_properties_are_unnamed() {
    let text = "[[queues]]\nname = \"a\"\nforward_to = \"\"\nuser_metadata = \"mine\"\n\
                [[topics]]\nname = \"t\"\n[[topics.subscriptions]]\nname = \"any\"\n\
                [[topics.subscriptions]]\nname = \"none\"\nrules = []\n";
    let declaration = load("left-out", text).unwrap().config.declaration().unwrap();
    let [queue] = &declaration.queues[..] else { panic!("{declaration:?}") };
    assert!(queue.cleared.forward_to && !queue.cleared.forward_dead_lettered_messages_to);
    assert!(queue.properties.forward_to.is_none() && !queue.cleared.user_metadata);
    let rules = declaration.topics[0].subscriptions.iter().map(|it| it.rules.clone());
    assert_eq!(rules.collect::<Vec<_>>(), [None, Some(Vec::new())]);
    let rules = |rules: &str| {
        let head = "[[topics]]\nname = \"t\"\n[[topics.subscriptions]]\nname = \"s\"\n";
        refusal("rule", &format!("{head}{rules}"))
    };
    let rule = "[[topics.subscriptions.rules]]\nname = \"r\"\n";
    for (given, said) in [
        (format!("{rule}sql = \"a = 1\"\nfilter = true\n"), "more than one of filter, sql"),
        (format!("{rule}sql = \"a =\"\n"), "line 1"),
        (format!("{rule}action_parameters = {{ a = 1 }}\n"), "action_parameters but no action"),
    ] {
        let text = rules(&given);
        assert!(text.starts_with("`topics[0].subscriptions[0].rules[0]`: "), "{text}");
        assert!(text.contains(said) || said == "line 1", "{text}");
    }
    let text = rules(&format!("{rule}{rule}"));
    assert!(
        text.starts_with("`topics[0].subscriptions[0].rules[1]`: the rule `r` is declared twice")
    );
}

/// EXP-24.
#[test]
fn the_older_name_of_dead_lettering_on_expiration_is_accepted() {
    for name in [
        "dead_lettering_on_message_expiration",
        "enable_dead_lettering_on_message_expiration",
        "EnableDeadLetteringOnMessageExpiration",
    ] {
        let text = format!("[[queues]]\nname = \"a\"\nlock_duration = \"30s\"\n{name} = true\n");
        let loaded = load(name, &text).unwrap();
        let properties = loaded.config.queues[0].declared().properties;
        assert_eq!(properties.dead_lettering_on_message_expiration, Some(true));
        assert_eq!(properties.lock_duration, Some(TimeSpan::from_seconds(30)));
    }
}

#[test]
fn forwarders_are_configured_and_their_files_are_judged() {
    let defaults = load("webhook-defaults", "").unwrap().config.webhook.config().unwrap();
    assert_eq!(defaults.timeout, std::time::Duration::from_secs(15));
    assert!(defaults.secrets.is_empty());
    let secret = std::env::temp_dir().join(format!("peeklock-{}-secret", std::process::id()));
    std::fs::write(&secret, "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA\n").unwrap();
    let text = format!(
        "[webhook]\nallowed_hosts = [\"*.example.com\", \"[::1]:80\"]\ntimeout = \"2s\"\n\
         [[webhook.secrets]]\nhost = \"hooks.example.com\"\nfile = \"{}\"\n",
        secret.display()
    );
    let loaded = load("webhook", &text).unwrap();
    let config = loaded.config.webhook.config().unwrap();
    assert_eq!(config.secrets.len(), 1);
    let place = peeklock::forward_webhook::Place::new("a.example.com", 80, false).unwrap();
    assert_eq!(config.reach.check(&place), Ok(()));
    assert!(defaults.reach.check(&place).is_err());
    assert_eq!(config.timeout, std::time::Duration::from_secs(2));
    assert!(loaded.rows().iter().all(|row| !row.value.contains("whsec_")), "it is not shown");
    std::fs::write(&secret, "hush\n").unwrap();
    let detail = refusal("webhook-secret", &text);
    assert!(detail.starts_with("`webhook.secrets[0].file`: "), "{detail}");
    assert!(!detail.contains("hush"), "{detail}");
    std::fs::remove_file(secret).unwrap();
    for (given, key) in [
        ("[webhook]\nallowed_hosts = [\"a b\"]", "webhook.allowed_hosts"),
        ("[webhook]\ntimeout = \"21s\"", "webhook.timeout"),
        ("[webhook]\nconnect_timeout = \"0s\"", "webhook.connect_timeout"),
        ("[webhook]\nca_file = \"/nowhere\"", "webhook.ca_file"),
        ("[[webhook.secrets]]\nhost = \"a.net\"\nfile = \"/nowhere\"", "webhook.secrets[0].file"),
        ("[peers]\nallowed_hosts = [\"a b\"]", "peers.allowed_hosts"),
        ("[peers]\nconnect_timeout = \"16s\"", "peers.connect_timeout"),
        ("[peers]\nca_file = \"/nowhere\"", "peers.ca_file"),
        ("[[peers.tokens]]\nhost = \"a.net\"\nfile = \"/nowhere\"", "peers.tokens[0].file"),
        ("[[webhook.secrets]]\nhost = \"\"\nfile = \"/nowhere\"", "webhook.secrets[0].host"),
    ] {
        let detail = refusal("webhook-wrong", given);
        assert!(detail.starts_with(&format!("`{key}`: ")), "{given}: {detail}");
    }
}

/// SEC-27, SEC-28, SEC-29, SEC-30: the settings of an issuer are checked before anything starts.
/// Without an issuer no token is accepted, and its other settings are refused.
#[test]
fn an_issuer_is_judged() {
    let defaults = load("jwt-defaults", "").unwrap();
    assert!(defaults.jwt().unwrap().is_none());
    let file = std::env::temp_dir().join(format!("peeklock-{}-jwks", std::process::id()));
    let x = "A".repeat(43);
    let keys = format!(r#"{{"keys": [{{"kty": "OKP", "crv": "Ed25519", "x": "{x}"}}]}}"#);
    std::fs::write(&file, keys).unwrap();
    let section = "[security.jwt]\nissuer = \"https://a.net\"\naudiences = \"bus,shop\"\n";
    let role = "[[security.jwt.roles]]\nname = \"r\"\nrights = [\"Send\"]\nentity = \"orders\"\n";
    let url = "jwks_url = \"https://a.net/keys\"\n";
    for keys in [url, &format!("jwks_file = \"{}\"\n", file.display())] {
        let more = "algorithms = [\"EdDSA\"]\nclock_skew = \"0s\"\nrole_claims = [\"a.b\"]\n";
        let loaded = load("jwt", &format!("{section}{keys}{more}{role}")).unwrap();
        let config = loaded.jwt().unwrap().unwrap();
        assert_eq!(config.audiences, ["bus", "shop"]);
        assert_eq!(config.algorithms, [peeklock::auth_jwt::Algorithm::EdDsa]);
        assert_eq!(config.clock_skew, TimeSpan::ZERO);
        assert_eq!(config.roles.len(), 1);
    }
    let plain = format!("{section}{url}");
    for (given, key) in [
        (format!("[security.jwt]\n{url}"), "issuer"),
        (role.to_owned(), "issuer"),
        ("[security.jwt]\nissuer = \"https://a.net\"\n".to_owned() + url, "audiences"),
        (section.to_owned(), "jwks_url"),
        (format!("{section}jwks_url = \"http://a.net/keys\"\n"), "jwks_url"),
        (format!("{plain}jwks_file = \"keys.json\"\n"), "jwks_file"),
        (format!("{section}jwks_file = \"/nowhere\"\n"), "jwks_file"),
        (format!("{plain}ca_file = \"/nowhere\"\n"), "ca_file"),
        (format!("{plain}timeout = \"21s\"\n"), "timeout"),
        (format!("{plain}clock_skew = \"11m\"\n"), "clock_skew"),
        (format!("{plain}algorithms = [\"HS256\"]\n"), "algorithms"),
        (format!("{plain}algorithms = [\"none\"]\n"), "algorithms"),
        (format!("{plain}algorithms = []\n"), "algorithms"),
        (format!("{plain}role_claims = []\n"), "role_claims"),
        (plain.clone(), "roles"),
        (format!("{plain}{}", role.replace("\"Send\"", "")), "roles[0].rights"),
        (format!("{plain}{}", role.replace("Send", "Own")), "roles[0].rights"),
        (format!("{plain}{}", role.replace("Send", "Manage")), "roles[0].rights"),
        (format!("{plain}{}", role.replace("\"r\"", "\"\"")), "roles[0].name"),
    ] {
        let detail = refusal("jwt-wrong", &given);
        assert!(detail.starts_with(&format!("`security.jwt.{key}`: ")), "{given}: {detail}");
    }
    std::fs::remove_file(file).unwrap();
}

/// A value with which the broker cannot work, or that is an obvious slip, is refused with its
/// range.
#[test]
fn a_number_outside_its_range_is_refused_with_the_range() {
    for (key, value, range) in [
        ("server.arbiters", "100000", "from 0 to 1024 threads"),
        ("http.workers", "100000", "from 0 to 1024 threads"),
        ("websocket.workers", "1025", "from 0 to 1024 threads"),
        ("websocket.frame_bytes_max", "0", "from 4096 to 1073741824 bytes"),
        ("websocket.frame_bytes_max", "100000000", "websocket.inbound_bytes_max = 67108864"),
        ("websocket.unsettled_count_max", "0", "from 1 to 1048576 deliveries"),
        ("websocket.link_count_max", "0", "from 1 to 65536 links"),
        ("websocket.heartbeat", "\"0s\"", "from 10ms to 1h"),
        ("websocket.handshake_timeout", "\"unlimited\"", "from 10ms to 1h"),
        ("websocket.grace", "\"2h\"", "from 0s to 1h"),
        ("amqp.workers", "1025", "from 0 to 1024 threads"),
        ("amqp.link_count_max", "0", "from 1 to 65536 links"),
        ("amqp.shared_link_count_max", "1000001", "from 0 to 1000000 links"),
        ("amqp.unsettled_count_max", "0", "from 1 to 1048576 deliveries"),
        ("amqp.idle_timeout", "\"9s\"", "from 10s to 1h"),
        ("amqp.opening_timeout", "\"unlimited\"", "from 10ms to 1h"),
        ("http.inbound_bytes_max", "1", "from 65536 to"),
        ("http.connection_count_max", "1000001", "from 0 to 1000000 connections"),
        ("http.keep_alive", "\"1day\"", "from 10ms to 1h"),
        ("journal.capacity_bytes", "1", "write 0, or a number from 1048576 to"),
        ("server.ephemeral_bytes_max", "1", "write 0, or a number from 1048576 to"),
        (
            "limits.connection_count_max",
            "0",
            "`connection_count_max` of 0 is out of range; write a value from 1 to",
        ),
        ("limits.connection_inbound_bytes_max", "500000000", "the limit for all together"),
        (
            "limits.broker_inbound_count_max",
            "0",
            "`broker_inbound_count_max` of 0 is out of range; write a value from 1 to",
        ),
        (
            "limits.link_turn_bytes_max",
            "0",
            "`link_turn_bytes_max` of 0 is out of range; write a value from 1 to",
        ),
        ("limits.send_wait_max", "\"0s\"", "`send_wait_max` of "),
        ("limits.receive_wait_max", "\"0s\"", "`receive_wait_max` of "),
        ("limits.receive_wait_http_max", "\"2h\"", "`receive_wait_http_max` of "),
        ("limits.forwarder_time_max", "\"2h\"", "`forwarder_time_max` of "),
        ("limits.transaction_duration_max", "\"1day\"", "`transaction_duration_max` of "),
    ] {
        let (section, name) = key.split_once('.').unwrap();
        let text = format!("[{section}]\n{name} = {value}\n");
        let refused = refusal(&format!("range-{section}-{name}"), &text);
        assert!(refused.contains(range), "{key} = {value}: {refused}");
    }
}

/// QUO-02: every limit has a range. Zero and the largest number of the type are refused with the
/// name and the range, except for the limits listed here.
#[test]
fn every_limit_has_a_range() {
    let may_be_nothing = [
        "subscription_count_max",
        "rule_sql_count_max",
        "rule_correlation_count_max",
        "user_metadata_chars_max",
        "transaction_message_count_max",
        "transaction_open_count_max",
        "transaction_operation_count_max",
        "transaction_open_bytes_max",
        "atomic_content_bytes_max",
        "receive_wait_http_max",
        "broker_subscription_count_max",
        "broker_rule_count_max",
        "broker_session_count_max",
        "broker_duplicate_id_count_max",
        "broker_delayed_count_max",
        "tap_count_max",
        "search_count_max",
    ];
    // An entity may have an unlimited time to live and idle time; steps are counted in 64 bits.
    let may_be_without_end =
        ["time_to_live_max", "auto_delete_on_idle_min", "publish_step_count_max"];
    for (name, default) in limits::list(&Limits::default()) {
        let is_span = default.parse::<u64>().is_err();
        let (least, most) =
            if is_span { ("\"0s\"", "\"unlimited\"") } else { ("0", "9223372036854775807") };
        for (value, allowed) in [(least, &may_be_nothing[..]), (most, &may_be_without_end)] {
            let loaded = load("every-limit", &format!("[limits]\n{name} = {value}\n"));
            match loaded {
                Ok(_) => assert!(allowed.contains(&name), "{name} = {value} is taken"),
                Err(refused) => {
                    let refused = refused.to_string();
                    assert!(!allowed.contains(&name), "{refused}");
                    assert!(refused.contains(name), "{refused}");
                    // A number that its type cannot hold has the error of another type.
                    let is_told = [" to ", " is not a "].iter().any(|part| refused.contains(part));
                    assert!(is_told, "{refused}");
                }
            }
        }
    }
}

/// QUO-02: a collector gets gauges of all entities that the limits permit, including subscriptions,
/// or of the number that is shown.
#[test]
fn collector_gets_gauges_of_all_permitted_entities() {
    let text = "[otlp]\nendpoint = \"http://127.0.0.1:4318\"\n[limits]\nentity_count_max = 7\n\
                broker_subscription_count_max = 5\n[metrics]\nentities = ";
    for (shown, expected) in [("all", 12), ("top:3", 3), ("none", 0)] {
        let loaded = load("gauges", &format!("{text}\"{shown}\"\n")).unwrap();
        assert_eq!(loaded.otlp().unwrap().unwrap().entity_count_max, expected, "{shown}");
    }
}

/// The files of the store are reserved: if the process may open few files, it takes fewer
/// connections and runs fewer forwarder threads, with all files that belong to them.
#[test]
fn connections_leave_files_to_the_store() {
    let (few, threads) = ("connection_count_max = 1000\n", "workers = 2\n");
    let text = format!(
        "[http]\n{threads}[websocket]\n{few}{threads}[amqp]\n{few}{threads}[server]\narbiters = 2\n"
    );
    let loaded = load("files", &text).unwrap();
    let fitted = |files_max| {
        let mut config = loaded.config.clone();
        let left = config.fit_connections(files_max);
        (left, config.connections(), config.settings.limits.forwarder_thread_count_max)
    };
    // 256 sockets in addition to the connections of each transport, 256 threads of 8 files, 1,600
    // segments, 12 runtimes of 4 files, 3 listeners of 2, one more for each HTTP thread; 13 of the
    // process, 19 of the journal, 12 of the audit trail and 14 of jobs. The AMQP port also has HTTP
    // sockets and pending sockets.
    let shared_port = 5_256 + 1_024;
    let all = 5_256 + 1_256 + 1_256 + shared_port + 2_048 + 1_600 + 48 + 6 + 2 + 13 + 19 + 12 + 14;
    assert_eq!(loaded.config.open_files(), all);
    assert_eq!(fitted(all), (None, [5_000, 1_000, 1_000], 256));
    assert_eq!(fitted(all - 1), (Some(6_997), [4_999, 999, 999], 255));
    assert_eq!(fitted(1_024), (Some(31), [23, 4, 4], 1));
    assert_eq!(fitted(10), (Some(3), [1, 1, 1], 1));
    let of = |loaded: Loaded| loaded.config.open_files();
    // A gateway has its threads, its listener and pending sockets.
    let text = format!("{text}[gateway]\naddress = \"127.0.0.1:0\"\n{threads}");
    let with_gateway = all + 1_024 + 8 + 2;
    assert_eq!(of(load("files-gateway", &text).unwrap()), with_gateway);
    let secure = load("files-secure", &format!("{text}[tls]\nenabled = true\n")).unwrap();
    assert_eq!(of(secure), with_gateway + 2 * 256);
    // One connection of each transport has 17 sockets, and at most 256 are pending.
    let few = text.replace("1000", "1").replace("[http]", "[http]\nconnection_count_max = 1");
    let others = all - 5_256 - 1_256 - 1_256 - shared_port;
    assert_eq!(of(load("files-few", &few).unwrap()), others + 4 * 17 + 2 * 256 + 8 + 2);
}

/// TLS-01, TLS-02, TLS-03, TLS-04: contradicting settings are refused with the key, and unusable
/// files before the broker starts.
#[test]
fn tls_wants_a_pair_and_ranges() {
    let check = |name: &str, text: &str, words: &[&str]| {
        let refusal = refusal(&format!("tls-{name}"), &format!("[tls]\n{text}"));
        for word in words {
            assert!(refusal.contains(word), "{word}: {refusal}");
        }
    };
    check("key", "certificate_file = \"a.pem\"", &["tls.key_file"]);
    check("certificate", "key_file = \"a.key\"", &["tls.certificate_file"]);
    check("clients", "client_certificate_required = true", &["tls.client_ca_file", "required"]);
    let absent = "certificate_file = \"/absent.pem\"\nkey_file = \"/absent.key\"";
    check("files", &format!("enabled = true\n{absent}"), &["tls.", "/absent."]);
    check(
        "authorities",
        "enabled = true\nclient_ca_file = \"/absent.pem\"",
        &["tls.client_ca_file", "/absent.pem"],
    );
    check("time", "handshake_timeout = \"2h\"", &["tls.handshake_timeout", "1h"]);
    check("count", "handshake_count_max = 0", &["tls.handshake_count_max", "1 to 256 handshakes"]);
    let off = load("tls-off", &format!("[tls]\n{absent}")).unwrap();
    assert!(off.config.tls.is_left_off() && off.tls().unwrap().is_none());
    let development = load("tls-development", "[tls]\nenabled = true").unwrap();
    assert!(development.config.tls.is_development());
}

/// LIS-01, LIS-04: there is no gateway and no proxy unless one is set; an invalid address is
/// refused with its key.
#[test]
fn a_gateway_and_proxies_are_named_or_absent() {
    let plain = load("no-gateway", "").unwrap().config;
    assert!(plain.gateway.address.is_none());
    assert!(plain.addresses().iter().all(|(key, _)| *key != "gateway.address"));
    let text = "[gateway]\naddress = \"127.0.0.1:5671\"\nproxy_protocol = [\"10.0.0.7\", \"fd00::/8\"]\n\
                [http]\nproxy_protocol = [\"*\"]";
    let named = load("gateway", text).unwrap().config;
    assert!(named.addresses().contains(&("gateway.address", "127.0.0.1:5671".parse().unwrap())));
    for (section, sources) in
        [(&named.gateway.proxy_protocol, 2), (&named.http.proxies, 1), (&named.amqp.proxies, 0)]
    {
        let shown = format!("{section:?}");
        assert_eq!(
            shown.matches("Network").count() + shown.matches("Everywhere").count(),
            sources,
            "{shown}"
        );
    }
    for (text, key, reason) in [
        ("[gateway]\naddress = \"5671\"", "gateway.address", "IP address with a port"),
        ("[amqp]\nproxy_protocol = [\"10.0.0.0/33\"]", "amqp.proxy_protocol", "10.0.0.0/33"),
        ("[gateway]\nopening_timeout = \"0s\"", "gateway.opening_timeout", "10ms"),
        ("[gateway]\naddress = \"0.0.0.0:5671\"", "gateway.address", "security.i_know"),
    ] {
        let told = refusal("gateway-wrong", text);
        assert!(told.contains(key) && told.contains(reason), "{told}");
    }
}

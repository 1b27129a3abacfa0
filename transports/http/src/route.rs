//! Parses the path of a request. The path is read before decoding, so that an encoded slash is part
//! of a segment, and a plain slash is not.

use peeklock_core::path::subscription_path;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::atom::AtomRoute;

/// Characters that this transport does not encode in a segment.
const SEGMENT: &AsciiSet =
    &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_').remove(b'~').remove(b'$');

const MESSAGES: &str = "messages";
const HEAD: &str = "head";
const API: [&str; 2] = ["$api", "v1"];
const CONSOLE: &str = "$console";

/// Resource of a request. Paths of entities are decoded but not validated.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum Route {
    Probe(Probe),
    /// `/{queue}/messages`
    Messages {
        entity: String,
    },
    /// `/{entity}/messages/head`
    Head {
        entity: String,
    },
    /// `/{entity}/messages/{sequence number or message id}/{lock token}`
    Lock {
        entity: String,
        reference: String,
        token: String,
    },
    /// A resource of the Atom API
    Atom(AtomRoute),
    Api(ApiRoute),
    /// `/$console`, and `/$console/{path}`
    Console {
        path: String,
    },
    Unknown,
}

/// The probes (DESIGN section 5).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Probe {
    Live,
    Ready,
    Health,
    Metrics,
}

/// Resources of the JSON API; `queue` may be the path of a sub-queue. Messages and locks also exist
/// below topics, subscriptions and their sub-queues; `path` is then the path of that entity.
///
/// Below `/queues` and `/topics`, any segment is a name. Therefore an address of the namespace as a
/// whole begins with a word of its own, like `/declaration`.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) enum ApiRoute {
    /// `/openapi.json`
    Document,
    /// `/queues`
    Queues,
    /// `/queues/{queue}`
    Queue { queue: String },
    /// `/queues/{queue}/messages`
    Messages { queue: String },
    /// `/namespace`
    Namespace,
    /// `/declaration`
    Declaration,
    /// `/declaration/text`
    DeclarationText,
    /// `/declaration/export`
    DeclarationExport,
    /// `/queues/{queue}/messages/act`
    Act { path: String },
    /// `/queues/{queue}/jobs`
    CreateJob { path: String },
    /// `/jobs`
    Jobs,
    /// `/jobs/{job}`
    Job { job: String },
    /// `/jobs/{job}/samples`
    JobSamples { job: String },
    /// `/jobs/{job}/failures`
    JobFailures { job: String },
    /// `/jobs/{job}/export`
    JobExport { job: String },
    /// `/jobs/{job}/{operation}`
    ControlJob { job: String, operation: String },
    /// `/queues/{queue}/receipts/{job}`
    Receipt { path: String, job: String },
    /// `/queues/{queue}/messages/{operation or sequence number}`
    Message { queue: String, name: String },
    /// `/queues/{queue}/messages/{sequence number}/head`
    MessageHead { path: String, sequence: String },
    /// `/queues/{queue}/messages/{sequence number}/journey`
    Journey { path: String, sequence: String },
    /// `/queues/{queue}/messages/{sequence number}/body`
    MessageBody { path: String, sequence: String },
    /// `/queues/{queue}/heads`
    Heads { path: String },
    /// `/queues/{queue}/locks`
    Locks { path: String },
    /// `/queues/{queue}/locks/break`
    LockBreak { path: String },
    /// `/queues/{queue}/timeline`; `path` is empty for the namespace
    Timeline { path: String },
    /// `/queues/{queue}/series`; `path` is empty for the namespace
    Series { path: String },
    /// `/queues/{queue}/locks/{lockToken}/{operation}`
    Lock { queue: String, token: String, operation: String },
    /// `/queues/{queue}/sessions`
    Sessions { path: String },
    /// `/queues/{queue}/sessions/details`
    SessionDetails { path: String },
    /// `/queues/{queue}/sessions/{session}/state`
    SessionState { path: String, session: String },
    /// `/queues/{queue}/sessions/{session}/break`
    SessionBreak { path: String, session: String },
    /// `/entities`
    Entities,
    /// `/clients`
    Clients,
    /// `/clients/{client}`
    Client { client: String },
    /// `/audit`
    Audit,
    /// `/audit/export`
    AuditExport,
    /// `/journeys`
    Journeys,
    /// `/topics/{topic}/samples`
    Samples { path: String },
    /// `/topics/{topic}/explain`
    ExplainTopic { path: String },
    /// `/topics/{topic}/what-if`
    WhatIf { path: String },
    /// `/topology`
    Topology,
    /// `/checks`
    Checks,
    /// `/checks/mute`
    Mute,
    /// `/checks/unmute`
    Unmute,
    /// `/watch`
    Watch,
    /// `/search`
    Search,
    /// `/sign-in`
    SignIn,
    /// `/sign-in/unlock`
    Unlock,
    /// `/downloads`
    Downloads,
    /// `/downloads/{ticket}`
    Download { ticket: String },
    /// `/topics`
    Topics,
    /// `/topics/{topic}`
    Topic { topic: String },
    /// `/topics/{topic}/subscriptions`
    Subscriptions { topic: String },
    /// `/topics/{topic}/subscriptions/{subscription}`
    Subscription { topic: String, name: String },
    /// `/topics/{topic}/subscriptions/{subscription}/rules`
    Rules { path: String },
    /// `/topics/{topic}/subscriptions/{subscription}/rules/{rule}`
    Rule { path: String, name: String },
    /// `/topics/{topic}/subscriptions/{subscription}/explain`
    Explain { path: String },
    /// `/policies`, and the same below a queue or topic; `owner` is empty for the namespace
    Policies { owner: String },
    /// `/policies/{policy}`
    Policy { owner: String, name: String },
    /// `/policies/{policy}/keys`
    PolicyKeys { owner: String, name: String },
    /// `/policies/{policy}/regenerate`
    RegenerateKey { owner: String, name: String },
}

/// Parses a path; none if it is not percent-encoded UTF-8.
pub(crate) fn parse(path: &str, query: &str) -> Option<Route> {
    let Some(path) = path.strip_prefix('/') else { return Some(Route::Unknown) };
    let path = path.strip_suffix('/').unwrap_or(path);
    let segments = path
        .split('/')
        .map(|segment| percent_decode_str(segment).decode_utf8().ok().map(String::from))
        .collect::<Option<Vec<String>>>()?;
    let has_version = parameter(query, "api-version").is_some();
    Some(read(&segments, has_version))
}

fn read(segments: &[String], has_version: bool) -> Route {
    let same = |segment: &str, word: &str| segment.eq_ignore_ascii_case(word);
    let [first, rest @ ..] = segments else { return Route::Unknown };
    if let [version, rest @ ..] = rest
        && [first, version].into_iter().zip(API).all(|(segment, word)| same(segment, word))
    {
        return read_api(rest).map_or(Route::Unknown, Route::Api);
    }
    // Relative addresses in the document need its only address, with one slash at the end.
    if same(first, CONSOLE) && rest.iter().all(|segment| !segment.is_empty()) {
        return Route::Console { path: rest.join("/") };
    }
    match segments {
        [probe] if !has_version => match probe.as_str() {
            "livez" => return Route::Probe(Probe::Live),
            "readyz" => return Route::Probe(Probe::Ready),
            "health" => return Route::Probe(Probe::Health),
            "metrics" => return Route::Probe(Probe::Metrics),
            _ => {}
        },
        // A subscription or rule may be named like a word of the data plane, which has nothing
        // below topics.
        segments if AtomRoute::is_below_topic(segments) => {}
        [entity @ .., messages] if same(messages, MESSAGES) && !entity.is_empty() => {
            return Route::Messages { entity: entity.join("/") };
        }
        [entity @ .., messages, head]
            if same(messages, MESSAGES) && same(head, HEAD) && !entity.is_empty() =>
        {
            return Route::Head { entity: entity.join("/") };
        }
        [entity @ .., messages, reference, token]
            if same(messages, MESSAGES) && !entity.is_empty() =>
        {
            return Route::Lock {
                entity: entity.join("/"),
                reference: reference.clone(),
                token: token.clone(),
            };
        }
        _ => {}
    }
    if segments.first().is_some_and(|first| same(first, API[0])) {
        return Route::Unknown;
    }
    AtomRoute::read(segments).map_or(Route::Unknown, Route::Atom)
}

fn read_api(segments: &[String]) -> Option<ApiRoute> {
    let words: Vec<&str> = segments.iter().map(String::as_str).collect();
    Some(match *words {
        ["openapi.json"] => ApiRoute::Document,
        ["namespace"] => ApiRoute::Namespace,
        ["declaration"] => ApiRoute::Declaration,
        ["declaration", "text"] => ApiRoute::DeclarationText,
        ["declaration", "export"] => ApiRoute::DeclarationExport,
        ["queues"] => ApiRoute::Queues,
        ["queues", queue] => ApiRoute::Queue { queue: queue.to_owned() },
        ["entities"] => ApiRoute::Entities,
        ["clients"] => ApiRoute::Clients,
        ["clients", client] => ApiRoute::Client { client: client.to_owned() },
        ["audit"] => ApiRoute::Audit,
        ["audit", "export"] => ApiRoute::AuditExport,
        ["journeys"] => ApiRoute::Journeys,
        ["topology"] => ApiRoute::Topology,
        ["checks"] => ApiRoute::Checks,
        ["checks", "mute"] => ApiRoute::Mute,
        ["checks", "unmute"] => ApiRoute::Unmute,
        ["jobs"] => ApiRoute::Jobs,
        ["jobs", job] => ApiRoute::Job { job: job.to_owned() },
        ["jobs", job, "samples"] => ApiRoute::JobSamples { job: job.to_owned() },
        ["jobs", job, "failures"] => ApiRoute::JobFailures { job: job.to_owned() },
        ["jobs", job, "export"] => ApiRoute::JobExport { job: job.to_owned() },
        ["jobs", job, operation] => {
            ApiRoute::ControlJob { job: job.to_owned(), operation: operation.to_owned() }
        }
        ["watch"] => ApiRoute::Watch,
        ["search"] => ApiRoute::Search,
        ["sign-in"] => ApiRoute::SignIn,
        ["sign-in", "unlock"] => ApiRoute::Unlock,
        ["downloads"] => ApiRoute::Downloads,
        ["downloads", ticket] => ApiRoute::Download { ticket: ticket.to_owned() },
        ["timeline"] => ApiRoute::Timeline { path: String::new() },
        ["series"] => ApiRoute::Series { path: String::new() },
        ["policies", ref below @ ..] => return read_policies("", below),
        ["queues", queue, "policies", ref below @ ..] => return read_policies(queue, below),
        ["queues", queue, ref below @ ..] => return read_below(queue.to_owned(), below),
        ["topics", ref below @ ..] => return read_topics(below),
        _ => return None,
    })
}

/// Parses the segments below `/topics`. Messages are sent to a topic and received from a
/// subscription, with the same operations as for a queue.
fn read_topics(words: &[&str]) -> Option<ApiRoute> {
    let (path, below) = match *words {
        [] => return Some(ApiRoute::Topics),
        [topic] => return Some(ApiRoute::Topic { topic: topic.to_owned() }),
        [topic, "subscriptions"] => {
            return Some(ApiRoute::Subscriptions { topic: topic.to_owned() });
        }
        [topic, "subscriptions", name] => {
            return Some(ApiRoute::Subscription { topic: topic.to_owned(), name: name.to_owned() });
        }
        [topic, "subscriptions", name, ref below @ ..] => (subscription_path(topic, name), below),
        [topic, "policies", ref below @ ..] => return read_policies(topic, below),
        [topic, ref below @ ..] => (topic.to_owned(), below),
    };
    let is_subscription = matches!(words, [_, "subscriptions", ..]);
    Some(match *below {
        ["rules"] if is_subscription => ApiRoute::Rules { path },
        ["rules", name] if is_subscription => ApiRoute::Rule { path, name: name.to_owned() },
        ["explain"] if is_subscription => ApiRoute::Explain { path },
        ["explain"] => ApiRoute::ExplainTopic { path },
        ["what-if"] if !is_subscription => ApiRoute::WhatIf { path },
        ["samples"] if !is_subscription => ApiRoute::Samples { path },
        ref below => return read_below(path, below),
    })
}

/// Parses the segments below an entity that all kinds of entities may have.
fn read_below(path: String, words: &[&str]) -> Option<ApiRoute> {
    Some(match *words {
        ["sessions"] => ApiRoute::Sessions { path },
        ["sessions", "details"] => ApiRoute::SessionDetails { path },
        ["sessions", session, "state"] => {
            ApiRoute::SessionState { path, session: session.to_owned() }
        }
        ["sessions", session, "break"] => {
            ApiRoute::SessionBreak { path, session: session.to_owned() }
        }
        ["messages"] => ApiRoute::Messages { queue: path },
        ["messages", "act"] => ApiRoute::Act { path },
        ["jobs"] => ApiRoute::CreateJob { path },
        ["receipts", job] => ApiRoute::Receipt { path, job: job.to_owned() },
        ["messages", name] => ApiRoute::Message { queue: path, name: name.to_owned() },
        ["messages", sequence, "head"] => {
            ApiRoute::MessageHead { path, sequence: sequence.to_owned() }
        }
        ["messages", sequence, "journey"] => {
            ApiRoute::Journey { path, sequence: sequence.to_owned() }
        }
        ["messages", sequence, "body"] => {
            ApiRoute::MessageBody { path, sequence: sequence.to_owned() }
        }
        ["heads"] => ApiRoute::Heads { path },
        ["locks"] => ApiRoute::Locks { path },
        ["locks", "break"] => ApiRoute::LockBreak { path },
        ["locks", token, operation] => {
            ApiRoute::Lock { queue: path, token: token.to_owned(), operation: operation.to_owned() }
        }
        ["timeline"] => ApiRoute::Timeline { path },
        ["series"] => ApiRoute::Series { path },
        _ => return None,
    })
}

/// Parses the segments below `/policies`.
fn read_policies(owner: &str, words: &[&str]) -> Option<ApiRoute> {
    let owner = owner.to_owned();
    Some(match *words {
        [] => ApiRoute::Policies { owner },
        [name] => ApiRoute::Policy { owner, name: name.to_owned() },
        [name, "keys"] => ApiRoute::PolicyKeys { owner, name: name.to_owned() },
        [name, "regenerate"] => ApiRoute::RegenerateKey { owner, name: name.to_owned() },
        _ => return None,
    })
}

/// Returns the decoded first value of a query parameter; `name` must be in lower case.
pub(crate) fn parameter(query: &str, name: &str) -> Option<String> {
    parameter_values(query, name).next()
}

/// Returns all decoded values of a query parameter; `name` must be in lower case.
pub(crate) fn parameter_values<'q>(
    query: &'q str,
    name: &'q str,
) -> impl Iterator<Item = String> + 'q {
    // Some clients write a second question mark (ADM-04).
    let is_named = move |key: &str| decode(key).trim_start_matches('?').eq_ignore_ascii_case(name);
    pairs(query).filter(move |(key, _)| is_named(key)).map(|(_, value)| decode(value))
}

/// Returns the decoded names of all query parameters.
pub(crate) fn parameter_names(query: &str) -> impl Iterator<Item = String> {
    pairs(query).map(|(key, _)| decode(key)).filter(|name| !name.is_empty())
}

fn pairs(query: &str) -> impl Iterator<Item = (&str, &str)> {
    query.split('&').map(|pair| pair.split_once('=').unwrap_or((pair, "")))
}

fn decode(text: &str) -> String {
    percent_decode_str(&text.replace('+', " ")).decode_utf8_lossy().into_owned()
}

/// Encodes each segment of a path and keeps its slashes.
pub(crate) fn encode_path(path: &str) -> String {
    path.split('/').map(encode_segment).collect::<Vec<_>>().join("/")
}

/// Encodes a text as one segment, including its slashes.
pub(crate) fn encode_segment(text: &str) -> String {
    utf8_percent_encode(text, SEGMENT).to_string()
}

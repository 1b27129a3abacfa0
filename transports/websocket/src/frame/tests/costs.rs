//! The computed cost of a frame covers the memory that decoding takes, as the allocator measures
//! it: for each kind of request and any length of lists and texts, in both encodings (DESIGN D6).

use allocation_counter::measure;
use peeklock_core::admission::COMMAND_BYTES;
use serde_json::{Value as Json, json};

use super::*;

const ROUNDS: usize = 20;
/// Approximate maximum size of a grown list or text, in bytes.
const GROWN_BYTES: u64 = 300_000;

/// Returns one request of each kind, as it stands in a JSON frame.
fn each() -> Vec<Json> {
    let all = operations().into_iter().chain(topics::operations());
    let all = all.chain(policies::operations()).chain(retry::operations());
    let all = all.chain(declarations::operations());
    let all = all.chain(inspect::operations());
    let one = |operation| {
        let frame = client_frame(Encoding::Json, 0, &[Request { id: 1, operation }]);
        serde_json::from_slice::<Json>(&frame).unwrap()["requests"][0].take()
    };
    all.map(one).collect()
}

/// Makes lists and texts longer.
fn grow(value: &mut Json, random: &mut Random) {
    match value {
        Json::String(text) if random.one_in(4) => {
            *text = text.repeat(1 + random.index(2_000));
        }
        Json::Array(list) => {
            let bytes = list.iter().map(|one| one.to_string().len()).sum::<usize>() as u64;
            let times = (GROWN_BYTES / (bytes + 1)).clamp(1, LIST_COUNT_MAX as u64);
            let count = (list.len() * random.index(usize::try_from(times).unwrap() + 1))
                .min(LIST_COUNT_MAX);
            *list = list.iter().cycle().take(count).cloned().collect();
        }
        Json::Object(fields) => fields.values_mut().for_each(|value| grow(value, random)),
        _ => {}
    }
}

/// Returns the number of elements in the lists of a request's body and of the objects in it; one if
/// it has none.
fn elements(request: &Json) -> u64 {
    fn lists(value: &Json, depth: usize) -> u64 {
        match value {
            Json::Array(list) => list.len().max(1) as u64,
            Json::Object(fields) if depth > 0 => {
                fields.values().map(|value| lists(value, depth - 1)).sum()
            }
            _ => 0,
        }
    }
    lists(request, 3).max(1)
}

/// Decodes a frame and asserts that it stays within its computed cost; returns its cost
/// number of commands.
fn commands(encoding: Encoding, bytes: &Bytes) -> u64 {
    let (commands, cost) = cost_of(encoding, bytes);
    let mut decoded = None;
    let paid = measure(|| decoded = Some(ClientFrame::decode(encoding, bytes)));
    let is_refused =
        decoded.and_then(Result::ok).is_none_or(|frame| frame.requests.iter().any(Result::is_err));
    // The parser quotes unknown text and copies it meanwhile. The copy is freed before the thread
    // decodes another frame, so there is at most one copy per decoding thread.
    let quoted = if is_refused { 5 * bytes.len() as u64 } else { 0 };
    let (paid_bytes, held_bytes) = (paid.bytes_max, paid.bytes_current.unsigned_abs());
    assert!(
        held_bytes <= cost + COMMAND_BYTES,
        "{held_bytes} bytes are held for {commands} commands, of {cost} in {encoding:?}: {:.300}",
        String::from_utf8_lossy(bytes)
    );
    // The frame without its requests fits into the cost of a command.
    assert!(
        paid_bytes <= cost + COMMAND_BYTES + quoted,
        "{paid_bytes} bytes for {commands} commands, of {cost} in {encoding:?}: {:.300}",
        String::from_utf8_lossy(bytes)
    );
    commands
}

#[test]
fn decoding_stays_within_the_announced_cost() {
    let mut random = Random::new(11);
    let (mut read, mut grown) = (0, 0);
    for shown in each() {
        for round in 0..ROUNDS {
            let mut request = shown.clone();
            if round > 0 {
                grow(&mut request, &mut random);
            }
            let frame = json!({ "seen": 0, "requests": [request] });
            let text = Bytes::from(frame.to_string());
            assert_eq!(commands(Encoding::Json, &text), elements(&request), "{request:.300}");
            // A request that cannot be read has stayed within the cost as well, and has no binary
            // form.
            let decoded = ClientFrame::decode(Encoding::Json, &text).unwrap();
            if let Some(Ok(decoded)) = decoded.requests.into_iter().next() {
                read += 1;
                grown += usize::from(text.len() > 2_000);
                let binary = client_frame(Encoding::Binary, 0, &[decoded]);
                commands(Encoding::Binary, &binary);
            }
        }
    }
    assert!(read > 300 && grown > 100, "{read} were read, {grown} of them large");
}

/// A declaration of many queues with only short names, which becomes much larger than its bytes.
#[test]
fn a_declaration_of_short_names_pays_for_its_values() {
    fn shorten(value: &mut Json) -> bool {
        let Json::Object(fields) = value else { return false };
        if let Some(queues) = fields.get_mut("queues") {
            *queues = vec![json!({ "path": "a" }); 2_000].into();
            return true;
        }
        fields.values_mut().any(shorten)
    }

    let mut tried = 0;
    for mut request in each() {
        if shorten(&mut request) {
            let text = Bytes::from(json!({ "requests": [request] }).to_string());
            let decoded = ClientFrame::decode(Encoding::Json, &text).unwrap();
            let read: Vec<Request> = decoded.requests.into_iter().map(Result::unwrap).collect();
            commands(Encoding::Binary, &client_frame(Encoding::Binary, 0, &read));
            tried += 1;
        }
    }
    assert!(tried > 0);
}

/// Many requests in one frame, each with decoded values.
#[test]
fn frames_of_many_requests_cost_as_much() {
    let mut random = Random::new(12);
    let all = each();
    for _ in 0..ROUNDS {
        let count = 1 + random.index(400);
        let requests: Vec<&Json> = (0..count).map(|_| random.pick(&all).unwrap()).collect();
        let text = Bytes::from(json!({ "requests": requests }).to_string());
        let expected = requests.iter().map(|request| elements(request)).sum::<u64>();
        assert_eq!(commands(Encoding::Json, &text), expected);
        let decoded = ClientFrame::decode(Encoding::Json, &text).unwrap();
        let decoded: Vec<Request> = decoded.requests.into_iter().map(Result::unwrap).collect();
        commands(Encoding::Binary, &client_frame(Encoding::Binary, 0, &decoded));
    }
}

/// The requests of a frame have a common limit: each request beyond it is refused.
#[test]
fn requests_beyond_the_frame_limit_are_refused_undecoded() {
    let too_much = |encoding, bytes: &Bytes| {
        let frame = ClientFrame::decode(encoding, bytes).unwrap();
        let refused = |read: Result<Request, BadRequest>| match read {
            Ok(_) => None,
            Err(bad) => {
                assert_eq!(bad.error, FrameError::TooMuch);
                Some(bad.id)
            }
        };
        frame.requests.into_iter().filter_map(refused).collect::<Vec<_>>()
    };
    let sends: Vec<Request> = (1..=6)
        .map(|id| {
            let sequence_numbers = vec![1; LIST_COUNT_MAX];
            let numbered = Numbered { link: 1, sequence_numbers };
            Request { id, operation: Operation::CancelScheduled(numbered) }
        })
        .collect();
    for encoding in Encoding::ALL {
        assert_eq!(too_much(encoding, &client_frame(encoding, 0, &sends)), [5, 6], "{encoding:?}");
    }
    // No request has lists within lists. They count as no commands, and cost the memory of their
    // parts.
    let parts = vec!["{}"; 200_000].join(",");
    let text = format!(r#"{{"requests":[{{"id":7,"heartbeat":{{"x":[[{parts}]]}}}}]}}"#);
    let text = Bytes::from(text);
    let (commands, cost) = cost_of(Encoding::Json, &text);
    assert_eq!(commands, 1);
    assert!(cost > COMMAND_BYTES * LIST_COUNT_MAX as u64, "{cost}");
    assert_eq!(too_much(Encoding::Json, &text), [7]);
}

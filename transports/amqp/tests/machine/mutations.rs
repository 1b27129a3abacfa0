//! Scripts of bytes with random mistakes, for a whole connection: no panic, no endless loop, no
//! unbounded growth.

use peeklock_amqp::performative::{
    Close, Detach, Disposition, End, Flow, Open, Performative, Role, Transfer,
};
use peeklock_amqp::state::{DeliveryState, Outcome};
use peeklock_amqp_testing::exercise::{self, Run};
use peeklock_store_testing::Random;

use crate::client::{AMQP, begin, credit, frame, receiver, sender, session_flow, transfer};

/// Frames of a client that uses all performatives, in a valid order.
fn script() -> Vec<Vec<u8>> {
    let open = Open { container_id: "c".into(), max_frame_size: Some(1_024), ..Open::default() };
    let mut frames = vec![AMQP.to_vec(), frame(0, 0, &Performative::Open(Box::new(open)), &[])];
    for channel in 0..2 {
        let mut send = |performative: &Performative, payload: &[u8]| {
            frames.push(frame(0, channel, performative, payload));
        };
        send(&begin(100), &[]);
        send(&Performative::Attach(Box::new(sender(0))), &[]);
        send(&Performative::Attach(Box::new(receiver(1))), &[]);
        for id in 0..6 {
            send(&Performative::Transfer(Transfer { more: true, ..transfer(0, id) }), &[1; 100]);
            send(&Performative::Transfer(Transfer::default()), &[2; 1_000]);
        }
        send(&Performative::Flow(credit(1, 0, 4)), &[]);
        let disposition = Disposition {
            role: Role::Receiver,
            first: 0,
            last: Some(2),
            settled: false,
            state: Some(DeliveryState::Outcome(Outcome::Released)),
            batchable: false,
        };
        send(&Performative::Disposition(disposition.clone()), &[]);
        send(&Performative::Flow(Flow { echo: true, ..session_flow(6, 100) }), &[]);
        send(&Performative::Flow(Flow { drain: true, ..credit(1, 4, 3) }), &[]);
        let settled = Disposition { settled: true, last: Some(u32::MAX >> 2), ..disposition };
        send(&Performative::Disposition(settled), &[]);
        send(&Performative::Detach(Detach { handle: 1, closed: true, error: None }), &[]);
    }
    frames.push(frame(0, 1, &Performative::End(End { error: None }), &[]));
    frames.push(frame(0, 0, &Performative::Close(Close { error: None }), &[]));
    frames
}

#[test]
fn the_script_is_understood_whole_and_in_any_pieces() {
    let whole = script().concat();
    let Run { event_count, frame_count, over } = exercise::connection(&whole, whole.len());
    assert!(over && event_count > 30 && frame_count > 30, "{event_count} {frame_count}");
    for piece_bytes in 1..100 {
        let run = exercise::connection(&whole, piece_bytes);
        assert!(run.over && run.event_count > 30, "in pieces of {piece_bytes}: {run:?}");
    }
}

/// Seeds of the random scripts. `just scripts` runs many more.
fn seeds() -> std::ops::Range<u64> {
    let number =
        |name: &str, otherwise| std::env::var(name).map_or(otherwise, |text| text.parse().unwrap());
    let first = number("PEEKLOCK_AMQP_SEED", 1);
    first..first + number("PEEKLOCK_AMQP_SEEDS", 6_000)
}

/// Prints the seed of a failure.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("repeat with PEEKLOCK_AMQP_SEED={} PEEKLOCK_AMQP_SEEDS=1", self.0);
        }
    }
}

/// The script with a few frames removed, repeated, swapped, or with wrong bytes.
fn mistaken(random: &mut Random, mut frames: Vec<Vec<u8>>) -> Vec<u8> {
    for _ in 0..random.between(1, 5) {
        // Changes the first two only rarely, since the rest depends on them.
        let from = if random.one_in(20) { 0 } else { 2 };
        let at = from + random.index(frames.len() - from);
        match random.below(5) {
            0 => drop(frames.remove(at)),
            1 => frames.insert(at, frames[random.index(frames.len())].clone()),
            2 => {
                let other = from + random.index(frames.len() - from);
                frames.swap(at, other);
            }
            _ => {
                let place = random.index(frames[at].len());
                frames[at][place] = u8::try_from(random.below(256)).unwrap();
            }
        }
    }
    frames.concat()
}

#[test]
fn scripts_with_mistakes_end_as_all_others_do() {
    let frames = script();
    let (mut events, mut over) = (0, 0);
    for seed in seeds() {
        let _named = Seed(seed);
        let mut random = Random::new(seed);
        let bytes = mistaken(&mut random, frames.clone());
        let piece_bytes = usize::try_from(random.between(1, 600)).unwrap();
        let run = exercise::connection(&bytes, piece_bytes);
        events += run.event_count;
        over += u64::from(run.over);
    }
    // Most scripts go far, many end with an error, and some do not end.
    let count = seeds().end - seeds().start;
    if count > 1_000 {
        assert!(events as u64 > count * 10, "{events}");
        assert!((count / 2..count).contains(&over), "{over}");
    }
}

#[test]
fn noise_is_survived() {
    for seed in seeds() {
        let _named = Seed(seed);
        let mut random = Random::new(seed);
        let length = random.index(400);
        let mut bytes = AMQP.to_vec();
        bytes.extend((0..length).map(|_| u8::try_from(random.below(256)).unwrap()));
        // Sometimes with a complete header, never with valid frames.
        let run = exercise::connection(&bytes[random.index(9)..], 1 + random.index(100));
        assert!(run.event_count <= 1, "{run:?}");
    }
}

//! Tests of the output with sockets that accept any number of bytes at a time.

use std::io::IoSlice;

use bytes::{Buf as _, Bytes};
use peeklock_amqp::connection::{Config, LinkId};
use peeklock_amqp::link::Delivery;
use peeklock_amqp::performative::{Open, Performative};
use peeklock_store_testing::Random;

use crate::client::{Client, credit, receiver, tag};

/// Number of runs.
const RUNS: u64 = 300;

/// A client with room for everything that a run sends, and this maximum frame size.
fn receiving(frame_bytes_max: u32) -> (Client, LinkId) {
    let config = Config { output_bytes_max: usize::MAX, unsettled_max: 1_000, ..Config::default() };
    let max_frame_size = Some(frame_bytes_max);
    let open = Open { container_id: "c".into(), max_frame_size, ..Open::default() };
    let mut client = Client::open_with(config, open);
    client.begin(0, 100_000);
    let link = client.attach(receiver(0));
    client.send(0, &Performative::Flow(credit(0, 0, 1_000)));
    client.events();
    client.receive();
    (client, link)
}

/// Sends a message of pieces of any size, and puts all its frames into the output.
fn send(client: &mut Client, link: LinkId, payload: Vec<Bytes>) {
    // The window came with the credit.
    client.connection.send(link, Delivery { tag: tag(b"t"), settled: false, payload }).unwrap();
    client.connection.output(client.now);
    assert!(client.connection.is_sent(link));
}

/// Takes some of the output, like a socket that is offered a few pieces; returns whether bytes are
/// left.
fn take_some(client: &mut Client, random: &mut Random, taken: &mut Vec<u8>) -> bool {
    let output = client.connection.output(client.now);
    let before = output.remaining();
    let mut pieces = [IoSlice::new(&[]); 8];
    let offered = random.index(pieces.len()) + 1;
    let count = output.chunks_vectored(&mut pieces[..offered]);
    let pieces: Vec<u8> = pieces[..count].iter().flat_map(|piece| piece.to_vec()).collect();
    assert_eq!(pieces.is_empty(), before == 0);
    // Often up to the border of a piece or next to it, otherwise anywhere.
    let some = match random.below(3) {
        0 => output.chunk().len().saturating_add(random.index(3)).saturating_sub(1),
        _ => random.index(pieces.len() + 1),
    };
    let some = some.min(pieces.len());
    taken.extend_from_slice(&pieces[..some]);
    output.advance(some);
    assert_eq!(output.remaining(), before - some);
    before > some
}

/// For any number of bytes at a time, across and within pieces, the result equals a single write.
#[test]
fn a_socket_may_take_any_number_of_bytes() {
    let mut piece_count = 0;
    for seed in 1..=RUNS {
        let mut random = Random::new(seed);
        let frame_bytes_max = [512, 4_096, 65_536][random.index(3)];
        let (mut whole, whole_link) = receiving(frame_bytes_max);
        let (mut parts, parts_link) = receiving(frame_bytes_max);
        let mut taken = Vec::new();
        for message in 0..random.between(1, 20) {
            let largest = [20, 2_000, 20_000][random.index(3)];
            let byte = u8::try_from(message).unwrap();
            let pieces = (0..random.index(4)).map(|_| vec![byte; random.index(largest)].into());
            let pieces: Vec<Bytes> = pieces.collect();
            send(&mut whole, whole_link, pieces.clone());
            send(&mut parts, parts_link, pieces);
            for _ in 0..random.index(6) {
                take_some(&mut parts, &mut random, &mut taken);
            }
        }
        let mut pieces = [IoSlice::new(&[]); 64];
        piece_count += whole.connection.output(whole.now).chunks_vectored(&mut pieces);
        while take_some(&mut parts, &mut random, &mut taken) {}
        let output = whole.connection.output(whole.now);
        assert!(output.copy_to_bytes(output.remaining()) == taken, "seed {seed}");
    }
    assert!(piece_count > 2 * 300, "there is too little to cut: {piece_count}");
}

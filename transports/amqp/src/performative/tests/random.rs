//! Random performatives; each optional field is present or missing at random.

use super::*;

fn some<T>(random: &mut Random, make: impl FnOnce(&mut Random) -> T) -> Option<T> {
    (!random.one_in(3)).then(|| make(random))
}

fn uint(random: &mut Random) -> u32 {
    let shift = random.below(33);
    u32::try_from(random.bits() >> 32)
        .unwrap()
        .checked_shr(u32::try_from(shift).unwrap())
        .unwrap_or(0)
}

fn text(random: &mut Random) -> Box<str> {
    let length = if random.one_in(8) { 300 } else { random.index(12) };
    (0..length).map(|_| *random.pick(&['a', 'ü', '/', '\u{0}', '😀']).unwrap()).collect()
}

fn symbol(random: &mut Random) -> Box<str> {
    let length = random.index(12);
    (0..length).map(|_| *random.pick(&['a', ':', '-']).unwrap()).collect()
}

fn binary(random: &mut Random) -> Bytes {
    let length = if random.one_in(8) { 300 } else { random.index(40) };
    (0..length).map(|_| u8::try_from(random.below(256)).unwrap()).collect()
}

fn raw(random: &mut Random) -> Raw {
    let text = text(random);
    let number = random.bits();
    match random.below(5) {
        0 => Raw::encoded(|bytes| write::text(bytes, &text)),
        1 => Raw::encoded(|bytes| write::ulong(bytes, number)),
        2 => Raw::encoded(|bytes| write::fixed(bytes, 0x82, number.to_be_bytes())),
        3 => Raw::encoded(|bytes| write::fixed(bytes, 0x84, number.to_be_bytes())),
        _ => map(random).into_raw(),
    }
}

fn map(random: &mut Random) -> Map {
    let entries: Vec<_> = (0..random.below(3)).map(|_| (symbol(random), raw(random))).collect();
    Map::of_symbols(entries.iter().map(|(key, value)| (&**key, value.clone())))
}

fn symbols(random: &mut Random) -> Symbols {
    let symbols: Vec<_> = (0..random.below(4)).map(|_| symbol(random)).collect();
    Symbols::new(&symbols.iter().map(|symbol| &**symbol).collect::<Vec<_>>())
}

fn error(random: &mut Random) -> AmqpError {
    let error = AmqpError::new(symbol(random).into_string(), text(random).into_string());
    if random.one_in(2) { error.with_info(map(random)) } else { error }
}

fn role(random: &mut Random) -> Role {
    if random.one_in(2) { Role::Sender } else { Role::Receiver }
}

fn outcome(random: &mut Random) -> Outcome {
    match random.below(5) {
        0 => Outcome::Accepted,
        1 => Outcome::Rejected(Rejected { error: some(random, error) }),
        2 => Outcome::Released,
        3 => Outcome::Modified(Modified {
            delivery_failed: some(random, |random| random.one_in(2)),
            undeliverable_here: some(random, |random| random.one_in(2)),
            message_annotations: some(random, map),
        }),
        _ => Outcome::Declared(Declared { txn_id: binary(random) }),
    }
}

fn any_state(random: &mut Random) -> DeliveryState {
    match random.below(3) {
        0 => DeliveryState::Received(Received {
            section_number: uint(random),
            section_offset: random.bits(),
        }),
        1 => DeliveryState::Outcome(outcome(random)),
        _ => DeliveryState::Transactional(Box::new(Transactional {
            txn_id: binary(random),
            outcome: some(random, outcome),
        })),
    }
}

fn node(random: &mut Random) -> TerminusNode {
    TerminusNode {
        address: some(random, raw),
        durable: some(random, uint),
        expiry_policy: some(random, symbol),
        timeout: some(random, uint),
        dynamic: random.one_in(2),
        dynamic_node_properties: some(random, map),
    }
}

fn source(random: &mut Random) -> Source {
    Source {
        node: node(random),
        distribution_mode: some(random, symbol),
        filter: some(random, map),
        default_outcome: some(random, raw),
        outcomes: some(random, symbols),
        capabilities: some(random, symbols),
    }
}

fn target(random: &mut Random) -> Target {
    if random.one_in(4) {
        return Target::Coordinator(Coordinator { capabilities: some(random, symbols) });
    }
    Target::Node(NodeTarget { node: node(random), capabilities: some(random, symbols) })
}

fn sender_mode(random: &mut Random) -> SenderSettleMode {
    *random
        .pick(&[SenderSettleMode::Unsettled, SenderSettleMode::Settled, SenderSettleMode::Mixed])
        .unwrap()
}

fn receiver_mode(random: &mut Random) -> ReceiverSettleMode {
    *random.pick(&[ReceiverSettleMode::First, ReceiverSettleMode::Second]).unwrap()
}

fn tag(random: &mut Random) -> DeliveryTag {
    let bytes = binary(random);
    DeliveryTag::new(&bytes[..bytes.len().min(64)]).unwrap()
}

fn channel(random: &mut Random) -> u16 {
    u16::try_from(random.below(65_536)).unwrap()
}

pub(super) fn performative(random: &mut Random) -> Performative {
    match random.below(9) {
        0 => Performative::Open(Box::new(Open {
            container_id: text(random),
            hostname: some(random, text),
            max_frame_size: some(random, uint),
            channel_max: some(random, channel),
            idle_time_out: some(random, uint),
            outgoing_locales: some(random, symbols),
            incoming_locales: some(random, symbols),
            offered_capabilities: some(random, symbols),
            desired_capabilities: some(random, symbols),
            properties: some(random, map),
        })),
        1 => Performative::Begin(Box::new(Begin {
            remote_channel: some(random, channel),
            next_outgoing_id: uint(random),
            incoming_window: uint(random),
            outgoing_window: uint(random),
            handle_max: some(random, uint),
            offered_capabilities: some(random, symbols),
            desired_capabilities: some(random, symbols),
            properties: some(random, map),
        })),
        2 => Performative::Attach(Box::new(Attach {
            name: text(random),
            handle: uint(random),
            role: role(random),
            snd_settle_mode: some(random, sender_mode),
            rcv_settle_mode: some(random, receiver_mode),
            source: some(random, source),
            target: some(random, target),
            unsettled: some(random, map),
            incomplete_unsettled: random.one_in(2),
            initial_delivery_count: some(random, uint),
            max_message_size: some(random, Random::bits),
            offered_capabilities: some(random, symbols),
            desired_capabilities: some(random, symbols),
            properties: some(random, map),
        })),
        3 => Performative::Flow(Flow {
            next_incoming_id: some(random, uint),
            incoming_window: uint(random),
            next_outgoing_id: uint(random),
            outgoing_window: uint(random),
            handle: some(random, uint),
            delivery_count: some(random, uint),
            link_credit: some(random, uint),
            available: some(random, uint),
            drain: random.one_in(2),
            echo: random.one_in(2),
            properties: some(random, map),
        }),
        4 => Performative::Transfer(Transfer {
            handle: uint(random),
            delivery_id: some(random, uint),
            delivery_tag: some(random, tag),
            message_format: some(random, uint),
            settled: some(random, |random| random.one_in(2)),
            more: random.one_in(2),
            rcv_settle_mode: some(random, receiver_mode),
            state: some(random, any_state),
            resume: random.one_in(2),
            aborted: random.one_in(2),
            batchable: random.one_in(2),
        }),
        5 => Performative::Disposition(Disposition {
            role: role(random),
            first: uint(random),
            last: some(random, uint),
            settled: random.one_in(2),
            state: some(random, any_state),
            batchable: random.one_in(2),
        }),
        6 => Performative::Detach(Detach {
            handle: uint(random),
            closed: random.one_in(2),
            error: some(random, error),
        }),
        7 => Performative::End(End { error: some(random, error) }),
        _ => Performative::Close(Close { error: some(random, error) }),
    }
}

//! Fuzz target: runs the checks of a connection with SASL on arbitrary bytes.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // The first byte determines the size of the pieces in which the rest arrives.
    let Some((piece_bytes, script)) = bytes.split_first() else { return };
    _ = peeklock_amqp_testing::exercise::login(script, usize::from(*piece_bytes) * 4 + 1);
});

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    // The first byte says in which pieces it comes.
    let Some((piece_bytes, script)) = bytes.split_first() else { return };
    _ = peeklock_amqp_testing::exercise::login(script, usize::from(*piece_bytes) * 4 + 1);
});

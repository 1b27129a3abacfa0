//! Fuzz target: runs the checks of frames and performatives on arbitrary bytes.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    _ = peeklock_amqp_testing::exercise::frames(bytes);
});

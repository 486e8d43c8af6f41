#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| laminar_aof::fuzz_targets::decoders(data));

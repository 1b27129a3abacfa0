//! Tests of headers and frames: they are read back, and damaged or foreign bytes are refused.

use super::*;
use peeklock_store_testing::Random;

fn header() -> SegmentHeader {
    SegmentHeader {
        version: Version::CURRENT,
        journal: 0x0102_0304_0506_0708_090a_0b0c_0d0e_0f10,
        number: 7,
        shard_count: 16,
        seed: 99,
        first_lsn: 1_000,
        synced: 999,
        oldest: 3,
        previous_end: 65_536,
    }
}

#[test]
fn a_header_is_read_back_and_its_copy_stands_in() {
    let page = header().write();
    assert_eq!(SegmentHeader::read(&page), Ok(header()));
    for at in 0..page.len() {
        let mut page = page.clone();
        page[at] ^= 0x10;
        assert_eq!(SegmentHeader::read(&page), Ok(header()), "one byte is damaged: {at}");
    }
    let mut both = page.clone();
    both[20] ^= 1;
    both[20 + HEADER_COPY_AT] ^= 1;
    assert_eq!(SegmentHeader::read(&both), Err(Flaw::Checksum));
    assert_eq!(SegmentHeader::read(&[0; 4_096]), Err(Flaw::Empty));
    assert_eq!(SegmentHeader::read(&page[..50]), Err(Flaw::Short));
}

#[test]
fn a_frame_is_read_back_and_damage_does_not_pass() {
    let mut buffer = vec![0; 16];
    let frame = FrameWriter::begin(&mut buffer);
    buffer.extend_from_slice(b"thirteen byte");
    frame.finish(&mut buffer, &[], FrameKind::Batch, 42, 41, 5);
    assert_eq!(buffer.len() % 8, 0);
    let bytes = &buffer[16..];
    let (head, payload) = FrameHead::read(bytes, 5).unwrap();
    assert_eq!(head, FrameHead { kind: FrameKind::Batch, length: 13, lsn: 42, synced: 41 });
    assert_eq!(payload, b"thirteen byte");
    assert_eq!(head.span(), bytes.len() as u64);
    for at in 0..FRAME_HEAD + 13 {
        let mut damaged = bytes.to_vec();
        damaged[at] ^= 0x20;
        assert!(FrameHead::read(&damaged, 5).is_err(), "byte {at}");
    }
    assert_eq!(FrameHead::read(bytes, 6), Err(Flaw::Checksum));
}

/// Bytes from any other source are refused.
#[test]
fn garbage_is_refused() {
    let mut random = Random::new(1);
    for _ in 0..20_000 {
        let length = random.index(200);
        let mut bytes: Vec<u8> = (0..length).map(|_| random.bits().to_le_bytes()[0]).collect();
        if let Some(place) = bytes.get_mut(..4) {
            place.copy_from_slice(&FRAME_MAGIC);
        }
        assert!(FrameHead::read(&bytes, 5).is_err());
        assert!(SegmentHeader::read(&bytes).is_err());
    }
}

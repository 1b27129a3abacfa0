//! Tests of records: they are read back, and damaged or foreign bytes are refused.

use super::*;
use peeklock_store_testing::Random;

fn records() -> Vec<LogRecord<'static>> {
    let place = |segment, offset| LogPosition { segment, offset };
    vec![
        LogRecord::Put { key: b"key", value: b"value", content: RecordContent::None },
        LogRecord::Put { key: b"k", value: b"", content: RecordContent::Here(b"content") },
        LogRecord::Put { key: b"", value: b"v", content: RecordContent::Here(b"") },
        LogRecord::Put {
            key: b"key",
            value: b"value",
            content: RecordContent::At { place: place(3, 400), length: 17 },
        },
        LogRecord::Put {
            key: b"key",
            value: b"value",
            content: RecordContent::Parts {
                places: vec![place(3, 400), place(4, 4_096), place(4, 270_000)],
                length: 600_000,
            },
        },
        LogRecord::Delete { key: b"some key" },
        LogRecord::DeletePrefix { prefix: b"prefix" },
    ]
}

fn read(bytes: &[u8], seed: u32) -> Result<(), Flaw> {
    RecordReader::new(Version::CURRENT, seed).read(bytes).map(|_| ())
}

/// The head of a record gives its length, and the value can be read alone if the key is known.
#[test]
fn value_is_read_without_its_content() {
    for record in records() {
        let mut buffer = Vec::new();
        let bytes = record.write(&mut buffer, 5) as usize;
        let mut reader = RecordReader::new(Version::CURRENT, 5);
        assert_eq!(reader.read(&buffer).unwrap().known, &buffer[..bytes]);
        let LogRecord::Put { key, value, .. } = record else { continue };
        assert_eq!(reader.read_value(&buffer[..bytes], key).as_deref(), Ok(value));
        assert_eq!(reader.read_value(&buffer[..bytes], b"other"), Err(Flaw::Form));
    }
}

/// No record exceeds the bound of its fields and head, even if packing saves nothing.
#[test]
fn a_record_has_a_bound() {
    let mut random = Random::new(4);
    for _ in 0..2_000 {
        let mut bytes = |max: usize| -> Vec<u8> {
            let length = random.index(max);
            (0..length).map(|_| random.bits().to_le_bytes()[0] | 1).collect()
        };
        let (key, value, content) = (bytes(40), bytes(300), bytes(300));
        let content = RecordContent::Here(&content);
        let put = LogRecord::Put { key: &key, value: &value, content };
        let mut buffer = Vec::new();
        let written = put.write(&mut buffer, 5) as usize;
        assert!(written <= RECORD_HEAD_MAX + key.len() + value.len());
        assert_eq!(RecordReader::new(Version::CURRENT, 5).read(&buffer).unwrap().record, put);
    }
}

#[test]
fn lengths_are_read_back_and_longer_ones_refused() {
    for length in [0, 1, 127, 128, 16_383, 16_384, u32::MAX - 1, u32::MAX] {
        let mut bytes = Vec::new();
        write_length(length, &mut bytes);
        let mut fields = Fields(&bytes);
        assert_eq!((fields.length(), fields.0.len()), (Ok(length), 0));
    }
    assert_eq!(Fields(&[0xff, 0xff, 0xff, 0xff, 0x1f]).length(), Err(Flaw::Form));
    assert_eq!(Fields(&[0x80, 0x80, 0x80, 0x80, 0x80, 0]).length(), Err(Flaw::Form));
    assert_eq!(Fields(&[0x80]).length(), Err(Flaw::Short));
}

#[test]
fn records_are_read_back() {
    let mut buffer = Vec::new();
    for record in records() {
        record.write(&mut buffer, 5);
    }
    let mut rest = &buffer[..];
    let mut reader = RecordReader::new(Version::CURRENT, 5);
    for record in records() {
        let read = reader.read(rest).unwrap();
        assert_eq!(read.record, record);
        rest = &rest[read.span..];
    }
    assert!(rest.is_empty());
}

/// No record with a lost or changed byte passes, except for bytes of a content, which has its own
/// checksum.
#[test]
fn a_damaged_record_does_not_pass() {
    for record in records() {
        let mut buffer = Vec::new();
        let content_at = record.write(&mut buffer, 5) as usize;
        let passes = |bytes: &[u8], seed| read(bytes, seed).is_ok();
        let holds_content =
            matches!(record, LogRecord::Put { content: RecordContent::Here(_), .. });
        for at in 0..buffer.len() {
            assert!(!passes(&buffer[..at], 5), "cut at {at}: {record:?}");
            if holds_content && at >= content_at {
                continue;
            }
            let mut damaged = buffer.clone();
            damaged[at] ^= 0x04;
            assert!(!passes(&damaged, 5), "byte {at}: {record:?}");
        }
        assert!(!passes(&buffer, 6), "written under another seed");
        if holds_content {
            assert!(read_content(&buffer[content_at..], 5).is_ok());
            let mut damaged = buffer.clone();
            *damaged.last_mut().unwrap() ^= 1;
            assert_eq!(read_content(&damaged[content_at..], 5), Err(Flaw::Checksum));
        }
    }
}

/// Bytes from any other source are refused.
#[test]
fn garbage_is_refused() {
    let mut random = Random::new(1);
    for _ in 0..20_000 {
        let length = random.index(200);
        let bytes: Vec<u8> = (0..length).map(|_| random.bits().to_le_bytes()[0]).collect();
        for version in [Version::V1, Version::V2] {
            assert!(RecordReader::new(version, 5).read(&bytes).is_err());
            // A reader without checks continues, but never past the end.
            let mut trusting = RecordReader::trusting(version);
            if let Ok(read) = trusting.read(&bytes) {
                assert!((REMOVAL_HEAD..=bytes.len()).contains(&read.span));
            }
        }
    }
}

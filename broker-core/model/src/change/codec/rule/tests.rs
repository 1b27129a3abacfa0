//! Rules as records.

use super::{read_rule, write_rule};
use crate::change::codec::VERSION;
use crate::message::Value;
use crate::rule::sql::Parameters;
use crate::rule::{CorrelationFilter, Filter, RuleDescription, SqlText};
use crate::time::Timestamp;

const NOW: Timestamp = Timestamp::from_unix_ms(1_800_000_000_000);

fn correlated(name: &str, filter: CorrelationFilter) -> RuleDescription {
    RuleDescription::new(name, Filter::Correlation(filter), NOW)
}

fn record(rule: &RuleDescription) -> Vec<u8> {
    let mut bytes = Vec::new();
    write_rule(rule, &mut bytes);
    bytes
}

fn all_values() -> Vec<Value> {
    vec![
        Value::Null,
        Value::Bool(true),
        Value::I8(-1),
        Value::I16(-300),
        Value::I32(-70_000),
        Value::I64(1 << 40),
        Value::U8(200),
        Value::U16(60_000),
        Value::U32(4_000_000_000),
        Value::U64(u64::MAX),
        Value::F32(0.5),
        Value::F64(0.1),
        Value::Decimal128([7; 16]),
        Value::Char('ä'),
        "text".into(),
        Value::Uuid(5),
        Value::Timestamp(-1),
        Value::Binary(vec![1, 2].into()),
        Value::Uri("u:x".into()),
        Value::DateTimeOffset(9),
        Value::TimeSpan(-9),
    ]
}

/// Records of version 1 stay readable.
#[test]
fn rule_codec_reads_and_writes_golden_records() {
    let correlation =
        CorrelationFilter { subject: Some("s".into()), ..CorrelationFilter::property("n", 1) };
    let text = SqlText { text: "a = @p".into(), parameters: Parameters::new().with("p", "x") };
    let filter = Filter::Sql(text);
    let golden: [(RuleDescription, &[u8]); 4] = [
        (
            RuleDescription::default_rule(NOW),
            b"\x01\x00\x00\x00\x08$Default\x08\xdf\x72\xdd\x8d\xaa\x80\x00\x00\x00",
        ),
        (
            RuleDescription::new("f", Filter::False, NOW),
            b"\x01\x00\x00\x00\x01f\x08\xdf\x72\xdd\x8d\xaa\x80\x00\x01\x00",
        ),
        (
            RuleDescription::new("q", filter, NOW).with_action("REMOVE a"),
            b"\x01\x00\x00\x00\x01q\x08\xdf\x72\xdd\x8d\xaa\x80\x00\x02\x00\x00\x00\x06a = @p\
              \x00\x00\x00\x01\x00\x00\x00\x01p\x00\x00\x00\x03\xa1\x01x\
              \x01\x00\x00\x00\x08REMOVE a\x00\x00\x00\x00",
        ),
        (
            correlated("c", correlation),
            b"\x01\x00\x00\x00\x01c\x08\xdf\x72\xdd\x8d\xaa\x80\x00\x03\
              \x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\
              \x01\x00\x00\x00\x01s\
              \x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\
              \x00\x00\x00\x01\x00\x00\x00\x01n\x00\x00\x00\x02\x54\x01\x00",
        ),
    ];
    for (rule, bytes) in golden {
        assert_eq!(record(&rule), bytes, "{rule:?}: {:02x?}", record(&rule));
        assert_eq!(read_rule(bytes), Ok(rule));
    }
}

/// TOP-14: each filter and each type of value survives a round trip.
#[test]
fn every_rule_survives_a_round_trip() {
    let values = all_values();
    let parameters = values.iter().enumerate().fold(Parameters::new(), |all, (place, value)| {
        all.with(&format!("p{place}"), value.clone())
    });
    let text = SqlText { text: "1 = 1".into(), parameters };
    let properties = values.iter().enumerate();
    let correlation = CorrelationFilter {
        correlation_id: Some("a".into()),
        message_id: Some("b".into()),
        to: Some("c".into()),
        reply_to: Some("d".into()),
        subject: Some("e".into()),
        session_id: Some("f".into()),
        reply_to_session_id: Some("g".into()),
        content_type: Some("".into()),
        properties: properties.map(|(n, value)| (n.to_string().into(), value.clone())).collect(),
    };
    let mut action = RuleDescription::new("r", Filter::Sql(text.clone()), NOW);
    action.action = Some(text);
    let plain = RuleDescription::default_rule(NOW);
    let extended = RuleDescription { extensions: Some("<x/>".into()), ..plain.clone() };
    for rule in [action, correlated("Ä", correlation), plain, extended] {
        let bytes = record(&rule);
        assert_eq!(read_rule(&bytes), Ok(rule.clone()));
        // A shorter, longer or later record is rejected without a panic.
        for length in 0..bytes.len() {
            assert!(read_rule(&bytes[..length]).is_err(), "{length}");
        }
        assert!(read_rule(&[&bytes[..], b"\0"].concat()).is_err());
        assert!(read_rule(&[&[VERSION + 2], &bytes[1..]].concat()).is_err());
        for place in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[place] ^= 0xff;
            drop(read_rule(&damaged));
        }
    }
}

//! Frames of declarations.

use super::*;

/// Like `golden.txt`, for declarations.
const GOLDEN: &str = include_str!("../golden_declarations.txt");

fn read<T: serde::de::DeserializeOwned>(json: &str) -> T {
    serde_json::from_str(json).unwrap()
}

/// Returns one request of each kind.
pub(super) fn operations() -> Vec<Operation> {
    let declaration: DeclarationForm = read(
        r#"{"queues":[{"path":"orders","properties":{"maxDeliveryCount":5,"forwardTo":null}}],
        "topics":[{"path":"events","properties":{},"subscriptions":[{"name":"eu","properties":{},
        "rules":[{"name":"region","filter":{"type":"sql","sql":"region = 'eu'"}}]}]}]}"#,
    );
    let digest = read("\"0123456789abcdef\"");
    let operations = [
        ManageOperation::PlanDeclaration(PlanDeclaration { declaration: declaration.clone() }),
        ManageOperation::CarryOutDeclaration(CarryOutDeclaration {
            declaration: declaration.clone(),
            digest,
            steps_max: None,
        }),
        ManageOperation::CarryOutDeclaration(CarryOutDeclaration {
            declaration,
            digest,
            steps_max: Some(10),
        }),
    ];
    operations.map(|it| Operation::Manage(Box::new(it))).into()
}

/// Returns one notice of each kind.
pub(super) fn notices() -> Vec<Notice> {
    const PLAN: &str = r#"{"steps":[{"kind":"update","entity":"queue","path":"orders","changes":
        [{"property":"max_delivery_count","before":"10","after":"5"}]}],"unchangedCount":2,
        "digest":"0123456789abcdef"}"#;
    let done: PlanResultView = read(&format!(r#"{{"done":1,"rest":{PLAN}}}"#));
    let failed: PlanResultView = read(&format!(
        r#"{{"done":0,"rest":{PLAN},"failure":{{"condition":"EntityNotFound","detail":"gone","retryable":false,"entity":"orders",
        "trackingId":"9b3f1c52-0f6e-4cf1-9d0e-7f1d0a8e2b11","timestamp":"2026-05-01T12:00:00Z"}}}}"#
    ));
    vec![
        Notice::Plan(Box::new(read(PLAN))),
        Notice::CarriedOut(Box::new(done)),
        Notice::CarriedOut(Box::new(failed)),
    ]
}

/// Frames must not differ from the released ones.
#[test]
fn frames_of_declarations_are_written_as_the_golden_ones() {
    let now = golden_of(operations(), notices());
    for (now, golden) in now.lines().zip(GOLDEN.lines()) {
        assert_eq!(now, golden);
    }
    assert_eq!(now.lines().count(), GOLDEN.lines().count(), "{now}");
}

/// A truncated frame yields no request that was incomplete.
#[test]
fn every_truncation_of_a_frame_of_declarations_is_an_error() {
    assert_no_part_is_carried_out(&operations());
}

//! Frames of policies.

use super::*;
use crate::operation::{KeyName, PolicyProperties};

/// Like `golden.txt`, for policies.
const GOLDEN: &str = include_str!("../golden_policies.txt");
const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

fn read<T: serde::de::DeserializeOwned>(json: &str) -> T {
    serde_json::from_str(json).unwrap()
}

/// Returns one request of each kind.
pub(super) fn operations() -> Vec<Operation> {
    let named = || NamedPolicy { path: "orders".into(), name: "shop".into() };
    let set = |json: &str| {
        let properties: PolicyProperties = read(json);
        SetPolicy { path: "orders".into(), name: "shop".into(), properties }
    };
    let regenerate =
        |key, value| RegeneratePolicyKey { path: String::new(), name: "shop".into(), key, value };
    let key = read(&format!("\"{KEY}\""));
    let operations = [
        ManageOperation::CreatePolicy(set(r#"{"rights":["Send","Listen"]}"#)),
        ManageOperation::GetPolicy(named()),
        ManageOperation::UpdatePolicy(set(&format!("{{\"secondaryKey\":\"{KEY}\"}}"))),
        ManageOperation::DeletePolicy(named()),
        ManageOperation::ListPolicies(PathOnly { path: String::new() }),
        ManageOperation::GetPolicyKeys(named()),
        ManageOperation::RegeneratePolicyKey(regenerate(KeyName::Secondary, None)),
        ManageOperation::RegeneratePolicyKey(regenerate(KeyName::Primary, Some(key))),
    ];
    operations.map(|it| Operation::Manage(Box::new(it))).into()
}

/// Returns one notice of each kind.
pub(super) fn notices() -> Vec<Notice> {
    const TIMES: &str = r#""createdAt":"2026-05-01T12:00:00Z","updatedAt":"2026-05-02T12:00:00Z""#;
    let policy: PolicyView = read(&format!(r#"{{"name":"shop","rights":["Send"],{TIMES}}}"#));
    let keys: PolicyKeysView = read(&format!(
        r#"{{"name":"shop","rights":["Send"],"primaryKey":"{KEY}","secondaryKey":"{KEY}",{TIMES}}}"#
    ));
    vec![
        Notice::Policy(Box::new(policy.clone())),
        Notice::Policies(PolicyList { policies: vec![policy] }),
        Notice::PolicyKeys(Box::new(keys)),
    ]
}

/// Frames must not differ from the released ones.
#[test]
fn frames_of_policies_are_written_as_the_golden_ones() {
    let now = golden_of(operations(), notices());
    for (now, golden) in now.lines().zip(GOLDEN.lines()) {
        assert_eq!(now, golden);
    }
    assert_eq!(now.lines().count(), GOLDEN.lines().count(), "{now}");
}

/// A truncated frame yields no request that was incomplete.
#[test]
fn every_truncation_of_a_frame_of_policies_is_an_error() {
    assert_no_part_is_carried_out(&operations());
}

/// SEC-22: debug output, for instance in a log line, does not contain keys.
#[test]
fn keys_in_frames_are_not_shown() {
    let shown = format!("{:?}{:?}", operations(), notices());
    assert!(shown.contains("shop") && !shown.contains(KEY), "{shown}");
}

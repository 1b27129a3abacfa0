//! Changed descriptions.

use super::*;

/// ENT-16: an update keeps the properties that are fixed at creation.
#[test]
fn topic_update_keeps_properties_fixed_at_creation() {
    let mut stand = Stand::new(0);
    let kept = TopicDescription::clone(&stand.topic.description);
    let detects = TopicDescription { requires_duplicate_detection: true, ..kept.clone() };
    let partitioned = TopicDescription { enable_partitioning: true, ..kept };
    for description in [detects, partitioned].map(Box::new) {
        let update = TopicCommand::Update { description, read_at: None };
        let rejection = stand.apply(Command::OfTopic(update)).unwrap_err();
        assert_eq!(rejection.condition(), Condition::ArgumentError);
    }
}

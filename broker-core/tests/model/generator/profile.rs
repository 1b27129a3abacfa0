//! Constants of one sequence: the queue, its limits, and the preferred requests.

use peeklock_core::description::{Jitter, QueueDescription, RetryKind, RetryPolicy};
use peeklock_core::limits::Limits;
use peeklock_core::time::TimeSpan;

use super::Random;

/// Constants of one sequence.
#[derive(Clone, Debug)]
pub struct Profile {
    pub description: QueueDescription,
    pub limits: Limits,
    pub release_on_detach: bool,
    pub release_on_connection_loss: bool,
    /// Whether most headers leave little room for settlements to set properties (SET-10).
    pub(super) has_full_headers: bool,
    /// Weight of each kind of request.
    pub(super) weights: Vec<(Kind, u64)>,
}

/// A kind of request.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    Send,
    Schedule,
    SendBatch,
    Cancel,
    ReceiveNow,
    ReceiveWaiting,
    CancelReceive,
    ReceiveDeferred,
    Attach,
    Grant,
    Detach,
    Settle,
    Renew,
    Peek,
    DeleteBatch,
    DeleteDeferred,
    BreakLocks,
    Act,
    ForgetJob,
    Update,
    Describe,
    Inspect,
    Transact,
}

const WEIGHTS: [(Kind, u64); 23] = [
    (Kind::Send, 22),
    (Kind::Schedule, 5),
    (Kind::SendBatch, 6),
    (Kind::Cancel, 3),
    (Kind::ReceiveNow, 18),
    (Kind::ReceiveWaiting, 6),
    (Kind::CancelReceive, 3),
    (Kind::ReceiveDeferred, 9),
    (Kind::Attach, 4),
    (Kind::Grant, 12),
    (Kind::Detach, 4),
    (Kind::Settle, 34),
    (Kind::Renew, 4),
    (Kind::Peek, 4),
    (Kind::DeleteBatch, 3),
    (Kind::DeleteDeferred, 3),
    (Kind::BreakLocks, 2),
    (Kind::Act, 4),
    (Kind::ForgetJob, 1),
    (Kind::Update, 4),
    (Kind::Describe, 1),
    (Kind::Inspect, 6),
    (Kind::Transact, 26),
];

impl Profile {
    /// Small limits, so that each of them is reached.
    pub(super) fn new(random: &mut Random) -> Self {
        let mut limits = Limits::default();
        limits.link_turn_count_max = 3;
        limits.peek_count_max = 5;
        limits.batch_delete_count_max = 4;
        limits.receiver_count_max = 6;
        limits.message_overlay_count_max = 1;
        limits.receive_wait_max = TimeSpan::from_seconds(random.pick(&[60, 60, 1_200]));
        let seconds = TimeSpan::from_seconds;
        let mut description = QueueDescription::new("orders", &limits);
        description.lock_duration = random.pick(&[seconds(5), seconds(10), seconds(30)]);
        description.max_delivery_count = random.pick(&[1, 2, 3, 4, 10, 10, 10]);
        description.dead_lettering_on_message_expiration = random.percent(50);
        description.default_message_time_to_live =
            random.pick(&[TimeSpan::MAX, TimeSpan::MAX, seconds(4), seconds(10), seconds(30)]);
        description.requires_duplicate_detection = random.percent(40);
        if random.percent(50) {
            description.retry_policy = retry_policy(random);
        }
        description.duplicate_detection_history_time_window =
            random.pick(&[seconds(20), seconds(60)]);
        description.max_size_in_megabytes = random.pick(&[1, 1, 1_024]);
        if random.percent(20) {
            description.auto_delete_on_idle = TimeSpan::from_minutes(5);
        }
        // Some sequences prefer a few kinds of requests.
        let mut weights = WEIGHTS.to_vec();
        for (_, weight) in &mut weights {
            *weight *= random.pick(&[1, 2, 2, 2, 2, 5]);
        }
        Self {
            description,
            limits,
            release_on_detach: random.percent(25),
            release_on_connection_loss: random.percent(25),
            has_full_headers: random.percent(8),
            weights,
        }
    }
}

/// None, or a policy of any kind; without jitter, which only bounds an instant.
pub(super) fn retry_policy(random: &mut Random) -> Option<RetryPolicy> {
    let delay = TimeSpan::from_ms(random.pick(&[1, 100, 1_000, 3_000]));
    random.percent(60).then(|| RetryPolicy {
        kind: random.pick(&RetryKind::ALL),
        delay,
        delay_max: random.pick(&[None, Some(delay), Some(TimeSpan::from_seconds(5))]),
        jitter: Jitter::NONE,
    })
}

//! The columns of topics and of subscriptions with their sub-queues, and the rows of rules.

use peeklock_core::description::{SubscriptionUpdate, TopicUpdate};
use peeklock_core::rule::{Filter, RuleDescription};
use peeklock_core::time::Timestamp;

use super::*;

/// Marks an operation that a place does not have.
pub const NONE: &str = "-";

const EVENTS: &str = "events";
const AUDIT: &str = "events/Subscriptions/audit";
const AUDIT_DLQ: &str = "events/Subscriptions/audit/$DeadLetterQueue";
const AUDIT_TDLQ: &str = "events/Subscriptions/audit/$Transfer/$DeadLetterQueue";
const EVENTS_TDLQ: &str = "events/$Transfer/$DeadLetterQueue";

/// The columns.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Place {
    Topic,
    DisabledTopic,
    SendDisabledTopic,
    Subscription,
    DisabledSubscription,
    ReceiveDisabledSubscription,
    SubscriptionOfDisabledTopic,
    DeadLetterQueue,
    TransferDeadLetterQueue,
    DeadLetterQueueOfDisabled,
    TransferDeadLetterQueueOfTopic,
    TransferDeadLetterQueueOfDisabledTopic,
    TransferDeadLetterQueueOfSendDisabledTopic,
    Absent,
    AbsentOfAbsent,
}

/// The rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Line {
    Messages(Operation),
    Create,
    Update,
    Describe,
    Delete,
    AddRule,
    UpdateRule,
    RemoveRule,
    ListRules,
    Explain,
}

#[rustfmt::skip]
const MATRIX: [(Line, [&str; 15]); 26] = {
    use Operation::*;
    use self::Line::Messages as M;
    const N: &str = ABSENT;
    const I: &str = INVALID;
    const D: &str = DISABLED;
    const Z: &str = NONE;
    [
    //                             topic   disabled no send  subscr. disabled no receive of disabled DLQ    TDLQ     DLQ of    TDLQ of  disabled no send  absent, of absent
    //                                                                                   topic                       disabled  topic
    (M(Send),                     [YES,    D,       D,       I,      I,       I,         I,         I,     I,       I,        I,       I,       I,       N,      N]),
    (M(SendBatch),                [YES,    D,       D,       I,      I,       I,         I,         I,     I,       I,        I,       I,       I,       N,      N]),
    (M(Schedule),                 [YES,    D,       D,       I,      I,       I,         I,         I,     I,       I,        I,       I,       I,       N,      N]),
    (M(CancelSchedule),           [YES,    YES,     YES,     I,      I,       I,         I,         I,     I,       I,        I,       I,       I,       N,      N]),
    (M(ReceiveUnderLock),         [I,      I,       I,       YES,    D,       D,         YES,       YES,   YES,     D,        YES,     D,       YES,     N,      N]),
    (M(ReceiveAndDelete),         [I,      I,       I,       YES,    D,       D,         YES,       YES,   YES,     D,        YES,     D,       YES,     N,      N]),
    (M(ReceiveByNumber),          [I,      I,       I,       YES,    D,       D,         YES,       YES,   UNKNOWN, D,        YES,     D,       YES,     N,      N]),
    (M(ReceiveAndDeleteByNumber), [I,      I,       I,       YES,    D,       D,         YES,       YES,   UNKNOWN, D,        YES,     D,       YES,     N,      N]),
    (M(Complete),                 [Z,      Z,       Z,       YES,    YES,     YES,       YES,       YES,   LOST,    YES,      YES,     YES,     YES,     N,      N]),
    (M(Abandon),                  [Z,      Z,       Z,       YES,    YES,     YES,       YES,       YES,   LOST,    YES,      YES,     YES,     YES,     N,      N]),
    (M(Defer),                    [Z,      Z,       Z,       YES,    YES,     YES,       YES,       YES,   LOST,    YES,      YES,     YES,     YES,     N,      N]),
    (M(DeadLetter),               [Z,      Z,       Z,       YES,    YES,     YES,       YES,       I,     I,       I,        I,       I,       I,       N,      N]),
    (M(Renew),                    [Z,      Z,       Z,       YES,    YES,     YES,       YES,       YES,   LOST,    YES,      YES,     YES,     YES,     N,      N]),
    (M(Peek),                     [I,      I,       I,       YES,    YES,     YES,       YES,       YES,   YES,     YES,      YES,     YES,     YES,     N,      N]),
    (M(BatchDelete),              [I,      I,       I,       YES,    D,       D,         YES,       YES,   YES,     D,        YES,     D,       YES,     N,      N]),
    (M(Purge),                    [I,      I,       I,       YES,    D,       D,         YES,       YES,   YES,     D,        YES,     D,       YES,     N,      N]),
    (M(DeleteByNumber),           [I,      I,       I,       YES,    YES,     YES,       YES,       YES,   UNKNOWN, YES,      YES,     YES,     YES,     N,      N]),
    (Line::Create,                 [EXISTS, EXISTS,  EXISTS,  EXISTS, EXISTS,  EXISTS,    EXISTS,    Z,     Z,       Z,        Z,       Z,       Z,       YES,    N]),
    (Line::Update,                 [YES,    YES,     YES,     YES,    YES,     YES,       YES,       I,     I,       I,        I,       I,       I,       N,      N]),
    (Line::Describe,               [YES,    YES,     YES,     YES,    YES,     YES,       YES,       I,     I,       I,        I,       I,       I,       N,      N]),
    (Line::Delete,                 [YES,    YES,     YES,     YES,    YES,     YES,       YES,       I,     I,       I,        I,       I,       I,       N,      N]),
    (Line::AddRule,                [I,      I,       I,       YES,    YES,     YES,       YES,       I,     I,       I,        I,       I,       I,       N,      N]),
    (Line::UpdateRule,             [I,      I,       I,       YES,    YES,     YES,       YES,       I,     I,       I,        I,       I,       I,       N,      N]),
    (Line::RemoveRule,             [I,      I,       I,       YES,    YES,     YES,       YES,       I,     I,       I,        I,       I,       I,       N,      N]),
    (Line::ListRules,              [I,      I,       I,       YES,    YES,     YES,       YES,       I,     I,       I,        I,       I,       I,       N,      N]),
    (Line::Explain,                [I,      I,       I,       YES,    YES,     YES,       YES,       I,     I,       I,        I,       I,       I,       N,      N]),
    ]
};

impl Place {
    const ALL: [Self; 15] = [
        Self::Topic,
        Self::DisabledTopic,
        Self::SendDisabledTopic,
        Self::Subscription,
        Self::DisabledSubscription,
        Self::ReceiveDisabledSubscription,
        Self::SubscriptionOfDisabledTopic,
        Self::DeadLetterQueue,
        Self::TransferDeadLetterQueue,
        Self::DeadLetterQueueOfDisabled,
        Self::TransferDeadLetterQueueOfTopic,
        Self::TransferDeadLetterQueueOfDisabledTopic,
        Self::TransferDeadLetterQueueOfSendDisabledTopic,
        Self::Absent,
        Self::AbsentOfAbsent,
    ];

    /// The part of the matrix with this column.
    fn part(self) -> &'static str {
        if self.path() == EVENTS_TDLQ { TRANSFER_DEAD_LETTERS_OF_TOPICS } else { TOPICS }
    }

    /// Whether the place is a topic or its sub-queue rather than a subscription.
    fn is_topic(self) -> bool {
        [EVENTS, EVENTS_TDLQ].contains(&self.path())
    }

    pub const fn path(self) -> &'static str {
        match self {
            Self::Topic | Self::DisabledTopic | Self::SendDisabledTopic => EVENTS,
            Self::Subscription
            | Self::DisabledSubscription
            | Self::ReceiveDisabledSubscription
            | Self::SubscriptionOfDisabledTopic => AUDIT,
            Self::DeadLetterQueue | Self::DeadLetterQueueOfDisabled => AUDIT_DLQ,
            Self::TransferDeadLetterQueue => AUDIT_TDLQ,
            Self::TransferDeadLetterQueueOfTopic
            | Self::TransferDeadLetterQueueOfDisabledTopic
            | Self::TransferDeadLetterQueueOfSendDisabledTopic => EVENTS_TDLQ,
            Self::Absent => "events/Subscriptions/absent",
            Self::AbsentOfAbsent => "absent/Subscriptions/absent",
        }
    }

    /// Topic and name of a subscription to create here.
    const fn names(self) -> (&'static str, &'static str) {
        match self {
            Self::Absent => (EVENTS, "absent"),
            Self::AbsentOfAbsent => ("absent", "absent"),
            _ => (EVENTS, "audit"),
        }
    }

    /// The statuses of the topic and of the subscription.
    const fn statuses(self) -> (EntityStatus, EntityStatus) {
        use EntityStatus::{Active, Disabled, ReceiveDisabled, SendDisabled};
        match self {
            Self::DisabledTopic
            | Self::SubscriptionOfDisabledTopic
            | Self::TransferDeadLetterQueueOfDisabledTopic => (Disabled, Active),
            Self::SendDisabledTopic | Self::TransferDeadLetterQueueOfSendDisabledTopic => {
                (SendDisabled, Active)
            }
            Self::DisabledSubscription | Self::DeadLetterQueueOfDisabled => (Active, Disabled),
            Self::ReceiveDisabledSubscription => (Active, ReceiveDisabled),
            _ => (Active, Active),
        }
    }
}

/// The cells of a column for operations on messages.
pub(super) fn cells(place: Place) -> Vec<(Operation, &'static str)> {
    let column = Place::ALL.iter().position(|one| *one == place).unwrap();
    let of_messages = MATRIX.into_iter().filter_map(|(line, cells)| match line {
        Line::Messages(operation) => Some((operation, cells[column])),
        _ => None,
    });
    of_messages.collect()
}

/// Creates a topic with a scheduled message, and an available, a locked and a deferred one in the
/// place.
pub(super) async fn furnish(s: &Stage, place: Place) -> Found {
    s.create_topic(EVENTS).await.unwrap();
    s.create_subscription(EVENTS, "audit").await.unwrap();
    let at = s.now().plus(minutes(5));
    let scheduled = s.schedule(EVENTS, message("scheduled"), at).await.unwrap();
    for text in ["deferred", "locked", "available"] {
        s.put(EVENTS, text).await;
    }
    let holder = match place.path() {
        AUDIT_DLQ | EVENTS_TDLQ => place.path(),
        _ => AUDIT,
    };
    if holder == EVENTS_TDLQ {
        send_on_in_vain(s).await;
    }
    if holder == AUDIT_DLQ {
        for seen in s.take_all(AUDIT).await {
            s.dead_letter(AUDIT, &seen).await;
        }
    }
    let deferred = s.take(holder).await;
    s.defer(holder, &deferred).await;
    let locked = s.take(holder).await;
    s.advance(ms(1)).await;
    let (of_topic, of_subscription) = place.statuses();
    let update = TopicUpdate { status: Some(of_topic), ..TopicUpdate::default() };
    s.update_topic(EVENTS, update).await.unwrap();
    let update = SubscriptionUpdate { status: Some(of_subscription), ..Default::default() };
    s.update_subscription(AUDIT, update).await.unwrap();
    Found { token: locked.token().to_owned(), deferred: deferred.sequence, scheduled }
}

/// Sends three messages through the topic to a deleted queue.
async fn send_on_in_vain(s: &Stage) {
    s.open_queue("gone").await;
    let sender = s.sender_via("gone", EVENTS).await.unwrap();
    s.delete("gone").await.unwrap();
    for text in ["deferred", "locked", "available"] {
        sender.send(message(text)).await.unwrap();
    }
    s.until_topic(EVENTS, |topic| topic.transfer_dead_letter == 3).await;
}

async fn carry_out(s: &Stage, row: Line, place: Place, found: Found) -> Answer<()> {
    let path = place.path();
    let rule = |name: &str| RuleDescription::new(name, Filter::True, Timestamp::NONE);
    if place.is_topic() {
        match row {
            Line::Create => return s.create_topic(path).await.map(drop),
            Line::Update => return s.update_topic(path, TopicUpdate::default()).await.map(drop),
            Line::Describe => return s.topic(path).await.map(drop),
            Line::Delete => return s.delete_topic(path).await,
            _ => {}
        }
    }
    match row {
        Line::Messages(operation) => super::carry_out(s, operation, path, found).await,
        Line::Create => {
            let (topic, name) = place.names();
            s.create_subscription(topic, name).await.map(drop)
        }
        Line::Update => s.update_subscription(path, SubscriptionUpdate::default()).await.map(drop),
        Line::Describe => s.subscription(path).await.map(drop),
        Line::Delete => s.delete_subscription(path).await,
        Line::AddRule => s.create_rule(path, rule("new")).await.map(drop),
        Line::UpdateRule => s.update_rule(path, rule("$Default")).await.map(drop),
        Line::RemoveRule => s.delete_rule(path, "$Default").await,
        Line::ListRules => s.rules(path, 0, 10).await.map(drop),
        Line::Explain => s.explain(path, message("x")).await.map(drop),
    }
}

/// Whether a transport has an address for the operation. Over HTTP, rules are only below a
/// subscription.
fn is_offered(transport: Transport, row: Line, place: Place) -> bool {
    let of_rules = matches!(
        row,
        Line::AddRule | Line::UpdateRule | Line::RemoveRule | Line::ListRules | Line::Explain
    );
    !(transport == Transport::Http && of_rules && place.is_topic())
}

/// MAT-01, MAT-02, ENT-21, ENT-22, ENT-24, ENT-25, ENT-29, ADR-14, DLQ-02, DLQ-07, SND-20, RCV-30,
/// PEK-11: every cell of one column holds; the failure lists all wrong cells.
pub fn column(transport: Transport, place: Place) {
    block_on(async {
        let s = Stage::open(transport, Setup::default()).await;
        let column = Place::ALL.iter().position(|one| *one == place).unwrap();
        let mut wrong = Vec::new();
        for (row, cells) in MATRIX {
            let expected = cells[column];
            if expected == NONE || !is_offered(transport, row, place) {
                continue;
            }
            let found = furnish(&s, place).await;
            let answer = carry_out(&s, row, place, found).await;
            let got = match &answer {
                Ok(()) => YES,
                Err(refusal) => {
                    identity(&refusal.text);
                    &refusal.condition
                }
            };
            if got != expected {
                wrong.push(format!("{row:?}: {expected} expected, {got} given"));
            }
            clear(&s).await;
        }
        s.end(place.part()).await;
        assert!(wrong.is_empty(), "{place:?} over {transport:?}:\n{}", wrong.join("\n"));
    });
}

/// Rule operations on a queue are refused, over every transport that can address them.
pub fn rules_of_a_queue(transport: Transport) {
    block_on(async {
        let s = Stage::open(transport, Setup::default()).await;
        s.open_queue(ORDERS).await;
        let rule = RuleDescription::new("new", Filter::True, Timestamp::NONE);
        for answer in [
            s.create_rule(ORDERS, rule.clone()).await.map(drop),
            s.update_rule(ORDERS, rule).await.map(drop),
            s.delete_rule(ORDERS, "new").await,
            s.rules(ORDERS, 0, 10).await.map(drop),
        ] {
            let condition = answer.unwrap_err().condition;
            let expected = if transport == Transport::Http { ABSENT } else { INVALID };
            assert_eq!(condition, expected);
        }
        s.end(TOPICS).await;
    });
}

//! The columns of entities that require sessions or forward, and the rows of sessions.

use peeklock_core::command::SessionFilter;
use peeklock_core::description::{SubscriptionUpdate, TopicUpdate};
use peeklock_core::rule::{Filter, RuleDescription};
use peeklock_core::time::Timestamp;

use super::*;

const STEPS: &str = "steps";
const STEPS_DLQ: &str = "steps/$DeadLetterQueue";
const EVENTS: &str = "events";
const AUDIT: &str = "events/Subscriptions/audit";
const AUDIT_DLQ: &str = "events/Subscriptions/audit/$DeadLetterQueue";
const PLAIN: &str = "events/Subscriptions/plain";
const FORWARDING: &str = "forwarding";
const PASSING_ON: &str = "events/Subscriptions/forwarding";

/// The rows.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Line {
    Messages(Operation),
    SendWithSession,
    AcceptNext,
    AcceptById,
    RenewSession,
    State,
    ListSessions,
    DeleteUnlocked,
    Rules,
    Update,
    Describe,
    Delete,
}

/// The columns by their paths.
const PLACES: [&str; 11] = [
    STEPS, STEPS_DLQ, AUDIT, AUDIT_DLQ, ORDERS, DLQ, EVENTS, PLAIN, FORWARDING, PASSING_ON,
    "absent",
];

#[rustfmt::skip]
const MATRIX: [(Line, [&str; 11]); 20] = {
    use self::Line::Messages as M;
    use Operation::*;
    const N: &str = ABSENT;
    const I: &str = INVALID;
    const Z: &str = "-";
    const L: &str = "SessionLockLost";
    [
    //                          session  its  session  its  plain   its  topic  plain   forwarding       absent
    //                          queue    DLQ  subscr.  DLQ  queue   DLQ         subscr. queue    subscr.
    (M(Send),                  [I,       I,   I,       I,   YES,    I,   YES,   I,      YES,     I,      N]),
    (Line::SendWithSession,    [YES,     I,   I,       I,   YES,    I,   YES,   I,      YES,     I,      N]),
    (M(CancelSchedule),        [YES,     I,   I,       I,   Z,      I,   Z,     I,      Z,       I,      N]),
    (M(ReceiveUnderLock),      [I,       YES, I,       YES, YES,    YES, I,     YES,    I,       I,      N]),
    (M(ReceiveAndDelete),      [I,       YES, I,       YES, YES,    YES, I,     YES,    I,       I,      N]),
    (M(ReceiveByNumber),       [L,       Z,   L,       Z,   Z,      Z,   I,     Z,      I,       I,      N]),
    (M(Peek),                  [YES,     YES, YES,     YES, YES,    YES, I,     YES,    YES,     YES,    N]),
    (M(BatchDelete),           [I,       YES, I,       YES, YES,    YES, I,     YES,    YES,     YES,    N]),
    (M(Purge),                 [I,       YES, I,       YES, YES,    YES, I,     YES,    YES,     YES,    N]),
    (Line::AcceptNext,         [YES,     I,   YES,     I,   I,      I,   I,     I,      I,       I,      N]),
    (Line::AcceptById,         [YES,     I,   YES,     I,   I,      I,   I,     I,      I,       I,      N]),
    (Line::RenewSession,       [YES,     Z,   YES,     Z,   Z,      Z,   Z,     Z,      Z,       Z,      Z]),
    (Line::State,              [YES,     Z,   YES,     Z,   Z,      Z,   Z,     Z,      Z,       Z,      Z]),
    (Line::ListSessions,       [YES,     I,   YES,     I,   I,      I,   I,     I,      I,       I,      N]),
    (Line::DeleteUnlocked,     [YES,     I,   YES,     I,   I,      I,   I,     I,      I,       I,      N]),
    (M(Renew),                 [I,       Z,   I,       Z,   Z,      Z,   Z,     Z,      Z,       Z,      Z]),
    (Line::Rules,              [Z,       Z,   YES,     I,   Z,      Z,   Z,     YES,    Z,       YES,    Z]),
    (Line::Update,             [YES,     Z,   YES,     Z,   YES,    Z,   YES,   YES,    YES,     YES,    Z]),
    (Line::Describe,           [YES,     I,   YES,     I,   YES,    I,   YES,   YES,    YES,     YES,    N]),
    (Line::Delete,             [YES,     Z,   YES,     Z,   YES,    Z,   Z,     YES,    YES,     YES,    Z]),
    ]
};

/// Creates all entities and their messages. Returns the number of a scheduled message of the
/// session queue.
async fn furnish(s: &Stage) -> u64 {
    let sessions = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
    s.open_queue_with(STEPS, sessions).await;
    s.open_queue(ORDERS).await;
    s.open_queue("archive").await;
    let forwards = QueueUpdate { forward_to: Some("archive".into()), ..QueueUpdate::default() };
    s.open_queue_with(FORWARDING, forwards).await;
    s.create_topic(EVENTS).await.unwrap();
    let sessions = SubscriptionUpdate { requires_session: Some(true), ..Default::default() };
    s.create_subscription_with(EVENTS, "audit", sessions, vec![]).await.unwrap();
    s.create_subscription(EVENTS, "plain").await.unwrap();
    let forwards = SubscriptionUpdate { forward_to: Some("archive".into()), ..Default::default() };
    s.create_subscription_with(EVENTS, "forwarding", forwards, vec![]).await.unwrap();
    for path in [STEPS, EVENTS] {
        s.send(path, message("x").with_session_id("one")).await.unwrap();
    }
    s.put(ORDERS, "x").await;
    let at = s.now().plus(minutes(5));
    s.schedule(STEPS, message("later").with_session_id("one"), at).await.unwrap()
}

async fn carry_out(s: &Stage, line: Line, path: &str, scheduled: u64) -> Answer<()> {
    let mode = ReceiveMode::PeekLock;
    match line {
        Line::Messages(operation) => {
            let token = "00000000-0000-0001-0000-000000000001".to_owned();
            let found = Found { token, deferred: 1, scheduled };
            super::carry_out(s, operation, path, found).await
        }
        Line::SendWithSession => s.send(path, message("x").with_session_id("two")).await.map(drop),
        Line::AcceptNext => s.accept(path, None, mode, TimeSpan::ZERO).await.map(drop),
        Line::AcceptById => s.accept(path, Some("one"), mode, TimeSpan::ZERO).await.map(drop),
        Line::RenewSession => {
            let session = s.accept(path, Some("one"), mode, TimeSpan::ZERO).await?;
            session.renew().await.map(drop)
        }
        Line::State => {
            let session = s.accept(path, Some("one"), mode, TimeSpan::ZERO).await?;
            session.set_state(Some("s".into())).await?;
            session.state().await.map(|state| assert_eq!(state.unwrap(), "s"))
        }
        Line::ListSessions => s.sessions(path, SessionFilter::All, 0, 10).await.map(drop),
        Line::DeleteUnlocked => s.delete_unlocked(path, 10).await.map(drop),
        Line::Rules => {
            let rule = RuleDescription::new("new", Filter::True, Timestamp::NONE);
            s.create_rule(path, rule.clone()).await?;
            s.update_rule(path, rule).await?;
            s.rules(path, 0, 10).await?;
            s.delete_rule(path, "new").await
        }
        Line::Update if path == EVENTS => {
            s.update_topic(path, TopicUpdate::default()).await.map(drop)
        }
        // An update of the suite replaces the whole description (ENT-17).
        Line::Update if path.starts_with(EVENTS) => {
            let properties = SubscriptionUpdate {
                forward_to: (path == PASSING_ON).then(|| "archive".into()),
                ..Default::default()
            };
            s.update_subscription(path, properties).await.map(drop)
        }
        Line::Update => {
            let forward_to = (path == FORWARDING).then(|| "archive".into());
            let properties = QueueUpdate { forward_to, ..QueueUpdate::default() };
            s.update(path, properties).await.map(drop)
        }
        Line::Delete if path.starts_with(EVENTS) => s.delete_subscription(path).await,
        Line::Delete => s.delete(path).await,
        Line::Describe if path == EVENTS => s.topic(path).await.map(drop),
        Line::Describe if path.starts_with(EVENTS) => s.subscription(path).await.map(drop),
        Line::Describe => s.describe(path).await.map(drop),
    }
}

/// MAT-01, MAT-02, MAT-04, RCV-28, RCV-29, DEF-08, SES-01, SES-02, FWD-08: every cell of these columns holds.
pub fn columns(transport: Transport) {
    block_on(async {
        let mut wrong = Vec::new();
        for (line, cells) in MATRIX {
            let by_link = !matches!(
                line,
                Line::Messages(_)
                    | Line::SendWithSession
                    | Line::ListSessions
                    | Line::Rules
                    | Line::Update
                    | Line::Describe
                    | Line::Delete
            );
            if by_link && transport == Transport::Http {
                continue;
            }
            let s = Stage::open(transport, Setup::default()).await;
            let scheduled = furnish(&s).await;
            for (path, expected) in PLACES.into_iter().zip(cells) {
                if expected == "-" {
                    continue;
                }
                let answer = carry_out(&s, line, path, scheduled).await;
                let got = match &answer {
                    Ok(()) => YES,
                    Err(refusal) => {
                        identity(&refusal.text);
                        &refusal.condition
                    }
                };
                if got != expected {
                    wrong.push(format!("{line:?} on {path}: {expected} expected, {got} given"));
                }
            }
            s.end(KINDS).await;
        }
        assert!(wrong.is_empty(), "over {transport:?}:\n{}", wrong.join("\n"));
    });
}

//! Every command against every set of rights and every ceiling, by the specification.

use peeklock_core::Access;
use peeklock_core::command::{Act, Command, Deed, OperatorCommand, SessionFilter};
use peeklock_core::condition::Condition;
use peeklock_core::contract::{
    Action, AuditQuery, Ceiling, Grant, Principal, Requirement, Right, Rights,
};
use peeklock_core::declaration::{Declaration, DeclaredQueue};
use peeklock_core::description::{
    Cleared, EntityKind, Jitter, Patch, QueueUpdate, RetryKind, RetryPolicy, SubscriptionUpdate,
};
use peeklock_core::error::BrokerError;
use peeklock_core::ids::{JobId, SequenceNumber};
use peeklock_core::inspect::{
    CheckKind, ClientId, ExplainQuery, HeadQuery, HeadStates, JobControl, JobDraft, JobQuery,
    JobSelection, JourneyQuery, MuteChange, Question, SamplesQuery, SearchOutput, SearchQuery,
    SearchStep, SeriesQuery, TimelineOf, TimelineQuery, WhatIfQuery, Where,
};
use peeklock_core::management::{Managed, Management, Page, SampleMessage};
use peeklock_core::message::Message;
use peeklock_core::policies::{PolicyUpdate, WhichKey};
use peeklock_core::rule::{Filter, RuleDescription};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::transaction::Operation;

use super::commands;
use super::expected::{allows, expected, needs_all};
use super::world::{World, condition, in_time};

fn all_rights() -> Vec<Rights> {
    (0..8u8)
        .map(|bits| {
            let with = |place: usize| bits & (1 << place) != 0;
            let rights = Right::ALL.into_iter().enumerate();
            rights.filter(|(place, _)| with(*place)).map(|(_, right)| right).collect()
        })
        .collect()
}

/// SEC-05, SEC-06, CON-72: the table of rights agrees with the specification.
#[test]
fn the_table_of_rights_agrees_with_the_specification() {
    for (place, action) in Action::ALL.into_iter().enumerate() {
        assert_eq!(action as usize, place, "{action:?} stands at its place");
        let needs = match expected(action) {
            None => Requirement::BrokerItself,
            Some(([], _)) => Requirement::Nothing,
            Some((rights, ceiling)) => {
                let all = rights.iter().copied().collect::<Rights>();
                match needs_all(action) {
                    true => Requirement::AllOf(all, ceiling),
                    false => Requirement::OneOf(all, ceiling),
                }
            }
        };
        assert_eq!(action.needs(), needs, "{action:?}");
    }
}

fn actions_of(command: &Command) -> Vec<Action> {
    match command {
        Command::Commit { parts } => {
            parts.iter().map(|part| Action::of_operation(&part.operation)).collect()
        }
        other => vec![Action::of(other)],
    }
}

/// RTY-31, SEC-05, SEC-08, CON-72: a command is carried out exactly if it is granted, regardless of
/// the purpose of the handle. All refusals are equal.
#[tokio::test]
async fn every_command_requires_its_right() {
    in_time(async {
        let world = World::new().await;
        world.broker.create_queue("other", QueueUpdate::default()).await.unwrap();
        for rights in all_rights() {
            for ceiling in [Ceiling::Viewer, Ceiling::Operator, Ceiling::Admin] {
                let grant = Grant::of(rights).with_ceiling(ceiling);
                let access = world.granted("everything", Grant::everything());
                let entity = access.entity("q", Action::Send).await.unwrap();
                let (entity, _) = access.transfer_destination("other", &entity).await.unwrap();
                let token = format!("{rights:?}{ceiling:?}");
                world.authorizer.grant(&token, "*", grant);
                access.renew(Principal::anonymous().with_token(token)).await;
                for (name, command) in commands::all(&world.broker) {
                    let allowed = actions_of(&command)
                        .into_iter()
                        .all(|action| allows(action, rights, ceiling));
                    let answer = entity.call(command).await;
                    let refused = condition(&answer) == Some(Condition::Unauthorized);
                    assert_eq!(refused, !allowed, "{name} with {rights:?} below {ceiling:?}");
                }
            }
        }
    })
    .await;
}

/// PEK-10, DEL-10, SCH-13, SES-28: rights that the specification states explicitly: one right is
/// sufficient, and neither of the two others is.
#[tokio::test]
async fn peek_batch_delete_and_state_take_listen_and_schedules_take_send() {
    in_time(async {
        let world = World::new().await;
        let access = world.granted("everything", Grant::everything());
        let entity = access.entity("q", Action::Send).await.unwrap();
        let named = |name: &str| {
            let all = commands::all(&world.broker);
            all.into_iter().find(|(other, _)| *other == name).unwrap().1
        };
        let later = || {
            let at = world.broker.now().plus(TimeSpan::from_minutes(1));
            world.broker.inbound(Message::new("a").with_scheduled_enqueue_time(at))
        };
        for right in Right::ALL {
            world.authorizer.grant(right.name(), "*", Grant::of(Rights::of(right)));
            access.renew(Principal::anonymous().with_token(right.name().to_owned())).await;
            for (command, takes) in [
                (named("peek"), Right::Listen),
                (named("peek session"), Right::Listen),
                (named("delete batch"), Right::Listen),
                (named("delete batch in session"), Right::Listen),
                (named("get state"), Right::Listen),
                (named("set state"), Right::Listen),
                (Command::Send { message: later() }, Right::Send),
                (Command::SendBatch { messages: vec![later()] }, Right::Send),
                (named("cancel scheduled"), Right::Send),
            ] {
                let name = format!("{command:?} with {right:?}");
                let refused =
                    condition(&entity.call(command).await) == Some(Condition::Unauthorized);
                assert_eq!(refused, right != takes, "{name}");
            }
        }
    })
    .await;
}

/// The management requests, each with its path and the required action.
fn requests(access: &Access, at: &str) -> Vec<(Action, String, Management)> {
    let subscription = || format!("{at}/Subscriptions/s");
    let at = || at.to_owned();
    let rule = || Box::new(RuleDescription::new("r", Filter::True, Timestamp::NONE));
    let queue = || Box::<QueueUpdate>::default();
    let of_subscription = || Box::<SubscriptionUpdate>::default();
    let whole = || Patch { cleared: Cleared::ALL, expected_created_at: None };
    let page = || Page { skip: 0, top: Some(9) };
    let inspect = |question| Management::Inspect(Box::new(question));
    let body = Question::Body { sequence: SequenceNumber(1), from: 0, length: 1 };
    let state = Question::SessionState { session: "s".into(), from: 0, length: 1 };
    let search = Question::Search(SearchStep::Begin(Box::new(SearchQuery {
        paths: Vec::new(),
        sub_queues: Vec::new(),
        states: HeadStates::ALL,
        is_descending: false,
        conditions: Where::default(),
        output: SearchOutput::Hits(None),
        after: None,
    })));
    let retry_policy = Some(Some(retries()));
    let sample = SampleMessage::Inbound(access.broker().inbound(Message::new("a")));
    let all = PolicyUpdate { rights: Some(Rights::ALL), ..PolicyUpdate::default() };
    vec![
        (Action::Describe, String::new(), Management::Namespace),
        (Action::Create, at(), Management::CreateQueue(queue())),
        (Action::Describe, at(), Management::Queue),
        (Action::Update, at(), Management::UpdateQueue(queue(), whole())),
        (Action::Delete, at(), Management::Delete(EntityKind::Queue)),
        (Action::Create, at(), Management::CreateTopic(Box::default())),
        (Action::Describe, at(), Management::Topic),
        (Action::Update, at(), Management::UpdateTopic(Box::default(), whole())),
        (
            Action::Create,
            at(),
            Management::CreateSubscription {
                name: "s".into(),
                properties: of_subscription(),
                rules: Vec::new(),
            },
        ),
        (Action::Describe, subscription(), Management::Subscription),
        (
            Action::Update,
            subscription(),
            Management::UpdateSubscription(of_subscription(), whole()),
        ),
        (Action::ChangeRules, subscription(), Management::CreateRule(rule())),
        (Action::ChangeRules, subscription(), Management::UpdateRule(rule())),
        (Action::ReadRules, subscription(), Management::Rule("r".into())),
        (Action::ReadRules, subscription(), Management::Rules(page())),
        (Action::ReadRules, subscription(), Management::Explain(Box::new(sample))),
        (Action::ChangeRules, subscription(), Management::DeleteRule("r".into())),
        (Action::ChangeOwnRules, subscription(), Management::CreateOwnRule(rule())),
        (Action::ChangeOwnRules, subscription(), Management::DeleteOwnRule("r".into())),
        (Action::List, at(), Management::Queues(page())),
        (Action::List, at(), Management::Topics(page())),
        (Action::List, at(), Management::Subscriptions(page())),
        (Action::List, at(), Management::Paths(EntityKind::Queue, page())),
        (Action::Delete, at(), Management::Delete(EntityKind::Topic)),
        (Action::Inspect, at(), inspect(Question::Heads(HeadQuery::default()))),
        (Action::Inspect, at(), inspect(Question::Timeline(TIMELINE))),
        (Action::Inspect, at(), inspect(Question::Series(SeriesQuery::default()))),
        (
            Action::Inspect,
            at(),
            inspect(Question::Journey(JourneyQuery::Sequence(SequenceNumber(1)))),
        ),
        (Action::Inspect, at(), inspect(Question::Samples(SamplesQuery { count_max: 1 }))),
        (
            Action::Inspect,
            at(),
            inspect(Question::Explain(Box::new(ExplainQuery::Message(Box::default())))),
        ),
        (
            Action::Inspect,
            at(),
            inspect(Question::WhatIf(Box::new(WhatIfQuery {
                changes: Vec::new(),
                message_count_max: 1,
                difference_count_max: 1,
            }))),
        ),
        (Action::Inspect, at(), inspect(body)),
        (Action::Inspect, at(), inspect(state)),
        (Action::Inspect, at(), inspect(Question::Tap { tap: None })),
        (Action::Inspect, at(), inspect(search)),
        (Action::ListSessions, at(), Management::Sessions(SessionFilter::All, page())),
        (Action::DeleteDeferred, at(), Management::DeleteDeferred(SequenceNumber(1))),
        (
            Action::DeleteUnlocked,
            at(),
            Management::DeleteUnlocked { count_max: None, enqueued_before: None },
        ),
        (
            Action::Operate,
            at(),
            Management::Operate(OperatorCommand::BreakLocks {
                sequences: vec![SequenceNumber(1)],
                counts: false,
            }),
        ),
        (
            Action::Operate,
            at(),
            Management::Operate(OperatorCommand::Act(Box::new(Act {
                step: None,
                sequences: vec![SequenceNumber(1)],
                deed: Deed::Undefer,
                breaks_locks: false,
                kept: None,
            }))),
        ),
        (Action::Operate, at(), Management::Operate(OperatorCommand::ForgetJob(JobId(1)))),
        (
            Action::Operate,
            at(),
            Management::CreateJob(Box::new(JobDraft {
                selection: JobSelection::Numbers(vec![SequenceNumber(1)]),
                deed: Deed::Undefer,
                breaks_locks: false,
                rate: 1,
                trial: None,
            })),
        ),
        // The right on the namespace, since no entity has this job.
        (Action::Operate, String::new(), Management::ControlJob(JobId(1), JobControl::Pause)),
        (Action::Operate, String::new(), Management::ControlJob(JobId(1), JobControl::Undo)),
        (Action::Inspect, String::new(), inspect(Question::Jobs(JobQuery::One(JobId(1))))),
        (Action::Inspect, String::new(), inspect(Question::Jobs(JobQuery::Samples(JobId(1))))),
        (
            Action::Inspect,
            String::new(),
            inspect(Question::Jobs(JobQuery::Export { job: JobId(1), from: 0, length: 1 })),
        ),
        (
            Action::Operate,
            at(),
            Management::Mute(MuteChange::Mute { kind: CheckKind::NearlyFull, reason: "x".into() }),
        ),
        (
            Action::Operate,
            at(),
            Management::Mute(MuteChange::Unmute { kind: CheckKind::NearlyFull }),
        ),
        (Action::CloseClients, String::new(), Management::CloseClient(ClientId(u64::MAX))),
        (Action::ReadAudit, String::new(), inspect(Question::Audit(AuditQuery::default()))),
        (Action::ReadPolicies, at(), Management::Policies),
        (Action::ReadPolicies, at(), Management::Policy("p".into())),
        (Action::ChangePolicies, at(), Management::CreatePolicy("p".into(), all.clone())),
        (
            Action::ChangePolicies,
            at(),
            Management::UpdatePolicy("p".into(), PolicyUpdate::default()),
        ),
        (
            Action::ChangePolicies,
            at(),
            Management::RegenerateKey("p".into(), WhichKey::Primary, None),
        ),
        (Action::ReadKeys, at(), Management::PolicyKeys("p".into())),
        (Action::ChangePolicies, at(), Management::DeletePolicy("p".into())),
        (Action::ChangePolicies, at(), Management::ReplacePolicies(vec![("p".into(), all)])),
        (
            Action::Update,
            at(),
            Management::UpdateQueue(Box::new(QueueUpdate { retry_policy, ..*queue() }), whole()),
        ),
        (
            Action::Update,
            subscription(),
            Management::UpdateSubscription(
                Box::new(SubscriptionUpdate { retry_policy, ..*of_subscription() }),
                whole(),
            ),
        ),
        (
            Action::Plan,
            at(),
            Management::Plan(Box::new(Declaration::new().with_queue(DeclaredQueue::new(at())))),
        ),
    ]
}

const TIMELINE: TimelineQuery = TimelineQuery {
    of: TimelineOf::Scheduled,
    from: Timestamp::NONE,
    slot: TimeSpan::from_minutes(1),
    slot_count: 1,
    after: None,
};

/// A retry policy, which any manager may set (RTY-31).
const fn retries() -> RetryPolicy {
    let (kind, delay) = (RetryKind::Fixed, TimeSpan::from_seconds(1));
    RetryPolicy { kind, delay, delay_max: None, jitter: Jitter::NONE }
}

fn update(queue: QueueUpdate) -> Management {
    Management::UpdateQueue(
        Box::new(queue),
        Patch { cleared: Cleared::ALL, expected_created_at: None },
    )
}

/// RTY-31, SEC-05, SEC-06, SEC-08, CNT-12: management requires its right. Without it the answer is
/// the same for existing and absent entities.
#[tokio::test]
async fn management_requires_its_right() {
    in_time(async {
        let world = World::new().await;
        for rights in all_rights() {
            for ceiling in [Ceiling::Viewer, Ceiling::Operator, Ceiling::Admin] {
                let token = format!("{rights:?}{ceiling:?}");
                let access = world.granted(&token, Grant::of(rights).with_ceiling(ceiling));
                let at_absent = requests(&access, "absent");
                for ((action, path, request), (_, absent, same)) in
                    requests(&access, "q").into_iter().zip(at_absent)
                {
                    let name = format!("{request:?} {token}");
                    assert_eq!(request.action(), action, "{name}");
                    let allowed = allows(action, rights, ceiling);
                    let there = access.manage(&path, request).await.map(drop);
                    let absent = access.manage(&absent, same).await.map(drop);
                    for answer in [&there, &absent] {
                        let refused = condition(answer) == Some(Condition::Unauthorized);
                        // A plan for an absent entity also requires the right to create it
                        // (DEC-12).
                        let creates = action == Action::Plan
                            && allowed
                            && !allows(Action::Create, rights, ceiling);
                        if !creates {
                            assert_eq!(refused, !allowed, "{name} {answer:?}");
                        }
                    }
                    if !allowed {
                        let text = |answer: Result<(), BrokerError>| {
                            answer.unwrap_err().detail().to_owned()
                        };
                        assert_eq!(text(there), text(absent), "{name}");
                    }
                }
                let metrics = access.allow(Action::ReadMetrics, "").await;
                let refused = condition(&metrics) == Some(Condition::Unauthorized);
                assert_eq!(refused, !allows(Action::ReadMetrics, rights, ceiling), "{token}");
            }
        }
    })
    .await;
}

/// SEC-08: a handle is refused equally for existing and absent entities, for every purpose.
#[tokio::test]
async fn a_refused_handle_does_not_reveal_existence() {
    in_time(async {
        let world = World::new().await;
        let nothing = world.granted("nothing", Grant::nothing());
        let everything = world.granted("everything", Grant::everything());
        for action in Action::ALL {
            let refused = |answer: Result<peeklock_core::Entity, BrokerError>| {
                answer.err().map(|error| (error.condition(), error.detail().to_owned()))
            };
            let there = refused(nothing.entity("q", action).await);
            assert_eq!(there, refused(nothing.entity("absent", action).await), "{action:?}");
            if matches!(action.needs(), Requirement::OneOf(..) | Requirement::AllOf(..)) {
                assert_eq!(there.map(|it| it.0), Some(Condition::Unauthorized), "{action:?}");
                assert!(everything.entity("q", action).await.is_ok(), "{action:?}");
                let absent = condition(&everything.entity("absent", action).await);
                assert_eq!(absent, Some(Condition::EntityNotFound), "{action:?}");
            }
        }
    })
    .await;
}

/// SEC-05, CON-73: over a JSON API the right to listen includes reading descriptions and counts,
/// but no changes.
#[tokio::test]
async fn listen_includes_reading_over_a_json_api() {
    in_time(async {
        let world = World::new().await;
        let strict = world.granted("listen", Grant::of(Rights::of(Right::Listen)));
        let api = strict.with_listen_reads();
        let refused = condition(&strict.manage("q", Management::Queue).await);
        assert_eq!(refused, Some(Condition::Unauthorized));
        let read = api.manage("q", Management::Queue).await.unwrap();
        assert!(matches!(read, Managed::Queue(queue) if &*queue.description.path == "q"));
        let page = Page { skip: 0, top: Some(9) };
        let listed = api.manage("", Management::Queues(page)).await.unwrap();
        assert!(matches!(listed, Managed::Queues(queues) if queues.len() == 1));
        for refused in [
            condition(&api.manage("q", update(QueueUpdate::default())).await),
            condition(&api.manage("q", Management::Delete(EntityKind::Queue)).await),
            condition(&api.manage("other", Management::CreateQueue(Box::default())).await),
        ] {
            assert_eq!(refused, Some(Condition::Unauthorized));
        }
        let send = world.granted("send", Grant::of(Rights::of(Right::Send))).with_listen_reads();
        let refused = condition(&send.manage("q", Management::Queue).await);
        assert_eq!(refused, Some(Condition::Unauthorized));
    })
    .await;
}

/// FWD-05, SEC-07: setting a destination requires managing it as well. An unchanged destination is
/// not checked again.
#[tokio::test]
async fn forwarding_requires_the_right_on_the_destination() {
    in_time(async {
        let world = World::new().await;
        let access = world.access("a");
        world.authorizer.grant("a", "from", Grant::everything());
        world.authorizer.grant("a", "q", Grant::of(Rights::of(Right::Send).and(Right::Listen)));
        let to =
            |path: &str| QueueUpdate { forward_to: Some(path.into()), ..QueueUpdate::default() };
        let create = |queue| Management::CreateQueue(Box::new(queue));
        let refused = condition(&access.manage("from", create(to("q"))).await);
        assert_eq!(refused, Some(Condition::Unauthorized));
        access.manage("from", create(QueueUpdate::default())).await.unwrap();
        let refused = condition(&access.manage("from", update(to("Q"))).await);
        assert_eq!(refused, Some(Condition::Unauthorized));
        let refused = condition(&access.manage("from", update(to("absent"))).await);
        assert_eq!(refused, Some(Condition::Unauthorized), "SEC-08");
        world.broker.update_queue("from", to("q"), None).await.unwrap();
        let kept = QueueUpdate { max_delivery_count: Some(3), ..to("q") };
        let updated = access.manage("from", update(kept)).await.unwrap();
        assert!(matches!(updated, Managed::Queue(it) if it.description.max_delivery_count == 3));
    })
    .await;
}

/// VIA-02, SEC-07: sending through another entity requires the right to send at both.
#[tokio::test]
async fn sending_through_another_entity_requires_both_rights() {
    in_time(async {
        let world = World::new().await;
        world.broker.create_queue("via", QueueUpdate::default()).await.unwrap();
        let access = world.access("a");
        world.authorizer.grant("a", "via", Grant::of(Rights::of(Right::Send)));
        let via = access.entity("via", Action::SendVia).await.unwrap();
        let refused = condition(&access.transfer_destination("q", &via).await);
        assert_eq!(refused, Some(Condition::Unauthorized));
        let refused = condition(&access.transfer_destination("absent", &via).await);
        assert_eq!(refused, Some(Condition::Unauthorized), "SEC-08");
        let refused = condition(&access.entity("q", Action::SendVia).await);
        assert_eq!(refused, Some(Condition::Unauthorized));
        let operation = Operation::SendBatch { messages: Vec::new() };
        assert_eq!(Action::of_operation(&operation), Action::Send);
        // A handle that did not ask for this destination is no route to it.
        let to = |path: &str| Command::SendVia {
            destination: path.into(),
            messages: vec![world.broker.inbound(Message::new("a"))],
        };
        assert_eq!(condition(&via.call(to("q")).await), Some(Condition::Unauthorized));
        // Authorizers get the path as given, and compare without case.
        for path in ["q", "Q"] {
            world.authorizer.grant("a", path, Grant::of(Rights::of(Right::Send)));
        }
        // A refused principal is judged again after a new token.
        let access = world.access("a");
        let via = access.entity("via", Action::SendVia).await.unwrap();
        let (way, destination) = access.transfer_destination("Q", &via).await.unwrap();
        assert_eq!(&*destination, "q");
        assert_eq!(condition(&way.call(to("q")).await), None);
        assert_eq!(condition(&way.call(to("via")).await), Some(Condition::Unauthorized));
    })
    .await;
}

//! Every command against every set of rights and every ceiling, by what the specification says.

use peeklock_core::Access;
use peeklock_core::command::Command;
use peeklock_core::condition::Condition;
use peeklock_core::contract::expected::{allows, expected};
use peeklock_core::contract::{Action, Ceiling, Grant, Needs, Principal, Right, Rights};
use peeklock_core::description::{
    EntityKind, Jitter, QueueUpdate, RetryKind, RetryPolicy, SubscriptionUpdate, TopicUpdate,
};
use peeklock_core::error::BrokerError;
use peeklock_core::message::Message;
use peeklock_core::policies::{PolicyUpdate, WhichKey};
use peeklock_core::rule::{Filter, RuleDescription};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::transaction::Operation;

use super::commands;
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

/// SEC-05, SEC-06, CON-72: the table says what the specification says.
#[test]
fn the_table_says_what_the_specification_says() {
    for (place, action) in Action::ALL.into_iter().enumerate() {
        assert_eq!(action as usize, place, "{action:?} stands at its place");
        let needs = match expected(action) {
            None => Needs::BrokerItself,
            Some(([], _)) => Needs::Nothing,
            Some((one_of, ceiling)) => {
                Needs::OneOf(one_of.iter().copied().collect::<Rights>(), ceiling)
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

/// RTY-31, SEC-05, SEC-08, CON-72: every command is carried out exactly if it is granted, whatever the handle was
/// got for; a refusal is the same for every kind of refused command.
#[tokio::test]
async fn every_command_asks_for_its_right() {
    in_time(async {
        let world = World::new().await;
        world.broker.create_queue("other", QueueUpdate::default()).await.unwrap();
        for rights in all_rights() {
            for ceiling in [Ceiling::Viewer, Ceiling::Operator, Ceiling::Admin] {
                let grant = Grant::of(rights).below(ceiling);
                let access = world.granted("everything", Grant::everything());
                let entity = access.entity("q", Action::Send).await.unwrap();
                let (entity, _) = access.transfer_destination("other", &entity).await.unwrap();
                let token = format!("{rights:?}{ceiling:?}");
                world.told.grant(&token, "*", grant);
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

/// PEK-10, DEL-10, SCH-13, SES-28: what the table is not asked about, but the specification says in so many words: one
/// right alone is enough, and neither of the two others is.
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
            world.told.grant(right.name(), "*", Grant::of(Rights::of(right)));
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

/// The management of a door, each operation with what it takes.
async fn manage(
    access: &Access,
    action: usize,
    at: &str,
) -> Option<(Action, Result<(), BrokerError>)> {
    let subscription = format!("{at}/Subscriptions/s");
    let rule = || RuleDescription::new("r", Filter::True, Timestamp::NONE);
    let queue = QueueUpdate::default;
    Some(match action {
        0 => (Action::Create, access.create_queue(at, queue()).await.map(drop)),
        1 => (Action::Describe, access.describe_queue(at).await.map(drop)),
        2 => (Action::Update, access.update_queue(at, queue(), None).await.map(drop)),
        3 => (Action::Delete, access.delete(at, EntityKind::Queue).await),
        4 => (Action::Create, access.create_topic(at, TopicUpdate::default()).await.map(drop)),
        5 => (Action::Describe, access.describe_topic(at).await.map(drop)),
        6 => {
            (Action::Update, access.update_topic(at, TopicUpdate::default(), None).await.map(drop))
        }
        7 => {
            let update = SubscriptionUpdate::default();
            let made = access.create_subscription(at, "s", update, Vec::new()).await;
            (Action::Create, made.map(drop))
        }
        8 => (Action::Describe, access.describe_subscription(&subscription).await.map(drop)),
        9 => {
            let update = SubscriptionUpdate::default();
            let updated = access.update_subscription(&subscription, update, None).await;
            (Action::Update, updated.map(drop))
        }
        10 => (Action::ChangeRules, access.create_rule(&subscription, rule()).await.map(drop)),
        11 => (Action::ChangeRules, access.update_rule(&subscription, rule()).await.map(drop)),
        12 => (Action::ReadRules, access.rule(&subscription, "r").await.map(drop)),
        13 => (Action::ReadRules, access.rules(&subscription, 0, 9).await.map(drop)),
        14 => {
            let message = access.broker().inbound(Message::new("a"));
            (Action::ReadRules, access.explain(&subscription, message).await.map(drop))
        }
        15 => (Action::ChangeRules, access.delete_rule(&subscription, "r").await),
        16 => (Action::List, access.queues(0, 9).await.map(drop)),
        17 => (Action::List, access.topics(0, 9).await.map(drop)),
        18 => (Action::List, access.subscriptions(at, 0, 9).await.map(drop)),
        19 => (Action::Delete, access.delete(at, EntityKind::Topic).await),
        20 => (Action::ReadMetrics, access.allow(Action::ReadMetrics, "").await.map(drop)),
        21 => (Action::ReadPolicies, access.policies(at).await.map(drop)),
        22 => (Action::ReadPolicies, access.policy(at, "p").await.map(drop)),
        23 => {
            let properties = PolicyUpdate { rights: Some(Rights::ALL), ..PolicyUpdate::default() };
            (Action::ChangePolicies, access.create_policy(at, "p", properties).await.map(drop))
        }
        24 => {
            let changed = access.update_policy(at, "p", PolicyUpdate::default()).await;
            (Action::ChangePolicies, changed.map(drop))
        }
        25 => {
            let regenerated = access.regenerate_key(at, "p", WhichKey::Primary, None).await;
            (Action::ChangePolicies, regenerated.map(drop))
        }
        26 => (Action::ReadKeys, access.policy_keys(at, "p").await.map(drop)),
        27 => (Action::ChangePolicies, access.delete_policy(at, "p").await),
        28 => {
            let update = QueueUpdate { retry_policy: Some(Some(retries())), ..queue() };
            (Action::Update, access.update_queue(at, update, None).await.map(drop))
        }
        29 => {
            let retry_policy = Some(Some(retries()));
            let update = SubscriptionUpdate { retry_policy, ..SubscriptionUpdate::default() };
            let updated = access.update_subscription(&subscription, update, None).await;
            (Action::Update, updated.map(drop))
        }
        _ => return None,
    })
}

/// A policy of retries, to set which is management like any (RTY-31).
const fn retries() -> RetryPolicy {
    let (kind, delay) = (RetryKind::Fixed, TimeSpan::from_seconds(1));
    RetryPolicy { kind, delay, delay_max: None, jitter: Jitter::NONE }
}

/// RTY-31, SEC-05, SEC-06, SEC-08, CNT-12: management asks for its right, and without it answers alike whether there is
/// such an entity or not.
#[tokio::test]
async fn management_asks_for_its_right() {
    in_time(async {
        let world = World::new().await;
        for rights in all_rights() {
            for ceiling in [Ceiling::Viewer, Ceiling::Operator, Ceiling::Admin] {
                let token = format!("{rights:?}{ceiling:?}");
                let access = world.granted(&token, Grant::of(rights).below(ceiling));
                for number in 0.. {
                    let Some((action, there)) = manage(&access, number, "q").await else { break };
                    let absent = manage(&access, number, "absent").await.unwrap().1;
                    let allowed = allows(action, rights, ceiling);
                    for answer in [&there, &absent] {
                        let refused = condition(answer) == Some(Condition::Unauthorized);
                        assert_eq!(refused, !allowed, "{number} {action:?} {token} {answer:?}");
                    }
                    if !allowed {
                        let text = |answer: Result<(), BrokerError>| {
                            answer.unwrap_err().detail().to_owned()
                        };
                        assert_eq!(text(there), text(absent), "{number} {action:?} {token}");
                    }
                }
            }
        }
    })
    .await;
}

/// SEC-08: a handle is refused alike whether there is an entity or not, for every purpose.
#[tokio::test]
async fn a_handle_is_refused_before_it_is_known_what_there_is() {
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
            if matches!(action.needs(), Needs::OneOf(..)) {
                assert_eq!(there.map(|it| it.0), Some(Condition::Unauthorized), "{action:?}");
                assert!(everything.entity("q", action).await.is_ok(), "{action:?}");
                let absent = condition(&everything.entity("absent", action).await);
                assert_eq!(absent, Some(Condition::EntityNotFound), "{action:?}");
            }
        }
    })
    .await;
}

/// SEC-05, CON-73: over a JSON API who may listen reads descriptions and counts, and changes nothing by it.
#[tokio::test]
async fn over_a_json_api_listen_is_enough_to_read() {
    in_time(async {
        let world = World::new().await;
        let strict = world.granted("listen", Grant::of(Rights::of(Right::Listen)));
        let api = strict.reading_by_listen();
        let refused = condition(&strict.describe_queue("q").await);
        assert_eq!(refused, Some(Condition::Unauthorized));
        assert_eq!(api.describe_queue("q").await.unwrap().description.path.as_ref(), "q");
        assert_eq!(api.queues(0, 9).await.unwrap().len(), 1);
        for refused in [
            condition(&api.update_queue("q", QueueUpdate::default(), None).await),
            condition(&api.delete("q", EntityKind::Queue).await),
            condition(&api.create_queue("other", QueueUpdate::default()).await),
        ] {
            assert_eq!(refused, Some(Condition::Unauthorized));
        }
        let send = world.granted("send", Grant::of(Rights::of(Right::Send))).reading_by_listen();
        let refused = condition(&send.describe_queue("q").await);
        assert_eq!(refused, Some(Condition::Unauthorized));
    })
    .await;
}

/// FWD-05, SEC-07: who names a destination must manage it as well; one that was there before is not asked
/// for again.
#[tokio::test]
async fn forwarding_takes_the_right_on_the_destination() {
    in_time(async {
        let world = World::new().await;
        let access = world.access("a");
        world.told.grant("a", "from", Grant::everything());
        world.told.grant("a", "q", Grant::of(Rights::of(Right::Send).and(Right::Listen)));
        let to =
            |path: &str| QueueUpdate { forward_to: Some(path.into()), ..QueueUpdate::default() };
        let refused = condition(&access.create_queue("from", to("q")).await);
        assert_eq!(refused, Some(Condition::Unauthorized));
        access.create_queue("from", QueueUpdate::default()).await.unwrap();
        let refused = condition(&access.update_queue("from", to("Q"), None).await);
        assert_eq!(refused, Some(Condition::Unauthorized));
        let refused = condition(&access.update_queue("from", to("absent"), None).await);
        assert_eq!(refused, Some(Condition::Unauthorized), "SEC-08");
        world.broker.update_queue("from", to("q"), None).await.unwrap();
        let kept = QueueUpdate { max_delivery_count: Some(3), ..to("q") };
        assert_eq!(
            access.update_queue("from", kept, None).await.unwrap().description.max_delivery_count,
            3
        );
    })
    .await;
}

/// VIA-02, SEC-07: to be sent to by way of another takes the right to send there.
#[tokio::test]
async fn sending_by_way_of_another_takes_the_right_on_both() {
    in_time(async {
        let world = World::new().await;
        world.broker.create_queue("via", QueueUpdate::default()).await.unwrap();
        let access = world.access("a");
        world.told.grant("a", "via", Grant::of(Rights::of(Right::Send)));
        let via = access.entity("via", Action::SendVia).await.unwrap();
        let refused = condition(&access.transfer_destination("q", &via).await);
        assert_eq!(refused, Some(Condition::Unauthorized));
        let refused = condition(&access.transfer_destination("absent", &via).await);
        assert_eq!(refused, Some(Condition::Unauthorized), "SEC-08");
        let refused = condition(&access.entity("q", Action::SendVia).await);
        assert_eq!(refused, Some(Condition::Unauthorized));
        let operation = Operation::SendBatch { messages: Vec::new() };
        assert_eq!(Action::of_operation(&operation), Action::Send);
        // A handle by which nobody has asked for the destination is no way there, or anywhere else than was asked for.
        let to = |path: &str| Command::SendVia {
            destination: path.into(),
            messages: vec![world.broker.inbound(Message::new("a"))],
        };
        assert_eq!(condition(&via.call(to("q")).await), Some(Condition::Unauthorized));
        // Authorizers are asked by the path as it was said, and compare without case.
        for path in ["q", "Q"] {
            world.told.grant("a", path, Grant::of(Rights::of(Right::Send)));
        }
        // Who was refused on a connection is asked about again with a new token.
        let access = world.access("a");
        let via = access.entity("via", Action::SendVia).await.unwrap();
        let (way, destination) = access.transfer_destination("Q", &via).await.unwrap();
        assert_eq!(&*destination, "q");
        assert_eq!(condition(&way.call(to("q")).await), None);
        assert_eq!(condition(&way.call(to("via")).await), Some(Condition::Unauthorized));
    })
    .await;
}

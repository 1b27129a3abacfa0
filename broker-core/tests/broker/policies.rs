//! Policies: validation, storage with their entity, and the end of grants with their policy.

use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use peeklock_core::change::codec::policies_key;
use peeklock_core::clock::{Clock, ManualClock};
use peeklock_core::condition::Condition;
use peeklock_core::contract::{Action, Authorizer, Grant, Principal, Requirement, Right, Rights};
use peeklock_core::description::{EntityKind, QueueUpdate, SubscriptionUpdate, TopicUpdate};
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::management::{Managed, Management, Page};
use peeklock_core::policies::{KeyText, Policies, PolicyKeys, PolicyUpdate, ROOT_POLICY, WhichKey};
use peeklock_core::store::{Key, MemoryStore, Shard, Store};
use peeklock_core::time::Timestamp;
use peeklock_core::{Broker, StartError};
use peeklock_store_testing::{Fate, FaultStore, visit_records};

const KEY: &str = "AAECAwQFBgcICQoLDA0ODxAREhMUFRYXGBkaGxwdHh8=";

async fn start(store: &Arc<dyn Store>) -> (Broker, Policies) {
    let policies = Policies::new();
    let clock = ManualClock::at(Timestamp::parse("2026-05-01T12:00:00Z").unwrap());
    let broker = Broker::builder()
        .arbiters(1)
        .clock(Arc::new(clock) as Arc<dyn Clock>)
        .store(Arc::clone(store))
        .policies(&policies)
        .start()
        .await
        .unwrap();
    (broker, policies)
}

fn memory() -> Arc<dyn Store> {
    Arc::new(MemoryStore::new(4, u64::MAX))
}

fn of(rights: Rights) -> PolicyUpdate {
    PolicyUpdate { rights: Some(rights), ..PolicyUpdate::default() }
}

fn send() -> Rights {
    Rights::of(Right::Send)
}

fn condition<T>(result: &Result<T, BrokerError>) -> Option<Condition> {
    result.as_ref().err().map(BrokerError::condition)
}

/// SEC-01: Manage comes with Send and Listen, and there is no policy without rights.
#[tokio::test]
async fn manage_comes_with_send_and_listen() {
    let (broker, _) = start(&memory()).await;
    for rights in 0..8_u8 {
        let all = Right::ALL.into_iter().enumerate();
        let rights: Rights =
            all.filter(|(place, _)| rights & (1 << place) != 0).map(|(_, right)| right).collect();
        let is_fine =
            !rights.is_none() && (!rights.contains(Right::Manage) || rights == Rights::ALL);
        let created = broker.create_policy("", "p", of(rights)).await;
        assert_eq!(
            condition(&created),
            (!is_fine).then_some(Condition::ArgumentError),
            "{rights:?}"
        );
        if is_fine {
            assert_eq!(broker.policy("", "p").unwrap().rights, rights);
            broker.delete_policy("", "p").await.unwrap();
        }
    }
    let lower = of(Rights::of(Right::Manage));
    let refused = broker.update_policy("", ROOT_POLICY, lower).await;
    assert_eq!(condition(&refused), Some(Condition::InvalidOperation));
    broker.stop(Duration::ZERO).await.unwrap();
}

/// SEC-02: a policy has a name, rights and two keys of 256 bits in Base64, which are generated
/// unless they are given.
#[tokio::test]
async fn keys_are_given_or_256_random_bits() {
    let (broker, _) = start(&memory()).await;
    broker.create_policy("", "made", of(send())).await.unwrap();
    let made = broker.policy_keys("", "made").await.unwrap();
    let root = broker.policy_keys("", ROOT_POLICY).await.unwrap();
    let mut keys = vec![made.primary_key, made.secondary_key, root.primary_key, root.secondary_key];
    for key in &keys {
        assert_eq!(key.reveal().len(), 44);
        assert_eq!(KeyText::parse(key.reveal()).as_ref(), Ok(key));
    }
    keys.dedup_by(|one, other| one == other);
    assert_eq!(keys.len(), 4, "no two are the same");

    let given = KeyText::parse(KEY).unwrap();
    let properties = PolicyUpdate { primary_key: Some(given.clone()), ..of(send()) };
    broker.create_policy("", "given", properties.clone()).await.unwrap();
    assert_eq!(broker.policy_keys("", "given").await.unwrap().primary_key, given);
    let twice = PolicyUpdate { secondary_key: Some(given), ..properties };
    let refused = broker.create_policy("", "twice", twice).await;
    assert_eq!(condition(&refused), Some(Condition::ArgumentError));
    for wrong in ["", "abc", &KEY[1..], &format!("{KEY}="), "AAECAwQFBgcICQoLDA0ODw=="] {
        let detail = KeyText::parse(wrong).unwrap_err().detail().to_owned();
        assert!(detail.contains("44 characters"), "{wrong}: {detail}");
    }
    for wrong in ["", "a b", "a/b", "a;b", "é", &"x".repeat(257)] {
        let refused = broker.create_policy("", wrong, of(send())).await;
        assert_eq!(condition(&refused), Some(Condition::ArgumentError), "{wrong}");
    }
    let refused = broker.create_policy("", "MADE", of(send())).await;
    assert_eq!(condition(&refused), Some(Condition::EntityAlreadyExists));
    broker.stop(Duration::ZERO).await.unwrap();
}

/// SEC-03, QUO-01: the namespace, queues and topics have at most 12 policies each. Subscriptions
/// and sub-queues use those of their parent.
#[tokio::test]
async fn twelve_policies_each_and_none_on_subscriptions() {
    let (broker, policies) = start(&memory()).await;
    broker.create_queue("eu/q", QueueUpdate::default()).await.unwrap();
    broker.create_topic("t", TopicUpdate::default()).await.unwrap();
    broker.create_subscription("t", "s", SubscriptionUpdate::default(), Vec::new()).await.unwrap();
    for owner in ["", "eu/q", "t"] {
        let there = broker.policies(owner).unwrap().len();
        for number in there..12 {
            broker.create_policy(owner, &format!("p{number}"), of(send())).await.unwrap();
        }
        let refused = broker.create_policy(owner, "more", of(send())).await;
        assert_eq!(condition(&refused), Some(Condition::QuotaExceeded), "{owner}");
        assert!(refused.unwrap_err().detail().contains("12"));
    }
    for (owner, expected) in [
        ("t/Subscriptions/s", Condition::InvalidOperation),
        ("eu/q/$deadletterqueue", Condition::InvalidOperation),
        ("absent", Condition::EntityNotFound),
    ] {
        let refused = broker.create_policy(owner, "p", of(send())).await;
        assert_eq!(condition(&refused), Some(expected), "{owner}");
    }
    // The nearest policy comes first.
    let found = |resource: &str| policies.at(resource, "P5").len();
    assert_eq!(found(""), 1);
    assert_eq!(found("EU/Q"), 2);
    assert_eq!(found("eu/q/$deadletterqueue"), 2);
    assert_eq!(found("t/Subscriptions/s"), 2);
    assert_eq!(found("eu"), 1);
    assert_eq!(found("absent"), 1);
    broker.stop(Duration::ZERO).await.unwrap();
}

/// SEC-04, SEC-17: the first start creates the root policy with keys unique to this installation.
/// The next start finds all policies, with changes and the same keys. Data from before there were
/// policies is readable.
#[tokio::test]
async fn policies_outlive_a_restart() {
    let store = memory();
    // Data of a version without policies.
    let before = Broker::builder().arbiters(1).store(Arc::clone(&store)).start().await.unwrap();
    before.create_queue("Q", QueueUpdate::default()).await.unwrap();
    assert!(before.policies("").unwrap().is_empty(), "who asks for none has none");
    before.stop(Duration::ZERO).await.unwrap();

    let (broker, policies) = start(&store).await;
    let root = broker.policies("").unwrap();
    assert_eq!(root.iter().map(|policy| &*policy.name).collect::<Vec<_>>(), [ROOT_POLICY]);
    assert_eq!(root[0].rights, Rights::ALL);
    let key = policies.root_key().unwrap();
    let (other, elsewhere) = start(&memory()).await;
    assert_ne!(elsewhere.root_key().unwrap(), key, "random per installation");
    assert!(!policies.ended_anonymous_access(), "to write the first key is nobody's asking");
    broker.stop(Duration::ZERO).await.unwrap();
    other.stop(Duration::ZERO).await.unwrap();

    let (broker, policies) = start(&store).await;
    assert_eq!(policies.root_key().unwrap(), key);
    assert!(!policies.ended_anonymous_access());
    broker.create_policy("q", "team", of(send())).await.unwrap();
    let team = broker.policy_keys("q", "team").await.unwrap();
    let root = broker.regenerate_key("", ROOT_POLICY, WhichKey::Primary, None).await.unwrap();
    assert_ne!(root.primary_key, key);
    broker.stop(Duration::ZERO).await.unwrap();

    let (broker, policies) = start(&store).await;
    assert_eq!(policies.root_key().unwrap(), root.primary_key);
    assert!(policies.ended_anonymous_access());
    assert_eq!(broker.policy_keys("q", "team").await.unwrap(), team);
    let refused = broker.delete_policy("", ROOT_POLICY).await;
    assert_eq!(condition(&refused), Some(Condition::InvalidOperation));
    broker.delete_policy("q", "team").await.unwrap();
    broker.stop(Duration::ZERO).await.unwrap();

    let (broker, _) = start(&store).await;
    assert!(broker.policies("q").unwrap().is_empty());
    broker.stop(Duration::ZERO).await.unwrap();
}

/// SEC-17: creating, regenerating and reading a key each end anonymous access. Operations that
/// return no key do not.
#[tokio::test]
async fn using_a_key_ends_anonymous_access() {
    for used in 0..4 {
        let (broker, policies) = start(&memory()).await;
        let mark = policies.grant_anonymous().unwrap().epoch.unwrap();
        broker.create_queue("q", QueueUpdate::default()).await.unwrap();
        broker.policies("").unwrap();
        broker.policy("", ROOT_POLICY).unwrap();
        assert!(broker.policy_keys("", "absent").await.is_err());
        assert!(broker.policy_keys("absent", "p").await.is_err());
        assert!(broker.create_policy("", "p", PolicyUpdate::default()).await.is_err());
        assert!(policies.root_key().is_some());
        assert!(!policies.ended_anonymous_access() && mark.is_current());
        match used {
            0 => drop(broker.create_policy("q", "p", of(send())).await.unwrap()),
            1 => {
                let which = WhichKey::Secondary;
                drop(broker.regenerate_key("", ROOT_POLICY, which, None).await.unwrap());
            }
            2 => drop(broker.policy_keys("", ROOT_POLICY).await.unwrap()),
            _ => {
                let key = PolicyUpdate {
                    primary_key: Some(KeyText::parse(KEY).unwrap()),
                    ..PolicyUpdate::default()
                };
                broker.update_policy("", ROOT_POLICY, key).await.unwrap();
            }
        }
        assert!(policies.ended_anonymous_access(), "{used}");
        assert!(!mark.is_current() && policies.grant_anonymous().is_none(), "{used}");
        broker.stop(Duration::ZERO).await.unwrap();
    }
}

/// SEC-03, SEC-09, SEC-17, ADM-39: policies are replaced together or not at all. Grants of
/// unchanged policies stay valid, and those of removed ones end.
#[tokio::test]
async fn policies_are_replaced_at_once() {
    let (broker, policies) = start(&memory()).await;
    broker.create_queue("q", QueueUpdate::default()).await.unwrap();
    let said = |names: &[&str]| names.iter().map(|name| ((*name).into(), of(send()))).collect();
    let first = broker.replace_policies("q", said(&["b", "a"])).await.unwrap();
    let names = |keys: &[PolicyKeys]| -> Vec<String> {
        keys.iter().map(|it| it.policy.name.to_string()).collect()
    };
    assert_eq!(names(&first), ["a", "b"]);
    assert!(policies.ended_anonymous_access());
    let grants = ["a", "b"].map(|name| policies.at("q", name)[0].grant_by(WhichKey::Primary));
    let is_current = |grant: &Grant| grant.epoch.as_ref().unwrap().is_current();
    for (wrong, condition) in [
        (said(&["a", "c", "A"]), Condition::EntityAlreadyExists),
        (said(&["c", "not a name/"]), Condition::ArgumentError),
        (
            (0..13).map(|it| (format!("p{it}").into(), of(send()))).collect(),
            Condition::QuotaExceeded,
        ),
    ] {
        assert_eq!(self::condition(&broker.replace_policies("q", wrong).await), Some(condition));
        assert_eq!(broker.policies("q").unwrap().len(), 2);
        assert!(grants.iter().all(is_current));
    }
    let second = broker.replace_policies("q", said(&["A", "c"])).await.unwrap();
    assert_eq!(names(&second), ["a", "c"]);
    assert!(second[0].primary_key == first[0].primary_key, "a key that was not named stays");
    assert!(is_current(&grants[0]) && !is_current(&grants[1]));
    let without_root = broker.replace_policies("", said(&["c"])).await;
    assert_eq!(self::condition(&without_root), Some(Condition::InvalidOperation));
    broker.stop(Duration::ZERO).await.unwrap();
}

/// SEC-03: policies are deleted with their entity, and a new entity with the same path has none.
#[tokio::test]
async fn policies_go_with_their_entity() {
    let store = memory();
    let (broker, policies) = start(&store).await;
    let mut ended = Vec::new();
    broker.create_topic("T", TopicUpdate::default()).await.unwrap();
    broker.create_queue("Q", QueueUpdate::default()).await.unwrap();
    for (owner, kind) in [("Q", EntityKind::Queue), ("T", EntityKind::Topic)] {
        broker.create_policy(owner, "p", of(send())).await.unwrap();
        let policy = policies.at(owner, "p").remove(0);
        ended.extend(WhichKey::ALL.map(|which| policy.grant_by(which).epoch.unwrap()));
        let key = policies_key(broker.entity(owner).unwrap().id());
        assert_eq!(stored(&store, &key), 1);
        broker.delete(owner, kind).await.unwrap();
        assert_eq!(stored(&store, &key), 0, "its keys are not kept");
        assert!(policies.at(owner, "p").is_empty());
    }
    assert!(ended.iter().all(|mark| !mark.is_current()), "SEC-09");
    for owner in ["q", "t"] {
        broker.create_queue(owner, QueueUpdate::default()).await.unwrap();
        assert!(broker.policies(owner).unwrap().is_empty());
    }
    broker.stop(Duration::ZERO).await.unwrap();
    let (broker, _) = start(&store).await;
    assert!(broker.policies("q").unwrap().is_empty() && broker.policies("t").unwrap().is_empty());
    broker.stop(Duration::ZERO).await.unwrap();
}

/// Number of records under a key.
fn stored(store: &Arc<dyn Store>, key: &Key) -> usize {
    let mut count = 0;
    visit_records(&**store, key, |_, _| count += 1).unwrap();
    count
}

/// SEC-09: a change that the store refused has no effect, also after a restart, whether it was
/// written or not. If the store cannot confirm that, the broker is not ready, because a revoked key
/// could return.
#[tokio::test]
async fn an_unstored_change_has_no_effect() {
    for (first, second) in [(Fate::Fail, Fate::Store), (Fate::Fail, Fate::Fail)] {
        let faults = FaultStore::at_once(1, u64::MAX);
        let store = Arc::clone(&faults) as Arc<dyn Store>;
        let (broker, policies) = start(&store).await;
        broker.create_policy("", "p", of(send())).await.unwrap();
        let keys = broker.policy_keys("", "p").await.unwrap();
        let mark = policies.at("", "p").remove(0).grant_by(WhichKey::Primary).epoch.unwrap();
        faults.complete_at_once(false);
        let change = {
            let broker = broker.clone();
            async move { broker.regenerate_key("", "p", WhichKey::Primary, None).await }
        };
        let change = tokio::spawn(change);
        for fate in [first, second] {
            while !faults.complete_next(Shard(0), fate) {
                tokio::task::yield_now().await;
            }
        }
        faults.complete_at_once(true);
        let result = change.await.unwrap();
        assert_eq!(condition(&result), Some(Condition::InternalError));
        assert!(mark.is_current(), "what was granted goes on");
        if second == Fate::Fail {
            while broker.failure().is_none() {
                tokio::task::yield_now().await;
            }
            continue;
        }
        assert_eq!(broker.policy_keys("", "p").await.unwrap(), keys);
        assert_eq!(broker.failure(), None);
        broker.stop(Duration::ZERO).await.unwrap();
        let (broker, _) = start(&store).await;
        assert_eq!(broker.policy_keys("", "p").await.unwrap(), keys);
        broker.stop(Duration::ZERO).await.unwrap();
    }
}

/// SEC-09: regenerating a key ends only the grants of that key. Deleting a policy or changing its
/// rights ends all its grants.
#[tokio::test]
async fn grants_end_with_their_key() {
    let (broker, policies) = start(&memory()).await;
    broker.create_policy("", "p", of(send())).await.unwrap();
    broker.create_policy("", "other", of(send())).await.unwrap();
    let marks = |name: &str| {
        let policy = policies.at("", name).remove(0);
        WhichKey::ALL.map(|which| policy.grant_by(which).epoch.unwrap())
    };
    let current = |marks: &[peeklock_core::contract::Mark; 2]| {
        marks.each_ref().map(peeklock_core::contract::Mark::is_current)
    };
    let (first, other) = (marks("p"), marks("other"));
    let old = broker.policy_keys("", "p").await.unwrap();
    let new = broker.regenerate_key("", "P", WhichKey::Primary, None).await.unwrap();
    assert_ne!(new.primary_key, old.primary_key);
    assert_eq!(new.secondary_key, old.secondary_key);
    assert_eq!(current(&first), [false, true]);
    let second = marks("p");
    broker.update_policy("", "p", of(Rights::of(Right::Listen))).await.unwrap();
    assert_eq!((current(&first), current(&second)), ([false; 2], [false; 2]));
    let kept = broker.policy_keys("", "p").await.unwrap();
    assert_eq!(
        (kept.primary_key, kept.secondary_key),
        (new.primary_key, new.secondary_key),
        "its keys stay"
    );
    let third = marks("p");
    let key = PolicyUpdate {
        secondary_key: Some(KeyText::parse(KEY).unwrap()),
        ..of(Rights::of(Right::Listen))
    };
    broker.update_policy("", "p", key).await.unwrap();
    assert_eq!(current(&third), [true, false]);
    broker.delete_policy("", "p").await.unwrap();
    assert_eq!(current(&third), [false, false]);
    assert_eq!(current(&other), [true, true]);
    broker.stop(Duration::ZERO).await.unwrap();
}

/// An authorizer that refuses everything.
struct Nobody;

#[async_trait]
impl Authorizer for Nobody {
    async fn authorize(&self, _: &Principal, _: &str) -> Result<Grant, Rejection> {
        Err(Rejection::unauthorized("nobody is let in"))
    }

    fn allows_anonymous(&self) -> bool {
        false
    }
}

/// SEC-17: a handle that its host has wrapped with a policy has the rights of the policy, only at
/// the entity of the policy, regardless of the authorizer's decision. It ends with the policy.
#[tokio::test]
async fn a_host_wraps_handles_with_a_policy() {
    let broker = Broker::builder().arbiters(1).authorizer(Arc::new(Nobody)).start().await.unwrap();
    for queue in ["q", "other"] {
        broker.create_queue(queue, QueueUpdate::default()).await.unwrap();
    }
    broker.create_policy("q", "sender", of(send())).await.unwrap();
    broker.create_policy("", "all", of(Rights::ALL)).await.unwrap();
    let at_queue = broker.access_of_policy("Q", "Sender");
    let entity = at_queue.entity("q", Action::Send).await.unwrap();
    for (path, action) in [("q", Action::Receive), ("other", Action::Send), ("", Action::List)] {
        let refused = at_queue.allow(action, path).await;
        assert_eq!(condition(&refused), Some(Condition::Unauthorized), "{path} {action:?}");
        assert!(refused.unwrap_err().detail().contains("`sender`"), "{path} {action:?}");
    }
    let at_all = broker.access_of_policy("", "all");
    let list = Management::Queues(Page { skip: 0, top: None });
    let listed = at_all.manage("", list).await.unwrap();
    assert!(matches!(listed, Managed::Queues(queues) if queues.len() == 2));
    for absent in [broker.access_of_policy("q", "all"), broker.access_of_policy("absent", "all")] {
        assert_eq!(
            condition(&absent.allow(Action::Send, "q").await),
            Some(Condition::Unauthorized)
        );
    }
    // A change of a key is no change of the policy.
    broker.regenerate_key("q", "sender", WhichKey::Primary, None).await.unwrap();
    let message = || broker.inbound(peeklock_core::message::Message::new("a"));
    let send = || peeklock_core::command::Command::Send { message: message() };
    assert!(entity.call(send()).await.is_ok());
    broker.delete_policy("q", "sender").await.unwrap();
    assert_eq!(condition(&entity.call(send()).await), Some(Condition::Unauthorized));
    broker.stop(Duration::ZERO).await.unwrap();
}

/// SEC-05, SEC-08, SEC-17: over the whole table of actions, a handle wrapped with a policy of the
/// entity or of the namespace has exactly the rights of the policy, and one wrapped with a policy
/// of a sibling entity has none.
#[tokio::test]
async fn a_wrapped_handle_has_the_rights_of_the_table() {
    let broker = Broker::builder().arbiters(1).authorizer(Arc::new(Nobody)).start().await.unwrap();
    for queue in ["q", "sibling"] {
        broker.create_queue(queue, QueueUpdate::default()).await.unwrap();
    }
    for right in Right::ALL {
        let rights = if right == Right::Manage { Rights::ALL } else { Rights::of(right) };
        for owner in ["q", "sibling", ""] {
            broker.create_policy(owner, right.name(), of(rights)).await.unwrap();
            let access = broker.access_of_policy(owner, right.name());
            for action in Action::ALL {
                let suffices = match action.needs() {
                    Requirement::OneOf(one_of, _) => one_of.intersects(rights),
                    Requirement::AllOf(all, _) => rights.include(all),
                    Requirement::Nothing | Requirement::BrokerItself => continue,
                };
                let allowed = owner != "sibling" && suffices;
                let refused = condition(&access.allow(action, "q").await);
                let expected = (!allowed).then_some(Condition::Unauthorized);
                assert_eq!(refused, expected, "{action:?} with {right:?} of {owner:?}");
            }
        }
    }
    broker.stop(Duration::ZERO).await.unwrap();
}

/// SEC-22: debug output contains no key.
#[tokio::test]
async fn keys_are_not_printed_by_accident() {
    let (broker, policies) = start(&memory()).await;
    let properties = PolicyUpdate { primary_key: Some(KeyText::parse(KEY).unwrap()), ..of(send()) };
    let mut printed = format!("{properties:?}");
    broker.create_policy("", "p", properties).await.unwrap();
    printed += &format!("{:?}", policies.at("", "p"));
    printed += &format!("{policies:?}{:?}", broker.policy_keys("", "p").await.unwrap());
    assert!(!printed.contains(&KEY[..8]), "{printed}");
    broker.stop(Duration::ZERO).await.unwrap();
}

/// Policies belong to one broker.
#[tokio::test]
async fn policies_belong_to_one_broker() {
    let (broker, policies) = start(&memory()).await;
    let second = Broker::builder().arbiters(1).policies(&policies).start().await;
    assert!(matches!(second.err(), Some(StartError::Policies)));
    broker.stop(Duration::ZERO).await.unwrap();
}

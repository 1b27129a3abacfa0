//! Every operation with every way to limit a client.

use peeklock_auth_sas::sign;
use peeklock_client::Client;
use peeklock_core::Access;
use peeklock_core::condition::Condition;
use peeklock_core::contract::{Principal, Right};
use peeklock_core::policies::{PolicyUpdate, ROOT_POLICY, WhichKey};
use peeklock_core::time::{TimeSpan, Timestamp};

use crate::hands::Hands;
use crate::needs::{RIGHTS, are_met, done_at};
use crate::world::{AT_QUEUE, KEY, OTHER_KEY, OWNERS, PLACES, Place, RETIRED_KEY, World, policy};

/// Performs every operation with open handles. Exactly the operations that `rights` at `owner` do
/// not permit must be refused.
async fn judge(world: &World, hands: &Hands, owner: &str, rights: &[Right], case: &str) {
    let mut locked = world.locked(hands.at).await;
    for (name, needs) in done_at(hands.at) {
        let answer = hands.operate(name, &locked).await;
        let condition = answer.as_ref().err().map(|error| error.condition());
        let refused = condition == Some(Condition::Unauthorized);
        let is_allowed = are_met(needs, hands.at, owner, rights);
        assert_eq!(refused, !is_allowed, "{name} with {case}: {answer:?}");
        if answer.is_ok() {
            world.arrange().await;
            locked = world.locked(hands.at).await;
        }
    }
}

async fn judge_new(
    world: &World,
    at: Place,
    access: Access,
    owner: &str,
    rights: &[Right],
    case: &str,
) {
    let hands = Hands::of(Client::with_access(access), at).await;
    judge(world, &hands, owner, rights, case).await;
}

/// SEC-03, SEC-05, SEC-06, SEC-07, SEC-08, SEC-17: a client limited to a policy of the namespace or
/// of an entity may do exactly the operations that its rights permit, at a queue, and at a topic
/// with its subscription.
#[tokio::test]
async fn every_operation_against_every_policy() {
    let world = World::new().await;
    for at in PLACES {
        for owner in OWNERS {
            for rights in RIGHTS {
                let name = policy(owner, rights);
                let access = world.broker.access_of_policy(owner, &name);
                judge_new(&world, at, access, owner, rights, &name).await;
            }
        }
        for (owner, name) in [(at.to, "absent"), ("absent", ROOT_POLICY)] {
            let access = world.broker.access_of_policy(owner, name);
            judge_new(&world, at, access, owner, &[], name).await;
        }
    }
    world.stop().await;
}

/// SEC-05, SEC-09, SEC-12, SEC-13, SEC-17: the same with tokens signed by a key of a policy, with
/// such a key itself, and with invalid tokens: expired, wrongly signed, of a regenerated key, for
/// another resource, or absent.
#[tokio::test]
async fn every_operation_against_every_token() {
    let world = World::new().await;
    let (latest, past) = (Timestamp::NEVER, Timestamp::from_unix_ms(1_000));
    for at in PLACES {
        let audience = format!("amqp://localhost:5672/{}/", at.to.to_uppercase());
        for owner in ["", "orders", "news"] {
            for rights in RIGHTS {
                let name = policy(owner, rights);
                let token = |key, audience: &str, until| sign(&name, key, audience, until);
                let is_elsewhere = !owner.is_empty() && owner != at.to;
                let at_audience = if is_elsewhere { &[] } else { rights };
                for (token, owner, rights) in [
                    (token(KEY, "sb://x", latest), owner, rights),
                    (token(KEY, audience.as_str(), latest), at.to, at_audience),
                    (token(KEY, "sb://x/elsewhere", latest), owner, &[][..]),
                    (token(OTHER_KEY, "sb://x", latest), owner, &[]),
                    (token(RETIRED_KEY, "sb://x", latest), owner, &[]),
                    (token(KEY, "sb://x", past), owner, &[]),
                ] {
                    judge_new(&world, at, world.shown(&token), owner, rights, &token).await;
                }
                let keyed = Principal::anonymous().with_key(&*name, KEY);
                judge_new(&world, at, world.broker.access(keyed), owner, rights, &name).await;
            }
        }
        let nothing = world.broker.access(Principal::anonymous());
        judge_new(&world, at, nothing, "", &[], "nothing").await;
    }
    world.stop().await;
}

/// SEC-15, SEC-17: open handles follow a newer token of their client, whether it gives more or
/// fewer rights.
#[tokio::test]
async fn open_handles_follow_a_newer_token() {
    let world = World::new().await;
    let all = sign(&policy("", RIGHTS[3]), KEY, "sb://x", Timestamp::NEVER);
    for at in PLACES {
        for owner in OWNERS {
            for rights in RIGHTS {
                let name = policy(owner, rights);
                let access = world.shown(&all);
                let hands = Hands::of(Client::with_access(access.clone()), at).await;
                let newer = sign(&name, KEY, "sb://x", Timestamp::NEVER);
                access.renew(Principal::anonymous().with_token(newer)).await;
                judge(&world, &hands, owner, rights, &name).await;
            }
        }
    }
    world.stop().await;
}

/// SEC-09, SEC-15, SEC-17: open handles lose their rights when the grant ends: when a token
/// expires, its key is regenerated, or its policy is reduced or deleted. Until then they keep them.
#[tokio::test]
async fn open_handles_end_with_their_grant() {
    let world = World::new().await;
    let all = RIGHTS[3];
    let name = policy("", all);
    let access = world.broker.access_of_policy("", &name);
    let lasting = Hands::of(Client::with_access(access.clone()), AT_QUEUE).await;

    let until = world.broker.now().plus(TimeSpan::from_minutes(60));
    let short = world.shown(&sign(&name, KEY, "sb://x", until));
    let hands = Hands::of(Client::with_access(short), AT_QUEUE).await;
    judge(&world, &hands, "", all, "a token that lasts").await;
    world.clock.advance(until.since(world.broker.now()));
    judge(&world, &hands, "", &[], "a token that has expired").await;

    let signed = world.shown(&sign(&name, KEY, "sb://x", Timestamp::NEVER));
    let signed = Hands::of(Client::with_access(signed), AT_QUEUE).await;
    let keyed = Principal::anonymous().with_key(&*name, KEY);
    let keyed = Hands::of(Client::with_access(world.broker.access(keyed)), AT_QUEUE).await;
    let admin = world.full.admin();
    admin.regenerate_key("", &name, WhichKey::Secondary, None).await.unwrap();
    judge(&world, &signed, "", all, "a token while the other key is regenerated").await;
    admin.regenerate_key("", &name, WhichKey::Primary, None).await.unwrap();
    judge(&world, &signed, "", &[], "a token whose key was regenerated").await;
    judge(&world, &keyed, "", &[], "a key that was regenerated").await;
    // A program with an embedded broker uses a policy without its keys.
    judge(&world, &lasting, "", all, "a policy whose keys were regenerated").await;

    let fewer = PolicyUpdate {
        rights: Some(RIGHTS[1].iter().copied().collect()),
        ..PolicyUpdate::default()
    };
    admin.update_policy("", &name, fewer).await.unwrap();
    // Existing grants of a policy end with its change; new ones have the policy's new rights.
    let locked = world.locked(AT_QUEUE).await;
    for name in ["send", "receive", "renew session"] {
        let refused = lasting.operate(name, &locked).await.unwrap_err();
        assert_eq!(refused.condition(), Condition::Unauthorized, "{name}");
    }
    judge_new(&world, AT_QUEUE, access.clone(), "", RIGHTS[1], "a policy with fewer rights").await;
    admin.delete_policy("", &name).await.unwrap();
    judge(&world, &lasting, "", &[], "a policy that was deleted").await;
    world.stop().await;
}

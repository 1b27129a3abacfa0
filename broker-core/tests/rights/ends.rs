//! The end of grants: by time, by epoch, by a newer token with fewer rights.

use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::task::Poll;

use async_trait::async_trait;
use peeklock_core::clock::{Clock, ManualClock};
use peeklock_core::command::{Command, Drain, LinkEnd, Outcome, ReceiveMode, SessionCommand};
use peeklock_core::condition::Condition;
use peeklock_core::contract::{
    Action, Authorizer, Epoch, Failures, Grant, Principal, Right, Rights, TOKEN_BYTES_MAX,
};
use peeklock_core::description::QueueUpdate;
use peeklock_core::error::Rejection;
use peeklock_core::ids::ReceiverId;
use peeklock_core::management::{Management, Page};
use peeklock_core::message::Message;
use peeklock_core::request::{Outlet, Released, Reply, Request};
use peeklock_core::time::{TimeSpan, Timestamp};
use peeklock_core::{Broker, Entity};
use tokio::sync::mpsc;

use super::world::{Line, World, condition, in_time};

type Mail = mpsc::UnboundedReceiver<Released>;

fn submit(entity: &Entity, outlet: &Arc<dyn Outlet>, correlation: u64, command: Command) {
    let ticket = entity.broker().ticket();
    let reply = Reply::new(Arc::clone(outlet), correlation, None);
    entity.submit(vec![Request { ticket, sub_queue: entity.sub_queue(), command, reply }]);
}

/// Opens a link with credit for ten messages.
async fn open(entity: &Entity, outlet: &Arc<dyn Outlet>, mail: &mut Mail) -> ReceiverId {
    let receiver = entity.broker().receiver_id();
    submit(entity, outlet, 1, Command::Attach { receiver, mode: ReceiveMode::PeekLock });
    let grant =
        Command::SetCredit { receiver, delivery_limit: 10, byte_limit: 10_000, drain: Drain::No };
    submit(entity, outlet, 2, grant);
    for _ in 0..2 {
        match mail.recv().await.unwrap() {
            Released::Answer { result: Ok(_), .. } => {}
            other => panic!("{other:?}"),
        }
    }
    receiver
}

async fn send(world: &World) {
    let message = world.broker.inbound(Message::new("a"));
    world.broker.entity("q").unwrap().call(Command::Send { message }).await.unwrap();
}

fn wait_long() -> Command {
    Command::Receive {
        mode: ReceiveMode::PeekLock,
        count_max: 1,
        bytes_max: 1_000,
        wait: TimeSpan::from_minutes(60),
        holder: None,
    }
}

/// Waits for the refusal of a call whose grant has ended.
async fn refused(mail: &mut Mail, correlation: u64) {
    match mail.recv().await.unwrap() {
        Released::Answer { correlation: of, result: Err(rejection) } => {
            assert_eq!((of, rejection.condition()), (correlation, Condition::Unauthorized));
        }
        other => panic!("{other:?}"),
    }
}

async fn detached(mail: &mut Mail, receiver: ReceiverId) {
    match mail.recv().await.unwrap() {
        Released::Detached { receiver: of, reason } => {
            assert_eq!((of, reason.condition()), (receiver, Condition::Unauthorized));
        }
        other => panic!("{other:?}"),
    }
}

/// SEC-15: the end of a grant ends credit, links and waiting calls, and later commands are refused.
/// Deliveries are released without a counted delivery.
#[tokio::test]
async fn the_end_of_a_grant_ends_links_credit_and_waiting_calls() {
    in_time(async {
        let world = World::new().await;
        let until = world.broker.now().plus(TimeSpan::from_seconds(30));
        let access = world.granted("a", Grant::everything().with_end(until));
        let entity = access.entity("q", Action::Receive).await.unwrap();
        let (outlet, mut mail) = Line::open();
        let receiver = open(&entity, &outlet, &mut mail).await;
        send(&world).await;
        let Some(Released::Delivery { .. }) = mail.recv().await else { panic!("no delivery") };
        let (calls, mut answers) = Line::open();
        submit(&entity, &calls, 7, wait_long());
        // Just before the end nothing changes.
        world.clock.advance(TimeSpan::from_ms(29_999));
        assert!(entity.call(Command::Describe).await.is_ok());
        assert!(mail.try_recv().is_err() && answers.try_recv().is_err());

        world.clock.advance(TimeSpan::from_ms(1));
        assert_eq!(
            condition(&entity.call(Command::Describe).await),
            Some(Condition::Unauthorized),
            "at once for commands"
        );
        detached(&mut mail, receiver).await;
        refused(&mut answers, 7).await;
        let counts = world.broker.describe_queue("q").await.unwrap().counts;
        assert_eq!(counts.active, 1);
        let peek = Command::Peek { from: peeklock_core::ids::SequenceNumber(0), count_max: 1 };
        let Ok(Outcome::Peeked(peeked)) = world.broker.entity("q").unwrap().call(peek).await else {
            panic!("not peeked");
        };
        assert_eq!(peeked[0].facts.delivery_count, 0);
        // A later message is not delivered.
        send(&world).await;
        assert!(mail.try_recv().is_err());
        // A client without a right may still end its links.
        let detach = Command::Detach { receiver, end: LinkEnd::Orderly };
        assert!(entity.call(detach).await.is_ok());
    })
    .await;
}

/// SEC-09, SEC-15: raising an epoch ends only grants of that epoch, immediately for commands.
#[tokio::test]
async fn raising_an_epoch_ends_its_grants() {
    in_time(async {
        let world = World::new().await;
        let (one, other) = (Epoch::new(), Epoch::new());
        let mut lines = Vec::new();
        for (token, epoch) in [("one", &one), ("other", &other)] {
            let access = world.granted(token, Grant::everything().with_epoch(epoch.mark()));
            let entity = access.entity("q", Action::Receive).await.unwrap();
            let (outlet, mut mail) = Line::open();
            let receiver = open(&entity, &outlet, &mut mail).await;
            lines.push((access, entity, outlet, mail, receiver));
        }
        one.raise();
        let refused = condition(&lines[0].1.call(Command::Describe).await);
        assert_eq!(refused, Some(Condition::Unauthorized));
        let receiver = lines[0].4;
        detached(&mut lines[0].3, receiver).await;
        assert!(lines[1].1.call(Command::Describe).await.is_ok());
        send(&world).await;
        let Some(Released::Delivery { .. }) = lines[1].3.recv().await else {
            panic!("the other one is delivered to");
        };
        // A grant from an ended epoch is invalid, however late it arrives.
        let refused = condition(&lines[0].0.entity("q", Action::Receive).await);
        assert_eq!(refused, Some(Condition::Unauthorized));
        // A new decision of the authorizer is valid in the new epoch.
        world.authorizer.grant("one", "*", Grant::everything().with_epoch(one.mark()));
        assert!(lines[0].0.entity("q", Action::Receive).await.is_ok());
        assert!(lines[0].1.call(Command::Describe).await.is_ok(), "handles follow");
    })
    .await;
}

/// SEC-15: a newer token replaces the older one for open handles and links, which outlive the older
/// one.
#[tokio::test]
async fn a_newer_token_keeps_links_open() {
    in_time(async {
        let world = World::new().await;
        let now = world.broker.now();
        let in_seconds = |seconds| now.plus(TimeSpan::from_seconds(seconds));
        let access = world.granted("old", Grant::everything().with_end(in_seconds(30)));
        world.authorizer.grant("new", "*", Grant::everything().with_end(in_seconds(90)));
        let entity = access.entity("q", Action::Receive).await.unwrap();
        let (outlet, mut mail) = Line::open();
        let receiver = open(&entity, &outlet, &mut mail).await;
        access.renew(Principal::anonymous().with_token("new")).await;
        world.clock.advance(TimeSpan::from_seconds(60));
        send(&world).await;
        let Some(Released::Delivery { .. }) = mail.recv().await else { panic!("no delivery") };
        world.clock.advance(TimeSpan::from_seconds(30));
        detached(&mut mail, receiver).await;
    })
    .await;
}

/// SEC-15: a newer token with fewer rights, or an invalid one, ends everything that it does not
/// grant.
#[tokio::test]
async fn a_newer_token_with_fewer_rights_ends_links() {
    in_time(async {
        let world = World::new().await;
        world.authorizer.grant("send", "*", Grant::of(Rights::of(Right::Send)));
        for newer in [Principal::anonymous().with_token("send"), Principal::anonymous()] {
            let access = world.granted("all", Grant::everything());
            let entity = access.entity("q", Action::Receive).await.unwrap();
            let (outlet, mut mail) = Line::open();
            let receiver = open(&entity, &outlet, &mut mail).await;
            let (calls, mut answers) = Line::open();
            submit(&entity, &calls, 7, wait_long());
            access.renew(newer).await;
            detached(&mut mail, receiver).await;
            refused(&mut answers, 7).await;
            let refused = condition(&entity.call(wait_long()).await);
            assert_eq!(refused, Some(Condition::Unauthorized));
        }
    })
    .await;
}

/// Grants everything to the token `good`. The answer to other tokens is delayed.
struct HeldBack {
    failures: Failures,
    clock: Arc<ManualClock>,
}

#[async_trait]
impl Authorizer for HeldBack {
    async fn authorize(&self, principal: &Principal, _: &str) -> Result<Grant, Rejection> {
        if principal.token.as_deref() == Some("good") {
            return Ok(Grant::everything());
        }
        self.failures.delay_answer(principal, &*self.clock).await;
        Err(Rejection::unauthorized("the token is not good"))
    }

    fn allows_anonymous(&self) -> bool {
        false
    }
}

/// Whether a future is complete.
async fn is_done(mut what: Pin<&mut impl Future<Output = ()>>) -> bool {
    poll_fn(|context| Poll::Ready(what.as_mut().poll(context).is_ready())).await
}

/// SEC-15, SEC-26: after an invalid token, access ends at all entities within a second, regardless
/// of their number, because their refusals are delayed concurrently.
#[tokio::test]
async fn refusals_at_many_entities_are_delayed_concurrently() {
    in_time(async {
        let clock = Arc::new(ManualClock::at(Timestamp::parse("2026-05-01T12:00:00Z").unwrap()));
        let failures = Failures::default();
        let broker = Broker::builder()
            .arbiters(1)
            .clock(Arc::clone(&clock) as Arc<dyn Clock>)
            .authorizer(Arc::new(HeldBack { failures, clock: Arc::clone(&clock) }))
            .start()
            .await
            .unwrap();
        let client = Principal::anonymous().from_peer(SocketAddr::from(([10, 0, 0, 1], 5672)));
        let access = broker.access(client.clone().with_token("good"));
        let mut links = Vec::new();
        // The maximum of links of a connection.
        for number in 0..256 {
            let name = format!("q{number}");
            broker.create_queue(&name, QueueUpdate::default()).await.unwrap();
            let entity = access.entity(&name, Action::Receive).await.unwrap();
            let (outlet, mut mail) = Line::open();
            let receiver = open(&entity, &outlet, &mut mail).await;
            links.push((entity, outlet, mail, receiver));
        }
        let mut renewing = pin!(access.renew(client.with_token("bad")));
        assert!(!is_done(renewing.as_mut()).await, "the answers wait");
        clock.advance(TimeSpan::from_seconds(1));
        assert!(is_done(renewing.as_mut()).await, "all of them have waited");
        for (entity, _, mail, receiver) in &mut links {
            detached(mail, *receiver).await;
            let refused = condition(&entity.call(Command::Describe).await);
            assert_eq!(refused, Some(Condition::Unauthorized));
        }
    })
    .await;
}

/// SEC-15: a session is released, and a waiting accept is refused.
#[tokio::test]
async fn the_end_of_a_grant_releases_sessions() {
    in_time(async {
        let world = World::new().await;
        let sessions = QueueUpdate { requires_session: Some(true), ..QueueUpdate::default() };
        world.broker.create_queue("s", sessions).await.unwrap();
        let until = world.broker.now().plus(TimeSpan::from_seconds(30));
        let access = world.granted("a", Grant::everything().with_end(until));
        let entity = access.entity("s", Action::AcceptSession).await.unwrap();
        let (outlet, mut mail) = Line::open();
        let receiver = world.broker.receiver_id();
        let accept = |session: Option<&str>, receiver, wait| Command::AcceptSession {
            session: session.map(Into::into),
            receiver,
            mode: ReceiveMode::PeekLock,
            wait,
        };
        submit(&entity, &outlet, 1, accept(Some("x"), receiver, TimeSpan::ZERO));
        let Some(Released::Answer {
            result: Ok(Outcome::SessionAccepted { session_entrance, .. }),
            ..
        }) = mail.recv().await
        else {
            panic!("no session");
        };
        let held = entity.with_session_entrance(session_entrance);
        let (calls, mut answers) = Line::open();
        submit(
            &held,
            &calls,
            5,
            Command::InSession {
                receiver,
                command: SessionCommand::Receive {
                    count_max: 1,
                    bytes_max: 1_000,
                    wait: TimeSpan::from_minutes(60),
                },
            },
        );
        let next = world.broker.receiver_id();
        submit(&entity, &calls, 6, accept(None, next, TimeSpan::from_minutes(60)));
        world.broker.describe_queue("s").await.unwrap();
        world.clock.advance(TimeSpan::from_seconds(30));
        detached(&mut mail, receiver).await;
        let mut answered = Vec::new();
        for _ in 0..2 {
            match answers.recv().await.unwrap() {
                Released::Answer { correlation, result: Err(rejection) } => {
                    assert_eq!(rejection.condition(), Condition::Unauthorized);
                    answered.push(correlation);
                }
                other => panic!("{other:?}"),
            }
        }
        answered.sort_unstable();
        assert_eq!(answered, [5, 6]);
        let described = world.broker.describe_queue("s").await.unwrap();
        assert_eq!(described.sessions.unwrap().locked, 0);
    })
    .await;
}

/// An authorizer is asked once for each entity while its grant is valid.
#[tokio::test]
async fn a_grant_is_remembered_while_it_is_valid() {
    in_time(async {
        let world = World::new().await;
        let until = world.broker.now().plus(TimeSpan::from_seconds(30));
        let access = world.granted("a", Grant::everything().with_end(until));
        for _ in 0..3 {
            let entity = access.entity("q", Action::Send).await.unwrap();
            entity.call(Command::Describe).await.unwrap();
            access.manage("Q", Management::Queue).await.unwrap();
        }
        // Each spelling of a path is a separate question, because the authorizer gets the path as
        // given.
        assert_eq!(world.authorizer.asked.load(Ordering::Relaxed), 2);
        world.clock.advance(TimeSpan::from_seconds(30));
        world.authorizer.grant("a", "*", Grant::everything());
        access.manage("q", Management::Queue).await.unwrap();
        assert_eq!(world.authorizer.asked.load(Ordering::Relaxed), 3);
    })
    .await;
}

fn queues() -> Management {
    Management::Queues(Page { skip: 0, top: None })
}

/// A panic in an authorizer counts as a refusal, and breaks nothing else.
#[tokio::test]
async fn a_panic_counts_as_a_refusal() {
    in_time(async {
        let world = World::new().await;
        let access = world.granted("a", Grant::everything());
        *world.authorizer.panics.lock().unwrap() = true;
        assert!(!world.broker.allows_anonymous());
        let refused = condition(&access.entity("q", Action::Send).await);
        assert_eq!(refused, Some(Condition::Unauthorized));
        assert_eq!(condition(&access.manage("", queues()).await), Some(Condition::Unauthorized));
        *world.authorizer.panics.lock().unwrap() = false;
        assert!(access.entity("q", Action::Send).await.is_ok());
    })
    .await;
}

/// SEC-16: a token over the maximum length is invalid, regardless of the authorizer's decision. If
/// it replaces a valid token, it ends the grants of that token.
#[tokio::test]
async fn a_token_over_the_length_limit_is_refused() {
    in_time(async {
        let world = World::new().await;
        let long = "t".repeat(TOKEN_BYTES_MAX + 1);
        let access = world.granted(&long, Grant::everything());
        let refused = access.entity("q", Action::Send).await;
        assert_eq!(condition(&refused), Some(Condition::Unauthorized));
        assert_eq!(world.authorizer.asked.load(Ordering::Relaxed), 0);
        assert_eq!(condition(&access.manage("", queues()).await), Some(Condition::Unauthorized));

        let longest = "t".repeat(TOKEN_BYTES_MAX);
        let access = world.granted(&longest, Grant::everything());
        let entity = access.entity("q", Action::Send).await.unwrap();
        access.renew(Principal::anonymous().with_token(long)).await;
        let message = world.broker.inbound(Message::new("a"));
        let refused = entity.call(Command::Send { message }).await;
        assert_eq!(condition(&refused), Some(Condition::Unauthorized));
    })
    .await;
}

/// SEC-08, QUO-02: the remembered paths are bounded in number and length. Paths of handles stay.
#[tokio::test]
async fn remembered_paths_are_bounded() {
    in_time(async {
        let world = World::new().await;
        let access = world.granted("some", Grant::everything());
        let asked = || world.authorizer.asked.load(Ordering::Relaxed);
        let handle = access.entity("q", Action::Send).await.unwrap();
        for number in 0..1_000 {
            let absent = access.entity(&format!("absent{number}"), Action::Send).await;
            assert_eq!(condition(&absent), Some(Condition::EntityNotFound));
        }
        assert_eq!(asked(), 1_001);
        access.entity("absent0", Action::Send).await.err().unwrap();
        assert_eq!(asked(), 1_002, "it was forgotten");
        access.entity("absent0", Action::Send).await.err().unwrap();
        access.entity("q", Action::Send).await.unwrap();
        assert_eq!(asked(), 1_002, "they are remembered");
        drop(handle);
        let endless = access.entity(&"p".repeat(1 << 20), Action::Send).await.err().unwrap();
        assert_eq!(endless.condition(), Condition::ArgumentError, "{endless}");
        assert!(endless.to_string().len() < 1_000);
        assert_eq!(asked(), 1_002);
    })
    .await;
}

/// VIA-02, SEC-07, SEC-09, SEC-15: a route to one entity through another ends with the grant of
/// either: immediately for messages, and its link is notified once. A newer token that covers both
/// reopens it.
#[tokio::test]
async fn a_route_through_another_entity_ends_with_either_grant() {
    in_time(async {
        for ended in ["via", "q"] {
            let world = World::new().await;
            world.broker.create_queue("via", QueueUpdate::default()).await.unwrap();
            let epoch = Epoch::new();
            let send = || Grant::of(Rights::of(Right::Send));
            for path in ["via", "q"] {
                let grant = if path == ended { send().with_epoch(epoch.mark()) } else { send() };
                world.authorizer.grant("a", path, grant);
                world.authorizer.grant("newer", path, send());
            }
            let access = world.access("a");
            let via = access.entity("via", Action::SendVia).await.unwrap();
            let (way, destination) = access.transfer_destination("q", &via).await.unwrap();
            let (outlet, mut mail) = Line::open();
            let receiver = world.broker.receiver_id();
            let watched = way.watch(Action::Send, receiver, &outlet);
            let onward = || Command::SendVia {
                destination: Arc::clone(&destination),
                messages: vec![world.broker.inbound(Message::new("a"))],
            };
            assert!(way.call(onward()).await.is_ok());
            epoch.raise();
            let refused = condition(&way.call(onward()).await);
            assert_eq!(refused, Some(Condition::Unauthorized), "{ended}");
            detached(&mut mail, receiver).await;
            world.authorizer.grant("a", ended, Grant::nothing());
            let refused = condition(&way.call(onward()).await);
            assert_eq!(refused, Some(Condition::Unauthorized), "{ended}");
            access.renew(Principal::anonymous().with_token("newer")).await;
            assert!(way.call(onward()).await.is_ok(), "{ended}");
            // A newer token that covers only one.
            world.authorizer.grant("less", if ended == "q" { "via" } else { "q" }, send());
            access.renew(Principal::anonymous().with_token("less")).await;
            let refused = condition(&way.call(onward()).await);
            assert_eq!(refused, Some(Condition::Unauthorized), "{ended}");
            detached(&mut mail, receiver).await;
            assert!(mail.try_recv().is_err(), "told once");
            assert!(way.call(Command::Detach { receiver, end: LinkEnd::Orderly }).await.is_ok());
            access.renew(Principal::anonymous().with_token("newer")).await;
            access.renew(Principal::anonymous().with_token("less")).await;
            assert!(mail.try_recv().is_err(), "a link that is over is told nothing");
            drop(watched);
        }
    })
    .await;
}

/// SEC-15, VIA-02: the expiry of one token for both is notified once.
#[tokio::test]
async fn a_common_expiry_of_a_route_is_notified_once() {
    in_time(async {
        let world = World::new().await;
        world.broker.create_queue("via", QueueUpdate::default()).await.unwrap();
        let until = world.broker.now().plus(TimeSpan::from_seconds(30));
        let access = world.granted("a", Grant::everything().with_end(until));
        let via = access.entity("via", Action::SendVia).await.unwrap();
        let (way, _) = access.transfer_destination("q", &via).await.unwrap();
        let (outlet, mut mail) = Line::open();
        let receiver = world.broker.receiver_id();
        let _watched = way.watch(Action::Send, receiver, &outlet);
        // Later expiries are notified after all earlier ones.
        let next = Grant::everything().with_end(until.plus(TimeSpan::from_seconds(1)));
        let entity = world.granted("b", next).entity("q", Action::Send).await.unwrap();
        let (line, mut later) = Line::open();
        let of_later = world.broker.receiver_id();
        let _watched_too = entity.watch(Action::Send, of_later, &line);
        world.clock.advance(TimeSpan::from_seconds(30));
        detached(&mut mail, receiver).await;
        world.clock.advance(TimeSpan::from_seconds(1));
        detached(&mut later, of_later).await;
        assert!(mail.try_recv().is_err());
    })
    .await;
}

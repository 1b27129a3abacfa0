use std::net::SocketAddr;
use std::sync::Arc;

use super::*;
use crate::time::TimeSpan;

const ALL: ClientQuery =
    ClientQuery { transport: None, path: None, name: None, after: None, count_max: ROW_COUNT_MAX };
const NOW: Timestamp = Timestamp::from_ticks(10_000_000);

fn address(port: u16) -> SocketAddr {
    SocketAddr::from(([10, 0, 0, 4], port))
}

fn identity(clients: &Clients, path: &str, role: LinkRole) -> LinkIdentity {
    LinkIdentity {
        receiver: clients.receiver_id(),
        path: path.into(),
        role,
        mode: Some(ReceiveMode::PeekLock),
        policy: Some("worker".into()),
    }
}

/// CON-29: a receiver is found by the low half of its id. The latest one with this half is meant.
#[test]
fn receiver_is_found_by_the_low_half_of_its_id() {
    let clients = Clients::default();
    for (last, low_half, id) in [
        (9, 9, 9),
        (1 << 32, 0, 1 << 32),
        ((1 << 32) + 5, 5, (1 << 32) + 5),
        ((1 << 32) + 5, 6, 6),
        ((3 << 32) + 1, u32::MAX, (3 << 32) - 1),
    ] {
        clients.next_receiver.store(last + 1, Ordering::Relaxed);
        assert_eq!(clients.latest_receiver(low_half), ReceiverId(id), "{last}");
    }
}

/// Polls a page to its end.
fn page(clients: &Clients, query: &ClientQuery, readable: &ReadableKeys) -> ClientPage {
    crate::declaration::yielder::run_counting_yields(clients.page(query, readable)).0
}

fn ids(page: &ClientPage) -> Vec<u64> {
    page.clients.iter().map(|client| client.id.0).collect()
}

/// CON-24
#[test]
fn client_is_listed_with_its_links_until_it_ends() {
    let clients = Arc::new(Clients::default());
    let guard = clients.connect("amqp", Some(address(51_234)), NOW);
    guard.set_name("billing-7f");
    guard.set_address(Some(address(51_234)), true);
    guard.note_activity(NOW.plus(TimeSpan::from_seconds(3)));
    let link = guard.link(identity(&clients, "Orders", LinkRole::Receiver)).unwrap();
    link.gauge().set_credit(84);
    link.gauge().set_delivered(1_000);
    link.gauge().set_unsettled(16);
    link.set_session("s1");
    let listed = page(&clients, &ALL, &ReadableKeys::ALL);
    assert_eq!((listed.total, listed.next), (1, None));
    let client = &listed.clients[0];
    assert_eq!(client.transport, "amqp");
    assert_eq!(client.name.as_deref(), Some("billing-7f"));
    assert_eq!(client.peer, Some(address(51_234)));
    assert_eq!(client.policy.as_deref(), Some("worker"));
    assert!(client.is_by_proxy);
    assert_eq!(client.connected_at, NOW);
    assert_eq!(client.active_at, NOW.plus(TimeSpan::from_seconds(3)));
    assert_eq!(client.link_count, 1);
    let of_link = &client.links[0];
    assert_eq!(&*of_link.path, "Orders");
    assert_eq!(of_link.session.as_deref(), Some("s1"));
    assert_eq!((of_link.credit, of_link.delivered, of_link.unsettled), (84, 1_000, 16));
    drop(link);
    assert!(page(&clients, &ALL, &ReadableKeys::ALL).clients[0].links.is_empty());
    drop(guard);
    assert_eq!(page(&clients, &ALL, &ReadableKeys::ALL).total, 0);
}

/// CON-24
#[test]
fn name_of_a_client_is_cut_at_the_limit() {
    let clients = Arc::new(Clients::default());
    let guard = clients.connect("http", None, NOW);
    for (given, kept) in [(256, 256), (257, 256)] {
        guard.set_name(&"é".repeat(given));
        let listed = page(&clients, &ALL, &ReadableKeys::ALL);
        let name = listed.clients[0].name.clone().unwrap();
        assert_eq!(name.chars().count(), kept);
    }
    guard.set_name("");
    assert_eq!(page(&clients, &ALL, &ReadableKeys::ALL).clients[0].name, None);
}

/// CON-24, CON-25
#[test]
fn holder_is_known_after_its_link_and_its_client_have_ended() {
    let clients = Arc::new(Clients::default());
    let guard = clients.connect("amqp", Some(address(1)), NOW);
    guard.set_name("one");
    let identity = identity(&clients, "orders", LinkRole::Receiver);
    let receiver = identity.receiver;
    let link = guard.link(identity).unwrap();
    let holder = clients.holder(receiver).unwrap();
    assert_eq!(holder.transport, "amqp");
    assert_eq!(holder.name.as_deref(), Some("one"));
    assert_eq!(holder.policy.as_deref(), Some("worker"));
    assert_eq!(holder.peer, Some(address(1)));
    assert!(holder.is_connected);
    drop(link);
    assert!(clients.holder(receiver).unwrap().is_connected);
    drop(guard);
    let holder = clients.holder(receiver).unwrap();
    assert_eq!(holder.name.as_deref(), Some("one"));
    assert!(!holder.is_connected);
    assert_eq!(clients.holder(ReceiverId(9_999)), None);
}

/// CON-24, CON-25
#[test]
fn holder_without_links_is_named_once_and_remembered() {
    let clients = Arc::new(Clients::default());
    let guard = clients.connect("http", None, NOW);
    let receiver = guard.receiver();
    assert_eq!(guard.receiver(), receiver);
    guard.set_policy(Some("worker".into()));
    drop(guard);
    let holder = clients.holder(receiver).unwrap();
    assert_eq!(holder.policy.as_deref(), Some("worker"));
    assert!(!holder.is_connected);
    assert_eq!(clients.link_count.load(Ordering::Relaxed), 0);
}

/// CON-25
#[test]
fn ended_receivers_are_remembered_up_to_the_limit() {
    let clients = Arc::new(Clients::default());
    let mut receivers = Vec::new();
    for _ in 0..=ENDED_COUNT_MAX {
        let guard = clients.connect("http", None, NOW);
        receivers.push(guard.receiver());
        if receivers.len() == ENDED_COUNT_MAX {
            drop(guard);
            assert!(clients.holder(receivers[0]).is_some());
        }
    }
    assert_eq!(clients.holder(receivers[0]), None);
    assert!(clients.holder(receivers[1]).is_some());
    let known = clients.receivers.read().unwrap();
    assert_eq!((known.by_id.len(), known.ended.len()), (ENDED_COUNT_MAX, ENDED_COUNT_MAX));
}

/// CON-24
#[test]
fn ended_links_release_their_memory() {
    let clients = Arc::new(Clients::default());
    let guard = clients.connect("amqp", None, NOW);
    let link = |_| guard.link(identity(&clients, "orders", LinkRole::Receiver));
    let links: Vec<Option<LinkGuard>> = (0..20 * ENDED_COUNT_MAX).map(link).collect();
    drop(links);
    let known = clients.receivers.read().unwrap();
    assert_eq!(known.by_id.len(), ENDED_COUNT_MAX);
    assert!(known.by_id.capacity() <= 8 * ENDED_COUNT_MAX);
}

/// CON-25
#[test]
fn senders_and_browsers_hold_no_locks() {
    let clients = Arc::new(Clients::default());
    let guard = clients.connect("websocket", None, NOW);
    for role in [LinkRole::Sender, LinkRole::Browser] {
        let identity = identity(&clients, "orders", role);
        let receiver = identity.receiver;
        let link = guard.link(identity);
        assert_eq!(clients.holder(receiver), None);
        drop(link);
    }
    assert!(clients.receivers.read().unwrap().ended.is_empty());
}

/// CON-24
#[test]
fn link_beyond_the_limit_is_not_registered() {
    let clients = Arc::new(Clients::default());
    let guard = clients.connect("amqp", None, NOW);
    clients.link_count.store(LINK_COUNT_MAX - 1, Ordering::Relaxed);
    let last = guard.link(identity(&clients, "orders", LinkRole::Receiver));
    assert!(last.is_some());
    let further = identity(&clients, "orders", LinkRole::Receiver);
    let receiver = further.receiver;
    assert!(guard.link(further).is_none());
    assert_eq!(clients.holder(receiver), None);
    let holder = guard.receiver();
    assert_eq!(clients.holder(holder), None);
    drop((last, guard));
    assert_eq!(clients.link_count.load(Ordering::Relaxed), LINK_COUNT_MAX - 1);
}

/// CON-24
#[test]
fn clients_are_filtered_by_transport_entity_and_name() {
    let clients = Arc::new(Clients::default());
    let one = clients.connect("amqp", None, NOW);
    one.set_name("Billing-1");
    let _of_one = one.link(identity(&clients, "orders/$deadletterqueue", LinkRole::Receiver));
    let two = clients.connect("websocket", None, NOW);
    two.set_name("shop");
    let _of_two = two.link(identity(&clients, "Orders", LinkRole::Sender));
    let _three = clients.connect("amqp", None, NOW);
    let found = |query: ClientQuery| ids(&page(&clients, &query, &ReadableKeys::ALL));
    let all = || ALL;
    assert_eq!(found(all()), [1, 2, 3]);
    assert_eq!(found(ClientQuery { transport: Some("amqp".into()), ..all() }), [1, 3]);
    assert_eq!(found(ClientQuery { path: Some("ORDERS".into()), ..all() }), [1, 2]);
    assert_eq!(found(ClientQuery { name: Some("bILL".into()), ..all() }), [1]);
    assert_eq!(found(ClientQuery { path: Some("other".into()), ..all() }), [0; 0]);
}

/// CON-24, CON-73
#[test]
fn reader_of_an_entity_sees_only_clients_and_links_of_that_entity() {
    let clients = Arc::new(Clients::default());
    let both = clients.connect("amqp", None, NOW);
    let _links = [
        both.link(identity(&clients, "orders", LinkRole::Receiver)),
        both.link(identity(&clients, "secret", LinkRole::Sender)),
    ];
    let other = clients.connect("amqp", None, NOW);
    let _link = other.link(identity(&clients, "secret", LinkRole::Sender));
    let _none = clients.connect("amqp", None, NOW);
    let readable = ReadableKeys(Some([PathKey::fold("orders")].into()));
    let listed = page(&clients, &ALL, &readable);
    assert_eq!((ids(&listed), listed.total), (vec![1], 1));
    let shown: Vec<&str> = listed.clients[0].links.iter().map(|link| &*link.path).collect();
    assert_eq!(shown, ["orders"]);
    let of_secret = ClientQuery { path: Some("secret".into()), ..ALL };
    assert_eq!(page(&clients, &of_secret, &readable).total, 0);
}

/// CON-24
#[test]
fn pages_contain_each_client_once() {
    let clients = Arc::new(Clients::default());
    let guards: Vec<ClientGuard> = (0..7).map(|_| clients.connect("amqp", None, NOW)).collect();
    let mut query = ClientQuery { count_max: 3, ..ALL };
    let mut seen = Vec::new();
    loop {
        let listed = page(&clients, &query, &ReadableKeys::ALL);
        assert_eq!(listed.total, 7);
        seen.extend(ids(&listed));
        query.after = listed.next;
        if listed.next.is_none() {
            break;
        }
    }
    assert_eq!(seen, [1, 2, 3, 4, 5, 6, 7]);
    drop(guards);
}

/// CON-24
#[test]
fn links_of_a_page_are_bounded() {
    let clients = Arc::new(Clients::default());
    let guards: Vec<ClientGuard> = (0..8).map(|_| clients.connect("amqp", None, NOW)).collect();
    let path = "q".repeat(260);
    let links: Vec<Option<LinkGuard>> = guards
        .iter()
        .flat_map(|guard| {
            (0..1_000).map(|_| guard.link(identity(&clients, &path, LinkRole::Sender)))
        })
        .collect();
    let listed = page(&clients, &ALL, &ReadableKeys::ALL);
    assert_eq!(listed.total, 8);
    assert!(listed.next.is_some());
    let bytes: usize = listed.clients.iter().map(bytes_of_client).sum();
    assert!(bytes <= PAGE_BYTES_MAX);
    for client in &listed.clients {
        assert_eq!(client.link_count, 1_000);
        assert!(client.links.len() < 1_000);
        assert!(bytes_of_client(client) <= CLIENT_BYTES_MAX + 1_024);
    }
    drop(links);
}

/// CON-24: a client is closed once its connection listens; afterwards it is not found.
#[tokio::test]
async fn client_is_closed_by_its_number() {
    let clients = Arc::new(Clients::default());
    let guard = clients.connect("amqp", None, NOW);
    let id = page(&clients, &ALL, &ReadableKeys::ALL).clients[0].id;
    let refused = clients.close(id).unwrap_err();
    assert_eq!(refused.condition(), Condition::InvalidOperation, "nothing listens");
    let closed = guard.closed();
    assert!(!guard.is_closed());
    let absent = clients.close(ClientId(id.0 + 1)).unwrap_err();
    assert_eq!(absent.condition(), Condition::EntityNotFound);
    clients.close(id).unwrap();
    assert!(guard.is_closed());
    closed.await;
    drop(guard);
    assert_eq!(clients.close(id).unwrap_err().condition(), Condition::EntityNotFound);
}

/// A client that ends by itself is not closed.
#[tokio::test]
async fn client_that_ends_is_not_closed() {
    let clients = Arc::new(Clients::default());
    let guard = clients.connect("amqp", None, NOW);
    let mut closed = Box::pin(guard.closed());
    drop(guard);
    let ended = std::future::poll_fn(|context| {
        std::task::Poll::Ready(closed.as_mut().poll(context).is_ready())
    });
    assert!(!ended.await);
}

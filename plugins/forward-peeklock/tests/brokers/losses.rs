//! Tests that no message is lost or duplicated when connections or brokers fail.

use std::sync::atomic::Ordering;

use peeklock_core::contract::Verdict;

use crate::peer::*;
use crate::proxy::Proxy;

const COUNT: u64 = 40;

/// Cuts the connection at every 37th byte, and so within and between all frames. The first run
/// keeps the route with its connection state. The second run simulates a new broker each time,
/// which offers all messages without a stored verdict.
#[test]
fn nothing_is_lost_or_doubled_when_connections_are_cut() {
    run(async {
        for is_new_each_time in [false, true] {
            let whole = {
                let peer = Peer::start().await;
                let proxy = Proxy::start(peer.address, Vec::new()).await;
                deliver_all(&messages(COUNT), || route(proxy.address), false).await;
                peer.stop().await;
                proxy.passed.load(Ordering::Relaxed)
            };
            // The last bytes close the connection; the test does not wait for them.
            for cut_at in (1..whole.saturating_sub(200)).step_by(37) {
                let peer = Peer::start().await;
                // The second connection is cut a little later, the third is not cut.
                let proxy = Proxy::start(peer.address, vec![cut_at, cut_at + 19]).await;
                let route = || route(proxy.address);
                deliver_all(&messages(COUNT), route, is_new_each_time).await;
                assert_eq!(peer.bodies().await, numbers(COUNT), "cut at {cut_at} of {whole}");
                assert!(proxy.cuts.load(Ordering::Relaxed) >= 1, "cut at {cut_at} of {whole}");
                peer.stop().await;
            }
        }
    });
}

/// The forwarding broker stops before it stores the verdicts, and the other broker restarts.
#[test]
fn messages_offered_again_after_a_restart_are_stored_once() {
    run(async {
        let mut peer = Peer::start().await;
        for offered in [COUNT, COUNT, COUNT + 5] {
            let mut route = route(peer.address);
            let verdicts = route.forward(&messages(offered)).await;
            assert!(verdicts.iter().all(|verdict| *verdict == Verdict::Delivered), "{verdicts:?}");
            drop(route);
            peer = peer.restart().await;
        }
        assert_eq!(peer.bodies().await, numbers(COUNT + 5));
        peer.stop().await;
    });
}

/// A route continues after a restart of the other broker.
#[test]
fn a_route_finds_the_broker_again() {
    run(async {
        let mut peer = Peer::start().await;
        let mut way = route(peer.address);
        let all = messages(COUNT);
        for part in all.chunks(10) {
            let mut rest = part;
            while !rest.is_empty() {
                rest = &rest[delivered(&way.forward(rest).await)..];
            }
            peer = peer.restart().await;
        }
        assert_eq!(peer.bodies().await, numbers(COUNT));
        peer.stop().await;
    });
}

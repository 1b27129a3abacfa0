//! No message is lost or doubled, whatever is lost on the way.

use std::sync::atomic::Ordering;

use peeklock_core::contract::Verdict;

use crate::peer::*;
use crate::proxy::Proxy;

const COUNT: u64 = 40;

/// The connection is cut behind every few bytes of it, and so within and between all frames. Once the same
/// route goes on, with what it has of the connection; once the broker that forwards is new each time, and
/// offers all that it has no record of.
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
            // The last bytes are the end of the connection, which is not waited for.
            for cut_at in (1..whole.saturating_sub(200)).step_by(37) {
                let peer = Peer::start().await;
                // The next connection is cut a little later, the third is not.
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

/// The broker that forwards ends before it has recorded what was delivered, and the other is restarted.
#[test]
fn what_is_offered_again_after_a_restart_is_stored_once() {
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

/// A route goes on over a restart of the other broker.
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

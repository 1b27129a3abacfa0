//! Queues that forward to hostile brokers, which ping without end or announce a frame larger than
//! any answer, before and after they have welcomed the forwarder.

use serde_json::json;

use super::super::attacker::Attack;
use super::super::broker::Broker;
use super::super::peer::{Flood, HostilePeer, Until};
use super::super::wire::ask;
use super::PINGED_BYTES_MAX;

/// Queues that forward to each peer.
const QUEUES: usize = 5;

pub fn attack(broker: &Broker, _: usize) -> Attack {
    let mut attack = Attack::default();
    attack.takes_at_most(PINGED_BYTES_MAX);
    attack.last(std::time::Duration::from_secs(4));
    // Their messages stay, and each forwarding thread has a socket of its own.
    attack.may_leave(4 * QUEUES);
    for until in [Until::Upgrade, Until::Welcome] {
        for flood in [Flood::Pings, Flood::Frame] {
            let peer = HostilePeer::before(broker.websocket, until, flood);
            for number in 0..QUEUES {
                let name = format!("forwards-{until:?}-{flood:?}-{number}");
                let destination = format!("peeklock+ws://{}/elsewhere", peer.address);
                let queue = json!({ "forwardTo": destination }).to_string();
                let put = ask(broker.http, "PUT", &format!("/$api/v1/queues/{name}"), &queue);
                assert_eq!(put.unwrap().status, 201);
                let sent = ask(broker.http, "POST", &format!("/{name}/messages"), "hello");
                assert_eq!(sent.unwrap().status, 201);
            }
            attack.hold(peer);
        }
    }
    attack
}

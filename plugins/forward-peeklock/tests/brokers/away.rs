//! Test of an unreachable broker: an outage is not the message's fault.

use std::net::SocketAddr;

use crate::peer::*;

#[test]
fn an_unreachable_broker_costs_no_message_a_delivery() {
    run(async {
        // A port without a listener.
        let nowhere: SocketAddr = {
            let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
            listener.local_addr().unwrap()
        };
        let mut way = route(nowhere);
        for _ in 0..3 {
            assert_eq!(way.forward(&messages(2)).await, [postponed()]);
        }
    });
}

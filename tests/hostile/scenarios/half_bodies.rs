//! Bodies that are announced, partly begun, and never completed. Together they need more than the
//! room for all bodies.

use std::io::Write as _;

use super::super::attacker::{Attack, flood};
use super::super::broker::Broker;
use super::super::wire::connect;
use super::queue;

const BODY: usize = 1_000_000;

pub fn attack(broker: &Broker, weight: usize) -> Attack {
    queue(broker);
    let head = format!(
        "POST /attacked/messages HTTP/1.1\r\nHost: localhost\r\nContent-Length: {BODY}\r\n\r\n"
    );
    let mut attack = Attack::default();
    for number in 0..100 * weight.min(2) {
        let mut stream = connect(broker.http).unwrap();
        stream.write_all(head.as_bytes()).unwrap();
        if number % 2 == 0 {
            flood(&mut stream, &vec![b'x'; BODY - 1], 1);
        }
        attack.hold(stream);
    }
    attack
}

//! Settlements with a delay, and messages in the state Delayed.

use super::*;

/// Like `golden.txt`, for settlements with a delay.
const GOLDEN: &str = include_str!("../golden_retry.txt");

pub(super) fn operations() -> Vec<Operation> {
    let settle = Settle {
        link: 2,
        decision: Decision::Abandon,
        ranges: vec![Range(1, 2)],
        lock_tokens: vec![],
        properties: Some(properties()),
        reason: None,
        description: None,
        delay_milliseconds: Delay::NONE,
    };
    vec![Operation::SettleDelayed(SettleDelayed { delay_milliseconds: 30_000, settle })]
}

/// RTY-26: the binary form has a separate operation; the older operations keep their form, which
/// `golden.txt` contains.
#[test]
fn a_settlement_with_a_delay_is_written_as_the_golden_one() {
    let now = golden_of(operations(), Vec::new());
    assert_eq!(now, GOLDEN);
    assert_no_part_is_carried_out(&operations());
}

/// RTY-26: in JSON, a settlement has a delay of any sign; the entity validates it.
#[test]
fn a_json_settlement_has_a_delay_field() {
    let frame = |delay: &str| {
        format!(
            r#"{{"seen":3,"requests":[{{"id":1,"settle":{{"link":2,"decision":"abandon",
            "ranges":[[1,1]],"delayMilliseconds":{delay}}}}}]}}"#
        )
    };
    for (text, expected) in [("5000", Some(5_000)), ("-1", Some(-1)), ("null", None)] {
        let (_, requests) = read_client(Encoding::Json, &Bytes::from(frame(text)));
        let Operation::Settle(settle) = &requests[0].operation else { panic!() };
        assert_eq!(settle.delay_milliseconds.0, expected);
    }
    let read = ClientFrame::decode(Encoding::Json, &Bytes::from(frame("1.5"))).unwrap();
    assert!(read.requests[0].is_err());
}

/// RTY-12: a Delayed message has the end of its delay, in both encodings.
#[test]
fn a_delayed_message_has_the_end_of_its_delay() {
    let mut delivery = delivered();
    delivery.facts.state = MessageState::Delayed;
    delivery.facts.lock = None;
    delivery.facts.delayed_until = Some(at(30).0);
    for encoding in Encoding::ALL {
        let notice = Notice::Received(Messages { messages: vec![delivery.clone()] });
        let bytes = server_frame(encoding, 1, vec![Item { id: 1, notice }]);
        let mut frame = client_side::decode(encoding, &bytes).unwrap();
        let Some(Item { notice: Notice::Received(read), .. }) = frame.items.pop() else { panic!() };
        assert_eq!(read.messages[0].facts, delivery.facts, "{encoding:?}");
    }
}

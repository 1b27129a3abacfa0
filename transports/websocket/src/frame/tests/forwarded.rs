//! Messages that one broker forwards to another, with their count of used copies.

use super::*;

/// Like `golden.txt`, for messages with a count: with the flag "never a duplicate", and without it.
const GOLDEN: &str = include_str!("../golden_forwarded.txt");

fn requests() -> Vec<Request> {
    let forward = |copies_spent, never_duplicate| {
        let Some(Operation::Forward(mut forward)) =
            operations().into_iter().find(|one| matches!(one, Operation::Forward(_)))
        else {
            panic!()
        };
        forward.messages[0].copies_spent = copies_spent;
        forward.messages[0].never_duplicate = never_duplicate;
        Operation::Forward(forward)
    };
    let operations = [forward(9_000, true), forward(1, false)];
    (1..).zip(operations).map(|(id, operation)| Request { id, operation }).collect()
}

/// FWD-33: a message with a count carries it; without a count it has the older form, which
/// `golden.txt` contains.
#[test]
fn a_count_of_copies_is_written_as_the_golden_ones() {
    let mut now = String::new();
    for request in requests() {
        let [json, binary] = [Encoding::Json, Encoding::Binary]
            .map(|encoding| client_frame(encoding, 3, std::slice::from_ref(&request)));
        now += std::str::from_utf8(&json).unwrap();
        now += "\n";
        now += &hexadecimal(&binary);
        now += "\n";
    }
    assert_eq!(now, GOLDEN);
}

/// FWD-33
#[test]
fn a_count_of_copies_is_read_from_both_encodings() {
    let lines: Vec<&str> = GOLDEN.lines().collect();
    for (pair, copies) in lines.chunks(2).zip([9_000, 1]) {
        let frames = [
            (Encoding::Json, Bytes::from(pair[0].to_owned())),
            (Encoding::Binary, bytes_of(pair[1])),
        ];
        for (encoding, bytes) in frames {
            let (_, requests) = read_client(encoding, &bytes);
            let Operation::Forward(forward) = &requests[0].operation else { panic!() };
            assert_eq!(forward.messages[0].copies_spent, copies, "{encoding:?}");
            assert_eq!(forward.messages[0].never_duplicate, copies == 9_000, "{encoding:?}");
        }
    }
}

/// Unknown flags are refused, and so is a count of zero.
#[test]
fn another_mark_is_refused() {
    let good = GOLDEN.lines().nth(1).unwrap();
    for bad in ["0400002328", "8300002328", "0300000000"] {
        let bytes = bytes_of(&good.replace("0300002328", bad));
        let read = ClientFrame::decode(Encoding::Binary, &bytes);
        let is_refused =
            read.is_err() || read.is_ok_and(|frame| frame.requests.iter().all(Result::is_err));
        assert!(is_refused, "{bad}");
    }
}

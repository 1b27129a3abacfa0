//! Output of commands on a terminal.

use super::broker::{Broker, body};
use super::terminal::Terminal;

const ENTER_SCREEN: &str = "\u{1b}[?1049h";
const LEAVE_SCREEN: &str = "\u{1b}[?1049l";

/// Text with control sequences that would act on a terminal.
const HOSTILE: &str = "\u{1b}[2J\u{1b}]0;title\u{7}\u{9b}31m\u{202e}gpj";

fn hostile() -> Broker {
    let broker = Broker::with_queue(&["--max-delivery-count", "100"]);
    let message = serde_json::json!({"body": HOSTILE, "messageId": HOSTILE, "subject": HOSTILE});
    let ended = broker.program(&["send", "orders"]).input(message.to_string().as_bytes()).run();
    assert_eq!(ended.code, 0, "{}", ended.log);
    broker
}

#[test]
fn bodies_cannot_act_on_the_terminal() {
    let broker = hostile();
    for arguments in [
        &["peek", "orders"][..],
        &["peek", "orders", "--long"],
        &["peek", "orders", "--body-only"],
        &["peek", "orders", "-o", "json"],
        &["peek", "orders", "-o", "ndjson"],
        &["receive", "orders", "--settle", "abandon"],
        &["receive", "orders", "--settle", "abandon", "--body-only"],
    ] {
        let (code, shown) = Terminal::start(&broker, 200, arguments).end();
        assert_eq!(code, 0, "{shown}");
        for acts in ["\u{1b}[2J", "\u{1b}]0;", "\u{9b}", "\u{202e}", "\u{7}"] {
            assert!(!shown.contains(acts), "{arguments:?}: {acts:?} in {shown:?}");
        }
        assert!(shown.contains("gpj"), "{arguments:?}: {shown:?}");
    }
    let (_, shown) = Terminal::start(&broker, 200, &["peek", "orders", "--raw"]).end();
    assert!(shown.contains(HOSTILE), "{shown:?}");
}

#[test]
fn colours_appear_on_terminals_or_on_request() {
    let broker = Broker::with_queue(&[]);
    let (_, shown) = Terminal::start(&broker, 100, &["queue", "list"]).end();
    assert!(shown.contains("\u{1b}[1m"), "{shown:?}");
    let plain = [("NO_COLOR", "1")];
    let (_, shown) = Terminal::start_with(&broker, 100, &["queue", "list"], &plain).end();
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
    assert!(!broker.ok(&["queue", "list"]).contains('\u{1b}'));
}

#[test]
fn a_table_is_as_wide_as_the_terminal() {
    let broker = Broker::with_queue(&[]);
    broker.ok(&["send", "orders", &"body ".repeat(20), "--id", &"i".repeat(40)]);
    let plain = [("NO_COLOR", "1")];
    let (_, shown) = Terminal::start_with(&broker, 80, &["peek", "orders"], &plain).end();
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 3, "{shown}");
    assert!(lines.iter().all(|line| line.chars().count() <= 80), "{shown}");
    assert!(lines[1].contains('…') && lines[2].contains("shortened"), "{shown}");
}

#[test]
fn deleting_asks_and_no_keeps_the_queue() {
    let broker = Broker::with_queue(&[]);
    broker.send("orders", &["a", "b"]);
    let delete = ["queue", "delete", "orders"];
    for (answer, code) in [("n\n", 1), ("\n", 1), ("y\n", 0)] {
        let mut terminal = Terminal::start(&broker, 80, &delete);
        terminal.until("Delete queue `orders` with everything in it: 2 messages");
        terminal.until("[y/N] ");
        assert_eq!(broker.peek("orders").len(), 2);
        terminal.press(answer);
        let (ended, shown) = terminal.end();
        assert_eq!(ended, code, "{shown}");
        assert_eq!(shown.contains("nothing was changed"), code == 1, "{shown}");
    }
    broker.ends(4, &["queue", "show", "orders"]);
}

#[test]
fn ctrl_c_at_a_question_changes_nothing() {
    let broker = Broker::with_queue(&[]);
    broker.send("orders", &["a"]);
    let mut terminal = Terminal::start(&broker, 80, &["queue", "purge", "orders"]);
    terminal.until("Delete the messages of `orders` (now 1)? [y/N] ");
    terminal.press("\u{3}");
    assert_eq!(terminal.end().0, 130);
    assert_eq!(broker.bodies("orders"), [body("a", 0)]);
}

#[test]
fn ctrl_c_ends_following_in_order() {
    let broker = Broker::with_queue(&[]);
    broker.send("orders", &["two coffees"]);
    let mut terminal = Terminal::start(&broker, 80, &["receive", "orders", "--follow"]);
    terminal.until("two coffees");
    terminal.press("\u{3}");
    assert_eq!(terminal.end().0, 0);
    assert!(broker.peek("orders").is_empty());
}

#[test]
fn lines_typed_are_sent_and_ctrl_d_ends() {
    let broker = Broker::with_queue(&[]);
    let mut terminal = Terminal::start(&broker, 80, &["send", "orders", "--lines"]);
    terminal.until("end with Ctrl-D");
    terminal.press("one\n");
    terminal.until("one");
    terminal.press("two\n");
    terminal.until("two");
    terminal.press("\u{4}");
    terminal.until("sent 2 messages to orders");
    let (code, shown) = terminal.end();
    assert_eq!(code, 0);
    assert!(!shown.contains("sending"), "nothing is drawn over what is typed: {shown:?}");
    assert_eq!(broker.bodies("orders"), [body("one", 0), body("two", 0)]);
}

#[test]
fn long_work_shows_a_bar_until_its_end() {
    let broker = Broker::with_queue(&[]);
    let send = ["send", "orders", "x", "--repeat", "2000"];
    let mut terminal = Terminal::start(&broker, 100, &send);
    terminal.until("sending");
    terminal.until("sent 2000 messages");
    assert_eq!(terminal.end().0, 0);
    let mut terminal = Terminal::start(&broker, 100, &["queue", "purge", "orders", "--yes"]);
    terminal.until("deleting");
    terminal.until("deleted 2000 messages of orders");
    assert_eq!(terminal.end().0, 0);
    let ended = broker.program(&send).run();
    assert_eq!(ended.log, "");
}

#[test]
fn top_draws_sorts_and_restores_the_screen() {
    let broker = Broker::with_queue(&[]);
    broker.send("orders", &["a", "b"]);
    for way_out in ["q", "\u{1b}", "\u{3}", "-TERM", "-INT"] {
        let mut terminal = Terminal::start(&broker, 120, &["top", "--interval", "100ms"]);
        terminal.until(ENTER_SCREEN);
        terminal.until("1 queues, 2 active, 0 dead-lettered  by active");
        terminal.until("NAME");
        terminal.until("orders");
        terminal.press("s");
        terminal.until("by dead");
        terminal.press("r");
        terminal.until("by dead, turned");
        if way_out.starts_with('-') {
            terminal.signal(way_out);
        } else {
            terminal.press(way_out);
        }
        let (code, shown) = terminal.end();
        assert_eq!(code, 0, "{way_out:?}");
        let (_, after) = shown.rsplit_once(LEAVE_SCREEN).expect("the screen is given back");
        assert!(shown.contains("\u{1b}[?25h") && !after.contains("NAME"), "{shown:?}");
    }
}

#[test]
fn top_shows_changes_and_a_lost_broker() {
    let mut broker = Broker::with_queue(&[]);
    let mut terminal = Terminal::start(&broker, 160, &["top", "--interval", "100ms"]);
    terminal.until("1 queues, 0 active");
    broker.send("orders", &["a"]);
    terminal.until("1 queues, 1 active");
    broker.kill();
    terminal.until("connection lost");
    terminal.press("q");
    let (code, shown) = terminal.end();
    assert_eq!(code, 0);
    assert!(shown.contains(LEAVE_SCREEN), "{shown:?}");
}

/// The result is shown in colour and in words.
#[test]
fn rule_test_is_coloured_on_a_terminal_unless_disabled() {
    let broker = Broker::start();
    let arguments = ["rule", "test", "--sql", "a = 1 AND b = 2", "--property", "a:i32=1"];
    let (code, shown) = Terminal::start(&broker, 80, &arguments).end();
    assert_eq!(code, 6);
    assert!(shown.contains("\u{1b}[33mdoes not select it\u{1b}[0m"), "{shown:?}");
    assert!(shown.contains("\u{1b}[32mtrue   \u{1b}[0m  a = 1"), "{shown:?}");
    assert!(shown.contains("\u{1b}[33munknown\u{1b}[0m  b = 2"), "{shown:?}");
    let plain = [("NO_COLOR", "1")];
    let (_, shown) = Terminal::start_with(&broker, 80, &arguments, &plain).end();
    assert!(!shown.contains('\u{1b}'), "{shown:?}");
}

/// A table of rules fits the terminal; `rule show` shows a cut filter whole.
#[test]
fn a_long_filter_is_cut_to_the_width_of_the_terminal() {
    let broker = Broker::start();
    broker.ok(&["topic", "create", "orders"]);
    let long = format!("region IN ('{}')", "eu".repeat(100));
    broker.ok(&["subscription", "create", "orders", "eu", "--sql", &long]);
    let (code, shown) = Terminal::start(&broker, 60, &["rule", "list", "orders", "eu"]).end();
    assert_eq!(code, 0);
    assert!(shown.contains('…') && shown.contains("$Default"), "{shown:?}");
    let whole = broker.ok(&["rule", "show", "orders", "eu", "$Default"]);
    assert!(whole.contains(&long), "{whole}");
}

//! Help texts and shell completions of the program.

use super::program::Program;

fn commands() -> Vec<Vec<&'static str>> {
    [
        "queue create",
        "queue show",
        "queue list",
        "queue update",
        "queue delete",
        "queue purge",
        "topic create",
        "topic show",
        "topic list",
        "topic update",
        "topic delete",
        "subscription create",
        "subscription show",
        "subscription list",
        "subscription update",
        "subscription delete",
        "subscription purge",
        "rule add",
        "rule list",
        "rule show",
        "rule update",
        "rule delete",
        "rule test",
        "apply",
        "export",
        "forward",
        "send",
        "receive",
        "peek",
        "dlq list",
        "dlq show",
        "dlq summary",
        "dlq groups",
        "search",
        "dlq purge",
        "dlq resubmit",
        "schedule cancel",
        "session list",
        "session state",
        "session set-state",
        "top",
        "policy create",
        "policy show",
        "policy list",
        "policy keys",
        "policy regenerate",
        "policy delete",
        "connection-string",
    ]
    .iter()
    .map(|command| command.split(' ').collect())
    .collect()
}

#[test]
fn every_command_has_examples_and_exit_codes() {
    for command in commands() {
        let ended = Program::new(&[&command[..], &["--help"]].concat()).run();
        assert_eq!(ended.code, 0);
        for expected in ["Examples:\n  peeklock ", "Exit codes:\n  0    done", "--url <URL>"] {
            assert!(ended.out.contains(expected), "{command:?}: {expected}\n{}", ended.out);
        }
    }
    for command in [
        "context",
        "completions",
        "queue",
        "topic",
        "subscription",
        "rule",
        "dlq",
        "schedule",
        "session",
        "policy",
    ] {
        let ended = Program::new(&[command, "--help"]).run();
        assert!(ended.out.contains("Examples:\n  peeklock "), "{}", ended.out);
    }
    let ended = Program::new(&["--help"]).run();
    assert!(ended.out.contains("  3    damaged data"), "{}", ended.out);
    assert!(ended.out.contains("peeklock queue create orders"), "{}", ended.out);
}

#[test]
fn a_typing_error_is_answered_with_a_suggestion() {
    for (arguments, expected) in [
        (&["recieve", "orders"][..], "receive"),
        (&["queue", "lst"], "list"),
        (&["send", "orders", "x", "--subjct", "s"], "--subject"),
        (&["receive", "orders", "--settle", "compete"], "complete"),
    ] {
        let ended = Program::new(arguments).run();
        assert_eq!(ended.code, 2);
        assert!(ended.log.contains(expected), "{arguments:?}: {}", ended.log);
    }
}

#[test]
fn completions_are_written_for_shells() {
    for shell in ["bash", "zsh", "fish", "elvish", "powershell"] {
        let ended = Program::new(&["completions", shell]).run();
        assert_eq!(ended.code, 0);
        assert!(ended.out.contains("resubmit"), "{shell}");
    }
    let script = Program::new(&["completions", "bash"]).run().out;
    let complete = format!(
        "{script}\nCOMP_WORDS=(peeklock queue cr); COMP_CWORD=2; _peeklock peeklock cr queue\n\
         echo \"${{COMPREPLY[@]}}\"\n"
    );
    // Written to a file, because it is too long for an argument.
    let path = concat!(env!("CARGO_TARGET_TMPDIR"), "/completions.bash");
    std::fs::write(path, complete).unwrap();
    let ended = std::process::Command::new("bash").arg(path).output().unwrap();
    assert_eq!(String::from_utf8_lossy(&ended.stdout), "create\n", "{ended:?}");
}

/// Paragraphs are wrapped once, at the available width: no line is broken by hand.
#[test]
fn paragraphs_of_help_are_wrapped_once() {
    for command in commands() {
        let ended = Program::new(&[&command[..], &["--help"]].concat()).run();
        let lines: Vec<&str> = ended.out.lines().collect();
        for pair in lines.windows(2) {
            let is_paragraph = |line: &str| line.starts_with(|c: char| !c.is_whitespace());
            let is_wrapped = is_paragraph(pair[0]) && is_paragraph(pair[1]);
            let next_word = pair[1].split(' ').next().unwrap_or_default().chars().count();
            let is_full = pair[0].chars().count() + 1 + next_word > 100;
            assert!(!is_wrapped || is_full, "{command:?}: {}\n{}", pair[0], pair[1]);
        }
    }
}

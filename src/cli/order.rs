//! Allows options of the connection and the output format before the command. `cli.rs` calls it
//! before clap parses the arguments.

use std::ffi::OsString;

use clap::Command;

/// Options of [`super::connect::Common`]; each has a value.
const BEFORE: [&str; 9] = [
    "--url",
    "--context",
    "--connection-string",
    "--data-dir",
    "--ca",
    "--certificate",
    "--certificate-key",
    "--output",
    "-o",
];

/// Moves such options after the command. The command itself refuses options that it does not have.
pub fn in_order(arguments: impl IntoIterator<Item = OsString>, program: &Command) -> Vec<OsString> {
    let mut arguments = arguments.into_iter().collect::<Vec<_>>().into_iter().peekable();
    let (mut command, mut options) = (Vec::new(), Vec::new());
    command.extend(arguments.next());
    let mut at = program;
    while let Some(next) = arguments.peek().and_then(|next| next.to_str()) {
        if let Some(below) = at.find_subcommand(next) {
            at = below;
            command.extend(arguments.next());
        } else if BEFORE.contains(&next) {
            options.extend(arguments.next());
            options.extend(arguments.next());
        } else if next.split_once('=').is_some_and(|(name, _)| BEFORE.contains(&name)) {
            options.extend(arguments.next());
        } else {
            break;
        }
    }
    command.extend(options);
    command.extend(arguments);
    command
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory as _;

    use super::super::CommandLine;
    use super::*;

    fn check(given: &str, expected: &str) {
        let given = given.split(' ').map(OsString::from);
        let ordered = in_order(given, &CommandLine::command());
        let ordered: Vec<_> = ordered.iter().map(|word| word.to_str().unwrap()).collect();
        assert_eq!(ordered.join(" "), expected);
    }

    #[test]
    fn options_of_the_connection_may_stand_before_the_command() {
        check("peeklock --url ws://a queue list", "peeklock queue list --url ws://a");
        check("peeklock queue --url ws://a list", "peeklock queue list --url ws://a");
        check("peeklock --url=ws://a -o json top", "peeklock top --url=ws://a -o json");
        check(
            "peeklock --context eu send orders -- --url",
            "peeklock send --context eu orders -- --url",
        );
        check("peeklock --data-dir d serve --http a", "peeklock serve --data-dir d --http a");
    }

    #[test]
    fn everything_else_stays_where_it_is() {
        for line in [
            "peeklock",
            "peeklock --data-dir d --ephemeral",
            "peeklock queue list --url ws://a",
            "peeklock send queue list",
            "peeklock --url",
            "peeklock -v queue list --url ws://a",
        ] {
            check(line, line);
        }
    }
}

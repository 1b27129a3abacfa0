//! The reference of the command line lists exactly the commands and options of the program.

use std::collections::{BTreeMap, BTreeSet};

use crate::{peeklock, run};

type Options = BTreeSet<String>;

/// The option at the start of a word, such as `--retry-delay`.
fn option(word: &str) -> Option<String> {
    let name = word.strip_prefix("--")?;
    let end = |c: char| !c.is_ascii_lowercase() && c != '-';
    let name = name.split(end).next().filter(|name| name.starts_with(|c: char| c != '-'))?;
    Some(format!("--{name}"))
}

/// Every option in a text, also within quotes.
fn mentioned(text: &str) -> Options {
    text.split(|c: char| !c.is_ascii_alphanumeric() && c != '-').filter_map(option).collect()
}

/// The options that a help text lists, without the options that all commands have.
fn options(help: &str) -> Options {
    let lists = help.split("\nExamples:").next().unwrap_or_default();
    // `      --follow`, or `  -f, --follow`; descriptions are indented further.
    let lines = lists.lines().filter_map(|line| {
        let short = || line.strip_prefix("  -").and_then(|rest| rest.get(3..));
        option(line.strip_prefix("      ").or_else(short)?)
    });
    lines.filter(|name| name != "--help" && name != "--version").collect()
}

/// The commands that a help text lists.
fn commands(help: &str) -> Vec<&str> {
    let Some((_, rest)) = help.split_once("\nCommands:\n") else { return Vec::new() };
    let list = rest.split("\n\n").next().unwrap_or_default();
    let names = list.lines().filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|name| !name.is_empty() && *name != "help").collect()
}

/// The help of the program and of each command, by the words of the command.
fn helps() -> BTreeMap<String, String> {
    let mut found = BTreeMap::new();
    let mut open = vec![String::new()];
    while let Some(command) = open.pop() {
        let mut arguments: Vec<&str> = command.split_whitespace().collect();
        arguments.push("--help");
        let (code, help, _) = run(peeklock("reference", "", &arguments));
        assert_eq!(code, 0, "{command}");
        open.extend(commands(&help).iter().map(|name| format!("{command} {name}").trim().into()));
        found.insert(command, help);
    }
    found
}

/// The list of a page: a command or a group of options on one line, and its options and groups on
/// indented lines below.
fn listed(block: &str) -> BTreeMap<String, Options> {
    let mut found = BTreeMap::new();
    let mut name = String::new();
    for line in block.lines().filter(|line| !line.is_empty()) {
        if !line.starts_with(' ') {
            let is_name = |word: &&str| line.starts_with('[') || !word.starts_with(['<', '[']);
            name = line.split(' ').take_while(is_name).collect::<Vec<_>>().join(" ");
            assert_eq!(found.insert(name.clone(), Options::new()), None, "{name} is listed twice");
            continue;
        }
        for word in line.split_whitespace() {
            let options = match found.get(word) {
                Some(group) => group.clone(),
                None => option(word).into_iter().collect(),
            };
            let is_value = word.starts_with('<');
            assert!(is_value || !options.is_empty(), "{name}: {word} is not an option or a group");
            found.entry(name.clone()).or_default().extend(options);
        }
    }
    found.retain(|name, _| !name.starts_with('['));
    found
}

#[test]
fn command_line_page_lists_every_command_with_its_options() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/reference/command-line.md");
    let page = std::fs::read_to_string(page).unwrap();
    let (_, section) = page.split_once("\n## All commands and options\n").unwrap();
    let listed = listed(section.split("```").nth(1).unwrap().trim_start_matches("text"));

    let helps = helps();
    let expected: BTreeMap<&str, Options> = helps
        .iter()
        // Some commands, such as `locks`, have commands below them.
        .filter(|(command, help)| {
            let does_nothing = command.is_empty() || options(help).is_empty();
            commands(help).is_empty() || !does_nothing
        })
        .map(|(command, help)| (command.as_str(), options(help)))
        .collect();
    assert!(expected.len() > 60, "help is written in another way: {expected:#?}");
    let names: Vec<&str> = listed.keys().map(String::as_str).collect();
    assert_eq!(names, expected.keys().copied().collect::<Vec<_>>());
    for (command, options) in expected {
        assert_eq!(listed.get(command), Some(&options), "options of `{command}`");
    }

    let known: Options = helps.values().flat_map(|help| mentioned(help)).collect();
    let unknown: Options = mentioned(&page).difference(&known).cloned().collect();
    assert_eq!(unknown, Options::new(), "options that no command has");
}

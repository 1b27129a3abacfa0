//! Programs of pages that are examples of the repository.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::machine::empty_folder;
use crate::markdown::Block;
use crate::pattern::{fits, lines};
use crate::word;

/// Compares the parts of each example with its file, and the output of the example with each `console` after a
/// `cargo run`.
pub fn check(page: &str, blocks: &[Block]) {
    let mut shown: BTreeMap<&str, String> = BTreeMap::new();
    let mut folders: BTreeMap<&str, PathBuf> = BTreeMap::new();
    let mut current = None;
    let mut is_run = false;
    for block in blocks {
        if let Some(example) = word(block, "example") {
            shown.entry(example).or_default().push_str(&block.text);
            current = Some(example);
        } else if block.language() == "sh" {
            is_run = block.text.starts_with("cargo run");
        } else if block.language() == "console" && std::mem::take(&mut is_run) {
            let example = current.unwrap_or_else(|| panic!("{page}: runs no example"));
            let folder = folders
                .entry(example)
                .or_insert_with(|| empty_folder(&format!("{page}-{example}")));
            let printed = run(example, folder);
            assert!(
                fits(&lines(&block.text), &lines(&printed)),
                "{page}:{}: {example} printed\n{printed}",
                block.line
            );
        }
    }
    for (example, shown) in shown {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("examples/{example}.rs"));
        let file = std::fs::read_to_string(path).unwrap();
        let is_end = without_spaces(&file).ends_with(&without_spaces(&shown));
        assert!(is_end, "{page} and examples/{example}.rs differ");
    }
}

/// Output of an example; `./test` and `cargo build --examples` build it.
fn run(example: &str, folder: &Path) -> String {
    let program = Path::new(env!("CARGO_BIN_EXE_peeklock")).parent().unwrap();
    let program = program.join("examples").join(example);
    let ended = Command::new(&program).current_dir(folder).output();
    let ended = ended.unwrap_or_else(|error| panic!("{}: {error}", program.display()));
    let printed = String::from_utf8_lossy(&ended.stdout).into_owned();
    assert!(ended.status.success(), "{example}: {printed}");
    printed
}

/// Pages and files break lines in different places.
fn without_spaces(text: &str) -> String {
    text.split_whitespace().collect()
}

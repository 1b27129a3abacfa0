//! Number of crates that a program with the library must build.

use std::collections::BTreeSet;
use std::process::Command;

use super::root;

/// Maximum of third-party crates that a program has with only `peeklock = "0.2"`.
const CRATES_MAX: usize = 75;

/// The library is lean by default: an embedding program builds few third-party crates, and
/// docs/reference/performance.md states their number.
#[test]
fn the_library_has_few_crates_below_it() {
    let mut tree = Command::new(env!("CARGO"));
    tree.args(["tree", "--offline", "--locked", "--package", "peeklock", "--edges", "normal"]);
    // Built together with all other packages, it would have their features too.
    tree.env_remove("CARGO_RESOLVER_FEATURE_UNIFICATION");
    let answer = tree.args(["--prefix", "none"]).current_dir(root()).output().unwrap();
    let said = String::from_utf8_lossy(&answer.stderr);
    assert!(answer.status.success(), "{said}");
    let tree = String::from_utf8(answer.stdout).unwrap();
    // A version and a source follow each name. Repeated crates have a mark at the end.
    let crates: BTreeSet<&str> = tree
        .lines()
        .map(|line| line.trim_end_matches(" (*)"))
        .filter(|line| !line.is_empty() && !line.starts_with("peeklock"))
        .collect();
    assert!(crates.len() > 20, "{crates:?}");
    let all = crates.iter().copied().collect::<Vec<_>>().join("\n");
    assert!(crates.len() <= CRATES_MAX, "{} crates:\n{all}", crates.len());
    let page = super::read("docs/reference/performance.md");
    let figure = format!("| crates besides our own | {} | {CRATES_MAX} |", crates.len());
    assert!(page.contains(&figure), "docs/reference/performance.md does not say `{figure}`");
}

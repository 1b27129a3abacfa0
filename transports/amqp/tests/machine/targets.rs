//! The targets of `cargo fuzz`, which needs a compiler and a crate that tests do not have. Here
//! they are built, and run once over their corpus. `fuzz/` is a package of its own and not part of
//! the published crate. So `tests/targets` has links to its files, which the package replaces by
//! copies.

use std::path::Path;

/// The macro of the crate `libfuzzer_sys`; main.rs lends its own crate that name.
macro_rules! fuzz_target {
    (|$bytes:ident: &[u8]| $body:block) => {
        pub(super) fn take($bytes: &[u8]) $body
    };
}
pub(crate) use fuzz_target;

/// Declares the files of the targets as modules.
macro_rules! targets {
    ($($name:ident $path:literal)*) => {
        $(
            #[path = $path]
            #[allow(unused_attributes, reason = "they are programs elsewhere")]
            mod $name;
        )*

        const TARGETS: &[(&str, fn(&[u8]))] = &[$((stringify!($name), $name::take)),*];
    };
}

targets! {
    connection "../targets/connection.rs"
    frames "../targets/frames.rs"
    login "../targets/login.rs"
    requests "../targets/requests.rs"
    sections "../targets/sections.rs"
}

fn names(folder: &str) -> Vec<String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder);
    let paths = folder.read_dir().unwrap().map(|entry| entry.unwrap().path());
    let paths = paths.filter(|path| path.extension().is_none_or(|is| is != "txt"));
    let mut names: Vec<_> =
        paths.map(|path| path.file_stem().unwrap().to_str().unwrap().to_owned()).collect();
    names.sort();
    names
}

#[test]
fn each_target_is_built_and_has_a_corpus() {
    let built: Vec<_> = TARGETS.iter().map(|(name, _)| *name).collect();
    assert_eq!(names("tests/targets"), built);
    assert_eq!(names("tests/corpus"), built);
    let manifest = include_str!("../targets/manifest.txt");
    let programs: Vec<_> =
        manifest.lines().filter_map(|line| line.strip_prefix("name = \"")).collect();
    let mut programs: Vec<_> =
        programs.iter().map(|name| name.trim_end_matches('"')).skip(1).collect();
    programs.sort_unstable();
    assert_eq!(programs, built);
}

#[test]
fn the_targets_take_their_corpus() {
    for (name, take) in TARGETS {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/corpus").join(name);
        for file in folder.read_dir().unwrap() {
            take(&std::fs::read(file.unwrap().path()).unwrap());
        }
    }
}

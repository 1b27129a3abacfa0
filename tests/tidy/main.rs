//! Rules for the tree that a compiler does not check.

#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod circles;
mod documents;
mod doors;
mod entities;
mod floors;
mod lean;
mod packages;
mod prose;
mod reference;
mod requirements;
mod site;
mod source;

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use peeklock_core::change::{DeadLetterCause, Removal};
use peeklock_core::telemetry::{DEAD_LETTERED, REMOVED};
use source::Source;

fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

fn read(path: impl AsRef<Path>) -> String {
    let path = root().join(path);
    fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The path relative to the root.
fn place(path: &Path) -> String {
    path.strip_prefix(root()).unwrap_or(path).display().to_string()
}

/// All files below a folder, without build output.
fn files(folder: impl AsRef<Path>, extension: &str) -> Vec<PathBuf> {
    below(&root().join(folder))
        .into_iter()
        .filter(|path| path.extension().is_some_and(|is| is == extension))
        .collect()
}

/// Every file and folder below a folder, without build output and installed packages.
fn below(folder: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(folder) = folders.pop() {
        let Ok(entries) = fs::read_dir(&folder) else { continue };
        for entry in entries.flatten() {
            let name = entry.file_name();
            let name = name.to_string_lossy();
            if name == "target" || name == "node_modules" || name == "venv" || name.starts_with('.')
            {
                continue;
            }
            let path = entry.path();
            if path.is_dir() {
                folders.push(path.clone());
            }
            found.push(path);
        }
    }
    found.sort();
    found
}

/// Every file that contains only tests: below a folder `tests`, or declared as a test module.
static TEST_FILES: LazyLock<BTreeSet<PathBuf>> = LazyLock::new(|| {
    let (mut declared, all) = (Vec::new(), files(".", "rs"));
    for path in &all {
        declared.extend(Source::of(path, &read(path)).test_files);
    }
    let is_test = |path: &&PathBuf| {
        Path::new(&place(path)).components().any(|part| part.as_os_str() == "tests")
            || declared.iter().any(|module| path.starts_with(module))
    };
    all.iter().filter(is_test).cloned().collect()
});

/// The product code of a file; empty for a file of tests.
fn code(path: &Path) -> String {
    if TEST_FILES.contains(path) {
        return String::new();
    }
    Source::of(path, &read(path)).code
}

/// The code of every folder of this name below another.
fn code_of(name: &str, folder: &str) -> Vec<(String, String)> {
    let folders = below(&root().join(folder)).into_iter().filter(|path| path.is_dir());
    let named = folders.filter(|path| path.file_name().is_some_and(|is| is == name));
    let sources = named.flat_map(|folder| files(folder, "rs"));
    sources
        .filter(|path| !TEST_FILES.contains(path))
        .map(|path| (place(&path), code(&path)))
        .collect()
}

#[test]
fn metric_names_stand_in_telemetry_only() {
    let mut named = 0;
    for path in files(".", "rs") {
        let place = place(&path);
        let code = code(&path);
        for call in ["counter!(\"", "gauge!(\"", "histogram!(\""] {
            named += code.matches(call).count();
            let allowed = ["telemetry", "metrics-prometheus", "benches"];
            let allowed = allowed.iter().any(|word| place.contains(word));
            assert!(allowed || !code.contains(call), "{place} names a metric");
        }
    }
    assert!(named == 0 || named > 10, "metrics are named in another way, which this does not see");
}

/// docs/reference/metrics.md lists exactly the metrics of the broker, with their kinds, reasons and causes.
#[test]
fn the_metrics_are_documented() {
    let names = |text: &str, before: char| -> BTreeSet<String> {
        let parts = text.split(before).filter(|part| part.starts_with("peeklock_"));
        let name = |part: &str| {
            part.split(|c: char| !c.is_ascii_lowercase() && c != '_').next().map(str::to_owned)
        };
        parts.filter_map(name).collect()
    };
    let sources = ["broker-core/src/telemetry.rs", "plugins/metrics-prometheus/src/gauges.rs"];
    let there: BTreeSet<String> = sources.iter().flat_map(|path| names(&read(path), '"')).collect();
    let page = read("docs/reference/metrics.md");
    let rows: String = page.lines().filter(|line| line.starts_with("| `peeklock_")).collect();
    assert_eq!(names(&rows, '`'), there);
    // Only histograms are exposed as buckets and described as histograms. A metric that is no
    // counter either is a gauge.
    let telemetry = read("broker-core/src/telemetry.rs");
    let histograms: Vec<&str> = telemetry
        .split("describe_histogram!(")
        .skip(1)
        .filter_map(|call| call.split(',').next())
        .collect();
    assert!(!histograms.is_empty());
    let named = |constant: &str| {
        let place = telemetry.split(&format!("const {constant}: &str = \"")).nth(1);
        place.and_then(|rest| rest.split('"').next()).unwrap()
    };
    let histograms: Vec<&str> = histograms.into_iter().map(named).collect();
    for row in page.lines().filter(|line| line.starts_with("| `peeklock_")) {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let name = cells[1].trim_matches('`');
        let kind = match name {
            _ if name.ends_with("_total") => "counter",
            _ if histograms.contains(&name) => "histogram",
            _ => "gauge",
        };
        assert_eq!(cells[2], kind, "the kind of {name}");
        let labels = match name {
            REMOVED => format!("`reason`: {}", Removal::NAMES.join(", ")),
            DEAD_LETTERED => format!("`cause`: {}", DeadLetterCause::NAMES.join(", ")),
            _ => continue,
        };
        assert_eq!(cells[3], labels, "the labels of {name}");
    }
}

//! Packages: each can be published and contains every file that it includes.

use std::path::{Component, Path, PathBuf};

use crate::{below, files, place, read, root};

/// Each published crate has its metadata and the texts of its licences.
#[test]
fn each_crate_can_be_published() {
    let manifests = below(root()).into_iter().filter(|path| path.ends_with("Cargo.toml"));
    let mut published = 0;
    for manifest in manifests {
        let text = read(&manifest);
        let is_published = text.contains("version.workspace") && !text.contains("publish = false");
        if !is_published {
            continue;
        }
        published += 1;
        for key in ["readme", "keywords", "categories", "license", "repository"] {
            assert!(
                text.contains(&format!("\n{key}.workspace = true")),
                "{}: {key}",
                place(&manifest)
            );
        }
        assert!(text.contains("\ndescription = \""), "{}", place(&manifest));
        // A test dependency with a version must be published before; without one it is left out.
        let tests = text.split("[dev-dependencies]").nth(1).unwrap_or_default();
        let tests = tests.split("\n[").next().unwrap_or_default();
        for line in tests.lines().filter(|line| line.starts_with("peeklock")) {
            assert!(line.contains("{ path = "), "{}: {line}", place(&manifest));
        }
        assert!(text.contains("[package.metadata.docs.rs]"), "{}", place(&manifest));
        for licence in ["LICENSE-APACHE", "LICENSE-MIT"] {
            let copy = manifest.with_file_name(licence);
            assert_eq!(read(copy), read(licence), "{}", place(&manifest));
        }
    }
    assert!(published > 20, "{published}");
}

/// The examples of all crates below the library import `peeklock`, as its users do. A hidden line
/// defines it from the crates that an example needs. The program and the crate for forwarder
/// authors are imported by their own names.
#[test]
fn examples_import_the_library() {
    let mut found = 0;
    for path in files(".", "rs") {
        for line in read(&path).lines().map(str::trim_start) {
            let Some(line) = ["/// use peeklock", "//! use peeklock"]
                .iter()
                .find_map(|begin| line.strip_prefix(begin))
            else {
                continue;
            };
            found += 1;
            let is_known =
                ["::", "_server::", "_reach::"].iter().any(|name| line.starts_with(name));
            assert!(is_known, "{}: use peeklock{line}", place(&path));
        }
    }
    assert!(found > 100, "{found}");
}

/// Every file that a crate includes or uses as a module by path is in its package, so that its
/// tests compile after publication. A file of another package, or of one below it, is included
/// through a link, which becomes a copy in the package.
#[test]
fn no_crate_includes_a_file_of_another() {
    let mut included = 0;
    for path in files(".", "rs") {
        let (own, text) = (package_of(&path), read(&path));
        let mut names = Vec::new();
        for include in ["include_str!(\"", "include_bytes!(\"", "include!(\"", "#[path = \""] {
            let parts = text.split(include).skip(1);
            names.extend(parts.filter_map(|part| Some(part.split_once('"')?.0)));
        }
        if text.contains(concat!("#[path", " = $")) {
            // The caller of the macro passes the file name.
            names.extend(text.split('"').filter(|name| name.ends_with(".rs")));
        }
        for name in names {
            let mut found = path.parent().unwrap().to_owned();
            for step in Path::new(name).components() {
                match step {
                    Component::ParentDir => assert!(found.pop()),
                    step => found.push(step),
                }
            }
            let from = place(&path);
            assert!(found.is_file(), "{from} includes {name}, which is not there");
            assert_eq!(package_of(&found), own, "{from} includes {name}, of another package");
            let excluded = excluded_from(own);
            let is_packed = |path: &Path| !excluded.iter().any(|one| path.starts_with(one));
            assert!(
                is_packed(&found) || !is_packed(&path),
                "{from} includes {name}, which is not packed"
            );
            included += 1;
        }
    }
    assert!(included > 60, "{included}");
}

/// The folder of the package with a file: the nearest one above it.
fn package_of(path: &Path) -> &Path {
    path.ancestors().skip(1).find(|folder| folder.join("Cargo.toml").is_file()).unwrap()
}

/// Paths that the manifest of a package excludes.
fn excluded_from(package: &Path) -> Vec<PathBuf> {
    let manifest = read(package.join("Cargo.toml"));
    let own =
        manifest.split("\n[").find(|part| part.trim_start_matches('[').starts_with("package]"));
    let Some((_, list)) = own.and_then(|own| own.split_once("\nexclude = [")) else {
        return Vec::new();
    };
    let list = list.split_once(']').unwrap().0;
    let names = list.split('"').skip(1).step_by(2);
    names.map(|name| package.join(name.trim_start_matches('/'))).collect()
}

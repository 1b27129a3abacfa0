//! Circles of imports: files of a crate that depend on each other.
//!
//! A node is the file of a module. An edge is a name that a file takes from another one, by `use` or by a path; a
//! re-export leads to the file that defines the name. Re-exports themselves, names that a file takes from its own
//! descendants, and modules of tests do not count. A circle is a set of files each of which reaches all others.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;

use crate::source::{Texts, without_comments};
use crate::{TEST_FILES, code, files, read, root};

/// Maximum number of files in a circle.
const CIRCLE_FILES_MAX: usize = 5;

#[test]
fn circles_of_imports_have_at_most_five_files() {
    let folders = crates();
    assert!(folders.len() > 20, "crates are found in another way: {folders:?}");
    let mut file_count = 0;
    for folder in &folders {
        let imports = Imports::of(sources(folder));
        file_count += imports.modules.len();
        let circle = imports.largest_circle();
        assert!(
            circle.len() <= CIRCLE_FILES_MAX,
            "{} files of {folder}/src import each other, {CIRCLE_FILES_MAX} may:\n{}",
            circle.len(),
            imports.edges_within(&circle)
        );
    }
    assert!(file_count > 500, "files are found in another way: {file_count}");
}

/// Folders of all crates of the workspace; the root is `.`.
fn crates() -> Vec<String> {
    let manifest: toml::Table = read("Cargo.toml").parse().unwrap();
    let mut folders = vec![".".to_owned()];
    for member in manifest["workspace"]["members"].as_array().unwrap() {
        let member = member.as_str().unwrap();
        let Some(parent) = member.strip_suffix("/*") else {
            folders.push(member.to_owned());
            continue;
        };
        let inside = fs::read_dir(root().join(parent)).unwrap().flatten();
        let crates = inside.filter(|entry| entry.path().join("Cargo.toml").exists());
        folders.extend(crates.map(|it| format!("{parent}/{}", it.file_name().to_string_lossy())));
    }
    folders.sort();
    folders
}

/// Names of a module from the root of its crate.
type Path = Vec<String>;

/// Code of the files of a crate, without comments, texts and modules of tests, by their modules.
fn sources(folder: &str) -> BTreeMap<Path, String> {
    let src = root().join(folder).join("src");
    let has_library = src.join("lib.rs").exists();
    let mut sources = BTreeMap::new();
    for path in files(&src, "rs").into_iter().filter(|path| !TEST_FILES.contains(path)) {
        let relative = path.strip_prefix(&src).unwrap().with_extension("");
        let parts = relative.iter().map(|part| part.to_string_lossy().into_owned());
        let mut module: Path = parts.collect();
        match module.last().map(String::as_str) {
            Some("main") if module.len() == 1 && has_library => continue,
            Some("lib" | "main") if module.len() == 1 => module.clear(),
            Some("mod") => drop(module.pop()),
            _ => {}
        }
        sources.insert(module, without_comments(&code(&path), Texts::Blanked));
    }
    sources
}

/// Declarations and imports of a module.
#[derive(Default)]
struct Module {
    /// Modules that it declares in separate files.
    children: BTreeSet<String>,
    /// Names that it defines.
    defined: BTreeSet<String>,
    /// Names that it imports or re-exports, and their paths.
    imported: BTreeMap<String, Path>,
    /// Paths of which it imports or re-exports all names.
    globs: Vec<Path>,
    /// Paths of names that it takes, by `use` or in its code.
    taken: Vec<Path>,
}

/// Words of Rust source: names, `::` and single characters.
fn words(code: &str) -> Vec<&str> {
    let is_name = |c: char| c.is_alphanumeric() || c == '_';
    let mut words = Vec::new();
    let mut rest = code.trim_start();
    while let Some(first) = rest.chars().next() {
        let length = if is_name(first) {
            rest.find(|c| !is_name(c)).unwrap_or(rest.len())
        } else if rest.starts_with("::") {
            2
        } else {
            first.len_utf8()
        };
        let (word, after) = rest.split_at(length);
        words.push(word);
        rest = after.trim_start();
    }
    words
}

impl Module {
    fn of(code: &str) -> Self {
        let words = words(code);
        let mut module = Self::default();
        let mut at = 0;
        while let Some(word) = words.get(at) {
            match (*word, words.get(at + 1).copied().unwrap_or_default()) {
                ("use", next) if next != "<" => {
                    let end = at + words[at..].iter().position(|word| *word == ";").unwrap_or(0);
                    module.take_use(&words[..at], &words[at + 1..end]);
                    at = end;
                }
                ("mod", name) if words.get(at + 2) == Some(&";") => {
                    module.children.insert(name.to_owned());
                    at += 1;
                }
                (
                    "struct" | "enum" | "union" | "trait" | "type" | "fn" | "const" | "static",
                    name,
                ) => {
                    let name = if name == "mut" { words[at + 2] } else { name };
                    module.defined.insert(name.to_owned());
                }
                ("macro_rules", "!") => drop(module.defined.insert(words[at + 2].to_owned())),
                (_, "::") if at == 0 || words[at - 1] != "::" => {
                    let mut path = vec![(*word).to_owned()];
                    while words.get(at + 1) == Some(&"::") {
                        path.extend(words.get(at + 2).map(|&word| word.to_owned()));
                        at += 2;
                    }
                    module.taken.push(path);
                }
                _ => {}
            }
            at += 1;
        }
        module
    }

    /// Records the names of a `use`, unless it is for tests. A re-export takes no name.
    fn take_use(&mut self, before: &[&str], tree: &[&str]) {
        let start = before.iter().rposition(|word| [";", "}", "{", "]"].contains(word));
        let (attributes, visibility) = before.split_at(start.map_or(0, |start| start + 1));
        if attributes.ends_with(&["#", "[", "cfg", "(", "test", ")", "]"]) {
            return;
        }
        for (mut path, alias) in leaves(tree, &[]) {
            if path.last().is_some_and(|last| last == "*") {
                path.pop();
                self.globs.push(path.clone());
            } else {
                if path.last().is_some_and(|last| last == "self") && path.len() > 1 {
                    path.pop();
                }
                let Some(name) = alias.or_else(|| path.last().cloned()) else { continue };
                self.imported.insert(name, path.clone());
            }
            if visibility.first() != Some(&"pub") {
                self.taken.push(path);
            }
        }
    }
}

/// Paths of a tree of imports, each with the name that it gets by `as`.
fn leaves(tree: &[&str], prefix: &[String]) -> Vec<(Path, Option<String>)> {
    let names = |words: &[&str]| {
        let names = words.iter().filter(|word| **word != "::").map(|word| (*word).to_owned());
        prefix.iter().cloned().chain(names).collect::<Path>()
    };
    let Some(open) = tree.iter().position(|word| *word == "{") else {
        let (path, alias) = match tree {
            [path @ .., "as", alias] => (path, Some((*alias).to_owned())),
            path => (path, None),
        };
        return vec![(names(path), alias)];
    };
    let head = names(&tree[..open]);
    let (mut depth, mut found) = (0_usize, Vec::new());
    let inside = &tree[open + 1..tree.len() - 1];
    let parts = inside.split(|word| {
        match *word {
            "{" => depth += 1,
            "}" => depth -= 1,
            _ => {}
        }
        *word == "," && depth == 0
    });
    for part in parts.filter(|part| !part.is_empty()) {
        found.extend(leaves(part, &head));
    }
    found
}

/// Imports of all modules of a crate.
struct Imports {
    modules: BTreeMap<Path, Module>,
    /// Modules that each module takes names from, with these names.
    edges: BTreeMap<Path, BTreeMap<Path, BTreeSet<String>>>,
}

impl Imports {
    fn of(sources: BTreeMap<Path, String>) -> Self {
        let modules = sources.iter().map(|(path, code)| (path.clone(), Module::of(code)));
        let mut imports = Self { modules: modules.collect(), edges: BTreeMap::new() };
        for (path, module) in &imports.modules {
            let mut edges: BTreeMap<Path, BTreeSet<String>> = BTreeMap::new();
            for taken in &module.taken {
                if let Some(other) = imports.definition(path, taken, &mut Vec::new())
                    && !other.starts_with(path)
                {
                    edges.entry(other).or_default().extend(taken.last().cloned());
                }
            }
            imports.edges.insert(path.clone(), edges);
        }
        imports
    }

    /// Module that defines the name at the end of a path in a module; `None` for a name of another
    /// crate.
    fn definition(
        &self,
        from: &Path,
        path: &[String],
        seen: &mut Vec<(Path, String)>,
    ) -> Option<Path> {
        let mut at = from.clone();
        let mut rest = path;
        match rest.first()?.as_str() {
            "crate" => (at, rest) = (Path::new(), &rest[1..]),
            "self" => rest = &rest[1..],
            "super" => {
                while rest.first().is_some_and(|name| name == "super") {
                    at.pop();
                    rest = &rest[1..];
                }
            }
            name => {
                let module = self.modules.get(from)?;
                if !module.children.contains(name) && !module.imported.contains_key(name) {
                    return None;
                }
            }
        }
        while let Some(name) = rest.first() {
            let module = self.modules.get(&at)?;
            if module.children.contains(name) {
                at.push(name.clone());
                rest = &rest[1..];
                continue;
            }
            if module.defined.contains(name) {
                return Some(at);
            }
            let step = (at.clone(), name.clone());
            if seen.contains(&step) {
                return None;
            }
            seen.push(step);
            if let Some(imported) = module.imported.get(name) {
                let path: Path = imported.iter().chain(&rest[1..]).cloned().collect();
                return self.definition(&at, &path, seen);
            }
            return module.globs.iter().find_map(|glob| {
                let path: Path = glob.iter().chain(rest).cloned().collect();
                self.definition(&at, &path, seen)
            });
        }
        self.modules.contains_key(&at).then_some(at)
    }

    fn reached_from(&self, start: &Path) -> BTreeSet<&Path> {
        let mut reached = BTreeSet::new();
        let mut left: Vec<&Path> = self.edges[start].keys().collect();
        while let Some(module) = left.pop() {
            if reached.insert(module) {
                left.extend(self.edges[module].keys());
            }
        }
        reached
    }

    /// Modules of the largest circle; empty if there is no circle.
    fn largest_circle(&self) -> BTreeSet<&Path> {
        let reached: BTreeMap<&Path, BTreeSet<&Path>> =
            self.edges.keys().map(|module| (module, self.reached_from(module))).collect();
        let circle_of = |module: &&Path| -> BTreeSet<&Path> {
            reached[module]
                .iter()
                .copied()
                .filter(|other| reached[other].contains(module))
                .collect()
        };
        reached.keys().map(circle_of).max_by_key(BTreeSet::len).unwrap_or_default()
    }

    /// Imports between these modules, one a line.
    fn edges_within(&self, circle: &BTreeSet<&Path>) -> String {
        let mut lines = String::new();
        for module in circle {
            for (other, names) in self.edges[*module].iter().filter(|it| circle.contains(it.0)) {
                let names: Vec<&str> = names.iter().map(String::as_str).collect();
                let (from, to) = (module.join("::"), other.join("::"));
                lines += &format!("  {from} takes from {to}: {}\n", names.join(", "));
            }
        }
        lines
    }
}

mod of_itself {
    use super::*;

    fn circle(sources: &[(&str, &str)]) -> String {
        let module = |name: &str| -> Path {
            name.split("::").filter(|part| !part.is_empty()).map(str::to_owned).collect()
        };
        let sources = sources.iter().map(|(name, code)| (module(name), (*code).to_owned()));
        let imports = Imports::of(sources.collect());
        let circle = imports.largest_circle();
        circle.iter().map(|module| module.join("::")).collect::<Vec<_>>().join(" ")
    }

    const ROOT: (&str, &str) = ("", "mod a; mod b; mod c; pub use b::B;");

    #[test]
    fn circles_follow_imports_paths_and_re_exports() {
        let by_use = [
            ROOT,
            ("a", "use crate::{b::B as D, c::*}; struct A;"),
            ("b", "struct B(super::a::A);"),
        ];
        assert_eq!(circle(&by_use), "a b");
        let by_re_export =
            [ROOT, ("a", "use crate::B; struct A;"), ("b", "use super::a::{self}; struct B;")];
        assert_eq!(circle(&by_re_export), "a b");
        let by_path = [
            ROOT,
            ("a", "use super::b; fn f() { b::g() }"),
            ("b", "pub(crate) fn g() { crate::a::f::<u8>() }"),
        ];
        assert_eq!(circle(&by_path), "a b");
        let by_glob = [
            ROOT,
            ("a", "use super::c::B; const A: u8 = 0;"),
            ("b", "use crate::a::A; struct B;"),
            ("c", "pub use crate::b::*;"),
        ];
        assert_eq!(circle(&by_glob), "a b");
    }

    #[test]
    fn re_exports_descendants_and_tests_are_no_imports() {
        let re_exported =
            [ROOT, ("a", "use crate::b::B; struct A;"), ("b", "pub use crate::a::A; struct B;")];
        assert_eq!(circle(&re_exported), "");
        let descendant = [
            ("", "mod a;"),
            ("a", "mod b; use b::B; struct A;"),
            ("a::b", "use super::A; struct B;"),
        ];
        assert_eq!(circle(&descendant), "");
        let for_tests = [
            ROOT,
            ("a", "use crate::b::B; struct A;"),
            ("b", "#[cfg(test)] use crate::a::A; struct B;"),
        ];
        assert_eq!(circle(&for_tests), "");
    }
}

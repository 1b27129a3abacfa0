//! Links of the Markdown files, and the list of pages that `just book` makes a site of.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Component, Path, PathBuf};

use crate::{files, place, read, root};

/// One link of a Markdown file.
struct Link {
    line: usize,
    target: String,
}

/// Markdown without fenced blocks and without the content of code spans; lines keep their numbers.
fn without_code(text: &str) -> String {
    let mut kept = String::new();
    let mut fence = None;
    for line in text.lines() {
        let start = line.trim_start();
        let opening = ["```", "~~~"].into_iter().find(|fence| start.starts_with(fence));
        match (fence, opening) {
            (None, Some(opening)) => fence = Some(opening),
            (Some(open), Some(closing)) if open == closing => fence = None,
            (Some(_), _) => {}
            (None, None) => {
                // A backtick without a partner on its line belongs to a span that ends on another.
                let parts: Vec<&str> = line.split('`').collect();
                if parts.len().is_multiple_of(2) {
                    kept.push_str(line);
                } else {
                    kept.extend(parts.into_iter().step_by(2).flat_map(|part| [part, "`"]));
                }
            }
        }
        kept.push('\n');
    }
    kept
}

/// Inline links and images of a text.
fn links(text: &str) -> Vec<Link> {
    let mut found = Vec::new();
    for (line, text) in without_code(text).lines().enumerate() {
        for rest in text.split("](").skip(1) {
            let end = rest.find(|char: char| char == ')' || char.is_whitespace());
            let target = rest[..end.unwrap_or(rest.len())].to_owned();
            found.push(Link { line: line + 1, target });
        }
    }
    found
}

/// Anchors of the headings of a page, by the rules of GitHub.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut uses = BTreeMap::new();
    let mut found = BTreeSet::new();
    let prose = without_code(text);
    // Headings keep the content of their code spans.
    for (line, prose) in text.lines().zip(prose.lines()) {
        let level = prose.bytes().take_while(|byte| *byte == b'#').count();
        let is_heading = (1..=6).contains(&level) && prose[level..].starts_with(' ');
        if is_heading {
            let anchor = anchor(&without_targets(line[level..].trim().trim_end_matches('#')));
            let before = uses.entry(anchor.clone()).or_insert(0);
            found.insert(if *before == 0 { anchor } else { format!("{anchor}-{before}") });
            *before += 1;
        }
    }
    found
}

/// A heading as a reader sees it: links are reduced to their texts.
fn without_targets(heading: &str) -> String {
    let mut parts = heading.split("](");
    let mut shown = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        shown.push_str(part.split_once(')').map_or("", |(_, rest)| rest));
    }
    shown
}

/// The anchor of a heading, before it is made different from earlier ones.
fn anchor(heading: &str) -> String {
    let lower = heading.trim().to_lowercase();
    let kept = lower.chars().filter(|char| char.is_alphanumeric() || "-_ ".contains(*char));
    kept.map(|char| if char == ' ' { '-' } else { char }).collect()
}

/// Address of the repository, from the manifest.
fn repository() -> String {
    let manifest = read("Cargo.toml");
    let (_, rest) = manifest.split_once("\nrepository = \"").unwrap();
    rest.split('"').next().unwrap().to_owned()
}

/// The file or folder that a target names, and its anchor; nothing if it lies on another site.
fn resolve(page: &Path, target: &str, repository: &str) -> Option<(PathBuf, Option<String>)> {
    let (file, anchor) = match target.split_once('#') {
        Some((file, anchor)) => (file, Some(anchor.to_owned())),
        None => (target, None),
    };
    let own = ["blob/main/", "tree/main/"]
        .iter()
        .find_map(|kind| file.strip_prefix(&format!("{repository}/{kind}")));
    let path = match own {
        Some(path) => root().join(path),
        None if file.contains("://") || file.starts_with("mailto:") => return None,
        None if file.is_empty() => page.to_owned(),
        None => page.parent().unwrap_or(page).join(file),
    };
    Some((path, anchor))
}

/// A path without `.` and `..`.
fn normal(path: &Path) -> PathBuf {
    let mut normal = PathBuf::new();
    for part in path.components() {
        match part {
            Component::CurDir => {}
            Component::ParentDir => {
                normal.pop();
            }
            part => normal.push(part),
        }
    }
    normal
}

/// Files and anchors that links name exist, also those in the repository's address.
#[test]
fn links_lead_to_files_and_headings() {
    let repository = repository();
    let mut dead = String::new();
    let mut count = 0;
    // A package has some pages as symbolic links, whose relative links are valid only at the
    // original.
    for page in files(".", "md").into_iter().filter(|path| !path.is_symlink()) {
        for link in links(&read(&page)) {
            let Some((path, anchor)) = resolve(&page, &link.target, &repository) else { continue };
            count += 1;
            let is_there = path.exists() && anchor.is_none_or(|anchor| has_anchor(&path, &anchor));
            if !is_there {
                let from = place(&page);
                writeln!(dead, "  {from}:{}: {}", link.line, link.target).expect("a string grows");
            }
        }
    }
    assert!(count > 300, "links are written in another way: {count} found");
    assert!(dead.is_empty(), "links to missing files or headings:\n{dead}");
}

/// Whether a page has a heading for an anchor. Lines of a source file are not checked.
fn has_anchor(path: &Path, anchor: &str) -> bool {
    let page = if path.is_dir() { path.join("README.md") } else { path.to_owned() };
    let is_page = page.extension().is_some_and(|is| is == "md");
    !is_page || anchors(&read(page)).contains(anchor)
}

/// The site has each page of `docs` once, and nothing else.
#[test]
fn the_summary_lists_each_page_once() {
    let summary = root().join("docs/SUMMARY.md");
    let mut listed: Vec<PathBuf> = Vec::new();
    for link in links(&read(&summary)) {
        listed.push(normal(&summary.with_file_name(link.target)));
    }
    listed.sort();
    let mut pages: Vec<PathBuf> = files("docs", "md").iter().map(|path| normal(path)).collect();
    pages.retain(|page| *page != summary);
    pages.sort();
    let places = |paths: &[PathBuf]| paths.iter().map(|path| place(path)).collect::<Vec<_>>();
    let missing: Vec<PathBuf> =
        pages.iter().filter(|page| !listed.contains(page)).cloned().collect();
    assert!(missing.is_empty(), "add to docs/SUMMARY.md: {:?}", places(&missing));
    assert_eq!(places(&listed), places(&pages), "docs/SUMMARY.md lists other pages, or one twice");
}

/// The site links to the repository that the manifest names.
#[test]
fn the_site_names_the_repository() {
    let (repository, book) = (repository(), read("docs/book.toml"));
    let addresses = book.split('"').filter(|text| text.starts_with("https://"));
    for address in addresses {
        assert!(address.starts_with(&repository), "docs/book.toml names {address}");
    }
    assert!(book.contains(&format!("git-repository-url = \"{repository}\"")));
}

#[test]
fn anchors_follow_the_rules_of_github() {
    let page = "# `peeklock serve`: Start, stop\n## A_b – [c](d.md) & e\n\n```sh\n# no heading\n```\n\
                ## Errors\ntext\n## Errors\n#no heading\n### 1. Users ###\n";
    let expected = ["1-users", "a_b--c--e", "errors", "errors-1", "peeklock-serve-start-stop"];
    assert_eq!(anchors(page).iter().map(String::as_str).collect::<Vec<_>>(), expected);
}

#[test]
fn links_in_code_are_no_links() {
    let page = "[a `x`](a.md#b) ![i](i.png \"t\")\n`[no](no.md)`\n~~~\n[no](no.md)\n~~~\n[b](#c)\n";
    let found: Vec<(usize, String)> =
        links(page).into_iter().map(|link| (link.line, link.target)).collect();
    let expected = [(1, "a.md#b"), (1, "i.png"), (6, "#c")];
    assert_eq!(found, expected.map(|(line, target)| (line, target.to_owned())));
}

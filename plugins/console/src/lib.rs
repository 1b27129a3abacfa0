//! Operator console of a Peeklock broker (file 25 of the specification): the page that the HTTP
//! transport serves under `/$console/`.
//!
//! The page is ES modules written by hand, in `page/`; `page/main.js` is their entry, and
//! `page/README.md` names them in reading order. They are embedded as they are: no build step
//! changes them. `page/vendor/` has the files of other authors, which `vendor.toml` lists with
//! version, licence and hash.
//!
//! Deliberately absent: a listener, and any right. The page uses only the JSON API, which checks
//! every request.

use bytes::Bytes;
use sha2::{Digest as _, Sha256};

/// Headers of every file (CON-67). The page makes no request to another host and runs no script
/// but its own; where a browser knows Trusted Types, no text can become markup.
pub const HEADERS: [(&str, &str); 5] = [
    (
        "Content-Security-Policy",
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
         connect-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
    ),
    ("X-Content-Type-Options", "nosniff"),
    ("Referrer-Policy", "no-referrer"),
    ("Cross-Origin-Opener-Policy", "same-origin"),
    ("Cross-Origin-Resource-Policy", "same-origin"),
];

/// The document. It names its files below `assets/`.
const DOCUMENT: &str = include_str!("../page/index.html");
/// Folder of the files in [`DOCUMENT`], which is replaced with the hash of all files.
const FOLDER: &str = "assets/";
/// Characters of the hash in addresses: 64 bits distinguish versions.
const HASH_CHARS: usize = 16;

/// Embeds files of `page/` by name.
macro_rules! embedded {
    ($($name:literal),* $(,)?) => {
        [$(($name, include_str!(concat!("../page/", $name)))),*]
    };
}

/// Names and contents of all files but the document.
pub const FILES: [(&str, &str); FILE_COUNT] = embedded![
    "actions.js",
    "api.js",
    "audit.js",
    "body.js",
    "credential.js",
    "decode.js",
    "entities.js",
    "entity.js",
    "format.js",
    "frame.js",
    "holders.js",
    "icon.svg",
    "import.js",
    "jobs.js",
    "keys.js",
    "main.js",
    "message.js",
    "messages.js",
    "overview.js",
    "parts.js",
    "preferences.js",
    "rates.js",
    "resource.js",
    "route.js",
    "rules.js",
    "schedule.js",
    "search.js",
    "settings.js",
    "stream.js",
    "style.css",
    "table.js",
    "topology.js",
    "traffic.js",
    "view.js",
    "workbench.js",
    "vendor/hooks.js",
    "vendor/htm.js",
    "vendor/preact.js",
    "vendor/uplot.js",
];
const FILE_COUNT: usize = 39;

/// A file of the console.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct File {
    /// Value of `Content-Type`.
    pub content_type: &'static str,
    /// Whether the address contains the hash of the content, so that a browser may keep the file
    /// forever; other files must not be kept.
    pub is_immutable: bool,
    /// The content.
    pub content: Bytes,
}

/// The console with its label.
#[derive(Debug)]
pub struct Console {
    /// Hash of all files.
    hash: String,
    document: Bytes,
    /// Data for the page in JSON.
    about: Bytes,
}

impl Console {
    /// Creates the console. `label` names the environment, such as `production`; an empty one is
    /// not shown.
    #[must_use]
    pub fn new(label: &str) -> Self {
        let mut hasher = Sha256::new();
        for (name, content) in FILES.into_iter().chain([("", DOCUMENT)]) {
            for part in [name, content] {
                hasher.update((part.len() as u64).to_be_bytes());
                hasher.update(part);
            }
        }
        let digest = hasher.finalize();
        let mut hash: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
        hash.truncate(HASH_CHARS);
        let document = DOCUMENT.replace(FOLDER, &format!("{hash}/")).into();
        let about = serde_json::json!({ "label": label, "assets": hash }).to_string().into();
        Self { hash, document, about }
    }

    /// Returns the file at a path below `/$console/`; the empty path is the document.
    #[must_use]
    pub fn file(&self, path: &str) -> Option<File> {
        let fresh = |content_type, content: &Bytes| {
            Some(File { content_type, is_immutable: false, content: content.clone() })
        };
        match path {
            "" => return fresh("text/html; charset=utf-8", &self.document),
            "about.json" => return fresh("application/json", &self.about),
            _ => {}
        }
        let name = path.strip_prefix(&*self.hash)?.strip_prefix('/')?;
        let (_, content) = FILES.iter().find(|(file, _)| *file == name)?;
        let content = Bytes::from_static(content.as_bytes());
        Some(File { content_type: content_type(name), is_immutable: true, content })
    }
}

/// Returns the media type of a file by the end of its name.
fn content_type(name: &str) -> &'static str {
    match name.rsplit_once('.') {
        Some((_, "js")) => "text/javascript; charset=utf-8",
        Some((_, "css")) => "text/css; charset=utf-8",
        Some((_, "svg")) => "image/svg+xml",
        _ => "application/octet-stream",
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::path::Path;

    use super::*;

    /// Modules that are loaded when they are first shown.
    const LATE: [&str; 12] = [
        "actions.js",
        "audit.js",
        "holders.js",
        "import.js",
        "jobs.js",
        "rates.js",
        "rules.js",
        "schedule.js",
        "search.js",
        "topology.js",
        "traffic.js",
        "workbench.js",
    ];

    fn page() -> &'static Path {
        Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/page"))
    }

    fn names_below(folder: &str) -> BTreeSet<String> {
        let entries = std::fs::read_dir(page().join(folder)).unwrap();
        let files = entries.map(|entry| entry.unwrap().path()).filter(|path| path.is_file());
        files
            .map(|path| path.strip_prefix(page()).unwrap().to_str().unwrap().to_owned())
            .filter(|name| !name.ends_with(".md"))
            .collect()
    }

    /// CON-77: every file of the page is embedded, at most 40 with the document.
    #[test]
    fn all_files_are_embedded() {
        let mut there = names_below("");
        there.extend(names_below("vendor"));
        let mut named: BTreeSet<String> =
            FILES.iter().map(|(name, _)| (*name).to_owned()).collect();
        assert_eq!(named.len(), FILE_COUNT, "a file is listed twice");
        named.insert("index.html".to_owned());
        assert_eq!(there, named);
        assert!(named.len() <= 40, "{}", named.len());
    }

    /// CON-77: the document and the label are not kept; files have the hash in their address, and no
    /// other address serves them.
    #[test]
    fn only_addresses_with_the_hash_are_immutable() {
        let console = Console::new("produ\"ction");
        let document = console.file("").unwrap();
        assert!(!document.is_immutable);
        let text = String::from_utf8(document.content.to_vec()).unwrap();
        assert!(text.contains(&format!("src=\"{}/main.js\"", console.hash)), "{text}");
        assert!(!text.contains(FOLDER), "{text}");
        let about = console.file("about.json").unwrap();
        assert!(!about.is_immutable);
        let about: serde_json::Value = serde_json::from_slice(&about.content).unwrap();
        assert_eq!(about["label"], "produ\"ction");
        assert_eq!(about["assets"], *console.hash);
        let main = console.file(&format!("{}/main.js", console.hash)).unwrap();
        assert!(main.is_immutable);
        assert_eq!(main.content_type, "text/javascript; charset=utf-8");
        for path in ["main.js", "assets/main.js", "0000000000000000/main.js", "index.html", "/"] {
            assert_eq!(console.file(path), None, "{path}");
        }
        assert_eq!(console.file(&format!("{}/../main.js", console.hash)), None);
        assert_eq!(console.file(&format!("{}main.js", console.hash)), None);
    }

    /// CON-67: nothing is inline, nothing comes from another host, and each module that the page
    /// imports is there and preloaded.
    #[test]
    fn document_and_modules_name_only_own_files() {
        for forbidden in
            ["<style", "onload=", "onclick=", "javascript:", "http:", "https:", "style="]
        {
            assert!(!DOCUMENT.contains(forbidden), "{forbidden}");
        }
        for (name, content) in FILES.into_iter().filter(|(name, _)| name.ends_with(".js")) {
            let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
            let imports = content.split("from \"").chain(content.split("from\"")).skip(1);
            for import in imports.filter_map(|rest| rest.split_once('"')).map(|(path, _)| path) {
                let Some(path) = import.strip_prefix("./") else { continue };
                let whole =
                    if folder.is_empty() { path.into() } else { format!("{folder}/{path}") };
                assert!(FILES.iter().any(|(name, _)| *name == whole), "{name} imports {import}");
            }
            if name.starts_with("vendor/") {
                continue;
            }
            for forbidden in
                ["innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("]
            {
                assert!(!content.contains(forbidden), "{name} has {forbidden}");
            }
            let is_late = name == "main.js" || LATE.contains(&name);
            let preload = format!("<link rel=\"modulepreload\" href=\"assets/{name}\">");
            assert!(is_late || DOCUMENT.contains(&preload), "{preload}");
        }
    }

    /// CON-77: the list has the hash of each file of another author.
    #[test]
    fn vendored_files_have_the_listed_hashes() {
        let list = include_str!("../vendor.toml").parse::<toml::Table>().unwrap();
        let listed = list["file"].as_array().unwrap();
        let vendored = FILES.iter().filter(|(name, _)| name.starts_with("vendor/"));
        assert_eq!(vendored.count(), listed.len());
        for file in listed {
            let text = |key: &str| file[key].as_str().unwrap();
            for key in ["package", "version", "licence", "source"] {
                assert!(!text(key).is_empty(), "{key}");
            }
            let name = text("name");
            let (_, content) = FILES.iter().find(|(file, _)| *file == name).expect(name);
            let digest = Sha256::digest(content);
            let hash: String = digest.iter().map(|byte| format!("{byte:02x}")).collect();
            assert_eq!(hash, text("sha256"), "{name}");
        }
    }
}

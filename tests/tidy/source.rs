//! Reads Rust source: positions of comments and texts, test modules, and test functions.

use std::path::{Path, PathBuf};

/// The text with every comment blanked, and with `Texts::Blanked` also the content of quotes. Every
/// byte and line keeps its position.
pub fn without_comments(text: &str, texts: Texts) -> String {
    let bytes = text.as_bytes();
    let mut kept = bytes.to_vec();
    let mut at = 0;
    while at < bytes.len() {
        let rest = &bytes[at..];
        let (length, blank) = if rest.starts_with(b"//") {
            (line_end(rest), 0..usize::MAX)
        } else if rest.starts_with(b"/*") {
            (block_end(rest), 0..usize::MAX)
        } else if let Some(hashes) = raw_text(bytes, at) {
            let closing = [b"\"".as_slice(), &vec![b'#'; hashes]].concat();
            let begin = rest.iter().position(|byte| *byte == b'"').unwrap_or_default() + 1;
            let end = find(&rest[begin..], &closing).map_or(rest.len(), |end| begin + end);
            ((end + closing.len()).min(rest.len()), begin..end)
        } else if rest[0] == b'"' {
            let end = text_end(rest);
            (end, 1..end - 1)
        } else if let Some(length) = character(rest) {
            (length, 1..length - 1)
        } else {
            at += 1;
            continue;
        };
        let is_comment = blank.end == usize::MAX;
        if is_comment || texts == Texts::Blanked {
            for byte in &mut kept[at + blank.start..at + blank.end.min(length)] {
                if *byte != b'\n' {
                    *byte = b' ';
                }
            }
        }
        at += length;
    }
    String::from_utf8_lossy(&kept).into_owned()
}

/// Treatment of quoted texts in a source.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Texts {
    Kept,
    Blanked,
}

fn find(bytes: &[u8], wanted: &[u8]) -> Option<usize> {
    bytes.windows(wanted.len()).position(|window| window == wanted)
}

fn line_end(bytes: &[u8]) -> usize {
    bytes.iter().position(|byte| *byte == b'\n').unwrap_or(bytes.len())
}

/// Block comments nest.
fn block_end(bytes: &[u8]) -> usize {
    let (mut depth, mut at) = (0_u32, 0);
    while at < bytes.len() {
        if bytes[at..].starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if bytes[at..].starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    bytes.len()
}

/// The number of hashes of a raw text that begins here.
fn raw_text(bytes: &[u8], at: usize) -> Option<usize> {
    let before = at.checked_sub(1).map(|before| bytes[before]);
    if before.is_some_and(|byte| byte.is_ascii_alphanumeric() || byte == b'_') {
        return None;
    }
    let rest = bytes[at..].strip_prefix(b"b").unwrap_or(&bytes[at..]).strip_prefix(b"r")?;
    let hashes = rest.iter().take_while(|byte| **byte == b'#').count();
    (rest.get(hashes) == Some(&b'"')).then_some(hashes)
}

fn text_end(bytes: &[u8]) -> usize {
    let mut at = 1;
    while at < bytes.len() {
        match bytes[at] {
            b'\\' => at += 2,
            b'"' => return at + 1,
            _ => at += 1,
        }
    }
    bytes.len()
}

/// The length of a character in quotes; a lifetime is none.
fn character(bytes: &[u8]) -> Option<usize> {
    if bytes[0] != b'\'' {
        return None;
    }
    if bytes.get(1) == Some(&b'\\') {
        return bytes.iter().skip(3).position(|byte| *byte == b'\'').map(|end| end + 4);
    }
    let end = bytes.iter().skip(1).take(5).position(|byte| *byte == b'\'')? + 2;
    let inside = std::str::from_utf8(&bytes[1..end - 1]).ok()?;
    (inside.chars().count() == 1).then_some(end)
}

/// A source file, taken apart.
pub struct Source {
    /// Product code: without comments and test modules.
    pub code: String,
    /// Files that it declares as test modules, by their possible names.
    pub test_files: Vec<PathBuf>,
}

impl Source {
    pub fn of(path: &Path, text: &str) -> Self {
        let shape = without_comments(text, Texts::Blanked);
        let mut code = without_comments(text, Texts::Kept).into_bytes();
        let mut test_files = Vec::new();
        for (start, attribute) in shape.match_indices("#[cfg(") {
            let condition = &shape[start + attribute.len()..];
            if !condition.starts_with("test)") && !condition.starts_with("all(test,") {
                continue;
            }
            let Some(module) = module_after(&shape, start) else { continue };
            match module {
                Module::Inline { end } => code[start..end].fill(b' '),
                Module::File { name, end } => {
                    code[start..end].fill(b' ');
                    test_files.extend(places_of(path, &name, &text[start..end]));
                }
            }
        }
        Self { code: String::from_utf8_lossy(&code).into_owned(), test_files }
    }
}

enum Module {
    Inline { end: usize },
    File { name: String, end: usize },
}

/// The module that the attributes from `start` on belong to, if any.
fn module_after(shape: &str, start: usize) -> Option<Module> {
    let mut at = start;
    loop {
        at += shape[at..].find(|c: char| !c.is_whitespace())?;
        if !shape[at..].starts_with("#[") {
            break;
        }
        at += closing(&shape[at..], '[', ']')?;
    }
    let head_end = at + shape[at..].find(['{', ';'])?;
    let head = shape[at..head_end].trim();
    let name = head.strip_prefix("mod ").or_else(|| Some(head.split_once(") mod ")?.1))?;
    if shape[head_end..].starts_with(';') {
        return Some(Module::File { name: name.trim().to_owned(), end: head_end + 1 });
    }
    Some(Module::Inline { end: head_end + closing(&shape[head_end..], '{', '}')? })
}

/// Position of the bracket that closes the first opened one.
fn closing(shape: &str, open: char, close: char) -> Option<usize> {
    let mut depth = 0_u32;
    for (at, c) in shape.char_indices() {
        if c == open {
            depth += 1;
        } else if c == close {
            depth = depth.checked_sub(1)?;
            if depth == 0 {
                return Some(at + 1);
            }
        }
    }
    None
}

/// Possible places of the file of a module, or the folder of the module and its parts.
fn places_of(path: &Path, name: &str, declaration: &str) -> Vec<PathBuf> {
    let folder = path.parent().unwrap_or(path);
    if let Some((_, rest)) = declaration.split_once("#[path = \"") {
        let named = rest.split('"').next().unwrap_or_default();
        return vec![folder.join(named)];
    }
    let stem = path.file_stem().unwrap_or_default();
    let below = if ["mod", "lib", "main"].iter().any(|root| stem == *root) {
        folder.to_owned()
    } else {
        folder.join(stem)
    };
    vec![below.join(format!("{name}.rs")), below.join(name)]
}

/// A test function, with the comment above it.
#[derive(PartialEq, Eq, Debug)]
pub struct Function {
    pub name: String,
    pub doc: String,
}

/// The tests of a Rust file, without ignored ones.
pub fn tests(text: &str) -> Vec<Function> {
    functions(text, |attributes| {
        let is_test = attributes.iter().any(|attribute| {
            let path = attribute.trim_start_matches("#[").split(['(', ']']).next();
            path.is_some_and(|path| path == "test" || path.ends_with("::test"))
        });
        is_test && !attributes.iter().any(|attribute| attribute.starts_with("#[ignore"))
    })
}

/// Functions of a Rust file whose attributes satisfy `fits`, with the comments above them.
pub fn functions(text: &str, fits: impl Fn(&[&str]) -> bool) -> Vec<Function> {
    let shape = without_comments(text, Texts::Blanked);
    let mut found = Vec::new();
    let (mut doc, mut attributes) = (String::new(), Vec::new());
    for (line, bare) in text.lines().zip(shape.lines()) {
        let (line, bare) = (line.trim(), bare.trim());
        if let Some(comment) = line.strip_prefix("///") {
            doc.push_str(comment);
            doc.push('\n');
            continue;
        }
        if bare.starts_with("#[") {
            attributes.push(bare);
        }
        if let Some(name) = name_of_function(bare) {
            if fits(&attributes) {
                found.push(Function { name: name.to_owned(), doc: std::mem::take(&mut doc) });
            }
            doc.clear();
            attributes.clear();
        } else if bare.ends_with(['}', ';', '{']) || line.is_empty() {
            doc.clear();
            attributes.clear();
        }
    }
    found
}

fn name_of_function(line: &str) -> Option<&str> {
    let (before, after) = line.split_once("fn ")?;
    let leads = ["", "pub ", "async ", "pub async ", "pub(crate) ", "pub(super) ", "const "];
    if !leads.contains(&before) {
        return None;
    }
    after.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').next()
}

/// Tests of this reader.
mod of_itself {
    use super::*;

    #[test]
    fn comments_and_texts_are_distinguished_from_code() {
        let text = "a(); // \"x\n/* b /* c */ d */ let e = \"// f\"; let g = r#\"\" h\"#; '\"'; 'i'; &'j k";
        let kept = without_comments(text, Texts::Kept);
        assert_eq!(kept.len(), text.len());
        assert_eq!(
            kept.split_whitespace().collect::<Vec<_>>().join(" "),
            "a(); let e = \"// f\"; let g = r#\"\" h\"#; '\"'; 'i'; &'j k"
        );
        let bare = without_comments(text, Texts::Blanked);
        assert_eq!(
            bare.split_whitespace().collect::<Vec<_>>().join(" "),
            "a(); let e = \" \"; let g = r#\" \"#; ' '; ' '; &'j k"
        );
    }

    #[test]
    fn only_modules_of_tests_are_left_out() {
        let text = "use a;\n#[cfg(test)]\nmod tests;\nuse b;\n#[cfg(test)]\nmod more {\n fn c() { \"}\" }\n}\n\
            #[cfg(test)]\nuse d;\n#[cfg(any(test, feature = \"e\"))]\nmod f;\n#[cfg(all(test, unix))]\n#[g]\nmod h;\nuse i;";
        let source = Source::of(Path::new("x/mod.rs"), text);
        let words: Vec<&str> = source.code.split_whitespace().collect();
        assert_eq!(
            words.join(" "),
            "use a; use b; #[cfg(test)] use d; #[cfg(any(test, feature = \"e\"))] mod f; use i;"
        );
        let places = ["x/tests.rs", "x/tests", "x/h.rs", "x/h"].map(PathBuf::from);
        assert_eq!(source.test_files, places);
        let source = Source::of(Path::new("x/y.rs"), "#[cfg(test)]\nmod tests;");
        assert_eq!(source.test_files, ["x/y/tests.rs", "x/y/tests"].map(PathBuf::from));
    }

    #[test]
    fn a_test_is_a_function_with_the_attribute_and_its_own_comment() {
        let text = "/// A-1\nstruct B;\n\n/// C-1\n/// C-2\n#[test]\n#[expect(\n    d,\n    reason = \"e\"\n)]\nfn f() {}\n\
            /// G-1\nfn g() {}\n/// H-1\n#[test]\n#[ignore = \"i\"]\nfn h() {}\n#[tokio::test(j = \"k\")]\nasync fn l() {\n    // M-1\n}";
        let told: Vec<_> = tests(text).into_iter().map(|it| (it.name, it.doc)).collect();
        let expected = [("f", " C-1\n C-2\n"), ("l", "")];
        assert_eq!(told, expected.map(|(name, doc)| (name.to_owned(), doc.to_owned())));
    }
}

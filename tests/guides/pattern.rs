//! Output as a page shows it: `…` stands for any text, on a line by itself for any lines.

/// Lines without the spaces at their ends, and without empty lines at the end.
pub fn lines(text: &str) -> Vec<&str> {
    text.trim_end().lines().map(str::trim_end).collect()
}

/// Whether a text is as a pattern shows it.
pub fn fits(pattern: &[&str], text: &[&str]) -> bool {
    match (pattern, text) {
        ([], []) => true,
        (["…", rest @ ..], _) => (0..=text.len()).any(|at| fits(rest, &text[at..])),
        ([first, rest @ ..], [line, more @ ..]) => is_like(first, line) && fits(rest, more),
        _ => false,
    }
}

/// Whether some lines of a text, one after the other, are as a pattern shows them.
pub fn contains(pattern: &[&str], text: &[&str]) -> bool {
    let open: Vec<&str> = [&["…"], pattern, &["…"]].concat();
    fits(&open, text)
}

/// Whether a line is as a pattern shows it.
fn is_like(pattern: &str, line: &str) -> bool {
    match pattern.split_once('…') {
        None => pattern == line,
        Some((start, rest)) => line.strip_prefix(start).is_some_and(|line| {
            let ends = line.char_indices().map(|(at, _)| at).chain([line.len()]);
            ends.into_iter().any(|at| is_like(rest, &line[at..]))
        }),
    }
}

#[test]
fn patterns_stand_for_any_text() {
    assert!(is_like("a…c", "abc") && is_like("a…", "a") && !is_like("a…c", "ab"));
    assert!(fits(&["a", "…", "d"], &["a", "b", "c", "d"]) && !fits(&["a"], &["a", "b"]));
    assert!(
        contains(&["b", "c"], &["a", "b", "c", "d"]) && !contains(&["b", "d"], &["b", "c", "d"])
    );
}

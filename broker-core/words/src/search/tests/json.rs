use super::*;

fn found(path: &str, body: &str) -> Option<String> {
    let matcher = JsonMatcher::capture(&JsonPath::parse(path).unwrap());
    let results = [1, 3, 1 << 20].map(|size| {
        let (mut scan, mut steps) = (matcher.scan(), 0);
        for piece in body.as_bytes().chunks(size) {
            scan.feed(piece, &mut steps);
        }
        let found = scan.end(&mut steps).cloned();
        if let Some(found) = &found {
            let [start, end] = [found.start, found.end].map(|at| usize::try_from(at).unwrap());
            assert!(body.get(start..end).is_some_and(|part| !part.is_empty()), "{path} in {body}");
        }
        found.map(|found| found.text.unwrap_or_default())
    });
    assert!(results.iter().all(|result| *result == results[0]), "{path} in {body}: {results:?}");
    results[0].clone()
}

/// CON-06: selectors of RFC 9535 select the first value in the order of the text.
#[test]
fn json_path_selects_values() {
    let body = r#" {"order": {"id": 17, "lines": [{"sku": "a"}, {"sku": "b\u00e9\ud83d\ude00"}, [1, [2]]]},
        "a b": true, "é": null, "e": {}, "n": [], "x\"y": -1.5e3} "#;
    for (path, expected) in [
        ("$", Some("{…}")),
        ("$.order.id", Some("17")),
        ("$['order'][\"id\"]", Some("17")),
        ("$.order.lines[0].sku", Some("a")),
        ("$.order.lines[1].sku", Some("bé😀")),
        ("$.order.lines[2][0]", Some("1")),
        ("$.order.lines[2]", Some("[…]")),
        ("$.order.lines[3]", None),
        ("$.order.lines[1:2].sku", Some("bé😀")),
        ("$.order.lines[::2].sku", Some("a")),
        ("$.order.lines[1::2].sku", Some("bé😀")),
        ("$.order.lines[0:2:0].sku", None),
        ("$.*.id", Some("17")),
        ("$..sku", Some("a")),
        ("$..[1].sku", Some("bé😀")),
        ("$..lines..[1][0]", Some("2")),
        ("$['a b']", Some("true")),
        ("$.é", Some("null")),
        ("$['\\u00e9']", Some("null")),
        ("$['x\"y']", Some("-1.5e3")),
        ("$.e.x", None),
        ("$.n[0]", None),
        ("$.order.ID", None),
        ("$.orde", None),
    ] {
        assert_eq!(found(path, body).as_deref(), expected, "{path}");
    }
    assert_eq!(found("$", "17").as_deref(), Some("17"));
    assert_eq!(found("$.a", "\u{feff}{\"a\":1}").as_deref(), Some("1"));
    assert_eq!(found("$[1]", "[0 ,\"\\ud83d\"]").as_deref(), Some("\u{fffd}"));
}

/// CON-06: bytes after the first mistake are not JSON, and nothing in them is selected.
#[test]
fn json_ends_at_the_first_mistake() {
    for body in [
        "",
        "x",
        "{,\"a\":1}",
        "{\"b\":1,}{\"a\":1}",
        "[1 2]",
        "{\"b\" 1,\"a\":2}",
        "{\"b\":\"\n\",\"a\":1}",
        "{\"b\":\"\\x\",\"a\":1}",
        "{\"b\":1]",
        "{} {\"a\":1}",
        "{\"b\":\"\\u12x4\",\"a\":1}",
        "]",
        "{a:1}",
    ] {
        assert_eq!(found("$..a", body), None, "{body}");
    }
    assert_eq!(found("$.a", "{\"a\":1,,").as_deref(), Some("1"));
    let nested = |depth: usize| format!("{}1", "[".repeat(depth));
    let deepest = |depth: usize| {
        let matcher = JsonMatcher::capture(&JsonPath::parse("$..x").unwrap());
        let mut scan = matcher.scan();
        scan.feed(nested(depth).as_bytes(), &mut 0);
        scan.is_too_deep()
    };
    assert!(!deepest(DEPTH_MAX) && deepest(DEPTH_MAX + 1));
}

/// CON-06: a value compares by its type; integers beyond 53 bits compare exactly.
#[test]
fn json_values_compare_by_type() {
    let message = Message::default();
    let body =
        r#"{"n": 9007199254740993, "f": 2.5, "t": "b", "b": true, "z": null, "o": {"n": 1}}"#;
    for (line, expected) in [
        ("body.$.n=9007199254740993", true),
        ("body.$.n=9007199254740992", false),
        ("body.$.n>9007199254740992", true),
        ("body.$.n=\"9007199254740993\"", false),
        ("body.$.n!=\"x\"", true),
        ("body.$.n:1992", true),
        ("body.$.f=2.50", true),
        ("body.$.f<3 body.$.f>=2.5 body.$.f<=25e-1", true),
        ("body.$.f>2.5", false),
        ("body.$.t=b body.$.t>a body.$.t<ba", true),
        ("body.$.t<b", false),
        ("body.$.t>ab body.$.t!=bb", true),
        ("body.$.t:B", true),
        ("body.$.t~B", false),
        ("body.$.b=true body.$.b!=false body.$.z=null", true),
        ("body.$.b=\"true\"", false),
        ("body.$.o", true),
        ("body.$.o=1", false),
        ("not body.$.q", true),
        ("not body.$.o.n=1", false),
        ("body.$..n=1", true),
    ] {
        assert_eq!(holds(line, &message, body), expected, "{line}");
    }
}

/// CON-06: the stream finds the values that a plain walk of a tree finds.
#[test]
fn json_path_equals_a_walk_of_the_tree() {
    let names = ["a", "b", "aa"];
    let mut numbers = Numbers(4_711);
    let mut selected = 0;
    for _ in 0..20_000 {
        let tree = Tree::random(&mut numbers, &names, 4);
        let mut path = "$".to_owned();
        for _ in 0..numbers.below(4) {
            let parts =
                [".a", ".*", "..a", "..*", "['b','aa']", "[0]", "[1:]", "..[0,'a']", "[:3:2]"];
            let part = *numbers.pick(&parts);
            path.push_str(part);
        }
        let parsed = JsonPath::parse(&path).unwrap();
        let mut values = Vec::new();
        tree.walk(&parsed.segments, &mut values);
        let first = values.iter().min_by_key(|leaf| leaf.place()).map(|leaf| leaf.shown());
        let mut text = String::new();
        tree.write(&mut text);
        selected += usize::from(first.is_some());
        assert_eq!(found(&path, &text), first, "{path} in {text}");
    }
    assert!((2_000..18_000).contains(&selected), "{selected} paths select something");
}

/// JSON value; a leaf is its place in the text.
enum Tree {
    Leaf(usize),
    Array(usize, Vec<Self>),
    Object(usize, Vec<(&'static str, Self)>),
}

impl Tree {
    fn random(numbers: &mut Numbers, names: &[&'static str], depth: usize) -> Self {
        Self::with_place(numbers, names, depth, &mut 0)
    }

    fn with_place(
        numbers: &mut Numbers,
        names: &[&'static str],
        depth: usize,
        place: &mut usize,
    ) -> Self {
        let own = *place;
        *place += 1;
        let count = numbers.below(4);
        match if depth == 0 { 0 } else { numbers.below(3) } {
            0 => Self::Leaf(own),
            1 => Self::Array(
                own,
                (0..count).map(|_| Self::with_place(numbers, names, depth - 1, place)).collect(),
            ),
            _ => {
                let members = names.iter().take(count);
                Self::Object(
                    own,
                    members
                        .map(|name| (*name, Self::with_place(numbers, names, depth - 1, place)))
                        .collect(),
                )
            }
        }
    }

    const fn place(&self) -> usize {
        match self {
            Self::Leaf(place) | Self::Array(place, _) | Self::Object(place, _) => *place,
        }
    }

    fn shown(&self) -> String {
        match self {
            Self::Leaf(place) => place.to_string(),
            Self::Array(..) => "[…]".to_owned(),
            Self::Object(..) => "{…}".to_owned(),
        }
    }

    fn write(&self, text: &mut String) {
        match self {
            Self::Leaf(place) => text.push_str(&place.to_string()),
            Self::Array(_, values) => {
                text.push('[');
                for (index, value) in values.iter().enumerate() {
                    text.push_str(if index > 0 { ", " } else { "" });
                    value.write(text);
                }
                text.push(']');
            }
            Self::Object(_, members) => {
                text.push('{');
                for (index, (name, value)) in members.iter().enumerate() {
                    text.push_str(if index > 0 { "," } else { "" });
                    text.push_str(&format!("\"{name}\": "));
                    value.write(text);
                }
                text.push('}');
            }
        }
    }

    fn walk<'t>(&'t self, segments: &[super::super::path::Segment], found: &mut Vec<&'t Self>) {
        let Some((segment, rest)) = segments.split_first() else {
            found.push(self);
            return;
        };
        let children: Vec<(Option<&str>, u64, &Self)> = match self {
            Self::Leaf(_) => Vec::new(),
            Self::Array(_, values) => {
                (0..).zip(values).map(|(index, value)| (None, index, value)).collect()
            }
            Self::Object(_, members) => {
                members.iter().map(|(name, value)| (Some(*name), 0, value)).collect()
            }
        };
        for (name, index, child) in children {
            let is_selected = segment.selectors.iter().any(|selector| match name {
                Some(name) => selector.selects_name(name.as_bytes()),
                None => selector.selects_index(index),
            });
            if is_selected {
                child.walk(rest, found);
            }
            if segment.is_descendant {
                child.walk(segments, found);
            }
        }
    }
}

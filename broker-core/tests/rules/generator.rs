//! Draws messages and filters, and writes filters as text.

use peeklock_store_testing::Random;

use super::oracle::{Expr, Pred, Val, World};

/// Names of application properties; several differ only in case.
const NAMES: &[&str] = &["a", "A", "b", "Bb", "bB", "größe", "GRÖSSE", "a b", "and", "x]y"];
const SYS: &[&str] =
    &["Label", "SequenceNumber", "State", "To", "TimeToLive", "EnqueuedTimeUtc", "Size", "Nope"];
const TEXTS: &[&str] = &[
    "",
    "a",
    "A",
    "b",
    "ab",
    "aab",
    "abab",
    "a%",
    "a_b",
    "%",
    "ä",
    "日本",
    "it's",
    "00000000-0000-0000-0000-000000000001",
];
const PATTERNS: &[&str] =
    &["%", "_", "a%", "%b", "%a%b", "a_", "__", "!%", "a!%", "a!_%", "a!", "%a_%"];
const INTEGERS: &[i128] = &[
    0,
    1,
    2,
    3,
    5,
    100,
    127,
    128,
    255,
    65_535,
    2_147_483_647,
    4_294_967_295,
    9_007_199_254_740_993,
    i64::MAX as i128,
];

pub struct Generator {
    pub random: Random,
}

impl Generator {
    fn pick<T: Clone>(&mut self, list: &[T]) -> T {
        list[self.random.index(list.len())].clone()
    }

    pub fn value(&mut self) -> Val {
        match self.random.below(16) {
            0 => Val::Null,
            1 => Val::Bool(self.random.one_in(2)),
            2..=5 => self.integer(),
            6 => Val::Float(self.pick(&[0.0, 0.5, 1.0, 2.0, -1.5, f32::NAN, 16_777_216.0])),
            7 => Val::Double(self.pick(&[
                0.0,
                0.5,
                1.0,
                2.0,
                0.1,
                -3.0,
                f64::NAN,
                f64::INFINITY,
                9_007_199_254_740_992.0,
            ])),
            8..=10 => Val::Text(self.pick(TEXTS).to_owned()),
            11 => Val::Char(self.pick(&['a', 'b', 'ä', '1'])),
            12 => Val::Uuid(self.pick(&[0, 1, u128::MAX])),
            13 => Val::Instant(self.pick(&[0, 10_000, 17_000_000_000_000_000])),
            14 => Val::Span(self.pick(&[0, 1, 10_000, -5, i64::MAX])),
            _ => match self.random.below(2) {
                0 => Val::Bytes(self.pick(&[vec![], vec![1], vec![1, 2]])),
                _ => Val::Uri(self.pick(&["u:a", "a"]).to_owned()),
            },
        }
    }

    fn integer(&mut self) -> Val {
        let value = self.pick(INTEGERS);
        let value = if self.random.one_in(3) { -value } else { value };
        let fits = |low: i128, high: i128| (low..=high).contains(&value);
        let all: [(&'static str, bool); 8] = [
            ("i8", fits(-128, 127)),
            ("i16", fits(-32_768, 32_767)),
            ("i32", fits(-(1 << 31), (1 << 31) - 1)),
            ("i64", true),
            ("u8", fits(0, 255)),
            ("u16", fits(0, 65_535)),
            ("u32", fits(0, (1 << 32) - 1)),
            ("u64", fits(0, (1 << 64) - 1)),
        ];
        let possible: Vec<_> =
            all.iter().filter(|(_, fits)| *fits).map(|(name, _)| *name).collect();
        Val::Int(value, self.pick(&possible))
    }

    pub fn world(&mut self) -> World {
        let mut world = World::default();
        for &name in NAMES {
            if !self.random.one_in(3) {
                let value = self.value();
                world.user.push((name.to_owned(), value));
            }
        }
        let text = |this: &mut Self| match this.random.below(3) {
            0 => Val::Null,
            _ => Val::Text(this.pick(TEXTS).to_owned()),
        };
        world.sys = vec![
            ("Label", text(self)),
            ("To", text(self)),
            ("SequenceNumber", Val::Int(7, "i64")),
            ("State", Val::Text("Active".to_owned())),
            ("Size", Val::Int(100, "u64")),
            ("EnqueuedTimeUtc", Val::Instant(10_000)),
        ];
        let span = if self.random.one_in(2) { Val::Null } else { Val::Span(10_000) };
        world.sys.push(("TimeToLive", span));
        world
    }

    fn name(&mut self) -> String {
        if self.random.one_in(8) {
            return "absent".to_owned();
        }
        let name = self.pick(NAMES).to_owned();
        match self.random.below(4) {
            0 => name.to_uppercase(),
            1 => name.to_lowercase(),
            _ => name,
        }
    }

    fn constant(&mut self) -> Expr {
        let (text, value) = match self.random.below(9) {
            0 => ("NULL".to_owned(), Val::Null),
            1 => ("TRUE".to_owned(), Val::Bool(true)),
            2 => ("false".to_owned(), Val::Bool(false)),
            3..=5 => {
                let value = self.pick(INTEGERS);
                (value.to_string(), Val::Int(value, "i64"))
            }
            6 => {
                let text = self.pick(&["0.5", "1.0", "2.", ".5", "1e2", "2E-1", "1.5e+3"]);
                (text.to_owned(), Val::Double(text.parse().expect("a number")))
            }
            _ => {
                let text = self.pick(TEXTS);
                (format!("'{}'", text.replace('\'', "''")), Val::Text(text.to_owned()))
            }
        };
        Expr::Constant(text, value)
    }

    fn text_constant(&mut self, texts: &[&str]) -> Expr {
        let text = self.pick(texts);
        Expr::Constant(format!("'{}'", text.replace('\'', "''")), Val::Text(text.to_owned()))
    }

    pub fn expr(&mut self, depth: u32, parameters: &mut Vec<(String, Val)>) -> Expr {
        if depth == 0 || self.random.one_in(3) {
            return match self.random.below(10) {
                0..=3 => Expr::User(self.name()),
                4 => Expr::Sys(self.pick(SYS).to_owned()),
                5 => {
                    let name = format!("p{}", parameters.len());
                    let value = self.value();
                    parameters.push((name.clone(), value.clone()));
                    Expr::Parameter(name, value)
                }
                _ => self.constant(),
            };
        }
        match self.random.below(12) {
            0 => Expr::Sign('-', Box::new(self.expr(depth - 1, parameters))),
            1 => Expr::Sign('+', Box::new(self.expr(depth - 1, parameters))),
            2 => {
                let name = match self.random.below(3) {
                    0 => self.expr(depth - 1, parameters),
                    1 => self.text_constant(&[
                        "a",
                        "user.b",
                        "sys.label",
                        "SYS.Nope",
                        "a.b",
                        "User.A",
                    ]),
                    _ => Expr::User(self.name()),
                };
                Expr::Named(Box::new(name))
            }
            _ => {
                let operator = self.pick(&['+', '+', '-', '-', '*', '/', '%']);
                let left = self.expr(depth - 1, parameters);
                let right = self.expr(depth - 1, parameters);
                Expr::Binary(operator, Box::new(left), Box::new(right))
            }
        }
    }

    pub fn pred(&mut self, depth: u32, parameters: &mut Vec<(String, Val)>) -> Pred {
        let negated = self.random.one_in(3);
        match self.random.below(if depth == 0 { 12 } else { 20 }) {
            0..=5 => {
                let operator = self.pick(&["=", "=", "<>", "!=", "<", "<=", ">", ">="]);
                Pred::Compare(operator, self.expr(2, parameters), self.expr(2, parameters))
            }
            6 => Pred::IsNull(self.expr(1, parameters), negated),
            7 => {
                let count = self.random.between(1, 4);
                let operand = self.expr(1, parameters);
                let list = (0..count).map(|_| self.expr(1, parameters)).collect();
                Pred::In(operand, list, negated)
            }
            8 => {
                let text = match self.random.below(3) {
                    0 => self.expr(1, parameters),
                    _ => self.text_constant(TEXTS),
                };
                let pattern = match self.random.below(4) {
                    0 => self.expr(1, parameters),
                    _ => self.text_constant(PATTERNS),
                };
                let escape = match self.random.below(6) {
                    0 => Some(self.expr(0, parameters)),
                    1..=3 => Some(self.text_constant(&["!", "!", "%", "", "ab"])),
                    _ => None,
                };
                Pred::Like(text, pattern, escape, negated)
            }
            9 => Pred::ExistsUser(self.name()),
            10 => Pred::ExistsSys(self.pick(SYS).to_owned()),
            11 => Pred::Bare(self.expr(1, parameters)),
            12 => Pred::Not(Box::new(self.pred(depth - 1, parameters))),
            13..=16 => Pred::And(
                Box::new(self.pred(depth - 1, parameters)),
                Box::new(self.pred(depth - 1, parameters)),
            ),
            _ => Pred::Or(
                Box::new(self.pred(depth - 1, parameters)),
                Box::new(self.pred(depth - 1, parameters)),
            ),
        }
    }

    // Writing

    fn space(&mut self) -> &'static str {
        self.pick(&[" ", " ", " ", "  ", "\n", "\t"])
    }

    fn word(&mut self, word: &str) -> String {
        let (before, after) = (self.space(), self.space());
        let word = match self.random.below(3) {
            0 => word.to_lowercase(),
            _ => word.to_owned(),
        };
        format!("{before}{word}{after}")
    }

    fn written_name(&mut self, name: &str) -> String {
        let regular = name.chars().all(|c| c.is_alphabetic()) && !name.eq_ignore_ascii_case("and");
        match self.random.below(3) {
            0 | 1 if regular => name.to_owned(),
            2 => format!("\"{}\"", name.replace('"', "\"\"")),
            _ => format!("[{}]", name.replace(']', "]]")),
        }
    }

    fn user_name(&mut self, name: &str) -> String {
        let scope = if self.random.one_in(3) { "user." } else { "" };
        format!("{scope}{}", self.written_name(name))
    }

    /// Precedence of a written expression: 1 sums, 2 products, 3 signs, 4 everything else.
    pub fn write_expr(&mut self, expr: &Expr, tightness: u32) -> String {
        let (text, own) = match expr {
            Expr::Constant(text, _) => (text.clone(), 4),
            Expr::Parameter(name, _) => (format!("@{name}"), 4),
            Expr::User(name) => (self.user_name(name), 4),
            Expr::Sys(name) => (format!("sys.{}", self.written_name(name)), 4),
            Expr::Named(name) => {
                let function = self.pick(&["property", "p", "P", "PROPERTY"]);
                (format!("{function}({})", self.write_expr(name, 1)), 4)
            }
            Expr::Sign(sign, operand) => (format!("{sign}{}", self.write_expr(operand, 3)), 3),
            Expr::Binary(operator, left, right) => {
                let own = if matches!(operator, '+' | '-') { 1 } else { 2 };
                let left = self.write_expr(left, own);
                let right = self.write_expr(right, own + 1);
                (format!("{left}{}{operator}{}{right}", self.space(), self.space()), own)
            }
        };
        if own < tightness || self.random.one_in(8) { format!("({text})") } else { text }
    }

    /// Precedence of a written condition: 1 OR, 2 AND, 3 NOT, 4 everything else.
    pub fn write_pred(&mut self, pred: &Pred, tightness: u32) -> String {
        let not = |this: &mut Self, negated: &bool| match negated {
            true => this.word("NOT"),
            false => " ".to_owned(),
        };
        let (text, own) = match pred {
            Pred::Compare(operator, left, right) => {
                let left = self.write_expr(left, 1);
                let right = self.write_expr(right, 1);
                (format!("{left} {operator}{}{right}", self.space()), 4)
            }
            Pred::IsNull(expr, negated) => {
                let expr = self.write_expr(expr, 1);
                (format!("{expr}{}{}NULL", self.word("IS"), not(self, negated)), 4)
            }
            Pred::In(expr, list, negated) => {
                let expr = self.write_expr(expr, 1);
                let list: Vec<_> = list.iter().map(|element| self.write_expr(element, 1)).collect();
                let not = not(self, negated);
                (format!("{expr}{not}{}({})", self.word("IN"), list.join(", ")), 4)
            }
            Pred::Like(text, pattern, escape, negated) => {
                let text = self.write_expr(text, 1);
                let pattern = self.write_expr(pattern, 1);
                let not = not(self, negated);
                let mut written = format!("{text}{not}{}{pattern}", self.word("LIKE"));
                if let Some(escape) = escape {
                    let escape = self.write_expr(escape, 1);
                    written += &format!("{}{escape}", self.word("ESCAPE"));
                }
                (written, 4)
            }
            Pred::ExistsUser(name) => (format!("EXISTS({})", self.user_name(name)), 4),
            Pred::ExistsSys(name) => (format!("exists ( sys.{name} )"), 4),
            Pred::Bare(expr) => (self.write_expr(expr, 1), 4),
            Pred::Not(inner) => (format!("{}{}", self.word("NOT"), self.write_pred(inner, 3)), 3),
            Pred::And(left, right) => {
                let (left, right) = (self.write_pred(left, 2), self.write_pred(right, 3));
                (format!("{left}{}{right}", self.word("AND")), 2)
            }
            Pred::Or(left, right) => {
                let (left, right) = (self.write_pred(left, 1), self.write_pred(right, 2));
                (format!("{left}{}{right}", self.word("OR")), 1)
            }
        };
        if own < tightness || self.random.one_in(10) { format!("({text})") } else { text }
    }
}

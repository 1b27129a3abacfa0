//! The filter language by the specification: a tree that is evaluated over values of its own. Slow
//! and simple, and independent of the broker except for the texts of instants and time-spans.

use std::cmp::Ordering;

use peeklock_core::time::{TimeSpan, Timestamp};

/// A value, with the type name for numbers.
#[derive(Clone, Debug, PartialEq)]
pub enum Val {
    Null,
    Bool(bool),
    Int(i128, &'static str),
    Float(f32),
    Double(f64),
    Text(String),
    Char(char),
    Uuid(u128),
    /// Ticks since 1970.
    Instant(i128),
    Span(i64),
    Bytes(Vec<u8>),
    Uri(String),
}

/// An expression with a value.
#[derive(Clone, Debug)]
pub enum Expr {
    /// A constant in its written form.
    Constant(String, Val),
    Parameter(String, Val),
    User(String),
    Sys(String),
    /// `property(...)`
    Named(Box<Self>),
    Sign(char, Box<Self>),
    Binary(char, Box<Self>, Box<Self>),
}

/// A condition that is true, false or unknown.
#[derive(Clone, Debug)]
pub enum Pred {
    Compare(&'static str, Expr, Expr),
    IsNull(Expr, bool),
    In(Expr, Vec<Expr>, bool),
    Like(Expr, Expr, Option<Expr>, bool),
    ExistsUser(String),
    ExistsSys(String),
    Bare(Expr),
    Not(Box<Self>),
    And(Box<Self>, Box<Self>),
    Or(Box<Self>, Box<Self>),
}

/// The evaluated message.
#[derive(Clone, Debug, Default)]
pub struct World {
    pub user: Vec<(String, Val)>,
    /// Broker properties by name; unset ones are null.
    pub sys: Vec<(&'static str, Val)>,
}

/// A short name of an error.
pub type Failed = &'static str;

impl World {
    /// SQL-07
    fn user(&self, name: &str) -> Option<&Val> {
        let exact = self.user.iter().find(|(key, _)| key == name);
        let mut others: Vec<_> =
            self.user.iter().filter(|(key, _)| key.to_lowercase() == name.to_lowercase()).collect();
        others.sort_by(|a, b| a.0.as_bytes().cmp(b.0.as_bytes()));
        exact.or(others.first().copied()).map(|(_, value)| value)
    }

    /// SQL-10
    fn sys(&self, name: &str) -> Result<&Val, Failed> {
        self.sys
            .iter()
            .find(|(known, _)| known.to_lowercase() == name.to_lowercase())
            .map(|(_, value)| value)
            .ok_or("no such property")
    }

    fn value(&self, expr: &Expr) -> Result<Val, Failed> {
        Ok(match expr {
            Expr::Constant(_, value) | Expr::Parameter(_, value) => value.clone(),
            Expr::User(name) => self.user(name).cloned().unwrap_or(Val::Null),
            Expr::Sys(name) => self.sys(name)?.clone(),
            Expr::Named(name) => {
                let name = match self.value(name)? {
                    Val::Null => return Ok(Val::Null),
                    Val::Text(name) => name,
                    Val::Char(name) => name.to_string(),
                    _ => return Err("name is not text"),
                };
                let lower = name.to_lowercase();
                if lower.starts_with("sys.") {
                    self.sys(&name[4..])?.clone()
                } else if lower.starts_with("user.") {
                    self.user(&name[5..]).cloned().unwrap_or(Val::Null)
                } else {
                    self.user(&name).cloned().unwrap_or(Val::Null)
                }
            }
            Expr::Sign(sign, operand) => signed(*sign, self.value(operand)?)?,
            Expr::Binary(operator, left, right) => {
                let left = self.value(left)?;
                let right = self.value(right)?;
                binary(*operator, left, right)?
            }
        })
    }

    /// SQL-15 to SQL-29; `None` is Unknown.
    pub fn truth(&self, pred: &Pred) -> Result<Option<bool>, Failed> {
        let inverted = |negated: bool, truth: Option<bool>| truth.map(|value| value != negated);
        match pred {
            Pred::Compare(operator, left, right) => {
                compare(operator, &self.value(left)?, &self.value(right)?)
            }
            Pred::IsNull(expr, negated) => Ok(Some((self.value(expr)? == Val::Null) != *negated)),
            Pred::In(expr, list, negated) => {
                let value = self.value(expr)?;
                if value == Val::Null {
                    return Ok(None);
                }
                let mut result = Some(false);
                for element in list {
                    match compare("=", &value, &self.value(element)?)? {
                        Some(true) => return Ok(inverted(*negated, Some(true))),
                        Some(false) => {}
                        None => result = None,
                    }
                }
                Ok(inverted(*negated, result))
            }
            Pred::Like(text, pattern, escape, negated) => {
                let text = self.value(text)?;
                let pattern = self.value(pattern)?;
                let escape = match escape {
                    Some(escape) => Some(self.value(escape)?),
                    None => None,
                };
                if text == Val::Null || pattern == Val::Null || escape == Some(Val::Null) {
                    return Ok(None);
                }
                let (Val::Text(text), Val::Text(pattern)) = (text, pattern) else {
                    return Err("LIKE on something else than text");
                };
                let escape = match escape {
                    None => None,
                    Some(Val::Text(escape)) if escape.chars().count() == 1 => escape.chars().next(),
                    Some(_) => return Err("bad escape"),
                };
                let found = like(&text, &pattern, escape)?;
                Ok(inverted(*negated, Some(found)))
            }
            Pred::ExistsUser(name) => Ok(Some(self.user(name).is_some())),
            Pred::ExistsSys(name) => Ok(Some(*self.sys(name)? != Val::Null)),
            Pred::Bare(expr) => match self.value(expr)? {
                Val::Bool(value) => Ok(Some(value)),
                Val::Null => Ok(None),
                _ => Err("not a condition"),
            },
            Pred::Not(inner) => Ok(inverted(true, self.truth(inner)?)),
            Pred::And(left, right) => {
                let left = self.truth(left)?;
                if left == Some(false) {
                    return Ok(left);
                }
                let right = self.truth(right)?;
                if right == Some(false) {
                    return Ok(right);
                }
                Ok(if left.is_none() || right.is_none() { None } else { Some(true) })
            }
            Pred::Or(left, right) => {
                let left = self.truth(left)?;
                if left == Some(true) {
                    return Ok(left);
                }
                let right = self.truth(right)?;
                if right == Some(true) {
                    return Ok(right);
                }
                Ok(if left.is_none() || right.is_none() { None } else { Some(false) })
            }
        }
    }
}

/// SQL-26, SQL-27: a table of the suffixes of the text that match suffixes of the pattern.
fn like(text: &str, pattern: &str, escape: Option<char>) -> Result<bool, Failed> {
    enum Part {
        One(char),
        Any,
        Many,
    }
    let pattern: Vec<char> = pattern.chars().collect();
    let mut parts = Vec::new();
    let mut at = 0;
    while at < pattern.len() {
        let character = pattern[at];
        if Some(character) == escape {
            let Some(next) = pattern.get(at + 1) else { return Err("dangling escape") };
            if *next == '%' || *next == '_' || Some(*next) == escape {
                parts.push(Part::One(*next));
                at += 2;
                continue;
            }
            parts.push(Part::One(character));
        } else {
            parts.push(match character {
                '%' => Part::Many,
                '_' => Part::Any,
                other => Part::One(other),
            });
        }
        at += 1;
    }
    let text: Vec<char> = text.chars().collect();
    let mut table = vec![vec![false; parts.len() + 1]; text.len() + 1];
    for from in (0..=text.len()).rev() {
        for part in (0..=parts.len()).rev() {
            table[from][part] = match parts.get(part) {
                None => from == text.len(),
                Some(Part::Many) => {
                    table[from][part + 1] || (from < text.len() && table[from + 1][part])
                }
                Some(Part::Any) => from < text.len() && table[from + 1][part + 1],
                Some(Part::One(wanted)) => {
                    text.get(from) == Some(wanted) && table[from + 1][part + 1]
                }
            };
        }
    }
    Ok(table[0][0])
}

fn is_number(value: &Val) -> bool {
    matches!(value, Val::Int(..) | Val::Float(_) | Val::Double(_))
}

fn as_text(value: &Val) -> Option<String> {
    match value {
        Val::Text(text) => Some(text.clone()),
        Val::Char(character) => Some(character.to_string()),
        _ => None,
    }
}

/// The text of a value in a concatenation (SQL-34).
fn written(value: &Val) -> Option<String> {
    let float = |value: f64, plain: String, scientific: String| {
        let is_plain = value == 0.0 || (1e-5..1e15).contains(&value.abs());
        match value {
            _ if value.is_nan() => "NaN".to_owned(),
            f64::INFINITY => "Infinity".to_owned(),
            f64::NEG_INFINITY => "-Infinity".to_owned(),
            _ if is_plain => plain,
            _ => scientific,
        }
    };
    Some(match value {
        Val::Null | Val::Bytes(_) => return None,
        Val::Text(text) | Val::Uri(text) => text.clone(),
        Val::Char(character) => character.to_string(),
        Val::Bool(value) => value.to_string(),
        Val::Int(value, _) => value.to_string(),
        Val::Float(value) => float(f64::from(*value), value.to_string(), format!("{value:E}")),
        Val::Double(value) => float(*value, value.to_string(), format!("{value:E}")),
        Val::Uuid(uuid) => hyphenated(*uuid),
        Val::Instant(ticks) => return instant_written(*ticks),
        Val::Span(ticks) => {
            let magnitude = TimeSpan::from_ticks(ticks.checked_abs().unwrap_or(i64::MAX));
            format!("{}{magnitude}", if *ticks < 0 { "-" } else { "" })
        }
    })
}

/// An instant in ticks since 1970, if a calendar has it.
fn instant_written(ticks: i128) -> Option<String> {
    let at = Timestamp::from_unix_ms(0).ticks();
    let ticks = i64::try_from(ticks + i128::from(at)).ok()?;
    let instant = Timestamp::from_ticks(ticks);
    (instant.ticks() == ticks).then(|| instant.to_string())
}

fn double(value: &Val) -> f64 {
    match value {
        Val::Int(value, _) => *value as f64,
        Val::Float(value) => f64::from(*value),
        Val::Double(value) => *value,
        _ => f64::NAN,
    }
}

fn hyphenated(uuid: u128) -> String {
    let digits = format!("{uuid:032x}");
    let parts = [&digits[..8], &digits[8..12], &digits[12..16], &digits[16..20], &digits[20..]];
    parts.join("-")
}

/// SQL-28, SQL-35 to SQL-39
fn compare(operator: &str, left: &Val, right: &Val) -> Result<Option<bool>, Failed> {
    if *left == Val::Null || *right == Val::Null {
        return Ok(None);
    }
    let forbidden = |a: &Val, b: &Val| matches!(a, Val::Char(_)) && is_number(b);
    if forbidden(left, right) || forbidden(right, left) {
        return Err("char and number");
    }
    let order: Option<Ordering> = match (left, right) {
        (Val::Bool(left), Val::Bool(right)) => match operator {
            "=" => return Ok(Some(left == right)),
            "<>" | "!=" => return Ok(Some(left != right)),
            _ => return Err("order of bools"),
        },
        (Val::Int(left, _), Val::Int(right, _)) => Some(left.cmp(right)),
        (left, right) if is_number(left) && is_number(right) => {
            double(left).partial_cmp(&double(right))
        }
        (Val::Uuid(left), Val::Uuid(right)) => Some(left.cmp(right)),
        (Val::Uuid(left), Val::Text(right)) => Some(hyphenated(*left).cmp(right)),
        (Val::Text(left), Val::Uuid(right)) => Some(left.cmp(&hyphenated(*right))),
        (Val::Instant(left), Val::Instant(right)) => Some(left.cmp(right)),
        (Val::Span(left), Val::Span(right)) => Some(left.cmp(right)),
        (Val::Bytes(left), Val::Bytes(right)) => Some(left.cmp(right)),
        (Val::Uri(left), Val::Uri(right)) => Some(left.cmp(right)),
        (left, right) => match (as_text(left), as_text(right)) {
            (Some(left), Some(right)) => Some(left.chars().cmp(right.chars())),
            _ => {
                return match operator {
                    "=" => Ok(Some(false)),
                    "<>" | "!=" => Ok(Some(true)),
                    _ => Err("order of incompatible types"),
                };
            }
        },
    };
    let Some(order) = order else {
        return Ok(Some(matches!(operator, "<>" | "!=")));
    };
    Ok(Some(match operator {
        "=" => order == Ordering::Equal,
        "<>" | "!=" => order != Ordering::Equal,
        "<" => order == Ordering::Less,
        "<=" => order != Ordering::Greater,
        ">" => order == Ordering::Greater,
        _ => order != Ordering::Less,
    }))
}

/// The type of integers below 32 bits in an operation.
fn widened(name: &'static str) -> &'static str {
    match name {
        "i8" | "i16" | "u8" | "u16" => "i32",
        other => other,
    }
}

/// SQL-30, SQL-31
fn common(left: &'static str, right: &'static str) -> &'static str {
    let mut names = [widened(left), widened(right)];
    names.sort_unstable();
    match names {
        ["i32", "i32"] => "i32",
        ["u32", "u32"] => "u32",
        ["u64", "u64"] | ["u32", "u64"] => "u64",
        [_, "u64"] => "i64 or u64",
        _ => "i64",
    }
}

fn fits(value: i128, name: &str) -> Option<Val> {
    let range = |low: i128, high: i128| (low..=high).contains(&value);
    let (i64_min, i64_max) = (i128::from(i64::MIN), i128::from(i64::MAX));
    let name = match name {
        "i32" if range(-(1 << 31), (1 << 31) - 1) => "i32",
        "u32" if range(0, (1 << 32) - 1) => "u32",
        "i64" | "i64 or u64" if range(i64_min, i64_max) => "i64",
        "u64" | "i64 or u64" if range(0, (1 << 64) - 1) => "u64",
        _ => return None,
    };
    Some(Val::Int(value, name))
}

fn signed(sign: char, operand: Val) -> Result<Val, Failed> {
    match (sign, operand) {
        (_, Val::Null) => Ok(Val::Null),
        ('+', Val::Int(value, name)) => Ok(Val::Int(value, widened(name))),
        ('+', value @ (Val::Float(_) | Val::Double(_))) => Ok(value),
        ('-', Val::Int(value, name)) => {
            let name = match widened(name) {
                "i32" => "i32",
                "u64" => "i64 or u64",
                _ => "i64",
            };
            fits(-value, name).ok_or("overflow")
        }
        ('-', Val::Float(value)) => Ok(Val::Float(-value)),
        ('-', Val::Double(value)) => Ok(Val::Double(-value)),
        ('-', Val::Span(ticks)) => ticks.checked_neg().map(Val::Span).ok_or("overflow"),
        _ => Err("sign of something else than a number"),
    }
}

/// SQL-30 to SQL-34, SQL-37
fn binary(operator: char, left: Val, right: Val) -> Result<Val, Failed> {
    if left == Val::Null || right == Val::Null {
        return Ok(Val::Null);
    }
    if is_number(&left) && is_number(&right) {
        return arithmetic(operator, &left, &right);
    }
    let has_text = matches!(left, Val::Text(_)) || matches!(right, Val::Text(_));
    let are_chars = matches!((&left, &right), (Val::Char(_), Val::Char(_)));
    if operator == '+'
        && (has_text || are_chars)
        && let (Some(left), Some(right)) = (written(&left), written(&right))
    {
        return Ok(Val::Text(left + &right));
    }
    let span = |ticks: i128| i64::try_from(ticks).map(Val::Span).map_err(|_| "overflow");
    match (operator, left, right) {
        ('+', Val::Span(left), Val::Span(right)) => span(i128::from(left) + i128::from(right)),
        ('-', Val::Span(left), Val::Span(right)) => span(i128::from(left) - i128::from(right)),
        ('-', Val::Instant(left), Val::Instant(right)) => span(left - right),
        ('+', Val::Instant(at), Val::Span(ticks)) | ('+', Val::Span(ticks), Val::Instant(at)) => {
            Ok(Val::Instant(at + i128::from(ticks)))
        }
        ('-', Val::Instant(at), Val::Span(ticks)) => Ok(Val::Instant(at - i128::from(ticks))),
        _ => Err("arithmetic of other types"),
    }
}

fn arithmetic(operator: char, left: &Val, right: &Val) -> Result<Val, Failed> {
    if let (Val::Int(left, left_name), Val::Int(right, right_name)) = (left, right) {
        if matches!(operator, '/' | '%') && *right == 0 {
            return Err("division by zero");
        }
        let value = match operator {
            '+' => left + right,
            '-' => left - right,
            '*' => left.checked_mul(*right).ok_or("overflow")?,
            '/' => left / right,
            _ => left % right,
        };
        return fits(value, common(left_name, right_name)).ok_or("overflow");
    }
    let has_double = matches!(left, Val::Double(_)) || matches!(right, Val::Double(_));
    if has_double {
        let (left, right) = (double(left), double(right));
        return Ok(Val::Double(match operator {
            '+' => left + right,
            '-' => left - right,
            '*' => left * right,
            '/' => left / right,
            _ => left % right,
        }));
    }
    let single = |value: &Val| match value {
        Val::Int(value, _) => *value as f32,
        Val::Float(value) => *value,
        _ => f32::NAN,
    };
    let (left, right) = (single(left), single(right));
    Ok(Val::Float(match operator {
        '+' => left + right,
        '-' => left - right,
        '*' => left * right,
        '/' => left / right,
        _ => left % right,
    }))
}

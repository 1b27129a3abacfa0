//! The filter and the action of a rule as flags. `rule add`, `update`, `test` and `subscription
//! create` share them.

use clap::Args;
use peeklock::message::Value;
use peeklock::rule::{
    CorrelationField, CorrelationFilter, DEFAULT_RULE, Filter, RuleDescription, SqlText,
    SystemProperty,
};
use peeklock::time::Timestamp;

use super::super::property::{Property, property};

/// The filter and the action of a rule.
#[derive(Args)]
#[command(next_help_heading = "Filter and action")]
pub struct FilterFlags {
    /// SQL condition for messages, such as "price > 5 AND sys.Label = 'order'"
    #[arg(long, value_name = "TEXT", visible_alias = "filter",
          conflicts_with_all = ["correlation", "all", "none"])]
    sql: Option<String>,
    /// Value of a parameter of the condition, such as `@limit:i32=7`; may be repeated
    #[arg(long, value_name = "@NAME[:TYPE]=VALUE", value_parser = property, requires = "sql")]
    parameter: Vec<Property>,
    /// Select messages with exactly this value of an application property, or of a broker property,
    /// such as `sys.Label=order`; may be repeated, and then all values must match. Faster than the
    /// same condition in SQL
    #[arg(long, value_name = "KEY[:TYPE]=VALUE", value_parser = correlation,
          conflicts_with_all = ["all", "none"])]
    correlation: Vec<Correlation>,
    /// Select every message
    #[arg(long, conflicts_with = "none")]
    all: bool,
    /// Select no message
    #[arg(long)]
    none: bool,
    /// Change selected messages, such as "SET priority = 'high'; REMOVE draft"
    #[arg(long, value_name = "TEXT")]
    action: Option<String>,
    /// Value of a parameter of the action, such as `@level:i32=2`; may be repeated
    #[arg(long, value_name = "@NAME[:TYPE]=VALUE", value_parser = property, requires = "action")]
    action_parameter: Vec<Property>,
}

/// One value that a message must have.
#[derive(Clone)]
enum Correlation {
    Broker(CorrelationField, String),
    Application(Property),
}

fn correlation(text: &str) -> Result<Correlation, String> {
    let of_broker = text.split_once('=').and_then(|(name, value)| {
        let prefix = name.get(..4)?;
        prefix.eq_ignore_ascii_case("sys.").then_some((name.get(4..)?, value))
    });
    let Some((name, value)) = of_broker else {
        return match property(text)? {
            (_, Value::Null) => {
                Err("null never equals a value; give a value to compare with".to_owned())
            }
            property => Ok(Correlation::Application(property)),
        };
    };
    let property = SystemProperty::parse(name);
    let field = CorrelationFilter::FIELDS
        .into_iter()
        .find(|field| property == Some(SystemProperty::Settable(field.property)));
    let Some(field) = field else {
        let names = CorrelationFilter::FIELDS.map(|field| field.property.name()).join(" ");
        return Err(format!("`sys.{name}` cannot be used in a filter; usable are {names}"));
    };
    Ok(Correlation::Broker(field, value.to_owned()))
}

impl FilterFlags {
    /// The filter, if one is given.
    pub fn filter(&self) -> Option<Filter> {
        if let Some(text) = &self.sql {
            return Some(Filter::Sql(sql(text, &self.parameter)));
        }
        if !self.correlation.is_empty() {
            return Some(Filter::Correlation(self.correlated()));
        }
        match (self.all, self.none) {
            (true, _) => Some(Filter::True),
            (_, true) => Some(Filter::False),
            (false, false) => None,
        }
    }

    /// Whether any flag of a rule is given.
    pub const fn is_given(&self) -> bool {
        self.sql.is_some()
            || !self.correlation.is_empty()
            || self.all
            || self.none
            || self.action.is_some()
    }

    /// The rule with this name; without a filter it selects every message.
    pub fn rule(&self, name: &str) -> RuleDescription {
        let filter = self.filter().unwrap_or(Filter::True);
        let rule = RuleDescription::new(name, filter, Timestamp::NONE);
        match &self.action {
            Some(text) => rule.with_action(sql(text, &self.action_parameter)),
            None => rule,
        }
    }

    /// The first rule of a new subscription; none for the default rule (TOP-12).
    pub fn first_rule(&self, name: Option<&str>) -> Option<RuleDescription> {
        (self.is_given() || name.is_some()).then(|| self.rule(name.unwrap_or(DEFAULT_RULE)))
    }

    fn correlated(&self) -> CorrelationFilter {
        let mut filter = CorrelationFilter::default();
        for one in &self.correlation {
            match one {
                Correlation::Application((key, value)) => {
                    filter = filter.and_property(key.as_str(), value.clone());
                }
                Correlation::Broker(field, value) => {
                    field.set(&mut filter, Some(value.as_str().into()));
                }
            }
        }
        filter
    }
}

fn sql(text: &str, parameters: &[Property]) -> SqlText {
    SqlText { text: text.into(), parameters: parameters.iter().cloned().collect() }
}

/// A filter in words.
pub fn shown(filter: &Filter) -> String {
    match filter {
        Filter::True => "every message".to_owned(),
        Filter::False => "no message".to_owned(),
        Filter::Sql(sql) => with_parameters(sql),
        Filter::Correlation(filter) => {
            let broker = filter.broker_properties();
            let broker = broker
                .map(|(field, value)| format!("sys.{} = {}", field.property.name(), quoted(value)));
            let own = filter.properties.iter();
            let own = own.map(|(key, value)| format!("{key} = {}", value_text(value)));
            broker.chain(own).collect::<Vec<_>>().join(" AND ")
        }
    }
}

/// A text with the values of its parameters.
pub fn with_parameters(sql: &SqlText) -> String {
    if sql.parameters.is_empty() {
        return sql.text.to_string();
    }
    let values = sql.parameters.iter();
    let values: Vec<_> =
        values.map(|(name, value)| format!("@{name} = {}", value_text(value))).collect();
    format!("{}   with {}", sql.text, values.join(", "))
}

fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => quoted(text),
        other => super::super::message::plain(other),
    }
}

fn quoted(text: &str) -> String {
    format!("'{}'", text.replace('\'', "''"))
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Parser)]
    struct Line {
        #[command(flatten)]
        filter: FilterFlags,
    }

    fn rule(arguments: &[&str]) -> Result<RuleDescription, clap::Error> {
        let line = Line::try_parse_from([&["rule"], arguments].concat())?;
        Ok(line.filter.rule("r"))
    }

    #[track_caller]
    fn check(arguments: &[&str], expected: &str) {
        assert_eq!(shown(&rule(arguments).unwrap().filter), expected);
    }

    /// TOP-14, TOP-18, SQL-14
    #[test]
    fn filter_follows_from_the_flags() {
        check(&[], "every message");
        check(&["--all"], "every message");
        check(&["--none"], "no message");
        check(&["--sql", "a = 1"], "a = 1");
        check(&["--filter", "a = 1"], "a = 1");
        check(&["--sql", "a = @b", "--parameter", "@b:i32=7"], "a = @b   with @b = 7");
        check(
            &[
                "--correlation",
                "sys.Label=it's",
                "--correlation",
                "n:i32=7",
                "--correlation",
                "k=v",
            ],
            "sys.Subject = 'it''s' AND n = 7 AND k = 'v'",
        );
        let rule = rule(&["--all", "--action", "SET a = 1"]).unwrap();
        assert_eq!(rule.action, Some(SqlText::new("SET a = 1")));
    }

    #[test]
    fn flags_that_contradict_each_other_are_refused() {
        for arguments in [
            &["--all", "--none"][..],
            &["--sql", "1=1", "--all"],
            &["--sql", "1=1", "--correlation", "a=b"],
            &["--parameter", "a=b"],
            &["--action-parameter", "a=b"],
            &["--correlation", "sys.TimeToLive=1"],
            &["--correlation", "a:null="],
            &["--correlation", "a"],
        ] {
            assert!(rule(arguments).is_err(), "{arguments:?}");
        }
    }
}

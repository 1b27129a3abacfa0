//! Properties of entities as flags and as table rows, generated from the table of properties. The
//! create, update and show commands share them, so a new property appears in all.

use clap::builder::{PossibleValuesParser, ValueParser};
use clap::{Arg, ArgAction, ArgMatches, Args, Command, Error, FromArgMatches, value_parser};
use peeklock::description::{Cleared, Description, EntityStatus, Field, FieldKind, FieldValue};
use peeklock::limits::Limits;
use peeklock::time::TimeSpan;

use super::arguments::{span_of, status_of};
use super::retry::{Retries, policy_text};
use crate::config::span_text;

/// Properties given as flags, under their names in the description. Durations have forms such as
/// `30s`, `1h 30m`, `PT30S`, `P1D` or `unlimited`.
pub struct Properties<D: Description>(D::Update);

impl<D: Description> Properties<D> {
    /// Update with the given properties.
    pub fn update(&self) -> D::Update {
        self.0.clone()
    }
}

/// Fields in the order of flags and rows.
fn in_order<D: Description>() -> Vec<&'static Field<D>> {
    let mut fields: Vec<_> = D::FIELDS.iter().collect();
    fields.sort_unstable_by_key(|field| field.place);
    fields
}

/// Parser of the flag `--clear`: the names of the properties that may have no value.
pub fn clearable<D: Description>() -> PossibleValuesParser {
    let texts = in_order::<D>().into_iter().filter(|field| field.kind.is_text());
    PossibleValuesParser::new(texts.map(|field| field.flag))
}

/// Properties named by `--clear`.
pub fn cleared<D: Description>(named: &[String]) -> Cleared {
    Cleared::of(|name| {
        let mut fields = D::FIELDS.iter().filter(|field| named.iter().any(|it| it == field.flag));
        fields.any(|field| field.name == name)
    })
}

/// Whether [`Retries`] provides the flags of a field.
const fn is_of_retries(kind: FieldKind) -> bool {
    matches!(kind, FieldKind::Retry | FieldKind::Order)
}

fn has_retries<D: Description>() -> bool {
    D::FIELDS.iter().any(|field| is_of_retries(field.kind))
}

fn flag<D: Description>(field: &Field<D>) -> Arg {
    let (value_name, parser): (&str, ValueParser) = match field.kind {
        FieldKind::Flag => ("BOOL", value_parser!(bool)),
        FieldKind::Count => match field.range.map(|range| range(&Limits::default())) {
            Some([FieldValue::Count(min), FieldValue::Count(max)]) => {
                ("N", value_parser!(u32).range(i64::from(min)..=i64::from(max)).into())
            }
            _ => ("N", value_parser!(u32).into()),
        },
        FieldKind::Megabytes => ("MIB", value_parser!(u64).into()),
        FieldKind::Kilobytes => ("KIB", value_parser!(u64).into()),
        FieldKind::Span => ("DURATION", ValueParser::new(span_of)),
        FieldKind::Status => ("STATUS", ValueParser::new(status_of)),
        FieldKind::Destination => ("ENTITY", ValueParser::string()),
        FieldKind::Text | FieldKind::Retry | FieldKind::Order => ("TEXT", ValueParser::string()),
    };
    let mut help = field.doc.to_owned();
    if !field.example.is_empty() {
        help += &format!(", such as {}", field.example);
    }
    if field.is_fixed {
        help += "; fixed at creation";
    }
    let mut flag = Arg::new(field.name)
        .long(field.flag)
        .value_name(value_name)
        .value_parser(parser)
        .action(ArgAction::Set)
        .help(help);
    if let Some(alias) = field.flag_alias {
        flag = flag.visible_alias(alias);
    }
    match field.kind {
        FieldKind::Flag => flag.num_args(0..=1).require_equals(true).default_missing_value("true"),
        _ => flag,
    }
}

fn given<D: Description>(field: &Field<D>, matches: &ArgMatches) -> Option<FieldValue> {
    let name = field.name;
    Some(match field.kind {
        FieldKind::Flag => FieldValue::Flag(*matches.get_one::<bool>(name)?),
        FieldKind::Count => FieldValue::Count(*matches.get_one::<u32>(name)?),
        FieldKind::Megabytes | FieldKind::Kilobytes => {
            FieldValue::Size(*matches.get_one::<u64>(name)?)
        }
        FieldKind::Span => FieldValue::Span(*matches.get_one::<TimeSpan>(name)?),
        FieldKind::Status => FieldValue::Status(*matches.get_one::<EntityStatus>(name)?),
        FieldKind::Destination | FieldKind::Text => {
            FieldValue::Text(Some(matches.get_one::<String>(name)?.as_str().into()))
        }
        FieldKind::Retry | FieldKind::Order => return None,
    })
}

impl<D: Description> FromArgMatches for Properties<D> {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, Error> {
        let mut update = D::Update::default();
        let retries = has_retries::<D>().then(|| Retries::from_arg_matches(matches)).transpose()?;
        for field in D::FIELDS {
            let value = match (field.kind, &retries) {
                (FieldKind::Retry, Some(retries)) => retries.policy().map(FieldValue::Retry),
                (FieldKind::Order, Some(retries)) => retries.order().map(FieldValue::Order),
                _ => given(field, matches),
            };
            if let Some(value) = value {
                field.put(&mut update, value);
            }
        }
        Ok(Self(update))
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

impl<D: Description> Args for Properties<D> {
    fn augment_args(command: Command) -> Command {
        let flags =
            in_order::<D>().into_iter().filter(|field| !is_of_retries(field.kind)).map(flag);
        let command = command.next_help_heading("Properties").args(flags);
        if has_retries::<D>() { Retries::augment_args(command) } else { command }
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

/// Properties of an entity as rows, texts last. The status is shown elsewhere.
pub fn rows<D: Description>(description: &D) -> Vec<(&'static str, String)> {
    let mut fields = in_order::<D>();
    fields.retain(|field| field.kind != FieldKind::Status);
    fields.sort_by_key(|field| field.kind == FieldKind::Text);
    fields
        .iter()
        .map(|field| (field.label, value_text(field.kind, field.get(description))))
        .collect()
}

fn value_text(kind: FieldKind, value: FieldValue) -> String {
    match value {
        FieldValue::Size(size) if kind == FieldKind::Megabytes => format!("{size} MiB"),
        FieldValue::Size(size) => format!("{size} KiB"),
        FieldValue::Span(span) => span_text(span),
        FieldValue::Text(text) => text.as_deref().unwrap_or("-").to_owned(),
        FieldValue::Retry(policy) => policy_text(policy.as_ref()),
        value => value.to_string(),
    }
}

//! Sources of values: files, the environment and flags. Each value keeps the name of its source, so
//! that errors and `peeklock config check` can name it.

use std::fmt;
use std::path::Path;

use config::{FileFormat, Format as _, Map, Source, Value, ValueKind};

use super::{ConfigError, Flag};

/// Prefix of environment variables.
pub(super) const PREFIX: &str = "PEEKLOCK";
/// Separator between the parts of a variable name.
pub(super) const SEPARATOR: &str = "__";
/// The origin of values from the environment, as the crate `config` marks them.
pub(super) const ENVIRONMENT: &str = "the environment";

/// The values of one source, marked with its name.
#[derive(Clone, Debug)]
pub(super) struct Layer(pub(super) Map<String, Value>);

impl Layer {
    pub(super) fn of_file(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path)
            .map_err(|source| ConfigError::Unreadable { path: path.to_owned(), source })?;
        Self::of_text(path, &text)
    }

    pub(super) fn of_text(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let origin = path.display().to_string();
        FileFormat::Toml.parse(Some(&origin), text).map(Self).map_err(|error| {
            let detail = error.to_string().trim_end().to_owned();
            ConfigError::Syntax { path: path.to_owned(), detail }
        })
    }

    pub(super) fn of_flag(flag: &Flag) -> Self {
        let value = Value::new(Some(&flag.name.to_owned()), flag.value.as_str());
        Self(Map::from_iter([(flag.key.to_owned(), value)]))
    }
}

impl Source for Layer {
    fn clone_into_box(&self) -> Box<dyn Source + Send + Sync> {
        Box::new(self.clone())
    }

    fn collect(&self) -> Result<Map<String, Value>, config::ConfigError> {
        Ok(self.0.clone())
    }
}

/// Converts an error of the crate `config` about the value of a key.
pub(super) fn explain(error: &config::ConfigError, at: &str, layers: &Value) -> ConfigError {
    use config::ConfigError as Theirs;
    let (below, detail) = match error {
        Theirs::At { error, key, .. } => (key.as_deref(), error.to_string()),
        Theirs::Type { unexpected, expected, key, .. } => {
            (key.as_deref(), format!("{unexpected} is not {expected}"))
        }
        other => (None, other.to_string()),
    };
    let below = below.unwrap_or_default();
    let key = if below.starts_with('[') { format!("{at}{below}") } else { format!("{at}.{below}") };
    // The crate omits the dot after a list element.
    let key = key.replace(']', "].").replace("..", ".").trim_end_matches('.').to_owned();
    if let Some((name, meant)) = unknown_field(&detail) {
        let meant_key = meant.map(|name| format!("{key}.{name}"));
        let key = format!("{key}.{name}");
        return ConfigError::UnknownKey { source_name: source_of(layers, &key), meant_key, key };
    }
    let source_name = source_of(layers, &key);
    ConfigError::Invalid { key, detail, source_name }
}

/// The unknown name in serde's "unknown field `x`, expected one of `a`, `b`", and the most similar
/// known name.
pub(super) fn unknown_field(detail: &str) -> Option<(&str, Option<&str>)> {
    let mut quoted = detail.strip_prefix("unknown field ")?.split('`').skip(1).step_by(2);
    let name = quoted.next()?;
    Some((name, nearest(name, quoted)))
}

/// The most similar known name, within 3 edits.
fn nearest<'a>(name: &str, known: impl Iterator<Item = &'a str>) -> Option<&'a str> {
    known
        .map(|known| (strsim::damerau_levenshtein(name, known), known))
        .min()
        .filter(|(distance, _)| *distance <= 3)
        .map(|(_, known)| known)
}

/// Refuses a key that is neither known nor a prefix of a known key.
pub(super) fn refuse_unknown_keys(layers: &Value, known: &[String]) -> Result<(), ConfigError> {
    let mut tables = vec![(String::new(), layers)];
    while let Some((prefix, value)) = tables.pop() {
        let ValueKind::Table(table) = &value.kind else {
            let key = prefix.trim_end_matches('.').to_owned();
            let detail = format!("`{value}` is not a table");
            let source_name = source_of(layers, &key);
            return Err(ConfigError::Invalid { key, detail, source_name });
        };
        for (name, value) in table {
            let key = format!("{prefix}{name}");
            // No setting reads a quoted name with a dot, such as "jwt.issuer" below [security].
            if known.contains(&key) && !name.contains('.') {
                continue;
            }
            let below = format!("{key}.");
            if known.iter().any(|known| known.starts_with(&below)) {
                tables.push((below, value));
                continue;
            }
            let siblings =
                known.iter().filter_map(|known| known.strip_prefix(&prefix)?.split('.').next());
            let meant_key = nearest(name, siblings).map(|meant| format!("{prefix}{meant}"));
            return Err(ConfigError::UnknownKey {
                source_name: source_of(layers, &key),
                meant_key,
                key,
            });
        }
    }
    Ok(())
}

/// The source of a value as users know it; none for a default.
pub(super) fn source_of(layers: &Value, key: &str) -> Option<String> {
    let value = find(layers, key)?;
    let origin = match &value.kind {
        ValueKind::Table(table) if value.origin().is_none() => {
            return table.keys().find_map(|name| source_of(layers, &format!("{key}.{name}")));
        }
        ValueKind::Array(values) => {
            value.origin().or_else(|| values.iter().find_map(Value::origin))
        }
        _ => value.origin(),
    }?;
    if origin != ENVIRONMENT {
        return Some(origin.to_owned());
    }
    let variable = key.to_uppercase().replace('.', SEPARATOR);
    Some(format!("{PREFIX}{SEPARATOR}{variable}"))
}

/// The value of a key.
pub(super) fn find<'a>(root: &'a Value, key: &str) -> Option<&'a Value> {
    let mut found = root;
    for part in key.split(['.', '[']).filter(|part| !part.is_empty()) {
        found = match (&found.kind, part.strip_suffix(']')) {
            (ValueKind::Array(values), Some(index)) => values.get(index.parse::<usize>().ok()?)?,
            (ValueKind::Table(table), None) => table.get(part)?,
            _ => return None,
        };
    }
    Some(found)
}

/// Lists the scalars and lists of scalars under a value, each with its key.
pub(super) fn collect(key: &str, value: &Value, rows: &mut Vec<(String, String)>) {
    match &value.kind {
        ValueKind::Table(table) => {
            for (name, child) in table {
                collect(&format!("{key}.{name}"), child, rows);
            }
        }
        ValueKind::Array(values)
            if values.iter().any(|value| matches!(value.kind, ValueKind::Table(_))) =>
        {
            for (index, child) in values.iter().enumerate() {
                collect(&format!("{key}[{index}]"), child, rows);
            }
        }
        kind => {
            rows.push((key.to_owned(), Written(kind).to_string()));
        }
    }
}

/// A value in the form of a table row.
struct Written<'a>(&'a ValueKind);

impl fmt::Display for Written<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            ValueKind::Array(values) => {
                let part = |part: &Value| match &part.kind {
                    ValueKind::String(text) => toml::Value::from(text.as_str()).to_string(),
                    kind => kind.to_string(),
                };
                let parts: Vec<String> = values.iter().map(part).collect();
                write!(f, "[{}]", parts.join(", "))
            }
            ValueKind::String(text) if text.is_empty() => f.write_str("\"\""),
            kind => fmt::Display::fmt(kind, f),
        }
    }
}

//! Converts the emulator's configuration file into the format of this broker (ADM-60 to ADM-63).
//! Names are matched in any case, as by the emulator. Invalid values are refused with their place
//! in the file; unknown names are logged and ignored.

use peeklock::description::{
    Description, Field, FieldKind, QueueDescription, SubscriptionDescription, TopicDescription,
};
use peeklock::rule::{CorrelationField, CorrelationFilter};
use peeklock::time::TimeSpan;
use serde_json::{Map, Value as Json};
use toml::{Table, Value as Toml};

/// Default of `MaxDeliveryCount` (ADM-62).
const DELIVERY_COUNT_DEFAULT: i64 = 3;
/// Default of `DuplicateDetectionHistoryTimeWindow` (ADM-62).
const WINDOW_DEFAULT: &str = "PT20S";
/// Default of `DefaultMessageTimeToLive` (ADM-62).
const TIME_TO_LIVE_DEFAULT: &str = "PT1H";
/// Property of filters and actions that tools write; it has no effect, in the cloud either.
const REQUIRES_PREPROCESSING: &str = "RequiresPreprocessing";
/// Shortest duplicate detection window of this broker, in seconds.
const WINDOW_SECONDS_MIN: i64 = 20;

/// Property with its names in the emulator's file, which are the names of Azure.
struct Property {
    /// Names in the file; .NET has a second name for one property.
    theirs: [&'static str; 2],
    ours: &'static str,
    kind: FieldKind,
}

/// Properties of an entity that exist in Azure.
fn properties(owner: Owner) -> Vec<Property> {
    fn of<D: Description>() -> Vec<Property> {
        let fields = D::FIELDS.iter().filter(|field| field.is_in_azure);
        let property = |field: &Field<D>| Property {
            theirs: [field.element(), field.title],
            ours: field.name,
            kind: field.kind,
        };
        fields.map(property).collect()
    }
    match owner {
        Owner::Queue => of::<QueueDescription>(),
        Owner::Topic => of::<TopicDescription>(),
        Owner::Subscription => of::<SubscriptionDescription>(),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Owner {
    Queue,
    Topic,
    Subscription,
}

/// Result of reading a file.
#[derive(Debug)]
pub struct Imported {
    /// The file's content in the configuration format of this broker.
    pub config: Table,
    /// Values that were ignored or changed, each with its place.
    pub notes: Vec<String>,
    /// Place of the first unknown member next to entities, which may be a misspelt list.
    pub unknown_list: Option<String>,
}

/// Invalid value, and its place in the file.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {detail}")]
pub struct InvalidFile {
    /// Place, such as `UserConfig.Namespaces[0].Queues[2].Properties.LockDuration`.
    pub place: String,
    /// Description of the error and of a valid value.
    pub detail: String,
}

type Read<T> = Result<T, InvalidFile>;

/// Reads a file.
///
/// # Errors
/// Returns the place of the first text that is not JSON, or of the first invalid value.
pub fn read(text: &str) -> Read<Imported> {
    let text = text.trim_start_matches('\u{feff}');
    let root: Json =
        serde_json::from_str(&super::lenient::strict(text)).map_err(|error| InvalidFile {
            place: format!("line {}, column {}", error.line(), error.column()),
            detail: format!("the file is not JSON: {error}"),
        })?;
    let mut notes = Notes::default();
    let config = read_root(&Place::root(&root), &mut notes)?;
    let Notes { texts, unknown_list } = notes;
    Ok(Imported { config, notes: texts, unknown_list })
}

/// Place in the emulator's file for an index of this broker's configuration:
/// `queues[2].lock_duration` is below `UserConfig.Namespaces[0].Queues[2]`.
pub fn place_of(key: &str) -> Option<String> {
    let (first, rest) = key.split_once(']')?;
    let (list, index) = first.split_once('[')?;
    let list = match list {
        "queues" => "Queues",
        "topics" => "Topics",
        _ => return None,
    };
    let mut place = format!("UserConfig.Namespaces[0].{list}[{index}]");
    let owners = [Owner::Queue, Owner::Topic, Owner::Subscription];
    let properties: Vec<Property> = owners.into_iter().flat_map(properties).collect();
    for part in rest.split('.').filter(|part| !part.is_empty()) {
        let (name, index) = part.split_once('[').unwrap_or((part, ""));
        let known = properties.iter().find(|property| property.ours == name);
        let theirs = match (name, known) {
            ("subscriptions", _) => "Subscriptions".to_owned(),
            ("rules", _) => "Rules".to_owned(),
            (_, Some(Property { theirs: [theirs, _], .. })) => format!("Properties.{theirs}"),
            (other, None) => other.to_owned(),
        };
        place += &format!(".{theirs}");
        if !index.is_empty() {
            place += &format!("[{index}");
        }
    }
    Some(place)
}

/// Notes about a file that was accepted.
#[derive(Default)]
struct Notes {
    texts: Vec<String>,
    /// As [`Imported::unknown_list`].
    unknown_list: Option<String>,
}

impl Notes {
    fn unknown(&mut self, place: &str) {
        self.texts.push(format!("{place} is unknown and ignored"));
    }
}

/// Value and its place.
struct Place<'a> {
    path: String,
    value: &'a Json,
}

impl<'a> Place<'a> {
    fn root(value: &'a Json) -> Self {
        Self { path: String::new(), value }
    }

    fn refuse<T>(&self, detail: impl Into<String>) -> Read<T> {
        let place = if self.path.is_empty() { "the file" } else { &self.path };
        Err(InvalidFile { place: place.to_owned(), detail: detail.into() })
    }

    fn object(&self) -> Read<&'a Map<String, Json>> {
        match self.value {
            Json::Object(members) => Ok(members),
            _ => self.refuse("must be an object"),
        }
    }

    fn below(&self, name: &str, value: &'a Json) -> Self {
        let path =
            if self.path.is_empty() { name.to_owned() } else { format!("{}.{name}", self.path) };
        Self { path, value }
    }

    /// Member with this name in any case; `null` counts as absent.
    fn member(&self, name: &str) -> Read<Option<Self>> {
        let mut members = self.object()?.iter();
        let found = members.find(|(known, _)| known.eq_ignore_ascii_case(name));
        let found = found.filter(|(_, value)| !value.is_null());
        Ok(found.map(|(known, value)| self.below(known, value)))
    }

    fn list(&self, name: &str) -> Read<Vec<Self>> {
        let Some(list) = self.member(name)? else { return Ok(Vec::new()) };
        let Json::Array(elements) = list.value else { return list.refuse("must be a list") };
        let path = &list.path;
        let place = |(index, value)| Self { path: format!("{path}[{index}]"), value };
        Ok(elements.iter().enumerate().map(place).collect())
    }

    fn text(&self) -> Read<&'a str> {
        match self.value {
            Json::String(text) => Ok(text),
            _ => self.refuse("must be a text"),
        }
    }

    fn name(&self) -> Read<&'a str> {
        match self.member("Name")? {
            Some(name) => match name.text()? {
                "" => name.refuse("is empty"),
                text => Ok(text),
            },
            None => self.refuse("has no Name; add one"),
        }
    }

    /// Notes all members that are not among the known ones.
    fn only(&self, known: &[&str], notes: &mut Notes) -> Read<()> {
        self.unknown(known, |place| notes.unknown(place))
    }

    /// As [`Place::only`], for an object that has lists of entities.
    fn only_lists(&self, known: &[&str], notes: &mut Notes) -> Read<()> {
        self.unknown(known, |place| {
            notes.unknown(place);
            notes.unknown_list.get_or_insert_with(|| place.to_owned());
        })
    }

    /// Calls `found` with the place of each member that is not among the known ones.
    fn unknown(&self, known: &[&str], mut found: impl FnMut(&str)) -> Read<()> {
        for (name, value) in self.object()? {
            if !known.iter().any(|known| known.eq_ignore_ascii_case(name)) {
                found(&self.below(name, value).path);
            }
        }
        Ok(())
    }
}

fn read_root(root: &Place<'_>, notes: &mut Notes) -> Read<Table> {
    root.only_lists(&["UserConfig"], notes)?;
    let Some(user) = root.member("UserConfig")? else {
        return root.refuse("has no UserConfig; add one");
    };
    // `Logging` configures the log file of the emulator; this broker logs to standard error.
    user.only_lists(&["Namespaces", "Logging"], notes)?;
    let namespaces = user.list("Namespaces")?;
    let [namespace] = namespaces.as_slice() else {
        return user
            .refuse(format!("has {} Namespaces; exactly one is expected", namespaces.len()));
    };
    namespace.only_lists(&["Name", "Queues", "Topics"], notes)?;
    let mut config = Table::new();
    if let Some(name) = namespace.member("Name")? {
        let section = Table::from_iter([("name".to_owned(), Toml::from(name.text()?))]);
        config.insert("namespace".to_owned(), section.into());
    }
    let mut queues = Vec::new();
    for queue in namespace.list("Queues")? {
        queue.only(&["Name", "Properties"], notes)?;
        queues.push(Toml::from(entity(&queue, Owner::Queue, notes)?));
    }
    let mut topics = Vec::new();
    for topic in namespace.list("Topics")? {
        topics.push(Toml::from(read_topic(&topic, notes)?));
    }
    for (name, list) in [("queues", queues), ("topics", topics)] {
        if !list.is_empty() {
            config.insert(name.to_owned(), list.into());
        }
    }
    Ok(config)
}

fn read_topic(topic: &Place<'_>, notes: &mut Notes) -> Read<Table> {
    topic.only_lists(&["Name", "Properties", "Subscriptions"], notes)?;
    let mut table = entity(topic, Owner::Topic, notes)?;
    let mut subscriptions = Vec::new();
    for subscription in topic.list("Subscriptions")? {
        subscription.only(&["Name", "Properties", "Rules"], notes)?;
        let mut table = entity(&subscription, Owner::Subscription, notes)?;
        let mut rules = Vec::new();
        for rule in subscription.list("Rules")? {
            rules.push(Toml::from(read_rule(&rule, notes)?));
        }
        if !rules.is_empty() {
            table.insert("rules".to_owned(), rules.into());
        }
        subscriptions.push(Toml::from(table));
    }
    if !subscriptions.is_empty() {
        table.insert("subscriptions".to_owned(), subscriptions.into());
    }
    Ok(table)
}

/// Name and properties of an entity, with the defaults of the emulator's format.
fn entity(place: &Place<'_>, owner: Owner, notes: &mut Notes) -> Read<Table> {
    let mut table = Table::new();
    table.insert("name".to_owned(), place.name()?.into());
    table.insert("default_message_time_to_live".to_owned(), TIME_TO_LIVE_DEFAULT.into());
    if owner != Owner::Topic {
        table.insert("max_delivery_count".to_owned(), DELIVERY_COUNT_DEFAULT.into());
    }
    if owner != Owner::Subscription {
        let window = "duplicate_detection_history_time_window".to_owned();
        table.insert(window, WINDOW_DEFAULT.into());
    }
    let Some(properties) = place.member("Properties")? else { return Ok(table) };
    let known = self::properties(owner);
    for (name, value) in properties.object()? {
        let place = properties.below(name, value);
        let property = known.iter().find(|property| {
            property.theirs.iter().any(|theirs| theirs.eq_ignore_ascii_case(name))
        });
        let Some(property) = property else {
            notes.unknown(&place.path);
            continue;
        };
        if value.is_null() {
            continue;
        }
        let Some(value) = scalar(&place, property.kind)? else { continue };
        let value = if property.ours == "duplicate_detection_history_time_window" {
            window(&place, value, notes)
        } else {
            value
        };
        table.insert(property.ours.to_owned(), value);
    }
    Ok(table)
}

/// Value of a property, which may also be written as text, as the emulator allows.
fn scalar(place: &Place<'_>, kind: FieldKind) -> Read<Option<Toml>> {
    let text = place.value.as_str();
    Ok(Some(match kind {
        FieldKind::Flag => {
            let parsed = text.and_then(|text| text.to_ascii_lowercase().parse().ok());
            match place.value.as_bool().or(parsed) {
                Some(value) => Toml::Boolean(value),
                None => return place.refuse("must be true or false"),
            }
        }
        FieldKind::Count | FieldKind::Megabytes | FieldKind::Kilobytes => {
            let parsed = text.and_then(|text| text.parse().ok());
            match place.value.as_i64().or(parsed) {
                Some(value) => Toml::Integer(value),
                None => return place.refuse("must be a whole number"),
            }
        }
        FieldKind::Span => match text.filter(|text| TimeSpan::parse(text).is_some()) {
            Some(text) => text.into(),
            None => return place.refuse("must be an ISO 8601 duration, such as PT1M"),
        },
        FieldKind::Status | FieldKind::Text | FieldKind::Retry | FieldKind::Order => {
            place.text()?.into()
        }
        FieldKind::Destination => match place.text()? {
            "" => return Ok(None),
            text => text.into(),
        },
    }))
}

/// Raises a window that is shorter than this broker supports, with a note.
fn window(place: &Place<'_>, value: Toml, notes: &mut Notes) -> Toml {
    let span = value.as_str().and_then(TimeSpan::parse);
    if span.is_none_or(|span| span >= TimeSpan::from_seconds(WINDOW_SECONDS_MIN)) {
        return value;
    }
    notes.texts.push(format!(
        "{} is less than {WINDOW_DEFAULT}; {WINDOW_DEFAULT} is used instead",
        place.path
    ));
    WINDOW_DEFAULT.into()
}

fn read_rule(rule: &Place<'_>, notes: &mut Notes) -> Read<Table> {
    rule.only(&["Name", "Properties"], notes)?;
    let mut table = Table::new();
    table.insert("name".to_owned(), rule.name()?.into());
    let Some(properties) = rule.member("Properties")? else {
        return rule.refuse("has no Properties; add them with the filter of the rule");
    };
    let known = ["FilterType", "SqlFilter", "CorrelationFilter", "Action", REQUIRES_PREPROCESSING];
    properties.only(&known, notes)?;
    let kind = properties.member("FilterType")?;
    let kind_text = kind.as_ref().map(Place::text).transpose()?.unwrap_or_default();
    let is = |name: &str| kind_text.eq_ignore_ascii_case(name);
    if is("Sql") || is("SqlFilter") {
        match sql_of(&properties, "SqlFilter", notes)? {
            Some(sql) => table.insert("sql".to_owned(), sql.into()),
            None => insert_true_filter(&mut table, &properties, "SqlFilter", notes),
        };
    } else if is("Correlation") || is("CorrelationFilter") {
        let filter = properties.member("CorrelationFilter")?;
        let filter = filter.map(|filter| read_correlation(&filter, notes)).transpose()?;
        match filter.filter(|filter| !filter.is_empty()) {
            Some(filter) => table.insert("correlation".to_owned(), filter.into()),
            None => insert_true_filter(&mut table, &properties, "CorrelationFilter", notes),
        };
    } else if is("True") || is("TrueFilter") {
        table.insert("filter".to_owned(), true.into());
    } else if is("False") || is("FalseFilter") {
        table.insert("filter".to_owned(), false.into());
    } else {
        let place = kind.as_ref().unwrap_or(&properties);
        return place.refuse("must have a FilterType of Sql, Correlation, True or False");
    }
    if let Some(action) = sql_of(&properties, "Action", notes)? {
        table.insert("action".to_owned(), action.into());
    }
    Ok(table)
}

/// Makes a filter without a condition match every message: tools such as Aspire write such a filter
/// for a rule that has only a name.
fn insert_true_filter(
    table: &mut Table,
    properties: &Place<'_>,
    filter: &str,
    notes: &mut Notes,
) -> Option<Toml> {
    notes.texts.push(format!(
        "{} has no condition in {filter}, so every message matches",
        properties.path
    ));
    table.insert("filter".to_owned(), true.into())
}

/// Text of a filter or action; none if it is empty.
fn sql_of<'a>(properties: &Place<'a>, name: &str, notes: &mut Notes) -> Read<Option<&'a str>> {
    let Some(holder) = properties.member(name)? else { return Ok(None) };
    holder.only(&["SqlExpression", "CompatibilityLevel", REQUIRES_PREPROCESSING], notes)?;
    let Some(text) = holder.member("SqlExpression")? else { return Ok(None) };
    Ok(Some(text.text()?).filter(|text| !text.is_empty()))
}

fn read_correlation(filter: &Place<'_>, notes: &mut Notes) -> Read<Table> {
    let mut table = Table::new();
    for (name, value) in filter.object()? {
        let place = filter.below(name, value);
        let is = |known: &str| known.eq_ignore_ascii_case(name);
        if value.is_null() || is(REQUIRES_PREPROCESSING) {
            continue;
        }
        // The second name is used by .NET.
        if is("Properties") || is("ApplicationProperties") {
            let mut properties = Table::new();
            for (name, value) in place.object()? {
                properties.insert(name.clone(), property(&place.below(name, value))?);
            }
            if !properties.is_empty() {
                table.insert("properties".to_owned(), properties.into());
            }
            continue;
        }
        // `Label` and `Subject` are one property.
        let is_named = |it: &CorrelationField| is(it.element) || is(it.property.name());
        let Some(field) = CorrelationFilter::FIELDS.into_iter().find(is_named) else {
            notes.unknown(&place.path);
            continue;
        };
        let text = Toml::from(place.text()?);
        let before = table.insert(field.name.to_owned(), text.clone());
        if before.is_some_and(|before| before != text) {
            return place.refuse(
                "is a second, different value of the same property (Label and Subject are the same \
                 property); keep one",
            );
        }
    }
    Ok(table)
}

fn property(place: &Place<'_>) -> Read<Toml> {
    match place.value {
        Json::String(text) => Ok(text.as_str().into()),
        Json::Bool(value) => Ok((*value).into()),
        Json::Number(number) => match (number.as_i64(), number.as_f64()) {
            (Some(number), _) => Ok(number.into()),
            (None, Some(number)) => Ok(number.into()),
            (None, None) => place.refuse("is a number outside the range of properties"),
        },
        Json::Null | Json::Array(_) | Json::Object(_) => {
            place.refuse("must be a text, a number, true or false")
        }
    }
}

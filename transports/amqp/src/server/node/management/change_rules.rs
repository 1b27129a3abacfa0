//! `add-rule` and `remove-rule`: rules as receivers of a subscription change them (AMQP-86, TOP-13).

use std::sync::Arc;

use peeklock_core::error::Rejection;
use peeklock_core::management::Management;
use peeklock_core::message::Value;
use peeklock_core::rule::{CorrelationFilter, Filter, RuleDescription, SqlText};
use peeklock_core::time::Timestamp;
use peeklock_words::amqp::Scalar;

use super::body::Body;
use super::{ManagementAnswer, Planned, Question, Refusal};
use crate::codec::value::Map;
use crate::server::conversation::Conversation;

impl Conversation {
    pub(super) fn plan_add_rule(&mut self, question: &Question<'_>) -> Result<Planned, Refusal> {
        let name = question.body.wanted_text("rule-name")?;
        let Some(map) = question.body.map("rule-description")? else {
            return Err(Rejection::argument("`rule-description` is missing").into());
        };
        let count_max = self.engine.broker.settings().limits.rule_property_count_max;
        let rule = rule(name, &Body::of_map(map), count_max)?;
        let (access, path) = (self.access_at(question.path), Arc::clone(question.path));
        Ok(Planned::apart(async move {
            access.manage(&path, Management::CreateOwnRule(Box::new(rule))).await?;
            Ok(ManagementAnswer::Done)
        }))
    }

    pub(super) fn plan_remove_rule(&mut self, question: &Question<'_>) -> Result<Planned, Refusal> {
        let name = question.body.wanted_text("rule-name")?;
        let (access, path) = (self.access_at(question.path), Arc::clone(question.path));
        Ok(Planned::apart(async move {
            access.manage(&path, Management::DeleteOwnRule(name.into())).await?;
            Ok(ManagementAnswer::Done)
        }))
    }
}

/// A rule as it is described to be added, with so many properties in its filter at most.
pub(super) fn rule(
    name: String,
    body: &Body,
    count_max: usize,
) -> Result<RuleDescription, Rejection> {
    let filter = match (body.map("sql-filter")?, body.map("correlation-filter")?) {
        (Some(sql), None) => Filter::Sql(sql_text(&Body::of_map(sql))?),
        (None, Some(correlation)) => {
            Filter::Correlation(correlated(&Body::of_map(correlation), count_max)?)
        }
        (None, None) | (Some(_), Some(_)) => {
            return Err(Rejection::argument(
                "`rule-description` must have one of `sql-filter` and `correlation-filter`",
            ));
        }
    };
    let rule = RuleDescription::new(name, filter, Timestamp::NONE);
    Ok(match body.map("sql-rule-action")? {
        // Without a text it is no action.
        Some(action) => match Body::of_map(action).text("expression")? {
            Some(text) => rule.with_action(SqlText::new(text)),
            None => rule,
        },
        None => rule,
    })
}

fn sql_text(body: &Body) -> Result<SqlText, Rejection> {
    Ok(SqlText::new(body.wanted_text("expression")?))
}

fn correlated(body: &Body, count_max: usize) -> Result<CorrelationFilter, Rejection> {
    let mut properties = Vec::new();
    let map = body.map("properties")?;
    for (name, value) in map.iter().flat_map(Map::entries) {
        // What is too much is not read, let alone made into a rule.
        if properties.len() >= count_max {
            return Err(Rejection::out_of_range(format!(
                "the correlation filter has more properties than the limit `rule_property_count_max` of \
                 {count_max}"
            )));
        }
        let Ok(Scalar::Text(name) | Scalar::Symbol(name)) = name.scalar() else {
            return Err(Rejection::argument("the name of a property of the filter must be text"));
        };
        let value = Value::decode(value.as_bytes()).map_err(|error| {
            Rejection::argument(format!("value of the property `{name:.64}`: {error}"))
        })?;
        properties.push((name.into(), value));
    }
    let mut filter = CorrelationFilter { properties, ..CorrelationFilter::default() };
    for field in CorrelationFilter::FIELDS {
        field.set(&mut filter, body.text(field.key)?.map(String::into_boxed_str));
    }
    Ok(filter)
}

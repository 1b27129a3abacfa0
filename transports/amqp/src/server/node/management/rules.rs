//! Rules of a subscription: `add-rule` and `remove-rule` for its receivers (AMQP-86, TOP-13), and
//! `enumerate-rules` (AMQP-87, AMQP-104).

use std::sync::Arc;

use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::management::{Managed, Management, Page};
use peeklock_core::message::Value;
use peeklock_core::rule::{CorrelationFilter, Filter, RuleDescription, SqlText};
use peeklock_core::time::Timestamp;
use peeklock_core::{Broker, InTurn};
use peeklock_words::amqp::write::{self, Sink};
use peeklock_words::amqp::{Scalar, code};

use super::body::Body;
use super::pieces::Pieces;
use super::plan::{ManagementAnswer, OperationPlan};
use super::{ManagementRequest, Refusal, key};
use crate::codec::value::Map;
use crate::server::conversation::Conversation;

impl Conversation {
    pub(super) fn plan_add_rule(
        &mut self,
        management: &ManagementRequest<'_>,
    ) -> Result<OperationPlan, Refusal> {
        let name = management.body.required_text("rule-name")?;
        let Some(map) = management.body.map("rule-description")? else {
            return Err(Rejection::argument("`rule-description` is missing").into());
        };
        let count_max = self.engine.broker.settings().limits.rule_property_count_max;
        let rule = rule(name, &Body::of_map(map), count_max)?;
        let (access, path) = (self.access_at(management.path), Arc::clone(management.path));
        Ok(OperationPlan::in_background(async move {
            access.manage(&path, Management::CreateOwnRule(Box::new(rule))).await?;
            Ok(ManagementAnswer::Done)
        }))
    }

    pub(super) fn plan_remove_rule(
        &mut self,
        management: &ManagementRequest<'_>,
    ) -> Result<OperationPlan, Refusal> {
        let name = management.body.required_text("rule-name")?;
        let (access, path) = (self.access_at(management.path), Arc::clone(management.path));
        Ok(OperationPlan::in_background(async move {
            access.manage(&path, Management::DeleteOwnRule(name.into())).await?;
            Ok(ManagementAnswer::Done)
        }))
    }

    /// Plans a list of rules. Some clients request all rules at once, which the broker lists in
    /// pages.
    pub(super) fn plan_list_rules(
        &mut self,
        management: &ManagementRequest<'_>,
    ) -> Result<OperationPlan, Refusal> {
        let count = |count: u32| usize::try_from(count).unwrap_or(usize::MAX);
        let skip = count(management.body.count("skip")?.unwrap_or(0));
        let top = count(management.body.count("top")?.unwrap_or(u32::MAX));
        let page = self.engine.broker.settings().limits.list_count_max.max(1);
        let (access, path) = (self.access_at(management.path), Arc::clone(management.path));
        let broker = self.engine.broker.clone();
        Ok(OperationPlan::InBackground(Box::pin(async move {
            let rules = Management::Rules(Page { skip, top: Some(top) });
            match access.turn_at(&path, rules).await {
                Ok(turn) => {
                    let listed = turn.make(list(&turn, &broker, &path, (skip, top), page)).await;
                    (Some(turn.into_turn()), listed)
                }
                Err(refused) => (None, Err(refused)),
            }
        })))
    }
}

/// Reads the description of a rule, whose filter may have at most `count_max` properties.
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
        // An empty action is no action.
        Some(action) => match Body::of_map(action).text("expression")? {
            Some(text) => rule.with_action(SqlText::new(text)),
            None => rule,
        },
        None => rule,
    })
}

fn sql_text(body: &Body) -> Result<SqlText, Rejection> {
    Ok(SqlText::new(body.required_text("expression")?))
}

fn correlated(body: &Body, count_max: usize) -> Result<CorrelationFilter, Rejection> {
    let mut properties = Vec::new();
    let map = body.map("properties")?;
    for (name, value) in map.iter().flat_map(Map::entries) {
        // Properties above the limit are not even decoded.
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

/// Descriptors of rules and their parts (AMQP-87). Descriptors of filters have one digit fewer.
mod described {
    pub(super) const RULE: u64 = 0x0137_0000_0004;
    pub(super) const NO_ACTION: u64 = 0x0137_0000_0005;
    pub(super) const SQL_ACTION: u64 = 0x0137_0000_0006;
    pub(super) const SQL_FILTER: u64 = 0x0013_7000_0006;
    pub(super) const TRUE_FILTER: u64 = 0x0013_7000_0007;
    pub(super) const FALSE_FILTER: u64 = 0x0013_7000_0008;
    pub(super) const CORRELATION_FILTER: u64 = 0x0013_7000_0009;
}

/// Compatibility level of SQL texts.
const COMPATIBILITY_LEVEL: i32 = 20;
/// Bytes of rules that a reply may have without room in the outbound pool. The pool limits the
/// number of larger replies.
const FREE_BYTES: usize = 1 << 20;
/// Maximum bytes of rules in a reply. Some clients send a single request for all rules, so a longer
/// list is refused and not cut (AMQP-87).
const RULES_BYTES_MAX: usize = 32 << 20;

/// Lists the rules of a subscription, within the limits of a reply.
async fn list(
    turn: &InTurn,
    broker: &Broker,
    path: &str,
    (skip, top): (usize, usize),
    page: usize,
) -> Result<ManagementAnswer, BrokerError> {
    let outbound = broker.outbound_pool();
    let (mut list, mut listed) = (Pieces::default(), 0);
    let mut room = None;
    while listed < top {
        if list.len() > FREE_BYTES && room.is_none() {
            let bytes = (RULES_BYTES_MAX as u64).min(outbound.bytes_max());
            room = Some(outbound.wait(None, bytes).await);
        }
        let wanted = page.min(top - listed);
        let part = turn.page(skip.saturating_add(listed), wanted).await?;
        let Managed::Rules(rules) = part else {
            return Err(broker.refuse(Rejection::internal("unexpected answer"), path));
        };
        for rule in &rules {
            let mut item = Pieces::default();
            key(&mut item, "rule-description");
            write_rule(&mut item, rule);
            list.map(item, 2);
        }
        if list.len() > RULES_BYTES_MAX {
            let rejection = Rejection::out_of_range(format!(
                "rules take more than {RULES_BYTES_MAX} bytes, the limit per reply; ask for fewer \
                 with `top`, and for the next with `skip`"
            ));
            return Err(broker.refuse(rejection, path));
        }
        listed += rules.len();
        // A page may be short because its rules are large.
        if rules.is_empty() {
            break;
        }
    }
    if listed == 0 {
        return Ok(ManagementAnswer::Nothing);
    }
    let mut items = Pieces::default();
    key(&mut items, "rules");
    items.list(list, listed);
    Ok(ManagementAnswer::Map(items, 2))
}

fn write_rule(pieces: &mut Pieces, rule: &RuleDescription) {
    let RuleDescription { name, filter, action, created_at, extensions: _ } = rule;
    let mut items = Pieces::default();
    write_filter(&mut items, filter);
    match action {
        Some(action) => write_sql(&mut items, described::SQL_ACTION, action),
        // Never null (AMQP-87).
        None => write_described(&mut items, described::NO_ACTION, Pieces::default(), 0),
    }
    write::text(&mut items, name);
    write::timestamp(&mut items, created_at.unix_ms());
    write_described(pieces, described::RULE, items, 4);
}

fn write_filter(pieces: &mut Pieces, filter: &Filter) {
    match filter {
        Filter::True => {
            write_described(pieces, described::TRUE_FILTER, Pieces::default(), 0);
        }
        Filter::False => {
            write_described(pieces, described::FALSE_FILTER, Pieces::default(), 0);
        }
        Filter::Sql(sql) => write_sql(pieces, described::SQL_FILTER, sql),
        Filter::Correlation(filter) => {
            let mut items = Pieces::default();
            for field in CorrelationFilter::FIELDS {
                match field.get(filter) {
                    Some(text) => write::text(&mut items, text),
                    None => items.put_byte(code::NULL),
                }
            }
            let (mut map, mut encoded) = (Pieces::default(), Vec::new());
            for (name, value) in &filter.properties {
                write::text(&mut map, name);
                encoded.clear();
                value.encode_to(&mut encoded);
                map.put(&encoded);
            }
            items.map(map, 2 * filter.properties.len());
            let count = CorrelationFilter::FIELDS.len() + 1;
            write_described(pieces, described::CORRELATION_FILTER, items, count);
        }
    }
}

fn write_sql(pieces: &mut Pieces, descriptor: u64, sql: &SqlText) {
    let mut items = Pieces::default();
    write::text(&mut items, &sql.text);
    write::fixed(&mut items, code::INT, COMPATIBILITY_LEVEL.to_be_bytes());
    write_described(pieces, descriptor, items, 2);
}

fn write_described(pieces: &mut Pieces, descriptor: u64, items: Pieces, count: usize) {
    pieces.put_byte(code::DESCRIBED);
    write::ulong(pieces, descriptor);
    pieces.list(items, count);
}

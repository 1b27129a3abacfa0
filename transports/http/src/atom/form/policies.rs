//! `AuthorizationRules` of queues and topics: their policies with keys, for clients that may read
//! these (ADM-39, SEC-03). `form/entity.rs` includes them in descriptions.

use peeklock_core::ContainerKeys;
use peeklock_core::contract::{Right, Rights};
use peeklock_core::management::{Managed, Management};
use peeklock_core::policies::{KeyText, PolicyKeys, PolicyUpdate};

use super::super::xml::{Element, SB, Xml};
use super::kept::{StoredElements, own};
use crate::error::Refusal;
use crate::exchange::Exchange;

/// Name under which the order of rights is stored.
pub(super) const ORDER: &str = "RightsOrder";
const LIST: &str = "AuthorizationRules";
const RULE: &str = "AuthorizationRule";
const KIND: &str = "SharedAccessAuthorizationRule";
/// Claim type and value of each such rule.
const CLAIM: [(&str, &str); 2] = [("ClaimType", "SharedAccessKey"), ("ClaimValue", "None")];

/// A policy in a request, by its name.
pub(in crate::atom) type PolicyForm = (Box<str>, PolicyUpdate);

/// The policies of an entity in an answer.
pub(in crate::atom) struct PolicyViews(Vec<PolicyKeys>);

/// Reads the policies of a description; none if it has no such list.
///
/// # Errors
/// `ArgumentError` for an invalid policy, before any entity is created.
pub(in crate::atom) fn read(description: &Element) -> Result<Option<Vec<PolicyForm>>, Refusal> {
    let Some(list) = description.child(SB, LIST).filter(|list| !list.is_nil()) else {
        return Ok(None);
    };
    let rules = list.children.iter().filter(|rule| rule.is(SB, RULE));
    let said = rules.map(read_one).collect::<Result<Vec<_>, _>>()?;
    for (place, (name, _)) in said.iter().enumerate() {
        let mut before = said.iter().take(place);
        if before.any(|(other, _)| other.eq_ignore_ascii_case(name)) {
            let detail = format!("{LIST} has the KeyName `{name}` twice; keep one");
            return Err(Refusal::argument(detail));
        }
    }
    Ok(Some(said))
}

fn read_one(rule: &Element) -> Result<PolicyForm, Refusal> {
    let text = |name: &str| rule.child(SB, name).map_or("", |it| it.text.trim());
    let name = text("KeyName");
    if name.is_empty() {
        let detail = format!("an {RULE} has no KeyName; only a {KIND} is supported, which has one");
        return Err(Refusal::argument(detail));
    }
    for (element, value) in CLAIM {
        // Some clients omit them; another value means a rule that is not a policy.
        if !["", value].contains(&text(element)) {
            let detail = format!("policy `{name}`: the {element} of a {KIND} must be {value}");
            return Err(Refusal::argument(detail));
        }
    }
    let mut rights = Rights::NONE;
    for right in rule.child(SB, "Rights").iter().flat_map(|it| &it.children) {
        let Some(right) = Right::named(right.text.trim()) else {
            let detail = format!("policy `{name}`: AccessRights must be Send, Listen or Manage");
            return Err(Refusal::argument(detail));
        };
        rights = rights.and(right);
    }
    let key = |text: &str| match text {
        "" => Ok(None),
        text => KeyText::parse(text).map(Some),
    };
    let said =
        PolicyUpdate::of(rights).with_keys(key(text("PrimaryKey"))?, key(text("SecondaryKey"))?);
    said.validate(name)?;
    Ok((name.into(), said))
}

/// Checks that policies could replace the current ones of an entity, before the entity is created
/// or changed.
pub(in crate::atom) async fn judge(
    exchange: &Exchange,
    path: &str,
    said: Option<&[PolicyForm]>,
) -> Result<(), Refusal> {
    match said {
        None | Some([]) => Ok(()),
        Some(said) => Ok(exchange.access.judge_policies(path, said.to_vec()).await?),
    }
}

/// Replaces all policies of an entity at once, if the request has some; returns the resulting ones.
/// Unchanged policies stay in force.
pub(in crate::atom) async fn replace(
    exchange: &Exchange,
    path: &str,
    said: Option<Vec<PolicyForm>>,
) -> Result<PolicyViews, Refusal> {
    let access = &exchange.access;
    let said = match said {
        // An empty list for an entity without policies does not count as using keys (SEC-17).
        Some(said) if !said.is_empty() || has_policies(exchange, path).await? => said,
        Some(_) | None => return Ok(PolicyReader::of(exchange, path).await?.read(path).await),
    };
    match access.manage(path, Management::ReplacePolicies(said)).await? {
        Managed::KeysOfPolicies(keys) => Ok(PolicyViews(keys)),
        _ => Err(Refusal::unexpected()),
    }
}

async fn has_policies(exchange: &Exchange, path: &str) -> Result<bool, Refusal> {
    match exchange.access.manage(path, Management::Policies).await? {
        Managed::Policies(policies) => Ok(!policies.is_empty()),
        _ => Err(Refusal::unexpected()),
    }
}

/// Reads the policies of the entities in a container. A client that may read descriptions but not
/// keys gets none.
pub(in crate::atom) struct PolicyReader(Option<ContainerKeys>);

impl PolicyReader {
    /// For the entities below `container`; with an empty path for all entities.
    pub(in crate::atom) async fn of(exchange: &Exchange, container: &str) -> Result<Self, Refusal> {
        Ok(Self(exchange.access.keys_in(container).await?))
    }

    /// Returns the policies of an entity.
    pub(in crate::atom) async fn read(&self, path: &str) -> PolicyViews {
        match &self.0 {
            Some(keys) => PolicyViews(keys.of(path).await),
            None => PolicyViews(Vec::new()),
        }
    }
}

impl PolicyViews {
    /// Writes the element, which clients expect. It has no instants of policies, as in the cloud.
    pub(super) fn write(&self, xml: &mut Xml, kept: &StoredElements) {
        if self.0.is_empty() {
            xml.leaf(LIST, "");
            return;
        }
        xml.element(LIST, &[], |xml| {
            for keys in &self.0 {
                xml.element(RULE, &[("i:type", KIND)], |xml| write_one(xml, keys, kept));
            }
        });
    }
}

/// Returns the order of rights of each policy with an unusual order, to be stored: `Manage,Send`
/// and the name. None if the description has no list of policies.
pub(super) fn orders(description: &Element) -> Option<Vec<Element>> {
    let list = description.child(SB, LIST).filter(|list| !list.is_nil())?;
    let rules = list.children.iter().filter(|rule| rule.is(SB, RULE));
    let order = |rule: &Element| {
        let name = rule.child(SB, "KeyName")?.text.trim();
        let rights: Vec<&str> =
            rule.child(SB, "Rights")?.children.iter().map(|it| it.text.trim()).collect();
        let usual = Right::ALL.map(Right::name);
        let is_usual =
            usual.into_iter().filter(|it| rights.contains(it)).eq(rights.iter().copied());
        (!is_usual).then(|| own(ORDER, format!("{} {name}", rights.join(","))))
    };
    Some(rules.filter_map(order).collect())
}

/// Returns the rights of a policy in their stored order, if that is known and has the same rights.
fn in_order(name: &str, rights: Rights, kept: &StoredElements) -> Vec<Right> {
    let known = kept.own(ORDER).filter_map(|text| text.split_once(' '));
    let said = known
        .filter(|(_, known)| known.eq_ignore_ascii_case(name))
        .find_map(|(order, _)| order.split(',').map(Right::named).collect::<Option<Vec<Right>>>());
    let is_same = |said: &Vec<Right>| {
        said.len() == rights.iter().count() && rights.iter().all(|right| said.contains(&right))
    };
    said.filter(is_same).unwrap_or_else(|| rights.iter().collect())
}

fn write_one(xml: &mut Xml, keys: &PolicyKeys, kept: &StoredElements) {
    for (element, value) in CLAIM {
        xml.leaf(element, value);
    }
    xml.element("Rights", &[], |xml| {
        for right in in_order(&keys.policy.name, keys.policy.rights, kept) {
            xml.leaf("AccessRights", right.name());
        }
    });
    xml.leaf("KeyName", &keys.policy.name);
    xml.leaf("PrimaryKey", keys.primary_key.reveal());
    xml.leaf("SecondaryKey", keys.secondary_key.reveal());
}

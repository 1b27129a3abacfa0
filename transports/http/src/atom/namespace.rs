//! The namespace (ADM-45, CNT-10).

use actix_web::http::StatusCode;
use peeklock_core::limits::Tier;
use peeklock_core::management::{Managed, Management};

use super::entry::{Addresses, Entry};
use super::path::AtomRoute;
use super::xml::Xml;
use crate::error::{Answer, Refusal};
use crate::serve::Exchange;

/// Reads name, tier and instants of the namespace.
pub(super) async fn get(exchange: &Exchange) -> Answer {
    let read = exchange.access.manage("", Management::Namespace);
    let Managed::Namespace(namespace) = read.await? else { return Err(Refusal::unexpected()) };
    // Units are sold of that tier alone; this broker is one.
    let has_units = namespace.tier == Tier::Premium;
    let entry = Entry {
        route: AtomRoute::Namespace,
        title: namespace.name.to_string(),
        published: namespace.created_at,
        updated: namespace.modified_at,
        element: "NamespaceInfo",
        write: |xml: &mut Xml| {
            xml.leaf("Alias", "");
            xml.leaf("CreatedTime", &namespace.created_at.to_string());
            xml.leaf("MessagingSKU", &namespace.tier.to_string());
            if has_units {
                xml.leaf("MessagingUnits", "1");
            }
            xml.leaf("ModifiedTime", &namespace.modified_at.to_string());
            xml.leaf("Name", &namespace.name);
            xml.leaf("NamespaceType", "Messaging");
        },
    };
    Ok(entry.answer(StatusCode::OK, &Addresses::of(exchange)))
}

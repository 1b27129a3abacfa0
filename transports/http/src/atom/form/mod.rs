//! Descriptions in XML: requests as updates of the broker, and answers. Elements are written in the
//! order of ADM-34 and read in any order.

pub(super) mod entity;
mod kept;
pub(super) mod policies;
pub(super) mod rule;
mod value;

use peeklock_core::Access;
use peeklock_core::condition::Condition;
use peeklock_core::contract::Principal;
use peeklock_core::description::{Destination, EntityStatus};
use peeklock_core::error::Rejection;
use peeklock_core::path::EntityAddress;
use peeklock_core::time::TimeSpan;

use super::xml::{Element, SB};
use crate::error::Refusal;
use crate::exchange::Exchange;

/// Smallest duration that means "unlimited": one client sends it with milliseconds only (ADM-34).
const UNLIMITED: &str = "P10675199DT2H48M5.477S";
/// Days in [`UNLIMITED`].
const UNLIMITED_DAYS: u64 = 10_675_199;
/// Maximum length of a value that a refusal quotes, in characters.
const SHOWN_CHARS_MAX: usize = 64;
/// Headers with tokens for the destinations of forwarding (HTP-18).
const TOKEN_HEADERS: [&str; 2] =
    ["ServiceBusSupplementaryAuthorization", "ServiceBusDlqSupplementaryAuthorization"];

/// The properties in a description. An element without text, or with `nil`, counts as absent.
struct Fields<'a>(&'a Element);

impl<'a> Fields<'a> {
    fn text(&self, name: &str) -> Option<&'a str> {
        let element = self.0.child(SB, name).filter(|element| !element.is_nil())?;
        Some(element.text.as_str()).filter(|text| !text.is_empty())
    }

    fn word(&self, name: &str) -> Option<&'a str> {
        self.text(name).map(str::trim).filter(|text| !text.is_empty())
    }

    fn flag(&self, name: &str) -> Result<Option<bool>, Refusal> {
        let Some(text) = self.word(name) else { return Ok(None) };
        match text.to_ascii_lowercase().as_str() {
            "true" | "1" => Ok(Some(true)),
            "false" | "0" => Ok(Some(false)),
            _ => Err(wrong(name, text, "neither true nor false")),
        }
    }

    fn number<T: TryFrom<i128>>(&self, name: &str) -> Result<Option<T>, Refusal> {
        let Some(text) = self.word(name) else { return Ok(None) };
        let Ok(number) = text.parse::<i128>() else {
            return Err(wrong(name, text, "no number"));
        };
        match T::try_from(number) {
            Ok(number) => Ok(Some(number)),
            Err(_) => Err(Rejection::out_of_range(format!("{name} is {number}")).into()),
        }
    }

    fn span(&self, name: &str) -> Result<Option<TimeSpan>, Refusal> {
        let Some(text) = self.word(name) else { return Ok(None) };
        match span(text) {
            Some(span) => Ok(Some(span)),
            None => {
                Err(wrong(name, text, "no ISO 8601 duration of days, hours, minutes and seconds"))
            }
        }
    }

    fn status(&self, name: &str) -> Result<Option<EntityStatus>, Refusal> {
        let Some(text) = self.word(name) else { return Ok(None) };
        match EntityStatus::parse(text) {
            Some(status) => Ok(Some(status)),
            None => Err(wrong(name, text, "no status of an entity")),
        }
    }

    /// Returns the name of an entity of this broker, if the destination is its URL; otherwise the
    /// text unchanged (ADM-36).
    fn destination(&self, name: &str) -> Option<Box<str>> {
        let text = self.destination_text(name)?;
        Some(entity_of(text).unwrap_or_else(|| text.into()))
    }

    /// Returns a destination as written.
    fn destination_text(&self, name: &str) -> Option<&'a str> {
        Some(read_back(self.word(name)?))
    }
}

/// Returns the path of the entity that a destination names; none for other destinations.
fn entity_of(destination: &str) -> Option<Box<str>> {
    let is_entity = matches!(Destination::parse(destination), Ok(Destination::Entity(_)));
    let address = EntityAddress::parse(destination).ok().filter(|_| is_entity)?;
    Some(address.entity.path().into())
}

/// Removes the URL that Java clients put before a URL that they have read and take for a name
/// (ADM-36).
fn read_back(text: &str) -> &str {
    let path = text.split_once("://").and_then(|(_, rest)| rest.split_once('/'));
    let path = path.map_or("", |(_, path)| path);
    let is_url = path.split_once("://").is_some_and(|(scheme, _)| {
        !scheme.is_empty()
            && scheme.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte))
    });
    if is_url { path } else { text }
}

/// Destinations of messages and of dead letters.
pub(super) struct Destinations<'a>([Option<&'a str>; 2]);

impl<'a> Destinations<'a> {
    pub(super) fn of(messages: &'a Option<Box<str>>, dead_letters: &'a Option<Box<str>>) -> Self {
        Self([messages.as_deref(), dead_letters.as_deref()])
    }

    /// Keeps only destinations that differ from the current ones: only these are checked.
    pub(super) fn other_than(self, current: [&Option<Box<str>>; 2]) -> Self {
        let [messages, dead_letters] = self.0;
        let [current, current_dead_letters] = current.map(Option::as_deref);
        Self([
            messages.filter(|_| messages != current),
            dead_letters.filter(|_| dead_letters != current_dead_letters),
        ])
    }

    /// Returns the access of the client, with the tokens in its headers for these destinations
    /// (HTP-18).
    ///
    /// # Errors
    /// `Unauthorized`; `EntityNotFound` with the status 400 for a missing destination (ADM-36),
    /// which distinguishes it from a missing entity at the address.
    pub(super) async fn access(&self, exchange: &Exchange) -> Result<Access, Refusal> {
        let shown = TOKEN_HEADERS.map(|header| {
            let token = exchange.request.headers().get(header)?;
            let token = String::from_utf8_lossy(token.as_bytes());
            // The same client, with the same certificate and proxy, but another token for another
            // entity.
            let mut principal =
                Principal::clone(&*exchange.access.principal()?).with_token(&*token);
            (principal.key, principal.address) = (None, None);
            Some(exchange.site.broker.access(principal))
        });
        let access = exchange.access.with_destination_credentials(shown);
        for (place, text) in self.0.into_iter().enumerate() {
            let Some(text) = text else { continue };
            if !matches!(Destination::parse(text), Ok(Destination::Entity(_))) {
                continue;
            }
            if let Err(error) = access.find_destination(place, text).await {
                let refusal = Refusal::from(error);
                return Err(match refusal.is(Condition::EntityNotFound) {
                    true => refusal.with_status(actix_web::http::StatusCode::BAD_REQUEST),
                    false => refusal,
                });
            }
        }
        Ok(access)
    }
}

/// Reads a duration as clients write it.
fn span(text: &str) -> Option<TimeSpan> {
    let from = TimeSpan::parse(UNLIMITED)?;
    match TimeSpan::parse(text) {
        Some(span) => Some(if span >= from { TimeSpan::MAX } else { span }),
        None => {
            // Longer than `TimeSpan` can hold.
            let (days, _) = text.strip_prefix('P')?.split_once('D')?;
            let days: u64 = days.parse().ok()?;
            (days >= UNLIMITED_DAYS).then_some(TimeSpan::MAX)
        }
    }
}

fn wrong(name: &str, text: &str, why: &str) -> Refusal {
    let shown: String = text.chars().take(SHOWN_CHARS_MAX).collect();
    Refusal::argument(format!("{name} is `{shown}`, which is {why}"))
}

const fn flag_text(value: bool) -> &'static str {
    if value { "true" } else { "false" }
}

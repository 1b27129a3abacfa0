//! Common parts of the bodies of operations and notices, and the macros that declare bodies in both
//! encodings.

use peeklock_core::error::BrokerError;
use serde::{Deserialize, Serialize};

use super::text::{Guid, Instant};
use super::wire::{Reader, Wire, wire};
use crate::error::FrameError;

/// Encoding of the frames of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
pub enum Encoding {
    /// Text frames, `peeklock.v1.json`.
    Json,
    /// Binary frames, `peeklock.v1.binary`.
    Binary,
}

impl Encoding {
    /// Both encodings, the preferred one first.
    pub const ALL: [Self; 2] = [Self::Binary, Self::Json];

    /// Returns the name of the subprotocol.
    #[must_use]
    pub const fn subprotocol(self) -> &'static str {
        match self {
            Self::Json => "peeklock.v1.json",
            Self::Binary => "peeklock.v1.binary",
        }
    }

    /// Returns the encoding of a subprotocol; none for another name.
    #[must_use]
    pub fn of_subprotocol(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|encoding| encoding.subprotocol() == name)
    }
}

/// Declares structs in camelCase with both forms; absent options are left out in JSON.
macro_rules! bodies {
    ($($(#[$meta:meta])* struct $name:ident {
        $($(#[$field_meta:meta])* $field:ident: $type:ty,)*
    })*) => {$(
        $(#[$meta])*
        #[derive(Clone, Debug, serde::Serialize, serde::Deserialize)]
        #[serde(rename_all = "camelCase", deny_unknown_fields)]
        pub(crate) struct $name {
            $($(#[$field_meta])* pub(crate) $field: $type,)*
        }
        crate::frame::wire::wire!($name { $($field: $type),* });
    )*};
}

/// Declares the binary form of an enum without values: its index in a list.
macro_rules! wire_choice {
    ($name:ident, $label:literal, [$($variant:ident),*]) => {
        impl Wire for $name {
            const BYTES_MIN: usize = 1;

            fn write(&self, out: &mut Vec<u8>) {
                let all = [$(Self::$variant),*];
                let place = all.iter().position(|one| one == self).unwrap_or(0);
                u8::try_from(place).unwrap_or(0).write(out);
            }

            fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
                let all = [$(Self::$variant),*];
                let place = u8::read(reader)?;
                all.get(usize::from(place)).copied().ok_or(FrameError::BadValue($label))
            }
        }
    };
}

pub(crate) use {bodies, wire_choice};

/// A body without fields.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Empty {}
wire!(Empty {});

bodies! {
    struct WireError {
        /// A name of the error catalogue.
        condition: String,
        retryable: bool,
        tracking_id: Guid,
        /// Description of the error; its text may change between versions.
        detail: String,
        entity: String,
        timestamp: Instant,
    }
}

impl From<&BrokerError> for WireError {
    fn from(error: &BrokerError) -> Self {
        Self {
            condition: error.condition().name().to_owned(),
            retryable: error.retryable(),
            tracking_id: Guid(error.tracking_id().0),
            detail: error.detail().to_owned(),
            entity: error.entity().to_owned(),
            timestamp: Instant(error.timestamp()),
        }
    }
}

#[cfg(feature = "client")]
impl WireError {
    /// Converts to the error that users of the client get. A condition that this version does not
    /// know becomes an internal error.
    pub(crate) fn into_error(self) -> BrokerError {
        use peeklock_core::condition::Condition;
        use peeklock_core::error::Rejection;
        use peeklock_core::ids::TrackingId;

        let condition = Condition::parse(&self.condition).unwrap_or(Condition::InternalError);
        let rejection = Rejection::new(condition, self.detail);
        BrokerError::new(rejection, TrackingId(self.tracking_id.0), &self.entity, self.timestamp.0)
    }
}

/// A run of consecutive numbers: the first number and the count.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub(crate) struct Run(pub(crate) u64, pub(crate) u32);

impl Wire for Run {
    const BYTES_MIN: usize = 12;

    fn write(&self, out: &mut Vec<u8>) {
        self.0.write(out);
        self.1.write(out);
    }

    fn read(reader: &mut Reader<'_>) -> Result<Self, FrameError> {
        Ok(Self(u64::read(reader)?, u32::read(reader)?))
    }
}

impl Run {
    /// Adds a number to a list of runs.
    pub(crate) fn push(runs: &mut Vec<Self>, number: u64) {
        if let Some(last) = runs.last_mut() {
            let next = if last.0 == 0 { 0 } else { last.0 + u64::from(last.1) };
            if next == number && last.1 < u32::MAX {
                last.1 += 1;
                return;
            }
        }
        runs.push(Self(number, 1));
    }

    /// Returns the numbers of a list of runs, at most `count_max`.
    #[cfg_attr(not(feature = "client"), expect(dead_code, reason = "the client reads"))]
    pub(crate) fn expand(runs: &[Self], count_max: usize) -> Vec<u64> {
        runs.iter()
            .flat_map(|run| {
                (0..u64::from(run.1)).map(|place| if run.0 == 0 { 0 } else { run.0 + place })
            })
            .take(count_max)
            .collect()
    }
}

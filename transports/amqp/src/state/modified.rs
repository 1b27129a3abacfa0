//! `modified`: a delivery goes back changed (AMQP 3.4.5).

use peeklock_words::amqp::write::{self, Fields, Sink};

use crate::codec::fields::FieldReader;
use crate::codec::list::{List, put};
use crate::codec::value::Map;
use crate::error::AmqpError;

/// A delivery was not taken, and is changed.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Modified {
    /// Whether it counts as a delivery.
    pub delivery_failed: Option<bool>,
    /// Whether not to deliver it here again: to defer it.
    pub undeliverable_here: Option<bool>,
    /// Properties to change (AMQP-63).
    pub message_annotations: Option<Map>,
}

impl List for Modified {
    const DESCRIPTOR: u8 = 0x27;
    const NAME: &'static str = "modified";
    const FIELD_COUNT: usize = 3;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self {
            delivery_failed: fields.boolean("delivery-failed")?,
            undeliverable_here: fields.boolean("undeliverable-here")?,
            message_annotations: fields.map("message-annotations")?,
        })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(self.delivery_failed, write::boolean);
        fields.field(self.undeliverable_here, write::boolean);
        fields.field(self.message_annotations.as_ref().map(Map::as_bytes), put);
    }
}

//! `sasl-init`: a client's choice (AMQP 5.3.3.2).

use std::fmt;

use bytes::Bytes;
use peeklock_words::amqp::write::{self, Fields, Sink};

use crate::codec::fields::FieldReader;
use crate::codec::list::List;
use crate::error::AmqpError;

/// The mechanism that a client chose.
#[derive(Clone, PartialEq, Eq, Default)]
pub struct Init {
    /// Its name.
    pub mechanism: Box<str>,
    /// What it has to say at once.
    pub initial_response: Option<Bytes>,
    /// Which host it means.
    pub hostname: Option<Box<str>>,
}

impl List for Init {
    const DESCRIPTOR: u8 = 0x41;
    const NAME: &'static str = "sasl-init";
    const FIELD_COUNT: usize = 3;

    fn read(fields: &mut FieldReader<'_>) -> Result<Self, AmqpError> {
        Ok(Self {
            mechanism: fields.required("mechanism", FieldReader::text)?,
            initial_response: fields.binary("initial-response")?,
            hostname: fields.text("hostname")?,
        })
    }

    fn fields<S: Sink>(&self, fields: &mut Fields<'_, S>) {
        fields.field(Some(&*self.mechanism), write::symbol);
        fields.field(self.initial_response.as_deref(), write::binary);
        fields.field(self.hostname.as_deref(), write::text);
    }
}

/// Shows no secret.
impl fmt::Debug for Init {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Init").field("mechanism", &self.mechanism).finish_non_exhaustive()
    }
}

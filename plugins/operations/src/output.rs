//! Steps of an export (CON-22): messages are read one by one and written to a file, as lines of
//! JSON or as a table without bodies.
//!
//! ```text
//!  step ─► messages ─► file, synced ─► line of the step, with the bytes of the file
//! ```
//!
//! A step that is repeated begins at the bytes of the line before it, so each message is in the file
//! once. The entity only answers questions: nothing is locked or changed.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Bytes, BytesMut};
use peeklock_core::Entity;
use peeklock_core::command::{
    Act, ActResult, ActedMessage, Command, ExportForm, MessageReadError, Outcome, ReceivedMessage,
};
use peeklock_core::error::{BrokerError, Rejection};
use peeklock_core::ids::SequenceNumber;
use peeklock_core::inspect::{BodyReader, Excerpt, Head, HeadFacts, HeadQuery, HeadStart, Inquiry};
use peeklock_core::message::Body;
use peeklock_core::store::StoreError;
use peeklock_json::{HeadView, ReceivedView};
use serde_json::Value;

use crate::engine::Engine;
use crate::job::Job;
use crate::shelf::GrowingFile;
use crate::undo::Originals;

/// End of the name of the file.
pub(crate) const OUTPUT: &str = ".export";
/// Maximum bytes of a body that may be written as text. A longer one is written as Base64, piece by
/// piece, so that it is never whole in memory.
const TEXT_BYTES_MAX: u64 = 256 << 10;
/// A step ends after this number of bytes, so that a bound of the file costs few messages.
const STEP_BYTES: u64 = 1 << 20;
/// Why a message is not in the file.
const CANNOT_BE_READ: &str = "the store cannot read some messages, so the file does not have them; \
    the log has the reasons";
/// Columns of a table: properties of a head, as the JSON API names them.
const COLUMNS: [&str; 28] = [
    "sequenceNumber",
    "enqueuedSequenceNumber",
    "state",
    "isExpired",
    "enqueuedTimeUtc",
    "expiresAtUtc",
    "delayedUntilUtc",
    "deliveryCount",
    "hops",
    "size",
    "bodySize",
    "bodyKind",
    "messageId",
    "sessionId",
    "correlationId",
    "subject",
    "contentType",
    "to",
    "replyTo",
    "timeToLive",
    "scheduledEnqueueTimeUtc",
    "partitionKey",
    "replyToSessionId",
    "DeadLetterReason",
    "DeadLetterErrorDescription",
    "deadLetterSource",
    "applicationProperties",
    "bodyStart",
];

/// Why a message is not written.
enum MessageError {
    Read(MessageReadError),
    File(Rejection),
}

impl From<MessageReadError> for MessageError {
    fn from(error: MessageReadError) -> Self {
        Self::Read(error)
    }
}

impl From<Rejection> for MessageError {
    fn from(rejection: Rejection) -> Self {
        Self::File(rejection)
    }
}

impl Engine {
    /// Carries out a step of an export.
    pub(crate) async fn export(
        &self,
        job: &Job,
        entity: &Entity,
        act: &Act,
        form: ExportForm,
        originals: &mut Originals,
    ) -> Result<Outcome, BrokerError> {
        let refuse = |rejection| self.broker.refuse(rejection, &job.facts.path);
        originals.problem = None;
        let mut file = match originals.output.take() {
            Some(file) => file,
            None => self.table.output(job).map_err(refuse)?,
        };
        // An earlier attempt at this step may have no line.
        self.table.rewind_output(&mut file, job.kept).map_err(refuse)?;
        let mut messages = Vec::with_capacity(act.sequences.len());
        for sequence in &act.sequences {
            if file.bytes() >= job.kept.saturating_add(STEP_BYTES) {
                break;
            }
            let result = match self.find(entity, *sequence).await? {
                Some(head) => self.export_message(&mut file, job, head, form).await?,
                None => ActResult::NotFound,
            };
            if result == ActResult::Refused {
                originals.problem = Some(CANNOT_BE_READ);
            }
            messages.push(ActedMessage { sequence: *sequence, result });
        }
        self.table.write_output(job, &mut file).map_err(refuse)?;
        originals.output = Some(file);
        Ok(Outcome::Acted(messages))
    }

    async fn find(
        &self,
        entity: &Entity,
        sequence: SequenceNumber,
    ) -> Result<Option<HeadFacts<ReceivedMessage>>, BrokerError> {
        let start = HeadStart::Number(sequence);
        let query = HeadQuery { start, count_max: 1, ..HeadQuery::default() };
        if let Outcome::Inspected(excerpt) =
            entity.call(Command::Inspect(Inquiry::Heads(query))).await?
            && let Excerpt::Heads { heads, .. } = *excerpt
        {
            return Ok(heads.into_iter().find(|head| head.message.facts.sequence == sequence));
        }
        let rejection = Rejection::internal("the heads have another answer");
        Err(self.broker.refuse(rejection, entity.path()))
    }

    /// Writes a whole message, or nothing.
    async fn export_message(
        &self,
        file: &mut GrowingFile,
        job: &Job,
        head: HeadFacts<ReceivedMessage>,
        form: ExportForm,
    ) -> Result<ActResult, BrokerError> {
        let refuse = |rejection| self.broker.refuse(rejection, &job.facts.path);
        let (begin, sequence) = (file.bytes(), head.message.facts.sequence);
        let written = match form {
            ExportForm::Ndjson => self.write_line(file, job, &head).await,
            ExportForm::Csv => self.write_row(file, job, head).await,
        };
        let error = match written {
            Ok(()) => return Ok(ActResult::Done),
            Err(MessageError::File(rejection)) => return Err(refuse(rejection)),
            Err(MessageError::Read(error)) => error,
        };
        self.table.rewind_output(file, begin).map_err(refuse)?;
        match error {
            // It left meanwhile.
            MessageReadError::Store(StoreError::Gone) => Ok(ActResult::NotFound),
            MessageReadError::Store(StoreError::Damaged(_)) | MessageReadError::Content(_) => {
                tracing::error!(%error, %sequence, "a message cannot be exported");
                Ok(ActResult::Refused)
            }
            MessageReadError::Store(_) => {
                let detail = format!("a message cannot be read: {error}");
                Err(refuse(Rejection::server_busy(detail)))
            }
        }
    }

    /// Writes a message as a line of JSON that `peeklock send` reads.
    async fn write_line(
        &self,
        file: &mut GrowingFile,
        job: &Job,
        head: &HeadFacts<ReceivedMessage>,
    ) -> Result<(), MessageError> {
        let content = head.message.head(head.header_size).await?;
        let (mut message, source) = (content.message, content.dead_letter_source);
        let mut facts = head.message.facts;
        // A lock token gives the right to settle (CON-75).
        facts.lock = None;
        let mut body = head.message.body(head.header_size).await?;
        let is_long = body.length() > TEXT_BYTES_MAX;
        if !is_long {
            message.body = Body::Data(whole(&mut body).await?);
        }
        let view = ReceivedView::new(&message, &facts, source.as_deref());
        let view = if is_long { view.without_body() } else { view };
        // Numbers and texts always have a form in JSON.
        let object = serde_json::to_vec(&view).unwrap_or_default();
        if is_long {
            file.add(b"{\"bodyBase64\":\"");
            self.write_base64(file, job, &mut body).await?;
            file.add(b"\",");
            file.add(object.get(1..).unwrap_or_default());
        } else {
            file.add(&object);
        }
        file.add(b"\n");
        self.write_if_full(file, job)
    }

    async fn write_base64(
        &self,
        file: &mut GrowingFile,
        job: &Job,
        body: &mut BodyReader,
    ) -> Result<(), MessageError> {
        let mut bytes = Vec::new();
        while let Some(piece) = body.next().await? {
            bytes.extend_from_slice(&piece);
            // Three bytes have four characters.
            let rest = bytes.split_off(bytes.len() - bytes.len() % 3);
            file.add(STANDARD.encode(&bytes).as_bytes());
            bytes = rest;
            self.write_if_full(file, job)?;
        }
        file.add(STANDARD.encode(&bytes).as_bytes());
        Ok(())
    }

    /// Writes a message without its body as a row of a table.
    async fn write_row(
        &self,
        file: &mut GrowingFile,
        job: &Job,
        head: HeadFacts<ReceivedMessage>,
    ) -> Result<(), MessageError> {
        let content = head.message.head(head.header_size).await?;
        let facts = head.with_holder(|_| None).with_message(|message| message.facts);
        let head = HeadView::from(Head { facts, content: Some(content) });
        let head = serde_json::to_value(head).unwrap_or_default();
        if file.bytes() == 0 {
            file.add(row(COLUMNS.into_iter().map(str::to_owned)).as_bytes());
        }
        file.add(row(COLUMNS.into_iter().map(|column| text_of(&head, column))).as_bytes());
        self.write_if_full(file, job)
    }

    fn write_if_full(&self, file: &mut GrowingFile, job: &Job) -> Result<(), MessageError> {
        if file.is_full() {
            self.table.write_output(job, file)?;
        }
        Ok(())
    }
}

async fn whole(body: &mut BodyReader) -> Result<Bytes, MessageReadError> {
    let mut bytes = BytesMut::new();
    while let Some(piece) = body.next().await? {
        bytes.extend_from_slice(&piece);
    }
    Ok(bytes.freeze())
}

/// Text of a property of a head; a dead-letter reason or description is an application property.
fn text_of(head: &Value, column: &str) -> String {
    let is_of_application = column.starts_with("DeadLetter");
    let of_application =
        || head.get("applicationProperties")?.get(column).filter(|_| is_of_application);
    match head.get(column).or_else(of_application) {
        None => String::new(),
        Some(Value::String(text)) => text.clone(),
        Some(value) => value.to_string(),
    }
}

/// A row of a table (RFC 4180). A program that shows tables takes a cell with one of these
/// beginnings for a formula, so it gets an apostrophe.
fn row(cells: impl Iterator<Item = String>) -> String {
    let cells = cells.map(|text| {
        let is_formula = text.starts_with(['=', '+', '-', '@', '\t', '\r', '\n']);
        let text = if is_formula { format!("'{text}") } else { text };
        match text.contains([',', ';', '"', '\r', '\n']) {
            true => format!("\"{}\"", text.replace('"', "\"\"")),
            false => text,
        }
    });
    let mut row = cells.collect::<Vec<_>>().join(",");
    row.push_str("\r\n");
    row
}

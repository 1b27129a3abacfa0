//! The files of exports in the table (CON-22): their room, and their parts for readers.

use std::io;

use bytes::Bytes;
use peeklock_core::command::Deed;
use peeklock_core::error::Rejection;
use peeklock_core::ids::JobId;
use peeklock_core::inspect::{JobExportPart, unknown_job};
use peeklock_core::time::Timestamp;

use super::{Table, lock};
use crate::job::{ENDED, Job, LIVE, file_name};
use crate::output::OUTPUT;
use crate::shelf::GrowingFile;

impl Table {
    /// Finds the files of exports. One without a job, whose file cannot be read either, is removed.
    pub(super) fn open_outputs(&self, names: &[String]) -> io::Result<()> {
        for name in names {
            let Some(id) = name.strip_suffix(OUTPUT).and_then(JobId::parse) else { continue };
            let has_file = || [LIVE, ENDED].iter().any(|end| names.contains(&file_name(id, end)));
            if self.get(id).is_none() && !has_file() {
                tracing::warn!(file = name, "an export without its job is removed");
                self.shelf.remove(name)?;
                continue;
            }
            lock(&self.outputs).insert(id, self.length_of(name)?);
        }
        for id in self.ids_of(|job| job.facts.export_bytes.is_some()) {
            if !lock(&self.outputs).contains_key(&id) {
                self.with(id, |entry| entry.job.facts.export_bytes = None);
            }
        }
        Ok(())
    }

    /// Continues the file of an export after its last step. The rest is of a step that was not
    /// recorded.
    pub(crate) fn output(&self, job: &Job) -> Result<GrowingFile, Rejection> {
        self.check()?;
        let (id, name) = (job.facts.id, file_name(job.facts.id, OUTPUT));
        let length = self.shelf.length(&name);
        let length = length.map_err(|error| refuse_output(id, &error))?;
        match length.unwrap_or(0) {
            shorter if shorter < job.kept => {
                return Err(refuse_output(id, &io::Error::other("the file is too short")));
            }
            longer if longer > job.kept => {
                self.shelf.mend(&name, job.kept).map_err(|error| self.refuse(&error))?;
            }
            _ => {}
        }
        if length.is_some() {
            lock(&self.outputs).insert(id, job.kept);
        }
        Ok(GrowingFile::new(name, length.is_some(), job.kept))
    }

    /// Writes gathered bytes of an export, durably. Older exports that have ended make way.
    pub(crate) fn write_output(&self, job: &Job, file: &mut GrowingFile) -> Result<(), Rejection> {
        self.check()?;
        self.make_room_for_output(job, file.bytes())?;
        file.write(&self.shelf).map_err(|error| self.refuse(&error))
    }

    /// Removes the bytes of a message that cannot be read.
    pub(crate) fn rewind_output(&self, file: &mut GrowingFile, end: u64) -> Result<(), Rejection> {
        file.rewind(&self.shelf, end).map_err(|error| self.refuse(&error))
    }

    fn make_room_for_output(&self, job: &Job, bytes: u64) -> Result<(), Rejection> {
        let (id, bytes_max) = (job.facts.id, self.bounds.output_bytes);
        if bytes > bytes_max {
            let rest = match job.next_sequence() {
                Some(next) => format!("those from number {next} on"),
                None => "the rest".to_owned(),
            };
            return Err(Rejection::invalid_operation(format!(
                "the file of an export has at most {bytes_max} bytes; cancel the job, download the \
                 messages that it has written, and export {rest} with another job"
            )));
        }
        let (mut rest, may_make_way) = self.other_outputs(id);
        let most =
            may_make_way.iter().fold(0, |sum: u64, (_, _, bytes)| sum.saturating_add(*bytes));
        // Nothing is removed in vain.
        if rest.saturating_sub(most).saturating_add(bytes) > bytes_max {
            return Err(Rejection::quota_exceeded(format!(
                "the files of all exports have at most {bytes_max} bytes; the job waits until \
                 another export has ended, so cancel one, or this one"
            )));
        }
        for (_, old, length) in may_make_way {
            if rest.saturating_add(bytes) <= bytes_max {
                break;
            }
            tracing::info!(job = %old, "the file of an older export makes way");
            self.remove_output(old).map_err(|error| refuse_output(old, &error))?;
            rest = rest.saturating_sub(length);
        }
        lock(&self.outputs).insert(id, bytes);
        Ok(())
    }

    /// Bytes of the files of all other exports, and the ones that may make way, the first one first:
    /// files whose job cannot be read, and files of ended jobs by their age.
    fn other_outputs(&self, own: JobId) -> (u64, Vec<(Option<Timestamp>, JobId, u64)>) {
        let mut outputs = lock(&self.outputs).clone();
        outputs.remove(&own);
        let all = outputs.values().fold(0, |sum: u64, bytes| sum.saturating_add(*bytes));
        let jobs = lock(&self.jobs);
        let mut may_make_way = Vec::new();
        for (id, bytes) in outputs {
            match jobs.get(&id).map(|entry| &entry.job.facts) {
                None => may_make_way.push((None, id, bytes)),
                Some(facts) if facts.state.is_end() => {
                    let ended_at = facts.ended_at.unwrap_or(facts.created_at);
                    may_make_way.push((Some(ended_at), id, bytes));
                }
                Some(_) => {}
            }
        }
        may_make_way.sort();
        (all, may_make_way)
    }

    /// Removes the file of an export, if it has one.
    pub(super) fn remove_output(&self, id: JobId) -> io::Result<()> {
        if !lock(&self.outputs).contains_key(&id) {
            return Ok(());
        }
        self.shelf.remove(&file_name(id, OUTPUT))?;
        lock(&self.outputs).remove(&id);
        self.with(id, |entry| entry.job.facts.export_bytes = None);
        Ok(())
    }

    /// Reads a part of the file that an ended job has exported.
    pub(crate) fn read_output(
        &self,
        id: JobId,
        from: u64,
        length: u64,
    ) -> Result<JobExportPart, Rejection> {
        let facts = self.facts(id).ok_or_else(|| unknown_job(id))?;
        let Some(bytes) = facts.export_bytes else {
            let problem = match (&facts.deed, facts.state.is_end()) {
                (Deed::Export(_), true) => {
                    "has no file: it has exported no message, or newer exports needed the room"
                }
                (Deed::Export(_), false) => "has not ended; download its file then",
                _ => "is not an export",
            };
            return Err(Rejection::invalid_operation(format!("job {id} {problem}")));
        };
        let count = length.min(bytes.saturating_sub(from));
        let wanted = usize::try_from(count).unwrap_or(usize::MAX);
        let mut part = JobExportPart { length: bytes, from, bytes: Bytes::new() };
        if wanted > 0 {
            let file = self.shelf.open(&file_name(id, OUTPUT));
            let read = file.and_then(|file| file.read_at(from, wanted));
            part.bytes = read.map_err(|error| refuse_output(id, &error))?.into();
        }
        if part.bytes.len() < wanted {
            return Err(refuse_output(id, &io::Error::other("the file is too short")));
        }
        Ok(part)
    }
}

fn refuse_output(id: JobId, error: &io::Error) -> Rejection {
    tracing::error!(%error, job = %id, "the file of an export cannot be read or removed");
    Rejection::server_busy(format!("the file of export {id} cannot be read or removed: {error}"))
}

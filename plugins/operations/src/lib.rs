//! Jobs of a Peeklock broker (CON-12 to CON-21): deeds of operators on many messages.
//!
//! ```text
//!  create ─► selection ─► preview with digest ─► file
//!  start  ─► step ─► entity: one batch with a receipt ─► line in the file ─► next step
//! ```
//!
//! The file of a job has its selection and a line for each step. A step without a line is repeated
//! after a restart: its receipt in the entity answers with the first result, so each message is
//! acted on once. An ended job keeps its counts and failures for a week.
//!
//! The modules in reading order: `job` (a job as the result of its lines), `record` (the lines),
//! `selection` and `preview` (the dry run), `export` (messages before their deeds), `engine` (the
//! thread), `undo` (keeps messages and puts them back), `output` (exports messages), `table` (jobs
//! in memory and their files), `shelf` (files), `keeper` (requests of the broker).

mod engine;
mod export;
mod job;
mod keeper;
mod output;
mod preview;
mod record;
mod selection;
mod shelf;
mod table;
mod undo;

pub use keeper::Operations;

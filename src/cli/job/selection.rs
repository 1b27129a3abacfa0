//! Flags of jobs that select messages (CON-12).

use clap::Args;
use peeklock::ids::SequenceNumber;
use peeklock::inspect::{HeadState, HeadStates, JobSelection, Where};
use peeklock::path::dead_letter_path;

use super::super::Failure;
use super::super::arguments::sequence_number;
use super::super::connect::CommandConnection;
use super::super::inspect::State;

#[derive(Args)]
pub struct SelectionFlags {
    /// Take messages of the dead-letter queue
    #[arg(short, long)]
    dead_letter: bool,
    /// Take messages that meet these conditions; an empty text takes all
    #[arg(
        long = "where",
        value_name = "WHERE",
        conflicts_with = "number",
        required_unless_present = "number"
    )]
    conditions: Option<String>,
    /// Take only messages in these states
    #[arg(long, value_name = "STATE", value_delimiter = ',', conflicts_with = "number")]
    state: Vec<State>,
    /// Take at most this many messages, those with the lowest numbers [default: 100,000]
    #[arg(short = 'n', long, value_name = "N", conflicts_with = "number")]
    count: Option<u32>,
    /// Take the message with this sequence number; up to 10,000 times
    #[arg(long, value_name = "NUMBER", value_parser = sequence_number)]
    number: Vec<u64>,
}

impl SelectionFlags {
    /// Path of the messages of an entity.
    pub fn path(&self, entity: &str) -> String {
        if self.dead_letter { dead_letter_path(entity) } else { entity.to_owned() }
    }

    pub fn selection(&self, session: &CommandConnection) -> Result<JobSelection, Failure> {
        let Some(line) = &self.conditions else {
            let numbers = self.number.iter().copied().map(SequenceNumber);
            return Ok(JobSelection::Numbers(numbers.collect()));
        };
        let conditions = Where::parse(line, session.client.now());
        let states: HeadStates = self.state.iter().copied().map(HeadState::from).collect();
        Ok(JobSelection::Matching {
            states: if states.is_empty() { HeadStates::ALL } else { states },
            conditions: conditions
                .map_err(|rejection| Failure::usage(rejection.detail().to_owned()))?,
            count_max: self.count,
        })
    }
}

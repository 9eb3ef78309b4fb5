//! The wire: the protocol between engines and viewers, the same in memory, over a socket, through a pipe and
//! on disk (`events.jsonl`). Commands are imperative, events are past tense.

mod codec;
mod command;
mod event;
pub mod id;
mod metric;

pub use crate::base::num::Num;
pub use codec::{DecodeError, MAX_LINE, decode_command, decode_envelope, encode};
pub use command::{Calling, Command, CommandId, Prompt, Request, StopWhen, Turn, Wanted};
pub use event::{
    Envelope, Event, ExaminedExample, ExaminedSequence, LikelyToken, Outcome, Outlier, Phase,
    PromptToken, StopReason, UndoPoint, Values,
};
pub use metric::{Band, Best, ChartPlace, Direction, MetricInfo, Origin};

/// Version of the envelope; a viewer rejects a larger one and accepts smaller ones.
pub const VERSION: u32 = 1;

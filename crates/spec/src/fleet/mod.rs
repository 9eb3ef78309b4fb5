//! Runs on several machines in one list. Each machine runs `llmtui runs --json --follow` behind the system's own `ssh`; what it
//! says is read line by line, bounded, and believed as little as any other foreign text.

mod hosts;
mod list;
mod news;
mod station;

pub use hosts::{EXAMPLE, Host, HostsError, Place};
pub use list::{Fleet, HostState, Reach, Row, Sort};
pub use news::{Machine, News, Run, VERSION, encode};
pub use station::{Said, Station};

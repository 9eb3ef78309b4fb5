//! Runs on several machines in one list. Each machine runs `llmtui runs --json --follow` over the system's own `ssh`; its
//! output is read line by line, bounded, and treated like any other untrusted text.

mod hosts;
mod list;
mod news;
mod station;

pub use hosts::{EXAMPLE, Host, HostsError, Place};
pub use list::{Fleet, HostState, Reach, Row, Sort};
pub use news::{Machine, News, Run, VERSION, encode};
pub use station::{Said, Station};

//! Runs on several machines in one list. Each machine runs `llmtui runs --json --follow` over the system's own `ssh`; its
//! output is read line by line, bounded, and treated like any other untrusted text.

mod connection;
mod hosts;
mod list;
mod news;

pub use connection::{ConnectionEvent, HostConnection};
pub use hosts::{EXAMPLE, FILE, Host, HostsError, Place};
pub use list::{Fleet, HostState, HostStatus, Row, Sort};
pub use news::{FleetMessage, Machine, Run, VERSION, encode};

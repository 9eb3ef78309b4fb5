//! Another process, and the name of this machine, according to `/proc`. Permission to signal it is not checked here.

use crate::files::read_plain_text;

/// Whether a process of this machine is stopped by a signal (SIGSTOP, ctrl-z) or a debugger: it does nothing until SIGCONT.
pub fn is_suspended(pid: u32) -> bool {
    let stat = read_plain_text(format!("/proc/{pid}/stat")).unwrap_or_default();
    matches!(state(&stat), Some('T' | 't'))
}

/// This machine's host name, by which it is told apart from others that share a disk; in a container, the container's, whose
/// process ids mean nothing outside either. Empty where the system does not say it.
pub fn host_name() -> String {
    let name = read_plain_text("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim().to_string()
}

/// The state in a line of proc(5)'s `stat`: after the name, which may contain anything.
fn state(stat: &str) -> Option<char> {
    stat.rsplit_once(')')?.1.trim_start().chars().next()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_process_name_may_look_like_a_state() {
        assert_eq!(state("7 (a) T b) S 1 7 7"), Some('S'));
        assert_eq!(state("7 (llmtui) T 1 7 7"), Some('T'));
        assert_eq!(state(""), None);
        assert!(!is_suspended(std::process::id()));
        assert!(!is_suspended(0), "there is none");
    }
}

//! What happens at logout: systemd-logind's settings, and whether lingering is enabled for this user.

use super::{Root, process};
use crate::hardware::machine::Logout;

/// The main file, of the distribution and of the administrator.
const FILES: &[&str] = &["usr/lib/systemd/logind.conf", "etc/systemd/logind.conf"];
/// Drop-in folders; later ones take precedence (logind.conf(5)).
const FOLDERS: &[&str] = &[
    "usr/lib/systemd/logind.conf.d",
    "run/systemd/logind.conf.d",
    "etc/systemd/logind.conf.d",
];

pub fn read(root: &Root) -> Logout {
    let user = process::owner(root, "proc/self/status");
    let parts = FOLDERS.iter().flat_map(|folder| {
        let names = root.names(folder).into_iter();
        names
            .filter(|name| name.ends_with(".conf"))
            .map(move |name| format!("{folder}/{name}"))
    });
    let files = FILES.iter().map(ToString::to_string).chain(parts);
    let text: Vec<String> = files.filter_map(|file| root.read(&file)).collect();
    let said = |key: &str| {
        let lines = text.iter().flat_map(|text| text.lines());
        let mut values =
            lines.filter_map(|line| line.trim().strip_prefix(key)?.trim().strip_prefix('='));
        values.next_back().map(str::trim)
    };
    // Unset: no processes are killed, and root's never are.
    let spared = said("KillExcludeUsers").unwrap_or("root");
    let kills = matches!(said("KillUserProcesses"), Some("yes" | "true" | "on" | "1"));
    Logout {
        logind: root.exists("run/systemd/seats"),
        kills: kills && !spared.split_whitespace().any(|name| name == user),
        lingers: !user.is_empty() && root.exists(&format!("var/lib/systemd/linger/{user}")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hardware::host::tests::tree;

    const STATUS: (&str, &str) = (
        "proc/self/status",
        "Name:\tllmtui\nUid:\t1000\t1000\t1000\t1000\n",
    );
    const ACCOUNTS: (&str, &str) = (
        "etc/passwd",
        "root:x:0:0::/:/bin/sh\nana:x:1000:1000::/home/ana:/bin/sh\n",
    );

    #[test]
    fn later_files_win_and_users_may_linger_or_be_excluded() {
        let main = (
            "etc/systemd/logind.conf",
            "[Login]\n#KillUserProcesses=no\nKillUserProcesses = yes\n",
        );
        let seats = ("run/systemd/seats/seat0", "");
        let of = |more: &[(&str, &str)]| {
            let files: Vec<_> = [STATUS, ACCOUNTS, main, seats]
                .iter()
                .chain(more)
                .copied()
                .collect();
            let (_keep, root) = tree(&files);
            read(&root)
        };
        let plain = Logout {
            logind: true,
            kills: true,
            lingers: false,
        };
        assert_eq!(of(&[]), plain);
        let off = (
            "etc/systemd/logind.conf.d/10-keep.conf",
            "[Login]\nKillUserProcesses=no\n",
        );
        assert_eq!(
            of(&[off]),
            Logout {
                kills: false,
                ..plain
            }
        );
        let spared = (
            "etc/systemd/logind.conf.d/20-ana.conf",
            "KillExcludeUsers=root ana\n",
        );
        assert_eq!(
            of(&[spared]),
            Logout {
                kills: false,
                ..plain
            }
        );
        let linger = ("var/lib/systemd/linger/ana", "");
        assert_eq!(
            of(&[linger]),
            Logout {
                lingers: true,
                ..plain
            }
        );
    }
}

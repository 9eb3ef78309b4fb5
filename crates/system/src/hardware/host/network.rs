//! Network interfaces, without loopback.

use super::Root;
use crate::hardware::machine::Network;

pub fn read(root: &Root) -> Vec<Network> {
    let names = root.names("sys/class/net");
    names
        .into_iter()
        .filter(|name| name != "lo")
        .filter_map(|name| {
            let file = |what: &str| root.read(&format!("sys/class/net/{name}/{what}"));
            let number = |what: &str| root.number(&format!("sys/class/net/{name}/{what}"));
            // Traffic-shaping devices and bridges without members have no relevant state.
            let state = file("operstate")?;
            let state = state.trim();
            let physical = root.exists(&format!("sys/class/net/{name}/device"));
            (physical || state == "up").then(|| Network {
                up: state == "up",
                speed_mbps: number("speed"),
                mtu: number("mtu"),
                name: name.clone(),
            })
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::tests::tree;
    use super::*;

    #[test]
    fn interfaces_with_state_and_speed() {
        let (_keep, root) = tree(&[
            ("sys/class/net/lo/operstate", "unknown\n"),
            ("sys/class/net/eth0/operstate", "up\n"),
            ("sys/class/net/eth0/speed", "25000\n"),
            ("sys/class/net/eth0/mtu", "9000\n"),
            ("sys/class/net/eth1/operstate", "down\n"),
            ("sys/class/net/eth1/speed", "-1\n"),
            ("sys/class/net/eth1/device/vendor", "0x1\n"),
            ("sys/class/net/ifb0/operstate", "down\n"),
        ]);
        let found = read(&root);
        let names: Vec<&str> = found.iter().map(|n| n.name.as_str()).collect();
        assert_eq!(names, ["eth0", "eth1"]);
        assert_eq!((found[0].up, found[0].speed_mbps), (true, Some(25_000)));
        assert_eq!((found[1].up, found[1].speed_mbps), (false, None));
    }
}

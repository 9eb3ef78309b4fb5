//! The rendezvous address of ranks on several machines: reachable by all of them, but not public.

use super::{Machine, NodeInfo};
use crate::base::paths::Env;
use crate::workers::torch::Config;
use std::net::{IpAddr, ToSocketAddrs, UdpSocket};

const SET: &str = "set engine.torch.address to the first machine's address in the shared network";

/// Lookups in the network of this machine.
trait Network {
    fn host_name(&self) -> String;
    /// The first address of a name, IPv4 preferred.
    fn resolve(&self, name: &str) -> Option<IpAddr>;
    /// This machine's address on the route to another one.
    fn source_towards(&self, to: IpAddr) -> Option<IpAddr>;
}

/// The network that this process is in.
struct System;

impl Network for System {
    fn host_name(&self) -> String {
        crate::hardware::host_name()
    }

    fn resolve(&self, name: &str) -> Option<IpAddr> {
        if let Ok(address) = name.parse() {
            return Some(address);
        }
        let found: Vec<IpAddr> = (name, 0)
            .to_socket_addrs()
            .ok()?
            .map(|at| at.ip())
            .collect();
        let four = found.iter().find(|ip| ip.is_ipv4() && !ip.is_loopback());
        four.or(found.first()).copied()
    }

    fn source_towards(&self, to: IpAddr) -> Option<IpAddr> {
        let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
        let socket = UdpSocket::bind(any).ok()?;
        // Sends nothing: the kernel only selects the route.
        socket.connect((to, 9)).ok()?;
        Some(socket.local_addr().ok()?.ip())
    }
}

/// The first machine's address as the others reach it: the configured one, or where ssh or SLURM reaches it. `abouts` are the
/// machines' descriptions, in rank order; `None` for this one.
///
/// # Errors
/// It is unknown, or public.
pub fn address(
    config: &Config,
    machines: &[Machine],
    abouts: &[Option<NodeInfo>],
) -> Result<String, String> {
    address_in(&System, config, machines, abouts)
}

fn address_in(
    network: &dyn Network,
    config: &Config,
    machines: &[Machine],
    abouts: &[Option<NodeInfo>],
) -> Result<String, String> {
    let said = config.address.clone().or_else(|| by_ssh(machines, abouts));
    let (name, found) = match said {
        Some(name) => (name.clone(), network.resolve(&name)),
        None => by_name(network, machines, abouts),
    };
    let found = found.ok_or_else(|| format!("{name}: its address is unknown: {SET}"))?;
    let own = network.host_name();
    let shared = abouts.iter().flatten().any(|about| about.host != own);
    if found.is_loopback() && shared && config.address.is_none() {
        return Err(format!(
            "{name} is {found} here, which other machines cannot reach: {SET}"
        ));
    }
    if !is_private(found) && !config.public_address {
        return Err(format!(
            "{name} is {found}, a public Internet address, and PyTorch's connections have no passwords or encryption: {SET}, or \
             set engine.torch.public_address=true"
        ));
    }
    Ok(found.to_string())
}

/// The address by the first machine's name. Debian maps a machine's own name to the loopback (127.0.1.1): of this machine it is
/// then the address on the route to another one.
fn by_name(
    network: &dyn Network,
    machines: &[Machine],
    abouts: &[Option<NodeInfo>],
) -> (String, Option<IpAddr>) {
    let own = network.host_name();
    let names = |node: usize| names(machines.get(node), abouts.get(node), &own);
    let usable = |names: Vec<String>| {
        let found = |name: String| Some((network.resolve(&name)?, name));
        names
            .into_iter()
            .filter_map(found)
            .find(|(ip, _)| !ip.is_loopback())
    };
    let first = names(0);
    let name = first[0].clone();
    if let Some((found, name)) = usable(first.clone()) {
        return (name, Some(found));
    }
    let host = |about: &Option<NodeInfo>| about.as_ref().map_or(own.clone(), |a| a.host.clone());
    let is_here = abouts.first().map_or(own.clone(), host) == own;
    let elsewhere = (1..abouts.len()).filter(|node| is_here && host(&abouts[*node]) != own);
    let by_route = elsewhere
        .filter_map(|node| network.source_towards(usable(names(node))?.0))
        .find(|ip| !ip.is_loopback() && !ip.is_unspecified());
    let loopback = || first.iter().find_map(|name| network.resolve(name));
    (name, by_route.or_else(loopback))
}

/// The names of a machine, the likeliest to have an address in front; at least one.
fn names(machine: Option<&Machine>, about: Option<&Option<NodeInfo>>, own: &str) -> Vec<String> {
    let host = about
        .and_then(Option::as_ref)
        .map(|about| about.host.clone());
    match machine {
        Some(Machine::Here(name)) if name != "localhost" => vec![name.clone(), own.into()],
        Some(Machine::Here(_)) | None => vec![own.into()],
        // Clusters may know a node by another name than its own.
        Some(Machine::Srun(name) | Machine::Ssh(name)) => {
            host.into_iter().chain([name.clone()]).collect()
        }
    }
}

/// The address at which ssh reaches the first machine. A step of srun has the `SSH_CONNECTION` of the shell that submitted the
/// job, which describes another connection: what it reports is not used.
fn by_ssh(machines: &[Machine], abouts: &[Option<NodeInfo>]) -> Option<String> {
    let reached = |(machine, about): (&Machine, &Option<NodeInfo>)| match machine {
        Machine::Ssh(_) => about.clone(),
        Machine::Here(_) | Machine::Srun(_) => None,
    };
    let mut reached = machines.iter().zip(abouts).map(reached);
    match machines.first()? {
        // Another machine knows the address that it was called from.
        Machine::Here(_) => reached.flatten().find_map(|about| about.caller),
        Machine::Ssh(_) => reached.next()??.own,
        Machine::Srun(_) => None,
    }
}

/// Whether an address is in a private network: RFC 1918, 6598, 3927, 4193 and the loopback.
fn is_private(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(ip) => {
            let [a, b, ..] = ip.octets();
            ip.is_private()
                || ip.is_loopback()
                || ip.is_link_local()
                || (a == 100 && b & 0xc0 == 64)
        }
        IpAddr::V6(ip) => match ip.to_ipv4_mapped() {
            Some(four) => is_private(IpAddr::V4(four)),
            None => ip.is_loopback() || ip.is_unique_local() || ip.is_unicast_link_local(),
        },
    }
}

/// The name of this machine's network interface towards an address; `None` if the environment sets one, or it is unknown.
pub fn interface(address: &str, env: &Env) -> Option<String> {
    if env.machines.interface_is_chosen {
        return None;
    }
    let own = System.source_towards(System.resolve(address)?)?;
    crate::hardware::interface_of(own)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn machines() -> [Machine; 2] {
        [Machine::Ssh("a".into()), Machine::Ssh("b".into())]
    }

    fn about(own: &str, caller: &str) -> Option<NodeInfo> {
        Some(NodeInfo {
            host: "elsewhere".into(),
            own: Some(own.into()),
            caller: Some(caller.into()),
            ..NodeInfo::default()
        })
    }

    #[test]
    fn the_rendezvous_is_where_ssh_reaches_the_first_machine() {
        let config = Config::default();
        let there = [about("10.1.0.2", "10.1.0.1"), about("10.1.0.3", "10.1.0.1")];
        assert_eq!(address(&config, &machines(), &there).unwrap(), "10.1.0.2");
        // This machine is the first: the second was called from it.
        let here = [Machine::Here("localhost".into()), Machine::Ssh("b".into())];
        let abouts = [None, about("10.1.0.3", "10.1.0.1")];
        assert_eq!(address(&config, &here, &abouts).unwrap(), "10.1.0.1");
        let set = Config {
            address: Some("192.168.7.7".into()),
            ..Config::default()
        };
        assert_eq!(address(&set, &here, &abouts).unwrap(), "192.168.7.7");
    }

    /// A cluster whose nodes map their own names to the loopback, and `n1` is this one.
    struct Cluster;

    impl Network for Cluster {
        fn host_name(&self) -> String {
            "n1".into()
        }

        fn resolve(&self, name: &str) -> Option<IpAddr> {
            let address = match name {
                "n1" | "node-1" => "127.0.1.1",
                "n2" => "10.0.0.2",
                "n3" => "10.0.0.3",
                _ => return None,
            };
            address.parse().ok()
        }

        fn source_towards(&self, to: IpAddr) -> Option<IpAddr> {
            let own = if to.is_loopback() {
                to.to_string()
            } else {
                "10.0.0.1".into()
            };
            own.parse().ok()
        }
    }

    fn step(host: &str) -> Option<NodeInfo> {
        Some(NodeInfo {
            host: host.into(),
            ..NodeInfo::default()
        })
    }

    /// No setting could mend it: the nodes of a requeued job are others.
    #[test]
    fn a_name_that_is_the_loopback_here_is_replaced_by_the_address_towards_another_node() {
        let there = |name: &str| Machine::Srun(name.into());
        let here = |name: &str| Machine::Here(name.into());
        for (machines, abouts, expected) in [
            ([here("n1"), there("n2")], [None, step("n2")], "10.0.0.1"),
            // SLURM's name of this node is not its host name.
            (
                [there("node-1"), there("n2")],
                [step("n1"), step("n2")],
                "10.0.0.1",
            ),
            (
                [here("localhost"), there("x")],
                [None, step("n3")],
                "10.0.0.1",
            ),
            ([there("n2"), here("n1")], [step("n2"), None], "10.0.0.2"),
            // A host name that this node does not know, by SLURM's name for it.
            ([there("n2"), here("n1")], [step("gpu-2"), None], "10.0.0.2"),
            // Tests: all of them are this machine.
            ([here("n1"), there("n2")], [None, step("n1")], "127.0.1.1"),
        ] {
            let found = address_in(&Cluster, &Config::default(), &machines, &abouts);
            assert_eq!(found.as_deref(), Ok(expected), "{machines:?}");
        }
        let unknown = [here("n1"), there("n9")];
        let error = address_in(&Cluster, &Config::default(), &unknown, &[None, step("n9")]);
        let error = error.unwrap_err();
        assert!(error.contains("127.0.1.1 here"), "{error}");
    }

    /// srun passes on the submitting shell's variable, which names a laptop and the login node.
    #[test]
    fn what_slurm_steps_report_of_ssh_is_not_used() {
        let reports = |host: &str| {
            let about = about("8.8.8.8", "1.1.1.1")?;
            let host = host.into();
            Some(NodeInfo { host, ..about })
        };
        let there = |name: &str| Machine::Srun(name.into());
        for (machines, abouts, expected) in [
            (
                [there("n2"), there("n3")],
                [reports("n2"), reports("n3")],
                "10.0.0.2",
            ),
            (
                [Machine::Here("n1".into()), there("n2")],
                [None, reports("n2")],
                "10.0.0.1",
            ),
        ] {
            let found = address_in(&Cluster, &Config::default(), &machines, &abouts);
            assert_eq!(found.as_deref(), Ok(expected), "{machines:?}");
        }
    }

    #[test]
    fn public_addresses_and_the_loopback_are_rejected() {
        let config = Config::default();
        let public = [about("8.8.8.8", "1.1.1.1"), about("9.9.9.9", "1.1.1.1")];
        let error = address(&config, &machines(), &public).unwrap_err();
        assert!(
            error.contains("public Internet") && error.contains("public_address"),
            "{error}"
        );
        let allowed = Config {
            public_address: true,
            ..Config::default()
        };
        assert!(address(&allowed, &machines(), &public).is_ok());
        let tunnel = [
            about("127.0.0.1", "127.0.0.1"),
            about("127.0.0.1", "127.0.0.1"),
        ];
        let error = address(&config, &machines(), &tunnel).unwrap_err();
        assert!(error.contains("other machines cannot reach"), "{error}");
        for (text, private) in [
            ("172.16.3.4", true),
            ("172.32.3.4", false),
            ("100.64.0.1", true),
            ("100.128.0.1", false),
            ("169.254.1.1", true),
            ("fd00::1", true),
            ("2001:db8::1", false),
            ("::ffff:8.8.8.8", false),
            ("0.0.0.0", false),
        ] {
            assert_eq!(is_private(text.parse().unwrap()), private, "{text}");
        }
    }

    #[test]
    fn the_loopback_has_an_interface() {
        let mut env = Env::default();
        assert_eq!(interface("127.0.0.1", &env).as_deref(), Some("lo"));
        env.machines.interface_is_chosen = true;
        assert_eq!(interface("127.0.0.1", &env), None);
    }
}

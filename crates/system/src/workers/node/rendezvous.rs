//! The rendezvous address of ranks on several machines: reachable by all of them, but not public.

use super::{Machine, NodeInfo};
use crate::base::paths::Env;
use crate::workers::torch::Config;
use std::net::{IpAddr, ToSocketAddrs, UdpSocket};

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
    let first = machines.first().map_or("localhost", Machine::name);
    let there = abouts.first().and_then(Option::as_ref);
    let found = config.address.clone().or_else(|| by_ssh(machines, abouts));
    let name = match (found, there) {
        (Some(found), _) => found,
        (None, Some(about)) => about.host.clone(),
        (None, None) if first == "localhost" => crate::hardware::host_name(),
        (None, None) => first.into(),
    };
    const SET: &str =
        "set engine.torch.address to the first machine's address in the shared network";
    let found = resolve(&name).ok_or_else(|| format!("{name}: its address is unknown: {SET}"))?;
    let shared = abouts
        .iter()
        .flatten()
        .any(|about| about.host != crate::hardware::host_name());
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

/// The first address of a name, IPv4 preferred.
fn resolve(name: &str) -> Option<IpAddr> {
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
    let to = resolve(address)?;
    let any = if to.is_ipv4() { "0.0.0.0:0" } else { "[::]:0" };
    let socket = UdpSocket::bind(any).ok()?;
    // Sends nothing: the kernel only selects the route.
    socket.connect((to, 9)).ok()?;
    crate::hardware::interface_of(socket.local_addr().ok()?.ip())
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

    /// srun passes on the submitting shell's variable, which names a laptop and the login node.
    #[test]
    fn what_slurm_steps_report_of_ssh_is_not_used() {
        let config = Config::default();
        let own = crate::hardware::host_name();
        let mut steps = [about("8.8.8.8", "1.1.1.1"), about("8.8.8.8", "1.1.1.1")];
        for step in steps.iter_mut().flatten() {
            // A name that every machine resolves.
            step.host = "127.0.0.1".into();
        }
        let two = ["n1", "n2"].map(|name| Machine::Srun(name.into()));
        assert_eq!(by_ssh(&two, &steps), None);
        let error = address(&config, &two, &steps).unwrap_err();
        assert!(error.contains("127.0.0.1 is 127.0.0.1 here"), "{error}");
        let here = [Machine::Here(own), Machine::Srun("n2".into())];
        let abouts = [None, about("8.8.8.8", "1.1.1.1")];
        assert_eq!(by_ssh(&here, &abouts), None);
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

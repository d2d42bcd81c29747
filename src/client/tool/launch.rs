//! Gives the client library its configuration before the library is there to read it.
//!
//! The library reads its configuration from files that environment variables name. The environment
//! of a running process cannot be changed safely, so the program writes the configuration into an
//! unnamed file and starts itself anew, as the same process, with the variables set.

use std::ffi::OsString;
use std::io::Write as _;
use std::net::{IpAddr, ToSocketAddrs as _, UdpSocket};
use std::os::fd::AsRawFd as _;
use std::os::unix::process::CommandExt as _;
use std::path::Path;

use super::Failure;
use crate::client::configuration::{CUFILE_PATH, CUOBJ_PATH, Configuration};
use crate::client::devices::{GidKind, Pick, choose, devices, problems, routes};
use crate::client::environment::{DC_KEY, RdmaEnvironment};
use crate::client::{Endpoint, Error};
use crate::rdma::provider::Maker;

/// Set in the second start.
const CONFIGURED: &str = "VGWRDMA_CONFIGURED";
/// Where the software SDK listens; it goes before its configuration.
const SOFT_ADDRESS: &str = "CUOBJ_SOFT_ADDR";

/// What the configuration needs beyond what is in force.
#[derive(Debug, Default, PartialEq, Eq)]
struct Change {
    address: Option<IpAddr>,
    dc_key: Option<u64>,
}

/// Sees to it that the client library finds the device and DC key that were asked for, or the
/// device that reaches the endpoint. Returns when nothing needs to change; otherwise the process
/// starts anew and does not return.
///
/// # Errors
/// [`Failure::Usage`] for settings that cannot be followed, [`Failure::HardwareAbsent`] when the
/// device that was asked for is not there.
pub(crate) fn configure(
    arguments: &[OsString],
    endpoint: &str,
    environment: &RdmaEnvironment,
    maker: Maker,
) -> Result<(), Failure> {
    if std::env::var_os(CONFIGURED).is_some() {
        return Ok(());
    }
    let usage = |error: Error| Failure::Usage(error.to_string());
    let lookup = |name: &str| std::env::var(name).ok();
    let mut configuration = Configuration::in_force(lookup, Path::new("/")).map_err(usage)?;
    let endpoint: Endpoint = endpoint.parse().map_err(usage)?;
    let change = change(&configuration, &endpoint, environment, maker, &lookup, Path::new("/"))?;
    if change == Change::default() {
        return Ok(());
    }
    if let Some(address) = change.address {
        tracing::info!(%address, "RDMA address of this client");
        configuration.set_address(address);
    }
    if let Some(key) = change.dc_key {
        configuration.set_dc_key(key);
    }
    Err(restart(arguments, &configuration.to_text()))
}

fn change(
    configuration: &Configuration,
    endpoint: &Endpoint,
    environment: &RdmaEnvironment,
    maker: Maker,
    lookup: &impl Fn(&str) -> Option<String>,
    root: &Path,
) -> Result<Change, Failure> {
    let soft_address = lookup(SOFT_ADDRESS).filter(|text| !text.is_empty() && maker == Maker::Soft);
    let mut change = Change { address: None, dc_key: environment.dc_key };
    if environment.names_place() {
        if soft_address.is_some() {
            return Err(Failure::Usage(format!(
                "{SOFT_ADDRESS} goes before {}; unset one of them",
                environment
                    .set()
                    .iter()
                    .filter(|name| **name != DC_KEY)
                    .copied()
                    .collect::<Vec<_>>()
                    .join(", ")
            )));
        }
        change.address = Some(asked_for(environment, peers(endpoint), root)?);
    } else if configuration.addresses().is_empty() && soft_address.is_none() {
        change.address = match maker {
            Maker::Soft => towards(endpoint),
            Maker::Nvidia => best(peers(endpoint), root),
        };
    }
    Ok(change)
}

/// Addresses of the endpoint. A name that does not resolve shows with the first request.
fn peers(endpoint: &Endpoint) -> Vec<IpAddr> {
    let found = (endpoint.host(), endpoint.port()).to_socket_addrs();
    found.map(|found| found.map(|address| address.ip().to_canonical()).collect()).unwrap_or_default()
}

/// The address of the device, port and GID that the environment names.
fn asked_for(environment: &RdmaEnvironment, peers: Vec<IpAddr>, root: &Path) -> Result<IpAddr, Failure> {
    let choice = environment.choice(peers);
    let devices = devices(root);
    let picks = choose(&devices, &routes(root), &choice);
    let names = environment.set().join(", ");
    let Some(pick) = picks.first() else {
        let reasons: Vec<String> = problems(root, &devices, &picks, &choice)
            .into_iter()
            .filter(|problem| problem.fatal)
            .map(|problem| problem.text)
            .collect();
        return Err(Failure::HardwareAbsent(format!("{names}: {}", reasons.join("; "))));
    };
    match is_infiniband(pick, &devices) {
        false => Ok(pick.address),
        true => Err(Failure::Usage(format!(
            "{names}: {} port {} is InfiniBand, and the cuObject library names NICs by IP address: put the \
             port's IPoIB address into rdma_dev_addr_list of the file that {CUFILE_PATH} names",
            pick.device, pick.port
        ))),
    }
}

fn is_infiniband(pick: &Pick, devices: &[crate::client::devices::Device]) -> bool {
    let device = devices.iter().find(|device| device.name == pick.device);
    let port = device.and_then(|device| device.ports.iter().find(|port| port.number == pick.port));
    port.is_some_and(|port| {
        port.gids.iter().any(|gid| gid.index == pick.gid_index && gid.kind == GidKind::InfiniBand)
    })
}

/// The best device for the gateway, where nobody named one. None is left to the library to tell.
fn best(peers: Vec<IpAddr>, root: &Path) -> Option<IpAddr> {
    let devices = devices(root);
    let choice = crate::client::devices::Choice { peers, ..Default::default() };
    let pick = choose(&devices, &routes(root), &choice).into_iter().next()?;
    (!is_infiniband(&pick, &devices)).then_some(pick.address)
}

/// The address that this machine reaches the endpoint from, which its agent then listens on. The
/// software SDK's own default, the loopback address, does for endpoints on this machine.
fn towards(endpoint: &Endpoint) -> Option<IpAddr> {
    let any: IpAddr = if peers(endpoint).first()?.is_ipv4() { [0; 4].into() } else { [0u16; 8].into() };
    let socket = UdpSocket::bind((any, 0)).ok()?;
    // Connecting a datagram socket sends nothing; it only looks the route up.
    socket.connect((endpoint.host(), endpoint.port())).ok()?;
    let address = socket.local_addr().ok()?.ip();
    (!address.is_loopback()).then_some(address)
}

/// Starts the program anew in this process. Comes back only with what went wrong.
fn restart(arguments: &[OsString], text: &str) -> Failure {
    let failed = |what: &str, error: std::io::Error| {
        Failure::Usage(format!("cannot pass the configuration to the client library: {what}: {error}"))
    };
    // Without the flag that closes it on the way into the new start.
    let file = match rustix::fs::memfd_create("cuobjtest.json", rustix::fs::MemfdFlags::empty()) {
        Ok(file) => file,
        Err(error) => return failed("memfd_create", error.into()),
    };
    let mut file = std::fs::File::from(file);
    if let Err(error) = file.write_all(text.as_bytes()) {
        return failed("write", error);
    }
    let path = format!("/proc/self/fd/{}", file.as_raw_fd());
    let mut command = std::process::Command::new("/proc/self/exe");
    if let Some(name) = arguments.first() {
        command.arg0(name);
    }
    let error = command
        .args(arguments.iter().skip(1))
        .envs([(CUOBJ_PATH, path.as_str()), (CUFILE_PATH, path.as_str()), (CONFIGURED, "1")])
        .exec();
    failed("exec", error)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::devices::testing::Tree;

    fn tree() -> Tree {
        let tree = Tree::new();
        tree.device("mlx5_0", "MT4129", "mlx5_core");
        tree.port("mlx5_0", 1, "4: ACTIVE", "Ethernet");
        tree.gid("mlx5_0", 1, 3, "0000:0000:0000:0000:0000:ffff:0a00:0005", "RoCE v2", "ens1");
        tree.route_v4("ens1", [10, 0, 0, 0], [0, 0, 0, 0], [255, 255, 255, 0]);
        tree
    }

    fn named(device: &str) -> RdmaEnvironment {
        RdmaEnvironment { device: Some(device.into()), ..RdmaEnvironment::default() }
    }

    fn changed(
        tree: &Tree,
        environment: &RdmaEnvironment,
        maker: Maker,
        lookup: &impl Fn(&str) -> Option<String>,
        url: &str,
    ) -> Result<Change, Failure> {
        let configuration = Configuration::in_force(lookup, tree.root()).unwrap();
        change(&configuration, &url.parse().unwrap(), environment, maker, lookup, tree.root())
    }

    #[test]
    fn a_named_device_gives_its_address() {
        for maker in [Maker::Soft, Maker::Nvidia] {
            let environment = RdmaEnvironment { dc_key: Some(7), ..named("mlx5_0") };
            let change = changed(&tree(), &environment, maker, &|_| None, "http://127.0.0.1:7070").unwrap();
            assert_eq!(change, Change { address: Some([10, 0, 0, 5].into()), dc_key: Some(7) });
        }
    }

    #[test]
    fn a_device_that_is_not_there_is_told() {
        let failure =
            changed(&tree(), &named("mlx5_9"), Maker::Nvidia, &|_| None, "http://127.0.0.1:1").unwrap_err();
        assert!(matches!(failure, Failure::HardwareAbsent(_)));
        assert!(failure.to_string().contains("VGWRDMA_RDMA_DEV: no RDMA device mlx5_9"), "{failure}");
    }

    #[test]
    fn nvidias_library_gets_the_device_that_reaches_the_gateway() {
        let none = RdmaEnvironment::default();
        let change = changed(&tree(), &none, Maker::Nvidia, &|_| None, "http://10.0.0.1:7070").unwrap();
        assert_eq!(change.address, Some([10, 0, 0, 5].into()));
        let empty = Tree::new();
        let change = changed(&empty, &none, Maker::Nvidia, &|_| None, "http://10.0.0.1:7070").unwrap();
        assert_eq!(change, Change::default());
    }

    #[test]
    fn a_configuration_with_addresses_stays() {
        let tree = tree();
        tree.file("etc/cufile.json", r#"{"properties": {"rdma_dev_addr_list": ["10.9.9.9"]}}"#);
        let none = RdmaEnvironment::default();
        let change = changed(&tree, &none, Maker::Nvidia, &|_| None, "http://10.0.0.1:7070").unwrap();
        assert_eq!(change, Change::default());
    }

    #[test]
    fn the_software_sdk_keeps_to_the_loopback_for_this_machine() {
        let none = RdmaEnvironment::default();
        let change = changed(&tree(), &none, Maker::Soft, &|_| None, "http://127.0.0.1:7070").unwrap();
        assert_eq!(change, Change::default());
    }

    #[test]
    fn an_address_for_the_software_sdk_excludes_a_device() {
        let lookup = |name: &str| (name == SOFT_ADDRESS).then(|| "127.0.0.1".to_owned());
        let failure = changed(&tree(), &named("mlx5_0"), Maker::Soft, &lookup, "http://h:1").unwrap_err();
        assert!(failure.to_string().contains("CUOBJ_SOFT_ADDR goes before VGWRDMA_RDMA_DEV"), "{failure}");
        assert!(changed(&tree(), &named("mlx5_0"), Maker::Nvidia, &lookup, "http://h:1").is_ok());
    }

    #[test]
    fn infiniband_needs_an_address_of_its_own() {
        let tree = Tree::new();
        tree.device("mlx5_0", "MT4123", "mlx5_core");
        tree.port("mlx5_0", 1, "4: ACTIVE", "InfiniBand");
        tree.gid("mlx5_0", 1, 0, "fe80:0000:0000:0000:b859:9f03:00d1:6e2c", "IB/RoCE v1", "");
        let failure =
            changed(&tree, &named("mlx5_0"), Maker::Nvidia, &|_| None, "http://10.0.0.1:1").unwrap_err();
        assert!(failure.to_string().contains("IPoIB"), "{failure}");
    }
}

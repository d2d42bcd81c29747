//! What stands between this machine and a transfer, each with its cure.

use std::fmt;
use std::fs;
use std::path::Path;

use serde::Serialize;

use super::{Choice, Device, GidKind, LinkLayer, Pick, Reach};
use crate::units::format_size;

/// Something that is wrong or missing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Problem {
    /// True when no transfer can work while it lasts; otherwise it limits what works.
    pub fatal: bool,
    /// What, and what to do.
    pub text: String,
}

impl Problem {
    fn fatal(text: impl Into<String>) -> Self {
        Self { fatal: true, text: text.into() }
    }

    fn warning(text: impl Into<String>) -> Self {
        Self { fatal: false, text: text.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", if self.fatal { "error" } else { "warning" }, self.text)
    }
}

/// Locked memory below this stands in the way of the larger transfers.
const ENOUGH_LOCKED_MEMORY: u64 = 2 << 30;

/// What is wrong, given what [`choose`](super::choose) picked.
pub fn problems(root: &Path, devices: &[Device], picks: &[Pick], choice: &Choice) -> Vec<Problem> {
    let mut problems = Vec::new();
    match picks.first() {
        None => problems.extend(nothing_fits(devices, choice)),
        Some(best) => {
            if best.reach == Reach::None {
                problems.push(Problem::warning(format!(
                    "no GID is in the gateway's subnet or has a route to it; {} {} would be used, and works only \
                     if the gateway's RDMA address is reachable from it",
                    best.device, best.address
                )));
            }
            if let Some(device) = devices.iter().find(|device| device.name == best.device) {
                problems.extend(device.unfit().map(Problem::fatal));
            }
        }
    }
    problems.extend(locked_memory(root));
    problems.extend(gpu_direct(root));
    problems
}

fn nothing_fits(devices: &[Device], choice: &Choice) -> Vec<Problem> {
    if devices.is_empty() {
        return vec![Problem::fatal(
            "no RDMA device: /sys/class/infiniband is empty; load the driver (modprobe mlx5_ib), and in a \
             container pass /dev/infiniband through",
        )];
    }
    if let Some(name) = &choice.device
        && !devices.iter().any(|device| device.name == *name)
    {
        let names: Vec<_> = devices.iter().map(|device| device.name.as_str()).collect();
        return vec![Problem::fatal(format!("no RDMA device {name}; there are {}", names.join(", ")))];
    }
    let mut problems = Vec::new();
    for device in devices.iter().filter(|d| choice.device.as_ref().is_none_or(|name| *name == d.name)) {
        if let Some(number) = choice.port
            && !device.ports.iter().any(|port| port.number == number)
        {
            problems.push(Problem::fatal(format!("{} has no port {number}", device.name)));
        }
        for port in device.ports.iter().filter(|p| choice.port.is_none_or(|n| n == p.number)) {
            let place = format!("{} port {}", device.name, port.number);
            let has = |kind| port.gids.iter().any(|gid| gid.kind == kind);
            let text = if !port.is_active() {
                format!(
                    "{place} is {} (physical state {}): check cable, switch and `ip link`",
                    port.state, port.physical_state
                )
            } else if let Some(index) = choice.gid_index {
                match port.gids.iter().find(|gid| gid.index == index) {
                    None => format!("{place} has no GID {index}"),
                    Some(gid) => format!(
                        "{place} GID {index} is {}{}; cuObject needs a routable RoCE v2 address",
                        gid.kind.name(),
                        if gid.is_link_local() { ", link-local" } else { "" }
                    ),
                }
            } else if port.gids.is_empty() {
                format!("{place} has no GID: give its network interface an address")
            } else if port.link_layer == LinkLayer::Ethernet && !has(GidKind::RoceV2) {
                format!("{place} has only RoCE v1 GIDs; cuObject needs RoCE v2")
            } else {
                format!(
                    "{place} has only link-local GIDs: give its network interface an IPv4 or IPv6 address"
                )
            };
            problems.push(Problem::fatal(text));
        }
        if device.ports.is_empty() {
            problems.push(Problem::fatal(format!("{} has no ports", device.name)));
        }
    }
    problems
}

/// Registered memory is locked; the limit is RLIMIT_MEMLOCK unless the process has CAP_IPC_LOCK.
fn locked_memory(root: &Path) -> Option<Problem> {
    let limits = fs::read_to_string(root.join("proc/self/limits")).ok()?;
    let line = limits.lines().find_map(|line| line.strip_prefix("Max locked memory"))?;
    let soft: u64 = line.split_whitespace().next()?.parse().ok()?;
    if soft >= ENOUGH_LOCKED_MEMORY || may_lock(root) {
        return None;
    }
    Some(Problem::warning(format!(
        "only {} of memory may be locked, so larger buffers cannot be registered: raise the limit with \
         `ulimit -l unlimited`, LimitMEMLOCK=infinity in a service, or --ulimit memlock=-1 for a container",
        format_size(soft)
    )))
}

fn may_lock(root: &Path) -> bool {
    const CAP_IPC_LOCK: u32 = 14;
    let status = fs::read_to_string(root.join("proc/self/status")).unwrap_or_default();
    let effective = status.lines().find_map(|line| line.strip_prefix("CapEff:"));
    let set = effective.and_then(|hex| u64::from_str_radix(hex.trim(), 16).ok());
    set.is_some_and(|set| set & (1 << CAP_IPC_LOCK) != 0)
}

/// A NIC reaches GPU memory by nvidia_peermem, or by dma-buf, which the open kernel modules have.
fn gpu_direct(root: &Path) -> Option<Problem> {
    let version = fs::read_to_string(root.join("proc/driver/nvidia/version")).ok()?;
    let peermem = root.join("sys/module/nvidia_peermem").exists();
    if peermem || version.contains("Open Kernel Module") {
        return None;
    }
    Some(Problem::warning(
        "a NIC cannot reach GPU memory here: load nvidia_peermem (modprobe nvidia-peermem), or use the open \
         kernel modules, which offer dma-buf; host memory works without",
    ))
}

#[cfg(test)]
pub(crate) mod testing {
    //! A made-up `/sys` and `/proc`.

    use std::fs;
    use std::io::Write as _;
    use std::path::Path;

    pub(crate) struct Tree(tempfile::TempDir);

    impl Tree {
        pub(crate) fn new() -> Self {
            Self(tempfile::tempdir().unwrap())
        }

        pub(crate) fn root(&self) -> &Path {
            self.0.path()
        }

        pub(crate) fn file(&self, path: &str, text: &str) {
            let path = self.root().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }

        pub(crate) fn device(&self, name: &str, board: &str, driver: &str) {
            let path = format!("sys/class/infiniband/{name}");
            self.file(&format!("{path}/hca_type"), &format!("{board}\n"));
            self.file(&format!("{path}/fw_ver"), "28.39.1002\n");
            self.file(&format!("{path}/device/numa_node"), "1\n");
            if !driver.is_empty() {
                let target = format!("sys/bus/pci/drivers/{driver}");
                fs::create_dir_all(self.root().join(&target)).unwrap();
                let link = self.root().join(&path).join("device/driver");
                std::os::unix::fs::symlink(self.root().join(target), link).unwrap();
            }
        }

        pub(crate) fn port(&self, device: &str, number: u32, state: &str, link_layer: &str) {
            let path = format!("sys/class/infiniband/{device}/ports/{number}");
            self.file(&format!("{path}/state"), &format!("{state}\n"));
            self.file(&format!("{path}/phys_state"), "5: LinkUp\n");
            self.file(&format!("{path}/link_layer"), &format!("{link_layer}\n"));
            self.file(&format!("{path}/rate"), "400 Gb/sec (4X NDR)\n");
        }

        pub(crate) fn gid(&self, device: &str, port: u32, index: u32, gid: &str, kind: &str, netdev: &str) {
            let path = format!("sys/class/infiniband/{device}/ports/{port}");
            self.file(&format!("{path}/gids/{index}"), &format!("{gid}\n"));
            self.file(&format!("{path}/gid_attrs/types/{index}"), &format!("{kind}\n"));
            self.file(&format!("{path}/gid_attrs/ndevs/{index}"), &format!("{netdev}\n"));
        }

        pub(crate) fn route_v4(&self, netdev: &str, network: [u8; 4], gateway: [u8; 4], mask: [u8; 4]) {
            let path = self.root().join("proc/net/route");
            if !path.exists() {
                self.file(
                    "proc/net/route",
                    "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n",
                );
            }
            let word = u32::from_ne_bytes;
            let mut file = fs::OpenOptions::new().append(true).open(path).unwrap();
            writeln!(
                file,
                "{netdev}\t{:08X}\t{:08X}\t0001\t0\t0\t0\t{:08X}\t0\t0\t0",
                word(network),
                word(gateway),
                word(mask)
            )
            .unwrap();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{choose, devices, routes};
    use super::testing::Tree;
    use super::*;
    use test_case::test_case;

    fn found(tree: &Tree, choice: &Choice) -> String {
        let devices = devices(tree.root());
        let picks = choose(&devices, &routes(tree.root()), choice);
        let problems = problems(tree.root(), &devices, &picks, choice);
        problems.iter().map(|p| p.to_string()).collect::<Vec<_>>().join("\n")
    }

    fn with_port(state: &str, kind: &str, gid: &str) -> Tree {
        let tree = Tree::new();
        tree.device("mlx5_0", "MT4129", "mlx5_core");
        tree.port("mlx5_0", 1, state, "Ethernet");
        if !gid.is_empty() {
            tree.gid("mlx5_0", 1, 0, gid, kind, "ens1");
        }
        tree
    }

    const ROUTABLE: &str = "0000:0000:0000:0000:0000:ffff:0a00:0001";
    const LINK_LOCAL: &str = "fe80:0000:0000:0000:0000:0000:0000:0001";

    #[test_case("1: DOWN", "RoCE v2", ROUTABLE, "error: mlx5_0 port 1 is DOWN")]
    #[test_case("4: ACTIVE", "IB/RoCE v1", ROUTABLE, "only RoCE v1")]
    #[test_case("4: ACTIVE", "RoCE v2", LINK_LOCAL, "only link-local")]
    #[test_case("4: ACTIVE", "RoCE v2", "", "has no GID")]
    fn nothing_fits(state: &str, kind: &str, gid: &str, text: &str) {
        let found = found(&with_port(state, kind, gid), &Choice::default());
        assert!(found.contains(text), "{found}");
    }

    #[test]
    fn a_good_port_has_no_problem() {
        assert_eq!(found(&with_port("4: ACTIVE", "RoCE v2", ROUTABLE), &Choice::default()), "");
    }

    #[test]
    fn no_device() {
        assert!(found(&Tree::new(), &Choice::default()).contains("no RDMA device"));
    }

    #[test_case(Choice { device: Some("mlx5_7".into()), ..Choice::default() }, "no RDMA device mlx5_7; there are mlx5_0")]
    #[test_case(Choice { port: Some(2), ..Choice::default() }, "mlx5_0 has no port 2")]
    #[test_case(Choice { gid_index: Some(9), ..Choice::default() }, "has no GID 9")]
    #[test_case(Choice { peers: vec!["172.16.0.1".parse().unwrap()], ..Choice::default() }, "warning: no GID is in the gateway's subnet")]
    fn choices_that_do_not_fit(choice: Choice, text: &str) {
        let found = found(&with_port("4: ACTIVE", "RoCE v2", ROUTABLE), &choice);
        assert!(found.contains(text), "{found}");
    }

    #[test_case("", "MT4129", "no mlx5 device (driver software)")]
    #[test_case("bnxt_en", "BCM57508", "no mlx5 device (driver bnxt_en)")]
    #[test_case("mlx5_core", "MT4117", "older than ConnectX-5")]
    fn devices_that_cannot_do_dc(driver: &str, board: &str, text: &str) {
        let tree = Tree::new();
        tree.device("rdma0", board, driver);
        tree.port("rdma0", 1, "4: ACTIVE", "Ethernet");
        tree.gid("rdma0", 1, 0, ROUTABLE, "RoCE v2", "ens1");
        let found = found(&tree, &Choice::default());
        assert!(found.contains(text), "{found}");
    }

    #[test]
    fn memory_limit_counts_without_the_capability() {
        let tree = with_port("4: ACTIVE", "RoCE v2", ROUTABLE);
        tree.file(
            "proc/self/limits",
            "Limit  Soft  Hard  Units\nMax locked memory  8388608  8388608  bytes\n",
        );
        tree.file("proc/self/status", "CapEff:\t0000000000000000\n");
        assert!(found(&tree, &Choice::default()).contains("only 8MiB of memory may be locked"));
        tree.file("proc/self/status", "CapEff:\t0000000000004000\n");
        assert_eq!(found(&tree, &Choice::default()), "");
        tree.file("proc/self/limits", "Max locked memory  unlimited  unlimited  bytes\n");
        tree.file("proc/self/status", "");
        assert_eq!(found(&tree, &Choice::default()), "");
    }

    #[test]
    fn gpu_memory_needs_a_way_for_the_nic() {
        let tree = with_port("4: ACTIVE", "RoCE v2", ROUTABLE);
        tree.file("proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.1\n");
        assert!(found(&tree, &Choice::default()).contains("nvidia_peermem"));
        fs::create_dir_all(tree.root().join("sys/module/nvidia_peermem")).unwrap();
        assert_eq!(found(&tree, &Choice::default()), "");
        let open = with_port("4: ACTIVE", "RoCE v2", ROUTABLE);
        open.file(
            "proc/driver/nvidia/version",
            "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.1\n",
        );
        assert_eq!(found(&open, &Choice::default()), "");
    }
}

//! Devices, ports and GIDs as sysfs shows them.
//!
//! The files are those of the kernel's `Documentation/ABI/stable/sysfs-class-infiniband` and, for
//! GID types and interfaces, `Documentation/ABI/testing/sysfs-class-infiniband`.

use std::fs;
use std::net::{IpAddr, Ipv6Addr};
use std::path::Path;

use serde::Serialize;

/// An RDMA device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Device {
    /// `mlx5_0`.
    pub name: String,
    /// Kernel driver, `mlx5_core`; absent for software devices.
    pub driver: Option<String>,
    /// Kind of board, `MT4129`.
    pub board: Option<String>,
    /// Firmware version.
    pub firmware: Option<String>,
    /// NUMA node of the slot.
    pub numa_node: Option<u32>,
    /// Ports in the order of their numbers.
    pub ports: Vec<Port>,
}

/// A port of a device.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Port {
    /// From 1.
    pub number: u32,
    /// Logical state, `ACTIVE`.
    pub state: String,
    /// Physical state, `LinkUp`.
    pub physical_state: String,
    /// What kind of network it is on.
    pub link_layer: LinkLayer,
    /// `100 Gb/sec (4X EDR)`.
    pub rate: String,
    /// Entries of the GID table that are in use.
    pub gids: Vec<Gid>,
}

/// Kind of network of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum LinkLayer {
    /// RoCE.
    Ethernet,
    /// InfiniBand.
    InfiniBand,
    /// Something else.
    Other,
}

/// An entry of a GID table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Gid {
    /// Index in the table.
    pub index: u32,
    /// What packets with it look like.
    pub kind: GidKind,
    /// The address: IPv4 where the GID is IPv4-mapped.
    pub address: IpAddr,
    /// Network interface.
    pub netdev: Option<String>,
}

/// Kind of a GID.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum GidKind {
    /// InfiniBand.
    #[serde(rename = "InfiniBand")]
    InfiniBand,
    /// RoCE v1: Ethernet frames, not routable, no use to cuObject.
    #[serde(rename = "RoCE v1")]
    RoceV1,
    /// RoCE v2: UDP.
    #[serde(rename = "RoCE v2")]
    RoceV2,
}

impl GidKind {
    /// The usual name.
    pub fn name(self) -> &'static str {
        match self {
            Self::InfiniBand => "InfiniBand",
            Self::RoceV1 => "RoCE v1",
            Self::RoceV2 => "RoCE v2",
        }
    }
}

impl Device {
    /// Why the device cannot carry cuObject's DC transport, which needs a ConnectX-5 or newer.
    pub fn unfit(&self) -> Option<String> {
        /// PCI device id of the ConnectX-5, which the driver gives as the number of the board.
        const CONNECTX_5: u32 = 4119;
        let needs = "cuObject's DC transport needs a ConnectX-5 or newer";
        if self.driver.as_deref() != Some("mlx5_core") {
            let driver = self.driver.as_deref().unwrap_or("software");
            return Some(format!("{} is no mlx5 device (driver {driver}); {needs}", self.name));
        }
        let board = self.board.as_deref()?;
        let number: u32 = board.strip_prefix("MT")?.parse().ok()?;
        (number < CONNECTX_5).then(|| format!("{} is older than ConnectX-5 ({board}); {needs}", self.name))
    }
}

impl Port {
    /// True when packets flow.
    pub fn is_active(&self) -> bool {
        self.state == "ACTIVE"
    }
}

impl Gid {
    /// True for addresses that are good on one link only (`fe80::/10`, 169.254.0.0/16).
    pub fn is_link_local(&self) -> bool {
        match self.address {
            IpAddr::V4(v4) => v4.is_link_local(),
            IpAddr::V6(v6) => v6.is_unicast_link_local(),
        }
    }
}

/// All devices in the order of their names. None where sysfs has no such class.
pub fn devices(root: &Path) -> Vec<Device> {
    let class = root.join("sys/class/infiniband");
    let mut names = entries(&class);
    names.sort_by_key(|name| natural(name));
    names.into_iter().map(|name| device(&class.join(&name), name)).collect()
}

/// Orders `mlx5_10` behind `mlx5_9`.
fn natural(name: &str) -> (String, u64) {
    let digits = name.len() - name.trim_end_matches(|c: char| c.is_ascii_digit()).len();
    let (head, number) = name.split_at(name.len() - digits);
    (head.to_owned(), number.parse().unwrap_or(0))
}

fn entries(directory: &Path) -> Vec<String> {
    let Ok(found) = fs::read_dir(directory) else { return Vec::new() };
    found.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect()
}

/// A file's text; absent when it is not there, empty, or refuses to be read, as unused entries do.
fn text(path: &Path) -> Option<String> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    (!text.is_empty()).then(|| text.to_owned())
}

/// `ACTIVE` from `4: ACTIVE`.
fn named(path: &Path) -> String {
    let text = text(path).unwrap_or_else(|| "unknown".to_owned());
    text.split_once(':').map_or(text.clone(), |(_, name)| name.trim().to_owned())
}

fn device(path: &Path, name: String) -> Device {
    let driver = fs::canonicalize(path.join("device/driver")).ok();
    let driver = driver.and_then(|path| path.file_name()?.to_str().map(str::to_owned));
    let mut numbers: Vec<u32> = entries(&path.join("ports")).iter().filter_map(|n| n.parse().ok()).collect();
    numbers.sort_unstable();
    Device {
        driver,
        board: text(&path.join("hca_type")),
        firmware: text(&path.join("fw_ver")),
        numa_node: text(&path.join("device/numa_node")).and_then(|n| n.parse().ok()),
        ports: numbers
            .into_iter()
            .map(|number| port(&path.join("ports").join(number.to_string()), number))
            .collect(),
        name,
    }
}

fn port(path: &Path, number: u32) -> Port {
    let link_layer = match text(&path.join("link_layer")).as_deref() {
        Some("Ethernet") => LinkLayer::Ethernet,
        Some("InfiniBand") => LinkLayer::InfiniBand,
        _ => LinkLayer::Other,
    };
    let mut indices: Vec<u32> = entries(&path.join("gids")).iter().filter_map(|n| n.parse().ok()).collect();
    indices.sort_unstable();
    Port {
        number,
        state: named(&path.join("state")),
        physical_state: named(&path.join("phys_state")),
        link_layer,
        rate: text(&path.join("rate")).unwrap_or_default(),
        gids: indices.into_iter().filter_map(|index| gid(path, index, link_layer)).collect(),
    }
}

fn gid(port: &Path, index: u32, link_layer: LinkLayer) -> Option<Gid> {
    let address: Ipv6Addr = text(&port.join(format!("gids/{index}")))?.parse().ok()?;
    if address.is_unspecified() {
        return None;
    }
    let kind = match (link_layer, text(&port.join(format!("gid_attrs/types/{index}"))).as_deref()) {
        (LinkLayer::InfiniBand, _) => GidKind::InfiniBand,
        (_, Some("RoCE v2")) => GidKind::RoceV2,
        _ => GidKind::RoceV1,
    };
    Some(Gid {
        index,
        kind,
        address: address.to_ipv4_mapped().map_or(IpAddr::V6(address), IpAddr::V4),
        netdev: text(&port.join(format!("gid_attrs/ndevs/{index}"))),
    })
}

#[cfg(test)]
mod tests {
    use super::super::problems::testing::Tree;
    use super::*;

    #[test]
    fn devices_ports_and_gids() {
        let tree = Tree::new();
        tree.device("mlx5_10", "MT4129", "mlx5_core");
        tree.device("mlx5_9", "MT4129", "mlx5_core");
        tree.port("mlx5_9", 1, "4: ACTIVE", "Ethernet");
        tree.gid("mlx5_9", 1, 0, "fe80:0000:0000:0000:0000:0000:0000:0001", "IB/RoCE v1", "ens1");
        tree.gid("mlx5_9", 1, 1, "0000:0000:0000:0000:0000:ffff:0a00:0001", "RoCE v2", "ens1");
        tree.gid("mlx5_9", 1, 2, "0000:0000:0000:0000:0000:0000:0000:0000", "", "");
        let found = devices(tree.root());
        assert_eq!(found.iter().map(|d| d.name.as_str()).collect::<Vec<_>>(), ["mlx5_9", "mlx5_10"]);
        let device = &found[0];
        assert_eq!(device.driver.as_deref(), Some("mlx5_core"));
        assert_eq!(device.numa_node, Some(1));
        let port = &device.ports[0];
        assert!(port.is_active());
        assert_eq!(port.gids.len(), 2);
        assert_eq!((port.gids[0].kind, port.gids[0].is_link_local()), (GidKind::RoceV1, true));
        assert_eq!(port.gids[1].kind, GidKind::RoceV2);
        assert_eq!(port.gids[1].address, "10.0.0.1".parse::<IpAddr>().unwrap());
        assert_eq!(port.gids[1].netdev.as_deref(), Some("ens1"));
    }

    #[test]
    fn no_class_no_devices() {
        assert!(devices(Path::new("/nonexistent")).is_empty());
    }
}

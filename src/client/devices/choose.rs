//! Which device, port and GID to use for a gateway.

use std::cmp::Reverse;
use std::fmt;
use std::net::IpAddr;

use super::{Device, Gid, GidKind, Port, Route};

/// What narrows the choice, and where the gateway is.
#[derive(Clone, Debug, Default)]
pub struct Choice {
    /// Only this device.
    pub device: Option<String>,
    /// Only this port.
    pub port: Option<u32>,
    /// Only this GID.
    pub gid_index: Option<u32>,
    /// Addresses of the gateway.
    pub peers: Vec<IpAddr>,
}

/// How a GID reaches the gateway, the better the greater.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reach {
    /// No route of its interface leads there.
    None,
    /// It is not known where the gateway is, or it is this machine.
    Unknown,
    /// Through a router.
    Routed,
    /// It is in the gateway's subnet.
    Subnet,
}

/// A GID that can be used.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pick {
    /// Name of the device.
    pub device: String,
    /// Number of the port.
    pub port: u32,
    /// Index of the GID.
    pub gid_index: u32,
    /// The GID's address.
    pub address: IpAddr,
    /// How it reaches the gateway.
    pub reach: Reach,
    /// Why it is in its place, for people.
    pub reason: String,
}

/// The usable GIDs, the best first.
///
/// Usable is a GID of an active port that is RoCE v2 or InfiniBand and, on Ethernet, not
/// link-local. Better is one of a device that can do DC, then the one nearer to the gateway, then
/// IPv4, then the lower place.
pub fn choose(devices: &[Device], routes: &[Route], choice: &Choice) -> Vec<Pick> {
    let mut picks: Vec<(bool, Pick)> = Vec::new();
    for device in devices.iter().filter(|d| choice.device.as_ref().is_none_or(|name| *name == d.name)) {
        for port in device.ports.iter().filter(|p| p.is_active() && choice.port.is_none_or(|n| n == p.number))
        {
            for gid in port.gids.iter().filter(|g| choice.gid_index.is_none_or(|i| i == g.index)) {
                let fit = device.unfit().is_none();
                picks.extend(pick(device, port, gid, routes, &choice.peers).map(|pick| (fit, pick)));
            }
        }
    }
    // Stable: equals keep the order of devices, ports and indices.
    picks.sort_by_key(|(fit, pick)| Reverse((*fit, pick.reach, pick.address.is_ipv4())));
    picks.into_iter().map(|(_, pick)| pick).collect()
}

fn pick(device: &Device, port: &Port, gid: &Gid, routes: &[Route], peers: &[IpAddr]) -> Option<Pick> {
    let usable = match gid.kind {
        GidKind::RoceV1 => false,
        GidKind::RoceV2 => !gid.is_link_local(),
        // The subnet prefix of InfiniBand is link-local by default, and good.
        GidKind::InfiniBand => true,
    };
    if !usable {
        return None;
    }
    let (reach, reason) = reach(gid, routes, peers);
    Some(Pick {
        device: device.name.clone(),
        port: port.number,
        gid_index: gid.index,
        address: gid.address,
        reach,
        reason: format!("{}, {reason}", gid.kind.name()),
    })
}

fn reach(gid: &Gid, routes: &[Route], peers: &[IpAddr]) -> (Reach, String) {
    let peers: Vec<IpAddr> = peers.iter().copied().filter(|peer| !peer.is_loopback()).collect();
    let Some(&peer) = peers.first() else {
        return (Reach::Unknown, "the gateway is on this machine or not named".to_owned());
    };
    if gid.kind == GidKind::InfiniBand {
        return (Reach::Unknown, "the subnet manager routes".to_owned());
    }
    let own = |route: &&Route| gid.netdev.as_deref() == Some(route.netdev.as_str());
    let leads = |on_link| {
        let mut own = routes.iter().filter(own).filter(|route| route.on_link == on_link);
        own.find_map(|route| peers.iter().copied().find(|&peer| route.covers(peer) && same_family(gid, peer)))
    };
    if let Some(peer) = leads(true) {
        return (Reach::Subnet, format!("in the subnet of {peer}"));
    }
    if let Some(peer) = leads(false) {
        return (Reach::Routed, format!("reaches {peer} through a router"));
    }
    let netdev = gid.netdev.as_deref().unwrap_or("its interface");
    (Reach::None, format!("{netdev} has no route to {peer}"))
}

/// A GID speaks to GIDs of its own family.
fn same_family(gid: &Gid, peer: IpAddr) -> bool {
    gid.address.is_ipv4() == peer.is_ipv4()
}

impl fmt::Display for Pick {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{} port {} GID {} ({}): {}",
            self.device, self.port, self.gid_index, self.address, self.reason
        )
    }
}

#[cfg(test)]
mod tests {
    use super::super::problems::testing::Tree;
    use super::super::{devices, routes};
    use super::*;

    /// Two ports: one on 10.0.0.0/24 with everything in its GID table, one on 192.168.100.0/24.
    fn tree() -> Tree {
        let tree = Tree::new();
        for (name, netdev, v4) in [("mlx5_0", "ens1", "0a00:0005"), ("mlx5_1", "ens2", "c0a8:6405")] {
            tree.device(name, "MT4129", "mlx5_core");
            tree.port(name, 1, "4: ACTIVE", "Ethernet");
            let mapped = format!("0000:0000:0000:0000:0000:ffff:{v4}");
            tree.gid(name, 1, 0, "fe80:0000:0000:0000:0000:0000:0000:0001", "IB/RoCE v1", netdev);
            tree.gid(name, 1, 1, "fe80:0000:0000:0000:0000:0000:0000:0001", "RoCE v2", netdev);
            tree.gid(name, 1, 2, &mapped, "IB/RoCE v1", netdev);
            tree.gid(name, 1, 3, &mapped, "RoCE v2", netdev);
            tree.gid(name, 1, 4, "2001:0db8:0000:0000:0000:0000:0000:0005", "RoCE v2", netdev);
        }
        tree.route_v4("ens1", [10, 0, 0, 0], [0, 0, 0, 0], [255, 255, 255, 0]);
        tree.route_v4("ens2", [192, 168, 100, 0], [0, 0, 0, 0], [255, 255, 255, 0]);
        tree.route_v4("ens1", [0, 0, 0, 0], [10, 0, 0, 1], [0, 0, 0, 0]);
        tree
    }

    fn best(tree: &Tree, choice: Choice) -> Option<Pick> {
        choose(&devices(tree.root()), &routes(tree.root()), &choice).into_iter().next()
    }

    fn to(peer: &str) -> Choice {
        Choice { peers: vec![peer.parse().unwrap()], ..Choice::default() }
    }

    #[test]
    fn the_gid_in_the_gateways_subnet_wins() {
        let pick = best(&tree(), to("192.168.100.1")).unwrap();
        assert_eq!((pick.device.as_str(), pick.gid_index, pick.reach), ("mlx5_1", 3, Reach::Subnet));
        assert!(pick.to_string().contains("RoCE v2, in the subnet of 192.168.100.1"), "{pick}");
    }

    #[test]
    fn a_router_is_second_best() {
        let pick = best(&tree(), to("172.16.0.1")).unwrap();
        assert_eq!((pick.device.as_str(), pick.gid_index, pick.reach), ("mlx5_0", 3, Reach::Routed));
    }

    #[test]
    fn a_gateway_on_this_machine_takes_the_first() {
        let pick = best(&tree(), to("127.0.0.1")).unwrap();
        assert_eq!((pick.device.as_str(), pick.gid_index, pick.reach), ("mlx5_0", 3, Reach::Unknown));
    }

    #[test]
    fn a_named_device_port_and_gid_are_kept() {
        let choice = Choice { device: Some("mlx5_1".into()), ..to("10.0.0.1") };
        let pick = best(&tree(), choice.clone()).unwrap();
        assert_eq!((pick.device.as_str(), pick.reach), ("mlx5_1", Reach::None));
        let pick = best(&tree(), Choice { gid_index: Some(4), ..choice.clone() }).unwrap();
        assert_eq!(pick.address, "2001:db8::5".parse::<IpAddr>().unwrap());
        assert_eq!(best(&tree(), Choice { gid_index: Some(2), ..choice.clone() }), None);
        assert_eq!(best(&tree(), Choice { port: Some(2), ..choice }), None);
    }

    #[test]
    fn a_device_without_dc_comes_last() {
        let tree = tree();
        tree.device("irdma0", "", "irdma");
        tree.port("irdma0", 1, "4: ACTIVE", "Ethernet");
        tree.gid("irdma0", 1, 0, "0000:0000:0000:0000:0000:ffff:ac10:0005", "RoCE v2", "eth9");
        tree.route_v4("eth9", [172, 16, 0, 0], [0, 0, 0, 0], [255, 255, 0, 0]);
        assert_eq!(best(&tree, to("172.16.0.1")).unwrap().device, "mlx5_0");
    }

    #[test]
    fn ports_that_are_down_are_left_out() {
        let tree = tree();
        tree.port("mlx5_0", 1, "1: DOWN", "Ethernet");
        assert_eq!(best(&tree, to("10.0.0.1")).unwrap().device, "mlx5_1");
    }

    #[test]
    fn infiniband_gids_are_link_local_and_good() {
        let tree = Tree::new();
        tree.device("mlx5_0", "MT4123", "mlx5_core");
        tree.port("mlx5_0", 1, "4: ACTIVE", "InfiniBand");
        tree.gid("mlx5_0", 1, 0, "fe80:0000:0000:0000:b859:9f03:00d1:6e2c", "IB/RoCE v1", "");
        let pick = best(&tree, to("10.0.0.1")).unwrap();
        assert_eq!((pick.gid_index, pick.reach), (0, Reach::Unknown));
    }
}

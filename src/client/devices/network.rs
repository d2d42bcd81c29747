//! Routes, from `/proc/net`: which interface reaches which addresses.

use std::fs;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::Path;

/// A route of the main table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Route {
    /// Network interface.
    pub netdev: String,
    /// Destination network.
    pub network: IpAddr,
    /// Length of its prefix.
    pub prefix: u8,
    /// True when the destination is on the link, not behind a router.
    pub on_link: bool,
}

impl Route {
    /// True when the route leads to `address`.
    pub fn covers(&self, address: IpAddr) -> bool {
        match (self.network, address) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let mask = u32::MAX.checked_shl(32 - u32::from(self.prefix)).unwrap_or(0);
                (network.to_bits() ^ address.to_bits()) & mask == 0
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let mask = u128::MAX.checked_shl(128 - u32::from(self.prefix)).unwrap_or(0);
                (network.to_bits() ^ address.to_bits()) & mask == 0
            }
            _ => false,
        }
    }
}

/// All routes, IPv4 then IPv6. Lines that cannot be read are left out.
pub fn routes(root: &Path) -> Vec<Route> {
    let read = |name: &str| fs::read_to_string(root.join("proc/net").join(name)).unwrap_or_default();
    let v4 = read("route");
    let v6 = read("ipv6_route");
    v4.lines().skip(1).filter_map(route_v4).chain(v6.lines().filter_map(route_v6)).collect()
}

/// Iface, Destination, Gateway, Flags, RefCnt, Use, Metric, Mask, …: addresses are the 32-bit words
/// as they lie in memory, printed as numbers.
fn route_v4(line: &str) -> Option<Route> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let word = |i: usize| u32::from_str_radix(words.get(i)?, 16).ok();
    let address = |i: usize| word(i).map(|word| Ipv4Addr::from(word.to_ne_bytes()));
    const UP: u32 = 1;
    if word(3)? & UP == 0 {
        return None;
    }
    Some(Route {
        netdev: (*words.first()?).to_owned(),
        network: IpAddr::V4(address(1)?),
        prefix: address(7)?.to_bits().count_ones() as u8,
        on_link: word(2)? == 0,
    })
}

/// Destination, its prefix length, source, its prefix length, next hop, metric, reference count,
/// use count, flags, interface.
fn route_v6(line: &str) -> Option<Route> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let address = |i: usize| u128::from_str_radix(words.get(i)?, 16).ok().map(Ipv6Addr::from_bits);
    let netdev = *words.get(9)?;
    const UP: u32 = 1;
    if u32::from_str_radix(words.get(8)?, 16).ok()? & UP == 0 || netdev == "lo" {
        return None;
    }
    Some(Route {
        netdev: netdev.to_owned(),
        network: IpAddr::V6(address(0)?),
        prefix: u8::from_str_radix(words.get(1)?, 16).ok().filter(|&prefix| prefix <= 128)?,
        on_link: address(4)?.is_unspecified(),
    })
}

#[cfg(test)]
mod tests {
    use super::super::problems::testing::Tree;
    use super::*;
    use test_case::test_case;

    #[test]
    fn both_tables() {
        let tree = Tree::new();
        tree.route_v4("eth0", [0, 0, 0, 0], [10, 1, 0, 1], [0, 0, 0, 0]);
        tree.route_v4("ens1", [192, 168, 100, 0], [0, 0, 0, 0], [255, 255, 255, 0]);
        tree.file(
            "proc/net/ipv6_route",
            "20010db8000000000000000000000000 40 00000000000000000000000000000000 00 \
             00000000000000000000000000000000 00000100 00000001 00000000 00000001     ens1\n\
             nonsense\n",
        );
        let found = routes(tree.root());
        assert_eq!(found.len(), 3);
        assert_eq!((found[0].prefix, found[0].on_link), (0, false));
        assert_eq!((found[1].netdev.as_str(), found[1].prefix, found[1].on_link), ("ens1", 24, true));
        assert_eq!((found[2].prefix, found[2].on_link), (64, true));
    }

    #[test_case("192.168.100.0", 24, "192.168.100.7" => true)]
    #[test_case("192.168.100.0", 24, "192.168.101.7" => false)]
    #[test_case("0.0.0.0", 0, "8.8.8.8" => true)]
    #[test_case("10.0.0.1", 32, "10.0.0.1" => true)]
    #[test_case("2001:db8::", 64, "2001:db8::5" => true)]
    #[test_case("2001:db8::", 64, "2001:db8:1::5" => false)]
    #[test_case("::", 0, "10.0.0.1" => false)]
    fn covering(network: &str, prefix: u8, address: &str) -> bool {
        let route = Route { netdev: "x".into(), network: network.parse().unwrap(), prefix, on_link: true };
        route.covers(address.parse().unwrap())
    }
}

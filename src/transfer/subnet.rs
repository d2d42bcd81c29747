//! Which network an endpoint's address belongs to, as the kernel's tables say.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A network: an address and the number of its leading bits that count.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Subnet {
    address: IpAddr,
    prefix: u32,
}

impl Subnet {
    /// The network that this host's `address` is in: from `/proc/net/route` and
    /// `/proc/net/if_inet6`, or a guess (/24, /64) where those do not name it.
    pub(super) fn of_local(address: IpAddr) -> Self {
        let read = |path| std::fs::read_to_string(path).unwrap_or_default();
        let prefix = match address {
            IpAddr::V4(v4) if v4.is_loopback() => 8,
            IpAddr::V4(v4) => prefix_in_routes(&read("/proc/net/route"), v4).unwrap_or(24),
            IpAddr::V6(v6) => prefix_in_if_inet6(&read("/proc/net/if_inet6"), v6).unwrap_or(64),
        };
        Self { address, prefix }
    }

    /// Whether `peer` is in the network.
    pub(super) fn contains(&self, peer: IpAddr) -> bool {
        match (self.address, peer) {
            (IpAddr::V4(a), IpAddr::V4(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros() >= self.prefix,
            (IpAddr::V6(a), IpAddr::V6(b)) => (a.to_bits() ^ b.to_bits()).leading_zeros() >= self.prefix,
            _ => false,
        }
    }

    /// How many bits count.
    pub(super) fn prefix(&self) -> u32 {
        self.prefix
    }
}

/// Longest directly connected route that contains `address`, in the text of `/proc/net/route`:
/// interface, destination, gateway, flags, three counts, mask, and more. The addresses are words
/// in network order, printed as if they were in the host's.
fn prefix_in_routes(table: &str, address: Ipv4Addr) -> Option<u32> {
    let number = |text: &str| u32::from_str_radix(text, 16).ok().map(|n| u32::from_be_bytes(n.to_ne_bytes()));
    table
        .lines()
        .skip(1)
        .filter_map(|line| {
            let columns: Vec<&str> = line.split_ascii_whitespace().collect();
            let (destination, gateway, mask) =
                (number(columns.get(1)?)?, number(columns.get(2)?)?, number(columns.get(7)?)?);
            let connected = gateway == 0 && mask != 0 && address.to_bits() & mask == destination;
            connected.then(|| mask.leading_ones())
        })
        .max()
}

/// Prefix length of `address` in the text of `/proc/net/if_inet6`: columns address, index, prefix
/// length, scope, flags, interface; numbers in hexadecimal.
fn prefix_in_if_inet6(table: &str, address: Ipv6Addr) -> Option<u32> {
    table.lines().find_map(|line| {
        let mut columns = line.split_ascii_whitespace();
        let bits = u128::from_str_radix(columns.next()?, 16).ok()?;
        let prefix = u32::from_str_radix(columns.nth(1)?, 16).ok()?;
        (bits == address.to_bits()).then_some(prefix)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As a little-endian machine prints it: a default route, 10.1.0.0/16, 10.1.2.0/24 and a route
    /// through a gateway.
    #[cfg(target_endian = "little")]
    const ROUTES: &str = "Iface\tDestination\tGateway \tFlags\tRefCnt\tUse\tMetric\tMask\t\tMTU\tWindow\tIRTT\n\
        eth0\t00000000\t0100010A\t0003\t0\t0\t0\t00000000\t0\t0\t0\n\
        eth0\t0000010A\t00000000\t0001\t0\t0\t0\t0000FFFF\t0\t0\t0\n\
        eth1\t0002010A\t00000000\t0001\t0\t0\t0\t00FFFFFF\t0\t0\t0\n\
        eth1\t0003010A\t0102010A\t0003\t0\t0\t0\t00FFFFFF\t0\t0\t0\n";

    #[cfg(target_endian = "little")]
    #[test]
    fn the_longest_connected_route_counts() {
        assert_eq!(prefix_in_routes(ROUTES, Ipv4Addr::new(10, 1, 2, 7)), Some(24));
        assert_eq!(prefix_in_routes(ROUTES, Ipv4Addr::new(10, 1, 3, 7)), Some(16));
        assert_eq!(prefix_in_routes(ROUTES, Ipv4Addr::new(192, 168, 0, 1)), None);
        assert_eq!(prefix_in_routes("garbage\nmore garbage\n", Ipv4Addr::LOCALHOST), None);
    }

    #[test]
    fn addresses_of_interfaces_carry_their_prefix() {
        let table = "00000000000000000000000000000001 01 80 10 80       lo\n\
                     fd000000000000000000000000000005 02 70 00 80     eth0\n";
        assert_eq!(prefix_in_if_inet6(table, "fd00::5".parse().unwrap()), Some(112));
        assert_eq!(prefix_in_if_inet6(table, Ipv6Addr::LOCALHOST), Some(128));
        assert_eq!(prefix_in_if_inet6(table, "fd00::6".parse().unwrap()), None);
    }

    #[test]
    fn a_network_contains_its_addresses_of_its_family() {
        let subnet = Subnet { address: "10.1.2.7".parse().unwrap(), prefix: 24 };
        assert!(subnet.contains("10.1.2.200".parse().unwrap()));
        assert!(!subnet.contains("10.1.3.7".parse().unwrap()));
        assert!(!subnet.contains("::1".parse().unwrap()));
        assert!(Subnet::of_local("127.0.0.1".parse().unwrap()).contains("127.9.9.9".parse().unwrap()));
    }
}

//! Whose memory the gateway may be made to touch.

use std::net::IpAddr;
use std::str::FromStr;

use s3s::{S3ErrorCode, S3Result};

use super::Target;
use crate::gateway::error::s3;

/// A network, `192.0.2.0/24` or `2001:db8::/32`; an address alone is itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: IpAddr,
    bits: u8,
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let wrong = || format!("{text:?} is not a network; write for example 192.168.100.0/24");
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits.parse::<u8>().map_err(|_| wrong())?)),
            None => (text, None),
        };
        let address: IpAddr = address.parse().map_err(|_| wrong())?;
        let width = if address.is_ipv4() { 32 } else { 128 };
        let bits = bits.unwrap_or(width);
        if bits > width {
            return Err(wrong());
        }
        Ok(Self { address, bits })
    }
}

impl Network {
    /// Whether it is so much of the address space that it confines nobody: as Amazon S3 has it in
    /// its block of public policies, wider than /8 (IPv4) or /32 (IPv6).
    pub(crate) fn is_broad(&self) -> bool {
        self.bits < if self.address.is_ipv4() { 8 } else { 32 }
    }

    /// Whether an address lies in the network. IPv4 and mapped IPv6 are the same.
    pub fn contains(&self, address: IpAddr) -> bool {
        match (self.address, address.to_canonical()) {
            (IpAddr::V4(network), IpAddr::V4(address)) => {
                let shift = 32 - u32::from(self.bits);
                u32::from(network).checked_shr(shift).unwrap_or(0)
                    == u32::from(address).checked_shr(shift).unwrap_or(0)
            }
            (IpAddr::V6(network), IpAddr::V6(address)) => {
                let shift = 128 - u32::from(self.bits);
                u128::from(network).checked_shr(shift).unwrap_or(0)
                    == u128::from(address).checked_shr(shift).unwrap_or(0)
            }
            _ => false,
        }
    }
}

/// Rules about tokens.
#[derive(Clone, Debug, Default)]
pub(crate) struct TokenPolicy {
    /// Networks that tokens may point to; any when empty.
    pub(crate) allow: Vec<Network>,
    /// Whether the token's GID must be the address the request came from.
    pub(crate) match_peer: bool,
    /// Whether tokens outside the signature are accepted.
    pub(crate) allow_unsigned: bool,
}

impl TokenPolicy {
    /// Checks where a token points to.
    ///
    /// # Errors
    /// `AccessDenied` naming the rule.
    pub(crate) fn check(&self, target: &Target, peer: Option<IpAddr>) -> S3Result<()> {
        let points_to = target.descriptor.peer();
        let denied = |what: &str| Err(s3(S3ErrorCode::AccessDenied, format!("the RDMA token {what}")));
        if !self.allow.is_empty() && !points_to.is_some_and(|ip| self.allow.iter().any(|n| n.contains(ip))) {
            return denied("points outside the networks that this gateway allows");
        }
        if self.match_peer && (points_to.is_none() || points_to != peer.map(|ip| ip.to_canonical())) {
            return denied("points to another host than the one that sent the request");
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rdma::Descriptor;
    use std::sync::Arc;
    use test_case::test_case;

    #[test_case("192.168.100.0/24", "192.168.100.77" => true)]
    #[test_case("192.168.100.0/24", "192.168.101.1" => false)]
    #[test_case("192.168.100.0/24", "::ffff:192.168.100.1" => true)]
    #[test_case("10.0.0.1", "10.0.0.1" => true)]
    #[test_case("10.0.0.1", "10.0.0.2" => false)]
    #[test_case("0.0.0.0/0", "8.8.8.8" => true)]
    #[test_case("0.0.0.0/0", "2001:db8::1" => false)]
    #[test_case("2001:db8::/32", "2001:db8:1::1" => true)]
    #[test_case("::/0", "2001:db8::1" => true)]
    fn networks(network: &str, address: &str) -> bool {
        network.parse::<Network>().unwrap().contains(address.parse().unwrap())
    }

    #[test_case("192.168.100.0/33")]
    #[test_case("192.168.100/24")]
    #[test_case("")]
    #[test_case("::/129")]
    fn malformed(network: &str) {
        assert!(network.parse::<Network>().is_err());
    }

    fn target(gid: Option<&str>) -> Target {
        let text = "0000000000001000:00000100:01020304:0000:010203:1:00000000000000000000ffff7f000001";
        let mut descriptor = Descriptor::parse(text).unwrap();
        match gid {
            Some(ip) => descriptor.gid = Descriptor::gid_of(ip.parse().unwrap()),
            None => descriptor.has_gid = false,
        }
        Target { window: descriptor.window(), descriptor: Arc::new(descriptor) }
    }

    #[test]
    fn allow_list_and_peer() {
        let policy = TokenPolicy { allow: vec!["10.0.0.0/8".parse().unwrap()], ..Default::default() };
        assert!(policy.check(&target(Some("10.1.2.3")), None).is_ok());
        assert!(policy.check(&target(Some("11.1.2.3")), None).is_err());
        assert!(policy.check(&target(None), None).is_err());
        let policy = TokenPolicy { match_peer: true, ..Default::default() };
        let peer = |ip: &str| Some(ip.parse().unwrap());
        assert!(policy.check(&target(Some("10.1.2.3")), peer("10.1.2.3")).is_ok());
        assert!(policy.check(&target(Some("10.1.2.3")), peer("::ffff:10.1.2.3")).is_ok());
        assert!(policy.check(&target(Some("10.1.2.3")), peer("10.1.2.4")).is_err());
        assert!(policy.check(&target(Some("10.1.2.3")), None).is_err());
        assert!(policy.check(&target(None), None).is_err());
        assert!(TokenPolicy::default().check(&target(None), None).is_ok());
    }
}

//! The environment of the RDMA client: `VGWRDMA_RDMA_DEV`, `VGWRDMA_RDMA_PORT`,
//! `VGWRDMA_GID_INDEX` and `VGWRDMA_DC_KEY`.
//!
//! cuObjClient itself takes none of these. It takes a cuFile configuration, in which
//! `rdma_dev_addr_list` names NICs by their addresses and `rdma_dc_key` the DC key (NVIDIA, "cuObjClient
//! API Specification"). So device, port and GID are looked up in sysfs, and the address of the GID
//! goes into the configuration that [`configuration`](super::configuration) writes.

use super::devices::Choice;
use super::{Error, Result};

/// Name of the device, `mlx5_0`.
pub const DEVICE: &str = "VGWRDMA_RDMA_DEV";
/// Number of its port.
pub const PORT: &str = "VGWRDMA_RDMA_PORT";
/// Index in the port's GID table.
pub const GID_INDEX: &str = "VGWRDMA_GID_INDEX";
/// The DC key, decimal or with `0x`.
pub const DC_KEY: &str = "VGWRDMA_DC_KEY";

/// What the environment asks for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RdmaEnvironment {
    /// `VGWRDMA_RDMA_DEV`.
    pub device: Option<String>,
    /// `VGWRDMA_RDMA_PORT`.
    pub port: Option<u32>,
    /// `VGWRDMA_GID_INDEX`.
    pub gid_index: Option<u32>,
    /// `VGWRDMA_DC_KEY`.
    pub dc_key: Option<u64>,
}

impl RdmaEnvironment {
    /// Reads the process' environment.
    ///
    /// # Errors
    /// [`Error::Invalid`] naming the variable whose value cannot be used. Empty ones count as unset.
    pub fn from_process() -> Result<Self> {
        Self::read(|name| std::env::var(name).ok())
    }

    /// Reads the variables from `lookup`.
    ///
    /// # Errors
    /// As [`from_process`](Self::from_process).
    pub fn read(lookup: impl Fn(&str) -> Option<String>) -> Result<Self> {
        let value = |name: &str| lookup(name).map(|v| v.trim().to_owned()).filter(|v| !v.is_empty());
        let invalid = |name: &str, text: &str, wanted: &str| Error::Invalid {
            what: format!("{name}={text}: {wanted}"),
        };
        let number = |name: &str, least: u32, wanted: &str| match value(name) {
            None => Ok(None),
            Some(text) => match text.parse().ok().filter(|&number: &u32| number >= least) {
                Some(number) => Ok(Some(number)),
                None => Err(invalid(name, &text, wanted)),
            },
        };
        let device = value(DEVICE);
        if let Some(name) = device.as_deref().filter(|name| name.contains(['/', '\0'])) {
            return Err(invalid(DEVICE, name, "not a device name; `cuobjtest devices` lists them"));
        }
        let dc_key = match value(DC_KEY) {
            None => None,
            Some(text) => Some(parse_key(&text).ok_or_else(|| {
                invalid(DC_KEY, "…", "the DC key must be a 64-bit number, decimal or with 0x")
            })?),
        };
        Ok(Self {
            device,
            port: number(PORT, 1, "the port must be a number from 1")?,
            gid_index: number(GID_INDEX, 0, "the GID index must be a number from 0")?,
            dc_key,
        })
    }

    /// True when a device, a port or a GID is named.
    pub fn names_place(&self) -> bool {
        self.device.is_some() || self.port.is_some() || self.gid_index.is_some()
    }

    /// Names of the variables that are set.
    pub fn set(&self) -> Vec<&'static str> {
        let set = [
            (DEVICE, self.device.is_some()),
            (PORT, self.port.is_some()),
            (GID_INDEX, self.gid_index.is_some()),
            (DC_KEY, self.dc_key.is_some()),
        ];
        set.into_iter().filter_map(|(name, set)| set.then_some(name)).collect()
    }

    /// The choice of a device that follows from it, for a gateway at `peers`.
    pub fn choice(&self, peers: Vec<std::net::IpAddr>) -> Choice {
        Choice { device: self.device.clone(), port: self.port, gid_index: self.gid_index, peers }
    }
}

fn parse_key(text: &str) -> Option<u64> {
    match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) if hex.bytes().all(|b| b.is_ascii_hexdigit()) => u64::from_str_radix(hex, 16).ok(),
        Some(_) => None,
        None if text.bytes().all(|b| b.is_ascii_digit()) => text.parse().ok(),
        None => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    fn read(pairs: &[(&str, &str)]) -> Result<RdmaEnvironment> {
        RdmaEnvironment::read(|name| {
            pairs.iter().find(|(n, _)| *n == name).map(|(_, value)| (*value).to_owned())
        })
    }

    #[test]
    fn all_of_them() {
        let pairs = [(DEVICE, "mlx5_1"), (PORT, "2"), (GID_INDEX, "3"), (DC_KEY, "0xffeeddcc")];
        let environment = read(&pairs).unwrap();
        assert_eq!(environment.dc_key, Some(0xffee_ddcc));
        assert_eq!(environment.set().len(), 4);
        let choice = environment.choice(Vec::new());
        assert_eq!(
            (choice.device.as_deref(), choice.port, choice.gid_index),
            (Some("mlx5_1"), Some(2), Some(3))
        );
    }

    #[test]
    fn empty_is_unset() {
        let environment = read(&[(DEVICE, ""), (DC_KEY, " ")]).unwrap();
        assert_eq!(environment, RdmaEnvironment::default());
        assert!(!environment.names_place());
    }

    #[test_case(PORT, "0")]
    #[test_case(PORT, "one")]
    #[test_case(GID_INDEX, "-1")]
    #[test_case(DEVICE, "../mlx5_0")]
    #[test_case(DC_KEY, "0x")]
    #[test_case(DC_KEY, "secret")]
    #[test_case(DC_KEY, "-5")]
    fn refused_by_name(name: &str, value: &str) {
        let error = read(&[(name, value)]).unwrap_err().to_string();
        assert!(error.starts_with(name), "{error}");
        assert!(name != DC_KEY || !error.contains("secret"), "{error}");
    }
}

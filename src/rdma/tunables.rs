//! Tunables of a server endpoint: values, defaults and the bounds the library does not check.

use std::fmt;
use std::str::FromStr;
use std::time::Duration;

use cuobj_sys as sys;

use super::{Error, Result, shim};

/// How a synchronous call sleeps between two polls.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum DelayMode {
    /// It does not.
    None,
    /// After an empty poll.
    #[default]
    Batch,
    /// For every entry.
    Entry,
    /// For a time that follows the transfer's size.
    Adaptive,
}

impl DelayMode {
    const NAMES: [(DelayMode, &'static str, i32); 4] = [
        (Self::None, "none", sys::VGW_CUOBJ_DELAY_NONE),
        (Self::Batch, "batch", sys::VGW_CUOBJ_DELAY_BATCH),
        (Self::Entry, "entry", sys::VGW_CUOBJ_DELAY_ENTRY),
        (Self::Adaptive, "adaptive", sys::VGW_CUOBJ_DELAY_ADAPTIVE),
    ];

    fn raw(self) -> i32 {
        match self {
            Self::None => sys::VGW_CUOBJ_DELAY_NONE,
            Self::Batch => sys::VGW_CUOBJ_DELAY_BATCH,
            Self::Entry => sys::VGW_CUOBJ_DELAY_ENTRY,
            Self::Adaptive => sys::VGW_CUOBJ_DELAY_ADAPTIVE,
        }
    }

    fn from_raw(raw: i32) -> Option<Self> {
        Self::NAMES.into_iter().find(|(_, _, number)| *number == raw).map(|(mode, _, _)| mode)
    }
}

impl FromStr for DelayMode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        Self::NAMES
            .into_iter()
            .find(|(_, name, _)| *name == text)
            .map(|(mode, _, _)| mode)
            .ok_or_else(|| format!("{text:?} is no delay mode; use none, batch, entry or adaptive"))
    }
}

impl fmt::Display for DelayMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name = Self::NAMES.into_iter().find(|(mode, _, _)| mode == self).map_or("", |(_, name, _)| name);
        f.pad(name)
    }
}

/// Tunables of a server endpoint ("cuObjServer API Specification", `cuObjRDMATunable`).
///
/// [`Default`] gives the library's defaults.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Tunables {
    /// DC initiators, and so channels. 1 to 65534; default 128.
    pub num_dcis: u32,
    /// Entries of each completion queue. 16 to 4194303; default 640.
    pub cq_depth: u32,
    /// The key that the DC targets of clients expect. Default `0xffeeddcc`.
    pub dc_key: u64,
    /// InfiniBand service level. 0 to 15; default 0.
    pub service_level: u32,
    /// Local ACK timeout as an exponent, 4.096 µs × 2^timeout. 0 (never) to 31; default 16.
    pub timeout: u32,
    /// Hop limit of RoCE packets. 1 to 255; default 4.
    pub hop_limit: u32,
    /// Index into the port's partition keys. 0 to 65535; default 0.
    pub pkey_index: u32,
    /// Scatter-gather entries of a work request. 1 to 30; by default what the library takes.
    pub max_sge: Option<u32>,
    /// Sleep of a synchronous call between two polls. Up to 1 s; default 5 µs.
    pub delay_interval: Duration,
    /// When a synchronous call sleeps.
    pub delay_mode: DelayMode,
    /// Whether a failed operation takes its queue pair through a reset, after which the channel
    /// works again. Default true.
    pub qp_reset_on_failure: bool,
    /// Retries of the transport. 0 to 7; default 7.
    pub retry_count: u32,
    /// Traffic class of RoCE packets. 0 to 255; default 96.
    pub traffic_class: u32,
    /// Outstanding RDMA READs of a queue pair. 0 (the device's limit) to 255; default 0.
    pub max_rd_atomic: u32,
}

impl Default for Tunables {
    fn default() -> Self {
        Self {
            num_dcis: 128,
            cq_depth: 640,
            dc_key: Self::DEFAULT_DC_KEY,
            service_level: 0,
            timeout: 16,
            hop_limit: 4,
            pkey_index: 0,
            max_sge: None,
            delay_interval: Duration::from_nanos(5000),
            delay_mode: DelayMode::default(),
            qp_reset_on_failure: true,
            retry_count: 7,
            traffic_class: 96,
            max_rd_atomic: 0,
        }
    }
}

impl Tunables {
    /// The public default of the DC key: whoever knows a token can use it with this key.
    pub const DEFAULT_DC_KEY: u64 = 0xffee_ddcc;

    /// Checks every value against its bounds.
    ///
    /// # Errors
    /// [`Error::Invalid`] that names the command line flag, the value and the bounds.
    pub fn validate(&self) -> Result<()> {
        const SECOND_NS: u64 = 1_000_000_000;
        let delay_ns = u64::try_from(self.delay_interval.as_nanos()).unwrap_or(u64::MAX);
        let bounds: [(&str, u64, u64, u64); 11] = [
            ("--rdma-num-dcis", self.num_dcis.into(), 1, 65534),
            ("--rdma-cq-depth", self.cq_depth.into(), 16, (1 << 22) - 1),
            ("--rdma-service-level", self.service_level.into(), 0, 15),
            ("--rdma-timeout", self.timeout.into(), 0, 31),
            ("--rdma-hop-limit", self.hop_limit.into(), 1, 255),
            ("--rdma-pkey-index", self.pkey_index.into(), 0, 65535),
            ("--rdma-max-sge", self.max_sge.unwrap_or(1).into(), 1, 30),
            ("--rdma-delay-interval", delay_ns, 0, SECOND_NS),
            ("--rdma-retry-count", self.retry_count.into(), 0, 7),
            ("--rdma-traffic-class", self.traffic_class.into(), 0, 255),
            ("--rdma-max-rd-atomic", self.max_rd_atomic.into(), 0, 255),
        ];
        for (flag, value, least, most) in bounds {
            if !(least..=most).contains(&value) {
                return Err(Error::Invalid {
                    operation: "tunables",
                    what: format!("{flag} is {value}; it takes {least} to {most}"),
                });
            }
        }
        Ok(())
    }

    /// The longest time that the transport tries before it reports a peer that does not answer:
    /// the local ACK timeout for each try. `None` for a timeout of 0, which never ends.
    pub fn retry_time(&self) -> Option<Duration> {
        (self.timeout != 0).then(|| {
            let try_ns = 4096 * (1u64 << self.timeout.min(31));
            Duration::from_nanos(try_ns.saturating_mul(u64::from(self.retry_count) + 1))
        })
    }

    /// The library's own form, checked.
    pub(crate) fn to_raw(&self) -> Result<sys::vgw_cuobj_tunables> {
        self.validate()?;
        // All values are within `validate`'s bounds, which every field's type holds.
        let int = |value: u32| value as i32;
        let mut raw = library_defaults()?;
        raw.num_dcis = int(self.num_dcis);
        raw.cq_depth = self.cq_depth;
        raw.dc_key = self.dc_key;
        raw.service_level = int(self.service_level);
        raw.pkey_index = int(self.pkey_index);
        if let Some(max_sge) = self.max_sge {
            raw.max_sge = int(max_sge);
        }
        raw.max_rd_atomic = int(self.max_rd_atomic);
        raw.hop_limit = self.hop_limit;
        raw.traffic_class = self.traffic_class;
        raw.delay_interval_ns = self.delay_interval.subsec_nanos();
        if self.delay_interval.as_secs() > 0 {
            raw.delay_interval_ns = 1_000_000_000;
        }
        raw.delay_mode = self.delay_mode.raw();
        raw.timeout = self.timeout as u8;
        raw.retry_count = self.retry_count as u8;
        raw.qp_reset_on_failure = self.qp_reset_on_failure;
        Ok(raw)
    }

    /// Reads the library's form. Values that ours cannot hold (negative ones, an unknown delay
    /// mode) become 0 or the default.
    pub(crate) fn from_raw(raw: &sys::vgw_cuobj_tunables) -> Self {
        let number = |value: i32| u32::try_from(value).unwrap_or(0);
        Self {
            num_dcis: number(raw.num_dcis),
            cq_depth: raw.cq_depth,
            dc_key: raw.dc_key,
            service_level: number(raw.service_level),
            timeout: raw.timeout.into(),
            hop_limit: raw.hop_limit,
            pkey_index: number(raw.pkey_index),
            max_sge: Some(number(raw.max_sge)),
            delay_interval: Duration::from_nanos(raw.delay_interval_ns.into()),
            delay_mode: DelayMode::from_raw(raw.delay_mode).unwrap_or_default(),
            qp_reset_on_failure: raw.qp_reset_on_failure,
            retry_count: raw.retry_count.into(),
            traffic_class: raw.traffic_class,
            max_rd_atomic: number(raw.max_rd_atomic),
        }
    }
}

/// The defaults of the library in this binary.
fn library_defaults() -> Result<sys::vgw_cuobj_tunables> {
    let mut raw = sys::vgw_cuobj_tunables::default();
    shim::call("cuObjRDMATunable", |text| {
        // SAFETY: `raw` is writable for the call, and the text buffer is `shim::call`'s.
        unsafe { sys::vgw_cuobj_server_default_tunables(&mut raw, text) }
    })?;
    Ok(raw)
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test]
    fn defaults_are_the_library_s() {
        let library = Tunables::from_raw(&library_defaults().unwrap());
        assert_eq!(Tunables { max_sge: library.max_sge, ..Tunables::default() }, library);
        Tunables::default().validate().unwrap();
    }

    #[test]
    fn every_value_reaches_the_library_s_form_and_comes_back() {
        let tunables = Tunables {
            num_dcis: 3,
            cq_depth: 17,
            dc_key: 0x1122_3344_5566_7788,
            service_level: 15,
            timeout: 31,
            hop_limit: 255,
            pkey_index: 9,
            max_sge: Some(30),
            delay_interval: Duration::from_secs(1),
            delay_mode: DelayMode::Adaptive,
            qp_reset_on_failure: false,
            retry_count: 0,
            traffic_class: 255,
            max_rd_atomic: 16,
        };
        assert_eq!(Tunables::from_raw(&tunables.to_raw().unwrap()), tunables);
    }

    #[test_case(|t| t.num_dcis = 0, "--rdma-num-dcis", "1 to 65534")]
    #[test_case(|t| t.num_dcis = 65535, "--rdma-num-dcis", "65534")]
    #[test_case(|t| t.cq_depth = 15, "--rdma-cq-depth", "16")]
    #[test_case(|t| t.service_level = 16, "--rdma-service-level", "0 to 15")]
    #[test_case(|t| t.timeout = 32, "--rdma-timeout", "0 to 31")]
    #[test_case(|t| t.hop_limit = 0, "--rdma-hop-limit", "1 to 255")]
    #[test_case(|t| t.hop_limit = 256, "--rdma-hop-limit", "1 to 255")]
    #[test_case(|t| t.pkey_index = 65536, "--rdma-pkey-index", "65535")]
    #[test_case(|t| t.max_sge = Some(0), "--rdma-max-sge", "1 to 30")]
    #[test_case(|t| t.max_sge = Some(31), "--rdma-max-sge", "1 to 30")]
    #[test_case(|t| t.delay_interval = Duration::from_secs(2), "--rdma-delay-interval", "1000000000")]
    #[test_case(|t| t.delay_interval = Duration::MAX, "--rdma-delay-interval", "1000000000")]
    #[test_case(|t| t.retry_count = 8, "--rdma-retry-count", "0 to 7")]
    #[test_case(|t| t.traffic_class = 256, "--rdma-traffic-class", "0 to 255")]
    #[test_case(|t| t.max_rd_atomic = 256, "--rdma-max-rd-atomic", "0 to 255")]
    fn a_value_out_of_bounds_is_refused_by_flag_and_bound(
        change: fn(&mut Tunables),
        flag: &str,
        bound: &str,
    ) {
        let mut tunables = Tunables::default();
        change(&mut tunables);
        let error = tunables.validate().unwrap_err().to_string();
        assert!(error.contains(flag) && error.contains(bound), "{error}");
        assert!(tunables.to_raw().is_err());
    }

    #[test]
    fn delay_modes_read_back() {
        for (mode, name, raw) in DelayMode::NAMES {
            assert_eq!(name.parse(), Ok(mode));
            assert_eq!(mode.to_string(), name);
            assert_eq!(DelayMode::from_raw(raw), Some(mode));
            assert_eq!(mode.raw(), raw);
        }
        assert!("sometimes".parse::<DelayMode>().unwrap_err().contains("adaptive"));
        assert_eq!(DelayMode::from_raw(4), None);
    }

    #[test]
    fn retry_time_is_the_ack_timeout_of_every_try() {
        let default = Tunables::default().retry_time().unwrap();
        assert_eq!(default, Duration::from_nanos(4096 * 65536 * 8));
        assert_eq!(Tunables { timeout: 0, ..Tunables::default() }.retry_time(), None);
    }
}

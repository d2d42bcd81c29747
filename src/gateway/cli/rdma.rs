//! Options of RDMA.

use std::net::IpAddr;
use std::time::Duration;

use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum};
use http::HeaderName;

use super::{RDMA, RDMA_LIBRARY, number, seconds};
use crate::gateway::config::{Config, RdmaConfig, TokenRules, check_pool};
use crate::gateway::rdma::policy::Network;
use crate::gateway::startup;
use crate::rdma::{self, DelayMode, Tunables};
use crate::transfer::EngineConfig;
use crate::units::{format_size, parse_size};

/// Kinds of pages for the pool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum HugePages {
    /// Ordinary pages
    Off,
    /// Huge pages where the kernel gives them
    Advise,
    /// Reserved huge pages (vm.nr_hugepages) or no start
    Require,
}

/// As typed; see the texts, which are the help.
#[derive(Debug, Args)]
#[allow(missing_docs)]
pub struct RdmaArguments {
    /// Address of an RDMA interface; without one the gateway serves plain S3. Repeatable
    #[arg(long, value_name = "IP", env = "VGW_RDMA_IP", value_delimiter = ',', global = true, help_heading = RDMA)]
    pub rdma_ip: Vec<IpAddr>,
    /// Port of the RDMA session on each address
    #[arg(long, value_name = "PORT", env = "VGW_RDMA_PORT", default_value_t = 19100, global = true, help_heading = RDMA)]
    pub rdma_port: u16,
    /// Size of a buffer of registered memory
    #[arg(long, value_name = "SIZE", env = "VGW_POOL_BUF_SIZE", default_value = "1GiB", value_parser = parse_size, global = true, help_heading = RDMA)]
    pub pool_buf_size: u64,
    /// Number of such buffers; size times number is the memory that all transfers share
    #[arg(long, value_name = "N", env = "VGW_POOL_BUF_COUNT", default_value_t = 4, global = true, help_heading = RDMA)]
    pub pool_buf_count: u64,
    /// Bytes moved by one RDMA operation
    #[arg(long, value_name = "SIZE", env = "VGW_RDMA_CHUNK_SIZE", default_value = "4MiB", value_parser = parse_size, global = true, help_heading = RDMA)]
    pub rdma_chunk_size: u64,
    /// Pages of the registered memory
    #[arg(long, value_enum, env = "VGW_RDMA_HUGE_PAGES", default_value = "advise", global = true, help_heading = RDMA)]
    pub rdma_huge_pages: HugePages,
    /// Chunks that one transfer has in flight
    #[arg(long, value_name = "N", env = "VGW_RDMA_DEPTH", default_value_t = EngineConfig::default().depth, global = true, help_heading = RDMA)]
    pub rdma_depth: usize,
    /// Threads that drive each address
    #[arg(long, value_name = "N", env = "VGW_RDMA_LANES", default_value_t = EngineConfig::default().lanes, global = true, help_heading = RDMA)]
    pub rdma_lanes: usize,
    /// Channels of each of those threads
    #[arg(long, value_name = "N", env = "VGW_RDMA_CHANNELS", default_value_t = EngineConfig::default().channels_per_lane, global = true, help_heading = RDMA)]
    pub rdma_channels: usize,
    /// Threads for the file system and digests of transfers
    #[arg(long, value_name = "N", env = "VGW_RDMA_WORKERS", default_value_t = EngineConfig::default().worker_threads, global = true, help_heading = RDMA)]
    pub rdma_workers: usize,
    /// How long a transfer waits for memory; then a PUT is answered SlowDown, a GET in the HTTP body
    #[arg(long, value_name = "SECONDS", env = "VGW_RDMA_WAIT", default_value = "5", value_parser = seconds, global = true, help_heading = RDMA)]
    pub rdma_wait: Duration,
    /// How long an operation may stay without completion
    #[arg(long, value_name = "SECONDS", env = "VGW_RDMA_OPERATION_TIMEOUT", default_value = "30", value_parser = seconds, global = true, help_heading = RDMA)]
    pub rdma_operation_timeout: Duration,
    /// Header that may carry the token, beside x-amz-rdma-token. Repeatable
    #[arg(long, value_name = "NAME", env = "VGW_RDMA_TOKEN_HEADER", value_delimiter = ',', global = true, help_heading = RDMA)]
    pub rdma_token_header: Vec<HeaderName>,
    /// Network that tokens may point to, such as 192.168.100.0/24; without one, any. Repeatable
    #[arg(long, value_name = "CIDR", env = "VGW_RDMA_ALLOW", value_delimiter = ',', global = true, help_heading = RDMA)]
    pub rdma_allow: Vec<Network>,
    /// Refuse tokens that point to another host than the one that sent the request
    #[arg(long, env = "VGW_RDMA_MATCH_PEER", value_parser = FalseyValueParser::new(), global = true, help_heading = RDMA)]
    pub rdma_match_peer: bool,
    /// Accept tokens that the request's signature does not cover; for trusted networks only
    #[arg(long, env = "VGW_RDMA_ALLOW_UNSIGNED_TOKEN", value_parser = FalseyValueParser::new(), global = true, help_heading = RDMA)]
    pub rdma_allow_unsigned_token: bool,

    /// Key of the DC transport, the same in all clients; choose your own [default: 0xffeeddcc]
    #[arg(long, value_name = "KEY", env = "VGW_RDMA_DC_KEY", value_parser = number, hide_env_values = true, global = true, help_heading = RDMA_LIBRARY)]
    pub rdma_dc_key: Option<u64>,
    /// DC initiators of each address
    #[arg(long, value_name = "N", env = "VGW_RDMA_NUM_DCIS", default_value_t = 128, global = true, help_heading = RDMA_LIBRARY)]
    pub rdma_num_dcis: u32,
    /// Entries of a completion queue
    #[arg(long, value_name = "N", env = "VGW_RDMA_CQ_DEPTH", default_value_t = 640, global = true, help_heading = RDMA_LIBRARY)]
    pub rdma_cq_depth: u32,
    /// Retries of the transport, 0 to 7
    #[arg(long, value_name = "N", env = "VGW_RDMA_RETRY_COUNT", default_value_t = 7, global = true, help_heading = RDMA_LIBRARY)]
    pub rdma_retry_count: u32,
    /// Local ACK timeout, 4.096 us times 2 to the power of N
    #[arg(long, value_name = "N", env = "VGW_RDMA_TIMEOUT", default_value_t = 16, global = true, help_heading = RDMA_LIBRARY)]
    pub rdma_timeout: u32,
    /// InfiniBand service level
    #[arg(long, value_name = "N", env = "VGW_RDMA_SERVICE_LEVEL", default_value_t = 0, global = true, help_heading = RDMA_LIBRARY)]
    pub rdma_service_level: u32,
    /// IP traffic class (DSCP times 4, plus ECN)
    #[arg(long, value_name = "N", env = "VGW_RDMA_TRAFFIC_CLASS", default_value_t = 96, global = true, help_heading = RDMA_LIBRARY)]
    pub rdma_traffic_class: u32,
    /// IP hop limit
    #[arg(long, value_name = "N", env = "VGW_RDMA_HOP_LIMIT", default_value_t = 4, global = true, help_heading = RDMA_LIBRARY)]
    pub rdma_hop_limit: u32,
    /// Index of the partition key
    #[arg(long, value_name = "N", env = "VGW_RDMA_PKEY_INDEX", default_value_t = 0, global = true, help_heading = RDMA_LIBRARY)]
    pub rdma_pkey_index: u32,
    /// Scatter-gather entries of an operation [default: what the library takes]
    #[arg(long, value_name = "N", env = "VGW_RDMA_MAX_SGE", global = true, help_heading = RDMA_LIBRARY)]
    pub rdma_max_sge: Option<u32>,
    /// Outstanding RDMA READs of a queue pair; 0 is what the device can
    #[arg(long, value_name = "N", env = "VGW_RDMA_MAX_RD_ATOMIC", default_value_t = 0, global = true, help_heading = RDMA_LIBRARY)]
    pub rdma_max_rd_atomic: u32,
    /// Pause of the library's synchronous calls between polls
    #[arg(long, value_name = "NS", env = "VGW_RDMA_DELAY_INTERVAL", default_value_t = 5000, global = true, help_heading = RDMA_LIBRARY)]
    pub rdma_delay_interval: u32,
    /// Where those pauses are made: none, batch, entry or adaptive
    #[arg(long, value_name = "MODE", env = "VGW_RDMA_DELAY_MODE", default_value = "batch", global = true, help_heading = RDMA_LIBRARY)]
    pub rdma_delay_mode: DelayMode,
    /// Reset a queue pair after a failure
    #[arg(long, value_name = "BOOL", env = "VGW_RDMA_QP_RESET", num_args = 0..=1, require_equals = true, default_value = "true", default_missing_value = "true", action = clap::ArgAction::Set, global = true, help_heading = RDMA_LIBRARY)]
    pub rdma_qp_reset: bool,
}

impl RdmaArguments {
    fn tunables(&self) -> Result<Tunables, String> {
        let tunables = Tunables {
            num_dcis: self.rdma_num_dcis,
            cq_depth: self.rdma_cq_depth,
            dc_key: self.rdma_dc_key.unwrap_or(Tunables::DEFAULT_DC_KEY),
            service_level: self.rdma_service_level,
            timeout: self.rdma_timeout,
            hop_limit: self.rdma_hop_limit,
            pkey_index: self.rdma_pkey_index,
            max_sge: self.rdma_max_sge,
            delay_interval: Duration::from_nanos(self.rdma_delay_interval.into()),
            delay_mode: self.rdma_delay_mode,
            qp_reset_on_failure: self.rdma_qp_reset,
            retry_count: self.rdma_retry_count,
            traffic_class: self.rdma_traffic_class,
            max_rd_atomic: self.rdma_max_rd_atomic,
        };
        match tunables.validate() {
            Ok(()) => Ok(tunables),
            Err(rdma::Error::Invalid { what, .. }) => Err(what),
            Err(error) => Err(error.to_string()),
        }
    }

    fn engine(&self) -> Result<EngineConfig, String> {
        let engine = EngineConfig {
            chunk_size: usize::try_from(self.rdma_chunk_size).unwrap_or(usize::MAX),
            lanes: self.rdma_lanes,
            channels_per_lane: self.rdma_channels,
            depth: self.rdma_depth,
            chunk_wait: self.rdma_wait,
            completion_timeout: self.rdma_operation_timeout,
            worker_threads: self.rdma_workers,
            ..EngineConfig::default()
        };
        engine.validate().map_err(|error| {
            let option = match error.setting {
                "chunk_size" => "--rdma-chunk-size",
                "lanes" => "--rdma-lanes",
                "channels_per_lane" => "--rdma-channels",
                "depth" => "--rdma-depth",
                "completion_timeout" => "--rdma-operation-timeout",
                "worker_threads" => "--rdma-workers",
                other => other,
            };
            format!("{option} is {}, but must be {}", error.value, error.bounds)
        })?;
        Ok(engine)
    }

    pub(super) fn apply(self, config: &mut Config, warnings: &mut Vec<String>) -> Result<(), String> {
        let tunables = self.tunables()?;
        let engine = self.engine()?;
        config.tokens = TokenRules {
            extra_headers: self.rdma_token_header,
            allow: self.rdma_allow,
            match_peer: self.rdma_match_peer,
            allow_unsigned: self.rdma_allow_unsigned_token,
        };
        if self.rdma_ip.is_empty() {
            return Ok(());
        }
        for (name, value) in
            [("--pool-buf-size", self.pool_buf_size), ("--pool-buf-count", self.pool_buf_count)]
        {
            if value == 0 {
                return Err(format!("{name} must be more than 0"));
            }
        }
        if self.pool_buf_size < self.rdma_chunk_size {
            return Err(format!(
                "--rdma-chunk-size {} is larger than --pool-buf-size {}",
                format_size(self.rdma_chunk_size),
                format_size(self.pool_buf_size)
            ));
        }
        let pool_bytes = self.pool_buf_size.saturating_mul(self.pool_buf_count);
        check_pool(pool_bytes, startup::provider_pins_memory())?;
        let too_many = |_| "the RDMA pool does not fit in the address space".to_owned();
        let buffer_bytes = usize::try_from(self.pool_buf_size).map_err(too_many)?;
        let buffers = usize::try_from(self.pool_buf_count).map_err(too_many)?;
        let channels = self.rdma_lanes * self.rdma_channels;
        if channels > tunables.num_dcis as usize {
            return Err(format!(
                "--rdma-lanes {} times --rdma-channels {} are more than the {} of --rdma-num-dcis",
                self.rdma_lanes, self.rdma_channels, tunables.num_dcis
            ));
        }
        if tunables.dc_key == Tunables::DEFAULT_DC_KEY {
            warnings.push(
                "the DC key is the one everybody knows; choose another with --rdma-dc-key, here and in all clients"
                    .into(),
            );
        }
        if config.tokens.allow_unsigned {
            warnings.push(
                "RDMA tokens are accepted unsigned: whoever can alter requests can have any client memory read or written"
                    .into(),
            );
        }
        config.rdma = Some(RdmaConfig {
            addresses: self.rdma_ip,
            port: self.rdma_port,
            buffer_bytes,
            buffers,
            huge_pages: match self.rdma_huge_pages {
                HugePages::Off => rdma::HugePages::Off,
                HugePages::Advise => rdma::HugePages::Advise,
                HugePages::Require => rdma::HugePages::Require,
            },
            tunables,
            engine,
        });
        Ok(())
    }
}

//! The checked settings of a gateway.

mod memory;
mod ownership;

use std::net::IpAddr;
use std::path::PathBuf;
use std::time::Duration;

use http::HeaderName;

use super::listen::ListenAddress;
use super::rdma::policy::Network;
use crate::rdma::Tunables;
use crate::store::{EtagMode, StoreOptions};
use crate::transfer::EngineConfig;
pub(crate) use memory::check_pool;
pub use ownership::Ownership;

/// Which RDMA writes bypass the page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum DirectIo {
    /// None.
    #[default]
    Off,
    /// All.
    On,
    /// Those of large objects, which would only push others out of the page cache.
    Auto,
}

impl DirectIo {
    /// Size from which on an object is large, in bytes.
    pub const LARGE: u64 = 256 << 20;

    /// Size from which on writes are direct.
    pub fn from_size(self) -> Option<u64> {
        match self {
            Self::Off => None,
            Self::On => Some(1),
            Self::Auto => Some(Self::LARGE),
        }
    }
}

/// Settings of the RDMA side; a gateway without them serves plain S3.
#[derive(Clone, Debug)]
pub struct RdmaConfig {
    /// Addresses of the RDMA interfaces.
    pub addresses: Vec<IpAddr>,
    /// Port of the RDMA sessions.
    pub port: u16,
    /// Bytes of each buffer of the pool; each is registered once with every address.
    pub buffer_bytes: usize,
    /// Number of buffers.
    pub buffers: usize,
    /// Whether the pool's pages are huge ones.
    pub huge_pages: crate::rdma::HugePages,
    /// The library's tunables.
    pub tunables: Tunables,
    /// The engine.
    pub engine: EngineConfig,
}

impl RdmaConfig {
    /// Bytes of the whole pool.
    pub fn pool_bytes(&self) -> u64 {
        (self.buffer_bytes as u64).saturating_mul(self.buffers as u64)
    }
}

/// Rules about the tokens of requests.
#[derive(Clone, Debug, Default)]
pub struct TokenRules {
    /// Headers to look in beside `x-amz-rdma-token`.
    pub extra_headers: Vec<HeaderName>,
    /// Networks that tokens may point to; any when empty.
    pub allow: Vec<Network>,
    /// Whether a token must point to the host that sent the request.
    pub match_peer: bool,
    /// Whether tokens outside the signature are accepted.
    pub allow_unsigned: bool,
}

/// Everything a gateway is started with.
#[derive(Clone, Debug)]
pub struct Config {
    /// Where S3 is served.
    pub listen: Vec<ListenAddress>,
    /// Where metrics are served.
    pub metrics_listen: Option<ListenAddress>,
    /// Certificate chain and key, PEM files.
    pub tls: Option<(PathBuf, PathBuf)>,
    /// Permission bits of socket files.
    pub socket_mode: u32,
    /// Region that requests must be signed for.
    pub region: String,
    /// Access key of the root account.
    pub access: String,
    /// Secret key of the root account.
    pub secret: s3s::auth::SecretKey,
    /// Directory of `users.json`.
    pub iam_dir: Option<PathBuf>,
    /// Who owns the objects of buckets that say nothing of it, and of new ones.
    pub default_ownership: Ownership,
    /// Domains whose sub-domains are buckets.
    pub virtual_domains: Vec<String>,
    /// Whether connections serve more than one request.
    pub keep_alive: bool,
    /// Connections at a time; more wait.
    pub max_connections: usize,
    /// Requests at a time; more get `SlowDown`.
    pub max_requests: usize,
    /// Longest time without a byte of a request's body; then the request fails.
    pub body_patience: Duration,
    /// Path that answers 200 to anybody.
    pub health: Option<String>,
    /// File of the access log.
    pub access_log: Option<PathBuf>,
    /// Time between applications of lifecycle rules; none: the rules are refused.
    pub lifecycle_interval: Option<Duration>,
    /// Blocking calls at a time.
    pub concurrency: usize,
    /// Longest time for requests to end after the signal to stop.
    pub grace: Duration,
    /// The directory that is served.
    pub root: PathBuf,
    /// How it is served.
    pub store: StoreOptions,
    /// What ETags are made of.
    pub etag: EtagMode,
    /// Which RDMA writes bypass the page cache.
    pub direct_io: DirectIo,
    /// RDMA, when it is on.
    pub rdma: Option<RdmaConfig>,
    /// Rules about tokens; they hold for a gateway without RDMA too.
    pub tokens: TokenRules,
}

impl Config {
    /// The defaults, for a directory and a root account.
    pub fn new(
        root: impl Into<PathBuf>,
        access: impl Into<String>,
        secret: impl Into<s3s::auth::SecretKey>,
    ) -> Self {
        Self {
            listen: vec![ListenAddress::AnyAddress(7070)],
            metrics_listen: None,
            tls: None,
            socket_mode: 0o660,
            region: "us-east-1".to_owned(),
            access: access.into(),
            secret: secret.into(),
            iam_dir: None,
            default_ownership: Ownership::BucketOwnerEnforced,
            virtual_domains: Vec::new(),
            keep_alive: true,
            max_connections: 250_000,
            max_requests: 100_000,
            body_patience: Duration::from_secs(120),
            health: None,
            access_log: None,
            lifecycle_interval: Some(Duration::from_secs(3600)),
            concurrency: 256,
            grace: Duration::from_secs(10),
            root: root.into(),
            store: StoreOptions::default(),
            etag: EtagMode::Md5,
            direct_io: DirectIo::Off,
            rdma: None,
            tokens: TokenRules::default(),
        }
    }
}

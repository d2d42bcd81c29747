//! From a checked [`Config`] to a running gateway, and back to nothing.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Instant;

use s3s::config::{S3Config, StaticConfigProvider};
use s3s::host::MultiDomain;
use s3s::service::S3ServiceBuilder;
use s3s::validation::NameValidation;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;

use super::access::Access;
use super::access_log::AccessLog;
use super::account::{AccountSource, Accounts, UsersFile};
use super::blocking::Blocking;
use super::config::{Config, RdmaConfig};
use super::cors::Cors;
use super::front::Front;
use super::front::form::FIELDS;
use super::listen::{ListenAddress, Listener};
use super::metrics::Metrics;
use super::metrics::serve::serve as serve_metrics;
use super::rdma::gate::Gate;
use super::rdma::policy::TokenPolicy;
use super::rdma::token::TokenHeaders;
use super::s3::ObjectService;
use super::server::{Connections, serve};
use super::tls::{Certificate, TlsError};
use super::upkeep::{apply_lifecycles, sweep_regularly};
use crate::rdma::provider::Maker;
use crate::rdma::{CuServer, HostMemory, Provider};
use crate::store::{self, Store};
use crate::transfer::Engine;
use crate::transfer::cuobj::CuEndpoint;
use crate::transfer::transport::Endpoint;

/// Why a gateway did not start.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StartError {
    /// The directory cannot be served.
    #[error("cannot serve {root:?}: {source}")]
    Root {
        /// The directory.
        root: PathBuf,
        /// The cause.
        source: store::Error,
    },
    /// An address cannot be listened on.
    #[error("cannot listen on {address}: {source}")]
    Listen {
        /// The address as it was given.
        address: String,
        /// The cause.
        source: io::Error,
    },
    /// TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// TLS, the provider.
    #[error("cannot use TLS: {0}")]
    TlsSetup(#[from] tokio_rustls::rustls::Error),
    /// The access log.
    #[error("cannot write the access log {path:?}: {source}")]
    AccessLog {
        /// The file.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// The accounts' file.
    #[error("cannot read accounts from {path:?}: {source}")]
    Accounts {
        /// The directory.
        path: PathBuf,
        /// The cause.
        source: io::Error,
    },
    /// A virtual domain.
    #[error("virtual domains: {0}")]
    Domain(#[from] s3s::host::DomainError),
    /// RDMA.
    #[error("cannot start RDMA: {0}")]
    Rdma(String),
}

/// Longest file of a form upload, in bytes.
const FORM_FILE: u64 = 256 << 20;

/// Bucket names without the rules for DNS names; what cannot be a directory is still refused, here
/// and in the store.
struct RelaxedNames;

impl NameValidation for RelaxedNames {
    fn validate_bucket_name(&self, name: &str) -> bool {
        (1..=255).contains(&name.len()) && !name.contains(['/', '\0']) && name != "." && name != ".."
    }
}

/// A running gateway. Ends when it is told to, or when it drops.
#[derive(Debug)]
pub struct Gateway {
    addresses: Vec<String>,
    metrics_address: Option<String>,
    metrics: Arc<Metrics>,
    engine: Option<Arc<Engine>>,
    log: Option<AccessLog>,
    certificate: Option<Arc<Certificate>>,
    stop: watch::Sender<bool>,
    server: JoinHandle<()>,
    config: Config,
}

impl Gateway {
    /// Starts all parts. `engine` carries bodies by RDMA; without one the gateway serves plain S3.
    ///
    /// # Errors
    /// See [`StartError`]; nothing is left running.
    pub async fn start(config: Config, engine: Option<Arc<Engine>>) -> Result<Self, StartError> {
        let metrics = Arc::new(Metrics::default());
        let blocking = Blocking::new(config.concurrency);
        let accounts = accounts(&config)?;
        let store = open_store(&config).await?;
        let certificate = match config.tls.clone() {
            Some((certificate, key)) => Some(Certificate::read(certificate, key)?),
            None => None,
        };
        let tls = certificate.as_ref().map(Certificate::acceptor).transpose()?;
        let log = match config.access_log.clone() {
            Some(path) => Some(
                AccessLog::start(path.clone()).map_err(|source| StartError::AccessLog { path, source })?,
            ),
            None => None,
        };
        let cors = Cors {
            store: store.clone(),
            blocking: blocking.clone(),
            domains: match &*config.virtual_domains {
                [] => None,
                domains => Some(MultiDomain::new(domains)?),
            },
        };
        let kept = (!config.store.read_only).then(|| store.clone());
        let service = service(&config, store, &accounts, &blocking, engine.clone(), &metrics)?;
        let front = Front::new(service, cors, accounts, Arc::clone(&metrics), log.clone(), &config);
        let mut listeners = Vec::new();
        for address in &config.listen {
            listeners.push(bind(address, config.socket_mode).await?);
        }
        let metrics_listener = match &config.metrics_listen {
            Some(address) => Some(bind(address, config.socket_mode).await?),
            None => None,
        };
        let addresses = listeners.iter().map(|l| l.name().to_owned()).collect();
        let metrics_address = metrics_listener.as_ref().map(|l| l.name().to_owned());
        let (stop, stopped) = watch::channel(false);
        if let Some(listener) = metrics_listener {
            tokio::spawn(serve_metrics(listener, Arc::clone(&metrics), engine.clone(), stopped.clone()));
        }
        if let Some(store) = kept {
            if let Some(interval) = config.lifecycle_interval {
                tokio::spawn(apply_lifecycles(store.clone(), interval, stopped.clone()));
            }
            tokio::spawn(sweep_regularly(store, config.store.sweep_after, stopped.clone()));
        }
        let connections = Connections {
            front: Arc::new(front),
            metrics: Arc::clone(&metrics),
            tls,
            limit: Arc::new(Semaphore::new(config.max_connections.clamp(1, Semaphore::MAX_PERMITS))),
            keep_alive: config.keep_alive,
        };
        let grace = grace(stopped.clone(), config.grace);
        let server = tokio::spawn(serve(listeners, connections, stopped, grace));
        Ok(Self { addresses, metrics_address, metrics, engine, log, certificate, stop, server, config })
    }

    /// Where S3 is served, with real ports.
    pub fn addresses(&self) -> &[String] {
        &self.addresses
    }

    /// Where metrics are served.
    pub fn metrics_address(&self) -> Option<&str> {
        self.metrics_address.as_deref()
    }

    /// The counters.
    pub fn metrics(&self) -> &Metrics {
        &self.metrics
    }

    /// The settings it runs with.
    pub fn config(&self) -> &Config {
        &self.config
    }

    /// Reads the certificate again and reopens the access log.
    pub fn reload(&self) {
        if let Some(certificate) = &self.certificate {
            match certificate.reload() {
                Ok(()) => tracing::info!("read the certificate again"),
                Err(error) => tracing::error!(%error, "keeping the old certificate"),
            }
        }
        if let Some(log) = &self.log {
            log.reopen();
        }
    }

    /// Stops listening, lets requests and transfers in progress end for at most the configured time,
    /// and tells whether all did.
    pub async fn shutdown(mut self) -> bool {
        let started = Instant::now();
        let _ = self.stop.send(true);
        let _ = (&mut self.server).await;
        let left = self.config.grace.saturating_sub(started.elapsed());
        let drained = match &self.engine {
            Some(engine) => engine.drain(left).await,
            None => true,
        };
        if let Some(log) = self.log.clone() {
            let _ = tokio::task::spawn_blocking(move || log.flush()).await;
        }
        drained && self.metrics.in_flight() == 0
    }
}

impl Drop for Gateway {
    fn drop(&mut self) {
        let _ = self.stop.send(true);
    }
}

/// Passes `limit` after the signal to stop.
async fn grace(mut stopped: watch::Receiver<bool>, limit: std::time::Duration) {
    let _ = stopped.wait_for(|s| *s).await;
    tokio::time::sleep(limit).await;
}

async fn bind(address: &ListenAddress, mode: u32) -> Result<Listener, StartError> {
    Listener::bind(address, mode)
        .await
        .map_err(|source| StartError::Listen { address: address.to_string(), source })
}

async fn open_store(config: &Config) -> Result<Store, StartError> {
    let (root, options) = (config.root.clone(), config.store.clone());
    let opened = tokio::task::spawn_blocking(move || Store::open(&root, options)).await;
    let failed = |source| StartError::Root { root: config.root.clone(), source };
    match opened {
        Ok(result) => result.map_err(failed),
        Err(error) => Err(failed(store::Error::InvalidArgument(error.to_string()))),
    }
}

fn accounts(config: &Config) -> Result<Accounts, StartError> {
    let mut sources: Vec<Box<dyn AccountSource>> = Vec::new();
    if let Some(directory) = &config.iam_dir {
        let users = UsersFile::open(directory)
            .map_err(|source| StartError::Accounts { path: directory.clone(), source })?;
        sources.push(Box::new(users));
    }
    Ok(Accounts::new(config.access.clone(), config.secret.clone(), sources))
}

fn service(
    config: &Config,
    store: Store,
    accounts: &Accounts,
    blocking: &Blocking,
    engine: Option<Arc<Engine>>,
    metrics: &Arc<Metrics>,
) -> Result<s3s::service::S3Service, StartError> {
    let gate = Gate {
        enabled: engine.is_some(),
        headers: TokenHeaders::new(&config.tokens.extra_headers),
        policy: TokenPolicy {
            allow: config.tokens.allow.clone(),
            match_peer: config.tokens.match_peer,
            allow_unsigned: config.tokens.allow_unsigned,
        },
    };
    let token_metadata = gate.headers.as_metadata();
    let access = Access {
        accounts: accounts.clone(),
        store: store.clone(),
        blocking: blocking.clone(),
        gate,
        default_ownership: config.default_ownership,
        read_only: config.store.read_only,
        metrics: Arc::clone(metrics),
    };
    let operations = ObjectService {
        store,
        blocking: blocking.clone(),
        engine,
        metrics: Arc::clone(metrics),
        accounts: accounts.clone(),
        region: config.region.clone(),
        applies_lifecycles: config.lifecycle_interval.is_some(),
        default_ownership: config.default_ownership,
        etag: config.etag,
        token_metadata: token_metadata.into(),
        direct_io_from: config.direct_io.from_size(),
    };
    let mut builder = S3ServiceBuilder::new(operations);
    let mut limits = S3Config::default();
    // s3s holds the file of a form in memory.
    limits.post_object_max_file_size = FORM_FILE;
    limits.form_max_fields_size = FIELDS;
    builder.set_config(Arc::new(StaticConfigProvider::new(Arc::new(limits))));
    builder.set_auth(accounts.clone());
    builder.set_access(access);
    if !config.virtual_domains.is_empty() {
        builder.set_host(MultiDomain::new(&config.virtual_domains)?);
    }
    if config.store.relaxed_bucket_names {
        builder.set_validation(RelaxedNames);
    }
    Ok(builder.build())
}

/// The cuObject library in this binary, in words.
pub(crate) fn provider() -> String {
    Provider::current().map_or_else(|error| error.to_string(), |provider| provider.to_string())
}

/// `nvidia` or `soft`.
pub(crate) fn provider_label() -> &'static str {
    Provider::current().map_or("unknown", |provider| provider.maker.label())
}

/// Whether registering memory with that library pins it.
pub(crate) fn provider_pins_memory() -> bool {
    Provider::current().is_ok_and(|provider| provider.maker == Maker::Nvidia)
}

/// Opens the RDMA sessions, registers the pool with each and starts the engine. Blocks.
///
/// # Errors
/// [`StartError::Rdma`].
pub(crate) fn start_engine(config: &RdmaConfig) -> Result<Engine, StartError> {
    let failed = |error: &dyn std::fmt::Display| StartError::Rdma(error.to_string());
    let (mut slabs, mut leases) = (Vec::new(), Vec::new());
    for _ in 0..config.buffers {
        let memory = HostMemory::allocate(config.buffer_bytes, config.huge_pages).map_err(|e| failed(&e))?;
        let (slab, chunks) = memory.into_leases(config.engine.chunk_size).map_err(|e| failed(&e))?;
        slabs.push(slab);
        leases.extend(chunks);
    }
    let mut endpoints: Vec<Arc<dyn Endpoint>> = Vec::new();
    for address in &config.addresses {
        let server = CuServer::open(*address, config.port, &config.tunables).map_err(|e| failed(&e))?;
        endpoints.push(Arc::new(CuEndpoint::new(server, &slabs).map_err(|e| failed(&e))?));
    }
    Engine::start(config.engine.clone(), endpoints, leases).map_err(|e| failed(&e))
}

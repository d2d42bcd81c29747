//! The client: signed requests whose bodies move by RDMA, and the logic of `cuobjtest`.
//!
//! A [`Client`] speaks S3 to one endpoint. A [`Buffer`] is memory, of the host or of a GPU, that is
//! registered once and used by any number of requests; [`Client::put`], [`Client::get`],
//! [`Client::get_range`] and [`Client::upload_part`] hand the gateway a token for a part of it, and
//! the gateway reads or writes the memory by RDMA while the request waits. The same calls exist
//! over the HTTP body ([`Client::put_http`], [`Client::get_http`]), with the same buffers.
//!
//! ```no_run
//! use vgwrdma::client::{Client, Credentials, GetOptions, RdmaSession};
//!
//! # async fn example() -> Result<(), vgwrdma::client::Error> {
//! let client = Client::builder("http://gateway:7070")
//!     .credentials(Credentials::new("access key", "secret key"))
//!     .build()?;
//! let session = RdmaSession::open()?;
//! let mut buffer = session.host_buffer(4 << 20)?;
//!
//! buffer.copy_in(0, b"some object")?;
//! client.put("bucket", "key", &buffer, 0..11).await?;
//!
//! let got = client.get("bucket", "key", &mut buffer, &GetOptions::default()).await?;
//! assert_eq!(got.bytes, 11);
//! # Ok(())
//! # }
//! ```
//!
//! What is done for the caller: a fresh token for each of two attempts, the reply rules of
//! [`reply`], and the end of a registration whose request was never answered, so that no late RDMA
//! write can reach memory that is in use again (see [`Buffer`]).

mod body;
pub mod buffer;
pub mod configuration;
mod connection;
mod device;
pub mod devices;
pub mod endpoint;
pub mod environment;
pub mod error;
pub mod headers;
mod host;
mod multipart;
pub mod reply;
mod request;
mod session;
mod sign;
mod standard;
pub mod testing;
pub mod tls;
pub mod token;
pub mod tool;
mod transfer;

use std::sync::{Arc, OnceLock};

pub use buffer::{Buffer, Memory, MemoryKind};
pub use connection::Timeouts;
pub use endpoint::Endpoint;
pub use error::{Error, Result};
pub use headers::Dialect;
pub use multipart::{CompletedPart, MAX_PARTS, PartOf};
pub use reply::{Breach, ContentRange};
pub use session::RdmaSession;
pub use sign::Credentials;
pub use standard::ObjectInfo;
pub use tls::Trust;
pub use token::Token;
pub use transfer::{Carrier, GetOptions, Got, Put, PutOptions};

use crate::rdma::Provider;
use connection::Pool;

/// Most bytes that one request moves: the limit of one cuObject operation, 1 GiB.
pub const MAX_TRANSFER: u64 = 1 << 30;

/// The version of this client with its cuObject library, for `--version` and reports.
pub fn version() -> &'static str {
    static VERSION: OnceLock<String> = OnceLock::new();
    VERSION.get_or_init(|| format!("{} ({})", env!("CARGO_PKG_VERSION"), library()))
}

/// The cuObject library in this program, for reports.
pub fn library() -> &'static str {
    static LIBRARY: OnceLock<String> = OnceLock::new();
    LIBRARY.get_or_init(|| match Provider::current() {
        Ok(provider) => provider.to_string(),
        Err(error) => error.to_string(),
    })
}

/// A client of one S3 endpoint. Clones share its connections.
///
/// The client lives on the Tokio runtime that its first request runs on.
#[derive(Clone, Debug)]
pub struct Client {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    pool: Arc<Pool>,
    credentials: Option<Credentials>,
    region: String,
    dialect: Dialect,
    attempts: u32,
    user_agent: String,
}

/// What a [`Client`] is made of. See [`Client::builder`].
#[derive(Clone, Debug)]
pub struct ClientBuilder {
    endpoint: String,
    credentials: Option<Credentials>,
    region: String,
    dialect: Dialect,
    attempts: u32,
    timeouts: Timeouts,
    trust: Trust,
    user_agent: String,
}

impl Client {
    /// Starts a client for an endpoint URL, `http://gateway:7070`.
    pub fn builder(endpoint: impl Into<String>) -> ClientBuilder {
        ClientBuilder {
            endpoint: endpoint.into(),
            credentials: None,
            region: "us-east-1".to_owned(),
            dialect: Dialect::Standard,
            attempts: 2,
            timeouts: Timeouts::default(),
            trust: Trust::System,
            user_agent: concat!("vgwrdma/", env!("CARGO_PKG_VERSION")).to_owned(),
        }
    }

    /// The endpoint.
    pub fn endpoint(&self) -> &Endpoint {
        self.shared.pool.endpoint()
    }
}

impl ClientBuilder {
    /// Signs requests. Without credentials they go out unsigned, as anonymous.
    pub fn credentials(mut self, credentials: Credentials) -> Self {
        self.credentials = Some(credentials);
        self
    }

    /// The region in the signature. Default `us-east-1`.
    pub fn region(mut self, region: impl Into<String>) -> Self {
        self.region = region.into();
        self
    }

    /// The headers that carry the token. Default `x-amz-rdma-token`.
    pub fn dialect(mut self, dialect: Dialect) -> Self {
        self.dialect = dialect;
        self
    }

    /// How often a request is tried in all, each time with a fresh token. Default 2, at least 1.
    pub fn attempts(mut self, attempts: u32) -> Self {
        self.attempts = attempts.max(1);
        self
    }

    /// How long the steps of a request may take.
    pub fn timeouts(mut self, timeouts: Timeouts) -> Self {
        self.timeouts = timeouts;
        self
    }

    /// Whom to trust on `https` endpoints.
    pub fn trust(mut self, trust: Trust) -> Self {
        self.trust = trust;
        self
    }

    /// The `User-Agent` header.
    pub fn user_agent(mut self, user_agent: impl Into<String>) -> Self {
        self.user_agent = user_agent.into();
        self
    }

    /// Checks the parts and makes the client. No connection is made yet.
    ///
    /// # Errors
    /// [`Error::Endpoint`] for a URL that cannot be used, [`Error::Certificates`] when none can be
    /// loaded for `https`.
    pub fn build(self) -> Result<Client> {
        let endpoint: Endpoint = self.endpoint.parse()?;
        let tls = if endpoint.is_tls() { Some(tls::connector(&self.trust)?) } else { None };
        Ok(Client {
            shared: Arc::new(Shared {
                pool: Arc::new(Pool::new(endpoint, tls, self.timeouts)),
                credentials: self.credentials,
                region: self.region,
                dialect: self.dialect,
                attempts: self.attempts,
                user_agent: self.user_agent,
            }),
        })
    }
}

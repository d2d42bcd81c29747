//! The S3 gateway: HTTP listener, accounts, S3 operations over a [`Store`](crate::store::Store),
//! object bodies by RDMA through an [`Engine`](crate::transfer::Engine).
//!
//! | module | holds |
//! |---|---|
//! | [`cli`], [`config`] | what was typed, and what it means |
//! | `startup`, `server`, `listen`, `tls`, `upkeep` | from a [`Config`](config::Config) to served connections and back |
//! | `front`, `body`, `access_log`, [`metrics`] | around each request |
//! | [`account`], `access`, `acl`, `policy` | who may do what |
//! | `s3`, `ops`, `headers`, `conditions`, `range`, `checksum` | S3 operations |
//! | `fields` | form uploads |
//! | `lifecycle` | rules by which objects expire, and their application |
//! | `cors`, `xml` | cross-origin requests, S3's documents |
//! | `ingest`, `stream`, `blocking` | HTTP bodies to and from the store |
//! | `rdma` | tokens, rules and replies of RDMA requests |

mod access;
mod access_log;
pub mod account;
mod acl;
mod blocking;
mod body;
mod checksum;
pub mod cli;
mod conditions;
pub mod config;
mod cors;
mod error;
mod fields;
mod front;
mod headers;
mod ingest;
mod lifecycle;
mod listen;
pub mod metrics;
mod ops;
mod policy;
mod range;
mod rdma;
mod request;
pub mod run;
mod s3;
mod server;
mod startup;
mod stream;
mod tls;
mod upkeep;
mod xml;

pub use listen::ListenAddress;
pub use rdma::policy::Network;
pub use request::Carrier;
pub use startup::{Gateway, StartError};
pub use tls::TlsError;

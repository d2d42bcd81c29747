//! TLS with a certificate that can be changed while the gateway runs.

use std::path::{Path, PathBuf};
use std::sync::{Arc, PoisonError, RwLock};

use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};
use tokio_rustls::rustls::server::{ClientHello, ResolvesServerCert};
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{self, ServerConfig};

/// Why a certificate was not taken.
#[derive(Debug, thiserror::Error)]
pub enum TlsError {
    /// A PEM file that cannot be read.
    #[error("cannot read {what} from {path:?}: {cause}")]
    Pem {
        /// Certificate or key.
        what: &'static str,
        /// The file.
        path: PathBuf,
        /// The parser's text, which shows nothing of the content.
        cause: String,
    },
    /// Certificate and key that do not go together, or of a kind that is not supported.
    #[error("certificate {certificate:?} and key {key:?}: {cause}")]
    Key {
        /// The certificate's file.
        certificate: PathBuf,
        /// The key's file.
        key: PathBuf,
        /// The cause.
        cause: rustls::Error,
    },
}

fn load(certificate: &Path, key: &Path) -> Result<CertifiedKey, TlsError> {
    let chain: Vec<CertificateDer<'static>> =
        CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect).map_err(|e| {
            TlsError::Pem { what: "a certificate", path: certificate.into(), cause: e.to_string() }
        })?;
    if chain.is_empty() {
        let cause = "there is none in it".to_owned();
        return Err(TlsError::Pem { what: "a certificate", path: certificate.into(), cause });
    }
    let private = PrivateKeyDer::from_pem_file(key).map_err(|e| TlsError::Pem {
        what: "a private key",
        path: key.into(),
        cause: e.to_string(),
    })?;
    CertifiedKey::from_der(chain, private, &ring::default_provider()).map_err(|cause| TlsError::Key {
        certificate: certificate.into(),
        key: key.into(),
        cause,
    })
}

/// The certificate in use, and where it comes from.
#[derive(Debug)]
pub(crate) struct Certificate {
    files: (PathBuf, PathBuf),
    current: RwLock<Arc<CertifiedKey>>,
}

impl ResolvesServerCert for Certificate {
    fn resolve(&self, _: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        Some(Arc::clone(&self.current.read().unwrap_or_else(PoisonError::into_inner)))
    }
}

impl Certificate {
    /// Reads certificate chain and key from PEM files.
    ///
    /// # Errors
    /// Names the file and what is wrong with it.
    pub(crate) fn read(certificate: PathBuf, key: PathBuf) -> Result<Arc<Self>, TlsError> {
        let current = RwLock::new(Arc::new(load(&certificate, &key)?));
        Ok(Arc::new(Self { files: (certificate, key), current }))
    }

    /// Reads the files again, for new connections; on an error the old certificate stays.
    ///
    /// # Errors
    /// As [`read`](Self::read).
    pub(crate) fn reload(&self) -> Result<(), TlsError> {
        let new = Arc::new(load(&self.files.0, &self.files.1)?);
        *self.current.write().unwrap_or_else(PoisonError::into_inner) = new;
        Ok(())
    }

    /// What wraps accepted connections.
    ///
    /// # Errors
    /// When the crypto provider does not know the protocol versions, which does not happen.
    pub(crate) fn acceptor(self: &Arc<Self>) -> Result<TlsAcceptor, rustls::Error> {
        let mut config = ServerConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()?
            .with_no_client_auth()
            .with_cert_resolver(Arc::clone(self) as _);
        config.alpn_protocols = vec![b"http/1.1".to_vec()];
        Ok(TlsAcceptor::from(Arc::new(config)))
    }
}

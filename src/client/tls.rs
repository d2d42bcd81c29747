//! TLS: which certificates are trusted.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use tokio_rustls::rustls::crypto::{CryptoProvider, ring, verify_tls12_signature, verify_tls13_signature};
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};

use super::{Error, Result};

/// Whom to trust on `https` endpoints.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Trust {
    /// The system's certificate authorities (`SSL_CERT_FILE` and `SSL_CERT_DIR` are honoured).
    #[default]
    System,
    /// Only the authorities in this PEM file.
    Bundle(PathBuf),
    /// Anyone. For test set-ups with self-signed certificates only.
    Anyone,
}

pub(crate) fn connector(trust: &Trust) -> Result<TlsConnector> {
    let provider = Arc::new(ring::default_provider());
    let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
        .with_safe_default_protocol_versions()
        .map_err(|e| Error::Certificates { place: "rustls".into(), reason: e.to_string() })?;
    let mut config = match trust {
        Trust::System => builder.with_root_certificates(system_roots()?).with_no_client_auth(),
        Trust::Bundle(path) => builder.with_root_certificates(bundle_roots(path)?).with_no_client_auth(),
        Trust::Anyone => builder
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(NoVerification(provider)))
            .with_no_client_auth(),
    };
    config.alpn_protocols = vec![b"http/1.1".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

fn system_roots() -> Result<RootCertStore> {
    let found = rustls_native_certs::load_native_certs();
    let mut roots = RootCertStore::empty();
    let (added, _) = roots.add_parsable_certificates(found.certs);
    if added == 0 {
        let reason = match found.errors.first() {
            Some(error) => error.to_string(),
            None => "none found; install ca-certificates or name a file with --ca-bundle".to_owned(),
        };
        return Err(Error::Certificates { place: "the system".into(), reason });
    }
    Ok(roots)
}

fn bundle_roots(path: &Path) -> Result<RootCertStore> {
    let wrong = |reason: String| Error::Certificates { place: path.display().to_string(), reason };
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(path).map_err(|e| wrong(e.to_string()))? {
        let certificate = certificate.map_err(|e| wrong(e.to_string()))?;
        roots.add(certificate).map_err(|e| wrong(e.to_string()))?;
    }
    if roots.is_empty() {
        return Err(wrong("no certificate in the file; PEM is expected".to_owned()));
    }
    Ok(roots)
}

/// Takes any certificate, but still checks that the server holds its key.
#[derive(Debug)]
struct NoVerification(Arc<CryptoProvider>);

impl ServerCertVerifier for NoVerification {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, tokio_rustls::rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, tokio_rustls::rustls::Error> {
        verify_tls12_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        cert: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, tokio_rustls::rustls::Error> {
        verify_tls13_signature(message, cert, signed, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bundles_name_the_file_when_they_cannot_be_used() {
        let missing = connector(&Trust::Bundle("/nonexistent/ca.pem".into())).err().unwrap().to_string();
        assert!(missing.contains("/nonexistent/ca.pem"), "{missing}");
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), "no certificate here\n").unwrap();
        let empty = connector(&Trust::Bundle(file.path().into())).err().unwrap().to_string();
        assert!(empty.contains("no certificate"), "{empty}");
    }

    #[test]
    fn anyone_needs_no_store() {
        assert!(connector(&Trust::Anyone).is_ok());
    }
}

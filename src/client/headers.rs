//! Names of the headers that carry RDMA requests and replies, in both dialects.

use http::HeaderValue;
use http::header::HeaderName;

use super::{Error, Result};

/// The token, as NVIDIA's and MinIO's clients send it.
pub const RDMA_TOKEN: &str = "x-amz-rdma-token";
/// The reply: a decimal status.
pub const RDMA_REPLY: &str = "x-amz-rdma-reply";
/// How many bytes moved, decimal.
pub const RDMA_BYTES_TRANSFERRED: &str = "x-amz-rdma-bytes-transferred";
/// The token in the legacy dialect.
pub const LEGACY_TOKEN: &str = "x-cuobj-rdma-descr";
/// Size of the transfer in the legacy dialect, decimal, above 0.
pub const LEGACY_SIZE: &str = "x-cuobj-content-length";
/// First byte of the transfer in the client's address space, decimal.
pub const LEGACY_START: &str = "x-cuobj-remote-buf-start";

/// Which set of headers a request carries its token in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Dialect {
    /// One header, `x-amz-rdma-token`.
    #[default]
    Standard,
    /// Three headers, `X-CuObj-RDMA-Descr`, `X-CuObj-Content-Length`, `X-CuObj-Remote-Buf-Start`.
    Legacy,
}

impl Dialect {
    /// The headers that carry `token`, whose transfer of `length` bytes starts at address `start`.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the token holds characters that no header may.
    pub(crate) fn headers(
        self,
        token: &str,
        start: u64,
        length: u64,
    ) -> Result<Vec<(HeaderName, HeaderValue)>> {
        let mut value = HeaderValue::from_str(token)
            .map_err(|_| Error::Invalid { what: "the token is not printable text".into() })?;
        value.set_sensitive(true);
        Ok(match self {
            Self::Standard => vec![(HeaderName::from_static(RDMA_TOKEN), value)],
            Self::Legacy => vec![
                (HeaderName::from_static(LEGACY_TOKEN), value),
                (HeaderName::from_static(LEGACY_SIZE), HeaderValue::from(length)),
                (HeaderName::from_static(LEGACY_START), HeaderValue::from(start)),
            ],
        })
    }
}

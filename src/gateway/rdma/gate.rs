//! Decides, once a request is authenticated and allowed, whether its body goes by RDMA.

use http::{HeaderMap, Uri};
use s3s::S3Result;

use super::Intent;
use super::foreign;
use super::policy::TokenPolicy;
use super::reply;
use super::signed::Signed;
use super::token::TokenHeaders;
use crate::gateway::request::RequestContext;

/// The rules of the house.
#[derive(Clone, Debug)]
pub(crate) struct Gate {
    /// Whether there is an engine.
    pub(crate) enabled: bool,
    /// Where tokens are looked for.
    pub(crate) headers: TokenHeaders,
    /// Whose memory may be touched.
    pub(crate) policy: TokenPolicy,
}

impl Gate {
    /// Reads what a request of operation `operation` asks for. Operations whose body does not go by
    /// RDMA take no notice of tokens.
    ///
    /// # Errors
    /// 400 for a body beside the token and for a malformed token, 403 for an unsigned token or one
    /// that points where it must not, 501 for a PUT when there is no RDMA.
    pub(crate) fn decide(
        &self,
        operation: &str,
        request: &RequestContext,
        uri: &Uri,
        headers: &HeaderMap,
    ) -> S3Result<Option<Intent>> {
        let writes = match operation {
            "PutObject" | "UploadPart" => true,
            "GetObject" => false,
            _ => return Ok(None),
        };
        let Some(found) = self.headers.find(headers) else { return Ok(None) };
        let first = found.names().next().unwrap_or(super::token::TOKEN);
        if writes && request.has_body {
            return Err(reply::body_beside_token(first));
        }
        if !self.policy.allow_unsigned {
            let signed = Signed::of(uri, headers);
            if let Some(name) = found.names().find(|name| !signed.covers(name)) {
                return Err(reply::unsigned(name));
            }
        }
        let foreign = found.is_foreign(headers);
        if foreign || !self.enabled {
            return match (writes, foreign) {
                (false, _) => Ok(Some(Intent::Declined)),
                (true, true) => Err(foreign::declined(
                    "the RDMA token is of a transport that this gateway does not speak",
                )),
                (true, false) => Err(reply::put_declined("this gateway has RDMA switched off")),
            };
        }
        let target = found.read(headers)?;
        self.policy.check(&target, request.peer)?;
        Ok(Some(Intent::Transfer(target)))
    }
}

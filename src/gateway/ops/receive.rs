//! Bringing the body of a PUT in, by whichever carrier, up to its publication.

use std::sync::Arc;

use bytes::Bytes;
use http::HeaderMap;
use s3s::dto::StreamingBlob;
use s3s::{S3ErrorCode, S3Result, TrailingHeaders};

use crate::digest::{Digester, Digests};
use crate::gateway::checksum::Expected;
use crate::gateway::error::{internal, io_error, s3};
use crate::gateway::ingest::{self, BUFFER, Start};
use crate::gateway::rdma::{Target, reply};
use crate::gateway::request::{Carrier, RequestContext};
use crate::gateway::s3::ObjectService;
use crate::store;
use crate::transfer::{BlockSink, RemoteWindow};

/// A new object or part that is open for its bytes.
pub(super) trait Pending: BlockSink + Sized {
    /// What its publication gives.
    type Published: Send + 'static;
    /// Makes it appear with `size` bytes.
    fn publish(self, size: u64, digests: &Digests) -> store::Result<Self::Published>;
}

/// Where the bytes are.
pub(super) enum Source {
    /// In the body of the request, so many.
    Http { body: StreamingBlob, length: u64, waits: bool },
    /// In the client's memory.
    Rdma(Target),
}

/// A request's body and what is said about it.
pub(super) struct Incoming {
    pub(super) source: Source,
    pub(super) expected: Expected,
    pub(super) trailers: Option<TrailingHeaders>,
    pub(super) context: Option<Arc<RequestContext>>,
}

/// A received and published body.
pub(super) struct Received<P> {
    pub(super) published: P,
    pub(super) size: u64,
    pub(super) digests: Digests,
    pub(super) expected: Expected,
    pub(super) by_rdma: bool,
}

impl<P> Received<P> {
    /// Headers that tell an RDMA client what moved; none otherwise.
    pub(super) fn reply_headers(&self) -> HeaderMap {
        if self.by_rdma { reply::transferred(http::StatusCode::OK, self.size) } else { HeaderMap::new() }
    }
}

/// The length that a body must have.
///
/// # Errors
/// `MissingContentLength`: the length of a body is known before it comes, so that one that breaks
/// off is never taken for a whole one.
pub(super) fn stated_length(
    content_length: Option<i64>,
    headers: &HeaderMap,
    context: Option<&RequestContext>,
) -> S3Result<u64> {
    // Of an aws-chunked body, s3s has put the decoded length in place of the framed one.
    let decoded = || {
        let streaming = headers.get("x-amz-content-sha256")?.to_str().ok()?.starts_with("STREAMING-");
        headers.get("x-amz-decoded-content-length").filter(|_| streaming)?.to_str().ok()?.parse().ok()
    };
    match content_length.or_else(decoded) {
        Some(length) => u64::try_from(length)
            .map_err(|_| s3(S3ErrorCode::InvalidArgument, "Content-Length cannot be negative")),
        // A form with an empty file.
        None if context.is_some_and(|c| c.states_length) => Ok(0),
        None => {
            Err(s3(S3ErrorCode::MissingContentLength, "You must provide the Content-Length HTTP header."))
        }
    }
}

impl ObjectService {
    /// Receives a body: `begin` checks all preconditions and opens the target, then the bytes come,
    /// are compared with what the client says of them, and are published.
    ///
    /// # Errors
    /// Whatever goes wrong; then nothing has been published and nothing remains.
    pub(super) async fn receive<T, B>(&self, begin: B, incoming: Incoming) -> S3Result<Received<T::Published>>
    where
        T: Pending,
        B: FnOnce(&store::Store) -> S3Result<T> + Send + 'static,
    {
        let Incoming { source, expected, trailers, context } = incoming;
        let digester = expected.digester(self.etag);
        match source {
            Source::Http { body, length, waits } if length <= BUFFER as u64 && !waits => {
                let Start::Whole(bytes) = ingest::start(body, length).await? else {
                    return Err(internal("a body outgrew its buffer", &length));
                };
                self.receive_whole(begin, bytes, digester, expected, trailers).await
            }
            Source::Http { body, length, .. } => {
                let sink = Arc::new(self.begin(begin).await?);
                let digests = match ingest::start(body, length).await? {
                    Start::Whole(bytes) => self.write_whole(Arc::clone(&sink), bytes, digester).await?,
                    Start::More(first, rest) => {
                        let target = Arc::clone(&sink) as Arc<dyn BlockSink>;
                        rest.write(first, target, digester, &self.blocking).await?
                    }
                };
                expected.verify(&digests, trailers.as_ref())?;
                self.publish(sink, digests, expected, false).await
            }
            Source::Rdma(target) => {
                let sink = Arc::new(self.begin(begin).await?);
                let digests = self.pull(&target, Arc::clone(&sink), digester, context.as_deref()).await?;
                expected.verify(&digests, None)?;
                self.publish(sink, digests, expected, true).await
            }
        }
    }

    async fn begin<T, B>(&self, begin: B) -> S3Result<T>
    where
        T: Pending,
        B: FnOnce(&store::Store) -> S3Result<T> + Send + 'static,
    {
        let store = self.store.clone();
        self.blocking.run(move || begin(&store)).await?
    }

    /// Everything in one visit to a blocking thread: most objects are small.
    async fn receive_whole<T, B>(
        &self,
        begin: B,
        bytes: Bytes,
        mut digester: Digester,
        expected: Expected,
        trailers: Option<TrailingHeaders>,
    ) -> S3Result<Received<T::Published>>
    where
        T: Pending,
        B: FnOnce(&store::Store) -> S3Result<T> + Send + 'static,
    {
        let store = self.store.clone();
        self.blocking
            .run(move || {
                let target = begin(&store)?;
                if !bytes.is_empty() {
                    target.write_at(0, &bytes).map_err(|e| io_error("cannot write an object's data", &e))?;
                }
                digester.update(&bytes);
                let digests = digester.finish();
                expected.verify(&digests, trailers.as_ref())?;
                let size = bytes.len() as u64;
                let published = target.publish(size, &digests)?;
                Ok(Received { published, size, digests, expected, by_rdma: false })
            })
            .await?
    }

    async fn write_whole<T: Pending>(
        &self,
        sink: Arc<T>,
        bytes: Bytes,
        mut digester: Digester,
    ) -> S3Result<Digests> {
        self.blocking
            .run(move || {
                if !bytes.is_empty() {
                    sink.write_at(0, &bytes).map_err(|e| io_error("cannot write an object's data", &e))?;
                }
                digester.update(&bytes);
                Ok(digester.finish())
            })
            .await?
    }

    /// Reads the client's memory into the target.
    async fn pull<T: Pending>(
        &self,
        target: &Target,
        sink: Arc<T>,
        digester: Digester,
        context: Option<&RequestContext>,
    ) -> S3Result<Digests> {
        let length = target.window.size;
        if let Some(context) = context {
            context.outcome().carrier = Carrier::Rdma;
        }
        if length == 0 {
            return Ok(digester.finish());
        }
        let Some(engine) = &self.engine else {
            return Err(reply::put_declined("this gateway has RDMA switched off"));
        };
        let window = RemoteWindow {
            descriptor: Arc::clone(&target.descriptor),
            start: target.window.base,
            length,
            endpoint_hint: context.and_then(|c| c.local),
        };
        let (report, digester) =
            engine.pull(window, sink, digester).await.map_err(|error| reply::failed(&error))?;
        if report.bytes != length {
            return Err(internal("an RDMA transfer ended early", &report.bytes));
        }
        if let Some(context) = context {
            context.outcome().rdma_in = report.bytes;
        }
        Ok(digester.finish())
    }

    async fn publish<T: Pending>(
        &self,
        sink: Arc<T>,
        digests: Digests,
        expected: Expected,
        by_rdma: bool,
    ) -> S3Result<Received<T::Published>> {
        let Some(target) = Arc::into_inner(sink) else {
            return Err(internal("cannot publish", &"something still writes to the object"));
        };
        let size = digests.length;
        self.blocking
            .run(move || {
                let published = target.publish(size, &digests)?;
                Ok(Received { published, size, digests, expected, by_rdma })
            })
            .await?
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case(Some(5), &[] => Ok(5))]
    #[test_case(None, &[] => Err("MissingContentLength".into()))]
    #[test_case(None, &[("x-amz-decoded-content-length", "7"), ("x-amz-content-sha256", "STREAMING-UNSIGNED-PAYLOAD-TRAILER")] => Ok(7))]
    #[test_case(None, &[("x-amz-decoded-content-length", "7"), ("x-amz-content-sha256", "UNSIGNED-PAYLOAD")] => Err("MissingContentLength".into()))]
    #[test_case(Some(-1), &[] => Err("InvalidArgument".into()))]
    fn lengths(content_length: Option<i64>, list: &[(&'static str, &'static str)]) -> Result<u64, String> {
        let headers = list.iter().map(|(n, v)| ((*n).parse().unwrap(), v.parse().unwrap())).collect();
        stated_length(content_length, &headers, None).map_err(|e| e.code().as_str().to_owned())
    }
}

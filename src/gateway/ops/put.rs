//! PutObject.

use std::io;

use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result};

use super::lock::{LockHeaders, with_default};
use super::receive::{Incoming, Pending, Source, stated_length};
use crate::digest::Digests;
use crate::gateway::acl::AclRequest;
use crate::gateway::checksum::{self, Expected, set_checksums};
use crate::gateway::conditions::write_conditions;
use crate::gateway::headers;
use crate::gateway::rdma::Intent;
use crate::gateway::s3::{Extras, ObjectService};
use crate::store::{Checksums, EtagMode, ObjectAttributes, ObjectInfo, PendingObject, PutRequest, Result};
use crate::transfer::BlockSink;

/// A pending object and what it will be published with.
struct NewObject {
    pending: PendingObject,
    attributes: ObjectAttributes,
    mode: EtagMode,
    /// Turns the digests found into what is stored.
    chosen: Option<crate::digest::Algorithm>,
}

impl BlockSink for NewObject {
    fn write_at(&self, offset: u64, data: &[u8]) -> io::Result<()> {
        self.pending.write_at(offset, data)
    }
}

impl Pending for NewObject {
    type Published = ObjectInfo;

    fn publish(self, size: u64, digests: &Digests) -> Result<ObjectInfo> {
        let mut attributes = self.attributes;
        attributes.etag = Some(checksum::etag(self.mode, digests));
        attributes.checksums = Some(checksum::stored(self.chosen, digests));
        self.pending.publish(size, attributes)
    }
}

impl ObjectService {
    /// The ACL that a request gives to a new object.
    pub(super) fn new_object_acl<T>(
        &self,
        req: &S3Request<T>,
        canned: Option<&ObjectCannedACL>,
    ) -> S3Result<Option<Vec<u8>>> {
        let admission = req.admission()?;
        let request = AclRequest::read(&req.headers, canned.map(ObjectCannedACL::as_str))?;
        request.of_new_object(admission.caller(), admission.bucket()?, &self.accounts)
    }

    /// Where the body of a request is.
    pub(super) fn source<T>(
        &self,
        req: &S3Request<T>,
        body: Option<StreamingBlob>,
        content_length: Option<i64>,
    ) -> S3Result<Source> {
        if let Some(Intent::Transfer(target)) = req.extensions.get::<Intent>() {
            return Ok(Source::Rdma(target.clone()));
        }
        let length = stated_length(content_length, &req.headers, req.context().map(|c| &**c))?;
        let body = body.unwrap_or_else(|| StreamingBlob::from(s3s::Body::empty()));
        Ok(Source::Http { body, length, waits: req.headers.contains_key(http::header::EXPECT) })
    }

    /// What the client says of the body's digests.
    pub(super) fn expected<T>(&self, req: &S3Request<T>, source: &Source) -> S3Result<Expected> {
        let expected = Expected::from_headers(&req.headers)?;
        Ok(match source {
            Source::Rdma(_) => expected.for_rdma(&req.headers),
            Source::Http { .. } => expected,
        })
    }

    /// Whether a body of this size is written past the page cache: only page-aligned RDMA chunks are.
    pub(super) fn direct_io(&self, source: &Source) -> bool {
        match (source, self.direct_io_from) {
            (Source::Rdma(target), Some(from)) => target.window.size >= from.max(1),
            _ => false,
        }
    }
}

impl Source {
    /// Size of the body.
    pub(super) fn length(&self) -> u64 {
        match self {
            Self::Http { length, .. } => *length,
            Self::Rdma(target) => target.window.size,
        }
    }
}

pub(crate) async fn put_object(
    service: &ObjectService,
    mut req: S3Request<PutObjectInput>,
) -> S3Result<S3Response<PutObjectOutput>> {
    let (body, mut metadata) = (req.input.body.take(), req.input.metadata.take());
    if let Some(metadata) = &mut metadata {
        metadata.retain(|name, _| !service.token_metadata.iter().any(|t| t.eq_ignore_ascii_case(name)));
    }
    let source = service.source(&req, body, req.input.content_length)?;
    let expected = service.expected(&req, &source)?;
    let mut attributes = headers::attributes(&req.headers, metadata)?;
    attributes.acl = service.new_object_acl(&req, req.input.acl.as_ref())?;
    let lock = LockHeaders::read(&req.headers)?;
    let request = PutRequest {
        size_hint: Some(source.length()),
        conditions: write_conditions(req.input.if_match.take(), req.input.if_none_match.take()),
        direct_io: service.direct_io(&source),
    };
    let context = req.context().cloned();
    let (bucket, key) = (req.input.bucket, req.input.key);
    let (mode, chosen) = (service.etag, expected.chosen());
    let incoming = Incoming { source, expected, trailers: req.trailing_headers, context: context.clone() };
    let received = service
        .receive(
            move |store| {
                let pending = store.begin_put(&bucket, &key, &request)?;
                (attributes.retention, attributes.legal_hold) = with_default(store, &bucket, lock)?;
                Ok(NewObject { pending, attributes, mode, chosen })
            },
            incoming,
        )
        .await?;
    let info = &received.published;
    if let Some(context) = context {
        let mut outcome = context.outcome();
        outcome.object_size = Some(received.size);
        outcome.version.clone_from(&info.version_id);
    }
    let mut output = PutObjectOutput {
        e_tag: Some(headers::etag(&info.etag)),
        size: i64::try_from(received.size).ok(),
        version_id: headers::new_version(info),
        ..Default::default()
    };
    let stored: Checksums = checksum::stored(received.expected.chosen(), &received.digests);
    output.checksum_type = Some(checksum::kind(stored.kind));
    set_checksums!(output, Some(&stored));
    Ok(S3Response::with_headers(output, received.reply_headers()))
}

//! PostObject: a PutObject by a form of a browser.

use s3s::dto::*;
use s3s::{S3Request, S3Response, S3Result};

use super::put::put_object;
use crate::gateway::fields::FormFields;
use crate::gateway::s3::ObjectService;

pub(crate) async fn post_object(
    service: &ObjectService,
    mut req: S3Request<PostObjectInput>,
) -> S3Result<S3Response<PostObjectOutput>> {
    // The headers of the request describe the form, its fields the object.
    req.headers = match req.extensions.get::<FormFields>() {
        Some(fields) => fields.headers()?,
        None => http::HeaderMap::new(),
    };
    let acl = req.headers.get("x-amz-acl").map(|acl| String::from_utf8_lossy(acl.as_bytes()).into_owned());
    let put = req.map_input(|input| PutObjectInput {
        acl: acl.map(ObjectCannedACL::from),
        body: input.body,
        bucket: input.bucket,
        content_length: input.content_length,
        expected_bucket_owner: input.expected_bucket_owner,
        key: input.key,
        metadata: input.metadata,
        ..Default::default()
    });
    let done = put_object(service, put).await?;
    Ok(done.map_output(|put| PostObjectOutput {
        e_tag: put.e_tag,
        version_id: put.version_id,
        ..Default::default()
    }))
}

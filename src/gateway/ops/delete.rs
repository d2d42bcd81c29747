//! DeleteObject and DeleteObjects.

use std::time::SystemTime;

use s3s::dto::*;
use s3s::{S3Error, S3ErrorCode, S3Request, S3Response, S3Result};
use time::OffsetDateTime;

use super::lock::may_bypass;
use crate::gateway::access::{Action, denied};
use crate::gateway::conditions::condition_text;
use crate::gateway::error::s3;
use crate::gateway::s3::{Extras, ObjectService};
use crate::store::{DeleteRequest, WriteConditions};

/// Most keys in one DeleteObjects.
const KEYS: usize = 1000;

fn system_time(time: Timestamp) -> SystemTime {
    OffsetDateTime::from(time).into()
}

fn size(value: Option<i64>) -> S3Result<Option<u64>> {
    value
        .map(|n| u64::try_from(n).map_err(|_| s3(S3ErrorCode::InvalidArgument, "a size cannot be negative")))
        .transpose()
}

pub(crate) async fn delete_object(
    service: &ObjectService,
    req: S3Request<DeleteObjectInput>,
) -> S3Result<S3Response<DeleteObjectOutput>> {
    let context = req.context().cloned();
    let admission = req.admission()?;
    let input = req.input;
    let bypass_governance = may_bypass(&admission, &input.key, input.bypass_governance_retention);
    let conditions = WriteConditions {
        if_match: input.if_match.map(condition_text),
        if_match_size: size(input.if_match_size)?,
        if_match_modified: input.if_match_last_modified_time.map(system_time),
        ..Default::default()
    };
    let (bucket, key) = (input.bucket, input.key);
    let request = DeleteRequest { version: input.version_id, conditions, bypass_governance };
    let deleted = service.on_store(move |store| store.delete_object_with(&bucket, &key, &request)).await?;
    if let Some(context) = context {
        context.outcome().version.clone_from(&deleted.version_id);
    }
    Ok(S3Response::new(DeleteObjectOutput {
        delete_marker: deleted.delete_marker.then_some(true),
        version_id: deleted.version_id,
        request_charged: None,
    }))
}

pub(crate) async fn delete_objects(
    service: &ObjectService,
    req: S3Request<DeleteObjectsInput>,
) -> S3Result<S3Response<DeleteObjectsOutput>> {
    let admission = req.admission()?;
    let input = req.input;
    if !(1..=KEYS).contains(&input.delete.objects.len()) {
        return Err(s3(S3ErrorCode::MalformedXML, "a Delete document names from 1 to 1000 objects"));
    }
    let quiet = input.delete.quiet.unwrap_or(false);
    let bucket = input.bucket;
    let (objects, asked_bypass) = (input.delete.objects, input.bypass_governance_retention);
    let (deleted, errors) = service
        .on_store(move |store| {
            // A bucket that is not there is an error of the request, not of each key.
            store.head_bucket(&bucket)?;
            let (mut deleted, mut errors) = (Vec::new(), Vec::new());
            for object in objects {
                let key = object.key.clone();
                let version = object.version_id.clone();
                let result = size(object.size).and_then(|size| {
                    let action = Action::delete_object(version.is_some());
                    if !admission.allows(action, &key, version.as_deref()) {
                        return Err(denied());
                    }
                    let bypass_governance = may_bypass(&admission, &key, asked_bypass);
                    let conditions = WriteConditions {
                        if_match: object.e_tag.map(ETag::into_value),
                        if_match_size: size,
                        if_match_modified: object.last_modified_time.map(system_time),
                        ..Default::default()
                    };
                    let request = DeleteRequest { version: version.clone(), conditions, bypass_governance };
                    Ok(store.delete_object_with(&bucket, &key, &request)?)
                });
                match result {
                    Ok(done) => deleted.push(DeletedObject {
                        delete_marker: done.delete_marker.then_some(true),
                        delete_marker_version_id: done.version_id.filter(|_| done.delete_marker),
                        key: Some(key),
                        version_id: version,
                    }),
                    Err(error) => errors.push(entry(key, version, &error)),
                }
            }
            Ok((deleted, errors))
        })
        .await?;
    Ok(S3Response::new(DeleteObjectsOutput {
        deleted: Some(deleted).filter(|_| !quiet),
        errors: Some(errors).filter(|e| !e.is_empty()),
        request_charged: None,
    }))
}

fn entry(key: String, version_id: Option<String>, error: &S3Error) -> Error {
    Error {
        code: Some(error.code().as_str().to_owned()),
        key: Some(key),
        message: error.message().map(str::to_owned),
        version_id,
    }
}

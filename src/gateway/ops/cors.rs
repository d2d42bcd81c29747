//! A bucket's rules for cross-origin requests.

use s3s::dto::*;
use s3s::{S3ErrorCode, S3Request, S3Response, S3Result};

use crate::gateway::cors::{ATTRIBUTE, METHODS};
use crate::gateway::error::s3;
use crate::gateway::s3::ObjectService;
use crate::gateway::xml::{from_xml, to_xml};

/// Most rules of a bucket.
const RULES: usize = 100;

fn check(rule: &CORSRule) -> S3Result<()> {
    let refuse = |what: String| Err(s3(S3ErrorCode::InvalidRequest, what));
    if rule.allowed_methods.is_empty() || rule.allowed_origins.is_empty() {
        return Err(s3(S3ErrorCode::MalformedXML, "a rule has an AllowedMethod and an AllowedOrigin"));
    }
    if let Some(method) = rule.allowed_methods.iter().find(|m| !METHODS.contains(&m.as_str())) {
        return refuse(format!(
            "Found unsupported HTTP method in CORS config. Unsupported method is {method}"
        ));
    }
    let twice = |pattern: &&String| pattern.matches('*').count() > 1;
    if let Some(origin) = rule.allowed_origins.iter().find(twice) {
        return refuse(format!("AllowedOrigin \"{origin}\" can not have more than one wildcard."));
    }
    if let Some(header) = rule.allowed_headers.iter().flatten().find(twice) {
        return refuse(format!("AllowedHeader \"{header}\" can not have more than one wildcard."));
    }
    if let Some(header) = rule.expose_headers.iter().flatten().find(|h| h.contains('*')) {
        return refuse(format!(
            "ExposeHeader \"{header}\" contains wildcard. We currently do not support wildcard for ExposeHeader."
        ));
    }
    Ok(())
}

pub(crate) async fn put_bucket_cors(
    service: &ObjectService,
    req: S3Request<PutBucketCorsInput>,
) -> S3Result<S3Response<PutBucketCorsOutput>> {
    let input = req.input;
    let configuration = input.cors_configuration;
    if !(1..=RULES).contains(&configuration.cors_rules.len()) {
        return Err(s3(S3ErrorCode::MalformedXML, "a CORS configuration has from 1 to 100 rules"));
    }
    configuration.cors_rules.iter().try_for_each(check)?;
    let document = to_xml(&configuration)?;
    service
        .on_store(move |store| store.set_bucket_attribute(&input.bucket, ATTRIBUTE, Some(&document)))
        .await?;
    Ok(S3Response::new(PutBucketCorsOutput {}))
}

pub(crate) async fn get_bucket_cors(
    service: &ObjectService,
    req: S3Request<GetBucketCorsInput>,
) -> S3Result<S3Response<GetBucketCorsOutput>> {
    let input = req.input;
    let absent = ("NoSuchCORSConfiguration", "The CORS configuration does not exist");
    let document = service.bucket_configuration(input.bucket, ATTRIBUTE, absent).await?;
    let configuration: CORSConfiguration = from_xml(&document)?;
    Ok(S3Response::new(GetBucketCorsOutput { cors_rules: Some(configuration.cors_rules) }))
}

pub(crate) async fn delete_bucket_cors(
    service: &ObjectService,
    req: S3Request<DeleteBucketCorsInput>,
) -> S3Result<S3Response<DeleteBucketCorsOutput>> {
    let input = req.input;
    service.on_store(move |store| store.set_bucket_attribute(&input.bucket, ATTRIBUTE, None)).await?;
    Ok(S3Response::with_status(DeleteBucketCorsOutput {}, http::StatusCode::NO_CONTENT))
}

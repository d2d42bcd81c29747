//! The S3 operations over the store, as s3s calls them. What is not here answers `NotImplemented`.

use std::sync::Arc;

use s3s::dto::*;
use s3s::{S3, S3ErrorCode, S3Request, S3Response, S3Result};

use super::access::Admission;
use super::account::Accounts;
use super::blocking::Blocking;
use super::config::Ownership;
use super::error::s3_status;
use super::metrics::Metrics;
use super::request::RequestContext;
use crate::store::{EtagMode, Store};
use crate::transfer::Engine;

/// Everything the operations need. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct ObjectService {
    pub(crate) store: Store,
    pub(crate) blocking: Blocking,
    pub(crate) engine: Option<Arc<Engine>>,
    pub(crate) metrics: Arc<Metrics>,
    pub(crate) accounts: Accounts,
    pub(crate) region: String,
    /// Whether somebody applies lifecycle rules.
    pub(crate) applies_lifecycles: bool,
    pub(crate) default_ownership: Ownership,
    pub(crate) etag: EtagMode,
    /// Token headers under their names as metadata, which is not stored.
    pub(crate) token_metadata: Arc<[String]>,
    /// RDMA writes of at least so many bytes bypass the page cache.
    pub(crate) direct_io_from: Option<u64>,
}

impl ObjectService {
    /// Runs a call of the store on a blocking thread; its error becomes S3's.
    pub(crate) async fn on_store<T, F>(&self, call: F) -> S3Result<T>
    where
        T: Send + 'static,
        F: FnOnce(&Store) -> crate::store::Result<T> + Send + 'static,
    {
        let store = self.store.clone();
        Ok(self.blocking.run(move || call(&store)).await??)
    }

    /// What a bucket has as `attribute`.
    ///
    /// # Errors
    /// Where there is none, 404 with the code and the message of `absent`.
    pub(crate) async fn bucket_configuration(
        &self,
        bucket: String,
        attribute: &'static str,
        absent: (&'static str, &'static str),
    ) -> S3Result<Vec<u8>> {
        let stored = self.on_store(move |store| store.bucket_attribute(&bucket, attribute)).await?;
        let (code, message) = absent;
        stored
            .ok_or_else(|| s3_status(S3ErrorCode::Custom(code.into()), http::StatusCode::NOT_FOUND, message))
    }
}

/// What the layers before left in a request's extensions.
pub(crate) trait Extras {
    /// The listener's facts.
    fn context(&self) -> Option<&Arc<RequestContext>>;
    /// Who was let in, and by what facts about the bucket.
    ///
    /// # Errors
    /// `AccessDenied` when nobody was.
    fn admission(&self) -> S3Result<Arc<Admission>>;
}

impl<T> Extras for S3Request<T> {
    fn context(&self) -> Option<&Arc<RequestContext>> {
        RequestContext::of(&self.extensions)
    }

    fn admission(&self) -> S3Result<Arc<Admission>> {
        Admission::of(&self.extensions)
    }
}

/// Passes operations that the door has let in on to the functions of the same name in [`super::ops`].
macro_rules! operations {
    ($($name:ident: $input:ident => $output:ident;)*) => {
        #[async_trait::async_trait]
        impl S3 for ObjectService {
            $(async fn $name(&self, req: S3Request<$input>) -> S3Result<S3Response<$output>> {
                let admission = Admission::of(&req.extensions)?;
                super::ops::$name(self, req).await.map_err(|error| admission.shown(error))
            })*
        }
    };
}

operations! {
    list_buckets: ListBucketsInput => ListBucketsOutput;
    create_bucket: CreateBucketInput => CreateBucketOutput;
    head_bucket: HeadBucketInput => HeadBucketOutput;
    delete_bucket: DeleteBucketInput => DeleteBucketOutput;
    get_bucket_location: GetBucketLocationInput => GetBucketLocationOutput;
    put_object: PutObjectInput => PutObjectOutput;
    post_object: PostObjectInput => PostObjectOutput;
    get_object: GetObjectInput => GetObjectOutput;
    head_object: HeadObjectInput => HeadObjectOutput;
    delete_object: DeleteObjectInput => DeleteObjectOutput;
    delete_objects: DeleteObjectsInput => DeleteObjectsOutput;
    list_objects: ListObjectsInput => ListObjectsOutput;
    list_objects_v2: ListObjectsV2Input => ListObjectsV2Output;
    create_multipart_upload: CreateMultipartUploadInput => CreateMultipartUploadOutput;
    upload_part: UploadPartInput => UploadPartOutput;
    complete_multipart_upload: CompleteMultipartUploadInput => CompleteMultipartUploadOutput;
    abort_multipart_upload: AbortMultipartUploadInput => AbortMultipartUploadOutput;
    list_parts: ListPartsInput => ListPartsOutput;
    list_multipart_uploads: ListMultipartUploadsInput => ListMultipartUploadsOutput;
    copy_object: CopyObjectInput => CopyObjectOutput;
    upload_part_copy: UploadPartCopyInput => UploadPartCopyOutput;
    get_object_attributes: GetObjectAttributesInput => GetObjectAttributesOutput;
    get_object_tagging: GetObjectTaggingInput => GetObjectTaggingOutput;
    put_object_tagging: PutObjectTaggingInput => PutObjectTaggingOutput;
    delete_object_tagging: DeleteObjectTaggingInput => DeleteObjectTaggingOutput;
    get_bucket_tagging: GetBucketTaggingInput => GetBucketTaggingOutput;
    put_bucket_tagging: PutBucketTaggingInput => PutBucketTaggingOutput;
    delete_bucket_tagging: DeleteBucketTaggingInput => DeleteBucketTaggingOutput;
    get_bucket_versioning: GetBucketVersioningInput => GetBucketVersioningOutput;
    put_bucket_versioning: PutBucketVersioningInput => PutBucketVersioningOutput;
    list_object_versions: ListObjectVersionsInput => ListObjectVersionsOutput;
    get_object_lock_configuration: GetObjectLockConfigurationInput => GetObjectLockConfigurationOutput;
    put_object_lock_configuration: PutObjectLockConfigurationInput => PutObjectLockConfigurationOutput;
    get_object_retention: GetObjectRetentionInput => GetObjectRetentionOutput;
    put_object_retention: PutObjectRetentionInput => PutObjectRetentionOutput;
    get_object_legal_hold: GetObjectLegalHoldInput => GetObjectLegalHoldOutput;
    put_object_legal_hold: PutObjectLegalHoldInput => PutObjectLegalHoldOutput;
    get_bucket_acl: GetBucketAclInput => GetBucketAclOutput;
    put_bucket_acl: PutBucketAclInput => PutBucketAclOutput;
    get_object_acl: GetObjectAclInput => GetObjectAclOutput;
    put_object_acl: PutObjectAclInput => PutObjectAclOutput;
    get_bucket_policy: GetBucketPolicyInput => GetBucketPolicyOutput;
    put_bucket_policy: PutBucketPolicyInput => PutBucketPolicyOutput;
    delete_bucket_policy: DeleteBucketPolicyInput => DeleteBucketPolicyOutput;
    get_bucket_policy_status: GetBucketPolicyStatusInput => GetBucketPolicyStatusOutput;
    get_public_access_block: GetPublicAccessBlockInput => GetPublicAccessBlockOutput;
    put_public_access_block: PutPublicAccessBlockInput => PutPublicAccessBlockOutput;
    delete_public_access_block: DeletePublicAccessBlockInput => DeletePublicAccessBlockOutput;
    get_bucket_ownership_controls: GetBucketOwnershipControlsInput => GetBucketOwnershipControlsOutput;
    put_bucket_ownership_controls: PutBucketOwnershipControlsInput => PutBucketOwnershipControlsOutput;
    delete_bucket_ownership_controls: DeleteBucketOwnershipControlsInput => DeleteBucketOwnershipControlsOutput;
    get_bucket_lifecycle_configuration: GetBucketLifecycleConfigurationInput => GetBucketLifecycleConfigurationOutput;
    put_bucket_lifecycle_configuration: PutBucketLifecycleConfigurationInput => PutBucketLifecycleConfigurationOutput;
    delete_bucket_lifecycle: DeleteBucketLifecycleInput => DeleteBucketLifecycleOutput;
    get_bucket_cors: GetBucketCorsInput => GetBucketCorsOutput;
    put_bucket_cors: PutBucketCorsInput => PutBucketCorsOutput;
    delete_bucket_cors: DeleteBucketCorsInput => DeleteBucketCorsOutput;
}

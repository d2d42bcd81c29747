//! The S3 operations over the store, as s3s calls them. What is not here answers `NotImplemented`.

use std::sync::Arc;

use s3s::dto::*;
use s3s::{S3, S3Request, S3Response, S3Result};

use super::account::{Account, Accounts};
use super::blocking::Blocking;
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
    pub(crate) etag: EtagMode,
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
}

/// What the layers before left in a request's extensions.
pub(crate) trait Extras {
    /// The listener's facts.
    fn context(&self) -> Option<&Arc<RequestContext>>;
    /// The caller.
    fn account(&self) -> Option<&Account>;
}

impl<T> Extras for S3Request<T> {
    fn context(&self) -> Option<&Arc<RequestContext>> {
        RequestContext::of(&self.extensions)
    }

    fn account(&self) -> Option<&Account> {
        self.extensions.get()
    }
}

/// Passes operations on to the functions of the same name in [`super::ops`].
macro_rules! operations {
    ($($name:ident: $input:ident => $output:ident;)*) => {
        #[async_trait::async_trait]
        impl S3 for ObjectService {
            $(async fn $name(&self, req: S3Request<$input>) -> S3Result<S3Response<$output>> {
                super::ops::$name(self, req).await
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
}

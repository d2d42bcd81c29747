//! One function for each S3 operation.

mod bucket;
mod delete;
mod get;
mod list;
mod multipart;
mod put;
mod receive;

pub(crate) use bucket::{create_bucket, delete_bucket, get_bucket_location, head_bucket, list_buckets};
pub(crate) use delete::{delete_object, delete_objects};
pub(crate) use get::{get_object, head_object};
pub(crate) use list::{list_objects, list_objects_v2};
pub(crate) use multipart::{
    abort_multipart_upload, complete_multipart_upload, create_multipart_upload, list_multipart_uploads,
    list_parts, upload_part,
};
pub(crate) use put::put_object;

//! One function for each S3 operation.

mod attributes;
mod bucket;
mod copy;
mod cors;
mod delete;
mod get;
mod lifecycle;
mod list;
mod lock;
mod multipart;
mod ownership;
mod permissions;
mod policy;
mod post;
mod public_access;
mod put;
mod receive;
mod tagging;
mod versions;

pub(crate) use attributes::get_object_attributes;
pub(crate) use bucket::{create_bucket, delete_bucket, get_bucket_location, head_bucket, list_buckets};
pub(crate) use copy::{Source, copy_object, read_spaces, upload_part_copy};
pub(crate) use cors::{delete_bucket_cors, get_bucket_cors, put_bucket_cors};
pub(crate) use delete::{delete_object, delete_objects};
pub(crate) use get::{get_object, head_object};
pub(crate) use lifecycle::{
    delete_bucket_lifecycle, get_bucket_lifecycle_configuration, put_bucket_lifecycle_configuration,
};
pub(crate) use list::{list_objects, list_objects_v2};
pub(crate) use lock::{
    get_object_legal_hold, get_object_lock_configuration, get_object_retention, put_object_legal_hold,
    put_object_lock_configuration, put_object_retention,
};
pub(crate) use multipart::{
    abort_multipart_upload, complete_multipart_upload, create_multipart_upload, list_multipart_uploads,
    list_parts, upload_part,
};
pub(crate) use ownership::{
    delete_bucket_ownership_controls, get_bucket_ownership_controls, put_bucket_ownership_controls,
};
pub(crate) use permissions::{get_bucket_acl, get_object_acl, put_bucket_acl, put_object_acl};
pub(crate) use policy::{
    delete_bucket_policy, get_bucket_policy, get_bucket_policy_status, put_bucket_policy,
};
pub(crate) use post::post_object;
pub(crate) use public_access::{
    delete_public_access_block, get_public_access_block, put_public_access_block,
};
pub(crate) use put::put_object;
pub(crate) use tagging::{
    delete_bucket_tagging, delete_object_tagging, get_bucket_tagging, get_object_tagging, put_bucket_tagging,
    put_object_tagging,
};
pub(crate) use versions::{get_bucket_versioning, list_object_versions, put_bucket_versioning};

//! Bucket policies: reading them, and what they say to a request.
//!
//! The language is that of
//! <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_grammar.html>, the evaluation
//! that of <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic.html>.
//! Everything here is pure: a document and the facts of a request give a verdict.

mod actions;
mod condition;
mod document;
mod json;
mod pattern;
mod principal;
mod public;
mod statement;
mod values;

pub(crate) use document::{Malformed, Policy, Question, Verdict};
pub(crate) use principal::Caller;
pub(crate) use values::Values;

/// Most bytes of a policy, as S3 has it.
pub(crate) const MOST_BYTES: usize = 20 << 10;

/// The resource of a bucket.
pub(crate) fn bucket_arn(bucket: &str) -> String {
    format!("arn:aws:s3:::{bucket}")
}

/// The resource of an object.
pub(crate) fn object_arn(bucket: &str, key: &str) -> String {
    format!("arn:aws:s3:::{bucket}/{key}")
}

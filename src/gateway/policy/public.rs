//! Whether a policy is public, as AWS defines it.
//!
//! <https://docs.aws.amazon.com/AmazonS3/latest/userguide/access-control-block-public-access.html#access-control-block-public-access-policy-status>:
//! a policy is taken for public unless every statement that allows something names its principals, or
//! confines requests to fixed values of a key that callers cannot choose.

use super::condition::Condition;
use super::document::Policy;
use super::statement::{Effect, Who};

impl Policy {
    /// Whether it lets everybody in.
    pub(crate) fn is_public(&self) -> bool {
        self.statements.iter().filter(|s| s.effect == Effect::Allow).any(|statement| {
            let everybody = match &statement.who {
                Who::Are(principals) => principals.include_everybody(),
                Who::AreNot(_) => true,
            };
            everybody && !statement.conditions.iter().any(Condition::confines)
        })
    }
}

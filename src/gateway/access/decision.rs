//! The decision itself, of stored facts alone.
//!
//! The order is that of
//! <https://docs.aws.amazon.com/IAM/latest/UserGuide/reference_policies_evaluation-logic_policy-eval-denyallow.html>:
//! an explicit deny, then whatever allows, else a refusal.

use super::action::{Action, On};
use super::facts::{BucketFacts, ObjectFacts};
use crate::gateway::account::{Account, Role};
use crate::gateway::policy::{Caller, Question, Values, Verdict, bucket_arn, object_arn};

/// What is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Decision {
    /// Something allows it.
    Allow,
    /// The policy denies it.
    Denied,
    /// Nothing allows it.
    Refused,
}

/// Who wants to do what to which bucket or key.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case<'a> {
    /// None is somebody anonymous.
    pub(crate) account: Option<&'a Account>,
    pub(crate) bucket: &'a BucketFacts,
    /// The key, for actions on keys and objects.
    pub(crate) key: Option<&'a str>,
    /// The object, when it matters and is there.
    pub(crate) object: Option<&'a ObjectFacts>,
    pub(crate) values: &'a Values,
}

/// The caller as policies and ACLs know it.
pub(crate) fn caller(account: Option<&Account>) -> Caller<'_> {
    account.map_or(Caller::Anonymous, |account| Caller::Account(&account.access))
}

/// Whether the decision about an action may hang on the object.
pub(crate) fn needs_object(action: Action, account: Option<&Account>, bucket: &BucketFacts) -> bool {
    let tags = || bucket.readable_policy().is_some_and(|policy| policy.asks_for_existing_tags());
    let acl = || bucket.ownership.has_acls() && account.is_none_or(|a| a.role != Role::Admin);
    action.on == On::Object && (acl() || tags())
}

/// The owner of a bucket can always look at its policy and replace it, lest it locks itself out.
fn is_way_out(action: Action) -> bool {
    matches!(action.name, "s3:GetBucketPolicy" | "s3:PutBucketPolicy" | "s3:DeleteBucketPolicy")
}

impl Case<'_> {
    /// Decides about one action.
    pub(crate) fn decide(&self, action: Action) -> Decision {
        let bucket = self.bucket;
        let caller = caller(self.account);
        let is_admin = self.account.is_some_and(|account| account.role == Role::Admin);
        let is_owner = caller == Caller::Account(bucket.owner());
        if (is_admin || is_owner) && is_way_out(action) {
            return Decision::Allow;
        }
        let resource = match (action.on, self.key) {
            (On::Key | On::Object, Some(key)) => object_arn(&bucket.name, key),
            _ => bucket_arn(&bucket.name),
        };
        let question = Question { caller, action: action.name, resource: &resource, values: self.values };
        let verdict = match &bucket.policy {
            None => Verdict::Silent,
            Some(Ok(policy)) => policy.verdict(&question),
            Some(Err(error)) => {
                tracing::error!(bucket = bucket.name, %error, "the policy cannot be read: replace it");
                Verdict::Deny
            }
        };
        if verdict == Verdict::Deny {
            return Decision::Denied;
        }
        if is_admin {
            return Decision::Allow;
        }
        // Over the content and ACL of an object that is another account's, neither the bucket's owner
        // nor its policy disposes; over its tags and locks they do.
        let is_about_content = action.on == On::Object && action.acl.is_some();
        let object_owner = self.object.filter(|_| is_about_content).map(|o| o.acl.owner.as_str());
        let disposes = object_owner.is_none_or(|owner| owner == bucket.owner());
        if disposes && is_owner || object_owner.is_some_and(|owner| caller == Caller::Account(owner)) {
            return Decision::Allow;
        }
        let restricted = bucket.blocks.restrict_public_buckets
            && bucket.readable_policy().is_some_and(|policy| policy.is_public());
        if disposes && verdict == Verdict::Allow && !restricted {
            return Decision::Allow;
        }
        if self.acl_allows(action, caller) { Decision::Allow } else { Decision::Refused }
    }

    fn acl_allows(&self, action: Action, caller: Caller<'_>) -> bool {
        let Some(permission) = action.acl.filter(|_| self.bucket.ownership.has_acls()) else { return false };
        let acl = match (action.on, self.object) {
            (On::Object, None) => return false,
            (On::Object, Some(object)) => &object.acl,
            (On::Bucket | On::Key, _) => &self.bucket.acl,
        };
        acl.grants(caller, permission, !self.bucket.blocks.ignore_public_acls)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gateway::account::Accounts;
    use crate::gateway::acl::{Acl, AclRequest};
    use crate::gateway::config::Ownership;
    use crate::gateway::policy::{Malformed, Policy};
    use Decision::{Allow, Denied, Refused};

    fn account(name: &str, role: Role) -> Account {
        Account { access: name.into(), secret: "x".to_owned().into(), role }
    }

    fn acl(canned: &str, owner: &str) -> Acl {
        let bucket = BucketFacts::of("b", "ann", Ownership::ObjectWriter);
        let accounts = Accounts::new("root", "secret", Vec::new());
        let request = AclRequest::read(&http::HeaderMap::new(), Some(canned)).unwrap();
        request.of_existing(owner, &bucket, &accounts).unwrap()
    }

    fn policy(effect: &str, principal: &str, action: &str) -> Option<Result<Policy, Malformed>> {
        let text = format!(
            r#"{{"Statement":[{{"Effect":"{effect}","Principal":{principal},"Action":"{action}","Resource":["arn:aws:s3:::b","arn:aws:s3:::b/*"]}}]}}"#
        );
        Some(Policy::stored(text.as_bytes()))
    }

    fn decide(
        bucket: &BucketFacts,
        object: Option<&ObjectFacts>,
        who: Option<&Account>,
        action: Action,
    ) -> Decision {
        let values = Values::default();
        Case { account: who, bucket, key: Some("k"), object, values: &values }.decide(action)
    }

    fn people() -> (Account, Account, Account) {
        (account("root", Role::Admin), account("ann", Role::UserPlus), account("bob", Role::User))
    }

    const GET: Action = Action::get_object(false);

    #[test]
    fn without_policy_and_acls() {
        let (root, ann, bob) = people();
        let bucket = BucketFacts::of("b", "ann", Ownership::BucketOwnerEnforced);
        for action in [GET, Action::LIST_BUCKET, Action::of("PutObject", false)] {
            assert_eq!(decide(&bucket, None, Some(&root), action), Allow);
            assert_eq!(decide(&bucket, None, Some(&ann), action), Allow);
            assert_eq!(decide(&bucket, None, Some(&bob), action), Refused);
            assert_eq!(decide(&bucket, None, None, action), Refused);
        }
    }

    #[test]
    fn an_explicit_deny_holds_for_all_but_the_way_out() {
        let (root, ann, bob) = people();
        let mut bucket = BucketFacts::of("b", "ann", Ownership::BucketOwnerEnforced);
        bucket.policy = policy("Deny", "\"*\"", "*");
        for who in [Some(&root), Some(&ann), Some(&bob), None] {
            assert_eq!(decide(&bucket, None, who, GET), Denied);
            assert_eq!(decide(&bucket, None, who, Action::of("GetPublicAccessBlock", false)), Denied);
        }
        let out = Action::of("DeleteBucketPolicy", false);
        assert_eq!(decide(&bucket, None, Some(&root), out), Allow);
        assert_eq!(decide(&bucket, None, Some(&ann), out), Allow);
        assert_eq!(decide(&bucket, None, Some(&bob), out), Denied);
        bucket.policy = Some(Policy::stored(b"nonsense"));
        assert_eq!(decide(&bucket, None, Some(&ann), GET), Denied, "what cannot be read may deny");
        assert_eq!(decide(&bucket, None, Some(&ann), out), Allow);
    }

    #[test]
    fn policies_allow() {
        let (_, _, bob) = people();
        let mut bucket = BucketFacts::of("b", "ann", Ownership::BucketOwnerEnforced);
        bucket.policy = policy("Allow", r#"{"AWS":"bob"}"#, "s3:Get*");
        assert_eq!(decide(&bucket, None, Some(&bob), GET), Allow);
        assert_eq!(decide(&bucket, None, Some(&bob), Action::LIST_BUCKET), Refused);
        assert_eq!(decide(&bucket, None, None, GET), Refused);
        bucket.blocks.restrict_public_buckets = true;
        assert_eq!(decide(&bucket, None, Some(&bob), GET), Allow, "the policy is not public");
        bucket.policy = policy("Allow", "\"*\"", "s3:Get*");
        assert_eq!(decide(&bucket, None, Some(&bob), GET), Refused);
        bucket.blocks.restrict_public_buckets = false;
        assert_eq!(decide(&bucket, None, None, GET), Allow);
    }

    #[test]
    fn acls_count_where_ownership_lets_them() {
        let (_, _, bob) = people();
        let mut bucket = BucketFacts::of("b", "ann", Ownership::ObjectWriter);
        bucket.acl = acl("public-read-write", "ann");
        let private = ObjectFacts { acl: Acl::private("ann"), tags: Default::default() };
        let open = ObjectFacts { acl: acl("public-read", "ann"), tags: Default::default() };
        let put = Action::of("PutObject", false);
        assert_eq!(decide(&bucket, None, None, Action::LIST_BUCKET), Allow);
        assert_eq!(decide(&bucket, None, None, put), Allow);
        assert_eq!(decide(&bucket, None, Some(&bob), Action::delete_object(false)), Allow);
        assert_eq!(decide(&bucket, None, Some(&bob), Action::delete_object(true)), Refused);
        assert_eq!(decide(&bucket, Some(&private), Some(&bob), GET), Refused, "the bucket's READ lists");
        assert_eq!(decide(&bucket, Some(&open), None, GET), Allow);
        assert_eq!(decide(&bucket, Some(&open), None, Action::of("GetObjectAcl", false)), Refused);
        bucket.blocks.ignore_public_acls = true;
        assert_eq!(decide(&bucket, Some(&open), None, GET), Refused);
        assert_eq!(decide(&bucket, None, None, put), Refused);
        bucket.blocks.ignore_public_acls = false;
        bucket.ownership = Ownership::BucketOwnerEnforced;
        assert_eq!(decide(&bucket, None, None, put), Refused);
    }

    #[test]
    fn objects_of_others() {
        let (root, ann, bob) = people();
        let mut bucket = BucketFacts::of("b", "ann", Ownership::ObjectWriter);
        bucket.policy = policy("Allow", "\"*\"", "s3:GetObject");
        let bobs = ObjectFacts { acl: Acl::private("bob"), tags: Default::default() };
        assert_eq!(decide(&bucket, Some(&bobs), Some(&bob), GET), Allow);
        assert_eq!(decide(&bucket, Some(&bobs), Some(&ann), GET), Refused);
        assert_eq!(decide(&bucket, Some(&bobs), None, GET), Refused, "ann's policy is not about it");
        assert_eq!(decide(&bucket, Some(&bobs), Some(&ann), Action::delete_object(false)), Allow);
        let tags = Action::get_object_tagging(false);
        assert_eq!(decide(&bucket, Some(&bobs), Some(&ann), tags), Allow);
        assert_eq!(decide(&bucket, Some(&bobs), Some(&bob), tags), Refused);
        assert_eq!(decide(&bucket, Some(&bobs), Some(&root), GET), Allow);
        let shared = ObjectFacts { acl: acl("bucket-owner-read", "bob"), tags: Default::default() };
        assert_eq!(decide(&bucket, Some(&shared), Some(&ann), GET), Allow);
        assert!(needs_object(GET, Some(&ann), &bucket) && !needs_object(GET, Some(&root), &bucket));
        assert!(!needs_object(Action::LIST_BUCKET, Some(&ann), &bucket));
    }
}

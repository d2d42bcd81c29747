//! A gateway with accounts beside root: ann (may make buckets), bob, and eve, an administrator.

use std::os::unix::fs::PermissionsExt;

use http::Method;
use tempfile::TempDir;
use vgwrdma::gateway::config::{Config, Ownership};

use crate::fixture::{TestGateway, TestRequest, engine_config};
use crate::sign::Signer;

/// The gateway and its accounts.
pub(crate) struct People {
    pub(crate) gateway: TestGateway,
    _iam: TempDir,
    _versions: TempDir,
}

fn accounts() -> TempDir {
    let iam = tempfile::tempdir().unwrap();
    let user = |name: &str, role: &str| {
        format!(
            r#""{name}":{{"access":"{name}","secret":"{name}-secret","role":"{role}","userID":0,"groupID":0,"projectID":0}}"#
        )
    };
    let text = format!(
        "{{\"accessAccounts\":{{{},{},{}}}}}",
        user("ann", "userplus"),
        user("bob", "user"),
        user("eve", "admin")
    );
    let file = iam.path().join("users.json");
    std::fs::write(&file, text).unwrap();
    std::fs::set_permissions(&file, std::fs::Permissions::from_mode(0o600)).unwrap();
    iam
}

fn settings<'a>(iam: &'a TempDir, versions: &'a TempDir) -> impl FnOnce(&mut Config) + 'a {
    |config| {
        config.iam_dir = Some(iam.path().to_owned());
        config.store.versioning_dir = Some(versions.path().to_owned());
    }
}

impl People {
    /// With the gateway's own defaults: ACLs do not count.
    pub(crate) async fn new() -> Self {
        Self::with(Ownership::BucketOwnerEnforced).await
    }

    /// With this ownership of objects in new buckets.
    pub(crate) async fn with(ownership: Ownership) -> Self {
        let (iam, versions) = (accounts(), tempfile::tempdir().unwrap());
        let apply = settings(&iam, &versions);
        let change = |config: &mut Config| {
            apply(config);
            config.default_ownership = ownership;
        };
        let gateway = TestGateway::plain_with(change).await;
        Self { gateway, _iam: iam, _versions: versions }
    }

    /// With RDMA, which also takes tokens that no signature covers.
    pub(crate) async fn with_rdma() -> Self {
        let (iam, versions) = (accounts(), tempfile::tempdir().unwrap());
        let apply = settings(&iam, &versions);
        let change = |config: &mut Config| {
            apply(config);
            config.tokens.allow_unsigned = true;
        };
        let gateway = TestGateway::rdma_with(change, engine_config(), |endpoint| endpoint).await;
        Self { gateway, _iam: iam, _versions: versions }
    }

    /// A request of one of them, or of `nobody`.
    pub(crate) fn by(&self, name: &str, method: Method, path: &str) -> TestRequest {
        let request = self.gateway.request(method, path);
        if name == "nobody" {
            return request.anonymous();
        }
        let (access, secret) = (name.to_owned(), format!("{name}-secret"));
        request.signer(Signer { access, secret, ..self.gateway.signer() })
    }

    pub(crate) async fn get(&self, name: &str, path: &str) -> crate::fixture::Answer {
        self.by(name, Method::GET, path).send().await
    }

    pub(crate) async fn put(&self, name: &str, path: &str, body: &str) -> crate::fixture::Answer {
        self.by(name, Method::PUT, path).body(body.to_owned()).send().await
    }

    /// Sets the policy of a bucket of ann's, made of these statements.
    pub(crate) async fn set_policy(&self, bucket: &str, statements: &[&str]) {
        let text = format!("{{\"Version\":\"2012-10-17\",\"Statement\":[{}]}}", statements.join(","));
        let answer = self.put("ann", &format!("/{bucket}?policy"), &text).await;
        assert_eq!(answer.status, 204, "{}", answer.text());
    }
}

//! Who may use the gateway: the root account, and more users from a file.

mod users;

use std::sync::Arc;

use s3s::auth::{S3Auth, SecretKey};
use s3s::{S3ErrorCode, S3Result};

use super::error::s3;
pub(crate) use users::UsersFile;

/// What an account may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Everything; the root account has it.
    Admin,
    /// Use the buckets that belong to it or are granted to it.
    User,
    /// As `User`, and make buckets.
    UserPlus,
}

/// An account.
#[derive(Clone)]
pub struct Account {
    /// Its access key, which is also its name as an owner of buckets.
    pub access: String,
    /// Its secret key.
    pub secret: SecretKey,
    /// Its rights.
    pub role: Role,
}

/// Never shows the secret.
impl std::fmt::Debug for Account {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Account")
            .field("access", &self.access)
            .field("role", &self.role)
            .finish_non_exhaustive()
    }
}

/// A place accounts are looked up in.
pub trait AccountSource: Send + Sync + 'static {
    /// The account of an access key.
    ///
    /// # Errors
    /// When the place cannot be read; then nobody of it gets in.
    fn find(&self, access: &str) -> std::io::Result<Option<Account>>;
}

/// The root account before all, then other sources in their order. Cheap to clone.
#[derive(Clone)]
pub struct Accounts {
    root: Arc<Account>,
    sources: Arc<[Box<dyn AccountSource>]>,
}

impl std::fmt::Debug for Accounts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Accounts")
            .field("root", &self.root)
            .field("sources", &self.sources.len())
            .finish_non_exhaustive()
    }
}

impl Accounts {
    /// A root account and further sources.
    pub fn new(
        access: impl Into<String>,
        secret: impl Into<SecretKey>,
        sources: Vec<Box<dyn AccountSource>>,
    ) -> Self {
        let root = Account { access: access.into(), secret: secret.into(), role: Role::Admin };
        Self { root: Arc::new(root), sources: sources.into() }
    }

    /// Access key of the root account.
    pub fn root(&self) -> &str {
        &self.root.access
    }

    /// The account of an access key.
    ///
    /// # Errors
    /// `InvalidAccessKeyId` for an unknown key, `InternalError` when a source cannot be read.
    pub fn find(&self, access: &str) -> S3Result<Account> {
        if access == self.root.access {
            return Ok(Account::clone(&self.root));
        }
        for source in self.sources.iter() {
            match source.find(access) {
                Ok(Some(account)) => return Ok(account),
                Ok(None) => {}
                Err(error) => return Err(super::error::internal("cannot look up an account", &error)),
            }
        }
        Err(s3(
            S3ErrorCode::InvalidAccessKeyId,
            "The Access Key Id you provided does not exist in our records.",
        ))
    }
}

#[async_trait::async_trait]
impl S3Auth for Accounts {
    async fn get_secret_key(&self, access_key: &str) -> S3Result<SecretKey> {
        self.find(access_key).map(|account| account.secret)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn the_root_account_and_nobody_else() {
        let accounts = Accounts::new("root", "secret", Vec::new());
        assert_eq!(accounts.find("root").unwrap().role, Role::Admin);
        assert_eq!(accounts.get_secret_key("root").await.unwrap().expose(), "secret");
        let error = accounts.get_secret_key("other").await.unwrap_err();
        assert_eq!(*error.code(), S3ErrorCode::InvalidAccessKeyId);
        assert!(!format!("{:?}", accounts.find("root").unwrap()).contains("secret\""));
    }
}

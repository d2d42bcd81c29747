//! Users in `users.json`, as versitygw's internal account store writes it.
//!
//! `{"accessAccounts": {"<access key>": {"access", "secret", "role", "userID", "groupID",
//! "projectID"}}}`, roles `admin`, `user`, `userplus`.

use std::collections::HashMap;
use std::io;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::{Account, AccountSource, Role};

#[derive(serde::Deserialize)]
struct File {
    #[serde(rename = "accessAccounts", default)]
    accounts: HashMap<String, Entry>,
}

#[derive(serde::Deserialize)]
struct Entry {
    access: String,
    secret: String,
    role: String,
}

/// Which state of the file was read: a change of any of these means reading it again.
type Stamp = (u64, u64, i64, i64, u64);

type Accounts = Arc<HashMap<String, Account>>;

/// `users.json` in a directory, read again whenever it has changed.
#[derive(Debug)]
pub(crate) struct UsersFile {
    path: PathBuf,
    read: Mutex<Option<(Stamp, Accounts)>>,
}

impl UsersFile {
    /// The file `users.json` in `directory`; it may not exist yet.
    ///
    /// # Errors
    /// When it exists and is not what it should be, or is readable by others than its owner.
    pub(crate) fn open(directory: &Path) -> io::Result<Self> {
        let file = Self { path: directory.join("users.json"), read: Mutex::default() };
        file.current()?;
        Ok(file)
    }

    fn current(&self) -> io::Result<Accounts> {
        let metadata = match std::fs::metadata(&self.path) {
            Ok(metadata) => metadata,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Arc::default()),
            Err(error) => return Err(error),
        };
        let stamp = (metadata.dev(), metadata.ino(), metadata.mtime(), metadata.mtime_nsec(), metadata.len());
        let mut read = self.read.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((known, accounts)) = &*read
            && *known == stamp
        {
            return Ok(Arc::clone(accounts));
        }
        if metadata.permissions().mode() & 0o077 != 0 {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!("{} holds secrets and is open to others; chmod 600 it", self.path.display()),
            ));
        }
        let accounts = Arc::new(parse(&std::fs::read(&self.path)?)?);
        *read = Some((stamp, Arc::clone(&accounts)));
        Ok(accounts)
    }
}

fn parse(text: &[u8]) -> io::Result<HashMap<String, Account>> {
    // serde_json's texts name line and column and never quote a value of the wrong kind in full,
    // but a secret could be that value, so only the place is passed on.
    let file: File = serde_json::from_slice(text).map_err(|error| {
        io::Error::new(
            io::ErrorKind::InvalidData,
            format!("users.json: malformed at line {} column {}", error.line(), error.column()),
        )
    })?;
    let mut accounts = HashMap::new();
    for entry in file.accounts.into_values() {
        let role = match entry.role.as_str() {
            "admin" => Role::Admin,
            "user" => Role::User,
            "userplus" => Role::UserPlus,
            other => {
                return Err(io::Error::new(
                    io::ErrorKind::InvalidData,
                    format!("users.json: unknown role {other:?} of account {:?}", entry.access),
                ));
            }
        };
        accounts.insert(
            entry.access.clone(),
            Account { access: entry.access, secret: entry.secret.into(), role },
        );
    }
    Ok(accounts)
}

impl AccountSource for UsersFile {
    fn find(&self, access: &str) -> io::Result<Option<Account>> {
        Ok(self.current()?.get(access).cloned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(directory: &Path, text: &str, mode: u32) {
        let path = directory.join("new");
        std::fs::write(&path, text).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        std::fs::rename(path, directory.join("users.json")).unwrap();
    }

    const ONE: &str = r#"{"accessAccounts":{"ann":{"access":"ann","secret":"s1","role":"user","userID":7,"groupID":0,"projectID":0}}}"#;

    #[test]
    fn reads_again_after_a_change() {
        let directory = tempfile::tempdir().unwrap();
        let users = UsersFile::open(directory.path()).unwrap();
        assert!(users.find("ann").unwrap().is_none());
        write(directory.path(), ONE, 0o600);
        assert_eq!(users.find("ann").unwrap().unwrap().role, Role::User);
        write(directory.path(), &ONE.replace("\"user\"", "\"userplus\""), 0o600);
        assert_eq!(users.find("ann").unwrap().unwrap().role, Role::UserPlus);
    }

    #[test]
    fn refuses_open_files_unknown_roles_and_nonsense() {
        let directory = tempfile::tempdir().unwrap();
        write(directory.path(), ONE, 0o644);
        assert!(UsersFile::open(directory.path()).unwrap_err().to_string().contains("chmod 600"));
        write(directory.path(), &ONE.replace("\"user\"", "\"king\""), 0o600);
        assert!(UsersFile::open(directory.path()).unwrap_err().to_string().contains("king"));
        write(directory.path(), "{\"accessAccounts\": 5}", 0o600);
        assert!(UsersFile::open(directory.path()).unwrap_err().to_string().contains("line 1"));
    }
}

//! ETags: stored ones that still hold, and those of files that no gateway wrote.

use std::fs::File;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt as _;

use md5::{Digest as _, Md5};
use rustix::fs::Stat;
use sha2::Sha256;

use super::attributes::{Raw, decode_etag, name, stamp, stamp_holds, stamp_was_copied};
use super::bucket::Bucket;
use super::fs::{born, stat};
use super::inner::Inner;
use super::keeper::Subject;
use super::key::Key;
use super::object::Found;
use super::types::ForeignEtag;

/// The stored ETag, unless the file was edited in place since it was stored.
pub(crate) fn stored(raw: &Raw, stat: &Stat) -> Option<String> {
    let etag = decode_etag(raw.get(name::ETAG)?)?;
    let edited = !super::fs::is_dir(stat) && raw.get(name::STAMP).is_some_and(|s| !stamp_holds(s, stat));
    (!edited).then_some(etag)
}

/// Takes away a stamp that says nothing about this file, since it was copied here with the attributes of
/// the one that it was made of. versitygw makes such copies when it moves versions, and inode numbers are
/// given again.
pub(crate) fn forget_copied_stamp(raw: &mut Raw, stat: &Stat, file: impl AsFd) {
    let Some(value) = raw.get(name::STAMP) else { return };
    if !stamp_holds(value, stat) && born(file).is_some_and(|born| stamp_was_copied(value, stat, born)) {
        raw.remove(name::STAMP);
    }
}

/// An ETag made of inode number, size and modification time. It ends in `-1`, as that of an upload
/// in one part, so that no client takes it for the MD5 of the content.
pub(crate) fn derived(stat: &Stat) -> String {
    format!("{}-1", &hex::encode(Sha256::digest(stamp(stat)))[..32])
}

impl Inner {
    /// Computes and keeps the MD5 of a file without a valid ETag, when that is what is wanted.
    pub(crate) fn ensure_etag(&self, bucket: &Bucket, key: &Key, found: &mut Found) {
        let path = key.path();
        let foreign = stored(&found.raw, &found.stat).is_none();
        if !foreign || found.is_dir() || self.options.foreign_etag == ForeignEtag::Inode {
            return;
        }
        let digest = match md5_of(&found.file, found.stat.st_size) {
            Ok(digest) => format!("\"{digest}\""),
            Err(error) => {
                tracing::warn!(path = bucket.display(path), %error, "the MD5 of a file could not be computed");
                return;
            }
        };
        match stat(&found.file) {
            // Somebody writes to it: the digest is of no moment.
            Ok(now) if stamp(&now) != stamp(&found.stat) => return,
            Ok(_) => {}
            Err(_) => return,
        }
        let mark = stamp(&found.stat);
        if self.writable().is_ok() {
            // What was said of the former content goes first, so that it is never taken for true.
            let subject = Subject::new(&found.file, bucket, path);
            let gone = [(name::CHECKSUMS, None), (name::MULTIPART, None)];
            let here = [(name::ETAG, Some(digest.as_bytes())), (name::STAMP, Some(mark.as_slice()))];
            let kept = (|| {
                let _lock = self.locks.exclusive(&self.fs, &self.owner, bucket, key.as_str())?;
                self.keeper.update(self.means(), subject, &gone)?;
                self.keeper.update(self.means(), subject, &here)
            })();
            if let Err(error) = kept {
                tracing::debug!(path = bucket.display(path), %error, "the computed ETag is not kept");
            }
        }
        found.raw.remove(name::CHECKSUMS);
        found.raw.remove(name::MULTIPART);
        found.raw.insert(name::ETAG.to_owned(), digest.into_bytes());
        found.raw.insert(name::STAMP.to_owned(), mark);
    }
}

fn md5_of(file: &File, size: i64) -> std::io::Result<String> {
    let size = u64::try_from(size).unwrap_or(0);
    let mut buffer = vec![0; 1 << 20];
    let mut digest = Md5::new();
    let mut at = 0;
    while at < size {
        let step = buffer.len().min(usize::try_from(size - at).unwrap_or(buffer.len()));
        file.read_exact_at(&mut buffer[..step], at)?;
        digest.update(&buffer[..step]);
        at += step as u64;
    }
    Ok(hex::encode(digest.finalize()))
}

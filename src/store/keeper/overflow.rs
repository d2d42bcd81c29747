//! The overflow file: attributes that do not fit beside the inode.
//!
//! ext4 keeps about 4 KiB of attributes per inode; a part list, a policy or an ACL can be longer.
//! Such values go, as JSON, into `.sgwtmp/overflow/<random id>` of the bucket, written before the
//! attribute `vgwrdma.overflow` with that id, which makes them valid in one step. Gateways that do
//! not know it see the object without these attributes and leave the file alone.

use std::collections::BTreeMap;
use std::io::Read as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::super::attributes::{Raw, name, to_json};
use super::super::bucket::Bucket;
use super::super::error::{Error, Result};
use super::super::fs::{READ, random_name};
use super::super::key::TEMP_DIR;
use super::{Means, Subject, failed};

/// Its directory below `.sgwtmp`.
pub(crate) const OVERFLOW_DIR: &str = "overflow";

/// The file's form; `path` tells a sweep who should refer to it.
#[derive(Serialize, Deserialize)]
pub(crate) struct Form {
    pub(crate) path: String,
    pub(crate) attributes: BTreeMap<String, String>,
}

impl Form {
    pub(crate) fn new(path: &str, raw: &Raw) -> Self {
        let attributes = raw.iter().map(|(name, value)| (name.clone(), STANDARD.encode(value))).collect();
        Self { path: path.to_owned(), attributes }
    }

    pub(crate) fn into_raw(self) -> Raw {
        let values = self.attributes.into_iter();
        values.filter_map(|(name, value)| Some((name, STANDARD.decode(value).ok()?))).collect()
    }
}

/// Whether the file system says that the attributes of this inode are full.
fn is_full(error: Errno) -> bool {
    matches!(error, Errno::NOSPC | Errno::TOOBIG | Errno::RANGE | Errno::DQUOT | Errno::OVERFLOW)
}

/// The attributes kept there; none when the file is gone.
pub(super) fn read(subject: Subject<'_>, id: &[u8]) -> Result<Option<Raw>> {
    let id = String::from_utf8_lossy(id);
    let file = match open(subject.bucket, &id) {
        Err(Errno::NOENT) => return Ok(None),
        other => other.map_err(|error| failed("open the overflow file of", subject, error))?,
    };
    let mut json = Vec::new();
    std::fs::File::from(file)
        .read_to_end(&mut json)
        .map_err(|e| Error::io("read the overflow file of", &subject.bucket.display(subject.path), e))?;
    let form: Form = serde_json::from_slice(&json).map_err(|e| {
        Error::io(
            "read the overflow file of",
            &subject.bucket.display(subject.path),
            std::io::Error::other(e),
        )
    })?;
    Ok(Some(form.into_raw()))
}

/// Opens an overflow file by its id, which comes from an attribute that a user of the file system
/// may have set to anything.
pub(crate) fn open(bucket: &Bucket, id: &str) -> Result<std::os::fd::OwnedFd, Errno> {
    if id.is_empty() || !id.bytes().all(|b| b.is_ascii_hexdigit()) {
        return Err(Errno::INVAL);
    }
    bucket.open(&format!("{TEMP_DIR}/{OVERFLOW_DIR}/{id}"), READ)
}

pub(super) fn remove(means: Means<'_>, subject: Subject<'_>, id: &[u8]) {
    let id = String::from_utf8_lossy(id);
    if open(subject.bucket, &id).is_ok()
        && let Ok(dir) = subject.bucket.open(&format!("{TEMP_DIR}/{OVERFLOW_DIR}"), super::super::fs::DIR)
    {
        let _ = means.fs.unlink(dir, &id);
    }
}

/// Writes an overflow file and returns its id.
fn create(means: Means<'_>, subject: Subject<'_>, raw: &Raw) -> Result<String> {
    let fail = |error| failed("write the overflow file of", subject, error);
    let path = format!("{TEMP_DIR}/{OVERFLOW_DIR}");
    let dir =
        means.fs.make_dirs_durably(subject.bucket.dir(), &path, means.owner, means.sync).map_err(fail)?;
    let id = random_name();
    let json = to_json(&Form::new(subject.path, raw));
    means.fs.write_small(dir, &id, &json, means.owner, means.sync).map_err(fail)?;
    Ok(id)
}

pub(super) fn write_new(means: Means<'_>, subject: Subject<'_>, raw: &Raw) -> Result<()> {
    let fail = |error| failed("set the attributes of", subject, error);
    // The small ones first: those that every reader needs are small.
    let mut order: Vec<(&String, &Vec<u8>)> = raw.iter().collect();
    order.sort_by_key(|(name, value)| (name.as_str() != name::ETAG, value.len()));
    let mut set = 0;
    while set < order.len() {
        match means.fs.set_attribute(subject.file, order[set].0, order[set].1) {
            Ok(()) => set += 1,
            Err(error) if is_full(error) => break,
            Err(error) => return Err(fail(error)),
        }
    }
    if set == order.len() {
        return Ok(());
    }
    // Make room for the reference, from the largest down.
    loop {
        let rest: Raw =
            order[set..].iter().map(|(name, value)| ((*name).clone(), (*value).clone())).collect();
        let id = create(means, subject, &rest)?;
        match means.fs.set_attribute(subject.file, name::OVERFLOW, id.as_bytes()) {
            Ok(()) => return Ok(()),
            Err(error) => {
                remove(means, subject, id.as_bytes());
                if !is_full(error) || set == 0 {
                    return Err(fail(error));
                }
            }
        }
        set -= 1;
        means.fs.remove_attribute(subject.file, order[set].0).map_err(fail)?;
    }
}

pub(super) fn update(
    means: Means<'_>,
    subject: Subject<'_>,
    changes: &[(&str, Option<&[u8]>)],
) -> Result<()> {
    let fail = |error| failed("set an attribute of", subject, error);
    let old_id = means.fs.attribute(subject.file, name::OVERFLOW).map_err(fail)?;
    let mut outside = match &old_id {
        Some(id) => read(subject, id)?.unwrap_or_default(),
        None => Raw::new(),
    };
    let before = outside.clone();
    let mut inside: Vec<&str> = Vec::new();
    for &(name, value) in changes {
        match value {
            None => {
                outside.remove(name);
                inside.push(name);
            }
            Some(value) if outside.contains_key(name) => {
                outside.insert(name.to_owned(), value.to_vec());
            }
            Some(value) => match means.fs.set_attribute(subject.file, name, value) {
                Ok(()) => {}
                Err(error) if is_full(error) => {
                    outside.insert(name.to_owned(), value.to_vec());
                    inside.push(name);
                }
                Err(error) => return Err(fail(error)),
            },
        }
    }
    if outside != before {
        if outside.is_empty() {
            means.fs.remove_attribute(subject.file, name::OVERFLOW).map_err(fail)?;
        } else {
            refer(means, subject, &mut outside)?;
        }
        if let Some(id) = old_id {
            remove(means, subject, &id);
        }
    }
    for name in inside {
        means.fs.remove_attribute(subject.file, name).map_err(fail)?;
    }
    Ok(())
}

/// Writes a new overflow file and points to it, moving more attributes out when even the reference
/// finds no room.
fn refer(means: Means<'_>, subject: Subject<'_>, outside: &mut Raw) -> Result<()> {
    let fail = |error| failed("set an attribute of", subject, error);
    loop {
        let id = create(means, subject, outside)?;
        match means.fs.set_attribute(subject.file, name::OVERFLOW, id.as_bytes()) {
            Ok(()) => return Ok(()),
            Err(error) => {
                remove(means, subject, id.as_bytes());
                if !is_full(error) {
                    return Err(fail(error));
                }
                let mut largest: Option<(String, Vec<u8>)> = None;
                for name in means.fs.attribute_names(subject.file).map_err(fail)? {
                    if name == name::OVERFLOW || name == name::ETAG {
                        continue;
                    }
                    if let Some(value) = means.fs.attribute(subject.file, &name).map_err(fail)?
                        && largest.as_ref().is_none_or(|(_, v)| v.len() < value.len())
                    {
                        largest = Some((name, value));
                    }
                }
                let Some((name, value)) = largest else { return Err(fail(error)) };
                means.fs.remove_attribute(subject.file, &name).map_err(fail)?;
                outside.entry(name).or_insert(value);
            }
        }
    }
}

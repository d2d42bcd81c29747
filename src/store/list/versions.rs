//! Listing of versions and delete markers.

use super::super::error::Result;
use super::super::inner::Inner;
use super::super::key::{Key, successor};
use super::super::object::{Found, Slot};
use super::super::types::{ListVersionsRequest, ListedVersion, VersionPage};
use super::super::ulid::Ulid;
use super::walk::{Step, Walk};
use super::{RollUp, listed};

impl Inner {
    pub(crate) fn list_versions(&self, bucket: &str, request: &ListVersionsRequest) -> Result<VersionPage> {
        let bucket = self.bucket(bucket)?;
        let roll_up = RollUp::new(&request.prefix, request.delimiter.as_deref());
        let mut page = VersionPage::default();
        let key_marker = request.key_marker.as_deref().filter(|key| !key.is_empty());
        let version_marker =
            request.version_marker.as_deref().filter(|id| !id.is_empty() && key_marker.is_some());
        let start = match (key_marker, version_marker) {
            // More versions of the same key may follow.
            (Some(key), Some(_)) if roll_up.common(key).is_none() => {
                Some(key.as_bytes().max(request.prefix.as_bytes()).to_vec())
            }
            _ => roll_up.start(key_marker),
        };
        let Some(start) = start else { return Ok(page) };
        if request.max_keys == 0 {
            return Ok(page);
        }
        let mut walk = Walk::new(self, &bucket, &request.prefix, start)?;
        let mut last = (String::new(), String::new());
        while let Some(step) = walk.next()? {
            let (key, is_dir) = match &step {
                Step::Dir(key) => (key, true),
                Step::File(key) => (key, false),
            };
            let count = |page: &VersionPage| page.versions.len() + page.common_prefixes.len();
            if let Some(common) = roll_up.common(key) {
                let common = common.to_owned();
                let listed = if is_dir {
                    self.holds(&bucket, key, true)?
                } else {
                    matches!(self.slot(&bucket, &Key::parse(key)?)?, Slot::File(_))
                };
                if !listed {
                    if is_dir {
                        walk.skip();
                    }
                    continue;
                }
                if count(&page) == request.max_keys {
                    page.next = Some(last);
                    return Ok(page);
                }
                match successor(common.as_bytes()) {
                    Some(next) => walk.seek(next),
                    None => return Ok(page),
                }
                last = (common.clone(), String::new());
                page.common_prefixes.push(common);
                continue;
            }
            let key = key.clone();
            let mut versions = if is_dir {
                walk.directory_object(&key)?.map(|object| vec![of_directory(object)]).unwrap_or_default()
            } else {
                self.versions_of_key(&bucket, &key)?
            };
            if key_marker == Some(key.as_str()) {
                skip_to(&mut versions, version_marker);
            }
            for version in versions {
                if count(&page) == request.max_keys {
                    page.next = Some(last);
                    return Ok(page);
                }
                last = (version.key.clone(), version.version_id.clone());
                page.versions.push(version);
            }
        }
        Ok(page)
    }

    /// All versions of a key, from the newest.
    fn versions_of_key(&self, bucket: &super::Bucket, key: &str) -> Result<Vec<ListedVersion>> {
        let parsed = Key::parse(key)?;
        // A delete may move a version back while the others are read; then look again.
        for _ in 0..4 {
            let Slot::File(current) = self.slot(bucket, &parsed)? else { return Ok(Vec::new()) };
            let id = current.version_id();
            let older = self.older_versions(bucket, &parsed, Some(&id))?;
            let unchanged =
                matches!(self.slot(bucket, &parsed)?, Slot::File(now) if now.is_same(&current.stat));
            if !unchanged {
                continue;
            }
            let mut all = vec![of(key, id, &current, true)];
            all.extend(older.into_iter().map(|v| of(key, v.id, &v.found, false)));
            return Ok(all);
        }
        let Slot::File(current) = self.slot(bucket, &parsed)? else { return Ok(Vec::new()) };
        let id = current.version_id();
        let mut all = vec![of(key, id.clone(), &current, true)];
        let older = self.older_versions(bucket, &parsed, Some(&id))?;
        all.extend(older.into_iter().map(|v| of(key, v.id, &v.found, false)));
        Ok(all)
    }
}

fn of(key: &str, version_id: String, found: &Found, is_latest: bool) -> ListedVersion {
    let object = listed(key, found);
    ListedVersion {
        key: object.key,
        version_id,
        is_latest,
        delete_marker: found.is_marker(),
        size: object.size,
        modified: object.modified,
        etag: object.etag,
        checksum_algorithm: object.checksum_algorithm,
        checksum_type: object.checksum_type,
        acl: object.acl,
    }
}

/// A directory object has one version only.
fn of_directory(object: super::ListedObject) -> ListedVersion {
    ListedVersion {
        key: object.key,
        version_id: super::super::versions::NULL.to_owned(),
        is_latest: true,
        delete_marker: false,
        size: 0,
        modified: object.modified,
        etag: object.etag,
        checksum_algorithm: object.checksum_algorithm,
        checksum_type: object.checksum_type,
        acl: object.acl,
    }
}

/// Drops the versions up to a marker, which may be gone by now.
fn skip_to(versions: &mut Vec<ListedVersion>, marker: Option<&str>) {
    let Some(marker) = marker else {
        versions.clear();
        return;
    };
    if let Some(at) = versions.iter().position(|v| v.version_id == marker) {
        versions.drain(..=at);
    } else if let Some(marker) = Ulid::parse(marker) {
        versions.retain(|v| position(v) < marker);
    }
}

fn position(version: &ListedVersion) -> Ulid {
    Ulid::parse(&version.version_id).unwrap_or_else(|| {
        let time = version.modified.duration_since(std::time::UNIX_EPOCH).map_or(0, |d| d.as_millis());
        Ulid::at(u64::try_from(time).unwrap_or(0), u128::MAX)
    })
}

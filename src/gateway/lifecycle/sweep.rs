//! Applying the rules of all buckets.
//!
//! Every removal is of what was looked at: an object that is overwritten between listing and removal
//! has another time and stays. Locked versions stay.

use std::sync::atomic::{AtomicBool, Ordering};

use s3s::dto::{BucketLifecycleConfiguration, ExpirationStatus, LifecycleRule};
use time::OffsetDateTime;

use super::{ATTRIBUTE, Filter, due};
use crate::gateway::xml::from_xml;
use crate::store::{
    self, DeleteRequest, ListRequest, ListVersionsRequest, ListedVersion, Store, Versioning, WriteConditions,
};

/// Entries looked at before it is asked again whether to stop.
const PAGE: usize = 1000;

/// What a sweep removed.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Removed {
    /// Current versions that expired.
    pub(crate) objects: u64,
    /// Older versions.
    pub(crate) versions: u64,
    /// Delete markers with nothing below them.
    pub(crate) markers: u64,
    /// Uploads.
    pub(crate) uploads: u64,
    /// What should have gone and did not.
    pub(crate) failed: u64,
}

/// A rule and what it is about.
struct Rule {
    filter: Filter,
    rule: LifecycleRule,
}

impl Rule {
    /// Whether a current version, or a lone marker, of that time has expired.
    fn expires(&self, modified: std::time::SystemTime, now: OffsetDateTime) -> bool {
        let Some(expiration) = &self.rule.expiration else { return false };
        let date = expiration.date.clone().map(OffsetDateTime::from);
        date.is_some_and(|date| now >= date) || expiration.days.is_some_and(|days| now >= due(modified, days))
    }

    fn drops_lone_marker(&self, marker: &ListedVersion, now: OffsetDateTime) -> bool {
        let expiration = self.rule.expiration.as_ref();
        self.filter.is_by_name()
            && self.filter.takes(&marker.key, 0)
            && (expiration.is_some_and(|e| e.expired_object_delete_marker == Some(true))
                || self.expires(marker.modified, now))
    }

    /// Whether a version has been an older one for long enough; `newer` older ones came after it.
    fn drops_noncurrent(&self, since: std::time::SystemTime, newer: usize, now: OffsetDateTime) -> bool {
        let Some(noncurrent) = &self.rule.noncurrent_version_expiration else { return false };
        let kept = noncurrent.newer_noncurrent_versions.and_then(|n| usize::try_from(n).ok()).unwrap_or(0);
        newer >= kept && noncurrent.noncurrent_days.is_some_and(|days| now >= due(since, days))
    }
}

/// One bucket in the works.
struct Sweep<'a> {
    store: &'a Store,
    bucket: &'a str,
    rules: Vec<Rule>,
    now: OffsetDateTime,
    stopped: &'a AtomicBool,
    removed: &'a mut Removed,
}

/// Applies the rules of all buckets as of `now`, until `stopped`. Blocks.
pub(crate) fn sweep(store: &Store, now: OffsetDateTime, stopped: &AtomicBool) -> Removed {
    let mut removed = Removed::default();
    let buckets = store.list_buckets().unwrap_or_else(|error| {
        tracing::error!(%error, "cannot apply lifecycle rules");
        Vec::new()
    });
    for bucket in buckets {
        let bucket = bucket.name.as_str();
        let rules = match rules(store, bucket) {
            Ok(rules) if rules.is_empty() => continue,
            Ok(rules) => rules,
            Err(error) => {
                tracing::error!(bucket, error, "cannot read the lifecycle rules");
                continue;
            }
        };
        let mut sweep = Sweep { store, bucket, rules, now, stopped, removed: &mut removed };
        if let Err(error) = sweep.run() {
            tracing::error!(bucket, %error, "cannot apply the lifecycle rules");
        }
    }
    removed
}

fn rules(store: &Store, bucket: &str) -> Result<Vec<Rule>, String> {
    let document = store.bucket_attribute(bucket, ATTRIBUTE).map_err(|e| e.to_string())?;
    let Some(document) = document else { return Ok(Vec::new()) };
    let configuration: BucketLifecycleConfiguration = from_xml(&document).map_err(|e| e.to_string())?;
    let enabled = configuration.rules.into_iter().filter(|r| r.status.as_str() == ExpirationStatus::ENABLED);
    Ok(enabled.map(|rule| Rule { filter: Filter::of(&rule), rule }).collect())
}

impl Sweep<'_> {
    fn run(&mut self) -> store::Result<()> {
        if self.store.versioning(self.bucket)? == Versioning::Off {
            self.objects()?;
        } else {
            self.versions()?;
        }
        self.uploads()
    }

    fn stops(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    /// Whether an object has the tags that some of the rules in question want.
    fn is_taken(&self, key: &str, version: Option<&str>, size: u64, due: impl Fn(&Rule) -> bool) -> bool {
        let mut rules = self.rules.iter().filter(|r| r.filter.takes(key, size) && due(r)).peekable();
        if rules.peek().is_none() {
            return false;
        }
        let mut tags = None;
        rules.any(|rule| {
            rule.filter.tags.is_empty() || {
                let tags = tags.get_or_insert_with(|| {
                    let info = self.store.head_object(self.bucket, key, version);
                    info.map(|info| info.attributes.tags).unwrap_or_default()
                });
                rule.filter.tags.iter().all(|(name, value)| tags.get(name) == Some(value))
            }
        })
    }

    fn delete(&mut self, key: &str, request: &DeleteRequest) -> bool {
        match self.store.delete_object_with(self.bucket, key, request) {
            Ok(_) => {
                tracing::debug!(bucket = self.bucket, key, version = request.version, "expired");
                true
            }
            // It changed meanwhile, or may not go yet.
            Err(
                store::Error::PreconditionFailed(_) | store::Error::NoSuchKey(_) | store::Error::Denied(_),
            ) => false,
            Err(error) => {
                tracing::warn!(bucket = self.bucket, key, %error, "cannot remove what has expired");
                self.removed.failed += 1;
                false
            }
        }
    }

    fn expire(&mut self, key: &str, size: u64, modified: std::time::SystemTime) {
        let conditions = WriteConditions {
            if_match_size: Some(size),
            if_match_modified: Some(modified),
            ..Default::default()
        };
        if self.delete(key, &DeleteRequest { conditions, ..Default::default() }) {
            self.removed.objects += 1;
        }
    }

    fn objects(&mut self) -> store::Result<()> {
        let mut request = ListRequest { max_keys: PAGE, ..Default::default() };
        loop {
            let page = self.store.list_objects(self.bucket, &request)?;
            for object in page.objects {
                let (size, modified) = (object.size, object.modified);
                if self.is_taken(&object.key, None, size, |rule| rule.expires(modified, self.now)) {
                    self.expire(&object.key, size, modified);
                }
            }
            request.start_after = page.next;
            if request.start_after.is_none() || self.stops() {
                return Ok(());
            }
        }
    }

    fn versions(&mut self) -> store::Result<()> {
        let mut request = ListVersionsRequest { max_keys: PAGE, ..Default::default() };
        // The versions of the key that is listed at the moment.
        let mut stack: Vec<ListedVersion> = Vec::new();
        loop {
            let page = self.store.list_versions(self.bucket, &request)?;
            for version in page.versions {
                if stack.first().is_some_and(|newest| newest.key != version.key) {
                    let whole = std::mem::take(&mut stack);
                    self.key(&whole);
                }
                stack.push(version);
            }
            let Some((key, version)) = page.next else { break };
            request.key_marker = Some(key);
            request.version_marker = Some(version).filter(|v| !v.is_empty());
            if self.stops() {
                return Ok(());
            }
        }
        self.key(&stack);
        Ok(())
    }

    /// All versions of a key, from the newest.
    fn key(&mut self, versions: &[ListedVersion]) {
        let Some(newest) = versions.first() else { return };
        if newest.is_latest && !newest.delete_marker {
            let (size, modified) = (newest.size, newest.modified);
            if self.is_taken(&newest.key, None, size, |rule| rule.expires(modified, self.now)) {
                self.expire(&newest.key, size, modified);
            }
        }
        let mut left = versions.len();
        let current = usize::from(newest.is_latest);
        for (at, version) in versions.iter().enumerate().skip(current) {
            // It is an older one since the next newer came.
            let since = versions[at.saturating_sub(1)].modified;
            let newer = at - current;
            let is_due = |rule: &Rule| {
                rule.drops_noncurrent(since, newer, self.now)
                    && (!version.delete_marker || rule.filter.is_by_name())
            };
            let size = if version.delete_marker { 0 } else { version.size };
            if self.is_taken(&version.key, Some(&version.version_id), size, is_due)
                && self.delete_version(version)
            {
                self.removed.versions += 1;
                left -= 1;
            }
        }
        let lone = newest.is_latest && newest.delete_marker && left == 1;
        if lone
            && self.rules.iter().any(|rule| rule.drops_lone_marker(newest, self.now))
            && self.delete_version(newest)
        {
            self.removed.markers += 1;
        }
    }

    fn delete_version(&mut self, version: &ListedVersion) -> bool {
        let id = Some(version.version_id.clone());
        self.delete(&version.key, &DeleteRequest { version: id, ..Default::default() })
    }

    fn uploads(&mut self) -> store::Result<()> {
        let limit = |rule: &Rule| {
            rule.rule.abort_incomplete_multipart_upload.as_ref().and_then(|a| a.days_after_initiation)
        };
        if self.rules.iter().all(|rule| limit(rule).is_none()) {
            return Ok(());
        }
        let mut request = ListRequest { max_keys: PAGE, ..Default::default() };
        loop {
            let page = self.store.list_uploads(self.bucket, &request)?;
            for upload in page.uploads {
                let is_due = self.rules.iter().any(|rule| {
                    upload.key.starts_with(&rule.filter.prefix)
                        && limit(rule).is_some_and(|days| self.now >= due(upload.initiated, days))
                });
                if is_due && self.store.abort_upload(self.bucket, &upload.key, &upload.upload_id).is_ok() {
                    self.removed.uploads += 1;
                }
            }
            let Some((key, id)) = page.next else { return Ok(()) };
            (request.start_after, request.upload_id_marker) = (Some(key), Some(id).filter(|i| !i.is_empty()));
            if self.stops() {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::store::{CreateUpload, Durability, LockMode, ObjectAttributes, PutRequest, StoreOptions};

    const BUCKET: &str = "bucket";

    struct Place {
        store: Store,
        _directories: [tempfile::TempDir; 2],
    }

    impl Place {
        fn new(rules: &str, versioning: Versioning) -> Self {
            let directories = [tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap()];
            let options = StoreOptions {
                durability: Durability::None,
                lock_mode: LockMode::Process,
                versioning_dir: Some(directories[1].path().to_owned()),
                ..Default::default()
            };
            let store = Store::open(directories[0].path(), options).unwrap();
            store.create_bucket(BUCKET, &BTreeMap::new()).unwrap();
            if versioning != Versioning::Off {
                store.set_versioning(BUCKET, versioning).unwrap();
            }
            let document = format!("<LifecycleConfiguration>{rules}</LifecycleConfiguration>");
            store.set_bucket_attribute(BUCKET, ATTRIBUTE, Some(document.as_bytes())).unwrap();
            Self { store, _directories: directories }
        }

        fn put(&self, key: &str, data: &[u8], tags: &[(&str, &str)]) {
            let pending = self.store.begin_put(BUCKET, key, &PutRequest::default()).unwrap();
            pending.write_at(0, data).unwrap();
            let tags = tags.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect();
            let attributes = ObjectAttributes { etag: Some("e".into()), tags, ..Default::default() };
            pending.publish(data.len() as u64, attributes).unwrap();
        }

        fn delete(&self, key: &str) {
            self.store.delete_object(BUCKET, key, None, &WriteConditions::default()).unwrap();
        }

        /// Applies the rules as they will be in so many days.
        fn after(&self, days: i64) -> Removed {
            let now = OffsetDateTime::now_utc() + time::Duration::days(days);
            sweep(&self.store, now, &AtomicBool::new(false))
        }

        fn keys(&self) -> Vec<String> {
            let request = ListRequest { max_keys: 100, ..Default::default() };
            let page = self.store.list_objects(BUCKET, &request).unwrap();
            page.objects.into_iter().map(|o| o.key).collect()
        }

        fn versions(&self) -> usize {
            let request = ListVersionsRequest { max_keys: 100, ..Default::default() };
            self.store.list_versions(BUCKET, &request).unwrap().versions.len()
        }
    }

    fn rule(filter: &str, action: &str) -> String {
        format!("<Rule><Status>Enabled</Status><Filter>{filter}</Filter>{action}</Rule>")
    }

    const TWO_DAYS: &str = "<Expiration><Days>2</Days></Expiration>";

    #[test]
    fn objects_expire_by_prefix_tag_and_size() {
        let tag = "<Tag><Key>keep</Key><Value>no</Value></Tag>";
        let rules = [
            rule("<Prefix>logs/</Prefix>", TWO_DAYS),
            rule(tag, TWO_DAYS),
            rule("<ObjectSizeGreaterThan>5</ObjectSizeGreaterThan>", TWO_DAYS),
        ];
        let place = Place::new(&rules.concat(), Versioning::Off);
        place.put("logs/a", b"1", &[]);
        place.put("tagged", b"1", &[("keep", "no")]);
        place.put("other-tag", b"1", &[("keep", "yes")]);
        place.put("large", b"123456", &[]);
        place.put("small", b"12345", &[]);
        assert_eq!(place.after(1), Removed::default());
        assert_eq!(place.after(4), Removed { objects: 3, ..Default::default() });
        assert_eq!(place.keys(), ["other-tag", "small"]);
    }

    #[test]
    fn dates_and_disabled_rules() {
        let past = "<Expiration><Date>2020-01-01T00:00:00Z</Date></Expiration>";
        let disabled = rule("<Prefix>off/</Prefix>", past).replace("Enabled", "Disabled");
        let place = Place::new(&(rule("<Prefix>on/</Prefix>", past) + &disabled), Versioning::Off);
        place.put("on/a", b"", &[]);
        place.put("off/a", b"", &[]);
        assert_eq!(place.after(0).objects, 1);
        assert_eq!(place.keys(), ["off/a"]);
    }

    #[test]
    fn versions_go_after_their_time_and_lone_markers_last() {
        let noncurrent = "<NoncurrentVersionExpiration><NewerNoncurrentVersions>1</NewerNoncurrentVersions>\
                          <NoncurrentDays>3</NoncurrentDays></NoncurrentVersionExpiration>";
        let place = Place::new(&rule("", &(TWO_DAYS.to_owned() + noncurrent)), Versioning::Enabled);
        for data in [b"1", b"2", b"3"] {
            place.put("key", data, &[]);
        }
        assert_eq!(place.versions(), 3);
        // The current one gets a marker over it; of the others the newer is kept.
        assert_eq!(place.after(5), Removed { objects: 1, versions: 1, ..Default::default() });
        assert!(place.keys().is_empty());
        assert_eq!(place.versions(), 3);
        // Now the newest below the marker is the one that is kept.
        assert_eq!(place.after(5), Removed { versions: 1, ..Default::default() });
        assert_eq!(place.versions(), 2);
    }

    #[test]
    fn markers_with_nothing_below() {
        let marker = "<Expiration><ExpiredObjectDeleteMarker>true</ExpiredObjectDeleteMarker></Expiration>";
        let place = Place::new(&rule("", marker), Versioning::Enabled);
        place.put("covered", b"1", &[]);
        place.delete("covered");
        place.delete("lone");
        assert_eq!(place.after(0), Removed { markers: 1, ..Default::default() });
        assert_eq!(place.versions(), 2);
    }

    #[test]
    fn uploads_are_aborted() {
        let abort = "<AbortIncompleteMultipartUpload><DaysAfterInitiation>1</DaysAfterInitiation></AbortIncompleteMultipartUpload>";
        let place = Place::new(&rule("<Prefix>a</Prefix>", abort), Versioning::Off);
        for key in ["a", "b"] {
            place.store.create_upload(BUCKET, key, &CreateUpload::default()).unwrap();
        }
        assert_eq!(place.after(0), Removed::default());
        assert_eq!(place.after(3), Removed { uploads: 1, ..Default::default() });
        let left = place.store.list_uploads(BUCKET, &ListRequest { max_keys: 9, ..Default::default() });
        assert_eq!(left.unwrap().uploads[0].key, "b");
    }
}

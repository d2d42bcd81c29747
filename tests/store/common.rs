//! A store in a directory of its own, and short forms of what tests do with it.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use vgwrdma::digest::{Algorithm, Digester};
use vgwrdma::store::{
    ChecksumType, Checksums, ListPage, ListRequest, ObjectAttributes, ObjectInfo, PutRequest, Result, Store,
    StoreOptions, WriteConditions,
};

/// A store with one bucket, `bucket`. Its directories go with it.
pub(crate) struct Fixture {
    pub(crate) dir: tempfile::TempDir,
    /// The versioning directory, when there is one.
    pub(crate) versions: Option<tempfile::TempDir>,
    pub(crate) store: Store,
}

pub(crate) const BUCKET: &str = "bucket";

impl Fixture {
    pub(crate) fn new() -> Self {
        Self::with(|_| ())
    }

    /// With settings changed; no syncs unless asked for, so that tests are quick.
    pub(crate) fn with(change: impl FnOnce(&mut StoreOptions)) -> Self {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir(dir.path().join("root")).unwrap();
        let mut options =
            StoreOptions { durability: vgwrdma::store::Durability::None, ..StoreOptions::default() };
        change(&mut options);
        let store = Store::open(&dir.path().join("root"), options).unwrap();
        store.create_bucket(BUCKET, &BTreeMap::new()).unwrap();
        Self { dir, versions: None, store }
    }

    /// With a versioning directory, versioning being on.
    pub(crate) fn versioned() -> Self {
        let versions = tempfile::tempdir().unwrap();
        let mut fixture = Self::with(|options| options.versioning_dir = Some(versions.path().to_owned()));
        fixture.versions = Some(versions);
        fixture.store.set_versioning(BUCKET, vgwrdma::store::Versioning::Enabled).unwrap();
        fixture
    }

    /// The path of something in the bucket.
    pub(crate) fn path(&self, key: &str) -> PathBuf {
        self.root().join(BUCKET).join(key)
    }

    pub(crate) fn root(&self) -> PathBuf {
        self.dir.path().join("root")
    }

    pub(crate) fn put(&self, key: &str, body: &[u8]) -> ObjectInfo {
        self.try_put(key, body, &WriteConditions::default()).unwrap()
    }

    pub(crate) fn try_put(&self, key: &str, body: &[u8], conditions: &WriteConditions) -> Result<ObjectInfo> {
        put(&self.store, key, body, conditions)
    }

    pub(crate) fn get(&self, key: &str) -> Vec<u8> {
        self.try_get(key, None).unwrap().1
    }

    pub(crate) fn try_get(&self, key: &str, version: Option<&str>) -> Result<(ObjectInfo, Vec<u8>)> {
        let reader = self.store.open_object(BUCKET, key, version)?;
        let mut body = vec![0; usize::try_from(reader.info().size).unwrap()];
        reader.read_at(0, &mut body).unwrap();
        Ok((reader.info().clone(), body))
    }

    pub(crate) fn delete(&self, key: &str) {
        self.store.delete_object(BUCKET, key, None, &WriteConditions::default()).unwrap();
    }

    pub(crate) fn list(&self, prefix: &str, delimiter: Option<&str>) -> ListPage {
        let request = ListRequest {
            prefix: prefix.into(),
            delimiter: delimiter.map(Into::into),
            max_keys: 1000,
            ..ListRequest::default()
        };
        self.store.list_objects(BUCKET, &request).unwrap()
    }

    pub(crate) fn keys(&self) -> Vec<String> {
        self.list("", None).objects.into_iter().map(|o| o.key).collect()
    }

    /// All there is below the root, `.sgwtmp` included, but for lock files.
    pub(crate) fn files(&self) -> Vec<String> {
        let mut all = Vec::new();
        walk(&self.root(), &self.root(), &mut all);
        all.retain(|path| !path.contains("/locks"));
        all.sort();
        all
    }
}

fn walk(root: &Path, dir: &Path, all: &mut Vec<String>) {
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        let shown = path.strip_prefix(root).unwrap().to_str().unwrap().to_owned();
        if path.is_dir() && !path.is_symlink() {
            all.push(format!("{shown}/"));
            walk(root, &path, all);
        } else {
            all.push(shown);
        }
    }
}

/// The attributes that a gateway would give this body.
pub(crate) fn attributes(body: &[u8]) -> ObjectAttributes {
    let mut digester = Digester::new(true, [Algorithm::Crc64Nvme]);
    digester.update(body);
    let digests = digester.finish();
    ObjectAttributes {
        etag: digests.md5_hex(),
        content_type: Some("text/x-test".into()),
        metadata: [("length".to_owned(), body.len().to_string())].into(),
        checksums: Some(Checksums {
            algorithm: "CRC64NVME".into(),
            kind: ChecksumType::FullObject,
            values: [("CRC64NVME".to_owned(), digests.base64(Algorithm::Crc64Nvme).unwrap())].into(),
        }),
        ..ObjectAttributes::default()
    }
}

pub(crate) fn put(store: &Store, key: &str, body: &[u8], conditions: &WriteConditions) -> Result<ObjectInfo> {
    let request =
        PutRequest { size_hint: Some(body.len() as u64), conditions: conditions.clone(), direct_io: false };
    let pending = store.begin_put(BUCKET, key, &request)?;
    pending.write_at(0, body).unwrap();
    pending.publish(body.len() as u64, attributes(body))
}

pub(crate) fn if_none_match() -> WriteConditions {
    WriteConditions { if_none_match_any: true, ..WriteConditions::default() }
}

pub(crate) fn if_match(etag: &str) -> WriteConditions {
    WriteConditions { if_match: Some(etag.into()), ..WriteConditions::default() }
}

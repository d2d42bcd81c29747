//! Every change that is acknowledged under full durability, as the whole sequence of steps: nothing is
//! given its name before its data and attributes are synced, nothing is taken away before what
//! replaces it is, and each directory with a new or lost entry is synced before the answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use vgwrdma::store::{
    CopyRequest, CreateUpload, Durability, FsOp, ListVersionsRequest, PutRequest, Versioning, WriteConditions,
};

use super::common::{BUCKET, Fixture};
use super::multipart::{complete, upload_part};
use super::observer::{Failing, observed};

/// A store with full durability whose steps are seen, and its versioning directory.
struct Watched {
    failing: Arc<Failing>,
    fixture: Fixture,
    _versions: tempfile::TempDir,
}

impl Watched {
    fn new() -> Self {
        let failing = Failing::new();
        let versions = tempfile::tempdir().unwrap();
        let fixture = observed(&failing, |o| {
            (o.durability, o.versioning_dir) = (Durability::Full, Some(versions.path().to_owned()));
        });
        let watched = Self { failing, fixture, _versions: versions };
        // Makes the lock directory.
        watched.fixture.store.set_bucket_attribute(BUCKET, "acl", Some(b"{}")).unwrap();
        watched.failing.clear();
        watched
    }

    /// The steps since the last call: attributes in a row count as one, names that are chosen at
    /// random or are hashes are written as what they are.
    #[track_caller]
    fn steps(&self, expected: &[&str]) {
        let mut steps: Vec<String> = Vec::new();
        for (op, name) in self.failing.seen() {
            let verb = match op {
                // Changes nothing.
                FsOp::OpenDirect => continue,
                FsOp::Create => "create",
                FsOp::Reserve => "reserve",
                FsOp::Write => "write",
                FsOp::Copy => "copy",
                FsOp::SetAttribute => "attributes",
                FsOp::SyncFile => "sync file",
                FsOp::SyncDir => "sync dir",
                FsOp::MakeDir => "mkdir",
                FsOp::Link => "link",
                FsOp::Rename => "rename to",
                FsOp::Unlink => "unlink",
                FsOp::RemoveDir => "rmdir",
            };
            if op == FsOp::SetAttribute {
                if steps.last().is_none_or(|last| last != verb) {
                    steps.push(verb.to_owned());
                }
                continue;
            }
            let name: Vec<&str> = name.split('/').map(kind).collect();
            steps.push(format!("{verb} {}", name.join("/")));
        }
        self.failing.clear();
        assert_eq!(steps, expected);
    }

    fn put(&self, key: &str, body: &[u8]) -> Option<String> {
        self.fixture.put(key, body).version_id
    }

    fn delete_version(&self, key: &str, id: &str) {
        self.fixture.store.delete_object(BUCKET, key, Some(id), &WriteConditions::default()).unwrap();
    }
}

fn kind(component: &str) -> &str {
    let hex = |text: &str| text.bytes().all(|b| b.is_ascii_hexdigit());
    match component.len() {
        64 if hex(component) => "HASH",
        32 if hex(component) => "RANDOM",
        36 if hex(&component.replace('-', "")) => "UPLOAD",
        26 if component.bytes().all(|b| b.is_ascii_alphanumeric()) => "VERSION",
        2 if hex(component) => "xx",
        _ => component,
    }
}

#[test]
fn put_overwrite_delete() {
    let watched = Watched::new();
    watched.put("a/b", b"one");
    watched.steps(&[
        "create a/b",
        "write a/b",
        "attributes",
        "sync file a/b",
        "mkdir a",
        "link b",
        "sync dir b",
        "sync dir a",
    ]);
    watched.put("a/b", b"two");
    watched.steps(&[
        "create a/b",
        "write a/b",
        "attributes",
        "sync file a/b",
        "link b",
        // The name was taken.
        "link RANDOM",
        "rename to b",
        "sync dir b",
    ]);
    watched.fixture.delete("a/b");
    watched.steps(&["unlink b", "sync dir b", "rmdir a"]);
}

#[test]
fn copy() {
    let watched = Watched::new();
    watched.put("from", b"x");
    watched.failing.clear();
    let source = watched.fixture.store.open_object(BUCKET, "from", None).unwrap();
    watched.fixture.store.copy_object(&source, BUCKET, "to", &CopyRequest::default()).unwrap();
    let mut seen = watched.failing.seen();
    // Sharing blocks may be tried before copying them.
    seen.dedup_by(|a, b| a.0 == FsOp::Copy && b.0 == FsOp::Copy);
    let seen: Vec<FsOp> = seen.into_iter().map(|(op, _)| op).filter(|op| *op != FsOp::SetAttribute).collect();
    assert_eq!(seen, [FsOp::Create, FsOp::Copy, FsOp::SyncFile, FsOp::Link, FsOp::SyncDir]);
}

#[test]
fn attributes_of_objects_and_buckets() {
    let watched = Watched::new();
    watched.put("k", b"x");
    watched.failing.clear();
    let tag = |length: usize| {
        let tags = BTreeMap::from([("a".to_owned(), "b".repeat(length))]);
        watched.fixture.store.set_object_tags(BUCKET, "k", None, Some(&tags)).unwrap();
    };
    tag(1);
    watched.steps(&["attributes", "sync file k"]);
    // What is too long for the inode is in place before the inode refers to it.
    let outside =
        ["create RANDOM", "write RANDOM", "sync file RANDOM", "rename to RANDOM", "sync dir RANDOM"];
    tag(5000);
    let made = ["attributes", "mkdir .sgwtmp", "mkdir overflow", "sync dir .sgwtmp/overflow"];
    watched.steps(&[&made[..], &outside, &["attributes", "sync file k"]].concat());
    tag(5001);
    watched.steps(&[&outside[..], &["attributes", "unlink RANDOM", "sync file k"]].concat());
    watched.fixture.store.set_bucket_attribute(BUCKET, "policy", Some(b"{}")).unwrap();
    watched.steps(&["attributes", "sync dir bucket"]);
    let acl = BTreeMap::from([("acl".to_owned(), b"{}".to_vec())]);
    watched.fixture.store.create_bucket("other", &acl).unwrap();
    watched.steps(&[
        "mkdir RANDOM",
        "mkdir .sgwtmp",
        "attributes",
        "sync dir other",
        "rename to other",
        "sync dir other",
    ]);
    watched.fixture.store.delete_bucket("other").unwrap();
    watched.steps(&["rmdir .sgwtmp", "rmdir other", "sync dir other"]);
}

#[test]
fn directory_objects() {
    let watched = Watched::new();
    watched.put("a/d/", b"");
    watched.steps(&["mkdir a", "mkdir d", "attributes", "sync dir d", "sync dir d", "sync dir a"]);
    watched.fixture.delete("a/d/");
    watched.steps(&["rmdir d", "sync dir d", "rmdir a"]);
}

/// A bucket that somebody made with `mkdir`: its directory of temporary data is synced when it is made,
/// since uploads live there.
#[test]
fn a_bucket_made_by_hand() {
    let watched = Watched::new();
    std::fs::create_dir(watched.fixture.root().join("by-hand")).unwrap();
    let pending = watched.fixture.store.begin_put("by-hand", "k", &PutRequest::default()).unwrap();
    drop(pending);
    watched.steps(&["create k", "mkdir .sgwtmp", "sync dir .sgwtmp"]);
}

#[test]
fn multipart_uploads() {
    let watched = Watched::new();
    let (fixture, big) = (&watched.fixture, vec![1; 5 << 20]);
    let id = fixture.store.create_upload(BUCKET, "e/m", &CreateUpload::default()).unwrap();
    watched.steps(&[
        "mkdir RANDOM",
        "sync dir UPLOAD",
        "mkdir .sgwtmp",
        "mkdir multipart",
        "mkdir HASH",
        "attributes",
        "rename to UPLOAD",
        "sync dir UPLOAD",
        "sync dir .sgwtmp/multipart",
        "sync dir .sgwtmp/multipart",
    ]);
    let first = upload_part(fixture, "e/m", &id, 1, &big).unwrap();
    watched.steps(&[
        "create e/m part 1",
        "reserve e/m part 1",
        "write e/m part 1",
        "attributes",
        "sync file e/m",
        "link 1",
        "sync dir 1",
    ]);
    upload_part(fixture, "e/m", &id, 2, b"y").unwrap();
    watched.failing.clear();
    let second = upload_part(fixture, "e/m", &id, 2, b"z").unwrap();
    watched.steps(&[
        "create e/m part 2",
        "write e/m part 2",
        "attributes",
        "sync file e/m",
        "link 2",
        "link RANDOM",
        "rename to 2",
        "sync dir 2",
    ]);
    complete(fixture, "e/m", &id, &[first, second]).unwrap();
    let seen: Vec<_> = watched.failing.seen();
    if seen.iter().any(|(op, name)| *op == FsOp::Rename && name == "assembly") {
        // No shared blocks here: the first part becomes the object, and the second is removed when
        // its bytes and the line about it are synced.
        watched.steps(&[
            "create e/m",
            "copy e/m",
            "create assembly.log",
            "write assembly.log",
            "sync file assembly.log",
            "rename to assembly.log",
            "sync dir assembly.log",
            "rename to assembly",
            "sync dir assembly",
            "copy e/m",
            "sync file assembly",
            "write assembly.log",
            "sync file assembly.log",
            "unlink 2",
            "attributes",
            "sync file e/m",
            "mkdir e",
            "rename to m",
            "sync dir m",
            "sync dir e",
            "rename to RANDOM",
            "sync dir UPLOAD",
            "unlink lock",
            "unlink assembly.log",
            "rmdir RANDOM",
            "rmdir HASH",
        ]);
    } else {
        let at = |op, name: &str| seen.iter().position(|(o, n)| *o == op && n == name).unwrap();
        assert!(at(FsOp::SyncFile, "e/m") < at(FsOp::Link, "m"), "{seen:?}");
        assert!(at(FsOp::Link, "m") < at(FsOp::SyncDir, "m"), "{seen:?}");
        assert!(at(FsOp::SyncDir, "m") < at(FsOp::Unlink, "1"), "{seen:?}");
        watched.failing.clear();
    }
    let id = fixture.store.create_upload(BUCKET, "e/m", &CreateUpload::default()).unwrap();
    watched.failing.clear();
    fixture.store.abort_upload(BUCKET, "e/m", &id).unwrap();
    watched.steps(&["rename to RANDOM", "sync dir UPLOAD", "unlink lock", "rmdir RANDOM", "rmdir HASH"]);
}

/// The answer was lost after publication: the second one promises no less than the first.
#[test]
fn a_completion_asked_for_again_is_synced() {
    let watched = Watched::new();
    let fixture = &watched.fixture;
    let id = fixture.store.create_upload(BUCKET, "m", &CreateUpload::default()).unwrap();
    let part = upload_part(fixture, "m", &id, 1, b"x").unwrap();
    complete(fixture, "m", &id, std::slice::from_ref(&part)).unwrap();
    watched.failing.clear();
    complete(fixture, "m", &id, &[part]).unwrap();
    watched.steps(&["sync dir m"]);
}

#[test]
fn versions() {
    let watched = Watched::new();
    watched.fixture.store.set_versioning(BUCKET, Versioning::Enabled).unwrap();
    watched.put("k", b"one");
    watched.failing.clear();
    let second = watched.put("k", b"two").unwrap();
    let made = "sync dir bucket/xx/xx/xx/HASH";
    watched.steps(&[
        "create k",
        "write k",
        "attributes",
        "sync file k",
        "mkdir bucket",
        "mkdir xx",
        "mkdir xx",
        "mkdir xx",
        "mkdir HASH",
        "mkdir .sgwtmp",
        "sync dir .sgwtmp",
        // The old version is in its place, durably, before its name is given away.
        "link RANDOM",
        "rename to VERSION",
        "unlink RANDOM",
        "sync dir VERSION",
        made,
        made,
        made,
        made,
        made,
        "link RANDOM",
        "rename to k",
        "sync dir k",
    ]);
    watched.put("k", b"three");
    watched.failing.clear();
    watched.fixture.delete("k");
    watched.steps(&[
        "create k",
        "attributes",
        "sync file k",
        "link RANDOM",
        "rename to VERSION",
        "unlink RANDOM",
        "sync dir VERSION",
        "link RANDOM",
        "rename to k",
        "sync dir k",
    ]);
    watched.delete_version("k", &second);
    watched.steps(&["unlink VERSION", "sync dir VERSION", "rmdir HASH"]);
    let request = ListVersionsRequest { max_keys: 10, ..ListVersionsRequest::default() };
    let marker = watched.fixture.store.list_versions(BUCKET, &request).unwrap().versions.remove(0);
    assert!(marker.delete_marker);
    watched.failing.clear();
    watched.delete_version("k", &marker.version_id);
    let seen = watched.failing.seen();
    assert_eq!(seen[..2], [(FsOp::Rename, "k".to_owned()), (FsOp::SyncDir, "k".to_owned())], "{seen:?}");
}

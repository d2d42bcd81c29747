//! The order in which things reach the disk, and errors in the middle of it.

use std::collections::BTreeMap;

use rustix::io::Errno;
use test_case::test_case;
use vgwrdma::store::{CreateUpload, Durability, Error, FsOp, PutRequest, WriteConditions};

use super::common::{BUCKET, Fixture, attributes};
use super::observer::{Failing, observed};

fn ops(failing: &Failing) -> Vec<FsOp> {
    failing.seen().into_iter().map(|(op, _)| op).filter(|op| *op != FsOp::SetAttribute).collect()
}

fn full() -> (std::sync::Arc<Failing>, Fixture) {
    let failing = Failing::new();
    let fixture = observed(&failing, |o| o.durability = Durability::Full);
    fixture.put("first", b""); // makes the lock directory
    failing.clear();
    (failing, fixture)
}

#[test]
fn data_before_name_before_directory() {
    use FsOp::*;
    let (failing, fixture) = full();
    fixture.put("k", b"x");
    assert_eq!(ops(&failing), [Create, Write, SyncFile, Link, SyncDir]);
    let seen = failing.seen();
    let last_attribute = seen.iter().rposition(|(op, _)| *op == SetAttribute).unwrap();
    let sync = seen.iter().position(|(op, _)| *op == SyncFile).unwrap();
    assert!(last_attribute < sync, "attributes are synced with the data");
    failing.clear();
    fixture.put("k", b"y");
    // The first link finds the name taken; the helper's name is in the directory of temporary data.
    assert_eq!(ops(&failing), [Create, Write, SyncFile, Link, Link, Rename, SyncDir]);
    failing.clear();
    fixture.delete("k");
    assert_eq!(ops(&failing), [Unlink, SyncDir]);
}

#[test]
fn new_directories_are_synced_too() {
    use FsOp::*;
    let (failing, fixture) = full();
    fixture.put("a/b/k", b"x");
    assert_eq!(
        ops(&failing),
        [Create, Write, SyncFile, MakeDir, MakeDir, Link, SyncDir, SyncDir, SyncDir],
        "of the file, and the two that got a directory"
    );
    failing.clear();
    fixture.put("a/b/l", b"x");
    assert_eq!(
        ops(&failing),
        [Create, Write, SyncFile, MakeDir, MakeDir, Link, SyncDir][..3]
            .iter()
            .copied()
            .chain([Link, SyncDir])
            .collect::<Vec<_>>()
    );
}

#[test_case(Durability::Data, 1, 0)]
#[test_case(Durability::None, 0, 0)]
#[test_case(Durability::Full, 1, 1)]
fn levels(durability: Durability, files: usize, dirs: usize) {
    let failing = Failing::new();
    let fixture = observed(&failing, |o| o.durability = durability);
    fixture.put("k", b"x");
    let count = |op| ops(&failing).into_iter().filter(|o| *o == op).count();
    assert_eq!((count(FsOp::SyncFile), count(FsOp::SyncDir)), (files, dirs));
}

#[test]
fn a_version_is_in_its_place_before_its_name_is_given_away() {
    use FsOp::*;
    let failing = Failing::new();
    let versions = tempfile::tempdir().unwrap();
    let fixture = observed(&failing, |o| {
        (o.durability, o.versioning_dir) = (Durability::Full, Some(versions.path().to_owned()));
    });
    fixture.store.set_versioning(BUCKET, vgwrdma::store::Versioning::Enabled).unwrap();
    let first = fixture.put("k", b"one").version_id.unwrap();
    failing.clear();
    fixture.put("k", b"two");
    let seen = failing.seen();
    let at = |op, name: &str| seen.iter().position(|(o, n)| *o == op && n == name).unwrap();
    assert!(at(Rename, &first) < at(SyncDir, &first), "{seen:?}");
    assert!(at(SyncDir, &first) < at(Rename, "k"), "{seen:?}");
}

/// Each step of a put fails in turn: the old object stays, and nothing else.
#[test_case(Errno::NOSPC)]
#[test_case(Errno::DQUOT)]
#[test_case(Errno::IO)]
#[test_case(Errno::ROFS)]
fn an_error_at_any_step(errno: Errno) {
    for named in [false, true] {
        let failing = Failing::new();
        let fixture = observed(&failing, |o| {
            (o.durability, o.disable_otmpfile) = (Durability::Full, named);
        });
        fixture.put("d/k", b"old");
        let before = fixture.files();
        let put = || -> Result<(), Option<Error>> {
            let request = PutRequest { size_hint: Some(300 << 10), ..PutRequest::default() };
            let pending = fixture.store.begin_put(BUCKET, "d/k", &request)?;
            pending.write_at(0, &[7; 300 << 10]).map_err(|_| None)?;
            pending.publish(300 << 10, attributes(&[7; 300 << 10]))?;
            Ok(())
        };
        for op in [FsOp::Create, FsOp::Reserve, FsOp::Write, FsOp::SetAttribute, FsOp::SyncFile, FsOp::Rename]
        {
            failing.fail(op, 1, errno);
            let error = put().unwrap_err();
            failing.clear();
            if let Some(error) = error {
                let text = error.to_string();
                assert!(text.contains("k"), "the object is named: {text}");
                match errno {
                    Errno::NOSPC => assert!(matches!(error, Error::NoSpace { .. }), "{op:?} {text}"),
                    Errno::DQUOT => assert!(matches!(error, Error::QuotaExceeded { .. }), "{op:?} {text}"),
                    Errno::ROFS => assert!(matches!(error, Error::Denied(_)), "{op:?} {text}"),
                    _ => assert!(matches!(error, Error::Io { .. }), "{op:?} {text}"),
                }
            } else {
                assert_eq!(op, FsOp::Write);
            }
            assert_eq!(fixture.get("d/k"), b"old", "{op:?}");
            let mut now = fixture.files();
            now.retain(|f| f != "bucket/.sgwtmp/overflow/");
            assert_eq!(now, before, "{op:?}");
        }
        // The directory could not be synced: the object may be there, but is not acknowledged.
        failing.fail(FsOp::SyncDir, 1, errno);
        assert!(put().is_err());
        failing.clear();
        put().unwrap();
        assert_eq!(fixture.get("d/k").len(), 300 << 10);
    }
}

#[test]
fn an_error_in_a_part_leaves_the_upload() {
    let failing = Failing::new();
    let fixture = observed(&failing, |o| o.durability = Durability::Full);
    let id = fixture.store.create_upload(BUCKET, "k", &CreateUpload::default()).unwrap();
    for op in [FsOp::SetAttribute, FsOp::SyncFile, FsOp::Link] {
        failing.fail(op, 1, Errno::NOSPC);
        let part = super::multipart::upload_part(&fixture, "k", &id, 1, b"x");
        assert!(matches!(part, Err(Error::NoSpace { .. })), "{op:?}");
        failing.clear();
        assert!(fixture.store.list_parts(BUCKET, "k", &id, 0, 10).unwrap().parts.is_empty());
    }
    super::multipart::upload_part(&fixture, "k", &id, 1, b"x").unwrap();
}

#[test]
fn a_failed_bucket_is_not_there() {
    let failing = Failing::new();
    let fixture = observed(&failing, |_| ());
    let before = fixture.files();
    for op in [FsOp::MakeDir, FsOp::SetAttribute, FsOp::Rename] {
        failing.fail(op, 1, Errno::NOSPC);
        let acl = BTreeMap::from([("acl".to_owned(), b"{}".to_vec())]);
        assert!(matches!(fixture.store.create_bucket("second", &acl), Err(Error::NoSpace { .. })), "{op:?}");
        failing.clear();
        assert_eq!(fixture.files(), before, "{op:?}");
    }
}

#[test]
fn an_error_in_a_delete_leaves_the_object() {
    let (failing, fixture) = full();
    fixture.put("d/k", b"x");
    failing.fail(FsOp::Unlink, 1, Errno::IO);
    assert!(fixture.store.delete_object(BUCKET, "d/k", None, &WriteConditions::default()).is_err());
    failing.clear();
    assert_eq!(fixture.get("d/k"), b"x");
}

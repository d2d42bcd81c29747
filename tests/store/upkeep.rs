//! Sidecar files that lost their data file, and what is swept around one bad bucket.

use std::path::Path;
use std::time::Duration;

use vgwrdma::store::{CreateUpload, Durability, Store, StoreOptions, WriteConditions};

use super::common::{BUCKET, Fixture, attributes, put};

fn with_sidecar() -> (tempfile::TempDir, tempfile::TempDir, Fixture) {
    let (side, versions) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let fixture = Fixture::with(|o| {
        (o.sidecar, o.versioning_dir) = (Some(side.path().to_owned()), Some(versions.path().to_owned()));
    });
    (side, versions, fixture)
}

/// The attribute files of objects below a sidecar directory.
fn attribute_files(dir: &Path) -> Vec<std::path::PathBuf> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap().map(Result::unwrap) {
        if entry.path().is_dir() {
            found.extend(attribute_files(&entry.path()));
        } else if entry.path().to_str().unwrap().contains(".vgwrdma") {
            found.push(entry.path());
        }
    }
    found
}

#[test]
fn sidecar_files_without_their_file_are_swept() {
    let (side, versions, fixture) = with_sidecar();
    fixture.put("kept/k", b"x");
    fixture.put("kept/d/", b"");
    fixture.put("removed", b"x");
    let id = fixture.store.create_upload(BUCKET, "up", &CreateUpload::default()).unwrap();
    super::multipart::upload_part(&fixture, "up", &id, 1, b"part").unwrap();
    fixture.store.set_versioning(BUCKET, vgwrdma::store::Versioning::Enabled).unwrap();
    let old = fixture.put("versions", b"old").version_id.unwrap();
    fixture.put("versions", b"new");
    let before = attribute_files(side.path());
    // What a crash leaves between the attribute file and the publication of its data file: another
    // identity of the same path, and one that is not whole.
    let of_kept = before
        .iter()
        .find(|f| std::fs::read_to_string(f).unwrap().contains("\"kept/k\""))
        .expect("its attribute file");
    std::fs::copy(of_kept, of_kept.with_file_name("f1-2-3")).unwrap();
    std::fs::write(of_kept.with_file_name("0123456789abcdef0123456789abcdef"), "{\"pa").unwrap();
    std::fs::remove_file(fixture.path("removed")).unwrap();

    let options = StoreOptions {
        sidecar: Some(side.path().to_owned()),
        versioning_dir: Some(versions.path().to_owned()),
        durability: Durability::None,
        ..StoreOptions::default()
    };
    let patient = Store::open(&fixture.root(), options.clone()).unwrap();
    assert!(patient.sweep().unwrap().is_empty(), "nothing is old enough");
    let store =
        Store::open(&fixture.root(), StoreOptions { sweep_after: Duration::ZERO, ..options }).unwrap();
    let swept = store.sweep().unwrap();
    assert_eq!(swept.len(), 3, "{swept:?}");
    assert_eq!(attribute_files(side.path()).len(), before.len() - 1);
    assert_eq!(fixture.try_get("kept/k", None).unwrap().0.etag, attributes(b"x").etag.unwrap());
    assert_eq!(fixture.try_get("versions", Some(&old)).unwrap().0.etag, attributes(b"old").etag.unwrap());
    assert_eq!(fixture.keys(), ["kept/d/", "kept/k", "versions"]);
    assert_eq!(fixture.store.list_parts(BUCKET, "up", &id, 0, 9).unwrap().parts.len(), 1);
    // Without the versioning directory nobody knows which versions there are.
    let options = StoreOptions {
        sidecar: Some(side.path().to_owned()),
        sweep_after: Duration::ZERO,
        ..StoreOptions::default()
    };
    assert!(Store::open(&fixture.root(), options).unwrap().sweep().unwrap().is_empty());
}

/// A delete takes the directory of a path's attribute files away that a put is about to use.
#[test]
fn sidecar_directories_come_and_go() {
    let (side, _versions, fixture) = with_sidecar();
    std::thread::scope(|scope| {
        for thread in 0..4_u8 {
            let fixture = &fixture;
            scope.spawn(move || {
                for round in 0..150 {
                    put(&fixture.store, "k", &[thread, round], &WriteConditions::default()).unwrap();
                    fixture.delete("k");
                }
            });
        }
    });
    assert!(fixture.keys().is_empty());
    assert_eq!(attribute_files(side.path()), Vec::<std::path::PathBuf>::new());
}

#[test]
fn a_bucket_that_cannot_be_swept_keeps_no_other_from_it() {
    let fixture = Fixture::new();
    for bucket in ["a-bad-one", "the-last"] {
        fixture.store.create_bucket(bucket, &Default::default()).unwrap();
    }
    std::fs::remove_dir(fixture.root().join("a-bad-one/.sgwtmp")).unwrap();
    std::fs::create_dir_all(fixture.root().join("a-bad-one/.sgwtmp")).unwrap();
    // Where a directory should be; reading it fails with something else than "not there".
    std::fs::write(fixture.root().join("a-bad-one/.sgwtmp/multipart"), "").unwrap();
    std::fs::write(fixture.root().join("the-last/.sgwtmp/left"), "").unwrap();
    let options =
        StoreOptions { sweep_after: Duration::ZERO, durability: Durability::None, ..StoreOptions::default() };
    Store::open(&fixture.root(), options).unwrap();
    assert!(!fixture.root().join("the-last/.sgwtmp/left").exists());
}

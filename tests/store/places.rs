//! Other settings: sidecar files, buckets, read-only, copies, upkeep.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use vgwrdma::store::{
    ChecksumType, Checksums, CompleteUpload, CompletedPart, CopyRequest, CreateUpload, Durability, Error,
    ListRequest, ObjectAttributes, PutRequest, Store, StoreOptions, WriteConditions,
};

use super::common::{BUCKET, Fixture, if_match};

/// A fixture whose file system is looked on as one without attributes.
fn sidecar() -> (tempfile::TempDir, Fixture) {
    let side = tempfile::tempdir().unwrap();
    let fixture = Fixture::with(|o| o.sidecar = Some(side.path().to_owned()));
    (side, fixture)
}

fn files_below(dir: &Path) -> usize {
    let entries = std::fs::read_dir(dir).unwrap().filter_map(Result::ok);
    entries.map(|e| if e.path().is_dir() { files_below(&e.path()) } else { 1 }).sum()
}

#[test]
fn sidecar_files_follow_their_objects() {
    let (side, fixture) = sidecar();
    fixture.put("a/k", b"one");
    let info = fixture.put("a/k", b"two!");
    assert_eq!(fixture.try_get("a/k", None).unwrap(), (info.clone(), b"two!".to_vec()));
    assert_eq!(fixture.list("", None).objects[0].etag, info.etag);
    assert_eq!(files_below(side.path()), 1, "that of the first is gone");
    let tags = [("a".to_owned(), "b".to_owned())].into();
    fixture.store.set_object_tags(BUCKET, "a/k", None, Some(&tags)).unwrap();
    assert_eq!(fixture.try_get("a/k", None).unwrap().0.attributes.tags, tags);
    fixture.try_put("a/k", b"three", &if_match(&info.etag)).unwrap();
    fixture.put("dir/", b"");
    fixture.put("dir/child", b"");
    assert_eq!(fixture.keys(), ["a/k", "dir/", "dir/child"]);
    fixture.delete("dir/");
    assert_eq!(fixture.keys(), ["a/k", "dir/child"]);
    fixture.delete("dir/child");
    fixture.delete("a/k");
    assert_eq!(files_below(side.path()), 0);
    fixture.store.set_bucket_attribute(BUCKET, "policy", Some(b"{}")).unwrap();
    assert_eq!(
        std::fs::read(side.path().join("bucket/meta/policy")).unwrap(),
        b"{}",
        "as versitygw keeps it"
    );
    assert_eq!(fixture.store.bucket_attribute(BUCKET, "policy").unwrap().unwrap(), b"{}");
    fixture.store.delete_bucket(BUCKET).unwrap();
    assert!(!side.path().join("bucket").exists());
}

#[test]
fn sidecar_files_are_not_taken_for_anothers() {
    let (_side, fixture) = sidecar();
    let info = fixture.put("k", b"hello");
    // Replaced from outside, as by `mv`.
    std::fs::write(fixture.path("new"), "other").unwrap();
    std::fs::rename(fixture.path("new"), fixture.path("k")).unwrap();
    let replaced = fixture.try_get("k", None).unwrap().0;
    assert_ne!(replaced.etag, info.etag);
    assert!(replaced.attributes.metadata.is_empty());
}

#[test]
fn sidecar_files_of_versitygw_are_read() {
    let (side, fixture) = sidecar();
    std::fs::create_dir(fixture.path("dir")).unwrap();
    std::fs::write(fixture.path("dir/k"), "hello").unwrap();
    let meta = side.path().join("bucket/dir/k/meta");
    std::fs::create_dir_all(&meta).unwrap();
    std::fs::write(meta.join("etag"), "\"5d41402abc4b2a76b9719d911017c592\"").unwrap();
    std::fs::write(meta.join("metadata"), r#"{"a":"1"}"#).unwrap();
    let info = fixture.try_get("dir/k", None).unwrap().0;
    assert_eq!(
        (info.etag.as_str(), info.attributes.metadata["a"].as_str()),
        ("5d41402abc4b2a76b9719d911017c592", "1")
    );
    fixture.put("dir/k", b"new");
    assert_ne!(fixture.try_get("dir/k", None).unwrap().0.etag, info.etag);
    assert!(!meta.exists(), "what is no more true is gone");
}

#[test]
fn uploads_and_versions_with_sidecar_files() {
    let (side, versions) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let fixture = Fixture::with(|o| {
        (o.sidecar, o.versioning_dir) = (Some(side.path().to_owned()), Some(versions.path().to_owned()));
    });
    fixture.store.set_versioning(BUCKET, vgwrdma::store::Versioning::Enabled).unwrap();
    let first = fixture.put("k", b"one").version_id.unwrap();
    let attributes = ObjectAttributes { content_type: Some("x/y".into()), ..ObjectAttributes::default() };
    let id = fixture
        .store
        .create_upload(BUCKET, "k", &CreateUpload { attributes, ..CreateUpload::default() })
        .unwrap();
    let part = super::multipart::upload_part(&fixture, "k", &id, 1, b"part").unwrap();
    let request = ListRequest { max_keys: 10, ..ListRequest::default() };
    assert_eq!(fixture.store.list_uploads(BUCKET, &request).unwrap().uploads.len(), 1);
    let request = CompleteUpload {
        parts: vec![CompletedPart { number: 1, etag: Some(part.etag), checksums: BTreeMap::new() }],
        ..CompleteUpload::default()
    };
    let info = fixture.store.complete_upload(BUCKET, "k", &id, &request).unwrap();
    assert_eq!(info.attributes.content_type.as_deref(), Some("x/y"));
    assert_eq!(fixture.try_get("k", None).unwrap(), (info.clone(), b"part".to_vec()));
    let (old, body) = fixture.try_get("k", Some(&first)).unwrap();
    assert_eq!((body.as_slice(), old.attributes.metadata["length"].as_str()), (&b"one"[..], "3"));
    let second = info.version_id.unwrap();
    fixture.store.delete_object(BUCKET, "k", Some(&second), &WriteConditions::default()).unwrap();
    let (back, body) = fixture.try_get("k", None).unwrap();
    assert_eq!((body.as_slice(), back.version_id), (&b"one"[..], Some(first.clone())));
    fixture.store.delete_object(BUCKET, "k", Some(&first), &WriteConditions::default()).unwrap();
    assert_eq!(files_below(side.path()), 1, "only the bucket's versioning state is left");
}

/// On another file system than the tests': memory, where there is one.
#[test]
fn versions_on_another_file_system() {
    let shm = Path::new("/dev/shm");
    let Ok(versions) = tempfile::tempdir_in(shm) else { return };
    let device = |p: &Path| rustix::fs::stat(p).unwrap().st_dev;
    let fixture = Fixture::with(|o| o.versioning_dir = Some(versions.path().to_owned()));
    assert_ne!(device(versions.path()), device(&fixture.root()), "the point of the test");
    fixture.store.set_versioning(BUCKET, vgwrdma::store::Versioning::Enabled).unwrap();
    let first = fixture.put("k", b"one");
    let second = fixture.put("k", b"two").version_id.unwrap();
    let id = first.version_id.clone().unwrap();
    let (old, body) = fixture.try_get("k", Some(&id)).unwrap();
    assert_eq!((old, body.as_slice()), (first.clone(), &b"one"[..]), "time and attributes are copied");
    fixture.store.delete_object(BUCKET, "k", Some(&second), &WriteConditions::default()).unwrap();
    assert_eq!(fixture.try_get("k", None).unwrap(), (first, b"one".to_vec()));
    assert_eq!(files_below(versions.path()), 0);
}

#[test]
fn buckets() {
    let fixture = Fixture::new();
    let acl = BTreeMap::from([("acl".to_owned(), br#"{"Owner":"me"}"#.to_vec())]);
    fixture.store.create_bucket("another", &acl).unwrap();
    assert_eq!(fixture.store.bucket_attribute("another", "acl").unwrap().as_ref(), acl.get("acl"));
    assert!(matches!(fixture.store.create_bucket("another", &acl), Err(Error::BucketExists(_))));
    assert!(matches!(fixture.store.create_bucket("No", &acl), Err(Error::InvalidBucketName(..))));
    std::fs::create_dir(fixture.root().join(".vgwlocks")).unwrap();
    std::fs::write(fixture.root().join("file.txt"), "").unwrap();
    let outside = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(outside.path(), fixture.root().join("linked")).unwrap();
    let names = |store: &Store| store.list_buckets().unwrap().into_iter().map(|b| b.name).collect::<Vec<_>>();
    assert_eq!(names(&fixture.store), ["another", BUCKET]);
    for missing in ["linked", "file.txt", "none", ".vgwlocks"] {
        assert!(matches!(fixture.store.head_bucket(missing), Err(Error::NoSuchBucket(_))), "{missing}");
    }
    let options = StoreOptions { bucket_links: true, ..StoreOptions::default() };
    let linking = Store::open(&fixture.root(), options).unwrap();
    assert_eq!(names(&linking), ["another", BUCKET, "linked"]);

    fixture.put("d/k", b"");
    assert!(matches!(fixture.store.delete_bucket(BUCKET), Err(Error::BucketNotEmpty(_))));
    fixture.delete("d/k");
    fixture.put("d/", b"");
    assert!(
        matches!(fixture.store.delete_bucket(BUCKET), Err(Error::BucketNotEmpty(_))),
        "a directory object"
    );
    fixture.delete("d/");
    std::os::unix::fs::symlink("x", fixture.path("link")).unwrap();
    assert!(matches!(fixture.store.delete_bucket(BUCKET), Err(Error::BucketNotEmpty(_))), "somebody's link");
    std::fs::remove_file(fixture.path("link")).unwrap();
    std::fs::create_dir_all(fixture.path("empty/dirs")).unwrap();
    fixture.store.create_upload(BUCKET, "k", &CreateUpload::default()).unwrap();
    fixture.store.delete_bucket(BUCKET).unwrap();
    assert!(matches!(fixture.store.delete_bucket(BUCKET), Err(Error::NoSuchBucket(_))));
}

#[test]
fn read_only_forgets_no_operation() {
    let fixture = Fixture::new();
    let info = fixture.put("k", b"x");
    let id = fixture.store.create_upload(BUCKET, "k", &CreateUpload::default()).unwrap();
    let before = fixture.files();
    let store =
        Store::open(&fixture.root(), StoreOptions { read_only: true, ..StoreOptions::default() }).unwrap();
    let reader = store.open_object(BUCKET, "k", None).unwrap();
    assert_eq!(reader.info(), &info);
    assert_eq!(store.list_parts(BUCKET, "k", &id, 0, 1).unwrap().parts, []);
    let none = WriteConditions::default();
    let results: Vec<(&str, Option<Error>)> = vec![
        ("put", store.begin_put(BUCKET, "n", &PutRequest::default()).err()),
        ("copy", store.copy_object(&reader, BUCKET, "n", &CopyRequest::default()).err()),
        ("delete", store.delete_object(BUCKET, "k", None, &none).err()),
        ("create upload", store.create_upload(BUCKET, "n", &CreateUpload::default()).err()),
        ("part", store.begin_part(BUCKET, "k", &id, 1, None).err()),
        ("complete", store.complete_upload(BUCKET, "k", &id, &CompleteUpload::default()).err()),
        ("abort", store.abort_upload(BUCKET, "k", &id).err()),
        ("create bucket", store.create_bucket("new", &BTreeMap::new()).err()),
        ("delete bucket", store.delete_bucket(BUCKET).err()),
        ("bucket attribute", store.set_bucket_attribute(BUCKET, "acl", None).err()),
        ("tags", store.set_object_tags(BUCKET, "k", None, None).err()),
        ("hold", store.set_object_legal_hold(BUCKET, "k", None, true).err()),
        ("acl", store.set_object_acl(BUCKET, "k", None, None).err()),
        ("retention", store.set_object_retention(BUCKET, "k", None, b"{}", true).err()),
        ("versioning", store.set_versioning(BUCKET, vgwrdma::store::Versioning::Enabled).err()),
        ("sweep", store.sweep().err()),
    ];
    for (name, error) in results {
        assert!(matches!(error, Some(Error::Denied(_))), "{name}: {error:?}");
    }
    assert_eq!(fixture.files(), before);
}

#[test]
fn copies() {
    for disable in [false, true] {
        let fixture = Fixture::with(|o| o.disable_copy_file_range = disable);
        let body = super::multipart::body(3, 3 << 20);
        let info = fixture.put("from", &body);
        let tags = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
        fixture.store.set_object_tags(BUCKET, "from", None, Some(&tags)).unwrap();
        fixture.store.set_object_legal_hold(BUCKET, "from", None, true).unwrap();
        let source = fixture.store.open_object(BUCKET, "from", None).unwrap();
        let copy =
            |key: &str, request: &CopyRequest| fixture.store.copy_object(&source, BUCKET, key, request);
        let copied = copy("d/to", &CopyRequest::default()).unwrap();
        assert_eq!((copied.etag.as_str(), &copied.attributes.tags), (info.etag.as_str(), &tags));
        assert_eq!(copied.attributes.metadata, info.attributes.metadata);
        assert_eq!(copied.attributes.checksums, info.attributes.checksums);
        assert_eq!(copied.attributes.legal_hold, None, "a hold is not copied");
        assert_eq!(fixture.get("d/to"), body);
        let new = ObjectAttributes { content_type: Some("new/type".into()), ..ObjectAttributes::default() };
        let request = CopyRequest {
            replace_metadata: Some(new),
            replace_tags: Some(BTreeMap::new()),
            ..CopyRequest::default()
        };
        let replaced = copy("d/to", &request).unwrap();
        assert!(replaced.attributes.metadata.is_empty() && replaced.attributes.tags.is_empty());
        assert_eq!(replaced.attributes.content_type.as_deref(), Some("new/type"));
        assert_eq!(replaced.etag, info.etag);
        assert!(matches!(copy("from", &CopyRequest::default()), Err(Error::CopyToItself(_))));
        assert!(matches!(copy("from", &request), Err(Error::Denied(_))), "the hold protects it");
        fixture.store.set_object_legal_hold(BUCKET, "from", None, false).unwrap();
        copy("from", &request).unwrap();
        assert_eq!(fixture.get("from"), body);
        let once = CopyRequest { conditions: super::common::if_none_match(), ..CopyRequest::default() };
        assert!(matches!(copy("d/to", &once), Err(Error::PreconditionFailed(_))));
        assert!(copy("dir/", &CopyRequest::default()).is_err(), "a directory holds no data");
    }
}

#[test]
fn copies_of_foreign_files_get_real_digests() {
    let fixture = Fixture::new();
    std::fs::write(fixture.path("foreign.txt"), "hello").unwrap();
    let source = fixture.store.open_object(BUCKET, "foreign.txt", None).unwrap();
    let copied = fixture.store.copy_object(&source, BUCKET, "k", &CopyRequest::default()).unwrap();
    assert_eq!(copied.etag, "5d41402abc4b2a76b9719d911017c592");
    assert_eq!(copied.attributes.content_type.as_deref(), Some("text/plain"));
    assert!(copied.attributes.checksums.is_some());
}

#[test]
fn a_part_copied_from_an_object() {
    let fixture = Fixture::new();
    fixture.put("from", b"0123456789");
    let id = fixture.store.create_upload(BUCKET, "k", &CreateUpload::default()).unwrap();
    let source = fixture.store.open_object(BUCKET, "from", None).unwrap();
    let pending = fixture.store.begin_part(BUCKET, "k", &id, 1, None).unwrap();
    pending.copy_from(&source, 2..7, 0).unwrap();
    assert!(pending.copy_from(&source, 8..20, 5).is_err(), "beyond the end");
    let checksums =
        Checksums { algorithm: "CRC64NVME".into(), kind: ChecksumType::FullObject, values: BTreeMap::new() };
    pending.publish(5, "e", Some(&checksums)).unwrap();
    let request = CompleteUpload {
        parts: vec![CompletedPart { number: 1, etag: Some("e".into()), checksums: BTreeMap::new() }],
        ..CompleteUpload::default()
    };
    fixture.store.complete_upload(BUCKET, "k", &id, &request).unwrap();
    assert_eq!(fixture.get("k"), b"23456");
}

#[test]
fn old_temporaries_are_swept() {
    let fixture = Fixture::with(|o| o.disable_otmpfile = true);
    fixture.put("d/k", b"x");
    let long = |key: &str| {
        let pending = fixture.store.begin_put(BUCKET, key, &PutRequest::default()).unwrap();
        let metadata = [("long".to_owned(), "x".repeat(9000))].into();
        pending
            .publish(0, ObjectAttributes { etag: Some("e".into()), metadata, ..Default::default() })
            .unwrap();
    };
    for key in ["long", "moved", "removed"] {
        long(key);
    }
    // What users of the file system do.
    std::fs::rename(fixture.path("moved"), fixture.path("d/there")).unwrap();
    std::fs::remove_file(fixture.path("removed")).unwrap();
    let id = fixture.store.create_upload(BUCKET, "up", &CreateUpload::default()).unwrap();
    super::multipart::upload_part(&fixture, "up", &id, 1, b"part").unwrap();
    // What a crash between link and rename, or in the middle of a body, leaves.
    std::fs::hard_link(fixture.path("d/k"), fixture.path(".sgwtmp/helper")).unwrap();
    std::fs::write(fixture.path(".sgwtmp/half"), "half").unwrap();
    std::fs::create_dir(fixture.path(".sgwtmp/half-an-upload")).unwrap();
    std::fs::create_dir(fixture.path(".sgwtmp/multipart/abc")).unwrap();
    std::fs::write(fixture.path(".sgwtmp/multipart/abc/stray"), "").unwrap();
    std::fs::create_dir_all(fixture.root().join(".sgwtmp/half-a-bucket")).unwrap();
    let open = fixture.store.begin_put(BUCKET, "open", &PutRequest::default()).unwrap();
    open.write_at(0, b"still being written").unwrap();
    let keys = fixture.keys();
    assert_eq!(keys, ["d/k", "d/there", "long"]);

    assert!(fixture.store.sweep().unwrap().is_empty(), "nothing is old enough");
    let options =
        StoreOptions { sweep_after: Duration::ZERO, durability: Durability::None, ..StoreOptions::default() };
    let store = Store::open(&fixture.root(), options).unwrap();
    let swept: Vec<String> = store.sweep().unwrap().into_iter().map(|s| s.path).collect();
    assert!(swept.len() == 1 && swept[0].contains("overflow"), "the rest was swept at start: {swept:?}");
    let left: Vec<String> = fixture.files().into_iter().filter(|f| f.contains(".sgwtmp/")).collect();
    let expected = |f: &str| {
        f.contains(&id) || f.contains("overflow/") || f.ends_with(".sgwtmp/") || f.ends_with("multipart/")
    };
    let strange: Vec<_> = left.iter().filter(|f| !expected(f)).collect();
    assert!(strange.len() <= 2, "the open file and the directory of the upload's key: {strange:?}");
    open.publish(19, ObjectAttributes::default()).unwrap();
    assert_eq!(fixture.keys(), ["d/k", "d/there", "long", "open"]);
    for key in ["d/there", "long"] {
        assert_eq!(fixture.try_get(key, None).unwrap().0.attributes.metadata["long"].len(), 9000);
    }
    assert_eq!(fixture.store.list_parts(BUCKET, "up", &id, 0, 9).unwrap().parts.len(), 1, "uploads stay");
}

#[test]
fn settings_that_cannot_be() {
    let dir = tempfile::tempdir().unwrap();
    let inside = dir.path().join("inside");
    std::fs::create_dir(&inside).unwrap();
    let open = |change: &dyn Fn(&mut StoreOptions)| {
        let mut options = StoreOptions::default();
        change(&mut options);
        Store::open(dir.path(), options).map(|_| ())
    };
    assert!(matches!(open(&|o| o.versioning_dir = Some(inside.clone())), Err(Error::InvalidArgument(_))));
    assert!(matches!(open(&|o| o.sidecar = Some(inside.clone())), Err(Error::InvalidArgument(_))));
    assert!(Store::open(&dir.path().join("none"), StoreOptions::default()).is_err());
    assert!(Store::open(Path::new("/proc/self/cmdline"), StoreOptions::default()).is_err());
    open(&|_| ()).unwrap();
    let space = Store::open(dir.path(), StoreOptions::default()).unwrap().space().unwrap();
    assert!(space.available_bytes > 0 && space.available_bytes <= space.total_bytes);
}

#[test]
fn modes_and_owners() {
    use std::os::unix::fs::MetadataExt as _;
    let fixture = Fixture::with(|o| {
        (o.dir_mode, o.file_mode) = (0o700, 0o600);
        if rustix::process::geteuid().is_root() {
            (o.chown_uid, o.chown_gid) = (Some(4321), Some(1234));
        }
    });
    fixture.put("d/k", b"x");
    let of = |key: &str| std::fs::metadata(fixture.path(key)).unwrap();
    assert_eq!(of("d").mode() & 0o777, 0o700);
    assert_eq!(of("d/k").mode() & 0o777, 0o600);
    if rustix::process::geteuid().is_root() {
        assert_eq!((of("d").uid(), of("d/k").uid(), of("d/k").gid()), (4321, 4321, 1234));
    }
}

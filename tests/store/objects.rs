//! Objects one at a time: put, get, delete, and what a key may not be.

use test_case::test_case;
use vgwrdma::store::{Error, PutRequest, WriteConditions};

use super::common::{BUCKET, Fixture, attributes, if_match, if_none_match};

#[test]
fn puts_and_gets() {
    let fixture = Fixture::new();
    let put = fixture.put("a/b/c.txt", b"hello");
    let (info, body) = fixture.try_get("a/b/c.txt", None).unwrap();
    assert_eq!(body, b"hello");
    assert_eq!(info, put);
    assert_eq!(info.etag, "5d41402abc4b2a76b9719d911017c592");
    let mut expected = attributes(b"hello");
    expected.etag = Some(info.etag.clone());
    assert_eq!(info.attributes, expected);
    assert_eq!(info.version_id, None);
    assert_eq!((info.part(1), info.part(2), info.part_count()), (Some(0..5), None, None));
    assert_eq!(std::fs::read(fixture.path("a/b/c.txt")).unwrap(), b"hello", "a file like any other");
    assert_eq!(fixture.store.head_object(BUCKET, "a/b/c.txt", None).unwrap(), info);
}

#[test]
fn overwrites_and_deletes() {
    let fixture = Fixture::new();
    fixture.put("k", b"one");
    fixture.put("k", b"second");
    assert_eq!(fixture.get("k"), b"second");
    fixture.put("deep/er/k", b"");
    fixture.delete("deep/er/k");
    fixture.delete("k");
    fixture.delete("never");
    assert!(matches!(fixture.try_get("k", None), Err(Error::NoSuchKey(_))));
    assert_eq!(fixture.files(), [".sgwtmp/", "bucket/", "bucket/.sgwtmp/"], "nothing is left behind");
}

#[test]
fn a_dropped_put_leaves_nothing() {
    for named in [false, true] {
        let fixture = Fixture::with(|options| options.disable_otmpfile = named);
        fixture.put("k", b"old");
        let pending = fixture.store.begin_put(BUCKET, "k", &PutRequest::default()).unwrap();
        pending.write_at(0, b"new").unwrap();
        let sink = pending.sink();
        drop(pending);
        assert_eq!(fixture.get("k"), b"old");
        sink.write_at(0, b"late").unwrap();
        assert_eq!(fixture.get("k"), b"old");
        assert_eq!(fixture.files(), [".sgwtmp/", "bucket/", "bucket/.sgwtmp/", "bucket/k"]);
    }
}

#[test]
fn a_short_body_is_not_published() {
    let fixture = Fixture::new();
    fixture.put("k", b"old");
    let request = PutRequest { size_hint: Some(1 << 20), ..PutRequest::default() };
    let pending = fixture.store.begin_put(BUCKET, "k", &request).unwrap();
    pending.write_at(0, &[1; 1000]).unwrap();
    let error = pending.publish(1 << 20, attributes(b"")).unwrap_err();
    assert!(matches!(error, Error::IncompleteBody { expected: 1_048_576, received: 1000, .. }), "{error}");
    assert_eq!(fixture.get("k"), b"old");
}

#[test]
fn a_sink_refuses_after_publication() {
    let fixture = Fixture::new();
    let pending = fixture.store.begin_put(BUCKET, "k", &PutRequest::default()).unwrap();
    let sink = pending.sink();
    sink.write_at(2, b"cd").unwrap();
    sink.write_at(0, b"ab").unwrap();
    pending.publish(4, attributes(b"abcd")).unwrap();
    assert!(sink.write_at(0, b"x").is_err());
    assert_eq!(fixture.get("k"), b"abcd");
}

#[test]
fn reserved_space_beyond_the_body_is_cut() {
    let fixture = Fixture::new();
    let request = PutRequest { size_hint: Some(10 << 20), ..PutRequest::default() };
    let pending = fixture.store.begin_put(BUCKET, "k", &request).unwrap();
    pending.write_at(0, b"abc").unwrap();
    pending.publish(3, attributes(b"abc")).unwrap();
    assert_eq!(fixture.get("k"), b"abc");
}

#[test]
fn a_reader_keeps_its_object() {
    let fixture = Fixture::new();
    fixture.put("k", b"first");
    let reader = fixture.store.open_object(BUCKET, "k", None).unwrap();
    fixture.put("k", b"another");
    fixture.delete("k");
    let mut body = [0; 5];
    reader.read_at(0, &mut body).unwrap();
    assert_eq!(&body, b"first");
    assert_eq!(reader.info().attributes.metadata["length"], "5");
    assert!(reader.read_at(3, &mut body).is_err(), "beyond the end");
}

#[test_case("a/../b"; "dot dot")]
#[test_case("a//b"; "double slash")]
#[test_case("./a"; "dot")]
#[test_case("a/./b"; "dot inside")]
#[test_case("/a"; "leading slash")]
#[test_case(""; "empty")]
#[test_case("a\0"; "nul")]
#[test_case(".sgwtmp/x"; "temporary data")]
#[test_case("a/.sgwtmp/x"; "temporary data below")]
#[test_case("../bucket/b"; "out of the bucket")]
fn hostile_keys(key: &str) {
    let fixture = Fixture::new();
    for file in ["a/b", "b", "a.txt"] {
        fixture.put(file, b"x");
    }
    std::fs::create_dir_all(fixture.path("a/.sgwtmp")).unwrap();
    std::fs::write(fixture.path("a/.sgwtmp/x"), "x").unwrap();
    std::fs::write(fixture.path(".sgwtmp/x"), "x").unwrap();
    let refused = |error: &Error| matches!(error, Error::InvalidKey { .. });
    assert!(refused(&fixture.store.begin_put(BUCKET, key, &PutRequest::default()).unwrap_err()));
    assert!(refused(&fixture.store.open_object(BUCKET, key, None).unwrap_err()));
    assert!(refused(&fixture.store.head_object(BUCKET, key, None).unwrap_err()));
    assert!(refused(
        &fixture.store.delete_object(BUCKET, key, None, &WriteConditions::default()).unwrap_err()
    ));
    assert_eq!(fixture.keys(), ["a.txt", "a/b", "b"]);
}

#[test]
fn links_lead_nowhere() {
    let fixture = Fixture::new();
    let outside = fixture.dir.path().join("outside");
    std::fs::create_dir(&outside).unwrap();
    std::fs::write(outside.join("secret"), "s").unwrap();
    std::os::unix::fs::symlink(&outside, fixture.path("dir")).unwrap();
    std::os::unix::fs::symlink(outside.join("secret"), fixture.path("file")).unwrap();
    for key in ["dir/secret", "file", "dir/"] {
        assert!(matches!(fixture.try_get(key, None), Err(Error::NoSuchKey(_))), "{key}");
    }
    for key in ["dir/new", "file"] {
        let put = fixture.try_put(key, b"x", &WriteConditions::default());
        assert!(matches!(put, Err(Error::KeyConflict { .. })), "{key}");
    }
    fixture.delete("file");
    assert!(fixture.path("file").is_symlink());
    assert!(fixture.keys().is_empty());
    assert_eq!(std::fs::read(outside.join("secret")).unwrap(), b"s");
    assert!(!outside.join("new").exists());
}

#[test]
fn long_names() {
    let fixture = Fixture::new();
    fixture.put(&"n".repeat(255), b"x");
    let deep = format!("{}k", "d/".repeat(500));
    fixture.put(&deep, b"deep");
    assert_eq!(fixture.get(&deep), b"deep");
    assert_eq!(fixture.keys().len(), 2);
    let long = "n".repeat(256);
    assert!(matches!(fixture.try_put(&long, b"", &WriteConditions::default()), Err(Error::KeyTooLong(256))));
    fixture.delete(&deep);
    assert_eq!(fixture.keys().len(), 1);
}

#[test]
fn files_and_directories_exclude_each_other() {
    let fixture = Fixture::new();
    fixture.put("a", b"file");
    let error = fixture.try_put("a/b/c", b"", &WriteConditions::default()).unwrap_err();
    assert!(matches!(&error, Error::KeyConflict { conflict, .. } if conflict == "a"), "{error}");
    assert!(matches!(
        fixture.try_put("a/", b"", &WriteConditions::default()),
        Err(Error::KeyConflict { .. })
    ));
    fixture.put("d/e", b"file");
    let error = fixture.try_put("d", b"", &WriteConditions::default()).unwrap_err();
    assert!(matches!(&error, Error::KeyConflict { conflict, .. } if conflict == "d/"), "{error}");
    assert!(matches!(fixture.try_get("a/b", None), Err(Error::NoSuchKey(_))));
    assert!(matches!(fixture.try_get("d", None), Err(Error::NoSuchKey(_))));
    std::fs::create_dir(fixture.path("empty")).unwrap();
    fixture.put("empty", b"in place of an empty directory");
    assert_eq!(fixture.keys(), ["a", "d/e", "empty"]);
}

#[test]
fn directory_objects() {
    let fixture = Fixture::new();
    let info = fixture.put("dir/", b"");
    assert_eq!((info.size, info.etag.as_str()), (0, "d41d8cd98f00b204e9800998ecf8427e"));
    fixture.put("dir/child", b"x");
    assert_eq!(fixture.keys(), ["dir/", "dir/child"]);
    assert_eq!(fixture.try_get("dir/", None).unwrap().0.attributes.metadata["length"], "0");
    assert!(fixture.try_put("dir/", b"data", &WriteConditions::default()).is_err());
    let pending = fixture.store.begin_put(BUCKET, "dir/", &PutRequest::default()).unwrap();
    assert!(pending.write_at(0, b"data").is_err());
    assert!(pending.publish(4, attributes(b"data")).is_err());

    fixture.delete("dir/child");
    assert_eq!(fixture.keys(), ["dir/"], "a directory object is not an empty parent");
    fixture.put("dir/child", b"x");
    fixture.delete("dir/");
    assert_eq!(fixture.keys(), ["dir/child"], "its children stay");
    assert!(matches!(fixture.try_get("dir/", None), Err(Error::NoSuchKey(_))));
    fixture.delete("dir/child");
    assert!(!fixture.path("dir").exists());
    fixture.put("new/deep/", b"");
    fixture.delete("new/deep/");
    assert!(!fixture.path("new").exists());
}

#[test]
fn a_directory_object_put_anew_forgets_the_old_one() {
    let fixture = Fixture::new();
    fixture.put("dir/", b"");
    let pending = fixture.store.begin_put(BUCKET, "dir/", &PutRequest::default()).unwrap();
    pending.publish(0, vgwrdma::store::ObjectAttributes::default()).unwrap();
    let info = fixture.try_get("dir/", None).unwrap().0;
    assert!(info.attributes.metadata.is_empty());
    assert_eq!(info.attributes.content_type.as_deref(), Some("application/x-directory"));
    assert!(matches!(fixture.try_put("dir/", b"", &if_none_match()), Err(Error::PreconditionFailed(_))));
}

#[test]
fn conditions() {
    let fixture = Fixture::new();
    let first = fixture.try_put("k", b"1", &if_none_match()).unwrap();
    assert!(matches!(
        fixture.try_put("k", b"2", &if_none_match()),
        Err(Error::PreconditionFailed("If-None-Match"))
    ));
    fixture.try_put("k", b"2", &if_match(&first.etag)).unwrap();
    assert!(matches!(
        fixture.try_put("k", b"3", &if_match(&first.etag)),
        Err(Error::PreconditionFailed("If-Match"))
    ));
    fixture.try_put("k", b"3", &if_match("*")).unwrap();
    assert!(matches!(fixture.try_put("none", b"", &if_match("*")), Err(Error::NoSuchKey(_))));
    assert!(!fixture.path("none").exists());
    let info = fixture.store.head_object(BUCKET, "k", None).unwrap();
    let delete = |conditions: &WriteConditions| fixture.store.delete_object(BUCKET, "k", None, conditions);
    assert!(delete(&if_match("x")).is_err());
    assert!(delete(&WriteConditions { if_match_size: Some(2), ..WriteConditions::default() }).is_err());
    let conditions = WriteConditions {
        if_match: Some(info.etag.clone()),
        if_match_size: Some(1),
        if_match_modified: Some(info.modified),
        ..WriteConditions::default()
    };
    assert!(delete(&conditions).unwrap().existed);
    assert!(fixture.keys().is_empty());
    assert!(!delete(&conditions).unwrap().existed, "of nothing, a condition of a delete holds");
    let not = |etag: &str| WriteConditions { if_none_match: Some(etag.into()), ..WriteConditions::default() };
    let first = fixture.try_put("k", b"1", &not("x")).unwrap();
    assert!(matches!(
        fixture.try_put("k", b"2", &not(&first.etag)),
        Err(Error::PreconditionFailed("If-None-Match"))
    ));
    fixture.try_put("k", b"2", &not("x")).unwrap();
}

#[test]
fn conditions_are_checked_at_publication() {
    let fixture = Fixture::new();
    let begin = |conditions| {
        fixture.store.begin_put(BUCKET, "k", &PutRequest { conditions, ..PutRequest::default() }).unwrap()
    };
    let late = begin(if_none_match());
    let old = fixture.put("k", b"in between");
    assert!(matches!(late.publish(0, attributes(b"")), Err(Error::PreconditionFailed(_))));
    let late = begin(if_match(&old.etag));
    fixture.put("k", b"in between again");
    assert!(matches!(late.publish(0, attributes(b"")), Err(Error::PreconditionFailed(_))));
    assert_eq!(fixture.get("k"), b"in between again");
}

#[test]
fn foreign_files() {
    let fixture = Fixture::new();
    std::fs::create_dir_all(fixture.path("photos/2024")).unwrap();
    std::fs::write(fixture.path("photos/2024/x.jpg"), "jpeg").unwrap();
    let (info, body) = fixture.try_get("photos/2024/x.jpg", None).unwrap();
    assert_eq!(body, b"jpeg");
    assert_eq!(info.attributes.content_type.as_deref(), Some("image/jpeg"));
    assert!(
        info.etag.ends_with("-1") && info.etag.len() == 34,
        "no client takes it for an MD5: {}",
        info.etag
    );
    let listed = fixture.list("photos/", None).objects;
    assert_eq!(listed[0].etag, info.etag);
    std::fs::write(fixture.path("photos/2024/x.jpg"), "changed").unwrap();
    assert_ne!(fixture.try_get("photos/2024/x.jpg", None).unwrap().0.etag, info.etag);
    fixture.delete("photos/2024/x.jpg");
    assert!(!fixture.path("photos").exists());
}

#[test]
fn foreign_files_with_md5() {
    let fixture = Fixture::with(|options| options.foreign_etag = vgwrdma::store::ForeignEtag::Md5);
    std::fs::write(fixture.path("k"), "hello").unwrap();
    let etag = |fixture: &Fixture| fixture.try_get("k", None).unwrap().0.etag;
    assert_eq!(etag(&fixture), "5d41402abc4b2a76b9719d911017c592");
    assert_eq!(fixture.list("", None).objects[0].etag, "5d41402abc4b2a76b9719d911017c592", "kept");
    std::fs::write(fixture.path("k"), "other").unwrap();
    assert_eq!(etag(&fixture), "795f3202b17cb6bc3d4b771d8c6c9eaf");
}

#[test]
fn a_file_edited_in_place_loses_its_digests_only() {
    let fixture = Fixture::new();
    let info = fixture.put("k", b"hello");
    std::fs::write(fixture.path("k"), "HELLO").unwrap();
    let edited = fixture.try_get("k", None).unwrap().0;
    assert_ne!(edited.etag, info.etag);
    assert_eq!(edited.attributes.checksums, None, "a client would find it wrong");
    assert_eq!(edited.attributes.metadata, info.attributes.metadata);
    assert_eq!(edited.attributes.content_type, info.attributes.content_type);
    assert_eq!(fixture.list("", None).objects[0].etag, edited.etag);
}

#[test]
fn direct_io_writes_any_pieces() {
    let fixture = Fixture::new();
    let request = PutRequest { direct_io: true, size_hint: Some(10_000), ..PutRequest::default() };
    let pending = fixture.store.begin_put(BUCKET, "k", &request).unwrap();
    let body: Vec<u8> = (0..10_000_u32).map(|n| (n % 251) as u8).collect();
    pending.write_at(8192, &body[8192..]).unwrap();
    pending.write_at(0, &body[..8192]).unwrap();
    pending.publish(10_000, attributes(&body)).unwrap();
    assert_eq!(fixture.get("k"), body);
    let mut reader = fixture.store.open_object(BUCKET, "k", None).unwrap();
    reader.enable_direct_io();
    let mut read = vec![0; 10_000];
    reader.read_at(0, &mut read).unwrap();
    assert_eq!(read, body);
}

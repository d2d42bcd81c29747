//! Directories exchanged with versitygw: laid out by hand as it lays them out, and read by hand as it
//! reads them.

use std::collections::BTreeMap;
use std::io::{Read as _, Write as _};
use std::path::Path;

use rustix::fs::XattrFlags;
use sha2::{Digest as _, Sha256};
use vgwrdma::store::{
    ChecksumType, Checksums, CompleteUpload, CompletedPart, CreateUpload, Error, ListRequest,
    ObjectAttributes, PutRequest, Versioning,
};

use super::common::{BUCKET, Fixture, attributes};

fn set(path: &Path, name: &str, value: &[u8]) {
    rustix::fs::setxattr(path, format!("user.{name}"), value, XattrFlags::empty()).unwrap();
}

fn get(path: &Path, name: &str) -> Option<Vec<u8>> {
    let mut buffer = vec![0; 65536];
    let length = rustix::fs::getxattr(path, format!("user.{name}"), &mut *buffer).ok()?;
    buffer.truncate(length);
    Some(buffer)
}

fn text(path: &Path, name: &str) -> String {
    String::from_utf8(get(path, name).unwrap()).unwrap()
}

fn gzip(data: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(data).unwrap();
    encoder.finish().unwrap()
}

#[test]
fn an_object_of_theirs() {
    let fixture = Fixture::new();
    let path = fixture.path("dir/object");
    std::fs::create_dir(fixture.path("dir")).unwrap();
    std::fs::write(&path, "0123456789").unwrap();
    set(&path, "etag", b"\"d41d8cd98f00b204e9800998ecf8427e-2\"");
    set(&path, "content-type", b"image/png");
    set(&path, "cache-control", b"no-store");
    set(&path, "metadata", br#"{"colour":"red","mark":"\u003cb\u003e"}"#);
    set(&path, "X-Amz-Tagging", br#"{"a":"b"}"#);
    set(
        &path,
        "checksums",
        br#"{"Algorithm":"CRC32","Type":"COMPOSITE","CRC32":"AAAAAA==-2","CRC32C":null,"SHA1":null,"SHA256":null,"CRC64NVME":null,"SHA512":null,"MD5":null,"XXHASH64":null,"XXHASH3":null,"XXHASH128":null}"#,
    );
    set(&path, "mp-metadata", &gzip(br#"{"uploadId":"u","parts":[6,10]}"#));
    set(&path, "object-legal-hold", &[1]);
    set(&path, "object-retention", br#"{"Mode":"GOVERNANCE","RetainUntilDate":"2030-01-01T00:00:00Z"}"#);
    let info = fixture.try_get("dir/object", None).unwrap().0;
    assert_eq!(info.etag, "d41d8cd98f00b204e9800998ecf8427e-2");
    let stored = info.attributes;
    assert_eq!(stored.content_type.as_deref(), Some("image/png"));
    assert_eq!(stored.cache_control.as_deref(), Some("no-store"));
    assert_eq!(stored.metadata["mark"], "<b>");
    assert_eq!(stored.tags["a"], "b");
    assert_eq!(stored.part_ends, [6, 10]);
    assert_eq!(stored.legal_hold, Some(true));
    assert!(stored.retention.is_some());
    let checksums = stored.checksums.unwrap();
    assert_eq!((checksums.algorithm.as_str(), checksums.kind), ("CRC32", ChecksumType::Composite));
    assert_eq!(checksums.values, BTreeMap::from([("CRC32".to_owned(), "AAAAAA==-2".to_owned())]));
    let listed = &fixture.list("", None).objects[0];
    assert_eq!(
        (listed.etag.as_str(), listed.checksum_algorithm.as_deref()),
        (info.etag.as_str(), Some("CRC32"))
    );
}

#[test]
fn older_metadata_and_directory_objects_of_theirs() {
    let fixture = Fixture::new();
    std::fs::write(fixture.path("old"), "").unwrap();
    set(&fixture.path("old"), "etag", b"\"x\"");
    set(&fixture.path("old"), "X-Amz-Meta.Colour", b"blue");
    set(&fixture.path("old"), "X-Amz-Meta.size", b"9");
    let stored = fixture.try_get("old", None).unwrap().0.attributes;
    assert_eq!(
        stored.metadata,
        BTreeMap::from([("colour".into(), "blue".into()), ("size".into(), "9".into())])
    );
    std::fs::create_dir(fixture.path("explicit")).unwrap();
    std::fs::create_dir(fixture.path("implicit")).unwrap();
    set(&fixture.path("explicit"), "etag", b"\"d41d8cd98f00b204e9800998ecf8427e\"");
    assert_eq!(fixture.keys(), ["explicit/", "old"]);
    assert!(matches!(fixture.try_get("implicit/", None), Err(Error::NoSuchKey(_))));
}

#[test]
fn an_object_of_ours() {
    let fixture = Fixture::new();
    let pending = fixture.store.begin_put(BUCKET, "k", &PutRequest::default()).unwrap();
    pending.write_at(0, b"hello").unwrap();
    let mut stored = attributes(b"hello");
    stored.content_encoding = Some(String::new());
    stored.expires = Some("0".into());
    stored.tags.insert("a".into(), "b".into());
    stored.legal_hold = Some(true);
    pending.publish(5, stored).unwrap();
    let path = fixture.path("k");
    assert_eq!(text(&path, "etag"), "\"5d41402abc4b2a76b9719d911017c592\"");
    assert_eq!(text(&path, "content-type"), "text/x-test");
    assert_eq!(get(&path, "content-encoding"), None, "absent when empty");
    assert_eq!(text(&path, "expires"), "0");
    assert_eq!(text(&path, "metadata"), r#"{"length":"5"}"#);
    assert_eq!(text(&path, "X-Amz-Tagging"), r#"{"a":"b"}"#);
    assert_eq!(get(&path, "object-legal-hold").unwrap(), [1]);
    let checksums: serde_json::Value = serde_json::from_slice(&get(&path, "checksums").unwrap()).unwrap();
    assert_eq!(checksums["Type"], "FULL_OBJECT");
    assert!(checksums["CRC64NVME"].is_string() && checksums["XXHASH128"].is_null());
    assert_eq!(checksums.as_object().unwrap().len(), 12);
    fixture.put("d/", b"");
    assert_eq!(text(&fixture.path("d"), "etag"), "\"d41d8cd98f00b204e9800998ecf8427e\"");
}

#[test]
fn uploads_of_theirs_and_ours() {
    let fixture = Fixture::new();
    let hash = hex::encode(Sha256::digest("some/key"));
    let key_dir = fixture.path(&format!(".sgwtmp/multipart/{hash}"));
    let upload = key_dir.join("1b4e28ba-2fa1-41d2-883f-0016d3cca427");
    std::fs::create_dir_all(&upload).unwrap();
    std::fs::create_dir_all(key_dir.join("x.etag-1.inprogress")).unwrap();
    set(&key_dir, "objname", b"some/key");
    set(&upload, "content-type", b"a/b");
    set(&upload, "checksums", br#"{"Algorithm":"","Type":""}"#);
    let part = upload.join("1");
    std::fs::write(&part, "abc").unwrap();
    set(&part, "etag", b"\"900150983cd24fb0d6963f7d28e17f72\"");
    set(&part, "part-crc64nvme", b"ysnLAdSbgBw=");
    std::fs::write(key_dir.join("temporary"), "").unwrap();
    let request = ListRequest { max_keys: 10, ..ListRequest::default() };
    let uploads = fixture.store.list_uploads(BUCKET, &request).unwrap().uploads;
    assert_eq!(uploads.len(), 1);
    assert_eq!(uploads[0].key, "some/key");
    let id = &uploads[0].upload_id;
    let parts = fixture.store.list_parts(BUCKET, "some/key", id, 0, 10).unwrap().parts;
    assert_eq!((parts.len(), parts[0].etag.as_str()), (1, "900150983cd24fb0d6963f7d28e17f72"));
    let request = CompleteUpload {
        parts: vec![CompletedPart {
            number: 1,
            etag: Some(parts[0].etag.clone()),
            checksums: BTreeMap::new(),
        }],
        ..CompleteUpload::default()
    };
    let info = fixture.store.complete_upload(BUCKET, "some/key", id, &request).unwrap();
    assert_eq!(info.attributes.content_type.as_deref(), Some("a/b"));
    assert_eq!(info.attributes.checksums.unwrap().values["CRC64NVME"], "ysnLAdSbgBw=");
    assert_eq!(get(&fixture.path("some/key"), "part-crc64nvme"), None);
    let mut json = String::new();
    let compressed = get(&fixture.path("some/key"), "mp-metadata").unwrap();
    flate2::read::GzDecoder::new(&*compressed).read_to_string(&mut json).unwrap();
    assert_eq!(json, format!(r#"{{"uploadId":"{id}","parts":[3]}}"#));

    let request = CreateUpload {
        attributes: ObjectAttributes { content_type: Some("c/d".into()), ..ObjectAttributes::default() },
        checksum: Some(("SHA256".into(), ChecksumType::Composite)),
        ..CreateUpload::default()
    };
    let id = fixture.store.create_upload(BUCKET, "some/key", &request).unwrap();
    let upload = key_dir.join(&id);
    assert_eq!(text(&key_dir, "objname"), "some/key");
    assert_eq!(text(&upload, "content-type"), "c/d");
    let declared: serde_json::Value = serde_json::from_slice(&get(&upload, "checksums").unwrap()).unwrap();
    assert_eq!((&declared["Algorithm"], &declared["Type"]), (&"SHA256".into(), &"COMPOSITE".into()));
    let pending = fixture.store.begin_part(BUCKET, "some/key", &id, 12, None).unwrap();
    let checksums = Checksums {
        algorithm: "SHA256".into(),
        kind: ChecksumType::FullObject,
        values: [("SHA256".into(), "v".into())].into(),
    };
    let part = pending.publish(0, "e", Some(&checksums)).unwrap();
    assert_eq!(text(&upload.join("12"), "etag"), "\"e\"");
    let stored: serde_json::Value =
        serde_json::from_slice(&get(&upload.join("12"), "checksums").unwrap()).unwrap();
    assert_eq!(stored["SHA256"], "v");

    // Checksums that the upload did not declare are for us alone: at completion versitygw asks for those
    // that it finds.
    let id = fixture.store.create_upload(BUCKET, "some/key", &CreateUpload::default()).unwrap();
    let pending = fixture.store.begin_part(BUCKET, "some/key", &id, 1, None).unwrap();
    let sent = pending.publish(0, "e", Some(&checksums)).unwrap();
    assert_eq!(get(&key_dir.join(&id).join("1"), "checksums"), None);
    let listed = fixture.store.list_parts(BUCKET, "some/key", &id, 0, 10).unwrap().parts;
    assert_eq!((&listed[0].checksums, &sent.checksums), (&part.checksums, &part.checksums));
    let request = CompleteUpload {
        parts: vec![CompletedPart { number: 1, etag: None, checksums: checksums.values }],
        ..CompleteUpload::default()
    };
    fixture.store.complete_upload(BUCKET, "some/key", &id, &request).unwrap();
    assert_eq!(get(&fixture.path("some/key"), "vgwrdma.checksums"), None);
}

#[test]
fn versions_of_theirs_and_ours() {
    let fixture = Fixture::versioned();
    let (old, now) = ("01ARZ3NDEKTSV4RRFFQ69G5FAV", "01ARZ3NDEKTSV4RRFFQ69G5FAW");
    let hash = hex::encode(Sha256::digest("k"));
    let root = fixture.versions.as_ref().unwrap().path();
    let dir = root.join(format!("bucket/{}/{}/{}/{hash}", &hash[..2], &hash[2..4], &hash[4..6]));
    std::fs::create_dir_all(&dir).unwrap();
    // Their delete marker keeps the data of what it hides.
    for (path, id) in [(dir.join(old), old), (fixture.path("k"), now)] {
        std::fs::write(&path, "data").unwrap();
        set(&path, "etag", b"\"8d777f385d3dfec8815d20f7496026dc\"");
        set(&path, "version-id", id.as_bytes());
    }
    std::fs::write(dir.join("null"), "oldest").unwrap();
    rustix::fs::utimensat(
        rustix::fs::CWD,
        dir.join("null"),
        &rustix::fs::Timestamps {
            last_access: rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 },
            last_modification: rustix::fs::Timespec { tv_sec: 1, tv_nsec: 0 },
        },
        rustix::fs::AtFlags::empty(),
    )
    .unwrap();
    set(&fixture.path("k"), "delete-marker", b"");
    assert!(matches!(fixture.try_get("k", None), Err(Error::DeleteMarker { current: true, .. })));
    assert!(fixture.keys().is_empty());
    let request = vgwrdma::store::ListVersionsRequest { max_keys: 10, ..Default::default() };
    let found: Vec<_> = fixture
        .store
        .list_versions(BUCKET, &request)
        .unwrap()
        .versions
        .into_iter()
        .map(|v| v.version_id)
        .collect();
    assert_eq!(found, [now, old, "null"]);
    assert_eq!(fixture.try_get("k", Some("null")).unwrap().1, b"oldest");
    fixture.store.delete_object(BUCKET, "k", Some(now), &Default::default()).unwrap();
    assert_eq!(fixture.get("k"), b"data");
    assert_eq!(text(&fixture.path("k"), "version-id"), old);
    let new = fixture.put("k", b"new").version_id.unwrap();
    assert_eq!(text(&fixture.path("k"), "version-id"), new);
    assert_eq!(std::fs::read(dir.join(old)).unwrap(), b"data");
    assert_eq!(get(&fixture.path(""), "versioning").unwrap(), [1]);
    fixture.store.set_versioning(BUCKET, Versioning::Suspended).unwrap();
    assert_eq!(get(&fixture.path(""), "versioning").unwrap(), [0]);
}

/// versitygw copies files with all their attributes when it moves versions, ours among them.
#[test]
fn copies_with_attributes_keep_their_etag() {
    let fixture = Fixture::new();
    let info = fixture.put("k", b"hello");
    let stamp = text(&fixture.path("k"), "vgwrdma.stamp");
    let copy = fixture.path("copy");
    std::fs::write(&copy, "hello").unwrap();
    for name in ["etag", "checksums", "metadata"] {
        set(&copy, name, &get(&fixture.path("k"), name).unwrap());
    }
    let etag = || fixture.try_get("copy", None).unwrap().0.etag;
    set(&copy, "vgwrdma.stamp", stamp.as_bytes());
    assert_eq!(etag(), info.etag);
    // The same, had it got the inode number of the file that it was copied from.
    let mut fields: Vec<&str> = stamp.split(' ').collect();
    let inode = std::os::unix::fs::MetadataExt::ino(&std::fs::metadata(&copy).unwrap()).to_string();
    (fields[0], fields[2]) = (&inode, "1700000000.000000001");
    set(&copy, "vgwrdma.stamp", fields.join(" ").as_bytes());
    assert_eq!(etag(), info.etag);
    assert_eq!(fixture.list("copy", None).objects[0].etag, info.etag);
    // One of another size is none.
    std::fs::write(&copy, "hello, longer").unwrap();
    assert_ne!(etag(), info.etag);
}

#[test]
fn large_attributes_overflow() {
    let fixture = Fixture::new();
    let policy = vec![b'p'; 200_000];
    for (name, value) in [("policy", &policy), ("cors", &policy[..5000].to_vec()), ("acl", &b"{}".to_vec())] {
        fixture.store.set_bucket_attribute(BUCKET, name, Some(value)).unwrap();
    }
    let read = |name| fixture.store.bucket_attribute(BUCKET, name).unwrap();
    assert_eq!(read("policy").as_ref(), Some(&policy));
    assert_eq!(read("cors").as_deref(), Some(&policy[..5000]));
    assert_eq!(text(&fixture.path(""), "acl"), "{}", "what fits is where other gateways find it");
    fixture.store.set_bucket_attribute(BUCKET, "policy", Some(b"short")).unwrap();
    assert_eq!(read("policy").as_deref(), Some(&b"short"[..]));
    for name in ["policy", "cors", "acl"] {
        fixture.store.set_bucket_attribute(BUCKET, name, None).unwrap();
        assert_eq!(read(name), None);
    }
    assert!(!fixture.files().iter().any(|f| f.contains("overflow/") && !f.ends_with('/')));

    let put = |size: usize, parts: u64| {
        let pending = fixture.store.begin_put(BUCKET, "d/k", &PutRequest::default()).unwrap();
        let mut stored = attributes(b"");
        stored.metadata.insert("long".into(), "x".repeat(size));
        stored.part_ends = (1..=parts).map(|n| n * 5_242_881).collect();
        stored.tags.insert("tag".into(), "1".into());
        let info = pending.publish(0, stored).unwrap();
        assert!(fixture.try_get("d/k", None).unwrap().0 == info, "of {size} bytes");
        info
    };
    // Every length around the limit, so that the reference itself is what does not fit in one of them.
    for size in (2900..4100).step_by(17) {
        put(size, 1);
    }
    assert_eq!(put(100_000, 10_000).attributes.part_ends.len(), 10_000);
    assert_eq!(text(&fixture.path("d/k"), "X-Amz-Tagging"), r#"{"tag":"1"}"#);
    let tags = [("other".to_owned(), "t".repeat(3000))].into();
    fixture.store.set_object_tags(BUCKET, "d/k", None, Some(&tags)).unwrap();
    let info = fixture.try_get("d/k", None).unwrap().0;
    assert_eq!((&info.attributes.tags, info.attributes.metadata["long"].len()), (&tags, 100_000));
    fixture.delete("d/k");
    assert!(
        !fixture.files().iter().any(|f| f.contains("overflow/") && !f.ends_with('/')),
        "it goes with its object"
    );
    // An attribute that anybody may write must not lead elsewhere.
    std::fs::write(fixture.path("evil"), "").unwrap();
    set(&fixture.path("evil"), "vgwrdma.overflow", b"../../../root/secret");
    assert!(fixture.try_get("evil", None).is_err());
}

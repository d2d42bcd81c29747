//! Multipart uploads.

use std::collections::BTreeMap;

use test_case::test_case;
use vgwrdma::digest::{Algorithm, Digester};
use vgwrdma::store::{
    ChecksumType, Checksums, CompleteUpload, CompletedPart, CreateUpload, Error, ListRequest,
    ObjectAttributes, ObjectInfo, PartInfo, Result,
};

use super::common::{BUCKET, Fixture, if_none_match};

const MIB: usize = 1 << 20;

pub(crate) fn body(seed: usize, size: usize) -> Vec<u8> {
    (0..size).map(|n| ((n * 31 + seed * 7 + n / 251) % 256) as u8).collect()
}

fn create(fixture: &Fixture, key: &str) -> String {
    let attributes = ObjectAttributes {
        content_type: Some("text/x-test".into()),
        metadata: [("a".to_owned(), "1".to_owned())].into(),
        tags: [("t".to_owned(), "2".to_owned())].into(),
        ..ObjectAttributes::default()
    };
    fixture.store.create_upload(BUCKET, key, &CreateUpload { attributes, ..CreateUpload::default() }).unwrap()
}

pub(crate) fn upload_part(
    fixture: &Fixture,
    key: &str,
    id: &str,
    number: u32,
    data: &[u8],
) -> Result<PartInfo> {
    let pending = fixture.store.begin_part(BUCKET, key, id, number, Some(data.len() as u64))?;
    pending.write_at(0, data).unwrap();
    let mut digester = Digester::new(true, [Algorithm::Crc64Nvme, Algorithm::Crc32]);
    digester.update(data);
    let digests = digester.finish();
    let algorithm =
        pending.declared_checksum().and_then(|d| Algorithm::from_name(&d.0)).unwrap_or(Algorithm::Crc64Nvme);
    let checksums = Checksums {
        algorithm: algorithm.name().into(),
        kind: ChecksumType::FullObject,
        values: [(algorithm.name().to_owned(), digests.base64(algorithm).unwrap())].into(),
    };
    pending.publish(data.len() as u64, &digests.md5_hex().unwrap(), Some(&checksums))
}

fn wanted(parts: &[PartInfo]) -> CompleteUpload {
    let parts = parts.iter().map(|p| CompletedPart {
        number: p.number,
        etag: Some(p.etag.clone()),
        checksums: BTreeMap::new(),
    });
    CompleteUpload { parts: parts.collect(), ..CompleteUpload::default() }
}

pub(crate) fn complete(fixture: &Fixture, key: &str, id: &str, parts: &[PartInfo]) -> Result<ObjectInfo> {
    fixture.store.complete_upload(BUCKET, key, id, &wanted(parts))
}

/// Settings under which parts are joined in different ways.
fn fixtures() -> Vec<Fixture> {
    vec![
        Fixture::new(),
        Fixture::with(|o| o.durability = vgwrdma::store::Durability::Full),
        Fixture::with(|o| (o.disable_copy_file_range, o.disable_otmpfile) = (true, true)),
        Fixture::with(|o| o.lock_mode = vgwrdma::store::LockMode::Process),
    ]
}

#[test]
fn parts_become_one_object() {
    for fixture in fixtures() {
        let id = create(&fixture, "dir/k");
        let bodies = [body(1, 5 * MIB), body(2, 5 * MIB + 17), body(3, 100)];
        let mut parts = Vec::new();
        for (number, data) in [(9, &bodies[2]), (1, &bodies[0]), (4, &bodies[1])] {
            parts.push(upload_part(&fixture, "dir/k", &id, number, data).unwrap());
        }
        assert!(fixture.keys().is_empty(), "not yet");
        parts.sort_by_key(|p| p.number);
        let info = complete(&fixture, "dir/k", &id, &parts).unwrap();
        let whole = bodies.concat();
        assert_eq!(fixture.get("dir/k"), whole);
        let mut digester = Digester::new(false, [Algorithm::Crc64Nvme]);
        digester.update(&whole);
        let crc = digester.finish().base64(Algorithm::Crc64Nvme).unwrap();
        assert_eq!(info.attributes.checksums.as_ref().unwrap().values["CRC64NVME"], crc);
        assert!(info.etag.ends_with("-3"));
        let ends = [5 * MIB, 10 * MIB + 17, 10 * MIB + 117].map(|n| n as u64);
        assert_eq!(info.attributes.part_ends, ends);
        assert_eq!((info.part(1), info.part(3)), (Some(0..ends[0]), Some(ends[1]..ends[2])));
        assert_eq!((info.part(0), info.part(4), info.part_count()), (None, None, Some(3)));
        assert_eq!(info.attributes.metadata["a"], "1");
        assert_eq!(info.attributes.tags["t"], "2");
        assert_eq!(fixture.store.head_object(BUCKET, "dir/k", None).unwrap(), info);
        // Again, as a client does that got no answer.
        assert_eq!(complete(&fixture, "dir/k", &id, &parts).unwrap(), info);
        let left = fixture.files();
        assert!(!left.iter().any(|f| f.contains(&id)), "{left:?}");
        fixture.put("dir/k", b"new");
        assert!(matches!(complete(&fixture, "dir/k", &id, &parts), Err(Error::NoSuchUpload(_))));
        assert_eq!(fixture.get("dir/k"), b"new");
    }
}

#[test]
fn what_completion_refuses() {
    let fixture = Fixture::new();
    let id = create(&fixture, "k");
    let one = upload_part(&fixture, "k", &id, 1, &body(1, 5 * MIB)).unwrap();
    let two = upload_part(&fixture, "k", &id, 2, b"small").unwrap();
    let three = upload_part(&fixture, "k", &id, 3, b"last").unwrap();
    let refused = |parts: &[PartInfo]| complete(&fixture, "k", &id, parts).unwrap_err();
    assert!(matches!(refused(&[]), Error::InvalidArgument(_)));
    assert!(matches!(refused(&[two.clone(), one.clone()]), Error::InvalidPartOrder));
    assert!(matches!(refused(&[one.clone(), one.clone()]), Error::InvalidPartOrder));
    assert!(matches!(refused(&[one.clone(), two.clone(), three.clone()]), Error::EntityTooSmall(2)));
    let other = PartInfo { etag: "0".repeat(32), ..one.clone() };
    assert!(matches!(refused(&[other]), Error::InvalidPart { number: 1, .. }));
    let missing = PartInfo { number: 7, ..one.clone() };
    assert!(matches!(refused(&[missing]), Error::InvalidPart { number: 7, .. }));
    let try_with = |change: &dyn Fn(&mut CompleteUpload)| {
        let mut request = wanted(&[one.clone(), three.clone()]);
        change(&mut request);
        fixture.store.complete_upload(BUCKET, "k", &id, &request).unwrap_err()
    };
    assert!(matches!(try_with(&|r| r.expected_size = Some(1)), Error::InvalidArgument(_)));
    assert!(matches!(
        try_with(&|r| drop(r.checksums.insert("CRC64NVME".into(), "AAAAAAAAAAA=".into()))),
        Error::BadDigest(_)
    ));
    assert!(matches!(
        try_with(&|r| drop(r.checksums.insert("SHA1".into(), "AAAAAAAAAAA=".into()))),
        Error::BadDigest(_)
    ));
    assert!(matches!(
        try_with(&|r| drop(r.parts[0].checksums.insert("CRC64NVME".into(), "AAAAAAAAAAA=".into()))),
        Error::InvalidPart { number: 1, .. }
    ));
    fixture.put("k", b"there");
    assert!(matches!(try_with(&|r| r.conditions = if_none_match()), Error::PreconditionFailed(_)));
    assert_eq!(fixture.get("k"), b"there");
    // After all that the upload is whole.
    complete(&fixture, "k", &id, &[one, three]).unwrap();
    assert_eq!(fixture.get("k").len(), 5 * MIB + 4);
}

#[test]
fn a_part_is_replaced_by_a_later_one() {
    let fixture = Fixture::new();
    let id = create(&fixture, "k");
    let first = upload_part(&fixture, "k", &id, 1, b"first").unwrap();
    let second = upload_part(&fixture, "k", &id, 1, b"second").unwrap();
    assert!(matches!(complete(&fixture, "k", &id, &[first]), Err(Error::InvalidPart { .. })));
    complete(&fixture, "k", &id, &[second]).unwrap();
    assert_eq!(fixture.get("k"), b"second");
}

#[test_case("CRC32", ChecksumType::FullObject)]
#[test_case("CRC32", ChecksumType::Composite)]
fn declared_checksums(algorithm: &str, kind: ChecksumType) {
    let fixture = Fixture::new();
    let request = CreateUpload { checksum: Some((algorithm.into(), kind)), ..CreateUpload::default() };
    let id = fixture.store.create_upload(BUCKET, "k", &request).unwrap();
    let bodies = [body(1, 5 * MIB), body(2, 9)];
    let parts = [1, 2].map(|n| upload_part(&fixture, "k", &id, n, &bodies[n as usize - 1]).unwrap());
    let page = fixture.store.list_parts(BUCKET, "k", &id, 0, 1000).unwrap();
    assert_eq!(page.checksum, Some((algorithm.to_owned(), kind)));
    assert!(page.parts.iter().all(|p| p.checksums.as_ref().unwrap().values.contains_key(algorithm)));
    let info = complete(&fixture, "k", &id, &parts).unwrap();
    let checksums = info.attributes.checksums.unwrap();
    assert_eq!((checksums.algorithm.as_str(), checksums.kind), (algorithm, kind));
    let value = &checksums.values[algorithm];
    if kind == ChecksumType::FullObject {
        let mut digester = Digester::new(false, [Algorithm::Crc32]);
        digester.update(&bodies.concat());
        assert_eq!(*value, digester.finish().base64(Algorithm::Crc32).unwrap());
    } else {
        assert!(value.ends_with("-2"), "{value}");
    }
}

#[test]
fn checksum_types_that_cannot_be() {
    let fixture = Fixture::new();
    for (algorithm, kind) in [("SHA256", ChecksumType::FullObject), ("CRC64NVME", ChecksumType::Composite)] {
        let request = CreateUpload { checksum: Some((algorithm.into(), kind)), ..CreateUpload::default() };
        let created = fixture.store.create_upload(BUCKET, "k", &request);
        assert!(matches!(created, Err(Error::InvalidArgument(_))));
    }
    assert!(fixture.store.create_upload(BUCKET, "dir/", &CreateUpload::default()).is_err());
}

#[test]
fn parts_are_listed_in_pages() {
    let fixture = Fixture::new();
    let id = create(&fixture, "k");
    for number in [10, 2, 1, 100, 10_000] {
        upload_part(&fixture, "k", &id, number, &[0; 3]).unwrap();
    }
    for bad in [0, 10_001] {
        assert!(matches!(
            fixture.store.begin_part(BUCKET, "k", &id, bad, None),
            Err(Error::InvalidArgument(_))
        ));
    }
    let (mut after, mut numbers) = (0, Vec::new());
    loop {
        let page = fixture.store.list_parts(BUCKET, "k", &id, after, 2).unwrap();
        numbers.extend(page.parts.iter().map(|p| p.number));
        if !page.truncated {
            break;
        }
        after = *numbers.last().unwrap();
    }
    assert_eq!(numbers, [1, 2, 10, 100, 10_000]);
}

#[test]
fn aborted_uploads_leave_nothing() {
    let fixture = Fixture::new();
    let id = create(&fixture, "k");
    let other = create(&fixture, "k");
    let pending = fixture.store.begin_part(BUCKET, "k", &id, 2, None).unwrap();
    upload_part(&fixture, "k", &id, 1, b"x").unwrap();
    fixture.store.abort_upload(BUCKET, "k", &id).unwrap();
    assert!(matches!(pending.publish(0, "e", None), Err(Error::NoSuchUpload(_))));
    for id in [id.as_str(), "../..", "", "none", "a/b"] {
        assert!(matches!(fixture.store.abort_upload(BUCKET, "k", id), Err(Error::NoSuchUpload(_))), "{id}");
        assert!(matches!(upload_part(&fixture, "k", id, 1, b"x"), Err(Error::NoSuchUpload(_))), "{id}");
        assert!(matches!(fixture.store.list_parts(BUCKET, "k", id, 0, 1), Err(Error::NoSuchUpload(_))));
        assert!(matches!(complete(&fixture, "k", id, &[]), Err(Error::NoSuchUpload(_))));
    }
    assert!(matches!(upload_part(&fixture, "other", &other, 1, b"x"), Err(Error::NoSuchUpload(_))));
    fixture.store.abort_upload(BUCKET, "k", &other).unwrap();
    assert_eq!(
        fixture.files(),
        [".sgwtmp/", "bucket/", "bucket/.sgwtmp/", "bucket/.sgwtmp/multipart/"],
        "nothing but the directories"
    );
}

#[test]
fn uploads_are_listed_in_pages() {
    let fixture = Fixture::new();
    let mut expected = Vec::new();
    for key in ["a", "b/1", "b/2", "b/2", "b/2", "c", "c"] {
        expected.push((key.to_owned(), create(&fixture, key)));
    }
    expected.sort();
    for max_keys in [1, 2, 3, 100] {
        let mut found = Vec::new();
        let mut request = ListRequest { max_keys, ..ListRequest::default() };
        loop {
            let page = fixture.store.list_uploads(BUCKET, &request).unwrap();
            found.extend(page.uploads.into_iter().map(|u| (u.key, u.upload_id)));
            let Some((key, id)) = page.next else { break };
            (request.start_after, request.upload_id_marker) = (Some(key), Some(id));
        }
        assert_eq!(found, expected, "pages of {max_keys}");
    }
    let request = ListRequest { delimiter: Some("/".into()), max_keys: 100, ..ListRequest::default() };
    let page = fixture.store.list_uploads(BUCKET, &request).unwrap();
    assert_eq!(page.common_prefixes, ["b/"]);
    assert_eq!(page.uploads.len(), 3);
    let request = ListRequest { prefix: "b/2".into(), max_keys: 2, ..ListRequest::default() };
    let page = fixture.store.list_uploads(BUCKET, &request).unwrap();
    assert_eq!(page.uploads.len(), 2);
    assert_eq!(page.next.unwrap().0, "b/2");
}

/// An error after some parts were joined: the upload can be completed all the same, with the same
/// parts or with others.
#[test]
fn a_failed_completion_can_be_repeated() {
    use super::observer::{Failing, observed};
    use vgwrdma::store::FsOp;
    for (others, lost) in [(false, 1), (false, 2), (false, 3), (true, 2), (true, 3)] {
        let failing = Failing::new();
        let fixture = observed(&failing, |_| ());
        let id = create(&fixture, "k");
        let bodies = [body(1, 5 * MIB), body(2, 6 * MIB), body(3, 7 * MIB), body(4, 5)];
        let mut parts: Vec<PartInfo> = bodies
            .iter()
            .zip(1..)
            .map(|(data, n)| upload_part(&fixture, "k", &id, n, data).unwrap())
            .collect();
        failing.fail(FsOp::Copy, lost, rustix::io::Errno::NOSPC);
        let error = complete(&fixture, "k", &id, &parts).unwrap_err();
        assert!(matches!(error, Error::NoSpace { .. }), "{error}");
        failing.clear();
        let listed = fixture.store.list_parts(BUCKET, "k", &id, 0, 100).unwrap().parts;
        assert_eq!(
            listed.iter().map(|p| (p.number, p.size)).collect::<Vec<_>>(),
            parts.iter().map(|p| (p.number, p.size)).collect::<Vec<_>>()
        );
        if others {
            parts.remove(1);
            let new = body(9, 5 * MIB);
            parts[0] = upload_part(&fixture, "k", &id, 1, &new).unwrap();
            complete(&fixture, "k", &id, &parts).unwrap();
            assert_eq!(fixture.get("k"), [new, bodies[2].clone(), bodies[3].clone()].concat());
        } else {
            complete(&fixture, "k", &id, &parts).unwrap();
            assert_eq!(fixture.get("k"), bodies.concat());
        }
    }
}

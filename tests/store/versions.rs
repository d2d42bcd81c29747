//! Versioning: what is kept, in which order, and what comes back.

use std::collections::BTreeMap;

use vgwrdma::store::{
    DeleteRequest, Deleted, Error, ListVersionsRequest, ListedVersion, Versioning, WriteConditions,
};

use super::common::{BUCKET, Fixture, if_match, if_none_match};

fn versions(fixture: &Fixture) -> Vec<ListedVersion> {
    let request = ListVersionsRequest { max_keys: 1000, ..ListVersionsRequest::default() };
    fixture.store.list_versions(BUCKET, &request).unwrap().versions
}

/// Key, version and whether it is a marker, with the body of what is none.
fn bodies(fixture: &Fixture, key: &str) -> Vec<Option<Vec<u8>>> {
    let of_key = versions(fixture).into_iter().filter(|v| v.key == key);
    of_key
        .enumerate()
        .map(|(at, v)| {
            assert_eq!(v.is_latest, at == 0);
            let got = fixture.try_get(key, Some(&v.version_id));
            if v.delete_marker {
                assert!(matches!(got, Err(Error::DeleteMarker { current: false, .. })));
                return None;
            }
            let (info, body) = got.unwrap();
            assert_eq!(info.version_id.as_deref(), Some(v.version_id.as_str()));
            assert_eq!(info.attributes.metadata["length"], body.len().to_string());
            assert_eq!((info.etag, info.size), (v.etag, v.size));
            Some(body)
        })
        .collect()
}

fn delete_version(fixture: &Fixture, key: &str, id: &str) -> Deleted {
    fixture.store.delete_object(BUCKET, key, Some(id), &WriteConditions::default()).unwrap()
}

fn some(texts: &[&str]) -> Vec<Option<Vec<u8>>> {
    texts.iter().map(|t| (!t.is_empty()).then(|| t.as_bytes().to_vec())).collect()
}

#[test]
fn every_write_makes_a_version() {
    let fixture = Fixture::versioned();
    let first = fixture.put("d/k", b"one").version_id.unwrap();
    let second = fixture.put("d/k", b"second").version_id.unwrap();
    assert!(first.len() == 26 && first < second);
    assert_eq!(bodies(&fixture, "d/k"), some(&["second", "one"]));
    assert_eq!(fixture.get("d/k"), b"second");
    assert_eq!(fixture.keys(), ["d/k"]);

    let deleted = fixture.store.delete_object(BUCKET, "d/k", None, &WriteConditions::default()).unwrap();
    assert!(deleted.delete_marker && deleted.existed);
    assert_eq!(std::fs::metadata(fixture.path("d/k")).unwrap().len(), 0, "a marker keeps no data");
    assert!(fixture.keys().is_empty());
    assert!(matches!(
        fixture.try_get("d/k", None),
        Err(Error::DeleteMarker { current: true, version }) if Some(&version) == deleted.version_id.as_ref()
    ));
    assert_eq!(bodies(&fixture, "d/k"), some(&["", "second", "one"]));

    let third = fixture.try_put("d/k", b"third", &if_none_match()).unwrap();
    assert_eq!(bodies(&fixture, "d/k"), some(&["third", "", "second", "one"]));
    assert!(fixture.try_put("d/k", b"x", &if_none_match()).is_err());
    let gone = delete_version(&fixture, "d/k", third.version_id.as_deref().unwrap());
    assert!(!gone.delete_marker);
    assert_eq!(bodies(&fixture, "d/k"), some(&["", "second", "one"]));
    let gone = delete_version(&fixture, "d/k", deleted.version_id.as_deref().unwrap());
    assert!(gone.delete_marker);
    assert_eq!(fixture.get("d/k"), b"second");
    delete_version(&fixture, "d/k", &first);
    assert_eq!(bodies(&fixture, "d/k"), some(&["second"]));
    assert!(!delete_version(&fixture, "d/k", &first).existed);
    delete_version(&fixture, "d/k", &second);
    assert!(versions(&fixture).is_empty());
    assert!(!fixture.path("d").exists());
    fixture.store.delete_bucket(BUCKET).unwrap();
}

#[test]
fn versions_that_are_not_there() {
    let fixture = Fixture::versioned();
    fixture.put("k", b"x");
    let other = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    assert!(matches!(fixture.try_get("k", Some(other)), Err(Error::NoSuchVersion { .. })));
    assert!(matches!(fixture.try_get("k", Some("null")), Err(Error::NoSuchVersion { .. })));
    for bad in ["../../x", "", "nul", "01arz3ndektsv4rrffq69g5fav"] {
        assert!(matches!(fixture.try_get("k", Some(bad)), Err(Error::InvalidArgument(_))), "{bad}");
    }
}

#[test]
fn the_null_version_has_its_place_in_time() {
    let fixture = Fixture::versioned();
    let set = |state| fixture.store.set_versioning(BUCKET, state).unwrap();
    fixture.put("k", b"v1");
    set(Versioning::Suspended);
    assert_eq!(fixture.put("k", b"null1").version_id.as_deref(), Some("null"));
    fixture.put("k", b"null2");
    assert_eq!(bodies(&fixture, "k"), some(&["null2", "v1"]), "there is one null version");
    set(Versioning::Enabled);
    let v2 = fixture.put("k", b"v2").version_id.unwrap();
    let v3 = fixture.put("k", b"v3").version_id.unwrap();
    assert_eq!(bodies(&fixture, "k"), some(&["v3", "v2", "null2", "v1"]));
    delete_version(&fixture, "k", &v3);
    assert_eq!(fixture.get("k"), b"v2", "the newest comes back, not the null version");
    delete_version(&fixture, "k", &v2);
    assert_eq!(fixture.get("k"), b"null2");
    delete_version(&fixture, "k", "null");
    assert_eq!(fixture.get("k"), b"v1");

    set(Versioning::Suspended);
    let deleted = fixture.store.delete_object(BUCKET, "k", None, &WriteConditions::default()).unwrap();
    assert_eq!(deleted.version_id.as_deref(), Some("null"));
    assert_eq!(bodies(&fixture, "k"), some(&["", "v1"]));
    fixture.put("k", b"null3");
    assert_eq!(bodies(&fixture, "k"), some(&["null3", "v1"]), "it replaced the null marker");
    assert!(fixture.store.set_versioning(BUCKET, Versioning::Off).is_err());
}

#[test]
fn objects_from_before_versioning_are_the_null_version() {
    let versions = tempfile::tempdir().unwrap();
    let fixture = Fixture::with(|o| o.versioning_dir = Some(versions.path().to_owned()));
    fixture.put("k", b"before");
    std::fs::write(fixture.path("foreign"), "from outside").unwrap();
    fixture.store.set_versioning(BUCKET, Versioning::Enabled).unwrap();
    assert_eq!(fixture.try_get("k", None).unwrap().0.version_id.as_deref(), Some("null"));
    fixture.put("k", b"after");
    assert_eq!(bodies(&fixture, "k"), some(&["after", "before"]));
    assert_eq!(fixture.try_get("k", Some("null")).unwrap().1, b"before");
    fixture.put("foreign", b"own");
    assert_eq!(fixture.try_get("foreign", Some("null")).unwrap().1, b"from outside");
}

#[test]
fn a_marker_where_nothing_was() {
    let fixture = Fixture::versioned();
    let deleted = fixture.store.delete_object(BUCKET, "x/y", None, &WriteConditions::default()).unwrap();
    assert!(deleted.delete_marker && !deleted.existed);
    assert!(fixture.keys().is_empty());
    assert_eq!(fixture.list("", Some("/")).common_prefixes, Vec::<String>::new(), "only a marker is below");
    let request =
        ListVersionsRequest { delimiter: Some("/".into()), max_keys: 10, ..ListVersionsRequest::default() };
    assert_eq!(fixture.store.list_versions(BUCKET, &request).unwrap().common_prefixes, ["x/"]);
    assert!(matches!(fixture.store.delete_bucket(BUCKET), Err(Error::BucketNotEmpty(_))));
    fixture.put("f", b"");
    let under = fixture.store.delete_object(BUCKET, "f/g", None, &WriteConditions::default()).unwrap();
    assert!(!under.delete_marker, "no object of that key can be");
}

#[test]
fn conditions_of_deletes_on_markers() {
    let fixture = Fixture::versioned();
    let delete = |conditions: &WriteConditions| fixture.store.delete_object(BUCKET, "k", None, conditions);
    let id = fixture.put("k", b"x").version_id.unwrap();
    assert!(matches!(delete(&if_match("bad")), Err(Error::PreconditionFailed(_))));
    let marker = delete(&if_match("*")).unwrap().version_id.unwrap();
    delete(&if_match("*")).unwrap();
    assert!(matches!(delete(&if_match("bad")), Err(Error::PreconditionFailed(_))));
    let size = WriteConditions { if_match_size: Some(9), ..WriteConditions::default() };
    assert!(matches!(delete(&size), Err(Error::PreconditionFailed(_))));
    let version = |id: &str, conditions: &WriteConditions| {
        fixture.store.delete_object(BUCKET, "k", Some(id), conditions)
    };
    assert!(matches!(version(&id, &size), Err(Error::PreconditionFailed(_))));
    assert!(version(&id, &if_match("*")).unwrap().existed);
    assert!(!version(&id, &size).unwrap().existed);
    assert!(version(&marker, &WriteConditions::default()).unwrap().delete_marker);
}

#[test]
fn versions_are_listed_in_pages() {
    let fixture = Fixture::versioned();
    fixture.put("dir/", b"");
    for round in 0..3 {
        for key in ["a", "dir/b", "dir/c", "z"] {
            fixture.put(key, format!("{round}").as_bytes());
        }
    }
    fixture.delete("dir/b");
    let all = versions(&fixture);
    assert_eq!(all.len(), 14);
    assert!(all.is_sorted_by_key(|v| v.key.clone()));
    for max_keys in [1, 2, 3, 5, 14] {
        let mut found = Vec::new();
        let mut request = ListVersionsRequest { max_keys, ..ListVersionsRequest::default() };
        loop {
            let page = fixture.store.list_versions(BUCKET, &request).unwrap();
            assert!(page.versions.len() <= max_keys);
            found.extend(page.versions);
            let Some((key, id)) = page.next else { break };
            (request.key_marker, request.version_marker) = (Some(key), Some(id));
        }
        assert_eq!(found, all, "pages of {max_keys}");
    }
    let mut request =
        ListVersionsRequest { delimiter: Some("/".into()), max_keys: 4, ..ListVersionsRequest::default() };
    let page = fixture.store.list_versions(BUCKET, &request).unwrap();
    assert_eq!((page.versions.len(), page.common_prefixes), (3, vec!["dir/".to_owned()]));
    let (key, id) = page.next.unwrap();
    (request.key_marker, request.version_marker) = (Some(key), Some(id));
    let page = fixture.store.list_versions(BUCKET, &request).unwrap();
    assert!(page.versions.iter().all(|v| v.key == "z") && page.versions.len() == 3 && page.next.is_none());
    // A marker that has been deleted meanwhile still tells where to go on.
    let a = all.iter().filter(|v| v.key == "a").map(|v| v.version_id.clone()).collect::<Vec<_>>();
    delete_version(&fixture, "a", &a[1]);
    let request = ListVersionsRequest {
        key_marker: Some("a".into()),
        version_marker: Some(a[1].clone()),
        prefix: "a".into(),
        max_keys: 10,
        ..ListVersionsRequest::default()
    };
    let page = fixture.store.list_versions(BUCKET, &request).unwrap();
    assert_eq!(page.versions.iter().map(|v| &v.version_id).collect::<Vec<_>>(), [&a[2]]);
}

#[test]
fn tags_of_a_version() {
    let fixture = Fixture::versioned();
    let old = fixture.put("k", b"old").version_id.unwrap();
    fixture.put("k", b"new");
    let tags = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
    let info = fixture.store.set_object_tags(BUCKET, "k", Some(&old), Some(&tags)).unwrap();
    assert_eq!(info.attributes.tags, tags);
    assert_eq!(fixture.try_get("k", Some(&old)).unwrap().0.attributes.tags, tags);
    assert!(fixture.try_get("k", None).unwrap().0.attributes.tags.is_empty());
    fixture.delete("k");
    assert!(matches!(
        fixture.store.set_object_tags(BUCKET, "k", None, None),
        Err(Error::DeleteMarker { .. })
    ));
}

#[test]
fn retention_and_legal_hold() {
    let fixture = Fixture::versioned();
    let id = fixture.put("k", b"kept").version_id.unwrap();
    let governance = br#"{"Mode":"GOVERNANCE","RetainUntilDate":"2999-01-01T00:00:00Z"}"#;
    fixture.store.set_object_retention(BUCKET, "k", None, governance, false).unwrap();
    fixture.put("k", b"an overwrite keeps the old version");
    let denied = fixture.store.delete_object(BUCKET, "k", Some(&id), &WriteConditions::default());
    assert!(matches!(denied, Err(Error::Denied(_))));
    fixture.store.set_object_legal_hold(BUCKET, "k", Some(&id), true).unwrap();
    let bypass =
        DeleteRequest { version: Some(id.clone()), bypass_governance: true, ..DeleteRequest::default() };
    assert!(matches!(fixture.store.delete_object_with(BUCKET, "k", &bypass), Err(Error::Denied(_))));
    fixture.store.set_object_legal_hold(BUCKET, "k", Some(&id), false).unwrap();
    assert!(fixture.store.delete_object_with(BUCKET, "k", &bypass).unwrap().existed);
}

#[test]
fn a_held_object_is_not_overwritten_without_versioning() {
    let fixture = Fixture::new();
    fixture.put("k", b"kept");
    let compliance = br#"{"Mode":"COMPLIANCE","RetainUntilDate":"2999-01-01T00:00:00Z"}"#;
    fixture.store.set_object_retention(BUCKET, "k", None, compliance, false).unwrap();
    assert!(matches!(fixture.try_put("k", b"x", &WriteConditions::default()), Err(Error::Denied(_))));
    let denied = fixture.store.delete_object(BUCKET, "k", None, &WriteConditions::default());
    assert!(matches!(denied, Err(Error::Denied(_))));
    assert_eq!(fixture.get("k"), b"kept");
}

/// A crash after the old version was linked into its place and before the new one got the name.
#[test]
fn a_version_in_two_places_counts_once() {
    let fixture = Fixture::versioned();
    let id = fixture.put("k", b"one").version_id.unwrap();
    let second = fixture.put("k", b"two").version_id.unwrap();
    let older = find(&fixture, &id);
    std::fs::hard_link(fixture.path("k"), older.with_file_name(&second)).unwrap();
    assert_eq!(bodies(&fixture, "k"), some(&["two", "one"]));
    fixture.put("k", b"three");
    assert_eq!(bodies(&fixture, "k"), some(&["three", "two", "one"]));
    let left: Vec<_> =
        std::fs::read_dir(older.ancestors().nth(5).unwrap().join(".sgwtmp")).unwrap().collect();
    assert!(left.is_empty(), "{left:?}");
    std::fs::hard_link(fixture.path("k"), older.with_file_name(current(&fixture))).unwrap();
    delete_version(&fixture, "k", &current(&fixture));
    assert_eq!(bodies(&fixture, "k"), some(&["two", "one"]));
}

fn current(fixture: &Fixture) -> String {
    fixture.try_get("k", None).unwrap().0.version_id.unwrap()
}

/// The file of a version in the versioning directory.
fn find(fixture: &Fixture, id: &str) -> std::path::PathBuf {
    fn walk(dir: &std::path::Path, id: &str) -> Option<std::path::PathBuf> {
        std::fs::read_dir(dir)
            .ok()?
            .filter_map(Result::ok)
            .find_map(|e| if e.file_name() == id { Some(e.path()) } else { walk(&e.path(), id) })
    }
    walk(fixture.versions.as_ref().unwrap().path(), id).unwrap()
}

#[test]
fn concurrent_writes_and_deletes_lose_nothing() {
    let fixture = Fixture::versioned();
    let (threads, rounds) = (6, 15);
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let fixture = &fixture;
            scope.spawn(move || {
                for round in 0..rounds {
                    if (thread + round) % 3 == 0 {
                        fixture.delete("d/k");
                    } else {
                        fixture.put("d/k", format!("{thread} {round}").as_bytes());
                    }
                }
            });
        }
    });
    let all = versions(&fixture);
    assert_eq!(all.len(), threads * rounds, "as many versions as operations");
    assert_eq!(all.iter().filter(|v| v.delete_marker).count(), threads * rounds / 3);
    let mut ids: Vec<_> = all.iter().map(|v| v.version_id.clone()).collect();
    assert!(ids.is_sorted_by(|a, b| a > b), "from the newest");
    bodies(&fixture, "d/k");
    // All deleted at once, one by one.
    std::thread::scope(|scope| {
        for ids in ids.chunks(20) {
            let fixture = &fixture;
            scope.spawn(move || {
                for id in ids {
                    assert!(delete_version(fixture, "d/k", id).existed, "{id}");
                }
            });
        }
    });
    ids.clear();
    assert!(versions(&fixture).is_empty());
    assert_eq!(fixture.files(), [".sgwtmp/", "bucket/", "bucket/.sgwtmp/"]);
}

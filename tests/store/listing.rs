//! Listings against a plain model of what S3 says.

use std::collections::BTreeSet;

use proptest::prelude::*;
use test_case::test_case;
use vgwrdma::store::{ListPage, ListRequest};

use super::common::{BUCKET, Fixture};

/// Pages through a listing; entries (keys and prefixes) in the order in which they came.
fn all_pages(fixture: &Fixture, request: &ListRequest) -> Vec<String> {
    let mut request = request.clone();
    let mut entries: Vec<String> = Vec::new();
    loop {
        let page = fixture.store.list_objects(BUCKET, &request).unwrap();
        assert!(page.objects.len() + page.common_prefixes.len() <= request.max_keys);
        let mut merged: Vec<String> =
            page.objects.iter().map(|o| o.key.clone()).chain(page.common_prefixes.clone()).collect();
        assert!(page.objects.is_sorted_by(|a, b| a.key < b.key) && page.common_prefixes.is_sorted());
        merged.sort();
        entries.extend(merged);
        let Some(next) = page.next else { break };
        assert_eq!(Some(&next), entries.last(), "the page goes on after its last entry");
        request.start_after = Some(next);
    }
    assert!(entries.is_sorted_by(|a, b| a < b), "in order over all pages, each once: {entries:?}");
    entries
}

/// What S3 lists: the keys after the marker, rolled up.
fn model(keys: &BTreeSet<String>, request: &ListRequest) -> Vec<String> {
    let mut entries = BTreeSet::new();
    for key in keys.iter().filter(|key| key.starts_with(&request.prefix)) {
        let rest = &key[request.prefix.len()..];
        let delimiter = request.delimiter.as_deref().filter(|d| !d.is_empty());
        let entry = match delimiter.and_then(|d| rest.find(d).map(|at| at + d.len())) {
            Some(end) => &key[..request.prefix.len() + end],
            None => key,
        };
        if request.start_after.as_deref().is_none_or(|after| entry > after) {
            entries.insert(entry.to_owned());
        }
    }
    entries.into_iter().collect()
}

#[test]
fn the_order_is_that_of_full_keys() {
    let fixture = Fixture::new();
    for key in ["a/b", "a-b", "a.b", "a0", "a/", "aa", "a/b-c", "B", "ü", "z/é/x", "z/e/x", " ", "~", "é"]
    {
        fixture.put(key, b"");
    }
    std::fs::create_dir_all(fixture.path("empty/dir/only")).unwrap();
    let mut expected: Vec<_> =
        ["a/b", "a-b", "a.b", "a0", "a/", "aa", "a/b-c", "B", "ü", "z/é/x", "z/e/x", " ", "~", "é"].into();
    expected.sort_unstable();
    assert_eq!(fixture.keys(), expected);
    assert_eq!(fixture.list("", Some("/")).common_prefixes, ["a/", "z/"]);
    assert_eq!(fixture.list("a/", Some("/")).objects.len(), 3, "the directory object is in its directory");
}

#[test]
fn hidden_and_foreign_names() {
    let fixture = Fixture::new();
    fixture.put("a/k", b"");
    std::fs::create_dir_all(fixture.path("a/.sgwtmp/x")).unwrap();
    std::fs::write(fixture.path("a/.sgwtmp/file"), "").unwrap();
    std::fs::write(fixture.path(".sgwtmp/file"), "").unwrap();
    std::os::unix::fs::symlink("k", fixture.path("a/link")).unwrap();
    let odd: &std::ffi::OsStr = std::os::unix::ffi::OsStrExt::from_bytes(b"a/\xff\xfe");
    std::fs::write(fixture.path("").join(odd), "").unwrap();
    rustix::fs::mkfifoat(rustix::fs::CWD, fixture.path("a/fifo"), rustix::fs::Mode::RUSR).unwrap();
    assert_eq!(fixture.keys(), ["a/k"]);
    for prefix in [".sgwtmp", ".sgwtmp/", "a/.sgwtmp/", "../", "a//", "/", "./"] {
        assert_eq!(fixture.list(prefix, None), ListPage::default(), "{prefix}");
    }
    assert!(fixture.try_get("a/fifo", None).is_err(), "and does not hang");
}

#[test]
fn start_after_within_what_is_rolled_up() {
    let fixture = Fixture::new();
    for key in ["a/1", "a/2", "b/1", "c"] {
        fixture.put(key, b"");
    }
    let after = |start: &str| {
        let request = ListRequest {
            delimiter: Some("/".into()),
            start_after: Some(start.into()),
            max_keys: 10,
            ..ListRequest::default()
        };
        all_pages(&fixture, &request)
    };
    assert_eq!(after("a/1"), ["b/", "c"]);
    assert_eq!(after("a/"), ["b/", "c"]);
    assert_eq!(after("a"), ["a/", "b/", "c"]);
    assert_eq!(after("c"), Vec::<String>::new());
    let none = ListRequest { max_keys: 0, ..ListRequest::default() };
    assert_eq!(fixture.store.list_objects(BUCKET, &none).unwrap(), ListPage::default());
}

#[test]
fn a_wide_directory_in_pages() {
    let fixture = Fixture::new();
    let mut keys = BTreeSet::new();
    for n in 0..3000_u32 {
        let key = format!("wide/{:05}", n.wrapping_mul(7919) % 100_000);
        std::fs::create_dir_all(fixture.path("wide")).unwrap();
        std::fs::write(fixture.path(&key), "").unwrap();
        keys.insert(key);
    }
    for (prefix, delimiter, max_keys) in
        [("", None, 1000), ("wide/", Some("/"), 700), ("wide/1", None, 100), ("wide/", Some("5"), 50)]
    {
        let request = ListRequest {
            prefix: prefix.into(),
            delimiter: delimiter.map(Into::into),
            max_keys,
            ..ListRequest::default()
        };
        assert_eq!(all_pages(&fixture, &request), model(&keys, &request), "{request:?}");
    }
}

/// A listing that runs while keys come and go has every key that was there all the time, once.
#[test]
fn keys_that_stay_are_listed_under_change() {
    let fixture = Fixture::new();
    let stay: BTreeSet<String> = (0..60).map(|n| format!("d{}/k{n:03}", n % 5)).collect();
    for key in &stay {
        fixture.put(key, b"");
    }
    let stop = std::sync::atomic::AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0;
            while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                let key = format!("d{}/x{n:03}/y", n % 7);
                fixture.put(&key, b"");
                fixture.delete(&key);
                n = (n + 1) % 50;
            }
        });
        for _ in 0..20 {
            let request = ListRequest { max_keys: 7, ..ListRequest::default() };
            let found: BTreeSet<String> = all_pages(&fixture, &request).into_iter().collect();
            assert!(found.is_superset(&stay));
        }
        stop.store(true, std::sync::atomic::Ordering::Relaxed);
    });
}

#[test_case("", None; "all")]
#[test_case("a/b", Some("/"); "rolled up")]
fn no_bucket(prefix: &str, delimiter: Option<&str>) {
    let fixture = Fixture::new();
    let request = ListRequest {
        prefix: prefix.into(),
        delimiter: delimiter.map(Into::into),
        max_keys: 10,
        ..ListRequest::default()
    };
    for bucket in ["none", ".sgwtmp", "..", "a/b", ""] {
        assert!(matches!(
            fixture.store.list_objects(bucket, &request),
            Err(vgwrdma::store::Error::NoSuchBucket(_))
        ));
    }
}

/// An operation of the model test. Keys are drawn from few names, so that they meet.
#[derive(Clone, Debug)]
enum Op {
    Put(String),
    Delete(String),
}

fn key() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "a-", "a.", "a0", "ab", "-", "é", "a\u{1}"]);
    (prop::collection::vec(name, 1..4), prop::bool::weighted(0.2))
        .prop_map(|(names, dir)| format!("{}{}", names.join("/"), if dir { "/" } else { "" }))
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![3 => key().prop_map(Op::Put), 1 => key().prop_map(Op::Delete)]
}

/// Whether a file system can hold the key beside the others.
fn fits(keys: &BTreeSet<String>, key: &str) -> bool {
    let path = key.trim_end_matches('/');
    let parents = path.match_indices('/').map(|(at, _)| &path[..at]);
    let free = parents.into_iter().all(|parent| !keys.contains(parent));
    if key.ends_with('/') {
        return free && !keys.contains(path);
    }
    let below = format!("{path}/");
    free && !keys.range(below.clone()..).next().is_some_and(|k| k.starts_with(&below))
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 40, ..ProptestConfig::default() })]

    #[test]
    fn like_the_model(
        ops in prop::collection::vec(op(), 1..40),
        prefix in prop::sample::select(vec!["", "a", "a/", "a/a", "a-", "b/a.", "é", "x"]),
        delimiter in prop::option::of(prop::sample::select(vec!["/", "-", "a", "/a", "a/", "é", "", "b/a"])),
        start_after in prop::option::of(key()),
        max_keys in prop::sample::select(vec![1_usize, 2, 3, 7, 1000]),
    ) {
        let fixture = Fixture::new();
        let mut keys = BTreeSet::new();
        for op in ops {
            match op {
                Op::Put(key) => {
                    let put = fixture.try_put(&key, if key.ends_with('/') { b"" } else { b"x" }, &Default::default());
                    let fits = fits(&keys, &key);
                    prop_assert_eq!(put.is_ok(), fits, "{} among {:?}: {:?}", key, keys, put);
                    if fits {
                        keys.insert(key);
                    }
                }
                Op::Delete(key) => {
                    let deleted = fixture.store.delete_object(BUCKET, &key, None, &Default::default()).unwrap();
                    prop_assert_eq!(deleted.existed, keys.remove(&key));
                }
            }
        }
        let request = ListRequest {
            prefix: prefix.into(),
            delimiter: delimiter.map(Into::into),
            start_after,
            max_keys,
            ..ListRequest::default()
        };
        prop_assert_eq!(all_pages(&fixture, &request), model(&keys, &request));
        let whole = ListRequest { max_keys, ..ListRequest::default() };
        prop_assert_eq!(all_pages(&fixture, &whole), model(&keys, &whole));
        for key in &keys {
            prop_assert!(fixture.try_get(key, None).is_ok());
            fixture.delete(key);
        }
        prop_assert_eq!(fixture.files(), [".sgwtmp/", "bucket/", "bucket/.sgwtmp/"], "no directory stays behind");
    }
}

//! Many at once: conditions, mixed objects, directories that come and go.

use std::sync::Barrier;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use test_case::test_case;
use vgwrdma::store::{Error, LockMode, PutRequest, Store, StoreOptions, WriteConditions};

use super::common::{BUCKET, Fixture, attributes, if_match, if_none_match, put};

/// 32 writers whose bodies arrive before any is published.
#[test_case(false, LockMode::Shared; "unnamed files")]
#[test_case(true, LockMode::Shared; "named files")]
#[test_case(false, LockMode::Process; "locks in the process")]
fn one_of_many_creators_wins(named: bool, lock_mode: LockMode) {
    let fixture = Fixture::with(|o| (o.disable_otmpfile, o.lock_mode) = (named, lock_mode));
    for round in 0..10 {
        let key = format!("d{round}/k");
        let (barrier, won) = (Barrier::new(32), AtomicUsize::new(0));
        std::thread::scope(|scope| {
            for n in 0..32 {
                let (fixture, barrier, won, key) = (&fixture, &barrier, &won, &key);
                scope.spawn(move || {
                    let body = format!("writer {n}");
                    let request = PutRequest { conditions: if_none_match(), ..PutRequest::default() };
                    let pending = fixture.store.begin_put(BUCKET, key, &request).unwrap();
                    pending.write_at(0, body.as_bytes()).unwrap();
                    barrier.wait();
                    match pending.publish(body.len() as u64, attributes(body.as_bytes())) {
                        Ok(_) => drop(won.fetch_add(1, Ordering::Relaxed)),
                        Err(Error::PreconditionFailed(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                });
            }
        });
        assert_eq!(won.into_inner(), 1);
    }
}

/// Two gateways (stores of their own) change an object from what they saw; no change is lost.
#[test]
fn compare_and_swap_between_gateways() {
    let fixture = Fixture::new();
    fixture.put("counter", b"0");
    std::thread::scope(|scope| {
        for _ in 0..4 {
            let options =
                StoreOptions { durability: vgwrdma::store::Durability::None, ..StoreOptions::default() };
            let store = Store::open(&fixture.root(), options).unwrap();
            scope.spawn(move || {
                let mut done = 0;
                while done < 25 {
                    let reader = store.open_object(BUCKET, "counter", None).unwrap();
                    let mut body = vec![0; usize::try_from(reader.info().size).unwrap()];
                    reader.read_at(0, &mut body).unwrap();
                    let next: u32 = std::str::from_utf8(&body).unwrap().parse::<u32>().unwrap() + 1;
                    match put(&store, "counter", next.to_string().as_bytes(), &if_match(&reader.info().etag))
                    {
                        Ok(_) => done += 1,
                        Err(Error::PreconditionFailed(_)) => {}
                        Err(error) => panic!("{error}"),
                    }
                }
            });
        }
    });
    assert_eq!(fixture.get("counter"), b"100");
}

/// Bytes and attributes of different sizes and kinds, some so large that they overflow.
#[test_case(false; "attributes")]
#[test_case(true; "sidecar")]
fn readers_see_one_object(sidecar: bool) {
    let side = tempfile::tempdir().unwrap();
    let fixture = Fixture::with(|o| o.sidecar = sidecar.then(|| side.path().to_owned()));
    let write = |n: usize| {
        let body = vec![n as u8; 100 + n];
        let pending = fixture.store.begin_put(BUCKET, "d/k", &PutRequest::default()).unwrap();
        pending.write_at(0, &body).unwrap();
        let mut attributes = attributes(&body);
        attributes.metadata.insert("n".into(), n.to_string());
        if n.is_multiple_of(3) {
            attributes.metadata.insert("long".into(), "x".repeat(6000 + n));
        }
        pending.publish(body.len() as u64, attributes).unwrap();
    };
    write(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for writer in 0..2 {
            let (write, stop) = (&write, &stop);
            scope.spawn(move || {
                let mut n = writer;
                while !stop.load(Ordering::Relaxed) {
                    write(n % 200);
                    n += 7;
                }
            });
        }
        for _ in 0..2000 {
            let (info, body) = fixture.try_get("d/k", None).unwrap();
            let n = body[0] as usize;
            assert_eq!(body, vec![n as u8; 100 + n]);
            assert_eq!(info.attributes.metadata["n"], n.to_string());
            assert_eq!(info.attributes.metadata["length"], body.len().to_string());
            assert_eq!(info.attributes.metadata.contains_key("long"), n.is_multiple_of(3));
            assert_eq!(info.attributes.etag, attributes(&body).etag);
            let listed = fixture.list("", None).objects;
            assert!(!listed[0].etag.ends_with("-1"), "a listing does not take it for a foreign file");
        }
        stop.store(true, Ordering::Relaxed);
    });
    let left = fixture.files().into_iter().filter(|f| f.contains("overflow/") && !f.ends_with('/')).count();
    assert!(left <= 1, "only the current object may have an overflow file");
}

/// The attributes of a directory are changed one by one, but nobody sees that.
#[test]
fn readers_see_one_directory_object() {
    let fixture = Fixture::new();
    let write = |n: usize| {
        let pending = fixture.store.begin_put(BUCKET, "d/", &PutRequest::default()).unwrap();
        let mut attributes = attributes(b"");
        attributes.metadata.insert("n".into(), n.to_string());
        attributes.cache_control = Some(n.to_string());
        attributes.tags.extend((!n.is_multiple_of(2)).then(|| ("n".to_owned(), n.to_string())));
        pending.publish(0, attributes).unwrap();
    };
    write(0);
    fixture.put("d/child", b"");
    std::thread::scope(|scope| {
        scope.spawn(|| (0..300).for_each(write));
        for _ in 0..300 {
            let attributes = fixture.try_get("d/", None).unwrap().0.attributes;
            let n = &attributes.metadata["n"];
            assert_eq!(attributes.cache_control.as_ref(), Some(n));
            let odd = !n.parse::<usize>().unwrap().is_multiple_of(2);
            assert_eq!(attributes.tags.get("n"), odd.then_some(n));
        }
    });
}

/// A delete removes the parent that a put is about to use.
#[test]
fn parents_come_and_go() {
    let fixture = Fixture::new();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let fixture = &fixture;
            scope.spawn(move || {
                let key = format!("a/b/c/k{thread}");
                for round in 0..150 {
                    fixture.put(&key, &[round]);
                    assert_eq!(fixture.get(&key), [round]);
                    fixture.delete(&key);
                }
                fixture.put(&key, b"last");
            });
        }
        scope.spawn(|| {
            for _ in 0..100 {
                fixture.put("a/b/", b"");
                assert_eq!(fixture.try_get("a/b/", None).unwrap().0.size, 0, "no delete takes it for empty");
                fixture.delete("a/b/");
            }
        });
    });
    assert_eq!(fixture.keys(), ["a/b/c/k0", "a/b/c/k1", "a/b/c/k2", "a/b/c/k3"]);
}

#[test]
fn a_bucket_is_not_removed_from_under_an_object() {
    for _ in 0..30 {
        let fixture = Fixture::new();
        let (put, deleted) = std::thread::scope(|scope| {
            let put = scope.spawn(|| fixture.try_put("a/k", b"x", &WriteConditions::default()));
            let deleted = scope.spawn(|| fixture.store.delete_bucket(BUCKET));
            (put.join().unwrap(), deleted.join().unwrap())
        });
        match (put, deleted) {
            (Ok(_), Err(Error::BucketNotEmpty(_))) => assert_eq!(fixture.get("a/k"), b"x"),
            (Err(Error::NoSuchBucket(_)), Ok(())) => {}
            other => panic!("{other:?}"),
        }
    }
}

#[test]
fn tags_and_overwrites() {
    let fixture = Fixture::new();
    fixture.put("k", b"0");
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for n in 0..200_u8 {
                fixture.put("k", &[n]);
            }
        });
        for n in 0..200 {
            let tags = [("n".to_owned(), format!("{n}"))].into();
            let info = fixture.store.set_object_tags(BUCKET, "k", None, Some(&tags)).unwrap();
            assert_eq!(info.attributes.tags, tags);
        }
    });
    let (info, body) = fixture.try_get("k", None).unwrap();
    assert_eq!(info.attributes.etag, attributes(&body).etag);
}

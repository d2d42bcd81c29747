//! Two gateways over one directory: what one answers holds for the other.

use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};

use futures_util::future::{join, join_all};
use http::Method;
use test_case::test_case;

use crate::client::{Answer, Call, Carrier, S3};
use crate::content::{CONTENT, Content, OPERATION, Random};
use crate::crash::coherent;
use crate::process::{GatewayProcess, Start};
use crate::tree::objects;

/// Two gateways with one root, and a client of each.
struct Twins {
    home: tempfile::TempDir,
    _gateways: [GatewayProcess; 2],
    s3: [S3; 2],
}

impl Twins {
    /// `sidecar` keeps attributes in files.
    async fn start(flags: &[&str], sidecar: bool) -> Self {
        let home = tempfile::tempdir().unwrap();
        for dir in ["root", "side", "versions"] {
            std::fs::create_dir(home.path().join(dir)).unwrap();
        }
        let path = |name: &str| home.path().join(name).to_str().unwrap().to_owned();
        let (side, versions) = (path("side"), path("versions"));
        let mut flags = [flags, &["--durability", "none", "--versioning-dir", &versions]].concat();
        if sidecar {
            flags.extend(["--sidecar", &side]);
        }
        let start = || {
            let (root, log) = (home.path().join("root"), home.path().join("log"));
            Start { root: &root, flags: &flags, log: &log, wrapper: &[], environment: &[] }.run()
        };
        let gateways = [start(), start()];
        let s3 = [S3::new(&gateways[0].address), S3::new(&gateways[1].address)];
        s3[0].send(Call::new(Method::PUT, "/twins")).await.unwrap().ok();
        Self { home, _gateways: gateways, s3 }
    }

    /// The gateway that serves the nth request.
    fn of(&self, n: usize) -> &S3 {
        &self.s3[n % 2]
    }

    /// Each kind of body through each gateway.
    fn carrier(n: usize) -> Carrier {
        if (n / 2).is_multiple_of(2) { Carrier::Http } else { Carrier::Rdma }
    }

    async fn put(&self, n: usize, key: &str, content: &Content, condition: Option<(&str, &str)>) -> Answer {
        let mut call = put_call(key, content);
        if let Some((name, value)) = condition {
            call = call.header(name, value);
        }
        self.of(n).upload(Self::carrier(n), call, &content.bytes()).await.unwrap()
    }

    async fn get(&self, n: usize, key: &str) -> Answer {
        let call = Call::new(Method::GET, &format!("/twins/{key}"));
        self.of(n).download(Self::carrier(n), call, crate::content::MOST).await.unwrap()
    }

    async fn call(&self, n: usize, method: Method, target: &str) -> Answer {
        self.of(n).send(Call::new(method, &format!("/twins/{target}"))).await.unwrap()
    }
}

fn put_call(key: &str, content: &Content) -> Call {
    Call::new(Method::PUT, &format!("/twins/{key}")).header(CONTENT, content.name()).header(OPERATION, "put")
}

fn content(key: &str, number: usize) -> Content {
    Content { key: key.to_owned(), number: number as u64, parts: 0 }
}

#[test_case(&[], false; "shared locks")]
#[test_case(&["--lock-mode", "node", "--disableotmp"], false; "locks of the node and named files")]
#[test_case(&[], true; "sidecar")]
fn two_gateways_are_one_store(flags: &[&str], sidecar: bool) {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async {
        let twins = Twins::start(flags, sidecar).await;
        one_creator_wins(&twins).await;
        no_update_is_lost(&twins).await;
        completing_twice(&twins).await;
        completing_or_aborting(&twins).await;
        readers_and_listings(&twins).await;
        all_versions_are_kept(&twins).await;
    });
}

async fn one_creator_wins(twins: &Twins) {
    for round in 0..6 {
        let key = format!("create/{round}/k");
        let contents: Vec<Content> = (0..8).map(|n| content(&key, n)).collect();
        let answers = join_all(
            contents.iter().enumerate().map(|(n, c)| twins.put(n, &key, c, Some(("if-none-match", "*")))),
        )
        .await;
        let winners: Vec<usize> = (0..8).filter(|n| answers[*n].status == 200).collect();
        assert_eq!(winners.len(), 1, "{answers:?}");
        let refused = |answer: &Answer| answer.error() == (412, "PreconditionFailed".to_owned());
        assert_eq!(answers.iter().filter(|answer| refused(answer)).count(), 7, "{answers:?}");
        for n in 0..4 {
            assert_eq!(coherent(&key, &twins.get(n, &key).await).1, contents[winners[0]]);
        }
    }
}

/// Everybody raises a number, if it is still what was seen.
async fn no_update_is_lost(twins: &Twins) {
    let put = async |n: usize, number: usize, condition: (&str, &str)| {
        let call = Call::new(Method::PUT, "/twins/counter").header(condition.0, condition.1);
        twins.of(n).upload(Twins::carrier(n), call, number.to_string().as_bytes()).await.unwrap()
    };
    put(0, 0, ("if-none-match", "*")).await.ok();
    join_all((0..4).map(async |n| {
        let mut done = 0;
        while done < 8 {
            let seen = twins.get(n, "counter").await.ok();
            let next = seen.text().parse::<usize>().unwrap() + 1;
            let answer = put(n, next, ("if-match", seen.header("etag"))).await;
            match answer.status {
                200 => done += 1,
                _ => assert_eq!(answer.error(), (412, "PreconditionFailed".to_owned())),
            }
        }
    }))
    .await;
    assert_eq!(twins.get(1, "counter").await.text(), "32");
}

/// Starts an upload through one and sends its parts through both; gives its id and the completion.
async fn upload(twins: &Twins, key: &str, content: &Content) -> (String, String) {
    let call = Call::new(Method::POST, &format!("/twins/{key}?uploads="))
        .header(CONTENT, content.name())
        .header(OPERATION, "multipart");
    let id = twins.of(0).send(call).await.unwrap().ok().elements("UploadId").remove(0);
    let mut parts = String::new();
    for (number, bytes) in (1..).zip(content.pieces()) {
        let call = Call::new(Method::PUT, &format!("/twins/{key}?partNumber={number}&uploadId={id}"));
        let part = twins.of(number).upload(Twins::carrier(number), call, &bytes).await.unwrap().ok();
        let etag = part.header("etag");
        parts += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>");
    }
    (id, format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>"))
}

async fn complete(twins: &Twins, n: usize, key: &str, id: &str, body: &str) -> Answer {
    let call = Call::new(Method::POST, &format!("/twins/{key}?uploadId={id}")).body(body.to_owned());
    twins.of(n).send(call).await.unwrap()
}

async fn completing_twice(twins: &Twins) {
    for round in 0..2 {
        let key = format!("twice/{round}");
        let content = Content { parts: 2, ..content(&key, round) };
        let (id, body) = upload(twins, &key, &content).await;
        let answers = join_all((0..4).map(|n| complete(twins, n, &key, &id, &body))).await;
        for answer in answers {
            assert_eq!(answer.ok().elements("ETag"), [content.etag()]);
        }
        assert_eq!(coherent(&key, &twins.get(0, &key).await).1, content);
    }
}

async fn completing_or_aborting(twins: &Twins) {
    for round in 0..4 {
        let key = format!("either/{round}");
        let content = Content { parts: 1, ..content(&key, round) };
        let (id, body) = upload(twins, &key, &content).await;
        let target = format!("{key}?uploadId={id}");
        let (completed, aborted) =
            join(complete(twins, round, &key, &id, &body), twins.call(round + 1, Method::DELETE, &target))
                .await;
        let got = twins.get(0, &key).await;
        match (completed.status, aborted.status) {
            (200, 404) => assert_eq!(coherent(&key, &got).1, content),
            (404, 204) => assert_eq!(got.status, 404),
            other => panic!("{other:?}: {} {}", completed.text(), aborted.text()),
        }
    }
}

/// Overwrites and deletes through both, while both list and read.
async fn readers_and_listings(twins: &Twins) {
    let stable: Vec<String> = (0..5).map(|n| format!("list/stable/{n}")).collect();
    for (n, key) in stable.iter().enumerate() {
        twins.put(n, key, &content(key, n), None).await.ok();
    }
    let keys: Vec<String> = (0..4).map(|n| format!("list/coming/{n}/and/going")).collect();
    let stop = AtomicBool::new(false);
    let write = |n: usize| {
        let keys = &keys;
        async move {
            let mut random = Random::new(&format!("writer {n}"));
            for number in 0..25 {
                let key = random.of(keys);
                if random.one_in(3) {
                    assert_eq!(twins.call(n, Method::DELETE, key).await.status, 204);
                } else {
                    twins.put(n, key, &content(key, 1 + number * 10 + n), None).await.ok();
                }
            }
        }
    };
    let read = |n: usize| {
        let (keys, stable, stop) = (&keys, &stable, &stop);
        async move {
            let mut random = Random::new(&format!("reader {n}"));
            while !stop.load(Ordering::Relaxed) {
                let listed = twins.call(n, Method::GET, "?list-type=2&prefix=list%2F").await.ok();
                let found: BTreeSet<String> = listed.elements("Key").into_iter().collect();
                let known: BTreeSet<String> = keys.iter().chain(stable).cloned().collect();
                assert!(found.is_subset(&known), "{found:?}");
                assert!(stable.iter().all(|key| found.contains(key)), "{found:?}");
                // An ETag made of inode facts would be one of a file without its attributes.
                assert!(listed.elements("ETag").iter().all(|etag| etag.len() == 34), "{}", listed.text());
                let key = random.of(keys);
                let got = twins.get(n, key).await;
                if got.status != 404 {
                    assert_eq!(coherent(key, &got).1.key, *key);
                }
            }
        }
    };
    let writers = async {
        join_all((0..4).map(write)).await;
        stop.store(true, Ordering::Relaxed);
    };
    join(writers, join_all((0..2).map(read))).await;
    // Once it is quiet, both list the files that are there.
    let bucket = twins.home.path().join("root/twins");
    let files: Vec<String> = objects(&bucket).into_iter().filter(|key| key.starts_with("list/")).collect();
    for n in 0..2 {
        let listed = twins.call(n, Method::GET, "?list-type=2&prefix=list%2F").await.ok();
        assert_eq!(listed.elements("Key"), files);
    }
}

async fn all_versions_are_kept(twins: &Twins) {
    let enabled = "<VersioningConfiguration><Status>Enabled</Status></VersioningConfiguration>";
    let call = Call::new(Method::PUT, "/twins?versioning=").body(enabled);
    twins.of(0).send(call).await.unwrap().ok();
    let write = async |n: usize| {
        let mut made = Vec::new();
        for number in 0..6 {
            let content = content("versions/k", 1000 * n + number);
            let answer = twins.put(n, "versions/k", &content, None).await.ok();
            made.push((answer.header("x-amz-version-id").to_owned(), content));
        }
        made
    };
    let made = join_all((0..4).map(write)).await.concat();
    let ids: BTreeSet<&String> = made.iter().map(|(id, _)| id).collect();
    assert_eq!(ids.len(), made.len());
    for (n, (id, content)) in made.iter().enumerate() {
        let got = twins.get(n, &format!("versions/k?versionId={id}")).await;
        assert_eq!(coherent("versions/k", &got).1, *content);
    }
    let listed = twins.call(1, Method::GET, "?versions=&prefix=versions%2F").await.ok();
    assert_eq!(listed.elements("VersionId").len(), made.len());
}

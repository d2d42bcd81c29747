//! A client of a bucket with versioning: no acknowledged version is lost, none comes back.

use std::collections::BTreeMap;

use http::Method;

use super::worker::coherent;
use crate::client::{Call, Carrier, Lost, S3};
use crate::content::{CONTENT, Content, OPERATION, Random};

pub(crate) const BUCKET: &str = "versions";
const KEYS: [&str; 2] = ["v/a", "v/b"];
/// Most versions of a key.
const MOST: usize = 8;

/// A version: what it holds, or none for a delete marker.
type Version = Option<Content>;

/// What was asked for and never answered.
#[derive(Clone, Debug)]
enum Asked {
    New(Version),
    Removed(String),
}

pub(crate) struct VersionedWorker {
    random: Random,
    /// Acknowledged versions by key, from the oldest.
    versions: BTreeMap<&'static str, Vec<(String, Version)>>,
    pending: Option<(&'static str, Asked)>,
    next: u64,
    acknowledged: usize,
}

impl VersionedWorker {
    pub(crate) fn new(seed: &str) -> Self {
        Self {
            random: Random::new(&format!("{seed} versions")),
            versions: KEYS.map(|key| (key, Vec::new())).into(),
            pending: None,
            next: 0,
            acknowledged: 0,
        }
    }

    pub(crate) fn acknowledged(&self) -> usize {
        self.acknowledged
    }

    /// Works until an answer does not come.
    pub(crate) async fn run(&mut self, s3: &S3) {
        while self.step(s3).await.is_ok() {}
    }

    async fn step(&mut self, s3: &S3) -> Result<(), Lost> {
        let key = *self.random.of(&KEYS);
        let count = self.versions[key].len();
        if count >= MOST || (count > 0 && self.random.one_in(3)) {
            let at = self.random.below(count);
            let id = self.versions[key][at].0.clone();
            self.pending = Some((key, Asked::Removed(id.clone())));
            s3.send(Call::new(Method::DELETE, &format!("{}?versionId={id}", path(key)))).await?.ok();
            self.versions.get_mut(key).unwrap().remove(at);
        } else {
            let (version, call, bytes) = if self.random.one_in(4) {
                (None, Call::new(Method::DELETE, &path(key)), Vec::new())
            } else {
                self.next += 1;
                let content = Content { key: key.to_owned(), number: self.next, parts: 0 };
                let call = Call::new(Method::PUT, &path(key))
                    .header(CONTENT, content.name())
                    .header(OPERATION, "put");
                let bytes = content.bytes();
                (Some(content), call, bytes)
            };
            self.pending = Some((key, Asked::New(version.clone())));
            let carrier = *self.random.of(&[Carrier::Http, Carrier::Rdma]);
            let answer = match &version {
                Some(_) => s3.upload(carrier, call, &bytes).await?.ok(),
                None => s3.send(call).await?.ok(),
            };
            let id = answer.header("x-amz-version-id").to_owned();
            self.versions.get_mut(key).unwrap().push((id, version));
        }
        self.pending = None;
        self.acknowledged += 1;
        Ok(())
    }

    pub(crate) async fn verify(&mut self, s3: &S3) {
        let pending = self.pending.take();
        for key in KEYS {
            let asked = pending.as_ref().filter(|(of, _)| *of == key).map(|(_, asked)| asked);
            let found = self.found(s3, key).await;
            let known = &self.versions[key];
            let mut rest = found.clone();
            for (id, version) in known {
                match rest.iter().position(|(found, _)| found == id) {
                    Some(at) => assert_eq!(&rest.remove(at).1, version, "{key} {id}"),
                    None => assert!(
                        matches!(asked, Some(Asked::Removed(removed)) if removed == id),
                        "{key} {id} was acknowledged and is gone; {asked:?}"
                    ),
                }
            }
            let new = rest.iter().map(|(_, version)| version).collect::<Vec<_>>();
            match asked {
                Some(Asked::New(version)) => assert!(new.is_empty() || new == [version], "{key}: {rest:?}"),
                _ => assert!(new.is_empty(), "{key} has what nobody asked for: {rest:?}"),
            }
            let order: Vec<_> = known.iter().filter(|version| found.contains(version)).collect();
            let found_order: Vec<_> = found.iter().filter(|version| known.contains(version)).collect();
            assert_eq!(order, found_order, "{key}");
            self.check_current(s3, key, found.last()).await;
            self.versions.insert(key, found);
        }
    }

    /// All versions of a key, from the oldest, each looked into.
    async fn found(&mut self, s3: &S3, key: &str) -> Vec<(String, Version)> {
        let listed =
            Call::new(Method::GET, &format!("/{BUCKET}?versions=&prefix={}", key.replace('/', "%2F")));
        let listed = s3.send(listed).await.unwrap().ok();
        let mut found = Vec::new();
        let mut ids = listed.elements("VersionId");
        // Versions and delete markers are two lists in the answer. The ids are in order of time.
        ids.sort();
        for id in ids {
            let got =
                s3.send(Call::new(Method::GET, &format!("{}?versionId={id}", path(key)))).await.unwrap();
            // A delete marker has no content.
            let version = (got.status != 405).then(|| coherent(key, &got).1);
            found.push((id, version));
        }
        found
    }

    async fn check_current(&self, s3: &S3, key: &str, newest: Option<&(String, Version)>) {
        let got = s3.send(Call::new(Method::GET, &path(key))).await.unwrap();
        match newest {
            Some((_, Some(content))) => assert_eq!(coherent(key, &got).1, *content, "{key}"),
            _ => assert_eq!(got.status, 404, "{key}"),
        }
    }
}

fn path(key: &str) -> String {
    format!("/{BUCKET}/{key}")
}

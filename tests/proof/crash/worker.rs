//! A client that knows what it was told, and what it asked for last.

use std::collections::{BTreeMap, BTreeSet};

use http::Method;

use crate::client::{Answer, Call, Carrier, Lost, S3};
use crate::content::{CONTENT, Content, MOST, OPERATION, Random};

pub(crate) const BUCKET: &str = "crash";
/// Keys that each worker has for itself.
const KEYS: usize = 6;

/// What a key holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum State {
    Absent,
    Object {
        operation: String,
        content: Content,
        /// The number that its tags were made of.
        tags: Option<u64>,
    },
}

/// What is done to a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    PutHttp,
    PutRdma,
    Multipart,
    Delete,
    Copy,
    Tag,
    Shared,
}

impl Kind {
    pub(crate) const ALL: [Self; 7] =
        [Self::PutHttp, Self::PutRdma, Self::Multipart, Self::Delete, Self::Copy, Self::Tag, Self::Shared];
}

/// An upload in parts on its way.
struct Upload {
    key: String,
    operation: String,
    content: Content,
    /// Not known while its creation has not been answered.
    id: Option<String>,
    /// ETags of the parts that were acknowledged, from the first.
    etags: Vec<String>,
    completing: bool,
}

impl Upload {
    fn state(&self) -> State {
        State::Object { operation: self.operation.clone(), content: self.content.clone(), tags: None }
    }
}

pub(crate) struct Worker {
    name: String,
    random: Random,
    keys: Vec<String>,
    /// What was acknowledged last.
    states: BTreeMap<String, State>,
    /// What was asked for and never answered.
    pending: Option<(String, State)>,
    upload: Option<Upload>,
    shared: BTreeSet<String>,
    counts: BTreeMap<Kind, usize>,
    next: u64,
}

impl Worker {
    pub(crate) fn new(number: usize, seed: &str) -> Self {
        let name = format!("w{number}");
        let keys: Vec<String> = (0..KEYS).map(|n| format!("{name}/d{}/k{n}", n % 3)).collect();
        Self {
            random: Random::new(&format!("{seed} {name}")),
            name,
            states: keys.iter().map(|key| (key.clone(), State::Absent)).collect(),
            keys,
            pending: None,
            upload: None,
            shared: BTreeSet::new(),
            counts: BTreeMap::new(),
            next: 0,
        }
    }

    /// Whether a write to a shared key was acknowledged; forgets it.
    pub(crate) fn acknowledged(&mut self, key: &str) -> bool {
        self.shared.remove(key)
    }

    pub(crate) fn count(&self, kind: Kind) -> usize {
        self.counts.get(&kind).copied().unwrap_or(0)
    }

    /// Its keys that hold something.
    pub(crate) fn present(&self) -> Vec<String> {
        self.keys.iter().filter(|key| self.states[*key] != State::Absent).cloned().collect()
    }

    pub(crate) fn etags(&self) -> Vec<(String, String)> {
        let object = |(key, state): (&String, &State)| match state {
            State::Absent => None,
            State::Object { content, .. } => Some((key.clone(), content.etag())),
        };
        self.states.iter().filter_map(object).collect()
    }

    /// Works until an answer does not come.
    pub(crate) async fn run(&mut self, s3: &S3, shared: &[&str]) {
        while self.step(s3, shared).await.is_ok() {}
    }

    async fn step(&mut self, s3: &S3, shared: &[&str]) -> Result<(), Lost> {
        let key = self.random.of(&self.keys).clone();
        match self.random.below(16) {
            0..=3 => self.put(s3, &key, Carrier::Http).await,
            4..=6 => self.put(s3, &key, Carrier::Rdma).await,
            7 | 8 => self.delete(s3, &key).await,
            9..=11 => self.copy(s3, &key).await,
            12 | 13 => self.tag(s3, &key).await,
            14 => {
                let key = (*self.random.of(shared)).to_owned();
                let (_, content) = self.new_content(&key, 0);
                let operation = format!("{}-{}", self.name, content.number);
                let call = object_call(Method::PUT, &key, &operation, &content);
                let carrier = *self.random.of(&[Carrier::Http, Carrier::Rdma]);
                s3.upload(carrier, call, &content.bytes()).await?.ok();
                self.shared.insert(key);
                self.done(Kind::Shared);
                Ok(())
            }
            _ => {
                let parts = 1 + self.random.below(3);
                let (operation, content) = self.new_content(&key, parts);
                self.upload =
                    Some(Upload { key, operation, content, id: None, etags: Vec::new(), completing: false });
                self.multipart(s3).await
            }
        }
    }

    fn new_content(&mut self, key: &str, parts: usize) -> (String, Content) {
        self.next += 1;
        let number = self.next;
        (format!("{}-{number}", self.name), Content { key: format!("{}:{key}", self.name), number, parts })
    }

    fn done(&mut self, kind: Kind) {
        *self.counts.entry(kind).or_default() += 1;
    }

    /// Sends what is to bring a key to a state.
    async fn bring(
        &mut self,
        key: &str,
        state: State,
        kind: Kind,
        answer: impl Future<Output = Result<Answer, Lost>>,
    ) -> Result<(), Lost> {
        self.pending = Some((key.to_owned(), state.clone()));
        answer.await?.ok();
        self.pending = None;
        self.states.insert(key.to_owned(), state);
        self.done(kind);
        Ok(())
    }

    async fn put(&mut self, s3: &S3, key: &str, carrier: Carrier) -> Result<(), Lost> {
        let (operation, content) = self.new_content(key, 0);
        let call = object_call(Method::PUT, key, &operation, &content);
        let bytes = content.bytes();
        let state = State::Object { operation, content, tags: None };
        let kind = if carrier == Carrier::Rdma { Kind::PutRdma } else { Kind::PutHttp };
        self.bring(key, state, kind, s3.upload(carrier, call, &bytes)).await
    }

    async fn delete(&mut self, s3: &S3, key: &str) -> Result<(), Lost> {
        let call = Call::new(Method::DELETE, &path(key));
        self.bring(key, State::Absent, Kind::Delete, s3.send(call)).await
    }

    async fn copy(&mut self, s3: &S3, key: &str) -> Result<(), Lost> {
        let source = self.random.of(&self.keys).clone();
        let State::Object { operation, content, tags } = self.states[&source].clone() else { return Ok(()) };
        if source == key {
            return Ok(());
        }
        let from = format!("/{BUCKET}/{source}");
        let mut call = Call::new(Method::PUT, &path(key)).header("x-amz-copy-source", from);
        let mut operation = operation;
        if self.random.one_in(2) {
            self.next += 1;
            operation = format!("{}-copy-{}", self.name, self.next);
            call = call
                .header("x-amz-metadata-directive", "REPLACE")
                .header(OPERATION, &operation)
                .header(CONTENT, content.name());
        }
        let state = State::Object { operation, content, tags };
        self.bring(key, state, Kind::Copy, s3.send(call)).await
    }

    async fn tag(&mut self, s3: &S3, key: &str) -> Result<(), Lost> {
        let State::Object { operation, content, .. } = self.states[key].clone() else { return Ok(()) };
        self.next += 1;
        let number = self.next;
        let call = Call::new(Method::PUT, &format!("{}?tagging=", path(key))).body(tagging(number));
        let state = State::Object { operation, content, tags: Some(number) };
        self.bring(key, state, Kind::Tag, s3.send(call)).await
    }

    /// Goes on with the upload, from wherever it is.
    async fn multipart(&mut self, s3: &S3) -> Result<(), Lost> {
        let Some(upload) = &mut self.upload else { return Ok(()) };
        let id = match &upload.id {
            Some(id) => id.clone(),
            None => {
                let call = object_call(Method::POST, &upload.key, &upload.operation, &upload.content);
                let created = s3.send(call.query("uploads=")).await?.ok();
                let id = created.elements("UploadId").remove(0);
                upload.id = Some(id.clone());
                id
            }
        };
        let pieces = upload.content.pieces();
        while upload.etags.len() < pieces.len() {
            let number = upload.etags.len() + 1;
            let path = format!("{}?partNumber={number}&uploadId={id}", path(&upload.key));
            let carrier = *self.random.of(&[Carrier::Http, Carrier::Rdma]);
            let part = s3.upload(carrier, Call::new(Method::PUT, &path), &pieces[number - 1]).await?.ok();
            upload.etags.push(part.header("etag").to_owned());
        }
        let parts: String = (1..)
            .zip(&upload.etags)
            .map(|(n, etag)| format!("<Part><PartNumber>{n}</PartNumber><ETag>{etag}</ETag></Part>"))
            .collect();
        let body = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
        let call = Call::new(Method::POST, &format!("{}?uploadId={id}", path(&upload.key))).body(body);
        upload.completing = true;
        let (key, state) = (upload.key.clone(), upload.state());
        self.bring(&key, state, Kind::Multipart, s3.send(call)).await?;
        self.upload = None;
        Ok(())
    }

    /// Compares what is there with what was acknowledged, and brings unfinished uploads to an end.
    pub(crate) async fn verify(&mut self, s3: &S3) {
        let pending = self.pending.take();
        for key in self.keys.clone() {
            let found = look(s3, &key, &mut self.random).await;
            let expected = &self.states[&key];
            let asked = pending.as_ref().filter(|(of, _)| *of == key).map(|(_, state)| state);
            assert!(
                found == *expected || Some(&found) == asked,
                "{key} holds {found:?}; acknowledged was {expected:?}, asked for and not answered {asked:?}"
            );
            self.states.insert(key, found);
        }
        if let Some(upload) = &self.upload {
            if let Some(id) = &upload.id {
                if !upload.completing {
                    let path = format!("{}?uploadId={id}", path(&upload.key));
                    let listed = s3.send(Call::new(Method::GET, &path)).await.unwrap().ok().elements("ETag");
                    assert_eq!(listed[..upload.etags.len()], upload.etags, "acknowledged parts");
                    if self.random.one_in(4) {
                        s3.send(Call::new(Method::DELETE, &path)).await.unwrap().ok();
                        self.upload = None;
                    }
                }
                // Asking again for a completion that went through is answered as the first would have been.
                self.multipart(s3).await.unwrap();
            }
            self.upload = None;
        }
        // Those whose creation was carried out and not answered.
        let all = Call::new(Method::GET, &format!("/{BUCKET}?uploads=&prefix={}%2F", self.name));
        let uploads = s3.send(all).await.unwrap().ok();
        for (key, id) in uploads.elements("Key").iter().zip(uploads.elements("UploadId")) {
            let call = Call::new(Method::DELETE, &format!("{}?uploadId={id}", path(key)));
            s3.send(call).await.unwrap().ok();
        }
        for key in self.keys.clone() {
            assert_eq!(look(s3, &key, &mut self.random).await, self.states[&key], "{key}");
        }
    }
}

fn path(key: &str) -> String {
    format!("/{BUCKET}/{key}")
}

fn object_call(method: Method, key: &str, operation: &str, content: &Content) -> Call {
    Call::new(method, &path(key)).header(OPERATION, operation).header(CONTENT, content.name())
}

/// Tags that need an overflow file for every third number.
fn tagging(number: u64) -> String {
    let count = if number.is_multiple_of(3) { 9 } else { 1 };
    let tag = |n| format!("<Tag><Key>k{n}</Key><Value>{number:0>250}</Value></Tag>");
    let tags: String = (0..count).map(tag).collect();
    format!("<Tagging><TagSet>{tags}</TagSet></Tagging>")
}

/// What a key holds, once it is sure that all of it belongs together.
pub(crate) async fn look(s3: &S3, key: &str, random: &mut Random) -> State {
    let carrier = if random.one_in(6) { Carrier::Rdma } else { Carrier::Http };
    let got = s3.download(carrier, Call::new(Method::GET, &path(key)), MOST).await.unwrap();
    if got.status == 404 {
        return State::Absent;
    }
    let (operation, content) = coherent(key, &got);
    let tags = s3.send(Call::new(Method::GET, &format!("{}?tagging=", path(key)))).await.unwrap().ok();
    let values = tags.elements("Value");
    let tags = values.first().map(|value| value.trim_start_matches('0').parse().unwrap());
    let whole: String = tags.map(tagging).unwrap_or_default();
    assert_eq!(values.len(), whole.matches("<Tag>").count(), "all tags of one request");
    assert!(values.windows(2).all(|pair| pair[0] == pair[1]), "{values:?}");
    State::Object { operation, content, tags }
}

/// Checks that bytes, ETag and metadata of an answer are those of one content.
pub(crate) fn coherent(key: &str, got: &Answer) -> (String, Content) {
    assert_eq!(got.status, 200, "{key}: {}", got.text());
    let name = got.header(CONTENT);
    let content = Content::parse(name).unwrap_or_else(|| panic!("{key} has content {name:?}"));
    assert_eq!(got.header("etag"), content.etag(), "{key} with content {name}");
    assert!(got.body == content.bytes(), "{key}: {} bytes are not those of {name}", got.body.len());
    (got.header(OPERATION).to_owned(), content)
}

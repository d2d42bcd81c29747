//! Objects written and read past the page cache.

use std::io::{self, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::io::Errno;
use test_case::test_case;
use tracing_subscriber::fmt::MakeWriter;
use vgwrdma::rdma::{HostMemory, HugePages, Lease};
use vgwrdma::store::{FsOp, ObjectAttributes, PutRequest, Store, StoreOptions};

use super::common::BUCKET;
use super::observer::{Failing, observed};

const CHUNK: usize = 64 << 10;

/// Memory on a page, as the engine's chunks are.
fn chunk() -> Lease {
    HostMemory::allocate(CHUNK, HugePages::Off).unwrap().into_whole()
}

fn pattern(length: usize) -> Vec<u8> {
    (0..length).map(|i| (i * 131 % 251) as u8).collect()
}

/// Writes an object in chunks, the last first, and publishes it.
fn put(store: &Store, key: &str, data: &[u8]) {
    let request = PutRequest { size_hint: Some(data.len() as u64), direct_io: true, ..PutRequest::default() };
    let pending = store.begin_put(BUCKET, key, &request).unwrap();
    let mut memory = chunk();
    for (i, block) in data.chunks(CHUNK).enumerate().collect::<Vec<_>>().into_iter().rev() {
        memory[..block.len()].copy_from_slice(block);
        pending.write_at((i * CHUNK) as u64, &memory[..block.len()]).unwrap();
    }
    pending.publish(data.len() as u64, ObjectAttributes::default()).unwrap();
}

/// Reads an object in chunks from `start` on.
fn get(store: &Store, key: &str, start: usize, length: usize) -> Vec<u8> {
    let mut reader = store.open_object(BUCKET, key, None).unwrap();
    reader.enable_direct_io();
    let (mut bytes, mut memory) = (Vec::new(), chunk());
    while bytes.len() < length {
        let block = CHUNK.min(length - bytes.len());
        memory.fill(0xee);
        reader.read_block((start + bytes.len()) as u64, block, &mut memory).unwrap();
        bytes.extend_from_slice(&memory[..block]);
    }
    bytes
}

#[test_case(1)]
#[test_case(4095)]
#[test_case(4096)]
#[test_case(CHUNK; "a chunk")]
#[test_case(CHUNK + 1; "a byte more")]
#[test_case(3 * CHUNK + 4096 + 77; "a tail that is no page")]
fn every_size_comes_back(length: usize) {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let store = Store::open(dir.path(), StoreOptions::default()).unwrap();
    store.create_bucket(BUCKET, &Default::default()).unwrap();
    let data = pattern(length);
    put(&store, "key", &data);
    assert!(std::fs::read(dir.path().join(BUCKET).join("key")).unwrap() == data);
    assert!(get(&store, "key", 0, length) == data);
    let (start, end) = (length / 3, length - length / 4);
    assert!(get(&store, "key", start, end - start) == data[start..end]);
    let reader = store.open_object(BUCKET, "key", None).unwrap();
    let error = reader.read_block(0, length + 1, &mut vec![0; length + 1]).unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::UnexpectedEof);
    only_the_tail_is_cached(&dir.path().join(BUCKET).join("key"), length);
}

/// On file systems known for direct operations, checks that the page cache holds at most what was
/// written or read in part of a page; `std::fs::read` above has filled it, so the file is written anew.
fn only_the_tail_is_cached(path: &Path, length: usize) {
    const EXT4: i64 = 0xef53;
    const XFS: i64 = 0x5846_5342;
    let kind = rustix::fs::statfs(path).unwrap().f_type as i64;
    if ![EXT4, XFS].contains(&kind) {
        return;
    }
    let dir = path.parent().unwrap().parent().unwrap();
    let store = Store::open(dir, StoreOptions::default()).unwrap();
    put(&store, "key", &pattern(length));
    assert!(get(&store, "key", 0, length) == pattern(length));
    let command = std::process::Command::new("fincore").args(["-bnro", "RES"]).arg(path).output();
    let output = command.expect("fincore, of the package util-linux-extra on Debian 12");
    let cached: usize = String::from_utf8(output.stdout).unwrap().trim().parse().unwrap();
    assert!(cached <= 4096, "{cached} of {length} bytes are in the page cache");
}

/// What is logged.
#[derive(Clone, Default)]
struct Log(Arc<Mutex<Vec<u8>>>);

impl Write for Log {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        self.0.lock().unwrap().write(data)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<'a> MakeWriter<'a> for Log {
    type Writer = Self;
    fn make_writer(&'a self) -> Self {
        self.clone()
    }
}

#[test]
fn a_file_system_without_it_is_worked_with_and_named_once() {
    let log = Log::default();
    let subscriber = tracing_subscriber::fmt().with_writer(log.clone()).with_ansi(false).finish();
    tracing::subscriber::with_default(subscriber, || {
        let failing = Failing::new();
        let fixture = observed(&failing, |_| ());
        failing.fail(FsOp::OpenDirect, 1, Errno::INVAL);
        let data = pattern(2 * CHUNK + 5);
        for key in ["a", "b"] {
            put(&fixture.store, key, &data);
            assert!(get(&fixture.store, key, 0, data.len()) == data);
        }
        let tried = failing.seen().iter().filter(|(op, _)| *op == FsOp::OpenDirect).count();
        assert_eq!(tried, 4, "each write and each read");
    });
    let text = String::from_utf8(log.0.lock().unwrap().clone()).unwrap();
    assert_eq!(text.matches("refuses direct I/O").count(), 1, "{text}");
}

//! Uploads in 10,000 parts on small file systems: joining them needs no second copy of the object.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use test_case::test_case;
use vgwrdma::digest::{Algorithm, Digester};
use vgwrdma::store::{
    CompleteUpload, CompletedPart, CreateUpload, Durability, FsObserver, FsOp, Store, StoreOptions,
};

use super::common::BUCKET;
use super::mount::Namespace;

const PARTS: u32 = 10_000;
/// Size of a part, in bytes: blocks on all file systems here.
const PART: usize = 16 << 10;

/// Sees how full the file system gets, and whether parts are joined by appending to the first.
struct Gauge {
    store: std::path::PathBuf,
    most: AtomicU64,
    appended: AtomicU64,
}

fn used(path: &Path) -> u64 {
    let found = rustix::fs::statvfs(path).unwrap();
    (found.f_blocks - found.f_bfree) * found.f_frsize
}

impl FsObserver for Gauge {
    fn before(&self, op: FsOp, name: &str) -> std::io::Result<()> {
        if matches!(op, FsOp::SyncFile | FsOp::Unlink | FsOp::Rename) {
            self.most.fetch_max(used(&self.store), Ordering::Relaxed);
        }
        if op == FsOp::Rename && name == "assembly" {
            self.appended.store(1, Ordering::Relaxed);
        }
        Ok(())
    }
}

fn image(size: &str, make: &str) -> String {
    format!(
        "mount -t tmpfs tmpfs /mnt; truncate -s {size} /mnt/image; {make} /mnt/image; mount -o loop /mnt/image"
    )
}

/// The object has 156 MiB.
#[test_case("mount -t tmpfs -o size=190m tmpfs".to_owned(), false; "tmpfs")]
#[test_case(image("240M", "mkfs.ext4 -q -m 0 -N 16384"), false; "ext4")]
#[test_case(image("300M", "mkfs.xfs -q -m reflink=1"), true; "xfs")]
#[test_case(image("400M", "mkfs.btrfs -q -m single"), true; "btrfs")]
fn ten_thousand_parts(mount: String, shares_blocks: bool) {
    let home = tempfile::tempdir().unwrap();
    let Some(namespace) = Namespace::new(&format!("{mount} {}", home.path().display())) else {
        return;
    };
    let root = namespace.path(home.path());
    let gauge = Arc::new(Gauge { store: root.clone(), most: AtomicU64::new(0), appended: AtomicU64::new(0) });
    let options =
        StoreOptions { durability: Durability::None, min_part_size: PART as u64, ..StoreOptions::default() };
    let observer: Arc<dyn FsObserver> = Arc::<Gauge>::clone(&gauge);
    let store = Store::open_observed(&root, options, Some(observer)).unwrap();
    store.create_bucket(BUCKET, &Default::default()).unwrap();
    let id = store.create_upload(BUCKET, "k", &CreateUpload::default()).unwrap();
    let mut whole = Digester::new(false, [Algorithm::Crc64Nvme]);
    let bytes = |number: u32| -> Vec<u8> { number.to_le_bytes().repeat(PART / 4) };
    for number in 1..=PARTS {
        let part = store.begin_part(BUCKET, "k", &id, number, Some(PART as u64)).unwrap();
        part.write_at(0, &bytes(number)).unwrap();
        part.publish(PART as u64, &format!("{number:032x}"), None).unwrap();
        whole.update(&bytes(number));
    }
    namespace.run("sync");
    let before = used(&root);
    let parts = (1..=PARTS).map(|number| CompletedPart { number, etag: None, checksums: Default::default() });
    let request = CompleteUpload { parts: parts.collect(), ..CompleteUpload::default() };
    let info = store.complete_upload(BUCKET, "k", &id, &request).unwrap();
    let (size, most) = (u64::from(PARTS) * PART as u64, gauge.most.load(Ordering::Relaxed));
    assert_eq!((info.size, info.part_count()), (size, Some(PARTS as usize)));
    assert_eq!(gauge.appended.load(Ordering::Relaxed) == 0, shares_blocks, "how the parts were joined");
    eprintln!("object {} MiB, {} MiB in use before and at most {}", size >> 20, before >> 20, most >> 20);
    assert!(most < before + size / 4, "{most} bytes in use, {before} before");
    let reader = store.open_object(BUCKET, "k", None).unwrap();
    let mut found = Digester::new(false, [Algorithm::Crc64Nvme]);
    let mut buffer = vec![0; 1 << 20];
    for offset in (0..size).step_by(buffer.len()) {
        let length = buffer.len().min(usize::try_from(size - offset).unwrap());
        reader.read_at(offset, &mut buffer[..length]).unwrap();
        found.update(&buffer[..length]);
    }
    let crc = |digester: Digester| digester.finish().base64(Algorithm::Crc64Nvme);
    assert_eq!(crc(found), crc(whole));
}

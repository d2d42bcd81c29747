//! File systems that are full, read-only, broken, or lack something: the right answer over HTTP and
//! RDMA, the old object whole, the gateway alive, and nothing left behind.

use std::path::{Path, PathBuf};
use std::process::Command;

use http::Method;
use tempfile::TempDir;
use test_case::test_case;

use crate::client::{Answer, Call, Carrier, S3};
use crate::content::{CONTENT, Content, OPERATION};
use crate::crash::coherent;
use crate::mount::Namespace;
use crate::process::{GatewayProcess, Start};
use crate::tree::debris;

const BOTH: [Carrier; 2] = [Carrier::Http, Carrier::Rdma];
/// More than any of these file systems holds.
const TOO_MUCH: usize = 12 << 20;

/// A small ext4 in a file; file and loop device go with the namespace.
const EXT4: &str = "mount -t tmpfs tmpfs /mnt
    truncate -s 10M /mnt/image
    mkfs.ext4 -q -m 0 -O ^has_journal /mnt/image
    mount -o loop /mnt/image";

/// A quota that holds for root too.
const BTRFS_QUOTA: &str = "mount -t tmpfs tmpfs /mnt
    truncate -s 128M /mnt/image
    mkfs.btrfs -q /mnt/image
    mkdir /mnt/top
    mount -o loop /mnt/image /mnt/top
    btrfs quota enable /mnt/top
    btrfs qgroup limit 8M /mnt/top
    mount --bind /mnt/top";

/// A gateway over a file system of its own.
struct Disk {
    home: TempDir,
    namespace: Namespace,
    gateway: GatewayProcess,
    s3: S3,
}

/// The place of the file system, and of the directory that is served.
fn root(home: &TempDir) -> PathBuf {
    home.path().join("root")
}

/// Mounts what `mount` names (a command without the mount point) at the root.
fn mounted(mount: &str) -> Option<(TempDir, Namespace)> {
    let home = tempfile::tempdir().unwrap();
    std::fs::create_dir(root(&home)).unwrap();
    let namespace = Namespace::new(&format!("{mount} {}", root(&home).display()))?;
    Some((home, namespace))
}

fn start(home: &TempDir, namespace: &Namespace, flags: &[&str]) -> Result<GatewayProcess, String> {
    let wrapper = namespace.wrapper();
    let flags = [&["--durability", "full"], flags].concat();
    let log = home.path().join("log");
    Start { root: &root(home), flags: &flags, log: &log, wrapper: &wrapper, environment: &[] }.try_run()
}

impl Disk {
    async fn new(mount: &str) -> Option<Self> {
        let (home, namespace) = mounted(mount)?;
        let gateway = start(&home, &namespace, &[]).unwrap();
        let s3 = S3::new(&gateway.address);
        s3.send(Call::new(Method::PUT, "/disk")).await.unwrap().ok();
        Some(Self { home, namespace, gateway, s3 })
    }

    /// The bucket's directory.
    fn bucket(&self) -> PathBuf {
        self.namespace.path(&root(&self.home)).join("disk")
    }

    async fn put(&self, carrier: Carrier, key: &str, number: u64) -> Answer {
        let content = content(number);
        let call = Call::new(Method::PUT, &format!("/disk/{key}"))
            .header(CONTENT, content.name())
            .header(OPERATION, "put");
        self.s3.upload(carrier, call, &content.bytes()).await.unwrap()
    }

    async fn put_bytes(&self, carrier: Carrier, key: &str, bytes: &[u8]) -> Answer {
        self.s3.upload(carrier, Call::new(Method::PUT, &format!("/disk/{key}")), bytes).await.unwrap()
    }

    async fn send(&self, method: Method, target: &str) -> Answer {
        self.s3.send(Call::new(method, &format!("/disk{target}"))).await.unwrap()
    }

    async fn copy(&self, from: &str, to: &str) -> Answer {
        let call = Call::new(Method::PUT, &format!("/disk/{to}"));
        self.s3.send(call.header("x-amz-copy-source", format!("/disk/{from}"))).await.unwrap()
    }

    /// The object holds what was put, by either carrier.
    async fn holds(&self, key: &str, number: u64) {
        for carrier in BOTH {
            let call = Call::new(Method::GET, &format!("/disk/{key}"));
            let got = self.s3.download(carrier, call, crate::content::MOST).await.unwrap();
            assert_eq!(coherent(key, &got).1, content(number));
        }
    }

    fn at_rest(&mut self) {
        assert!(self.gateway.is_alive());
        assert_eq!(debris(&self.bucket()), Vec::<String>::new());
        assert!(!self.gateway.log().contains("panicked"), "{}", self.gateway.log());
    }
}

fn content(number: u64) -> Content {
    Content { key: "disk".to_owned(), number, parts: 0 }
}

#[track_caller]
fn refused(answer: &Answer, status: u16, code: &str) {
    assert_eq!(answer.error(), (status, code.to_owned()), "{}", answer.text());
}

fn block_on(test: impl Future<Output = ()>) {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .unwrap()
        .block_on(test);
}

#[test_case("mount -t tmpfs -o size=8m tmpfs", 507, "InsufficientStorage"; "full tmpfs")]
#[test_case(EXT4, 507, "InsufficientStorage"; "full ext4")]
#[test_case(BTRFS_QUOTA, 403, "QuotaExceeded"; "quota")]
fn no_room(mount: &str, status: u16, code: &str) {
    block_on(async {
        let Some(mut disk) = Disk::new(mount).await else { return };
        disk.put(Carrier::Http, "old", 1).await.ok();
        disk.put(Carrier::Rdma, "other", 2).await.ok();
        let much = vec![7; TOO_MUCH];
        for carrier in BOTH {
            for key in ["old", "new"] {
                refused(&disk.put_bytes(carrier, key, &much).await, status, code);
            }
        }
        disk.holds("old", 1).await;
        assert_eq!(disk.send(Method::GET, "/new").await.status, 404);

        let id = disk.send(Method::POST, "/up?uploads=").await.ok().elements("UploadId").remove(0);
        for (number, carrier) in (1..).zip(BOTH) {
            let path = format!("/disk/up?partNumber={number}&uploadId={id}");
            let part = disk.s3.upload(carrier, Call::new(Method::PUT, &path), &much).await.unwrap();
            refused(&part, status, code);
        }
        let target = format!("/up?uploadId={id}");
        assert_eq!(disk.send(Method::GET, &target).await.ok().elements("PartNumber").len(), 0);
        disk.send(Method::DELETE, &target).await.ok();
        disk.at_rest();

        // Little by little, until nothing more fits: too small for their space to be reserved.
        let mut stored = 0;
        let last = loop {
            let carrier = BOTH[stored % 2];
            let answer = disk.put_bytes(carrier, &format!("small/{stored}"), &much[..200_000]).await;
            if answer.status != 200 {
                break answer;
            }
            stored += 1;
            assert!(stored < TOO_MUCH / 200_000);
        };
        refused(&last, status, code);
        let copied = disk.copy("small/0", "copy").await;
        // Where copies share their blocks they need no room.
        if !mount.contains("btrfs") {
            refused(&copied, status, code);
        }
        disk.holds("old", 1).await;
        disk.holds("other", 2).await;
        disk.at_rest();
        for number in 0..stored {
            assert_eq!(disk.send(Method::GET, &format!("/small/{number}")).await.ok().body.len(), 200_000);
        }
        // Room can be made, and is used.
        for number in 0..stored {
            disk.send(Method::DELETE, &format!("/small/{number}")).await.ok();
        }
        disk.namespace.run("sync");
        disk.put_bytes(Carrier::Rdma, "new", &much[..1 << 20]).await.ok();
        disk.copy("new", "copy").await.ok();
        disk.at_rest();
    });
}

/// No inode is left: what has no lock file yet can still be deleted.
#[test]
fn no_inodes() {
    block_on(async {
        let Some(mut disk) = Disk::new("mount -t tmpfs -o size=64m,nr_inodes=60 tmpfs").await else {
            return;
        };
        disk.put(Carrier::Http, "old", 1).await.ok();
        std::fs::write(disk.bucket().join("foreign"), "by cp").unwrap();
        let mut stored = 0;
        let last = loop {
            let answer = disk.put_bytes(BOTH[stored % 2], &format!("small/{stored}"), b"x").await;
            if answer.status != 200 {
                break answer;
            }
            stored += 1;
            assert!(stored < 60);
        };
        refused(&last, 507, "InsufficientStorage");
        refused(&disk.send(Method::PUT, "2").await, 507, "InsufficientStorage");
        disk.holds("old", 1).await;
        disk.at_rest();
        assert_eq!(disk.send(Method::DELETE, "/foreign").await.status, 204);
        assert!(!disk.bucket().join("foreign").exists());
        // An overwrite needs two for a moment: a link takes one on this file system.
        for number in 0..2 {
            assert_eq!(disk.send(Method::DELETE, &format!("/small/{number}")).await.status, 204);
        }
        disk.put(Carrier::Rdma, "old", 2).await.ok();
        disk.holds("old", 2).await;
        disk.at_rest();
    });
}

#[test]
fn read_only() {
    block_on(async {
        let Some(mut disk) = Disk::new("mount -t tmpfs tmpfs").await else { return };
        disk.put(Carrier::Rdma, "old", 1).await.ok();
        let id = disk.send(Method::POST, "/up?uploads=").await.ok().elements("UploadId").remove(0);
        let part = disk.send(Method::PUT, &format!("/up?partNumber=1&uploadId={id}")).await.ok();
        let part = format!("<Part><PartNumber>1</PartNumber><ETag>{}</ETag></Part>", part.header("etag"));
        let complete = Call::new(Method::POST, &format!("/disk/up?uploadId={id}"))
            .body(format!("<CompleteMultipartUpload>{part}</CompleteMultipartUpload>"));
        let remount =
            |how: &str| disk.namespace.run(&format!("mount -o remount,{how} {}", root(&disk.home).display()));
        remount("ro");
        let tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>";
        let tag = Call::new(Method::PUT, "/disk/old?tagging=").body(tags);
        for answer in [
            disk.put(Carrier::Http, "old", 2).await,
            disk.put(Carrier::Rdma, "old", 2).await,
            disk.put(Carrier::Http, "new/k", 2).await,
            disk.copy("old", "copy").await,
            disk.send(Method::DELETE, "/old").await,
            disk.send(Method::POST, "/k?uploads=").await,
            disk.send(Method::DELETE, &format!("/up?uploadId={id}")).await,
            disk.s3.send(complete.clone()).await.unwrap(),
            disk.s3.send(tag).await.unwrap(),
            disk.send(Method::PUT, "2").await,
        ] {
            refused(&answer, 403, "AccessDenied");
        }
        disk.holds("old", 1).await;
        assert_eq!(disk.send(Method::GET, "?list-type=2").await.ok().elements("Key"), ["old"]);
        let refused_start = start(&disk.home, &disk.namespace, &[]).err().expect("it needs to write");
        assert!(refused_start.contains("read-only"), "{refused_start}");
        let reader = start(&disk.home, &disk.namespace, &["--readonly"]).unwrap();
        let s3 = S3::new(&reader.address);
        let got = s3.send(Call::new(Method::GET, "/disk/old")).await.unwrap();
        assert_eq!(coherent("old", &got).1, content(1));
        remount("rw");
        disk.put(Carrier::Rdma, "old", 3).await.ok();
        disk.holds("old", 3).await;
        disk.s3.send(complete).await.unwrap().ok();
        disk.at_rest();
    });
}

/// Objects cannot be moved to another file system: an error that says so in the log, and not that a
/// directory were in the way.
#[test]
fn another_file_system_below_the_bucket() {
    block_on(async {
        let Some(mut disk) = Disk::new("mount -t tmpfs tmpfs").await else { return };
        let below = root(&disk.home).join("disk/mounted");
        disk.namespace.run(&format!("mkdir {0} && mount -t tmpfs tmpfs {0}", below.display()));
        for carrier in BOTH {
            refused(&disk.put(carrier, "mounted/k", 1).await, 500, "InternalError");
        }
        assert!(disk.gateway.log().contains("another file system is mounted"), "{}", disk.gateway.log());
        disk.put(Carrier::Rdma, "beside", 1).await.ok();
        disk.holds("beside", 1).await;
        disk.at_rest();
    });
}

/// ramfs has no extended attributes; what takes their place outlives the gateway.
#[test]
fn no_attributes() {
    block_on(async {
        let Some((home, namespace)) = mounted("mount -t ramfs ramfs") else { return };
        let refused = start(&home, &namespace, &[]).err().expect("it has nowhere to keep attributes");
        assert!(refused.contains("sidecar"), "{refused}");
        let side = home.path().join("side");
        std::fs::create_dir(&side).unwrap();
        let flags = ["--sidecar", side.to_str().unwrap()];
        let gateway = start(&home, &namespace, &flags).unwrap();
        let s3 = S3::new(&gateway.address);
        s3.send(Call::new(Method::PUT, "/disk")).await.unwrap().ok();
        let mut disk = Disk { home, namespace, gateway, s3 };
        for (number, carrier) in (1..).zip(BOTH) {
            disk.put(carrier, "k", 7).await.ok();
            disk.put(carrier, "k", number).await.ok();
            disk.holds("k", number).await;
        }
        disk.copy("k", "deep/er/copy").await.ok();
        let tags = "<Tagging><TagSet><Tag><Key>a</Key><Value>b</Value></Tag></TagSet></Tagging>";
        disk.s3.send(Call::new(Method::PUT, "/disk/k?tagging=").body(tags)).await.unwrap().ok();
        disk.send(Method::PUT, "/directory/").await.ok();
        let multipart = Content { parts: 2, ..content(9) };
        upload(&disk, "parts", &multipart).await;
        disk.put(Carrier::Http, "gone", 1).await.ok();
        disk.send(Method::DELETE, "/gone").await.ok();
        disk.gateway.stop();
        disk.gateway = start(&disk.home, &disk.namespace, &flags).unwrap();
        disk.s3 = S3::new(&disk.gateway.address);
        disk.holds("k", 2).await;
        disk.holds("deep/er/copy", 2).await;
        let got = disk.send(Method::GET, "/parts").await;
        assert_eq!(coherent("parts", &got).1, multipart);
        assert_eq!(disk.send(Method::GET, "/k?tagging=").await.ok().elements("Value"), ["b"]);
        let listed = disk.send(Method::GET, "?list-type=2").await.ok();
        assert_eq!(listed.elements("Key"), ["deep/er/copy", "directory/", "k", "parts"]);
        assert_eq!(listed.elements("ETag")[2..], [content(2).etag(), multipart.etag()]);
        disk.at_rest();
        for key in listed.elements("Key") {
            disk.send(Method::DELETE, &format!("/{key}")).await.ok();
        }
        disk.send(Method::DELETE, "").await.ok();
        assert_eq!(crate::tree::objects(&side), Vec::<String>::new(), "attributes go with their objects");
    });
}

/// Sends an object in parts, by both carriers.
async fn upload(disk: &Disk, key: &str, content: &Content) {
    let call = Call::new(Method::POST, &format!("/disk/{key}?uploads="))
        .header(CONTENT, content.name())
        .header(OPERATION, "multipart");
    let id = disk.s3.send(call).await.unwrap().ok().elements("UploadId").remove(0);
    let mut parts = String::new();
    for (number, bytes) in (1..).zip(content.pieces()) {
        let call = Call::new(Method::PUT, &format!("/disk/{key}?partNumber={number}&uploadId={id}"));
        let part = disk.s3.upload(BOTH[number % 2], call, &bytes).await.unwrap().ok();
        let etag = part.header("etag");
        parts += &format!("<Part><PartNumber>{number}</PartNumber><ETag>{etag}</ETag></Part>");
    }
    let body = format!("<CompleteMultipartUpload>{parts}</CompleteMultipartUpload>");
    let call = Call::new(Method::POST, &format!("/disk/{key}?uploadId={id}")).body(body);
    disk.s3.send(call).await.unwrap().ok();
}

/// Names that the file system cannot hold.
#[test]
fn names_that_are_too_long() {
    block_on(async {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(root(&home)).unwrap();
        let (root, log) = (root(&home), home.path().join("log"));
        let gateway = Start { root: &root, flags: &[], log: &log, wrapper: &[], environment: &[] }.run();
        let s3 = S3::new(&gateway.address);
        s3.send(Call::new(Method::PUT, "/disk")).await.unwrap().ok();
        let call = |method, key: &str| Call::new(method, &format!("/disk/{key}"));
        for key in [&"n".repeat(256), &format!("d/{}/k", "n".repeat(256)), &"deep/".repeat(205)] {
            for carrier in BOTH {
                refused(
                    &s3.upload(carrier, call(Method::PUT, key), b"x").await.unwrap(),
                    400,
                    "KeyTooLongError",
                );
            }
            let copy = call(Method::PUT, key).header("x-amz-copy-source", "/disk/fits");
            s3.upload(Carrier::Http, call(Method::PUT, "fits"), b"x").await.unwrap().ok();
            refused(&s3.send(copy).await.unwrap(), 400, "KeyTooLongError");
            refused(
                &s3.send(call(Method::POST, &format!("{key}?uploads="))).await.unwrap(),
                400,
                "KeyTooLongError",
            );
        }
        // Longest there are, where even the lock's and the overflow's names have to fit beside them.
        let longest = format!("{}{}", format!("{}/", "d".repeat(255)).repeat(3), "k".repeat(255));
        let put = call(Method::PUT, &longest).header("x-amz-meta-long", "m".repeat(1900));
        s3.upload(Carrier::Rdma, put, b"whole").await.unwrap().ok();
        assert_eq!(s3.send(call(Method::GET, &longest)).await.unwrap().ok().text(), "whole");
        assert_eq!(debris(&root.join("disk")), Vec::<String>::new());
    });
}

/// Builds a library that makes reads and writes of files fail while a file exists.
fn failing_library(dir: &Path) -> PathBuf {
    let library = dir.join("failing.so");
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/proof/failing_disk.c");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-o"])
        .arg(&library)
        .arg(source)
        .status()
        .unwrap();
    assert!(built.success());
    library
}

#[test]
fn input_and_output_errors() {
    block_on(async {
        let home = tempfile::tempdir().unwrap();
        std::fs::create_dir(root(&home)).unwrap();
        let (library, broken) = (failing_library(home.path()), home.path().join("broken"));
        let environment =
            [("LD_PRELOAD", library.to_str().unwrap()), ("FAILING_DISK_WHILE", broken.to_str().unwrap())];
        let (root, log) = (root(&home), home.path().join("log"));
        let mut gateway =
            Start { root: &root, flags: &[], log: &log, wrapper: &[], environment: &environment }.run();
        let s3 = S3::new(&gateway.address);
        s3.send(Call::new(Method::PUT, "/disk")).await.unwrap().ok();
        let call = |method, key: &str| Call::new(method, &format!("/disk/{key}"));
        let old = vec![1; 3 << 20];
        for carrier in BOTH {
            s3.upload(carrier, call(Method::PUT, "old"), &old).await.unwrap().ok();
            std::fs::write(&broken, "").unwrap();
            for key in ["old", "new"] {
                let answer = s3.upload(carrier, call(Method::PUT, key), &[2; 1 << 20]).await.unwrap();
                refused(&answer, 500, "InternalError");
                assert!(!answer.text().contains("os error"), "causes stay inside: {}", answer.text());
            }
            // Either an error or a body that breaks off; never something that looks whole.
            if let Ok(got) = s3.download(carrier, call(Method::GET, "old"), 4 << 20).await {
                refused(&got, 500, "InternalError");
            }
            std::fs::remove_file(&broken).unwrap();
            let got = s3.download(carrier, call(Method::GET, "old"), 4 << 20).await.unwrap().ok();
            assert!(got.body == old);
            assert_eq!(s3.send(call(Method::GET, "new")).await.unwrap().status, 404);
        }
        assert!(gateway.is_alive());
        assert!(gateway.log().contains("os error 5"), "the log has the cause: {}", gateway.log());
        assert_eq!(debris(&root.join("disk")), Vec::<String>::new());
    });
}

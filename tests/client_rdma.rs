//! `cuobjtest` with bodies that really move by RDMA, on the cuObject library of this build, which has
//! to be the software SDK: host memory, and GPU memory on a stand-in for the CUDA driver.
#![cfg(all(feature = "client", feature = "server", not(cuobj_provider = "nvidia")))]

#[path = "client/server.rs"]
#[allow(dead_code, reason = "shared with the tests of the library")]
mod server;

#[path = "client/rdma_server.rs"]
mod rdma_server;

use std::path::Path;
use std::process::{Command, Output};

use server::Server;
use vgwrdma::client::headers::{LEGACY_TOKEN, RDMA_TOKEN};

const DC_KEY: u64 = 0xffee_ddcc;

/// The program, with nothing of the caller's RDMA settings.
fn cuobjtest(server: &Server, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cuobjtest"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy().into_owned();
        if ["AWS_", "VGWRDMA_", "CUFILE_", "CUOBJ_"].iter().any(|prefix| text.starts_with(prefix)) {
            command.env_remove(&name);
        }
    }
    command.args(arguments).args(["-endpoint", server.url()]).env("AWS_SECRET_ACCESS_KEY", "secret");
    command
}

fn run(server: &Server, arguments: &[&str]) -> Output {
    cuobjtest(server, arguments).output().unwrap()
}

fn text(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[test]
fn host_memory_goes_there_and_back() {
    let server = rdma_server::start(DC_KEY, |_| {});
    let output = run(&server, &["-memory", "host", "-size", "1000003", "-n", "3"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("mode=host-memory-cuobject-token"), "{}", text(&output));
    assert!(text(&output).contains("All checksums OK."), "{}", text(&output));
    let puts: Vec<_> = server.requests().into_iter().filter(|r| r.method == "PUT").collect();
    assert_eq!(puts.len(), 3);
    assert!(puts.iter().all(|put| put.body.is_empty() && put.header(RDMA_TOKEN).is_some()));
    // One connection carries everything but the look at the bucket.
    assert!(puts.iter().all(|put| put.connection == puts[0].connection));
}

#[test]
fn the_legacy_headers_work_too() {
    let server = rdma_server::start(DC_KEY, |_| {});
    let output = run(&server, &["-memory", "host", "-size", "4KiB", "-n", "1", "-legacy-headers"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(server.requests().iter().any(|request| request.header(LEGACY_TOKEN).is_some()));
    assert!(server.requests().iter().all(|request| request.header(RDMA_TOKEN).is_none()));
}

#[test]
fn ranges_parts_checksums_and_workers() {
    let server = rdma_server::start(DC_KEY, |_| {});
    for arguments in [
        &["-size", "100000", "-range", "999-70000"][..],
        &["-size", "1000000", "-multipart", "300000"],
        &["-size", "1000000", "-multipart", "300000", "-verify", "crc64"],
        &["-size", "4KiB", "-verify", "crc64"],
        &["-size", "4KiB", "-concurrency", "4", "-n", "5"],
        &["-size", "64KiB", "-put-only"],
        &["-size", "64KiB", "-get-only"],
        &["-sweep", "1KiB..64KiB"],
    ] {
        let output = run(&server, &[&["-memory", "host"], arguments].concat());
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output));
    }
}

#[test]
fn a_gateway_that_declines_is_1_unless_http_is_allowed() {
    let server =
        Server::start(|request, number| match (request.header(RDMA_TOKEN), request.method.as_str()) {
            (Some(_), "PUT") => server::Reply::error(501, "NotImplemented", "no RDMA here"),
            (Some(_), _) => server::Reply::new(200, &[("x-amz-rdma-reply", "501")], &[7; 1000]),
            _ => server::Reply::new(200, &[("ETag", &format!("\"{number}\""))], b""),
        });
    let arguments = ["-memory", "host", "-size", "1000", "-n", "2", "-verify", "none"];
    let refused = run(&server, &arguments);
    assert_eq!(refused.status.code(), Some(1), "{}", text(&refused));
    assert!(text(&refused).contains("declined RDMA (501 NotImplemented"), "{}", text(&refused));
    let allowed = run(&server, &[&arguments[..], &["-fall-back"]].concat());
    assert_eq!(allowed.status.code(), Some(0), "{}", text(&allowed));
    assert!(text(&allowed).contains("4 requests went over HTTP"), "{}", text(&allowed));
}

#[test]
fn bytes_that_come_back_changed_are_1() {
    let server = rdma_server::start(DC_KEY, |object| object[0] ^= 1);
    let output = run(&server, &["-memory", "host", "-size", "4KiB", "-n", "2"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output).contains("2/2 iterations had checksum mismatches"), "{}", text(&output));
}

#[test]
fn the_dc_key_of_the_environment_is_the_clients() {
    let server = rdma_server::start(0x1234_5678, |_| {});
    let arguments = ["-memory", "host", "-size", "4KiB", "-n", "1"];
    let stranger = run(&server, &arguments);
    assert_eq!(stranger.status.code(), Some(1), "{}", text(&stranger));
    let friend = cuobjtest(&server, &arguments).env("VGWRDMA_DC_KEY", "0x12345678").output().unwrap();
    assert_eq!(friend.status.code(), Some(0), "{}", text(&friend));
    // The user's own configuration stays in force beside it.
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(
        file.path(),
        r#"{"properties": {"rdma_dev_addr_list": ["127.0.0.2"], "rdma_dc_key": "0x1"}}"#,
    )
    .unwrap();
    let both = cuobjtest(&server, &arguments)
        .env("CUFILE_ENV_PATH_JSON", file.path())
        .env("VGWRDMA_DC_KEY", "305419896")
        .output()
        .unwrap();
    assert_eq!(both.status.code(), Some(0), "{}", text(&both));
    let put = server.requests().into_iter().rfind(|r| r.header(RDMA_TOKEN).is_some()).unwrap();
    assert!(put.header(RDMA_TOKEN).unwrap().ends_with("ffff7f000002"));
}

#[test]
fn settings_that_cannot_be_followed_are_refused() {
    let server = rdma_server::start(DC_KEY, |_| {});
    let arguments = ["-memory", "host", "-size", "4KiB", "-n", "1"];
    let cases = [
        ("VGWRDMA_DC_KEY", "secretive", 2, "VGWRDMA_DC_KEY"),
        ("VGWRDMA_RDMA_PORT", "0", 2, "VGWRDMA_RDMA_PORT=0"),
        ("VGWRDMA_RDMA_DEV", "no-such-device", 3, "VGWRDMA_RDMA_DEV"),
        ("CUFILE_ENV_PATH_JSON", "/nonexistent.json", 2, "/nonexistent.json"),
    ];
    for (name, value, code, words) in cases {
        let output = cuobjtest(&server, &arguments).env(name, value).output().unwrap();
        assert_eq!(output.status.code(), Some(code), "{name}: {}", text(&output));
        assert!(text(&output).contains(words), "{name}: {}", text(&output));
        assert!(!text(&output).contains("secretive"), "{}", text(&output));
    }
    let standard =
        cuobjtest(&server, &["-std-s3", "-size", "4KiB"]).env("VGWRDMA_DC_KEY", "1").output().unwrap();
    assert_eq!(standard.status.code(), Some(0));
    assert!(text(&standard).contains("VGWRDMA_DC_KEY has no effect with -std-s3"), "{}", text(&standard));
}

/// Compiles the stand-in for the CUDA driver library; gives the directory to search libraries in.
fn driver() -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/tests/client/fake_cuda.c");
    let built = Command::new("cc")
        .args(["-shared", "-fPIC", "-O1", "-pthread", "-Wl,-soname,libcuda.so.1", "-o"])
        .arg(directory.path().join("libcuda.so.1"))
        .arg(source)
        .status()
        .unwrap();
    assert!(built.success());
    directory
}

fn with_driver(server: &Server, directory: &Path, arguments: &[&str]) -> Command {
    let mut command = cuobjtest(server, arguments);
    command.env("LD_LIBRARY_PATH", directory);
    command
}

#[test]
fn gpu_memory_goes_there_and_back() {
    let (server, driver) = (rdma_server::start(DC_KEY, |_| {}), driver());
    for arguments in [
        &["-size", "1000003"][..],
        &["-size", "1000003", "-memory", "gpu", "-gpu", "0", "-verify", "crc64"],
        &["-size", "1000000", "-multipart", "300000"],
        &["-size", "100000", "-concurrency", "3"],
        &["-sweep", "1KiB..64KiB"],
    ] {
        let output = with_driver(&server, driver.path(), arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains("mode=real-cuda-cuobject-token"), "{}", text(&output));
    }
    // The same device memory with bodies over HTTP.
    let arguments = ["-size", "1000003", "-memory", "gpu", "-std-s3"];
    let output = with_driver(&server, driver.path(), &arguments).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("mode=standard-s3"), "{}", text(&output));
}

#[test]
fn changed_bytes_show_in_gpu_memory() {
    let (server, driver) = (rdma_server::start(DC_KEY, |object| object[7] ^= 1), driver());
    let output = with_driver(&server, driver.path(), &["-size", "1000", "-n", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(text(&output).contains("MISMATCH"), "{}", text(&output));
}

#[test]
fn a_gpu_that_is_not_there_is_3_and_nothing_runs_on_the_host() {
    let (server, driver) = (rdma_server::start(DC_KEY, |_| {}), driver());
    let empty = tempfile::tempdir().unwrap();
    let cases: [(&[&str], &Path, &str, &str); 4] = [
        (&["-memory", "gpu"], empty.path(), "1", "no CUDA driver"),
        (&["-memory", "gpu"], driver.path(), "0", "no CUDA device 0"),
        (&["-gpu", "3"], driver.path(), "2", "no CUDA device 3: the driver sees 2"),
        (&["-memory", "gpu", "-std-s3"], empty.path(), "1", "no CUDA driver"),
    ];
    for (arguments, directory, devices, words) in cases {
        let mut command = with_driver(&server, directory, &[arguments, &["-size", "4KiB"]].concat());
        let output = command.env("FAKE_CUDA_DEVICES", devices).output().unwrap();
        assert_eq!(output.status.code(), Some(3), "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains(words), "{arguments:?}: {}", text(&output));
        assert!(!text(&output).contains("panicked"), "{}", text(&output));
    }
    assert!(server.requests().is_empty());
}

#[test]
fn device_memory_that_is_used_up_is_told() {
    let (server, driver) = (rdma_server::start(DC_KEY, |_| {}), driver());
    let mut command = with_driver(&server, driver.path(), &["-size", "1MiB"]);
    let output = command.env("FAKE_CUDA_MEMORY", "65536").output().unwrap();
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    assert!(
        text(&output).contains("cuMemAlloc: out of memory (CUDA_ERROR_OUT_OF_MEMORY)"),
        "{}",
        text(&output)
    );
}

#[test]
fn without_a_driver_the_default_is_host_memory() {
    let (server, empty) = (rdma_server::start(DC_KEY, |_| {}), tempfile::tempdir().unwrap());
    let output = with_driver(&server, empty.path(), &["-size", "4KiB", "-n", "1"]).output().unwrap();
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("mode=host-memory-cuobject-token"), "{}", text(&output));
}

#[test]
fn files_are_copied_both_ways() {
    let (server, driver) = (rdma_server::start(DC_KEY, |_| {}), driver());
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let content: Vec<u8> = (0..3_000_001u32).map(|i| (i % 251) as u8).collect();
    let (source, copy) = (path("source"), path("copy"));
    std::fs::write(&source, &content).unwrap();
    for flags in [
        &["-memory", "host"][..],
        &["-std-s3"],
        &["-memory", "gpu"],
        &["-memory", "host", "-multipart", "1MiB"],
    ] {
        let up = [&["cp", &source, "s3://bucket/key"], flags].concat();
        let output = with_driver(&server, driver.path(), &up).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{up:?}: {}", text(&output));
        let down = [&["cp", "s3://bucket/key", &copy], &flags[..flags.len().min(2)]].concat();
        let output = with_driver(&server, driver.path(), &down).output().unwrap();
        assert_eq!(output.status.code(), Some(0), "{down:?}: {}", text(&output));
        assert!(std::fs::read(path("copy")).unwrap() == content, "{flags:?}");
        std::fs::remove_file(path("copy")).unwrap();
    }
    std::fs::write(path("empty"), b"").unwrap();
    assert!(run(&server, &["cp", &path("empty"), "s3://bucket/empty"]).status.success());
    assert!(run(&server, &["cp", "s3://bucket/empty", &path("copy")]).status.success());
    assert_eq!(std::fs::read(path("copy")).unwrap(), b"");
}

#[test]
fn failed_copies_leave_nothing() {
    let server = rdma_server::start(DC_KEY, |object| object[0] ^= 1);
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    std::fs::write(path("source"), b"some bytes").unwrap();
    assert!(run(&server, &["cp", &path("source"), "s3://bucket/key"]).status.success());
    let cases: [(&[&str], i32, &str); 7] = [
        (&["cp", "s3://bucket/key", &path("copy")], 1, "checksum mismatches"),
        (&["cp", "s3://bucket/other", &path("copy")], 1, "404"),
        (&["cp", &path("absent"), "s3://bucket/key"], 2, "absent"),
        (&["cp", &path("source"), &path("copy")], 2, "one of the two sides"),
        (&["cp", "s3://bucket/key", "s3://bucket/key2"], 2, "one of the two sides"),
        (&["cp", "s3://bucket", &path("copy")], 2, "s3://bucket/key"),
        (&["cp", "s3://bucket/key", directory.path().to_str().unwrap()], 2, "directory"),
    ];
    for (arguments, code, words) in cases {
        let output = run(&server, &[arguments, &["-memory", "host"]].concat());
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {}", text(&output));
        assert!(text(&output).contains(words), "{arguments:?}: {}", text(&output));
    }
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1);
}

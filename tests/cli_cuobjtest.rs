//! `cuobjtest` as a program: flags, exit codes, outputs, against a scripted server.
#![cfg(feature = "client")]

#[path = "client/server.rs"]
#[allow(dead_code, reason = "shared with the tests of the library")]
mod server;

use std::collections::HashMap;
use std::path::Path;
use std::process::Output;

use assert_cmd::Command;
use server::{Reply, Request, Server};
use vgwrdma::digest::{Algorithm, Digester};

/// The program with an environment that holds nothing of the caller's settings.
fn cuobjtest() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_cuobjtest"));
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy().into_owned();
        if text.starts_with("AWS_") || text.starts_with("VGWRDMA_") || text.starts_with("CUFILE_") {
            command.env_remove(&name);
        }
    }
    command.env("AWS_SECRET_ACCESS_KEY", "secret").timeout(std::time::Duration::from_secs(60));
    command
}

fn run(arguments: &[&str]) -> Output {
    cuobjtest().args(arguments).output().unwrap()
}

fn stdout(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

fn stderr(output: &Output) -> String {
    String::from_utf8(output.stderr.clone()).unwrap()
}

/// An S3 server that keeps objects in memory, bodies over HTTP. `spoil` may change what a GET gives.
fn object_server(spoil: impl Fn(&mut Vec<u8>) + Send + 'static) -> Server {
    let mut objects: HashMap<String, Vec<u8>> = HashMap::new();
    let mut has_bucket = false;
    Server::start(move |request: &Request, _| {
        let path = request.target.split('?').next().unwrap().to_owned();
        let is_object = path.matches('/').count() > 1;
        match (request.method.as_str(), is_object) {
            ("HEAD", false) if has_bucket => Reply::new(200, &[], b""),
            ("HEAD", false) => Reply::Send(b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec()),
            ("PUT", false) => {
                has_bucket = true;
                Reply::new(200, &[], b"")
            }
            ("PUT", true) => {
                objects.insert(path, request.body.clone());
                Reply::new(200, &[("ETag", "\"e\"")], b"")
            }
            ("DELETE", true) => {
                objects.remove(&path);
                Reply::Send(b"HTTP/1.1 204 No Content\r\n\r\n".to_vec())
            }
            (method, true) => match objects.get(&path) {
                None => Reply::error(404, "NoSuchKey", "no such object"),
                Some(object) => {
                    let checksum = crc64(object);
                    let mut object = object.clone();
                    spoil(&mut object);
                    let headers = [("x-amz-checksum-crc64nvme", checksum.as_str())];
                    match (method, request.header("range")) {
                        ("HEAD", _) => {
                            let head = format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n", object.len());
                            Reply::Send(head.into_bytes())
                        }
                        (_, Some(range)) => {
                            let (first, last) =
                                range.strip_prefix("bytes=").unwrap().split_once('-').unwrap();
                            let (first, last): (usize, usize) =
                                (first.parse().unwrap(), last.parse().unwrap());
                            let answered = format!("bytes {first}-{last}/{}", object.len());
                            Reply::new(206, &[("Content-Range", &answered)], &object[first..=last])
                        }
                        _ => Reply::new(200, &headers, &object),
                    }
                }
            },
            _ => Reply::error(405, "MethodNotAllowed", "no"),
        }
    })
}

fn crc64(data: &[u8]) -> String {
    let mut digester = Digester::new(false, [Algorithm::Crc64Nvme]);
    digester.update(data);
    digester.finish().base64(Algorithm::Crc64Nvme).unwrap()
}

#[test]
fn help_and_version() {
    for flag in ["--help", "-help", "-h"] {
        let output = run(&[flag]);
        assert_eq!(output.status.code(), Some(0));
        assert!(stdout(&output).contains("--std-s3"), "{}", stdout(&output));
        assert!(!stdout(&output).contains("secret\n"), "the secret shows in the help");
    }
    assert!(stdout(&run(&["--help"])).contains("Exit codes: 0 verified"));
    let output = run(&["--version"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).starts_with("cuobjtest "));
}

#[test]
fn usage_errors_are_2() {
    let cases: [(&[&str], &str); 10] = [
        (&["-nonsense"], "unexpected argument"),
        (&["-size", "lots"], "is not a size"),
        (&["-size", "0"], "-size must be"),
        (&["-size", "2GiB"], "-multipart"),
        (&["-n", "0"], "0"),
        (&["-put-only", "-get-only"], "cannot be used with"),
        (&["-endpoint", "localhost:7070", "-std-s3"], "http://gateway:7070"),
        (&["-endpoint", "http://localhost:7070/path", "-std-s3"], "path"),
        (&["-memory", "tape"], "invalid value"),
        (
            &["-endpoint", "https://localhost", "-ca-bundle", "/nonexistent.pem", "-std-s3"],
            "/nonexistent.pem",
        ),
    ];
    for (arguments, text) in cases {
        let output = run(arguments);
        assert_eq!(output.status.code(), Some(2), "{arguments:?}: {}", stderr(&output));
        assert!(stderr(&output).contains(text), "{arguments:?}: {}", stderr(&output));
        assert!(output.stdout.is_empty());
    }
}

#[test]
fn a_missing_secret_is_told_with_both_ways_to_give_it() {
    let output = cuobjtest().env_remove("AWS_SECRET_ACCESS_KEY").arg("-std-s3").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).starts_with("cuobjtest: -secret or AWS_SECRET_ACCESS_KEY is required"));
}

#[test]
fn an_endpoint_that_nobody_listens_on_is_1() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let output = run(&["-endpoint", &url, "-std-s3", "-size", "1KiB"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("cannot connect to 127.0.0.1:"), "{}", stderr(&output));
}

/// Replaces what differs from run to run: figures, and the spaces that pad them.
fn shape(text: &str, url: &str) -> String {
    let text = text.replace(&format!("{url:<28}"), "URL").replace(url, "URL");
    let mut shape = String::new();
    for line in text.lines() {
        let words: Vec<String> = line
            .split_whitespace()
            .map(|word| {
                let figure = |c: char| c.is_ascii_digit() || c == '.';
                let (head, number) = word.split_at(word.find(figure).unwrap_or(word.len()));
                let number = number.trim_end_matches(|c: char| !figure(c) && c != ')');
                match number.contains('.') && number.len() > 1 && number.chars().all(figure) {
                    true => format!("{head}N"),
                    false => word.to_owned(),
                }
            })
            .collect();
        shape.push_str(&words.join(" "));
        shape.push('\n');
    }
    // Short times are in milliseconds, long ones in seconds.
    shape.replace("N s ", "N ms ").replace("N s\n", "N ms\n")
}

#[test]
fn a_verified_run_in_the_shape_that_scripts_read() {
    let server = object_server(|_| {});
    let output = run(&["-endpoint", server.url(), "-std-s3", "-size", "64KiB", "-n", "2"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let rule = "-".repeat(70);
    let expected = format!(
        "cuobjtest: created bucket \"cuobjtest\"\n\
         \n\
         cuobjtest endpoint=URL size=64 KiB iterations=2\n\
         mode=standard-s3\n\
         \n\
         # PUT latency PUT GB/s GET latency GET GB/s checksum\n\
         {rule}\n\
         1 N ms N GB/s N ms N GB/s OK\n\
         2 N ms N GB/s N ms N GB/s OK\n\
         {rule}\n\
         OVERALL elapsed=N ms PUT agg=N GB/s (2 ops, N ops/s) GET agg=N GB/s (2 ops, N ops/s) COMBINED=N GB/s\n\
         PUT avg=N ms min=N ms max=N ms avg N GB/s\n\
         GET avg=N ms min=N ms max=N ms avg N GB/s\n\
         \n\
         All checksums OK.\n"
    );
    assert_eq!(shape(&stdout(&output), server.url()), expected);
    assert_eq!(stderr(&output), "");
}

#[test]
fn bytes_that_come_back_changed_are_1() {
    let server = object_server(|object| object[1000] ^= 1);
    let output = run(&["-endpoint", server.url(), "-std-s3", "-size", "64KiB", "-n", "2"]);
    assert_eq!(output.status.code(), Some(1));
    assert_eq!(stdout(&output).matches("MISMATCH put=").count(), 2, "{}", stdout(&output));
    assert_eq!(stderr(&output), "cuobjtest: 2/2 iterations had checksum mismatches\n");
    assert!(!stdout(&output).contains("All checksums OK"));
}

#[test]
fn crc64_travels_with_the_upload_and_none_compares_nothing() {
    let server = object_server(|_| {});
    let output = run(&["-endpoint", server.url(), "-std-s3", "-size", "1KiB", "-n", "1", "-verify", "crc64"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let put = server.requests().into_iter().rfind(|r| r.method == "PUT").unwrap();
    assert_eq!(put.header("x-amz-checksum-crc64nvme"), Some(crc64(&put.body).as_str()));

    let spoiled = object_server(|object| object[0] ^= 1);
    let output = run(&["-endpoint", spoiled.url(), "-std-s3", "-size", "1KiB", "-n", "1", "-verify", "none"]);
    assert_eq!(output.status.code(), Some(0));
    assert!(stdout(&output).contains("checksums were not compared"), "{}", stdout(&output));
}

#[test]
fn downloads_alone_are_verified_by_the_stored_checksum() {
    let server = object_server(|_| {});
    let put = run(&["-endpoint", server.url(), "-std-s3", "-size", "10000", "-put-only", "-n", "1"]);
    assert_eq!(put.status.code(), Some(0));
    assert!(stdout(&put).ends_with("\nPUT-only run complete.\n"), "{}", stdout(&put));
    // Without a size the object's own is taken.
    let get = run(&["-endpoint", server.url(), "-std-s3", "-get-only", "-n", "2"]);
    assert_eq!(get.status.code(), Some(0), "{}", stderr(&get));
    assert!(stdout(&get).contains("size=10000 B"), "{}", stdout(&get));
    assert!(stdout(&get).contains("stored checksum was verified in 2 of 2"), "{}", stdout(&get));
    assert!(stdout(&get).ends_with("\nGET-only run complete.\n"));
    // With a wrong one the run fails.
    let wrong = run(&["-endpoint", server.url(), "-std-s3", "-get-only", "-size", "9999"]);
    assert_eq!(wrong.status.code(), Some(1));
    assert!(stderr(&wrong).contains("body has 10000 bytes, expected 9999"), "{}", stderr(&wrong));
    let absent = run(&["-endpoint", server.url(), "-std-s3", "-get-only", "-size", "1KiB", "-key", "other"]);
    assert_eq!(absent.status.code(), Some(1));
    assert!(stderr(&absent).contains("NoSuchKey"), "{}", stderr(&absent));
}

#[test]
fn stored_checksums_catch_changed_bytes() {
    let server = object_server(|object| object[0] ^= 1);
    run(&["-endpoint", server.url(), "-std-s3", "-size", "10000", "-put-only", "-n", "1"]);
    let get = run(&["-endpoint", server.url(), "-std-s3", "-get-only", "-n", "1"]);
    assert_eq!(get.status.code(), Some(1));
    assert!(stderr(&get).contains("1/1 iterations had checksum mismatches"), "{}", stderr(&get));
}

#[test]
fn a_range_is_compared_with_that_part_of_the_upload() {
    let server = object_server(|_| {});
    let arguments = [
        "-endpoint",
        server.url(),
        "-std-s3",
        "-size",
        "10000",
        "-n",
        "1",
        "-range",
        "100-299",
        "-verify",
        "crc32",
    ];
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("range=100-299"));
    assert!(stdout(&output).contains("All checksums OK."));
    assert_eq!(server.requests().last().unwrap().header("range"), Some("bytes=100-299"));
}

#[test]
fn workers_have_their_own_objects_and_percentiles_show() {
    let server = object_server(|_| {});
    let arguments = [
        "-endpoint",
        server.url(),
        "-std-s3",
        "-size",
        "4KiB",
        "-n",
        "5",
        "-concurrency",
        "3",
        "-warmup",
        "1",
        "-quiet",
        "-cleanup",
    ];
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("(15 ops,") && text.contains("p99.9="), "{text}");
    assert!(!text.contains(" OK\n"), "{text}");
    let requests = server.requests();
    let puts = |key: &str| requests.iter().filter(|r| r.method == "PUT" && r.target.ends_with(key)).count();
    assert_eq!((puts("/cuobjtest-object"), puts("-1"), puts("-2")), (6, 6, 6));
    assert_eq!(requests.iter().filter(|r| r.method == "DELETE").count(), 3);
}

#[test]
fn json_and_chart() {
    let server = object_server(|_| {});
    let directory = tempfile::tempdir().unwrap();
    let path = |name: &str| directory.path().join(name).to_str().unwrap().to_owned();
    let (json, chart) = (path("out.json"), path("out.svg"));
    let arguments = [
        "-endpoint",
        server.url(),
        "-std-s3",
        "-sweep",
        "1KiB..16KiB",
        "-n",
        "2",
        "-json",
        &json,
        "-plot",
        &chart,
    ];
    let output = run(&arguments);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("16 KiB"), "{}", stdout(&output));
    let document: serde_json::Value = serde_json::from_str(&std::fs::read_to_string(&json).unwrap()).unwrap();
    assert_eq!(document["outcome"], "verified");
    let runs = document["runs"].as_array().unwrap();
    assert_eq!(
        runs.iter().map(|r| r["size_bytes"].as_u64().unwrap()).collect::<Vec<_>>(),
        [1024, 4096, 16384]
    );
    assert_eq!(runs[0]["mode"], "standard-s3");
    assert_eq!(runs[0]["put"]["operations"], 2);
    assert!(runs[0]["get"]["latency_seconds"]["p99"].as_f64().unwrap() > 0.0);
    let svg = std::fs::read_to_string(&chart).unwrap();
    assert!(svg.starts_with("<svg ") && svg.contains("standard S3"));

    let output = run(&["-endpoint", server.url(), "-std-s3", "-size", "1KiB", "-n", "1", "-json", "-"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["runs"][0]["samples"][0]["checksum"], "ok");

    let output =
        run(&["-endpoint", server.url(), "-std-s3", "-size", "1KiB", "-json", "/nonexistent/x.json"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(stderr(&output).contains("/nonexistent/x.json"), "{}", stderr(&output));
}

#[test]
fn a_duration_ends_a_run() {
    let server = object_server(|_| {});
    let output = run(&["-endpoint", server.url(), "-std-s3", "-size", "1KiB", "-duration", "1"]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    assert!(stdout(&output).contains("iterations=1s"), "{}", stdout(&output));
}

#[test]
fn an_interrupt_is_130() {
    let (told, waiting) = std::sync::mpsc::channel();
    let server = Server::start(move |request, _| {
        if request.body.is_empty() {
            return Reply::new(200, &[], b"");
        }
        let _ = told.send(());
        // The reply never comes; the program is stopped meanwhile.
        std::thread::park();
        Reply::close()
    });
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_cuobjtest"))
        .args(["-endpoint", server.url(), "-std-s3", "-size", "1KiB"])
        .env("AWS_SECRET_ACCESS_KEY", "secret")
        .stdout(std::process::Stdio::null())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    waiting.recv().unwrap();
    let pid = rustix::process::Pid::from_raw(child.id() as i32).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::INT).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(130));
}

#[test]
fn a_closed_pipe_is_no_failure() {
    let server = object_server(|_| {});
    let mut child = std::process::Command::new(env!("CARGO_BIN_EXE_cuobjtest"))
        .args(["-endpoint", server.url(), "-std-s3", "-size", "1KiB", "-n", "20"])
        .env("AWS_SECRET_ACCESS_KEY", "secret")
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

fn device_tree(root: &Path, state: &str) {
    let write = |path: &str, text: &str| {
        let path = root.join("sys/class/infiniband/mlx5_0").join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    };
    write("hca_type", "MT4129\n");
    write("ports/1/state", state);
    write("ports/1/phys_state", "5: LinkUp\n");
    write("ports/1/link_layer", "Ethernet\n");
    write("ports/1/rate", "400 Gb/sec (4X NDR)\n");
    write("ports/1/gids/3", "0000:0000:0000:0000:0000:ffff:0a00:0001\n");
    write("ports/1/gid_attrs/types/3", "RoCE v2\n");
    write("ports/1/gid_attrs/ndevs/3", "ens1\n");
    let driver = root.join("sys/bus/pci/drivers/mlx5_core");
    std::fs::create_dir_all(&driver).unwrap();
    std::fs::create_dir_all(root.join("sys/class/infiniband/mlx5_0/device")).unwrap();
    std::os::unix::fs::symlink(driver, root.join("sys/class/infiniband/mlx5_0/device/driver")).unwrap();
}

#[test]
fn devices_are_listed_with_the_chosen_one() {
    let root = tempfile::tempdir().unwrap();
    device_tree(root.path(), "4: ACTIVE\n");
    let at = root.path().to_str().unwrap();
    let output = run(&["devices", "-root", at]);
    assert_eq!(output.status.code(), Some(0), "{}", stderr(&output));
    let text = stdout(&output);
    assert!(text.contains("mlx5_0  ConnectX-7 (MT4129)  driver mlx5_core"), "{text}");
    assert!(text.contains("* GID 3   RoCE v2     10.0.0.1"), "{text}");
    assert!(text.contains("chosen: mlx5_0 port 1 GID 3 (10.0.0.1)"), "{text}");

    let output = run(&["devices", "--root", at, "-json", "-endpoint", "http://127.0.0.1:7070"]);
    let document: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(document["chosen"]["gid_index"], 3);
    assert_eq!(document["devices"][0]["ports"][0]["gids"][0]["kind"], "RoCE v2");
}

#[test]
fn devices_that_do_not_fit_are_3_with_the_reason() {
    let root = tempfile::tempdir().unwrap();
    let at = root.path().to_str().unwrap();
    let output = run(&["devices", "-root", at]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stdout(&output).contains("error: no RDMA device"), "{}", stdout(&output));
    device_tree(root.path(), "1: DOWN\n");
    let output = run(&["devices", "-root", at]);
    assert_eq!(output.status.code(), Some(3));
    assert!(stdout(&output).contains("mlx5_0 port 1 is DOWN"), "{}", stdout(&output));
    let output =
        cuobjtest().args(["devices", "-root", at]).env("VGWRDMA_RDMA_PORT", "zero").output().unwrap();
    assert_eq!(output.status.code(), Some(2));
    assert!(stderr(&output).contains("VGWRDMA_RDMA_PORT=zero"), "{}", stderr(&output));
}

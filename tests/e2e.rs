//! Both programs and a stock SDK, as processes on real sockets, on the software SDK.

use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use tempfile::TempDir;

const ACCESS: &str = "e2e-access";
const SECRET: &str = "e2e-secret-7d1f";

/// A gateway process over a directory of its own, ended on drop.
struct Gateway {
    child: Child,
    endpoint: String,
    metrics: String,
    root: TempDir,
}

impl Gateway {
    fn start(flags: &[&str]) -> Self {
        Self::start_with(flags, &[])
    }

    fn start_with(flags: &[&str], environment: &[(&str, &str)]) -> Self {
        let root = TempDir::new().unwrap();
        let mut child = Command::new(env!("CARGO_BIN_EXE_vgwrdma"))
            .args(["--port", "127.0.0.1:0", "--metrics-port", "127.0.0.1:0"])
            .args(["--pool-buf-size", "64MiB", "--pool-buf-count", "1"])
            .args(flags)
            .arg("posix")
            .arg(root.path())
            .env("ROOT_ACCESS_KEY_ID", ACCESS)
            .env("ROOT_SECRET_ACCESS_KEY", SECRET)
            .envs(environment.iter().copied())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let (mut endpoint, mut metrics) = (String::new(), String::new());
        let address = |line: &str, what: &str| {
            let rest = line.split_once(what)?.1;
            let address =
                rest.split_whitespace().next()?.trim_start_matches("http://").trim_end_matches("/metrics");
            Some(format!("http://{address}"))
        };
        while endpoint.is_empty() || metrics.is_empty() {
            let line = lines.next().expect("the gateway ended before it listened");
            if let Some(found) = address(&line, "metrics on ") {
                metrics = found;
            } else if let Some(found) = address(&line, "listening on ") {
                endpoint = found;
            }
        }
        std::thread::spawn(move || lines.for_each(drop));
        Self { child, endpoint, metrics, root }
    }

    fn page(&self) -> String {
        let page =
            Command::new("curl").args(["-fsS", &format!("{}/metrics", self.metrics)]).output().unwrap();
        assert!(page.status.success(), "{}", String::from_utf8_lossy(&page.stderr));
        String::from_utf8(page.stdout).unwrap()
    }

    /// The first gauge of the engine that is not as it is at rest.
    fn unrest(&self) -> Option<String> {
        let busy = |line: &&str| {
            let (name, value) = line.split_once(' ').unwrap_or_default();
            let gauge = name.strip_prefix("vgwrdma_engine_").unwrap_or_default();
            let counts = ["channels_condemned", "operations_", "transfers_running", "transfers_waiting"];
            let chunks = gauge.starts_with("chunks{") && gauge != "chunks{state=\"free\"}";
            (chunks || counts.iter().any(|c| gauge.starts_with(c)) && !gauge.contains("_total"))
                && value != "0"
        };
        self.page().lines().find(busy).map(str::to_owned)
    }

    /// A sample of the metrics page by its name and labels.
    fn sample(&self, name: &str) -> f64 {
        let text = self.page();
        let line = text.lines().find_map(|l| l.strip_prefix(name)?.strip_prefix(' '));
        line.unwrap_or_else(|| panic!("no sample {name} in:\n{text}")).parse().unwrap()
    }

    /// Bytes so far: HTTP bodies in and out at the listener, RDMA in and out.
    fn bytes_moved(&self) -> [f64; 4] {
        [
            "http_body_bytes_total{direction=\"in\"}",
            "http_body_bytes_total{direction=\"out\"}",
            "rdma_bytes_total{direction=\"in\"}",
            "rdma_bytes_total{direction=\"out\"}",
        ]
        .map(|name| self.sample(&format!("vgwrdma_{name}")))
    }

    fn cuobjtest(&self, flags: &[&str]) -> Output {
        self.cuobjtest_command(flags).output().unwrap()
    }

    fn cuobjtest_command(&self, flags: &[&str]) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_cuobjtest"));
        command
            .args(["-endpoint", &self.endpoint, "-access", ACCESS, "-bucket", "e2e"])
            .args(flags)
            .env("AWS_SECRET_ACCESS_KEY", SECRET);
        command
    }
}

/// The end of every test: all of the engine's memory and operations are back.
impl Drop for Gateway {
    fn drop(&mut self) {
        let mut unrest = None;
        if !std::thread::panicking() {
            for _ in 0..200 {
                unrest = self.unrest();
                if unrest.is_none() {
                    break;
                }
                std::thread::sleep(std::time::Duration::from_millis(50));
            }
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
        assert_eq!(unrest, None, "not at rest at the end of the test");
    }
}

fn text(output: &Output) -> String {
    format!("{}\n{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Everything below a directory but its own name.
fn files(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files(&path));
        } else {
            found.push(path.display().to_string());
        }
    }
    found.sort();
    found
}

#[test]
fn rdma_bodies_never_pass_through_http() {
    let gateway = Gateway::start(&["--rdma-ip", "127.0.0.1"]);
    let run = gateway.cuobjtest(&["-key", "rdma", "-size", "5MiB", "-n", "3"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run));
    let shown = text(&run);
    assert!(shown.contains("mode=host-memory-cuobject-token"), "{shown}");
    assert!(shown.contains("All checksums OK."), "{shown}");
    let moved = 3.0 * f64::from(5 << 20);
    assert_eq!(gateway.bytes_moved(), [0.0, 0.0, moved, moved]);

    let run = gateway.cuobjtest(&["-key", "http", "-size", "1000001", "-n", "2", "-std-s3"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run));
    assert!(text(&run).contains("mode=standard-s3"), "{}", text(&run));
    assert_eq!(gateway.bytes_moved(), [2_000_002.0, 2_000_002.0, moved, moved]);
}

#[test]
fn what_one_carrier_stores_the_other_reads() {
    let gateway = Gateway::start(&["--rdma-ip", "127.0.0.1"]);
    for (put, get) in
        [(&["-put-only"][..], &["-get-only", "-std-s3"][..]), (&["-put-only", "-std-s3"], &["-get-only"])]
    {
        for size in ["1", "4095", "4097", "1000003"] {
            for flags in [put, get] {
                let run =
                    gateway.cuobjtest(&[&["-key", "crossed", "-size", size, "-n", "1"], flags].concat());
                assert_eq!(run.status.code(), Some(0), "{flags:?} {size}: {}", text(&run));
            }
            let stored = std::fs::metadata(gateway.root.path().join("e2e/crossed")).unwrap();
            assert_eq!(stored.len().to_string(), size);
        }
    }
}

#[test]
fn a_gateway_without_rdma_refuses_tokens_and_stores_nothing() {
    let gateway = Gateway::start(&[]);
    let run = gateway.cuobjtest(&["-key", "refused", "-size", "64KiB", "-n", "1"]);
    assert_eq!(run.status.code(), Some(1), "{}", text(&run));
    assert!(text(&run).contains("NotImplemented"), "{}", text(&run));
    assert!(!gateway.root.path().join("e2e/refused").exists());
    let run = gateway.cuobjtest(&["-key", "plain", "-size", "64KiB", "-n", "1", "-std-s3"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run));
}

#[test]
fn another_dc_key_moves_nothing() {
    let gateway = Gateway::start(&["--rdma-ip", "127.0.0.1", "--rdma-dc-key", "0x12345678"]);
    let run = gateway.cuobjtest(&["-key", "stranger", "-size", "64KiB", "-n", "1", "-put-only"]);
    assert_eq!(run.status.code(), Some(1), "{}", text(&run));
    assert!(!gateway.root.path().join("e2e/stranger").exists());
    let run = gateway
        .cuobjtest_command(&["-key", "friend", "-size", "64KiB", "-n", "1"])
        .env("VGWRDMA_DC_KEY", "0x12345678")
        .output()
        .unwrap();
    assert_eq!(run.status.code(), Some(0), "{}", text(&run));
}

#[test]
fn a_killed_client_leaves_the_old_object_and_no_debris() {
    let gateway = Gateway::start(&["--rdma-ip", "127.0.0.1", "--rdma-timeout", "10"]);
    let run = gateway.cuobjtest(&["-key", "kept", "-size", "1MiB", "-n", "1", "-put-only"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run));
    let path = gateway.root.path().join("e2e/kept");
    let before = std::fs::read(&path).unwrap();
    for delay_ms in [20, 60, 120, 200] {
        let mut client = gateway
            .cuobjtest_command(&["-key", "kept", "-size", "512MiB", "-n", "1", "-put-only"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(delay_ms));
        client.kill().unwrap();
        client.wait().unwrap();
    }
    let run = gateway.cuobjtest(&["-key", "after", "-size", "1MiB", "-n", "2"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run));
    let after = std::fs::read(&path).unwrap();
    assert!(after == before || after.len() == 512 << 20, "{} bytes", after.len());
    let debris: Vec<_> = files(&gateway.root.path().join("e2e"))
        .into_iter()
        .filter(|f| f.contains(".sgwtmp") && !f.contains("/locks/"))
        .collect();
    assert!(debris.is_empty(), "{debris:?}");
}

/// Failures of the fabric, in the software SDK's words: the transfer fails, what was there stays, the
/// next one works. A byte that was changed on the way is caught by the client's checksum.
#[test]
fn faults_of_the_fabric_lose_nothing() {
    for (fault, names) in [
        ("corrupt:n=2,op=read,at=100", "BadDigest"),
        ("short:n=2,op=read", "IBV_WC_LOC_LEN_ERR"),
        ("disconnect:n=2,op=read", "IBV_WC_RETRY_EXC_ERR"),
        ("status:n=2,op=read,code=10", "IBV_WC_REM_ACCESS_ERR"),
    ] {
        let gateway = Gateway::start_with(&["--rdma-ip", "127.0.0.1"], &[("CUOBJ_SOFT_FAULT", fault)]);
        let put = |size: &str| {
            let verified = ["--verify", "crc64", "--attempts", "1"];
            gateway.cuobjtest(
                &[&["-key", "kept", "-size", size, "-n", "1", "-put-only"][..], &verified].concat(),
            )
        };
        assert_eq!(put("1MiB").status.code(), Some(0));
        let before = std::fs::read(gateway.root.path().join("e2e/kept")).unwrap();
        let failed = put("9MiB");
        assert_eq!(failed.status.code(), Some(1), "{fault}: {}", text(&failed));
        assert!(text(&failed).contains(names), "{fault}: {}", text(&failed));
        assert!(std::fs::read(gateway.root.path().join("e2e/kept")).unwrap() == before, "{fault}");
        assert_eq!(put("9MiB").status.code(), Some(0), "{fault}");
    }
}

#[test]
fn a_byte_changed_on_the_way_out_is_seen() {
    let fault = [("CUOBJ_SOFT_FAULT", "corrupt:n=2,op=write,at=5")];
    let gateway = Gateway::start_with(&["--rdma-ip", "127.0.0.1"], &fault);
    let run = gateway.cuobjtest(&["-key", "changed", "-size", "9MiB", "-n", "1"]);
    assert_eq!(run.status.code(), Some(1), "{}", text(&run));
    assert!(text(&run).contains("checksum mismatch"), "{}", text(&run));
}

#[test]
fn a_slow_agent_only_takes_longer() {
    let fault = [("CUOBJ_SOFT_FAULT", "delay:ms=30")];
    let gateway = Gateway::start_with(&["--rdma-ip", "127.0.0.1"], &fault);
    let run = gateway.cuobjtest(&["-key", "slow", "-size", "9MiB", "-n", "2", "-concurrency", "4"]);
    assert_eq!(run.status.code(), Some(0), "{}", text(&run));
    assert!(text(&run).contains("All checksums OK."), "{}", text(&run));
}

#[test]
fn a_stock_sdk_works_with_it() {
    let gateway = Gateway::start(&[]);
    let run = Command::new("/usr/bin/python3")
        .arg(concat!(env!("CARGO_MANIFEST_DIR"), "/tests/stock_sdk.py"))
        .arg(&gateway.endpoint)
        .env("AWS_ACCESS_KEY_ID", ACCESS)
        .env("AWS_SECRET_ACCESS_KEY", SECRET)
        .output()
        .unwrap();
    assert!(run.status.success(), "is python3-boto3 installed?\n{}", text(&run));
    assert!(text(&run).contains("all checks passed"), "{}", text(&run));
}

#[test]
fn parts_are_checked_by_the_gateway_whatever_carries_them() {
    let size = ["-key", "parts", "-size", "11MiB", "-n", "1", "-multipart", "5MiB", "-verify", "crc64"];
    let with_rdma = Gateway::start(&["--rdma-ip", "127.0.0.1"]);
    for flags in [&[][..], &["-std-s3"]] {
        let run = with_rdma.cuobjtest(&[&size[..], flags].concat());
        assert_eq!(run.status.code(), Some(0), "{flags:?}: {}", text(&run));
        assert!(text(&run).contains("All checksums OK."), "{}", text(&run));
        // The checksum that a gateway stores of the whole is what a later download is held against.
        let run = with_rdma.cuobjtest(&["-key", "parts", "-get-only", "-n", "1"]);
        assert_eq!(run.status.code(), Some(0), "{}", text(&run));
        assert!(text(&run).contains("verified in 1 of 1 downloads"), "{}", text(&run));
    }
    let without = Gateway::start(&[]);
    let run = without.cuobjtest(&[&size[..], &["-fall-back"]].concat());
    assert_eq!(run.status.code(), Some(0), "{}", text(&run));
    assert!(text(&run).contains("4 requests went over HTTP"), "{}", text(&run));
}

#[test]
fn the_examples_run() {
    let gateway = Gateway::start(&["--rdma-ip", "127.0.0.1"]);
    let programs = Path::new(env!("CARGO_BIN_EXE_cuobjtest")).parent().unwrap().join("examples");
    let example = |name: &str| {
        Command::new(programs.join(name))
            .args([&gateway.endpoint, "examples"])
            .env("AWS_ACCESS_KEY_ID", ACCESS)
            .env("AWS_SECRET_ACCESS_KEY", SECRET)
            .env("CUDA_VISIBLE_DEVICES", "")
            .output()
            .unwrap_or_else(|e| panic!("{name} was not built (cargo build --examples): {e}"))
    };
    for (name, words) in [
        ("host_memory", "all equal"),
        ("multipart", "stored 33554432 bytes in 4 parts"),
        ("class_callbacks", "cuObjGet moved 1048576 bytes, all equal"),
    ] {
        let run = example(name);
        assert!(run.status.success() && text(&run).contains(words), "{name}: {}", text(&run));
    }
    let run = example("gpu_memory");
    assert!(!run.status.success(), "{}", text(&run));
    assert!(text(&run).contains("CUDA"), "{}", text(&run));
    let [http_in, http_out, rdma_in, rdma_out] = gateway.bytes_moved();
    let mib = f64::from(1 << 20);
    assert_eq!([rdma_in, rdma_out], [(4.0 + 32.0 + 1.0) * mib, (4.0 + 1.0) * mib + 1000.0]);
    // The two documents of the multipart upload.
    assert!(http_in < 1000.0 && http_out < 1000.0, "{http_in} {http_out}");
    let left: Vec<_> =
        files(&gateway.root.path().join("examples")).into_iter().filter(|f| !f.contains("/locks/")).collect();
    assert!(left.is_empty(), "{left:?}");
}

//! The gateway's command as a process: texts, exit codes, signals.
#![cfg(all(feature = "server", feature = "client"))]

#[path = "gateway/sign.rs"]
#[allow(dead_code)]
mod sign;

use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;
use test_case::test_case;

fn command() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_vgwrdma"));
    // What the surroundings set must not decide the tests.
    for (name, _) in std::env::vars() {
        if name.starts_with("VGW_") || name.starts_with("ROOT_") {
            command.env_remove(name);
        }
    }
    command
}

fn with_keys() -> Command {
    let mut command = command();
    command.env("ROOT_ACCESS_KEY_ID", "cli-access").env("ROOT_SECRET_ACCESS_KEY", "cli-secret");
    command
}

fn run(command: &mut Command) -> (i32, String, String) {
    let Output { status, stdout, stderr } = command.output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (status.code().unwrap(), text(stdout), text(stderr))
}

/// One line on standard error that names something, and nothing on standard output.
#[track_caller]
fn fails(command: &mut Command, code: i32, names: &str) {
    let (status, stdout, stderr) = run(command);
    assert_eq!((status, stdout.as_str()), (code, ""), "{stderr}");
    assert_eq!(stderr.lines().count(), 1, "{stderr}");
    assert!(stderr.starts_with("vgwrdma: ") && stderr.contains(names), "{stderr}");
    assert!(!stderr.contains("cli-secret"), "{stderr}");
}

#[test]
fn help_goes_to_standard_output() {
    let (status, stdout, stderr) = run(command().arg("--help"));
    assert_eq!((status, stderr.as_str()), (0, ""));
    for word in ["posix", "--port", "VGW_PORT", "--rdma-ip", "--rdma-dc-key", "[default: 4MiB]"] {
        assert!(stdout.contains(word), "{word} is not in:\n{stdout}");
    }
    let (status, stdout, _) = run(command().args(["posix", "--help"]));
    assert_eq!(status, 0);
    for word in ["ROOT", "--durability", "--versioning-dir", "VGW_DIR_PERMS", "--rdma-ip"] {
        assert!(stdout.contains(word), "{word} is not in:\n{stdout}");
    }
}

#[test_case("--version")]
#[test_case("-v")]
fn version_names_the_library(flag: &str) {
    let (status, stdout, _) = run(command().arg(flag));
    assert_eq!(status, 0);
    assert!(stdout.starts_with(concat!("vgwrdma ", env!("CARGO_PKG_VERSION"), " (")), "{stdout}");
    assert!(stdout.contains("cuObject"), "{stdout}");
}

#[test_case(&["--nonsense", "posix", "/tmp"], "--nonsense")]
#[test_case(&["posix"], "ROOT")]
#[test_case(&["scoutfs", "/tmp"], "scoutfs"; "another backend")]
#[test_case(&["--port", "7070", "posix", "/tmp"], "7070")]
#[test_case(&["--port", "127.0.0.1:99999", "posix", "/tmp"], "99999")]
#[test_case(&["--rdma-ip", "127.0.0.1", "--pool-buf-size", "1Gigabyte", "posix", "/tmp"], "unknown unit")]
#[test_case(&["--rdma-ip", "127.0.0.1", "--rdma-retry-count", "8", "posix", "/tmp"], "--rdma-retry-count")]
#[test_case(&["--rdma-ip", "127.0.0.1", "--pool-buf-count", "100000", "posix", "/tmp"], "does not fit")]
#[test_case(&["posix", "--durability", "some", "/tmp"], "--durability")]
fn mistakes_are_told_in_a_line(arguments: &[&str], names: &str) {
    fails(with_keys().args(arguments), 2, names);
}

#[test]
fn keys_are_demanded() {
    fails(command().args(["posix", "/tmp"]), 2, "--access");
    fails(command().env("ROOT_ACCESS_KEY", "a").args(["posix", "/tmp"]), 2, "ROOT_SECRET_KEY");
}

#[test]
fn a_port_in_use_is_told() {
    let root = TempDir::new().unwrap();
    let taken = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = taken.local_addr().unwrap().to_string();
    fails(with_keys().args(["--quiet", "--port", &address, "posix"]).arg(root.path()), 1, &address);
}

#[test]
fn a_root_that_cannot_be_served_is_told() {
    let place = TempDir::new().unwrap();
    let missing = place.path().join("missing");
    let start = |root: &std::path::Path| {
        let mut command = with_keys();
        command.args(["--quiet", "--port", "127.0.0.1:0", "posix"]).arg(root);
        command
    };
    fails(&mut start(&missing), 1, "missing");
    let file = place.path().join("file");
    std::fs::write(&file, "no directory").unwrap();
    fails(&mut start(&file), 1, "file");
}

#[test]
fn an_address_without_an_rdma_device_is_told() {
    let root = TempDir::new().unwrap();
    let arguments = [
        "--quiet",
        "--port",
        "127.0.0.1:0",
        "--pool-buf-size",
        "4MiB",
        "--pool-buf-count",
        "1",
        "--rdma-dc-key",
        "7",
    ];
    // TEST-NET-1 of RFC 5737 is on no interface.
    fails(
        with_keys().args(arguments).args(["--rdma-ip", "192.0.2.1", "posix"]).arg(root.path()),
        1,
        "192.0.2.1",
    );
}

#[test]
fn a_certificate_that_is_none_is_told() {
    let root = TempDir::new().unwrap();
    let pem = root.path().join("x.pem");
    std::fs::write(&pem, "nonsense").unwrap();
    let mut command = with_keys();
    command.args(["--quiet", "--port", "127.0.0.1:0", "--cert"]).arg(&pem).arg("--key").arg(&pem);
    fails(command.arg("posix").arg(root.path()), 1, "x.pem");
}

/// A running gateway and where it listens.
struct Running {
    child: Child,
    address: String,
    lines: Vec<String>,
    root: TempDir,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let root = TempDir::new().unwrap();
        let mut child = with_keys()
            .args(["--port", "127.0.0.1:0"])
            .args(arguments)
            .arg("posix")
            .arg(root.path())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let mut lines = Vec::new();
        let mut reader = BufReader::new(child.stdout.take().unwrap()).lines();
        let address = loop {
            let line = reader.next().expect("it ended before it listened").unwrap();
            lines.push(line.clone());
            if let Some(rest) = line.strip_prefix("listening on ") {
                break rest.split(' ').next().unwrap().to_owned();
            }
        };
        Self { child, address, lines, root }
    }

    fn signal(&self, signal: &str) {
        let pid = self.child.id().to_string();
        assert!(Command::new("kill").args([signal, &pid]).status().unwrap().success());
    }

    /// Its exit code, once it has ended.
    fn end(&mut self) -> i32 {
        let start = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                return status.code().unwrap();
            }
            assert!(start.elapsed() < Duration::from_secs(30), "it does not end");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

#[test_case("-TERM")]
#[test_case("-INT")]
fn a_signal_ends_it_well(signal: &str) {
    let mut gateway = Running::start(&[]);
    assert!(
        gateway.lines.iter().any(|l| l.starts_with("vgwrdma ") && l.contains("serving /")),
        "{:?}",
        gateway.lines
    );
    assert!(gateway.lines.iter().any(|l| l.starts_with("rdma off")), "{:?}", gateway.lines);
    TcpStream::connect(&gateway.address).unwrap();
    gateway.signal("-HUP");
    TcpStream::connect(&gateway.address).unwrap();
    gateway.signal(signal);
    assert_eq!(gateway.end(), 0);
}

#[test]
fn a_second_signal_ends_it_at_once() {
    use std::io::Write as _;
    let mut gateway = Running::start(&[]);
    // A request whose body does not come keeps the first signal waiting.
    let signer = sign::Signer {
        access: "cli-access".into(),
        secret: "cli-secret".into(),
        region: "us-east-1".into(),
        skew: 0,
    };
    std::fs::create_dir(gateway.root.path().join("bucket")).unwrap();
    let mut headers = http::HeaderMap::new();
    headers.insert("host", gateway.address.parse().unwrap());
    let url = format!("http://{}/bucket/key", gateway.address);
    signer.sign("PUT", &url, &mut headers, "UNSIGNED-PAYLOAD");
    let mut held = TcpStream::connect(&gateway.address).unwrap();
    let mut head = "PUT /bucket/key HTTP/1.1\r\ncontent-length: 10\r\n".to_owned();
    for (name, value) in &headers {
        head.push_str(&format!("{name}: {}\r\n", value.to_str().unwrap()));
    }
    held.write_all(format!("{head}\r\n12345").as_bytes()).unwrap();
    std::thread::sleep(Duration::from_millis(300));
    gateway.signal("-TERM");
    std::thread::sleep(Duration::from_millis(300));
    assert!(gateway.child.try_wait().unwrap().is_none(), "it did not wait for the request");
    let start = Instant::now();
    gateway.signal("-TERM");
    assert_eq!(gateway.end(), 1);
    assert!(start.elapsed() < Duration::from_secs(5));
}

#[test]
fn rdma_and_metrics_are_announced() {
    let gateway = Running::start(&[
        "--rdma-ip",
        "127.0.0.1",
        "--pool-buf-size",
        "8MiB",
        "--pool-buf-count",
        "2",
        "--rdma-dc-key",
        "0x1234",
        "--metrics-port",
        "127.0.0.1:0",
    ]);
    let line = |start: &str| gateway.lines.iter().find(|l| l.starts_with(start)).cloned().unwrap_or_default();
    let rdma = line("rdma on ");
    assert!(rdma.contains("127.0.0.1 port 19100, pool 16MiB in chunks of 4MiB"), "{:?}", gateway.lines);
    assert!(line("metrics on 127.0.0.1:").len() > 22, "{:?}", gateway.lines);
}

//! Servers to measure, each a process of its own that ends on drop.

use std::io::{BufRead as _, BufReader};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use vgwrdma::client::{Client, Credentials};

const ACCESS: &str = "bench";
const SECRET: &str = "bench-secret";
/// The bucket of all objects.
pub(crate) const BUCKET: &str = "bench";

/// A directory that goes away with its owner; on tmpfs where there is one.
pub(crate) struct Directory(pub(crate) PathBuf);

impl Directory {
    pub(crate) fn new() -> Result<Self> {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let shm = Path::new("/dev/shm");
        let base = if shm.is_dir() { shm.to_owned() } else { std::env::temp_dir() };
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let path = base.join(format!("vgwrdma-bench-{}-{number}", std::process::id()));
        std::fs::create_dir_all(&path)?;
        Ok(Self(path))
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A running server. Fields drop in this order: the directory after the process.
pub(crate) struct Server {
    child: Child,
    pub(crate) endpoint: String,
    pub(crate) root: Directory,
}

impl Server {
    /// The gateway of this build, or the program at `program`.
    pub(crate) fn gateway(program: Option<&Path>, flags: &[&str]) -> Result<Self> {
        let root = Directory::new()?;
        let mut child = Command::new(program.unwrap_or(Path::new(env!("CARGO_BIN_EXE_vgwrdma"))))
            .args(["--port", "127.0.0.1:0", "--rdma-ip", "127.0.0.1", "posix"])
            .args(flags)
            .arg(&root.0)
            .env("ROOT_ACCESS_KEY_ID", ACCESS)
            .env("ROOT_SECRET_ACCESS_KEY", SECRET)
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let mut lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
        let address = lines
            .by_ref()
            .map_while(Result::ok)
            .find_map(|line| Some(line.split_once("listening on ")?.1.split_whitespace().next()?.to_owned()))
            .ok_or_else(|| anyhow!("the gateway did not start"))?;
        std::thread::spawn(move || lines.for_each(drop));
        let address = address.trim_start_matches("http://").to_owned();
        Ok(Self { child, endpoint: format!("http://{address}"), root })
    }

    /// nginx, when it is installed, over a directory that another server serves.
    pub(crate) fn nginx(served: &Path) -> Result<Option<Self>> {
        let found = ["/usr/sbin/nginx", "/usr/bin/nginx"].map(Path::new).into_iter().find(|p| p.exists());
        let Some(program) = found else { return Ok(None) };
        let (root, port) = (Directory::new()?, free_port()?);
        let settings = root.0.join("nginx.conf");
        // Debian's defaults for what is measured: sendfile, tcp_nopush, one worker for each processor.
        std::fs::write(
            &settings,
            format!(
                "daemon off; user root; worker_processes auto; pid {0}/pid; error_log {0}/error.log;\n\
                 events {{ worker_connections 768; }}\n\
                 http {{ sendfile on; tcp_nopush on; access_log off;\n\
                 client_body_temp_path {0}/body; proxy_temp_path {0}/proxy; fastcgi_temp_path {0}/fastcgi;\n\
                 uwsgi_temp_path {0}/uwsgi; scgi_temp_path {0}/scgi;\n\
                 server {{ listen 127.0.0.1:{port}; root {1}; }} }}\n",
                root.0.display(),
                served.display()
            ),
        )?;
        let mut command = Command::new(program);
        command.arg("-c").arg(&settings);
        Self::wait_for(command, root, port).map(Some)
    }

    /// s3s-fs, the example server of the s3s project, when `S3S_FS` says where it is.
    pub(crate) fn s3s_fs() -> Result<Option<Self>> {
        let Some(program) = std::env::var_os("S3S_FS") else { return Ok(None) };
        let (root, port) = (Directory::new()?, free_port()?);
        let mut command = Command::new(program);
        command.args(["--host", "127.0.0.1", "--port", &port.to_string()]);
        command.args(["--access-key", ACCESS, "--secret-key", SECRET]).arg(&root.0);
        command.env("RUST_LOG", "error");
        Self::wait_for(command, root, port).map(Some)
    }

    fn wait_for(mut command: Command, root: Directory, port: u16) -> Result<Self> {
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let mut server = Self { child, endpoint: format!("http://127.0.0.1:{port}"), root };
        for _ in 0..200 {
            if TcpStream::connect(("127.0.0.1", port)).is_ok() {
                return Ok(server);
            }
            ensure!(server.child.try_wait()?.is_none(), "{command:?} ended at once");
            std::thread::sleep(Duration::from_millis(25));
        }
        Err(anyhow!("{command:?} does not listen"))
    }

    pub(crate) fn client(&self) -> Result<Client> {
        Ok(Client::builder(&self.endpoint).credentials(Credentials::new(ACCESS, SECRET)).build()?)
    }

    /// CPU seconds used so far (`utime` + `stime` of proc(5), in ticks of 1/100 s).
    pub(crate) fn cpu_seconds(&self) -> Result<f64> {
        let stat = std::fs::read_to_string(format!("/proc/{}/stat", self.child.id()))?;
        Ok(ticks_of(&stat)? as f64 / 100.0)
    }

    /// Of these, those of the threads that copy in place of a NIC, with the software SDK.
    pub(crate) fn copy_seconds(&self) -> Result<f64> {
        let mut ticks = 0;
        for task in std::fs::read_dir(format!("/proc/{}/task", self.child.id()))? {
            // Other threads may end meanwhile.
            let Ok(stat) = std::fs::read_to_string(task?.path().join("stat")) else { continue };
            if stat.contains("(soft-rdma)") {
                ticks += ticks_of(&stat)?;
            }
        }
        Ok(ticks as f64 / 100.0)
    }

    /// A line of `/proc/PID/status`, in bytes.
    pub(crate) fn status_bytes(&self, name: &str) -> Result<u64> {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.child.id()))?;
        let line = status.lines().find(|l| l.starts_with(name)).context("no such line")?;
        Ok(line.split_whitespace().nth(1).context("no value")?.parse::<u64>()? * 1024)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // nginx ends its workers when it is asked to end, not when it is killed.
        if let Some(pid) = rustix::process::Pid::from_raw(self.child.id() as i32) {
            let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        }
        for _ in 0..400 {
            if !matches!(self.child.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(5));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn ticks_of(stat: &str) -> Result<u64> {
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
    Ok(fields[11].parse::<u64>()? + fields[12].parse::<u64>()?)
}

fn free_port() -> Result<u16> {
    Ok(TcpListener::bind("127.0.0.1:0")?.local_addr()?.port())
}

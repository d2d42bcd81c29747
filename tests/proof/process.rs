//! Gateway processes: started, killed, and looked at.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

pub(crate) const ACCESS: &str = "proof-access";
pub(crate) const SECRET: &str = "proof-secret-41ac";

/// A gateway process, killed on drop.
pub(crate) struct GatewayProcess {
    child: Child,
    pub(crate) address: String,
    log: PathBuf,
}

/// How a gateway is started.
pub(crate) struct Start<'a> {
    pub(crate) root: &'a Path,
    pub(crate) flags: &'a [&'a str],
    /// Where its log goes; lines are added.
    pub(crate) log: &'a Path,
    /// A command line that runs the gateway, such as `unshare …`.
    pub(crate) wrapper: &'a [&'a str],
    pub(crate) environment: &'a [(&'a str, &'a str)],
}

impl Start<'_> {
    pub(crate) fn run(self) -> GatewayProcess {
        self.try_run().unwrap_or_else(|log| panic!("the gateway ended before it listened:\n{log}"))
    }

    /// Gives the log of a gateway that ended before it listened.
    pub(crate) fn try_run(self) -> Result<GatewayProcess, String> {
        let program = [self.wrapper, &[env!("CARGO_BIN_EXE_vgwrdma")]].concat();
        let log = std::fs::File::options().create(true).append(true).open(self.log).unwrap();
        let mut child = Command::new(program[0])
            .args(&program[1..])
            .args(["--port", "127.0.0.1:0", "--rdma-ip", "127.0.0.1"])
            .args(["--pool-buf-size", "32MiB", "--pool-buf-count", "1"])
            .arg("posix")
            .args(self.flags)
            .arg(self.root)
            .env("ROOT_ACCESS_KEY_ID", ACCESS)
            .env("ROOT_SECRET_ACCESS_KEY", SECRET)
            .envs(self.environment.iter().copied())
            .stdout(Stdio::piped())
            .stderr(log)
            .spawn()
            .unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let address = lines.find_map(|line| {
            let rest = line.strip_prefix("listening on ")?;
            Some(rest.split_whitespace().next()?.trim_start_matches("http://").to_owned())
        });
        let Some(address) = address else {
            let _ = child.wait();
            return Err(std::fs::read_to_string(self.log).unwrap_or_default());
        };
        std::thread::spawn(move || lines.for_each(drop));
        Ok(GatewayProcess { child, address, log: self.log.to_owned() })
    }
}

impl GatewayProcess {
    /// SIGKILL: nothing in the process gets a chance to clear up.
    pub(crate) fn kill(mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Asks it to stop and waits for it; it must end well.
    pub(crate) fn stop(mut self) {
        let id = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(id, rustix::process::Signal::TERM).unwrap();
        let deadline = Instant::now() + Duration::from_secs(60);
        let status = loop {
            match self.child.try_wait().unwrap() {
                Some(status) => break status,
                None if Instant::now() > deadline => panic!("it does not stop"),
                None => std::thread::sleep(Duration::from_millis(10)),
            }
        };
        assert!(status.success(), "{status}\n{}", self.log());
    }

    /// Whether it still runs.
    pub(crate) fn is_alive(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// What it has logged.
    pub(crate) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }
}

impl Drop for GatewayProcess {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

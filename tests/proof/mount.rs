//! File systems of a test's own, in a mount namespace that ends with it.

use std::io::{BufRead as _, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

/// A mount namespace, kept by a process that sleeps in it.
pub(crate) struct Namespace {
    holder: Child,
    id: String,
}

impl Namespace {
    /// Runs `script` in a new namespace. None, with a line that says why, where this process may not
    /// mount or the kernel has no such file system.
    pub(crate) fn new(script: &str) -> Option<Self> {
        let mut holder = Command::new("unshare")
            .args(["--mount", "sh", "-ec", &format!("{{ {script}\n}} >&2\necho mounted\nexec sleep 3600")])
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .ok()?;
        let mut line = String::new();
        let _ = BufReader::new(holder.stdout.take()?).read_line(&mut line);
        if line.trim() != "mounted" {
            let output = holder.wait_with_output().ok()?;
            let reason = String::from_utf8_lossy(&output.stderr).trim().to_owned();
            eprintln!("skipped, since this cannot be mounted here: {script}: {reason}");
            return None;
        }
        let id = holder.id().to_string();
        Some(Self { holder, id })
    }

    /// What runs a command line in the namespace.
    pub(crate) fn wrapper(&self) -> Vec<&str> {
        vec!["nsenter", "--mount", "--target", &self.id, "--"]
    }

    /// Runs a command in it, which must succeed.
    pub(crate) fn run(&self, script: &str) {
        let wrapper = self.wrapper();
        let output =
            Command::new(wrapper[0]).args(&wrapper[1..]).args(["sh", "-ec", script]).output().unwrap();
        assert!(output.status.success(), "{script}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// A path in the namespace, as it can be reached from outside.
    pub(crate) fn path(&self, path: &Path) -> PathBuf {
        Path::new("/proc").join(&self.id).join("root").join(path.strip_prefix("/").unwrap())
    }
}

impl Drop for Namespace {
    fn drop(&mut self) {
        let _ = self.holder.kill();
        let _ = self.holder.wait();
    }
}

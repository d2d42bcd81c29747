//! Turns what `cuobj-sys` found into run paths, a version stamp and `cfg`.
//!
//! | variable | meaning |
//! |---|---|
//! | `CUOBJ_RPATH` | `1` or `0`: whether binaries remember where NVIDIA's libraries lay; any other value is the run path itself, as `$ORIGIN/../lib`. Unset: they do, unless that is a system directory. It comes before `LD_LIBRARY_PATH` |
//! | `VGWRDMA_TEST_ADDR` | with NVIDIA's libraries: address of an RDMA device that `tests/rdma.rs` may use |
//! | `VGWRDMA_GIT_HASH` | the revision to show in `--version` where there is no git |

use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let provider = env("DEP_CUOBJ_PROVIDER").unwrap_or_default();
    println!("cargo::rustc-check-cfg=cfg(cuobj_provider, values(\"soft\", \"nvidia\"))");
    println!("cargo::rustc-cfg=cuobj_provider=\"{provider}\"");
    println!("cargo::rustc-check-cfg=cfg(rdma_test_device)");
    if provider == "nvidia" {
        run_path();
        if env("VGWRDMA_TEST_ADDR").is_some() {
            println!("cargo::rustc-cfg=rdma_test_device");
        }
    }
    version();
}

/// Reads a variable of the build's environment, and again when it changes.
fn env(name: &str) -> Option<String> {
    println!("cargo::rerun-if-env-changed={name}");
    std::env::var(name).ok().filter(|value| !value.is_empty())
}

/// A build script's `rustc-link-arg` reaches its own package only, so this cannot be `cuobj-sys`'s.
fn run_path() {
    let lib_dirs = env("DEP_CUOBJ_LIB_DIRS").unwrap_or_default();
    let system = env("DEP_CUOBJ_SYSTEM_DIRS").is_some_and(|value| value == "1");
    for dir in lib_dirs.split(':').filter(|dir| !dir.is_empty()) {
        // Libraries that the libraries need lie beside them.
        println!("cargo::rustc-link-arg=-Wl,-rpath-link,{dir}");
    }
    let chosen = match env("CUOBJ_RPATH").as_deref() {
        Some("0") => None,
        Some("1") => Some(lib_dirs),
        Some(path) => Some(path.to_owned()),
        None => (!system).then_some(lib_dirs),
    };
    if let Some(path) = chosen.filter(|path| !path.is_empty()) {
        // Old tags: the path then also holds for what the libraries need (libcufile) and load.
        println!("cargo::rustc-link-arg=-Wl,--disable-new-dtags");
        println!("cargo::rustc-link-arg=-Wl,-rpath,{path}");
    }
}

/// `VGWRDMA_VERSION`: the package's version, with the revision when it is known.
fn version() {
    let package = std::env::var("CARGO_PKG_VERSION").unwrap_or_default();
    let revision = env("VGWRDMA_GIT_HASH").or_else(|| {
        // The files that a commit or a checkout changes.
        for file in ["HEAD", "logs/HEAD"] {
            if let Some(path) = git(&["rev-parse", "--git-path", file]) {
                println!("cargo::rerun-if-changed={path}");
            }
        }
        git(&["rev-parse", "--short=12", "HEAD"])
    });
    let text = revision.map_or_else(|| package.clone(), |hash| format!("{package} ({hash})"));
    println!("cargo::rustc-env=VGWRDMA_VERSION={text}");
}

/// The answer of git, `None` where there is no git or no repository.
fn git(arguments: &[&str]) -> Option<String> {
    let output =
        Command::new("git").args(arguments).output().ok().filter(|output| output.status.success())?;
    let text = String::from_utf8(output.stdout).ok()?.trim().to_owned();
    (!text.is_empty()).then_some(text)
}

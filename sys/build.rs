//! Chooses the cuObject SDK, compiles the shim over it, binds `wrapper.h`, and tells Cargo what to
//! link.
//!
//! The order of lookup is documented at `choose` in `discover.rs`. The environment that is read:
//!
//! | variable | meaning |
//! |---|---|
//! | `CUOBJ_PROVIDER` | `nvidia`, `soft`, or `auto` (default) |
//! | `CUOBJ_SDK_DIR` | root of NVIDIA's SDK |
//! | `CUOBJ_INCLUDE_DIR`, `CUOBJ_LIB_DIR` | its directories, set together |
//! | `CUDA_HOME`, `CUDA_PATH` | CUDA toolkits to look in first |
//! | `CUOBJ_SOFT_GENERATION` | shape of the software SDK: 1 (default) or 2 |

use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use discover::{Choice, Files, Library, Wanted};

#[path = "discover.rs"]
mod discover;

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            // The form that Cargo shows as an error of the build.
            for line in error.lines() {
                println!("cargo::error={line}");
            }
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), String> {
    for path in ["build.rs", "discover.rs", "shim", "soft", "bindings/bindings.rs", "../wrapper.h"] {
        println!("cargo::rerun-if-changed={path}");
    }
    let features = Features {
        server: std::env::var_os("CARGO_FEATURE_SERVER").is_some(),
        client: std::env::var_os("CARGO_FEATURE_CLIENT").is_some(),
    };
    let path_var = |name| env(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let wanted = Wanted {
        provider: env("CUOBJ_PROVIDER"),
        sdk_dir: path_var("CUOBJ_SDK_DIR"),
        include_dir: path_var("CUOBJ_INCLUDE_DIR"),
        lib_dir: path_var("CUOBJ_LIB_DIR"),
        cuda_dirs: ["CUDA_HOME", "CUDA_PATH"].into_iter().filter_map(path_var).collect(),
        arch: cargo_var("CARGO_CFG_TARGET_ARCH")?,
        server: features.server,
        client: features.client,
    };
    let choice = discover::choose(&wanted, &Disk)?;
    build_shim(&choice, features)?;
    match &choice {
        Choice::Soft { note } => {
            if let Some(note) = note {
                println!("cargo::warning={note}");
            }
            build_soft(features)?;
        }
        Choice::Nvidia { server, client } => link_nvidia(server.as_ref(), client.as_ref()),
    }
    println!("cargo::metadata=provider={}", provider_name(&choice));
    bind()
}

#[derive(Clone, Copy)]
struct Features {
    server: bool,
    client: bool,
}

/// Reads a variable of the build's environment. The only way to, so that none is forgotten in
/// `rerun-if-env-changed`.
fn env(name: &str) -> Option<String> {
    println!("cargo::rerun-if-env-changed={name}");
    std::env::var(name).ok()
}

/// Reads a variable that Cargo sets for every build script.
fn cargo_var(name: &str) -> Result<String, String> {
    std::env::var(name).map_err(|_| format!("{name} is not set; run this build script through cargo"))
}

/// The real file system.
struct Disk;

impl Files for Disk {
    fn is_file(&self, path: &Path) -> bool {
        path.is_file()
    }

    fn names_in(&self, dir: &Path) -> Vec<String> {
        let entries = fs::read_dir(dir).into_iter().flatten().flatten();
        entries.filter_map(|entry| entry.file_name().into_string().ok()).collect()
    }

    fn real_name(&self, path: &Path) -> Option<String> {
        fs::canonicalize(path).ok()?.file_name()?.to_str().map(str::to_owned)
    }
}

fn provider_name(choice: &Choice) -> &'static str {
    match choice {
        Choice::Soft { .. } => "soft",
        Choice::Nvidia { .. } => "nvidia",
    }
}

/// A C++ compiler with what shim and software SDK have in common.
fn compiler() -> cc::Build {
    let mut build = cc::Build::new();
    build.cpp(true).std("c++17").flag("-fvisibility=hidden").warnings(true).extra_warnings(true);
    build
}

/// Compiles the C ABI. Linked first: what it refers to comes behind it.
fn build_shim(choice: &Choice, features: Features) -> Result<(), String> {
    let mut build = compiler();
    build.include("..").include("shim").files(["shim/error.cc", "shim/provider.cc", "shim/telemetry.cc"]);
    let (server, client) = match choice {
        Choice::Soft { .. } => {
            build.include("soft/include");
            if let Some(generation) = soft_generation()? {
                build.define("CUOBJ_SOFT_GENERATION", generation.as_str());
            }
            (None, None)
        }
        Choice::Nvidia { server, client } => (server.as_ref(), client.as_ref()),
    };
    let mut include_dirs: Vec<&Path> = Vec::new();
    for library in [server, client].into_iter().flatten() {
        if !include_dirs.contains(&library.include_dir.as_path()) {
            include_dirs.push(&library.include_dir);
        }
    }
    for dir in include_dirs {
        // -isystem: the vendor's headers are not ours to warn about.
        build.flag("-isystem").flag(dir);
    }
    let text = |value: &str| format!("\"{value}\"");
    let file = |library: Option<&Library>| text(library.map_or("built in", |l| l.real_name.as_str()));
    build.define("VGW_CUOBJ_PROVIDER_NAME", text(provider_name(choice)).as_str());
    if features.server {
        build.file("shim/server.cc").define("VGW_CUOBJ_SERVER", None);
        build.define("VGW_CUOBJ_SERVER_LIBRARY", file(server).as_str());
    }
    if features.client {
        build.file("shim/client.cc").define("VGW_CUOBJ_CLIENT", None);
        build.define("VGW_CUOBJ_CLIENT_LIBRARY", file(client).as_str());
    }
    build.try_compile("vgw_cuobj_shim").map_err(|error| format!("cannot compile sys/shim: {error}"))
}

/// Shape of the software SDK: `CUOBJ_SOFT_GENERATION`, for compiling the shim against both.
fn soft_generation() -> Result<Option<String>, String> {
    match env("CUOBJ_SOFT_GENERATION") {
        None => Ok(None),
        Some(value) if matches!(value.as_str(), "1" | "2") => Ok(Some(value)),
        Some(value) => Err(format!("CUOBJ_SOFT_GENERATION is {value:?}; it takes 1 or 2")),
    }
}

/// Compiles the software SDK from the list it keeps of its own files.
fn build_soft(features: Features) -> Result<(), String> {
    const LIST: &str = "soft/sources.txt";
    if !features.server && !features.client {
        return Ok(());
    }
    let list = fs::read_to_string(LIST).map_err(|error| format!("cannot read sys/{LIST}: {error}"))?;
    let mut build = compiler();
    build.include("soft/include").include("soft").define("CUOBJ_SOFT_BUILD", None);
    if let Some(generation) = soft_generation()? {
        build.define("CUOBJ_SOFT_GENERATION", generation.as_str());
    }
    // It moves every byte of a transfer: a debug build of the gateway needs it fast as well.
    build.opt_level(2);
    for line in list.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with('#')) {
        let Some((who, file)) = line.split_once(char::is_whitespace) else {
            return Err(format!("sys/{LIST}: {line:?} is not a word and a file"));
        };
        let needed = match who {
            "both" => features.server || features.client,
            "server" => features.server,
            "client" => features.client,
            _ => return Err(format!("sys/{LIST}: {who:?} is none of both, server, client")),
        };
        if needed {
            build.file(Path::new("soft").join(file.trim()));
        }
    }
    build.try_compile("vgw_cuobj_soft").map_err(|error| format!("cannot compile sys/soft: {error}"))?;
    println!("cargo::rustc-link-lib=dylib=pthread");
    println!("cargo::rustc-link-lib=dylib=dl");
    Ok(())
}

/// Tells Cargo and the root package about NVIDIA's libraries.
fn link_nvidia(server: Option<&Library>, client: Option<&Library>) {
    let mut lib_dirs: Vec<&Path> = Vec::new();
    for (library, name) in [(server, "server"), (client, "client")] {
        let Some(library) = library else { continue };
        if !lib_dirs.contains(&library.lib_dir.as_path()) {
            lib_dirs.push(&library.lib_dir);
        }
        // By its whole name: a package without the development link has no libX.so to find.
        println!("cargo::rustc-link-lib=dylib:+verbatim={}", library.file_name);
        println!("cargo::metadata={name}_library={}", library.real_name);
        println!("cargo::metadata={name}_version={}", discover::version_of(&library.real_name));
    }
    // Old tags: a run path in them also holds for what the libraries need (libcufile) and load.
    println!("cargo::rustc-link-arg=-Wl,--disable-new-dtags");
    for dir in &lib_dirs {
        println!("cargo::rustc-link-search=native={}", dir.display());
        // For this package's own tests; those of the root package are its build script's concern.
        println!("cargo::rustc-link-arg=-Wl,-rpath,{}", dir.display());
        println!("cargo::rustc-link-arg=-Wl,-rpath-link,{}", dir.display());
    }
    let joined: Vec<String> = lib_dirs.iter().map(|dir| dir.display().to_string()).collect();
    println!("cargo::metadata=lib_dirs={}", joined.join(":"));
    let system = lib_dirs.iter().all(|dir| discover::is_system_dir(dir));
    println!("cargo::metadata=system_dirs={}", u8::from(system));
}

// ---- Bindings --------------------------------------------------------------------------------------

/// First line of `bindings/bindings.rs`: which `wrapper.h` it was made from.
const STAMP: &str = "// Bindings of wrapper.h with FNV-1a ";

/// Puts `bindings.rs` into `OUT_DIR`: made by bindgen where libclang is installed, else the
/// checked-in copy, which must belong to the present `wrapper.h`.
fn bind() -> Result<(), String> {
    let header = fs::read_to_string("../wrapper.h").map_err(|e| format!("cannot read wrapper.h: {e}"))?;
    let stamp = format!("{STAMP}{:016x}", fnv1a(header.as_bytes()));
    let out = PathBuf::from(cargo_var("OUT_DIR")?).join("bindings.rs");
    let text = match generate() {
        Ok(generated) => format!("{stamp}\n{generated}"),
        Err(cause) => {
            let kept = fs::read_to_string("bindings/bindings.rs")
                .map_err(|error| format!("cannot read sys/bindings/bindings.rs: {error}"))?;
            if kept.lines().next() != Some(stamp.as_str()) {
                return Err(format!(
                    "sys/bindings/bindings.rs belongs to another wrapper.h and bindgen cannot make it anew \
                     ({cause}); install libclang and see sys/bindings/README.md"
                ));
            }
            kept
        }
    };
    fs::write(&out, text).map_err(|error| format!("cannot write {}: {error}", out.display()))
}

/// Gives the macros of `wrapper.h` the types of what they are compared with.
#[derive(Debug)]
struct ConstantTypes;

impl bindgen::callbacks::ParseCallbacks for ConstantTypes {
    fn int_macro(&self, name: &str, _value: i64) -> Option<bindgen::callbacks::IntKind> {
        use bindgen::callbacks::IntKind;
        let name = name.strip_prefix("VGW_CUOBJ_")?;
        let unsigned = ["ABI_VERSION", "HAS_", "TELEMETRY_", "NO_COMPLETION"];
        Some(if name.starts_with("MAX_") {
            IntKind::Custom { name: "usize", is_signed: false }
        } else if unsigned.iter().any(|prefix| name.starts_with(prefix)) {
            IntKind::U32
        } else {
            IntKind::I32
        })
    }
}

/// Runs bindgen on `wrapper.h`.
fn generate() -> Result<String, String> {
    let builder = bindgen::Builder::default()
        .header("../wrapper.h")
        // What C's own headers define is not part of the ABI.
        .allowlist_item("vgw_cuobj_.*")
        .allowlist_item("VGW_CUOBJ_.*")
        // The project's comments are plain ones; they are the documentation of the bindings.
        .clang_arg("-fparse-all-comments")
        .parse_callbacks(Box::new(ConstantTypes))
        .rust_edition(bindgen::RustEdition::Edition2024)
        .merge_extern_blocks(true)
        .derive_default(true)
        .layout_tests(true);
    // bindgen panics when it finds no libclang; the message would look like a failure of the build.
    let hook = std::panic::take_hook();
    std::panic::set_hook(Box::new(|_| {}));
    let generated = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| builder.generate()));
    std::panic::set_hook(hook);
    match generated {
        Ok(Ok(bindings)) => Ok(bindings.to_string()),
        Ok(Err(error)) => Err(error.to_string()),
        Err(_) => Err("libclang was not found".to_owned()),
    }
}

/// FNV-1a, 64 bits: enough to notice a changed header.
fn fnv1a(bytes: &[u8]) -> u64 {
    bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3))
}

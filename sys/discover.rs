// Finds the cuObject SDK to build against: pure functions over a view of the file system.
//
// Included by `build.rs` and by `tests/discover.rs`, so that the order of lookup is tested without
// an SDK. Places and file names: NVIDIA's "cuObject" installation pages for the CUDA toolkit
// (`targets/<arch>-linux`) and for the server package (`/usr/include`, `/usr/lib64`).

use std::path::{Path, PathBuf};

/// What discovery sees of a file system.
pub(crate) trait Files {
    /// Whether a file, or a link to one, is there.
    fn is_file(&self, path: &Path) -> bool;
    /// The names in a directory, empty when it cannot be read.
    fn names_in(&self, dir: &Path) -> Vec<String>;
    /// The name of the file behind a path, links resolved.
    fn real_name(&self, path: &Path) -> Option<String>;
}

/// What is asked for: variables of the build's environment and the crate's features.
#[derive(Debug, Clone, Default)]
pub(crate) struct Wanted {
    /// `CUOBJ_PROVIDER`.
    pub(crate) provider: Option<String>,
    /// `CUOBJ_SDK_DIR`.
    pub(crate) sdk_dir: Option<PathBuf>,
    /// `CUOBJ_INCLUDE_DIR`.
    pub(crate) include_dir: Option<PathBuf>,
    /// `CUOBJ_LIB_DIR`.
    pub(crate) lib_dir: Option<PathBuf>,
    /// `CUDA_HOME` and `CUDA_PATH`, in that order.
    pub(crate) cuda_dirs: Vec<PathBuf>,
    /// Architecture of the target as Rust names it, `x86_64` or `aarch64`.
    pub(crate) arch: String,
    /// The feature `server`.
    pub(crate) server: bool,
    /// The feature `client`.
    pub(crate) client: bool,
}

/// One of the two libraries with its header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Library {
    /// Directory of the header.
    pub(crate) include_dir: PathBuf,
    /// Directory of the library.
    pub(crate) lib_dir: PathBuf,
    /// File to link, as it is called in `lib_dir`; may be a bare `libcuobjserver.so.1`.
    pub(crate) file_name: String,
    /// Name of the file behind it, which carries the whole version.
    pub(crate) real_name: String,
}

/// What to build against.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Choice {
    /// The software SDK in `sys/soft`.
    Soft {
        /// Something the person who builds should know: an incomplete SDK was passed over.
        note: Option<String>,
    },
    /// NVIDIA's libraries. Those not asked for are `None`.
    Nvidia {
        /// cuObjServer.
        server: Option<Library>,
        /// cuObjClient.
        client: Option<Library>,
    },
}

/// One library's names.
struct Part {
    header: &'static str,
    stem: &'static str,
    feature: &'static str,
}

const SERVER: Part = Part { header: "cuobjserver.h", stem: "libcuobjserver.so", feature: "server" };
const CLIENT: Part = Part { header: "cuobjclient.h", stem: "libcuobjclient.so", feature: "client" };

/// A pair of directories to look in.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Place {
    include_dir: PathBuf,
    lib_dir: PathBuf,
}

/// Chooses what to build against.
///
/// 1. `CUOBJ_PROVIDER=soft`: the software SDK, whatever is installed.
/// 2. `CUOBJ_INCLUDE_DIR` with `CUOBJ_LIB_DIR`, else `CUOBJ_SDK_DIR`: there and nowhere else.
/// 3. The CUDA toolkit and the server package in their usual places.
/// 4. The software SDK, unless `CUOBJ_PROVIDER=nvidia`.
///
/// # Errors
/// A text that names the variable at fault, or every file looked for and what to do.
pub(crate) fn choose(wanted: &Wanted, files: &dyn Files) -> Result<Choice, String> {
    let required = match wanted.provider.as_deref() {
        None | Some("" | "auto") => false,
        Some("nvidia") => true,
        Some("soft") => return Ok(Choice::Soft { note: None }),
        Some(other) => {
            return Err(format!("CUOBJ_PROVIDER is {other:?}; it takes nvidia, soft or auto"));
        }
    };
    let (places, named_by) = match (&wanted.include_dir, &wanted.lib_dir, &wanted.sdk_dir) {
        (Some(include_dir), Some(lib_dir), _) => {
            let place = Place { include_dir: include_dir.clone(), lib_dir: lib_dir.clone() };
            (vec![place], Some("CUOBJ_INCLUDE_DIR and CUOBJ_LIB_DIR"))
        }
        (Some(_), None, _) => return Err("CUOBJ_INCLUDE_DIR is set without CUOBJ_LIB_DIR; set both".into()),
        (None, Some(_), _) => return Err("CUOBJ_LIB_DIR is set without CUOBJ_INCLUDE_DIR; set both".into()),
        (None, None, Some(dir)) => (places_under(dir, &wanted.arch), Some("CUOBJ_SDK_DIR")),
        (None, None, None) => (usual_places(wanted, files), None),
    };

    let find = |part: &Part, asked: bool| asked.then(|| find_part(part, &places, files));
    let server = find(&SERVER, wanted.server);
    let client = find(&CLIENT, wanted.client);
    let missing: Vec<&Part> = [(&SERVER, &server), (&CLIENT, &client)]
        .into_iter()
        .filter(|(_, found)| matches!(found, Some(None)))
        .map(|(part, _)| part)
        .collect();
    let found: Vec<(&Part, &Library)> = [(&SERVER, &server), (&CLIENT, &client)]
        .into_iter()
        .filter_map(|(part, found)| Some((part, found.as_ref()?.as_ref()?)))
        .collect();

    if missing.is_empty() && !found.is_empty() {
        return Ok(Choice::Nvidia { server: server.flatten(), client: client.flatten() });
    }
    if required || named_by.is_some() {
        return Err(absence(&missing, &found, &places, named_by));
    }
    let note = found.first().map(|(part, library)| {
        format!(
            "found {} in {} but not {}: building with the software SDK; for NVIDIA's {feature} alone use \
             --no-default-features --features {feature}",
            library.real_name,
            library.lib_dir.display(),
            missing.iter().map(|part| part.stem).collect::<Vec<_>>().join(", "),
            feature = part.feature,
        )
    });
    Ok(Choice::Soft { note })
}

/// The error for an SDK that was asked for and is not there, or not whole.
fn absence(
    missing: &[&Part],
    found: &[(&Part, &Library)],
    places: &[Place],
    named_by: Option<&str>,
) -> String {
    let mut text = String::from("NVIDIA's cuObject SDK is not complete");
    if let Some(variables) = named_by {
        text.push_str(&format!(" in what {variables} names"));
    }
    for part in missing {
        text.push_str(&format!("\n  not found: {} with {}", part.header, part.stem));
    }
    for (part, library) in found {
        text.push_str(&format!("\n  found: {} in {}", part.stem, library.lib_dir.display()));
    }
    text.push_str("\nlooked at (headers, libraries):");
    for place in places {
        text.push_str(&format!("\n  {}, {}", place.include_dir.display(), place.lib_dir.display()));
    }
    if let ([part], [(other, _)]) = (missing, found) {
        text.push_str(&format!(
            "\nbuild without the {}: --no-default-features --features {}, or install it",
            part.feature, other.feature
        ));
    }
    text.push_str(
        "\nset CUOBJ_SDK_DIR (or CUOBJ_INCLUDE_DIR and CUOBJ_LIB_DIR) to the SDK, or CUOBJ_PROVIDER=soft \
         for the software SDK",
    );
    text
}

/// The first place that has both the header and the library.
fn find_part(part: &Part, places: &[Place], files: &dyn Files) -> Option<Library> {
    places.iter().find_map(|place| {
        if !files.is_file(&place.include_dir.join(part.header)) {
            return None;
        }
        let file_name = library_file(part.stem, &place.lib_dir, files)?;
        let real_name = files.real_name(&place.lib_dir.join(&file_name)).unwrap_or_else(|| file_name.clone());
        Some(Library {
            include_dir: place.include_dir.clone(),
            lib_dir: place.lib_dir.clone(),
            file_name,
            real_name,
        })
    })
}

/// The file to link: the development link `libX.so`, which belongs to the headers, else the highest
/// version there is.
fn library_file(stem: &str, dir: &Path, files: &dyn Files) -> Option<String> {
    let names = files.names_in(dir);
    if names.iter().any(|name| name == stem) && files.is_file(&dir.join(stem)) {
        return Some(stem.to_owned());
    }
    names
        .into_iter()
        .filter_map(|name| Some((version_after(stem, &name)?, name)))
        // Of `.so.1` and `.so.1.2.0` the short one is the soname's link.
        .max_by(|(a, _), (b, _)| a.first().cmp(&b.first()).then(b.len().cmp(&a.len())).then(a.cmp(b)))
        .map(|(_, name)| name)
        .filter(|name| files.is_file(&dir.join(name)))
}

/// The numbers after `stem.` in a file name, `None` when it is something else.
fn version_after(stem: &str, name: &str) -> Option<Vec<u32>> {
    name.strip_prefix(stem)?.strip_prefix('.')?.split('.').map(|number| number.parse().ok()).collect()
}

/// The version in a library's file name, `1.2.0` for `libcuobjserver.so.1.2.0`; empty without one.
pub(crate) fn version_of(real_name: &str) -> &str {
    real_name.split_once(".so.").map_or("", |(_, version)| version)
}

/// Names of the target directory of an architecture, the toolkit's and the distributions'.
fn arch_dirs(arch: &str) -> (&'static [&'static str], &'static str) {
    match arch {
        "x86_64" => (&["x86_64-linux"], "x86_64-linux-gnu"),
        // Arm servers are `sbsa` in the toolkit; `aarch64` is for Jetson and older layouts.
        "aarch64" => (&["sbsa-linux", "aarch64-linux"], "aarch64-linux-gnu"),
        _ => (&[], ""),
    }
}

/// Where an SDK or a toolkit under `root` keeps headers and libraries.
fn places_under(root: &Path, arch: &str) -> Vec<Place> {
    let (targets, multiarch) = arch_dirs(arch);
    let mut places = Vec::new();
    for target in targets {
        let target = root.join("targets").join(target);
        places.push(Place { include_dir: target.join("include"), lib_dir: target.join("lib") });
    }
    let mut libs = vec![root.join("lib64"), root.join("lib")];
    if !multiarch.is_empty() {
        libs.push(root.join("lib").join(multiarch));
    }
    // An unpacked archive may keep one folder an architecture.
    libs.push(root.join("lib").join(arch));
    for lib_dir in libs {
        places.push(Place { include_dir: root.join("include"), lib_dir });
    }
    places
}

/// The CUDA toolkits, newest first, then the places of the server package.
fn usual_places(wanted: &Wanted, files: &dyn Files) -> Vec<Place> {
    let local = Path::new("/usr/local");
    let mut toolkits: Vec<(Vec<u32>, String)> = files
        .names_in(local)
        .into_iter()
        .filter_map(|name| {
            let version = name.strip_prefix("cuda-")?;
            let numbers = version.split('.').map(|n| n.parse().ok()).collect::<Option<_>>()?;
            Some((numbers, name))
        })
        .collect();
    toolkits.sort_by(|a, b| b.cmp(a));

    let mut roots = wanted.cuda_dirs.clone();
    roots.push(local.join("cuda"));
    roots.extend(toolkits.into_iter().map(|(_, name)| local.join(name)));
    roots.push(PathBuf::from("/usr"));
    roots.push(local.to_owned());

    let mut places = Vec::new();
    for place in roots.iter().flat_map(|root| places_under(root, &wanted.arch)) {
        if !places.contains(&place) {
            places.push(place);
        }
    }
    places
}

/// Whether the dynamic linker looks into a directory by itself.
pub(crate) fn is_system_dir(dir: &Path) -> bool {
    ["/lib", "/lib64", "/usr/lib", "/usr/lib64", "/usr/local/lib"].iter().any(|system| {
        dir == Path::new(system)
            || (dir.starts_with(system)
                && dir.file_name().is_some_and(|name| name.to_string_lossy().ends_with("-linux-gnu")))
    })
}

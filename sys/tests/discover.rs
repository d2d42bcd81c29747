//! The order in which SDKs are looked up, over file systems that exist in memory only.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use discover::{Choice, Files, Library, Wanted, choose, is_system_dir, version_of};

#[path = "../discover.rs"]
mod discover;

/// Files by path; the value is the name of the file behind a link.
#[derive(Default)]
struct Tree(BTreeMap<PathBuf, String>);

impl Tree {
    fn with(mut self, path: &str) -> Self {
        let name = Path::new(path).file_name().unwrap().to_string_lossy().into_owned();
        self.0.insert(path.into(), name);
        self
    }

    fn link(mut self, path: &str, behind: &str) -> Self {
        self.0.insert(path.into(), behind.into());
        self
    }

    fn sdk(self, include: &str, lib: &str) -> Self {
        self.server(include, lib).client(include, lib)
    }

    fn server(self, include: &str, lib: &str) -> Self {
        self.with(&format!("{include}/cuobjserver.h"))
            .link(&format!("{lib}/libcuobjserver.so"), "libcuobjserver.so.1.2.0")
    }

    fn client(self, include: &str, lib: &str) -> Self {
        self.with(&format!("{include}/cuobjclient.h"))
            .link(&format!("{lib}/libcuobjclient.so"), "libcuobjclient.so.1.3.0")
    }
}

impl Files for Tree {
    fn is_file(&self, path: &Path) -> bool {
        self.0.contains_key(path)
    }

    fn names_in(&self, dir: &Path) -> Vec<String> {
        let mut names: Vec<String> = self
            .0
            .keys()
            .filter_map(|path| path.strip_prefix(dir).ok()?.components().next())
            .map(|part| part.as_os_str().to_string_lossy().into_owned())
            .collect();
        names.dedup();
        names
    }

    fn real_name(&self, path: &Path) -> Option<String> {
        self.0.get(path).cloned()
    }
}

fn both() -> Wanted {
    Wanted { arch: "x86_64".into(), server: true, client: true, ..Wanted::default() }
}

fn server_of(choice: Choice) -> Library {
    match choice {
        Choice::Nvidia { server: Some(library), .. } => library,
        other => panic!("no NVIDIA server in {other:?}"),
    }
}

#[test]
fn nothing_installed_is_the_software_sdk() {
    assert_eq!(choose(&both(), &Tree::default()), Ok(Choice::Soft { note: None }));
}

#[test]
fn soft_is_taken_over_an_installed_sdk() {
    let tree = Tree::default().sdk("/usr/include", "/usr/lib64");
    let wanted = Wanted { provider: Some("soft".into()), ..both() };
    assert_eq!(choose(&wanted, &tree), Ok(Choice::Soft { note: None }));
    assert!(matches!(choose(&both(), &tree), Ok(Choice::Nvidia { .. })));
}

#[test]
fn an_unknown_provider_is_refused_by_name() {
    let wanted = Wanted { provider: Some("amd".into()), ..both() };
    let error = choose(&wanted, &Tree::default()).unwrap_err();
    assert!(error.contains("CUOBJ_PROVIDER") && error.contains("amd"), "{error}");
}

#[test]
fn auto_and_empty_mean_unset() {
    for provider in ["", "auto"] {
        let wanted = Wanted { provider: Some(provider.into()), ..both() };
        assert_eq!(choose(&wanted, &Tree::default()), Ok(Choice::Soft { note: None }));
    }
}

#[test]
fn nvidia_without_an_sdk_names_every_place() {
    let wanted = Wanted { provider: Some("nvidia".into()), cuda_dirs: vec!["/opt/cuda".into()], ..both() };
    let tree = Tree::default().with("/usr/local/cuda-13.1/bin/nvcc");
    let error = choose(&wanted, &tree).unwrap_err();
    for needle in [
        "cuobjserver.h",
        "cuobjclient.h",
        "/opt/cuda/targets/x86_64-linux/include",
        "/usr/local/cuda/targets/x86_64-linux/lib",
        "/usr/local/cuda-13.1/",
        "/usr/lib64",
        "/usr/lib/x86_64-linux-gnu",
        "CUOBJ_SDK_DIR",
        "CUOBJ_PROVIDER=soft",
    ] {
        assert!(error.contains(needle), "{needle} is not in:\n{error}");
    }
}

#[test]
fn the_pair_of_directories_comes_before_the_sdk_directory() {
    let tree = Tree::default().sdk("/a/include", "/b/lib").sdk("/sdk/include", "/sdk/lib64");
    let wanted = Wanted {
        include_dir: Some("/a/include".into()),
        lib_dir: Some("/b/lib".into()),
        sdk_dir: Some("/sdk".into()),
        ..both()
    };
    let library = server_of(choose(&wanted, &tree).unwrap());
    assert_eq!((library.include_dir, library.lib_dir), ("/a/include".into(), "/b/lib".into()));
}

#[test]
fn half_of_the_pair_is_an_error() {
    let only_include = Wanted { include_dir: Some("/a".into()), ..both() };
    assert!(choose(&only_include, &Tree::default()).unwrap_err().contains("without CUOBJ_LIB_DIR"));
    let only_lib = Wanted { lib_dir: Some("/a".into()), sdk_dir: Some("/b".into()), ..both() };
    assert!(choose(&only_lib, &Tree::default()).unwrap_err().contains("without CUOBJ_INCLUDE_DIR"));
}

#[test]
fn a_named_directory_is_never_passed_over() {
    let tree = Tree::default().sdk("/usr/include", "/usr/lib64");
    let wanted = Wanted { sdk_dir: Some("/sdk".into()), ..both() };
    let error = choose(&wanted, &tree).unwrap_err();
    assert!(error.contains("/sdk/include") && !error.contains("/usr/include"), "{error}");
}

#[test]
fn the_sdk_directory_may_have_any_of_the_layouts() {
    for (include, lib) in [
        ("/sdk/targets/x86_64-linux/include", "/sdk/targets/x86_64-linux/lib"),
        ("/sdk/include", "/sdk/lib64"),
        ("/sdk/include", "/sdk/lib"),
        ("/sdk/include", "/sdk/lib/x86_64-linux-gnu"),
        ("/sdk/include", "/sdk/lib/x86_64"),
    ] {
        let wanted = Wanted { sdk_dir: Some("/sdk".into()), ..both() };
        let library = server_of(choose(&wanted, &Tree::default().sdk(include, lib)).unwrap());
        assert_eq!((library.include_dir, library.lib_dir), (include.into(), lib.into()));
    }
}

#[test]
fn arm_servers_use_the_sbsa_target() {
    let tree = Tree::default()
        .sdk("/usr/local/cuda/targets/sbsa-linux/include", "/usr/local/cuda/targets/sbsa-linux/lib");
    assert_eq!(choose(&both(), &tree), Ok(Choice::Soft { note: None }));
    let arm = Wanted { arch: "aarch64".into(), ..both() };
    assert!(matches!(choose(&arm, &tree), Ok(Choice::Nvidia { .. })));
}

#[test]
fn the_newest_toolkit_wins_and_numbers_compare_as_numbers() {
    let at = |version: &str| {
        let target = format!("/usr/local/cuda-{version}/targets/x86_64-linux");
        (format!("{target}/include"), format!("{target}/lib"))
    };
    let mut tree = Tree::default();
    for version in ["13.9", "13.10", "12.8"] {
        let (include, lib) = at(version);
        tree = tree.sdk(&include, &lib);
    }
    let library = server_of(choose(&both(), &tree).unwrap());
    assert_eq!(library.lib_dir, PathBuf::from(at("13.10").1));
}

#[test]
fn client_of_the_toolkit_and_server_of_the_package_go_together() {
    let tree = Tree::default()
        .client("/usr/local/cuda/targets/x86_64-linux/include", "/usr/local/cuda/targets/x86_64-linux/lib")
        .server("/usr/include", "/usr/lib64");
    let Ok(Choice::Nvidia { server: Some(server), client: Some(client) }) = choose(&both(), &tree) else {
        panic!("both are there");
    };
    assert_eq!(server.lib_dir, PathBuf::from("/usr/lib64"));
    assert_eq!(client.lib_dir, PathBuf::from("/usr/local/cuda/targets/x86_64-linux/lib"));
}

#[test]
fn half_an_sdk_found_by_chance_is_passed_over_with_a_note() {
    let tree = Tree::default().client("/usr/include", "/usr/lib64");
    let Ok(Choice::Soft { note: Some(note) }) = choose(&both(), &tree) else { panic!("soft with a note") };
    assert!(note.contains("libcuobjclient.so.1.3.0") && note.contains("--features client"), "{note}");
}

#[test]
fn half_an_sdk_that_was_asked_for_is_an_error_with_the_cure() {
    let tree = Tree::default().server("/sdk/include", "/sdk/lib");
    let wanted = Wanted { sdk_dir: Some("/sdk".into()), ..both() };
    let error = choose(&wanted, &tree).unwrap_err();
    assert!(
        error.contains("cuobjclient.h") && error.contains("--no-default-features --features server"),
        "{error}"
    );

    let server_only = Wanted { client: false, ..wanted };
    let choice = choose(&server_only, &tree).unwrap();
    assert!(matches!(choice, Choice::Nvidia { server: Some(_), client: None }));
}

#[test]
fn a_header_without_its_library_is_not_an_sdk() {
    let tree = Tree::default().with("/usr/include/cuobjserver.h").with("/usr/include/cuobjclient.h");
    assert_eq!(choose(&both(), &tree), Ok(Choice::Soft { note: None }));
}

#[test]
fn a_library_without_the_development_link_is_linked_by_its_soname() {
    let tree = Tree::default()
        .with("/sdk/include/cuobjserver.h")
        .link("/sdk/lib/libcuobjserver.so.1", "libcuobjserver.so.1.2.0")
        .with("/sdk/lib/libcuobjserver.so.1.2.0");
    let wanted = Wanted { sdk_dir: Some("/sdk".into()), client: false, ..both() };
    let library = server_of(choose(&wanted, &tree).unwrap());
    assert_eq!(library.file_name, "libcuobjserver.so.1");
    assert_eq!(library.real_name, "libcuobjserver.so.1.2.0");
    assert_eq!(version_of(&library.real_name), "1.2.0");
}

#[test]
fn the_highest_generation_wins_without_a_development_link() {
    let tree = Tree::default()
        .with("/sdk/include/cuobjserver.h")
        .with("/sdk/lib/libcuobjserver.so.1")
        .with("/sdk/lib/libcuobjserver.so.2")
        .with("/sdk/lib/libcuobjserver.so.old")
        .with("/sdk/lib/libcuobjserver.sonic");
    let wanted = Wanted { sdk_dir: Some("/sdk".into()), client: false, ..both() };
    assert_eq!(server_of(choose(&wanted, &tree).unwrap()).file_name, "libcuobjserver.so.2");
}

#[test]
fn system_directories_need_no_rpath() {
    for dir in ["/usr/lib", "/usr/lib64", "/usr/lib/x86_64-linux-gnu", "/lib/aarch64-linux-gnu"] {
        assert!(is_system_dir(Path::new(dir)), "{dir}");
    }
    for dir in ["/usr/local/cuda/lib64", "/opt/sdk/lib", "/usr/lib/x", "/usr/libexec"] {
        assert!(!is_system_dir(Path::new(dir)), "{dir}");
    }
    assert_eq!(version_of("libcuobjserver.so"), "");
}

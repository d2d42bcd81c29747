//! The scripts' own refusals: which texts and exit codes they end with. What they do when all is well is
//! run by `scripts/test.sh`, `scripts/demo.sh` and `scripts/test-container.sh`.

use std::process::Command;

use test_case::test_case;

/// Runs a script with the environment of the build left out; gives its exit code and standard error.
fn script(line: &str, environment: &[(&str, &str)]) -> (i32, String) {
    let mut words = line.split_whitespace();
    let mut command =
        Command::new(format!("{}/scripts/{}", env!("CARGO_MANIFEST_DIR"), words.next().unwrap()));
    for name in ["CUOBJ_PROVIDER", "CUOBJ_SDK_DIR", "CUOBJ_INCLUDE_DIR", "CUOBJ_LIB_DIR", "OUT", "PROFILE"] {
        command.env_remove(name);
    }
    let output = command.args(words).envs(environment.iter().copied()).output().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test_case("build.sh", 2, "vgwrdma"; "no target")]
#[test_case("build.sh vgwrdma cuobjtest-gpu", 2, "vgwrdma"; "two targets")]
#[test_case("build.sh cuobjtest", 2, "unknown target cuobjtest"; "unknown target")]
#[test_case("install-soft-sdk.sh", 2, "PREFIX"; "no prefix")]
#[test_case("check-sdk.sh", 2, "DIR"; "nothing to check")]
#[test_case("check-sdk.sh /nonexistent", 1, "no libcuobjserver.so.N"; "nothing there")]
#[test_case("test-vendor.sh", 1, "no SDK_DIR: NVIDIA's libraries are not part of this project"; "no vendor SDK")]
#[test_case("test-vendor.sh /nonexistent", 1, "/nonexistent is not a directory"; "vendor SDK not there")]
#[test_case("container.sh", 2, "vendor-libs"; "no step")]
#[test_case("container.sh build", 1, "needs a target"; "step without target")]
#[test_case("container.sh build cuobjtest-gpu", 1, "--build-context sdk=DIR"; "container without SDK")]
fn usage_is_told(line: &str, code: i32, names: &str) {
    let (status, stderr) = script(line, &[]);
    assert_eq!(status, code, "{stderr}");
    assert!(stderr.contains(names), "{stderr}");
}

#[test]
fn a_missing_compiler_is_told() {
    let (status, stderr) = script("build.sh vgwrdma", &[("CXX", "no-such-compiler")]);
    assert_eq!(status, 1, "{stderr}");
    assert!(stderr.contains("install g++ (Debian) or gcc-c++ (Rocky)"), "{stderr}");
}

#[test]
fn a_missing_sdk_is_told() {
    let (status, stderr) = script("build.sh vgwrdma", &[("CUOBJ_SDK_DIR", "/nonexistent")]);
    assert_eq!(status, 1, "{stderr}");
    assert!(stderr.contains("CUOBJ_SDK_DIR=/nonexistent is not a directory"), "{stderr}");
}

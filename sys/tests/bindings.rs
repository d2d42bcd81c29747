//! The checked-in bindings are those of the present `wrapper.h`.
//!
//! With `VGW_UPDATE_BINDINGS=1` this test writes them anew instead of comparing.

use std::path::Path;

const FRESH: &str = include_str!(concat!(env!("OUT_DIR"), "/bindings.rs"));

/// Formatting depends on whether rustfmt is installed; the words do not. Nor does the version of
/// bindgen matter, which stands in the second line.
fn words(text: &str) -> String {
    text.lines()
        .filter(|line| !line.starts_with("/* automatically generated"))
        .flat_map(str::chars)
        .filter(|c| !c.is_whitespace() && *c != ',')
        .collect()
}

#[test]
fn checked_in_bindings_are_current() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("bindings/bindings.rs");
    if std::env::var_os("VGW_UPDATE_BINDINGS").is_some() {
        std::fs::write(&path, FRESH).unwrap();
        return;
    }
    let kept = std::fs::read_to_string(&path).unwrap();
    assert!(
        words(&kept) == words(FRESH),
        "sys/bindings/bindings.rs is out of date; with libclang installed run: \
         VGW_UPDATE_BINDINGS=1 cargo test -p cuobj-sys --test bindings"
    );
}

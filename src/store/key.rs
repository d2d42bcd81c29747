//! Object keys as paths: which keys a file can be named by, and how they are cut.

use super::error::{Error, Result};

/// The directory of temporary data in each bucket; no key reaches it at any level.
pub(crate) const TEMP_DIR: &str = ".sgwtmp";

/// Longest key in bytes, as in S3.
const MAX_KEY: usize = 1024;
/// Longest path component in bytes on Linux file systems.
const MAX_COMPONENT: usize = 255;

/// A key that has passed the rules; it names a file, or with a final `/` a directory object.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Key {
    text: String,
}

impl Key {
    /// Checks `text` against the rules. Keys are never normalised: one that could name the same file
    /// as another key is refused.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        if text.len() > MAX_KEY {
            return Err(Error::KeyTooLong(text.len()));
        }
        let path = text.strip_suffix('/').unwrap_or(text);
        for component in path.split('/') {
            if component.len() > MAX_COMPONENT {
                return Err(Error::KeyTooLong(text.len()));
            }
            if let Err(reason) = component_rule(component) {
                return Err(Error::InvalidKey { key: text.to_owned(), reason });
            }
        }
        Ok(Self { text: text.to_owned() })
    }

    /// The key itself.
    pub(crate) fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether it names a directory object.
    pub(crate) fn is_dir(&self) -> bool {
        self.text.ends_with('/')
    }

    /// The path below the bucket: the key without a final `/`.
    pub(crate) fn path(&self) -> &str {
        self.text.strip_suffix('/').unwrap_or(&self.text)
    }

    /// The path of the directory that holds it; empty for the bucket itself.
    pub(crate) fn parent(&self) -> &str {
        self.path().rsplit_once('/').map_or("", |(parent, _)| parent)
    }

    /// The last component.
    pub(crate) fn name(&self) -> &str {
        self.path().rsplit_once('/').map_or(self.path(), |(_, name)| name)
    }
}

/// Says which rule a component breaks.
fn component_rule(component: &str) -> Result<(), &'static str> {
    match component {
        "" => Err("it has an empty component; a file name cannot be empty"),
        "." | ".." => Err("components . and .. are not names"),
        TEMP_DIR => Err("the component .sgwtmp is reserved for temporary data"),
        name if name.contains('\0') => Err("a file name cannot contain a NUL character"),
        _ => Ok(()),
    }
}

/// Whether a directory entry can be part of a key.
pub(crate) fn is_listed_name(name: &[u8]) -> bool {
    name != b"." && name != b".." && name != TEMP_DIR.as_bytes()
}

/// The smallest string after all that start with `prefix`; none when there is no such string.
pub(crate) fn successor(prefix: &[u8]) -> Option<Vec<u8>> {
    let end = prefix.iter().rposition(|&b| b != 0xff)?;
    let mut next = prefix[..=end].to_vec();
    next[end] += 1;
    Some(next)
}

/// Checks a bucket name: the DNS rules of S3, or when `relaxed` only what a directory name needs.
pub(crate) fn check_bucket_name(name: &str, relaxed: bool) -> Result<()> {
    let refuse = |reason| Err(Error::InvalidBucketName(name.to_owned(), reason));
    if name.is_empty() || name.len() > MAX_COMPONENT {
        return refuse("a name has 1 to 255 characters");
    }
    if name.starts_with('.') || name.contains(['/', '\0']) {
        return refuse("a name neither starts with a dot nor contains a slash or NUL");
    }
    if relaxed {
        return Ok(());
    }
    if !(3..=63).contains(&name.len()) {
        return refuse("a name has 3 to 63 characters");
    }
    if !name.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'.' || b == b'-') {
        return refuse("only lower-case letters, digits, dots and hyphens are allowed");
    }
    let alphanumeric = |b: Option<&u8>| b.is_some_and(u8::is_ascii_alphanumeric);
    if !alphanumeric(name.as_bytes().first()) || !alphanumeric(name.as_bytes().last()) {
        return refuse("a name begins and ends with a letter or digit");
    }
    if name.contains("..") {
        return refuse("two dots in a row are not allowed");
    }
    let parts: Vec<&str> = name.split('.').collect();
    if parts.len() == 4 && parts.iter().all(|p| !p.is_empty() && p.bytes().all(|b| b.is_ascii_digit())) {
        return refuse("a name must not look like an IP address");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test_case("a" => ("", "a", false); "plain")]
    #[test_case("a/b/c" => ("a/b", "c", false); "nested")]
    #[test_case("a/b/" => ("a", "b", true); "directory object")]
    #[test_case("ü/…" => ("ü", "…", false); "not ascii")]
    #[test_case(".hidden/..x" => (".hidden", "..x", false); "dots within names")]
    fn cut(text: &str) -> (&'static str, &'static str, bool) {
        let key = Key::parse(text).unwrap();
        assert_eq!(key.as_str(), text);
        (key.parent().to_owned().leak(), key.name().to_owned().leak(), key.is_dir())
    }

    #[test_case(""; "empty")]
    #[test_case("/"; "slash")]
    #[test_case("/a"; "leading slash")]
    #[test_case("a//b"; "double slash")]
    #[test_case("a//"; "double final slash")]
    #[test_case("./a"; "dot first")]
    #[test_case("a/./b"; "dot")]
    #[test_case("a/../b"; "dot dot")]
    #[test_case("a/.."; "dot dot last")]
    #[test_case("a\0b"; "nul")]
    #[test_case(".sgwtmp/x"; "temporary data")]
    #[test_case("a/.sgwtmp/x"; "temporary data below")]
    #[test_case(".sgwtmp/"; "temporary directory")]
    fn refused(text: &str) {
        assert!(matches!(Key::parse(text), Err(Error::InvalidKey { .. })), "{text:?}");
    }

    #[test]
    fn too_long() {
        assert!(Key::parse(&"a".repeat(255)).is_ok());
        assert!(matches!(Key::parse(&"a".repeat(256)), Err(Error::KeyTooLong(256))));
        let deep = "ab/".repeat(342);
        assert!(matches!(Key::parse(&deep), Err(Error::KeyTooLong(1026))));
    }

    #[test_case(b"a" => Some(b"b".to_vec()); "one")]
    #[test_case(b"a/" => Some(b"a0".to_vec()); "slash")]
    #[test_case(b"a\xff" => Some(b"b".to_vec()); "carry")]
    #[test_case(b"\xff" => None; "none")]
    #[test_case(b"" => None; "empty")]
    fn successors(prefix: &[u8]) -> Option<Vec<u8>> {
        successor(prefix)
    }

    #[test_case("abc", true; "short")]
    #[test_case("my.bucket-1", true; "all signs")]
    #[test_case("ab", false; "too short")]
    #[test_case("Abc", false; "upper case")]
    #[test_case("a_b", false; "underscore")]
    #[test_case("-abc", false; "hyphen first")]
    #[test_case("a..b", false; "dots")]
    #[test_case("192.168.5.4", false; "address")]
    #[test_case(".sgwtmp", false; "hidden")]
    #[test_case("a/b", false; "slash")]
    fn bucket_names(name: &str, good: bool) {
        assert_eq!(check_bucket_name(name, false).is_ok(), good);
    }

    #[test]
    fn relaxed_bucket_names() {
        for good in ["ab", "Abc", "a_b", "192.168.5.4"] {
            assert!(check_bucket_name(good, true).is_ok());
        }
        for bad in ["", ".sgwtmp", "..", "a/b", "a\0b"] {
            assert!(check_bucket_name(bad, true).is_err());
        }
    }
}

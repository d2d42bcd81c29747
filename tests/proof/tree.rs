//! What lies in the served directory, seen through the file system.

use std::path::Path;

/// All files below a directory but temporary data, by their paths below it.
pub(crate) fn objects(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    walk(dir, "", &mut |path, is_dir| {
        if !is_dir && !path.starts_with(".sgwtmp/") {
            found.push(path.to_owned());
        }
    });
    found.sort();
    found
}

/// Temporary data in a bucket that no pending upload, lock or object accounts for. `dir` is the
/// bucket's directory, or the root.
pub(crate) fn debris(dir: &Path) -> Vec<String> {
    let mut found = Vec::new();
    walk(&dir.join(".sgwtmp"), "", &mut |path, is_dir| {
        let lasting = match path.split('/').collect::<Vec<_>>()[..] {
            ["locks" | "multipart" | "overflow"] => is_dir,
            ["locks", _] => true,
            ["overflow", id] => is_referred_to(dir, id),
            _ => false,
        };
        if !lasting {
            found.push(path.to_owned());
        }
    });
    found
}

/// Whether the object for which an overflow file was written still names it.
fn is_referred_to(bucket: &Path, id: &str) -> bool {
    let Ok(json) = std::fs::read(bucket.join(".sgwtmp/overflow").join(id)) else { return false };
    let form: serde_json::Value = serde_json::from_slice(&json).unwrap_or_default();
    let mut value = [0; 64];
    let object = bucket.join(form["path"].as_str().unwrap_or_default());
    rustix::fs::getxattr(object, "user.vgwrdma.overflow", &mut value)
        .is_ok_and(|length| value[..length] == *id.as_bytes())
}

/// Visits all that is below a directory, directories after what is in them; what vanishes meanwhile is
/// left out.
fn walk(dir: &Path, prefix: &str, visit: &mut impl FnMut(&str, bool)) {
    for entry in std::fs::read_dir(dir).into_iter().flatten().flatten() {
        let path = format!("{prefix}{}", entry.file_name().to_str().unwrap());
        let is_dir = entry.file_type().is_ok_and(|kind| kind.is_dir());
        if is_dir {
            walk(&entry.path(), &format!("{path}/"), visit);
        }
        visit(&path, is_dir);
    }
}

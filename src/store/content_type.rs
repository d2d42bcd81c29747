//! Content types of files that no gateway wrote, by the ending of their names.

/// The type of directory objects, as S3's console and versitygw have it.
pub(crate) const DIRECTORY: &str = "application/x-directory";

/// What S3 says of objects without a type.
const UNKNOWN: &str = "binary/octet-stream";

/// Endings and types, from IANA's registry of media types and common use.
const TYPES: &[(&str, &str)] = &[
    ("7z", "application/x-7z-compressed"),
    ("aac", "audio/aac"),
    ("avi", "video/x-msvideo"),
    ("avif", "image/avif"),
    ("bmp", "image/bmp"),
    ("bz2", "application/x-bzip2"),
    ("css", "text/css"),
    ("csv", "text/csv"),
    ("flac", "audio/flac"),
    ("gif", "image/gif"),
    ("gz", "application/gzip"),
    ("h5", "application/x-hdf5"),
    ("htm", "text/html"),
    ("html", "text/html"),
    ("ico", "image/vnd.microsoft.icon"),
    ("jpeg", "image/jpeg"),
    ("jpg", "image/jpeg"),
    ("js", "text/javascript"),
    ("json", "application/json"),
    ("jsonl", "application/jsonl"),
    ("log", "text/plain"),
    ("m4a", "audio/mp4"),
    ("md", "text/markdown"),
    ("mjs", "text/javascript"),
    ("mkv", "video/x-matroska"),
    ("mov", "video/quicktime"),
    ("mp3", "audio/mpeg"),
    ("mp4", "video/mp4"),
    ("mpeg", "video/mpeg"),
    ("oga", "audio/ogg"),
    ("ogg", "audio/ogg"),
    ("ogv", "video/ogg"),
    ("otf", "font/otf"),
    ("parquet", "application/vnd.apache.parquet"),
    ("pdf", "application/pdf"),
    ("png", "image/png"),
    ("rtf", "application/rtf"),
    ("sh", "application/x-sh"),
    ("svg", "image/svg+xml"),
    ("tar", "application/x-tar"),
    ("tgz", "application/gzip"),
    ("tif", "image/tiff"),
    ("tiff", "image/tiff"),
    ("toml", "application/toml"),
    ("ttf", "font/ttf"),
    ("txt", "text/plain"),
    ("wasm", "application/wasm"),
    ("wav", "audio/wav"),
    ("weba", "audio/webm"),
    ("webm", "video/webm"),
    ("webp", "image/webp"),
    ("woff", "font/woff"),
    ("woff2", "font/woff2"),
    ("xhtml", "application/xhtml+xml"),
    ("xml", "application/xml"),
    ("xz", "application/x-xz"),
    ("yaml", "application/yaml"),
    ("yml", "application/yaml"),
    ("zip", "application/zip"),
    ("zst", "application/zstd"),
];

/// The type for a key.
pub(crate) fn guess(key: &str) -> &'static str {
    let name = key.rsplit('/').next().unwrap_or(key);
    let Some((stem, ending)) = name.rsplit_once('.') else { return UNKNOWN };
    let ending = ending.to_ascii_lowercase();
    match TYPES.binary_search_by(|(e, _)| (*e).cmp(&ending)) {
        Ok(at) if !stem.is_empty() => TYPES[at].1,
        _ => UNKNOWN,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use test_case::test_case;

    #[test]
    fn sorted() {
        assert!(TYPES.is_sorted_by_key(|t| t.0));
    }

    #[test_case("a.txt" => "text/plain")]
    #[test_case("dir.txt/a" => UNKNOWN; "only the last component counts")]
    #[test_case("x/photo.JPG" => "image/jpeg")]
    #[test_case("backup.tar.gz" => "application/gzip")]
    #[test_case(".png" => UNKNOWN; "a hidden file has no ending")]
    #[test_case("a." => UNKNOWN; "empty ending")]
    fn guesses(key: &str) -> &'static str {
        guess(key)
    }
}

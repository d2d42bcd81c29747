//! Listing against a plain pass over the same directories.
//!
//! `cargo bench --bench list -- 1000000 [DIR]` makes that many empty objects in a temporary directory
//! (below DIR), flat and nested, and prints how long the first page, all pages, and all pages with the
//! delimiter `/` take, in passes of `getdents` over the same tree, and how much memory the listing adds.
//! Without a number it makes few, to show that it works.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use vgwrdma::store::{Durability, ListRequest, Store, StoreOptions};

/// Objects when no number is given.
const FEW: usize = 2_000;
/// Entries in each directory of the nested tree.
const FANOUT: usize = 100;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1).filter(|a| !a.starts_with("--"));
    let count: usize = arguments.next().map_or(Ok(FEW), |n| n.parse())?;
    let place = arguments.next().map_or_else(std::env::temp_dir, PathBuf::from);
    println!(
        "{:<8} {:>9} {:>12} {:>12} {:>8} {:>12} {:>8} {:>12} {:>8} {:>10}",
        "tree",
        "objects",
        "getdents",
        "first page",
        "passes",
        "all pages",
        "passes",
        "delimiter",
        "passes",
        "memory"
    );
    for nested in [false, true] {
        let dir = tempfile::tempdir_in(&place)?;
        let bucket = dir.path().join("bucket");
        fs::create_dir(&bucket)?;
        generate(&bucket, count, nested)?;
        // A directory that has just been changed is not remembered between pages.
        std::thread::sleep(Duration::from_secs(4));
        measure(dir.path(), &bucket, count, if nested { "nested" } else { "flat" })?;
    }
    Ok(())
}

fn generate(bucket: &Path, count: usize, nested: bool) -> io::Result<()> {
    for n in 0..count {
        // Scattered, as a directory's own order is by hash.
        let name = format!("{:012x}", (n as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 16);
        let path = if nested {
            bucket.join(format!("{:03}/{:03}/{name}", n / FANOUT / FANOUT, n / FANOUT % FANOUT))
        } else {
            bucket.join(name)
        };
        if nested && n % FANOUT == 0 {
            fs::create_dir_all(path.parent().unwrap_or(bucket))?;
        }
        fs::write(path, "")?;
    }
    Ok(())
}

fn measure(root: &Path, bucket: &Path, count: usize, tree: &str) -> Result<(), Box<dyn std::error::Error>> {
    let pass = {
        pass(bucket)?; // warm
        let start = Instant::now();
        assert_eq!(pass(bucket)?, count);
        start.elapsed()
    };
    let options = StoreOptions { durability: Durability::None, ..StoreOptions::default() };
    let store = Store::open(root, options)?;
    let before = peak_memory();
    let (first, all, listed) = pages(&store, None)?;
    assert_eq!(listed, count);
    let (_, rolled_up, _) = pages(&store, Some("/"))?;
    let passes = |time: Duration| time.as_secs_f64() / pass.as_secs_f64();
    println!(
        "{tree:<8} {count:>9} {pass:>12.1?} {first:>12.1?} {:>8.2} {all:>12.1?} {:>8.2} {rolled_up:>12.1?} {:>8.2} {:>8} K",
        passes(first),
        passes(all),
        passes(rolled_up),
        peak_memory().saturating_sub(before)
    );
    Ok(())
}

/// Pages through the bucket; gives the time of the first page and of all, and how much was listed.
fn pages(
    store: &Store,
    delimiter: Option<&str>,
) -> Result<(Duration, Duration, usize), vgwrdma::store::Error> {
    let mut request =
        ListRequest { max_keys: 1000, delimiter: delimiter.map(str::to_owned), ..ListRequest::default() };
    let (mut first, mut listed) = (None, 0);
    let start = Instant::now();
    loop {
        let page = store.list_objects("bucket", &request)?;
        first.get_or_insert_with(|| start.elapsed());
        listed += page.objects.len() + page.common_prefixes.len();
        let Some(next) = page.next else { break };
        request.start_after = Some(next);
    }
    Ok((first.unwrap_or_default(), start.elapsed(), listed))
}

/// Reads all entries and does nothing with them.
fn pass(dir: &Path) -> io::Result<usize> {
    let mut files = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            files += pass(&entry.path())?;
        } else {
            files += 1;
        }
    }
    Ok(files)
}

/// Most resident memory so far, in KiB.
fn peak_memory() -> u64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.trim().trim_end_matches(" kB").parse().ok()).unwrap_or(0)
}

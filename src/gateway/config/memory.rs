//! Whether the pool of registered memory fits.

use crate::units::format_size;

/// Memory left to everything else, in bytes.
const SPARE: u64 = 64 << 20;

/// Checks a pool against the memory that is free and, for hardware that pins it, against the limit
/// on locked memory.
///
/// # Errors
/// A line that names both sizes and the cure.
pub(crate) fn check_pool(bytes: u64, pinned: bool) -> Result<(), String> {
    let available = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| available(&text));
    fits(bytes, available, pinned.then(locked_limit).flatten())
}

fn fits(bytes: u64, available: Option<u64>, locked: Option<u64>) -> Result<(), String> {
    if let Some(available) = available
        && bytes.saturating_add(SPARE) > available
    {
        return Err(format!(
            "the RDMA pool of {} does not fit: {} of memory are available; lower --pool-buf-size or --pool-buf-count",
            format_size(bytes),
            format_size(available)
        ));
    }
    if let Some(limit) = locked
        && bytes > limit
    {
        return Err(format!(
            "the RDMA pool of {} is more than the {} that may be locked; raise the limit (ulimit -l, LimitMEMLOCK=) or lower --pool-buf-size or --pool-buf-count",
            format_size(bytes),
            format_size(limit)
        ));
    }
    Ok(())
}

/// `MemAvailable` of `/proc/meminfo`, in bytes.
fn available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// `RLIMIT_MEMLOCK` in bytes, when there is a limit and this process is bound by it.
fn locked_limit() -> Option<u64> {
    let may_lock = std::fs::read_to_string("/proc/self/status").ok().is_some_and(|text| has_ipc_lock(&text));
    if may_lock { None } else { rustix::process::getrlimit(rustix::process::Resource::Memlock).current }
}

/// Whether `CAP_IPC_LOCK`, number 14, is among the effective capabilities.
fn has_ipc_lock(status: &str) -> bool {
    status
        .lines()
        .find_map(|line| line.strip_prefix("CapEff:"))
        .and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .is_some_and(|mask| mask & (1 << 14) != 0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_compared() {
        let gib = 1 << 30;
        assert!(fits(4 * gib, Some(8 * gib), None).is_ok());
        let text = fits(4 * gib, Some(4 * gib), None).unwrap_err();
        assert!(text.contains("4GiB does not fit") && text.contains("--pool-buf-count"), "{text}");
        assert!(fits(4 * gib, None, Some(64 << 10)).unwrap_err().contains("64KiB that may be locked"));
        assert!(fits(u64::MAX, Some(gib), None).is_err());
    }

    #[test]
    fn proc_files_are_read() {
        assert_eq!(available("MemTotal: 10 kB\nMemAvailable:    2048 kB\n"), Some(2 << 20));
        assert_eq!(available("MemTotal: 10 kB\n"), None);
        assert!(has_ipc_lock("Name:\tx\nCapEff:\t0000000000004000\n"));
        assert!(!has_ipc_lock("CapEff:\t0000000000000000\n"));
        assert!(check_pool(1, false).is_ok());
    }
}

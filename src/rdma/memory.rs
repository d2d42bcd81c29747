//! Host memory for RDMA: page-aligned allocations, and leases on disjoint parts of them.

use std::fmt;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;
use std::sync::Arc;

use super::{Error, Result};

/// Whether an allocation uses huge pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum HugePages {
    /// Ordinary pages.
    Off,
    /// Transparent huge pages where the kernel gives them (`madvise(MADV_HUGEPAGE)`).
    #[default]
    Advise,
    /// `MAP_HUGETLB`; fails when the kernel's pool has too few.
    Require,
}

/// A page-aligned, zeroed, private mapping of host memory.
///
/// The memory is reached only through [`Lease`]s, so that no `&mut [u8]` exists under which a
/// NIC writes.
pub struct HostMemory {
    start: NonNull<u8>,
    len: usize,
    /// What was mapped: `len` in whole pages of the kind in use.
    mapped: usize,
}

// SAFETY: the mapping belongs to this value alone and stays mapped until it drops; the pointer is
// dereferenced only through `Lease`s, which cover disjoint ranges, so any thread may own or share it.
unsafe impl Send for HostMemory {}
// SAFETY: as for `Send`; `&HostMemory` by itself gives no access to the bytes.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Maps `len` bytes, in whole pages.
    ///
    /// # Errors
    /// [`Error::Allocate`] when the kernel refuses (with [`HugePages::Require`]: when its pool,
    /// `vm.nr_hugepages`, has too few), or when `len` is 0.
    pub fn allocate(len: usize, huge: HugePages) -> Result<Self> {
        let failed = |source| Error::Allocate { bytes: len, source };
        if len == 0 {
            return Err(failed(std::io::Error::from_raw_os_error(libc::EINVAL)));
        }
        let mut flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let mut page = 4096;
        if huge == HugePages::Require {
            flags |= libc::MAP_HUGETLB;
            page = huge_page_bytes();
        }
        // Whole pages, because munmap of huge pages takes nothing else (mmap(2), "Huge page mappings").
        let mapped = len
            .checked_next_multiple_of(page)
            .ok_or_else(|| failed(std::io::Error::from_raw_os_error(libc::ENOMEM)))?;
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no
        // existing memory.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), mapped, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if start == libc::MAP_FAILED {
            return Err(failed(std::io::Error::last_os_error()));
        }
        if huge == HugePages::Advise {
            // SAFETY: the range is the mapping just made; the advice changes no content, and its
            // failure only means ordinary pages.
            unsafe { libc::madvise(start, mapped, libc::MADV_HUGEPAGE) };
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| failed(std::io::Error::last_os_error()))?;
        Ok(Self { start, len, mapped })
    }

    /// Size in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Never true: an empty allocation is refused.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// Address of the first byte, for registration.
    pub fn as_ptr(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// Makes one lease of all of the memory.
    pub fn into_whole(self) -> Lease {
        let range = 0..self.len;
        Lease { memory: Arc::new(self), range }
    }

    /// Takes the memory apart into leases of `chunk` bytes each; a shorter rest stays unused.
    ///
    /// The `Arc` that comes back keeps the mapping alive for registrations.
    ///
    /// # Errors
    /// [`Error::Invalid`] when `chunk` is 0 or larger than the memory.
    pub fn into_leases(self, chunk: usize) -> Result<(Arc<HostMemory>, Vec<Lease>)> {
        if chunk == 0 || chunk > self.len {
            return Err(Error::Invalid {
                operation: "into_leases",
                what: format!("a chunk of {chunk} bytes does not fit in {} bytes of memory", self.len),
            });
        }
        let memory = Arc::new(self);
        let leases = (0..memory.len / chunk)
            .map(|i| Lease { memory: Arc::clone(&memory), range: i * chunk..(i + 1) * chunk })
            .collect();
        Ok((memory, leases))
    }
}

impl Drop for HostMemory {
    fn drop(&mut self) {
        // SAFETY: `start` and `mapped` are those of the mapping made in `allocate`, and nothing else
        // unmaps it.
        let rc = unsafe { libc::munmap(self.start.as_ptr().cast(), self.mapped) };
        if rc != 0 {
            tracing::warn!(bytes = self.len, error = %std::io::Error::last_os_error(), "munmap failed");
        }
    }
}

/// Size of the kernel's default huge page, 2 MiB where it does not say.
fn huge_page_bytes() -> usize {
    let kib = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| {
        let line = text.lines().find_map(|line| line.strip_prefix("Hugepagesize:"))?;
        line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()
    });
    kib.filter(|kib| kib.is_power_of_two()).unwrap_or(2048) * 1024
}

impl fmt::Debug for HostMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HostMemory").field("len", &self.len).finish_non_exhaustive()
    }
}

/// Sole right to a range of a [`HostMemory`].
///
/// Ranges of different leases never overlap. An RDMA operation takes the lease by value and hands
/// it back with its completion, so whoever holds one may read and write its bytes.
pub struct Lease {
    memory: Arc<HostMemory>,
    range: Range<usize>,
}

impl Lease {
    /// Offset of the lease in its memory, in bytes.
    pub fn offset(&self) -> usize {
        self.range.start
    }

    /// Address of the first byte. Valid as long as the lease's memory.
    #[cfg(feature = "server")]
    pub(crate) fn as_ptr(&self) -> *mut u8 {
        self.memory.as_ptr().wrapping_add(self.range.start)
    }

    /// The memory the lease is part of.
    pub fn memory(&self) -> &Arc<HostMemory> {
        &self.memory
    }
}

impl Deref for Lease {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: the range lies inside the mapping, which the `Arc` keeps mapped; this lease is
        // the only one over it and is not in an operation, since an operation owns its lease.
        unsafe {
            std::slice::from_raw_parts(self.memory.start.as_ptr().add(self.range.start), self.range.len())
        }
    }
}

impl DerefMut for Lease {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`, and `&mut self` makes this the only reference.
        unsafe {
            std::slice::from_raw_parts_mut(self.memory.start.as_ptr().add(self.range.start), self.range.len())
        }
    }
}

impl fmt::Debug for Lease {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Lease").field(&self.range).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_zeroed_aligned_and_as_long_as_asked() {
        for len in [1, 4095, 4096, 4097, 3 << 20] {
            let memory = HostMemory::allocate(len, HugePages::Advise).unwrap();
            assert_eq!((memory.len(), memory.as_ptr() as usize % 4096), (len, 0));
            let (_, leases) = memory.into_leases(len).unwrap();
            assert!(leases[0].iter().all(|byte| *byte == 0));
        }
    }

    #[test]
    fn impossible_sizes_are_refused() {
        assert!(matches!(HostMemory::allocate(0, HugePages::Off), Err(Error::Allocate { bytes: 0, .. })));
        for len in [usize::MAX, usize::MAX - 4095, isize::MAX as usize] {
            assert!(matches!(HostMemory::allocate(len, HugePages::Off), Err(Error::Allocate { .. })));
        }
    }

    #[test]
    fn required_huge_pages_are_given_or_refused_and_then_given_back() {
        // Whether the machine has any is not this test's business; that a mapping of an odd size is
        // unmapped whole is.
        match HostMemory::allocate(1, HugePages::Require) {
            Ok(memory) => assert_eq!(memory.mapped, huge_page_bytes()),
            Err(error) => assert!(matches!(error, Error::Allocate { bytes: 1, .. })),
        }
        assert!(huge_page_bytes().is_power_of_two());
    }

    #[test]
    fn leases_cover_disjoint_ranges_and_leave_the_rest() {
        let memory = HostMemory::allocate(10_000, HugePages::Off).unwrap();
        let (memory, mut leases) = memory.into_leases(4096).unwrap();
        assert_eq!(leases.iter().map(Lease::offset).collect::<Vec<_>>(), [0, 4096]);
        leases[0].fill(1);
        leases[1].fill(2);
        assert!(leases[0].iter().all(|byte| *byte == 1));
        assert_eq!(leases[1].as_ref().as_ptr() as usize, memory.as_ptr() as usize + 4096);
    }

    #[test]
    fn a_chunk_must_fit() {
        for chunk in [0, 4097] {
            let memory = HostMemory::allocate(4096, HugePages::Off).unwrap();
            assert!(matches!(memory.into_leases(chunk), Err(Error::Invalid { .. })));
        }
    }

    #[test]
    fn a_lease_keeps_its_memory_mapped() {
        let (memory, mut leases) =
            HostMemory::allocate(4096, HugePages::Off).unwrap().into_leases(4096).unwrap();
        let weak = Arc::downgrade(&memory);
        drop(memory);
        leases[0][4095] = 7;
        assert_eq!(leases[0][4095], 7);
        leases.clear();
        assert!(weak.upgrade().is_none());
    }
}

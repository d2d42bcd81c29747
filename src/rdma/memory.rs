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
}

// SAFETY: the mapping belongs to this value alone and stays mapped until it drops; the pointer is
// dereferenced only through `Lease`s, which cover disjoint ranges, so any thread may own or share it.
unsafe impl Send for HostMemory {}
// SAFETY: as for `Send`; `&HostMemory` by itself gives no access to the bytes.
unsafe impl Sync for HostMemory {}

impl HostMemory {
    /// Maps `len` bytes (rounded up to whole pages by the kernel).
    ///
    /// # Errors
    /// [`Error::Allocate`] when the kernel refuses, or when `len` is 0.
    pub fn allocate(len: usize, huge: HugePages) -> Result<Self> {
        let failed = |source| Error::Allocate { bytes: len, source };
        if len == 0 {
            return Err(failed(std::io::Error::from_raw_os_error(libc::EINVAL)));
        }
        let mut flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        if huge == HugePages::Require {
            flags |= libc::MAP_HUGETLB;
        }
        // SAFETY: an anonymous private mapping at an address of the kernel's choice touches no
        // existing memory.
        let start = unsafe {
            libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0)
        };
        if start == libc::MAP_FAILED {
            return Err(failed(std::io::Error::last_os_error()));
        }
        if huge == HugePages::Advise {
            // SAFETY: the range is the mapping just made; the advice changes no content, and its
            // failure only means ordinary pages.
            unsafe { libc::madvise(start, len, libc::MADV_HUGEPAGE) };
        }
        let start = NonNull::new(start.cast()).ok_or_else(|| failed(std::io::Error::last_os_error()))?;
        Ok(Self { start, len })
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
        // SAFETY: `start` and `len` are those of the mapping made in `allocate`, and nothing else
        // unmaps it.
        let rc = unsafe { libc::munmap(self.start.as_ptr().cast(), self.len) };
        if rc != 0 {
            tracing::warn!(bytes = self.len, error = %std::io::Error::last_os_error(), "munmap failed");
        }
    }
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

//! Host memory that is not registered: for standard S3 where there is no RDMA.

use super::{Buffer, Direction, Error, Memory, MemoryKind, Result, Token};
use crate::rdma::{HostMemory, HugePages, Lease};

/// Page-aligned memory of the host, without a registration.
#[derive(Debug)]
struct PlainMemory(Lease);

impl Buffer {
    /// Host memory without a registration: good for [`put_http`](super::Client::put_http) and
    /// [`get_http`](super::Client::get_http); RDMA requests refuse it.
    ///
    /// # Errors
    /// When the memory cannot be had, or `len` is 0.
    pub fn unregistered(len: usize) -> Result<Self> {
        Ok(Self::new(Box::new(PlainMemory(host_lease(len)?))))
    }
}

/// One lease over a new allocation of `len` bytes.
pub(crate) fn host_lease(len: usize) -> Result<Lease> {
    let (_, leases) = HostMemory::allocate(len, HugePages::Advise)?.into_leases(len)?;
    leases.into_iter().next().ok_or_else(|| Error::Invalid { what: "a buffer of 0 bytes".to_owned() })
}

impl Memory for PlainMemory {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn token(&self, _: usize, _: usize, _: Direction) -> Result<Token> {
        Err(Error::Invalid { what: "the buffer is not registered for RDMA".to_owned() })
    }

    fn revoke(&self) -> Result<()> {
        Ok(())
    }

    fn copy_in(&mut self, offset: usize, data: &[u8]) -> Result<()> {
        self.0[offset..offset + data.len()].copy_from_slice(data);
        Ok(())
    }

    fn copy_out(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        out.copy_from_slice(&self.0[offset..offset + out.len()]);
        Ok(())
    }

    fn fill(&mut self, value: u8) -> Result<()> {
        self.0.fill(value);
        Ok(())
    }

    fn as_slice(&self) -> Option<&[u8]> {
        Some(&self.0)
    }

    fn as_mut_slice(&mut self) -> Option<&mut [u8]> {
        Some(&mut self.0)
    }
}

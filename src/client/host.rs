//! Host memory: registered with the client library, or plain for standard S3.

use super::{Buffer, Error, Memory, MemoryKind, Result, Token};
use crate::rdma::{ClientMemory, HostMemory, HugePages, Lease, Op};

impl Memory for ClientMemory {
    fn len(&self) -> usize {
        ClientMemory::len(self)
    }

    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn token(&self, offset: usize, length: usize, op: Op) -> Result<Token> {
        Ok(Token::new(self.owned_token(op, offset, length)?))
    }

    fn settle(&mut self) -> Result<()> {
        ClientMemory::as_mut_slice(self)?;
        Ok(())
    }

    fn copy_in(&mut self, offset: usize, data: &[u8]) -> Result<()> {
        Ok(ClientMemory::copy_in(self, offset, data)?)
    }

    fn copy_out(&self, offset: usize, out: &mut [u8]) -> Result<()> {
        Ok(ClientMemory::copy_out(self, offset, out)?)
    }

    fn fill(&mut self, value: u8) -> Result<()> {
        ClientMemory::as_mut_slice(self)?.fill(value);
        Ok(())
    }

    fn as_mut_slice(&mut self) -> Result<Option<&mut [u8]>> {
        Ok(Some(ClientMemory::as_mut_slice(self)?))
    }
}

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
        Ok(Self::new(PlainMemory(HostMemory::allocate(len, HugePages::Advise)?.into_whole())))
    }
}

/// Refuses a token for memory that is not registered.
pub(super) fn not_registered() -> Error {
    Error::Invalid { what: "the buffer is not registered for RDMA".to_owned() }
}

impl Memory for PlainMemory {
    fn len(&self) -> usize {
        self.0.len()
    }

    fn kind(&self) -> MemoryKind {
        MemoryKind::Host
    }

    fn token(&self, _: usize, _: usize, _: Op) -> Result<Token> {
        Err(not_registered())
    }

    fn settle(&mut self) -> Result<()> {
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

    fn as_mut_slice(&mut self) -> Result<Option<&mut [u8]>> {
        Ok(Some(&mut self.0))
    }
}

//! What the buffers of a task are made of.

use super::Failure;
use super::plan::Mode;
use crate::client::{Buffer, MemoryKind, RdmaSession};
use crate::gpu::Gpu;

/// What buffers are made of.
pub(super) enum Memory {
    Host(RdmaSession),
    Gpu(RdmaSession, Gpu),
    PlainHost,
    PlainGpu(Gpu),
}

impl Memory {
    /// Only standard S3 does without the RDMA session, and only what was asked for, or found, is
    /// used; nothing falls back silently.
    pub(super) fn open(standard: bool, kind: Option<MemoryKind>, gpu: Option<u32>) -> Result<Self, Failure> {
        let failed = |e: crate::client::Error| Failure::transfer("", e);
        let open_gpu = || Gpu::open(gpu.unwrap_or(0)).map_err(|e| failed(e.into()));
        if standard {
            return match kind {
                Some(MemoryKind::Gpu) => Ok(Self::PlainGpu(open_gpu()?)),
                _ => Ok(Self::PlainHost),
            };
        }
        let session = RdmaSession::open().map_err(failed)?;
        match kind.unwrap_or_else(|| session.default_memory()) {
            MemoryKind::Host => Ok(Self::Host(session)),
            MemoryKind::Gpu => {
                let gpu = open_gpu()?;
                tracing::info!(gpu = gpu.ordinal(), name = gpu.name().unwrap_or_default(), "GPU memory");
                Ok(Self::Gpu(session, gpu))
            }
        }
    }

    /// A buffer of `length` bytes.
    pub(super) fn buffer(&self, length: usize) -> Result<Buffer, Failure> {
        let made = match self {
            Self::PlainHost => Buffer::unregistered(length),
            Self::PlainGpu(gpu) => Buffer::unregistered_gpu(gpu, length),
            Self::Host(session) => session.host_buffer(length),
            Self::Gpu(session, gpu) => session.gpu_buffer(gpu, length),
        };
        made.map_err(|e| Failure::transfer("buffer", e))
    }

    /// What carries the bytes.
    pub(super) fn mode(&self) -> Mode {
        match self {
            Self::PlainHost | Self::PlainGpu(_) => Mode::Standard,
            Self::Host(_) => Mode::Rdma(MemoryKind::Host),
            Self::Gpu(..) => Mode::Rdma(MemoryKind::Gpu),
        }
    }
}

//! Files past the page cache: `O_DIRECT` of open(2).
//!
//! Offset, address and length of such an operation must lie on blocks of the device; pages suit all
//! common ones. What does not lie on pages, and what the file system refuses, goes through the page
//! cache.

use std::fs::File;
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::FileExt as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use rustix::fs::{self as rfs, Mode, OFlags};

use super::{Fs, FsOp};

/// Alignment in bytes.
const PAGE: usize = 4096;

/// An open file, opened again for direct operations.
#[derive(Debug)]
pub(crate) struct DirectFile {
    file: File,
    fs: Arc<Fs>,
}

impl DirectFile {
    /// Opens the inode of an open file again; `None` where the file system has no direct operations,
    /// which is said once.
    pub(crate) fn open(fs: &Arc<Fs>, file: &File, access: OFlags, label: &str) -> Option<Self> {
        let opened = fs.note(FsOp::OpenDirect, label).and_then(|()| {
            let path = format!("/proc/self/fd/{}", file.as_raw_fd());
            rfs::open(path, access | OFlags::DIRECT | OFlags::CLOEXEC, Mode::empty())
        });
        match opened {
            Ok(file) => Some(Self { file: file.into(), fs: Arc::clone(fs) }),
            Err(error) => {
                fs.direct_refused(&error.into());
                None
            }
        }
    }

    /// Writes the whole pages at the beginning of `data`; says how many bytes that was, 0 when none
    /// can be written so.
    pub(crate) fn write_pages(&self, offset: u64, data: &[u8]) -> io::Result<usize> {
        let length = data.len() / PAGE * PAGE;
        if length == 0 || !is_aligned(offset, data) {
            return Ok(0);
        }
        let written = self.file.write_all_at(&data[..length], offset);
        self.unless_refused(written.map(|()| length))
    }

    /// Reads `length` bytes into `chunk`, which may have room for the rest of the last page; says
    /// how many of them are there, fewer than asked for when the rest cannot be read so.
    pub(crate) fn read_pages(&self, offset: u64, length: usize, chunk: &mut [u8]) -> io::Result<usize> {
        let room = (chunk.len() / PAGE * PAGE).min(length.next_multiple_of(PAGE));
        if !is_aligned(offset, chunk) {
            return Ok(0);
        }
        let mut done = 0;
        // Reading ends short at the end of the file, at the latest in the last page.
        while done < length.min(room) && done.is_multiple_of(PAGE) {
            match self.file.read_at(&mut chunk[done..room], offset + done as u64) {
                Ok(0) => break,
                Ok(count) => done += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return self.unless_refused(Err(error)),
            }
        }
        Ok(done.min(length))
    }

    /// Turns a refusal of the file system into nothing done.
    fn unless_refused(&self, result: io::Result<usize>) -> io::Result<usize> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::InvalidInput => {
                self.fs.direct_refused(&error);
                Ok(0)
            }
            other => other,
        }
    }
}

fn is_aligned(offset: u64, memory: &[u8]) -> bool {
    offset.is_multiple_of(PAGE as u64) && memory.as_ptr().addr().is_multiple_of(PAGE)
}

/// Whether it has been said that a file system has no direct operations.
#[derive(Debug, Default)]
pub(super) struct Said(AtomicBool);

impl Fs {
    fn direct_refused(&self, error: &io::Error) {
        if !self.said.0.swap(true, Ordering::Relaxed) {
            tracing::warn!(%error, "the file system refuses direct I/O; going through the page cache");
        }
    }
}

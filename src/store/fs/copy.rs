//! Copying between files without moving the bytes through this process, where the kernel can.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt as _;

use rustix::fs as rfs;
use rustix::io::Errno;

use super::{Fs, FsOp};

/// Bytes moved at a time where the kernel cannot copy.
const BUFFER: usize = 1 << 20;

impl Fs {
    /// Copies `length` bytes; `UnexpectedEof` when the source ends early.
    pub(crate) fn copy(
        &self,
        source: &File,
        from: u64,
        target: &File,
        to: u64,
        length: u64,
        name: &str,
    ) -> io::Result<()> {
        self.note(FsOp::Copy, name)?;
        let mut done = 0;
        while done < length && !self.no_copy_range {
            let (mut input, mut output) = (from + done, to + done);
            let step = usize::try_from((length - done).min(1 << 30)).unwrap_or(1 << 30);
            match rfs::copy_file_range(source, Some(&mut input), target, Some(&mut output), step) {
                // Some file systems answer 0 where they mean "not supported"; reading decides.
                Ok(0) => break,
                Ok(copied) => done += copied as u64,
                Err(Errno::INTR) => {}
                Err(error @ (Errno::NOSPC | Errno::DQUOT | Errno::IO | Errno::FBIG)) => {
                    return Err(error.into());
                }
                Err(_) => break,
            }
        }
        if done < length {
            self.copy_through(source, from + done, target, to + done, length - done)?;
        }
        Ok(())
    }

    fn copy_through(&self, source: &File, from: u64, target: &File, to: u64, length: u64) -> io::Result<()> {
        let mut buffer = vec![0; BUFFER.min(usize::try_from(length).unwrap_or(BUFFER))];
        let mut done = 0;
        while done < length {
            let step = buffer.len().min(usize::try_from(length - done).unwrap_or(BUFFER));
            source.read_exact_at(&mut buffer[..step], from + done)?;
            target.write_all_at(&buffer[..step], to + done)?;
            done += step as u64;
        }
        Ok(())
    }
}

//! Making one file of the parts.
//!
//! Where the file system shares blocks between files (reflinks) and the parts end on block
//! boundaries, the object is built beside the parts and costs no space; they go when it is published.
//!
//! Elsewhere a copy of all parts would need their space twice. There the first part *becomes* the
//! object: it is renamed to `assembly`, and each further part is appended to it and then removed, so
//! that little exists twice. `assembly.log` has a line for each part that is in it. The line
//! is written after the data and before the part is removed, so that after a crash a retry finds every
//! byte: it cuts `assembly` to the end of the last line and goes on. A retry that names other parts
//! than the first attempt did gets them back out of `assembly` first.

use std::fs::File;
use std::io::Write as _;
use std::os::fd::AsFd as _;
use std::sync::Arc;
use std::time::{Duration, UNIX_EPOCH};

use rustix::fs::{self as rfs, OFlags};
use rustix::io::Errno;
use serde::{Deserialize, Serialize};

use super::super::attributes::{Raw, decode_checksums, encode_checksums, name, to_json};
use super::super::bucket::Bucket;
use super::super::error::{Error, Result};
use super::super::fs::{FsOp, READ, Temp, is_file, stat, stat_at};
use super::super::inner::Inner;
use super::super::keeper::{Keeper, Subject};
use super::super::key::Key;
use super::super::types::PartInfo;
use super::{Upload, part_number};

const ASSEMBLY: &str = "assembly";
const LOG: &str = "assembly.log";

/// Blocks are shared in units of this, in bytes.
const BLOCK: u64 = 4096;

/// Parts are removed each time that a part of the object of this size was appended, in bytes: that much
/// exists twice, and each time costs a sync.
fn group_size(object: u64) -> u64 {
    (object / 8).clamp(16 << 20, 256 << 20)
}

/// A part of the object to be.
#[derive(Clone, Debug)]
pub(super) struct Piece {
    pub(super) info: PartInfo,
    /// Its offset in `assembly`, when it is there and not in a file of its own.
    pub(super) assembled_at: Option<u64>,
}

/// A line of the log.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Assembled {
    pub(super) number: u32,
    pub(super) size: u64,
    etag: String,
    /// JSON, as the part's attribute.
    checksums: Option<String>,
    modified: u64,
}

impl Assembled {
    fn of(info: &PartInfo) -> Self {
        let checksums =
            info.checksums.as_ref().map(|c| String::from_utf8_lossy(&encode_checksums(c)).into_owned());
        Self {
            number: info.number,
            size: info.size,
            etag: info.etag.clone(),
            checksums,
            modified: info.modified.duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
        }
    }

    pub(super) fn info(&self) -> PartInfo {
        PartInfo {
            number: self.number,
            size: self.size,
            etag: self.etag.clone(),
            modified: UNIX_EPOCH + Duration::from_secs(self.modified),
            checksums: self.checksums.as_ref().and_then(|json| decode_checksums(json.as_bytes())),
        }
    }
}

impl Inner {
    /// The parts that are in `assembly`, in their order.
    pub(super) fn assembled(&self, upload: &Upload) -> Result<Vec<Assembled>> {
        // A log without the file belongs to a first step that was not made.
        if !matches!(stat_at(&upload.dir, ASSEMBLY), Ok(found) if is_file(&found)) {
            return Ok(Vec::new());
        }
        self.log(upload)
    }

    fn log(&self, upload: &Upload) -> Result<Vec<Assembled>> {
        let fail = |error| Error::io("read the log of upload", &upload.id, error);
        let file = match self.fs.open_beneath(&upload.dir, LOG, READ) {
            Err(Errno::NOENT) => return Ok(Vec::new()),
            other => other.map_err(|error| fail(error.into()))?,
        };
        let text = std::io::read_to_string(File::from(file)).map_err(fail)?;
        // The last line may be cut by a crash; its part is still there.
        Ok(text.lines().map_while(|line| serde_json::from_str(line).ok()).collect())
    }

    /// Whether the upload has been published already: its file has gone to the object's name.
    pub(super) fn is_consumed(&self, upload: &Upload) -> Result<bool> {
        let fail = |error| Error::fs("read upload", &upload.id, error);
        if self.log(upload)?.is_empty() || stat_at(&upload.dir, ASSEMBLY).is_ok() {
            return Ok(false);
        }
        let dir = self.fs.open_beneath(&upload.dir, "", super::super::fs::DIR).map_err(fail)?;
        let entries = super::super::fs::entries(dir).map_err(fail)?;
        Ok(!entries.iter().any(|(name, _)| part_number(name).is_some()))
    }

    /// The file that holds a piece, and where it begins there.
    pub(super) fn piece_file(&self, upload: &Upload, piece: &Piece) -> Result<(File, u64)> {
        let name = piece.assembled_at.map_or_else(|| piece.info.number.to_string(), |_| ASSEMBLY.to_owned());
        match self.fs.open_beneath(&upload.dir, &name, READ) {
            Ok(file) => Ok((File::from(file), piece.assembled_at.unwrap_or(0))),
            Err(Errno::NOENT) => {
                Err(Error::InvalidPart { number: piece.info.number, reason: "it is gone".to_owned() })
            }
            Err(error) => Err(Error::fs("open a part of upload", &upload.id, error)),
        }
    }

    /// Joins the pieces into one file, which is not published yet.
    pub(super) fn assemble(
        &self,
        bucket: &Bucket,
        key: &Key,
        upload: &Upload,
        pieces: &[Piece],
    ) -> Result<Temp> {
        let untouched = pieces.iter().all(|piece| piece.assembled_at.is_none());
        if untouched && let Some(temp) = self.share(bucket, key, upload, pieces)? {
            return Ok(temp);
        }
        self.append(bucket, key, upload, pieces)
    }

    /// Builds the object of shared blocks; none where there is no such thing.
    fn share(&self, bucket: &Bucket, key: &Key, upload: &Upload, pieces: &[Piece]) -> Result<Option<Temp>> {
        let (inner, last) = pieces.split_at(pieces.len().saturating_sub(1));
        if self.fs.no_copy_range
            || inner.iter().any(|piece| !piece.info.size.is_multiple_of(BLOCK))
            || inner.is_empty()
            || last.is_empty()
        {
            return Ok(None);
        }
        let fail = |error| bucket.error("assemble", key.as_str(), error);
        let temp = Temp::create(&self.fs, bucket.dir(), &self.owner, key.as_str()).map_err(fail)?;
        let mut at = 0;
        for piece in pieces {
            let (source, _) = self.piece_file(upload, piece)?;
            self.check_unchanged(bucket, upload, piece)?;
            if at == 0 {
                self.fs.note(FsOp::Copy, key.as_str()).map_err(fail)?;
                // Tells whether blocks can be shared at all.
                if rfs::ioctl_ficlone(&**temp.file(), &source).is_err() {
                    return Ok(None);
                }
            } else {
                self.fs
                    .copy(&source, 0, temp.file(), at, piece.info.size, key.as_str())
                    .map_err(|error| Error::io("assemble", &bucket.display(key.as_str()), error))?;
            }
            at += piece.info.size;
        }
        Ok(Some(temp))
    }

    /// Appends part after part to the first one.
    fn append(&self, bucket: &Bucket, key: &Key, upload: &Upload, pieces: &[Piece]) -> Result<Temp> {
        let fail = |error| bucket.error("assemble", key.as_str(), error);
        let fail_io = |error| Error::io("assemble", &bucket.display(key.as_str()), error);
        let mut done = self.assembled(upload)?;
        // What a former attempt did is of use as far as it is the same.
        let same =
            done.iter().zip(pieces).take_while(|(done, piece)| **done == Assembled::of(&piece.info)).count();
        while done.len() > same {
            self.take_back(bucket, upload, &mut done)?;
        }
        let Some((first, rest)) = pieces.split_first() else { return Err(fail(Errno::INVAL)) };
        if done.is_empty() {
            let line = Assembled::of(&first.info);
            let json = [to_json(&line), b"\n".to_vec()].concat();
            self.fs.write_small(&upload.dir, LOG, &json, &self.owner, self.sync_files()).map_err(fail)?;
            self.check_unchanged(bucket, upload, first)?;
            self.fs
                .rename(&upload.dir, &first.info.number.to_string(), &upload.dir, ASSEMBLY)
                .map_err(fail)?;
            if self.sync_names() {
                self.fs.sync_dir(&upload.dir, ASSEMBLY).map_err(fail)?;
            }
            if matches!(self.keeper, Keeper::Sidecar(_)) {
                let file = self.fs.open_beneath(&upload.dir, ASSEMBLY, READ).map_err(fail)?;
                let path = format!("{}/{}", upload.path, first.info.number);
                self.keeper.forget(self.means(), Subject::new(&file, bucket, &path));
            }
            done.push(line);
        } else {
            self.drop_part(bucket, upload, first)?;
        }
        let file = File::from(self.fs.open_beneath(&upload.dir, ASSEMBLY, OFlags::RDWR).map_err(fail)?);
        let mut at: u64 = done.iter().map(|part| part.size).sum();
        file.set_len(at).map_err(fail_io)?;
        let already = done.len() - 1;
        for piece in &rest[..already] {
            self.drop_part(bucket, upload, piece)?;
        }
        let log = self.fs.open_beneath(&upload.dir, LOG, OFlags::WRONLY | OFlags::APPEND).map_err(fail)?;
        let mut log = File::from(log);
        let most = group_size(pieces.iter().map(|piece| piece.info.size).sum());
        let mut group: Vec<&Piece> = Vec::new();
        let mut group_bytes = 0;
        for (index, piece) in rest.iter().enumerate().skip(already) {
            let source =
                self.fs.open_beneath(&upload.dir, &piece.info.number.to_string(), READ).map_err(fail)?;
            self.check_unchanged(bucket, upload, piece)?;
            self.fs
                .copy(&File::from(source), 0, &file, at, piece.info.size, key.as_str())
                .map_err(fail_io)?;
            at += piece.info.size;
            group.push(piece);
            group_bytes += piece.info.size;
            if group_bytes < most && index + 1 < rest.len() {
                continue;
            }
            if self.sync_files() {
                self.fs.sync_file(&file, ASSEMBLY).map_err(fail)?;
            }
            let lines: Vec<u8> = group
                .iter()
                .flat_map(|p| [to_json(&Assembled::of(&p.info)), b"\n".to_vec()].concat())
                .collect();
            self.fs.note(FsOp::Write, LOG).map_err(fail)?;
            log.write_all(&lines).map_err(fail_io)?;
            if self.sync_files() {
                self.fs.sync_file(&log, LOG).map_err(fail)?;
            }
            for piece in group.drain(..) {
                self.drop_part(bucket, upload, piece)?;
            }
            group_bytes = 0;
        }
        // The attributes of the part that it was.
        let path = format!("{}/{ASSEMBLY}", upload.path);
        for name in [name::PART_CRC64NVME, name::UNDECLARED_CHECKSUMS, name::CHECKSUMS, name::ETAG] {
            if matches!(self.keeper, Keeper::Attributes) {
                let subject = Subject::new(&file, bucket, &path);
                self.keeper.update(self.means(), subject, &[(name, None)])?;
            }
        }
        let dir = upload.dir.as_fd().try_clone_to_owned().map_err(fail_io)?;
        Ok(Temp::adopt_kept(file, dir, ASSEMBLY))
    }

    /// Removes the file of a part that is in `assembly`.
    fn drop_part(&self, bucket: &Bucket, upload: &Upload, piece: &Piece) -> Result<()> {
        let name = piece.info.number.to_string();
        if let Ok(file) = self.fs.open_beneath(&upload.dir, &name, READ) {
            let path = format!("{}/{name}", upload.path);
            self.keeper.forget(self.means(), Subject::new(&file, bucket, &path));
        }
        match self.fs.unlink(&upload.dir, &name) {
            Ok(()) | Err(Errno::NOENT) => Ok(()),
            Err(error) => Err(Error::fs("remove a part of upload", &upload.id, error)),
        }
    }

    /// Fails when a part is not the one that was checked.
    fn check_unchanged(&self, bucket: &Bucket, upload: &Upload, piece: &Piece) -> Result<()> {
        let now = self.part_info(bucket, upload, piece.info.number)?;
        if now.is_some_and(|now| now.etag == piece.info.etag && now.size == piece.info.size) {
            return Ok(());
        }
        Err(Error::InvalidPart {
            number: piece.info.number,
            reason: "it was uploaded anew while the upload was being completed".to_owned(),
        })
    }

    /// Gets the last part back out of `assembly`, unless it was uploaded anew.
    fn take_back(&self, bucket: &Bucket, upload: &Upload, done: &mut Vec<Assembled>) -> Result<()> {
        let fail = |error| Error::fs("take apart upload", &upload.id, error);
        let fail_io = |error| Error::io("take apart upload", &upload.id, error);
        let Some(last) = done.pop() else { return Ok(()) };
        let name = last.number.to_string();
        let start: u64 = done.iter().map(|part| part.size).sum();
        let file = File::from(self.fs.open_beneath(&upload.dir, ASSEMBLY, OFlags::RDWR).map_err(fail)?);
        if u64::try_from(stat(&file).map_err(fail)?.st_size).unwrap_or(0) < start + last.size {
            return Err(Error::InvalidPart {
                number: last.number,
                reason: "its data was lost in a crash; upload it again".to_owned(),
            });
        }
        if stat_at(&upload.dir, &name).is_err() {
            let mut temp = Temp::create(&self.fs, bucket.dir(), &self.owner, &name).map_err(fail)?;
            self.fs.copy(&file, start, temp.file(), 0, last.size, &name).map_err(fail_io)?;
            let mut raw = Raw::from([(name::ETAG.to_owned(), format!("\"{}\"", last.etag).into_bytes())]);
            if let Some(checksums) = &last.checksums {
                let name =
                    if upload.declared().is_some() { name::CHECKSUMS } else { name::UNDECLARED_CHECKSUMS };
                raw.insert(name.to_owned(), checksums.clone().into_bytes());
            }
            let path = format!("{}/{name}", upload.path);
            let copy = Arc::clone(temp.file());
            self.keeper.write_new(self.means(), Subject::new(&*copy, bucket, &path), &raw)?;
            if self.sync_files() {
                self.fs.sync_file(&*copy, &name).map_err(fail)?;
            }
            match temp.link_new(&self.fs, &upload.dir, &name) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(fail(error)),
            }
            if self.sync_names() {
                self.fs.sync_dir(&upload.dir, &name).map_err(fail)?;
            }
        }
        let lines: Vec<u8> = done.iter().flat_map(|line| [to_json(line), b"\n".to_vec()].concat()).collect();
        if done.is_empty() {
            self.fs.unlink(&upload.dir, ASSEMBLY).map_err(fail)?;
        }
        self.fs.write_small(&upload.dir, LOG, &lines, &self.owner, self.sync_files()).map_err(fail)?;
        if !done.is_empty() {
            file.set_len(start).map_err(fail_io)?;
        }
        Ok(())
    }
}

//! Options of the sub-command `posix`.

use std::path::PathBuf;

use clap::builder::FalseyValueParser;
use clap::{Args, ValueEnum};

use super::{mode, seconds};
use crate::gateway::config::{Config, DirectIo};
use crate::store::{self, EtagMode};

/// How much of a write is on stable storage before it is acknowledged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Durability {
    /// Data and directory entry
    Full,
    /// Data only
    Data,
    /// Nothing
    None,
}

/// What the ETag of an object uploaded in one piece is made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Etag {
    /// MD5, as Amazon S3 has it
    Md5,
    /// CRC-64/NVME, which costs next to nothing
    Checksum,
}

/// Who else writes to the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Locks {
    /// Gateways on several machines
    Shared,
    /// Gateways of this machine
    Node,
    /// Nobody but this gateway
    Process,
}

/// ETag of files that no gateway has put there.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum ForeignEtag {
    /// From inode, size and time
    Inode,
    /// MD5, computed at the first GET or HEAD
    Md5,
}

/// As typed; see the texts, which are the help.
#[derive(Debug, Args)]
#[allow(missing_docs)]
pub struct PosixArguments {
    /// Directory to serve: its sub-directories are buckets, the files below them objects
    #[arg(value_name = "ROOT")]
    pub root: PathBuf,
    /// Give new files and directories this owner
    #[arg(long, value_name = "UID", env = "VGW_CHOWN_UID")]
    pub chuid: Option<u32>,
    /// Give new files and directories this group
    #[arg(long, value_name = "GID", env = "VGW_CHOWN_GID")]
    pub chgid: Option<u32>,
    /// Let symbolic links to directories in ROOT be buckets
    #[arg(long, env = "VGW_BUCKET_LINKS", value_parser = FalseyValueParser::new())]
    pub bucketlinks: bool,
    /// Directory, outside ROOT, for older versions of objects
    #[arg(long, value_name = "DIR", env = "VGW_VERSIONING_DIR")]
    pub versioning_dir: Option<PathBuf>,
    /// Permission bits of new directories
    #[arg(long, value_name = "OCTAL", env = "VGW_DIR_PERMS", default_value = "0755", value_parser = mode)]
    pub dir_perms: u32,
    /// Permission bits of new files
    #[arg(long, value_name = "OCTAL", env = "VGW_FILE_PERMS", default_value = "0644", value_parser = mode)]
    pub file_perms: u32,
    /// Keep attributes as files below this directory, for file systems without extended attributes
    #[arg(long, value_name = "DIR", env = "VGW_META_SIDECAR")]
    pub sidecar: Option<PathBuf>,
    /// Use named temporary files even where unnamed ones work
    #[arg(long, env = "VGW_DISABLE_OTMP", value_parser = FalseyValueParser::new())]
    pub disableotmp: bool,
    /// Never copy inside the kernel
    #[arg(long, env = "VGW_DISABLE_COPY_FILE_RANGE", value_parser = FalseyValueParser::new())]
    pub disable_copy_file_range: bool,
    /// What is on stable storage before a write is acknowledged
    #[arg(long, value_enum, env = "VGW_DURABILITY", default_value = "full")]
    pub durability: Durability,
    /// What ETags are made of
    #[arg(long, value_enum, env = "VGW_ETAG", default_value = "md5")]
    pub etag: Etag,
    /// ETag of files that no gateway has put there
    #[arg(long, value_enum, env = "VGW_FOREIGN_ETAG", default_value = "inode")]
    pub foreign_etag: ForeignEtag,
    /// Whether RDMA bypasses the page cache; auto: for objects of 256MiB and more
    #[arg(long, value_enum, env = "VGW_DIRECT_IO", default_value = "off")]
    pub direct_io: DirectIo,
    /// Who else writes to ROOT, and so how far locks must reach
    #[arg(long, value_enum, env = "VGW_LOCK_MODE", default_value = "shared")]
    pub lock_mode: Locks,
    /// Age after which abandoned temporary files are removed
    #[arg(long, value_name = "SECONDS", env = "VGW_SWEEP_AFTER", default_value = "86400", value_parser = seconds)]
    pub sweep_after: std::time::Duration,
    /// Calls into the file system at a time
    #[arg(long, value_name = "N", env = "VGW_POSIX_CONCURRENCY", default_value_t = 256)]
    pub concurrency: usize,
}

impl PosixArguments {
    pub(super) fn apply(self, config: &mut Config) -> Result<(), String> {
        if !(1..=65_536).contains(&self.concurrency) {
            return Err("--concurrency must be from 1 to 65536".into());
        }
        config.concurrency = self.concurrency;
        config.etag = match self.etag {
            Etag::Md5 => EtagMode::Md5,
            Etag::Checksum => EtagMode::Checksum,
        };
        config.direct_io = self.direct_io;
        let options = &mut config.store;
        options.durability = match self.durability {
            Durability::Full => store::Durability::Full,
            Durability::Data => store::Durability::Data,
            Durability::None => store::Durability::None,
        };
        options.lock_mode = match self.lock_mode {
            Locks::Shared => store::LockMode::Shared,
            Locks::Node => store::LockMode::Node,
            Locks::Process => store::LockMode::Process,
        };
        options.foreign_etag = match self.foreign_etag {
            ForeignEtag::Inode => store::ForeignEtag::Inode,
            ForeignEtag::Md5 => store::ForeignEtag::Md5,
        };
        options.dir_mode = self.dir_perms;
        options.file_mode = self.file_perms;
        options.chown_uid = self.chuid;
        options.chown_gid = self.chgid;
        options.bucket_links = self.bucketlinks;
        options.versioning_dir = self.versioning_dir;
        options.sidecar = self.sidecar;
        options.disable_otmpfile = self.disableotmp;
        options.disable_copy_file_range = self.disable_copy_file_range;
        options.sweep_after = self.sweep_after;
        Ok(())
    }
}

//! Extended attributes with the prefix `user.`, on open descriptors.

use std::os::fd::AsFd;

use rustix::fs::{self as rfs, XattrFlags};
use rustix::io::Errno;

use super::{Fs, FsOp};

const PREFIX: &str = "user.";

impl Fs {
    /// The value of an attribute, when it is there.
    pub(crate) fn attribute(&self, file: impl AsFd, name: &str) -> Result<Option<Vec<u8>>, Errno> {
        let name = format!("{PREFIX}{name}");
        let mut buffer = [0_u8; 512];
        match rfs::fgetxattr(&file, &name, &mut buffer) {
            Ok(length) => return Ok(Some(buffer[..length].to_vec())),
            Err(Errno::NODATA) => return Ok(None),
            Err(Errno::RANGE) => {}
            Err(error) => return Err(error),
        }
        loop {
            let size = match rfs::fgetxattr_query(&file, &name) {
                Err(Errno::NODATA) => return Ok(None),
                other => other?,
            };
            let mut value = vec![0; size];
            match rfs::fgetxattr(&file, &name, &mut *value) {
                Ok(length) => {
                    value.truncate(length);
                    return Ok(Some(value));
                }
                Err(Errno::NODATA) => return Ok(None),
                // It grew in between.
                Err(Errno::RANGE) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// The names of all attributes, without the prefix.
    pub(crate) fn attribute_names(&self, file: impl AsFd) -> Result<Vec<String>, Errno> {
        let mut list = vec![0_u8; 1024];
        loop {
            match rfs::flistxattr(&file, &mut *list) {
                Ok(length) => {
                    list.truncate(length);
                    break;
                }
                Err(Errno::RANGE) if list.len() < 1 << 20 => {
                    let size = list.len() * 4;
                    list.resize(size, 0);
                }
                Err(error) => return Err(error),
            }
        }
        let names = list.split(|&b| b == 0).filter_map(|name| std::str::from_utf8(name).ok());
        Ok(names.filter_map(|name| name.strip_prefix(PREFIX)).map(str::to_owned).collect())
    }

    pub(crate) fn set_attribute(&self, file: impl AsFd, name: &str, value: &[u8]) -> Result<(), Errno> {
        self.note(FsOp::SetAttribute, name)?;
        rfs::fsetxattr(file, format!("{PREFIX}{name}"), value, XattrFlags::empty())
    }

    /// Removes an attribute; no matter if it is not there.
    pub(crate) fn remove_attribute(&self, file: impl AsFd, name: &str) -> Result<(), Errno> {
        self.note(FsOp::SetAttribute, name)?;
        match rfs::fremovexattr(file, format!("{PREFIX}{name}")) {
            Err(Errno::NODATA) => Ok(()),
            other => other,
        }
    }
}

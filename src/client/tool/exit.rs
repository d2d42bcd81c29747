//! How the command ends.

use std::process::ExitCode;

use crate::client::Error;
use crate::{gpu, rdma};

/// Exit codes of `cuobjtest`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Exit {
    /// 0: everything asked for was done and verified.
    Verified,
    /// 1: data or protocol failure.
    Failed,
    /// 2: the command line or the environment cannot be used.
    Usage,
    /// 3: hardware that was asked for is absent.
    HardwareAbsent,
    /// 130: stopped by an interrupt.
    Interrupted,
}

impl Exit {
    /// The number.
    pub fn code(self) -> u8 {
        match self {
            Self::Verified => 0,
            Self::Failed => 1,
            Self::Usage => 2,
            Self::HardwareAbsent => 3,
            Self::Interrupted => 130,
        }
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> Self {
        ExitCode::from(exit.code())
    }
}

/// Why the command did not verify everything.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Failure {
    /// The command line or the environment cannot be used.
    #[error("{0}")]
    Usage(String),
    /// Hardware that was asked for is absent.
    #[error("{0}")]
    HardwareAbsent(String),
    /// An interrupt came.
    #[error("interrupted")]
    Interrupted,
    /// A transfer failed.
    #[error("{context}{source}")]
    Transfer {
        /// What was being done, with a trailing colon and space, or empty.
        context: String,
        /// The failure.
        source: Box<Error>,
    },
    /// Bytes came back changed.
    #[error("{mismatches}/{iterations} iterations had checksum mismatches")]
    Mismatch {
        /// Iterations whose bytes differed.
        mismatches: u64,
        /// Iterations in all.
        iterations: u64,
    },
    /// A file or stream of results could not be written.
    #[error("cannot write {place}: {source}")]
    Output {
        /// File, or `standard output`.
        place: String,
        /// The cause.
        source: std::io::Error,
    },
}

impl From<Error> for Failure {
    fn from(source: Error) -> Self {
        Self::transfer("", source)
    }
}

impl Failure {
    /// A failed transfer, told with what was being done.
    pub(crate) fn transfer(context: impl Into<String>, source: Error) -> Self {
        let context = context.into();
        let context = if context.is_empty() { context } else { format!("{context}: ") };
        Self::Transfer { context, source: Box::new(source) }
    }

    /// The same failure, told as part of something larger.
    pub(crate) fn within(mut self, larger: &str) -> Self {
        if let Self::Transfer { context, .. } = &mut self {
            context.insert_str(0, &format!("{larger}: "));
        }
        self
    }

    /// The exit code.
    pub fn exit(&self) -> Exit {
        match self {
            Self::Usage(_) => Exit::Usage,
            Self::HardwareAbsent(_) => Exit::HardwareAbsent,
            Self::Interrupted => Exit::Interrupted,
            Self::Transfer { source, .. } => match **source {
                Error::Endpoint { .. } | Error::Certificates { .. } => Exit::Usage,
                Error::Rdma(rdma::Error::ClientUnavailable { .. } | rdma::Error::Register { .. }) => {
                    Exit::HardwareAbsent
                }
                Error::Gpu(gpu::Error::NoDriver | gpu::Error::NoDevice { .. } | gpu::Error::Register(_)) => {
                    Exit::HardwareAbsent
                }
                _ => Exit::Failed,
            },
            Self::Mismatch { .. } | Self::Output { .. } => Exit::Failed,
        }
    }
}

//! `cuobjtest devices`.

use std::io::Write;

use super::args::DevicesArgs;
use super::{Exit, Failure};

/// Lists devices.
pub(crate) fn run(_: &DevicesArgs, _: &mut dyn Write) -> Result<Exit, Failure> {
    Err(Failure::Usage("this build cannot list devices".to_owned()))
}

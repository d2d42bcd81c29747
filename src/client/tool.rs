//! The logic of `cuobjtest`: what was asked for, the runs, and how they are told.
//!
//! [`run`] is the whole command; the binary only calls it. The steps are [`args`] (the command
//! line), [`plan`] (what it means), [`worker`] (the transfers of one thread), [`mod@bench`] (a run of
//! several workers), [`stats`], and the outputs [`report`], [`json`] and [`plot`].

pub mod args;
pub mod bench;
mod command;
mod copy;
mod devices;
pub mod exit;
pub mod json;
mod launch;
mod memory;
mod parts;
pub mod plan;
pub mod plot;
mod progress;
pub mod random;
pub mod report;
pub mod stats;
pub mod worker;

pub use command::run;
pub use exit::{Exit, Failure};

//! The gateway's command.
fn main() {}

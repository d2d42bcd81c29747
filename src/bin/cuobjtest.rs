//! The client's command.
fn main() {}

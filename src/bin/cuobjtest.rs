//! Measures and verifies S3 transfers over RDMA. The logic is in `vgwrdma::client::tool`.
#![forbid(unsafe_code)]

use std::process::ExitCode;

fn main() -> ExitCode {
    vgwrdma::client::tool::run(std::env::args_os()).into()
}

//! The gateway's command; see `vgwrdma --help`.
#![forbid(unsafe_code)]

fn main() -> std::process::ExitCode {
    vgwrdma::gateway::run::run(std::env::args_os())
}

//! `cuobjtest devices`: the devices of this machine, which one would be used, and what is missing.

use std::io::{self, Write};
use std::net::{IpAddr, ToSocketAddrs as _};

use serde::Serialize;

use super::args::DevicesArgs;
use super::{Exit, Failure};
use crate::client::Endpoint;
use crate::client::devices::{Device, Pick, Problem, choose, devices, problems, routes};
use crate::client::environment::RdmaEnvironment;
use crate::rdma::Provider;
use crate::rdma::provider::Maker;

#[derive(Serialize)]
struct Document<'a> {
    library: &'a str,
    devices: &'a [Device],
    chosen: Option<Chosen<'a>>,
    problems: &'a [Problem],
}

#[derive(Serialize)]
struct Chosen<'a> {
    device: &'a str,
    port: u32,
    gid_index: u32,
    address: IpAddr,
    reason: &'a str,
}

/// Lists devices. The exit code tells whether one can be used.
pub(crate) fn run(args: &DevicesArgs, out: &mut dyn Write) -> Result<Exit, Failure> {
    let environment = RdmaEnvironment::from_process().map_err(|e| Failure::Usage(e.to_string()))?;
    let peers = match &args.endpoint {
        Some(url) => peers(url)?,
        None => Vec::new(),
    };
    let choice = environment.choice(peers);
    let devices = devices(&args.root);
    let picks = choose(&devices, &routes(&args.root), &choice);
    let problems = problems(&args.root, &devices, &picks, &choice);
    let written = if args.json {
        json(out, &devices, &picks, &problems)
    } else {
        text(out, &devices, &picks, &problems)
    };
    written
        .and_then(|()| out.flush())
        .map_err(|source| Failure::Output { place: "standard output".to_owned(), source })?;
    let usable = !picks.is_empty() && !problems.iter().any(|problem| problem.fatal);
    Ok(if usable { Exit::Verified } else { Exit::HardwareAbsent })
}

fn peers(url: &str) -> Result<Vec<IpAddr>, Failure> {
    let endpoint: Endpoint = url.parse().map_err(|e: crate::client::Error| Failure::Usage(e.to_string()))?;
    let found = (endpoint.host(), endpoint.port()).to_socket_addrs();
    let found = found.map_err(|e| Failure::Usage(format!("-endpoint: {}: {e}", endpoint.host())))?;
    Ok(found.map(|address| address.ip().to_canonical()).collect())
}

fn json(out: &mut dyn Write, devices: &[Device], picks: &[Pick], problems: &[Problem]) -> io::Result<()> {
    let chosen = picks.first().map(|pick| Chosen {
        device: &pick.device,
        port: pick.port,
        gid_index: pick.gid_index,
        address: pick.address,
        reason: &pick.reason,
    });
    let document = Document { library: crate::client::library(), devices, chosen, problems };
    serde_json::to_writer_pretty(&mut *out, &document)?;
    writeln!(out)
}

fn text(out: &mut dyn Write, devices: &[Device], picks: &[Pick], problems: &[Problem]) -> io::Result<()> {
    let best = picks.first();
    for device in devices {
        write!(out, "{}", device.name)?;
        if let Some(board) = &device.board {
            write!(out, "  {}", board_name(board))?;
        }
        write!(out, "  driver {}", device.driver.as_deref().unwrap_or("software"))?;
        if let Some(firmware) = &device.firmware {
            write!(out, "  firmware {firmware}")?;
        }
        if let Some(node) = device.numa_node {
            write!(out, "  NUMA node {node}")?;
        }
        writeln!(out)?;
        for port in &device.ports {
            writeln!(
                out,
                "  port {}  {} ({})  {:?}  {}",
                port.number, port.state, port.physical_state, port.link_layer, port.rate
            )?;
            for gid in &port.gids {
                let chosen = best.is_some_and(|pick| {
                    (&*pick.device, pick.port, pick.gid_index) == (&*device.name, port.number, gid.index)
                });
                writeln!(
                    out,
                    "  {} GID {:<3} {:<10}  {:<39}  {}",
                    if chosen { '*' } else { ' ' },
                    gid.index,
                    gid.kind.name(),
                    gid.address.to_string(),
                    gid.netdev.as_deref().unwrap_or("-")
                )?;
            }
        }
    }
    if let Some(pick) = best {
        writeln!(out, "\nchosen: {pick}")?;
    }
    if !problems.is_empty() {
        writeln!(out)?;
    }
    for problem in problems {
        writeln!(out, "{problem}")?;
    }
    writeln!(out, "\ncuObject library in this program: {}", crate::client::library())?;
    if Provider::current().is_ok_and(|provider| provider.maker == Maker::Soft) {
        writeln!(out, "The software SDK moves bytes over sockets and needs none of these devices.")?;
    }
    Ok(())
}

/// The product behind a board number of the mlx5 driver, which are the PCI device ids in decimal.
fn board_name(board: &str) -> String {
    let product = match board.strip_prefix("MT").and_then(|n| n.parse::<u32>().ok()) {
        Some(4115 | 4116) => "ConnectX-4",
        Some(4117 | 4118) => "ConnectX-4 Lx",
        Some(4119 | 4120) => "ConnectX-5",
        Some(4121 | 4122) => "ConnectX-5 Ex",
        Some(4123 | 4124) => "ConnectX-6",
        Some(4125) => "ConnectX-6 Dx",
        Some(4127) => "ConnectX-6 Lx",
        Some(4129) => "ConnectX-7",
        Some(4131) => "ConnectX-8",
        Some(41682) => "BlueField",
        Some(41686) => "BlueField-2",
        Some(41692) => "BlueField-3",
        _ => return board.to_owned(),
    };
    format!("{product} ({board})")
}

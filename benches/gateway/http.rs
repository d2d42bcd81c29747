//! Rows about standard S3: against nginx, the machine's MD5, and s3s-fs.

use std::time::Instant;

use anyhow::{Context as _, Result};
use vgwrdma::client::{Client, GetOptions, PutOptions, RdmaSession};
use vgwrdma::units::format_size;

use crate::Scale;
use crate::measure::{Report, Target, median, randomize, rate, speed};
use crate::rdma::md5_seconds;
use crate::server::{BUCKET, Server};

const SMALL_OBJECT: usize = 4096;
/// Clients with small objects at a time.
const SMALL_CLIENTS: usize = 8;

/// Large objects: GET against nginx on the same file, PUT against MD5 and s3s-fs.
pub(crate) async fn large(scale: Scale, session: &RdmaSession, report: &mut Report) -> Result<()> {
    let size = scale.http_object;
    println!("\nstandard S3, {} objects, {} rounds, medians", format_size(size as u64), scale.http_rounds);
    let gateway = Server::gateway(None, &["--durability", "none"])?;
    let client = gateway.client()?;
    client.ensure_bucket(BUCKET).await?;
    let mut buffer = session.host_buffer(size)?;
    randomize(&mut buffer)?;
    let source = buffer.as_slice()?.context("host memory")?.to_vec();
    client.put_http(BUCKET, "object", &buffer, 0..size, &PutOptions::default()).await?;
    let nginx = Server::nginx(&gateway.root.0)?;
    let nginx =
        nginx.as_ref().map(|server| Ok::<_, anyhow::Error>((server, server.client()?))).transpose()?;
    let s3s = Server::s3s_fs()?;
    let s3s = s3s.as_ref().map(|server| Ok::<_, anyhow::Error>((server, server.client()?))).transpose()?;
    if let Some((_, client)) = &s3s {
        client.ensure_bucket(BUCKET).await?;
    }
    let [mut get, mut get_nginx, mut put, mut put_s3s, mut md5] = [const { Vec::new() }; 5];
    let want = GetOptions::exactly(size as u64);
    for _ in 0..scale.http_rounds {
        let start = Instant::now();
        client.get_http(BUCKET, "object", &mut buffer, &want).await?;
        get.push(start.elapsed().as_secs_f64());
        if let Some((_, nginx)) = &nginx {
            let start = Instant::now();
            nginx.get_http(BUCKET, "object", &mut buffer, &want).await?;
            get_nginx.push(start.elapsed().as_secs_f64());
        }
        let start = Instant::now();
        client.put_http(BUCKET, "new", &buffer, 0..size, &PutOptions::default()).await?;
        put.push(start.elapsed().as_secs_f64());
        md5.push(md5_seconds(&source)?);
        if let Some((_, s3s)) = &s3s {
            let start = Instant::now();
            s3s.put_http(BUCKET, "new", &buffer, 0..size, &PutOptions::default()).await?;
            put_s3s.push(start.elapsed().as_secs_f64());
        }
    }
    println!("GB/s: GET {:.2}, PUT {:.2}, MD5 {:.2}", rate(size, &get), rate(size, &put), rate(size, &md5));
    match &nginx {
        Some(_) => {
            println!("GB/s: GET of nginx {:.2}", rate(size, &get_nginx));
            report.row("standard GET / nginx, same file", speed(&get, &get_nginx), Target::AtLeast(0.7));
        }
        None => println!("standard GET / nginx: left out, nginx is not installed"),
    }
    report.row("standard PUT (MD5 ETag) / single-thread MD5", speed(&put, &md5), Target::AtLeast(0.6));
    match &s3s {
        Some(_) => {
            println!("GB/s: PUT of s3s-fs {:.2}", rate(size, &put_s3s));
            report.row("standard PUT (MD5 ETag) / s3s-fs", speed(&put, &put_s3s), Target::AtLeast(1.5));
        }
        None => println!("standard PUT / s3s-fs: left out, S3S_FS does not say where the program is"),
    }
    Ok(())
}

/// Small objects, PUT and GET in turn, several clients at a time, in operations per second.
pub(crate) async fn small(scale: Scale, session: &RdmaSession, report: &mut Report) -> Result<()> {
    let gateway = Server::gateway(None, &["--durability", "none"])?;
    let Some(s3s) = Server::s3s_fs()? else {
        println!("4 KiB operations / s3s-fs: left out, S3S_FS does not say where the program is");
        return Ok(());
    };
    for server in [&gateway, &s3s] {
        server.client()?.ensure_bucket(BUCKET).await?;
    }
    let [mut ours, mut theirs] = [const { Vec::new() }; 2];
    for _ in 0..scale.http_rounds {
        ours.push(operations(&gateway, session, scale.small_rounds * 8).await?);
        theirs.push(operations(&s3s, session, scale.small_rounds * 8).await?);
    }
    let count = (2 * SMALL_CLIENTS * scale.small_rounds * 8) as f64;
    println!(
        "\n4 KiB objects, {SMALL_CLIENTS} clients, operations/s: gateway {:.0}, s3s-fs {:.0}",
        count / median(&ours),
        count / median(&theirs)
    );
    report.row("4 KiB PUT and GET, no durability / s3s-fs", speed(&ours, &theirs), Target::AtLeast(1.2));
    Ok(())
}

/// Seconds for `rounds` PUTs and GETs of each client.
async fn operations(server: &Server, session: &RdmaSession, rounds: usize) -> Result<f64> {
    let mut tasks = tokio::task::JoinSet::new();
    let mut clients = Vec::new();
    for i in 0..SMALL_CLIENTS {
        let mut buffer = session.host_buffer(SMALL_OBJECT)?;
        randomize(&mut buffer)?;
        clients.push((server.client()?, buffer, format!("small-{i}")));
    }
    let start = Instant::now();
    for (client, mut buffer, key) in clients {
        let client: Client = client;
        tasks.spawn(async move {
            for _ in 0..rounds {
                client.put_http(BUCKET, &key, &buffer, 0..SMALL_OBJECT, &PutOptions::default()).await?;
                let want = GetOptions::exactly(SMALL_OBJECT as u64);
                client.get_http(BUCKET, &key, &mut buffer, &want).await?;
            }
            anyhow::Ok(())
        });
    }
    while let Some(ended) = tasks.join_next().await {
        ended??;
    }
    Ok(start.elapsed().as_secs_f64())
}
